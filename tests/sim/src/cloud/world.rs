//! What the simulated cloud holds. Plain data with public fields: tests set it up, look at it and change it while running.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

/// The access key that [`World::new`] knows.
pub const KEY_ID: &str = "LTAI5tSimulatedCloud";
/// The secret of [`KEY_ID`].
pub const KEY_SECRET: &str = "simulated-secret";

/// The whole cloud of one account in one region.
#[derive(Clone, Debug)]
pub struct World {
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// Regions that exist but hold nothing.
    pub other_regions: BTreeSet<String>,
    /// Zones of the region; load balancers take the first two by default.
    pub zones: Vec<String>,
    /// Account id.
    pub account: String,
    /// By id.
    pub vpcs: BTreeMap<String, Vpc>,
    /// By id.
    pub vswitches: BTreeMap<String, VSwitch>,
    /// By id.
    pub route_tables: BTreeMap<String, RouteTable>,
    /// By id.
    pub instances: BTreeMap<String, Instance>,
    /// By id.
    pub interfaces: BTreeMap<String, Interface>,
    /// By allocation id.
    pub eips: BTreeMap<String, Eip>,
    /// Server certificates of CLB, by id.
    pub certificates: BTreeMap<String, Certificate>,
    /// Access control lists of CLB, by id.
    pub acls: BTreeMap<String, Acl>,
    /// By id.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// Access keys, by id.
    pub keys: BTreeMap<String, AccessKey>,
    /// RAM roles, by name.
    pub roles: BTreeMap<String, Role>,
    /// The service account token that `AssumeRoleWithOIDC` accepts.
    pub oidc_token: Option<String>,
    /// What the metadata service says.
    pub metadata: Metadata,
    /// Zones in which no load balancer can be made any more.
    pub sold_out_zones: BTreeSet<String>,
    /// Account quotas.
    pub limits: Limits,
    /// How slow and how busy the cloud is.
    pub dials: Dials,
    pub(crate) tokens: BTreeMap<String, TokenUse>,
    pub(crate) counter: u64,
}

/// Account quotas.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Custom entries per route table.
    pub routes_per_table: usize,
    /// Load balancers of the account.
    pub load_balancers: usize,
    /// Listeners per load balancer.
    pub listeners: usize,
    /// vServer groups per load balancer.
    pub groups: usize,
    /// Backends over all groups of a load balancer.
    pub backends: usize,
    /// Backends in one call.
    pub backends_per_call: usize,
    /// Domain extensions per listener.
    pub domain_extensions: usize,
}

/// How slow and how busy the cloud is; everything is off by default.
#[derive(Clone, Debug, Default)]
pub struct Dials {
    /// Every call takes this long before it has its effect.
    pub latency: Duration,
    /// Single actions take this long instead.
    pub action_latency: BTreeMap<String, Duration>,
    /// After each write a load balancer refuses further writes for this long.
    pub load_balancer_busy: Duration,
    /// A started listener stays in `starting` for this long.
    pub listener_start: Duration,
    /// A route stays `Pending` for this long, and no other route of its VPC can be written.
    pub route_pending: Duration,
    /// Whether calls beyond the per-action rate get `Throttling.User`.
    pub rate_quotas: bool,
    /// Replaces published rates: calls per 60 seconds by action.
    pub rates: BTreeMap<String, u32>,
}

/// A VPC.
#[derive(Clone, Debug)]
pub struct Vpc {
    /// Display name.
    pub name: String,
    /// Primary range.
    pub cidr: String,
    /// Secondary IPv4 ranges.
    pub secondary_cidrs: Vec<String>,
    /// IPv6 range, empty if none.
    pub ipv6_cidr: String,
    pub(crate) busy_until: Option<Instant>,
    pub(crate) writers: usize,
}

/// A vSwitch.
#[derive(Clone, Debug)]
pub struct VSwitch {
    /// Display name.
    pub name: String,
    /// In this VPC.
    pub vpc: String,
    /// In this zone.
    pub zone: String,
    /// Its range.
    pub cidr: String,
    /// Free addresses.
    pub available_ips: u64,
}

/// A route table.
#[derive(Clone, Debug)]
pub struct RouteTable {
    /// Display name.
    pub name: String,
    /// In this VPC.
    pub vpc: String,
    /// `System` or `Custom`
    pub kind: String,
    /// Custom and system entries by destination.
    pub entries: BTreeMap<String, RouteEntry>,
}

/// An entry of a route table.
#[derive(Clone, Debug)]
pub struct RouteEntry {
    /// `rte-...`
    pub id: String,
    /// `System` or `Custom`
    pub kind: String,
    /// `Instance`, `NetworkInterface`, ...
    pub next_hop_type: String,
    /// Id of the next hop; several make an ECMP route.
    pub next_hops: Vec<String>,
    /// Name given by the maker.
    pub name: String,
    /// Description given by the maker.
    pub description: String,
    pub(crate) pending_until: Option<Instant>,
}

/// An ECS instance.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Display name.
    pub name: String,
    /// Host name.
    pub host_name: String,
    /// Such as `ecs.g7.large`.
    pub instance_type: String,
    /// `PostPaid` or `PrePaid`
    pub charge_type: String,
    /// `NoSpot`, `SpotWithPriceLimit`, `SpotAsPriceGo`
    pub spot_strategy: String,
    /// `Pending`, `Starting`, `Running`, `Stopping`, `Stopped`
    pub status: String,
    /// In this zone.
    pub zone: String,
    /// In this vSwitch.
    pub vswitch: String,
    /// Addresses of the primary interface, first the primary one.
    pub private_ips: Vec<String>,
    /// Public address that is no EIP, empty if none.
    pub public_ip: String,
    /// Bound EIP, empty if none.
    pub eip: String,
    /// Id of the primary interface.
    pub primary_eni: String,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// An elastic network interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Attached to this instance, empty if none.
    pub instance: String,
    /// In this vSwitch.
    pub vswitch: String,
    /// Whether it is the primary interface of its instance.
    pub primary: bool,
    /// `InUse`, `Available`, ...
    pub status: String,
    /// IPv4 addresses, first the primary one.
    pub ipv4: Vec<String>,
    /// IPv6 addresses.
    pub ipv6: Vec<String>,
    /// Whether packets with foreign addresses are dropped; `None` where the region does not know the check.
    pub source_dest_check: Option<bool>,
}

/// An elastic public address.
#[derive(Clone, Debug)]
pub struct Eip {
    /// The address.
    pub address: String,
    /// `EcsInstance`, `SlbInstance`, ...; empty if unbound.
    pub instance_type: String,
    /// Bound to this object, empty if unbound.
    pub instance: String,
}

/// A server certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Common name.
    pub common_name: String,
    /// End of validity.
    pub expires: Timestamp,
}

/// An access control list.
#[derive(Clone, Debug)]
pub struct Acl {
    /// Display name.
    pub name: String,
    /// CIDR to comment.
    pub entries: BTreeMap<String, String>,
}

/// A classic load balancer.
#[derive(Clone, Debug)]
pub struct LoadBalancer {
    /// Visible name.
    pub name: String,
    /// The address it serves.
    pub address: String,
    /// `internet` or `intranet`
    pub address_type: String,
    /// `ipv4` or `ipv6`
    pub ip_version: String,
    /// Empty for internet instances.
    pub vpc: String,
    /// Empty for internet instances.
    pub vswitch: String,
    /// Primary zone.
    pub master_zone: String,
    /// Secondary zone.
    pub slave_zone: String,
    /// `slb.lcu.elastic` for `PayByCLCU`.
    pub spec: String,
    /// `PayBySpec` or `PayByCLCU`
    pub instance_charge_type: String,
    /// `paybytraffic` or `paybybandwidth`
    pub internet_charge_type: String,
    /// Mbit/s
    pub bandwidth: i64,
    /// Whether deletion is refused.
    pub delete_protection: bool,
    /// `ConsoleProtection` or `NonProtection`
    pub modification_protection: String,
    /// Why it is protected.
    pub modification_reason: String,
    /// `rg-...`
    pub resource_group: String,
    /// `active`, `inactive` or `locked`
    pub status: String,
    /// When it was made.
    pub created: Timestamp,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    /// By id.
    pub groups: BTreeMap<String, Group>,
    /// By port and protocol.
    pub listeners: BTreeMap<(u16, Protocol), Listener>,
    pub(crate) busy_until: Option<Instant>,
}

/// A vServer group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// In the order of addition.
    pub backends: Vec<Backend>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// A member of a vServer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `i-...` or `eni-...`
    pub server_id: String,
    /// Empty unless given.
    pub server_ip: String,
    /// Backend port.
    pub port: u16,
    /// 0 to 100
    pub weight: u8,
    /// `ecs`, `eni` or `eci`
    pub kind: String,
    /// Text of the maker.
    pub description: String,
}

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// HTTP
    Http,
    /// HTTPS
    Https,
}

impl Protocol {
    /// As the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Reads the API's spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Http, Self::Https].into_iter().find(|it| it.as_str() == text)
    }

    /// Whether two listeners cannot have one port number together.
    #[must_use]
    pub fn collides_with(self, other: Self) -> bool {
        (self == Self::Udp) == (other == Self::Udp)
    }
}

/// A listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Text of the maker.
    pub description: String,
    /// `running` or `stopped`; `starting` shows while [`Dials::listener_start`] lasts.
    pub status: String,
    /// Id of its group, empty if none.
    pub group: String,
    /// Port of the default group, if there is no vServer group.
    pub backend_port: Option<u16>,
    /// Mbit/s, -1 for no limit.
    pub bandwidth: i64,
    /// `wrr`, `rr`, ...
    pub scheduler: String,
    /// `on` or `off`
    pub acl_status: String,
    /// `white`, `black` or empty.
    pub acl_type: String,
    /// Ids of its lists.
    pub acl_ids: Vec<String>,
    /// The attributes of its protocol under their API names, defaults included.
    pub config: BTreeMap<String, Value>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    /// Additional certificates, by id.
    pub domain_extensions: BTreeMap<String, DomainExtension>,
    pub(crate) starting_until: Option<Instant>,
}

/// An additional certificate of an HTTPS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainExtension {
    /// The domain.
    pub domain: String,
    /// Its certificate.
    pub certificate: String,
}

/// An access key.
#[derive(Clone)]
pub struct AccessKey {
    /// Its secret.
    pub secret: String,
    /// The token that must come with it (STS keys).
    pub token: Option<String>,
    /// End of validity (STS keys).
    pub expires: Option<Timestamp>,
    /// Whether the key is switched on.
    pub active: bool,
    /// Actions, or patterns with a trailing `*`, that the identity may not call. Reads of ECS then answer with nothing,
    /// everything else with `Forbidden.RAM`.
    pub denied: BTreeSet<String>,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKey")
            .field("active", &self.active)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// A RAM role.
#[derive(Clone, Debug)]
pub struct Role {
    /// Longest session in seconds.
    pub max_session: u64,
    /// See [`AccessKey::denied`]; given to the keys of its sessions.
    pub denied: BTreeSet<String>,
}

/// What the metadata service says.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The instance that asks.
    pub instance: Option<String>,
    /// Whether a session token is required (`HttpTokens=required`).
    pub token_required: bool,
    /// Whether the service answers at all (`HttpEndpoint=disabled`).
    pub disabled: bool,
    /// Role of the instance.
    pub role: Option<String>,
    /// Lifetime of the role's keys; six hours unless set.
    pub key_lifetime: Option<Duration>,
    pub(crate) tokens: BTreeMap<String, Timestamp>,
    pub(crate) issued: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct TokenUse {
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) answer: Value,
}

/// A description of a world that cannot be read.
#[derive(Debug)]
pub struct BadWorld(pub String);

impl std::fmt::Display for BadWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the description of the cloud cannot be used: {}", self.0)
    }
}

impl std::error::Error for BadWorld {}

impl Default for World {
    fn default() -> Self {
        Self::new("cn-hangzhou")
    }
}

impl World {
    /// An empty region with two zones and the access key [`KEY_ID`].
    #[must_use]
    pub fn new(region: &str) -> Self {
        Self {
            region: region.into(),
            other_regions: BTreeSet::from(["cn-beijing".into(), "cn-shanghai".into(), "cn-hangzhou".into()]),
            zones: vec![format!("{region}-i"), format!("{region}-j")],
            account: "1234567890123456".into(),
            vpcs: BTreeMap::new(),
            vswitches: BTreeMap::new(),
            route_tables: BTreeMap::new(),
            instances: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            eips: BTreeMap::new(),
            certificates: BTreeMap::new(),
            acls: BTreeMap::new(),
            load_balancers: BTreeMap::new(),
            keys: BTreeMap::from([(KEY_ID.into(), AccessKey::permanent(KEY_SECRET))]),
            roles: BTreeMap::new(),
            oidc_token: None,
            metadata: Metadata::default(),
            sold_out_zones: BTreeSet::new(),
            limits: Limits::default(),
            dials: Dials::default(),
            tokens: BTreeMap::new(),
            counter: 0,
        }
    }

    /// A VPC with its system route table `vtb-<rest of the id>`.
    #[must_use]
    pub fn with_vpc(mut self, id: &str, cidr: &str) -> Self {
        self.vpcs.insert(id.into(), Vpc::new(cidr));
        let table = format!("vtb-{}", id.trim_start_matches("vpc-"));
        self.route_tables.insert(table, RouteTable::system(id));
        self
    }

    /// A vSwitch with all addresses of its range but four free.
    #[must_use]
    pub fn with_vswitch(mut self, id: &str, vpc: &str, zone: &str, cidr: &str) -> Self {
        self.vswitches.insert(id.into(), VSwitch::new(vpc, zone, cidr));
        self
    }

    /// A running instance with its primary interface.
    #[must_use]
    pub fn with_instance(mut self, id: &str, name: &str, vswitch: &str, ip: &str) -> Self {
        self.add_instance(id, name, vswitch, ip);
        self
    }

    /// A custom route table.
    #[must_use]
    pub fn with_route_table(mut self, id: &str, vpc: &str) -> Self {
        self.route_tables.insert(id.into(), RouteTable { kind: "Custom".into(), ..RouteTable::system(vpc) });
        self
    }

    /// A certificate that is valid until `expires`.
    #[must_use]
    pub fn with_certificate(mut self, id: &str, common_name: &str, expires: Timestamp) -> Self {
        self.certificates.insert(id.into(), Certificate { common_name: common_name.into(), expires });
        self
    }

    /// A permanent access key.
    #[must_use]
    pub fn with_key(mut self, id: &str, secret: &str) -> Self {
        self.keys.insert(id.into(), AccessKey::permanent(secret));
        self
    }

    /// A RAM role with sessions of up to an hour.
    #[must_use]
    pub fn with_role(mut self, name: &str) -> Self {
        self.roles.insert(name.into(), Role { max_session: 3600, denied: BTreeSet::new() });
        self
    }

    /// Adds a running instance with its primary interface `eni-<rest of the id>`.
    pub fn add_instance(&mut self, id: &str, name: &str, vswitch: &str, ip: &str) -> &mut Instance {
        let eni = format!("eni-{}", id.trim_start_matches("i-"));
        self.interfaces.insert(eni.clone(), Interface::primary(id, vswitch, ip));
        let zone = self.vswitches.get(vswitch).map(|it| it.zone.clone()).unwrap_or_default();
        self.instances.remove(id);
        self.instances.entry(id.into()).or_insert_with(|| Instance::new(name, &zone, vswitch, ip, &eni))
    }

    /// Takes an instance away as a reclaimed spot instance goes: with its interfaces and its places in server groups, while
    /// routes to it stay behind.
    pub fn release_instance(&mut self, id: &str) {
        self.instances.remove(id);
        let gone: BTreeSet<String> =
            self.interfaces.iter().filter(|(_, it)| it.instance == id).map(|(eni, _)| eni.clone()).collect();
        self.interfaces.retain(|eni, _| !gone.contains(eni));
        for group in self.load_balancers.values_mut().flat_map(|it| it.groups.values_mut()) {
            group.backends.retain(|it| it.server_id != id && !gone.contains(&it.server_id));
        }
    }

    /// The VPC of a vSwitch, empty if there is no such vSwitch.
    #[must_use]
    pub fn vpc_of(&self, vswitch: &str) -> &str {
        self.vswitches.get(vswitch).map_or("", |it| it.vpc.as_str())
    }

    /// The load balancer that holds a group.
    pub(crate) fn owner_of_group(&self, group: &str) -> Option<&String> {
        self.load_balancers.iter().find(|(_, it)| it.groups.contains_key(group)).map(|(id, _)| id)
    }

    /// A name that was never given before, the same in every run.
    pub(crate) fn fresh(&mut self, prefix: &str, length: usize) -> String {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        self.counter += 1;
        let mut state = self.counter;
        let mut text = String::from(prefix);
        for _ in 0..length {
            state = mix(state);
            text.push(char::from(DIGITS[usize::try_from(state % 36).unwrap_or(0)]));
        }
        text
    }

    /// A free address: private inside the vSwitch, else public.
    pub(crate) fn fresh_address(&mut self, vswitch: Option<&str>, ip_version: &str) -> String {
        if ip_version == "ipv6" {
            self.counter += 1;
            return format!("2408:4004::{:x}", self.counter);
        }
        if let Some(net) = vswitch.and_then(|id| self.vswitches.get(id)).and_then(|it| it.cidr.parse::<Ipv4Net>().ok())
        {
            let free = net.hosts().rev().map(|it| it.to_string()).find(|it| self.address_is_free(it));
            if let Some(free) = free {
                return free;
            }
        }
        loop {
            self.counter += 1;
            let [.., high, low] = self.counter.to_be_bytes();
            let address = Ipv4Addr::new(47, 98, high.wrapping_add(2), low).to_string();
            if self.address_is_free(&address) {
                return address;
            }
        }
    }

    pub(crate) fn address_is_free(&self, address: &str) -> bool {
        !self.load_balancers.values().any(|it| it.address == address)
            && !self.interfaces.values().any(|it| it.ipv4.iter().any(|ip| ip == address))
    }

    /// Account id and role name to resource name.
    pub(crate) fn role_arn(&self, role: &str) -> String {
        format!("acs:ram::{}:role/{role}", self.account)
    }
}

/// A good mixer of 64 bits (splitmix64).
pub(crate) const fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Whether an address lies in a range; `false` for anything that is neither.
pub(crate) fn contains(cidr: &str, address: &str) -> bool {
    match (cidr.parse::<IpNet>(), address.parse::<IpAddr>()) {
        (Ok(net), Ok(ip)) => net.contains(&ip),
        _ => false,
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            routes_per_table: 200,
            load_balancers: 60,
            listeners: 50,
            groups: 50,
            backends: 200,
            backends_per_call: 40,
            domain_extensions: 3,
        }
    }
}

impl Vpc {
    /// A VPC with one IPv4 range.
    #[must_use]
    pub fn new(cidr: &str) -> Self {
        Self {
            name: String::new(),
            cidr: cidr.into(),
            secondary_cidrs: Vec::new(),
            ipv6_cidr: String::new(),
            busy_until: None,
            writers: 0,
        }
    }
}

impl VSwitch {
    /// A vSwitch with all addresses of its range but four free.
    #[must_use]
    pub fn new(vpc: &str, zone: &str, cidr: &str) -> Self {
        let size = cidr.parse::<Ipv4Net>().map_or(0, |it| 1_u64 << (32 - it.prefix_len()));
        Self {
            name: String::new(),
            vpc: vpc.into(),
            zone: zone.into(),
            cidr: cidr.into(),
            available_ips: size.saturating_sub(4),
        }
    }
}

impl RouteTable {
    /// An empty system table.
    #[must_use]
    pub fn system(vpc: &str) -> Self {
        Self { name: String::new(), vpc: vpc.into(), kind: "System".into(), entries: BTreeMap::new() }
    }
}

impl RouteEntry {
    /// A custom entry to an instance.
    #[must_use]
    pub fn to_instance(id: &str, instance: &str) -> Self {
        Self {
            id: id.into(),
            kind: "Custom".into(),
            next_hop_type: "Instance".into(),
            next_hops: vec![instance.into()],
            name: String::new(),
            description: String::new(),
            pending_until: None,
        }
    }

    /// `Pending` or `Available`
    #[must_use]
    pub fn status(&self) -> &'static str {
        if self.pending_until.is_some_and(|it| it > Instant::now()) { "Pending" } else { "Available" }
    }
}

impl Instance {
    /// A running pay-as-you-go instance.
    #[must_use]
    pub fn new(name: &str, zone: &str, vswitch: &str, ip: &str, primary_eni: &str) -> Self {
        Self {
            name: name.into(),
            host_name: name.into(),
            instance_type: "ecs.g7.large".into(),
            charge_type: "PostPaid".into(),
            spot_strategy: "NoSpot".into(),
            status: "Running".into(),
            zone: zone.into(),
            vswitch: vswitch.into(),
            private_ips: vec![ip.into()],
            public_ip: String::new(),
            eip: String::new(),
            primary_eni: primary_eni.into(),
            tags: BTreeMap::new(),
        }
    }
}

impl Interface {
    /// The primary interface of an instance.
    #[must_use]
    pub fn primary(instance: &str, vswitch: &str, ip: &str) -> Self {
        Self {
            instance: instance.into(),
            vswitch: vswitch.into(),
            primary: true,
            status: "InUse".into(),
            ipv4: vec![ip.into()],
            ipv6: Vec::new(),
            source_dest_check: Some(true),
        }
    }
}

impl LoadBalancer {
    /// A pay-by-use internet instance without anything on it.
    #[must_use]
    pub fn internet(name: &str, address: &str) -> Self {
        Self {
            name: name.into(),
            address: address.into(),
            address_type: "internet".into(),
            ip_version: "ipv4".into(),
            vpc: String::new(),
            vswitch: String::new(),
            master_zone: String::new(),
            slave_zone: String::new(),
            spec: "slb.lcu.elastic".into(),
            instance_charge_type: "PayByCLCU".into(),
            internet_charge_type: "paybytraffic".into(),
            bandwidth: 5120,
            delete_protection: false,
            modification_protection: "NonProtection".into(),
            modification_reason: String::new(),
            resource_group: "rg-default".into(),
            status: "active".into(),
            created: super::now(),
            tags: BTreeMap::new(),
            groups: BTreeMap::new(),
            listeners: BTreeMap::new(),
            busy_until: None,
        }
    }

    /// `vpc` or `classic`
    #[must_use]
    pub fn network_type(&self) -> &'static str {
        if self.vpc.is_empty() { "classic" } else { "vpc" }
    }
}

impl Group {
    /// An empty group.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), backends: Vec::new(), tags: BTreeMap::new() }
    }
}

impl Listener {
    /// What the API shows at the moment.
    #[must_use]
    pub fn shown_status(&self) -> &str {
        if self.starting_until.is_some_and(|it| it > Instant::now()) { "starting" } else { &self.status }
    }
}

impl AccessKey {
    /// A key of a user, without end of validity.
    #[must_use]
    pub fn permanent(secret: &str) -> Self {
        Self { secret: secret.into(), token: None, expires: None, active: true, denied: BTreeSet::new() }
    }

    /// A key of a session.
    #[must_use]
    pub fn temporary(secret: &str, token: &str, expires: Timestamp) -> Self {
        Self { token: Some(token.into()), expires: Some(expires), ..Self::permanent(secret) }
    }

    pub(crate) fn may(&self, action: &str) -> bool {
        !self.denied.iter().any(|it| it.strip_suffix('*').map_or(it == action, |start| action.starts_with(start)))
    }
}
