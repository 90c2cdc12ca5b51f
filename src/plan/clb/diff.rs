//! From what there is to what is desired, as steps in an order of which every prefix is safe.
//!
//! The order: the instance; server groups that serve, each filled before anything is taken out of it; the attributes of the
//! instance; other server groups; listeners, each after its group has its backends, redirecting ones after their targets;
//! at last listeners and groups that are no longer wanted. So at no time does a listener send traffic to a group that lacks
//! its backends.
//!
//! Nothing is decided by labels or by what was applied last: only by the two sides given here.

pub(super) mod access_list;
pub(super) mod fields;
pub(super) mod groups;
pub(super) mod instance;
mod listeners;

use super::desired::{Desired, DesiredListener};
use super::model::{ListenerField, ListenerKey};
use super::observed::Observed;
use super::operation::Plan;
use crate::plan::service::group_diff;
use crate::plan::service::listener_diff::{self, ListenerChanges, serve_first};
use crate::plan::service::listener_pass::{self, Protection};
use crate::plan::service::management::{self, ManagementLevel};
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::ownership::LABEL_HASH;
use crate::plan::service::problem::ServiceProblem;

/// The steps to the desired state. Does not fail: what prevents it is in [`Plan::problems`], and the other work
/// goes on, unless the load balancer must not be used at all.
pub fn diff(desired: &Desired, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    plan.problems.extend(desired.problems.iter().map(|scoped| scoped.problem.clone()));
    let usable = instance::usable(desired, observed);
    let is_usable = usable.is_ok();
    plan.problems.extend(usable.err());
    if observed.instance.is_none() && desired.reuse.is_none() {
        let is_open = is_usable && !desired.problems.withhold_load_balancer();
        return group_diff::unless_in_vain(desired, observed, is_open, converge(desired, observed, plan));
    }
    if !is_usable {
        return plan;
    }
    if let Some(problem) = instance::forbidden(desired, observed) {
        plan.problems.push(problem);
        let serves = !desired.ingress.is_empty();
        return Plan { problems: plan.problems, ..group_diff::follow(desired, observed, serves) };
    }
    converge(desired, observed, plan)
}

fn converge(stated: &Desired, observed: &Observed, mut plan: Plan) -> Plan {
    let settled = group_diff::settled(stated, observed);
    let desired = &*access_list::resolved(&settled, observed);
    inherited(stated, desired, observed, &mut plan);
    let phase = management::mark(&plan);
    instance::diff(desired, observed, &mut plan);
    instance::ineffective(desired, observed.instance.as_ref(), &mut plan);
    management::excuse(desired.manage, ManagementLevel::All, phase, &mut plan);
    let phase = management::mark(&plan);
    let mut groups = group_diff::ensure(desired, observed, &mut plan);
    management::excuse(desired.manage, ManagementLevel::Backends, phase, &mut plan);
    serve_first(&mut plan.steps, |group| observed.serves(group));
    let phase = management::mark(&plan);
    let is_open = access_list::ensure(desired, observed, &mut plan);
    let references = match is_open {
        true => listener_pass::diff(desired, observed, (&groups, Protection::InForce), &mut plan),
        false => listener_diff::references(desired, observed, &ListenerChanges::default()),
    };
    management::excuse(desired.manage, ManagementLevel::Listeners, phase, &mut plan);
    let phase = management::mark(&plan);
    group_diff::follow_listeners(desired, observed, (&mut groups, &references), &mut plan);
    group_diff::sweep(desired, observed, &groups, &references, &mut plan);
    management::excuse(desired.manage, ManagementLevel::Backends, phase, &mut plan);
    if is_open {
        access_list::finish(desired, observed, &mut plan);
    }
    management::withhold(desired.manage, &mut plan);
    plan
}

/// Says what of an inherited Service is not in force, and how to put it in force.
fn inherited(stated: &Desired, desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let how = format!(
        "the controller that made the load balancer ignored it; change it, or remove the label {LABEL_HASH} \
         from the Service, to have it kept"
    );
    if let (Some(access), None) = (&stated.access, &desired.access) {
        let given = access.entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        plan.warnings.push(ServiceProblem::ignored("spec.loadBalancerSourceRanges", given, how.as_str()));
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
        plan.warnings.push(ServiceProblem::ignored("spec.sessionAffinity", "ClientIP", how));
    }
}
