//! A large cluster that is there already: what it costs to start in it, to be in it, and to take over in it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Row, Stopwatch, percentile};
use super::scenarios::{QUIET, network, service};
use super::world::{self, addressed, instance};
use super::{Options, say};

/// Events come in so many parts, so that it shows whether memory grows with them.
const EVENT_PARTS: usize = 4;
/// The peak of memory after a start is looked for in this time.
const FIRST_MINUTE: Duration = Duration::from_secs(60);
/// After this time, a replica that stands by has filled its stores.
const WARM: Duration = Duration::from_secs(15);
/// One Service in so many changes while no controller leads.
const MISSED: usize = 50;
/// Time between two looks where milliseconds are of interest.
const LOOK: Duration = Duration::from_millis(5);

/// The cluster, and what its Services should have.
struct Place<'a> {
    testbed: &'a Testbed,
    options: &'a Options,
    endpoints: usize,
    folder: &'a Path,
}

impl Place<'_> {
    /// Nodes with endpoints of a Service after it has moved so many times.
    fn nodes(&self, number: usize, moved: usize) -> Vec<usize> {
        // One endpoint goes and one comes with each move.
        (0..self.endpoints).map(|nth| (number * 7 + nth + moved) % self.options.nodes.max(1)).collect()
    }

    fn balanced(&self) -> usize {
        self.options.services + self.options.network
    }

    /// Name of a Service with a load balancer, of both kinds in turn.
    fn name(&self, number: usize) -> String {
        match number.checked_sub(self.options.services) {
            None => service(number),
            Some(number) => network(number),
        }
    }

    fn populate(&self) -> Result<(), String> {
        let Self { testbed, options, endpoints, .. } = self;
        for number in 0..options.nodes {
            world::rent(testbed, number);
            world::stand(testbed, number)?;
        }
        for number in 0..self.balanced() {
            world::expose(testbed, &self.name(number), true)?;
            self.move_to(number, 0)?;
        }
        for number in 0..options.others {
            world::serve(testbed, &other(number))?;
            world::endpoints(testbed, &other(number), &self.nodes(number, 0))?;
        }
        say(&format!("   {} endpoints", (self.balanced() + options.others) * endpoints));
        Ok(())
    }

    fn move_to(&self, number: usize, moved: usize) -> Result<(), String> {
        world::endpoints(self.testbed, &self.name(number), &self.nodes(number, moved))
    }

    /// Moves one Service in [`MISSED`]; while no controller leads, this waits for the next one.
    fn move_some(&self, moved: usize) -> Result<(), String> {
        self.missed().try_for_each(|number| self.move_to(number, moved))
    }

    fn missed(&self) -> impl Iterator<Item = usize> {
        (MISSED / 2..self.balanced()).step_by(MISSED)
    }

    /// Whether the Services that [`Self::move_some`] moved have the backends that they should have.
    fn check_moved(&self, moved: usize) -> Result<(), String> {
        let backends = self.testbed.cloud.look(|account| world::backends(account, usize::MAX));
        let wanted = |number| self.nodes(number, moved).into_iter().map(instance).collect::<BTreeSet<_>>();
        let is_wrong = |number: &usize| backends.get(&self.name(*number)) != Some(&wanted(*number));
        match self.missed().find(is_wrong) {
            None => Ok(()),
            Some(number) => Err(format!("{} has other backends than it should have", self.name(number))),
        }
    }

    fn start(&self, log: &str) -> Result<Controller, String> {
        Controller::start(self.options, self.folder, &self.testbed.cloud_address(), log)
    }

    fn watch(&self, controller: Option<&Controller>) -> Stopwatch<'_> {
        Stopwatch::start(self.testbed, controller, Duration::from_secs(self.options.patience))
    }

    /// Waits for the first write to the cloud since `watch` began.
    async fn first_write(&self, watch: &mut Stopwatch<'_>) -> Result<Duration, String> {
        let since = Instant::now();
        watch.until_looked("the first write", LOOK, |testbed| testbed.cloud.count_writes() > 0).await?;
        Ok(since.elapsed())
    }
}

/// Plays everything; the rows in their order.
pub(crate) async fn play(options: &Options, endpoints: usize, folder: &Path) -> Result<Vec<Row>, String> {
    let testbed = &world::open(options, folder).await?;
    let place = &Place { testbed, options, endpoints, folder };
    place.populate()?;
    let mut rows = Vec::new();

    let mut watch = place.watch(None);
    let controller = place.start("first.log")?;
    let took = place.first_write(&mut watch).await?;
    said_start("start, nothing made", took, &controller);
    watch.until_all("Services have addresses", place.balanced(), addressed).await?;
    watch.quiet(QUIET).await?;
    let (nodes, classic) = (options.nodes, options.services);
    let floor = 4 * classic
        + 7 * options.network
        + 3 * nodes.div_ceil(100)
        + nodes
        + 2 * nodes.div_ceil(500)
        + nodes.div_ceil(50);
    rows.push(watch.stop("start, everything there", floor, Some(&controller)));

    rows.push(idle(place, &controller).await?);
    rows.push(single_changes(place, &controller).await?);
    rows.extend(events(place, &controller).await?);
    controller.stop().await?;
    let leader = restart(place, &mut rows).await?;
    take_over(place, leader, &mut rows).await?;

    let complaints = testbed.cloud.complaints();
    match complaints.is_empty() {
        true => Ok(rows),
        false => Err(format!("the cloud complains: {}", complaints.join("; "))),
    }
}

/// How much of a core is used while nothing happens.
async fn idle(place: &Place<'_>, controller: &Controller) -> Result<Row, String> {
    let mut watch = place.watch(Some(controller));
    tokio::time::sleep(Duration::from_secs(place.options.idle)).await;
    watch.elapsed();
    let row = watch.stop("idle", 0, Some(controller));
    let share = row.cpu.as_secs_f64() / place.options.idle.max(1) as f64;
    say(&format!("   idle: {:.2} % of a core", share * 100.0));
    Ok(row)
}

/// One endpoint changes, and nothing else: from the change to the arrival of its first write at the cloud.
async fn single_changes(place: &Place<'_>, controller: &Controller) -> Result<Row, String> {
    let mut watch = place.watch(Some(controller));
    let mut each = Vec::new();
    for nth in 0..place.options.changes {
        let (before, since) = (place.testbed.cloud.count_writes(), place.testbed.cloud.now());
        place.move_to(nth * 7919 % place.balanced(), 1 + nth / place.balanced())?;
        watch.until_looked("the change is written", LOOK, |testbed| testbed.cloud.count_writes() > before).await?;
        let arrived = place.testbed.cloud.writes()[before].time;
        each.push(arrived.duration_since(since).unsigned_abs());
        // The removal, which behind a network load balancer waits for a job, and what is written to the Service.
        watch.until_looked("the removal follows", LOOK, |testbed| testbed.cloud.count_writes() > before + 1).await?;
        watch.quiet(Duration::from_millis(150)).await?;
    }
    each.sort_unstable();
    let row = watch.stop(&format!("{} endpoints change alone", each.len()), 2 * each.len(), Some(controller));
    let milliseconds = |share| percentile(&each, share).unwrap_or_default().as_secs_f64() * 1e3;
    say(&format!(
        "   one endpoint changes: {:.1} ms (p50), {:.1} ms (p99), without the time of the cloud; {:.2} ms of CPU",
        milliseconds(50),
        milliseconds(99),
        row.cpu.as_secs_f64() * 1e3 / each.len().max(1) as f64
    ));
    Ok(Row { took: each.last().copied(), each, ..row })
}

/// Heartbeats, and endpoints of Services without a load balancer.
async fn events(place: &Place<'_>, controller: &Controller) -> Result<Vec<Row>, String> {
    let (testbed, options) = (place.testbed, place.options);
    let mut rows = Vec::new();
    for part in 1..=EVENT_PARTS {
        let mut watch = place.watch(Some(controller));
        for event in 0..options.events / EVENT_PARTS {
            if event % 2 == 0 || options.others == 0 {
                world::heartbeat(testbed, event % options.nodes.max(1), part * options.events + event)?;
            } else {
                let number = event % options.others;
                world::endpoints(testbed, &other(number), &place.nodes(number, part + event))?;
            }
            // As fast as the API server's watches are read.
            tokio::task::yield_now().await;
        }
        watch.quiet(QUIET).await?;
        watch.elapsed();
        rows.push(watch.stop(&format!("{} events", options.events / EVENT_PARTS), 0, Some(controller)));
    }
    Ok(rows)
}

/// Starts where almost everything is in sync.
async fn restart(place: &Place<'_>, rows: &mut Vec<Row>) -> Result<Controller, String> {
    place.move_some(100)?;
    let (mut watch, began) = (place.watch(None), Instant::now());
    let controller = place.start("second.log")?;
    let took = place.first_write(&mut watch).await?;
    said_start("restart, almost everything in sync", took, &controller);
    watch.until_quiet(QUIET).await?;
    rows.push(watch.stop("restart", 0, Some(&controller)));
    tokio::time::sleep(FIRST_MINUTE.saturating_sub(began.elapsed())).await;
    let peak = controller.usage().unwrap_or_default().peak;
    rows.push(idle(place, &controller).await?);
    let settled = controller.usage().unwrap_or_default().resident;
    say(&format!(
        "   memory: {peak:.1} MiB at most in the first minute, {settled:.1} MiB settled: {:.2}",
        peak / settled
    ));
    Ok(controller)
}

/// Another replica takes over: after a kill, then in order.
async fn take_over(place: &Place<'_>, leader: Controller, rows: &mut Vec<Row>) -> Result<(), String> {
    let standby = warm(place, &leader, "third.log").await?;
    let (mut watch, since) = (place.watch(Some(&standby)), Instant::now());
    drop(leader);
    place.move_some(200)?;
    place.first_write(&mut watch).await?;
    say(&format!("   take-over after a kill: first write after {:.2} s", since.elapsed().as_secs_f64()));
    watch.until_quiet(QUIET).await?;
    place.check_moved(200)?;
    rows.push(watch.stop("take-over (killed)", 0, Some(&standby)));

    let leader = standby;
    let standby = warm(place, &leader, "fourth.log").await?;
    let (mut watch, since) = (place.watch(Some(&standby)), Instant::now());
    leader.stop().await?;
    let stopped = since.elapsed();
    place.move_some(300)?;
    place.first_write(&mut watch).await?;
    let (all, stopped) = (since.elapsed().as_secs_f64(), stopped.as_secs_f64());
    say(&format!("   hand-over: the leader ended after {stopped:.2} s, first write after {all:.2} s"));
    watch.until_quiet(QUIET).await?;
    place.check_moved(300)?;
    rows.push(watch.stop("hand-over", 0, Some(&standby)));
    Ok(())
}

/// A second replica that has had the time to fill its stores.
async fn warm(place: &Place<'_>, leader: &Controller, log: &str) -> Result<Controller, String> {
    let watch = place.watch(None);
    let standby = place.start(log)?;
    tokio::time::sleep(WARM).await;
    let resident = |controller: &Controller| controller.usage().unwrap_or_default().resident;
    let calls = watch.stop("", 0, None).calls.values().sum::<usize>();
    let (own, leaders) = (resident(&standby), resident(leader));
    say(&format!("   standby: {own:.1} MiB, leader: {leaders:.1} MiB; cloud calls of both meanwhile: {calls}"));
    Ok(standby)
}

fn said_start(name: &str, took: Duration, controller: &Controller) {
    let usage = controller.usage().unwrap_or_default();
    say(&format!(
        "   {name}: first write after {:.2} s and {:.2} s of CPU, {:.1} MiB",
        took.as_secs_f64(),
        usage.cpu.as_secs_f64(),
        usage.resident
    ));
}

fn other(number: usize) -> String {
    format!("other-{number}")
}
