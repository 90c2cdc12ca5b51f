//! What the status of a Service should say.

use super::desired::Desired;
use super::model::InstanceField;
use super::observed::ObservedInstance;
use crate::plan::inputs::Ingress;
use crate::plan::service::api_fields::FieldValues as _;

/// What the Service's status should say. `eips` are the elastic addresses bound to the load balancer, if they were asked
/// for; without any, the load balancer's own address counts.
pub fn expected_ingress(desired: &Desired, instance: &ObservedInstance, eips: &[String]) -> Vec<Ingress> {
    let ip = |ip: &str| Ingress { ip: ip.to_owned(), hostname: String::new() };
    let address = instance.fields.text(InstanceField::Address);
    match &desired.extra.hostname {
        Some(hostname) => vec![Ingress { ip: String::new(), hostname: hostname.clone() }],
        None if desired.extra.eip && !eips.is_empty() => eips.iter().map(|eip| ip(eip)).collect(),
        None if address.is_empty() => Vec::new(),
        None => vec![ip(address)],
    }
}
