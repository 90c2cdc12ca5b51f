//! The check: arguments, the order of things, and the end, however it comes.

mod areas;
mod leftovers;
mod recorder;
mod report;
mod run;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use alicloud_ccm::alibaba::CloudClient;
use alicloud_ccm::alibaba::transport::HttpTransport;
use alicloud_ccm::config::checked::Config;
use alicloud_ccm::config::{ConfigSource, load};
use alicloud_ccm::controllers::registry::CATALOG;
use clap::{Parser, ValueEnum};
use sim::cloud::trace::Place;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use recorder::Recorder;
use report::Report;
use run::Run;

/// Compares a real account with the simulated one.
#[derive(Clone, Debug, Parser)]
#[command(name = "conformance")]
struct Options {
    /// The program's configuration file: its [cloud] says which account, region, VPC and vSwitches.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Overrides one key of the file, as the program's own flag does; can be given several times.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// An ECS instance in the first vSwitch, which becomes a backend and the next hop of a route entry.
    #[arg(long, value_name = "ID", required_unless_present = "cleanup")]
    instance: Option<String>,
    /// A private zone that is bound to the VPC, which gets a record. Without it PrivateZone is not checked.
    #[arg(long, value_name = "ID")]
    private_zone: Option<String>,
    /// Only these areas.
    #[arg(long, value_enum)]
    only: Vec<areas::Name>,
    /// Load balancers cost money, even for minutes: without this nothing is made.
    #[arg(long)]
    i_know_this_costs: bool,
    /// Deletes what an earlier check left behind, and nothing that does not carry its tag or mark.
    #[arg(long, conflicts_with = "i_know_this_costs")]
    cleanup: bool,
    /// Where the traces are written.
    #[arg(long, value_name = "FOLDER", default_value = "target/conformance")]
    traces: PathBuf,
    /// How to print the findings.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Longest wait for one step, in seconds.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Time between two looks, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    pause_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// How long a step may take, and how often it is looked at.
#[derive(Clone, Copy, Debug)]
struct Pace {
    pause: Duration,
    patience: Duration,
}

/// Exit codes: the simulator agrees with the account; something could not be checked or deleted; it does not agree.
const AGREES: u8 = 0;
const FAILED: u8 = 1;
const DIFFERS: u8 = 2;

pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { 64 } else { 0 };
        }
    };
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anything)
        .and_then(|runtime| runtime.block_on(check(&options)));
    match result {
        Ok(code) => code,
        Err(problem) => {
            tell(&format!("The check could not be made: {problem}"));
            FAILED
        }
    }
}

async fn check(options: &Options) -> Result<u8, String> {
    let config = read(options)?;
    let place = place(options, &config)?;
    let chosen: Vec<_> = areas::ALL.iter().filter(|it| it.is_chosen(&options.only, &place)).collect();
    if !options.cleanup && !options.i_know_this_costs {
        tell(&format!("{}\nNothing was done: give --i-know-this-costs to do it.", areas::plan(&chosen, &place)));
        return Ok(FAILED);
    }
    let recorder = Arc::new(Recorder::new(HttpTransport::new().map_err(anything)?));
    let cloud = CloudClient::new(recorder.clone(), &config.cloud, &place.region);
    let run = Run::new(cloud, place);
    let pace = Pace { pause: Duration::from_millis(options.pause_ms), patience: Duration::from_secs(options.patience) };
    let (left, faults) = leftovers::find(&run).await;
    if let Some(fault) = faults.first() {
        return Err(format!("what an earlier check left cannot be looked for: {fault}"));
    }
    if options.cleanup {
        left.iter().for_each(|it| tell(&format!("found {it}")));
        return Ok(finish(&leftovers::delete_all(&run, pace).await));
    }
    if !left.is_empty() {
        left.iter().for_each(|it| tell(&format!("found {it}")));
        return Err("an earlier check left this: delete it with --cleanup first".into());
    }
    tell(&areas::plan(&chosen, &run.place));
    let stop = stop_signal().map_err(anything)?;
    let mut report = Report::default();
    // Dropped in the middle of a call at a signal: what the call made is found by its tag.
    let stopped = tokio::select! {
        () = areas::walk(&chosen, &run, &recorder, pace, &mut report) => false,
        () = stop.cancelled() => true,
    };
    if stopped {
        tell("Interrupted: deleting what was made. A second signal ends this at once; --cleanup does the rest then.");
    }
    let left = leftovers::delete_all(&run, pace).await;
    report.write(&options.traces)?;
    report.print(options.output == Output::Json);
    Ok(match finish(&left) {
        code if code != AGREES || stopped || !report.is_whole() => FAILED,
        _ if report.agrees() => AGREES,
        _ => DIFFERS,
    })
}

fn finish(left: &[String]) -> u8 {
    left.iter().for_each(|it| tell(&format!("Not deleted: {it}")));
    if left.is_empty() {
        tell("Nothing of the check is left in the account.");
        AGREES
    } else {
        tell("Run the check with --cleanup until nothing is left.");
        FAILED
    }
}

fn read(options: &Options) -> Result<Config, String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let origin = ConfigSource {
        path: options.config.clone(),
        environment,
        overrides: options.set.clone(),
        ..ConfigSource::default()
    };
    load(&origin, &CATALOG).map(|loaded| loaded.config).map_err(anything)
}

fn place(options: &Options, config: &Config) -> Result<Place, String> {
    let stated = |key: &str, value: &Option<String>| {
        value
            .clone()
            .ok_or_else(|| format!("cloud.{key} is absent from {}: the check needs it", options.config.display()))
    };
    let zoned = |it: &_| {
        let alicloud_ccm::plan::loadbalancer::settings::VSwitchChoice { zone, id } = it;
        zone.clone()
            .map(|zone| (zone, id.clone()))
            .ok_or_else(|| format!("cloud.vswitches: {id} needs its zone, as in zone:id"))
    };
    let vswitches = config.cloud.vswitches.iter().map(zoned).collect::<Result<Vec<_>, _>>()?;
    if vswitches.is_empty() {
        return Err("cloud.vswitches is empty: the check needs one, and two for network load balancers".into());
    }
    Ok(Place {
        region: stated("region", &config.cloud.region)?,
        vpc: stated("vpc_id", &config.cloud.vpc_id)?,
        vswitches,
        instance: options.instance.clone().unwrap_or_default(),
        private_zone: options.private_zone.clone(),
    })
}

/// Cancelled by the first SIGINT or SIGTERM; the second one ends the process.
fn stop_signal() -> std::io::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            if token.is_cancelled() {
                std::process::exit(1);
            }
            token.cancel();
        }
    });
    Ok(stop)
}

fn anything(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What happens goes to stderr, so that stdout has the findings alone.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
