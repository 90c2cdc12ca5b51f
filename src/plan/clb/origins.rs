//! Where each setting of a classic load balancer comes from.

use super::annotations::{INSTANCE, Name};
use super::desired::{Desired, DesiredListener};
use super::model::ListenerField;
use super::observed::ObservedInstance;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::desire::SOURCE_RANGES;
use crate::plan::service::origins::{self, NOT_CHOSEN_YET, configured};
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::{Otherwise, SettingSource};

use SettingSource::{Nodes, Spec};

/// What holds where no annotation speaks.
pub(super) fn otherwise(service: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
    let ports: Vec<String> = desired.listeners.keys().map(|key| format!("{}:{}", key.protocol, key.port)).collect();
    let mut otherwise = vec![(Name::ProtocolPort, Some(ports.join(",")), Spec("spec.ports"))];
    if desired.reuse.is_none() {
        otherwise.extend(instance(settings, desired));
    }
    for listener in desired.listeners.values() {
        let stated = listener.fields.iter().filter_map(|(field, value)| of_spec(service, listener, *field, value));
        otherwise.extend(stated);
        let scheduler = listener.defaults.get(&ListenerField::Scheduler).cloned();
        otherwise.push(configured(Name::Scheduler, scheduler));
    }
    otherwise
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
    let mut all = vec![
        configured(Name::AdditionalResourceTags, origins::tags(&defaults.tags)),
        configured(Name::VswitchId, vswitches.filter(|_| stated_vswitches)),
        (Name::VswitchId, is_open.then(not_chosen), Nodes),
        zone(Name::MasterZoneid, &create.master_zone, &defaults.master_zone),
        zone(Name::SlaveZoneid, &create.slave_zone, &defaults.slave_zone),
    ];
    all.extend(INSTANCE.map(|(name, field)| configured(name, create.fields.get(&field).cloned())));
    all
}

/// What the load balancer has, as annotations would say it.
pub(super) fn found(it: &ObservedInstance) -> Vec<(Name, String)> {
    INSTANCE.into_iter().filter_map(|(name, field)| Some((name, it.fields.get(&field)?.clone()))).collect()
}

/// An attribute of a listener that no annotation states.
fn of_spec(
    service: &ServiceView,
    listener: &DesiredListener,
    field: ListenerField,
    value: &str,
) -> Option<Otherwise<Name>> {
    use ListenerField::{AclId, AclStatus, AclType, PersistenceTimeout};
    let name = Name::of(field)?;
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
