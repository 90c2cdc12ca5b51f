//! Network load balancers as a [`Product`]: the reads and writes; what they mean is in [`crate::plan::nlb`].

mod jobs;
mod perform;
mod placement;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use self::placement::Placement;
use super::creations::{Inventory, Made};
use super::product::{Completed, Facts, FindError, Found, Owned, Product, Search, Settled, Write};
use crate::alibaba::ecs::Ecs;
use crate::alibaba::nlb::{GroupFilter, ListedGroup, Nlb as Api};
use crate::alibaba::vpc::Vpc;
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::config::Config;
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, ServiceView};
use crate::plan::location::CloudLocation;
use crate::plan::nlb::desire;
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::diff::diff;
use crate::plan::nlb::needs::MissingReads;
use crate::plan::nlb::observed::{Answer, Observed, ObservedInstance};
use crate::plan::nlb::operation::{Operation, ResourceKind, Step};
use crate::plan::nlb::status::{expected_details, expected_ingress};
use crate::plan::nlb::teardown::{teardown, teardown_needs};
use crate::plan::service::handling::{Departure, LoadBalancerKind};
use crate::plan::service::model::{DesiredGroup, Inputs, ObservedGroup};
use crate::plan::service::orphans::unclaimed;
use crate::plan::service::ownership::{LABEL_SECURITY_GROUP, MARK_TAG, Owner};
use crate::plan::service::settings::{ServiceOptions, ServiceSettings};
use crate::plan::service::steps::{Operation as _, Plan};

/// The API of network load balancers, and of what they use.
#[derive(Debug)]
pub(crate) struct Nlb {
    api: Api,
    /// Security groups.
    ecs: Ecs,
    vpc: Vpc,
    location: Arc<CloudLocation>,
}

impl Nlb {
    pub(super) fn new(cloud: &CloudClient, location: Arc<CloudLocation>) -> Self {
        Self { api: cloud.nlb.clone(), ecs: cloud.ecs.clone(), vpc: cloud.vpc.clone(), location }
    }
}

/// What a Service asks for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// This load balancer, with what else decides about it.
    Ensure(Box<Desired>, Hints),
    /// That nothing of the Service is left.
    Remove(Owner, Departure),
}

/// What the Service and the configuration say besides.
#[derive(Debug)]
pub(crate) struct Hints {
    /// Where a load balancer is made if nothing else says where.
    placement: Placement,
    /// Whether there was a security group of ours when the Service was last in sync.
    had_security_group: bool,
}

impl Goal {
    fn owner(&self) -> &Owner {
        match self {
            Self::Ensure(desired, _) => &desired.owner,
            Self::Remove(owner, _) => owner,
        }
    }

    /// The load balancer that the Service names.
    fn named(&self) -> Option<&str> {
        match self {
            Self::Ensure(desired, _) => desired.reuse.as_deref(),
            Self::Remove(_, departure) => departure.reuse.as_deref(),
        }
    }

    fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure(desired, hints) => {
                let mut needs = desired.needs(observed);
                needs.security_groups |= hints.had_security_group && observed.security_groups.is_none();
                needs
            }
            Self::Remove(owner, departure) => teardown_needs(owner, departure, observed),
        }
    }
}

impl Product for Nlb {
    type Goal = Goal;
    type Observed = Observed;
    type Operation = Operation;
    type Answer = Answer;

    const CONTROLLER: &'static str = "nlb";
    const COMPONENT: &'static str = "nlb-controller";
    const KIND: LoadBalancerKind = LoadBalancerKind::Network;

    fn options(config: &Config) -> ServiceOptions {
        let nlb = &config.nlb;
        ServiceOptions { concurrency: nlb.concurrency, drift_check: nlb.drift_check, ..config.service.clone() }
    }

    fn attached_pods(
        service: &ServiceView,
        nodes: &[Arc<NodeView>],
        endpoints: &EndpointsView,
        settings: &ServiceSettings,
    ) -> BTreeSet<IpAddr> {
        desire::addresses_to_resolve(service, nodes, endpoints, settings)
    }

    fn desire(inputs: &Inputs<'_>) -> Goal {
        let had_security_group = inputs.service.labels.contains_key(LABEL_SECURITY_GROUP);
        let hints = Hints { placement: Placement::of(inputs.settings), had_security_group };
        Goal::Ensure(Box::new(desire::desire(inputs)), hints)
    }

    fn removal(service: &ServiceView, settings: &ServiceSettings) -> Goal {
        Goal::Remove(Owner::of_network_load_balancer(service, settings), Departure::of(service))
    }

    fn facts(goal: &Goal) -> Facts<'_> {
        static NO_GROUPS: BTreeMap<String, DesiredGroup> = BTreeMap::new();
        static NO_ADDRESSES: BTreeSet<IpAddr> = BTreeSet::new();
        let none = Facts {
            owner: goal.owner(),
            lock: goal.named().map_or_else(|| goal.owner().default_name(), str::to_owned),
            is_named: goal.named().is_some(),
            is_kept: false,
            groups: &NO_GROUPS,
            warnings: &[],
            empty_ports: Vec::new(),
            is_blackout: false,
            unresolved: &NO_ADDRESSES,
            outside: &NO_ADDRESSES,
            publishes_elastic: false,
        };
        match goal {
            Goal::Remove(_, departure) => Facts { is_kept: departure.preserve && departure.reuse.is_none(), ..none },
            Goal::Ensure(desired, _) => Facts {
                groups: &desired.groups,
                warnings: &desired.warnings,
                empty_ports: desired.empty_ports.iter().map(ToString::to_string).collect(),
                is_blackout: desired.blackout,
                unresolved: &desired.unresolved,
                outside: &desired.outside,
                ..none
            },
        }
    }

    fn is_of(goal: &Goal, observed: &Observed) -> bool {
        match (&observed.instance, goal.named()) {
            (None, _) => false,
            (Some(instance), Some(id)) => instance.id == id,
            (Some(instance), None) => owns(goal.owner(), instance),
        }
    }

    fn diff(goal: &Goal, observed: &Observed) -> Plan<Operation> {
        match goal {
            Goal::Ensure(desired, _) => diff(desired, observed),
            Goal::Remove(owner, departure) => teardown(owner, departure, observed),
        }
    }

    fn apply(observed: &mut Observed, operation: &Operation, answer: &Answer) {
        observed.apply(operation, answer);
    }

    fn load_balancer(observed: &Observed) -> Option<&str> {
        observed.instance.as_ref().map(|instance| instance.id.as_str())
    }

    fn groups(observed: &Observed) -> &BTreeMap<String, ObservedGroup> {
        &observed.groups
    }

    fn inventory(observed: &Observed) -> Inventory {
        let security_groups = observed.security_groups.iter().flatten();
        let groups = observed.groups.iter().map(|(id, group)| (id.clone(), group.name.clone()));
        Inventory {
            load_balancer: Self::load_balancer(observed).unwrap_or_default().to_owned(),
            groups: groups.chain(security_groups.map(|group| (group.id.clone(), group.name.clone()))).collect(),
            listeners: observed.listeners.as_ref().map(|all| all.keys().map(ToString::to_string).collect()),
        }
    }

    fn is_serving(observed: &Observed, operation: &Operation) -> bool {
        operation.backends_of().is_some_and(|group| observed.serves(group))
    }

    fn must_wait(observed: &Observed, step: &Step) -> bool {
        observed.must_wait(step)
    }

    fn look_again(observed: &Observed) -> Option<Duration> {
        jobs::look_again(observed)
    }

    fn further_label(observed: &Observed) -> Option<(&'static str, Option<&str>)> {
        let groups = observed.security_groups.as_ref()?;
        Some((LABEL_SECURITY_GROUP, groups.first().map(|group| group.id.as_str())))
    }

    fn ingress(goal: &Goal, observed: &Observed, _elastic: &[String]) -> Vec<Ingress> {
        match (goal, &observed.instance) {
            (Goal::Ensure(..), Some(instance)) => expected_ingress(instance),
            _ => Vec::new(),
        }
    }

    fn ingress_details(
        service: &ServiceView,
        goal: &Goal,
        observed: &Observed,
        ingress: &[Ingress],
        _ip_mode: bool,
    ) -> Vec<IngressDetails> {
        match goal {
            Goal::Ensure(desired, _) => expected_details(service, desired, observed, ingress),
            Goal::Remove(..) => Vec::new(),
        }
    }

    async fn resolve(&self, _goal: &mut Goal) -> Result<(), Fault> {
        Ok(())
    }

    async fn find(&self, goal: &mut Goal, search: &Search<'_>) -> Result<Found<Observed>, FindError> {
        let of = |instance| Observed { instance: Some(instance), ..Observed::default() };
        if let Some(id) = goal.named() {
            return match self.api.describe_instance(id).await {
                Ok(instance) => Ok(Found::LoadBalancer(of(instance))),
                Err(fault) if fault.kind == FaultKind::Gone => Err(FindError::NamedMissing(id.to_owned())),
                Err(fault) => Err(fault.into()),
            };
        }
        let owner = goal.owner();
        let mut proven = false;
        let (mut unmarked, mut others) = (None, None);
        if let Some(id) = search.made.load_balancer.as_deref().or(search.label()) {
            match self.api.describe_instance(id).await {
                Ok(instance) if owns(owner, &instance) => return Ok(Found::LoadBalancer(of(instance))),
                // A label that was copied with its Service leads to another one's: nothing there is ours, whatever its marks.
                Ok(instance) if owner.is_of_other_service(&instance.tags) => others = Some(instance.id),
                Ok(instance) => unmarked = Some(instance),
                Err(fault) if fault.kind == FaultKind::Gone => proven = true,
                Err(fault) => return Err(fault.into()),
            }
        }
        let mut candidates = self.marked(owner).await?;
        match (candidates.len(), unmarked) {
            (0, None) => others.map_or(Ok(Found::Absent { proven }), |id| Err(FindError::OfOtherService(id))),
            (0, Some(instance)) => Ok(unmarked_of(goal, instance)),
            (1, _) => Ok(Found::LoadBalancer(of(candidates.swap_remove(0)))),
            _ => Err(FindError::Several(candidates.into_iter().map(|candidate| candidate.id).collect())),
        }
    }

    async fn complete(&self, goal: &Goal, observed: &mut Observed, search: &Search<'_>) -> Result<Completed, Fault> {
        let mut shows_all_made = self.list_groups(goal.owner(), observed, &search.made).await?;
        self.read_needs(goal, observed).await?;
        shows_all_made &= self.read_named_by_listeners(goal, observed).await?;
        observed.note_what_is_busy();
        Ok(Completed { shows_all_made, unread: Vec::new() })
    }

    async fn settle(&self, observed: &mut Observed) -> Result<Settled, Fault> {
        jobs::settle(&self.api, observed).await
    }

    async fn refresh(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        plan: &Plan<Operation>,
        search: &Search<'_>,
    ) -> Result<(), Fault> {
        let Some(instance) = &mut observed.instance else { return Ok(()) };
        let touches = |part: ResourceKind| plan.steps.iter().any(|step| step.operation.part() == part);
        // What is joined and left are attributes of the load balancer.
        if touches(ResourceKind::Instance) || touches(ResourceKind::SecurityGroup) {
            *instance = self.api.describe_instance(&instance.id).await?;
        }
        if touches(ResourceKind::Groups) {
            self.list_groups(goal.owner(), observed, &search.made).await?;
        }
        if touches(ResourceKind::Listeners) {
            observed.listeners = None;
        }
        if touches(ResourceKind::SecurityGroup) {
            observed.security_groups = None;
        }
        self.read_needs(goal, observed).await?;
        observed.note_what_is_busy();
        Ok(())
    }

    async fn place(&self, goal: &mut Goal, nodes: &[Arc<NodeView>]) {
        let Goal::Ensure(desired, Hints { placement, .. }) = goal else { return };
        if !desired.instance.near_nodes {
            return;
        }
        let found = match placement.is_certain() {
            true => Vec::new(),
            false => match self.vpc.describe_vswitches(&self.location.vpc_id).await {
                Ok(found) => found,
                Err(fault) => {
                    warn!(%fault, "vSwitches could not be listed; no zones can be proposed");
                    return;
                }
            },
        };
        desired.instance.create.zones = placement.zones(found, nodes);
    }

    async fn elastic_addresses(&self, _id: &str) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    async fn owned(&self, services: &[Arc<ServiceView>], settings: &ServiceSettings) -> Result<Owned, Fault> {
        let instances = self.api.find_by_tag(&settings.cluster_tag, &settings.cluster_id).await?;
        let unclaimed = unclaimed(instances.iter().map(ObservedInstance::tagged), services, settings);
        Ok(Owned { unclaimed, listed: instances.len() })
    }

    async fn perform(&self, write: &Write<'_>, operation: &Operation, observed: &Observed) -> Result<Answer, Fault> {
        let api = self.api.on(write.priority);
        perform::perform(&perform::Apis { nlb: &api, ecs: &self.ecs }, write, operation, observed).await
    }
}

impl Nlb {
    /// Load balancers that carry the Service's mark, or else its default name.
    async fn marked(&self, owner: &Owner) -> Result<Vec<ObservedInstance>, Fault> {
        let name = owner.default_name();
        let (marked, named) = tokio::try_join!(self.api.find_by_tag(MARK_TAG, &name), self.api.find_by_name(&name))?;
        let mut candidates = if marked.is_empty() { named } else { marked };
        candidates.retain(|candidate| owns(owner, candidate));
        Ok(candidates)
    }

    /// Lists the server groups of the Service anew, without their backends. Those that were known before, or `made` a short
    /// while ago, and are not listed are asked for by their ids: a list can be stale. True if none of them is there.
    async fn list_groups(&self, owner: &Owner, observed: &mut Observed, made: &Made) -> Result<bool, Fault> {
        let name = owner.default_name();
        let listed = self.api.list_groups(GroupFilter::Tag(MARK_TAG, &name)).await?;
        let known = std::mem::take(&mut observed.groups);
        observed.group_details.clear();
        listed.into_iter().for_each(|group| add(observed, owner, group));
        let is_group = |id: &String| id.starts_with("sgp-");
        let made = made.groups.iter().map(|group| group.id.clone()).filter(is_group);
        let expected: BTreeSet<String> = known.into_keys().chain(made).collect();
        self.read_unlisted(owner, observed, expected).await
    }

    /// A server group that a listener of ours names exists, whatever the list shows. True if all of them were listed.
    async fn read_named_by_listeners(&self, goal: &Goal, observed: &mut Observed) -> Result<bool, Fault> {
        let owner = goal.owner();
        let listeners = observed.listeners.iter().flatten().map(|(_, listener)| listener);
        let ours = listeners.filter(|listener| owner.owns_listener(&listener.description));
        let named = ours.map(|listener| listener.group_id.clone()).filter(|id| !id.is_empty()).collect();
        let all_listed = self.read_unlisted(owner, observed, named).await?;
        self.read_needs(goal, observed).await?;
        Ok(all_listed)
    }

    async fn read_unlisted(
        &self,
        owner: &Owner,
        observed: &mut Observed,
        expected: BTreeSet<String>,
    ) -> Result<bool, Fault> {
        let missing: Vec<String> = expected.into_iter().filter(|id| !observed.groups.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok(true);
        }
        let found = self.api.list_groups(GroupFilter::Ids(&missing)).await?;
        let all_listed = !found.iter().any(|group| owner.owns_tagged(&group.details.tags));
        for group in found {
            warn!(group = group.id, name = group.name, "a server group exists, but is not in the list");
            add(observed, owner, group);
        }
        Ok(all_listed)
    }

    /// Reads what the goal finds missing; what is read can show that more is needed.
    async fn read_needs(&self, goal: &Goal, observed: &mut Observed) -> Result<(), Fault> {
        let mut needs = goal.needs(observed);
        while !needs.is_empty() {
            self.read(goal.owner(), &needs, observed).await?;
            let before = std::mem::replace(&mut needs, goal.needs(observed));
            if needs == before {
                // Reading did not help, and would not help again.
                break;
            }
        }
        Ok(())
    }

    async fn read(&self, owner: &Owner, needs: &MissingReads, observed: &mut Observed) -> Result<(), Fault> {
        if !needs.named_groups.is_empty() {
            for group in self.api.list_groups(GroupFilter::Ids(&needs.named_groups)).await? {
                insert(observed, group);
            }
        }
        for id in &needs.group_backends {
            self.read_backends(id, observed).await?;
        }
        if needs.listeners {
            let id = Self::load_balancer(observed).unwrap_or_default().to_owned();
            let mut found = self.api.describe_listeners(&[&id]).await?;
            observed.listeners = Some(found.remove(&id).unwrap_or_default());
        }
        for key in &needs.certificates {
            if let Some(listener) = observed.listeners.as_mut().and_then(|all| all.get_mut(key)) {
                let found = self.api.describe_additional_certificates(&listener.id).await?;
                listener.additional_certificates = Some(found);
            }
        }
        if needs.security_groups {
            let mut found = self.ecs.find_security_groups(MARK_TAG, &owner.default_name()).await?;
            found.retain(|group| owner.owns_tagged(&group.tags));
            let is_joined = |id: &str| observed.instance.iter().any(|it| it.security_group_ids.contains(id));
            found.sort_by_key(|group| (!is_joined(&group.id), group.id.clone()));
            observed.security_groups = Some(found);
        }
        if let Some(id) = &needs.rules_of {
            let rules = self.ecs.describe_security_rules(id).await?;
            let groups = observed.security_groups.iter_mut().flatten();
            groups.filter(|group| group.id == *id).for_each(|group| group.rules = Some(rules.clone()));
        }
        Ok(())
    }

    async fn read_backends(&self, id: &str, observed: &mut Observed) -> Result<(), Fault> {
        let Some(details) = observed.group_details.get_mut(id) else { return Ok(()) };
        let mut backends = Vec::new();
        if details.server_count > 0 {
            let found = self.api.describe_servers(id).await?;
            backends = found.backends;
            if found.changing {
                "Configuring".clone_into(&mut details.status);
            }
        }
        if let Some(group) = observed.groups.get_mut(id) {
            group.backends = Some(Arc::new(backends));
        }
        Ok(())
    }
}

/// Adds a group if it carries our tags; a list shows ten tags of each at most.
fn add(observed: &mut Observed, owner: &Owner, group: ListedGroup) {
    const LISTED_TAGS: usize = 10;
    if owner.owns_tagged(&group.details.tags) || group.details.tags.len() >= LISTED_TAGS {
        insert(observed, group);
    }
}

fn insert(observed: &mut Observed, group: ListedGroup) {
    observed.groups.insert(group.id.clone(), ObservedGroup { name: group.name, backends: None });
    observed.group_details.insert(group.id, group.details);
}

/// From a load balancer that is not ours, and that no annotation names any more, what carries our mark goes.
fn unmarked_of(goal: &mut Goal, instance: ObservedInstance) -> Found<Observed> {
    let id = instance.id.clone();
    if let Goal::Remove(_, departure) = goal {
        departure.reuse = Some(id.clone());
        departure.override_listeners = true;
    }
    Found::Unmarked { id, observed: Observed { instance: Some(instance), ..Observed::default() } }
}

fn owns(owner: &Owner, instance: &ObservedInstance) -> bool {
    owner.owns_load_balancer(&instance.name, &instance.tags)
}
