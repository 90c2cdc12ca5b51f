//! Which pods and nodes are backends where several things come together.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{ENI, World, edited, node, pod, port};
use crate::plan::inputs::{ConditionStatus, TargetPort};
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::unready::UnreadyNodes;

/// Backends of all groups: (server, port, weight).
fn backends(world: &World) -> Vec<(String, u16, u8)> {
    let groups = world.desired().groups;
    let all = groups.values().flat_map(|group| group.backends.to_vec());
    all.map(|it| (it.key.server_id.to_string(), it.key.port, it.weight)).collect()
}

fn weights(world: &World) -> Vec<u8> {
    backends(world).into_iter().map(|(_, _, weight)| weight).collect()
}

fn servers(world: &World) -> BTreeSet<String> {
    backends(world).into_iter().map(|(server, ..)| server).collect()
}

#[test]
fn a_shared_weight_leaves_nobody_out_unless_it_is_nothing() {
    let shared =
        |kind, weight| World::new(&[kind, ("weight", weight), ("id", "lb-user"), ("vgroup-port", "rsp-user:80")]);
    let nodes = ("service.beta.kubernetes.io/backend-type", "ecs");
    assert_eq!(weights(&shared(ENI, "2")), [1, 1, 1], "two thirds are one");
    assert_eq!(weights(&shared(nodes, "1")), [1, 1]);
    for kind in [ENI, nodes] {
        assert!(weights(&shared(kind, "0")).iter().all(|weight| *weight == 0));
    }
    let mut local = shared(nodes, "2");
    local.service.local_traffic = true;
    assert_eq!(weights(&local), [1, 1]);
    let mut virtual_node = local.clone();
    virtual_node.nodes[1] = edited(&virtual_node.nodes[1], |it| {
        it.labels.insert("type".into(), "virtual-kubelet".into());
    });
    assert_eq!(weights(&virtual_node), [1, 1], "a pod on a virtual node, too");
    let mut idle = shared(nodes, "0");
    idle.service.local_traffic = true;
    assert_eq!(weights(&idle), [0, 0]);
}

#[test]
fn a_shared_weight_needs_a_users_group_of_a_users_load_balancer() {
    let weight = ("weight", "30");
    for beside in [("id", "lb-user"), ("vgroup-port", "rsp-user:80")] {
        assert_eq!(weights(&World::new(&[weight, beside])), [100, 100], "{beside:?}");
    }
    let alone = World::new(&[("vgroup-port", "rsp-user:80")]).desired();
    assert_eq!(alone.groups.keys().collect::<Vec<_>>(), ["k8s/30080/web/default/c1"], "nobody knows of whose it is");
}

#[test]
fn a_pod_in_two_slices_is_one_pod() {
    let mut world = World::new(&[]);
    world.service.local_traffic = true;
    world.endpoints.endpoints =
        vec![pod("192.168.64.11", "n1"), pod("192.168.64.11", "n1"), pod("192.168.64.21", "n2")];
    assert_eq!(weights(&world), [1, 1]);
}

#[test]
fn more_pods_than_a_weight_can_say_are_a_hundred() {
    let mut world = World::new(&[]);
    world.service.local_traffic = true;
    world.endpoints.endpoints = (1..=120).map(|n| pod(&format!("192.168.65.{n}"), "n1")).collect();
    assert_eq!(weights(&world), [100]);
}

#[test]
fn only_pods_that_are_attached_leave_gracefully() {
    let mut world = World::new(&[("graceful-shutdown", "true")]);
    world.service.local_traffic = true;
    world.endpoints.endpoints[0].terminating = true;
    assert_eq!(weights(&world), [1, 1], "a node has no traffic for one of its pods only");
}

#[test]
fn pods_on_excluded_nodes_get_no_traffic_through_or_past_their_node() {
    let mut world = World::new(&[]);
    world.service.local_traffic = true;
    world.nodes[0] = edited(&world.nodes[0], |it| {
        it.labels.insert("service.alibabacloud.com/exclude-node".into(), "".into());
    });
    assert_eq!(servers(&world), BTreeSet::from(["i-2".to_owned()]));
}

#[test]
fn a_virtual_node_needs_no_kubelet_that_says_that_it_is_ready() {
    let mut world = World::new(&[]);
    world.nodes[1] = edited(&world.nodes[1], |it| {
        it.labels.insert("type".into(), "virtual-kubelet".into());
        it.has_conditions = false;
        it.ready = None;
    });
    assert_eq!(servers(&world), BTreeSet::from(["eni-192.168.64.21".to_owned(), "i-1".to_owned()]));
}

#[test]
fn an_ipv6_load_balancer_has_ipv4_backends_unless_told_otherwise() {
    let mut world = World::new(&[ENI, ("ip-version", "ipv6")]);
    world.endpoints.endpoints = vec![pod("fd00::1", "n1"), pod("192.168.64.11", "n1")];
    world.enis.insert("fd00::1".parse().unwrap(), "eni-six".to_owned());
    assert_eq!(servers(&world), BTreeSet::from(["eni-192.168.64.11".to_owned()]));
}

#[test]
fn a_named_port_is_the_one_of_that_name() {
    let mut world = World::new(&[ENI]).ports(&[port(80, "TCP", 0, 0), port(443, "TCP", 0, 0)]);
    for (port, name) in world.service.ports.iter_mut().zip(["http", "https"]) {
        port.target_port = TargetPort::Name(name.to_owned());
    }
    world.endpoints.endpoints.truncate(1);
    world.endpoints.endpoints[0].ports = [("p443".to_owned(), 8443), ("p80".to_owned(), 8080)].into();
    let ports: BTreeSet<u16> = backends(&world).into_iter().map(|(_, port, _)| port).collect();
    assert_eq!(ports, BTreeSet::from([8080, 8443]));
    let groups = world.desired().groups;
    assert_eq!(groups["k8s/http/web/default/c1"].backends.keys().map(|key| key.port).collect::<Vec<_>>(), [8080]);
}

#[test]
fn nothing_is_taken_out_while_nobody_is_known_to_serve() {
    let mut world = World::new(&[]);
    world.nodes.push(node("n3", "i-3"));
    let cloud = world.served();
    let mut dark = world.clone();
    for node in &mut dark.nodes {
        *node = edited(node, |it| it.ready.as_mut().unwrap().status = ConditionStatus::Unknown);
    }
    assert_eq!(dark.desired().unready, UnreadyNodes::All);
    assert_eq!(diff(&dark.desired(), &cloud.observed).steps, []);
    dark.nodes[0] = world.nodes[0].clone();
    dark.unready = dark.desired().unready;
    assert_ne!(dark.unready, UnreadyNodes::All);
    assert_eq!(diff(&dark.desired(), &cloud.observed).steps, [], "the others may be about to become ready, too");
    dark.now += Duration::from_secs(30);
    assert_eq!(diff(&dark.desired(), &cloud.observed).steps.len(), 1, "by now they would be ready");

    let mut pods = World::new(&[ENI]);
    let cloud = pods.served();
    pods.endpoints.endpoints.clear();
    pods.endpoints.unknown = true;
    assert_eq!(diff(&pods.desired(), &cloud.observed).steps, []);
    pods.endpoints.unknown = false;
    assert_eq!(diff(&pods.desired(), &cloud.observed).steps.len(), 1);
}

#[test]
fn a_service_cannot_have_two_listeners_on_one_port() {
    let world = World::new(&[]).ports(&[port(80, "TCP", 8080, 30080), port(80, "TCP", 8081, 30081)]);
    let problem = world.desire().unwrap_err().remove(0);
    assert!(problem.field == "spec.ports[1]" && problem.to_string().contains("spec.ports[0] has 80/tcp"), "{problem}");
}
