//! Nodes that the cloud does not take as backends: they hold up nothing else, and the calls that it refuses are few and become
//! fewer.

use std::time::Duration;

use serde_json::json;
use sim::cluster::{NodeSpec, Version};
use sim::testbed::{REGION, Testbed, instance};
use tokio::time::Instant;

use crate::harness::address;
use crate::in_process::{Product, on_a_clock_of_its_own};

const MORE: &str = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\n";
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

fn has_address(testbed: &Testbed, name: &str) -> bool {
    address(&testbed.cluster.get("Service", "default", name).unwrap()).is_some()
}

/// Whether every server group of so many holds exactly these instances.
fn all_hold(testbed: &Testbed, count: usize, numbers: &[u8]) -> bool {
    let wanted: Vec<String> = numbers.iter().map(|number| instance(*number)).collect();
    testbed.cloud.look(|cloud| {
        let groups: Vec<_> = cloud.load_balancers.values().flat_map(|lb| lb.groups.values()).collect();
        let holds =
            |servers: Vec<&str>| servers.len() == wanted.len() && wanted.iter().all(|id| servers.contains(&&**id));
        groups.len() == count
            && groups.iter().all(|it| holds(it.backends.iter().map(|backend| backend.server_id.as_str()).collect()))
    })
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
    calls.filter(|call| call.action.contains("VServerGroup") && call.outcome != "OK").count()
}

#[test]
fn they_hold_up_nothing_and_cost_few_calls_that_become_fewer() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed().await;
        testbed.expose("web", &[80], &["node-1"], &[]);
        testbed.expose("api", &[80], &["node-1"], &[]);
        let _product = Product::start(&testbed, &["service"], MORE);
        until("both have an address", SOON, || has_address(&testbed, "web") && has_address(&testbed, "api")).await;
        let mut minutes = Vec::new();
        for _ in 0..40 {
            tokio::time::sleep(MINUTE).await;
            minutes.push(refused(&testbed));
        }
        let sum = |minutes: &[usize]| minutes.iter().sum::<usize>();
        assert!(minutes.iter().all(|calls| *calls <= 50) && sum(&minutes[1..10]) <= 9 * 21, "{minutes:?}");
        assert!(sum(&minutes[30..]) <= 3 * REFUSED, "each once in ten minutes, less jitter: {minutes:?}");
        assert!(all_hold(&testbed, 2, &[1, 2, 3, 4]), "those that can be backends are");
        let told = testbed.cluster.list("Event").into_iter().filter(|it| it["reason"] == "SyncLoadBalancerFailed");
        let told: Vec<String> = told.map(|event| event["message"].as_str().unwrap().to_owned()).collect();
        assert!(told.iter().any(|text| text.contains("i-nowhere-") && text.contains("20 more")), "{told:?}");

        // A new Service is served at once, and what comes and goes follows at once.
        testbed.expose("late", &[80], &["node-1"], &[]);
        until("the new Service is served", SOON, || {
            has_address(&testbed, "late") && all_hold(&testbed, 3, &[1, 2, 3, 4])
        })
        .await;
        testbed.cluster.delete_node("node-4").unwrap();
        add_node(&testbed, 5);
        until("the backends follow", SOON, || all_hold(&testbed, 3, &[1, 2, 3, 5])).await;
        assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
    });
}

#[test]
fn an_edit_asks_for_another_try_and_what_is_taken_now_serves() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed().await;
        testbed.expose("web", &[80], &["node-1"], &[]);
        let _product = Product::start(&testbed, &["service"], MORE);
        tokio::time::sleep(10 * MINUTE).await;
        assert!(all_hold(&testbed, 1, &[1, 2, 3, 4]) && has_address(&testbed, "web"));
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
