//! Nodes and entries by CIDR, so that thousands of the one are not compared with thousands of the other.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::entry::RouteEntry;
use super::mark::MarkedNode;
use super::route_node::RouteNode;

/// A route table with its custom entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntries {
    /// `vtb-...`
    pub id: String,
    /// As listed.
    pub entries: Vec<RouteEntry>,
}

/// Nodes by pod CIDR.
pub(super) struct PodCidrIndex<'a> {
    by_cidr: BTreeMap<IpNet, Vec<&'a RouteNode>>,
    /// Nodes whose instance or pod CIDR is still to come.
    incomplete: Vec<&'a RouteNode>,
}

impl<'a> PodCidrIndex<'a> {
    pub(super) fn of(nodes: &'a [RouteNode]) -> Self {
        let mut by_cidr: BTreeMap<IpNet, Vec<&RouteNode>> = BTreeMap::new();
        for (node, cidr) in nodes.iter().flat_map(|node| node.cidrs.iter().map(move |cidr| (node, cidr))) {
            by_cidr.entry(*cidr).or_default().push(node);
        }
        Self { by_cidr, incomplete: nodes.iter().filter(|node| node.is_incomplete()).collect() }
    }

    pub(super) fn nodes_with(&self, cidr: &IpNet) -> impl Iterator<Item = &'a RouteNode> {
        self.by_cidr.get(cidr).into_iter().flatten().copied()
    }

    /// Whether an entry is, or may turn out to be, some node's; or is dealt with in the plan of that node.
    pub(super) fn is_needed(&self, cidr: &IpNet, instance: &str, created_for: &MarkedNode<'_>) -> bool {
        let needs =
            |node: &RouteNode| node.gets_routes || node.is_incomplete() || node.instance.as_deref() == Some(instance);
        self.nodes_with(cidr).any(needs) || self.incomplete.iter().any(|node| created_for.is(&node.name))
    }
}

/// Entries of one table by destination.
pub(super) struct TableIndex<'a> {
    pub id: &'a str,
    by_destination: BTreeMap<IpNet, Vec<&'a RouteEntry>>,
}

impl<'a> TableIndex<'a> {
    pub(super) fn of(table: &'a TableEntries) -> Self {
        let mut by_destination: BTreeMap<IpNet, Vec<&RouteEntry>> = BTreeMap::new();
        for entry in &table.entries {
            by_destination.entry(entry.destination.trunc()).or_default().push(entry);
        }
        Self { id: &table.id, by_destination }
    }

    /// The entry for this very CIDR.
    pub(super) fn entry(&self, cidr: &IpNet) -> Option<&'a RouteEntry> {
        self.by_destination.get(cidr)?.first().copied()
    }

    /// Entries for parts of a CIDR.
    pub(super) fn inside(&self, cidr: &IpNet) -> impl Iterator<Item = &'a RouteEntry> {
        // In this order, what begins within a network follows it, and nothing but its parts begins within.
        let (cidr, parts) = (*cidr, self.by_destination.range(*cidr..));
        parts
            .take_while(move |(part, _)| cidr.contains(&part.network()))
            .filter(move |(part, _)| **part != cidr)
            .flat_map(|(_, entries)| entries.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(destination: IpNet) -> RouteEntry {
        RouteEntry {
            id: String::new(),
            destination,
            next_hops: Vec::new(),
            status: String::new(),
            name: String::new(),
            description: String::new(),
        }
    }

    fn some_cidr() -> impl Strategy<Value = IpNet> {
        let cidr = |(family, bits, length): (bool, u8, u8)| -> IpNet {
            let text = if family {
                format!("10.1.{bits}.0/{}", 20 + length)
            } else {
                format!("fd00::{bits:x}00/{}", 116 + length)
            };
            text.parse().unwrap()
        };
        (any::<bool>(), 0..32_u8, 0..9_u8).prop_map(cidr)
    }

    proptest! {
        #[test]
        fn an_index_finds_what_a_search_finds(cidrs in prop::collection::vec(some_cidr(), 0..20), one in some_cidr()) {
            let table = TableEntries { id: "vtb-1".into(), entries: cidrs.into_iter().map(entry).collect() };
            let (listed, one) = (TableIndex::of(&table), one.trunc());
            let same = table.entries.iter().find(|entry| entry.destination.trunc() == one);
            prop_assert_eq!(listed.entry(&one), same);
            let narrower = |entry: &&RouteEntry| one.contains(&entry.destination.trunc()) && entry.destination.trunc() != one;
            let mut searched: Vec<&RouteEntry> = table.entries.iter().filter(narrower).collect();
            searched.sort_by_key(|entry| entry.destination.trunc());
            prop_assert_eq!(listed.inside(&one).collect::<Vec<_>>(), searched);
        }
    }
}
