//! A classic load balancer as the cloud holds it, normalised.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use litemap::LiteMap;

use super::desired::ClbModel;
use super::model::{InstanceField, InstanceFields, ListenerKey};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::{self, ObservedInstanceModel};
use crate::plan::loadbalancer::orphans::TaggedInstance;

/// Everything that planning needs to know of one load balancer.
pub type Observed = cloud::Observed<ClbModel>;
/// A listener.
pub type ObservedListener = cloud::ObservedListener<ClbModel>;

/// What only classic load balancers have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedParts {
    /// Ids of certificates that were looked up, with what was found; ids that were not looked up are absent.
    pub certificates: BTreeMap<String, CertificateState>,
    /// The access control list that carries the name of ours.
    pub access_list: AccessList,
    /// Whether a load balancer that was preserved keeps the list of the usual name, so that ours has another name.
    pub list_is_kept: bool,
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
    /// Its name; ours are `k8s/acl/<service>/<namespace>/<cluster id>`, or `k8s/acl/<digest>` beside one that was preserved.
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

impl ObservedInstanceModel for ObservedInstance {
    fn tagged(&self) -> TaggedInstance<'_> {
        let Self { id, fields, vpc_id, tags, .. } = self;
        let (name, address) = (fields.text(InstanceField::Name), fields.text(InstanceField::Address));
        TaggedInstance { id, name, address, vpc_id, tags }
    }

    fn tags_mut(&mut self) -> &mut LiteMap<String, String> {
        &mut self.tags
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
