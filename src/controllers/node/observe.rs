//! Looking up the instances of nodes, in batches that one bad id cannot spoil.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::alibaba::ecs::{Ecs, InstanceFilter};
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::config::Config;
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::plan::location::CloudLocation;
use crate::plan::node::instance::{Instance, NetworkInterface};
use crate::plan::node::removal::Listing;
use crate::plan::node::source_dest_check::Switches;
use crate::plan::node::{self, Check, Class, NodePlan, Policy, Problem, UNINITIALIZED, discovery};
use crate::plan::provider_id::ProviderId;
use crate::plan::route::owners::Presence;

/// Instances in one call, where no setting says it.
const BATCH: usize = 100;
/// Such calls under way at once.
const AT_ONCE: usize = 4;

/// Everything that one pass found out.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// What is to be done to nodes.
    pub plans: Vec<(Arc<NodeView>, NodePlan)>,
    /// Nodes whose instance is there, and whether in the cluster's VPC.
    pub present: Vec<(Arc<NodeView>, bool)>,
    /// Nodes whose instance a successful answer lacked.
    pub missing: Vec<(Arc<NodeView>, ProviderId, Listing)>,
    /// Nodes about which the cloud gave no answer.
    pub faults: Vec<(Arc<NodeView>, Fault)>,
}

/// What the configuration lets the planner do.
pub(super) fn policy(config: &Config) -> Policy {
    Policy {
        ipv6: config.node.ipv6,
        shutdown_taint: config.node.shutdown_taint,
        routes: config.controllers.contains(&crate::controllers::ROUTE),
    }
}

/// Looks at those of `all` nodes that are `chosen`, and plans them. Reads only.
pub(super) async fn survey(
    cloud: &CloudClient,
    place: &CloudLocation,
    config: &Config,
    all: &[Arc<NodeView>],
    chosen: impl Fn(&ObjectKey) -> bool,
    switches: &mut Switches,
) -> Survey {
    let mut survey = Survey::default();
    let (mut known, mut unidentified) = (Vec::new(), Vec::new());
    for view in all.iter().filter(|view| !view.deleting && chosen(&ObjectKey::cluster(&view.name))) {
        match node::classify(view) {
            Class::Ecs(id) => known.push((view.clone(), id)),
            Class::Unidentified => unidentified.push(view.clone()),
            Class::Excluded(why) => tracing::debug!(node = %view.name, %why, "left alone"),
        }
    }
    let claims = discovery::claims(all.iter().map(Arc::as_ref));
    let mut found = discover(cloud, place, config, unidentified, &claims, &mut survey).await;

    let ids: BTreeSet<ProviderId> = known.iter().map(|(_, id)| id.clone()).collect();
    let mut sighted = by_id(&cloud.ecs, &ids, config.node.batch_size).await;
    doubt(&cloud.ecs, all, &mut sighted).await;
    for (view, id) in known {
        if let Some(instance) = sighted.instances.get(&id) {
            found.push((view, instance.clone()));
        } else if let Some(fault) = sighted.faults.get(&id) {
            survey.faults.push((view, fault.clone()));
        } else {
            let listing = sighted.absent.remove(&id).unwrap_or_else(|| Listing::Unproven("it was not asked".into()));
            survey.plans.push((view.clone(), node::plan_missing(&view, &id.region, &id.instance, policy(config))));
            survey.missing.push((view, id, listing));
        }
    }

    let checks = checks(&cloud.ecs, config, &found, switches).await;
    for (view, instance) in found {
        let settled = Check::Settled;
        let check = checks.get(&instance.primary_eni).filter(|_| is_new(&view)).unwrap_or(&settled);
        survey.plans.push((view.clone(), node::plan(&view, &instance, check, policy(config))));
        survey.present.push((view, instance.vpc_id == place.vpc_id));
    }
    survey
}

/// Whether the cloud has these instances. Only for an account that is known to be the cluster's, as one is that shows
/// its route tables.
pub(in crate::controllers) async fn presence(
    ecs: &Ecs,
    region: &str,
    instances: BTreeSet<String>,
) -> BTreeMap<String, Presence> {
    let ids = instances.into_iter().map(|instance| ProviderId { region: region.to_owned(), instance }).collect();
    let Sighted { instances, absent, faults } = by_id(ecs, &ids, BATCH).await;
    let shown = instances.into_keys().map(|id| (id.instance, Presence::Shown));
    let absent = absent.into_iter().map(|(id, listing)| match listing {
        Listing::Whole => (id.instance, Presence::Gone),
        Listing::Unproven(why) => (id.instance, Presence::Unknown(why)),
    });
    let faults = faults.into_iter().map(|(id, fault)| (id.instance, Presence::Unknown(fault.to_string())));
    shown.chain(absent).chain(faults).collect()
}

pub(super) fn is_new(view: &NodeView) -> bool {
    node::has_taint(view, UNINITIALIZED)
}

/// What the cloud said about instances that were asked for by id.
#[derive(Debug, Default)]
struct Sighted {
    instances: BTreeMap<ProviderId, Instance>,
    absent: BTreeMap<ProviderId, Listing>,
    faults: BTreeMap<ProviderId, Fault>,
}

async fn by_id(ecs: &Ecs, ids: &BTreeSet<ProviderId>, batch_size: usize) -> Sighted {
    let fetch = |region: String, ids: Vec<String>| async move {
        ecs.describe_instances(&region, &InstanceFilter::Ids(ids)).await
    };
    let mut sighted = gather(ids, batch_size, fetch).await;
    // A missing permission gives empty lists, so an answer without any known instance is worth nothing by itself.
    let mut permitted: BTreeMap<String, Listing> = BTreeMap::new();
    for (id, listing) in &mut sighted.absent {
        if *listing == Listing::Whole {
            continue;
        }
        if !permitted.contains_key(&id.region) {
            let proof = match ecs.may_describe_instances(&id.region).await {
                Ok(()) => Listing::Whole,
                Err(fault) => Listing::Unproven(fault.to_string()),
            };
            permitted.insert(id.region.clone(), proof);
        }
        listing.clone_from(&permitted[&id.region]);
    }
    sighted
}

/// Another account's answers are whole and lack all instances of this cluster. So absence counts only where the cloud
/// shows at least one instance of the cluster.
async fn doubt(ecs: &Ecs, all: &[Arc<NodeView>], sighted: &mut Sighted) {
    let Sighted { instances, absent, .. } = sighted;
    let regions: BTreeSet<String> = absent.keys().map(|id| id.region.clone()).collect();
    for region in regions.into_iter().filter(|region| !instances.keys().any(|id| id.region == *region)) {
        let others: Vec<String> = all
            .iter()
            .filter_map(|view| match node::classify(view) {
                Class::Ecs(id) if id.region == region && !absent.contains_key(&id) => Some(id.instance),
                _ => None,
            })
            .take(100)
            .collect();
        let shown = match others.as_slice() {
            [] => Ok(Vec::new()),
            _ => ecs.describe_instances(&region, &InstanceFilter::Ids(others)).await,
        };
        let why = match shown {
            Ok(shown) if !shown.is_empty() => continue,
            Ok(_) => {
                "the cloud shows not one instance of this cluster, as with the credentials of another account; if \
                      they are all gone, delete the nodes by hand"
                    .to_owned()
            }
            Err(fault) => fault.to_string(),
        };
        for (_, listing) in absent.iter_mut().filter(|(id, listing)| id.region == region && **listing == Listing::Whole)
        {
            *listing = Listing::Unproven(why.clone());
        }
    }
}

/// Asks region by region, in batches, some at once. A batch that is refused is split until the ids that spoil it stand
/// alone; the number of extra calls is bounded, and what is left then fails with the last fault.
async fn gather<F, R>(ids: &BTreeSet<ProviderId>, batch_size: usize, fetch: F) -> Sighted
where
    F: Fn(String, Vec<String>) -> R,
    R: Future<Output = Result<Vec<Instance>, Fault>>,
{
    let mut regions: BTreeMap<&str, Vec<&ProviderId>> = BTreeMap::new();
    for id in ids {
        regions.entry(&id.region).or_default().push(id);
    }
    let mut sighted = Sighted::default();
    for (region, ids) in regions {
        let mut batches: Vec<&[&ProviderId]> = ids.chunks(batch_size.clamp(1, 100)).collect();
        let mut extra_calls = 40;
        let mut running = FuturesUnordered::new();
        loop {
            let free = AT_ONCE.saturating_sub(running.len());
            running.extend(batches.drain(batches.len().saturating_sub(free)..).map(|batch| {
                let answer = fetch(region.to_owned(), batch.iter().map(|id| id.instance.clone()).collect());
                async move { (batch, answer.await) }
            }));
            let Some((batch, answer)) = running.next().await else { break };
            match answer {
                Ok(instances) => settle(&mut sighted, batch, instances),
                Err(fault) if batch.len() > 1 && extra_calls > 0 && spoilt_by_one(fault.kind) => {
                    extra_calls -= 2;
                    let (left, right) = batch.split_at(batch.len() / 2);
                    batches.extend([left, right]);
                }
                Err(fault) => sighted.faults.extend(batch.iter().map(|id| ((*id).clone(), fault.clone()))),
            }
        }
    }
    sighted
}

const fn spoilt_by_one(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Rejected | FaultKind::Gone | FaultKind::Bug)
}

fn settle(sighted: &mut Sighted, batch: &[&ProviderId], instances: Vec<Instance>) {
    let mut by_id: BTreeMap<String, Instance> = instances.into_iter().map(|one| (one.id.clone(), one)).collect();
    let (mut any, mut absent) = (false, Vec::new());
    for id in batch {
        match by_id.remove(&id.instance) {
            Some(instance) => {
                any = true;
                sighted.instances.insert((*id).clone(), instance);
            }
            None => absent.push((*id).clone()),
        }
    }
    let listing = if any { Listing::Whole } else { Listing::Unproven("no known instance was in the answer".into()) };
    sighted.absent.extend(absent.into_iter().map(|id| (id, listing.clone())));
}

/// Finds the instances of nodes without providerID; what stays unknown goes into the survey.
async fn discover(
    cloud: &CloudClient,
    place: &CloudLocation,
    config: &Config,
    nodes: Vec<Arc<NodeView>>,
    claims: &BTreeMap<String, String>,
    survey: &mut Survey,
) -> Vec<(Arc<NodeView>, Instance)> {
    // A node without taint that is nobody's business here is not worth an event.
    let report = |survey: &mut Survey, view: Arc<NodeView>, problem: Problem| {
        if is_new(&view) {
            let plan = NodePlan::refused(&view, problem);
            survey.plans.push((view, plan));
        }
    };
    if !config.node.discover {
        nodes.into_iter().for_each(|view| report(survey, view, Problem::Undiscovered));
        return Vec::new();
    }
    let mut chosen: Vec<(Arc<NodeView>, Instance)> = Vec::new();
    match candidates(&cloud.ecs, place, &nodes).await {
        Err(fault) => survey.faults.extend(nodes.into_iter().map(|view| (view, fault.clone()))),
        Ok(candidates) => {
            for view in nodes {
                match choose(&cloud.ecs, place, &view, &candidates, claims).await {
                    Err(fault) => survey.faults.push((view, fault)),
                    Ok(Err(problem)) => report(survey, view, problem),
                    Ok(Ok(instance)) => chosen.push((view, instance)),
                }
            }
        }
    }
    let (unique, shared) = discovery::unshared(chosen, |(_, instance)| instance.id.clone());
    for ((view, instance), others) in shared {
        let other = others.iter().map(|(other, _)| &other.name).find(|name| **name != view.name);
        let problem = Problem::Claimed { instance: instance.id, other: other.cloned().unwrap_or_default() };
        report(survey, view, problem);
    }
    unique
}

/// One lookup by address and one by id for all nodes together.
async fn candidates(ecs: &Ecs, place: &CloudLocation, nodes: &[Arc<NodeView>]) -> Result<Vec<Instance>, Fault> {
    let ips: BTreeSet<_> = nodes.iter().flat_map(|view| discovery::private_ips(view)).collect();
    let ids: BTreeSet<_> = nodes.iter().filter_map(|view| discovery::spelled_out(&view.name, &place.region)).collect();
    let mut found = Vec::new();
    if !ips.is_empty() {
        let ips = ips.iter().map(ToString::to_string).collect();
        let filter = InstanceFilter::PrivateIps { vpc_id: place.vpc_id.clone(), ips };
        found.extend(ecs.describe_instances(&place.region, &filter).await?);
    }
    if !ids.is_empty() {
        // Ids that are spelled out may be nonsense; the others must not suffer from it.
        let ids = ids.into_iter().map(|instance| ProviderId { region: place.region.clone(), instance }).collect();
        found.extend(by_id(ecs, &ids, BATCH).await.instances.into_values());
    }
    Ok(found)
}

async fn choose(
    ecs: &Ecs,
    place: &CloudLocation,
    view: &NodeView,
    candidates: &[Instance],
    claims: &BTreeMap<String, String>,
) -> Result<Result<Instance, Problem>, Fault> {
    let chosen = discovery::choose(view, candidates, claims, place);
    // A call per node is only worth it for nodes that wait to be initialised.
    if !matches!(chosen, Err(Problem::NotFound { .. })) || !is_new(view) {
        return Ok(chosen.cloned());
    }
    let filter = InstanceFilter::Name { vpc_id: place.vpc_id.clone(), name: view.name.clone() };
    let named = ecs.describe_instances(&place.region, &filter).await?;
    Ok(discovery::choose(view, &named, claims, place).cloned())
}

/// The source/destination check of the primary interfaces of nodes that are being initialised, by interface.
async fn checks(
    ecs: &Ecs,
    config: &Config,
    found: &[(Arc<NodeView>, Instance)],
    switches: &mut Switches,
) -> BTreeMap<String, Check> {
    let (mut checks, mut regions) = (BTreeMap::new(), BTreeMap::<&str, Vec<_>>::new());
    let wanted = found.iter().filter(|(view, instance)| is_new(view) && !instance.primary_eni.is_empty());
    for (view, instance) in wanted.filter(|_| config.node.disable_source_dest_check) {
        regions.entry(&instance.region).or_default().push((view, instance.primary_eni.clone()));
    }
    for (region, mut nodes) in regions {
        // What a look at the first ones shows can spare the others theirs.
        let others = nodes.split_off(nodes.len().min(BATCH));
        for nodes in [nodes, others] {
            let go_unseen = |(view, _): &(&Arc<NodeView>, _)| switches.go_unseen(region, &view.uid);
            let (unseen, unknown): (Vec<_>, Vec<_>) = nodes.into_iter().partition(go_unseen);
            checks.extend(unseen.into_iter().map(|(_, eni)| (eni.clone(), Check::On { eni })));
            let enis = unknown.into_iter().map(|(_, eni)| eni).collect();
            checks.extend(look(ecs, region, enis, switches).await);
        }
    }
    checks
}

async fn look(ecs: &Ecs, region: &str, enis: Vec<String>, switches: &mut Switches) -> Vec<(String, Check)> {
    let (interfaces, absent) = match ecs.describe_network_interfaces(region, &enis).await {
        // Like other lists, this one may be empty for want of a permission.
        Ok(interfaces) => (interfaces, ("the interface is not in the cloud's answer".to_owned(), true)),
        Err(fault) => (Vec::new(), (fault.to_string(), fault.kind == FaultKind::Denied)),
    };
    let by_id: BTreeMap<&str, &NetworkInterface> = interfaces.iter().map(|one| (one.id.as_str(), one)).collect();
    let check = |eni: String| {
        let shown = by_id.get(eni.as_str());
        switches.shown(region, shown.and_then(|interface| interface.source_dest_check));
        let check = match shown {
            Some(interface) if interface.source_dest_check == Some(true) => Check::On { eni: eni.clone() },
            Some(_) => Check::Settled,
            None => Check::Unknown { message: absent.0.clone(), denied: absent.1 },
        };
        (eni, check)
    };
    enis.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn id(number: usize) -> ProviderId {
        ProviderId { region: "cn-a".into(), instance: format!("i-{number}") }
    }

    fn fault(kind: FaultKind) -> Fault {
        Fault {
            kind,
            action: "look up",
            code: String::new(),
            message: "on purpose".into(),
            request_id: String::new(),
            retry_after: None,
        }
    }

    fn shown(ids: Vec<String>) -> Vec<Instance> {
        ids.into_iter().map(|id| Instance { id, ..Instance::default() }).collect()
    }

    #[tokio::test]
    async fn one_bad_id_does_not_hold_the_others() {
        let (ids, calls) = ((0..100).map(id).collect(), Cell::new(0));
        let sighted = gather(&ids, 100, |_, ids| {
            calls.set(calls.get() + 1);
            let spoilt = ids.contains(&"i-42".to_owned());
            async move { if spoilt { Err(fault(FaultKind::Rejected)) } else { Ok(shown(ids)) } }
        })
        .await;
        assert_eq!(sighted.instances.len(), 99);
        assert_eq!(sighted.faults.keys().collect::<Vec<_>>(), [&id(42)]);
        assert!(calls.get() <= 15, "{} calls", calls.get());
    }

    #[tokio::test]
    async fn trouble_of_the_cloud_is_not_multiplied() {
        for (kind, most) in [(FaultKind::Throttled, 1), (FaultKind::Denied, 1), (FaultKind::Rejected, 41)] {
            let (ids, calls) = ((0..100).map(id).collect(), Cell::new(0));
            let sighted = gather(&ids, 100, |_, _| {
                calls.set(calls.get() + 1);
                async move { Err(fault(kind)) }
            })
            .await;
            assert_eq!((sighted.faults.len(), sighted.absent.len()), (100, 0), "a fault is no sighting");
            assert!(calls.get() <= most, "{kind:?}: {} calls", calls.get());
        }
    }

    #[tokio::test]
    async fn absence_needs_a_companion_in_the_same_answer() {
        let ids = (0..4).map(id).collect();
        let sighted = gather(&ids, 2, |_, mut ids| async move {
            ids.retain(|id| id == "i-0");
            Ok(shown(ids))
        })
        .await;
        assert_eq!(sighted.absent[&id(1)], Listing::Whole);
        assert!(matches!(sighted.absent[&id(2)], Listing::Unproven(_)));
        assert!(matches!(sighted.absent[&id(3)], Listing::Unproven(_)));
    }
}
