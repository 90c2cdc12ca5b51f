//! Route entries of ours whose node is gone and that no other node needs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::entry::RouteEntry;
use super::mark::{self, MarkedNode};
use crate::plan::inputs::NodeView;
use crate::plan::provider_id::ProviderId;

/// A route entry whose node is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedRoute {
    /// `vtb-...`
    pub table: String,
    /// The pod CIDR.
    pub destination: IpNet,
    /// The instance that is its next hop.
    pub instance: String,
    /// The node that it was created for.
    pub node: String,
}

impl fmt::Display for OrphanedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, destination, instance, node } = self;
        write!(f, "route {destination} to {instance} in {table}: no node {node}, and no other node needs it")
    }
}

/// Entries with the mark of this cluster that no node needs and whose node is gone.
#[must_use]
pub fn orphaned_routes(
    tables: &BTreeMap<String, Vec<RouteEntry>>,
    nodes: &[Arc<NodeView>],
    cluster_id: &str,
) -> Vec<OrphanedRoute> {
    let entries = tables.iter().flat_map(|(table, entries)| entries.iter().map(move |entry| (table, entry)));
    entries
        .filter_map(|(table, entry)| {
            let node = mark::node(cluster_id, &entry.description)?;
            let [(kind, instance)] = entry.next_hops.as_slice() else { return None };
            let destination = entry.destination.trunc();
            let orphaned = kind.eq_ignore_ascii_case("instance") && !needed(nodes, destination, instance, &node);
            orphaned.then(|| OrphanedRoute {
                table: table.clone(),
                destination,
                instance: instance.clone(),
                node: node.name().to_owned(),
            })
        })
        .collect()
}

fn needed(nodes: &[Arc<NodeView>], destination: IpNet, instance: &str, created_for: &MarkedNode<'_>) -> bool {
    let destination = destination.to_string();
    nodes.iter().any(|node| {
        let is_next_hop = ProviderId::parse(&node.provider_id).is_ok_and(|id| id.instance == instance);
        created_for.may_be(&node.name) || is_next_hop || node.pod_cidrs.contains(&destination)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(destination: &str, instance: &str, description: String) -> RouteEntry {
        RouteEntry {
            destination: destination.parse().unwrap(),
            next_hops: vec![("Instance".to_owned(), instance.to_owned())],
            description,
            id: String::new(),
            status: "Available".to_owned(),
            name: String::new(),
        }
    }

    fn node(name: &str, provider_id: &str, pod_cidr: &str) -> Arc<NodeView> {
        Arc::new(NodeView {
            name: name.to_owned(),
            provider_id: provider_id.to_owned(),
            pod_cidrs: vec![pod_cidr.to_owned()],
            ..NodeView::default()
        })
    }

    #[test]
    fn only_marked_entries_that_no_node_needs_are_orphans() {
        let nodes = [
            node("node-1", "cn-a.i-1", "10.0.1.0/24"),
            node("n2", "cn-a.i-2", "10.0.2.0/24"),
            node("n3", "", "10.0.3.0/24"),
        ];
        let ours = |node| mark::description("c1", node);
        let entries = vec![
            entry("10.0.9.0/24", "i-9", ours("gone")),
            entry("10.0.8.0/24", "i-8", mark::description("other", "gone")),
            entry("10.0.7.0/24", "i-7", String::new()),
            entry("10.0.1.0/24", "i-6", ours("node-")),
            entry("10.0.5.0/24", "i-5", ours("node-1")),
            // Its name is the beginning of another's.
            entry("10.0.4.0/24", "i-4", ours("node")),
            entry("10.0.6.0/24", "i-2", ours("gone")),
            entry("10.0.3.0/24", "i-5", ours("gone")),
        ];
        let found = orphaned_routes(&[("vtb-1".to_owned(), entries)].into(), &nodes, "c1");
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let orphans = [
            "route 10.0.9.0/24 to i-9 in vtb-1: no node gone, and no other node needs it",
            "route 10.0.4.0/24 to i-4 in vtb-1: no node node, and no other node needs it",
        ];
        assert_eq!(found, orphans);
    }
}
