//! Nothing ends without being noticed: a part of the process that ends by itself is replaced, or the process ends in order.

use crate::harness::{ALL, Ccm, HASTE, World, address, free_port};

/// A process in which `part` panicked while it led.
async fn after_panic_of(world: &World, part: &str) -> Ccm {
    let file = world.folder().join("panic");
    let port = free_port();
    let mut ccm = world
        .start_with(&["--set", &format!("server.port={port}")], &[("ALICLOUD_CCM_TEST_PANIC", file.to_str().unwrap())]);
    ccm.serve_at(port);
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("this replica leads")).await;
    let beside = world.folder().join("panic~");
    std::fs::write(&beside, part).unwrap();
    std::fs::rename(beside, file).unwrap();
    world.until("the part panicked", |_| ccm.log().contains("a test asked for it")).await;
    ccm
}

fn holder(world: &World) -> String {
    let lease = world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

async fn goes_on_without(part: &str, noticed: &str) {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    let ccm = after_panic_of(&world, part).await;
    world.until("it is noticed", |_| ccm.log().contains(noticed)).await;
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("this replica leads")).await;
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert!(ccm.stop().await.success());
    assert_eq!(holder(&world), "", "the lease is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_panics_is_replaced() {
    goes_on_without("session", "the session ended abnormally; a new one starts").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_that_panics_is_replaced_with_its_session() {
    goes_on_without("election", "the election ended abnormally").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_server_that_panics_is_replaced() {
    goes_on_without("health server", "the health server ended abnormally; it starts again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_main_loop_the_process_ends_in_order() {
    let world = World::new(ALL, HASTE).await;
    let mut ccm = after_panic_of(&world, "main loop").await;
    assert_eq!(ccm.ended().await.code(), Some(1), "{}", ccm.log());
    assert!(ccm.log().contains("the main loop ended abnormally"), "{}", ccm.log());
    assert_eq!(holder(&world), "", "the lease is released");
}
