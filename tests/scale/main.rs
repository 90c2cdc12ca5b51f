//! What a controller manager costs: calls, seconds, memory and CPU, between a simulated cluster and a simulated cloud.
//!
//! ```console
//! cargo run --release --example scale                                      # 200 nodes, 100 Services, 20 ms a call
//! cargo run --release --example scale -- --nodes 50 --services 300 --latency-ms 50 --quotas
//! cargo run --release --example scale -- --network 100                     # and 100 Services with network load balancers
//! cargo run --release --example scale -- --binary target/x86_64-unknown-linux-musl/dist/alicloud-ccm
//! cargo run --release --example scale -- --size 15 --nodes 10000 --services 2500 --network 2500 --others 15000 --events 1000000
//! cargo run --release --example scale -- --day 30 --nodes 1000 --services 300 --plot docs/pictures/memory.svg
//! cargo run --release --example scale -- --floors --nodes 20               # the published quotas and the floor that they set
//! cargo run --release --example scale -- --floors --nodes 600 --services 1000 --replaced 500 --account-quotas 20 --patience 7200
//! cargo run --release --example scale -- --latencies --nodes 20 --services 1000
//! cargo run --release --example scale -- --controller ./other --argument --kubeconfig={kubeconfig}
//! ```
//!
//! The controller runs as a process of its own: this very executable under another role, or any other program that finds
//! its endpoints in the environment ([`controller`]). Beside every measured number of calls stands the
//! minimum.

mod controller;
mod day;
mod latencies;
mod measure;
mod quotas;
mod scenarios;
mod size;
mod world;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sim::cluster::Version;

/// What is measured.
#[derive(Clone, Debug, Parser)]
#[command(name = "scale")]
struct Options {
    /// Nodes that join.
    #[arg(long, default_value_t = 200)]
    nodes: usize,
    /// One-port Services of type LoadBalancer.
    #[arg(long, default_value_t = 100)]
    services: usize,
    /// Services of class `alibabacloud.com/nlb` besides, each with one port and, without `--size`, one backend.
    #[arg(long, default_value_t = 0)]
    network: usize,
    /// How long the cloud takes for each call.
    #[arg(long, default_value_t = 20)]
    latency_ms: u64,
    /// The cloud enforces the published quotas of calls per minute.
    #[arg(long)]
    quotas: bool,
    /// The account has so many times the published quotas, and `cloud.quotas` says so: with `--quotas`, `--floors` or
    /// `--latencies`.
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    account_quotas: u32,
    /// The controller keeps within the published quotas of calls per minute although the cloud does not enforce them.
    /// Otherwise its configuration states quotas that are out of reach, as of an account with raised quotas.
    #[arg(long)]
    budget: bool,
    /// Instead of a life: how large the controller becomes in a cluster that is there already, in which every Service has
    /// this many endpoints.
    #[arg(long, value_name = "ENDPOINTS")]
    size: Option<usize>,
    /// With `--size`: Services of type `ClusterIP` besides.
    #[arg(long, default_value_t = 0)]
    others: usize,
    /// With `--size`: how often something changes that leads to no work, such as heartbeats of kubelets.
    #[arg(long, default_value_t = 10_000)]
    events: usize,
    /// With `--size`: how many endpoints change alone, one after the other.
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// Instead of a life: a day of a cluster that is there already, in so many minutes. Half of its Services have
    /// network load balancers.
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["size", "controller", "network"])]
    day: Option<f64>,
    /// With `--day`: writes the memory over the day as a picture (SVG).
    #[arg(long, value_name = "FILE", requires = "day")]
    plot: Option<PathBuf>,
    /// Instead of a life: how close creations, node changes and deletions come to the floor that the published quotas set.
    #[arg(long, conflicts_with_all = ["size", "day", "controller", "network"])]
    floors: bool,
    /// With `--floors`: nodes that are replaced.
    #[arg(long, default_value_t = 10)]
    replaced: usize,
    /// Instead of a life: how soon endpoints that move are in their load balancers while other work waits for its quota.
    #[arg(long, conflicts_with_all = ["floors", "size", "day", "controller", "network"])]
    latencies: bool,
    /// With `--latencies`: endpoints of each product that move under each condition, one every 1.5 s.
    #[arg(long, default_value_t = 40)]
    moves: usize,
    /// With `--day`: besides, replicas are killed, watches break, and requests to the cloud and to the API server fail or
    /// lose their answers at any time, as this seed decides.
    #[arg(long, value_name = "SEED", requires = "day")]
    hostile: Option<u64>,
    /// Version of the simulated API server. Network load balancers need a class of Services, which old ones do not have.
    #[arg(long, value_name = "1.MINOR", default_value_t = Version::NEWEST, value_parser = version)]
    kubernetes: Version,
    /// How long nothing happens in the scenario `idle`, in seconds.
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// How long one scenario may take before it is given up, in seconds.
    #[arg(long, default_value_t = 900)]
    patience: u64,
    /// Overrides one key of the configuration, as the product's own flag does; can be given several times.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// The product as this file instead of this executable, whose own memory the simulators' code adds to.
    #[arg(long, value_name = "FILE", conflicts_with = "controller")]
    binary: Option<PathBuf>,
    /// Another program to measure. It finds the cloud through `ECS_ENDPOINT`, `VPC_ENDPOINT`, `SLB_ENDPOINT` and so on.
    #[arg(long, value_name = "FILE")]
    controller: Option<PathBuf>,
    /// An argument of that program; `{kubeconfig}`, `{cloud}` and `{folder}` are replaced. Can be given several times.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    argument: Vec<String>,
    /// Keeps the folder with configuration and logs, and says where it is.
    #[arg(long)]
    keep: bool,
}

impl Options {
    const fn latency(&self) -> Duration {
        Duration::from_millis(self.latency_ms)
    }
}

fn version(text: &str) -> Result<Version, String> {
    let minor = text.trim_start_matches('v').strip_prefix("1.").and_then(|rest| rest.split('.').next());
    let minor = minor.and_then(|minor| minor.parse().ok());
    minor.map(Version::minor_release).ok_or_else(|| "a version is written as 1.34".to_owned())
}

fn main() -> ExitCode {
    if std::env::var_os(controller::ROLE).is_some() {
        return alicloud_ccm::commands::main(std::env::args_os());
    }
    let options = Options::parse();
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anything)
        .and_then(|runtime| runtime.block_on(run(&options)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!("\nThe measurement broke off: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(anything)?;
    let path = folder.path().to_owned();
    if options.keep {
        say(&format!("Configuration and logs are in {}", folder.keep().display()));
    }
    say(&format!(
        "{} nodes, {} Services, {} ms a call, quotas {}",
        options.nodes,
        options.services,
        options.latency_ms,
        if options.quotas || options.floors || options.latencies { "on" } else { "off" }
    ));
    let rows = match (options.size, options.day) {
        _ if options.floors => quotas::play(options, &path).await?,
        _ if options.latencies => latencies::play(options, &path).await?,
        (Some(endpoints), _) => size::play(options, endpoints, &path).await?,
        (None, Some(minutes)) => day::play(options, minutes, &path).await?,
        (None, None) => scenarios::play(options, &path).await?,
    };
    say(&format!("\n{}", measure::table(&rows)));
    say(&measure::calls_by_action(&rows));
    Ok(())
}

fn anything(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn say(text: &str) {
    // Nobody may be listening, as in `scale | head`.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
