//! What annotations that all products share, and the rest of a Service, ask for.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::annotations::{AnnotationName, Annotations, ID, parse, raw};
use super::applied::{Applied, applied};
use super::backends::{BackendMode, BackendRules, BackendSources, Inputs, NodeRules};
use super::desired::{Desired, NodePorts, ProductModel, Sources};
use super::management::ManagementLevel;
use super::ownership::{CLUSTER_UID_TAG, MOST_TAGS, Owner};
use super::problem::{ScopedProblem, ScopedProblems, ServiceProblem};
use super::settings::ServiceSettings;
use super::spec_fields;
use crate::plan::inputs::ServiceView;

/// Reason that the console shows for the modification protection of new load balancers.
pub(crate) const PROTECTION_REASON: &str = "managed.by.ack";
/// The field of the Service that says who may connect.
pub(crate) const SOURCE_RANGES: &str = "spec.loadBalancerSourceRanges";

/// Whether the load balancer is one of a user, even if the annotation that names it makes no sense.
pub(crate) fn is_reused<N: AnnotationName>(annotations: &Annotations<N>) -> bool {
    annotations.get(N::ID).is_some() || annotations.is_wrong(N::ID)
}

impl<M: ProductModel> Desired<M> {
    /// What a Service asks for, with everything that is wrong with it in [`Desired::problems`].
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let Inputs { service, settings, .. } = *inputs;
        let annotations = &parse::<M::Name>(service);
        let rules = &backend_rules::<M>(service, annotations, settings);
        let backends = BackendSources::new(rules, inputs.nodes, inputs.endpoints);
        let sources =
            &Sources { inputs, annotations, owner: Owner::of_kind(M::KIND, service, settings), backends, rules };
        let mut problems = ScopedProblems::default();
        let (instance, extra) = M::instance(sources, &mut problems);
        // A value with a mistake still says that the load balancer is one of the user.
        let stated_id = raw(service, ID).map(str::trim).filter(|id| !id.is_empty());
        let mut desired = Self {
            access: None,
            manage: management_level(annotations),
            manage_listeners: stated_id.is_none() || annotations.is(M::Name::FORCE_OVERRIDE_LISTENERS, "true"),
            forbid_public: settings.service.disable_public,
            reuse: stated_id.map(str::to_owned),
            vanished: Vec::new(),
            instance,
            places: service.ports.iter().filter_map(|port| M::place(sources, port)).collect(),
            listeners: BTreeMap::new(),
            groups: BTreeMap::new(),
            ports_without_group: false,
            node_ports: NodePorts::of(service, sources.inputs.endpoints, sources.rules),
            batch_size: settings.service.backend_batch_size.max(1),
            problems,
            warnings: (annotations.warnings.iter().chain(&sources.backends.warnings).cloned())
                .chain(spec_fields::without_effect(service))
                .collect(),
            empty_ports: Vec::new(),
            unready: sources.backends.unready(sources.inputs),
            unresolved: BTreeSet::new(),
            outside: BTreeSet::new(),
            ingress: service.ingress.clone(),
            label: M::KIND.label(service).to_owned(),
            applied: applied(service, M::KIND.applied_key()),
            applies: Applied::new(),
            owner: sources.owner.clone(),
            extra,
        };
        M::add_access(&mut desired, sources);
        for (index, port) in service.ports.iter().enumerate() {
            if let Err(problem) = M::add_port(&mut desired, sources, format!("spec.ports[{index}]"), port) {
                desired.ports_without_group = true;
                desired.problems.listeners(M::place(sources, port), problem);
            }
        }
        M::check(&mut desired, sources);
        desired.add_problems(sources);
        desired
    }

    /// Puts what is wrong with annotations before all other problems.
    fn add_problems(&mut self, sources: &Sources<'_, M::Name>) {
        let nodes = [M::Name::BACKEND_LABEL, M::Name::REMOVE_UNSCHEDULED_BACKEND];
        let scoped = |(name, problem): &(M::Name, ServiceProblem)| {
            let mut scope = M::scope_of(*name, self);
            // A load balancer is worth more than its tags.
            scope.load_balancer &= *name != M::Name::ADDITIONAL_RESOURCE_TAGS;
            // Elsewhere, pods decide which nodes serve.
            scope.nodes = nodes.contains(name) && sources.rules.mode == BackendMode::Cluster;
            if scope.nodes {
                scope.settings.extend(&self.places);
            }
            scope.groups = *name == M::Name::VGROUP_PORT || M::FIXES_GROUPS.contains(name);
            ScopedProblem { problem: problem.clone(), scope }
        };
        let of_annotations = sources.annotations.problems.iter().map(scoped);
        self.problems = of_annotations.chain(self.problems.iter().cloned()).collect();
    }
}

/// What is managed. While the annotation makes no sense, only backends are, which follow their pods in any case.
fn management_level<N: AnnotationName>(annotations: &Annotations<N>) -> ManagementLevel {
    match annotations.get(N::MANAGE).and_then(ManagementLevel::parse) {
        Some(stated) => stated,
        None if annotations.is_wrong(N::MANAGE) => ManagementLevel::Backends,
        None => ManagementLevel::All,
    }
}

/// What the annotations say of backends.
pub(crate) fn backend_rules<M: ProductModel>(
    service: &ServiceView,
    annotations: &Annotations<M::Name>,
    settings: &ServiceSettings,
) -> BackendRules {
    let eni = annotations.get(M::Name::BACKEND_TYPE).map_or(settings.service.eni_backends, |kind| kind == "eni");
    let is = |name, value| annotations.is(name, value);
    let shared = is_reused(annotations) && annotations.is_stated(M::Name::VGROUP_PORT);
    let number = |name| annotations.integer(name).and_then(|value| u8::try_from(value).ok());
    BackendRules {
        mode: match (eni, service.local_traffic) {
            (true, _) => BackendMode::Eni,
            (false, true) => BackendMode::Local,
            (false, false) => BackendMode::Cluster,
        },
        family: M::family(annotations, settings),
        handmade: service.selector.is_empty(),
        graceful: eni && is(M::Name::GRACEFUL_SHUTDOWN, "true") && !is(M::Name::IGNORE_WEIGHT_UPDATE, "on"),
        total_weight: number(M::Name::WEIGHT).filter(|_| shared),
        default_weight: number(M::Name::DEFAULT_WEIGHT).unwrap_or(100),
        nodes: NodeRules {
            pods_only: eni,
            by_address: M::attaches_addresses(annotations),
            labels: annotations.pairs(M::Name::BACKEND_LABEL).cloned().unwrap_or_default(),
            exclude_masters: settings.service.exclude_masters,
            exclude_cordoned: is(M::Name::REMOVE_UNSCHEDULED_BACKEND, "on"),
            region: settings.region.clone(),
        },
    }
}

/// What every load balancer that is made gets: its tags, and its protections.
pub(crate) struct Creation {
    pub(crate) tags: BTreeMap<String, String>,
    /// The ownership marks among the tags.
    pub(crate) marks: BTreeMap<String, String>,
    pub(crate) delete_protection: bool,
    pub(crate) modification_protection: String,
    pub(crate) modification_protection_reason: Option<String>,
}

impl Creation {
    /// What the load balancer is made with, and the tags of the annotation for which there is room. What stands against the
    /// creation is added to `problems`. `defaults` are those of the configuration: tags, delete protection, modification
    /// protection.
    pub(crate) fn of<N: AnnotationName>(
        sources: &Sources<'_, N>,
        defaults: (&BTreeMap<String, String>, bool, bool),
        is_public: bool,
        problems: &mut ScopedProblems,
    ) -> (Self, BTreeMap<String, String>) {
        let Sources { annotations, owner, inputs: Inputs { settings, .. }, .. } = sources;
        let mut stated_tags = annotations.pairs(N::ADDITIONAL_RESOURCE_TAGS).cloned().unwrap_or_default();
        let (mut tags, marks) = (defaults.0.clone(), owner.tags());
        tags.extend(stated_tags.clone());
        tags.extend(marks.clone());
        if tags.len() > MOST_TAGS {
            // As many tags of users are allowed as with the official controller.
            tags.remove(CLUSTER_UID_TAG);
        }
        let others = tags.keys().filter(|key| !marks.contains_key(*key)).rev();
        let surplus: Vec<String> = others.take(tags.len().saturating_sub(MOST_TAGS)).cloned().collect();
        if !surplus.is_empty() {
            problems.left_out(ServiceProblem::invalid(
                annotations.key(N::ADDITIONAL_RESOURCE_TAGS),
                format!("{} tags, with those of the configuration and of ownership", tags.len()),
                format!("must be at most {MOST_TAGS} tags in all; these are left out: {}", surplus.join(", ")),
            ));
        }
        if settings.service.disable_public && !is_reused(annotations) && is_public {
            problems.load_balancer(ServiceProblem::forbidden(
                annotations.key(N::ADDRESS_TYPE),
                "service.disable_public switches load balancers with a public address off: `intranet` is needed",
            ));
        }
        tags.retain(|key, _| !surplus.contains(key));
        stated_tags.retain(|key, _| is_reused(annotations) || !surplus.contains(key));
        let stated = annotations.text(N::MODIFICATION_PROTECTION);
        let protected_by_default = stated.is_none() && defaults.2;
        let default = if protected_by_default { "ConsoleProtection" } else { "NonProtection" };
        let creation = Self {
            tags,
            marks,
            delete_protection: annotations.get(N::DELETE_PROTECTION).map_or(defaults.1, |value| value == "on"),
            modification_protection: stated.unwrap_or_else(|| default.to_owned()),
            modification_protection_reason: protected_by_default.then(|| PROTECTION_REASON.to_owned()),
        };
        (creation, stated_tags)
    }
}

/// `spec.loadBalancerSourceRanges`, without bits beyond their length. What is no block of addresses is a problem, and
/// gives `None`.
pub(crate) fn source_ranges<M: ProductModel>(
    service: &ServiceView,
    desired: &mut Desired<M>,
) -> Option<BTreeSet<IpNet>> {
    let parsed = service.source_ranges.iter().map(|range| (range, range.trim().parse::<IpNet>()));
    let (right, wrong): (Vec<_>, Vec<_>) = parsed.partition(|(_, parsed)| parsed.is_ok());
    for (range, _) in &wrong {
        let problem = ServiceProblem::invalid(SOURCE_RANGES, *range, "must be a block such as 10.0.0.0/8");
        desired.problems.listeners(desired.places.clone(), problem);
    }
    wrong.is_empty().then(|| right.into_iter().filter_map(|(_, block)| Some(block.ok()?.trunc())).collect())
}
