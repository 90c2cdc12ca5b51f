//! VPC (version 2016-04-28): route tables, route entries, vSwitches, EIPs.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use ipnet::IpNet;

use super::actions::{
    Action, CREATE_ROUTE_ENTRIES, DELETE_ROUTE_ENTRIES, DESCRIBE_EIPS, DESCRIBE_ROUTE_ENTRIES, DESCRIBE_ROUTE_TABLES,
    DESCRIBE_VPC, DESCRIBE_VSWITCHES, WriteAction,
};
use super::answer::{Fields, Mismatch, block};
use super::client::SigningClient;
use super::errors;
use super::fault::{Fault, FaultKind};
use super::request::{Request, unique};
use crate::fence::Permit;
use crate::plan::route::entry::{RouteEntry, RouteItem};

/// Entries in one batch.
const MOST_ROUTES: usize = 50;
/// Largest page of route tables and vSwitches.
const SMALL_PAGE: usize = 50;
/// Largest page of EIPs that is documented without doubt.
const LARGE_PAGE: usize = 100;
/// The same for route entries.
const ROUTES_PAGE: usize = 500;

/// Kinds of next hops besides instances. The list of entries is of one kind at a time, by default of instances (OpenAPI of
/// `DescribeRouteEntryList` and `CreateRouteEntry`).
const OTHER_NEXT_HOPS: &str = "HaVip RouterInterface NetworkInterface VpnGateway IPv6Gateway NatGateway Attachment VpcPeer \
    Ipv4Gateway GatewayEndpoint Ecr GatewayLoadBalancerEndpoint RouteTargetGroup";

/// A route table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// `vtb-...`
    pub id: String,
    /// `System` or `Custom`
    pub kind: String,
}

/// Why one entry of a batch failed although the call succeeded.
#[derive(Clone, Debug)]
pub struct ItemFault {
    /// Index into the items that were given.
    pub index: usize,
    /// How to react.
    pub kind: FaultKind,
    /// The vendor's code.
    pub code: String,
    /// The vendor's message.
    pub message: String,
}

/// A vSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VSwitch {
    /// `vsw-...`
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// Its VPC.
    pub vpc_id: String,
    /// Its address range.
    pub cidr: String,
    /// Free addresses.
    pub available_ips: u64,
}

/// Address ranges of a VPC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VpcAttributes {
    /// Primary, secondary and IPv6 ranges.
    pub cidrs: Vec<IpNet>,
}

/// Calls to VPC.
#[derive(Clone, Debug)]
pub struct Vpc(pub(super) SigningClient);

impl Vpc {
    /// All route tables of a VPC, every page.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such VPC.
    pub async fn describe_route_tables(&self, vpc_id: &str) -> Result<Vec<RouteTable>, Fault> {
        let request = self.0.read(DESCRIBE_ROUTE_TABLES).with("VpcId", vpc_id);
        Ok(unique(request.numbered("RouterTableList", SMALL_PAGE, route_table).await?, |table| &table.id))
    }

    /// All custom entries of a table whose next hop is an instance, every page. Entries whose destination is not an
    /// address range, such as a prefix list, are left out.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such table.
    pub async fn describe_route_entries(&self, table_id: &str) -> Result<Vec<RouteEntry>, Fault> {
        self.entries_to("Instance", table_id).await
    }

    /// The same of every other kind of next hop.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_other_route_entries(&self, table_id: &str) -> Result<Vec<RouteEntry>, Fault> {
        let list = |kind| async move {
            match self.entries_to(kind, table_id).await {
                // A kind that the region does not know.
                Err(fault) if fault.kind == FaultKind::Rejected => Ok(Vec::new()),
                listed => listed,
            }
        };
        Ok(try_join_all(OTHER_NEXT_HOPS.split_whitespace().map(list)).await?.concat())
    }

    async fn entries_to(&self, next_hop: &str, table_id: &str) -> Result<Vec<RouteEntry>, Fault> {
        let request = self
            .0
            .read(DESCRIBE_ROUTE_ENTRIES)
            .with("RouteTableId", table_id)
            .with("RouteEntryType", "Custom")
            .with("NextHopType", next_hop)
            .with("MaxResult", ROUTES_PAGE);
        let entries = request.by_token("RouteEntrys", route_entry).await?;
        Ok(unique(entries.into_iter().flatten().collect(), |entry: &RouteEntry| &entry.id))
    }

    /// Makes at most 50 entries with one call; the result lists the items that failed. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write. A fault means that no item is known to be made.
    pub async fn create_route_entries(&self, permit: &Permit, items: &[RouteItem]) -> Result<Vec<ItemFault>, Fault> {
        self.write_routes(permit, CREATE_ROUTE_ENTRIES, items, |request, prefix, item| {
            request
                .with(format!("{prefix}.NextHopType"), "Instance")
                .with(format!("{prefix}.IpVersion"), if item.destination.addr().is_ipv4() { 4 } else { 6 })
                .with(format!("{prefix}.Name"), &item.name)
                .with(format!("{prefix}.Description"), &item.description)
        })
        .await
    }

    /// Deletes at most 50 entries with one call; entries that are gone count as deleted. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write. A fault means that no item is known to be deleted.
    pub async fn delete_route_entries(&self, permit: &Permit, items: &[RouteItem]) -> Result<Vec<ItemFault>, Fault> {
        match self.write_routes(permit, DELETE_ROUTE_ENTRIES, items, |request, _, _| request).await {
            Ok(mut failed) => {
                failed.retain(|item| item.kind != FaultKind::Gone);
                Ok(failed)
            }
            Err(fault) if fault.kind == FaultKind::Gone && items.len() == 1 => Ok(Vec::new()),
            // One of several is gone, and the answer does not say which: the next observation does.
            Err(fault) if fault.kind == FaultKind::Gone => Err(Fault { kind: FaultKind::Busy, ..fault }),
            Err(fault) => Err(fault),
        }
    }

    async fn write_routes(
        &self,
        permit: &Permit,
        action: WriteAction,
        items: &[RouteItem],
        add: for<'a> fn(Request<'a>, &str, &RouteItem) -> Request<'a>,
    ) -> Result<Vec<ItemFault>, Fault> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        if items.len() > MOST_ROUTES {
            let message = format!("{} entries in one call, {MOST_ROUTES} are allowed; nothing was sent", items.len());
            return Err(Fault::new(action.0.name, FaultKind::Bug, message));
        }
        let mut request = self.0.write(permit, action);
        for (index, item) in items.iter().enumerate() {
            let prefix = format!("RouteEntries.{}", index + 1);
            request = request
                .with(format!("{prefix}.RouteTableId"), &item.table_id)
                .with(format!("{prefix}.DstCidrBlock"), item.destination)
                .with(format!("{prefix}.NextHop"), &item.instance_id);
            request = add(request, &prefix, item);
        }
        let answer = request.send().await?;
        let (reported, failures) =
            answer.decode(|body| Ok((body.number("FailedCount")?, body.list("FailedRouteEntries", failure)?)))?;
        match item_faults(action.0, items, &failures) {
            Some(failed) if failed.len() >= usize::try_from(reported).unwrap_or_default() => Ok(failed),
            _ => {
                let message = "some entries failed, but the answer does not say which of those that were asked for";
                Err(Fault { kind: FaultKind::Ambiguous, ..answer.unusable(message) })
            }
        }
    }

    /// Address ranges of a VPC; `None` if it does not exist.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_vpc(&self, vpc_id: &str) -> Result<Option<VpcAttributes>, Fault> {
        match self.0.read(DESCRIBE_VPC).one("VpcId", vpc_id, vpc_attributes).await {
            Ok(vpc) => Ok(Some(vpc)),
            Err(fault) if fault.kind == FaultKind::Gone => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// All vSwitches of a VPC, every page.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such VPC.
    pub async fn describe_vswitches(&self, vpc_id: &str) -> Result<Vec<VSwitch>, Fault> {
        let request = self.0.read(DESCRIBE_VSWITCHES).with("VpcId", vpc_id);
        Ok(unique(request.numbered("VSwitches", SMALL_PAGE, vswitch).await?, |vswitch| &vswitch.id))
    }

    /// Public addresses (EIPs) bound to a classic load balancer.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_load_balancer_eips(&self, load_balancer_id: &str) -> Result<Vec<String>, Fault> {
        let request = self.0.read(DESCRIBE_EIPS);
        let request =
            request.with("AssociatedInstanceType", "SlbInstance").with("AssociatedInstanceId", load_balancer_id);
        let eip = |body: Fields<'_>| Ok((body.text("InstanceId")?, body.text("IpAddress")?));
        let eips = request.numbered("EipAddresses", LARGE_PAGE, eip).await?.into_iter();
        let bound =
            eips.filter(|(instance, ip)| !ip.is_empty() && (instance.is_empty() || instance == load_balancer_id));
        Ok(unique(bound.map(|(_, ip)| ip).collect(), String::as_str))
    }
}

/// An item that failed, as the answer names it.
struct RouteFailure {
    destination: Option<IpNet>,
    next_hop: String,
    code: String,
    message: String,
}

/// Which of the items failed. An item is known by destination and next hop; a node can have several routes, and the same
/// route can go to several tables, which then all count as failed. `None` if a failure belongs to no item.
fn item_faults(action: &Action, items: &[RouteItem], failures: &[RouteFailure]) -> Option<Vec<ItemFault>> {
    let mut faults: BTreeMap<usize, ItemFault> = BTreeMap::new();
    for RouteFailure { destination, next_hop, code, message } in failures {
        let hit = |item: &RouteItem| {
            Some(item.destination.trunc()) == *destination && (next_hop.is_empty() || item.instance_id == *next_hop)
        };
        let mut found = false;
        for (index, _) in items.iter().enumerate().filter(|(_, item)| hit(item)) {
            found = true;
            faults.entry(index).or_insert_with(|| ItemFault {
                index,
                kind: errors::classify(action, 200, code, message),
                code: code.clone(),
                message: errors::without_secrets(message),
            });
        }
        if !found {
            return None;
        }
    }
    Some(faults.into_values().collect())
}

/// A range in its normal form; a bare address is a range of one.
fn parse_cidr(text: &str) -> Option<IpNet> {
    block(text.trim()).map(|net| net.trunc())
}

fn route_table(body: Fields<'_>) -> Result<RouteTable, Mismatch> {
    Ok(RouteTable { id: body.text("RouteTableId")?, kind: body.text("RouteTableType")? })
}

/// `None` if it is not a custom entry for an address range: a server that does not know the filter sends all.
fn route_entry(body: Fields<'_>) -> Result<Option<RouteEntry>, Mismatch> {
    let kind = body.text("Type")?;
    let custom = kind.is_empty() || kind.eq_ignore_ascii_case("custom");
    let Some(destination) = parse_cidr(&body.text("DestinationCidrBlock")?).filter(|_| custom) else { return Ok(None) };
    Ok(Some(RouteEntry {
        id: body.text("RouteEntryId")?,
        destination,
        next_hops: body.list("NextHops", |hop| Ok((hop.text("NextHopType")?, hop.text("NextHopId")?)))?,
        status: body.text("Status")?,
        name: body.text("RouteEntryName")?,
        description: body.text("Description")?,
    }))
}

fn failure(body: Fields<'_>) -> Result<RouteFailure, Mismatch> {
    Ok(RouteFailure {
        destination: parse_cidr(&body.text("DstCidrBlock")?),
        next_hop: body.text("NextHop")?,
        code: body.text("FailedCode")?,
        message: body.text("FailedMessage")?,
    })
}

fn vpc_attributes(body: Fields<'_>) -> Result<VpcAttributes, Mismatch> {
    let mut texts = vec![body.text("CidrBlock")?, body.text("Ipv6CidrBlock")?];
    texts.extend(body.texts("SecondaryCidrBlocks")?);
    texts.extend(body.list("Ipv6CidrBlocks", |block| block.text("Ipv6CidrBlock"))?);
    let mut cidrs = Vec::new();
    for cidr in texts.iter().filter_map(|text| parse_cidr(text)) {
        if !cidrs.contains(&cidr) {
            cidrs.push(cidr);
        }
    }
    Ok(VpcAttributes { cidrs })
}

fn vswitch(body: Fields<'_>) -> Result<VSwitch, Mismatch> {
    Ok(VSwitch {
        id: body.text("VSwitchId")?,
        zone: body.text("ZoneId")?,
        vpc_id: body.text("VpcId")?,
        cidr: body.text("CidrBlock")?,
        available_ips: u64::try_from(body.number("AvailableIpAddressCount")?).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
