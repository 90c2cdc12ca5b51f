//! Which route tables routes go into, and their entries.

use std::collections::BTreeMap;

use thiserror::Error;
use tracing::debug;

use crate::alibaba::vpc::RouteTable;
use crate::alibaba::{CloudClient, Fault};
use crate::config::Config;
use crate::plan::location::CloudLocation;
use crate::plan::route::TableEntries;
use crate::plan::route::entry::RouteEntry;

/// Why the route tables cannot be read.
#[derive(Clone, Debug, Error)]
pub enum TablesFault {
    /// The cloud did not answer.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// There is no table.
    #[error("{vpc} has no route table; state route.table_ids, or correct cloud.vpc_id")]
    None {
        /// The VPC.
        vpc: String,
    },
    /// The tables are not stated, and there is more than one.
    #[error(
        "{vpc} has several route tables ({tables}); state in route.table_ids those that the vSwitches of the nodes use, no \
         route is changed until then"
    )]
    Several {
        /// The VPC.
        vpc: String,
        /// Their ids and kinds.
        tables: String,
    },
}

/// The tables that routes go into.
pub(super) async fn ids(
    cloud: &CloudClient,
    location: &CloudLocation,
    config: &Config,
) -> Result<Vec<String>, TablesFault> {
    match config.route.table_ids.as_slice() {
        [] => Ok(vec![the_only(&location.vpc_id, cloud.vpc.describe_route_tables(&location.vpc_id).await?)?]),
        stated => Ok(stated.to_vec()),
    }
}

/// Every table that may hold routes of the cluster, with its entries.
///
/// # Errors
/// The cloud did not answer.
pub async fn all_tables(
    cloud: &CloudClient,
    location: &CloudLocation,
    config: &Config,
) -> Result<Vec<TableEntries>, Fault> {
    let ids = match config.route.table_ids.as_slice() {
        [] => cloud.vpc.describe_route_tables(&location.vpc_id).await?.into_iter().map(|table| table.id).collect(),
        stated => stated.to_vec(),
    };
    read(cloud, &ids).await
}

/// Tables of the VPC that are not among the `stated` ones, with their entries; none if none is stated.
pub(super) async fn others(
    cloud: &CloudClient,
    location: &CloudLocation,
    stated: &[String],
) -> Result<Vec<TableEntries>, Fault> {
    if stated.is_empty() {
        return Ok(Vec::new());
    }
    let all = cloud.vpc.describe_route_tables(&location.vpc_id).await?;
    let ids: Vec<String> = all.into_iter().map(|table| table.id).filter(|id| !stated.contains(id)).collect();
    read(cloud, &ids).await
}

/// These tables with their entries.
pub(super) async fn read(cloud: &CloudClient, ids: &[String]) -> Result<Vec<TableEntries>, Fault> {
    let mut tables = Vec::new();
    for id in ids {
        let entries = cloud.vpc.describe_route_entries(id).await?;
        tables.push(TableEntries { id: id.clone(), entries });
    }
    Ok(tables)
}

/// Reads which entries lead elsewhere than to instances, by table. Where that fails, what is known stays: no step depends on it.
pub(super) async fn read_others(cloud: &CloudClient, ids: &[String], known: &mut BTreeMap<String, Vec<RouteEntry>>) {
    known.retain(|id, _| ids.contains(id));
    for id in ids {
        match cloud.vpc.describe_other_route_entries(id).await {
            Ok(entries) => drop(known.insert(id.clone(), entries)),
            Err(fault) => {
                debug!(table = id, %fault, "entries that lead elsewhere than to instances could not be listed")
            }
        }
    }
}

/// Adds such entries to tables that have only those to instances.
pub(super) fn add_others(tables: &mut [TableEntries], others: &BTreeMap<String, Vec<RouteEntry>>) {
    for table in tables {
        table.entries.extend(others.get(&table.id).into_iter().flatten().cloned());
    }
}

/// With several tables the program does not guess which ones the nodes use.
fn the_only(vpc: &str, tables: Vec<RouteTable>) -> Result<String, TablesFault> {
    match tables.as_slice() {
        [] => Err(TablesFault::None { vpc: vpc.to_owned() }),
        [one] => Ok(one.id.clone()),
        several => {
            let mut list: Vec<String> = several.iter().map(|table| format!("{}: {}", table.id, table.kind)).collect();
            list.sort();
            Err(TablesFault::Several { vpc: vpc.to_owned(), tables: list.join(", ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ids: &[&str]) -> Result<String, TablesFault> {
        let table = |id: &&str| RouteTable { id: (*id).to_owned(), kind: "Custom".into() };
        the_only("vpc-1", ids.iter().map(table).collect())
    }

    #[test]
    fn exactly_one_table_is_taken_without_being_stated() {
        assert_eq!(found(&["vtb-1"]).unwrap(), "vtb-1");
        assert!(matches!(found(&[]), Err(TablesFault::None { .. })));
        let several = found(&["vtb-2", "vtb-1"]).unwrap_err().to_string();
        assert!(several.contains("vtb-1: Custom, vtb-2: Custom") && several.contains("route.table_ids"), "{several}");
    }
}
