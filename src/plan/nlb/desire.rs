//! From a Service to its desired state. Start with [`desire`].
//!
//! Everything that can be wrong with a Service is found here, and comes out as one list, each problem with what it is
//! about. What depends on the load balancer as it stands is left to the [diff](super::diff).

mod access;
mod ineffective;
mod instance;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::ports::PortReader;
use super::annotations::{Annotations, Field, Name};
use super::desired::Desired;
use crate::plan::inputs::{EndpointsView, NodeView, ServiceView};
use crate::plan::service::annotations::{AnnotationName, Applies, ID, parse, raw};
use crate::plan::service::backends::{self, AddressFamily, BackendMode, BackendRules, BackendSources, NodeReach};
use crate::plan::service::management::ManagementLevel;
use crate::plan::service::model::Inputs;
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::{ProblemScope, ScopedProblem, ScopedProblems};
use crate::plan::service::settings::ServiceSettings;

/// What a Service asks for, with everything that is wrong with it in [`Desired::problems`].
pub fn desire(inputs: &Inputs<'_>) -> Desired {
    let Inputs { service, settings, .. } = *inputs;
    let annotations: Annotations = parse(service);
    let owner = Owner::of_network_load_balancer(service, settings);
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
    let mut desired = Desired {
        access: None,
        manage: management_level(&annotations),
        manage_listeners,
        forbid_public: settings.service.disable_public,
        reuse,
        instance,
        listeners: BTreeMap::new(),
        groups: BTreeMap::new(),
        group_specs: BTreeMap::new(),
        ports_without_group: false,
        batch_size: settings.service.backend_batch_size.max(1),
        problems,
        warnings,
        empty_ports: Vec::new(),
        unready: sources.unready(inputs),
        unresolved: BTreeSet::new(),
        outside: BTreeSet::new(),
        ingress: service.ingress.clone(),
        owner,
    };
    access::add(&mut desired, service, &annotations);
    PortReader { annotations: &annotations, sources: &sources, rules: &rules, inputs }.add_all(&mut desired);
    let of_annotations = annotations.problems.iter().map(|(name, problem)| ScopedProblem {
        problem: problem.clone(),
        scope: scope_of(*name, &desired, service, rules.mode),
    });
    desired.problems = of_annotations.chain(desired.problems.iter().cloned()).collect();
    let found = ineffective::ineffective(inputs, &annotations, &rules, &desired);
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

/// What stays as it is while an annotation makes no sense. Attributes of server groups stay because nothing is stated of
/// them; the listeners stay with them, so that no new one is made without what it should have.
fn scope_of(name: Name, desired: &Desired, service: &ServiceView, mode: BackendMode) -> ProblemScope {
    let all = || service.ports.iter().map(|port| port.port).collect();
    let listeners: BTreeSet<u16> = match (name, name.entry().applies) {
        (_, Applies::Field(Field::Listener(field))) => {
            let has = desired.listeners.iter().filter(|(key, _)| field.protocols().contains(&key.protocol));
            has.map(|(_, listener)| listener.port).collect()
        }
        (Name::VgroupPort | Name::BackendIpVersion, _) | (_, Applies::Listeners | Applies::Field(_)) => all(),
        _ => BTreeSet::new(),
    };
    let groups = match name {
        Name::VgroupPort | Name::IpVersion | Name::BackendIpVersion | Name::ServerGroupType => true,
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
    let ipv6 = is(Name::IpVersion, "DualStack") && settings.service.ipv6;
    BackendRules {
        mode,
        family: match annotations.get(Name::BackendIpVersion) {
            Some("ipv6") if ipv6 => AddressFamily::V6,
            Some("dualstack") if ipv6 => AddressFamily::Both,
            _ => AddressFamily::V4,
        },
        by_address: is(Name::ServerGroupType, "Ip"),
        graceful: eni && is(Name::GracefulShutdown, "true") && !is(Name::IgnoreWeightUpdate, "on"),
        total_weight: number(Name::Weight).filter(|_| shared),
        default_weight: number(Name::DefaultWeight).unwrap_or(100),
        labels: annotations.pairs(Name::BackendLabel).cloned().unwrap_or_default(),
        exclude_masters: settings.service.exclude_masters,
        exclude_cordoned: is(Name::RemoveUnscheduledBackend, "on"),
        region: settings.region.clone(),
    }
}
