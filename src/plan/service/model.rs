//! The nouns that all load balancer products share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

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
    pub fn ecs(instance: &str, port: u16) -> Self {
        Self { kind: BackendKind::Ecs, server_id: instance.into(), server_ip: Box::default(), port }
    }

    /// An address of a network interface at a port.
    pub fn eni(interface: &str, address: IpAddr, port: u16) -> Self {
        Self { kind: BackendKind::Eni, server_id: interface.into(), server_ip: address.to_string().into(), port }
    }

    /// An address at a port.
    pub fn ip(address: &str, port: u16) -> Self {
        Self { kind: BackendKind::Ip, server_id: address.into(), server_ip: address.into(), port }
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
    pub backends: BTreeMap<BackendKey, Backend>,
    /// Whether backends may be missing here that should be there, so that none is removed or changed.
    pub incomplete: bool,
    /// Backends that stay if they are there, although they are not wanted: their nodes were seen unready only once.
    pub withheld: BTreeSet<BackendKey>,
    /// Whether weights of backends that are there are left as they are.
    pub ignore_weights: bool,
}

impl DesiredGroup {
    /// Whether it is empty only because its backends could not be determined.
    pub(crate) fn may_be_empty_by_mistake(&self) -> bool {
        self.backends.is_empty() && (self.incomplete || !self.withheld.is_empty())
    }
}

/// A server group (VServerGroup).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedGroup {
    /// Its name; ours are `k8s/<port>/<service>/<namespace>/<cluster id>`.
    pub name: String,
    /// `None` if the backends were not read: they decide nothing.
    pub backends: Option<Arc<Vec<Backend>>>,
}

impl ObservedGroup {
    /// Its backends; none if they were not read.
    pub fn members(&self) -> &[Backend] {
        self.backends.as_deref().map_or(&[], Vec::as_slice)
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
