//! Taking away what was made for a Service.
//!
//! Only what is proven to be ours in the same run is touched, and no attribute is compared: a load balancer of the wrong
//! kind can still be left.

use super::desired::ClbModel;
use super::diff::access_list;
use super::model::{InstanceField, InstanceFields};
use super::needs::MissingReads;
use super::observed::{Observed, ObservedInstance};
use super::operation::{Operation, Own, Plan, Step};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::ObservedInstanceModel as _;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::groups::BackendPlanner;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::instance_diff::{Fate, marks_on};
use crate::plan::loadbalancer::listener_pass;
use crate::plan::loadbalancer::management::MARKS;
use crate::plan::loadbalancer::ownership::{Owner, UNPROTECTED_TAG};
use crate::plan::loadbalancer::steps::Target;

/// What must still be read before [`teardown`]. Listeners of a user's load balancer are read in any case: they tell which
/// server groups are in use.
pub fn teardown_needs(owner: &Owner, departure: &Departure, observed: &Observed) -> MissingReads {
    if departure.reuse.is_none() || observed.instance.is_none() {
        return MissingReads::default();
    }
    MissingReads {
        listeners: observed.listeners.is_none(),
        group_backends: observed.groups_to_read(owner, true),
        ..MissingReads::default()
    }
}

/// The steps that remove what is ours.
///
/// - A load balancer that we made is deleted with everything on it; with `preserve` it is only unprotected and loses our
///   marks, and keeps serving.
/// - A user's load balancer stays. Our listeners go with `override_listeners`, or with the server group of ours that they use;
///   our server groups and backends go, except those that a listener needs.
/// - Without a load balancer there is nothing to do.
pub fn teardown(owner: &Owner, departure: &Departure, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let instance = observed.instance.as_ref();
    let fate = Fate::of(owner, departure, instance.map(ObservedInstance::tagged).as_ref(), &mut plan);
    match (fate, instance) {
        (Fate::Left, _) => leave(owner, departure, observed, &mut plan),
        (Fate::Released, Some(instance)) => release(owner, instance, &mut plan),
        (Fate::Deleted, Some(instance)) => delete(instance, &mut plan),
        _ => {}
    }
    if plan.problems.is_empty() {
        access_list::teardown(owner, observed, fate == Fate::Released, &mut plan);
    }
    plan
}

/// The same steps for a Service that stays: as long as the load balancer is there, its user can want it back, and with
/// its delete protection.
pub fn reversible(mut plan: Plan) -> Plan {
    let deletes = plan.steps.iter().any(|step| matches!(step.operation, Operation::Delete { .. }));
    let unprotects = |step: &Step| step.operation == unprotected().into();
    if let Some(index) = plan.steps.iter().position(unprotects).filter(|_| deletes) {
        let mark = Step {
            operation: Operation::Tag { tags: [(UNPROTECTED_TAG.to_owned(), "true".to_owned())].into() },
            target: Target::Attribute("tags"),
            // What cannot be marked is deleted all the same.
            needs: Vec::new(),
            reason: "it was protected".to_owned(),
            destroys: false,
        };
        plan.steps.insert(index, mark);
    }
    plan
}

fn delete(instance: &ObservedInstance, plan: &mut Plan) {
    unprotect(instance, plan);
    plan.step(
        Operation::Delete { id: instance.id.clone() },
        Target::LoadBalancer,
        [Target::Attribute("delete protection")],
        "the Service no longer needs it",
    );
}

fn unprotect(instance: &ObservedInstance, plan: &mut Plan) {
    if instance.fields.is(InstanceField::DeleteProtection, "on") {
        let target = Target::Attribute("delete protection");
        plan.step(unprotected(), target, [], "the Service no longer needs it");
    }
}

fn unprotected() -> Own {
    Own::SetInstance(InstanceFields::from_iter([(InstanceField::DeleteProtection, "off".to_owned())]))
}

/// Hands the instance to the user.
fn release(owner: &Owner, instance: &ObservedInstance, plan: &mut Plan) {
    unprotect(instance, plan);
    if instance.fields.is(InstanceField::ModificationProtection, "ConsoleProtection") {
        let off = (InstanceField::ModificationProtection, "NonProtection".to_owned());
        let operation = Own::SetInstance(InstanceFields::from_iter([off]));
        let target = Target::Attribute("modification protection");
        plan.step(operation, target, [], "the load balancer is kept for the user");
    }
    let keys = marks_on(owner, &instance.tags);
    if !keys.is_empty() {
        plan.step(Operation::Untag { keys }, Target::Attribute(MARKS), [], "the load balancer is kept for the user");
    }
}

/// Takes what is ours off a user's load balancer.
fn leave(owner: &Owner, departure: &Departure, observed: &Observed, plan: &mut Plan) {
    let references = listener_pass::leave(owner, departure, observed, plan);
    // The smallest batch that every release of the API takes.
    let planner = BackendPlanner { owner, batch_size: 20 };
    for (id, group) in &observed.groups {
        planner.clear(id, group, &references, plan);
    }
}

impl Goal<ClbModel> {
    /// What must be read before it can be compared with what there is.
    pub fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure(desired) => desired.needs(observed),
            Self::Remove(removal) => teardown_needs(&removal.owner, &removal.departure, observed),
        }
    }
}
