//! Nodes that the cloud does not take as backends: they hold up nothing else, and the calls that it refuses are few and become
//! fewer.

use std::time::Duration;

use serde_json::json;
use sim::cluster::{NodeSpec, Version};
use sim::testbed::{REGION, Testbed, instance};
use tokio::time::Instant;

use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::Kind;

const MORE: &str = "[leader_election]\nenabled = false\n[nlb]\ndrift_check = \"0s\"\n[service]\ndrift_check = \"0s\"\n";
const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);
const REFUSED: usize = 25;

/// Four nodes that can be backends, and many that cannot.
async fn testbed() -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    (1..=4).for_each(|number| add_node(&testbed, number));
    for number in 0..REFUSED {
        let node = NodeSpec::new(&format!("bad-{number}")).provider_id(&format!("{REGION}.i-nowhere-{number}"));
        testbed.cluster.add_node(&node).unwrap();
    }
    testbed
}

fn add_node(testbed: &Testbed, number: u8) {
    testbed.rent(number);
    let node = NodeSpec::new(&format!("node-{number}")).provider_id(&format!("{REGION}.{}", instance(number)));
    testbed.cluster.add_node(&node).unwrap();
}

/// A Service of which every node is a backend.
fn expose(kind: Kind, testbed: &Testbed, name: &str) {
    kind.expose(testbed, name, &[80], &[1]);
    let all_nodes = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    testbed.cluster.patch("Service", "default", name, &all_nodes).unwrap();
}

fn has_address(kind: Kind, testbed: &Testbed, name: &str) -> bool {
    kind.published(&testbed.cluster.get("Service", "default", name).unwrap()).is_some()
}

/// Whether every server group of so many holds exactly these instances.
fn all_hold(kind: Kind, testbed: &Testbed, count: usize, numbers: &[u8]) -> bool {
    kind.groups(testbed).len() == count && kind.all_lead_to(testbed, numbers)
}

async fn until(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < within, "not within {} s: {what}", within.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Calls about backends that were refused since the last look.
fn refused(testbed: &Testbed) -> usize {
    let calls = testbed.cloud.take_calls().into_iter();
    calls.filter(|call| call.action.contains("ServerGroup") && call.outcome != "OK").count()
}

#[test]
fn they_hold_up_nothing_and_cost_few_calls_that_become_fewer() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, few_calls_that_become_fewer(kind));
    }
}

async fn few_calls_that_become_fewer(kind: Kind) {
    let testbed = testbed().await;
    expose(kind, &testbed, "web");
    expose(kind, &testbed, "api");
    let _product = Product::start(&testbed, &["service", "nlb"], MORE);
    until("both have an address", SOON, || has_address(kind, &testbed, "web") && has_address(kind, &testbed, "api"))
        .await;
    let mut minutes = Vec::new();
    for _ in 0..40 {
        tokio::time::sleep(MINUTE).await;
        minutes.push(refused(&testbed));
    }
    let sum = |minutes: &[usize]| minutes.iter().sum::<usize>();
    // The first minute ends as the second window of the quota begins. While the first backends of a network load balancer are
    // added as a job, the others wait and are tried one by one.
    assert!(minutes[0] <= 80 && minutes[1..].iter().all(|calls| *calls <= 50), "{kind:?}: {minutes:?}");
    assert!(sum(&minutes[1..10]) <= 9 * 21, "{kind:?}: {minutes:?}");
    assert!(sum(&minutes[30..]) <= 3 * REFUSED, "{kind:?}: each once in ten minutes, less jitter: {minutes:?}");
    assert!(all_hold(kind, &testbed, 2, &[1, 2, 3, 4]), "those that can be backends are");
    let told = testbed.cluster.list("Event").into_iter().filter(|it| it["reason"] == "SyncLoadBalancerFailed");
    let told: Vec<String> = told.map(|event| event["message"].as_str().unwrap().to_owned()).collect();
    assert!(told.iter().any(|text| text.contains("i-nowhere-") && text.contains("20 more")), "{kind:?}: {told:?}");

    // A new Service is served at once, and what comes and goes follows at once.
    expose(kind, &testbed, "late");
    until("the new Service is served", SOON, || {
        has_address(kind, &testbed, "late") && all_hold(kind, &testbed, 3, &[1, 2, 3, 4])
    })
    .await;
    testbed.cluster.delete_node("node-4").unwrap();
    add_node(&testbed, 5);
    until("the backends follow", SOON, || all_hold(kind, &testbed, 3, &[1, 2, 3, 5])).await;
    assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
}

#[test]
fn an_edit_asks_for_another_try_and_what_is_taken_now_serves() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed().await;
        testbed.expose("web", &[80], &["node-1"], &[]);
        let _product = Product::start(&testbed, &["service"], MORE);
        tokio::time::sleep(10 * MINUTE).await;
        let kind = Kind::Classic;
        assert!(all_hold(kind, &testbed, 1, &[1, 2, 3, 4]) && has_address(kind, &testbed, "web"));
        testbed.cloud.add_instance("i-nowhere-7", "bad-7", "vsw-i", "192.168.0.77");
        let note = json!({"metadata": {"annotations": {"example.com/note": "again"}}});
        testbed.cluster.patch("Service", "default", "web", &note).unwrap();
        let serves = || {
            testbed.cloud.look(|cloud| {
                let mut groups = cloud.load_balancers.values().flat_map(|lb| lb.groups.values());
                groups.any(|group| group.backends.iter().any(|backend| backend.server_id == "i-nowhere-7"))
            })
        };
        until("it serves", 3 * MINUTE, serves).await;
    });
}
