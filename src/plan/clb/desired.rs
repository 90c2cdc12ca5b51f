//! What a Service asks for, complete and comparable, as [`desire`](super::desire) makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;

use super::model::{CreateAccessList, CreateInstance, InstanceField, InstanceFields, ListenerFields};
use crate::plan::inputs::NodeView;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::desired;
use crate::plan::loadbalancer::zones;

/// What a Service asks for.
pub type Desired = desired::Desired<ClbModel>;
/// A desired listener.
pub type DesiredListener = desired::DesiredListener<ClbModel>;

/// Classic load balancers, for what all products do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClbModel;

/// What only classic load balancers have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClbExtra {
    /// Whether the ranges only count if a list of ours keeps them already, see [`is_inherited`](crate::plan::loadbalancer::handling::is_inherited).
    pub inherited: bool,
    /// Published instead of an address.
    pub hostname: Option<String>,
    /// Whether bound elastic addresses are published.
    pub eip: bool,
    /// Whether a mistake leaves it open which address is published: the one that is there stays.
    pub keeps_address: bool,
    /// Whether nothing says in which vSwitches a new one is to be.
    pub near_nodes: bool,
}

/// What is asked of the instance. What is `None` is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredInstance {
    /// Parameters for the case that there is none yet.
    pub create: CreateInstance,
    /// Whether nothing says in which zones it is to be, see [`Desired::choose_zones`].
    pub near_nodes: bool,
    /// The vSwitch that an annotation asks for; it counts only when the instance is made.
    pub vswitch_id: Option<String>,
    /// What annotations ask for.
    pub fields: InstanceFields,
    /// The annotations of those that cannot be changed, as they are spelled.
    pub fixed: Vec<(String, InstanceField)>,
    /// If not empty: exactly these, besides ours and the vendor's.
    pub tags: BTreeMap<String, String>,
}

impl DesiredInstance {
    /// Whether nothing says in which vSwitch of the VPC a load balancer that is to be made is to be.
    pub fn is_vswitch_open(&self) -> bool {
        let is_classic = self.fields.is(InstanceField::NetworkType, "classic");
        self.create.fields.is(InstanceField::AddressType, "intranet") && self.vswitch_id.is_none() && !is_classic
    }
}

impl Desired {
    /// Where nothing says in which zones a load balancer that is to be made goes, it goes where most nodes are. To be asked
    /// only when there is none: it takes a look at every node.
    pub fn choose_zones(&mut self, nodes: &[Arc<NodeView>]) {
        if self.instance.near_nodes {
            let create = &mut self.instance.create;
            (create.master_zone, create.slave_zone) = zones::near(nodes);
            create.zones_can_change = create.master_zone.is_some();
        }
    }
}

/// Who may reach the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredAccess {
    /// The list to make.
    pub create: CreateAccessList,
    /// Its entries; never empty.
    pub entries: BTreeSet<IpNet>,
    /// What annotations say instead; it holds while the ranges do not count.
    pub otherwise: ListenerFields,
}
