//! Which server groups are meant, which are made, and which are no longer wanted.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::annotations::AnnotationName;
use super::cloud::Observed;
use super::desired::{Desired, ProductModel};
use super::groups::{BackendPlanner, GroupInPlan, GroupReferences, GroupsInPlan};
use super::listener_diff::{self, ListenerChanges};
use super::management::{self, ManagementLevel};
use super::model::{BackendKind, DesiredGroup, GroupRef, ObservedGroup};
use super::ownership::is_mark;
use super::problem::{ProblemKind, ServiceProblem};
use super::steps::{Plan, Step, Target};

/// What is particular to a product's groups.
pub(crate) trait GroupModel: ProductModel {
    /// Which groups of users can be named.
    const NAMED: &'static str;

    /// Whether an observed group of the wanted name is the wanted one.
    fn is_same(_desired: &Desired<Self>, _observed: &Observed<Self>, _name: &str, _id: &str) -> bool {
        true
    }

    /// Makes and fills a group.
    fn create(desired: &Desired<Self>, wanted: &DesiredGroup, plan: &mut Plan<Self>);

    /// Changes what is not about its backends; `place` exists.
    fn change(_: &Desired<Self>, _: &Observed<Self>, _: &DesiredGroup, _: &GroupInPlan, _: &mut Plan<Self>) {}
}

/// Plans the backends of a Service's groups.
pub(crate) fn planner<M: ProductModel>(desired: &Desired<M>) -> BackendPlanner<'_> {
    BackendPlanner { owner: &desired.owner, batch_size: desired.batch_size }
}

/// What is desired. While it is not known which nodes are to be backends, those that are now stay, as far as one of them can.
pub(crate) fn settled<'a, M: ProductModel>(desired: &'a Desired<M>, observed: &Observed<M>) -> Cow<'a, Desired<M>> {
    if !desired.problems.withhold_nodes() {
        return Cow::Borrowed(desired);
    }
    let members = observed.groups.values().flat_map(ObservedGroup::members);
    let ours = members.filter(|it| it.key.kind != BackendKind::Eni && desired.owner.owns_backend(&it.description));
    let serving: BTreeSet<&str> = ours.map(|backend| &*backend.key.server_id).collect();
    let mut settled = desired.clone();
    for group in settled.groups.values_mut() {
        group.backends.keep_nodes(|server| serving.contains(&*server.server_id));
    }
    Cow::Owned(settled)
}

/// Makes and fills the groups that are wanted.
pub(crate) fn ensure<M: GroupModel>(desired: &Desired<M>, observed: &Observed<M>, plan: &mut Plan<M>) -> GroupsInPlan {
    let mut places = GroupsInPlan::new();
    let withheld = desired.problems.withhold_groups();
    for (key, wanted) in &desired.groups {
        let place = match find(desired, wanted, observed) {
            Ok(None) if withheld => continue,
            Ok(None) if observed.groups_unread => {
                plan.problem(ServiceProblem::state(key, "server groups could not be listed; none is made"));
                continue;
            }
            Ok(None) => {
                M::create(desired, wanted, plan);
                GroupInPlan { group: wanted.group.clone(), id: None }
            }
            Ok(Some((id, group))) => {
                let place = GroupInPlan { group: reference::<M>(observed, &wanted.group, id), id: Some(id.clone()) };
                match &group.backends {
                    None => {
                        let text = "its backends could not be read; nothing is changed in it";
                        plan.problem(ServiceProblem::state(format!("server group {id}"), text));
                    }
                    Some(_) if withheld => {}
                    Some(backends) => planner(desired).change(wanted, &place.group, backends, plan),
                }
                M::change(desired, observed, wanted, &place, plan);
                place
            }
            Err(reason) => {
                plan.problem(ServiceProblem::invalid(M::Name::VGROUP_PORT.key(), key, reason));
                continue;
            }
        };
        places.insert(key.clone(), place);
    }
    places
}

/// Keeps the backends of groups that exist, or that listeners of ours use, while nothing else may be done. Groups of users only
/// if the load balancer `serves` the Service: that they are named is no leave to fill them where it may not be used.
pub(crate) fn follow<M: GroupModel>(desired: &Desired<M>, observed: &Observed<M>, serves: bool) -> Plan<M> {
    let desired = &*settled(desired, observed);
    let (mut plan, mut places) = (Plan::default(), GroupsInPlan::new());
    let may_change = |wanted: &DesiredGroup| serves || matches!(wanted.group, GroupRef::Named(_));
    for (key, wanted) in desired.groups.iter().filter(|(_, wanted)| may_change(wanted)) {
        let found = find(desired, wanted, observed);
        let Ok(Some((id, ObservedGroup { backends: Some(backends), .. }))) = found else { continue };
        let place = GroupInPlan { group: reference::<M>(observed, &wanted.group, id), id: Some(id.clone()) };
        if !desired.problems.withhold_groups() {
            planner(desired).change(wanted, &place.group, backends, &mut plan);
        }
        places.insert(key.clone(), place);
    }
    let references = listener_diff::references(desired, observed, &ListenerChanges::default());
    follow_listeners(desired, observed, (&mut places, &references), &mut plan);
    release_freed(desired, observed, &mut plan);
    management::withhold(desired.manage, &mut plan);
    plan
}

/// The plan that makes a load balancer, if nothing stands against it (`is_open`) and a port will be served, or may be once
/// more can be read. Otherwise only what is wrong counts, all at once, and groups that exist follow the endpoints.
pub(crate) fn unless_in_vain<M: GroupModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    is_open: bool,
    plan: Plan<M>,
) -> Plan<M> {
    let makes_listener = |step: &Step<M>| step.operation.creates() && matches!(step.target, Target::Listener(_));
    let is_unread = plan.problems.iter().any(|it| matches!(it.kind, ProblemKind::State(_)));
    let serves =
        !desired.manage.keeps(ManagementLevel::Listeners) || plan.steps.iter().any(makes_listener) || is_unread;
    if is_open && serves {
        return plan;
    }
    Plan { problems: plan.problems, warnings: plan.warnings, ..follow(desired, observed, false) }
}

/// Keeps the backends of groups that listeners of ours keep while something holds them back from the wanted ones. Such a group
/// is ours, or holds our backends.
pub(crate) fn follow_listeners<M: GroupModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    (places, references): (&mut GroupsInPlan, &GroupReferences<M::ListenerKey>),
    plan: &mut Plan<M>,
) {
    if desired.problems.withhold_groups() {
        return;
    }
    let port = |key: M::ListenerKey| match key.into() {
        Target::Listener(listener) => Some(listener.port),
        _ => None,
    };
    // One of another protocol keeps its port while the wanted one cannot be made.
    let at_its_port = |key| desired.listeners.iter().find(|(other, _)| port(**other) == port(key)).map(|(_, it)| it);
    for (id, group) in &observed.groups {
        let Some(backends) = &group.backends else { continue };
        if places.values().any(|place| place.id.as_ref() == Some(id)) {
            continue;
        }
        // Whether they are managed is not asked: they send traffic to the group all the same.
        let is_of_us =
            |key| observed.listener(key).is_some_and(|listener| listener_diff::is_ours(desired, observed, listener));
        let listeners = references.kept.get(id).into_iter().flatten().filter(|(key, _)| is_of_us(key));
        let wanted = listeners.filter_map(|(key, _)| desired.listeners.get(key).or_else(|| at_its_port(*key)));
        let mut wanted = wanted.filter_map(|listener| desired.groups.get(&listener.group.to_string()));
        let is_ours = || {
            desired.owner.owns_group(&group.name)
                || backends.iter().any(|backend| desired.owner.owns_backend(&backend.description))
        };
        if let Some(wanted) = wanted.next().filter(|_| is_ours()) {
            let place = GroupInPlan { group: GroupRef::Id(id.clone()), id: Some(id.clone()) };
            planner(desired).change(wanted, &place.group, backends, plan);
            places.insert(id.clone(), place);
        }
    }
}

/// The group that is meant, if there is one.
fn find<'a, M: GroupModel>(
    desired: &Desired<M>,
    wanted: &DesiredGroup,
    observed: &'a Observed<M>,
) -> Result<Option<(&'a String, &'a ObservedGroup)>, String> {
    let groups = &observed.groups;
    match &wanted.group {
        GroupRef::Id(wanted) => match groups.iter().find(|(id, _)| *id == wanted) {
            None if observed.groups_unread => Ok(None),
            None => Err(format!("must be the id of {}", M::NAMED)),
            Some((_, group)) if is_mark(&group.name) => {
                Err(format!("must be a server group that no controller made; this one is {}", group.name))
            }
            Some(found) => Ok(Some(found)),
        },
        GroupRef::Named(name) => {
            let is_meant = |(id, group): &(&String, &ObservedGroup)| {
                desired.owner.same_mark(&group.name, name) && M::is_same(desired, observed, name, id)
            };
            let found: Vec<_> = groups.iter().filter(is_meant).collect();
            let listeners = observed.listeners.iter().flatten();
            let used: BTreeSet<&str> = listeners.map(|(_, listener)| listener.group_id.as_str()).collect();
            // A creation whose answer was lost can leave two; the one that serves is the one to keep.
            let serving = found.iter().find(|(id, _)| used.contains(id.as_str())).copied();
            Ok(serving.or_else(|| found.first().copied()))
        }
    }
}

/// How steps name a group that exists: as it is wanted, unless that name would lead to another one.
fn reference<M: ProductModel>(observed: &Observed<M>, wanted: &GroupRef, id: &str) -> GroupRef {
    if observed.group_id(wanted) == Some(id) { wanted.clone() } else { GroupRef::Id(id.to_owned()) }
}

/// Takes what is ours out of groups that are no longer wanted.
pub(crate) fn sweep<M: ProductModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    places: &GroupsInPlan,
    references: &GroupReferences<M::ListenerKey>,
    plan: &mut Plan<M>,
) {
    let used: BTreeSet<&str> = places.values().filter_map(|place| place.id.as_deref()).collect();
    // A group that is wanted but cannot be used now is not stale.
    let named =
        |id: &str| desired.groups.values().any(|wanted| matches!(&wanted.group, GroupRef::Id(wanted) if wanted == id));
    let groups = &observed.groups;
    let stale: Vec<_> = groups.iter().filter(|(id, _)| !used.contains(id.as_str()) && !named(id)).collect();
    // While a wanted group cannot be used, or a backend may be missing where it should be, what there was before serves on.
    let unread = places.values().filter_map(|place| groups.get(place.id.as_ref()?)).any(|it| it.backends.is_none());
    let unusable = unread || desired.groups.keys().any(|key| !places.contains_key(key));
    let withheld = desired.ports_without_group || desired.problems.withhold_groups();
    let incomplete = desired.is_unsure();
    if unusable || withheld || incomplete {
        let is_ours = |group: &ObservedGroup| {
            group.members().iter().any(|backend| desired.owner.owns_backend(&backend.description))
        };
        plan.withholds_backends |= incomplete && stale.iter().any(|(_, group)| is_ours(group));
    } else {
        for (id, group) in stale {
            planner(desired).clear(id, group, references, plan);
        }
    }
    release_freed(desired, observed, plan);
}

/// Takes our nodes out of groups at ports that the API server has taken back, and may give to another Service; and pods that are
/// gone out of groups that nothing else keeps in sync. Groups that the plan deletes, or out of which it takes backends anyway, are left to it.
fn release_freed<M: ProductModel>(desired: &Desired<M>, observed: &Observed<M>, plan: &mut Plan<M>) {
    let is_wanted = |id: &str, group: &ObservedGroup| {
        desired.groups.values().any(|wanted| match &wanted.group {
            GroupRef::Named(name) => desired.owner.same_mark(&group.name, name),
            GroupRef::Id(wanted) => wanted == id,
        })
    };
    let is_current = |id: &str, group: &ObservedGroup| {
        let port = desired.owner.port_of_group(&group.name);
        port.is_some_and(|port| desired.node_ports.contains(port)) || is_wanted(id, group)
    };
    // The others are few, so that a plan for many nodes costs no more.
    for (id, group) in observed.groups.iter().filter(|(id, group)| !is_current(id, group)) {
        let ours = group.members().iter().filter(|it| desired.owner.owns_backend(&it.description));
        // Pods stay until it is known which listener needs others in their place.
        let ours = ours.filter(|it| it.key.kind != BackendKind::Eni || observed.listeners.is_some());
        let freed = ours.filter_map(|it| Some((it.key.clone(), desired.node_ports.freed(&it.key)?)));
        let (keys, reasons): (Vec<_>, Vec<_>) = freed.unzip();
        let is_this = |target: &Target| matches!(target, Target::Group(it) if observed.group_id(it) == Some(id));
        let Some(reason) = reasons.first() else { continue };
        if plan.steps.iter().any(|step| step.destroys && is_this(&step.target)) {
            continue;
        }
        let group = GroupRef::Id(id.clone());
        for operation in planner(desired).removals::<M>(&group, &keys) {
            plan.step(operation, Target::Group(group.clone()), [], *reason);
        }
    }
}
