//! VPC (version 2016-04-28): route tables, route entries, vSwitches, EIPs.

use ipnet::IpNet;

use super::{Call, Fault, FaultKind};
use crate::fence::Permit;

/// A route table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// `vtb-...`
    pub id: String,
    /// `System` or `Custom`
    pub kind: String,
    /// The VPC it belongs to.
    pub vpc_id: String,
}

/// A route entry of type `Custom`, of any next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// `rte-...`
    pub id: String,
    /// The destination as the API writes it, parsed.
    pub destination: IpNet,
    /// Next hops: (type, id). More than one with ECMP.
    pub next_hops: Vec<(String, String)>,
    /// `Available`, `Pending`, `Creating`, `Modifying`, `Deleting`
    pub status: String,
    /// Empty if it has none.
    pub name: String,
    /// Empty if it has none.
    pub description: String,
}

/// One entry of a batch write. The next hop is always an ECS instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteItem {
    /// `vtb-...`
    pub table_id: String,
    /// The pod CIDR.
    pub destination: IpNet,
    /// `i-...`
    pub instance_id: String,
    /// Name of the entry, for people; only sent on creation.
    pub name: String,
    /// Ownership mark; only sent on creation.
    pub description: String,
}

/// Why one entry of a batch failed although the call succeeded.
#[derive(Clone, Debug)]
pub struct ItemFault {
    /// Index into the items that were given.
    pub index: usize,
    /// How to react.
    pub kind: FaultKind,
    /// The vendor's code.
    pub code: String,
    /// The vendor's message.
    pub message: String,
}

/// A vSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VSwitch {
    /// `vsw-...`
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// Its VPC.
    pub vpc_id: String,
    /// Its address range.
    pub cidr: String,
    /// Free addresses.
    pub available_ips: u64,
}

/// Address ranges of a VPC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VpcAttributes {
    /// `vpc-...`
    pub id: String,
    /// Primary, secondary and IPv6 ranges.
    pub cidrs: Vec<IpNet>,
}

/// Calls to VPC.
#[derive(Clone, Debug)]
pub struct Vpc(pub(super) Call);

#[expect(clippy::unused_async, unused_variables, clippy::todo, clippy::missing_errors_doc)]
impl Vpc {
    /// All route tables of a VPC, every page.
    pub async fn describe_route_tables(&self, vpc_id: &str) -> Result<Vec<RouteTable>, Fault> {
        todo!()
    }

    /// All custom entries of a table whose next hop is an instance, every page.
    pub async fn describe_route_entries(&self, table_id: &str) -> Result<Vec<RouteEntry>, Fault> {
        todo!()
    }

    /// Makes at most 50 entries with one call; the result lists the items that failed.
    pub async fn create_route_entries(&self, permit: &Permit, items: &[RouteItem]) -> Result<Vec<ItemFault>, Fault> {
        todo!()
    }

    /// Deletes at most 50 entries with one call; entries that are gone count as deleted.
    pub async fn delete_route_entries(&self, permit: &Permit, items: &[RouteItem]) -> Result<Vec<ItemFault>, Fault> {
        todo!()
    }

    /// Address ranges of a VPC; `None` if it does not exist.
    pub async fn describe_vpc(&self, vpc_id: &str) -> Result<Option<VpcAttributes>, Fault> {
        todo!()
    }

    /// All vSwitches of a VPC, every page.
    pub async fn describe_vswitches(&self, vpc_id: &str) -> Result<Vec<VSwitch>, Fault> {
        todo!()
    }

    /// Public addresses (EIPs) bound to a classic load balancer.
    pub async fn describe_load_balancer_eips(&self, load_balancer_id: &str) -> Result<Vec<String>, Fault> {
        todo!()
    }
}
