//! PrivateZone (version 2018-01-01): zones and their records. One service for all regions.

use super::actions::{
    ADD_ZONE_RECORD, DELETE_ZONE_RECORD, DESCRIBE_ZONE, DESCRIBE_ZONE_RECORDS, DESCRIBE_ZONES, UPDATE_ZONE_RECORD,
};
use super::answer::{Fields, Mismatch};
use super::client::SigningClient;
use super::fault::{Fault, FaultKind};
use super::request::unique;
use crate::fence::Permit;
use crate::plan::pvtz::diff::RecordRules;
use crate::plan::pvtz::{RecordContent, ZoneRecord};

/// Largest page.
const PAGE: usize = 100;

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateZone {
    /// The cloud's id of it.
    pub id: String,
    /// Such as `cluster.example`.
    pub name: String,
}

/// Calls to PrivateZone.
#[derive(Clone, Debug)]
pub struct Pvtz(pub(super) SigningClient);

impl Pvtz {
    /// The zones that are bound to a VPC. Several can have the same name.
    ///
    /// # Errors
    /// As any call.
    pub async fn zones_of(&self, vpc_id: &str) -> Result<Vec<PrivateZone>, Fault> {
        let request = self.0.read(DESCRIBE_ZONES).with("QueryVpcId", vpc_id).with("QueryRegionId", self.0.region());
        Ok(unique(request.numbered("Zones", PAGE, zone).await?, |zone| &zone.id))
    }

    /// A zone and the VPCs that it is bound to; `None` if there is no such zone in this account.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_zone(&self, id: &str) -> Result<Option<(PrivateZone, Vec<String>)>, Fault> {
        let decode = |body: Fields<'_>| Ok((zone(body)?, body.list("BindVpcs", |vpc| vpc.text("VpcId"))?));
        match self.0.read(DESCRIBE_ZONE).one("ZoneId", id, decode).await {
            Ok(found) => Ok(Some(found)),
            Err(fault) if fault.kind == FaultKind::Gone => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// The records of a zone, as far as a list shows them that may change while it is read; and whether it shows all.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such zone.
    pub async fn list_records(&self, zone_id: &str) -> Result<(Vec<ZoneRecord>, bool), Fault> {
        let request = self.0.read(DESCRIBE_ZONE_RECORDS).with("ZoneId", zone_id);
        let (records, is_whole) = request.numbered_partial("Records", PAGE, record).await?;
        Ok((unique(records, |record| &record.id), is_whole))
    }

    /// The records of one name.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such zone.
    pub async fn records_of(&self, zone_id: &str, name: &str) -> Result<Vec<ZoneRecord>, Fault> {
        let request = self.0.read(DESCRIBE_ZONE_RECORDS).with("ZoneId", zone_id).with("Keyword", name);
        let request = request.with("SearchMode", "EXACT");
        let mut records = unique(request.numbered("Records", PAGE, record).await?, |record| &record.id);
        records.retain(|record| record.name.eq_ignore_ascii_case(name));
        Ok(records)
    }

    /// Makes a record and gives its id. The cloud refuses a second one that says the same, so there is no client token, which
    /// would keep a record that a user removed from being made again.
    ///
    /// # Errors
    /// As any write; [`FaultKind::Exists`] if the cloud says so.
    pub async fn add_record(
        &self,
        permit: &Permit,
        zone_id: &str,
        content: &RecordContent,
        rules: &RecordRules,
    ) -> Result<String, Fault> {
        let (kind, value) = (content.kind.as_str(), content.value_in(&rules.zone));
        let request = self.0.write(permit, ADD_ZONE_RECORD).with("ZoneId", zone_id).with("Rr", &content.name);
        let request = request.with("Type", kind).with("Value", value).with("Ttl", rules.ttl);
        request.with("Remark", &rules.remark).create("RecordId").await
    }

    /// Lets a record say something else; its remark stays.
    ///
    /// # Errors
    /// As any write; [`FaultKind::Gone`] if there is no such record.
    pub async fn update_record(
        &self,
        permit: &Permit,
        id: &str,
        content: &RecordContent,
        rules: &RecordRules,
    ) -> Result<(), Fault> {
        let (kind, value) = (content.kind.as_str(), content.value_in(&rules.zone));
        let request = self.0.write(permit, UPDATE_ZONE_RECORD).with("RecordId", id).with("Rr", &content.name);
        request.with("Type", kind).with("Value", value).with("Ttl", rules.ttl).done().await
    }

    /// Deletes a record; one that is gone counts as deleted.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_record(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        match self.0.write(permit, DELETE_ZONE_RECORD).with("RecordId", id).done().await {
            Err(fault) if fault.kind == FaultKind::Gone => Ok(()),
            done => done,
        }
    }
}

fn zone(body: Fields<'_>) -> Result<PrivateZone, Mismatch> {
    Ok(PrivateZone { id: body.text("ZoneId")?, name: body.text("ZoneName")? })
}

fn record(body: Fields<'_>) -> Result<ZoneRecord, Mismatch> {
    Ok(ZoneRecord {
        id: body.text("RecordId")?,
        name: body.text("Rr")?,
        kind: body.text("Type")?,
        value: body.text("Value")?,
        ttl: u32::try_from(body.number("Ttl")?).unwrap_or_default(),
        remark: body.text("Remark")?,
    })
}
