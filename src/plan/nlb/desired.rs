//! What a Service asks for, complete and comparable, as [`desire`](super::desire) makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::model::{
    CreateGroup, CreateLoadBalancer, CreateSecurityGroup, GroupFields, ListenerFields, ListenerKey, SecurityRules,
    ZoneMapping,
};
use crate::plan::inputs::Ingress;
use crate::plan::service::management::ManagementLevel;
use crate::plan::service::model::{DesiredGroup, GroupRef};
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::{ScopedProblems, ServiceProblem};
use crate::plan::service::unready::UnreadyNodes;

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Who asks.
    pub owner: Owner,
    /// A load balancer of a user, to be used and never deleted.
    pub reuse: Option<String>,
    /// Whether listeners are managed.
    pub manage_listeners: bool,
    /// Whether a load balancer with a public address is refused.
    pub forbid_public: bool,
    /// The instance.
    pub instance: DesiredInstance,
    /// Listeners.
    pub listeners: BTreeMap<ListenerKey, DesiredListener>,
    /// Who may reach them, where the Service says so.
    pub access: Option<DesiredAccess>,
    /// Which parts of the load balancer are managed.
    pub manage: ManagementLevel,
    /// Server groups, by name, or by id if a user made them.
    pub groups: BTreeMap<String, DesiredGroup>,
    /// Attributes of those that are ours, by name.
    pub group_specs: BTreeMap<String, GroupSpec>,
    /// Whether the server group of a port is not known, so that none counts as no longer wanted.
    pub ports_without_group: bool,
    /// Everything that is wrong with the Service.
    pub problems: ScopedProblems,
    /// Most backends in one call.
    pub batch_size: usize,
    /// What has no effect, or is left out.
    pub warnings: Vec<ServiceProblem>,
    /// Ports without a single backend.
    pub empty_ports: Vec<ListenerKey>,
    /// Nodes that may serve and are not ready.
    pub unready: UnreadyNodes,
    /// Addresses of pods inside the VPC for which no network interface was found; nothing is removed from their groups.
    pub unresolved: BTreeSet<IpAddr>,
    /// Addresses of pods outside the VPC, left out.
    pub outside: BTreeSet<IpAddr>,
    /// `status.loadBalancer.ingress` of the Service as it is.
    pub ingress: Vec<Ingress>,
}

/// What is asked of the instance. What is `None` is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredInstance {
    /// Parameters for the case that there is none yet.
    pub create: CreateLoadBalancer,
    /// Whether nothing says in which zones it is to be.
    pub near_nodes: bool,
    /// Exactly these zones, unless empty.
    pub zones: Vec<ZoneMapping>,
    /// `Internet` or `Intranet`
    pub address_type: Option<String>,
    /// The same for IPv6.
    pub ipv6_address_type: Option<String>,
    /// What cannot be changed: `ipv4` or `DualStack`.
    pub ip_version: Option<String>,
    /// What cannot be changed: `rg-...`.
    pub resource_group_id: Option<String>,
    /// Visible name.
    pub name: Option<String>,
    /// `cbwp-...`; empty for none.
    pub bandwidth_package_id: Option<String>,
    /// Whether backends in other zones get traffic, too.
    pub cross_zone: Option<bool>,
    /// Exactly these security groups, besides the one of the source ranges.
    pub security_group_ids: Option<BTreeSet<String>>,
    /// Protection against deletion.
    pub delete_protection: Option<bool>,
    /// `ConsoleProtection` or `NonProtection`
    pub modification_protection: Option<String>,
    /// If not empty: exactly these, besides ours and the vendor's.
    pub tags: BTreeMap<String, String>,
}

/// A desired listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredListener {
    /// The port of the Service.
    pub port: u16,
    /// Where it comes from, such as `spec.ports[0]`.
    pub source: String,
    /// The ownership mark.
    pub description: String,
    /// Where it sends traffic.
    pub group: GroupRef,
    /// Attributes that annotations set.
    pub fields: ListenerFields,
    /// Certificates besides the default one; `None` leaves them.
    pub additional_certificates: Option<BTreeSet<String>>,
}

/// What is asked of a server group of ours, besides its backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSpec {
    /// Parameters for the case that there is none yet.
    pub create: CreateGroup,
    /// Attributes that are kept.
    pub kept: GroupFields,
}

/// Who may reach the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredAccess {
    /// The security group to make.
    pub create: CreateSecurityGroup,
    /// Its rules: those that accept, and those that drop the rest.
    pub rules: SecurityRules,
}
