//! Lives of nodes, from the table below and by chance, on a simulated clock: their instances are stopped, released and
//! replaced, and their kubelets report, complain and fall silent. Judged once a second on the way, and at the end against a
//! process that starts anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use sim::cloud::{Fault, RouteEntry};
use sim::cluster::{NodeSpec, Version};
use sim::testbed::{REGION, ROUTE_TABLE, Testbed, instance};
use tokio::time::Instant;

use crate::harness::HASTE;
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::nlb_lifecycle;

const CONTROLLERS: &[&str] = &["node", "route", "service", "nlb"];
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// As `HASTE` has it.
const GRACE: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After which the controller manager calls a kubelet silent.
const SILENCE: Duration = Duration::from_secs(40);
/// After which a kubelet is silent although the cluster does not call it so.
const MUTE: Duration = Duration::from_secs(360);
/// Two passes, the interval between two reads, and the confirmation of a route's removal.
const TWO_READS: Duration = Duration::from_secs(60);
const EVENT_BY: Duration = Duration::from_secs(60);

/// What happens to a node, or to what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// The instance goes for good.
    Release,
    /// Another instance takes the address of the one that goes, and the name.
    Replace,
    Stop,
    Start,
    /// What the kubelet says from now on.
    Reports(&'static str),
    /// The kubelet says nothing from now on.
    FallsSilent,
    /// The kubelet renews its lease alone.
    RenewsLeaseAlone,
    /// The cluster calls no kubelet silent from now on.
    ManagerStops,
    Cordon,
    Taint(&'static str),
    /// A list that shows one instance.
    PartialList,
    DeniedLists,
    PermittedLists,
}

use Act::*;

/// A machine of the cluster.
struct Machine {
    name: String,
    status: Option<&'static str>,
    /// When its kubelet last wrote to the node, and renewed its lease.
    beat: Instant,
    renewed: Instant,
    renews: bool,
    /// Since when the cluster calls it unknown.
    unknown: Option<Instant>,
    /// When its instance went.
    gone: Option<Instant>,
    /// Whether another instance has its address.
    replaced: bool,
    out_of_sync: Option<Instant>,
}

struct Lives {
    testbed: Testbed,
    machines: BTreeMap<u8, Machine>,
    removed: BTreeSet<u8>,
    /// Whether the controller manager runs.
    manager: bool,
    /// Since when the account shows its instances.
    shows: Option<Instant>,
}

fn node(testbed: &Testbed, number: u8) -> Option<Value> {
    testbed.cluster.get("Node", "", &format!("node-{number}"))
}

fn ready(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?["status"].as_str()
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.map(|taint| taint["key"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Warnings about a node: reason and message.
fn warnings(testbed: &Testbed, node: &str) -> Vec<(String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let events = testbed.cluster.list("Event").into_iter();
    let about = events.filter(|it| it["involvedObject"]["name"] == node && it["type"] == "Warning");
    about.map(|event| (text(&event, "reason"), text(&event, "message"))).collect()
}

/// The instances in server groups of both kinds, and those that routes lead to.
fn used(testbed: &Testbed) -> (BTreeSet<String>, BTreeSet<String>) {
    testbed.cloud.look(|account| {
        let classic = account.load_balancers.values().flat_map(|lb| lb.groups.values());
        let mut servers: BTreeSet<String> =
            classic.flat_map(|group| group.backends.iter().map(|it| it.server_id.clone())).collect();
        servers.extend(account.nlb.groups.values().flat_map(|group| group.servers.iter().map(|it| it.id.clone())));
        let entries = account.route_tables[ROUTE_TABLE].entries.values().filter(|entry| entry.kind == "Custom");
        (servers, entries.flat_map(|entry| entry.next_hops.clone()).collect())
    })
}

impl Lives {
    async fn begin(numbers: &[u8]) -> (Self, Product) {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        let names: Vec<String> = numbers.iter().map(|number| testbed.join(*number)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        testbed.expose("classic", &[80], &names, &[]);
        nlb_lifecycle::expose(&testbed, "network", &[80], &names, &[]);
        for service in ["classic", "network"] {
            let policy = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
            testbed.cluster.patch("Service", "default", service, &policy).unwrap();
        }
        let product = Self::product(&testbed);
        let now = Instant::now();
        let machine = |number: &u8| {
            let name = format!("node-{number}");
            let (gone, replaced, out_of_sync) = (None, false, None);
            let unknown = None;
            let (status, renews, beat, renewed) = (Some("True"), true, now, now);
            (*number, Machine { name, status, beat, renewed, renews, unknown, gone, replaced, out_of_sync })
        };
        let machines = numbers.iter().map(machine).collect();
        let mut lives = Self { testbed, machines, removed: BTreeSet::new(), manager: true, shows: Some(now) };
        for number in numbers {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": format!("node-{number}"), "namespace": "kube-node-lease"}, "spec": {},
            });
            lives.testbed.cluster.create(lease).unwrap();
        }
        lives.pass(40).await;
        (lives, product)
    }

    fn product(testbed: &Testbed) -> Product {
        Product::start(testbed, CONTROLLERS, &format!("{HASTE}[leader_election]\nenabled = false\n"))
    }

    fn act(&mut self, number: u8, act: Act) {
        match act {
            DeniedLists => self.shows = None,
            PermittedLists => self.shows = self.shows.or_else(|| Some(Instant::now())),
            ManagerStops => self.manager = false,
            _ => {}
        }
        let Lives { testbed, machines, .. } = self;
        let machine = machines.get_mut(&number).unwrap();
        let (name, id) = (machine.name.clone(), instance(number));
        let denied = |actions: &[&str]| {
            let denied = actions.iter().map(|action| (*action).to_owned()).collect();
            testbed.cloud.edit(|cloud| cloud.keys.get_mut(sim::testbed::ACCESS_KEY.0).unwrap().denied = denied);
        };
        let exists = testbed.cluster.get("Node", "", &name).is_some();
        match act {
            Release | Replace => {
                testbed.cloud.release_instance(&id);
                machine.gone.get_or_insert_with(Instant::now);
                if act == Replace {
                    let (vswitch, ip) = match number % 2 {
                        1 => ("vsw-i", format!("192.168.0.{number}")),
                        _ => ("vsw-j", format!("192.168.16.{number}")),
                    };
                    testbed.cloud.add_instance(&format!("i-new-{number}"), &name, vswitch, &ip);
                    machine.replaced = true;
                }
            }
            Stop if machine.gone.is_none() => testbed.cloud.stop_instance(&id),
            Start if machine.gone.is_none() => testbed.cloud.start_instance(&id),
            Stop | Start => {}
            Reports(status) => {
                machine.status = Some(status);
                machine.renews = true;
                if exists {
                    testbed.cluster.set_ready(&name, status).unwrap();
                    (machine.beat, machine.unknown) = (Instant::now(), None);
                }
            }
            FallsSilent => (machine.status, machine.renews) = (None, false),
            RenewsLeaseAlone => (machine.status, machine.renews) = (None, true),
            Cordon if exists => {
                testbed.cluster.patch("Node", "", &name, &json!({"spec": {"unschedulable": true}})).unwrap();
            }
            Taint(key) if exists => {
                let mut all = testbed.cluster.get("Node", "", &name).unwrap()["spec"]["taints"].clone();
                let taint = json!({"key": key, "effect": "NoSchedule"});
                match all.as_array_mut() {
                    Some(all) if all.contains(&taint) => {}
                    Some(all) => all.push(taint),
                    None => all = json!([taint]),
                }
                testbed.cluster.patch("Node", "", &name, &json!({"spec": {"taints": all}})).unwrap();
            }
            Cordon | Taint(_) | ManagerStops => {}
            PartialList => testbed.cloud.faults().script("DescribeInstances", Fault::Partial(1)),
            DeniedLists => denied(&["DescribeInstances"]),
            PermittedLists => denied(&[]),
        }
    }

    /// Kubelets and the controller manager, for this many seconds.
    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.beat();
            self.judge();
        }
    }

    fn beat(&mut self) {
        let now = Instant::now();
        let (cluster, manager) = (&self.testbed.cluster, self.manager);
        for (number, machine) in &mut self.machines {
            let Some(seen) = node(&self.testbed, *number) else { continue };
            let time = jiff_now();
            if machine.renews && machine.renewed.elapsed() >= HEARTBEAT {
                machine.renewed = now;
                let spec = json!({"spec": {"renewTime": time}});
                cluster.patch("Lease", "kube-node-lease", &machine.name, &spec).unwrap();
            }
            match machine.status {
                Some(status) if machine.beat.elapsed() >= HEARTBEAT => {
                    (machine.beat, machine.unknown) = (now, None);
                    if ready(&seen) == Some(status) {
                        let beat = json!({"type": "Ready", "status": status, "lastHeartbeatTime": time});
                        let status = json!({"conditions": [beat]});
                        cluster.patch_status("Node", "", &machine.name, &status).unwrap();
                    } else {
                        cluster.set_ready(&machine.name, status).unwrap();
                    }
                }
                None if manager && machine.last_word().elapsed() >= SILENCE && ready(&seen) != Some("Unknown") => {
                    cluster.set_ready(&machine.name, "Unknown").unwrap();
                    machine.unknown = Some(now);
                }
                _ => {}
            }
        }
    }

    fn judge(&mut self) {
        let (servers, hops) = used(&self.testbed);
        for (number, machine) in &mut self.machines {
            let (name, id) = (&machine.name, instance(*number));
            let Some(seen) = node(&self.testbed, *number) else {
                if self.removed.insert(*number) {
                    assert!(machine.gone.is_some(), "{name} is removed, and its instance exists");
                    let (silent, mute) = (machine.unknown.map(|since| since.elapsed()), machine.last_word().elapsed());
                    assert!(silent >= Some(GRACE) || mute >= MUTE, "{name} is removed after {silent:?}, {mute:?}");
                }
                continue;
            };
            let provable = machine.gone.zip(self.shows).map(|(gone, shown)| gone.max(shown));
            let reports = machine.status.is_some();
            if (machine.replaced || reports) && provable.is_some_and(|since| since.elapsed() > TWO_READS) {
                assert!(!servers.contains(&id), "{id} is in a group, and gone");
                assert!(!hops.contains(&id), "a route leads to {id}, which is gone");
            }
            let reports = machine.status.is_some() && machine.gone.is_some() && self.shows.is_some();
            let wrong = reports || taints(&seen).iter().any(|key| key == UNINITIALIZED);
            machine.out_of_sync = wrong.then(|| machine.out_of_sync.unwrap_or_else(Instant::now));
            if machine.out_of_sync.is_some_and(|since| since.elapsed() > EVENT_BY) {
                let told = warnings(&self.testbed, name);
                assert!(told.iter().any(|(_, text)| text.contains(&id)), "{name} is out of sync: {told:?}");
            }
        }
    }

    /// What a process that starts anew finds to change: nothing.
    async fn end(mut self, product: Product) {
        self.testbed.cloud.calm();
        self.act(*self.machines.keys().next().unwrap(), PermittedLists);
        self.pass(180).await;
        let before = self.state();
        drop(product);
        let _anew = Self::product(&self.testbed);
        self.pass(180).await;
        assert_eq!(self.state(), before, "a process that starts anew makes another end of it");
    }

    fn state(&self) -> Value {
        let nodes = self.testbed.cluster.list("Node").into_iter().map(|node| {
            let mut taints = taints(&node);
            taints.sort();
            json!({"name": node["metadata"]["name"], "labels": node["metadata"]["labels"], "taints": taints})
        });
        json!({"nodes": nodes.collect::<Vec<_>>(), "used": used(&self.testbed)})
    }
}

impl Machine {
    fn last_word(&self) -> Instant {
        self.beat.max(self.renewed)
    }
}

fn jiff_now() -> String {
    alicloud_ccm::clock::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
}

async fn live(life: &[(u64, u8, Act)]) -> (Lives, Product) {
    let (mut lives, product) = Lives::begin(&[1, 2, 3]).await;
    for (seconds, number, act) in life {
        lives.pass(*seconds).await;
        lives.act(*number, *act);
    }
    lives.pass(120).await;
    (lives, product)
}

fn on_a_clock<T>(future: impl Future<Output = T>) -> (T, String) {
    on_a_clock_of_its_own(0, future)
}

/// What it is, what happens in it, and how it ends.
type NamedLife<'a> = (&'a str, &'a [(u64, u8, Act)], Left);

/// What is left of node-1 at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It serves, with a route.
    Serving,
    /// It stays, with neither.
    Aside,
    /// It stays, whatever else.
    Node,
    /// It is removed.
    Removed,
}

#[test]
fn a_node_ends_as_its_instance_and_its_kubelet_say() {
    let lives: &[NamedLife] = &[
        ("nothing happens", &[], Left::Serving),
        ("released, and silent", &[(0, 1, Release), (0, 1, FallsSilent)], Left::Removed),
        ("released, and not ready", &[(0, 1, Release), (0, 1, Reports("False"))], Left::Aside),
        (
            "released, and not ready, then silent",
            &[(0, 1, Release), (0, 1, Reports("False")), (60, 1, FallsSilent)],
            Left::Removed,
        ),
        (
            "released, not ready, and its lease alone is renewed",
            &[(0, 1, Release), (0, 1, Reports("False")), (30, 1, RenewsLeaseAlone)],
            Left::Node,
        ),
        (
            "released, and silent while no controller manager runs",
            &[(0, 1, ManagerStops), (0, 1, Release), (0, 1, FallsSilent), (900, 1, PermittedLists)],
            Left::Removed,
        ),
        (
            "released, and its lease alone is renewed while no controller manager runs",
            &[(0, 1, ManagerStops), (0, 1, Release), (0, 1, RenewsLeaseAlone), (900, 1, PermittedLists)],
            Left::Aside,
        ),
        ("replaced, and ready", &[(0, 1, Replace)], Left::Aside),
        ("replaced, and not ready", &[(0, 1, Replace), (0, 1, Reports("False"))], Left::Aside),
        ("replaced, and silent", &[(0, 1, Replace), (0, 1, FallsSilent)], Left::Removed),
        ("released, and ready", &[(0, 1, Release)], Left::Aside),
        ("released, and not ready for long", &[(0, 1, Reports("False")), (60, 1, Release)], Left::Aside),
        (
            "stopped and started",
            &[(0, 1, Stop), (0, 1, FallsSilent), (60, 1, Start), (0, 1, Reports("True"))],
            Left::Serving,
        ),
        (
            "a partial list, while silent",
            &[(0, 1, FallsSilent), (50, 1, PartialList), (30, 1, Reports("True"))],
            Left::Serving,
        ),
        (
            "denied lists, while silent",
            &[(0, 1, DeniedLists), (0, 1, FallsSilent), (120, 1, PermittedLists), (0, 1, Reports("True"))],
            Left::Serving,
        ),
        ("cordoned", &[(0, 1, Cordon)], Left::Serving),
    ];
    for (name, life, left) in lives {
        println!("{name}");
        on_a_clock(async {
            let (lives, product) = live(life).await;
            let (servers, hops) = used(&lives.testbed);
            let serves = [instance(1), "i-new-1".to_owned()].iter().any(|id| servers.contains(id) || hops.contains(id));
            let is_there = node(&lives.testbed, 1).is_some();
            let ended = match left {
                Left::Serving => is_there && servers.contains(&instance(1)) && hops.contains(&instance(1)),
                Left::Aside => is_there && !serves,
                Left::Node => is_there,
                Left::Removed => !is_there,
            };
            assert!(ended, "{name}: not {left:?}; {is_there}, {servers:?}, {hops:?}");
            assert!(lives.removed.iter().all(|number| *number == 1), "{name}: others are removed");
            lives.end(product).await;
        });
    }
}

fn some_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => Just(Release),
        2 => Just(Replace),
        1 => Just(Stop),
        1 => Just(Start),
        2 => prop::sample::select(vec!["True", "False"]).prop_map(Reports),
        2 => Just(FallsSilent),
        1 => Just(RenewsLeaseAlone),
        1 => Just(ManagerStops),
        1 => Just(Cordon),
        1 => prop::sample::select(vec!["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler", "any"]).prop_map(Taint),
        1 => Just(PartialList),
        1 => Just(DeniedLists),
        1 => Just(PermittedLists),
    ]
}

#[test]
fn whatever_happens_to_nodes_none_that_reports_is_removed_and_each_that_is_out_of_sync_is_told() {
    let lives = prop::collection::vec((0_u64..90, 1_u8..3, some_act()), 1..8);
    let config = Config { cases: 12, failure_persistence: None, ..Config::default() };
    let judged = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    )
    .run(&lives, |life| {
        println!("{life:?}");
        on_a_clock(async {
            let (lives, product) = live(&life).await;
            lives.end(product).await;
        });
        Ok(())
    });
    judged.unwrap();
}

/// A world with some controllers, before any node.
async fn world(controllers: &[&str]) -> (Testbed, Product) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let product = Product::start(&testbed, controllers, &format!("{HASTE}[leader_election]\nenabled = false\n"));
    (testbed, product)
}

/// Other programs write to a node all the time: labels and taints that decide nothing.
#[test]
fn a_lasting_fault_of_a_node_is_retried_ever_more_rarely_whatever_others_write_to_it() {
    on_a_clock(async {
        let (testbed, _product) = world(&["node"]).await;
        testbed.join(1);
        testbed.cluster.join_node(&NodeSpec::new("early").provider_id(&format!("{REGION}.i-play-77"))).unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let before = testbed.cloud.count("DescribeInstances");
        for write in 0..120 {
            let label = json!({"metadata": {"labels": {"mood": format!("{write}")}}});
            testbed.cluster.patch("Node", "", "early", &label).unwrap();
            let beat = json!({"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": jiff_now()}]});
            testbed.cluster.patch_status("Node", "", "early", &beat).unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let calls = testbed.cloud.count("DescribeInstances") - before;
        // In ten minutes: a pass each ten seconds with two calls, and few retries.
        assert!(calls < 150, "{calls} calls for one node");
        let told = testbed.cluster.list("Event").into_iter().find(|event| event["involvedObject"]["name"] == "early");
        let count = told.unwrap()["count"].as_u64().unwrap_or(1);
        assert!(count < 100, "{count} times");
    });
}

#[test]
fn a_lingjun_worker_loses_its_taint_and_is_told() {
    on_a_clock(async {
        let (testbed, _product) = world(&["node"]).await;
        testbed.join(1);
        let worker =
            NodeSpec::new("lingjun").provider_id("e01-cn-xxxx").label("alibabacloud.com/lingjun-worker", "true");
        testbed.cluster.join_node(&worker).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let seen = testbed.cluster.get("Node", "", "lingjun").unwrap();
        assert!(!taints(&seen).iter().any(|key| key == UNINITIALIZED), "{seen:#}");
        let events = testbed.cluster.list("Event");
        let told = events.iter().find(|event| event["involvedObject"]["name"] == "lingjun").unwrap();
        assert!(told["message"].as_str().unwrap().contains("Lingjun"), "{told:#}");
    });
}

#[test]
fn a_node_is_found_by_the_host_name_of_its_instance() {
    on_a_clock(async {
        let (testbed, _product) = world(&["node"]).await;
        testbed.cloud.edit(|cloud| {
            cloud.add_instance("i-1", "Web 1", "vsw-i", "192.168.0.51").host_name = "web-1.example".into();
            cloud.add_instance("i-2", "Web-2", "vsw-i", "192.168.0.52");
        });
        testbed.cluster.join_node(&NodeSpec::new("web-1.example")).unwrap();
        testbed.cluster.join_node(&NodeSpec::new("web-2")).unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        for (name, id) in [("web-1.example", "i-1"), ("web-2", "i-2")] {
            let seen = testbed.cluster.get("Node", "", name).unwrap();
            assert_eq!(seen["spec"]["providerID"], format!("{REGION}.{id}"), "{name}");
        }
    });
}

/// Entries of every kind of next hop: each is told with its kind, and left alone.
#[test]
fn route_entries_to_anything_but_instances_are_told_and_left_alone() {
    on_a_clock(async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        let kinds =
            ["VpnGateway", "NetworkInterface", "NatGateway", "HaVip", "RouterInterface", "IPv6Gateway", "VpcPeer"];
        let mut foreign = Vec::new();
        testbed.cloud.edit(|cloud| {
            for (number, kind) in (1_u8..).zip(kinds) {
                // In the way of an odd node; inside the range of an even one.
                let cidr = format!("10.98.{number}.0/{}", if number % 2 == 1 { 24 } else { 26 });
                let hop = format!("hop-{number}");
                let mut entry = RouteEntry::to_instance(&format!("rte-{number}"), &hop);
                entry.next_hop_type = kind.to_owned();
                cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.insert(cidr.clone(), entry);
                foreign.push((cidr, hop, kind));
            }
        });
        (1_u8..).zip(kinds).for_each(|(number, _)| drop(testbed.join(number)));
        let _product =
            Product::start(&testbed, &["node", "route"], &format!("{HASTE}[leader_election]\nenabled = false\n"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        for (number, (cidr, hop, kind)) in (1_u8..).zip(foreign) {
            let told = warnings(&testbed, &format!("node-{number}"));
            let is_named = |(reason, text): &(String, String)| {
                reason == "CreateRouteFailed" && text.contains(&cidr) && text.contains(&format!("{kind} {hop}"))
            };
            assert!(told.iter().any(is_named), "{cidr} to {kind} {hop}: {told:?}");
            let there = testbed.cloud.look(|cloud| cloud.route_tables[ROUTE_TABLE].entries[&cidr].next_hops.clone());
            assert_eq!(there, [hop], "{cidr} is left alone");
        }
    });
}

/// Node 1 loses its instance so. A stale entry of another node is replaced, and the event about node 1 contains these words.
async fn stale_entry_is_replaced_after(lives: &mut Lives, act: Act, words: &[&str]) {
    lives.act(1, act);
    lives.pass(60).await;
    lives.testbed.cloud.edit(|cloud| {
        let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
        table.entries.insert("10.98.4.0/24".into(), RouteEntry::to_instance("rte-gone", "i-released"));
    });
    lives.testbed.join(4);
    lives.pass(60).await;
    let (_, hops) = used(&lives.testbed);
    assert!(hops.contains(&instance(4)) && !hops.contains("i-released"), "{hops:?}");
    let told = warnings(&lives.testbed, "node-1");
    let gone = told.iter().find(|(reason, _)| reason == "InstanceGone").map(|(_, text)| text.as_str());
    for word in words {
        assert!(gone.is_some_and(|text| text.contains(word)), "{word}: {told:?}");
    }
}

/// One node whose instance is gone says nothing of the instances of others.
#[test]
fn a_stale_entry_is_replaced_although_the_instance_of_another_ready_node_is_gone() {
    on_a_clock(async {
        let (mut lives, product) = Lives::begin(&[1, 2, 3]).await;
        stale_entry_is_replaced_after(&mut lives, Replace, &[&*instance(1), "i-new-1", "kubectl delete node node-1"])
            .await;
        // Its owner deletes the Node, and the kubelet joins anew.
        lives.testbed.cluster.delete_node("node-1").unwrap();
        let anew = NodeSpec::new("node-1").provider_id(&format!("{REGION}.i-new-1")).pod_cidr("10.98.1.0/24");
        lives.testbed.cluster.join_node(&anew).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (servers, hops) = used(&lives.testbed);
        assert!(servers.contains("i-new-1") && hops.contains("i-new-1"), "{servers:?} {hops:?}");
        drop(product);
    });
}

/// The same of one whose address no other instance has: the account has shown it before.
#[test]
fn a_stale_entry_is_replaced_although_another_ready_node_has_lost_its_instance_for_good() {
    on_a_clock(async {
        let (mut lives, _product) = Lives::begin(&[1, 2, 3]).await;
        stale_entry_is_replaced_after(&mut lives, Release, &[&*instance(1), "kubectl delete node node-1"]).await;
    });
}

#[test]
fn a_node_whose_instance_went_while_no_process_ran_is_left_out_and_told_so() {
    on_a_clock(async {
        let (mut lives, product) = Lives::begin(&[1, 2, 3]).await;
        drop(product);
        lives.act(1, Release);
        let _anew = Lives::product(&lives.testbed);
        lives.pass(120).await;
        let told = warnings(&lives.testbed, "node-1");
        let gone = |(reason, text): &(String, String)| {
            reason == "InstanceGone" && text.contains(&instance(1)) && text.contains("routes leave the node out")
        };
        assert!(told.iter().any(gone), "{told:?}");
    });
}

/// As in a VPC that several accounts share: what the account does not show may still be there.
#[test]
fn a_conflict_says_why_the_instance_of_an_entry_does_not_count_as_gone() {
    on_a_clock(async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.cloud.edit(|cloud| {
            let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
            table.entries.insert("10.98.1.0/24".into(), RouteEntry::to_instance("rte-1", "i-of-another-account"));
        });
        let hidden = NodeSpec::new("node-2").provider_id(&format!("{REGION}.i-hidden"));
        testbed.cluster.join_node(&hidden).unwrap();
        testbed.join(1);
        let _product =
            Product::start(&testbed, &["node", "route"], &format!("{HASTE}[leader_election]\nenabled = false\n"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let told = warnings(&testbed, "node-1");
        assert!(
            told.iter().any(|(_, text)| text.contains("i-of-another-account") && text.contains("i-hidden")),
            "{told:?}"
        );
    });
}

/// Forty nodes of another provider, and a wrong annotation.
#[test]
fn warnings_about_foreign_nodes_leave_room_for_what_the_user_wrote() {
    let (_, log) = on_a_clock(async {
        let (testbed, _product) = world(CONTROLLERS).await;
        let name = testbed.join(1);
        for number in 10..50 {
            let node = NodeSpec::new(&format!("k3s-{number}")).provider_id(&format!("k3s://k3s-{number}"));
            testbed.cluster.add_node(&node).unwrap();
        }
        let wrong = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-spek";
        testbed.expose("web", &[80], &[&name], &[(wrong, "x")]);
        let policy = json!({"spec": {"externalTrafficPolicy": "Cluster", "sessionAffinity": "ClientIP"}});
        testbed.cluster.patch("Service", "default", "web", &policy).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let told = warnings(&testbed, "web");
        let text = &told.iter().find(|(reason, _)| reason == "LoadBalancerSettings").unwrap().1;
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing: {text}"));
        assert!(place("spek") < place("k3s-10"), "{text}");
        place("and 35 more");
        place("delete the Node");
        assert!(text.matches("k3s://").count() < 5, "{text}");
    });
    assert!(log.contains("spek"), "the log has the whole text");
}

#[test]
fn a_node_that_its_autoscaler_is_about_to_delete_leaves_server_groups() {
    for key in ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"] {
        on_a_clock(async {
            let (mut lives, product) = Lives::begin(&[1, 2, 3]).await;
            assert!(used(&lives.testbed).0.contains(&instance(1)));
            lives.act(1, Taint(key));
            lives.pass(20).await;
            let (servers, hops) = used(&lives.testbed);
            assert!(!servers.contains(&instance(1)) && hops.contains(&instance(1)), "{key}: {servers:?} {hops:?}");
            lives.end(product).await;
        });
    }
}
