//! A day of a large cluster, shortened: nodes are replaced, pods move, Services come and go, leaders change, the cloud
//! throttles and each of its products fails for a while. In the end everything has to be in sync. Half of the Services
//! have network load balancers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use sim::cloud::{Account, Fault};
use sim::cluster::Chaos;
use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Picture, Row, Stopwatch};
use super::world::{self, addressed, backends, initialised, instance, is_network, node, routed};
use super::{Options, anything, say};

/// A day has so many of these, whatever its length; a shorter one has proportionally fewer of the first two.
const MINUTES: f64 = 30.0;
const MOVES: f64 = 10_000.0;
const SERVICES: f64 = 300.0;
/// The share of the nodes that is replaced.
const REPLACED: f64 = 0.2;
/// Nodes that are replaced together.
const WAVE: usize = 20;
/// The share of calls that the cloud throttles in that part, which is longer than an hour of the day.
const THROTTLED: f64 = 0.5;
/// The share of requests that fail or lose their answers on a hostile day.
const FAILING: f64 = 0.05;
/// Time between two looks at both worlds.
const LOOK: Duration = Duration::from_millis(50);
/// After this time without a call, what was to be done is done.
const QUIET: Duration = Duration::from_secs(3);
/// So many backends tell whether there is exactly one.
const SMALL: usize = 2;
/// Backends in one call, and servers of a network load balancer.
const BACKENDS: usize = 40;
const SERVERS: usize = 200;
/// Services that were made today and are there at once.
const TOGETHER: usize = 10;

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
const DAY: [(&str, Event); 10] = [
    ("pods move", Event::Nothing),
    ("nodes are replaced", Event::NodesAreReplaced),
    ("Services come and go", Event::ServicesComeAndGo),
    ("the leader is killed", Event::LeaderIsKilled),
    ("the leader stops", Event::LeaderStops),
    ("half of the calls are throttled", Event::Throttling),
    ("ECS is away", Event::Outage("ecs:*")),
    ("VPC is away", Event::Outage("vpc:*")),
    ("CLB is away", Event::Outage("slb:*")),
    ("NLB is away", Event::Outage("nlb:*")),
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
    balancers: usize,
    groups: usize,
}

impl Sight {
    /// Large groups are many backends: `whole` says whether they are looked through, or only seen to be there.
    fn of(testbed: &Testbed, whole: bool) -> Self {
        let mut joined: BTreeSet<String> = routed(testbed).into_iter().collect();
        let initialised: BTreeSet<String> = initialised(testbed).into_iter().collect();
        joined.retain(|name| initialised.contains(name));
        let (backends, entries, balancers, groups) = testbed.cloud.look(|account| {
            let balancers = account.load_balancers.len() + account.nlb.balancers.len();
            let own = account.load_balancers.values().map(|balancer| balancer.groups.len()).sum::<usize>();
            (
                backends(account, if whole { usize::MAX } else { SMALL }),
                entries(account),
                balancers,
                own + account.nlb.groups.len(),
            )
        });
        Self {
            backends,
            services: world::names(testbed, "Service", is_balanced).into_iter().collect(),
            addressed: addressed(testbed).into_iter().collect(),
            joined,
            entries,
            balancers,
            groups,
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

fn entries(account: &Account) -> usize {
    let all = account.route_tables.values().flat_map(|table| table.entries.values());
    all.filter(|entry| entry.next_hop_type == "Instance").count()
}

/// How many backends one call adds or removes.
fn at_once(service: &str) -> usize {
    if is_network(service) { SERVERS } else { BACKENDS }
}

/// Name of the Service that is made as the nth.
fn made(number: usize) -> String {
    format!("new-{}-{number}", if number.is_multiple_of(2) { "web" } else { "net" })
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
    removed: usize,
    replaced: usize,
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
        let whole = self.waits.keys().any(|effect| matches!(effect, Effect::Left(_)));
        let sight = Sight::of(self.testbed, whole);
        let took = &mut self.took;
        self.waits.retain(|effect, since| {
            let is_seen = sight.shows(effect);
            if is_seen {
                took.entry(effect.label()).or_default().push(since.elapsed());
            }
            !is_seen
        });
    }

    /// Waits for everything that was done to be seen.
    async fn settle(&mut self, patience: Duration) -> Result<(), String> {
        let ended = Instant::now();
        while !self.waits.is_empty() {
            let looking = Instant::now();
            self.look();
            let looked = looking.elapsed();
            if ended.elapsed() > patience {
                let missing: Vec<&Effect> = self.waits.keys().collect();
                return Err(format!("{missing:?} did not come; out of sync: {}", self.out_of_sync().join(", ")));
            }
            // Looks take from the same processors, and hold up both worlds.
            tokio::time::sleep(LOOK.max(5 * looked)).await;
        }
        Ok(())
    }

    /// What there was in the day.
    fn done(&self, nodes: usize, pace: &Pace) -> String {
        format!(
            "{} pod moves, {} Services made, {} removed, {} of {nodes} nodes replaced, 2 leader changes; \
             throttling and outages of ECS, VPC, CLB and NLB: {} s each; 0 objects out of sync",
            self.moves,
            self.made,
            self.removed,
            self.replaced,
            pace.length.as_secs(),
        )
    }

    /// Moves the next pod to another node.
    fn move_pod(&mut self) -> Result<(), String> {
        let index = self.moves % self.moving.len();
        let away = |to: &&usize| **to != self.moving[index].1;
        let to = *self.nodes.iter().cycle().skip(self.moves * 7 % self.nodes.len()).find(away).unwrap_or(&0);
        self.move_to(index, to)
    }

    fn move_to(&mut self, index: usize, to: usize) -> Result<(), String> {
        let (name, at) = &mut self.moving[index];
        *at = to;
        self.moves += 1;
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
        self.replaced += old.len();
        // An add and a removal for each group; instances by the hundred, a switch each, entries by the fifty and their table.
        self.floor += self.wide.iter().map(|name| 2 * old.len().div_ceil(at_once(name))).sum::<usize>();
        self.floor += old.len().div_ceil(100) + old.len() + 2 * old.len().div_ceil(50) + 1;
        Ok(())
    }

    /// Makes a Service, and removes another.
    fn make(&mut self) -> Result<(), String> {
        let name = made(self.made);
        world::expose(self.testbed, &name, false)?;
        // With the first of its backends; a network load balancer is looked up three times, see `scenarios`.
        self.floor += if is_network(&name) { 7 } else { 4 } + self.nodes.len().div_ceil(at_once(&name)) - 1;
        self.wide.insert(name.clone());
        self.expect(Effect::Ready(name));
        self.made += 1;
        if self.made - self.removed > TOGETHER { self.remove() } else { Ok(()) }
    }

    /// Removes the oldest of those that were made today.
    fn remove(&mut self) -> Result<(), String> {
        let name = made(self.removed);
        self.removed += 1;
        let deleted = self.testbed.cluster.delete("Service", "default", &name);
        deleted.map_err(|failure| format!("{name} cannot be deleted: {failure:?}"))?;
        self.wide.remove(&name);
        self.waits.remove(&Effect::Ready(name.clone()));
        self.floor += if is_network(&name) { 3 } else { 2 };
        self.expect(Effect::Gone(name));
        Ok(())
    }

    /// What is not as the cluster wants it.
    fn out_of_sync(&self) -> Vec<String> {
        let sight = Sight::of(self.testbed, true);
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
        if (sight.balancers, sight.groups) != (wanted.len(), wanted.len()) {
            let (balancers, groups) = (sight.balancers, sight.groups);
            found.push(format!("{balancers} load balancers and {groups} server groups for {} Services", wanted.len()));
        }
        if sight.entries != self.nodes.len() {
            found.push(format!("{} route entries for {} nodes", sight.entries, self.nodes.len()));
        }
        found
    }
}

/// Two replicas.
struct Replicas<'a> {
    options: &'a Options,
    folder: &'a Path,
    cloud: String,
    leader: Controller,
    standby: Controller,
    started: usize,
}

impl<'a> Replicas<'a> {
    /// Another one beside this leader.
    fn beside(leader: Controller, options: &'a Options, folder: &'a Path, cloud: String) -> Result<Self, String> {
        let standby = Controller::start(options, folder, &cloud, "1.log")?;
        Ok(Self { options, folder, cloud, leader, standby, started: 2 })
    }

    /// The standby's turn comes, and a new one stands by. Gives the leader until now.
    fn hand_over(&mut self) -> Result<Controller, String> {
        let next = Controller::start(self.options, self.folder, &self.cloud, &format!("{}.log", self.started))?;
        self.started += 1;
        Ok(std::mem::replace(&mut self.leader, std::mem::replace(&mut self.standby, next)))
    }

    /// The memory of the leader, which is the one that knows load balancers: a new replica can win the lease as well.
    fn leader_memory(&mut self) -> Option<f64> {
        let [leader, standby] = [&self.leader, &self.standby].map(|it| it.usage().map(|usage| usage.resident));
        if standby > leader {
            std::mem::swap(&mut self.leader, &mut self.standby);
        }
        standby.into_iter().chain(leader).reduce(f64::max)
    }
}

/// Misfortune at any time, as a seed decides.
struct Misfortune(u64);

impl Misfortune {
    /// Comes true once in so many times.
    fn strikes(&mut self, once_in: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).is_multiple_of(once_in)
    }

    /// Some requests fail or lose their answers, in both worlds.
    fn begin(&self, testbed: &Testbed, event: Event) {
        if event != Event::Throttling {
            testbed.cloud.faults().random(self.0, FAILING);
        }
        let (latency, rate) = (LOOK, FAILING / 3.0);
        let chaos =
            Chaos { seed: self.0, refuse: rate, lose_request: rate, lose_answer: rate, drop_watches: 0.0, latency };
        testbed.cluster.set_chaos(Some(chaos));
    }

    /// What can happen within a second.
    fn second(&mut self, testbed: &Testbed, replicas: &mut Replicas<'_>) -> Result<(), String> {
        if self.strikes(20) {
            if self.strikes(2) {
                std::mem::swap(&mut replicas.leader, &mut replicas.standby);
            }
            drop(replicas.hand_over()?);
        }
        if self.strikes(10) {
            testbed.cluster.break_watches();
        }
        Ok(())
    }
}

/// Plays a day in so many minutes. The rows: each part, and below it how long each kind of effect took.
pub(crate) async fn play(options: &Options, minutes: f64, folder: &Path) -> Result<Vec<Row>, String> {
    let testbed = &world::open(options, folder).await?;
    let patience = Duration::from_secs(options.patience);
    let mut day = begin(options, testbed)?;
    let leader = Controller::start(options, folder, &testbed.cloud_address(), "0.log")?;
    let mut watch = Stopwatch::start(testbed, Some(&leader), patience);
    watch.until("everything is in sync at the start", |_| day.out_of_sync().is_empty()).await?;
    watch.quiet(QUIET).await?;
    let mut rows = vec![watch.stop("start, everything there", 0, Some(&leader))];
    let mut replicas = Replicas::beside(leader, options, folder, testbed.cloud_address())?;
    let mut misfortune = options.hostile.map(Misfortune);

    let pace = Pace::of(options, minutes);
    let (began, mut picture, mut whole) = (Instant::now(), Picture::default(), BTreeMap::new());
    for (name, event) in DAY {
        begin_event(event, testbed, &mut replicas).await?;
        if let Some(misfortune) = &misfortune {
            misfortune.begin(testbed, event);
        }
        (day.floor, day.took) = (0, BTreeMap::new());
        picture.parts.push((began.elapsed(), name));
        let mut watch = Stopwatch::start(testbed, Some(&replicas.leader), patience);
        part(&mut day, event, &pace, || {
            if let Some(resident) = replicas.leader_memory() {
                picture.memory.push((began.elapsed(), resident));
            }
            misfortune.as_mut().map_or(Ok(()), |it| it.second(testbed, &mut replicas))
        })
        .await?;
        testbed.cloud.calm();
        testbed.cluster.calm();
        day.settle(patience).await.map_err(|problem| format!("{name}: {problem}"))?;
        watch.elapsed();
        rows.push(watch.stop(name, day.floor, Some(&replicas.leader)));
        say(&format!("   {name}"));
        for (label, each) in std::mem::take(&mut day.took) {
            whole.entry(label).or_insert_with(Vec::new).extend(&each);
            rows.push(Row::of_each(label, each));
        }
    }
    let mut watch = Stopwatch::start(testbed, Some(&replicas.leader), patience);
    let outcome = watch.until("everything is in sync in the end", |_| day.out_of_sync().is_empty()).await;
    outcome.map_err(|problem| format!("{problem}: {}", day.out_of_sync().join(", ")))?;
    rows.push(watch.stop("in sync again", 0, Some(&replicas.leader)));
    rows.push(Row::of_all("the whole day", began.elapsed(), &rows[1..]));
    rows.extend(whole.into_iter().map(|(label, each)| Row::of_each(label, each)));
    say(&day.done(options.nodes, &pace));
    if let Some(file) = &options.plot {
        std::fs::write(file, picture.draw()).map_err(anything)?;
    }
    let complaints = testbed.cloud.complaints();
    if !complaints.is_empty() {
        return Err(format!("the cloud complains: {}", complaints.join("; ")));
    }
    Ok(rows)
}

async fn begin_event(event: Event, testbed: &Testbed, replicas: &mut Replicas<'_>) -> Result<(), String> {
    match event {
        Event::Throttling => testbed.cloud.faults().random_from(1, THROTTLED, vec![Fault::Throttle]),
        Event::Outage(product) => testbed.cloud.faults().always(product, Fault::Unavailable),
        Event::LeaderIsKilled => drop(replicas.hand_over()?),
        Event::LeaderStops => replicas.hand_over()?.stop().await?,
        Event::Nothing | Event::NodesAreReplaced | Event::ServicesComeAndGo => {}
    }
    Ok(())
}

/// How often things happen in one part of the day.
struct Pace {
    length: Duration,
    moves: usize,
    waves: usize,
    services: usize,
}

impl Pace {
    fn of(options: &Options, minutes: f64) -> Self {
        let share = minutes / MINUTES;
        Self {
            length: Duration::from_secs_f64(minutes * 60.0 / DAY.len() as f64),
            moves: (MOVES * share / DAY.len() as f64).ceil() as usize,
            waves: ((options.nodes as f64 * REPLACED) as usize).div_ceil(WAVE),
            services: (SERVICES * share).ceil() as usize,
        }
    }
}

/// One part of the day; `each_second` is called about once a second.
async fn part(
    day: &mut Day<'_>,
    event: Event,
    pace: &Pace,
    mut each_second: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let (began, mut sampled) = (Instant::now(), None);
    let (mut moves, mut waves, mut services) = (0, 0, 0);
    while began.elapsed() < pace.length {
        let share = began.elapsed().as_secs_f64() / pace.length.as_secs_f64();
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
        let looking = Instant::now();
        day.look();
        let looked = looking.elapsed();
        if sampled.is_none_or(|last: Instant| last.elapsed() >= Duration::from_secs(1)) {
            sampled = Some(Instant::now());
            each_second()?;
        }
        tokio::time::sleep(LOOK.max(5 * looked)).await;
    }
    while day.removed < day.made {
        day.remove()?;
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
        let name = format!("{}-{number}", if number / 4 % 2 == 0 { "web" } else { "net" });
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
        removed: 0,
        replaced: 0,
        moves: 0,
        waits: BTreeMap::new(),
        took: BTreeMap::new(),
        floor: 0,
    })
}
