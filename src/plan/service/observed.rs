//! A load balancer as the cloud holds it, as far as every product has the same: what planners and the engine ask of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use litemap::LiteMap;

use super::model::{GroupRef, ObservedGroup};
use super::operation::{ListenerFields, OperationModel};
use super::orphans::TaggedInstance;
use super::ownership::{Owner, is_mark};
use crate::plan::inputs::ObjectKey;

/// What was observed of one load balancer; the default is: there is none.
pub trait ObservedModel: Clone + Debug + Default {
    /// The product.
    type Model: OperationModel;

    /// What tells whose the load balancer is; `None` if there is none.
    fn tagged(&self) -> Option<TaggedInstance<'_>>;

    /// The id of the load balancer; `None` if there is none.
    fn id(&self) -> Option<&str> {
        self.tagged().map(|instance| instance.id)
    }

    /// Its server groups, by id.
    fn groups(&self) -> &LiteMap<String, ObservedGroup>;

    /// The same, to be changed.
    fn groups_mut(&mut self) -> impl Iterator<Item = &mut ObservedGroup>;

    /// Ids of server groups that listeners use and that exist, although the list of the cloud lacks them.
    fn unlisted(&self) -> &BTreeSet<String>;

    /// Whether there may be more server groups than those that were observed.
    fn groups_unread(&self) -> bool {
        false
    }

    /// Its listeners; `None` if they were not read.
    fn listeners(&self) -> Option<&Listeners<Self::Model>>;

    /// The id of a group; of several with the same name, the one that is meant.
    fn group_id(&self, group: &GroupRef) -> Option<&str> {
        match group {
            GroupRef::Id(wanted) => self.groups().keys().find(|id| *id == wanted),
            GroupRef::Named(name) => self.groups().iter().find(|(_, group)| group.name == *name).map(|(id, _)| id),
        }
        .map(String::as_str)
    }

    /// Whether a listener sends traffic to the group.
    fn serves(&self, group: &GroupRef) -> bool {
        let Some(id) = self.group_id(group) else { return false };
        self.listeners().into_iter().flatten().any(|(_, listener)| listener.group_id == id)
    }

    /// Whether something beside groups and listeners may still keep source ranges for this owner.
    fn may_keep_ranges(&self, _owner: &Owner) -> bool {
        false
    }

    /// Whether a listener of this owner takes traffic.
    fn has_running_listener(&self, owner: &Owner) -> bool {
        self.listeners().into_iter().flatten().any(|(_, it)| it.runs() && owner.owns_listener(&it.description))
    }

    /// Ids of the server groups that listeners of this owner name.
    fn groups_of_listeners(&self, owner: &Owner) -> BTreeSet<String> {
        let ours = self.listeners().into_iter().flatten().filter(|(_, it)| owner.owns_listener(&it.description));
        ours.map(|(_, listener)| listener.group_id.clone()).filter(|id| !id.is_empty()).collect()
    }

    /// Ids of the server groups whose backends decide something and were not read: those of this owner, and those `of_users`.
    fn groups_to_read(&self, owner: &Owner, of_users: bool) -> Vec<String> {
        let decides = |group: &ObservedGroup| owner.owns_group(&group.name) || (of_users && !is_mark(&group.name));
        let unread = self.groups().iter().filter(|(_, group)| group.backends.is_none() && decides(group));
        unread.map(|(id, _)| id.clone()).collect()
    }

    /// Other Services of this cluster that marks of listeners and server groups name.
    fn other_owners(&self, owner: &Owner) -> BTreeMap<ObjectKey, Owner> {
        let listeners = self.listeners().into_iter().flatten().map(|(_, listener)| listener.description.as_str());
        let marks = listeners.chain(self.groups().values().map(|group| group.name.as_str()));
        let owners = marks.filter_map(|mark| owner.other_in_mark(mark));
        owners.map(|other| (ObjectKey::new(&other.namespace, &other.service), other)).collect()
    }

    /// What can be made twice when an answer is lost, besides listeners: ids with names.
    fn named_parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.groups().iter().map(|(id, group)| (id.as_str(), group.name.as_str()))
    }
}

/// Listeners of a load balancer.
pub type Listeners<M> = LiteMap<<M as OperationModel>::ListenerKey, Box<ObservedListener<M>>>;

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedListener<M: OperationModel> {
    /// `lsn-...`; empty where the load balancer and the port identify it.
    pub id: String,
    /// Its description: the ownership mark, if it is ours.
    pub description: String,
    /// Such as `running` and `stopped`, in capitals or not; empty if it was not read.
    pub status: String,
    /// Id of its server group, empty if none.
    pub group_id: String,
    /// All attributes that the API reported.
    pub fields: ListenerFields<M>,
    /// Certificates besides the default one; `None` if they were not read.
    pub certificates: Option<M::HeldCertificates>,
}

impl<M: OperationModel> ObservedListener<M> {
    /// Whether it takes traffic, as far as its status was read.
    pub(crate) fn runs(&self) -> bool {
        self.status.is_empty() || self.status.eq_ignore_ascii_case("running")
    }
}
