//! PersistentVolumes on cloud disks get the labels and the node affinity of their disk, and keep what somebody set.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Disk, Fault};
use sim::cluster::{Effect, Failure, Match, NodeSpec, Version};
use sim::testbed::{ACCESS_KEY, REGION, Testbed};

use crate::harness::{Ccm, World, counts};
use crate::in_process::{Product, on_a_clock_of_its_own};

const CONTROLLERS: &[&str] = &["volume-labels"];
const STABLE: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
const BETA: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"];
const PLUGIN: &str = "topology.diskplugin.csi.alibabacloud.com/zone";
const ZONE: &str = "cn-hangzhou-i";

/// A node with these labels, each of them this zone or region.
fn add_node(testbed: &Testbed, name: &str, keys: &[&str]) {
    testbed.cluster.add_node(&NodeSpec::new(name)).unwrap();
    for key in keys {
        let value = if key.ends_with("zone") { ZONE } else { REGION };
        testbed.cluster.patch("Node", "", name, &json!({"metadata": {"labels": {*key: value}}})).unwrap();
    }
}

fn volume(testbed: &Testbed, name: &str) -> Value {
    testbed.cluster.get("PersistentVolume", "", name).unwrap_or_default()
}

/// The labels of zone and region, in these keys.
fn place<'a>(volume: &'a Value, keys: &[&str; 2]) -> [&'a Value; 2] {
    keys.map(|key| &volume["metadata"]["labels"][key])
}

/// The key and the values that the node affinity of a volume requires.
fn requirement(volume: &Value) -> (&Value, &Value) {
    let it = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    (&it["key"], &it["values"])
}

fn flex(name: &str, disk: &str) -> Value {
    let flex = json!({"driver": "alicloud/disk", "fsType": "ext4", "options": {"volumeId": disk}});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
           "spec": {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "flexVolume": flex}})
}

fn csi(name: &str, disk: &str, labels: &Value) -> Value {
    let csi = json!({"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": disk});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels},
           "spec": {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}})
}

fn add_disk(testbed: &Testbed, id: &str, zone: &str) {
    testbed.cloud.edit(|cloud| drop(cloud.disks.insert(id.into(), Disk::new(REGION, zone))));
}

async fn until_labelled(world: &World, name: &str, keys: &[&str; 2]) {
    let is_so = |testbed: &Testbed| place(&volume(testbed, name), keys).iter().all(|label| label.is_string());
    world.until(&format!("{name} is labelled"), is_so).await;
}

async fn until_told(world: &World, ccm: &Ccm, name: &str) -> String {
    let told = world.until_event("PersistentVolume", name, "VolumeLabelsFailed").await;
    world.until("the log says so", |_| ccm.log().contains(&format!("volume={name}"))).await;
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_both_drivers_get_labels_and_an_affinity_that_nodes_fit() {
    let world = World::new(CONTROLLERS, "").await;
    let testbed = &world.testbed;
    add_node(testbed, "node-1", &[STABLE[0], STABLE[1], BETA[0], BETA[1], PLUGIN]);
    testbed.provide("made-by-hand", "d-1", ZONE);
    add_disk(testbed, "d-2", "cn-hangzhou-j");
    testbed.cluster.create(flex("d-2", "d-2")).unwrap();
    add_disk(testbed, "d-3", "");
    testbed.cluster.create(csi("regional", "d-3", &json!({}))).unwrap();
    testbed.cluster.create(csi("later", "placeholder-for-provisioning", &json!({}))).unwrap();

    let (plan, code) = world.plan().await;
    assert_eq!(code, Some(2), "{plan}");
    assert!(plan.contains("set label topology.kubernetes.io/zone=cn-hangzhou-j"), "{plan}");
    let only = world.run(&["plan", "pv/regional"]).await;
    let only = String::from_utf8(only.stdout).unwrap();
    assert!(only.contains("regional") && !only.contains("made-by-hand"), "{only}");
    world.take_calls();

    let ccm = world.start();
    for name in ["made-by-hand", "d-2"] {
        until_labelled(&world, name, &STABLE).await;
    }
    let region = |testbed: &Testbed| volume(testbed, "regional")["metadata"]["labels"][STABLE[1]].is_string();
    world.until("the regional volume is labelled", region).await;
    let [csi, flex, regional, later] =
        ["made-by-hand", "d-2", "regional", "later"].map(|name| volume(&world.testbed, name));
    assert_eq!(place(&csi, &STABLE), [ZONE, REGION]);
    assert_eq!(requirement(&csi), (&json!(PLUGIN), &json!([ZONE])));
    assert_eq!(place(&flex, &STABLE), ["cn-hangzhou-j", REGION]);
    assert_eq!(requirement(&flex), (&json!(STABLE[0]), &json!(["cn-hangzhou-j"])));
    assert_eq!(place(&regional, &STABLE), [&Value::Null, &json!(REGION)]);
    assert_eq!(requirement(&regional), (&json!(STABLE[1]), &json!([REGION])));
    assert!(later["metadata"]["labels"].is_null());
    let event = world.until_event("PersistentVolume", "made-by-hand", "VolumeLabeled").await;
    assert!(event.contains("set node affinity to"), "{event}");
    world.until_quiet(Duration::from_secs(2)).await;
    assert_eq!(world.take_calls(), counts(&[("DescribeDisks", 1)]));
    let writes = world.kubernetes_writes().into_iter().filter(|write| write.contains("persistentvolumes")).count();
    assert_eq!(writes, 3, "one patch for each volume");

    assert!(ccm.stop().await.success());
    let (plan, code) = world.plan().await;
    assert_eq!(code, Some(0), "{plan}");
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_mixed_clusters_get_the_keys_that_their_nodes_and_schedulers_know() {
    let old = |minor: u32, keys: &'static [&'static str], expected: &'static [&'static str; 2]| async move {
        let testbed = Testbed::open(Version::minor_release(minor)).await.unwrap();
        add_node(&testbed, "node-1", keys);
        add_node(&testbed, "node-2", &BETA);
        testbed.provide("pv", "d-1", ZONE);
        let world = World::of(testbed, CONTROLLERS, "");
        let _ccm = world.start();
        until_labelled(&world, "pv", expected).await;
        let pv = volume(&world.testbed, "pv");
        assert_eq!(place(&pv, expected), [ZONE, REGION], "1.{minor}");
        assert_eq!(pv["metadata"]["labels"].as_object().unwrap().len(), 2, "1.{minor}: {pv}");
        let affinity = if minor < 12 { Value::Null } else { json!(expected[0]) };
        assert_eq!(requirement(&pv).0, &affinity, "1.{minor}");
        let calls = world.testbed.cluster.calls();
        let failed: Vec<_> = calls.iter().filter(|call| call.status.is_some_and(|it| it >= 400 && it != 404)).collect();
        assert!(failed.is_empty(), "1.{minor}: {failed:?}");
    };
    tokio::join!(old(8, &BETA, &BETA), old(11, &BETA, &BETA), old(16, &BETA, &BETA), old(34, &STABLE, &BETA));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_set_is_never_changed() {
    let world = World::new(CONTROLLERS, "").await;
    let testbed = &world.testbed;
    add_node(testbed, "node-1", &STABLE);
    for disk in ["d-1", "d-2", "d-3", "d-4"] {
        add_disk(testbed, disk, ZONE);
    }
    let term = json!({"matchExpressions": [{"key": "rack", "operator": "In", "values": ["7"]}]});
    let mut bound = csi("bound", "d-1", &json!({}));
    bound["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
    testbed.cluster.create(bound).unwrap();
    testbed.cluster.create(csi("elsewhere", "d-2", &json!({STABLE[0]: "cn-hangzhou-h"}))).unwrap();
    testbed.cluster.create(csi("both", "d-3", &json!({STABLE[0]: "cn-hangzhou-h__cn-hangzhou-i"}))).unwrap();
    let elsewhere = volume(testbed, "elsewhere");

    let ccm = world.start();
    let told = until_told(&world, &ccm, "elsewhere").await;
    for part in [STABLE[0], "cn-hangzhou-h", "d-2", "is in cn-hangzhou-i", "correct the label"] {
        assert!(told.contains(part), "{told}");
    }
    until_labelled(&world, "bound", &STABLE).await;
    until_labelled(&world, "both", &STABLE).await;
    assert_eq!(volume(testbed, "elsewhere"), elsewhere);
    assert_eq!(requirement(&volume(testbed, "bound")).0, "rack");
    assert_eq!(place(&volume(testbed, "both"), &STABLE), ["cn-hangzhou-h__cn-hangzhou-i", REGION]);
    assert_eq!(requirement(&volume(testbed, "both")).1, &json!([ZONE]));

    // Somebody labels a volume between our look at it and our write.
    let other = json!({"metadata": {"labels": {STABLE[0]: "cn-hangzhou-h"}}});
    let mut held = testbed.cluster.hold_nth(
        Match::new("patch", "persistentvolumes").named("raced"),
        0,
        sim::request_hold::Moment::Before,
    );
    testbed.cluster.create(csi("raced", "d-4", &json!({}))).unwrap();
    held.arrived().await;
    testbed.cluster.patch("PersistentVolume", "", "raced", &other).unwrap();
    held.release();
    until_told(&world, &ccm, "raced").await;
    assert_eq!(place(&volume(testbed, "raced"), &STABLE), [&json!("cn-hangzhou-h"), &Value::Null]);

    // The user corrects it.
    let remove = json!({"metadata": {"labels": {STABLE[0]: null}}});
    testbed.cluster.patch("PersistentVolume", "", "raced", &remove).unwrap();
    until_labelled(&world, "raced", &STABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_placed_is_told_once_and_holds_up_no_other() {
    let world = World::new(CONTROLLERS, "").await;
    let testbed = &world.testbed;
    add_node(testbed, "node-1", &STABLE);
    testbed.cloud.edit(|cloud| drop(cloud.disks.insert("d-far".into(), Disk::new("cn-beijing", "cn-beijing-a"))));
    testbed.cluster.create(csi("far", "d-far", &json!({}))).unwrap();
    testbed.cluster.create(csi("gone", "d-gone", &json!({}))).unwrap();
    testbed.cluster.create(flex("unreadable", "nas-1")).unwrap();
    testbed.provide("good", "d-1", ZONE);
    let ccm = world.start();
    until_labelled(&world, "good", &STABLE).await;
    for (name, parts) in [
        ("far", ["region cn-hangzhou has no disk d-far", "create the PersistentVolume again"]),
        ("gone", ["region cn-hangzhou has no disk d-gone", "ecs:DescribeDisks"]),
        ("unreadable", ["spec.flexVolume.options.volumeId: Invalid value: \"nas-1\"", "such as d-bp1example"]),
    ] {
        let told = until_told(&world, &ccm, name).await;
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
    // Something else about them changes, and the disks of the others are looked up.
    for name in ["far", "gone", "unreadable"] {
        let beta = json!({"metadata": {"labels": {BETA[1]: REGION}}});
        testbed.cluster.patch("PersistentVolume", "", name, &beta).unwrap();
    }
    testbed.provide("another", "d-2", ZONE);
    until_labelled(&world, "another", &STABLE).await;
    world.until_quiet(Duration::from_secs(2)).await;
    for name in ["far", "gone", "unreadable"] {
        let lines = ccm.log().lines().filter(|line| line.contains(&format!("volume={name} "))).count();
        assert_eq!((lines, world.events("PersistentVolume", name).len()), (1, 1), "{name}\n{}", ccm.log());
    }
    assert_eq!(testbed.cluster.count("patch", "events"), 0, "no event is counted up");
}

/// Runs the controller in process, on a clock that jumps, until this is so; the log is shown if it never is.
fn inside(start: impl AsyncFnOnce() -> Testbed, more: &str, then: impl AsyncFnOnce(&Testbed)) {
    let (_, log) = on_a_clock_of_its_own(0, async {
        let testbed = start().await;
        let _product = Product::start(&testbed, CONTROLLERS, more);
        then(&testbed).await;
    });
    assert!(!log.contains("panicked"), "{log}");
}

async fn within(seconds: u64, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..seconds {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("not within {seconds} s: {what}");
}

#[test]
fn an_affinity_waits_for_a_node_with_a_zone_and_a_disk_for_its_permission() {
    let start = async || {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.provide("pv", "d-1", ZONE);
        testbed.cloud.edit(|cloud| {
            cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied.insert("DescribeDisks".into());
        });
        testbed
    };
    inside(start, "", async |testbed| {
        let names_it = |event: &Value| event["message"].as_str().unwrap_or_default().contains("ecs:DescribeDisks");
        let told = || testbed.cluster.list("Event").iter().any(names_it);
        within(40, "the denied call is told", told).await;
        testbed.cloud.edit(|cloud| cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied.clear());
        let labelled = || place(&volume(testbed, "pv"), &STABLE) == [ZONE, REGION];
        // Without the permission, the cloud shows no disk at all, which is what the user was told.
        within(310, "the volume is labelled", labelled).await;
        let withheld = || testbed.cluster.list("Event").iter().any(|event| event["reason"] == "VolumeAffinityHeldBack");
        within(5, "its affinity is withheld", withheld).await;
        assert!(volume(testbed, "pv")["spec"]["nodeAffinity"].is_null());
        add_node(testbed, "node-1", &STABLE);
        let bound = || requirement(&volume(testbed, "pv")).0 == STABLE[0];
        within(310, "its affinity is set", bound).await;
    });
}

#[test]
fn refused_and_failing_writes_stop_nothing_else() {
    let start = async || {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        add_node(&testbed, "node-1", &STABLE);
        for number in 0..150 {
            testbed.provide(&format!("pv-{number}"), &format!("d-{number}"), ZONE);
        }
        testbed.cloud.faults().script("DescribeDisks", Fault::Unavailable);
        let refused = Failure::refused("PersistentVolume", "pv-7", "nodeAffinity: field is immutable");
        let patch = |name: &str| Match::new("patch", "persistentvolumes").named(name);
        testbed.cluster.trouble(patch("pv-7"), Effect::Refuse(refused));
        testbed.cluster.trouble(patch("pv-8"), Effect::LoseAnswer);
        let always = Failure::refused("PersistentVolume", "pv-9", "a webhook says no");
        testbed.cluster.trouble_times(patch("pv-9"), Effect::Refuse(always), usize::MAX);
        testbed
    };
    inside(start, "", async |testbed| {
        let bound = |name: String| requirement(&volume(testbed, &name)).0 == STABLE[0];
        let others = || (0..150).filter(|number| ![7, 9].contains(number)).all(|number| bound(format!("pv-{number}")));
        within(120, "all others are done", others).await;
        within(10, "the affinity is tried again", || bound("pv-7".into())).await;
        let writes = testbed.cluster.writes();
        let bodies = writes.iter().filter(|call| call.name == "pv-7" && call.verb == "patch").map(|call| &call.body);
        let parts = bodies.flatten().map(|body| (!body["metadata"]["labels"].is_null(), !body["spec"].is_null()));
        assert_eq!(
            parts.collect::<Vec<_>>(),
            [(true, true), (true, false), (false, true)],
            "labels come without affinity"
        );
        let before = testbed.cloud.calls().len();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(testbed.cloud.calls().len(), before, "nothing changes, nothing is called");
        let calls = testbed.cloud.calls().into_iter().filter(|call| call.action == "DescribeDisks").count();
        assert_eq!(calls, 3, "two batches, of which one failed once");
        let told = testbed.cluster.list("Event").into_iter().filter(|event| event["involvedObject"]["name"] == "pv-9");
        let told: Vec<_> = told.map(|event| (event["count"].clone(), event["message"].to_string())).collect();
        assert!(told.len() == 1 && told[0].1.contains("a webhook says no"), "one event as long as it lasts: {told:?}");
    });
}
