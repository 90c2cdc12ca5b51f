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

/// Waits until all of these are served, at most for an hour.
async fn until_served(testbed: &Testbed, names: &[String]) -> Duration {
    let served = |name: &String| address(&testbed.cluster.get("Service", "default", name).unwrap()).is_some();
    let began = Instant::now();
    while !names.iter().all(served) && began.elapsed() < Duration::from_secs(3600) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    began.elapsed()
}

fn expose_named(testbed: &Testbed, prefix: &str, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    names.iter().for_each(|name| testbed.expose(name, &[80], &["node-1"], &[]));
    names
}

#[test]
fn load_balancers_are_created_as_fast_as_the_quota_allows_however_slow_calls_are() {
    for latency in [20, 200, 900, 3000] {
        let (took, log) = on_a_clock_of_its_own(1, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            testbed.cloud.edit(|cloud| cloud.limits.load_balancers = 1000);
            testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(latency));
            let _product = Product::start(&testbed, ALL, &format!("{HASTE}{MORE}"));
            tokio::time::sleep(Duration::from_secs(20)).await;
            until_served(&testbed, &expose_named(&testbed, "web", 120)).await
        });
        // 30 in a minute: the last 30 go out after three minutes, and take a few calls more.
        let most = Duration::from_secs(180) + Duration::from_millis(40 * latency);
        assert!(took < most, "with {latency} ms a call it took {took:?}\n{log}");
    }
}

#[test]
fn services_that_were_deleted_again_hold_up_no_other() {
    let (took, log) = on_a_clock_of_its_own(1, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let _product = Product::start(&testbed, ALL, &format!("{HASTE}{MORE}"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        testbed.cloud.edit(|cloud| cloud.limits.load_balancers = 1000);
        let wrong = expose_named(&testbed, "wrong", 300);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let right = expose_named(&testbed, "right", 5);
        tokio::time::sleep(Duration::from_secs(10)).await;
        wrong.iter().for_each(|name| drop(testbed.cluster.delete("Service", "default", name)));
        until_served(&testbed, &right).await
    });
    assert!(took < Duration::from_secs(40), "the next window has room for them, but it took {took:?}\n{log}");
}

#[test]
fn a_stop_does_not_wait_for_calls_that_wait_for_a_quota() {
    let (took, log) = on_a_clock_of_its_own(1, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let few = "[cloud.quotas]\n\"*\" = 4\n";
        let product = Product::start(&testbed, ALL, &format!("{HASTE}{MORE}{few}"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        expose_named(&testbed, "web", 30);
        tokio::time::sleep(Duration::from_secs(15)).await;
        product.stop().await
    });
    assert!(took < Duration::from_secs(1), "the stop took {took:?}\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_session_counts_the_calls_of_the_one_before() {
    let world = World::new(&["service"], FEW).await;
    expose_all(&world, 1);
    let port = world.serve_health();
    let ccm = world.start();
    world.until("the first is served", |_| address(&world.service("web-0")).is_some()).await;
    world.edit(|text| text.replace("[cloud]\n", "[cloud]\nzone_id = \"cn-hangzhou-j\"\n"));
    let connected = || ccm.log().lines().filter(|line| line.contains("connected")).count();
    world.until("the next session", |_| connected() == 2).await;
    world.testbed.expose("late", &[80], &["node-1"], &[]);
    let began = Instant::now();
    let waits = "alicloud_ccm_waiting_calls{action=\"CreateLoadBalancer\"} 1";
    while !get(port, "/metrics").await.is_some_and(|(_, text)| text.lines().any(|line| line == waits)) {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not wait\n{}", ccm.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_says_how_long_the_quotas_make_it_last_and_counts_the_calls_that_a_run_makes() {
    let world = World::new(&["service", "nlb"], "").await;
    expose_all(&world, 4);
    Kind::Nlb.expose(&world.testbed, "net", &[80, 81], &[1]);
    let (text, code) = world.plan().await;
    assert!(code == Some(2) && !text.contains("the quotas"), "with the published quotas it is done at once:\n{text}");
    world.edit(|config| format!("{config}{FEW}"));
    let (text, code) = world.plan().await;
    let sentence = "At this program's share of the quotas, 23 calls take about 3 min: CreateLoadBalancer (1 in 60 s) is the narrowest.";
    assert_eq!((text.lines().last(), code), (Some(sentence), Some(2)), "{text}");

    world.edit(|config| config.replace(FEW, ""));
    let ccm = world.start();
    let served = |number| address(&world.service(&format!("web-{number}"))).is_some();
    let net = || Kind::Nlb.published(&world.service("net")).is_some();
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
