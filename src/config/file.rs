//! What may be written: the sections and keys of the configuration file. The comments here are the manual: the reference
//! file and the JSON schema are made from them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::catalog::Catalog;
use super::values::TimeSpan;

/// Configuration of alicloud-ccm. A key that is left out has its default; `cloud.cluster_id` is the only one that must be
/// there.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "alicloud-ccm")]
pub struct FileConfig {
    /// Controllers that run. `*` stands for all, `-name` leaves one out. Leave `route` out if the pod network does not use
    /// VPC routes, as on OpenShift.
    pub controllers: Vec<String>,
    /// Where in the cloud the cluster lives, and how the cloud is reached.
    pub cloud: CloudSection,
    /// How the API server is reached.
    pub kubernetes: KubernetesSection,
    /// Leader election between copies of this program.
    pub leader_election: LeaderElectionSection,
    /// Health, metrics and configuration over HTTP.
    pub server: ServerSection,
    /// Logs, on standard error.
    pub log: LogSection,
    /// The node controller: initialises nodes, keeps addresses and labels true, removes nodes of released instances.
    pub node: NodeSection,
    /// The route controller: keeps one VPC route entry for each pod CIDR.
    pub route: RouteSection,
    /// The service controller: keeps a classic load balancer (CLB) for each Service of type LoadBalancer.
    pub service: ServiceSection,
}

impl Default for FileConfig {
    fn default() -> Self {
        Self {
            controllers: vec!["*".to_owned()],
            cloud: CloudSection::default(),
            kubernetes: KubernetesSection::default(),
            leader_election: LeaderElectionSection::default(),
            server: ServerSection::default(),
            log: LogSection::default(),
            node: NodeSection::default(),
            route: RouteSection::default(),
            service: ServiceSection::default(),
        }
    }
}

/// Section `[cloud]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CloudSection {
    /// Marks everything that is made for this cluster; must differ between the clusters of an account, and must never
    /// change. Up to 64 letters, digits, `.`, `_` and `-`. A cluster that ran the official controller without
    /// `clusterID` has the id `clusterid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Region of the cluster. Asked from the metadata service if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// VPC of the cluster. Asked from the metadata service if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_id: Option<String>,
    /// Zone of this instance. Asked from the metadata service if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
    /// vSwitches for intranet load balancers, the preferred one first; `zone:vsw-...` states the zone, which saves a
    /// call. If empty, those in the zones with the most nodes, and at last the vSwitch of this instance.
    pub vswitches: Vec<String>,
    /// Key of the tag that carries the cluster id on load balancers.
    pub cluster_tag: String,
    /// Resource group of new load balancers. The default group of the account if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_group_id: Option<String>,
    /// Share of the API quotas of the account that this program may use.
    #[schemars(range(max = 1))]
    pub budget_share: f64,
    /// Quotas of the account that differ from the published ones: calls a minute, 1 to 100000, by the name of the API
    /// action; `"*"` stands for every action that is not named.
    pub quotas: BTreeMap<String, u32>,
    /// Longest time that one call to the cloud may take.
    pub timeout: TimeSpan,
    /// Where credentials come from. The first of these that is there is used: a key pair in this section (with
    /// `role_arn` it assumes that role); an OIDC role in this section; the environment's
    /// `ALIBABA_CLOUD_ACCESS_KEY_ID` and `ALIBABA_CLOUD_ACCESS_KEY_SECRET` (and `ALIBABA_CLOUD_SECURITY_TOKEN`); the
    /// environment's `ACCESS_KEY_ID` and `ACCESS_KEY_SECRET`; the environment's `ALIBABA_CLOUD_ROLE_ARN`,
    /// `ALIBABA_CLOUD_OIDC_PROVIDER_ARN` and `ALIBABA_CLOUD_OIDC_TOKEN_FILE`; the RAM role of this instance.
    pub credentials: CredentialsSection,
    /// Which hosts are called.
    pub endpoints: EndpointsSection,
}

impl Default for CloudSection {
    fn default() -> Self {
        Self {
            cluster_id: None,
            region: None,
            vpc_id: None,
            zone_id: None,
            vswitches: Vec::new(),
            cluster_tag: "ack.aliyun.com".to_owned(),
            resource_group_id: None,
            budget_share: 0.5,
            quotas: BTreeMap::new(),
            timeout: TimeSpan::from_secs(20),
            credentials: CredentialsSection::default(),
            endpoints: EndpointsSection::default(),
        }
    }
}

/// Section `[cloud.credentials]`. Has no `Debug`, because it holds secrets.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CredentialsSection {
    /// Id of an access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key_id: Option<String>,
    /// Secret of the access key. Better kept in a file of its own: `access_key_secret_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key_secret: Option<String>,
    /// Token of a temporary access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_token: Option<String>,
    /// File that holds the id of the access key. Relative to this file, as all paths here. Read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key_id_file: Option<PathBuf>,
    /// File that holds the secret of the access key. `credential:NAME`, here and for every other path, is what systemd
    /// keeps for the service under that name (`LoadCredential=`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key_secret_file: Option<PathBuf>,
    /// File that holds the token of a temporary access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_token_file: Option<PathBuf>,
    /// Whether key files may be readable by group or others, as they are in a Secret mounted with Kubernetes' default
    /// mode.
    pub allow_readable_files: bool,
    /// RAM role to assume, with the key pair or with OIDC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
    /// Name of the role's sessions, seen in the audit log: 2 to 64 letters, digits and `.@-_`.
    pub role_session_name: String,
    /// How long a session lasts before it is renewed: 15 minutes to 12 hours.
    pub duration: TimeSpan,
    /// External id, if the role's trust policy asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// OIDC provider that `role_arn` trusts (RRSA).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_provider_arn: Option<String>,
    /// File that holds the OIDC token; read for every session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_token_file: Option<PathBuf>,
    /// Name of the instance's RAM role. Asked from the metadata service if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_role: Option<String>,
}

impl std::fmt::Debug for CredentialsSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialsSection").finish_non_exhaustive()
    }
}

impl Default for CredentialsSection {
    fn default() -> Self {
        Self {
            access_key_id: None,
            access_key_secret: None,
            security_token: None,
            access_key_id_file: None,
            access_key_secret_file: None,
            security_token_file: None,
            allow_readable_files: false,
            role_arn: None,
            role_session_name: "alicloud-ccm".to_owned(),
            duration: TimeSpan::from_mins(60),
            external_id: None,
            oidc_provider_arn: None,
            oidc_token_file: None,
            instance_role: None,
        }
    }
}

/// Section `[cloud.endpoints]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointsSection {
    /// Which of the cloud's hosts are called. `public` is needed outside of Alibaba Cloud's networks.
    pub network: Network,
    /// `http` is for simulators and for gateways on trusted networks; it applies to all products. The environment's
    /// `ALICLOUD_CLIENT_SCHEME` says the same.
    pub scheme: Scheme,
    /// Host, or host and port, that is called for ECS instead; also the environment's `ECS_ENDPOINT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecs: Option<String>,
    /// The same for VPC; also `VPC_ENDPOINT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// The same for CLB; also `SLB_ENDPOINT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slb: Option<String>,
    /// The same for STS, which gives out sessions of roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sts: Option<String>,
    /// Base URL of the metadata service; also the environment's `METADATA_ENDPOINT`.
    pub metadata: String,
    /// Whether the metadata service may be read without a session token when it cannot give one.
    pub metadata_v1_fallback: bool,
}

impl Default for EndpointsSection {
    fn default() -> Self {
        Self {
            network: Network::Vpc,
            scheme: Scheme::Https,
            ecs: None,
            vpc: None,
            slb: None,
            sts: None,
            metadata: "http://100.100.100.200".to_owned(),
            metadata_v1_fallback: true,
        }
    }
}

/// Section `[kubernetes]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSection {
    /// A kubeconfig. If absent: the environment's `KUBECONFIG`, then the service account of the pod, then
    /// `~/.kube/config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Its current one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// URL of the API server, instead of the kubeconfig's or the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Requests per second on average.
    #[schemars(range(max = 10000))]
    pub qps: f64,
    /// Requests at once.
    #[schemars(range(min = 1, max = 10000))]
    pub burst: u32,
    /// Longest time that a request other than a watch may take.
    pub timeout: TimeSpan,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            server: None,
            qps: 100.0,
            burst: 10000,
            timeout: TimeSpan::from_secs(30),
        }
    }
}

/// Section `[leader_election]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaderElectionSection {
    /// Whether copies take turns. Without it only one copy may run.
    pub enabled: bool,
    /// Namespace of the lease. The default is the official controller's, so that the two never work at once.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// What is locked. `leases`: the lease, or an annotation of a ConfigMap of the same name where the API server has no
    /// leases (before 1.14). `endpointsleases`: an Endpoints object of the same name as well, so that releases of the official
    /// controller up to v1.9.3, which know nothing else, may run too and never lead at the same time.
    pub resource_lock: ResourceLock,
    /// Name of this replica in the lease; a random part follows it. The host name if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// After this time without a renewal another copy may lead; whole seconds. With a `retry_period` of 2s at least 9s,
    /// so that between renewals there is time to write. OpenShift uses 137s, 107s and 26s.
    pub lease_duration: TimeSpan,
    /// A leader that could not renew for this time steps down. Shorter than `lease_duration`.
    pub renew_deadline: TimeSpan,
    /// Time between tries. `renew_deadline` must be more than 1.2 times as long.
    pub retry_period: TimeSpan,
}

impl Default for LeaderElectionSection {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: "kube-system".to_owned(),
            name: "ccm".to_owned(),
            resource_lock: ResourceLock::Leases,
            identity: None,
            lease_duration: TimeSpan::from_secs(15),
            renew_deadline: TimeSpan::from_secs(10),
            retry_period: TimeSpan::from_secs(2),
        }
    }
}

/// Section `[server]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSection {
    /// Address to listen on. Without the keys below, what is served is neither encrypted nor authenticated.
    pub address: IpAddr,
    /// Port to listen on; 0 switches the server off.
    pub port: u16,
    /// PEM file with the certificate, and those that lead to its issuer. With it and its key, only TLS is spoken. A change
    /// of the file is seen like one of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate, which nobody else may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key_file: Option<PathBuf>,
    /// Whether everything but `/livez`, `/healthz` and `/readyz` asks for a bearer token that the API server knows
    /// (TokenReview), of somebody who may get the path (SubjectAccessReview, a nonResourceURL). Without one, `/readyz` says
    /// which checks fail, but not why.
    pub authorization: bool,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 10258,
            tls_cert_file: None,
            tls_key_file: None,
            authorization: false,
        }
    }
}

/// Section `[log]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// How lines look.
    pub format: LogFormatName,
    /// `error`, `warn`, `info`, `debug` or `trace`; for parts of the program: `info,alicloud_ccm::alibaba=debug`.
    pub level: String,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { format: LogFormatName::Text, level: "info".to_owned() }
    }
}

/// Section `[node]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSection {
    /// Time between passes that keep addresses and labels true and look for released instances; at least 10 seconds, or
    /// `0s` for none. What changes in the cluster is looked at anyhow, and a node that is not ready every 5 minutes.
    pub period: TimeSpan,
    /// Nodes asked about in one call.
    #[schemars(range(min = 1, max = 100))]
    pub batch_size: usize,
    /// How long the first changed node waits for others to share a call with.
    pub aggregation: TimeSpan,
    /// Whether the source/destination check of the nodes' primary interfaces is switched off, which pod networks
    /// on VPC routes need.
    pub disable_source_dest_check: bool,
    /// Whether nodes of stopped instances get the taint `node.cloudprovider.kubernetes.io/shutdown`.
    pub shutdown_taint: bool,
    /// Whether nodes of released instances are removed from the cluster.
    pub remove_released: bool,
    /// A node is removed only after it was not ready for this long.
    pub removal_grace: TimeSpan,
    /// Time between the two looks that must both find the instance gone.
    pub removal_interval: TimeSpan,
    /// How many nodes may be removed within `removal_window`; more are reported and left.
    #[schemars(range(min = 1, max = 5000))]
    pub removal_limit: u32,
    /// The window of `removal_limit`.
    pub removal_window: TimeSpan,
    /// Whether IPv6 addresses are written to nodes.
    pub ipv6: bool,
    /// Whether nodes without a providerID are looked for by address and name. Otherwise the kubelet must state it.
    pub discover: bool,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self {
            period: TimeSpan::from_mins(5),
            batch_size: 100,
            aggregation: TimeSpan::from_millis(300),
            disable_source_dest_check: true,
            shutdown_taint: true,
            remove_released: true,
            removal_grace: TimeSpan::from_mins(1),
            removal_interval: TimeSpan::from_secs(30),
            removal_limit: 10,
            removal_window: TimeSpan::from_mins(10),
            ipv6: false,
            discover: true,
        }
    }
}

/// Section `[route]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteSection {
    /// CIDRs of the pod network; route entries are made and removed only within them. If empty, the nodes' pod CIDRs are
    /// the bound.
    pub cluster_cidrs: Vec<String>,
    /// Route tables that get the entries. Those of the VPC are found if empty; a VPC with several needs them stated.
    pub table_ids: Vec<String>,
    /// Time between full comparisons with the route tables; at least 10 seconds, or `0s` for none.
    pub period: TimeSpan,
    /// Entries made or removed in one call.
    #[schemars(range(min = 1, max = 50))]
    pub batch_size: usize,
    /// How long the first changed node waits for others to share a call with.
    pub aggregation: TimeSpan,
    /// How many entries may be removed in one pass; more are reported and left.
    #[schemars(range(min = 1, max = 5000))]
    pub removal_limit: u32,
}

impl Default for RouteSection {
    fn default() -> Self {
        Self {
            cluster_cidrs: Vec::new(),
            table_ids: Vec::new(),
            period: TimeSpan::from_mins(5),
            batch_size: 50,
            aggregation: TimeSpan::from_secs(1),
            removal_limit: 50,
        }
    }
}

/// Section `[service]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSection {
    /// Services worked on at once.
    #[schemars(range(min = 1, max = 64))]
    pub concurrency: usize,
    /// Time between comparisons of all load balancers with the cloud, which undo changes made by others; `0s`
    /// switches them off.
    pub drift_check: TimeSpan,
    /// How many calls an hour comparisons may take for what no list shows: server groups and their members. Few load
    /// balancers are compared whole at each check, of many some in turn. A load balancer takes one call, and one more for
    /// each server group.
    #[schemars(range(min = 1, max = 100_000))]
    pub drift_reads: u32,
    /// Whether pods are attached directly where no annotation says otherwise. Needs a pod network on elastic network
    /// interfaces.
    pub eni_backends: bool,
    /// Whether load balancers with a public address are refused.
    pub disable_public: bool,
    /// Backends added or removed in one call.
    #[schemars(range(min = 1, max = 40))]
    pub backend_batch_size: usize,
    /// Whether nodes with the label `node-role.kubernetes.io/master` are left out of load balancers, as the official
    /// controller does.
    pub exclude_masters: bool,
    /// Whether listeners of Services with `externalTrafficPolicy: Local` check by HTTP, at the Service's
    /// `healthCheckNodePort`, whether a node has ready pods, where no annotation says what to check.
    pub local_health_check: bool,
    /// Whether load balancers may have an IPv6 address.
    pub ipv6: bool,
    /// Whether the annotation `...-loadbalancer-type` chooses the kind of load balancer.
    pub type_annotation: bool,
    /// What holds for new load balancers where no annotation speaks.
    pub defaults: ServiceDefaultsSection,
}

impl Default for ServiceSection {
    fn default() -> Self {
        Self {
            concurrency: 20,
            drift_check: TimeSpan::from_mins(10),
            drift_reads: 60,
            eni_backends: false,
            disable_public: false,
            backend_batch_size: 40,
            exclude_masters: true,
            local_health_check: false,
            ipv6: false,
            type_annotation: false,
            defaults: ServiceDefaultsSection::default(),
        }
    }
}

/// Section `[service.defaults]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceDefaultsSection {
    /// Whether the address is public.
    pub address_type: AddressType,
    /// What is paid for: what is used, or an instance of a fixed size.
    pub instance_charge_type: InstanceChargeType,
    /// Size of the instance; used with `PayBySpec`.
    pub spec: String,
    /// How public traffic is paid for. The cloud's own default, by traffic, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internet_charge_type: Option<InternetChargeType>,
    /// Mbit/s; used with `paybybandwidth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<i64>,
    /// Primary zone. If absent, load balancers with a public address are made where most nodes are, and others where their
    /// vSwitch is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_zone: Option<String>,
    /// Secondary zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slave_zone: Option<String>,
    /// Whether the cloud's console refuses to delete the load balancers.
    pub delete_protection: bool,
    /// Whether the cloud's console refuses to change the load balancers.
    pub modification_protection: bool,
    /// How listeners choose a backend.
    pub scheduler: SchedulerName,
    /// Tags of every load balancer that is made; at most 18.
    pub tags: BTreeMap<String, String>,
}

impl Default for ServiceDefaultsSection {
    fn default() -> Self {
        Self {
            address_type: AddressType::Internet,
            instance_charge_type: InstanceChargeType::PayByClcu,
            spec: "slb.s1.small".to_owned(),
            internet_charge_type: None,
            bandwidth: None,
            master_zone: None,
            slave_zone: None,
            delete_protection: true,
            modification_protection: true,
            scheduler: SchedulerName::Rr,
            tags: BTreeMap::new(),
        }
    }
}

/// Which of the cloud's hosts are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Those inside a VPC.
    Vpc,
    /// Those on the internet.
    Public,
}

/// How hosts are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Encrypted.
    Https,
    /// Plain.
    Http,
}

/// What the leader election locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResourceLock {
    /// The lease.
    Leases,
    /// An Endpoints object as well.
    EndpointsLeases,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormatName {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Whether an address is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressType {
    /// Public.
    Internet,
    /// In the VPC only.
    Intranet,
}

/// What is paid for a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceChargeType {
    /// What is used.
    #[serde(rename = "PayByCLCU")]
    PayByClcu,
    /// The size of the instance.
    PayBySpec,
}

/// How public traffic is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InternetChargeType {
    /// By the amount.
    PayByTraffic,
    /// By the largest rate.
    PayByBandwidth,
}

/// How listeners choose a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerName {
    /// In turn.
    Rr,
    /// In turn, by weight.
    Wrr,
    /// The least connections, by weight.
    Wlc,
    /// By a hash of the client's address; UDP and TCP only, others take turns.
    Sch,
    /// By a hash of addresses and ports; UDP and TCP only, others take turns.
    Tch,
    /// By a hash of the QUIC connection; UDP only, others take turns.
    Qch,
}

/// The defaults, with an example for every key that has none; what the reference file shows.
#[must_use]
pub fn example(catalog: &Catalog) -> FileConfig {
    let text = |text: &str| Some(text.to_owned());
    let path = |path: &str| Some(PathBuf::from(path));
    let controllers = catalog.controllers.iter().map(|entry| entry.name.to_string()).collect();
    let mut config = FileConfig { controllers, ..FileConfig::default() };
    let cloud = &mut config.cloud;
    cloud.cluster_id = text("my-cluster");
    cloud.region = text("cn-hangzhou");
    cloud.vpc_id = text("vpc-bp1example");
    cloud.zone_id = text("cn-hangzhou-i");
    cloud.resource_group_id = text("rg-example");
    cloud.quotas = BTreeMap::from([(catalog.example_action.to_owned(), 120)]);
    cloud.credentials = CredentialsSection {
        access_key_id: text("LTAI-example"),
        access_key_secret: text("..."),
        security_token: text("..."),
        access_key_id_file: path("access-key-id"),
        access_key_secret_file: path("access-key-secret"),
        security_token_file: path("security-token"),
        role_arn: text("acs:ram::1234567890123456:role/ccm"),
        external_id: text("example"),
        oidc_provider_arn: text("acs:ram::1234567890123456:oidc-provider/example"),
        oidc_token_file: path("/var/run/secrets/tokens/oidc-token"),
        instance_role: text("ccm"),
        ..CredentialsSection::default()
    };
    let endpoints = &mut cloud.endpoints;
    for (host, example) in [
        (&mut endpoints.ecs, "ecs.cn-hangzhou.aliyuncs.com"),
        (&mut endpoints.vpc, "vpc.cn-hangzhou.aliyuncs.com"),
        (&mut endpoints.slb, "slb.cn-hangzhou.aliyuncs.com"),
        (&mut endpoints.sts, "sts.cn-hangzhou.aliyuncs.com"),
    ] {
        *host = text(example);
    }
    config.kubernetes.kubeconfig = path("/etc/kubernetes/cloud-controller-manager.conf");
    config.kubernetes.context = text("admin@cluster");
    config.kubernetes.server = text("https://api-int.cluster.example:6443");
    config.server.tls_cert_file = path("tls.crt");
    config.server.tls_key_file = path("tls.key");
    config.leader_election.identity = text("master-1");
    let defaults = &mut config.service.defaults;
    defaults.tags = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    defaults.internet_charge_type = Some(InternetChargeType::PayByBandwidth);
    defaults.bandwidth = Some(100);
    defaults.master_zone = text("cn-hangzhou-i");
    defaults.slave_zone = text("cn-hangzhou-h");
    config
}
