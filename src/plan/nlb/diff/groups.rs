//! Server groups: which one is meant, which are made, their attributes, and which are no longer wanted.

use std::collections::BTreeSet;

use crate::plan::nlb::annotations::Name;
use crate::plan::nlb::desired::{Desired, GroupSpec};
use crate::plan::nlb::model::{GroupField, GroupFields, ListenerKey};
use crate::plan::nlb::observed::{GroupDetails, Observed};
use crate::plan::nlb::operation::{Operation, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::groups::{BackendPlanner, GroupInPlan, GroupReferences, GroupsInPlan};
use crate::plan::service::model::{Backend, DesiredGroup, GroupRef, ObservedGroup};
use crate::plan::service::ownership::is_mark;
use crate::plan::service::steps::Target;

type Found<'a> = (&'a String, &'a ObservedGroup);

/// Makes and fills the groups that are wanted.
pub(super) fn ensure(desired: &Desired, observed: &Observed, plan: &mut Plan) -> GroupsInPlan {
    let mut places = GroupsInPlan::new();
    let planner = planner(desired);
    for (key, wanted) in &desired.groups {
        let place = match find(desired, wanted, observed) {
            Ok(None) if desired.problems.withhold_groups() => continue,
            Ok(None) => {
                create(desired, wanted, plan);
                GroupInPlan { group: wanted.group.clone(), id: None }
            }
            Ok(Some((id, group))) => {
                let place = GroupInPlan { group: reference(observed, &wanted.group, id), id: Some(id.clone()) };
                let Some(backends) = &group.backends else {
                    plan.problem(key, id, "its backends could not be read; nothing is changed in it");
                    continue;
                };
                if !desired.problems.withhold_groups() {
                    clash(desired, wanted, id, backends, plan);
                    planner.change(wanted, &place.group, backends, plan);
                }
                attributes(desired, wanted, (&place.group, observed.group_details.get(id)), plan);
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

pub(super) fn planner(desired: &Desired) -> BackendPlanner<'_> {
    BackendPlanner { owner: &desired.owner, batch_size: desired.batch_size }
}

/// The group that is meant, if there is one. Of ours, the name and what is fixed when a group is made are its identity.
fn find<'a>(desired: &Desired, wanted: &DesiredGroup, observed: &'a Observed) -> Result<Option<Found<'a>>, String> {
    match &wanted.group {
        GroupRef::Id(id) => match observed.groups.get_key_value(id) {
            None => Err("the id of a server group that exists".to_owned()),
            Some((_, group)) if is_mark(&group.name) => {
                Err(format!("a server group that no controller made; this one is {}", group.name))
            }
            Some(found) => Ok(Some(found)),
        },
        GroupRef::Named(name) => {
            let spec = desired.group_specs.get(name);
            let fits = |id: &str| {
                let details = observed.group_details.get(id);
                spec.zip(details).is_none_or(|(spec, details)| is_same(observed, spec, details))
            };
            let found: Vec<_> = observed
                .groups
                .iter()
                .filter(|(id, group)| desired.owner.same_mark(&group.name, name) && fits(id))
                .collect();
            let serving = |id: &str| observed.listeners.iter().flatten().any(|(_, listener)| listener.group_id == id);
            // A creation whose answer was lost can leave two; the one that serves is the one to keep.
            let serving = found.iter().find(|(id, _)| serving(id)).copied();
            Ok(serving.or_else(|| found.first().copied()))
        }
    }
}

/// Whether a group with the right name is as it would be made, as far as that cannot be changed. Groups behind TLS used to
/// be made with the listener's protocol, and serve all the same.
fn is_same(observed: &Observed, spec: &GroupSpec, details: &GroupDetails) -> bool {
    let vpc = observed.instance.as_ref().map(|instance| instance.vpc_id.as_str()).unwrap_or_default();
    let in_vpc = vpc.is_empty() || details.vpc_id.is_empty() || details.vpc_id == vpc;
    in_vpc
        && GroupField::ALL.iter().filter(|field| field.is_fixed()).all(|field| {
            let (Some(wanted), Some(found)) = (spec.create.fields.get(field), details.fields.get(field)) else {
                return true;
            };
            let behind_tls = *field == GroupField::Protocol && wanted == "TCP" && found == "TCPSSL";
            wanted.eq_ignore_ascii_case(found) || behind_tls
        })
}

/// How steps name a group that exists: as it is wanted, unless that name would lead to another one.
fn reference(observed: &Observed, wanted: &GroupRef, id: &str) -> GroupRef {
    if observed.group_id(wanted) == Some(id) { wanted.clone() } else { GroupRef::Id(id.to_owned()) }
}

fn create(desired: &Desired, wanted: &DesiredGroup, plan: &mut Plan) {
    let Some(spec) = desired.group_specs.get(&wanted.group.to_string()) else { return };
    let target = Target::Group(wanted.group.clone());
    plan.step(Operation::CreateGroup(Box::new(spec.create.clone())), target.clone(), [], wanted.source.clone());
    let backends: Vec<Backend> = wanted.backends.values().cloned().collect();
    for operation in planner(desired).additions(&wanted.group, &backends) {
        plan.step(operation.into(), target.clone(), [target.clone()], &wanted.source);
    }
}

/// Sets attributes that differ.
fn attributes(
    desired: &Desired,
    wanted: &DesiredGroup,
    (group, details): (&GroupRef, Option<&GroupDetails>),
    plan: &mut Plan,
) {
    let Some((spec, details)) = desired.group_specs.get(&wanted.group.to_string()).zip(details) else { return };
    let differs = |(field, value): &(&GroupField, &String)| {
        let found = details.fields.get(*field).map(String::as_str);
        !field.is_fixed() && !value.eq_ignore_ascii_case(found.unwrap_or_else(|| default_of(**field)))
    };
    let fields: GroupFields = spec.kept.iter().filter(differs).map(|(field, value)| (*field, value.clone())).collect();
    if fields.is_empty() {
        return;
    }
    let reasons: Vec<String> = fields
        .iter()
        .map(|(field, value)| {
            let found = details.fields.get(field).map_or("unset", String::as_str);
            format!("{field} {found} -> {value}")
        })
        .collect();
    let reason = format!("{}: {}", wanted.source, reasons.join(", "));
    plan.step(Operation::SetGroup { group: group.clone(), fields }, Target::Group(group.clone()), [], reason);
}

/// A backend of a user that is what we would add stays the user's; that is told.
fn clash(desired: &Desired, wanted: &DesiredGroup, id: &str, backends: &[Backend], plan: &mut Plan) {
    let foreign = |backend: &&Backend| {
        !desired.owner.owns_backend(&backend.description) && wanted.backends.contains_key(&backend.key)
    };
    let list: Vec<String> = backends
        .iter()
        .filter(foreign)
        .map(|backend| format!("{}:{} ({:?})", backend.key.server_id, backend.key.port, backend.description))
        .collect();
    if !list.is_empty() {
        plan.note(format!("group {id} holds backends of others that serve this port, too: {}", list.join(", ")));
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
        desired.groups.values().any(|wanted| matches!(&wanted.group, GroupRef::Id(wanted) if wanted == id))
    };
    let used: BTreeSet<&str> = places.values().filter_map(|place| place.id.as_deref()).collect();
    // While a wanted group cannot be used, or a backend may be missing where it should be, what there was before serves on.
    let unusable = desired.groups.keys().any(|key| !places.contains_key(key));
    let withheld = desired.ports_without_group || desired.problems.withhold_groups();
    if unusable || withheld || desired.groups.values().any(|wanted| wanted.incomplete) {
        return;
    }
    for (id, group) in observed.groups.iter().filter(|(id, _)| !used.contains(id.as_str()) && !named(id)) {
        planner(desired).clear(id, group, references, plan);
    }
}

/// What holds where the cloud does not say it.
const fn default_of(field: GroupField) -> &'static str {
    match field {
        GroupField::Drain => "false",
        GroupField::PreserveClientIp | GroupField::HealthCheck => "true",
        GroupField::HealthCheckPort => "0",
        _ => "",
    }
}
