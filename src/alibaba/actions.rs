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
pub struct Read(pub &'static Action);

/// An action that changes something; the type keeps it from being called without a permit.
#[derive(Clone, Copy, Debug)]
pub struct Write(pub &'static Action);

macro_rules! actions {
    ($($constant:ident = $access:ident $product:ident $name:literal $per_minute:literal [$($object:ident),*];)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: $access = $access(&Action {
                name: $name,
                product: Product::$product,
                writes: matches!(stringify!($access).as_bytes(), b"Write"),
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
    DESCRIBE_INSTANCES = Read Ecs "DescribeInstances" 1000 [];
    DESCRIBE_NETWORK_INTERFACES = Read Ecs "DescribeNetworkInterfaces" 1000 [Eni];
    MODIFY_NETWORK_INTERFACE = Write Ecs "ModifyNetworkInterfaceAttribute" 1000 [Eni];

    DESCRIBE_ROUTE_TABLES = Read Vpc "DescribeRouteTableList" 600 [Vpc];
    DESCRIBE_ROUTE_ENTRIES = Read Vpc "DescribeRouteEntryList" 600 [RouteTable];
    CREATE_ROUTE_ENTRIES = Write Vpc "CreateRouteEntries" 300 [];
    DELETE_ROUTE_ENTRIES = Write Vpc "DeleteRouteEntries" 300 [RouteEntry, RouteTable, Vpc];
    DESCRIBE_VPC = Read Vpc "DescribeVpcAttribute" 600 [Vpc];
    DESCRIBE_VSWITCHES = Read Vpc "DescribeVSwitches" 600 [Vpc];
    DESCRIBE_EIPS = Read Vpc "DescribeEipAddresses" 600 [];

    DESCRIBE_LOAD_BALANCERS = Read Slb "DescribeLoadBalancers" 3000 [];
    DESCRIBE_LOAD_BALANCER = Read Slb "DescribeLoadBalancerAttribute" 3000 [LoadBalancer];
    CREATE_LOAD_BALANCER = Write Slb "CreateLoadBalancer" 60 [];
    DELETE_LOAD_BALANCER = Write Slb "DeleteLoadBalancer" 90 [LoadBalancer];
    SET_NAME = Write Slb "SetLoadBalancerName" 90 [LoadBalancer];
    SET_DELETE_PROTECTION = Write Slb "SetLoadBalancerDeleteProtection" 90 [LoadBalancer];
    SET_MODIFICATION_PROTECTION = Write Slb "SetLoadBalancerModificationProtection" 90 [LoadBalancer];
    SET_INSTANCE_CHARGE_TYPE = Write Slb "ModifyLoadBalancerInstanceChargeType" 90 [LoadBalancer];
    SET_SPEC = Write Slb "ModifyLoadBalancerInstanceSpec" 90 [LoadBalancer];
    SET_INTERNET_SPEC = Write Slb "ModifyLoadBalancerInternetSpec" 90 [LoadBalancer];
    TAG_RESOURCES = Write Slb "TagResources" 90 [LoadBalancer];
    UNTAG_RESOURCES = Write Slb "UntagResources" 90 [LoadBalancer];

    DESCRIBE_GROUPS = Read Slb "DescribeVServerGroups" 3000 [LoadBalancer];
    DESCRIBE_GROUP = Read Slb "DescribeVServerGroupAttribute" 3000 [LoadBalancer, ServerGroup];
    CREATE_GROUP = Write Slb "CreateVServerGroup" 90 [LoadBalancer];
    DELETE_GROUP = Write Slb "DeleteVServerGroup" 90 [LoadBalancer, ServerGroup];
    ADD_BACKENDS = Write Slb "AddVServerGroupBackendServers" 90 [LoadBalancer, ServerGroup];
    REMOVE_BACKENDS = Write Slb "RemoveVServerGroupBackendServers" 90 [LoadBalancer, ServerGroup];
    SET_BACKENDS = Write Slb "SetVServerGroupAttribute" 90 [LoadBalancer, ServerGroup];

    DESCRIBE_LISTENERS = Read Slb "DescribeLoadBalancerListeners" 3000 [LoadBalancer];
    CREATE_TCP_LISTENER = Write Slb "CreateLoadBalancerTCPListener" 90 [LoadBalancer];
    CREATE_UDP_LISTENER = Write Slb "CreateLoadBalancerUDPListener" 90 [LoadBalancer];
    CREATE_HTTP_LISTENER = Write Slb "CreateLoadBalancerHTTPListener" 90 [LoadBalancer];
    CREATE_HTTPS_LISTENER = Write Slb "CreateLoadBalancerHTTPSListener" 90 [LoadBalancer];
    SET_TCP_LISTENER = Write Slb "SetLoadBalancerTCPListenerAttribute" 90 [LoadBalancer, Listener];
    SET_UDP_LISTENER = Write Slb "SetLoadBalancerUDPListenerAttribute" 90 [LoadBalancer, Listener];
    SET_HTTP_LISTENER = Write Slb "SetLoadBalancerHTTPListenerAttribute" 90 [LoadBalancer, Listener];
    SET_HTTPS_LISTENER = Write Slb "SetLoadBalancerHTTPSListenerAttribute" 90 [LoadBalancer, Listener];
    START_LISTENER = Write Slb "StartLoadBalancerListener" 90 [LoadBalancer, Listener];
    DELETE_LISTENER = Write Slb "DeleteLoadBalancerListener" 90 [LoadBalancer, Listener];
    DESCRIBE_DOMAIN_EXTENSIONS = Read Slb "DescribeDomainExtensions" 3000 [LoadBalancer, Listener];
    CREATE_DOMAIN_EXTENSION = Write Slb "CreateDomainExtension" 90 [LoadBalancer, Listener];
    SET_DOMAIN_EXTENSION = Write Slb "SetDomainExtensionAttribute" 90 [LoadBalancer, Listener, DomainExtension];
    DELETE_DOMAIN_EXTENSION = Write Slb "DeleteDomainExtension" 90 [LoadBalancer, Listener, DomainExtension];
    DESCRIBE_CERTIFICATES = Read Slb "DescribeServerCertificates" 3000 [Certificate];

    DESCRIBE_ACCESS_LISTS = Read Slb "DescribeAccessControlLists" 3000 [];
    DESCRIBE_ACCESS_LIST = Read Slb "DescribeAccessControlListAttribute" 3000 [AccessList];
    CREATE_ACCESS_LIST = Write Slb "CreateAccessControlList" 90 [];
    DELETE_ACCESS_LIST = Write Slb "DeleteAccessControlList" 90 [AccessList];
    ADD_ACCESS_ENTRIES = Write Slb "AddAccessControlListEntry" 90 [AccessList];
    REMOVE_ACCESS_ENTRIES = Write Slb "RemoveAccessControlListEntry" 90 [AccessList];

    ASSUME_ROLE = Read Sts "AssumeRole" 600 [];
    ASSUME_ROLE_WITH_OIDC = Read Sts "AssumeRoleWithOIDC" 600 [];
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
