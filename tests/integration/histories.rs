//! Random lives of Services leave no trace: in the end, cloud and Services are as in a fresh world in which the same objects
//! are created in their last state.
//!
//! Most are played in process, on a simulated clock; a few, and shorter ones, by the binary.
//!
//! `HISTORIES_SEED=17` plays one life with its log, `HISTORIES_LIVES=20000` so many. A life that fails is made as short as it
//! can be and printed.

mod generator;
mod judge;
mod known;
mod life;
mod values;
mod watcher;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use alicloud_ccm::plan::clb::annotations::Name as ClbName;
use alicloud_ccm::plan::loadbalancer::ownership::{FINALIZER, NLB_FINALIZER};
use alicloud_ccm::plan::nlb::annotations::Name as NlbName;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sim::cloud::{Account, Acl, Backend, Fault, Group, SecurityGroup, ServerGroup};
use sim::cluster::{Chaos, Endpoint, Failure, NodeSpec, Version};
use sim::testbed::{REGION, Testbed, VPC, instance};
use tokio::time::Instant;

use self::generator::{NODES, Row, USERS, rows};
use self::judge::{Exceptions, differences};
use self::life::{Deed, Life, Pause, Step, fields, index, merge, node_ports, patch, service};
use self::watcher::Watcher;
use crate::end_state::Foreign;
use crate::in_process::{Product, in_parallel, on_a_clock_of_its_own, orphans};
use crate::kinds::Kind;

/// The class of Services with a network load balancer.
const NETWORK_CLASS: &str = "alibabacloud.com/nlb";
/// Lives of an ordinary run.
const LIVES: usize = 200;
/// What is found wrong is put right so soon.
const SETTLES: Duration = Duration::from_secs(10);
/// The end is reached so soon after the last step.
const SOON: Duration = Duration::from_secs(60);
/// After this time it is not reached at all.
const NEVER: Duration = Duration::from_secs(400);
/// The end takes so many calls of each Service, and of two that are gone.
const CALLS: usize = 20;
/// For so long nothing may change any more.
const STAYS: Duration = Duration::from_secs(20);
/// The same for the binary, which runs on the clock of the machine, with so many lives of so many steps.
const BINARY_STAYS: Duration = Duration::from_secs(4);
const BINARY_LIVES: u64 = 10;
const BINARY_STEPS: usize = 6;
/// Failing lives that are made short; more are only named.
const SHORTENED: u64 = 4;
/// Attempts to make one short.
const TRIES: usize = 150;
/// What a list concealed is found so soon.
const COMPARED: Duration = Duration::from_secs(60);
/// No comparison finds what was missed, and no quota holds anything up.
const CONFIG: &str = "[leader_election]\nenabled = false\n[cloud.quotas]\n\"*\" = 100000\n\
    [nlb]\ndrift_check = \"0s\"\n[service]\ndrift_check = \"0s\"\nhand_over_grace = \"10s\"\n";

/// Both worlds before anything is wanted.
struct Start {
    testbed: Testbed,
    foreign: Foreign,
    rows: [Vec<Row>; 2],
}

impl Start {
    async fn new() -> Self {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        (1..=NODES).for_each(|number| testbed.rent(u8::try_from(number).unwrap()));
        let expires = testbed.cloud.now() + SignedDuration::from_hours(24 * 365);
        testbed.cloud.edit(|cloud| {
            for id in ["cert-1", "cert-2", "cert-3"] {
                let made = sim::cloud::Certificate { common_name: format!("{id}.example.com"), expires };
                cloud.certificates.insert(id.into(), made);
            }
            for id in ["acl-1", "acl-2"] {
                let acl = Acl { name: id.into(), ip_version: "ipv4".into(), ..Acl::default() };
                cloud.acls.insert(id.into(), acl);
            }
            cloud.nlb.ca_certificates.extend(["ca-1", "ca-2"].map(str::to_owned));
            cloud.nlb.bandwidth_packages.extend(["cbwp-1", "cbwp-2"].map(str::to_owned));
            for id in ["sg-user-1", "sg-user-2"] {
                let mut group = SecurityGroup::default();
                (group.name, group.kind, group.vpc) = (id.into(), "enterprise".into(), VPC.into());
                cloud.security_groups.insert(id.into(), group);
            }
        });
        for number in 0..USERS {
            Kind::Clb.of_user(&testbed, &format!("lb-user-u{number}"));
            Kind::Nlb.of_user(&testbed, &format!("nlb-user-u{number}"));
            for letter in ["a", "b"] {
                testbed.cloud.edit(|cloud| groups_of_user(cloud, &format!("user-u{number}"), letter));
            }
        }
        let foreign = Foreign::settle(&testbed, &["s0", "s1"]);
        Self { testbed, foreign, rows: [rows::<ClbName>(), rows::<NlbName>()] }
    }
}

/// Server groups on the load balancers of a user, with a server that the user put there.
fn groups_of_user(cloud: &mut Account, user: &str, letter: &str) {
    let name = format!("group-{user}-{letter}");
    let by_hand = Backend {
        server_id: instance(1),
        server_ip: String::new(),
        port: 9000,
        weight: 7,
        kind: "ecs".into(),
        description: "by hand".into(),
    };
    let group = Group { backends: vec![by_hand], ..Group::new(&name) };
    let lb = cloud.load_balancers.get_mut(&format!("lb-{user}")).unwrap();
    lb.groups.insert(format!("rsp-{user}-{letter}"), group);
    cloud.nlb.groups.insert(format!("sgp-{user}-{letter}"), ServerGroup::new(&name, VPC, "Instance", "TCP").into());
}

/// What runs in a world; dropping it is like killing it.
enum Running {
    InProcess { _product: Product },
    Binary { process: Child, _folder: tempfile::TempDir },
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Binary { process, .. } = self {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// One world in which something is wanted.
struct Place {
    /// The first to go: another world may get the ports of this one.
    product: Option<Running>,
    testbed: Testbed,
    wanted: Value,
    /// Whether the binary runs there, on the clock of the machine: then only the end is judged.
    is_binary: bool,
    watcher: Watcher,
    is_disturbed: bool,
    /// Lists conceal something for a while that only a comparison finds.
    is_lied_to: bool,
    /// Users' writes leave our annotations: what one drops soon before a crash is forgotten.
    keeps_ours: bool,
}

/// Address of the pod in a slot of a node.
fn address(service: &str, node: u64, slot: u64) -> Ipv4Addr {
    let (number, zone) = (u64::from(index(service)), if node % 2 == 1 { 0 } else { 16 });
    let octet = |number: u64| u8::try_from(number).unwrap();
    Ipv4Addr::new(192, 168, octet(zone + 1 + number % 14), octet(node * 40 + number / 14 * 13 + slot))
}

impl Place {
    async fn new(start: &Testbed, is_binary: bool) -> Self {
        let testbed = start.fork().await.unwrap();
        testbed.cloud.dials(|dials| {
            dials.latency = Duration::from_millis(5);
            dials.nlb_creation_time = Duration::from_secs(2);
            dials.nlb_job_time = Duration::from_millis(700);
            dials.nlb_listeners_lock = true;
            dials.security_group_release = Duration::from_secs(4);
        });
        testbed.cluster.set_latency(Duration::from_millis(2));
        Self {
            testbed,
            wanted: json!({}),
            product: None,
            is_binary,
            watcher: Watcher::default(),
            is_disturbed: false,
            is_lied_to: false,
            keeps_ours: false,
        }
    }

    /// Starts the process, or starts it anew.
    fn start(&mut self) {
        let key = |(key, value): (&String, &Value)| format!("{key} = {value}\n");
        let keys: String = fields(&self.wanted["config"]).map(key).collect();
        self.product = None;
        let config = match self.is_lied_to {
            true => CONFIG.replace("\"0s\"", &format!("\"{}s\"", COMPARED.as_secs())),
            false => CONFIG.to_owned(),
        };
        let (controllers, more) = (["service", "nlb"], format!("{config}{keys}"));
        self.product = Some(if self.is_binary {
            let folder = tempfile::tempdir().unwrap();
            let file = self.testbed.write_config(folder.path(), &controllers, &more).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
            command.env_clear().args(["run", "--config"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
            Running::Binary { process: command.spawn().unwrap(), _folder: folder }
        } else {
            Running::InProcess { _product: Product::start(&self.testbed, &controllers, &more) }
        });
    }

    /// Wants something else from now on; what the API server refuses is not wanted after all.
    fn want(&mut self, patch: &Value) {
        let before = std::mem::take(&mut self.wanted);
        let mut now = before.clone();
        merge(&mut now, patch);
        for (number, state) in
            fields(&now["nodes"]).filter(|(number, state)| before["nodes"][number.as_str()] != **state)
        {
            self.node(number, state);
        }
        for (number, _) in fields(&before["nodes"]).filter(|(number, _)| now["nodes"][number.as_str()].is_null()) {
            self.testbed.cluster.delete_node(&format!("node-{number}")).unwrap();
        }
        let both = fields(&before["services"]).chain(fields(&now["services"]));
        let names: Vec<String> = both.map(|(name, _)| name.clone()).collect();
        for name in names {
            let (old, new) = (&before["services"][&name], now["services"][&name].clone());
            let ports = node_ports(&now);
            let doubled = (1..ports.len()).any(|at| ports[..at].contains(&ports[at]));
            if *old != new && (doubled || self.tell(&name, &new).is_err()) {
                let old = if doubled || !old.is_null() { old.clone() } else { Value::Null };
                merge(&mut now, &json!({"services": {&name: null}}));
                if !old.is_null() {
                    now["services"][&name] = old;
                }
            }
        }
        let restart = before["config"] != now["config"];
        self.wanted = now;
        if restart && self.product.is_some() {
            self.watcher.disturb_until(Instant::now());
            self.start();
        }
    }

    /// Says what could not be said before, since the Service of this name was not gone; true if nothing is left to say. What
    /// the API server refuses is not wanted after all.
    fn said(&mut self) -> bool {
        let mut said = true;
        for (name, wanted) in fields(&self.wanted["services"].clone()) {
            let is_there = |place: &Self| {
                let it = place.testbed.cluster.get("Service", "default", name);
                it.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null())
            };
            if !is_there(self) && self.tell(name, wanted).is_err() {
                merge(&mut self.wanted, &json!({"services": {name: null}}));
            } else {
                said &= is_there(self);
            }
        }
        said
    }

    /// Brings a Service and its endpoints to what is wanted, unless it must be gone first.
    fn tell(&self, name: &str, wanted: &Value) -> Result<(), Failure> {
        let cluster = &self.testbed.cluster;
        let current = cluster.get("Service", "default", name);
        let going = current.as_ref().is_some_and(|it| !it["metadata"]["deletionTimestamp"].is_null());
        match (&current, wanted.is_null()) {
            (None, true) => return Ok(()),
            (Some(_), true) => return if going { Ok(()) } else { cluster.delete("Service", "default", name) },
            (Some(_), false) if going => return Ok(()),
            (None, false) => drop(cluster.create(service(name, wanted))?),
            (Some(current), false) => {
                drop(cluster.patch(
                    "Service",
                    "default",
                    name,
                    &patch(current, &service(name, wanted), self.keeps_ours),
                )?);
            }
        }
        let endpoint = |(slot, pod): (&String, &Value)| {
            let node = pod["node"].as_u64().unwrap_or(1);
            let ip = address(name, node, slot.parse().unwrap());
            self.testbed.cloud.edit(|cloud| {
                let eni = format!("eni-pods-{node}");
                let (text, number) = (ip.to_string(), u8::try_from(node).unwrap());
                if cloud.interfaces.get(&eni).is_none_or(|it| !it.ipv4.contains(&text)) {
                    let mut ips = cloud.interfaces.get(&eni).map(|it| it.ipv4.clone()).unwrap_or_default();
                    ips.push(text);
                    let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
                    let vswitch = if node % 2 == 1 { "vsw-i" } else { "vsw-j" };
                    cloud.add_interface(&eni, &instance(number), vswitch, &ips);
                }
            });
            let it = Endpoint::ready(IpAddr::V4(ip), &format!("node-{node}"));
            match pod["state"].as_str() {
                Some("not ready") => it.not_ready(),
                Some("terminating") => it.terminating(),
                _ => it,
            }
        };
        let endpoints: Vec<Endpoint> = fields(&wanted["pods"]).map(endpoint).collect();
        cluster.set_endpoints("default", name, &endpoints)
    }

    fn node(&self, number: &str, state: &Value) {
        let cluster = &self.testbed.cluster;
        let name = format!("node-{number}");
        let odd = number.parse::<u8>().unwrap() % 2 == 1;
        if cluster.get("Node", "", &name).is_none() {
            let spec = NodeSpec::new(&name)
                .provider_id(&format!("{REGION}.{}", instance(number.parse().unwrap())))
                .label("color", if odd { "blue" } else { "green" })
                .internal_ip(&format!("192.168.{}.{number}", if odd { 0 } else { 16 }));
            cluster.add_node(&spec).unwrap();
        }
        let cordoned = if state == "cordoned" { json!(true) } else { Value::Null };
        cluster.patch("Node", "", &name, &json!({"spec": {"unschedulable": cordoned}})).unwrap();
        cluster.set_ready(&name, if state == "not ready" { "False" } else { "True" }).unwrap();
    }

    fn versions(&self) -> (usize, u64) {
        (self.testbed.cloud.count_writes(), self.testbed.cluster.resource_version())
    }

    fn stays(&self) -> Duration {
        if self.is_binary { BINARY_STAYS } else { STAYS }
    }

    /// Waits until nothing changed for a while, but not for ever.
    async fn settle(&mut self) {
        let (began, mut since, mut seen) = (Instant::now(), Instant::now(), self.versions());
        while since.elapsed() < self.stays() && began.elapsed() < NEVER {
            self.pass(Duration::from_secs(1)).await;
            if self.versions() != seen {
                (since, seen) = (Instant::now(), self.versions());
            }
        }
    }

    /// Lets time pass, and looks on.
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.watch();
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end.min(Instant::now() + Duration::from_secs(1))).await;
        }
    }

    fn watch(&mut self) {
        if self.is_binary {
            return;
        }
        let mut watcher = std::mem::take(&mut self.watcher);
        watcher.look(self, self.is_disturbed);
        self.watcher = watcher;
    }

    fn trouble(&mut self, seed: u64, percent: u8, lies: bool) {
        self.is_disturbed = true;
        let mut menu = Fault::before();
        menu.extend(Fault::after());
        menu.extend([
            Fault::Hidden(1),
            Fault::Hidden(3),
            Fault::code("OperationConflict"),
            Fault::code("TaskConflict"),
        ]);
        if lies {
            menu.extend(Fault::stale());
        }
        let share = f64::from(percent) / 100.0;
        self.testbed.cloud.faults().random_from(seed, share, menu);
        let each = share / 4.0;
        self.testbed.cluster.set_chaos(Some(Chaos {
            seed,
            refuse: each,
            lose_request: each,
            lose_answer: each,
            drop_watches: each,
            latency: Duration::from_millis(5),
        }));
    }

    fn calm(&mut self) {
        self.is_disturbed = false;
        if self.is_lied_to {
            self.watcher.disturb_until(Instant::now() + COMPARED + SETTLES);
        }
        self.testbed.cloud.calm();
        self.testbed.cluster.calm();
        self.testbed.cluster.set_latency(Duration::from_millis(2));
    }

    /// Another client writes the metadata of a Service that stays.
    fn meddle(&self, name: &str, metadata: &Value) {
        let is_there = self.testbed.cluster.get("Service", "default", name);
        if is_there.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null()) {
            self.testbed.cluster.patch("Service", "default", name, &json!({"metadata": metadata})).unwrap();
        }
    }

    async fn step(&mut self, seed: u64, Step { pause, deed }: &Step) {
        match pause {
            Pause::Settle => self.settle().await,
            Pause::For(time) => self.pass(*time).await,
        }
        match deed {
            Deed::Change(patch) => self.want(patch),
            Deed::Strip(name) => self.meddle(name, &json!({"finalizers": null, "labels": null})),
            Deed::PutBack(name) => self.meddle(name, &json!({"finalizers": [FINALIZER, NLB_FINALIZER]})),
            Deed::Kill => {
                self.watcher.disturb_until(Instant::now());
                self.start();
            }
            Deed::Faults(percent) => self.trouble(seed, *percent, false),
            Deed::Lies(percent) => self.trouble(seed, *percent, true),
            Deed::Refuse(action) => {
                self.is_disturbed = true;
                self.testbed.cloud.faults().always(action, Fault::code("OperationDenied"));
            }
            Deed::Calm => self.calm(),
        }
    }
}

/// Lives a life and looks at its end.
async fn live(life: &Life, start: &Start, is_binary: bool) -> Result<(), String> {
    let mut place = Place::new(&start.testbed, is_binary).await;
    place.is_lied_to = life.conceals();
    place.start();
    let mut exceptions = Exceptions::default();
    for (at, step) in life.steps.iter().enumerate() {
        let before = place.wanted.clone();
        place.keeps_ours = place.is_disturbed || life.steps.get(at + 1).is_some_and(|next| next.pause != Pause::Settle);
        place.step(life.seed, step).await;
        for (name, _) in fields(&before["services"]).chain(fields(&place.wanted["services"])) {
            exceptions.note(name, &before["services"][name], &place.wanted["services"][name], &start.rows);
        }
    }
    place.calm();
    let began = Instant::now();
    while !place.said() {
        place.pass(Duration::from_millis(500)).await;
        if began.elapsed() > NEVER {
            return Err(format!("a deleted Service is not gone:\n    {}", last_calls(&place)));
        }
    }
    let mut calls = place.testbed.cloud.calls().len();
    let mut fresh = Place::new(&start.testbed, is_binary).await;
    fresh.want(&place.wanted);
    fresh.start();
    if fresh.wanted != place.wanted {
        return Err(format!("what was wanted step by step is refused at once: {}", place.wanted));
    }
    let (began, mut since) = (Instant::now(), Instant::now());
    let mut seen = (place.versions(), fresh.versions());
    let mut found = None;
    loop {
        place.pass(Duration::from_secs(2)).await;
        if seen != (place.versions(), fresh.versions()) {
            (since, seen, found) = (Instant::now(), (place.versions(), fresh.versions()), None);
        }
        if since.elapsed() > place.stays() {
            if found.is_none() {
                let worlds = [&place.testbed, &fresh.testbed];
                let mut differs = differences(worlds, &[], &place.wanted, &exceptions);
                if !differs.is_empty() {
                    let before = place.testbed.cloud.calls().len();
                    let orphans = orphans(&place.testbed, &["service", "nlb"], CONFIG).await;
                    calls += place.testbed.cloud.calls().len() - before;
                    differs = differences(worlds, &orphans, &place.wanted, &exceptions);
                }
                found = Some(differs);
            }
            if found.as_ref().is_some_and(Vec::is_empty) || began.elapsed() > NEVER {
                break;
            }
        } else if began.elapsed() > NEVER + SOON {
            let worlds = [&place, &fresh].map(last_calls).join("\n    fresh: ");
            return Err(format!("it never comes to rest:\n    {worlds}"));
        }
    }
    let found = found.unwrap_or_default();
    if !found.is_empty() {
        return Err(format!("it ends otherwise:\n    {}", found.join("\n    ")));
    }
    let took = began.elapsed().saturating_sub(since.elapsed());
    let foreign = start.foreign.changes(&place.testbed);
    if !foreign.is_empty() {
        return Err(format!("foreign: {foreign:?}"));
    }
    if !place.watcher.found.is_empty() {
        let found: Vec<_> = place.watcher.found.into_iter().collect();
        return Err(format!("on the way:\n    {}", found.join("\n    ")));
    }
    let complaints = place.testbed.cloud.complaints();
    if !complaints.is_empty() {
        return Err(format!("wrong requests: {complaints:?}"));
    }
    // After a refusal that lasted, the next attempt comes a minute later.
    let waits = place.is_lied_to || life.steps.iter().any(|step| matches!(step.deed, Deed::Refuse(_)));
    let soon = if waits { SOON + COMPARED } else { SOON };
    if since.duration_since(began) > soon && !is_binary {
        return Err(format!("the end took {} s", took.as_secs()));
    }
    let calls = place.testbed.cloud.calls().len() - calls;
    let most = CALLS * (fields(&place.wanted["services"]).count() + 2) * (1 + usize::from(place.is_lied_to));
    if calls > most {
        let mut counts = BTreeMap::<String, usize>::new();
        let last = place.testbed.cloud.calls();
        last[last.len() - calls..].iter().for_each(|call| *counts.entry(call.action.clone()).or_default() += 1);
        return Err(format!("the end took {calls} calls: {counts:?}"));
    }
    Ok(())
}

/// What a world was asked last.
fn last_calls(place: &Place) -> String {
    let calls = place.testbed.cloud.writes();
    let last: Vec<String> =
        calls.iter().rev().take(6).map(|call| format!("{} {}", call.action, call.outcome)).collect();
    last.join("; ")
}

fn attempt(life: &Life, start: &Start) -> (Result<(), String>, String) {
    on_a_clock_of_its_own(life.seed, live(life, start, false))
}

/// The shortest life found that fails, too, and why.
fn shorten(life: Life, wrong: String, start: &Start) -> (Life, String) {
    let (mut life, mut wrong, mut tries) = (life, wrong, 0);
    'again: loop {
        for simpler in life.simpler() {
            tries += 1;
            if tries > TRIES {
                return (life, wrong);
            }
            let now = attempt(&simpler, start).0.err().unwrap_or_default();
            if alike(&wrong, &now) {
                (life, wrong) = (simpler, now);
                continue 'again;
            }
        }
        return (life, wrong);
    }
}

/// Whether two lives fail in the same way, whatever the names and numbers.
fn alike(one: &str, other: &str) -> bool {
    let kind = |text: &str| -> String {
        let line = text.lines().nth(1).or_else(|| text.lines().next()).unwrap_or_default();
        line.split(": ").next().unwrap_or_default().chars().filter(|letter| !letter.is_ascii_digit()).collect()
    };
    !other.is_empty() && kind(one) == kind(other)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Lives the life of a seed; gives it with what is wrong and its log, if it fails.
#[expect(clippy::print_stdout, reason = "a run of many lives tells at once which of them fails")]
fn play(seed: u64, start: &Start) -> Option<(Life, String, String)> {
    let life = generator::life(seed);
    let (result, log) = attempt(&life, start);
    let wrong = result.err()?;
    println!("seed {seed} fails: {wrong}\n{life}");
    Some((life, wrong, log))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_ends_like_a_fresh_world_in_its_last_state() {
    let start = Arc::new(Start::new().await);
    let one = number("HISTORIES_SEED");
    let first = one.or(number("HISTORIES_FIRST")).unwrap_or(1);
    let count =
        if one.is_some() { 1 } else { number("HISTORIES_LIVES").map_or(LIVES, |it| usize::try_from(it).unwrap()) };
    let player = start.clone();
    let outcomes = in_parallel(count, move |at| play(first + at as u64, &player));
    let failed: Vec<_> = outcomes.await.into_iter().flatten().collect();
    let told: Vec<String> = failed.iter().map(|(life, wrong, _)| format!("{}: {wrong}", life.seed)).collect();
    let logs = if one.is_some() { failed.iter().map(|(_, _, log)| log.as_str()).collect() } else { String::new() };
    let most = number("HISTORIES_SHORTEN").unwrap_or(SHORTENED);
    let shown: Vec<_> = failed.into_iter().take(usize::try_from(most).unwrap()).collect();
    let short = in_parallel(shown.len(), move |at| {
        let (life, wrong, _) = shown[at].clone();
        let (life, wrong) = shorten(life, wrong, &start);
        format!("seed {} (again: HISTORIES_SEED={}), in short:\n{life}{wrong}", life.seed, life.seed)
    });
    let short = short.await;
    assert!(told.is_empty(), "{} of {count} lives:\n{}\n\n{}\n{logs}", told.len(), told.join("\n"), short.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_with_the_binary_ends_like_a_fresh_world_in_its_last_state() {
    let start = Start::new().await;
    let first = number("HISTORIES_FIRST").unwrap_or(1);
    let lives = (first..first + BINARY_LIVES).map(|seed| {
        let mut life = generator::life(seed);
        life.steps.retain(|step| !matches!(step.deed, Deed::Lies(_)) && !step.moves());
        life.steps.truncate(BINARY_STEPS);
        life
    });
    let played = lives.map(async |life| live(&life, &start, true).await.map_err(|wrong| format!("{life}{wrong}")));
    let failed: Vec<String> = futures::future::join_all(played).await.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
