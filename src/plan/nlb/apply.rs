//! What steps do to a load balancer, so that the next change can be planned without reading everything again, and what must
//! wait for jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use litemap::LiteMap;

use super::desired::NetworkModel;
use super::model::{CreateLoadBalancer, InstanceField, ListenerFields, ListenerKey, ZoneMapping};
use super::observed::{
    Answer, GroupDetails, Job, Observed, ObservedInstance, ObservedListener, ObservedRule, ObservedSecurityGroup,
};
use super::operation::{Operation, Own, Step};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::group_operation::GroupOperation;
use crate::plan::service::listener_pass::ListenerModel;
use crate::plan::service::model::{GroupRef, ObservedGroup};
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::operation::Part;
use crate::plan::service::steps::Target;

/// The attribute of security groups, which decides about who may connect.
pub const SECURITY_GROUPS: &str = "security groups";

impl Observed {
    /// Ids of security groups, of which ours is perhaps given by its name.
    pub fn security_group_id<'a>(&'a self, given: &'a str) -> &'a str {
        let ours = self.security_groups.iter().flatten().find(|group| group.name == given);
        ours.map_or(given, |group| &group.id)
    }

    /// Moves the state forward as the cloud does when an operation succeeds.
    pub fn apply(&mut self, operation: &Operation, answer: &Answer) {
        // A group that is deleted has no id afterwards.
        let target = self.target_of(operation);
        match operation.part() {
            Part::Instance => self.apply_to_instance(operation, answer),
            Part::Groups | Part::Backends => self.apply_to_groups(operation, answer),
            Part::Listeners => self.apply_to_listeners(operation, answer),
            Part::Access => self.apply_to_security_group(operation, answer),
        }
        let target =
            if matches!(operation, Operation::Own(Own::CreateGroup(_))) { self.target_of(operation) } else { target };
        let makes_instance = matches!(operation, Operation::Create(_));
        if let Some(target) = target.filter(|_| makes_instance || !answer.job.is_empty()) {
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
            self.jobs.insert(target, job);
        }
    }

    /// What an operation keeps busy while its job runs.
    fn target_of(&self, operation: &Operation) -> Option<Target> {
        let group = |group: &GroupRef| Some(Target::Group(GroupRef::Id(self.group_id(group)?.to_owned())));
        match operation {
            Operation::Own(Own::CreateGroup(wanted)) => group(&GroupRef::Named(wanted.name.clone())),
            Operation::Own(Own::SetGroup { group: changed, .. }) => group(changed),
            Operation::Group(GroupOperation::DeleteGroup { id, .. }) => group(&GroupRef::Id(id.clone())),
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

    fn apply_to_instance(&mut self, operation: &Operation, answer: &Answer) {
        match operation {
            Operation::Create(wanted) => {
                self.instance = Some(created(wanted, answer));
                self.listeners = Some(LiteMap::new());
            }
            Operation::Delete { .. } => {
                self.instance = None;
                self.listeners = None;
            }
            Operation::Own(Own::JoinSecurityGroups { groups }) => {
                let ids: Vec<String> = groups.iter().map(|id| self.security_group_id(id).to_owned()).collect();
                if let Some(instance) = &mut self.instance {
                    instance.security_group_ids.extend(ids);
                }
            }
            _ => {
                if let Some(instance) = &mut self.instance {
                    change_instance(instance, operation);
                }
            }
        }
    }

    fn apply_to_groups(&mut self, operation: &Operation, answer: &Answer) {
        match operation {
            Operation::Own(Own::CreateGroup(wanted)) => {
                let id = answer.id.clone().unwrap_or_else(|| wanted.name.clone());
                let group = ObservedGroup { name: wanted.name.clone(), backends: Some(Arc::default()) };
                let details = GroupDetails {
                    vpc_id: self.instance.as_ref().map(|it| it.vpc_id.clone()).unwrap_or_default(),
                    fields: wanted.fields.clone(),
                    tags: LiteMap::from_iter(wanted.tags.clone()),
                    ..GroupDetails::default()
                };
                self.made.insert(wanted.name.clone(), id.clone());
                self.group_details.insert(id.clone(), Box::new(details));
                self.groups.insert(id, group);
            }
            Operation::Own(Own::SetGroup { group, fields }) => {
                let id = self.group_id(group).map(str::to_owned);
                if let Some(details) = id.and_then(|id| self.group_details.get_mut(&id)) {
                    details.fields.extend(fields.clone());
                }
            }
            Operation::Own(Own::UntagGroup { id, keys }) => {
                if let Some(details) = self.group_details.get_mut(id) {
                    details.tags.retain(|key, _| !keys.contains(key));
                }
            }
            Operation::Group(GroupOperation::DeleteGroup { id, .. }) => {
                self.groups.remove(id);
                self.group_details.remove(id);
            }
            Operation::Group(operation) => {
                let id = operation.backends_of().and_then(|group| self.group_id(group)).map(str::to_owned);
                if let Some(found) = id.and_then(|id| self.groups.get_mut(&id)) {
                    operation.apply(found);
                }
            }
            _ => {}
        }
    }

    fn apply_to_listeners(&mut self, operation: &Operation, answer: &Answer) {
        match operation {
            Operation::CreateListener { listener, description, group, fields } => {
                let made = ObservedListener {
                    id: answer.id.clone().unwrap_or_default(),
                    description: description.clone(),
                    status: "Running".to_owned(),
                    group_id: group.as_ref().and_then(|group| self.group_id(group)).unwrap_or_default().to_owned(),
                    fields: fields.clone(),
                    certificates: Some(BTreeSet::new()),
                };
                self.listeners.get_or_insert_default().insert(*listener, Box::new(made));
            }
            Operation::SetListener { listener, description, group, fields } => {
                let fields = self.sent(*listener, fields);
                let group_id = group.as_ref().and_then(|group| self.group_id(group)).map(str::to_owned);
                if let Some(found) = self.listener_mut(*listener) {
                    description.clone_into(&mut found.description);
                    found.group_id = group_id.unwrap_or_else(|| found.group_id.clone());
                    found.fields.extend(fields);
                }
            }
            Operation::StartListener { listener } => {
                if let Some(found) = self.listener_mut(*listener) {
                    "Running".clone_into(&mut found.status);
                }
            }
            Operation::DeleteListener { listener } => {
                if let Some(all) = &mut self.listeners {
                    all.remove(listener);
                }
            }
            Operation::Own(Own::DeleteFormerListener { load_balancer, listener, .. }) => {
                if let Some(all) = self.former.get_mut(load_balancer) {
                    all.remove(listener);
                }
            }
            Operation::Own(Own::AddCertificates { listener, ids })
            | Operation::Own(Own::RemoveCertificates { listener, ids }) => {
                let adds = matches!(operation, Operation::Own(Own::AddCertificates { .. }));
                let found = self.listener_mut(*listener).and_then(|found| found.certificates.as_mut());
                match found {
                    Some(found) if adds => found.extend(ids.clone()),
                    Some(found) => found.retain(|id| !ids.contains(id)),
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// Attributes for a request that changes a listener: all that it has, with those that `change`.
    pub fn sent(&self, listener: ListenerKey, changes: &ListenerFields) -> ListenerFields {
        let found = self.listeners.as_ref().and_then(|all| all.get(&listener));
        NetworkModel::sent(listener, found.map_or(&ListenerFields::new(), |found| &found.fields), changes)
    }

    fn listener_mut(&mut self, listener: ListenerKey) -> Option<&mut ObservedListener> {
        self.listeners.as_mut()?.get_mut(&listener).map(|found| &mut **found)
    }

    fn apply_to_security_group(&mut self, operation: &Operation, answer: &Answer) {
        let vpc_id = self.instance.as_ref().map(|it| it.vpc_id.clone()).unwrap_or_default();
        let groups = self.security_groups.get_or_insert_default();
        match operation {
            Operation::Own(Own::CreateSecurityGroup(wanted)) => groups.push(ObservedSecurityGroup {
                id: answer.id.clone().unwrap_or_default(),
                name: wanted.name.clone(),
                vpc_id,
                tags: LiteMap::from_iter(wanted.tags.clone()),
                rules: Some(BTreeMap::new()),
            }),
            Operation::Own(Own::DeleteSecurityGroup { id, .. }) => groups.retain(|group| group.id != *id),
            _ => {
                if let Some(rules) = groups.first_mut().and_then(|group| group.rules.as_mut()) {
                    change_rules(rules, operation);
                }
            }
        }
    }
}

fn change_rules(rules: &mut BTreeMap<String, ObservedRule>, operation: &Operation) {
    match operation {
        Operation::Own(Own::AddRules { rules: added, description }) => {
            // Their ids are read before they are used: only what was read is removed.
            rules.extend(added.iter().map(|rule| {
                let found = ObservedRule { rule: rule.clone(), is_plain: true, description: description.clone() };
                (rule.to_string(), found)
            }));
        }
        Operation::Own(Own::RemoveRules { ids }) => rules.retain(|id, _| !ids.contains(id)),
        _ => {}
    }
}

fn created(wanted: &CreateLoadBalancer, answer: &Answer) -> ObservedInstance {
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

fn change_instance(instance: &mut ObservedInstance, operation: &Operation) {
    match operation {
        Operation::Own(Own::SetInstance(fields)) => instance.fields.extend(fields),
        Operation::Own(Own::SetAddressType { address_type, zones }) => {
            instance.fields.insert(InstanceField::AddressType, address_type.clone());
            for mapping in &mut instance.zones {
                let wanted = zones.iter().find(|wanted| wanted.zone == mapping.zone);
                mapping.allocation_id = wanted.map(|wanted| wanted.allocation_id.clone()).unwrap_or_default();
            }
        }
        Operation::Own(Own::SetZones { zones }) => {
            let known = std::mem::take(&mut instance.zones);
            let kept = |wanted: &ZoneMapping| known.iter().find(|found| found.zone == wanted.zone);
            instance.zones = zones.iter().map(|wanted| kept(wanted).unwrap_or(wanted).clone()).collect();
        }
        Operation::Own(Own::LeaveSecurityGroups { groups }) => {
            instance.security_group_ids.retain(|id| !groups.contains(id))
        }
        Operation::Own(Own::AttachBandwidthPackage { id }) => {
            instance.fields.insert(InstanceField::BandwidthPackage, id.clone());
        }
        Operation::Own(Own::DetachBandwidthPackage { .. }) => {
            instance.fields.insert(InstanceField::BandwidthPackage, String::new());
        }
        Operation::Tag { tags } => instance.tags.extend(tags.clone()),
        Operation::Untag { keys } => instance.tags.retain(|key, _| !keys.contains(key)),
        _ => {}
    }
}
