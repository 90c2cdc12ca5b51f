//! Lists of the cloud that do not show new objects yet: nothing is created twice, or the duplicate is removed soon. The drift
//! check is off, so that it repairs nothing here.

use std::time::Duration;

use serde_json::json;
use sim::cloud::Fault;
use sim::cluster::{Endpoint, Version};
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::end_state::{Foreign, SHARED};
use crate::harness::{EVERY, HASTE};
use crate::in_process::{Product, UNCHECKED, on_a_clock_of_its_own};
use crate::kinds::Kind;

/// How long everything may take: the waits after a lost answer, and what is tried again.
const LONG: Duration = Duration::from_secs(120);

/// A Service with two ports, which nobody has looked at yet.
async fn testbed(kind: Kind) -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    for number in 1..=2 {
        testbed.join(number);
    }
    kind.expose(&testbed, "web", &[80, 443], &[1, 2]);
    testbed
}

fn start(testbed: &Testbed) -> Product {
    Product::start(testbed, EVERY, &format!("{HASTE}{UNCHECKED}"))
}

/// Does this for each kind of load balancer, on a clock of its own; gives what was logged.
fn with_each_kind<F: Future<Output = ()>>(test: impl Fn(Kind) -> F) -> String {
    Kind::BOTH.map(|kind| on_a_clock_of_its_own(0, test(kind)).1).concat()
}

fn groups(testbed: &Testbed) -> usize {
    Kind::BOTH.iter().map(|kind| kind.groups(testbed).len()).sum()
}

/// Waits until the Service is served; gives the largest number of server groups that there were on the way.
async fn served(testbed: &Testbed) -> usize {
    let began = Instant::now();
    let mut most = 0;
    let service = || testbed.cluster.get("Service", "default", "web").unwrap();
    while Kind::BOTH.iter().all(|kind| kind.published(&service()).is_none()) {
        assert!(began.elapsed() < LONG, "it is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(groups(testbed));
    }
    most
}

/// Lets everything settle that is going to.
async fn settled() {
    tokio::time::sleep(LONG).await;
}

#[test]
fn a_group_that_was_perhaps_made_is_waited_for() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        testbed.cloud.faults().script(kind.creates_group(), Fault::LostAndHidden(1));
        let _product = start(&testbed);
        assert_eq!(served(&testbed).await, 2);
        settled().await;
        assert_eq!((groups(&testbed), testbed.cloud.count(kind.creates_group())), (2, 2));
    });
}

#[test]
fn a_group_that_shows_up_after_all_does_not_stay_beside_the_other() {
    let log = with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        // It is looked for when the creation is tried again, when the nodes have their routes, and after the wait.
        testbed.cloud.faults().script(kind.creates_group(), Fault::LostAndHidden(3));
        let _product = start(&testbed);
        assert_eq!(served(&testbed).await, 3, "made again after the wait");
        settled().await;
        let deleted = testbed.cloud.count("DeleteVServerGroup") + testbed.cloud.count("DeleteServerGroup");
        assert_eq!((groups(&testbed), deleted), (2, 1));
    });
    assert!(!log.contains("changed outside of the cluster"), "{log}");
}

#[test]
fn a_group_that_we_made_is_known_although_no_list_shows_it() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        for _ in 0..2 {
            testbed.cloud.faults().script(kind.creates_group(), Fault::Hidden(9));
        }
        testbed.cloud.faults().script(kind.creates_listener(), Fault::AnswerLost);
        let _product = start(&testbed);
        assert_eq!(served(&testbed).await, 2);
        let lists = testbed.cloud.count("DescribeVServerGroups") + testbed.cloud.count("ListServerGroups");
        assert!(lists > 0, "it was looked for");
        settled().await;
        assert_eq!((groups(&testbed), testbed.cloud.count(kind.creates_group())), (2, 2));
    });
}

#[test]
fn a_load_balancer_that_we_made_is_known_although_no_list_shows_it() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        testbed.cloud.faults().script(kind.creates(), Fault::Hidden(9));
        testbed.cloud.faults().script(kind.creates_listener(), Fault::Throttle);
        let _product = start(&testbed);
        assert_eq!(served(&testbed).await, 2);
        settled().await;
        assert_eq!((groups(&testbed), testbed.cloud.count(kind.creates())), (2, 1));
    });
}

#[test]
fn a_load_balancer_that_was_perhaps_made_is_there_once() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        testbed.cloud.faults().script(kind.creates(), Fault::LostAndHidden(2));
        let _product = start(&testbed);
        served(&testbed).await;
        settled().await;
        assert_eq!((kind.count(&testbed), groups(&testbed)), (1, 2));
    });
}

/// A load balancer is made, the answer is lost, no list shows it, and nodes come so that the next one would go elsewhere.
async fn perhaps_made_before_nodes_came() -> (Testbed, Product) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(2);
    let product = start(&testbed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    testbed.cloud.faults().script("CreateLoadBalancer", Fault::AnswerLost);
    testbed.expose("web", &[80], &["node-2"], &[]);
    while load_balancers(&testbed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..8 {
        testbed.cloud.faults().script("DescribeLoadBalancers", Fault::Stale(60));
    }
    for number in [1, 3, 5] {
        testbed.join(number);
    }
    (testbed, product)
}

fn load_balancers(testbed: &Testbed) -> usize {
    testbed.cloud.look(|cloud| cloud.load_balancers.len())
}

#[test]
fn a_load_balancer_that_was_perhaps_made_is_asked_for_in_the_same_place_although_nodes_came() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = perhaps_made_before_nodes_came().await;
        served(&testbed).await;
        settled().await;
        assert_eq!(load_balancers(&testbed), 1);
        let creations = testbed.cloud.calls().into_iter().filter(|call| call.action == "CreateLoadBalancer");
        let zones: Vec<_> =
            creations.map(|call| (call.outcome.clone(), call.parameter("MasterZoneId").to_owned())).collect();
        assert!(zones.len() == 2 && zones[0] == zones[1], "the first try is repeated: {zones:?}");
    });
}

#[test]
fn a_killed_replica_perhaps_made_a_load_balancer_and_the_next_one_makes_none_elsewhere() {
    on_a_clock_of_its_own(0, async {
        let (testbed, product) = perhaps_made_before_nodes_came().await;
        drop(product);
        let _product = start(&testbed);
        served(&testbed).await;
        settled().await;
        assert_eq!(load_balancers(&testbed), 1);
    });
}

#[test]
fn a_late_listener_that_no_service_wants_is_removed() {
    // The look after 30 s shows it, or the last one.
    [1, 2].into_iter().for_each(a_listener_is_missing_from);
}

fn a_listener_is_missing_from(lists: u32) {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        testbed.cloud.faults().script(kind.creates_listener(), Fault::LostAndHidden(lists));
        let _product = start(&testbed);
        let began = Instant::now();
        while kind.listeners(&testbed).is_empty() {
            assert!(began.elapsed() < LONG, "no listener is made");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ports =
            json!({"spec": {"ports": [{"name": "p8443", "port": 8443, "targetPort": 8000, "protocol": "TCP"}]}});
        testbed.cluster.patch("Service", "default", "web", &ports).unwrap();
        served(&testbed).await;
        assert_eq!(kind.listeners(&testbed), [80, 8443], "nothing shows the one that nobody wants");
        settled().await;
        assert_eq!((kind.listeners(&testbed), groups(&testbed)), (vec![8443], 1));
    });
}

#[test]
fn a_late_listener_of_a_killed_replica_that_no_service_wants_is_removed() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        let ports = |port: u16| {
            let port = json!({"name": "p", "port": port, "targetPort": 8000, "protocol": "TCP", "nodePort": 30080});
            let ports = json!({"spec": {"ports": [port]}});
            testbed.cluster.patch("Service", "default", "web", &ports).unwrap();
        };
        ports(80);
        testbed.cloud.faults().script(kind.creates_listener(), Fault::LostAndHidden(1));
        let product = start(&testbed);
        while kind.listeners(&testbed).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(product);
        // The server group is that of the other port, so that only a listener is made.
        ports(8080);
        let _product = start(&testbed);
        served(&testbed).await;
        assert_eq!(kind.listeners(&testbed), [80, 8080], "nothing shows the one that nobody wants");
        settled().await;
        assert_eq!(kind.listeners(&testbed), [8080]);
    });
}

#[test]
fn what_a_killed_replica_created_is_no_duplicate_later() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        testbed.cloud.faults().script(kind.creates_group(), Fault::LostAndHidden(1));
        let product = start(&testbed);
        while groups(&testbed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(product);
        let _product = start(&testbed);
        assert_eq!(served(&testbed).await, 3, "nobody knows of the first one");
        settled().await;
        assert_eq!(groups(&testbed), 2);
    });
}

#[test]
fn a_service_that_is_deleted_right_after_a_lost_answer_leaves_nothing_that_shows_up_late() {
    for creates in [Kind::creates, Kind::creates_group] {
        with_each_kind(async |kind| {
            let testbed = testbed(kind).await;
            testbed.cloud.faults().script(creates(kind), Fault::LostAndHidden(2));
            let _product = start(&testbed);
            let began = Instant::now();
            while testbed.cloud.count(creates(kind)) == 0 {
                assert!(began.elapsed() < LONG, "{} is not called", creates(kind));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            testbed.cluster.delete("Service", "default", "web").unwrap();
            settled().await;
            assert!(testbed.cluster.get("Service", "default", "web").is_none());
            assert_eq!((kind.count(&testbed), groups(&testbed)), (0, 0), "after {}", creates(kind));
        });
    }
}

#[test]
fn a_creation_with_a_lost_answer_makes_one_load_balancer_although_another_client_drops_the_finalizer() {
    with_each_kind(async |kind| {
        let testbed = testbed(kind).await;
        testbed.cloud.faults().script(kind.creates(), Fault::AnswerLost);
        let _product = start(&testbed);
        let began = Instant::now();
        while testbed.cloud.count(kind.creates()) == 0 {
            assert!(began.elapsed() < LONG, "{} is not called", kind.creates());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let lists = if kind == Kind::Nlb { "ListLoadBalancers" } else { "DescribeLoadBalancers" };
        (0..8).for_each(|_| testbed.cloud.faults().script(lists, Fault::Stale(60)));
        let dropped = json!({"metadata": {"finalizers": null}});
        testbed.cluster.patch("Service", "default", "web", &dropped).unwrap();
        let mut most = 0;
        for _ in 0..LONG.as_secs() {
            most = most.max(kind.count(&testbed));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let service = testbed.cluster.get("Service", "default", "web").unwrap();
        assert!(kind.published(&service).is_some(), "{kind:?}: {service}");
        assert_eq!((most, testbed.cloud.count(kind.creates()) > 1), (1, true), "{kind:?}");
    });
}

#[test]
fn a_server_group_that_another_client_keeps_busy_is_looked_at_less_and_less_often() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed(Kind::Nlb).await;
        let product = start(&testbed);
        served(&testbed).await;
        settled().await;
        drop(product);
        testbed.cloud.dials(|dials| dials.nlb_job_time = Duration::from_secs(3600));
        let id = testbed.cloud.look(|account| account.nlb.groups.keys().next().unwrap().clone());
        let change = [("ServerGroupId", id.as_str()), ("Scheduler", "wlc")];
        testbed.cloud.act("nlb", "UpdateServerGroupAttribute", &change).unwrap();
        let before = testbed.cloud.calls().len();
        let _product = start(&testbed);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let calls = testbed.cloud.calls().len() - before;
        assert!((20..300).contains(&calls), "{calls} calls in 10 minutes");
    });
}

#[test]
fn on_a_persons_load_balancer_a_service_leaves_nothing_that_shows_up_late() {
    on_a_clock_of_its_own(0, async {
        const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";
        let testbed = testbed(Kind::Clb).await;
        let _foreign = Foreign::settle(&testbed, &["web"]);
        let (id, force) = (format!("{PREFIX}-id"), format!("{PREFIX}-force-override-listeners"));
        let shared = [(id.as_str(), SHARED), (force.as_str(), "true")];
        testbed.expose("shop", &[8080], &["node-1", "node-2"], &shared);
        let _product = start(&testbed);
        served(&testbed).await;
        settled().await;
        let before = groups(&testbed);
        testbed.cloud.faults().script("CreateVServerGroup", Fault::LostAndHidden(1));
        let ports = json!({"spec": {"ports": [
            {"name": "p8080", "port": 8080, "targetPort": 8000, "protocol": "TCP"},
            {"name": "p8081", "port": 8081, "targetPort": 8001, "protocol": "TCP"},
        ]}});
        testbed.cluster.patch("Service", "default", "shop", &ports).unwrap();
        let began = Instant::now();
        while groups(&testbed) == before {
            assert!(began.elapsed() < LONG, "no group is made");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        testbed.cluster.delete("Service", "default", "shop").unwrap();
        settled().await;
        assert!(testbed.cluster.get("Service", "default", "shop").is_none());
        assert_eq!(groups(&testbed), before - 1, "its groups, both of them, are gone");
    });
}

/// An object that needs something which is new in the cloud.
struct Newcomer {
    what: &'static str,
    /// The list that does not show at first what is new.
    list: &'static str,
    begin: fn(&Testbed),
    is_done: fn(&Testbed) -> bool,
}

/// A Service whose only backend is a pod, by its network interface.
pub(crate) fn by_pod(testbed: &Testbed, kind: Kind) {
    kind.expose(testbed, "web", &[80], &[]);
    let annotations = json!({"service.beta.kubernetes.io/backend-type": "eni"});
    testbed.cluster.patch("Service", "default", "web", &json!({"metadata": {"annotations": annotations}})).unwrap();
    testbed.cloud.edit(|account| {
        account.add_interface("eni-101", "i-play-1", "vsw-i", &["192.168.0.101"]);
    });
    let pod = Endpoint::ready([192, 168, 0, 101].into(), "node-1");
    testbed.cluster.set_endpoints("default", "web", &[pod]).unwrap();
}

const NEWCOMERS: &[Newcomer] = &[
    Newcomer {
        what: "a node is initialised",
        list: "DescribeInstances",
        begin: |testbed| drop(testbed.join(2)),
        is_done: |testbed| {
            testbed
                .cluster
                .get("Node", "", "node-2")
                .is_some_and(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"].is_string())
        },
    },
    Newcomer {
        what: "a volume is labelled",
        list: "DescribeDisks",
        begin: |testbed| testbed.provide("data", "d-1", "cn-hangzhou-i"),
        is_done: |testbed| {
            let volume = testbed.cluster.get("PersistentVolume", "", "data").unwrap();
            volume["metadata"]["labels"]["topology.kubernetes.io/zone"].is_string()
        },
    },
    Newcomer {
        what: "a pod is behind its classic load balancer",
        list: "DescribeNetworkInterfaces",
        begin: |testbed| by_pod(testbed, Kind::Clb),
        is_done: |testbed| Kind::Clb.groups(testbed).iter().flatten().any(|(id, _)| id == "eni-101"),
    },
    Newcomer {
        what: "a pod is behind its network load balancer",
        list: "DescribeNetworkInterfaces",
        begin: |testbed| by_pod(testbed, Kind::Nlb),
        is_done: |testbed| Kind::Nlb.groups(testbed).iter().flatten().any(|(id, _)| id == "eni-101"),
    },
];

#[test]
fn what_the_cloud_lists_late_delays_an_object_by_no_more_than_as_long_again() {
    let mut late = Vec::new();
    for Newcomer { what, list, begin, is_done } in NEWCOMERS {
        for lag in [2, 10, 40] {
            let lag = Duration::from_secs(lag);
            let (took, log) = on_a_clock_of_its_own(0, async {
                let testbed = Testbed::open(Version::NEWEST).await.unwrap();
                testbed.join(1);
                let _product = start(&testbed);
                settled().await;
                testbed.cloud.faults().always(list, Fault::Partial(0));
                begin(&testbed);
                tokio::time::sleep(lag).await;
                testbed.cloud.faults().clear();
                let began = Instant::now();
                while !is_done(&testbed) && began.elapsed() < 3 * LONG {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                began.elapsed()
            });
            if took > lag + Duration::from_secs(3) {
                late.push(format!("{what} {} s after {lag:?} without it\n{log}", took.as_secs()));
            }
        }
    }
    assert!(late.is_empty(), "{}", late.join("\n"));
}
