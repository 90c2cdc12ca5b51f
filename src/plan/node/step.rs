//! What a plan of a node consists of, and how people read it.

use std::collections::BTreeMap;
use std::fmt;

use super::problem::NodeProblem;
use crate::plan::inputs::{NodeAddress, NodeView, Taint};
use crate::plan::{LineKind, PlanLine};

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

/// What is to be done to one node, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Name of the node.
    pub node: String,
    /// The writes.
    pub steps: Vec<NodeStep>,
    /// What is wrong with the node.
    pub problems: Vec<NodeProblem>,
}

impl NodePlan {
    /// A plan that only says what is wrong.
    pub fn refused(view: &NodeView, problem: NodeProblem) -> Self {
        Self { node: view.name.clone(), steps: Vec::new(), problems: vec![problem] }
    }

    /// The plan as people read it.
    pub fn lines(&self) -> Vec<PlanLine> {
        let problems = self.problems.iter().map(|it| PlanLine::new("node", &self.node, LineKind::Problem, it));
        let steps = self.steps.iter().map(|step| PlanLine::new("node", &self.node, LineKind::Step, step));
        problems.chain(steps).collect()
    }
}
