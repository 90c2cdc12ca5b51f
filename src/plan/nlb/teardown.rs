//! Taking away what was made for a Service.
//!
//! Only what is proven to be ours in the same run is touched, and no attribute is compared: a load balancer of the wrong
//! kind can still be left.

use super::desired::NlbModel;
use super::diff::security_group;
use super::model::{InstanceField, InstanceFields, ListenerKey};
use super::needs::{MissingReads, groups_of_users};
use super::observed::{GroupDetails, Observed, ObservedInstance};
use super::operation::{Operation, Own, Plan};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::{Listeners, ObservedInstanceModel as _};
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::groups::still_used;
use crate::plan::loadbalancer::groups::{BackendPlanner, GroupReferences};
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::instance_diff::{Fate, marks_on};
use crate::plan::loadbalancer::listener_pass;
use crate::plan::loadbalancer::management::MARKS;
use crate::plan::loadbalancer::ownership::Owner;
use crate::plan::loadbalancer::steps::Target;

/// Backends in one call.
const BATCH: usize = 200;

/// What must still be read before [`teardown`]. Listeners of a load balancer that stays are read: they tell which server groups
/// are in use. Groups that the Service names are looked up: backends of ours go from them, and one that is gone holds none.
pub fn teardown_needs(owner: &Owner, departure: &Departure, observed: &Observed) -> MissingReads {
    let stays = departure.reuse.is_some() || departure.preserve;
    let named = departure.named_groups.iter().filter(|id| !observed.groups.contains_key(*id));
    MissingReads {
        listeners: stays && observed.instance.is_some() && observed.listeners.is_none(),
        named_groups: named.cloned().chain(groups_of_users(departure.reuse.is_some(), observed)).collect(),
        group_backends: observed.groups_to_read(owner, true),
        former: former(owner, observed).filter(|id| !observed.parts.former.contains_key(*id)).cloned().collect(),
        security_groups: observed.parts.security_groups.is_none(),
        ..MissingReads::default()
    }
}

/// Other load balancers that use server groups of ours: the Service once named them, or no longer names the one it has.
fn former<'a>(owner: &'a Owner, observed: &'a Observed) -> impl Iterator<Item = &'a String> {
    let here = observed.instance.as_ref().map(|instance| &instance.id);
    let ours = observed.groups.iter().filter(|(_, group)| owner.owns_group(&group.name));
    let used =
        ours.filter_map(|(id, _)| observed.parts.group_details.get(id)).flat_map(|details| &details.load_balancers);
    used.filter(move |id| Some(*id) != here)
}

/// The steps that remove what is ours.
///
/// - A load balancer that we made is deleted with its listeners, then its server groups and its security group; with
///   `preserve` it is only unprotected, it and its groups lose our marks, and it keeps serving.
/// - A user's load balancer stays. Our listeners go with `override_listeners`, or with the server group of ours that they use;
///   our server groups and backends go, except those that a listener needs.
/// - From another load balancer, our listeners go that use a server group of ours; it stays.
/// - Without a load balancer, server groups and the security group can still be there.
pub fn teardown(owner: &Owner, departure: &Departure, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let instance = observed.instance.as_ref();
    match (Fate::of(owner, departure, instance.map(ObservedInstance::tagged).as_ref(), &mut plan), instance) {
        (Fate::Absent, _) => clear(owner, observed, &GroupReferences::default(), &mut plan),
        (Fate::Left, _) => leave(owner, departure, observed, &mut plan),
        (Fate::Released, Some(instance)) => release(owner, instance, observed, &mut plan),
        (Fate::Deleted, Some(instance)) => delete(owner, instance, observed, &mut plan),
        _ => {}
    }
    plan
}

fn delete(owner: &Owner, instance: &ObservedInstance, observed: &Observed, plan: &mut Plan) {
    const PROTECTION: Target = Target::Attribute("protection");
    let reason = "the Service no longer needs it";
    if instance.fields.is(InstanceField::DeleteProtection, "true") {
        let operation =
            Own::SetInstance(InstanceFields::from_iter([(InstanceField::DeleteProtection, "false".to_owned())]));
        plan.step(operation, PROTECTION, [], reason);
    }
    let operation = Operation::Delete { id: instance.id.clone() };
    plan.step(operation, Target::LoadBalancer, [PROTECTION], reason);
    clear(owner, observed, &GroupReferences::default(), plan);
}

/// Server groups and the security group go after what uses them.
fn clear(owner: &Owner, observed: &Observed, references: &GroupReferences<ListenerKey>, plan: &mut Plan) {
    let planner = BackendPlanner { owner, batch_size: BATCH };
    for (id, group) in &observed.groups {
        let Some(needs) = leave_former(owner, observed, id, plan) else { continue };
        let first = plan.steps.len();
        planner.clear(id, group, references, plan);
        plan.steps.iter_mut().skip(first).for_each(|step| step.needs.extend(needs.iter().cloned()));
    }
    security_group::teardown(owner, observed, plan);
}

/// Takes our listeners that use this group off other load balancers. `None` if a listener of a user uses it there.
fn leave_former(owner: &Owner, observed: &Observed, group: &str, plan: &mut Plan) -> Option<Vec<Target>> {
    let name = observed.groups.get(group).map(|group| &group.name).filter(|name| owner.owns_group(name));
    let Some(name) = name else { return Some(Vec::new()) };
    let listeners = observed.parts.former.iter().flat_map(|(id, all)| all.iter().map(move |(key, it)| (id, key, it)));
    let mut gone = Vec::new();
    let mut is_free = true;
    for (load_balancer, key, listener) in listeners.filter(|(_, _, listener)| listener.group_id == group) {
        if !owner.owns_listener(&listener.description) {
            plan.problem(still_used(format!("listener {key} of load balancer {load_balancer}"), name));
            is_free = false;
            continue;
        }
        let target = Target::FormerListener(listener.id.clone());
        let operation =
            Own::DeleteFormerListener { load_balancer: load_balancer.clone(), listener: *key, id: listener.id.clone() };
        plan.step(operation, target.clone(), [], "the Service no longer needs it");
        gone.push(target);
    }
    is_free.then_some(gone)
}

/// Hands the load balancer to the user, with the groups that it uses.
fn release(owner: &Owner, instance: &ObservedInstance, observed: &Observed, plan: &mut Plan) {
    let reason = "the load balancer is kept for the user";
    let unprotected = [
        (InstanceField::DeleteProtection, "true", "false"),
        (InstanceField::ModificationProtection, "ConsoleProtection", "NonProtection"),
    ];
    let protects = unprotected.into_iter().filter(|(field, on, _)| instance.fields.is(*field, on));
    let fields: InstanceFields = protects.map(|(field, _, off)| (field, off.to_owned())).collect();
    if !fields.is_empty() {
        plan.step(Own::SetInstance(fields), Target::Attribute("protection"), [], reason);
    }
    let planner = BackendPlanner { owner, batch_size: BATCH };
    let may_be_used = |id: &String, details: &GroupDetails| {
        let listens_with = |all: &Listeners<NlbModel>| all.iter().any(|(_, listener)| listener.group_id == *id);
        !details.load_balancers.is_empty() || observed.listeners.as_ref().is_none_or(listens_with)
    };
    for (id, details) in observed.parts.group_details.iter().filter(|(_, details)| owner.owns_tagged(&details.tags)) {
        if let Some(group) = observed.groups.get(id).filter(|_| !may_be_used(id, details)) {
            planner.clear(id, group, &GroupReferences::default(), plan);
            continue;
        }
        let operation = Own::UntagGroup { id: id.clone(), keys: marks_on(owner, &details.tags) };
        plan.step(operation, Target::Attribute("tags of groups"), [], reason);
    }
    for group in observed.parts.security_groups.iter().flatten() {
        plan.note(format!("security group {} is kept with the load balancer", group.id));
    }
    if observed.groups_unread {
        plan.note(
            "server groups could not be listed; the load balancer keeps its marks until theirs are off".to_owned(),
        );
        return;
    }
    // The marks by which all of this is found go last.
    let keys = marks_on(owner, &instance.tags);
    if !keys.is_empty() {
        let groups = plan.steps.iter().map(|step| &step.target).filter(|target| matches!(target, Target::Group(_)));
        let needs: Vec<Target> = groups.cloned().chain([Target::Attribute("tags of groups")]).collect();
        plan.step(Operation::Untag { keys }, Target::Attribute(MARKS), needs, reason);
    }
}

/// Takes what is ours off a user's load balancer.
fn leave(owner: &Owner, departure: &Departure, observed: &Observed, plan: &mut Plan) {
    let references = listener_pass::leave(owner, departure, observed, plan);
    clear(owner, observed, &references, plan);
}

impl Goal<NlbModel> {
    /// What must be read before it can be compared with what there is.
    pub fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure(desired) => desired.needs(observed),
            Self::Remove(removal) => {
                let mut needs = teardown_needs(&removal.owner, &removal.departure, observed);
                let joined = observed.instance.as_ref().map(|instance| &instance.security_group_ids);
                // What a load balancer of a user has joined is the user's.
                let has_joined = removal.departure.reuse.is_none() && joined.is_some_and(|ids| !ids.is_empty());
                needs.security_groups &= removal.had_ranges || has_joined;
                needs
            }
        }
    }
}
