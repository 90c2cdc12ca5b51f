//! Server groups and their backends, whatever the product: which are added, removed and changed, and what of ours goes from
//! groups that nothing wants any more.

use std::collections::{BTreeMap, BTreeSet};

use super::cloud::{CloudModel, Observed, ObservedListener};
use super::model::{Backend, BackendKey, DesiredGroup, GroupMembers, GroupRef, ObservedGroup};
use super::operation::{Operation, OperationModel};
use super::ownership::Owner;
use super::problem::ServiceProblem;
use super::steps::{Plan, Target};

/// Where a desired group is, once the plan has run.
#[derive(Clone, Debug)]
pub(crate) struct GroupInPlan {
    /// How steps name it.
    pub(crate) group: GroupRef,
    /// `None` if the plan makes it.
    pub(crate) id: Option<String>,
}

/// Places of desired groups, by their key among them; those that cannot be used are absent.
pub(crate) type GroupsInPlan = BTreeMap<String, GroupInPlan>;

/// What refers to groups once the plan has run. `K` is how the product names listeners.
#[derive(Debug, Default)]
pub(crate) struct GroupReferences<K> {
    /// Listeners that still send traffic to a group: by group id, with whether they are ours.
    pub(crate) kept: BTreeMap<String, Vec<(K, bool)>>,
    /// Listeners that the plan takes away from a group, by group id.
    pub(crate) dropped: BTreeMap<String, Vec<K>>,
}

impl<K: Copy + Ord> GroupReferences<K> {
    /// What the listeners refer to, where some of them go.
    pub(crate) fn of<M: CloudModel<ListenerKey = K>>(
        observed: &Observed<M>,
        goes: impl Fn(&K) -> bool,
        is_ours: impl Fn(&ObservedListener<M>) -> bool,
    ) -> Self {
        let mut references = Self { kept: BTreeMap::new(), dropped: BTreeMap::new() };
        for (key, listener) in observed.listeners.iter().flatten() {
            let id = listener.group_id.clone();
            if goes(key) {
                references.dropped.entry(id).or_default().push(*key);
            } else {
                references.kept.entry(id).or_default().push((*key, is_ours(listener)));
            }
        }
        references
    }
}

/// Plans what happens to the backends of groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendPlanner<'a> {
    pub(crate) owner: &'a Owner,
    /// Most backends in one call.
    pub(crate) batch_size: usize,
}

impl BackendPlanner<'_> {
    /// Adds and removes batch by batch, then changes. The group never has fewer backends than before until it has all, and
    /// neither quota stays unused.
    pub(crate) fn change<M: OperationModel>(
        self,
        wanted: &DesiredGroup,
        group: &GroupRef,
        remote: &GroupMembers,
        plan: &mut Plan<M>,
    ) {
        if remote.are_known_as(&wanted.backends) {
            return;
        }
        let owner = self.owner;
        let target = Target::Group(group.clone());
        let backends = wanted.backends.to_vec();
        let (counterparts, missing) = pairs(&backends, remote);
        let are_same = remote.iter().zip(&counterparts).all(|(there, wanted)| *wanted == Some(there));
        if are_same && missing.is_empty() && backends.len() == remote.len() {
            remote.know_as(&wanted.backends);
        }
        let is_ours = |backend: &Backend| owner.owns_backend(&backend.description);
        let unwanted =
            remote.iter().zip(&counterparts).filter(|(backend, wanted)| wanted.is_none() && is_ours(backend));
        let stale: Vec<BackendKey> = unwanted.map(|(backend, _)| backend.key.clone()).collect();
        let (withheld, stale): (Vec<_>, Vec<_>) =
            stale.into_iter().partition(|key| wanted.is_unsure() || wanted.retains(key));
        let add: Vec<Backend> = missing.into_iter().cloned().collect();
        let (additions, removals) = (self.additions::<M>(group, &add), self.removals::<M>(group, &stale));
        let rounds = additions.len().max(removals.len());
        let (mut additions, mut removals) = (additions.into_iter(), removals.into_iter());
        for _ in 0..rounds {
            if let Some(operation) = additions.next() {
                plan.step(operation, target.clone(), [], &wanted.source);
            }
            if let Some(operation) = removals.next() {
                let reason = format!("{}: no longer a backend", wanted.source);
                plan.step(operation, target.clone(), [target.clone()], reason);
            }
        }
        if !withheld.is_empty() {
            plan.withholds_backends = true;
            plan.note(if wanted.is_unsure() {
                format!("nothing is removed from {group}, because some of its backends could not be determined")
            } else {
                format!("backends stay in {group} whose nodes were seen unready only once, or whose interfaces are not known")
            });
        }
        if wanted.is_unsure() {
            return;
        }
        let ignore_weights = wanted.ignore_weights;
        let differs = |(there, wanted): (&Backend, Option<&Backend>)| {
            let wanted = wanted?;
            let weight = if ignore_weights { there.weight } else { wanted.weight };
            let is_same = weight == there.weight && owner.same_mark(&wanted.description, &there.description);
            (!is_same && is_ours(there)).then(|| (Backend { weight, ..wanted.clone() }, there.weight))
        };
        let changed: Vec<(Backend, u8)> = remote.iter().zip(counterparts).filter_map(differs).collect();
        for batch in changed.chunks(self.batch_size) {
            let reason = format!("{}: {}", wanted.source, found(batch));
            let backends = batch.iter().map(|(backend, _)| backend.clone()).collect();
            let operation = Operation::<M>::SetBackends { group: group.clone(), backends };
            plan.step(operation, target.clone(), [target.clone()], reason);
        }
    }

    /// Additions in batches.
    pub(crate) fn additions<M: OperationModel>(self, group: &GroupRef, backends: &[Backend]) -> Vec<Operation<M>> {
        let batches = backends.chunks(self.batch_size);
        batches.map(|batch| Operation::AddBackends { group: group.clone(), backends: batch.to_vec() }).collect()
    }

    /// Removals in batches.
    pub(crate) fn removals<M: OperationModel>(self, group: &GroupRef, backends: &[BackendKey]) -> Vec<Operation<M>> {
        let batches = backends.chunks(self.batch_size);
        batches.map(|batch| Operation::RemoveBackends { group: group.clone(), backends: batch.to_vec() }).collect()
    }

    /// Of a group that nothing wants any more: deletes it if it is ours alone, and otherwise takes our backends out of it.
    pub(crate) fn clear<M: OperationModel<ListenerKey: Into<Target>>>(
        self,
        id: &str,
        group: &ObservedGroup,
        references: &GroupReferences<M::ListenerKey>,
        plan: &mut Plan<M>,
    ) {
        let is_ours = self.owner.owns_group(&group.name);
        let Some(backends) = &group.backends else {
            if is_ours {
                let text = "its backends could not be read; it is kept for now";
                plan.problem(ServiceProblem::state(format!("server group {} ({id})", group.name), text));
            }
            return;
        };
        let (ours, foreign): (Vec<_>, Vec<_>) =
            backends.iter().partition(|backend| self.owner.owns_backend(&backend.description));
        let needs: Vec<Target> = references.dropped.get(id).into_iter().flatten().map(|key| (*key).into()).collect();
        let kept = references.kept.get(id);
        if is_ours && foreign.is_empty() {
            delete(id, &group.name, needs, kept.and_then(|kept| kept.first()), plan);
            return;
        }
        if is_ours {
            plan.note(format!("group {} is kept: it holds backends of others", group.name));
        }
        if kept.is_some_and(|kept| kept.iter().any(|(_, ours)| *ours)) {
            return;
        }
        let keys: Vec<_> = ours.into_iter().map(|backend| backend.key.clone()).collect();
        let group = GroupRef::Id(id.to_owned());
        for operation in self.removals::<M>(&group, &keys) {
            let target = Target::Group(group.clone());
            plan.step(operation, target, needs.clone(), "our backends, no longer wanted here");
        }
    }
}

/// What is wanted beside each backend that is there, and what is missing. Both sides are mostly in the same order, so that each
/// backend is compared once.
fn pairs<'a>(wanted: &'a [Backend], there: &[Backend]) -> (Vec<Option<&'a Backend>>, Vec<&'a Backend>) {
    let mut in_order: Vec<(usize, &BackendKey)> = there.iter().map(|backend| &backend.key).enumerate().collect();
    in_order.sort_by_key(|(_, key)| *key);
    let mut in_order = in_order.into_iter().peekable();
    let (mut found, mut missing) = (vec![None; there.len()], Vec::new());
    for backend in wanted {
        let mut is_there = false;
        while let Some((place, key)) = in_order.next_if(|(_, key)| **key <= backend.key) {
            if *key == backend.key {
                found[place] = Some(backend);
                is_there = true;
            }
        }
        if !is_there {
            missing.push(backend);
        }
    }
    (found, missing)
}

/// Deletes a group of ours, unless a listener uses it.
fn delete<M: OperationModel>(
    id: &str,
    name: &str,
    needs: Vec<Target>,
    kept: Option<&(M::ListenerKey, bool)>,
    plan: &mut Plan<M>,
) {
    match kept {
        None => {
            let operation = Operation::<M>::DeleteGroup { id: id.to_owned(), name: name.to_owned() };
            plan.step(operation, Target::Group(GroupRef::Id(id.to_owned())), needs, "no longer wanted");
        }
        Some((listener, true)) => plan.note(format!("group {name} is kept: listener {listener} still uses it")),
        Some((listener, false)) => plan.problem(still_used(format!("listener {listener}"), name)),
    }
}

/// A listener that is not ours keeps a group of ours.
pub(crate) fn still_used(listener: String, group: &str) -> ServiceProblem {
    let text = format!(
        "it uses server group {group}, which is no longer wanted; the group is deleted once no listener uses it"
    );
    ServiceProblem::state(listener, text)
}

/// What was found of backends that differ, each kind of difference once.
fn found(changed: &[(Backend, u8)]) -> String {
    let differences: BTreeSet<String> = changed
        .iter()
        .map(|(backend, found)| match backend.weight == *found {
            true => "the mark differs".to_owned(),
            false => format!("weight {found} -> {}", backend.weight),
        })
        .collect();
    differences.into_iter().collect::<Vec<_>>().join(", ")
}
