//! VPC (version 2016-04-28): route tables, route entries, vSwitches, EIPs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::actions::{
    Action, CREATE_ROUTE_ENTRIES, DELETE_ROUTE_ENTRIES, DESCRIBE_EIPS, DESCRIBE_ROUTE_ENTRIES, DESCRIBE_ROUTE_TABLES,
    DESCRIBE_VPC, DESCRIBE_VSWITCHES, Write,
};
use super::client::SigningClient;
use super::decode::{Int, List, Text};
use super::errors;
use super::paging::{by_number, by_token, unique};
use super::rpc::fault;
use super::signing::Params;
use super::{Fault, FaultKind};
use crate::fence::Permit;
use crate::plan::route::entry::{RouteEntry, RouteItem};

/// A route table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// `vtb-...`
    pub id: String,
    /// `System` or `Custom`
    pub kind: String,
    /// The VPC it belongs to.
    pub vpc_id: String,
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
    /// `vpc-...`
    pub id: String,
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
        let action = DESCRIBE_ROUTE_TABLES;
        let params = Params::new().with("VpcId", vpc_id).with("PageSize", SMALL_PAGE);
        let tables = by_number(SMALL_PAGE, |number| {
            let params = params.clone().with("PageNumber", number);
            async move {
                let answer = self.0.read(action, params).await?;
                let body: RouteTablesBody = answer.decode()?;
                Ok((body.router_table_list.0, body.total_count.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(action.0))?;
        let table = |body: RouteTableBody| RouteTable {
            id: body.route_table_id.0,
            kind: body.route_table_type.0,
            vpc_id: body.vpc_id.0,
        };
        Ok(unique(tables.into_iter().map(table).collect(), |table| &table.id))
    }

    /// All custom entries of a table whose next hop is an instance, every page. Entries whose destination is not an
    /// address range, such as a prefix list, are left out.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such table.
    pub async fn describe_route_entries(&self, table_id: &str) -> Result<Vec<RouteEntry>, Fault> {
        let action = DESCRIBE_ROUTE_ENTRIES;
        let params = Params::new()
            .with("RouteTableId", table_id)
            .with("RouteEntryType", "Custom")
            .with("NextHopType", "Instance")
            .with("MaxResult", ROUTES_PAGE);
        let entries = by_token(|token| {
            let params = params.clone().with("NextToken", token);
            async move {
                let answer = self.0.read(action, params).await?;
                let body: RouteEntriesBody = answer.decode()?;
                Ok((body.route_entrys.0, body.next_token.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(action.0))?;
        // A server that does not know the filter sends the others too.
        let custom = |body: &RouteEntryBody| body.r#type.0.is_empty() || body.r#type.0.eq_ignore_ascii_case("custom");
        let entries = entries.into_iter().filter(custom).filter_map(RouteEntryBody::entry).collect();
        Ok(unique(entries, |entry: &RouteEntry| &entry.id))
    }

    /// Makes at most 50 entries with one call; the result lists the items that failed. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write. A fault means that no item is known to be made.
    pub async fn create_route_entries(&self, permit: &Permit, items: &[RouteItem]) -> Result<Vec<ItemFault>, Fault> {
        self.write_routes(permit, CREATE_ROUTE_ENTRIES, items, |params, prefix, item| {
            let version = if item.destination.addr().is_ipv4() { 4 } else { 6 };
            params.push(format!("{prefix}.NextHopType"), "Instance");
            params.push(format!("{prefix}.IpVersion"), version);
            params.push(format!("{prefix}.Name"), &item.name);
            params.push(format!("{prefix}.Description"), &item.description);
        })
        .await
    }

    /// Deletes at most 50 entries with one call; entries that are gone count as deleted. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write. A fault means that no item is known to be deleted.
    pub async fn delete_route_entries(&self, permit: &Permit, items: &[RouteItem]) -> Result<Vec<ItemFault>, Fault> {
        match self.write_routes(permit, DELETE_ROUTE_ENTRIES, items, |_, _, _| {}).await {
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
        action: Write,
        items: &[RouteItem],
        add: impl Fn(&mut Params, &str, &RouteItem),
    ) -> Result<Vec<ItemFault>, Fault> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        if items.len() > MOST_ROUTES {
            let message = format!("{} entries in one call, {MOST_ROUTES} are allowed; nothing was sent", items.len());
            return Err(fault(action.0, FaultKind::Bug, message));
        }
        let mut params = Params::new();
        for (index, item) in items.iter().enumerate() {
            let prefix = format!("RouteEntries.{}", index + 1);
            params.push(format!("{prefix}.RouteTableId"), &item.table_id);
            params.push(format!("{prefix}.DstCidrBlock"), item.destination);
            params.push(format!("{prefix}.NextHop"), &item.instance_id);
            add(&mut params, &prefix, item);
        }
        let answer = self.0.write(permit, action, params).await?;
        let unclear = Fault {
            kind: FaultKind::Ambiguous,
            ..answer.bug("some entries failed, but the answer does not say which of those that were asked for")
        };
        let body: FailedRoutesBody = answer.decode()?;
        let failed = item_faults(action.0, items, &body.failed_route_entries.0).ok_or_else(|| unclear.clone())?;
        let reported = usize::try_from(body.failed_count.0).unwrap_or_default();
        if failed.len() < reported { Err(unclear) } else { Ok(failed) }
    }

    /// Address ranges of a VPC; `None` if it does not exist.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_vpc(&self, vpc_id: &str) -> Result<Option<VpcAttributes>, Fault> {
        let answer = match self.0.read(DESCRIBE_VPC, Params::new().with("VpcId", vpc_id)).await {
            Ok(answer) => answer,
            Err(fault) if fault.kind == FaultKind::Gone => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let other = answer.bug(format!("asked for {vpc_id}, but the answer is about another VPC"));
        let body: VpcBody = answer.decode()?;
        if body.vpc_id.0 != vpc_id {
            return Err(other);
        }
        let v6 = body.ipv6_cidr_blocks.0.into_iter().map(|block| block.ipv6_cidr_block);
        let mut cidrs = Vec::new();
        for text in [body.cidr_block, body.ipv6_cidr_block].into_iter().chain(body.secondary_cidr_blocks.0).chain(v6) {
            if let Some(cidr) = parse_cidr(&text.0)
                && !cidrs.contains(&cidr)
            {
                cidrs.push(cidr);
            }
        }
        Ok(Some(VpcAttributes { id: body.vpc_id.0, cidrs }))
    }

    /// All vSwitches of a VPC, every page.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`] if there is no such VPC.
    pub async fn describe_vswitches(&self, vpc_id: &str) -> Result<Vec<VSwitch>, Fault> {
        let action = DESCRIBE_VSWITCHES;
        let params = Params::new().with("VpcId", vpc_id).with("PageSize", SMALL_PAGE);
        let vswitches = by_number(SMALL_PAGE, |number| {
            let params = params.clone().with("PageNumber", number);
            async move {
                let answer = self.0.read(action, params).await?;
                let body: VSwitchesBody = answer.decode()?;
                Ok((body.vswitches.0, body.total_count.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(action.0))?;
        let vswitch = |body: VSwitchBody| VSwitch {
            id: body.vswitch_id.0,
            zone: body.zone_id.0,
            vpc_id: body.vpc_id.0,
            cidr: body.cidr_block.0,
            available_ips: u64::try_from(body.available_ip_address_count.0).unwrap_or_default(),
        };
        Ok(unique(vswitches.into_iter().map(vswitch).collect(), |vswitch| &vswitch.id))
    }

    /// Public addresses (EIPs) bound to a classic load balancer.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_load_balancer_eips(&self, load_balancer_id: &str) -> Result<Vec<String>, Fault> {
        let action = DESCRIBE_EIPS;
        let params = Params::new()
            .with("AssociatedInstanceType", "SlbInstance")
            .with("AssociatedInstanceId", load_balancer_id)
            .with("PageSize", LARGE_PAGE);
        let eips = by_number(LARGE_PAGE, |number| {
            let params = params.clone().with("PageNumber", number);
            async move {
                let answer = self.0.read(action, params).await?;
                let body: EipsBody = answer.decode()?;
                Ok((body.eip_addresses.0, body.total_count.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(action.0))?;
        let bound = |body: &EipBody| body.instance_id.0.is_empty() || body.instance_id.0 == load_balancer_id;
        let addresses = eips.into_iter().filter(bound).map(|body| body.ip_address.0).filter(|ip| !ip.is_empty());
        Ok(unique(addresses.collect(), String::as_str))
    }
}

/// Entries in one batch.
const MOST_ROUTES: usize = 50;

/// Largest page of route tables and vSwitches.
const SMALL_PAGE: usize = 50;

/// Largest page of route entries and EIPs that is documented without doubt.
const LARGE_PAGE: usize = 100;
/// The same for route entries.
const ROUTES_PAGE: usize = 500;

/// Which of the items failed. An item is known by destination and next hop; a node can have several routes, and the same
/// route can go to several tables, which then all count as failed. `None` if a failure belongs to no item.
fn item_faults(action: &Action, items: &[RouteItem], failures: &[FailedRouteBody]) -> Option<Vec<ItemFault>> {
    let mut faults: BTreeMap<usize, ItemFault> = BTreeMap::new();
    for failure in failures {
        let destination = parse_cidr(&failure.dst_cidr_block.0)?;
        let hop = &failure.next_hop.0;
        let hit =
            |item: &RouteItem| item.destination.trunc() == destination && (hop.is_empty() || item.instance_id == *hop);
        let code = &failure.failed_code.0;
        let message = &failure.failed_message.0;
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
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| IpNet::from(address))).map(|net| net.trunc())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RouteTablesBody {
    router_table_list: List<RouteTableBody>,
    total_count: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RouteTableBody {
    route_table_id: Text,
    route_table_type: Text,
    vpc_id: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RouteEntriesBody {
    route_entrys: List<RouteEntryBody>,
    next_token: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RouteEntryBody {
    route_entry_id: Text,
    route_entry_name: Text,
    destination_cidr_block: Text,
    description: Text,
    status: Text,
    r#type: Text,
    next_hops: List<NextHopBody>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NextHopBody {
    next_hop_id: Text,
    next_hop_type: Text,
}

impl RouteEntryBody {
    fn entry(self) -> Option<RouteEntry> {
        Some(RouteEntry {
            destination: parse_cidr(&self.destination_cidr_block.0)?,
            id: self.route_entry_id.0,
            next_hops: self.next_hops.0.into_iter().map(|hop| (hop.next_hop_type.0, hop.next_hop_id.0)).collect(),
            status: self.status.0,
            name: self.route_entry_name.0,
            description: self.description.0,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct FailedRoutesBody {
    failed_count: Int,
    failed_route_entries: List<FailedRouteBody>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct FailedRouteBody {
    dst_cidr_block: Text,
    next_hop: Text,
    failed_code: Text,
    failed_message: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VpcBody {
    vpc_id: Text,
    cidr_block: Text,
    ipv6_cidr_block: Text,
    secondary_cidr_blocks: List<Text>,
    ipv6_cidr_blocks: List<Ipv6Block>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Ipv6Block {
    ipv6_cidr_block: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VSwitchesBody {
    #[serde(rename = "VSwitches")]
    vswitches: List<VSwitchBody>,
    total_count: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VSwitchBody {
    #[serde(rename = "VSwitchId")]
    vswitch_id: Text,
    zone_id: Text,
    vpc_id: Text,
    cidr_block: Text,
    available_ip_address_count: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EipsBody {
    eip_addresses: List<EipBody>,
    total_count: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EipBody {
    ip_address: Text,
    instance_id: Text,
}

#[cfg(test)]
mod tests;
