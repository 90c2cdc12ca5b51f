//! The node controller: initialises nodes, keeps their addresses and labels in sync, taints stopped instances, and removes
//! nodes whose instance is released.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use self::execute::NodeExecutor;
use self::observe::{NodeObservations, NodeObserver, policy};
use self::removal::NodeRemover;
use super::batch::{self, BatchReconciler, BatchResult, BatchScope, BatchTiming};
use super::node_patch::{self, NodePatcher};
use super::reporter::{Reporter, regarding, trouble, trouble_of};
use super::{Clients, Context, Previewed, for_each_limited};
use crate::clock;
use crate::cluster::Store;
use crate::config::Config;
use crate::plan::PlanLine;
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::plan::node::{self, CheckMemory, Exclusion, NodeClass, NodePlan, NodeProblem, NodeStep, is_uninitialized};
use crate::plan::provider_id::NotEcs;
use crate::telemetry::alarms::{ObjectTrouble, SyncState};

mod execute;
mod observe;
mod removal;

/// Its name in the configuration, in logs and in metrics.
pub const NAME: &str = "node";
/// Nodes that are written in parallel, by how many there are: with each, a call to the cloud is waited for, so that
/// thousands need more, and each takes buffers.
const LEAST_CONCURRENCY: usize = 16;
const MOST_CONCURRENCY: usize = 64;
/// How long the watch may take to show our own writes.
const WATCH_DELAY: Duration = Duration::from_secs(1);

/// Runs until `context.stop` is cancelled.
pub async fn run(context: Context) {
    let nodes = context.cluster.nodes();
    batch::run(context, nodes, |context, nodes| NodeReconciler {
        reporter: Reporter::new(&context, NAME, "node-controller", "nodes"),
        context,
        nodes,
        known: BTreeMap::new(),
        unsettled: BTreeSet::new(),
        behind: BTreeSet::new(),
        addressed: BTreeSet::new(),
        check_memory: CheckMemory::default(),
        remover: NodeRemover::new(),
    })
    .await;
}

/// What [`run`] would do now. Writes nothing.
///
/// # Errors
/// There is no list of nodes, or the first fault of the cloud, if it gave no answer about some node.
pub async fn plan(clients: &Clients, config: &Config, only: Option<&ObjectKey>) -> Result<Previewed, String> {
    let Clients { cluster, cloud, location } = clients;
    let watched = cluster.nodes();
    watched.listed().await?;
    let nodes = &watched.store.all();
    let observer = NodeObserver { cloud, location, config, nodes };
    let observed = observer.observe(|_| true, &mut CheckMemory::default()).await;
    if let Some((_, fault)) = observed.faults.into_iter().next() {
        return Err(fault.to_string());
    }
    let mut lines: Vec<PlanLine> = observed.plans.iter().flat_map(|(_, plan)| plan.lines()).collect();
    lines.extend(observed.missing.iter().filter_map(|missing| removal::line(missing, location, config)));
    lines.sort_by(|a, b| a.object.cmp(&b.object));
    let this = observed.plans.iter().find(|(view, _)| only.is_some_and(|only| *only.name == *view.name));
    let settings = this.map(|(view, plan)| node::origins(view, plan)).unwrap_or_default();
    Ok(Previewed { lines, settings, ..Previewed::default() })
}

struct NodeReconciler {
    context: Context,
    nodes: Arc<Store<NodeView>>,
    reporter: Reporter,
    /// Nodes as the last reconcile left them: neither our own writes nor heartbeats make another one.
    known: BTreeMap<Arc<str>, Arc<NodeView>>,
    /// Those of them that are reconciled again in any case.
    unsettled: BTreeSet<String>,
    /// Those of which the watch still showed something older when they were last due.
    behind: BTreeSet<String>,
    /// Initialised nodes whose addresses the last reconcile wrote.
    addressed: BTreeSet<String>,
    check_memory: CheckMemory,
    remover: NodeRemover,
}

impl BatchReconciler for NodeReconciler {
    const NAME: &'static str = NAME;

    fn timing(&self) -> BatchTiming {
        let config = self.context.config.borrow();
        BatchTiming { aggregation: config.node.aggregation, period: config.node.period }
    }

    fn is_relevant(&mut self, key: &ObjectKey) -> bool {
        let Some(view) = self.nodes.get(key) else {
            self.known.remove(&key.name);
            return self.remover.names(&key.name);
        };
        if self.is_known(&view) || self.is_overruled(&view) {
            // Shared with the store, so that it is held once.
            self.known.insert(key.name.clone(), view);
            return false;
        }
        let is_managed = match node::classify(&view) {
            NodeClass::Ecs(_) | NodeClass::Unidentified => true,
            NodeClass::Excluded(why) => {
                matches!(why, Exclusion::LingjunWorker | Exclusion::ProviderId(NotEcs::Malformed(_)))
            }
        };
        is_managed || self.remover.names(&key.name)
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
        let began = clock::now();
        let config = self.context.config.borrow().clone();
        let all = self.nodes.all();
        self.forget_missing(&all);
        let (settled, behind) = match scope {
            BatchScope::All => (BTreeSet::new(), BTreeSet::new()),
            BatchScope::Keys(_) => self.unchanged(&all, &scope),
        };
        let in_scope = |view: &NodeView| scope.contains(&ObjectKey::cluster(&view.name));
        let chosen = |view: &NodeView| in_scope(view) && !settled.contains(&view.name);
        let Context { cloud, location, .. } = &self.context;
        let observer = NodeObserver { cloud, location, config: &config, nodes: &all };
        let mut observed = observer.observe(chosen, &mut self.check_memory).await;
        self.remover.note_present(&self.nodes, std::mem::take(&mut observed.present));
        // From here on, only the plan of a node keeps this version of it: a batch can be the whole cluster.
        drop(all);

        let mut result = BatchResult::default();
        self.apply(&config, &mut observed, &mut result).await;
        let told = (&self.context, &self.reporter, &*self.nodes);
        self.remover.remove(told, &mut observed, &mut result).await;
        let exists = |name: &str| self.nodes.get(&ObjectKey::cluster(name)).is_some();
        self.reporter.report((&scope, began), &mut result, exists);
        for view in self.nodes.all().iter().filter(|view| in_scope(view) && is_unready_instance(view)) {
            // An instance that was stopped can be released later, which no watch tells.
            result.requeue(ObjectKey::cluster(&view.name), batch::RESYNC_WHILE_OUT_OF_SYNC);
        }
        self.unsettled.retain(|name| !scope.contains(&ObjectKey::cluster(name)));
        self.unsettled.extend(result.unsettled().map(|key| key.name.to_string()));
        for name in &behind {
            result.requeue(ObjectKey::cluster(name), WATCH_DELAY);
        }
        self.behind.retain(|name| !scope.contains(&ObjectKey::cluster(name)));
        self.behind.extend(behind);
        result
    }

    fn scheduled(&mut self, later: &BTreeMap<ObjectKey, Instant>) {
        self.reporter.scheduled(later, |key| self.nodes.get(key).map(|node| regarding(&node)));
    }

    fn lease_lost(&mut self) {
        self.reporter.end_alarms();
        self.remover.forget_findings(&self.nodes);
    }
}

fn is_unready_instance(view: &NodeView) -> bool {
    !node::is_ready(view) && matches!(node::classify(view), NodeClass::Ecs(_))
}

impl NodeReconciler {
    fn is_known(&self, view: &NodeView) -> bool {
        self.known.get(&*view.name).is_some_and(|known| !differs(known, view))
    }

    /// Whether another program replaced only the addresses that the controller wrote last. The controller then warns, and writes
    /// them again at the next periodic reconcile: it and a kubelet that is not external would write in turn without end.
    fn is_overruled(&mut self, view: &NodeView) -> bool {
        let known = self.known.get(&*view.name).filter(|_| self.addressed.contains(&view.name));
        let Some(known) = known.filter(|known| node_patch::is_newer(view, known)) else { return false };
        let with_its_addresses = NodeView { addresses: view.addresses.clone(), ..NodeView::clone(known) };
        if differs(&with_its_addresses, view) {
            return false;
        }
        self.addressed.remove(&view.name);
        let text = "another program replaces the addresses of the Node: its kubelet must run with --cloud-provider=external; \
                    the controller writes them again after node.period";
        warn!(code = "ACCM0102", node = %view.name, "{text}");
        self.reporter.warning(view, "SyncNodeFailed", text.to_owned());
        true
    }

    fn forget_missing(&mut self, all: &[Arc<NodeView>]) {
        let names: BTreeSet<&str> = all.iter().map(|view| view.name.as_str()).collect();
        self.known.retain(|name, _| names.contains(&**name));
        self.addressed.retain(|name| names.contains(name.as_str()));
        self.remover.retain(all);
        let new: BTreeSet<&str> =
            all.iter().filter(|view| is_uninitialized(view)).map(|view| view.uid.as_str()).collect();
        self.check_memory.retain(|uid| new.contains(uid));
    }

    /// Of these nodes, those that need no reconcile: first all that are in sync, with those of which the watch has shown
    /// only some of our own writes yet; then the latter alone. For these it is not waited twice, as nothing says that the
    /// watch is only late: an API server that was restored from a backup shows older versions from then on.
    fn unchanged(&self, all: &[Arc<NodeView>], scope: &BatchScope) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut unchanged, mut behind) = (BTreeSet::new(), BTreeSet::new());
        let settled = |view: &&Arc<NodeView>| !self.unsettled.contains(&view.name);
        for view in all.iter().filter(settled).filter(|view| scope.contains(&ObjectKey::cluster(&view.name))) {
            let known = self.known.get(&*view.name);
            let is_behind = known.is_some_and(|known| node_patch::is_newer(known, view));
            if self.is_known(view) {
                unchanged.insert(view.name.clone());
            } else if is_behind && !self.behind.contains(&view.name) {
                unchanged.insert(view.name.clone());
                behind.insert(view.name.clone());
            }
        }
        (unchanged, behind)
    }

    async fn apply(&mut self, config: &Config, observed: &mut NodeObservations, result: &mut BatchResult) {
        for (view, fault) in &observed.faults {
            warn!(code = "ACCM0102", node = %view.name, %fault, "the instance could not be looked up; the controller retries it");
            self.known.insert(view.name.as_str().into(), view.clone());
            let message = format!("The instance could not be looked up: {fault}");
            let mut trouble = ObjectTrouble { message, ..trouble_of("SyncNodeFailed", fault) };
            if !is_uninitialized(view) {
                // It has what it needs.
                trouble.state = SyncState::Retrying;
            }
            result.failed(ObjectKey::cluster(&view.name), trouble, (fault.kind.as_str(), fault.retry_after));
        }
        let Context { cluster, cloud, fence, .. } = &self.context;
        let patcher = NodePatcher { cluster, fence };
        let (nodes, reporter, policy) = (&self.nodes, &self.reporter, policy(config));
        let executor = NodeExecutor { patcher, nodes, cloud, reporter, policy };
        let plans = std::mem::take(&mut observed.plans);
        for (view, plan) in &plans {
            let writes = plan.steps.iter().any(|step| matches!(step, NodeStep::SetAddresses(_)));
            match writes && !is_uninitialized(view) {
                true => self.addressed.insert(view.name.clone()),
                false => self.addressed.remove(&view.name),
            };
        }
        let limit = (plans.len() / 16).clamp(LEAST_CONCURRENCY, MOST_CONCURRENCY);
        let apply = |(view, plan)| self.apply_one(executor, view, plan);
        for (now, in_sync) in for_each_limited(limit, plans, apply).await {
            if let Err(trouble) = in_sync {
                let failure = (trouble.kind(), None);
                result.failed(ObjectKey::cluster(&now.name), *trouble, failure);
            }
            let watched = self.nodes.get(&ObjectKey::cluster(&now.name));
            let shared = watched.filter(|watched| watched.resource_version == now.resource_version);
            self.known.insert(now.name.as_str().into(), shared.unwrap_or(now));
        }
    }

    /// The node as it is then, and whether it is in sync; if not, why.
    async fn apply_one(
        &self,
        executor: NodeExecutor<'_>,
        view: Arc<NodeView>,
        plan: NodePlan,
    ) -> (Arc<NodeView>, Result<(), Box<ObjectTrouble>>) {
        for problem in &plan.problems {
            warn!(code = "ACCM0102", node = %view.name, %problem, "out of sync");
            if !problem.blocks() {
                self.reporter.warning(&view, "SyncNodeFailed", problem.to_string());
            }
        }
        let (applied, now) = executor.apply(&view, &plan).await;
        let blocked = plan.problems.iter().find(|problem| problem.blocks());
        let trouble = |problem: &NodeProblem| {
            let trouble = trouble("SyncNodeFailed", problem.to_string());
            Box::new(ObjectTrouble { cause: problem.cause(), ..trouble })
        };
        (now, applied.and(blocked.map_or(Ok(()), |problem| Err(trouble(problem)))))
    }
}

/// Whether anything changed but the version, which every heartbeat of a kubelet raises, the condition
/// `NetworkUnavailable`, which is only written here where there is none, and otherwise is for others to change, taints of
/// others, which follow conditions, and their labels.
fn differs(before: &NodeView, now: &NodeView) -> bool {
    // With all that others change as it is now.
    let updated = NodeView {
        resource_version: now.resource_version.clone(),
        network_unavailable: now.network_unavailable.clone(),
        taints: now.taints.clone(),
        labels: now.labels.clone(),
        is_replaced: now.is_replaced,
        ..before.clone()
    };
    let ours = |view: &NodeView| [node::UNINITIALIZED, node::SHUTDOWN].map(|key| node::has_taint(view, key));
    updated != *now
        || !node::has_same_labels(before, now)
        || before.network_unavailable.is_some() != now.network_unavailable.is_some()
        || ours(before) != ours(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::{Condition, ConditionStatus, Taint};

    #[test]
    fn labels_are_a_change_only_where_they_decide_something() {
        let before = NodeView { provider_id: "cn-a.i-1".into(), ..NodeView::default() };
        let labelled = |key: &str| {
            let labels = [(key.into(), "".into())].into_iter().collect();
            differs(&before, &NodeView { labels, ..before.clone() })
        };
        assert!(!labelled("mood") && !labelled("node-role.kubernetes.io/worker"));
        for key in ["topology.kubernetes.io/zone", "node.alibabacloud.com/nodepool-id"] {
            assert!(labelled(key), "kept in sync: {key}");
        }
        assert!(labelled("service.alibabacloud.com/exclude-node"), "the node is left alone");
    }

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
