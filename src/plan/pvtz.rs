//! Names of Services, pods and nodes in PrivateZone: which records a zone should hold, and what changes it to hold them.
//!
//! Names follow Kubernetes' DNS specification (github.com/kubernetes/dns, docs/specification.md), relative to the zone:
//! `<service>.<namespace>.svc`, `<host name>.` before it for a pod of a headless Service, and `_<port>._<protocol>.` for a
//! port. The specification has no names of nodes; here they are `<node>.node`. A record is attributed to its object by its
//! name, and a `PTR` record by its value, so that records whose object is gone are attributed as well.

pub mod desire;
pub mod diff;
pub mod mark;
pub mod orphans;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::ObjectKey;

/// A type of record that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordType {
    /// IPv4 address.
    A,
    /// IPv6 address.
    Aaaa,
    /// Another name.
    Cname,
    /// Port and name.
    Srv,
    /// The name of an address.
    Ptr,
}

impl RecordType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::A, Self::Aaaa, Self::Cname, Self::Srv, Self::Ptr];

    /// As the vendor spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Cname => "CNAME",
            Self::Srv => "SRV",
            Self::Ptr => "PTR",
        }
    }

    /// The type that the vendor spells so; `None` if it is not one of these.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(text))
    }

    /// Whether its value ends with a name of the zone.
    const fn leads_into_the_zone(self) -> bool {
        matches!(self, Self::Srv | Self::Ptr)
    }
}

/// What a record says, without who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordContent {
    /// Its name, relative to the zone; `@` for the zone itself.
    pub name: String,
    /// Its type.
    pub kind: RecordType,
    /// An address, a name, or `0 100 <port> <name>`. Names of the zone are relative to it; any other name ends with a dot, but
    /// that of a `CNAME`.
    pub value: String,
}

impl RecordContent {
    /// The object that it is for, which need not exist: a Service, or a node, which has no namespace.
    pub fn owner(&self) -> ObjectKey {
        let name = if self.kind == RecordType::Ptr { &self.value } else { &self.name };
        owner_of(name).unwrap_or_else(|| ObjectKey::cluster(name))
    }

    /// Its value as the zone of this name has it.
    pub fn value_in(&self, zone: &str) -> String {
        if self.kind.leads_into_the_zone() { format!("{}.{zone}", self.value) } else { self.value.clone() }
    }
}

impl fmt::Display for RecordContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.kind.as_str(), self.value)
    }
}

/// A record of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneRecord {
    /// The cloud's id of it.
    pub id: String,
    /// Its name, relative to the zone.
    pub name: String,
    /// Its type, as the vendor spells it.
    pub kind: String,
    /// What it leads to.
    pub value: String,
    /// Seconds.
    pub ttl: u32,
    /// Who wrote it, see [`mark`].
    pub remark: String,
}

impl ZoneRecord {
    /// What it says in the zone of this name, in the form in which wanted records are; `None` for a type that is never
    /// written.
    pub fn content(&self, zone: &str) -> Option<RecordContent> {
        let kind = RecordType::parse(&self.kind)?;
        let value = match kind {
            // The vendor may write an address in another form.
            RecordType::A | RecordType::Aaaa => {
                self.value.parse().map_or_else(|_| self.value.clone(), |ip: std::net::IpAddr| ip.to_string())
            }
            RecordType::Cname => normal(&self.value),
            RecordType::Srv | RecordType::Ptr => {
                let value = normal(&self.value);
                let relative = value.strip_suffix(&normal(zone)).and_then(|rest| rest.strip_suffix('.'));
                relative.map_or_else(|| format!("{value}."), str::to_owned)
            }
        };
        Some(RecordContent { name: normal(&self.name), kind, value })
    }
}

/// Names are compared without regard to case and to the dot that ends an absolute one.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_ascii_lowercase()
}

/// The name of a Service, relative to the zone.
pub fn service_name(service: &ObjectKey) -> String {
    format!("{}.{}.svc", service.name, service.namespace)
}

/// The name of a node, relative to the zone.
pub fn node_name(node: &str) -> String {
    format!("{node}.node")
}

/// The object that a name is of, which need not exist; `None` for a name of another form.
fn owner_of(name: &str) -> Option<ObjectKey> {
    if let Some(node) = name.strip_suffix(".node") {
        return Some(ObjectKey::cluster(node));
    }
    let mut labels = name.strip_suffix(".svc")?.rsplit('.');
    let (namespace, service) = (labels.next()?, labels.next()?);
    Some(ObjectKey::new(namespace, service))
}

#[cfg(test)]
mod tests;
