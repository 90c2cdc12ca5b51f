//! Old and new API servers, and an upgrade under a running process.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::Value;
use sim::cluster::{Endpoint, Version};
use sim::testbed::{Testbed, instance};

use crate::harness::{ALL, HASTE, World, address, is_ready};

/// Quick to take a lock that is free.
const ELECTION: &str = "\n[leader_election]\nretry_period = \"500ms\"\n";

async fn world(version: Version) -> World {
    World::of(Testbed::open(version).await.unwrap(), ALL, &format!("{HASTE}{ELECTION}"))
}

/// Who holds the lock, by the kind of lock that this version has.
fn holder(testbed: &Testbed) -> Option<String> {
    let holder = if testbed.cluster.version().minor() >= 14 {
        testbed.cluster.get("Lease", "kube-system", "ccm")?["spec"]["holderIdentity"].as_str()?.to_owned()
    } else {
        let lock = testbed.cluster.get("ConfigMap", "kube-system", "ccm")?;
        let record = lock["metadata"]["annotations"]["control-plane.alpha.kubernetes.io/leader"].as_str()?.to_owned();
        serde_json::from_str::<Value>(&record).ok()?["holderIdentity"].as_str()?.to_owned()
    };
    (!holder.is_empty()).then_some(holder)
}

fn backends(testbed: &Testbed) -> String {
    let snapshot = testbed.cloud.snapshot();
    snapshot["load_balancers"].as_array().map(|all| Value::from(all.clone()).to_string()).unwrap_or_default()
}

async fn story(version: Version) {
    let world = world(version).await;
    let ccm = world.start();
    let nodes: Vec<String> = (1..=2).map(|number| world.testbed.join(number)).collect();
    world
        .until(&format!("{version}: the nodes are initialised"), |_| {
            nodes.iter().all(|name| is_ready(&world.node(name)) && !world.node(name)["spec"]["providerID"].is_null())
        })
        .await;
    let labels = world.node("node-1")["metadata"]["labels"].clone();
    for zone in ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"] {
        assert_eq!(labels[zone], "cn-hangzhou-i", "{version}: {labels}");
    }
    assert!(holder(&world.testbed).is_some(), "{version}: somebody leads");

    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until(&format!("{version}: an address"), |_| address(&world.service("web")).is_some()).await;
    world.until(&format!("{version}: a backend"), |testbed| backends(testbed).contains(&instance(1))).await;
    // A server that does not know a field drops it, so that the controller would write it again and again.
    let written = world.testbed.cluster.writes().into_iter().find(|call| call.target() == "services/status").unwrap();
    let entry = &written.body.unwrap()["status"]["loadBalancer"]["ingress"][0];
    let reported = (entry.get("ports").is_some(), entry.get("ipMode").is_some());
    assert_eq!(reported, (version.minor() >= 24, version.minor() >= 30), "{version}: {entry}");
    let reason = |kind, name: &str, reason: &str| world.events(kind, name).iter().any(|event| event.1 == reason);
    world
        .until(&format!("{version}: events on objects"), |_| {
            !world.events("Service", "web").is_empty() && reason("Node", "node-1", "CreatedRoute")
        })
        .await;

    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until(&format!("{version}: the Service is gone"), |_| world.service("web").is_null()).await;
    assert!(world.testbed.cloud.look(|cloud| cloud.load_balancers.is_empty()), "{version}");

    assert!(ccm.stop().await.success(), "{version}");
    assert_eq!(holder(&world.testbed), None, "{version}: the lead was given back");
    let about = if version.minor() >= 14 { "Lease" } else { "ConfigMap" };
    let reported: Vec<_> = world.events(about, "ccm").into_iter().map(|event| event.2).collect();
    assert!(reported.iter().any(|text| text.ends_with("became leader")), "{version}: {reported:?}");
    assert!(reported.iter().any(|text| text.ends_with("stopped leading")), "{version}: {reported:?}");
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_from_the_oldest_to_the_newest() {
    let stories: Vec<_> = Version::ALL.into_iter().map(|version| tokio::spawn(story(version))).collect();
    for story in stories {
        story.await.unwrap();
    }
}

/// The API server goes away and comes back as `after`; what it offers then is found without a restart.
async fn upgrade(before: Version, after: Version) {
    let what = |text: &str| format!("{before} to {after}: {text}");
    let world = world(before).await;
    let ccm = world.start();
    for number in 1..=2 {
        world.testbed.join(number);
    }
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until(&what("a backend"), |testbed| backends(testbed).contains(&instance(1))).await;
    let led = holder(&world.testbed);
    assert!(led.is_some());

    world.testbed.cluster.go_away().await;
    world.testbed.cluster.play(after);
    let both = [
        Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, 1, 10)), "node-1"),
        Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, 2, 10)), "node-2"),
    ];
    world.testbed.cluster.set_endpoints("default", "web", &both).unwrap();
    world.testbed.cluster.come_back().await.unwrap();
    world.until(&what("the same replica leads again"), |testbed| holder(testbed) == led).await;
    world.until(&what("another backend"), |testbed| backends(testbed).contains(&instance(2))).await;

    world.testbed.join(3);
    world.until(&what("a new node"), |_| is_ready(&world.node("node-3"))).await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until(&what("the Service is gone"), |_| world.service("web").is_null()).await;
    assert!(ccm.stop().await.success());
    assert_eq!(holder(&world.testbed), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_api_server_is_discovered_again() {
    tokio::join!(
        upgrade(Version::V1_11, Version::V1_16),
        upgrade(Version::V1_16, Version::V1_24),
        upgrade(Version::V1_20, Version::V1_30),
        upgrade(Version::V1_8, Version::NEWEST),
    );
}

/// A server that offers slices is up before the controllers that make them.
#[tokio::test(flavor = "multi_thread")]
async fn backends_stay_while_slices_are_offered_but_not_made() {
    let world = world(Version::V1_16).await;
    let ccm = world.start();
    for number in 1..=3 {
        world.testbed.join(number);
    }
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("a backend", |testbed| backends(testbed).contains(&instance(1))).await;
    world.until("an address", |_| address(&world.service("web")).is_some()).await;
    world.until("the nodes are ready", |testbed| testbed.cluster.list("Node").iter().all(is_ready)).await;
    let set = |nodes: &[(u8, &str)]| {
        let endpoints: Vec<_> = nodes
            .iter()
            .map(|(number, name)| Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, *number, 10)), name))
            .collect();
        world.testbed.cluster.set_endpoints("default", "web", &endpoints).unwrap();
    };

    world.testbed.cluster.go_away().await;
    world.testbed.cluster.play(Version::V1_20);
    world.testbed.cluster.come_back().await.unwrap();
    world.until("it waits for slices", |_| ccm.log().contains("slices are offered but not made yet")).await;
    // Whoever starts now must not be taken in either.
    let (plan, code) = world.plan().await;
    assert_eq!(code, Some(0), "{plan}");
    world.until_quiet(Duration::from_secs(1)).await;
    assert!(backends(&world.testbed).contains(&instance(1)));

    set(&[(1, "node-1"), (2, "node-2")]);
    world.until("endpoints go on being read", |testbed| backends(testbed).contains(&instance(2))).await;
    world.testbed.cluster.drop_watches();
    let watched = |resource: &str| {
        let calls = world.testbed.cluster.calls();
        calls.iter().any(|call| call.verb == "watch" && call.resource == resource)
    };
    world.until("slices are read", |_| watched("endpointslices")).await;
    set(&[(1, "node-1"), (2, "node-2"), (3, "node-3")]);
    world.until("slices count", |testbed| backends(testbed).contains(&instance(3))).await;
    let removed =
        world.testbed.cloud.calls().iter().filter(|call| call.action == "RemoveVServerGroupBackendServers").count();
    assert_eq!(removed, 0, "no backend was ever taken out");
    assert!(ccm.stop().await.success());
}

/// A replica that finds leases must not lead beside one that still holds the lock of old servers.
#[tokio::test(flavor = "multi_thread")]
async fn two_kinds_of_lock_never_have_two_leaders() {
    let world = world(Version::V1_11).await;
    let first = world.start();
    world.until("the first replica leads", |testbed| holder(testbed).is_some()).await;
    // Frozen, it cannot see that the server has changed, but it may wake up at any moment until its time is over.
    first.signal("STOP");
    let frozen = tokio::time::Instant::now();
    world.testbed.cluster.go_away().await;
    world.testbed.cluster.play(Version::NEWEST);
    world.testbed.cluster.come_back().await.unwrap();
    let second = world.start();
    world.until("the second replica leads", |testbed| holder(testbed).is_some()).await;
    assert!(frozen.elapsed() >= Duration::from_secs(10), "the lock of the first replica had not run out yet");
    first.signal("CONT");
    world.testbed.join(1);
    world.until("there is a leader that works", |_| is_ready(&world.node("node-1"))).await;
    assert!(second.stop().await.success());
    world.until("the first replica takes over", |testbed| holder(testbed).is_some()).await;
    assert!(first.stop().await.success());
}

#[test]
fn the_page_of_versions_has_a_row_for_each_tested_one() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/versions.md")).unwrap();
    for version in Version::ALL {
        let minor = version.minor();
        let start = format!("| 1.{minor} |");
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row {start}"));
        let lists =
            ["| Lease |", "EndpointSlice", ", ports", "`ipMode`", "node affinity"].map(|text| row.contains(text));
        assert_eq!(lists, [minor >= 14, minor >= 17, minor >= 24, minor >= 30, minor >= 12], "{row}");
    }
}
