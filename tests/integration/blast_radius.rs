//! When everything seems to be gone at once, nothing is removed, and the withheld steps are reported.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Account, Fault};
use sim::cluster::{NodeSpec, Version};
use sim::testbed::{ACCESS_KEY, Testbed, VPC, instance};
use tokio::task::JoinSet;

use crate::end_state::{Row, marked};
use crate::harness::{Ccm, EVERY, HASTE, World, address, is_ready};
use crate::kinds::Kind;

/// Long enough for every wait of [`HASTE`] to pass, twice.
const WATCHED: Duration = Duration::from_secs(28);
const ALONE: &str = "[leader_election]\nenabled = false\n";
const NODES: u8 = 3;

/// Nodes with routes, and a Service with a load balancer of each kind, as the product made them.
async fn settled() -> World {
    let world = World::of(Testbed::open(Version::NEWEST).await.unwrap(), EVERY, &format!("{HASTE}{ALONE}"));
    let nodes: Vec<String> = (1..=NODES).map(|number| world.testbed.join(number)).collect();
    world.testbed.expose("web", &[80], &["node-1", "node-2"], &[]);
    Kind::Nlb.expose(&world.testbed, "net", &[80], &[1, 2]);
    let ccm = world.start();
    world
        .until("everything is there", |_| {
            let published = |kind: Kind, name| kind.published(&world.service(name)).is_some();
            nodes.iter().all(|name| is_ready(&world.node(name)))
                && published(Kind::Clb, "web")
                && published(Kind::Nlb, "net")
        })
        .await;
    world.until_still(Duration::from_secs(3)).await;
    assert!(ccm.stop().await.success());
    world
}

/// What must not shrink: nodes, routes, backends.
fn held(testbed: &Testbed) -> (usize, Vec<usize>, Vec<usize>) {
    let cloud = testbed.cloud.snapshot();
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    let routes = cloud["routes"].as_object().unwrap().values().map(count).collect();
    let groups = cloud["load_balancers"].as_array().unwrap().iter();
    let backends = groups.flat_map(|lb| lb["vgroups"].as_object().unwrap().values().map(count));
    let network = cloud["server_groups"].as_array().unwrap().iter().map(|group| count(&group["servers"]));
    let backends = backends.chain(network).collect();
    (testbed.cluster.list("Node").len(), routes, backends)
}

fn sum(counts: &[usize]) -> usize {
    counts.iter().sum()
}

fn everybody_unreachable(testbed: &Testbed) {
    for number in 1..=NODES {
        testbed.cluster.set_ready(&format!("node-{number}"), "Unknown").unwrap();
    }
}

/// An alarm that must stand: the controller and the reason of the event.
type Expected = (&'static str, &'static str);

/// Watches for long that nothing shrinks while the product runs, and that each alarm is reported as event, in the metric and on
/// the page of readiness; returns it still running.
async fn nothing_shrinks(world: &World, what: &str, alarms: &[Expected]) -> Ccm {
    let before = held(&world.testbed);
    let ccm = world.start_serving();
    watch(world, &ccm, what, before, alarms).await;
    ccm
}

async fn watch(world: &World, ccm: &Ccm, what: &str, before: (usize, Vec<usize>, Vec<usize>), alarms: &[Expected]) {
    let began = std::time::Instant::now();
    let mut missing: Vec<Expected> = alarms.to_vec();
    while began.elapsed() < WATCHED {
        let now = held(&world.testbed);
        let shrunk = now.0 < before.0 || sum(&now.1) < sum(&before.1) || sum(&now.2) < sum(&before.2);
        assert!(!shrunk, "{what}: {before:?}, then {now:?}\n{}", ccm.log());
        if let (Some((status, ready)), Some((_, metrics))) =
            (ccm.page("/readyz?verbose").await, ccm.page("/metrics").await)
        {
            missing.retain(|(controller, reason)| {
                let line = |line: &str| line.starts_with(&format!("[!]{controller} ")) && line.contains(reason);
                let none = format!("alicloud_ccm_held_back{{controller=\"{controller}\"}} 0");
                let counted = metrics.contains("alicloud_ccm_held_back{controller") && !metrics.contains(&none);
                !(status == 200 && ready.lines().any(line) && counted && reported(world, reason))
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let page = ccm.page("/readyz").await;
    assert_eq!(missing, [], "{what}: not reported within {} s; {page:?}\n{}", WATCHED.as_secs(), ccm.log());
}

fn reported(world: &World, reason: &str) -> bool {
    world.testbed.cluster.list("Event").iter().any(|event| event["reason"] == reason)
}

/// Waits until nothing is withheld any more.
async fn over(ccm: &Ccm) {
    ccm.until_page("/readyz", |_, text| !text.contains("withholds")).await;
}

async fn fork(base: &World, more: &str) -> World {
    World::of(base.testbed.fork().await.unwrap(), EVERY, &format!("{HASTE}{ALONE}{more}"))
}

async fn empty_lists(base: &World) {
    let world = fork(base, "").await;
    everybody_unreachable(&world.testbed);
    world.testbed.cloud.faults().always("DescribeInstances", Fault::Partial(0));
    for list in ["DescribeLoadBalancers", "nlb:ListLoadBalancers"] {
        world.testbed.cloud.faults().always(list, Fault::Partial(0));
    }
    let alarms = [
        ("node", "InstancesNotShown"),
        ("node", "NodeRemovalHeldBack"),
        ("service", "BackendsHeldBack"),
        ("nlb", "BackendsHeldBack"),
    ];
    nothing_shrinks(&world, "lists are empty", &alarms).await;
}

async fn cut_by_permissions(base: &World) {
    let world = fork(base, "").await;
    everybody_unreachable(&world.testbed);
    for name in ["web", "net"] {
        world.testbed.cluster.patch("Service", "default", name, &json!({"metadata": {"labels": null}})).unwrap();
    }
    world.testbed.cloud.edit(|cloud| {
        let key = cloud.keys.get_mut(ACCESS_KEY.0).unwrap();
        // Of these, the first two answer with empty lists, and without a word.
        let rights =
            ["DescribeInstances", "DescribeNetworkInterfaces", "DescribeLoadBalancers", "nlb:ListLoadBalancers"];
        key.denied.extend(rights.map(str::to_owned));
    });
    let alarms = [("node", "InstancesNotShown"), ("node", "NodeRemovalHeldBack")];
    let ccm = nothing_shrinks(&world, "rights to list are missing", &alarms).await;
    assert!(reported(&world, "SyncLoadBalancerFailed"), "{}", ccm.log());
    let made = (marked(&world.testbed), Kind::Nlb.count(&world.testbed));
    assert_eq!(made, (1, 1), "nothing is made beside them\n{}", ccm.log());
}

async fn another_account(base: &World) {
    let world = fork(base, "").await;
    everybody_unreachable(&world.testbed);
    // The same key leads to an account that holds the network, and nothing else of ours.
    let ours = world.testbed.cloud.look(Account::clone);
    world.testbed.cloud.edit(|cloud| {
        let other = Account::new(&cloud.region).with_vpc(VPC, "192.168.0.0/16").with_key(ACCESS_KEY.0, ACCESS_KEY.1);
        *cloud = other;
    });
    // A Service that never had a load balancer is in the wrong place as well, and one may ask to be removed.
    world.testbed.expose("new", &[80], &["node-1"], &[]);
    Kind::Nlb.expose(&world.testbed, "fresh", &[80], &[1]);
    let alarms = [("node", "InstancesNotShown"), ("service", "LoadBalancerHeldBack"), ("nlb", "LoadBalancerHeldBack")];
    let ccm = nothing_shrinks(&world, "another account", &alarms).await;
    let made = |testbed: &Testbed| {
        let writes = testbed.cloud.writes().into_iter().map(|call| call.action);
        writes.filter(|action| action.contains("LoadBalancer") || action.contains("Delete")).collect::<Vec<_>>()
    };
    assert_eq!(made(&world.testbed), Vec::<String>::new(), "{}", ccm.log());
    for name in ["web", "net"] {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    let waiting = || ccm.log().matches("its load balancer is not there").count();
    world.until("the Services wait", |_| waiting() > 1).await;
    let both = !world.service("web").is_null() && !world.service("net").is_null();
    assert!(both, "their load balancers would be lost\n{}", ccm.log());
    // The right credentials again, and everything goes on: one Service goes, the other gets its load balancer.
    world.testbed.cloud.edit(|cloud| *cloud = ours);
    for number in 1..=NODES {
        world.testbed.cluster.set_ready(&format!("node-{number}"), "True").unwrap();
    }
    world
        .until("all are settled", |_| {
            let gone = world.service("web").is_null() && world.service("net").is_null();
            let fresh = Kind::Nlb.published(&world.service("fresh")).is_some();
            gone && fresh && address(&world.service("new")).is_some()
        })
        .await;
    assert_eq!((marked(&world.testbed), Kind::Nlb.count(&world.testbed)), (1, 1), "{}", ccm.log());
    over(&ccm).await;
}

async fn wrong_vpc(base: &World) {
    let world = fork(base, "").await;
    world.edit(|text| text.replace(VPC, "vpc-typo"));
    let alarms = [("route", "SyncRouteFailed"), ("node", "InstancesElsewhere")];
    let ccm = nothing_shrinks(&world, "the VPC id is wrong", &alarms).await;
    assert!(ccm.log().contains("vpc-typo"), "{}", ccm.log());
    world.edit(|text| text.replace("vpc-typo", VPC));
    over(&ccm).await;
}

async fn everybody_at_once(base: &World) {
    let world = fork(base, "").await;
    everybody_unreachable(&world.testbed);
    let alarms = [("service", "BackendsHeldBack"), ("nlb", "BackendsHeldBack")];
    let ccm = nothing_shrinks(&world, "all nodes are unready", &alarms).await;
    // On purpose it goes on.
    for number in 1..=NODES {
        let label = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
        world.testbed.cluster.patch("Node", "", &format!("node-{number}"), &label).unwrap();
    }
    world.until("the backends are let go", |testbed| sum(&held(testbed).2) == 0).await;
    over(&ccm).await;
}

async fn no_nodes(base: &World) {
    let world = fork(base, "").await;
    for number in 1..=NODES {
        world.testbed.cluster.delete("Node", "", &format!("node-{number}")).unwrap();
    }
    let alarms = [("route", "RouteOwnerMissing"), ("service", "BackendsHeldBack"), ("nlb", "BackendsHeldBack")];
    nothing_shrinks(&world, "the API server has no nodes", &alarms).await;
}

async fn no_services(base: &World) {
    let world = fork(base, "").await;
    // The Services were not there yet, so nothing ever asks to delete their load balancers.
    let free = json!({"metadata": {"finalizers": null}});
    for name in ["web", "net"] {
        world.testbed.cluster.patch("Service", "default", name, &free).unwrap();
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    let alarms = [("service", "LoadBalancerOwnerMissing"), ("nlb", "LoadBalancerOwnerMissing")];
    nothing_shrinks(&world, "the API server has no Services", &alarms).await;
}

async fn no_endpoints(base: &World) {
    let world = fork(base, "").await;
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    world.testbed.cluster.patch("Service", "default", "web", &local).unwrap();
    for slice in world.testbed.cluster.list("EndpointSlice") {
        let (namespace, name) =
            (slice["metadata"]["namespace"].as_str().unwrap(), slice["metadata"]["name"].as_str().unwrap());
        world.testbed.cluster.delete("EndpointSlice", namespace, name).unwrap();
    }
    let alarms = [("service", "BackendsHeldBack"), ("nlb", "BackendsHeldBack")];
    nothing_shrinks(&world, "the API server has no endpoints", &alarms).await;
}

/// While the product runs, the API server is restored from a backup that knows neither the last node nor the last Service.
async fn restored_from_a_backup(base: &World) {
    let world = fork(base, "").await;
    let late = NODES + 1;
    let ccm = world.start_serving();
    world.until_still(Duration::from_secs(2)).await;
    let backup = world.testbed.cluster.fork();
    let name = world.testbed.join(late);
    world.testbed.expose("late", &[80], &[&name], &[]);
    world
        .until("node and Service are settled", |_| {
            is_ready(&world.node(&name)) && address(&world.service("late")).is_some()
        })
        .await;
    world.until_still(Duration::from_secs(3)).await;
    let before = held(&world.testbed);
    assert_eq!((sum(&before.1), marked(&world.testbed)), (usize::from(late), 2));

    world.testbed.cluster.restore(&backup);
    assert!(world.node(&name).is_null() && world.service("late").is_null());
    // The node is gone from the API server by the restore itself. Of the first Service's group it is none any more: it
    // may have no pods by now, as nobody knows of it.
    let before = (before.0 - 1, before.1, vec![]);
    let alarms = [("route", "RouteOwnerMissing"), ("service", "LoadBalancerOwnerMissing")];
    watch(&world, &ccm, "restored from a backup", before, &alarms).await;
    assert_eq!(marked(&world.testbed), 2, "{}", ccm.log());
    assert!(ccm.log().contains("the API server's resourceVersion regressed"), "{}", ccm.log());

    // What happens after the restore is seen: the instance is released, so its route has nothing to lead to.
    world.testbed.cloud.release_instance(&instance(late));
    world.testbed.cluster.delete("Node", "", "node-1").unwrap();
    world.until("both routes are removed", |testbed| sum(&held(testbed).1) == usize::from(late) - 2).await;
    // The load balancer goes on purpose only.
    let output = world.run(&["gc", "--delete", "--after", "1"]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(marked(&world.testbed), 1);
    over(&ccm).await;
}

/// A replica that starts after the restore has seen nothing of what was before.
async fn started_after_a_restore(base: &World) {
    let world = fork(base, "").await;
    world.testbed.cluster.delete("Node", "", "node-3").unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    world.testbed.cluster.patch("Service", "default", "web", &free).unwrap();
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    let alarms = [("route", "RouteOwnerMissing"), ("service", "LoadBalancerOwnerMissing")];
    let ccm = nothing_shrinks(&world, "a backup without a node and a Service", &alarms).await;
    let (plan, code) = world.plan().await;
    assert!(plan.contains("withheld: delete route 10.98.3.0/24"), "{plan}");
    assert_eq!(code, Some(2), "{plan}");
    // The kubelet registers again, and its route was never gone.
    let spec = NodeSpec::new("node-3").provider_id("cn-hangzhou.i-play-3").pod_cidr("10.98.3.0/24");
    world.testbed.cluster.join_node(&spec).unwrap();
    ccm.until_page("/readyz", |_, text| !text.contains("RouteOwnerMissing")).await;
    assert!(!world.testbed.cloud.writes().iter().any(|call| call.action.contains("RouteEntr")), "{}", ccm.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_seems_to_be_gone_nothing_is_removed() {
    let base = Arc::new(settled().await);
    let mut causes = JoinSet::new();
    macro_rules! spawn {
        ($($cause:ident),*) => {
            $(let of = base.clone(); causes.spawn(async move { $cause(&of).await });)*
        };
    }
    spawn!(empty_lists, cut_by_permissions, another_account, wrong_vpc, everybody_at_once);
    spawn!(no_nodes, no_services, no_endpoints, restored_from_a_backup, started_after_a_restore);
    let count = causes.len();
    let mut failed = 0;
    while let Some(ended) = causes.join_next().await {
        failed += usize::from(ended.is_err());
    }
    assert_eq!(failed, 0, "causes for which something was removed, or not reported");
    Row {
        tried: "everything, or a part, seems to be gone: in the cloud, in the account, at the nodes, or at the API server",
        test: "blast_radius",
        numbers: vec![("causes", count), ("nodes, routes and backends in each", 11)],
        lost: 0,
    }
    .write();
}
