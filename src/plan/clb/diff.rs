//! What is particular to the steps of classic load balancers.

pub(super) mod access_list;
pub(super) mod fields;
pub(super) mod instance;
mod listeners;

use std::borrow::Cow;

use super::desired::{ClbModel, Desired, DesiredListener};
use super::model::{CreateInstance, InstanceField, ListenerField, ListenerKey};
use super::observed::{Observed, ObservedInstance};
use super::operation::{Own, Plan};
use crate::plan::inputs::Ingress;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::diff::DiffModel;
use crate::plan::loadbalancer::group_diff::{GroupModel, planner};
use crate::plan::loadbalancer::listener_pass::Protection;
use crate::plan::loadbalancer::model::DesiredGroup;
use crate::plan::loadbalancer::ownership::LABEL_HASH;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;

impl DiffModel for ClbModel {
    const HAS_OWN_GROUPS: bool = true;
    const IS_SET_WHEN_MADE: bool = true;

    fn is_bound(desired: &Desired, instance: &ObservedInstance) -> bool {
        let is_own = |it: &Ingress| {
            it.ip == instance.fields.text(InstanceField::Address) || (!it.hostname.is_empty() && it.ip.is_empty())
        };
        // With the address of an elastic address, or with a host name, the label alone says whose it is.
        let is_labelled = desired.label == instance.id;
        desired.extra.eip || desired.ingress.is_empty() || is_labelled || desired.ingress.iter().any(is_own)
    }

    fn usable(desired: &Desired, instance: Option<&ObservedInstance>) -> Result<(), ServiceProblem> {
        if instance.is_none() { instance::creatable(desired) } else { Ok(()) }
    }

    fn is_public(instance: &ObservedInstance) -> bool {
        instance.fields.is(InstanceField::AddressType, "internet")
    }

    fn creation(desired: &Desired) -> &CreateInstance {
        &desired.instance.create
    }

    fn resolved<'a>(desired: &'a Desired, observed: &Observed, plan: &mut Plan) -> Cow<'a, Desired> {
        let resolved = access_list::resolved(desired, observed);
        inherited(desired, &resolved, observed, plan);
        resolved
    }

    fn set_instance(desired: &Desired, observed: &Observed, plan: &mut Plan) -> Protection {
        instance::diff(desired, observed, plan);
        instance::ineffective(desired, observed.instance.as_ref(), plan);
        Protection::InForce
    }

    fn protect(desired: &Desired, observed: &Observed, plan: &mut Plan) -> bool {
        access_list::ensure(desired, observed, plan)
    }

    fn finish(desired: &Desired, observed: &Observed, plan: &mut Plan) {
        access_list::finish(desired, observed, plan);
    }
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
        let there = observed.listener(key);
        let found = there.and_then(|there| there.fields.get(&ListenerField::PersistenceTimeout));
        let stated = listener.fields.contains_key(&ListenerField::PersistenceTimeout);
        there.is_some() && !stated && wanted.is_some_and(|wanted| found.is_none_or(|found| found != wanted))
    };
    if desired.manage_listeners && desired.listeners.iter().any(differs) {
        plan.warnings.push(ServiceProblem::ignored("spec.sessionAffinity", "ClientIP", how));
    }
}

impl GroupModel for ClbModel {
    const NAMED: &'static str = "a server group of this load balancer";

    fn create(desired: &Desired, wanted: &DesiredGroup, plan: &mut Plan) {
        let planner = planner(desired);
        let backends = wanted.backends.to_vec();
        let (first, rest) = backends.split_at(backends.len().min(planner.batch_size));
        let operation = Own::CreateGroup { name: wanted.group.to_string(), backends: first.to_vec() };
        let target = Target::Group(wanted.group.clone());
        plan.step(operation, target.clone(), [], wanted.source.clone());
        for operation in planner.additions::<ClbModel>(&wanted.group, rest) {
            plan.step(operation, target.clone(), [target.clone()], &wanted.source);
        }
    }
}
