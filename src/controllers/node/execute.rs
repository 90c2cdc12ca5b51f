//! Carries out node plans, write by write.

use std::sync::Arc;

use serde_json::{Value, json};
use thiserror::Error;
use tracing::{info, warn};

use super::write::{self, Target, regarding};
use super::{COMPONENT, LONGEST_CLOUD_WRITE};
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::cluster::{Cluster, Store, WriteFault};
use crate::fence::{Fence, NotLeading};
use crate::plan::inputs::{NodeView, Taint};
use crate::plan::node::write::{Change, OtherInstance, Part, Write};
use crate::plan::node::{NodePlan, NodeStep, Policy, UNINITIALIZED};

/// Why a write failed.
#[derive(Debug, Error)]
enum Trouble {
    /// At the API server.
    #[error(transparent)]
    Cluster(#[from] WriteFault),
    /// In the cloud.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// The node is no longer what it was planned as.
    #[error(transparent)]
    Other(#[from] OtherInstance),
    /// The lead is lost.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl Trouble {
    fn ends_the_plan(&self) -> bool {
        match self {
            Self::NotLeading(_) | Self::Cluster(WriteFault::NotLeading | WriteFault::Gone) => true,
            Self::Cloud(fault) => fault.kind == FaultKind::NotLeading,
            Self::Cluster(_) | Self::Other(_) => false,
        }
    }

    fn is_denied(&self) -> bool {
        matches!(self, Self::Cloud(fault) if fault.kind == FaultKind::Denied)
    }
}

/// Where plans are carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executor<'a> {
    pub cluster: &'a Cluster,
    pub nodes: &'a Store<NodeView>,
    pub cloud: &'a CloudClient,
    pub fence: &'a Fence,
    pub policy: Policy,
}

impl Executor<'_> {
    /// Carries out a plan; true if nothing is left to do, and the node as it then is. A write that fails holds back only the
    /// end of initialisation.
    pub(super) async fn apply(&self, view: &Arc<NodeView>, plan: &NodePlan) -> (bool, Arc<NodeView>) {
        let mut whole = true;
        // As the last answer showed it: no write has to read what the one before has just written.
        let mut now = view.clone();
        for write in plan.writes() {
            let Some(write) = (if whole { Some(write) } else { write.without_the_end() }) else { continue };
            match self.write(&now, write).await {
                Ok(answered) => {
                    now = answered.filter(|answered| answered.uid == view.uid).map_or(now, Arc::new);
                    write.steps.iter().for_each(|step| self.done(view, step));
                }
                Err(Trouble::Cluster(WriteFault::Gone)) => return (true, now),
                Err(trouble) if trouble.ends_the_plan() => return (false, now),
                Err(trouble) => {
                    let tolerated = write.part == Part::Interface && self.tolerates(&trouble);
                    whole &= tolerated;
                    self.failed(view, write, &trouble, tolerated);
                }
            }
        }
        (whole, now)
    }

    /// Without routes, pods have addresses of the interfaces themselves, and the check harms nobody.
    fn tolerates(&self, trouble: &Trouble) -> bool {
        !self.policy.routes && trouble.is_denied()
    }

    /// Gives the node as it is then, if an answer said so.
    async fn write(&self, known: &NodeView, write: Write<'_>) -> Result<Option<NodeView>, Trouble> {
        let Self { cluster, nodes, fence, .. } = *self;
        let target = match write.part {
            Part::Interface => return self.disable_checks(write.steps).await.map(|()| None),
            Part::Status if write.depends() => Target::Conditions,
            Part::Status => Target::Status,
            Part::Object => Target::Node,
        };
        if !write.depends() {
            let Some(body) = body(&write.change(known)?, known, target) else { return Ok(None) };
            return Ok(write::patch(cluster, fence, &known.name, target, &body).await?);
        }
        // Others answer to what was written just now: a condition becomes a taint while the cloud is called.
        let watched = write::watched_since(nodes, known);
        let known = watched.as_deref().unwrap_or(known);
        let change = |fresh: &NodeView| write.change(fresh).ok().and_then(|change| body(&change, fresh, target));
        let answered = write::patch_fresh(cluster, fence, known, target, change).await?;
        if let Some(now) = &answered {
            // Not written for another instance: the next pass describes that one.
            write.change(now)?;
        }
        Ok(answered)
    }

    async fn disable_checks(&self, steps: &[NodeStep]) -> Result<(), Trouble> {
        for step in steps {
            if let NodeStep::DisableCheck { eni, region } = step {
                let permit = self.fence.permit(LONGEST_CLOUD_WRITE)?;
                self.cloud.ecs.disable_source_dest_check(&permit, region, eni).await?;
            }
        }
        Ok(())
    }

    fn done(&self, view: &NodeView, step: &NodeStep) {
        info!(node = %view.name, %step, "done");
        if *step == NodeStep::RemoveTaint(UNINITIALIZED) {
            let message = "Initialize node successfully".to_owned();
            self.cluster.events().normal(COMPONENT, &regarding(view), "InitializedNode", message);
        }
    }

    fn failed(&self, view: &NodeView, step: Write<'_>, fault: &Trouble, tolerated: bool) {
        let next = if tolerated { "the node is initialised nevertheless" } else { "it is tried again" };
        warn!(node = %view.name, %step, %fault, next, "failed");
        let message = format!("Could not {step}; {next}: {fault}");
        self.cluster.events().warning(COMPONENT, &regarding(view), "SyncNodeFailed", message);
    }
}

/// The patch that makes a change of a node; `None` if there is nothing to change.
fn body(change: &Change<'_>, fresh: &NodeView, target: Target) -> Option<Value> {
    let Change { addresses, awaits_route, labels, provider_id, taints } = change;
    let mut body = json!({});
    if *awaits_route {
        body = write::network_unavailable(true, "NoRouteCreated", "Node created without a route");
    }
    if let Some(addresses) = addresses {
        let mut list: Vec<_> = addresses.iter().map(|a| json!({ "type": a.kind, "address": a.address })).collect();
        // Addresses of one type cannot be told apart where lists are merged. Where there is nothing to replace, old API
        // servers would take the directive for an address.
        if matches!(target, Target::Conditions) && !fresh.addresses.is_empty() {
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
        body["spec"]["taints"] = taints.iter().map(taint_json).collect();
    }
    (body != json!({})).then_some(body)
}

fn taint_json(taint: &Taint) -> Value {
    let mut body = json!({ "key": taint.key, "effect": taint.effect });
    if !taint.value.is_empty() {
        body["value"] = json!(taint.value);
    }
    if let Some(added) = taint.added {
        body["timeAdded"] = json!(added.to_string());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::NodeAddress;

    #[test]
    fn taints_are_written_back_as_they_were() {
        let taint = |value: &str, added: Option<&str>| Taint {
            key: "k".into(),
            value: value.into(),
            effect: "NoExecute".into(),
            added: added.map(|time| time.parse().unwrap()),
        };
        let whole = json!({ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" });
        assert_eq!(taint_json(&taint("v", Some("2026-01-02T03:04:05Z"))), whole);
        assert_eq!(taint_json(&taint("", None)), json!({ "key": "k", "effect": "NoExecute" }));
    }

    #[test]
    fn all_of_a_change_is_in_one_patch() {
        let internal = |ip: &str| NodeAddress { kind: "InternalIP".into(), address: ip.into() };
        let (addresses, labels) = ([internal("10.0.0.1")], [("zone".to_owned(), "a".to_owned())].into());
        let status = Change { addresses: Some(&addresses), awaits_route: true, ..Change::default() };
        let (bare, known) =
            (NodeView::default(), NodeView { addresses: vec![internal("10.9.9.9")], ..NodeView::default() });
        let list = |fresh, target| body(&status, fresh, target).unwrap()["status"]["addresses"].clone();
        let address = json!({ "type": "InternalIP", "address": "10.0.0.1" });
        assert_eq!(list(&known, Target::Conditions), json!([address, { "$patch": "replace" }]));
        assert_eq!(list(&bare, Target::Conditions), json!([address]));
        assert_eq!(list(&known, Target::Status), json!([address]), "a merge patch knows no directives");
        assert_eq!(
            body(&status, &bare, Target::Conditions).unwrap()["status"]["conditions"][0]["type"],
            "NetworkUnavailable"
        );

        let object = Change {
            labels: Some(&labels),
            provider_id: Some("cn-a.i-1"),
            taints: Some(Vec::new()),
            ..Change::default()
        };
        let whole = json!({
            "metadata": { "labels": { "zone": "a" } },
            "spec": { "providerID": "cn-a.i-1", "taints": [] },
        });
        assert_eq!(body(&object, &known, Target::Node), Some(whole));
        assert_eq!(body(&Change::default(), &known, Target::Node), None);
    }
}
