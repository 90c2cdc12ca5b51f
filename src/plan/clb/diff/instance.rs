//! Whether the instance may be used, whether it must be made, and its attributes.

use crate::plan::clb::annotations::Name;
use crate::plan::clb::desired::{Desired, FixedAttribute};
use crate::plan::clb::observed::{Observed, ObservedInstance, PendingCharge};
use crate::plan::clb::operation::{Operation, Own, Plan};
use crate::plan::inputs::Ingress;
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::instance_diff::{self, attribute};
use crate::plan::service::ownership::{REUSE_TAG, UNPROTECTED_TAG};
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::steps::Target;

/// Largest bandwidth that can be set on an instance that exists, in Mbit/s.
const MOST_BANDWIDTH: i64 = 5000;

/// Whether there is an instance to work on, or one may be made. Otherwise nothing may be done at all.
pub(super) fn usable(desired: &Desired, observed: &Observed) -> Result<(), ServiceProblem> {
    let instance = observed.instance.as_ref();
    let bound = |instance: &ObservedInstance| {
        let is_own = |it: &Ingress| it.ip == instance.address || (!it.hostname.is_empty() && it.ip.is_empty());
        desired.extra.eip || desired.ingress.is_empty() || desired.ingress.iter().any(is_own)
    };
    instance_diff::usable(desired, observed, instance.is_some_and(bound))?;
    if instance.is_none() { creatable(desired) } else { Ok(()) }
}

/// What keeps it from being used by the configuration.
pub(super) fn forbidden(desired: &Desired, observed: &Observed) -> Option<ServiceProblem> {
    instance_diff::forbidden(desired, observed.instance.as_ref()?.address_type == "internet")
}

fn creatable(desired: &Desired) -> Result<(), ServiceProblem> {
    let create = &desired.instance.create;
    if let Some(address) = create.address.as_ref().filter(|_| create.address_type != "intranet") {
        let why = format!("{address} needs {}: intranet", Name::AddressType.key());
        return Err(ServiceProblem::forbidden(Name::Ip.key(), why));
    }
    let by_bandwidth = create.internet_charge_type.as_deref() == Some("paybybandwidth");
    if by_bandwidth && create.address_type == "internet" && create.bandwidth.is_none() {
        return Err(bandwidth_missing());
    }
    let classic = desired
        .instance
        .fixed
        .iter()
        .any(|(_, attribute, value)| *attribute == FixedAttribute::NetworkType && value == "classic");
    if create.address_type == "intranet" && !classic && create.vswitch_ids.is_empty() {
        return Err(ServiceProblem::required(
            Name::VswitchId.key(),
            "an intranet load balancer needs a vSwitch, here or in cloud.vswitches of the configuration",
        ));
    }
    Ok(())
}

fn bandwidth_missing() -> ServiceProblem {
    ServiceProblem::required(Name::Bandwidth.key(), "a load balancer that is charged by bandwidth needs one")
}

/// Makes the instance, or changes what differs.
pub(super) fn diff(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let Some(instance) = &observed.instance else {
        plan.step(
            Operation::Create(Box::new(desired.instance.create.clone())),
            Target::LoadBalancer,
            [],
            "the Service has no load balancer",
        );
        return;
    };
    if !matches!(instance.status.as_str(), "" | "active") {
        plan.note(format!("load balancer {} is {}", instance.id, instance.status));
    }
    let owner = &desired.owner;
    let wanted = match desired.reuse {
        Some(_) => [(REUSE_TAG.to_owned(), "true".to_owned())].into(),
        None => owner.tags(),
    };
    instance_diff::marks(&instance.tagged(), wanted, &desired.instance.tags, plan);
    if desired.problems.withhold_load_balancer() {
        return;
    }
    fixed(desired, instance, plan);
    match &instance.pending_charge {
        PendingCharge::From(time) if charge_differs(desired, instance) => {
            let when = if time.is_empty() { "midnight" } else { time };
            plan.note(format!(
                "the charge of load balancer {} changes at {when}; it cannot be changed again before, and is compared then",
                instance.id
            ));
        }
        // Another change than the one that may be about to happen would be refused.
        PendingCharge::Unknown => {}
        _ => {
            charge(desired, instance, plan);
            internet(desired, instance, plan);
        }
    }
    let wanted = &desired.instance;
    protection(wanted.delete_protection, instance, plan);
    if let Some(status) = differs(wanted.modification_protection.as_ref(), &instance.modification_protection) {
        attribute(
            plan,
            "modification protection",
            Own::SetModificationProtection { status, reason: None },
            format!("{}: {} now", Name::ModificationProtection.key(), instance.modification_protection),
        );
    }
    if let Some(name) = differs(wanted.name.as_ref(), &instance.name) {
        let reason = format!("{}: {:?} now", Name::LbName.key(), instance.name);
        attribute(plan, "name", Own::SetName { name }, reason);
    }
    instance_diff::tags(desired, &instance.tags, &wanted.tags, &wanted.create.tags, plan);
}

/// What was decided when the load balancer was made, and is wanted otherwise now.
fn fixed(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    for (field, attribute, wanted) in &desired.instance.fixed {
        // What is not known is read before this is relied on.
        if let Some(found) = attribute.of(instance).filter(|found| found != wanted) {
            plan.problem(instance_diff::immutable(field, wanted, found));
        }
    }
}

/// Delete protection as the annotation says; without one, as it was before a deletion that is not wanted any more.
fn protection(wanted: Option<bool>, instance: &ObservedInstance, plan: &mut Plan) {
    const TARGET: &str = "delete protection";
    let given_up = instance.tags.contains_key(UNPROTECTED_TAG);
    let reason = match wanted {
        None => "the load balancer was about to be deleted".to_owned(),
        Some(on) => format!("{}: {} now", Name::DeleteProtection.key(), if on { "off" } else { "on" }),
    };
    let on = wanted.or(given_up.then_some(true));
    if let Some(on) = on.filter(|on| *on != instance.delete_protection) {
        attribute(plan, TARGET, Own::SetDeleteProtection { on }, reason);
    }
    if given_up {
        plan.step(
            Operation::Untag { keys: vec![UNPROTECTED_TAG.to_owned()] },
            Target::Attribute("tags"),
            [Target::Attribute(TARGET)],
            "the load balancer stays",
        );
    }
}

fn differs(wanted: Option<&String>, found: &str) -> Option<String> {
    wanted.filter(|wanted| *wanted != found).cloned()
}

/// Whether the instance is not charged as wanted and can be.
pub(in crate::plan::clb) fn charge_differs(desired: &Desired, instance: &ObservedInstance) -> bool {
    let mut plan = Plan::default();
    charge(desired, instance, &mut plan);
    internet(desired, instance, &mut plan);
    !plan.steps.is_empty()
}

/// Settings that have no effect on this instance, or on the one to be made.
pub(super) fn ineffective(desired: &Desired, instance: Option<&ObservedInstance>, plan: &mut Plan) {
    if desired.problems.withhold_load_balancer() {
        return;
    }
    if let (Some(instance), Some(wanted), None) = (instance, &desired.instance.vswitch_id, &desired.reuse)
        && instance.address_type == "intranet"
        && !instance.vswitch_id.is_empty()
        && instance.vswitch_id != *wanted
    {
        let there = &instance.vswitch_id;
        let why = format!("the load balancer is in {there} and stays there; delete the Service and create it again");
        plan.warnings.push(ServiceProblem::ignored(Name::VswitchId.key(), wanted, why));
    }
    ineffective_charge(desired, instance, plan);
}

fn ineffective_charge(desired: &Desired, instance: Option<&ObservedInstance>, plan: &mut Plan) {
    let (wanted, create) = (&desired.instance, &desired.instance.create);
    let charge_type = wanted.instance_charge_type.as_deref();
    let charge_type = charge_type.or(instance.map(|it| it.instance_charge_type.as_str()));
    let charge_type = charge_type.filter(|text| !text.is_empty()).unwrap_or(&create.instance_charge_type);
    if let Some(spec) = wanted.spec.as_ref().filter(|_| !charge_type.eq_ignore_ascii_case("PayBySpec")) {
        let why = format!("the instance is charged by `{charge_type}`");
        plan.warnings.push(ServiceProblem::ignored(Name::Spec.key(), spec, why));
    }
    let address_type = instance.map_or(create.address_type.as_str(), |instance| &instance.address_type);
    let bought = wanted.internet_charge_type.as_ref();
    if address_type == "intranet" {
        let why = "traffic of intranet load balancers is not charged";
        if let Some(charge_type) = bought {
            plan.warnings.push(ServiceProblem::ignored(Name::ChargeType.key(), charge_type, why));
        }
        if let Some(bandwidth) = wanted.bandwidth {
            plan.warnings.push(ServiceProblem::ignored(Name::Bandwidth.key(), bandwidth.to_string(), why));
        }
    } else if let Some(bandwidth) = wanted.bandwidth {
        let by_default = instance.is_none().then_some(create.internet_charge_type.as_ref()).flatten();
        if bought.or(by_default).is_none_or(|charge_type| charge_type != "paybybandwidth") {
            let why = format!("it needs {}: paybybandwidth", Name::ChargeType.key());
            plan.warnings.push(ServiceProblem::ignored(Name::Bandwidth.key(), bandwidth.to_string(), why));
        }
    }
}

/// How the instance is charged, and its specification.
fn charge(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let wanted = &desired.instance;
    let now = instance.instance_charge_type.as_str();
    let by_spec = now.eq_ignore_ascii_case("PayBySpec");
    match wanted.instance_charge_type.as_deref() {
        Some(charge_type) if !now.is_empty() && !charge_type.eq_ignore_ascii_case(now) => {
            if charge_type == "PayBySpec" {
                let rule = format!("an instance that is charged by `{now}` cannot go back to `{charge_type}`");
                plan.problem(ServiceProblem::invalid(Name::InstanceChargeType.key(), charge_type, rule));
            } else {
                let operation = Own::SetInstanceChargeType { charge_type: charge_type.to_owned(), spec: None };
                attribute(plan, "charge", operation, format!("{}: {now} now", Name::InstanceChargeType.key()));
            }
        }
        _ if by_spec => {
            if let Some(spec) = differs(wanted.spec.as_ref(), &instance.spec) {
                let reason = format!("{}: {} now", Name::Spec.key(), instance.spec);
                attribute(plan, "charge", Own::SetSpec { spec }, reason);
            }
        }
        _ => {}
    }
}

/// How internet traffic is charged, and the bandwidth.
fn internet(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let wanted = &desired.instance;
    let Some(charge_type) = wanted.internet_charge_type.clone().filter(|_| instance.address_type == "internet") else {
        return;
    };
    let by_bandwidth = charge_type == "paybybandwidth";
    let bandwidth = wanted.bandwidth.filter(|_| by_bandwidth);
    let same = charge_type == instance.internet_charge_type && bandwidth.is_none_or(|b| b == instance.bandwidth);
    if same {
        return;
    }
    let given = bandwidth.map_or_else(|| charge_type.clone(), |bandwidth| format!("{charge_type}, {bandwidth} Mbit/s"));
    if instance.instance_charge_type.eq_ignore_ascii_case("PayByCLCU") {
        let rule = format!(
            "an instance that is charged by `PayByCLCU` stays at `{}`, {} Mbit/s",
            instance.internet_charge_type, instance.bandwidth
        );
        plan.problem(ServiceProblem::invalid(Name::ChargeType.key(), given, rule));
        return;
    }
    if bandwidth.is_some_and(|bandwidth| bandwidth > MOST_BANDWIDTH) {
        let rule = format!("must be at most {MOST_BANDWIDTH} on a load balancer that exists");
        plan.problem(ServiceProblem::invalid(Name::Bandwidth.key(), given, rule));
        return;
    }
    let kept = (by_bandwidth && (1..=MOST_BANDWIDTH).contains(&instance.bandwidth)).then_some(instance.bandwidth);
    if by_bandwidth && bandwidth.or(kept).is_none() {
        plan.problem(bandwidth_missing());
        return;
    }
    let reason =
        format!("{}: {}, {} Mbit/s now", Name::ChargeType.key(), instance.internet_charge_type, instance.bandwidth);
    let operation = Own::SetInternetSpec { charge_type, bandwidth: bandwidth.or(kept) };
    attribute(plan, "internet", operation, reason);
}
