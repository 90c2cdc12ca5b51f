//! Behaviour that users of the official controller rely on, and its defects that are not copied.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cloud, NAME, World, edited, key, lines, node, pod, port};
use crate::plan::inputs::{Ingress, Taint, TargetPort};
use crate::plan::lb::desired::{Desired, Needs};
use crate::plan::lb::model::{BackendKind, ListenerField, Protocol};
use crate::plan::lb::naming::{CLUSTER_TAG, FINALIZER, MARK_TAG, Owner, REUSE_TAG};
use crate::plan::lb::observed::{CertificateState, ObservedGroup};
use crate::plan::lb::operation::Operation;
use crate::plan::lb::{Handling, diff, expected_ingress, handed_over, handling, teardown, teardown_needs, wanted_enis};

const ENI: (&str, &str) = ("service.beta.kubernetes.io/backend-type", "eni");

/// Weights of the only group, in order of its backends.
fn weights(desired: &Desired) -> Vec<u8> {
    desired.groups.values().flat_map(|group| group.backends.values().map(|backend| backend.weight)).collect()
}

fn servers(desired: &Desired) -> BTreeSet<&str> {
    desired.groups.values().flat_map(|group| group.backends.keys().map(|key| key.server_id.as_str())).collect()
}

fn ingress(ip: &str) -> Ingress {
    Ingress { ip: ip.to_owned(), hostname: String::new() }
}

fn tags(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn which_services_are_handled() {
    let world = World::new(&[]);
    let mut settings = world.settings.clone();
    assert_eq!(handling(&world.service, &settings), Handling::Ensure);
    for (key, value, ignored) in [
        ("service.beta.kubernetes.io/class", "other", true),
        ("service.beta.kubernetes.io/class", "", false),
        ("tunnel-type", "", true),
        ("type", "nlb", false),
    ] {
        let expected = if ignored { Handling::Ignore } else { Handling::Ensure };
        let service = World::new(&[(key, value)]).service;
        assert_eq!(handling(&service, &settings), expected, "{key}={value:?}");
    }
    settings.service.type_annotation = true;
    assert_eq!(handling(&World::new(&[("type", "clb")]).service, &settings), Handling::Ignore);
    let mut service = world.service.clone();
    service.load_balancer_class = Some(String::new());
    assert_eq!(handling(&service, &settings), Handling::Ignore);

    let mut service = world.service;
    service.deleting = true;
    assert_eq!(handling(&service, &settings), Handling::Ignore);
    service.finalizers = vec![FINALIZER.to_owned()];
    assert_eq!(handling(&service, &settings), Handling::Delete);
    service.deleting = false;
    service.service_type = crate::plan::inputs::ServiceType::ClusterIp;
    assert_eq!(handling(&service, &settings), Handling::Delete);
}

#[test]
fn a_service_given_to_another_controller_keeps_its_load_balancer() {
    let mut world = World::new(&[("service.beta.kubernetes.io/class", "other")]);
    assert_eq!(handed_over(&world.service, &world.settings), None);
    world.service.finalizers = vec![FINALIZER.to_owned()];
    assert_eq!(handling(&world.service, &world.settings), Handling::Ignore);
    assert_eq!(handed_over(&world.service, &world.settings).unwrap().given, "other");
    world.service.deleting = true;
    assert_eq!(handling(&world.service, &world.settings), Handling::Delete);
}

#[test]
fn weights_of_pods() {
    let mut world = World::new(&[ENI]);
    world.endpoints.endpoints.truncate(2);
    assert_eq!(weights(&world.desired()), [100, 100]);
    assert_eq!(weights(&world.clone().with(&[ENI, ("default-weight", "50")]).desired()), [50, 50]);
    let shared = [ENI, ("default-weight", "50"), ("weight", "60"), ("id", "lb-user"), ("vgroup-port", "rsp-user:80")];
    assert_eq!(weights(&world.clone().with(&shared).desired()), [30, 30]);
    let alone = world.clone().with(&[ENI, ("weight", "60")]).desired();
    assert_eq!(weights(&alone), [100, 100]);
    assert!(alone.warnings.iter().any(|warning| warning.field.ends_with("weight")));
}

#[test]
fn weights_of_nodes_follow_their_pods_in_local_mode() {
    for extra in [None, Some(("default-weight", "50"))] {
        let mut world = World::new(&extra.into_iter().collect::<Vec<_>>());
        world.service.local_traffic = true;
        assert_eq!(weights(&world.desired()), [2, 1]);
    }
    let mut world = World::new(&[("weight", "30"), ("id", "lb-user"), ("vgroup-port", "rsp-user:80")]);
    world.service.local_traffic = true;
    assert_eq!(weights(&world.desired()), [20, 10]);
}

#[test]
fn pods_on_virtual_nodes_are_attached_by_their_interfaces() {
    let mut world = World::new(&[]);
    world.nodes[1] = edited(&world.nodes[1], |node| {
        node.labels.insert("type".to_owned(), "virtual-kubelet".to_owned());
        node.provider_id.clear();
    });
    let wanted = wanted_enis(&world.service, &world.nodes, &world.endpoints, &world.settings);
    assert_eq!(wanted, BTreeSet::from(["192.168.64.21".parse().unwrap()]));
    for local in [false, true] {
        world.service.local_traffic = local;
        let desired = world.desired();
        assert_eq!(servers(&desired), BTreeSet::from(["eni-192.168.64.21", "i-1"]), "local: {local}");
        assert_eq!(weights(&desired), if local { [2, 1] } else { [100, 100] });
        assert_eq!(desired.warnings, []);
    }
    assert_eq!(wanted_enis(&world.service, &world.nodes[..1], &world.endpoints, &world.settings), BTreeSet::new());
}

#[test]
fn nodes_that_are_no_backends() {
    type Edit = fn(&mut crate::plan::inputs::NodeView);
    let label = |name: &'static str| {
        move |node: &mut crate::plan::inputs::NodeView| {
            node.labels.insert(name.to_owned(), String::new());
        }
    };
    for name in [
        "node-role.kubernetes.io/master",
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "alpha.service-controller.kubernetes.io/exclude-balancer",
        "service.beta.kubernetes.io/exclude-node",
        "service.alibabacloud.com/exclude-node",
    ] {
        let mut world = World::new(&[]);
        world.nodes[0] = edited(&world.nodes[0], label(name));
        assert_eq!(servers(&world.desired()), BTreeSet::from(["i-2"]), "{name}");
    }
    let edits: [(&str, Edit); 5] = [
        ("no conditions", |node| {
            node.has_conditions = false;
            node.ready = None;
        }),
        ("not ready", |node| node.ready.as_mut().unwrap().status = crate::plan::inputs::ConditionStatus::Unknown),
        ("autoscaler", |node| {
            node.taints.push(Taint {
                key: "ToBeDeletedByClusterAutoscaler".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            });
        }),
        ("hybrid", |node| node.provider_id = "ack-hybrid://x".to_owned()),
        ("bad id", |node| node.provider_id = "nonsense".to_owned()),
    ];
    for (name, edit) in edits {
        let mut world = World::new(&[]);
        world.nodes[0] = edited(&world.nodes[0], edit);
        let desired = world.desired();
        assert_eq!(servers(&desired), BTreeSet::from(["i-2"]), "{name}");
        assert_eq!(desired.warnings.len(), usize::from(name == "bad id"), "{name}");
    }
    let mut world = World::new(&[]);
    world.nodes[0] = edited(&world.nodes[0], |node| node.ready = None);
    world.nodes[1] = edited(&world.nodes[1], |node| node.unschedulable = true);
    assert_eq!(servers(&world.desired()).len(), 2);
    assert_eq!(servers(&world.with(&[("remove-unscheduled-backend", "on")]).desired()), BTreeSet::from(["i-1"]));
}

#[test]
fn nodes_are_chosen_by_label() {
    let mut world = World::new(&[("backend-label", "color=blue,size=1")]);
    world.nodes[0] = edited(&world.nodes[0], |node| {
        node.labels = tags(&[("color", "blue"), ("size", "1")]);
    });
    world.nodes[1] = edited(&world.nodes[1], |node| node.labels = tags(&[("color", "blue")]));
    assert_eq!(servers(&world.desired()), BTreeSet::from(["i-1"]));
}

#[test]
fn only_ready_endpoints_take_traffic() {
    let mut world = World::new(&[ENI]);
    world.endpoints.endpoints[0].ready = Some(false);
    world.endpoints.endpoints[1].ready = None;
    assert_eq!(servers(&world.desired()), BTreeSet::from(["eni-192.168.64.21"]));
    world.endpoints.endpoints[2].terminating = true;
    let desired = world.desired();
    assert_eq!(servers(&desired), BTreeSet::new());
    assert_eq!(desired.empty_ports, [key(80, Protocol::Tcp)]);
}

#[test]
fn terminating_pods_that_serve_can_stay_without_new_traffic() {
    let mut world = World::new(&[ENI, ("graceful-shutdown", "true")]);
    world.endpoints.endpoints[0].terminating = true;
    world.endpoints.endpoints[0].ready = Some(false);
    assert_eq!(weights(&world.desired()), [0, 100, 100]);
    let ignoring = world.clone().with(&[ENI, ("graceful-shutdown", "true"), ("ignore-weight-update", "on")]);
    assert_eq!(weights(&ignoring.desired()), [100, 100]);
    world.endpoints.endpoints[0].serving = Some(false);
    assert_eq!(weights(&world.desired()), [100, 100]);
}

#[test]
fn named_target_ports_are_found_by_the_name_of_the_services_port() {
    let mut world = World::new(&[ENI]);
    world.service.ports[0].target_port = TargetPort::Name("http".to_owned());
    world.endpoints.endpoints[0].ports = vec![("p80".to_owned(), 8081)];
    let desired = world.desired();
    let (name, group) = desired.groups.first_key_value().unwrap();
    assert_eq!(name, "k8s/http/web/default/c1");
    let found: Vec<_> = group.backends.keys().map(|key| (key.kind, key.port)).collect();
    assert_eq!(found, [(BackendKind::Eni, 8081)]);
}

#[test]
fn ipv6_backends_need_everything_to_say_so() {
    let all = [ENI, ("backend-ip-version", "IPv6"), ("ip-version", "ipv6")];
    let mut world = World::new(&all);
    world.endpoints.endpoints = vec![pod("fd00::1", "n1"), pod("192.168.64.11", "n1")];
    world.enis.insert("fd00::1".parse().unwrap(), "eni-six".to_owned());
    assert_eq!(servers(&world.desired()), BTreeSet::from(["eni-six"]));
    assert_eq!(servers(&world.clone().with(&all[..2]).desired()), BTreeSet::from(["eni-192.168.64.11"]));
    world.settings.service.ipv6 = false;
    assert_eq!(servers(&world.desired()), BTreeSet::from(["eni-192.168.64.11"]));
}

#[test]
fn a_pod_without_interface_holds_removals_back() {
    let mut world = World::new(&[ENI]);
    let cloud = world.served();
    world.endpoints.endpoints = vec![pod("192.168.64.31", "n1"), pod("10.0.0.1", "n1"), pod("192.168.64.11", "n1")];
    let desired = world.desired();
    assert_eq!(desired.unresolved, BTreeSet::from(["192.168.64.31".parse().unwrap()]));
    assert_eq!(desired.outside, BTreeSet::from(["10.0.0.1".parse().unwrap()]));
    let plan = diff(&desired, &cloud.observed);
    assert!(plan.steps.is_empty() && plan.notes.len() == 1, "{plan}");
    world.endpoints.endpoints.remove(0);
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(matches!(plan.steps[0].operation, Operation::RemoveBackends { .. }), "{plan}");
}

#[test]
fn a_listener_does_not_move_to_a_group_that_could_not_be_filled() {
    let mut world = World::new(&[]);
    let cloud = world.served();
    world = world.with(&[ENI]);
    world.enis.clear();
    let plan = diff(&world.desired(), &cloud.observed);
    let kinds: Vec<_> = plan.steps.iter().map(|step| step.operation.to_string()).collect();
    assert_eq!(kinds, ["create group k8s/8080/web/default/c1 with no backends"], "{plan}");
}

#[test]
fn an_empty_list_of_nodes_empties_nothing() {
    let mut world = World::new(&[]);
    let cloud = world.served();
    world.nodes.clear();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty(), "{plan}");
}

#[test]
fn many_backends_come_in_batches_additions_first() {
    let many = |range: std::ops::Range<u16>| {
        let mut world = World::new(&[ENI]);
        world.endpoints.endpoints = range.map(|n| pod(&format!("192.168.{}.{}", n / 250, n % 250 + 1), "n1")).collect();
        world.enis = world.endpoints.endpoints.iter().map(|e| (e.address, "eni-1".to_owned())).collect();
        world
    };
    let cloud = many(0..200).served();
    let plan = diff(&many(200..400).desired(), &cloud.observed);
    let kinds: Vec<_> = plan
        .steps
        .iter()
        .map(|step| match &step.operation {
            Operation::AddBackends { backends, .. } => ('+', backends.len()),
            Operation::RemoveBackends { backends, .. } => ('-', backends.len()),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(kinds, [[('+', 40); 5], [('-', 40); 5]].concat());
}

#[test]
fn two_ports_of_one_users_group_are_both_in_it() {
    let world = World::new(&[("id", "lb-user"), ("vgroup-port", "rsp-user:80,rsp-user:81")])
        .ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    assert_eq!(cloud.observed.groups["rsp-user"].backends.as_ref().unwrap().len(), 5);
    assert_eq!(world.plan(&cloud), "");
}

#[test]
fn a_users_group_that_is_no_longer_named_gets_our_backends_taken_out() {
    let with = |id: &'static str| World::new(&[("id", "lb-user"), ("vgroup-port", id)]);
    let mut cloud = Cloud::of_user();
    cloud
        .observed
        .groups
        .insert("rsp-y".to_owned(), ObservedGroup { name: "other".to_owned(), backends: Some(Vec::new()) });
    with("rsp-user:80").bring(&mut cloud);
    with("rsp-y:80").bring(&mut cloud);
    assert_eq!(cloud.backends("other").len(), 2);
    assert_eq!(cloud.backends("users-group"), BTreeSet::from([("i-user".to_owned(), 100)]));
}

#[test]
fn users_groups_must_be_there_and_not_be_a_controllers() {
    let mut cloud = Cloud::of_user();
    cloud.observed.groups.get_mut("rsp-user").unwrap().name = "k8s/80/other/ns/c2".to_owned();
    for id in ["rsp-user:80", "rsp-none:80"] {
        let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true"), ("vgroup-port", id)]);
        let plan = diff(&world.desired(), &cloud.observed);
        assert_eq!((plan.problems.len(), plan.steps.len()), (1, 1), "{plan}");
        assert!(matches!(plan.steps[0].operation, Operation::Tag { .. }));
    }
}

#[test]
fn backends_of_others_are_neither_changed_nor_removed() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let group = cloud.observed.groups.values_mut().next().unwrap().backends.as_mut().unwrap();
    group[0].description = "mine now".to_owned();
    group[0].weight = 7;
    assert_eq!(world.plan(&cloud), "");
    let mut world = world;
    world.nodes.remove(0);
    assert_eq!(world.plan(&cloud), "");
}

#[test]
fn weights_are_left_alone_on_request() {
    let cloud = World::new(&[]).served();
    let world = World::new(&[("default-weight", "50"), ("ignore-weight-update", "on")]);
    assert_eq!(world.plan(&cloud), "");
    assert!(World::new(&[("default-weight", "50")]).plan(&cloud).starts_with("set in k8s/30080"));
}

#[test]
fn two_groups_of_one_name_become_one() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let (id, group) = cloud.observed.groups.first_key_value().map(|(id, group)| (id.clone(), group.clone())).unwrap();
    cloud.observed.groups.insert("a-twin".to_owned(), group);
    let plan = world.bring(&mut cloud);
    assert_eq!(cloud.observed.groups.keys().collect::<Vec<_>>(), [&id], "{plan}");
    assert_eq!(cloud.listener(80, Protocol::Tcp).group_id, id);
}

#[test]
fn an_lb_of_another_owner_is_refused() {
    let world = World::new(&[("id", "lb-user")]);
    for tag in [MARK_TAG, CLUSTER_TAG] {
        let mut cloud = Cloud::of_user();
        cloud.instance().tags.insert(tag.to_owned(), "any".to_owned());
        let plan = diff(&world.desired(), &cloud.observed);
        assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
    }
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.instance().tags.insert(CLUSTER_TAG.to_owned(), "another".to_owned());
    let owner = Owner::of(&world.service, &world.settings);
    for plan in [diff(&world.desired(), &cloud.observed), teardown(&owner, None, false, &cloud.observed)] {
        assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
    }
}

#[test]
fn a_service_with_an_address_does_not_move_to_another_load_balancer() {
    let reuse = |ingress: Vec<Ingress>, extra: &[(&str, &str)]| {
        let mut world = World::new(&[&[("id", "lb-user")], extra].concat());
        world.service.ingress = ingress;
        diff(&world.desired(), &Cloud::of_user().observed).problems.len()
    };
    let hostname = Ingress { ip: String::new(), hostname: "a.example.com".to_owned() };
    assert_eq!(reuse(vec![], &[]), 0);
    assert_eq!(reuse(vec![ingress("47.98.1.1")], &[]), 0);
    assert_eq!(reuse(vec![hostname], &[]), 0);
    assert_eq!(reuse(vec![ingress("1.2.3.4")], &[]), 1);
    assert_eq!(reuse(vec![ingress("1.2.3.4")], &[("external-ip-type", "eip")]), 0);
}

#[test]
fn a_lost_load_balancer_is_not_made_again_under_another_address() {
    let mut world = World::new(&[]);
    world.service.ingress = vec![ingress("47.98.0.1")];
    let plan = diff(&world.desired(), &Cloud::default().observed);
    assert!(plan.steps.is_empty() && plan.problems[0].given == "47.98.0.1", "{plan}");
    let plan = diff(&World::new(&[("id", "lb-none")]).desired(), &Cloud::default().observed);
    assert!(plan.steps.is_empty() && plan.problems[0].given == "lb-none", "{plan}");
}

#[test]
fn lost_marks_are_restored() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.instance().tags.clear();
    assert_eq!(
        lines(&world.plan(&cloud)),
        [format!("tag ack.aliyun.com=c1, {MARK_TAG}={NAME}  # marks that are missing")]
    );
    cloud.instance().tags = (0..19).map(|n| (format!("t{n}"), String::new())).collect();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.notes.len() == 1, "{plan}");
}

#[test]
fn the_tag_list_is_authoritative_but_spares_the_vendors() {
    let world = World::new(&[("additional-resource-tags", "k=v")]);
    let mut cloud = World::new(&[]).served();
    cloud.instance().tags.extend(tags(&[("acs:x", "1"), ("user", "1")]));
    let found: Vec<_> = diff(&world.desired(), &cloud.observed).steps.iter().map(|s| s.operation.to_string()).collect();
    assert_eq!(found, ["tag k=v", "untag user"]);
    assert_eq!(World::new(&[]).plan(&cloud), "");
}

#[test]
fn what_is_fixed_at_creation_is_compared_and_the_rest_goes_on() {
    for (suffix, value) in [
        ("address-type", "intranet"),
        ("ip-version", "ipv6"),
        ("network-type", "vpc"),
        ("ip", "192.168.1.1"),
        ("master-zoneid", "z-k"),
        ("slave-zoneid", "z-k"),
        ("resource-group-id", "rg-2"),
    ] {
        let cloud = World::new(&[]).served();
        let world = World::new(&[(suffix, value), ("name", "other")]);
        let plan = diff(&world.desired(), &cloud.observed);
        assert_eq!(plan.problems.len(), 1, "{suffix}: {plan}");
        assert!(plan.problems[0].field.ends_with(suffix), "{plan}");
        assert_eq!(plan.steps[0].operation, Operation::SetName { name: "other".to_owned() });
    }
}

#[test]
fn charging_follows_its_rules() {
    let plan = |now: &str, spec: &str, wanted: &[(&str, &str)]| {
        let mut cloud = World::new(&[]).served();
        cloud.instance().instance_charge_type = now.to_owned();
        cloud.instance().spec = spec.to_owned();
        let plan = diff(&World::new(wanted).desired(), &cloud.observed);
        let steps: Vec<_> = plan.steps.iter().map(|step| step.operation.to_string()).collect();
        (steps.join("; "), plan.problems.len())
    };
    let nothing = (String::new(), 0);
    assert_eq!(plan("PayBySpec", "slb.s1.small", &[("spec", "slb.s2.small")]), ("set spec slb.s2.small".to_owned(), 0));
    assert_eq!(plan("PayByCLCU", "slb.lcu.elastic", &[("spec", "slb.s2.small")]), nothing);
    assert_eq!(plan("PayBySpec", "slb.s1.small", &[("instance-charge-type", "paybyspec")]), nothing);
    assert_eq!(
        plan("PayBySpec", "slb.s1.small", &[("instance-charge-type", "PayByCLCU")]),
        ("set instance charge type PayByCLCU".to_owned(), 0)
    );
    assert_eq!(plan("PayByCLCU", "", &[("instance-charge-type", "PayBySpec")]), (String::new(), 1));
    let by_bandwidth = [("charge-type", "paybybandwidth"), ("bandwidth", "50")];
    assert_eq!(plan("PayByCLCU", "", &by_bandwidth), (String::new(), 1));
    assert_eq!(
        plan("PayBySpec", "", &by_bandwidth),
        ("set internet charge type paybybandwidth (bandwidth 50)".to_owned(), 0)
    );
    assert_eq!(plan("PayBySpec", "", &[("charge-type", "paybytraffic"), ("bandwidth", "50")]), nothing);
    assert_eq!(plan("PayBySpec", "", &[("bandwidth", "50")]), nothing);
}

#[test]
fn intranet_load_balancers_get_a_vswitch() {
    let create = |list: &[(&str, &str)]| World::new(list).desired().instance.create;
    let intranet = ("address-type", "intranet");
    assert_eq!(create(&[intranet]).vswitch_ids, ["vsw-i", "vsw-j", "vsw-bare"]);
    assert_eq!(create(&[intranet]).vpc_id.as_deref(), Some("vpc-1"));
    assert_eq!(create(&[intranet, ("master-zoneid", "z-j")]).vswitch_ids[0], "vsw-j");
    assert_eq!(create(&[intranet, ("vswitch-id", "vsw-x")]).vswitch_ids, ["vsw-x"]);
    let classic = create(&[intranet, ("network-type", "classic")]);
    assert_eq!((classic.vswitch_ids.len(), classic.vpc_id.as_deref()), (0, Some("vpc-1")));
    assert_eq!((create(&[]).vswitch_ids.len(), create(&[]).vpc_id), (0, None));
    let mut world = World::new(&[intranet]);
    let served = world.served();
    world.settings.vswitches.clear();
    assert_eq!(diff(&world.desired(), &Cloud::default().observed).problems.len(), 1);
    assert_eq!(world.plan(&served), "");
}

#[test]
fn the_specification_is_only_sent_where_it_counts() {
    let spec = |list: &[(&str, &str)]| World::new(list).desired().instance.create.spec;
    assert_eq!(spec(&[("spec", "slb.s2.small")]), None);
    assert_eq!(spec(&[("instance-charge-type", "PayBySpec")]).as_deref(), Some("slb.s1.small"));
    let both = [("instance-charge-type", "PayBySpec"), ("spec", "slb.s2.small")];
    assert_eq!(spec(&both).as_deref(), Some("slb.s2.small"));
}

#[test]
fn public_load_balancers_can_be_forbidden_but_not_kept_from_deletion() {
    let mut world = World::new(&[]);
    world.settings.service.disable_public = true;
    assert_eq!(world.desire().unwrap_err().len(), 1);
    assert!(world.clone().with(&[("address-type", "intranet")]).desire().is_ok());
    let reuse = world.clone().with(&[("id", "lb-user")]).desired();
    assert_eq!(diff(&reuse, &Cloud::of_user().observed).problems.len(), 1);
    world.service.deleting = true;
    world.service.finalizers = vec![FINALIZER.to_owned()];
    assert_eq!(handling(&world.service, &world.settings), Handling::Delete);
}

#[test]
fn a_missing_certificate_blocks_only_its_listener() {
    let world = World::new(&[("protocol-port", "https:443")])
        .ports(&[port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)]);
    let mut cloud = Cloud::default();
    let plan = world.bring(&mut cloud);
    assert_eq!(cloud.listeners(), ["80/tcp"]);
    assert_eq!(cloud.observed.groups.len(), 2);
    assert!(plan.problems[0].field.ends_with("cert-id"), "{plan}");
}

#[test]
fn a_listener_that_cannot_be_replaced_keeps_serving() {
    let cloud = World::new(&[]).served();
    let plan = diff(&World::new(&[("protocol-port", "https:80")]).desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
}

#[test]
fn a_new_certificate_must_be_valid_unless_the_old_one_is_gone() {
    let with = |certificate: &'static str| World::new(&[("protocol-port", "https:80"), ("cert-id", certificate)]);
    let cloud = with("cert-1").served();
    let desired = with("cert-2").desired();
    assert_eq!(desired.needs(&cloud.observed).certificates, ["cert-1", "cert-2"]);
    for (old, new, allowed) in [
        (CertificateState::Valid, CertificateState::Valid, true),
        (CertificateState::Valid, CertificateState::Expired, false),
        (CertificateState::Valid, CertificateState::Missing, false),
        (CertificateState::Missing, CertificateState::Valid, true),
    ] {
        let mut observed = cloud.observed.clone();
        observed.certificates = BTreeMap::from([("cert-1".to_owned(), old), ("cert-2".to_owned(), new)]);
        assert!(desired.needs(&observed).is_empty());
        let plan = diff(&desired, &observed);
        assert_eq!((plan.steps.len(), plan.problems.len()), if allowed { (1, 0) } else { (0, 1) }, "{plan}");
    }
    let without = World::new(&[("protocol-port", "https:80")]);
    assert_eq!(without.plan(&cloud), "");
}

#[test]
fn domain_extensions_change_with_their_ids_and_can_be_cleared() {
    let with = |domains: &'static str| {
        World::new(&[("protocol-port", "https:80"), ("cert-id", "cert-1"), ("domain-extensions", domains)])
    };
    let mut cloud = with("a.example.com:cert-2").served();
    let domains = |cloud: &mut Cloud| {
        let found = cloud.listener(80, Protocol::Https).domain_extensions.clone().unwrap();
        found.into_iter().map(|(domain, found)| format!("{domain}:{}", found.certificate_id)).collect::<Vec<_>>()
    };
    assert_eq!(domains(&mut cloud), ["a.example.com:cert-2"]);
    let id = cloud.listener(80, Protocol::Https).domain_extensions.clone().unwrap()["a.example.com"].id.clone();
    let plan = diff(&with("a.example.com:cert-3").desired(), &cloud.observed);
    let expected = Operation::SetDomainExtension {
        listener: key(80, Protocol::Https),
        id,
        domain: "a.example.com".to_owned(),
        certificate_id: "cert-3".to_owned(),
    };
    assert_eq!(plan.steps.iter().map(|step| &step.operation).collect::<Vec<_>>(), [&expected]);
    cloud.listener(80, Protocol::Https).domain_extensions = None;
    let needs = with("").desired().needs(&cloud.observed);
    assert_eq!(needs.domain_extensions, [key(80, Protocol::Https)]);
    let mut cloud = with("a.example.com:cert-2").served();
    with("").bring(&mut cloud);
    assert_eq!(domains(&mut cloud), Vec::<String>::new());
}

#[test]
fn hash_schedulers_need_a_new_listener_and_the_right_protocol() {
    let cloud = World::new(&[]).served();
    let steps = |scheduler: &'static str, cloud: &Cloud| -> Vec<String> {
        let plan = diff(&World::new(&[("scheduler", scheduler)]).desired(), &cloud.observed);
        plan.steps.iter().map(|step| step.operation.to_string().split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(steps("wlc", &cloud), ["set"]);
    assert_eq!(steps("sch", &cloud), ["delete", "create", "start"]);
    let hashed = World::new(&[("scheduler", "sch")]).served();
    assert_eq!(steps("tch", &hashed), ["delete", "create", "start"]);
    assert_eq!(steps("rr", &hashed), ["set"]);
    for list in [[("scheduler", "qch"), ("name", "x")], [("scheduler", "sch"), ("protocol-port", "http:80")]] {
        assert_eq!(World::new(&list).desire().unwrap_err().len(), 1);
    }
}

#[test]
fn removing_an_annotation_leaves_the_listener_as_it_is() {
    let cloud = World::new(&[("scheduler", "wlc"), ("established-timeout", "20")]).served();
    assert_eq!(World::new(&[]).plan(&cloud), "");
}

#[test]
fn an_edited_description_is_put_right_on_a_load_balancer_of_ours_only() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.listener(80, Protocol::Tcp).description = "tcp_80".to_owned();
    world.bring(&mut cloud);
    assert_eq!(cloud.listener(80, Protocol::Tcp).description, "k8s/80/web/default/c1");

    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    cloud.listener(80, Protocol::Tcp).description = "tcp_80".to_owned();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
}

#[test]
fn one_number_for_tcp_and_udp_keeps_both() {
    let ports = [port(53, "TCP", 5353, 30053), port(53, "UDP", 5353, 30053)];
    let listeners = |list: &[(&str, &str)]| {
        World::new(list).ports(&ports).desired().listeners.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(listeners(&[]), ["53/tcp", "53/udp"]);
    assert_eq!(listeners(&[("protocol-port", "http:53")]), ["53/udp", "53/http"]);
    let desired = World::new(&[]).ports(&ports).desired();
    assert_eq!(desired.groups.len(), 1);
}

#[test]
fn everything_wrong_comes_in_one_list() {
    let world = World::new(&[("healthy-threshold", "three"), ("address-type", "public")])
        .ports(&[port(80, "SCTP", 8080, 30080), port(81, "TCP", 8081, 0)]);
    let fields: Vec<_> = world.desire().unwrap_err().into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields.len(), 4, "{fields:?}");
    assert!(fields.contains(&"spec.ports[0].protocol".to_owned()));
    assert!(fields.contains(&"spec.ports[1].nodePort".to_owned()));
}

#[test]
fn what_has_no_effect_is_said() {
    let mut world = World::new(&[("vgroup-port", "rsp-a:80"), ("zone-maps", "x")]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    world.service.client_ip_affinity = Some(10_800);
    let fields: Vec<_> = world.desired().warnings.into_iter().map(|warning| warning.field).collect();
    for field in ["spec.loadBalancerSourceRanges", "spec.sessionAffinity"] {
        assert!(fields.contains(&field.to_owned()), "{fields:?}");
    }
    assert_eq!(fields.len(), 4, "{fields:?}");
}

#[test]
fn the_status_names_hostname_then_elastic_addresses_then_the_address() {
    let instance = World::new(&[]).served().observed.instance.unwrap();
    let of = |list: &[(&str, &str)], eips: &[&str]| {
        let eips: Vec<_> = eips.iter().map(|ip| (*ip).to_owned()).collect();
        expected_ingress(&World::new(list).desired(), &instance, &eips)
    };
    let eip = ("external-ip-type", "eip");
    assert_eq!(of(&[], &["1.1.1.1"]), [ingress("47.98.0.1")]);
    assert_eq!(of(&[eip], &["1.1.1.1", "1.1.1.2"]), [ingress("1.1.1.1"), ingress("1.1.1.2")]);
    assert_eq!(of(&[eip], &[]), [ingress("47.98.0.1")]);
    let hostname = Ingress { ip: String::new(), hostname: "a.example.com".to_owned() };
    assert_eq!(of(&[eip, ("hostname", "a.example.com")], &["1.1.1.1"]), [hostname]);
}

#[test]
fn a_users_load_balancer_can_always_be_left() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    cloud.instance().ip_version = "ipv6".to_owned();
    cloud.instance().tags.remove(REUSE_TAG);
    let owner = Owner::of(&world.service, &world.settings);
    let with_listeners = teardown(&owner, Some("lb-user"), true, &cloud.observed);
    assert_eq!(with_listeners.problems, []);
    assert!(with_listeners.steps.iter().all(|step| step.destroys), "{with_listeners}");
    assert_eq!(with_listeners.steps.len(), 2, "{with_listeners}");
    cloud.observed.listeners = None;
    let without = teardown(&owner, Some("lb-user"), false, &cloud.observed);
    assert!(matches!(without.steps[0].operation, Operation::DeleteGroup { .. }), "{without}");
    assert_eq!(without.steps.len(), 1, "{without}");
}

#[test]
fn a_preserved_load_balancer_keeps_serving() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let owner = Owner::of(&world.service, &world.settings);
    let before = cloud.observed.clone();
    for step in teardown(&owner, None, true, &cloud.observed).steps {
        cloud.perform(&step.operation);
    }
    assert_eq!(cloud.observed.listeners, before.listeners);
    assert_eq!(cloud.observed.groups, before.groups);
    assert_eq!(cloud.instance().tags, BTreeMap::new());
    let again = teardown(&owner, None, true, &cloud.observed);
    assert!(again.steps.is_empty(), "{again}");
}

#[test]
fn a_group_that_a_users_listener_uses_is_kept_and_reported() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    let group = cloud.listener(80, Protocol::Tcp).group_id.clone();
    cloud.listener(9000, Protocol::Tcp).group_id = group;
    let owner = Owner::of(&world.service, &world.settings);
    let plan = teardown(&owner, Some("lb-user"), false, &cloud.observed);
    assert_eq!((plan.steps.len(), plan.problems.len()), (1, 1), "{plan}");
}

#[test]
fn only_what_decides_is_read() {
    let world = World::new(&[("id", "lb-user"), ("vgroup-port", "rsp-user:80")]);
    let mut cloud = Cloud::of_user();
    for (id, name) in [("rsp-ours", "k8s/1/web/default/c1"), ("rsp-others", "k8s/1/other/default/c1")] {
        let group = ObservedGroup { name: name.to_owned(), backends: None };
        cloud.observed.groups.insert(id.to_owned(), group);
    }
    cloud.observed.groups.get_mut("rsp-user").unwrap().backends = None;
    cloud.observed.listeners = None;
    let needs = world.desired().needs(&cloud.observed);
    let expected = Needs { group_backends: vec!["rsp-ours".to_owned(), "rsp-user".to_owned()], ..Needs::default() };
    assert_eq!(needs, expected);
    let owner = Owner::of(&world.service, &world.settings);
    assert_eq!(teardown_needs(&owner, Some("lb-user"), false, &cloud.observed), expected);
    assert!(teardown_needs(&owner, Some("lb-user"), true, &cloud.observed).listeners);
    assert!(teardown_needs(&owner, None, true, &cloud.observed).is_empty());
    let managed = world.with(&[("id", "lb-user"), ("force-override-listeners", "true")]).desired();
    assert!(managed.needs(&cloud.observed).listeners);
}

#[test]
fn marks_that_are_too_long_still_lead_to_their_group() {
    let mut world = World::new(&[]);
    world.service.key.name = "s".repeat(63);
    world.service.key.namespace = "n".repeat(63);
    let mut cloud = world.served();
    assert_eq!(world.plan(&cloud), "");
    let long = format!("k8s/30080/{}/{}/c1", world.service.key.name, world.service.key.namespace);
    let group = cloud.observed.groups.values_mut().next().unwrap();
    assert!(group.name.len() <= 80, "{}", group.name);
    group.name.clone_from(&long);
    for backend in group.backends.iter_mut().flatten() {
        backend.description.clone_from(&long);
    }
    assert_eq!(world.plan(&cloud), "");
    world.nodes.push(node("n3", "i-3"));
    world.bring(&mut cloud);
    assert_eq!(cloud.backends(&long).len(), 3);
}

#[test]
fn sticky_sessions_are_checked_before_the_api_is_asked() {
    let plan = |list: &[(&str, &str)]| {
        diff(&World::new(&[&[("protocol-port", "http:80")], list].concat()).desired(), &Cloud::default().observed)
    };
    let sticky = ("sticky-session", "on");
    assert_eq!(plan(&[sticky]).problems.len(), 1);
    assert_eq!(plan(&[sticky, ("sticky-session-type", "insert")]).problems.len(), 1);
    let complete = plan(&[sticky, ("sticky-session-type", "insert"), ("cookie-timeout", "9"), ("cookie", "x")]);
    assert_eq!(complete.problems, []);
    let Operation::CreateListener { fields, .. } = &complete.steps[2].operation else { panic!("{complete}") };
    assert!(fields.contains_key(&ListenerField::CookieTimeout) && !fields.contains_key(&ListenerField::Cookie));
}
