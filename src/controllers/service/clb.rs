//! Classic load balancers as a [`Product`]: the reads and writes; what they mean is in [`crate::plan::clb`].

mod access_lists;
mod interner;
mod pages;
mod perform;
mod placements;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tracing::warn;

use self::access_lists::AccessLists;
use self::interner::Interner;
use self::pages::Pages;
use self::placements::Placements;
use super::creations::{Inventory, Made};
use super::execute::has_unknown_outcome;
use super::product::{Completed, Confirmed, Due, Facts, FindError, Found, Owned, Product, Search, Write};
use crate::alibaba::slb::Slb;
use crate::alibaba::vpc::{VSwitch, Vpc};
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::plan::clb::apply::CreationAnswer;
use crate::plan::clb::desire;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::diff::diff;
use crate::plan::clb::needs::MissingReads;
use crate::plan::clb::observed::{AccessList, CertificateState, Observed, ObservedInstance, PendingCharge};
use crate::plan::clb::operation::{Operation, ResourceKind, Step};
use crate::plan::clb::status::{expected_details, expected_ingress};
use crate::plan::clb::teardown::{reversible, teardown, teardown_needs};
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, ServiceView};
use crate::plan::location::CloudLocation;
use crate::plan::service::handling::{Departure, LoadBalancerKind};
use crate::plan::service::model::{DesiredGroup, Inputs, ObservedGroup};
use crate::plan::service::orphans::unclaimed;
use crate::plan::service::ownership::{MARK_TAG, Owner};
use crate::plan::service::settings::ServiceSettings;
use crate::plan::service::steps::Plan;
use crate::plan::service::zones;
use crate::telemetry::alarms::named;

/// The API of classic load balancers, and what saves calls to it.
#[derive(Debug)]
pub(crate) struct Clb {
    slb: Slb,
    vpc: Vpc,
    location: Arc<CloudLocation>,
    pages: Pages,
    access_lists: AccessLists,
    placements: Placements,
    interner: Interner,
}

impl Clb {
    pub(super) fn new(cloud: &CloudClient, location: Arc<CloudLocation>) -> Self {
        let slb = cloud.slb.clone();
        Self {
            pages: Pages::new(slb.clone()),
            access_lists: AccessLists::new(slb.clone()),
            placements: Placements::default(),
            interner: Interner::default(),
            slb,
            vpc: cloud.vpc.clone(),
            location,
        }
    }
}

/// What a Service asks for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// This load balancer.
    Ensure {
        desired: Box<Desired>,
        /// Whether nothing says in which vSwitches a new one is to be.
        near_nodes: bool,
    },
    /// That nothing of the Service is left.
    Remove(Box<Removal>),
}

/// A Service whose load balancer is to go.
#[derive(Debug)]
pub(crate) struct Removal {
    owner: Owner,
    departure: Departure,
    /// Whether the Service stays, so that its user can want the load balancer back.
    stays: bool,
    has_ranges: bool,
}

impl Goal {
    fn owner(&self) -> &Owner {
        match self {
            Self::Ensure { desired, .. } => &desired.owner,
            Self::Remove(removal) => &removal.owner,
        }
    }

    /// The load balancer that the Service names.
    fn named(&self) -> Option<&str> {
        match self {
            Self::Ensure { desired, .. } => desired.reuse.as_deref(),
            Self::Remove(removal) => removal.departure.reuse.as_deref(),
        }
    }

    fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure { desired, .. } => desired.needs(observed),
            Self::Remove(removal) => teardown_needs(&removal.owner, &removal.departure, observed),
        }
    }
}

impl Product for Clb {
    type Goal = Goal;
    type Observed = Observed;
    type Operation = Operation;
    type Answer = CreationAnswer;

    const CONTROLLER: &'static str = "service";
    const COMPONENT: &'static str = "service-controller";
    const KIND: LoadBalancerKind = LoadBalancerKind::Classic;

    fn attached_pods(
        service: &ServiceView,
        nodes: &[Arc<NodeView>],
        endpoints: &EndpointsView,
        settings: &ServiceSettings,
    ) -> BTreeSet<IpAddr> {
        desire::addresses_to_resolve(service, nodes, endpoints, settings)
    }

    fn desire(inputs: &Inputs<'_>) -> Goal {
        let desired = Box::new(desire::desire(inputs));
        let near_nodes = inputs.settings.place_near_nodes && desired.instance.is_vswitch_open();
        Goal::Ensure { desired, near_nodes }
    }

    fn removal(service: &ServiceView, settings: &ServiceSettings) -> Goal {
        Goal::Remove(Box::new(Removal {
            owner: Owner::of(service, settings),
            departure: Departure::of(service),
            stays: !service.deleting,
            has_ranges: !service.source_ranges.is_empty(),
        }))
    }

    fn facts(goal: &Goal) -> Facts<'_> {
        static NO_GROUPS: BTreeMap<String, DesiredGroup> = BTreeMap::new();
        static NO_ADDRESSES: BTreeSet<IpAddr> = BTreeSet::new();
        let lock = goal.named().map_or_else(|| goal.owner().default_name(), str::to_owned);
        let none = Facts {
            owner: goal.owner(),
            lock,
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
            Goal::Remove(removal) => {
                Facts { is_kept: removal.departure.preserve && removal.departure.reuse.is_none(), ..none }
            }
            Goal::Ensure { desired, .. } => Facts {
                groups: &desired.groups,
                warnings: &desired.warnings,
                empty_ports: desired.empty_ports.iter().map(ToString::to_string).collect(),
                is_blackout: desired.blackout,
                unresolved: &desired.unresolved,
                outside: &desired.outside,
                publishes_elastic: desired.eip,
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
            Goal::Ensure { desired, .. } => diff(desired, observed),
            Goal::Remove(removal) => {
                let plan = teardown(&removal.owner, &removal.departure, observed);
                if removal.stays { reversible(plan) } else { plan }
            }
        }
    }

    fn apply(observed: &mut Observed, operation: &Operation, answer: &CreationAnswer) {
        observed.apply(operation, answer);
    }

    fn load_balancer(observed: &Observed) -> Option<&str> {
        observed.instance.as_ref().map(|instance| instance.id.as_str())
    }

    fn groups(observed: &Observed) -> &BTreeMap<String, ObservedGroup> {
        &observed.groups
    }

    fn unlisted(observed: &Observed) -> Option<String> {
        let ids = named(observed.unlisted.iter().map(String::as_str));
        (!ids.is_empty()).then(|| {
            format!(
                "The cloud's list of server groups lacks {ids}, which listeners of the Service use and which exist when they \
                 are asked for by id. They stay in use and are not made again"
            )
        })
    }

    fn inventory(observed: &Observed) -> Inventory {
        Inventory {
            load_balancer: Self::load_balancer(observed).unwrap_or_default().to_owned(),
            groups: observed.groups.iter().map(|(id, group)| (id.clone(), group.name.clone())).collect(),
            listeners: observed.listeners.as_ref().map(|all| all.keys().map(ToString::to_string).collect()),
        }
    }

    fn is_serving(observed: &Observed, operation: &Operation) -> bool {
        use crate::plan::service::steps::Operation as _;
        operation.backends_of().is_some_and(|group| observed.serves(group))
    }

    fn ingress(goal: &Goal, observed: &Observed, elastic: &[String]) -> Vec<Ingress> {
        match (goal, &observed.instance) {
            (Goal::Ensure { desired, .. }, Some(instance)) => expected_ingress(desired, instance, elastic),
            _ => Vec::new(),
        }
    }

    fn ingress_details(
        service: &ServiceView,
        goal: &Goal,
        observed: &Observed,
        ingress: &[Ingress],
        ip_mode: bool,
    ) -> Vec<IngressDetails> {
        match goal {
            Goal::Ensure { desired, .. } => expected_details(service, desired, observed, ingress, ip_mode),
            Goal::Remove(_) => Vec::new(),
        }
    }

    fn compact(&self, observed: &mut Arc<Observed>) {
        self.interner.share(observed);
    }

    async fn warm(&self) {
        self.access_lists.may_exist("", false).await;
    }

    async fn resolve(&self, goal: &mut Goal) -> Result<(), Fault> {
        if let Goal::Ensure { desired, .. } = goal {
            let name = desired.owner.access_list_name();
            desired.access_list_known = self.access_lists.may_exist(&name, desired.access.is_some()).await;
        }
        Ok(())
    }

    async fn find(&self, goal: &mut Goal, search: &Search<'_>) -> Result<Found<Observed>, FindError> {
        let of = |instance| Observed { instance: Some(instance), ..Observed::default() };
        if let Some(id) = goal.named() {
            return match self.slb.describe_instance(id).await {
                Ok(instance) => Ok(Found::LoadBalancer(of(instance))),
                Err(fault) if fault.kind == FaultKind::Gone => Err(FindError::NamedMissing(id.to_owned())),
                Err(fault) => Err(fault.into()),
            };
        }
        let owner = goal.owner();
        let mut proven = false;
        let (mut unmarked, mut others, mut unread) = (None, None, None);
        if let Some(id) = search.made.load_balancer.as_deref().or(search.label()) {
            match self.pages.instance(owner, id, search.due).await {
                Ok(instance) if owns(owner, &instance) => return Ok(Found::LoadBalancer(of(instance))),
                // A label that was copied with its Service leads to another one's: nothing there is ours, whatever its marks.
                Ok(instance) if owner.is_of_other_service(&instance.tags) => others = Some(instance.id),
                Ok(instance) => unmarked = Some(instance),
                Err(fault) if fault.kind == FaultKind::Gone => proven = true,
                // The list by its mark may show it nevertheless.
                Err(fault) if fails_alone(&fault) => unread = Some(fault),
                Err(fault) => return Err(fault.into()),
            }
        }
        let mut candidates = self.marked(owner).await?;
        if let Some(fault) = unread.filter(|_| candidates.is_empty()) {
            return Err(fault.into());
        }
        match (candidates.len(), unmarked) {
            (0, None) => others.map_or(Ok(Found::Absent { proven }), |id| Err(FindError::OfOtherService(id))),
            (0, Some(instance)) => Ok(self.unmarked(goal, instance)),
            (1, _) => Ok(Found::LoadBalancer(of(candidates.swap_remove(0)))),
            _ => Err(FindError::Several(candidates.into_iter().map(|candidate| candidate.id).collect())),
        }
    }

    async fn complete(&self, goal: &Goal, observed: &mut Observed, search: &Search<'_>) -> Result<Completed, Fault> {
        let (mut shows_all_made, mut unread) = (true, Vec::new());
        let is_whole_removed = matches!(goal, Goal::Remove(removal) if removal.departure.reuse.is_none());
        if !is_whole_removed {
            let all_listed = tolerate(&mut unread, self.list_groups(observed, &search.made).await)?;
            observed.groups_unread = all_listed.is_none();
            shows_all_made = all_listed.unwrap_or_default();
        }
        unread.extend(self.read_needs(goal, observed, search.due).await?);
        if !is_whole_removed {
            let named = tolerate(&mut unread, self.read_named_by_listeners(goal, observed, &search.made).await)?;
            shows_all_made &= named.unwrap_or_default();
            if observed.groups_unread {
                // Nothing is known of the list.
                observed.unlisted.clear();
            }
        }
        if let Goal::Remove(removal) = goal {
            let name = removal.owner.access_list_name();
            if self.access_lists.may_exist(&name, removal.has_ranges).await {
                let found = tolerate(&mut unread, self.find_access_list(&name).await)?;
                observed.access_list = found.unwrap_or(AccessList::Unknown);
            }
        }
        Ok(Completed { shows_all_made, unread })
    }

    async fn confirm(
        &self,
        goal: &Goal,
        known: &Observed,
        groups: bool,
        search: &Search<'_>,
    ) -> Result<Option<Confirmed<Observed>>, Fault> {
        let Some(id) = Self::load_balancer(known) else { return Ok(None) };
        match self.confirm_by_lists(goal, id, (known, groups), search).await {
            // A whole look leaves out what cannot be read.
            Err(fault) if fault.kind == FaultKind::Gone || fails_alone(&fault) => Ok(None),
            confirmed => confirmed.map(Some),
        }
    }

    async fn reread(&self, goal: &Goal, known: &Observed, search: &Search<'_>) -> Result<Option<Observed>, Fault> {
        match self.read_by_id(goal, known, search).await {
            // A whole look leaves out what cannot be read.
            Err(fault) if fault.kind == FaultKind::Gone || fails_alone(&fault) => Ok(None),
            read => read,
        }
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
        if touches(ResourceKind::Instance) {
            *instance = self.slb.describe_instance(&instance.id).await?;
        }
        if touches(ResourceKind::Groups) {
            self.list_groups(observed, &search.made).await?;
        }
        if touches(ResourceKind::Listeners) {
            observed.listeners = None;
        }
        if touches(ResourceKind::AccessList) {
            observed.access_list = AccessList::Unread;
        }
        self.read_needs(goal, observed, None).await?.pop().map_or(Ok(()), Err)
    }

    /// In zones and vSwitches near the nodes, those with more nodes first; in a zone the vSwitch with more free addresses, and
    /// at last the one that this instance is in.
    async fn place(&self, goal: &mut Goal, nodes: &[Arc<NodeView>]) {
        let Goal::Ensure { desired, near_nodes } = goal else { return };
        let (uid, stated) = (desired.owner.uid.clone(), desired.instance.create.clone());
        if let Some(repeated) = self.placements.repeated(&uid, &stated) {
            desired.instance.create = repeated;
            return;
        }
        desired.choose_zones(nodes);
        if *near_nodes {
            let vswitch_ids = &mut desired.instance.create.vswitch_ids;
            match self.vpc.describe_vswitches(&self.location.vpc_id).await {
                Ok(found) => {
                    let near = by_nodes(found, nodes);
                    vswitch_ids.retain(|here| !near.contains(here));
                    vswitch_ids.splice(0..0, near);
                }
                Err(fault) => warn!(%fault, "vSwitches could not be listed; the one of this instance is used"),
            }
        }
        self.placements.choose(&uid, stated, desired.instance.create.clone());
    }

    async fn forget(&self, owner: &Owner) {
        self.placements.forget(&owner.uid);
        self.access_lists.forget(&owner.access_list_name()).await;
    }

    async fn elastic_addresses(&self, id: &str) -> Result<Vec<String>, Fault> {
        self.vpc.describe_load_balancer_eips(id).await
    }

    async fn owned(&self, services: &[Arc<ServiceView>], settings: &ServiceSettings) -> Result<Owned, Fault> {
        let instances = self.slb.find_by_tag(&settings.cluster_tag, &settings.cluster_id).await?;
        let unclaimed = unclaimed(instances.iter().map(ObservedInstance::tagged), services, settings);
        Ok(Owned { unclaimed, listed: instances.len() })
    }

    async fn perform(
        &self,
        write: &Write<'_>,
        operation: &Operation,
        observed: &Observed,
    ) -> Result<CreationAnswer, Fault> {
        let answer = perform::perform(&self.slb.on(write.priority), write, operation, observed).await;
        if let Operation::CreateInstance(placed) = operation {
            let uid = &write.token.service_uid;
            match &answer {
                Ok(_) => self.placements.forget(uid),
                Err(fault) => self.placements.tried(uid, placed, has_unknown_outcome(fault.kind)),
            }
        }
        answer
    }
}

impl Clb {
    /// Load balancers that carry the Service's mark, or else its default name.
    async fn marked(&self, owner: &Owner) -> Result<Vec<ObservedInstance>, Fault> {
        let name = owner.default_name();
        // Side by side, as it is nearly always neither: a load balancer with the mark also has the label, and is found by it.
        let (marked, named) = tokio::try_join!(self.slb.find_by_tag(MARK_TAG, &name), self.slb.find_by_name(&name))?;
        let mut candidates = if marked.is_empty() { named } else { marked };
        candidates.retain(|candidate| owns(owner, candidate));
        Ok(candidates)
    }

    /// From a load balancer that is not ours, and that no annotation names any more, what carries our mark goes.
    fn unmarked(&self, goal: &mut Goal, instance: ObservedInstance) -> Found<Observed> {
        let id = instance.id.clone();
        if let Goal::Remove(removal) = goal {
            removal.departure.reuse = Some(id.clone());
            removal.departure.override_listeners = true;
        }
        Found::Unmarked { id, observed: Observed { instance: Some(instance), ..Observed::default() } }
    }

    async fn confirm_by_lists(
        &self,
        goal: &Goal,
        id: &str,
        (known, groups): (&Observed, bool),
        search: &Search<'_>,
    ) -> Result<Confirmed<Observed>, Fault> {
        // The load balancer of a user is in no list by our tag.
        let due = if goal.named().is_some() { None } else { search.due };
        let instance = Some(self.pages.instance(goal.owner(), id, due).await?);
        let listeners = Some(self.pages.listeners(id, due).await?);
        let mut observed = Observed { instance, listeners, ..Observed::default() };
        let mut shows_all_made = true;
        if groups {
            shows_all_made = self.list_groups(&mut observed, &search.made).await?;
        } else {
            observed.groups.clone_from(&known.groups);
            observed.unlisted.clone_from(&known.unlisted);
        }
        match self.read_needs(goal, &mut observed, due).await?.pop() {
            Some(fault) => Err(fault),
            None => Ok(Confirmed { observed, shows_all_made }),
        }
    }

    /// Lists the server groups anew, without their backends. Those that were known before, or `made` a short while ago, and are
    /// not listed are asked for one by one: a list can be stale. True if none of them is there.
    async fn list_groups(&self, observed: &mut Observed, made: &Made) -> Result<bool, Fault> {
        let Some(instance) = &observed.instance else { return Ok(true) };
        let groups = self.slb.describe_groups(&instance.id).await?;
        let listed =
            groups.into_iter().map(|group| (group.id, ObservedGroup { name: group.name, backends: None })).collect();
        let known = std::mem::replace(&mut observed.groups, listed);
        observed.unlisted.clear();
        let recent =
            made.groups.iter().filter(|group| group.load_balancer == instance.id).map(|group| group.id.clone());
        let expected: BTreeSet<String> = known.into_keys().chain(recent).collect();
        self.read_unlisted(observed, expected, made).await
    }

    /// Reads the instance, its listeners and the server groups that are known, and lists groups if any is to be made or
    /// deleted.
    async fn read_by_id(&self, goal: &Goal, known: &Observed, search: &Search<'_>) -> Result<Option<Observed>, Fault> {
        let Some(id) = Self::load_balancer(known) else { return Ok(None) };
        let instance = Some(self.slb.describe_instance(id).await?);
        let unread = |group: &ObservedGroup| ObservedGroup { name: group.name.clone(), backends: None };
        let groups = known.groups.iter().map(|(id, group)| (id.clone(), unread(group))).collect();
        let unlisted = known.unlisted.clone();
        let mut observed = Observed { instance, groups, unlisted, ..Observed::default() };
        let mut unread = self.read_needs(goal, &mut observed, None).await?;
        let mut named = observed.listeners.iter().flatten().map(|(_, listener)| &listener.group_id);
        if named.any(|id| !id.is_empty() && !observed.groups.contains_key(id)) {
            return Ok(None);
        }
        let changes_groups = |step: &Step| step.operation.part() == ResourceKind::Groups;
        if Self::diff(goal, &observed).steps.iter().any(changes_groups) {
            let read = observed.groups.clone();
            self.list_groups(&mut observed, &search.made).await?;
            for (id, group) in &mut observed.groups {
                group.backends = read.get(id).and_then(|group| group.backends.clone());
            }
            unread.extend(self.read_needs(goal, &mut observed, None).await?);
        }
        unread.pop().map_or(Ok(Some(observed)), Err)
    }

    /// A server group that a listener of ours names exists, whatever the list shows. True if all of them were listed.
    async fn read_named_by_listeners(&self, goal: &Goal, observed: &mut Observed, made: &Made) -> Result<bool, Fault> {
        let owner = goal.owner();
        let listeners = observed.listeners.iter().flatten().map(|(_, listener)| listener);
        let ours = listeners.filter(|listener| owner.owns_listener(&listener.description));
        let named = ours.map(|listener| listener.group_id.clone()).filter(|id| !id.is_empty()).collect();
        self.read_unlisted(observed, named, made).await
    }

    /// A list may lag behind what was `made` a short while ago; that it lacks another group is a doubt about the list.
    async fn read_unlisted(
        &self,
        observed: &mut Observed,
        expected: BTreeSet<String>,
        made: &Made,
    ) -> Result<bool, Fault> {
        let mut all_listed = true;
        for id in expected {
            if observed.groups.contains_key(&id) {
                continue;
            }
            match self.slb.describe_group(&id).await {
                Ok(group) => {
                    warn!(group = id, name = group.name, "a server group exists, but is not in the list");
                    if !made.groups.iter().any(|recent| recent.id == id) {
                        observed.unlisted.insert(id.clone());
                    }
                    observed.groups.insert(id, group);
                    all_listed = false;
                }
                Err(fault) if fault.kind == FaultKind::Gone => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(all_listed)
    }

    /// Reads what the goal finds missing; what is read can show that more is needed. Gives the reads that failed.
    async fn read_needs(&self, goal: &Goal, observed: &mut Observed, due: Due<'_>) -> Result<Vec<Fault>, Fault> {
        let id = Self::load_balancer(observed).unwrap_or_default().to_owned();
        let (mut unread, mut skipped) = (Vec::new(), MissingReads::default());
        let mut needs = goal.needs(observed);
        while !needs.is_empty() {
            if needs.instance {
                match (tolerate(&mut unread, self.slb.describe_instance(&id).await)?, &mut observed.instance) {
                    (None, Some(instance)) => instance.pending_charge = PendingCharge::Unknown,
                    (read, instance) => *instance = read,
                }
            }
            for group_id in &needs.group_backends {
                match tolerate(&mut unread, self.slb.describe_backends(group_id).await)? {
                    Some(backends) => {
                        observed.groups.entry(group_id.clone()).or_default().backends = Some(Arc::new(backends));
                    }
                    None => {
                        // The others would meet the same.
                        skipped.group_backends.clone_from(&needs.group_backends);
                        break;
                    }
                }
            }
            if needs.listeners {
                observed.listeners = tolerate(&mut unread, self.pages.listeners(&id, due).await)?;
                skipped.listeners = observed.listeners.is_none();
            }
            for key in &needs.domain_extensions {
                let extensions = tolerate(&mut unread, self.slb.describe_domain_extensions(&id, key.port).await)?;
                if extensions.is_none() {
                    skipped.domain_extensions.push(*key);
                }
                if let Some(listener) = observed.listeners.as_mut().and_then(|listeners| listeners.get_mut(key)) {
                    listener.domain_extensions = extensions;
                }
            }
            for certificate in &needs.certificates {
                let state = tolerate(&mut unread, self.slb.certificate_state(certificate).await)?;
                observed.certificates.insert(certificate.clone(), state.unwrap_or(CertificateState::Unknown));
            }
            if let Some(name) = &needs.access_list {
                let found = tolerate(&mut unread, self.find_access_list(name).await)?;
                observed.access_list = found.unwrap_or(AccessList::Unknown);
            }
            let before = std::mem::replace(&mut needs, goal.needs(observed).without(&skipped));
            if needs == before {
                // Reading did not help, and would not help again.
                break;
            }
        }
        Ok(unread)
    }

    async fn find_access_list(&self, name: &str) -> Result<AccessList, Fault> {
        Ok(self.slb.find_access_list(name).await?.map_or(AccessList::Absent, AccessList::Found))
    }
}

/// Whether a read failed that says nothing about others: its action is out of order or forbidden.
fn fails_alone(fault: &Fault) -> bool {
    match fault.kind {
        FaultKind::Denied | FaultKind::Rejected => true,
        // Without an answer, others would be waited for as well.
        FaultKind::Transient | FaultKind::Bug => !fault.code.is_empty() || !fault.request_id.is_empty(),
        _ => false,
    }
}

/// What was read; `None` if the read failed alone, which is noted.
fn tolerate<T>(unread: &mut Vec<Fault>, read: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Err(fault) if fails_alone(&fault) => {
            unread.push(fault);
            Ok(None)
        }
        read => read.map(Some),
    }
}

fn owns(owner: &Owner, instance: &ObservedInstance) -> bool {
    owner.owns_load_balancer(&instance.name, &instance.tags)
}

/// vSwitches in zones with nodes, those of zones with more nodes first.
fn by_nodes(mut vswitches: Vec<VSwitch>, nodes: &[Arc<NodeView>]) -> Vec<String> {
    let nodes_in: HashMap<&str, usize> = zones::by_nodes(nodes).into_iter().collect();
    let count = |vswitch: &VSwitch| nodes_in.get(vswitch.zone.as_str()).copied().unwrap_or_default();
    vswitches.retain(|vswitch| count(vswitch) > 0);
    vswitches.sort_by_key(|vswitch| (Reverse(count(vswitch)), Reverse(vswitch.available_ips), vswitch.id.clone()));
    vswitches.into_iter().map(|vswitch| vswitch.id).collect()
}
