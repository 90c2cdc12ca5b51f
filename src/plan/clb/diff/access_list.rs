//! `spec.loadBalancerSourceRanges`, kept by an access control list of ours.
//!
//! The list is named like our server groups and tagged with the cluster's id and uid; together they prove that it is ours. It is made
//! and filled before a listener refers to it, because an empty white list refuses every client, and deleted after the
//! last listener has stopped using it. A load balancer that is preserved keeps the list; if a Service of that name is made
//! again, its list has a name with the Service's uid in it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::{ListenerField as Field, ListenerFields, ListenerKey, MOST_ENTRIES};
use crate::plan::clb::observed::{AccessList, Observed, ObservedAccessList};
use crate::plan::clb::operation::{Operation, Own, Plan, Step};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::ownership::Owner;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;

/// Entries in one call.
const BATCH: usize = 50;
const FIELD: &str = "spec.loadBalancerSourceRanges";

/// Whether the list must be looked up before a diff means anything.
pub(in crate::plan::clb) fn unread(desired: &Desired, observed: &Observed) -> bool {
    if observed.parts.access_list != AccessList::Unread || !desired.manage_listeners {
        return false;
    }
    let attached = || {
        let used = |key: &ListenerKey| observed.listener(key)?.fields.get(&Field::AclId);
        let silent = |fields: &ListenerFields| !fields.contains_key(&Field::AclStatus);
        desired.listeners.iter().any(|(key, wanted)| silent(&wanted.fields) && used(key).is_some())
    };
    desired.access.is_some() || desired.applied.contains(applied::SOURCE_RANGES) || attached()
}

/// The list, if it is ours.
fn ours<'a>(owner: &Owner, observed: &'a Observed) -> Option<&'a ObservedAccessList> {
    match &observed.parts.access_list {
        AccessList::Found(list) if owner.owns_access_list(&list.name, &list.tags) => Some(list),
        _ => None,
    }
}

/// The desired state in terms of the list that is there: its id instead of its name, and listeners without it where no
/// ranges are stated any more.
pub(super) fn resolved<'a>(desired: &'a Desired, observed: &Observed) -> Cow<'a, Desired> {
    let Some(list) = ours(&desired.owner, observed) else {
        let ignored = desired.access.is_some() && desired.extra.inherited && observed.instance.is_some();
        let own = || desired.owner.own_access_list_name();
        return match ignored {
            true => Cow::Owned(open(desired)),
            false if observed.parts.list_is_kept => Cow::Owned(named(desired, &own(), &own())),
            false => Cow::Borrowed(desired),
        };
    };
    if desired.access.is_some() {
        return Cow::Owned(named(desired, &list.name, &list.id));
    }
    let mut resolved = desired.clone();
    for (key, listener) in &mut resolved.listeners {
        let attached = ids(observed.listener(key).map_or("", |remote| remote.fields.text(Field::AclId)));
        if !attached.contains(list.id.as_str()) || listener.fields.contains_key(&Field::AclStatus) {
            continue;
        }
        let others: Vec<&str> = attached.into_iter().filter(|id| *id != list.id).collect();
        if others.is_empty() {
            listener.fields.insert(Field::AclStatus, "off".to_owned());
        } else {
            listener.fields.insert(Field::AclStatus, "on".to_owned());
            listener.fields.insert(Field::AclId, others.join(","));
        }
    }
    Cow::Owned(resolved)
}

/// The same with a list of this name, which listeners find by this id.
fn named(desired: &Desired, name: &str, id: &str) -> Desired {
    let mut named = desired.clone();
    let Some(access) = &mut named.access else { return named };
    let usual = std::mem::replace(&mut access.create.name, name.to_owned());
    let fields = named.listeners.values_mut().filter_map(|listener| listener.fields.get_mut(&Field::AclId));
    fields.filter(|found| **found == usual).for_each(|found| id.clone_into(found));
    named
}

/// The same without access control of ours: with what annotations say of it.
fn open(desired: &Desired) -> Desired {
    let mut open = desired.clone();
    let otherwise = open.access.take().map(|access| access.otherwise).unwrap_or_default();
    for listener in open.listeners.values_mut() {
        listener.fields.retain(|field, _| !matches!(field, Field::AclStatus | Field::AclType | Field::AclId));
        listener.fields.extend(otherwise.clone());
    }
    open
}

fn ids(text: &str) -> BTreeSet<&str> {
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).collect()
}

/// Makes the list and adds what is missing. False if listeners must be left alone, because they would be unprotected.
pub(super) fn ensure(desired: &Desired, observed: &Observed, plan: &mut Plan) -> bool {
    let Some(wanted) = &desired.access else { return true };
    let name = &wanted.create.name;
    let there = match (&observed.parts.access_list, ours(&desired.owner, observed)) {
        (_, Some(list)) if used_elsewhere(list, observed) => {
            let text =
                format!("access control list {name} ({}) is used by listeners of another load balancer, too", list.id);
            plan.problem(ServiceProblem::state(FIELD, text));
            return false;
        }
        (_, Some(list)) => Some(list),
        (AccessList::Found(list), None) => {
            let (own, found) = (desired.owner.cluster_tags(), &list.tags);
            let text = format!(
                "access control list {name} ({}) has the tags {found:?} instead of {own:?}, so it is foreign; rename the list \
                 or the Service",
                list.id
            );
            plan.problem(ServiceProblem::state(FIELD, text));
            return false;
        }
        (AccessList::Unknown, None) => {
            let text = format!("access control list {name} could not be looked up; no listener is changed");
            plan.problem(ServiceProblem::state(FIELD, text));
            return false;
        }
        (AccessList::Absent, None) => None,
        // A new load balancer is planned before anything is read.
        (AccessList::Unread, None) => None,
    };
    if there.is_none() {
        plan.step(Own::CreateAccessList(wanted.create.clone()), Target::AccessList, [], FIELD);
    }
    let missing = wanted.entries.iter().filter(|entry| there.is_none_or(|list| !list.entries.contains(*entry)));
    let missing: Vec<IpNet> = missing.copied().collect();
    let mut count = there.map_or(0, |list| list.entries.len());
    let mut stale = there.into_iter().flat_map(|list| list.entries.difference(&wanted.entries));
    for entries in missing.chunks(BATCH) {
        // As many as there is no room for go before.
        let excess = (count + entries.len()).saturating_sub(MOST_ENTRIES);
        let gone: Vec<IpNet> = stale.by_ref().take(excess).copied().collect();
        count = count + entries.len() - gone.len();
        if !gone.is_empty() {
            let operation = Own::RemoveAccessEntries { name: name.clone(), entries: gone };
            plan.step(operation, Target::AccessList, [Target::AccessList], FIELD);
        }
        let operation = Own::AddAccessEntries { name: name.clone(), entries: entries.to_vec() };
        plan.step(operation, Target::AccessList, [Target::AccessList], FIELD);
    }
    true
}

fn used_elsewhere(list: &ObservedAccessList, observed: &Observed) -> bool {
    let here = observed.instance.as_ref().map_or("", |instance| instance.id.as_str());
    list.listeners.iter().any(|(id, _)| id != here)
}

impl Observed {
    /// Whether the Service may have a list of its own name beside the one of the usual name, which a preserved load
    /// balancer keeps, or has kept.
    pub(crate) fn may_have_own_list(&self, owner: &Owner, usual: Option<&ObservedAccessList>) -> bool {
        let here = self.id().unwrap_or_default();
        let is_free = |list: &ObservedAccessList| list.listeners.iter().all(|(id, _)| id != here);
        match usual {
            Some(list) => owner.owns_access_list(&list.name, &list.tags) && is_free(list),
            None => self.listeners.iter().flatten().any(|(_, it)| it.fields.contains_key(&Field::AclId)),
        }
    }
}

/// Lets listeners wait for the list, and takes away what is no longer wanted.
pub(super) fn finish(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    if plan.steps.iter().any(|step| step.target == Target::AccessList) {
        for step in &mut plan.steps {
            let (fields, found) = match &step.operation {
                Operation::CreateListener { fields, .. } => (fields.clone(), None),
                Operation::SetListener { listener, fields, .. } => {
                    (observed.sent(*listener, fields), observed.listener(listener))
                }
                _ => continue,
            };
            // One that refers to the list already is open to no other clients.
            let refers = found.is_some_and(|found| found.fields.get(&Field::AclId) == fields.get(&Field::AclId));
            if !refers && fields.is(Field::AclStatus, "on") {
                step.needs.push(Target::AccessList);
            }
        }
    }
    let Some(list) = ours(&desired.owner, observed) else { return };
    if let Some(wanted) = &desired.access {
        let going = plan.steps.iter().filter_map(|step| match &step.operation {
            Operation::Own(Own::RemoveAccessEntries { entries, .. }) => Some(entries.clone()),
            _ => None,
        });
        let going: BTreeSet<IpNet> = going.flatten().collect();
        let stale = list.entries.difference(&wanted.entries).filter(|entry| !going.contains(*entry));
        let stale: Vec<IpNet> = stale.copied().collect();
        for entries in stale.chunks(BATCH) {
            let operation = Own::RemoveAccessEntries { name: list.name.clone(), entries: entries.to_vec() };
            plan.step(operation, Target::AccessList, [Target::AccessList], FIELD);
        }
    } else {
        remove(list, observed, plan);
    }
}

/// Deletes the list when a Service goes, unless a listener that stays uses it.
pub(in crate::plan::clb) fn teardown(owner: &Owner, observed: &Observed, preserve: bool, plan: &mut Plan) {
    let Some(list) = ours(owner, observed) else { return };
    if preserve && observed.instance.is_some() {
        plan.note(format!("access control list {} is kept with the load balancer", list.id));
    } else {
        remove(list, observed, plan);
    }
}

fn remove(list: &ObservedAccessList, observed: &Observed, plan: &mut Plan) {
    let deletes = |step: &Step| matches!(step.operation, Operation::Delete { .. });
    let goes = observed.instance.is_none() || plan.steps.iter().any(deletes);
    let uses =
        |fields: &ListenerFields| fields.get(&Field::AclId).is_some_and(|text| ids(text).contains(list.id.as_str()));
    let mut needs = Vec::new();
    for (key, listener) in observed.listeners.iter().flatten().filter(|(_, listener)| !goes && uses(&listener.fields)) {
        let lets_go = plan.steps.iter().any(|step| match &step.operation {
            Operation::DeleteListener { listener } => listener == key,
            Operation::SetListener { listener, fields, .. } => listener == key && !uses(&observed.sent(*key, fields)),
            _ => false,
        });
        if !lets_go {
            plan.note(format!(
                "access control list {} is kept: listener {key} of {:?} uses it",
                list.id, listener.description
            ));
            return;
        }
        needs.push(Target::from(*key));
    }
    if used_elsewhere(list, observed) {
        plan.note(format!("access control list {} is kept: another load balancer uses it", list.id));
        return;
    }
    let operation = Own::DeleteAccessList { id: list.id.clone(), name: list.name.clone() };
    plan.step(operation, Target::AccessList, needs, "no longer wanted");
}
