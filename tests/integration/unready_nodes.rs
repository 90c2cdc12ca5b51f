//! Nodes that stop being ready many at once, perhaps because only the way between them and the API server failed: their backends
//! are removed at a second sighting, on load balancers of both kinds. What leaves on purpose leaves at once.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use sim::cluster::{Endpoint, Version};
use sim::testbed::{Testbed, instance};
use tokio::time::Instant;

use crate::harness::{HASTE, World};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::nlb_lifecycle;

const CONTROLLERS: &[&str] = &["node", "route", "service", "nlb"];
const NODES: u8 = 5;
const SECOND_SIGHTING: Duration = Duration::from_secs(30);
/// A few calls and their gathering.
const SOON: Duration = Duration::from_secs(5);

/// Nodes, and a Service of each kind.
fn populate(testbed: &Testbed, policy: &str) {
    let nodes: Vec<String> = (1..=NODES).map(|number| testbed.join(number)).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    testbed.expose("classic", &[80], &nodes, &[]);
    nlb_lifecycle::expose(testbed, "network", &[80], &nodes, &[]);
    for service in ["classic", "network"] {
        let policy = json!({"spec": {"externalTrafficPolicy": policy}});
        testbed.cluster.patch("Service", "default", service, &policy).unwrap();
    }
}

/// The instances behind all server groups, if they are the same behind each and there is one of each kind.
fn backends(testbed: &Testbed) -> Option<BTreeSet<String>> {
    testbed.cloud.look(|account| {
        let classic = account.load_balancers.values().flat_map(|lb| lb.groups.values());
        let classic: Vec<BTreeSet<String>> =
            classic.map(|group| group.backends.iter().map(|it| it.server_id.clone()).collect()).collect();
        let network = account.nlb.groups.values();
        let network: Vec<BTreeSet<String>> =
            network.map(|group| group.servers.iter().map(|it| it.id.clone()).collect()).collect();
        match (classic.as_slice(), network.as_slice()) {
            ([one], [other]) if one == other => Some(one.clone()),
            _ => None,
        }
    })
}

fn instances(numbers: impl IntoIterator<Item = u8>) -> Option<BTreeSet<String>> {
    Some(numbers.into_iter().map(instance).collect())
}

fn lose(testbed: &Testbed, numbers: impl IntoIterator<Item = u8>) {
    for number in numbers {
        testbed.cluster.set_ready(&format!("node-{number}"), "Unknown").unwrap();
    }
}

async fn until(testbed: &Testbed, numbers: impl IntoIterator<Item = u8>) -> Duration {
    let (began, wanted) = (Instant::now(), instances(numbers));
    while backends(testbed) != wanted {
        let found = backends(testbed);
        assert!(began.elapsed() < Duration::from_secs(300), "{found:?} instead of {wanted:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    began.elapsed()
}

/// Looks on for so long that nothing changes.
async fn stays(testbed: &Testbed, time: Duration, numbers: impl IntoIterator<Item = u8>) {
    let (began, wanted) = (Instant::now(), instances(numbers));
    while began.elapsed() < time {
        assert_eq!(backends(testbed), wanted, "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn served(policy: &str) -> (Testbed, Product) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    populate(&testbed, policy);
    let product = Product::start(&testbed, CONTROLLERS, &format!("{HASTE}[leader_election]\nenabled = false\n"));
    until(&testbed, 1..=NODES).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    (testbed, product)
}

#[test]
fn most_of_the_backends_that_become_unready_at_once_are_removed_at_a_second_sighting() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = served("Cluster").await;
        lose(&testbed, 1..=3);
        stays(&testbed, SECOND_SIGHTING - Duration::from_secs(1), 1..=NODES).await;
        until(&testbed, [4, 5]).await;
        // Those that come back are backends again at once; the way back from none that is ready is gradual, too.
        (1..=3).for_each(|number| drop(testbed.cluster.set_ready(&format!("node-{number}"), "True").unwrap()));
        assert!(until(&testbed, 1..=NODES).await < SOON);
        tokio::time::sleep(Duration::from_secs(120)).await;
        lose(&testbed, 1..=NODES);
        stays(&testbed, Duration::from_secs(600), 1..=NODES).await;
        testbed.cluster.set_ready("node-1", "True").unwrap();
        stays(&testbed, SECOND_SIGHTING - Duration::from_secs(1), 1..=NODES).await;
        until(&testbed, [1]).await;
    });
}

#[test]
fn pods_that_become_unready_with_most_nodes_stay_until_the_second_sighting_and_go_at_once_when_they_move() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = served("Local").await;
        lose(&testbed, 1..=4);
        let endpoints = |ready: &dyn Fn(u8) -> bool, numbers: &[u8]| {
            for service in ["classic", "network"] {
                let endpoint = |number: &u8| {
                    let at = [10, 98, *number, 10].into();
                    Endpoint { ready: ready(*number), ..Endpoint::ready(at, &format!("node-{number}")) }
                };
                let all: Vec<_> = numbers.iter().map(endpoint).collect();
                testbed.cluster.set_endpoints("default", service, &all).unwrap();
            }
        };
        endpoints(&|number| number == 5, &[1, 2, 3, 4, 5]);
        stays(&testbed, Duration::from_secs(10), 1..=NODES).await;
        // The pod of the first node is evicted.
        endpoints(&|number| number == 5, &[2, 3, 4, 5]);
        assert!(until(&testbed, 2..=NODES).await < SOON);
        stays(&testbed, Duration::from_secs(10), 2..=NODES).await;
        assert!(until(&testbed, [5]).await < SECOND_SIGHTING);
    });
}

#[test]
fn a_minority_leaves_at_once() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = served("Cluster").await;
        lose(&testbed, 1..=2);
        assert!(until(&testbed, 3..=NODES).await < SOON);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn unready_backends_that_are_withheld_are_reported_and_deletions_go_on() {
    let world = World::new(CONTROLLERS, HASTE).await;
    populate(&world.testbed, "Cluster");
    let ccm = world.start_serving();
    world.until("all nodes are backends", |testbed| backends(testbed) == instances(1..=NODES)).await;
    world.until_quiet(Duration::from_secs(2)).await;
    lose(&world.testbed, 1..=4);
    for service in ["classic", "network"] {
        let told = world.until_event("Service", service, "BackendsHeldBack").await;
        assert!(told.contains("more than half of the backends"), "{told}");
    }
    let reported = |_: u16, page: &str| {
        let line = |controller: &str| {
            page.lines().any(|line| line.starts_with(&format!("[!]{controller} ")) && line.contains("BackendsHeldBack"))
        };
        line("service") && line("nlb")
    };
    ccm.until_page("/readyz?verbose", reported).await;
    assert_eq!(backends(&world.testbed), instances(1..=NODES));
    world.testbed.cluster.delete("Node", "", "node-1").unwrap();
    let label = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
    world.testbed.cluster.patch("Node", "", "node-5", &label).unwrap();
    world.testbed.cluster.set_ready("node-4", "True").unwrap();
    world.until("what leaves on purpose has left", |testbed| backends(testbed) == instances(2..=4)).await;
    (2..=3).for_each(|number| drop(world.testbed.cluster.set_ready(&format!("node-{number}"), "True").unwrap()));
    ccm.until_page("/readyz?verbose", |_, page| !page.contains("BackendsHeldBack")).await;
    assert_eq!(backends(&world.testbed), instances(2..=4), "{}", ccm.log());
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}
