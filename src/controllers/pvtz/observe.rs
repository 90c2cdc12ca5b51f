//! Reads the zone, and the cluster's half of what it should hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use super::{Watches, concerns_one};
use crate::alibaba::pvtz::{PrivateZone, Pvtz};
use crate::alibaba::{Fault, FaultKind};
use crate::cluster::StoreEntry;
use crate::config::Config;
use crate::plan::inputs::ObjectKey;
use crate::plan::location::CloudLocation;
use crate::plan::pvtz::ZoneRecord;
use crate::plan::pvtz::desire::{NamingRules, WantedRecords, desire};
use crate::plan::pvtz::diff::{RecordPlan, RecordRules};

/// Records in a page of a list.
const PAGE: usize = 100;
/// Names that one reconcile reads one by one.
const MOST_NAMES: usize = 100;

/// Why no record is changed.
#[derive(Debug, Error)]
pub(super) enum ZoneTrouble {
    /// The cloud did not answer as it should.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// The user must change something: what.
    #[error("{0}")]
    Unusable(String),
}

/// What is known of the zone. Losing it costs reads.
#[derive(Debug)]
pub(super) struct ZoneState {
    pub zone: PrivateZone,
    /// As last read, with what was written since.
    pub records: Vec<ZoneRecord>,
    /// Whether the last list of the zone showed every record. What it did not show may be there.
    pub is_whole: bool,
    /// Names of records that a failed write may have changed, each with an owner and the time of the write.
    pub unsure: BTreeMap<String, (ObjectKey, Instant)>,
}

/// What was read just now. Nothing is written to any other name.
#[derive(Debug, Default)]
pub(super) struct ZoneReads {
    /// Whether a list showed every record.
    all: bool,
    names: BTreeSet<String>,
    faults: BTreeMap<String, Fault>,
}

impl ZoneReads {
    /// A list that was just read, if it is whole.
    pub(super) fn of_list(is_whole: bool) -> Self {
        Self { all: is_whole, ..Self::default() }
    }

    /// Whether the records of a name were read; if not, what failed, or `None` if they are still to be read.
    pub(super) fn has(&self, name: &str) -> Result<(), Option<Fault>> {
        match self.faults.get(name) {
            Some(fault) => Err(Some(fault.clone())),
            None if self.all || self.names.contains(name) => Ok(()),
            None => Err(None),
        }
    }

    /// The first fault.
    pub(super) fn into_fault(self) -> Option<Fault> {
        self.faults.into_values().next()
    }
}

/// After this time, lists show what was written.
pub(super) const LISTS_CATCH_UP: Duration = Duration::from_secs(60);

/// Reads; writes nothing.
#[derive(Clone, Copy)]
pub(super) struct ZoneReader<'a> {
    pub pvtz: &'a Pvtz,
    pub location: &'a CloudLocation,
    pub config: &'a Config,
    pub watches: &'a Watches,
}

impl ZoneState {
    /// Whether the configuration still names this zone.
    pub(super) fn is_named_by(&self, config: &Config) -> bool {
        match (&config.pvtz.zone_id, &config.pvtz.zone_name) {
            (Some(id), _) => *id == self.zone.id,
            (None, name) => name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&self.zone.name)),
        }
    }
}

impl ZoneReader<'_> {
    /// The zone that the configuration names, if machines of the cluster's VPC look names up in it.
    pub(super) async fn zone(&self) -> Result<PrivateZone, ZoneTrouble> {
        let vpc = self.location.vpc_id.as_str();
        let options = &self.config.pvtz;
        let Some(id) = &options.zone_id else {
            let name = options.zone_name.as_deref().unwrap_or_default();
            let mut zones = self.pvtz.zones_of(vpc).await?;
            zones.retain(|zone| zone.name.eq_ignore_ascii_case(name));
            return match zones.as_slice() {
                [zone] => Ok(zone.clone()),
                [] => Err(ZoneTrouble::Unusable(format!(
                    "pvtz.zone_name: no zone {name:?} is bound to the VPC {vpc} of the cluster; create it, bind it, or correct \
                     the name"
                ))),
                several => Err(ZoneTrouble::Unusable(format!(
                    "pvtz.zone_name: {} zones {name:?} are bound to the VPC {vpc}; state pvtz.zone_id instead",
                    several.len()
                ))),
            };
        };
        match self.pvtz.describe_zone(id).await? {
            None => Err(unusable(id, "it does not exist in this account; create it, or correct the id")),
            Some((_, vpcs)) if !vpcs.iter().any(|bound| bound == vpc) => {
                let bound = if vpcs.is_empty() { "no VPC".to_owned() } else { vpcs.join(", ") };
                let why =
                    format!("it is bound to {bound}, not to the VPC {vpc} of the cluster; bind it to that as well");
                Err(unusable(id, &why))
            }
            Some((zone, _)) => Ok(zone),
        }
    }

    /// What the zone should hold.
    pub(super) fn wanted(&self, rules: &RecordRules) -> Result<WantedRecords, ZoneTrouble> {
        let Watches { services, endpoints, nodes } = self.watches;
        let all = services.store.all();
        if all.is_empty() {
            let text = "the API server lists no Service, not even its own, so the list cannot be right";
            return Err(ZoneTrouble::Unusable(text.to_owned()));
        }
        let options = &self.config.pvtz;
        let rules = NamingRules {
            zone: rules.zone.clone(),
            types: options.record_types.iter().copied().collect(),
            namespaces: options.namespaces.iter().cloned().collect(),
            nodes: options.nodes,
        };
        let endpoints = |service: &ObjectKey| match endpoints.store.look_up(service) {
            StoreEntry::Kept(endpoints) => Some(endpoints),
            // Not even the Service of the API server has any, if none is there.
            StoreEntry::Absent => (!endpoints.store.is_empty()).then(Arc::default),
            StoreEntry::Skipped => None,
        };
        let mut wanted = desire(all.iter().map(AsRef::as_ref), endpoints, &nodes.store.all(), &rules);
        wanted.unknown.extend(services.store.skipped().into_iter().chain(nodes.store.skipped()));
        Ok(wanted)
    }

    /// The zone, with what a list shows of its records.
    pub(super) async fn list(&self, zone: PrivateZone) -> Result<ZoneState, ZoneTrouble> {
        match self.pvtz.list_records(&zone.id).await {
            Ok((records, is_whole)) => Ok(ZoneState { zone, records, is_whole, unsure: BTreeMap::new() }),
            Err(fault) => Err(no_zone(&zone.id, fault)),
        }
    }

    /// Reads what `plan` is about: single names, or all records where that takes fewer calls.
    pub(super) async fn refresh(&self, state: &mut ZoneState, plan: &RecordPlan) -> Result<ZoneReads, ZoneTrouble> {
        let names = plan.steps.iter().chain(&plan.withheld).map(|step| step.content().name.clone());
        let mut names: BTreeSet<String> = names.chain(state.unsure.keys().cloned()).collect();
        let mut reads = ZoneReads::default();
        if state.is_whole && names.len() > state.records.len() / PAGE {
            let listed = self.list(state.zone.clone()).await?;
            *state = ZoneState { unsure: std::mem::take(&mut state.unsure), ..listed };
            reads.all = state.is_whole;
            if state.is_whole {
                names.clear();
            }
        }
        let mut stopped: Option<Fault> = None;
        for name in names.into_iter().take(MOST_NAMES) {
            let read = match &stopped {
                Some(fault) => Err(fault.clone()),
                None => self.pvtz.records_of(&state.zone.id, &name).await,
            };
            match read {
                Ok(fresh) => {
                    state.records.retain(|record| !record.name.eq_ignore_ascii_case(&name));
                    state.records.extend(fresh);
                    reads.names.insert(name);
                }
                Err(fault) if fault.kind == FaultKind::Gone => return Err(no_zone(&state.zone.id, fault)),
                Err(fault) => {
                    stopped = Some(fault.clone()).filter(|fault| !concerns_one(fault.kind));
                    reads.faults.insert(name, fault);
                }
            }
        }
        state.unsure.retain(|name, (_, since)| reads.has(name).is_err() || since.elapsed() < LISTS_CATCH_UP);
        Ok(reads)
    }
}

/// What it means that records could not be read.
fn no_zone(zone_id: &str, fault: Fault) -> ZoneTrouble {
    match fault.kind {
        FaultKind::Gone => unusable(zone_id, "it does not exist any more"),
        _ => fault.into(),
    }
}

fn unusable(zone_id: &str, why: &str) -> ZoneTrouble {
    ZoneTrouble::Unusable(format!("the zone {zone_id} cannot be used: {why}"))
}
