//! A route entry, and a record in a private zone.

use alicloud_ccm::plan::pvtz::diff::RecordRules;
use alicloud_ccm::plan::pvtz::{RecordContent, RecordType};

use super::super::run::{ADDRESS, NAME, ROUTE, Run, Stop, done, ready};
use super::Step;

pub(super) const ROUTES: &[Step] = super::steps![
    "read the route tables of the VPC", run => {
        let tables = run.cloud.vpc.describe_route_tables(&run.place.vpc).await?;
        let system = tables.into_iter().find(|table| table.kind.eq_ignore_ascii_case("system"));
        run.made("route table", system.ok_or(Stop::Lacks("system route table"))?.id)
    };
    "make the entry", run => done(run.cloud.vpc.create_route_entries(&run.permit, &[run.route()?]).await);
    "make the entry a second time", run => done(run.cloud.vpc.create_route_entries(&run.permit, &[run.route()?]).await);
    "find the entry available", run => {
        let entries = run.cloud.vpc.describe_route_entries(&run.id("route table")?).await?;
        ready(entries.iter().any(|entry| entry.destination.to_string() == ROUTE && entry.is_settled()))
    };
    "delete the entry", run => done(run.cloud.vpc.delete_route_entries(&run.permit, &[run.route()?]).await);
    "find the entry no longer", run => {
        let entries = run.cloud.vpc.describe_route_entries(&run.id("route table")?).await?;
        ready(!entries.iter().any(|entry| entry.destination.to_string() == ROUTE))
    };
    "delete the entry a second time", run => {
        done(run.cloud.vpc.delete_route_entries(&run.permit, &[run.route()?]).await)
    };
];

pub(super) const RECORDS: &[Step] = super::steps![
    "read a zone that is not there", run => done(run.cloud.pvtz.describe_zone("conformance0").await);
    "make a record", run => {
        let made = run.cloud.pvtz.add_record(&run.permit, zone(run)?, &content(ADDRESS), &rules(run)).await?;
        run.made("record", made)
    };
    "make the record a second time", run => {
        done(run.cloud.pvtz.add_record(&run.permit, zone(run)?, &content(ADDRESS), &rules(run)).await)
    };
    "find the record", run => {
        let found = run.cloud.pvtz.records_of(zone(run)?, NAME).await?;
        ready(!found.is_empty())
    };
    "change the record", run => {
        let slower = RecordRules { ttl: 30, ..rules(run) };
        done(run.cloud.pvtz.update_record(&run.permit, &run.id("record")?, &content(ADDRESS), &slower).await)
    };
    "find its new time to live and its old remark", run => {
        let found = run.cloud.pvtz.records_of(zone(run)?, NAME).await?;
        ready(found.iter().any(|record| record.ttl == 30))
    };
    "delete the record", run => done(run.cloud.pvtz.delete_record(&run.permit, &run.id("record")?).await);
    "delete the record a second time", run => {
        done(run.cloud.pvtz.delete_record(&run.permit, &run.id("record")?).await)
    };
    "change the deleted record", run => {
        done(run.cloud.pvtz.update_record(&run.permit, &run.id("record")?, &content(ADDRESS), &rules(run)).await)
    };
];

fn zone(run: &Run) -> Result<&str, Stop> {
    run.place.private_zone.as_deref().ok_or(Stop::Lacks("private zone"))
}

fn content(address: &str) -> RecordContent {
    RecordContent { name: NAME.into(), kind: RecordType::A, value: address.into() }
}

fn rules(run: &Run) -> RecordRules {
    RecordRules { remark: run.mark(), ttl: 60, zone: "conformance.example".into() }
}
