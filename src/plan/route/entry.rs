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

impl RouteEntry {
    /// The instance that it leads to, if to exactly one and nothing else.
    pub fn instance(&self) -> Option<&str> {
        match self.next_hops.as_slice() {
            [(kind, id)] if kind.eq_ignore_ascii_case("instance") => Some(id),
            _ => None,
        }
    }

    /// Whether the cloud is not changing it: only such entries can be removed.
    pub fn is_settled(&self) -> bool {
        matches!(self.status.as_str(), "Available" | "Created")
    }

    /// Where it leads, for people.
    pub fn next_hops_text(&self) -> String {
        self.next_hops.iter().map(|(kind, id)| format!("{kind} {id}")).collect::<Vec<_>>().join(", ")
    }
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
