//! Nodes that the cloud does not take as backends: they hold up nothing else, and the calls that it refuses are few and become
//! fewer.

use std::time::Duration;

use serde_json::json;
use sim::cloud::{Call, Fault};
use sim::cluster::{Endpoint, NodeSpec, Version};
use sim::testbed::{REGION, Testbed, instance};
use tokio::time::Instant;

use crate::in_process::{Product, UNCHECKED, on_a_clock_of_its_own};
use crate::kinds::Kind;

const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);
const REFUSED: usize = 25;

/// Four nodes that can be backends, and many that cannot.
async fn testbed() -> Testbed {
    testbed_of(4, |number| format!("i-nowhere-{number}")).await
}

/// So many nodes that can be backends, and many that cannot, on instances with these ids.
async fn testbed_of(good: u8, bad: impl Fn(usize) -> String) -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    (1..=good).for_each(|number| add_node(&testbed, number));
    for number in 0..REFUSED {
        let node = NodeSpec::new(&format!("bad-{number}")).provider_id(&format!("{REGION}.{}", bad(number)));
        testbed.cluster.add_node(&node).unwrap();
    }
    testbed
}

fn add_node(testbed: &Testbed, number: u8) {
    testbed.rent(number);
    let node = NodeSpec::new(&format!("node-{number}")).provider_id(&format!("{REGION}.{}", instance(number)));
    testbed.cluster.add_node(&node).unwrap();
}

/// A Service of which every node is a backend.
fn expose(kind: Kind, testbed: &Testbed, name: &str) {
    kind.expose(testbed, name, &[80], &[1]);
    let all_nodes = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    testbed.cluster.patch("Service", "default", name, &all_nodes).unwrap();
}

fn has_address(kind: Kind, testbed: &Testbed, name: &str) -> bool {
    kind.published(&testbed.cluster.get("Service", "default", name).unwrap()).is_some()
}

/// Whether every server group of so many holds exactly these instances.
fn all_hold(kind: Kind, testbed: &Testbed, count: usize, numbers: &[u8]) -> bool {
    kind.groups(testbed).len() == count && kind.all_lead_to(testbed, numbers)
}

async fn until(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < within, "not within {} s: {what}", within.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a listener takes traffic for which there is no backend.
fn serves_nothing(kind: Kind, testbed: &Testbed) -> bool {
    testbed.cloud.look(|cloud| match kind {
        Kind::Clb => cloud.load_balancers.values().any(|lb| {
            lb.listeners.values().any(|it| lb.groups.get(&it.group).is_none_or(|group| group.backends.is_empty()))
        }),
        Kind::Nlb => cloud.nlb.balancers.values().any(|lb| {
            lb.listeners.values().any(|it| cloud.nlb.groups.get(&it.group).is_none_or(|group| group.servers.is_empty()))
        }),
    })
}

/// Calls about backends that were refused since the last look.
fn refused(testbed: &Testbed) -> usize {
    let calls = testbed.cloud.take_calls().into_iter();
    calls.filter(|call| call.action.contains("ServerGroup") && call.outcome != "OK").count()
}

#[test]
fn they_hold_up_nothing_and_cost_few_calls_that_become_fewer() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, few_calls_that_become_fewer(kind));
    }
}

async fn few_calls_that_become_fewer(kind: Kind) {
    let testbed = testbed().await;
    expose(kind, &testbed, "web");
    expose(kind, &testbed, "api");
    let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
    until("both have an address", SOON, || has_address(kind, &testbed, "web") && has_address(kind, &testbed, "api"))
        .await;
    let mut minutes = Vec::new();
    for _ in 0..40 {
        tokio::time::sleep(MINUTE).await;
        minutes.push(refused(&testbed));
    }
    let sum = |minutes: &[usize]| minutes.iter().sum::<usize>();
    // The first minute ends as the second window of the quota begins. While the first backends of a network load balancer are
    // added as a job, the others wait and are tried one by one.
    assert!(minutes[0] <= 80 && minutes[1..].iter().all(|calls| *calls <= 50), "{kind:?}: {minutes:?}");
    assert!(sum(&minutes[1..10]) <= 9 * 21, "{kind:?}: {minutes:?}");
    assert!(sum(&minutes[30..]) <= 3 * REFUSED, "{kind:?}: each once in ten minutes, less jitter: {minutes:?}");
    assert!(all_hold(kind, &testbed, 2, &[1, 2, 3, 4]), "those that can be backends are");
    let told = testbed.cluster.list("Event").into_iter().filter(|it| it["reason"] == "SyncLoadBalancerFailed");
    let told: Vec<String> = told.map(|event| event["message"].as_str().unwrap().to_owned()).collect();
    assert!(told.iter().any(|text| text.contains("i-nowhere-") && text.contains("20 more")), "{kind:?}: {told:?}");

    // A new Service is served at once, and what comes and goes follows at once.
    expose(kind, &testbed, "late");
    until("the new Service is served", SOON, || {
        has_address(kind, &testbed, "late") && all_hold(kind, &testbed, 3, &[1, 2, 3, 4])
    })
    .await;
    testbed.cluster.delete_node("node-4").unwrap();
    add_node(&testbed, 5);
    until("the backends follow", SOON, || all_hold(kind, &testbed, 3, &[1, 2, 3, 5])).await;
    assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
}

#[test]
fn an_edit_asks_for_another_try_and_what_is_taken_now_serves() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed().await;
        testbed.expose("web", &[80], &["node-1"], &[]);
        let _product = Product::start(&testbed, &["service"], UNCHECKED);
        tokio::time::sleep(10 * MINUTE).await;
        let kind = Kind::Clb;
        assert!(all_hold(kind, &testbed, 1, &[1, 2, 3, 4]) && has_address(kind, &testbed, "web"));
        testbed.cloud.add_instance("i-nowhere-7", "bad-7", "vsw-i", "192.168.0.77");
        let note = json!({"metadata": {"annotations": {"example.com/note": "again"}}});
        testbed.cluster.patch("Service", "default", "web", &note).unwrap();
        let serves = || {
            testbed.cloud.look(|cloud| {
                let mut groups = cloud.load_balancers.values().flat_map(|lb| lb.groups.values());
                groups.any(|group| group.backends.iter().any(|backend| backend.server_id == "i-nowhere-7"))
            })
        };
        until("it serves", 3 * MINUTE, serves).await;
    });
}

/// Good and bad nodes in turn are the worst case for whoever searches in halves.
#[test]
fn a_new_service_is_served_by_all_good_nodes_within_seconds() {
    let orders: [fn(usize) -> String; 3] = [
        |number| format!("i-play-{}-gone-{number}", number % 6 + 1),
        |number| format!("i-gone-{number}"),
        |number| format!("i-zone-{number}"),
    ];
    for kind in Kind::BOTH {
        for (order, bad) in orders.into_iter().enumerate() {
            on_a_clock_of_its_own(0, async move {
                let testbed = testbed_of(6, bad).await;
                let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
                // Each addition to a network load balancer is a job.
                let soon = if kind == Kind::Nlb { 4 * SOON } else { SOON };
                served(kind, &testbed, ("web", &[80]), (soon, &format!("{kind:?}, order {order}"))).await;
                served(kind, &testbed, ("api", &[80]), (soon, &format!("{kind:?}, order {order}, the next"))).await;
                assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
            });
        }
    }
}

#[test]
fn each_port_of_a_new_service_is_served_within_seconds() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async move {
            let testbed = testbed_of(6, |number| format!("i-play-{}-gone-{number}", number % 6 + 1)).await;
            let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
            // The quota of a minute is not enough to find out which nodes can be backends of a classic load balancer.
            served(kind, &testbed, ("web", &[80, 81, 82]), (MINUTE + SOON, &format!("{kind:?}"))).await;
        });
    }
}

#[test]
fn nodes_that_serve_another_service_are_added_to_a_new_one_first() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async move {
            let testbed = testbed_of(6, |number| format!("i-play-{}-gone-{number}", number % 6 + 1)).await;
            let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
            // Only nodes with a pod of its own are its backends, so that it knows nothing of the others.
            kind.expose(&testbed, "web", &[80], &[1, 2, 3, 4, 5, 6]);
            until("it is served", 4 * SOON, || has_address(kind, &testbed, "web")).await;
            refused(&testbed);
            expose(kind, &testbed, "late");
            until("the next one is served", 4 * SOON, || {
                has_address(kind, &testbed, "late") && all_hold(kind, &testbed, 2, &[1, 2, 3, 4, 5, 6])
            })
            .await;
            let mut calls = testbed.cloud.take_calls();
            let is_about_groups = |call: &Call| call.action.contains("ServerGroup");
            let last = calls.iter().rposition(|call| is_about_groups(call) && call.outcome == "OK").unwrap();
            calls.truncate(last);
            let refused = calls.iter().filter(|call| is_about_groups(call) && call.outcome != "OK").count();
            assert!(refused <= 3, "{kind:?}: {refused} before all six serve");
        });
    }
}

/// A new Service is served by six nodes within this time, and no listener leads to nothing meanwhile.
async fn served(kind: Kind, testbed: &Testbed, (name, ports): (&str, &[u16]), (within, what): (Duration, &str)) {
    let count = kind.groups(testbed).len() + ports.len();
    kind.expose(testbed, name, ports, &[1]);
    let all_nodes = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    testbed.cluster.patch("Service", "default", name, &all_nodes).unwrap();
    let leads = || {
        assert!(!serves_nothing(kind, testbed), "{what}: a listener leads to nothing");
        has_address(kind, testbed, name) && kind.groups(testbed).len() == count
    };
    until(&format!("{what}: it has an address"), 2 * SOON, leads).await;
    until(what, within, || leads() && kind.all_lead_to(testbed, &[1, 2, 3, 4, 5, 6])).await;
}

#[test]
fn all_nodes_that_were_refused_elsewhere_are_tried_before_a_new_service_is_published() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async move {
            let testbed = testbed_of(1, |number| format!("i-late-{number}")).await;
            let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
            expose(kind, &testbed, "web");
            until("it is served", 4 * SOON, || has_address(kind, &testbed, "web")).await;
            testbed.cloud.add_instance("i-late-24", "late-24", "vsw-i", "192.168.0.77");
            kind.expose(&testbed, "late", &[80], &[]);
            let endpoints: Vec<Endpoint> =
                (0..25).map(|number| Endpoint::ready([10, 98, number, 10].into(), &format!("bad-{number}"))).collect();
            testbed.cluster.set_endpoints("default", "late", &endpoints).unwrap();
            let leads_there = || {
                kind.groups(&testbed).iter().any(|group| group.len() == 1 && group.first().unwrap().0 == "i-late-24")
            };
            until("the next one is served", 4 * SOON, || {
                assert!(!serves_nothing(kind, &testbed), "{kind:?}: a listener leads to nothing");
                has_address(kind, &testbed, "late") && leads_there()
            })
            .await;
        });
    }
}

/// What the cloud can say of one backend.
const REFUSALS: [(Kind, &[&str]); 2] = [
    (
        Kind::Clb,
        &[
            "ObtainIpFail",
            "InvalidServerId.NotExist",
            "ResourceNotFound.vServers",
            "IncorrectStatus.RSByPassToas",
            "NetworkConflict",
            "Mismatched.ZoneId",
            "RspoolVipExist",
            "OperationFailed.InsufficientResources",
            "NeverSeenBefore",
        ],
    ),
    (
        Kind::Nlb,
        &[
            "ResourceNotFound.Ecs",
            "ResourceNotFound.BackendServer",
            "IncorrectStatus.Eni",
            "Mismatch.VpcId",
            "ResourceInUse.IP",
            "ResourceNotEnough.VSwitchIp",
            "NeverSeenBefore",
        ],
    ),
];

#[test]
fn whatever_the_cloud_says_of_one_backend_costs_that_backend_alone() {
    for (kind, codes) in REFUSALS {
        for code in codes {
            on_a_clock_of_its_own(0, costs_that_backend_alone(kind, code));
            on_a_clock_of_its_own(0, costs_no_address(kind, code));
        }
    }
}

/// Three nodes, of which the second is refused so, and its instance.
async fn refusing(kind: Kind, code: &str) -> (Testbed, String) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    (1..=3).for_each(|number| add_node(&testbed, number));
    let refuse = |action: &str, name: String, value: String| {
        testbed.cloud.faults().matching(action, [(name, value)].into(), Fault::code(code), None);
    };
    let bad = instance(2);
    match kind {
        Kind::Clb => ["CreateVServerGroup", "AddVServerGroupBackendServers"]
            .into_iter()
            .for_each(|action| refuse(action, "BackendServers".to_owned(), format!("*\"{bad}\"*"))),
        Kind::Nlb => (1..=3)
            .for_each(|place| refuse("AddServersToServerGroup", format!("Servers.{place}.ServerId"), bad.clone())),
    }
    (testbed, bad)
}

/// Although it is the only backend.
async fn costs_no_address(kind: Kind, code: &'static str) {
    let (testbed, _) = refusing(kind, code).await;
    let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
    kind.expose(&testbed, "web", &[80], &[2]);
    until(&format!("{kind:?}, {code}: it has an address"), 4 * SOON, || has_address(kind, &testbed, "web")).await;
    tokio::time::sleep(10 * MINUTE).await;
    let calls = refused(&testbed);
    assert!(calls <= 6, "{kind:?}, {code}: {calls} refused calls in ten minutes");
}

async fn costs_that_backend_alone(kind: Kind, code: &'static str) {
    let (testbed, bad) = refusing(kind, code).await;
    let _product = Product::start(&testbed, &["service", "nlb"], UNCHECKED);
    expose(kind, &testbed, "web");
    until(&format!("{kind:?}, {code}: it is served"), 4 * SOON, || {
        has_address(kind, &testbed, "web") && all_hold(kind, &testbed, 1, &[1, 3])
    })
    .await;
    let told = || {
        let events = testbed.cluster.list("Event").into_iter();
        events
            .filter_map(|it| it["message"].as_str().map(str::to_owned))
            .any(|it| it.contains(&bad) && it.contains(code))
    };
    until(&format!("{kind:?}, {code}: the backend is named"), 4 * SOON, told).await;
    add_node(&testbed, 4);
    until(&format!("{kind:?}, {code}: the others follow"), SOON, || all_hold(kind, &testbed, 1, &[1, 3, 4])).await;
    refused(&testbed);
    tokio::time::sleep(10 * MINUTE).await;
    let calls = refused(&testbed);
    assert!(calls <= 5, "{kind:?}, {code}: {calls} refused calls in ten minutes");
    testbed.cloud.faults().clear();
    until(&format!("{kind:?}, {code}: it serves in the end"), 11 * MINUTE, || {
        all_hold(kind, &testbed, 1, &[1, 2, 3, 4])
    })
    .await;
}
