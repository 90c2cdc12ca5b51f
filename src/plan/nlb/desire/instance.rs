//! What is asked of the instance, and the parameters for making it.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use crate::plan::loadbalancer::annotations::values::zone_maps;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::backends::Inputs;
use crate::plan::loadbalancer::desire::{Creation, is_reused};
use crate::plan::loadbalancer::desired::Sources;
use crate::plan::loadbalancer::problem::ScopedProblems;
use crate::plan::nlb::annotations::{Annotations, INSTANCE, Name};
use crate::plan::nlb::desired::{DesiredInstance, NlbExtra};
use crate::plan::nlb::model::{CreateInstance, InstanceField, InstanceFields, ZoneMapping};

pub(super) fn desire(sources: &Sources<'_, Name>, problems: &mut ScopedProblems) -> (DesiredInstance, NlbExtra) {
    let Sources { annotations, inputs: Inputs { settings, .. }, .. } = sources;
    let defaults = &settings.nlb;
    let reused = is_reused(annotations);
    let zones: Vec<ZoneMapping> =
        annotations.get(Name::ZoneMaps).and_then(zone_maps).into_iter().flatten().map(mapping).collect();
    let protections = (&defaults.tags, defaults.delete_protection, defaults.modification_protection);
    let public = annotations.get(Name::AddressType).unwrap_or(&defaults.address_type).eq_ignore_ascii_case("Internet");
    let (creation, tags) = Creation::of(sources, protections, public, problems);
    let dual_stack = annotations.is(Name::IpVersion, "DualStack");
    if !dual_stack && zones.iter().any(|mapping| !mapping.ipv6_address.is_empty()) {
        let rule = format!("must have no IPv6 addresses without {}: DualStack", annotations.key(Name::IpVersion));
        problems.load_balancer(annotations.invalid(Name::ZoneMaps, rule));
    }
    if !reused && !public {
        private(annotations, &zones, problems);
    }
    let create = create(sources, (creation, &zones));
    let stated = |(name, field)| Some((field, annotations.text(name)?));
    let mut fields: InstanceFields = INSTANCE.into_iter().filter_map(stated).collect();
    if fields.contains_key(&InstanceField::DeleteProtection) || !reused {
        // The controller itself switches it off before a deletion, which the user may take back.
        let made_with = create.fields.text(InstanceField::DeleteProtection).to_owned();
        fields.insert(InstanceField::DeleteProtection, made_with);
    }
    let instance = DesiredInstance {
        near_nodes: zones.is_empty() && !reused,
        fields,
        create,
        zones,
        security_group_ids: annotations.get(Name::SecurityGroupIds).map(id_set),
        tags,
    };
    let vswitches = if settings.place_near_nodes { Vec::new() } else { settings.vswitches.clone() };
    (instance, NlbExtra { vswitches, ..NlbExtra::default() })
}

/// The items of a list of ids.
pub(super) fn id_set(text: &str) -> BTreeSet<String> {
    text.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

fn mapping([zone, vswitch, address, elastic, ipv6]: [&str; 5]) -> ZoneMapping {
    ZoneMapping {
        zone: zone.to_owned(),
        vswitch: vswitch.to_owned(),
        private_address: address.to_owned(),
        allocation_id: elastic.to_owned(),
        ipv6_address: ipv6.parse().map(|address: Ipv6Addr| address.to_string()).unwrap_or_default(),
    }
}

/// Parameters for the case that there is no instance yet.
fn create(sources: &Sources<'_, Name>, (creation, zones): (Creation, &[ZoneMapping])) -> CreateInstance {
    let Sources { annotations, owner, inputs: Inputs { settings, .. }, .. } = sources;
    let defaults = &settings.nlb;
    let text = |name| annotations.text(name);
    let fields = [
        (InstanceField::Name, text(Name::LbName).or_else(|| Some(owner.default_name()))),
        (InstanceField::AddressType, text(Name::AddressType).or_else(|| Some(defaults.address_type.clone()))),
        (InstanceField::IpVersion, text(Name::IpVersion)),
        (InstanceField::BandwidthPackage, text(Name::BandwidthPackageId).filter(|id| !id.is_empty())),
        (InstanceField::ResourceGroup, text(Name::ResourceGroupId).or_else(|| settings.resource_group_id.clone())),
        (InstanceField::DeleteProtection, Some(creation.delete_protection.to_string())),
        (InstanceField::ModificationProtection, Some(creation.modification_protection)),
    ];
    CreateInstance {
        fields: fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect(),
        vpc_id: settings.vpc_id.clone(),
        zones: zones.to_vec(),
        modification_protection_reason: creation.modification_protection_reason,
        tags: creation.tags,
        marks: creation.marks,
    }
}

/// What a load balancer without a public address cannot have.
fn private(annotations: &Annotations, zones: &[ZoneMapping], problems: &mut ScopedProblems) {
    let mut refuse = |name, rule: &str| problems.load_balancer(annotations.invalid(name, rule));
    if zones.iter().any(|mapping| !mapping.allocation_id.is_empty()) {
        refuse(Name::ZoneMaps, "must have no elastic addresses: the load balancer is not public");
    }
    if annotations.get(Name::BandwidthPackageId).is_some_and(|id| !id.is_empty()) {
        refuse(Name::BandwidthPackageId, "must be empty: only public load balancers have one");
    }
}
