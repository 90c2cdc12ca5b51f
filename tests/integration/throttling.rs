//! The cloud throttles calls that stay below their quotas, as others use the same account.

use std::time::Duration;

use sim::cloud::Fault;
use sim::cluster::Version;
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::harness::{ALL, HASTE, address};
use crate::in_process::{Product, on_a_clock_of_its_own};

const MORE: &str = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\n";
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
