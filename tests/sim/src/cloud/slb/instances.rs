//! Load balancers themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::account::{Account, LoadBalancer, Shared};
use super::super::actions::{Action, Context, Product, once, page};
use super::super::ecs::{has_tags, tag_list};
use super::super::protocol::{ApiError, Params};
use super::super::sts::seconds;
use super::super::table;
use super::{for_write, instance, tags};

const SPECS: &[&str] =
    &["slb.s1.small", "slb.s2.small", "slb.s2.medium", "slb.s3.small", "slb.s3.medium", "slb.s3.large"];
const CHARGE_TYPES: &[&str] = &["PayBySpec", "PayByCLCU"];
const INTERNET_CHARGE_TYPES: &[&str] = &["paybytraffic", "paybybandwidth"];
const PROTECTIONS: &[&str] = &["ConsoleProtection", "NonProtection"];
/// What the cloud shows where bandwidth is not bought.
const FULL_BANDWIDTH: i64 = 5120;

pub(super) fn actions() -> Vec<Action> {
    vec![
        Action::write(
            Product::Slb,
            "CreateLoadBalancer",
            "LoadBalancerName AddressType AddressIPVersion VpcId VSwitchId Address InternetChargeType Bandwidth \
             InstanceChargeType LoadBalancerSpec MasterZoneId SlaveZoneId DeleteProtection \
             ModificationProtectionStatus ModificationProtectionReason ResourceGroupId PayType Tag.N.Key \
             Tag.N.Value ClientToken",
            |cx| once(cx, "LX_REQUEST_TOKEN_CONFLICT", create),
        )
        .documented(
            "parameters, answer, `VSwitchNotExist`, `OperationFailed.ZoneResourceLimit`, one object per \
             `ClientToken`",
        )
        .observed("`VSwitchAvailableIpNotExist`", "official controller v2.14.0")
        .assumed("`LX_REQUEST_TOKEN_CONFLICT`, `AssociateIpFail`; `active` at once; the choice of zones; `/` in names"),
        Action::read(
            Product::Slb,
            "DescribeLoadBalancers",
            "LoadBalancerId LoadBalancerName Fuzzy Tags Tag.N.Key Tag.N.Value VpcId VSwitchId Address AddressType \
             AddressIPVersion LoadBalancerStatus NetworkType InternetChargeType MasterZoneId SlaveZoneId ServerId \
             ServerIntranetAddress ResourceGroupId PayType PageNumber PageSize",
            describe_all,
        )
        .documented("parameters, answer, pages, an empty list for an unknown id")
        .observed("`Tags` combines tags with OR", "official controller v2.14.0")
        .assumed("the newest first; `Tag.N` combines tags with AND")
        .listing("/LoadBalancers/LoadBalancer"),
        Action::read(Product::Slb, "DescribeLoadBalancerAttribute", "LoadBalancerId!", describe_one)
            .documented("parameters, answer, `InvalidLoadBalancerId.NotFound`")
            .observed("`LoadBalancerId does not exist`", "official controller v2.14.0")
            .assumed("fields and time of a change of charge that waits"),
        Action::write(Product::Slb, "DeleteLoadBalancer", "LoadBalancerId!", delete)
            .documented("all that is on it goes, too; `OperationDenied.DeleteProtectionIsOn`")
            .observed("`LoadBalancerId does not exist`", "official controller v2.14.0")
            .assumed("gone from every list at once; a locked one cannot be deleted"),
        Action::write(Product::Slb, "SetLoadBalancerName", "LoadBalancerId! LoadBalancerName!", set_name)
            .documented("parameters, length")
            .assumed("`/` in names, two load balancers may have one name"),
        Action::write(
            Product::Slb,
            "SetLoadBalancerDeleteProtection",
            "LoadBalancerId! DeleteProtection!",
            set_delete_protection,
        )
        .documented("parameters")
        .assumed("in force at once; on for one that is on is no error"),
        Action::write(
            Product::Slb,
            "SetLoadBalancerModificationProtection",
            "LoadBalancerId! ModificationProtectionStatus! ModificationProtectionReason",
            set_modification_protection,
        )
        .documented("parameters, a reason with `ConsoleProtection` alone")
        .assumed("a reason without `ConsoleProtection` is refused; it does not bind the API"),
        Action::write(
            Product::Slb,
            "ModifyLoadBalancerInstanceSpec",
            "LoadBalancerId! LoadBalancerSpec! AutoPay",
            modify_spec,
        )
        .documented("parameters, `OperationDenied.PayByCLCU`")
        .assumed("in force at once; the present size is no error"),
        Action::write(
            Product::Slb,
            "ModifyLoadBalancerInternetSpec",
            "LoadBalancerId! InternetChargeType Bandwidth AutoPay",
            modify_internet_spec,
        )
        .documented("parameters, a change between ways to charge waits, `INSTANCE_HAS_INACTIVE_CHANGE`")
        .assumed("`OperationUnsupported.Intranet`; a change that waits never comes into force by itself"),
        Action::write(
            Product::Slb,
            "ModifyLoadBalancerInstanceChargeType",
            "LoadBalancerId! InstanceChargeType! LoadBalancerSpec InternetChargeType Bandwidth",
            modify_charge_type,
        )
        .documented("parameters, only from `PayBySpec` to `PayByCLCU`")
        .assumed("in force at once, not at midnight; `OperationDenied.PayByCLCU` for the way back"),
    ]
}

fn check_name(name: &str) -> Result<(), ApiError> {
    let is_allowed = |it: char| it.is_alphanumeric() || "._-/".contains(it);
    if (1..=80).contains(&name.chars().count()) && name.starts_with(char::is_alphabetic) && name.chars().all(is_allowed)
    {
        return Ok(());
    }
    let why = "1 to 80 letters, digits, . _ - are allowed, beginning with a letter";
    Err(ApiError::invalid("LoadBalancerName", why))
}

/// Where a new instance stands and what address it has.
struct Site {
    address_type: &'static str,
    address: String,
    vpc: String,
    vswitch: String,
    master_zone: String,
    slave_zone: String,
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let name = params.get("LoadBalancerName").unwrap_or_default();
    if !name.is_empty() {
        check_name(name)?;
    }
    let ip_version = params.one_of("AddressIPVersion", &["ipv4", "ipv6"])?.unwrap_or("ipv4");
    let charge_type = params.one_of("InstanceChargeType", CHARGE_TYPES)?.unwrap_or("PayBySpec");
    let spec = params.one_of("LoadBalancerSpec", SPECS)?;
    let spec = match (charge_type, spec) {
        ("PayBySpec", None) => return Err(ApiError::missing("LoadBalancerSpec")),
        ("PayBySpec", Some(spec)) => spec,
        _ => "slb.lcu.elastic",
    };
    let internet_charge_type = params.one_of("InternetChargeType", INTERNET_CHARGE_TYPES)?.unwrap_or("paybytraffic");
    let bandwidth = params.number_in("Bandwidth", 1, 5120)?;
    let delete_protection = params.one_of("DeleteProtection", &["on", "off"])? == Some("on");
    let (protection, reason) = protection(params)?;
    let given_tags = tags::given(params)?;
    if cx.account.load_balancers.len() >= cx.account.limits.load_balancers {
        let message = "The number of load balancers exceeds the quota.";
        return Err(ApiError::new(400, "OperationForbidden.QuotaLimit", message));
    }
    let site = site(cx, ip_version)?;
    if let Some(vswitch) = cx.account.vswitches.get_mut(&site.vswitch) {
        vswitch.available_ips = vswitch.available_ips.saturating_sub(1);
    }
    let id = cx.account.fresh("lb-bp1", 17);
    let is_bought = internet_charge_type == "paybybandwidth" && site.address_type == "internet";
    let made = LoadBalancer {
        name: if name.is_empty() { id.clone() } else { name.into() },
        address_type: site.address_type.into(),
        ip_version: ip_version.into(),
        vpc: site.vpc,
        vswitch: site.vswitch,
        master_zone: site.master_zone,
        slave_zone: site.slave_zone,
        spec: spec.into(),
        instance_charge_type: charge_type.into(),
        internet_charge_type: internet_charge_type.into(),
        bandwidth: if is_bought { bandwidth.ok_or_else(|| ApiError::missing("Bandwidth"))? } else { FULL_BANDWIDTH },
        delete_protection,
        modification_protection: protection,
        modification_reason: reason,
        resource_group: params.get("ResourceGroupId").unwrap_or("rg-default").into(),
        created: cx.now,
        tags: given_tags,
        ..LoadBalancer::internet(name, &site.address)
    };
    let answer = json!({
        "LoadBalancerId": id,
        "LoadBalancerName": made.name,
        "Address": made.address,
        "AddressIPVersion": made.ip_version,
        "NetworkType": made.network_type(),
        "VpcId": made.vpc,
        "VSwitchId": made.vswitch,
        "ResourceGroupId": made.resource_group,
        "OrderId": cx.account.counter,
    });
    cx.account.load_balancers.insert(id, made.into());
    Ok(answer)
}

fn site(cx: &mut Context<'_>, ip_version: &str) -> Result<Site, ApiError> {
    let params = cx.params;
    let implied = if params.get("VSwitchId").is_some() { "intranet" } else { "internet" };
    let is_internet = params.one_of("AddressType", &["internet", "intranet"])?.unwrap_or(implied) == "internet";
    let (mut vpc, mut vswitch) = (String::new(), String::new());
    if !is_internet {
        let id = params.need("VSwitchId")?;
        let Some(known) = cx.account.vswitches.get(id) else {
            return Err(ApiError::new(400, "VSwitchNotExist", "The specified virtual switch does not exist."));
        };
        if params.get("VpcId").is_some_and(|it| it != known.vpc) {
            return Err(ApiError::new(400, "InvalidVpcId.NotExist", "The specified VpcId does not exist."));
        }
        if known.available_ips == 0 {
            let message = "The specified VSwitch has no available IP address.";
            return Err(ApiError::new(400, "VSwitchAvailableIpNotExist", message));
        }
        (vpc, vswitch) = (known.vpc.clone(), id.to_owned());
    }
    let own_zone = cx.account.vswitches.get(&vswitch).map(|it| it.zone.clone());
    let (master_zone, slave_zone) = zones(cx.account, params, own_zone)?;
    let address = match params.get("Address") {
        Some(_) if is_internet => {
            let message = "The parameter Address is supported by intranet load balancers only.";
            return Err(ApiError::new(400, "InvalidParameter.Address", message));
        }
        Some(address) => {
            let range = cx.account.vswitches.get(&vswitch).map(|it| it.cidr.as_str()).unwrap_or_default();
            if !super::super::account::contains(range, address) {
                return Err(ApiError::invalid("Address", "it is not within the range of the vSwitch"));
            }
            if !cx.account.address_is_free(address) {
                return Err(ApiError::new(400, "AssociateIpFail", "The specified address is already in use."));
            }
            address.to_owned()
        }
        None => cx.account.fresh_address((!is_internet).then_some(vswitch.as_str()), ip_version),
    };
    let address_type = if is_internet { "internet" } else { "intranet" };
    Ok(Site { address_type, address, vpc, vswitch, master_zone, slave_zone })
}

fn zones(account: &Account, params: &Params, own: Option<String>) -> Result<(String, String), ApiError> {
    for name in ["MasterZoneId", "SlaveZoneId"] {
        if let Some(zone) = params.get(name).filter(|it| !account.zones.iter().any(|known| known == it)) {
            return Err(ApiError::invalid(name, &format!("there is no zone {zone}")));
        }
    }
    let for_sale = |it: &&String| !account.sold_out_zones.contains(*it);
    let wanted = params.get("MasterZoneId").map(str::to_owned).or(own.filter(|it| account.zones.contains(it)));
    let master = wanted.or_else(|| account.zones.iter().find(for_sale).cloned()).unwrap_or_default();
    let other = || {
        let rest = || account.zones.iter().filter(|it| **it != master);
        rest().find(for_sale).or_else(|| rest().next()).cloned().unwrap_or_else(|| master.clone())
    };
    let slave = params.get("SlaveZoneId").map_or_else(other, str::to_owned);
    if account.sold_out_zones.contains(&master) {
        let message = format!("The resources of zone {master} are insufficient.");
        return Err(ApiError::new(400, "OperationFailed.ZoneResourceLimit", message));
    }
    Ok((master, slave))
}

fn protection(params: &Params) -> Result<(String, String), ApiError> {
    let status = params.one_of("ModificationProtectionStatus", PROTECTIONS)?.unwrap_or("NonProtection");
    let reason = params.get("ModificationProtectionReason").unwrap_or_default();
    if reason.chars().count() > 80 {
        return Err(ApiError::invalid("ModificationProtectionReason", "at most 80 characters are allowed"));
    }
    if status == "NonProtection" && !reason.is_empty() {
        let why = "it is allowed with ConsoleProtection only";
        return Err(ApiError::invalid("ModificationProtectionReason", why));
    }
    Ok((status.into(), reason.into()))
}

fn describe_all(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    if params.get("PageNumber").is_some() != params.get("PageSize").is_some() {
        cx.log.complain("DescribeLoadBalancers: PageNumber and PageSize go together".into());
    }
    let any_of = any_of(params)?;
    let all_of = params.tags();
    for name in ["LoadBalancerId", "LoadBalancerName"] {
        if params.get(name).is_some_and(|it| it.split(',').count() > 10) {
            return Err(ApiError::invalid(name, "at most 10 items are allowed"));
        }
    }
    let is_fuzzy = params.get("Fuzzy") == Some("true");
    let is_text = |name: &str, value: &str| params.get(name).is_none_or(|it| it == value);
    let in_list = |name: &str, value: &str| params.get(name).is_none_or(|it| it.split(',').any(|it| it == value));
    let has_server = |it: &LoadBalancer| {
        let wanted = params.get("ServerId");
        wanted.is_none_or(|id| it.groups.values().flat_map(|it| &it.backends).any(|it| it.server_id == id))
    };
    let has_name = |it: &LoadBalancer| match params.get("LoadBalancerName") {
        Some(part) if is_fuzzy => it.name.contains(part),
        _ => in_list("LoadBalancerName", &it.name),
    };
    let matches = |(id, it): &(&String, &Shared<LoadBalancer>)| {
        in_list("LoadBalancerId", id)
            && has_name(it)
            && is_text("VpcId", &it.vpc)
            && is_text("VSwitchId", &it.vswitch)
            && in_list("Address", &it.address)
            && is_text("AddressType", &it.address_type)
            && is_text("AddressIPVersion", &it.ip_version)
            && is_text("LoadBalancerStatus", &it.status)
            && is_text("NetworkType", it.network_type())
            && is_text("InternetChargeType", &it.internet_charge_type)
            && is_text("MasterZoneId", &it.master_zone)
            && is_text("SlaveZoneId", &it.slave_zone)
            && is_text("ResourceGroupId", &it.resource_group)
            && has_server(it)
            && has_tags(&it.tags, &all_of)
            && any_of.as_ref().is_none_or(|any| any.iter().any(|(key, value)| it.tags.get(key) == Some(value)))
    };
    let ids: Vec<&str> = params.get("LoadBalancerId").into_iter().flat_map(|it| it.split(',')).collect();
    let names = params.get("LoadBalancerName").filter(|_| !is_fuzzy).into_iter().flat_map(|it| it.split(','));
    let mut words: Vec<String> = names.map(table::name).collect();
    if words.is_empty() {
        words.extend(all_of.iter().find_map(|(key, value)| Some(table::tag(key, (*value)?))));
    }
    // The newest first, as the console shows them.
    let mut found: Vec<_> = cx.account.load_balancers.candidates(&ids, words, "").filter(matches).collect();
    found.sort_by_key(|(_, it)| std::cmp::Reverse(it.created));
    let (found, mut body) = page(params, found, 10, 100)?;
    let items: Vec<Value> = found.into_iter().map(|(id, it)| summary(&cx.account.region, id, it)).collect();
    body["LoadBalancers"] = json!({"LoadBalancer": items});
    Ok(body)
}

/// The `Tags` filter: one JSON text, whose tags are combined with OR.
fn any_of(params: &Params) -> Result<Option<BTreeMap<String, String>>, ApiError> {
    let invalid = || ApiError::new(400, "InvalidTag", "The specified Tags are not valid.");
    let Some(text) = params.get("Tags") else { return Ok(None) };
    let list: Vec<BTreeMap<String, String>> = serde_json::from_str(text).map_err(|_| invalid())?;
    if list.is_empty() || list.len() > 10 {
        return Err(invalid());
    }
    let pair = |it: BTreeMap<String, String>| Some((it.get("TagKey")?.clone(), it.get("TagValue")?.clone()));
    list.into_iter().map(pair).collect::<Option<_>>().map(Some).ok_or_else(invalid)
}

fn summary(region: &str, id: &str, it: &LoadBalancer) -> Value {
    json!({
        "LoadBalancerId": id,
        "LoadBalancerName": it.name,
        "LoadBalancerStatus": it.status,
        "Address": it.address,
        "AddressType": it.address_type,
        "AddressIPVersion": it.ip_version,
        "NetworkType": it.network_type(),
        "VpcId": it.vpc,
        "VSwitchId": it.vswitch,
        "RegionId": region,
        "RegionIdAlias": region,
        "MasterZoneId": it.master_zone,
        "SlaveZoneId": it.slave_zone,
        "LoadBalancerSpec": it.spec,
        "InstanceChargeType": it.instance_charge_type,
        "PayType": "PayOnDemand",
        "InternetChargeType": if it.internet_charge_type == "paybybandwidth" { "3" } else { "4" },
        "InternetChargeTypeAlias": it.internet_charge_type,
        "Bandwidth": it.bandwidth,
        "DeleteProtection": if it.delete_protection { "on" } else { "off" },
        "ModificationProtectionStatus": it.modification_protection,
        "ModificationProtectionReason": it.modification_reason,
        "ResourceGroupId": it.resource_group,
        "ServiceManagedMode": "Unmanaged",
        "CreateTime": seconds(it.created),
        "CreateTimeStamp": it.created.as_millisecond(),
        "Tags": {"Tag": tag_list(&it.tags)},
    })
}

fn describe_one(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("LoadBalancerId")?;
    let it = instance(cx.account, id)?;
    let mut body = summary(&cx.account.region, id, it);
    body["InternetChargeType"] = it.internet_charge_type.clone().into();
    body["HasReservedInfo"] = it.reserved.is_some().to_string().into();
    if let Some((charge_type, bandwidth)) = &it.reserved {
        body["ReservedInfoOrderType"] = "MODCHARGETYPE".into();
        body["ReservedInfoInternetChargeType"] = if charge_type == "paybybandwidth" { "3" } else { "4" }.into();
        body["ReservedInfoBandwidth"] = bandwidth.to_string().into();
        body["ReservedInfoActiveTime"] = "2026-01-02T16:00:00Z".into();
    }
    let ports: Vec<u16> = it.listeners.keys().map(|(port, _)| *port).collect();
    let listeners: Vec<Value> = it
        .listeners
        .iter()
        .map(|((port, protocol), listener)| {
            json!({"ListenerPort": port, "ListenerProtocol": protocol.as_str(), "Description": listener.description,
                "ListenerForward": listener.config.get("ListenerForward"), "ForwardPort": listener.config.get("ForwardPort")})
        })
        .collect();
    body["ListenerPorts"] = json!({"ListenerPort": ports});
    body["ListenerPortsAndProtocol"] = json!({"ListenerPortAndProtocol": listeners});
    body["ListenerPortsAndProtocal"] = json!({"ListenerPortAndProtocal": listeners});
    body["BackendServers"] = json!({"BackendServer": []});
    Ok(body)
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    if for_write(cx)?.delete_protection {
        let message = "The specified load balancer is protected from deletion.";
        return Err(ApiError::new(400, "OperationDenied.DeleteProtectionIsOn", message));
    }
    if let Some(gone) = cx.account.load_balancers.remove(cx.params.need("LoadBalancerId")?) {
        cx.account.free_address(&gone.vswitch);
    }
    Ok(json!({}))
}

fn set_name(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let name = cx.params.need("LoadBalancerName")?;
    check_name(name)?;
    for_write(cx)?.name = name.into();
    Ok(json!({}))
}

fn set_delete_protection(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let on = cx.params.one_of("DeleteProtection", &["on", "off"])? == Some("on");
    for_write(cx)?.delete_protection = on;
    Ok(json!({}))
}

fn set_modification_protection(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (status, reason) = protection(cx.params)?;
    let it = for_write(cx)?;
    it.modification_protection = status;
    it.modification_reason = reason;
    Ok(json!({}))
}

/// Refuses what does not exist for a way of payment.
fn refuse(charge_type: &str) -> ApiError {
    let message =
        format!("The operation is not allowed because the instanceChargeType of loadbalancer is {charge_type}.");
    ApiError::new(400, &format!("OperationDenied.{charge_type}"), message)
}

fn modify_spec(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let spec = cx.params.one_of("LoadBalancerSpec", SPECS)?.unwrap_or_default();
    let order = cx.account.counter;
    let it = for_write(cx)?;
    if it.instance_charge_type == "PayByCLCU" {
        return Err(refuse("PayByCLCU"));
    }
    it.spec = spec.into();
    Ok(json!({"OrderId": order}))
}

fn modify_internet_spec(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let wanted = cx.params.one_of("InternetChargeType", INTERNET_CHARGE_TYPES)?;
    let bandwidth = cx.params.number_in("Bandwidth", 1, 5120)?;
    let (order, waits) = (cx.account.counter, cx.account.dials.charge_changes_wait);
    let it = for_write(cx)?;
    if it.instance_charge_type == "PayByCLCU" {
        return Err(refuse("PayByCLCU"));
    }
    if it.reserved.is_some() {
        let message = "The instance has a change that is not in force yet.";
        return Err(ApiError::new(400, "INSTANCE_HAS_INACTIVE_CHANGE", message));
    }
    if it.address_type == "intranet" {
        let message = "The operation is not supported by intranet load balancers.";
        return Err(ApiError::new(400, "OperationUnsupported.Intranet", message));
    }
    let wanted = wanted.unwrap_or(&it.internet_charge_type).to_owned();
    let bandwidth = match (wanted.as_str(), bandwidth) {
        ("paybybandwidth", Some(bandwidth)) => bandwidth,
        ("paybybandwidth", None) if it.internet_charge_type == wanted => it.bandwidth,
        ("paybybandwidth", None) => return Err(ApiError::missing("Bandwidth")),
        _ => FULL_BANDWIDTH,
    };
    if waits && it.internet_charge_type != wanted {
        it.reserved = Some((wanted, bandwidth));
    } else {
        (it.internet_charge_type, it.bandwidth) = (wanted, bandwidth);
    }
    Ok(json!({"OrderId": order}))
}

fn modify_charge_type(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let wanted = cx.params.one_of("InstanceChargeType", CHARGE_TYPES)?.unwrap_or_default();
    let it = for_write(cx)?;
    match (it.instance_charge_type.as_str(), wanted) {
        ("PayBySpec", "PayByCLCU") => {
            it.instance_charge_type = wanted.into();
            it.spec = "slb.lcu.elastic".into();
            Ok(json!({}))
        }
        (held, _) => Err(refuse(held)),
    }
}
