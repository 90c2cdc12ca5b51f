//! A fifth of all requests fails, in both worlds; when the faults end, the state becomes what it would have been.
//!
//! The seed decides what users, people in the console and the machines do, when the process dies, and what happens to the
//! nth call of each action. `SAFETY_SEEDS=1000` runs that many seeds, `SAFETY_SEED=17` only this one.
//!
//! Most seeds run in process, on a simulated clock: hours of waiting cost nothing, and a busy machine changes nothing. Some
//! run with the binary, over sockets and in real time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{Chaos, Version};
use sim::testbed::{Testbed, ZONE, instance};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::availability::Availability;
use crate::end_state::{Foreign, Row, difference, state};
use crate::harness::{EVERY, HASTE, World};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::private_zone;

/// A list that is out of date or cut short without a word is believed until the next comparison, and so is what was before
/// somebody changed it in the console.
const COMPARED: &str = "[leader_election]\nenabled = false\n[nlb]\ndrift_check = \"60s\"\n\
    [pvtz]\nzone_name = \"cluster.play\"\naggregation = \"0s\"\nnodes = true\nperiod = \"60s\"\n[service]\ndrift_check = \"60s\"\ndrift_reads = 1000\n";
/// Everything else has to be noticed by itself.
const ON_ITS_OWN: &str = "[leader_election]\nenabled = false\n[nlb]\ndrift_check = \"0s\"\n\
    [pvtz]\nzone_name = \"cluster.play\"\naggregation = \"0s\"\nnodes = true\nperiod = \"0s\"\n\
    [service]\ndrift_check = \"0s\"\n";
/// How long everything may take after the last fault: the longest pause after a failure, and a comparison.
const LONG: Duration = Duration::from_secs(300 + 2 * 60);

/// While a fifth of all requests fails, a backend may be late for so long: that is twice what four retries take, which wait
/// for 1, 2, 4 and 8 seconds.
const GAP: Duration = Duration::from_secs(30);
/// What is wrong without a word is noticed by the next comparison.
const COMPARISON: Duration = Duration::from_secs(60);

/// What can happen in a run, and the configuration of the product.
#[derive(Clone, Copy)]
struct Rules {
    more: &'static str,
    menu: fn() -> Vec<Fault>,
    /// Whether somebody changes in the console what is ours.
    meddling: bool,
    /// For so long a ready endpoint may be missing from a server group that serves, see [`Availability`].
    gap: Duration,
    /// How long things go on to go wrong after everybody said what is wanted in the end; without it, that is said last.
    afterwards: Option<Duration>,
}

const ALL_OF_IT: Rules =
    Rules { more: COMPARED, menu, meddling: true, gap: GAP.saturating_add(COMPARISON), afterwards: None };
/// Whatever goes wrong shows, if only later, and nobody gives a reason to look once more.
const WITHOUT_COMPARISONS: Rules =
    Rules { more: ON_ITS_OWN, menu: honest_menu, meddling: false, gap: GAP, afterwards: Some(Duration::from_secs(5)) };

/// How long a play is.
struct Pace {
    changes: u64,
    /// Between two changes at least this time, ...
    least: Duration,
    /// ... at most so much more, in milliseconds, ...
    more: u64,
    /// ... and no more calls than some ten and so many.
    calls: u64,
    /// How long everything has to stay as it is in the end.
    stays: Duration,
}

/// Where time costs nothing: long enough for one more comparison in the end.
const LEISURE: Pace =
    Pace { changes: 12, least: Duration::from_millis(200), more: 8000, calls: 60, stays: Duration::from_secs(2 * 60) };
/// Where time has to be waited for.
const HURRY: Pace =
    Pace { changes: 6, least: Duration::from_secs(2), more: 2000, calls: 30, stays: Duration::from_secs(3) };
/// Seeds of an ordinary run.
const SEEDS: u64 = 50;
/// Of these, the binary plays so many.
const BINARY_SEEDS: u64 = 4;
const SERVICES: [&str; 3] = ["web", "shop", NETWORK];
/// The Service with a network load balancer.
const NETWORK: &str = "net";
/// Remark of records of others.
const OTHERS: &str = "somebody";
/// The Service whose endpoints have names, and no load balancer.
const HEADLESS: &str = "db";
const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";

/// Reproducible randomness.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

fn menu() -> Vec<Fault> {
    let mut menu = Fault::before();
    menu.extend(Fault::after());
    menu.extend(Fault::stale());
    menu.extend([
        Fault::Hidden(1),
        Fault::Hidden(3),
        Fault::HangBefore(Duration::from_millis(700)),
        Fault::HangAfter(Duration::from_millis(700)),
        Fault::code("OperationConflict"),
        Fault::code("BackendServer.configuring"),
        Fault::code("TaskConflict"),
        Fault::code("OperationFailed.ResourceIsConfiguring"),
        Fault::JobFails,
    ]);
    menu
}

/// Answers can be lost and come late, and lists show what is new only later; but no answer is wrong without a word.
fn honest_menu() -> Vec<Fault> {
    let stale = Fault::stale();
    let mut menu: Vec<Fault> = menu().into_iter().filter(|fault| !stale.contains(fault)).collect();
    menu.extend((1..=4).map(Fault::LostAndHidden));
    menu
}

/// What a Service asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    /// Ports of the load balancer; none means no load balancer.
    ports: &'static [u16],
    /// Whether every setting is another one than usual.
    unusual: bool,
}

const WISHES: [Wish; 5] = [
    Wish { ports: &[], unusual: false },
    Wish { ports: &[80], unusual: false },
    Wish { ports: &[80, 443], unusual: false },
    Wish { ports: &[443, 8443, 9443], unusual: false },
    Wish { ports: &[80, 443], unusual: true },
];

impl Wish {
    /// A setting that is no longer named stays as it is; so all are named always.
    fn settings(self, name: &str) -> &'static [(&'static str, &'static str)] {
        match (name == NETWORK, self.unusual) {
            (false, false) => &[("scheduler", "rr"), ("persistence-timeout", "0")],
            (false, true) => &[("scheduler", "wlc"), ("persistence-timeout", "60")],
            (true, false) => &[
                ("scheduler", "rr"),
                ("idle-timeout", "900"),
                ("address-type", "internet"),
                ("cross-zone-enabled", "on"),
            ],
            (true, true) => &[
                ("scheduler", "wlc"),
                ("idle-timeout", "60"),
                ("address-type", "intranet"),
                ("cross-zone-enabled", "off"),
            ],
        }
    }
}

/// Annotations that make no sense. The next wish takes them back.
const WRONG: [(&str, &str); 4] = [
    ("scheduler", "nonsense"),
    ("persistence-timeout", "soon"),
    ("health-check-interval", "a minute"),
    ("idle-timeout", "soon"),
];

/// What the user wants in the end, whatever happened before.
const FINALLY: [(&str, Wish); 3] = [
    ("web", Wish { ports: &[80, 443], unusual: false }),
    ("shop", Wish { ports: &[8080], unusual: true }),
    (NETWORK, Wish { ports: &[80, 443], unusual: true }),
];

/// Brings the Service to what the user wishes now; false if that must wait until the one before is gone.
fn wish(testbed: &Testbed, name: &str, wish: Wish) -> bool {
    match testbed.cluster.get("Service", "default", name) {
        None => {
            testbed.expose(name, &[80], &["node-1", "node-2"], &[]);
            // A class can only be given together with the type.
            let patch = json!({"spec": {"type": "ClusterIP"}});
            testbed.cluster.patch("Service", "default", name, &patch).unwrap();
        }
        Some(service) if !service["metadata"]["deletionTimestamp"].is_null() => return false,
        Some(_) => {}
    }
    let offset = 1000 * SERVICES.iter().position(|it| *it == name).unwrap_or_default();
    let node_port = |port: u16| 30_000 + usize::from(port % 1000) + offset;
    let port = |port: &u16| {
        let mut it = json!({"name": format!("p{port}"), "port": port, "targetPort": 8000, "protocol": "TCP"});
        if !wish.ports.is_empty() {
            it["nodePort"] = node_port(*port).into();
        }
        it
    };
    let (kind, ports) = if wish.ports.is_empty() { ("ClusterIP", &[80][..]) } else { ("LoadBalancer", wish.ports) };
    let ports: Vec<Value> = ports.iter().map(port).collect();
    let mut annotations: serde_json::Map<String, Value> =
        WRONG.into_iter().map(|(name, _)| (format!("{PREFIX}-{name}"), Value::Null)).collect();
    let settings = wish.settings(name).iter();
    annotations.extend(settings.map(|(name, value)| (format!("{PREFIX}-{name}"), (*value).into())));
    let mut spec = json!({"type": kind, "ports": ports});
    if name == NETWORK {
        // The API server takes both away from a Service of another type.
        let given = |value: Value| if wish.ports.is_empty() { Value::Null } else { value };
        spec["loadBalancerClass"] = given("alibabacloud.com/nlb".into());
        let ranges = if wish.unusual { json!(["10.0.0.0/8", "192.168.0.0/16"]) } else { Value::Null };
        spec["loadBalancerSourceRanges"] = given(ranges);
    }
    // Where pods are decides which nodes are backends.
    spec["externalTrafficPolicy"] = if wish.ports.is_empty() { Value::Null } else { "Local".into() };
    let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
    testbed.cluster.patch("Service", "default", name, &patch).unwrap();
    true
}

/// Something that a user, somebody in the console, or a machine does.
fn change(testbed: &Testbed, dice: &mut Dice, meddling: bool) {
    let name = SERVICES[usize::try_from(dice.below(3)).unwrap()];
    match dice.below(14) {
        0..5 => {
            wish(testbed, name, WISHES[usize::try_from(dice.below(5)).unwrap()]);
        }
        // While an annotation is wrong, endpoints move.
        10..13 => {
            let (key, value) = WRONG[usize::try_from(dice.below(4)).unwrap()];
            let wrong = json!({"metadata": {"annotations": {format!("{PREFIX}-{key}"): value}}});
            // A Service that is gone has none.
            let _ = testbed.cluster.patch("Service", "default", name, &wrong);
            roll(testbed, name, dice);
        }
        13 | 5 => roll(testbed, name, dice),
        6 => drop(testbed.cluster.delete("Service", "default", name)),
        7 => roll(testbed, name, dice),
        8 => {
            if testbed.cluster.get("Node", "", "node-4").is_none()
                && testbed.cloud.look(|it| !it.instances.contains_key("i-play-4"))
            {
                testbed.join(4);
            } else {
                testbed.cloud.release_instance(&instance(4));
                let _ = testbed.cluster.set_ready("node-4", "Unknown");
            }
        }
        _ if meddling && name == NETWORK => meddle_with_network(testbed, dice.below(6)),
        _ if meddling => meddle(testbed, dice.below(3)),
        _ => {}
    }
}

/// The pods of a Service move to other nodes.
fn roll(testbed: &Testbed, name: &str, dice: &mut Dice) {
    let hosts = [1, 1].map(|least| least + dice.below(3));
    let [node, other] = hosts.map(|host| format!("node-{host}"));
    serve(testbed, name, &[&node, &other]);
    private_zone::point_at(testbed, HEADLESS, &hosts.map(|host| u8::try_from(host).unwrap()));
}

fn serve(testbed: &Testbed, name: &str, nodes: &[&str]) {
    let endpoints: Vec<_> = (1u8..)
        .zip(nodes)
        .map(|(number, node)| sim::cluster::Endpoint::ready([10, 98, number, 10].into(), node))
        .collect();
    // A Service that is gone has none.
    let _ = testbed.cluster.set_endpoints("default", name, &endpoints);
}

/// Somebody changes in the console what is ours.
fn meddle(testbed: &Testbed, what: u64) {
    let ours = |name: &String| name.starts_with('a') && name.len() == 32;
    testbed.cloud.edit(|cloud| {
        let records = &mut cloud.private_zones.get_mut(ZONE.0).unwrap().records;
        match what {
            0 => records.retain(|_, record| record.remark == OTHERS),
            1 => records.values_mut().filter(|record| record.remark != OTHERS).for_each(|record| record.ttl = 5),
            _ => {}
        }
        let cluster = |lb: &sim::cloud::LoadBalancer| {
            lb.tags.get("ack.aliyun.com").is_some_and(|id| id == sim::testbed::CLUSTER_ID)
        };
        let Some((_, lb)) = cloud.load_balancers.iter_mut().find(|(_, lb)| ours(&lb.name) && cluster(lb)) else {
            return;
        };
        match what {
            0 => drop(lb.listeners.pop_first()),
            1 => lb.groups.values_mut().for_each(|group| drop(group.backends.pop())),
            _ => lb.listeners.values_mut().for_each(|listener| listener.scheduler = "wrr".into()),
        }
    });
}

/// Somebody changes in the console what is ours of a network load balancer.
fn meddle_with_network(testbed: &Testbed, what: u64) {
    let ours =
        |tags: &BTreeMap<String, String>| tags.get("ack.aliyun.com").is_some_and(|id| id == sim::testbed::CLUSTER_ID);
    testbed.cloud.edit(|cloud| {
        let network = &mut cloud.nlb;
        let Some(lb) = network.balancers.values_mut().find(|lb| ours(&lb.tags)) else { return };
        let groups = network.groups.values_mut().filter(|group| ours(&group.tags));
        match what {
            0 => drop(lb.listeners.pop_first()),
            1 => groups.for_each(|group| drop(group.servers.pop())),
            2 => groups.for_each(|group| group.scheduler = "sch".into()),
            3 => lb.listeners.values_mut().for_each(|listener| listener.idle_timeout = 10),
            4 => lb.cross_zone = !lb.cross_zone,
            _ => cloud.security_groups.values_mut().filter(|group| ours(&group.tags)).for_each(|group| {
                group.rules.pop_first();
            }),
        }
    });
}

async fn start() -> (Testbed, Foreign) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    for number in 1..=3 {
        testbed.join(number);
    }
    for (name, _) in FINALLY {
        testbed.expose(name, &[80], &["node-1", "node-2"], &[]);
        wish(&testbed, name, WISHES[0]);
    }
    private_zone::headless(&testbed, HEADLESS, &[1, 2]);
    for (id, name) in [(901, "old.default.svc"), (902, "_p80._tcp.web.default.svc")] {
        private_zone::put(&testbed, id, private_zone::record(name, "TXT", "v=1", OTHERS));
    }
    testbed.provide("pv-1", "d-1", "cn-hangzhou-i");
    testbed.cloud.dials(|dials| {
        dials.latency = Duration::from_millis(5);
        dials.nlb_creation_time = Duration::from_secs(2);
        dials.nlb_job_time = Duration::from_millis(700);
        dials.nlb_listeners_lock = true;
        dials.security_group_release = Duration::from_secs(4);
        dials.route_pending = Duration::from_secs(1);
    });
    let foreign = Foreign::settle(&testbed, &SERVICES);
    (testbed, foreign)
}

/// Whatever happened, this is what is wanted in the end; true if it could be said.
fn finally(testbed: &Testbed) -> bool {
    let all = FINALLY.map(|(name, last)| wish(testbed, name, last));
    SERVICES.iter().for_each(|name| serve(testbed, name, &["node-1", "node-2"]));
    private_zone::point_at(testbed, HEADLESS, &[1, 2]);
    if testbed.cloud.look(|cloud| cloud.instances.contains_key("i-play-4")) {
        testbed.cloud.release_instance(&instance(4));
        let _ = testbed.cluster.set_ready("node-4", "Unknown");
    }
    all.iter().all(|said| *said)
}

fn troubled(testbed: &Testbed, seed: u64, menu: Vec<Fault>) {
    testbed.cloud.faults().random_from(seed, 0.2, menu);
    let each = 0.05;
    testbed.cluster.set_chaos(Some(Chaos {
        seed,
        refuse: each,
        lose_request: each,
        lose_answer: each,
        drop_watches: each,
        latency: Duration::from_millis(5),
    }));
}

/// A play that ended well.
struct Played {
    seed: u64,
    /// Calls to the cloud that went wrong.
    faults: usize,
    /// From the last fault to the end.
    took: Duration,
    /// The longest time for which a ready endpoint was not served.
    gap: Duration,
}

/// Plays one seed on this testbed, with a process that `begin` starts and that dies when it is dropped.
async fn play<P>(
    seed: u64,
    testbed: &Testbed,
    foreign: &Foreign,
    end: &Value,
    begin: impl Fn() -> P,
    (pace, rules): (&Pace, Rules),
) -> Result<Played, String> {
    troubled(testbed, seed, (rules.menu)());
    let mut product = begin();
    let mut dice = Dice(seed);
    for _ in 0..pace.changes {
        let calls = || *testbed.cloud.changes().borrow();
        // As many calls as come, but no more than some, so that changes meet work in progress.
        let until = Instant::now() + pace.least + Duration::from_millis(dice.below(pace.more));
        let most = 10 + dice.below(pace.calls);
        let most = calls() + most;
        while Instant::now() < until && calls() < most {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if dice.below(6) == 0 {
            drop(product);
            product = begin();
        }
        change(testbed, &mut dice, rules.meddling);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut said = false;
    if let Some(afterwards) = rules.afterwards {
        said = finally(testbed);
        tokio::time::sleep(afterwards).await;
    }
    let wrong = testbed.cloud.calls().iter().filter(|call| call.fault.is_some()).count();
    testbed.cloud.calm();
    testbed.cluster.calm();
    let began = Instant::now();
    let moved = || (*testbed.cloud.changes().borrow(), testbed.cluster.resource_version());
    said = said || finally(testbed);
    let (mut compared, mut same) = (None, false);
    while !said || !same {
        if began.elapsed() > LONG {
            return Err(format!("not as it would have been:\n{}", difference(end, &state(testbed))));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        said = said || finally(testbed);
        if compared != Some(moved()) {
            compared = Some(moved());
            same = state(testbed) == *end;
        }
    }
    let took = began.elapsed();
    let began = Instant::now();
    let writes = testbed.cloud.writes().len();
    while began.elapsed() < pace.stays && testbed.cloud.writes().len() == writes {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let foreign = foreign.changes(testbed);
    if state(testbed) != *end || !foreign.is_empty() {
        let wrong = difference(end, &state(testbed));
        return Err(format!("it does not stay so:\n{wrong}\nforeign: {foreign:?}"));
    }
    let complaints = testbed.cloud.complaints();
    if complaints.is_empty() {
        Ok(Played { seed, faults: wrong, took, gap: Duration::ZERO })
    } else {
        Err(format!("wrong requests: {complaints:?}"))
    }
}

/// Both worlds before and after a play.
struct Plot {
    rules: Rules,
    start: Testbed,
    foreign: Foreign,
    end: Value,
}

impl Plot {
    /// Plays it once undisturbed to see the end.
    async fn new(rules: Rules) -> Self {
        let (start, foreign) = start().await;
        let end = tokio::task::spawn_blocking({
            let testbed = start.fork().await.unwrap();
            move || {
                on_a_clock_of_its_own(0, async {
                    let testbed = testbed.fork().await.unwrap();
                    finally(&testbed);
                    let _product = Product::start(&testbed, EVERY, &format!("{HASTE}{}", rules.more));
                    tokio::time::sleep(LONG).await;
                    state(&testbed)
                })
                .0
            }
        });
        Self { rules, start, foreign, end: end.await.unwrap() }
    }

    fn in_process(&self, seed: u64) -> Result<Played, String> {
        self.traced(seed).0
    }

    /// Plays it in process; also gives every request to both worlds, in order.
    fn traced(&self, seed: u64) -> (Result<Played, String>, Vec<(String, String)>) {
        let ((result, trace), log) = on_a_clock_of_its_own(seed, async {
            let testbed = self.start.fork().await.unwrap();
            let begin = || Product::start(&testbed, EVERY, &format!("{HASTE}{}", self.rules.more));
            let availability = Availability::watch(&testbed);
            let result = play(seed, &testbed, &self.foreign, &self.end, begin, (&LEISURE, self.rules)).await;
            let (gap, which) = availability.worst();
            let result = result.and_then(|played| match gap > self.rules.gap {
                false => Ok(Played { gap, ..played }),
                true => Err(format!("for {} s {which}", gap.as_secs())),
            });
            let cloud = testbed.cloud.calls();
            let cloud = cloud.iter().map(|call| (call.action.clone(), format!("{:?} {}", call.fault, call.outcome)));
            let cluster = testbed.cluster.calls();
            let cluster = cluster
                .iter()
                .filter(|call| call.resource != "events")
                .map(|call| (format!("{} {} {}", call.verb, call.target(), call.name), format!("{:?}", call.status)));
            // Faults go by the number of the call among those of its action, so that the order of different ones decides nothing.
            let mut trace: Vec<(String, String)> = cloud.chain(cluster).collect();
            trace.sort_by(|(one, _), (other, _)| one.cmp(other));
            (result, trace)
        });
        (result.map_err(|wrong| format!("seed {seed} (again: SAFETY_SEED={seed}): {wrong}\n{log}")), trace)
    }

    async fn with_binary(&self, seed: u64) -> Result<Played, String> {
        let world = World::of(self.start.fork().await.unwrap(), EVERY, &format!("{HASTE}{}", self.rules.more));
        let result = play(seed, &world.testbed, &self.foreign, &self.end, || world.start(), (&HURRY, self.rules)).await;
        result.map_err(|wrong| format!("seed {seed} (again: SAFETY_SEED={seed}): {wrong}\n{}", world.logs()))
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// The seeds to play: one, or the first so many.
fn seeds(ordinary: u64) -> std::ops::RangeInclusive<u64> {
    match number("SAFETY_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("SAFETY_SEEDS").unwrap_or(ordinary),
    }
}

/// Fails with everything that went wrong, else tells what was slowest; gives the number of seeds and of faulty calls.
#[expect(clippy::print_stdout, reason = "which seeds were slowest is for whoever reads the output")]
fn judged(outcomes: Vec<Result<Played, String>>) -> (usize, usize) {
    let count = outcomes.len();
    let (played, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let failed: Vec<String> = failed.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} of {count} seeds:\n{}", failed.len(), failed.join("\n\n"));
    let mut played: Vec<Played> = played.into_iter().flatten().collect();
    played.sort_by_key(|it| std::cmp::Reverse(it.took));
    for Played { seed, took, .. } in played.iter().take(5) {
        println!("seed {seed} took {} s after the last fault", took.as_secs());
    }
    let latest = played.iter().max_by_key(|it| it.gap);
    println!("the longest gap: {:?}", latest.map(|it| (it.seed, it.gap)));
    let calm: Vec<u64> = played.iter().filter(|it| it.faults == 0).map(|it| it.seed).collect();
    assert_eq!(calm, Vec::<u64>::new(), "nothing went wrong");
    (count, played.iter().map(|it| it.faults).sum())
}

/// Plays the seeds in process, on as many threads as there are processors.
async fn play_all(plot: &Arc<Plot>) -> Vec<Result<Played, String>> {
    let seeds = seeds(SEEDS);
    let (next, last) = (Arc::new(AtomicU64::new(*seeds.start())), *seeds.end());
    let mut players = JoinSet::new();
    for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
        let (plot, next) = (plot.clone(), next.clone());
        players.spawn_blocking(move || {
            let draw = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed <= last);
            std::iter::from_fn(draw).map(|seed| plot.in_process(seed)).collect::<Vec<_>>()
        });
    }
    players.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifth_of_all_requests_goes_wrong() {
    let plot = Arc::new(Plot::new(ALL_OF_IT).await);
    let (played, faults) = judged(play_all(&plot).await);
    Row {
        tried: "a fifth of all requests fails",
        test: "random_faults::a_fifth_of_all_requests_goes_wrong",
        numbers: vec![("seeds", played), ("faulty cloud calls", faults), ("foreign objects", plot.foreign.count())],
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_lost_and_lists_are_late_while_nothing_is_compared() {
    let plot = Arc::new(Plot::new(WITHOUT_COMPARISONS).await);
    let (played, faults) = judged(play_all(&plot).await);
    Row {
        tried: "a fifth of all requests fails, lists are stale, and the drift check is off",
        test: "random_faults::answers_are_lost_and_lists_are_late_while_nothing_is_compared",
        numbers: vec![("seeds", played), ("faulty cloud calls", faults), ("foreign objects", plot.foreign.count())],
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_can_be_played_again() {
    const MOST: usize = 24;
    let plot = Arc::new(Plot::new(ALL_OF_IT).await);
    // On a busy machine one play may be woken in another order; the same one comes again all the same.
    let repeated = tokio::task::spawn_blocking(move || {
        let again = |seed| {
            let mut traces = Vec::new();
            while traces.len() < MOST {
                let trace = plot.traced(seed).1;
                if traces.contains(&trace) {
                    return trace.len();
                }
                traces.push(trace);
            }
            0
        };
        (1..=3).map(again).collect::<Vec<_>>()
    });
    let requests = repeated.await.unwrap();
    assert!(requests.iter().all(|count| *count > 100), "requests of plays that came twice: {requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifth_of_all_requests_of_the_binary_goes_wrong() {
    let plot = Arc::new(Plot::new(ALL_OF_IT).await);
    let mut players = JoinSet::new();
    for seed in seeds(BINARY_SEEDS).take(20) {
        let plot = plot.clone();
        players.spawn(async move { plot.with_binary(seed).await });
    }
    let outcomes = players.join_all().await;
    let (played, faults) = judged(outcomes);
    Row {
        tried: "a fifth of all requests of the binary fails",
        test: "random_faults::a_fifth_of_all_requests_of_the_binary_goes_wrong",
        numbers: vec![("seeds", played), ("faulty cloud calls", faults), ("foreign objects", plot.foreign.count())],
        lost: 0,
    }
    .write();
}
