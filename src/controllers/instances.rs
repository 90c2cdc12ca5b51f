//! Looks up instances by id, in batches that one bad id cannot spoil, and says what an absence is worth. The batches serve
//! disks as well.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::alibaba::ecs::{Ecs, InstanceFilter};
use crate::alibaba::{Fault, FaultKind};
use crate::plan::inputs::NodeView;
use crate::plan::node::instance::Instance;
use crate::plan::node::removal::Absence;
use crate::plan::node::{NodeClass, classify, is_ready};
use crate::plan::provider_id::ProviderId;
use crate::plan::route::InstancePresence;

/// Instances in one call, where no setting says it.
pub(super) const BATCH: usize = 100;
/// Such calls under way at the same time.
const CONCURRENCY: usize = 4;
/// Calls for halves of refused batches, per region.
const MOST_EXTRA_CALLS: usize = 40;

/// What the cloud says about instances that were asked for by id.
#[derive(Debug, Default)]
pub(super) struct InstanceAnswers {
    pub found: BTreeMap<ProviderId, Arc<Instance>>,
    pub absent: BTreeMap<ProviderId, Absence>,
    pub faults: BTreeMap<ProviderId, Fault>,
}

/// Looks up instances in all their regions.
pub(super) async fn by_id(ecs: &Ecs, ids: &BTreeSet<ProviderId>, batch_size: usize) -> InstanceAnswers {
    let fetch = |region: String, ids: Vec<String>| async move {
        ecs.describe_instances(&region, &InstanceFilter::Ids(ids)).await
    };
    let mut answers = gather(ids, batch_size, fetch).await;
    // A missing permission gives empty lists, so an answer without any known instance is worth nothing by itself.
    let mut permitted: BTreeMap<String, Absence> = BTreeMap::new();
    for (id, absence) in answers.absent.iter_mut().filter(|(_, absence)| **absence != Absence::Proven) {
        if !permitted.contains_key(&id.region) {
            let proof = ecs.may_describe_instances(&id.region).await;
            let proof = proof.map_or_else(|fault| Absence::Unproven(fault.to_string()), |()| Absence::Proven);
            permitted.insert(id.region.clone(), proof);
        }
        absence.clone_from(&permitted[&id.region]);
    }
    answers
}

/// Whether instances exist. Only for an account that is known to be the cluster's, as one is that shows its route tables.
pub(super) async fn presence(
    ecs: &Ecs,
    region: &str,
    instances: BTreeSet<String>,
    nodes: &[Arc<NodeView>],
) -> BTreeMap<String, InstancePresence> {
    let ids = instances.into_iter().map(|instance| ProviderId { region: region.to_owned(), instance }).collect();
    let mut answers = by_id(ecs, &ids, BATCH).await;
    require_all_ready_nodes(nodes, ecs, region, &mut answers).await;
    let InstanceAnswers { found, absent, faults } = answers;
    let found = found.into_keys().map(|id| (id.instance, InstancePresence::Exists));
    let absent = absent.into_iter().map(|(id, absence)| match absence {
        Absence::Proven => (id.instance, InstancePresence::Gone),
        Absence::Unproven(why) => (id.instance, InstancePresence::Unknown(why)),
    });
    let faults = faults.into_iter().map(|(id, fault)| (id.instance, InstancePresence::Unknown(fault.to_string())));
    found.chain(absent).chain(faults).collect()
}

/// In a VPC that several accounts share, the instances of the others are absent as well. So an absence counts only where the
/// account shows the instances of all nodes that are ready. A node whose instance is proven to be gone says nothing of others.
async fn require_all_ready_nodes(nodes: &[Arc<NodeView>], ecs: &Ecs, region: &str, answers: &mut InstanceAnswers) {
    if !answers.absent.values().any(|absence| *absence == Absence::Proven) {
        return;
    }
    let is_ready = |view: &&Arc<NodeView>| is_ready(view) && !view.is_replaced;
    let ids = nodes.iter().filter(is_ready).filter_map(|view| match classify(view) {
        NodeClass::Ecs(id) if id.region == region => Some(id),
        _ => None,
    });
    let InstanceAnswers { absent, faults, .. } = by_id(ecs, &ids.collect(), BATCH).await;
    let hidden = absent.into_keys().next().map(|id| {
        format!(
            "the account does not show {}, the instance of a node that is ready, so it may not show others either",
            id.instance
        )
    });
    let Some(why) = hidden.or_else(|| faults.into_values().next().map(|fault| fault.to_string())) else { return };
    let proven = answers.absent.values_mut().filter(|absence| **absence == Absence::Proven);
    proven.for_each(|absence| *absence = Absence::Unproven(why.clone()));
}

/// The answers of another account prove absences and lack all instances of this cluster. So an absence counts only where
/// the cloud shows at least one instance of the nodes.
pub(super) async fn require_an_instance_of(nodes: &[Arc<NodeView>], ecs: &Ecs, answers: &mut InstanceAnswers) {
    let InstanceAnswers { found, absent, .. } = answers;
    let regions: BTreeSet<String> = absent.keys().map(|id| id.region.clone()).collect();
    for region in regions.into_iter().filter(|region| !found.keys().any(|id| id.region == *region)) {
        let other = |view: &Arc<NodeView>| match classify(view) {
            NodeClass::Ecs(id) if id.region == region && !absent.contains_key(&id) => Some(id.instance),
            _ => None,
        };
        let others: Vec<String> = nodes.iter().filter_map(other).take(BATCH).collect();
        let shown = match others.as_slice() {
            [] => Ok(Vec::new()),
            _ => ecs.describe_instances(&region, &InstanceFilter::Ids(others)).await,
        };
        let why = match shown {
            Ok(shown) if !shown.is_empty() => continue,
            Ok(_) => {
                "the cloud shows not one instance of this cluster, as with the credentials of another account; if \
                      they are all gone, delete the nodes manually"
                    .to_owned()
            }
            Err(fault) => fault.to_string(),
        };
        let doubted = absent.iter_mut().filter(|(id, absence)| id.region == region && **absence == Absence::Proven);
        doubted.for_each(|(_, absence)| *absence = Absence::Unproven(why.clone()));
    }
}

/// Asks region by region, [in batches](in_batches).
async fn gather<F, R>(ids: &BTreeSet<ProviderId>, batch_size: usize, fetch: F) -> InstanceAnswers
where
    F: Fn(String, Vec<String>) -> R,
    R: Future<Output = Result<Vec<Instance>, Fault>>,
{
    let mut regions: BTreeMap<&str, Vec<&ProviderId>> = BTreeMap::new();
    for id in ids {
        regions.entry(&id.region).or_default().push(id);
    }
    let mut answers = InstanceAnswers::default();
    for (region, ids) in regions {
        let fetch =
            |batch: &[&ProviderId]| fetch(region.to_owned(), batch.iter().map(|id| id.instance.clone()).collect());
        for (batch, answer) in in_batches(&ids, batch_size, fetch).await {
            match answer {
                Ok(instances) => answers.add(batch, instances),
                Err(fault) => answers.faults.extend(batch.iter().map(|id| ((*id).clone(), fault.clone()))),
            }
        }
    }
    answers
}

/// Asks about things in batches, some at the same time; gives each batch with its answer. A batch that is refused is split
/// until the ids that spoil it stand alone; the number of extra calls is limited, and what is left then fails.
pub(super) async fn in_batches<'a, I, T, R: Future<Output = Result<T, Fault>>>(
    ids: &'a [I],
    batch_size: usize,
    fetch: impl Fn(&'a [I]) -> R,
) -> Vec<(&'a [I], Result<T, Fault>)> {
    let mut batches: Vec<&[I]> = ids.chunks(batch_size.clamp(1, BATCH)).collect();
    let mut extra_calls = MOST_EXTRA_CALLS;
    let mut running = FuturesUnordered::new();
    let mut answers = Vec::new();
    loop {
        let free = CONCURRENCY.saturating_sub(running.len());
        running.extend(batches.drain(batches.len().saturating_sub(free)..).map(|batch| {
            let answer = fetch(batch);
            async move { (batch, answer.await) }
        }));
        let Some((batch, answer)) = running.next().await else { return answers };
        match answer {
            Err(fault) if batch.len() > 1 && extra_calls > 0 && may_be_due_to_one_id(fault.kind) => {
                extra_calls -= 2;
                let (left, right) = batch.split_at(batch.len() / 2);
                batches.extend([left, right]);
            }
            answer => answers.push((batch, answer)),
        }
    }
}

const fn may_be_due_to_one_id(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Rejected | FaultKind::Gone | FaultKind::Bug)
}

impl InstanceAnswers {
    fn add(&mut self, batch: &[&ProviderId], instances: Vec<Instance>) {
        let mut by_id: HashMap<String, Instance> = instances.into_iter().map(|one| (one.id.clone(), one)).collect();
        let ids = batch.iter().map(|id| ((*id).clone(), by_id.remove(&id.instance).map(Arc::new)));
        let (found, absent): (Vec<_>, Vec<_>) = ids.partition(|(_, instance)| instance.is_some());
        let absence = match found.is_empty() {
            false => Absence::Proven,
            true => Absence::Unproven("no known instance was in the answer".to_owned()),
        };
        self.found.extend(found.into_iter().filter_map(|(id, instance)| Some((id, instance?))));
        self.absent.extend(absent.into_iter().map(|(id, _)| (id, absence.clone())));
    }
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
    async fn one_bad_id_does_not_spoil_the_others() {
        let (ids, calls) = ((0..100).map(id).collect(), Cell::new(0));
        let answers = gather(&ids, 100, |_, ids| {
            calls.set(calls.get() + 1);
            let spoilt = ids.contains(&"i-42".to_owned());
            async move { if spoilt { Err(fault(FaultKind::Rejected)) } else { Ok(shown(ids)) } }
        })
        .await;
        assert_eq!(answers.found.len(), 99);
        assert_eq!(answers.faults.keys().collect::<Vec<_>>(), [&id(42)]);
        assert!(calls.get() <= 15, "{} calls", calls.get());
    }

    #[tokio::test]
    async fn faults_of_the_cloud_are_not_multiplied() {
        for (kind, most) in [(FaultKind::Throttled, 1), (FaultKind::Denied, 1), (FaultKind::Rejected, 41)] {
            let (ids, calls) = ((0..100).map(id).collect(), Cell::new(0));
            let answers = gather(&ids, 100, |_, _| {
                calls.set(calls.get() + 1);
                async move { Err(fault(kind)) }
            })
            .await;
            assert_eq!((answers.faults.len(), answers.absent.len()), (100, 0), "a fault is no absence");
            assert!(calls.get() <= most, "{kind:?}: {} calls", calls.get());
        }
    }

    #[tokio::test]
    async fn absence_is_proven_by_another_instance_in_the_same_answer() {
        let ids = (0..4).map(id).collect();
        let answers = gather(&ids, 2, |_, mut ids| async move {
            ids.retain(|id| id == "i-0");
            Ok(shown(ids))
        })
        .await;
        assert_eq!(answers.absent[&id(1)], Absence::Proven);
        assert!(matches!(answers.absent[&id(2)], Absence::Unproven(_)));
        assert!(matches!(answers.absent[&id(3)], Absence::Unproven(_)));
    }
}
