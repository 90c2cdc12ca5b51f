//! What can be done to the backends of a server group, whatever the product.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::sync::Arc;

use super::model::{Backend, BackendKey, BackendKind, GroupRef, ObservedGroup};

/// One write to a server group that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOperation {
    /// Adds backends, at most one batch.
    AddBackends {
        /// To which.
        group: GroupRef,
        /// Never empty.
        backends: Vec<Backend>,
    },
    /// Removes backends, at most one batch.
    RemoveBackends {
        /// From which.
        group: GroupRef,
        /// Never empty.
        backends: Vec<BackendKey>,
    },
    /// Changes weight and description of backends, at most one batch.
    SetBackends {
        /// In which.
        group: GroupRef,
        /// Never empty.
        backends: Vec<Backend>,
    },
    /// Deletes a server group of ours.
    DeleteGroup {
        /// Its id.
        id: String,
        /// Its name, for people.
        name: String,
    },
}

impl GroupOperation {
    /// The group whose backends it changes, unless it deletes the group.
    pub const fn backends_of(&self) -> Option<&GroupRef> {
        match self {
            Self::AddBackends { group, .. } | Self::RemoveBackends { group, .. } | Self::SetBackends { group, .. } => {
                Some(group)
            }
            Self::DeleteGroup { .. } => None,
        }
    }

    /// Whether it takes room for backends, or makes some.
    pub const fn room(&self) -> Room {
        match self {
            Self::AddBackends { .. } => Room::Takes,
            Self::RemoveBackends { .. } | Self::DeleteGroup { .. } => Room::Makes,
            Self::SetBackends { .. } => Room::Neither,
        }
    }

    /// What to do when the cloud refuses its backends: one of several is to blame.
    pub fn refused_backends(&self) -> RefusedBackends<Self> {
        let (group, backends, add) = match self {
            Self::AddBackends { group, backends } => (group, backends, true),
            Self::SetBackends { group, backends } => (group, backends, false),
            Self::RemoveBackends { .. } | Self::DeleteGroup { .. } => return RefusedBackends::None,
        };
        if backends.len() < 2 {
            return RefusedBackends::One;
        }
        let (left, right) = backends.split_at(backends.len() / 2);
        RefusedBackends::TryParts([left, right].map(|half| {
            let (group, backends) = (group.clone(), half.to_vec());
            if add { Self::AddBackends { group, backends } } else { Self::SetBackends { group, backends } }
        }))
    }

    /// The backends that it adds.
    pub fn adds(&self) -> &[Backend] {
        match self {
            Self::AddBackends { backends, .. } => backends,
            Self::RemoveBackends { .. } | Self::SetBackends { .. } | Self::DeleteGroup { .. } => &[],
        }
    }

    /// The same operation, which adds only these backends; `None` if nothing is left of it.
    pub fn adding(&self, backends: Vec<Backend>) -> Option<Self> {
        match self {
            Self::AddBackends { group, .. } => {
                (!backends.is_empty()).then(|| Self::AddBackends { group: group.clone(), backends })
            }
            other => Some(other.clone()),
        }
    }

    /// Moves a group's backends forward, as the cloud does when the operation succeeds.
    pub fn apply(&self, group: &mut ObservedGroup) {
        let Some(found) = group.backends.as_mut() else { return };
        let found = Arc::make_mut(found);
        match self {
            Self::AddBackends { backends, .. } => {
                let new: BTreeSet<&BackendKey> = backends.iter().map(|backend| &backend.key).collect();
                found.retain(|old| !new.contains(&old.key));
                found.extend(backends.iter().cloned());
            }
            Self::RemoveBackends { backends, .. } => {
                let gone: BTreeSet<&BackendKey> = backends.iter().collect();
                found.retain(|old| !gone.contains(&old.key));
            }
            Self::SetBackends { backends, .. } => {
                let new: BTreeMap<&BackendKey, &Backend> = backends.iter().map(|new| (&new.key, new)).collect();
                for old in found.iter_mut() {
                    if let Some(new) = new.get(&old.key) {
                        old.clone_from(new);
                    }
                }
            }
            Self::DeleteGroup { .. } => {}
        }
    }
}

impl Display for GroupOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddBackends { group, backends } => write!(f, "add to {group}: {}", Backends(backends)),
            Self::RemoveBackends { group, backends } => {
                let list: Vec<_> = backends.iter().map(|key| ServerName(key).to_string()).collect();
                write!(f, "remove from {group}: {}", list.join(", "))
            }
            Self::SetBackends { group, backends } => write!(f, "set in {group}: {}", Backends(backends)),
            Self::DeleteGroup { id, name } => write!(f, "delete group {name} ({id})"),
        }
    }
}

/// `instance:port`, `interface(address):port` or `address:port`.
struct ServerName<'a>(&'a BackendKey);

impl Display for ServerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackendKey { kind, server_id, server_ip, port } = self.0;
        match kind {
            BackendKind::Ecs | BackendKind::Ip => write!(f, "{server_id}:{port}"),
            BackendKind::Eni => write!(f, "{server_id}({server_ip}):{port}"),
        }
    }
}

/// Servers with their weights.
pub(crate) struct Backends<'a>(pub(crate) &'a [Backend]);

impl Display for Backends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no backends");
        }
        let list: Vec<_> =
            self.0.iter().map(|backend| format!("{}*{}", ServerName(&backend.key), backend.weight)).collect();
        f.write_str(&list.join(", "))
    }
}

/// What to do when the cloud refuses the backends of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedBackends<O> {
    /// It has none: the operation as a whole is refused.
    None,
    /// Exactly this backend is to blame; the others of its group go on.
    One,
    /// The same, but nothing is taken out of the group meanwhile: what is to replace it is not there.
    OneAddition,
    /// One of several is to blame: the operation goes on in parts.
    TryParts([O; 2]),
}

impl<O> RefusedBackends<O> {
    /// The same of the operations that these are part of.
    pub fn map<P>(self, whole: impl Fn(O) -> P) -> RefusedBackends<P> {
        match self {
            Self::None => RefusedBackends::None,
            Self::One => RefusedBackends::One,
            Self::OneAddition => RefusedBackends::OneAddition,
            Self::TryParts(parts) => RefusedBackends::TryParts(parts.map(whole)),
        }
    }
}

/// What an operation means for the number of backends, which is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It adds backends.
    Takes,
    /// It removes backends.
    Makes,
    /// Neither.
    Neither,
}
