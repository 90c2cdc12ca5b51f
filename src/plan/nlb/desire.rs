//! From a Service to its desired state. Start with [`desire`].
//!
//! Everything that can be wrong with a Service is found here, and comes out as one list, each problem with what it is
//! about. What depends on the load balancer as it stands is left to the [diff](super::diff).

mod access;
mod ineffective;
mod instance;
mod ports;

use std::collections::BTreeSet;

use self::ports::PortReader;
use super::annotations::{Annotations, Field, Name};
use super::desired::{Desired, NetworkExtra};
use super::model::Protocol;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::{AnnotationName, Applies, parse};
use crate::plan::service::applied;
use crate::plan::service::backends::{AddressFamily, BackendRules, Inputs};
use crate::plan::service::desire;
use crate::plan::service::desired::Sources;
use crate::plan::service::ownership::{LABEL_SECURITY_GROUP, Owner};
use crate::plan::service::problem::{ProblemScope, ScopedProblems};
use crate::plan::service::settings::ServiceSettings;

/// What a Service asks for, with everything that is wrong with it in [`Desired::problems`].
pub fn desire(inputs: &Inputs<'_>) -> Desired {
    let Inputs { service, settings, .. } = *inputs;
    let annotations: Annotations = parse(service);
    let owner = Owner::of_network_load_balancer(service, settings);
    let mut problems = ScopedProblems::default();
    let instance = instance::desire(&annotations, &owner, settings, &mut problems);
    let rules = backend_rules(service, &annotations, settings);
    let sources = Sources::new(inputs, &annotations, &rules);
    let extra = NetworkExtra {
        vswitches: if settings.place_near_nodes { Vec::new() } else { settings.vswitches.clone() },
        ..NetworkExtra::default()
    };
    let mut desired = Desired::new(&sources, owner, problems, instance, extra);
    access::add(&mut desired, service, &annotations);
    if service.labels.contains_key(LABEL_SECURITY_GROUP) {
        desired.applied.insert(applied::SOURCE_RANGES.to_owned());
    }
    PortReader { sources: &sources }.add_all(&mut desired);
    let of_listeners = desired.listeners.iter().map(|(key, listener)| (listener.port, key.protocol)).collect();
    let fixes_groups = [Name::IpVersion, Name::BackendIpVersion, Name::ServerGroupType];
    desired.add_problems(&sources, |name| scope_of(name, &of_listeners, service), &fixes_groups);
    let found = ineffective::ineffective(&sources, &desired);
    desired.warnings.extend(found);
    desired
}

/// What stays as it is while an annotation makes no sense, server groups apart. An attribute of a listener or of a server group
/// stays because nothing is stated of it; no new listener is made without what it should have.
fn scope_of(name: Name, wanted: &BTreeSet<(u16, Protocol)>, service: &ServiceView) -> ProblemScope {
    let listeners: BTreeSet<u16> = match (name, name.entry().applies) {
        (_, Applies::Field(Field::Listener(field))) => {
            wanted.iter().filter(|(_, protocol)| field.protocols().contains(protocol)).map(|(port, _)| *port).collect()
        }
        (Name::VgroupPort | Name::BackendIpVersion, _) | (_, Applies::Listeners | Applies::Field(_)) => {
            service.ports.iter().map(|port| port.port).collect()
        }
        _ => BTreeSet::new(),
    };
    let (applies, nothing) = (name.entry().applies, ProblemScope::default());
    match name {
        Name::VgroupPort | Name::BackendIpVersion => ProblemScope { listeners, ..nothing },
        _ if matches!(applies, Applies::Field(_)) => ProblemScope { settings: listeners, ..nothing },
        _ => ProblemScope { load_balancer: applies == Applies::Instance, listeners, ..nothing },
    }
}

/// What the annotations say of backends.
pub(super) fn backend_rules(
    service: &ServiceView,
    annotations: &Annotations,
    settings: &ServiceSettings,
) -> BackendRules {
    let is = |name, value| annotations.is(name, value);
    let ipv6 = is(Name::IpVersion, "DualStack") && settings.service.ipv6;
    let family = match annotations.get(Name::BackendIpVersion) {
        Some("ipv6") if ipv6 => AddressFamily::V6,
        Some("dualstack") if ipv6 => AddressFamily::Both,
        _ => AddressFamily::V4,
    };
    let mut rules = desire::backend_rules(service, annotations, settings, family);
    rules.nodes.by_address = is(Name::ServerGroupType, "Ip");
    rules
}
