//! What is wrong with single nodes is told at the node, and keeps no other node from its due. On a simulated clock.

use std::time::Duration;

use serde_json::json;
use sim::cluster::{Effect, Failure, Match, NodeSpec, Version};
use sim::testbed::{REGION, Testbed, instance};

use crate::harness::HASTE;
use crate::in_process::{Product, on_a_clock_of_its_own};

async fn world(controllers: &[&str], set: &[&str]) -> (Testbed, Product) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let alone = format!("{HASTE}[leader_election]\nenabled = false\n");
    let product = Product::start_with(&testbed, controllers, &alone, set);
    (testbed, product)
}

/// Warnings about a node: reason and message in one.
fn warnings(testbed: &Testbed, node: &str) -> Vec<String> {
    let events = testbed.cluster.list("Event").into_iter();
    let about = events.filter(|it| it["involvedObject"]["name"] == node && it["type"] == "Warning");
    about.map(|event| format!("{}: {}", event["reason"], event["message"])).collect()
}

#[test]
fn a_node_that_cannot_be_deleted_keeps_no_other_from_being_removed() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = world(&["node"], &["node.removal_limit=1"]).await;
        let names: Vec<String> = (1..=3).map(|number| testbed.join(number)).collect();
        tokio::time::sleep(Duration::from_secs(30)).await;
        let refused = Failure::refused("Node", &names[0], "a webhook denies it");
        testbed.cluster.trouble_times(
            Match::new("delete", "nodes").named(&names[0]),
            Effect::Refuse(refused),
            usize::MAX,
        );
        for number in [1, 2] {
            testbed.cloud.release_instance(&instance(number));
            testbed.cluster.set_ready(&names[usize::from(number) - 1], "Unknown").unwrap();
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        let there = |name: &String| testbed.cluster.get("Node", "", name).is_some();
        assert_eq!(names.iter().map(there).collect::<Vec<_>>(), [true, false, true]);
        let told = warnings(&testbed, &names[0]);
        assert!(told.iter().any(|text| text.contains("a webhook denies it")), "{told:?}");
    });
}

#[test]
fn a_node_whose_provider_id_has_a_typo_is_told_how_to_mend_it_and_one_of_another_provider_is_left_alone() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = world(&["node"], &["node.period=1h"]).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        for (name, id) in [("typo", "i-bp1x"), ("scheme", "alicloud://i-bp1x"), ("foreign", "aws:///eu/i-1")] {
            testbed.cluster.join_node(&NodeSpec::new(name).provider_id(id)).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        for name in ["typo", "scheme"] {
            let told = warnings(&testbed, name);
            let helps = |text: &String| text.contains("i-bp1x") && text.contains("kubelet-args");
            assert!(told.iter().any(helps), "{name}: {told:?}");
        }
        assert_eq!(warnings(&testbed, "foreign"), [""; 0]);
    });
}

#[test]
fn a_node_that_lacks_a_route_for_want_of_a_provider_id_is_told() {
    on_a_clock_of_its_own(0, async {
        for (controllers, is_told) in [(&["node", "route"][..], true), (&["node"], false)] {
            let (testbed, _product) = world(controllers, &[]).await;
            testbed.cluster.add_node(&NodeSpec::new("unknown").pod_cidr("10.98.7.0/24")).unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            let told = warnings(&testbed, "unknown");
            assert_eq!(told.iter().any(|text| text.contains("spec.providerID")), is_told, "{told:?}");
        }
    });
}

/// The instance of a Node that is long dead is gone, and another one has its address now.
#[test]
fn a_dead_node_gets_no_provider_id_of_the_instance_that_has_its_address_now_unless_its_kubelet_reports() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        [1, 2].into_iter().for_each(|number| testbed.rent(number));
        testbed.cluster.add_node(&NodeSpec::new("dead").internal_ip("192.168.0.1")).unwrap();
        testbed.cluster.join_node(&NodeSpec::new("new").internal_ip("192.168.16.2")).unwrap();
        ["dead", "new"].into_iter().for_each(|name| drop(testbed.cluster.set_ready(name, "Unknown").unwrap()));
        let alone = format!("{HASTE}[leader_election]\nenabled = false\n");
        let _product = Product::start(&testbed, &["node"], &alone);
        let provider_id = |name: &str| testbed.cluster.get("Node", "", name).unwrap()["spec"]["providerID"].clone();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(provider_id("dead"), json!(null));
        assert_eq!(provider_id("new"), json!(format!("{REGION}.{}", instance(2))), "it waits for its initialisation");
        testbed.cluster.set_ready("dead", "True").unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(provider_id("dead"), json!(format!("{REGION}.{}", instance(1))));
    });
}

/// As a kubelet does without `--cloud-provider=external`.
#[test]
fn a_kubelet_that_writes_its_own_addresses_costs_a_call_each_period_and_is_told() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = world(&["node"], &["node.period=5m"]).await;
        testbed.rent(1);
        let id = format!("{REGION}.{}", instance(1));
        let spec = NodeSpec::new("node-1").provider_id(&id).internal_ip("192.168.0.1");
        testbed.cluster.add_node(&spec).unwrap();
        testbed.cloud.edit(|cloud| cloud.instances.get_mut(&instance(1)).unwrap().public_ip = "47.98.0.1".into());
        let shown = || testbed.cluster.get("Node", "", "node-1").unwrap()["status"]["addresses"].clone();
        let own = shown();
        let mut writes = 0;
        for _ in 0..120 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            if shown() != own {
                writes += 1;
                let mut list = own.as_array().cloned().unwrap_or_default();
                list.push(json!({"$patch": "replace"}));
                testbed.cluster.patch_status("Node", "", "node-1", &json!({ "addresses": list })).unwrap();
            }
        }
        let told = warnings(&testbed, "node-1");
        assert!(told.iter().any(|text| text.contains("--cloud-provider=external")), "{told:?}");
        assert!((2..=8).contains(&writes), "{writes} writes in twenty minutes");
    });
}
