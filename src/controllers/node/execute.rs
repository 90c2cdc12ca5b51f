//! Executes node plans, write by write.

use std::sync::Arc;

use serde_json::{Value, json};
use thiserror::Error;
use tracing::{info, warn};

use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::cluster::{Store, WriteFault};
use crate::controllers::node_patch::{self, NodePatcher, PatchTarget};
use crate::controllers::reporter::{Reporter, trouble, trouble_of, trouble_of_write};
use crate::fence::WRITE_TIME;
use crate::plan::inputs::NodeView;
use crate::plan::node::{
    NodeChange, NodeClass, NodePlan, NodePolicy, NodeStep, NodeWrite, OtherInstance, UNINITIALIZED, WriteTarget,
    classify,
};
use crate::plan::route::condition;
use crate::telemetry::activity;
use crate::telemetry::alarms::{ObjectTrouble, SyncState};

/// Why a write failed.
#[derive(Debug, Error)]
enum NodeWriteError {
    /// At the API server.
    #[error(transparent)]
    Cluster(#[from] WriteFault),
    /// In the cloud.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// The node is no longer what it was planned as.
    #[error(transparent)]
    OtherInstance(#[from] OtherInstance),
}

impl NodeWriteError {
    /// What is then wrong with the node.
    fn trouble(&self) -> Box<ObjectTrouble> {
        Box::new(match self {
            Self::Cluster(fault) => trouble_of_write("SyncNodeFailed", fault, "nodes"),
            Self::Cloud(fault) => trouble_of("SyncNodeFailed", fault),
            Self::OtherInstance(_) => {
                ObjectTrouble { state: SyncState::Retrying, ..trouble("SyncNodeFailed", self.to_string()) }
            }
        })
    }

    fn ends_the_plan(&self) -> bool {
        match self {
            Self::Cluster(WriteFault::NotLeading | WriteFault::Gone) => true,
            Self::Cloud(fault) => fault.kind == FaultKind::NotLeading,
            Self::Cluster(_) | Self::OtherInstance(_) => false,
        }
    }
}

/// Where plans are executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeExecutor<'a> {
    pub patcher: NodePatcher<'a>,
    pub nodes: &'a Store<NodeView>,
    pub cloud: &'a CloudClient,
    pub reporter: &'a Reporter,
    pub policy: NodePolicy,
}

impl NodeExecutor<'_> {
    /// Executes a plan; gives whether nothing is left to do, otherwise what is wrong, and the node as it then is. A write that fails
    /// withholds only the end of initialisation.
    pub(super) async fn apply(
        &self,
        view: &Arc<NodeView>,
        plan: &NodePlan,
    ) -> (Result<(), Box<ObjectTrouble>>, Arc<NodeView>) {
        let mut complete = Ok(());
        // As the last answer showed it: no write has to read what the one before has just written.
        let mut now = view.clone();
        for write in plan.writes() {
            let Some(write) = (if complete.is_ok() { Some(write) } else { write.without_the_end() }) else { continue };
            let what = format!("{}: {write}", view.name);
            match activity::step(&what, self.write(&now, write)).await {
                Ok(answered) => {
                    now = answered.filter(|answered| answered.uid == view.uid).map_or(now, Arc::new);
                    write.steps.iter().for_each(|step| self.report_done(view, step));
                }
                Err(NodeWriteError::Cluster(WriteFault::Gone)) => return (Ok(()), now),
                Err(error) if error.ends_the_plan() => return (Err(error.trouble()), now),
                Err(error) => complete = complete.and(self.report_failed(view, write, &error)),
            }
        }
        (complete, now)
    }

    /// Gives the node as it is then, if an answer said so.
    async fn write(&self, known: &NodeView, write: NodeWrite<'_>) -> Result<Option<NodeView>, NodeWriteError> {
        let target = match write.target {
            WriteTarget::Interface => return self.disable_checks(write.steps).await.map(|()| None),
            WriteTarget::Status if write.depends() => PatchTarget::Conditions,
            WriteTarget::Status => PatchTarget::Status,
            WriteTarget::Object => PatchTarget::Node,
        };
        if !write.depends() {
            let Some(body) = body(&write.change(known)?, known, target) else { return Ok(None) };
            return Ok(self.patcher.patch(&known.name, target, &body).await?);
        }
        // Other programs answer to what was written just now: a condition becomes a taint while the cloud is called.
        let watched = node_patch::watched_since(self.nodes, known);
        let known = watched.as_deref().unwrap_or(known);
        let change = |fresh: &NodeView| write.change(fresh).ok().and_then(|change| body(&change, fresh, target));
        let answered = self.patcher.patch_fresh(known, target, change).await?;
        if let Some(now) = &answered {
            // Not written for another instance: the next reconcile describes that one.
            write.change(now)?;
        }
        Ok(answered)
    }

    async fn disable_checks(&self, steps: &[NodeStep]) -> Result<(), NodeWriteError> {
        for step in steps {
            if let NodeStep::DisableCheck { eni, region } = step {
                let permit = self.patcher.fence.permit(WRITE_TIME).map_err(WriteFault::from)?;
                self.cloud.ecs.disable_source_dest_check(&permit, region, eni).await?;
            }
        }
        Ok(())
    }

    fn report_done(&self, view: &NodeView, step: &NodeStep) {
        info!(node = %view.name, %step, "done");
        if *step == NodeStep::RemoveTaint(UNINITIALIZED) {
            let message = match classify(view) {
                NodeClass::Excluded(why) => format!("Removed the taint uninitialized; {why}"),
                NodeClass::Ecs(_) | NodeClass::Unidentified => "Initialize node successfully".to_owned(),
            };
            self.reporter.normal(view, "InitializedNode", message);
        }
    }

    /// Fails unless the node can do without. Without routes, pods have addresses of the interfaces themselves, so that the check
    /// drops none of their packets.
    fn report_failed(
        &self,
        view: &NodeView,
        write: NodeWrite<'_>,
        error: &NodeWriteError,
    ) -> Result<(), Box<ObjectTrouble>> {
        let denied = matches!(error, NodeWriteError::Cloud(fault) if fault.kind == FaultKind::Denied);
        let tolerated = denied && write.target == WriteTarget::Interface && !self.policy.routes;
        let next = if tolerated { "the node is initialised nevertheless" } else { "the controller retries it" };
        warn!(code = "ACCM0102", node = %view.name, step = %write, fault = %error, next, "failed");
        if tolerated {
            self.reporter.warning(view, "SyncNodeFailed", format!("Could not {write}; {next}: {error}"));
            return Ok(());
        }
        let mut trouble = error.trouble();
        trouble.message = format!("Could not {write}: {error}");
        Err(trouble)
    }
}

/// The patch that makes a change of a node; `None` if there is nothing to change.
fn body(change: &NodeChange<'_>, fresh: &NodeView, target: PatchTarget) -> Option<Value> {
    let NodeChange { addresses, awaits_route, labels, provider_id, taints } = change;
    let mut body = json!({});
    if *awaits_route {
        body = node_patch::network_unavailable(condition::AWAITED);
    }
    if let Some(addresses) = addresses {
        let mut list: Vec<_> = addresses.iter().map(|a| json!({ "type": a.kind, "address": a.address })).collect();
        // Addresses of one type cannot be told apart where lists are merged. Where there is nothing to replace, old API
        // servers would take the directive for an address.
        if matches!(target, PatchTarget::Conditions) && !fresh.addresses.is_empty() {
            list.push(json!({ "$patch": "replace" }));
        }
        body["status"]["addresses"] = json!(list);
    }
    if let Some(labels) = labels {
        body["metadata"]["labels"] = json!(labels);
    }
    if let Some(id) = provider_id {
        body["spec"]["providerID"] = json!(id);
    }
    if let Some(taints) = taints {
        body["spec"]["taints"] = json!(taints);
    }
    (body != json!({})).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::{NodeAddress, Taint};

    #[test]
    fn taints_are_written_back_as_they_were() {
        let taint = |value: &str, added: Option<&str>| Taint {
            key: "k".into(),
            value: value.into(),
            effect: "NoExecute".into(),
            added: added.map(|time| time.parse().unwrap()),
        };
        let whole = json!({ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" });
        assert_eq!(json!(taint("v", Some("2026-01-02T03:04:05Z"))), whole);
        assert_eq!(json!(taint("", None)), json!({ "key": "k", "effect": "NoExecute" }));
    }

    #[test]
    fn all_of_a_change_is_in_one_patch() {
        let internal = |ip: &str| NodeAddress { kind: "InternalIP".into(), address: ip.into() };
        let (addresses, labels) = ([internal("10.0.0.1")], [("zone".to_owned(), "a".to_owned())].into());
        let status = NodeChange { addresses: Some(&addresses), awaits_route: true, ..NodeChange::default() };
        let (bare, known) =
            (NodeView::default(), NodeView { addresses: vec![internal("10.9.9.9")], ..NodeView::default() });
        let list = |fresh, target| body(&status, fresh, target).unwrap()["status"]["addresses"].clone();
        let address = json!({ "type": "InternalIP", "address": "10.0.0.1" });
        assert_eq!(list(&known, PatchTarget::Conditions), json!([address, { "$patch": "replace" }]));
        assert_eq!(list(&bare, PatchTarget::Conditions), json!([address]));
        assert_eq!(list(&known, PatchTarget::Status), json!([address]), "a merge patch knows no directives");
        assert_eq!(
            body(&status, &bare, PatchTarget::Conditions).unwrap()["status"]["conditions"][0]["type"],
            "NetworkUnavailable"
        );

        let object = NodeChange {
            labels: Some(&labels),
            provider_id: Some("cn-a.i-1"),
            taints: Some(Vec::new()),
            ..NodeChange::default()
        };
        let whole = json!({
            "metadata": { "labels": { "zone": "a" } },
            "spec": { "providerID": "cn-a.i-1", "taints": [] },
        });
        assert_eq!(body(&object, &known, PatchTarget::Node), Some(whole));
        assert_eq!(body(&NodeChange::default(), &known, PatchTarget::Node), None);
    }
}
