//! Killed at every write to either world, the product ends up where it would have ended up anyway.
//!
//! The writes are found by running a scenario undisturbed and reading what both worlds were asked. Then, for each of them,
//! both worlds are copied as they were at the start, the process is killed around that write, and a new one is started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sim::cluster::{Match, Version};
use sim::gate::{Held, Moment};
use sim::stage::{Stage, instance};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::kit::{ALL, HASTE, World};
use crate::proof::{Foreign, Row, SHARED, difference, marked, state};

/// Worlds that run at the same time. Most of them wait most of the time.
const AT_ONCE: usize = 24;
/// How long nothing must happen before a state counts as the end.
const QUIET: Duration = Duration::from_millis(500);
/// How long a crashed world may take to get where it should be.
const LONG: Duration = Duration::from_secs(120);
/// One copy, without a lease, so that a new one works at once.
const ALONE: &str = "[leader_election]\nenabled = false\n";

/// A write that was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Write {
    /// A call to the cloud.
    Cloud { action: String },
    /// A request to the API server.
    Cluster { verb: String, target: String, name: String },
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

/// Both worlds as they are when the process starts, and how they look when it is done.
struct Scenario {
    name: &'static str,
    start: Stage,
    foreign: Foreign,
    end: Value,
    sites: Vec<Site>,
}

fn more() -> String {
    format!("{HASTE}{ALONE}")
}

impl Scenario {
    /// Lets the product bring about what `before` asks for, then makes the change and runs it once undisturbed.
    async fn new(name: &'static str, before: impl FnOnce(&Stage), change: impl FnOnce(&Stage)) -> Self {
        let world = World::of(Stage::open(Version::NEWEST).await.unwrap(), ALL, &more());
        before(&world.stage);
        let services = ["web", "shop"];
        let foreign = Foreign::settle(&world.stage, &services);
        let ccm = world.start();
        world.until_still(Duration::from_secs(3)).await;
        assert!(ccm.stop().await.success());
        change(&world.stage);
        let foreign = foreign.look_again(&world.stage);
        let start = world.stage.fork().await.unwrap();

        let world = World::of(start.fork().await.unwrap(), ALL, &more());
        let _ccm = world.start();
        world.until_still(Duration::from_secs(18)).await;
        let mut counts: BTreeMap<Write, usize> = BTreeMap::new();
        for call in world.stage.cloud.writes() {
            *counts.entry(Write::Cloud { action: call.action }).or_default() += 1;
        }
        for call in world.stage.cluster.writes() {
            let write = Write::Cluster { verb: call.verb.to_owned(), target: call.target(), name: call.name };
            *counts.entry(write).or_default() += 1;
        }
        let sites = counts.into_iter().flat_map(|(write, count)| {
            // What events say is written by itself, aside from the work; the first one stands for all.
            let count = if matches!(&write, Write::Cluster { target, .. } if target == "events") { 1 } else { count };
            (0..count).map(move |nth| Site { write: write.clone(), nth })
        });
        let sites = sites.collect();
        assert_eq!(foreign.changes(&world.stage), Vec::<String>::new(), "{name}, undisturbed");
        assert_eq!(world.stage.cloud.complaints(), Vec::<String>::new(), "{name}, undisturbed");
        Self { name, start, foreign, end: state(&world.stage), sites }
    }

    /// Kills the process at each of these in turn; tells whether the last was reached, and what is wrong at the end.
    async fn crash(&self, at: &[(Site, Death)]) -> Result<bool, String> {
        let world = World::of(self.start.fork().await.unwrap(), ALL, &more());
        let what = || at.iter().map(|(site, death)| format!("{site}, {death:?}")).collect::<Vec<_>>().join(", then ");
        let mut late = Vec::new();
        let mut reached = true;
        for (site, death) in at {
            let mut held = hold(&world.stage, site, death.moment());
            let ccm = world.start();
            for held in late.drain(..) {
                tokio::time::sleep(Duration::from_millis(400)).await;
                Held::release(held);
            }
            if !self.comes(&world, &mut held).await {
                reached = false;
                break;
            }
            match death {
                Death::BeforeEffect | Death::BeforeAnswer => {
                    ccm.kill().await;
                    held.lose();
                }
                Death::AfterAnswer => {
                    held.release();
                    ccm.kill().await;
                }
                Death::Late => {
                    ccm.kill().await;
                    late.push(held);
                }
            }
        }
        let _ccm = world.start();
        for held in late {
            tokio::time::sleep(Duration::from_millis(400)).await;
            held.release();
        }
        let began = Instant::now();
        loop {
            world.until_still(QUIET).await;
            if state(&world.stage) == self.end {
                break;
            }
            if began.elapsed() > LONG {
                let wrong = difference(&self.end, &state(&world.stage));
                return Err(format!("{}: {}\n{wrong}\n{}", self.name, what(), world.logs()));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let changed = self.foreign.changes(&world.stage);
        if !changed.is_empty() {
            return Err(format!("{}: {}\nforeign: {changed:?}\n{}", self.name, what(), world.logs()));
        }
        Ok(reached)
    }

    /// Waits until the request is held; false if the work is done without it.
    async fn comes(&self, world: &World, held: &mut Held) -> bool {
        let began = Instant::now();
        while !held.has_arrived() {
            let done = began.elapsed() > Duration::from_secs(3) && state(&world.stage) == self.end;
            if done || began.elapsed() > LONG {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }
}

fn hold(stage: &Stage, site: &Site, moment: Moment) -> Held {
    match &site.write {
        Write::Cloud { action } => stage.cloud.faults().hold(action, site.nth, moment),
        Write::Cluster { verb, target, name } => {
            let matching = Match::new(verb, target);
            let matching = if name.is_empty() { matching } else { matching.named(name) };
            stage.cluster.hold_nth(matching, site.nth, moment)
        }
    }
}

/// A scenario, and where and how it dies.
type Planned = (Arc<Scenario>, Vec<(Site, Death)>);

/// Crashes, many at a time; returns how many were reached.
async fn all(crashes: Vec<Planned>) -> usize {
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for (scenario, at) in crashes {
        let gate = gate.clone();
        running.spawn(async move {
            let _turn = gate.acquire().await.unwrap();
            scenario.crash(&at).await
        });
    }
    let (mut reached, mut wrong) = (0, Vec::new());
    while let Some(outcome) = running.join_next().await {
        match outcome.unwrap() {
            Ok(hit) => reached += usize::from(hit),
            Err(what) => wrong.push(what),
        }
    }
    assert!(wrong.is_empty(), "{} crashes ended wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    reached
}

fn nodes(stage: &Stage, count: u8) {
    for number in 1..=count {
        stage.join(number);
    }
}

fn two_ports(stage: &Stage) {
    stage.expose("web", &[80, 443], &["node-1", "node-2"], &[]);
}

fn web(stage: &Stage) {
    nodes(stage, 2);
    two_ports(stage);
}

fn reusing(stage: &Stage) {
    const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";
    let (id, force) = (format!("{PREFIX}-id"), format!("{PREFIX}-force-override-listeners"));
    stage.expose("shop", &[8080], &["node-1", "node-2"], &[(&id, SHARED), (&force, "true")]);
}

fn change_everything(stage: &Stage) {
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
    stage.cluster.patch("Service", "default", "web", &patch).unwrap();
}

async fn scenarios() -> Vec<Arc<Scenario>> {
    let (joins, made, changed, reused, left, deleted, retyped, leaves) = tokio::join!(
        Scenario::new("a node joins", |stage| nodes(stage, 1), |stage| drop(stage.join(2))),
        Scenario::new(
            "a Service with two ports",
            |stage| nodes(stage, 2),
            |stage| {
                stage.expose("web", &[80, 443], &["node-1", "node-2"], &[]);
            }
        ),
        Scenario::new("a Service changes in everything", web, change_everything),
        Scenario::new("a Service uses a person's load balancer", |stage| nodes(stage, 2), reusing),
        Scenario::new(
            "a Service leaves a person's load balancer",
            |stage| {
                nodes(stage, 2);
                reusing(stage);
            },
            |stage| stage.cluster.delete("Service", "default", "shop").unwrap()
        ),
        Scenario::new("a Service is deleted", web, |stage| {
            stage.cluster.delete("Service", "default", "web").unwrap();
        }),
        Scenario::new("a Service becomes a ClusterIP", web, |stage| {
            let patch = json!({"spec": {"type": "ClusterIP"}});
            stage.cluster.patch("Service", "default", "web", &patch).unwrap();
        }),
        Scenario::new(
            "a node leaves",
            |stage| {
                nodes(stage, 3);
                stage.expose("web", &[80], &["node-1", "node-2"], &[]);
            },
            |stage| {
                stage.cloud.release_instance(&instance(3));
                stage.cluster.set_ready("node-3", "Unknown").unwrap();
            }
        ),
    );
    [joins, made, changed, reused, left, deleted, retyped, leaves].map(Arc::new).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_write_it_ends_where_it_would_have() {
    let scenarios = scenarios().await;
    for scenario in &scenarios {
        assert!(!scenario.sites.is_empty(), "{}: nothing happens", scenario.name);
    }
    assert_eq!(scenarios.iter().find(|it| it.name == "a Service with two ports").map(|it| marked(&it.start)), Some(0));
    let crashes: Vec<_> = scenarios
        .iter()
        .flat_map(|scenario| {
            let each = scenario.sites.iter().flat_map(|site| Death::ALL.map(|death| (site.clone(), death)));
            each.map(|crash| (scenario.clone(), vec![crash]))
        })
        .collect();
    let (sites, tried) = (crashes.len() / Death::ALL.len(), crashes.len());
    let reached = all(crashes).await;
    // Writes that depend on who is faster, such as a second try after a conflict, may not come again.
    assert!(reached * 10 >= tried * 9, "only {reached} of {tried} crashes happened");
    let foreign = scenarios.iter().map(|it| it.foreign.count()).sum();
    Row {
        tried: "killed at every write, four moments each",
        test: "crashes::killed_at_every_write_it_ends_where_it_would_have",
        numbers: vec![
            ("scenarios", scenarios.len()),
            ("sites", sites),
            ("crashes", reached),
            ("foreign things", foreign),
        ],
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_twice_while_a_load_balancer_is_made_there_is_one() {
    let scenario = Scenario::new("a Service with two ports", |stage| nodes(stage, 2), two_ports).await;
    let scenario = Arc::new(scenario);
    let cloud = |site: &Site| matches!(site.write, Write::Cloud { .. });
    let mut crashes = Vec::new();
    for first in &scenario.sites {
        // What comes next is counted anew by the next process, so the first of each kind is enough; only the cloud can
        // hold something twice.
        let second = scenario.sites.iter().filter(|site| site.nth == 0 && cloud(site));
        crashes.extend(second.map(|second| {
            let deaths = if cloud(first) { Death::Late } else { Death::BeforeAnswer };
            (scenario.clone(), vec![(first.clone(), deaths), (second.clone(), Death::BeforeAnswer)])
        }));
    }
    let tried = crashes.len();
    let reached = all(crashes).await;
    assert!(reached > 0, "no second crash happened");
    Row {
        tried: "killed twice while a load balancer is made",
        test: "crashes::killed_twice_while_a_load_balancer_is_made_there_is_one",
        numbers: vec![
            ("pairs", tried),
            ("second crashes reached", reached),
            ("foreign things", scenario.foreign.count()),
        ],
        lost: 0,
    }
    .write();
}
