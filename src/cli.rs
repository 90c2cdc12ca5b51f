//! The command line. Flags that would repeat the file do not exist; `--set` overrides any key of it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::config::{self, Loaded, Origin, Report};
use crate::plan::inputs::ObjectKey;
use crate::{app, gc, preview};

/// Where the configuration is if nothing says otherwise.
const DEFAULT_CONFIG: &str = "/etc/alicloud-ccm/alicloud-ccm.toml";

/// Exit codes, besides 0: what was asked for is done, and nothing is left to do.
mod exit {
    /// It failed; the reason was printed.
    pub(super) const FAILED: u8 = 1;
    /// `plan` found something to do, or `gc` something to remove.
    pub(super) const SOMETHING_TO_DO: u8 = 2;
    /// The command line is wrong (`EX_USAGE` of sysexits.h), apart from 2, which means something here.
    pub(super) const USAGE: u8 = 64;
}

/// Cloud controller manager for Kubernetes and OpenShift clusters on Alibaba Cloud.
#[derive(Debug, Parser)]
#[command(name = "alicloud-ccm", version)]
struct Cli {
    #[command(flatten)]
    source: SourceArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args, Debug)]
struct SourceArgs {
    /// The configuration file.
    #[arg(long, short, global = true, value_name = "FILE", env = "ALICLOUD_CCM_CONFIG", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Overrides one key of the file; can be given several times.
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the controllers that the file lists (this is the default).
    Run,
    /// Checks the configuration and prints every problem with its place; exit code 0 if there is none, 1 otherwise.
    Check,
    /// Reads the cluster and the cloud, and prints what a reconcile would do now; writes nothing. Exit code 0 if there is
    /// nothing to do, 2 if there is, 1 on an error.
    Plan {
        /// Only this object: `NAMESPACE/NAME` of a Service, or `node/NAME`.
        object: Option<String>,
        /// How to print it.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Lists what carries this cluster's proof in the cloud and has no owner in the cluster any more. Exit code 0 if there
    /// is nothing, 2 if there is, 1 on an error.
    Gc {
        /// Removes what is still without an owner at a second look.
        #[arg(long)]
        delete: bool,
        /// Seconds between the two looks.
        #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "delete", value_parser = clap::value_parser!(u64).range(1..))]
        after: u64,
        /// How to print it.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Prints the JSON schema of the configuration file.
    Schema,
    /// Prints the commented reference of the configuration file.
    Reference,
    /// Prints the reference of the Service annotations, as Markdown.
    Annotations,
    /// Prints the version.
    Version,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people, one line a step.
    Text,
    /// One JSON document.
    Json,
}

/// Runs the program with `arguments` (the first is its own name) and says with which code to exit.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Printing fails only if nobody listens.
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    without_core_dumps();
    let source = cli.source;
    match cli.command.unwrap_or(Command::Run) {
        Command::Run => run(&source),
        Command::Check => match load(&source) {
            Ok(loaded) => say(&format!("{}: no problems\n", loaded.path.display())),
            Err(report) => complain(&report),
        },
        Command::Plan { object, output } => plan(&source, object.as_deref(), output),
        Command::Gc { delete, after, output } => collect(&source, delete.then(|| Duration::from_secs(after)), output),
        Command::Schema => say(&config::schema()),
        Command::Reference => match config::reference() {
            Ok(text) => say(&text),
            Err(error) => fail(&error.to_string()),
        },
        Command::Annotations => say(&crate::plan::lb::annotations::reference_page()),
        Command::Version => say(&format!("alicloud-ccm {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

fn origin(source: &SourceArgs) -> Origin {
    Origin {
        path: source.config.clone(),
        // Names and values that are no text cannot be meant for this program.
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        overrides: source.set.clone(),
    }
}

fn load(source: &SourceArgs) -> Result<Loaded, Report> {
    config::load(&origin(source))
}

/// Credentials are in memory, and must not get into a core dump.
fn without_core_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Lowering a limit is always allowed.
    let _ = setrlimit(Resource::Core, none);
}

fn run(source: &SourceArgs) -> ExitCode {
    let origin = origin(source);
    let loaded = match config::load(&origin) {
        Ok(loaded) => loaded,
        Err(report) => return complain(&report),
    };
    match runtime().and_then(|runtime| runtime.block_on(app::run(origin, loaded))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn plan(source: &SourceArgs, object: Option<&str>, output: Output) -> ExitCode {
    let only = match object.map(parse_object).transpose() {
        Ok(only) => only,
        Err(problem) => {
            let _ = fail(&problem);
            return exit::USAGE.into();
        }
    };
    let loaded = match load(source) {
        Ok(loaded) => loaded,
        Err(report) => return complain(&report),
    };
    let result = match runtime() {
        Ok(runtime) => runtime.block_on(preview::plan(&loaded.config, only.as_ref())),
        Err(error) => return fail(&error.to_string()),
    };
    let plan = match result {
        Ok(plan) => plan,
        Err(error) => return fail(&error.to_string()),
    };
    let printed = match output {
        Output::Text => say(&plan.to_text()),
        Output::Json => say(&plan.to_json()),
    };
    if plan.is_failure() {
        exit::FAILED.into()
    } else if plan.is_empty() {
        printed
    } else {
        exit::SOMETHING_TO_DO.into()
    }
}

fn collect(source: &SourceArgs, delete: Option<Duration>, output: Output) -> ExitCode {
    let loaded = match load(source) {
        Ok(loaded) => loaded,
        Err(report) => return complain(&report),
    };
    let result = match runtime() {
        Ok(runtime) => runtime.block_on(gc::collect(&loaded.config, delete)),
        Err(error) => return fail(&error.to_string()),
    };
    let found = match result {
        Ok(found) => found,
        Err(error) => return fail(&error.to_string()),
    };
    let printed = match output {
        Output::Text => say(&found.to_text()),
        Output::Json => say(&found.to_json()),
    };
    if !found.problems.is_empty() {
        exit::FAILED.into()
    } else if found.orphans.is_empty() {
        printed
    } else {
        exit::SOMETHING_TO_DO.into()
    }
}

/// What a plan is limited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Only {
    /// One node, by name.
    Node(String),
    /// One Service.
    Service(ObjectKey),
}

fn parse_object(text: &str) -> Result<Only, String> {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        ["node" | "nodes", name] if !name.is_empty() => Ok(Only::Node((*name).to_owned())),
        ["service" | "services" | "svc", namespace, name] | [namespace, name]
            if !namespace.is_empty() && !name.is_empty() =>
        {
            Ok(Only::Service(ObjectKey::new(*namespace, *name)))
        }
        _ => Err(format!(
            "{text:?} is no object to plan for; write NAMESPACE/NAME for a Service or node/NAME for a node"
        )),
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    // Two threads are enough for what mostly waits, and keep the memory small on masters with many cores.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn say(text: &str) -> ExitCode {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => exit::FAILED.into(),
    }
}

fn complain(report: &Report) -> ExitCode {
    fail(&report.to_string())
}

fn fail(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
    exit::FAILED.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn objects_are_services_or_nodes() {
        assert_eq!(parse_object("shop/web").unwrap(), Only::Service(ObjectKey::new("shop", "web")));
        assert_eq!(parse_object("svc/shop/web").unwrap(), Only::Service(ObjectKey::new("shop", "web")));
        assert_eq!(parse_object("node/n1").unwrap(), Only::Node("n1".to_owned()));
        for text in ["web", "a/b/c", "/web", ""] {
            assert!(parse_object(text).unwrap_err().contains("NAMESPACE/NAME"), "{text}");
        }
    }
}
