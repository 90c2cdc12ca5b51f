//! Security groups: those that annotations name, and the one of ours that keeps `spec.loadBalancerSourceRanges`.
//!
//! Ours is recognised by both of our tags, and its rules by their description. It is made and filled before it is joined,
//! because a security group without rules that drop lets everybody in; rules that accept come before those that drop, and
//! go after them, unless they take the room of new ones. Listeners are made only once it is joined. Security groups of users
//! are never detached, unless an annotation says which there are to be.

use std::collections::BTreeSet;

use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::desire::SOURCE_RANGES;
use crate::plan::loadbalancer::listener_pass::Protection;
use crate::plan::loadbalancer::ownership::Owner;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::annotations::Name;
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::{MOST_SECURITY_GROUPS, SecurityRule};
use crate::plan::nlb::observed::{Observed, ObservedInstance, ObservedRule, ObservedSecurityGroup, SECURITY_GROUPS};
use crate::plan::nlb::operation::{Operation, Own, Plan};

/// Rules in one call.
const BATCH: usize = 100;
/// Most rules of a security group.
const MOST_RULES: usize = 200;
const TARGET: Target = Target::Attribute(SECURITY_GROUPS);

/// Security groups of ours. The first is the one in use; others come from creations whose answers were lost.
fn ours<'a>(owner: &'a Owner, observed: &'a Observed) -> impl Iterator<Item = &'a ObservedSecurityGroup> {
    observed.parts.security_groups.iter().flatten().filter(|group| owner.owns_tagged(&group.tags))
}

/// Makes and fills the security group, and joins and leaves.
pub(super) fn ensure(desired: &Desired, observed: &Observed, plan: &mut Plan) -> Protection {
    let instance = observed.instance.as_ref().filter(|_| !desired.extra.is_access_unknown);
    let Some(instance) = instance else { return Protection::Missing };
    let found = ours(&desired.owner, observed).next();
    let mut wanted = None;
    if let Some(access) = &desired.access {
        if observed.parts.security_groups.is_none() {
            let text = "security groups could not be listed; none is made, and no listener";
            plan.problem(ServiceProblem::state(SOURCE_RANGES, text));
            return Protection::Missing;
        }
        match found {
            Some(group) if group.vpc_id != instance.vpc_id && !group.vpc_id.is_empty() => {
                let (id, vpc) = (&group.id, &instance.vpc_id);
                let text = format!("security group {id} is not in {vpc}: delete it to have it created there");
                plan.problem(ServiceProblem::state(SOURCE_RANGES, text));
                return Protection::Missing;
            }
            Some(group) if group.rules.is_none() => {
                let text = format!("rules of security group {} could not be read; no listener is made", group.id);
                plan.problem(ServiceProblem::state(SOURCE_RANGES, text));
                return Protection::Missing;
            }
            Some(_) => {}
            None => plan.step(Own::CreateSecurityGroup(access.create.clone()), Target::AccessList, [], SOURCE_RANGES),
        }
        add_rules(desired, found, plan);
        wanted = Some(found.map_or_else(|| access.create.name.clone(), |group| group.id.clone()));
    }
    let mine = ours(&desired.owner, observed).map(|group| group.id.as_str()).collect();
    membership(desired, instance, (&mine, wanted), plan)
}

/// Adds rules that are missing: those that accept come first. Where the group has no room for them, stale rules that accept are
/// removed before; the rules that drop stay, so that no other client gets in.
fn add_rules(desired: &Desired, found: Option<&ObservedSecurityGroup>, plan: &mut Plan) {
    let Some(access) = &desired.access else { return };
    let description = desired.owner.security_mark();
    let all = || found.and_then(|group| group.rules.as_ref()).into_iter().flatten();
    let there: BTreeSet<&SecurityRule> = all()
        .filter(|(_, found)| found.is_plain && found.description == description)
        .map(|(_, found)| &found.rule)
        .collect();
    let missing: Vec<_> = access.rules.iter().filter(|rule| !there.contains(rule)).cloned().collect();
    let mut count = all().count();
    let mut accepts = found.into_iter().flat_map(|group| stale(desired, group)).filter(|(_, found)| !found.rule.drops);
    for rules in missing.chunks(BATCH) {
        let excess = (count + rules.len()).saturating_sub(MOST_RULES);
        let ids: BTreeSet<String> = accepts.by_ref().take(excess.min(BATCH)).map(|(id, _)| id.clone()).collect();
        count = count + rules.len() - ids.len();
        if !ids.is_empty() {
            plan.step(Own::RemoveRules { ids }, Target::AccessList, [Target::AccessList], SOURCE_RANGES);
        }
        let operation = Own::AddRules { rules: rules.iter().cloned().collect(), description: description.clone() };
        plan.step(operation, Target::AccessList, [Target::AccessList], SOURCE_RANGES);
    }
}

/// Rules of ours that are no longer wanted.
fn stale<'a>(
    desired: &'a Desired,
    group: &'a ObservedSecurityGroup,
) -> impl Iterator<Item = (&'a String, &'a ObservedRule)> {
    let description = desired.owner.security_mark();
    let wanted = |rule: &SecurityRule| desired.access.as_ref().is_some_and(|access| access.rules.contains(rule));
    let rules = group.rules.iter().flatten();
    rules.filter(move |(_, found)| found.description == description && !(found.is_plain && wanted(&found.rule)))
}

/// Joins, then leaves; if there is no room to join, leaves first. Of those that are `mine`, only the one in use stays.
fn membership(
    desired: &Desired,
    instance: &ObservedInstance,
    (mine, ours): (&BTreeSet<&str>, Option<String>),
    plan: &mut Plan,
) -> Protection {
    let stated = &desired.instance.security_group_ids;
    let has = &instance.security_group_ids;
    let wanted: BTreeSet<String> = stated.iter().flatten().chain(&ours).cloned().collect();
    let join: BTreeSet<String> = wanted.difference(has).cloned().collect();
    let goes = |id: &&String| stated.is_some() || mine.contains(id.as_str());
    let leave: BTreeSet<String> = has.difference(&wanted).filter(goes).cloned().collect();
    let reason = || {
        let now = has.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let field = if stated.is_some() { Name::SecurityGroupIds.key() } else { SOURCE_RANGES.to_owned() };
        format!("{field}: {now:?} now")
    };
    let has_room = has.len() + join.len() <= MOST_SECURITY_GROUPS;
    let mut operations = Vec::new();
    if !join.is_empty() {
        operations.push(Own::JoinSecurityGroups { groups: join });
    }
    if !leave.is_empty() {
        operations.push(Own::LeaveSecurityGroups { groups: leave });
    }
    if !has_room {
        operations.reverse();
    }
    let planned = operations.iter().any(|it| matches!(it, Own::JoinSecurityGroups { .. }));
    // What is joined is filled first.
    let fills = plan.steps.iter().any(|step| step.target == Target::AccessList);
    for operation in operations {
        let filled = matches!(operation, Own::JoinSecurityGroups { .. }) && fills;
        let needs = filled.then_some(Target::AccessList).into_iter().chain([TARGET]);
        plan.step(operation, TARGET, needs, reason());
    }
    if planned { Protection::Planned(TARGET) } else { Protection::InForce }
}

/// Takes away what is no longer wanted: rules that drop before those that accept, and at last the security group.
pub(super) fn finish(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let mut groups = ours(&desired.owner, observed);
    let Some(group) = groups.next().filter(|_| !desired.extra.is_access_unknown) else { return };
    groups.for_each(|twin| remove(twin, [TARGET], plan));
    if desired.access.is_none() {
        remove(group, [TARGET], plan);
        return;
    }
    let going = plan.steps.iter().filter_map(|step| match &step.operation {
        Operation::Own(Own::RemoveRules { ids }) => Some(ids.clone()),
        _ => None,
    });
    let going: BTreeSet<String> = going.flatten().collect();
    let stays = stale(desired, group).filter(|(id, _)| !going.contains(*id));
    let (drops, accepts): (Vec<_>, Vec<_>) = stays.partition(|(_, found)| found.rule.drops);
    for stale in [drops, accepts] {
        for rules in stale.chunks(BATCH) {
            let ids = rules.iter().map(|(id, _)| (*id).clone()).collect();
            plan.step(Own::RemoveRules { ids }, Target::AccessList, [Target::AccessList], SOURCE_RANGES);
        }
    }
}

/// Deletes the security group of ours after the load balancer has left it.
pub(in crate::plan::nlb) fn teardown(owner: &Owner, observed: &Observed, plan: &mut Plan) {
    ours(owner, observed).for_each(|group| remove(group, [], plan));
}

fn remove(group: &ObservedSecurityGroup, needs: impl IntoIterator<Item = Target>, plan: &mut Plan) {
    let operation = Own::DeleteSecurityGroup { id: group.id.clone(), name: group.name.clone() };
    plan.step(operation, Target::AccessList, needs, "no longer wanted");
}
