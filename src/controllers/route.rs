//! The route controller: one entry per node and pod CIDR in each route table, and the condition that says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::execute::ItemFate;
pub use self::networks::{NetworkFindings, look};
pub use self::off::run_off;
pub use self::orphans::orphans;
pub use self::tables::{TablesFault, all_tables};
use super::batch::{self, BatchFailure, BatchReconciler, BatchResult, BatchScope, BatchTiming};
use super::instances::presence;
use super::node_patch::{NodePatcher, PatchTarget, network_unavailable};
use super::reporter::{Reporter, regarding, state, trouble, trouble_of_write};
use super::{Clients, Context, Previewed, for_each_limited};
use crate::alibaba::{CloudClient, FaultKind};
use crate::clock;
use crate::cluster::{Cluster, Store, WriteFault};
use crate::config::Config;
use crate::plan::digest;
use crate::plan::inputs::{Condition, NodeView, ObjectKey};
use crate::plan::location::CloudLocation;
use crate::plan::provenance::shared_id;
use crate::plan::route::condition;
use crate::plan::route::entry::{RouteEntry, RouteItem};
use crate::plan::route::mark::RouteCluster;
use crate::plan::route::table_cache::{RECHECK_AFTER, RouteTableCache};
use crate::plan::route::{
    self, CONFIRM, DeleteReason, OwnerEvidence, RouteMemory, RouteNode, RoutePlan, RouteRules, RouteStep, TableEntries,
    WithheldOrphan,
};
use crate::telemetry::alarms::{ObjectTrouble, SyncState, named};

mod execute;
mod networks;
mod off;
mod orphans;
mod tables;

/// Its name in the configuration, in logs and in metrics.
pub const NAME: &str = "route";
/// The longest time between reads of an entry that the cloud is changing.
const LONGEST_RECHECK: Duration = Duration::from_secs(60);
/// Nodes that are written in parallel.
const CONCURRENCY: usize = 16;
/// Time between reads of entries that lead elsewhere than to instances: a call for each kind of next hop. They are read sooner
/// where an entry is in the way.
const OTHERS_PERIOD: Duration = Duration::from_secs(3600);

/// Runs until `context.stop` is cancelled.
pub async fn run(context: Context) {
    let nodes = context.cluster.nodes();
    let identified = async {
        nodes.store.synced().await;
        context.cluster.identify().await;
    };
    if context.stop.run_until_cancelled(identified).await.is_none() {
        return;
    }
    batch::run(context, nodes, |context, nodes| RouteReconciler {
        reporter: Reporter::new(&context, NAME, "route-controller", "nodes"),
        context,
        nodes,
        seen: BTreeMap::new(),
        memory: RouteMemory::default(),
        table_ids: Vec::new(),
        others: BTreeMap::new(),
        others_read: None,
        cache: RouteTableCache::default(),
        removed: VecDeque::new(),
        pending: BTreeMap::new(),
        unlisted: BTreeSet::new(),
        started: Instant::now(),
        has_looked: false,
    })
    .await;
}

/// What [`run`] would do now. Writes nothing.
///
/// # Errors
/// If nodes or the route tables cannot be read, in words.
pub async fn plan(clients: &Clients, config: &Config, only: Option<&ObjectKey>) -> Result<Previewed, String> {
    let Clients { cluster, cloud, location } = clients;
    let watched = cluster.nodes();
    watched.listed().await?;
    cluster.identify().await;
    let ids = tables::ids(cloud, location, config).await.map_err(|fault| fault.to_string())?;
    let mut tables = tables::read(cloud, &ids).await.map_err(|fault| fault.to_string())?;
    let mut others = BTreeMap::new();
    tables::read_others(cloud, &ids, &mut others).await;
    tables::add_others(&mut tables, &others);
    let planner = RoutePlanner { cloud, location, nodes: &watched.store, tables: &tables };
    let rules = rules(config, cluster, 0, Duration::ZERO);
    let (_, plan) = planner.plan(&mut RouteMemory::default(), rules).await;
    let this = only.and_then(|only| watched.store.get(&ObjectKey::cluster(&only.name)));
    let this = this.map(|view| RouteNode::of(&view));
    let settings = this.map(|node| route::origins(&node, &tables, !config.route.table_ids.is_empty()));
    Ok(Previewed { lines: plan.lines(), settings: settings.unwrap_or_default(), ..Previewed::default() })
}

fn rules(config: &Config, cluster: &Cluster, removed: usize, now: Duration) -> RouteRules {
    RouteRules {
        cluster: RouteCluster { id: config.cloud.cluster_id.clone(), uid: cluster.uid().to_owned() },
        cluster_cidrs: config.route.cluster_cidrs.clone(),
        removals: usize::try_from(config.route.removal_limit).unwrap_or(usize::MAX).saturating_sub(removed),
        now,
        evidence: OwnerEvidence::default(),
    }
}

/// In a fixed order, so that plans of equal states are equal.
fn reduced(views: &[Arc<NodeView>]) -> Vec<RouteNode> {
    let mut nodes: Vec<RouteNode> = views.iter().map(|view| RouteNode::of(view)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// What plans of tables that were just read depend on.
struct RoutePlanner<'a> {
    cloud: &'a CloudClient,
    location: &'a CloudLocation,
    nodes: &'a Store<NodeView>,
    tables: &'a [TableEntries],
}

impl RoutePlanner<'_> {
    /// Plans, and plans again if the cloud must be asked about instances first. Gives also which nodes there are. They are read
    /// after the tables, so that no entry is newer than what is known of its node.
    async fn plan(&self, memory: &mut RouteMemory, mut rules: RouteRules) -> (PlannedNodes, RoutePlan) {
        let views = self.nodes.all();
        let nodes = reduced(&views);
        rules.evidence.deleted = self.nodes.deleted();
        let mut plan = route::plan(&nodes, self.tables, memory, &rules);
        if !plan.unasked.is_empty() {
            rules.evidence.instances = presence(&self.cloud.ecs, &self.location.region, plan.unasked, &views).await;
            plan = route::plan(&nodes, self.tables, memory, &rules);
        }
        (planned(&views), plan)
    }
}

struct RouteReconciler {
    context: Context,
    nodes: Arc<Store<NodeView>>,
    reporter: Reporter,
    /// As they were when [`BatchReconciler::is_relevant`] was last called.
    seen: BTreeMap<ObjectKey, SeenNode>,
    memory: RouteMemory,
    /// As of the last reconcile of all nodes.
    table_ids: Vec<String>,
    /// Entries that lead elsewhere than to instances, by table.
    others: BTreeMap<String, Vec<RouteEntry>>,
    /// When they were read, if nothing says that they are to be read again.
    others_read: Option<Instant>,
    cache: RouteTableCache,
    /// When the reconciles started that removed entries within the last period; one for each entry.
    removed: VecDeque<Instant>,
    /// Nodes whose entries the cloud is changing, and since when.
    pending: BTreeMap<String, Instant>,
    /// Entries that the cloud refused to create because they exist, although the list did not show them.
    unlisted: BTreeSet<(String, IpNet)>,
    started: Instant,
    /// Whether other makers of routes were looked for in this term.
    has_looked: bool,
}

impl BatchReconciler for RouteReconciler {
    const NAME: &'static str = NAME;

    fn timing(&self) -> BatchTiming {
        let config = self.context.config.borrow();
        BatchTiming { aggregation: config.route.aggregation, period: config.route.period }
    }

    fn is_relevant(&mut self, key: &ObjectKey) -> bool {
        let Some(view) = self.nodes.get(key) else {
            return self.seen.remove(key).is_some();
        };
        let now = SeenNode::of(RouteNode::of(&view));
        let before = self.seen.insert(key.clone(), now);
        before.map_or(!view.pod_cidrs.is_empty(), |before| before != now)
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
        let (started, began, config) = (Instant::now(), clock::now(), self.context.config.borrow().clone());
        let observed = match self.plan_from_cache(&config, &scope) {
            Some(observed) => Ok(observed),
            None => self.observe(&config, &scope).await,
        };
        let ObservedRoutes { nodes, tables, plan } = match observed {
            Ok(observed) => observed,
            Err(fault) => return self.aborted(&fault, began),
        };
        let (result, conditions) = (BatchResult::default(), BTreeMap::new());
        let (store, nodes, tables) = (&*self.nodes.clone(), &nodes, &*tables);
        let mut run = RouteRun { started, config: &config, store, nodes, tables, result, conditions };
        self.report_plan(&plan, &scope, &mut run);
        let uncertain = self.delete(&plan, &mut run).await;
        self.create(&plan, &uncertain, &mut run).await;
        self.write_conditions(&plan, &mut run).await;
        // Of a node that left, the entry may be left to remove.
        self.reporter.report((&scope, began), &mut run.result, |_| true);
        if !std::mem::replace(&mut self.has_looked, true) {
            networks::report(&self.context.cluster, &self.reporter).await;
        }
        let withheld = !plan.over_limit.is_empty() || !plan.withheld.is_empty();
        run.result.resync_after = withheld.then_some(batch::RESYNC_WHILE_OUT_OF_SYNC);
        run.result
    }

    fn scheduled(&mut self, later: &BTreeMap<ObjectKey, Instant>) {
        self.reporter.scheduled(later, |key| self.nodes.get(key).map(|node| regarding(&node)));
    }

    fn lease_lost(&mut self) {
        self.reporter.end_alarms();
        self.has_looked = false;
        // Another process may write from now on.
        self.cache = RouteTableCache::default();
    }
}

/// A [`RouteNode`] as two [numbers](digest::number), which is all that a comparison needs: there can be very many.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SeenNode {
    condition: u64,
    without_condition: u64,
}

impl SeenNode {
    fn of(mut node: RouteNode) -> Self {
        let condition = digest::number(&node.condition.take());
        Self { condition, without_condition: digest::number(&node) }
    }
}

/// Uids of the nodes that a plan was made for, by name. Their views are not kept: a plan of all nodes takes minutes, and the
/// nodes change meanwhile.
type PlannedNodes = BTreeMap<String, String>;

fn planned(views: &[Arc<NodeView>]) -> PlannedNodes {
    views.iter().map(|view| (view.name.clone(), view.uid.clone())).collect()
}

/// What a reconcile begins with.
struct ObservedRoutes {
    nodes: PlannedNodes,
    tables: Arc<[TableEntries]>,
    plan: RoutePlan,
}

/// One reconcile under way.
struct RouteRun<'a> {
    started: Instant,
    config: &'a Config,
    store: &'a Store<NodeView>,
    nodes: &'a PlannedNodes,
    tables: &'a [TableEntries],
    result: BatchResult,
    /// What conditions say beyond the plan: whether the node has all routes.
    conditions: BTreeMap<String, bool>,
}

impl RouteRun<'_> {
    /// The node as it is now, unless it is gone or another one has its name.
    fn view(&self, node: &str) -> Option<Arc<NodeView>> {
        let uid = self.nodes.get(node)?;
        self.store.get(&ObjectKey::cluster(node)).filter(|view| view.uid == *uid)
    }

    fn requeue(&mut self, node: &str, after: Duration) {
        self.result.requeue(ObjectKey::cluster(node), after);
    }

    fn out_of_sync(&mut self, node: &str, trouble: ObjectTrouble) {
        self.result.out_of_sync(ObjectKey::cluster(node), trouble);
    }

    fn failed(&mut self, node: &str, trouble: ObjectTrouble, failure: BatchFailure) {
        self.result.failed(ObjectKey::cluster(node), trouble, failure);
    }
}

impl RouteReconciler {
    /// A plan for which the tables need not be read, see [`route::table_cache`].
    fn plan_from_cache(&mut self, config: &Config, scope: &BatchScope) -> Option<ObservedRoutes> {
        let now = self.started.elapsed();
        let tables = self.cache.get(now).filter(|_| *scope != BatchScope::All)?;
        let views = self.nodes.all();
        let removed = self.removed_in_period(config);
        let rules = rules(config, &self.context.cluster, removed, now);
        let plan = route::plan(&reduced(&views), &tables, &mut self.memory.clone(), &rules);
        self.cache.suffices(&plan).then(|| ObservedRoutes { nodes: planned(&views), tables, plan })
    }

    async fn observe(&mut self, config: &Config, scope: &BatchScope) -> Result<ObservedRoutes, TablesFault> {
        let tables = self.read_tables(config, scope).await?;
        self.reporter.alarm("SyncRouteFailed", 0, "");
        let tables = self.cache.store(tables, self.started.elapsed());
        let removed = self.removed_in_period(config);
        let Context { cluster, cloud, location, .. } = &self.context;
        let rules = rules(config, cluster, removed, self.started.elapsed());
        let planner = RoutePlanner { cloud, location, nodes: &self.nodes, tables: &tables };
        let (nodes, plan) = planner.plan(&mut self.memory, rules).await;
        Ok(ObservedRoutes { nodes, tables, plan })
    }

    /// Which tables there are is read with every reconcile of all nodes; their entries whenever it matters what they are.
    async fn read_tables(&mut self, config: &Config, scope: &BatchScope) -> Result<Vec<TableEntries>, TablesFault> {
        let Context { cloud, location, .. } = &self.context;
        self.cache.invalidate();
        if *scope == BatchScope::All || self.table_ids.is_empty() {
            self.table_ids.clear();
            self.table_ids = tables::ids(cloud, location, config).await?;
            if self.others_read.is_none_or(|at| at.elapsed() >= OTHERS_PERIOD) {
                tables::read_others(cloud, &self.table_ids, &mut self.others).await;
                self.others_read = Some(Instant::now());
            }
        }
        let read = tables::read(cloud, &self.table_ids).await;
        if read.is_err() {
            self.table_ids.clear();
        }
        let mut tables = read?;
        tables::add_others(&mut tables, &self.others);
        Ok(tables)
    }

    fn aborted(&self, fault: &TablesFault, began: Timestamp) -> BatchResult {
        error!(code = "ACCM0205", %fault, "the route tables cannot be read; no route is changed");
        let text = format!("Reconciling route error: the route tables cannot be read, so no route is changed: {fault}");
        self.reporter.alarm("SyncRouteFailed", 1, &text);
        let (why, passes) = match fault {
            TablesFault::Cloud(fault) => ((fault.kind.as_str(), fault.retry_after), fault.passes()),
            TablesFault::None { .. } | TablesFault::Several { .. } => (("unusable", None), false),
        };
        let trouble = ObjectTrouble { state: state(passes), ..trouble("SyncRouteFailed", text) };
        let views = self.nodes.all();
        let lacks_routes = |node: &&Arc<NodeView>| {
            !node.pod_cidrs.is_empty() && condition::due(node.network_unavailable.as_ref(), true).is_some()
        };
        let waiting = views.iter().filter(lacks_routes).map(|node| ObjectKey::cluster(&node.name));
        let mut result = BatchResult::aborted(why, &trouble, waiting);
        self.reporter.report((&BatchScope::All, began), &mut result, |_| true);
        result
    }

    /// How many entries were removed within this period.
    fn removed_in_period(&mut self, config: &Config) -> usize {
        // A little less than a period, so that the next periodic reconcile surely finds room.
        let window = config.route.period.unwrap_or(batch::RESYNC_WHILE_OUT_OF_SYNC) * 9 / 10;
        while self.removed.front().is_some_and(|at| at.elapsed() >= window) {
            self.removed.pop_front();
        }
        self.removed.len()
    }

    fn report_plan(&mut self, plan: &RoutePlan, scope: &BatchScope, run: &mut RouteRun<'_>) {
        for (node, problem) in plan.problems.iter().filter(|(_, problem)| problem.blocks()) {
            let told = trouble("CreateRouteFailed", problem.to_string());
            run.out_of_sync(node, ObjectTrouble { cause: problem.cause(), ..told });
        }
        for (node, problem) in plan.problems.iter().filter(|(node, _)| scope.contains(&ObjectKey::cluster(node))) {
            warn!(code = "ACCM0203", node, %problem, "out of sync");
            if !problem.blocks()
                && let Some(view) = run.view(node)
            {
                self.reporter.warning(&view, "CreateRouteFailed", problem.to_string());
            }
        }
        if plan.problems.iter().any(|(_, problem)| problem.is_about_an_entry()) {
            self.others_read = None;
        }
        self.pending.retain(|node, _| plan.pending.contains(node));
        let waits = self.cache.waits(self.started.elapsed());
        for node in &plan.pending {
            let since = self.pending.entry(node.clone()).or_insert_with(Instant::now);
            // What takes long is read less often; what is new, no later than it would have been.
            let wait = (since.elapsed() / 2).clamp(RECHECK_AFTER, LONGEST_RECHECK);
            run.requeue(node, waits.get(node.as_str()).copied().unwrap_or(wait));
            let told = trouble("CreateRouteFailed", "the cloud is still changing the route entry of the node");
            run.out_of_sync(node, ObjectTrouble { state: SyncState::Retrying, ..told });
        }
        for step in &plan.unconfirmed {
            run.requeue(step.node(), CONFIRM);
        }
        for step in &plan.over_limit {
            warn!(code = "ACCM0206", %step, "withheld");
            if let RouteStep::Delete { node, reason, .. } = step
                && !matches!(reason, DeleteReason::Orphaned)
            {
                let text = format!(
                    "the entry of another instance has to go first, and route.removal_limit withholds that: {step}"
                );
                run.out_of_sync(node, trouble("CreateRouteFailed", text));
            }
        }
        let text = format!(
            "{} route entries are due to be removed, more than route.removal_limit allows within route.period; the \
             controller removes them in later periods, or at once if the limit is raised",
            plan.over_limit.len()
        );
        self.reporter.alarm("RouteRemovalHeldBack", plan.over_limit.len(), &text);
        let name = |WithheldOrphan { step, .. }: &WithheldOrphan| match step.item() {
            Some(item) => format!("{} of {}", item.destination, step.node()),
            None => step.node().to_owned(),
        };
        let why = plan.withheld.first().map(|orphan| orphan.why.to_string()).unwrap_or_default();
        let names = named(plan.withheld.iter().map(name));
        let text = format!("route entries without a node are kept ({names}): {why}");
        self.reporter.alarm("RouteOwnerMissing", plan.withheld.len(), &text);
        self.report_other_clusters(plan, &run.config.cloud.cluster_id);
    }

    fn report_other_clusters(&self, plan: &RoutePlan, cluster_id: &str) {
        let others = named(plan.other_clusters.iter().map(|(what, _)| what));
        let why = plan.other_clusters.first().map_or("", |(_, why)| why.as_str());
        let text = shared_id::text(cluster_id, &others, why);
        self.reporter.alarm(shared_id::REASON, plan.other_clusters.len(), &text);
    }

    /// Gives the places of entries that may be there or not, by table and destination.
    async fn delete(&mut self, plan: &RoutePlan, run: &mut RouteRun<'_>) -> BTreeSet<(String, IpNet)> {
        let steps: Vec<&RouteStep> = plan.steps.iter().filter(|step| step.deletes()).collect();
        let items: Vec<RouteItem> = steps.iter().filter_map(|step| step.item().cloned()).collect();
        if !items.is_empty() {
            self.cache.invalidate();
        }
        let Context { cloud, fence, .. } = &self.context;
        let written = execute::delete(&cloud.vpc, fence, &items, run.config.route.batch_size).await;
        let mut uncertain = BTreeSet::new();
        let (unknown, failure) = (written.trouble("DeleteRouteFailed"), written.failure());
        for (step, fate) in steps.into_iter().zip(written.fates) {
            let node = step.node();
            match fate {
                ItemFate::Done => {
                    info!(node, %step, "done");
                    self.removed.push_back(run.started);
                    if let (RouteStep::Delete { reason, .. }, Some(view)) = (step, run.view(node))
                        && reason.is_takeover()
                    {
                        let message = format!("The node's own route replaces one that was in its place: {step}");
                        self.reporter.normal(&view, "ReplacedRoute", message);
                    }
                    run.requeue(node, RECHECK_AFTER);
                }
                ItemFate::Refused { kind, cause, message } => {
                    warn!(code = "ACCM0204", node, %step, fault = %message, "failed; the controller retries it");
                    let told = trouble("DeleteRouteFailed", format!("Could not {step}: {message}"));
                    run.failed(
                        node,
                        ObjectTrouble { cause, state: state(execute::passes(kind)), ..told },
                        (kind.as_str(), None),
                    );
                }
                ItemFate::Unknown => {
                    // What may have been removed counts as removed.
                    self.removed.push_back(run.started);
                    run.failed(node, unknown.clone(), failure);
                    uncertain.extend(step.item().map(|item| (item.table_id.clone(), item.destination)));
                }
            }
        }
        uncertain
    }

    /// Creates what is missing, but not in places where the outcome of a removal is `uncertain`.
    async fn create(&mut self, plan: &RoutePlan, uncertain: &BTreeSet<(String, IpNet)>, run: &mut RouteRun<'_>) {
        let is_free = |item: &RouteItem| !uncertain.contains(&(item.table_id.clone(), item.destination));
        let (steps, waiting): (Vec<&RouteStep>, Vec<_>) =
            plan.steps.iter().filter(|step| step.creates()).partition(|step| step.item().is_some_and(is_free));
        waiting.into_iter().for_each(|step| run.requeue(step.node(), RECHECK_AFTER));
        let items: Vec<RouteItem> = steps.iter().filter_map(|step| step.item().cloned()).collect();
        let Context { cloud, fence, .. } = &self.context;
        let written = execute::create(&cloud.vpc, fence, &items, run.config.route.batch_size).await;
        if !written.fates.iter().all(|fate| matches!(fate, ItemFate::Done)) {
            self.cache.invalidate();
        }
        let (unknown, failure) = (written.trouble("CreateRouteFailed"), written.failure());
        for ((step, item), fate) in steps.into_iter().zip(&items).zip(written.fates) {
            let node = step.node();
            match fate {
                ItemFate::Done => {
                    self.cache.add(item, node, self.started.elapsed());
                    let RouteItem { table_id, destination, instance_id, .. } = item;
                    self.unlisted.remove(&(table_id.clone(), *destination));
                    info!(node, cidr = %destination, instance = %instance_id, table = %table_id, "created route");
                    if let Some(view) = run.view(node) {
                        let message = format!("Created route for {table_id} with {node} -> {destination} successfully");
                        self.reporter.normal(&view, "CreatedRoute", message);
                    }
                    run.requeue(node, RECHECK_AFTER);
                }
                ItemFate::Refused { kind, cause, message } => self.not_created(step, kind, (cause, &message), run),
                ItemFate::Unknown => run.failed(node, unknown.clone(), failure),
            }
        }
    }

    fn not_created(
        &mut self,
        step: &RouteStep,
        kind: FaultKind,
        (mut cause, fault): (Option<String>, &str),
        run: &mut RouteRun<'_>,
    ) {
        let node = step.node();
        warn!(code = "ACCM0203", node, %step, fault, "the route was not created; the controller retries it");
        let Some(RouteItem { table_id, destination, .. }) = step.item() else { return };
        // A list that is a little stale explains the first time.
        let is_unlisted = kind == FaultKind::Exists && self.unlisted.insert((table_id.clone(), *destination));
        let passes = is_unlisted || (kind != FaultKind::Exists && execute::passes(kind));
        if kind == FaultKind::Exists && !is_unlisted {
            // It may lead elsewhere than to an instance.
            (self.others_read, self.table_ids) = (None, Vec::new());
        }
        if kind == FaultKind::Quota
            && let Some(table) = run.tables.iter().find(|table| table.id == *table_id)
        {
            self.memory.table_is_full(table, self.started.elapsed());
            cause = Some(route::full(table_id));
        }
        if kind != FaultKind::Exists && !passes {
            run.conditions.insert(node.to_owned(), false);
        }
        let explained = if kind == FaultKind::Exists { not_listed(destination, fault) } else { fault.to_owned() };
        let message = format!("Error creating route entry in {table_id}: {explained}");
        let told = trouble("CreateRouteFailed", message);
        run.failed(node, ObjectTrouble { cause, state: state(passes), ..told }, (kind.as_str(), None));
    }

    async fn write_conditions(&mut self, plan: &RoutePlan, run: &mut RouteRun<'_>) {
        let mut due = std::mem::take(&mut run.conditions);
        for step in &plan.steps {
            if let RouteStep::SetCondition { node, routed } = step {
                due.entry(node.clone()).or_insert(*routed);
            }
        }
        let (this, begun) = (&*self, &*run);
        let write = async |(node, routed): (String, bool)| {
            let written = this.write_condition(&*begun.view(&node)?, routed).await;
            Some((node, written))
        };
        for (node, written) in for_each_limited(CONCURRENCY, due, write).await.into_iter().flatten() {
            match written {
                // Our own writes need no reconcile.
                Ok(Some(condition)) => {
                    if let Some(seen) = self.seen.get_mut(&ObjectKey::cluster(&node)) {
                        seen.condition = digest::number(&condition);
                    }
                }
                Ok(None) | Err(WriteFault::Gone) => {}
                Err(fault) => {
                    warn!(code = "ACCM0761", node, %fault, "the condition NetworkUnavailable could not be written; the controller retries it");
                    let message = format!("the condition NetworkUnavailable could not be written: {fault}");
                    let told = ObjectTrouble { message, ..trouble_of_write("SyncNodeFailed", &fault, "nodes") };
                    run.failed(&node, told, (fault.as_str(), None));
                }
            }
        }
    }

    /// Gives the condition as it is then, if an answer said so.
    async fn write_condition(&self, view: &NodeView, routed: bool) -> Result<Option<Option<Condition>>, WriteFault> {
        let Context { cluster, fence, .. } = &self.context;
        let change =
            |fresh: &NodeView| condition::due(fresh.network_unavailable.as_ref(), routed).map(network_unavailable);
        let written = NodePatcher { cluster, fence }.patch_fresh(view, PatchTarget::Conditions, change).await;
        written.map(|now| now.map(|now| now.network_unavailable))
    }
}

/// Why an entry was not created that exists, as the cloud says, and that was not listed. Where it leads was not seen.
fn not_listed(destination: &IpNet, fault: &str) -> String {
    format!(
        "the cloud says that the table has an entry for {destination}, which the list of its entries did not show; remove \
         that entry, or wait until the list shows it: {fault}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_list_showed_and_no_more() {
        let text = not_listed(&"10.1.0.0/24".parse().unwrap(), "Duplicate [X]");
        assert!(
            text.contains("10.1.0.0/24") && text.contains("did not show") && text.ends_with("Duplicate [X]"),
            "{text}"
        );
        assert!(!text.contains("lead"), "where it leads was not seen: {text}");
    }

    /// The supervisor runs controllers as tasks.
    #[test]
    fn controllers_can_be_spawned() {
        fn spawnable<F: Future + Send + 'static>(_: fn(Context) -> F) {}
        spawnable(run);
        spawnable(crate::controllers::node::run);
    }

    #[test]
    fn plans_do_not_depend_on_the_order_of_the_watch() {
        let view = |name: &str| Arc::new(NodeView { name: name.into(), ..NodeView::default() });
        let names: Vec<String> = reduced(&[view("b"), view("a")]).into_iter().map(|node| node.name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
