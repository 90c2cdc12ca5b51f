//! Where each setting of a network load balancer comes from.

use super::annotations::{Annotations, Name};
use super::desired::Desired;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::parse;
use crate::plan::service::origins::{self, NOT_CHOSEN_YET, Otherwise, switch};
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::{SettingOrigin, SettingSource};

use SettingSource::{Configuration, Default, Nodes};

/// Every setting of the load balancer that is `desired`.
#[must_use]
pub fn origins(service: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<SettingOrigin> {
    let annotations: Annotations = parse(service);
    let ports: Vec<String> = desired.listeners.keys().map(|key| format!("{}:{}", key.protocol, key.ports())).collect();
    let mut otherwise = origins::common(settings, &ports);
    if desired.reuse.is_none() {
        otherwise.extend(instance(settings, desired));
    }
    origins::origins(service, &annotations, &otherwise)
}

/// What a load balancer is made with.
fn instance(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
    let create = &desired.instance.create;
    let zones: Vec<String> = create.zones.iter().map(|zone| format!("{}:{}", zone.zone, zone.vswitch)).collect();
    let zones = if zones.is_empty() { NOT_CHOSEN_YET.to_owned() } else { zones.join(",") };
    let place = if settings.place_near_nodes { Nodes } else { Configuration("cloud.vswitches") };
    let tags = settings.nlb.tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    vec![
        (Name::ZoneMaps, Some(zones), place),
        (Name::AddressType, Some(create.address_type.clone()), Configuration("nlb.defaults.address_type")),
        (Name::LbName, Some(create.name.clone()), Default),
        (Name::ResourceGroupId, create.resource_group_id.clone(), Configuration("cloud.resource_group_id")),
        (Name::AdditionalResourceTags, (!tags.is_empty()).then_some(tags), Configuration("nlb.defaults.tags")),
        (Name::DeleteProtection, switch(create.delete_protection), Configuration("nlb.defaults.delete_protection")),
        (
            Name::ModificationProtection,
            Some(create.modification_protection.clone()),
            Configuration("nlb.defaults.modification_protection"),
        ),
    ]
}
