//! Network load balancers themselves.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::account::{Account, Shared};
use super::super::actions::{Action, Context};
use super::super::ecs::{has_tags, tag_list};
use super::super::objects::Pending;
use super::super::protocol::{ApiError, Params};
use super::objects::{NetworkLoadBalancer, NetworkZone};
use super::{
    balancer_for_write, check_name, denied, flag, jobs, listed_from, not_found, number, over_quota, read, some, tags,
    with_token, word, write, zones,
};

const ADDRESS_TYPES: &[&str] = &["Internet", "Intranet"];
const PROTECTIONS: &[&str] = &["ConsoleProtection", "NonProtection"];
const ZONE: &str = "ZoneMappings.N.ZoneId! ZoneMappings.N.VSwitchId! ZoneMappings.N.AllocationId \
                    ZoneMappings.N.EipType ZoneMappings.N.PrivateIPv4Address";

pub(super) fn actions() -> Vec<Action> {
    let one = "LoadBalancerId!";
    vec![
        write(
            "CreateLoadBalancer",
            &format!(
                "AddressType! VpcId! {ZONE} ZoneMappings.N.Ipv6Address LoadBalancerName LoadBalancerType \
                 AddressIpVersion BandwidthPackageId ResourceGroupId DeletionProtectionConfig.Enabled \
                 DeletionProtectionConfig.Reason ModificationProtectionConfig.Status \
                 ModificationProtectionConfig.Reason Tag.N.Key Tag.N.Value"
            ),
            |cx| with_token(cx, |cx| all_or_nothing(cx, create)),
        )
        .documented("parameters, answer, `Provisioning`, two zones, codes of zones and addresses, no job")
        .observed("`internet` in lower case", "official controller v2.14.0")
        .assumed("how long it is `Provisioning`; `CreateFailed` never occurs; the DNS name"),
        read("GetLoadBalancerAttribute", one, get)
            .documented("parameters, answer, `ResourceNotFound.loadBalancer`")
            .observed("`ResourceNotFound.loadBalancer`", "official controller v2.14.0")
            .assumed("always business status `Normal` and zone status `Active`; one address per zone"),
        read(
            "ListLoadBalancers",
            "LoadBalancerIds.N LoadBalancerNames.N VpcIds.N Tag.N.Key Tag.N.Value AddressType AddressIpVersion \
             LoadBalancerStatus ZoneId ResourceGroupId DNSName MaxResults NextToken",
            list,
        )
        .documented("parameters, answer, pages, limits of filters")
        .assumed("tags are combined with AND; order by id; one that is being deleted is shown")
        .listing("/LoadBalancers"),
        write("UpdateLoadBalancerAttribute", "LoadBalancerId! LoadBalancerName CrossZoneEnabled Cps", |cx| {
            with_token(cx, update)
        })
        .documented("parameters, answer")
        .assumed("no change is no error; `Cps` is not kept"),
        write(
            "UpdateLoadBalancerAddressTypeConfig",
            "LoadBalancerId! AddressType! ZoneMappings.N.ZoneId ZoneMappings.N.VSwitchId \
             ZoneMappings.N.AllocationId ZoneMappings.N.EipType",
            |cx| with_token(cx, |cx| all_or_nothing(cx, change_address_type)),
        )
        .documented("parameters, answer, `OperationDenied.AddressTypeNotChanged`")
        .assumed("`Intranet` takes the bandwidth package away; zones that are not named get a new address"),
        write("UpdateLoadBalancerZones", &format!("LoadBalancerId! {ZONE}"), |cx| {
            with_token(cx, |cx| all_or_nothing(cx, change_zones))
        })
        .documented("parameters, the whole list, `OperationDenied.ZoneMappingsNotChanged`, `ZoneVSwitchChanged`")
        .assumed("`OperationDenied.AllocationIdChanged`; kept zones keep their addresses"),
        write(
            "UpdateLoadBalancerProtection",
            "LoadBalancerId! DeletionProtectionEnabled DeletionProtectionReason ModificationProtectionStatus \
             ModificationProtectionReason",
            |cx| with_token(cx, protect),
        )
        .documented("parameters, no job")
        .assumed("in force at once; no change is no error; `ConsoleProtection` does not bind the API"),
        write("EnableLoadBalancerIpv6Internet", one, |cx| with_token(cx, |cx| set_ipv6(cx, "Internet")))
            .documented("parameters, no job, `OperationDenied.NonDualStackInstance`")
            .assumed("on for one that is on is no error; an IPv6 gateway is not needed"),
        write("DisableLoadBalancerIpv6Internet", one, |cx| with_token(cx, |cx| set_ipv6(cx, "Intranet")))
            .documented("parameters, no job, `OperationDenied.Ipv6IntranetInstance`")
            .assumed("in force at once"),
        write("AttachCommonBandwidthPackageToLoadBalancer", "LoadBalancerId! BandwidthPackageId!", |cx| {
            with_token(cx, attach_package)
        })
        .documented("parameters, `ResourceAlreadyAssociated.loadbalancer`, `IntranetLoadBalancer`")
        .assumed("one package at a time"),
        write("DetachCommonBandwidthPackageFromLoadBalancer", "LoadBalancerId! BandwidthPackageId!", |cx| {
            with_token(cx, detach_package)
        })
        .documented("parameters, `ResourceNotAssociated.loadbalancer`")
        .assumed("the same code for another package than the attached one"),
        write("LoadBalancerJoinSecurityGroup", "LoadBalancerId! SecurityGroupIds.N!", |cx| with_token(cx, join))
            .documented("parameters, 4 groups, `Conflict.SecurityGroup`, `Mismatch.vpc`")
            .observed("`QuotaInsufficient` beyond the limit", "official controller v2.14.0")
            .assumed("groups of two kinds: `Conflict.SecurityGroup`; name of the quota"),
        write("LoadBalancerLeaveSecurityGroup", "LoadBalancerId! SecurityGroupIds.N!", |cx| {
            with_token(cx, leave_groups)
        })
        .documented("parameters, answer")
        .assumed("`ResourceNotAssociated.SecurityGroup`; how long the group counts as used"),
        write("DeleteLoadBalancer", one, |cx| with_token(cx, delete))
            .documented("parameters, answer, `OperationDenied.DeletionProtectionEnabled`")
            .observed("`ResourceNotFound.loadBalancer`", "official controller v2.14.0")
            .assumed("shown as `Deleting` until its job ends; listeners go with it"),
    ]
}

/// Leaves everything as it was if a later part of a call is refused.
fn all_or_nothing(
    cx: &mut Context<'_>,
    run: fn(&mut Context<'_>) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let account = &cx.account;
    let before = (account.vswitches.clone(), account.eips.clone(), account.highest.clone(), account.counter);
    run(cx).inspect_err(|_| {
        let account = &mut *cx.account;
        (account.vswitches, account.eips, account.highest, account.counter) = before;
    })
}

/// A load balancer that stands nowhere.
pub(super) fn plain(name: &str, address_type: &str, vpc: &str) -> NetworkLoadBalancer {
    NetworkLoadBalancer {
        name: name.into(),
        address_type: address_type.into(),
        ipv6_address_type: String::new(),
        ip_version: "ipv4".into(),
        vpc: vpc.into(),
        dns: String::new(),
        bandwidth_package: String::new(),
        cross_zone: true,
        deletion_protection: false,
        deletion_reason: String::new(),
        modification_protection: "NonProtection".into(),
        modification_reason: String::new(),
        resource_group: "rg-default".into(),
        security_groups: Vec::new(),
        zones: Vec::new(),
        tags: std::collections::BTreeMap::new(),
        listeners: std::collections::BTreeMap::new(),
        status: "Active".into(),
        pending: None,
    }
}

pub(super) fn dns(account: &Account, id: &str) -> String {
    format!("{id}.{}.nlb.aliyuncsslb.com", account.region)
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let address_type = word(params, "AddressType", ADDRESS_TYPES)?.unwrap_or_default();
    let vpc = params.need("VpcId")?;
    if !cx.account.vpcs.contains_key(vpc) {
        return Err(not_found("Vpc"));
    }
    let mut made = plain(params.get("LoadBalancerName").unwrap_or_default(), address_type, vpc);
    if !made.name.is_empty() {
        check_name(&made.name, "LoadBalancerName")?;
    }
    if let Some(version) = word(params, "AddressIpVersion", &["ipv4", "DualStack"])? {
        made.ip_version = version.into();
    }
    if made.ip_version == "DualStack" {
        made.ipv6_address_type = "Intranet".into();
    }
    let package = params.get("BandwidthPackageId").unwrap_or_default().to_owned();
    check_package(cx.account, &made, &package)?;
    made.bandwidth_package = package;
    made.deletion_protection = flag(params, "DeletionProtectionConfig.Enabled")?.unwrap_or(false);
    made.deletion_reason = params.get("DeletionProtectionConfig.Reason").unwrap_or_default().into();
    set_modification_protection(
        &mut made,
        params,
        "ModificationProtectionConfig.Status",
        "ModificationProtectionConfig.Reason",
    )?;
    if let Some(group) = params.get("ResourceGroupId") {
        made.resource_group = group.into();
    }
    made.tags = tags::given(params)?;
    let given = zones::given(params)?;
    zones::check(cx.account, vpc, &given)?;
    if cx.account.nlb.balancers.len() >= cx.account.limits.network_load_balancers {
        return Err(over_quota("nlb_quota_loadbalancers_num"));
    }
    let id = cx.account.fresh("nlb-", 18);
    if made.name.is_empty() {
        made.name.clone_from(&id);
    }
    made.dns = dns(cx.account, &id);
    for mut zone in given {
        zones::settle_in(cx.account, (&id, &made), &mut zone)?;
        made.zones.push(zone);
    }
    let until = Instant::now() + cx.account.dials.nlb_creation_time;
    made.pending = Some(Pending { until, status: "Provisioning", removes: false });
    cx.account.nlb.balancers.insert(id.clone(), made.into());
    Ok(json!({"LoadbalancerId": id, "OrderId": cx.account.counter}))
}

fn set_modification_protection(
    it: &mut NetworkLoadBalancer,
    params: &Params,
    status: &str,
    reason: &str,
) -> Result<(), ApiError> {
    let given = params.get(reason).unwrap_or_default();
    match word(params, status, PROTECTIONS)? {
        Some("NonProtection") | None if !given.is_empty() => Err(super::illegal("ModificationProtectionReason")),
        Some(status) => {
            it.modification_protection = status.into();
            it.modification_reason = given.into();
            Ok(())
        }
        None => Ok(()),
    }
}

fn get(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("LoadBalancerId")?;
    let it = cx.account.nlb.balancers.get(id).ok_or_else(|| not_found("loadbalancer"))?;
    let mut body = attributes(&cx.account.region, id, it);
    body["Tags"] = tag_list(&it.tags).into();
    Ok(body)
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let (ids, names) = (some(params, "LoadBalancerIds", 20)?, some(params, "LoadBalancerNames", 20)?);
    let vpcs = some(params, "VpcIds", 10)?;
    let wanted = params.tags();
    let among = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
    let is_text = |name: &str, value: &str| params.get(name).is_none_or(|it| it.eq_ignore_ascii_case(value));
    let matches = |(id, it): &(&String, &Shared<NetworkLoadBalancer>)| {
        among(&ids, id)
            && among(&names, &it.name)
            && among(&vpcs, &it.vpc)
            && is_text("AddressType", &it.address_type)
            && is_text("AddressIpVersion", &it.ip_version)
            && is_text("LoadBalancerStatus", it.shown_status())
            && is_text("DNSName", &it.dns)
            && is_text("ResourceGroupId", &it.resource_group)
            && params.get("ZoneId").is_none_or(|zone| it.zones.iter().any(|it| it.zone == zone))
            && has_tags(&it.tags, &wanted)
    };
    let words = super::words(&names, &wanted);
    let from = |key: &str| cx.account.nlb.balancers.candidates(&ids, words.clone(), key).filter(matches);
    let key = |(id, _): &(&String, &Shared<NetworkLoadBalancer>)| (*id).clone();
    listed_from(cx, "LoadBalancers", from, key, |(id, it)| {
        let mut body = attributes(&cx.account.region, id, it);
        body["Tags"] = tags::short(&it.tags);
        body
    })
}

fn attributes(region: &str, id: &str, it: &NetworkLoadBalancer) -> Value {
    let zone = |zone: &NetworkZone| {
        json!({
            "ZoneId": zone.zone,
            "VSwitchId": zone.vswitch,
            "Status": "Active",
            "LoadBalancerAddresses": [{
                "AllocationId": zone.allocation_id,
                "PrivateIPv4Address": zone.private_ip,
                "PublicIPv4Address": zone.public_ip,
                "Ipv6Address": zone.ipv6,
                "EniId": format!("eni-{id}-{}", zone.zone),
            }],
        })
    };
    let mut body = json!({
        "LoadBalancerId": id,
        "LoadBalancerName": it.name,
        "LoadBalancerType": "Network",
        "LoadBalancerStatus": it.shown_status(),
        "LoadBalancerBusinessStatus": "Normal",
        "RegionId": region,
        "VpcId": it.vpc,
        "ResourceGroupId": it.resource_group,
        "AddressType": it.address_type,
        "AddressIpVersion": it.ip_version,
        "DNSName": it.dns,
        "CrossZoneEnabled": it.cross_zone,
        "BandwidthPackageId": it.bandwidth_package,
        "SecurityGroupIds": it.security_groups,
        "DeletionProtectionConfig": {"Enabled": it.deletion_protection, "Reason": it.deletion_reason},
        "ModificationProtectionConfig": {"Status": it.modification_protection, "Reason": it.modification_reason},
        "OperationLocks": [],
        "ZoneMappings": it.zones.iter().map(zone).collect::<Vec<_>>(),
    });
    if !it.ipv6_address_type.is_empty() {
        body["Ipv6AddressType"] = it.ipv6_address_type.clone().into();
    }
    body
}

fn update(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let name = params.get("LoadBalancerName");
    name.map(|it| check_name(it, "LoadBalancerName")).transpose()?;
    let cross_zone = flag(params, "CrossZoneEnabled")?;
    number(params, "Cps", 1, 1_000_000)?;
    let id = params.need("LoadBalancerId")?;
    balancer_for_write(cx.account, id)?;
    let job = jobs::begin(cx);
    let it = balancer_for_write(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.name = name.unwrap_or(&it.name).to_owned();
        it.cross_zone = cross_zone.unwrap_or(it.cross_zone);
    }
    Ok(job.answer())
}

fn change_address_type(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let wanted = word(params, "AddressType", ADDRESS_TYPES)?.unwrap_or_default();
    let given = zones::given(params)?;
    let id = params.need("LoadBalancerId")?;
    let mut it = balancer_for_write(cx.account, id)?.clone();
    if it.address_type == wanted {
        return Err(denied("AddressTypeNotChanged"));
    }
    let job = jobs::begin(cx);
    if !job.fails {
        it.address_type = wanted.into();
        for zone in &mut it.zones {
            zones::leave_public(cx.account, zone);
            let named = given.iter().find(|it| it.zone == zone.zone);
            zone.allocation_id = named.map(|it| it.allocation_id.clone()).unwrap_or_default();
            zones::go_public(cx.account, id, wanted, zone)?;
        }
        if wanted == "Intranet" {
            it.bandwidth_package.clear();
        }
    }
    it.pending = job.pending("Configuring");
    cx.account.nlb.balancers.insert(id.into(), it.into());
    Ok(job.answer())
}

fn change_zones(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let given = zones::given(cx.params)?;
    let id = cx.params.need("LoadBalancerId")?;
    let mut it = balancer_for_write(cx.account, id)?.clone();
    zones::check(cx.account, &it.vpc, &given)?;
    let (mut kept, mut new) = (Vec::new(), Vec::new());
    for wanted in given {
        let Some(held) = it.zones.iter().find(|it| it.zone == wanted.zone) else {
            new.push(wanted);
            continue;
        };
        let differs = |given: &str, held: &str| !given.is_empty() && given != held;
        if wanted.vswitch != held.vswitch {
            return Err(denied("ZoneVSwitchChanged"));
        }
        if differs(&wanted.private_ip, &held.private_ip) {
            return Err(denied("ProtectedPrivateIPv4AddressChanged"));
        }
        if differs(&wanted.allocation_id, &held.allocation_id) {
            return Err(denied("AllocationIdChanged"));
        }
        kept.push(held.clone());
    }
    if new.is_empty() && kept.len() == it.zones.len() {
        return Err(denied("ZoneMappingsNotChanged"));
    }
    let job = jobs::begin(cx);
    if !job.fails {
        for zone in std::mem::take(&mut it.zones) {
            if !kept.contains(&zone) {
                zones::leave(cx.account, zone);
            }
        }
        for zone in &mut new {
            zones::settle_in(cx.account, (id, &it), zone)?;
        }
        it.zones = kept;
        it.zones.extend(new);
    }
    it.pending = job.pending("Configuring");
    cx.account.nlb.balancers.insert(id.into(), it.into());
    Ok(job.answer())
}

fn protect(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let enabled = flag(params, "DeletionProtectionEnabled")?;
    let it = balancer_for_write(cx.account, params.need("LoadBalancerId")?)?;
    set_modification_protection(it, params, "ModificationProtectionStatus", "ModificationProtectionReason")?;
    if let Some(enabled) = enabled {
        it.deletion_protection = enabled;
        it.deletion_reason = params.get("DeletionProtectionReason").unwrap_or_default().into();
    }
    Ok(json!({}))
}

fn set_ipv6(cx: &mut Context<'_>, address_type: &str) -> Result<Value, ApiError> {
    let it = balancer_for_write(cx.account, cx.params.need("LoadBalancerId")?)?;
    if it.ip_version != "DualStack" {
        return Err(denied("NonDualStackInstance"));
    }
    if address_type == "Intranet" && it.ipv6_address_type == "Intranet" {
        return Err(denied("Ipv6IntranetInstance"));
    }
    it.ipv6_address_type = address_type.into();
    Ok(json!({}))
}

fn check_package(account: &Account, lb: &NetworkLoadBalancer, package: &str) -> Result<(), ApiError> {
    if package.is_empty() {
        return Ok(());
    }
    if lb.address_type != "Internet" {
        return Err(denied("IntranetLoadBalancer"));
    }
    if !account.nlb.bandwidth_packages.contains(package) {
        return Err(not_found("CommonBandwidthPackage"));
    }
    Ok(())
}

fn associated(code: &str) -> ApiError {
    ApiError::new(400, code, "The association of the specified resource of loadbalancer does not allow the operation.")
}

fn attach_package(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (id, package) = (cx.params.need("LoadBalancerId")?, cx.params.need("BandwidthPackageId")?);
    let lb = balancer_for_write(cx.account, id)?.clone();
    check_package(cx.account, &lb, package)?;
    if !lb.bandwidth_package.is_empty() {
        return Err(associated("ResourceAlreadyAssociated.loadbalancer"));
    }
    set_package(cx, id, package)
}

fn detach_package(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (id, package) = (cx.params.need("LoadBalancerId")?, cx.params.need("BandwidthPackageId")?);
    if balancer_for_write(cx.account, id)?.bandwidth_package != package {
        return Err(associated("ResourceNotAssociated.loadbalancer"));
    }
    set_package(cx, id, "")
}

fn set_package(cx: &mut Context<'_>, id: &str, package: &str) -> Result<Value, ApiError> {
    let job = jobs::begin(cx);
    let it = balancer_for_write(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.bandwidth_package = package.into();
    }
    Ok(job.answer())
}

fn join(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("LoadBalancerId")?;
    let wanted: Vec<String> = cx.params.list("SecurityGroupIds").into_iter().map(str::to_owned).collect();
    let lb = balancer_for_write(cx.account, id)?.clone();
    let kind = |id: &String| cx.account.security_groups.get(id).map(|it| it.kind.clone());
    let mut kinds: Vec<_> = lb.security_groups.iter().filter_map(kind).collect();
    for it in &wanted {
        let group = cx.account.security_groups.get(it).ok_or_else(|| not_found("SecurityGroup"))?;
        if group.vpc != lb.vpc {
            return Err(ApiError::new(400, "Mismatch.vpc", "The vpc is mismatched."));
        }
        if lb.security_groups.contains(it) || kinds.iter().any(|kind| *kind != group.kind) {
            return Err(ApiError::new(400, "Conflict.SecurityGroup", "The SecurityGroup is conflict."));
        }
        kinds.push(group.kind.clone());
    }
    if lb.security_groups.len() + wanted.len() > 4 {
        return Err(over_quota("nlb_quota_loadbalancer_security_groups_num"));
    }
    let job = jobs::begin(cx);
    let it = balancer_for_write(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.security_groups.extend(wanted);
    }
    Ok(job.answer())
}

fn leave_groups(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("LoadBalancerId")?;
    let gone: Vec<String> = cx.params.list("SecurityGroupIds").into_iter().map(str::to_owned).collect();
    let lb = balancer_for_write(cx.account, id)?;
    if gone.iter().any(|it| !lb.security_groups.contains(it)) {
        return Err(associated("ResourceNotAssociated.SecurityGroup"));
    }
    let job = jobs::begin(cx);
    let it = balancer_for_write(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.security_groups.retain(|it| !gone.contains(it));
        release_groups(cx.account, &gone);
    }
    Ok(job.answer())
}

/// The interfaces of a load balancer hold its former security groups for a while.
fn release_groups(account: &mut Account, ids: &[String]) {
    let until = Instant::now() + account.dials.security_group_release;
    for id in ids {
        if let Some(group) = account.security_groups.get_mut(id) {
            group.held_until = Some(until);
        }
    }
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("LoadBalancerId")?;
    if balancer_for_write(cx.account, id)?.deletion_protection {
        return Err(denied("DeletionProtectionEnabled"));
    }
    let job = jobs::begin(cx);
    let pending = job.removal(cx, id, "Deleting");
    balancer_for_write(cx.account, id)?.pending = pending;
    super::settle(cx.account);
    Ok(job.answer())
}

/// Takes a load balancer away with everything on it.
pub(super) fn remove(account: &mut Account, id: &str) {
    let Some(lb) = account.nlb.balancers.remove(id) else { return };
    for zone in lb.zones.clone() {
        zones::leave(account, zone);
    }
    release_groups(account, &lb.security_groups);
}

impl Account {
    /// Adds an active network load balancer in these zones and vSwitches.
    ///
    /// # Panics
    /// It cannot stand there.
    pub fn add_network_load_balancer(
        &mut self,
        id: &str,
        lb: NetworkLoadBalancer,
        at: &[(String, String)],
    ) -> &mut NetworkLoadBalancer {
        let mut made = NetworkLoadBalancer { dns: dns(self, id), ..lb };
        for (zone, vswitch) in at {
            let mut zone = NetworkZone { zone: zone.clone(), vswitch: vswitch.clone(), ..NetworkZone::default() };
            if let Err(error) = zones::settle_in(self, (id, &made), &mut zone) {
                panic!("{id} cannot stand in {}: {}", zone.zone, error.message);
            }
            made.zones.push(zone);
        }
        self.nlb.balancers.remove(id);
        self.nlb.balancers.entry(id.into()).or_insert_with(|| made.into())
    }
}

impl NetworkLoadBalancer {
    /// An active load balancer without anything on it, that stands nowhere.
    #[must_use]
    pub fn new(name: &str, address_type: &str, vpc: &str) -> Self {
        plain(name, address_type, vpc)
    }
}
