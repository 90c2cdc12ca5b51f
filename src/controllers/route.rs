//! The route controller: one entry per node and pod CIDR in each route table, and what nodes are told about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::execute::{Fates, ItemTrouble};
pub use self::observe::TablesFault;
pub use self::off::run_off;
use super::batch::{self, BatchReconciler, BatchResult, BatchScope, BatchTiming};
use super::node::observe::presence;
use super::node::write::{self, Target, regarding};
use super::{Context, for_each_limited};
use crate::alibaba::{CloudClient, FaultKind};
use crate::cluster::{Cluster, Regarding, Store, WriteFault};
use crate::config::Config;
use crate::fence::Fence;
use crate::plan::PlanLine;
use crate::plan::inputs::{Condition, NodeView, ObjectKey, node_of};
use crate::plan::location::CloudLocation;
use crate::plan::route::condition::{self, Content};
use crate::plan::route::entry::RouteItem;
use crate::plan::route::owners::{Kept, Owners, suspects};
use crate::plan::route::table_cache::{LOOK_AGAIN, Sight};
use crate::plan::route::{self, CONFIRM, Memory, RouteNode, RoutePlan, RouteStep, Rules, Table};
use crate::telemetry::alarms::named;

mod execute;
mod observe;
mod off;

const COMPONENT: &str = "route-controller";
/// The longest time between looks at an entry that the cloud is changing.
const LOOK_SELDOM: Duration = Duration::from_secs(60);
/// Nodes that are written at once.
const CONCURRENCY: usize = 16;

/// Runs until `context.stop` is cancelled.
pub async fn run(context: Context) {
    batch::run(context, |context, nodes| RoutePass {
        context,
        nodes,
        seen: BTreeMap::new(),
        memory: Memory::default(),
        tables: Vec::new(),
        sight: Sight::default(),
        removed: VecDeque::new(),
        pending: BTreeMap::new(),
        unseen: BTreeSet::new(),
        started: Instant::now(),
    })
    .await;
}

/// What [`run`] would do now. Writes nothing.
///
/// # Errors
/// [`TablesFault`] if the route tables cannot be looked at.
pub async fn plan(
    cluster: &Cluster,
    cloud: &CloudClient,
    place: &CloudLocation,
    config: &Config,
) -> Result<Vec<PlanLine>, TablesFault> {
    let nodes = cluster.nodes();
    nodes.store.synced().await;
    let tables = observe::tables(cloud, place, config).await?;
    let removals = usize::try_from(config.route.removal_limit).unwrap_or(usize::MAX);
    let (reduced, mut memory) = (reduced(&nodes.store.all()), Memory::default());
    let rules = rules(config, removals, Duration::ZERO);
    let rules = with_owners(rules, cloud, place, &nodes.store, &reduced, &tables, &memory).await;
    Ok(route::plan(&reduced, &tables, &mut memory, &rules).lines())
}

/// Ends what an earlier route controller said of nodes, so that pods can be put there although nobody makes routes any
/// more. Touches no other condition, and nothing in the cloud. Returns how many nodes were changed.
///
/// # Errors
/// The first failure, after all nodes have been tried; repeating is safe.
pub async fn clear_conditions(cluster: &Cluster, fence: &Fence) -> Result<usize, WriteFault> {
    let nodes = cluster.nodes();
    nodes.store.synced().await;
    let stale = |view: &&Arc<NodeView>| condition::clear(view.network_unavailable.as_ref()).is_some();
    let due: Vec<_> = nodes.store.all().iter().filter(stale).cloned().collect();
    let clear = |view: Arc<NodeView>| async move {
        let change = |fresh: &NodeView| condition::clear(fresh.network_unavailable.as_ref()).map(body);
        let ended = write::patch_fresh(cluster, fence, &view, Target::Conditions, change).await;
        (view.name.clone(), ended)
    };
    let ended = for_each_limited(CONCURRENCY, due, clear).await;
    let (mut cleared, mut failure) = (0, None);
    for (node, ended) in ended {
        match ended {
            Ok(_) => cleared += 1,
            Err(WriteFault::Gone) => {}
            Err(WriteFault::NotLeading) => return Err(WriteFault::NotLeading),
            Err(fault) => {
                warn!(%node, %fault, "the condition NetworkUnavailable could not be cleared");
                failure.get_or_insert(fault);
            }
        }
    }
    match failure {
        Some(fault) => Err(fault),
        None => Ok(cleared),
    }
}

fn body(content: Content) -> serde_json::Value {
    write::network_unavailable(content.unavailable, content.reason, content.message)
}

fn rules(config: &Config, removals: usize, now: Duration) -> Rules {
    Rules {
        cluster_id: config.cloud.cluster_id.clone(),
        cluster_cidrs: config.route.cluster_cidrs.clone(),
        removals,
        now,
        owners: Owners::default(),
    }
}

/// The rules, with what can be found out about nodes that are not there.
async fn with_owners(
    rules: Rules,
    cloud: &CloudClient,
    place: &CloudLocation,
    store: &Store<NodeView>,
    nodes: &[RouteNode],
    tables: &[Table],
    memory: &Memory,
) -> Rules {
    let mut rules = Rules { owners: Owners { deleted: store.deleted(), ..Owners::default() }, ..rules };
    let suspects = suspects(nodes, tables, memory, &rules);
    if !suspects.is_empty() {
        rules.owners.instances = presence(&cloud.ecs, &place.region, suspects).await;
    }
    rules
}

/// In a fixed order, so that plans of equal states are equal.
fn reduced(views: &[Arc<NodeView>]) -> Vec<RouteNode> {
    let mut nodes: Vec<RouteNode> = views.iter().map(|view| RouteNode::of(view)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

struct RoutePass {
    context: Context,
    nodes: Arc<Store<NodeView>>,
    /// As they were when a change was last asked about.
    seen: BTreeMap<String, RouteNode>,
    memory: Memory,
    /// The tables, as of the last pass over everything.
    tables: Vec<String>,
    /// What they hold, as far as a pass over some nodes may rely on it.
    sight: Sight,
    /// When the passes started that removed entries within the last period; one for each entry.
    removed: VecDeque<Instant>,
    /// Nodes whose entries the cloud is changing, and since when.
    pending: BTreeMap<String, Instant>,
    /// Entries that the cloud would not make because they exist, although the list did not show them.
    unseen: BTreeSet<(String, IpNet)>,
    started: Instant,
}

impl BatchReconciler for RoutePass {
    const NAME: &'static str = "route";

    fn timing(&self) -> BatchTiming {
        let config = self.context.config.borrow();
        BatchTiming { aggregation: config.route.aggregation, period: config.route.period }
    }

    fn is_relevant(&mut self, key: &ObjectKey) -> bool {
        let Some(view) = self.nodes.get(key) else {
            return self.seen.remove(&key.name).is_some();
        };
        let now = RouteNode::of(&view);
        let before = self.seen.insert(key.name.clone(), now.clone());
        before.map_or(!view.pod_cidrs.is_empty(), |before| before != now)
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
        let started = Instant::now();
        let config = self.context.config.borrow().clone();
        let known = self.foresee(&config, &scope);
        let seen = match known {
            Some(seen) => Ok(seen),
            None => self.look(&config, &scope).await,
        };
        let Seen { views, tables, plan } = match seen {
            Ok(seen) => seen,
            Err(fault) => return self.aborted(fault),
        };
        let mut work = Work { views: &views, outcome: BatchResult::default(), told: BTreeMap::new() };
        self.report_plan(&plan, &scope, &mut work);
        if self.remove(&plan, &config, started, &mut work).await {
            self.create(&plan, &tables, &config, &mut work).await;
        }
        self.tell(&plan, &mut work).await;
        let well = plan.held_back.is_empty() && plan.kept.is_empty();
        work.outcome.resync_after = (!well).then_some(batch::RESYNC_WHILE_OUT_OF_SYNC);
        work.outcome
    }

    fn lease_lost(&mut self) {
        self.context.alarms.clear(Self::NAME);
        // Another one may write from now on.
        self.sight = Sight::default();
    }
}

/// What a pass begins with.
struct Seen {
    /// Read after the tables, so that no entry is newer than what is known of its node.
    views: Arc<[Arc<NodeView>]>,
    tables: Arc<[Table]>,
    plan: RoutePlan,
}

/// What is collected while a plan is carried out.
struct Work<'a> {
    /// In the order of their names.
    views: &'a [Arc<NodeView>],
    outcome: BatchResult,
    /// What nodes are told beyond the plan.
    told: BTreeMap<String, bool>,
}

impl Work<'_> {
    fn view(&self, node: &str) -> Option<&Arc<NodeView>> {
        node_of(self.views, node)
    }

    fn again(&mut self, node: &str, wait: Duration) {
        self.outcome.requeue.insert(ObjectKey::cluster(node), wait);
    }

    fn failed(&mut self, node: &str, wait: Option<Duration>) {
        self.outcome.failed.insert(ObjectKey::cluster(node), wait);
    }
}

impl RoutePass {
    /// A plan for which the tables need not be read, see [`route::sight`].
    fn foresee(&mut self, config: &Config, scope: &BatchScope) -> Option<Seen> {
        let now = self.started.elapsed();
        let tables = self.sight.recall(now).filter(|_| *scope != BatchScope::All)?;
        let views = self.nodes.all();
        // Nobody is asked about owners: entries without one need a look anyway.
        let rules = rules(config, self.removals_left(config), now);
        let plan = route::plan(&reduced(&views), &tables, &mut self.memory.clone(), &rules);
        self.sight.suffices(&plan).then_some(Seen { views, tables, plan })
    }

    async fn look(&mut self, config: &Config, scope: &BatchScope) -> Result<Seen, TablesFault> {
        let tables = self.tables(config, scope).await?;
        self.context.alarms.set(Self::NAME, "SyncRouteFailed", 0, "");
        let tables = self.sight.look(tables, self.started.elapsed());
        let views = self.nodes.all();
        let nodes = reduced(&views);
        let rules = rules(config, self.removals_left(config), self.started.elapsed());
        let Context { cloud, place, .. } = &self.context;
        let rules = with_owners(rules, cloud, place, &self.nodes, &nodes, &tables, &self.memory).await;
        let plan = route::plan(&nodes, &tables, &mut self.memory, &rules);
        Ok(Seen { views, tables, plan })
    }

    /// Which tables there are is looked at with everything else; their entries whenever it matters what they are.
    async fn tables(&mut self, config: &Config, scope: &BatchScope) -> Result<Vec<Table>, TablesFault> {
        let Context { cloud, place, .. } = &self.context;
        self.sight.forget();
        if *scope == BatchScope::All || self.tables.is_empty() {
            self.tables.clear();
            self.tables = observe::table_ids(cloud, place, config).await?;
        }
        let read = observe::read(cloud, &self.tables).await;
        if read.is_err() {
            self.tables.clear();
        }
        Ok(read?)
    }

    fn aborted(&self, fault: TablesFault) -> BatchResult {
        error!(%fault, "route tables cannot be looked at; no route is changed");
        self.report("SyncRouteFailed", format!("Reconciling route error: {fault}"));
        let text = format!("all routes: the route tables cannot be looked at, so no route is changed: {fault}");
        self.context.alarms.set(Self::NAME, "SyncRouteFailed", 1, text);
        let retry_after = match fault {
            TablesFault::Cloud(fault) => fault.retry_after,
            TablesFault::None { .. } | TablesFault::Several { .. } => None,
        };
        BatchResult { aborted: true, retry_after, ..BatchResult::default() }
    }

    /// How many entries may still be removed within this period.
    fn removals_left(&mut self, config: &Config) -> usize {
        // A little less than a period, so that the next periodic pass surely finds room.
        let window = config.route.period.unwrap_or(batch::RESYNC_WHILE_OUT_OF_SYNC) * 9 / 10;
        while self.removed.front().is_some_and(|at| at.elapsed() >= window) {
            self.removed.pop_front();
        }
        usize::try_from(config.route.removal_limit).unwrap_or(usize::MAX).saturating_sub(self.removed.len())
    }

    /// An event about the controller itself, as the official one writes it.
    fn report(&self, reason: &'static str, message: String) {
        self.context.cluster.events().warning(COMPONENT, &Regarding::component(COMPONENT), reason, message);
    }

    fn warn_node(&self, work: &Work<'_>, node: &str, reason: &'static str, message: String) {
        if let Some(view) = work.view(node) {
            self.context.cluster.events().warning(COMPONENT, &regarding(view), reason, message);
        }
    }

    fn report_plan(&mut self, plan: &RoutePlan, scope: &BatchScope, work: &mut Work<'_>) {
        for (node, problem) in plan.problems.iter().filter(|(node, _)| scope.contains(&ObjectKey::cluster(node))) {
            warn!(node, %problem, "not as wanted");
            self.warn_node(work, node, "CreateRouteFailed", problem.to_string());
        }
        self.pending.retain(|node, _| plan.pending.contains(node));
        let waits = self.sight.waits(self.started.elapsed());
        for node in &plan.pending {
            let since = self.pending.entry(node.clone()).or_insert_with(Instant::now);
            // What takes long is looked at less often; what is new, no later than it would have been.
            let wait = (since.elapsed() / 2).clamp(LOOK_AGAIN, LOOK_SELDOM);
            work.again(node, waits.get(node.as_str()).copied().unwrap_or(wait));
        }
        for node in &plan.doomed {
            work.again(node, CONFIRM);
        }
        for step in &plan.held_back {
            warn!(%step, "held back");
        }
        let text = format!(
            "{} route entries are due to be removed, more than route.removal_limit allows within route.period; they are \
             removed in later periods, or at once if the limit is raised",
            plan.held_back.len()
        );
        self.context.alarms.set(Self::NAME, "RouteRemovalHeldBack", plan.held_back.len(), &text);
        if !plan.held_back.is_empty() {
            self.report("RouteRemovalHeldBack", text);
        }
        self.report_kept(&plan.kept);
    }

    fn report_kept(&self, kept: &[Kept]) {
        let name = |Kept { step, .. }: &Kept| match step {
            RouteStep::Delete { item, node, .. } => format!("{} of {node}", item.destination),
            _ => step.node().to_owned(),
        };
        let names: Vec<String> = kept.iter().map(name).collect();
        let why = kept.first().map(|kept| kept.why.to_string()).unwrap_or_default();
        let text =
            format!("route entries without a node are kept ({}): {why}", named(names.iter().map(String::as_str)));
        if self.context.alarms.set(Self::NAME, "RouteOwnerMissing", kept.len(), &text) {
            warn!("{text}");
            self.report("RouteOwnerMissing", text);
        }
    }

    /// True if creations may follow.
    async fn remove(&mut self, plan: &RoutePlan, config: &Config, started: Instant, work: &mut Work<'_>) -> bool {
        let due = plan.steps.iter().filter_map(|step| match step {
            RouteStep::Delete { item, node, .. } => Some((step, item.clone(), node.as_str())),
            _ => None,
        });
        let (steps, items): (Vec<_>, Vec<RouteItem>) = due.map(|(step, item, node)| ((step, node), item)).unzip();
        let Context { cloud, fence, .. } = &self.context;
        if !items.is_empty() {
            self.sight.forget();
        }
        let fates = execute::delete(&cloud.vpc, fence, &items, config.route.batch_size).await;
        // What may have been removed counts as removed.
        self.removed.extend(fates.done.iter().chain(&fates.unknown).map(|_| started));
        for index in &fates.done {
            let (step, node) = steps[*index];
            info!(node, %step, "done");
            work.again(node, LOOK_AGAIN);
        }
        for (index, trouble) in &fates.failed {
            let (step, node) = steps[*index];
            warn!(node, %step, fault = %trouble.message, "failed; it is tried again");
            self.warn_node(work, node, "DeleteRouteFailed", format!("Could not {step}: {}", trouble.message));
            work.failed(node, None);
        }
        postpone(&fates, work, |index| steps[index].1);
        fates.unknown.is_empty()
    }

    async fn create(&mut self, plan: &RoutePlan, tables: &[Table], config: &Config, work: &mut Work<'_>) {
        let due = plan.steps.iter().filter_map(|step| match step {
            RouteStep::Create { item, node } => Some((node.as_str(), item.clone())),
            _ => None,
        });
        let (owners, items): (Vec<&str>, Vec<RouteItem>) = due.unzip();
        let Context { cluster, cloud, fence, .. } = &self.context;
        let fates = execute::create(&cloud.vpc, fence, &items, config.route.batch_size).await;
        if !fates.failed.is_empty() || !fates.unknown.is_empty() {
            self.sight.forget();
        }
        for index in &fates.done {
            let (node, item) = (owners[*index], &items[*index]);
            self.sight.made(item, node, self.started.elapsed());
            self.unseen.remove(&(item.table_id.clone(), item.destination));
            info!(node, cidr = %item.destination, instance = %item.instance_id, table = %item.table_id, "created route");
            if let Some(view) = work.view(node) {
                let RouteItem { table_id, destination, .. } = item;
                let message = format!("Created route for {table_id} with {node} -> {destination} successfully");
                cluster.events().normal(COMPONENT, &regarding(view), "CreatedRoute", message);
            }
            work.again(node, LOOK_AGAIN);
        }
        for (index, trouble) in &fates.failed {
            self.not_created(owners[*index], &items[*index], trouble, tables, work);
        }
        postpone(&fates, work, |index| owners[index]);
    }

    fn not_created(
        &mut self,
        node: &str,
        item: &RouteItem,
        trouble: &ItemTrouble,
        tables: &[Table],
        work: &mut Work<'_>,
    ) {
        work.failed(node, None);
        let RouteItem { table_id, destination, .. } = item;
        warn!(node, cidr = %destination, table = %table_id, fault = %trouble.message, "the route was not created; it is tried again");
        let explained = match trouble.kind {
            // Passes by itself; the next pass sees what is there.
            FaultKind::Busy | FaultKind::Transient | FaultKind::Throttled | FaultKind::Ambiguous => return,
            // A list that is a little old explains the first time.
            FaultKind::Exists if self.unseen.insert((table_id.clone(), *destination)) => return,
            FaultKind::Exists => format!(
                "the table has an entry for {destination} that does not lead to an instance: {}",
                trouble.message
            ),
            _ => trouble.message.clone(),
        };
        if trouble.kind == FaultKind::Quota
            && let Some(table) = tables.iter().find(|table| table.id == *table_id)
        {
            self.memory.table_is_full(table, self.started.elapsed());
        }
        if trouble.kind != FaultKind::Exists {
            work.told.insert(node.to_owned(), false);
        }
        let message = format!("Error creating route entry in {table_id}: {explained}");
        self.warn_node(work, node, "CreateRouteFailed", message);
    }

    async fn tell(&mut self, plan: &RoutePlan, work: &mut Work<'_>) {
        let mut due = std::mem::take(&mut work.told);
        for step in &plan.steps {
            if let RouteStep::Tell { node, routed } = step {
                due.entry(node.clone()).or_insert(*routed);
            }
        }
        let due: Vec<_> =
            due.into_iter().filter_map(|(node, routed)| Some((work.view(&node)?.clone(), routed))).collect();
        let ended = for_each_limited(CONCURRENCY, due, |(view, routed)| self.tell_one(view, routed)).await;
        for (node, told) in ended {
            match told {
                // What we wrote ourselves is no change that has to be looked at.
                Told::Now(condition) => {
                    if let Some(seen) = self.seen.get_mut(&node) {
                        seen.condition = condition;
                    }
                }
                Told::Gone => {}
                Told::Not => work.failed(&node, None),
            }
        }
    }

    async fn tell_one(&self, view: Arc<NodeView>, routed: bool) -> (String, Told) {
        let Context { cluster, fence, .. } = &self.context;
        let change = |fresh: &NodeView| condition::tell(fresh.network_unavailable.as_ref(), routed).map(body);
        // Much may have been written to the node since the pass began.
        let view = write::watched_since(&self.nodes, &view).unwrap_or(view);
        match write::patch_fresh(cluster, fence, &view, Target::Conditions, change).await {
            Ok(Some(now)) => (now.name, Told::Now(now.network_unavailable)),
            Ok(None) | Err(WriteFault::Gone) => (view.name.clone(), Told::Gone),
            Err(fault) => {
                warn!(node = %view.name, %fault, "the condition NetworkUnavailable could not be written; it is tried again");
                (view.name.clone(), Told::Not)
            }
        }
    }
}

/// What came of telling a node about its routes.
enum Told {
    /// It has this condition now.
    Now(Option<Condition>),
    /// There is nobody to tell.
    Gone,
    /// It has to be tried again.
    Not,
}

/// Items whose fate is unknown are looked at again, together.
fn postpone<'a>(fates: &Fates, work: &mut Work<'_>, owner: impl Fn(usize) -> &'a str) {
    let nodes: BTreeSet<&str> = fates.unknown.iter().map(|index| owner(*index)).collect();
    for node in nodes {
        work.failed(node, fates.wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
