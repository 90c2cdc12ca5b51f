//! Removes nodes whose instance is released, and says which removals are withheld.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::observe::NodeObservations;
use crate::clock;
use crate::cluster::WriteFault;
use crate::config::Config;
use crate::controllers::Context;
use crate::controllers::batch::BatchResult;
use crate::controllers::node_patch::NodePatcher;
use crate::controllers::reporter::Reporter;
use crate::plan::PlanLine;
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::plan::location::CloudLocation;
use crate::plan::node::removal::{Absence, MissingInstance, Moment, RemovalDecision, RemovalLedger, RemovalRules};
use crate::plan::node::{NodeClass, classify, is_ready};
use crate::plan::provider_id::ProviderId;
use crate::telemetry::alarms::named;

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

/// What becomes of a node whose instance is missing, for people; `None` if it stays.
pub(super) fn line(missing: &MissingInstance, location: &CloudLocation, config: &Config) -> Option<PlanLine> {
    let now = Moment { wall: clock::now(), elapsed: Duration::ZERO };
    let (destroys, text) = match RemovalLedger::default().decide(missing, now, &rules(config, location)) {
        RemovalDecision::Keep => return None,
        RemovalDecision::Withheld { reason, .. } => (false, format!("removal is withheld: {reason}")),
        RemovalDecision::Remove | RemovalDecision::Wait(_) => {
            (true, format!("remove node, if instance {} is still gone at a second look", missing.id))
        }
    };
    Some(PlanLine { controller: super::NAME, object: missing.node.name.clone(), text, destroys })
}

/// What was last seen of nodes' instances, by the name of the node.
pub(super) struct NodeRemover {
    ledger: RemovalLedger,
    started: Instant,
    /// Nodes whose removal is withheld, and why.
    withheld: BTreeMap<String, String>,
    /// Nodes whose instance the cloud does not show, in answers that prove nothing, and why they do not.
    unproven: BTreeMap<String, String>,
    /// Nodes whose instance the cloud shows, and whether in another VPC.
    elsewhere: BTreeMap<String, bool>,
}

impl NodeRemover {
    pub(super) fn new() -> Self {
        let (withheld, unproven, elsewhere) = Default::default();
        Self { ledger: RemovalLedger::default(), started: Instant::now(), withheld, unproven, elsewhere }
    }

    /// Forgets nodes that the API server no longer shows.
    pub(super) fn retain(&mut self, all: &[Arc<NodeView>], names: &BTreeSet<&str>) {
        let uids: BTreeSet<&str> = all.iter().map(|view| view.uid.as_str()).collect();
        self.ledger.retain(|uid| uids.contains(uid));
        self.withheld.retain(|name, _| names.contains(name.as_str()));
        self.unproven.retain(|name, _| names.contains(name.as_str()));
        self.elsewhere.retain(|name, _| names.contains(name.as_str()));
    }

    pub(super) async fn remove(
        &mut self,
        context: &Context,
        reporter: &Reporter,
        observed: &NodeObservations,
        result: &mut BatchResult,
    ) {
        for (view, here) in &observed.present {
            self.ledger.present(&view.uid, *here);
            self.withheld.remove(&view.name);
            self.unproven.remove(&view.name);
            self.elsewhere.insert(view.name.clone(), !here);
        }
        let rules = rules(&context.config.borrow(), &context.place);
        for missing in &observed.missing {
            let MissingInstance { node, id, absence } = missing;
            self.elsewhere.remove(&node.name);
            self.withheld.remove(&node.name);
            self.unproven.remove(&node.name);
            if let Absence::Unproven(why) = absence {
                self.unproven.insert(node.name.clone(), why.clone());
            }
            let now = Moment { wall: clock::now(), elapsed: self.started.elapsed() };
            let key = ObjectKey::cluster(&node.name);
            match self.ledger.decide(missing, now, &rules) {
                RemovalDecision::Keep => {}
                RemovalDecision::Wait(delay) => {
                    result.requeue.insert(key, delay);
                }
                RemovalDecision::Withheld { reason, again } => {
                    warn!(node = %node.name, instance = %id, %reason, "the removal of the node is withheld");
                    let message = format!("The cloud does not show instance {id}, but the node is kept: {reason}");
                    reporter.warning(node, "NodeRemovalHeldBack", message);
                    self.withheld.insert(node.name.clone(), reason.to_string());
                    result.requeue.insert(key, again);
                }
                RemovalDecision::Remove => {
                    if !remove_one(context, reporter, missing).await {
                        result.failed.insert(key, None);
                    }
                }
            }
        }
        self.raise_alarms(reporter, &context.place.vpc_id);
    }

    /// Shows what is withheld, and why the cloud's answers are not to be trusted even where nothing is due yet.
    fn raise_alarms(&self, reporter: &Reporter, vpc_id: &str) {
        let first = |all: &BTreeMap<String, String>| all.values().next().cloned().unwrap_or_default();
        let text = format!("{}: {}", named(self.withheld.keys().map(String::as_str)), first(&self.withheld));
        reporter.silent_alarm("NodeRemovalHeldBack", self.withheld.len(), &text);

        let names = named(self.unproven.keys().map(String::as_str));
        let why = first(&self.unproven);
        let text = format!("the cloud does not show the instances of {names}, and no node is removed for that: {why}");
        reporter.alarm("InstancesNotShown", self.unproven.len(), text);

        let all_elsewhere = self.elsewhere.values().all(|elsewhere| *elsewhere);
        let names = named(self.elsewhere.keys().map(String::as_str));
        let text = format!(
            "the instances of all nodes ({names}) are in another VPC than cloud.vpc_id says, which is {vpc_id}; no node is \
             removed until that is corrected"
        );
        reporter.alarm("InstancesElsewhere", if all_elsewhere { self.elsewhere.len() } else { 0 }, text);
    }
}

/// True if the node is gone, or proves to be alive.
async fn remove_one(context: &Context, reporter: &Reporter, missing: &MissingInstance) -> bool {
    let MissingInstance { node, id, absence } = missing;
    let still = |fresh: &NodeView| {
        let same = ProviderId::parse(&fresh.provider_id).as_ref() == Ok(id);
        same && !is_ready(fresh) && matches!(classify(fresh), NodeClass::Ecs(_))
    };
    let patcher = NodePatcher { cluster: &context.cluster, fence: &context.fence };
    match patcher.delete(node, still).await {
        Ok(true) => {
            info!(node = %node.name, instance = %id, ?absence, "removed: the instance is released");
            let message = format!("Removed node {}: instance {id} does not exist any more", node.name);
            reporter.normal(node, "DeletedNode", message);
            true
        }
        Ok(false) | Err(WriteFault::Gone) => true,
        Err(fault) => {
            warn!(node = %node.name, instance = %id, %fault, "the node could not be removed; the controller retries it");
            reporter.warning(node, "DeleteNodeFailed", format!("Error deleting node: {fault}"));
            false
        }
    }
}
