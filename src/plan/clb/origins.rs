//! Where each setting of a classic load balancer comes from.

use super::annotations::{Annotations, Name};
use super::desired::{Desired, DesiredListener};
use super::model::ListenerField;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::{AnnotationName, Applies, parse};
use crate::plan::service::desire::SOURCE_RANGES;
use crate::plan::service::origins::{self, NOT_CHOSEN_YET, Otherwise, switch};
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::{SettingOrigin, SettingSource};

use SettingSource::{Configuration, Default, Nodes, Spec};

/// Every setting of the load balancer that is `desired`.
#[must_use]
pub fn origins(service: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<SettingOrigin> {
    let annotations: Annotations = parse(service);
    let ports: Vec<String> = desired.listeners.keys().map(|key| format!("{}:{}", key.protocol, key.port)).collect();
    let mut otherwise = origins::common(settings, &ports);
    if desired.reuse.is_none() {
        otherwise.extend(instance(settings, desired));
    }
    for listener in desired.listeners.values() {
        let stated = listener.fields.iter().filter_map(|(field, value)| of_spec(service, listener, *field, value));
        otherwise.extend(stated);
        let scheduler = listener.defaults.get(&ListenerField::Scheduler).cloned();
        otherwise.push((Name::Scheduler, scheduler, Configuration("service.defaults.scheduler")));
    }
    origins::origins(service, &annotations, &otherwise)
}

/// What a load balancer is made with.
fn instance(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
    let create = &desired.instance.create;
    let defaults = &settings.service.defaults;
    let not_chosen = || NOT_CHOSEN_YET.to_owned();
    let near = |zone: &Option<String>| zone.clone().or_else(|| desired.instance.near_nodes.then(not_chosen));
    let zones = |stated: &Option<String>, key| if stated.is_some() { Configuration(key) } else { Nodes };
    let vswitches = (!create.vswitch_ids.is_empty()).then(|| create.vswitch_ids.join(","));
    let (stated_vswitches, is_open) = (!settings.place_near_nodes, desired.instance.is_vswitch_open());
    let tags = defaults.tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    vec![
        (Name::AddressType, Some(create.address_type.clone()), Configuration("service.defaults.address_type")),
        (Name::LbName, Some(create.name.clone()), Default),
        (Name::ResourceGroupId, create.resource_group_id.clone(), Configuration("cloud.resource_group_id")),
        (Name::AdditionalResourceTags, (!tags.is_empty()).then_some(tags), Configuration("service.defaults.tags")),
        (Name::DeleteProtection, switch(create.delete_protection), Configuration("service.defaults.delete_protection")),
        (
            Name::ModificationProtection,
            Some(create.modification_protection.clone()),
            Configuration("service.defaults.modification_protection"),
        ),
        (Name::VswitchId, vswitches.filter(|_| stated_vswitches), Configuration("cloud.vswitches")),
        (Name::VswitchId, is_open.then(not_chosen), Nodes),
        (Name::MasterZoneid, near(&create.master_zone), zones(&defaults.master_zone, "service.defaults.master_zone")),
        (Name::SlaveZoneid, near(&create.slave_zone), zones(&defaults.slave_zone, "service.defaults.slave_zone")),
        (Name::ChargeType, create.internet_charge_type.clone(), Configuration("service.defaults.internet_charge_type")),
        (
            Name::Bandwidth,
            create.bandwidth.map(|bandwidth| bandwidth.to_string()),
            Configuration("service.defaults.bandwidth"),
        ),
        (
            Name::InstanceChargeType,
            Some(create.instance_charge_type.clone()),
            Configuration("service.defaults.instance_charge_type"),
        ),
        (Name::Spec, create.spec.clone(), Configuration("service.defaults.spec")),
    ]
}

/// An attribute of a listener that no annotation states.
fn of_spec(
    service: &ServiceView,
    listener: &DesiredListener,
    field: ListenerField,
    value: &str,
) -> Option<Otherwise<Name>> {
    use ListenerField::{AclId, AclStatus, AclType, PersistenceTimeout};
    let is_it = |applies| matches!(applies, Applies::Field(of) if of == field);
    let name = Name::TABLE.iter().find(|entry| is_it(entry.applies))?.name;
    let (value, source) = match field {
        PersistenceTimeout => (value.to_owned(), "spec.sessionAffinity"),
        AclId => (service.source_ranges.join(","), SOURCE_RANGES),
        AclStatus | AclType => (value.to_owned(), SOURCE_RANGES),
        // Checks of a node's own port.
        _ if listener.fields.contains_key(&ListenerField::HealthCheckConnectPort) => {
            (value.to_owned(), "spec.externalTrafficPolicy")
        }
        _ => return None,
    };
    Some((name, Some(value), Spec(source)))
}
