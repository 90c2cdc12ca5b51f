//! From a Service to its desired state, and what else this product brings to what all products do.

mod ineffective;
mod instance;
mod listeners;
mod source_ranges;

use std::collections::BTreeSet;

use super::annotations::{Annotations, INSTANCE, Name};
use super::desired::{ClbExtra, ClbModel, Desired, DesiredAccess, DesiredInstance, DesiredListener};
use super::model::{InstanceField, ListenerField as Field, ListenerKey, Protocol};
use super::observed::{Observed, ObservedInstance};
use super::operation::Plan;
use super::teardown;
use crate::plan::inputs::{Ingress, ServicePort, ServiceView};
use crate::plan::loadbalancer::annotations::{AnnotationName, Applies};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::backends::AddressFamily;
use crate::plan::loadbalancer::desire::SOURCE_RANGES;
use crate::plan::loadbalancer::desired::{ProductModel, Removal, Sources};
use crate::plan::loadbalancer::diff;
use crate::plan::loadbalancer::origins::{self, NOT_CHOSEN_YET, configured};
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::loadbalancer::problem::{ListenerPlace, ProblemScope, ScopedProblems, ServiceProblem};
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::setting::Otherwise;
use crate::plan::setting::SettingSource::{Nodes, Spec};

/// Settings of listeners about which other annotations, or the spec of the Service, have a say, too.
const JOINT: [Field; 9] = [
    Field::AclStatus,
    Field::AclId,
    Field::AclType,
    Field::HealthCheck,
    Field::HealthCheckSwitch,
    Field::HealthCheckType,
    Field::HealthCheckConnectPort,
    Field::HealthCheckUri,
    Field::PersistenceTimeout,
];

impl ProductModel for ClbModel {
    const KIND: LoadBalancerKind = LoadBalancerKind::Clb;
    const FIXES_GROUPS: &'static [Name] = &[Name::IpVersion, Name::BackendIpVersion];
    type Name = Name;
    type Instance = DesiredInstance;
    type Access = DesiredAccess;
    type Extra = ClbExtra;

    fn family(annotations: &Annotations, settings: &ServiceSettings) -> AddressFamily {
        let is_ipv6 = |name| annotations.is(name, "ipv6");
        match is_ipv6(Name::BackendIpVersion) && is_ipv6(Name::IpVersion) && settings.service.ipv6 {
            true => AddressFamily::V6,
            false => AddressFamily::V4,
        }
    }

    fn instance(sources: &Sources<'_, Name>, problems: &mut ScopedProblems) -> (DesiredInstance, ClbExtra) {
        instance::desire(sources, problems)
    }

    fn add_access(desired: &mut Desired, sources: &Sources<'_, Name>) {
        source_ranges::add(desired, sources.inputs.service, sources.annotations);
    }

    fn add_port(
        desired: &mut Desired,
        sources: &Sources<'_, Name>,
        source: String,
        port: &ServicePort,
    ) -> Result<(), ServiceProblem> {
        sources.add_port(desired, source, port)
    }

    fn place(sources: &Sources<'_, Name>, port: &ServicePort) -> Option<ListenerPlace> {
        listeners::key(sources, "", port).ok().map(ListenerKey::place)
    }

    fn scope_of(name: Name, desired: &Desired) -> ProblemScope {
        let ports = |protocols: &[Protocol]| -> BTreeSet<ListenerPlace> {
            desired.listeners.keys().filter(|key| protocols.contains(&key.protocol)).map(|key| key.place()).collect()
        };
        let listeners = match (name, name.entry().applies) {
            (Name::ForwardPort, _) => ports(&[Protocol::Http]),
            (Name::DomainExtensions, _) => ports(&[Protocol::Https]),
            (_, Applies::Field(field)) => ports(field.protocols()),
            (Name::VgroupPort, _) | (_, Applies::Listeners) => desired.places.clone(),
            _ => BTreeSet::new(),
        };
        let load_balancer = name.entry().applies == Applies::Instance;
        match name.entry().applies {
            Applies::Field(field) if !JOINT.contains(&field) => {
                ProblemScope { settings: listeners, ..Default::default() }
            }
            _ => ProblemScope { load_balancer, listeners, ..ProblemScope::default() },
        }
    }

    fn check(desired: &mut Desired, sources: &Sources<'_, Name>) {
        sources.check_ports(desired);
        let found = ineffective::ineffective(sources, desired);
        desired.warnings.extend(found);
    }

    fn otherwise(service: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
        let ports: Vec<String> = desired.listeners.keys().map(|key| format!("{}:{}", key.protocol, key.port)).collect();
        let mut otherwise = vec![(Name::ProtocolPort, Some(ports.join(",")), Spec("spec.ports"))];
        if desired.reuse.is_none() {
            otherwise.extend(made_with(settings, desired));
        }
        for listener in desired.listeners.values() {
            let stated = listener.fields.iter().filter_map(|(field, value)| of_spec(service, listener, *field, value));
            otherwise.extend(stated);
            let scheduler = listener.defaults.get(&Field::Scheduler).cloned();
            otherwise.push(configured(Name::Scheduler, scheduler));
        }
        otherwise
    }

    fn found(it: &ObservedInstance) -> Vec<(Name, String)> {
        INSTANCE.into_iter().filter_map(|(name, field)| Some((name, it.fields.get(&field)?.clone()))).collect()
    }

    fn diff(desired: &Desired, observed: &Observed) -> Plan {
        diff::diff(desired, observed)
    }

    fn teardown(removal: &Removal, observed: &Observed) -> Plan {
        let plan = teardown::teardown(&removal.owner, &removal.departure, observed);
        if removal.stays { teardown::reversible(plan) } else { plan }
    }

    fn publishes_elastic(desired: &Desired) -> bool {
        desired.extra.eip
    }

    fn speaks_proxy_protocol(desired: &Desired) -> bool {
        let is_on = |it: &DesiredListener| it.fields.is(Field::ProxyProtocolV2Enabled, "true");
        desired.listeners.values().any(is_on)
    }

    /// Without elastic addresses, the load balancer's own counts.
    fn ingress(desired: &Desired, observed: &Observed, elastic: &[String]) -> Vec<Ingress> {
        let Some(instance) = &observed.instance else { return Vec::new() };
        let ip = |ip: &str| Ingress { ip: ip.to_owned(), hostname: String::new() };
        let address = instance.fields.text(InstanceField::Address);
        if desired.extra.keeps_address && desired.label == instance.id && !desired.ingress.is_empty() {
            return desired.ingress.clone();
        }
        match &desired.extra.hostname {
            Some(hostname) => vec![Ingress { ip: String::new(), hostname: hostname.clone() }],
            None if desired.extra.eip && !elastic.is_empty() => elastic.iter().map(|eip| ip(eip)).collect(),
            None if address.is_empty() => Vec::new(),
            None => vec![ip(address)],
        }
    }
}

/// What a load balancer is made with.
fn made_with(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
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

/// An attribute of a listener that no annotation states.
fn of_spec(service: &ServiceView, listener: &DesiredListener, field: Field, value: &str) -> Option<Otherwise<Name>> {
    use Field::{AclId, AclStatus, AclType, PersistenceTimeout};
    let name = Name::of(field)?;
    let (value, source) = match field {
        PersistenceTimeout => (value.to_owned(), "spec.sessionAffinity"),
        AclId => (service.source_ranges.join(","), SOURCE_RANGES),
        AclStatus | AclType => (value.to_owned(), SOURCE_RANGES),
        // Checks of a node's own port.
        _ if listener.fields.contains_key(&Field::HealthCheckConnectPort) => {
            (value.to_owned(), "spec.externalTrafficPolicy")
        }
        _ => return None,
    };
    Some((name, Some(value), Spec(source)))
}
