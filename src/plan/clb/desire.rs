//! From a Service to its desired state. Start with [`desire`].
//!
//! Everything that can be wrong with a Service is found here, and comes out as one list, each problem with what it is
//! about. What depends on the load balancer as it stands is left to the [diff](super::diff).

mod ineffective;
mod instance;
mod listeners;
mod source_ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::listeners::PortReader;
use super::annotations::{Annotations, Name};
use super::desired::Desired;
use super::model::Protocol;
use crate::plan::inputs::{EndpointsView, NodeView, ServiceView};
use crate::plan::service::annotations::{AnnotationName, Applies, ID, parse, raw};
use crate::plan::service::backends::{self, AddressFamily, BackendMode, BackendRules, BackendSources, NodeReach};
use crate::plan::service::handling::is_inherited;
use crate::plan::service::management::ManagementLevel;
use crate::plan::service::model::Inputs;
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::{ProblemScope, ScopedProblem, ScopedProblems};
use crate::plan::service::settings::ServiceSettings;

/// What a Service asks for, with everything that is wrong with it in [`Desired::problems`].
pub fn desire(inputs: &Inputs<'_>) -> Desired {
    let Inputs { service, settings, .. } = *inputs;
    let annotations: Annotations = parse(service);
    let owner = Owner::of(service, settings);
    let mut problems = ScopedProblems::default();
    let mut warnings = annotations.warnings.clone();
    // A value with a mistake still says that the load balancer is one of the user.
    let stated_id = raw(service, ID).map(str::trim).filter(|id| !id.is_empty());
    let reuse = stated_id.map(str::to_owned);
    let instance = instance::desire(&annotations, &owner, settings, &mut problems);
    let rules = backend_rules(service, &annotations, settings);
    let mut sources = BackendSources::new(&rules, inputs.nodes, inputs.endpoints, NodeReach::All);
    warnings.append(&mut sources.warnings);
    let manage_listeners = reuse.is_none() || annotations.get(Name::ForceOverrideListeners).is_some();
    let manage = management_level(&annotations);
    let mut desired = Desired {
        access: None,
        inherited: is_inherited(service),
        access_list_known: false,
        manage,
        manage_listeners,
        forbid_public: settings.service.disable_public,
        reuse,
        instance,
        listeners: BTreeMap::new(),
        groups: BTreeMap::new(),
        ports_without_group: false,
        batch_size: settings.service.backend_batch_size.max(1),
        problems,
        warnings,
        empty_ports: Vec::new(),
        unready: sources.unready(inputs),
        unresolved: BTreeSet::new(),
        outside: BTreeSet::new(),
        hostname: annotations.text(Name::Hostname),
        eip: annotations.get(Name::ExternalIpType).is_some(),
        ingress: service.ingress.clone(),
        owner,
    };
    source_ranges::add(&mut desired, service, &annotations);
    PortReader { annotations: &annotations, sources: &sources, inputs }.add_all(&mut desired);
    let of_annotations = annotations.problems.iter().map(|(name, problem)| ScopedProblem {
        problem: problem.clone(),
        scope: scope_of(*name, &desired, service, rules.mode),
    });
    desired.problems = of_annotations.chain(desired.problems.iter().cloned()).collect();
    let found = ineffective::ineffective(inputs, &annotations, rules.mode, &desired);
    desired.warnings.extend(found);
    desired
}

/// What is managed. While the annotation makes no sense, only backends are, which follow their pods in any case.
fn management_level(annotations: &Annotations) -> ManagementLevel {
    match annotations.get(Name::Manage).and_then(ManagementLevel::parse) {
        Some(stated) => stated,
        None if annotations.is_wrong(Name::Manage) => ManagementLevel::Backends,
        None => ManagementLevel::All,
    }
}

/// What stays as it is while an annotation makes no sense.
fn scope_of(name: Name, desired: &Desired, service: &ServiceView, mode: BackendMode) -> ProblemScope {
    let ports = |protocols: &[Protocol]| -> BTreeSet<u16> {
        desired.listeners.keys().filter(|key| protocols.contains(&key.protocol)).map(|key| key.port).collect()
    };
    let listeners = match (name, name.entry().applies) {
        (Name::ForwardPort, _) => ports(&[Protocol::Http]),
        (Name::DomainExtensions, _) => ports(&[Protocol::Https]),
        (_, Applies::Field(field)) => ports(field.protocols()),
        (Name::VgroupPort, _) | (_, Applies::Listeners) => service.ports.iter().map(|port| port.port).collect(),
        _ => BTreeSet::new(),
    };
    let groups = match name {
        Name::VgroupPort | Name::IpVersion | Name::BackendIpVersion => true,
        // Nodes are not chosen where pods are attached.
        Name::BackendLabel | Name::RemoveUnscheduledBackend => mode != BackendMode::Eni,
        _ => false,
    };
    ProblemScope { load_balancer: name.entry().applies == Applies::Instance, listeners, groups }
}

/// Addresses of pods whose network interfaces must be looked up before [`desire`] can attach them.
pub fn addresses_to_resolve(
    service: &ServiceView,
    nodes: &[Arc<NodeView>],
    endpoints: &EndpointsView,
    settings: &ServiceSettings,
) -> BTreeSet<IpAddr> {
    let rules = backend_rules(service, &parse(service), settings);
    backends::addresses_to_resolve(&rules, &service.ports, nodes, endpoints)
}

/// What the annotations say of backends.
fn backend_rules(service: &ServiceView, annotations: &Annotations, settings: &ServiceSettings) -> BackendRules {
    let eni = annotations.get(Name::BackendType).map_or(settings.service.eni_backends, |kind| kind == "eni");
    let mode = match (eni, service.local_traffic) {
        (true, _) => BackendMode::Eni,
        (false, true) => BackendMode::Local,
        (false, false) => BackendMode::Cluster,
    };
    let is = |name, value| annotations.is(name, value);
    let reused = annotations.get(Name::Id).is_some() || annotations.is_wrong(Name::Id);
    let shared = reused && annotations.is_stated(Name::VgroupPort);
    let number = |name| annotations.integer(name).and_then(|value| u8::try_from(value).ok());
    BackendRules {
        mode,
        family: if is(Name::BackendIpVersion, "ipv6") && is(Name::IpVersion, "ipv6") && settings.service.ipv6 {
            AddressFamily::V6
        } else {
            AddressFamily::V4
        },
        by_address: false,
        graceful: eni && is(Name::GracefulShutdown, "true") && !is(Name::IgnoreWeightUpdate, "on"),
        total_weight: number(Name::Weight).filter(|_| shared),
        default_weight: number(Name::DefaultWeight).unwrap_or(100),
        labels: annotations.pairs(Name::BackendLabel).cloned().unwrap_or_default(),
        exclude_masters: settings.service.exclude_masters,
        exclude_cordoned: is(Name::RemoveUnscheduledBackend, "on"),
        region: settings.region.clone(),
    }
}
