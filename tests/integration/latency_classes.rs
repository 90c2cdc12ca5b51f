//! A pod that becomes ready or unready is in its load balancer or out of it before whatever waits: creations beyond the quota,
//! a drift check, an action that the cloud throttles, a backlog after a restart of the API server, the first look of a new leader.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Endpoint, Version};
use sim::request_hold::Moment;
use sim::testbed::{Testbed, instance};

use crate::harness::{Ccm, World, address};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::{Kind, point_at};

/// Services that wait for their load balancer, as the quota allows one a minute.
const WAITING: usize = 8;
/// Services that a new leader looks at.
const OTHERS: usize = 40;
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

/// Whether the instance of this node is one of these backends.
fn has(group: &BTreeSet<(String, u8)>, node: u8) -> bool {
    group.iter().any(|(server, _)| *server == instance(node))
}

/// Waits until this instance is the only backend.
async fn until(testbed: &Testbed, instance: &str) {
    until_so(|| backends(testbed) == [instance]).await;
}

/// The simulated clock gets this far at once if nothing comes of it.
const LONG: Duration = Duration::from_secs(3600);

async fn until_so(is_so: impl Fn() -> bool) {
    let began = tokio::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "it never comes so far");
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

/// Server groups that are read until a Service is served whose pod moved while no replica led, and from then on until one is
/// whose pod moves while the new leader still looks at all others.
fn read_first_after_a_take_over(kind: Kind) -> ([usize; 2], String) {
    const READS: [&str; 2] = ["DescribeVServerGroupAttribute", "ListServerGroupServers"];
    const ONE_AT_A_TIME: &str = "[service]\nconcurrency = 1\n[nlb]\nconcurrency = 1\n";
    on_a_clock_of_its_own(1, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        testbed.join(2);
        testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(20));
        let start = || Product::start(&testbed, &["node", kind.controller()], ONE_AT_A_TIME);
        let leader = start();
        for number in 0..OTHERS {
            kind.expose(&testbed, &format!("web-{number:02}"), &[80], &[1]);
        }
        let is_served = |service: &Value| kind.published(service).is_some();
        until_so(|| testbed.cluster.list("Service").iter().filter(|it| is_served(it)).count() == OTHERS).await;
        let _standby = start();
        // Changes of the past are not remembered.
        tokio::time::sleep(Duration::from_secs(300)).await;
        drop(leader);
        let _ = testbed.cloud.take_calls();
        let reads = async |name: &str, moved: usize| {
            point_at(&testbed, name, &[2]);
            let followed = || kind.groups(&testbed).iter().filter(|group| has(group, 2)).count() == moved;
            until_so(followed).await;
            testbed.cloud.take_calls().iter().filter(|call| READS.contains(&call.action.as_str())).count()
        };
        [reads("web-39", 1).await, reads("web-38", 2).await]
    })
}

#[test]
fn after_a_take_over_what_has_changed_is_served_before_all_others_are_looked_at() {
    for kind in Kind::BOTH {
        let (reads, log) = read_first_after_a_take_over(kind);
        assert!(reads.iter().all(|reads| (1..OTHERS / 4).contains(reads)), "{kind:?}: {reads:?}\n{log}");
    }
}

#[test]
fn a_pod_that_moves_is_followed_before_load_balancers_are_looked_at_that_are_being_made() {
    const ONE_AT_A_TIME: &str = "[leader_election]\nenabled = false\n[nlb]\nconcurrency = 1\n";
    let call = Duration::from_millis(500);
    on_a_clock_of_its_own(1, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        (1..=3).for_each(|node| drop(testbed.join(node)));
        let _product = Product::start(&testbed, &["node", "nlb"], ONE_AT_A_TIME);
        Kind::Nlb.expose(&testbed, "web", &[80], &[2]);
        let serves = |node: u8| Kind::Nlb.groups(&testbed).iter().any(|group| has(group, node));
        let service = || testbed.cluster.get("Service", "default", "web").unwrap();
        until_so(|| serves(2) && Kind::Nlb.published(&service()).is_some()).await;
        testbed.cloud.dials(|dials| dials.nlb_creation_time = LONG);
        for number in 0..OTHERS {
            Kind::Nlb.expose(&testbed, &format!("new-{number:02}"), &[80], &[1]);
        }
        until_so(|| testbed.cloud.look(|account| account.nlb.balancers.len() == OTHERS + 1)).await;
        testbed.cloud.dials(|dials| dials.latency = call);
        tokio::time::sleep(Duration::from_secs(60)).await;
        for node in [3, 2, 3, 2, 3] {
            let began = tokio::time::Instant::now();
            point_at(&testbed, "web", &[node]);
            until_so(|| serves(node)).await;
            let took = began.elapsed();
            assert!(took < 4 * call, "node {node}: {took:?}");
            until_so(|| !serves(5 - node)).await;
        }
    });
}

/// The removal waits for the job of the addition, so that the group is never empty.
#[test]
fn a_pod_that_moves_leaves_its_load_balancer_soon_after_the_job_that_adds_its_successor() {
    for kind in Kind::BOTH {
        for job in [300, 700].map(Duration::from_millis) {
            on_a_clock_of_its_own(1, async {
                let testbed = Testbed::open(Version::NEWEST).await.unwrap();
                testbed.join(1);
                testbed.join(2);
                testbed.cloud.dials(|dials| (dials.latency, dials.nlb_job_time) = (Duration::from_millis(20), job));
                let _product = Product::start(&testbed, &["node", kind.controller()], "");
                kind.expose(&testbed, "web", &[80], &[1]);
                let serves = |node: u8| kind.groups(&testbed).iter().any(|group| has(group, node));
                until_so(|| serves(1)).await;
                tokio::time::sleep(Duration::from_secs(60)).await;
                let began = tokio::time::Instant::now();
                point_at(&testbed, "web", &[2]);
                until_so(|| serves(2) && !serves(1)).await;
                let took = began.elapsed();
                assert!(took < 2 * job + Duration::from_millis(700), "{kind:?}, jobs of {job:?}: {took:?}");
            });
        }
    }
}
