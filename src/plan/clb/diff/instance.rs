//! Whether the instance may be used, whether it must be made, and its attributes.

use std::collections::BTreeMap;

use super::Draft;
use crate::plan::clb::Problem;
use crate::plan::clb::annotations::{Name, entry};
use crate::plan::clb::desired::{Desired, FixedAttribute};
use crate::plan::clb::naming::{CLUSTER_TAG, MARK_TAG, REUSE_TAG, UNPROTECTED_TAG};
use crate::plan::clb::observed::{Observed, ObservedInstance, PendingCharge};
use crate::plan::clb::operation::{MOST_TAGS, Operation, Target};

/// Largest bandwidth that can be set on an instance that exists, in Mbit/s.
const MOST_BANDWIDTH: i64 = 5000;

/// The target of steps that mark the instance as used by the Service.
pub(super) const MARKS: &str = "marks";

fn key(name: Name) -> String {
    entry(name).full_key()
}

fn problem(field: impl Into<String>, given: impl Into<String>, allowed: impl Into<String>) -> Problem {
    Problem { field: field.into(), given: given.into(), allowed: allowed.into() }
}

/// Whether there is an instance to work on, or one may be made. Otherwise nothing may be done at all.
pub(super) fn usable(desired: &Desired, observed: &Observed) -> Result<(), Problem> {
    match (&desired.reuse, &observed.instance) {
        (Some(id), None) => Err(problem(key(Name::Id), id, "the id of a load balancer that exists")),
        (Some(id), Some(instance)) => reusable(desired, id, instance),
        (None, None) => creatable(desired),
        (None, Some(instance)) if !desired.owner.owns_instance(instance) => Err(problem(
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

fn creatable(desired: &Desired) -> Result<(), Problem> {
    let create = &desired.instance.create;
    if let Some(address) = create.address.as_ref().filter(|_| create.address_type != "intranet") {
        return Err(problem(key(Name::Ip), address, format!("only with {}: intranet", key(Name::AddressType))));
    }
    let by_bandwidth = create.internet_charge_type.as_deref() == Some("paybybandwidth");
    if by_bandwidth && create.address_type == "internet" && create.bandwidth.is_none() {
        return Err(problem(key(Name::Bandwidth), "", "a bandwidth, with charge by bandwidth"));
    }
    let classic = desired
        .instance
        .fixed
        .iter()
        .any(|(_, attribute, value)| *attribute == FixedAttribute::NetworkType && value == "classic");
    if create.address_type == "intranet" && !classic && create.vswitch_ids.is_empty() {
        return Err(problem(
            key(Name::VswitchId),
            "",
            "a vSwitch for the intranet load balancer, here or in cloud.vswitches of the configuration",
        ));
    }
    Ok(())
}

fn reusable(desired: &Desired, id: &str, instance: &ObservedInstance) -> Result<(), Problem> {
    if instance.id != id {
        return Err(problem(key(Name::Id), id, format!("the cloud answered with {}; nothing is done", instance.id)));
    }
    let own = [MARK_TAG, CLUSTER_TAG, desired.owner.cluster_tag.as_str()];
    if let Some(tag) = own.into_iter().find(|tag| instance.tags.contains_key(*tag)) {
        return Err(problem(
            key(Name::Id),
            id,
            format!("a load balancer that was not made for Kubernetes: this one has the tag {tag}"),
        ));
    }
    if desired.forbid_public && instance.address_type == "internet" {
        return Err(problem(
            key(Name::Id),
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
            key(Name::Id),
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
pub(super) fn diff(desired: &Desired, observed: &Observed, draft: &mut Draft) {
    let Some(instance) = &observed.instance else {
        draft.step(
            Operation::CreateInstance(Box::new(desired.instance.create.clone())),
            Target::Instance,
            [],
            "the Service has no load balancer",
        );
        return;
    };
    if !matches!(instance.status.as_str(), "" | "active") {
        draft.note(format!("load balancer {} is {}", instance.id, instance.status));
    }
    marks(desired, instance, draft);
    for (field, attribute, wanted) in &desired.instance.fixed {
        let found = attribute.of(instance);
        if found != wanted {
            draft.problem(
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
            draft.note(format!(
                "the charge of load balancer {} changes at {when}; it cannot be changed again before, and is compared then",
                instance.id
            ));
        }
        _ => {
            charge(desired, instance, draft);
            internet(desired, instance, draft);
        }
    }
    let wanted = &desired.instance;
    protection(wanted.delete_protection, instance, draft);
    if let Some(status) = differs(wanted.modification_protection.as_ref(), &instance.modification_protection) {
        attribute(
            draft,
            "modification protection",
            Operation::SetModificationProtection { status, reason: None },
            format!("{}: {} now", key(Name::ModificationProtection), instance.modification_protection),
        );
    }
    if let Some(name) = differs(wanted.name.as_ref(), &instance.name) {
        let reason = format!("{}: {:?} now", key(Name::LbName), instance.name);
        attribute(draft, "name", Operation::SetName { name }, reason);
    }
    tags(desired, instance, draft);
}

/// Delete protection as the annotation says; without one, as it was before a deletion that is not wanted any more.
fn protection(wanted: Option<bool>, instance: &ObservedInstance, draft: &mut Draft) {
    const TARGET: &str = "delete protection";
    let given_up = instance.tags.contains_key(UNPROTECTED_TAG);
    let reason = match wanted {
        None => "the load balancer was about to be deleted".to_owned(),
        Some(on) => format!("{}: {} now", key(Name::DeleteProtection), if on { "off" } else { "on" }),
    };
    let on = wanted.or(given_up.then_some(true));
    if let Some(on) = on.filter(|on| *on != instance.delete_protection) {
        attribute(draft, TARGET, Operation::SetDeleteProtection { on }, reason);
    }
    if given_up {
        draft.step(
            Operation::Untag { keys: vec![UNPROTECTED_TAG.to_owned()] },
            Target::Attribute("tags"),
            [Target::Attribute(TARGET)],
            "the load balancer stays",
        );
    }
}

fn attribute(draft: &mut Draft, target: &'static str, operation: Operation, reason: impl Into<String>) {
    draft.step(operation, Target::Attribute(target), [], reason);
}

fn differs(wanted: Option<&String>, found: &str) -> Option<String> {
    wanted.filter(|wanted| *wanted != found).cloned()
}

/// Tags by which the instance is recognised.
fn marks(desired: &Desired, instance: &ObservedInstance, draft: &mut Draft) {
    let owner = &desired.owner;
    let wanted = match desired.reuse {
        Some(_) => vec![(REUSE_TAG.to_owned(), "true".to_owned())],
        None => {
            vec![(MARK_TAG.to_owned(), owner.default_name()), (owner.cluster_tag.clone(), owner.cluster_id.clone())]
        }
    };
    let missing: BTreeMap<_, _> = wanted.into_iter().filter(|(key, _)| !instance.tags.contains_key(key)).collect();
    if missing.is_empty() {
        return;
    }
    if instance.tags.len() + missing.len() > MOST_TAGS {
        let keys: Vec<_> = missing.keys().map(String::as_str).collect();
        draft.note(format!("no room for the tags {} on {}: it has {MOST_TAGS} at most", keys.join(", "), instance.id));
        return;
    }
    attribute(draft, MARKS, Operation::Tag { tags: missing }, "marks that are missing");
}

/// Whether the instance is not charged as wanted and can be.
pub(in crate::plan::clb) fn charge_differs(desired: &Desired, instance: &ObservedInstance) -> bool {
    let mut draft = Draft::default();
    charge(desired, instance, &mut draft);
    internet(desired, instance, &mut draft);
    !draft.plan.steps.is_empty()
}

/// Settings that have no effect on this instance, or on the one to be made.
pub(super) fn idle(desired: &Desired, instance: Option<&ObservedInstance>, draft: &mut Draft) {
    if let (Some(instance), Some(wanted), None) = (instance, &desired.instance.vswitch_id, &desired.reuse)
        && instance.address_type == "intranet"
        && !instance.vswitch_id.is_empty()
        && instance.vswitch_id != *wanted
    {
        let there = &instance.vswitch_id;
        let why =
            format!("no effect: the load balancer is in {there} and stays there; delete the Service and make it again");
        draft.warning(key(Name::VswitchId), wanted, why);
    }
    idle_charge(desired, instance, draft);
}

fn idle_charge(desired: &Desired, instance: Option<&ObservedInstance>, draft: &mut Draft) {
    let (wanted, create) = (&desired.instance, &desired.instance.create);
    let charge_type = wanted.instance_charge_type.as_deref();
    let charge_type = charge_type.or(instance.map(|it| it.instance_charge_type.as_str()));
    let charge_type = charge_type.filter(|text| !text.is_empty()).unwrap_or(&create.instance_charge_type);
    if let Some(spec) = wanted.spec.as_ref().filter(|_| !charge_type.eq_ignore_ascii_case("PayBySpec")) {
        draft.warning(key(Name::Spec), spec, format!("no effect: the instance is charged by `{charge_type}`"));
    }
    let address_type = instance.map_or(create.address_type.as_str(), |instance| &instance.address_type);
    let bought = wanted.internet_charge_type.as_ref();
    if address_type == "intranet" {
        let why = "no effect: traffic of intranet load balancers is not charged";
        if let Some(charge_type) = bought {
            draft.warning(key(Name::ChargeType), charge_type, why);
        }
        if let Some(bandwidth) = wanted.bandwidth {
            draft.warning(key(Name::Bandwidth), bandwidth.to_string(), why);
        }
    } else if let Some(bandwidth) = wanted.bandwidth {
        let by_default = instance.is_none().then_some(create.internet_charge_type.as_ref()).flatten();
        if bought.or(by_default).is_none_or(|charge_type| charge_type != "paybybandwidth") {
            let why = format!("no effect: it needs {}: paybybandwidth", key(Name::ChargeType));
            draft.warning(key(Name::Bandwidth), bandwidth.to_string(), why);
        }
    }
}

/// How the instance is charged, and its specification.
fn charge(desired: &Desired, instance: &ObservedInstance, draft: &mut Draft) {
    let wanted = &desired.instance;
    let now = instance.instance_charge_type.as_str();
    let by_spec = now.eq_ignore_ascii_case("PayBySpec");
    match wanted.instance_charge_type.as_deref() {
        Some(charge_type) if !now.is_empty() && !charge_type.eq_ignore_ascii_case(now) => {
            if charge_type == "PayBySpec" {
                let problem = format!("`{now}`: an instance that is charged so cannot go back to `{charge_type}`");
                draft.problem(key(Name::InstanceChargeType), charge_type, problem);
            } else {
                let operation = Operation::SetInstanceChargeType { charge_type: charge_type.to_owned(), spec: None };
                attribute(draft, "charge", operation, format!("{}: {now} now", key(Name::InstanceChargeType)));
            }
        }
        _ if by_spec => {
            if let Some(spec) = differs(wanted.spec.as_ref(), &instance.spec) {
                let reason = format!("{}: {} now", key(Name::Spec), instance.spec);
                attribute(draft, "charge", Operation::SetSpec { spec }, reason);
            }
        }
        _ => {}
    }
}

/// How internet traffic is charged, and the bandwidth.
fn internet(desired: &Desired, instance: &ObservedInstance, draft: &mut Draft) {
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
        draft.problem(key(Name::ChargeType), given, allowed);
        return;
    }
    if bandwidth.is_some_and(|bandwidth| bandwidth > MOST_BANDWIDTH) {
        draft.problem(key(Name::Bandwidth), given, format!("at most {MOST_BANDWIDTH} on a load balancer that exists"));
        return;
    }
    let kept = (by_bandwidth && (1..=MOST_BANDWIDTH).contains(&instance.bandwidth)).then_some(instance.bandwidth);
    if by_bandwidth && bandwidth.or(kept).is_none() {
        draft.problem(key(Name::Bandwidth), "", "a bandwidth, with charge by bandwidth");
        return;
    }
    let reason =
        format!("{}: {}, {} Mbit/s now", key(Name::ChargeType), instance.internet_charge_type, instance.bandwidth);
    let operation = Operation::SetInternetSpec { charge_type, bandwidth: bandwidth.or(kept) };
    attribute(draft, "internet", operation, reason);
}

/// Tags of users, if the annotation says which.
fn tags(desired: &Desired, instance: &ObservedInstance, draft: &mut Draft) {
    let wanted = &desired.instance.tags;
    if wanted.is_empty() {
        return;
    }
    let cluster_tag = desired.owner.cluster_tag.as_str();
    let untouched = |key: &str| {
        let lower = key.to_ascii_lowercase();
        [MARK_TAG, CLUSTER_TAG, REUSE_TAG, UNPROTECTED_TAG, cluster_tag].contains(&key)
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
        format!("{}: {} now", key(Name::AdditionalResourceTags), found.collect::<Vec<_>>().join(", "))
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
        attribute(draft, "tags", operation, reason);
    }
}
