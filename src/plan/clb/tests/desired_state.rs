//! What Services ask for: who is handled, which backends, with what weight, and what is wrong.

use std::collections::BTreeSet;

use super::{Cloud, ENI, World, edited, key, leaving, pod, port};
use crate::plan::clb::desired::{ClbModel, Desired};
use crate::plan::clb::model::{InstanceField, Protocol};
use crate::plan::clb::needs::MissingReads;
use crate::plan::clb::teardown::teardown_needs;
use crate::plan::inputs::{Ingress, Taint, TargetPort};
use crate::plan::loadbalancer::desired::ProductModel;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::model::{BackendKind, ObservedGroup};
use crate::plan::loadbalancer::ownership::{FINALIZER, LABEL_LB_ID, LoadBalancerKind, Owner};

/// Weights of the only group, in order of its backends.
fn weights(desired: &Desired) -> Vec<u8> {
    desired.groups.values().flat_map(|group| group.backends.to_vec()).map(|backend| backend.weight).collect()
}

fn servers(desired: &Desired) -> BTreeSet<String> {
    desired.groups.values().flat_map(|group| group.backends.keys()).map(|key| key.server_id.to_string()).collect()
}

fn named<const N: usize>(servers: [&str; N]) -> BTreeSet<String> {
    servers.map(str::to_owned).into()
}

fn ingress(ip: &str) -> Ingress {
    Ingress { ip: ip.to_owned(), hostname: String::new() }
}

const CLB: LoadBalancerKind = LoadBalancerKind::Clb;

#[test]
fn which_services_are_handled() {
    let world = World::new(&[]);
    let mut settings = world.settings.clone();
    assert_eq!(CLB.handling(&world.service, &settings), Handling::Ensure);
    for (key, value, ignored) in [
        ("service.beta.kubernetes.io/class", "other", true),
        ("service.beta.kubernetes.io/class", "", false),
        ("tunnel-type", "", true),
        ("type", "nlb", false),
    ] {
        let expected = if ignored { Handling::Ignore } else { Handling::Ensure };
        let service = World::new(&[(key, value)]).service;
        assert_eq!(CLB.handling(&service, &settings), expected, "{key}={value:?}");
    }
    settings.service.type_annotation = true;
    assert_eq!(CLB.handling(&World::new(&[("type", "clb")]).service, &settings), Handling::Ignore);
    let mut service = world.service.clone();
    service.load_balancer_class = Some(String::new());
    assert_eq!(CLB.handling(&service, &settings), Handling::Ignore);

    let mut service = world.service;
    service.deleting = true;
    assert_eq!(CLB.handling(&service, &settings), Handling::Ignore);
    service.finalizers = vec![FINALIZER.to_owned()];
    assert_eq!(CLB.handling(&service, &settings), Handling::Delete);
    service.deleting = false;
    service.service_type = crate::plan::inputs::ServiceType::ClusterIp;
    assert_eq!(CLB.handling(&service, &settings), Handling::Delete);
}

#[test]
fn a_service_given_to_another_controller_keeps_its_load_balancer() {
    let mut world = World::new(&[("service.beta.kubernetes.io/class", "other")]);
    assert_eq!(CLB.handed_over(&world.service, &world.settings), None);
    world.service.finalizers = vec![FINALIZER.to_owned()];
    assert_eq!(CLB.handling(&world.service, &world.settings), Handling::Ignore);
    assert!(CLB.handed_over(&world.service, &world.settings).unwrap().to_string().contains("as \"other\" says"));
    world.service.deleting = true;
    assert_eq!(CLB.handling(&world.service, &world.settings), Handling::Delete);
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
        node.labels.insert("type".into(), "virtual-kubelet".into());
        node.provider_id.clear();
    });
    let wanted =
        Goal::<ClbModel>::addresses_to_resolve(&world.service, &world.nodes, &world.endpoints, &world.settings);
    assert_eq!(wanted, BTreeSet::from(["192.168.64.21".parse().unwrap()]));
    for local in [false, true] {
        world.service.local_traffic = local;
        let desired = world.desired();
        assert_eq!(servers(&desired), named(["eni-192.168.64.21", "i-1"]), "local: {local}");
        assert_eq!(weights(&desired), if local { [2, 1] } else { [100, 100] });
        assert_eq!(desired.warnings, []);
    }
    assert_eq!(
        Goal::<ClbModel>::addresses_to_resolve(
            &world.service,
            &world.nodes[..1].to_vec(),
            &world.endpoints,
            &world.settings
        ),
        BTreeSet::new()
    );
}

#[test]
fn nodes_that_are_no_backends() {
    type Edit = fn(&mut crate::plan::inputs::NodeView);
    let label = |name: &'static str| {
        move |node: &mut crate::plan::inputs::NodeView| {
            node.labels.insert(name.into(), "".into());
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
        assert_eq!(servers(&world.desired()), named(["i-2"]), "{name}");
    }
    let edits: [(&str, Edit); 8] = [
        ("no conditions", |node| {
            node.has_conditions = false;
            node.ready = None;
        }),
        ("not ready", |node| node.ready.as_mut().unwrap().status = crate::plan::inputs::ConditionStatus::Unknown),
        ("autoscaler", |node| {
            node.taints.push(Taint { key: "ToBeDeletedByClusterAutoscaler".to_owned(), ..Taint::default() });
        }),
        ("karpenter", |node| {
            node.taints.push(Taint { key: "karpenter.sh/disrupted".to_owned(), ..Taint::default() });
        }),
        ("replaced", |node| node.is_replaced = true),
        ("hybrid", |node| node.provider_id = "ack-hybrid://x".to_owned()),
        ("bad id", |node| node.provider_id = "nonsense".to_owned()),
        ("another region", |node| node.provider_id = "cn-beijing.i-1".to_owned()),
    ];
    for (name, edit) in edits {
        let mut world = World::new(&[]);
        world.nodes[0] = edited(&world.nodes[0], edit);
        let desired = world.desired();
        assert_eq!(servers(&desired), named(["i-2"]), "{name}");
        assert_eq!(desired.warnings.len(), usize::from(["bad id", "another region"].contains(&name)), "{name}");
    }
    let mut world = World::new(&[]);
    world.nodes[0] = edited(&world.nodes[0], |node| node.ready = None);
    world.nodes[1] = edited(&world.nodes[1], |node| node.unschedulable = true);
    assert_eq!(servers(&world.desired()).len(), 2);
    assert_eq!(servers(&world.with(&[("remove-unscheduled-backend", "on")]).desired()), named(["i-1"]));
}

#[test]
fn nodes_are_chosen_by_label() {
    let mut world = World::new(&[("backend-label", "color=blue,size=1")]);
    world.nodes[0] = edited(&world.nodes[0], |node| {
        node.labels = [("color".into(), "blue".into()), ("size".into(), "1".into())].into_iter().collect();
    });
    world.nodes[1] =
        edited(&world.nodes[1], |node| node.labels = [("color".into(), "blue".into())].into_iter().collect());
    assert_eq!(servers(&world.desired()), named(["i-1"]));
}

#[test]
fn only_ready_endpoints_take_traffic() {
    let mut world = World::new(&[ENI]);
    world.endpoints.endpoints[0].ready = false;
    world.endpoints.endpoints[1].ready = false;
    assert_eq!(servers(&world.desired()), named(["eni-192.168.64.21"]));
    (world.endpoints.endpoints[2].terminating, world.endpoints.endpoints[2].serving) = (true, false);
    let desired = world.desired();
    assert_eq!(servers(&desired), BTreeSet::new());
    assert_eq!(desired.empty_ports, [key(80, Protocol::Tcp)]);
}

#[test]
fn while_no_endpoint_is_ready_those_that_terminate_and_serve_take_all_traffic() {
    /// Annotations, whether the policy is Local, and the backend.
    type Mode = (&'static [(&'static str, &'static str)], bool, &'static str);
    /// Ready, serving, terminating; whether it takes traffic beside a ready endpoint, and while none is ready.
    const ROWS: [(bool, bool, bool, bool, bool); 6] = [
        (true, true, false, true, true),
        (false, false, false, false, false),
        (false, true, false, false, false),
        (false, true, true, false, true),
        (true, true, true, false, true),
        (false, false, true, false, false),
    ];
    let graceful: &'static [(&str, &str)] = &[ENI, ("graceful-shutdown", "true")];
    let modes: [Mode; 4] = [
        (&[], true, "i-1"),
        (&[ENI], false, "eni-192.168.64.11"),
        (&[ENI], true, "eni-192.168.64.11"),
        (graceful, false, "eni-192.168.64.11"),
    ];
    for (mode, row) in modes.into_iter().flat_map(|mode| ROWS.map(|row| (mode, row))) {
        let (annotations, is_local, server) = mode;
        let mut world = World::new(annotations);
        world.service.local_traffic = is_local;
        world.endpoints.endpoints.remove(1);
        let first = &mut world.endpoints.endpoints[0];
        (first.ready, first.serving, first.terminating) = (row.0, row.1, row.2);
        let beside = row.3 || (annotations == graceful && row.1 && row.2);
        assert_eq!(servers(&world.desired()).contains(server), beside, "beside another: {mode:?} {row:?}");
        world.endpoints.endpoints.truncate(1);
        let desired = world.desired();
        assert_eq!(servers(&desired).contains(server), row.4, "alone: {mode:?} {row:?}");
        assert!(weights(&desired).iter().all(|weight| *weight > 0), "with traffic: {mode:?} {row:?}");
    }
}

#[test]
fn endpoints_of_a_service_without_selector_say_which_of_their_ports_counts() {
    let mut world = World::new(&[ENI]);
    world.endpoints.endpoints.iter_mut().for_each(|it| it.ports = [("p80".to_owned(), 9376)].into());
    let ports = |world: &World| {
        let desired = world.desired();
        let keys = desired.groups.values().flat_map(|group| group.backends.keys());
        keys.map(|key| key.port).collect::<BTreeSet<u16>>()
    };
    assert_eq!(ports(&world), [9376].into());
    world.service.selector.insert("app".to_owned(), "web".to_owned());
    assert_eq!(ports(&world), [8080].into(), "of pods that are selected, the Service says so");
}

#[test]
fn terminating_pods_that_serve_can_stay_without_new_traffic() {
    let mut world = World::new(&[ENI, ("graceful-shutdown", "true")]);
    world.endpoints.endpoints[0].terminating = true;
    world.endpoints.endpoints[0].ready = false;
    assert_eq!(weights(&world.desired()), [0, 100, 100]);
    let ignoring = world.clone().with(&[ENI, ("graceful-shutdown", "true"), ("ignore-weight-update", "on")]);
    assert_eq!(weights(&ignoring.desired()), [100, 100]);
    world.endpoints.endpoints[0].serving = false;
    assert_eq!(weights(&world.desired()), [100, 100]);
}

#[test]
fn named_target_ports_are_found_by_the_name_of_the_services_port() {
    let mut world = World::new(&[ENI]);
    world.service.ports[0].target_port = TargetPort::Name("http".to_owned());
    world.endpoints.endpoints[0].ports = [("p80".to_owned(), 8081)].into();
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
    assert_eq!(servers(&world.desired()), named(["eni-six"]));
    assert_eq!(servers(&world.clone().with(&all[..2]).desired()), named(["eni-192.168.64.11"]));
    world.settings.service.ipv6 = false;
    assert_eq!(servers(&world.desired()), named(["eni-192.168.64.11"]));
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
    let spec =
        |list: &[(&str, &str)]| World::new(list).desired().instance.create.fields.get(&InstanceField::Spec).cloned();
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
    assert_eq!(CLB.handling(&world.service, &world.settings), Handling::Delete);
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
    let mut world = World::new(&[
        ("vgroup-port", "rsp-a:80"),
        ("zone-maps", "x"),
        ("graceful-shutdown", "true"),
        ("backend-ip-version", "ipv6"),
        ("forward-port", "80:443"),
    ]);
    world.service.client_ip_affinity = Some(14_400);
    let fields: Vec<_> = world.desired().warnings.into_iter().map(|warning| warning.field).collect();
    assert!(fields.contains(&"spec.sessionAffinity".to_owned()), "{fields:?}");
    assert_eq!(fields.len(), 6, "{fields:?}");
}

#[test]
fn each_setting_without_effect_is_told_with_what_it_needs() {
    const HTTP: (&str, &str) = ("protocol-port", "http:80");
    const USERS: (&str, &str) = ("id", "lb-user");
    /// Annotations, the one without effect, and what is said of it.
    type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str);
    const CASES: &[Case] = &[
        (&[("acl-id", "a")], "acl-id", "acl-status: on"),
        (&[("connection-drain-timeout", "10")], "connection-drain-timeout", "connection-drain: on"),
        (&[HTTP, ("sticky-session-type", "insert")], "sticky-session-type", "sticky-session: on"),
        (&[HTTP, ("cookie", "c")], "cookie", "sticky-session-type: server"),
        (&[HTTP, ("cookie-timeout", "9")], "cookie-timeout", "sticky-session-type: insert"),
        (&[("health-check-uri", "/a")], "health-check-uri", "health-check-type: http"),
        (&[HTTP, ("health-check-uri", "/a")], "health-check-uri", "health-check-flag: on"),
        (&[("health-check-switch", "off"), ("healthy-threshold", "4")], "healthy-threshold", "health-check-switch: on"),
        (&[("idle-timeout", "10")], "idle-timeout", "no listener is http or https"),
        (&[("cert-id", "c")], "cert-id", "no listener is https"),
        (&[("protocol-port", "http:81")], "protocol-port", "no such port"),
        (&[("forward-port", "80:443")], "forward-port", "80 is no HTTP port"),
        (&[("domain-extensions", "a.example.com:c")], "domain-extensions", "no listener is https"),
        (&[USERS, ("scheduler", "wlc")], "scheduler", "force-override-listeners"),
        (&[USERS, ("vgroup-port", "rsp-user:81")], "vgroup-port", "no such port"),
        (&[USERS, ("vswitch-id", "vsw-i")], "vswitch-id", "has its place"),
        (&[USERS, ("preserve-lb-on-delete", "true")], "preserve-lb-on-delete", "kept in any case"),
        (&[USERS, ("weight", "10")], "weight", "vgroup-port"),
        (
            &[USERS, ("vgroup-port", "rsp-user:80"), ("weight", "10"), ("default-weight", "5")],
            "default-weight",
            "weight decides",
        ),
        (&[("vswitch-id", "vsw-i")], "vswitch-id", "only intranet"),
        (&[("force-override-listeners", "true")], "force-override-listeners", "managed anyway"),
        (&[("external-ip-type", "eip"), ("hostname", "a.example.com")], "external-ip-type", "hostname is published"),
        (&[ENI, ("backend-label", "a=b")], "backend-label", "attached directly"),
        (&[ENI, ("remove-unscheduled-backend", "on")], "remove-unscheduled-backend", "attached directly"),
        (&[("graceful-shutdown", "true")], "graceful-shutdown", "backend-type: eni"),
        (&[("backend-ip-version", "ipv6")], "backend-ip-version", "ip-version: ipv6"),
        (&[("vgroup-port", "rsp-a:80")], "vgroup-port", "it needs"),
        (&[("bandwidth", "5")], "bandwidth", "charge-type: paybybandwidth"),
        (&[("address-type", "intranet"), ("charge-type", "paybytraffic")], "charge-type", "is not charged"),
        (&[("spec", "slb.s2.small")], "spec", "charged by `PayByCLCU`"),
    ];
    for (annotations, key, needs) in CASES {
        let world = World::new(annotations);
        let cloud = if annotations.contains(&USERS) { Cloud::of_user() } else { Cloud::default() };
        let desired = world.desired();
        let plan = diff(&desired, &cloud.observed);
        let told: Vec<_> = desired.warnings.iter().chain(&plan.warnings).collect();
        assert!(
            told.len() == 1 && told[0].field.ends_with(key) && told[0].to_string().contains(needs),
            "{key}: {told:?}"
        );
    }
    let mut local = World::new(&[("default-weight", "5")]);
    local.service.local_traffic = true;
    assert!(local.desired().warnings[0].to_string().contains("number of pods"), "{:?}", local.desired().warnings);
    // What does count is not told.
    let sensible = [HTTP, ("health-check-flag", "on"), ("health-check-uri", "/a"), ("acl-status", "off")];
    assert_eq!(World::new(&sensible).desired().warnings, []);
}

#[test]
fn the_status_names_hostname_then_elastic_addresses_then_the_address() {
    let observed = World::new(&[]).served().observed;
    let of = |list: &[(&str, &str)], eips: &[&str]| {
        let eips: Vec<_> = eips.iter().map(|ip| (*ip).to_owned()).collect();
        ClbModel::ingress(&World::new(list).desired(), &observed, &eips)
    };
    let eip = ("external-ip-type", "eip");
    assert_eq!(of(&[], &["1.1.1.1"]), [ingress("47.98.0.1")]);
    assert_eq!(of(&[eip], &["1.1.1.1", "1.1.1.2"]), [ingress("1.1.1.1"), ingress("1.1.1.2")]);
    assert_eq!(of(&[eip], &[]), [ingress("47.98.0.1")]);
    let hostname = Ingress { ip: String::new(), hostname: "a.example.com".to_owned() };
    assert_eq!(of(&[eip, ("hostname", "a.example.com")], &["1.1.1.1"]), [hostname]);
}

#[test]
fn the_status_stays_while_it_is_not_known_what_is_to_be_published() {
    let observed = World::new(&[]).served().observed;
    let hostname = Ingress { ip: String::new(), hostname: "a.example.com".to_owned() };
    for (wrong, published) in
        [(("hostname", "A.example.com"), hostname), (("external-ip-type", "EIP"), ingress("1.1.1.1"))]
    {
        let of = |ingress: Vec<Ingress>, label: &str| {
            let mut world = World::new(&[wrong]);
            world.service.ingress = ingress;
            world.service.labels.insert(LABEL_LB_ID.to_owned(), label.to_owned());
            ClbModel::ingress(&world.desired_with_problems(), &observed, &[])
        };
        let id = &observed.instance.as_ref().unwrap().id;
        assert_eq!(of(vec![published.clone()], id).first(), Some(&published), "{wrong:?}");
        assert_eq!(of(vec![published], "lb-before"), [ingress("47.98.0.1")], "{wrong:?}: another load balancer serves");
        assert_eq!(of(Vec::new(), ""), [ingress("47.98.0.1")], "{wrong:?}: nothing is published");
    }
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
    // The group of ours is no longer wanted: whether it can go depends on the listeners.
    let expected = MissingReads {
        listeners: true,
        group_backends: vec!["rsp-ours".to_owned(), "rsp-user".to_owned()],
        ..MissingReads::default()
    };
    assert_eq!(needs, expected);
    let owner = Owner::of(&world.service, &world.settings);
    assert_eq!(teardown_needs(&owner, &leaving(Some("lb-user"), false), &cloud.observed), expected);
    assert!(teardown_needs(&owner, &leaving(None, false), &cloud.observed).is_empty());
    cloud.observed.groups.remove("rsp-ours");
    assert!(!world.desired().needs(&cloud.observed).listeners, "listeners of users are none of our business");
    let managed = world.with(&[("id", "lb-user"), ("force-override-listeners", "true")]).desired();
    assert!(managed.needs(&cloud.observed).listeners);
}
