//! Entries of route tables, as VPC describes and takes them.

use ipnet::IpNet;

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
