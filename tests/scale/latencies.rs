//! How long it takes until a pod that became ready or unready is in its load balancer or out of it, while other work waits.

use std::path::Path;
use std::time::{Duration, Instant};

use sim::cloud::{Call, Fault};
use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Row, Stopwatch};
use super::world::{self, addressed, instance};
use super::{Options, say};

/// Services with one local endpoint, which moves.
const MOVING: usize = 10;
/// Time between two moves: each takes an addition and a removal, and 45 a minute are allowed.
const PACE: Duration = Duration::from_millis(1500);
/// The share of calls that the cloud throttles in the last part.
const THROTTLED: f64 = 0.05;
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(5);
/// After this time without a call, what was to be done is done.
const QUIET: Duration = Duration::from_secs(3);

/// What happens besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    DriftCheck,
    Restarts,
    Creations,
    Throttling,
}

const PARTS: [(&str, Beside); 5] = [
    ("nothing else", Beside::Nothing),
    ("drift checks", Beside::DriftCheck),
    ("restarts of the API server", Beside::Restarts),
    ("creations wait for their quota", Beside::Creations),
    ("and calls are throttled", Beside::Throttling),
];

/// One change: which group, which instance, and when.
struct Change {
    group: String,
    instance: String,
    at: jiff::Timestamp,
}

/// Moves endpoints under each condition; below each row stand the times of additions and removals.
pub(crate) async fn play(options: &Options, folder: &Path) -> Result<Vec<Row>, String> {
    let options = &Options { quotas: true, ..options.clone() };
    let testbed = &world::open(options, folder).await?;
    for number in 0..options.nodes {
        world::rent(testbed, number);
        world::stand(testbed, number)?;
    }
    for number in 0..MOVING {
        world::expose(testbed, &moving(number), true)?;
    }
    let config = folder.join("alicloud-ccm.toml");
    let configured = std::fs::read_to_string(&config).map_err(super::anything)?;
    let controller = Controller::start(options, folder, &testbed.cloud_address(), "first.log")?;
    let patience = Duration::from_secs(options.patience);
    let mut watch = Stopwatch::start(testbed, Some(&controller), patience);
    watch.until_all("Services have addresses", MOVING, addressed).await?;
    watch.quiet(QUIET).await?;
    let groups = groups(testbed);
    let (mut at, mut rows) = ([0; MOVING], Vec::new());
    for (name, beside) in PARTS {
        let mut watch = Stopwatch::start(testbed, Some(&controller), patience);
        match beside {
            Beside::DriftCheck => {
                let more = "\n[service]\ndrift_check = \"1m\"\ndrift_reads = 3600\n";
                std::fs::write(&config, format!("{configured}{more}")).map_err(super::anything)?;
            }
            Beside::Creations => {
                std::fs::write(&config, &configured).map_err(super::anything)?;
                (0..options.services).try_for_each(|number| world::expose(testbed, &format!("web-{number}"), false))?;
            }
            Beside::Throttling => testbed.cloud.faults().random_from(1, THROTTLED, vec![Fault::Throttle]),
            Beside::Nothing | Beside::Restarts => {}
        }
        let (mut changes, began) = ((Vec::new(), Vec::new()), Instant::now());
        for step in 0..options.moves {
            if beside == Beside::Restarts && step % 10 == 5 {
                restart(testbed).await?;
            }
            let number = step % MOVING;
            let from = at[number];
            at[number] = (from + 1) % options.nodes;
            let change = |node: usize| Change {
                group: groups[number].clone(),
                instance: instance(node),
                at: testbed.cloud.now(),
            };
            changes.0.push(change(at[number]));
            changes.1.push(change(from));
            world::endpoints(testbed, &moving(number), &[at[number]])?;
            tokio::time::sleep((PACE * (step as u32 + 1)).saturating_sub(began.elapsed())).await;
        }
        tokio::time::sleep(5 * PACE).await;
        watch.elapsed();
        let (calls, end) = (testbed.cloud.calls(), testbed.cloud.now());
        rows.push(watch.stop(name, 2 * options.moves, Some(&controller)));
        say(&format!("   {name}"));
        let parts = rows.len();
        rows.push(Row::of_each("ready, in its group", took(&changes.0, &calls, "AddVServerGroupBackendServers", end)?));
        rows.push(Row::of_each(
            "unready, out of it",
            took(&changes.1, &calls, "RemoveVServerGroupBackendServers", end)?,
        ));
        say(&super::measure::table(&rows[parts..]));
    }
    Ok(rows)
}

/// The API server is away, and comes back without its watches.
async fn restart(testbed: &Testbed) -> Result<(), String> {
    testbed.cluster.go_away().await;
    tokio::time::sleep(AWAY).await;
    testbed.cluster.come_back().await.map_err(super::anything)
}

/// Ids of the server groups of the Services that move.
fn groups(testbed: &Testbed) -> Vec<String> {
    let of = |number: usize| {
        testbed.cloud.look(|account| {
            let mut groups = account.load_balancers.values().flat_map(|balancer| balancer.groups.iter());
            let found = groups.find(|(_, group)| group.name.split('/').nth(2) == Some(&moving(number)));
            found.map(|(id, _)| id.clone()).unwrap_or_default()
        })
    };
    (0..MOVING).map(of).collect()
}

/// From each change until the first call that carries it has taken effect. One that the next move of the same pod overtook
/// counts until the end of the part.
fn took(changes: &[Change], calls: &[Call], action: &str, end: jiff::Timestamp) -> Result<Vec<Duration>, String> {
    let calls: Vec<&Call> = calls.iter().filter(|call| call.action == action && call.effective).collect();
    let end = |change: &Change| {
        let carries = |call: &&&Call| {
            call.time >= change.at
                && call.parameter("VServerGroupId") == change.group
                && call.parameter("BackendServers").contains(&format!("\"{}\"", change.instance))
        };
        let ended = calls.iter().find(carries).map_or(end, |call| call.ended);
        Duration::try_from(ended.duration_since(change.at)).map_err(super::anything)
    };
    changes.iter().map(end).collect()
}

fn moving(number: usize) -> String {
    format!("moving-{number}")
}
