//! When everything seems to be gone at once, it is the view that is wrong: nothing is removed, and somebody is told.

use std::time::Duration;

use serde_json::Value;
use sim::cloud::{Fault, World as CloudWorld};
use sim::cluster::Version;
use sim::stage::{ACCESS_KEY, Stage, VPC};

use crate::kit::{ALL, Ccm, HASTE, World, address, is_ready};
use crate::proof::Row;

/// Long enough for every wait of [`HASTE`] to pass, twice.
const WATCHED: Duration = Duration::from_secs(28);
const ALONE: &str = "[leader_election]\nenabled = false\n";
const NODES: u8 = 3;

/// Nodes with routes, and a Service with a load balancer, as the product made them.
async fn settled() -> World {
    let world = World::of(Stage::open(Version::NEWEST).await.unwrap(), ALL, &format!("{HASTE}{ALONE}"));
    let nodes: Vec<String> = (1..=NODES).map(|number| world.stage.join(number)).collect();
    world.stage.expose("web", &[80], &["node-1", "node-2"], &[]);
    let ccm = world.start();
    world
        .until("everything is there", |_| {
            nodes.iter().all(|name| is_ready(&world.node(name))) && address(&world.service("web")).is_some()
        })
        .await;
    world.until_still(Duration::from_secs(3)).await;
    assert!(ccm.stop().await.success());
    world
}

/// What must not shrink: nodes, routes, backends.
fn held(stage: &Stage) -> (usize, Vec<usize>, Vec<usize>) {
    let cloud = stage.cloud.snapshot();
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    let routes = cloud["routes"].as_object().unwrap().values().map(count).collect();
    let groups = cloud["load_balancers"].as_array().unwrap().iter();
    let backends = groups.flat_map(|lb| lb["vgroups"].as_object().unwrap().values().map(count)).collect();
    (stage.cluster.list("Node").len(), routes, backends)
}

fn sum(counts: &[usize]) -> usize {
    counts.iter().sum()
}

fn everybody_unreachable(stage: &Stage) {
    for number in 1..=NODES {
        stage.cluster.set_ready(&format!("node-{number}"), "Unknown").unwrap();
    }
}

/// Watches for long that nothing shrinks while the product runs; returns it still running.
async fn nothing_shrinks(world: &World, what: &str) -> Ccm {
    let before = held(&world.stage);
    let ccm = world.start();
    let began = std::time::Instant::now();
    while began.elapsed() < WATCHED {
        let now = held(&world.stage);
        let shrunk = now.0 < before.0 || sum(&now.1) < sum(&before.1) || sum(&now.2) < sum(&before.2);
        assert!(!shrunk, "{what}: {before:?}, then {now:?}\n{}", ccm.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ccm
}

fn told(world: &World, reason: &str) -> bool {
    world.stage.cluster.list("Event").iter().any(|event| event["reason"] == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_seems_to_be_gone_nothing_is_removed() {
    let base = settled().await;
    let fork = async |more: &str| World::of(base.stage.fork().await.unwrap(), ALL, &format!("{HASTE}{ALONE}{more}"));

    let empty_list = async {
        let world = fork("").await;
        everybody_unreachable(&world.stage);
        world.stage.cloud.faults().always("DescribeInstances", Fault::Partial(0));
        world.stage.cloud.faults().always("DescribeLoadBalancers", Fault::Partial(0));
        let ccm = nothing_shrinks(&world, "lists are empty").await;
        assert!(ccm.log().contains("held back"), "{}", ccm.log());
        assert!(told(&world, "BackendsHeldBack"), "{}", ccm.log());
    };
    let cut_by_permissions = async {
        let world = fork("").await;
        everybody_unreachable(&world.stage);
        world.stage.cloud.edit(|cloud| {
            let key = cloud.keys.get_mut(ACCESS_KEY.0).unwrap();
            key.denied.extend(["DescribeInstances", "DescribeNetworkInterfaces"].map(str::to_owned));
        });
        let ccm = nothing_shrinks(&world, "the right to list instances is missing").await;
        assert!(told(&world, "NodeRemovalHeldBack"), "{}", ccm.log());
    };
    let another_account = async {
        let world = fork("").await;
        everybody_unreachable(&world.stage);
        // The same key leads to an account that holds the network, and nothing else of ours.
        world.stage.cloud.edit(|cloud| {
            let other =
                CloudWorld::new(&cloud.region).with_vpc(VPC, "192.168.0.0/16").with_key(ACCESS_KEY.0, ACCESS_KEY.1);
            *cloud = other;
        });
        nothing_shrinks(&world, "another account").await;
        let writes: Vec<String> = world.stage.cloud.writes().into_iter().map(|call| call.action).collect();
        assert!(
            !writes.iter().any(|action| action.starts_with("Delete") || action.starts_with("Remove")),
            "{writes:?}"
        );
    };
    let wrong_vpc = async {
        let world = fork("").await;
        let text = std::fs::read_to_string(world.config()).unwrap().replace(VPC, "vpc-typo");
        std::fs::write(world.config(), text).unwrap();
        let ccm = nothing_shrinks(&world, "the VPC id is wrong").await;
        assert!(ccm.log().contains("vpc-typo"), "{}", ccm.log());
        assert!(told(&world, "SyncRouteFailed"), "{}", ccm.log());
    };
    let everybody_at_once = async {
        let world = fork("").await;
        everybody_unreachable(&world.stage);
        let ccm = nothing_shrinks(&world, "all nodes are unready").await;
        assert!(told(&world, "BackendsHeldBack"), "{}", ccm.log());
        // On purpose it goes on.
        for number in 1..=NODES {
            let label = serde_json::json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
            world.stage.cluster.patch("Node", "", &format!("node-{number}"), &label).unwrap();
        }
        world.until("the backends are let go", |stage| held(stage).2 == [0]).await;
    };
    let no_nodes = async {
        let world = fork("").await;
        for number in 1..=NODES {
            world.stage.cluster.delete("Node", "", &format!("node-{number}")).unwrap();
        }
        nothing_shrinks(&world, "the API server has no nodes").await;
    };
    let no_services = async {
        let world = fork("").await;
        // An old backup: the Service was not there yet, so nothing ever asks to delete its load balancer.
        let free = serde_json::json!({"metadata": {"finalizers": null}});
        world.stage.cluster.patch("Service", "default", "web", &free).unwrap();
        world.stage.cluster.delete("Service", "default", "web").unwrap();
        nothing_shrinks(&world, "the API server has no Services").await;
    };
    tokio::join!(empty_list, cut_by_permissions, another_account, wrong_vpc, everybody_at_once, no_nodes, no_services);
    Row {
        tried: "everything seems to be gone",
        test: "blast_radius",
        numbers: vec![("causes", 7), ("nodes, routes and backends in each", 9)],
        lost: 0,
    }
    .write();
}
