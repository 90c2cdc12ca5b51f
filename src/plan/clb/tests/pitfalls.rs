//! Pitfalls of the design and of the cloud for users of the official controller, as far as planning
//! decides. Those that need both worlds are among the integration tests.

use std::collections::BTreeSet;

use super::{Cloud, ENI, World, edited, leaving, lines, port};
use crate::plan::clb::annotations::Name;
use crate::plan::clb::model::{ListenerField, Protocol};
use crate::plan::clb::observed::PendingCharge;
use crate::plan::clb::operation::Operation;
use crate::plan::clb::teardown::teardown;
use crate::plan::inputs::TargetPort;
use crate::plan::loadbalancer::annotations::reference::tables;
use crate::plan::loadbalancer::cloud::ObservedInstanceModel as _;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::model::{BackendKind, GroupRef};
use crate::plan::loadbalancer::ownership::{Owner, SHORT_MARK};

/// Everything that is told of a Service that has nothing yet.
fn told(world: &World) -> Vec<String> {
    let desired = world.desired();
    let plan = diff(&desired, &Cloud::default().observed);
    desired.warnings.iter().chain(&plan.warnings).map(ToString::to_string).collect()
}

#[test]
fn a_protocol_by_number_counts_for_the_port_that_it_fits() {
    let ports = [port(53, "TCP", 5353, 30053), port(53, "UDP", 5353, 30053)];
    let listeners = |list: &[(&str, &str)]| {
        World::new(list).ports(&ports).desired().listeners.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(listeners(&[("protocol-port", "http:53")]), ["53/udp", "53/http"]);
    assert_eq!(listeners(&[("protocol-port", "udp:53")]), ["53/tcp", "53/udp"]);
}

#[test]
fn a_listener_is_away_for_no_longer_than_it_takes_to_make_it_again() {
    let mut cloud = World::new(&[]).served();
    let plan = World::new(&[("protocol-port", "http:80")]).bring(&mut cloud);
    let kinds: Vec<_> = plan
        .steps
        .iter()
        .map(|step| match &step.operation {
            Operation::DeleteListener { .. } => "delete",
            Operation::CreateListener { .. } => "create",
            Operation::StartListener { .. } => "start",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["delete", "create", "start"], "nothing comes between, and the group stays:\n{plan}");
    assert!(plan.steps[0].destroys, "people see it in the plan");
}

#[test]
fn weights_need_a_scheduler_that_reads_them() {
    let mut world = World::new(&[]).ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8080, 30081)]);
    world.service.local_traffic = true;
    let scheduler =
        |world: &World| world.served().listener(80, Protocol::Tcp).fields[&ListenerField::Scheduler].clone();
    assert_eq!(scheduler(&world), "rr", "as the official controller");
    world.settings.service.defaults.scheduler = "wrr".to_owned();
    assert_eq!(scheduler(&world), "wrr");
    assert!(tables::<Name>("##").contains("Weights count with `wrr` and `wlc`"));
    // A default that a protocol does not know gives way.
    world.settings.service.defaults.scheduler = "sch".to_owned();
    let mixed = world.with(&[("protocol-port", "http:81")]).served();
    let of = |port, protocol| mixed.clone().listener(port, protocol).fields[&ListenerField::Scheduler].clone();
    assert_eq!((of(80, Protocol::Tcp).as_str(), of(81, Protocol::Http).as_str()), ("sch", "rr"));
}

#[test]
fn a_group_that_a_listener_of_the_user_needs_is_named_with_it() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    let group = cloud.observed.group_id(&GroupRef::Named("k8s/30080/web/default/c1".to_owned()));
    let group = group.unwrap().to_owned();
    cloud.listener(9000, Protocol::Tcp).group_id = group.clone();
    let owner = Owner::of(&world.service, &world.settings);
    let plan = teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed);
    assert!(plan.problems[0].field.contains("9000/tcp"), "{plan}");
    cloud.listener(9000, Protocol::Tcp).group_id = "rsp-user".to_owned();
    assert_eq!(teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed).problems, []);
}

#[test]
fn masters_are_left_out_by_the_standard_label_or_by_a_switch() {
    let servers = |label: &str, switch: bool| {
        let mut world = World::new(&[]);
        world.settings.service.exclude_masters = switch;
        world.nodes[0] = edited(&world.nodes[0], |node| drop(node.labels.insert(label.into(), "".into())));
        let desired = world.desired();
        let group = desired.groups.into_values().next().unwrap();
        group.backends.keys().map(|key| key.server_id.to_string()).collect::<Vec<_>>()
    };
    let exclude = "node.kubernetes.io/exclude-from-external-load-balancers";
    for switch in [true, false] {
        assert_eq!(servers("node-role.kubernetes.io/control-plane", switch), ["i-1", "i-2"]);
        assert_eq!(servers(exclude, switch), ["i-2"]);
    }
    assert_eq!(servers("node-role.kubernetes.io/master", true), ["i-2"]);
    assert_eq!(servers("node-role.kubernetes.io/master", false), ["i-1", "i-2"], "a cluster of one node");
}

#[test]
fn a_node_without_provider_id_is_told_and_the_others_serve() {
    let mut world = World::new(&[]);
    world.nodes[0] = edited(&world.nodes[0], |node| node.provider_id.clear());
    let desired = world.desired();
    assert_eq!(desired.groups.values().next().unwrap().backends.to_vec().len(), 1);
    assert!(desired.warnings[0].field.contains("node n1"), "{:?}", desired.warnings);
}

#[test]
fn a_virtual_node_needs_no_label_to_be_left_out() {
    let mut world = World::new(&[]);
    world.nodes[0] = edited(&world.nodes[0], |node| {
        node.labels.insert("type".into(), "virtual-kubelet".into());
        node.provider_id.clear();
    });
    let desired = world.desired();
    let kinds: Vec<_> =
        desired.groups.into_values().flat_map(|group| group.backends.keys().map(|key| key.kind)).collect();
    assert_eq!(kinds, [BackendKind::Ecs, BackendKind::Eni, BackendKind::Eni], "the other node, and its pods");
    assert_eq!(desired.warnings, []);
}

#[test]
fn no_node_ports_are_needed_where_pods_are_attached_and_told_where_they_are() {
    let world = |list: &[(&str, &str)]| World::new(list).ports(&[port(80, "TCP", 8080, 0)]);
    assert_eq!(world(&[ENI]).desired().groups.keys().collect::<Vec<_>>(), ["k8s/8080/web/default/c1"]);
    let problem = world(&[]).desire().unwrap_err().remove(0);
    assert_eq!(problem.field, "spec.ports[0].nodePort");
}

#[test]
fn incomplete_sticky_sessions_are_told_before_any_call() {
    let http = ("protocol-port", "http:80");
    for (more, lacking) in [
        (vec![], "sticky-session-type"),
        (vec![("sticky-session-type", "insert")], "cookie-timeout"),
        (vec![("sticky-session-type", "server")], "cookie"),
    ] {
        let world = World::new(&[[http, ("sticky-session", "on")].as_slice(), &more].concat());
        let plan = diff(&world.desired(), &World::new(&[http]).served().observed);
        assert!(plan.steps.is_empty() && plan.problems[0].field.ends_with(lacking), "{plan}");
    }
}

#[test]
fn headers_are_no_proxy_protocol_and_settings_without_effect_are_told() {
    let header = told(&World::new(&[("xforwardedfor-proto", "on")]));
    assert!(header.len() == 1 && header[0].contains("no listener is http or https"), "{header:?}");
    assert_eq!(told(&World::new(&[("proxy-protocol", "on")])), Vec::<String>::new());
}

#[test]
fn all_access_lists_survive_a_change_of_something_else() {
    let mut cloud = World::new(&[]).served();
    let fields = &mut cloud.listener(80, Protocol::Tcp).fields;
    for (field, value) in
        [(ListenerField::AclStatus, "on"), (ListenerField::AclType, "white"), (ListenerField::AclId, "acl-a,acl-b")]
    {
        fields.insert(field, value.to_owned());
    }
    let plan = World::new(&[("scheduler", "wlc")]).bring(&mut cloud);
    assert_eq!(plan.steps.len(), 1, "{plan}");
    let Operation::SetListener { listener, fields, .. } = &plan.steps[0].operation else { panic!("{plan}") };
    assert_eq!(cloud.observed.sent(*listener, fields)[&ListenerField::AclId], "acl-a,acl-b");
}

#[test]
fn the_longest_names_fit_and_stay_apart() {
    let owner = |service: &str| {
        let mut world = World::new(&[]);
        world.service.key.name = service.into();
        world.service.key.namespace = "n".repeat(63).into();
        world.settings.cluster_id = "c".repeat(32);
        Owner::of(&world.service, &world.settings)
    };
    let (one, other) = (owner(&format!("{}a", "s".repeat(62))), owner(&format!("{}b", "s".repeat(62))));
    let marks = |owner: &Owner| [owner.group_key("30080"), owner.access_list_name()];
    for (one, other) in marks(&one).iter().zip(&marks(&other)) {
        assert!(one != other && one.chars().count() <= SHORT_MARK, "{one}");
    }
    assert!(one.owns_group(&marks(&one)[0]) && !other.owns_group(&marks(&one)[0]));
}

#[test]
fn endpoints_by_hand_are_told_what_they_lack() {
    let mut local = World::new(&[]);
    local.service.local_traffic = true;
    local.endpoints.endpoints[2].node = None;
    let warnings = told(&local);
    assert!(
        warnings.len() == 1 && warnings[0].contains("192.168.64.21") && warnings[0].contains("nodeName"),
        "{warnings:?}"
    );
    assert!(local.desired().groups.values().all(|group| group.incomplete), "nobody is taken out for that");
}

#[test]
fn named_target_ports_may_differ_from_pod_to_pod() {
    let mut world = World::new(&[ENI]);
    world.service.ports[0].target_port = TargetPort::Name("http".to_owned());
    let numbers = [8081, 8082, 8083];
    for (endpoint, number) in world.endpoints.endpoints.iter_mut().zip(numbers) {
        endpoint.ports = [("p80".to_owned(), number)].into();
    }
    let group = world.desired().groups.into_values().next().unwrap();
    assert_eq!(group.backends.keys().map(|key| key.port).collect::<BTreeSet<_>>(), BTreeSet::from(numbers));
}

#[test]
fn a_charge_that_changes_at_midnight_is_waited_for() {
    let by_bandwidth = [("instance-charge-type", "PayBySpec"), ("charge-type", "paybybandwidth"), ("bandwidth", "50")];
    let by_traffic = World::new(&[("instance-charge-type", "PayBySpec"), ("charge-type", "paybytraffic")]);
    let mut cloud = World::new(&by_bandwidth).served();
    cloud.instance().pending_charge = PendingCharge::Unread;
    assert!(by_traffic.desired().needs(&cloud.observed).instance, "a list does not show what is about to change");
    cloud.instance().pending_charge = PendingCharge::From("2026-01-02T16:00:00Z".to_owned());
    let plan = diff(&by_traffic.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.is_empty(), "{plan}");
    assert!(plan.notes[0].contains("2026-01-02T16:00:00Z"), "{plan}");
    cloud.instance().pending_charge = PendingCharge::None;
    assert_eq!(by_traffic.bring(&mut cloud).steps.len(), 1);
}

#[test]
fn a_specification_without_effect_is_told() {
    let alone = World::new(&[("spec", "slb.s2.small")]);
    let warnings = told(&alone);
    assert!(warnings.len() == 1 && warnings[0].contains("charged by `PayByCLCU`"), "{warnings:?}");
    let old = World::new(&[("instance-charge-type", "PayBySpec")]).served();
    let plan = diff(&alone.desired(), &old.observed);
    assert_eq!(
        (plan.warnings.len(), plan.steps.len()),
        (0, 1),
        "on an instance that is charged so, it counts:\n{plan}"
    );
}

#[test]
fn listeners_of_very_old_releases_are_known_by_where_they_lead() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.listener(80, Protocol::Tcp).description = "tcp_80".to_owned();
    let plan = world.bring(&mut cloud);
    assert_eq!(plan.problems, [], "{plan}");
    assert_eq!(lines(&plan.to_string()).len(), 1, "{plan}");
    assert_eq!(cloud.listener(80, Protocol::Tcp).description, "k8s/80/web/default/c1");
}

#[test]
fn two_services_share_pods_and_nothing_else() {
    let one = World::new(&[]);
    let mut other = World::new(&[("address-type", "intranet")]);
    other.service.uid = "00000000-c2ae-4642-b033-5607860aef6a".to_owned();
    other.service.key.name = "web-inside".into();
    let (owner, cloud) = (Owner::of(&other.service, &other.settings), one.served());
    let instance = cloud.observed.instance.as_ref().unwrap();
    assert!(!owner.owns_load_balancer(instance.tagged().name, &instance.tags));
    assert!(cloud.observed.groups.values().all(|group| !owner.owns_group(&group.name)));
    let there = other.served();
    let pods = |cloud: &Cloud| {
        cloud.observed.groups.values().map(|group| group.backends.as_ref().unwrap().len()).sum::<usize>()
    };
    assert_eq!(pods(&cloud), pods(&there));
}
