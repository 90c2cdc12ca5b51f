//! Settings of a Service that have no effect. Each is a warning, instead of being ignored silently.

use crate::plan::clb::annotations::{Annotations, Name};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::{ListenerField as Field, ListenerKey, Protocol, field_counts};
use crate::plan::inputs::{EndpointsView, ServiceView};
use crate::plan::service::annotations::{AnnotationName, Applies};
use crate::plan::service::backends::BackendMode;
use crate::plan::service::model::Inputs;
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::settings::ServiceSettings;

/// Most endpoints that one warning names.
const NAMED: usize = 5;

/// The settings without effect, and endpoints that get no traffic for what they do not say.
pub(super) fn ineffective(
    inputs: &Inputs<'_>,
    annotations: &Annotations,
    mode: BackendMode,
    desired: &Desired,
) -> Vec<ServiceProblem> {
    let Inputs { service, endpoints, settings, .. } = *inputs;
    let mut found = listeners(annotations, desired);
    found.extend(ports(service, annotations, desired));
    found.extend(dependent(annotations, settings, mode, desired));
    found.extend(silent_endpoints(service, endpoints, mode));
    found
}

fn no_effect(annotations: &Annotations, name: Name, why: &str) -> ServiceProblem {
    annotations.complaint(name, format!("no effect: {why}"))
}

/// Attributes of listeners that no listener has, or that belong to a feature that is off.
fn listeners(annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let stated = Name::TABLE.iter().filter(|entry| annotations.is_stated(entry.name));
    let mut found = Vec::new();
    for entry in stated {
        let field = match entry.applies {
            Applies::Listeners | Applies::Field(_) if !desired.manage_listeners => {
                let key = annotations.key(Name::ForceOverrideListeners);
                let why = format!("listeners of a load balancer of yours are only managed with {key}");
                found.push(no_effect(annotations, entry.name, &why));
                continue;
            }
            Applies::Field(field) => field,
            _ => continue,
        };
        let able: Vec<_> = desired
            .listeners
            .iter()
            .filter(|(key, listener)| listener.forward_to.is_none() && field.protocols().contains(&key.protocol))
            .collect();
        let counts = able.iter().any(|(key, listener)| {
            let effective = |field| listener.fields.get(&field).or_else(|| listener.defaults.get(&field));
            field_counts(key.protocol, field, &listener.fields, effective)
        });
        if able.is_empty() {
            let protocols: Vec<_> = field.protocols().iter().map(|protocol| protocol.as_str()).collect();
            found.push(no_effect(annotations, entry.name, &format!("no listener is {}", protocols.join(" or "))));
        } else if !counts {
            let able: Vec<Protocol> = able.iter().map(|(key, _)| key.protocol).collect();
            let needs = needs(annotations, field, &able);
            found.push(no_effect(annotations, entry.name, &format!("it needs {needs}")));
        }
    }
    found
}

/// What must be on for an attribute to count.
fn needs(annotations: &Annotations, field: Field, protocols: &[Protocol]) -> String {
    let is = |name, value: &str| format!("{}: {value}", annotations.key(name));
    let layer_4 = protocols.iter().any(|protocol| matches!(protocol, Protocol::Tcp | Protocol::Udp));
    let layer_7 = protocols.iter().any(|protocol| matches!(protocol, Protocol::Http | Protocol::Https));
    let mut ways = Vec::new();
    match field {
        Field::AclId | Field::AclType => ways.push(is(Name::AclStatus, "on")),
        Field::ConnectionDrainTimeout => ways.push(is(Name::ConnectionDrain, "on")),
        Field::StickySessionType => ways.push(is(Name::StickySession, "on")),
        Field::Cookie | Field::CookieTimeout => {
            let kind = if field == Field::Cookie { "server" } else { "insert" };
            ways.push(format!("{} and {}", is(Name::StickySession, "on"), is(Name::StickySessionType, kind)));
        }
        _ => {
            let by_http = matches!(
                field,
                Field::HealthCheckUri
                    | Field::HealthCheckDomain
                    | Field::HealthCheckHttpCode
                    | Field::HealthCheckMethod
            );
            if layer_4 {
                ways.push(if by_http { is(Name::HealthCheckType, "http") } else { is(Name::HealthCheckSwitch, "on") });
            }
            if layer_7 {
                ways.push(is(Name::HealthCheckFlag, "on"));
            }
        }
    }
    ways.join(", or ")
}

/// Lists by port that name a port which the Service does not have, or not of the protocol that they are about.
fn ports(service: &ServiceView, annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let known = |port: u16| service.ports.iter().any(|known| known.port == port);
    let about = |name, given: String, why: &str| ServiceProblem {
        field: annotations.key(name),
        given,
        allowed: format!("no effect: {why}"),
    };
    let missing = "the Service has no such port";
    let mut found = Vec::new();
    let protocols = annotations.ports(Name::ProtocolPort).filter(|(port, _)| !known(*port));
    found.extend(protocols.map(|(port, protocol)| about(Name::ProtocolPort, format!("{protocol}:{port}"), missing)));
    for (from, to) in annotations.ports(Name::ForwardPort) {
        if !desired.listeners.contains_key(&ListenerKey { port: from, protocol: Protocol::Http }) {
            let why = format!("{from} is no HTTP port; see {}", annotations.key(Name::ProtocolPort));
            found.push(about(Name::ForwardPort, format!("{from}:{to}"), &why));
        }
    }
    let reused = desired.reuse.is_some();
    let groups = annotations.ports(Name::VgroupPort).filter(|(port, _)| reused && !known(*port));
    found.extend(groups.map(|(port, id)| about(Name::VgroupPort, format!("{id}:{port}"), missing)));
    let https = desired.listeners.keys().any(|key| key.protocol == Protocol::Https);
    if annotations.pairs(Name::DomainExtensions).is_some_and(|domains| !domains.is_empty()) && !https {
        found.push(about(Name::DomainExtensions, "set".to_owned(), "no listener is https"));
    }
    found
}

/// Settings of the instance and of backends that need something else to have an effect.
fn dependent(
    annotations: &Annotations,
    settings: &ServiceSettings,
    mode: BackendMode,
    desired: &Desired,
) -> Vec<ServiceProblem> {
    let set = |name| annotations.is_stated(name);
    let is = |name, value| annotations.is(name, value);
    let key = |name| annotations.key(name);
    let (reused, eni) = (desired.reuse.is_some(), mode == BackendMode::Eni);
    let private = desired.instance.create.address_type == "intranet";
    let shared = reused && set(Name::VgroupPort);
    let ipv6 = is(Name::IpVersion, "ipv6") && settings.service.ipv6;
    let graceful = eni && !is(Name::IgnoreWeightUpdate, "on");
    let any_node = "pods are attached directly, on whatever node they are".to_owned();
    // The setting, whether it has no effect, and why.
    let table: [(Name, bool, String); 13] = [
        (Name::VswitchId, reused, "the load balancer is yours and has its place".to_owned()),
        (Name::VswitchId, !reused && !private, "only intranet load balancers have a vSwitch".to_owned()),
        (Name::ForceOverrideListeners, !reused, format!("listeners are managed anyway without {}", key(Name::Id))),
        (Name::PreserveLbOnDelete, reused, "a load balancer of yours is kept in any case".to_owned()),
        (
            Name::ExternalIpType,
            set(Name::Hostname),
            format!("{} is published instead of addresses", key(Name::Hostname)),
        ),
        (Name::BackendLabel, eni, any_node.clone()),
        (Name::RemoveUnscheduledBackend, eni, any_node),
        (
            Name::GracefulShutdown,
            !graceful,
            format!("it needs {}: eni, and no {}", key(Name::BackendType), key(Name::IgnoreWeightUpdate)),
        ),
        (
            Name::BackendIpVersion,
            is(Name::BackendIpVersion, "ipv6") && !ipv6,
            format!("it needs {}: ipv6 and service.ipv6", key(Name::IpVersion)),
        ),
        (Name::VgroupPort, !reused, format!("it needs {}", key(Name::Id))),
        (Name::Weight, !shared, format!("it needs {} and {}", key(Name::Id), key(Name::VgroupPort))),
        (
            Name::DefaultWeight,
            mode == BackendMode::Local,
            "with externalTrafficPolicy: Local the number of pods is the weight of a node".to_owned(),
        ),
        (
            Name::DefaultWeight,
            mode != BackendMode::Local && shared && set(Name::Weight),
            format!("{} decides", key(Name::Weight)),
        ),
    ];
    let without_effect = table.into_iter().filter(|(name, ineffective, _)| *ineffective && set(*name));
    without_effect.map(|(name, _, why)| no_effect(annotations, name, &why)).collect()
}

/// Endpoints, usually written by hand, that lack what decides about their traffic.
fn silent_endpoints(service: &ServiceView, endpoints: &EndpointsView, mode: BackendMode) -> Vec<ServiceProblem> {
    let active = || endpoints.endpoints.iter().filter(|endpoint| !endpoint.terminating);
    let about = |given: Vec<String>, allowed: &str| {
        let more = if given.len() > NAMED { " and others" } else { "" };
        let named = given.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ") + more;
        let field = format!("endpoints of {}", service.key);
        (!given.is_empty()).then(|| ServiceProblem { field, given: named, allowed: allowed.to_owned() })
    };
    let undecided = active().filter(|endpoint| endpoint.ready.is_none()).map(|endpoint| endpoint.address.to_string());
    let lost = active()
        .filter(|endpoint| mode == BackendMode::Local && endpoint.ready == Some(true) && endpoint.node.is_none())
        .map(|endpoint| endpoint.address.to_string());
    let undecided = about(
        undecided.collect(),
        "`conditions.ready: true`: an endpoint that does not say that it is ready gets no traffic",
    );
    let lost = about(
        lost.collect(),
        "`nodeName`: with externalTrafficPolicy: Local an endpoint gets its traffic through its node",
    );
    undecided.into_iter().chain(lost).collect()
}
