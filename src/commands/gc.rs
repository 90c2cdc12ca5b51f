//! `gc`: what carries our proof of ownership in the cloud and has no owner any more.
//!
//! Proof is what only this program and the official controller write: on a load balancer the tag with the cluster's id
//! together with the mark tag, on a route entry the description with the cluster's id and the node. A name alone proves
//! nothing. One look deletes nothing: with `--delete`, what is still an orphan at a second look is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::connect::connect;
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::alibaba::{CloudClient, Fault};
use crate::cli::Output;
use crate::config::Config;
use crate::controllers::Clients;
use crate::fence::{Permit, fence};
use crate::plan::clb::orphans::{OrphanedInstance, orphaned_instances};
use crate::plan::route::entry::{RouteEntry, RouteItem};
use crate::plan::route::orphans::{OrphanedRoute, orphaned_routes};

/// The longest time that one deletion may take.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// Something of ours without an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Orphan {
    LoadBalancer(OrphanedInstance),
    Route(OrphanedRoute),
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadBalancer(instance) => instance.fmt(f),
            Self::Route(route) => route.fmt(f),
        }
    }
}

/// What was found, and what was done about it.
#[derive(Default, Serialize)]
struct Findings {
    /// What has no owner; after `--delete`, what is left.
    orphans: BTreeSet<Orphan>,
    /// What was deleted.
    deleted: BTreeSet<Orphan>,
    /// What could not be read or deleted, and why.
    problems: Vec<String>,
}

pub(super) fn run(config: &Config, delete_after: Option<u64>, output: Output) -> CommandResult {
    let found = runtime()?.block_on(collect(config, delete_after.map(Duration::from_secs)))?;
    print_findings(output, &found.to_text(), &found)?;
    Ok(match (found.problems.is_empty(), found.orphans.is_empty()) {
        (false, _) => Ended::Incomplete,
        (true, true) => Ended::Done,
        (true, false) => Ended::SomethingToDo,
    })
}

/// Looks for orphans; with `delete_after`, looks again after that time and deletes what both looks found.
async fn collect(config: &Config, delete_after: Option<Duration>) -> Result<Findings, CommandError> {
    let first = look(&connect(config).await?, config).await;
    let Some(pause) = delete_after.filter(|_| !first.orphans.is_empty()) else { return Ok(first) };
    tokio::time::sleep(pause).await;
    // A new connection, so that the second look does not reuse anything that the first one read.
    let clients = connect(config).await?;
    let mut found = look(&clients, config).await;
    let (keeper, fence) = fence();
    // No controller writes to an orphan, so the leader need not be asked.
    keeper.lead_unbounded();
    for orphan in first.orphans.intersection(&found.orphans.clone()) {
        let Ok(permit) = fence.permit(LONGEST_WRITE) else { break };
        match delete(&clients.cloud, &permit, orphan).await {
            Ok(()) => {
                found.orphans.remove(orphan);
                found.deleted.insert(orphan.clone());
            }
            Err(why) => found.problems.push(format!("{orphan}: {why}")),
        }
    }
    Ok(found)
}

async fn look(clients: &Clients, config: &Config) -> Findings {
    let (services, nodes) = (clients.cluster.services(), clients.cluster.nodes());
    tokio::join!(services.store.synced(), nodes.store.synced());
    let (services, nodes) = (services.store.all(), nodes.store.all());
    let tag = (config.cloud.cluster_tag.as_str(), config.cloud.cluster_id.as_str());
    let mut findings = Findings::default();
    // Every cluster has at least the Service of its own API server, and a node: a list without any is a broken list.
    if services.is_empty() {
        findings.problems.push("the API server shows no Service at all; no load balancer is judged".to_owned());
    } else {
        match clients.cloud.slb.find_by_tag(tag.0, tag.1).await {
            Ok(instances) => {
                let orphans = orphaned_instances(&instances, &services, tag);
                findings.orphans.extend(orphans.into_iter().map(Orphan::LoadBalancer));
            }
            Err(fault) => findings.problems.push(format!("load balancers could not be listed: {fault}")),
        }
    }
    if nodes.is_empty() {
        findings.problems.push("the API server shows no node at all; no route is judged".to_owned());
    } else {
        match routes(clients, config).await {
            Ok(tables) => {
                let orphans = orphaned_routes(&tables, &nodes, &config.cloud.cluster_id);
                findings.orphans.extend(orphans.into_iter().map(Orphan::Route));
            }
            Err(fault) => findings.problems.push(format!("routes could not be listed: {fault}")),
        }
    }
    findings
}

/// The entries of each route table.
async fn routes(clients: &Clients, config: &Config) -> Result<BTreeMap<String, Vec<RouteEntry>>, Fault> {
    let vpc = &clients.cloud.vpc;
    let ids = match config.route.table_ids.as_slice() {
        [] => vpc.describe_route_tables(&clients.location.vpc_id).await?.into_iter().map(|table| table.id).collect(),
        stated => stated.to_vec(),
    };
    let mut tables = BTreeMap::new();
    for id in ids {
        let entries = vpc.describe_route_entries(&id).await?;
        tables.insert(id, entries);
    }
    Ok(tables)
}

async fn delete(cloud: &CloudClient, permit: &Permit, orphan: &Orphan) -> Result<(), String> {
    let text = |fault: Fault| fault.to_string();
    match orphan {
        Orphan::LoadBalancer(OrphanedInstance { id, .. }) => {
            cloud.slb.set_delete_protection(permit, id, false).await.map_err(text)?;
            cloud.slb.delete_instance(permit, id).await.map_err(text)
        }
        Orphan::Route(OrphanedRoute { table, destination, instance, .. }) => {
            let item = RouteItem {
                table_id: table.clone(),
                destination: *destination,
                instance_id: instance.clone(),
                name: String::new(),
                description: String::new(),
            };
            let failed = cloud.vpc.delete_route_entries(permit, &[item]).await.map_err(text)?;
            failed.first().map_or(Ok(()), |item| Err(format!("{} [{}]", item.message, item.code)))
        }
    }
}

impl Findings {
    /// One line each.
    fn to_text(&self) -> String {
        let mut text = String::new();
        for (what, orphans) in [("without owner", &self.orphans), ("deleted", &self.deleted)] {
            for orphan in orphans {
                let _ = writeln!(text, "{what}: {orphan}");
            }
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        if text.is_empty() {
            text.push_str("Nothing is without an owner.\n");
        }
        text
    }
}
