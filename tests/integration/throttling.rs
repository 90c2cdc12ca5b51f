//! The cloud throttles calls that stay below their quotas, as others use the same account; and quotas that are small for what the
//! cluster needs.

use std::time::Duration;

use serde_json::json;
use sim::cloud::{Account, Fault};
use sim::cluster::{Endpoint, Version};
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::harness::{ALL, HASTE, World, address, get};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::Kind;

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

/// One load balancer a minute, as half of the quota is this program's.
const FEW: &str = "[cloud.quotas]\nCreateLoadBalancer = 2\n";

fn expose_all(world: &World, count: usize) {
    world.testbed.join(1);
    (0..count).for_each(|number| world.testbed.expose(&format!("web-{number}"), &[80], &["node-1"], &[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_says_how_long_the_quotas_make_it_last_and_counts_the_calls_that_a_run_makes() {
    let world = World::new(&["service", "nlb"], "").await;
    expose_all(&world, 4);
    Kind::Network.expose(&world.testbed, "net", &[80, 81], &[1]);
    let (text, code) = world.plan().await;
    assert!(code == Some(2) && !text.contains("the quotas"), "with the published quotas it is done at once:\n{text}");
    world.edit(|config| format!("{config}{FEW}"));
    let (text, code) = world.plan().await;
    let sentence = "At this program's share of the quotas, 23 calls take about 3 min: CreateLoadBalancer (1 in 60 s) is the narrowest.";
    assert_eq!((text.lines().last(), code), (Some(sentence), Some(2)), "{text}");

    world.edit(|config| config.replace(FEW, ""));
    let ccm = world.start();
    let served = |number| address(&world.service(&format!("web-{number}"))).is_some();
    let net = || Kind::Network.published(&world.service("net")).is_some();
    world.until("all are served", |_| (0..4).all(served) && net()).await;
    let writes: Vec<String> = world.testbed.cloud.writes().into_iter().map(|call| call.action).collect();
    assert_eq!(writes.len(), 23, "{writes:?}\n{}", ccm.log());

    world.until_still(Duration::from_secs(2)).await;
    assert!(ccm.stop().await.success());
    (0..4).for_each(|number| drop(world.testbed.cluster.delete("Service", "default", &format!("web-{number}"))));
    world.edit(|config| format!("{config}[cloud.quotas]\nDeleteLoadBalancer = 2\n"));
    let (text, _) = world.plan().await;
    let sentence = "At this program's share of the quotas, 8 calls take about 3 min: DeleteLoadBalancer (1 in 60 s) is the narrowest.";
    assert_eq!(text.lines().last(), Some(sentence), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_the_quotas_serve_late_is_reported_once_with_what_is_narrow_and_when_it_is_done() {
    let world = World::new(&["service"], FEW).await;
    expose_all(&world, 20);
    let port = world.serve_health();
    let ccm = world.start_with(&[], &[("POD_NAME", "ccm-0"), ("POD_NAMESPACE", "kube-system"), ("POD_UID", "1-2-3")]);
    let text = world.until_event("Pod", "ccm-0", "CallsWaitForQuota").await;
    for part in [" calls take about ", " min: CreateLoadBalancer (1 in 60 s) is the narrowest", " UTC (ACCM0005)"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    let is_line = |line: &&str| line.contains("ACCM0005") && line.contains("is the narrowest");
    assert_eq!(ccm.log().lines().filter(is_line).count(), 1, "{}", ccm.log());
    let (_, page) = get(port, "/").await.unwrap();
    assert!(page.contains("CreateLoadBalancer (1 in 60 s) is the narrowest."), "{page}");
    world.until_still(Duration::from_secs(12)).await;
    let events = world.events("Pod", "ccm-0");
    assert_eq!(events.iter().filter(|event| event.1 == "CallsWaitForQuota").count(), 1, "{events:?}");
    let on_services: Vec<_> = (0..20).flat_map(|number| world.events("Service", &format!("web-{number}"))).collect();
    assert!(on_services.iter().all(|event| event.0 != "Warning"), "{on_services:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_beyond_the_quota_of_load_balancers_says_that_the_quota_is_missing() {
    let world = World::new(&["service"], "").await;
    world.testbed.cloud.edit(|cloud| cloud.limits.load_balancers = 1);
    expose_all(&world, 2);
    let ccm = world.start();
    let beyond = |number: usize| {
        let events = world.events("Service", &format!("web-{number}"));
        events.into_iter().find(|event| event.1 == "SyncLoadBalancerFailed").map(|event| event.2)
    };
    world.until("one is refused", |_| (0..2).any(|number| beyond(number).is_some())).await;
    let said: Vec<String> = (0..2).filter_map(beyond).collect();
    assert!(said.len() == 1, "{said:?}\n{}", ccm.log());
    let parts = ["create load balancer", "exceeds the quota", "[OperationForbidden.QuotaLimit"];
    assert!(parts.iter().all(|part| said[0].contains(part)), "{said:?}");
}

#[test]
fn a_service_that_the_quota_of_load_balancers_refused_is_served_once_another_one_is_deleted() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        testbed.cloud.edit(|cloud| cloud.limits.load_balancers = 1);
        let _product = Product::start(&testbed, ALL, &format!("{HASTE}{MORE}"));
        testbed.expose("first", &[80], &["node-1"], &[]);
        tokio::time::sleep(Duration::from_secs(20)).await;
        testbed.expose("second", &[80], &["node-1"], &[]);
        // By then, its retries are minutes apart.
        tokio::time::sleep(Duration::from_secs(1000)).await;
        testbed.cluster.delete("Service", "default", "first").unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(address(&testbed.cluster.get("Service", "default", "second").unwrap()).is_some());
    });
}
