//! How close work comes to what the quotas allow: the cloud enforces the published quotas of calls per minute, the controller
//! uses its share of them, and beside the time of each scenario stands the floor that the share sets.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use sim::cloud::Call;
use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Row, Stopwatch};
use super::world::{self, addressed, instance, node};
use super::{Options, say};

/// The share of the quotas that is used by default.
const SHARE: f64 = 0.5;
/// Of these calls a tenth is kept for backends that serve.
const FILLING: f64 = 0.9;
/// Over which quotas count, in seconds.
const WINDOW: f64 = 60.0;
/// Time between two looks at the use of the quotas, in seconds.
const STEP: f64 = 10.0;
/// Backends in one call.
const BACKENDS: usize = 40;
/// A rolling replacement has so many waves, which begin so long after each other.
const WAVES: usize = 5;
const WAVE_AFTER: Duration = Duration::from_secs(10);
/// After this time without a call, what was to be done is done.
const QUIET: Duration = Duration::from_secs(3);
/// Time between two looks at both worlds.
const LOOK: Duration = Duration::from_millis(20);

const CREATE: &str = "CreateLoadBalancer";
const ADD: &str = "AddVServerGroupBackendServers";
const REMOVE: &str = "RemoveVServerGroupBackendServers";
/// What a Service with one port takes besides: once each.
const PARTS: [&str; 3] = ["CreateVServerGroup", "CreateLoadBalancerTCPListener", "StartLoadBalancerListener"];
/// What its removal takes: once each.
const REMOVAL: [&str; 2] = ["SetLoadBalancerDeleteProtection", "DeleteLoadBalancer"];

/// How many calls of each action a scenario needs at least, from a moment on.
type Needs = BTreeMap<&'static str, usize>;

/// The running measurement.
struct Quotas<'a> {
    testbed: &'a Testbed,
    controller: Controller,
    patience: Duration,
    /// Calls a minute that the account has of each action.
    quotas: BTreeMap<String, u32>,
    /// When it began, by the time of the cloud, in seconds.
    began: f64,
    /// When each write arrived, by action, in seconds since then.
    sent: BTreeMap<String, Vec<f64>>,
    rows: Vec<Row>,
    /// Numbers of the nodes.
    nodes: Vec<usize>,
    next_node: usize,
    /// Numbers of the nodes that left the cluster, whose instances are released later.
    leaving: Vec<usize>,
}

/// Plays all scenarios; the rows in their order.
pub(crate) async fn play(options: &Options, folder: &Path) -> Result<Vec<Row>, String> {
    let options = &Options { quotas: true, ..options.clone() };
    let testbed = &world::open(options, folder).await?;
    let (services, replaced) = (options.services, options.replaced.min(options.nodes));
    for number in 0..options.nodes {
        world::rent(testbed, number);
        world::stand(testbed, number)?;
    }
    let controller = Controller::start(options, folder, &testbed.cloud_address(), "first.log")?;
    let patience = Duration::from_secs(options.patience);
    Stopwatch::start(testbed, None, patience).quiet(QUIET).await?;
    let mut quotas = Quotas {
        testbed,
        controller,
        patience,
        quotas: world::quotas(options.account_quotas),
        began: seconds(testbed.cloud.now()),
        sent: BTreeMap::new(),
        rows: Vec::new(),
        nodes: (0..options.nodes).collect(),
        next_node: options.nodes,
        leaving: Vec::new(),
    };
    say("scenario: seconds, floor, ratio (what sets the floor); refused calls");

    let web = |numbers: std::ops::Range<usize>| numbers.map(|number| format!("web-{number}")).collect::<Vec<_>>();
    let watch = quotas.start();
    quotas.expose(&web(0..services))?;
    quotas.until("Services are ready", |quotas| quotas.is_ready(&web(0..services), &[])).await?;
    let needs = quotas.creation(services);
    quotas.finish(watch, &format!("{services} Services are created"), &[(Duration::ZERO, needs)]).await?;

    let watch = quotas.start();
    quotas.join(1)?;
    quotas.until("the node serves", |quotas| quotas.is_ready(&web(0..services), &[])).await?;
    let needs = [(ADD, services)].into();
    quotas.finish(watch, &format!("one node more in {services} groups"), &[(Duration::ZERO, needs)]).await?;

    let (watch, began) = (quotas.start(), Instant::now());
    for wave in 0..WAVES {
        tokio::time::sleep((WAVE_AFTER * wave as u32).saturating_sub(began.elapsed())).await;
        quotas.replace(replaced * (wave + 1) / WAVES - replaced * wave / WAVES)?;
    }
    let last = began.elapsed();
    quotas.until("nodes are replaced", |quotas| quotas.is_ready(&web(0..services), &[])).await?;
    let calls = |nodes: usize| [ADD, REMOVE].map(|action| (action, services * nodes.div_ceil(BACKENDS))).into();
    let name = format!("{replaced} nodes are replaced in {WAVES} waves");
    let needs = [(Duration::ZERO, calls(replaced)), (last, calls(replaced.div_ceil(WAVES)))];
    quotas.finish(watch, &name, &needs).await?;

    // All at once: a quarter goes, the others follow a replacement, and half as many are new.
    let (watch, going) = (quotas.start(), services / 4);
    let new: Vec<String> = (0..services / 2).map(|number| format!("new-{number}")).collect();
    quotas.expose(&new)?;
    quotas.delete(&web(0..going))?;
    let wave = replaced.div_ceil(WAVES);
    quotas.replace(wave)?;
    let staying: Vec<String> = web(going..services).into_iter().chain(new.iter().cloned()).collect();
    quotas.until("all of it is done", |quotas| quotas.is_ready(&staying, &web(0..going))).await?;
    let mut needs = quotas.creation(new.len());
    let changes = (services - going) * wave.div_ceil(BACKENDS);
    *needs.entry(ADD).or_default() += changes;
    needs.extend([(REMOVE, changes)].into_iter().chain(REMOVAL.map(|action| (action, going))));
    quotas.finish(watch, "all of them at once", &[(Duration::ZERO, needs)]).await?;

    let watch = quotas.start();
    quotas.delete(&staying)?;
    quotas.until("Services are gone", |quotas| quotas.is_ready(&[], &staying)).await?;
    let needs = REMOVAL.map(|action| (action, staying.len())).into();
    quotas.finish(watch, &format!("{} Services are deleted", staying.len()), &[(Duration::ZERO, needs)]).await?;

    let complaints = testbed.cloud.complaints();
    if !complaints.is_empty() {
        return Err(format!("the cloud complains: {}", complaints.join("; ")));
    }
    Ok(quotas.rows)
}

impl<'a> Quotas<'a> {
    /// What was called before is noted.
    fn start(&mut self) -> (Stopwatch<'a>, f64) {
        let calls = self.testbed.cloud.take_calls();
        self.note(&calls);
        let since = seconds(self.testbed.cloud.now()) - self.began;
        (Stopwatch::start(self.testbed, Some(&self.controller), self.patience), since)
    }

    fn note(&mut self, calls: &[Call]) {
        for call in calls.iter().filter(|call| call.write) {
            self.sent.entry(call.action.clone()).or_default().push(seconds(call.time) - self.began);
        }
    }

    /// Calls that so many new Services take.
    fn creation(&self, services: usize) -> Needs {
        let more = self.nodes.len().div_ceil(BACKENDS).saturating_sub(1);
        let once = PARTS.iter().chain([&CREATE]).map(|action| (*action, services));
        once.chain((more > 0).then_some((ADD, services * more))).collect()
    }

    fn expose(&self, names: &[String]) -> Result<(), String> {
        names.iter().try_for_each(|name| world::expose(self.testbed, name, false))
    }

    fn delete(&self, names: &[String]) -> Result<(), String> {
        let delete = |name: &String| self.testbed.cluster.delete("Service", "default", name);
        names.iter().try_for_each(|name| delete(name).map_err(|failure| format!("{name}: {failure:?}")))
    }

    fn join(&mut self, count: usize) -> Result<(), String> {
        for number in self.next_node..self.next_node + count {
            world::rent(self.testbed, number);
            world::join(self.testbed, number)?;
            self.nodes.push(number);
        }
        self.next_node += count;
        Ok(())
    }

    /// New nodes join, and the oldest leave.
    fn replace(&mut self, count: usize) -> Result<(), String> {
        self.join(count)?;
        // Endpoints are on the first node, which stays.
        for number in self.nodes.drain(1..=count) {
            let deleted = self.testbed.cluster.delete("Node", "", &node(number));
            deleted.map_err(|failure| format!("node {number} cannot be deleted: {failure:?}"))?;
            self.leaving.push(number);
        }
        Ok(())
    }

    /// Whether these Services have an address and all nodes as backends, and those are gone.
    fn is_ready(&self, here: &[String], gone: &[String]) -> bool {
        let wanted: HashSet<String> = self.nodes.iter().map(|number| instance(*number)).collect();
        let has_all = self.testbed.cloud.look(|account| {
            let mut groups = account.load_balancers.values().flat_map(|balancer| balancer.groups.values());
            // Most looks end with the numbers: names of so many backends take long to compare, and the cloud waits.
            groups.clone().count() == here.len()
                && groups.clone().all(|group| group.backends.len() == wanted.len())
                && groups.all(|group| group.backends.iter().all(|backend| wanted.contains(&backend.server_id)))
        });
        let listed = |names: Vec<String>| names.into_iter().collect::<HashSet<_>>();
        has_all && {
            let addressed = listed(addressed(self.testbed));
            let there = listed(world::names(self.testbed, "Service", |_| true));
            here.iter().all(|name| addressed.contains(name)) && !gone.iter().any(|name| there.contains(name))
        }
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let looking = Instant::now();
            if is_so(self) {
                return Ok(());
            }
            if began.elapsed() > self.patience {
                return Err(format!("{what}: not within {} s", self.patience.as_secs()));
            }
            // Looks take from the same processors.
            tokio::time::sleep(LOOK.max(5 * looking.elapsed())).await;
        }
    }

    /// Prints what came of a scenario. `needs` says what it takes at least from each moment after its beginning on.
    async fn finish(
        &mut self,
        (mut watch, since): (Stopwatch<'a>, f64),
        name: &str,
        needs: &[(Duration, Needs)],
    ) -> Result<(), String> {
        watch.elapsed();
        let took = seconds(self.testbed.cloud.now()) - self.began - since;
        watch.quiet(QUIET).await?;
        let fewest = needs.iter().map(|(_, needs)| needs.values().sum()).max();
        let row = watch.stop(name, fewest.unwrap_or_default(), Some(&self.controller));
        self.note(&self.testbed.cloud.take_calls());
        let after = |(from, needs): &(Duration, Needs)| {
            let from = from.as_secs_f64();
            let needed = |(action, count): (&&'static str, &usize)| {
                let needed = earliest(&self.sent, action, since + from, *count, self.allowed(action, needs));
                (from + needed, *action)
            };
            needs.iter().map(needed).collect::<Vec<_>>()
        };
        let floor = needs.iter().flat_map(after).max_by(|one, other| one.0.total_cmp(&other.0));
        let (floor, by) = floor.unwrap_or_default();
        say(&format!("{name}: {took:.1}, {floor:.1}, {:.3} ({by}); {} refused", took / floor, row.throttled));
        for (action, used) in self.use_over_time(since, since + took) {
            let used: Vec<String> = used.into_iter().map(|percent| format!("{percent:3.0}")).collect();
            say(&format!("   {action:<34} {} %", used.join(" ")));
        }
        self.rows.push(row);
        self.leaving.drain(..).for_each(|number| self.testbed.cloud.release_instance(&instance(number)));
        Ok(())
    }

    /// Calls that may be sent in a minute. Where Services are created only to be filled, some are kept for others.
    fn allowed(&self, action: &str, needs: &Needs) -> f64 {
        let is_filling = action == ADD && needs.contains_key(CREATE) && !needs.contains_key(REMOVE);
        if is_filling { (self.share(action) * FILLING).ceil() } else { self.share(action) }
    }

    /// Calls of the action that the controller may send in a minute.
    fn share(&self, action: &str) -> f64 {
        self.quotas.get(action).map_or(f64::INFINITY, |calls| (f64::from(*calls) * SHARE).floor())
    }

    /// Of each action that was used a good deal, the share of what was allowed, in percent, every ten seconds.
    fn use_over_time(&self, since: f64, until: f64) -> Vec<(String, Vec<f64>)> {
        let marks = || (1..).map(move |step| since + f64::from(step) * STEP).take_while(move |at| *at <= until);
        let used = |action: &String, sent: &Vec<f64>| -> Vec<f64> {
            let within = |at: f64| sent.iter().filter(|time| **time > at - WINDOW && **time <= at).count();
            marks().map(|at| 100.0 * within(at) as f64 / self.share(action)).collect()
        };
        let all = self.sent.iter().map(|(action, sent)| (action.clone(), used(action, sent)));
        all.filter(|(_, used)| used.iter().any(|percent| *percent >= 50.0)).collect()
    }
}

/// How long after `since` so many further calls of the action have gone out at best, in seconds.
fn earliest(sent: &BTreeMap<String, Vec<f64>>, action: &str, since: f64, count: usize, allowed: f64) -> f64 {
    let before = sent.get(action).into_iter().flatten().copied();
    let mut window: VecDeque<f64> = before.filter(|at| *at > since - WINDOW && *at < since).collect();
    window.make_contiguous().sort_by(f64::total_cmp);
    for _ in 0..count {
        let freed = window.len().checked_sub(allowed as usize).map(|index| window[index] + WINDOW);
        window.push_back(freed.unwrap_or(since).max(since));
    }
    window.back().map_or(0.0, |last| (last - since).max(0.0))
}

/// Since 1970.
fn seconds(at: jiff::Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}
