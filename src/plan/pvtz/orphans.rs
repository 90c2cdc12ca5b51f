//! Records that carry the remark of this cluster, and whose object does not exist.

use std::fmt;

use serde::Serialize;

use super::ZoneRecord;
use super::diff::RecordRules;
use crate::plan::inputs::ObjectKey;

/// A record whose Service or node is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedRecord {
    /// The cloud's id of it.
    pub id: String,
    /// Name of its zone.
    pub zone: String,
    /// Name, type and value.
    pub record: String,
    /// Namespace and name of the Service, or the name of the node.
    pub owner: String,
}

impl fmt::Display for OrphanedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, zone, record, owner } = self;
        let kind = if owner.contains('/') { "Service" } else { "node" };
        write!(f, "record {id} ({record}) of the private zone {zone}: no {kind} {owner}")
    }
}

/// Those of `records` whose object does not exist.
pub fn orphaned(
    records: &[ZoneRecord],
    rules: &RecordRules,
    exists: impl Fn(&ObjectKey) -> bool,
) -> Vec<OrphanedRecord> {
    let ours = records.iter().filter(|record| record.remark == rules.remark);
    let orphans = ours.filter_map(|record| {
        let content = record.content(&rules.zone)?;
        let (id, zone) = (record.id.clone(), rules.zone.clone());
        let owner = Some(content.owner()).filter(|owner| !exists(owner))?.to_string();
        Some(OrphanedRecord { id, zone, record: content.to_string(), owner })
    });
    orphans.collect()
}
