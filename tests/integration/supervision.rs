//! Nothing ends without being noticed: a part of the process that ends by itself is replaced, or the process ends in order; one
//! that hangs is seen.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{ALL, Ccm, EVERY, HASTE, World, address, free_port, is_ready};
use crate::kinds::{Kind, point_at};
use crate::systemd::Manager;

/// Every long-lived task of a process whose controllers all run.
const TASKS: &[&str] = &[
    "signals",
    "service manager",
    "health server",
    "config watch",
    "credentials of the API server",
    "events",
    "events about reloads",
    "readiness checks",
    "election",
    "watch of Node",
    "watch of Service",
    "watch of Endpoints",
    "watch of PersistentVolume",
    "watch of Service (all)",
    "watch of Endpoints (headless)",
    "node",
    "route",
    "service",
    "nlb",
    "volume-labels",
    "pvtz",
    "sessions",
];
const CONTROLLERS: &[&str] = &["node", "route", "service", "nlb", "volume-labels", "pvtz"];

/// The lead of a session that was cut off is free soon.
const ELECTION: &str =
    "\n[leader_election]\nlease_duration = \"8s\"\nrenew_deadline = \"5s\"\nretry_period = \"500ms\"\n";

/// A process that leads, in which tasks can be made to fail, and which notifies the file `notify`.
async fn leading(world: &World) -> Ccm {
    let (file, port) = (world.folder().join("fault"), free_port());
    let environment = [
        ("ALICLOUD_CCM_TEST_TASK", file.to_str().unwrap()),
        ("NODE_NAME", "node-1"),
        ("NOTIFY_SOCKET", &world.folder().join("notify").display().to_string()),
        ("WATCHDOG_USEC", "200000"),
    ];
    let arguments = ["--set", &format!("server.port={port}"), "--set", "cloud.timeout=60s"];
    let mut ccm = world.start_with(&arguments, &environment);
    ccm.serve_at(port);
    until_it_leads(&ccm).await;
    ccm
}

async fn until_it_leads(ccm: &Ccm) {
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("this replica leads")).await;
}

/// Lets a task panic or hang.
async fn inject(world: &World, fault: &str, task: &str) {
    let (file, beside) = (world.folder().join("fault"), world.folder().join("fault~"));
    std::fs::write(&beside, format!("{fault} {task}")).unwrap();
    std::fs::rename(beside, &file).unwrap();
    world.until(&format!("{fault} of {task}"), |_| !file.exists()).await;
}

fn holder(world: &World) -> String {
    let lease = world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// A Service of which only nodes with endpoints are backends, which are on the first node.
async fn serve(world: &World) {
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    world.testbed.cluster.patch("Service", "default", "web", &local).unwrap();
    let served = || address(&world.service("web")).is_some() && is_ready(&world.node("node-1"));
    world.until("the Service has an address", |_| served()).await;
    world.until("the node is a backend", |testbed| Kind::Clb.all_lead_to(testbed, &[1])).await;
}

/// A node joins and the endpoints of the Service move there; both are followed.
async fn goes_on(world: &World, node: u8) {
    world.testbed.join(node);
    world.until("the node is initialised", |_| is_ready(&world.node(&format!("node-{node}")))).await;
    point_at(&world.testbed, "web", &[node]);
    world.until("the backends have followed", |testbed| Kind::Clb.all_lead_to(testbed, &[node])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_that_ends_starts_again_and_the_service_goes_on() {
    let world = World::new(CONTROLLERS, &format!("{HASTE}{ELECTION}")).await;
    let ccm = leading(&world).await;
    serve(&world).await;
    let (_, metrics) = ccm.page("/metrics").await.unwrap();
    let known = metrics.lines().filter_map(|line| line.strip_prefix("alicloud_ccm_task_ends_total{task=\""));
    let known: BTreeSet<&str> = known.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(known, TASKS.iter().copied().collect(), "each of them is ended below");
    for (task, node) in TASKS.iter().zip(2..) {
        inject(&world, "panic", task).await;
        let counted = format!("alicloud_ccm_task_ends_total{{task=\"{task}\"}} 1");
        ccm.until_page("/metrics", |_, text| text.contains(&counted)).await;
        assert!(ccm.log().contains(&format!("it starts again code=\"ACCM0702\" task=\"{task}\"")), "{}", ccm.log());
        goes_on(&world, node).await;
        until_it_leads(&ccm).await;
        assert_eq!(ccm.page("/livez").await, Some((200, "ok".to_owned())));
    }
    ccm.until_page("/readyz", |_, text| text.contains("task health server ended abnormally once")).await;
    // What was replaced does its work: the file is watched, and signals and events arrive.
    world.edit(|text| text.replace("removal_limit", "#removal_limit") + "\n[log]\nlevel = \"debug\"\n");
    world.until_event("Node", "node-1", "ConfigApplied").await;
    assert!(ccm.stop().await.success());
    assert_eq!(holder(&world), "", "the lease is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_ends_again_and_again_fails_livez() {
    let world = World::new(EVERY, HASTE).await;
    let ccm = leading(&world).await;
    for ends in 1..=5 {
        assert_eq!(ccm.page("/livez").await, Some((200, "ok".to_owned())), "after {} ends", ends - 1);
        inject(&world, "panic", "volume-labels").await;
    }
    let failure = "the task volume-labels ended abnormally 5 times in a row";
    ccm.until_page("/livez", |status, text| status == 503 && text.starts_with(failure)).await;
    ccm.until_page("/readyz", |_, text| text.contains("task volume-labels ended abnormally 5 times in a row")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_panics_ends_in_order_and_is_replaced() {
    let world = World::new(ALL, HASTE).await;
    let ccm = leading(&world).await;
    serve(&world).await;
    inject(&world, "panic", "session").await;
    let noticed = "the session ended abnormally; a new one starts";
    world.until("it is noticed", |_| ccm.log().contains(noticed)).await;
    let released = ccm.log().find("released the lease");
    assert!(released.is_some() && released < ccm.log().find(noticed), "{}", ccm.log());
    goes_on(&world, 2).await;
    until_it_leads(&ccm).await;
    assert!(ccm.stop().await.success());
    assert_eq!(holder(&world), "", "the lease is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_instead_of_a_controller_starts_again() {
    let world = World::new(&["node"], HASTE).await;
    let ccm = leading(&world).await;
    inject(&world, "panic", "routes-off").await;
    let stuck = json!({"conditions": [{"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}]});
    world.testbed.join(1);
    world.testbed.cluster.patch_status("Node", "", "node-1", &stuck).unwrap();
    world.until("the condition is cleared", |_| world.node("node-1").to_string().contains("RoutesDisabled")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_main_loop_the_process_ends_in_order() {
    let world = World::new(ALL, HASTE).await;
    let mut ccm = leading(&world).await;
    inject(&world, "panic", "main loop").await;
    assert_eq!(ccm.ended().await.code(), Some(1), "{}", ccm.log());
    assert!(ccm.log().contains("the main loop ended abnormally"), "{}", ccm.log());
    assert_eq!(holder(&world), "", "the lease is released");
}

/// What a kubelet then does is done here: it asks the process to end, which it does although a thread hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_fails_livez_and_does_not_hold_up_the_end() {
    let hangs = async |driver: &str| {
        let world = World::new(ALL, HASTE).await;
        let manager = Manager::listen(&world.folder().join("notify"));
        let ccm = leading(&world).await;
        serve(&world).await;
        assert!(manager.count("WATCHDOG=1") > 0, "a sign of life");
        inject(&world, "hang", driver).await;
        let began = Instant::now();
        let failure = format!("the task {driver} has made no progress for ");
        ccm.until_page("/livez", |status, text| status == 503 && text.starts_with(&failure)).await;
        assert!(began.elapsed() > Duration::from_secs(20), "silence of a moment is no hang");
        // A last one can be on its way.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let alive = manager.count("WATCHDOG=1");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(manager.count("WATCHDOG=1"), alive, "the watchdog bites");
        let down = format!("[-]task {driver} failed: has made no progress");
        ccm.until_page("/readyz", |status, text| status == 503 && text.contains(&down)).await;
        assert!(ccm.stop().await.success());
        assert_eq!(holder(&world), "", "the lease is released");
    };
    tokio::join!(hangs("service"), hangs("node"));
}

/// A call that takes longer than any silence is no hang.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_wait_for_the_cloud_is_no_hang() {
    use sim::cloud::Fault;
    let world = World::new(ALL, HASTE).await;
    let ccm = leading(&world).await;
    world.testbed.cloud.faults().always("DescribeInstances", Fault::HangBefore(Duration::from_secs(100)));
    world.testbed.join(1);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(40) {
        assert_eq!(ccm.page("/livez").await, Some((200, "ok".to_owned())));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(ccm.stop().await.success());
}
