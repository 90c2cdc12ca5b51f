//! Where each setting of a classic load balancer comes from.

use super::annotations::{Annotations, Name};
use super::desired::{Desired, DesiredListener};
use super::model::ListenerField;
use super::observed::{Observed, ObservedInstance};
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::{AnnotationName, Applies, parse};
use crate::plan::service::desire::SOURCE_RANGES;
use crate::plan::service::origins::{self, NOT_CHOSEN_YET, Otherwise, configured, switch};
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::{SettingOrigin, SettingSource};

use SettingSource::{Nodes, Spec};

/// Every setting of the load balancer that is `desired`, beside what there is.
#[must_use]
pub fn origins(
    service: &ServiceView,
    settings: &ServiceSettings,
    desired: &Desired,
    observed: &Observed,
) -> Vec<SettingOrigin> {
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
        otherwise.push(configured(Name::Scheduler, scheduler));
    }
    origins::origins(service, &annotations, &otherwise, &found(observed))
}

/// What a load balancer is made with.
fn instance(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
    let create = &desired.instance.create;
    let defaults = &settings.service.defaults;
    let not_chosen = || NOT_CHOSEN_YET.to_owned();
    let near = |zone: &Option<String>| zone.clone().or_else(|| desired.instance.near_nodes.then(not_chosen));
    let zone = |name, wanted: &Option<String>, stated: &Option<String>| match stated {
        Some(_) => configured(name, near(wanted)),
        None => (name, near(wanted), Nodes),
    };
    let vswitches = (!create.vswitch_ids.is_empty()).then(|| create.vswitch_ids.join(","));
    let (stated_vswitches, is_open) = (!settings.place_near_nodes, desired.instance.is_vswitch_open());
    vec![
        configured(Name::AddressType, Some(create.address_type.clone())),
        configured(Name::LbName, Some(create.name.clone())),
        configured(Name::ResourceGroupId, create.resource_group_id.clone()),
        configured(Name::AdditionalResourceTags, origins::tags(&defaults.tags)),
        configured(Name::DeleteProtection, Some(switch(create.delete_protection))),
        configured(Name::ModificationProtection, Some(create.modification_protection.clone())),
        configured(Name::VswitchId, vswitches.filter(|_| stated_vswitches)),
        (Name::VswitchId, is_open.then(not_chosen), Nodes),
        zone(Name::MasterZoneid, &create.master_zone, &defaults.master_zone),
        zone(Name::SlaveZoneid, &create.slave_zone, &defaults.slave_zone),
        configured(Name::ChargeType, create.internet_charge_type.clone()),
        configured(Name::Bandwidth, create.bandwidth.map(|bandwidth| bandwidth.to_string())),
        configured(Name::InstanceChargeType, Some(create.instance_charge_type.clone())),
        configured(Name::Spec, create.spec.clone()),
    ]
}

/// What the load balancer has, as annotations would say it.
fn found(observed: &Observed) -> Vec<(Name, String)> {
    let has = |it: &ObservedInstance| {
        let known = |name, value: &Option<String>| value.clone().map(|value| (name, value));
        let stated = [
            (Name::AddressType, it.address_type.clone()),
            (Name::LbName, it.name.clone()),
            (Name::DeleteProtection, switch(it.delete_protection)),
            (Name::ModificationProtection, it.modification_protection.clone()),
            (Name::ChargeType, it.internet_charge_type.clone()),
            (Name::Bandwidth, it.bandwidth.to_string()),
            (Name::InstanceChargeType, it.instance_charge_type.clone()),
            (Name::Spec, it.spec.clone()),
        ];
        let read = [
            known(Name::ResourceGroupId, &it.resource_group_id),
            known(Name::MasterZoneid, &it.master_zone),
            known(Name::SlaveZoneid, &it.slave_zone),
        ];
        stated.into_iter().chain(read.into_iter().flatten()).collect()
    };
    observed.instance.as_ref().map(has).unwrap_or_default()
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
