//! The command line. Flags that would repeat the file do not exist; `--set` overrides any key of it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::alibaba::permissions;
use crate::catalog::CATALOG;
use crate::config::{self, Loaded, Origin, Report};
use crate::kubelet::{self, Form, HostName};
use crate::plan::clb::annotations::Name;
use crate::plan::inputs::ObjectKey;
use crate::plan::service::annotations::reference_page;
use crate::rights::cluster::{ServerVersion, Subject};
use crate::telemetry::panics;
use crate::{app, gc, preview, rights};

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
    /// Prints the RBAC manifests with the least rights that the configuration needs.
    Rbac(RbacArgs),
    /// Prints the RAM policy with the least permissions that the configuration needs.
    RamPolicy {
        /// Instead, prints the policy for the owner of the configured key pair: to assume the configured role.
        #[arg(long)]
        to_assume: bool,
    },
    /// Prints what the kubelet of this instance should be told: its provider id and name. Needs no configuration.
    KubeletArgs(KubeletArgs),
    /// Prints the JSON schema of the configuration file.
    Schema,
    /// Prints the commented reference of the configuration file.
    Reference,
    /// Prints the reference of the Service annotations, as Markdown.
    Annotations,
    /// Prints the version.
    Version,
}

#[derive(Args, Debug)]
struct RbacArgs {
    /// Version of the API server; the newest unless stated. OpenShift 3.11 is 1.11.
    #[arg(long, value_name = "1.MINOR")]
    kubernetes: Option<ServerVersion>,
    /// The service account that gets the rights.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kube-system/alicloud-ccm")]
    service_account: String,
    /// A user who gets the rights instead, such as the common name of a client certificate.
    #[arg(long, value_name = "NAME", conflicts_with = "service_account")]
    user: Option<String>,
}

#[derive(Args, Debug)]
struct KubeletArgs {
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t = KubeletOutput::Args)]
    output: KubeletOutput,
    /// Writes the provider id with the scheme `alicloud://`, as OpenShift 4 has it.
    #[arg(long)]
    scheme: bool,
    /// Where the name of the node comes from.
    #[arg(long, value_enum, default_value_t = KubeletName::Instance)]
    host_name: KubeletName,
    /// Seconds to wait for the metadata service.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Base URL of the metadata service.
    #[arg(long, value_name = "URL", default_value = "http://100.100.100.200")]
    metadata: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KubeletOutput {
    /// `--provider-id=... --hostname-override=...`
    Args,
    /// `KUBELET_PROVIDERID=...` and `KUBELET_NODE_NAME=...`, for a file of variables.
    Env,
    /// A KubeletConfiguration with the provider id, for `--config-dir`.
    Config,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KubeletName {
    /// The host name of the instance.
    Instance,
    /// The provider id, without its scheme.
    ProviderId,
    /// No name is printed; the kubelet takes the machine's.
    None,
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
    keep_secrets_from_core_dumps();
    panics::tell();
    let source = cli.source;
    match cli.command.unwrap_or(Command::Run) {
        Command::Run => run(&source),
        Command::Check => match load(&source) {
            Ok(loaded) => say(&format!("{}: no problems\n", loaded.path.display())),
            Err(report) => complain(&report),
        },
        Command::Plan { object, output } => plan(&source, object.as_deref(), output),
        Command::Gc { delete, after, output } => collect(&source, delete.then(|| Duration::from_secs(after)), output),
        Command::Rbac(arguments) => rbac(&source, &arguments),
        Command::RamPolicy { to_assume } => ram_policy(&source, to_assume),
        Command::KubeletArgs(arguments) => kubelet_args(&arguments),
        Command::Schema => say(&config::schema(&CATALOG)),
        Command::Reference => match config::reference(&CATALOG) {
            Ok(text) => say(&text),
            Err(error) => fail(&error.to_string()),
        },
        Command::Annotations => say(&reference_page::<Name>()),
        Command::Version => say(&format!("alicloud-ccm {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

/// A core dump would hold keys and tokens. Where a limit cannot be lowered, it is the system's choice.
fn keep_secrets_from_core_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
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
    config::load(&origin(source), &CATALOG)
}

fn run(source: &SourceArgs) -> ExitCode {
    let origin = origin(source);
    let loaded = match config::load(&origin, &CATALOG) {
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

fn rbac(source: &SourceArgs, arguments: &RbacArgs) -> ExitCode {
    let subject = match (&arguments.user, arguments.service_account.split_once('/')) {
        (Some(user), _) => Subject::User(user.clone()),
        (None, Some((namespace, name))) if !namespace.is_empty() && !name.is_empty() => {
            Subject::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() }
        }
        _ => {
            let given = &arguments.service_account;
            let _ = fail(&format!("{given:?} is no service account; write NAMESPACE/NAME"));
            return exit::USAGE.into();
        }
    };
    let version = arguments.kubernetes.unwrap_or(ServerVersion::NEWEST);
    match load(source) {
        Ok(loaded) => say(&rights::cluster::manifests(&loaded.config, version, &subject)),
        Err(report) => complain(&report),
    }
}

fn ram_policy(source: &SourceArgs, to_assume: bool) -> ExitCode {
    let loaded = match load(source) {
        Ok(loaded) => loaded,
        Err(report) => return complain(&report),
    };
    let policy = match to_assume {
        false => permissions::policy(&loaded.config),
        true => match permissions::policy_to_assume(&loaded.config) {
            Some(policy) => policy,
            None => return fail("no key pair assumes a role: cloud.credentials has no role_arn next to a key pair"),
        },
    };
    say(&format!("{policy:#}\n"))
}

fn kubelet_args(arguments: &KubeletArgs) -> ExitCode {
    let name = match arguments.host_name {
        KubeletName::Instance => HostName::Instance,
        KubeletName::ProviderId => HostName::ProviderId,
        KubeletName::None => HostName::Kubelet,
    };
    let form = match arguments.output {
        KubeletOutput::Args => Form::Args,
        KubeletOutput::Env => Form::Env,
        KubeletOutput::Config => Form::Config,
    };
    let limit = Duration::from_secs(arguments.timeout);
    let told = match runtime() {
        Ok(runtime) => runtime.block_on(kubelet::ask(&arguments.metadata, limit, arguments.scheme, name)),
        Err(error) => return fail(&error.to_string()),
    };
    match told {
        Ok(told) => say(&told.to_text(form)),
        Err(error) => fail(&error.to_string()),
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
