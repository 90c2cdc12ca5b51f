//! The nouns of a classic load balancer, as both the desired and the observed side speak of them.

use std::collections::BTreeMap;
use std::fmt;

use litemap::LiteMap;

use crate::plan::loadbalancer::api_fields;
use crate::plan::loadbalancer::model::ListenerRef;
use crate::plan::loadbalancer::problem::ListenerPlace;
use crate::plan::loadbalancer::steps::Target;

/// Most entries of an access control list.
pub const MOST_ENTRIES: usize = 300;

api_fields! {
    /// Protocol of a listener, as the API and annotations spell it, in the order in which messages list them.
    #[derive(Default)]
    Protocol {
        /// Layer 4, TCP.
        #[default]
        Tcp = "tcp",
        /// Layer 4, UDP.
        Udp = "udp",
        /// Layer 7, HTTP.
        Http = "http",
        /// Layer 7, HTTPS.
        Https = "https",
    }
}

impl Protocol {
    /// Parses the lower-case spelling.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.parameter() == text)
    }
}

/// Identity of a listener on its load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerKey {
    /// 1 to 65535
    pub port: u16,
    /// One port can carry a TCP and a UDP listener.
    pub protocol: Protocol,
}

impl ListenerKey {
    /// Where it is.
    pub fn place(self) -> ListenerPlace {
        ListenerPlace { port: self.port, is_udp: self.protocol == Protocol::Udp }
    }
}

impl From<ListenerKey> for Target {
    fn from(key: ListenerKey) -> Self {
        Self::Listener(ListenerRef { port: key.port, protocol: key.protocol.parameter() })
    }
}

impl fmt::Display for ListenerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol)
    }
}

api_fields! {
    /// An attribute of a listener.
    ListenerField of Protocol {
        /// Peak bandwidth in Mbit/s, -1 for no limit.
        Bandwidth = "Bandwidth",
        /// `rr`, `wrr`, `wlc`, `sch`, `tch`, `qch`.
        Scheduler = "Scheduler",
        /// Source-address persistence of TCP in seconds, 0 for off.
        PersistenceTimeout = "PersistenceTimeout" for Tcp,
        /// Idle timeout of established TCP connections in seconds.
        EstablishedTimeout = "EstablishedTimeout" for Tcp,
        /// Idle timeout of HTTP connections in seconds.
        IdleTimeout = "IdleTimeout" for Http Https,
        /// Time in seconds after which a request is answered with 504.
        RequestTimeout = "RequestTimeout" for Http Https,
        /// Certificate of an HTTPS listener.
        ServerCertificateId = "ServerCertificateId" for Https,
        /// `tls_cipher_policy_1_0` and so on.
        TlsCipherPolicy = "TLSCipherPolicy" for Https,
        /// `on` or `off`.
        EnableHttp2 = "EnableHttp2" for Https,
        /// `true` or `false`.
        ProxyProtocolV2Enabled = "ProxyProtocolV2Enabled" for Tcp Udp,
        /// `on` or `off`.
        AclStatus = "AclStatus",
        /// `white` or `black`.
        AclType = "AclType",
        /// One or several ids, separated by commas; compared as a set.
        AclId = "AclId",
        /// `on` or `off`.
        ConnectionDrain = "ConnectionDrain" for Tcp Udp,
        /// Seconds.
        ConnectionDrainTimeout = "ConnectionDrainTimeout" for Tcp Udp,
        /// `on` or `off`.
        StickySession = "StickySession" for Http Https,
        /// `insert` or `server`.
        StickySessionType = "StickySessionType" for Http Https,
        /// Name of the cookie in mode `server`.
        Cookie = "Cookie" for Http Https,
        /// Seconds, in mode `insert`.
        CookieTimeout = "CookieTimeout" for Http Https,
        /// `on` or `off`.
        XForwardedForProto = "XForwardedFor_proto" for Http Https,
        /// `on` or `off`.
        XForwardedForSlbPort = "XForwardedFor_SLBPORT" for Http Https,
        /// `on` or `off`.
        XForwardedForClientSrcPort = "XForwardedFor_ClientSrcPort" for Http Https,
        /// Health checks of TCP and UDP: `on` or `off`.
        HealthCheckSwitch = "HealthCheckSwitch" for Tcp Udp,
        /// Health checks of HTTP and HTTPS: `on` or `off`.
        HealthCheck = "HealthCheck" for Http Https,
        /// `tcp` or `http`.
        HealthCheckType = "HealthCheckType" for Tcp,
        /// Path of an HTTP check.
        HealthCheckUri = "HealthCheckURI" for Tcp Http Https,
        /// 1 to 65535; -520 or 0 means the backend's port.
        HealthCheckConnectPort = "HealthCheckConnectPort",
        /// 2 to 10.
        HealthyThreshold = "HealthyThreshold",
        /// 2 to 10.
        UnhealthyThreshold = "UnhealthyThreshold",
        /// Seconds. Spelled with a lower-case h on the creation of TCP and UDP listeners.
        HealthCheckInterval = "HealthCheckInterval",
        /// Seconds, TCP and UDP.
        HealthCheckConnectTimeout = "HealthCheckConnectTimeout" for Tcp Udp,
        /// Seconds, HTTP and HTTPS.
        HealthCheckTimeout = "HealthCheckTimeout" for Http Https,
        /// Host header of an HTTP check.
        HealthCheckDomain = "HealthCheckDomain" for Tcp Http Https,
        /// `http_2xx,http_3xx`; compared as written.
        HealthCheckHttpCode = "HealthCheckHttpCode" for Tcp Http Https,
        /// `get` or `head`.
        HealthCheckMethod = "HealthCheckMethod" for Http Https,
        /// `on` or `off`; fixed at creation.
        ListenerForward = "ListenerForward" for Http,
        /// Port of the HTTPS listener that an HTTP listener redirects to; fixed at creation.
        ForwardPort = "ForwardPort" for Http,
    }
}

/// Values of listener attributes, all as text, spelled as the API spells them.
pub type ListenerFields = BTreeMap<ListenerField, String>;

/// Attributes that another one needs when it has this value, and why. Without that value they are not sent, and do not count.
pub(super) const SWITCHES: [(ListenerField, ListenerField, &str, &str); 6] = {
    use ListenerField::{
        AclId, AclStatus, AclType, ConnectionDrain, ConnectionDrainTimeout, Cookie, CookieTimeout, StickySession,
        StickySessionType,
    };
    [
        (AclId, AclStatus, "on", "access control needs a list"),
        (AclType, AclStatus, "on", "access control needs `white` or `black`"),
        (ConnectionDrainTimeout, ConnectionDrain, "on", "connection drain needs a timeout"),
        (StickySessionType, StickySession, "on", "sticky sessions need `insert` or `server`"),
        (CookieTimeout, StickySessionType, "insert", "inserted cookies need a timeout"),
        (Cookie, StickySessionType, "server", "`server` needs the name of the cookie"),
    ]
};

/// What must hold for an attribute to count: its switch, and before it the switch of that.
pub(super) fn switches(field: ListenerField) -> Vec<(ListenerField, &'static str)> {
    let Some((_, switch, value, _)) = SWITCHES.into_iter().find(|(it, ..)| *it == field) else { return Vec::new() };
    [switches(switch), vec![(switch, value)]].concat()
}

/// Whether HTTP checks alone have an attribute, also on TCP listeners.
pub(super) const fn is_of_http_check(field: ListenerField) -> bool {
    use ListenerField::{HealthCheckDomain, HealthCheckHttpCode, HealthCheckUri};
    matches!(field, HealthCheckUri | HealthCheckDomain | HealthCheckHttpCode)
}

/// Whether an attribute counts: those of a feature that is off do not, as the API forgets them. `effective` is what
/// holds where nothing is stated, too.
pub(super) fn field_counts<'a>(
    protocol: Protocol,
    field: ListenerField,
    stated: &ListenerFields,
    effective: impl Fn(ListenerField) -> Option<&'a String>,
) -> bool {
    let effective = |field: ListenerField| effective(field).map_or("", String::as_str);
    let stated = |field: ListenerField| stated.get(&field).map_or("", String::as_str);
    let checked = || match protocol {
        Protocol::Tcp | Protocol::Udp => effective(ListenerField::HealthCheckSwitch) != "off",
        Protocol::Http | Protocol::Https => effective(ListenerField::HealthCheck) == "on",
    };
    let by_http = || checked() && (protocol != Protocol::Tcp || effective(ListenerField::HealthCheckType) == "http");
    let is_on = |(switch, value): (ListenerField, &str)| match switch {
        ListenerField::AclStatus | ListenerField::ConnectionDrain => stated(switch) == value,
        _ => effective(switch) == value,
    };
    match field {
        _ if is_of_http_check(field) => by_http(),
        ListenerField::HealthCheckType
        | ListenerField::HealthCheckMethod
        | ListenerField::HealthCheckConnectPort
        | ListenerField::HealthyThreshold
        | ListenerField::UnhealthyThreshold
        | ListenerField::HealthCheckInterval
        | ListenerField::HealthCheckConnectTimeout
        | ListenerField::HealthCheckTimeout => checked(),
        _ => switches(field).into_iter().all(is_on),
    }
}

api_fields! {
    /// An attribute of an instance.
    InstanceField {
        /// Visible name.
        Name = "LoadBalancerName" as "name",
        /// `internet` or `intranet`; fixed.
        AddressType = "AddressType",
        /// `ipv4` or `ipv6`; fixed.
        IpVersion = "AddressIPVersion",
        /// `vpc` or `classic`; fixed, and never sent.
        NetworkType = "NetworkType",
        /// The address it serves; fixed.
        Address = "Address",
        /// Primary zone; fixed.
        MasterZone = "MasterZoneId",
        /// Secondary zone; fixed.
        SlaveZone = "SlaveZoneId",
        /// `rg-...`; fixed.
        ResourceGroup = "ResourceGroupId",
        /// `PayBySpec` or `PayByCLCU`
        ChargeType = "InstanceChargeType" as "instance charge type",
        /// `slb.s1.small`, `slb.lcu.elastic`, ...
        Spec = "LoadBalancerSpec" as "spec",
        /// `paybytraffic` or `paybybandwidth`
        InternetChargeType = "InternetChargeType" as "internet charge type",
        /// Mbit/s
        Bandwidth = "Bandwidth" as "bandwidth",
        /// `on` or `off`
        DeleteProtection = "DeleteProtection" as "delete protection",
        /// `ConsoleProtection` or `NonProtection`
        ModificationProtection = "ModificationProtectionStatus" as "modification protection",
    }
}

/// Values of attributes of an instance, all as text, spelled as the API spells them.
pub type InstanceFields = LiteMap<InstanceField, String>;

/// Where a load balancer is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreationPlace {
    /// `vsw-...`; `None` for internet load balancers.
    pub vswitch: Option<String>,
    /// Primary zone; `None` leaves it to the cloud.
    pub master_zone: Option<String>,
    /// Secondary zone.
    pub slave_zone: Option<String>,
}

impl fmt::Display for CreationPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(vswitch) = &self.vswitch {
            write!(f, "vSwitch {vswitch}, ")?;
        }
        match (&self.master_zone, &self.slave_zone) {
            (Some(master), Some(slave)) => write!(f, "zones {master} and {slave}"),
            (Some(master), None) => write!(f, "zone {master}"),
            _ => f.write_str("zones of the cloud's choice"),
        }
    }
}

impl CreateInstance {
    /// Where it can be made, in order: in the zones asked for; where only the configuration or the place of the nodes asked,
    /// also the other way round (unless a vSwitch decides), and at last where the cloud chooses; each in every vSwitch.
    pub fn placements(&self) -> Vec<CreationPlace> {
        let (master, slave) = (&self.master_zone, &self.slave_zone);
        let mut zones = vec![(master.clone(), slave.clone())];
        if self.zones_can_change {
            if slave.is_some() && self.vswitch_ids.is_empty() {
                zones.push((slave.clone(), master.clone()));
            }
            zones.push((None, None));
        }
        zones.dedup();
        let vswitches: Vec<Option<&String>> = match self.vswitch_ids.as_slice() {
            [] => vec![None],
            ids => ids.iter().map(Some).collect(),
        };
        let placed = |(master_zone, slave_zone): (Option<String>, Option<String>)| {
            vswitches.iter().map(move |vswitch| CreationPlace {
                vswitch: vswitch.cloned(),
                master_zone: master_zone.clone(),
                slave_zone: slave_zone.clone(),
            })
        };
        zones.into_iter().flat_map(placed).collect()
    }

    /// Where this attempt makes it.
    pub fn placement(&self) -> CreationPlace {
        self.placements().into_iter().nth(self.attempt).unwrap_or_default()
    }
}

/// Parameters of a new access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateAccessList {
    /// Unique in the region.
    pub name: String,
    /// `ipv4` or `ipv6`
    pub ip_version: String,
    /// The ownership mark.
    pub tags: BTreeMap<String, String>,
}

/// Parameters of a new instance. Empty options are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateInstance {
    /// Attributes to send, those of its place apart.
    pub fields: InstanceFields,
    /// For intranet instances.
    pub vpc_id: Option<String>,
    /// vSwitches to try, in order; the first is tried first, the others when it has no address left.
    pub vswitch_ids: Vec<String>,
    /// Primary zone.
    pub master_zone: Option<String>,
    /// Secondary zone.
    pub slave_zone: Option<String>,
    /// Whether other zones will do, because only the configuration, or the place of the nodes, asks for these.
    pub zones_can_change: bool,
    /// Which of the [placements](Self::placements) is tried; earlier ones had no room.
    pub attempt: usize,
    /// Only with `ConsoleProtection`.
    pub modification_protection_reason: Option<String>,
    /// All tags, the ownership marks included.
    pub tags: BTreeMap<String, String>,
    /// The ownership marks.
    pub marks: BTreeMap<String, String>,
}
