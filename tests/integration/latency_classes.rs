//! A pod that becomes ready or unready is in its load balancer or out of it before whatever waits: creations beyond the quota,
//! a drift check, an action that the cloud throttles, a backlog after a restart of the API server.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Endpoint, Version};
use sim::request_hold::Moment;
use sim::testbed::Testbed;

use crate::harness::{Ccm, World, address};
use crate::in_process::{Product, on_a_clock_of_its_own};

/// Services that wait for their load balancer, as the quota allows one a minute.
const WAITING: usize = 8;
const MORE: &str = "[leader_election]\nenabled = false\n[cloud.quotas]\nCreateLoadBalancer = 2\n";

/// One Service with endpoints of its own is served, and others wait.
async fn with_creations_that_wait() -> (World, Ccm) {
    let world = World::new(&["node", "service"], MORE).await;
    world.testbed.join(1);
    world.testbed.join(2);
    let ccm = world.start();
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.testbed.cluster.patch("Service", "default", "web", &local()).unwrap();
    world
        .until("the pod is a backend", |_| {
            address(&world.service("web")).is_some() && backends(&world.testbed) == ["i-play-1"]
        })
        .await;
    for number in 0..WAITING {
        world.testbed.expose(&format!("waits-{number}"), &[80], &["node-1"], &[]);
    }
    let looked = |number: usize| world.service(&format!("waits-{number}"))["metadata"]["finalizers"].is_array();
    world.until("the others have come to their creation", |_| (0..WAITING).all(looked)).await;
    (world, ccm)
}

/// Only nodes with endpoints serve it.
fn local() -> Value {
    json!({"spec": {"externalTrafficPolicy": "Local"}})
}

/// Instances behind the Service that is served.
fn backends(testbed: &Testbed) -> Vec<String> {
    testbed.cloud.look(|account| {
        let groups = account.load_balancers.values().flat_map(|balancer| balancer.groups.values());
        let ours = groups.filter(|group| group.name.contains("/web"));
        ours.flat_map(|group| group.backends.iter().map(|backend| backend.server_id.clone())).collect()
    })
}

/// The pod of the Service that is served is on this node from now on.
fn move_pod(testbed: &Testbed, node: u8) {
    let pod = Endpoint::ready(Ipv4Addr::new(10, 98, node, 10).into(), &format!("node-{node}"));
    testbed.cluster.set_endpoints("default", "web", &[pod]).unwrap();
}

/// It is moved and followed although others still wait for their turn.
async fn follows(world: &World, node: u8) {
    move_pod(&world.testbed, node);
    let wanted = format!("i-play-{node}");
    world.until("the load balancer follows the pod", |testbed| backends(testbed) == [wanted.as_str()]).await;
    let made = world.testbed.cloud.look(|account| account.load_balancers.len());
    assert!(made < 1 + WAITING, "nothing waited any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_moves_is_followed_before_creations_that_wait_for_their_quota() {
    let (world, ccm) = with_creations_that_wait().await;
    follows(&world, 2).await;
    follows(&world, 1).await;

    world.testbed.cluster.go_away().await;
    world.testbed.cluster.come_back().await.unwrap();
    follows(&world, 2).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn creations_that_wait_go_on_when_the_file_states_a_larger_quota() {
    let (world, ccm) = with_creations_that_wait().await;
    world.edit(|config| config.replace("CreateLoadBalancer = 2", "CreateLoadBalancer = 6000"));
    let is_served = |number: usize| address(&world.service(&format!("waits-{number}"))).is_some();
    world.until("all are served, and not one a minute", |_| (0..WAITING).all(is_served)).await;
    assert!(ccm.stop().await.success());
}

#[test]
fn a_pod_that_moves_is_followed_while_a_drift_check_has_not_ended() {
    let ((), _) = on_a_clock_of_its_own(1, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        testbed.join(2);
        let more = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"1m\"\n";
        let _product = Product::start(&testbed, &["node", "service"], more);
        testbed.expose("web", &[80], &["node-1"], &[]);
        testbed.cluster.patch("Service", "default", "web", &local()).unwrap();
        until(&testbed, "i-play-1").await;
        // Only the drift check asks for listeners now.
        let mut list = testbed.cloud.faults().hold("DescribeLoadBalancerListeners", 0, Moment::Before);
        list.arrived().await;
        move_pod(&testbed, 2);
        until(&testbed, "i-play-2").await;
        list.release();
    });
}

/// Waits until this instance is the only backend.
async fn until(testbed: &Testbed, instance: &str) {
    while backends(testbed) != [instance] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_moves_is_followed_while_the_cloud_throttles_other_actions() {
    let (world, ccm) = with_creations_that_wait().await;
    for action in ["CreateLoadBalancer", "DescribeLoadBalancers", "DescribeInstances", "CreateVServerGroup"] {
        world.testbed.cloud.faults().always(action, Fault::Throttle);
    }
    world.testbed.expose("another", &[80], &["node-1"], &[]);
    follows(&world, 2).await;
    assert!(ccm.stop().await.success());
}
