//! What this process wrote a short while ago, which a list of the zone may not show yet.

use tokio::time::Instant;

use super::observe::{LISTS_CATCH_UP, ZoneState};
use crate::plan::pvtz::ZoneRecord;

/// The writes to one zone, in order. Without them, a change back within the time that lists lag would be taken for done.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    zone_id: String,
    writes: Vec<OwnWrite>,
}

#[derive(Debug)]
struct OwnWrite {
    /// As it was written; as it was before, if it was deleted.
    record: ZoneRecord,
    is_there: bool,
    at: Instant,
}

impl OwnWrite {
    fn apply(&self, records: &mut Vec<ZoneRecord>) {
        records.retain(|record| record.id != self.record.id);
        if self.is_there {
            records.push(self.record.clone());
        }
    }
}

impl OwnWrites {
    /// Takes note of a write: the zone has this record now, or no longer.
    pub(super) fn note(&mut self, state: &mut ZoneState, record: ZoneRecord, is_there: bool) {
        let write = OwnWrite { record, is_there, at: Instant::now() };
        write.apply(&mut state.records);
        self.of_zone(&state.zone.id).push(write);
    }

    /// Forgets the writes to records of this name: a failed write may have changed these since.
    pub(super) fn forget(&mut self, name: &str) {
        self.writes.retain(|write| write.record.name != name);
    }

    /// Adds to what was read of the zone what this process wrote.
    pub(super) fn lay_over(&mut self, state: &mut ZoneState) {
        let writes = self.of_zone(&state.zone.id);
        writes.retain(|write| write.at.elapsed() < LISTS_CATCH_UP);
        writes.iter().for_each(|write| write.apply(&mut state.records));
        state.records.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// The writes to this zone; those to another one are void.
    fn of_zone(&mut self, zone_id: &str) -> &mut Vec<OwnWrite> {
        if self.zone_id != zone_id {
            *self = Self { zone_id: zone_id.to_owned(), writes: Vec::new() };
        }
        &mut self.writes
    }
}
