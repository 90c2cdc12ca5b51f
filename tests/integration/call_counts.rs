//! Cloud calls of common operations. [`OPERATIONS`] is the table of `docs/explanation/calls.md`; the scenarios measure it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use alicloud_ccm::alibaba::actions;
use expect_test::expect_file;
use serde_json::json;
use sim::cluster::{Endpoint, NodeSpec};
use sim::testbed::{REGION, instance};

use crate::harness::{ALL, Ccm, HASTE, World, address, counts, is_ready};

/// Longer than anything that was begun takes to come back to; route entries are looked at again after two seconds.
const QUIET: Duration = Duration::from_millis(2700);
/// Enough where only Services are looked at; changes of nodes and endpoints are gathered for a while.
const SHORT: Duration = Duration::from_millis(2500);

struct Operation {
    id: &'static str,
    /// As people read it.
    text: &'static str,
    /// Action and number of calls.
    calls: &'static [(&'static str, usize)],
}

const fn costs(id: &'static str, text: &'static str, calls: &'static [(&'static str, usize)]) -> Operation {
    Operation { id, text, calls }
}

/// A load balancer for one port.
const MADE_WITH_ONE_PORT: &[(&str, usize)] = &[
    ("DescribeLoadBalancers", 2),
    ("CreateLoadBalancer", 1),
    ("CreateVServerGroup", 1),
    ("CreateLoadBalancerTCPListener", 1),
    ("StartLoadBalancerListener", 1),
];

/// All that is known of a load balancer for one port is read again.
const REREAD: &[(&str, usize)] =
    &[("DescribeLoadBalancerAttribute", 1), ("DescribeLoadBalancerListeners", 1), ("DescribeVServerGroupAttribute", 1)];

const OPERATIONS: &[Operation] = &[
    costs("new", "A new Service with one port", MADE_WITH_ONE_PORT),
    costs(
        "new-two",
        "A new Service with two ports",
        &[
            ("DescribeLoadBalancers", 2),
            ("CreateLoadBalancer", 1),
            ("CreateVServerGroup", 2),
            ("CreateLoadBalancerTCPListener", 2),
            ("StartLoadBalancerListener", 2),
        ],
    ),
    costs("labelled", "A label of a Service changes", &[]),
    costs("touched", "An annotation of another program is edited on a Service with one port", REREAD),
    costs("cluster-endpoints", "Endpoints change, with `externalTrafficPolicy: Cluster`", &[]),
    costs(
        "local-endpoints",
        "Endpoints move to another node, with `externalTrafficPolicy: Local`",
        &[("AddVServerGroupBackendServers", 1), ("RemoveVServerGroupBackendServers", 1)],
    ),
    costs(
        "becomes",
        "A Service of type `ClusterIP` becomes one of type `LoadBalancer`, with `externalTrafficPolicy: Local`",
        MADE_WITH_ONE_PORT,
    ),
    costs(
        "annotation",
        "An annotation of a listener is edited",
        &[
            ("DescribeLoadBalancerAttribute", 1),
            ("DescribeLoadBalancerListeners", 1),
            ("DescribeVServerGroupAttribute", 1),
            ("SetLoadBalancerTCPListenerAttribute", 1),
        ],
    ),
    costs(
        "port-added",
        "A port is added to a Service with one port",
        &[
            ("DescribeLoadBalancerAttribute", 1),
            ("DescribeLoadBalancerListeners", 1),
            ("DescribeVServerGroups", 1),
            ("DescribeVServerGroupAttribute", 1),
            ("CreateVServerGroup", 1),
            ("CreateLoadBalancerTCPListener", 1),
            ("StartLoadBalancerListener", 1),
        ],
    ),
    costs(
        "port-removed",
        "A port is removed from a Service with two ports",
        &[
            ("DescribeLoadBalancerAttribute", 1),
            ("DescribeLoadBalancerListeners", 1),
            ("DescribeVServerGroups", 1),
            ("DescribeVServerGroupAttribute", 2),
            ("DeleteLoadBalancerListener", 1),
            ("DeleteVServerGroup", 1),
        ],
    ),
    costs("node-joins", "A node becomes a backend of three server groups", &[("AddVServerGroupBackendServers", 3)]),
    costs("node-leaves", "A backend of three server groups leaves", &[("RemoveVServerGroupBackendServers", 3)]),
    costs(
        "service-restart",
        "A restart or a new leader, with one Service with one port",
        &[
            ("DescribeInstances", 1),
            ("DescribeLoadBalancers", 1),
            ("DescribeLoadBalancerAttribute", 1),
            ("DescribeLoadBalancerListeners", 1),
            ("DescribeVServerGroups", 1),
            ("DescribeVServerGroupAttribute", 1),
        ],
    ),
    costs(
        "deleted",
        "A Service is deleted",
        &[("DescribeLoadBalancerAttribute", 1), ("SetLoadBalancerDeleteProtection", 1), ("DeleteLoadBalancer", 1)],
    ),
    costs(
        "first-node",
        "The first node after a start is initialised",
        &[("DescribeInstances", 1), ("DescribeNetworkInterfaces", 1), ("ModifyNetworkInterfaceAttribute", 1)],
    ),
    costs(
        "one-node",
        "A further node is initialised",
        &[("DescribeInstances", 1), ("ModifyNetworkInterfaceAttribute", 1)],
    ),
    costs(
        "many-nodes",
        "120 further nodes are initialised together",
        &[("DescribeInstances", 2), ("ModifyNetworkInterfaceAttribute", 120)],
    ),
    costs("node-period", "The periodic pass over 122 nodes", &[("DescribeInstances", 2)]),
    costs("one-route", "A node gets its route", &[("DescribeRouteEntryList", 1), ("CreateRouteEntries", 1)]),
    costs(
        "many-routes",
        "120 nodes get their routes together",
        &[("DescribeRouteEntryList", 1), ("CreateRouteEntries", 3)],
    ),
    costs(
        "route-period",
        "The periodic pass over a route table with 121 entries",
        &[("DescribeRouteTableList", 1), ("DescribeRouteEntryList", 1)],
    ),
    costs("volumes", "120 volumes get their labels and node affinity together", &[("DescribeDisks", 2)]),
    costs("volumes-restart", "A restart or a new leader, with 120 volumes that have them", &[]),
];

fn writes(action: &str) -> bool {
    actions::ALL.iter().find(|known| known.name == action).unwrap().writes
}

fn check(id: &str, seen: &BTreeMap<String, usize>) {
    let promised = OPERATIONS.iter().find(|operation| operation.id == id).unwrap();
    assert_eq!(*seen, counts(promised.calls), "{}", promised.text);
}

async fn settle(world: &World, quiet: Duration) {
    world.until_quiet(quiet).await;
    world.take_calls();
}

fn add_node(world: &World, number: u8) {
    world.testbed.rent(number);
    let node = NodeSpec::new(&format!("node-{number}")).provider_id(&format!("{REGION}.{}", instance(number)));
    world.testbed.cluster.add_node(&node).unwrap();
}

fn endpoint(number: u8, node: &str) -> Endpoint {
    Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, number, 10)), node)
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_cost_what_the_page_says() {
    // Worlds of their own, mostly waiting: together they take as long as the slowest.
    tokio::join!(services(), local_services(), nodes(), routes(), volumes(), at_rest());
}

async fn services() {
    let world = World::new(&["service"], "").await;
    let testbed = &world.testbed;
    add_node(&world, 1);
    add_node(&world, 2);
    let ccm = world.start();
    world.until("it leads", |testbed| testbed.cluster.get("Lease", "kube-system", "ccm").is_some()).await;
    // When a term begins, it looks once for load balancers without a Service.
    let looked =
        async || world.until("it looks around", |testbed| testbed.cloud.count("DescribeLoadBalancers") > 0).await;
    looked().await;
    settle(&world, SHORT).await;
    let measure = async |id: &str| {
        world.until_quiet(SHORT).await;
        check(id, &world.take_calls());
    };

    testbed.expose("web", &[80], &["node-1"], &[]);
    measure("new").await;
    testbed.expose("api", &[80, 443], &["node-1"], &[]);
    measure("new-two").await;
    let patch = |changes| testbed.cluster.patch("Service", "default", "web", &changes).unwrap();
    patch(json!({"metadata": {"labels": {"example.com/note": "seen"}}}));
    measure("labelled").await;
    patch(json!({"metadata": {"annotations": {"example.com/note": "seen"}}}));
    measure("touched").await;
    testbed.cluster.set_endpoints("default", "web", &[endpoint(1, "node-1"), endpoint(2, "node-2")]).unwrap();
    measure("cluster-endpoints").await;
    let scheduler = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-scheduler";
    patch(json!({"metadata": {"annotations": {scheduler: "wrr"}}}));
    measure("annotation").await;
    let port = |number| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
    patch(json!({"spec": {"ports": [port(80), port(81)]}}));
    measure("port-added").await;
    patch(json!({"spec": {"ports": [port(80)]}}));
    measure("port-removed").await;
    add_node(&world, 3);
    measure("node-joins").await;
    testbed.cluster.delete_node("node-3").unwrap();
    measure("node-leaves").await;
    testbed.cluster.delete("Service", "default", "api").unwrap();
    settle(&world, SHORT).await;

    assert!(ccm.stop().await.success());
    let ccm = world.start();
    looked().await;
    measure("service-restart").await;

    testbed.cluster.delete("Service", "default", "web").unwrap();
    measure("deleted").await;
    assert!(testbed.cloud.look(|cloud| cloud.load_balancers.is_empty()));
    finish(&world, ccm).await;
}

async fn local_services() {
    let world = World::new(&["service"], "").await;
    let testbed = &world.testbed;
    add_node(&world, 1);
    add_node(&world, 2);
    testbed.expose("web", &[80], &["node-1"], &[]);
    let spec = json!({"spec": {"externalTrafficPolicy": "Local"}});
    testbed.cluster.patch("Service", "default", "web", &spec).unwrap();
    let ccm = world.start();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    // Two for the Service, and one for those that have none.
    world.until("it has looked around", |testbed| testbed.cloud.count("DescribeLoadBalancers") > 2).await;
    settle(&world, SHORT).await;
    testbed.cluster.set_endpoints("default", "web", &[endpoint(2, "node-2")]).unwrap();
    world.until_quiet(SHORT).await;
    check("local-endpoints", &world.take_calls());
    let spec = json!({"type": "ClusterIP", "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]});
    let metadata = json!({"name": "inner", "namespace": "default"});
    let inner = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    testbed.cluster.create(inner).unwrap();
    testbed.cluster.set_endpoints("default", "inner", &[endpoint(2, "node-2")]).unwrap();
    settle(&world, SHORT).await;
    let spec = json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}});
    testbed.cluster.patch("Service", "default", "inner", &spec).unwrap();
    world.until("it has an address", |_| address(&world.service("inner")).is_some()).await;
    world.until_quiet(SHORT).await;
    check("becomes", &world.take_calls());
    let one_each = |cloud: &sim::cloud::Account| {
        let groups = cloud.load_balancers.values().flat_map(|balancer| balancer.groups.values());
        groups.map(|group| group.backends.len()).collect::<Vec<_>>()
    };
    assert_eq!(testbed.cloud.look(one_each), [1, 1], "the one with the pod is there from the start");
    finish(&world, ccm).await;
}

async fn nodes() {
    // The periodic pass comes when all the rest is done.
    let world = World::new(&["node"], "period = \"30s\"\n").await;
    let ccm = world.start_with(&["--set", "node.aggregation=2s"], &[]);
    world.until("it leads", |testbed| testbed.cluster.get("Lease", "kube-system", "ccm").is_some()).await;
    settle(&world, SHORT).await;
    for (number, id) in [(121, "first-node"), (122, "one-node")] {
        let node = world.testbed.join(number);
        world.until("the node is initialised", |_| is_ready(&world.node(&node))).await;
        check(id, &world.take_calls());
    }
    for number in 1..=120 {
        world.testbed.join(number);
    }
    let all_ready = |testbed: &sim::testbed::Testbed| testbed.cluster.list("Node").iter().all(is_ready);
    world.until("all nodes are initialised", all_ready).await;
    check("many-nodes", &world.take_calls());
    world.until_quiet(SHORT).await;
    let writes = world.kubernetes_writes();
    world.take_calls();
    world.until("the periodic pass comes", |testbed| !testbed.cloud.calls().is_empty()).await;
    world.until_quiet(SHORT).await;
    check("node-period", &world.take_calls());
    assert_eq!(world.kubernetes_writes(), writes);
    finish(&world, ccm).await;
}

async fn routes() {
    let world = World::new(&["route"], "").await;
    // The periodic pass comes when all the rest is done.
    let more = ["--set", "route.aggregation=2s", "--set", "route.period=30s"];
    let ccm = world.start_with(&more, &[]);
    world.until("it leads", |testbed| testbed.cluster.get("Lease", "kube-system", "ccm").is_some()).await;
    settle(&world, QUIET).await;
    let add = |number: u8| {
        world.testbed.rent(number);
        let id = format!("{REGION}.{}", instance(number));
        let node = NodeSpec::new(&format!("node-{number}")).provider_id(&id).pod_cidr(&format!("10.98.{number}.0/24"));
        world.testbed.cluster.add_node(&node).unwrap();
    };
    add(121);
    world.until_quiet(QUIET).await;
    check("one-route", &world.take_calls());
    (1..=120).for_each(add);
    world.until_quiet(QUIET).await;
    check("many-routes", &world.take_calls());
    let writes = world.kubernetes_writes();
    world.until("the periodic pass comes", |testbed| !testbed.cloud.calls().is_empty()).await;
    world.until_quiet(SHORT).await;
    check("route-period", &world.take_calls());
    assert_eq!(world.kubernetes_writes(), writes);
    finish(&world, ccm).await;
}

async fn volumes() {
    let world = World::new(&["volume-labels"], "").await;
    let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "cn-hangzhou-i"}}});
    world.testbed.cluster.add_node(&NodeSpec::new("node-1")).unwrap();
    world.testbed.cluster.patch("Node", "", "node-1", &zone).unwrap();
    for number in 0..120 {
        world.testbed.provide(&format!("pv-{number}"), &format!("d-{number}"), "cn-hangzhou-i");
    }
    let ccm = world.start();
    let has_affinity = |volume: &serde_json::Value| volume["spec"]["nodeAffinity"].is_object();
    world.until("all are done", |testbed| testbed.cluster.list("PersistentVolume").iter().all(has_affinity)).await;
    world.until_quiet(SHORT).await;
    check("volumes", &world.take_calls());
    let writes = |testbed: &sim::testbed::Testbed| testbed.cluster.count("patch", "persistentvolumes");
    assert_eq!(writes(&world.testbed), 120, "one write for each");
    assert!(ccm.stop().await.success());
    let ccm = world.start();
    world.until("it leads again", |_| ccm.log().contains(" leading ")).await;
    tokio::time::sleep(SHORT).await;
    check("volumes-restart", &world.take_calls());
    assert_eq!(writes(&world.testbed), 120);
    finish(&world, ccm).await;
}

/// Nothing is written, neither here nor there, while nothing changes, however often it is looked at.
async fn at_rest() {
    let world = World::new(ALL, HASTE).await;
    for number in 1..=3 {
        world.testbed.join(number);
    }
    world.testbed.expose("web", &[80, 443], &["node-1"], &[]);
    let more = ["--set", "route.period=10s"];
    let ccm = world.start_with(&more, &[]);
    world.until("the Service has its address", |_| address(&world.service("web")).is_some()).await;
    world.until("the nodes are ready", |testbed| testbed.cluster.list("Node").iter().all(is_ready)).await;
    world.until_quiet(QUIET).await;

    let before = (world.kubernetes_writes(), world.testbed.cloud.writes().len());
    world.take_calls();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let calls = world.take_calls();
    for action in ["DescribeInstances", "DescribeRouteEntryList"] {
        assert!(calls.contains_key(action), "the periodic passes came: {calls:?}");
    }
    assert!(!calls.keys().any(|action| writes(action)), "{calls:?}");
    assert_eq!((world.kubernetes_writes(), world.testbed.cloud.writes().len()), (before.0.clone(), 0));

    assert!(ccm.stop().await.success());
    let ccm = world.start_with(&more, &[]);
    world.until("it looks at Services", |testbed| testbed.cloud.count("DescribeLoadBalancerListeners") > 0).await;
    world.until_quiet(SHORT).await;
    let calls = world.take_calls();
    assert!(calls.contains_key("DescribeInstances") && calls.contains_key("DescribeRouteEntryList"), "{calls:?}");
    assert!(!calls.keys().any(|action| writes(action)), "{calls:?}");
    let mut since = world.kubernetes_writes().split_off(before.0.len());
    since.retain(|write| !write.starts_with("create events"));
    assert_eq!(since, Vec::<String>::new());
    finish(&world, ccm).await;
}

/// Ends the binary; nothing may have been called in a way that the real cloud would only tolerate.
async fn finish(world: &World, ccm: Ccm) {
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// The table as people read it.
fn page() -> String {
    let mut page = String::from(
        "# Cloud calls of common operations

For operators who plan the quotas of an account.

The number of calls to Alibaba Cloud, in a VPC with one route table, with the default configuration except for shorter intervals. The
test `call_counts` measures this table between the binary and the simulated cloud.

| Operation | Reads | Writes |
|---|---|---|
",
    );
    let mut below = String::new();
    for Operation { text, calls, .. } in OPERATIONS {
        let list = |wanted: bool| {
            let calls = calls.iter().filter(|(action, _)| writes(action) == wanted);
            let calls: Vec<_> = calls.map(|(action, count)| format!("{count} `{action}`")).collect();
            if calls.is_empty() { "-".to_owned() } else { calls.join(", ") }
        };
        // What is too long for a cell goes below the table.
        let mut cell = |list: String| match list.len() > 120 {
            true => {
                let _ = writeln!(below, "- {text}: {list}.");
                format!("{}, see below", list.split(", ").count())
            }
            false => list,
        };
        let _ = writeln!(page, "| {text} | {} | {} |", cell(list(false)), cell(list(true)));
    }
    let _ = write!(page, "\n{below}");
    page.push_str(
        "
A batch has up to 100 instances or disks, 50 route entries or 40 backends. The controller reads:

- route entries whose next hop is no instance, as a new leader and every hour; also every `route.period` while such an entry
  conflicts with the pod CIDR of a node. That takes one call for each of 13 kinds of next hop and each table;
- instances of the whole VPC by name, while a node waits to be initialised or replaced that no address and no id finds: one call for 100 instances;
- route tables, as a new leader, every `route.period`, two seconds after it created entries, and before it removes or reports anything.
  It creates entries from the last read, unless that is five minutes old or the cloud has rejected a call since;
- a whole load balancer, as a new leader, and 30 s after a creation whose answer was lost or that a list did not show;
- the instance, its listeners and its server groups, after an edit of annotations or of the spec, to repair what was changed in the
  cloud. Changes of endpoints, nodes, labels and status cause no read;
- all load balancers, every `service.drift_check`, by lists with up to 100 of them, or of their listeners, in one call. No list shows
  server groups: the controller reads them in turn, with up to `service.drift_reads` calls an hour;
- the load balancers with the cluster id, every six hours with a drift check, to detect another cluster with the same id;
- a disk that the cloud does not show: a second later, then after as long as it has been missing, at most five minutes.

While nothing changes, the program writes only the lease to the API server.

A new Service with one port on a network load balancer takes 3 reads (2 `ListLoadBalancers`, `ListServerGroups`) and 4 writes
(`CreateLoadBalancer`, `CreateServerGroup`, `AddServersToServerGroup`, `CreateListener`), besides the reads of job status. A further
backend takes 1 write for each server group. A deletion takes 3 reads (`ListLoadBalancers`, `ListServerGroups`,
`ListServerGroupServers`) and 3 writes (`UpdateLoadBalancerProtection`, `DeleteLoadBalancer`, `DeleteServerGroup`). An unchanged
Service takes no call. The test `network_load_balancers` measures that. One call reads the status of all jobs of a Service, after the
time that jobs of their kind usually take. The same call reads the status of up to 20 jobs in all: those of other Services, too. A
Service whose jobs have ended by then needs no call. Without two zones in `cloud.vswitches`, `DescribeVSwitches` precedes the first
write. Services that are deleted together share both lists: 60 of them take 249 calls, with 7 reads of job status. Security groups
are read only of a Service that has, or had, source ranges, and where the load balancer has joined a security group.

A restart with one such Service takes 4 reads (`GetLoadBalancerAttribute`, `ListListeners`, `ListServerGroups`,
`ListServerGroupServers`), besides `ListLoadBalancers` to find load balancers without a Service. A restart with 100 such Services takes
104 reads: 100 `ListServerGroupServers`, 2 `ListLoadBalancers`, 1 `ListListeners` and 1 `ListServerGroups`. Every `nlb.drift_check` takes
one list of each kind, which also shows the number of servers in each group. The controller reads the servers, additional certificates
and rules of security groups in turn, as it does server groups of classic load balancers. A list answers for at most a minute, once
for each load balancer, and never for one that the controller changed after the list began. The test `call_counts_at_scale` measures
that.

If an endpoint of a headless Service moves, the controller makes one `DescribeZoneRecords` and one `UpdateZoneRecord`; for a pod with a
host name, as many as it has records. A change that affects no name takes no call. A comparison of the whole zone, every `pvtz.period` and
by a new leader, takes one call for the zone and one for each 100 records. The test `private_zone` measures that.

Next: [scale.md](../evidence/scale.md), calls, seconds and memory at scale.
",
    );
    page
}

#[test]
fn the_page_is_current() {
    expect_file!["../../docs/explanation/calls.md"].assert_eq(&page());
}
