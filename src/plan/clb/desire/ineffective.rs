//! Settings of a Service that have no effect. Each is a warning, instead of being ignored silently.

use crate::plan::clb::annotations::{Annotations, Name};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::{
    InstanceField, ListenerField as Field, ListenerKey, Protocol, field_counts, is_of_http_check, switches,
};
use crate::plan::inputs::{Endpoint, EndpointsView, ServiceView};
use crate::plan::loadbalancer::annotations::{AnnotationName, Applies};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::backends::Inputs;
use crate::plan::loadbalancer::backends::{BackendMode, BackendRules};
use crate::plan::loadbalancer::desired::Sources;
use crate::plan::loadbalancer::ineffective::{self, unknown_ports, unmanaged};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::settings::ServiceSettings;

/// Most endpoints that one warning names.
const NAMED: usize = 5;

/// The settings without effect, and endpoints that get no traffic for what they do not say.
pub(super) fn ineffective(sources: &Sources<'_, Name>, desired: &Desired) -> Vec<ServiceProblem> {
    let (inputs, annotations, rules) = (sources.inputs, sources.annotations, sources.rules);
    let mut found = listeners(annotations, desired);
    found.extend(ports(inputs, annotations, desired));
    found.extend(dependent(annotations, inputs.settings, rules, desired));
    found.extend(lost_endpoints(inputs.service, inputs.endpoints, rules.mode));
    found
}

/// Attributes of listeners that no listener has, or that belong to a feature that is off.
fn listeners(annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let stated = Name::TABLE.iter().filter(|entry| annotations.is_stated(entry.name));
    let mut found = Vec::new();
    for entry in stated {
        let field = match entry.applies {
            Applies::Listeners | Applies::Field(_) if !desired.manage_listeners => {
                found.push(unmanaged(annotations, entry.name));
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
            let protocols: Vec<_> = field.protocols().iter().map(|protocol| protocol.parameter()).collect();
            found.push(annotations.ignored(entry.name, format!("no listener is {}", protocols.join(" or "))));
        } else if !counts {
            let able: Vec<Protocol> = able.iter().map(|(key, _)| key.protocol).collect();
            let needs = needs(annotations, field, &able);
            found.push(annotations.ignored(entry.name, format!("it needs {needs}")));
        }
    }
    found
}

/// What must be on for an attribute to count.
fn needs(annotations: &Annotations, field: Field, protocols: &[Protocol]) -> String {
    let is = |name, value: &str| format!("{}: {value}", annotations.key(name));
    let layer_4 = protocols.iter().any(|protocol| matches!(protocol, Protocol::Tcp | Protocol::Udp));
    let layer_7 = protocols.iter().any(|protocol| matches!(protocol, Protocol::Http | Protocol::Https));
    let switches: Vec<String> =
        switches(field).into_iter().filter_map(|(switch, value)| Some(is(Name::of(switch)?, value))).collect();
    if !switches.is_empty() {
        return switches.join(" and ");
    }
    let mut ways = Vec::new();
    if layer_4 {
        let by_http = is_of_http_check(field);
        ways.push(if by_http { is(Name::HealthCheckType, "http") } else { is(Name::HealthCheckSwitch, "on") });
    }
    if layer_7 {
        ways.push(is(Name::HealthCheckFlag, "on"));
    }
    ways.join(", or ")
}

/// Lists by port that name a port which the Service does not have, or not of the protocol that they are about.
fn ports(inputs: &Inputs<'_>, annotations: &Annotations, desired: &Desired) -> Vec<ServiceProblem> {
    let names = [Name::ProtocolPort, Name::VgroupPort];
    let names = if desired.reuse.is_some() { &names[..] } else { &names[..1] };
    let mut found = unknown_ports(inputs, annotations, names);
    for (from, to) in annotations.ports(Name::ForwardPort) {
        if !desired.listeners.contains_key(&ListenerKey { port: from, protocol: Protocol::Http }) {
            let why = format!("{from} is no HTTP port; see {}", annotations.key(Name::ProtocolPort));
            found.push(ServiceProblem::ignored(annotations.key(Name::ForwardPort), format!("{from}:{to}"), why));
        }
    }
    let https = desired.listeners.keys().any(|key| key.protocol == Protocol::Https);
    if annotations.pairs(Name::DomainExtensions).is_some_and(|domains| !domains.is_empty()) && !https {
        found.push(annotations.ignored(Name::DomainExtensions, "no listener is https"));
    }
    found
}

/// Settings of the instance and of backends that need something else to have an effect.
fn dependent(
    annotations: &Annotations,
    settings: &ServiceSettings,
    rules: &BackendRules,
    desired: &Desired,
) -> Vec<ServiceProblem> {
    let is = |name, value| annotations.is(name, value);
    let key = |name| annotations.key(name);
    let reused = desired.reuse.is_some();
    let private = desired.instance.create.fields.is(InstanceField::AddressType, "intranet");
    let ipv6 = is(Name::IpVersion, "ipv6") && settings.service.ipv6;
    let more = vec![
        (Name::VswitchId, reused, "the load balancer is yours and has its place".to_owned()),
        (Name::VswitchId, !reused && !private, "only intranet load balancers have a vSwitch".to_owned()),
        (
            Name::ExternalIpType,
            annotations.is_stated(Name::Hostname),
            format!("{} is published instead of addresses", key(Name::Hostname)),
        ),
        (
            Name::BackendIpVersion,
            is(Name::BackendIpVersion, "ipv6") && !ipv6,
            format!("it needs {}: ipv6 and service.ipv6", key(Name::IpVersion)),
        ),
    ];
    ineffective::dependent(annotations, reused, rules, more)
}

/// Endpoints, usually written by hand, that lack what decides about their traffic.
fn lost_endpoints(service: &ServiceView, endpoints: &EndpointsView, mode: BackendMode) -> Option<ServiceProblem> {
    let is_lost = |it: &&Endpoint| !it.terminating && it.ready && it.node.is_none();
    let lost: Vec<String> = endpoints.endpoints.iter().filter(is_lost).map(|it| it.address.to_string()).collect();
    if mode != BackendMode::Local || lost.is_empty() {
        return None;
    }
    let more = if lost.len() > NAMED { " and others" } else { "" };
    let named = lost.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ") + more;
    let rule = "`nodeName`: with externalTrafficPolicy: Local an endpoint gets its traffic through its node";
    Some(ServiceProblem::required(format!("endpoints of {}", service.key), format!("{rule} ({named})")))
}
