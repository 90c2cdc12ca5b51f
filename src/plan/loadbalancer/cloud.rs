//! One load balancer and its parts as the cloud holds them, and what steps do to them, whatever the product.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use litemap::LiteMap;

use super::model::{GroupRef, ObservedGroup};
use super::operation::{ListenerFields, Operation, OperationModel};
use super::orphans::TaggedInstance;
use super::ownership::{Owner, is_mark};
use super::steps::Step;
use crate::plan::inputs::ObjectKey;

/// What a product brings to what is observed of its load balancers.
pub trait CloudModel: OperationModel {
    /// Whether a new listener must be started. Where it starts by itself, one that is stopped is started before it changes.
    const NEW_ARE_STOPPED: bool;
    /// The status of a listener that takes traffic.
    const RUNNING: &'static str;
    /// The load balancer itself.
    type ObservedInstance: ObservedInstanceModel + Send + Sync;
    /// What only this product has besides.
    type Parts: Clone + Debug + Default + Eq + Send + Sync;

    /// What is there once the cloud has made a load balancer.
    fn made(wanted: &Self::Creation, answer: &Answer) -> Self::ObservedInstance;

    /// What an operation does in this product alone, after what it does in all.
    fn apply(observed: &mut Observed<Self>, operation: &Operation<Self>, answer: &Answer);

    /// Attributes for a request that changes a listener: all that it has, with the `changes`.
    fn sent(
        key: Self::ListenerKey,
        found: &ListenerFields<Self>,
        changes: &ListenerFields<Self>,
    ) -> ListenerFields<Self>;

    /// Attributes of a listener as they are sent: with ids where plans have names.
    fn with_ids(_observed: &Observed<Self>, fields: ListenerFields<Self>) -> ListenerFields<Self> {
        fields
    }

    /// Whether something beside groups and listeners may still keep source ranges for this owner.
    fn may_keep_ranges(_parts: &Self::Parts, _owner: &Owner) -> bool {
        false
    }

    /// What can be made twice besides server groups and listeners: ids with names.
    fn named_parts(_parts: &Self::Parts) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Whether a step has to wait for a pending job of the cloud.
    fn must_wait(_observed: &Observed<Self>, _step: &Step<Self>) -> bool {
        false
    }

    /// After what time to read the status of pending jobs of the cloud; `None` if there is none.
    fn look_again(_observed: &Observed<Self>) -> Option<Duration> {
        None
    }

    /// Server groups without what pending jobs of the cloud may still do to them. `None` if a job is about more than groups, so
    /// that it is not known which of them traffic reaches.
    fn settled_groups(observed: &Observed<Self>) -> Option<Cow<'_, LiteMap<String, ObservedGroup>>> {
        Self::look_again(observed).is_none().then_some(Cow::Borrowed(&observed.groups))
    }

    /// A further label of the Service and its value; `None` as value if the label must be absent.
    fn further_label(_observed: &Observed<Self>) -> Option<(&'static str, Option<&str>)> {
        None
    }
}

/// A load balancer itself, as the cloud holds it.
pub trait ObservedInstanceModel: Clone + Debug + Default + Eq {
    /// What tells whose it is.
    fn tagged(&self) -> TaggedInstance<'_>;

    /// All tags, to be changed.
    fn tags_mut(&mut self) -> &mut LiteMap<String, String>;
}

/// Everything that planning needs to know of one load balancer, normalised.
///
/// Filled from the cloud's answers by the controller, compared by the diff, and moved forward by the operations that succeeded
/// ([`Observed::apply`]), so that the next change can be planned without reading again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed<M: CloudModel> {
    /// `None` if there is no such load balancer.
    pub instance: Option<M::ObservedInstance>,
    /// Server groups by id.
    pub groups: LiteMap<String, ObservedGroup>,
    /// Ids of those among them that listeners use and that exist although the list of the cloud lacks them.
    pub unlisted: BTreeSet<String>,
    /// Whether server groups could not be listed: there may be more than those that are known.
    pub groups_unread: bool,
    /// Groups that this process made, by name: of several with the name, these are meant.
    pub made: LiteMap<String, String>,
    /// `None` if listeners were not read, because they decide nothing.
    pub listeners: Option<Listeners<M>>,
    /// What only this product has.
    pub parts: M::Parts,
}

impl<M: CloudModel> Observed<M> {
    /// A load balancer of which nothing else was read yet.
    pub fn alone(instance: M::ObservedInstance) -> Self {
        Self { instance: Some(instance), ..Self::default() }
    }

    /// The known server groups without their backends, and nothing else.
    pub fn groups_unfilled(&self) -> Self {
        let unread = |group: &ObservedGroup| ObservedGroup { name: group.name.clone(), backends: None };
        let groups = self.groups.iter().map(|(id, group)| (id.clone(), unread(group))).collect();
        Self { groups, unlisted: self.unlisted.clone(), ..Self::default() }
    }

    /// Whether a listener sends traffic to a server group that is not known.
    pub fn names_unknown_group(&self) -> bool {
        let mut named = self.listeners.iter().flatten().map(|(_, listener)| &listener.group_id);
        named.any(|id| !id.is_empty() && !self.groups.contains_key(id))
    }

    /// What tells whose the load balancer is; `None` if there is none.
    pub fn tagged(&self) -> Option<TaggedInstance<'_>> {
        self.instance.as_ref().map(M::ObservedInstance::tagged)
    }

    /// The id of the load balancer; `None` if there is none.
    pub fn id(&self) -> Option<&str> {
        self.tagged().map(|instance| instance.id)
    }

    /// The id of a group; of several with the same name, the one that is meant.
    pub fn group_id(&self, group: &GroupRef) -> Option<&str> {
        let by_id = |wanted: &String| self.groups.keys().find(|id| *id == wanted);
        let by_name = |name: &str| self.groups.iter().find(|(_, group)| group.name == name).map(|(id, _)| id);
        let found = match group {
            GroupRef::Id(id) => by_id(id),
            GroupRef::Named(name) => self.made.get(name).and_then(by_id).or_else(|| by_name(name)),
        };
        found.map(String::as_str)
    }

    /// What can be made twice when an answer is lost, besides listeners: ids with names.
    pub fn named_parts(&self) -> impl Iterator<Item = (&str, &str)> {
        let groups = self.groups.iter().map(|(id, group)| (id.as_str(), group.name.as_str()));
        groups.chain(M::named_parts(&self.parts))
    }

    /// Whether a listener sends traffic to the group.
    pub fn serves(&self, group: &GroupRef) -> bool {
        let Some(id) = self.group_id(group) else { return false };
        self.listeners.iter().flatten().any(|(_, listener)| listener.group_id == id)
    }

    /// Whether a listener of this owner takes traffic.
    pub fn has_running_listener(&self, owner: &Owner) -> bool {
        self.listeners.iter().flatten().any(|(_, it)| it.runs() && owner.owns_listener(&it.description))
    }

    /// Whether a server group or a listener of this owner is known.
    pub fn shows_parts(&self, owner: &Owner) -> bool {
        let is_ours = |it: &ObservedListener<M>| owner.owns_listener(&it.description);
        self.groups.values().any(|group| owner.owns_group(&group.name))
            || self.listeners.iter().flatten().any(|(_, listener)| is_ours(listener))
    }

    /// Whether a listener on the load balancer of a user goes together with its Service, which `overrides` listeners there or
    /// not. A group of ours cannot go without the listener of ours that uses it, whatever the annotation says now.
    pub fn goes_with(&self, owner: &Owner, overrides: bool, listener: &ObservedListener<M>) -> bool {
        let uses_ours = || self.groups.get(&listener.group_id).is_some_and(|group| owner.owns_group(&group.name));
        owner.owns_listener(&listener.description) && (overrides || uses_ours())
    }

    /// Ids of the server groups that listeners of this owner name.
    pub fn groups_of_listeners(&self, owner: &Owner) -> BTreeSet<String> {
        let ours = self.listeners.iter().flatten().filter(|(_, it)| owner.owns_listener(&it.description));
        ours.map(|(_, listener)| listener.group_id.clone()).filter(|id| !id.is_empty()).collect()
    }

    /// Ids of the server groups whose backends decide something and were not read: those of this owner, and those `of_users`.
    pub fn groups_to_read(&self, owner: &Owner, of_users: bool) -> Vec<String> {
        let decides = |group: &ObservedGroup| owner.owns_group(&group.name) || (of_users && !is_mark(&group.name));
        let unread = self.groups.iter().filter(|(_, group)| group.backends.is_none() && decides(group));
        unread.map(|(id, _)| id.clone()).collect()
    }

    /// Other Services of this cluster that marks of listeners and server groups name.
    pub fn other_owners(&self, owner: &Owner) -> BTreeMap<ObjectKey, Owner> {
        let listeners = self.listeners.iter().flatten().map(|(_, listener)| listener.description.as_str());
        let marks = listeners.chain(self.groups.values().map(|group| group.name.as_str()));
        let owners = marks.filter_map(|mark| owner.other_in_mark(mark));
        owners.map(|other| (ObjectKey::new(&other.namespace, &other.service), other)).collect()
    }

    /// Moves the state forward as the cloud does when an operation succeeds.
    pub fn apply(&mut self, operation: &Operation<M>, answer: &Answer) {
        let id_of = |group: &GroupRef| self.group_id(group).map(str::to_owned);
        match operation {
            Operation::Create(wanted) => {
                (self.instance, self.listeners) = (Some(M::made(wanted, answer)), Some(LiteMap::new()));
            }
            Operation::Delete { .. } => (self.instance, self.listeners) = (None, None),
            Operation::Tag { tags } => {
                self.instance.iter_mut().for_each(|instance| instance.tags_mut().extend(tags.clone()));
            }
            Operation::Untag { keys } => {
                self.instance.iter_mut().for_each(|it| it.tags_mut().retain(|key, _| !keys.contains(key)));
            }
            Operation::DeleteGroup { id, .. } => drop(self.groups.remove(id)),
            Operation::AddBackends { group, .. }
            | Operation::RemoveBackends { group, .. }
            | Operation::SetBackends { group, .. } => {
                if let Some(found) = id_of(group).and_then(|id| self.groups.get_mut(&id)) {
                    operation.change_members(found);
                }
            }
            Operation::CreateListener { listener, description, group, fields } => {
                let made = ObservedListener {
                    id: answer.id.clone().unwrap_or_default(),
                    description: description.clone(),
                    status: if M::NEW_ARE_STOPPED { "stopped" } else { M::RUNNING }.to_owned(),
                    group_id: group.as_ref().and_then(id_of).unwrap_or_default(),
                    fields: M::with_ids(self, fields.clone()),
                    certificates: Some(M::HeldCertificates::default()),
                };
                self.listeners.get_or_insert_default().insert(*listener, Box::new(made));
            }
            Operation::SetListener { listener, description, group, fields } => {
                let (fields, group_id) = (self.sent(*listener, fields), group.as_ref().and_then(id_of));
                if let Some(found) = self.listener_mut(listener) {
                    description.clone_into(&mut found.description);
                    found.group_id = group_id.unwrap_or_else(|| found.group_id.clone());
                    found.fields.extend(fields);
                }
            }
            Operation::StartListener { listener } => {
                if let Some(found) = self.listener_mut(listener) {
                    M::RUNNING.clone_into(&mut found.status);
                }
            }
            Operation::DeleteListener { listener } => {
                self.listeners.iter_mut().for_each(|all| drop(all.remove(listener)));
            }
            Operation::Own(_) => {}
        }
        M::apply(self, operation, answer);
    }

    /// A listener; `None` also if they were not read.
    pub fn listener(&self, listener: &M::ListenerKey) -> Option<&ObservedListener<M>> {
        self.listeners.as_ref()?.get(listener).map(|found| &**found)
    }

    /// The same, to change it.
    pub(in crate::plan) fn listener_mut(&mut self, listener: &M::ListenerKey) -> Option<&mut ObservedListener<M>> {
        self.listeners.as_mut()?.get_mut(listener).map(|found| &mut **found)
    }

    /// The certificates that a listener holds besides its own, to change them.
    pub(in crate::plan) fn certificates_mut(&mut self, listener: &M::ListenerKey) -> Option<&mut M::HeldCertificates> {
        self.listener_mut(listener)?.certificates.as_mut()
    }

    /// Attributes for a request that changes a listener: all that it has, with those that `change`.
    pub fn sent(&self, listener: M::ListenerKey, changes: &ListenerFields<M>) -> ListenerFields<M> {
        let none = ListenerFields::<M>::new();
        let found = self.listener(&listener).map_or(&none, |found| &found.fields);
        M::with_ids(self, M::sent(listener, found, changes))
    }
}

/// What the cloud answered to a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Id of what was made.
    pub id: Option<String>,
    /// The address of the load balancer that was made, where it is known at once.
    pub address: Option<String>,
    /// Its VPC.
    pub vpc_id: Option<String>,
    /// Its vSwitch.
    pub vswitch_id: Option<String>,
    /// The job that carries the write out; empty if it is done.
    pub job: String,
    /// The request's id, for support tickets.
    pub request_id: String,
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
