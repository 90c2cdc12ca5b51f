//! Where each setting of a network load balancer comes from.

use super::annotations::Name;
use super::desired::Desired;
use super::observed::ObservedInstance;
use crate::plan::service::origins::{self, NOT_CHOSEN_YET, configured, switch};
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::{Otherwise, SettingSource};

use SettingSource::{Nodes, Spec};

/// What holds where no annotation speaks.
pub(super) fn otherwise(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
    let ports: Vec<String> = desired.listeners.keys().map(|key| format!("{}:{}", key.protocol, key.ports())).collect();
    let mut otherwise = vec![(Name::ProtocolPort, Some(ports.join(",")), Spec("spec.ports"))];
    if desired.reuse.is_none() {
        otherwise.extend(instance(settings, desired));
    }
    otherwise
}

/// What a load balancer is made with.
fn instance(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
    let create = &desired.instance.create;
    let zones: Vec<String> = create.zones.iter().map(|zone| format!("{}:{}", zone.zone, zone.vswitch)).collect();
    let zones = if zones.is_empty() { NOT_CHOSEN_YET.to_owned() } else { zones.join(",") };
    let zones = match settings.place_near_nodes {
        true => (Name::ZoneMaps, Some(zones), Nodes),
        false => configured(Name::ZoneMaps, Some(zones)),
    };
    vec![
        zones,
        configured(Name::AddressType, Some(create.address_type.clone())),
        configured(Name::LbName, Some(create.name.clone())),
        configured(Name::ResourceGroupId, create.resource_group_id.clone()),
        configured(Name::AdditionalResourceTags, origins::tags(&settings.nlb.tags)),
        configured(Name::DeleteProtection, Some(switch(create.delete_protection))),
        configured(Name::ModificationProtection, Some(create.modification_protection.clone())),
    ]
}

/// What the load balancer has, as annotations would say it.
pub(super) fn found(it: &ObservedInstance) -> Vec<(Name, String)> {
    vec![
        (Name::AddressType, it.address_type.clone()),
        (Name::LbName, it.name.clone()),
        (Name::ResourceGroupId, it.resource_group_id.clone()),
        (Name::DeleteProtection, switch(it.delete_protection)),
        (Name::ModificationProtection, it.modification_protection.clone()),
    ]
}
