//! ECS, version 2014-05-26.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::account::{Account, Disk, Instance, Interface};
use super::actions::{Action, Context, Product, page, page_by_token};
use super::protocol::ApiError;
use super::table;

mod security_groups;

pub(crate) fn actions() -> Vec<Action> {
    let mut all = vec![
        Action::read(
            Product::Ecs,
            "DescribeInstances",
            "InstanceIds PrivateIpAddresses InstanceNetworkType VpcId VSwitchId ZoneId InstanceName Status \
             Tag.N.Key Tag.N.Value AdditionalAttributes.N MaxResults NextToken PageNumber PageSize DryRun \
             ResourceGroupId SecurityGroupId",
            describe_instances,
        )
        .documented("parameters, answer, `DryRunOperation`; an empty list for a caller without permission")
        .observed("`NETWORK_PRIMARY_ENI_IP` is accepted", "official controller v2.14.0")
        .assumed("IPv6 addresses are shown without `NETWORK_PRIMARY_ENI_IP`, too")
        .listing("/Instances/Instance"),
        Action::read(
            Product::Ecs,
            "DescribeNetworkInterfaces",
            "NetworkInterfaceId.N PrivateIpAddress.N Ipv6Address.N PrimaryIpAddress VpcId VSwitchId InstanceId \
             Type Status MaxResults NextToken PageNumber PageSize SecurityGroupId",
            describe_network_interfaces,
        )
        .documented("parameters, answer, 100 ids or addresses at most")
        .observed("`PrivateIpAddress.N` finds the addresses of pods", "official controller v2.14.0")
        .assumed("`PrivateIpAddress.N` finds primary addresses, too; the code for too many")
        .listing("/NetworkInterfaceSets/NetworkInterfaceSet"),
        Action::read(
            Product::Ecs,
            "DescribeDisks",
            "DiskIds ZoneId InstanceId Category Status MaxResults NextToken PageNumber PageSize",
            describe_disks,
        )
        .documented("parameters, answer, `RegionId` restricts the list")
        .assumed("size, type and charge are constants; 500 disks on a page")
        .listing("/Disks/Disk"),
        Action::write(
            Product::Ecs,
            "ModifyNetworkInterfaceAttribute",
            "NetworkInterfaceId! SourceDestCheck Description NetworkInterfaceName",
            modify_network_interface,
        )
        .documented("parameters, `InvalidEniId.NotFound`; some regions lack `SourceDestCheck`")
        .assumed(
            "`UnsupportedParameter` in such a region; never `InvalidOperation.Conflict`, which the official \
             controller retries",
        ),
    ];
    all.extend(security_groups::actions());
    all
}

/// A parameter that holds a JSON array of texts; an empty array is a filter that matches nothing.
fn json_list(cx: &Context<'_>, name: &str) -> Result<Option<Vec<String>>, ApiError> {
    let Some(text) = cx.params.get(name) else { return Ok(None) };
    let list: Vec<String> = serde_json::from_str(text).map_err(|_| {
        ApiError::new(400, &format!("Invalid{name}.Malformed"), format!("The specified {name} is malformed."))
    })?;
    if list.len() > 100 {
        let message = format!("The specified {name} holds {} items, but 100 are allowed.", list.len());
        return Err(ApiError::new(400, &format!("Invalid{name}.Malformed"), message));
    }
    if list.is_empty() {
        cx.log.complain(format!("{}: {name} is an empty array, which matches nothing", cx.action.name));
    }
    Ok(Some(list))
}

fn describe_instances(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let ids = json_list(cx, "InstanceIds")?;
    let ips = json_list(cx, "PrivateIpAddresses")?;
    if ips.is_some() && cx.params.get("InstanceNetworkType") != Some("vpc") {
        cx.log.complain("DescribeInstances: PrivateIpAddresses needs InstanceNetworkType=vpc".into());
    }
    if cx.params.get("DryRun") == Some("true") {
        let message = "Request validation has been passed with DryRun flag set.";
        return Err(ApiError::new(400, "DryRunOperation", message));
    }
    let tags = cx.params.tags();
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let matches = |(id, it): &(&String, &Instance)| {
        ids.as_ref().is_none_or(|ids| ids.contains(id))
            && ips.as_ref().is_none_or(|ips| it.private_ips.iter().any(|ip| ips.contains(ip)))
            && is_text("VpcId", cx.account.vpc_of(&it.vswitch))
            && is_text("VSwitchId", &it.vswitch)
            && is_text("ZoneId", &it.zone)
            && is_text("Status", &it.status)
            && cx.params.get("InstanceName").is_none_or(|pattern| matches_pattern(pattern, &it.name))
            && has_tags(&it.tags, &tags)
    };
    let words: Vec<String> = ips.iter().flatten().map(|ip| table::address(ip)).collect();
    let found = cx.account.instances.candidates(ids.as_deref().unwrap_or_default(), words, "").filter(matches);
    let of = |id: &str| cx.account.interfaces.find([table::other(id)]).collect::<Vec<_>>();
    let found: Vec<Value> = found.map(|(id, it)| instance(cx.account, id, it, &of(id))).collect();
    answer(cx, found, "Instances", "Instance", 100)
}

/// Pages the old way or the new way, as the caller likes.
fn answer(cx: &Context<'_>, found: Vec<Value>, outer: &str, inner: &str, max: i64) -> Result<Value, ApiError> {
    if cx.params.get("PageNumber").is_some() || cx.params.get("PageSize").is_some() {
        let (items, mut body) = page(cx.params, found, 10, max)?;
        body[outer] = json!({inner: items});
        return Ok(body);
    }
    let size = cx.params.number("MaxResults")?.unwrap_or(10).clamp(10, max);
    let (items, next) = page_by_token(cx.params, found, usize::try_from(size).unwrap_or(10))?;
    Ok(json!({outer: {inner: items}, "NextToken": next.unwrap_or_default(), "PageSize": size, "TotalCount": 0}))
}

pub(crate) fn has_tags(tags: &BTreeMap<String, String>, wanted: &[(&str, Option<&str>)]) -> bool {
    wanted.iter().all(|(key, value)| tags.get(*key).is_some_and(|it| value.is_none_or(|value| it == value)))
}

/// `*` stands for any text.
pub(crate) fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        last = Some((part, rest));
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    last.map_or(rest.is_empty(), |(part, rest)| rest.ends_with(part))
}

fn instance(account: &Account, id: &str, it: &Instance, interfaces: &[(&String, &Interface)]) -> Value {
    let public: Vec<&String> = Some(&it.public_ip).into_iter().filter(|it| !it.is_empty()).collect();
    let eip_id =
        account.eips.iter().find(|(_, eip)| eip.address == it.eip && !it.eip.is_empty()).map(|(id, _)| id.as_str());
    let interfaces: Vec<Value> = interfaces
        .iter()
        .map(|(eni_id, eni)| {
            json!({
                "NetworkInterfaceId": eni_id,
                "Type": kind(eni),
                "PrimaryIpAddress": eni.ipv4.first(),
                "MacAddress": mac(eni_id),
                "PrivateIpSets": {"PrivateIpSet": private_ips(eni)},
                "Ipv6Sets": {"Ipv6Set": ipv6s(eni)},
            })
        })
        .collect();
    json!({
        "InstanceId": id,
        "InstanceName": it.name,
        "HostName": it.host_name,
        "InstanceType": it.instance_type,
        "Status": it.status,
        "RegionId": account.region,
        "ZoneId": it.zone,
        "InstanceChargeType": it.charge_type,
        "SpotStrategy": it.spot_strategy,
        "InstanceNetworkType": "vpc",
        "PublicIpAddress": {"IpAddress": public},
        "InnerIpAddress": {"IpAddress": []},
        "EipAddress": {"IpAddress": it.eip, "AllocationId": eip_id.unwrap_or_default()},
        "VpcAttributes": {
            "VpcId": account.vpc_of(&it.vswitch),
            "VSwitchId": it.vswitch,
            "NatIpAddress": "",
            "PrivateIpAddress": {"IpAddress": it.private_ips},
        },
        "NetworkInterfaces": {"NetworkInterface": interfaces},
        "SecurityGroupIds": {"SecurityGroupId": []},
        "Tags": {"Tag": tag_list(&it.tags)},
        "OperationLocks": {"LockReason": []},
    })
}

pub(crate) fn tag_list(tags: &BTreeMap<String, String>) -> Vec<Value> {
    tags.iter().map(|(key, value)| json!({"TagKey": key, "TagValue": value})).collect()
}

const fn kind(eni: &Interface) -> &'static str {
    if eni.primary { "Primary" } else { "Secondary" }
}

/// A stable address of the kind the vendor gives out.
pub(crate) fn mac(eni_id: &str) -> String {
    let sum = eni_id.bytes().fold(7_u64, |sum, byte| super::account::mix(sum ^ u64::from(byte)));
    let [a, b, c, d, ..] = sum.to_be_bytes();
    format!("00:16:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn private_ips(eni: &Interface) -> Vec<Value> {
    eni.ipv4.iter().enumerate().map(|(n, ip)| json!({"PrivateIpAddress": ip, "Primary": n == 0})).collect()
}

fn ipv6s(eni: &Interface) -> Vec<Value> {
    eni.ipv6.iter().map(|ip| json!({"Ipv6Address": ip})).collect()
}

fn describe_network_interfaces(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let ids = cx.params.list("NetworkInterfaceId");
    let ipv4 = cx.params.list("PrivateIpAddress");
    let ipv6 = cx.params.list("Ipv6Address");
    for (name, list) in [("NetworkInterfaceId", &ids), ("PrivateIpAddress", &ipv4), ("Ipv6Address", &ipv6)] {
        if list.len() > 100 {
            return Err(ApiError::invalid(name, "at most 100 items are allowed"));
        }
    }
    let kind_wanted = cx.params.one_of("Type", &["Primary", "Secondary"])?;
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let any =
        |wanted: &[&str], held: &[String]| wanted.is_empty() || held.iter().any(|it| wanted.contains(&it.as_str()));
    let matches = |(id, it): &(&String, &Interface)| {
        (ids.is_empty() || ids.contains(&id.as_str()))
            && any(&ipv4, &it.ipv4)
            && any(&ipv6, &it.ipv6)
            && kind_wanted.is_none_or(|wanted| wanted == kind(it))
            && is_text("VpcId", cx.account.vpc_of(&it.vswitch))
            && is_text("VSwitchId", &it.vswitch)
            && is_text("InstanceId", &it.instance)
            && is_text("Status", &it.status)
            && is_text("PrimaryIpAddress", it.ipv4.first().map_or("", String::as_str))
    };
    let words: Vec<String> = ipv4.iter().chain(&ipv6).map(|ip| table::address(ip)).collect();
    let found = cx.account.interfaces.candidates(&ids, words, "").filter(matches);
    let found: Vec<Value> = found.map(|(id, it)| interface(cx.account, id, it)).collect();
    answer(cx, found, "NetworkInterfaceSets", "NetworkInterfaceSet", 500)
}

fn interface(account: &Account, id: &str, it: &Interface) -> Value {
    let mut value = json!({
        "NetworkInterfaceId": id,
        "Type": kind(it),
        "Status": it.status,
        "InstanceId": it.instance,
        "VpcId": account.vpc_of(&it.vswitch),
        "VSwitchId": it.vswitch,
        "ZoneId": account.vswitches.get(&it.vswitch).map(|it| it.zone.as_str()),
        "PrivateIpAddress": it.ipv4.first(),
        "MacAddress": mac(id),
        "ServiceManaged": false,
        "PrivateIpSets": {"PrivateIpSet": private_ips(it)},
        "Ipv6Sets": {"Ipv6Set": ipv6s(it)},
        "SecurityGroupIds": {"SecurityGroupId": []},
        "Tags": {"Tag": []},
    });
    if let Some(check) = it.source_dest_check {
        value["SourceDestCheck"] = check.into();
    }
    value
}

fn describe_disks(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let ids = json_list(cx, "DiskIds")?;
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let matches = |(id, it): &(&String, &Disk)| {
        ids.as_ref().is_none_or(|ids| ids.contains(id))
            && is_text("RegionId", &it.region)
            && is_text("ZoneId", &it.zone)
            && is_text("InstanceId", &it.instance)
            && is_text("Category", &it.category)
            && is_text("Status", &it.status)
    };
    let disk = |(id, it): (&String, &Disk)| {
        json!({
            "DiskId": id,
            "DiskName": "",
            "RegionId": it.region,
            "ZoneId": it.zone,
            "Category": it.category,
            "PerformanceLevel": if it.category == "cloud_essd" { "PL1" } else { "" },
            "Type": "data",
            "Size": 20,
            "Status": it.status,
            "InstanceId": it.instance,
            "MultiAttach": "Disabled",
            "DiskChargeType": "PostPaid",
            "Portable": true,
            "Tags": {"Tag": []},
        })
    };
    let found: Vec<Value> = cx.account.disks.iter().filter(matches).map(disk).collect();
    answer(cx, found, "Disks", "Disk", 500)
}

fn modify_network_interface(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("NetworkInterfaceId")?;
    let check = cx.params.one_of("SourceDestCheck", &["true", "false"])?;
    let Some(interface) = cx.account.interfaces.get_mut(id) else {
        let message = "The specified NetworkInterfaceId does not exist.";
        return Err(ApiError::new(404, "InvalidEniId.NotFound", message));
    };
    if let Some(check) = check {
        if interface.source_dest_check.is_none() {
            let message = "The specified parameter SourceDestCheck is not supported in this region.";
            return Err(ApiError::new(400, "UnsupportedParameter", message));
        }
        interface.source_dest_check = Some(check == "true");
    }
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("node", "node", true),
            ("node", "node-1", false),
            ("node*", "node-1", true),
            ("*-1", "node-1", true),
            ("*-1", "node-1-1", true),
            ("n*e*1", "node-11", true),
            ("n*e*1", "node-12", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} against {text}");
        }
    }
}
