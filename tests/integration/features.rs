//! What Services can ask for beyond an address: readiness gates, graceful shutdown, source ranges, partial management,
//! placement, and shared load balancers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Fault, Listener, LoadBalancer, Protocol};
use sim::cluster::Endpoint;

use crate::kit::{ALL, World, address};

const SERVICE: &[&str] = &["service"];
const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
const GATE: &str = "service.readiness.alibabacloud.com/web";

fn key(suffix: &str) -> String {
    format!("{PREFIX}{suffix}")
}

fn patch(world: &World, name: &str, changes: &Value) {
    world.stage.cluster.patch("Service", "default", name, changes).unwrap();
}

/// The only load balancer of the cloud, if there is one.
fn balancer(world: &World) -> Option<LoadBalancer> {
    world.stage.cloud.look(|cloud| cloud.load_balancers.values().next().map(|it| LoadBalancer::clone(it)))
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

fn said(world: &World, name: &str, text: &str) -> bool {
    world.events("Service", name).iter().any(|(_, _, message)| message.contains(text))
}

fn pod(name: &str, gated: bool) -> Value {
    let gates = if gated { json!([{ "conditionType": GATE }]) } else { json!([]) };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "c" }], "readinessGates": gates },
    })
}

fn containers_ready(world: &World, name: &str) {
    let status = json!({ "conditions": [{ "type": "ContainersReady", "status": "True" }] });
    world.stage.cluster.patch_status("Pod", "default", name, &status).unwrap();
}

fn gate_condition(world: &World, name: &str) -> Option<(String, String)> {
    let pod = world.stage.cluster.get("Pod", "default", name)?;
    let found = pod["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == GATE)?.clone();
    Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
}

fn pod_endpoint(last: u8, name: &str) -> Endpoint {
    let ip = IpAddr::V4(Ipv4Addr::new(192, 168, 0, last));
    Endpoint { pod: Some(name.to_owned()), ..Endpoint::ready(ip, "node-1") }
}

#[tokio::test(flavor = "multi_thread")]
async fn gated_pods_are_registered_told_and_leave_gracefully() {
    let world = World::new(SERVICE, "").await;
    let cluster = &world.stage.cluster;
    world.stage.join(1);
    world.stage.cloud.edit(|cloud| {
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
    containers_ready(&world, "plain");
    let endpoints = [pod_endpoint(101, "gated").not_ready(), pod_endpoint(102, "plain").not_ready()];
    cluster.set_endpoints("default", "web", &endpoints).unwrap();
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!(backends(&world), BTreeMap::new(), "no pod is ready for traffic");

    containers_ready(&world, "gated");
    world.until("the gate is open", |_| gate_condition(&world, "gated").is_some()).await;
    assert_eq!(gate_condition(&world, "gated").unwrap(), ("True".to_owned(), "ServerRegistered".to_owned()));
    let server = ("eni-101".to_owned(), "192.168.0.101".to_owned());
    assert_eq!(backends(&world), BTreeMap::from([(server.clone(), 100)]), "only the one whose gate it is");
    assert_eq!(gate_condition(&world, "plain"), None);

    let ready = [pod_endpoint(101, "gated"), pod_endpoint(102, "plain")];
    cluster.set_endpoints("default", "web", &ready).unwrap();
    world.until("both are backends", |_| backends(&world).len() == 2).await;
    cluster.set_endpoints("default", "web", &[pod_endpoint(101, "gated").terminating(), ready[1].clone()]).unwrap();
    world.until("it gets no new connections", |_| backends(&world).get(&server) == Some(&0)).await;
    cluster.set_endpoints("default", "web", &ready[1..]).unwrap();
    world.until("it is gone", |_| !backends(&world).contains_key(&server)).await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.stage.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn source_ranges_affinity_and_health_checks_reach_the_listeners() {
    let world = World::new(SERVICE, "\n[service]\nlocal_health_check = true\n").await;
    let nodes = [world.stage.join(1)];
    world.stage.expose("web", &[80], &[&nodes[0]], &[]);
    let spec = json!({ "spec": {
        "loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local",
    } });
    patch(&world, "web", &spec);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    let ingress = world.service("web")["status"]["loadBalancer"]["ingress"][0].clone();
    assert_eq!(ingress["ipMode"], "VIP");
    assert_eq!(ingress["ports"], json!([{ "port": 80, "protocol": "TCP" }]));

    let lists = || world.stage.cloud.look(|cloud| cloud.acls.clone());
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
    assert!(said(&world, "web", "at most 3600 s"), "{:?}", world.events("Service", "web"));

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
    world.until("the conflict is told", |_| said(&world, "web", "both say who may connect")).await;
    patch(&world, "web", &json!({ "metadata": { "annotations": { key("acl-status"): null } } }));
    world.until("there is a list again", |_| entries().is_some_and(|entries| !entries.is_empty())).await;
    world.until_quiet(Duration::from_secs(1)).await;
    assert_eq!(world.plan().await, ("Nothing to do.\n".to_owned(), Some(0)));
    world.stage.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |_| world.service("web").is_null()).await;
    assert!(lists().is_empty() && balancer(&world).is_none());
    assert!(before.stop().await.success());
    assert_eq!(world.stage.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_others_are_repaired_where_we_manage_and_told_by_name() {
    let world = World::new(SERVICE, "\n[service]\ndrift_check = \"60s\"\n").await;
    let nodes = [world.stage.join(1)];
    let (manage, scheduler, protection) = (key("manage"), key("scheduler"), key("delete-protection"));
    let annotations = [(manage.as_str(), "listeners"), (&scheduler, "wlc"), (&protection, "on")];
    world.stage.expose("web", &[80], &[&nodes[0]], &annotations);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    world.until_quiet(Duration::from_secs(1)).await;
    world.stage.cloud.edit(|cloud| {
        for lb in cloud.load_balancers.values_mut() {
            lb.delete_protection = false;
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
    world.until("it is told", |_| reasons(&world, "web").contains(&"RepairedDrift".to_owned())).await;
    assert!(said(&world, "web", "Scheduler rr -> wlc"), "{:?}", world.events("Service", "web"));
    assert!(!balancer(&world).unwrap().delete_protection, "that is not ours to keep");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_load_balancer_has_one_owner_per_port_and_is_left_clean() {
    let world = World::new(ALL, "").await;
    let nodes = [world.stage.join(1), world.stage.join(2)];
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    world.stage.cloud.edit(|cloud| {
        cloud.load_balancers.insert("lb-shared".into(), LoadBalancer::internet("shared", "47.1.1.1").into());
    });
    let (id, force) = (key("id"), key("force-override-listeners"));
    let annotations = [(id.as_str(), "lb-shared"), (force.as_str(), "true")];
    world.stage.expose("first", &[80], &names, &annotations);
    let taint = json!({ "spec": { "taints": [
        { "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" },
        { "key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" },
    ] } });
    world.stage.cluster.patch("Node", "", &nodes[1], &taint).unwrap();
    let ccm = world.start();
    world.until("the first has an address", |_| address(&world.service("first")).is_some()).await;
    world.stage.expose("second", &[80], &names, &annotations);
    world.until("the loser is told", |_| said(&world, "second", "80 is taken by the listener 80/tcp")).await;
    assert!(listener(&world, 80).unwrap().description.starts_with("k8s/80/first/"));

    world.until("both nodes are backends", |_| backends(&world).keys().any(|(id, _)| id == "i-play-2")).await;
    let taints = world.node(&nodes[1])["spec"]["taints"].clone();
    let kept = json!({ "key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z" });
    assert!(taints.as_array().unwrap().contains(&kept), "when it was added decides about evictions: {taints}");
    let leaving =
        json!({ "spec": { "taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] } });
    world.stage.cluster.patch("Node", "", &nodes[1], &leaving).unwrap();
    let is_backend = |id: &str| backends(&world).keys().any(|(server, _)| server == id);
    world.until("a node that is to go is no backend", |_| !is_backend("i-play-2")).await;
    let label = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
    world.stage.cluster.patch("Node", "", &nodes[0], &label).unwrap();
    world.until("nor is an excluded one", |_| !is_backend("i-play-1")).await;

    patch(&world, "first", &json!({ "metadata": { "annotations": { id.as_str(): null, force.as_str(): null } } }));
    world.until("it is told what to do", |_| said(&world, "first", "no annotation names it")).await;
    assert!(listener(&world, 80).is_some(), "it goes on serving");
    for name in ["first", "second"] {
        world.stage.cluster.delete("Service", "default", name).unwrap();
    }
    world.until("both are gone", |_| ["first", "second"].iter().all(|name| world.service(name).is_null())).await;
    let left = balancer(&world).expect("a user's load balancer stays");
    assert!(left.listeners.is_empty() && left.groups.is_empty(), "{left:?}");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intranet_load_balancer_goes_where_there_is_room_and_says_so() {
    let world = World::new(SERVICE, "").await;
    let nodes = [world.stage.join(1)];
    world.stage.cloud.faults().script("CreateLoadBalancer", Fault::code("OperationFailed.ZoneResourceLimit"));
    world.stage.expose("web", &[80], &[&nodes[0]], &[(&key("address-type"), "intranet")]);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!(balancer(&world).unwrap().vswitch, "vsw-j");
    world.until("each choice is told", |_| said(&world, "web", "was made in vSwitch vsw-j")).await;
    assert!(said(&world, "web", "can be made in vSwitch vsw-i"), "{:?}", world.events("Service", "web"));
    assert!(ccm.stop().await.success());
}
