//! What the simulated cloud holds. Plain data with public fields: tests set it up, look at it and change it while running.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::table;
use crate::effort;

pub use super::nlb::{
    GroupServer, HealthCheck, Network, NetworkListener, NetworkLoadBalancer, NetworkZone, SecurityGroup, SecurityRule,
    ServerGroup,
};
pub use super::objects::*;
pub use super::pvtz::{PrivateZone, ZoneRecord};
pub use super::table::{Carries, Table};

/// The access key that [`Account::new`] knows.
pub const KEY_ID: &str = "LTAI5tSimulatedCloud";
/// The secret of [`KEY_ID`].
pub const KEY_SECRET: &str = "simulated-secret";

/// A value that earlier states of the account share until it is changed, so that remembering them costs next to nothing.
/// It can be used as what it holds.
#[derive(Clone, Debug, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

/// The whole cloud of one account in one region.
#[derive(Clone, Debug)]
pub struct Account {
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// Regions that exist but hold nothing.
    pub other_regions: BTreeSet<String>,
    /// Zones of the region; load balancers take the first two by default.
    pub zones: Vec<String>,
    /// Account id.
    pub id: String,
    /// By id.
    pub vpcs: BTreeMap<String, Vpc>,
    /// By id.
    pub vswitches: BTreeMap<String, VSwitch>,
    /// By id.
    pub route_tables: Shared<BTreeMap<String, RouteTable>>,
    /// When entries are gone that are `Deleting`: table and block.
    pub(crate) leaving_routes: BTreeSet<(Instant, String, String)>,
    /// By id.
    pub instances: Table<Instance>,
    /// By id.
    pub interfaces: Table<Interface>,
    /// By id.
    pub disks: BTreeMap<String, Disk>,
    /// By allocation id.
    pub eips: BTreeMap<String, Eip>,
    /// Server certificates of CLB, by id.
    pub certificates: BTreeMap<String, Certificate>,
    /// Access control lists of CLB, by id.
    pub acls: BTreeMap<String, Acl>,
    /// By id.
    pub load_balancers: Table<Shared<LoadBalancer>>,
    /// Calls that no policy of their key lists, see [`AccessKey::listed`].
    pub unlisted: BTreeSet<String>,
    /// Network load balancers and what belongs to them.
    pub nlb: Network,
    /// By id.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// Zones of PrivateZone, by id.
    pub private_zones: BTreeMap<String, PrivateZone>,
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
    pub(crate) tokens: Shared<BTreeMap<String, TokenUse>>,
    pub(crate) counter: u64,
    /// Above these addresses of a vSwitch none is free.
    pub(crate) highest: BTreeMap<String, u32>,
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
    /// Network load balancers of the account.
    pub network_load_balancers: usize,
    /// Server groups of network load balancers, of the account.
    pub server_groups: usize,
    /// Servers in a group of network load balancers.
    pub servers_per_group: usize,
    /// Security groups of the account.
    pub security_groups: usize,
    /// Rules of a security group.
    pub security_rules: usize,
    /// Records of a zone.
    pub zone_records: usize,
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
    /// A new route stays `Pending` for this long, and a deleted one `Deleting`; no other route of its VPC can be written.
    pub route_pending: Duration,
    /// Whether another client adds or removes a record of a private zone before each page of its list.
    pub busy_zones: bool,
    /// Whether a change between the two ways in which traffic is charged waits for midnight.
    pub charge_changes_wait: bool,
    /// Whether answers show the address of `ecs` backends although it was not given.
    pub show_server_ips: bool,
    /// Jobs of network load balancers take this long.
    pub nlb_job_time: Duration,
    /// Jobs of single actions take this long instead.
    pub nlb_job_times: BTreeMap<String, Duration>,
    /// A new network load balancer is being provisioned for this long.
    pub nlb_creation_time: Duration,
    /// Whether the job of a listener also holds its load balancer.
    pub nlb_listeners_lock: bool,
    /// A security group counts as used for this long after a load balancer left it.
    pub security_group_release: Duration,
    /// Whether calls beyond the per-action rate get `Throttling.User`.
    pub rate_quotas: bool,
    /// Whether no earlier state is remembered, which in a large account takes most of the time of a write:
    /// [`Fault::Stale`](super::Fault::Stale) shows the present one then.
    pub forgetful: bool,
    /// Replaces the published rates: calls per 60 seconds, by action.
    pub rates: BTreeMap<String, u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct TokenUse {
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) answer: Value,
}

/// A description of an account that cannot be read.
#[derive(Debug)]
pub struct InvalidAccount(pub String);

impl std::fmt::Display for InvalidAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the description of the cloud cannot be used: {}", self.0)
    }
}

impl std::error::Error for InvalidAccount {}

impl Default for Account {
    fn default() -> Self {
        Self::new("cn-hangzhou")
    }
}

impl Account {
    /// An empty region with two zones and the access key [`KEY_ID`].
    #[must_use]
    pub fn new(region: &str) -> Self {
        Self {
            region: region.into(),
            other_regions: BTreeSet::from(["cn-beijing".into(), "cn-shanghai".into(), "cn-hangzhou".into()]),
            zones: vec![format!("{region}-i"), format!("{region}-j")],
            id: "1234567890123456".into(),
            vpcs: BTreeMap::new(),
            vswitches: BTreeMap::new(),
            route_tables: Shared::default(),
            leaving_routes: BTreeSet::new(),
            instances: Table::default(),
            interfaces: Table::default(),
            disks: BTreeMap::new(),
            eips: BTreeMap::new(),
            certificates: BTreeMap::new(),
            acls: BTreeMap::new(),
            load_balancers: Table::default(),
            unlisted: BTreeSet::new(),
            nlb: Network::default(),
            security_groups: BTreeMap::new(),
            private_zones: BTreeMap::new(),
            keys: BTreeMap::from([(KEY_ID.into(), AccessKey::permanent(KEY_SECRET))]),
            roles: BTreeMap::new(),
            oidc_token: None,
            metadata: Metadata::default(),
            sold_out_zones: BTreeSet::new(),
            limits: Limits::default(),
            dials: Dials::default(),
            tokens: Shared::default(),
            counter: 0,
            highest: BTreeMap::new(),
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

    /// From now on a key may do only this: `product:Action`, as in policies.
    ///
    /// # Panics
    /// There is no such key.
    pub fn permit_only(&mut self, key: &str, permissions: &BTreeSet<String>) {
        let permitted = |action: &super::actions::Action| {
            permissions.contains(&format!("{}:{}", action.product.name(), action.name))
        };
        let name = |action: &super::actions::Action| format!("{}:{}", action.product.name(), action.name);
        let denied = super::actions::all().filter(|action| !permitted(action)).map(name);
        self.keys.get_mut(key).unwrap_or_else(|| panic!("the cloud knows no key {key}")).denied = denied.collect();
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
        self.instances.insert(id.into(), Instance::new(name, &zone, vswitch, ip, &eni));
        self.instances.get_mut(id).expect("it was put in just now")
    }

    /// Adds a secondary interface to an instance; its first address is the primary one.
    pub fn add_interface(&mut self, id: &str, instance: &str, vswitch: &str, ipv4: &[&str]) -> &mut Interface {
        let ipv4 = ipv4.iter().map(|it| (*it).to_owned()).collect();
        self.interfaces.remove(id);
        self.interfaces.entry(id.into()).or_insert(Interface {
            primary: false,
            ipv4,
            ..Interface::primary(instance, vswitch, "")
        })
    }

    /// Takes an instance away as a reclaimed spot instance goes: with its interfaces and its places in server groups, while
    /// routes to it stay behind.
    pub fn release_instance(&mut self, id: &str) {
        self.instances.remove(id);
        let gone: BTreeSet<String> =
            self.interfaces.iter().filter(|(_, it)| it.instance == id).map(|(eni, _)| eni.clone()).collect();
        self.interfaces.retain(|eni, _| !gone.contains(eni));
        let is_gone = |it: &Backend| it.server_id == id || gone.contains(&it.server_id);
        for lb in self.load_balancers.values_mut() {
            if lb.groups.values().any(|it| it.backends.iter().any(is_gone)) {
                lb.groups.values_mut().for_each(|it| it.backends.retain(|it| !is_gone(it)));
            }
        }
        let is_gone = |it: &GroupServer| it.id == id || gone.contains(&it.id);
        for group in self.nlb.groups.values_mut() {
            if group.servers.iter().any(is_gone) {
                group.servers.retain(|it| !is_gone(it));
            }
        }
    }

    /// The VPC of a vSwitch, empty if there is no such vSwitch.
    #[must_use]
    pub fn vpc_of(&self, vswitch: &str) -> &str {
        self.vswitches.get(vswitch).map_or("", |it| it.vpc.as_str())
    }

    /// The load balancer that holds a group.
    pub(crate) fn owner_of_group(&self, group: &str) -> Option<&String> {
        self.load_balancers.find([table::other(group)]).next().map(|(id, _)| id)
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
        let range = vswitch.and_then(|id| self.vswitches.get(id)).and_then(|it| it.cidr.parse::<Ipv4Net>().ok());
        if let Some((id, range)) = vswitch.zip(range) {
            let (low, high) = (u32::from(range.network()) + 1, u32::from(range.broadcast()) - 1);
            let start = self.highest.get(id).copied().unwrap_or(high).clamp(low, high);
            let mut free = (low..=start).rev().map(Ipv4Addr::from);
            if let Some(free) = free.find(|it| self.address_is_free(&it.to_string())) {
                self.highest.insert(id.to_owned(), u32::from(free));
                return free.to_string();
            }
        }
        let public = |counter: u64| {
            let [.., high, low] = counter.to_be_bytes();
            Ipv4Addr::new(47, 98, high.wrapping_add(2), low).to_string()
        };
        let (counter, free) = ((self.counter + 1)..)
            .map(|counter| (counter, public(counter)))
            .find(|(_, address)| self.address_is_free(address))
            .expect("65,536 addresses are enough");
        self.counter = counter;
        free
    }

    /// An address of a vSwitch, or a place in it, is free again.
    pub(crate) fn free_address(&mut self, vswitch: &str) {
        self.highest.remove(vswitch);
        if let Some(vswitch) = self.vswitches.get_mut(vswitch) {
            vswitch.available_ips += 1;
        }
    }

    pub(crate) fn address_is_free(&self, address: &str) -> bool {
        effort::look();
        let word = || [table::address(address)];
        self.load_balancers.find(word()).next().is_none()
            && self.nlb.balancers.find(word()).next().is_none()
            && self.interfaces.find(word()).next().is_none()
            && !self.eips.values().any(|it| it.address == address)
    }

    /// Account id and role name to resource name.
    pub(crate) fn role_arn(&self, role: &str) -> String {
        format!("acs:ram::{}:role/{role}", self.id)
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
            network_load_balancers: 60,
            server_groups: 3000,
            servers_per_group: 400,
            security_groups: 100,
            security_rules: 200,
            zone_records: 10_000,
        }
    }
}
