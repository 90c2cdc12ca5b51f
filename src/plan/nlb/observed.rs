//! A network load balancer as the cloud holds it, normalised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;

use super::desired::NetworkModel;
use super::model::{
    CreateLoadBalancer, GroupFields, InstanceField, InstanceFields, ListenerField, ListenerFields, ListenerKey,
    SecurityRule, ZoneMapping,
};
use super::operation::{Operation, Own, Step};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::cloud::{self, Answer, CloudModel, Listeners, ObservedInstanceModel};
use crate::plan::service::group_operation::GroupOperation;
use crate::plan::service::model::{Backend, GroupRef, ObservedGroup};
use crate::plan::service::operation::Part;
use crate::plan::service::orphans::TaggedInstance;
use crate::plan::service::ownership::LABEL_SECURITY_GROUP;
use crate::plan::service::steps::Target;

/// Everything that planning needs to know of one load balancer. Its server groups are those with the mark of the Service, and
/// those that it names.
pub type Observed = cloud::Observed<NetworkModel>;
/// A listener.
pub type ObservedListener = cloud::ObservedListener<NetworkModel>;

/// What only network load balancers have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedParts {
    /// What else is known of server groups, by id.
    pub group_details: LiteMap<String, Box<GroupDetails>>,
    /// Listeners of other load balancers that use server groups of the Service, by their ids.
    pub former: BTreeMap<String, Listeners<NetworkModel>>,
    /// Security groups of the Service, the one in use first; `None` if they were not looked for.
    pub security_groups: Option<Vec<ObservedSecurityGroup>>,
    /// Jobs that were started and are not known to be done, by what they change.
    pub jobs: BTreeMap<Target, Job>,
}

impl Observed {
    /// Takes over what no list shows, but not the backends of server groups that have another number of them now.
    pub fn remember(&mut self, known: &Self) {
        self.made.clone_from(&known.made);
        self.security_groups.clone_from(&known.security_groups);
        for (id, group) in &mut self.groups {
            let count = self.parts.group_details.get(id).map(|details| details.server_count);
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
        let ours = self.security_groups.iter().flatten().find(|group| group.name == given);
        ours.map_or(given, |group| &group.id)
    }

    /// What an operation keeps busy while its job runs.
    fn target_of(&self, operation: &Operation) -> Option<Target> {
        let group = |group: &GroupRef| Some(Target::Group(GroupRef::Id(self.group_id(group)?.to_owned())));
        match operation {
            Operation::Own(Own::CreateGroup(wanted)) => group(&GroupRef::Named(wanted.name.clone())),
            Operation::Own(Own::SetGroup { group: changed, .. }) => group(changed),
            Operation::Group(GroupOperation::DeleteGroup { id, .. }) => Some(Target::Group(GroupRef::Id(id.clone()))),
            Operation::Group(operation) => operation.backends_of().and_then(group),
            Operation::CreateListener { listener, .. }
            | Operation::SetListener { listener, .. }
            | Operation::StartListener { listener }
            | Operation::DeleteListener { listener }
            | Operation::Own(Own::AddCertificates { listener, .. })
            | Operation::Own(Own::RemoveCertificates { listener, .. }) => Some((*listener).into()),
            Operation::Own(Own::DeleteFormerListener { id, .. }) => Some(Target::FormerListener(id.clone())),
            other if other.part() == Part::Instance => Some(Target::LoadBalancer),
            _ => None,
        }
    }

    /// Whether a step has to wait for a job: the cloud would refuse it, or it relies on what the job does.
    pub fn must_wait(&self, step: &Step) -> bool {
        let is_at =
            |id: &str, target: &Target| matches!(target, Target::Group(group) if self.group_id(group) == Some(id));
        let on_instance = |target: &Target| matches!(target, Target::LoadBalancer | Target::Attribute(_));
        self.jobs.iter().any(|(busy, job)| match busy {
            Target::LoadBalancer => {
                on_instance(&step.target) || matches!(step.target, Target::Listener(_)) || job.deletes
            }
            Target::Group(GroupRef::Id(id)) => is_at(id, &step.target) || step.needs.iter().any(|need| is_at(id, need)),
            busy => step.target == *busy || step.needs.contains(busy) || on_instance(&step.target),
        })
    }

    /// Notes what the cloud shows to be under way, whoever started it.
    pub fn note_what_is_busy(&mut self) {
        let mut busy = Vec::new();
        let job = |line: String, deletes| Job { line, deletes, ..Job::default() };
        if let Some(instance) = &self.instance
            && matches!(instance.status.as_str(), "Provisioning" | "Configuring" | "Deleting")
        {
            let line = format!("load balancer {} is {}", instance.id, instance.status);
            busy.push((Target::LoadBalancer, job(line, instance.status == "Deleting")));
        }
        let here = self.listeners.iter().flatten().map(|(key, listener)| (Target::from(*key), key, listener));
        let former = self.former.values().flatten();
        let former = former.map(|(key, listener)| (Target::FormerListener(listener.id.clone()), key, listener));
        for (target, key, listener) in here.chain(former) {
            if !matches!(listener.status.as_str(), "" | "Running" | "Stopped") {
                let line = format!("listener {key} is {}", listener.status);
                busy.push((target, job(line, listener.status == "Deleting")));
            }
        }
        for (id, details) in &self.group_details {
            if !matches!(details.status.as_str(), "" | "Available") {
                let line = format!("server group {id} is {}", details.status);
                busy.push((Target::Group(GroupRef::Id(id.clone())), job(line, false)));
            }
        }
        for (target, job) in busy {
            self.jobs.entry(target).or_insert(job);
        }
    }

    /// The job of this target is done.
    pub fn settle(&mut self, target: &Target) {
        self.jobs.remove(target);
        match target {
            Target::LoadBalancer => {
                if let Some(instance) = &mut self.instance {
                    "Active".clone_into(&mut instance.status);
                }
            }
            Target::Group(GroupRef::Id(id)) => {
                if let Some(details) = self.group_details.get_mut(id) {
                    "Available".clone_into(&mut details.status);
                }
            }
            _ => {}
        }
    }
}

/// How long making a load balancer takes at least, and whatever another program does.
const LONG: Duration = Duration::from_secs(5);
/// How long changes of a load balancer take.
const INSTANCE: Duration = Duration::from_secs(3);
/// How long changes of a listener take.
const LISTENER: Duration = Duration::from_secs(2);
/// How long changes of a server group and its backends take at most, as a rule.
const GROUP: Duration = Duration::from_millis(1200);
/// How long the quickest additions take: a pod that moves leaves its group when the job that added its successor has ended.
const QUICKEST: Duration = Duration::from_millis(500);
/// Looks after which a job takes longer than usual, so that each further look waits a step longer.
const USUAL_LOOKS: u32 = 4;
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(60);

impl CloudModel for NetworkModel {
    const NEW_ARE_STOPPED: bool = false;
    const RUNNING: &'static str = "Running";
    type Found = ObservedInstance;
    type Parts = ObservedParts;

    fn made(wanted: &CreateLoadBalancer, answer: &Answer) -> ObservedInstance {
        let mut fields = wanted.fields.clone();
        let is_dual = fields.is(InstanceField::IpVersion, "DualStack");
        for (field, usual) in [
            (InstanceField::CrossZone, "true"),
            (InstanceField::Ipv6AddressType, if is_dual { "Intranet" } else { "" }),
            (InstanceField::IpVersion, "ipv4"),
        ] {
            fields.or_insert(field, usual);
        }
        ObservedInstance {
            id: answer.id.clone().unwrap_or_default(),
            fields,
            status: "Provisioning".to_owned(),
            vpc_id: wanted.vpc_id.clone(),
            zones: wanted.zones.clone(),
            tags: LiteMap::from_iter(wanted.tags.clone()),
            ..ObservedInstance::default()
        }
    }

    fn apply(observed: &mut Observed, operation: &Operation, answer: &Answer) {
        match operation {
            Operation::Group(GroupOperation::DeleteGroup { id, .. }) => drop(observed.group_details.remove(id)),
            Operation::Own(own) => apply_own(observed, own, answer),
            _ => {}
        }
        let makes_instance = matches!(operation, Operation::Create(_));
        let target = observed.target_of(operation).filter(|_| makes_instance || !answer.job.is_empty());
        if let Some(target) = target {
            let job = Job {
                id: answer.job.clone(),
                request_id: answer.request_id.clone(),
                line: operation.to_string(),
                deletes: matches!(
                    operation,
                    Operation::Delete { .. }
                        | Operation::DeleteListener { .. }
                        | Operation::Own(Own::DeleteFormerListener { .. })
                ),
                adds: operation.adds().to_vec(),
                looks: 0,
            };
            observed.jobs.insert(target, job);
        }
    }

    fn sent(_: ListenerKey, found: &ListenerFields, changes: &ListenerFields) -> ListenerFields {
        let mut sent = found.clone();
        sent.extend(changes.clone());
        for (switch, value) in
            [(ListenerField::Alpn, ListenerField::AlpnPolicy), (ListenerField::CaEnabled, ListenerField::CaCertificate)]
        {
            if !sent.is(switch, "true") {
                sent.remove(&value);
            }
        }
        sent
    }

    fn named_parts(parts: &ObservedParts) -> Vec<(&str, &str)> {
        let all = parts.security_groups.iter().flatten();
        all.map(|group| (group.id.as_str(), group.name.as_str())).collect()
    }

    fn must_wait(observed: &Observed, step: &Step) -> bool {
        observed.must_wait(step)
    }

    fn further_label(observed: &Observed) -> Option<(&'static str, Option<&str>)> {
        let groups = observed.security_groups.as_ref()?;
        Some((LABEL_SECURITY_GROUP, groups.first().map(|group| group.id.as_str())))
    }

    /// In what time the first of the jobs is likely done. Of a job that lasts, looks become less frequent.
    fn look_again(observed: &Observed) -> Option<Duration> {
        let time = |(target, job): (&Target, &Job)| {
            let first = match target {
                _ if job.id.is_empty() => LONG,
                // How long it takes varies, and label and finalizer of its Service wait for it.
                Target::LoadBalancer if job.deletes => LONG.min(GROUP * (1 << job.looks.min(2))),
                Target::Group(_) if job.looks < 2 && !job.adds.is_empty() => QUICKEST,
                Target::Group(_) => GROUP,
                Target::Listener(_) | Target::FormerListener(_) => LISTENER,
                Target::LoadBalancer | Target::Attribute(_) | Target::AccessList => INSTANCE,
            };
            LONGEST.min(first * (1 + job.looks / USUAL_LOOKS))
        };
        observed.jobs.iter().map(time).min()
    }
}

fn apply_own(observed: &mut Observed, own: &Own, answer: &Answer) {
    match own {
        Own::JoinSecurityGroups { groups } => {
            let ids: Vec<String> = groups.iter().map(|id| observed.security_group_id(id).to_owned()).collect();
            observed.instance.iter_mut().for_each(|instance| instance.security_group_ids.extend(ids.clone()));
        }
        Own::CreateGroup(wanted) => {
            let id = answer.id.clone().unwrap_or_else(|| wanted.name.clone());
            let group = ObservedGroup { name: wanted.name.clone(), backends: Some(Arc::default()) };
            let details = GroupDetails {
                vpc_id: observed.instance.as_ref().map(|it| it.vpc_id.clone()).unwrap_or_default(),
                fields: wanted.fields.clone(),
                tags: LiteMap::from_iter(wanted.tags.clone()),
                ..GroupDetails::default()
            };
            observed.made.insert(wanted.name.clone(), id.clone());
            observed.group_details.insert(id.clone(), Box::new(details));
            observed.groups.insert(id, group);
        }
        Own::SetGroup { group, fields } => {
            let id = observed.group_id(group).map(str::to_owned);
            if let Some(details) = id.and_then(|id| observed.group_details.get_mut(&id)) {
                details.fields.extend(fields.clone());
            }
        }
        Own::UntagGroup { id, keys } => {
            if let Some(details) = observed.group_details.get_mut(id) {
                details.tags.retain(|key, _| !keys.contains(key));
            }
        }
        Own::DeleteFormerListener { load_balancer, listener, .. } => {
            observed.former.get_mut(load_balancer).into_iter().for_each(|all| drop(all.remove(listener)));
        }
        Own::AddCertificates { listener, ids } => {
            let found = observed.listener_mut(listener).and_then(|found| found.certificates.as_mut());
            found.into_iter().for_each(|found| found.extend(ids.clone()));
        }
        Own::RemoveCertificates { listener, ids } => {
            let found = observed.listener_mut(listener).and_then(|found| found.certificates.as_mut());
            found.into_iter().for_each(|found| found.retain(|id| !ids.contains(id)));
        }
        Own::CreateSecurityGroup(wanted) => {
            let vpc_id = observed.instance.as_ref().map(|it| it.vpc_id.clone()).unwrap_or_default();
            observed.security_groups.get_or_insert_default().push(ObservedSecurityGroup {
                id: answer.id.clone().unwrap_or_default(),
                name: wanted.name.clone(),
                vpc_id,
                tags: LiteMap::from_iter(wanted.tags.clone()),
                rules: Some(BTreeMap::new()),
            });
        }
        Own::DeleteSecurityGroup { id, .. } => {
            observed.security_groups.get_or_insert_default().retain(|group| group.id != *id);
        }
        // Their ids are read before they are used: only what was read is removed.
        Own::AddRules { rules: added, description } => rules(observed).into_iter().for_each(|rules| {
            rules.extend(added.iter().map(|rule| {
                let found = ObservedRule { rule: rule.clone(), is_plain: true, description: description.clone() };
                (rule.to_string(), found)
            }));
        }),
        Own::RemoveRules { ids } => {
            rules(observed).into_iter().for_each(|rules| rules.retain(|id, _| !ids.contains(id)));
        }
        _ => observed.instance.iter_mut().for_each(|instance| change_instance(instance, own)),
    }
}

/// The rules of the security group in use.
fn rules(observed: &mut Observed) -> Option<&mut BTreeMap<String, ObservedRule>> {
    observed.security_groups.as_mut()?.first_mut()?.rules.as_mut()
}

fn change_instance(instance: &mut ObservedInstance, own: &Own) {
    match own {
        Own::SetInstance(fields) => instance.fields.extend(fields),
        Own::SetAddressType { address_type, zones } => {
            instance.fields.insert(InstanceField::AddressType, address_type.clone());
            for mapping in &mut instance.zones {
                let wanted = zones.iter().find(|wanted| wanted.zone == mapping.zone);
                mapping.allocation_id = wanted.map(|wanted| wanted.allocation_id.clone()).unwrap_or_default();
            }
        }
        Own::SetZones { zones } => {
            let known = std::mem::take(&mut instance.zones);
            let kept = |wanted: &ZoneMapping| known.iter().find(|found| found.zone == wanted.zone);
            instance.zones = zones.iter().map(|wanted| kept(wanted).unwrap_or(wanted).clone()).collect();
        }
        Own::LeaveSecurityGroups { groups } => instance.security_group_ids.retain(|id| !groups.contains(id)),
        Own::AttachBandwidthPackage { id } => {
            instance.fields.insert(InstanceField::BandwidthPackage, id.clone());
        }
        Own::DetachBandwidthPackage { .. } => {
            instance.fields.insert(InstanceField::BandwidthPackage, String::new());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_lasts_is_looked_at_less_and_less_often_and_at_least_every_minute() {
        for (target, id) in [(Target::LoadBalancer, ""), (Target::LoadBalancer, "job-1"), (Target::AccessList, "job-2")]
        {
            let after = |looks| {
                let job = Job { id: id.to_owned(), looks, ..Job::default() };
                let mut observed = Observed::default();
                observed.jobs.insert(target.clone(), job);
                NetworkModel::look_again(&observed).unwrap()
            };
            assert_eq!(after(0), after(USUAL_LOOKS - 1), "a usual job ends in this time");
            assert!(after(USUAL_LOOKS) > after(0) && after(40) > after(20), "{target:?}");
            assert_eq!(after(10_000), LONGEST);
        }
    }
}
