//! Names of Services in PrivateZone, between the binary and the simulated worlds.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Fault, PrivateZone, ZoneRecord};
use sim::cluster::{Endpoint, Version};
use sim::request_hold::Moment;
use sim::testbed::{ACCESS_KEY, Testbed, ZONE};

use crate::harness::{Ccm, PATIENCE, World, counts};
use crate::in_process::{Product, on_a_clock_of_its_own};

/// Longer than changes are collected for.
const QUIET: Duration = Duration::from_secs(2);
const ALONE: &[&str] = &["pvtz"];

pub(crate) fn service(testbed: &Testbed, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": "default"});
    testbed.cluster.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).unwrap();
}

/// A headless Service with a named port and these endpoints.
pub(crate) fn headless(testbed: &Testbed, name: &str, hosts: &[u8]) {
    let port = json!({"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"});
    service(testbed, name, json!({"clusterIP": "None", "selector": {"app": name}, "ports": [port]}));
    point_at(testbed, name, hosts);
}

pub(crate) fn point_at(testbed: &Testbed, name: &str, hosts: &[u8]) {
    let endpoints: Vec<_> = hosts.iter().map(|host| Endpoint::ready([10, 98, 1, *host].into(), "node-1")).collect();
    testbed.cluster.set_endpoints("default", name, &endpoints).unwrap();
}

/// A Service with this cluster IP and without ports that have a name.
pub(crate) fn plain(testbed: &Testbed, name: &str, ip: &str) {
    service(testbed, name, json!({"clusterIP": ip, "ports": [{"port": 80}]}));
}

/// A world without names of addresses, which would only repeat what the others say.
async fn world() -> World {
    let world = World::new(ALONE, "").await;
    world.rewrite(|text| text.replace("[pvtz]\n", "[pvtz]\nrecord_types = [\"A\", \"AAAA\", \"CNAME\", \"SRV\"]\n"));
    world
}

/// What the zone holds, without the records of the API server's own Service.
pub(crate) fn lines(testbed: &Testbed) -> Vec<String> {
    let mut lines = testbed.cloud.look(|account| account.private_zones[ZONE.0].lines());
    lines.retain(|line| !line.contains("kubernetes.default.svc"));
    lines
}

pub(crate) fn record(name: &str, kind: &str, value: &str, remark: &str) -> ZoneRecord {
    ZoneRecord { name: name.into(), kind: kind.into(), value: value.into(), ttl: 60, remark: remark.into() }
}

/// Puts a record that somebody else wrote.
pub(crate) fn put(testbed: &Testbed, id: u64, record: ZoneRecord) {
    testbed.cloud.edit(|account| account.private_zones.get_mut(ZONE.0).unwrap().records.insert(id, record));
}

async fn until(world: &World, expected: &[&str]) {
    world.until(&format!("the zone holds {expected:?}"), |testbed| lines(testbed) == expected).await;
}

async fn finish(world: &World, ccm: Ccm) {
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// A record of each Service is written, follows it, and goes with it.
pub(crate) async fn live(world: &World) {
    headless(&world.testbed, "db", &[11]);
    let holds = |value: &'static str| move |testbed: &Testbed| lines(testbed).iter().any(|line| line.contains(value));
    world.until("the record is there", holds("db.default.svc A 10.98.1.11")).await;
    point_at(&world.testbed, "db", &[12]);
    world.until("the record follows", holds("db.default.svc A 10.98.1.12")).await;
    world.testbed.cluster.delete("Service", "default", "db").unwrap();
    world.until("the records are gone", |testbed| lines(testbed).is_empty()).await;
}

#[tokio::test]
async fn services_of_every_type_have_their_names() {
    let world = World::new(ALONE, "").await;
    let testbed = &world.testbed;
    headless(testbed, "db", &[11, 12]);
    service(testbed, "out", json!({"type": "ExternalName", "externalName": "Example.COM."}));
    let http = json!({"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"});
    service(testbed, "inner", json!({"clusterIP": "10.96.7.7", "ports": [http]}));
    for (name, ingress) in [("lb", json!({"ip": "47.98.1.1"})), ("nlb", json!({"hostname": "nlb-1.example.com"}))] {
        service(testbed, name, json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
        testbed
            .cluster
            .patch_status("Service", "default", name, &json!({"loadBalancer": {"ingress": [ingress]}}))
            .unwrap();
    }
    let (plan, code) = world.plan().await;
    assert!(plan.contains("pvtz default/db\n") && plan.contains("+ add record db.default.svc A 10.98.1.11"), "{plan}");
    assert_eq!((code, testbed.cloud.count("AddZoneRecord")), (Some(2), 0), "{plan}");
    let ccm = world.start();
    let expected = [
        "1.1.98.47 PTR lb.default.svc.cluster.play",
        "7.7.96.10 PTR inner.default.svc.cluster.play",
        "_http._tcp.inner.default.svc SRV 0 100 80 inner.default.svc.cluster.play",
        "_web._tcp.db.default.svc SRV 0 100 8080 db.default.svc.cluster.play",
        "db.default.svc A 10.98.1.11",
        "db.default.svc A 10.98.1.12",
        "inner.default.svc A 10.96.7.7",
        "lb.default.svc A 47.98.1.1",
        "nlb.default.svc CNAME nlb-1.example.com",
        "out.default.svc CNAME example.com",
    ];
    until(&world, &expected).await;
    world.until_quiet(QUIET).await;
    let (plan, code) = world.plan().await;
    assert_eq!(code, Some(0), "{plan}");
    finish(&world, ccm).await;
}

#[tokio::test]
async fn pods_with_a_host_name_and_nodes_have_names_of_their_own() {
    let world = World::new(ALONE, "").await;
    let testbed = &world.testbed;
    world.rewrite(|text| text.replace("[pvtz]\n", "[pvtz]\nnodes = true\n"));
    testbed.join(1);
    let address = json!({"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]});
    testbed.cluster.patch_status("Node", "", "node-1", &address).unwrap();
    headless(testbed, "db", &[]);
    let pod = |number: u8| Endpoint {
        hostname: Some(format!("db-{number}")),
        ..Endpoint::ready([10, 98, 1, 10 + number].into(), "node-1")
    };
    testbed.cluster.set_endpoints("default", "db", &[pod(0), pod(1)]).unwrap();
    let output = world.run(&["plan", "node/node-1"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("pvtz node-1\n  + add record"), "{text}");
    assert_eq!(output.status.code(), Some(2));
    let explained = String::from_utf8(world.run(&["explain", "node/node-1"]).await.stdout).unwrap();
    assert!(explained.contains("+ pvtz: add record"), "{explained}");
    let ccm = world.start();
    let expected = [
        "10.1.98.10 PTR db-0.db.default.svc.cluster.play",
        "11.1.98.10 PTR db-1.db.default.svc.cluster.play",
        "_web._tcp.db.default.svc SRV 0 100 8080 db-0.db.default.svc.cluster.play",
        "_web._tcp.db.default.svc SRV 0 100 8080 db-1.db.default.svc.cluster.play",
        "db-0.db.default.svc A 10.98.1.10",
        "db-1.db.default.svc A 10.98.1.11",
        "db.default.svc A 10.98.1.10",
        "db.default.svc A 10.98.1.11",
        "node-1.node A 192.168.0.1",
    ];
    until(&world, &expected).await;
    finish(&world, ccm).await;
}

#[tokio::test]
async fn one_record_is_written_for_one_endpoint_that_moved_and_nothing_for_what_changes_no_name() {
    let world = world().await;
    headless(&world.testbed, "db", &[11, 12, 13]);
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 4).await;
    world.until_quiet(QUIET).await;
    world.take_calls();

    point_at(&world.testbed, "db", &[11, 12, 14]);
    world.until("the record follows", |testbed| lines(testbed).contains(&"db.default.svc A 10.98.1.14".into())).await;
    world.until_quiet(QUIET).await;
    assert_eq!(world.take_calls(), counts(&[("DescribeZoneRecords", 1), ("UpdateZoneRecord", 1)]));

    let note =
        json!({"metadata": {"annotations": {"service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id": "lb-1"}}});
    world.testbed.cluster.patch("Service", "default", "db", &note).unwrap();
    world.testbed.join(1);
    world.until_quiet(QUIET).await;
    assert_eq!(world.take_calls(), counts(&[]));
    finish(&world, ccm).await;
}

#[tokio::test]
async fn records_of_others_stay_and_what_they_are_in_the_way_of_is_told() {
    let world = world().await;
    let testbed = &world.testbed;
    put(testbed, 901, record("taken.default.svc", "A", "192.168.9.9", ""));
    put(testbed, 902, record("old.default.svc", "A", "10.96.7.2", "record.managed.by.ack.ccm"));
    put(testbed, 903, record("gone.default.svc", "A", "10.96.7.3", "alicloud-ccm,playground,0123456789abcdef0123"));
    plain(testbed, "taken", "10.96.7.1");
    plain(testbed, "old", "10.96.7.2");
    plain(testbed, "free", "10.96.7.4");
    let ccm = world.start();
    let others = ["gone.default.svc A 10.96.7.3", "old.default.svc A 10.96.7.2", "taken.default.svc A 192.168.9.9"];
    until(&world, &[&["free.default.svc A 10.96.7.4"], &others[..]].concat()).await;
    let told = world.until_event("Service", "taken", "PrivateZoneRecordConflict").await;
    assert!(told.contains("192.168.9.9") && told.contains("delete that record"), "{told}");
    for name in ["free", "taken", "old"] {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    until(&world, &others).await;
    let log = ccm.log();
    assert_eq!(log.matches("so A 10.96.7.1 is not written").count(), 1, "told once\n{log}");
    finish(&world, ccm).await;
}

#[tokio::test]
async fn many_records_vanish_only_after_a_second_sighting() {
    let world = world().await;
    for number in 1..=6 {
        plain(&world.testbed, &format!("web-{number}"), &format!("10.96.7.{number}"));
    }
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 6).await;
    for number in 1..=5 {
        world.testbed.cluster.delete("Service", "default", &format!("web-{number}")).unwrap();
    }
    let told = world.until_event("Node", "pvtz-controller", "PrivateZoneRemovalHeldBack").await;
    assert!(told.contains("would vanish"), "{told}");
    until(&world, &["web-6.default.svc A 10.96.7.6"]).await;
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_list_without_services_removes_nothing() {
    let world = world().await;
    plain(&world.testbed, "web", "10.96.7.1");
    let ccm = world.start();
    until(&world, &["web.default.svc A 10.96.7.1"]).await;
    assert!(ccm.stop().await.success());
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.testbed.cluster.delete("Service", "default", "kubernetes").unwrap();
    let ccm = world.start();
    world.until_event("Node", "pvtz-controller", "PrivateZoneUnusable").await;
    world.until_quiet(QUIET).await;
    assert_eq!(lines(&world.testbed), ["web.default.svc A 10.96.7.1"]);
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_zone_that_is_missing_or_bound_elsewhere_is_told_once_and_used_when_it_is_right() {
    let world = world().await;
    world.edit(|text| text.replace("zone_name = \"cluster.play\"", "zone_id = \"zone-2\""));
    plain(&world.testbed, "web", "10.96.7.1");
    let ccm = world.start();
    let told = world.until_event("Node", "pvtz-controller", "PrivateZoneUnusable").await;
    assert!(told.contains("zone-2") && told.contains("does not exist"), "{told}");
    world.until_quiet(QUIET).await;
    assert_eq!(ccm.log().matches("does not exist in this account").count(), 1, "{}", ccm.log());
    assert!(ccm.stop().await.success());

    let elsewhere = PrivateZone::new("other.play", "vpc-other");
    world.testbed.cloud.edit(|account| account.private_zones.insert("zone-2".into(), elsewhere));
    let ccm = world.start();
    world.until("the log says where", |_| ccm.log().contains("bound to vpc-other, not to the VPC vpc-play")).await;
    world.edit(|text| text.replace("zone-2", "zone-play"));
    until(&world, &["web.default.svc A 10.96.7.1"]).await;
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_name_that_dns_cannot_hold_is_told_and_all_others_are_written() {
    let world = world().await;
    let label = "x".repeat(63);
    let long = [label.as_str(); 3].join(".");
    let zone = PrivateZone::new(&format!("{long}.play"), "vpc-play");
    world.testbed.cloud.edit(|account| account.private_zones.insert("zone-2".into(), zone));
    world.edit(|text| text.replace("zone_name = \"cluster.play\"", "zone_id = \"zone-2\""));
    plain(&world.testbed, &"y".repeat(63), "10.96.7.1");
    plain(&world.testbed, "web", "10.96.7.2");
    let ccm = world.start();
    let told = world.until_event("Service", &"y".repeat(63), "PrivateZoneNameInvalid").await;
    assert!(told.contains("metadata.name: Invalid value: \"y") && told.contains("shorten the name"), "{told}");
    let written = |testbed: &Testbed| testbed.cloud.look(|account| account.private_zones["zone-2"].lines());
    world
        .until("the other name is there", |testbed| written(testbed).contains(&"web.default.svc A 10.96.7.2".into()))
        .await;
    finish(&world, ccm).await;
}

#[test]
fn while_the_zone_cannot_be_read_no_event_withdraws_what_is_still_wrong() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        put(&testbed, 901, record("web.default.svc", "A", "192.168.9.9", "by hand"));
        plain(&testbed, "web", "10.96.7.7");
        let config =
            "[leader_election]\nenabled = false\n[pvtz]\nzone_name = \"cluster.play\"\nrecord_types = [\"A\"]\n";
        let _product = Product::start(&testbed, ALONE, config);
        let reasons = |name: &str| {
            let all = testbed.cluster.list("Event").into_iter().filter(|event| event["involvedObject"]["name"] == name);
            let mut reasons: Vec<String> = all.map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
            reasons.sort();
            reasons
        };
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(reasons("web"), ["PrivateZoneRecordConflict"]);
        testbed.cloud.faults().always("DescribeZoneRecords", Fault::Unavailable);
        plain(&testbed, "shop", "10.96.7.8");
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!(reasons("web"), ["PrivateZoneRecordConflict"]);
        assert_eq!(reasons("shop"), ["SyncPrivateZoneFailed"]);
        testbed.cloud.calm();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(reasons("web"), ["PrivateZoneRecordConflict"]);
        assert_eq!(reasons("shop"), ["Resolved", "SyncPrivateZoneFailed"]);
        assert_eq!(lines(&testbed), ["shop.default.svc A 10.96.7.8", "web.default.svc A 192.168.9.9"]);
    });
}

/// Each write is the only one that is due, so no other one brings it again.
#[tokio::test]
async fn whatever_happens_to_an_answer_each_record_is_there_once() {
    let play = async |fault: Fault| {
        let world = world().await;
        let testbed = &world.testbed;
        let ccm = world.start();
        let zone = |testbed: &Testbed| testbed.cloud.look(|account| account.private_zones[ZONE.0].lines());
        world.until("the API server's own Service has its names", |testbed| zone(testbed).len() == 2).await;
        service(testbed, "db", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let faults = testbed.cloud.faults();
        faults.script("AddZoneRecord", fault.clone());
        point_at(testbed, "db", &[11]);
        until(&world, &["db.default.svc A 10.98.1.11"]).await;
        faults.script("UpdateZoneRecord", fault.clone());
        point_at(testbed, "db", &[13]);
        until(&world, &["db.default.svc A 10.98.1.13"]).await;
        faults.script("DeleteZoneRecord", fault.clone());
        testbed.cluster.delete("Service", "default", "db").unwrap();
        until(&world, &[]).await;
        finish(&world, ccm).await;
    };
    let faults = Fault::before().into_iter().chain(Fault::after()).chain([Fault::LostAndHidden(2)]);
    futures::future::join_all(faults.map(play)).await;
}

#[tokio::test]
async fn a_process_that_dies_at_any_write_leaves_what_the_next_one_completes() {
    let play = async |action: &'static str, moment: Moment| {
        let world = world().await;
        headless(&world.testbed, "db", &[11, 12]);
        headless(&world.testbed, "cache", &[21, 22]);
        if action != "AddZoneRecord" {
            let ccm = world.start();
            world.until("the records are there", |testbed| lines(testbed).len() == 6).await;
            assert!(ccm.stop().await.success());
        }
        point_at(&world.testbed, "db", &[13]);
        let mut held = world.testbed.cloud.faults().hold(action, 0, moment);
        let ccm = world.start();
        tokio::time::timeout(PATIENCE, held.arrived()).await.expect("the write comes");
        ccm.kill().await;
        held.lose();
        let ccm = world.start();
        world.until("the next one leads", |_| ccm.log().contains(" leading ")).await;
        let expected = [
            "_web._tcp.cache.default.svc SRV 0 100 8080 cache.default.svc.cluster.play",
            "_web._tcp.db.default.svc SRV 0 100 8080 db.default.svc.cluster.play",
            "cache.default.svc A 10.98.1.21",
            "cache.default.svc A 10.98.1.22",
            "db.default.svc A 10.98.1.13",
        ];
        until(&world, &expected).await;
        finish(&world, ccm).await;
    };
    let writes = ["AddZoneRecord", "UpdateZoneRecord", "DeleteZoneRecord"];
    let sites = writes.into_iter().flat_map(|action| [Moment::Before, Moment::After].map(|moment| (action, moment)));
    futures::future::join_all(sites.map(|(action, moment)| play(action, moment))).await;
}

#[tokio::test]
async fn an_action_that_is_refused_keeps_no_other_from_its_work() {
    let world = world().await;
    headless(&world.testbed, "db", &[11, 12]);
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 3).await;
    world.testbed.cloud.faults().always("UpdateZoneRecord", Fault::code("Forbidden.RAM"));
    point_at(&world.testbed, "db", &[11, 13]);
    world.until_event("Service", "db", "SyncPrivateZoneFailed").await;
    plain(&world.testbed, "web", "10.96.7.2");
    world.until("another is written", |testbed| lines(testbed).contains(&"web.default.svc A 10.96.7.2".into())).await;
    world.testbed.cloud.calm();
    world.until("the record follows", |testbed| lines(testbed).contains(&"db.default.svc A 10.98.1.13".into())).await;
    finish(&world, ccm).await;
}

/// As many Services as one reconcile cannot write.
fn expose_many(testbed: &Testbed) -> String {
    for number in 0..120 {
        plain(testbed, &format!("web-{number:03}"), &format!("10.96.8.{number}"));
    }
    "web-119".to_owned()
}

#[tokio::test]
async fn a_name_whose_records_cannot_be_read_keeps_no_other_from_being_written() {
    let world = world().await;
    expose_many(&world.testbed);
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 120).await;
    let unread = [("Keyword".to_owned(), "shop.default.svc".to_owned())].into();
    world.testbed.cloud.faults().matching("DescribeZoneRecords", unread, Fault::code("InvalidParameter"), None);
    plain(&world.testbed, "shop", "10.96.7.3");
    world.until_event("Service", "shop", "SyncPrivateZoneFailed").await;
    plain(&world.testbed, "last", "10.96.7.4");
    world.until("another is written", |testbed| lines(testbed).contains(&"last.default.svc A 10.96.7.4".into())).await;
    world.testbed.cloud.calm();
    world.until("the record follows", |testbed| lines(testbed).contains(&"shop.default.svc A 10.96.7.3".into())).await;
    finish(&world, ccm).await;
}

#[tokio::test]
async fn an_action_that_is_denied_is_told_at_every_service_and_retried_with_a_growing_pause() {
    let world = world().await;
    world.testbed.cloud.faults().always("AddZoneRecord", Fault::code("Forbidden.RAM"));
    let last = expose_many(&world.testbed);
    let ccm = world.start();
    world.until_event("Service", &last, "SyncPrivateZoneFailed").await;
    let calls = world.take_calls();
    assert!(calls["AddZoneRecord"] <= 10, "{calls:?}");
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_record_is_removed_although_no_other_can_be_written() {
    for code in ["QuotaExceeded.Record", "InvalidParameter"] {
        let world = world().await;
        plain(&world.testbed, "old", "10.96.7.1");
        let ccm = world.start();
        until(&world, &["old.default.svc A 10.96.7.1"]).await;
        world.testbed.cloud.faults().always("AddZoneRecord", Fault::code(code));
        expose_many(&world.testbed);
        world.until("records are refused", |testbed| testbed.cloud.count("AddZoneRecord") > 1).await;
        world.testbed.cluster.delete("Service", "default", "old").unwrap();
        until(&world, &[]).await;
        finish(&world, ccm).await;
    }
}

#[tokio::test]
async fn a_zone_that_is_replaced_in_the_configuration_keeps_its_records_and_the_other_one_gets_them() {
    let world = world().await;
    let other = PrivateZone::new("other.play", "vpc-play");
    world.testbed.cloud.edit(|account| account.private_zones.insert("zone-2".into(), other));
    headless(&world.testbed, "db", &[11]);
    let ccm = world.start();
    let first = ["_web._tcp.db.default.svc SRV 0 100 8080 db.default.svc.cluster.play", "db.default.svc A 10.98.1.11"];
    until(&world, &first).await;
    world.edit(|text| text.replace("zone_name = \"cluster.play\"", "zone_id = \"zone-2\""));
    let second = ["_web._tcp.db.default.svc SRV 0 100 8080 db.default.svc.other.play", "db.default.svc A 10.98.1.11"];
    let written = |testbed: &Testbed| {
        let mut lines = testbed.cloud.look(|account| account.private_zones["zone-2"].lines());
        lines.retain(|line| !line.contains("kubernetes.default.svc"));
        lines
    };
    world.until("the other zone has the records", |testbed| written(testbed) == second).await;
    world.until_quiet(QUIET).await;
    assert_eq!(lines(&world.testbed), first);
    finish(&world, ccm).await;
}

#[tokio::test]
async fn an_endpoint_that_comes_back_has_its_record_although_a_list_still_shows_the_one_that_was_removed() {
    let world = world().await;
    headless(&world.testbed, "db", &[11, 12]);
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 3).await;
    // A removal, then an update.
    for (away, back) in [(&[11][..], &[11, 12][..]), (&[11, 13], &[11, 12])] {
        let holds =
            |host: u8| move |testbed: &Testbed| lines(testbed).contains(&format!("db.default.svc A 10.98.1.{host}"));
        point_at(&world.testbed, "db", away);
        world.until("the record goes", |testbed| !holds(12)(testbed)).await;
        world.until_quiet(QUIET).await;
        world.testbed.cloud.faults().script("DescribeZoneRecords", Fault::Stale(1));
        point_at(&world.testbed, "db", back);
        world.until("the record is back", holds(12)).await;
        world.until("the other one is gone", |testbed| !holds(13)(testbed)).await;
        world.until_quiet(QUIET).await;
    }
    finish(&world, ccm).await;
}

#[tokio::test]
async fn of_a_large_zone_only_the_names_that_change_are_read() {
    let world = world().await;
    for id in 1..=450 {
        put(&world.testbed, 1000 + id, record(&format!("other-{id}"), "A", "192.168.9.9", ""));
    }
    headless(&world.testbed, "db", &[11, 12]);
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 453).await;
    world.until_quiet(QUIET).await;
    world.take_calls();
    point_at(&world.testbed, "db", &[11, 13]);
    world.until("the record follows", |testbed| lines(testbed).contains(&"db.default.svc A 10.98.1.13".into())).await;
    world.until_quiet(QUIET).await;
    assert_eq!(world.take_calls(), counts(&[("DescribeZoneRecords", 1), ("UpdateZoneRecord", 1)]));
    finish(&world, ccm).await;
}

#[tokio::test]
async fn after_a_failed_write_only_its_name_is_read_again() {
    let world = world().await;
    for id in 1..=450 {
        put(&world.testbed, 1000 + id, record(&format!("other-{id}"), "A", "192.168.9.9", ""));
    }
    headless(&world.testbed, "db", &[11, 12]);
    let ccm = world.start();
    world.until("the records are there", |testbed| lines(testbed).len() == 453).await;
    world.until_quiet(QUIET).await;
    world.take_calls();
    for fault in [Fault::ErrorAfterEffect, Fault::Unavailable] {
        world.testbed.cloud.faults().script("UpdateZoneRecord", fault);
    }
    point_at(&world.testbed, "db", &[11, 13]);
    world.until("the record follows", |testbed| lines(testbed).contains(&"db.default.svc A 10.98.1.13".into())).await;
    world.until_quiet(QUIET).await;
    let calls = world.take_calls();
    assert!(calls["DescribeZoneRecords"] <= 3, "one name each time, not five pages: {calls:?}");
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_zone_that_others_change_all_the_time_gets_its_records() {
    let world = world().await;
    for id in 1..=250 {
        put(&world.testbed, 1000 + id, record(&format!("other-{id}"), "A", "192.168.9.9", ""));
    }
    world.testbed.cloud.dials(|dials| dials.busy_zones = true);
    let holds = |ours: &'static [&'static str]| {
        move |testbed: &Testbed| {
            let mut lines = lines(testbed);
            lines.retain(|line| line.contains("default.svc"));
            lines == ours
        }
    };
    for host in [1, 2] {
        plain(&world.testbed, &format!("web-{host}"), &format!("10.96.7.{host}"));
    }
    let ccm = world.start();
    let both = &["web-1.default.svc A 10.96.7.1", "web-2.default.svc A 10.96.7.2"];
    world.until("the records are there", holds(both)).await;
    world.testbed.cluster.delete("Service", "default", "web-1").unwrap();
    world.until("one record is gone", holds(&["web-2.default.svc A 10.96.7.2"])).await;
    world.until_in_sync().await;
    finish(&world, ccm).await;
}

/// A record on the first page goes while the second one is read, which then begins one record later.
#[tokio::test]
async fn a_record_that_a_list_lost_between_two_pages_keeps_its_name() {
    let world = world().await;
    let testbed = &world.testbed;
    let taken = |number: u64| record(&format!("taken-{number}.default.svc"), "A", "192.168.9.9", "");
    (1..=150).for_each(|number| put(testbed, 1000 + number, taken(number)));
    let ccm = world.start();
    world.until("the zone is read", |testbed| testbed.cloud.count("DescribeZoneRecords") >= 2).await;
    world.until_quiet(QUIET).await;
    let names: Vec<String> = testbed
        .cloud
        .look(|account| account.private_zones[ZONE.0].records.values().map(|record| record.name.clone()).collect());
    let lost = names[100].trim_end_matches(".default.svc");
    plain(testbed, lost, "10.96.7.100");
    world.until_event("Service", lost, "PrivateZoneRecordConflict").await;
    world.until_quiet(QUIET).await;

    let mut held = testbed.cloud.faults().hold("DescribeZoneRecords", 1, Moment::Before);
    for host in 1..=3 {
        plain(testbed, &format!("web-{host}"), &format!("10.96.7.{host}"));
    }
    tokio::time::timeout(PATIENCE, held.arrived()).await.expect("the second page is read");
    testbed.cloud.edit(|account| account.private_zones.get_mut(ZONE.0).unwrap().records.remove(&1001));
    held.release();
    world.until("the others are there", |testbed| lines(testbed).iter().any(|line| line.contains("10.96.7.3"))).await;
    world.until_quiet(QUIET).await;
    let mixed = lines(testbed).into_iter().find(|line| line.contains("10.96.7.100"));
    assert_eq!(mixed, None, "the name has a record of others");
    finish(&world, ccm).await;
}

#[test]
fn a_record_that_no_list_shows_yet_goes_with_its_service() {
    for fault in [Fault::Hidden(2), Fault::LostAndHidden(2)] {
        on_a_clock_of_its_own(0, async move {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            let web = [("Rr".to_owned(), "web.default.svc".to_owned())].into();
            testbed.cloud.faults().matching("AddZoneRecord", web, fault.clone(), Some(1));
            let _product = Product::start(
                &testbed,
                ALONE,
                "[leader_election]\nenabled = false\n[pvtz]\nzone_name = \"cluster.play\"\naggregation = \"0s\"\n\
                 period = \"0s\"\nrecord_types = [\"A\"]\n",
            );
            plain(&testbed, "web", "10.96.7.7");
            let began = tokio::time::Instant::now();
            let until = async |wanted: &[&str]| {
                while lines(&testbed) != wanted {
                    assert!(began.elapsed() < Duration::from_secs(180), "{fault:?}: {:?}", lines(&testbed));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            until(&["web.default.svc A 10.96.7.7"]).await;
            testbed.cluster.delete("Service", "default", "web").unwrap();
            until(&[]).await;
        });
    }
}

#[tokio::test]
async fn what_has_no_owner_is_listed_and_goes_only_at_a_second_look() {
    let world = world().await;
    world.testbed.join(1);
    plain(&world.testbed, "web", "10.96.7.1");
    plain(&world.testbed, "shop", "10.96.7.2");
    let ccm = world.start();
    let both = ["shop.default.svc A 10.96.7.2", "web.default.svc A 10.96.7.1"];
    until(&world, &both).await;
    assert!(ccm.stop().await.success());
    put(&world.testbed, 901, record("gone.default.svc", "A", "10.96.7.3", "record.managed.by.ack.ccm"));
    let gc = async |arguments: &[&str]| {
        let output = world.run(arguments).await;
        (String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    assert_eq!(gc(&["gc"]).await, ("Nothing is without an owner.\n".to_owned(), Some(0)));
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    let (text, code) = gc(&["gc"]).await;
    assert!(text.contains("without owner: record") && text.contains("no Service default/web"), "{text}");
    assert_eq!((text.lines().count(), code, lines(&world.testbed).len()), (1, Some(2), 3), "{text}");
    let (text, code) = gc(&["gc", "--delete", "--after", "1"]).await;
    assert_eq!((text.matches("deleted: ").count(), code), (1, Some(0)), "{text}");
    assert_eq!(lines(&world.testbed), ["gone.default.svc A 10.96.7.3", both[0]]);
    // Once the file names another zone, all records of this cluster in this one are without use.
    let other = PrivateZone::new("other.play", "vpc-play");
    world.testbed.cloud.edit(|account| account.private_zones.insert("zone-other".into(), other));
    let other = ["--set", "pvtz.zone_name=other.play"];
    let (text, _) = gc(&[&["gc"], &other[..]].concat()).await;
    assert!(
        text.contains("(shop.default.svc A 10.96.7.2) of the private zone cluster.play: [pvtz] names another"),
        "{text}"
    );
    let (text, code) = gc(&[&["gc", "--delete", "--after", "1"], &other[..]].concat()).await;
    assert_eq!((lines(&world.testbed), code), (vec!["gone.default.svc A 10.96.7.3".to_owned()], Some(0)), "{text}");
    // A controller that is told the id of its zone does without the list of zones, and so does gc.
    world.edit(|text| text.replace("zone_name = \"cluster.play\"", "zone_id = \"zone-play\""));
    let denied = ["DescribeZones".to_owned()].into();
    world.testbed.cloud.edit(|cloud| cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied = denied);
    assert_eq!(gc(&["gc"]).await, ("Nothing is without an owner.\n".to_owned(), Some(0)));
    let calls = world.testbed.cloud.calls();
    assert!(calls.iter().any(|call| call.action == "DescribeZones" && call.outcome.starts_with("Forbidden")));
}
