//! Whatever this program can create is found by `gc` when its owner vanished, and deleted with it.

use std::collections::BTreeSet;
use std::time::Duration;

use alicloud_ccm::alibaba::actions;
use alicloud_ccm::plan::loadbalancer::ownership::{FINALIZER, NLB_FINALIZER};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sim::cloud::PrivateZone;
use sim::cluster::{Endpoint, Version};
use sim::request_hold::Moment;
use sim::testbed::Testbed;

use crate::changes_of_mind::{restore, strip};
use crate::harness::{Ccm, EVERY, HASTE, World, is_ready};
use crate::kinds::{Kind, annotate};

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";
const MORE: &str = "disable_source_dest_check = false\n[leader_election]\nenabled = false\n";

/// A Service with a listener of each kind, certificates and source ranges.
fn expose(testbed: &Testbed, name: &str, class: Option<&str>, annotations: &[(&str, &str)]) {
    let port = |port: u16, protocol: &str| json!({"name": format!("p{port}"), "port": port, "targetPort": 8000, "protocol": protocol});
    let ports = json!([port(80, "TCP"), port(53, "UDP"), port(443, "TCP"), port(8080, "TCP")]);
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}-{key}"), json!(value))).collect();
    let mut spec = json!({"type": "LoadBalancer", "ports": ports, "loadBalancerSourceRanges": ["10.0.0.0/8"]});
    if let Some(class) = class {
        spec["loadBalancerClass"] = json!(class);
    }
    let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    testbed.cluster.create(service).unwrap();
    testbed.cluster.set_endpoints("default", name, &[Endpoint::ready([10, 98, 2, 10].into(), "node-2")]).unwrap();
}

/// A process that serves the Service `web` by this kind.
async fn serving(kind: Kind) -> (World, Ccm) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(1);
    let world = World::of(testbed, EVERY, &format!("{HASTE}{MORE}"));
    kind.expose(&world.testbed, "web", &[80], &[1]);
    let ccm = world.start();
    world.until("it is served", |_| kind.published(&world.service("web")).is_some()).await;
    (world, ccm)
}

/// The ids of all load balancers.
fn ids(testbed: &Testbed) -> Vec<String> {
    testbed.cloud.look(|account| {
        account.load_balancers.keys().chain(account.nlb.balancers.keys()).map(ToString::to_string).collect()
    })
}

/// The actions by which something comes into being.
fn creating() -> BTreeSet<String> {
    let verbs = ["Create", "Add", "Authorize"];
    let creates = |name: &str| verbs.iter().any(|verb| name.starts_with(verb));
    let creating = actions::ALL.iter().filter(|action| action.writes && creates(action.name));
    creating.map(|action| action.permission()).collect()
}

/// What is in the cloud, without the machines.
fn things(testbed: &Testbed) -> Value {
    let mut things = testbed.cloud.snapshot();
    things["instances"] = Value::Null;
    testbed.cloud.look(|account| {
        things["access_lists"] = account.acls.values().map(|list| list.name.clone()).collect();
        things["records"] = account.private_zones.values().flat_map(PrivateZone::lines).collect();
    });
    things
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_finds_and_deletes_whatever_can_be_created_when_its_owner_vanished() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let later = testbed.cloud.now() + SignedDuration::from_hours(1000);
    testbed.cloud.edit(|cloud| {
        *cloud = cloud.clone().with_certificate("cert-1", "one.example", later).with_certificate(
            "cert-2",
            "two.example",
            later,
        );
    });
    let world = World::of(testbed, EVERY, &format!("{HASTE}{MORE}"));
    let testbed = &world.testbed;
    testbed.join(1);
    crate::private_zone::plain(testbed, "stays", "10.96.7.1");
    let ccm = world.start();
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    world.until("it has a name", |testbed| testbed.cloud.count("AddZoneRecord") > 0).await;
    world.until_still(Duration::from_secs(1)).await;
    let before = things(testbed);

    testbed.join(2);
    let ports = ("protocol-port", "http:8080,https:443");
    expose(testbed, "web", None, &[ports, ("cert-id", "cert-1"), ("domain-extensions", "two.example:cert-2")]);
    expose(testbed, "net", Some("alibabacloud.com/nlb"), &[]);
    let is_published = |name: &str| !world.service(name)["status"]["loadBalancer"]["ingress"].is_null();
    world.until("both are served", |_| is_published("web") && is_published("net")).await;
    testbed.join(3);
    world
        .until("everything is made", |testbed| {
            let calls = testbed.cloud.writes().into_iter().filter(|call| call.effective);
            let made: BTreeSet<String> = calls.map(|call| format!("{}:{}", call.product, call.action)).collect();
            creating().is_subset(&made)
        })
        .await;
    world.until_still(Duration::from_secs(2)).await;
    assert!(ccm.stop().await.success());

    for name in ["web", "net"] {
        testbed.cluster.patch("Service", "default", name, &json!({"metadata": {"finalizers": null}})).unwrap();
        testbed.cluster.delete("Service", "default", name).unwrap();
    }
    for name in ["node-2", "node-3"] {
        testbed.cluster.delete("Node", "", name).unwrap();
    }
    let listed = world.run(&["gc"]).await;
    let listed = String::from_utf8(listed.stdout).unwrap();
    let deleted = world.run(&["gc", "--delete", "--after", "1"]).await;
    let (code, deleted) = (deleted.status.code(), String::from_utf8(deleted.stdout).unwrap());
    assert_eq!(things(testbed), before, "listed:\n{listed}\ndeleted:\n{deleted}");
    assert_eq!((code, listed.lines().count()), (Some(0), deleted.lines().count()), "{listed}\n{deleted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_names_and_removes_what_a_service_that_vanished_left_on_a_load_balancer_of_a_user() {
    for (kind, id) in [(Kind::Clb, "lb-user"), (Kind::Nlb, "nlb-user")] {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        kind.of_user(&testbed, id);
        let world = World::of(testbed, EVERY, &format!("{HASTE}{MORE}"));
        let testbed = &world.testbed;
        for (name, port) in [("gone", 80), ("stays", 81)] {
            kind.expose(testbed, name, &[port], &[1]);
            annotate(testbed, name, "id", id);
            annotate(testbed, name, "force-override-listeners", "true");
        }
        let ccm = world.start();
        let is_published = |name: &str| kind.published(&world.service(name)).is_some();
        world.until("both are served", |_| is_published("gone") && is_published("stays")).await;
        world.until_still(Duration::from_secs(1)).await;
        assert!(ccm.stop().await.success());
        testbed.cluster.patch("Service", "default", "gone", &json!({"metadata": {"finalizers": null}})).unwrap();
        testbed.cluster.delete("Service", "default", "gone").unwrap();

        // Nobody saw it go: who shares the load balancer is told.
        let ccm = world.start();
        let told = |testbed: &Testbed| {
            let events = testbed.cluster.list("Event").into_iter();
            let mut of_other = events.filter(|event| event["involvedObject"]["name"] == "stays");
            of_other.any(|event| event["message"].as_str().unwrap().contains("default/gone"))
        };
        world.until("an event names it", told).await;
        assert!(ccm.stop().await.success());

        let left = format!("{id}/default/gone");
        for command in ["gc", "doctor"] {
            let named = String::from_utf8(world.run(&[command]).await.stdout).unwrap();
            assert!(named.contains(&left) && !named.contains(&format!("{id}/default/stays")), "{named}");
        }
        let deleted = world.run(&["gc", "--delete", "--after", "1", &left]).await;
        let deleted = String::from_utf8(deleted.stdout).unwrap();
        assert_eq!((kind.listeners(testbed), kind.groups(testbed).len()), (vec![81], 1), "{deleted}");
        let listed = String::from_utf8(world.run(&["gc"]).await.stdout).unwrap();
        assert!(!listed.contains("sgp-") && !listed.contains(&left), "{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_names_and_removes_what_a_service_with_a_host_name_left_when_it_moved_to_another_load_balancer() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(1);
    ["lb-first", "lb-second"].into_iter().for_each(|id| Kind::Clb.of_user(&testbed, id));
    let world = World::of(testbed, EVERY, &format!("{HASTE}{MORE}"));
    let testbed = &world.testbed;
    Kind::Clb.expose(testbed, "web", &[80], &[1]);
    for (key, value) in [("id", "lb-first"), ("force-override-listeners", "true"), ("hostname", "shop.example.com")] {
        annotate(testbed, "web", key, value);
    }
    let ccm = world.start();
    let label = || world.service("web")["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].clone();
    let is_ready = |id: &str| {
        let published = world.service("web")["status"]["loadBalancer"]["ingress"][0]["hostname"] == "shop.example.com";
        let serves = testbed.cloud.look(|account| account.load_balancers[id].listeners.len() == 1);
        label() == id && published && serves
    };
    world.until("it is served", |_| is_ready("lb-first")).await;
    annotate(testbed, "web", "id", "lb-second");
    world.until_event("Service", "web", "LoadBalancerLeft").await;
    world.until("it is served by the other one", |_| is_ready("lb-second")).await;
    assert!(ccm.stop().await.success());
    assert_eq!(Kind::Clb.listeners(testbed), [80, 80], "clients may still use the first one");

    let listed = String::from_utf8(world.run(&["gc"]).await.stdout).unwrap();
    assert!(listed.contains("lb-first/default/web") && !listed.contains("lb-second"), "{listed}");
    world.run(&["gc", "--delete", "--after", "1", "lb-first/default/web"]).await;
    let listeners = |id: &str| testbed.cloud.look(|account| account.load_balancers[id].listeners.len());
    assert_eq!([listeners("lb-first"), listeners("lb-second")], [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_leaves_a_load_balancer_that_a_service_claims_while_another_one_is_deleted() {
    for kind in Kind::BOTH {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let world = World::of(testbed, EVERY, &format!("{HASTE}{MORE}"));
        let testbed = &world.testbed;
        let names = ["one", "two"];
        names.iter().for_each(|name| kind.expose(testbed, name, &[80], &[1]));
        let ccm = world.start();
        let id = |name: &str| kind.published(&world.service(name)).map(str::to_owned);
        world.until("both are served", |_| names.iter().all(|name| id(name).is_some())).await;
        world.until_still(Duration::from_secs(1)).await;
        assert!(ccm.stop().await.success());
        for name in names {
            testbed.cluster.patch("Service", "default", name, &json!({"metadata": {"finalizers": null}})).unwrap();
            testbed.cluster.delete("Service", "default", name).unwrap();
        }
        let (gc, mut held) = (
            world.run(&["gc", "--delete", "--after", "1"]),
            testbed.cloud.faults().hold(kind.deletes(), 0, Moment::After),
        );
        let claim = async {
            held.arrived().await;
            let left = ids(testbed);
            kind.expose(testbed, "heir", &[81], &[1]);
            annotate(testbed, "heir", "id", &left[0]);
            // A look proves for so long that something has no owner.
            tokio::time::sleep(Duration::from_secs(10)).await;
            held.release();
            left
        };
        let (output, left) = tokio::join!(gc, claim);
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!((left.len(), ids(testbed)), (1, left.clone()), "{text}");
        assert!(text.contains("another look did not show it without an owner"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_keeps_its_load_balancer_through_a_restore_and_loses_it_with_its_type_although_both_drop_the_finalizer()
 {
    for kind in Kind::BOTH {
        let (world, ccm) = serving(kind).await;
        let testbed = &world.testbed;
        let published = || kind.published(&world.service("web")).map(str::to_owned);
        world.until_still(Duration::from_secs(1)).await;
        let before = published();
        restore(testbed, "web");
        world.until("it is served again", |_| published().is_some()).await;
        assert_eq!((published(), kind.count(testbed)), (before, 1), "{kind:?}");
        world.until_still(Duration::from_secs(1)).await;
        strip(testbed);
        testbed.cluster.patch("Service", "default", "web", &json!({"spec": {"type": "ClusterIP"}})).unwrap();
        world.until("it is gone", |testbed| kind.count(testbed) == 0 && kind.groups(testbed).is_empty()).await;
        assert!(ccm.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_that_another_client_puts_back_is_removed_again_so_that_the_service_can_be_deleted() {
    for kind in Kind::BOTH {
        let (world, ccm) = serving(kind).await;
        let testbed = &world.testbed;
        testbed.cluster.patch("Service", "default", "web", &json!({"spec": {"type": "ClusterIP"}})).unwrap();
        let is_released = || world.service("web")["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        world.until("it is released", |_| is_released()).await;
        for _ in 0..2 {
            let finalizers = json!({"metadata": {"finalizers": [FINALIZER, NLB_FINALIZER]}});
            testbed.cluster.patch("Service", "default", "web", &finalizers).unwrap();
            world.until("it is released again", |_| is_released()).await;
        }
        testbed.cluster.delete("Service", "default", "web").unwrap();
        world.until("it is gone", |testbed| testbed.cluster.get("Service", "default", "web").is_none()).await;
        assert!(ccm.stop().await.success());
    }
}
