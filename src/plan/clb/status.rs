//! What the status of a Service should say.

use super::desired::Desired;
use super::observed::ObservedInstance;
use crate::plan::inputs::Ingress;

/// What the Service's status should say. `eips` are the elastic addresses bound to the load balancer, if they were asked
/// for; without any, the load balancer's own address counts.
pub fn expected_ingress(desired: &Desired, instance: &ObservedInstance, eips: &[String]) -> Vec<Ingress> {
    let ip = |ip: &String| Ingress { ip: ip.clone(), hostname: String::new() };
    match &desired.extra.hostname {
        Some(hostname) => vec![Ingress { ip: String::new(), hostname: hostname.clone() }],
        None if desired.extra.eip && !eips.is_empty() => eips.iter().map(ip).collect(),
        None if instance.address.is_empty() => Vec::new(),
        None => vec![ip(&instance.address)],
    }
}
