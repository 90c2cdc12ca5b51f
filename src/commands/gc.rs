//! `gc`: what carries our proof of ownership in the cloud and has no owner any more.
//!
//! Marks are what only this program and the official controller write: on a load balancer the tag with the cluster's id
//! together with the mark tag, on a route entry the description with the cluster's id and the node, on a record of a private
//! zone the remark that is made of the cluster's id and uid. A name alone proves
//! nothing, and neither does the id alone, which another cluster can have: the uid of the cluster must be in the marks. What has
//! the id alone is deleted only if a person names it; what another cluster made is never deleted.
//!
//! One look deletes nothing: with `--delete`, what is still an orphan at a second look is deleted.

mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::connect::connect;
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::cli::OutputFormat;
use crate::config::Config;
use crate::controllers::{Clients, pvtz, service};
use crate::fence::{Fence, Permit, fence};
use crate::plan::location::CloudLocation;
use crate::plan::provenance::{Provenance, Unclaimed};
use crate::plan::pvtz::orphans::OrphanedRecord;
use crate::plan::route::entry::{RouteEntry, RouteItem};
use crate::plan::route::mark::RouteCluster;
use crate::plan::route::orphans::{OrphanedRoute, unclaimed_routes};
use crate::plan::service::orphans::{OrphanedGroup, OrphanedInstance};

/// The longest time that one write may take.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// What is to be deleted.
#[derive(Debug)]
pub(super) struct Deletion {
    /// Only these; empty for every orphan that is proven to be this cluster's.
    pub(super) ids: BTreeSet<String>,
    /// Between the two looks.
    pub(super) pause: Duration,
}

/// Something with our marks and without an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(super) enum Orphan {
    LoadBalancer(OrphanedInstance),
    Group(OrphanedGroup),
    Route(OrphanedRoute),
    Record(OrphanedRecord),
}

impl Orphan {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::LoadBalancer(instance) => &instance.id,
            Self::Group(group) => &group.id,
            Self::Route(route) => &route.id,
            Self::Record(record) => &record.id,
        }
    }
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadBalancer(instance) => instance.fmt(f),
            Self::Group(group) => group.fmt(f),
            Self::Route(route) => route.fmt(f),
            Self::Record(record) => record.fmt(f),
        }
    }
}

/// Something that is not deleted, or only if a person names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Doubtful {
    #[serde(flatten)]
    pub(super) what: Orphan,
    /// The evidence.
    pub(super) why: String,
}

/// What was found, and what was done about it.
#[derive(Default, Serialize)]
pub(super) struct Findings {
    /// What is proven to be this cluster's and has no owner; after `--delete`, what is left.
    pub(super) orphans: BTreeSet<Orphan>,
    /// What has no owner in this cluster, and may have one in another.
    pub(super) unproven: BTreeSet<Doubtful>,
    /// What another cluster with the same id made.
    pub(super) other_clusters: BTreeSet<Doubtful>,
    /// What was deleted.
    deleted: BTreeSet<Orphan>,
    /// What could not be read or deleted, and why.
    pub(super) problems: Vec<String>,
}

pub(super) fn run(config: &Config, deletion: Option<&Deletion>, output: OutputFormat) -> CommandResult {
    let found = runtime()?.block_on(collect(config, deletion))?;
    print_findings(output, &found.to_text(), &found)?;
    Ok(match (found.problems.is_empty(), found.orphans.is_empty() && found.unproven.is_empty()) {
        (false, _) => Ended::Incomplete,
        (true, true) => Ended::Done,
        (true, false) => Ended::SomethingToDo,
    })
}

/// Looks for orphans; with a `deletion`, looks again after its pause and deletes what both looks found.
async fn collect(config: &Config, deletion: Option<&Deletion>) -> Result<Findings, CommandError> {
    let mut first = look(&connect(config).await?, config).await;
    let Some(deletion) = deletion else { return Ok(first) };
    let chosen = first.choose(deletion);
    if chosen.is_empty() {
        return Ok(first);
    }
    tokio::time::sleep(deletion.pause).await;
    // A new connection, so that the second look does not reuse anything that the first one read.
    let clients = connect(config).await?;
    let mut found = look(&clients, config).await;
    let (keeper, fence) = fence();
    // No controller writes to an orphan, so the leader need not be asked.
    keeper.lead_unbounded();
    for orphan in chosen.intersection(&found.choose(deletion)) {
        match delete(&clients.cloud, &fence, orphan).await {
            Ok(()) => {
                found.orphans.remove(orphan);
                found.unproven.retain(|doubtful| doubtful.what != *orphan);
                found.deleted.insert(orphan.clone());
            }
            Err(why) => found.problems.push(format!("{orphan}: {why}")),
        }
    }
    Ok(found)
}

pub(super) async fn look(clients: &Clients, config: &Config) -> Findings {
    let cluster = &clients.cluster;
    let (services, nodes) = (cluster.services(), cluster.nodes());
    tokio::join!(services.store.synced(), nodes.store.synced(), cluster.identify());
    let (services, nodes) = (services.store.all(), nodes.store.all());
    let mut findings = Findings::default();
    // Every cluster has at least the Service of its own API server, and a node: a list without any is a broken list.
    if services.is_empty() && !cluster.lists_any_service().await {
        findings.problems.push("the API server shows no Service at all; no load balancer is judged".to_owned());
    } else {
        match service::unclaimed(clients, config, &services).await {
            Ok(found) => {
                match service::unclaimed_groups(clients, config, &services, &found).await {
                    Ok(groups) => findings.add(groups, Orphan::Group),
                    Err(fault) => findings.problems.push(format!("server groups could not be listed: {fault}")),
                }
                findings.add(found, Orphan::LoadBalancer);
            }
            Err(fault) => findings.problems.push(format!("load balancers could not be listed: {fault}")),
        }
    }
    if nodes.is_empty() {
        findings.problems.push("the API server shows no node at all; no route is judged".to_owned());
    } else {
        match routes(&clients.cloud, &clients.location, config).await {
            Ok(tables) => {
                let cluster = RouteCluster { id: config.cloud.cluster_id.clone(), uid: cluster.uid().to_owned() };
                findings.add(unclaimed_routes(&tables, &nodes, &cluster), Orphan::Route);
            }
            Err(fault) => findings.problems.push(format!("routes could not be listed: {fault}")),
        }
    }
    match pvtz::orphans(clients, config).await {
        Ok(found) => findings.orphans.extend(found.into_iter().map(Orphan::Record)),
        Err(why) => findings.problems.push(format!("no record of the private zone is judged: {why}")),
    }
    findings
}

/// The entries of each route table.
pub(super) async fn routes(
    cloud: &CloudClient,
    location: &CloudLocation,
    config: &Config,
) -> Result<BTreeMap<String, Vec<RouteEntry>>, Fault> {
    let vpc = &cloud.vpc;
    let ids = match config.route.table_ids.as_slice() {
        [] => vpc.describe_route_tables(&location.vpc_id).await?.into_iter().map(|table| table.id).collect(),
        stated => stated.to_vec(),
    };
    let mut tables = BTreeMap::new();
    for id in ids {
        let entries = vpc.describe_route_entries(&id).await?;
        tables.insert(id, entries);
    }
    Ok(tables)
}

/// A permit for one write: a deletion can consist of several, with minutes between them.
fn permit(fence: &Fence) -> Result<Permit, Fault> {
    let not_leading = |_| Fault::new("gc", FaultKind::NotLeading, "this process may no longer write");
    fence.permit(LONGEST_WRITE).map_err(not_leading)
}

async fn delete(cloud: &CloudClient, fence: &Fence, orphan: &Orphan) -> Result<(), String> {
    let text = |fault: Fault| fault.to_string();
    let permit = || permit(fence).map_err(text);
    match orphan {
        Orphan::LoadBalancer(orphan) if orphan.id.starts_with("nlb-") => {
            network::delete(cloud, fence, orphan).await.map_err(text)
        }
        Orphan::LoadBalancer(OrphanedInstance { id, .. }) => {
            cloud.slb.set_delete_protection(&permit()?, id, false).await.map_err(text)?;
            cloud.slb.delete_instance(&permit()?, id).await.map_err(text)
        }
        Orphan::Group(group) => network::delete_group(cloud, fence, group).await.map_err(text),
        Orphan::Record(OrphanedRecord { id, .. }) => cloud.pvtz.delete_record(&permit()?, id).await.map_err(text),
        Orphan::Route(OrphanedRoute { table, destination, instance, .. }) => {
            let item = RouteItem {
                table_id: table.clone(),
                destination: *destination,
                instance_id: instance.clone(),
                name: String::new(),
                description: String::new(),
            };
            let failed = cloud.vpc.delete_route_entries(&permit()?, &[item]).await.map_err(text)?;
            failed.first().map_or(Ok(()), |item| Err(format!("{} [{}]", item.message, item.code)))
        }
    }
}

impl Findings {
    fn add<T>(&mut self, found: Vec<Unclaimed<T>>, orphan: fn(T) -> Orphan) {
        for Unclaimed { what, provenance } in found {
            let what = orphan(what);
            let _is_new = match provenance {
                Provenance::ThisCluster => self.orphans.insert(what),
                Provenance::Unproven(why) => self.unproven.insert(Doubtful { what, why }),
                Provenance::OtherCluster(why) => self.other_clusters.insert(Doubtful { what, why }),
            };
        }
    }

    /// What may be deleted. Each id that may not is a problem.
    fn choose(&mut self, deletion: &Deletion) -> BTreeSet<Orphan> {
        if deletion.ids.is_empty() {
            return self.orphans.clone();
        }
        let by_id = |id: &String| {
            let is = |orphan: &&Orphan| orphan.id() == id;
            let unproven = self.unproven.iter().map(|doubtful| &doubtful.what);
            let chosen: Vec<Orphan> = self.orphans.iter().chain(unproven).filter(is).cloned().collect();
            match self.other_clusters.iter().find(|doubtful| is(&&doubtful.what)) {
                Some(Doubtful { why, .. }) => Err(format!("{id} is another cluster's and is not deleted: {why}")),
                None if chosen.is_empty() => Err(format!("{id} is not among what has no owner; it is not deleted")),
                None => Ok(chosen),
            }
        };
        let (chosen, refused): (Vec<_>, Vec<_>) = deletion.ids.iter().map(by_id).partition(Result::is_ok);
        self.problems.extend(refused.into_iter().filter_map(Result::err));
        chosen.into_iter().flatten().flatten().collect()
    }

    /// One line each.
    fn to_text(&self) -> String {
        let mut text = String::new();
        for (what, orphans) in [("without owner", &self.orphans), ("deleted", &self.deleted)] {
            for orphan in orphans {
                let _ = writeln!(text, "{what}: {orphan}");
            }
        }
        for Doubtful { what, why } in &self.unproven {
            let id = what.id();
            let _ = writeln!(
                text,
                "may be another cluster's: {what}; {why}. It is kept; if it is certain that no cluster needs it: \
                 alicloud-ccm gc --delete {id}"
            );
        }
        for Doubtful { what, why } in &self.other_clusters {
            let _ = writeln!(text, "another cluster's: {what}; {why}. It is kept");
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
