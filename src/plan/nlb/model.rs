//! The nouns of a network load balancer, as both the desired and the observed side speak of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::IpNet;
use litemap::LiteMap;

use crate::plan::loadbalancer::api_fields;
use crate::plan::loadbalancer::model::ListenerRef;
use crate::plan::loadbalancer::operation::on_off;
use crate::plan::loadbalancer::problem::ListenerPlace;
use crate::plan::loadbalancer::steps::Target;

/// Most security groups of a load balancer.
pub const MOST_SECURITY_GROUPS: usize = 4;

api_fields! {
    /// Protocol of a listener, as the API and annotations spell it, in the order in which messages list them.
    #[derive(Default)]
    Protocol {
        /// Layer 4, TCP.
        #[default]
        Tcp = "TCP",
        /// Layer 4, UDP.
        Udp = "UDP",
        /// TLS that ends at the load balancer.
        TcpSsl = "TCPSSL",
    }
}

impl Protocol {
    /// Parses the name in upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.parameter().eq_ignore_ascii_case(text))
    }

    /// The protocol between the load balancer and its backends, as server groups state it.
    pub const fn of_group(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp | Self::TcpSsl => "TCP",
        }
    }
}

/// Identity of a listener on its load balancer: one port, or a range of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerKey {
    /// First port, 1 to 65535.
    pub first: u16,
    /// Last port; equal to the first unless the listener takes a range.
    pub last: u16,
    /// One port can carry a UDP listener beside one of another protocol.
    pub protocol: Protocol,
}

impl ListenerKey {
    /// A listener on one port.
    pub const fn port(port: u16, protocol: Protocol) -> Self {
        Self { first: port, last: port, protocol }
    }

    /// Where it is, as the listener of this port of the Service.
    pub fn place(self, port: u16) -> ListenerPlace {
        ListenerPlace { port, is_udp: self.protocol == Protocol::Udp }
    }

    /// Whether it takes a range of ports.
    pub const fn is_range(self) -> bool {
        self.first != self.last
    }

    /// Its ports as marks write them: `80`, or `80_400`.
    pub fn ports(self) -> String {
        if self.is_range() { format!("{}_{}", self.first, self.last) } else { self.first.to_string() }
    }
}

impl From<ListenerKey> for Target {
    fn from(key: ListenerKey) -> Self {
        Self::Listener(ListenerRef { port: key.first, protocol: key.protocol.parameter() })
    }
}

impl fmt::Display for ListenerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_range() {
            true => write!(f, "{}-{}/{}", self.first, self.last, self.protocol),
            false => write!(f, "{}/{}", self.first, self.protocol),
        }
    }
}

api_fields! {
    /// An attribute of a listener. Switches are `true` or `false`, lists of ids are joined by commas in order.
    ListenerField of Protocol {
        /// Seconds: 10 to 900, with UDP 10 to 20.
        IdleTimeout = "IdleTimeout",
        /// New connections a second, 0 for no limit.
        Cps = "Cps",
        /// PROXY protocol towards backends.
        ProxyProtocol = "ProxyProtocolEnabled",
        /// A member of the JSON object `ProxyProtocolV2Config`.
        Ppv2EndpointId = "Ppv2PrivateLinkEpIdEnabled",
        /// A member of the JSON object `ProxyProtocolV2Config`.
        Ppv2EndpointServiceId = "Ppv2PrivateLinkEpsIdEnabled",
        /// A member of the JSON object `ProxyProtocolV2Config`.
        Ppv2VpcId = "Ppv2VpcIdEnabled",
        /// The server certificate: `CertificateIds.1`.
        Certificate = "CertificateIds" for TcpSsl,
        /// Whether clients need a certificate.
        CaEnabled = "CaEnabled" for TcpSsl,
        /// The CA of client certificates: `CaCertificateIds.1`.
        CaCertificate = "CaCertificateIds" for TcpSsl,
        /// `tls_cipher_policy_1_0` and so on, or the id of a custom policy.
        SecurityPolicy = "SecurityPolicyId" for TcpSsl,
        /// Whether the application protocol is negotiated.
        Alpn = "AlpnEnabled" for TcpSsl,
        /// `HTTP1Only`, `HTTP2Only`, `HTTP2Optional`, `HTTP2Preferred`
        AlpnPolicy = "AlpnPolicy" for TcpSsl,
    }
}

impl ListenerField {
    /// The members of `ProxyProtocolV2Config`.
    pub const PPV2: [Self; 3] = [Self::Ppv2EndpointId, Self::Ppv2EndpointServiceId, Self::Ppv2VpcId];
}

api_fields! {
    /// An attribute of a server group. Switches are `true` or `false`, lists are joined by commas in order.
    GroupField {
        /// `Instance` or `Ip`; fixed.
        Type = "ServerGroupType",
        /// `TCP` or `UDP`; fixed.
        Protocol = "Protocol",
        /// `ipv4` or `DualStack`; fixed.
        IpVersion = "AddressIPVersion",
        /// Whether it is for listeners that take a range of ports; fixed.
        AnyPort = "AnyPortEnabled",
        /// `Affinity` or `NonAffinity`
        IpAffinity = "IpVersionAffinityMode",
        /// `Wrr`, `Wlc`, `rr`, `sch`, `tch`, `qch`
        Scheduler = "Scheduler",
        /// Whether connections of removed backends may end.
        Drain = "ConnectionDrainEnabled",
        /// Seconds, 10 to 900.
        DrainTimeout = "ConnectionDrainTimeout",
        /// Whether backends see the client's address.
        PreserveClientIp = "PreserveClientIpEnabled",
        /// A member of `HealthCheckConfig`, as those that follow.
        HealthCheck = "HealthCheckEnabled",
        /// `TCP`, `HTTP` or `UDP`
        HealthCheckType = "HealthCheckType",
        /// 0 to 65535; 0 is the backend's port.
        HealthCheckPort = "HealthCheckConnectPort",
        /// 2 to 10.
        HealthyThreshold = "HealthyThreshold",
        /// 2 to 10.
        UnhealthyThreshold = "UnhealthyThreshold",
        /// Seconds, 1 to 300.
        HealthCheckTimeout = "HealthCheckConnectTimeout",
        /// Seconds, 1 to 50; with UDP to 300.
        HealthCheckInterval = "HealthCheckInterval",
        /// `$SERVER_IP`, or a domain.
        HealthCheckDomain = "HealthCheckDomain",
        /// Path of HTTP checks.
        HealthCheckUrl = "HealthCheckUrl",
        /// `http_2xx,http_3xx`: `HealthCheckHttpCode.N`.
        HealthCheckCodes = "HealthCheckHttpCode",
        /// `GET` or `HEAD`
        HealthCheckMethod = "HttpCheckMethod",
        /// `HTTP1.0` or `HTTP1.1`
        HealthCheckHttpVersion = "HealthCheckHttpVersion",
    }
}

impl GroupField {
    /// Whether it is chosen when the group is made. With the name, these are a group's identity.
    pub const fn is_fixed(self) -> bool {
        matches!(self, Self::Type | Self::Protocol | Self::IpVersion | Self::AnyPort)
    }

    /// Whether it is a member of `HealthCheckConfig` in requests and of `HealthCheck` in answers.
    pub const fn is_of_health_check(self) -> bool {
        self as u8 >= Self::HealthCheck as u8
    }
}

api_fields! {
    /// An attribute of a load balancer, by its name when one is made and in answers. Switches are `true` or `false`.
    InstanceField {
        /// Visible name.
        Name = "LoadBalancerName" as "name",
        /// Whether backends in other zones get traffic, too.
        CrossZone = "CrossZoneEnabled" as "cross-zone",
        /// Protection against deletion.
        DeleteProtection = "DeletionProtectionConfig.Enabled" as "delete protection",
        /// `ConsoleProtection` or `NonProtection`
        ModificationProtection = "ModificationProtectionConfig.Status" as "modification protection",
        /// `Internet` or `Intranet`
        AddressType = "AddressType",
        /// The same for IPv6; empty without IPv6.
        Ipv6AddressType = "Ipv6AddressType" as "IPv6 address type",
        /// `cbwp-...`; empty if none.
        BandwidthPackage = "BandwidthPackageId",
        /// `ipv4` or `DualStack`; fixed.
        IpVersion = "AddressIpVersion",
        /// `rg-...`; fixed.
        ResourceGroup = "ResourceGroupId",
    }
}

impl InstanceField {
    /// A value as people write it.
    pub fn shown(self, value: &str) -> &str {
        match self {
            Self::CrossZone | Self::DeleteProtection => on_off(value == "true"),
            _ => value,
        }
    }
}

/// Values of attributes of a load balancer, all as text.
pub type InstanceFields = LiteMap<InstanceField, String>;
/// Values of listener attributes, all as text.
pub type ListenerFields = BTreeMap<ListenerField, String>;
/// Values of group attributes, all as text.
pub type GroupFields = BTreeMap<GroupField, String>;

/// A zone in which a load balancer has an address. What is empty is left to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneMapping {
    /// `cn-hangzhou-i`
    pub zone: String,
    /// `vsw-...`
    pub vswitch: String,
    /// Private IPv4 address.
    pub private_address: String,
    /// Id of an elastic address.
    pub allocation_id: String,
    /// IPv6 address; it can be stated only for a load balancer that is made.
    pub ipv6_address: String,
}

/// Parameters of a new load balancer. Empty options are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateInstance {
    /// All attributes to send.
    pub fields: InstanceFields,
    /// `vpc-...`
    pub vpc_id: String,
    /// One for each zone.
    pub zones: Vec<ZoneMapping>,
    /// Only with `ConsoleProtection`.
    pub modification_protection_reason: Option<String>,
    /// All tags, the ownership marks included.
    pub tags: BTreeMap<String, String>,
    /// The ownership marks.
    pub marks: BTreeMap<String, String>,
}

/// Parameters of a new server group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateGroup {
    /// `k8s....`
    pub name: String,
    /// All attributes to send.
    pub fields: GroupFields,
    /// `rg-...`
    pub resource_group_id: Option<String>,
    /// The ownership mark.
    pub tags: BTreeMap<String, String>,
}

/// Parameters of a new security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateSecurityGroup {
    /// `k8s-nlb-<default name>`
    pub name: String,
    /// `k8s.<namespace>.<service>.<cluster id>`
    pub description: String,
    /// `rg-...`
    pub resource_group_id: Option<String>,
    /// The ownership mark.
    pub tags: BTreeMap<String, String>,
}

/// A rule of a security group for incoming traffic, of every protocol and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecurityRule {
    /// Whether it drops; otherwise it accepts.
    pub drops: bool,
    /// Whose traffic it is about.
    pub source: IpNet,
}

impl SecurityRule {
    /// Rules that accept come before the one that drops the rest.
    pub const fn priority(&self) -> u8 {
        if self.drops { 100 } else { 1 }
    }
}

impl fmt::Display for SecurityRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.drops { "drop" } else { "accept" }, self.source)
    }
}

/// Rules, those that accept first: added one after the other, they never drop what is accepted.
pub type SecurityRules = BTreeSet<SecurityRule>;
