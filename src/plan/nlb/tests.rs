//! A small cloud for tests, to which steps are applied; the cluster beside it is that of the classic load balancers.

mod changes_of_mind;
mod defects;
mod problem_scopes;
mod properties;
mod source_ranges;
mod unready;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use litemap::LiteMap;

use super::desired::Desired;
use super::model::{InstanceField, InstanceFields, ListenerKey, Protocol};
use super::observed::{
    GroupDetails, Observed, ObservedInstance, ObservedListener, ObservedParts, ObservedSecurityGroup,
};
use super::operation::{Operation, Own, Plan};
use super::teardown::teardown;
use crate::plan::clb::tests::World;
use crate::plan::loadbalancer::backends::Inputs;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::model::{Backend, BackendKey, ObservedGroup};
use crate::plan::loadbalancer::problem::ServiceProblem;

pub(crate) const ZONES: (&str, &str) = ("zone-maps", "z-i:vsw-i,z-j:vsw-j");

/// A Service of a network load balancer, with these annotations and two zones.
pub(crate) fn world(annotations: &[(&str, &str)]) -> World {
    let all: Vec<_> = [ZONES].iter().chain(annotations).copied().collect();
    World::new(&all)
}

pub(crate) fn desired(world: &World) -> Desired {
    let cidrs = ["192.168.0.0/16".parse().unwrap()];
    Desired::of(&Inputs {
        service: &world.service,
        nodes: &world.nodes,
        endpoints: &world.endpoints,
        enis: &world.enis,
        vpc_cidrs: &cidrs,
        settings: &world.settings,
        unready: &world.unready,
        now: world.now,
    })
}

/// A cloud in which jobs are done at once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cloud {
    pub(crate) observed: Observed,
    made: u32,
}

impl Default for Cloud {
    /// Nothing is there, and everything was looked for.
    fn default() -> Self {
        let parts = ObservedParts { security_groups: Some(Vec::new()), ..ObservedParts::default() };
        let observed = Observed { parts, ..Observed::default() };
        Self { observed, made: 0 }
    }
}

impl Cloud {
    /// A user's load balancer with a listener, a group and a tag.
    pub(crate) fn of_user() -> Self {
        let backend = Backend { key: BackendKey::ecs("i-user", 8080), weight: 100, description: "by hand".into() };
        let group = ObservedGroup { name: "users-group".to_owned(), backends: Some(Arc::new(vec![backend].into())) };
        let listener = ObservedListener {
            description: "users-listener".to_owned(),
            status: "Running".to_owned(),
            group_id: "sgp-user".to_owned(),
            ..ObservedListener::default()
        };
        let instance = ObservedInstance {
            id: "nlb-user".to_owned(),
            dns_name: "nlb-user.example.com".to_owned(),
            fields: InstanceFields::from_iter([
                (InstanceField::Name, "users".to_owned()),
                (InstanceField::AddressType, "Internet".to_owned()),
                (InstanceField::IpVersion, "ipv4".to_owned()),
                (InstanceField::CrossZone, "true".to_owned()),
                (InstanceField::DeleteProtection, "false".to_owned()),
                (InstanceField::ModificationProtection, "NonProtection".to_owned()),
            ]),
            status: "Active".to_owned(),
            vpc_id: "vpc-1".to_owned(),
            zones: desired(&world(&[])).instance.zones,
            security_group_ids: BTreeSet::from(["sg-user".to_owned()]),
            tags: LiteMap::from_iter([("made-by".to_owned(), "user".to_owned())]),
        };
        let details = GroupDetails { vpc_id: "vpc-1".to_owned(), ..GroupDetails::default() };
        let observed = Observed {
            instance: Some(instance),
            groups: LiteMap::from_iter([("sgp-user".to_owned(), group)]),
            listeners: Some(LiteMap::from_iter([(ListenerKey::port(9000, Protocol::Tcp), Box::new(listener))])),
            parts: ObservedParts {
                group_details: LiteMap::from_iter([("sgp-user".to_owned(), Box::new(details))]),
                security_groups: Some(Vec::new()),
                ..ObservedParts::default()
            },
            ..Observed::default()
        };
        Self { observed, made: 0 }
    }

    /// What carries out an operation, with the ids that the cloud would give.
    pub(crate) fn perform(&mut self, operation: &Operation) {
        self.made += 1;
        let prefix = match operation {
            Operation::Create(_) => "nlb",
            Operation::Own(Own::CreateGroup(_)) => "sgp",
            Operation::Own(Own::CreateSecurityGroup(_)) => "sg",
            _ => "lsn",
        };
        let id = Some(format!("{prefix}-{:03}", self.made));
        self.observed.apply(operation, &Answer { id, ..Answer::default() });
        let busy: Vec<_> = self.observed.parts.jobs.keys().cloned().collect();
        for target in busy {
            self.observed.settle(&target);
        }
        if let Some(instance) = self.observed.instance.as_mut().filter(|it| it.dns_name.is_empty()) {
            instance.dns_name = format!("{}.example.com", instance.id);
        }
    }

    pub(crate) fn instance(&mut self) -> &mut ObservedInstance {
        self.observed.instance.as_mut().unwrap()
    }

    pub(crate) fn listeners(&self) -> Vec<String> {
        self.observed.listeners.iter().flatten().map(|(key, _)| key.to_string()).collect()
    }

    pub(crate) fn group(&self, name: &str) -> (&String, &ObservedGroup) {
        self.observed.groups.iter().find(|(_, group)| group.name == name).unwrap()
    }
}

/// Brings a load balancer to what is desired, and returns the plan.
pub(crate) fn bring(world: &World, cloud: &mut Cloud) -> Plan {
    let plan = diff(&desired(world), &cloud.observed);
    for step in &plan.steps {
        cloud.perform(&step.operation);
    }
    plan
}

/// A load balancer as it is once the Service is served.
pub(crate) fn served(world: &World) -> Cloud {
    let mut cloud = Cloud::default();
    let plan = bring(world, &mut cloud);
    assert_eq!(plan.problems, [], "{plan}");
    assert_eq!(diff(&desired(world), &cloud.observed).steps, [], "a plan converges");
    cloud
}

/// Removes what was made for the Service.
pub(crate) fn remove(world: &World, departure: &Departure, cloud: &mut Cloud) -> Plan {
    let plan = teardown(&desired(world).owner, departure, &cloud.observed);
    for step in &plan.steps {
        cloud.perform(&step.operation);
    }
    plan
}

pub(crate) fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| step.operation.to_string()).collect()
}

#[test]
fn a_new_service_takes_four_writes_and_its_listener_comes_last() {
    let plan = bring(&world(&[]), &mut Cloud::default());
    let name = "k8s.30080.TCP.web.default.c1";
    assert_eq!(
        lines(&plan),
        [
            "create network load balancer a5e4dbfc9c2ae4642b0335607860aef6 (Internet, z-i:vsw-i, z-j:vsw-j)".to_owned(),
            format!(
                "create group {name} (ServerGroupType Instance, Protocol TCP, AddressIPVersion ipv4, AnyPortEnabled false)"
            ),
            format!("add to {name}: i-1:30080*100, i-2:30080*100"),
            format!("create listener 80/TCP -> {name}"),
        ]
    );
}

#[test]
fn the_rules_of_a_security_group_that_outlived_its_load_balancer_are_read_before_another_is_made() {
    let mut world = world(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let desired = desired(&world);
    let left = ObservedSecurityGroup {
        id: "sg-left".to_owned(),
        vpc_id: "vpc-1".to_owned(),
        tags: desired.owner.tags().into_iter().collect(),
        ..ObservedSecurityGroup::default()
    };
    let mut cloud = Cloud::default();
    cloud.observed.parts.security_groups = Some(vec![left]);
    assert_eq!(desired.needs(&cloud.observed).rules_of.as_deref(), Some("sg-left"));
    cloud.observed.parts.security_groups.iter_mut().flatten().for_each(|group| group.rules = Some(BTreeMap::new()));
    let plan = bring(&world, &mut cloud);
    assert_eq!((plan.problems.len(), cloud.listeners()), (0, vec!["80/TCP".to_owned()]), "{plan}");
}

#[test]
fn while_security_groups_cannot_be_listed_none_is_made_and_no_listener_either() {
    let mut world = world(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let mut cloud = Cloud::default();
    cloud.observed.parts.security_groups = None;
    let plan = bring(&world, &mut cloud);
    assert!(plan.problems.iter().any(|problem| problem.to_string().contains("could not be listed")), "{plan}");
    assert_eq!((&cloud.observed.parts.security_groups, cloud.observed.groups.len()), (&None, 1), "{plan}");
    assert_eq!(cloud.observed.listeners.map(|all| all.len()), Some(0), "{plan}");
}

#[test]
fn where_lists_confirm_a_load_balancer_servers_are_read_only_if_their_number_is_another_one() {
    let world = world(&[]);
    let known = served(&world).observed;
    let unread = |servers: usize| {
        let mut listed = known.clone();
        listed.groups.iter_mut().map(|(_, it)| it).for_each(|group| group.backends = None);
        listed.parts.group_details.iter_mut().map(|(_, it)| it).for_each(|details| details.server_count = servers);
        listed.remember(&known);
        desired(&world).needs(&listed).group_backends.len()
    };
    assert_eq!([unread(2), unread(1), unread(3)], [0, 1, 1]);
}

#[test]
fn every_annotation_is_documented_once_and_its_name_is_its_row() {
    use super::annotations::Name;
    use crate::plan::loadbalancer::annotations::AnnotationName;
    let keys: BTreeSet<String> = Name::TABLE.iter().map(|entry| entry.key.full()).collect();
    assert_eq!(keys.len(), Name::TABLE.len());
    assert!(Name::TABLE.iter().all(|entry| entry.name.entry().key == entry.key));
}

#[test]
fn annotations_that_only_classic_load_balancers_have_are_one_warning_and_have_no_effect() {
    let plain = desired(&world(&[]));
    let others = [("spec", "slb.s1.small"), ("bandwidth", "5"), ("instance-charge-type", "PayBySpec")];
    let wanted = desired(&world(&others));
    let told: Vec<&ServiceProblem> = wanted.warnings.iter().filter(|it| !plain.warnings.contains(it)).collect();
    assert!(told.len() == 1 && others.iter().all(|(key, _)| told[0].field.contains(key)), "{told:?}");
    assert!(told[0].to_string().contains("only classic load balancers"), "{told:?}");
    assert_eq!((&wanted.instance, &wanted.listeners), (&plain.instance, &plain.listeners));
}
