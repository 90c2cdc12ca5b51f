//! Migration from the official controller: what it left behind is in sync for this one.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::RouteEntry;
use sim::cluster::{Endpoint, NodeSpec};
use sim::testbed::{REGION, ROUTE_TABLE};

use crate::harness::{ALL, World};

/// Services as given to the official controller, and the load balancers that it made for them, one by one.
const LEFT: &str = include_str!("migration.json");

/// Nodes of the cluster that [`LEFT`] is from: number, zone, and a label.
const NODES: [(u8, &str, &str, &str); 6] = [
    (1, "vsw-i", "color", "blue"),
    (2, "vsw-j", "color", "blue"),
    (3, "vsw-i", "color", "green"),
    (4, "vsw-j", "node-role.kubernetes.io/master", ""),
    (5, "vsw-i", "node.kubernetes.io/exclude-from-external-load-balancers", ""),
    (6, "vsw-j", "color", "green"),
];

/// Services whose annotations have no effect, each in its own way.
const IDLE: [&str; 1] = ["spec-only"];

/// A node as the official controller has initialised it, with its route.
fn leave_node(world: &World, number: u8, vswitch: &str, label: (&str, &str)) {
    let (name, instance) = (format!("node-{number}"), format!("i-d-{number}"));
    let (zone, ip) = if vswitch == "vsw-i" {
        ("cn-hangzhou-i", format!("192.168.0.{number}"))
    } else {
        ("cn-hangzhou-j", format!("192.168.16.{number}"))
    };
    let cidr = format!("10.98.{number}.0/24");
    world.testbed.cloud.add_instance(&instance, &name, vswitch, &ip);
    world.testbed.cloud.edit(|cloud| {
        cloud.interfaces.get_mut(&format!("eni-d-{number}")).unwrap().source_dest_check = Some(false);
        let entry = RouteEntry::to_instance(&format!("rte-{number}"), &instance);
        cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.insert(cidr.clone(), entry);
    });
    let mut node = NodeSpec::new(&name)
        .provider_id(&format!("{REGION}.{instance}"))
        .pod_cidr(&cidr)
        .internal_ip(&ip)
        .label(label.0, label.1);
    for (key, value) in [
        ("topology.kubernetes.io/region", REGION),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/region", REGION),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("node.kubernetes.io/instance-type", "ecs.g7.large"),
        ("beta.kubernetes.io/instance-type", "ecs.g7.large"),
        ("node.alibabacloud.com/instance-charge-type", "PostPaid"),
        ("node.alibabacloud.com/spot-strategy", "NoSpot"),
    ] {
        node = node.label(key, value);
    }
    world.testbed.cluster.add_node(&node).unwrap();
    let status = json!({
        "conditions": [{
            "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
            "message": "RouteController created a route", "lastTransitionTime": "2025-01-01T00:00:00Z",
        }],
    });
    if number == 6 {
        world.testbed.cluster.patch("Node", "", &name, &json!({"spec": {"unschedulable": true}})).unwrap();
    }
    world.testbed.cluster.patch_status("Node", "", &name, &status).unwrap();
}

/// A Service with its load balancer.
fn leave_service(world: &World, number: usize, left: &Value) {
    let cluster = &world.testbed.cluster;
    let name = left["name"].as_str().unwrap();
    let made = cluster.create(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "exam", "annotations": left["annotations"]},
        "spec": left["spec"],
    }));
    let made = made.unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap().replace('-', "");
    let default_name: String = format!("a{uid}").chars().take(32).collect();
    // What differs from cluster to cluster stands in angle brackets.
    let fill = |part: &Value| {
        let mut text = part.to_string();
        for (index, port) in made["spec"]["ports"].as_array().unwrap().iter().enumerate() {
            let port = port["nodePort"].to_string();
            text = text
                .replace(&format!("\"port\":\"<np{index}>\""), &format!("\"port\":{port}"))
                .replace(&format!("<np{index}>"), &port);
        }
        let text = text.replace("<lb>", &format!("lb-official-{number}")).replace("<default-name>", &default_name);
        serde_json::from_str::<Value>(&text.replace("<address>", &format!("47.98.77.{number}"))).unwrap()
    };
    let load_balancer = fill(&left["load_balancer"]);
    world.testbed.cloud.edit(|cloud| cloud.restore_load_balancer(&load_balancer)).unwrap();
    let endpoints: Vec<_> = left["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| Endpoint::ready(pair[0].as_str().unwrap().parse::<IpAddr>().unwrap(), pair[1].as_str().unwrap()))
        .collect();
    cluster.set_endpoints("exam", name, &endpoints).unwrap();
    let metadata = json!({"metadata": {
        "finalizers": ["service.k8s.alibaba/resources"],
        "labels": {
            "service.beta.kubernetes.io/hash": "b10a8db164e0754105b7a99be72e3fe5d9a1c0f9e2a3b4c5d6e7f809",
            "service.k8s.alibaba/loadbalancer-id": load_balancer["id"],
        },
    }});
    cluster.patch("Service", "exam", name, &metadata).unwrap();
    cluster.patch_status("Service", "exam", name, &json!({"loadBalancer": fill(&left["status"])})).unwrap();
}

/// The Services with the addresses under which they are reached.
fn published(world: &World) -> Vec<(Value, Value, Value)> {
    let services = world.testbed.cluster.list("Service");
    let own = |it: &Value, field: &str| it["metadata"][field].clone();
    services.iter().map(|it| (own(it, "name"), own(it, "labels"), it["status"]["loadBalancer"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_over_with_an_empty_first_plan() {
    let world = World::new(ALL, "").await;
    for (number, vswitch, key, value) in NODES {
        leave_node(&world, number, vswitch, (key, value));
    }
    world.testbed.cloud.edit(|cloud| {
        *cloud = cloud.clone().with_certificate("cert-exam-1", "one.example.com", jiff::Timestamp::MAX);
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "exam"}});
    world.testbed.cluster.create(namespace).unwrap();
    let left: Vec<Value> = serde_json::from_str(LEFT).unwrap();
    for (number, service) in left.iter().enumerate() {
        leave_service(&world, number, service);
    }
    assert!(left.len() >= 20);

    assert_eq!(world.plan().await, ("Nothing to do.\n".to_owned(), Some(0)));
    assert!(world.kubernetes_writes().is_empty() && world.testbed.cloud.writes().is_empty());

    let before = (world.testbed.cloud.snapshot(), published(&world));
    // Listeners are read in bulk; the plan before was one reader, this is the other.
    let reads = world.testbed.cloud.count("DescribeLoadBalancerListeners");
    let ccm = world.start();
    let has_read = |testbed: &sim::testbed::Testbed| testbed.cloud.count("DescribeLoadBalancerListeners") > reads;
    world.until("load balancers are looked at", has_read).await;
    world.until_quiet(Duration::from_secs(4)).await;
    let writes: Vec<_> = world.testbed.cloud.writes().into_iter().map(|call| call.action).collect();
    assert_eq!(writes, Vec::<String>::new());
    assert_eq!((world.testbed.cloud.snapshot(), published(&world)), before);
    // Each Service gets the condition that says that it is in sync, which the official controller does not write.
    let mut writes = world.kubernetes_writes();
    writes.retain(|write| !write.starts_with("create events"));
    writes.sort();
    let mut expected: Vec<_> =
        left.iter().map(|service| format!("patch services/status {}", service["name"].as_str().unwrap())).collect();
    expected.sort();
    assert_eq!(writes, expected);
    for service in world.testbed.cluster.list("Service").iter().filter(|it| it["metadata"]["namespace"] == "exam") {
        let conditions = service["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1, "{service}");
        assert_eq!((&conditions[0]["type"], &conditions[0]["status"]), (&json!("LoadBalancerReady"), &json!("True")));
    }
    // Only what was ignored silently so far is reported.
    let warned = |event: &Value| event["type"] == "Warning";
    let warnings = world.testbed.cluster.list("Event").into_iter().filter(warned);
    let reported = warnings.map(|event| {
        assert!(event["message"].as_str().unwrap().contains("Ignored value: "), "{event}");
        event["involvedObject"]["name"].as_str().unwrap().to_owned()
    });
    let mut reported: Vec<String> = reported.collect();
    reported.sort();
    assert_eq!(reported, IDLE);
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_ignored_comes_into_force_when_its_user_says_so() {
    let world = World::new(&["service"], "").await;
    for (number, vswitch, key, value) in NODES {
        leave_node(&world, number, vswitch, (key, value));
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "exam"}});
    world.testbed.cluster.create(namespace).unwrap();
    let left: Vec<Value> = serde_json::from_str(LEFT).unwrap();
    let plain = left.iter().find(|service| service["name"] == "plain-tcp").unwrap();
    for (number, name) in ["by-edit", "by-label"].into_iter().enumerate() {
        let mut left: Value = serde_json::from_str(&plain.to_string().replace("plain-tcp", name)).unwrap();
        left["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
        left["spec"]["sessionAffinity"] = json!("ClientIP");
        leave_service(&world, number, &left);
    }
    assert_eq!(world.plan().await, ("Nothing to do.\n".to_owned(), Some(0)));
    let ccm = world.start();
    let reported = |name: &str| {
        let events = world.events("Service", name);
        ["spec.loadBalancerSourceRanges", "spec.sessionAffinity"].iter().all(|field| {
            events.iter().any(|(_, _, message)| message.contains(field) && message.contains("Ignored value"))
        })
    };
    world.until("both are reported", |_| reported("by-edit") && reported("by-label")).await;
    world.until_quiet(Duration::from_secs(1)).await;
    assert_eq!(world.testbed.cloud.writes().len(), 0, "nobody is shut out by the move");

    let lists =
        || world.testbed.cloud.look(|cloud| cloud.acls.values().map(|list| list.entries.len()).collect::<Vec<_>>());
    let cluster = &world.testbed.cluster;
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "172.16.0.0/12"]}});
    cluster.patch("Service", "exam", "by-edit", &ranges).unwrap();
    world.until("an edit puts them in force", |_| lists() == [2]).await;
    let unlabel = json!({"metadata": {"labels": {"service.beta.kubernetes.io/hash": null}}});
    cluster.patch("Service", "exam", "by-label", &unlabel).unwrap();
    world.until("so does taking the label off", |_| lists().iter().sum::<usize>() == 3).await;
    world.until_quiet(Duration::from_secs(1)).await;
    let listeners = world.testbed.cloud.look(|cloud| {
        let all = cloud.load_balancers.values().flat_map(|lb| lb.listeners.values().cloned().collect::<Vec<_>>());
        all.map(|it| (it.acl_status, it.config["PersistenceTimeout"].clone())).collect::<Vec<_>>()
    });
    assert_eq!(listeners, [("on".to_owned(), json!(3600)), ("on".to_owned(), json!(3600))]);
    let label = |name: &str| {
        cluster.get("Service", "exam", name).unwrap()["metadata"]["labels"]["service.beta.kubernetes.io/hash"].clone()
    };
    assert_eq!((label("by-edit"), label("by-label")), (Value::Null, Value::Null));
    assert_eq!(world.plan().await, ("Nothing to do.\n".to_owned(), Some(0)));
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}
