//! ECS (version 2014-05-26): instances and network interfaces.

use std::collections::HashSet;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::actions::{DESCRIBE_INSTANCES, DESCRIBE_NETWORK_INTERFACES, MODIFY_NETWORK_INTERFACE};
use super::client::SigningClient;
use super::decode::{Flag, List, Nested, Tag, Text, tags, texts};
use super::paging::{by_token, unique};
use super::signing::Params;
use super::{Fault, FaultKind};
use crate::fence::Permit;
use crate::plan::node::instance::{Instance, NetworkInterface};

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
pub struct Ecs(pub(super) SigningClient);

impl Ecs {
    /// Instances in `region`. Ids that do not exist are absent from the result, which proves nothing by itself: a missing
    /// permission gives an empty list too, see [`Self::may_describe_instances`].
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_instances(&self, region: &str, filter: &InstanceFilter) -> Result<Vec<Instance>, Fault> {
        let in_vpc = |vpc_id: &str| Params::new().with("VpcId", vpc_id).with("InstanceNetworkType", "vpc");
        let mut instances = Vec::new();
        match filter {
            InstanceFilter::Ids(ids) => {
                // An empty list is never sent: it would match nothing.
                for chunk in ids.chunks(CHUNK) {
                    let params = Params::new().with("InstanceIds", Value::from(chunk));
                    instances.extend(self.instances(region, params).await?);
                }
            }
            InstanceFilter::PrivateIps { vpc_id, ips } => {
                for chunk in ips.chunks(CHUNK) {
                    let params = in_vpc(vpc_id).with("PrivateIpAddresses", Value::from(chunk));
                    instances.extend(self.instances(region, params).await?);
                }
            }
            InstanceFilter::Name { vpc_id, name } => {
                instances =
                    self.instances(region, Params::new().with("VpcId", vpc_id).with("InstanceName", name)).await?;
                // A star in the name would have been taken for a wildcard.
                instances.retain(|instance| instance.name == *name);
            }
        }
        Ok(unique(instances, |instance| &instance.id))
    }

    /// Whether this identity really may list instances, by a dry run: `Ok(())` only if the cloud said so.
    ///
    /// # Errors
    /// [`FaultKind::Denied`] if it may not, or if the cloud does not say; otherwise as any call.
    pub async fn may_describe_instances(&self, region: &str) -> Result<(), Fault> {
        let params = Params::new().with("MaxResults", SMALLEST_PAGE).with("DryRun", true);
        let answer = self.0.read_in(region, DESCRIBE_INSTANCES, params).await?;
        if answer.dry_run_passed {
            return Ok(());
        }
        // A gateway that knows no dry run answers with a list; only a list with something in it proves the permission.
        let unproven = answer.bug("the dry run gave no answer about the permission ecs:DescribeInstances");
        match answer.decode::<InstancesBody>()?.instances.0.is_empty() {
            false => Ok(()),
            true => Err(Fault { kind: FaultKind::Denied, ..unproven }),
        }
    }

    /// Interfaces by id, asked for in hundreds.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_network_interfaces(
        &self,
        region: &str,
        ids: &[String],
    ) -> Result<Vec<NetworkInterface>, Fault> {
        let mut interfaces = Vec::new();
        for chunk in ids.chunks(CHUNK) {
            interfaces.extend(self.interfaces(region, Params::new().list("NetworkInterfaceId", chunk)).await?);
        }
        Ok(unique(interfaces, |interface| &interface.id))
    }

    /// Interfaces in use in a VPC that hold any of the addresses (IPv4 and IPv6 mixed), asked for in hundreds.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_network_interfaces(
        &self,
        region: &str,
        vpc_id: &str,
        ips: &[IpAddr],
    ) -> Result<Vec<NetworkInterface>, Fault> {
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = ips.iter().partition(|ip| ip.is_ipv4());
        let mut interfaces = Vec::new();
        for (parameter, addresses) in [("PrivateIpAddress", v4), ("Ipv6Address", v6)] {
            for chunk in addresses.chunks(CHUNK) {
                let params = Params::new().with("VpcId", vpc_id).with("Status", "InUse").list(parameter, chunk);
                interfaces.extend(self.interfaces(region, params).await?);
            }
        }
        let asked: HashSet<_> = ips.iter().collect();
        let holds_any = |interface: &NetworkInterface| {
            let mut held = interface.ipv4.iter().chain(&interface.ipv6).filter_map(|ip| ip.parse::<IpAddr>().ok());
            held.any(|ip| asked.contains(&ip))
        };
        interfaces.retain(holds_any);
        Ok(unique(interfaces, |interface| &interface.id))
    }

    /// Switches the source/destination check of an interface off.
    ///
    /// # Errors
    /// As any write.
    pub async fn disable_source_dest_check(&self, permit: &Permit, region: &str, eni: &str) -> Result<(), Fault> {
        let params = Params::new().with("NetworkInterfaceId", eni).with("SourceDestCheck", false);
        self.0.write_in(permit, region, MODIFY_NETWORK_INTERFACE, params).await.map(drop)
    }

    async fn instances(&self, region: &str, params: Params) -> Result<Vec<Instance>, Fault> {
        let params = params.with("AdditionalAttributes.1", "NETWORK_PRIMARY_ENI_IP").with("MaxResults", PAGE);
        by_token(|token| {
            let params = params.clone().with("NextToken", token);
            async move {
                let answer = self.0.read_in(region, DESCRIBE_INSTANCES, params).await?;
                let body: InstancesBody = answer.decode()?;
                Ok((body.instances.0.into_iter().map(Instance::from).collect(), body.next_token.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(DESCRIBE_INSTANCES.0))
    }

    async fn interfaces(&self, region: &str, params: Params) -> Result<Vec<NetworkInterface>, Fault> {
        let params = params.with("MaxResults", PAGE);
        by_token(|token| {
            let params = params.clone().with("NextToken", token);
            async move {
                let answer = self.0.read_in(region, DESCRIBE_NETWORK_INTERFACES, params).await?;
                let body: InterfacesBody = answer.decode()?;
                Ok((body.network_interface_sets.0.into_iter().map(NetworkInterface::from).collect(), body.next_token.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(DESCRIBE_NETWORK_INTERFACES.0))
    }
}

/// Ids or addresses in one call.
const CHUNK: usize = 100;

/// Entries in one page.
const PAGE: u32 = 100;

/// The smallest that the API takes.
const SMALLEST_PAGE: u32 = 10;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InstancesBody {
    instances: List<InstanceBody>,
    next_token: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InstanceBody {
    instance_id: Text,
    instance_name: Text,
    host_name: Text,
    status: Text,
    instance_type: Text,
    region_id: Text,
    zone_id: Text,
    instance_charge_type: Text,
    spot_strategy: Text,
    public_ip_address: List<Text>,
    inner_ip_address: List<Text>,
    eip_address: Nested<EipBody>,
    vpc_attributes: Nested<VpcBody>,
    network_interfaces: List<InterfaceBody>,
    tags: List<Tag>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EipBody {
    ip_address: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VpcBody {
    vpc_id: Text,
    #[serde(rename = "VSwitchId")]
    vswitch_id: Text,
    private_ip_address: List<Text>,
}

impl From<InstanceBody> for Instance {
    fn from(body: InstanceBody) -> Self {
        let vpc = body.vpc_attributes.0;
        let mut interfaces = body.network_interfaces.0;
        let primary = interfaces.iter().position(|interface| interface.r#type.0.eq_ignore_ascii_case("primary"));
        let primary = match (primary, interfaces.len()) {
            (Some(index), _) => interfaces.swap_remove(index),
            (None, 1) => interfaces.swap_remove(0),
            (None, _) => InterfaceBody::default(),
        };
        Self {
            id: body.instance_id.0,
            name: body.instance_name.0,
            host_name: body.host_name.0,
            status: body.status.0,
            instance_type: body.instance_type.0,
            region: body.region_id.0,
            zone: body.zone_id.0,
            vpc_id: vpc.vpc_id.0,
            vswitch_id: vpc.vswitch_id.0,
            charge_type: body.instance_charge_type.0,
            spot_strategy: body.spot_strategy.0,
            public_ips: texts(body.public_ip_address),
            eip: body.eip_address.0.ip_address.0,
            inner_ips: texts(body.inner_ip_address),
            private_ips: texts(vpc.private_ip_address),
            ipv6_addresses: primary.ipv6_sets.0.into_iter().map(|ip| ip.ipv6_address.0).collect(),
            primary_eni: primary.network_interface_id.0,
            tags: tags(body.tags),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InterfacesBody {
    network_interface_sets: List<InterfaceBody>,
    next_token: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InterfaceBody {
    network_interface_id: Text,
    r#type: Text,
    instance_id: Text,
    source_dest_check: Flag,
    private_ip_address: Text,
    private_ip_sets: List<PrivateIpBody>,
    ipv6_sets: List<Ipv6Body>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PrivateIpBody {
    private_ip_address: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Ipv6Body {
    ipv6_address: Text,
}

impl From<InterfaceBody> for NetworkInterface {
    fn from(body: InterfaceBody) -> Self {
        let primary = body.private_ip_address.0;
        let mut ipv4: Vec<_> = body.private_ip_sets.0.into_iter().map(|ip| ip.private_ip_address.0).collect();
        if !primary.is_empty() && !ipv4.contains(&primary) {
            ipv4.insert(0, primary);
        }
        Self {
            id: body.network_interface_id.0,
            instance_id: body.instance_id.0,
            source_dest_check: body.source_dest_check.0,
            ipv4,
            ipv6: body.ipv6_sets.0.into_iter().map(|ip| ip.ipv6_address.0).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
