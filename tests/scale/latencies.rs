//! How long it takes until a pod that became ready or unready is in its load balancer or out of it, while other work waits.

use std::path::Path;
use std::time::{Duration, Instant};

use sim::cloud::{Call, Fault};
use sim::testbed::Testbed;

use super::controller::Controller;
use super::measure::{Row, Stopwatch};
use super::world::{self, JOB, addressed, instance};
use super::{Options, say};

/// Services of each product with one local endpoint, which moves.
const MOVING: usize = 10;
/// Time between two moves: each takes an addition and a removal, and 45 a minute are allowed.
const PACE: Duration = Duration::from_millis(1500);
/// What a change may take besides the time of the cloud, at p99.
const OWN: Duration = Duration::from_secs(1);
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
    /// The cloud throttles so many of a hundred calls.
    Throttling(u32),
}

const PARTS: [(&str, Beside); 6] = [
    ("nothing else", Beside::Nothing),
    ("drift checks", Beside::DriftCheck),
    ("restarts of the API server", Beside::Restarts),
    ("creations wait for their quota", Beside::Creations),
    ("and a twentieth of all calls is throttled", Beside::Throttling(5)),
    ("and half of all calls is throttled", Beside::Throttling(50)),
];

/// How backends of a product change.
struct Product {
    name: &'static str,
    /// In the names of its Services.
    kind: &'static str,
    addition: &'static str,
    removal: &'static str,
    /// How long it takes from the call to its effect.
    job: Duration,
}

const PRODUCTS: [Product; 2] = [
    Product {
        name: "CLB",
        kind: "web",
        addition: "AddVServerGroupBackendServers",
        removal: "RemoveVServerGroupBackendServers",
        job: Duration::ZERO,
    },
    Product {
        name: "NLB",
        kind: "net",
        addition: "AddServersToServerGroup",
        removal: "RemoveServersFromServerGroup",
        job: JOB,
    },
];

impl Product {
    fn service(&self, number: usize) -> String {
        format!("moving-{}-{number}", self.kind)
    }

    /// From each change until the first call that carries it has taken effect. One that the next move of the same pod
    /// overtook counts until the end of the part.
    fn took(&self, changes: &[Change], calls: &[Call], action: &str, end: jiff::Timestamp) -> Vec<Duration> {
        let calls: Vec<&Call> = calls.iter().filter(|call| call.action == action && call.effective).collect();
        let took = |change: &Change| {
            let carrier = calls.iter().find(|call| change.is_in(call));
            carrier.map_or(end, |call| call.ended + self.job).duration_since(change.at).unsigned_abs()
        };
        changes.iter().map(took).collect()
    }
}

/// One change: which group, which instance, and when.
struct Change {
    group: String,
    instance: String,
    at: jiff::Timestamp,
}

impl Change {
    /// Whether the call came after the change, and says its group and its instance: alone, or in quotes within a list.
    fn is_in(&self, call: &Call) -> bool {
        let says = |id: &str| call.parameters.values().any(|value| value.split('"').any(|part| part == id));
        call.time >= self.at && says(&self.group) && says(&self.instance)
    }
}

/// Pods behind load balancers of one product.
struct Pods<'a> {
    product: &'a Product,
    /// Ids of the server groups of their Services.
    groups: Vec<String>,
    /// Numbers of the nodes that they are on.
    at: [usize; MOVING],
    became_ready: Vec<Change>,
    became_unready: Vec<Change>,
}

impl<'a> Pods<'a> {
    fn behind(product: &'a Product, testbed: &Testbed) -> Self {
        let groups = (0..MOVING).map(|number| group(testbed, &product.service(number))).collect();
        Self { product, groups, at: [0; MOVING], became_ready: Vec::new(), became_unready: Vec::new() }
    }

    /// Moves one of them to the next node.
    fn step(&mut self, testbed: &Testbed, nodes: usize, number: usize) -> Result<(), String> {
        let from = self.at[number];
        let to = (from + 1) % nodes;
        self.at[number] = to;
        let change =
            |node| Change { group: self.groups[number].clone(), instance: instance(node), at: testbed.cloud.now() };
        self.became_ready.push(change(to));
        self.became_unready.push(change(from));
        world::endpoints(testbed, &self.product.service(number), &[to])
    }

    /// How long each change since the last look took, beside what the slowest hundredth may take.
    fn rows(&mut self, calls: &[Call], end: jiff::Timestamp, latency: Duration) -> [Row; 2] {
        let Product { name, addition, removal, job, .. } = *self.product;
        let row = |label: &str, calls_of_cloud: u32, each| {
            let bar = (OWN + calls_of_cloud * (latency + job)).as_secs_f64();
            Row::of_each(&format!("{label} {name} group; p99 at most {bar:.2}"), each)
        };
        let (ready, unready) = (std::mem::take(&mut self.became_ready), std::mem::take(&mut self.became_unready));
        // The removal follows the addition.
        [
            row("ready, in its", 1, self.product.took(&ready, calls, addition, end)),
            row("unready, out of its", 2, self.product.took(&unready, calls, removal, end)),
        ]
    }
}

/// Moves endpoints under each condition; below each row stand the times of additions and removals.
pub(crate) async fn play(options: &Options, folder: &Path) -> Result<Vec<Row>, String> {
    let options = &Options { quotas: true, ..options.clone() };
    let testbed = &world::open(options, folder).await?;
    for number in 0..options.nodes {
        world::rent(testbed, number);
        world::stand(testbed, number)?;
    }
    for product in &PRODUCTS {
        (0..MOVING).try_for_each(|number| world::expose(testbed, &product.service(number), true))?;
    }
    let config = folder.join("alicloud-ccm.toml");
    let configured = std::fs::read_to_string(&config).map_err(super::anything)?;
    let controller = Controller::start(options, folder, &testbed.cloud_address(), "first.log")?;
    let patience = Duration::from_secs(options.patience);
    let mut watch = Stopwatch::start(testbed, Some(&controller), patience);
    watch.until_all("Services have addresses", PRODUCTS.len() * MOVING, addressed).await?;
    watch.quiet(QUIET).await?;
    let (mut all, mut rows) = (PRODUCTS.each_ref().map(|product| Pods::behind(product, testbed)), Vec::new());
    for (name, beside) in PARTS {
        let mut watch = Stopwatch::start(testbed, Some(&controller), patience);
        match beside {
            Beside::DriftCheck => {
                let more = "\n[service]\ndrift_check = \"1m\"\ndrift_reads = 3600\n\n[nlb]\ndrift_check = \"1m\"\n";
                std::fs::write(&config, format!("{configured}{more}")).map_err(super::anything)?;
            }
            Beside::Creations => {
                (0..options.services).try_for_each(|number| world::expose(testbed, &format!("web-{number}"), false))?;
            }
            Beside::Throttling(percent) => {
                testbed.cloud.faults().random_from(1, f64::from(percent) / 100.0, vec![Fault::Throttle]);
            }
            Beside::Nothing | Beside::Restarts => {}
        }
        move_pods(&mut all, options, testbed, beside).await?;
        if beside == Beside::DriftCheck {
            std::fs::write(&config, &configured).map_err(super::anything)?;
        }
        watch.elapsed();
        let (calls, end) = (testbed.cloud.calls(), testbed.cloud.now());
        // An addition and a removal of each.
        rows.push(watch.stop(name, 2 * PRODUCTS.len() * options.moves, Some(&controller)));
        say(&format!("   {name}"));
        let parts = rows.len();
        rows.extend(all.iter_mut().flat_map(|pods| pods.rows(&calls, end, options.latency())));
        say(&super::measure::table(&rows[parts..]));
    }
    Ok(rows)
}

/// Moves one pod of each product at a time, and waits for the last ones.
async fn move_pods(all: &mut [Pods<'_>], options: &Options, testbed: &Testbed, beside: Beside) -> Result<(), String> {
    // Calls that are throttled are made again, and count as well; how many they are varies by half.
    let pace = match beside {
        Beside::Throttling(percent) => PACE * 150 / (100 - percent),
        _ => PACE,
    };
    let began = Instant::now();
    for step in 0..options.moves {
        if beside == Beside::Restarts && step % 10 == 5 {
            restart(testbed).await?;
        }
        all.iter_mut().try_for_each(|pods| pods.step(testbed, options.nodes, step % MOVING))?;
        tokio::time::sleep((pace * (step as u32 + 1)).saturating_sub(began.elapsed())).await;
    }
    tokio::time::sleep(5 * pace).await;
    Ok(())
}

/// The API server is away, and comes back without its watches.
async fn restart(testbed: &Testbed) -> Result<(), String> {
    testbed.cluster.go_away().await;
    tokio::time::sleep(AWAY).await;
    testbed.cluster.come_back().await.map_err(super::anything)
}

/// Id of the server group of a Service.
fn group(testbed: &Testbed, service: &str) -> String {
    testbed.cloud.look(|account| {
        let classic = account.load_balancers.values().flat_map(|balancer| balancer.groups.iter());
        let mut names = classic
            .map(|(id, group)| (id, &group.name))
            .chain(account.nlb.groups.iter().map(|(id, group)| (id, &group.name)));
        let found = names.find(|(_, name)| world::service_of(name) == service);
        found.map(|(id, _)| id.clone()).unwrap_or_default()
    })
}
