//! Carries out node plans, step by step.

use serde_json::json;
use thiserror::Error;
use tracing::{info, warn};

use super::write::{self, Target, regarding};
use super::{COMPONENT, LONGEST_CLOUD_WRITE};
use crate::alibaba::{Cloud, Fault, FaultKind};
use crate::cluster::{Cluster, WriteFault};
use crate::fence::{Fence, NotLeading};
use crate::plan::inputs::NodeView;
use crate::plan::node::{NodePlan, NodeStep, Policy, UNINITIALIZED, awaits_route, taints_after};
use crate::plan::provider_id::{NotEcs, ProviderId};

/// Why a step failed.
#[derive(Debug, Error)]
pub(super) enum StepFault {
    /// At the API server.
    #[error(transparent)]
    Cluster(#[from] WriteFault),
    /// In the cloud.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// The lead is lost.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl StepFault {
    fn ends_the_plan(&self) -> bool {
        match self {
            Self::NotLeading(_) | Self::Cluster(WriteFault::NotLeading | WriteFault::Gone) => true,
            Self::Cloud(fault) => fault.kind == FaultKind::NotLeading,
            Self::Cluster(_) => false,
        }
    }

    fn is_denied(&self) -> bool {
        matches!(self, Self::Cloud(fault) if fault.kind == FaultKind::Denied)
    }
}

/// Where steps are carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executor<'a> {
    pub cluster: &'a Cluster,
    pub cloud: &'a Cloud,
    pub fence: &'a Fence,
    pub policy: Policy,
}

impl Executor<'_> {
    /// Carries out a plan; true if nothing is left to do, and the node as it then is. A step that fails holds back only the
    /// end of initialisation.
    pub(super) async fn apply(&self, view: &NodeView, plan: &NodePlan) -> (bool, NodeView) {
        let mut whole = true;
        // As the last answer showed it: no step has to read what the one before has just written.
        let mut now = view.clone();
        for step in &plan.steps {
            if *step == NodeStep::RemoveTaint(UNINITIALIZED) && !whole {
                continue;
            }
            match self.step(&now, step).await {
                Ok(answered) => {
                    now = answered.filter(|answered| answered.uid == view.uid).unwrap_or(now);
                    self.done(view, step);
                }
                Err(StepFault::Cluster(WriteFault::Gone)) => return (true, now),
                Err(fault) if fault.ends_the_plan() => return (false, now),
                Err(fault) => {
                    let tolerated = matches!(step, NodeStep::DisableCheck { .. }) && self.tolerates(&fault);
                    whole &= tolerated;
                    self.failed(view, step, &fault, tolerated);
                }
            }
        }
        (whole, now)
    }

    /// Without routes, pods have addresses of the interfaces themselves, and the check harms nobody.
    fn tolerates(&self, fault: &StepFault) -> bool {
        !self.policy.routes && fault.is_denied()
    }

    /// Gives the node as it is then, if an answer said so.
    async fn step(&self, view: &NodeView, step: &NodeStep) -> Result<Option<NodeView>, StepFault> {
        let Self { cluster, fence, .. } = *self;
        let answered = match step {
            NodeStep::SetAddresses(addresses) => {
                let list: Vec<_> = addresses.iter().map(|a| json!({ "type": a.kind, "address": a.address })).collect();
                let body = json!({ "status": { "addresses": list } });
                write::patch(cluster, fence, &view.name, Target::Status, &body).await?
            }
            NodeStep::SetMetadata { labels, provider_id: None } => {
                let body = json!({ "metadata": { "labels": labels } });
                write::patch(cluster, fence, &view.name, Target::Node, &body).await?
            }
            // It can never be taken back, so it must not go to another node of the same name.
            NodeStep::SetMetadata { labels, provider_id: Some(id) } => {
                let change = |fresh: &NodeView| {
                    let spec = match ProviderId::parse(&fresh.provider_id) {
                        Err(NotEcs::Empty) => json!({ "providerID": id }),
                        Ok(same) if same.to_string() == *id => json!({}),
                        // Somebody has said since which instance it is; the next pass describes that one.
                        _ => return None,
                    };
                    Some(json!({ "metadata": { "labels": labels }, "spec": spec }))
                };
                write::patch_fresh(cluster, fence, view, Target::Node, change).await?
            }
            NodeStep::AwaitRoute => {
                let change = |fresh: &NodeView| {
                    let body = || write::network_unavailable(true, "NoRouteCreated", "Node created without a route");
                    awaits_route(fresh).then(body)
                };
                write::patch_fresh(cluster, fence, view, Target::Conditions, change).await?
            }
            NodeStep::DisableCheck { eni, region } => {
                let permit = fence.permit(LONGEST_CLOUD_WRITE)?;
                self.cloud.ecs.disable_source_dest_check(&permit, region, eni).await?;
                None
            }
            NodeStep::AddTaint(_) | NodeStep::RemoveTaint(_) => {
                let change = |fresh: &NodeView| {
                    let taints = taints_after(fresh, step)?;
                    Some(json!({ "spec": { "taints": taints.iter().map(taint_json).collect::<Vec<_>>() } }))
                };
                write::patch_fresh(cluster, fence, view, Target::Node, change).await?
            }
        };
        Ok(answered)
    }

    fn done(&self, view: &NodeView, step: &NodeStep) {
        info!(node = %view.name, %step, "done");
        if *step == NodeStep::RemoveTaint(UNINITIALIZED) {
            let message = "Initialize node successfully".to_owned();
            self.cluster.events().normal(COMPONENT, &regarding(view), "InitializedNode", message);
        }
    }

    fn failed(&self, view: &NodeView, step: &NodeStep, fault: &StepFault, tolerated: bool) {
        let next = if tolerated { "the node is initialised nevertheless" } else { "it is tried again" };
        warn!(node = %view.name, %step, %fault, next, "failed");
        let message = format!("Could not {step}; {next}: {fault}");
        self.cluster.events().warning(COMPONENT, &regarding(view), "SyncNodeFailed", message);
    }
}

fn taint_json(taint: &crate::plan::inputs::Taint) -> serde_json::Value {
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
    use crate::plan::inputs::Taint;

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
}
