//! The arguments. No flag repeats a key of the configuration file; `--set` overrides any key.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use ipnet::IpNet;

use crate::plan::inputs::{ObjectKey, ObjectKind};

/// Where the configuration is if nothing says otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/alicloud-ccm/alicloud-ccm.toml";

/// Cloud controller manager for Kubernetes and OpenShift clusters on Alibaba Cloud.
#[derive(Debug, Parser)]
#[command(name = "alicloud-ccm", version)]
pub struct Cli {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What to do; [`Command::Run`] if absent.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Where the configuration comes from.
#[derive(Args, Debug)]
pub struct SourceArgs {
    /// The configuration file.
    #[arg(long, short, global = true, value_name = "FILE", env = "ALICLOUD_CCM_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Overrides one key of the file; can be given several times.
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// The subcommands; `commands` has a file for each that does more than print.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the controllers that the file lists (this is the default).
    Run,
    /// Checks the configuration, and the kubeconfig that it names, if that file is here. Prints every problem with its position. Exit
    /// code 0 without problems, 1 otherwise.
    Check {
        /// Also asks the API server whether the pod network fits: with `route`, whether it needs routes of this program.
        #[arg(long)]
        cluster: bool,
    },
    /// Reads the cluster and the cloud, and prints what a reconcile would do now; writes nothing. Exit code 0 if there is
    /// nothing to do, 2 if there is, 3 if the object does not exist or no controller is responsible, 1 on an error.
    Plan {
        /// Only this object: `NAMESPACE/NAME` or `svc/NAME` of a Service, `node/NAME`, or `pv/NAME` of a PersistentVolume.
        object: Option<ObjectArg>,
        /// The namespace of `svc/NAME`; that of the kubeconfig's context unless stated.
        #[arg(long, short, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
        namespace: String,
        /// How to print the plan.
        #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
    },
    /// Explains the state of one object: the responsible controller, the leader, desired and observed state, what is missing,
    /// events and what to do; writes nothing. Exit codes as of `plan`.
    Explain {
        /// `NAMESPACE/NAME` or `svc/NAME` of a Service, `node/NAME`, `pv/NAME` of a PersistentVolume, or `route/CIDR` of a node's
        /// pods.
        object: ExplainArg,
        /// The namespace of `svc/NAME`; that of the kubeconfig's context unless stated.
        #[arg(long, short, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
        namespace: String,
        /// How to print it.
        #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
    },
    /// Checks everything that the program needs, and names the first cause with its remedy: configuration,
    /// cloud, permissions, cluster, nodes, quotas, orphans, running process; changes nothing. Works before the first start, beside
    /// the running program, and where the API server or the cloud does not answer. Exit code 0 without warnings, 2 with warnings,
    /// 1 with errors or if a part could not be checked.
    Doctor {
        /// How to print the findings.
        #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
        /// Also writes a tar.gz for a bug report, without secrets: findings, configuration, version, pages of the process here.
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
    },
    /// Checks manifests of Services, without a cluster and without a cloud, and prints every problem with its position. Exit
    /// code 0 without errors, 2 with errors, 1 if a file cannot be read. Needs no configuration file, and follows it if there
    /// is one.
    Lint(LintArgs),
    /// Lists orphans: what carries this cluster's marks in the cloud and has no owner in the cluster any more. Exit code 0
    /// if there are none, 2 if there are, 1 on an error.
    Gc {
        /// Deletes what is still an orphan when it is looked at a second time, and is proven to be this cluster's.
        #[arg(long)]
        delete: bool,
        /// Deletes only these, also if they may be another cluster's: ids as the list shows them, such as `lb-...` and `rte-...`.
        #[arg(requires = "delete")]
        ids: Vec<String>,
        /// Seconds between the two observations.
        #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "delete", value_parser = clap::value_parser!(u64).range(1..))]
        after: u64,
        /// How to print the orphans.
        #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
    },
    /// Converts the settings of the official controller to the configuration, the RBAC and the RAM policy of this program, and
    /// lists what has no counterpart. Writes nothing to the cluster or the cloud. Exit code 1 with a list of problems.
    Migrate(MigrateArgs),
    /// Prints the RBAC manifests with the least permissions that the configuration needs, and the service account that gets them.
    Rbac(RbacArgs),
    /// Prints the RAM policy with the least permissions that the configuration needs.
    RamPolicy {
        /// Instead, prints the policy for the owner of the configured key pair: to assume the configured role.
        #[arg(long)]
        to_assume: bool,
    },
    /// Prints the provider id and node name that the kubelet of this instance needs. Reads no configuration.
    KubeletArgs(KubeletArgs),
    /// Prints the JSON schema of the configuration file.
    Schema,
    /// Prints the commented reference of the configuration file.
    Reference,
    /// Prints the reference of the Service annotations, as Markdown.
    Annotations,
    /// Prints every event with its code, cause, effect and remedy, as Markdown.
    Events,
    /// Prints version, commit, build date and target.
    Version,
}

/// Arguments of `lint`.
#[derive(Args, Debug)]
pub struct LintArgs {
    /// Files in YAML or JSON; `-` is the standard input. What is no Service is left out.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Prints what would be made for each Service in an empty account; node ports and zones that nothing states are examples.
    #[arg(long)]
    pub plan: bool,
    /// How to print the findings.
    #[arg(long, short, value_enum, default_value_t = LintFormat::Text)]
    pub output: LintFormat,
}

/// How `lint` prints.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LintFormat {
    /// For people, with the line of each finding.
    Text,
    /// One JSON document.
    Json,
    /// SARIF 2.1.0, which code hosts show beside the lines.
    Sarif,
}

/// Arguments of `migrate`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("official").args(["cloud_config", "from_cluster", "flags"]).required(true).multiple(true)))]
pub struct MigrateArgs {
    /// The cloud config of the official controller.
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,
    /// Reads flags and cloud config of the official workload in the cluster of `kubernetes.kubeconfig` or `KUBECONFIG`.
    #[arg(long, conflicts_with = "flags")]
    pub from_cluster: bool,
    /// Where the official controller runs, if not in its usual namespaces, such as shoot--PROJECT--CLUSTER of a Gardener seed.
    #[arg(long, value_name = "NAMESPACE", requires = "from_cluster")]
    pub namespace: Option<String>,
    /// Writes new files, the key pair with mode 0600, into this folder; otherwise all but the key pair is printed.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// The flags of the official controller.
    #[arg(last = true)]
    pub flags: Vec<String>,
}

/// Arguments of `rbac`.
#[derive(Args, Debug)]
pub struct RbacArgs {
    /// Version of the API server; the newest unless stated. OpenShift 3.11 is 1.11.
    #[arg(long, value_name = "1.MINOR", value_parser = server_version)]
    pub kubernetes: Option<u32>,
    /// The service account that gets the permissions.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value_t = RbacArgs::default().service_account, value_parser = service_account)]
    pub service_account: ObjectKey,
    /// A user who gets the permissions instead, such as the common name of a client certificate.
    #[arg(long, value_name = "NAME", conflicts_with = "service_account")]
    pub user: Option<String>,
    /// Instead, prints the kubeconfig for a service of the host. It names the file of a token, or with `--user` of a certificate.
    #[arg(long)]
    pub kubeconfig: bool,
}

impl Default for RbacArgs {
    /// The service account as all manifests name it.
    fn default() -> Self {
        let service_account = ObjectKey::new("kube-system", "alicloud-ccm");
        Self { kubernetes: None, service_account, user: None, kubeconfig: false }
    }
}

/// Arguments of `kubelet-args`.
#[derive(Args, Debug)]
pub struct KubeletArgs {
    /// How to print them.
    #[arg(long, short, value_enum, default_value_t = KubeletOutput::Args)]
    pub output: KubeletOutput,
    /// Writes the provider id with the scheme `alicloud://`, as OpenShift 4 has it.
    #[arg(long)]
    pub scheme: bool,
    /// Where the name of the node comes from.
    #[arg(long, value_enum, default_value_t = NodeNameSource::Instance)]
    pub host_name: NodeNameSource,
    /// Seconds to wait for the metadata service.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Base URL of the metadata service.
    #[arg(long, value_name = "URL", default_value = "http://100.100.100.200")]
    pub metadata: String,
}

/// How `kubelet-args` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KubeletOutput {
    /// `--provider-id=... --hostname-override=...`
    Args,
    /// `KUBELET_PROVIDERID=...` and `KUBELET_NODE_NAME=...`, for a file of variables.
    Env,
    /// A KubeletConfiguration with the provider id, for `--config-dir`.
    Config,
}

/// Where the name of the node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeNameSource {
    /// The host name of the instance.
    Instance,
    /// The provider id, without its scheme.
    ProviderId,
    /// No name is printed; the kubelet takes the machine's.
    None,
}

/// How `plan` and `gc` print.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OutputFormat {
    /// For people, one line a step.
    Text,
    /// One JSON document.
    Json,
}

/// The only object that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectArg {
    /// What it is.
    pub kind: ObjectKind,
    /// Which one; a Service without its namespace is completed by [`ObjectArg::within`].
    pub key: ObjectKey,
}

impl ObjectArg {
    /// The same, in this namespace if it is a Service without one.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        if self.kind == ObjectKind::Service && self.key.namespace.is_empty() {
            self.key.namespace = namespace.into();
        }
        self
    }
}

impl fmt::Display for ObjectArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.key)
    }
}

impl FromStr for ObjectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split('/').collect();
        let is_called = |kind: &ObjectKind| {
            [kind.short(), kind.plural()].contains(&parts[0]) || kind.plural().strip_suffix('s') == Some(parts[0])
        };
        let kinds = [ObjectKind::Node, ObjectKind::Service, ObjectKind::PersistentVolume];
        match (kinds.into_iter().find(is_called), parts.as_slice()) {
            (Some(kind), [_, name]) if !name.is_empty() => Ok(Self { kind, key: ObjectKey::cluster(*name) }),
            (Some(ObjectKind::Service), [_, namespace, name]) | (_, [namespace, name])
                if !namespace.is_empty() && !name.is_empty() =>
            {
                Ok(Self { kind: ObjectKind::Service, key: ObjectKey::new(*namespace, *name) })
            }
            _ => Err("write NAMESPACE/NAME or svc/NAME for a Service, node/NAME for a node, or pv/NAME for a PersistentVolume"
                .to_owned()),
        }
    }
}

/// What an explanation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainArg {
    /// An object.
    Object(ObjectArg),
    /// The node with this pod CIDR.
    Route(IpNet),
}

impl FromStr for ExplainArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(cidr) = text.strip_prefix("route/") else { return text.parse().map(Self::Object) };
        let wrong = |_| format!("{cidr:?} is no CIDR, such as 10.0.1.0/24");
        cidr.parse().map(|cidr: IpNet| Self::Route(cidr.trunc())).map_err(wrong)
    }
}

impl fmt::Display for ExplainArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => object.fmt(f),
            Self::Route(cidr) => write!(f, "Route {cidr}"),
        }
    }
}

/// Permissions as for the newest API server: it has everything that recent ones have.
pub const NEWEST_SERVER: u32 = u32::MAX;

/// The number after `1.` in what people and servers write: `1.11`, `v1.11.0+d4cacc0`. Permissions depend on no more of it.
///
/// # Errors
/// What is to be written, if it is something else.
pub fn server_version(text: &str) -> Result<u32, String> {
    let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.").unwrap_or_default();
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    minor.parse().map_err(|_| "write the version of Kubernetes as 1.11".to_owned())
}

fn service_account(text: &str) -> Result<ObjectKey, String> {
    let parts = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    parts.map(|(namespace, name)| ObjectKey::new(namespace, name)).ok_or_else(|| "write NAMESPACE/NAME".to_owned())
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
        let service = ObjectArg { kind: ObjectKind::Service, key: ObjectKey::new("shop", "web") };
        assert_eq!("shop/web".parse(), Ok(service.clone()));
        assert_eq!("svc/shop/web".parse(), Ok(service.clone()));
        let short: ObjectArg = "svc/web".parse().unwrap();
        assert_eq!(short.clone().within("").within("shop"), service);
        assert_eq!(short.within("shop").within("other"), service, "what was stated first counts");
        assert_eq!("node/n1".parse(), Ok(ObjectArg { kind: ObjectKind::Node, key: ObjectKey::cluster("n1") }));
        let pod = ObjectArg { kind: ObjectKind::Service, key: ObjectKey::new("pod", "web") };
        assert_eq!("pod/web".parse(), Ok(pod), "a namespace of this name");
        let volume = ObjectArg { kind: ObjectKind::PersistentVolume, key: ObjectKey::cluster("d-1") };
        for text in ["pv/d-1", "persistentvolume/d-1", "persistentvolumes/d-1"] {
            assert_eq!(text.parse(), Ok(volume.clone()), "{text}");
        }
        for text in ["web", "a/b/c", "/web", "", "node/", "node/a/b", "svc//web"] {
            assert!(text.parse::<ObjectArg>().unwrap_err().contains("NAMESPACE/NAME"), "{text}");
        }
        let route = ExplainArg::Route("10.0.1.0/24".parse().unwrap());
        assert_eq!("route/10.0.1.7/24".parse(), Ok(route.clone()));
        assert_eq!(route.to_string(), "Route 10.0.1.0/24");
        assert!("route/web".parse::<ExplainArg>().unwrap_err().contains("no CIDR"));
        assert!(matches!("shop/web".parse(), Ok(ExplainArg::Object(_))));
        assert_eq!(service_account("net/ccm"), Ok(ObjectKey::new("net", "ccm")));
        for text in ["alicloud-ccm", "/x", "x/"] {
            assert!(service_account(text).is_err(), "{text}");
        }
    }

    #[test]
    fn versions_are_read_as_people_and_servers_write_them() {
        for (text, minor) in [("1.11", 11), ("v1.11.0+d4cacc0", 11), ("1.34", 34)] {
            assert_eq!(server_version(text), Ok(minor));
        }
        for text in ["3.11", "1", "latest", "1.x"] {
            assert!(server_version(text).is_err(), "{text}");
        }
    }
}
