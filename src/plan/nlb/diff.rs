//! What is particular to the steps of network load balancers.

mod instance;
mod listeners;
pub(super) mod security_group;

use std::borrow::Cow;

use super::annotations::Name;
use super::desired::{Desired, GroupSpec, NlbModel};
use super::model::{CreateInstance, GroupField, GroupFields, InstanceField};
use super::observed::{GroupDetails, Observed, ObservedInstance};
use super::operation::{Own, Plan};
use super::restriction;
use crate::plan::inputs::Ingress;
use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::diff::DiffModel;
use crate::plan::loadbalancer::group_diff::{GroupModel, planner};
use crate::plan::loadbalancer::groups::GroupInPlan;
use crate::plan::loadbalancer::listener_pass::Protection;
use crate::plan::loadbalancer::model::{Backend, DesiredGroup, GroupRef};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;

impl DiffModel for NlbModel {
    const HAS_OWN_GROUPS: bool = false;
    const IS_SET_WHEN_MADE: bool = false;

    fn is_going(observed: &Observed) -> bool {
        observed.parts.jobs.get(&Target::LoadBalancer).is_some_and(|job| job.deletes)
    }

    fn is_bound(desired: &Desired, instance: &ObservedInstance) -> bool {
        let is_own = |it: &Ingress| it.hostname == instance.dns_name || it.hostname.is_empty();
        desired.ingress.is_empty() || desired.ingress.iter().any(is_own)
    }

    fn usable(desired: &Desired, instance: Option<&ObservedInstance>) -> Result<(), ServiceProblem> {
        match instance {
            None if desired.instance.create.zones.is_empty() => Err(ServiceProblem::required(
                Name::ZoneMaps.key(),
                "zones need vSwitches, here or as cloud.vswitches of the configuration: none is known near the nodes",
            )),
            Some(it) if desired.reuse.is_none() && it.status == "CreateFailed" => Err(ServiceProblem::state(
                format!("load balancer {}", it.id),
                format!("the cloud could not make it ({}); delete it to have it created again", it.status),
            )),
            _ => Ok(()),
        }
    }

    fn is_public(instance: &ObservedInstance) -> bool {
        instance.fields.text(InstanceField::AddressType).eq_ignore_ascii_case("Internet")
    }

    fn creation(desired: &Desired) -> &CreateInstance {
        &desired.instance.create
    }

    fn resolved<'a>(desired: &'a Desired, observed: &Observed, plan: &mut Plan) -> Cow<'a, Desired> {
        restriction::resolved(desired, observed, plan)
    }

    fn set_instance(desired: &Desired, observed: &Observed, plan: &mut Plan) -> Protection {
        instance::diff(desired, observed, plan);
        security_group::ensure(desired, observed, plan)
    }

    fn finish(desired: &Desired, observed: &Observed, plan: &mut Plan) {
        listeners::before_changes(desired, observed, plan);
        security_group::finish(desired, observed, plan);
    }
}

impl GroupModel for NlbModel {
    const NAMED: &'static str = "a server group that exists";

    fn is_same(desired: &Desired, observed: &Observed, name: &str, id: &str) -> bool {
        let known = desired.extra.group_specs.get(name).zip(observed.parts.group_details.get(id));
        known.is_none_or(|(spec, details)| is_same(observed, spec, details))
    }

    fn create(desired: &Desired, wanted: &DesiredGroup, plan: &mut Plan) {
        let Some(spec) = desired.extra.group_specs.get(&wanted.group.to_string()) else { return };
        let target = Target::Group(wanted.group.clone());
        plan.step(Own::CreateGroup(Box::new(spec.create.clone())), target.clone(), [], wanted.source.clone());
        let backends = wanted.backends.to_vec();
        for operation in planner(desired).additions::<NlbModel>(&wanted.group, &backends) {
            plan.step(operation, target.clone(), [target.clone()], &wanted.source);
        }
    }

    fn change(desired: &Desired, observed: &Observed, wanted: &DesiredGroup, place: &GroupInPlan, plan: &mut Plan) {
        let Some(id) = &place.id else { return };
        let members = observed.groups.get(id).and_then(|group| group.backends.as_ref());
        if let Some(members) = members.filter(|members| !members.are_known_as(&wanted.backends)) {
            clash(desired, wanted, id, members, plan);
        }
        let spec = desired.extra.group_specs.get(&wanted.group.to_string());
        if let Some((spec, details)) = spec.zip(observed.parts.group_details.get(id)) {
            attributes(wanted, &place.group, (spec, details), plan);
        }
    }
}

/// Whether a group with the right name is as it would be made, as far as that cannot be changed. Groups behind TLS used to
/// be made with the listener's protocol, and serve all the same.
fn is_same(observed: &Observed, spec: &GroupSpec, details: &GroupDetails) -> bool {
    let vpc = observed.instance.as_ref().map(|instance| instance.vpc_id.as_str()).unwrap_or_default();
    let in_vpc = vpc.is_empty() || details.vpc_id.is_empty() || details.vpc_id == vpc;
    in_vpc
        && GroupField::ALL.iter().filter(|field| field.is_fixed()).all(|field| {
            let (Some(wanted), Some(found)) = (spec.create.fields.get(field), details.fields.get(field)) else {
                return true;
            };
            let behind_tls = *field == GroupField::Protocol && wanted == "TCP" && found == "TCPSSL";
            wanted.eq_ignore_ascii_case(found) || behind_tls
        })
}

/// Sets attributes that differ.
fn attributes(wanted: &DesiredGroup, group: &GroupRef, (spec, details): (&GroupSpec, &GroupDetails), plan: &mut Plan) {
    let differs = |(field, value): &(&GroupField, &String)| {
        let found = details.fields.get(field).map_or_else(|| default_of(**field), String::as_str);
        !field.is_fixed() && !value.eq_ignore_ascii_case(found)
    };
    let changed = spec.kept.iter().filter(differs).map(|(field, value)| {
        let found = details.fields.get(field).map_or("unset", String::as_str);
        ((*field, value.clone()), format!("{field} {found} -> {value}"))
    });
    let (fields, reasons): (GroupFields, Vec<String>) = changed.unzip();
    if fields.is_empty() {
        return;
    }
    let reason = format!("{}: {}", wanted.source, reasons.join(", "));
    plan.step(Own::SetGroup { group: group.clone(), fields }, Target::Group(group.clone()), [], reason);
}

/// Notes backends that users added themselves and that serve this port: the controller leaves them alone.
fn clash(desired: &Desired, wanted: &DesiredGroup, id: &str, backends: &[Backend], plan: &mut Plan) {
    let foreign = |backend: &&Backend| {
        !desired.owner.owns_backend(&backend.description) && wanted.backends.contains(&backend.key)
    };
    let list: Vec<String> = backends
        .iter()
        .filter(foreign)
        .map(|backend| format!("{}:{} ({:?})", backend.key.server_id, backend.key.port, backend.description))
        .collect();
    if !list.is_empty() {
        plan.note(format!("group {id} holds backends of others that serve this port, too: {}", list.join(", ")));
    }
}

/// What holds where the cloud does not say it.
const fn default_of(field: GroupField) -> &'static str {
    match field {
        GroupField::Drain => "false",
        GroupField::PreserveClientIp | GroupField::HealthCheck => "true",
        GroupField::HealthCheckPort => "0",
        _ => "",
    }
}
