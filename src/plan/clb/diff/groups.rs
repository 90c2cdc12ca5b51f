//! Server groups: which one is meant, which are made, and which are no longer wanted.

use std::collections::BTreeSet;

use crate::plan::clb::annotations::Name;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::{Operation, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::groups::{BackendPlanner, GroupInPlan, GroupReferences, GroupsInPlan};
use crate::plan::service::model::{Backend, DesiredGroup, GroupRef, ObservedGroup};
use crate::plan::service::ownership::{Owner, is_mark};
use crate::plan::service::steps::Target;

/// Makes and fills the groups that are wanted.
pub(super) fn ensure(desired: &Desired, observed: &Observed, plan: &mut Plan) -> GroupsInPlan {
    let mut places = GroupsInPlan::new();
    let planner = planner(desired);
    for (key, wanted) in &desired.groups {
        let place = match find(desired, wanted, observed) {
            Ok(None) if desired.problems.withhold_groups() => continue,
            Ok(None) if observed.groups_unread => {
                plan.problem(key, wanted.group.to_string(), "server groups could not be listed; none is made");
                continue;
            }
            Ok(None) => {
                create(planner, wanted, plan);
                GroupInPlan { group: wanted.group.clone(), id: None }
            }
            Ok(Some((id, group))) => {
                let place = GroupInPlan { group: reference(observed, &wanted.group, id), id: Some(id.clone()) };
                match &group.backends {
                    None => plan.problem(key, id, "its backends could not be read; nothing is changed in it"),
                    Some(_) if desired.problems.withhold_groups() => {}
                    Some(backends) => planner.change(wanted, &place.group, backends, plan),
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

fn planner(desired: &Desired) -> BackendPlanner<'_> {
    BackendPlanner { owner: &desired.owner, batch_size: desired.batch_size }
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

fn create(planner: BackendPlanner<'_>, wanted: &DesiredGroup, plan: &mut Plan) {
    let backends: Vec<Backend> = wanted.backends.values().cloned().collect();
    let (first, rest) = backends.split_at(backends.len().min(planner.batch_size));
    let operation = Operation::CreateGroup { name: wanted.group.to_string(), backends: first.to_vec() };
    let target = Target::Group(wanted.group.clone());
    plan.step(operation, target.clone(), [], wanted.source.clone());
    for operation in planner.additions(&wanted.group, rest) {
        plan.step(operation.into(), target.clone(), [target.clone()], &wanted.source);
    }
}

/// Takes what is ours out of groups that are no longer wanted.
pub(super) fn sweep(
    desired: &Desired,
    observed: &Observed,
    places: &GroupsInPlan,
    references: &GroupReferences<ListenerKey>,
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
    // While a wanted group cannot be used, or a backend may be missing where it should be, what there was before serves on.
    let unusable = desired.groups.keys().any(|key| !places.contains_key(key))
        || used.iter().any(|id| observed.groups.get(*id).is_some_and(|group| group.backends.is_none()));
    let withheld = desired.ports_without_group || desired.problems.withhold_groups();
    let incomplete = desired.groups.values().any(|wanted| wanted.incomplete);
    if unusable || withheld || incomplete {
        let holds_ours =
            |id: &&str| observed.groups[*id].members().iter().any(|it| desired.owner.owns_backend(&it.description));
        let mut stale = observed.groups.keys().map(String::as_str).filter(|id| !used.contains(id) && !named(id));
        plan.withholds_backends |= incomplete && stale.any(|id| holds_ours(&id));
        return;
    }
    for (id, group) in observed.groups.iter().filter(|(id, _)| !used.contains(id.as_str()) && !named(id)) {
        planner(desired).clear(id, group, references, plan);
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
    let planner = BackendPlanner { owner, batch_size: 20 };
    for (id, group) in &observed.groups {
        planner.clear(id, group, &references, plan);
    }
}
