//! What can be done to a load balancer, as data: once, as far as the products do not differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use super::features;
use super::model::{Backend, BackendKey, BackendKind, GroupRef, ObservedGroup};

/// What a product brings to its operations.
pub trait OperationModel: Clone + Debug + Default + Eq {
    /// What plans call a load balancer.
    const LOAD_BALANCER: &'static str;
    /// Whether nothing is taken out of a group to which a backend cannot be added.
    const REPLACES_BACKENDS: bool;
    /// How it identifies listeners.
    type ListenerKey: Copy + Debug + Default + Display + Ord + Send + Sync;
    /// An attribute of a listener.
    type ListenerField: Copy + Debug + Display + Ord + Send + Sync;
    /// Additional certificates of a listener, as they are wanted.
    type Certificates: Clone + Debug + Eq + Send + Sync;
    /// The same as they are there.
    type HeldCertificates: Clone + Debug + Default + Eq + Send + Sync;
    /// What is asked of a new load balancer.
    type Creation: CreationModel;
    /// What only this product does.
    type Own: OwnOperation;
}

/// Values of attributes of a listener.
pub type ListenerFields<M> = BTreeMap<<M as OperationModel>::ListenerField, String>;

/// One write, with everything that its request needs except ids that do not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<M: OperationModel> {
    /// Makes the load balancer.
    Create(Box<M::Creation>),
    /// Deletes the load balancer with its listeners.
    Delete {
        /// The one that the diff was made against.
        id: String,
    },
    /// Adds or changes tags of the load balancer.
    Tag {
        /// Never empty.
        tags: BTreeMap<String, String>,
    },
    /// Removes tags of the load balancer.
    Untag {
        /// Never empty: an empty list would remove all.
        keys: Vec<String>,
    },
    /// Adds backends to a server group that exists, at most one batch.
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
    /// Makes a listener.
    CreateListener {
        /// Which.
        listener: M::ListenerKey,
        /// The ownership mark.
        description: String,
        /// Its server group; `None` for one that only redirects.
        group: Option<GroupRef>,
        /// All attributes to send.
        fields: ListenerFields<M>,
    },
    /// Changes a listener.
    SetListener {
        /// Which.
        listener: M::ListenerKey,
        /// The ownership mark.
        description: String,
        /// Its server group; `None` leaves it.
        group: Option<GroupRef>,
        /// Attributes that change. The request repeats the others as they are.
        fields: ListenerFields<M>,
    },
    /// Starts a listener.
    StartListener {
        /// Which.
        listener: M::ListenerKey,
    },
    /// Deletes a listener of ours.
    DeleteListener {
        /// Which.
        listener: M::ListenerKey,
    },
    /// What only this product does.
    Own(M::Own),
}

/// What is asked of a new load balancer.
pub trait CreationModel: Clone + Debug + Display + Eq + Send + Sync {
    /// The same with the ownership marks as its only tags; `None` if it has no others.
    fn without_tags(&self) -> Option<Self>;

    /// The same in another place, where the cloud refused this one: for want of room, or for another reason.
    fn elsewhere(&self, _had_no_room: bool) -> Option<Self> {
        None
    }

    /// What the user should know of where it was made, or could not be, with the cloud's code.
    fn remark(&self, _refusal: Option<&str>) -> Option<String> {
        None
    }
}

/// A write that only one product has.
pub trait OwnOperation: Clone + Debug + Display + Eq + Send + Sync {
    /// What it changes, and what becomes of it.
    fn effect(&self) -> (Part, WriteEffect);

    /// The name of what it makes, where the cloud would make a second one if the call is repeated.
    fn makes(&self) -> Option<&str> {
        None
    }

    /// The server group that it makes and fills, by its name, with the backends that it puts into it.
    fn fills(&self) -> Option<(&str, &[Backend])> {
        None
    }

    /// The same operation, which puts these backends into the group that it makes.
    fn filled_with(&self, _backends: Vec<Backend>) -> Self {
        self.clone()
    }

    /// See [`Operation::halves`].
    fn halves(&self) -> Option<[(Self, String); 2]> {
        None
    }

    /// See [`Operation::is_setting`].
    fn is_setting(&self) -> bool {
        false
    }
}

/// The part of a load balancer that an operation changes, as far as it can be read by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whether it exists, and its attributes.
    Instance,
    /// Which server groups there are, and their attributes.
    Groups,
    /// What is in a server group.
    Backends,
    /// Listeners, with their domain extensions.
    Listeners,
    /// The access control list, or the security group of the source ranges.
    Access,
}

/// What an operation does to what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEffect {
    /// It makes a thing of its own.
    Makes,
    /// It changes what exists.
    Changes,
    /// Something that exists goes away.
    Destroys,
}

impl<M: OperationModel> Operation<M> {
    fn effect(&self) -> (Part, WriteEffect) {
        match self {
            Self::Create(_) => (Part::Instance, WriteEffect::Makes),
            Self::Tag { .. } => (Part::Instance, WriteEffect::Changes),
            Self::Delete { .. } | Self::Untag { .. } => (Part::Instance, WriteEffect::Destroys),
            Self::DeleteGroup { .. } => (Part::Groups, WriteEffect::Destroys),
            Self::RemoveBackends { .. } => (Part::Backends, WriteEffect::Destroys),
            Self::AddBackends { .. } | Self::SetBackends { .. } => (Part::Backends, WriteEffect::Changes),
            Self::CreateListener { .. } => (Part::Listeners, WriteEffect::Makes),
            Self::SetListener { .. } | Self::StartListener { .. } => (Part::Listeners, WriteEffect::Changes),
            Self::DeleteListener { .. } => (Part::Listeners, WriteEffect::Destroys),
            Self::Own(own) => own.effect(),
        }
    }

    /// What it changes.
    pub fn part(&self) -> Part {
        self.effect().0
    }

    /// Whether something that exists goes away.
    pub fn destroys(&self) -> bool {
        self.effect().1 == WriteEffect::Destroys
    }

    /// Whether it makes a thing of its own.
    pub fn creates(&self) -> bool {
        self.effect().1 == WriteEffect::Makes
    }

    fn own(&self) -> Option<&M::Own> {
        match self {
            Self::Own(own) => Some(own),
            _ => None,
        }
    }

    fn creation(&self) -> Option<&M::Creation> {
        match self {
            Self::Create(wanted) => Some(wanted),
            _ => None,
        }
    }

    /// The name of what it makes, where the cloud would make a second one if the call is repeated.
    pub fn makes(&self) -> Option<&str> {
        self.own()?.makes()
    }

    /// The server group whose backends it changes, if it does nothing else.
    pub fn backends_of(&self) -> Option<&GroupRef> {
        match self {
            Self::AddBackends { group, .. } | Self::RemoveBackends { group, .. } | Self::SetBackends { group, .. } => {
                Some(group)
            }
            _ => None,
        }
    }

    /// What to do when the cloud refuses its backends: one of several is to blame.
    pub fn refused_backends(&self) -> RefusedBackends<Self> {
        match self {
            Self::AddBackends { backends, .. } if backends.len() < 2 && M::REPLACES_BACKENDS => {
                RefusedBackends::OneAddition
            }
            Self::AddBackends { backends, .. } | Self::SetBackends { backends, .. } if backends.len() < 2 => {
                RefusedBackends::One
            }
            Self::AddBackends { group, backends } => RefusedBackends::TryParts(
                halved(backends).map(|backends| Self::AddBackends { group: group.clone(), backends }),
            ),
            Self::SetBackends { group, backends } => RefusedBackends::TryParts(
                halved(backends).map(|backends| Self::SetBackends { group: group.clone(), backends }),
            ),
            // The group itself is rarely refused; its backends are.
            Self::Own(own) => match own.fills() {
                Some((name, backends)) if !backends.is_empty() => {
                    let (group, backends) = (GroupRef::Named(name.to_owned()), backends.to_vec());
                    let empty = Self::Own(own.filled_with(Vec::new()));
                    RefusedBackends::TryParts([empty, Self::AddBackends { group, backends }])
                }
                _ => RefusedBackends::None,
            },
            _ => RefusedBackends::None,
        }
    }

    /// The backends that it puts into a server group.
    pub fn adds(&self) -> &[Backend] {
        match self {
            Self::AddBackends { backends, .. } => backends,
            _ => self.own().and_then(M::Own::fills).map_or(&[], |(_, backends)| backends),
        }
    }

    /// The same operation, which puts only these of its backends into the group; `None` if nothing is left of it.
    pub fn adding(&self, backends: Vec<Backend>) -> Option<Self> {
        match self {
            Self::AddBackends { group, .. } => {
                (!backends.is_empty()).then(|| Self::AddBackends { group: group.clone(), backends })
            }
            Self::Own(own) => Some(Self::Own(own.filled_with(backends))),
            other => Some(other.clone()),
        }
    }

    /// The same in two parts, each with its reason, where the cloud refused it and may accept one; `None` if it is one thing.
    pub fn halves(&self) -> Option<[(Self, String); 2]> {
        match self {
            Self::SetListener { listener, description, group, fields } => {
                let part = |(fields, reason)| {
                    let (description, group) = (description.clone(), group.clone());
                    (Self::SetListener { listener: *listener, description, group, fields }, reason)
                };
                Some(features::halves(fields)?.map(part))
            }
            _ => Some(self.own()?.halves()?.map(|(own, reason)| (Self::Own(own), reason))),
        }
    }

    /// Whether it changes settings alone, so that nothing else relies on it.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::SetListener { fields, .. } => !fields.is_empty(),
            _ => self.own().is_some_and(M::Own::is_setting),
        }
    }

    /// The same creation in another place, where the cloud refused this one: for want of room, or for another reason.
    pub fn elsewhere(&self, had_no_room: bool) -> Option<Self> {
        Some(Self::Create(Box::new(self.creation()?.elsewhere(had_no_room)?)))
    }

    /// The same creation with the ownership marks as its only tags; `None` if it has no others.
    pub fn without_tags(&self) -> Option<Self> {
        Some(Self::Create(Box::new(self.creation()?.without_tags()?)))
    }

    /// What the user should know of where something was made, or could not be, with the cloud's code.
    pub fn remark(&self, refusal: Option<&str>) -> Option<String> {
        self.creation()?.remark(refusal)
    }

    /// Whether it takes room for backends on the load balancer: their number is limited.
    pub fn takes_room(&self) -> bool {
        matches!(self, Self::AddBackends { .. })
    }

    /// Whether it makes such room.
    pub fn makes_room(&self) -> bool {
        matches!(self, Self::RemoveBackends { .. } | Self::DeleteGroup { .. })
    }

    /// Moves the backends of a group forward, as the cloud does when the operation succeeds.
    pub fn change_members(&self, group: &mut ObservedGroup) {
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
            _ => {}
        }
    }
}

/// Both halves of several backends.
fn halved(backends: &[Backend]) -> [Vec<Backend>; 2] {
    let (left, right) = backends.split_at(backends.len() / 2);
    [left.to_vec(), right.to_vec()]
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

impl<M: OperationModel> Display for Operation<M> {
    /// One line, the same for the same operation, for plans that people and tests read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = |group: &Option<GroupRef>| group.as_ref().map(|group| format!(" -> {group}")).unwrap_or_default();
        match self {
            Self::Create(wanted) => write!(f, "create {} {wanted}", M::LOAD_BALANCER),
            Self::Delete { id } => write!(f, "delete {} {id}", M::LOAD_BALANCER),
            Self::Tag { tags } => {
                let pairs: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "tag {}", pairs.join(", "))
            }
            Self::Untag { keys } => write!(f, "untag {}", keys.join(", ")),
            Self::AddBackends { group, backends } => write!(f, "add to {group}: {}", weighted(backends)),
            Self::RemoveBackends { group, backends } => {
                write!(f, "remove from {group}: {}", list(backends.iter().map(server_name)))
            }
            Self::SetBackends { group, backends } => write!(f, "set in {group}: {}", weighted(backends)),
            Self::DeleteGroup { id, name } => write!(f, "delete group {name} ({id})"),
            Self::CreateListener { listener, group, fields, .. } => {
                write!(f, "create listener {listener}{}{}", arrow(group), in_brackets(fields))
            }
            // Most of the attributes are sent again unchanged; the reason of the step names those that change.
            Self::SetListener { listener, group, .. } => write!(f, "set listener {listener}{}", arrow(group)),
            Self::StartListener { listener } => write!(f, "start listener {listener}"),
            Self::DeleteListener { listener } => write!(f, "delete listener {listener}"),
            Self::Own(own) => Display::fmt(own, f),
        }
    }
}

/// `instance:port`, `interface(address):port` or `address:port`.
fn server_name(BackendKey { kind, server_id, server_ip, port }: &BackendKey) -> String {
    match kind {
        BackendKind::Ecs | BackendKind::Ip => format!("{server_id}:{port}"),
        BackendKind::Eni => format!("{server_id}({server_ip}):{port}"),
    }
}

/// Backends with their weights.
pub(in crate::plan) fn weighted(backends: &[Backend]) -> String {
    match backends {
        [] => "no backends".to_owned(),
        _ => list(backends.iter().map(|backend| format!("{}*{}", server_name(&backend.key), backend.weight))),
    }
}

/// Attributes with their values; nothing if there are none.
pub(in crate::plan) fn in_brackets<F: Display>(fields: &BTreeMap<F, String>) -> String {
    let list: Vec<_> = fields.iter().map(|(field, value)| format!("{field} {value}")).collect();
    if list.is_empty() { String::new() } else { format!(" ({})", list.join(", ")) }
}

/// `on` or `off`.
pub(crate) const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Texts in a row.
pub(in crate::plan) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
