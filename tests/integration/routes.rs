//! The route controller: one entry for each node and pod CIDR, and no change of foreign entries.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Fault, RouteEntry};
use sim::cluster::NodeSpec;
use sim::testbed::{REGION, ROUTE_TABLE, Testbed, VPC, instance};

use crate::harness::{ALL, Ccm, HASTE, World, is_ready};

/// Next hops by destination.
fn entries(testbed: &Testbed, table: &str) -> Vec<(String, String)> {
    testbed.cloud.look(|cloud| {
        let entries = cloud.route_tables[table].entries.iter().filter(|(_, entry)| entry.kind == "Custom");
        entries.map(|(cidr, entry)| (cidr.clone(), entry.next_hops.join(","))).collect()
    })
}

fn entry(number: u8) -> (String, String) {
    (format!("10.98.{number}.0/24"), instance(number))
}

/// Status and reason of `NetworkUnavailable`.
fn network_unavailable(node: &Value) -> Option<(&str, &str)> {
    let conditions = node["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "NetworkUnavailable")?;
    Some((condition["status"].as_str()?, condition["reason"].as_str()?))
}

async fn finish(world: &World, ccm: Ccm) {
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn routes() {
    tokio::join!(
        foreign_entries_are_left(),
        a_conflict_is_reported(),
        an_entry_that_leads_to_the_wrong_place_is_replaced(),
        where_the_account_hides_the_instance_of_a_ready_node_none_counts_as_released(),
        the_route_of_a_forgotten_node_is_not_that_of_one_whose_name_begins_so(),
        drift_is_repaired(),
        two_tables(),
        switched_off(),
        ipv6_entries(),
        a_pod_network_that_makes_routes_itself_is_told(),
        a_full_table_is_used_as_soon_as_one_entry_is_gone(),
        a_node_whose_route_waits_for_the_removal_limit_is_told(),
        a_block_whose_former_entry_is_still_being_deleted_is_no_conflict(),
    );
}

async fn start(world: &World, more: &[&str]) -> Ccm {
    let ccm = world.start_with(&[&["--set", "route.period=10s"], more].concat(), &[]);
    world.until("it leads", |testbed| testbed.cluster.get("Lease", "kube-system", "ccm").is_some()).await;
    ccm
}

async fn foreign_entries_are_left() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.rent(9);
    let foreign =
        [("10.99.0.0/24", instance(9)), ("10.98.200.0/24", instance(9)), ("10.98.201.0/24", "ngw-1".to_owned())];
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        for (cidr, hop) in &foreign {
            table.entries.insert((*cidr).to_owned(), RouteEntry::to_instance(&format!("rte-{cidr}"), hop));
        }
    });
    for number in [1, 2] {
        world.testbed.join(number);
    }
    let ccm = start(&world, &[]).await;
    let mut all: Vec<_> = foreign.iter().map(|(cidr, hop)| ((*cidr).to_owned(), hop.clone())).collect();
    all.extend([entry(1), entry(2)]);
    all.sort();
    world.until("the nodes have their routes", |testbed| entries(testbed, ROUTE_TABLE) == all).await;
    world.testbed.cluster.delete_node("node-2").unwrap();
    all.retain(|entry| entry.1 != instance(2));
    world.until("the route of the node is gone", |testbed| entries(testbed, ROUTE_TABLE) == all).await;
    world.until_quiet(Duration::from_secs(3)).await;
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), all);
    finish(&world, ccm).await;
}

async fn a_conflict_is_reported() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.rent(9);
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-own", &instance(9)));
    });
    for number in [1, 2] {
        world.testbed.join(number);
    }
    let ccm = start(&world, &[]).await;
    let message = world.until_event("Node", "node-1", "CreateRouteFailed").await;
    assert!(message.contains("10.98.1.0/24") && message.contains(&instance(9)), "{message}");
    world.until("the other node is ready", |_| is_ready(&world.node("node-2"))).await;
    assert_eq!(network_unavailable(&world.node("node-2")), Some(("False", "RouteCreated")));
    assert_eq!(
        network_unavailable(&world.node("node-1")),
        Some(("True", "NoRouteCreated")),
        "it is true to what is there"
    );
    assert_eq!(entries(&world.testbed, ROUTE_TABLE)[0], ("10.98.1.0/24".to_owned(), instance(9)));

    // Its owner takes it away.
    world.testbed.cloud.edit(|cloud| cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.remove("10.98.1.0/24"));
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [entry(1), entry(2)]);
    finish(&world, ccm).await;
}

/// As the official controller leaves entries after a node has moved: without a mark, to another node or to nothing.
async fn an_entry_that_leads_to_the_wrong_place_is_replaced() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-other-node", &instance(2)));
        table.entries.insert("10.98.2.0/24".into(), RouteEntry::to_instance("rte-gone", "i-released"));
    });
    for number in [1, 2] {
        world.testbed.join(number);
    }
    let ccm = start(&world, &[]).await;
    for number in [1, 2] {
        let node = format!("node-{number}");
        world.until_event("Node", &node, "ReplacedRoute").await;
        world.until(&format!("{node} is ready"), |_| is_ready(&world.node(&node))).await;
    }
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [entry(1), entry(2)]);
    finish(&world, ccm).await;
}

async fn a_node_whose_route_waits_for_the_removal_limit_is_told() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-one", "i-released"));
        table.entries.insert("10.98.2.0/24".into(), RouteEntry::to_instance("rte-two", "i-released"));
    });
    for number in [1, 2] {
        world.testbed.join(number);
    }
    let ccm = start(&world, &["--set", "route.removal_limit=1", "--set", "route.period=1h"]).await;
    let waits = || {
        let events = [1, 2].into_iter().flat_map(|number| world.events("Node", &format!("node-{number}")));
        events.filter(|(_, reason, text)| reason == "CreateRouteFailed" && text.contains("route.removal_limit")).count()
    };
    world.until("one of them is told that its route waits", |_| waits() == 1).await;
    finish(&world, ccm).await;
}

async fn a_block_whose_former_entry_is_still_being_deleted_is_no_conflict() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cloud.dials(|dials| dials.route_pending = Duration::from_secs(3));
    for number in [1, 2] {
        world.testbed.join(number);
    }
    let ccm = start(&world, &[]).await;
    for node in ["node-1", "node-2"] {
        world.until(&format!("{node} is ready"), |_| is_ready(&world.node(node))).await;
    }
    world.testbed.cluster.delete_node("node-1").unwrap();
    world.testbed.rent(3);
    let successor = NodeSpec::new("node-3").provider_id(&format!("{REGION}.{}", instance(3)));
    world.testbed.cluster.join_node(&successor.pod_cidr("10.98.1.0/24")).unwrap();
    world.until("the successor is ready", |_| is_ready(&world.node("node-3"))).await;
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [(entry(1).0, instance(3)), entry(2)]);
    let told = world.events("Node", "node-3").into_iter().filter(|(_, reason, _)| reason == "CreateRouteFailed");
    assert_eq!(told.map(|(.., text)| text).collect::<Vec<_>>(), Vec::<String>::new());
    finish(&world, ccm).await;
}

/// As in a VPC that several accounts share: some nodes are another account's, and so may the instance of an entry be.
async fn where_the_account_hides_the_instance_of_a_ready_node_none_counts_as_released() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-1", "i-of-another-account"));
    });
    let hidden = NodeSpec::new("node-2").provider_id(&format!("{REGION}.i-of-another-account-too"));
    world.testbed.cluster.join_node(&hidden).unwrap();
    world.testbed.join(1);
    let ccm = start(&world, &[]).await;
    let why = world.until_event("Node", "node-1", "CreateRouteFailed").await;
    assert!(why.contains("i-of-another-account"), "{why}");
    world.testbed.cluster.delete_node("node-2").unwrap();
    world.until_event("Node", "node-1", "ReplacedRoute").await;
    world.until("the node has its route", |testbed| entries(testbed, ROUTE_TABLE) == [entry(1)]).await;
    finish(&world, ccm).await;
}

async fn the_route_of_a_forgotten_node_is_not_that_of_one_whose_name_begins_so() {
    let world = World::new(ALL, HASTE).await;
    for number in [1, 10] {
        world.testbed.join(number);
    }
    let all = [entry(1), entry(10)];
    let ccm = start(&world, &[]).await;
    world.until("the nodes have their routes", |testbed| entries(testbed, ROUTE_TABLE) == all).await;
    finish(&world, ccm).await;
    // Nobody sees the deletion, as after a restore of the API server.
    world.testbed.cluster.delete_node("node-1").unwrap();
    let ccm = start(&world, &[]).await;
    let told = world.until_event("Node", "route-controller", "RouteOwnerMissing").await;
    assert!(told.contains("10.98.1.0/24"), "{told}");
    world.until_quiet(Duration::from_secs(3)).await;
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), all, "its instance runs");
    finish(&world, ccm).await;
}

async fn drift_is_repaired() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    let ccm = start(&world, &[]).await;
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    world.until_quiet(Duration::from_secs(3)).await;
    world.testbed.cloud.edit(|cloud| cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.clear());
    world.until("the route is back", |testbed| entries(testbed, ROUTE_TABLE) == [entry(1)]).await;
    finish(&world, ccm).await;
}

async fn two_tables() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cloud.edit(|cloud| *cloud = cloud.clone().with_route_table("vtb-second", VPC));
    world.testbed.join(1);
    // Which of them the nodes use is not for anybody to guess.
    let ccm = start(&world, &[]).await;
    let message = world.until_event("Node", "route-controller", "SyncRouteFailed").await;
    assert!(message.contains("vtb-second") && message.contains("route.table_ids"), "{message}");
    assert!(world.testbed.cloud.count("CreateRouteEntries") == 0);
    finish(&world, ccm).await;

    let ccm = start(&world, &["--set", "route.table_ids=[\"vtb-play\", \"vtb-second\"]"]).await;
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    for table in [ROUTE_TABLE, "vtb-second"] {
        assert_eq!(entries(&world.testbed, table), [entry(1)], "{table}");
    }
    finish(&world, ccm).await;

    // Entries in a table that the file names no longer are in sync with nothing.
    let one = ["--set", "route.table_ids=[\"vtb-play\"]"];
    let listed = String::from_utf8(world.run(&[&["gc"], &one[..]].concat()).await.stdout).unwrap();
    assert!(listed.contains("in vtb-second") && !listed.contains("in vtb-play"), "{listed}");
    let deleted = world.run(&[&["gc", "--delete", "--after", "1"], &one[..]].concat()).await;
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [entry(1)]);
    assert_eq!(entries(&world.testbed, "vtb-second"), []);
}

async fn switched_off() {
    let world = World::new(&["node"], HASTE).await;
    let condition =
        |reason: &str| json!({"conditions": [{"type": "NetworkUnavailable", "status": "True", "reason": reason}]});
    for (number, reason) in [(1, "NoRouteCreated"), (2, "CalicoIsDown")] {
        let node = world.testbed.join(number);
        world.testbed.cluster.patch_status("Node", "", &node, &condition(reason)).unwrap();
    }
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-1", &instance(1)));
    });
    let ccm = world.start();
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    assert_eq!(network_unavailable(&world.node("node-1")), Some(("False", "RoutesDisabled")));
    world.until_quiet(Duration::from_secs(1)).await;
    assert_eq!(network_unavailable(&world.node("node-2")), Some(("True", "CalicoIsDown")), "it is foreign");
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [entry(1)], "nothing is removed in the cloud");
    finish(&world, ccm).await;
}

/// A part of the first batch still finds room.
async fn a_full_table_is_used_as_soon_as_one_entry_is_gone() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.rent(9);
    let change = |limit: usize, foreign: &[&str]| {
        world.testbed.cloud.edit(|cloud| {
            cloud.limits.routes_per_table = limit;
            let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
            table.entries.retain(|cidr, _| !cidr.starts_with("10.99."));
            for cidr in foreign {
                table.entries.insert((*cidr).to_owned(), RouteEntry::to_instance(&format!("rte-{cidr}"), &instance(9)));
            }
        });
    };
    change(4, &["10.99.1.0/24", "10.99.2.0/24"]);
    (1..=4).for_each(|number| drop(world.testbed.join(number)));
    let ccm = start(&world, &[]).await;
    let routed =
        |testbed: &Testbed| (1..=4).filter(|number| entries(testbed, ROUTE_TABLE).contains(&entry(*number))).count();
    for number in 1..=4 {
        let routed = || entries(&world.testbed, ROUTE_TABLE).contains(&entry(number));
        let refused = || {
            let told = world.events("Node", &format!("node-{number}"));
            told.iter().any(|(_, reason, text)| reason == "CreateRouteFailed" && text.contains("is full at 4 entries"))
        };
        world.until("the node has a route, or is reported to have none", |_| routed() || refused()).await;
    }
    assert_eq!(routed(&world.testbed), 2);
    change(4, &["10.99.1.0/24"]);
    world.until("a third node has a route", |testbed| routed(testbed) == 3).await;
    finish(&world, ccm).await;
}

async fn ipv6_entries() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.rent(1);
    let node = NodeSpec::new("node-1").provider_id(&format!("{REGION}.{}", instance(1)));
    world.testbed.cluster.join_node(&node.pod_cidr("10.98.1.0/24").pod_cidr("2001:db8:1::/64")).unwrap();
    let cidrs = "route.cluster_cidrs=[\"10.98.0.0/16\", \"2001:db8::/32\"]";
    let ccm = start(&world, &["--set", cidrs]).await;
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [entry(1), ("2001:db8:1::/64".to_owned(), instance(1))]);
    finish(&world, ccm).await;
}

#[tokio::test]
async fn an_entry_in_the_way_that_no_list_shows_is_told_as_that() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.rent(9);
    world.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-own", &instance(9)));
    });
    world.testbed.cloud.faults().always("DescribeRouteEntryList", Fault::Partial(0));
    world.testbed.join(1);
    let ccm = start(&world, &[]).await;
    let message = world.until_event("Node", "node-1", "CreateRouteFailed").await;
    assert!(message.contains("10.98.1.0/24") && message.contains("did not show"), "{message}");
    assert_eq!(entries(&world.testbed, ROUTE_TABLE), [("10.98.1.0/24".to_owned(), instance(9))]);
    finish(&world, ccm).await;
}

async fn a_pod_network_that_makes_routes_itself_is_told() {
    let world = World::new(ALL, HASTE).await;
    let fits = world.run(&["check", "--cluster"]).await;
    assert!(fits.status.success(), "{}", String::from_utf8_lossy(&fits.stderr));
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-flannel" } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kube-flannel-cfg", "namespace": "kube-flannel" },
            "data": { "net-conf.json": "{\"Network\": \"10.98.0.0/16\", \"Backend\": {\"Type\": \"ali-vpc\"}}" },
        }),
    ] {
        world.testbed.cluster.create(object).unwrap();
    }
    let check = async |more: &[&str]| {
        let output = world.run(&[&["check", "--cluster"], more].concat()).await;
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let (code, said) = check(&[]).await;
    assert!(code == Some(1) && said.contains("Flannel with the backend ali-vpc"), "{said}");
    assert_eq!(check(&["--set", "controllers=[\"node\"]"]).await.0, Some(0), "without routes, it fits");

    world.testbed.join(1);
    let ccm = start(&world, &[]).await;
    let message = world.until_event("Node", "route-controller", "RoutesNotNeeded").await;
    assert!(message.contains("ali-vpc") && message.ends_with("(ACCM0208)"), "{message}");
    world.until("routes are made all the same", |testbed| entries(testbed, ROUTE_TABLE) == [entry(1)]).await;
    finish(&world, ccm).await;

    world.testbed.cluster.deny("kubernetes-admin", "get", "configmaps");
    let (code, said) = check(&[]).await;
    assert!(code == Some(0) && said.contains("not looked at: configmaps kube-flannel/kube-flannel-cfg"), "{said}");

    for (name, command) in
        [("terway-eniip", json!(["terwayd", "-daemon-mode", "ENIMultiIP"])), ("kube-ovn-cni", json!([]))]
    {
        let template = json!({ "spec": { "containers": [{ "name": "agent", "command": command }] } });
        let metadata = json!({ "name": name, "namespace": "kube-system" });
        let spec = json!({ "template": template });
        let set = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec });
        world.testbed.cluster.create(set).unwrap();
    }
    let (code, said) = check(&[]).await;
    assert_eq!(code, Some(1), "{said}");
    for network in ["Terway in the mode ENIMultiIP", "Kube-OVN"] {
        assert!(said.contains(network), "{network}: {said}");
    }
}
