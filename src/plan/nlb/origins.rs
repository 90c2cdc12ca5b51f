//! Where each setting of a network load balancer comes from.

use super::annotations::{INSTANCE, Name};
use super::desired::Desired;
use super::model::{InstanceField, InstanceFields};
use super::observed::ObservedInstance;
use crate::plan::service::origins::{self, NOT_CHOSEN_YET, configured};
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
    let mut all = vec![zones, configured(Name::AdditionalResourceTags, origins::tags(&settings.nlb.tags))];
    all.extend(shown(&create.fields).map(|(name, value)| configured(name, Some(value))));
    all
}

/// What the load balancer has, as annotations would say it.
pub(super) fn found(it: &ObservedInstance) -> Vec<(Name, String)> {
    use InstanceField::{BandwidthPackage, CrossZone, IpVersion, Ipv6AddressType};
    let is_told = |field: &InstanceField| !matches!(field, BandwidthPackage | CrossZone | IpVersion | Ipv6AddressType);
    let told =
        it.fields.iter().filter(|(field, _)| is_told(field)).map(|(field, value)| (field, value.clone())).collect();
    shown(&told).collect()
}

fn shown(fields: &InstanceFields) -> impl Iterator<Item = (Name, String)> {
    INSTANCE.into_iter().filter_map(|(name, field)| Some((name, field.shown(fields.get(&field)?).to_owned())))
}
