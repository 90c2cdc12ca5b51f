//! VPC, version 2016-04-28.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::account::{Account, RouteEntry, RouteTable, VSwitch};
use super::actions::{Action, Context, Product, once, page, page_by_key};
use super::objects::Pending;
use super::protocol::{ApiError, Params};
use crate::effort;

const NEXT_HOP_TYPES: &[&str] = &[
    "Instance",
    "HaVip",
    "RouterInterface",
    "NetworkInterface",
    "VpnGateway",
    "IPv6Gateway",
    "NatGateway",
    "Attachment",
    "VpcPeer",
    "Ipv4Gateway",
    "GatewayEndpoint",
    "Ecr",
    "GatewayLoadBalancerEndpoint",
    "RouteTargetGroup",
];

pub(crate) fn actions() -> Vec<Action> {
    vec![
        Action::read(
            Product::Vpc,
            "DescribeRouteTableList",
            "VpcId RouteTableId RouteTableName RouteTableType RouterId RouterType ResourceGroupId PageNumber \
             PageSize",
            describe_route_tables,
        )
        .documented("parameters, answer, 50 tables on a page")
        .assumed("no table shows the vSwitches that use it")
        .listing("/RouterTableList/RouterTableListType"),
        Action::read(
            Product::Vpc,
            "DescribeRouteEntryList",
            "RouteTableId! RouteEntryType NextHopType NextHopId DestinationCidrBlock DestCidrBlockList.N \
             RouteEntryId RouteEntryName IpVersion ServiceType MaxResult NextToken",
            describe_route_entries,
        )
        .documented("parameters, answer, `NextHopType` is `Instance` by default, statuses")
        .observed("`MaxResult` up to 500", "official controller v2.14.0")
        .assumed("10 entries on a page by default; a page token never expires; order by block")
        .listing("/RouteEntrys/RouteEntry"),
        Action::write(
            Product::Vpc,
            "CreateRouteEntry",
            "RouteTableId! DestinationCidrBlock! NextHopId! NextHopType RouteEntryName Description ClientToken \
             DryRun",
            create_route_entry,
        )
        .documented(
            "parameters, rules for blocks, `InvalidCIDRBlock.Duplicate`, `QuotaExceeded`, \
             `InvalidNextHopId.NotFound`",
        )
        .observed("`InvalidCIDRBlock.Duplicate`", "official controller v2.14.0")
        .assumed("how long an entry is `Pending`; `InvalidNextHopType`"),
        Action::write(
            Product::Vpc,
            "CreateRouteEntries",
            "RouteEntries.N.RouteTableId! RouteEntries.N.DstCidrBlock! RouteEntries.N.NextHop! \
             RouteEntries.N.NextHopType! RouteEntries.N.Name RouteEntries.N.Description RouteEntries.N.IpVersion \
             DryRun",
            create_route_entries,
        )
        .documented(
            "parameters, 50 entries at most, failures inside a 200 answer, `VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE`",
        )
        .assumed(
            "all other codes of items; `IllegalParam.RouteEntries`, `IllegalParam.RouteTableId`; entries are made in \
             order",
        ),
        Action::write(
            Product::Vpc,
            "DeleteRouteEntry",
            "RouteTableId RouteEntryId DestinationCidrBlock NextHopId",
            delete_route_entry,
        )
        .documented("parameters, `Available` entries alone, `OperationDenied` for the system's")
        .observed("`InvalidRouteEntry.NotFound`", "official controller v2.14.0")
        .assumed("how long an entry is `Deleting`; `InvalidRouteEntryId.NotFound` where the id is given"),
        Action::write(
            Product::Vpc,
            "DeleteRouteEntries",
            "RouteEntries.N.RouteTableId! RouteEntries.N.RouteEntryId RouteEntries.N.DstCidrBlock \
             RouteEntries.N.NextHop",
            delete_route_entries,
        )
        .documented("parameters, 50 entries at most, failures inside a 200 answer")
        .assumed("`VPC_ROUTER_ENTRY_NOT_EXIST`, `VPC_ROUTE_ENTRY_STATUS_ERROR` and all other codes of items"),
        Action::read(Product::Vpc, "DescribeVpcAttribute", "VpcId! IsDefault", describe_vpc)
            .documented("parameters, answer, `InvalidVpcId.NotFound`")
            .assumed("a VPC is always `Available`"),
        Action::read(
            Product::Vpc,
            "DescribeVSwitches",
            "VSwitchId VpcId ZoneId VSwitchName RouteTableId ResourceGroupId IsDefault EnableIpv6 PageNumber \
             PageSize",
            describe_vswitches,
        )
        .documented("parameters, answer, `Forbidden.VpcNotFound`, 50 on a page")
        .assumed("an unknown `VSwitchId` gives an empty list, not `InvalidVSwitchId.NotFound`")
        .listing("/VSwitches/VSwitch"),
        Action::read(
            Product::Vpc,
            "DescribeEipAddresses",
            "AssociatedInstanceType AssociatedInstanceId AllocationId EipAddress EipName Status ChargeType \
             PageNumber PageSize",
            describe_eips,
        )
        .documented("parameters, answer, `AssociatedInstanceType` is `EcsInstance` by default")
        .observed("`SlbInstance` finds the address of an intranet CLB", "official controller v2.14.0")
        .assumed("bandwidth and charge are constants")
        .listing("/EipAddresses/EipAddress"),
    ]
}

/// Begins a write of routes: no two may overlap in a VPC. The answer is the VPC, empty if the table is unknown.
pub(crate) fn enter(account: &mut Account, params: &Params) -> Result<String, ApiError> {
    let index = params.indexes("RouteEntries").first().copied().unwrap_or(1);
    let named = params.get("RouteTableId").or_else(|| params.get(&format!("RouteEntries.{index}.RouteTableId")));
    let by_entry = || {
        let id = params.get("RouteEntryId")?;
        account.route_tables.iter().find(|(_, it)| it.entries.values().any(|it| it.id == id)).map(|(id, _)| id.as_str())
    };
    let table = named.or_else(by_entry).unwrap_or_default();
    let id = account.route_tables.get(table).map(|it| it.vpc.clone()).unwrap_or_default();
    if let Some(vpc) = account.vpcs.get_mut(&id) {
        if vpc.writers > 0 || vpc.busy_until.is_some_and(|it| it > Instant::now()) {
            let message = "The operation is too frequent, please try again later.";
            return Err(ApiError::new(400, "TaskConflict", message));
        }
        vpc.writers += 1;
    }
    Ok(id)
}

/// Ends what [`enter`] began.
pub(crate) fn leave(account: &mut Account, vpc: &str, wrote: bool) {
    let pending = account.dials.route_pending;
    if let Some(vpc) = account.vpcs.get_mut(vpc) {
        vpc.writers = vpc.writers.saturating_sub(1);
        vpc.busy_until = (wrote && !pending.is_zero()).then(|| Instant::now() + pending);
    }
}

fn describe_route_tables(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let matches = |(id, it): &(&String, &RouteTable)| {
        is_text("VpcId", &it.vpc)
            && is_text("RouteTableId", id)
            && is_text("RouteTableName", &it.name)
            && is_text("RouteTableType", &it.kind)
            && is_text("RouterType", "VRouter")
    };
    let found = cx.account.route_tables.iter().filter(matches).map(|(id, it)| {
        json!({
            "RouteTableId": id,
            "RouteTableName": it.name,
            "RouteTableType": it.kind,
            "VpcId": it.vpc,
            "RouterId": format!("vrt-{}", it.vpc.trim_start_matches("vpc-")),
            "RouterType": "VRouter",
            "Status": "Available",
            "AssociateType": "VSwitch",
            "VSwitchIds": {"VSwitchId": []},
            "Tags": {"Tag": []},
        })
    });
    let (items, mut body) = page(cx.params, found.collect(), 10, 50)?;
    body["RouterTableList"] = json!({"RouterTableListType": items});
    body["Success"] = true.into();
    Ok(body)
}

fn describe_route_entries(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("RouteTableId")?;
    let table = cx.account.route_tables.get(id).ok_or_else(no_table)?;
    let size = cx.params.number_in("MaxResult", 1, 500)?.unwrap_or(10);
    let kind = cx.params.one_of("RouteEntryType", &["Custom", "System", "BGP", "CEN", "ECR"])?;
    let hop_type = cx.params.one_of("NextHopType", NEXT_HOP_TYPES)?.unwrap_or("Instance");
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let destinations = cx.params.list("DestCidrBlockList");
    let matches = |(cidr, it): &(&String, &RouteEntry)| {
        kind.is_none_or(|kind| kind == it.kind)
            && hop_type == it.next_hop_type
            && cx.params.get("NextHopId").is_none_or(|hop| it.next_hops.iter().any(|it| it == hop))
            && is_text("DestinationCidrBlock", cidr)
            && is_text("RouteEntryId", &it.id)
            && is_text("RouteEntryName", &it.name)
            && is_text("IpVersion", ip_version(cidr))
            && (destinations.is_empty() || destinations.contains(&cidr.as_str()))
    };
    let from = |key: &str| {
        let entries = table.entries.range::<str, _>((Bound::Included(key), Bound::Unbounded));
        entries.inspect(|_| effort::look()).filter(matches)
    };
    let key = |(cidr, _): &(&String, &RouteEntry)| (*cidr).clone();
    let (found, next, _) = page_by_key(cx.params, from, key, usize::try_from(size).unwrap_or(10))?;
    let items = found.into_iter().map(|(cidr, it)| {
        let hops: Vec<Value> = it
            .next_hops
            .iter()
            .map(|hop| {
                json!({"NextHopId": hop, "NextHopType": it.next_hop_type, "NextHopRegionId": cx.account.region,
                    "Enabled": 1, "Weight": 0})
            })
            .collect();
        json!({
            "RouteEntryId": it.id,
            "RouteEntryName": it.name,
            "RouteTableId": id,
            "DestinationCidrBlock": cidr,
            "IpVersion": ip_version(cidr),
            "Type": it.kind,
            "Status": it.status(),
            "Description": it.description,
            "NextHops": {"NextHop": hops},
            "RoutePublishTargets": [],
        })
    });
    let items: Vec<Value> = items.collect();
    Ok(json!({"RouteEntrys": {"RouteEntry": items}, "NextToken": next.unwrap_or_default()}))
}

fn ip_version(cidr: &str) -> &'static str {
    if cidr.contains(':') { "ipv6" } else { "ipv4" }
}

fn no_table() -> ApiError {
    ApiError::new(404, "InvalidRouteTableId.NotFound", "The specified route table does not exist.")
}

/// What one creation wants.
struct Wanted<'a> {
    table: &'a str,
    cidr: &'a str,
    next_hop: &'a str,
    next_hop_type: &'a str,
    name: &'a str,
    description: &'a str,
    /// A batch may not even contain the range of a vSwitch.
    batch: bool,
}

fn create(account: &mut Account, wanted: &Wanted<'_>) -> Result<String, ApiError> {
    let table = account.route_tables.get(wanted.table).ok_or_else(no_table)?;
    let cidr = normalise(wanted.cidr)?;
    check_destination(account, &table.vpc, &cidr, wanted.batch)?;
    if table.entries.contains_key(&cidr) {
        let message = "The specified route entry already exists.";
        return Err(ApiError::new(400, "InvalidCIDRBlock.Duplicate", message));
    }
    let customs = || table.entries.values().inspect(|_| effort::look()).filter(|it| it.kind == "Custom").count();
    let most = account.limits.routes_per_table;
    if table.entries.len() >= most && customs() >= most {
        let message = "Route entry quota exceeded in this route table.";
        return Err(ApiError::new(400, "QuotaExceeded", message));
    }
    if !NEXT_HOP_TYPES.contains(&wanted.next_hop_type) {
        return Err(ApiError::new(400, "InvalidNextHopType", "The specified NextHopType is not valid."));
    }
    check_next_hop(account, &table.vpc, wanted)?;
    let id = account.fresh("rte-bp1", 17);
    let pending = account.dials.route_pending;
    let entry = RouteEntry {
        next_hop_type: wanted.next_hop_type.into(),
        name: wanted.name.into(),
        description: wanted.description.into(),
        pending: pending_for(pending, "Pending", false),
        ..RouteEntry::to_instance(&id, wanted.next_hop)
    };
    if let Some(table) = account.route_tables.get_mut(wanted.table) {
        table.entries.insert(cidr, entry);
    }
    Ok(id)
}

fn normalise(cidr: &str) -> Result<String, ApiError> {
    let malformed =
        || ApiError::new(400, "InvalidCidrBlock.Malformed", "The specified DestinationCidrBlock is not valid.");
    let text = if cidr.contains('/') {
        cidr.to_owned()
    } else if cidr.contains(':') {
        format!("{cidr}/128")
    } else {
        format!("{cidr}/32")
    };
    let net: ipnet::IpNet = text.parse().map_err(|_| malformed())?;
    if net.trunc() == net { Ok(text) } else { Err(malformed()) }
}

fn check_destination(account: &Account, vpc: &str, cidr: &str, batch: bool) -> Result<(), ApiError> {
    let Ok(net) = cidr.parse::<Ipv4Net>() else { return Ok(()) };
    let reserved: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(100, 64, 0, 0), 10);
    let overlap =
        || ApiError::new(400, "InvalidCidrBlock.Overlapped", "The specified DestinationCidrBlock is overlapped.");
    if net == reserved {
        return Err(overlap());
    }
    let ranges = account.vswitches.values().filter(|it| it.vpc == vpc).filter_map(|it| it.cidr.parse::<Ipv4Net>().ok());
    for range in ranges {
        if range.contains(&net) || (batch && net.contains(&range)) {
            return Err(overlap());
        }
    }
    Ok(())
}

fn check_next_hop(account: &Account, vpc: &str, wanted: &Wanted<'_>) -> Result<(), ApiError> {
    let vswitch = match wanted.next_hop_type {
        "Instance" => account.instances.get(wanted.next_hop).map(|it| &it.vswitch),
        "NetworkInterface" => account.interfaces.get(wanted.next_hop).map(|it| &it.vswitch),
        _ => return Ok(()),
    };
    match vswitch {
        None => Err(ApiError::new(404, "InvalidNextHopId.NotFound", "The specified NextHopId does not exist.")),
        Some(vswitch) if account.vpc_of(vswitch) != vpc => {
            let message = "The specified instance is not in the VPC of the route table.";
            Err(ApiError::new(404, "OperationFailed.InstanceDismatchCurrentVpc", message))
        }
        Some(_) => Ok(()),
    }
}

fn dry_run(cx: &Context<'_>) -> Result<(), ApiError> {
    if cx.params.get("DryRun") == Some("true") {
        let message = "Request validation has been passed with DryRun flag set.";
        return Err(ApiError::new(400, "DryRunOperation", message));
    }
    Ok(())
}

fn create_route_entry(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    dry_run(cx)?;
    let wanted = Wanted {
        table: cx.params.need("RouteTableId")?,
        cidr: cx.params.need("DestinationCidrBlock")?,
        next_hop: cx.params.need("NextHopId")?,
        next_hop_type: cx.params.get("NextHopType").unwrap_or("Instance"),
        name: cx.params.get("RouteEntryName").unwrap_or_default(),
        description: cx.params.get("Description").unwrap_or_default(),
        batch: false,
    };
    once(cx, "IdempotentParameterMismatch", |cx| Ok(json!({"RouteEntryId": create(cx.account, &wanted)?})))
}

/// Codes of items differ from those of the single call.
fn item_code(error: &ApiError) -> &str {
    match error.code.as_str() {
        "InvalidCIDRBlock.Duplicate" => "VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE",
        "InvalidRouteEntry.NotFound" => "VPC_ROUTER_ENTRY_NOT_EXIST",
        "IncorrectRouteEntryStatus" => "VPC_ROUTE_ENTRY_STATUS_ERROR",
        other => other,
    }
}

/// Runs a batch item by item; the tables must be in one VPC, and no more than 50 items are allowed.
fn batch(
    cx: &mut Context<'_>,
    each: impl Fn(&mut Account, &Params, u32) -> Result<Option<String>, ApiError>,
) -> Result<Value, ApiError> {
    let indexes = cx.params.indexes("RouteEntries");
    if indexes.len() > 50 {
        return Err(ApiError::new(
            400,
            "IllegalParam.RouteEntries",
            "At most 50 route entries are allowed in one call.",
        ));
    }
    let tables: BTreeSet<&str> =
        indexes.iter().filter_map(|n| cx.params.get(&format!("RouteEntries.{n}.RouteTableId"))).collect();
    let vpcs: BTreeSet<&str> =
        tables.iter().filter_map(|it| cx.account.route_tables.get(*it)).map(|it| it.vpc.as_str()).collect();
    if vpcs.len() > 1 {
        return Err(ApiError::new(400, "IllegalParam.RouteTableId", "The route tables are not in one VPC."));
    }
    if tables.iter().any(|it| !cx.account.route_tables.contains_key(*it)) {
        return Err(no_table());
    }
    let (mut ids, mut failed) = (Vec::new(), Vec::new());
    for n in &indexes {
        match each(cx.account, cx.params, *n) {
            Ok(id) => ids.push(id),
            Err(error) => failed.push(json!({
                "DstCidrBlock": cx.params.get(&format!("RouteEntries.{n}.DstCidrBlock")),
                "NextHop": cx.params.get(&format!("RouteEntries.{n}.NextHop")),
                "RouteEntryId": cx.params.get(&format!("RouteEntries.{n}.RouteEntryId")),
                "FailedCode": item_code(&error),
                "FailedMessage": error.message,
            })),
        }
    }
    let mut body = json!({"SuccessCount": ids.len(), "FailedCount": failed.len(), "FailedRouteEntries": failed});
    let ids: Vec<String> = ids.into_iter().flatten().collect();
    if !ids.is_empty() {
        body["RouteEntryIds"] = json!(ids);
    }
    Ok(body)
}

fn create_route_entries(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    dry_run(cx)?;
    batch(cx, |account, params, n| {
        let get = |name: &str| params.get(&format!("RouteEntries.{n}.{name}")).unwrap_or_default();
        let wanted = Wanted {
            table: get("RouteTableId"),
            cidr: get("DstCidrBlock"),
            next_hop: get("NextHop"),
            next_hop_type: get("NextHopType"),
            name: get("Name"),
            description: get("Description"),
            batch: true,
        };
        create(account, &wanted).map(Some)
    })
}

fn delete(
    account: &mut Account,
    table_id: &str,
    id: Option<&str>,
    target: Option<(&str, &str)>,
) -> Result<(), ApiError> {
    let gone = || ApiError::new(400, "InvalidRouteEntry.NotFound", "The specified route entry does not exist.");
    let table = account.route_tables.get_mut(table_id).ok_or_else(no_table)?;
    let is_it = |(cidr, it): &(&String, &RouteEntry)| match (id, target) {
        (Some(id), _) => it.id == id,
        (None, Some((wanted, hop))) => *cidr == wanted && it.next_hops.iter().any(|it| it == hop),
        (None, None) => false,
    };
    let (cidr, entry) = table.entries.iter().find(is_it).ok_or_else(gone)?;
    if entry.kind != "Custom" {
        let message = "The specified route entry is a system route, which cannot be deleted.";
        return Err(ApiError::new(400, "OperationDenied", message));
    }
    if entry.status() != "Available" {
        let message = "The status of the route entry does not support this operation.";
        return Err(ApiError::new(400, "IncorrectRouteEntryStatus", message));
    }
    let cidr = cidr.clone();
    match pending_for(account.dials.route_pending, "Deleting", true) {
        Some(pending) => {
            if let Some(entry) = table.entries.get_mut(&cidr) {
                entry.pending = Some(pending);
            }
            account.leaving_routes.insert((pending.until, table_id.to_owned(), cidr));
        }
        None => drop(table.entries.remove(&cidr)),
    }
    Ok(())
}

fn pending_for(time: Duration, status: &'static str, removes: bool) -> Option<Pending> {
    (!time.is_zero()).then(|| Pending { until: Instant::now() + time, status, removes })
}

/// Removes the entries whose deletion has ended since.
pub(crate) fn settle(account: &mut Account) {
    while account.leaving_routes.first().is_some_and(|(until, ..)| *until <= Instant::now()) {
        let Some((_, table, cidr)) = account.leaving_routes.pop_first() else { return };
        effort::look();
        let entries = account.route_tables.get_mut(&table).map(|it| &mut it.entries);
        // A test may have put another entry in its place.
        if let Some(entries) = entries
            && entries.get(&cidr).and_then(|it| it.pending).is_some_and(|it| it.removes && it.is_over())
        {
            entries.remove(&cidr);
        }
    }
}

fn delete_route_entry(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.get("RouteEntryId");
    if let Some(id) = id {
        let holder = |(_, it): &(&String, &RouteTable)| it.entries.values().any(|it| it.id == id);
        let table = cx.account.route_tables.iter().find(holder).map(|(id, _)| id.clone());
        let gone = || ApiError::new(400, "InvalidRouteEntryId.NotFound", "The specified RouteEntryId does not exist.");
        delete(cx.account, &table.ok_or_else(gone)?, Some(id), None)?;
        return Ok(json!({}));
    }
    let target = (cx.params.need("DestinationCidrBlock")?, cx.params.need("NextHopId")?);
    delete(cx.account, cx.params.need("RouteTableId")?, None, Some(target))?;
    Ok(json!({}))
}

fn delete_route_entries(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    batch(cx, |account, params, n| {
        let get = |name: &str| params.get(&format!("RouteEntries.{n}.{name}"));
        let target = get("DstCidrBlock").zip(get("NextHop"));
        if get("RouteEntryId").is_none() && target.is_none() {
            return Err(ApiError::missing(&format!("RouteEntries.{n}.RouteEntryId")));
        }
        delete(account, get("RouteTableId").unwrap_or_default(), get("RouteEntryId"), target).map(|()| None)
    })
}

fn describe_vpc(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("VpcId")?;
    let vpc = cx.account.vpcs.get(id).ok_or_else(|| {
        ApiError::new(404, "InvalidVpcId.NotFound", "Specified value of VpcId is not found in our record.")
    })?;
    let ipv6: Vec<Value> = Some(&vpc.ipv6_cidr)
        .into_iter()
        .filter(|it| !it.is_empty())
        .map(|it| json!({"Ipv6CidrBlock": it, "Ipv6Isp": "BGP"}))
        .collect();
    let vswitches: Vec<&String> =
        cx.account.vswitches.iter().filter(|(_, it)| it.vpc == id).map(|(id, _)| id).collect();
    Ok(json!({
        "VpcId": id,
        "VpcName": vpc.name,
        "Status": "Available",
        "CidrBlock": vpc.cidr,
        "RegionId": cx.account.region,
        "IsDefault": false,
        "VRouterId": format!("vrt-{}", id.trim_start_matches("vpc-")),
        "SecondaryCidrBlocks": {"SecondaryCidrBlock": vpc.secondary_cidrs},
        "UserCidrs": {"UserCidr": []},
        "Ipv6CidrBlock": vpc.ipv6_cidr,
        "Ipv6CidrBlocks": {"Ipv6CidrBlock": ipv6},
        "VSwitchIds": {"VSwitchId": vswitches},
    }))
}

fn describe_vswitches(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    if let Some(vpc) = cx.params.get("VpcId").filter(|it| !cx.account.vpcs.contains_key(*it)) {
        let message = format!("The specified VPC {vpc} does not exist.");
        return Err(ApiError::new(400, "Forbidden.VpcNotFound", message));
    }
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let matches = |(id, it): &(&String, &VSwitch)| {
        is_text("VSwitchId", id)
            && is_text("VpcId", &it.vpc)
            && is_text("ZoneId", &it.zone)
            && is_text("VSwitchName", &it.name)
    };
    let found = cx.account.vswitches.iter().filter(matches).map(|(id, it)| {
        json!({
            "VSwitchId": id,
            "VSwitchName": it.name,
            "VpcId": it.vpc,
            "ZoneId": it.zone,
            "CidrBlock": it.cidr,
            "Ipv6CidrBlock": "",
            "Status": "Available",
            "AvailableIpAddressCount": it.available_ips,
            "IsDefault": false,
            "Tags": {"Tag": []},
        })
    });
    let (items, mut body) = page(cx.params, found.collect(), 10, 50)?;
    body["VSwitches"] = json!({"VSwitch": items});
    Ok(body)
}

fn describe_eips(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let associated = cx.params.get("AssociatedInstanceId");
    let kind = cx.params.get("AssociatedInstanceType").unwrap_or("EcsInstance");
    let in_list = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it.split(',').any(|it| it == value));
    let found = cx
        .account
        .eips
        .iter()
        .filter(|(id, it)| {
            associated.is_none_or(|wanted| it.instance == wanted && it.instance_type == kind)
                && in_list("AllocationId", id)
                && in_list("EipAddress", &it.address)
        })
        .map(|(id, it)| {
            json!({
                "AllocationId": id,
                "IpAddress": it.address,
                "Status": if it.instance.is_empty() { "Available" } else { "InUse" },
                "InstanceId": it.instance,
                "InstanceType": it.instance_type,
                "InstanceRegionId": cx.account.region,
                "Bandwidth": "5",
                "InternetChargeType": "PayByTraffic",
                "ChargeType": "PostPaid",
                "OperationLocks": {"LockReason": []},
                "Tags": {"Tag": []},
            })
        });
    let (items, mut body) = page(cx.params, found.collect(), 10, 100)?;
    body["EipAddresses"] = json!({"EipAddress": items});
    Ok(body)
}
