//! A classic load balancer as the cloud holds it, normalised.
//!
//! Filled from the cloud's answers by the service controller, compared by the diff, and moved forward by the operations
//! that succeeded ([`Observed::apply`](super::operation)), so that the next change can be planned without reading again.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use litemap::LiteMap;

use super::desired::ClassicModel;
use super::model::{InstanceField, InstanceFields, ListenerKey};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::model::ObservedGroup;
use crate::plan::service::observed::{self, Listeners, ObservedModel};
use crate::plan::service::orphans::TaggedInstance;
use crate::plan::service::ownership::Owner;

/// A listener.
pub type ObservedListener = observed::ObservedListener<ClassicModel>;

/// Everything that planning needs to know of one load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// `None` if there is no such load balancer.
    pub instance: Option<ObservedInstance>,
    /// By id.
    pub groups: LiteMap<String, ObservedGroup>,
    /// Ids of those among them that exist although the list of server groups lacks them.
    pub unlisted: BTreeSet<String>,
    /// Whether server groups could not be listed: there may be more than those that are known.
    pub groups_unread: bool,
    /// `None` if listeners were not read, because they decide nothing.
    pub listeners: Option<Listeners<ClassicModel>>,
    /// Ids of certificates that were looked up, with what was found; ids that were not looked up are absent.
    pub certificates: BTreeMap<String, CertificateState>,
    /// The access control list that carries the name of ours.
    pub access_list: AccessList,
}

impl ObservedModel for Observed {
    type Model = ClassicModel;

    fn tagged(&self) -> Option<TaggedInstance<'_>> {
        self.instance.as_ref().map(ObservedInstance::tagged)
    }

    fn groups(&self) -> &LiteMap<String, ObservedGroup> {
        &self.groups
    }

    fn groups_mut(&mut self) -> impl Iterator<Item = &mut ObservedGroup> {
        self.groups.iter_mut().map(|(_, group)| group)
    }

    fn unlisted(&self) -> &BTreeSet<String> {
        &self.unlisted
    }

    fn listeners(&self) -> Option<&Listeners<ClassicModel>> {
        self.listeners.as_ref()
    }

    fn may_keep_ranges(&self, owner: &Owner) -> bool {
        match &self.access_list {
            AccessList::Unread | AccessList::Absent => false,
            AccessList::Unknown => true,
            AccessList::Found(list) => owner.owns_access_list(&list.name, &list.tags),
        }
    }
}

/// What is known of an access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessList {
    /// It was not looked for.
    #[default]
    Unread,
    /// It could not be looked up.
    Unknown,
    /// There is none of this name.
    Absent,
    /// This one; whether it is ours is for its tags to say.
    Found(ObservedAccessList),
}

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedAccessList {
    /// `acl-...`
    pub id: String,
    /// Its name; ours are `k8s/acl/<service>/<namespace>/<cluster id>`.
    pub name: String,
    /// Addresses and blocks.
    pub entries: BTreeSet<IpNet>,
    /// Listeners that use it: load balancer and listener.
    pub listeners: BTreeSet<(String, ListenerKey)>,
    /// All tags.
    pub tags: LiteMap<String, String>,
}

/// What a certificate lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateState {
    /// Usable.
    Valid,
    /// Its end of validity has passed.
    Expired,
    /// No such certificate.
    Missing,
    /// It could not be looked up.
    Unknown,
}

/// The instance itself. Text is as the API spells it; empty where the API says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedInstance {
    /// `lb-...`
    pub id: String,
    /// Its attributes. Those of its place and the resource group are absent if the cloud chose them and they were not read since.
    pub fields: InstanceFields,
    /// Empty for classic network.
    pub vpc_id: String,
    /// Empty for classic network.
    pub vswitch_id: String,
    /// Whether the charge is about to change.
    pub pending_charge: PendingCharge,
    /// `active`, `inactive` or `locked`
    pub status: String,
    /// All tags.
    pub tags: LiteMap<String, String>,
}

impl ObservedInstance {
    /// What tells whose it is.
    pub fn tagged(&self) -> TaggedInstance<'_> {
        let Self { id, fields, vpc_id, tags, .. } = self;
        let (name, address) = (fields.text(InstanceField::Name), fields.text(InstanceField::Address));
        TaggedInstance { id, name, address, vpc_id, tags }
    }
}

/// A change of how an instance is charged takes effect at midnight; until then the old charge is shown, and another change
/// is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PendingCharge {
    /// Not known: lists of instances do not say.
    #[default]
    Unread,
    /// It could not be read.
    Unknown,
    /// Nothing is about to change.
    None,
    /// Something changes at this time, as the cloud writes it.
    From(String),
}

/// An additional certificate of an HTTPS listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedDomainExtension {
    /// `de-...`
    pub id: String,
    /// Its certificate.
    pub certificate_id: String,
}
