//! The node controller: it finds instances, keeps nodes in sync, and removes none without proof.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::NodeSpec;
use sim::testbed::{REGION, instance};

use crate::harness::{Ccm, HASTE, World, is_ready};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const ZONE: &str = "topology.kubernetes.io/zone";

async fn until_ready(world: &World, node: &str) {
    world.until(&format!("{node} is initialised"), |_| is_ready(&world.node(node))).await;
}

fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
}

fn internal_ip(node: &Value) -> Option<&str> {
    let addresses = node["status"]["addresses"].as_array()?;
    addresses.iter().find(|address| address["type"] == "InternalIP")?["address"].as_str()
}

async fn with_nodes(settings: &str) -> (World, Ccm) {
    let world = World::new(&["node"], settings).await;
    let ccm = world.start_serving();
    (world, ccm)
}

async fn finish(world: &World, ccm: Ccm) {
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes() {
    tokio::join!(
        found_by_every_name(),
        doubtful_ones_are_refused(),
        others_are_left_alone(),
        kept_true(),
        stopped_instances(),
        the_check_is_left_alone_if_so_configured(),
        dual_stack(),
        removed_up_to_a_limit(),
        kept_when_the_cloud_shows_nothing(),
        removal_can_be_switched_off(),
    );
}

async fn found_by_every_name() {
    let (world, ccm) = with_nodes(HASTE).await;
    let testbed = &world.testbed;
    (1..=5).for_each(|number| testbed.rent(number));
    testbed.cloud.edit(|cloud| {
        cloud.add_instance("i-bp1seven", "seven", "vsw-i", "192.168.0.97");
        cloud.add_instance("i-bp1eight", "eight", "vsw-j", "192.168.16.98");
        cloud.add_instance("i-bp1abc", "any", "vsw-i", "192.168.0.99").host_name = "iZbp1abcZ".into();
    });
    let id = |number| format!("{REGION}.{}", instance(number));
    let nodes = [
        (NodeSpec::new("a").provider_id(&id(1)), id(1)),
        (NodeSpec::new("b").provider_id(&format!("alicloud://{}", id(2))), format!("alicloud://{}", id(2))),
        (NodeSpec::new("c").internal_ip("192.168.0.3"), id(3)),
        (NodeSpec::new("d").node_ip("192.168.16.4"), id(4)),
        (NodeSpec::new("node-5"), id(5)),
        (NodeSpec::new(&format!("{REGION}.i-bp1seven")), format!("{REGION}.i-bp1seven")),
        (NodeSpec::new("i-bp1eight"), format!("{REGION}.i-bp1eight")),
        (NodeSpec::new("izbp1abcz"), format!("{REGION}.i-bp1abc")),
    ];
    for (node, _) in &nodes {
        testbed.cluster.join_node(node).unwrap();
    }
    for (node, expected) in &nodes {
        until_ready(&world, &node.name).await;
        let seen = world.node(&node.name);
        assert_eq!(seen["spec"]["providerID"], *expected, "{}", node.name);
        let labels = &seen["metadata"]["labels"];
        for label in [ZONE, "failure-domain.beta.kubernetes.io/zone"] {
            let zone = labels[label].as_str().unwrap();
            assert!(["cn-hangzhou-i", "cn-hangzhou-j"].contains(&zone), "{label}={zone}");
        }
        for (label, value) in [
            ("topology.kubernetes.io/region", REGION),
            ("failure-domain.beta.kubernetes.io/region", REGION),
            ("node.kubernetes.io/instance-type", "ecs.g7.large"),
            ("beta.kubernetes.io/instance-type", "ecs.g7.large"),
        ] {
            assert_eq!(labels[label], value, "{}", node.name);
        }
        let addresses =
            testbed.cloud.look(|cloud| cloud.instances[expected.rsplit('.').next().unwrap()].private_ips.clone());
        assert_eq!(internal_ip(&seen), Some(&*addresses[0]));
    }
    finish(&world, ccm).await;
}

async fn doubtful_ones_are_refused() {
    let (world, ccm) = with_nodes(HASTE).await;
    let testbed = &world.testbed;
    (1..=4).for_each(|number| testbed.rent(number));
    testbed.cloud.edit(|cloud| {
        for number in [1, 2] {
            cloud.instances.get_mut(&instance(number)).unwrap().name = "twin".into();
        }
    });
    testbed.cluster.add_node(&NodeSpec::new("owner").provider_id(&format!("{REGION}.{}", instance(3)))).unwrap();
    testbed.cluster.join_node(&NodeSpec::new("twin")).unwrap();
    testbed.cluster.join_node(&NodeSpec::new("node-3")).unwrap();
    testbed.cluster.join_node(&NodeSpec::new("stranger")).unwrap();
    testbed.cluster.join_node(&NodeSpec::new("early").provider_id(&format!("{REGION}.i-play-77"))).unwrap();
    testbed
        .cluster
        .join_node(&NodeSpec::new("astray").provider_id(&format!("{REGION}.{}", instance(4))).node_ip("10.0.0.1"))
        .unwrap();
    for (node, words) in [
        ("twin", &["i-play-1", "i-play-2", "providerID"][..]),
        ("node-3", &["i-play-3", "owner"]),
        ("stranger", &["no instance in vpc-play", "providerID"]),
        ("early", &["i-play-77", "not known"]),
        ("astray", &["10.0.0.1", "192.168.16.4", "--node-ip"]),
    ] {
        let message = world.until_event("Node", node, "SyncNodeFailed").await;
        for word in words {
            assert!(message.contains(word), "{node}: {word:?} is missing: {message}");
        }
        let seen = world.node(node);
        assert!(!is_ready(&seen), "{node} waits");
        assert!(seen["metadata"]["labels"][ZONE].is_null() || node == "astray", "{seen:#}");
    }
    // What becomes clear is taken up, within seconds.
    testbed.cloud.edit(|cloud| cloud.instances.get_mut(&instance(2)).unwrap().name = "other".into());
    testbed.cluster.delete_node("owner").unwrap();
    testbed.rent(77);
    for node in ["twin", "node-3", "early"] {
        until_ready(&world, node).await;
    }
    finish(&world, ccm).await;
}

async fn others_are_left_alone() {
    let (world, ccm) = with_nodes(HASTE).await;
    let testbed = &world.testbed;
    (1..=5).for_each(|number| testbed.rent(number));
    let id = |number| format!("{REGION}.{}", instance(number));
    let others = [
        NodeSpec::new("labelled").provider_id(&id(1)).label("service.alibabacloud.com/exclude-node", "true"),
        NodeSpec::new("labelled-beta").provider_id(&id(2)).label("service.beta.kubernetes.io/exclude-node", ""),
        NodeSpec::new("node-3").label("type", "virtual-kubelet"),
        NodeSpec::new("hybrid").provider_id("ack-hybrid://x.y"),
        NodeSpec::new("aws").provider_id("aws:///eu/i-1"),
        NodeSpec::new("node-4").label("alibabacloud.com/lingjun-worker", "true"),
    ];
    let before: Vec<_> = others.iter().map(|node| testbed.cluster.join_node(node).unwrap()).collect();
    testbed.join(6);
    until_ready(&world, "node-6").await;
    // Not even when they fall silent and their instance is gone.
    testbed.cloud.release_instance(&instance(1));
    let silent = testbed.cluster.set_ready("labelled", "Unknown").unwrap();
    world.until("a periodic pass", |testbed| testbed.cloud.count("DescribeInstances") >= 3).await;
    for (node, before) in others.iter().zip(&before) {
        let now = world.node(&node.name);
        let before = if node.name == "labelled" { &silent } else { before };
        for part in ["metadata", "spec", "status"] {
            let mut known = [before[part].clone(), now[part].clone()];
            for part in &mut known {
                // The taint that the rest of the cluster adds for a silent node.
                let Some(taints) = part.get_mut("taints").and_then(Value::as_array_mut) else {
                    part.as_object_mut().unwrap().retain(|key, _| key != "resourceVersion" && key != "generation");
                    continue;
                };
                taints.retain(|taint| taint["key"] == "node.cloudprovider.kubernetes.io/uninitialized");
            }
            assert_eq!(known[0], known[1], "{}", node.name);
        }
        assert_eq!(world.events("Node", &node.name), []);
    }
    finish(&world, ccm).await;
}

async fn kept_true() {
    let (world, ccm) = with_nodes(HASTE).await;
    world.testbed.join(1);
    until_ready(&world, "node-1").await;
    world.until_quiet(Duration::from_millis(500)).await;
    let labels = json!({"metadata": {"labels": {ZONE: "somewhere", "mine": "stays"}}});
    world.testbed.cluster.patch("Node", "", "node-1", &labels).unwrap();
    let is_back = |world: &World| world.node("node-1")["metadata"]["labels"][ZONE] == "cn-hangzhou-i";
    world.until("the label is as it was", |_| is_back(&world)).await;
    assert_eq!(world.node("node-1")["metadata"]["labels"]["mine"], "stays");

    // Changes of the instance are seen by the periodic pass.
    world.testbed.cloud.edit(|cloud| {
        let instance = cloud.instances.get_mut(&instance(1)).unwrap();
        instance.instance_type = "ecs.g7.xlarge".into();
        instance.eip = "47.1.2.3".into();
    });
    let is_new = |node: Value| {
        node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "ecs.g7.xlarge"
            && node["status"]["addresses"].to_string().contains("47.1.2.3")
    };
    world.until("the node is as the instance", |_| is_new(world.node("node-1"))).await;
    finish(&world, ccm).await;
}

async fn stopped_instances() {
    let (world, ccm) = with_nodes(HASTE).await;
    for number in [1, 2] {
        world.testbed.join(number);
        until_ready(&world, &format!("node-{number}")).await;
    }
    world.testbed.cloud.stop_instance(&instance(1));
    world.testbed.cluster.set_ready("node-1", "Unknown").unwrap();
    world.until("the node has the taint", |_| has_taint(&world.node("node-1"), SHUTDOWN)).await;
    world.testbed.cloud.start_instance(&instance(1));
    world.testbed.cluster.set_ready("node-1", "True").unwrap();
    world.until("the taint is gone", |_| is_ready(&world.node("node-1"))).await;
    // Taints that were set before are lifted although the file asks for no more of them.
    world.testbed.cloud.stop_instance(&instance(2));
    world.testbed.cluster.set_ready("node-2", "Unknown").unwrap();
    world.until("the node has the taint", |_| has_taint(&world.node("node-2"), SHUTDOWN)).await;
    world.edit(|text| text + "shutdown_taint = false\n");
    world.until("the file is read", |_| ccm.log().contains("configuration is in use")).await;
    world.testbed.cloud.start_instance(&instance(2));
    world.testbed.cluster.set_ready("node-2", "True").unwrap();
    world.until("the taint is gone", |_| is_ready(&world.node("node-2"))).await;
    finish(&world, ccm).await;
}

fn check_of(world: &World, number: u8) -> Option<bool> {
    world.testbed.cloud.look(|cloud| cloud.interfaces[&format!("eni-play-{number}")].source_dest_check)
}

async fn the_check_is_left_alone_if_so_configured() {
    let (world, ccm) = with_nodes(&format!("{HASTE}disable_source_dest_check = false\n")).await;
    world.testbed.join(1);
    until_ready(&world, "node-1").await;
    assert_eq!(check_of(&world, 1), Some(true));
    assert_eq!(world.testbed.cloud.count("DescribeNetworkInterfaces"), 0);
    // The default switches it off; being switched on later is for nodes to come.
    world.rewrite(|text| text.replace("disable_source_dest_check = false\n", ""));
    ccm.signal("HUP");
    world.until("the file is read", |_| ccm.log().contains("configuration is in use")).await;
    world.testbed.join(2);
    until_ready(&world, "node-2").await;
    assert_eq!(check_of(&world, 2), Some(false));
    finish(&world, ccm).await;
}

async fn dual_stack() {
    let (world, ccm) = with_nodes(&format!("{HASTE}ipv6 = true\n")).await;
    let testbed = &world.testbed;
    testbed.rent(1);
    testbed.cloud.edit(|cloud| cloud.interfaces.get_mut("eni-play-1").unwrap().ipv6 = vec!["2408:4004::11".into()]);
    let id = format!("{REGION}.{}", instance(1));
    testbed.cluster.join_node(&NodeSpec::new("node-1").provider_id(&id).node_ip("192.168.0.1,2408:4004::11")).unwrap();
    until_ready(&world, "node-1").await;
    let node = world.node("node-1");
    let addresses: Vec<_> = node["status"]["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|address| address["type"] == "InternalIP")
        .collect();
    assert_eq!(
        addresses,
        [
            &json!({"type": "InternalIP", "address": "192.168.0.1"}),
            &json!({"type": "InternalIP", "address": "2408:4004::11"})
        ]
    );
    finish(&world, ccm).await;
}

/// Makes nodes fall silent, whose instances are released.
fn lose(world: &World, numbers: impl IntoIterator<Item = u8>) {
    for number in numbers {
        world.testbed.cloud.release_instance(&instance(number));
        world.testbed.cluster.set_ready(&format!("node-{number}"), "Unknown").unwrap();
    }
}

async fn removed_up_to_a_limit() {
    let (world, ccm) = with_nodes(&format!("{HASTE}removal_limit = 2\n")).await;
    for number in 1..=5 {
        world.testbed.join(number);
    }
    world.until("all are initialised", |testbed| testbed.cluster.list("Node").iter().all(is_ready)).await;
    lose(&world, 1..=4);
    world.until("two are removed", |testbed| testbed.cluster.list("Node").len() == 3).await;
    let held_back = |testbed: &sim::testbed::Testbed| {
        testbed.cluster.list("Event").iter().any(|event| event["reason"] == "NodeRemovalHeldBack")
    };
    world.until("the others are withheld", held_back).await;
    ccm.until_page("/metrics", |_, text| text.contains("alicloud_ccm_held_back{controller=\"node\"} 2")).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(world.testbed.cluster.list("Node").len(), 3);
    assert!(!world.node("node-5").is_null());

    // One that is no longer managed, and one that a person deletes, are withheld no longer.
    let left: Vec<String> =
        (1..=4).map(|number| format!("node-{number}")).filter(|it| !world.node(it).is_null()).collect();
    let excluded = json!({"metadata": {"labels": {"service.alibabacloud.com/exclude-node": "true"}}});
    world.testbed.cluster.patch("Node", "", &left[0], &excluded).unwrap();
    ccm.until_page("/metrics", |_, text| text.contains("alicloud_ccm_held_back{controller=\"node\"} 1")).await;
    world.testbed.cluster.delete("Node", "", &left[1]).unwrap();
    ccm.until_page("/metrics", |_, text| text.contains("alicloud_ccm_held_back{controller=\"node\"} 0")).await;
    finish(&world, ccm).await;
}

async fn kept_when_the_cloud_shows_nothing() {
    let (world, ccm) = with_nodes(HASTE).await;
    for number in 1..=3 {
        world.testbed.join(number);
    }
    world.until("all are initialised", |testbed| testbed.cluster.list("Node").iter().all(is_ready)).await;
    // The permission is gone: lists are empty, and nothing says so.
    let key = sim::testbed::ACCESS_KEY.0;
    let deny = |actions: &[&str]| {
        let denied = actions.iter().map(|action| (*action).to_owned()).collect();
        world.testbed.cloud.edit(|cloud| cloud.keys.get_mut(key).unwrap().denied = denied);
    };
    deny(&["DescribeInstances"]);
    for number in 1..=3 {
        world.testbed.cluster.set_ready(&format!("node-{number}"), "Unknown").unwrap();
    }
    let message = world.until_event("Node", "node-1", "NodeRemovalHeldBack").await;
    assert!(message.contains("kept"), "{message}");
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(world.testbed.cluster.list("Node").len(), 3);
    // Lists that lie once do no harm either.
    deny(&[]);
    world.testbed.cloud.faults().script("DescribeInstances", Fault::Partial(1));
    world.until("the cloud is asked again", |testbed| testbed.cloud.faults().is_spent()).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.testbed.cluster.list("Node").len(), 3);
    finish(&world, ccm).await;
}

async fn removal_can_be_switched_off() {
    let (world, ccm) = with_nodes(&format!("{HASTE}remove_released = false\n")).await;
    for number in 1..=2 {
        world.testbed.join(number);
        until_ready(&world, &format!("node-{number}")).await;
    }
    lose(&world, [1]);
    let passes = world.testbed.cloud.count("DescribeInstances");
    world.until("three more passes", |testbed| testbed.cloud.count("DescribeInstances") >= passes + 3).await;
    assert!(!world.node("node-1").is_null());
    finish(&world, ccm).await;
}
