//! Several replicas, one of which leads.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Effect, Match};
use sim::testbed::Testbed;

use crate::harness::{ALL, Ccm, HASTE, World, address, is_ready};

/// An election that is quick enough for a test.
const QUICK: &str = "\n[leader_election]\nlease_duration = \"8s\"\nrenew_deadline = \"4s\"\nretry_period = \"300ms\"\n";
/// One whose lease does not run out while a test lasts.
const PATIENT: &str =
    "\n[leader_election]\nlease_duration = \"1h\"\nrenew_deadline = \"4s\"\nretry_period = \"300ms\"\n";

fn holder(testbed: &Testbed) -> String {
    let lease = testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// A time of the lease.
fn time(testbed: &Testbed, field: &str) -> Timestamp {
    let lease = testbed.cluster.get("Lease", "kube-system", "ccm").unwrap();
    lease["spec"][field].as_str().unwrap().parse().unwrap()
}

/// The lock of official controllers up to v1.9.3.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

fn record_on_endpoints(testbed: &Testbed) -> Value {
    let object = testbed.cluster.get("Endpoints", "kube-system", "ccm").unwrap_or_default();
    serde_json::from_str(object["metadata"]["annotations"][LEADER].as_str().unwrap_or_default()).unwrap_or_default()
}

async fn until_led(world: &World, ccm: &Ccm) {
    world.until("a replica leads", |testbed| !holder(testbed).is_empty()).await;
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("this replica leads")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_leads_and_stops_in_order() {
    tokio::join!(two_replicas_take_turns(), the_end_comes_within_seconds(), a_leader_that_cannot_renew_stops_writing());
}

/// The same identity is configured for all of them, as where they share a file.
async fn two_replicas_take_turns() {
    let world = World::new(ALL, &format!("{HASTE}{PATIENT}identity = \"the-same\"\n")).await;
    let first = world.start_serving();
    until_led(&world, &first).await;
    let first_holder = holder(&world.testbed);
    assert!(first_holder.starts_with("the-same"), "{first_holder}");
    let second = world.start_serving();
    second.until_page("/readyz", |status, text| status == 200 && text.contains("standby")).await;
    assert_eq!(second.page("/livez").await.unwrap().0, 200);
    let metrics =
        second.until_page("/metrics", |status, text| status == 200 && text.contains("alicloud_ccm_leader ")).await;
    assert!(metrics.contains("alicloud_ccm_leader 0"), "{metrics}");

    // Only the leader works.
    let node = world.testbed.join(1);
    world.until("the node is initialised", |_| is_ready(&world.node(&node))).await;
    assert_eq!(holder(&world.testbed), first_holder);
    assert!(!second.log().contains("created route"), "{}", second.log());

    // An orderly end hands over at once, although the lease would last.
    assert!(first.stop().await.success());
    world
        .until("the other replica leads", |testbed| !holder(testbed).is_empty() && holder(testbed) != first_holder)
        .await;
    until_led(&world, &second).await;
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("the new leader works", |_| address(&world.service("web")).is_some()).await;

    // A sudden end hands over when the lease has run out, and not before.
    world.edit(|text| text.replace("1h", "8s"));
    let duration = |testbed: &Testbed| {
        testbed.cluster.get("Lease", "kube-system", "ccm").unwrap()["spec"]["leaseDurationSeconds"].clone()
    };
    world.until("the lease is short", |testbed| duration(testbed) == 8).await;
    let third = world.start_serving();
    third.until_page("/readyz", |status, text| status == 200 && text.contains("standby")).await;
    let second_holder = holder(&world.testbed);
    assert!(!second.kill().await.success());
    let renewed = time(&world.testbed, "renewTime");
    world.until("the third replica leads", |testbed| holder(testbed) != second_holder).await;
    let waited = time(&world.testbed, "acquireTime").duration_since(renewed);
    assert!(waited >= SignedDuration::from_secs(8), "the lease was still good: {waited:?}");

    // It finds everything as it should be.
    world.until_quiet(Duration::from_secs(1)).await;
    let writes = world.testbed.cloud.writes().len();
    let node = world.testbed.join(2);
    world.until("the third replica works", |_| is_ready(&world.node(&node))).await;
    assert_eq!(world.testbed.cloud.look(|cloud| cloud.load_balancers.len()), 1);
    assert!(world.testbed.cloud.writes().len() > writes);
    assert!(third.stop().await.success());
    assert_eq!(holder(&world.testbed), "", "the lease is given back");
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

async fn the_end_comes_within_seconds() {
    let world = World::new(ALL, HASTE).await;
    // With half a second for every call, twenty listeners with their groups take longer than anybody waits.
    let ports: Vec<u16> = (8001..=8020).collect();
    world.testbed.join(1);
    let ccm = world.start();
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    world.until_quiet(Duration::from_millis(500)).await;
    world.testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(500));
    world.testbed.expose("web", &ports, &["node-1"], &[]);
    world.until("work is under way", |testbed| testbed.cloud.count("CreateVServerGroup") > 2).await;
    let made = world.testbed.cloud.count("CreateVServerGroup");
    assert!(ccm.stop().await.success());
    let then_made = world.testbed.cloud.count("CreateVServerGroup") - made;
    assert!(then_made <= 2, "what is not begun waits for the next one, and that one for nothing: {then_made}");
    assert_eq!(holder(&world.testbed), "", "the lease is given back");

    // The next one finishes without making anything twice.
    world.testbed.cloud.dials(|dials| dials.latency = Duration::ZERO);
    let ccm = world.start();
    world.until("the Service has its address", |_| address(&world.service("web")).is_some()).await;
    world.testbed.cloud.look(|cloud| {
        assert_eq!(cloud.load_balancers.len(), 1);
        let lb = cloud.load_balancers.values().next().unwrap();
        assert_eq!((lb.listeners.len(), lb.groups.len()), (20, 20));
    });
    assert!(ccm.stop().await.success());
}

async fn a_leader_that_cannot_renew_stops_writing() {
    let world = World::new(ALL, &format!("{HASTE}{QUICK}")).await;
    let ccm = world.start_serving();
    until_led(&world, &ccm).await;
    let unreachable = || Effect::LoseRequest;
    for verb in ["get", "update", "patch", "create"] {
        world.testbed.cluster.trouble_times(Match::new(verb, "leases"), unreachable(), usize::MAX);
    }
    ccm.until_page("/readyz", |_, text| text.contains("standby")).await;
    let calls = world.testbed.cloud.writes().len();
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.testbed.cloud.writes().len(), calls);
    assert_eq!(world.kubernetes_writes().iter().filter(|write| !write.contains("events")).count(), 0);

    world.testbed.cluster.calm();
    until_led(&world, &ccm).await;
    world.until("it goes on", |_| address(&world.service("web")).is_some()).await;

    // Being refused by the cloud does not cost the lead.
    world.testbed.cloud.faults().always("*", Fault::Throttle);
    world.testbed.join(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    until_led(&world, &ccm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_ready_to_take_over_without_a_call_to_the_cloud() {
    let world = World::new(ALL, HASTE).await;
    let lease = |holder: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "ccm", "namespace": "kube-system" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": "2030-01-01T00:00:00.000000Z" },
        })
    };
    world.testbed.cluster.create(lease("another")).unwrap();
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start_serving();
    // Ready: its watches are filled.
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("standby")).await;
    let calls = world.testbed.cloud.calls();
    let calls: Vec<&str> =
        calls.iter().filter(|call| call.product != "metadata").map(|call| call.action.as_str()).collect();
    assert_eq!(calls, [""; 0]);

    // The other one gives it back.
    world.testbed.cluster.patch("Lease", "kube-system", "ccm", &lease("")).unwrap();
    world.until("it goes on", |_| address(&world.service("web")).is_some()).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_lost_the_cloud_is_ready_as_a_standby() {
    let world = World::new(ALL, &format!("{HASTE}{PATIENT}")).await;
    let ccm = world.start_serving();
    until_led(&world, &ccm).await;
    world.testbed.cloud.faults().always("*", Fault::Drop);
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    ccm.until_page("/readyz", |status, text| status == 503 && text.contains("this replica leads")).await;
    let taken = json!({"spec": {"holderIdentity": "another"}});
    world.testbed.cluster.patch("Lease", "kube-system", "ccm", &taken).unwrap();
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("standby")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_official_controller_and_this_one_never_lead_at_once() {
    let world = World::new(ALL, &format!("{HASTE}{QUICK}")).await;
    let ccm = world.start_serving();
    until_led(&world, &ccm).await;

    // The old one sees no leases, and leads beside it until Endpoints are locked too.
    let object =
        json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "ccm", "namespace": "kube-system" } });
    world.testbed.cluster.create(object).unwrap();
    let renew = |time: usize| {
        let record = json!({
            "holderIdentity": "ccm-master-1", "leaseDurationSeconds": 8, "leaderTransitions": 1,
            "acquireTime": "2019-01-02T03:04:05Z", "renewTime": format!("2019-01-02T03:04:05.{time:03}Z"),
        });
        let change = json!({ "metadata": { "annotations": { LEADER: record.to_string() } } });
        world.testbed.cluster.patch("Endpoints", "kube-system", "ccm", &change).unwrap();
    };
    renew(0);
    world.edit(|text| format!("{text}resource_lock = \"endpointsleases\"\n"));
    ccm.until_page("/readyz", |_, text| text.contains("standby")).await;
    let calls = world.testbed.cloud.writes().len();
    world.testbed.join(1);
    // Longer than the lock lasts, as long as it is renewed.
    let mut renewed = Instant::now();
    for time in 1..=20 {
        renewed = Instant::now();
        renew(time);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(world.testbed.cloud.writes().len(), calls);
    let (status, text) = ccm.page("/readyz").await.unwrap();
    assert!(status == 200 && text.contains("standby"), "{text}");

    // Once it is silent for the whole duration, its lock is taken, and kept where it would look.
    until_led(&world, &ccm).await;
    assert!(renewed.elapsed() >= Duration::from_secs(8), "{:?}", renewed.elapsed());
    world.until("it works", |_| is_ready(&world.node("node-1"))).await;
    let record = record_on_endpoints(&world.testbed);
    assert_eq!(
        (&record["holderIdentity"], &record["leaseDurationSeconds"]),
        (&json!(holder(&world.testbed)), &json!(8))
    );
    world.until("it is renewed", |testbed| record_on_endpoints(testbed)["renewTime"] != record["renewTime"]).await;

    assert!(ccm.stop().await.success());
    assert_eq!(record_on_endpoints(&world.testbed)["holderIdentity"], "", "both are given back");
    assert_eq!(holder(&world.testbed), "");
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}
