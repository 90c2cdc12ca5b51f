//! The attributes of a load balancer.

use std::collections::BTreeSet;

use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::ObservedInstanceModel as _;
use crate::plan::loadbalancer::diff::DiffModel;
use crate::plan::loadbalancer::instance_diff::{self, attribute, key_of};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::annotations::{INSTANCE, Name};
use crate::plan::nlb::desired::{Desired, NlbModel};
use crate::plan::nlb::model::{InstanceField as Field, InstanceFields, ZoneMapping};
use crate::plan::nlb::observed::{Observed, ObservedInstance};
use crate::plan::nlb::operation::{Operation, Own, Plan};

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
    for field in [Field::IpVersion, Field::ResourceGroup] {
        // What cannot be changed.
        if let Some((wanted, found)) = differs(desired, instance, field) {
            plan.problem(instance_diff::immutable(&key_of(&INSTANCE, field), wanted, found));
        }
    }
    address_type(desired, instance, plan);
    zones(desired, instance, plan);
    ipv6(desired, instance, plan);
    bandwidth_package(desired, instance, plan);
    for (target, fields) in TOGETHER {
        let (mut changed, mut reasons) = (InstanceFields::default(), Vec::new());
        for field in fields {
            let Some((wanted, found)) = differs(desired, instance, field) else { continue };
            let found = if field == Field::Name { format!("{found:?}") } else { field.shown(found).to_owned() };
            reasons.push(format!("{}: {found} now", key_of(&INSTANCE, field)));
            changed.insert(field, wanted.to_owned());
        }
        if !reasons.is_empty() {
            attribute(plan, target, Own::SetInstance(changed), reasons.join(", "));
        }
    }
    let wanted = &desired.instance;
    instance_diff::tags(desired, &instance.tags, &wanted.tags, &wanted.create.tags, plan);
}

/// Attributes that one call sets.
const TOGETHER: [(&str, [Field; 2]); 2] = [
    ("protection", [Field::DeleteProtection, Field::ModificationProtection]),
    ("attributes", [Field::Name, Field::CrossZone]),
];

/// What is wanted of an attribute, and what is found, if that is something else.
fn differs<'a>(desired: &'a Desired, instance: &'a ObservedInstance, field: Field) -> Option<(&'a str, &'a str)> {
    let (wanted, found) = (desired.instance.fields.get(&field)?.as_str(), instance.fields.text(field));
    let is_same = wanted == found || (field != Field::Name && wanted.eq_ignore_ascii_case(found));
    (!is_same).then_some((wanted, found))
}

fn address_type(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    let Some((wanted, found)) = differs(desired, instance, Field::AddressType) else { return };
    // Elastic addresses of the user are bound by the same call.
    let public = wanted.eq_ignore_ascii_case("Internet");
    let stated = &desired.instance.zones;
    let has_elastic = stated.iter().any(|mapping| !mapping.allocation_id.is_empty());
    let zones = if public && has_elastic { stated.clone() } else { Vec::new() };
    let operation = Own::SetAddressType { address_type: wanted.to_owned(), zones };
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
    let Some((wanted, found)) = differs(desired, instance, Field::Ipv6AddressType) else { return };
    if !instance.fields.is(Field::IpVersion, "DualStack") {
        if wanted == "Internet" {
            let why = format!("it needs {}: DualStack", Name::IpVersion.key());
            plan.warnings.push(ServiceProblem::ignored(Name::Ipv6AddressType.key(), wanted, why));
        }
        return;
    }
    let reason = format!("{}: {found} now", Name::Ipv6AddressType.key());
    let operation = Own::SetInstance(InstanceFields::from_iter([(Field::Ipv6AddressType, wanted.to_owned())]));
    attribute(plan, "IPv6 address type", operation, reason);
}

/// The old package goes before the new one comes.
fn bandwidth_package(desired: &Desired, instance: &ObservedInstance, plan: &mut Plan) {
    const TARGET: &str = "bandwidth package";
    let found = instance.fields.text(Field::BandwidthPackage);
    let wanted = desired.instance.fields.get(&Field::BandwidthPackage);
    let Some(wanted) = wanted.filter(|wanted| *wanted != found) else { return };
    let becomes = desired.instance.fields.get(&Field::AddressType);
    let is_public = becomes.map_or_else(|| NlbModel::is_public(instance), |it| it.eq_ignore_ascii_case("Internet"));
    if !wanted.is_empty() && !is_public {
        let rule = "must be empty: only public load balancers have one";
        plan.problem(ServiceProblem::invalid(Name::BandwidthPackageId.key(), wanted, rule));
        return;
    }
    let reason = format!("{}: {found:?} now", Name::BandwidthPackageId.key());
    if !found.is_empty() {
        attribute(plan, TARGET, Own::DetachBandwidthPackage { id: found.to_owned() }, reason.clone());
    }
    if !wanted.is_empty() {
        let operation = Own::AttachBandwidthPackage { id: wanted.clone() };
        plan.step(operation, Target::Attribute(TARGET), [Target::Attribute(TARGET)], reason);
    }
}
