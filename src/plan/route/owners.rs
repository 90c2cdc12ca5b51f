//! Whether an entry of ours that no node needs may go.
//!
//! That the API server does not show a node proves little: one that was restored from an old backup does not show what
//! came later, and the pods there still run. So an entry goes only if the API server told of the node's deletion, or if
//! the cloud no longer has the instance. What stays without either is for people to judge, and for the command `gc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::index::Claims;
use super::{Memory, RouteNode, RouteStep, Rules, Table, instance_of, maker, settled};

/// What is known of owners that the list of nodes does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Names of nodes that the API server said were deleted.
    pub deleted: BTreeSet<String>,
    /// Instances that the cloud was asked about.
    pub instances: BTreeMap<String, Presence>,
}

/// What the cloud says of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is there.
    Shown,
    /// It is not there, in an answer that proves it.
    Gone,
    /// The answer proves nothing, because of this.
    Unknown(String),
}

/// Why an entry without an owner is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A cluster without nodes has no API server to say so.
    NoNodes,
    /// The instance lives.
    Lives,
    /// Nobody knows.
    Unknown(String),
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str(
                "the API server shows no node at all; once it shows one, entries whose instances are released are removed",
            ),
            Self::Lives => f.write_str(
                "the API server does not show the node, as after a restore from an old backup, but its instance lives; the \
                 entry is removed when the instance is released, or by alicloud-ccm gc --delete",
            ),
            Self::Unknown(why) => write!(
                f,
                "the API server does not show the node, and whether its instance lives is not known ({why}); the entry is \
                 removed when the cloud proves that the instance is released, or by alicloud-ccm gc --delete"
            ),
        }
    }
}

/// An entry that is kept although no node needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What would be done.
    pub step: RouteStep,
    /// Why it is not.
    pub why: Keep,
}

impl Owners {
    /// Whether something speaks for an entry that was made for this node, and leads to this instance.
    pub(super) fn speaks_for(&self, nodes: &[RouteNode], node: &str, instance: &str) -> Option<Keep> {
        if nodes.is_empty() {
            return Some(Keep::NoNodes);
        }
        if !self.is_missing(nodes, node, instance) {
            return None;
        }
        match self.instances.get(instance) {
            Some(Presence::Gone) => None,
            Some(Presence::Shown) => Some(Keep::Lives),
            Some(Presence::Unknown(why)) => Some(Keep::Unknown(why.clone())),
            None => Some(Keep::Unknown("it was not asked about yet".to_owned())),
        }
    }

    /// Whether the API server neither shows the node or its instance, nor told of its deletion. Marks may hold only the
    /// beginning of a long name.
    fn is_missing(&self, nodes: &[RouteNode], node: &str, instance: &str) -> bool {
        let shown = |known: &RouteNode| known.name.starts_with(node) || known.instance.as_deref() == Some(instance);
        !nodes.iter().any(shown) && !self.deleted.iter().any(|name| name.starts_with(node))
    }
}

/// Instances that the cloud must be asked about before [`super::plan`] can judge the entries that lead to them.
#[must_use]
pub fn suspects(nodes: &[RouteNode], tables: &[Table], memory: &Memory, rules: &Rules) -> BTreeSet<String> {
    if nodes.is_empty() {
        return BTreeSet::new();
    }
    let claims = Claims::of(nodes);
    let entries = tables.iter().flat_map(|table| &table.entries).filter(|entry| settled(entry));
    entries
        .filter_map(|entry| {
            let (maker, instance) = (maker(entry, memory, rules)?, instance_of(entry)?);
            let needed = claims.need(&entry.destination.trunc(), instance, maker);
            (!needed && rules.owners.is_missing(nodes, maker, instance)).then(|| instance.to_owned())
        })
        .collect()
}
