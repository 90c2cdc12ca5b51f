//! What operators are told: which cloud actions fail, what many Services have in common, what is left out, and why.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Fault, RouteEntry};
use sim::cluster::{Effect, Endpoint, Failure, Match, Version};
use sim::testbed::{ACCESS_KEY, ROUTE_TABLE, Testbed, instance};

use crate::harness::{ALL, EVERY, HASTE, World, address, free_port};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::{Kind, annotate};
use crate::service_features::{key, served};

/// An edit by its user, which does not wait for the next retry.
fn edit(world: &World, service: &str) {
    let change = json!({"metadata": {"annotations": {key("scheduler"): "wrr"}}});
    world.testbed.cluster.patch("Service", "default", service, &change).unwrap();
}

fn events_with<'a>(events: &'a [(String, String, String)], reason: &str) -> Vec<&'a (String, String, String)> {
    events.iter().filter(|(_, of, _)| of == reason).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_refuses_every_call_is_not_ok() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cloud.edit(|cloud| cloud.permit_only(ACCESS_KEY.0, &BTreeSet::new()));
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start_serving();
    let refused = |status, text: &str| {
        status == 503 && text.contains("[-]cloud failed: ") && text.contains("DescribeInstances fails since 20")
    };
    let text = ccm.until_page("/readyz", refused).await;
    assert!(text.contains(": denied ["), "{text}");
    world.testbed.cloud.edit(|cloud| cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied.clear());
    edit(&world, "web");
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("[+]cloud ok")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_that_many_services_share_is_told_once() {
    let world = World::new(ALL, &format!("{HASTE}\n[cloud.quotas]\nCreateLoadBalancer = 6000\n")).await;
    let denied = Fault::Refuse(403, "Forbidden.RAM".to_owned(), "User not authorized".to_owned());
    world.testbed.cloud.faults().always("CreateLoadBalancer", denied);
    world.testbed.join(1);
    let names: Vec<String> = (0..12).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.testbed.expose(name, &[80], &["node-1"], &[]);
    }
    let ccm = world.start_serving();
    let line = "[!]service has 12 objects out of sync for one cause (CreateLoadBalancer: denied [Forbidden.RAM]): default/web-0";
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains(line)).await;
    ccm.until_page("/readyz", |_, text| text.contains("[+]cloud ok: CreateLoadBalancer fails since 20")).await;
    let cause = r#"{cause="CreateLoadBalancer: denied [Forbidden.RAM]",controller="service"} 12"#;
    ccm.until_page("/metrics", |_, text| text.contains(&format!("alicloud_ccm_shared_cause_objects{cause}"))).await;
    world.until_event("Node", "service-controller", "ManyServicesOutOfSync").await;
    let events = world.events("Node", "service-controller");
    assert_eq!(events_with(&events, "ManyServicesOutOfSync").len(), 1, "{events:?}");
    world.testbed.cloud.faults().clear();
    names.iter().for_each(|name| edit(&world, name));
    let all_served = || names.iter().all(|name| address(&world.service(name)).is_some());
    world.until("all are served", |_| all_served()).await;
    ccm.until_page("/readyz", |_, text| !text.contains("out of sync") && text.contains("[+]cloud ok\n")).await;
    ccm.until_page("/metrics", |_, text| !text.contains("alicloud_ccm_shared_cause_objects{")).await;
    assert!(ccm.stop().await.success());
}

/// What `/debug/objects` says of an object of a controller.
fn object(page: &str, controller: &str, name: &str) -> Option<Value> {
    let page: Value = serde_json::from_str(page).ok()?;
    let is_it = |object: &&Value| object["controller"] == controller && object["object"] == name;
    page["objects"].as_array()?.iter().find(is_it).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_out_of_sync_is_shown_with_the_failed_call_its_remedy_and_the_next_attempt() {
    let world = World::new(ALL, HASTE).await;
    let denied = || Fault::Refuse(403, "Forbidden.RAM".to_owned(), "User not authorized".to_owned());
    for action in ["CreateLoadBalancer", "ModifyNetworkInterfaceAttribute"] {
        world.testbed.cloud.faults().always(action, denied());
    }
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start_serving();
    let all = [("service", "default/web"), ("node", "node-1")];
    let failing = |page: &str| {
        let is_due = |object: Value| object["state"] == "out_of_sync" && object["next_attempt"].is_string();
        all.iter().all(|(controller, name)| object(page, controller, name).is_some_and(is_due))
    };
    let page = ccm.until_page("/debug/objects", |status, text| status == 200 && failing(text)).await;
    let said = |controller, name| object(&page, controller, name).unwrap();
    let (web, node) = (said("service", "default/web"), said("node", "node-1"));
    for (object, action, reason, code) in [
        (&web, "CreateLoadBalancer", "SyncLoadBalancerFailed", "ACCM0307"),
        (&node, "ModifyNetworkInterfaceAttribute", "SyncNodeFailed", "ACCM0102"),
    ] {
        let call = &object["failed_call"];
        assert_eq!((&call["action"], &call["code"]), (&action.into(), &"Forbidden.RAM".into()), "{object}");
        assert!(call["kind"] == "denied" && call["request_id"].as_str().is_some_and(|id| id.len() > 8), "{object}");
        assert_eq!((&object["reason"], &object["code"]), (&reason.into(), &code.into()), "{object}");
        assert!(object["remedy"].as_str().is_some_and(|remedy| remedy.len() > 8), "{object}");
        let times = ["since", "last_attempt", "next_attempt"].map(|field| object[field].as_str().unwrap().to_owned());
        assert!(times.is_sorted(), "since, then the last attempt, then the next: {object}");
    }
    let metric = "alicloud_ccm_object_out_of_sync{controller=";
    let named = |text: &str, controller: &str, object: &str, code: &str| {
        text.contains(&format!("{metric}\"{controller}\",object=\"{object}\"}} {code}\n"))
    };
    let both = |text: &str| named(text, "service", "default/web", "307") && named(text, "node", "node-1", "102");
    ccm.until_page("/metrics", |_, text| both(text)).await;
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    let said = web["message"].as_str().unwrap();
    let before = |text: &str| text.split(", request ").next().unwrap_or_default().to_owned();
    assert_eq!(before(said), before(&told), "in the words of the event");

    // A setting that makes no sense is no failed call, and what is in sync again is not shown.
    world.testbed.cloud.faults().clear();
    let odd = json!({"metadata": {"annotations": {key("scheduler"): "nonsense"}}});
    world.testbed.cluster.patch("Service", "default", "web", &odd).unwrap();
    let is_nonsense = |page: &str| {
        object(page, "service", "default/web")
            .is_some_and(|web| web["failed_call"].is_null() && web["message"].as_str().unwrap().contains("nonsense"))
    };
    ccm.until_page("/debug/objects", |_, text| is_nonsense(text)).await;
    edit(&world, "web");
    let cordoned = json!({"spec": {"unschedulable": true}});
    world.testbed.cluster.patch("Node", "", "node-1", &cordoned).unwrap();
    let is_over = |page: &str| {
        let page: Value = serde_json::from_str(page).unwrap();
        page["leader"] == "this replica leads" && page["objects"] == json!([])
    };
    ccm.until_page("/debug/objects", |_, text| is_over(text)).await;
    let metrics = ccm.until_page("/metrics", |status, _| status == 200).await;
    assert!(!metrics.contains(metric), "{metrics}");

    // Nor is a Service that was deleted.
    world.testbed.cluster.patch("Service", "default", "web", &odd).unwrap();
    ccm.until_page("/metrics", |_, text| named(text, "service", "default/web", "307")).await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    ccm.until_page("/metrics", |_, text| text.contains("# HELP") && !text.contains(metric)).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_that_many_nodes_share_is_told_once() {
    let world = World::new(ALL, HASTE).await;
    let denied = || Fault::Refuse(403, "Forbidden.RAM".to_owned(), "User not authorized".to_owned());
    world.testbed.cloud.faults().always("ModifyNetworkInterfaceAttribute", denied());
    let others = |cloud: &mut sim::cloud::Account, there: bool| {
        let entries = &mut cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries;
        match there {
            true => entries.insert("10.99.0.0/24".into(), RouteEntry::to_instance("rte-others", &instance(9))),
            false => entries.remove("10.99.0.0/24"),
        };
        cloud.limits.routes_per_table = if there { 1 } else { 200 };
    };
    world.testbed.rent(9);
    world.testbed.cloud.edit(|cloud| others(cloud, true));
    (1..=8).for_each(|number| drop(world.testbed.join(number)));
    let port = free_port();
    let mut ccm = world.start_with(&["--set", "route.period=10s", "--set", &format!("server.port={port}")], &[]);
    ccm.serve_at(port);
    let shared = [
        ("node", "ModifyNetworkInterfaceAttribute: denied [Forbidden.RAM]"),
        ("route", &format!("route table {ROUTE_TABLE} is full")),
    ];
    for (controller, cause) in shared {
        let line = format!("[!]{controller} has 8 objects out of sync for one cause ({cause}): node-");
        ccm.until_page("/readyz", |status, text| status == 200 && text.contains(&line)).await;
        let metric = format!("alicloud_ccm_shared_cause_objects{{cause=\"{cause}\",controller=\"{controller}\"}} 8");
        ccm.until_page("/metrics", |_, text| text.contains(&metric)).await;
        let component = format!("{controller}-controller");
        let told = world.until_event("Node", &component, "ManyObjectsOutOfSync").await;
        assert!(told.starts_with(&format!("Many nodes are out of sync for the same cause: {cause}.")), "{told}");
        let events = world.events("Node", &component);
        assert_eq!(events_with(&events, "ManyObjectsOutOfSync").len(), 1, "{events:?}");
    }
    world.testbed.cloud.faults().clear();
    world.testbed.cloud.edit(|cloud| others(cloud, false));
    // A change of a node does not wait for the next retry.
    let now = json!({"metadata": {"labels": {"look": "again"}}});
    (1..=8).for_each(|number| drop(world.testbed.cluster.patch("Node", "", &format!("node-{number}"), &now).unwrap()));
    ccm.until_page("/readyz", |_, text| !text.contains("out of sync")).await;
    ccm.until_page("/metrics", |_, text| !text.contains("alicloud_ccm_shared_cause_objects{")).await;
    assert!(ccm.stop().await.success());
}

#[test]
fn each_of_many_services_that_change_at_once_is_told_so() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let names: Vec<String> = (0..30).map(|number| format!("web-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            Kind::BOTH[number % 2].expose(&testbed, name, &[80], &[1]);
        }
        let _product = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
        tokio::time::sleep(Duration::from_secs(120)).await;
        for (times, scheduler) in (1..).zip(["wlc", "rr", "wlc"]) {
            names.iter().for_each(|name| annotate(&testbed, name, "scheduler", scheduler));
            tokio::time::sleep(Duration::from_secs(20)).await;
            let events = testbed.cluster.list("Event");
            for name in &names {
                let of = |event: &&serde_json::Value| {
                    event["involvedObject"]["name"] == **name && event["reason"] == "AnnotationChanged"
                };
                let counts: Vec<_> = events.iter().filter(of).map(|event| event["count"].clone()).collect();
                assert_eq!(counts, [json!(times)], "{name}: one event, whose count rises");
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_lacks_a_server_group_in_use_is_told() {
    let (world, ccm) = served("", &[]).await;
    let group = world.testbed.cloud.look(|cloud| {
        cloud.load_balancers.values().flat_map(|lb| lb.groups.keys().cloned()).next().unwrap_or_default()
    });
    assert!(ccm.stop().await.success());
    world.testbed.cloud.faults().always("DescribeVServerGroups", Fault::Partial(0));
    let ccm = world.start_serving();
    let told = world.until_event("Service", "web", "ServerGroupsHeldBack").await;
    assert!(told.contains(&group), "{told}");
    ccm.until_page("/readyz", |_, text| text.contains("[!]service withholds 1 (ServerGroupsHeldBack): default/web"))
        .await;
    assert_eq!(world.testbed.cloud.count("CreateVServerGroup"), 1, "it is not made again");
    world.testbed.cloud.faults().clear();
    assert!(ccm.stop().await.success());
    let ccm = world.start_serving();
    ccm.until_page("/readyz", |status, text| status == 200 && text.contains("this replica leads")).await;
    world.until_quiet(std::time::Duration::from_secs(1)).await;
    assert!(!ccm.page("/readyz").await.unwrap().1.contains("HeldBack"), "the list shows it");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_no_backends_are_told_with_the_official_reason() {
    let world = World::new(&["service"], "").await;
    let node = world.testbed.join(1);
    world.testbed.expose("web", &[80], &[&node], &[("service.beta.kubernetes.io/backend-type", "eni")]);
    let at = |a, b, c, d| Endpoint::ready(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), &node);
    let pods = [at(10, 9, 9, 9), at(10, 9, 9, 8), at(192, 168, 1, 200)];
    world.testbed.cluster.set_endpoints("default", "web", &pods).unwrap();
    let ccm = world.start();
    let skipped = || {
        let events = world.events("Service", "web");
        let of = |severity: &str, text: &str| {
            events_with(&events, "SkipSyncBackends").iter().any(|it| it.0 == severity && it.2.contains(text))
        };
        of("Normal", "10.9.9.8, 10.9.9.9 are outside of the VPC") && of("Warning", "192.168.1.200")
    };
    world.until("both are told", |_| skipped()).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_to_the_service_that_fail_are_told_with_the_official_reason() {
    for (resource, reason) in [("services", "FailedAddFinalizer"), ("services/status", "FailedUpdateStatus")] {
        let world = World::new(&["service"], "").await;
        world.testbed.join(1);
        world.testbed.expose("web", &[80], &["node-1"], &[]);
        let refuse = Effect::Refuse(Failure::internal_error());
        world.testbed.cluster.trouble_times(Match::new("patch", resource), refuse, usize::MAX);
        let ccm = world.start();
        let told = world.until_event("Service", "web", reason).await;
        assert!(told.contains("of the Service could not be written"), "{told}");
        world.testbed.cluster.calm();
        world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
        assert!(ccm.stop().await.success());
    }
}

#[test]
fn an_edit_of_the_user_is_not_told_as_a_change_from_outside() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let names = ["classic", "network"];
        for (name, kind) in names.iter().zip(Kind::BOTH) {
            kind.expose(&testbed, name, &[80], &[1]);
        }
        let _product = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
        tokio::time::sleep(Duration::from_secs(120)).await;
        for name in names {
            let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
            testbed.cluster.patch("Service", "default", name, &ranges).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let events = testbed.cluster.list("Event");
        let told: Vec<_> = events.iter().filter(|event| event["reason"] == "RepairedDrift").collect();
        assert!(told.is_empty(), "{told:#?}");
        let allowed = testbed.cloud.snapshot().to_string().contains("10.0.0.0/8");
        assert!(allowed, "the ranges are in force");
    });
}
