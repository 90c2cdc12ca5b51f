//! Instances and network interfaces, as ECS describes them.

use litemap::LiteMap;

/// An ECS instance, reduced to what nodes need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// `i-...`
    pub id: String,
    /// Display name.
    pub name: String,
    /// Host name of the operating system.
    pub host_name: String,
    /// `Pending`, `Starting`, `Running`, `Stopping`, `Stopped`
    pub status: String,
    /// Such as `ecs.g7.large`.
    pub instance_type: String,
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// Such as `cn-hangzhou-i`.
    pub zone: String,
    /// Empty for classic network.
    pub vpc_id: String,
    /// Empty for classic network.
    pub vswitch_id: String,
    /// `PostPaid` or `PrePaid`
    pub charge_type: String,
    /// `NoSpot`, `SpotWithPriceLimit`, `SpotAsPriceGo`
    pub spot_strategy: String,
    /// `PublicIpAddress`
    pub public_ips: Vec<String>,
    /// `EipAddress`, empty if none.
    pub eip: String,
    /// `InnerIpAddress`, classic network.
    pub inner_ips: Vec<String>,
    /// `VpcAttributes.PrivateIpAddress`
    pub private_ips: Vec<String>,
    /// IPv6 addresses of the primary interface.
    pub ipv6_addresses: Vec<String>,
    /// The primary interface, empty if the answer does not name it.
    pub primary_eni: String,
    /// All tags.
    pub tags: LiteMap<String, String>,
}

/// An elastic network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkInterface {
    /// `eni-...`
    pub id: String,
    /// The instance it is attached to, empty if none.
    pub instance_id: String,
    /// `None` where the region does not know the check.
    pub source_dest_check: Option<bool>,
    /// All IPv4 addresses, the primary one included.
    pub ipv4: Vec<String>,
    /// All IPv6 addresses.
    pub ipv6: Vec<String>,
}
