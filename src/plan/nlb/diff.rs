//! From what there is to what is desired, as steps in an order of which every prefix is safe.
//!
//! The order: the load balancer and its attributes; the security group of the source ranges, filled before it is joined;
//! server groups, each filled before anything is taken out of it; listeners, each after its group has its backends; at last
//! what is no longer wanted. So at no time does a listener send traffic to a group that lacks its backends, or serve clients
//! that the source ranges keep out.
//!
//! Nothing is decided by labels or by what was applied last: only by the two sides given here.

pub(super) mod access;
mod groups;
mod instance;
mod listeners;

use std::collections::BTreeMap;
use std::fmt::Display;

use super::desired::Desired;
use super::observed::{Answer, Observed};
use super::operation::{Operation, Plan};
use crate::plan::service::group_diff;
use crate::plan::service::listener_diff::serve_first;
use crate::plan::service::listener_pass;
use crate::plan::service::management::{self, ManagementLevel};
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::steps::Target;

/// The steps to the desired state. Does not fail: what prevents it is in [`Plan::problems`], and the other work
/// goes on, unless the load balancer must not be used at all.
pub fn diff(desired: &Desired, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    plan.problems.extend(desired.problems.iter().map(|scoped| scoped.problem.clone()));
    // While the deletion of a load balancer runs, nothing is there to work on.
    let is_going = observed.jobs.get(&Target::LoadBalancer).is_some_and(|job| job.deletes);
    if is_going {
        return plan;
    }
    let usable = instance::usable(desired, observed);
    let is_usable = usable.is_ok();
    plan.problems.extend(usable.err());
    if observed.instance.is_none() && desired.reuse.is_none() {
        let is_open = is_usable && !desired.problems.withhold_load_balancer();
        return group_diff::unless_in_vain(desired, observed, is_open, converge(desired, observed, plan));
    }
    if !is_usable {
        // Groups are no part of a load balancer: what sends traffic to them now does so on.
        return Plan { problems: plan.problems, ..group_diff::follow(desired, observed, false) };
    }
    if let Some(problem) = instance::forbidden(desired, observed) {
        plan.problems.push(problem);
        let serves = !desired.ingress.is_empty();
        return Plan { problems: plan.problems, ..group_diff::follow(desired, observed, serves) };
    }
    converge(desired, observed, plan)
}

fn converge(desired: &Desired, observed: &Observed, mut plan: Plan) -> Plan {
    let desired = &*group_diff::settled(desired, observed);
    let made = made(desired, observed, &mut plan);
    let observed = made.as_ref().unwrap_or(observed);
    let phase = management::mark(&plan);
    instance::diff(desired, observed, &mut plan);
    let protected = access::ensure(desired, observed, &mut plan);
    management::excuse(desired.manage, ManagementLevel::All, phase, &mut plan);
    let phase = management::mark(&plan);
    let mut places = group_diff::ensure(desired, observed, &mut plan);
    management::excuse(desired.manage, ManagementLevel::Backends, phase, &mut plan);
    serve_first(&mut plan.steps, |group| observed.serves(group));
    let phase = management::mark(&plan);
    let references = listener_pass::diff(desired, observed, (&places, protected), &mut plan);
    management::excuse(desired.manage, ManagementLevel::Listeners, phase, &mut plan);
    let phase = management::mark(&plan);
    group_diff::follow_listeners(desired, observed, (&mut places, &references), &mut plan);
    group_diff::sweep(desired, observed, &places, &references, &mut plan);
    management::excuse(desired.manage, ManagementLevel::Backends, phase, &mut plan);
    access::finish(desired, observed, &mut plan);
    management::withhold(desired.manage, &mut plan);
    plan
}

/// Plans the creation of a load balancer that is not there, and gives what there is afterwards: not everything can be said
/// when one is made.
fn made(desired: &Desired, observed: &Observed, plan: &mut Plan) -> Option<Observed> {
    if observed.instance.is_some() {
        return None;
    }
    let operation = Operation::Create(Box::new(desired.instance.create.clone()));
    let mut made = observed.clone();
    made.apply(&operation, &Answer::default());
    plan.step(operation, Target::LoadBalancer, [], "the Service has no load balancer");
    Some(made)
}

/// Attributes that differ from what is `wanted`, and how. What the cloud does not report is its default.
fn differing<'a, F: Copy + Display + Ord + 'a>(
    wanted: impl Iterator<Item = (&'a F, &'a String)>,
    found: &BTreeMap<F, String>,
    default_of: fn(F) -> &'static str,
) -> (BTreeMap<F, String>, Vec<String>) {
    let differs = |(field, value): &(&F, &String)| {
        let found = found.get(field).map_or_else(|| default_of(**field), String::as_str);
        !value.eq_ignore_ascii_case(found)
    };
    let changed = wanted.filter(differs).map(|(field, value)| {
        let found = found.get(field).map_or("unset", String::as_str);
        ((*field, value.clone()), format!("{field} {found} -> {value}"))
    });
    changed.unzip()
}
