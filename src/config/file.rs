//! What may be written: the sections and keys of the configuration file. The comments here are the manual: the reference
//! file and the JSON schema are made from them.
//!
//! A key is declared once: its type, its default, its limits, and an example where it has no default. `format` names a rule
//! for text in `formats`, and `formatMinimum` and `formatMaximum` limit lengths of time. A `pattern` is a rule for editors about
//! a text that has no format; it refuses nothing that `rules` accepts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{TimeSpan, time_span, time_span_or_never};
use crate::plan::loadbalancer::annotations::values::MOST_USER_TAGS;
use crate::plan::pvtz::RecordType;

/// Of hosts, perhaps with a scheme.
const HOST: &str = r"^(https?://)?[^\s/@?#]+/*$";
/// Levels in any case, alone or behind the part of the program that they are for.
const LEVELS: &str = r"^(\s*([Ee][Rr][Rr][Oo][Rr]|[Ww][Aa][Rr][Nn]|[Ii][Nn][Ff][Oo]|[Dd][Ee][Bb][Uu][Gg]|[Tt][Rr][Aa][Cc][Ee]|[Oo][Ff][Ff]|[^,]*[=\[][^,]*)\s*(,|$))+$";

/// Declares a section of the file: `key: Type ["format"] where rule(...) as "serde module" from "least" to "most" = default =>
/// example;`, with a rule of the schema. A key without a default has the default of its type.
macro_rules! section {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    ($(#[$section_attribute:meta])* $section:ident {
        $(
            $(#[$attribute:meta])*
            $key:ident: $type:ty $([$format:literal])? $(where $rule:ident $limits:tt)?
                $(as $module:literal $(from $least:literal to $most:literal)?)? $(= $default:expr)? $(=> $example:literal)?;
        )*
    }) => {
        // Some hold secrets.
        #[allow(missing_debug_implementations)]
        #[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        $(#[$section_attribute])*
        #[serde(default, deny_unknown_fields)]
        pub struct $section {
            $(
                $(#[$attribute])*
                $(#[schemars(extend("format" = $format))])?
                $(#[schemars($rule $limits)])?
                $(
                    #[serde(with = $module)]
                    #[schemars(with = "TimeSpan")]
                    $(#[schemars(extend("formatMinimum" = $least, "formatMaximum" = $most))])?
                )?
                $(#[schemars(extend("examples" = [$example]))])?
                pub $key: $type,
            )*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($key: section!(@default $($default)?),)* }
            }
        }
    };
}

section! {
    /// Configuration of alicloud-ccm. A key that is left out has its default; `cloud.cluster_id` is the only one that must be
    /// there.
    #[schemars(title = "alicloud-ccm")]
    FileConfig {
        /// Controllers that run. `*` stands for all, `-name` leaves one out. Leave `route` out if the pod network does not use
        /// VPC routes, as on OpenShift.
        controllers: Vec<String>;
        /// The place of the cluster in the cloud, and how the cloud is reached.
        cloud: CloudSection;
        /// How the API server is reached.
        kubernetes: Kubernetes;
        /// Leader election between replicas of this program.
        leader_election: LeaderElection;
        /// Health, metrics and configuration over HTTP.
        server: ServerSection;
        /// Logs, on standard error.
        log: Log;
        /// Traces of reconciles and of their calls, for an OpenTelemetry collector.
        traces: TracesSection;
        /// The node controller: initialises nodes, keeps addresses and labels in sync, removes nodes of released instances.
        node: Node;
        /// The route controller: keeps one VPC route entry for each pod CIDR.
        route: RouteSection;
        /// The service controller: keeps a classic load balancer (CLB) for each Service of type LoadBalancer.
        service: ServiceSection;
        /// The nlb controller: keeps a network load balancer (NLB) for each Service of type LoadBalancer whose class is
        /// `alibabacloud.com/nlb`. What `[service]` says of backends, IPv6, public addresses and the type annotation holds for
        /// it, too.
        nlb: NlbSection;
        /// The volume-labels controller: gives PersistentVolumes on cloud disks the labels of their zone and region, and a node
        /// affinity.
        volume_labels: VolumeLabels;
        /// The pvtz controller: keeps records for the names of Services in a zone of PrivateZone, so that machines of the VPC
        /// outside of the cluster resolve them.
        pvtz: Pvtz;
    }
}

section! {
    /// Section `[cloud]`.
    CloudSection {
        /// Marks everything that is made for this cluster; should differ between the clusters of an account, and must never
        /// change. Up to 64 letters, digits, `.`, `_` and `-`. A cluster that ran the official controller without
        /// `clusterID` has the id `clusterid`.
        cluster_id: Option<String> ["cluster-id"] => "change-me";
        /// Region of the cluster. Asked from the metadata service if absent.
        region: Option<String> ["region"] => "cn-hangzhou";
        /// VPC of the cluster. Asked from the metadata service if absent.
        vpc_id: Option<String> ["vpc-id"] => "vpc-bp1example";
        /// Zone of this instance. Asked from the metadata service if absent.
        zone_id: Option<String> ["zone"] => "cn-hangzhou-i";
        /// vSwitches for intranet load balancers, the preferred one first; `zone:vsw-...` states the zone, which saves a
        /// call. If empty, those in the zones with the most nodes, and finally the vSwitch of this instance.
        #[schemars(extend("items" = { "type": "string", "pattern": r"^([a-z0-9]+(-[a-z0-9]+)+:)?vsw-[A-Za-z0-9_-]+$" }))]
        vswitches: Vec<String>;
        /// Key of the tag that carries the cluster id on load balancers.
        cluster_tag: String ["tag-key"] = "ack.aliyun.com".to_owned();
        /// Resource group of new load balancers. The default group of the account if absent.
        resource_group_id: Option<String> ["resource-group-id"] => "rg-example";
        /// Share of the API quotas of the account that this program may use.
        budget_share: f64 where range(max = 1) = 0.5;
        /// Quotas of the account that differ from the published ones: calls a minute, 1 to 100000, by the name of the API
        /// action, which holds for every product that has it; `"*"` stands for every action that is not named.
        quotas: BTreeMap<String, u32>;
        /// Longest time that one call to the cloud may take.
        timeout: Duration as "time_span" from "1s" to "5m" = Duration::from_secs(20);
        /// Where credentials come from. The first of these that is there is used: a key pair in this section (with
        /// `role_arn` it assumes that role); an OIDC role in this section; the environment's
        /// `ALIBABA_CLOUD_ACCESS_KEY_ID` and `ALIBABA_CLOUD_ACCESS_KEY_SECRET` (and `ALIBABA_CLOUD_SECURITY_TOKEN`); the
        /// environment's `ACCESS_KEY_ID` and `ACCESS_KEY_SECRET`; the environment's `ALIBABA_CLOUD_ROLE_ARN`,
        /// `ALIBABA_CLOUD_OIDC_PROVIDER_ARN` and `ALIBABA_CLOUD_OIDC_TOKEN_FILE`; the RAM role of this instance.
        credentials: CredentialsSection;
        /// Which hosts are called.
        endpoints: Endpoints;
    }
}

section! {
    /// Section `[cloud.credentials]`. Has no `Debug`, because it holds secrets.
    CredentialsSection {
        /// Id of an access key.
        access_key_id: Option<String> => "LTAI-example";
        /// Secret of the access key. Better kept in a file of its own: `access_key_secret_file`.
        access_key_secret: Option<String> => "...";
        /// Token of a temporary access key.
        security_token: Option<String> => "...";
        /// File that holds the id of the access key. Relative to this file, as all paths here. Read again when it changes.
        access_key_id_file: Option<PathBuf> => "access-key-id";
        /// File that holds the secret of the access key. `credential:NAME`, here and for every other path, is what systemd
        /// keeps for the service under that name (`LoadCredential=`).
        access_key_secret_file: Option<PathBuf> => "access-key-secret";
        /// File that holds the token of a temporary access key.
        security_token_file: Option<PathBuf> => "security-token";
        /// Whether key files may be readable by group or others, as they are in a Secret mounted with Kubernetes' default
        /// mode.
        allow_readable_files: bool;
        /// RAM role to assume, with the key pair or with OIDC.
        role_arn: Option<String> ["role-arn"] => "acs:ram::1234567890123456:role/example";
        /// Name of the role's sessions, seen in the audit log: 2 to 64 letters, digits and `.@-_`.
        role_session_name: String ["session-name"] = "alicloud-ccm".to_owned();
        /// How long a session lasts before it is renewed: 15 minutes to 12 hours.
        duration: Duration as "time_span" from "15m" to "12h" = Duration::from_secs(60 * 60);
        /// External id, if the role's trust policy asks for one.
        external_id: Option<String> => "example";
        /// OIDC provider that `role_arn` trusts (RRSA).
        oidc_provider_arn: Option<String> ["oidc-provider-arn"] => "acs:ram::1234567890123456:oidc-provider/example";
        /// File that holds the OIDC token; read for every session.
        oidc_token_file: Option<PathBuf> => "/var/run/secrets/tokens/oidc-token";
        /// Name of the instance's RAM role. Asked from the metadata service if absent.
        instance_role: Option<String> ["name"] => "ccm";
    }
}

section! {
    /// Section `[cloud.endpoints]`.
    #[derive(Debug)]
    Endpoints {
        /// Which of the cloud's hosts are called. `public` is needed outside of Alibaba Cloud's networks.
        network: Network = Network::Vpc;
        /// `http` is for simulators and for gateways on trusted networks; it applies to all products. The environment's
        /// `ALICLOUD_CLIENT_SCHEME` says the same.
        scheme: Scheme = Scheme::Https;
        /// Host, or host and port, that is called for ECS instead; also the environment's `ECS_ENDPOINT`.
        ecs: Option<String> where extend("pattern" = HOST) => "ecs.cn-hangzhou.aliyuncs.com";
        /// The same for VPC; also `VPC_ENDPOINT`.
        vpc: Option<String> where extend("pattern" = HOST) => "vpc.cn-hangzhou.aliyuncs.com";
        /// The same for CLB; also `SLB_ENDPOINT`.
        slb: Option<String> where extend("pattern" = HOST) => "slb.cn-hangzhou.aliyuncs.com";
        /// The same for NLB; also `NLB_ENDPOINT`.
        nlb: Option<String> where extend("pattern" = HOST) => "nlb.cn-hangzhou.aliyuncs.com";
        /// The same for PrivateZone; one service for all regions.
        pvtz: Option<String> where extend("pattern" = HOST) => "pvtz.aliyuncs.com";
        /// The same for STS, which gives out sessions of roles.
        sts: Option<String> where extend("pattern" = HOST) => "sts.cn-hangzhou.aliyuncs.com";
        /// Base URL of the metadata service; also the environment's `METADATA_ENDPOINT`.
        metadata: String where extend("pattern" = r"^(https?://)?[^\s?#]+$") = "http://100.100.100.200".to_owned();
        /// Whether the metadata service may be read without a session token when it cannot give one.
        metadata_v1_fallback: bool = true;
    }
}

section! {
    /// Section `[kubernetes]`.
    #[derive(Debug)]
    Kubernetes {
        /// A kubeconfig. If absent: the environment's `KUBECONFIG`, then the service account of the pod, then
        /// `~/.kube/config`.
        kubeconfig: Option<PathBuf> => "/etc/kubernetes/cloud-controller-manager.conf";
        /// Context of the kubeconfig. Its current one if absent.
        context: Option<String> ["name"] => "admin@cluster";
        /// URL of the API server, instead of the kubeconfig's or the pod's.
        server: Option<String> where extend("pattern" = r"^https?://[^\s?#]+$") => "https://api-int.cluster.example:6443";
        /// Requests per second on average.
        qps: f64 where range(max = 10000) = 100.0;
        /// Requests at once.
        burst: u32 where range(min = 1, max = 10000) = 10000;
        /// Longest time that a request other than a watch may take.
        timeout: Duration as "time_span" from "1s" to "5m" = Duration::from_secs(30);
    }
}

section! {
    /// Section `[leader_election]`.
    #[derive(Debug)]
    LeaderElection {
        /// Whether one of several replicas leads. Without it only one replica may run.
        enabled: bool = true;
        /// Namespace of the lease. The default is the official controller's, so that the two never work at once.
        namespace: String ["namespace"] = "kube-system".to_owned();
        /// Name of the lease.
        name: String ["object-name"] = "ccm".to_owned();
        /// What is locked. `leases`: the lease, or an annotation of a ConfigMap of the same name where the API server has no
        /// leases (before 1.14). `endpointsleases`: an Endpoints object of the same name as well, so that releases of the official
        /// controller up to v1.9.3, which use no other lock, may run too and never lead at the same time.
        resource_lock: ResourceLock = ResourceLock::Leases;
        /// Name of this replica in the lease; a random part follows it. The host name if absent.
        identity: Option<String> ["name"] => "master-1";
        /// After this time without a renewal another replica may lead; whole seconds. With a `retry_period` of 2s at least 9s,
        /// so that between renewals there is time to write. OpenShift uses 137s, 107s and 26s.
        lease_duration: Duration as "time_span" from "1s" to "1h" = Duration::from_secs(15);
        /// A leader that could not renew for this time steps down. Shorter than `lease_duration`.
        renew_deadline: Duration as "time_span" = Duration::from_secs(10);
        /// Time between attempts to acquire or renew the lease. `renew_deadline` must be more than 1.2 times as long.
        retry_period: Duration as "time_span" from "100ms" to "1h" = Duration::from_secs(2);
    }
}

section! {
    /// Section `[server]`.
    #[derive(Debug)]
    ServerSection {
        /// Address to listen on. Without `authorization`, every client that reaches it may read what is served.
        address: IpAddr where extend("pattern" = r"^[0-9a-fA-F:.]+$") = IpAddr::V4(Ipv4Addr::LOCALHOST);
        /// Port to listen on; 0 switches the server off.
        port: u16 = 10258;
        /// PEM file with the certificate, and those that lead to its issuer. With it and its key, only TLS is spoken. A change
        /// of the file is seen like one of this file. With `authorization` and without these files, the program makes a
        /// certificate of its own at each start, which encrypts, and which clients cannot verify.
        tls_cert_file: Option<PathBuf> => "tls.crt";
        /// PEM file with the private key of the certificate. Only its owner may have the right to read it.
        tls_key_file: Option<PathBuf> => "tls.key";
        /// Whether everything but `/livez`, `/healthz` and `/readyz` requires a bearer token that the API server knows
        /// (TokenReview) and whose user may get the path (SubjectAccessReview, a nonResourceURL). Only TLS is spoken then. Without
        /// a token, `/readyz` says which checks fail, but not why.
        authorization: bool;
    }
}

section! {
    /// Section `[log]`.
    #[derive(Debug)]
    Log {
        /// How lines look.
        format: LogFormat = LogFormat::Text;
        /// `error`, `warn`, `info`, `debug` or `trace`; for parts of the program: `info,alicloud_ccm::alibaba=debug`.
        level: String where extend("pattern" = LEVELS) = "info".to_owned();
    }
}

section! {
    /// Section `[traces]`. Has no `Debug`, because it holds secrets.
    TracesSection {
        /// Base URL of the collector (OTLP over HTTP, in JSON), without its `/v1/traces`. Nothing is recorded without it.
        endpoint: Option<String> where extend("pattern" = r"^https?://[^\s?#]+$") => "http://127.0.0.1:4318";
        /// Headers of each request, by name, such as `authorization`. Their values are secrets; the environment can state
        /// them, as `ALICLOUD_CCM__TRACES__HEADERS__authorization`.
        headers: BTreeMap<String, String>;
        /// Share of the reconciles that are traced.
        sample_ratio: f64 where range(max = 1) = 1.0;
    }
}

section! {
    /// Section `[node]`.
    #[derive(Debug)]
    Node {
        /// Time between passes that keep addresses and labels in sync and find released instances; at least 10 seconds, or
        /// `0s` for none. Changes in the cluster are reconciled anyhow, and a node that is not ready every 5 minutes.
        #[schemars(extend("format" = "timespan-or-zero"))]
        period: Option<Duration> as "time_span_or_never" from "10s" to "24h" = Some(Duration::from_secs(5 * 60));
        /// Nodes in one call to the cloud.
        batch_size: usize where range(min = 1, max = 100) = 100;
        /// How long the first changed node waits for others to share a call with.
        aggregation: Duration as "time_span" from "0s" to "1m" = Duration::from_millis(300);
        /// Whether the source/destination check of the nodes' primary interfaces is switched off, which pod networks
        /// on VPC routes need.
        disable_source_dest_check: bool = true;
        /// Whether nodes of stopped instances get the taint `node.cloudprovider.kubernetes.io/shutdown`. In any case, a node
        /// loses it when its kubelet reports again.
        shutdown_taint: bool = true;
        /// Whether nodes of released instances are removed from the cluster.
        remove_released: bool = true;
        /// A node is removed only after its kubelet has not reported for this long.
        removal_grace: Duration as "time_span" from "10s" to "24h" = Duration::from_secs(60);
        /// Time between the two observations that must both show the instance as gone.
        removal_interval: Duration as "time_span" from "5s" to "1h" = Duration::from_secs(30);
        /// How many nodes may be removed within `removal_window`; more are reported and left.
        removal_limit: u32 where range(min = 1, max = 5000) = 10;
        /// The window of `removal_limit`.
        removal_window: Duration as "time_span" from "1m" to "24h" = Duration::from_secs(10 * 60);
        /// Whether IPv6 addresses are written to nodes.
        ipv6: bool;
        /// Whether the instance of a node without a providerID is found by address and name. Otherwise the kubelet must state it.
        discover: bool = true;
    }
}

section! {
    /// Section `[route]`.
    #[derive(Debug)]
    RouteSection {
        /// CIDRs of the pod network; route entries are made and removed only within them. If empty, the nodes' pod CIDRs are
        /// the bound.
        cluster_cidrs: Vec<String> where extend("items" = { "type": "string", "pattern": r"^[0-9a-fA-F:.]+/[0-9]{1,3}$" });
        /// Route tables that get the entries. Those of the VPC are found if empty; a VPC with several needs them stated. Entries
        /// in a table that is no longer stated stay, and `alicloud-ccm gc` lists them.
        table_ids: Vec<String> where extend("items" = { "type": "string", "format": "route-table-id" });
        /// Time between full comparisons with the route tables; at least 10 seconds, or `0s` for none.
        #[schemars(extend("format" = "timespan-or-zero"))]
        period: Option<Duration> as "time_span_or_never" from "10s" to "24h" = Some(Duration::from_secs(5 * 60));
        /// Entries made or removed in one call.
        batch_size: usize where range(min = 1, max = 50) = 50;
        /// How long the first changed node waits for others to share a call with.
        aggregation: Duration as "time_span" from "0s" to "1m" = Duration::from_secs(1);
        /// How many entries may be removed in one pass; more are reported and left.
        removal_limit: u32 where range(min = 1, max = 5000) = 50;
    }
}

section! {
    /// Section `[service]`.
    #[derive(Debug)]
    ServiceSection {
        /// Services worked on at once, and as many more that have a load balancer.
        concurrency: usize where range(min = 1, max = 64) = 20;
        /// Time between comparisons of all load balancers with the cloud, which undo changes made by others; `0s`
        /// switches them off.
        #[schemars(extend("format" = "timespan-or-zero"))]
        drift_check: Option<Duration> as "time_span_or_never" from "1m" to "24h" = Some(Duration::from_secs(10 * 60));
        /// How many calls an hour comparisons may take for what no list shows: server groups and their members. Few load
        /// balancers are compared whole at each check, of many some in turn. A load balancer takes one call, and one more for
        /// each server group. Classic and network load balancers have so many calls each.
        drift_reads: u32 where range(min = 1, max = 100_000) = 60;
        /// Whether pods are attached directly where no annotation says otherwise. Needs a pod network on elastic network
        /// interfaces.
        eni_backends: bool;
        /// Whether load balancers with a public address are refused.
        disable_public: bool;
        /// Backends of a classic load balancer added or removed in one call. Of network load balancers, it is 200.
        backend_batch_size: usize where range(min = 1, max = 40) = 40;
        /// Whether nodes with the label `node-role.kubernetes.io/master` are left out of load balancers, as the official
        /// controller does.
        exclude_masters: bool = true;
        /// Whether listeners of Services with `externalTrafficPolicy: Local` check by HTTP, at the Service's
        /// `healthCheckNodePort`, whether a node has ready pods, where no annotation says what to check.
        local_health_check: bool;
        /// Whether load balancers may have an IPv6 address.
        ipv6: bool;
        /// Whether the annotation `...-loadbalancer-type` chooses the kind of load balancer.
        type_annotation: bool;
        /// How long a load balancer that one of the other kind has replaced still serves clients that have not noticed the new
        /// address, before it is removed.
        hand_over_grace: Duration as "time_span" from "1s" to "24h" = Duration::from_secs(5 * 60);
        /// Defaults of new load balancers, for what no annotation states.
        defaults: ServiceDefaultsSection;
    }
}

section! {
    /// Section `[service.defaults]`.
    #[derive(Debug)]
    ServiceDefaultsSection {
        /// Whether the address is public.
        address_type: AddressType = AddressType::Internet;
        /// How the instance is charged: by use, or by a fixed size.
        instance_charge_type: InstanceChargeType = InstanceChargeType::PayByClcu;
        /// Size of the instance; used with `PayBySpec`.
        spec: String ["specification"] = "slb.s1.small".to_owned();
        /// How public traffic is paid for. The cloud's own default, by traffic, if absent.
        internet_charge_type: Option<InternetChargeType> => "paybybandwidth";
        /// Mbit/s; used with `paybybandwidth`.
        bandwidth: Option<i64> where range(min = 1, max = 5120) => 100;
        /// Primary zone. If absent, load balancers with a public address are made where most nodes are, and others where their
        /// vSwitch is.
        master_zone: Option<String> ["zone"] => "cn-hangzhou-i";
        /// Secondary zone.
        slave_zone: Option<String> ["zone"] => "cn-hangzhou-h";
        /// Whether the cloud's console refuses to delete the load balancers.
        delete_protection: bool = true;
        /// Whether the cloud's console refuses to change the load balancers.
        modification_protection: bool = true;
        /// How listeners choose a backend.
        scheduler: SchedulerName = SchedulerName::Rr;
        /// Tags of every load balancer that is made; at most 18.
        tags: BTreeMap<String, String> where extend("maxProperties" = MOST_USER_TAGS);
    }
}

section! {
    /// Section `[nlb]`.
    #[derive(Debug)]
    NlbSection {
        /// Services worked on at once, and as many more that have a load balancer.
        concurrency: usize where range(min = 1, max = 64) = 20;
        /// Time between comparisons of all network load balancers with the cloud, which undo changes made by others; `0s`
        /// switches them off. Backends, additional certificates and rules of security groups, which no list shows, are read in
        /// turn: `service.drift_reads` says how often.
        #[schemars(extend("format" = "timespan-or-zero"))]
        drift_check: Option<Duration> as "time_span_or_never" from "1m" to "24h" = Some(Duration::from_secs(10 * 60));
        /// Defaults of network load balancers, for what no annotation states.
        defaults: NlbDefaultsSection;
    }
}

section! {
    /// Section `[nlb.defaults]`.
    #[derive(Debug)]
    NlbDefaultsSection {
        /// Whether the address is public.
        address_type: AddressType = AddressType::Internet;
        /// Whether the cloud's console refuses to delete the load balancers.
        delete_protection: bool = true;
        /// Whether the cloud's console refuses to change the load balancers.
        modification_protection: bool = true;
        /// Tags of every load balancer that is made; at most 18.
        tags: BTreeMap<String, String> where extend("maxProperties" = MOST_USER_TAGS);
    }
}

section! {
    /// Section `[volume_labels]`.
    #[derive(Debug)]
    VolumeLabels {
        /// Whether volumes without a node affinity get one, on Kubernetes 1.12 and newer. It limits pods to nodes that can attach
        /// the disk, as the labels do, and can never be changed.
        node_affinity: bool = true;
    }
}

section! {
    /// Section `[pvtz]`.
    #[derive(Debug)]
    Pvtz {
        /// Id of the zone that gets the records. It must exist, and be bound to the VPC of the cluster. The controller needs
        /// either this or `zone_name`; with neither, `*` in `controllers` leaves it out. Records in a zone that was stated before
        /// stay, and `alicloud-ccm gc` lists them.
        zone_id: Option<String> ["name"] => "5f1e0c5d2b7a4c6e8d9f0a1b2c3d4e5f";
        /// Name of the zone, which is looked for among the zones that are bound to the VPC of the cluster.
        zone_name: Option<String> ["object-name"] => "cluster.example";
        /// How long resolvers may remember a record, in seconds: 5, 30, 60, 3600, 43200 or 86400.
        ttl: u32 = 60;
        /// Types of records that are written: `A`, `AAAA`, `CNAME`, `SRV` and `PTR`.
        record_types: Vec<RecordType> = RecordType::ALL.to_vec();
        /// Namespaces whose Services get records; all if empty.
        namespaces: Vec<String> where extend("items" = { "type": "string", "format": "namespace" });
        /// Whether nodes get records for their internal addresses, as `NODE.node`.
        nodes: bool = false;
        /// Time between full comparisons with the zone, which undo changes made by others; at least 1 minute, or `0s` for
        /// none. A comparison takes one call, and one for each 100 records of the zone.
        #[schemars(extend("format" = "timespan-or-zero"))]
        period: Option<Duration> as "time_span_or_never" from "1m" to "24h" = Some(Duration::from_secs(10 * 60));
        /// How long the first changed Service waits for others to share a comparison with.
        aggregation: Duration as "time_span" from "0s" to "1m" = Duration::from_secs(1);
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
pub enum LogFormat {
    /// For people; in colour on a terminal, unless `NO_COLOR` is set.
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
