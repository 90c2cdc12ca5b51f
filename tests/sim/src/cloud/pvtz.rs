//! PrivateZone, version 2018-01-01: zones and their records.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::actions::{Action, Context, Product, once, page};
use super::protocol::{ApiError, Params};

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateZone {
    /// Such as `cluster.example`.
    pub name: String,
    /// VPCs that it is bound to.
    pub vpcs: Vec<String>,
    /// By id.
    pub records: BTreeMap<u64, ZoneRecord>,
}

/// A record of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneRecord {
    /// Host record; `@` for the zone itself.
    pub name: String,
    /// `A`, `AAAA`, `CNAME`, `TXT`, `MX`, `PTR` or `SRV`.
    pub kind: String,
    /// What it leads to.
    pub value: String,
    /// Seconds.
    pub ttl: i64,
    /// Free text.
    pub remark: String,
}

impl PrivateZone {
    /// A zone without records that is bound to a VPC.
    #[must_use]
    pub fn new(name: &str, vpc: &str) -> Self {
        Self { name: name.into(), vpcs: vec![vpc.into()], records: BTreeMap::new() }
    }

    /// Each record as `name type value`, ordered.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> =
            self.records.values().map(|it| format!("{} {} {}", it.name, it.kind, it.value)).collect();
        lines.sort();
        lines
    }
}

const TYPES: &[&str] = &["A", "AAAA", "CNAME", "TXT", "MX", "PTR", "SRV"];
const TTLS: [i64; 6] = [5, 30, 60, 3600, 43_200, 86_400];

pub(crate) fn actions() -> Vec<Action> {
    let read = |name, parameters, run| Action::read(Product::Pvtz, name, parameters, run);
    let write = |name, parameters, run| Action::write(Product::Pvtz, name, parameters, run);
    vec![
        read(
            "DescribeZones",
            "Keyword SearchMode ZoneType QueryVpcId QueryRegionId ResourceGroupId PageNumber PageSize Lang",
            describe_zones,
        )
        .documented("parameters, answer, `LIKE` by default")
        .assumed("order by id; several filters must all match")
        .listing("/Zones/Zone"),
        read("DescribeZoneInfo", "ZoneId! Lang", describe_zone)
            .documented("parameters, answer, `Zone.NotExists`")
            .assumed("type and proxy pattern are constants"),
        read(
            "DescribeZoneRecords",
            "ZoneId! Keyword SearchMode PageNumber PageSize Lang Tag UserClientIp",
            describe_records,
        )
        .documented("parameters, answer, `EXACT` by default, whatever the case")
        .assumed("order by id, so that a page moves when a record before it goes")
        .listing("/Records/Record"),
        write(
            "AddZoneRecord",
            "ZoneId! Rr! Type! Value! Ttl Priority Weight Line Remark ClientToken Lang UserClientIp",
            add_record,
        )
        .documented("parameters, lifetimes, `Zone.Remark`, one record per value")
        .observed("`Record.Invalid.Conflict`", "terraform-provider-alicloud")
        .assumed("`QuotaExceeded.Record`, `InvalidParameter`; the quota"),
        write(
            "UpdateZoneRecord",
            "RecordId! Rr! Type! Value! Ttl Priority Weight Line ClientToken Lang",
            update_record,
        )
        .documented("parameters, answer")
        .assumed("`Record.NotExists`, `Record.Invalid.Conflict`; the remark stays"),
        write("DeleteZoneRecord", "RecordId! ClientToken Lang", delete_record)
            .documented("parameters, answer")
            .assumed("`Record.NotExists` for a record that is gone"),
    ]
}

/// Whether `Keyword` and `SearchMode` choose a text.
fn is_chosen(params: &Params, default: &str, text: &str) -> Result<bool, ApiError> {
    let mode = params.one_of("SearchMode", &["EXACT", "LIKE"])?.unwrap_or(default);
    let (word, text) = (params.get("Keyword").map(str::to_lowercase), text.to_lowercase());
    Ok(word.is_none_or(|word| if mode == "EXACT" { text == word } else { text.contains(&word) }))
}

/// One page by number; this product counts in its own words.
fn counted(params: &Params, items: Vec<Value>) -> Result<(Vec<Value>, Value), ApiError> {
    let (items, mut body) = page(params, items, 20, 100)?;
    let total = body["TotalCount"].as_i64().unwrap_or(0);
    let size = body["PageSize"].as_i64().unwrap_or(1).max(1);
    body = json!({"TotalItems": total, "TotalPages": (total + size - 1) / size, "PageNumber": body["PageNumber"],
        "PageSize": size});
    Ok((items, body))
}

fn shown_zone(id: &str, zone: &PrivateZone) -> Value {
    json!({"ZoneId": id, "ZoneName": zone.name, "ZoneType": "AUTH_ZONE", "ProxyPattern": "ZONE", "IsPtr": false,
        "RecordCount": zone.records.len(), "Remark": "", "ResourceGroupId": "rg-default"})
}

fn describe_zones(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let mut found = Vec::new();
    for (id, zone) in &cx.account.private_zones {
        let in_region = cx.params.get("QueryRegionId").is_none_or(|region| region == cx.account.region);
        let bound = cx.params.get("QueryVpcId").is_none_or(|vpc| in_region && zone.vpcs.iter().any(|it| it == vpc));
        if bound && is_chosen(cx.params, "LIKE", &zone.name)? {
            found.push(shown_zone(id, zone));
        }
    }
    let (items, mut body) = counted(cx.params, found)?;
    body["Zones"] = json!({"Zone": items});
    Ok(body)
}

fn describe_zone(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ZoneId")?;
    let zone = cx.account.private_zones.get(id).ok_or_else(no_zone)?;
    let vpc = |id: &String| json!({"VpcId": id, "VpcName": "", "VpcType": "STANDARD", "RegionId": cx.account.region});
    let mut body = shown_zone(id, zone);
    body["BindVpcs"] = json!({"Vpc": zone.vpcs.iter().map(vpc).collect::<Vec<_>>()});
    Ok(body)
}

fn describe_records(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    const OTHERS: u64 = u64::MAX;
    let id = cx.params.need("ZoneId")?;
    let is_busy = cx.account.dials.busy_zones && cx.params.get("Keyword").is_none();
    let zone = cx.account.private_zones.get_mut(id).ok_or_else(no_zone)?;
    if is_busy && zone.records.remove(&OTHERS).is_none() {
        let record = ZoneRecord { name: "busy".into(), kind: "TXT".into(), value: "1".into(), ..ZoneRecord::default() };
        zone.records.insert(OTHERS, record);
    }
    let mut found = Vec::new();
    for (record_id, it) in &zone.records {
        if is_chosen(cx.params, "EXACT", &it.name)? {
            found.push(json!({"RecordId": record_id, "Rr": it.name, "Type": it.kind, "Value": it.value, "Ttl": it.ttl,
                "Status": "ENABLE", "Remark": it.remark, "Weight": 1, "Line": "default", "ZoneId": id}));
        }
    }
    let (items, mut body) = counted(cx.params, found)?;
    body["Records"] = json!({"Record": items});
    Ok(body)
}

fn no_zone() -> ApiError {
    ApiError::new(400, "Zone.NotExists", "The zone does not exist.")
}

fn no_record() -> ApiError {
    ApiError::new(400, "Record.NotExists", "The record does not exist.")
}

/// The record that the parameters describe, checked by itself.
fn record(params: &Params) -> Result<ZoneRecord, ApiError> {
    let kind = params.one_of("Type", TYPES)?.unwrap_or_default().to_owned();
    let (name, value) = (params.need("Rr")?.to_owned(), params.need("Value")?.to_owned());
    let ttl = params.number("Ttl")?.unwrap_or(60);
    if !TTLS.contains(&ttl) {
        return Err(ApiError::invalid("Ttl", "5, 30, 60, 3600, 43200 and 86400 are allowed"));
    }
    let fits = match kind.as_str() {
        "A" => value.parse::<std::net::Ipv4Addr>().is_ok(),
        "AAAA" => value.parse::<std::net::Ipv6Addr>().is_ok(),
        "SRV" => value.split(' ').count() == 4,
        _ => !value.contains(' '),
    };
    if !fits || name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(ApiError::new(400, "InvalidParameter", format!("{name} {kind} {value} is not a record.")));
    }
    Ok(ZoneRecord { name, kind, value, ttl, remark: params.get("Remark").unwrap_or_default().to_owned() })
}

/// Whether a record can be in a zone beside all but `except`.
fn admit(zone: &PrivateZone, new: &ZoneRecord, except: Option<u64>) -> Result<(), ApiError> {
    let others = zone.records.iter().filter(|(id, it)| Some(**id) != except && it.name.eq_ignore_ascii_case(&new.name));
    for (_, other) in others {
        let doubled = (&other.kind, &other.value) == (&new.kind, &new.value);
        if doubled || other.kind == "CNAME" || new.kind == "CNAME" {
            return Err(ApiError::new(400, "Record.Invalid.Conflict", "The record conflicts with another one."));
        }
    }
    Ok(())
}

fn add_record(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    once(cx, "IdempotentParameterMismatch", |cx| {
        let new = record(cx.params)?;
        let legal = |it: char| it.is_alphanumeric() || "_-,.".contains(it);
        if new.remark.chars().count() > 50 || !new.remark.chars().all(legal) {
            return Err(ApiError::new(400, "Zone.Remark", "The remark is not valid."));
        }
        let limit = cx.account.limits.zone_records;
        let zone = cx.account.private_zones.get_mut(cx.params.need("ZoneId")?).ok_or_else(no_zone)?;
        admit(zone, &new, None)?;
        if zone.records.len() >= limit {
            return Err(ApiError::new(400, "QuotaExceeded.Record", "The zone has too many records."));
        }
        cx.account.counter += 1;
        let id = cx.account.counter;
        zone.records.insert(id, new);
        Ok(json!({"RecordId": id, "Success": true}))
    })
}

/// The zone of the record that the parameters name, and its id.
fn place<'a>(cx: &'a mut Context<'_>) -> Result<(&'a mut PrivateZone, u64), ApiError> {
    let id = cx.params.need("RecordId")?.parse().map_err(|_| no_record())?;
    let zone = cx.account.private_zones.values_mut().find(|zone| zone.records.contains_key(&id));
    Ok((zone.ok_or_else(no_record)?, id))
}

fn update_record(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let mut new = record(cx.params)?;
    let (zone, id) = place(cx)?;
    admit(zone, &new, Some(id))?;
    let known = zone.records.get_mut(&id).ok_or_else(no_record)?;
    new.remark.clone_from(&known.remark);
    *known = new;
    Ok(json!({"RecordId": id}))
}

fn delete_record(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (zone, id) = place(cx)?;
    zone.records.remove(&id);
    Ok(json!({"RecordId": id}))
}
