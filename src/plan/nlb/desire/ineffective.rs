//! Settings of a Service that have no effect. Each is a warning, instead of being ignored silently.

use crate::plan::nlb::annotations::{Annotations, Field, Name};
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::{GroupField, ListenerField, Protocol};
use crate::plan::service::annotations::{AnnotationName, Applies};
use crate::plan::service::backends::{AddressFamily, BackendMode, BackendRules};
use crate::plan::service::model::Inputs;
use crate::plan::service::problem::ServiceProblem;

/// The settings without effect.
pub(super) fn ineffective(
    inputs: &Inputs<'_>,
    annotations: &Annotations,
    rules: &BackendRules,
    desired: &Desired,
) -> Vec<ServiceProblem> {
    let mut found = attributes(annotations, desired);
    found.extend(ports(inputs, annotations, desired));
    found.extend(dependent(annotations, rules, desired));
    if inputs.service.client_ip_affinity.is_some() {
        let allowed = format!("no effect on a network load balancer; see {}: sch", annotations.key(Name::Scheduler));
        found.push(ServiceProblem { field: "spec.sessionAffinity".to_owned(), given: "ClientIP".to_owned(), allowed });
    }
    found
}

fn no_effect(annotations: &Annotations, name: Name, why: &str) -> ServiceProblem {
    annotations.complaint(name, format!("no effect: {why}"))
}

/// Attributes that no listener or group has, or that belong to a feature that is off.
fn attributes(annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let stated = Name::TABLE.iter().filter(|entry| annotations.is_stated(entry.name));
    let checked = annotations.is(Name::HealthCheckFlag, "true");
    let mut found = Vec::new();
    for entry in stated {
        match entry.applies {
            Applies::Listeners | Applies::Field(Field::Listener(_)) if !desired.manage_listeners => {
                let key = annotations.key(Name::ForceOverrideListeners);
                let why = format!("listeners of a load balancer of yours are only managed with {key}");
                found.push(no_effect(annotations, entry.name, &why));
            }
            Applies::Field(Field::Listener(field)) => {
                let able = |protocol: &Protocol| field.protocols().contains(protocol);
                if !desired.listeners.keys().any(|key| able(&key.protocol)) {
                    found.push(no_effect(annotations, entry.name, "no listener is TCPSSL"));
                } else if ListenerField::PPV2.contains(&field) && !annotations.is(Name::ProxyProtocol, "true") {
                    let why = format!("it needs {}: on", annotations.key(Name::ProxyProtocol));
                    found.push(no_effect(annotations, entry.name, &why));
                } else if field == ListenerField::AlpnPolicy && !annotations.is(Name::Alpn, "true") {
                    let why = format!("it needs {}: on", annotations.key(Name::Alpn));
                    found.push(no_effect(annotations, entry.name, &why));
                }
            }
            Applies::Field(Field::Group(field))
                if field.is_of_health_check() && field != GroupField::HealthCheck && !checked =>
            {
                let why = format!("it needs {}: on", annotations.key(Name::HealthCheckFlag));
                found.push(no_effect(annotations, entry.name, &why));
            }
            _ => {}
        }
    }
    found
}

/// Lists by port that name a port which the Service does not have.
fn ports(inputs: &Inputs<'_>, annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let known = |port: u16| inputs.service.ports.iter().any(|known| known.port == port);
    let mut names = vec![Name::ProtocolPort, Name::ListenerPortRange];
    if desired.reuse.is_some() {
        names.push(Name::VgroupPort);
    }
    let about = |name: Name| {
        annotations.ports(name).filter(|(port, _)| !known(*port)).map(move |(port, text)| ServiceProblem {
            field: annotations.key(name),
            given: format!("{text}:{port}"),
            allowed: "no effect: the Service has no such port".to_owned(),
        })
    };
    names.into_iter().flat_map(about).collect()
}

/// Settings of the instance and of backends that need something else to have an effect.
fn dependent(annotations: &Annotations, rules: &BackendRules, desired: &Desired) -> Vec<ServiceProblem> {
    let set = |name| annotations.is_stated(name);
    let key = |name| annotations.key(name);
    let (reused, eni) = (desired.reuse.is_some(), rules.mode == BackendMode::Eni);
    let shared = reused && set(Name::VgroupPort);
    let any_node = "pods are attached directly, on whatever node they are".to_owned();
    let other_family = annotations.get(Name::BackendIpVersion).is_some_and(|family| family != "ipv4");
    let tls = desired.listeners.keys().any(|key| key.protocol == Protocol::TcpSsl);
    // The setting, whether it has no effect, and why.
    let table: [(Name, bool, String); 11] = [
        (Name::ForceOverrideListeners, !reused, format!("listeners are managed anyway without {}", key(Name::Id))),
        (Name::PreserveLbOnDelete, reused, "a load balancer of yours is kept in any case".to_owned()),
        (Name::BackendLabel, eni, any_node.clone()),
        (Name::RemoveUnscheduledBackend, eni, any_node),
        (
            Name::GracefulShutdown,
            !rules.graceful,
            format!("it needs {}: eni, and no {}", key(Name::BackendType), key(Name::IgnoreWeightUpdate)),
        ),
        (
            Name::BackendIpVersion,
            other_family && rules.family == AddressFamily::V4,
            format!("it needs {}: DualStack and service.ipv6", key(Name::IpVersion)),
        ),
        (Name::VgroupPort, !reused, format!("it needs {}", key(Name::Id))),
        (Name::Weight, !shared, format!("it needs {} and {}", key(Name::Id), key(Name::VgroupPort))),
        (
            Name::DefaultWeight,
            rules.mode == BackendMode::Local,
            "with externalTrafficPolicy: Local the number of pods is the weight of a node".to_owned(),
        ),
        (
            Name::PreserveClientIp,
            tls && annotations.is(Name::PreserveClientIp, "true"),
            "on listeners with TCPSSL: their backends see the load balancer's address".to_owned(),
        ),
        (Name::AdditionalCertIds, !tls, "no listener is TCPSSL".to_owned()),
    ];
    let without_effect = table.into_iter().filter(|(name, ineffective, _)| *ineffective && set(*name));
    without_effect.map(|(name, _, why)| no_effect(annotations, name, &why)).collect()
}
