//! ECS (version 2014-05-26): instances, network interfaces, disks and security groups.

mod security_group;

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use super::actions::{DESCRIBE_DISKS, DESCRIBE_INSTANCES, DESCRIBE_NETWORK_INTERFACES, MODIFY_NETWORK_INTERFACE};
use super::answer::{Fields, Mismatch};
use super::client::SigningClient;
use super::fault::{Fault, FaultKind};
use super::request::{Request, unique};
use crate::fence::Permit;
use crate::plan::node::instance::{Instance, NetworkInterface};
use crate::plan::volume::CloudDisk;

/// Ids or addresses in one call.
const CHUNK: usize = 100;

/// Entries in one page.
const PAGE: u32 = 100;

/// The smallest that the API takes.
const SMALLEST_PAGE: u32 = 10;

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
    /// All of this VPC.
    Vpc(String),
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
        let request = || {
            let request = self.0.read(DESCRIBE_INSTANCES).to(region);
            request.with("AdditionalAttributes.1", "NETWORK_PRIMARY_ENI_IP").with("MaxResults", PAGE)
        };
        let read = async |request: Request<'_>| request.by_token("Instances", instance).await;
        let mut instances = Vec::new();
        match filter {
            InstanceFilter::Ids(ids) => {
                // An empty list is never sent: it would match nothing.
                for chunk in ids.chunks(CHUNK) {
                    instances.extend(read(request().with("InstanceIds", Value::from(chunk))).await?);
                }
            }
            InstanceFilter::PrivateIps { vpc_id, ips } => {
                for chunk in ips.chunks(CHUNK) {
                    let in_vpc = request().with("VpcId", vpc_id).with("InstanceNetworkType", "vpc");
                    instances.extend(read(in_vpc.with("PrivateIpAddresses", Value::from(chunk))).await?);
                }
            }
            InstanceFilter::Vpc(vpc_id) => instances = read(request().with("VpcId", vpc_id)).await?,
        }
        Ok(unique(instances, |instance| &instance.id))
    }

    /// Whether this identity really may list instances, by a dry run: `Ok(())` only if the cloud said so.
    ///
    /// # Errors
    /// [`FaultKind::Denied`] if it may not, or if the cloud does not say; otherwise as any call.
    pub async fn may_describe_instances(&self, region: &str) -> Result<(), Fault> {
        let request = self.0.read(DESCRIBE_INSTANCES).to(region);
        let answer = request.with("MaxResults", SMALLEST_PAGE).with("DryRun", true).send().await?;
        // A gateway that knows no dry run answers with a list; only a list with something in it proves the permission.
        if answer.dry_run_passed || !answer.decode(|body| body.list("Instances", |_| Ok(())))?.is_empty() {
            return Ok(());
        }
        let unproven = answer.unusable("the dry run gave no answer about the permission ecs:DescribeInstances");
        Err(Fault { kind: FaultKind::Denied, ..unproven })
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
            let request = self.interfaces(region).list("NetworkInterfaceId", chunk);
            interfaces.extend(request.by_token("NetworkInterfaceSets", interface).await?);
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
                let request = self.interfaces(region).with("VpcId", vpc_id).with("Status", "InUse");
                interfaces.extend(request.list(parameter, chunk).by_token("NetworkInterfaceSets", interface).await?);
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

    /// Disks in `region` by id, asked for in hundreds. Ids that do not exist there are absent from the result, and so are all
    /// where the permission is missing.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_disks(&self, region: &str, ids: &[String]) -> Result<Vec<CloudDisk>, Fault> {
        let mut disks = Vec::new();
        for chunk in ids.chunks(CHUNK) {
            let request = self.0.read(DESCRIBE_DISKS).to(region).with("MaxResults", PAGE);
            disks.extend(request.with("DiskIds", Value::from(chunk)).by_token("Disks", disk).await?);
        }
        Ok(unique(disks, |disk| &disk.id))
    }

    /// Switches the source/destination check of an interface off.
    ///
    /// # Errors
    /// As any write.
    pub async fn disable_source_dest_check(&self, permit: &Permit, region: &str, eni: &str) -> Result<(), Fault> {
        let request = self.0.write(permit, MODIFY_NETWORK_INTERFACE).to(region);
        request.with("NetworkInterfaceId", eni).with("SourceDestCheck", false).done().await
    }

    fn interfaces<'a>(&'a self, region: &'a str) -> Request<'a> {
        self.0.read(DESCRIBE_NETWORK_INTERFACES).to(region).with("MaxResults", PAGE)
    }
}

fn instance(body: Fields<'_>) -> Result<Instance, Mismatch> {
    let vpc = body.object("VpcAttributes")?;
    let kind_and_addresses = |interface: Fields<'_>| {
        let addresses = interface.list("Ipv6Sets", |ip| ip.text("Ipv6Address"))?;
        Ok((interface.text("Type")?, interface.text("NetworkInterfaceId")?, addresses))
    };
    let mut interfaces = body.list("NetworkInterfaces", kind_and_addresses)?;
    let primary = interfaces.iter().position(|(kind, ..)| kind.eq_ignore_ascii_case("primary"));
    let (_, primary_eni, ipv6_addresses) = match (primary, interfaces.len()) {
        (Some(index), _) => interfaces.swap_remove(index),
        (None, 1) => interfaces.swap_remove(0),
        (None, _) => Default::default(),
    };
    Ok(Instance {
        id: body.text("InstanceId")?,
        name: body.text("InstanceName")?,
        host_name: body.text("HostName")?,
        status: body.text("Status")?,
        instance_type: body.text("InstanceType")?,
        region: body.text("RegionId")?,
        zone: body.text("ZoneId")?,
        vpc_id: vpc.text("VpcId")?,
        vswitch_id: vpc.text("VSwitchId")?,
        charge_type: body.text("InstanceChargeType")?,
        spot_strategy: body.text("SpotStrategy")?,
        public_ips: body.texts("PublicIpAddress")?,
        eip: body.object("EipAddress")?.text("IpAddress")?,
        inner_ips: body.texts("InnerIpAddress")?,
        private_ips: vpc.texts("PrivateIpAddress")?,
        ipv6_addresses,
        primary_eni,
        tags: body.tags()?,
    })
}

fn disk(body: Fields<'_>) -> Result<CloudDisk, Mismatch> {
    Ok(CloudDisk { id: body.text("DiskId")?, region: body.text("RegionId")?, zone: body.text("ZoneId")? })
}

fn interface(body: Fields<'_>) -> Result<NetworkInterface, Mismatch> {
    let primary = body.text("PrivateIpAddress")?;
    let mut ipv4 = body.list("PrivateIpSets", |ip| ip.text("PrivateIpAddress"))?;
    if !primary.is_empty() && !ipv4.contains(&primary) {
        ipv4.insert(0, primary);
    }
    Ok(NetworkInterface {
        id: body.text("NetworkInterfaceId")?,
        instance_id: body.text("InstanceId")?,
        source_dest_check: body.flag("SourceDestCheck")?,
        ipv4,
        ipv6: body.list("Ipv6Sets", |ip| ip.text("Ipv6Address"))?,
    })
}

#[cfg(test)]
mod tests;
