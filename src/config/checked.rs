//! What the configuration means: parsed, defaulted, consistent, comparable. Made from the file's text by
//! [`check`](super), and by nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::catalog::ControllerName;
use super::file::ResourceLock;
use super::secret::Secret;
use crate::plan::service::settings::{ServiceOptions, VSwitchChoice};

/// The whole configuration. Two equal values mean the same behaviour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Which controllers run.
    pub controllers: BTreeSet<ControllerName>,
    /// Where in the cloud the cluster lives, and how the cloud is reached.
    pub cloud: Cloud,
    /// How the API server is reached.
    pub kubernetes: Kubernetes,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Health, metrics and configuration over HTTP.
    pub server: Server,
    /// Logs.
    pub log: Log,
    /// The node controller.
    pub node: Node,
    /// The route controller.
    pub route: Route,
    /// The service controller.
    pub service: ServiceOptions,
}

/// Section `[cloud]`. What is `None` comes from the instance's metadata service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cloud {
    /// Such as `cn-hangzhou`.
    pub region: Option<String>,
    /// `vpc-...`
    pub vpc_id: Option<String>,
    /// Zone of this instance.
    pub zone_id: Option<String>,
    /// vSwitches for intranet load balancers, in order of preference: (zone if stated, id).
    pub vswitches: Vec<VSwitchChoice>,
    /// Part of every ownership mark; unique among the clusters of the account.
    pub cluster_id: String,
    /// Tag that marks the cluster's instances.
    pub cluster_tag: String,
    /// Resource group of new load balancers.
    pub resource_group_id: Option<String>,
    /// Credentials.
    pub credentials: Credentials,
    /// Which hosts are called.
    pub endpoints: Endpoints,
    /// Share of the published API quotas that this process may use, above 0, at most 1.
    pub budget_share: f64,
    /// Calls a minute of actions whose quota is not the published one; `*` stands for all that are not named.
    pub quotas: BTreeMap<String, u32>,
    /// Longest time that one call may take.
    pub timeout: Duration,
}

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Credentials {
    /// A key pair, possibly temporary.
    AccessKey(AccessKey),
    /// A role that the key pair may assume.
    AssumeRole {
        /// Who assumes it.
        source: AccessKey,
        /// `acs:ram::<account>:role/<name>`
        role_arn: String,
        /// Name of the session.
        session_name: String,
        /// 900 s to 43200 s.
        duration: Duration,
        /// External id, if the role's trust policy asks for one.
        external_id: Option<String>,
    },
    /// A role for a service account (RRSA).
    Oidc {
        /// `acs:ram::<account>:role/<name>`
        role_arn: String,
        /// `acs:ram::<account>:oidc-provider/<name>`
        provider_arn: String,
        /// Read anew for every token.
        token_file: PathBuf,
        /// Name of the session.
        session_name: String,
        /// 900 s to 43200 s.
        duration: Duration,
    },
    /// The RAM role of this instance, from its metadata service.
    InstanceRole {
        /// Asked from the metadata service if absent.
        role: Option<String>,
    },
}

/// A key pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessKey {
    /// `LTAI...` or `STS....`
    pub id: String,
    /// Never shown.
    pub secret: Secret,
    /// With temporary keys.
    pub token: Option<Secret>,
}

/// Hosts of the cloud's products.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoints {
    /// Whether the hosts inside a VPC are used, rather than the public ones.
    pub vpc_network: bool,
    /// Whether calls go over plain HTTP; only for simulators and gateways on trusted networks.
    pub plain_http: bool,
    /// By product (`ecs`, `vpc`, `slb`, `sts`): `host` or `host:port`.
    pub overrides: BTreeMap<String, String>,
    /// Base URL of the metadata service, without a slash at the end.
    pub metadata: String,
    /// Whether the metadata service may be read without a session token when it refuses to give one.
    pub metadata_v1_fallback: bool,
}

/// Section `[kubernetes]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kubernetes {
    /// Stated kubeconfig; if absent: `KUBECONFIG`, then in-cluster, then `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one if absent.
    pub context: Option<String>,
    /// Address of the API server, overriding the kubeconfig's.
    pub server: Option<String>,
    /// Requests per second on average.
    pub qps: f64,
    /// Requests at once.
    pub burst: u32,
    /// Longest time that a request other than a watch may take.
    pub timeout: Duration,
}

/// Section `[leader_election]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaderElection {
    /// Whether copies take turns; without it, only one copy may run.
    pub enabled: bool,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Whether an Endpoints object of that name is locked as well.
    pub resource_lock: ResourceLock,
    /// Name of this copy; host name and a random part if absent.
    pub identity: Option<String>,
    /// After this time without a renewal another copy may lead.
    pub lease_duration: Duration,
    /// A leader that could not renew for this time steps down.
    pub renew_deadline: Duration,
    /// Time between tries.
    pub retry_period: Duration,
}

/// Section `[server]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Address to listen on; loopback unless stated.
    pub address: IpAddr,
    /// Port to listen on; 0 switches the server off.
    pub port: u16,
    /// Certificates in PEM form; plain HTTP is spoken without them.
    pub tls_cert_file: Option<String>,
    /// Their private key in PEM form; there if and only if the certificates are.
    pub tls_key_file: Option<Secret>,
    /// Whether everything but health asks for a token that the API server accepts.
    pub authorization: bool,
}

/// Section `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// Directives such as `info` or `info,alicloud_ccm::alibaba=debug`.
    pub level: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Section `[node]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// Time between passes that keep addresses and labels true and look for released instances; `None` for none.
    pub period: Option<Duration>,
    /// Nodes in one batch, 1 to 100.
    pub batch_size: usize,
    /// How long the first change waits for company.
    pub aggregation: Duration,
    /// Whether the source/destination check of primary interfaces is switched off.
    pub disable_source_dest_check: bool,
    /// Whether stopped instances' nodes get the shutdown taint.
    pub shutdown_taint: bool,
    /// Whether nodes of released instances are removed.
    pub remove_released: bool,
    /// A node must have been not ready for this long before it can be removed.
    pub removal_grace: Duration,
    /// Time between the two sightings of a released instance.
    pub removal_interval: Duration,
    /// How many nodes may be removed within `removal_window`.
    pub removal_limit: u32,
    /// The window of `removal_limit`.
    pub removal_window: Duration,
    /// Whether IPv6 addresses are written to nodes.
    pub ipv6: bool,
    /// Whether nodes without a providerID are looked for by private address and name.
    pub discover: bool,
}

/// Section `[route]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Route {
    /// Routes are only made and removed within these; empty means the pod CIDRs themselves bound it.
    pub cluster_cidrs: Vec<IpNet>,
    /// Route tables; discovered if empty.
    pub table_ids: Vec<String>,
    /// Time between full passes; `None` for none.
    pub period: Option<Duration>,
    /// Entries in one call, 1 to 50.
    pub batch_size: usize,
    /// How long the first change waits for company.
    pub aggregation: Duration,
    /// How many entries may be removed in one pass; more are held back and reported.
    pub removal_limit: u32,
}
