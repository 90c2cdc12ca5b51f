//! Annotations of classic load balancers: the one table, from which parsing, validation and the reference page follow.

#[cfg(test)]
mod tests;

use super::model::{InstanceField, ListenerField as Field, ListenerFields, Protocol};
use crate::plan::loadbalancer::annotations::AnnotationKey::Suffix;
use crate::plan::loadbalancer::annotations::values::ValueKind::{
    AclIds, Address, AnyCase, AnyValue, Cookie, DomainExtensions, ForwardPorts, HealthDomain, HealthPath, HostName,
    HttpCodes, Integer, Labels, LoadBalancerName, LooseSwitch, OneOf, OneOfGrowing, OneOfOrLast, Presence,
    ProtocolPorts, ServerGroupPorts, Switch, Tags, Text,
};
use crate::plan::loadbalancer::annotations::values::{ON_OFF, ZeroMeans, number, number_or_zero};
use crate::plan::loadbalancer::annotations::{self, AnnotationName, Applies, BACKEND_TYPES, annotation_table};
use crate::plan::loadbalancer::handling;
use crate::plan::loadbalancer::management::ManagementLevel;

/// The annotations of one Service.
pub type Annotations = annotations::Annotations<Name>;
/// One annotation of the table.
pub type Entry = annotations::Entry<Name>;

annotation_table! {
    others: (NLB_ONLY, "network load balancers");
    Class: handling::CLASS, AnyValue, "", Applies::Routing, Routing,
        "the load balancer is kept, but no longer managed", "Any value hands the Service to another controller.";
    Type: handling::TYPE, AnyValue, "", Applies::Routing, Routing,
        "with `nlb`, the load balancer serves until a network load balancer does; otherwise it is kept, but no longer managed",
        "Any value hands the Service to another controller, if `service.type_annotation` is on in the configuration.";
    TunnelType: handling::TUNNEL_TYPE, AnyValue, "", Applies::Routing, Routing,
        "the load balancer is kept, but no longer managed",
        "Its presence, even with an empty value, hands the Service to another controller.";
    BackendType: annotations::BACKEND_TYPE, OneOfOrLast(BACKEND_TYPES), "ecs", Applies::Backends,
        Backend, "server groups are replaced", "`eni` attaches pods directly; any other value attaches nodes.", file: "service.eni_backends", source: "official controller";

    AddressType: Suffix("address-type"), OneOf(&["internet", "intranet"]), "internet", Applies::Instance, Immutable,
        "a different value is a problem: delete the Service and create it again", "Whether the address is public or private.", file: "service.defaults.address_type", source: "`AddressType`";
    Id: annotations::ID, Text, "", Applies::Instance, Always, "only while the Service has no address",
        "Uses this load balancer, which a user created, instead of creating one. It is never deleted.", removed: FixedAtCreation;
    ForceOverrideListeners: annotations::FORCE_OVERRIDE_LISTENERS, OneOfOrLast(&["true", "false"]), "off", Applies::Instance, Always,
        "switches the management of listeners", "With `id`, `true` overrides the listeners on ports of the Service, unless they belong to another Service or cluster.", removed: Default, source: "official controller";
    Manage: annotations::MANAGE, OneOf(ManagementLevel::VALUES), "all", Applies::Instance, Always,
        "takes effect at once; `plan` alone shows the rest; a load balancer that does not exist is created in any case",
        "What is kept in sync: `all`, or `listeners` with server groups, or `backends`, which are server groups alone.", removed: Default, source: "this program";
    LbName: Suffix("name"), LoadBalancerName { least: 1, most: 80, marks: &[".", "_", "-", "/"] }, "`a` and the Service's UID", Applies::Instance, Always,
        "changed in place when set and different", "Visible name of the load balancer. It is not used to find the load balancer.", source: "`LoadBalancerName`";
    ResourceGroupId: Suffix("resource-group-id"), Text, "", Applies::Instance, Immutable,
        "a different value is a problem", "Resource group of a new load balancer.", file: "cloud.resource_group_id", source: "`ResourceGroupId`";
    AdditionalResourceTags: Suffix("additional-resource-tags"), Tags, "", Applies::Instance, Always,
        "with at least one tag, the list is authoritative: other tags of users are removed, except those of the configuration", "Tags: `key=value,key=value`.", file: "service.defaults.tags", source: "`Tag`";
    DeleteProtection: Suffix("delete-protection"), Switch(ON_OFF), "on", Applies::Instance, Always,
        "changed in place when set and different", "Protection against deletion by others.", file: "service.defaults.delete_protection", source: "`DeleteProtection`";
    ModificationProtection: Suffix("modification-protection"), OneOf(&["ConsoleProtection", "NonProtection"]),
        "ConsoleProtection", Applies::Instance, Always, "changed in place when set and different",
        "Protection against changes in the console.", file: "service.defaults.modification_protection", source: "`ModificationProtectionStatus`";
    VswitchId: Suffix("vswitch-id"), Text, "", Applies::Instance, Creation,
        "no effect, with a warning: delete the Service and create it again",
        "vSwitch of a new intranet load balancer.", file: "cloud.vswitches", source: "`VSwitchId`";
    NetworkType: Suffix("network-type"), OneOf(&["classic", "vpc"]), "", Applies::Instance, Immutable,
        "a different value is a problem", "`classic` makes an intranet load balancer without a vSwitch.", source: "official controller";
    Ip: Suffix("ip"), Address, "", Applies::Instance, Immutable, "a different value is a problem",
        "Private address of a new intranet load balancer.", source: "`Address`";
    IpVersion: Suffix("ip-version"), OneOf(&["ipv4", "ipv6"]), "ipv4", Applies::Instance, Immutable,
        "a different value is a problem; unset counts as `ipv4`", "Version of the address.", source: "`AddressIPVersion`";
    MasterZoneid: Suffix("master-zoneid"), Text, "where most nodes are", Applies::Instance, Immutable, "a different value is a problem",
        "Primary zone.", file: "service.defaults.master_zone", source: "`MasterZoneId`";
    SlaveZoneid: Suffix("slave-zoneid"), Text, "where the second most nodes are", Applies::Instance, Immutable, "a different value is a problem",
        "Secondary zone.", file: "service.defaults.slave_zone", source: "`SlaveZoneId`";
    ChargeType: Suffix("charge-type"), OneOf(&["paybytraffic", "paybybandwidth"]), "", Applies::Instance, Always,
        "changed in place on internet load balancers that are not `PayByCLCU`", "How internet traffic is charged.", file: "service.defaults.internet_charge_type", source: "`InternetChargeType`";
    Bandwidth: Suffix("bandwidth"), number(1, 5120), "", Applies::Instance, Always,
        "changed in place with `charge-type` `paybybandwidth`", "Peak bandwidth in Mbit/s.", file: "service.defaults.bandwidth", source: "`Bandwidth`";
    InstanceChargeType: Suffix("instance-charge-type"), AnyCase(&["PayBySpec", "PayByCLCU"]), "PayByCLCU",
        Applies::Instance, Always, "`PayBySpec` can become `PayByCLCU`, not the other way", "How the instance is charged.", file: "service.defaults.instance_charge_type", source: "`InstanceChargeType`";
    Spec: Suffix("spec"), Text, "`slb.s1.small` with `PayBySpec`", Applies::Instance, Always,
        "changed in place with `PayBySpec`", "Specification, such as `slb.s2.small`. Without effect with `PayByCLCU`.", file: "service.defaults.spec", source: "`LoadBalancerSpec`";
    PreserveLbOnDelete: annotations::PRESERVE_ON_DELETE, Presence, "off", Applies::Instance, Always,
        "takes effect when the Service is deleted", "Any value, even `false`, keeps the load balancer when the Service is deleted.", removed: Default, source: "official controller";
    ExternalIpType: Suffix("external-ip-type"), OneOf(&["eip"]), "", Applies::Instance, Always, "changes the status",
        "`eip` publishes the elastic addresses bound to the load balancer.", removed: Default, source: "official controller";
    Hostname: Suffix("hostname"), HostName, "", Applies::Instance, Always, "changes the status",
        "Published in the status instead of an address.", removed: Default, source: "Kubernetes";

    ProtocolPort: Suffix("protocol-port"), ProtocolPorts(&["tcp", "udp", "http", "https"]), "the port's protocol", Applies::Listeners, Listener,
        "the listener is deleted and created again", "Protocols of listeners: `https:443,http:80`.", source: "official controller";
    ForwardPort: Suffix("forward-port"), ForwardPorts, "", Applies::Listeners, Listener,
        "the listener is deleted and created again", "HTTP ports that redirect to HTTPS ports: `80:443`.", source: "official controller";
    DomainExtensions: Suffix("domain-extensions"), DomainExtensions, "", Applies::Listeners, Listener,
        "certificates are added, changed and removed; an empty value removes all, without the annotation they stay",
        "Additional certificates of HTTPS listeners: `domain:certificate,domain:certificate`.", removed: Stays, source: "official controller";
    Scheduler: Suffix("scheduler"), OneOf(&["rr", "wrr", "wlc", "sch", "tch", "qch"]), "rr", Applies::Field(Field::Scheduler),
        Listener, "changed in place; to `sch`, `tch` and `qch` by deleting the listener and creating it again",
        "How connections are distributed. Weights count with `wrr` and `wlc`. `sch` and `tch` need TCP or UDP, `qch` needs UDP.", file: "service.defaults.scheduler";
    PersistenceTimeout: Suffix("persistence-timeout"), number_or_zero(3600), "", Applies::Field(Field::PersistenceTimeout),
        Listener, "changed in place when set and different", "Seconds for which a source address keeps its backend; 0 switches it off.";
    EstablishedTimeout: Suffix("established-timeout"), number(10, 900), "", Applies::Field(Field::EstablishedTimeout), Listener,
        "changed in place when set and different", "Idle timeout of established connections in seconds.";
    IdleTimeout: Suffix("idle-timeout"), number(1, 60), "", Applies::Field(Field::IdleTimeout), Listener,
        "changed in place when set and different", "Idle timeout in seconds.";
    RequestTimeout: Suffix("request-timeout"), number(1, 180), "", Applies::Field(Field::RequestTimeout), Listener,
        "changed in place when set and different", "Seconds after which a request is answered with 504.";
    CertId: Suffix("cert-id"), Text, "", Applies::Field(Field::ServerCertificateId), Listener,
        "changed in place if the new certificate exists and is valid; removing the annotation keeps the certificate",
        "Server certificate. Needed for new HTTPS listeners.";
    TlsCipherPolicy: Suffix("tls-cipher-policy"), OneOfGrowing(&["tls_cipher_policy_1_0", "tls_cipher_policy_1_1", "tls_cipher_policy_1_2",
        "tls_cipher_policy_1_2_strict", "tls_cipher_policy_1_2_strict_with_1_3"]), "", Applies::Field(Field::TlsCipherPolicy), Listener,
        "changed in place when set and different", "TLS versions and ciphers.";
    Http2Enabled: Suffix("http2-enabled"), Switch(ON_OFF), "", Applies::Field(Field::EnableHttp2), Listener,
        "changed in place when set and different", "HTTP/2 towards clients.";
    ProxyProtocol: Suffix("proxy-protocol"), LooseSwitch("on"), "", Applies::Field(Field::ProxyProtocolV2Enabled), Listener,
        "changed in place when set and different", "PROXY protocol version 2 towards backends. Any other value than `on` is off.";
    AclStatus: Suffix("acl-status"), Switch(ON_OFF), "", Applies::Field(Field::AclStatus), Listener,
        "changed in place when set and different", "Access control. `on` needs `acl-id` and `acl-type`.";
    AclId: Suffix("acl-id"), AclIds, "", Applies::Field(Field::AclId), Listener,
        "changed in place while `acl-status` is `on`; the order does not matter", "Access control lists, separated by commas.";
    AclType: Suffix("acl-type"), OneOf(&["white", "black"]), "", Applies::Field(Field::AclType), Listener,
        "changed in place while `acl-status` is `on`", "Whether the lists allow or deny.";
    ConnectionDrain: Suffix("connection-drain"), Switch(ON_OFF), "", Applies::Field(Field::ConnectionDrain), Listener,
        "changed in place when set and different", "Lets connections of removed backends end. `on` needs `connection-drain-timeout`.";
    ConnectionDrainTimeout: Suffix("connection-drain-timeout"), number(10, 900), "", Applies::Field(Field::ConnectionDrainTimeout),
        Listener, "changed in place while `connection-drain` is `on`", "Time to drain in seconds.";
    StickySession: Suffix("sticky-session"), Switch(ON_OFF), "off", Applies::Field(Field::StickySession), Listener,
        "changed in place when set and different", "Session persistence by cookie. `on` needs `sticky-session-type`.";
    StickySessionType: Suffix("sticky-session-type"), OneOf(&["insert", "server"]), "", Applies::Field(Field::StickySessionType),
        Listener, "changed in place while sessions are sticky", "`insert` needs `cookie-timeout`, `server` needs `cookie`.";
    Cookie: Suffix("cookie"), Cookie, "", Applies::Field(Field::Cookie), Listener,
        "changed in place with `sticky-session-type` `server`", "Name of the backend's own cookie.";
    CookieTimeout: Suffix("cookie-timeout"), number(1, 86_400), "", Applies::Field(Field::CookieTimeout), Listener,
        "changed in place with `sticky-session-type` `insert`", "Life of the inserted cookie in seconds.";
    XForwardedForProto: Suffix("xforwardedfor-proto"), Switch(ON_OFF), "", Applies::Field(Field::XForwardedForProto), Listener,
        "changed in place when set and different", "Header `X-Forwarded-Proto`.";
    XForwardedForSlbPort: Suffix("xforwardedfor-slbport"), Switch(ON_OFF), "", Applies::Field(Field::XForwardedForSlbPort),
        Listener, "changed in place when set and different", "Header `X-Forwarded-Port`.";
    XForwardedForClientSrcPort: Suffix("xforwardedfor-clientsrcport"), Switch(ON_OFF), "",
        Applies::Field(Field::XForwardedForClientSrcPort), Listener, "changed in place when set and different",
        "Header `X-Forwarded-Client-srcport`.";
    HealthCheckSwitch: Suffix("health-check-switch"), Switch(ON_OFF), "", Applies::Field(Field::HealthCheckSwitch), Listener,
        "changed in place when set and different", "Health checks of TCP and UDP listeners.";
    HealthCheckFlag: Suffix("health-check-flag"), Switch(ON_OFF), "off", Applies::Field(Field::HealthCheck), Listener,
        "changed in place when set and different", "Health checks of HTTP and HTTPS listeners.";
    HealthCheckType: Suffix("health-check-type"), OneOf(&["tcp", "http"]), "", Applies::Field(Field::HealthCheckType), Listener,
        "changed in place when set and different", "How TCP listeners check.";
    HealthCheckUri: Suffix("health-check-uri"), HealthPath, "", Applies::Field(Field::HealthCheckUri), Listener,
        "changed in place with HTTP checks", "Path of HTTP checks.";
    HealthCheckConnectPort: Suffix("health-check-connect-port"), Integer { min: 1, max: 65_535, zero: ZeroMeans::BackendPort }, "",
        Applies::Field(Field::HealthCheckConnectPort), Listener, "changed in place when set and different",
        "Port of checks; -520 is the backend's own.";
    HealthyThreshold: Suffix("healthy-threshold"), number(2, 10), "", Applies::Field(Field::HealthyThreshold), Listener,
        "changed in place when set and different", "Successes after which a backend is healthy.";
    UnhealthyThreshold: Suffix("unhealthy-threshold"), number(2, 10), "", Applies::Field(Field::UnhealthyThreshold), Listener,
        "changed in place when set and different", "Failures after which a backend is unhealthy.";
    HealthCheckInterval: Suffix("health-check-interval"), number(1, 50), "", Applies::Field(Field::HealthCheckInterval), Listener,
        "changed in place when set and different", "Seconds between checks.";
    HealthCheckConnectTimeout: Suffix("health-check-connect-timeout"), number(1, 300), "",
        Applies::Field(Field::HealthCheckConnectTimeout), Listener, "changed in place when set and different",
        "Timeout of checks of TCP and UDP listeners in seconds.";
    HealthCheckTimeout: Suffix("health-check-timeout"), number(1, 300), "", Applies::Field(Field::HealthCheckTimeout), Listener,
        "changed in place when set and different", "Timeout of checks of HTTP and HTTPS listeners in seconds.";
    HealthCheckDomain: Suffix("health-check-domain"), HealthDomain("$_ip"), "", Applies::Field(Field::HealthCheckDomain), Listener,
        "changed in place with HTTP checks", "Host header of HTTP checks; `$_ip` is the backend's address.";
    HealthCheckHttpCode: Suffix("health-check-httpcode"), HttpCodes, "", Applies::Field(Field::HealthCheckHttpCode), Listener,
        "changed in place with HTTP checks", "Answers that count as healthy: `http_2xx,http_3xx`.";
    HealthCheckMethod: Suffix("health-check-method"), OneOf(&["get", "head"]), "", Applies::Field(Field::HealthCheckMethod), Listener,
        "changed in place while checks are on", "Method of HTTP checks.";

    BackendLabel: Suffix("backend-label"), Labels, "all nodes", Applies::Backends, Backend, "backends are added and removed",
        "Only nodes with all of these labels: `key=value,key=value`.", source: "Kubernetes";
    RemoveUnscheduledBackend: Suffix("remove-unscheduled-backend"), Switch(ON_OFF), "off", Applies::Backends, Backend,
        "backends are added and removed", "`on` leaves cordoned nodes out.", source: "official controller";
    BackendIpVersion: Suffix("backend-ip-version"), AnyCase(&["ipv4", "ipv6"]), "ipv4", Applies::Backends, Backend,
        "backends are replaced", "`ipv6` attaches IPv6 addresses; needs `ip-version` `ipv6` and `service.ipv6`.", source: "official controller";
    VgroupPort: annotations::VGROUP_PORT, ServerGroupPorts, "", Applies::Backends, Backend, "backends move to the other group",
        "Existing server groups for ports: `rsp-id:443,rsp-id:80`; only with `id`.", source: "official controller";
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

/// How many of [`INSTANCE`] cannot be changed.
pub(super) const FIXED: usize = 7;

/// Attributes of the load balancer, those first that cannot be changed.
pub(super) const INSTANCE: [(Name, InstanceField); 14] = [
    (Name::MasterZoneid, InstanceField::MasterZone),
    (Name::SlaveZoneid, InstanceField::SlaveZone),
    (Name::AddressType, InstanceField::AddressType),
    (Name::IpVersion, InstanceField::IpVersion),
    (Name::ResourceGroupId, InstanceField::ResourceGroup),
    (Name::NetworkType, InstanceField::NetworkType),
    (Name::Ip, InstanceField::Address),
    (Name::LbName, InstanceField::Name),
    (Name::InstanceChargeType, InstanceField::ChargeType),
    (Name::Spec, InstanceField::Spec),
    (Name::ChargeType, InstanceField::InternetChargeType),
    (Name::Bandwidth, InstanceField::Bandwidth),
    (Name::DeleteProtection, InstanceField::DeleteProtection),
    (Name::ModificationProtection, InstanceField::ModificationProtection),
];

/// Attributes of listeners of this protocol, as far as annotations set them.
pub(super) fn listener_fields(annotations: &Annotations, protocol: Protocol) -> ListenerFields {
    let stated = |entry: &Entry| match entry.applies {
        Applies::Field(field) if field.protocols().contains(&protocol) => Some((field, annotations.text(entry.name)?)),
        _ => None,
    };
    Name::TABLE.iter().filter_map(stated).collect()
}

/// The protocol that the annotation states for the listener on a port.
pub(super) fn stated_protocol(annotations: &Annotations, port: u16) -> Option<Protocol> {
    annotations.at_port(Name::ProtocolPort, port).and_then(Protocol::parse)
}

/// The HTTPS port to which the annotation redirects an HTTP port.
pub(super) fn stated_forward(annotations: &Annotations, port: u16) -> Option<u16> {
    annotations.at_port(Name::ForwardPort, port)?.parse().ok()
}

/// Keys of network load balancers; ignored here, with a warning.
const NLB_ONLY: &str = "zone-maps security-group-ids bandwidth-package-id ipv6-address-type cross-zone-enabled cacert \
    cacert-id cps preserve-client-ip server-group-type alpn alpn-policy listener-port-range \
    additional-cert-ids ppv2-pvl-ep-id-enabled ppv2-pvl-eps-id-enabled ppv2-pvl-vpc-id-enabled";
