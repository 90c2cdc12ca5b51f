//! What the status of a Service should say.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::desired::Desired;
use super::model::ListenerField;
use super::observed::{Observed, ObservedInstance};
use crate::plan::inputs::{Ingress, IngressDetails, ServiceView};
use crate::plan::service::gates::Registration;
use crate::plan::service::listener_diff::port_statuses;

impl Desired {
    /// What readiness gates wait for. `attached` are addresses of pods that are backends themselves; `complete` says whether
    /// every step of the plan was done.
    pub const fn registration<'a>(
        &'a self,
        observed: &'a Observed,
        attached: &'a BTreeSet<IpAddr>,
        complete: bool,
    ) -> Registration<'a> {
        Registration {
            owner: &self.owner,
            desired: &self.groups,
            observed: &observed.groups,
            unresolved: &self.unresolved,
            outside: &self.outside,
            attached,
            complete,
        }
    }
}

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

/// What newer API servers hold of each entry besides: `ipMode`, if `ip_mode` says that the server knows it, and how the
/// ports are doing.
///
/// With PROXY protocol, connections that do not pass the load balancer would lack the header that backends wait for, so
/// that nodes must not take the short way: `Proxy`. Otherwise they may: `VIP`.
pub fn expected_details(
    service: &ServiceView,
    desired: &Desired,
    observed: &Observed,
    ingress: &[Ingress],
    ip_mode: bool,
) -> Vec<IngressDetails> {
    let proxy = desired
        .listeners
        .values()
        .any(|listener| listener.fields.get(&ListenerField::ProxyProtocolV2Enabled).is_some_and(|on| on == "true"));
    let ports = port_statuses(service, desired, observed);
    let mode = |entry: &Ingress| match entry.ip.as_str() {
        _ if !ip_mode => "",
        "" => "",
        _ if proxy => "Proxy",
        _ => "VIP",
    };
    ingress.iter().map(|entry| IngressDetails { ip_mode: mode(entry).to_owned(), ports: ports.clone() }).collect()
}
