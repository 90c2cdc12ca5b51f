//! The cloud throttles calls that stay below their quotas, as others use the same account.

use std::time::Duration;

use serde_json::json;
use sim::cloud::{Account, Fault};
use sim::cluster::{Endpoint, Version};
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::harness::{ALL, HASTE, address};
use crate::in_process::{Product, on_a_clock_of_its_own};

const MORE: &str = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\n";
/// Only what the cloud answers slows calls down.
const QUOTAS: &str = "[cloud.quotas]\n\"*\" = 100000\n";
const SERVICES: usize = 24;

/// Serves new Services while a share of all calls is throttled; gives how long that takes.
fn serve(seed: u64, share: f64) -> Duration {
    let (took, _) = on_a_clock_of_its_own(seed, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let _product = Product::start(&testbed, ALL, &format!("{HASTE}{MORE}"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        testbed.cloud.faults().random_from(seed, share, vec![Fault::Throttle]);
        let names: Vec<String> = (0..SERVICES).map(|number| format!("web-{number}")).collect();
        names.iter().for_each(|name| testbed.expose(name, &[80], &["node-1"], &[]));
        let served = |name: &String| address(&testbed.cluster.get("Service", "default", name).unwrap()).is_some();
        let began = Instant::now();
        while !names.iter().all(served) && began.elapsed() < Duration::from_secs(600) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        began.elapsed()
    });
    took
}

#[test]
fn new_services_are_served_in_seconds_although_a_twentieth_of_all_calls_is_throttled() {
    for seed in 1..=5 {
        let took = serve(seed, 0.05);
        assert!(took < Duration::from_secs(5), "it took {took:?} with seed {seed}");
    }
}

/// Moves pods while half of all calls are throttled; gives how long it takes afterwards until each is where it belongs.
fn follow(seed: u64) -> Duration {
    let (took, _) = on_a_clock_of_its_own(seed, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        testbed.join(2);
        let _product = Product::start(&testbed, ALL, &format!("{HASTE}{MORE}{QUOTAS}"));
        let names: Vec<String> = (0..SERVICES).map(|number| format!("web-{number}")).collect();
        for name in &names {
            testbed.expose(name, &[80], &["node-1"], &[]);
            let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
            testbed.cluster.patch("Service", "default", name, &local).unwrap();
        }
        testbed.cloud.until(|account| serves(account, 1)).await.unwrap();
        testbed.cloud.faults().random_from(seed, 0.5, vec![Fault::Throttle]);
        for number in [2, 1, 2, 1, 2] {
            for name in &names {
                let endpoint = Endpoint::ready([10, 98, number, 10].into(), &format!("node-{number}"));
                testbed.cluster.set_endpoints("default", name, &[endpoint]).unwrap();
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        testbed.cloud.faults().clear();
        let began = Instant::now();
        while !testbed.cloud.look(|account| serves(account, 2)) && began.elapsed() < Duration::from_secs(600) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        began.elapsed()
    });
    took
}

/// Whether this instance is the only one behind every Service.
fn serves(account: &Account, number: u8) -> bool {
    let groups: Vec<_> = account.load_balancers.values().flat_map(|balancer| balancer.groups.values()).collect();
    let only = [sim::testbed::instance(number)];
    groups.len() == SERVICES
        && groups.iter().all(|group| group.backends.iter().map(|backend| &backend.server_id).eq(&only))
}

#[test]
fn pods_are_followed_within_half_a_minute_after_the_cloud_throttled() {
    let took: Vec<Duration> = (1..=5).map(follow).collect();
    assert!(took.iter().all(|took| *took < Duration::from_secs(30)), "with the seeds 1 to 5 it took {took:?}");
}
