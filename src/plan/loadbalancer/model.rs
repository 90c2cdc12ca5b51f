//! The nouns that all load balancer products share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// How a backend is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendKind {
    /// An ECS instance; identified by instance and port.
    Ecs,
    /// An address of a network interface; identified by interface, address and port.
    Eni,
    /// An address by itself; identified by address and port. Only network load balancers have these.
    Ip,
}

/// Identity of a backend within its group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendKey {
    /// How it is attached.
    pub kind: BackendKind,
    /// `i-...`, `eni-...`, or the address
    pub server_id: Arc<str>,
    /// Empty for ECS instances.
    pub server_ip: Box<str>,
    /// 1 to 65535; 0 where the listener takes a range of ports.
    pub port: u16,
}

impl BackendKey {
    /// An ECS instance at a port.
    pub fn ecs(instance: impl Into<Arc<str>>, port: u16) -> Self {
        Self { kind: BackendKind::Ecs, server_id: instance.into(), server_ip: Box::default(), port }
    }

    /// An address of a network interface at a port.
    pub fn eni(interface: &str, address: IpAddr, port: u16) -> Self {
        Self { kind: BackendKind::Eni, server_id: interface.into(), server_ip: address.to_string().into(), port }
    }

    /// An address at a port.
    pub fn ip(address: impl Into<Arc<str>>, port: u16) -> Self {
        let server_id = address.into();
        Self { kind: BackendKind::Ip, server_ip: (&*server_id).into(), server_id, port }
    }
}

/// A backend server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What it is.
    pub key: BackendKey,
    /// 0 to 100; 0 gets no new connections.
    pub weight: u8,
    /// The ownership mark of the group's owner, at most 80 characters.
    pub description: Arc<str>,
}

/// How a plan names a server group before it has an id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupRef {
    /// A group of ours, by its name `k8s/...`; the id is looked up among the observed and the newly made.
    Named(String),
    /// A group that the user made and named by id.
    Id(String),
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(text) | Self::Id(text) => f.write_str(text),
        }
    }
}

/// A desired server group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredGroup {
    /// By name if it is ours, by id if a user made it.
    pub group: GroupRef,
    /// Where it comes from, such as `spec.ports[0]`.
    pub source: String,
    /// Its backends, as far as they are ours.
    pub backends: DesiredBackends,
    /// Whether nodes or endpoints may be missing, so that no backend is removed or changed.
    pub incomplete: bool,
    /// Addresses of pods of which no interface is known. Backends stay there, and everywhere while there is no wanted one.
    pub unplaced: BTreeSet<Box<str>>,
    /// Backends that stay if they are there, although they are not wanted: their nodes were seen unready only once.
    pub withheld: BTreeSet<BackendKey>,
    /// Whether weights of backends that are there are left as they are.
    pub ignore_weights: bool,
}

impl DesiredGroup {
    /// Whether its backends could not be determined, as far as something could be taken away for that.
    pub(crate) fn is_unsure(&self) -> bool {
        self.incomplete || (self.backends.is_empty() && !self.unplaced.is_empty())
    }

    /// Whether it is empty only because its backends could not be determined.
    pub(crate) fn may_be_empty_by_mistake(&self) -> bool {
        self.backends.is_empty() && (self.is_unsure() || !self.withheld.is_empty())
    }

    /// Whether a backend stays if it is there, although it is not wanted.
    pub(crate) fn retains(&self, key: &BackendKey) -> bool {
        self.withheld.contains(key) || self.unplaced.contains(&key.server_ip)
    }
}

/// The backends of a desired group. Nodes are shared by reference, so that it costs the same however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredBackends {
    /// Nodes at a port each.
    pub(crate) nodes: Vec<NodeBackends>,
    /// Those that no other group has, such as pods.
    pub(crate) own: BTreeMap<BackendKey, Backend>,
}

/// The same nodes as for other groups, at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeBackends {
    /// In order, at no port; possibly the same twice.
    pub(crate) servers: Arc<Vec<BackendKey>>,
    pub(crate) port: u16,
    pub(crate) weight: u8,
    pub(crate) description: Arc<str>,
}

impl DesiredBackends {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|nodes| nodes.servers.is_empty()) && self.own.is_empty()
    }

    /// Whether this is one of them.
    pub fn contains(&self, key: &BackendKey) -> bool {
        let anywhere = BackendKey { port: 0, ..key.clone() };
        let is_there = |nodes: &NodeBackends| nodes.port == key.port && nodes.servers.binary_search(&anywhere).is_ok();
        self.nodes.iter().any(is_there) || self.own.contains_key(key)
    }

    /// Leaves out nodes of which `stays` is false, unless that is all of them.
    pub(crate) fn keep_nodes(&mut self, stays: impl Fn(&BackendKey) -> bool) {
        for nodes in &mut self.nodes {
            let kept: Vec<BackendKey> = nodes.servers.iter().filter(|server| stays(server)).cloned().collect();
            if !kept.is_empty() {
                nodes.servers = Arc::new(kept);
            }
        }
    }

    /// All of them, in the order of their keys; of those that are the same, the first counts.
    pub fn to_vec(&self) -> Vec<Backend> {
        let mut all: Vec<Backend> = self.own.values().cloned().collect();
        for NodeBackends { servers, port, weight, description } in &self.nodes {
            all.extend(servers.iter().map(|server| Backend {
                key: BackendKey { port: *port, ..server.clone() },
                weight: *weight,
                description: description.clone(),
            }));
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all.dedup_by(|later, first| later.key == first.key);
        all
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl Iterator<Item = BackendKey> + use<> {
        self.to_vec().into_iter().map(|backend| backend.key)
    }
}

/// The backends of a server group as the cloud holds them.
#[derive(Clone, Debug, Default)]
pub struct GroupMembers {
    list: Vec<Backend>,
    /// The nodes that they were found to be; void once they change. Pods are few, and not worth the memory.
    known_as: OnceLock<Vec<NodeBackends>>,
}

impl GroupMembers {
    /// Whether they were found to be exactly these, so that nothing has to be compared.
    pub(crate) fn are_known_as(&self, wanted: &DesiredBackends) -> bool {
        wanted.own.is_empty() && self.known_as.get() == Some(&wanted.nodes)
    }

    /// They were found to be exactly these.
    pub(crate) fn know_as(&self, wanted: &DesiredBackends) {
        if wanted.own.is_empty() {
            self.known_as.get_or_init(|| wanted.nodes.clone());
        }
    }
}

impl From<Vec<Backend>> for GroupMembers {
    fn from(list: Vec<Backend>) -> Self {
        Self { list, known_as: OnceLock::new() }
    }
}

impl Deref for GroupMembers {
    type Target = Vec<Backend>;

    fn deref(&self) -> &Vec<Backend> {
        &self.list
    }
}

impl DerefMut for GroupMembers {
    fn deref_mut(&mut self) -> &mut Vec<Backend> {
        self.known_as = OnceLock::new();
        &mut self.list
    }
}

impl PartialEq for GroupMembers {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for GroupMembers {}

/// A server group (VServerGroup).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedGroup {
    /// Its name; ours are `k8s/<port>/<service>/<namespace>/<cluster id>`.
    pub name: String,
    /// `None` if the backends were not read: they decide nothing.
    pub backends: Option<Arc<GroupMembers>>,
}

impl ObservedGroup {
    /// Its backends; none if they were not read.
    pub fn members(&self) -> &[Backend] {
        self.backends.as_deref().map_or(&[], |members| members.as_slice())
    }
}

/// How a plan names a listener, whatever the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerRef {
    /// 1 to 65535
    pub port: u16,
    /// As the product's API spells it.
    pub protocol: &'static str,
}
