//! What has to be done to a node, given the instance behind it.
//!
//! [`plan`] decides about one node; [`removal`] decides about nodes whose instance is gone. The order of steps is the
//! order in which others depend on them: addresses early, because certificates of kubelets wait for them, and the taint
//! last, because it is what keeps pods away from a node that is not ready to run them. Steps that go to the same part of a
//! node stand side by side, so that they need one [`NodeWrite`].

use std::collections::BTreeMap;

use super::inputs::{NodeView, Taint};
use super::provider_id::ProviderId;
use instance::Instance;

mod addresses;
mod class;
pub mod discovery;
pub mod instance;
mod labels;
mod origins;
mod problem;
pub mod removal;
mod source_dest_check;
mod step;
mod view;
mod write;

pub use class::{Exclusion, NodeClass, classify};
pub use labels::has_same_labels;
pub use origins::origins;
pub use problem::NodeProblem;
pub use source_dest_check::{CheckMemory, SourceDestCheck};
pub use step::{NodePlan, NodeStep};
pub use view::{
    SHUTDOWN, UNINITIALIZED, awaits_route, has_taint, is_ready, is_silent, is_uninitialized, needs_instance,
};
pub use write::{NodeChange, NodeWrite, OtherInstance, WriteTarget, taints_after};

/// What the planner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePolicy {
    /// Whether IPv6 addresses are written.
    pub ipv6: bool,
    /// Whether stopped instances' nodes get the shutdown taint.
    pub shutdown_taint: bool,
    /// Whether the route controller runs, which is then trusted to clear `NetworkUnavailable`.
    pub routes: bool,
}

/// Plans one node whose instance is there.
pub fn plan(view: &NodeView, instance: &Instance, check: &SourceDestCheck, policy: NodePolicy) -> NodePlan {
    let addresses = match addresses::wanted(view, instance, policy.ipv6) {
        Ok(addresses) => addresses,
        // An instance that starts, or a wrong --node-ip, says nothing about taints that follow readiness.
        Err(problem) => {
            let steps = shutdown(view, Some(instance), policy).into_iter().collect();
            return NodePlan { steps, ..NodePlan::refused(view, problem) };
        }
    };
    let (labels, mut problems) = labels::wanted(instance);
    if let SourceDestCheck::Unknown { message, cause, denied } = check {
        let (message, cause) = (message.clone(), cause.clone());
        problems.push(NodeProblem::CheckUnknown { message, cause, needed: policy.routes || !denied });
    }

    let mut steps = Vec::new();
    if addresses != view.addresses {
        steps.push(NodeStep::SetAddresses(addresses));
    }
    let tainted = has_taint(view, UNINITIALIZED);
    if tainted && policy.routes && awaits_route(view) {
        steps.push(NodeStep::AwaitRoute);
    }
    if let SourceDestCheck::On { eni } = check {
        steps.push(NodeStep::DisableCheck { eni: eni.clone(), region: instance.region.clone() });
    }
    let labels: BTreeMap<_, _> =
        labels.into_iter().filter(|(key, value)| view.label(key) != Some(value.as_str())).collect();
    let provider_id = view.provider_id.is_empty().then(|| format!("{}.{}", instance.region, instance.id));
    if !labels.is_empty() || provider_id.is_some() {
        steps.push(NodeStep::SetMetadata { labels, provider_id });
    }
    steps.extend(shutdown(view, Some(instance), policy));
    if tainted && !problems.iter().any(NodeProblem::blocks) {
        steps.push(NodeStep::RemoveTaint(UNINITIALIZED));
    }
    NodePlan { node: view.name.clone(), steps, problems }
}

/// Plans a Lingjun worker: as the official controller does, only its taint is removed.
pub fn plan_lingjun(view: &NodeView) -> NodePlan {
    let end = has_taint(view, UNINITIALIZED).then_some(NodeStep::RemoveTaint(UNINITIALIZED));
    NodePlan { node: view.name.clone(), steps: end.into_iter().collect(), problems: Vec::new() }
}

/// Plans one node whose instance the cloud does not show.
pub fn plan_missing(view: &NodeView, id: &ProviderId, policy: NodePolicy) -> NodePlan {
    let problem = has_taint(view, UNINITIALIZED)
        .then(|| NodeProblem::InstanceMissing { instance: id.instance.clone(), region: id.region.clone() });
    NodePlan {
        node: view.name.clone(),
        steps: shutdown(view, None, policy).into_iter().collect(),
        problems: problem.into_iter().collect(),
    }
}

fn shutdown(view: &NodeView, instance: Option<&Instance>, policy: NodePolicy) -> Option<NodeStep> {
    let stopped = instance.is_some_and(|instance| matches!(instance.status.as_str(), "Stopped" | "Stopping"));
    match (has_taint(view, SHUTDOWN), is_ready(view)) {
        // Also one that was added before the switch was off.
        (true, true) => Some(NodeStep::RemoveTaint(SHUTDOWN)),
        (false, false) if stopped && policy.shutdown_taint => Some(NodeStep::AddTaint(Taint {
            key: SHUTDOWN.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
