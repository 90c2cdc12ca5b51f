//! From a Service to its desired state. Start with [`desire`].
//!
//! Everything that can be wrong with a Service is found here, and comes out as one list. What depends on the load
//! balancer as it stands is left to the [diff](super::diff).

mod ineffective;
mod source_ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use self::ineffective::ineffective;
use super::annotations::{self, Annotations, Name};
use super::desired::{Desired, DesiredInstance, DesiredListener, FixedAttribute};
use super::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use super::operation::{CreateInstance, MOST_TAGS};
use crate::plan::inputs::{EndpointsView, NodeView, ServicePort, ServiceView};
use crate::plan::service::annotations::parse;
use crate::plan::service::backends::{self, BackendMode, BackendRules, BackendSources, NodeReach};
use crate::plan::service::handling::is_inherited;
use crate::plan::service::management::ManagementLevel;
use crate::plan::service::model::{Backend, DesiredGroup, GroupRef, Inputs};
use crate::plan::service::ownership::{MARK_TAG, Owner};
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::settings::ServiceSettings;

/// Reason that the console shows for the modification protection of new load balancers.
const PROTECTION_REASON: &str = "managed.by.ack";

/// What a Service asks for.
///
/// # Errors
/// Everything that is wrong with the Service. Nothing should be done about its load balancer until that is mended.
pub fn desire(inputs: &Inputs<'_>) -> Result<Desired, Vec<ServiceProblem>> {
    let Inputs { service, settings, .. } = *inputs;
    let annotations: Annotations = parse(service);
    let owner = Owner::of(service, settings);
    let mut problems = annotations.problems.clone();
    let mut warnings = annotations.warnings.clone();

    let reuse = annotations.text(Name::Id);
    let override_listeners = annotations.get(Name::ForceOverrideListeners).is_some();
    let instance = instance(&annotations, &owner, inputs, &mut problems);
    if settings.service.disable_public && reuse.is_none() && instance.create.address_type == "internet" {
        problems.push(annotations.complaint(
            Name::AddressType,
            "`intranet`: load balancers with a public address are switched off by service.disable_public",
        ));
    }
    if service.client_ip_affinity.is_some() && annotations.get(Name::PersistenceTimeout).is_none() {
        affinity_warnings(service, &annotations, &mut warnings);
    }

    let rules = backend_rules(service, &annotations, settings);
    let mut sources = BackendSources::new(&rules, inputs.nodes, inputs.endpoints, NodeReach::All);
    warnings.append(&mut sources.warnings);
    let manage = annotations.get(Name::Manage).and_then(ManagementLevel::parse).unwrap_or_default();
    let manage_listeners = reuse.is_none() || override_listeners;
    let listeners_kept = manage_listeners && manage.keeps(ManagementLevel::Listeners);
    let found = (&mut problems, &mut warnings);
    let access = source_ranges::wanted(service, &annotations, &owner, listeners_kept, found);
    let mut desired = Desired {
        owner,
        access,
        inherited: is_inherited(service),
        access_list_known: false,
        manage,
        manage_listeners,
        reuse,
        override_listeners,
        forbid_public: settings.service.disable_public,
        preserve: annotations.get(Name::PreserveLbOnDelete).is_some(),
        instance,
        listeners: BTreeMap::new(),
        groups: BTreeMap::new(),
        batch_size: settings.service.backend_batch_size.max(1),
        warnings: Vec::new(),
        empty_ports: Vec::new(),
        blackout: sources.blackout,
        unresolved: std::collections::BTreeSet::new(),
        outside: std::collections::BTreeSet::new(),
        hostname: annotations.text(Name::Hostname),
        eip: annotations.get(Name::ExternalIpType).is_some(),
        ingress: service.ingress.clone(),
    };
    for (index, port) in service.ports.iter().enumerate() {
        match add_port(&mut desired, &annotations, &sources, index, port, inputs) {
            Ok(()) => {}
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(schedulers(&desired, &annotations));
    warnings.extend(ineffective(inputs, &annotations, rules.mode, &desired));
    desired.warnings = warnings;
    if problems.is_empty() { Ok(desired) } else { Err(problems) }
}

/// Addresses of pods whose network interfaces must be looked up before [`desire`] can attach them.
pub fn addresses_to_resolve(
    service: &ServiceView,
    nodes: &[Arc<NodeView>],
    endpoints: &EndpointsView,
    settings: &ServiceSettings,
) -> BTreeSet<IpAddr> {
    let rules = backend_rules(service, &parse(service), settings);
    backends::addresses_to_resolve(&rules, &service.ports, nodes, endpoints)
}

/// What the annotations say of backends.
fn backend_rules(service: &ServiceView, annotations: &Annotations, settings: &ServiceSettings) -> BackendRules {
    let eni = annotations.get(Name::BackendType).map_or(settings.service.eni_backends, |kind| kind == "eni");
    let mode = match (eni, service.local_traffic) {
        (true, _) => BackendMode::Eni,
        (false, true) => BackendMode::Local,
        (false, false) => BackendMode::Cluster,
    };
    let shared = annotations.get(Name::Id).is_some() && annotations.is_stated(Name::VgroupPort);
    let number = |name| annotations.integer(name).and_then(|value| u8::try_from(value).ok());
    BackendRules {
        mode,
        ipv6: annotations.is(Name::BackendIpVersion, "ipv6")
            && annotations.is(Name::IpVersion, "ipv6")
            && settings.service.ipv6,
        graceful: mode == BackendMode::Eni
            && annotations.get(Name::GracefulShutdown).is_some()
            && !annotations.is(Name::IgnoreWeightUpdate, "on"),
        total_weight: number(Name::Weight).filter(|_| shared),
        default_weight: number(Name::DefaultWeight).unwrap_or(100),
        labels: annotations.pairs(Name::BackendLabel).cloned().unwrap_or_default(),
        exclude_masters: settings.service.exclude_masters,
        exclude_cordoned: annotations.is(Name::RemoveUnscheduledBackend, "on"),
    }
}

/// One entry of `spec.ports`: a listener, its group, and the group's backends.
fn add_port(
    desired: &mut Desired,
    annotations: &Annotations,
    sources: &BackendSources<'_>,
    index: usize,
    port: &ServicePort,
    inputs: &Inputs<'_>,
) -> Result<(), ServiceProblem> {
    let source = format!("spec.ports[{index}]");
    let protocol = protocol(annotations, &source, port, inputs.service)?;
    let key = ListenerKey { port: port.port, protocol };
    if let Some(other) = desired.listeners.iter().find(|(other, _)| other.collides(key)) {
        return Err(ServiceProblem {
            field: source,
            given: key.to_string(),
            allowed: format!(
                "another port number: {} has {} already, and TCP, HTTP and HTTPS cannot share a port",
                other.1.source, other.0
            ),
        });
    }
    let eni = sources.mode() == BackendMode::Eni;
    if !eni && port.node_port == 0 {
        return Err(ServiceProblem {
            field: format!("{source}.nodePort"),
            given: "none".to_owned(),
            allowed: "a node port: set spec.allocateLoadBalancerNodePorts to true, or attach pods directly with \
                      service.beta.kubernetes.io/backend-type: eni"
                .to_owned(),
        });
    }
    let part = if eni { port.target_port.to_string() } else { port.node_port.to_string() };
    let mark = desired.owner.group_key(&part);
    let group = match annotations.at_port(Name::VgroupPort, port.port) {
        Some(id) if desired.reuse.is_some() => GroupRef::Id(id.to_owned()),
        _ => GroupRef::Named(mark.clone()),
    };

    let found = sources.of(port, inputs);
    if found.backends.is_empty() {
        desired.empty_ports.push(key);
    }
    desired.unresolved.extend(&found.unresolved);
    desired.outside.extend(&found.outside);
    let entry = desired.groups.entry(group.to_string()).or_insert_with(|| DesiredGroup {
        group: group.clone(),
        source: source.clone(),
        backends: BTreeMap::new(),
        incomplete: false,
        ignore_weights: annotations.is(Name::IgnoreWeightUpdate, "on"),
    });
    entry.incomplete |= found.incomplete;
    let mark: Arc<str> = mark.into();
    for (backend, weight) in found.backends {
        entry.backends.entry(backend.clone()).or_insert(Backend { key: backend, weight, description: mark.clone() });
    }

    let forward_to =
        (protocol == Protocol::Http).then(|| annotations::stated_forward(annotations, port.port)).flatten();
    let mut defaults = defaults(protocol, inputs.settings);
    let mut fields = listener_fields(desired, annotations, protocol, forward_to.is_some(), inputs, sources.mode());
    if let Some(seconds) = inputs.service.client_ip_affinity.filter(|_| protocol == Protocol::Tcp) {
        let seconds = seconds.min(MOST_PERSISTENCE).to_string();
        // Listeners that are made from now on have it in any case.
        let place = if desired.inherited { &mut defaults } else { &mut fields };
        place.entry(ListenerField::PersistenceTimeout).or_insert(seconds);
    }
    let listener = DesiredListener {
        description: desired.owner.listener_key(port.port),
        source,
        group,
        fields,
        defaults,
        forward_to,
        domain_extensions: (protocol == Protocol::Https)
            .then(|| annotations.pairs(Name::DomainExtensions).cloned())
            .flatten(),
    };
    desired.listeners.insert(key, listener);
    Ok(())
}

/// The protocol of a port's listener. An entry of `protocol-port` speaks of a number only; where a Service has both a TCP
/// and a UDP port of that number, it counts for the one that it fits.
fn protocol(
    annotations: &Annotations,
    source: &str,
    port: &ServicePort,
    service: &ServiceView,
) -> Result<Protocol, ServiceProblem> {
    let own = match port.protocol.as_str() {
        "TCP" | "" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        other => {
            return Err(ServiceProblem {
                field: format!("{source}.protocol"),
                given: other.to_owned(),
                allowed: "TCP or UDP".to_owned(),
            });
        }
    };
    let shared = service.ports.iter().filter(|other| other.port == port.port).count() > 1;
    let stated = annotations::stated_protocol(annotations, port.port);
    Ok(stated.filter(|stated| !shared || (*stated == Protocol::Udp) == (own == Protocol::Udp)).unwrap_or(own))
}

/// What a new listener has where no annotation speaks.
fn defaults(protocol: Protocol, settings: &ServiceSettings) -> ListenerFields {
    let scheduler = settings.service.defaults.scheduler.as_str();
    let scheduler = if schedules(scheduler, protocol) { scheduler } else { "rr" };
    let mut fields = ListenerFields::from([(ListenerField::Scheduler, scheduler.to_owned())]);
    if protocol != Protocol::Http {
        fields.insert(ListenerField::Bandwidth, "-1".to_owned());
    }
    if matches!(protocol, Protocol::Http | Protocol::Https) {
        fields.insert(ListenerField::HealthCheck, "off".to_owned());
        fields.insert(ListenerField::StickySession, "off".to_owned());
    }
    fields
}

/// Whether listeners of a protocol know a scheduler: those by hash are for some only.
fn schedules(scheduler: &str, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Udp => true,
        Protocol::Tcp => scheduler != "qch",
        Protocol::Http | Protocol::Https => !["sch", "tch", "qch"].contains(&scheduler),
    }
}

/// What stands against the scheduler that the annotation asks for.
fn schedulers(desired: &Desired, annotations: &Annotations) -> Vec<ServiceProblem> {
    let Some(scheduler) = annotations.get(Name::Scheduler) else { return Vec::new() };
    let wrong: Vec<_> =
        desired.listeners.keys().filter(|key| !schedules(scheduler, key.protocol)).map(ToString::to_string).collect();
    if wrong.is_empty() {
        return Vec::new();
    }
    let allowed = "`rr`, `wrr` or `wlc`; `sch` and `tch` only with TCP and UDP, `qch` only with UDP";
    vec![annotations.complaint(Name::Scheduler, format!("{allowed} (listeners {})", wrong.join(", ")))]
}

/// What is asked of the instance, and the parameters for making it.
fn instance(
    annotations: &Annotations,
    owner: &Owner,
    inputs: &Inputs<'_>,
    problems: &mut Vec<ServiceProblem>,
) -> DesiredInstance {
    let settings = inputs.settings;
    let defaults = &settings.service.defaults;
    let text = |name| annotations.text(name);
    let address_type = text(Name::AddressType).unwrap_or_else(|| defaults.address_type.clone());
    let intranet = address_type == "intranet";
    let classic = annotations.is(Name::NetworkType, "classic");
    let charge_type = text(Name::InstanceChargeType).unwrap_or_else(|| defaults.instance_charge_type.clone());
    let by_spec = charge_type == "PayBySpec";
    let internet_charge_type = text(Name::ChargeType).or_else(|| defaults.internet_charge_type.clone());
    let by_bandwidth = internet_charge_type.as_deref() == Some("paybybandwidth");
    let protection = text(Name::ModificationProtection);
    let zones_stated = [Name::MasterZoneid, Name::SlaveZoneid].iter().any(|name| annotations.get(*name).is_some());
    let (master_zone, slave_zone) = match &defaults.master_zone {
        _ if zones_stated => (
            text(Name::MasterZoneid).or_else(|| defaults.master_zone.clone()),
            text(Name::SlaveZoneid).or_else(|| defaults.slave_zone.clone()),
        ),
        Some(zone) => (Some(zone.clone()), defaults.slave_zone.clone()),
        None => (None, None),
    };

    let mut tags = defaults.tags.clone();
    let stated_tags = annotations.pairs(Name::AdditionalResourceTags);
    tags.extend(stated_tags.cloned().unwrap_or_default());
    let wanted_tags = match (stated_tags, annotations.get(Name::Id)) {
        (None, _) => BTreeMap::new(),
        (Some(_), None) => tags.clone(),
        (Some(stated), Some(_)) => stated.clone(),
    };
    tags.insert(MARK_TAG.to_owned(), owner.default_name());
    tags.insert(owner.cluster_tag.clone(), owner.cluster_id.clone());
    if tags.len() > MOST_TAGS {
        problems.push(ServiceProblem {
            field: annotations.key(Name::AdditionalResourceTags),
            given: format!("{} tags, with those of the configuration and of ownership", tags.len()),
            allowed: format!("at most {MOST_TAGS} tags in all"),
        });
    }
    let create = CreateInstance {
        name: text(Name::LbName).unwrap_or_else(|| owner.default_name()),
        ip_version: text(Name::IpVersion),
        vpc_id: intranet.then(|| settings.vpc_id.clone()).filter(|id| !id.is_empty()),
        vswitch_ids: if intranet && !classic {
            vswitches(annotations, settings, master_zone.as_deref())
        } else {
            Vec::new()
        },
        address_type,
        address: text(Name::Ip),
        zones_can_change: master_zone.is_some() && !zones_stated,
        master_zone,
        slave_zone,
        spec: by_spec.then(|| text(Name::Spec).unwrap_or_else(|| defaults.spec.clone())),
        instance_charge_type: charge_type,
        internet_charge_type,
        bandwidth: annotations.integer(Name::Bandwidth).or(defaults.bandwidth.filter(|_| by_bandwidth)),
        delete_protection: text(Name::DeleteProtection).map_or(defaults.delete_protection, |value| value == "on"),
        modification_protection_reason: (protection.is_none() && defaults.modification_protection)
            .then(|| PROTECTION_REASON.to_owned()),
        modification_protection: protection.clone().unwrap_or_else(|| {
            if defaults.modification_protection { "ConsoleProtection" } else { "NonProtection" }.to_owned()
        }),
        resource_group_id: text(Name::ResourceGroupId).or_else(|| settings.resource_group_id.clone()),
        tags,
    };
    DesiredInstance {
        // An intranet load balancer is where its vSwitch is.
        near_nodes: !zones_stated && create.master_zone.is_none() && !intranet,
        create,
        name: text(Name::LbName),
        vswitch_id: text(Name::VswitchId),
        fixed: fixed(annotations),
        instance_charge_type: text(Name::InstanceChargeType),
        spec: text(Name::Spec),
        default_spec: defaults.spec.clone(),
        internet_charge_type: text(Name::ChargeType),
        bandwidth: annotations.integer(Name::Bandwidth),
        delete_protection: text(Name::DeleteProtection).map(|value| value == "on"),
        modification_protection: protection,
        tags: wanted_tags,
    }
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

/// Longest persistence of a TCP listener, in seconds.
const MOST_PERSISTENCE: u32 = 3600;

/// `spec.sessionAffinity`, where it cannot be kept as it stands.
fn affinity_warnings(service: &ServiceView, annotations: &Annotations, warnings: &mut Vec<ServiceProblem>) {
    let affinity =
        |given: String, allowed: String| ServiceProblem { field: "spec.sessionAffinity".to_owned(), given, allowed };
    let of = |port: &ServicePort| protocol(annotations, "", port, service);
    let others = service.ports.iter().any(|port| of(port).is_ok_and(|protocol| protocol != Protocol::Tcp));
    if others {
        let key = annotations.key(Name::StickySession);
        let allowed = format!("no effect on listeners other than TCP; see {key}");
        warnings.push(affinity("ClientIP".to_owned(), allowed));
    }
    let tcp = service.ports.iter().any(|port| of(port) == Ok(Protocol::Tcp));
    if let Some(seconds) = service.client_ip_affinity.filter(|seconds| tcp && *seconds > MOST_PERSISTENCE) {
        let key = annotations.key(Name::PersistenceTimeout);
        let allowed = format!("at most {MOST_PERSISTENCE} s on a load balancer, which is used; {key} sets less");
        warnings.push(affinity(format!("ClientIP for {seconds} s"), allowed));
    }
}

/// Attributes of a listener that annotations set, and after them other fields of the Service.
fn listener_fields(
    desired: &Desired,
    annotations: &Annotations,
    protocol: Protocol,
    redirects: bool,
    inputs: &Inputs<'_>,
    mode: BackendMode,
) -> ListenerFields {
    let service = inputs.service;
    let mut fields = annotations::listener_fields(annotations, protocol);
    if let Some(access) = desired.access.as_ref().filter(|_| !redirects) {
        fields.extend(source_ranges::fields(access));
    }
    let local = mode == BackendMode::Local && service.health_check_node_port != 0;
    if inputs.settings.service.local_health_check && local {
        node_health_check(service.health_check_node_port, protocol, &mut fields);
    }
    fields
}

/// Checks by HTTP whether a node has ready pods of the Service, where no annotation says what to check.
fn node_health_check(port: u16, protocol: Protocol, fields: &mut ListenerFields) {
    use ListenerField::{HealthCheck, HealthCheckConnectPort, HealthCheckSwitch, HealthCheckType, HealthCheckUri};
    let is = |field: ListenerField, value: &str| fields.get(&field).is_some_and(|found| found == value);
    let checks = match protocol {
        Protocol::Tcp => !is(HealthCheckSwitch, "off") && !is(HealthCheckType, "tcp"),
        Protocol::Udp => false,
        Protocol::Http | Protocol::Https => is(HealthCheck, "on"),
    };
    if !checks || fields.contains_key(&HealthCheckConnectPort) || fields.contains_key(&HealthCheckUri) {
        return;
    }
    if protocol == Protocol::Tcp {
        fields.insert(HealthCheckType, "http".to_owned());
    }
    fields.insert(HealthCheckConnectPort, port.to_string());
    fields.insert(HealthCheckUri, "/healthz".to_owned());
    fields.entry(ListenerField::HealthCheckHttpCode).or_insert_with(|| "http_2xx".to_owned());
}
