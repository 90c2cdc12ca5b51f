//! From what there is to what is desired, as steps in an order of which every prefix is safe.
//!
//! The order: the instance; server groups that serve, each filled before anything is taken out of it; the attributes of the
//! instance; other server groups; listeners, each after its group has its backends, redirecting ones after their targets;
//! at last listeners and groups that are no longer wanted. So at no time does a listener send traffic to a group that lacks
//! its backends.
//!
//! Nothing is decided by labels or by what was applied last: only by the two sides given here.

mod fields;
mod groups;
mod instance;
mod listeners;

use super::Problem;
use super::access;
use super::desired::{Desired, DesiredListener};
use super::manage::{self, Manage};
use super::model::{GroupRef, ListenerField, ListenerKey};
use super::naming::LABEL_HASH;
use super::observed::Observed;
use super::operation::{Operation, Plan, Step, Target};

pub(super) use fields::field_counts;
pub(super) use groups::clear_all;
pub(super) use instance::charge_differs;
pub(super) use listeners::forwards_to;

/// The steps to the desired state. Does not fail: what stands in the way is in [`Plan::problems`], and the other work
/// goes on, unless the load balancer must not be used at all.
#[must_use]
pub fn diff(desired: &Desired, observed: &Observed) -> Plan {
    let mut draft = Draft::default();
    if let Err(problem) = instance::usable(desired, observed) {
        draft.plan.problems.push(problem);
        return draft.plan;
    }
    let stated = desired;
    let desired = &*access::resolved(stated, observed);
    inherited(stated, desired, observed, &mut draft);
    let phase = manage::mark(&draft);
    instance::diff(desired, observed, &mut draft);
    instance::idle(desired, observed.instance.as_ref(), &mut draft);
    manage::excuse(desired.manage, Manage::All, phase, &mut draft);
    let phase = manage::mark(&draft);
    let groups = groups::ensure(desired, observed, &mut draft);
    manage::excuse(desired.manage, Manage::Backends, phase, &mut draft);
    serve_first(observed, &mut draft.plan.steps);
    let phase = manage::mark(&draft);
    if access::ensure(desired, observed, &mut draft) {
        let references = listeners::diff(desired, observed, &groups, &mut draft);
        manage::excuse(desired.manage, Manage::Listeners, phase, &mut draft);
        let phase = manage::mark(&draft);
        groups::sweep(desired, observed, &groups, &references, &mut draft);
        manage::excuse(desired.manage, Manage::Backends, phase, &mut draft);
        access::finish(desired, observed, &mut draft);
    } else {
        manage::excuse(desired.manage, Manage::Listeners, phase, &mut draft);
    }
    manage::withhold(desired.manage, &mut draft);
    draft.plan
}

/// Changes of backends that serve now pass before everything that can wait, such as a name, which a quota may hold up.
/// The instance's ownership marks stay in front of them.
fn serve_first(observed: &Observed, steps: &mut [Step]) {
    steps.sort_by_key(|step| match &step.target {
        Target::Instance | Target::Attribute(instance::MARKS) => 0,
        _ if step.operation.backends_of().is_some_and(|group| observed.serves(group)) => 1,
        _ => 2,
    });
}

/// Says what of an inherited Service is not in force, and how to put it in force.
fn inherited(stated: &Desired, desired: &Desired, observed: &Observed, draft: &mut Draft) {
    let how = format!(
        "no effect yet: the controller that made the load balancer ignored it; change it, or remove the label {LABEL_HASH} \
         from the Service, to have it kept"
    );
    if let (Some(access), None) = (&stated.access, &desired.access) {
        let given = access.entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        draft.warning("spec.loadBalancerSourceRanges", given, how.as_str());
    }
    let differs = |(key, listener): (&ListenerKey, &DesiredListener)| {
        let wanted = listener.defaults.get(&ListenerField::PersistenceTimeout);
        let found =
            observed.listeners.as_ref().and_then(|all| all.get(key)?.fields.get(&ListenerField::PersistenceTimeout));
        let is_there = observed.listeners.as_ref().is_some_and(|all| all.contains_key(key));
        let stated = listener.fields.contains_key(&ListenerField::PersistenceTimeout);
        is_there && !stated && wanted.is_some_and(|wanted| found.is_none_or(|found| found != wanted))
    };
    if desired.manage_listeners && desired.listeners.iter().any(differs) {
        draft.warning("spec.sessionAffinity", "ClientIP", how);
    }
}

/// A plan that is being written.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) plan: Plan,
}

impl Draft {
    /// Adds a step; everything needs the instance.
    pub(super) fn step(
        &mut self,
        operation: Operation,
        target: Target,
        needs: impl IntoIterator<Item = Target>,
        reason: impl Into<String>,
    ) {
        let mut all: Vec<Target> = match target {
            Target::Instance => Vec::new(),
            _ => vec![Target::Instance],
        };
        for need in needs {
            let earlier = need != target || self.plan.steps.iter().any(|step| step.target == target);
            if earlier && !all.contains(&need) {
                all.push(need);
            }
        }
        let destroys = operation.destroys();
        self.plan.steps.push(Step { operation, target, needs: all, reason: reason.into(), destroys });
    }

    pub(super) fn problem(&mut self, field: impl Into<String>, given: impl Into<String>, allowed: impl Into<String>) {
        let problem = Problem { field: field.into(), given: given.into(), allowed: allowed.into() };
        if !self.plan.problems.contains(&problem) {
            self.plan.problems.push(problem);
        }
    }

    pub(super) fn warning(&mut self, field: impl Into<String>, given: impl Into<String>, allowed: impl Into<String>) {
        let warning = Problem { field: field.into(), given: given.into(), allowed: allowed.into() };
        self.plan.warnings.push(warning);
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.plan.notes.push(text.into());
    }
}

/// The target of steps about a group.
fn group_target(group: &GroupRef) -> Target {
    Target::Group(group.clone())
}

/// The target of steps about a listener.
pub(super) const fn listener_target(key: ListenerKey) -> Target {
    Target::Listener(key)
}
