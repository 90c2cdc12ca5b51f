//! The scenarios, in the order in which a cluster lives.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Row, Stopwatch};
use super::world::{self, addressed, groups_with, initialised, instance, is_network, routed};
use super::{Options, say};

/// After this time without a call, what was to be done is done.
pub(crate) const QUIET: Duration = Duration::from_secs(3);
/// Backends in one call.
const BACKENDS: usize = 40;
/// Services with local endpoints, and how often each moves.
const MOVING: usize = 10;
const MOVES: usize = 20;

/// Plays all scenarios; the rows in their order.
pub(crate) async fn play(options: &Options, folder: &Path) -> Result<Vec<Row>, String> {
    let testbed = &world::open(options, folder).await?;
    let (nodes, services) = (options.nodes, options.services);
    let patience = Duration::from_secs(options.patience);
    let begin = |controller: &Controller| Stopwatch::start(testbed, Some(controller), patience);
    let start = |log: &str| Controller::start(options, folder, &testbed.cloud_address(), log);
    let mut rows: Vec<Row> = Vec::new();
    let mut finish = |row: Row| {
        say(&format!("   {}", row.name));
        rows.push(row);
    };

    let controller = start("first.log")?;
    let mut watch = begin(&controller);
    // Another controller need not call the cloud while the cluster is empty.
    if options.controller.is_none() {
        watch.until("the first call", called).await?;
    }
    watch.until_quiet(QUIET).await?;
    finish(watch.stop("start, nothing there", 2, Some(&controller)));

    (0..=nodes).for_each(|number| world::rent(testbed, number));
    let mut watch = begin(&controller);
    for number in 0..nodes {
        watch.born(world::node(number));
        world::join(testbed, number)?;
    }
    watch.until_all("nodes are initialised", nodes, initialised).await?;
    let floor = nodes.div_ceil(100);
    finish(watch.so_far("nodes initialised", floor));
    watch.until_all("nodes are routed", nodes, routed).await?;
    watch.quiet(QUIET).await?;
    // Every instance by the hundred, one look at an interface, one switch of each, entries by the fifty, and the route
    // table afterwards.
    let floor = nodes.div_ceil(100) + 1 + nodes + nodes.div_ceil(50) + nodes.div_ceil(500);
    finish(watch.stop("nodes initialised and routed", floor, Some(&controller)));

    let mut watch = begin(&controller);
    for number in 0..services {
        watch.born(service(number));
        world::expose(testbed, &service(number), false)?;
    }
    watch.until_all("Services have addresses", services, addressed).await?;
    let more = nodes.div_ceil(BACKENDS).saturating_sub(1);
    watch.quiet(QUIET).await?;
    finish(watch.stop("Services ready", services * (4 + more), Some(&controller)));

    if options.network > 0 {
        let mut watch = begin(&controller);
        for number in 0..options.network {
            watch.born(network(number));
            world::expose(testbed, &network(number), true)?;
        }
        let named = |testbed: &Testbed| addressed(testbed).into_iter().filter(|name| is_network(name)).collect();
        watch.until_all("network Services have names", options.network, named).await?;
        watch.quiet(QUIET).await?;
        // Two looks whether one is there, and a load balancer, a group, its backend and a listener; no look at jobs.
        finish(watch.stop("network Services ready", options.network * 7, Some(&controller)));
    }

    let mut watch = begin(&controller);
    world::join(testbed, nodes)?;
    watch.until("the node is everywhere", |testbed| groups_with(testbed, &instance(nodes)) == services).await?;
    watch.quiet(QUIET).await?;
    // One instance, one switch, one entry, and the route table afterwards: with up to 500 entries, four calls.
    finish(watch.stop("one more node", services + 3 + (nodes + 1).div_ceil(500), Some(&controller)));

    for number in 0..MOVING.min(nodes) {
        world::expose(testbed, &moving(number), true)?;
    }
    settle(testbed, patience).await?;
    let mut watch = begin(&controller);
    let last = (MOVES % nodes.max(1)).max(1);
    for step in 1..=MOVES {
        for number in 0..MOVING.min(nodes) {
            world::endpoints(testbed, &moving(number), &[if step == MOVES { last } else { step % nodes }])?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    watch.until("endpoints have followed", |testbed| followed(testbed, last)).await?;
    watch.quiet(QUIET).await?;
    finish(watch.stop("endpoints move 20 times in 2 s", MOVING.min(nodes) * 2, Some(&controller)));

    let mut watch = begin(&controller);
    tokio::time::sleep(Duration::from_secs(options.idle)).await;
    watch.elapsed();
    finish(watch.stop("idle", 0, Some(&controller)));

    controller.stop().await?;
    let mut watch = Stopwatch::start(testbed, None, patience);
    let mut controller = start("second.log")?;
    watch.until("the first call", called).await?;
    watch.until_quiet(QUIET).await?;
    let listed = services + MOVING.min(nodes);
    finish(watch.stop("restart", listed.div_ceil(100) + listed.div_ceil(10) + 2 * listed + 4, Some(&controller)));

    if options.controller.is_none() {
        let standby = start("third.log")?;
        tokio::time::sleep(QUIET).await;
        let mut watch = Stopwatch::start(testbed, Some(&standby), patience);
        drop(controller);
        watch.until("the other replica works", called).await?;
        watch.until_quiet(QUIET).await?;
        finish(watch.stop(
            "fail-over (killed)",
            listed.div_ceil(100) + listed.div_ceil(10) + 2 * listed + 4,
            Some(&standby),
        ));
        controller = standby;
    }

    let mut watch = begin(&controller);
    for number in 0..services {
        testbed.cluster.delete("Service", "default", &service(number)).map_err(|failure| format!("{failure:?}"))?;
    }
    let gone = |testbed: &Testbed| {
        let left: HashSet<String> = world::names(testbed, "Service", |_| true).into_iter().collect();
        (0..services).map(service).filter(|name| !left.contains(name)).collect()
    };
    watch.until_all("Services are gone", services, gone).await?;
    finish(watch.stop("Services deleted", 2 * services + services.div_ceil(100), Some(&controller)));

    if options.network > 0 {
        let mut watch = begin(&controller);
        for number in 0..options.network {
            testbed.cluster.delete("Service", "default", &network(number)).map_err(|failure| format!("{failure:?}"))?;
        }
        let left = |testbed: &Testbed| world::names(testbed, "Service", |_| true);
        watch.until("network Services are gone", |testbed| !left(testbed).iter().any(|name| is_network(name))).await?;
        finish(watch.stop("network Services deleted", options.network * 3, Some(&controller)));
    }

    let complaints = testbed.cloud.complaints();
    if options.controller.is_none() && !complaints.is_empty() {
        return Err(format!("the cloud complains: {}", complaints.join("; ")));
    }
    Ok(rows)
}

pub(crate) fn service(number: usize) -> String {
    format!("web-{number}")
}

/// A Service with a network load balancer.
pub(crate) fn network(number: usize) -> String {
    format!("net-{number}")
}

fn moving(number: usize) -> String {
    format!("moving-{number}")
}

/// Whether every server group with a single member has the right one.
fn followed(testbed: &Testbed, number: usize) -> bool {
    let wanted = instance(number);
    testbed.cloud.look(|world| {
        let groups = world.load_balancers.values().flat_map(|balancer| balancer.groups.values());
        groups
            .filter(|group| group.backends.len() <= 2)
            .all(|group| group.backends.len() == 1 && group.backends.iter().all(|backend| backend.server_id == wanted))
    })
}

/// Whether the controller has begun.
fn called(testbed: &Testbed) -> bool {
    !testbed.cloud.calls().is_empty()
}

/// Waits until nothing is called any more.
async fn settle(testbed: &Testbed, patience: Duration) -> Result<(), String> {
    Stopwatch::start(testbed, None, patience).quiet(QUIET).await.map(drop)
}
