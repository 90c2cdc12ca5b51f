//! What has to be done to a node, given the instance behind it.
//!
//! [`plan`] decides about one node; [`removal`] decides about nodes whose instance is gone. The order of steps is the
//! order in which others depend on them: addresses early, because certificates of kubelets wait for them, and the taint
//! last, because it is what keeps pods away from a node that is not ready to run them. Steps that go to the same part of a
//! node stand side by side, so that they need one [`Write`](write::Write).

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use super::PlanLine;
use super::inputs::{Condition, ConditionStatus, NodeAddress, NodeView, Taint};
use instance::Instance;

pub mod addresses;
mod class;
pub mod discovery;
pub mod instance;
mod labels;
pub mod removal;
pub mod source_dest_check;
pub mod write;

pub use class::{Class, Exclusion, classify};

/// The kubelet sets it at registration; whoever initialises the node takes it away.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// On nodes whose instance is stopped.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

const NO_SCHEDULE: &str = "NoSchedule";

/// What the planner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether IPv6 addresses are written.
    pub ipv6: bool,
    /// Whether stopped instances' nodes get the shutdown taint.
    pub shutdown_taint: bool,
    /// Whether the route controller runs, which is then trusted to clear `NetworkUnavailable`.
    pub routes: bool,
}

/// What is known of the source/destination check of the primary interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing to do: it is off, unknown to the region, or not our business.
    Settled,
    /// It is on.
    On {
        /// `eni-...`
        eni: String,
    },
    /// It could not be found out.
    Unknown {
        /// Why.
        message: String,
        /// Whether a missing permission explains it, which nodes without routes can live with.
        denied: bool,
    },
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// Replaces `status.addresses`.
    SetAddresses(Vec<NodeAddress>),
    /// Sets labels, leaving all others; and `spec.providerID` if it is empty.
    SetMetadata {
        /// Labels that are missing or different.
        labels: BTreeMap<String, String>,
        /// Only for a node without one.
        provider_id: Option<String>,
    },
    /// Says `NetworkUnavailable=True` until the route exists.
    AwaitRoute,
    /// Switches the source/destination check of this interface off.
    DisableCheck {
        /// `eni-...`
        eni: String,
        /// Region of the instance.
        region: String,
    },
    /// Adds a taint.
    AddTaint(Taint),
    /// Removes all taints with this key.
    RemoveTaint(&'static str),
}

impl fmt::Display for NodeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAddresses(addresses) => {
                let list: Vec<String> = addresses.iter().map(|a| format!("{}={}", a.kind, a.address)).collect();
                write!(f, "set addresses {}", list.join(", "))
            }
            Self::SetMetadata { labels, provider_id } => {
                let id = provider_id.iter().map(|id| format!("providerID {id}"));
                let labels = labels.iter().map(|(key, value)| format!("label {key}={value}"));
                write!(f, "set {}", id.chain(labels).collect::<Vec<_>>().join(", "))
            }
            Self::AwaitRoute => f.write_str("set condition NetworkUnavailable=True (NoRouteCreated)"),
            Self::DisableCheck { eni, .. } => write!(f, "switch off the source/destination check of {eni}"),
            Self::AddTaint(taint) => write!(f, "add taint {}:{}", taint.key, taint.effect),
            Self::RemoveTaint(key) => write!(f, "remove taint {key}"),
        }
    }
}

/// What is wrong with a node, for its event.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// Nothing matches a node without providerID.
    #[error(
        "spec.providerID is empty, and no instance in {vpc} has the node's internal address, id or name; set \
         spec.providerID to REGION.INSTANCE_ID, or let the kubelet report an internal address"
    )]
    NotFound {
        /// Where it was looked for.
        vpc: String,
    },
    /// Discovery is switched off.
    #[error("spec.providerID is empty and node.discover is off; set spec.providerID to REGION.INSTANCE_ID")]
    Undiscovered,
    /// Several instances match a node without providerID.
    #[error(
        "spec.providerID is empty, and more than one instance could be this node ({}); set spec.providerID to \
         REGION.INSTANCE_ID",
        .instances.join(", ")
    )]
    Ambiguous {
        /// Their ids.
        instances: Vec<String>,
    },
    /// The instance belongs to another node.
    #[error(
        "instance {instance} matches this node, but node {other} claims it; remove the node object that is out of date"
    )]
    Claimed {
        /// `i-...`
        instance: String,
        /// The other node.
        other: String,
    },
    /// A tainted node's instance is not there.
    #[error("instance {instance} in {region} is not known to the cloud; the node is initialised when it is")]
    InstanceMissing {
        /// `i-...`
        instance: String,
        /// Its region.
        region: String,
    },
    /// An instance without addresses.
    #[error("instance {instance} has no address yet; the node is initialised when it has one")]
    NoAddresses {
        /// `i-...`
        instance: String,
    },
    /// The kubelet's `--node-ip` is none of the instance's.
    #[error(
        "the kubelet was told to use address {given}, which the instance does not have (it has {}); correct --node-ip",
        .known.join(", ")
    )]
    ProvidedIpUnknown {
        /// As annotated.
        given: String,
        /// The instance's.
        known: Vec<String>,
    },
    /// The annotation holds something else than one or two addresses.
    #[error("annotation alpha.kubernetes.io/provided-node-ip is {given:?}; one or two addresses are allowed")]
    ProvidedIpMalformed {
        /// As annotated.
        given: String,
    },
    /// A value that no label can have.
    #[error("label {key} is not written: {value:?} is not allowed as the value of a label")]
    LabelValue {
        /// The label.
        key: &'static str,
        /// What the cloud says.
        value: String,
    },
    /// The source/destination check could not be looked at.
    #[error("the source/destination check of the instance is not known: {message}")]
    CheckUnknown {
        /// Why.
        message: String,
        /// Whether the node needs it off.
        needed: bool,
    },
}

impl Problem {
    /// Whether the node cannot be initialised as long as this holds.
    #[must_use]
    pub const fn blocks(&self) -> bool {
        match self {
            Self::LabelValue { .. } => false,
            Self::CheckUnknown { needed, .. } => *needed,
            _ => true,
        }
    }
}

/// What is to be done to one node, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Name of the node.
    pub node: String,
    /// The writes.
    pub steps: Vec<NodeStep>,
    /// What is wrong with the node.
    pub problems: Vec<Problem>,
}

impl NodePlan {
    /// A plan that only says what is wrong.
    #[must_use]
    pub fn refused(view: &NodeView, problem: Problem) -> Self {
        Self { node: view.name.clone(), steps: Vec::new(), problems: vec![problem] }
    }

    /// The plan as people read it.
    #[must_use]
    pub fn lines(&self) -> Vec<PlanLine> {
        let problems = self.problems.iter().map(ToString::to_string);
        let steps = self.steps.iter().map(ToString::to_string);
        problems
            .chain(steps)
            .map(|text| PlanLine { controller: "node", object: self.node.clone(), text, destroys: false })
            .collect()
    }
}

/// Plans one node whose instance is there.
#[must_use]
pub fn plan(view: &NodeView, instance: &Instance, check: &Check, policy: Policy) -> NodePlan {
    let addresses = match addresses::wanted(view, instance, policy.ipv6) {
        Ok(addresses) => addresses,
        // An instance that starts, or a wrong --node-ip, says nothing about taints that follow readiness.
        Err(problem) => {
            let steps = shutdown(view, Some(instance), policy).into_iter().collect();
            return NodePlan { steps, ..NodePlan::refused(view, problem) };
        }
    };
    let (labels, mut problems) = labels::wanted(instance);
    if let Check::Unknown { message, denied } = check {
        problems.push(Problem::CheckUnknown { message: message.clone(), needed: policy.routes || !denied });
    }

    let mut steps = Vec::new();
    if addresses != view.addresses {
        steps.push(NodeStep::SetAddresses(addresses));
    }
    let tainted = has_taint(view, UNINITIALIZED);
    if tainted && policy.routes && awaits_route(view) {
        steps.push(NodeStep::AwaitRoute);
    }
    if let Check::On { eni } = check {
        steps.push(NodeStep::DisableCheck { eni: eni.clone(), region: instance.region.clone() });
    }
    let labels: BTreeMap<_, _> =
        labels.into_iter().filter(|(key, value)| view.labels.get(key) != Some(value)).collect();
    let provider_id = view.provider_id.is_empty().then(|| format!("{}.{}", instance.region, instance.id));
    if !labels.is_empty() || provider_id.is_some() {
        steps.push(NodeStep::SetMetadata { labels, provider_id });
    }
    steps.extend(shutdown(view, Some(instance), policy));
    if tainted && !problems.iter().any(Problem::blocks) {
        steps.push(NodeStep::RemoveTaint(UNINITIALIZED));
    }
    NodePlan { node: view.name.clone(), steps, problems }
}

/// Plans one node whose instance the cloud does not show.
#[must_use]
pub fn plan_missing(view: &NodeView, region: &str, instance: &str, policy: Policy) -> NodePlan {
    let problem = has_taint(view, UNINITIALIZED)
        .then(|| Problem::InstanceMissing { instance: instance.to_owned(), region: region.to_owned() });
    NodePlan {
        node: view.name.clone(),
        steps: shutdown(view, None, policy).into_iter().collect(),
        problems: problem.into_iter().collect(),
    }
}

/// Whether a node that is being initialised must be told that it has no route yet.
#[must_use]
pub fn awaits_route(view: &NodeView) -> bool {
    let undecided = |condition: &Condition| condition.status == ConditionStatus::Unknown;
    !view.pod_cidrs.is_empty() && view.network_unavailable.as_ref().is_none_or(undecided)
}

/// Whether a node has a taint with this key, whatever its value and effect.
#[must_use]
pub fn has_taint(view: &NodeView, key: &str) -> bool {
    view.taints.iter().any(|taint| taint.key == key)
}

/// Whether the node's `Ready` condition says `True`.
#[must_use]
pub fn is_ready(view: &NodeView) -> bool {
    view.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::True)
}

/// The taints that a node has after these steps, or `None` if they change nothing (any more).
#[must_use]
pub fn taints_after(view: &NodeView, steps: &[NodeStep]) -> Option<Vec<Taint>> {
    let mut taints = view.taints.clone();
    for step in steps {
        match step {
            NodeStep::AddTaint(taint) if taints.iter().all(|known| known.key != taint.key) => {
                taints.push(taint.clone());
            }
            NodeStep::RemoveTaint(key) => taints.retain(|taint| taint.key != *key),
            _ => {}
        }
    }
    (taints != view.taints).then_some(taints)
}

fn shutdown(view: &NodeView, instance: Option<&Instance>, policy: Policy) -> Option<NodeStep> {
    let stopped = instance.is_some_and(|instance| matches!(instance.status.as_str(), "Stopped" | "Stopping"));
    match (has_taint(view, SHUTDOWN), is_ready(view)) {
        _ if !policy.shutdown_taint => None,
        (true, true) => Some(NodeStep::RemoveTaint(SHUTDOWN)),
        (false, false) if stopped => Some(NodeStep::AddTaint(Taint {
            key: SHUTDOWN.to_owned(),
            value: String::new(),
            effect: NO_SCHEDULE.to_owned(),
            added: None,
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
