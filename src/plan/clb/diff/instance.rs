//! Whether the instance may be used, whether it must be made, and its attributes.

use std::collections::BTreeMap;

use crate::plan::clb::annotations::Name;
use crate::plan::clb::desired::{Desired, FixedAttribute};
use crate::plan::clb::observed::{Observed, ObservedInstance, PendingCharge};
use crate::plan::clb::operation::{MOST_TAGS, Operation, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::management::MARKS;
use crate::plan::service::ownership::{CLUSTER_TAG, CLUSTER_UID_TAG, MARK_TAG, REUSE_TAG, UNPROTECTED_TAG};
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::steps::Target;

/// Largest bandwidth that can be set on an instance that exists, in Mbit/s.
const MOST_BANDWIDTH: i64 = 5000;

fn problem(field: impl Into<String>, given: impl Into<String>, allowed: impl Into<String>) -> ServiceProblem {
    ServiceProblem { field: field.into(), given: given.into(), allowed: allowed.into() }
}

/// Whether there is an instance to work on, or one may be made. Otherwise nothing may be done at all.
pub(super) fn usable(desired: &Desired, observed: &Observed) -> Result<(), ServiceProblem> {
    match (&desired.reuse, &observed.instance) {
        (Some(id), None) => Err(problem(Name::Id.key(), id, "the id of a load balancer that exists")),
        (Some(id), Some(instance)) => reusable(desired, id, instance),
        (None, None) => creatable(desired),
        (None, Some(instance)) if !desired.owner.owns_load_balancer(&instance.name, &instance.tags) => Err(problem(
            format!("load balancer {}", instance.id),
            tags_of(instance),
            format!(
                "a load balancer whose tag {MARK_TAG} is {} and whose tag {}, if any, is {}; nothing is changed on this one",
                desired.owner.default_name(),
                desired.owner.cluster_tag,
                desired.owner.cluster_id
            ),
        )),
        (None, Some(_)) => Ok(()),
    }
}

fn creatable(desired: &Desired) -> Result<(), ServiceProblem> {
    let create = &desired.instance.create;
    if let Some(address) = create.address.as_ref().filter(|_| create.address_type != "intranet") {
        return Err(problem(Name::Ip.key(), address, format!("only with {}: intranet", Name::AddressType.key())));
    }
    let by_bandwidth = create.internet_charge_type.as_deref() == Some("paybybandwidth");
    if by_bandwidth && create.address_type == "internet" && create.bandwidth.is_none() {
        return Err(problem(Name::Bandwidth.key(), "", "a bandwidth, with charge by bandwidth"));
    }
    let classic = desired
        .instance
        .fixed
        .iter()
        .any(|(_, attribute, value)| *attribute == FixedAttribute::NetworkType && value == "classic");
    if create.address_type == "intranet" && !classic && create.vswitch_ids.is_empty() {
        return Err(problem(
            Name::VswitchId.key(),
            "",
            "a vSwitch for the intranet load balancer, here or in cloud.vswitches of the configuration",
        ));
    }
    Ok(())
}

fn reusable(desired: &Desired, id: &str, instance: &ObservedInstance) -> Result<(), ServiceProblem> {
    if instance.id != id {
        return Err(problem(Name::Id.key(), id, format!("the cloud answered with {}; nothing is done", instance.id)));
    }
    let own = [MARK_TAG, CLUSTER_TAG, desired.owner.cluster_tag.as_str()];
    if let Some(tag) = own.into_iter().find(|tag| instance.tags.contains_key(*tag)) {
        return Err(problem(
            Name::Id.key(),
            id,
            format!("a load balancer that was not made for Kubernetes: this one has the tag {tag}"),
        ));
    }
    if desired.forbid_public && instance.address_type == "internet" {
        return Err(problem(
            Name::Id.key(),
            id,
            "a load balancer with a private address: public ones are switched off by service.disable_public",
        ));
    }
    let bound = desired
        .ingress
        .iter()
        .any(|ingress| ingress.ip == instance.address || (!ingress.hostname.is_empty() && ingress.ip.is_empty()));
    if !desired.eip && !desired.ingress.is_empty() && !bound {
        return Err(problem(
            Name::Id.key(),
            id,
            format!(
                "the Service already has another address than {}, and cannot move between load balancers; delete it and \
                 make it again",
                instance.address
            ),
        ));
    }
    Ok(())
}

fn tags_of(instance: &ObservedInstance) -> String {
    let tags: Vec<_> = instance.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("name {}, tags {}", instance.name, tags.join(","))
}

/// Makes the instance, or changes what differs.
pub(super) fn diff(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let Some(instance) = &observed.instance else {
        plan.step(
            Operation::CreateInstance(Box::new(desired.instance.create.clone())),
            Target::LoadBalancer,
            [],
            "the Service has no load balancer",
        );
        return;
    };
    if !matches!(instance.status.as_str(), "" | "active") {
        plan.note(format!("load balancer {} is {}", instance.id, instance.status));
    }
    marks(desired, instance, plan);
    if desired.problems.withhold_load_balancer() {
        return;
    }
    for (field, attribute, wanted) in &desired.instance.fixed {
        // What is not known is read before this is relied on.
        if let Some(found) = attribute.of(instance).filter(|found| found != wanted) {
            plan.problem(
                field,
                wanted,
                format!(
                    "{found:?}, as it was made: this cannot be changed; set the annotation back, or delete the \
                         Service and make it again"
                ),
            );
        }
    }
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
            Operation::SetModificationProtection { status, reason: None },
            format!("{}: {} now", Name::ModificationProtection.key(), instance.modification_protection),
        );
    }
    if let Some(name) = differs(wanted.name.as_ref(), &instance.name) {
        let reason = format!("{}: {:?} now", Name::LbName.key(), instance.name);
        attribute(plan, "name", Operation::SetName { name }, reason);
    }
    tags(desired, instance, plan);
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
        attribute(plan, TARGET, Operation::SetDeleteProtection { on }, reason);
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

fn attribute(plan: &mut Plan, target: &'static str, operation: Operation, reason: impl Into<String>) {
    plan.step(operation, Target::Attribute(target), [], reason);
}

fn differs(wanted: Option<&String>, found: &str) -> Option<String> {
    wanted.filter(|wanted| *wanted != found).cloned()
}

/// Tags by which the instance is recognised.
fn marks(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let owner = &desired.owner;
    let wanted = match desired.reuse {
        Some(_) => [(REUSE_TAG.to_owned(), "true".to_owned())].into(),
        None => owner.tags(),
    };
    let mut missing: BTreeMap<_, _> = wanted.into_iter().filter(|(key, _)| !instance.tags.contains_key(key)).collect();
    // What the official controller made is not tagged just to carry the uid.
    if missing.keys().all(|key| key == CLUSTER_UID_TAG) {
        return;
    }
    if instance.tags.len() + missing.len() + desired.instance.tags.len() > MOST_TAGS {
        missing.remove(CLUSTER_UID_TAG);
    }
    if instance.tags.len() + missing.len() > MOST_TAGS {
        let keys: Vec<_> = missing.keys().map(String::as_str).collect();
        plan.note(format!("no room for the tags {} on {}: it has {MOST_TAGS} at most", keys.join(", "), instance.id));
        return;
    }
    attribute(plan, MARKS, Operation::Tag { tags: missing }, "marks that are missing");
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
        let why =
            format!("no effect: the load balancer is in {there} and stays there; delete the Service and make it again");
        plan.warning(Name::VswitchId.key(), wanted, why);
    }
    ineffective_charge(desired, instance, plan);
}

fn ineffective_charge(desired: &Desired, instance: Option<&ObservedInstance>, plan: &mut Plan) {
    let (wanted, create) = (&desired.instance, &desired.instance.create);
    let charge_type = wanted.instance_charge_type.as_deref();
    let charge_type = charge_type.or(instance.map(|it| it.instance_charge_type.as_str()));
    let charge_type = charge_type.filter(|text| !text.is_empty()).unwrap_or(&create.instance_charge_type);
    if let Some(spec) = wanted.spec.as_ref().filter(|_| !charge_type.eq_ignore_ascii_case("PayBySpec")) {
        plan.warning(Name::Spec.key(), spec, format!("no effect: the instance is charged by `{charge_type}`"));
    }
    let address_type = instance.map_or(create.address_type.as_str(), |instance| &instance.address_type);
    let bought = wanted.internet_charge_type.as_ref();
    if address_type == "intranet" {
        let why = "no effect: traffic of intranet load balancers is not charged";
        if let Some(charge_type) = bought {
            plan.warning(Name::ChargeType.key(), charge_type, why);
        }
        if let Some(bandwidth) = wanted.bandwidth {
            plan.warning(Name::Bandwidth.key(), bandwidth.to_string(), why);
        }
    } else if let Some(bandwidth) = wanted.bandwidth {
        let by_default = instance.is_none().then_some(create.internet_charge_type.as_ref()).flatten();
        if bought.or(by_default).is_none_or(|charge_type| charge_type != "paybybandwidth") {
            let why = format!("no effect: it needs {}: paybybandwidth", Name::ChargeType.key());
            plan.warning(Name::Bandwidth.key(), bandwidth.to_string(), why);
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
                let problem = format!("`{now}`: an instance that is charged so cannot go back to `{charge_type}`");
                plan.problem(Name::InstanceChargeType.key(), charge_type, problem);
            } else {
                let operation = Operation::SetInstanceChargeType { charge_type: charge_type.to_owned(), spec: None };
                attribute(plan, "charge", operation, format!("{}: {now} now", Name::InstanceChargeType.key()));
            }
        }
        _ if by_spec => {
            if let Some(spec) = differs(wanted.spec.as_ref(), &instance.spec) {
                let reason = format!("{}: {} now", Name::Spec.key(), instance.spec);
                attribute(plan, "charge", Operation::SetSpec { spec }, reason);
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
        let allowed = format!(
            "`{}`, {} Mbit/s as it is: an instance charged by `PayByCLCU` does not change this",
            instance.internet_charge_type, instance.bandwidth
        );
        plan.problem(Name::ChargeType.key(), given, allowed);
        return;
    }
    if bandwidth.is_some_and(|bandwidth| bandwidth > MOST_BANDWIDTH) {
        plan.problem(Name::Bandwidth.key(), given, format!("at most {MOST_BANDWIDTH} on a load balancer that exists"));
        return;
    }
    let kept = (by_bandwidth && (1..=MOST_BANDWIDTH).contains(&instance.bandwidth)).then_some(instance.bandwidth);
    if by_bandwidth && bandwidth.or(kept).is_none() {
        plan.problem(Name::Bandwidth.key(), "", "a bandwidth, with charge by bandwidth");
        return;
    }
    let reason =
        format!("{}: {}, {} Mbit/s now", Name::ChargeType.key(), instance.internet_charge_type, instance.bandwidth);
    let operation = Operation::SetInternetSpec { charge_type, bandwidth: bandwidth.or(kept) };
    attribute(plan, "internet", operation, reason);
}

/// Tags of users, if the annotation says which.
fn tags(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let wanted = &desired.instance.tags;
    if wanted.is_empty() {
        return;
    }
    let cluster_tag = desired.owner.cluster_tag.as_str();
    let untouched = |key: &str| {
        let lower = key.to_ascii_lowercase();
        [MARK_TAG, CLUSTER_TAG, CLUSTER_UID_TAG, REUSE_TAG, UNPROTECTED_TAG, cluster_tag].contains(&key)
            || lower.starts_with("acs:")
            || lower.starts_with("aliyun")
    };
    let set: BTreeMap<_, _> = wanted
        .iter()
        .filter(|(key, value)| !untouched(key) && instance.tags.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let remove: Vec<_> =
        instance.tags.keys().filter(|key| !untouched(key) && !wanted.contains_key(*key)).cloned().collect();
    let new = set.keys().filter(|key| !instance.tags.contains_key(*key)).count();
    let reason = |keys: &mut dyn Iterator<Item = &String>| {
        let found = keys.map(|tag| match instance.tags.get(tag) {
            Some(value) => format!("{tag} is {value:?}"),
            None => format!("{tag} is unset"),
        });
        format!("{}: {} now", Name::AdditionalResourceTags.key(), found.collect::<Vec<_>>().join(", "))
    };
    let mut operations = Vec::new();
    if !set.is_empty() {
        let reason = reason(&mut set.keys());
        operations.push((Operation::Tag { tags: set }, reason));
    }
    if !remove.is_empty() {
        let reason = reason(&mut remove.iter());
        operations.push((Operation::Untag { keys: remove }, reason));
    }
    // Two marks may be on their way as well.
    if instance.tags.len() + new + 2 > MOST_TAGS {
        operations.reverse();
    }
    for (operation, reason) in operations {
        attribute(plan, "tags", operation, reason);
    }
}
