//! What the configuration means: parsed, defaulted, consistent, comparable. Only [`check`](super::check()) makes it from the
//! file. Sections that mean what they say are those of [`file`](super::file).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

pub use super::file::{Endpoints, Kubernetes, LeaderElection, Log, LogFormat, Node, Pvtz, ResourceLock, VolumeLabels};
use super::secret::Secret;
use crate::plan::loadbalancer::settings::{NlbDefaults, ServiceOptions, VSwitchChoice};

/// The whole configuration. Two equal values mean the same behaviour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Which controllers run.
    pub controllers: BTreeSet<&'static str>,
    /// The place of the cluster in the cloud, and how the cloud is reached.
    pub cloud: Cloud,
    /// How the API server is reached.
    pub kubernetes: Kubernetes,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Health, metrics and configuration over HTTP.
    pub server: Server,
    /// Logs.
    pub log: Log,
    /// Traces.
    pub traces: Traces,
    /// The node controller.
    pub node: Node,
    /// The route controller.
    pub route: Route,
    /// The service controller.
    pub service: ServiceOptions,
    /// The nlb controller.
    pub nlb: NlbOptions,
    /// The volume-labels controller.
    pub volume_labels: VolumeLabels,
    /// The pvtz controller.
    pub pvtz: Pvtz,
}

/// Section `[nlb]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NlbOptions {
    /// Services worked on at once, and as many more that have a load balancer.
    pub concurrency: usize,
    /// Time between comparisons with the cloud; `None` for none.
    pub drift_check: Option<Duration>,
    /// What holds for network load balancers where no annotation speaks.
    pub defaults: NlbDefaults,
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
    /// None that can be used on this machine, and why.
    Unusable(String),
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

/// Section `[server]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Address to listen on; loopback unless stated.
    pub address: IpAddr,
    /// Port to listen on; 0 switches the server off.
    pub port: u16,
    /// Certificates in PEM form; without them, plain HTTP is spoken, or with `authorization` TLS by a certificate of its own.
    pub tls_cert_file: Option<String>,
    /// Their private key in PEM form; there if and only if the certificates are.
    pub tls_key_file: Option<Secret>,
    /// Whether everything but health asks for a token that the API server accepts.
    pub authorization: bool,
}

/// Section `[traces]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traces {
    /// Where they are sent, with the path; `None` if there are none.
    pub endpoint: Option<String>,
    /// Of each request.
    pub headers: BTreeMap<String, Secret>,
    /// Above 0, at most 1.
    pub sample_ratio: f64,
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
    /// How many entries may be removed in one pass; more are withheld and reported.
    pub removal_limit: u32,
}
