//! Where the nodes are, for load balancers that are to be near them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::inputs::NodeView;
use crate::plan::node::UNINITIALIZED;

/// The zone of a node, as its labels say.
pub fn of(node: &NodeView) -> Option<&str> {
    const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    LABELS.iter().find_map(|label| node.label(label))
}

/// Zones with the number of their nodes, those with more nodes first.
pub fn by_nodes(nodes: &[Arc<NodeView>]) -> Vec<(&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for zone in nodes.iter().filter_map(|node| of(node)) {
        *counts.entry(zone).or_default() += 1;
    }
    let mut zones: Vec<_> = counts.into_iter().collect();
    zones.sort_by_key(|(zone, count)| (Reverse(*count), *zone));
    zones
}

/// Primary and secondary zone near the nodes. While a node is still being initialised it is unknown where most will be, and
/// zones cannot be changed later: the cloud chooses.
pub fn near(nodes: &[Arc<NodeView>]) -> (Option<String>, Option<String>) {
    let coming = |node: &NodeView| node.taints.iter().any(|taint| taint.key == UNINITIALIZED);
    if nodes.iter().any(|node| coming(node)) {
        return (None, None);
    }
    let mut zones = by_nodes(nodes).into_iter().map(|(zone, _)| zone.to_owned());
    (zones.next(), zones.next())
}
