//! Whether the load balancer may be used, whether one may be made, and its attributes.

use std::collections::BTreeSet;

use crate::plan::inputs::Ingress;
use crate::plan::nlb::annotations::Name;
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::ZoneMapping;
use crate::plan::nlb::observed::{Observed, ObservedInstance};
use crate::plan::nlb::operation::{Operation, Own, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::instance_diff::{self, attribute};
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::steps::Target;

/// Whether there is a load balancer to work on, or one may be made. Otherwise nothing may be done at all.
pub(super) fn usable(desired: &Desired, observed: &Observed) -> Result<(), ServiceProblem> {
    let instance = observed.instance.as_ref();
    let bound = |instance: &ObservedInstance| {
        let is_own = |it: &Ingress| it.hostname == instance.dns_name || it.hostname.is_empty();
        desired.ingress.is_empty() || desired.ingress.iter().any(is_own)
    };
    instance_diff::usable(desired, observed, instance.is_some_and(bound))?;
    match instance {
        None if desired.instance.create.zones.is_empty() => Err(ServiceProblem::required(
            Name::ZoneMaps.key(),
            "zones need vSwitches, here or as cloud.vswitches of the configuration: none is known near the nodes",
        )),
        Some(instance) if desired.reuse.is_none() && instance.status == "CreateFailed" => Err(ServiceProblem::state(
            format!("load balancer {}", instance.id),
            format!("the cloud could not make it ({}); delete it to have it created again", instance.status),
        )),
        _ => Ok(()),
    }
}

/// What keeps it from being used by the configuration.
pub(super) fn forbidden(desired: &Desired, observed: &Observed) -> Option<ServiceProblem> {
    instance_diff::forbidden(desired, observed.instance.as_ref()?.address_type.eq_ignore_ascii_case("Internet"))
}

/// Changes what differs.
pub(super) fn diff(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let Some(instance) = &observed.instance else { return };
    if !matches!(instance.status.as_str(), "" | "Active" | "Provisioning" | "Configuring") {
        plan.note(format!("load balancer {} is {}", instance.id, instance.status));
    }
    if desired.reuse.is_none() {
        instance_diff::marks(&instance.tagged(), desired.owner.tags(), &desired.instance.tags, plan);
    }
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
    let wanted = &desired.instance;
    instance_diff::tags(desired, &instance.tags, &wanted.tags, &wanted.create.tags, plan);
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
        plan.problem(instance_diff::immutable(&name.key(), wanted, found));
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
    let operation = Own::SetAddressType { address_type: wanted.clone(), zones };
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
    let rebinds = plan.steps.iter().any(|step| matches!(step.operation, Operation::Own(Own::SetAddressType { .. })));
    let fits = |mapping: &ZoneMapping, there: &ZoneMapping| {
        let elastic = rebinds || same(&mapping.allocation_id, &there.allocation_id);
        mapping.vswitch == there.vswitch
            && same(&mapping.private_address, &there.private_address)
            && same(&mapping.ipv6_address, &there.ipv6_address)
            && elastic
    };
    for mapping in wanted {
        if let Some(there) = found(&mapping.zone).filter(|there| !fits(mapping, there)) {
            let text = |it: &ZoneMapping| {
                [&it.vswitch, &it.private_address, &it.allocation_id, &it.ipv6_address].map(String::as_str).join(":")
            };
            let rule = format!(
                "must be {} for zone {}, as it was made: what a zone has cannot be changed; take the zone away and add it \
                 again, or set the annotation back",
                text(there),
                there.zone
            );
            plan.problem(ServiceProblem::invalid(Name::ZoneMaps.key(), text(mapping), rule));
            return;
        }
    }
    let is_new = |mapping: &&ZoneMapping| found(&mapping.zone).is_none();
    if let Some(mapping) = wanted.iter().filter(is_new).find(|mapping| !mapping.ipv6_address.is_empty()) {
        let rule = "must be empty: the cloud chooses the IPv6 address of a zone that is added to a load balancer";
        plan.problem(ServiceProblem::invalid(Name::ZoneMaps.key(), &mapping.ipv6_address, rule));
        return;
    }
    let names = |zones: &[ZoneMapping]| zones.iter().map(|mapping| mapping.zone.clone()).collect::<BTreeSet<_>>();
    let (wanted_names, found_names) = (names(wanted), names(&instance.zones));
    if wanted_names == found_names {
        return;
    }
    if wanted_names.len() < 2 && found_names.len() >= 2 {
        let given = wanted_names.iter().cloned().collect::<Vec<_>>().join(", ");
        let text = format!("with one zone ({given}), the load balancer fails together with it");
        plan.warnings.push(ServiceProblem::state(Name::ZoneMaps.key(), text));
    }
    let list = found_names.into_iter().collect::<Vec<_>>().join(", ");
    let operation = Own::SetZones { zones: wanted.clone() };
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
            let why = format!("it needs {}: DualStack", Name::IpVersion.key());
            plan.warnings.push(ServiceProblem::ignored(Name::Ipv6AddressType.key(), wanted, why));
        }
        return;
    }
    let reason = format!("{}: {found} now", Name::Ipv6AddressType.key());
    attribute(plan, "IPv6 address type", Own::SetIpv6AddressType { internet }, reason);
}

/// The old package goes before the new one comes.
fn bandwidth_package(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    const TARGET: &str = "bandwidth package";
    let found = &instance.bandwidth_package_id;
    let Some(wanted) = desired.instance.bandwidth_package_id.as_ref().filter(|wanted| *wanted != found) else { return };
    let public = desired.instance.address_type.as_ref().unwrap_or(&instance.address_type);
    if !wanted.is_empty() && !public.eq_ignore_ascii_case("Internet") {
        let rule = "must be empty: only public load balancers have one";
        plan.problem(ServiceProblem::invalid(Name::BandwidthPackageId.key(), wanted, rule));
        return;
    }
    let reason = format!("{}: {found:?} now", Name::BandwidthPackageId.key());
    if !found.is_empty() {
        attribute(plan, TARGET, Own::DetachBandwidthPackage { id: found.clone() }, reason.clone());
    }
    if !wanted.is_empty() {
        let operation = Own::AttachBandwidthPackage { id: wanted.clone() };
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
        attribute(plan, "protection", Own::SetProtection { delete, modification }, reasons.join(", "));
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
        attribute(plan, "attributes", Own::SetAttributes { name, cross_zone }, reasons.join(", "));
    }
}
