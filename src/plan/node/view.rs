//! What a node says of itself.

use crate::plan::inputs::{Condition, ConditionStatus, NodeView};

/// The kubelet sets it at registration; the controller that initialises the node removes it.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// On nodes whose instance is stopped.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Whether a node that is being initialised must be told that it has no route yet.
pub fn awaits_route(view: &NodeView) -> bool {
    let undecided = |condition: &Condition| condition.status == ConditionStatus::Unknown;
    !view.pod_cidrs.is_empty() && view.network_unavailable.as_ref().is_none_or(undecided)
}

/// Whether a node has a taint with this key, whatever its value and effect.
pub fn has_taint(view: &NodeView, key: &str) -> bool {
    view.taints.iter().any(|taint| taint.key == key)
}

/// Whether the node's `Ready` condition says `True`.
pub fn is_ready(view: &NodeView) -> bool {
    view.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::True)
}

/// Whether the node lacks anything as long as its instance is not known: its initialisation, or where there are routes, its own.
pub fn needs_instance(view: &NodeView, routes: bool) -> bool {
    is_uninitialized(view) || (routes && !view.pod_cidrs.is_empty())
}

/// Whether the cluster calls the kubelet silent.
pub fn is_silent(view: &NodeView) -> bool {
    view.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::Unknown)
}

/// Whether the node waits to be initialised.
pub fn is_uninitialized(view: &NodeView) -> bool {
    has_taint(view, UNINITIALIZED)
}
