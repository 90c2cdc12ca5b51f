//! Every action that this program can call: rate limits, metrics, error meaning and permissions come from this table.

use super::endpoints::Product;

/// What an action can address; an answer "not found" means [`Gone`](super::FaultKind::Gone) only for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Classic load balancer.
    LoadBalancer,
    /// Listener of a classic load balancer.
    Listener,
    /// Server group of a classic load balancer.
    ServerGroup,
    /// Certificate of an HTTPS listener.
    Certificate,
    /// Additional certificate of an HTTPS listener.
    DomainExtension,
    /// Access control list of classic load balancers.
    AccessList,
}

/// One action of the vendor's API.
#[derive(Debug, PartialEq, Eq)]
pub struct Action {
    /// The vendor's name, such as `CreateLoadBalancer`.
    pub name: &'static str,
    /// Whose action it is.
    pub product: Product,
    /// Whether it changes anything.
    pub writes: bool,
    /// Published quota of the account in one region, calls in 60 seconds.
    pub per_minute: u32,
    /// Objects whose absence the caller asks about or acts upon.
    pub addresses: &'static [Object],
}

impl Action {
    /// The permission that the identity needs, as written in policies.
    #[must_use]
    pub fn permission(&self) -> String {
        format!("{}:{}", self.product.as_str(), self.name)
    }
}

/// An action that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct ReadAction(pub &'static Action);

/// An action that changes something; the type keeps it from being called without a permit.
#[derive(Clone, Copy, Debug)]
pub struct WriteAction(pub &'static Action);

macro_rules! actions {
    ($($constant:ident = $access:ident $product:ident $name:literal $per_minute:literal [$($object:ident),*];)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: $access = $access(&Action {
                name: $name,
                product: Product::$product,
                writes: matches!(stringify!($access).as_bytes(), b"WriteAction"),
                per_minute: $per_minute,
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
    DESCRIBE_INSTANCES = ReadAction Ecs "DescribeInstances" 1000 [];
    DESCRIBE_NETWORK_INTERFACES = ReadAction Ecs "DescribeNetworkInterfaces" 1000 [Eni];
    MODIFY_NETWORK_INTERFACE = WriteAction Ecs "ModifyNetworkInterfaceAttribute" 1000 [Eni];

    DESCRIBE_ROUTE_TABLES = ReadAction Vpc "DescribeRouteTableList" 600 [Vpc];
    DESCRIBE_ROUTE_ENTRIES = ReadAction Vpc "DescribeRouteEntryList" 600 [RouteTable];
    CREATE_ROUTE_ENTRIES = WriteAction Vpc "CreateRouteEntries" 300 [];
    DELETE_ROUTE_ENTRIES = WriteAction Vpc "DeleteRouteEntries" 300 [RouteEntry, RouteTable, Vpc];
    DESCRIBE_VPC = ReadAction Vpc "DescribeVpcAttribute" 600 [Vpc];
    DESCRIBE_VSWITCHES = ReadAction Vpc "DescribeVSwitches" 600 [Vpc];
    DESCRIBE_EIPS = ReadAction Vpc "DescribeEipAddresses" 600 [];

    DESCRIBE_LOAD_BALANCERS = ReadAction Slb "DescribeLoadBalancers" 3000 [];
    DESCRIBE_LOAD_BALANCER = ReadAction Slb "DescribeLoadBalancerAttribute" 3000 [LoadBalancer];
    CREATE_LOAD_BALANCER = WriteAction Slb "CreateLoadBalancer" 60 [];
    DELETE_LOAD_BALANCER = WriteAction Slb "DeleteLoadBalancer" 90 [LoadBalancer];
    SET_NAME = WriteAction Slb "SetLoadBalancerName" 90 [LoadBalancer];
    SET_DELETE_PROTECTION = WriteAction Slb "SetLoadBalancerDeleteProtection" 90 [LoadBalancer];
    SET_MODIFICATION_PROTECTION = WriteAction Slb "SetLoadBalancerModificationProtection" 90 [LoadBalancer];
    SET_INSTANCE_CHARGE_TYPE = WriteAction Slb "ModifyLoadBalancerInstanceChargeType" 90 [LoadBalancer];
    SET_SPEC = WriteAction Slb "ModifyLoadBalancerInstanceSpec" 90 [LoadBalancer];
    SET_INTERNET_SPEC = WriteAction Slb "ModifyLoadBalancerInternetSpec" 90 [LoadBalancer];
    TAG_RESOURCES = WriteAction Slb "TagResources" 90 [LoadBalancer];
    UNTAG_RESOURCES = WriteAction Slb "UntagResources" 90 [LoadBalancer];

    DESCRIBE_GROUPS = ReadAction Slb "DescribeVServerGroups" 3000 [LoadBalancer];
    DESCRIBE_GROUP = ReadAction Slb "DescribeVServerGroupAttribute" 3000 [LoadBalancer, ServerGroup];
    CREATE_GROUP = WriteAction Slb "CreateVServerGroup" 90 [LoadBalancer];
    DELETE_GROUP = WriteAction Slb "DeleteVServerGroup" 90 [LoadBalancer, ServerGroup];
    ADD_BACKENDS = WriteAction Slb "AddVServerGroupBackendServers" 90 [LoadBalancer, ServerGroup];
    REMOVE_BACKENDS = WriteAction Slb "RemoveVServerGroupBackendServers" 90 [LoadBalancer, ServerGroup];
    SET_BACKENDS = WriteAction Slb "SetVServerGroupAttribute" 90 [LoadBalancer, ServerGroup];

    DESCRIBE_LISTENERS = ReadAction Slb "DescribeLoadBalancerListeners" 3000 [LoadBalancer];
    CREATE_TCP_LISTENER = WriteAction Slb "CreateLoadBalancerTCPListener" 90 [LoadBalancer];
    CREATE_UDP_LISTENER = WriteAction Slb "CreateLoadBalancerUDPListener" 90 [LoadBalancer];
    CREATE_HTTP_LISTENER = WriteAction Slb "CreateLoadBalancerHTTPListener" 90 [LoadBalancer];
    CREATE_HTTPS_LISTENER = WriteAction Slb "CreateLoadBalancerHTTPSListener" 90 [LoadBalancer];
    SET_TCP_LISTENER = WriteAction Slb "SetLoadBalancerTCPListenerAttribute" 90 [LoadBalancer, Listener];
    SET_UDP_LISTENER = WriteAction Slb "SetLoadBalancerUDPListenerAttribute" 90 [LoadBalancer, Listener];
    SET_HTTP_LISTENER = WriteAction Slb "SetLoadBalancerHTTPListenerAttribute" 90 [LoadBalancer, Listener];
    SET_HTTPS_LISTENER = WriteAction Slb "SetLoadBalancerHTTPSListenerAttribute" 90 [LoadBalancer, Listener];
    START_LISTENER = WriteAction Slb "StartLoadBalancerListener" 90 [LoadBalancer, Listener];
    DELETE_LISTENER = WriteAction Slb "DeleteLoadBalancerListener" 90 [LoadBalancer, Listener];
    DESCRIBE_DOMAIN_EXTENSIONS = ReadAction Slb "DescribeDomainExtensions" 3000 [LoadBalancer, Listener];
    CREATE_DOMAIN_EXTENSION = WriteAction Slb "CreateDomainExtension" 90 [LoadBalancer, Listener];
    SET_DOMAIN_EXTENSION = WriteAction Slb "SetDomainExtensionAttribute" 90 [LoadBalancer, Listener, DomainExtension];
    DELETE_DOMAIN_EXTENSION = WriteAction Slb "DeleteDomainExtension" 90 [LoadBalancer, Listener, DomainExtension];
    DESCRIBE_CERTIFICATES = ReadAction Slb "DescribeServerCertificates" 3000 [Certificate];

    DESCRIBE_ACCESS_LISTS = ReadAction Slb "DescribeAccessControlLists" 3000 [];
    DESCRIBE_ACCESS_LIST = ReadAction Slb "DescribeAccessControlListAttribute" 3000 [AccessList];
    CREATE_ACCESS_LIST = WriteAction Slb "CreateAccessControlList" 90 [];
    DELETE_ACCESS_LIST = WriteAction Slb "DeleteAccessControlList" 90 [AccessList];
    ADD_ACCESS_ENTRIES = WriteAction Slb "AddAccessControlListEntry" 90 [AccessList];
    REMOVE_ACCESS_ENTRIES = WriteAction Slb "RemoveAccessControlListEntry" 90 [AccessList];

    ASSUME_ROLE = ReadAction Sts "AssumeRole" 600 [];
    ASSUME_ROLE_WITH_OIDC = ReadAction Sts "AssumeRoleWithOIDC" 600 [];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_action_is_listed_once_with_a_quota_and_a_permission() {
        let names: BTreeSet<_> = ALL.iter().map(|action| action.name).collect();
        assert_eq!(names.len(), ALL.len(), "rate limits are kept by name");
        assert!(ALL.iter().all(|action| action.per_minute > 0));
        assert_eq!(CREATE_LOAD_BALANCER.0.permission(), "slb:CreateLoadBalancer");
        assert_eq!(DESCRIBE_VSWITCHES.0.permission(), "vpc:DescribeVSwitches");
    }

    #[test]
    fn what_only_describes_or_assumes_does_not_write() {
        for action in ALL {
            let reads = ["Describe", "Assume"].iter().any(|prefix| action.name.starts_with(prefix));
            assert_eq!(action.writes, !reads, "{}", action.name);
        }
    }
}
