//! What an account holds of network load balancers. Plain data with public fields.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::super::account::{Shared, Table};
use super::super::objects::{Pending, shown};

/// Network load balancers and what belongs to them.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// By id.
    pub balancers: Table<Shared<NetworkLoadBalancer>>,
    /// By id.
    pub groups: Table<Shared<ServerGroup>>,
    /// Ids of CA certificates.
    pub ca_certificates: BTreeSet<String>,
    /// Ids of bandwidth packages.
    pub bandwidth_packages: BTreeSet<String>,
    /// Ids of custom TLS policies.
    pub security_policies: BTreeSet<String>,
    pub(crate) jobs: Shared<BTreeMap<String, Job>>,
    /// When something that is being removed is gone, and the load balancer or server group that it is or belongs to.
    pub(crate) leaving: BTreeSet<(Instant, String)>,
}

/// Asynchronous work.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) until: Instant,
    pub(crate) fails: bool,
}

impl Job {
    pub(crate) fn status(&self) -> &'static str {
        match (self.until > Instant::now(), self.fails) {
            (true, _) => "Processing",
            (false, false) => "Succeeded",
            (false, true) => "Failed",
        }
    }
}

/// A network load balancer.
#[derive(Clone, Debug)]
pub struct NetworkLoadBalancer {
    /// Visible name.
    pub name: String,
    /// `Internet` or `Intranet`
    pub address_type: String,
    /// `Internet` or `Intranet`; empty without IPv6.
    pub ipv6_address_type: String,
    /// `ipv4` or `DualStack`
    pub ip_version: String,
    /// In this VPC.
    pub vpc: String,
    /// The name that clients use.
    pub dns: String,
    /// Empty if none.
    pub bandwidth_package: String,
    /// Whether traffic crosses zones.
    pub cross_zone: bool,
    /// Whether deletion is refused.
    pub deletion_protection: bool,
    /// Why.
    pub deletion_reason: String,
    /// `ConsoleProtection` or `NonProtection`
    pub modification_protection: String,
    /// Why.
    pub modification_reason: String,
    /// `rg-...`
    pub resource_group: String,
    /// In the order in which they joined.
    pub security_groups: Vec<String>,
    /// In the order in which they were given.
    pub zones: Vec<NetworkZone>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    /// By id.
    pub listeners: BTreeMap<String, NetworkListener>,
    /// `Active`, `Inactive` or `CreateFailed`; what is being done shows instead.
    pub status: String,
    pub(crate) pending: Option<Pending>,
}

/// Where a network load balancer stands in a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkZone {
    /// The zone.
    pub zone: String,
    /// In this vSwitch.
    pub vswitch: String,
    /// Its private address.
    pub private_ip: String,
    /// The elastic address of a user, empty if none.
    pub allocation_id: String,
    /// Its public address, empty if none.
    pub public_ip: String,
    /// Its IPv6 address, empty if none.
    pub ipv6: String,
}

impl NetworkLoadBalancer {
    /// What the API shows at the moment.
    #[must_use]
    pub fn shown_status(&self) -> &str {
        shown(self.pending, &self.status)
    }
}

/// A listener of a network load balancer.
#[derive(Clone, Debug, Default)]
pub struct NetworkListener {
    /// `TCP`, `UDP` or `TCPSSL`
    pub protocol: String,
    /// 0 for a range.
    pub port: u16,
    /// First and last port of a range.
    pub range: Option<(u16, u16)>,
    /// Text of the maker.
    pub description: String,
    /// `Running` or `Stopped`; what is being done shows instead.
    pub status: String,
    /// Id of its server group.
    pub group: String,
    /// Seconds.
    pub idle_timeout: i64,
    /// New connections in a second; `None` if never set.
    pub cps: Option<i64>,
    /// Largest segment, 0 to leave it.
    pub mss: i64,
    /// Whether the PROXY protocol is on.
    pub proxy_protocol: bool,
    /// Extra fields of the PROXY protocol.
    pub ppv2: BTreeMap<String, bool>,
    /// The server certificate.
    pub certificates: Vec<String>,
    /// Additional certificates.
    pub additional_certificates: Vec<String>,
    /// Whether clients need a certificate.
    pub ca_enabled: bool,
    /// The CA certificate.
    pub ca_certificates: Vec<String>,
    /// TLS policy.
    pub security_policy: String,
    /// Whether ALPN is on.
    pub alpn_enabled: bool,
    /// `HTTP1Only`, ...
    pub alpn_policy: String,
    /// Whether metrics come every second.
    pub sec_sensor: bool,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    pub(crate) pending: Option<Pending>,
}

impl NetworkListener {
    /// What the API shows at the moment.
    #[must_use]
    pub fn shown_status(&self) -> &str {
        shown(self.pending, &self.status)
    }

    /// First and last port.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        self.range.unwrap_or((self.port, self.port))
    }

    /// `80/TCP` or `80-400/TCP`
    #[must_use]
    pub fn key(&self) -> String {
        match self.range {
            Some((start, end)) => format!("{start}-{end}/{}", self.protocol),
            None => format!("{}/{}", self.port, self.protocol),
        }
    }
}

/// A server group of network load balancers.
#[derive(Clone, Debug)]
pub struct ServerGroup {
    /// Its name.
    pub name: String,
    /// `Instance` or `Ip`
    pub kind: String,
    /// `TCP`, `UDP`, `TCP_UDP` or `TCPSSL`
    pub protocol: String,
    /// `ipv4` or `DualStack`
    pub ip_version: String,
    /// `Affinity`, `NonAffinity` or empty.
    pub affinity_mode: String,
    /// In this VPC.
    pub vpc: String,
    /// In lower case, as in `wrr`.
    pub scheduler: String,
    /// Whether connections are drained.
    pub drain_enabled: bool,
    /// Seconds.
    pub drain_timeout: i64,
    /// Whether servers see the client's address.
    pub preserve_client_ip: bool,
    /// Whether listeners with port ranges may use it.
    pub any_port: bool,
    /// `rg-...`
    pub resource_group: String,
    /// The health check.
    pub health: HealthCheck,
    /// In the order of addition.
    pub servers: Vec<GroupServer>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    pub(crate) pending: Option<Pending>,
}

impl ServerGroup {
    /// What the API shows at the moment.
    #[must_use]
    pub fn shown_status(&self) -> &str {
        shown(self.pending, "Available")
    }
}

/// How servers of a group are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Whether they are.
    pub enabled: bool,
    /// `TCP`, `HTTP` or `UDP`
    pub kind: String,
    /// 0 for the server's port.
    pub connect_port: i64,
    /// Successes until healthy.
    pub healthy: i64,
    /// Failures until unhealthy.
    pub unhealthy: i64,
    /// Seconds.
    pub timeout: i64,
    /// Seconds.
    pub interval: i64,
    /// Of HTTP checks.
    pub domain: String,
    /// Of HTTP checks.
    pub url: String,
    /// `http_2xx`, ...
    pub codes: Vec<String>,
    /// `GET` or `HEAD`
    pub method: String,
    /// `HTTP1.0` or `HTTP1.1`; empty unless set.
    pub http_version: String,
    /// What UDP checks send.
    pub request: String,
    /// What UDP checks expect.
    pub expect: String,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            enabled: true,
            kind: "TCP".into(),
            connect_port: 0,
            healthy: 2,
            unhealthy: 2,
            timeout: 5,
            interval: 5,
            domain: String::new(),
            url: String::new(),
            codes: Vec::new(),
            method: String::new(),
            http_version: String::new(),
            request: String::new(),
            expect: String::new(),
        }
    }
}

/// A member of a server group of network load balancers.
#[derive(Clone, Debug)]
pub struct GroupServer {
    /// `i-...`, `eni-...` or an address.
    pub id: String,
    /// Its address.
    pub ip: String,
    /// `Ecs`, `Eni`, `Eci` or `Ip`
    pub kind: String,
    /// Its port.
    pub port: u16,
    /// 0 to 100
    pub weight: u8,
    /// Text of the maker.
    pub description: String,
    pub(crate) pending: Option<Pending>,
}

impl GroupServer {
    /// An instance with full weight.
    #[must_use]
    pub fn instance(id: &str, ip: &str, port: u16) -> Self {
        let [id, ip, kind] = [id, ip, "Ecs"].map(str::to_owned);
        Self { id, ip, kind, port, weight: 100, description: String::new(), pending: None }
    }

    /// What the API shows at the moment.
    #[must_use]
    pub fn shown_status(&self) -> &str {
        shown(self.pending, "Available")
    }
}

/// A security group.
#[derive(Clone, Debug, Default)]
pub struct SecurityGroup {
    /// Its name.
    pub name: String,
    /// `normal` or `enterprise`
    pub kind: String,
    /// In this VPC.
    pub vpc: String,
    /// Text of the maker.
    pub description: String,
    /// `rg-...`, empty unless given.
    pub resource_group: String,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    /// By id.
    pub rules: BTreeMap<String, SecurityRule>,
    /// Until then interfaces of a former load balancer hold it.
    pub(crate) held_until: Option<Instant>,
}

/// A rule of a security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityRule {
    /// `Accept` or `Drop`
    pub policy: String,
    /// `1` to `100`
    pub priority: String,
    /// `ALL`, `TCP`, ...
    pub protocol: String,
    /// Such as `-1/-1`.
    pub port_range: String,
    /// Source and whatever else tells it from other rules.
    pub fields: BTreeMap<String, String>,
    /// Text of the maker.
    pub description: String,
}

impl SecurityRule {
    /// Whether both say the same of the same traffic.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.policy, &self.protocol, &self.port_range, &self.fields)
            == (&other.policy, &other.protocol, &other.port_range, &other.fields)
    }
}
