//! What a Service asks for, complete and comparable, as [`desire`](super::desire) makes it.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::model::{
    CreateGroup, CreateInstance, CreateSecurityGroup, GroupFields, InstanceFields, SecurityRules, ZoneMapping,
};
use crate::plan::loadbalancer::desired;
use crate::plan::loadbalancer::settings::VSwitchChoice;

/// What a Service asks for.
pub type Desired = desired::Desired<NlbModel>;
/// A desired listener.
pub type DesiredListener = desired::DesiredListener<NlbModel>;

/// Network load balancers, for what all products do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NlbModel;

/// What only network load balancers have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NlbExtra {
    /// Attributes of the server groups that are ours, by name.
    pub group_specs: BTreeMap<String, GroupSpec>,
    /// Where a load balancer is made if nothing else says where, in order of preference; those near the nodes come after them.
    pub vswitches: Vec<VSwitchChoice>,
    /// Blocks that may connect, of both families of addresses.
    pub ranges: BTreeSet<IpNet>,
    /// Whether a mistake hides who may connect: what keeps clients out stays as it is.
    pub is_access_unknown: bool,
}

/// What is asked of the instance. What is `None` is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredInstance {
    /// Parameters for the case that there is none yet.
    pub create: CreateInstance,
    /// Whether nothing says in which zones it is to be.
    pub near_nodes: bool,
    /// Exactly these zones, unless empty.
    pub zones: Vec<ZoneMapping>,
    /// Attributes.
    pub fields: InstanceFields,
    /// Exactly these security groups, besides the one of the source ranges.
    pub security_group_ids: Option<BTreeSet<String>>,
    /// If not empty: exactly these, besides ours and the vendor's.
    pub tags: BTreeMap<String, String>,
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
