//! What is asked of the instance, and the parameters for making it.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::nlb::annotations::{Annotations, Name};
use crate::plan::nlb::desired::DesiredInstance;
use crate::plan::nlb::model::{CreateLoadBalancer, ZoneMapping};
use crate::plan::nlb::operation::MOST_TAGS;
use crate::plan::service::annotations::values::zone_maps;
use crate::plan::service::ownership::{CLUSTER_UID_TAG, Owner};
use crate::plan::service::problem::{ScopedProblems, ServiceProblem};
use crate::plan::service::settings::ServiceSettings;

/// Reason that the console shows for the modification protection of new load balancers.
const PROTECTION_REASON: &str = "managed.by.ack";

pub(super) fn desire(
    annotations: &Annotations,
    owner: &Owner,
    settings: &ServiceSettings,
    problems: &mut ScopedProblems,
) -> DesiredInstance {
    let text = |name| annotations.text(name);
    let defaults = &settings.nlb;
    let reused = annotations.get(Name::Id).is_some() || annotations.is_wrong(Name::Id);
    let zones: Vec<ZoneMapping> =
        annotations.get(Name::ZoneMaps).and_then(zone_maps).into_iter().flatten().map(mapping).collect();
    let protection = text(Name::ModificationProtection);
    let switch = |name| annotations.get(name).map(|value| value == "true");
    let delete_protection = annotations.get(Name::DeleteProtection).map(|value| value == "on");
    let create = create(annotations, owner, settings, &zones);
    check(annotations, settings, &create, reused, problems);
    let tags = match annotations.pairs(Name::AdditionalResourceTags).cloned() {
        Some(stated) if reused => stated,
        Some(stated) => defaults.tags.clone().into_iter().chain(stated).collect(),
        None => BTreeMap::new(),
    };
    DesiredInstance {
        near_nodes: zones.is_empty() && !reused,
        // Protections of load balancers of ours are restored.
        delete_protection: delete_protection.or((!reused).then_some(create.delete_protection)),
        modification_protection: protection.or((!reused).then(|| create.modification_protection.clone())),
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

fn mapping([zone, vswitch, address, elastic]: [&str; 4]) -> ZoneMapping {
    ZoneMapping {
        zone: zone.to_owned(),
        vswitch: vswitch.to_owned(),
        private_address: address.to_owned(),
        allocation_id: elastic.to_owned(),
    }
}

/// Parameters for the case that there is no instance yet.
fn create(
    annotations: &Annotations,
    owner: &Owner,
    settings: &ServiceSettings,
    zones: &[ZoneMapping],
) -> CreateLoadBalancer {
    let defaults = &settings.nlb;
    let text = |name| annotations.text(name);
    let protection = text(Name::ModificationProtection);
    let protected_by_default = protection.is_none() && defaults.modification_protection;
    let mut tags = defaults.tags.clone();
    tags.extend(annotations.pairs(Name::AdditionalResourceTags).cloned().unwrap_or_default());
    tags.extend(owner.tags());
    if tags.len() > MOST_TAGS {
        // As many tags of users are allowed as with the official controller.
        tags.remove(CLUSTER_UID_TAG);
    }
    CreateLoadBalancer {
        name: text(Name::LbName).unwrap_or_else(|| owner.default_name()),
        address_type: text(Name::AddressType).unwrap_or_else(|| defaults.address_type.clone()),
        ip_version: text(Name::IpVersion),
        vpc_id: settings.vpc_id.clone(),
        zones: zones.to_vec(),
        bandwidth_package_id: text(Name::BandwidthPackageId).filter(|id| !id.is_empty()),
        resource_group_id: text(Name::ResourceGroupId).or_else(|| settings.resource_group_id.clone()),
        delete_protection: text(Name::DeleteProtection).map_or(defaults.delete_protection, |value| value == "on"),
        modification_protection_reason: protected_by_default.then(|| PROTECTION_REASON.to_owned()),
        modification_protection: protection
            .unwrap_or_else(|| if protected_by_default { "ConsoleProtection" } else { "NonProtection" }.to_owned()),
        tags,
    }
}

fn check(
    annotations: &Annotations,
    settings: &ServiceSettings,
    create: &CreateLoadBalancer,
    reused: bool,
    problems: &mut ScopedProblems,
) {
    let public = create.address_type.eq_ignore_ascii_case("Internet");
    if create.tags.len() > MOST_TAGS {
        problems.load_balancer(ServiceProblem {
            field: annotations.key(Name::AdditionalResourceTags),
            given: format!("{} tags, with those of the configuration and of ownership", create.tags.len()),
            allowed: format!("at most {MOST_TAGS} tags in all"),
        });
    }
    if settings.service.disable_public && !reused && public {
        problems.load_balancer(annotations.complaint(
            Name::AddressType,
            "`intranet`: load balancers with a public address are switched off by service.disable_public",
        ));
    }
    if !reused && !public {
        if create.zones.iter().any(|mapping| !mapping.allocation_id.is_empty()) {
            problems.load_balancer(
                annotations.complaint(Name::ZoneMaps, "no elastic addresses: the load balancer is not public"),
            );
        }
        if create.bandwidth_package_id.is_some() {
            problems.load_balancer(
                annotations.complaint(Name::BandwidthPackageId, "none: only public load balancers have one"),
            );
        }
    }
}
