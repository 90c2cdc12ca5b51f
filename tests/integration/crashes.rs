//! A process that is killed at any write to the cluster or the cloud leads to the same end state as one that is not.
//!
//! An undisturbed run of a scenario finds the writes. Then, for each of them, the test forks both worlds as they were at the
//! start, kills the process around that write, and starts a new one, or another replica takes over.
//!
//! In process, on a simulated clock, every planned crash happens, in the same way each time. SIGKILL ends the binary at the
//! same writes; one that it does not reach is repeated with other timing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Match, Version};
use sim::request_hold::{Held, Moment};
use sim::testbed::{Testbed, instance};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::availability::Availability;
use crate::end_state::{Foreign, Row, SHARED, difference, marked, state};
use crate::harness::{Ccm, HASTE, WITHOUT_NAMES, World};
use crate::in_process::{Product, in_parallel, on_a_clock_of_its_own};
use crate::private_zone;

/// Worlds with a binary that run at the same time. Most of them wait most of the time.
const AT_ONCE: usize = 24;
/// How much longer a request that outlives its process is on its way.
const STRAGGLES: Duration = Duration::from_millis(400);
/// How much later than the first the second replica is started.
const HEAD_START: Duration = Duration::from_millis(300);
/// How long a request to the cloud and one to the API server take, in milliseconds, when a crash of the binary is tried for
/// the first time and again: whether some writes come depends on who is faster.
const TIMINGS: [(u64, u64); 8] = [(0, 0), (0, 0), (5, 2), (20, 2), (2, 20), (5, 2), (40, 5), (5, 40)];

/// A write that was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Write {
    /// A call to the cloud, by product and action.
    Cloud { action: String },
    /// A request to the API server; the making of an event has its reason for a name.
    Cluster { verb: String, target: String, name: String },
}

/// What events say is written by itself, aside from the work.
const EVENTS: &str = "events";
/// Renewed for as long as the process lives.
const LEASES: &str = "leases";

impl Write {
    fn of(call: &sim::cluster::Call) -> Self {
        let (verb, target) = (call.verb.to_owned(), call.target());
        let name = match &call.body {
            Some(body) if target == EVENTS => body["reason"].as_str().unwrap_or_default().to_owned(),
            _ => call.name.clone(),
        };
        Self::Cluster { verb, target, name }
    }

    fn is_event(&self) -> bool {
        matches!(self, Self::Cluster { target, .. } if target == EVENTS)
    }

    /// How many writes of a kind are distinguished.
    fn most(&self) -> usize {
        match self {
            Self::Cluster { target, .. } if target == EVENTS => 1,
            Self::Cluster { target, .. } if target == LEASES => 2,
            _ => usize::MAX,
        }
    }
}

/// The `nth` write of its kind (from 0) in a scenario.
#[derive(Clone, Debug)]
struct Site {
    write: Write,
    nth: usize,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.write {
            Write::Cloud { action } => write!(f, "{action} number {}", self.nth + 1),
            Write::Cluster { verb, target, name } => write!(f, "{verb} {target} {name} number {}", self.nth + 1),
        }
    }
}

/// When the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// The request was sent and is lost with the process.
    BeforeEffect,
    /// The request takes effect, the answer finds nobody.
    BeforeAnswer,
    /// The answer was sent.
    AfterAnswer,
    /// The request is still on its way, and takes effect while the next process is already working.
    Late,
}

impl Death {
    const ALL: [Self; 4] = [Self::BeforeEffect, Self::BeforeAnswer, Self::AfterAnswer, Self::Late];

    fn moment(self) -> Moment {
        match self {
            Self::BeforeEffect | Self::Late => Moment::Before,
            Self::BeforeAnswer | Self::AfterAnswer => Moment::After,
        }
    }
}

/// Where a process lives that is killed by dropping it, and the two worlds around it.
trait Host: Sized {
    type Process;
    /// How long nothing must be written before the work counts as done: at first, undisturbed, and after a crash.
    const STILL: [Duration; 3];
    /// How long a crashed world may take to get where it should be.
    const LONG: Duration;
    /// For so long a ready endpoint may be missing from a server group that serves, once the next process is there.
    const GAP: Duration;

    fn of(testbed: Testbed, controllers: &'static [&'static str], more: &str) -> Self;
    fn testbed(&self) -> &Testbed;
    fn begin(&self) -> Self::Process;
    fn logs(&self) -> String;
}

impl Host for World {
    type Process = Ccm;
    const STILL: [Duration; 3] = [Duration::from_secs(3), Duration::from_secs(18), Duration::from_millis(500)];
    const LONG: Duration = Duration::from_secs(240);
    const GAP: Duration = Duration::from_secs(60);

    fn of(testbed: Testbed, controllers: &'static [&'static str], more: &str) -> Self {
        Self::of(testbed, controllers, more)
    }

    fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    fn begin(&self) -> Ccm {
        self.start()
    }

    fn logs(&self) -> String {
        self.logs()
    }
}

/// In this process, on a clock that jumps.
struct Inside {
    testbed: Testbed,
    controllers: &'static [&'static str],
    more: String,
}

impl Host for Inside {
    type Process = Product;
    const STILL: [Duration; 3] = [Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(15)];
    const LONG: Duration = Duration::from_secs(600);
    const GAP: Duration = Duration::from_secs(20);

    fn of(testbed: Testbed, controllers: &'static [&'static str], more: &str) -> Self {
        // Long enough to be killed in the middle.
        testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(5));
        testbed.cluster.set_latency(Duration::from_millis(2));
        Self { testbed, controllers, more: more.to_owned() }
    }

    fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    fn begin(&self) -> Product {
        Product::start(&self.testbed, self.controllers, &self.more)
    }

    fn logs(&self) -> String {
        "(the log is with the crash)".to_owned()
    }
}

/// Waits until nothing was written to either world, apart from the lease, for so long.
async fn still(testbed: &Testbed, long: Duration) {
    let count = || testbed.cloud.count_writes() + testbed.cluster.count_writes_except(LEASES);
    let (mut seen, mut since) = (count(), Instant::now());
    while since.elapsed() < long {
        tokio::time::sleep(long / 20).await;
        let now = count();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// How many replicas of the product there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replicas {
    /// One, without a lease, so that a new one works at once.
    One,
    /// Two that take turns; nobody starts the one again that dies.
    Two,
}

impl Replicas {
    fn more(self) -> String {
        match self {
            // Without a lease nobody waits for what a dead one has sent, and no comparison finds what came of it.
            Self::One => {
                format!(
                    "{HASTE}\n[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\n[nlb]\ndrift_check = \"0s\"\n"
                )
            }
            Self::Two => HASTE.to_owned(),
        }
    }
}

/// What users, machines and people have done when the process starts.
#[derive(Clone, Copy)]
struct Plot {
    name: &'static str,
    replicas: Replicas,
    controllers: &'static [&'static str],
    /// The product brings this about first.
    before: fn(&Testbed),
    change: fn(&Testbed),
}

/// Both worlds as they are when the process starts, and how they look when it is done.
struct Scenario {
    story: Plot,
    start: Testbed,
    foreign: Foreign,
    end: Value,
    sites: Vec<Site>,
}

/// What came of a crash.
struct Crashed {
    /// Whether every planned moment came.
    reached: bool,
    /// What was written after the last planned moment.
    rest: Vec<Site>,
}

/// How much either world was asked so far.
fn asked(testbed: &Testbed) -> (usize, usize) {
    (testbed.cloud.writes().len(), testbed.cluster.writes().len())
}

/// The writes since then, each as the nth of its kind. The cloud notes a call when it ends: `killed` began before.
fn sites(testbed: &Testbed, (cloud, cluster): (usize, usize), killed: Option<&Write>) -> Vec<Site> {
    let mut counts: BTreeMap<Write, usize> = BTreeMap::new();
    for call in testbed.cloud.writes().into_iter().skip(cloud) {
        *counts.entry(Write::Cloud { action: format!("{}:{}", call.product, call.action) }).or_default() += 1;
    }
    for call in testbed.cluster.writes().iter().skip(cluster) {
        *counts.entry(Write::of(call)).or_default() += 1;
    }
    if let Some(count) = killed.and_then(|killed| counts.get_mut(killed)) {
        *count -= 1;
    }
    let sites = counts.into_iter().flat_map(|(write, count)| {
        // The first event of a reason stands for all, and two renewals of the lease for the rest.
        let count = count.min(write.most());
        (0..count).map(move |nth| Site { write: write.clone(), nth })
    });
    sites.collect()
}

impl Scenario {
    /// Lets the product bring about what comes before, then makes the change and runs it once undisturbed.
    async fn new<H: Host>(story: Plot) -> Self {
        let Plot { name, replicas, controllers, before, change } = story;
        let [first, undisturbed, _] = H::STILL;
        let host = H::of(Testbed::open(Version::NEWEST).await.unwrap(), controllers, &Replicas::One.more());
        before(host.testbed());
        let foreign = Foreign::settle(host.testbed(), &["web", "shop"]);
        let process = host.begin();
        still(host.testbed(), first).await;
        drop(process);
        change(host.testbed());
        let foreign = foreign.look_again(host.testbed());
        let start = host.testbed().fork().await.unwrap();

        let host = H::of(start.fork().await.unwrap(), controllers, &replicas.more());
        let _process = host.begin();
        still(host.testbed(), undisturbed).await;
        let sites = sites(host.testbed(), (0, 0), None);
        assert!(!sites.is_empty(), "{name}: nothing happens");
        assert_eq!(foreign.changes(host.testbed()), Vec::<String>::new(), "{name}, undisturbed");
        assert_eq!(host.testbed().cloud.complaints(), Vec::<String>::new(), "{name}, undisturbed");
        Self { story, start, foreign, end: state(host.testbed()), sites }
    }

    /// Kills the process at each of these in turn, and looks whether all is well in the end. `timing` is how long requests
    /// take, if not as long as usual.
    async fn crash<H: Host>(&self, at: &[(Site, Death)], timing: Option<(u64, u64)>) -> Result<Crashed, String> {
        let Plot { name, replicas, controllers, .. } = self.story;
        let host = H::of(self.start.fork().await.unwrap(), controllers, &replicas.more());
        let testbed = host.testbed();
        if let Some((cloud, cluster)) = timing {
            testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(cloud));
            testbed.cluster.set_latency(Duration::from_millis(cluster));
        }
        let (mut late, mut standby) = (Vec::new(), None);
        let (mut reached, mut before) = (true, (0, 0));
        for (site, death) in at {
            let mut held = hold(testbed, site, death.moment());
            let process = standby.take().unwrap_or_else(|| host.begin());
            if replicas == Replicas::Two {
                tokio::time::sleep(HEAD_START).await;
                standby = Some(host.begin());
            }
            release(&mut late).await;
            if !self.comes(&host, &mut held).await {
                reached = false;
                break;
            }
            match death {
                Death::BeforeEffect | Death::BeforeAnswer => {
                    drop(process);
                    held.lose();
                }
                Death::AfterAnswer => {
                    held.release();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    drop(process);
                }
                Death::Late => {
                    drop(process);
                    late.push(held);
                }
            }
            before = asked(testbed);
        }
        let _process = standby.take().unwrap_or_else(|| host.begin());
        let availability = Availability::watch(testbed);
        release(&mut late).await;
        let what = || format!("{name}: {}", plan(at));
        let began = Instant::now();
        loop {
            still(testbed, H::STILL[2]).await;
            if state(testbed) == self.end {
                break;
            }
            if began.elapsed() > H::LONG {
                return Err(format!("{}\n{}\n{}", what(), difference(&self.end, &state(testbed)), host.logs()));
            }
        }
        let (gap, which) = availability.worst();
        if gap > H::GAP {
            return Err(format!("{}\nfor {gap:?}, {which}\n{}", what(), host.logs()));
        }
        let changed = self.foreign.changes(testbed);
        if !changed.is_empty() {
            return Err(format!("{}\nforeign: {changed:?}\n{}", what(), host.logs()));
        }
        let ends_later =
            |(site, death): &&(Site, Death)| matches!(site.write, Write::Cloud { .. }) && *death != Death::AfterAnswer;
        let killed = at.last().filter(ends_later).map(|(site, _)| &site.write);
        Ok(Crashed { reached, rest: sites(testbed, before, killed) })
    }

    /// Waits until the request is held; false if the work is done without it.
    async fn comes<H: Host>(&self, host: &H, held: &mut Held) -> bool {
        const NO_MORE: Duration = Duration::from_secs(15);
        let began = Instant::now();
        let asked = || host.testbed().cloud.count_writes() + host.testbed().cluster.count_writes_except("");
        let (mut seen, mut since) = (asked(), Instant::now());
        loop {
            let arrives = tokio::time::timeout(Duration::from_secs(1), held.arrived());
            if arrives.await.is_ok() || held.has_arrived() {
                return held.has_arrived();
            }
            if asked() != seen {
                (seen, since) = (asked(), Instant::now());
            }
            let done = since.elapsed() > NO_MORE && state(host.testbed()) == self.end;
            if done || began.elapsed() > H::LONG {
                return false;
            }
        }
    }

    /// As [`Self::crash`], in process.
    fn crash_inside(&self, at: &[(Site, Death)]) -> Result<Crashed, String> {
        let (result, log) = on_a_clock_of_its_own(0, self.crash::<Inside>(at, None));
        result.map_err(|wrong| format!("{wrong}\n{log}"))
    }
}

fn plan(at: &[(Site, Death)]) -> String {
    at.iter().map(|(site, death)| format!("{site}, {death:?}")).collect::<Vec<_>>().join(", then ")
}

/// Lets requests that outlived their process take effect while the next one works.
async fn release(late: &mut Vec<Held>) {
    for held in late.drain(..) {
        tokio::time::sleep(STRAGGLES).await;
        held.release();
    }
}

fn hold(testbed: &Testbed, site: &Site, moment: Moment) -> Held {
    match &site.write {
        Write::Cloud { action } => testbed.cloud.faults().hold(action, site.nth, moment),
        Write::Cluster { verb, target, name } => {
            let matching = Match::new(verb, target);
            let matching = match name.as_str() {
                "" => matching,
                reason if site.write.is_event() => matching.because(reason),
                name => matching.named(name),
            };
            testbed.cluster.hold_nth(matching, site.nth, moment)
        }
    }
}

fn nodes(testbed: &Testbed, count: u8) {
    for number in 1..=count {
        testbed.join(number);
    }
}

fn two_ports(testbed: &Testbed) {
    testbed.expose("web", &[80, 443], &["node-1", "node-2"], &[]);
}

fn web(testbed: &Testbed) {
    nodes(testbed, 2);
    two_ports(testbed);
}

fn reusing(testbed: &Testbed) {
    const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";
    let (id, force) = (format!("{PREFIX}-id"), format!("{PREFIX}-force-override-listeners"));
    testbed.expose("shop", &[8080], &["node-1", "node-2"], &[(&id, SHARED), (&force, "true")]);
}

fn change_everything(testbed: &Testbed) {
    let annotation = |name: &str| format!("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-{name}");
    let annotations: serde_json::Map<String, Value> = [
        ("name", "renamed"),
        ("bandwidth", "20"),
        ("charge-type", "paybybandwidth"),
        ("delete-protection", "off"),
        ("modification-protection", "NonProtection"),
        ("scheduler", "wlc"),
        ("additional-resource-tags", "team=shop"),
        ("persistence-timeout", "60"),
    ]
    .into_iter()
    .map(|(name, value)| (annotation(name), json!(value)))
    .collect();
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": 8000, "protocol": "TCP"});
    let ports = json!([port("p80", 80), port("p8443", 8443)]);
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"ports": ports}});
    testbed.cluster.patch("Service", "default", "web", &patch).unwrap();
}

/// Everything that the product does, each begun at an empty or a settled place.
const PLOTS: [Plot; 10] = [
    Plot {
        name: "a node joins",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: |testbed| nodes(testbed, 1),
        change: |testbed| drop(testbed.join(2)),
    },
    MADE,
    Plot {
        name: "a Service changes in everything",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: web,
        change: change_everything,
    },
    Plot {
        name: "a Service uses a person's load balancer",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: |testbed| nodes(testbed, 2),
        change: reusing,
    },
    Plot {
        name: "a Service leaves a person's load balancer",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: |testbed| {
            nodes(testbed, 2);
            reusing(testbed);
        },
        change: |testbed| testbed.cluster.delete("Service", "default", "shop").unwrap(),
    },
    Plot {
        name: "a Service is deleted",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: web,
        change: |testbed| testbed.cluster.delete("Service", "default", "web").unwrap(),
    },
    Plot {
        name: "a Service becomes a ClusterIP",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: web,
        change: |testbed| {
            let patch = json!({"spec": {"type": "ClusterIP"}});
            testbed.cluster.patch("Service", "default", "web", &patch).unwrap();
        },
    },
    Plot {
        name: "a node leaves",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: |testbed| {
            nodes(testbed, 3);
            testbed.expose("web", &[80], &["node-1", "node-2"], &[]);
        },
        change: |testbed| {
            testbed.cloud.release_instance(&instance(3));
            testbed.cluster.set_ready("node-3", "Unknown").unwrap();
        },
    },
    Plot { name: "another replica takes over", replicas: Replicas::Two, ..MADE },
    Plot {
        name: "volumes are made by hand",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: |testbed| nodes(testbed, 1),
        change: |testbed| {
            testbed.provide("data", "d-1", "cn-hangzhou-i");
            testbed.provide("more", "d-2", "cn-hangzhou-j");
        },
    },
];

const MADE: Plot = Plot {
    name: "a Service with two ports",
    replicas: Replicas::One,
    controllers: WITHOUT_NAMES,
    before: |testbed| nodes(testbed, 2),
    change: two_ports,
};

/// A network load balancer for each class Service, whose jobs take their time, beside a classic one.
fn network(testbed: &Testbed) {
    web(testbed);
    testbed.cloud.dials(|dials| {
        dials.nlb_creation_time = Duration::from_secs(2);
        dials.nlb_job_time = Duration::from_millis(700);
        dials.nlb_listeners_lock = true;
        dials.security_group_release = Duration::from_secs(4);
    });
}

fn with_net(testbed: &Testbed) {
    network(testbed);
    net(testbed);
}

fn net(testbed: &Testbed) {
    let port = |port: u16| json!({"name": format!("p{port}"), "port": port, "targetPort": 8000, "protocol": "TCP"});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "net", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "alibabacloud.com/nlb", "ports": [port(80), port(443)],
                 "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    });
    testbed.cluster.create(service).unwrap();
    let endpoint = |(number, node): (u8, &str)| sim::cluster::Endpoint::ready([10, 98, number, 20].into(), node);
    let endpoints: Vec<_> = (1..).zip(["node-1", "node-2"]).map(endpoint).collect();
    testbed.cluster.set_endpoints("default", "net", &endpoints).unwrap();
}

fn change_net(testbed: &Testbed) {
    let annotations: serde_json::Map<String, Value> = [
        ("name", "renamed"),
        ("address-type", "intranet"),
        ("cross-zone-enabled", "off"),
        ("delete-protection", "off"),
        ("scheduler", "wlc"),
        ("idle-timeout", "60"),
        ("additional-resource-tags", "team=shop"),
    ]
    .into_iter()
    .map(|(name, value)| (format!("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-{name}"), json!(value)))
    .collect();
    let port = |port: u16| json!({"name": format!("p{port}"), "port": port, "targetPort": 8000, "protocol": "TCP"});
    let spec = json!({"ports": [port(80), port(8443)], "loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
    testbed.cluster.patch("Service", "default", "net", &patch).unwrap();
}

/// Services of both kinds, of which only nodes with endpoints are backends.
fn local(testbed: &Testbed) {
    with_net(testbed);
    testbed.join(3);
    for name in ["web", "net"] {
        let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
        testbed.cluster.patch("Service", "default", name, &local).unwrap();
    }
}

/// All pods are replaced by others, one of them on a node that had none.
fn replace_pods(testbed: &Testbed) {
    for name in ["web", "net"] {
        let endpoint = |(number, node): (u8, &str)| sim::cluster::Endpoint::ready([10, 98, number, 30].into(), node);
        let endpoints: Vec<_> = (2..).zip(["node-2", "node-3"]).map(endpoint).collect();
        testbed.cluster.set_endpoints("default", name, &endpoints).unwrap();
    }
}

/// What the controller of network load balancers does, in a world with a classic one.
const NETWORK_PLOTS: [Plot; 5] = [
    Plot {
        name: "pods behind both kinds are replaced",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: local,
        change: replace_pods,
    },
    Plot {
        name: "a Service gets a network load balancer",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: network,
        change: net,
    },
    Plot {
        name: "a Service on a network load balancer changes in everything",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: with_net,
        change: change_net,
    },
    Plot {
        name: "a Service on a network load balancer is deleted",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: with_net,
        change: |testbed| testbed.cluster.delete("Service", "default", "net").unwrap(),
    },
    Plot {
        name: "both kinds of Service are made, and another replica takes over",
        replicas: Replicas::Two,
        controllers: WITHOUT_NAMES,
        before: |testbed| nodes(testbed, 2),
        change: |testbed| {
            two_ports(testbed);
            net(testbed);
        },
    },
];

/// Services whose names are in the private zone, beside names of others.
fn named(testbed: &Testbed) {
    private_zone::headless(testbed, "db", &[11, 12, 13]);
    private_zone::plain(testbed, "old", "10.96.7.1");
    private_zone::service(testbed, "out", json!({"type": "ExternalName", "externalName": "example.com"}));
    private_zone::put(testbed, 901, private_zone::record("gone.default.svc", "A", "10.96.7.9", "somebody"));
}

/// Endpoints move and go, Services come and go, an alias becomes an address.
fn rename(testbed: &Testbed) {
    private_zone::point_at(testbed, "db", &[11, 14]);
    testbed.cluster.delete("Service", "default", "old").unwrap();
    let port = json!({"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"});
    private_zone::service(testbed, "new", json!({"clusterIP": "10.96.7.2", "ports": [port]}));
    let address = json!({"spec": {"externalName": "192.168.9.9"}});
    testbed.cluster.patch("Service", "default", "out", &address).unwrap();
}

const NAMES: Plot = Plot {
    name: "names follow Services and endpoints",
    replicas: Replicas::One,
    controllers: &["pvtz"],
    before: named,
    change: rename,
};

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_write_to_the_private_zone() {
    static PLOTS: [Plot; 2] =
        [NAMES, Plot { name: "another replica keeps the names", replicas: Replicas::Two, ..NAMES }];
    Row {
        tried: "killed at every write, with names in a private zone",
        test: "crashes::killed_at_every_write_to_the_private_zone",
        numbers: die_everywhere_inside(&scenarios_inside(&PLOTS).await).await,
        lost: 0,
    }
    .write();
}

/// A scenario, and where and how it dies.
type Planned = (Arc<Scenario>, Vec<(Site, Death)>);

/// Every one of these sites of each scenario.
fn every_write<'a>(
    scenarios: impl Iterator<Item = (&'a Arc<Scenario>, &'a Vec<Site>)>,
) -> impl Iterator<Item = (&'a Arc<Scenario>, &'a Site)> {
    scenarios.flat_map(|(scenario, sites)| sites.iter().map(move |site| (scenario, site)))
}

/// A scenario that dies once, at this write.
fn dying((scenario, site): (&Arc<Scenario>, &Site), death: Death) -> Planned {
    (scenario.clone(), vec![(site.clone(), death)])
}

/// Fails with everything that went wrong; else gives what was planned and did not happen.
fn judged(planned: &[Planned], outcomes: Vec<Result<bool, String>>) -> Vec<String> {
    let (mut missed, mut wrong) = (Vec::new(), Vec::new());
    for ((scenario, at), outcome) in planned.iter().zip(outcomes) {
        match outcome {
            Ok(true) => {}
            Ok(false) => missed.push(format!("{}: {}", scenario.story.name, plan(at))),
            Err(what) => wrong.push(what),
        }
    }
    assert!(wrong.is_empty(), "{} crashes ended wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    missed
}

async fn scenarios_inside(plots: &'static [Plot]) -> Vec<Arc<Scenario>> {
    in_parallel(plots.len(), |index| Arc::new(on_a_clock_of_its_own(0, Scenario::new::<Inside>(plots[index])).0)).await
}

/// Dies at every write of these scenarios, in process. Gives the numbers of the row.
async fn die_everywhere_inside(scenarios: &[Arc<Scenario>]) -> Vec<(&'static str, usize)> {
    let writes = every_write(scenarios.iter().map(|scenario| (scenario, &scenario.sites)));
    let planned = Arc::new(writes.flat_map(|write| Death::ALL.map(|death| dying(write, death))).collect::<Vec<_>>());
    let crashes = planned.clone();
    let outcomes = in_parallel(planned.len(), move |index| {
        let (scenario, at) = &crashes[index];
        scenario.crash_inside(at).map(|crashed| crashed.reached)
    });
    assert_eq!(judged(&planned, outcomes.await), Vec::<String>::new(), "did not happen");
    vec![("scenarios", scenarios.len()), ("sites", planned.len() / Death::ALL.len()), ("crashes", planned.len())]
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_write_it_ends_where_it_would_have() {
    let scenarios = scenarios_inside(&PLOTS).await;
    assert_eq!(scenarios.iter().find(|it| it.story.name == MADE.name).map(|it| marked(&it.start)), Some(0));
    let mut numbers = die_everywhere_inside(&scenarios).await;
    numbers.push(("foreign objects", scenarios.iter().map(|it| it.foreign.count()).sum()));
    Row {
        tried: "killed at every write, at four moments each",
        test: "crashes::killed_at_every_write_it_ends_where_it_would_have",
        numbers,
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_write_with_both_kinds_of_load_balancers() {
    Row {
        tried: "killed at every write, with network load balancers whose jobs take their time",
        test: "crashes::killed_at_every_write_with_both_kinds_of_load_balancers",
        numbers: die_everywhere_inside(&scenarios_inside(&NETWORK_PLOTS).await).await,
        lost: 0,
    }
    .write();
}

impl Scenario {
    /// Kills the process while it makes load balancers. Then most nodes are in another zone, and lists are late: the next process
    /// would make them elsewhere. Gives how many there are in the end, of either kind.
    async fn crash_and_move(&self, site: &Site, death: Death) -> (usize, usize) {
        let host = Inside::of(self.start.fork().await.unwrap(), WITHOUT_NAMES, &self.story.replicas.more());
        let testbed = host.testbed();
        let mut held = hold(testbed, site, death.moment());
        let process = host.begin();
        assert!(self.comes(&host, &mut held).await, "{site} does not come");
        drop(process);
        for number in [4, 6, 8] {
            testbed.join(number);
        }
        for list in ["DescribeLoadBalancers", "nlb:ListLoadBalancers"] {
            (0..4).for_each(|_| testbed.cloud.faults().script(list, Fault::Stale(60)));
        }
        let _process = host.begin();
        match death {
            Death::Late => release(&mut vec![held]).await,
            _ => held.lose(),
        }
        let began = Instant::now();
        let is_served = |name| {
            !testbed.cluster.get("Service", "default", name).unwrap()["status"]["loadBalancer"]["ingress"].is_null()
        };
        while !(is_served("web") && is_served("net")) {
            assert!(began.elapsed() < Inside::LONG, "{site}, {death:?}: not served\n{}", host.logs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        still(testbed, Inside::STILL[1]).await;
        testbed.cloud.look(|account| (account.load_balancers.len(), account.nlb.balancers.len()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_load_balancers_are_made_there_is_one_each_although_nodes_move() {
    static STORY: [Plot; 1] = [Plot {
        name: "both kinds of Service are made",
        replicas: Replicas::One,
        controllers: WITHOUT_NAMES,
        before: |testbed| nodes(testbed, 2),
        change: |testbed| {
            two_ports(testbed);
            net(testbed);
        },
    }];
    let scenario = scenarios_inside(&STORY).await.remove(0);
    let before = scenario.start.cloud.look(|account| (account.load_balancers.len(), account.nlb.balancers.len()));
    let sites: Vec<_> = scenario.sites.iter().filter(|it| matches!(it.write, Write::Cloud { .. })).cloned().collect();
    let planned: Vec<_> = sites
        .into_iter()
        .flat_map(|site| [Death::BeforeEffect, Death::BeforeAnswer, Death::Late].map(|death| (site.clone(), death)))
        .collect();
    let crashes = planned.clone();
    let outcomes = in_parallel(planned.len(), move |index| {
        let (site, death) = &crashes[index];
        on_a_clock_of_its_own(0, scenario.crash_and_move(site, *death))
    });
    for ((site, death), (count, log)) in planned.iter().zip(outcomes.await) {
        assert_eq!(count, (before.0 + 1, before.1 + 1), "{site}, {death:?}\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_twice_while_a_load_balancer_is_made_there_is_one() {
    static STORY: [Plot; 1] = [MADE];
    let scenario = scenarios_inside(&STORY).await.remove(0);
    // An event is written by itself; what comes after it is what comes without it.
    let first: Vec<_> = scenario
        .sites
        .iter()
        .filter(|site| !site.write.is_event())
        .flat_map(|site| [Death::BeforeAnswer, Death::Late].map(|death| (site.clone(), death)))
        .collect();
    let (crashes, same) = (first.clone(), scenario.clone());
    let rests =
        in_parallel(first.len(), move |index| same.crash_inside(&crashes[index..=index]).map(|crashed| crashed.rest));
    let mut planned: Vec<Planned> = Vec::new();
    for (first, rest) in first.into_iter().zip(rests.await) {
        let second = rest.unwrap().into_iter().filter(|site| !site.write.is_event());
        planned.extend(second.map(|second| (scenario.clone(), vec![first.clone(), (second, Death::BeforeAnswer)])));
    }
    let planned = Arc::new(planned);
    let crashes = planned.clone();
    let outcomes = in_parallel(planned.len(), move |index| {
        let (scenario, at) = &crashes[index];
        scenario.crash_inside(at).map(|crashed| crashed.reached)
    });
    assert_eq!(judged(&planned, outcomes.await), Vec::<String>::new(), "did not happen");
    Row {
        tried: "killed twice while a load balancer is made",
        test: "crashes::killed_twice_while_a_load_balancer_is_made_there_is_one",
        numbers: vec![("pairs", planned.len()), ("foreign objects", scenario.foreign.count())],
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_killed_at_every_write_ends_where_it_would_have() {
    // In process, the same writes are found each time; the binary has to come to every one of them.
    let inside = scenarios_inside(&PLOTS).await;
    let mut scenarios = JoinSet::new();
    for (index, story) in PLOTS.into_iter().enumerate() {
        scenarios.spawn(async move { (index, Scenario::new::<World>(story).await) });
    }
    let mut scenarios = scenarios.join_all().await;
    scenarios.sort_by_key(|(index, _)| *index);
    let scenarios: Vec<_> = scenarios.into_iter().map(|(_, scenario)| Arc::new(scenario)).collect();
    let writes = every_write(scenarios.iter().zip(&inside).map(|(scenario, inside)| (scenario, &inside.sites)));
    // By turns: in process, every write has every death.
    let planned: Vec<_> =
        writes.zip(Death::ALL.into_iter().cycle()).map(|(write, death)| dying(write, death)).collect();
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for (index, (scenario, at)) in planned.iter().cloned().enumerate() {
        let gate = gate.clone();
        running.spawn(async move {
            let _turn = gate.acquire().await.unwrap();
            for timing in TIMINGS {
                match scenario.crash::<World>(&at, Some(timing)).await {
                    Ok(Crashed { reached: false, .. }) => {}
                    outcome => return (index, outcome.map(|_| true)),
                }
            }
            (index, Ok(false))
        });
    }
    let mut outcomes = running.join_all().await;
    outcomes.sort_by_key(|(index, _)| *index);
    let missed = judged(&planned, outcomes.into_iter().map(|(_, outcome)| outcome).collect());
    assert_eq!(missed, Vec::<String>::new(), "did not happen in {} runs each", TIMINGS.len());
    Row {
        tried: "the binary killed by SIGKILL at every write that it makes, at one moment each",
        test: "crashes::the_binary_killed_at_every_write_ends_where_it_would_have",
        numbers: vec![("scenarios", PLOTS.len()), ("crashes", planned.len())],
        lost: 0,
    }
    .write();
}
