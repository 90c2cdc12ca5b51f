//! What is asked of the instance, and the parameters for making it.

use crate::plan::clb::annotations::{Annotations, Name};
use crate::plan::clb::desired::{DesiredInstance, FixedAttribute};
use crate::plan::clb::model::CreateInstance;
use crate::plan::service::desire::{Creation, kept_tags};
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::ScopedProblems;
use crate::plan::service::settings::{LoadBalancerDefaults, ServiceSettings};

pub(super) fn desire(
    annotations: &Annotations,
    owner: &Owner,
    settings: &ServiceSettings,
    problems: &mut ScopedProblems,
) -> DesiredInstance {
    let text = |name| annotations.text(name);
    let defaults = &settings.service.defaults;
    let zones_stated = [Name::MasterZoneid, Name::SlaveZoneid].iter().any(|name| annotations.get(*name).is_some());
    let protections = (&defaults.tags, defaults.delete_protection, defaults.modification_protection);
    let creation = Creation::of(annotations, owner, protections);
    let is_public = annotations.get(Name::AddressType).unwrap_or(&defaults.address_type) == "internet";
    creation.check(annotations, settings, is_public, problems);
    let tags = kept_tags(annotations, &creation);
    let create = create(annotations, owner, settings, (creation, zones_stated));
    DesiredInstance {
        // An intranet load balancer is where its vSwitch is.
        near_nodes: !zones_stated && create.master_zone.is_none() && create.address_type != "intranet",
        create,
        name: text(Name::LbName),
        vswitch_id: text(Name::VswitchId),
        fixed: fixed(annotations),
        instance_charge_type: text(Name::InstanceChargeType),
        spec: text(Name::Spec),
        internet_charge_type: text(Name::ChargeType),
        bandwidth: annotations.integer(Name::Bandwidth),
        delete_protection: text(Name::DeleteProtection).map(|value| value == "on"),
        modification_protection: text(Name::ModificationProtection),
        tags,
    }
}

/// Parameters for the case that there is no instance yet.
fn create(
    annotations: &Annotations,
    owner: &Owner,
    settings: &ServiceSettings,
    (creation, zones_stated): (Creation, bool),
) -> CreateInstance {
    let defaults = &settings.service.defaults;
    let text = |name| annotations.text(name);
    let or = |name, default: &String| annotations.text(name).unwrap_or_else(|| default.clone());
    let address_type = or(Name::AddressType, &defaults.address_type);
    let intranet = address_type == "intranet";
    let instance_charge_type = or(Name::InstanceChargeType, &defaults.instance_charge_type);
    let internet_charge_type = text(Name::ChargeType).or_else(|| defaults.internet_charge_type.clone());
    let by_bandwidth = internet_charge_type.as_deref() == Some("paybybandwidth");
    let (master_zone, slave_zone) = zones(annotations, defaults, zones_stated);
    let in_vswitch = intranet && !annotations.is(Name::NetworkType, "classic");
    CreateInstance {
        name: or(Name::LbName, &owner.default_name()),
        ip_version: text(Name::IpVersion),
        vpc_id: intranet.then(|| settings.vpc_id.clone()).filter(|id| !id.is_empty()),
        vswitch_ids: if in_vswitch { vswitches(annotations, settings, master_zone.as_deref()) } else { Vec::new() },
        address_type,
        address: text(Name::Ip),
        zones_can_change: master_zone.is_some() && !zones_stated,
        attempt: 0,
        master_zone,
        slave_zone,
        spec: (instance_charge_type == "PayBySpec").then(|| or(Name::Spec, &defaults.spec)),
        instance_charge_type,
        internet_charge_type,
        bandwidth: annotations.integer(Name::Bandwidth).or(defaults.bandwidth.filter(|_| by_bandwidth)),
        delete_protection: creation.delete_protection,
        modification_protection: creation.modification_protection,
        modification_protection_reason: creation.modification_protection_reason,
        resource_group_id: text(Name::ResourceGroupId).or_else(|| settings.resource_group_id.clone()),
        tags: creation.tags,
        marks: creation.marks,
    }
}

/// Primary and secondary zone, where annotations or the configuration say so.
fn zones(annotations: &Annotations, defaults: &LoadBalancerDefaults, stated: bool) -> (Option<String>, Option<String>) {
    let or = |name, default: &Option<String>| annotations.text(name).or_else(|| default.clone());
    if !stated && defaults.master_zone.is_none() {
        return (None, None);
    }
    (or(Name::MasterZoneid, &defaults.master_zone), or(Name::SlaveZoneid, &defaults.slave_zone))
}

/// vSwitches to try: the stated one, or those of the configuration, first those in the primary zone.
fn vswitches(annotations: &Annotations, settings: &ServiceSettings, zone: Option<&str>) -> Vec<String> {
    if let Some(id) = annotations.text(Name::VswitchId) {
        return vec![id];
    }
    let (near, far): (Vec<_>, Vec<_>) =
        settings.vswitches.iter().partition(|choice| zone.is_some() && choice.zone.as_deref() == zone);
    near.into_iter().chain(far).map(|choice| choice.id.clone()).collect()
}

/// Attributes that are compared and never changed.
fn fixed(annotations: &Annotations) -> Vec<(String, FixedAttribute, String)> {
    let table = [
        (Name::MasterZoneid, FixedAttribute::MasterZone),
        (Name::SlaveZoneid, FixedAttribute::SlaveZone),
        (Name::AddressType, FixedAttribute::AddressType),
        (Name::IpVersion, FixedAttribute::IpVersion),
        (Name::ResourceGroupId, FixedAttribute::ResourceGroup),
        (Name::NetworkType, FixedAttribute::NetworkType),
        (Name::Ip, FixedAttribute::Address),
    ];
    table
        .into_iter()
        .filter_map(|(name, attribute)| {
            let unset = (attribute == FixedAttribute::IpVersion).then(|| "ipv4".to_owned());
            Some((annotations.key(name), attribute, annotations.text(name).or(unset)?))
        })
        .collect()
}
