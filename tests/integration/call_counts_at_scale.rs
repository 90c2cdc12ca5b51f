//! Cloud calls for many nodes and Services, which do not depend on the machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use sim::cluster::{Endpoint, Version};
use sim::population;
use sim::testbed::{Testbed, instance};

use crate::harness::{ALL, Ccm, World, address, is_ready};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::nlb_lifecycle::hostname;

/// The periodic comparisons are for other tests.
const NO_DRIFT_CHECK: &str = "[service]\ndrift_check = \"0s\"\n";
const QUIET: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const NODES: u8 = 6;
const SERVICES: u8 = 12;
/// What a node and its route cost, where others have joined before.
const ONE_NODE: &[(&str, usize)] = &[
    ("CreateRouteEntries", 1),
    ("DescribeInstances", 1),
    ("DescribeRouteEntryList", 1),
    ("ModifyNetworkInterfaceAttribute", 1),
];

/// A world in which the first nodes are in service and nothing is left to do; the cloud enforces its quotas.
async fn settled(nodes: u8) -> (World, Ccm) {
    let world = World::new(ALL, NO_DRIFT_CHECK).await;
    world.testbed.cloud.dials(|dials| {
        dials.rate_quotas = true;
        dials.latency = Duration::from_millis(20);
    });
    let ccm = world.start_serving();
    let names: Vec<String> = (1..=nodes).map(|number| world.testbed.join(number)).collect();
    world.until("nodes are ready", |_| names.iter().all(|name| is_ready(&world.node(name)))).await;
    // When a term begins, it looks once for load balancers without a Service, and whose the account is.
    world.until("it has looked around", |testbed| testbed.cloud.count("DescribeLoadBalancers") > 0).await;
    world.until_quiet(QUIET).await;
    forget(&world.testbed);
    (world, ccm)
}

fn forget(testbed: &Testbed) {
    let _ = testbed.cloud.take_calls();
    testbed.cluster.clear_calls();
}

fn name(number: u8) -> String {
    format!("web-{number}")
}

/// Cloud calls by action since the last look, none of which was refused for its number.
fn calls(testbed: &Testbed) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in testbed.cloud.take_calls() {
        assert!(!call.outcome.starts_with("Throttling"), "{call:?}");
        *counts.entry(call.action).or_default() += 1;
    }
    counts
}

fn counted(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(action, count)| ((*action).to_owned(), *count)).collect()
}

/// Reconciles of Services so far.
async fn reconciles(ccm: &Ccm) -> u64 {
    let (_, metrics) = ccm.page("/metrics").await.unwrap();
    let of_services =
        metrics.lines().filter(|line| line.starts_with("alicloud_ccm_reconciles_total{controller=\"service\""));
    of_services.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Groups that hold this instance.
fn groups_with(testbed: &Testbed, id: &str) -> usize {
    testbed.cloud.look(|cloud| {
        let groups = cloud.load_balancers.values().flat_map(|balancer| balancer.groups.values());
        groups.filter(|group| group.backends.iter().any(|backend| backend.server_id == id)).count()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_four_calls_and_is_written_three_times() {
    let (world, ccm) = settled(1).await;
    let testbed = &world.testbed;
    // Long enough for the watch to show the taint that follows the condition.
    testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(100));
    let node = testbed.join(2);
    world.until("it is ready", |_| is_ready(&world.node(&node))).await;
    world.until_quiet(2 * QUIET).await;
    assert_eq!(calls(testbed), counted(ONE_NODE));

    let writes: Vec<_> = testbed.cluster.writes().into_iter().filter(|call| call.name == node).collect();
    let shown = |call: &sim::cluster::Call| format!("{} {} {:?}", call.verb, call.target(), call.status);
    let expected = ["patch nodes/status Some(200)", "patch nodes Some(200)", "patch nodes/status Some(200)"];
    assert_eq!(writes.iter().map(shown).collect::<Vec<_>>(), expected, "{writes:#?}");
    let body = |index: usize| writes[index].body.clone().unwrap();
    let reason = |status: &serde_json::Value| status["status"]["conditions"][0]["reason"].clone();
    assert!(body(0)["status"]["addresses"].is_array());
    assert_eq!((reason(&body(0)), reason(&body(2))), ("NoRouteCreated".into(), "RouteCreated".into()));
    let spec = body(1)["spec"].clone();
    assert!(spec["taints"].is_array() && body(1)["metadata"]["labels"].is_object(), "{spec}");
    assert_eq!(testbed.cluster.count("get", "nodes"), 0, "nothing had to be read again");

    // Of many at once, each is written as often; what somebody else was quicker with is refused, and looked at again.
    testbed.cluster.clear_calls();
    let names: Vec<String> = (3..=32).map(|number| testbed.join(number)).collect();
    world.until("all are ready", |_| names.iter().all(|name| is_ready(&world.node(name)))).await;
    world.until_quiet(2 * QUIET).await;
    let accepted = testbed.cluster.writes().into_iter().filter(|call| call.status == Some(200));
    let mut written = BTreeMap::<String, usize>::new();
    accepted.filter(|call| call.resource == "nodes").for_each(|call| *written.entry(call.name).or_default() += 1);
    assert_eq!(written, names.into_iter().map(|name| (name, 3)).collect());
    assert!(ccm.stop().await.success());
    assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_takes_four_writes_and_two_reads_and_moving_its_endpoints_few() {
    let (world, ccm) = settled(NODES).await;
    let testbed = &world.testbed;
    testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    world.until_quiet(QUIET).await;
    let expected = counted(&[
        ("CreateLoadBalancer", 1),
        ("CreateLoadBalancerTCPListener", 1),
        ("CreateVServerGroup", 1),
        ("DescribeLoadBalancers", 2),
        ("StartLoadBalancerListener", 1),
    ]);
    assert_eq!(calls(testbed), expected);

    // From now on only nodes with endpoints serve it; the endpoint moves thirty times within three seconds.
    let local = serde_json::json!({"spec": {"externalTrafficPolicy": "Local"}});
    testbed.cluster.patch("Service", "default", "web", &local).unwrap();
    world
        .until("only one backend", |testbed| (2..=NODES).all(|number| groups_with(testbed, &instance(number)) == 0))
        .await;
    world.until_quiet(QUIET).await;
    forget(testbed);
    for step in 1..=30u8 {
        let node = step % NODES + 1;
        let endpoint = Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, node, 10)), &format!("node-{node}"));
        testbed.cluster.set_endpoints("default", "web", &[endpoint]).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.until_quiet(2 * QUIET).await;
    assert_eq!(groups_with(testbed, &instance(30 % NODES + 1)), 1, "the last change counts");
    let counts = calls(testbed);
    assert!(counts.keys().all(|action| action.ends_with("VServerGroupBackendServers")), "nothing is read: {counts:?}");
    assert!(counts.values().sum::<usize>() <= 16, "changes ride together: {counts:?}");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_services_cost_no_more_than_they_must_from_the_first_to_the_last() {
    let (world, ccm) = settled(NODES).await;
    let testbed = &world.testbed;
    let services = usize::from(SERVICES);
    for number in 1..=SERVICES {
        testbed.expose(&name(number), &[80], &["node-1"], &[]);
    }
    let all = || (1..=SERVICES).all(|number| address(&world.service(&name(number))).is_some());
    world.until("all have addresses", |_| all()).await;
    world.until_quiet(QUIET).await;
    assert_eq!(calls(testbed).values().sum::<usize>(), 6 * services);

    // One node more: one write for each group, and what the node itself takes.
    let node = testbed.join(NODES + 1);
    world.until("it is in every group", |testbed| groups_with(testbed, &instance(NODES + 1)) == services).await;
    world.until("it is ready", |_| is_ready(&world.node(&node))).await;
    world.until_quiet(QUIET).await;
    let mut expected = counted(ONE_NODE);
    expected.insert("AddVServerGroupBackendServers".to_owned(), services);
    assert_eq!(calls(testbed), expected);

    // Nothing changes: heartbeats of kubelets cost nothing, and no Service is reconciled.
    testbed.cluster.clear_calls();
    let before = reconciles(&ccm).await;
    for second in 0..3 {
        let time = format!("2040-01-01T00:00:0{second}Z");
        let heartbeat =
            serde_json::json!({"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]});
        for number in 1..=NODES {
            testbed.cluster.patch_status("Node", "", &format!("node-{number}"), &heartbeat).unwrap();
        }
        tokio::time::sleep(QUIET).await;
    }
    assert_eq!(calls(testbed), BTreeMap::new());
    let writes = testbed.cluster.writes();
    let ours: Vec<_> = writes.iter().filter(|call| call.resource != "leases").collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert_eq!(reconciles(&ccm).await - before, 0);

    // So do labels and annotations that nothing looks at.
    for number in 1..=NODES {
        let unrelated = serde_json::json!({"metadata": {"labels": {"mood": "good"}, "annotations": {"mood": "good"}}});
        testbed.cluster.patch("Node", "", &format!("node-{number}"), &unrelated).unwrap();
    }
    world.until_quiet(QUIET).await;
    assert_eq!((reconciles(&ccm).await - before, calls(testbed)), (0, BTreeMap::new()));

    // An endpoint moves: its Service is reconciled, and no other.
    let endpoint = Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, 2, 10)), "node-2");
    testbed.cluster.set_endpoints("default", &name(1), &[endpoint]).unwrap();
    world.until_quiet(QUIET).await;
    assert_eq!((reconciles(&ccm).await - before, calls(testbed)), (1, BTreeMap::new()));

    // Whoever follows one that was killed reads everything, in bulk what can be had in bulk, and writes nothing.
    assert!(!ccm.kill().await.success());
    forget(testbed);
    let ccm = world.start();
    world.until("it has looked", |testbed| testbed.cloud.count("DescribeVServerGroupAttribute") == services).await;
    world.until_quiet(QUIET).await;
    assert_eq!(testbed.cloud.writes().len(), 0);
    let counts = calls(testbed);
    assert_eq!(counts["DescribeVServerGroups"], services);
    let count = |action: &str| counts.get(action).copied().unwrap_or_default();
    assert!(count("DescribeLoadBalancers") + count("DescribeLoadBalancerAttribute") <= 3, "{counts:?}");
    assert!(count("DescribeLoadBalancerListeners") < services, "{counts:?}");

    // Deletion: protection off, delete, and lists that show many at once.
    for number in 1..=SERVICES {
        testbed.cluster.delete("Service", "default", &name(number)).unwrap();
    }
    world.until("all are gone", |_| (1..=SERVICES).all(|number| world.service(&name(number)).is_null())).await;
    assert!(testbed.cloud.look(|cloud| cloud.load_balancers.is_empty()));
    assert_eq!(testbed.cloud.writes().len(), 2 * services);
    let reads = calls(testbed).values().sum::<usize>() - 2 * services;
    assert!(reads <= services / 2, "{reads} reads");
    assert!(ccm.stop().await.success());
    assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_reads_each_server_group_once_and_writes_only_what_differs() {
    let world = World::new(ALL, "").await;
    let ccm = world.start();
    let testbed = &world.testbed;
    let names: Vec<String> = (1..=3).map(|number| testbed.join(number)).collect();
    for number in 1..=SERVICES {
        testbed.expose(&name(number), &[80], &["node-1"], &[]);
    }
    // Only nodes with endpoints serve the first one.
    let local = serde_json::json!({"spec": {"externalTrafficPolicy": "Local"}});
    testbed.cluster.patch("Service", "default", &name(1), &local).unwrap();
    world.until("nodes are ready", |_| names.iter().all(|name| is_ready(&world.node(name)))).await;
    let all = || (1..=SERVICES).all(|number| address(&world.service(&name(number))).is_some());
    world.until("all have addresses", |_| all()).await;
    world.until_quiet(2 * QUIET).await;
    assert_eq!((groups_with(testbed, &instance(1)), groups_with(testbed, &instance(2))), (12, 11));
    assert!(ccm.stop().await.success());

    // While no replica runs, the endpoint of one Service moves.
    forget(testbed);
    let moved = Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, 2, 10)), "node-2");
    testbed.cluster.set_endpoints("default", &name(1), &[moved]).unwrap();
    let ccm = world.start();
    world.until("the endpoint has followed", |testbed| groups_with(testbed, &instance(2)) == 12).await;
    world.until_quiet(QUIET).await;
    assert_eq!(groups_with(testbed, &instance(1)), 11);
    assert_eq!(testbed.cloud.writes().len(), 2);
    let counts = calls(testbed);
    assert_eq!((counts["DescribeVServerGroups"], counts["DescribeVServerGroupAttribute"]), (12, 12), "{counts:?}");

    // A replica that was killed changes nothing about that.
    assert!(!ccm.kill().await.success());
    forget(testbed);
    let ccm = world.start();
    world.until("it has looked", |testbed| testbed.cloud.count("DescribeVServerGroupAttribute") == 12).await;
    assert_eq!(testbed.cloud.writes().len(), 0);
    assert!(ccm.stop().await.success());
    assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
}

/// A large cluster in which nothing happens.
#[test]
fn an_idle_hour_costs_a_few_lists_with_hourly_comparisons_and_nothing_without() {
    // The controller reads instances in parts of 1000.
    const NODES: usize = 1050;
    const SERVICES: usize = 200;
    // The reads of a comparison can fall into two of them.
    const HOURS: u32 = 2;
    let ((with, without), log) = on_a_clock_of_its_own(0, async {
        let testbed = Testbed::with(Version::NEWEST, population::account(NODES + SERVICES)).await.unwrap();
        for number in 0..NODES {
            population::rent(&testbed, number);
            population::stand(&testbed, number).unwrap();
        }
        for number in 0..SERVICES {
            let name = format!("web-{number}");
            population::expose(&testbed, &name, false).unwrap();
            let local = serde_json::json!({"spec": {"externalTrafficPolicy": "Local"}});
            testbed.cluster.patch("Service", "default", &name, &local).unwrap();
        }
        let pod_network = format!("route.cluster_cidrs=[\"{}\"]", population::POD_NETWORK);
        let idle = async |periods: [&str; 3], hours: u32| {
            let set: Vec<&str> = periods.into_iter().chain([pod_network.as_str()]).collect();
            let product = Product::start_with(&testbed, ALL, "", &set);
            // With the published quotas, it takes a while until all is done.
            tokio::time::sleep(HOUR / 2).await;
            forget(&testbed);
            tokio::time::sleep(HOUR * hours).await;
            drop(product);
            let writes = testbed.cluster.writes().iter().filter(|call| call.resource != "leases").count();
            (calls(&testbed), writes)
        };
        let with = idle(["node.period=1h", "route.period=1h", "service.drift_check=1h"], HOURS).await;
        let addressed = testbed.cluster.list("Service").iter().filter(|it| address(it).is_some()).count();
        assert_eq!((testbed.cloud.look(|cloud| cloud.load_balancers.len()), addressed), (SERVICES, SERVICES));
        (with, idle(["node.period=0s", "route.period=0s", "service.drift_check=0s"], 1).await)
    });
    let (calls, writes) = with;
    let of_groups = |action: &str| action.starts_with("DescribeVServerGroup");
    let (groups, lists): (Vec<_>, Vec<_>) = calls.iter().partition(|(action, _)| of_groups(action));
    let total = |of: &[(&String, &usize)]| of.iter().map(|(_, count)| **count).sum::<usize>();
    assert!(total(&lists) < 40 * HOURS as usize, "{calls:?}\n{log}");
    // `service.drift_reads` is a mean: which Services have their turn in these hours follows from random UIDs.
    assert!(total(&groups) < 90 * HOURS as usize, "{calls:?}\n{log}");
    assert!(calls.contains_key("DescribeLoadBalancers"), "{calls:?}");
    assert_eq!(calls["DescribeInstances"], NODES.div_ceil(100) * HOURS as usize);
    assert!(calls.keys().all(|action| action.starts_with("Describe")), "{calls:?}");
    assert_eq!(writes, 0);
    assert_eq!(without, (BTreeMap::new(), 0));
}

/// A world with a node and so many Services that ask for a network load balancer.
async fn exposed_network(services: usize) -> Testbed {
    let testbed = Testbed::with(Version::NEWEST, population::account(services)).await.unwrap();
    population::rent(&testbed, 0);
    population::stand(&testbed, 0).unwrap();
    for number in 0..services {
        population::expose_network(&testbed, &format!("web-{number}"), true).unwrap();
    }
    testbed
}

fn start_nlb(testbed: &Testbed) -> Product {
    Product::start_with(testbed, &["nlb"], "", &["nlb.drift_check=1h"])
}

/// Calls about network load balancers by action since the last look.
fn network_calls(testbed: &Testbed) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in testbed.cloud.take_calls().into_iter().filter(|call| call.product == "nlb") {
        assert_eq!(call.outcome, "OK", "{call:?}");
        *counts.entry(call.action).or_default() += 1;
    }
    counts
}

/// What a restart reads, then what happens after all servers were taken out of their groups, then what an hour takes.
async fn restarted(services: usize) -> (BTreeMap<String, usize>, usize, BTreeMap<String, usize>) {
    let testbed = exposed_network(services).await;
    let product = start_nlb(&testbed);
    tokio::time::sleep(HOUR / 2).await;
    let named = testbed.cluster.list("Service").iter().filter(|service| hostname(service).is_some()).count();
    assert_eq!(named, services);
    drop(product);
    forget(&testbed);
    let product = start_nlb(&testbed);
    tokio::time::sleep(HOUR / 2).await;
    let restart = network_calls(&testbed);
    testbed.cloud.edit(|cloud| cloud.nlb.groups.values_mut().for_each(|group| group.servers.clear()));
    tokio::time::sleep(HOUR).await;
    let servers = testbed.cloud.look(|cloud| cloud.nlb.groups.values().map(|group| group.servers.len()).sum());
    forget(&testbed);
    tokio::time::sleep(HOUR).await;
    drop(product);
    (restart, servers, network_calls(&testbed))
}

#[test]
fn a_hundred_network_load_balancers_are_read_by_lists_after_a_restart_and_at_drift_checks() {
    const SERVICES: usize = 100;
    let ((restart, servers, mut check), log) = on_a_clock_of_its_own(0, restarted(SERVICES));
    // A list answers for ten seconds, in which a hundred server groups are read with half of the quota. The second list of
    // load balancers looks for those without a Service.
    let expected = counted(&[
        ("ListListeners", 1),
        ("ListLoadBalancers", 2),
        ("ListServerGroupServers", SERVICES),
        ("ListServerGroups", 1),
    ]);
    assert_eq!(restart, expected, "{log}");
    // What is taken out of a group is missing in the number of its servers, which a list shows.
    assert_eq!(servers, SERVICES, "{log}");
    let in_turn = check.remove("ListServerGroupServers").unwrap_or_default();
    assert!((1..SERVICES / 2).contains(&in_turn), "{in_turn} server groups were read in an hour\n{log}");
    assert_eq!(check, counted(&[("ListListeners", 1), ("ListLoadBalancers", 1), ("ListServerGroups", 1)]), "{log}");
}

#[test]
fn a_restart_with_one_network_load_balancer_reads_its_four_parts() {
    let ((restart, servers, _), log) = on_a_clock_of_its_own(0, restarted(1));
    let expected = counted(&[
        ("GetLoadBalancerAttribute", 1),
        ("ListListeners", 1),
        ("ListLoadBalancers", 1),
        ("ListServerGroupServers", 1),
        ("ListServerGroups", 1),
    ]);
    assert_eq!((restart, servers), (expected, 1), "{log}");
}

/// Lists answer for ten seconds, in which the cloud has long deleted what they show.
#[test]
fn network_load_balancers_that_go_one_after_another_are_not_taken_from_lists_older_than_their_deletion() {
    const SERVICES: usize = 8;
    let ((writes, left), log) = on_a_clock_of_its_own(0, async {
        let testbed = exposed_network(SERVICES).await;
        let product = start_nlb(&testbed);
        tokio::time::sleep(HOUR / 2).await;
        forget(&testbed);
        for number in 0..SERVICES {
            testbed.cluster.delete("Service", "default", &format!("web-{number}")).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(HOUR / 2).await;
        drop(product);
        let mut writes = BTreeMap::<(String, String), usize>::new();
        for call in testbed.cloud.take_calls().into_iter().filter(|call| call.write) {
            *writes.entry((call.action, call.outcome)).or_default() += 1;
        }
        (writes, testbed.cluster.list("Service").iter().filter(|service| hostname(service).is_some()).count())
    });
    let each = ["DeleteLoadBalancer", "DeleteServerGroup", "UpdateLoadBalancerProtection"];
    let expected = each.map(|action| ((action.to_owned(), "OK".to_owned()), SERVICES));
    assert_eq!((writes, left), (expected.into(), 0), "{log}");
}

/// Deletes all Services at once; gives the calls that takes, and what is left in the cloud.
async fn deleted(testbed: &Testbed) -> (BTreeMap<String, usize>, usize) {
    testbed.cloud.dials(|dials| dials.nlb_job_time = Duration::from_millis(700));
    forget(testbed);
    let services = testbed.cluster.list("Service").into_iter().filter(|service| hostname(service).is_some());
    for service in services {
        testbed.cluster.delete("Service", "default", service["metadata"]["name"].as_str().unwrap()).unwrap();
    }
    tokio::time::sleep(HOUR / 2).await;
    assert!(testbed.cluster.list("Service").iter().all(|service| hostname(service).is_none()), "a Service is left");
    (calls(testbed), testbed.cloud.look(|cloud| cloud.nlb.balancers.len() + cloud.nlb.groups.len()))
}

#[test]
fn the_deletion_of_a_network_load_balancer_takes_eight_calls_and_lists_answer_for_many_at_once() {
    // One call asks for all jobs that run.
    for (services, looks) in [(1, 2), (60, 7)] {
        let (deleted, log) = on_a_clock_of_its_own(0, async {
            let testbed = exposed_network(services).await;
            let _product = start_nlb(&testbed);
            tokio::time::sleep(HOUR / 2).await;
            deleted(&testbed).await
        });
        let expected = counted(&[
            ("DeleteLoadBalancer", services),
            ("DeleteServerGroup", services),
            ("ListAsynJobs", looks),
            ("ListLoadBalancers", 1),
            ("ListServerGroupServers", services),
            ("ListServerGroups", 1),
            ("UpdateLoadBalancerProtection", services),
        ]);
        assert_eq!(deleted, (expected, 0), "{log}");
    }
}

/// Its plan goes on where it had to wait; after three minutes, what it relies on is read again.
#[test]
fn a_service_that_waits_for_the_quota_of_its_backends_is_not_read_each_time() {
    let (counts, log) = on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        (1..=35).for_each(|number| drop(testbed.join(number)));
        testbed.expose("web", &[80], &["node-1"], &[]);
        let more = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\nbackend_batch_size = 5\n\
                    [cloud.quotas]\nAddVServerGroupBackendServers = 2\n";
        let _product = Product::start(&testbed, &["node", "service"], more);
        tokio::time::sleep(HOUR / 2).await;
        let calls = calls(&testbed);
        ["AddVServerGroupBackendServers", "DescribeLoadBalancerListeners", "CreateLoadBalancerTCPListener"]
            .map(|action| calls.get(action).copied().unwrap_or_default())
    });
    assert_eq!(counts, [6, 2, 1], "{log}");
}

/// One is read by itself; of many, those that are looked at during a call share the next one.
#[test]
fn one_list_answers_for_network_load_balancers_that_are_being_made_together() {
    const LOOKS: [&str; 3] = ["GetLoadBalancerAttribute", "ListLoadBalancers", "ListAsynJobs"];
    for (services, expected) in [(1, [8, 3, 4]), (60, [25, 150, 14])] {
        let (looks, log) = on_a_clock_of_its_own(0, async {
            let testbed = exposed_network(services).await;
            testbed.cloud.dials(|dials| {
                (dials.latency, dials.nlb_creation_time) = (Duration::from_millis(200), Duration::from_secs(20));
                dials.nlb_job_time = Duration::from_millis(700);
            });
            forget(&testbed);
            let _product = start_nlb(&testbed);
            tokio::time::sleep(HOUR / 2).await;
            let calls = calls(&testbed);
            assert_eq!(calls["CreateListener"], services);
            LOOKS.map(|action| calls.get(action).copied().unwrap_or_default())
        });
        assert_eq!(looks, expected, "{log}");
    }
}

#[test]
fn a_second_network_load_balancer_with_the_mark_of_a_service_goes_with_the_first() {
    let ((calls, left), log) = on_a_clock_of_its_own(0, async {
        let testbed = exposed_network(1).await;
        let _product = start_nlb(&testbed);
        tokio::time::sleep(HOUR / 2).await;
        testbed.cloud.edit(|cloud| {
            let mut twin = cloud.nlb.balancers.values().next().unwrap().clone();
            twin.listeners.clear();
            cloud.nlb.balancers.insert("nlb-twin".to_owned(), twin);
        });
        deleted(&testbed).await
    });
    assert_eq!((calls["DeleteLoadBalancer"], left), (2, 0), "{log}");
}

fn add_node(testbed: &Testbed, number: usize) {
    population::rent(testbed, number);
    population::stand(testbed, number).unwrap();
}

/// So many nodes, which are the backends of so many Services.
async fn on_all_nodes(nodes: usize, services: usize) -> Testbed {
    let testbed = Testbed::with(Version::NEWEST, population::account(10)).await.unwrap();
    (0..nodes).for_each(|number| add_node(&testbed, number));
    for number in 0..services {
        population::expose_network(&testbed, &format!("web-{number}"), false).unwrap();
    }
    testbed
}

/// A node is replaced as by an autoscaler: a new one joins, and an old one leaves with its instance. The cloud takes the server of
/// that out of its groups by itself, and refuses its removal.
#[test]
fn a_replaced_node_costs_a_network_load_balancer_two_writes_and_one_read_besides_jobs() {
    const SERVICES: usize = 5;
    let (calls, log) = on_a_clock_of_its_own(0, async {
        let testbed = on_all_nodes(3, SERVICES).await;
        testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(20));
        let _product = start_nlb(&testbed);
        tokio::time::sleep(HOUR / 4).await;
        forget(&testbed);
        add_node(&testbed, 3);
        testbed.cloud.release_instance(&population::instance(1));
        testbed.cluster.delete("Node", "", &population::node(1)).unwrap();
        tokio::time::sleep(HOUR / 12).await;
        calls(&testbed)
    });
    let expected = counted(&[
        ("AddServersToServerGroup", SERVICES),
        ("ListAsynJobs", 1),
        ("ListServerGroupServers", SERVICES),
        ("RemoveServersFromServerGroup", SERVICES),
    ]);
    assert_eq!(calls, expected, "{log}");
}

/// A new server group is known to hold nothing but what was put into it.
#[test]
fn the_servers_of_a_new_network_load_balancer_are_not_read_however_many_nodes_serve() {
    const NODES: usize = 450;
    let (made, log) = on_a_clock_of_its_own(0, async {
        let testbed = on_all_nodes(NODES, 1).await;
        testbed.cloud.edit(|cloud| cloud.limits.servers_per_group = NODES);
        let _product = start_nlb(&testbed);
        tokio::time::sleep(HOUR / 4).await;
        calls(&testbed)
    });
    let of_servers = ["AddServersToServerGroup", "ListServerGroupServers"].map(|action| made.get(action).copied());
    assert_eq!(of_servers, [Some(3), None], "{log}");
}

/// The cloud refuses the removal of both, since it took one of them out by itself.
#[test]
fn a_node_that_leaves_beside_a_released_one_leaves_its_network_load_balancer_too() {
    let (left, log) = on_a_clock_of_its_own(0, async {
        let testbed = on_all_nodes(4, 1).await;
        let _product = start_nlb(&testbed);
        tokio::time::sleep(HOUR / 4).await;
        forget(&testbed);
        testbed.cloud.release_instance(&population::instance(1));
        [1, 2].into_iter().for_each(|number| testbed.cluster.delete("Node", "", &population::node(number)).unwrap());
        tokio::time::sleep(HOUR / 12).await;
        let groups =
            testbed.cloud.look(|cloud| cloud.nlb.groups.values().map(|it| it.servers.clone()).collect::<Vec<_>>());
        let left: Vec<String> = groups.into_iter().flatten().map(|server| server.id.to_string()).collect();
        (left, calls(&testbed).get("GetLoadBalancerAttribute").copied())
    });
    assert_eq!(left, (vec![population::instance(0), population::instance(3)], None), "{log}");
}
