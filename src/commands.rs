//! The subcommands: one file for each that does more than print.
//!
//! `connect` is the one way in which a command reaches the cluster and the cloud.

mod check;
mod connect;
mod doctor;
mod explain;
mod gc;
mod kubectl;
mod kubelet_args;
mod lint;
mod manifest;
mod migrate;
mod plan;
mod ram_policy;
mod rbac;
mod settings;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::app;
use crate::cli::{Cli, Command, DEFAULT_CONFIG, OutputFormat, SourceArgs};
use crate::cluster;
use crate::config::{self, Config, ConfigPurpose, ConfigReport, ConfigSource, Loaded};
use crate::controllers::registry::CATALOG;
use crate::plan::loadbalancer::annotations::reference::{introduction, spec_fields, tables};
use crate::plan::{LineKind, PlanLine, clb, nlb};
use crate::telemetry::panics;

/// How a command ended.
enum Ended {
    /// Code 0: done, and nothing is left to do.
    Done = 0,
    /// Code 1: only a part could be done, and what was printed says which part is missing; or `doctor` found an error.
    Incomplete = 1,
    /// Code 2: `plan` found something to do, `gc` an orphan, or `doctor` nothing worse than a warning.
    SomethingToDo = 2,
    /// Code 3: the object that was asked about does not exist, or no controller is responsible for it.
    NotManaged = 3,
}

impl Ended {
    /// How a command ends that knows these lines of a plan, and lacks nothing.
    fn planned(lines: &[PlanLine]) -> Self {
        if lines.iter().all(|line| line.kind == LineKind::Note) { Self::Done } else { Self::SomethingToDo }
    }
}

/// Why a command did not do what was asked for, in words. Code 1.
#[derive(Debug)]
struct CommandError(String);

impl CommandError {
    fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

impl From<ConfigReport> for CommandError {
    fn from(report: ConfigReport) -> Self {
        Self(format!("{report} ({})", cluster::event_code("ConfigRejected")))
    }
}

type CommandResult = Result<Ended, CommandError>;

/// `EX_USAGE` of sysexits.h for a wrong command line, because 2 means that there is something to do.
const USAGE: u8 = 64;

/// Runs the program with `arguments`, of which the first is its own name, and gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Without the stream, the exit code is all that is left to say.
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    keep_secrets_from_core_dumps();
    panics::report();
    match execute(cli) {
        Ok(ended) => (ended as u8).into(),
        Err(CommandError(reason)) => {
            let _ = writeln!(io::stderr().lock(), "{}", reason.trim_end());
            1.into()
        }
    }
}

fn execute(cli: Cli) -> CommandResult {
    let source = &cli.source;
    match cli.command.unwrap_or(Command::Run) {
        Command::Run => {
            let origin = origin(source);
            let loaded = config::load(&origin, &CATALOG)?;
            let runtime = runtime()?;
            let ended = runtime.block_on(app::run(origin, loaded));
            // Does not wait for a thread that hangs.
            runtime.shutdown_background();
            Ok(ended.map(|()| Ended::Done)?)
        }
        Command::Check { cluster } => {
            let mut origin = in_use(source)?;
            // Keys of this machine would hide what is wrong with those of the cluster.
            let is_here = origin.purpose == ConfigPurpose::Here;
            origin.environment.retain(|name, _| is_here || name.starts_with(config::VARIABLE_PREFIX));
            check::run(&load_from(&origin)?, cluster)
        }
        Command::Plan { object, namespace, output } => {
            plan::run(&load(source)?.config, object.map(|object| object.within(&namespace)), output)
        }
        Command::Explain { object, namespace, output } => {
            let origin = in_use(source)?;
            explain::run(&load_from(&origin)?.config, &origin, (&object, &namespace), output)
        }
        Command::Doctor { output, bundle } => doctor::run(load_from(&in_use(source)?), output, bundle.as_deref()),
        Command::Gc { delete, ids, after, output } => {
            let deletion =
                delete.then(|| gc::Deletion { ids: ids.into_iter().collect(), pause: Duration::from_secs(after) });
            gc::run(&load(source)?.config, deletion.as_ref(), output)
        }
        Command::Lint(arguments) => lint::run(&arguments, &optional_config(source)?, &origin(source)),
        Command::Migrate(arguments) => migrate::run(&arguments, &optional_config(source)?),
        Command::Rbac(arguments) if arguments.kubeconfig => {
            print(&rbac::kubeconfig(&load(source)?.config, arguments).map_err(CommandError::new)?)
        }
        Command::Rbac(arguments) => print(&rbac::manifests(&load(source)?.config, arguments)),
        Command::RamPolicy { to_assume } => ram_policy::run(&load(source)?.config, to_assume),
        Command::KubeletArgs(arguments) => kubelet_args::run(&arguments),
        Command::Schema => print(&config::schema(&CATALOG)),
        Command::Reference => print(&config::reference(&CATALOG).map_err(CommandError::new)?),
        Command::Annotations => print(&annotations_page()),
        Command::Events => print(cluster::EVENTS_PAGE),
        Command::Version => print(&version(option_env!("ALICLOUD_CCM_COMMIT"), option_env!("ALICLOUD_CCM_BUILD_DATE"))),
    }
}

/// Version and target, and the commit and build date as far as the build was given them, which releases and images are.
fn version(commit: Option<&'static str>, date: Option<&'static str>) -> String {
    use std::env::consts::{ARCH, OS};
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let features = if cfg!(feature = "under-test") { "traces under-test" } else { "traces" };
    let or_unknown = |value: Option<&'static str>| value.filter(|value| !value.is_empty()).unwrap_or("unknown");
    format!(
        "alicloud-ccm {}\ncommit: {}\nbuild date: {}\ntarget: {ARCH}-unknown-{OS}-{libc}\nfeatures: {features}\n",
        env!("CARGO_PKG_VERSION"),
        or_unknown(commit),
        or_unknown(date),
    )
}

/// The manual of annotations: what holds for all, then the tables of each kind of load balancer.
fn annotations_page() -> String {
    const NEXT: &str = "Next: [examples.md](../guides/examples.md), Services to copy.\n";
    format!(
        "{}\n## Classic load balancers\n{}\n## Network load balancers\n\nFor Services of the class `alibabacloud.com/nlb`.\n{}{}\n{NEXT}",
        introduction(),
        tables::<clb::annotations::Name>("###"),
        tables::<nlb::annotations::Name>("###"),
        spec_fields()
    )
}

/// A core dump would hold keys and tokens. Where the limit cannot be lowered, the system decides.
fn keep_secrets_from_core_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
}

fn origin(source: &SourceArgs) -> ConfigSource {
    ConfigSource {
        path: source.config.clone(),
        // Variables that are not UTF-8 cannot be meant for this program.
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        overrides: source.set.clone(),
        ..ConfigSource::default()
    }
}

/// Where the configuration is: for kubectl's plugin in the cluster, unless there is a file.
fn in_use(source: &SourceArgs) -> Result<ConfigSource, CommandError> {
    let origin = origin(source);
    if !connect::is_for_kubectl() || has_file(source) {
        return Ok(origin);
    }
    let (text, variables) = kubectl::configuration(&elsewhere(&origin)?)?;
    let (text, purpose) = (Some(text), ConfigPurpose::Elsewhere);
    let mut found = ConfigSource { text, path: kubectl::PLACE.into(), purpose, ..origin };
    found.environment.extend(variables);
    Ok(found)
}

fn load_from(origin: &ConfigSource) -> Result<Loaded, ConfigReport> {
    let mut loaded = config::load(origin, &CATALOG)?;
    if origin.text.is_some() {
        loaded.config.kubernetes = elsewhere(origin)?.kubernetes;
    }
    Ok(loaded)
}

/// How the cluster is reached from where its configuration is none of the machine: only the arguments say so.
fn elsewhere(origin: &ConfigSource) -> Result<Config, ConfigReport> {
    let mut origin = ConfigSource { environment: [].into(), ..origin.clone() };
    origin.overrides.retain(|set| set.starts_with("kubernetes."));
    without_file(origin)
}

fn load(source: &SourceArgs) -> Result<Loaded, CommandError> {
    Ok(load_from(&in_use(source)?)?)
}

/// The configuration; what holds without one if there is no file where it is looked for by itself. The file need not be filled
/// in: no manifest depends on keys or on the name of the cluster.
fn optional_config(source: &SourceArgs) -> Result<Config, ConfigReport> {
    if !has_file(source) {
        return without_file(origin(source));
    }
    Ok(config::load(&ConfigSource { purpose: ConfigPurpose::Manifests, ..origin(source) }, &CATALOG)?.config)
}

fn has_file(source: &SourceArgs) -> bool {
    source.config != Path::new(DEFAULT_CONFIG) || source.config.exists()
}

fn without_file(origin: ConfigSource) -> Result<Config, ConfigReport> {
    let text = "controllers = [\"*\"]\n[cloud]\ncluster_id = \"any\"\n[route]\ncluster_cidrs = [\"10.0.0.0/8\"]\n";
    let purpose = ConfigPurpose::Elsewhere;
    Ok(config::load(&ConfigSource { text: Some(text.to_owned()), purpose, ..origin }, &CATALOG)?.config)
}

fn runtime() -> io::Result<Runtime> {
    // Two threads are enough for what mostly waits, and keep the memory small on machines with many cores.
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn print(text: &str) -> CommandResult {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Ended::Done)
}

/// Prints what `plan`, `explain` or `gc` found.
fn print_findings(output: OutputFormat, text: &str, findings: &impl serde::Serialize) -> Result<(), CommandError> {
    match output {
        OutputFormat::Text => print(text)?,
        OutputFormat::Json => print(&(serde_json::to_string_pretty(findings).map_err(CommandError::new)? + "\n"))?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    #[test]
    fn a_release_prints_commit_and_build_date() {
        let version = super::version(Some("0123abc"), Some("2026-11-23"));
        assert!(version.contains("\ncommit: 0123abc\nbuild date: 2026-11-23\ntarget: "), "{version}");
        let unrecorded = super::version(Some(""), None);
        assert!(unrecorded.contains("\ncommit: unknown\nbuild date: unknown\ntarget: "), "{unrecorded}");
    }

    #[test]
    fn the_committed_page_of_annotations_is_current() {
        expect_file!["../docs/reference/annotations.md"].assert_eq(&super::annotations_page());
    }
}
