//! Services of class `alibabacloud.com/nlb`, from their first call to their last, between the binary and the simulated
//! worlds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::Endpoint;
use sim::request_hold::Moment;
use sim::testbed::Testbed;
use tokio::task::JoinSet;

use crate::harness::{Ccm, PATIENCE, World, counts};

const CLASS: &str = "alibabacloud.com/nlb";
const FINALIZER: &str = "service.k8s.alibaba/nlb";
pub(crate) const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
/// Longer than any job takes to come back to.
pub(crate) const QUIET: Duration = Duration::from_secs(6);

/// Makes a Service of the class with an endpoint on each of `nodes`.
pub(crate) fn expose(testbed: &Testbed, name: &str, ports: &[u16], nodes: &[&str], annotations: &[(&str, &str)]) {
    let ports: Vec<_> = ports
        .iter()
        .map(|port| json!({"name": format!("p{port}"), "port": port, "targetPort": 8080, "protocol": "TCP"}))
        .collect();
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    let spec = json!({
        "type": "LoadBalancer", "loadBalancerClass": CLASS, "ports": ports, "externalTrafficPolicy": "Local",
    });
    let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
    testbed.cluster.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).unwrap();
    point_at(testbed, name, nodes);
}

pub(crate) fn point_at(testbed: &Testbed, name: &str, nodes: &[&str]) {
    let endpoint = |(number, node): (u8, &&str)| Endpoint::ready([10, 98, number, 10].into(), node);
    let endpoints: Vec<_> = (1..).zip(nodes).map(endpoint).collect();
    testbed.cluster.set_endpoints("default", name, &endpoints).unwrap();
}

pub(crate) fn hostname(service: &Value) -> Option<&str> {
    service["status"]["loadBalancer"]["ingress"][0]["hostname"].as_str()
}

/// Instances behind each listener, by its port.
pub(crate) fn served(testbed: &Testbed) -> Vec<(String, BTreeSet<String>)> {
    testbed.cloud.look(|account| {
        let listeners = account.nlb.balancers.values().flat_map(|balancer| balancer.listeners.values());
        let behind = |group: &str| {
            let servers = account.nlb.groups.get(group).map(|group| group.servers.clone()).unwrap_or_default();
            servers.iter().map(|server| server.id.clone()).collect()
        };
        let mut all: Vec<_> = listeners.map(|listener| (listener.port.to_string(), behind(&listener.group))).collect();
        all.sort();
        all
    })
}

pub(crate) fn instances(numbers: &[u8]) -> BTreeSet<String> {
    numbers.iter().map(|number| sim::testbed::instance(*number)).collect()
}

/// Whether nothing is left in the cloud.
pub(crate) fn is_clean(testbed: &Testbed) -> bool {
    testbed.cloud.look(|account| {
        account.nlb.balancers.is_empty() && account.nlb.groups.is_empty() && account.security_groups.is_empty()
    })
}

pub(crate) fn is_gone(testbed: &Testbed, name: &str) -> bool {
    testbed.cluster.get("Service", "default", name).is_none()
}

/// A world in which jobs take `time`.
pub(crate) async fn world(time: Duration) -> World {
    let world = World::new(&["nlb"], "").await;
    world.testbed.cloud.dials(|dials| {
        (dials.nlb_job_time, dials.nlb_creation_time) = (time, time);
        dials.nlb_job_times.clear();
        dials.security_group_release = time;
    });
    for number in 1..=3 {
        world.testbed.join(number);
    }
    world
}

pub(crate) async fn finish(world: &World, ccm: Ccm) {
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_service_gets_its_dns_name_follows_its_endpoints_and_leaves_nothing() {
    let world = world(Duration::from_millis(300)).await;
    expose(&world.testbed, "web", &[80, 443], &["node-1"], &[]);
    let ccm = world.start();
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    assert_eq!(served(&world.testbed), [("443".to_owned(), instances(&[1])), ("80".to_owned(), instances(&[1]))]);
    let service = world.service("web");
    let dns = world.testbed.cloud.look(|account| account.nlb.balancers.values().next().unwrap().dns.clone());
    assert_eq!(hostname(&service), Some(dns.as_str()));
    assert_eq!(service["metadata"]["finalizers"], json!([FINALIZER]));
    let id = world.testbed.cloud.look(|account| account.nlb.balancers.keys().next().unwrap().clone());
    assert_eq!(service["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"], json!(id));
    world.until_event("Service", "web", "EnsuredLoadBalancer").await;

    point_at(&world.testbed, "web", &["node-2", "node-3"]);
    let both = |port: &str| (port.to_owned(), instances(&[2, 3]));
    world.until("backends follow", |testbed| served(testbed) == [both("443"), both("80")]).await;

    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |testbed| is_gone(testbed, "web")).await;
    assert!(is_clean(&world.testbed), "{:?}", world.testbed.cloud.snapshot());
    finish(&world, ccm).await;
}

#[tokio::test]
async fn other_services_are_left_alone() {
    let world = world(Duration::from_millis(100)).await;
    world.testbed.expose("classic", &[80], &["node-1"], &[]);
    let ccm = world.start();
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    assert!(world.service("classic")["metadata"]["finalizers"].is_null());
    assert_eq!(world.testbed.cloud.look(|account| account.nlb.balancers.len()), 1);
    finish(&world, ccm).await;
}

#[tokio::test]
async fn common_operations_take_few_calls() {
    let world = world(Duration::from_millis(300)).await;
    let ccm = world.start();
    world.until_quiet(QUIET).await;
    world.take_calls();
    let job_status = ["ListAsynJobs", "GetLoadBalancerAttribute"];
    let take = || {
        let mut calls = world.take_calls();
        calls.retain(|action, _| !job_status.contains(&action.as_str()));
        calls
    };

    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    world.until_quiet(QUIET).await;
    let made = [
        ("ListLoadBalancers", 2),
        ("ListServerGroups", 1),
        ("CreateLoadBalancer", 1),
        ("CreateServerGroup", 1),
        ("AddServersToServerGroup", 1),
        ("CreateListener", 1),
    ];
    assert_eq!(take(), counts(&made), "a new Service with one port");

    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    world.testbed.cluster.patch("Service", "default", "web", &touched).unwrap();
    world.until_quiet(QUIET).await;
    assert_eq!(take(), counts(&[]), "nothing changes");

    point_at(&world.testbed, "web", &["node-1", "node-2"]);
    world.until_quiet(QUIET).await;
    assert_eq!(take(), counts(&[("AddServersToServerGroup", 1)]), "one node more");

    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |testbed| is_gone(testbed, "web")).await;
    world.until_quiet(QUIET).await;
    let deleted = [
        ("ListLoadBalancers", 1),
        ("ListServerGroups", 1),
        ("ListServerGroupServers", 1),
        ("UpdateLoadBalancerProtection", 1),
        ("DeleteLoadBalancer", 1),
        ("DeleteServerGroup", 1),
    ];
    assert_eq!(take(), counts(&deleted), "a deletion");
    finish(&world, ccm).await;
}

#[tokio::test]
async fn an_instance_that_is_released_before_its_pod_is_gone_brings_no_warning() {
    let world = world(Duration::from_millis(300)).await;
    expose(&world.testbed, "web", &[80], &["node-1", "node-2"], &[]);
    let ccm = world.start();
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    world.testbed.cloud.release_instance(&sim::testbed::instance(2));
    point_at(&world.testbed, "web", &["node-1", "node-3"]);
    let refused = |testbed: &Testbed| {
        let calls = testbed.cloud.calls();
        calls.iter().any(|call| call.action == "RemoveServersFromServerGroup" && call.outcome.contains("BackendServer"))
    };
    world.until("the cloud knows nothing of the server that is removed", refused).await;
    point_at(&world.testbed, "web", &["node-3"]);
    world.until("pods are followed", |testbed| served(testbed) == [("80".to_owned(), instances(&[3]))]).await;
    let warnings: Vec<_> = world.events("Service", "web").into_iter().filter(|(kind, ..)| kind == "Warning").collect();
    assert_eq!(warnings, vec![]);
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_job_that_fails_is_told_with_its_request_and_tried_again() {
    let world = world(Duration::from_millis(200)).await;
    world.testbed.cloud.faults().script("nlb:AddServersToServerGroup", Fault::JobFails);
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("add to k8s.") && told.contains("[JobFailed, request "), "{told}");
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    assert_eq!(served(&world.testbed), [("80".to_owned(), instances(&[1]))]);
    finish(&world, ccm).await;
}

#[tokio::test]
async fn defaults_of_the_configuration_hold_for_load_balancers_made_after_their_change() {
    let world = world(Duration::from_millis(100)).await;
    let ccm = world.start();
    expose(&world.testbed, "before", &[80], &["node-1"], &[]);
    world.until("the Service has its name", |_| hostname(&world.service("before")).is_some()).await;
    world.edit(|text| text + "[nlb.defaults]\naddress_type = \"intranet\"\ntags = { team = \"blue\" }\n");
    world.until("the file is read", |_| ccm.log().contains("nlb.defaults.tags")).await;
    expose(&world.testbed, "after", &[80], &["node-1"], &[]);
    world.until("the Service has its name", |_| hostname(&world.service("after")).is_some()).await;
    let dns = hostname(&world.service("after")).unwrap().to_owned();
    world.testbed.cloud.look(|account| {
        let made = account.nlb.balancers.values().find(|balancer| balancer.dns == dns).unwrap();
        assert_eq!((made.address_type.as_str(), made.tags["team"].as_str()), ("Intranet", "blue"));
    });
    finish(&world, ccm).await;
}

#[tokio::test]
async fn no_listener_is_made_before_its_group_has_its_backends() {
    let world = world(Duration::from_millis(200)).await;
    world.testbed.cloud.dials(|dials| {
        dials.nlb_job_times.insert("AddServersToServerGroup".to_owned(), Duration::from_secs(5));
    });
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    let added = |testbed: &Testbed| testbed.cloud.count("AddServersToServerGroup") > 0;
    world.until("backends are being added", added).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.testbed.cloud.count("nlb:CreateListener"), 0);
    assert_eq!(hostname(&world.service("web")), None);
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    finish(&world, ccm).await;
}

#[tokio::test]
async fn source_ranges_are_in_force_before_a_listener_and_go_with_the_service() {
    let world = world(Duration::from_millis(200)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ranges = |ranges: Value| json!({"spec": {"loadBalancerSourceRanges": ranges}});
    world.testbed.cluster.patch("Service", "default", "web", &ranges(json!(["10.0.0.0/8"]))).unwrap();
    let ccm = world.start();
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    let joined = |testbed: &Testbed| {
        testbed.cloud.look(|account| account.nlb.balancers.values().next().unwrap().security_groups.len())
    };
    assert_eq!(joined(&world.testbed), 1);
    assert!(world.testbed.cloud.count("LoadBalancerJoinSecurityGroup") == 1);
    world.testbed.cluster.patch("Service", "default", "web", &ranges(Value::Null)).unwrap();
    let no_group = |testbed: &Testbed| testbed.cloud.look(|account| account.security_groups.is_empty());
    world.until("the ranges are gone", |testbed| joined(testbed) == 0 && no_group(testbed)).await;
    world.testbed.cluster.patch("Service", "default", "web", &ranges(json!(["10.0.0.0/8"]))).unwrap();
    world.until("the ranges are back", |testbed| joined(testbed) == 1).await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |testbed| is_gone(testbed, "web")).await;
    assert!(is_clean(&world.testbed), "{:?}", world.testbed.cloud.snapshot());
    finish(&world, ccm).await;
}

/// Sources that security groups of joined load balancers let in, and how many of these groups there are.
fn admitted(testbed: &Testbed) -> (BTreeSet<String>, usize) {
    testbed.cloud.look(|account| {
        let joined: Vec<_> = account.nlb.balancers.values().flat_map(|it| &it.security_groups).collect();
        let rules = joined.iter().flat_map(|id| account.security_groups[*id].rules.values());
        let accepts = rules.filter(|rule| rule.policy.eq_ignore_ascii_case("accept"));
        (accepts.filter_map(|rule| rule.fields.get("SourceCidrIp").cloned()).collect(), joined.len())
    })
}

#[tokio::test]
async fn a_load_balancer_with_source_ranges_stays_shut_through_mistakes_and_large_edits() {
    let world = world(Duration::from_millis(200)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let blocks = |second: u8, count: u8| (0..count).map(|it| format!("10.{second}.{it}.0/24")).collect::<BTreeSet<_>>();
    let edit = |change: Value| world.testbed.cluster.patch("Service", "default", "web", &change).unwrap();
    let ranges = |ranges: &BTreeSet<String>| edit(json!({"spec": {"loadBalancerSourceRanges": ranges}}));
    let annotation = |key: &str, value: Value| {
        edit(json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}}));
    };
    ranges(&blocks(0, 110));
    let ccm = world.start();
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    assert_eq!(admitted(&world.testbed), (blocks(0, 110), 1));

    // More than a security group holds beside those before.
    ranges(&blocks(1, 110));
    let replaced = (blocks(1, 110), 1);
    world.until("others are let in", |testbed| admitted(testbed) == replaced).await;

    ranges(&blocks(2, 191));
    let told = |text: &str| world.events("Service", "web").iter().any(|(_, _, message)| message.contains(text));
    world.until("the mistake is told", |_| told("must have at most 190 blocks")).await;
    world.until_quiet(QUIET).await;
    assert_eq!(admitted(&world.testbed), replaced);
    annotation("manage", json!("listeners"));
    world.until_quiet(QUIET).await;
    assert_eq!(admitted(&world.testbed), replaced);
    annotation("manage", Value::Null);
    ranges(&blocks(3, 2));
    world.until("the correction is in force", |testbed| admitted(testbed) == (blocks(3, 2), 1)).await;
    finish(&world, ccm).await;
}

/// Of two Services one, which has a security group, vanished while no controller ran.
async fn with_a_vanished_service() -> World {
    let world = world(Duration::from_millis(200)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
    world.testbed.cluster.patch("Service", "default", "web", &ranges).unwrap();
    expose(&world.testbed, "kept", &[80], &["node-1"], &[]);
    let ccm = world.start();
    for name in ["web", "kept"] {
        world.until("it has its name", |_| hostname(&world.service(name)).is_some()).await;
    }
    finish(&world, ccm).await;
    let released = json!({"metadata": {"finalizers": null}});
    world.testbed.cluster.patch("Service", "default", "web", &released).unwrap();
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world
}

/// What `gc` prints, line by line, and its exit code.
async fn gc(world: &World, arguments: &[&str]) -> (Vec<String>, Option<i32>) {
    let output = world.run(&[&["gc"], arguments].concat()).await;
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text.lines().map(str::to_owned).collect(), output.status.code())
}

/// Load balancers, server groups and security groups.
fn left(testbed: &Testbed) -> (usize, usize, usize) {
    testbed.cloud.look(|account| (account.nlb.balancers.len(), account.nlb.groups.len(), account.security_groups.len()))
}

#[tokio::test]
async fn what_a_vanished_service_left_is_reported_and_deleted_by_gc_with_its_groups() {
    let world = with_a_vanished_service().await;
    let (listed, code) = gc(&world, &[]).await;
    assert!(listed.len() == 1 && listed[0].starts_with("without owner: load balancer nlb-"), "{listed:?}");
    assert_eq!(code, Some(2));
    let (deleted, _) = gc(&world, &["--delete", "--after", "1"]).await;
    assert!(deleted[0].starts_with("deleted: load balancer nlb-"), "{deleted:?}");
    assert_eq!(left(&world.testbed), (1, 1, 0), "{deleted:?}");
}

/// Whether its listeners use them or not.
#[tokio::test]
async fn gc_names_the_groups_that_go_with_an_orphaned_load_balancer_and_no_group_that_another_one_uses() {
    let world = with_a_vanished_service().await;
    let gone = world.testbed.cloud.look(|account| {
        let (id, orphan) = account.nlb.balancers.iter().find(|(_, it)| !it.security_groups.is_empty()).unwrap();
        [id.clone(), orphan.listeners.values().next().unwrap().group.clone(), orphan.security_groups[0].clone()]
    });
    let names_all = |lines: &[String]| lines.len() == 1 && gone.iter().all(|id| lines[0].contains(id.as_str()));
    let (listed, code) = gc(&world, &[]).await;
    assert!(names_all(&listed) && listed[0].starts_with("without owner: load balancer nlb-"), "{listed:?}");
    assert_eq!(code, Some(2));
    world.testbed.cloud.edit(|account| {
        let orphan = account.nlb.balancers.get_mut(&gone[0]).unwrap();
        orphan.listeners.clear();
        orphan.security_groups.clear();
    });
    let (listed, _) = gc(&world, &[]).await;
    assert!(names_all(&listed), "{listed:?}");
    // The other load balancer uses the security group now.
    world.testbed.cloud.edit(|account| {
        let other = account.nlb.balancers.iter_mut().find(|(id, _)| **id != gone[0]).unwrap().1;
        other.security_groups.push(gone[2].clone());
    });
    let (deleted, code) = gc(&world, &["--delete", "--after", "1"]).await;
    assert!(deleted.len() == 1 && deleted[0].starts_with("deleted: load balancer nlb-"), "{deleted:?}");
    assert!(!deleted[0].contains(gone[2].as_str()), "{deleted:?}");
    assert_eq!((left(&world.testbed), code), ((1, 1, 1), Some(0)));
}

#[tokio::test]
async fn what_a_killed_gc_left_of_a_load_balancer_the_next_one_finds_and_deletes() {
    let of = async |action: &str, moment: Moment, remains: &[&str]| {
        let world = with_a_vanished_service().await;
        let mut held = world.testbed.cloud.faults().hold(action, 0, moment);
        let killed = world.start_command(&["gc", "--delete", "--after", "1"]);
        held.arrived().await;
        killed.kill().await;
        held.lose();
        let (listed, code) = gc(&world, &[]).await;
        let expected = |line: &String, kind: &&str| line.starts_with(&format!("without owner: {kind} "));
        assert!(
            listed.len() == remains.len() && listed.iter().zip(remains).all(|(line, kind)| expected(line, kind)),
            "{listed:?}"
        );
        assert_eq!(code, Some(2));
        let (deleted, code) = gc(&world, &["--delete", "--after", "1"]).await;
        assert_eq!((deleted.len(), code), (remains.len(), Some(0)), "{deleted:?}");
        assert_eq!((left(&world.testbed), gc(&world, &[]).await.1), ((1, 1, 0), Some(0)));
    };
    tokio::join!(
        of("DeleteLoadBalancer", Moment::Before, &["load balancer"]),
        of("DeleteServerGroup", Moment::Before, &["server group", "security group"]),
    );
}

#[tokio::test]
async fn the_groups_of_a_load_balancer_that_was_kept_are_no_orphans() {
    let world = world(Duration::from_millis(200)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[("preserve-lb-on-delete", "on")]);
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
    world.testbed.cluster.patch("Service", "default", "web", &ranges).unwrap();
    let ccm = world.start();
    world.until("it has its name", |_| hostname(&world.service("web")).is_some()).await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("it is gone", |testbed| is_gone(testbed, "web")).await;
    finish(&world, ccm).await;
    assert_eq!(left(&world.testbed), (1, 1, 1));
    assert_eq!(gc(&world, &[]).await, (vec!["Nothing is without an owner.".to_owned()], Some(0)));
    // A Service of the same name can use the load balancer, and go again.
    let kept = world.testbed.cloud.look(|account| account.nlb.balancers.keys().next().unwrap().clone());
    expose(&world.testbed, "web", &[81], &["node-1"], &[("id", &kept), ("force-override-listeners", "true")]);
    let ccm = world.start();
    world.until("it has its name again", |_| hostname(&world.service("web")).is_some()).await;
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("it is gone again", |testbed| is_gone(testbed, "web")).await;
    finish(&world, ccm).await;
    assert_eq!(left(&world.testbed), (1, 1, 1), "the load balancer and its groups are the user's");
}

/// Makes a Service and deletes it, with the process killed and started again after so many writes to the cloud. True if there
/// were that many.
async fn killed_after(writes: usize) -> bool {
    let world = world(Duration::from_millis(400)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let mut ccm = Some(world.start());
    let mut killed = false;
    let is_served = |testbed: &Testbed| {
        let service = testbed.cluster.get("Service", "default", "web").unwrap_or_default();
        hostname(&service).is_some() && served(testbed) == [("80".to_owned(), instances(&[1]))]
    };
    for (what, is_so) in [
        ("it serves", &is_served as &(dyn Fn(&Testbed) -> bool + Sync)),
        ("it is gone", &|testbed: &Testbed| is_gone(testbed, "web")),
    ] {
        let began = std::time::Instant::now();
        while !is_so(&world.testbed) {
            assert!(began.elapsed() < 2 * PATIENCE, "killed after {writes}, not so: {what}\n{}", world.logs());
            if !killed && world.testbed.cloud.count_writes() >= writes {
                killed = true;
                ccm.take().unwrap().kill().await;
                ccm = Some(world.start());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if what == "it serves" {
            let made = world.testbed.cloud.look(|account| (account.nlb.balancers.len(), account.nlb.groups.len()));
            assert_eq!(made, (1, 1), "killed after {writes}\n{}", world.logs());
            world.testbed.cluster.delete("Service", "default", "web").unwrap();
        }
    }
    assert!(is_clean(&world.testbed), "killed after {writes}: {:?}\n{}", world.testbed.cloud.snapshot(), world.logs());
    killed
}

#[tokio::test]
async fn a_process_that_is_killed_at_any_write_loses_and_doubles_nothing() {
    let mut running = JoinSet::new();
    (1..=7).for_each(|writes| drop(running.spawn(killed_after(writes))));
    let killed = running.join_all().await;
    assert!(killed.iter().all(|killed| *killed), "there are seven writes: {killed:?}");
}

/// Reads by the tag that a load balancer and its groups are found by.
fn by_mark() -> BTreeMap<String, String> {
    [("Tag.1.Key".to_owned(), "kubernetes.do.not.delete".to_owned())].into()
}

#[tokio::test]
async fn what_one_of_several_reads_shows_is_enough_to_find_a_load_balancer() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    finish(&world, ccm).await;
    let broken = || Fault::Refuse(500, "InternalError".to_owned(), "out of order".to_owned());
    world.testbed.cloud.faults().always("nlb:GetLoadBalancerAttribute", broken());
    world.testbed.cloud.faults().matching("ListLoadBalancers", by_mark(), broken(), None);
    point_at(&world.testbed, "web", &["node-2"]);
    let ccm = world.start();
    let followed = [("80".to_owned(), instances(&[2]))];
    world.until("backends follow", |testbed| served(testbed) == followed).await;
    finish(&world, ccm).await;
}

#[tokio::test]
async fn a_list_that_lacks_a_server_group_in_use_is_told_and_the_group_is_not_made_again() {
    let world = world(Duration::from_millis(100)).await;
    expose(&world.testbed, "web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    world.until("the Service has its name", |_| hostname(&world.service("web")).is_some()).await;
    finish(&world, ccm).await;
    world.testbed.cloud.faults().matching("ListServerGroups", by_mark(), Fault::Partial(0), None);
    let group = world.testbed.cloud.look(|account| account.nlb.groups.keys().next().unwrap().clone());
    let ccm = world.start();
    let told = world.until_event("Service", "web", "ServerGroupsHeldBack").await;
    assert!(told.contains(&group), "{told}");
    assert_eq!(world.testbed.cloud.count("CreateServerGroup"), 1);
    finish(&world, ccm).await;
}
