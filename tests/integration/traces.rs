//! Traces: what a collector gets, and that a bad collector is nobody's concern.

use std::collections::BTreeMap;

use sim::cloud::Fault;
use sim::collector::{Collector, Manner, TracedSpan};
use sim::testbed::CLUSTER_ID;

use crate::harness::{ALL, Ccm, World, address};

const SECRET: &str = "Bearer hunter2";

/// The configuration's section for this collector.
fn section(collector: &Collector) -> String {
    format!("[traces]\nendpoint = {:?}\nheaders = {{ authorization = {SECRET:?} }}\n", collector.url())
}

async fn until_exposed(world: &World, name: &str) {
    world.testbed.expose(name, &[80], &["node-1"], &[]);
    world.until("the Service has an address", |_| address(&world.service(name)).is_some()).await;
}

fn of_object(spans: &[TracedSpan], object: &str) -> Vec<TracedSpan> {
    let roots = spans.iter().filter(|span| span.text("alicloud_ccm.objects") == object);
    roots.cloned().collect()
}

/// Waits until the whole trace of the first reconcile of this Service has arrived.
async fn until_traced(world: &World, collector: &Collector, object: &str) -> (TracedSpan, Vec<TracedSpan>) {
    let of = format!("the trace of {object} arrives");
    world.until(&of, |_| !of_object(&collector.spans(), object).is_empty()).await;
    let spans = collector.spans();
    let root = of_object(&spans, object).remove(0);
    let children = spans.into_iter().filter(|span| span.parent == root.id && span.trace == root.trace).collect();
    (root, children)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_has_the_reconcile_and_every_call_with_the_request_id_of_the_cloud() {
    let collector = Collector::open().await.unwrap();
    let world = World::new(ALL, &section(&collector)).await;
    world.testbed.join(1);
    let ccm = world.start_serving();
    until_exposed(&world, "web").await;
    let (root, children) = until_traced(&world, &collector, "default/web").await;
    assert_eq!((root.name.as_str(), root.parent.as_str(), root.failure.as_str()), ("reconcile service", "", ""));
    assert_eq!(root.text("alicloud_ccm.controller"), "service");
    assert_eq!((root.text("service.name"), root.text("k8s.cluster.name")), ("alicloud-ccm", CLUSTER_ID));
    let id = format!("reconcile_id={}", root.attributes["alicloud_ccm.reconcile_id"]);
    assert!(ccm.log().contains(&id), "its log lines are found by {id}:\n{}", ccm.log());

    let calls = world.testbed.cloud.calls();
    let of_web = |action: &str| {
        let made = children.iter().find(|span| span.name == action);
        made.unwrap_or_else(|| panic!("{action} is missing in {children:#?}"))
    };
    for action in
        ["CreateLoadBalancer", "CreateVServerGroup", "CreateLoadBalancerTCPListener", "StartLoadBalancerListener"]
    {
        let (span, call) = (of_web(action), calls.iter().find(|call| call.action == action).unwrap());
        assert_eq!(span.text("alibaba_cloud.request_id"), call.request_id, "{action}");
        assert_eq!((span.text("cloud.region"), span.text("alibaba_cloud.outcome")), ("cn-hangzhou", "ok"));
        assert_eq!(span.attributes["http.response.status_code"], 200, "{span:?}");
        assert!(root.start <= span.start && span.start <= span.end && span.end <= root.end, "{root:?}\n{span:?}");
    }
    assert!(of_web("CreateLoadBalancer").text("alicloud_ccm.step").contains("load balancer"), "{children:#?}");
    assert!(children.iter().any(|span| span.name == "DescribeLoadBalancers"), "reads too: {children:#?}");
    let written = of_web("PATCH");
    assert!(written.text("url.path").starts_with("/api/v1/namespaces/default/services/web"), "{written:?}");

    let by_ids: BTreeMap<_, _> = calls.iter().map(|call| (call.request_id.clone(), call.action.clone())).collect();
    let spans = collector.spans();
    let of_cloud: Vec<_> = spans.iter().filter(|span| !span.text("alibaba_cloud.outcome").is_empty()).collect();
    assert!(of_cloud.iter().all(|span| by_ids[span.text("alibaba_cloud.request_id")] == span.name), "{of_cloud:#?}");
    assert!(
        spans.iter().any(|span| span.name == "reconcile node")
            && spans.iter().any(|span| span.name == "reconcile route")
    );
    assert_eq!(collector.complaints(), [""; 0]);
    assert!(collector.headers().iter().all(|headers| headers["authorization"] == SECRET));
    assert_no_secret(&world, &ccm).await;
    assert!(ccm.stop().await.success());
}

async fn assert_no_secret(world: &World, ccm: &Ccm) {
    // The collector has the spans before its answer is counted.
    let sent = "alicloud_ccm_trace_spans_total{outcome=\"sent\"}";
    let metrics = ccm.until_page("/metrics", |_, text| text.contains(sent)).await;
    let shown = [metrics, ccm.page("/configz").await.unwrap().1, world.logs()].concat();
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_calls_say_why_and_belong_to_the_failed_reconcile() {
    let collector = Collector::open().await.unwrap();
    let world = World::new(&["service"], &section(&collector)).await;
    world.testbed.join(1);
    for _ in 0..2 {
        world.testbed.cloud.faults().script("CreateLoadBalancer", Fault::Throttle);
    }
    let ccm = world.start();
    until_exposed(&world, "web").await;
    let throttled = |span: &TracedSpan| span.text("alibaba_cloud.outcome") == "throttled";
    world
        .until("the throttled calls arrive", |_| collector.spans().iter().filter(|it| throttled(it)).count() == 2)
        .await;
    let spans = collector.spans();
    let calls = world.testbed.cloud.calls();
    for span in spans.iter().filter(|span| throttled(span)) {
        let call = calls.iter().find(|call| call.request_id == span.text("alibaba_cloud.request_id")).unwrap();
        assert_eq!(span.text("alibaba_cloud.error_code"), call.outcome);
        assert_eq!(span.failure, format!("throttled [{}]", call.outcome));
    }
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_or_refuses_stops_nothing() {
    futures::future::join_all([Manner::Hangs, Manner::Refuses(401), Manner::Refuses(503)].map(stops_nothing)).await;
}

async fn stops_nothing(manner: Manner) {
    let collector = Collector::open().await.unwrap();
    collector.set(manner);
    let world = World::new(ALL, &section(&collector)).await;
    world.testbed.join(1);
    let ccm = world.start();
    until_exposed(&world, "first").await;
    world.until("the collector is asked", |_| !collector.headers().is_empty()).await;
    let asked = collector.headers().len();
    until_exposed(&world, "second").await;
    if let Manner::Refuses(status) = manner {
        world.until("it is logged", |_| ccm.log().contains(&format!("HTTP status {status}"))).await;
        world.until("it is asked again", |_| collector.headers().len() > asked).await;
        assert_eq!(ccm.log().matches("ACCM0709").count(), 1, "once: {}", ccm.log());
    }
    assert!(ccm.stop().await.success());
    assert!(!world.logs().contains("hunter2"), "{}", world.logs());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_turns_traces_on_elsewhere_and_off() {
    let (one, two) = (Collector::open().await.unwrap(), Collector::open().await.unwrap());
    let world = World::new(ALL, "").await;
    world.testbed.join(1);
    let ccm = world.start();
    until_exposed(&world, "before").await;
    let without = std::fs::read_to_string(world.config()).unwrap();
    assert!(!ccm.log().contains("traces"), "{}", ccm.log());

    world.edit(|text| text + &section(&one));
    world.until("it is used", |_| ccm.log().contains("changed: traces.endpoint, traces.headers")).await;
    until_exposed(&world, "to-one").await;
    until_traced(&world, &one, "default/to-one").await;
    let creations = one.spans().into_iter().filter(|span| span.name == "CreateLoadBalancer");
    assert_eq!(creations.count(), 1, "that of the first Service was not recorded");

    world.edit(|text| text.replace(&one.url(), &two.url()));
    world.until("it is used", |_| ccm.log().contains(&format!("traces are sent to {}", two.url()))).await;
    until_exposed(&world, "to-two").await;
    until_traced(&world, &two, "default/to-two").await;
    assert_eq!(of_object(&one.spans(), "default/to-two"), []);

    world.edit(|_| without);
    world.until("it is used", |_| ccm.log().contains(&format!("no longer sent to {}", two.url()))).await;
    until_exposed(&world, "after").await;
    assert!(ccm.stop().await.success(), "what was left would have been sent");
    assert_eq!(of_object(&two.spans(), "default/after"), []);
}
