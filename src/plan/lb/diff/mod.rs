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
use super::desired::Desired;
use super::manage::{self, Manage};
use super::model::{GroupRef, ListenerKey};
use super::observed::Observed;
use super::operation::{Operation, Plan, Step, Target};

pub(super) use groups::clear_all;
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
    let desired = &*access::resolved(desired, observed);
    let phase = manage::mark(&draft);
    instance::diff(desired, observed, &mut draft);
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
