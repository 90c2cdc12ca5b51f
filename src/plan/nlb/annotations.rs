//! Annotations of network load balancers: the one table, from which parsing, validation and the reference page follow.

use super::model::{GroupField, GroupFields, InstanceField, ListenerField, ListenerFields, Protocol};
use crate::plan::loadbalancer::annotations::AnnotationKey::Suffix;
use crate::plan::loadbalancer::annotations::values::ValueKind::{
    AnyCase, AnyCaseProtocolPorts, AnyValue, HealthDomain, HealthPath, HttpCodes, Ids, Labels, LoadBalancerName,
    LooseSwitch, OneOf, OneOfOrLast, PortRanges, Presence, ServerGroupPorts, Switch, Tags, Text, ZoneMaps,
};
use crate::plan::loadbalancer::annotations::values::{ON_OFF, ValueKind, number, number_or_zero};
use crate::plan::loadbalancer::annotations::{self, AnnotationName, Applies, BACKEND_TYPES, annotation_table};
use crate::plan::loadbalancer::handling;
use crate::plan::loadbalancer::management::ManagementLevel;

/// The annotations of one Service.
pub type Annotations = annotations::Annotations<Name>;
/// One annotation of the table.
pub type Entry = annotations::Entry<Name>;

/// An attribute that an annotation sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Of listeners.
    Listener(ListenerField),
    /// Of server groups.
    Group(GroupField),
}

impl Field {
    /// The parameter's name in the API.
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Listener(field) => field.parameter(),
            Self::Group(field) => field.parameter(),
        }
    }

    /// Protocols whose listeners, or the groups of these, have it.
    pub const fn protocols(self) -> &'static [Protocol] {
        match self {
            Self::Listener(field) => field.protocols(),
            Self::Group(_) => Protocol::ALL,
        }
    }
}

const TRUE_FALSE: [&str; 2] = ["true", "false"];
const ADDRESS_TYPES: &[&str] = &["Internet", "Intranet"];

const fn ids(most: usize) -> ValueKind {
    Ids { most, empties: false }
}

const fn listener(field: ListenerField) -> Applies<Field> {
    Applies::Field(Field::Listener(field))
}

const fn group(field: GroupField) -> Applies<Field> {
    Applies::Field(Field::Group(field))
}

annotation_table! {
    others: (CLB_ONLY, "classic load balancers");
    Type: handling::TYPE, AnyValue, "", Applies::Routing, Routing,
        "without it, the load balancer serves until a classic one does; with another value it is kept, but no longer managed",
        "With `service.type_annotation`, `nlb` asks for a network load balancer, as the class `alibabacloud.com/nlb` always does.";
    BackendType: annotations::BACKEND_TYPE, OneOfOrLast(BACKEND_TYPES), "ecs",
        Applies::Backends, Backend, "server groups are replaced", "`eni` attaches pods directly; any other value attaches nodes.", file: "service.eni_backends", source: "official controller";

    ZoneMaps: Suffix("zone-maps"), ZoneMaps, "where most nodes are", Applies::Instance, Always,
        "zones are added and removed in place; vSwitch and addresses of a zone are fixed",
        "Zones, their vSwitches and addresses; IPv6 needs `ip-version` `DualStack`. Two zones, where the region has them.", file: "cloud.vswitches", source: "official controller";
    AddressType: Suffix("address-type"), AnyCase(ADDRESS_TYPES), "Internet", Applies::Instance, Always,
        "changed in place", "Whether the address is public or private.", file: "nlb.defaults.address_type", source: "`AddressType`";
    Ipv6AddressType: Suffix("ipv6-address-type"), AnyCase(ADDRESS_TYPES), "", Applies::Instance, Always, "changed in place",
        "Whether the IPv6 address is public or private; needs `ip-version` `DualStack`.", source: "`Ipv6AddressType`";
    IpVersion: Suffix("ip-version"), AnyCase(&["ipv4", "DualStack"]), "ipv4", Applies::Instance, Immutable,
        "a different value is a problem", "`DualStack` gives an IPv6 address, too.", source: "`AddressIpVersion`";
    Id: annotations::ID, Text, "", Applies::Instance, Always, "only while the Service has no address",
        "Uses this load balancer, which a user created, instead of creating one. It is never deleted.", removed: FixedAtCreation;
    ForceOverrideListeners: annotations::FORCE_OVERRIDE_LISTENERS, OneOfOrLast(&["true", "false"]), "off", Applies::Instance, Always,
        "switches the management of listeners", "With `id`, `true` overrides the listeners on ports of the Service, unless they belong to another Service or cluster.", removed: Default, source: "official controller";
    Manage: annotations::MANAGE, OneOf(ManagementLevel::VALUES), "all", Applies::Instance, Always,
        "takes effect at once; `plan` alone shows the rest; a load balancer that does not exist is created in any case",
        "What is kept in sync: `all`, or `listeners` with server groups, or `backends`, which are server groups alone.", removed: Default, source: "this program";
    LbName: Suffix("name"), LoadBalancerName { least: 2, most: 128, marks: &[".", "_", "-"] }, "`a` and the Service's UID", Applies::Instance, Always,
        "changed in place when set and different", "Visible name of the load balancer. It is not used to find the load balancer.", source: "`LoadBalancerName`";
    ResourceGroupId: Suffix("resource-group-id"), Text, "", Applies::Instance, Immutable,
        "a different value is a problem", "Resource group of a new load balancer, its server groups and its security group.", file: "cloud.resource_group_id", source: "`ResourceGroupId`";
    AdditionalResourceTags: Suffix("additional-resource-tags"), Tags, "", Applies::Instance, Always,
        "with at least one tag, the list is authoritative: other tags of users are removed, except those of the configuration", "Tags: `key=value,key=value`.", file: "nlb.defaults.tags", source: "`Tag`";
    DeleteProtection: Suffix("delete-protection"), Switch(ON_OFF), "on", Applies::Instance, Always,
        "changed in place when set and different", "Protection against deletion by others.", file: "nlb.defaults.delete_protection", at_once: true, source: "`DeletionProtectionEnabled`";
    ModificationProtection: Suffix("modification-protection"), OneOf(&["ConsoleProtection", "NonProtection"]),
        "ConsoleProtection", Applies::Instance, Always, "changed in place when set and different",
        "Protection against changes in the console.", file: "nlb.defaults.modification_protection", source: "`ModificationProtectionEnabled`";
    BandwidthPackageId: Suffix("bandwidth-package-id"), Ids { most: 1, empties: true }, "", Applies::Instance, Always,
        "changed in place; an empty value detaches, without the annotation it stays", "Bandwidth package of a public load balancer.", source: "`BandwidthPackageId`";
    CrossZoneEnabled: Suffix("cross-zone-enabled"), Switch(TRUE_FALSE), "", Applies::Instance, Always, "changed in place when set and different",
        "Whether backends in other zones get traffic, too.", source: "`CrossZoneEnabled`";
    SecurityGroupIds: Suffix("security-group-ids"), Ids { most: 4, empties: true }, "", Applies::Instance, Always,
        "joined, then left; an empty value leaves all, without the annotation they stay unchanged", "Security groups of the load balancer.", source: "`SecurityGroupIds`";
    PreserveLbOnDelete: annotations::PRESERVE_ON_DELETE, Presence, "off", Applies::Instance, Always,
        "takes effect when the Service is deleted", "Any value, even `false`, keeps the load balancer when the Service is deleted.", removed: Default, source: "official controller";

    ProtocolPort: Suffix("protocol-port"), AnyCaseProtocolPorts(&["tcp", "udp", "tcpssl"]), "the port's protocol", Applies::Listeners,
        Listener, "the listener is deleted and created again", "Protocols of listeners: `tcpssl:443,tcp:80`.", source: "official controller";
    ListenerPortRange: Suffix("listener-port-range"), PortRanges, "", Applies::Listeners, Listener,
        "the listener is deleted and created again", "Listeners on ranges of ports: `80-400:80`; needs `backend-type` `eni`.", source: "`StartPort`";
    IdleTimeout: Suffix("idle-timeout"), number(10, 900), "", listener(ListenerField::IdleTimeout), Listener,
        "changed in place when set and different", "Idle timeout in seconds; at most 20 with UDP.";
    Cps: Suffix("cps"), number_or_zero(1_000_000), "", listener(ListenerField::Cps), Listener,
        "changed in place when set and different", "New connections a second; 0 for no limit.";
    ProxyProtocol: Suffix("proxy-protocol"), Switch(TRUE_FALSE), "", listener(ListenerField::ProxyProtocol), Listener,
        "changed in place when set and different", "PROXY protocol version 2 towards backends.";
    Ppv2EndpointId: Suffix("ppv2-pvl-ep-id-enabled"), Switch(TRUE_FALSE), "", listener(ListenerField::Ppv2EndpointId), Listener,
        "changed in place when set and different", "Id of the PrivateLink endpoint in the PROXY protocol.";
    Ppv2EndpointServiceId: Suffix("ppv2-pvl-eps-id-enabled"), Switch(TRUE_FALSE), "", listener(ListenerField::Ppv2EndpointServiceId), Listener,
        "changed in place when set and different", "Id of the PrivateLink endpoint service in the PROXY protocol.";
    Ppv2VpcId: Suffix("ppv2-pvl-vpc-id-enabled"), Switch(TRUE_FALSE), "", listener(ListenerField::Ppv2VpcId), Listener,
        "changed in place when set and different", "Id of the VPC in the PROXY protocol.";
    CertId: Suffix("cert-id"), ids(1), "", listener(ListenerField::Certificate), Listener,
        "changed in place; removing the annotation keeps the certificate", "Server certificate. Needed for new TCPSSL listeners.";
    AdditionalCertIds: Suffix("additional-cert-ids"), Ids { most: 25, empties: true }, "", Applies::Listeners, Listener,
        "certificates are added, then removed; an empty value removes all, without the annotation they stay",
        "Additional certificates of TCPSSL listeners.", removed: Stays, source: "`AdditionalCertificateIds`";
    Cacert: Suffix("cacert"), Switch(TRUE_FALSE), "", listener(ListenerField::CaEnabled), Listener, "changed in place when set and different",
        "Whether clients need a certificate. `on` needs `cacert-id`.";
    CacertId: Suffix("cacert-id"), ids(1), "", listener(ListenerField::CaCertificate), Listener,
        "changed in place when set and different", "Certificate of the authority of client certificates.";
    TlsCipherPolicy: Suffix("tls-cipher-policy"), Text, "", listener(ListenerField::SecurityPolicy), Listener,
        "changed in place when set and different", "TLS versions and ciphers: `tls_cipher_policy_1_0`, `_1_1`, `_1_2`, `_1_2_strict`, `_1_2_strict_with_1_3`, or your own id.";
    Alpn: Suffix("alpn"), Switch(TRUE_FALSE), "", listener(ListenerField::Alpn), Listener, "changed in place when set and different",
        "Whether the application protocol is negotiated. `on` needs `alpn-policy`.";
    AlpnPolicy: Suffix("alpn-policy"), OneOf(&["HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred"]), "",
        listener(ListenerField::AlpnPolicy), Listener, "changed in place while `alpn` is `on`", "Application protocols.";

    ServerGroupType: Suffix("server-group-type"), AnyCase(&["Instance", "Ip"]), "Instance", group(GroupField::Type), Backend,
        "server groups are replaced", "`ip` attaches nodes and pods by their addresses alone.", removed: Default;
    Scheduler: Suffix("scheduler"), AnyCase(&["Wrr", "Wlc", "rr", "sch", "tch", "qch"]), "", group(GroupField::Scheduler), Backend,
        "changed in place when set and different", "How connections are distributed. `qch` needs UDP.";
    ConnectionDrain: Suffix("connection-drain"), Switch(TRUE_FALSE), "", group(GroupField::Drain), Backend,
        "changed in place when set and different", "Lets connections of removed backends end.";
    ConnectionDrainTimeout: Suffix("connection-drain-timeout"), number(10, 900), "10", group(GroupField::DrainTimeout), Backend,
        "changed in place when set and different", "Time to drain in seconds.";
    PreserveClientIp: Suffix("preserve-client-ip"), Switch(TRUE_FALSE), "", group(GroupField::PreserveClientIp), Backend,
        "changed in place when set and different", "Whether backends see the client's address; always off with TCPSSL.";
    HealthCheckFlag: Suffix("health-check-flag"), Switch(TRUE_FALSE), "", group(GroupField::HealthCheck), Backend,
        "changed in place when set and different", "Health checks. The other annotations about them count only with `on`.";
    HealthCheckType: Suffix("health-check-type"), AnyCase(&["TCP", "HTTP", "UDP"]), "", group(GroupField::HealthCheckType), Backend,
        "changed in place when set and different", "How backends are checked. UDP checks need UDP ports.";
    HealthCheckConnectPort: Suffix("health-check-connect-port"), number_or_zero(65_535), "", group(GroupField::HealthCheckPort),
        Backend, "changed in place when set and different", "Port of checks; 0 is the backend's own.";
    HealthyThreshold: Suffix("healthy-threshold"), number(2, 10), "", group(GroupField::HealthyThreshold), Backend,
        "changed in place when set and different", "Successes after which a backend is healthy.";
    UnhealthyThreshold: Suffix("unhealthy-threshold"), number(2, 10), "", group(GroupField::UnhealthyThreshold), Backend,
        "changed in place when set and different", "Failures after which a backend is unhealthy.";
    HealthCheckConnectTimeout: Suffix("health-check-connect-timeout"), number(1, 300), "", group(GroupField::HealthCheckTimeout),
        Backend, "changed in place when set and different", "Timeout of checks in seconds.";
    HealthCheckInterval: Suffix("health-check-interval"), number(1, 300), "", group(GroupField::HealthCheckInterval), Backend,
        "changed in place when set and different", "Seconds between checks; more than 50 only with UDP.";
    HealthCheckDomain: Suffix("health-check-domain"), HealthDomain("$SERVER_IP"), "", group(GroupField::HealthCheckDomain), Backend,
        "changed in place when set and different", "Host header of HTTP checks; `$SERVER_IP` is the backend's address.";
    HealthCheckUri: Suffix("health-check-uri"), HealthPath, "", group(GroupField::HealthCheckUrl), Backend,
        "changed in place when set and different", "Path of HTTP checks.";
    HealthCheckMethod: Suffix("health-check-method"), AnyCase(&["GET", "HEAD"]), "", group(GroupField::HealthCheckMethod), Backend,
        "changed in place when set and different", "Method of HTTP checks.";
    HealthCheckHttpCode: Suffix("health-check-httpcode"), HttpCodes, "", group(GroupField::HealthCheckCodes), Backend,
        "changed in place when set and different", "Answers that count as healthy: `http_2xx,http_3xx`.";
    HealthCheckHttpVersion: Suffix("health-check-http-version"), OneOf(&["HTTP1.0", "HTTP1.1"]), "",
        group(GroupField::HealthCheckHttpVersion), Backend, "changed in place when set and different", "Version of HTTP checks.";

    BackendLabel: Suffix("backend-label"), Labels, "all nodes", Applies::Backends, Backend, "backends are added and removed",
        "Only nodes with all of these labels: `key=value,key=value`.", source: "Kubernetes";
    RemoveUnscheduledBackend: Suffix("remove-unscheduled-backend"), Switch(ON_OFF), "off", Applies::Backends, Backend,
        "backends are added and removed", "`on` leaves cordoned nodes out.", source: "official controller";
    BackendIpVersion: Suffix("backend-ip-version"), AnyCase(&["ipv4", "ipv6", "dualstack"]), "ipv4", Applies::Backends, Backend,
        "server groups are replaced", "Which addresses are attached; `ipv6` and `dualstack` need `ip-version` `DualStack` and `service.ipv6`.", source: "official controller";
    VgroupPort: annotations::VGROUP_PORT, ServerGroupPorts, "", Applies::Backends, Backend, "backends move to the other group",
        "Existing server groups for ports: `sgp-id:443,sgp-id:80`; only with `id`.", source: "official controller";
    Weight: Suffix("weight"), number_or_zero(100), "", Applies::Backends, Backend, "weights are changed",
        "Weight shared by the group's backends; only with `id` and `vgroup-port`.", source: "`Weight`";
    DefaultWeight: Suffix("default-weight"), number_or_zero(100), "100", Applies::Backends, Backend, "weights are changed",
        "Weight of each backend, except with `externalTrafficPolicy: Local`.", source: "`Weight`";
    IgnoreWeightUpdate: Suffix("ignore-weight-update"), Switch(ON_OFF), "off", Applies::Backends, Backend,
        "weights stay unchanged", "With `on`, the weights of existing backends stay unchanged.", source: "official controller";
    GracefulShutdown: Suffix("graceful-shutdown"), LooseSwitch("true"), "off", Applies::Backends, Backend,
        "takes effect with the next termination",
        "`true` keeps terminating pods that still serve with weight 0. With `backend-type` `eni` and without `ignore-weight-update`.", source: "official controller";
}

/// Attributes of the load balancer.
pub(super) const INSTANCE: [(Name, InstanceField); 9] = [
    (Name::LbName, InstanceField::Name),
    (Name::CrossZoneEnabled, InstanceField::CrossZone),
    (Name::DeleteProtection, InstanceField::DeleteProtection),
    (Name::ModificationProtection, InstanceField::ModificationProtection),
    (Name::AddressType, InstanceField::AddressType),
    (Name::Ipv6AddressType, InstanceField::Ipv6AddressType),
    (Name::BandwidthPackageId, InstanceField::BandwidthPackage),
    (Name::IpVersion, InstanceField::IpVersion),
    (Name::ResourceGroupId, InstanceField::ResourceGroup),
];

/// Attributes of listeners of this protocol, as far as annotations set them.
pub(super) fn listener_fields(annotations: &Annotations, protocol: Protocol) -> ListenerFields {
    let stated = |entry: &Entry| match entry.applies {
        Applies::Field(Field::Listener(field)) if field.protocols().contains(&protocol) => {
            Some((field, annotations.text(entry.name)?))
        }
        _ => None,
    };
    let mut fields: ListenerFields = Name::TABLE.iter().filter_map(stated).collect();
    if fields.get(&ListenerField::Alpn).is_none_or(|alpn| alpn != "true") {
        fields.remove(&ListenerField::AlpnPolicy);
    }
    fields
}

/// Attributes of server groups, as far as annotations set them. Without health checks, nothing else about them counts.
pub(super) fn group_fields(annotations: &Annotations) -> GroupFields {
    let checked = annotations.is(Name::HealthCheckFlag, "true");
    let stated = |entry: &Entry| match entry.applies {
        Applies::Field(Field::Group(field)) => {
            let counts = checked || field == GroupField::HealthCheck || !field.is_of_health_check();
            Some((field, annotations.text(entry.name)?)).filter(|_| counts)
        }
        _ => None,
    };
    let mut fields: GroupFields = Name::TABLE.iter().filter_map(stated).collect();
    if let Some(codes) = fields.get_mut(&GroupField::HealthCheckCodes) {
        let mut list: Vec<&str> = codes.split(',').collect();
        list.sort_unstable();
        list.dedup();
        *codes = list.join(",");
    }
    fields
}

/// Keys of classic load balancers; ignored here, with a warning.
const CLB_ONLY: &str = "network-type vswitch-id master-zoneid slave-zoneid ip charge-type bandwidth instance-charge-type \
    spec hostname external-ip-type acl-status acl-id acl-type forward-port http2-enabled \
    request-timeout established-timeout persistence-timeout sticky-session sticky-session-type cookie \
    cookie-timeout xforwardedfor-proto xforwardedfor-slbport xforwardedfor-clientsrcport \
    domain-extensions health-check-switch health-check-timeout tunnel-type";
