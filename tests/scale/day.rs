//! A day of a large cluster, shortened: nodes are replaced, pods move, Services come and go, leaders change, the cloud
//! throttles and each of its products fails for a while. In the end everything has to be in sync.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use sim::cloud::{Account, Fault};
use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Row, Stopwatch, plot};
use super::world::{self, addressed, initialised, instance, node, routed};
use super::{Options, anything, say};

/// A day has so many of these, whatever its length; a shorter one has proportionally fewer of the first two.
const MINUTES: f64 = 30.0;
const MOVES: f64 = 10_000.0;
const SERVICES: f64 = 300.0;
/// The share of the nodes that is replaced.
const REPLACED: f64 = 0.2;
/// Nodes that are replaced together.
const WAVE: usize = 20;
/// The share of calls that the cloud throttles in that hour.
const THROTTLED: f64 = 0.5;
/// Time between two looks at both worlds.
const LOOK: Duration = Duration::from_millis(50);
/// After this time without a call, what was to be done is done.
const QUIET: Duration = Duration::from_secs(3);
/// Backends in one call.
const BACKENDS: usize = 40;

/// What happens besides pods that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    NodesAreReplaced,
    ServicesComeAndGo,
    LeaderIsKilled,
    LeaderStops,
    Throttling,
    Outage(&'static str),
}

/// Parts of the day, all of one length.
const DAY: [(&str, Event); 9] = [
    ("pods move", Event::Nothing),
    ("nodes are replaced", Event::NodesAreReplaced),
    ("Services come and go", Event::ServicesComeAndGo),
    ("the leader is killed", Event::LeaderIsKilled),
    ("the leader stops", Event::LeaderStops),
    ("half of the calls are throttled", Event::Throttling),
    ("ECS is away", Event::Outage("ecs:*")),
    ("VPC is away", Event::Outage("vpc:*")),
    ("CLB is away", Event::Outage("slb:*")),
];

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Effect {
    /// The only backend of this Service is this instance.
    Moved(String, String),
    /// A Service has an address.
    Ready(String),
    /// A Service and its load balancer are gone.
    Gone(String),
    /// A node is initialised and routed.
    Joined(String),
    /// An instance is in no server group.
    Left(String),
}

impl Effect {
    const fn label(&self) -> &'static str {
        match self {
            Self::Moved(..) => "pod moved",
            Self::Ready(_) => "Service ready",
            Self::Gone(_) => "Service gone",
            Self::Joined(_) => "node joined",
            Self::Left(_) => "node left",
        }
    }
}

/// Both worlds at one moment.
struct Sight {
    /// Instances in the server groups of each Service.
    backends: HashMap<String, BTreeSet<String>>,
    services: BTreeSet<String>,
    addressed: BTreeSet<String>,
    joined: BTreeSet<String>,
    entries: usize,
}

impl Sight {
    fn of(testbed: &Testbed) -> Self {
        let mut joined: BTreeSet<String> = routed(testbed).into_iter().collect();
        let initialised: BTreeSet<String> = initialised(testbed).into_iter().collect();
        joined.retain(|name| initialised.contains(name));
        let (backends, entries) = testbed.cloud.look(|account| (backends(account), entries(account)));
        Self {
            backends,
            services: world::names(testbed, "Service", is_balanced).into_iter().collect(),
            addressed: addressed(testbed).into_iter().collect(),
            joined,
            entries,
        }
    }

    fn shows(&self, effect: &Effect) -> bool {
        let serve = |service: &str, instance: &str| {
            self.backends.get(service).is_some_and(|them| them.len() == 1 && them.contains(instance))
        };
        match effect {
            Effect::Moved(service, instance) => serve(service, instance),
            Effect::Ready(service) => self.addressed.contains(service),
            Effect::Gone(service) => !self.services.contains(service) && !self.backends.contains_key(service),
            Effect::Joined(node) => self.joined.contains(node),
            Effect::Left(instance) => !self.backends.values().any(|them| them.contains(instance)),
        }
    }
}

fn is_balanced(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer"
}

/// By the name of the Service, which is in the name of each server group.
fn backends(account: &Account) -> HashMap<String, BTreeSet<String>> {
    let mut found: HashMap<String, BTreeSet<String>> = HashMap::new();
    for group in account.load_balancers.values().flat_map(|balancer| balancer.groups.values()) {
        let service = group.name.split('/').nth(2).unwrap_or_default();
        found.entry(service.to_owned()).or_default().extend(group.backends.iter().map(|it| it.server_id.clone()));
    }
    found
}

fn entries(account: &Account) -> usize {
    let all = account.route_tables.values().flat_map(|table| table.entries.values());
    all.filter(|entry| entry.next_hop_type == "Instance").count()
}

/// The cluster, and what was done to it that is not seen yet.
struct Day<'a> {
    testbed: &'a Testbed,
    /// Numbers of the nodes that are there; the first one stays.
    nodes: Vec<usize>,
    next_node: usize,
    /// Services with one local endpoint, and the node that it is on.
    moving: Vec<(String, usize)>,
    /// Services whose backends are all nodes.
    wide: BTreeSet<String>,
    made: usize,
    moves: usize,
    waits: BTreeMap<Effect, Instant>,
    took: BTreeMap<&'static str, Vec<Duration>>,
    /// The fewest calls that the changes of this part need.
    floor: usize,
}

impl Day<'_> {
    fn expect(&mut self, effect: Effect) {
        if let Effect::Moved(service, _) = &effect {
            // An earlier move of the same pod is of no interest any more.
            self.waits.retain(|other, _| !matches!(other, Effect::Moved(moved, _) if moved == service));
        }
        self.waits.insert(effect, Instant::now());
    }

    /// Notes how long it took until what is seen now.
    fn look(&mut self) {
        let sight = Sight::of(self.testbed);
        let took = &mut self.took;
        self.waits.retain(|effect, since| {
            let is_seen = sight.shows(effect);
            if is_seen {
                took.entry(effect.label()).or_default().push(since.elapsed());
            }
            !is_seen
        });
    }

    /// Moves the next pod to the next node.
    fn move_pod(&mut self) -> Result<(), String> {
        let index = self.moves % self.moving.len();
        self.moves += 1;
        let to = self.nodes[(self.moves * 7) % self.nodes.len()];
        self.move_to(index, to)
    }

    fn move_to(&mut self, index: usize, to: usize) -> Result<(), String> {
        let (name, at) = &mut self.moving[index];
        if *at == to {
            return Ok(());
        }
        *at = to;
        world::endpoints(self.testbed, name, &[to])?;
        let effect = Effect::Moved(name.clone(), instance(to));
        self.floor += 2;
        self.expect(effect);
        Ok(())
    }

    /// Replaces so many nodes, as an autoscaler does: new ones join, pods move, old ones go with their instances.
    fn replace(&mut self, count: usize) -> Result<(), String> {
        let old: Vec<usize> = self.nodes.drain(1..=count.min(self.nodes.len().saturating_sub(1))).collect();
        for _ in &old {
            let number = self.next_node;
            self.next_node += 1;
            world::rent(self.testbed, number);
            world::join(self.testbed, number)?;
            self.nodes.push(number);
            self.expect(Effect::Joined(node(number)));
        }
        for index in 0..self.moving.len() {
            if old.contains(&self.moving[index].1) {
                self.move_to(index, self.nodes[index % self.nodes.len()])?;
            }
        }
        for number in &old {
            self.testbed.cloud.release_instance(&instance(*number));
            let deleted = self.testbed.cluster.delete("Node", "", &node(*number));
            deleted.map_err(|failure| format!("node {number} cannot be deleted: {failure:?}"))?;
            self.expect(Effect::Left(instance(*number)));
        }
        // An add and a removal for each group; instances by the hundred, a switch each, entries by the fifty and their table.
        self.floor += self.wide.len() * 2 * old.len().div_ceil(BACKENDS);
        self.floor += old.len().div_ceil(100) + old.len() + 2 * old.len().div_ceil(50) + 1;
        Ok(())
    }

    /// Makes a Service, and removes the oldest of those that were made today.
    fn make(&mut self) -> Result<(), String> {
        let name = format!("new-{}", self.made);
        world::expose(self.testbed, &name, false)?;
        self.wide.insert(name.clone());
        self.expect(Effect::Ready(name));
        self.floor += 4 + self.nodes.len().div_ceil(BACKENDS) - 1;
        self.made += 1;
        match self.made.checked_sub(10) {
            Some(old) => self.remove(format!("new-{old}")),
            None => Ok(()),
        }
    }

    fn remove(&mut self, name: String) -> Result<(), String> {
        let deleted = self.testbed.cluster.delete("Service", "default", &name);
        deleted.map_err(|failure| format!("{name} cannot be deleted: {failure:?}"))?;
        self.wide.remove(&name);
        self.waits.remove(&Effect::Ready(name.clone()));
        self.expect(Effect::Gone(name));
        self.floor += 2;
        Ok(())
    }

    /// What is not as the cluster wants it.
    fn out_of_sync(&self) -> Vec<String> {
        let sight = Sight::of(self.testbed);
        let all: BTreeSet<String> = self.nodes.iter().map(|number| instance(*number)).collect();
        let wide = self.wide.iter().map(|name| (name, all.clone()));
        let moving = self.moving.iter().map(|(name, at)| (name, BTreeSet::from([instance(*at)])));
        let wanted: BTreeMap<&String, BTreeSet<String>> = wide.chain(moving).collect();
        let wrong = |(name, backends): (&&String, &BTreeSet<String>)| {
            (sight.backends.get(*name) != Some(backends) || !sight.addressed.contains(*name)).then(|| (*name).clone())
        };
        let mut found: Vec<String> = wanted.iter().filter_map(wrong).collect();
        found.extend(
            sight.backends.keys().filter(|name| !wanted.contains_key(name)).map(|name| format!("surplus {name}")),
        );
        found.extend(self.nodes.iter().map(|number| node(*number)).filter(|name| !sight.joined.contains(name)));
        if sight.entries != self.nodes.len() {
            found.push(format!("{} route entries for {} nodes", sight.entries, self.nodes.len()));
        }
        found
    }
}

/// Plays a day in so many minutes. The rows: each part, and below it how long each kind of effect took.
pub(crate) async fn play(options: &Options, minutes: f64, folder: &Path) -> Result<Vec<Row>, String> {
    let testbed = &world::open(options, folder).await?;
    let patience = Duration::from_secs(options.patience);
    let start = |log: &str| Controller::start(options, folder, &testbed.cloud_address(), log);
    let mut day = begin(options, testbed)?;
    let mut leader = start("0.log")?;
    let mut watch = Stopwatch::start(testbed, Some(&leader), patience);
    watch.until("everything is in sync at the start", |_| day.out_of_sync().is_empty()).await?;
    watch.quiet(QUIET).await?;
    let mut rows = vec![watch.stop("start, everything there", 0, Some(&leader))];
    let mut standby = start("1.log")?;

    let share = minutes / MINUTES;
    let length = Duration::from_secs_f64(minutes * 60.0 / DAY.len() as f64);
    let each = |whole: f64| (whole * share / DAY.len() as f64).ceil() as usize;
    let (began, mut samples) = (Instant::now(), Vec::new());
    for (number, (name, event)) in DAY.into_iter().enumerate() {
        let pace = Pace {
            moves: each(MOVES),
            waves: ((options.nodes as f64 * REPLACED) as usize).div_ceil(WAVE),
            services: (SERVICES * share).ceil() as usize,
        };
        match event {
            Event::Throttling => testbed.cloud.faults().random_from(1, THROTTLED, vec![Fault::Throttle]),
            Event::Outage(product) => testbed.cloud.faults().always(product, Fault::Unavailable),
            Event::LeaderIsKilled => {
                drop(std::mem::replace(
                    &mut leader,
                    std::mem::replace(&mut standby, start(&format!("{}.log", number + 1))?),
                ));
            }
            Event::LeaderStops => {
                let next = std::mem::replace(&mut standby, start(&format!("{}.log", number + 1))?);
                std::mem::replace(&mut leader, next).stop().await?;
            }
            _ => {}
        }
        (day.floor, day.took) = (0, BTreeMap::new());
        let mut watch = Stopwatch::start(testbed, Some(&leader), patience);
        part(&mut day, event, &pace, length, |at| {
            if let Some(usage) = leader.usage() {
                samples.push((at.duration_since(began), usage.resident));
            }
        })
        .await?;
        testbed.cloud.calm();
        let ended = Instant::now();
        while !day.waits.is_empty() {
            day.look();
            if ended.elapsed() > patience {
                return Err(format!("{name}: {} effects did not come", day.waits.len()));
            }
            tokio::time::sleep(LOOK).await;
        }
        watch.elapsed();
        rows.push(watch.stop(name, day.floor, Some(&leader)));
        say(&format!("   {name}"));
        rows.extend(std::mem::take(&mut day.took).into_iter().map(|(label, each)| Row::of_each(label, each)));
    }
    let mut watch = Stopwatch::start(testbed, Some(&leader), patience);
    let outcome = watch.until("everything is in sync in the end", |_| day.out_of_sync().is_empty()).await;
    outcome.map_err(|problem| format!("{problem}: {}", day.out_of_sync().join(", ")))?;
    rows.push(watch.stop("in sync again", 0, Some(&leader)));
    if let Some(file) = &options.plot {
        std::fs::write(file, plot(&samples)).map_err(anything)?;
    }
    let complaints = testbed.cloud.complaints();
    if !complaints.is_empty() {
        return Err(format!("the cloud complains: {}", complaints.join("; ")));
    }
    Ok(rows)
}

/// How often things happen in one part of the day.
struct Pace {
    moves: usize,
    waves: usize,
    services: usize,
}

/// One part of the day; `sample` is called about once a second.
async fn part(
    day: &mut Day<'_>,
    event: Event,
    pace: &Pace,
    length: Duration,
    mut sample: impl FnMut(Instant),
) -> Result<(), String> {
    let (began, mut sampled) = (Instant::now(), None);
    let (mut moves, mut waves, mut services) = (0, 0, 0);
    while began.elapsed() < length {
        let share = began.elapsed().as_secs_f64() / length.as_secs_f64();
        let due = |whole: usize| (whole as f64 * share).ceil() as usize;
        while moves < due(pace.moves) {
            day.move_pod()?;
            moves += 1;
        }
        while event == Event::NodesAreReplaced && waves < due(pace.waves) {
            let left = (day.nodes.len() as f64 * REPLACED) as usize;
            day.replace(left.clamp(1, WAVE))?;
            waves += 1;
        }
        while event == Event::ServicesComeAndGo && services < due(pace.services) {
            day.make()?;
            services += 1;
        }
        day.look();
        if sampled.is_none_or(|last: Instant| last.elapsed() >= Duration::from_secs(1)) {
            sampled = Some(Instant::now());
            sample(Instant::now());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// The cluster in the morning: a quarter of the Services have one pod each, which moves.
fn begin<'a>(options: &Options, testbed: &'a Testbed) -> Result<Day<'a>, String> {
    for number in 0..options.nodes {
        world::rent(testbed, number);
        world::stand(testbed, number)?;
    }
    let (mut moving, mut wide) = (Vec::new(), BTreeSet::new());
    for number in 0..options.services.max(4) {
        let name = format!("web-{number}");
        let is_moving = number % 4 == 0;
        world::expose(testbed, &name, is_moving)?;
        match is_moving {
            true => moving.push((name, 0)),
            false => drop(wide.insert(name)),
        }
    }
    Ok(Day {
        testbed,
        nodes: (0..options.nodes).collect(),
        next_node: options.nodes,
        moving,
        wide,
        made: 0,
        moves: 0,
        waits: BTreeMap::new(),
        took: BTreeMap::new(),
        floor: 0,
    })
}
