//! The condition `LoadBalancerReady` of Services, which scripts wait for.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Call, Effect, Endpoint, Failure, Match, Version};
use sim::testbed::{Testbed, instance};

use crate::harness::{HASTE, World, address};
use crate::in_process::{Product, UNCHECKED, on_a_clock_of_its_own};
use crate::kinds::Kind;
use crate::service_features::key;

fn condition(service: &Value) -> Option<&Value> {
    service["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "LoadBalancerReady")
}

fn is(service: &Value, status: &str, reason: &str) -> bool {
    condition(service).is_some_and(|condition| condition["status"] == status && condition["reason"] == reason)
}

/// Writes of conditions to Services.
fn written(world: &World) -> Vec<Call> {
    let has_conditions = |call: &Call| call.body.as_ref().is_some_and(|body| !body["status"]["conditions"].is_null());
    let writes = world.testbed.cluster.writes().into_iter();
    writes.filter(|call| call.target() == "services/status" && has_conditions(call)).collect()
}

/// The status in each write of it.
fn status_writes(world: &World, service: &str) -> Vec<Value> {
    let writes = world.testbed.cluster.writes().into_iter();
    let writes = writes.filter(|call| call.target() == "services/status" && call.name == service);
    writes.map(|call| call.body.unwrap()["status"].clone()).collect()
}

async fn world() -> World {
    let world = World::new(&["service"], HASTE).await;
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_condition_follows_the_service_and_other_conditions_stay() {
    let world = world().await;
    let denied = Fault::Refuse(403, "Forbidden.RAM".to_owned(), "User not authorized".to_owned());
    world.testbed.cloud.faults().always("CreateLoadBalancer", denied);
    let other = json!({"conditions": [{
        "type": "example.com/Other", "status": "True", "reason": "Other", "message": "of another program",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]});
    world.testbed.cluster.patch_status("Service", "default", "web", &other).unwrap();
    let ccm = world.start();
    world.until("it is not ready", |_| is(&world.service("web"), "False", "SyncLoadBalancerFailed")).await;
    let failing = condition(&world.service("web")).unwrap().clone();
    let message = failing["message"].as_str().unwrap();
    assert!(message.contains("CreateLoadBalancer") && message.ends_with("[Forbidden.RAM]"), "{message}");
    assert!(failing["lastTransitionTime"].is_string(), "{failing}");
    let tries = || world.testbed.cloud.calls().iter().filter(|call| call.action == "CreateLoadBalancer").count();
    let look_again = |number: &str| {
        let change = json!({"metadata": {"annotations": {"look": number}}});
        world.testbed.cluster.patch("Service", "default", "web", &change).unwrap();
    };
    for number in ["1", "2"] {
        let before = tries();
        look_again(number);
        world.until("it was tried again", |_| tries() > before).await;
    }
    assert_eq!(written(&world).len(), 1, "the same failure is not written again");

    world.testbed.cloud.faults().clear();
    look_again("3");
    world.until("it is ready", |_| is(&world.service("web"), "True", "InSync")).await;
    assert!(address(&world.service("web")).is_some(), "a ready Service has an address");
    let scheduler = |value: &str| {
        let change = json!({"metadata": {"annotations": {key("scheduler"): value}}});
        world.testbed.cluster.patch("Service", "default", "web", &change).unwrap();
    };
    scheduler("nonsense");
    let says = |text: &str| condition(&world.service("web")).is_some_and(|it| it.to_string().contains(text));
    world.until("it says what is wrong", |_| says("nonsense")).await;
    let since = || condition(&world.service("web")).unwrap()["lastTransitionTime"].clone();
    let (failed, writes) = (since(), written(&world).len());
    scheduler("rubbish");
    world.until("it says what is wrong now", |_| says("rubbish")).await;
    let sent = written(&world)[writes].body.clone().unwrap()["status"]["conditions"][0].clone();
    assert_eq!((since(), &sent["lastTransitionTime"]), (failed, &Value::Null), "it was not ready before either");

    scheduler("wrr");
    world.until("it is ready again", |_| is(&world.service("web"), "True", "InSync")).await;
    let internal = json!({"spec": {"type": "ClusterIP"}});
    world.testbed.cluster.patch("Service", "default", "web", &internal).unwrap();
    world.until("the condition is gone", |_| condition(&world.service("web")).is_none()).await;
    assert_eq!(world.service("web")["status"]["conditions"], other["conditions"]);
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_and_a_changed_backend_write_no_condition() {
    let world = world().await;
    let ccm = world.start();
    world.until("it is ready", |_| is(&world.service("web"), "True", "InSync")).await;
    let writes = status_writes(&world, "web");
    let [write] = &writes[..] else { panic!("the address and the condition are one write: {writes:?}") };
    assert!(write["loadBalancer"]["ingress"][0]["ip"].is_string(), "{write}");
    assert!(ccm.stop().await.success());
    world.testbed.cluster.clear_calls();
    let ccm = world.start();
    world.testbed.join(2);
    let pod = Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, 2, 10)), "node-2");
    world.testbed.cluster.set_endpoints("default", "web", &[pod]).unwrap();
    world.until("the backend is there", |testbed| testbed.cloud.snapshot().to_string().contains(&instance(2))).await;
    world.until_still(Duration::from_secs(1)).await;
    assert_eq!(written(&world).len(), 0, "{:?}", written(&world));
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_no_conditions_is_sent_none() {
    for version in [Version::V1_11, Version::V1_20] {
        let world = World::of(Testbed::open(version).await.unwrap(), &["service"], HASTE);
        world.testbed.join(1);
        world.testbed.expose("web", &[80], &["node-1"], &[]);
        let ccm = world.start();
        world.until("an address", |_| address(&world.service("web")).is_some()).await;
        world.until_event("Service", "web", "EnsuredLoadBalancer").await;
        assert_eq!(written(&world).len(), 0, "{version}: {:?}", written(&world));
        assert!(ccm.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_cannot_be_written_harms_nothing_else() {
    let world = world().await;
    let ccm = world.start();
    world.until("it is ready", |_| is(&world.service("web"), "True", "InSync")).await;
    let refuse = Effect::Refuse(Failure::internal_error());
    world.testbed.cluster.trouble_times(Match::new("patch", "services/status"), refuse, usize::MAX);
    let annotate = |name: &str, value: &str| {
        let change = json!({"metadata": {"annotations": {key(name): value}}});
        world.testbed.cluster.patch("Service", "default", "web", &change).unwrap();
    };
    annotate("scheduler", "nonsense");
    world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    annotate("delete-protection", "off");
    let done = |testbed: &Testbed| testbed.cloud.snapshot().to_string().contains("\"delete_protection\":false");
    world.until("the rest is done", done).await;
    assert!(is(&world.service("web"), "True", "InSync"), "the write did not succeed");
    world.testbed.cluster.calm();
    // Whatever makes the controller look again, with the same result.
    annotate("delete-protection", "on");
    world.until("it is written", |_| is(&world.service("web"), "False", "SyncLoadBalancerFailed")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_does_not_wait_for_a_condition_and_no_lost_answer_leaves_a_wrong_one() {
    let world = World::new(&["service"], HASTE).await;
    world.testbed.join(1);
    let refused = Effect::Refuse(Failure::refused("Service", "refused", "no conditions here"));
    let all = [("refused", refused), ("answer-lost", Effect::LoseAnswer), ("request-lost", Effect::LoseRequest)];
    for (name, effect) in &all {
        world.testbed.expose(name, &[80], &["node-1"], &[]);
        let status = Match::new("patch", "services/status").named(name);
        world.testbed.cluster.trouble_times(status, effect.clone(), 1);
    }
    let ccm = world.start();
    for (name, _) in &all {
        world.until(name, |_| is(&world.service(name), "True", "InSync")).await;
        assert!(address(&world.service(name)).is_some(), "{name}");
    }
    let parts = |write: &Value| (write["loadBalancer"].is_object(), write["conditions"].is_array());
    let parts: Vec<_> = status_writes(&world, "refused").iter().map(parts).collect();
    assert_eq!(parts, [(true, true), (true, false), (false, true)], "each alone after both were refused");
    assert!(ccm.stop().await.success());
}

#[test]
fn a_condition_that_the_api_server_refused_is_right_within_5_minutes_after_it_takes_it() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            kind.expose(&testbed, "web", &[80], &[1]);
            let schedule = |scheduler: Value| {
                let change = json!({"metadata": {"annotations": {key("scheduler"): scheduler}}});
                testbed.cluster.patch("Service", "default", "web", &change).unwrap();
            };
            schedule(json!("nonsense"));
            let _product = Product::start(&testbed, &[kind.controller()], &format!("{HASTE}{UNCHECKED}"));
            let service = || testbed.cluster.get("Service", "default", "web").unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(is(&service(), "False", "SyncLoadBalancerFailed"), "{kind:?}");
            let refused = Effect::Refuse(Failure::refused("Service", "web", "a webhook says no"));
            testbed.cluster.trouble_times(Match::new("patch", "services/status"), refused, usize::MAX);
            schedule(Value::Null);
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(is(&service(), "False", "SyncLoadBalancerFailed"), "{kind:?}: the write did not succeed");
            testbed.cluster.calm();
            tokio::time::sleep(Duration::from_secs(301)).await;
            assert!(is(&service(), "True", "InSync"), "{kind:?}: {}", service());
            let requests = testbed.cluster.count("patch", "services/status");
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert_eq!(testbed.cluster.count("patch", "services/status"), requests, "{kind:?}");
        });
    }
}
