//! Which nodes and pods receive traffic, and with what weight.

mod candidates;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

pub use self::candidates::{Candidates, ChangedCandidates, KnownNodes};
use self::nodes::NodeRole;
use super::model::BackendKey;
use super::problem::ServiceProblem;
use super::settings::ServiceSettings;
use super::unready::{self, UnreadyNodes};
use crate::plan::inputs::{Endpoint, EndpointsView, ServicePort, ServiceView, TargetPort};

/// Everything that `desire` looks at.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The Service.
    pub service: &'a ServiceView,
    /// All nodes.
    pub nodes: &'a dyn KnownNodes,
    /// The Service's endpoints.
    pub endpoints: &'a EndpointsView,
    /// Network interfaces by address, for those of [`addresses_to_resolve`] that were found.
    pub enis: &'a BTreeMap<IpAddr, String>,
    /// Blocks of the VPC; if empty, every address counts as inside.
    pub vpc_cidrs: &'a [IpNet],
    /// From the configuration.
    pub settings: &'a ServiceSettings,
    /// Nodes that were unready at the last look.
    pub unready: &'a UnreadyNodes,
    /// On the clock of `unready`.
    pub now: Duration,
}

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
    /// Whether terminating pods that still serve stay, without new traffic.
    pub graceful: bool,
    /// Whether the Service selects no pods, so that only its endpoints know their ports.
    pub handmade: bool,
    /// Weight that the backends of a group share.
    pub total_weight: Option<u8>,
    /// Weight of each backend where no other rule decides.
    pub default_weight: u8,
    /// Which nodes they are, or run on.
    pub nodes: NodeRules,
}

/// What a Service and the configuration say of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRules {
    /// Whether pods are attached, so that no node is a backend itself.
    pub pods_only: bool,
    /// Whether nodes and pods are attached by their addresses alone, without looking up what holds these.
    pub by_address: bool,
    /// Labels that a node must have.
    pub labels: BTreeMap<String, String>,
    /// Whether nodes with the master label are left out.
    pub exclude_masters: bool,
    /// Whether cordoned nodes are left out.
    pub exclude_cordoned: bool,
    /// Region of the load balancer, which takes no instances of others; empty if it is not known.
    pub region: String,
}

/// Endpoints with the number of the pod's port.
type Selected<'a> = Vec<(&'a Endpoint, u16)>;

/// Everything that the backends of all ports have in common.
#[derive(Debug)]
pub(crate) struct BackendSources<'a> {
    rules: &'a BackendRules,
    endpoints: Vec<&'a Endpoint>,
    candidates: Arc<Candidates>,
    /// Names of unready nodes that may serve: of all, or of those that run pods of the Service.
    unready: Vec<Arc<str>>,
    /// Whether nothing is known of endpoints.
    no_endpoints: bool,
    pub(crate) warnings: Vec<ServiceProblem>,
}

/// Backends of one port.
#[derive(Debug, Default)]
pub(crate) struct PortBackends {
    /// Identity and weight, in order; possibly the same twice.
    pub(crate) backends: Vec<(BackendKey, u8)>,
    /// Nodes besides these, at no port, as other Services share them.
    pub(crate) nodes: Arc<Vec<BackendKey>>,
    /// Of each of these nodes.
    pub(crate) weight: u8,
    /// Stay if they are there, until their nodes are seen unready once more.
    pub(crate) withheld: BTreeSet<BackendKey>,
    /// Inside the VPC, but without an interface.
    pub(crate) unresolved: BTreeSet<IpAddr>,
    /// Outside the VPC.
    pub(crate) outside: BTreeSet<IpAddr>,
    /// Whether nodes or endpoints may be missing.
    pub(crate) incomplete: bool,
}

/// Addresses whose network interfaces must be looked up: of all pods in ENI mode, also of those that are unready with their
/// node; otherwise of those on virtual nodes.
pub fn addresses_to_resolve(
    rules: &BackendRules,
    ports: &[ServicePort],
    nodes: &dyn KnownNodes,
    endpoints: &EndpointsView,
) -> BTreeSet<IpAddr> {
    if rules.nodes.by_address {
        return BTreeSet::new();
    }
    let sources = BackendSources::new(rules, nodes, endpoints);
    ports
        .iter()
        .flat_map(|port| sources.selected(port).into_iter().chain(sources.on_unready_nodes(port)))
        .map(|(endpoint, _)| endpoint)
        .filter(|endpoint| rules.mode == BackendMode::Eni || sources.candidates.is_virtual(endpoint))
        .map(|endpoint| endpoint.address)
        .collect()
}

impl<'a> BackendSources<'a> {
    pub(crate) fn new(rules: &'a BackendRules, nodes: &dyn KnownNodes, endpoints: &'a EndpointsView) -> Self {
        let candidates = nodes.candidates(rules);
        // Nodes lead to all other pods.
        let is_own = |it: &Endpoint| rules.mode != BackendMode::Cluster || candidates.is_virtual(it);
        let counts = |it: &&Endpoint| rules.family.has(it.address) && is_own(it);
        let all: Vec<&Endpoint> = endpoints.endpoints.iter().filter(counts).collect();
        let (unready, warnings) = if rules.mode == BackendMode::Cluster {
            (candidates.unready.clone(), candidates.warnings.clone())
        } else {
            // Of thousands of nodes, most Services run on few.
            let named: BTreeSet<&Arc<str>> = all.iter().filter_map(|endpoint| endpoint.node.as_ref()).collect();
            let is_unready = |node: &&Arc<str>| candidates.get(node).is_some_and(|it| !it.is_ready);
            let warnings = candidates.warnings_of(named.iter().map(|node| &***node));
            (named.iter().copied().filter(is_unready).cloned().collect(), warnings)
        };
        Self { rules, endpoints: all, candidates, unready, no_endpoints: endpoints.unknown, warnings }
    }

    /// Which nodes are unready, for the next look.
    pub(crate) fn unready(&self, inputs: &Inputs<'_>) -> UnreadyNodes {
        if self.candidates.blackout {
            return UnreadyNodes::All;
        }
        inputs.unready.updated(self.unready.iter().map(|name| &**name), inputs.now)
    }

    /// Backends of a port.
    pub(crate) fn of(&self, port: &ServicePort, inputs: &Inputs<'_>) -> PortBackends {
        let Candidates { lacks_nodes, blackout, .. } = *self.candidates;
        let incomplete = lacks_nodes || blackout || self.no_endpoints;
        let mut found = PortBackends { incomplete, ..PortBackends::default() };
        let selected = self.selected(port);
        match self.rules.mode {
            BackendMode::Eni => self.pods(&selected, inputs, &mut found),
            BackendMode::Cluster => self.all_nodes(&selected, inputs, &mut found),
            BackendMode::Local => self.nodes_with_pods(port, &selected, inputs, &mut found),
        }
        let ready = found.backends.len() + found.nodes.len();
        found.withheld = unready::withheld(self.unready_backends(port, inputs), ready, inputs.now);
        found
    }

    /// What would be a backend of the port if its node were ready, with the time since which the node is not.
    fn unready_backends(&self, port: &ServicePort, inputs: &Inputs<'_>) -> Vec<(BackendKey, Duration)> {
        let first_seen = |node: &str| inputs.unready.first_seen(node, inputs.now);
        if self.rules.mode == BackendMode::Cluster {
            let backend = |name: &Arc<str>| Some((self.server(name, port)?, first_seen(name)));
            return self.unready.iter().filter_map(backend).collect();
        }
        let backend = |(endpoint, number): (&Endpoint, u16)| {
            let node = endpoint.node.as_deref()?;
            let key = match self.rules.mode {
                BackendMode::Eni if endpoint.ready => None,
                BackendMode::Eni => self.pod(endpoint.address, number, inputs),
                BackendMode::Local | BackendMode::Cluster => self.server(node, port),
            };
            Some((key?, first_seen(node)))
        };
        self.on_unready_nodes(port).into_iter().filter_map(backend).collect()
    }

    /// Pods, by their network interfaces; those that terminate get no new traffic while others take it.
    fn pods(&self, selected: &[(&Endpoint, u16)], inputs: &Inputs<'_>, found: &mut PortBackends) {
        let mut attach = |endpoint, number| self.attach(endpoint, number, inputs, found);
        let pods = selected.iter().filter_map(|(it, number)| Some((attach(it, *number)?, it.terminating)));
        let pods: Vec<_> = pods.collect();
        let lasting = pods.iter().filter(|(_, ending)| !ending).count();
        // Weights need no change once the interfaces of the others are known.
        let all = found.unresolved.len() + if lasting == 0 { pods.len() } else { lasting };
        let weight = self.weight_of_one(all);
        let weigh = |ending| if ending && lasting > 0 { 0 } else { weight };
        found.backends = pods.into_iter().map(|(key, ending)| (key, weigh(ending))).collect();
    }

    /// All nodes that may serve, and pods on virtual nodes.
    fn all_nodes(&self, selected: &[(&Endpoint, u16)], inputs: &Inputs<'_>, found: &mut PortBackends) {
        let servers = &self.candidates.servers;
        let pods = selected.iter().filter_map(|(endpoint, number)| self.attach(endpoint, *number, inputs, found));
        let pods: Vec<_> = pods.collect();
        let weight = self.weight_of_one(servers.len() + pods.len() + found.unresolved.len());
        found.backends = pods.into_iter().map(|key| (key, weight)).collect();
        (found.nodes, found.weight) = (servers.clone(), weight);
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
            let role =
                self.candidates.get(node).filter(|candidate| candidate.is_ready).map(|candidate| &candidate.role);
            if let Some(server) = role.and_then(|role| role.server(port.node_port)) {
                *nodes.entry(server).or_default() += 1;
            } else if role == Some(&NodeRole::Virtual) {
                pods.extend(self.attach(endpoint, *number, inputs, found));
            }
        }
        let n = nodes.values().sum::<usize>() + pods.len() + found.unresolved.len();
        let total = self.rules.total_weight;
        found.backends.extend(nodes.into_iter().map(|(server, count)| {
            let own = u8::try_from(count.min(100)).unwrap_or(100);
            (server, total.map_or(own, |total| share(total, count, n)))
        }));
        let weight = total.map_or(1, |total| share(total, 1, n));
        found.backends.extend(pods.into_iter().map(|key| (key, weight)));
    }

    /// The weight of one of `n` backends that are all alike.
    fn weight_of_one(&self, n: usize) -> u8 {
        self.rules.total_weight.map_or(self.rules.default_weight, |total| share(total, 1, n))
    }

    /// Endpoints that take traffic of a port. While none is ready, those that terminate and still serve do, as KEP-1669 has
    /// it; where nodes lead to all pods, kube-proxy sees to that.
    fn selected(&self, port: &ServicePort) -> Selected<'a> {
        let ready = self.endpoints_at(port, |endpoint| !endpoint.terminating && endpoint.ready);
        if !self.rules.graceful && (self.rules.mode == BackendMode::Cluster || !ready.is_empty()) {
            return ready;
        }
        self.endpoints_at(port, |endpoint| if endpoint.terminating { endpoint.serving } else { endpoint.ready })
    }

    /// Endpoints on unready nodes, which make them unready by and by.
    fn on_unready_nodes(&self, port: &ServicePort) -> Selected<'a> {
        self.endpoints_at(port, |endpoint| {
            let node = endpoint.node.as_deref().and_then(|node| self.candidates.get(node));
            !endpoint.terminating && node.is_some_and(|candidate| !candidate.is_ready)
        })
    }

    /// Those of the endpoints that have a port, with the number of the pod's port; each address once.
    fn endpoints_at(&self, port: &ServicePort, counts: impl Fn(&Endpoint) -> bool) -> Selected<'a> {
        let mut seen = BTreeSet::new();
        self.endpoints
            .iter()
            .filter(|endpoint| counts(endpoint))
            .filter_map(|endpoint| {
                let own = || endpoint.ports.iter().find(|(name, _)| *name == port.name).map(|(_, number)| *number);
                let number = match &port.target_port {
                    TargetPort::Number(number) if self.rules.handmade => own().or(Some(*number)),
                    TargetPort::Number(number) => Some(*number),
                    TargetPort::Name(_) => own(),
                };
                number.map(|number| (*endpoint, number))
            })
            .filter(|(endpoint, _)| seen.insert(endpoint.address))
            .collect()
    }

    /// A pod as a backend. One whose network interface is not known is noted.
    fn attach(
        &self,
        endpoint: &Endpoint,
        port: u16,
        inputs: &Inputs<'_>,
        found: &mut PortBackends,
    ) -> Option<BackendKey> {
        let (address, key) = (endpoint.address, self.pod(endpoint.address, port, inputs));
        if key.is_none() {
            let is_inside = is_inside(inputs.vpc_cidrs, address);
            let unplaced = if is_inside { &mut found.unresolved } else { &mut found.outside };
            unplaced.insert(address);
        }
        key
    }

    /// A pod as a backend, by its address or by the network interface that holds it.
    fn pod(&self, address: IpAddr, port: u16, inputs: &Inputs<'_>) -> Option<BackendKey> {
        match self.rules.nodes.by_address {
            true => Some(BackendKey::ip(address.to_string(), port)),
            false => Some(BackendKey::eni(inputs.enis.get(&address)?, address, port)),
        }
    }

    /// A node as a backend of a port, whether it is ready or not.
    fn server(&self, node: &str, port: &ServicePort) -> Option<BackendKey> {
        self.candidates.get(node)?.role.server(port.node_port)
    }
}

/// Whether an address is in the VPC that has these blocks. If none is known, every address counts as inside.
pub(crate) fn is_inside(cidrs: &[IpNet], address: IpAddr) -> bool {
    cidrs.is_empty() || cidrs.iter().any(|block| block.contains(&address))
}

/// `count` of `n` parts of a total weight, at least 1 unless the total is 0.
fn share(total: u8, count: usize, n: usize) -> u8 {
    if total == 0 {
        return 0;
    }
    let part = u64::from(total) * count as u64 / (n.max(1) as u64);
    u8::try_from(part.clamp(1, 100)).unwrap_or(100)
}
