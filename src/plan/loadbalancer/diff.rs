//! From what there is to what is desired, as steps in an order of which every prefix is safe.
//!
//! The order: the load balancer; server groups that serve, each filled before anything is taken out of it; the attributes of the
//! load balancer, and what keeps clients out; other server groups; listeners, each after its group has its backends, redirecting
//! ones after their targets; at last what is no longer wanted. A new listener of a network load balancer needs one backend only.
//! So at no time does a listener move to a group that lacks its backends, or serve clients that the source ranges keep out.
//!
//! Nothing is decided by labels or by what was applied last: only by the two sides given here.

use std::borrow::Cow;

use super::cloud::{Answer, Observed};
use super::desired::Desired;
use super::group_diff::{self, GroupModel};
use super::instance_diff;
use super::listener_diff::{self, ListenerChanges, serve_first};
use super::listener_pass::{self, ListenerModel, Protection};
use super::management::{self, ManagementLevel};
use super::operation::Operation;
use super::problem::ServiceProblem;
use super::steps::{Plan, Target};

/// What is particular to a product's diff.
pub(crate) trait DiffModel: ListenerModel + GroupModel {
    /// Whether each server group is part of one load balancer.
    const HAS_OWN_GROUPS: bool;
    /// Whether the creation of a load balancer sets all its attributes.
    const IS_SET_WHEN_MADE: bool;

    /// Whether the load balancer is being deleted, so that nothing is there to work on.
    fn is_going(_observed: &Observed<Self>) -> bool {
        false
    }

    /// Whether the Service publishes the address of this load balancer already, or none.
    fn is_bound(desired: &Desired<Self>, instance: &Self::ObservedInstance) -> bool;

    /// What else keeps the load balancer from being used; or from being made, where there is none.
    fn usable(desired: &Desired<Self>, instance: Option<&Self::ObservedInstance>) -> Result<(), ServiceProblem>;

    /// Whether it has a public address.
    fn is_public(instance: &Self::ObservedInstance) -> bool;

    /// What is asked of one that is made.
    fn creation(desired: &Desired<Self>) -> &Self::Creation;

    /// The desired state in terms of what is there.
    fn resolved<'a>(desired: &'a Desired<Self>, _: &Observed<Self>, _: &mut Plan<Self>) -> Cow<'a, Desired<Self>> {
        Cow::Borrowed(desired)
    }

    /// Changes what differs on the load balancer. Says whether clients are kept out that are to be.
    fn set_instance(desired: &Desired<Self>, observed: &Observed<Self>, plan: &mut Plan<Self>) -> Protection;

    /// Brings about what listeners refer to besides. False if they must be left alone, because they would be unprotected.
    fn protect(_desired: &Desired<Self>, _observed: &Observed<Self>, _plan: &mut Plan<Self>) -> bool {
        true
    }

    /// Completes the steps: takes away what kept clients out, once nothing refers to it.
    fn finish(desired: &Desired<Self>, observed: &Observed<Self>, plan: &mut Plan<Self>);
}

/// The steps to the desired state. Does not fail: what prevents it is in [`Plan::problems`], and the other work
/// goes on, unless the load balancer must not be used at all.
pub(crate) fn diff<M: DiffModel>(desired: &Desired<M>, observed: &Observed<M>) -> Plan<M> {
    let mut plan = Plan::default();
    plan.problems.extend(desired.problems.iter().map(|scoped| scoped.problem.clone()));
    if M::is_going(observed) {
        return plan;
    }
    let instance = observed.instance.as_ref();
    let is_bound = instance.is_some_and(|instance| M::is_bound(desired, instance));
    let usable = instance_diff::usable(desired, observed, is_bound).and_then(|()| M::usable(desired, instance));
    plan.is_unusable = usable.is_err();
    plan.problems.extend(usable.err());
    if instance.is_none() && desired.reuse.is_none() {
        let is_open = !plan.is_unusable && !desired.problems.withhold_load_balancer();
        return group_diff::unless_in_vain(desired, observed, is_open, converge(desired, observed, plan));
    }
    let follow =
        |problems, serves| Plan { problems, is_unusable: true, ..group_diff::follow(desired, observed, serves) };
    if plan.is_unusable {
        // What sends traffic to groups now still does. Those that are part of a load balancer count if the Service has used it.
        let tagged = observed.tagged();
        let is_used =
            tagged.is_some_and(|it| desired.label == it.id || desired.owner.owns_load_balancer(it.name, it.tags));
        return if M::HAS_OWN_GROUPS && !is_used { plan } else { follow(plan.problems, false) };
    }
    if let Some(problem) = instance_diff::forbidden(desired, instance.is_some_and(M::is_public)) {
        plan.problems.push(problem);
        return follow(plan.problems, !desired.ingress.is_empty());
    }
    converge(desired, observed, plan)
}

fn converge<M: DiffModel>(stated: &Desired<M>, observed: &Observed<M>, mut plan: Plan<M>) -> Plan<M> {
    let settled = group_diff::settled(stated, observed);
    let desired = &*M::resolved(&settled, observed, &mut plan);
    let made = if observed.instance.is_none() { make(desired, observed, &mut plan) } else { None };
    let observed = made.as_ref().unwrap_or(observed);
    let known = plan.problems.len();
    let protection = M::set_instance(desired, observed, &mut plan);
    management::excuse(desired.manage, ManagementLevel::All, known, &mut plan);
    let known = plan.problems.len();
    let mut places = group_diff::ensure(desired, observed, &mut plan);
    management::excuse(desired.manage, ManagementLevel::Backends, known, &mut plan);
    serve_first(&mut plan.steps, |group| observed.serves(group));
    let known = plan.problems.len();
    let is_open = M::protect(desired, observed, &mut plan);
    let references = match is_open {
        true => listener_pass::diff(desired, observed, (&places, protection), &mut plan),
        false => listener_diff::references(desired, observed, &ListenerChanges::default()),
    };
    management::excuse(desired.manage, ManagementLevel::Listeners, known, &mut plan);
    let known = plan.problems.len();
    group_diff::follow_listeners(desired, observed, (&mut places, &references), &mut plan);
    group_diff::sweep(desired, observed, &places, &references, &mut plan);
    management::excuse(desired.manage, ManagementLevel::Backends, known, &mut plan);
    if is_open {
        M::finish(desired, observed, &mut plan);
    }
    management::withhold(desired.manage, &mut plan);
    plan
}

/// Plans the creation of a load balancer, and gives what there is afterwards if something is left to be set on it.
fn make<M: DiffModel>(desired: &Desired<M>, observed: &Observed<M>, plan: &mut Plan<M>) -> Option<Observed<M>> {
    let operation = Operation::Create(Box::new(M::creation(desired).clone()));
    let mut made = (!M::IS_SET_WHEN_MADE).then(|| observed.clone());
    made.iter_mut().for_each(|made| made.apply(&operation, &Answer::default()));
    plan.step(operation, Target::LoadBalancer, [], "the Service has no load balancer");
    made
}
