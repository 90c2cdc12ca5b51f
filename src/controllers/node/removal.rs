//! Removes nodes whose instance is released, and says which removals are withheld.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tracing::{info, warn};

use super::observe::NodeObservations;
use crate::clock;
use crate::cluster::{Cluster, ObjectPath, Store, WriteFault};
use crate::config::Config;
use crate::controllers::Context;
use crate::controllers::batch::{self, BatchResult};
use crate::controllers::node_patch::NodePatcher;
use crate::controllers::reporter::{Reporter, trouble, trouble_of_write};
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::plan::location::CloudLocation;
use crate::plan::node::removal::{
    Absence, MissingInstance, Moment, RemovalDecision, RemovalLedger, RemovalRules, silent_for,
};
use crate::plan::node::{NodeClass, classify};
use crate::plan::provider_id::ProviderId;
use crate::plan::{LineKind, PlanLine};
use crate::telemetry::alarms::{ObjectTrouble, named};

/// Reason of the events about nodes that stay without their instance.
const GONE: &str = "InstanceGone";

const NODES: ObjectPath<'_> = ObjectPath { api: "/api/v1", namespace: "", plural: "nodes" };
/// Each kubelet renews the lease of its node's name.
const KUBELET_LEASES: ObjectPath<'_> =
    ObjectPath { api: "/apis/coordination.k8s.io/v1", namespace: "kube-node-lease", plural: "leases" };

fn rules(config: &Config, location: &CloudLocation) -> RemovalRules {
    RemovalRules {
        enabled: config.node.remove_released,
        region: location.region.clone(),
        interval: config.node.removal_interval,
        grace: config.node.removal_grace,
        limit: config.node.removal_limit,
        window: config.node.removal_window,
    }
}

/// What becomes of a node whose instance is missing, in words, if a second look shows the same; `None` if it stays.
pub(super) fn line(missing: &MissingInstance, location: &CloudLocation, config: &Config) -> Option<PlanLine> {
    let (rules, mut ledger) = (rules(config, location), RemovalLedger::default());
    let mut look = |elapsed| ledger.decide(missing, Moment { wall: clock::now(), elapsed }, &rules);
    look(Duration::ZERO);
    let (kind, text) = match look(rules.interval.max(Duration::from_secs(1))) {
        RemovalDecision::Keep => return None,
        RemovalDecision::Stay(why) if missing.serves_no_longer() => (LineKind::Problem, missing.told(why)),
        RemovalDecision::Stay(why) => (LineKind::Withheld, missing.told(why)),
        RemovalDecision::Withheld { reason, .. } => (LineKind::Withheld, format!("remove node: {reason}")),
        RemovalDecision::Remove | RemovalDecision::Wait(_) => {
            (LineKind::Step, format!("remove node, if instance {} is still gone at a second look", missing.id))
        }
    };
    let (controller, object) = (super::NAME, missing.node.name.clone());
    Some(PlanLine { controller, object, text, destroys: kind == LineKind::Step, kind })
}

/// What was last seen of the instance of a node.
#[derive(Debug, Default)]
struct LastSeen {
    /// Whether it is in another VPC; `None` if the cloud does not show it.
    elsewhere: Option<bool>,
    /// Why the answer that lacks it proves nothing.
    unproven: Option<String>,
    /// Why the removal of the node is withheld.
    withheld: Option<String>,
    /// What is said of a node that stays without it.
    stays: Option<String>,
}

/// Decides about nodes whose instance the cloud does not show.
pub(super) struct NodeRemover {
    ledger: RemovalLedger,
    started: Instant,
    /// By the name of the node.
    seen: BTreeMap<String, LastSeen>,
}

impl NodeRemover {
    pub(super) fn new() -> Self {
        Self { ledger: RemovalLedger::default(), started: Instant::now(), seen: BTreeMap::new() }
    }

    /// Forgets nodes that the API server no longer shows, or that this program no longer manages.
    pub(super) fn retain(&mut self, all: &[Arc<NodeView>]) {
        let managed = || all.iter().filter(|view| !matches!(classify(view), NodeClass::Excluded(_)));
        let uids: BTreeSet<&str> = managed().map(|view| view.uid.as_str()).collect();
        let names: BTreeSet<&str> = managed().map(|view| view.name.as_str()).collect();
        self.ledger.retain(|uid| uids.contains(uid));
        self.seen.retain(|name, _| names.contains(name.as_str()));
    }

    /// Forgets what this term found out: from now on, another replica may lead, or no node controller may run.
    pub(super) fn forget_findings(&mut self, nodes: &Store<NodeView>) {
        self.ledger.forget_missing();
        self.seen.clear();
        for view in nodes.all().iter().filter(|view| view.is_replaced) {
            nodes.set_replaced(&ObjectKey::cluster(&view.name), false);
        }
    }

    /// Whether an alarm speaks of this node.
    pub(super) fn names(&self, node: &str) -> bool {
        self.seen.get(node).is_some_and(|LastSeen { unproven, withheld, stays, .. }| {
            unproven.is_some() || withheld.is_some() || stays.is_some()
        })
    }

    /// Takes note of nodes whose instance exists, and whether in the cluster's VPC.
    pub(super) fn note_present(&mut self, nodes: &Store<NodeView>, present: Vec<(Arc<NodeView>, bool)>) {
        for (view, here) in present {
            self.ledger.present(&view.uid, here);
            nodes.set_replaced(&ObjectKey::cluster(&view.name), false);
            self.seen.insert(view.name.clone(), LastSeen { elsewhere: Some(!here), ..LastSeen::default() });
        }
    }

    /// Adds to `result` the nodes that stay although their instance serves no longer.
    pub(super) async fn remove(
        &mut self,
        (context, reporter, nodes): (&Context, &Reporter, &Store<NodeView>),
        observed: &mut NodeObservations,
        result: &mut BatchResult,
    ) {
        let rules = rules(&context.config.borrow(), &context.location);
        if rules.enabled {
            read_reports(&context.cluster, &mut observed.missing).await;
        }
        for missing in &mut observed.missing {
            let now = Moment { wall: clock::now(), elapsed: self.started.elapsed() };
            missing.is_lost = self.ledger.is_lost(&missing.node, now.elapsed, &rules);
            let MissingInstance { node, id, absence, .. } = &*missing;
            let mut seen = LastSeen::default();
            if let Absence::Unproven(why) = absence {
                seen.unproven = Some(why.clone());
            }
            let key = ObjectKey::cluster(&node.name);
            match self.ledger.decide(missing, now, &rules) {
                RemovalDecision::Keep => {}
                RemovalDecision::Wait(delay) => {
                    result.requeue(key, delay);
                }
                RemovalDecision::Stay(why) => {
                    let text = missing.told(why);
                    warn!(code = "ACCM0108", node = %node.name, instance = %id, "{text}");
                    nodes.set_replaced(&key, missing.serves_no_longer());
                    if missing.serves_no_longer() {
                        result.out_of_sync(key.clone(), trouble(GONE, text.clone()));
                    } else {
                        reporter.warning(node, GONE, text.clone());
                    }
                    seen.stays = Some(text);
                    result.requeue(key, batch::RESYNC_WHILE_OUT_OF_SYNC);
                }
                RemovalDecision::Withheld { reason, again } => {
                    warn!(code = "ACCM0105", node = %node.name, instance = %id, %reason, "the removal of the node is withheld");
                    let message = format!("The cloud does not show instance {id}, but the node is kept: {reason}");
                    reporter.warning(node, "NodeRemovalHeldBack", message);
                    seen.withheld = Some(reason.to_string());
                    result.requeue(key, again);
                }
                RemovalDecision::Remove => {
                    let removed = remove_one(context, reporter, missing, rules.grace).await;
                    if !matches!(removed, Ok(true) | Err(WriteFault::Unavailable(_))) {
                        self.ledger.not_removed();
                    }
                    if let Err(fault) = removed {
                        let message = format!("Error deleting node: {fault}");
                        let trouble = trouble_of_write("DeleteNodeFailed", &fault, "nodes");
                        result.failed(key, ObjectTrouble { message, ..trouble }, (fault.as_str(), None));
                    }
                }
            }
            self.seen.insert(node.name.clone(), seen);
        }
        self.raise_alarms(reporter, &context.location.vpc_id);
    }

    /// Shows what is withheld, and why the cloud's answers are not to be trusted even where nothing is due yet.
    fn raise_alarms(&self, reporter: &Reporter, vpc_id: &str) {
        let those = |why: fn(&LastSeen) -> Option<&String>| {
            let all: Vec<_> = self.seen.iter().filter_map(|(name, seen)| Some((name.as_str(), why(seen)?))).collect();
            (all.len(), named(all.iter().map(|(name, _)| *name)), all.first().map_or("", |(_, why)| why))
        };
        let (count, names, why) = those(|seen| seen.withheld.as_ref());
        reporter.silent_alarm("NodeRemovalHeldBack", count, &format!("{names}: {why}"));

        let (count, names, why) = those(|seen| seen.stays.as_ref());
        reporter.silent_alarm(GONE, count, &format!("{names}: {why}"));

        let (count, names, why) = those(|seen| seen.unproven.as_ref());
        let text = format!("the cloud does not show the instances of {names}, and no node is removed for that: {why}");
        reporter.alarm("InstancesNotShown", count, &text);

        let shown: Vec<_> =
            self.seen.iter().filter_map(|(name, seen)| Some((name.as_str(), seen.elsewhere?))).collect();
        let all_elsewhere = shown.iter().all(|(_, elsewhere)| *elsewhere);
        let names = named(shown.iter().map(|(name, _)| name));
        let text = format!(
            "the instances of all nodes ({names}) are in another VPC than cloud.vpc_id says, which is {vpc_id}; no node is \
             removed until that is corrected"
        );
        reporter.alarm("InstancesElsewhere", if all_elsewhere { shown.len() } else { 0 }, &text);
    }
}

/// Reads what kubelets wrote last that the cluster does not call silent: it calls none so while its controller manager is down.
async fn read_reports(cluster: &Cluster, missing: &mut [MissingInstance]) {
    let mut reads = Vec::new();
    for one in missing {
        if one.may_report() {
            reads.push(async { one.report = last_report(cluster, &one.node.name).await });
        }
    }
    join_all(reads).await;
}

/// The heartbeat of a kubelet and the renewal of its lease, as they are written; a kubelet without lease has the heartbeat alone.
async fn last_report(cluster: &Cluster, node: &str) -> Option<String> {
    let object = cluster.look_up(NODES, node).await.ok()??;
    let lease = cluster.look_up(KUBELET_LEASES, node).await.ok()?.unwrap_or_default();
    let ready = object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")?;
    Some(format!("{} {}", ready["lastHeartbeatTime"], lease["spec"]["renewTime"]))
}

/// Whether it was removed: else it was gone, or proves to be alive.
async fn remove_one(
    context: &Context,
    reporter: &Reporter,
    missing: &MissingInstance,
    grace: Duration,
) -> Result<bool, WriteFault> {
    let MissingInstance { node, id, absence, report, .. } = missing;
    let patcher = NodePatcher { cluster: &context.cluster, fence: &context.fence };
    let is_mute = report.is_some() && last_report(&context.cluster, &node.name).await == *report;
    let still = |fresh: &NodeView| {
        let same = ProviderId::parse(&fresh.provider_id).as_ref() == Ok(id);
        let is_silent = is_mute || silent_for(fresh, clock::now()).is_some_and(|silent| silent >= grace);
        same && is_silent && matches!(classify(fresh), NodeClass::Ecs(_))
    };
    match patcher.delete(node, still).await {
        Ok(true) => {
            info!(node = %node.name, instance = %id, ?absence, "removed: the instance is released");
            let message = format!("Removed node {}: instance {id} does not exist any more", node.name);
            reporter.normal(node, "DeletedNode", message);
            Ok(true)
        }
        Ok(false) | Err(WriteFault::Gone) => Ok(false),
        Err(fault) => {
            warn!(code = "ACCM0104", node = %node.name, instance = %id, %fault, "the node could not be removed; the controller retries it");
            Err(fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plan::inputs::{Condition, ConditionStatus};

    #[test]
    fn what_was_found_out_in_one_term_counts_in_no_later_one() {
        let ready = Condition { status: ConditionStatus::Unknown, reason: String::new(), since: None };
        let view = NodeView { name: "a".into(), uid: "u".into(), ready: Some(ready), ..NodeView::default() };
        let (key, view, store) = (ObjectKey::cluster("a"), Arc::new(view), Store::default());
        store.reset(vec![(key.clone(), view.clone())], HashSet::new());
        store.set_replaced(&key, true);

        let id = ProviderId { region: "cn-a".into(), instance: "i-1".into() };
        let (absence, successor) = (Absence::Proven, None);
        let missing = MissingInstance { node: view, id, absence, successor, is_lost: false, report: None };
        let (region, interval) = ("cn-a".into(), Duration::from_secs(30));
        let (grace, window) = (Duration::ZERO, Duration::from_secs(600));
        let rules = RemovalRules { enabled: true, region, interval, grace, limit: 9, window };
        let mut remover = NodeRemover::new();
        let look = |remover: &mut NodeRemover, seconds| {
            let now = Moment { wall: clock::now(), elapsed: Duration::from_secs(seconds) };
            remover.ledger.decide(&missing, now, &rules)
        };
        assert!(matches!(look(&mut remover, 10), RemovalDecision::Wait(_)));
        remover.forget_findings(&store);
        assert!(!store.get(&key).unwrap().is_replaced, "no controller would clear the flag");
        let first = look(&mut remover, 100);
        assert!(matches!(first, RemovalDecision::Wait(_)), "one sighting removes nothing: {first:?}");
    }
}
