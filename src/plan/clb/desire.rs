//! From a Service to its desired state. Start with [`desire`].
//!
//! Everything that can be wrong with a Service is found here, and comes out as one list, each problem with what it is
//! about. What depends on the load balancer as it stands is left to the [diff](super::diff).

mod ineffective;
mod instance;
mod listeners;
mod source_ranges;

use std::collections::BTreeSet;

use self::listeners::PortReader;
use super::annotations::{Annotations, Name};
use super::desired::{ClassicExtra, Desired};
use super::model::{ListenerField as Field, ListenerKey, Protocol};
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::{AnnotationName, Applies, parse};
use crate::plan::service::backends::{AddressFamily, BackendRules, Inputs};
use crate::plan::service::desire;
use crate::plan::service::desired::Sources;
use crate::plan::service::handling::is_inherited;
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::{ProblemScope, ScopedProblems};
use crate::plan::service::settings::ServiceSettings;

/// What a Service asks for, with everything that is wrong with it in [`Desired::problems`].
pub fn desire(inputs: &Inputs<'_>) -> Desired {
    let Inputs { service, settings, .. } = *inputs;
    let annotations: Annotations = parse(service);
    let owner = Owner::of(service, settings);
    let mut problems = ScopedProblems::default();
    let instance = instance::desire(&annotations, &owner, settings, &mut problems);
    let rules = backend_rules(service, &annotations, settings);
    let sources = Sources::new(inputs, &annotations, &rules);
    let extra = ClassicExtra {
        inherited: is_inherited(service),
        hostname: annotations.text(Name::Hostname),
        eip: annotations.get(Name::ExternalIpType).is_some(),
        near_nodes: settings.place_near_nodes && instance.is_vswitch_open(),
    };
    let mut desired = Desired::new(&sources, owner, problems, instance, extra);
    source_ranges::add(&mut desired, service, &annotations);
    PortReader { sources: &sources }.add_all(&mut desired);
    let of_listeners = desired.listeners.keys().copied().collect();
    let fixes_groups = [Name::IpVersion, Name::BackendIpVersion];
    desired.add_problems(&sources, |name| scope_of(name, &of_listeners, service), &fixes_groups);
    let found = ineffective::ineffective(&sources, &desired);
    desired.warnings.extend(found);
    desired
}

/// Settings of listeners about which other annotations, or the spec of the Service, have a say, too.
const JOINT: [Field; 9] = [
    Field::AclStatus,
    Field::AclId,
    Field::AclType,
    Field::HealthCheck,
    Field::HealthCheckSwitch,
    Field::HealthCheckType,
    Field::HealthCheckConnectPort,
    Field::HealthCheckUri,
    Field::PersistenceTimeout,
];

/// What stays as it is while an annotation makes no sense, server groups apart.
fn scope_of(name: Name, wanted: &BTreeSet<ListenerKey>, service: &ServiceView) -> ProblemScope {
    let ports = |protocols: &[Protocol]| -> BTreeSet<u16> {
        wanted.iter().filter(|key| protocols.contains(&key.protocol)).map(|key| key.port).collect()
    };
    let listeners = match (name, name.entry().applies) {
        (Name::ForwardPort, _) => ports(&[Protocol::Http]),
        (Name::DomainExtensions, _) => ports(&[Protocol::Https]),
        (_, Applies::Field(field)) => ports(field.protocols()),
        (Name::VgroupPort, _) | (_, Applies::Listeners) => service.ports.iter().map(|port| port.port).collect(),
        _ => BTreeSet::new(),
    };
    let load_balancer = name.entry().applies == Applies::Instance;
    match name.entry().applies {
        Applies::Field(field) if !JOINT.contains(&field) => ProblemScope { settings: listeners, ..Default::default() },
        _ => ProblemScope { load_balancer, listeners, ..ProblemScope::default() },
    }
}

/// What the annotations say of backends.
pub(super) fn backend_rules(
    service: &ServiceView,
    annotations: &Annotations,
    settings: &ServiceSettings,
) -> BackendRules {
    let is = |name, value| annotations.is(name, value);
    let ipv6 = is(Name::BackendIpVersion, "ipv6") && is(Name::IpVersion, "ipv6") && settings.service.ipv6;
    let family = if ipv6 { AddressFamily::V6 } else { AddressFamily::V4 };
    desire::backend_rules(service, annotations, settings, family)
}
