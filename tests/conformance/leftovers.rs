//! What the check made and has not deleted, found by its tag or mark: the way it ends, and what `--cleanup` does.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

use alicloud_ccm::alibaba::nlb::GroupFilter;
use alicloud_ccm::alibaba::{Fault, FaultKind};
use alicloud_ccm::plan::clb::model as clb;
use alicloud_ccm::plan::nlb::model as nlb;
use alicloud_ccm::plan::route::entry::RouteItem;
use futures::future::BoxFuture;

use super::Pace;
use super::run::{NAME, Run, TAG};

/// How often in a row nothing must be found: lists lag behind.
const QUIET: u32 = 3;

/// A thing of the check. In the order in which they can go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    NetworkLoadBalancer,
    LoadBalancer,
    ServerGroup,
    SecurityGroup,
    AccessList,
    /// With table and instance.
    Route(String, String),
    Record,
}

/// What carries the check's tag or mark, with its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leftover {
    kind: Kind,
    id: String,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::NetworkLoadBalancer => "network load balancer",
            Kind::LoadBalancer => "classic load balancer",
            Kind::ServerGroup => "server group",
            Kind::SecurityGroup => "security group",
            Kind::AccessList => "access control list",
            Kind::Route(..) => "route entry",
            Kind::Record => "record",
        };
        write!(f, "{kind} {}", self.id)
    }
}

type Find = for<'a> fn(&'a Run) -> BoxFuture<'a, Result<Vec<Leftover>, Fault>>;

const FINDS: [Find; 7] = [
    |run| Box::pin(balancers(run)),
    |run| Box::pin(network_balancers(run)),
    |run| Box::pin(server_groups(run)),
    |run| Box::pin(security_groups(run)),
    |run| Box::pin(access_lists(run)),
    |run| Box::pin(routes(run)),
    |run| Box::pin(records(run)),
];

/// What there is, and what could not be looked for: one does not hide the other.
pub(super) async fn find(run: &Run) -> (BTreeSet<Leftover>, Vec<Fault>) {
    let (mut found, mut faults) = (BTreeSet::new(), Vec::new());
    for find in FINDS {
        match find(run).await {
            Ok(more) => found.extend(more),
            Err(fault) => faults.push(fault),
        }
    }
    (found, faults)
}

/// Deletes until nothing is found for some time; gives what is left.
pub(super) async fn delete_all(run: &Run, pace: Pace) -> Vec<String> {
    let started = Instant::now();
    let mut known = made(run);
    let mut quiet = 0;
    loop {
        let (found, faults) = find(run).await;
        known.extend(found);
        let mut problems: Vec<String> = faults.iter().map(ToString::to_string).collect();
        for leftover in known.clone() {
            match delete(run, &leftover).await {
                Ok(()) => _ = known.remove(&leftover),
                Err(fault) if fault.kind == FaultKind::Gone => _ = known.remove(&leftover),
                Err(fault) => problems.push(format!("{leftover}: {fault}")),
            }
        }
        quiet = if problems.is_empty() && found_nothing(run).await { quiet + 1 } else { 0 };
        if quiet >= QUIET {
            return Vec::new();
        }
        if started.elapsed() >= pace.patience {
            problems.extend(known.iter().map(|it| format!("{it} may be there")));
            return problems;
        }
        tokio::time::sleep(pace.pause).await;
    }
}

async fn found_nothing(run: &Run) -> bool {
    let (found, faults) = find(run).await;
    found.is_empty() && faults.is_empty()
}

/// What this process made itself, which lists may not show yet.
fn made(run: &Run) -> BTreeSet<Leftover> {
    let kinds = [
        ("nlb", Kind::NetworkLoadBalancer),
        ("clb", Kind::LoadBalancer),
        ("server group", Kind::ServerGroup),
        ("security group", Kind::SecurityGroup),
        ("acl", Kind::AccessList),
        ("record", Kind::Record),
    ];
    kinds.into_iter().filter_map(|(what, kind)| Some(Leftover { kind, id: run.id(what).ok()? })).collect()
}

async fn balancers(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let found = run.cloud.clb.find_by_tag(TAG, &run.mark()).await?;
    let own = found.into_iter().filter(|it| run.is_marked(&it.tags));
    Ok(own.map(|it| Leftover { kind: Kind::LoadBalancer, id: it.id }).collect())
}

async fn network_balancers(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let found = run.cloud.nlb.find_by_tag(TAG, &run.mark()).await?;
    let own = found.into_iter().filter(|it| run.is_marked(&it.tags));
    Ok(own.map(|it| Leftover { kind: Kind::NetworkLoadBalancer, id: it.id }).collect())
}

async fn server_groups(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let found = run.cloud.nlb.list_groups(GroupFilter::Tag(TAG, &run.mark())).await?;
    let own = found.into_iter().filter(|it| run.is_marked(&it.details.tags));
    Ok(own.map(|it| Leftover { kind: Kind::ServerGroup, id: it.id }).collect())
}

async fn security_groups(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let found = run.cloud.ecs.find_security_groups(TAG, &run.mark()).await?;
    Ok(found.into_iter().map(|it| Leftover { kind: Kind::SecurityGroup, id: it.id }).collect())
}

async fn access_lists(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let own = run.cloud.clb.find_access_list(NAME).await?.filter(|it| run.is_marked(&it.tags));
    Ok(own.map(|it| Leftover { kind: Kind::AccessList, id: it.id }).into_iter().collect())
}

/// Route entries have no tags: the description has the mark.
async fn routes(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let mut found = Vec::new();
    for table in run.cloud.vpc.describe_route_tables(&run.place.vpc).await? {
        let entries = run.cloud.vpc.describe_route_entries(&table.id).await?;
        for entry in entries.iter().filter(|entry| entry.description == run.mark()) {
            let Some(instance) = entry.instance() else { continue };
            let kind = Kind::Route(table.id.clone(), instance.into());
            found.push(Leftover { kind, id: entry.destination.to_string() });
        }
    }
    Ok(found)
}

/// Nor have records: the remark has it.
async fn records(run: &Run) -> Result<Vec<Leftover>, Fault> {
    let Some(zone) = &run.place.private_zone else { return Ok(Vec::new()) };
    let found = run.cloud.pvtz.records_of(zone, NAME).await?;
    let own = found.into_iter().filter(|it| it.remark == run.mark());
    Ok(own.map(|it| Leftover { kind: Kind::Record, id: it.id }).collect())
}

async fn delete(run: &Run, leftover: &Leftover) -> Result<(), Fault> {
    let Leftover { kind, id } = leftover;
    let (Run { cloud, permit, .. }, id) = (run, id.as_str());
    match kind {
        Kind::NetworkLoadBalancer => match cloud.nlb.delete_instance(permit, id).await {
            // Killed while it was protected.
            Err(fault) if fault.kind == FaultKind::Rejected => {
                let unprotected = [(nlb::InstanceField::DeleteProtection, "false".to_owned())].into_iter().collect();
                cloud.nlb.set_instance(permit, id, &unprotected).await?;
                cloud.nlb.delete_instance(permit, id).await.map(drop)
            }
            result => result.map(drop),
        },
        Kind::LoadBalancer => match cloud.clb.delete_instance(permit, id).await {
            Err(fault) if fault.kind == FaultKind::Rejected => {
                let unprotected = [(clb::InstanceField::DeleteProtection, "off".to_owned())].into_iter().collect();
                cloud.clb.set_instance(permit, id, &unprotected).await?;
                cloud.clb.delete_instance(permit, id).await
            }
            result => result,
        },
        Kind::ServerGroup => cloud.nlb.delete_group(permit, id).await.map(drop),
        Kind::SecurityGroup => cloud.ecs.delete_security_group(permit, id).await,
        Kind::AccessList => cloud.clb.delete_access_list(permit, id).await,
        Kind::Route(table, instance) => {
            let Ok(destination) = id.parse() else { return Ok(()) };
            let item = RouteItem {
                table_id: table.clone(),
                destination,
                instance_id: instance.clone(),
                name: NAME.into(),
                description: run.mark(),
            };
            cloud.vpc.delete_route_entries(permit, &[item]).await.map(drop)
        }
        Kind::Record => cloud.pvtz.delete_record(permit, id).await,
    }
}
