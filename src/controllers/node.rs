//! The node controller: initialises nodes, keeps their addresses and labels true, marks stopped instances, and removes
//! nodes whose instance is released.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use self::execute::Executor;
use self::observe::{Survey, is_new, policy, survey};
use self::write::regarding;
use super::batch::{self, BatchReconciler, BatchResult, BatchScope, BatchTiming};
use super::{Context, for_each_limited};
use crate::alibaba::{CloudClient, Fault};
use crate::clock;
use crate::cluster::{Cluster, Regarding, Store, WriteFault};
use crate::config::Config;
use crate::plan::PlanLine;
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::plan::location::CloudLocation;
use crate::plan::node::removal::{Decision, HeldBack, Ledger, Listing, Moment, Rules};
use crate::plan::node::source_dest_check::Switches;
use crate::plan::node::{self, Class, NodePlan, Problem};
use crate::plan::provider_id::ProviderId;
use crate::telemetry::alarms::named;

mod execute;
pub(super) mod observe;
pub(super) mod write;

const COMPONENT: &str = "node-controller";
const LONGEST_CLOUD_WRITE: Duration = Duration::from_secs(5);
/// Nodes that are written at once, by how many there are: with each, a call to the cloud is waited for, so that thousands
/// need more, and each takes buffers.
const FEWEST_AT_ONCE: usize = 16;
const MOST_AT_ONCE: usize = 64;
/// How long the watch may take to show what we wrote ourselves.
const LATE: Duration = Duration::from_secs(1);

/// Runs until `context.stop` is cancelled.
pub async fn run(context: Context) {
    batch::run(context, |context, nodes| NodePass {
        context,
        nodes,
        settled: BTreeMap::new(),
        late: BTreeSet::new(),
        switches: Switches::default(),
        ledger: Ledger::default(),
        held_back: BTreeMap::new(),
        unproven: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
        started: Instant::now(),
    })
    .await;
}

/// What [`run`] would do now. Writes nothing.
///
/// # Errors
/// The first fault of the cloud, if it gave no answer about some node.
pub async fn plan(
    cluster: &Cluster,
    cloud: &CloudClient,
    place: &CloudLocation,
    config: &Config,
) -> Result<Vec<PlanLine>, Fault> {
    let nodes = cluster.nodes();
    nodes.store.synced().await;
    let found = survey(cloud, place, config, &nodes.store.all(), |_| true, &mut Switches::default()).await;
    if let Some((_, fault)) = found.faults.into_iter().next() {
        return Err(fault);
    }
    let mut lines: Vec<PlanLine> = found.plans.iter().flat_map(|(_, plan)| plan.lines()).collect();
    let now = Moment { wall: clock::now(), elapsed: Duration::ZERO };
    for (view, id, listing) in &found.missing {
        let (destroys, text) = match Ledger::default().missing(view, id, listing, now, &rules(config, place)) {
            Decision::Keep => continue,
            Decision::HeldBack { reason, .. } => (false, format!("removal is held back: {reason}")),
            Decision::Remove | Decision::Wait(_) => {
                (true, format!("remove node, if instance {id} is still gone at a second look"))
            }
        };
        lines.push(PlanLine { controller: NodePass::NAME, object: view.name.clone(), text, destroys });
    }
    lines.sort_by(|a, b| a.object.cmp(&b.object));
    Ok(lines)
}

fn rules(config: &Config, place: &CloudLocation) -> Rules {
    Rules {
        enabled: config.node.remove_released,
        region: place.region.clone(),
        interval: config.node.removal_interval,
        grace: config.node.removal_grace,
        limit: config.node.removal_limit,
        window: config.node.removal_window,
    }
}

struct NodePass {
    context: Context,
    nodes: Arc<Store<NodeView>>,
    /// Nodes that are as wanted, as they were then; what we wrote ourselves is no change that has to be looked at.
    settled: BTreeMap<String, Arc<NodeView>>,
    /// Those of which the watch still showed something older when it was looked at.
    late: BTreeSet<String>,
    switches: Switches,
    ledger: Ledger,
    /// Nodes whose removal is held back, and why.
    held_back: BTreeMap<String, String>,
    /// Nodes whose instance the cloud does not show, in answers that prove nothing, and why they do not.
    unproven: BTreeMap<String, String>,
    /// Nodes whose instance the cloud shows, and whether in another VPC.
    elsewhere: BTreeMap<String, bool>,
    started: Instant,
}

impl BatchReconciler for NodePass {
    const NAME: &'static str = "node";

    fn timing(&self) -> BatchTiming {
        let config = self.context.config.borrow();
        BatchTiming { aggregation: config.node.aggregation, period: config.node.period }
    }

    fn is_relevant(&mut self, key: &ObjectKey) -> bool {
        let Some(view) = self.nodes.get(key) else {
            self.settled.remove(&key.name);
            return false;
        };
        if self.is_settled(&view) {
            // One copy of it is enough.
            self.settled.insert(key.name.clone(), view);
            return false;
        }
        !matches!(node::classify(&view), Class::Excluded(_))
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
        let config = self.context.config.borrow().clone();
        let all = self.nodes.all();
        let (settled, late) = match scope {
            BatchScope::All => (BTreeSet::new(), BTreeSet::new()),
            BatchScope::Keys(_) => self.unchanged(&all, &scope),
        };
        let chosen = |key: &ObjectKey| scope.contains(key) && !settled.contains(&key.name);
        let Context { cloud, place, .. } = &self.context;
        let new: BTreeSet<&str> = all.iter().filter(|view| is_new(view)).map(|view| view.uid.as_str()).collect();
        self.switches.retain(|uid| new.contains(uid));
        let mut found = survey(cloud, place, &config, &all, chosen, &mut self.switches).await;

        let uids: BTreeSet<&str> = all.iter().map(|view| view.uid.as_str()).collect();
        self.ledger.retain(|uid| uids.contains(uid));
        let names: BTreeSet<&str> = all.iter().map(|view| view.name.as_str()).collect();
        self.held_back.retain(|name, _| names.contains(name.as_str()));
        self.unproven.retain(|name, _| names.contains(name.as_str()));
        self.elsewhere.retain(|name, _| names.contains(name.as_str()));
        let mut outcome = BatchResult::default();
        self.apply(&config, &mut found, &mut outcome).await;
        self.remove(&config, &found, &mut outcome).await;
        self.raise_alarms();
        self.settled.retain(|name, _| names.contains(name.as_str()));
        let unwell = |view: &&Arc<NodeView>| !node::is_ready(view) && matches!(node::classify(view), Class::Ecs(_));
        for view in all.iter().filter(unwell) {
            let key = ObjectKey::cluster(&view.name);
            if scope.contains(&key) && !outcome.failed.contains_key(&key) {
                // An instance that was stopped can be released later, which no watch tells.
                outcome.requeue.entry(key).or_insert(batch::RESYNC_WHILE_OUT_OF_SYNC);
            }
        }
        for key in outcome.failed.keys().chain(outcome.requeue.keys()) {
            self.settled.remove(&key.name);
        }
        outcome.requeue.extend(late.iter().map(|name| (ObjectKey::cluster(name), LATE)));
        self.late.retain(|name| !scope.contains(&ObjectKey::cluster(name)));
        self.late.extend(late);
        outcome
    }

    fn lease_lost(&mut self) {
        self.context.alarms.clear(Self::NAME);
    }
}

impl NodePass {
    fn is_settled(&self, view: &NodeView) -> bool {
        self.settled.get(&view.name).is_some_and(|settled| !differs(settled, view))
    }

    /// Of these nodes, those that need no look: as they were left, and those of which the watch, late as it can be, has
    /// shown only some of our own writes. For the latter it is not waited twice, as nothing says that it is only late: an
    /// API server that was restored from a backup shows older versions from then on.
    fn unchanged(&self, all: &[Arc<NodeView>], scope: &BatchScope) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut unchanged, mut late) = (BTreeSet::new(), BTreeSet::new());
        for view in all.iter().filter(|view| scope.contains(&ObjectKey::cluster(&view.name))) {
            let is_late = || self.settled.get(&view.name).is_some_and(|settled| write::is_later(settled, view));
            if self.is_settled(view) {
                unchanged.insert(view.name.clone());
            } else if !self.late.contains(&view.name) && is_late() {
                unchanged.insert(view.name.clone());
                late.insert(view.name.clone());
            }
        }
        (unchanged, late)
    }

    async fn apply(&mut self, config: &Config, found: &mut Survey, outcome: &mut BatchResult) {
        let Context { cluster, cloud, fence, .. } = &self.context;
        for (view, fault) in &found.faults {
            warn!(node = %view.name, %fault, "the instance could not be looked up; it is tried again");
            outcome.failed.insert(ObjectKey::cluster(&view.name), fault.retry_after);
            if is_new(view) {
                let message = format!("The instance could not be looked up; it is tried again: {fault}");
                cluster.events().warning(COMPONENT, &regarding(view), "SyncNodeFailed", message);
            }
        }
        let executor = Executor { cluster, nodes: &self.nodes, cloud, fence, policy: policy(config) };
        let plans = std::mem::take(&mut found.plans);
        let limit = (plans.len() / 16).clamp(FEWEST_AT_ONCE, MOST_AT_ONCE);
        let apply = |(view, plan)| self.apply_one(executor, view, plan);
        for (now, whole) in for_each_limited(limit, plans, apply).await {
            if !whole {
                outcome.failed.insert(ObjectKey::cluster(&now.name), None);
            }
            self.settled.insert(now.name.clone(), now);
        }
    }

    /// The node as it is then, and whether it is as wanted.
    async fn apply_one(&self, executor: Executor<'_>, view: Arc<NodeView>, plan: NodePlan) -> (Arc<NodeView>, bool) {
        for problem in &plan.problems {
            warn!(node = %view.name, %problem, "not as wanted");
            let events = self.context.cluster.events();
            events.warning(COMPONENT, &regarding(&view), "SyncNodeFailed", problem.to_string());
        }
        let (applied, now) = executor.apply(&view, &plan).await;
        (now, applied && !plan.problems.iter().any(Problem::blocks))
    }

    async fn remove(&mut self, config: &Config, found: &Survey, outcome: &mut BatchResult) {
        for (view, here) in &found.present {
            self.ledger.present(&view.uid, *here);
            self.held_back.remove(&view.name);
            self.unproven.remove(&view.name);
            self.elsewhere.insert(view.name.clone(), !here);
        }
        let rules = rules(config, &self.context.place);
        for (view, id, listing) in &found.missing {
            self.elsewhere.remove(&view.name);
            match listing {
                Listing::Whole => self.unproven.remove(&view.name),
                Listing::Unproven(why) => self.unproven.insert(view.name.clone(), why.clone()),
            };
            let now = Moment { wall: clock::now(), elapsed: self.started.elapsed() };
            let decision = self.ledger.missing(view, id, listing, now, &rules);
            if !matches!(decision, Decision::HeldBack { .. }) {
                self.held_back.remove(&view.name);
            }
            let key = ObjectKey::cluster(&view.name);
            match decision {
                Decision::Keep => {}
                Decision::Wait(again) => {
                    outcome.requeue.insert(key, again);
                }
                Decision::HeldBack { reason, again } => {
                    self.report_held_back(view, id, &reason);
                    outcome.requeue.insert(key, again);
                }
                Decision::Remove => {
                    if !self.remove_one(view, id, listing).await {
                        outcome.failed.insert(key, None);
                    }
                }
            }
        }
    }

    fn report_held_back(&mut self, view: &NodeView, id: &ProviderId, reason: &HeldBack) {
        warn!(node = %view.name, instance = %id, %reason, "the removal of a node is held back");
        let message = format!("Instance {id} seems to be released, but the node is kept: {reason}");
        self.context.cluster.events().warning(COMPONENT, &regarding(view), "NodeRemovalHeldBack", message);
        self.held_back.insert(view.name.clone(), reason.to_string());
    }

    /// Shows what is held back, and why the view is not to be trusted even where nothing is due yet.
    fn raise_alarms(&self) {
        let alarms = &self.context.alarms;
        let first = |all: &BTreeMap<String, String>| all.values().next().cloned().unwrap_or_default();
        let names = named(self.held_back.keys().map(String::as_str));
        let text = format!("{names}: {}", first(&self.held_back));
        alarms.set(Self::NAME, "NodeRemovalHeldBack", self.held_back.len(), text);

        let names = named(self.unproven.keys().map(String::as_str));
        let text = format!(
            "the cloud does not show the instances of {names}, and no node is removed for that: {}",
            first(&self.unproven)
        );
        if alarms.set(Self::NAME, "InstancesNotShown", self.unproven.len(), &text) {
            self.report("InstancesNotShown", text);
        }

        let everybody = !self.elsewhere.is_empty() && self.elsewhere.values().all(|elsewhere| *elsewhere);
        let count = if everybody { self.elsewhere.len() } else { 0 };
        let text = format!(
            "the instances of all nodes ({}) are in another VPC than cloud.vpc_id says, which is {}; no node is removed \
             until that is corrected",
            named(self.elsewhere.keys().map(String::as_str)),
            self.context.place.vpc_id,
        );
        if alarms.set(Self::NAME, "InstancesElsewhere", count, &text) {
            self.report("InstancesElsewhere", text);
        }
    }

    /// An event about the controller itself.
    fn report(&self, reason: &'static str, message: String) {
        warn!(controller = Self::NAME, reason, "{message}");
        self.context.cluster.events().warning(COMPONENT, &Regarding::component(COMPONENT), reason, message);
    }

    /// True if the node is gone, or proves to be alive.
    async fn remove_one(&self, view: &NodeView, id: &ProviderId, listing: &Listing) -> bool {
        let Context { cluster, fence, .. } = &self.context;
        let still = |fresh: &NodeView| {
            let same = ProviderId::parse(&fresh.provider_id).as_ref() == Ok(id);
            same && !node::is_ready(fresh) && matches!(node::classify(fresh), Class::Ecs(_))
        };
        match write::delete(cluster, fence, view, still).await {
            Ok(true) => {
                info!(node = %view.name, instance = %id, ?listing, "removed: the instance is released");
                let message = format!("Removed node {}: instance {id} does not exist any more", view.name);
                cluster.events().normal(COMPONENT, &regarding(view), "DeletedNode", message);
                true
            }
            Ok(false) | Err(WriteFault::Gone) => true,
            Err(fault) => {
                warn!(node = %view.name, instance = %id, %fault, "the node could not be removed; it is tried again");
                let message = format!("Error deleting node: {fault}");
                cluster.events().warning(COMPONENT, &regarding(view), "DeleteNodeFailed", message);
                false
            }
        }
    }
}

/// Whether anything changed but the version, which every heartbeat of a kubelet raises, the condition
/// `NetworkUnavailable`, which is only made here where there is none, and otherwise is for others to change, and taints of
/// others, which follow conditions.
fn differs(before: &NodeView, now: &NodeView) -> bool {
    let NodeView {
        resource_version: _,
        network_unavailable,
        taints: _,
        name,
        uid,
        created,
        deleting,
        labels,
        provided_node_ip,
        provider_id,
        unschedulable,
        pod_cidrs,
        addresses,
        has_conditions,
        ready,
    } = before;
    let ours = |view: &NodeView| [node::UNINITIALIZED, node::SHUTDOWN].map(|key| node::has_taint(view, key));
    let same = (name, uid, created, deleting) == (&now.name, &now.uid, &now.created, &now.deleting)
        && (provider_id, unschedulable) == (&now.provider_id, &now.unschedulable)
        && (labels, provided_node_ip, pod_cidrs) == (&now.labels, &now.provided_node_ip, &now.pod_cidrs)
        && (addresses, has_conditions, ready) == (&now.addresses, &now.has_conditions, &now.ready)
        && network_unavailable.is_some() == now.network_unavailable.is_some()
        && ours(before) == ours(now);
    !same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::{Condition, ConditionStatus, Taint};

    #[test]
    fn heartbeats_are_no_change() {
        let before = NodeView { name: "a".into(), resource_version: "1".into(), ..NodeView::default() };
        let heartbeat = NodeView { resource_version: "2".into(), ..before.clone() };
        assert!(!differs(&before, &heartbeat));
        let condition = |status| NodeView {
            network_unavailable: Some(Condition { status, reason: String::new(), since: None }),
            ..heartbeat.clone()
        };
        let (unrouted, routed) = (condition(ConditionStatus::True), condition(ConditionStatus::False));
        assert!(!differs(&unrouted, &routed), "the route controller's work");
        assert!(differs(&unrouted, &heartbeat), "the condition is missing again");
        assert!(differs(&before, &NodeView { provider_id: "cn-a.i-1".into(), ..heartbeat.clone() }));
        let taint = |key: &str| Taint { key: key.to_owned(), ..Taint::default() };
        let tainted = |key| NodeView { taints: vec![taint(key)], ..heartbeat.clone() };
        assert!(!differs(&before, &tainted("node.kubernetes.io/network-unavailable")));
        assert!(differs(&before, &tainted(node::UNINITIALIZED)) && differs(&before, &tainted(node::SHUTDOWN)));
    }
}
