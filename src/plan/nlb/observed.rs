//! A network load balancer as the cloud holds it, normalised.
//!
//! Filled from the cloud's answers by the controller, compared by the diff, and moved forward by the operations that
//! succeeded, so that the next change can be planned without reading again.

use std::collections::{BTreeMap, BTreeSet};

use litemap::LiteMap;

use super::desired::NetworkModel;
use super::model::{GroupFields, InstanceField, InstanceFields, SecurityRule, ZoneMapping};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::model::{Backend, GroupRef, ObservedGroup};
use crate::plan::service::observed::{self, Listeners, ObservedModel};
use crate::plan::service::orphans::TaggedInstance;
use crate::plan::service::steps::Target;

/// A listener.
pub type ObservedListener = observed::ObservedListener<NetworkModel>;

/// Everything that planning needs to know of one load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// `None` if there is no such load balancer.
    pub instance: Option<ObservedInstance>,
    /// Server groups by id: those with the mark of the Service, and those that it names.
    pub groups: LiteMap<String, ObservedGroup>,
    /// What else is known of these groups, by id.
    pub group_details: LiteMap<String, Box<GroupDetails>>,
    /// Groups that are used and exist although the list of the cloud lacks them, and were not made a short while ago.
    pub unlisted: BTreeSet<String>,
    /// Whether server groups could not be listed: there may be more than those that are known.
    pub groups_unread: bool,
    /// Groups that this process made, by name: of several with the name, these are meant.
    pub made: LiteMap<String, String>,
    /// `None` if listeners were not read, because they decide nothing.
    pub listeners: Option<Listeners<NetworkModel>>,
    /// Listeners of other load balancers that use server groups of the Service, by their ids.
    pub former: BTreeMap<String, Listeners<NetworkModel>>,
    /// Security groups of the Service, the one in use first; `None` if they were not looked for.
    pub security_groups: Option<Vec<ObservedSecurityGroup>>,
    /// Jobs that were started and are not known to be done, by what they change.
    pub jobs: BTreeMap<Target, Job>,
}

impl ObservedModel for Observed {
    type Model = NetworkModel;

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

    fn listeners(&self) -> Option<&Listeners<NetworkModel>> {
        self.listeners.as_ref()
    }

    /// Of several groups with the same name, the one that was made here.
    fn group_id(&self, group: &GroupRef) -> Option<&str> {
        let by_id = |wanted: &String| self.groups.iter().find(|(id, _)| *id == wanted);
        let by_name = |name: &str| self.groups.iter().find(|(_, group)| group.name == name);
        let made = |name: &str| by_id(self.made.get(name)?);
        let found = match group {
            GroupRef::Id(id) => by_id(id),
            GroupRef::Named(name) => made(name).or_else(|| by_name(name)),
        };
        found.map(|(id, _)| id.as_str())
    }

    fn named_parts(&self) -> impl Iterator<Item = (&str, &str)> {
        let groups = self.groups.iter().map(|(id, group)| (id.as_str(), group.name.as_str()));
        let security_groups = self.security_groups.iter().flatten();
        groups.chain(security_groups.map(|group| (group.id.as_str(), group.name.as_str())))
    }
}

impl Observed {
    /// Takes over what no list shows, but not the backends of server groups that have another number of them now.
    pub fn remember(&mut self, known: &Self) {
        self.made.clone_from(&known.made);
        self.security_groups.clone_from(&known.security_groups);
        for (id, group) in &mut self.groups {
            let count = self.group_details.get(id).map(|details| details.server_count);
            let backends = known.groups.get(id).and_then(|group| group.backends.clone());
            group.backends = backends.filter(|backends| count == Some(backends.len()));
        }
        for (key, listener) in self.listeners.iter_mut().flatten() {
            let found = known.listeners.as_ref().and_then(|all| all.get(key));
            listener.certificates = found.and_then(|found| found.certificates.clone());
        }
    }
}

/// Something that the cloud carries out after it has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The cloud's id of it; empty where the state of the resource tells when it is done.
    pub id: String,
    /// Request id of the call that started it; empty if it was not started by this process.
    pub request_id: String,
    /// What was to be done, as the plan prints it.
    pub line: String,
    /// Whether it takes away what it is about.
    pub deletes: bool,
    /// How often it was looked at and still ran.
    pub looks: u32,
    /// Backends that it adds: if it fails, one of them can be to blame.
    pub adds: Vec<Backend>,
}

/// The instance itself. Text is as the API spells it; empty where the API says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedInstance {
    /// `nlb-...`
    pub id: String,
    /// Its attributes.
    pub fields: InstanceFields,
    /// What clients connect to.
    pub dns_name: String,
    /// `Provisioning`, `Active`, `Configuring`, `Inactive`, `CreateFailed`, `Deleting`
    pub status: String,
    /// `vpc-...`
    pub vpc_id: String,
    /// In the order of the API.
    pub zones: Vec<ZoneMapping>,
    /// `sg-...`
    pub security_group_ids: BTreeSet<String>,
    /// All tags.
    pub tags: LiteMap<String, String>,
}

impl ObservedInstance {
    /// What tells whose it is.
    pub fn tagged(&self) -> TaggedInstance<'_> {
        let Self { id, fields, dns_name: address, vpc_id, tags, .. } = self;
        let name = fields.text(InstanceField::Name);
        TaggedInstance { id, name, address, vpc_id, tags }
    }
}

/// What is known of a server group besides its name and its backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDetails {
    /// `Creating`, `Available`, `Configuring`; or what its servers say: `Configuring` while one of them is being added,
    /// changed or removed.
    pub status: String,
    /// `vpc-...`
    pub vpc_id: String,
    /// All attributes that the API reported.
    pub fields: GroupFields,
    /// How many servers it holds, so that those of an empty group need not be read.
    pub server_count: usize,
    /// Load balancers with a listener that uses it.
    pub load_balancers: Vec<String>,
    /// All tags.
    pub tags: LiteMap<String, String>,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedSecurityGroup {
    /// `sg-...`
    pub id: String,
    /// Its name; ours are `k8s-nlb-<default name>`.
    pub name: String,
    /// `vpc-...`
    pub vpc_id: String,
    /// All tags.
    pub tags: LiteMap<String, String>,
    /// Rules for incoming traffic by id, as far as they are about blocks of addresses; `None` if they were not read.
    pub rules: Option<BTreeMap<String, ObservedRule>>,
}

/// A rule of a security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRule {
    /// Whom it lets in or keeps out.
    pub rule: SecurityRule,
    /// Whether it is about every protocol and port, with the priority of [`SecurityRule::priority`].
    pub is_plain: bool,
    /// Ours are `k8s.<namespace>.<service>.<cluster id>`.
    pub description: String,
}

/// What the cloud answered to a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Id of what was made.
    pub id: Option<String>,
    /// The job that carries the write out; empty if it is done.
    pub job: String,
    /// The request's id, for support tickets.
    pub request_id: String,
}
