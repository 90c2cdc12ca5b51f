//! What the status of a Service should say.

use super::desired::Desired;
use super::observed::{Observed, ObservedInstance};
use crate::plan::inputs::{Ingress, IngressDetails, ServiceView};
use crate::plan::service::listener_diff::port_statuses;

/// What the Service's status should say: the name that clients connect to.
pub fn expected_ingress(instance: &ObservedInstance) -> Vec<Ingress> {
    match instance.dns_name.as_str() {
        "" => Vec::new(),
        name => vec![Ingress { ip: String::new(), hostname: name.to_owned() }],
    }
}

/// What newer API servers hold of each entry besides: how the ports are doing.
pub fn expected_details(
    service: &ServiceView,
    desired: &Desired,
    observed: &Observed,
    ingress: &[Ingress],
) -> Vec<IngressDetails> {
    let ports = port_statuses(service, desired, observed);
    ingress.iter().map(|_| IngressDetails { ip_mode: String::new(), ports: ports.clone() }).collect()
}
