//! Server groups and their backends.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::clb::annotations::Name;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::{Operation, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::model::{Backend, BackendKey, DesiredGroup, GroupRef, ObservedGroup};
use crate::plan::service::ownership::{Owner, is_mark};
use crate::plan::service::steps::Target;

/// Where a desired group is, once the plan has run.
#[derive(Clone, Debug)]
pub(super) struct GroupInPlan {
    /// How steps name it.
    pub(super) group: GroupRef,
    /// `None` if the plan makes it.
    pub(super) id: Option<String>,
}

/// Places of desired groups, by their key in [`Desired::groups`]; those that cannot be used are absent.
pub(super) type GroupsInPlan = BTreeMap<String, GroupInPlan>;

/// What refers to groups once the plan has run.
#[derive(Debug, Default)]
pub(super) struct GroupReferences {
    /// Listeners that still send traffic to a group: by group id, with whether they are ours.
    pub(super) kept: BTreeMap<String, Vec<(ListenerKey, bool)>>,
    /// Listeners that the plan takes away from a group, by group id.
    pub(super) dropped: BTreeMap<String, Vec<ListenerKey>>,
}

/// Makes and fills the groups that are wanted.
pub(super) fn ensure(desired: &Desired, observed: &Observed, plan: &mut Plan) -> GroupsInPlan {
    let mut places = GroupsInPlan::new();
    for (key, wanted) in &desired.groups {
        let place = match find(desired, wanted, observed) {
            Ok(None) if desired.problems.withhold_groups() => continue,
            Ok(None) => {
                create(wanted, desired.batch_size, plan);
                GroupInPlan { group: wanted.group.clone(), id: None }
            }
            Ok(Some((id, group))) => {
                let place = GroupInPlan { group: reference(observed, &wanted.group, id), id: Some(id.clone()) };
                let Some(backends) = &group.backends else {
                    plan.problem(key, id, "its backends could not be read; nothing is changed in it");
                    continue;
                };
                if !desired.problems.withhold_groups() {
                    change(desired, wanted, &place.group, backends, plan);
                }
                place
            }
            Err(reason) => {
                plan.problem(Name::VgroupPort.key(), key, reason);
                continue;
            }
        };
        places.insert(key.clone(), place);
    }
    places
}

/// The group on the load balancer that is meant, if there is one.
fn find<'a>(
    desired: &Desired,
    wanted: &DesiredGroup,
    observed: &'a Observed,
) -> Result<Option<(&'a String, &'a ObservedGroup)>, String> {
    match &wanted.group {
        GroupRef::Id(id) => match observed.groups.get_key_value(id) {
            None => Err("the id of a server group of this load balancer".to_owned()),
            Some((_, group)) if is_mark(&group.name) => {
                Err(format!("a server group that no controller made; this one is {}", group.name))
            }
            Some(found) => Ok(Some(found)),
        },
        GroupRef::Named(name) => {
            let found: Vec<_> =
                observed.groups.iter().filter(|(_, group)| desired.owner.same_mark(&group.name, name)).collect();
            let serving = |id: &str| observed.listeners.iter().flatten().any(|(_, listener)| listener.group_id == id);
            // A creation whose answer was lost can leave two; the one that serves is the one to keep.
            let serving = found.iter().find(|(id, _)| serving(id)).copied();
            Ok(serving.or_else(|| found.first().copied()))
        }
    }
}

/// How steps name a group that exists: as it is wanted, unless that name would lead to another one.
fn reference(observed: &Observed, wanted: &GroupRef, id: &str) -> GroupRef {
    if observed.group_id(wanted) == Some(id) { wanted.clone() } else { GroupRef::Id(id.to_owned()) }
}

fn create(wanted: &DesiredGroup, batch_size: usize, plan: &mut Plan) {
    let backends: Vec<Backend> = wanted.backends.values().cloned().collect();
    let mut batches = backends.chunks(batch_size);
    let target = Target::Group(wanted.group.clone());
    plan.step(
        Operation::CreateGroup {
            name: wanted.group.to_string(),
            backends: batches.next().map(<[Backend]>::to_vec).unwrap_or_default(),
        },
        target.clone(),
        [],
        wanted.source.clone(),
    );
    for batch in batches {
        let operation = Operation::AddBackends { group: wanted.group.clone(), backends: batch.to_vec() };
        plan.step(operation, target.clone(), [target.clone()], wanted.source.clone());
    }
}

/// Adds, then removes, then changes, so that the group never runs dry.
fn change(desired: &Desired, wanted: &DesiredGroup, group: &GroupRef, remote: &[Backend], plan: &mut Plan) {
    let owner = &desired.owner;
    let target = Target::Group(group.clone());
    let there: BTreeSet<&BackendKey> = remote.iter().map(|backend| &backend.key).collect();
    let add: Vec<Backend> = wanted.backends.values().filter(|backend| !there.contains(&backend.key)).cloned().collect();
    for batch in add.chunks(desired.batch_size) {
        let operation = Operation::AddBackends { group: group.clone(), backends: batch.to_vec() };
        plan.step(operation, target.clone(), [], wanted.source.clone());
    }
    if wanted.incomplete {
        plan.note(format!("nothing is removed from {group}, because some of its backends could not be determined"));
        return;
    }
    let ours = || remote.iter().filter(|backend| owner.owns_backend(&backend.description));
    let stale: Vec<BackendKey> =
        ours().filter(|backend| !wanted.backends.contains_key(&backend.key)).map(|b| b.key.clone()).collect();
    remove(group, &stale, desired.batch_size, &format!("{}: no longer a backend", wanted.source), plan);
    let changed: Vec<(Backend, u8)> = ours()
        .filter_map(|remote| {
            let mut backend = wanted.backends.get(&remote.key)?.clone();
            if wanted.ignore_weights {
                backend.weight = remote.weight;
            }
            let same = backend.weight == remote.weight && owner.same_mark(&backend.description, &remote.description);
            (!same).then_some((backend, remote.weight))
        })
        .collect();
    for batch in changed.chunks(desired.batch_size) {
        let reason = format!("{}: {}", wanted.source, found(batch));
        let backends = batch.iter().map(|(backend, _)| backend.clone()).collect();
        let operation = Operation::SetBackends { group: group.clone(), backends };
        plan.step(operation, target.clone(), [target.clone()], reason);
    }
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

fn remove(group: &GroupRef, backends: &[BackendKey], batch_size: usize, reason: &str, plan: &mut Plan) {
    let target = Target::Group(group.clone());
    for batch in backends.chunks(batch_size) {
        let operation = Operation::RemoveBackends { group: group.clone(), backends: batch.to_vec() };
        plan.step(operation, target.clone(), [target.clone()], reason);
    }
}

/// Takes what is ours out of groups that are no longer wanted.
pub(super) fn sweep(
    desired: &Desired,
    observed: &Observed,
    places: &GroupsInPlan,
    references: &GroupReferences,
    plan: &mut Plan,
) {
    let named = |id: &str| {
        // A group that is wanted but cannot be used now is not stale.
        desired.groups.values().any(|wanted| match &wanted.group {
            GroupRef::Id(wanted) => wanted == id,
            GroupRef::Named(_) => false,
        })
    };
    let used: BTreeSet<&str> = places.values().filter_map(|place| place.id.as_deref()).collect();
    let stale: Vec<_> = observed
        .groups
        .iter()
        .filter(|(id, _)| !used.contains(id.as_str()) && !named(id))
        .map(|(id, _)| id.as_str())
        .collect();
    // While a wanted group cannot be used, or a backend may be missing where it should be, what there was before serves on.
    let unusable = desired.groups.keys().any(|key| !places.contains_key(key));
    let withheld = desired.ports_without_group || desired.problems.withhold_groups();
    if unusable || withheld || desired.groups.values().any(|wanted| wanted.incomplete) {
        return;
    }
    let sweep = Sweep { owner: &desired.owner, observed, references, batch_size: desired.batch_size };
    for id in stale {
        sweep.clear(id, plan);
    }
}

/// Deletes those of the groups that are ours alone, and takes our backends out of the others.
/// `managed` says whether listeners of ours are managed.
pub(in crate::plan::clb) fn clear_all(
    owner: &Owner,
    observed: &Observed,
    deleted: &[ListenerKey],
    managed: bool,
    plan: &mut Plan,
) {
    let mut references = GroupReferences::default();
    for (key, listener) in observed.listeners.iter().flatten() {
        if deleted.contains(key) {
            references.dropped.entry(listener.group_id.clone()).or_default().push(*key);
        } else {
            let ours = managed && owner.owns_listener(&listener.description);
            references.kept.entry(listener.group_id.clone()).or_default().push((*key, ours));
        }
    }
    // The smallest batch that every release of the API takes.
    let sweep = Sweep { owner, observed, references: &references, batch_size: 20 };
    for id in observed.groups.keys() {
        sweep.clear(id, plan);
    }
}

/// What decides which of the groups that nothing wants any more can go.
struct Sweep<'a> {
    owner: &'a Owner,
    observed: &'a Observed,
    references: &'a GroupReferences,
    batch_size: usize,
}

impl Sweep<'_> {
    /// Deletes a group if it is ours alone, and otherwise takes our backends out of it.
    fn clear(&self, id: &str, plan: &mut Plan) {
        let Some(group) = self.observed.groups.get(id) else { return };
        let is_ours = self.owner.owns_group(&group.name);
        let Some(backends) = &group.backends else {
            if is_ours {
                plan.problem(&group.name, id, "its backends could not be read; it is kept for now");
            }
            return;
        };
        let (ours, foreign): (Vec<_>, Vec<_>) =
            backends.iter().partition(|backend| self.owner.owns_backend(&backend.description));
        let needs: Vec<Target> =
            self.references.dropped.get(id).into_iter().flatten().map(|key| Target::from(*key)).collect();
        let kept = self.references.kept.get(id);
        if is_ours && foreign.is_empty() {
            self.delete(id, &group.name, needs, plan);
            return;
        }
        if is_ours {
            plan.note(format!("group {} is kept: it holds backends of others", group.name));
        }
        if kept.is_some_and(|kept| kept.iter().any(|(_, ours)| *ours)) {
            return;
        }
        let keys: Vec<_> = ours.into_iter().map(|backend| backend.key.clone()).collect();
        let reference = GroupRef::Id(id.to_owned());
        for batch in keys.chunks(self.batch_size) {
            let operation = Operation::RemoveBackends { group: reference.clone(), backends: batch.to_vec() };
            plan.step(
                operation,
                Target::Group(reference.clone()),
                needs.clone(),
                "our backends, no longer wanted here",
            );
        }
    }

    /// Deletes a group of ours, unless a listener uses it.
    fn delete(&self, id: &str, name: &str, needs: Vec<Target>, plan: &mut Plan) {
        match self.references.kept.get(id).and_then(|kept| kept.first()) {
            None => {
                let operation = Operation::DeleteGroup { id: id.to_owned(), name: name.to_owned() };
                plan.step(operation, Target::Group(GroupRef::Id(id.to_owned())), needs, "no longer wanted");
            }
            Some((listener, true)) => plan.note(format!("group {name} is kept: listener {listener} still uses it")),
            Some((listener, false)) => plan.problem(
                format!("listener {listener}"),
                name,
                "another server group: this one is no longer wanted, and is deleted once no listener uses it",
            ),
        }
    }
}
