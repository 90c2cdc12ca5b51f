//! From a Service to its desired state, and what else this product brings to what all products do.

mod ineffective;
mod instance;
mod listeners;
mod source_ranges;

use std::collections::BTreeSet;

use super::annotations::{Annotations, Field, INSTANCE, Name};
use super::desired::{Desired, DesiredAccess, DesiredInstance, NlbExtra, NlbModel};
use super::model::{InstanceFields, ListenerKey};
use super::observed::{Observed, ObservedInstance};
use super::operation::Plan;
use super::teardown;
use crate::plan::inputs::{Ingress, ServicePort, ServiceView};
use crate::plan::loadbalancer::annotations::{AnnotationName, Applies};
use crate::plan::loadbalancer::backends::AddressFamily;
use crate::plan::loadbalancer::desired::{ProductModel, Removal, Sources};
use crate::plan::loadbalancer::origins::{self, NOT_CHOSEN_YET, configured};
use crate::plan::loadbalancer::ownership::{LABEL_SECURITY_GROUP, LoadBalancerKind};
use crate::plan::loadbalancer::problem::{ListenerPlace, ProblemScope, ScopedProblems, ServiceProblem};
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::loadbalancer::{applied, diff};
use crate::plan::setting::Otherwise;
use crate::plan::setting::SettingSource::{Nodes, Spec};

impl ProductModel for NlbModel {
    const KIND: LoadBalancerKind = LoadBalancerKind::Nlb;
    const FIXES_GROUPS: &'static [Name] = &[Name::IpVersion, Name::BackendIpVersion, Name::ServerGroupType];
    type Name = Name;
    type Instance = DesiredInstance;
    type Access = DesiredAccess;
    type Extra = NlbExtra;

    fn family(annotations: &Annotations, settings: &ServiceSettings) -> AddressFamily {
        let ipv6 = annotations.is(Name::IpVersion, "DualStack") && settings.service.ipv6;
        match annotations.get(Name::BackendIpVersion) {
            Some("ipv6") if ipv6 => AddressFamily::V6,
            Some("dualstack") if ipv6 => AddressFamily::Both,
            _ => AddressFamily::V4,
        }
    }

    fn attaches_addresses(annotations: &Annotations) -> bool {
        annotations.is(Name::ServerGroupType, "Ip")
    }

    fn instance(sources: &Sources<'_, Name>, problems: &mut ScopedProblems) -> (DesiredInstance, NlbExtra) {
        instance::desire(sources, problems)
    }

    fn add_access(desired: &mut Desired, sources: &Sources<'_, Name>) {
        let service = sources.inputs.service;
        source_ranges::add(desired, service, sources.annotations);
        if service.labels.contains_key(LABEL_SECURITY_GROUP) {
            desired.applied.insert(applied::SOURCE_RANGES.to_owned());
        }
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
        let protocol = sources.protocol("", port).ok()?;
        Some(ListenerKey::port(port.port, protocol).place(port.port))
    }

    /// An attribute of a listener or of a server group stays because nothing is stated of it; no new listener is made without
    /// what it should have.
    fn scope_of(name: Name, desired: &Desired) -> ProblemScope {
        let listeners: BTreeSet<ListenerPlace> = match (name, name.entry().applies) {
            (_, Applies::Field(Field::Listener(field))) => {
                let able = desired.listeners.iter().filter(|(key, _)| field.protocols().contains(&key.protocol));
                able.map(|(key, listener)| key.place(listener.port)).collect()
            }
            (Name::VgroupPort | Name::BackendIpVersion, _) | (_, Applies::Listeners | Applies::Field(_)) => {
                desired.places.clone()
            }
            _ => BTreeSet::new(),
        };
        let (applies, nothing) = (name.entry().applies, ProblemScope::default());
        match name {
            Name::VgroupPort | Name::BackendIpVersion => ProblemScope { listeners, ..nothing },
            _ if matches!(applies, Applies::Field(_)) => ProblemScope { settings: listeners, ..nothing },
            _ => ProblemScope { load_balancer: applies == Applies::Instance, listeners, ..nothing },
        }
    }

    fn check(desired: &mut Desired, sources: &Sources<'_, Name>) {
        let found = ineffective::ineffective(sources, desired);
        desired.warnings.extend(found);
    }

    fn otherwise(_: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
        let ports: Vec<String> =
            desired.listeners.keys().map(|key| format!("{}:{}", key.protocol, key.ports())).collect();
        let mut otherwise = vec![(Name::ProtocolPort, Some(ports.join(",")), Spec("spec.ports"))];
        if desired.reuse.is_none() {
            otherwise.extend(made_with(settings, desired));
        }
        otherwise
    }

    fn found(it: &ObservedInstance) -> Vec<(Name, String)> {
        use Name::{BandwidthPackageId, CrossZoneEnabled, IpVersion, Ipv6AddressType};
        let is_told = |(name, _): &(Name, String)| {
            !matches!(name, BandwidthPackageId | CrossZoneEnabled | IpVersion | Ipv6AddressType)
        };
        shown(&it.fields).filter(is_told).collect()
    }

    fn diff(desired: &Desired, observed: &Observed) -> Plan {
        diff::diff(desired, observed)
    }

    fn teardown(removal: &Removal, observed: &Observed) -> Plan {
        teardown::teardown(&removal.owner, &removal.departure, observed)
    }

    fn ingress(_: &Desired, observed: &Observed, _: &[String]) -> Vec<Ingress> {
        let names = observed.instance.iter().map(|instance| instance.dns_name.clone()).filter(|name| !name.is_empty());
        names.map(|hostname| Ingress { ip: String::new(), hostname }).collect()
    }
}

/// What a load balancer is made with.
fn made_with(settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
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

fn shown(fields: &InstanceFields) -> impl Iterator<Item = (Name, String)> {
    INSTANCE.into_iter().filter_map(|(name, field)| Some((name, field.shown(fields.get(&field)?).to_owned())))
}
