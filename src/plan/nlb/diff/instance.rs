//! Whether the load balancer may be used, whether one may be made, and its attributes.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::nlb::annotations::Name;
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::ZoneMapping;
use crate::plan::nlb::observed::{Observed, ObservedInstance};
use crate::plan::nlb::operation::{MOST_TAGS, Operation, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::management::MARKS;
use crate::plan::service::ownership::{CLUSTER_TAG, CLUSTER_UID_TAG, MARK_TAG, REUSE_TAG};
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::steps::Target;

fn problem(field: impl Into<String>, given: impl Into<String>, allowed: impl Into<String>) -> ServiceProblem {
    ServiceProblem { field: field.into(), given: given.into(), allowed: allowed.into() }
}

/// Whether there is a load balancer to work on, or one may be made. Otherwise nothing may be done at all.
pub(super) fn usable(desired: &Desired, observed: &Observed) -> Result<(), ServiceProblem> {
    match (&desired.reuse, &observed.instance) {
        (Some(id), None) => Err(problem(Name::Id.key(), id, "the id of a load balancer that exists")),
        (Some(id), Some(instance)) => reusable(desired, id, instance),
        (None, None) if desired.instance.create.zones.is_empty() => Err(problem(
            Name::ZoneMaps.key(),
            "",
            "zones with vSwitches, here or as cloud.vswitches of the configuration: none is known near the nodes",
        )),
        (None, None) => Ok(()),
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
        (None, Some(instance)) if instance.status == "CreateFailed" => Err(problem(
            format!("load balancer {}", instance.id),
            instance.status.as_str(),
            "one that the cloud could make; delete this one to have it made again",
        )),
        (None, Some(_)) => Ok(()),
    }
}

fn reusable(desired: &Desired, id: &str, instance: &ObservedInstance) -> Result<(), ServiceProblem> {
    if instance.id != id {
        return Err(problem(Name::Id.key(), id, format!("the cloud answered with {}; nothing is done", instance.id)));
    }
    let own = [MARK_TAG, CLUSTER_TAG, desired.owner.cluster_tag.as_str()];
    if let Some(tag) = own.into_iter().find(|tag| instance.tags.contains_key(*tag)) {
        let allowed = format!("a load balancer that was not made for Kubernetes: this one has the tag {tag}");
        return Err(problem(Name::Id.key(), id, allowed));
    }
    if desired.forbid_public && instance.address_type.eq_ignore_ascii_case("Internet") {
        let allowed = "a load balancer with a private address: public ones are switched off by service.disable_public";
        return Err(problem(Name::Id.key(), id, allowed));
    }
    let bound = |name: &str| name == instance.dns_name || name.is_empty();
    if !desired.ingress.is_empty() && !desired.ingress.iter().any(|ingress| bound(&ingress.hostname)) {
        let allowed = format!(
            "the Service already has another address than {}, and cannot move between load balancers; delete it and make \
             it again",
            instance.dns_name
        );
        return Err(problem(Name::Id.key(), id, allowed));
    }
    Ok(())
}

fn tags_of(instance: &ObservedInstance) -> String {
    let tags: Vec<_> = instance.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("name {}, tags {}", instance.name, tags.join(","))
}

/// Changes what differs.
pub(super) fn diff(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let Some(instance) = &observed.instance else { return };
    if !matches!(instance.status.as_str(), "" | "Active" | "Provisioning" | "Configuring") {
        plan.note(format!("load balancer {} is {}", instance.id, instance.status));
    }
    marks(desired, instance, plan);
    if desired.problems.withhold_load_balancer() {
        return;
    }
    fixed(desired, instance, plan);
    address_type(desired, instance, plan);
    zones(desired, instance, plan);
    ipv6(desired, instance, plan);
    bandwidth_package(desired, instance, plan);
    protection(desired, instance, plan);
    attributes(desired, instance, plan);
    tags(desired, instance, plan);
}

fn attribute(plan: &mut Plan, target: &'static str, operation: Operation, reason: impl Into<String>) {
    plan.step(operation, Target::Attribute(target), [], reason);
}

/// What cannot be changed.
fn fixed(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let wanted = &desired.instance;
    let table = [
        (Name::IpVersion, &wanted.ip_version, &instance.ip_version),
        (Name::ResourceGroupId, &wanted.resource_group_id, &instance.resource_group_id),
    ];
    for (name, wanted, found) in table {
        let Some(wanted) = wanted.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(found)) else { continue };
        let allowed = format!(
            "{found:?}, as it was made: this cannot be changed; set the annotation back, or delete the Service and make \
             it again"
        );
        plan.problem(name.key(), wanted, allowed);
    }
}

fn address_type(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let found = &instance.address_type;
    let Some(wanted) = desired.instance.address_type.as_ref().filter(|it| !it.eq_ignore_ascii_case(found)) else {
        return;
    };
    // Elastic addresses of the user are bound by the same call.
    let public = wanted.eq_ignore_ascii_case("Internet");
    let stated = &desired.instance.zones;
    let has_elastic = stated.iter().any(|mapping| !mapping.allocation_id.is_empty());
    let zones = if public && has_elastic { stated.clone() } else { Vec::new() };
    let operation = Operation::SetAddressType { address_type: wanted.clone(), zones };
    attribute(plan, "address type", operation, format!("{}: {found} now", Name::AddressType.key()));
}

/// Zones are added and removed; what is stated of a zone that stays cannot be changed.
fn zones(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let wanted = &desired.instance.zones;
    if wanted.is_empty() {
        return;
    }
    let found = |zone: &str| instance.zones.iter().find(|mapping| mapping.zone == zone);
    let same = |stated: &str, found: &str| stated.is_empty() || stated == found;
    // A change of the address type has just bound them.
    let rebinds = plan.steps.iter().any(|step| matches!(step.operation, Operation::SetAddressType { .. }));
    let fits = |mapping: &ZoneMapping, there: &ZoneMapping| {
        let elastic = rebinds || same(&mapping.allocation_id, &there.allocation_id);
        mapping.vswitch == there.vswitch && same(&mapping.private_address, &there.private_address) && elastic
    };
    for mapping in wanted {
        if let Some(there) = found(&mapping.zone).filter(|there| !fits(mapping, there)) {
            let allowed = format!(
                "{}:{}:{} for zone {}, as it was made: what a zone has cannot be changed; take the zone away and add it \
                 again, or set the annotation back",
                there.vswitch, there.private_address, there.allocation_id, there.zone
            );
            let given = format!("{}:{}:{}", mapping.vswitch, mapping.private_address, mapping.allocation_id);
            plan.problem(Name::ZoneMaps.key(), given, allowed);
            return;
        }
    }
    let names = |zones: &[ZoneMapping]| zones.iter().map(|mapping| mapping.zone.clone()).collect::<BTreeSet<_>>();
    let (wanted_names, found_names) = (names(wanted), names(&instance.zones));
    if wanted_names == found_names {
        return;
    }
    if wanted_names.len() < 2 && found_names.len() >= 2 {
        let given = wanted_names.iter().cloned().collect::<Vec<_>>().join(", ");
        plan.warning(Name::ZoneMaps.key(), given, "with one zone, the load balancer fails together with it");
    }
    let list = found_names.into_iter().collect::<Vec<_>>().join(", ");
    let operation = Operation::SetZones { zones: wanted.clone() };
    attribute(plan, "zones", operation, format!("{}: {list} now", Name::ZoneMaps.key()));
}

fn ipv6(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let found = &instance.ipv6_address_type;
    let Some(wanted) = desired.instance.ipv6_address_type.as_ref().filter(|it| !it.eq_ignore_ascii_case(found)) else {
        return;
    };
    let internet = wanted == "Internet";
    if instance.ip_version != "DualStack" {
        if internet {
            let allowed = format!("no effect: it needs {}: DualStack", Name::IpVersion.key());
            plan.warning(Name::Ipv6AddressType.key(), wanted, allowed);
        }
        return;
    }
    let reason = format!("{}: {found} now", Name::Ipv6AddressType.key());
    attribute(plan, "IPv6 address type", Operation::SetIpv6AddressType { internet }, reason);
}

/// The old package goes before the new one comes.
fn bandwidth_package(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    const TARGET: &str = "bandwidth package";
    let found = &instance.bandwidth_package_id;
    let Some(wanted) = desired.instance.bandwidth_package_id.as_ref().filter(|wanted| *wanted != found) else { return };
    let public = desired.instance.address_type.as_ref().unwrap_or(&instance.address_type);
    if !wanted.is_empty() && !public.eq_ignore_ascii_case("Internet") {
        plan.problem(Name::BandwidthPackageId.key(), wanted, "none: only public load balancers have one");
        return;
    }
    let reason = format!("{}: {found:?} now", Name::BandwidthPackageId.key());
    if !found.is_empty() {
        attribute(plan, TARGET, Operation::DetachBandwidthPackage { id: found.clone() }, reason.clone());
    }
    if !wanted.is_empty() {
        let operation = Operation::AttachBandwidthPackage { id: wanted.clone() };
        plan.step(operation, Target::Attribute(TARGET), [Target::Attribute(TARGET)], reason);
    }
}

/// Both protections in one call.
fn protection(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let wanted = &desired.instance;
    let delete = wanted.delete_protection.filter(|on| *on != instance.delete_protection);
    let modification = wanted
        .modification_protection
        .clone()
        .filter(|status| !status.eq_ignore_ascii_case(&instance.modification_protection));
    let mut reasons = Vec::new();
    if delete.is_some() {
        let found = if instance.delete_protection { "on" } else { "off" };
        reasons.push(format!("{}: {found} now", Name::DeleteProtection.key()));
    }
    if modification.is_some() {
        reasons.push(format!("{}: {} now", Name::ModificationProtection.key(), instance.modification_protection));
    }
    if !reasons.is_empty() {
        attribute(plan, "protection", Operation::SetProtection { delete, modification }, reasons.join(", "));
    }
}

/// Name and cross-zone switch in one call.
fn attributes(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let name = desired.instance.name.clone().filter(|name| *name != instance.name);
    let cross_zone = desired.instance.cross_zone.filter(|on| *on != instance.cross_zone);
    let mut reasons = Vec::new();
    if name.is_some() {
        reasons.push(format!("{}: {:?} now", Name::LbName.key(), instance.name));
    }
    if cross_zone.is_some() {
        let found = if instance.cross_zone { "on" } else { "off" };
        reasons.push(format!("{}: {found} now", Name::CrossZoneEnabled.key()));
    }
    if !reasons.is_empty() {
        attribute(plan, "attributes", Operation::SetAttributes { name, cross_zone }, reasons.join(", "));
    }
}

/// Tags by which a load balancer of ours is recognised.
fn marks(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    if desired.reuse.is_some() {
        return;
    }
    let mut tags: BTreeMap<_, _> =
        desired.owner.tags().into_iter().filter(|(key, _)| !instance.tags.contains_key(key)).collect();
    // What the official controller made is not tagged just to carry the uid.
    if tags.keys().all(|key| key == CLUSTER_UID_TAG) {
        return;
    }
    if instance.tags.len() + tags.len() + desired.instance.tags.len() > MOST_TAGS {
        tags.remove(CLUSTER_UID_TAG);
    }
    if instance.tags.len() + tags.len() > MOST_TAGS {
        let keys: Vec<_> = tags.keys().map(String::as_str).collect();
        plan.note(format!("no room for the tags {} on {}: it has {MOST_TAGS} at most", keys.join(", "), instance.id));
        return;
    }
    attribute(plan, MARKS, Operation::Tag { tags }, "marks that are missing");
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
        [MARK_TAG, CLUSTER_TAG, CLUSTER_UID_TAG, REUSE_TAG, cluster_tag].contains(&key)
            || lower.starts_with("acs:")
            || lower.starts_with("aliyun")
    };
    let set: BTreeMap<_, _> = wanted
        .iter()
        .filter(|(key, value)| !untouched(key) && instance.tags.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let keys: Vec<_> =
        instance.tags.keys().filter(|key| !untouched(key) && !wanted.contains_key(*key)).cloned().collect();
    let reason = format!("{}: others now", Name::AdditionalResourceTags.key());
    let mut operations = Vec::new();
    if !set.is_empty() {
        operations.push(Operation::Tag { tags: set });
    }
    if !keys.is_empty() {
        operations.push(Operation::Untag { keys });
    }
    // Two marks may be on their way as well.
    if instance.tags.len() + wanted.len() + 2 > MOST_TAGS {
        operations.reverse();
    }
    for operation in operations {
        attribute(plan, "tags", operation, reason.clone());
    }
}
