//! Which records the Services and nodes of a cluster should have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{RecordContent, RecordType, node_name, normal, service_name};
use crate::plan::inputs::{Endpoint, EndpointsView, NodeView, ObjectKey, ServiceType, ServiceView};
use crate::plan::loadbalancer::problem::ServiceProblem;

/// Longest name, with its zone (RFC 1035), and longest part of one between dots.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// What the configuration says of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamingRules {
    /// Name of the zone.
    pub zone: String,
    /// Types that are written.
    pub types: BTreeSet<RecordType>,
    /// Namespaces whose Services have names; all if empty.
    pub namespaces: BTreeSet<String>,
    /// Whether nodes have names.
    pub nodes: bool,
}

/// What a zone should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedRecords {
    /// Every record.
    pub records: BTreeSet<RecordContent>,
    /// Services and nodes of which not enough is known: their records stay as they are.
    pub unknown: BTreeSet<ObjectKey>,
    /// Whether the API server shows no node: the records of all nodes stay as they are.
    pub unknown_nodes: bool,
    /// What cannot be written, by Service or node.
    pub problems: BTreeMap<ObjectKey, String>,
}

impl WantedRecords {
    /// Whether the records of an object stay as they are.
    pub fn is_unknown(&self, owner: &ObjectKey) -> bool {
        self.unknown.contains(owner) || self.unknown_nodes && owner.namespace.is_empty()
    }

    fn add(&mut self, owner: &ObjectKey, records: BTreeSet<RecordContent>, rules: &NamingRules) {
        for record in records.into_iter().filter(|record| rules.types.contains(&record.kind)) {
            let Some(problem) = refused(&record, &rules.zone) else {
                self.records.insert(record);
                continue;
            };
            self.problems.insert(owner.clone(), problem.to_string());
            // Where the name leads to is not known; all else of the Service still follows.
            if record.kind == RecordType::Cname {
                self.unknown.insert(owner.clone());
            }
        }
    }
}

/// The records of all Services and nodes. `endpoints` gives those of headless Services, `None` if nothing is known of them.
pub fn desire<'a>(
    services: impl IntoIterator<Item = &'a ServiceView>,
    endpoints: impl Fn(&ObjectKey) -> Option<Arc<EndpointsView>>,
    nodes: &[Arc<NodeView>],
    rules: &NamingRules,
) -> WantedRecords {
    let mut wanted = WantedRecords { unknown_nodes: rules.nodes && nodes.is_empty(), ..WantedRecords::default() };
    let is_chosen = |service: &ServiceView| {
        !service.deleting && (rules.namespaces.is_empty() || rules.namespaces.contains(&*service.key.namespace))
    };
    for service in services.into_iter().filter(|service| is_chosen(service)) {
        let records = if service.is_headless() {
            match endpoints(&service.key).filter(|known| !known.unknown) {
                Some(known) => of_headless(service, &known),
                None => {
                    wanted.unknown.insert(service.key.clone());
                    continue;
                }
            }
        } else {
            of_addressed(service)
        };
        wanted.add(&service.key, records, rules);
    }
    for node in nodes.iter().filter(|_| rules.nodes) {
        let name = node_name(&node.name);
        let internal = node.addresses.iter().filter(|address| address.kind == "InternalIP");
        let records = internal.filter_map(|it| it.address.parse().ok()).map(|ip| address(&name, ip)).collect();
        wanted.add(&ObjectKey::cluster(&node.name), records, rules);
    }
    wanted
}

fn record(name: &str, kind: RecordType, value: impl Into<String>) -> RecordContent {
    RecordContent { name: name.to_owned(), kind, value: value.into() }
}

fn address(name: &str, ip: IpAddr) -> RecordContent {
    record(name, if ip.is_ipv4() { RecordType::A } else { RecordType::Aaaa }, ip.to_string())
}

/// The name of an address: its parts in reverse order (RFC 1035, 3.5, and RFC 3596, 2.5).
fn reverse(ip: IpAddr, name: &str) -> RecordContent {
    let parts: Vec<String> = match ip {
        IpAddr::V4(ip) => ip.octets().iter().rev().map(ToString::to_string).collect(),
        IpAddr::V6(ip) => ip
            .octets()
            .iter()
            .rev()
            .flat_map(|octet| [octet & 15, octet >> 4])
            .map(|part| format!("{part:x}"))
            .collect(),
    };
    record(&parts.join("."), RecordType::Ptr, name)
}

/// A named port.
fn port(service: &ServiceView, (port, protocol): (&str, &str), number: u16, target: &str) -> RecordContent {
    let name = format!("_{port}._{protocol}.{}", service_name(&service.key)).to_ascii_lowercase();
    record(&name, RecordType::Srv, format!("0 100 {number} {target}"))
}

/// The records of a Service whose name leads to its endpoints, and of those endpoints that have a name.
fn of_headless(service: &ServiceView, endpoints: &EndpointsView) -> BTreeSet<RecordContent> {
    let name = service_name(&service.key);
    let is_ready = |endpoint: &&Endpoint| service.publish_not_ready || endpoint.ready;
    let mut records = BTreeSet::new();
    for endpoint in endpoints.endpoints.iter().filter(is_ready) {
        let own_name = endpoint.hostname.as_ref().map(|host| format!("{host}.{name}"));
        records.insert(address(&name, endpoint.address));
        if let Some(own_name) = &own_name {
            records.insert(address(own_name, endpoint.address));
            records.insert(reverse(endpoint.address, own_name));
        }
        let target = own_name.as_ref().unwrap_or(&name);
        for it in service.ports.iter().filter(|port| !port.name.is_empty()) {
            let numbers = endpoint.ports.iter().filter(|(of, number)| *of == it.name && *number > 0);
            records.extend(numbers.map(|(_, number)| port(service, (&it.name, &it.protocol), *number, target)));
        }
    }
    records
}

/// The records of a Service that has addresses, or another name. A port is the one on which those addresses listen.
fn of_addressed(service: &ServiceView) -> BTreeSet<RecordContent> {
    let name = service_name(&service.key);
    let parsed =
        |texts: &mut dyn Iterator<Item = &String>| -> Vec<IpAddr> { texts.filter_map(|ip| ip.parse().ok()).collect() };
    let (addresses, alias) = match service.service_type {
        ServiceType::LoadBalancer => {
            let alias = service.ingress.iter().map(|entry| entry.hostname.as_str()).find(|host| !host.is_empty());
            (parsed(&mut service.ingress.iter().map(|entry| &entry.ip)), alias)
        }
        ServiceType::ExternalName => (parsed(&mut [&service.external_name].into_iter()), Some(&*service.external_name)),
        ServiceType::ClusterIp | ServiceType::NodePort => (parsed(&mut service.cluster_ips.iter()), None),
    };
    let mut records: BTreeSet<RecordContent> = addresses.iter().map(|ip| address(&name, *ip)).collect();
    if let (true, Some(alias)) = (records.is_empty(), alias) {
        records.insert(record(&name, RecordType::Cname, normal(alias)));
    }
    if service.service_type != ServiceType::ExternalName && !records.is_empty() {
        let named = service.ports.iter().filter(|port| !port.name.is_empty());
        records.extend(named.map(|it| port(service, (&it.name, &it.protocol), it.port, &name)));
        records.extend(addresses.iter().map(|ip| reverse(*ip, &name)));
    }
    records
}

/// Why DNS cannot hold a record.
fn refused(record: &RecordContent, zone: &str) -> Option<ServiceProblem> {
    let RecordContent { name, kind, value } = record;
    let rule = format!("of at most {LONGEST_NAME} characters, and {LONGEST_LABEL} between dots");
    if *kind == RecordType::Cname && !is_name(value) {
        let rule = format!("must be an address, or a DNS name {rule}");
        return Some(ServiceProblem::invalid("spec.externalName", value, rule));
    }
    let full = format!("{name}.{zone}");
    let rule = || format!("must give a DNS name {rule}; shorten the name of the object, of its port, or of the zone");
    (!is_name(&full)).then(|| ServiceProblem::invalid("metadata.name", full, rule()))
}

/// Whether DNS can hold a name: letters, digits, `-` and, as in names of ports, `_`.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=LONGEST_LABEL).contains(&label.len()) && label.chars().all(legal)
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}
