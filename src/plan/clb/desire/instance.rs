//! What is asked of the instance, and the parameters for making it.

use crate::plan::clb::annotations::{Annotations, FIXED, INSTANCE, Name};
use crate::plan::clb::desired::{ClbExtra, DesiredInstance};
use crate::plan::clb::model::{CreateInstance, InstanceField, InstanceFields};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::backends::Inputs;
use crate::plan::loadbalancer::desire::Creation;
use crate::plan::loadbalancer::desired::Sources;
use crate::plan::loadbalancer::handling::is_inherited;
use crate::plan::loadbalancer::operation::on_off;
use crate::plan::loadbalancer::problem::ScopedProblems;
use crate::plan::loadbalancer::settings::{LoadBalancerDefaults, ServiceSettings};

pub(super) fn desire(sources: &Sources<'_, Name>, problems: &mut ScopedProblems) -> (DesiredInstance, ClbExtra) {
    let Sources { annotations, inputs: Inputs { settings, .. }, .. } = sources;
    let defaults = &settings.service.defaults;
    let zones_stated = [Name::MasterZoneid, Name::SlaveZoneid].iter().any(|name| annotations.get(*name).is_some());
    let protections = (&defaults.tags, defaults.delete_protection, defaults.modification_protection);
    let is_public = annotations.get(Name::AddressType).unwrap_or(&defaults.address_type) == "internet";
    let (creation, tags) = Creation::of(sources, protections, is_public, problems);
    let create = create(sources, (creation, zones_stated));
    let value = |(name, field)| Some((field, annotations.text(name)?));
    let mut fields: InstanceFields = INSTANCE.into_iter().filter_map(value).collect();
    fields.entry(InstanceField::IpVersion).or_insert_with(|| "ipv4".to_owned());
    let fixed = INSTANCE[..FIXED].iter().filter(|(_, field)| fields.contains_key(field));
    let fixed = fixed.map(|(name, field)| (annotations.key(*name), *field)).collect();
    let instance = DesiredInstance {
        // An intranet load balancer is where its vSwitch is.
        near_nodes: !zones_stated
            && create.master_zone.is_none()
            && !create.fields.is(InstanceField::AddressType, "intranet"),
        create,
        vswitch_id: annotations.text(Name::VswitchId),
        fields,
        fixed,
        tags,
    };
    let extra = ClbExtra {
        inherited: is_inherited(sources.inputs.service),
        hostname: annotations.text(Name::Hostname),
        eip: annotations.get(Name::ExternalIpType).is_some(),
        keeps_address: [Name::Hostname, Name::ExternalIpType].into_iter().any(|name| annotations.is_wrong(name)),
        near_nodes: settings.place_near_nodes && instance.is_vswitch_open(),
    };
    (instance, extra)
}

/// Parameters for the case that there is no instance yet.
fn create(sources: &Sources<'_, Name>, (creation, zones_stated): (Creation, bool)) -> CreateInstance {
    let Sources { annotations, owner, inputs: Inputs { settings, .. }, .. } = sources;
    let defaults = &settings.service.defaults;
    let text = |name| annotations.text(name);
    let or = |name, default: &String| Some(annotations.text(name).unwrap_or_else(|| default.clone()));
    let address_type = or(Name::AddressType, &defaults.address_type);
    let intranet = address_type.as_deref() == Some("intranet");
    let charge_type = or(Name::InstanceChargeType, &defaults.instance_charge_type);
    let by_spec = charge_type.as_deref() == Some("PayBySpec");
    let internet_charge_type = text(Name::ChargeType).or_else(|| defaults.internet_charge_type.clone());
    let by_bandwidth = internet_charge_type.as_deref() == Some("paybybandwidth");
    let bandwidth = || Some(defaults.bandwidth.filter(|_| by_bandwidth)?.to_string());
    let (master_zone, slave_zone) = zones(annotations, defaults, zones_stated);
    let in_vswitch = intranet && !annotations.is(Name::NetworkType, "classic");
    let fields = [
        (InstanceField::Name, or(Name::LbName, &owner.default_name())),
        (InstanceField::AddressType, address_type),
        (InstanceField::IpVersion, text(Name::IpVersion)),
        (InstanceField::Address, text(Name::Ip)),
        (InstanceField::ResourceGroup, text(Name::ResourceGroupId).or_else(|| settings.resource_group_id.clone())),
        (InstanceField::ChargeType, charge_type),
        (InstanceField::Spec, or(Name::Spec, &defaults.spec).filter(|_| by_spec)),
        (InstanceField::InternetChargeType, internet_charge_type),
        (InstanceField::Bandwidth, text(Name::Bandwidth).or_else(bandwidth)),
        (InstanceField::DeleteProtection, Some(on_off(creation.delete_protection).to_owned())),
        (InstanceField::ModificationProtection, Some(creation.modification_protection)),
    ];
    CreateInstance {
        fields: fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect(),
        vpc_id: intranet.then(|| settings.vpc_id.clone()).filter(|id| !id.is_empty()),
        vswitch_ids: if in_vswitch { vswitches(annotations, settings, master_zone.as_deref()) } else { Vec::new() },
        zones_can_change: master_zone.is_some() && !zones_stated,
        attempt: 0,
        master_zone,
        slave_zone,
        modification_protection_reason: creation.modification_protection_reason,
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
