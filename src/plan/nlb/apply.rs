//! What steps do to a load balancer, so that the next change can be planned without reading everything again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;

use super::desired::NlbModel;
use super::model::{CreateInstance, InstanceField, ListenerField, ListenerFields, ListenerKey, ZoneMapping};
use super::observed::{
    GroupDetails, Job, Observed, ObservedInstance, ObservedParts, ObservedRule, ObservedSecurityGroup,
};
use super::operation::{Operation, Own, Step};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::{Answer, CloudModel};
use crate::plan::loadbalancer::model::{GroupRef, ObservedGroup};
use crate::plan::loadbalancer::operation::Part;
use crate::plan::loadbalancer::ownership::LABEL_SECURITY_GROUP;
use crate::plan::loadbalancer::steps::Target;

/// How long making or changing a load balancer takes, and a change by another program.
const INSTANCE: Duration = Duration::from_secs(3);
/// How long changes of a listener take.
const LISTENER: Duration = Duration::from_secs(2);
/// How long changes of a server group and its backends take at most, as a rule. The removal of a load balancer takes no usual time,
/// and label and finalizer of its Service wait for it, so its first look comes as early.
const GROUP: Duration = Duration::from_millis(1200);
/// How long the quickest additions take: a pod that moves leaves its group when the job that added its successor has ended.
const QUICKEST: Duration = Duration::from_millis(500);
/// Up to this age, a job is looked at again at twice its age. Later looks come so long after each other, or a quarter of the age.
const DOUBLES_UNTIL: Duration = Duration::from_secs(5);
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(60);

impl CloudModel for NlbModel {
    const NEW_ARE_STOPPED: bool = false;
    const RUNNING: &'static str = "Running";
    type ObservedInstance = ObservedInstance;
    type Parts = ObservedParts;

    fn made(wanted: &CreateInstance, answer: &Answer) -> ObservedInstance {
        let mut fields = wanted.fields.clone();
        let is_dual = fields.is(InstanceField::IpVersion, "DualStack");
        for (field, usual) in [
            (InstanceField::CrossZone, "true"),
            (InstanceField::Ipv6AddressType, if is_dual { "Intranet" } else { "" }),
            (InstanceField::IpVersion, "ipv4"),
        ] {
            fields.entry(field).or_insert_with(|| usual.to_owned());
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
            Operation::DeleteGroup { id, .. } => drop(observed.parts.group_details.remove(id)),
            Operation::Own(own) => apply_own(observed, own, answer),
            _ => {}
        }
        let makes_instance = matches!(operation, Operation::Create(_));
        let target = target_of(observed, operation).filter(|_| makes_instance || !answer.job.is_empty());
        if let Some(target) = target {
            let job = Job {
                id: answer.job.clone(),
                request_id: answer.request_id.clone(),
                line: operation.to_string(),
                deletes: matches!(
                    operation,
                    Operation::Delete { .. }
                        | Operation::DeleteListener { .. }
                        | Operation::RemoveBackends { .. }
                        | Operation::Own(Own::DeleteFormerListener { .. })
                ),
                adds: operation.adds().to_vec(),
                age: Duration::ZERO,
            };
            observed.parts.jobs.insert(target, job);
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

    /// Whether a step has to wait for a job: the cloud would refuse it, or it relies on what the job does.
    fn must_wait(observed: &Observed, step: &Step) -> bool {
        let is_at =
            |id: &str, target: &Target| matches!(target, Target::Group(group) if observed.group_id(group) == Some(id));
        let on_instance = |target: &Target| matches!(target, Target::LoadBalancer | Target::Attribute(_));
        observed.parts.jobs.iter().any(|(busy, job)| match busy {
            Target::LoadBalancer => {
                on_instance(&step.target) || matches!(step.target, Target::Listener(_)) || job.deletes
            }
            Target::Group(GroupRef::Id(id)) => is_at(id, &step.target) || step.needs.iter().any(|need| is_at(id, need)),
            busy => step.target == *busy || step.needs.contains(busy) || on_instance(&step.target),
        })
    }

    fn further_label(observed: &Observed) -> Option<(&'static str, Option<&str>)> {
        let groups = observed.parts.security_groups.as_ref()?;
        Some((LABEL_SECURITY_GROUP, groups.first().map(|group| group.id.as_str())))
    }

    /// In what time the first of the jobs is likely done. A job that lasts longer than usual is looked at again once it is twice as
    /// old, but after at most 5 s, or a quarter of its age.
    fn look_again(observed: &Observed) -> Option<Duration> {
        let wait = |(target, job): (&Target, &Job)| {
            let usual = match target {
                _ if job.id.is_empty() => INSTANCE,
                Target::Group(_) if !job.adds.is_empty() => QUICKEST,
                Target::Group(_) => GROUP,
                Target::LoadBalancer if job.deletes => GROUP,
                Target::Listener(_) | Target::FormerListener(_) => LISTENER,
                Target::LoadBalancer | Target::Attribute(_) | Target::AccessList => INSTANCE,
            };
            let wait = if job.age < usual { usual - job.age } else { job.age.min(DOUBLES_UNTIL).max(job.age / 4) };
            wait.clamp(QUICKEST, LONGEST)
        };
        observed.parts.jobs.iter().map(wait).min()
    }

    fn settled_groups(observed: &Observed) -> Option<Cow<'_, LiteMap<String, ObservedGroup>>> {
        let jobs = &observed.parts.jobs;
        if jobs.is_empty() {
            return Some(Cow::Borrowed(&observed.groups));
        }
        let mut groups = observed.groups.clone();
        // A listener that is to move to a group may be waiting for a job.
        let serves = |id: &String| observed.serves(&GroupRef::Id(id.clone()));
        groups.retain(|id, _| observed.listeners.is_none() || serves(id));
        for (target, job) in jobs {
            let Target::Group(GroupRef::Id(id)) = target else { return None };
            let Some(group) = groups.get_mut(id) else { continue };
            match &mut group.backends {
                Some(found) if !job.adds.is_empty() => {
                    Arc::make_mut(found).retain(|backend| job.adds.iter().all(|added| added.key != backend.key));
                }
                _ if job.deletes => {}
                // Which backends it is about is not known.
                _ => drop(groups.remove(id)),
            }
        }
        Some(Cow::Owned(groups))
    }
}

/// What an operation keeps busy while its job runs.
fn target_of(observed: &Observed, operation: &Operation) -> Option<Target> {
    let group = |group: &GroupRef| Some(Target::Group(GroupRef::Id(observed.group_id(group)?.to_owned())));
    match operation {
        Operation::Own(Own::CreateGroup(wanted)) => group(&GroupRef::Named(wanted.name.clone())),
        Operation::Own(Own::SetGroup { group: changed, .. }) => group(changed),
        Operation::DeleteGroup { id, .. } => Some(Target::Group(GroupRef::Id(id.clone()))),
        Operation::CreateListener { listener, .. }
        | Operation::SetListener { listener, .. }
        | Operation::StartListener { listener }
        | Operation::DeleteListener { listener }
        | Operation::Own(Own::AddCertificates { listener, .. })
        | Operation::Own(Own::RemoveCertificates { listener, .. }) => Some((*listener).into()),
        Operation::Own(Own::DeleteFormerListener { id, .. }) => Some(Target::FormerListener(id.clone())),
        other if other.part() == Part::Instance => Some(Target::LoadBalancer),
        other => other.backends_of().and_then(group),
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
            observed.parts.group_details.insert(id.clone(), Box::new(details));
            observed.groups.insert(id, group);
        }
        Own::SetGroup { group, fields } => {
            let id = observed.group_id(group).map(str::to_owned);
            if let Some(details) = id.and_then(|id| observed.parts.group_details.get_mut(&id)) {
                details.fields.extend(fields.clone());
            }
        }
        Own::UntagGroup { id, keys } => {
            if let Some(details) = observed.parts.group_details.get_mut(id) {
                details.tags.retain(|key, _| !keys.contains(key));
            }
        }
        Own::DeleteFormerListener { load_balancer, listener, .. } => {
            observed.parts.former.get_mut(load_balancer).into_iter().for_each(|all| drop(all.remove(listener)));
        }
        Own::AddCertificates { listener, ids } => {
            observed.certificates_mut(listener).into_iter().for_each(|found| found.extend(ids.clone()));
        }
        Own::RemoveCertificates { listener, ids } => {
            observed.certificates_mut(listener).into_iter().for_each(|found| found.retain(|id| !ids.contains(id)));
        }
        Own::CreateSecurityGroup(wanted) => {
            let vpc_id = observed.instance.as_ref().map(|it| it.vpc_id.clone()).unwrap_or_default();
            observed.parts.security_groups.get_or_insert_default().push(ObservedSecurityGroup {
                id: answer.id.clone().unwrap_or_default(),
                name: wanted.name.clone(),
                vpc_id,
                tags: LiteMap::from_iter(wanted.tags.clone()),
                rules: Some(BTreeMap::new()),
            });
        }
        Own::DeleteSecurityGroup { id, .. } => {
            observed.parts.security_groups.get_or_insert_default().retain(|group| group.id != *id);
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
    observed.parts.security_groups.as_mut()?.first_mut()?.rules.as_mut()
}

fn change_instance(instance: &mut ObservedInstance, own: &Own) {
    match own {
        Own::SetInstance(fields) => instance.fields.extend(fields.clone()),
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
    use proptest::prelude::*;

    use super::*;
    use crate::plan::loadbalancer::cloud::ObservedListener;
    use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind};
    use crate::plan::nlb::model::Protocol;

    fn backend(number: u16) -> Backend {
        let key = BackendKey { kind: BackendKind::Ip, server_id: "a".into(), server_ip: "".into(), port: number };
        Backend { key, weight: 100, description: "".into() }
    }

    fn group_of(name: &str) -> Target {
        Target::Group(GroupRef::Id(name.to_owned()))
    }

    /// Ports of the backends of a group that holds three and that a listener uses, once settled; `None` if none is.
    fn settled_with(jobs: &[(Target, Job)]) -> Option<Vec<u16>> {
        let mut observed = Observed::default();
        for name in ["sgp-1", "sgp-2", "sgp-unused"] {
            let backends = Some(Arc::new(vec![backend(1), backend(2), backend(3)].into()));
            observed.groups.insert(name.to_owned(), ObservedGroup { name: name.to_owned(), backends });
        }
        for (port, group) in [(80, "sgp-1"), (443, "sgp-2")] {
            let listener = ObservedListener { group_id: group.to_owned(), ..ObservedListener::default() };
            observed
                .listeners
                .get_or_insert_default()
                .insert(ListenerKey::port(port, Protocol::Tcp), Box::new(listener));
        }
        observed.parts.jobs.extend(jobs.iter().cloned());
        let groups = NlbModel::settled_groups(&observed)?.into_owned();
        assert_eq!(groups.contains_key("sgp-unused"), jobs.is_empty(), "traffic may not reach it yet");
        groups.get("sgp-1").map(|group| group.members().iter().map(|it| it.key.port).collect())
    }

    #[test]
    fn while_jobs_are_pending_a_group_has_what_they_can_neither_add_nor_change() {
        let job = |id: &str, deletes, adds: &[u16]| Job {
            id: id.to_owned(),
            deletes,
            adds: adds.iter().copied().map(backend).collect(),
            ..Job::default()
        };
        let on = |target: Target, job: Job| settled_with(&[(target, job)]);
        assert_eq!(settled_with(&[]), Some(vec![1, 2, 3]));
        assert_eq!(on(group_of("sgp-1"), job("job-1", false, &[2, 3])), Some(vec![1]));
        assert_eq!(on(group_of("sgp-2"), job("job-1", false, &[2, 3])), Some(vec![1, 2, 3]));
        assert_eq!(on(group_of("sgp-1"), job("job-1", true, &[])), Some(vec![1, 2, 3]), "what it removes is gone");
        assert_eq!(on(group_of("sgp-1"), job("job-1", false, &[])), None, "it can be about each of them");
        assert_eq!(on(group_of("sgp-1"), job("", false, &[])), None, "another program changes it");
        assert_eq!(on(Target::LoadBalancer, job("job-1", false, &[])), None);
        assert_eq!(on(ListenerKey::port(443, Protocol::Tcp).into(), job("job-1", false, &[])), None);
    }

    proptest! {
        #[test]
        fn jobs_that_run_beside_others_are_seen_to_end_in_time(millis in proptest::array::uniform4(50..100_000_u64)) {
            let job = |id: &str| Job { id: id.to_owned(), ..Job::default() };
            let jobs = [
                (Target::LoadBalancer, job("")),
                (group_of("sgp-1"), Job { adds: vec![backend(1)], ..job("job-1") }),
                (group_of("sgp-2"), job("job-2")),
                (ListenerKey::port(80, Protocol::Tcp).into(), job("job-3")),
            ];
            let ends = millis.map(Duration::from_millis);
            let mut observed = Observed::default();
            observed.parts.jobs.extend(jobs.iter().cloned());
            let (mut now, mut looks) = (Duration::ZERO, 0);
            while let Some(wait) = NlbModel::look_again(&observed) {
                now += wait;
                looks += 1;
                observed.parts.jobs.iter_mut().for_each(|(_, job)| job.age += wait);
                for ((target, _), end) in jobs.iter().zip(ends) {
                    if end <= now && observed.parts.jobs.remove(target).is_some() {
                        let latest = INSTANCE.max((end * 2).min(end + DOUBLES_UNTIL).max(end * 5 / 4)) + QUICKEST;
                        prop_assert!(now <= latest, "{:?} ends after {:?}, seen after {:?}", target, end, now);
                    }
                }
            }
            prop_assert!(looks <= 30, "{}", looks);
        }
    }
}
