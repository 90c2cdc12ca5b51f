//! The objects that a cloud holds. Plain data with public fields.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

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
    /// IPv6 range, empty if none.
    pub ipv6_cidr: String,
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
    pub(crate) pending: Option<Pending>,
}

/// What is being done to an object, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) until: Instant,
    pub(crate) status: &'static str,
    /// Whether the object is gone afterwards.
    pub(crate) removes: bool,
}

impl Pending {
    pub(crate) fn is_over(self) -> bool {
        self.until <= Instant::now()
    }
}

/// The status that goes with what is being done.
pub(crate) fn shown(pending: Option<Pending>, otherwise: &str) -> &str {
    pending.filter(|it| !it.is_over()).map_or(otherwise, |it| it.status)
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

/// A disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// In this region, which may be another one than the account's.
    pub region: String,
    /// In this zone; empty for a disk of the whole region.
    pub zone: String,
    /// Such as `cloud_essd`.
    pub category: String,
    /// `In_use`, `Available`, `Attaching`, `Detaching`, `Creating`, `ReIniting`
    pub status: String,
    /// The instance that it is attached to, empty if none.
    pub instance: String,
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
#[derive(Clone, Debug, Default)]
pub struct Acl {
    /// Display name.
    pub name: String,
    /// CIDR to comment.
    pub entries: BTreeMap<String, String>,
    /// `ipv4` or `ipv6`
    pub ip_version: String,
    /// Tags.
    pub tags: BTreeMap<String, String>,
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
    /// Internet charge type and bandwidth from midnight on, if they were changed today.
    pub reserved: Option<(String, i64)>,
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
    /// `running` or `stopped`; `starting` shows while [`Dials::listener_start`](super::Dials::listener_start) lasts.
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
    /// Actions, by name or as `product:name`, or patterns with a trailing `*`, that the identity may not call. Reads of ECS then answer with nothing,
    /// everything else with `Forbidden.RAM`.
    pub denied: BTreeSet<String>,
    /// The only actions that a policy lists, as `product:name`; everything else is refused as if denied.
    pub listed: Option<BTreeSet<String>>,
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
    /// Session tokens that were given out, and until when they are good.
    pub tokens: BTreeMap<String, Timestamp>,
    pub(crate) issued: Option<String>,
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
            ipv6_cidr: String::new(),
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
            pending: None,
        }
    }

    /// `Pending`, `Available` or `Deleting`
    #[must_use]
    pub fn status(&self) -> &str {
        shown(self.pending, "Available")
    }
}

impl Disk {
    /// A disk that nobody has attached; of the whole region if `zone` is empty.
    #[must_use]
    pub fn new(region: &str, zone: &str) -> Self {
        let category = if zone.is_empty() { "cloud_regional_disk_auto" } else { "cloud_essd" };
        Self {
            region: region.into(),
            zone: zone.into(),
            category: category.into(),
            status: "Available".into(),
            instance: String::new(),
        }
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
            reserved: None,
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
    /// A running listener that takes turns, with nothing else switched on.
    #[must_use]
    pub fn running(description: &str, group: &str) -> Self {
        Self {
            description: description.into(),
            status: "running".into(),
            group: group.into(),
            backend_port: None,
            bandwidth: -1,
            scheduler: "rr".into(),
            acl_status: "off".into(),
            acl_type: String::new(),
            acl_ids: Vec::new(),
            config: BTreeMap::new(),
            tags: BTreeMap::new(),
            domain_extensions: BTreeMap::new(),
            starting_until: None,
        }
    }

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
        Self { secret: secret.into(), token: None, expires: None, active: true, denied: BTreeSet::new(), listed: None }
    }

    /// A key of a session.
    #[must_use]
    pub fn temporary(secret: &str, token: &str, expires: Timestamp) -> Self {
        Self { token: Some(token.into()), expires: Some(expires), ..Self::permanent(secret) }
    }

    pub(crate) fn may(&self, product: &str, action: &str) -> bool {
        let names = |it: &String| {
            let name = it.strip_prefix(product).and_then(|it| it.strip_prefix(':')).unwrap_or(it);
            name.strip_suffix('*').map_or(name == action, |start| action.starts_with(start))
        };
        !self.denied.iter().any(names) && self.lists(product, action)
    }

    pub(crate) fn lists(&self, product: &str, action: &str) -> bool {
        self.listed.as_ref().is_none_or(|listed| listed.contains(&format!("{product}:{action}")))
    }
}
