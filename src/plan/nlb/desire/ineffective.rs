//! Settings of a Service that have no effect. Each is a warning, instead of being ignored silently.

use crate::plan::loadbalancer::annotations::{AnnotationName, Applies};
use crate::plan::loadbalancer::backends::{AddressFamily, BackendRules};
use crate::plan::loadbalancer::desired::Sources;
use crate::plan::loadbalancer::ineffective::{self, unknown_ports, unmanaged};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::nlb::annotations::{Annotations, Field, Name};
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::{GroupField, ListenerField, Protocol};

/// The settings without effect.
pub(super) fn ineffective(sources: &Sources<'_, Name>, desired: &Desired) -> Vec<ServiceProblem> {
    let (inputs, annotations) = (sources.inputs, sources.annotations);
    let mut found = attributes(annotations, desired);
    let names = [Name::ProtocolPort, Name::ListenerPortRange, Name::VgroupPort];
    let names = if desired.reuse.is_some() { &names[..] } else { &names[..2] };
    found.extend(unknown_ports(inputs, annotations, names));
    found.extend(dependent(annotations, sources.rules, desired));
    if inputs.service.client_ip_affinity.is_some() {
        let why = format!("a network load balancer has none; see {}: sch", annotations.key(Name::Scheduler));
        found.push(ServiceProblem::ignored("spec.sessionAffinity", "ClientIP", why));
    }
    found
}

/// Attributes that no listener or group has, or that belong to a feature that is off.
fn attributes(annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let stated = Name::TABLE.iter().filter(|entry| annotations.is_stated(entry.name));
    let checked = annotations.is(Name::HealthCheckFlag, "true");
    let mut found = Vec::new();
    for entry in stated {
        match entry.applies {
            Applies::Listeners | Applies::Field(Field::Listener(_)) if !desired.manage_listeners => {
                found.push(unmanaged(annotations, entry.name));
            }
            Applies::Field(Field::Listener(field)) => {
                let able = |protocol: &Protocol| field.protocols().contains(protocol);
                if !desired.listeners.keys().any(|key| able(&key.protocol)) {
                    found.push(annotations.ignored(entry.name, "no listener is TCPSSL"));
                } else if ListenerField::PPV2.contains(&field) && !annotations.is(Name::ProxyProtocol, "true") {
                    let why = format!("it needs {}: on", annotations.key(Name::ProxyProtocol));
                    found.push(annotations.ignored(entry.name, why));
                } else if field == ListenerField::AlpnPolicy && !annotations.is(Name::Alpn, "true") {
                    let why = format!("it needs {}: on", annotations.key(Name::Alpn));
                    found.push(annotations.ignored(entry.name, why));
                }
            }
            Applies::Field(Field::Group(field))
                if field.is_of_health_check() && field != GroupField::HealthCheck && !checked =>
            {
                let why = format!("it needs {}: on", annotations.key(Name::HealthCheckFlag));
                found.push(annotations.ignored(entry.name, why));
            }
            _ => {}
        }
    }
    found
}

/// Settings of the instance and of backends that need something else to have an effect.
fn dependent(annotations: &Annotations, rules: &BackendRules, desired: &Desired) -> Vec<ServiceProblem> {
    let other_family = annotations.get(Name::BackendIpVersion).is_some_and(|family| family != "ipv4");
    let tls = desired.listeners.keys().any(|key| key.protocol == Protocol::TcpSsl);
    let more = vec![
        (
            Name::BackendIpVersion,
            other_family && rules.family == AddressFamily::V4,
            format!("it needs {}: DualStack and service.ipv6", annotations.key(Name::IpVersion)),
        ),
        (
            Name::PreserveClientIp,
            tls && annotations.is(Name::PreserveClientIp, "true"),
            "backends of listeners with TCPSSL see the load balancer's address".to_owned(),
        ),
        (Name::AdditionalCertIds, !tls, "no listener is TCPSSL".to_owned()),
    ];
    ineffective::dependent(annotations, desired.reuse.is_some(), rules, more)
}
