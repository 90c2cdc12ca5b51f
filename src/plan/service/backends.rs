//! Which nodes and pods receive traffic, and with what weight.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::model::{BackendKey, BackendKind, Inputs};
use super::problem::ServiceProblem;
use crate::plan::inputs::{
    Condition, ConditionStatus, Endpoint, EndpointsView, NodeView, ServicePort, TargetPort, node_of,
};
use crate::plan::provider_id::{NotEcs, ProviderId};

/// How backends are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendMode {
    /// Pods, by their network interfaces.
    Eni,
    /// Nodes that run pods of the Service, weighted by their number.
    Local,
    /// All nodes.
    Cluster,
}

/// Which addresses of pods are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4 only.
    #[default]
    V4,
    /// IPv6 only.
    V6,
    /// Both, so that a pod with two addresses counts twice.
    Both,
}

impl AddressFamily {
    fn has(self, address: IpAddr) -> bool {
        match self {
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
            Self::Both => true,
        }
    }
}

/// What a Service and the configuration say of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRules {
    /// How they are found.
    pub mode: BackendMode,
    /// Which addresses of pods are attached.
    pub family: AddressFamily,
    /// Whether nodes and pods are attached by their addresses alone, without looking up what holds these.
    pub by_address: bool,
    /// Whether terminating pods that still serve stay, without new traffic.
    pub graceful: bool,
    /// Weight that the backends of a group share.
    pub total_weight: Option<u8>,
    /// Weight of each backend where no other rule decides.
    pub default_weight: u8,
    /// Labels that a node must have.
    pub labels: BTreeMap<String, String>,
    /// Whether nodes with the master label are left out.
    pub exclude_masters: bool,
    /// Whether cordoned nodes are left out.
    pub exclude_cordoned: bool,
    /// Region of the load balancer, which takes no instances of others; empty if it is not known.
    pub region: String,
}

/// A node that may receive traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeRole {
    /// Runs pods outside of any ECS instance; its pods are attached by their network interfaces.
    Virtual,
    /// An ECS instance.
    Ecs(String),
    /// A node that is attached by its address.
    Address(String),
    /// Runs pods, but is no backend itself.
    Excluded,
}

/// Which nodes are looked at where every node may be a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeReach {
    /// All.
    All,
    /// Those that run pods of the Service.
    Endpoints,
}

impl NodeRole {
    /// The node as a backend.
    fn server(&self, port: u16) -> Option<BackendKey> {
        match self {
            Self::Ecs(instance) => Some(BackendKey::ecs(instance, port)),
            Self::Address(address) => Some(BackendKey::ip(address, port)),
            Self::Virtual | Self::Excluded => None,
        }
    }
}

/// Endpoints with the number of the pod's port.
type Selected<'a> = Vec<(&'a Endpoint, u16)>;

/// Everything that the backends of all ports have in common.
pub(crate) struct BackendSources<'a> {
    rules: &'a BackendRules,
    endpoints: Vec<&'a Endpoint>,
    candidates: BTreeMap<&'a str, NodeRole>,
    /// Whether nodes are missing altogether, which no cluster with pods has.
    no_nodes: bool,
    /// Whether nothing is known of endpoints.
    no_endpoints: bool,
    /// Whether there are nodes that may serve, but not one of them is ready. That looks the same whether they all failed
    /// or only the way between them and the API server did, and in the second case they still serve.
    pub(crate) blackout: bool,
    pub(crate) warnings: Vec<ServiceProblem>,
}

/// Backends of one port.
#[derive(Debug, Default)]
pub(crate) struct PortBackends {
    /// Identity and weight, in order; possibly the same twice.
    pub(crate) backends: Vec<(BackendKey, u8)>,
    /// Inside the VPC, but without an interface.
    pub(crate) unresolved: BTreeSet<IpAddr>,
    /// Outside the VPC.
    pub(crate) outside: BTreeSet<IpAddr>,
    /// Whether backends may be missing.
    pub(crate) incomplete: bool,
}

/// Addresses whose network interfaces must be looked up: of all pods in ENI mode, otherwise of those on virtual nodes.
/// `nodes` are in the order of their names.
pub fn addresses_to_resolve(
    rules: &BackendRules,
    ports: &[ServicePort],
    nodes: &[Arc<NodeView>],
    endpoints: &EndpointsView,
) -> BTreeSet<IpAddr> {
    if rules.by_address {
        return BTreeSet::new();
    }
    let sources = BackendSources::new(rules, nodes, endpoints, NodeReach::Endpoints);
    ports
        .iter()
        .flat_map(|port| sources.selected(port).into_iter().map(|(endpoint, _)| endpoint))
        .filter(|endpoint| rules.mode == BackendMode::Eni || sources.is_virtual(endpoint))
        .map(|endpoint| endpoint.address)
        .collect()
}

impl<'a> BackendSources<'a> {
    pub(crate) fn new(
        rules: &'a BackendRules,
        nodes: &'a [Arc<NodeView>],
        endpoints: &'a EndpointsView,
        reach: NodeReach,
    ) -> Self {
        let mut sources = Self {
            rules,
            endpoints: endpoints.endpoints.iter().filter(|endpoint| rules.family.has(endpoint.address)).collect(),
            candidates: BTreeMap::new(),
            no_nodes: nodes.is_empty(),
            no_endpoints: endpoints.unknown,
            blackout: is_blackout(nodes, rules),
            warnings: Vec::new(),
        };
        // Of thousands of nodes, most Services run on few.
        let concerned: Vec<&'a Arc<NodeView>> = if rules.mode != BackendMode::Cluster || reach == NodeReach::Endpoints {
            let named: BTreeSet<&str> =
                sources.endpoints.iter().filter_map(|endpoint| endpoint.node.as_deref()).collect();
            named.into_iter().filter_map(|name| node_of(nodes, name)).collect()
        } else {
            nodes.iter().collect()
        };
        let mut far = Vec::new();
        for node in concerned.into_iter().filter(|node| accepts(node, rules)) {
            let candidate = if is_virtual(node) {
                NodeRole::Virtual
            } else if rules.mode == BackendMode::Eni || is_excluded(node) {
                NodeRole::Excluded
            } else if rules.by_address {
                match internal_address(node) {
                    Some(address) => NodeRole::Address(address.to_owned()),
                    None => {
                        sources.warnings.push(no_address(node));
                        NodeRole::Excluded
                    }
                }
            } else {
                match ProviderId::parse(&node.provider_id) {
                    Ok(id) if rules.region.is_empty() || id.region == rules.region => NodeRole::Ecs(id.instance),
                    Ok(_) => {
                        far.push(node.name.as_str());
                        NodeRole::Excluded
                    }
                    Err(why) => {
                        sources.warnings.push(bad_provider_id(node, &why));
                        NodeRole::Excluded
                    }
                }
            };
            sources.candidates.insert(&node.name, candidate);
        }
        sources.warnings.extend(in_other_regions(&far, &rules.region));
        sources
    }

    /// How backends are found.
    pub(crate) const fn mode(&self) -> BackendMode {
        self.rules.mode
    }

    /// Backends of a port.
    pub(crate) fn of(&self, port: &ServicePort, inputs: &Inputs<'_>) -> PortBackends {
        let incomplete = self.no_nodes || self.no_endpoints || self.blackout;
        let mut found = PortBackends { incomplete, ..PortBackends::default() };
        let selected = self.selected(port);
        match self.rules.mode {
            BackendMode::Eni => self.pods(&selected, inputs, &mut found),
            BackendMode::Cluster => self.all_nodes(port, &selected, inputs, &mut found),
            BackendMode::Local => self.nodes_with_pods(port, &selected, inputs, &mut found),
        }
        found
    }

    /// Pods, by their network interfaces; those that terminate get no new traffic.
    fn pods(&self, selected: &[(&Endpoint, u16)], inputs: &Inputs<'_>, found: &mut PortBackends) {
        let pods: Vec<_> =
            selected.iter().filter_map(|(endpoint, number)| self.attach(endpoint, *number, inputs, found)).collect();
        let weight = self.weight_of_one(pods.iter().filter(|(_, ending)| !ending).count());
        found.backends = pods.into_iter().map(|(key, ending)| (key, if ending { 0 } else { weight })).collect();
    }

    /// All nodes that may serve, and pods on virtual nodes.
    fn all_nodes(
        &self,
        port: &ServicePort,
        selected: &[(&Endpoint, u16)],
        inputs: &Inputs<'_>,
        found: &mut PortBackends,
    ) {
        let nodes = self.candidates.values().filter_map(|candidate| candidate.server(port.node_port));
        let mut keys: Vec<_> = nodes.collect();
        let pods = selected.iter().filter(|(endpoint, _)| self.is_virtual(endpoint));
        let pods = pods.filter_map(|(endpoint, number)| self.attach(endpoint, *number, inputs, found));
        keys.extend(pods.map(|(key, _)| key));
        let weight = self.weight_of_one(keys.len());
        found.backends = keys.into_iter().map(|key| (key, weight)).collect();
    }

    /// Nodes that run pods of the Service, each with their number as its weight, and pods on virtual nodes.
    fn nodes_with_pods(
        &self,
        port: &ServicePort,
        selected: &[(&Endpoint, u16)],
        inputs: &Inputs<'_>,
        found: &mut PortBackends,
    ) {
        let mut nodes: BTreeMap<BackendKey, usize> = BTreeMap::new();
        let mut pods = Vec::new();
        for (endpoint, number) in selected {
            let Some(node) = endpoint.node.as_deref() else {
                found.incomplete = true;
                continue;
            };
            let role = self.candidates.get(node);
            if let Some(server) = role.and_then(|role| role.server(port.node_port)) {
                *nodes.entry(server).or_default() += 1;
            } else if role == Some(&NodeRole::Virtual) {
                pods.extend(self.attach(endpoint, *number, inputs, found).map(|(key, _)| key));
            }
        }
        let n = nodes.values().sum::<usize>() + pods.len();
        let total = self.rules.total_weight;
        found.backends.extend(nodes.into_iter().map(|(server, count)| {
            let own = u8::try_from(count.min(100)).unwrap_or(100);
            (server, total.map_or(own, |total| share(total, count, n, 1)))
        }));
        let weight = total.map_or(1, |total| share(total, 1, n, 0));
        found.backends.extend(pods.into_iter().map(|key| (key, weight)));
    }

    /// The weight of one of `n` backends that are all alike.
    fn weight_of_one(&self, n: usize) -> u8 {
        self.rules.total_weight.map_or(self.rules.default_weight, |total| share(total, 1, n, 1))
    }

    /// Endpoints that take traffic of a port, with the number of the pod's port.
    fn selected(&self, port: &ServicePort) -> Selected<'a> {
        let mut seen = BTreeSet::new();
        self.endpoints
            .iter()
            .filter(|endpoint| match endpoint.terminating {
                true => self.rules.graceful && endpoint.serving == Some(true),
                // An endpoint that does not say whether it is ready is not, as with the official controller.
                false => endpoint.ready == Some(true),
            })
            .filter_map(|endpoint| {
                let number = match &port.target_port {
                    TargetPort::Number(number) => Some(*number),
                    TargetPort::Name(_) => {
                        endpoint.ports.iter().find(|(name, _)| *name == port.name).map(|(_, number)| *number)
                    }
                };
                number.map(|number| (*endpoint, number))
            })
            .filter(|(endpoint, _)| seen.insert(endpoint.address))
            .collect()
    }

    /// A pod as a backend, and whether it is ending.
    fn attach(
        &self,
        endpoint: &Endpoint,
        port: u16,
        inputs: &Inputs<'_>,
        found: &mut PortBackends,
    ) -> Option<(BackendKey, bool)> {
        let key = match self.rules.by_address {
            true => BackendKey::ip(&endpoint.address.to_string(), port),
            false => found.interface(endpoint.address, port, inputs)?,
        };
        Some((key, endpoint.terminating))
    }

    fn is_virtual(&self, endpoint: &Endpoint) -> bool {
        let node = endpoint.node.as_deref().and_then(|node| self.candidates.get(node));
        node == Some(&NodeRole::Virtual)
    }
}

impl PortBackends {
    /// The network interface that holds an address, as a backend.
    fn interface(&mut self, address: IpAddr, port: u16, inputs: &Inputs<'_>) -> Option<BackendKey> {
        if let Some(interface) = inputs.enis.get(&address) {
            let server_ip = address.to_string().into();
            return Some(BackendKey { kind: BackendKind::Eni, server_id: interface.as_str().into(), server_ip, port });
        }
        if inputs.vpc_cidrs.is_empty() || inputs.vpc_cidrs.iter().any(|block| block.contains(&address)) {
            self.unresolved.insert(address);
            self.incomplete = true;
        } else {
            self.outside.insert(address);
        }
        None
    }
}

/// `count` of `n` parts of a total weight, at least `least` unless the total is 0.
fn share(total: u8, count: usize, n: usize, least: u64) -> u8 {
    if total == 0 {
        return 0;
    }
    let part = u64::from(total) * count as u64 / (n.max(1) as u64);
    u8::try_from(part.max(least).min(100)).unwrap_or(100)
}

/// Whether nodes that may serve exist, and none of them is ready.
fn is_blackout(nodes: &[Arc<NodeView>], rules: &BackendRules) -> bool {
    let mut may_serve = nodes.iter().filter(|node| {
        // Without conditions a node was never ready.
        permits(node, rules) && !is_excluded(node) && node.has_conditions
    });
    may_serve.clone().next().is_some() && !may_serve.any(|node| is_healthy(node))
}

/// The tests that hold for nodes in every mode.
fn accepts(node: &NodeView, rules: &BackendRules) -> bool {
    permits(node, rules) && is_healthy(node)
}

fn is_healthy(node: &NodeView) -> bool {
    is_virtual(node) || (node.has_conditions && node.ready.as_ref().is_none_or(is_true))
}

/// Whether people and annotations let a node serve.
fn permits(node: &NodeView, rules: &BackendRules) -> bool {
    let labelled = rules.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let master = rules.exclude_masters && node.labels.contains_key("node-role.kubernetes.io/master");
    let going = node.taints.iter().any(|taint| taint.key == "ToBeDeletedByClusterAutoscaler");
    let cordoned = node.unschedulable && rules.exclude_cordoned;
    labelled && !master && !going && !cordoned
}

fn is_true(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True
}

fn is_virtual(node: &NodeView) -> bool {
    node.labels.get("type").is_some_and(|kind| kind == "virtual-kubelet")
}

/// Nodes that are kept out of load balancers, though pods on them may still be attached by themselves.
fn is_excluded(node: &NodeView) -> bool {
    const LABELS: [&str; 4] = [
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "alpha.service-controller.kubernetes.io/exclude-balancer",
        "service.beta.kubernetes.io/exclude-node",
        "service.alibabacloud.com/exclude-node",
    ];
    LABELS.iter().any(|label| node.labels.contains_key(*label)) || node.provider_id.starts_with("ack-hybrid://")
}

/// The first address by which other nodes reach it.
fn internal_address(node: &NodeView) -> Option<&str> {
    let is_ipv4 = |address: &str| address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4());
    let mut addresses = node.addresses.iter().filter(|address| address.kind == "InternalIP");
    addresses.find(|address| is_ipv4(&address.address)).map(|address| address.address.as_str())
}

fn no_address(node: &NodeView) -> ServiceProblem {
    ServiceProblem {
        field: format!("node {} status.addresses", node.name),
        given: "no IPv4 address of type InternalIP".to_owned(),
        allowed: "one, as server-group-type: ip attaches nodes by it; the node is left out of the load balancer"
            .to_owned(),
    }
}

/// What is said of nodes whose instances are in other regions.
fn in_other_regions(nodes: &[&str], region: &str) -> Option<ServiceProblem> {
    let (first, more) = (nodes.iter().take(5).copied().collect::<Vec<_>>().join(", "), nodes.len().saturating_sub(5));
    (!nodes.is_empty()).then(|| ServiceProblem {
        field: "spec.providerID of nodes".to_owned(),
        given: if more > 0 { format!("{first} and {more} more") } else { first },
        allowed: format!("instances in region {region}, where the load balancer is; the others are left out of it"),
    })
}

fn bad_provider_id(node: &NodeView, why: &NotEcs) -> ServiceProblem {
    ServiceProblem {
        field: format!("node {} spec.providerID", node.name),
        given: node.provider_id.clone(),
        allowed: format!("{why}; the node is left out of the load balancer"),
    }
}
