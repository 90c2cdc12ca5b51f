//! A network load balancer as the cloud holds it, normalised.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use litemap::LiteMap;

use super::desired::NlbModel;
use super::model::{GroupFields, InstanceField, InstanceFields, SecurityRule, ZoneMapping};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::{self, Listeners, ObservedInstanceModel};
use crate::plan::loadbalancer::model::{Backend, GroupRef};
use crate::plan::loadbalancer::orphans::TaggedInstance;
use crate::plan::loadbalancer::steps::Target;

/// Everything that planning needs to know of one load balancer. Its server groups are those with the mark of the Service, and
/// those that it names.
pub type Observed = cloud::Observed<NlbModel>;
/// A listener.
pub type ObservedListener = cloud::ObservedListener<NlbModel>;

/// What only network load balancers have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedParts {
    /// What else is known of server groups, by id.
    pub group_details: LiteMap<String, Box<GroupDetails>>,
    /// Listeners of other load balancers that use server groups of the Service, by their ids.
    pub former: BTreeMap<String, Listeners<NlbModel>>,
    /// Security groups of the Service, the one in use first; `None` if they were not looked for.
    pub security_groups: Option<Vec<ObservedSecurityGroup>>,
    /// Jobs that were started and are not known to be done, by what they change.
    pub jobs: LiteMap<Target, Job>,
}

impl Observed {
    /// Takes over what no list shows, but not the backends of server groups that have another number of them now.
    pub fn remember(&mut self, known: &Self) {
        self.made.clone_from(&known.made);
        self.parts.security_groups.clone_from(&known.parts.security_groups);
        for (id, group) in &mut self.groups {
            let count = self.parts.group_details.get(id).map(|details| details.server_count);
            let backends = known.groups.get(id).and_then(|group| group.backends.clone());
            group.backends = backends.filter(|backends| count == Some(backends.len()));
        }
        for (key, listener) in self.listeners.iter_mut().flatten() {
            listener.certificates = known.listener(key).and_then(|found| found.certificates.clone());
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
    /// Whether it takes away what it is about, or backends of it.
    pub deletes: bool,
    /// How old it was when it was last looked at and still ran.
    pub age: Duration,
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

impl ObservedInstanceModel for ObservedInstance {
    fn tagged(&self) -> TaggedInstance<'_> {
        let Self { id, fields, dns_name: address, vpc_id, tags, .. } = self;
        let name = fields.text(InstanceField::Name);
        TaggedInstance { id, name, address, vpc_id, tags }
    }

    fn tags_mut(&mut self) -> &mut LiteMap<String, String> {
        &mut self.tags
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

/// The attribute of security groups, which decides about who may connect.
pub const SECURITY_GROUPS: &str = "security groups";

impl Observed {
    /// Ids of security groups, of which ours is perhaps given by its name.
    pub fn security_group_id<'a>(&'a self, given: &'a str) -> &'a str {
        let ours = self.parts.security_groups.iter().flatten().find(|group| group.name == given);
        ours.map_or(given, |group| &group.id)
    }

    /// Adds a job of this age for each resource whose status is transitional, also where another client started the change.
    pub fn note_what_is_busy(&mut self, age: Duration) {
        let mut busy = Vec::new();
        let job = |line: String, deletes| Job { line, deletes, age, ..Job::default() };
        if let Some(instance) = &self.instance
            && matches!(instance.status.as_str(), "Provisioning" | "Configuring" | "Deleting")
        {
            let line = format!("load balancer {} is {}", instance.id, instance.status);
            busy.push((Target::LoadBalancer, job(line, instance.status == "Deleting")));
        }
        let here = self.listeners.iter().flatten().map(|(key, listener)| (Target::from(*key), key, listener));
        let former = self.parts.former.values().flatten();
        let former = former.map(|(key, listener)| (Target::FormerListener(listener.id.clone()), key, listener));
        for (target, key, listener) in here.chain(former) {
            if !matches!(listener.status.as_str(), "" | "Running" | "Stopped") {
                let line = format!("listener {key} is {}", listener.status);
                busy.push((target, job(line, listener.status == "Deleting")));
            }
        }
        for (id, details) in &self.parts.group_details {
            if !matches!(details.status.as_str(), "" | "Available") {
                let line = format!("server group {id} is {}", details.status);
                busy.push((Target::Group(GroupRef::Id(id.clone())), job(line, false)));
            }
        }
        for (target, job) in busy {
            self.parts.jobs.entry(target).or_insert(job);
        }
    }

    /// The job of this target is done.
    pub fn settle(&mut self, target: &Target) {
        self.parts.jobs.remove(target);
        if self.parts.jobs.is_empty() {
            // An empty map keeps the memory of its entries.
            self.parts.jobs = LiteMap::new();
        }
        match target {
            Target::LoadBalancer => {
                if let Some(instance) = &mut self.instance {
                    "Active".clone_into(&mut instance.status);
                }
            }
            Target::Group(GroupRef::Id(id)) => {
                if let Some(details) = self.parts.group_details.get_mut(id) {
                    "Available".clone_into(&mut details.status);
                }
            }
            _ => {}
        }
    }
}
