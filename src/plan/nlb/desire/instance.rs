//! What is asked of the instance, and the parameters for making it.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use crate::plan::nlb::annotations::{Annotations, Name};
use crate::plan::nlb::desired::DesiredInstance;
use crate::plan::nlb::model::{CreateLoadBalancer, ZoneMapping};
use crate::plan::service::annotations::values::zone_maps;
use crate::plan::service::desire::{Creation, is_reused, kept_tags};
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::ScopedProblems;
use crate::plan::service::settings::ServiceSettings;

pub(super) fn desire(
    annotations: &Annotations,
    owner: &Owner,
    settings: &ServiceSettings,
    problems: &mut ScopedProblems,
) -> DesiredInstance {
    let text = |name| annotations.text(name);
    let defaults = &settings.nlb;
    let reused = is_reused(annotations);
    let zones: Vec<ZoneMapping> =
        annotations.get(Name::ZoneMaps).and_then(zone_maps).into_iter().flatten().map(mapping).collect();
    let switch = |name| annotations.get(name).map(|value| value == "true");
    let protections = (&defaults.tags, defaults.delete_protection, defaults.modification_protection);
    let creation = Creation::of(annotations, owner, protections);
    let public = annotations.get(Name::AddressType).unwrap_or(&defaults.address_type).eq_ignore_ascii_case("Internet");
    creation.check(annotations, settings, public, problems);
    let dual_stack = annotations.is(Name::IpVersion, "DualStack");
    if !dual_stack && zones.iter().any(|mapping| !mapping.ipv6_address.is_empty()) {
        let rule = format!("must have no IPv6 addresses without {}: DualStack", annotations.key(Name::IpVersion));
        problems.load_balancer(annotations.invalid(Name::ZoneMaps, rule));
    }
    if !reused && !public {
        private(annotations, &zones, problems);
    }
    let tags = kept_tags(annotations, &creation);
    let create = create(annotations, owner, settings, (creation, &zones));
    DesiredInstance {
        near_nodes: zones.is_empty() && !reused,
        // The controller itself switches it off before a deletion, which the user may take back.
        delete_protection: annotations
            .get(Name::DeleteProtection)
            .map(|value| value == "on")
            .or((!reused).then_some(create.delete_protection)),
        modification_protection: text(Name::ModificationProtection),
        address_type: text(Name::AddressType),
        create,
        zones,
        ipv6_address_type: text(Name::Ipv6AddressType),
        ip_version: text(Name::IpVersion),
        resource_group_id: text(Name::ResourceGroupId),
        name: text(Name::LbName),
        bandwidth_package_id: text(Name::BandwidthPackageId),
        cross_zone: switch(Name::CrossZoneEnabled),
        security_group_ids: annotations.get(Name::SecurityGroupIds).map(id_set),
        tags,
    }
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
fn create(
    annotations: &Annotations,
    owner: &Owner,
    settings: &ServiceSettings,
    (creation, zones): (Creation, &[ZoneMapping]),
) -> CreateLoadBalancer {
    let defaults = &settings.nlb;
    let text = |name| annotations.text(name);
    CreateLoadBalancer {
        name: text(Name::LbName).unwrap_or_else(|| owner.default_name()),
        address_type: text(Name::AddressType).unwrap_or_else(|| defaults.address_type.clone()),
        ip_version: text(Name::IpVersion),
        vpc_id: settings.vpc_id.clone(),
        zones: zones.to_vec(),
        bandwidth_package_id: text(Name::BandwidthPackageId).filter(|id| !id.is_empty()),
        resource_group_id: text(Name::ResourceGroupId).or_else(|| settings.resource_group_id.clone()),
        delete_protection: creation.delete_protection,
        modification_protection: creation.modification_protection,
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
