//! Every action that this program can call: rate limits, metrics, error meaning and permissions come from this table.

use serde::Deserialize;

use super::FaultKind;
use super::endpoints::CloudProduct;

/// What an action can address; an answer "not found" means [`Gone`](super::FaultKind::Gone) only for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Object {
    /// ECS instance.
    Instance,
    /// Elastic network interface.
    Eni,
    /// VPC.
    Vpc,
    /// vSwitch.
    VSwitch,
    /// Route table.
    RouteTable,
    /// Route entry.
    RouteEntry,
    /// Load balancer, classic or network.
    LoadBalancer,
    /// Listener of a load balancer.
    Listener,
    /// Server group.
    ServerGroup,
    /// Certificate of an HTTPS listener.
    Certificate,
    /// Additional certificate of an HTTPS listener.
    DomainExtension,
    /// Access control list of classic load balancers.
    AccessList,
    /// Security group.
    SecurityGroup,
    /// Rule of a security group.
    SecurityRule,
    /// Private zone.
    PrivateZone,
    /// Record of a private zone.
    ZoneRecord,
}

/// One action of the vendor's API.
#[derive(Debug, PartialEq, Eq)]
pub struct Action {
    /// The vendor's name, such as `CreateLoadBalancer`. Products can share one.
    pub name: &'static str,
    /// Whose action it is.
    pub product: CloudProduct,
    /// Whether it changes anything.
    pub writes: bool,
    /// Published quota of the account in one region: so many calls
    pub calls: u32,
    /// in so many seconds.
    pub seconds: u32,
    /// Objects whose absence the caller asks about or acts upon.
    pub addresses: &'static [Object],
}

impl Action {
    /// The permission that the identity needs, as written in policies.
    pub fn permission(&self) -> String {
        format!("{}:{}", self.product.as_str(), self.name)
    }

    /// What a call without an answer, or with one that says nothing, comes to: a read can be repeated.
    pub(super) const fn unknown_fate(&self) -> FaultKind {
        if self.writes { FaultKind::Ambiguous } else { FaultKind::Transient }
    }
}

/// An action that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct ReadAction(pub &'static Action);

/// An action that changes something; the type keeps it from being called without a permit.
#[derive(Clone, Copy, Debug)]
pub struct WriteAction(pub &'static Action);

macro_rules! actions {
    ($($constant:ident = $access:ident $product:ident $name:literal $calls:literal / $seconds:literal [$($object:ident),*];)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: $access = $access(&Action {
                name: $name,
                product: CloudProduct::$product,
                writes: matches!(stringify!($access).as_bytes(), b"WriteAction"),
                calls: $calls,
                seconds: $seconds,
                addresses: &[$(Object::$object),*],
            });
        )*

        /// All of them.
        pub const ALL: &[&Action] = &[$($constant.0,)*];

        /// The names of all of them.
        pub const NAMES: &[&str] = &[$($name,)*];
    };
}

actions! {
    DESCRIBE_INSTANCES = ReadAction Ecs "DescribeInstances" 1000 / 60 [];
    DESCRIBE_NETWORK_INTERFACES = ReadAction Ecs "DescribeNetworkInterfaces" 1000 / 60 [Eni];
    MODIFY_NETWORK_INTERFACE = WriteAction Ecs "ModifyNetworkInterfaceAttribute" 1000 / 60 [Eni];
    DESCRIBE_DISKS = ReadAction Ecs "DescribeDisks" 1000 / 60 [];
    DESCRIBE_SECURITY_GROUPS = ReadAction Ecs "DescribeSecurityGroups" 300 / 60 [];
    DESCRIBE_SECURITY_GROUP = ReadAction Ecs "DescribeSecurityGroupAttribute" 300 / 60 [SecurityGroup];
    CREATE_SECURITY_GROUP = WriteAction Ecs "CreateSecurityGroup" 100 / 60 [];
    DELETE_SECURITY_GROUP = WriteAction Ecs "DeleteSecurityGroup" 100 / 60 [SecurityGroup];
    AUTHORIZE_SECURITY_GROUP = WriteAction Ecs "AuthorizeSecurityGroup" 100 / 60 [SecurityGroup];
    REVOKE_SECURITY_GROUP = WriteAction Ecs "RevokeSecurityGroup" 100 / 60 [SecurityGroup, SecurityRule];

    DESCRIBE_ROUTE_TABLES = ReadAction Vpc "DescribeRouteTableList" 600 / 60 [Vpc];
    DESCRIBE_ROUTE_ENTRIES = ReadAction Vpc "DescribeRouteEntryList" 600 / 60 [RouteTable];
    CREATE_ROUTE_ENTRIES = WriteAction Vpc "CreateRouteEntries" 300 / 60 [];
    DELETE_ROUTE_ENTRIES = WriteAction Vpc "DeleteRouteEntries" 300 / 60 [RouteEntry, RouteTable, Vpc];
    DESCRIBE_VPC = ReadAction Vpc "DescribeVpcAttribute" 600 / 60 [Vpc];
    DESCRIBE_VSWITCHES = ReadAction Vpc "DescribeVSwitches" 600 / 60 [Vpc];
    DESCRIBE_EIPS = ReadAction Vpc "DescribeEipAddresses" 600 / 60 [];

    DESCRIBE_LOAD_BALANCERS = ReadAction Slb "DescribeLoadBalancers" 3000 / 60 [];
    DESCRIBE_LOAD_BALANCER = ReadAction Slb "DescribeLoadBalancerAttribute" 3000 / 60 [LoadBalancer];
    CREATE_LOAD_BALANCER = WriteAction Slb "CreateLoadBalancer" 60 / 60 [];
    DELETE_LOAD_BALANCER = WriteAction Slb "DeleteLoadBalancer" 90 / 60 [LoadBalancer];
    SET_NAME = WriteAction Slb "SetLoadBalancerName" 90 / 60 [LoadBalancer];
    SET_DELETE_PROTECTION = WriteAction Slb "SetLoadBalancerDeleteProtection" 90 / 60 [LoadBalancer];
    SET_MODIFICATION_PROTECTION = WriteAction Slb "SetLoadBalancerModificationProtection" 90 / 60 [LoadBalancer];
    SET_INSTANCE_CHARGE_TYPE = WriteAction Slb "ModifyLoadBalancerInstanceChargeType" 90 / 60 [LoadBalancer];
    SET_SPEC = WriteAction Slb "ModifyLoadBalancerInstanceSpec" 90 / 60 [LoadBalancer];
    SET_INTERNET_SPEC = WriteAction Slb "ModifyLoadBalancerInternetSpec" 90 / 60 [LoadBalancer];
    TAG_RESOURCES = WriteAction Slb "TagResources" 90 / 60 [LoadBalancer];
    UNTAG_RESOURCES = WriteAction Slb "UntagResources" 90 / 60 [LoadBalancer];

    DESCRIBE_GROUPS = ReadAction Slb "DescribeVServerGroups" 3000 / 60 [LoadBalancer];
    DESCRIBE_GROUP = ReadAction Slb "DescribeVServerGroupAttribute" 3000 / 60 [LoadBalancer, ServerGroup];
    CREATE_GROUP = WriteAction Slb "CreateVServerGroup" 90 / 60 [LoadBalancer];
    DELETE_GROUP = WriteAction Slb "DeleteVServerGroup" 90 / 60 [LoadBalancer, ServerGroup];
    ADD_BACKENDS = WriteAction Slb "AddVServerGroupBackendServers" 90 / 60 [LoadBalancer, ServerGroup];
    REMOVE_BACKENDS = WriteAction Slb "RemoveVServerGroupBackendServers" 90 / 60 [LoadBalancer, ServerGroup];
    SET_BACKENDS = WriteAction Slb "SetVServerGroupAttribute" 90 / 60 [LoadBalancer, ServerGroup];

    DESCRIBE_LISTENERS = ReadAction Slb "DescribeLoadBalancerListeners" 3000 / 60 [LoadBalancer];
    CREATE_TCP_LISTENER = WriteAction Slb "CreateLoadBalancerTCPListener" 90 / 60 [LoadBalancer];
    CREATE_UDP_LISTENER = WriteAction Slb "CreateLoadBalancerUDPListener" 90 / 60 [LoadBalancer];
    CREATE_HTTP_LISTENER = WriteAction Slb "CreateLoadBalancerHTTPListener" 90 / 60 [LoadBalancer];
    CREATE_HTTPS_LISTENER = WriteAction Slb "CreateLoadBalancerHTTPSListener" 90 / 60 [LoadBalancer];
    SET_TCP_LISTENER = WriteAction Slb "SetLoadBalancerTCPListenerAttribute" 90 / 60 [LoadBalancer, Listener];
    SET_UDP_LISTENER = WriteAction Slb "SetLoadBalancerUDPListenerAttribute" 90 / 60 [LoadBalancer, Listener];
    SET_HTTP_LISTENER = WriteAction Slb "SetLoadBalancerHTTPListenerAttribute" 90 / 60 [LoadBalancer, Listener];
    SET_HTTPS_LISTENER = WriteAction Slb "SetLoadBalancerHTTPSListenerAttribute" 90 / 60 [LoadBalancer, Listener];
    START_LISTENER = WriteAction Slb "StartLoadBalancerListener" 90 / 60 [LoadBalancer, Listener];
    DELETE_LISTENER = WriteAction Slb "DeleteLoadBalancerListener" 90 / 60 [LoadBalancer, Listener];
    DESCRIBE_DOMAIN_EXTENSIONS = ReadAction Slb "DescribeDomainExtensions" 3000 / 60 [LoadBalancer, Listener];
    CREATE_DOMAIN_EXTENSION = WriteAction Slb "CreateDomainExtension" 90 / 60 [LoadBalancer, Listener];
    SET_DOMAIN_EXTENSION = WriteAction Slb "SetDomainExtensionAttribute" 90 / 60 [LoadBalancer, Listener, DomainExtension];
    DELETE_DOMAIN_EXTENSION = WriteAction Slb "DeleteDomainExtension" 90 / 60 [LoadBalancer, Listener, DomainExtension];
    DESCRIBE_CERTIFICATES = ReadAction Slb "DescribeServerCertificates" 3000 / 60 [Certificate];

    DESCRIBE_ACCESS_LISTS = ReadAction Slb "DescribeAccessControlLists" 3000 / 60 [];
    DESCRIBE_ACCESS_LIST = ReadAction Slb "DescribeAccessControlListAttribute" 3000 / 60 [AccessList];
    CREATE_ACCESS_LIST = WriteAction Slb "CreateAccessControlList" 90 / 60 [];
    DELETE_ACCESS_LIST = WriteAction Slb "DeleteAccessControlList" 90 / 60 [AccessList];
    ADD_ACCESS_ENTRIES = WriteAction Slb "AddAccessControlListEntry" 90 / 60 [AccessList];
    REMOVE_ACCESS_ENTRIES = WriteAction Slb "RemoveAccessControlListEntry" 90 / 60 [AccessList];

    LIST_NETWORK_LOAD_BALANCERS = ReadAction Nlb "ListLoadBalancers" 20 / 1 [];
    GET_NETWORK_LOAD_BALANCER = ReadAction Nlb "GetLoadBalancerAttribute" 20 / 1 [LoadBalancer];
    CREATE_NETWORK_LOAD_BALANCER = WriteAction Nlb "CreateLoadBalancer" 200 / 60 [];
    DELETE_NETWORK_LOAD_BALANCER = WriteAction Nlb "DeleteLoadBalancer" 200 / 60 [LoadBalancer];
    UPDATE_NETWORK_LOAD_BALANCER = WriteAction Nlb "UpdateLoadBalancerAttribute" 200 / 60 [LoadBalancer];
    UPDATE_ADDRESS_TYPE = WriteAction Nlb "UpdateLoadBalancerAddressTypeConfig" 200 / 60 [LoadBalancer];
    UPDATE_ZONES = WriteAction Nlb "UpdateLoadBalancerZones" 200 / 60 [LoadBalancer];
    UPDATE_PROTECTION = WriteAction Nlb "UpdateLoadBalancerProtection" 200 / 60 [LoadBalancer];
    ENABLE_IPV6_INTERNET = WriteAction Nlb "EnableLoadBalancerIpv6Internet" 200 / 60 [LoadBalancer];
    DISABLE_IPV6_INTERNET = WriteAction Nlb "DisableLoadBalancerIpv6Internet" 200 / 60 [LoadBalancer];
    ATTACH_BANDWIDTH_PACKAGE = WriteAction Nlb "AttachCommonBandwidthPackageToLoadBalancer" 200 / 60 [LoadBalancer];
    DETACH_BANDWIDTH_PACKAGE = WriteAction Nlb "DetachCommonBandwidthPackageFromLoadBalancer" 200 / 60 [LoadBalancer];
    JOIN_SECURITY_GROUP = WriteAction Nlb "LoadBalancerJoinSecurityGroup" 200 / 60 [LoadBalancer];
    LEAVE_SECURITY_GROUP = WriteAction Nlb "LoadBalancerLeaveSecurityGroup" 200 / 60 [LoadBalancer];
    TAG_NETWORK_RESOURCES = WriteAction Nlb "TagResources" 200 / 60 [LoadBalancer, ServerGroup];
    UNTAG_NETWORK_RESOURCES = WriteAction Nlb "UntagResources" 200 / 60 [LoadBalancer, ServerGroup];
    LIST_ASYN_JOBS = ReadAction Nlb "ListAsynJobs" 20 / 1 [];

    LIST_NETWORK_LISTENERS = ReadAction Nlb "ListListeners" 20 / 1 [];
    CREATE_NETWORK_LISTENER = WriteAction Nlb "CreateListener" 200 / 60 [LoadBalancer];
    UPDATE_NETWORK_LISTENER = WriteAction Nlb "UpdateListenerAttribute" 200 / 60 [Listener];
    DELETE_NETWORK_LISTENER = WriteAction Nlb "DeleteListener" 200 / 60 [Listener];
    START_NETWORK_LISTENER = WriteAction Nlb "StartListener" 200 / 60 [Listener];
    LIST_LISTENER_CERTIFICATES = ReadAction Nlb "ListListenerCertificates" 20 / 1 [Listener];
    ASSOCIATE_CERTIFICATES = WriteAction Nlb "AssociateAdditionalCertificatesWithListener" 200 / 60 [Listener];
    DISASSOCIATE_CERTIFICATES = WriteAction Nlb "DisassociateAdditionalCertificatesWithListener" 200 / 60 [Listener];

    LIST_SERVER_GROUPS = ReadAction Nlb "ListServerGroups" 20 / 1 [];
    CREATE_SERVER_GROUP = WriteAction Nlb "CreateServerGroup" 200 / 60 [];
    UPDATE_SERVER_GROUP = WriteAction Nlb "UpdateServerGroupAttribute" 200 / 60 [ServerGroup];
    DELETE_SERVER_GROUP = WriteAction Nlb "DeleteServerGroup" 200 / 60 [ServerGroup];
    LIST_SERVERS = ReadAction Nlb "ListServerGroupServers" 20 / 1 [ServerGroup];
    ADD_SERVERS = WriteAction Nlb "AddServersToServerGroup" 200 / 60 [ServerGroup];
    UPDATE_SERVERS = WriteAction Nlb "UpdateServerGroupServersAttribute" 200 / 60 [ServerGroup];
    REMOVE_SERVERS = WriteAction Nlb "RemoveServersFromServerGroup" 200 / 60 [ServerGroup];

    // The vendor publishes no quotas of this product.
    DESCRIBE_ZONES = ReadAction Pvtz "DescribeZones" 300 / 60 [];
    DESCRIBE_ZONE = ReadAction Pvtz "DescribeZoneInfo" 300 / 60 [PrivateZone];
    DESCRIBE_ZONE_RECORDS = ReadAction Pvtz "DescribeZoneRecords" 300 / 60 [PrivateZone];
    ADD_ZONE_RECORD = WriteAction Pvtz "AddZoneRecord" 300 / 60 [];
    UPDATE_ZONE_RECORD = WriteAction Pvtz "UpdateZoneRecord" 300 / 60 [ZoneRecord];
    DELETE_ZONE_RECORD = WriteAction Pvtz "DeleteZoneRecord" 300 / 60 [ZoneRecord];

    ASSUME_ROLE = ReadAction Sts "AssumeRole" 600 / 60 [];
    ASSUME_ROLE_WITH_OIDC = ReadAction Sts "AssumeRoleWithOIDC" 600 / 60 [];
    GET_CALLER_IDENTITY = ReadAction Sts "GetCallerIdentity" 600 / 60 [];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_action_is_listed_once_with_a_quota_and_a_permission() {
        let permissions: BTreeSet<_> = ALL.iter().map(|action| action.permission()).collect();
        assert_eq!(permissions.len(), ALL.len(), "rate limits are kept by product and name");
        assert!(ALL.iter().all(|action| action.calls > 0 && action.seconds > 0));
        assert_eq!(CREATE_LOAD_BALANCER.0.permission(), "slb:CreateLoadBalancer");
        assert_eq!(DESCRIBE_VSWITCHES.0.permission(), "vpc:DescribeVSwitches");
    }

    #[test]
    fn what_only_describes_or_assumes_does_not_write() {
        for action in ALL {
            let reads = ["Describe", "Get", "List", "Assume"].iter().any(|prefix| action.name.starts_with(prefix));
            assert_eq!(action.writes, !reads, "{}", action.name);
        }
    }
}
