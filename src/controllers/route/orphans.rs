//! Route entries whose node does not exist, or whose table the file names no longer, for `gc`.

use super::tables;
use crate::alibaba::{CloudClient, FaultKind};
use crate::config::Config;
use crate::controllers::Clients;
use crate::controllers::orphan::{NotDeleted, Orphan, Orphans, Unjudged, owners, permit};
use crate::fence::Fence;
use crate::plan::route::entry::RouteItem;
use crate::plan::route::mark::RouteCluster;
use crate::plan::route::orphans::{OrphanedRoute, unclaimed_routes};

const UNJUDGED: &str = "no route is judged";

/// Entries that carry the marks of this cluster, and that no node needs.
pub async fn orphans(clients: &Clients, config: &Config) -> Orphans {
    let Clients { cluster, cloud, location } = clients;
    let watched = cluster.nodes();
    let mut orphans = Orphans::default();
    let problems = &mut orphans.problems;
    let found = async {
        let (listed, ()) = tokio::join!(watched.listed(), cluster.identify());
        listed.map_err(|why| Unjudged::unlisted(format!("{UNJUDGED}: {why}")))?;
        let nodes = owners(&watched.store).map_err(|why| format!("{UNJUDGED}: {why}"))?;
        if nodes.is_empty() {
            // Every cluster has a node: a list without any is a broken list.
            return Err(format!("{UNJUDGED}: the API server shows no node at all").into());
        }
        let tables = tables::all_tables(cloud, location, config).await;
        let mut tables =
            tables.map_err(|fault| Unjudged::by(&format!("{UNJUDGED}: routes could not be listed"), &fault))?;
        let stated = &config.route.table_ids;
        match tables::others(cloud, location, stated).await {
            Ok(others) => tables.extend(others),
            // The controller itself does without the permission.
            Err(fault) if fault.kind == FaultKind::Denied => {}
            Err(fault) => {
                problems.push(Unjudged::by("tables that route.table_ids does not name could not be read", &fault))
            }
        }
        let cluster = RouteCluster { id: config.cloud.cluster_id.clone(), uid: cluster.uid().to_owned() };
        Ok(unclaimed_routes(&tables, stated, &nodes, &cluster))
    };
    match found.await {
        Ok(found) => orphans.add(found),
        Err(why) => orphans.problems.push(why),
    }
    orphans
}

impl Orphan for OrphanedRoute {
    const KIND: &'static str = "route";

    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        let item = RouteItem {
            table_id: self.table.clone(),
            destination: self.destination,
            instance_id: self.instance.clone(),
            name: String::new(),
            description: String::new(),
        };
        let failed = cloud.vpc.delete_route_entries(&permit(fence)?, &[item]).await?;
        failed.first().map_or(Ok(()), |item| Err(format!("{} [{}]", item.message, item.code).into()))
    }
}
