//! What the route controller remembers between reconciles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;

use super::entry::RouteEntry;
use super::index::{PodCidrIndex, TableEntries};

/// A table that was full is tried again after this time, even if it seems as full as before.
const FULL_FOR: Duration = Duration::from_secs(60);

/// What this process remembers. Losing it loses no entry, and removes none that it should not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteMemory {
    /// Entries that were some node's own: which node's.
    owned: BTreeMap<(IpNet, String), String>,
    /// When deletions that wait for a second observation were first due, by table, destination and instance.
    pub(super) due_since: BTreeMap<(String, IpNet, String), Duration>,
    /// Tables that were full: with how many entries at most, and when.
    full: BTreeMap<String, (usize, Duration)>,
}

impl RouteMemory {
    /// The cloud refused an entry because the table holds as many as it may.
    pub fn table_is_full(&mut self, table: &TableEntries, now: Duration) {
        self.full.insert(table.id.clone(), (table.entries.len(), now));
    }

    /// Entries that are right for a node now are known as ours for as long as they exist. Tables that got room are not full.
    pub(super) fn learn(&mut self, cidrs: &PodCidrIndex<'_>, tables: &[TableEntries], now: Duration) {
        let mut listed = BTreeSet::new();
        for entry in tables.iter().flat_map(|table| &table.entries) {
            let Some(instance) = entry.instance() else { continue };
            let pair = (entry.destination.trunc(), instance.to_owned());
            if let Some(node) =
                cidrs.nodes_with(&pair.0).find(|node| node.gets_condition && node.has(&pair.0, instance))
            {
                self.owned.insert(pair.clone(), node.name.clone());
            }
            listed.insert(pair);
        }
        self.owned.retain(|pair, _| listed.contains(pair));
        self.full.retain(|id, (entries, at)| {
            let listed = tables.iter().find(|table| table.id == *id).map_or(0, |table| table.entries.len());
            let has_room = listed < *entries;
            // A part of the batch may have been created before the rest was refused.
            *entries = listed.max(*entries);
            !has_room && now.saturating_sub(*at) < FULL_FOR
        });
    }

    /// The node that this entry was once right for.
    pub(super) fn owner(&self, entry: &RouteEntry) -> Option<&str> {
        let pair = (entry.destination.trunc(), entry.instance()?.to_owned());
        self.owned.get(&pair).map(String::as_str)
    }

    /// With how many entries the table was full a short time ago.
    pub(super) fn full_at(&self, table: &str) -> Option<usize> {
        self.full.get(table).map(|(entries, _)| *entries)
    }
}
