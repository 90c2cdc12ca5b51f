//! The command `gc`: what carries our proof in the cloud and belongs to nobody any more.
//!
//! Proof is what only this program and the official controller write: on a load balancer the tag with the cluster's id
//! together with the mark tag, on a route entry the description with the cluster's id and the node. A name alone proves
//! nothing. Nothing is removed by a single look: with `--delete`, what is still without an owner at a second look is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::alibaba::{CloudClient, Fault};
use crate::config::Config;
use crate::fence::{Permit, fence};
use crate::plan::clb::orphans::{OrphanedInstance, orphaned_instances};
use crate::plan::inputs::NodeView;
use crate::plan::provider_id::ProviderId;
use crate::plan::route::entry::{RouteEntry, RouteItem};
use crate::plan::route::mark;
use crate::preview::{PlanError, World, connect};

/// The longest time that one removal may take.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// Something of ours without a living owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Orphan {
    /// A load balancer whose Service is gone.
    LoadBalancer {
        /// `lb-...`
        id: String,
        /// Its visible name.
        name: String,
        /// The address it serves.
        address: String,
        /// Value of the mark tag: the default name, made of the UID of the Service that is gone.
        mark: String,
    },
    /// A route entry whose node is gone.
    Route {
        /// `vtb-...`
        table: String,
        /// The pod CIDR.
        destination: String,
        /// The instance it leads to.
        instance: String,
        /// The node that it was made for.
        node: String,
    },
}

impl From<OrphanedInstance> for Orphan {
    fn from(OrphanedInstance { id, name, address, mark }: OrphanedInstance) -> Self {
        Self::LoadBalancer { id, name, address, mark }
    }
}

impl Orphan {
    /// The id of the load balancer, or the destination of the route.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::LoadBalancer { id, .. } => id,
            Self::Route { destination, .. } => destination,
        }
    }
}

impl std::fmt::Display for Orphan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LoadBalancer { id, name, address, mark } => {
                write!(f, "load balancer {id} ({name}, {address}): no Service with the mark {mark}")
            }
            Self::Route { table, destination, instance, node } => {
                write!(f, "route {destination} to {instance} in {table}: no node {node}, and no other node needs it")
            }
        }
    }
}

/// What was found, and what became of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    /// What has no owner; after `--delete`, what is left.
    pub orphans: BTreeSet<Orphan>,
    /// What was removed.
    pub deleted: BTreeSet<Orphan>,
    /// What could not be looked at or removed, and why.
    pub problems: Vec<String>,
}

impl Findings {
    /// One line each.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut say = |what: &str, of: &BTreeSet<Orphan>| {
            for orphan in of {
                let _ = writeln!(text, "{what}: {orphan}");
            }
        };
        say("without owner", &self.orphans);
        say("deleted", &self.deleted);
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        if text.is_empty() {
            text.push_str("Nothing is without an owner.\n");
        }
        text
    }

    /// The same as one JSON document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Looks for what has no owner; with `delete`, looks again after that time and removes what still has none.
///
/// # Errors
/// [`PlanError`] if the cluster or the cloud cannot be reached at all.
pub async fn collect(config: &Config, delete: Option<Duration>) -> Result<Findings, PlanError> {
    let world = connect(config).await?;
    let first = look(&world, config).await;
    let Some(pause) = delete.filter(|_| !first.orphans.is_empty()) else { return Ok(first) };
    tokio::time::sleep(pause).await;
    // A new connection, so that the second look does not rest on what the first one had in its hands.
    let world = connect(config).await?;
    let mut found = look(&world, config).await;
    let (keeper, fence) = fence();
    // What nobody owns is nobody's work: whoever leads does not write there.
    keeper.lead_unbounded();
    for orphan in first.orphans.intersection(&found.orphans.clone()) {
        let Ok(permit) = fence.permit(LONGEST_WRITE) else { break };
        match remove(&world.cloud, &permit, orphan).await {
            Ok(()) => {
                found.orphans.remove(orphan);
                found.deleted.insert(orphan.clone());
            }
            Err(why) => found.problems.push(format!("{orphan}: {why}")),
        }
    }
    Ok(found)
}

async fn look(world: &World, config: &Config) -> Findings {
    let (services, nodes) = (world.cluster.services(), world.cluster.nodes());
    tokio::join!(services.store.synced(), nodes.store.synced());
    let (services, nodes) = (services.store.all(), nodes.store.all());
    let mut findings = Findings::default();
    // Every cluster has at least the Service of its own API server, and a node: a list without any is a broken list.
    if services.is_empty() {
        findings.problems.push("the API server shows no Service at all; no load balancer is judged".to_owned());
    } else {
        match world.cloud.slb.find_by_tag(&config.cloud.cluster_tag, &config.cloud.cluster_id).await {
            Ok(instances) => {
                let (tag, cluster) = (&config.cloud.cluster_tag, &config.cloud.cluster_id);
                let orphans = orphaned_instances(&instances, &services, (tag, cluster));
                findings.orphans.extend(orphans.into_iter().map(Orphan::from));
            }
            Err(fault) => findings.problems.push(format!("load balancers could not be listed: {fault}")),
        }
    }
    if nodes.is_empty() {
        findings.problems.push("the API server shows no node at all; no route is judged".to_owned());
    } else {
        match routes(world, config).await {
            Ok(tables) => findings.orphans.extend(orphaned_routes(&tables, &nodes, config)),
            Err(fault) => findings.problems.push(format!("routes could not be listed: {fault}")),
        }
    }
    findings
}

async fn routes(world: &World, config: &Config) -> Result<BTreeMap<String, Vec<RouteEntry>>, Fault> {
    let vpc = &world.cloud.vpc;
    let ids = match config.route.table_ids.as_slice() {
        [] => vpc.describe_route_tables(&world.place.vpc_id).await?.into_iter().map(|table| table.id).collect(),
        stated => stated.to_vec(),
    };
    let mut tables = BTreeMap::new();
    for id in ids {
        let entries = vpc.describe_route_entries(&id).await?;
        tables.insert(id, entries);
    }
    Ok(tables)
}

/// Entries with our mark that no node needs, and whose node is gone.
fn orphaned_routes(
    tables: &BTreeMap<String, Vec<RouteEntry>>,
    nodes: &[Arc<NodeView>],
    config: &Config,
) -> Vec<Orphan> {
    let needed = |destination: &str, instance: &str, made_for: &str| {
        nodes.iter().any(|node| {
            let is_its = ProviderId::parse(&node.provider_id).is_ok_and(|id| id.instance == instance);
            // The mark may hold only the beginning of a long name.
            node.name.starts_with(made_for) || is_its || node.pod_cidrs.iter().any(|cidr| cidr == destination)
        })
    };
    let entries = tables.iter().flat_map(|(table, entries)| entries.iter().map(move |entry| (table, entry)));
    entries
        .filter_map(|(table, entry)| {
            let made_for = mark::node(&config.cloud.cluster_id, &entry.description)?;
            let [(kind, instance)] = entry.next_hops.as_slice() else { return None };
            let destination = entry.destination.trunc().to_string();
            let ours = kind.eq_ignore_ascii_case("instance") && !needed(&destination, instance, made_for);
            ours.then(|| Orphan::Route {
                table: table.clone(),
                destination,
                instance: instance.clone(),
                node: made_for.to_owned(),
            })
        })
        .collect()
}

async fn remove(cloud: &CloudClient, permit: &Permit, orphan: &Orphan) -> Result<(), String> {
    let told = |fault: Fault| fault.to_string();
    match orphan {
        Orphan::LoadBalancer { id, .. } => {
            cloud.slb.set_delete_protection(permit, id, false).await.map_err(told)?;
            cloud.slb.delete_instance(permit, id).await.map_err(told)
        }
        Orphan::Route { table, destination, instance, .. } => {
            let Ok(destination) = destination.parse() else { return Ok(()) };
            let item = RouteItem {
                table_id: table.clone(),
                destination,
                instance_id: instance.clone(),
                name: String::new(),
                description: String::new(),
            };
            let failed = cloud.vpc.delete_route_entries(permit, &[item]).await.map_err(told)?;
            failed.first().map_or(Ok(()), |item| Err(format!("{} [{}]", item.message, item.code)))
        }
    }
}
