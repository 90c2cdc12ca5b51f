//! ECS (version 2014-05-26): instances and network interfaces.

use std::collections::BTreeMap;

use super::{Call, Fault};
use crate::fence::Permit;

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
    pub tags: BTreeMap<String, String>,
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

/// What [`Ecs::describe_instances`] looks for.
#[derive(Clone, Debug)]
pub enum InstanceFilter {
    /// By instance id; any number, asked for in hundreds.
    Ids(Vec<String>),
    /// By private address within a VPC; any number, asked for in hundreds.
    PrivateIps {
        /// The VPC.
        vpc_id: String,
        /// IPv4 addresses.
        ips: Vec<String>,
    },
    /// By display name within a VPC (exact).
    Name {
        /// The VPC.
        vpc_id: String,
        /// The display name.
        name: String,
    },
}

/// Calls to ECS.
#[derive(Clone, Debug)]
pub struct Ecs(pub(super) Call);

#[expect(clippy::unused_async, unused_variables, clippy::todo, clippy::missing_errors_doc)]
impl Ecs {
    /// Instances in `region`. Ids that do not exist are absent from the result, which proves nothing by itself: a missing
    /// permission gives an empty list too, see [`Self::may_describe_instances`].
    pub async fn describe_instances(&self, region: &str, filter: &InstanceFilter) -> Result<Vec<Instance>, Fault> {
        todo!()
    }

    /// Whether this identity really may list instances, by a dry run: `Ok(())` only if the cloud said so.
    pub async fn may_describe_instances(&self, region: &str) -> Result<(), Fault> {
        todo!()
    }

    /// Interfaces by id, asked for in hundreds.
    pub async fn describe_network_interfaces(
        &self,
        region: &str,
        ids: &[String],
    ) -> Result<Vec<NetworkInterface>, Fault> {
        todo!()
    }

    /// Interfaces in use in a VPC that hold any of the addresses (IPv4 and IPv6 mixed), asked for in hundreds.
    pub async fn find_network_interfaces(
        &self,
        region: &str,
        vpc_id: &str,
        ips: &[std::net::IpAddr],
    ) -> Result<Vec<NetworkInterface>, Fault> {
        todo!()
    }

    /// Switches the source/destination check of an interface off.
    pub async fn disable_source_dest_check(&self, permit: &Permit, region: &str, eni: &str) -> Result<(), Fault> {
        todo!()
    }
}
