//! Whose listeners are, which server groups they need, and which are no longer wanted.

use std::collections::{BTreeMap, BTreeSet};

use super::annotations::AnnotationName;
use super::cloud::{Observed, ObservedListener};
use super::desired::{Desired, ProductModel, node_port};
use super::groups::{GroupInPlan, GroupReferences};
use super::model::{GroupRef, ObservedGroup};
use super::operation::OperationModel;
use super::ownership::is_mark;
use super::problem::ServiceProblem;
use super::steps::{Plan, Step, Target};
use crate::plan::inputs::{PortStatus, ServicePort, ServiceView};
use crate::plan::loadbalancer::management::{MARKS, ManagementLevel};

/// The error of a port that has no listener of ours.
const PORT_NOT_SERVED: &str = "alibabacloud.com/ListenerMissing";
/// The error of a port that needs a node port, and has none.
const NO_NODE_PORT: &str = "alibabacloud.com/NodePortMissing";

/// What a plan does about listeners. `K` is how the product names them.
#[derive(Debug, Default)]
pub(crate) struct ListenerChanges<K> {
    pub(crate) deleted: BTreeSet<K>,
    /// Listeners that now send traffic to another group.
    pub(crate) moved: BTreeSet<K>,
}

/// Ours by its description; or, on a load balancer of ours, by sending traffic to a group of ours, so that an edited
/// description is put right.
pub(crate) fn is_ours<M: ProductModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    listener: &ObservedListener<M>,
) -> bool {
    let group = observed.groups.get(&listener.group_id);
    desired.owner.owns_listener(&listener.description)
        || (desired.reuse.is_none() && group.is_some_and(|group| desired.owner.owns_group(&group.name)))
}

/// Foreign listeners that collide with a wanted one, which comes from `source`: a note about each that is overridden.
///
/// # Errors
/// One of them may not be overridden.
pub(crate) fn in_the_way<M: ProductModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    (key, source): (M::ListenerKey, &str),
    collides: impl Fn(M::ListenerKey) -> bool,
) -> Result<Vec<String>, ServiceProblem> {
    let there = observed.listeners.as_ref().into_iter().flatten().filter(|(other, _)| collides(**other));
    let mut notes = Vec::new();
    for (other, listener) in there.filter(|(_, listener)| !is_ours(desired, observed, listener)) {
        let (force, description) = (M::Name::FORCE_OVERRIDE_LISTENERS.key(), &listener.description);
        if !may_override(desired, observed, listener) {
            let rule = format!(
                "must be a free port: the listener {other} with description {description:?}, which is not ours, is there; \
                 remove it or choose another port"
            );
            return Err(ServiceProblem::invalid(source, key.to_string(), rule));
        }
        let to = if listener.group_id.is_empty() { "no server group" } else { &listener.group_id };
        notes.push(format!(
            "{force}: the listener {other} with description {description:?}, which sent traffic to {to}, is overridden"
        ));
    }
    let managed = desired.manage.keeps(ManagementLevel::Listeners);
    Ok(if managed { notes } else { Vec::new() })
}

/// Whether a listener that is not ours may be taken over: the user hands it to us with the load balancer, unless it
/// belongs to another Service that exists, or to another cluster. Where its group is not known, it may belong to one.
fn may_override<M: ProductModel>(desired: &Desired<M>, observed: &Observed<M>, listener: &ObservedListener<M>) -> bool {
    let is_free = |mark: &str| !is_mark(mark) || desired.vanished.iter().any(|owner| owner.owns_backend(mark));
    let is_users = |group: &ObservedGroup| is_free(&group.name) || desired.owner.owns_group(&group.name);
    let sends_to_users = listener.group_id.is_empty() || observed.groups.get(&listener.group_id).is_some_and(is_users);
    desired.reuse.is_some() && is_free(&listener.description) && sends_to_users
}

/// What refers to which group once the plan has run. Without management, no listener is ours to change, and none changes.
pub(crate) fn references<M: ProductModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    changes: &ListenerChanges<M::ListenerKey>,
) -> GroupReferences<M::ListenerKey> {
    let are_managed = desired.manage.keeps(ManagementLevel::Listeners);
    let goes = |key: &_| are_managed && (changes.deleted.contains(key) || changes.moved.contains(key));
    GroupReferences::of(observed, goes, |it| desired.manage_listeners && is_ours(desired, observed, it))
}

/// What is changed of a listener, with the reasons: its `settings`, and the `rest`, such as its server group. The cloud may
/// refuse a setting, or the request would lack something (`lacks`): no traffic waits for that, so that a listener that
/// moves to another group moves first.
pub(crate) fn in_parts<F: Default>(
    rest: Vec<String>,
    settings: (F, Vec<String>),
    (is_moved, lacks): (bool, bool),
) -> impl Iterator<Item = (F, Vec<String>)> {
    let parts = match settings {
        _ if lacks => vec![(F::default(), rest)],
        (fields, reasons) if !is_moved => vec![(fields, [reasons, rest].concat())],
        settings => vec![(F::default(), rest), settings],
    };
    parts.into_iter().filter(|(_, reasons)| !reasons.is_empty())
}

/// Listeners could not be read: every group counts as used by a listener of ours, so that none is removed.
pub(crate) fn unread<M: ProductModel>(observed: &Observed<M>, plan: &mut Plan<M>) -> GroupReferences<M::ListenerKey> {
    if let Some(instance) = observed.tagged() {
        let why = "they could not be read; none is changed, and no group is removed";
        plan.problem(ServiceProblem::state(format!("listeners of {}", instance.id), why));
    }
    let kept = observed.groups.keys().map(|id| (id.clone(), vec![(M::ListenerKey::default(), true)])).collect();
    GroupReferences { kept, dropped: BTreeMap::new() }
}

/// The group that a listener is to have, which has this one now; and why, if it is another one. A group that is empty only
/// because its backends could not be determined is none to move to.
pub(crate) fn regroup<M: ProductModel>(
    desired: &Desired<M>,
    (key, wanted): (M::ListenerKey, &GroupRef),
    place: &GroupInPlan,
    found: &str,
    plan: &mut Plan<M>,
) -> (GroupRef, Option<String>) {
    if place.id.as_deref() == Some(found) {
        return (place.group.clone(), None);
    }
    if desired.would_empty(wanted) && !found.is_empty() {
        let why = format!("because the backends of {wanted} could not be determined");
        plan.note(format!("listener {key} keeps its server group {found}, {why}"));
        return (GroupRef::Id(found.to_owned()), None);
    }
    (place.group.clone(), Some(format!("server group {found:?} -> {}", place.group)))
}

/// Changes of backends that serve now pass before everything that can wait, such as a name, which a quota may hold up.
/// The load balancer's ownership marks stay in front of them.
pub(crate) fn serve_first<M: OperationModel>(steps: &mut [Step<M>], serves: impl Fn(&GroupRef) -> bool) {
    let made: BTreeSet<String> = steps.iter().filter_map(|step| step.operation.makes().map(str::to_owned)).collect();
    // One that is made now can have the name of one that serves.
    let serves = |group: &GroupRef| !made.contains(&group.to_string()) && serves(group);
    steps.sort_by_key(|step| match &step.target {
        Target::LoadBalancer | Target::Attribute(MARKS) => 0,
        _ if step.operation.backends_of().is_some_and(serves) => 1,
        _ => 2,
    });
}

/// How the ports of a Service are doing, as newer API servers hold it.
pub(crate) fn port_statuses<M: ProductModel>(
    service: &ServiceView,
    desired: &Desired<M>,
    observed: &Observed<M>,
) -> Vec<PortStatus> {
    let there: Option<BTreeSet<M::ListenerKey>> = observed.listeners.as_ref().map(|all| {
        let ours = all.iter().filter(|(_, listener)| desired.owner.owns_listener(&listener.description));
        ours.map(|(key, _)| *key).collect()
    });
    let managed = desired.manage_listeners && desired.manage.keeps(ManagementLevel::Listeners);
    let is_there = |key: &M::ListenerKey| !managed || there.as_ref().is_none_or(|there| there.contains(key));
    let error = |index: usize| {
        let source = format!("spec.ports[{index}]");
        let mut problems = desired.problems.iter().map(|scoped| &scoped.problem.field);
        match desired.listeners.iter().find(|(_, listener)| listener.source == source) {
            Some((key, _)) if is_there(key) => "",
            None if problems.any(|field| *field == node_port(&source)) => NO_NODE_PORT,
            _ => PORT_NOT_SERVED,
        }
    };
    let status = |(index, port): (usize, &ServicePort)| PortStatus {
        port: port.port,
        protocol: port.protocol.clone(),
        error: error(index).to_owned(),
    };
    service.ports.iter().enumerate().map(status).collect()
}
