//! What a problem is about stays in the cloud as it is, and everything else goes on.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;

use super::properties::some_world;
use super::{Cloud, World, edited, key, node, port};
use crate::plan::clb::annotations::{Annotations, Name};
use crate::plan::clb::model::Protocol;
use crate::plan::clb::observed::AccessList;
use crate::plan::clb::operation::{Operation, Plan, Step};
use crate::plan::inputs::{Ingress, NodeView};
use crate::plan::loadbalancer::annotations::{AnnotationName, parse};
use crate::plan::loadbalancer::cloud::ObservedInstanceModel as _;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::model::GroupRef;
use crate::plan::loadbalancer::ownership::{LABEL_LB_ID, MARK_TAG};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::loadbalancer::steps::Target;

fn plan(world: &World, cloud: &Cloud) -> Plan {
    diff(&world.desired_with_problems(), &cloud.observed)
}

/// The Service with one annotation that makes no sense; `None` if it takes any value.
fn damaged(world: &World, name: Name) -> Option<World> {
    let mut world = world.clone();
    let key = name.key();
    let wrong = |world: &World| parse::<Name>(&world.service).is_wrong(name);
    ["nonsense", " \u{1} "].into_iter().find_map(|value| {
        world.service.annotations.insert(key.clone(), value.to_owned());
        wrong(&world).then(|| world.clone())
    })
}

/// Changes of backends in groups that exist, in the order of their text.
fn backend_steps(plan: &Plan, cloud: &Cloud) -> Vec<String> {
    let exists = |group: &GroupRef| cloud.observed.group_id(group).is_some();
    let steps = plan.steps.iter().filter(|step| step.operation.backends_of().is_some_and(exists));
    let mut lines: Vec<String> = steps.map(ToString::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn backends_follow_on_a_users_public_load_balancer_that_is_forbidden_while_it_serves() {
    let annotations = [("id", "lb-user"), ("vgroup-port", "rsp-user:80")];
    for (annotations, serves) in [(&annotations[..1], true), (&annotations, true), (&annotations, false)] {
        let mut world = World::new(annotations);
        let mut cloud = Cloud::of_user();
        world.bring(&mut cloud);
        let published = Ingress { ip: cloud.instance().tagged().address.to_owned(), ..Ingress::default() };
        world.service.ingress = if serves { vec![published] } else { Vec::new() };
        world.settings.service.disable_public = true;
        world.nodes.pop();
        let plan = plan(&world, &cloud);
        assert!(plan.problems.len() == 1 && plan.problems[0].to_string().contains("service.disable_public"), "{plan}");
        let changes = backend_steps(&plan, &cloud);
        assert_eq!((changes.len(), plan.steps.len()), if serves { (1, 1) } else { (0, 0) }, "{plan}");
    }
}

#[test]
fn backends_follow_on_a_load_balancer_that_the_service_has_used_and_may_no_longer_use() {
    let of_user = World::new(&[("id", "lb-user")]);
    let mut users = Cloud::of_user();
    of_user.bring(&mut users);
    users.instance().tags.insert(MARK_TAG.to_owned(), "another".to_owned());
    let mut own = World::new(&[]).served();
    let restated = World::new(&[("id", &own.instance().id.clone())]);
    for (world, cloud, label, changes) in
        [(&of_user, &users, "lb-user", 1), (&of_user, &users, "lb-another", 0), (&restated, &own, "", 1)]
    {
        let mut world = world.clone();
        world.service.labels.insert(LABEL_LB_ID.to_owned(), label.to_owned());
        world.nodes.pop();
        let plan = plan(&world, cloud);
        assert!(plan.is_unusable && plan.problems.len() == 1, "{plan}");
        assert_eq!((backend_steps(&plan, cloud).len(), plan.steps.len()), (changes, changes), "{label:?}: {plan}");
    }
}

/// Annotations that decide which backends there are, or how much traffic they take.
const ABOUT_BACKENDS: [Name; 8] = [
    Name::BackendLabel,
    Name::RemoveUnscheduledBackend,
    Name::BackendIpVersion,
    Name::IpVersion,
    Name::VgroupPort,
    Name::Weight,
    Name::DefaultWeight,
    Name::IgnoreWeightUpdate,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn backends_follow_the_endpoints_whatever_an_annotation_says(
        before in some_world(false),
        after in some_world(false),
        entry in select(Name::TABLE),
    ) {
        let mut cloud = Cloud::default();
        for step in plan(&before, &cloud).steps {
            cloud.perform(&step.operation);
        }
        let mut now = before;
        (now.endpoints, now.nodes, now.enis) = (after.endpoints, after.nodes, after.enis);
        // An id says which load balancer is meant; it is tried by itself.
        let broken = damaged(&now, entry.name).filter(|_| entry.name != Name::Id);
        if let Some(broken) = broken {
            let (sound, broken) = (plan(&now, &cloud), plan(&broken, &cloud));
            if !ABOUT_BACKENDS.contains(&entry.name) {
                // A scheduler that fits no listener is a problem on both sides.
                prop_assert_eq!(backend_steps(&broken, &cloud), backend_steps(&sound, &cloud), "{}", entry.name.key());
            }
            prop_assert!(broken.problems.iter().any(|problem| problem.field == entry.name.key()), "{}", broken);
        }
    }
}

/// A load balancer with two listeners, and the Service once a pod has left and an annotation was damaged.
fn two_listeners(annotations: &[(&str, &str)]) -> (World, Cloud) {
    let ports = [port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)];
    let cloud = World::new(&[super::ENI, ("protocol-port", "http:80")]).ports(&ports).served();
    let mut all = vec![super::ENI, ("protocol-port", "http:80")];
    all.extend_from_slice(annotations);
    let mut world = World::new(&all).ports(&ports);
    world.endpoints.endpoints.remove(0);
    (world, cloud)
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| step.operation.to_string()).collect()
}

#[test]
fn a_wrong_scheduler_stops_listeners_and_not_backends() {
    let (world, cloud) = two_listeners(&[("scheduler", "nonsense"), ("spec", "slb.s2.small"), ("name", "new-name")]);
    let plan = plan(&world, &cloud);
    assert_eq!(plan.problems.len(), 1, "{plan}");
    let lines = lines(&plan);
    assert_eq!(lines.iter().filter(|line| line.starts_with("remove from")).count(), 2, "{plan}");
    assert!(lines.contains(&"set name new-name".to_owned()), "{plan}");
    assert!(!lines.iter().any(|line| line.contains("listener")), "{plan}");
}

#[test]
fn a_problem_of_one_setting_leaves_the_others_and_the_other_listener_alone() {
    let wrong = [("sticky-session", "perhaps"), ("idle-timeout", "30"), ("established-timeout", "100")];
    let (world, cloud) = two_listeners(&wrong);
    let plan = plan(&world, &cloud);
    let touched: Vec<_> = plan.steps.iter().filter(|step| matches!(step.target, Target::Listener(_))).collect();
    assert_eq!(touched.len(), 2, "{plan}");
    assert_eq!(touched[0].reason, "spec.ports[0]: IdleTimeout unset -> 30", "{plan}");
    assert!(touched[1].to_string().starts_with("set listener 443/tcp"), "{plan}");
}

#[test]
fn a_problem_of_the_load_balancer_leaves_its_attributes_and_nothing_else() {
    let wrong = [("bandwidth", "much"), ("name", "new-name"), ("established-timeout", "100")];
    let (world, cloud) = two_listeners(&wrong);
    let plan = plan(&world, &cloud);
    let lines = lines(&plan);
    assert!(!lines.iter().any(|line| line.starts_with("set name")), "{plan}");
    assert!(lines.iter().any(|line| line.starts_with("set listener 443/tcp")), "{plan}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("remove from")).count(), 2, "{plan}");
}

#[test]
fn nothing_is_made_while_its_own_problem_stands() {
    let cloud = Cloud::default();
    let none = plan(&World::new(&[("bandwidth", "much")]), &cloud);
    assert_eq!((none.steps.len(), none.problems.len()), (0, 1), "{none}");
    let ports = [port(80, "TCP", 8080, 30080), port(81, "SCTP", 8081, 30081)];
    let some = plan(&World::new(&[]).ports(&ports), &cloud);
    assert_eq!(some.problems.len(), 1, "{some}");
    let made: Vec<_> = some.steps.iter().filter(|step| step.operation.creates()).collect();
    assert_eq!(made.len(), 3, "the load balancer, a group and a listener: {some}");
    let without = plan(&World::new(&[("scheduler", "nonsense")]), &cloud);
    assert!(without.steps.iter().all(|step| !matches!(step.target, Target::Listener(_))), "{without}");
}

#[test]
fn nodes_leave_a_port_that_the_api_server_takes_back_whatever_else_is_wrong() {
    let ports = [port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)];
    let served = World::new(&[]).ports(&ports);
    let with = |change: &dyn Fn(&mut World)| {
        let mut world = served.clone();
        change(&mut world);
        world
    };
    // Without its node port, a port keeps its listener and its group.
    let taken = with(&|it| it.service.ports[1].node_port = 0);
    let told = plan(&taken, &served.served()).problems;
    assert_eq!((told.len(), told[0].field.as_str()), (1, "spec.ports[1].nodePort"));
    let moved = with(&|it| it.service.ports[1].node_port = 30090);
    let worlds = [
        ("taken back", taken.clone()),
        ("which nodes may serve is not known", taken.clone().with(&[("backend-label", "!!")])),
        ("public addresses are forbidden", World { settings: forbidding(), ..taken.clone() }),
        ("no node is known", World { nodes: Vec::new(), ..taken }),
        ("another one, and no node is known", World { nodes: Vec::new(), ..moved }),
        (
            "the port is gone, and no node is known",
            with(&|it| (it.nodes, it.service.ports) = (vec![], ports[..1].to_vec())),
        ),
    ];
    for (why, world) in worlds {
        let mut cloud = served.served();
        let stays = cloud.backends("k8s/30080/web/default/c1");
        for step in plan(&world, &cloud).steps {
            cloud.perform(&step.operation);
        }
        assert_eq!(cloud.backends("k8s/30081/web/default/c1"), [].into(), "{why}");
        assert_eq!(cloud.backends("k8s/30080/web/default/c1"), stays, "{why}");
        assert_eq!(plan(&world, &cloud).steps, [], "{why}");
    }
}

/// The last part of the fields that problems name.
pub(crate) fn fields(problems: &[ServiceProblem]) -> Vec<&str> {
    problems.iter().map(|it| it.field.rsplit("loadbalancer-").next().unwrap()).collect()
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let wrong = [
        ("protocol-port", "https:80"),
        ("address-type", "somewhere"),
        ("sticky-session", "on"),
        ("acl-status", "on"),
        ("idle-timeout", "long"),
    ];
    let none = plan(&World::new(&wrong), &Cloud::default());
    let told: BTreeSet<&str> = fields(&none.problems).into_iter().collect();
    let all = ["address-type", "idle-timeout", "cert-id", "acl-id", "acl-type", "sticky-session-type"];
    assert_eq!((told, none.steps.len()), (all.into(), 0), "{none}");
    let unplaced = plan(&World::new(&[("ip", "192.168.0.9"), ("protocol-port", "https:80")]), &Cloud::default());
    assert_eq!((unplaced.problems.len(), unplaced.steps.len()), (2, 0), "{unplaced}");
    let twice = plan(&World::new(&[("protocol-port", "https:80"), ("cert-id", "")]), &Cloud::default());
    assert_eq!(fields(&twice.problems), ["cert-id"], "{twice}");
}

#[test]
fn no_load_balancer_is_made_while_every_port_has_a_problem() {
    let https = World::new(&[("protocol-port", "https:80")]);
    let in_vain = plan(&https, &Cloud::default());
    assert_eq!((fields(&in_vain.problems), in_vain.steps.len()), (vec!["cert-id"], 0), "{in_vain}");
    let ports = [port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)];
    let of_use = plan(&https.ports(&ports), &Cloud::default());
    assert!(of_use.problems.len() == 1 && of_use.to_string().contains("create listener 81/tcp"), "{of_use}");
    let unmanaged = plan(&World::new(&[("protocol-port", "https:80"), ("manage", "backends")]), &Cloud::default());
    assert!(unmanaged.steps.iter().any(|step| step.target == Target::LoadBalancer), "{unmanaged}");
}

#[test]
fn a_tag_that_is_wrong_costs_the_tag_and_not_the_load_balancer() {
    let tags = |count: usize| (0..count).map(|it| format!("key{it:02}=value")).collect::<Vec<_>>().join(",");
    let mut world = World::new(&[("additional-resource-tags", &tags(19))]);
    let unreadable = plan(&world, &Cloud::default());
    assert!(unreadable.problems.len() == 1 && unreadable.to_string().contains("create listener"), "{unreadable}");
    world = world.with(&[("additional-resource-tags", &tags(18))]);
    world.settings.service.defaults.tags.insert("team".to_owned(), "web".to_owned());
    let mut cloud = Cloud::default();
    let many = plan(&world, &cloud);
    let Operation::Create(create) = &many.steps[0].operation else { panic!("{many}") };
    assert!(many.problems.len() == 1 && many.to_string().contains("create listener"), "{many}");
    assert!(create.tags.len() == 20 && create.tags.contains_key("key00"), "{create:?}");
    let Some(Operation::Create(less)) = many.steps[0].operation.without_tags() else { panic!("{many}") };
    assert_eq!(less.tags, world.desired_with_problems().owner.tags(), "where the cloud refuses the others");
    assert_eq!(Operation::Create(less).without_tags(), None);
    for step in many.steps {
        cloud.perform(&step.operation);
    }
    assert_eq!(plan(&world, &cloud).steps, [], "what has no room is not asked for again");
}

/// Steps about the listener on port 80.
fn of_listener(plan: &Plan) -> Vec<&Step> {
    plan.steps.iter().filter(|step| step.target == Target::from(key(80, Protocol::Tcp))).collect()
}

#[test]
fn a_listener_moves_to_its_group_before_settings_that_the_cloud_may_refuse() {
    let cloud = World::new(&[]).served();
    let both = plan(&released(World::new(&[("established-timeout", "100")])), &cloud);
    let [moves, sets] = of_listener(&both)[..] else { panic!("{both}") };
    let group = |step: &Step| match &step.operation {
        Operation::SetListener { group, fields, .. } => (group.clone(), fields.values().any(|value| value == "100")),
        _ => panic!("{both}"),
    };
    let released_group = Some(GroupRef::Named("k8s/30090/web/default/c1".to_owned()));
    assert_eq!((group(moves), group(sets)), ((released_group.clone(), false), (released_group, true)), "{both}");
    assert_eq!(of_listener(&plan(&released(World::new(&[])), &cloud)).len(), 1, "one call for one thing");
    assert_eq!(of_listener(&plan(&World::new(&[("established-timeout", "100")]), &cloud)).len(), 1);
    // What a request lacks is no reason to keep the old group either.
    let lacking = plan(&released(World::new(&[("connection-drain", "on")])), &cloud);
    assert_eq!((fields(&lacking.problems), of_listener(&lacking).len()), (vec!["connection-drain-timeout"], 1));
}

#[test]
fn an_access_list_that_cannot_be_looked_up_freezes_no_backends() {
    let mut world = World::new(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let mut cloud = world.served();
    let list = std::mem::replace(&mut cloud.observed.parts.access_list, AccessList::Unknown);
    let world = released(world);
    for step in plan(&world, &cloud).steps {
        cloud.perform(&step.operation);
    }
    let id = cloud.listener(80, Protocol::Tcp).group_id.clone();
    let group = &cloud.observed.groups[&id];
    assert!(group.members().iter().all(|backend| backend.key.port == 30090), "{group:?}");
    cloud.observed.parts.access_list = list;
    assert!(of_listener(&plan(&world, &cloud)).len() == 1, "then it moves");
}

#[test]
fn while_no_one_knows_which_nodes_may_serve_those_that_do_follow_a_release() {
    let mut world = World::new(&[("backend-label", "color=blue")]);
    let blue = |it: &mut NodeView| drop(it.labels.insert("color".into(), "blue".into()));
    world.nodes = vec![edited(&world.nodes[0], blue), edited(&world.nodes[1], blue), node("n3", "i-3")];
    let mut cloud = world.served();
    let mut broken = released(world.with(&[("backend-label", "!!")]));
    broken.nodes.remove(1);
    for step in plan(&broken, &cloud).steps {
        cloud.perform(&step.operation);
    }
    assert_eq!(cloud.backends("k8s/30090/web/default/c1"), [("i-1".to_owned(), 100)].into());
    assert_eq!(plan(&broken, &cloud).steps, []);
    let fresh = plan(&broken, &Cloud::default());
    assert_eq!(fresh.steps, [], "no listener is made");
}

/// A configuration without load balancers that have a public address.
fn forbidding() -> ServiceSettings {
    let mut settings = super::settings();
    settings.service.disable_public = true;
    settings
}

#[test]
fn an_id_with_spaces_around_it_still_names_the_load_balancer_of_the_user() {
    let (mut world, mut cloud) = (World::new(&[("id", "lb-user")]), Cloud::of_user());
    world.bring(&mut cloud);
    world = world.with(&[("id", " lb-user")]);
    world.endpoints.endpoints.clear();
    let mut broken = world.clone();
    broken.nodes.pop();
    let plan = plan(&broken, &cloud);
    assert_eq!(plan.problems, [], "{plan}");
    let removes = |step: &Operation| matches!(step, Operation::RemoveBackends { .. });
    assert!(plan.steps.len() == 1 && removes(&plan.steps[0].operation), "{plan}");
}

#[test]
fn an_access_list_that_is_on_wins_over_ranges_and_one_that_is_off_does_not() {
    let ranges = |annotations: &[(&str, &str)]| {
        let mut world = World::new(annotations);
        world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
        world
    };
    let on = ranges(&[("acl-status", "on"), ("acl-id", "acl-1"), ("acl-type", "white")]).desired();
    assert!(on.access.is_none() && on.warnings[0].to_string().contains("acl-status is on"), "{:?}", on.warnings);
    let off = ranges(&[("acl-status", "off"), ("acl-id", "acl-1")]).desired();
    assert!(off.access.is_some(), "{:?}", off.warnings);
    assert_eq!(off.warnings.len(), 2, "{:?}", off.warnings);
    let fields = &off.listeners.values().next().unwrap().fields;
    assert!(fields.values().any(|value| value == "white") && !fields.values().any(|value| value == "acl-1"));
    let mut inherited = ranges(&[("acl-status", "off")]);
    let mut cloud = World::new(&[("acl-status", "off")]).served();
    inherited.service.labels.insert(crate::plan::loadbalancer::ownership::LABEL_HASH.to_owned(), "h".to_owned());
    let plan = plan(&inherited, &cloud);
    assert!(plan.steps.is_empty() && plan.problems.is_empty(), "{plan}");
    assert!(plan.warnings.iter().any(|warning| warning.to_string().contains("Ignored value")), "{:?}", plan.warnings);
    assert_eq!(cloud.listener(80, Protocol::Tcp).status, "running");
}

#[test]
fn a_tls_policy_that_is_not_known_is_sent_with_a_warning() {
    let https = [("protocol-port", "https:80"), ("cert-id", "cert-1"), ("tls-cipher-policy", "tls_cipher_policy_2_0")];
    let world = World::new(&https);
    let desired = world.desired();
    assert!(desired.warnings[0].to_string().contains("the cloud decides"), "{:?}", desired.warnings);
    assert!(plan(&world, &Cloud::default()).to_string().contains("tls_cipher_policy_2_0"));
    let annotations: Annotations = parse(&World::new(&[("tls-cipher-policy", "tls_cipher_policy_1_2")]).service);
    assert_eq!(annotations.warnings, []);
}

/// The Service after a release: other ports of pods and nodes, and other pods.
pub(crate) fn released(mut world: World) -> World {
    world.service.ports = vec![port(80, "TCP", 9090, 30090)];
    world.endpoints.endpoints = ["192.168.64.31", "192.168.64.32"].map(|address| super::pod(address, "n2")).to_vec();
    for endpoint in &world.endpoints.endpoints {
        world.enis.insert(endpoint.address, format!("eni-{}", endpoint.address));
    }
    world
}

#[test]
fn the_server_group_of_a_listener_follows_a_release_whatever_annotation_is_wrong() {
    let mut tried = 0;
    let bases = [&[][..], &[super::ENI]];
    for (annotations, entry) in bases.iter().flat_map(|base| Name::TABLE.iter().map(move |entry| (*base, entry))) {
        let mut cloud = World::new(annotations).served();
        let after = released(World::new(annotations));
        let Some(broken) = damaged(&after, entry.name).filter(|_| entry.name != Name::Id) else { continue };
        // While it is not known what is managed, nothing changes.
        if entry.name == Name::Manage || broken.desired_with_problems().problems.withhold_groups() {
            continue;
        }
        let mut sound = cloud.clone();
        after.bring(&mut sound);
        for step in plan(&broken, &cloud).steps {
            cloud.perform(&step.operation);
        }
        let leads_to = |cloud: &Cloud| {
            let listeners = cloud.observed.listeners.as_ref().unwrap();
            let group = &listeners.iter().find(|(key, _)| key.port == 80).unwrap().1.group_id;
            let members = cloud.observed.groups[group].members().iter();
            members.map(|backend| backend.key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(leads_to(&cloud), leads_to(&sound), "{annotations:?}, {}", entry.name.key());
        assert_eq!(plan(&broken, &cloud).steps, [], "{annotations:?}, {}", entry.name.key());
        tried += 1;
    }
    assert!(tried > 40, "{tried}");
}
