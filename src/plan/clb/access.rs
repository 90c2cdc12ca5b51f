//! `spec.loadBalancerSourceRanges`, kept by an access control list of ours.
//!
//! The list is named like our server groups and tagged with the cluster; both together prove that it is ours. It is made
//! and filled before a listener refers to it, because an empty white list lets nobody in, and deleted after the last
//! listener has let go of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::Problem;
use super::annotations::{Annotations, Name};
use super::desired::Desired;
use super::diff::{Draft, listener_target};
use super::model::{ListenerField as Field, ListenerFields, ListenerKey};
use super::naming::Owner;
use super::observed::{AccessList, Observed, ObservedAccessList};
use super::operation::{CreateAccessList, Operation, Step, Target};
use crate::plan::inputs::ServiceView;

/// Most entries of a list.
const MOST_ENTRIES: usize = 300;
/// Entries in one call.
const BATCH: usize = 50;
const FIELD: &str = "spec.loadBalancerSourceRanges";

/// Who may reach the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredAccess {
    /// The list to make.
    pub create: CreateAccessList,
    /// Its entries; never empty.
    pub entries: BTreeSet<IpNet>,
}

/// What the Service asks for. Ranges that let everybody in ask for nothing.
pub(super) fn wanted(
    service: &ServiceView,
    annotations: &Annotations,
    owner: &Owner,
    managed: bool,
    (problems, warnings): (&mut Vec<Problem>, &mut Vec<Problem>),
) -> Option<DesiredAccess> {
    if service.source_ranges.is_empty() {
        return None;
    }
    let given = service.source_ranges.join(",");
    let about = |allowed: String| Problem { field: FIELD.to_owned(), given: given.clone(), allowed };
    let stated =
        [Name::AclStatus, Name::AclId, Name::AclType].into_iter().find(|name| annotations.get(*name).is_some());
    if let Some(name) = stated {
        let key = annotations.key(name);
        problems.push(about(format!("either these ranges or the annotation {key}: both say who may connect")));
        return None;
    }
    if !managed {
        let keys = [Name::ForceOverrideListeners, Name::Manage].map(|name| annotations.key(name)).join(" and ");
        warnings.push(about(format!("no effect: the listeners are not managed; see {keys}")));
        return None;
    }
    let mut all: BTreeSet<IpNet> = BTreeSet::new();
    for range in &service.source_ranges {
        match range.trim().parse::<IpNet>() {
            Ok(block) => drop(all.insert(block.trunc())),
            Err(_) => problems.push(Problem {
                field: FIELD.to_owned(),
                given: range.clone(),
                allowed: "blocks such as 10.0.0.0/8".to_owned(),
            }),
        }
    }
    let ip_version = annotations.text(Name::IpVersion).unwrap_or_else(|| "ipv4".to_owned());
    let (entries, others): (BTreeSet<IpNet>, BTreeSet<IpNet>) =
        all.into_iter().partition(|block| matches!(block, IpNet::V6(_)) == (ip_version == "ipv6"));
    if entries.iter().any(|block| block.prefix_len() == 0) {
        return None;
    }
    if entries.len() > MOST_ENTRIES {
        problems.push(about(format!("at most {MOST_ENTRIES} blocks")));
        return None;
    }
    if entries.is_empty() {
        if !others.is_empty() {
            problems.push(about(format!("at least one block of {ip_version}, which the load balancer speaks")));
        }
        return None;
    }
    if !others.is_empty() {
        let list = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        warnings.push(about(format!("no effect of {list}: the load balancer speaks {ip_version}")));
    }
    let tags = BTreeMap::from([(owner.cluster_tag.clone(), owner.cluster_id.clone())]);
    Some(DesiredAccess { create: CreateAccessList { name: owner.access_list_name(), ip_version, tags }, entries })
}

/// Attributes of listeners that the list protects.
pub(super) fn fields(wanted: &DesiredAccess) -> ListenerFields {
    ListenerFields::from([
        (Field::AclStatus, "on".to_owned()),
        (Field::AclType, "white".to_owned()),
        (Field::AclId, wanted.create.name.clone()),
    ])
}

/// Whether the list must be looked up before a diff means anything.
pub(super) fn unread(desired: &Desired, observed: &Observed) -> bool {
    if observed.access_list != AccessList::Unread || !desired.manage_listeners {
        return false;
    }
    let attached = || {
        let used = |key: &ListenerKey| observed.listeners.as_ref()?.get(key)?.fields.get(&Field::AclId);
        let silent = |fields: &ListenerFields| !fields.contains_key(&Field::AclStatus);
        desired.listeners.iter().any(|(key, wanted)| silent(&wanted.fields) && used(key).is_some())
    };
    desired.access.is_some() || desired.access_list_known || attached()
}

/// The list, if it is ours.
fn ours<'a>(owner: &Owner, observed: &'a Observed) -> Option<&'a ObservedAccessList> {
    match &observed.access_list {
        AccessList::Found(list) if owner.owns_access_list(list) => Some(list),
        _ => None,
    }
}

/// The desired state in terms of the list that is there: its id instead of its name, and listeners without it where no
/// ranges are stated any more.
pub(super) fn resolved<'a>(desired: &'a Desired, observed: &Observed) -> Cow<'a, Desired> {
    let Some(list) = ours(&desired.owner, observed) else {
        let ignored = desired.access.is_some() && desired.inherited && observed.instance.is_some();
        return if ignored { Cow::Owned(open(desired)) } else { Cow::Borrowed(desired) };
    };
    let mut resolved = desired.clone();
    for (key, listener) in &mut resolved.listeners {
        if desired.access.is_some() {
            if let Some(id) = listener.fields.get_mut(&Field::AclId).filter(|id| **id == list.name) {
                id.clone_from(&list.id);
            }
            continue;
        }
        let remote = observed.listeners.as_ref().and_then(|all| all.get(key)?.fields.get(&Field::AclId));
        let attached = ids(remote.map_or("", String::as_str));
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

/// The same without access control of ours.
fn open(desired: &Desired) -> Desired {
    let mut open = Desired { access: None, ..desired.clone() };
    for listener in open.listeners.values_mut() {
        // An annotation and the ranges are never stated together.
        listener.fields.retain(|field, _| !matches!(field, Field::AclStatus | Field::AclType | Field::AclId));
    }
    open
}

fn ids(text: &str) -> BTreeSet<&str> {
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).collect()
}

/// Makes the list and adds what is missing. False if listeners must be left alone, because nobody would protect them.
pub(super) fn ensure(desired: &Desired, observed: &Observed, draft: &mut Draft) -> bool {
    let Some(wanted) = &desired.access else { return true };
    let name = &wanted.create.name;
    let there = match (&observed.access_list, ours(&desired.owner, observed)) {
        (_, Some(list)) if used_elsewhere(list, observed) => {
            draft.problem(FIELD, name, format!("{}, which listeners of another load balancer use, too", list.id));
            return false;
        }
        (_, Some(list)) => Some(list),
        (AccessList::Found(list), None) => {
            draft.problem(
                FIELD,
                name,
                format!(
                    "an access control list of this name whose tag {} is {}: {} is somebody else's; rename it",
                    desired.owner.cluster_tag, desired.owner.cluster_id, list.id
                ),
            );
            return false;
        }
        (AccessList::Absent, None) => None,
        // A new load balancer is planned before anything is read.
        (AccessList::Unread, None) => None,
    };
    if there.is_none() {
        draft.step(Operation::CreateAccessList(wanted.create.clone()), Target::AccessList, [], FIELD);
    }
    let missing = wanted.entries.iter().filter(|entry| there.is_none_or(|list| !list.entries.contains(*entry)));
    let missing: Vec<IpNet> = missing.copied().collect();
    for entries in missing.chunks(BATCH) {
        let operation = Operation::AddAccessEntries { name: name.clone(), entries: entries.to_vec() };
        draft.step(operation, Target::AccessList, [Target::AccessList], FIELD);
    }
    true
}

fn used_elsewhere(list: &ObservedAccessList, observed: &Observed) -> bool {
    let here = observed.instance.as_ref().map_or("", |instance| instance.id.as_str());
    list.listeners.iter().any(|(id, _)| id != here)
}

/// Lets listeners wait for the list, and takes away what is no longer wanted.
pub(super) fn finish(desired: &Desired, observed: &Observed, draft: &mut Draft) {
    if draft.plan.steps.iter().any(|step| step.target == Target::AccessList) {
        for step in &mut draft.plan.steps {
            let (Operation::CreateListener { fields, .. } | Operation::SetListener { fields, .. }) = &step.operation
            else {
                continue;
            };
            if fields.get(&Field::AclStatus).is_some_and(|status| status == "on") {
                step.needs.push(Target::AccessList);
            }
        }
    }
    let Some(list) = ours(&desired.owner, observed) else { return };
    if let Some(wanted) = &desired.access {
        let stale: Vec<IpNet> = list.entries.difference(&wanted.entries).copied().collect();
        for entries in stale.chunks(BATCH) {
            let operation = Operation::RemoveAccessEntries { name: list.name.clone(), entries: entries.to_vec() };
            draft.step(operation, Target::AccessList, [Target::AccessList], FIELD);
        }
    } else {
        remove(list, observed, draft);
    }
}

/// Deletes the list when a Service goes, unless a listener that stays uses it.
pub(super) fn teardown(owner: &Owner, observed: &Observed, preserve: bool, draft: &mut Draft) {
    let Some(list) = ours(owner, observed) else { return };
    if preserve && observed.instance.is_some() {
        draft.note(format!("access control list {} is kept with the load balancer", list.id));
    } else {
        remove(list, observed, draft);
    }
}

fn remove(list: &ObservedAccessList, observed: &Observed, draft: &mut Draft) {
    let deletes = |step: &Step| matches!(step.operation, Operation::DeleteInstance { .. });
    let goes = observed.instance.is_none() || draft.plan.steps.iter().any(deletes);
    let uses =
        |fields: &ListenerFields| fields.get(&Field::AclId).is_some_and(|text| ids(text).contains(list.id.as_str()));
    let mut needs = Vec::new();
    for (key, listener) in observed.listeners.iter().flatten().filter(|(_, listener)| !goes && uses(&listener.fields)) {
        let lets_go = draft.plan.steps.iter().any(|step| match &step.operation {
            Operation::DeleteListener { listener } => listener == key,
            Operation::SetListener { listener, fields, .. } => listener == key && !uses(fields),
            _ => false,
        });
        if !lets_go {
            draft.note(format!(
                "access control list {} is kept: listener {key} of {:?} uses it",
                list.id, listener.description
            ));
            return;
        }
        needs.push(listener_target(*key));
    }
    if used_elsewhere(list, observed) {
        draft.note(format!("access control list {} is kept: another load balancer uses it", list.id));
        return;
    }
    let operation = Operation::DeleteAccessList { id: list.id.clone(), name: list.name.clone() };
    draft.step(operation, Target::AccessList, needs, "no longer wanted");
}
