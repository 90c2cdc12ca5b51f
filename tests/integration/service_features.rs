//! What Services can ask for beyond an address: readiness gates, graceful shutdown, source ranges, partial management, and
//! shared load balancers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Fault, Listener, LoadBalancer, Protocol};
use sim::cluster::{Endpoint, NodeSpec, Version};
use sim::testbed::Testbed;

use crate::harness::{ALL, Ccm, World, address, counts};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::{self, Kind};

const SERVICE: &[&str] = &["service"];
const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
const GATE: &str = "service.readiness.alibabacloud.com/web";

pub(crate) fn key(suffix: &str) -> String {
    format!("{PREFIX}{suffix}")
}

fn patch(world: &World, name: &str, changes: &Value) {
    world.testbed.cluster.patch("Service", "default", name, changes).unwrap();
}

/// A world with more configuration, one node, and a Service `web` with annotations that has its address; and the binary.
pub(crate) async fn served(more: &str, annotations: &[(&str, &str)]) -> (World, Ccm) {
    let world = World::new(SERVICE, more).await;
    let node = world.testbed.join(1);
    world.testbed.expose("web", &[80], &[&node], annotations);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    (world, ccm)
}

/// The only load balancer of the cloud, if there is one.
pub(crate) fn balancer(world: &World) -> Option<LoadBalancer> {
    world.testbed.cloud.look(|cloud| cloud.load_balancers.values().next().map(|it| LoadBalancer::clone(it)))
}

fn listener(world: &World, port: u16) -> Option<Listener> {
    balancer(world)?.listeners.get(&(port, Protocol::Tcp)).cloned()
}

/// Backends of all groups: (server, address) to weight.
fn backends(world: &World) -> BTreeMap<(String, String), i64> {
    let groups = balancer(world).map(|it| it.groups).unwrap_or_default();
    let all = groups.values().flat_map(|group| group.backends.clone());
    all.map(|it| ((it.server_id, it.server_ip), i64::from(it.weight))).collect()
}

fn reasons(world: &World, name: &str) -> Vec<String> {
    world.events("Service", name).into_iter().map(|(_, reason, _)| reason).collect()
}

pub(crate) fn said(world: &World, name: &str, text: &str) -> bool {
    world.events("Service", name).iter().any(|(_, _, message)| message.contains(text))
}

pub(crate) fn pod(name: &str, gated: bool) -> Value {
    let gates = if gated { json!([{ "conditionType": GATE }]) } else { json!([]) };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "c" }], "readinessGates": gates },
    })
}

pub(crate) fn containers_ready(testbed: &Testbed, name: &str) {
    let status = json!({ "conditions": [{ "type": "ContainersReady", "status": "True" }] });
    testbed.cluster.patch_status("Pod", "default", name, &status).unwrap();
}

pub(crate) fn gate_condition(testbed: &Testbed, name: &str) -> Option<(String, String)> {
    let pod = testbed.cluster.get("Pod", "default", name)?;
    let found = pod["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == GATE)?.clone();
    Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
}

pub(crate) fn pod_endpoint(last: u8, name: &str) -> Endpoint {
    let ip = IpAddr::V4(Ipv4Addr::new(192, 168, 0, last));
    Endpoint { pod: Some(name.to_owned()), ..Endpoint::ready(ip, "node-1") }
}

#[tokio::test(flavor = "multi_thread")]
async fn gated_pods_are_registered_reported_and_leave_gracefully() {
    let world = World::new(SERVICE, "").await;
    let cluster = &world.testbed.cluster;
    world.testbed.join(1);
    world.testbed.cloud.edit(|cloud| {
        for last in [101_u8, 102] {
            cloud.add_interface(&format!("eni-{last}"), "i-play-1", "vsw-i", &[&format!("192.168.0.{last}")]);
        }
    });
    // Pods without node ports: they are attached directly.
    let annotations = json!({ "service.beta.kubernetes.io/backend-type": "eni", key("graceful-shutdown"): "true" });
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "web", "namespace": "default", "annotations": annotations },
            "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                      "ports": [{ "port": 80, "targetPort": 8080 }] },
        }))
        .unwrap();
    assert_eq!(world.service("web")["spec"]["ports"][0].get("nodePort"), None);
    for (name, gated) in [("gated", true), ("plain", false)] {
        cluster.create(pod(name, gated)).unwrap();
    }
    containers_ready(&world.testbed, "plain");
    let endpoints = [pod_endpoint(101, "gated").not_ready(), pod_endpoint(102, "plain").not_ready()];
    cluster.set_endpoints("default", "web", &endpoints).unwrap();
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!(backends(&world), BTreeMap::new(), "no pod is ready for traffic");

    containers_ready(&world.testbed, "gated");
    world.until("the gate is open", |_| gate_condition(&world.testbed, "gated").is_some()).await;
    assert_eq!(gate_condition(&world.testbed, "gated").unwrap(), ("True".to_owned(), "ServerRegistered".to_owned()));
    let server = ("eni-101".to_owned(), "192.168.0.101".to_owned());
    assert_eq!(backends(&world), BTreeMap::from([(server.clone(), 100)]), "only the one whose gate it is");
    assert_eq!(gate_condition(&world.testbed, "plain"), None);

    let ready = [pod_endpoint(101, "gated"), pod_endpoint(102, "plain")];
    cluster.set_endpoints("default", "web", &ready).unwrap();
    world.until("both are backends", |_| backends(&world).len() == 2).await;
    cluster.set_endpoints("default", "web", &[pod_endpoint(101, "gated").terminating(), ready[1].clone()]).unwrap();
    world.until("it gets no new connections", |_| backends(&world).get(&server) == Some(&0)).await;
    cluster.set_endpoints("default", "web", &ready[1..]).unwrap();
    world.until("it is gone", |_| !backends(&world).contains_key(&server)).await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// The cloud refuses tags, and no pod behind a node waits for those.
#[test]
fn a_setting_that_has_nothing_to_do_with_traffic_keeps_no_pod_behind_a_node_from_being_ready() {
    for kind in Kind::BOTH {
        let (opened, log) = on_a_clock_of_its_own(0, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            kind.expose(&testbed, "web", &[80], &[1]);
            let _product = Product::start(&testbed, &[kind.controller()], "[leader_election]\nenabled = false\n");
            tokio::time::sleep(Duration::from_secs(60)).await;
            testbed.cloud.faults().always("TagResources", Fault::code("Forbidden.RAM"));
            kinds::annotate(&testbed, "web", "additional-resource-tags", "a=1");
            tokio::time::sleep(Duration::from_secs(10)).await;
            testbed.cluster.create(pod("gated", true)).unwrap();
            containers_ready(&testbed, "gated");
            testbed.cluster.set_endpoints("default", "web", &[pod_endpoint(101, "gated").not_ready()]).unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(testbed.cloud.count("TagResources") > 0, "nothing is refused");
            gate_condition(&testbed, "gated")
        });
        assert_eq!(opened, Some(("True".to_owned(), "ServerRegistered".to_owned())), "{log}");
    }
}

/// As of a StatefulSet whose template got the gate.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_back_under_its_name_with_a_gate_is_served() {
    let world = World::new(SERVICE, "").await;
    let cluster = &world.testbed.cluster;
    world.testbed.join(1);
    world.testbed.cloud.edit(|cloud| {
        cloud.add_interface("eni-101", "i-play-1", "vsw-i", &["192.168.0.101"]);
    });
    world.testbed.expose("web", &[80], &[], &[("service.beta.kubernetes.io/backend-type", "eni")]);
    cluster.create(pod("web-0", false)).unwrap();
    cluster.set_endpoints("default", "web", &[pod_endpoint(101, "web-0").not_ready()]).unwrap();
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    world.until_quiet(Duration::from_secs(2)).await;
    cluster.set_endpoints("default", "web", &[]).unwrap();
    cluster.delete("Pod", "default", "web-0").unwrap();
    world.until_quiet(Duration::from_secs(2)).await;
    cluster.create(pod("web-0", true)).unwrap();
    containers_ready(&world.testbed, "web-0");
    cluster.set_endpoints("default", "web", &[pod_endpoint(101, "web-0").not_ready()]).unwrap();
    world.until("the gate is open", |_| gate_condition(&world.testbed, "web-0").is_some_and(|it| it.0 == "True")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn source_ranges_affinity_and_health_checks_reach_the_listeners() {
    let world = World::new(SERVICE, "\n[service]\nlocal_health_check = true\n").await;
    let nodes = [world.testbed.join(1)];
    world.testbed.expose("web", &[80], &[&nodes[0]], &[]);
    let spec = json!({ "spec": {
        "loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 14_400}},
    } });
    patch(&world, "web", &spec);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    let ingress = world.service("web")["status"]["loadBalancer"]["ingress"][0].clone();
    assert_eq!(ingress["ipMode"], "VIP");
    assert_eq!(ingress["ports"], json!([{ "port": 80, "protocol": "TCP" }]));

    let lists = || world.testbed.cloud.look(|cloud| cloud.acls.clone());
    let entries = || lists().values().next().map(|list| list.entries.keys().cloned().collect::<Vec<_>>());
    let (id, list) = lists().pop_first().unwrap();
    assert_eq!(
        (list.name.as_str(), list.tags["ack.aliyun.com"].as_str()),
        ("k8s/acl/web/default/playground", "playground")
    );
    let found = listener(&world, 80).unwrap();
    assert_eq!(
        (found.acl_status.as_str(), found.acl_type.as_str(), &found.acl_ids),
        ("on", "white", &vec![id.clone()])
    );
    assert_eq!(found.config["PersistenceTimeout"], 3600);
    let port = world.service("web")["spec"]["healthCheckNodePort"].clone();
    assert_eq!((&found.config["HealthCheckType"], &found.config["HealthCheckConnectPort"]), (&json!("http"), &port));
    world.until("the bound is reported", |_| said(&world, "web", "at most 3600 s")).await;

    patch(&world, "web", &json!({ "spec": { "loadBalancerSourceRanges": ["172.16.0.0/12"] } }));
    world.until("the list follows", |_| entries() == Some(vec!["172.16.0.0/12".to_owned()])).await;
    assert_eq!(lists().keys().collect::<Vec<_>>(), [&id], "the same list");

    // A crash right after the list was let go of leaves nothing behind.
    assert!(ccm.kill().await.code().is_none());
    patch(&world, "web", &json!({ "spec": { "loadBalancerSourceRanges": null } }));
    let before = world.start();
    world.until("the list is gone", |_| lists().is_empty()).await;
    assert_eq!(listener(&world, 80).unwrap().acl_status, "off");

    patch(
        &world,
        "web",
        &json!({ "metadata": { "annotations": { key("acl-status"): "off" } },
                                  "spec": { "loadBalancerSourceRanges": ["10.0.0.0/8"] } }),
    );
    let reported = "spec.loadBalancerSourceRanges says who may connect";
    world.until("the annotation without effect is reported", |_| said(&world, "web", reported)).await;
    world.until("the ranges are in force", |_| listener(&world, 80).unwrap().acl_status == "on").await;
    patch(&world, "web", &json!({ "metadata": { "annotations": { key("acl-status"): null } } }));
    world.until("there is a list again", |_| entries().is_some_and(|entries| !entries.is_empty())).await;
    world.until_in_sync().await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |_| world.service("web").is_null()).await;
    assert!(lists().is_empty() && balancer(&world).is_none());
    assert!(before.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_source_ranges_are_written_once_and_one_of_them_is_replaced_alone() {
    let mut ranges: Vec<String> = (0..60).map(|number| format!("10.0.{number}.0/24")).collect();
    let (world, ccm) = served("", &[]).await;
    let state = |ranges: &[String]| patch(&world, "web", &json!({ "spec": { "loadBalancerSourceRanges": ranges } }));
    let has = |entry: &str, count: usize| {
        let lists = world.testbed.cloud.look(|cloud| cloud.acls.values().cloned().collect::<Vec<_>>());
        lists.iter().any(|list| list.entries.contains_key(entry) && list.entries.len() == count)
    };
    let writes = || {
        let mut calls = world.take_calls();
        calls.retain(|action, _| !action.starts_with("Describe"));
        calls
    };
    state(&ranges);
    world.until("all ranges are in the list", |_| has("10.0.59.0/24", 60)).await;
    world.until("the list is in force", |_| listener(&world, 80).unwrap().acl_status == "on").await;
    assert!(ccm.stop().await.success());
    writes();

    let ccm = world.start_serving();
    world.until_quiet(Duration::from_secs(2)).await;
    assert_eq!(writes(), counts(&[]));
    "10.1.0.0/24".clone_into(&mut ranges[55]);
    state(&ranges);
    world.until("the list follows", |_| has("10.1.0.0/24", 60)).await;
    world.until_quiet(Duration::from_secs(1)).await;
    assert_eq!(writes(), counts(&[("AddAccessControlListEntry", 1), ("RemoveAccessControlListEntry", 1)]));
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_others_are_repaired_where_managed_and_reported_by_name() {
    let (manage, scheduler, protection) = (key("manage"), key("scheduler"), key("delete-protection"));
    let annotations = [(manage.as_str(), "listeners"), (&scheduler, "wlc"), (&protection, "on")];
    let (world, ccm) = served("\n[service]\ndrift_check = \"60s\"\n", &annotations).await;
    world.until_quiet(Duration::from_secs(1)).await;
    world.testbed.cloud.edit(|cloud| {
        for lb in cloud.load_balancers.values_mut() {
            lb.delete_protection = false;
            lb.groups.values_mut().for_each(|group| group.backends[0].weight = 1);
            for listener in lb.listeners.values_mut() {
                listener.scheduler = "rr".into();
            }
        }
    });
    let (text, code) = world.plan().await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("Scheduler rr -> wlc") && text.contains("not managed: set delete protection on"), "{text}");
    // The next comparison is due within a minute.
    tokio::time::sleep(Duration::from_secs(40)).await;
    world.until("the listener is repaired", |_| listener(&world, 80).is_some_and(|it| it.scheduler == "wlc")).await;
    world.until("it is reported", |_| reasons(&world, "web").contains(&"RepairedDrift".to_owned())).await;
    for (found, restored) in [("Scheduler rr", "wlc"), ("weight 1", "100")] {
        let change = format!("{found} -> {restored}");
        world.until("the change is reported", |_| said(&world, "web", &change)).await;
    }
    assert!(!balancer(&world).unwrap().delete_protection, "that is not ours to keep");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_load_balancer_has_one_owner_per_port_and_is_left_clean() {
    let world = World::new(ALL, "").await;
    let nodes = [world.testbed.join(1), world.testbed.join(2)];
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    world.testbed.cloud.edit(|cloud| {
        cloud.load_balancers.insert("lb-shared".into(), LoadBalancer::internet("shared", "47.1.1.1").into());
    });
    let (id, force) = (key("id"), key("force-override-listeners"));
    let annotations = [(id.as_str(), "lb-shared"), (force.as_str(), "true")];
    world.testbed.expose("first", &[80], &names, &annotations);
    let taint = json!({ "spec": { "taints": [
        { "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" },
        { "key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" },
    ] } });
    world.testbed.cluster.patch("Node", "", &nodes[1], &taint).unwrap();
    let ccm = world.start();
    world.until("the first has an address", |_| address(&world.service("first")).is_some()).await;
    world.testbed.expose("second", &[80], &names, &annotations);
    world.until("the loser is reported", |_| said(&world, "second", "the listener 80/tcp with description")).await;
    assert!(listener(&world, 80).unwrap().description.starts_with("k8s/80/first/"));

    world.until("both nodes are backends", |_| backends(&world).keys().any(|(id, _)| id == "i-play-2")).await;
    let taints = world.node(&nodes[1])["spec"]["taints"].clone();
    let kept = json!({ "key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" });
    assert!(taints.as_array().unwrap().contains(&kept), "when it was added decides about evictions: {taints}");
    let leaving =
        json!({ "spec": { "taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] } });
    world.testbed.cluster.patch("Node", "", &nodes[1], &leaving).unwrap();
    let is_backend = |id: &str| backends(&world).keys().any(|(server, _)| server == id);
    world.until("a node that is to go is no backend", |_| !is_backend("i-play-2")).await;
    let label = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
    world.testbed.cluster.patch("Node", "", &nodes[0], &label).unwrap();
    world.until("nor is an excluded one", |_| !is_backend("i-play-1")).await;

    patch(&world, "first", &json!({ "metadata": { "annotations": { id.as_str(): null, force.as_str(): null } } }));
    world.until("it is reported what to do", |_| said(&world, "first", "no annotation names it")).await;
    assert!(listener(&world, 80).is_some(), "it goes on serving");
    for name in ["first", "second"] {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    world.until("both are gone", |_| ["first", "second"].iter().all(|name| world.service(name).is_null())).await;
    let left = balancer(&world).expect("a user's load balancer stays");
    assert!(left.listeners.is_empty() && left.groups.is_empty(), "{left:?}");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paid_for_goes_one_way_only() {
    let (world, ccm) = served("", &[]).await;
    assert_eq!(balancer(&world).unwrap().instance_charge_type, "PayByCLCU", "the default");
    let charge = |value: &str| {
        patch(&world, "web", &json!({ "metadata": { "annotations": { key("instance-charge-type"): value } } }))
    };
    charge("PayBySpec");
    world.until("the way back is refused here", |_| said(&world, "web", "cannot go back to `PayBySpec`")).await;
    charge("PayByCLCU");
    let bought =
        json!({ "metadata": { "annotations": { key("charge-type"): "paybybandwidth", key("bandwidth"): "50" } } });
    patch(&world, "web", &bought);
    world.until("so is another charge of traffic", |_| said(&world, "web", "paybytraffic")).await;
    let asked = world.testbed.cloud.writes().into_iter().filter(|call| call.action.starts_with("Modify")).count();
    assert_eq!(asked, 0, "without asking");
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_virtual_nodes_are_attached_and_hybrid_nodes_are_not() {
    let world = World::new(SERVICE, "").await;
    let (cluster, node) = (&world.testbed.cluster, world.testbed.join(1));
    cluster.add_node(&NodeSpec::new("virtual").label("type", "virtual-kubelet")).unwrap();
    cluster.add_node(&NodeSpec::new("hybrid").provider_id("ack-hybrid://x.y")).unwrap();
    world
        .testbed
        .cloud
        .edit(|cloud| drop(cloud.add_interface("eni-eci", "i-play-1", "vsw-i", &["192.168.0.77"]).clone()));
    world.testbed.expose("web", &[80], &[&node], &[]);
    let on = |node: &str, ip: [u8; 4]| Endpoint::ready(IpAddr::V4(Ipv4Addr::from(ip)), node);
    let pods = [on(&node, [10, 98, 1, 10]), on("virtual", [192, 168, 0, 77]), on("hybrid", [172, 30, 0, 1])];
    cluster.set_endpoints("default", "web", &pods).unwrap();
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    let (machine, alone) = (("i-play-1".to_owned(), String::new()), ("eni-eci".to_owned(), "192.168.0.77".to_owned()));
    assert_eq!(backends(&world), BTreeMap::from([(machine.clone(), 100), (alone.clone(), 100)]));
    assert!(!reasons(&world, "web").contains(&"LoadBalancerSettings".to_owned()), "nothing is wrong with such nodes");
    patch(&world, "web", &json!({ "spec": { "externalTrafficPolicy": "Local" } }));
    world
        .until("weights count pods", |_| backends(&world) == BTreeMap::from([(machine.clone(), 1), (alone.clone(), 1)]))
        .await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_looked_up_in_batches_and_one_without_interface_delays_no_other() {
    const PODS: u8 = 130;
    let world = World::new(SERVICE, "").await;
    let node = world.testbed.join(1);
    let ip = |last: u8| Ipv4Addr::new(192, 168, 1, last);
    world.testbed.cloud.edit(|cloud| {
        for last in 1..=PODS {
            cloud.add_interface(&format!("eni-{last}"), "i-play-1", "vsw-i", &[&ip(last).to_string()]);
        }
    });
    world.testbed.expose("web", &[80], &[&node], &[("service.beta.kubernetes.io/backend-type", "eni")]);
    let on = |last: u8| Endpoint { pod: Some(format!("pod-{last}")), ..Endpoint::ready(IpAddr::V4(ip(last)), &node) };
    let all: Vec<Endpoint> = (1..=PODS).map(on).collect();
    world.testbed.cluster.set_endpoints("default", "web", &all).unwrap();
    let ccm = world.start();
    world.until("all are there", |_| backends(&world).len() == usize::from(PODS)).await;
    world.until_quiet(Duration::from_secs(1)).await;
    assert_eq!(world.testbed.cloud.count("DescribeNetworkInterfaces"), 2, "a hundred addresses in a call");

    // One comes whose interface is not there yet, one is outside of the VPC, and one goes, whose address may be another's soon.
    world.testbed.cluster.create(pod("pod-200", true)).unwrap();
    let mut some = all[1..].to_vec();
    let outside = Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), &node);
    some.extend([on(131), on(200), outside]);
    world
        .testbed
        .cloud
        .edit(|cloud| drop(cloud.add_interface("eni-131", "i-play-1", "vsw-i", &["192.168.1.131"]).clone()));
    world.testbed.cluster.set_endpoints("default", "web", &some).unwrap();
    world.until("the new one is there", |_| backends(&world).keys().any(|(id, _)| id == "eni-131")).await;
    world
        .until("the other is reported", |_| {
            said(&world, "web", "no network interface holds the pod addresses 192.168.1.200")
        })
        .await;
    let lost = || gate_condition(&world.testbed, "pod-200");
    world
        .until("its pod is reported", |_| lost() == Some(("False".to_owned(), "ServerInvalidServer".to_owned())))
        .await;
    world.until("the dead one is gone", |_| backends(&world).keys().all(|(id, _)| id != "eni-1")).await;
    assert_eq!(backends(&world).len(), usize::from(PODS), "nobody else is removed meanwhile");
    let asked = |ip: &str| world.testbed.cloud.calls().iter().any(|it| it.parameters.values().any(|value| value == ip));
    assert!(asked("192.168.1.200") && !asked("10.9.9.9"), "no interface of the VPC has an address from outside");
    world
        .testbed
        .cloud
        .edit(|cloud| drop(cloud.add_interface("eni-200", "i-play-1", "vsw-i", &["192.168.1.200"]).clone()));
    patch(&world, "web", &json!({ "metadata": { "annotations": { key("scheduler"): "wrr" } } }));
    let settled = |world: &World| {
        let found = backends(world);
        found.keys().any(|(id, _)| id == "eni-200") && found.keys().all(|(id, _)| id != "eni-1") && found.len() == 131
    };
    world.until("then everything is in sync", |_| settled(&world)).await;

    // An address that went to another pod can have gone to another interface.
    world.testbed.cloud.edit(|cloud| {
        cloud.interfaces.remove("eni-2");
        cloud.add_interface("eni-moved", "i-play-1", "vsw-i", &[&ip(2).to_string()]);
    });
    let moved = Endpoint { pod: Some("another".to_owned()), ..some[0].clone() };
    world.testbed.cluster.set_endpoints("default", "web", &[&[moved], &some[1..]].concat()).unwrap();
    let is_there = |id: &str| backends(&world).keys().any(|(server, _)| server == id);
    world.until("the address has moved", |_| is_there("eni-moved") && !is_there("eni-2")).await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_becomes_a_cluster_ip_reports_what_keeps_its_load_balancer() {
    let (world, ccm) = served("", &[]).await;
    world.until_quiet(Duration::from_secs(1)).await;
    // As the official controller leaves it.
    patch(&world, "web", &json!({ "metadata": { "labels": { "service.beta.kubernetes.io/hash": "b10a8db1" } } }));
    world.testbed.cloud.faults().always("DeleteLoadBalancer", Fault::code("OperationDenied.Locked"));
    patch(&world, "web", &json!({ "spec": { "type": "ClusterIP" } }));
    let reported = world.until_event("Service", "web", "CleanLoadBalancerFailed").await;
    assert!(reported.starts_with("The load balancer could not be removed"), "{reported}");
    assert!(!reasons(&world, "web").contains(&"SyncLoadBalancerFailed".to_owned()));
    world.testbed.cloud.faults().clear();
    patch(&world, "web", &json!({ "metadata": { "annotations": { key("scheduler"): "wrr" } } }));
    world.until("it is gone", |_| balancer(&world).is_none() && address(&world.service("web")).is_none()).await;
    world.until("it is let go", |_| world.service("web")["metadata"].get("finalizers").is_none()).await;
    assert_eq!(world.service("web")["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len), 0);
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_marks_are_restored() {
    let (world, ccm) = served("", &[]).await;
    world.until_quiet(Duration::from_secs(1)).await;
    assert!(ccm.kill().await.code().is_none());
    let before = balancer(&world).unwrap().tags;
    world.testbed.cloud.edit(|cloud| cloud.load_balancers.values_mut().for_each(|lb| lb.tags.clear()));
    // Without the label, too: it is found by its name.
    patch(&world, "web", &json!({ "metadata": { "labels": { "service.k8s.alibaba/loadbalancer-id": null } } }));
    let ccm = world.start();
    world.until("they are back", |_| balancer(&world).unwrap().tags == before).await;
    assert_eq!(world.testbed.cloud.count("CreateLoadBalancer"), 1);
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_with_a_name_of_the_users_choice_is_found_by_its_mark() {
    let (world, ccm) = served("", &[(&key("name"), "mine")]).await;
    world.until_quiet(Duration::from_secs(1)).await;
    assert!(ccm.kill().await.code().is_none());
    let label = || world.service("web")["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].clone();
    let before = label();
    patch(&world, "web", &json!({ "metadata": { "labels": { "service.k8s.alibaba/loadbalancer-id": null } } }));
    let ccm = world.start();
    world.until("the label is back", |_| label() == before).await;
    assert_eq!((world.testbed.cloud.count("CreateLoadBalancer"), balancer(&world).unwrap().name.as_str()), (1, "mine"));
    assert!(ccm.stop().await.success());
}

#[tokio::test]
async fn another_client_that_writes_the_status_is_reported_and_what_the_spec_says_in_vain_too() {
    let (world, _ccm) = served("", &[]).await;
    let service = world.service("web");
    let published = address(&service);
    let writer = json!({
        "manager": "metallb", "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:status": { "f:loadBalancer": {} } }
    });
    patch(&world, "web", &json!({ "metadata": { "managedFields": [writer] } }));
    let other = json!({ "loadBalancer": { "ingress": [{ "ip": "10.9.9.9" }] } });
    world.testbed.cluster.patch_status("Service", "default", "web", &other).unwrap();
    world
        .until("the overwriting is reported", |_| {
            said(&world, "web", "status.loadBalancer was overwritten by \"metallb\"")
        })
        .await;
    world.until("the address is there again", |_| address(&world.service("web")) == published).await;
    patch(&world, "web", &json!({ "spec": { "loadBalancerIP": "10.1.1.1", "externalIPs": ["10.2.2.2"] } }));
    for field in ["spec.loadBalancerIP: Ignored value: \"10.1.1.1\"", "spec.externalIPs: Ignored value: \"10.2.2.2\""] {
        world.until("the field is reported", |_| said(&world, "web", field)).await;
    }
}
