//! Whether the instance may be made, and its attributes.

use litemap::LiteMap;

use crate::plan::clb::annotations::{INSTANCE, Name};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::InstanceField as Field;
use crate::plan::clb::observed::{Observed, ObservedInstance, PendingCharge};
use crate::plan::clb::operation::{Operation, Own, Plan};
use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::ObservedInstanceModel as _;
use crate::plan::loadbalancer::instance_diff::{self, attribute, key_of};
use crate::plan::loadbalancer::ownership::{REUSE_TAG, UNPROTECTED_TAG};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;

/// Largest bandwidth that can be set on an instance that exists, in Mbit/s.
const MOST_BANDWIDTH: u32 = 5000;

/// What keeps an instance from being made.
pub(super) fn creatable(desired: &Desired) -> Result<(), ServiceProblem> {
    let (create, is_classic) = (&desired.instance.create, desired.instance.fields.is(Field::NetworkType, "classic"));
    let is = |field, value| create.fields.is(field, value);
    let intranet = is(Field::AddressType, "intranet");
    if let Some(address) = create.fields.get(&Field::Address).filter(|_| !intranet) {
        let why = format!("{address} needs {}: intranet", Name::AddressType.key());
        return Err(ServiceProblem::forbidden(Name::Ip.key(), why));
    }
    let by_bandwidth = is(Field::InternetChargeType, "paybybandwidth");
    if by_bandwidth && is(Field::AddressType, "internet") && is(Field::Bandwidth, "") {
        return Err(bandwidth_missing());
    }
    if intranet && !is_classic && create.vswitch_ids.is_empty() {
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

/// Changes what differs.
pub(super) fn diff(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let Some(instance) = &observed.instance else { return };
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
    protection(desired, instance, plan);
    if let Some((wanted, found)) = differs(desired, instance, Field::ModificationProtection) {
        let field = Field::ModificationProtection;
        set(plan, field.label(), [(field, wanted.to_owned())], found);
    }
    if let Some((wanted, found)) = differs(desired, instance, Field::Name) {
        set(plan, Field::Name.label(), [(Field::Name, wanted.to_owned())], &format!("{found:?}"));
    }
    let wanted = &desired.instance;
    instance_diff::tags(desired, &instance.tags, &wanted.tags, &wanted.create.tags, plan);
}

/// Changes what one call sets. The first field says in whose name.
fn set<const N: usize>(plan: &mut Plan, target: &'static str, fields: [(Field, String); N], found: &str) {
    let key = key_of(&INSTANCE, fields[0].0);
    attribute(plan, target, Own::SetInstance(fields.into_iter().collect()), format!("{key}: {found} now"));
}

/// What is wanted of an attribute, and what is found, if that is something else.
fn differs<'a>(desired: &'a Desired, instance: &'a ObservedInstance, field: Field) -> Option<(&'a str, &'a str)> {
    let (wanted, found) = (desired.instance.fields.get(&field)?.as_str(), instance.fields.text(field));
    (wanted != found).then_some((wanted, found))
}

/// What was decided when the load balancer was made, and is wanted otherwise now.
fn fixed(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    for (key, field) in &desired.instance.fixed {
        // What is not known is read before this is relied on.
        let known = desired.instance.fields.get(field).zip(instance.fields.get(field));
        if let Some((wanted, found)) = known.filter(|(wanted, found)| wanted != found) {
            plan.problem(instance_diff::immutable(key, wanted, found));
        }
    }
}

/// Delete protection as the annotation says; without one, as it was before a deletion that is not wanted any more.
fn protection(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let target = Field::DeleteProtection.label();
    let given_up = instance.tags.contains_key(UNPROTECTED_TAG);
    if let Some((wanted, found)) = differs(desired, instance, Field::DeleteProtection) {
        set(plan, target, [(Field::DeleteProtection, wanted.to_owned())], found);
    } else if given_up
        && !desired.instance.fields.contains_key(&Field::DeleteProtection)
        && !instance.fields.is(Field::DeleteProtection, "on")
    {
        let operation = Own::SetInstance(LiteMap::from_iter([(Field::DeleteProtection, "on".to_owned())]));
        attribute(plan, target, operation, "the load balancer was about to be deleted");
    }
    if given_up {
        plan.step(
            Operation::Untag { keys: vec![UNPROTECTED_TAG.to_owned()] },
            Target::Attribute("tags"),
            [Target::Attribute(target)],
            "the load balancer stays",
        );
    }
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
        && instance.fields.is(Field::AddressType, "intranet")
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
    let (wanted, create) = (&desired.instance.fields, &desired.instance.create.fields);
    if ![Field::Spec, Field::InternetChargeType, Field::Bandwidth].iter().any(|field| wanted.contains_key(field)) {
        return;
    }
    let known = instance.map_or(create, |it| &it.fields);
    let charge_types = [wanted, known, create].map(|fields| fields.text(Field::ChargeType));
    let charge_type = charge_types.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let mut ignored = |name: Name, field, why: String| {
        if let Some(given) = wanted.get(&field) {
            plan.warnings.push(ServiceProblem::ignored(name.key(), given, why));
        }
    };
    if !charge_type.eq_ignore_ascii_case("PayBySpec") {
        ignored(Name::Spec, Field::Spec, format!("the instance is charged by `{charge_type}`"));
    }
    // What the cloud bought by default is not known.
    let bought = if instance.is_some() { wanted } else { create };
    if known.is(Field::AddressType, "intranet") {
        let why = "traffic of intranet load balancers is not charged";
        ignored(Name::ChargeType, Field::InternetChargeType, why.to_owned());
        ignored(Name::Bandwidth, Field::Bandwidth, why.to_owned());
    } else if !bought.is(Field::InternetChargeType, "paybybandwidth") {
        let why = format!("it needs {}: paybybandwidth", Name::ChargeType.key());
        ignored(Name::Bandwidth, Field::Bandwidth, why);
    }
}

/// How the instance is charged, and its specification.
fn charge(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    const TARGET: &str = "charge";
    let now = instance.fields.text(Field::ChargeType);
    let wanted = desired.instance.fields.get(&Field::ChargeType);
    match wanted.filter(|wanted| !now.is_empty() && !wanted.eq_ignore_ascii_case(now)) {
        Some(wanted) if wanted == "PayBySpec" => {
            let rule = format!("an instance that is charged by `{now}` cannot go back to `{wanted}`");
            plan.problem(ServiceProblem::invalid(Name::InstanceChargeType.key(), wanted, rule));
        }
        Some(wanted) => set(plan, TARGET, [(Field::ChargeType, wanted.clone())], now),
        None if now.eq_ignore_ascii_case("PayBySpec") => {
            if let Some((wanted, found)) = differs(desired, instance, Field::Spec) {
                set(plan, TARGET, [(Field::Spec, wanted.to_owned())], found);
            }
        }
        None => {}
    }
}

/// How internet traffic is charged, and the bandwidth.
fn internet(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let (wanted, found) = (&desired.instance.fields, &instance.fields);
    let is_public = found.is(Field::AddressType, "internet");
    let Some(charge_type) = wanted.get(&Field::InternetChargeType).filter(|_| is_public) else { return };
    let by_bandwidth = charge_type == "paybybandwidth";
    let bandwidth = wanted.get(&Field::Bandwidth).filter(|_| by_bandwidth);
    let [found_type, found_bandwidth] = [Field::InternetChargeType, Field::Bandwidth].map(|field| found.text(field));
    if charge_type == found_type && bandwidth.is_none_or(|bandwidth| bandwidth == found_bandwidth) {
        return;
    }
    let given = bandwidth.map_or_else(|| charge_type.clone(), |bandwidth| format!("{charge_type}, {bandwidth} Mbit/s"));
    if found.text(Field::ChargeType).eq_ignore_ascii_case("PayByCLCU") {
        let rule =
            format!("an instance that is charged by `PayByCLCU` stays at `{found_type}`, {found_bandwidth} Mbit/s");
        plan.problem(ServiceProblem::invalid(Name::ChargeType.key(), given, rule));
        return;
    }
    let can_be_set = |text: &&str| text.parse().is_ok_and(|bandwidth| (1..=MOST_BANDWIDTH).contains(&bandwidth));
    if bandwidth.is_some_and(|bandwidth| !can_be_set(&bandwidth.as_str())) {
        let rule = format!("must be at most {MOST_BANDWIDTH} on a load balancer that exists");
        plan.problem(ServiceProblem::invalid(Name::Bandwidth.key(), given, rule));
        return;
    }
    let kept = Some(found_bandwidth).filter(|_| by_bandwidth).filter(can_be_set);
    let now = format!("{found_type}, {found_bandwidth} Mbit/s");
    let charge_type = (Field::InternetChargeType, charge_type.clone());
    match bandwidth.map(String::as_str).or(kept) {
        Some(bandwidth) => set(plan, "internet", [charge_type, (Field::Bandwidth, bandwidth.to_owned())], &now),
        None if by_bandwidth => plan.problem(bandwidth_missing()),
        None => set(plan, "internet", [charge_type], &now),
    }
}
