//! What the status of a Service should say.

use super::desired::Desired;
use super::model::ListenerKey;
use super::observed::{Observed, ObservedInstance};
use crate::plan::inputs::{Ingress, IngressDetails, PortStatus, ServiceView};
use crate::plan::service::management::ManagementLevel;

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
    let is_served = |index: usize| {
        let source = format!("spec.ports[{index}]");
        let there = |key: &ListenerKey| {
            observed.listeners.as_ref().is_none_or(|all| {
                all.get(key).is_some_and(|listener| desired.owner.owns_listener(&listener.description))
            })
        };
        let managed = desired.manage_listeners && desired.manage.keeps(ManagementLevel::Listeners);
        desired
            .listeners
            .iter()
            .find(|(_, listener)| listener.source == source)
            .is_some_and(|(key, _)| there(key) || !managed)
    };
    let ports: Vec<PortStatus> = (0..)
        .zip(&service.ports)
        .map(|(index, port)| PortStatus {
            port: port.port,
            protocol: port.protocol.clone(),
            error: if is_served(index) { String::new() } else { PORT_NOT_SERVED.to_owned() },
        })
        .collect();
    ingress.iter().map(|_| IngressDetails { ip_mode: String::new(), ports: ports.clone() }).collect()
}

/// The error of a port that has no listener of ours.
const PORT_NOT_SERVED: &str = "alibabacloud.com/ListenerMissing";
