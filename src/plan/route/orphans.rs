//! Route entries of ours whose node is not there and that no other node needs, or in tables that the file does not name; and those
//! of another cluster with the same id.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::TableEntries;
use super::mark::{self, MarkedNode, RouteCluster, RouteMark};
use crate::plan::inputs::NodeView;
use crate::plan::provenance::{Provenance, Unclaimed};
use crate::plan::provider_id::ProviderId;

/// A route entry that nothing keeps in sync.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedRoute {
    /// `rte-...`
    pub id: String,
    /// `vtb-...`
    pub table: String,
    /// The pod CIDR.
    pub destination: IpNet,
    /// The instance that is its next hop.
    pub instance: String,
    /// The node that it was created for.
    pub node: String,
    /// Whether routes go into the table.
    pub is_table_used: bool,
}

impl fmt::Display for OrphanedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, table, destination, instance, node, is_table_used } = self;
        write!(f, "route {destination} to {instance} in {table} ({id}): ")?;
        match is_table_used {
            true => write!(f, "no node {node}, and no other node needs it"),
            false => write!(f, "route.table_ids does not name the table"),
        }
    }
}

/// Entries marked with the id of this cluster whose node is not there and that no other node needs, or whose table is not one of
/// those that are `stated`, if any is; and those of another cluster with the same id.
pub fn unclaimed_routes(
    tables: &[TableEntries],
    stated: &[String],
    nodes: &[Arc<NodeView>],
    cluster: &RouteCluster,
) -> Vec<Unclaimed<OrphanedRoute>> {
    let entries = tables.iter().flat_map(|table| table.entries.iter().map(move |entry| (&table.id, entry)));
    entries
        .filter_map(|(table, entry)| {
            let RouteMark { uid, node } = mark::parse(&cluster.id, &entry.description)?;
            let (destination, instance) = (entry.destination.trunc(), entry.instance()?);
            let provenance = Provenance::of_uid(&cluster.uid, uid);
            let is_other = matches!(provenance, Provenance::OtherCluster(_));
            let is_table_used = stated.is_empty() || stated.contains(table);
            let route = || OrphanedRoute {
                id: entry.id.clone(),
                table: table.clone(),
                destination,
                instance: instance.to_owned(),
                node: node.name().to_owned(),
                is_table_used,
            };
            let is_unclaimed = is_other || !is_table_used || !needed(nodes, destination, instance, &node);
            is_unclaimed.then(|| Unclaimed { what: route(), provenance })
        })
        .collect()
}

fn needed(nodes: &[Arc<NodeView>], destination: IpNet, instance: &str, created_for: &MarkedNode<'_>) -> bool {
    let destination = destination.to_string();
    nodes.iter().any(|node| {
        let is_next_hop = ProviderId::parse(&node.provider_id).is_ok_and(|id| id.instance == instance);
        created_for.is(&node.name) || is_next_hop || node.pod_cidrs.contains(&destination)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::route::entry::RouteEntry;

    fn entry(destination: &str, instance: &str, description: String) -> RouteEntry {
        RouteEntry {
            destination: destination.parse().unwrap(),
            next_hops: vec![("Instance".to_owned(), instance.to_owned())],
            description,
            id: format!("rte-{instance}"),
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
    fn only_entries_marked_with_the_uid_of_the_cluster_that_no_node_needs_are_orphans() {
        let nodes = [
            node("node-1", "cn-a.i-1", "10.0.1.0/24"),
            node("n2", "cn-a.i-2", "10.0.2.0/24"),
            node("n3", "", "10.0.3.0/24"),
        ];
        let cluster = |id: &str, uid: &str| RouteCluster { id: id.to_owned(), uid: uid.to_owned() };
        let made = |id, uid, node| mark::description(&cluster(id, uid), node);
        let ours = |node| made("c1", "u1", node);
        let entries = vec![
            entry("10.0.9.0/24", "i-9", ours("gone")),
            entry("10.0.8.0/24", "i-8", made("other", "u1", "gone")),
            entry("10.0.7.0/24", "i-7", String::new()),
            entry("10.0.1.0/24", "i-6", ours("node-")),
            entry("10.0.5.0/24", "i-5", ours("node-1")),
            // Its name is the beginning of another's.
            entry("10.0.4.0/24", "i-4", ours("node")),
            entry("10.0.6.0/24", "i-2", ours("gone")),
            entry("10.0.3.0/24", "i-5", ours("gone")),
            entry("10.0.10.0/24", "i-10", made("c1", "", "gone")),
            entry("10.0.11.0/24", "i-1", made("c1", "", "gone")),
            entry("10.0.12.0/24", "i-12", made("c1", "u2", "node-1")),
        ];
        let tables = [TableEntries { id: "vtb-1".to_owned(), entries }];
        let found = unclaimed_routes(&tables, &[], &nodes, &cluster("c1", "u1"));
        let found: Vec<_> = found.iter().map(|one| (one.what.to_string(), &one.provenance)).collect();
        let text = |destination: &str, instance: &str, node: &str| {
            format!(
                "route {destination} to {instance} in vtb-1 (rte-{instance}): no node {node}, and no other node needs it"
            )
        };
        let (by_id, other) = (Provenance::of_uid("u1", None), Provenance::of_uid("u1", Some("u2")));
        let expected = [
            (text("10.0.9.0/24", "i-9", "gone"), &Provenance::ThisCluster),
            (text("10.0.4.0/24", "i-4", "node"), &Provenance::ThisCluster),
            (text("10.0.10.0/24", "i-10", "gone"), &by_id),
            (text("10.0.12.0/24", "i-12", "node-1"), &other),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn entries_of_ours_in_a_table_that_is_not_stated_are_orphans_although_their_nodes_exist() {
        let cluster = RouteCluster { id: "c1".to_owned(), uid: "u1".to_owned() };
        let nodes = [node("node-1", "cn-a.i-1", "10.0.1.0/24")];
        let table = |id: &str| TableEntries {
            id: id.to_owned(),
            entries: vec![
                entry("10.0.1.0/24", "i-1", mark::description(&cluster, "node-1")),
                entry("10.0.2.0/24", "i-2", "by hand".to_owned()),
            ],
        };
        let found = unclaimed_routes(&[table("vtb-1"), table("vtb-2")], &["vtb-1".to_owned()], &nodes, &cluster);
        let found: Vec<String> = found.iter().map(|one| one.what.to_string()).collect();
        assert_eq!(found, ["route 10.0.1.0/24 to i-1 in vtb-2 (rte-i-1): route.table_ids does not name the table"]);
    }
}
