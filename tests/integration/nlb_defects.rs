//! Defects of the official controller with network load balancers, between the binary and the simulated worlds. Those that a
//! plan alone can show are in `plan::nlb::tests::defects`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Effect, Failure, Match, Version};
use sim::request_hold::Moment;
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::harness::World;
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::nlb_lifecycle::{expose, finish, hostname, instances, is_clean, is_gone, point_at, served, world};
use crate::nlb_moves::users_load_balancer;
use crate::service_features::{containers_ready, gate_condition, pod, pod_endpoint};

const QUIET: Duration = Duration::from_secs(6);

async fn until_served(world: &World, name: &str) {
    world.until("the Service has its name", |_| hostname(&world.service(name)).is_some()).await;
}

fn act(testbed: &Testbed, action: &str, parameters: &[(&str, &str)]) -> Value {
    testbed.cloud.act("nlb", action, parameters).unwrap()
}

async fn settle(world: &World, is_so: impl Fn(&Testbed) -> bool) {
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.until("the cloud has done it", is_so).await;
}

/// A server group of a user without servers.
async fn users_group(world: &World, name: &str) -> String {
    let vpc = world.testbed.cloud.look(|account| account.vswitches.values().next().unwrap().vpc.clone());
    let made = act(&world.testbed, "CreateServerGroup", &[("ServerGroupName", name), ("VpcId", &vpc)]);
    settle(world, |_| true).await;
    made["ServerGroupId"].as_str().unwrap().to_owned()
}

fn servers_of(testbed: &Testbed, group: &str) -> usize {
    testbed.cloud.look(|account| account.nlb.groups.get(group).map_or(0, |group| group.servers.len()))
}

/// What the API server refuses to say of a Service is no reason to give its load balancer up.
#[tokio::test]
async fn a_service_that_cannot_be_read_is_neither_cleaned_nor_forgotten() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    until_served(&world, "web").await;
    for verb in ["get", "list", "watch"] {
        let effect = Effect::Refuse(Failure::internal_error());
        world.testbed.cluster.trouble_times(Match::new(verb, "services"), effect, usize::MAX);
    }
    world.testbed.cluster.drop_watches();
    point_at(&world.testbed, "web", &["node-2"]);
    let followed = [("80".to_owned(), instances(&[2]))];
    world.until("backends follow all the same", |testbed| served(testbed) == followed).await;
    world.testbed.cluster.calm();
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |testbed| is_gone(testbed, "web")).await;
    assert!(is_clean(&world.testbed), "{:?}", world.testbed.cloud.snapshot());
    finish(&world, ccm).await;
}

/// The load balancer vanishes before its Service goes, a user's or one of ours.
#[tokio::test]
async fn without_the_load_balancer_the_groups_still_go_with_the_service() {
    let world = world(Duration::from_millis(100)).await;
    let id = users_load_balancer(&world.testbed, "users");
    settle(&world, |testbed| testbed.cloud.network_load_balancer(&id)["status"] == "Active").await;
    expose(&world.testbed, "reused", &[80], &["node-1"], &[("id", &id), ("force-override-listeners", "true")]);
    expose(&world.testbed, "own", &[80], &["node-1"], &[]);
    let ccm = world.start();
    until_served(&world, "reused").await;
    until_served(&world, "own").await;
    assert_eq!(world.testbed.cloud.look(|account| account.nlb.groups.len()), 2);
    finish(&world, ccm).await;
    world.testbed.cloud.edit(|account| account.nlb.balancers.clear());
    let ccm = world.start();
    for name in ["reused", "own"] {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
        world.until("the Service is gone", |testbed| is_gone(testbed, name)).await;
    }
    assert!(is_clean(&world.testbed), "{:?}", world.testbed.cloud.snapshot());
    finish(&world, ccm).await;
}

/// Backends of ours leave a group that the Service no longer names; those of the user stay in it.
#[tokio::test]
async fn backends_follow_to_another_named_group_and_leave_the_former_one() {
    let world = world(Duration::from_millis(100)).await;
    let id = users_load_balancer(&world.testbed, "users");
    settle(&world, |testbed| testbed.cloud.network_load_balancer(&id)["status"] == "Active").await;
    let (first, second) = (users_group(&world, "first").await, users_group(&world, "second").await);
    let listener = |port: &str| {
        let parameters = [
            ("LoadBalancerId", id.as_str()),
            ("ListenerProtocol", "TCP"),
            ("ListenerPort", port),
            ("ServerGroupId", &first),
        ];
        act(&world.testbed, "CreateListener", &parameters);
    };
    listener("9000");
    let third = sim::testbed::instance(3);
    let by_hand = [
        ("ServerGroupId", first.as_str()),
        ("Servers.1.ServerId", &third),
        ("Servers.1.ServerType", "Ecs"),
        ("Servers.1.Port", "9000"),
        ("Servers.1.Weight", "7"),
    ];
    act(&world.testbed, "AddServersToServerGroup", &by_hand);
    settle(&world, |testbed| servers_of(testbed, &first) == 1).await;
    // Listeners are the user's, so that only the group's backends are ours.
    let named = |group: &str| format!("{group}:80,{group}:81");
    expose(&world.testbed, "web", &[80, 81], &["node-1"], &[("id", &id), ("vgroup-port", &named(&first))]);
    let ccm = world.start();
    world.until("both ports share the group", |testbed| servers_of(testbed, &first) == 3).await;
    let remapped = json!({"metadata": {"annotations": {
        "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-vgroup-port": named(&second)}}});
    world.testbed.cluster.patch("Service", "default", "web", &remapped).unwrap();
    let moved = |testbed: &Testbed| (servers_of(testbed, &first), servers_of(testbed, &second)) == (1, 2);
    world.until("they moved", moved).await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |testbed| is_gone(testbed, "web")).await;
    assert_eq!((servers_of(&world.testbed, &first), servers_of(&world.testbed, &second)), (1, 0));
    finish(&world, ccm).await;
}

/// What a plan prints changes nothing, neither in the cloud nor on the Service.
#[tokio::test]
async fn a_plan_of_a_network_load_balancer_is_printed_and_writes_nothing() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let (printed, _) = world.plan().await;
    for part in ["create network load balancer a", "create group k8s.", "create listener 80/TCP"] {
        assert!(printed.contains(part), "{printed}");
    }
    assert_eq!(world.testbed.cloud.count_writes(), 0);
    assert_eq!(world.testbed.cluster.writes().len(), 0, "{:?}", world.testbed.cluster.writes());
    assert!(world.service("web")["metadata"]["finalizers"].is_null());
}

/// The finalizer stays until the status is cleared, and nothing is written where nothing differs.
#[tokio::test]
async fn a_service_is_let_go_only_once_its_status_is_cleared() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    until_served(&world, "web").await;
    world.until_quiet(QUIET).await;
    world.testbed.cluster.clear_calls();
    let touched = json!({"metadata": {"annotations": {"touched": "yes"}}});
    world.testbed.cluster.patch("Service", "default", "web", &touched).unwrap();
    world.until_quiet(QUIET).await;
    assert_eq!(
        world.testbed.cluster.count("patch", "services") + world.testbed.cluster.count("patch", "services/status"),
        0
    );
    let refused = Effect::Refuse(Failure::internal_error());
    world.testbed.cluster.trouble_times(Match::new("patch", "services/status"), refused, usize::MAX);
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    let told = world.until_event("Service", "web", "CleanLoadBalancerFailed").await;
    assert!(told.contains("could not be written"), "{told}");
    assert_eq!(world.service("web")["metadata"]["finalizers"], json!(["service.k8s.alibaba/nlb"]));
    world.testbed.cluster.calm();
    world.until("the Service is gone", |testbed| is_gone(testbed, "web")).await;
    finish(&world, ccm).await;
}

/// Load balancers that are being made keep no worker.
#[tokio::test]
async fn backends_follow_while_more_load_balancers_are_being_made_than_there_are_workers() {
    let world = world(Duration::from_millis(100)).await;
    world.edit(|text| text + "[nlb]\nconcurrency = 1\n");
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    until_served(&world, "web").await;
    world.testbed.cloud.dials(|dials| dials.nlb_creation_time = Duration::from_secs(3600));
    for name in ["one", "two", "three"] {
        expose(&world.testbed, name, &[80], &["node-1"], &[]);
    }
    world.until("they are being made", |testbed| testbed.cloud.count("nlb:CreateLoadBalancer") == 4).await;
    point_at(&world.testbed, "web", &["node-2"]);
    let followed = |testbed: &Testbed| served(testbed) == [("80".to_owned(), instances(&[2]))];
    world.until("backends follow", followed).await;
    finish(&world, ccm).await;
}

/// The answer of each creation is lost once, and nothing is made twice.
#[tokio::test]
async fn a_creation_whose_answer_is_lost_makes_one_of_each() {
    let world = world(Duration::from_millis(100)).await;
    for action in ["nlb:CreateLoadBalancer", "nlb:CreateServerGroup", "nlb:CreateListener", "CreateSecurityGroup"] {
        world.testbed.cloud.faults().script(action, Fault::AnswerLost);
    }
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
    world.testbed.cluster.patch("Service", "default", "web", &ranges).unwrap();
    let ccm = world.start();
    until_served(&world, "web").await;
    assert!(world.testbed.cloud.faults().is_spent());
    world.until_quiet(QUIET).await;
    world.testbed.cloud.look(|account| {
        let listeners: usize = account.nlb.balancers.values().map(|balancer| balancer.listeners.len()).sum();
        let made = (account.nlb.balancers.len(), account.nlb.groups.len(), listeners, account.security_groups.len());
        assert_eq!(made, (1, 1, 1, 1));
    });
    finish(&world, ccm).await;
}

/// Endpoints are followed from what is watched, without a question to the API server.
#[tokio::test]
async fn endpoints_are_followed_without_asking_the_api_server() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    until_served(&world, "web").await;
    world.until_quiet(QUIET).await;
    world.testbed.cluster.clear_calls();
    point_at(&world.testbed, "web", &["node-1", "node-2"]);
    let followed = [("80".to_owned(), instances(&[1, 2]))];
    world.until("backends follow", |testbed| served(testbed) == followed).await;
    let asked: Vec<_> = ["services", "nodes", "endpoints", "endpointslices", "pods"]
        .into_iter()
        .filter(|target| world.testbed.cluster.count("get", target) + world.testbed.cluster.count("list", target) > 0)
        .collect();
    assert_eq!(asked, Vec::<&str>::new());
    finish(&world, ccm).await;
}

/// A backend that the cloud takes and then cannot add holds up no other.
#[tokio::test]
async fn of_a_job_that_fails_only_the_backend_to_blame_is_left_out() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    until_served(&world, "web").await;
    let bad = sim::testbed::instance(2);
    // Whatever batch has it fails, in either place.
    for number in 1..=3 {
        let parameters = [(format!("Servers.{number}.ServerId"), bad.clone())].into();
        world.testbed.cloud.faults().matching("AddServersToServerGroup", parameters, Fault::JobFails, None);
    }
    point_at(&world.testbed, "web", &["node-1", "node-2", "node-3"]);
    let others = [("80".to_owned(), instances(&[1, 3]))];
    world.until("the others are there", |testbed| served(testbed) == others).await;
    let told = |world: &World| {
        let events = world.events("Service", "web");
        events.iter().any(|(_, _, message)| message.contains("left out") && message.contains(&bad))
    };
    world.until("it is told which is left out", |_| told(&world)).await;
    world.testbed.cloud.faults().clear();
    finish(&world, ccm).await;
}

/// What the cloud took is not there yet, and can still fail.
#[tokio::test]
async fn a_pod_is_ready_only_once_the_job_that_adds_it_has_succeeded() {
    let world = world(Duration::from_millis(100)).await;
    let cloud = &world.testbed.cloud;
    cloud.edit(|cloud| {
        cloud.add_interface("eni-101", "i-play-1", "vsw-i", &["192.168.0.101"]);
    });
    expose(&world.testbed, "web", &[80], &[], &[]);
    let by_pod = json!({"metadata": {"annotations": {"service.beta.kubernetes.io/backend-type": "eni"}}});
    world.testbed.cluster.patch("Service", "default", "web", &by_pod).unwrap();
    world.testbed.cluster.create(pod("gated", true)).unwrap();
    containers_ready(&world.testbed, "gated");
    world.testbed.cluster.set_endpoints("default", "web", &[pod_endpoint(101, "gated").not_ready()]).unwrap();
    cloud.faults().script("AddServersToServerGroup", Fault::JobFails);
    let mut again = cloud.faults().hold("AddServersToServerGroup", 1, Moment::Before);
    let ccm = world.start();
    again.arrived().await;
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("[JobFailed, request "), "{told}");
    assert_eq!(gate_condition(&world.testbed, "gated"), None);
    again.release();
    let opened = Some(("True".to_owned(), "ServerRegistered".to_owned()));
    world.until("the gate is open", |_| gate_condition(&world.testbed, "gated") == opened).await;
    assert_eq!(served(&world.testbed), [("80".to_owned(), ["eni-101".to_owned()].into())]);
    finish(&world, ccm).await;
}

/// So many pods of a Deployment that grows, one each second.
const GROWS_TO: u8 = 90;

/// A Service of pods that wait for its load balancer and whose containers are not ready yet. Each change of backends takes longer
/// than it takes until the next pod is ready.
async fn growing() -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(1);
    testbed.cloud.dials(|dials| {
        dials.nlb_job_time = Duration::from_millis(1500);
        dials.nlb_job_times.clear();
    });
    expose(&testbed, "web", &[80], &[], &[]);
    let by_pod = json!({"metadata": {"annotations": {"service.beta.kubernetes.io/backend-type": "eni"}}});
    testbed.cluster.patch("Service", "default", "web", &by_pod).unwrap();
    for last in 1..=GROWS_TO {
        let address = format!("192.168.0.{}", 100 + last);
        testbed
            .cloud
            .edit(|cloud| drop(cloud.add_interface(&interface(last), "i-play-1", "vsw-i", &[&address]).clone()));
        testbed.cluster.create(pod(&interface(last), true)).unwrap();
    }
    let all: Vec<_> = (1..=GROWS_TO).map(|last| pod_endpoint(100 + last, &interface(last)).not_ready()).collect();
    testbed.cluster.set_endpoints("default", "web", &all).unwrap();
    testbed
}

/// A pod and its network interface.
fn interface(last: u8) -> String {
    format!("eni-{last}")
}

fn start(testbed: &Testbed) -> Product {
    Product::start(testbed, &["nlb"], "[leader_election]\nenabled = false\n")
}

fn is_ready(testbed: &Testbed) -> Option<bool> {
    let service = testbed.cluster.get("Service", "default", "web")?;
    let conditions = service["status"]["conditions"].as_array()?.clone();
    let found = conditions.iter().find(|it| it["type"] == "LoadBalancerReady")?;
    Some(found["status"] == "True")
}

/// What was seen while the pods became ready, one each second.
#[derive(Default)]
struct Growth {
    /// Which backends were asked for, and when.
    added: BTreeMap<String, Instant>,
    /// When each gate opened.
    opened: BTreeMap<String, Instant>,
    runs: Option<Instant>,
    published: Option<Instant>,
    was_unready: bool,
}

impl Growth {
    async fn watch(testbed: &Testbed) -> Self {
        let (began, mut seen) = (Instant::now(), Self::default());
        let mut ready = 0;
        while began.elapsed() < Duration::from_secs(u64::from(GROWS_TO)) {
            if began.elapsed().as_secs() >= u64::from(ready) {
                ready += 1;
                containers_ready(testbed, &interface(ready));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen.note(testbed);
        }
        seen
    }

    fn note(&mut self, testbed: &Testbed) {
        let now = Instant::now();
        for call in testbed.cloud.take_calls().iter().filter(|call| call.action == "AddServersToServerGroup") {
            let servers = call.parameters.iter().filter(|(name, _)| name.ends_with(".ServerId"));
            for (_, server) in servers {
                self.added.entry(server.clone()).or_insert(now);
            }
        }
        for pod in self.added.keys().filter(|pod| gate_condition(testbed, pod).is_some_and(|it| it.0 == "True")) {
            self.opened.entry(pod.clone()).or_insert(now);
        }
        let runs = testbed.cloud.look(|account| {
            account
                .nlb
                .balancers
                .values()
                .any(|balancer| balancer.listeners.values().any(|it| it.shown_status() == "Running"))
        });
        self.runs = self.runs.or(runs.then_some(now));
        let is_published = hostname(&testbed.cluster.get("Service", "default", "web").unwrap()).is_some();
        self.published = self.published.or(is_published.then_some(now));
        self.was_unready |= is_ready(testbed) == Some(false);
    }

    /// Pods whose gate opened too late, or never.
    fn late(&self) -> Vec<&str> {
        let end = *self.added.values().max().unwrap();
        let is_late = |(pod, added): &(&String, &Instant)| {
            self.opened.get(*pod).copied().unwrap_or(end).duration_since(**added) > Duration::from_secs(10)
        };
        self.added.iter().filter(is_late).map(|(pod, _)| pod.as_str()).collect()
    }
}

/// As while a Deployment grows that others use already.
#[test]
fn each_pod_of_a_growing_deployment_is_ready_soon_although_the_next_ones_are_being_added() {
    let (seen, log) = on_a_clock_of_its_own(0, async {
        let testbed = growing().await;
        let _product = start(&testbed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(is_ready(&testbed), Some(true));
        drop(testbed.cloud.take_calls());
        Growth::watch(&testbed).await
    });
    assert!(seen.added.len() > 60, "{log}");
    assert_eq!(seen.late(), [""; 0], "{log}");
    assert!(!seen.was_unready, "it is in sync but for the last pods: {log}");
}

/// As where a Service and its Deployment are applied together.
#[test]
fn a_new_service_whose_pods_keep_coming_is_served_and_published_soon() {
    let ((began, seen), log) = on_a_clock_of_its_own(0, async {
        let testbed = growing().await;
        let _product = start(&testbed);
        (Instant::now(), Growth::watch(&testbed).await)
    });
    let runs = seen.runs.unwrap_or_else(|| panic!("there is no listener: {log}"));
    let published = seen.published.unwrap_or_else(|| panic!("there is no address: {log}"));
    assert!(runs.duration_since(began) < Duration::from_secs(20), "{log}");
    assert!(published.duration_since(runs) < Duration::from_secs(15), "{log}");
    assert_eq!(seen.late(), [""; 0], "{log}");
}
