//! Records that carry the remark of this cluster, and whose object does not exist or whose zone the file does not name.

use std::fmt;

use serde::Serialize;

use super::ZoneRecord;
use super::diff::RecordRules;
use crate::plan::inputs::ObjectKey;

/// A record of this cluster whose Service or node does not exist, or whose zone the file does not name.
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
    /// Whether the file names the zone.
    pub is_zone_used: bool,
}

impl fmt::Display for OrphanedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, zone, record, owner, is_zone_used } = self;
        write!(f, "record {id} ({record}) of the private zone {zone}: ")?;
        match is_zone_used {
            true => write!(f, "no {} {owner}", if owner.contains('/') { "Service" } else { "node" }),
            false => f.write_str("[pvtz] names another zone"),
        }
    }
}

/// Those of `records` whose object does not exist. In a zone that the file does not name, `exists` is `None`: no object needs a record
/// there.
pub fn orphaned(
    records: &[ZoneRecord],
    rules: &RecordRules,
    exists: Option<&dyn Fn(&ObjectKey) -> bool>,
) -> Vec<OrphanedRecord> {
    let ours = records.iter().filter(|record| record.remark == rules.remark);
    let orphans = ours.filter_map(|record| {
        let content = record.content(&rules.zone)?;
        let (id, zone) = (record.id.clone(), rules.zone.clone());
        let owner = Some(content.owner()).filter(|owner| exists.is_none_or(|exists| !exists(owner)))?.to_string();
        Some(OrphanedRecord { id, zone, record: content.to_string(), owner, is_zone_used: exists.is_some() })
    });
    orphans.collect()
}
