//! Server groups of network load balancers.

use serde_json::{Value, json};

use super::super::account::{Account, NetworkLoadBalancer, Shared};
use super::super::actions::{Action, Context};
use super::super::ecs::has_tags;
use super::super::protocol::{ApiError, Params};
use super::super::table;
use super::objects::{HealthCheck, ServerGroup};
use super::{
    check_name, flag, group_for_write, illegal, jobs, listed_from, not_found, number, over_quota, read, some, tags,
    with_token, word, write,
};

const SCHEDULERS: &[&str] = &["wrr", "wlc", "rr", "sch", "tch", "qch"];
const HEALTH_CHECK: &str = "HealthCheckConfig.HealthCheckEnabled HealthCheckConfig.HealthCheckType HealthCheckConfig.HealthCheckConnectPort \
     HealthCheckConfig.HealthyThreshold HealthCheckConfig.UnhealthyThreshold \
     HealthCheckConfig.HealthCheckConnectTimeout HealthCheckConfig.HealthCheckInterval \
     HealthCheckConfig.HealthCheckDomain HealthCheckConfig.HealthCheckUrl HealthCheckConfig.HealthCheckHttpCode.N \
     HealthCheckConfig.HttpCheckMethod HealthCheckConfig.HealthCheckHttpVersion HealthCheckConfig.HealthCheckReq \
     HealthCheckConfig.HealthCheckExp";

pub(super) fn actions() -> Vec<Action> {
    let changeable = format!(
        "ServerGroupName ConnectionDrainEnabled ConnectionDrainTimeout Scheduler IpVersionAffinityMode \
         PreserveClientIpEnabled {HEALTH_CHECK}"
    );
    vec![
        write(
            "CreateServerGroup",
            &format!(
                "VpcId! ServerGroupType Protocol AddressIPVersion AnyPortEnabled ResourceGroupId Tag.N.Key \
                 Tag.N.Value {changeable}"
            ),
            |cx| with_token(cx, create),
        )
        .documented("parameters, ranges, defaults, answer")
        .observed("`TCPSSL` as protocol", "official controller v2.14.0")
        .assumed(
            "two groups may have one name; `PreserveClientIpEnabled` is off for `Ip` and `TCPSSL`; `qch` for UDP \
             alone",
        ),
        write("UpdateServerGroupAttribute", &format!("ServerGroupId! {changeable}"), |cx| with_token(cx, update))
            .documented("parameters, ranges, `IllegalParam.PreserveClientIpSwitch`")
            .assumed("what a call leaves out stays"),
        write("DeleteServerGroup", "ServerGroupId!", |cx| with_token(cx, delete))
            .documented("parameters, `ResourceInUse.ServerGroup` while a listener uses it")
            .assumed("shown as `Configuring` until its job ends"),
        read(
            "ListServerGroups",
            "ServerGroupIds.N ServerGroupNames.N Tag.N.Key Tag.N.Value VpcId ServerGroupType ResourceGroupId \
             MaxResults NextToken",
            list,
        )
        .documented("parameters, answer, pages, 10 tags per group")
        .assumed("tags are combined with AND; order by id; `Wrr` whatever was sent")
        .listing("/ServerGroups"),
    ]
}

impl ServerGroup {
    /// An empty group with the defaults of the cloud.
    #[must_use]
    pub fn new(name: &str, vpc: &str, kind: &str, protocol: &str) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            protocol: protocol.into(),
            ip_version: "ipv4".into(),
            affinity_mode: String::new(),
            vpc: vpc.into(),
            scheduler: "wrr".into(),
            drain_enabled: false,
            drain_timeout: 10,
            preserve_client_ip: kind == "Instance" && protocol != "TCPSSL",
            any_port: false,
            resource_group: "rg-default".into(),
            health: HealthCheck::default(),
            servers: Vec::new(),
            tags: std::collections::BTreeMap::new(),
            pending: None,
        }
    }
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let vpc = params.need("VpcId")?;
    if !cx.account.vpcs.contains_key(vpc) {
        return Err(not_found("Vpc"));
    }
    params.get("ServerGroupName").ok_or_else(|| super::missing("ServerGroupName"))?;
    let kind = word(params, "ServerGroupType", &["Instance", "Ip"])?.unwrap_or("Instance");
    let protocol = word(params, "Protocol", &["TCP", "UDP", "TCP_UDP", "TCPSSL"])?.unwrap_or("TCP");
    let mut made = ServerGroup::new("", vpc, kind, protocol);
    if let Some(version) = word(params, "AddressIPVersion", &["ipv4", "DualStack"])? {
        made.ip_version = version.into();
    }
    made.any_port = flag(params, "AnyPortEnabled")?.unwrap_or(false);
    if let Some(group) = params.get("ResourceGroupId") {
        made.resource_group = group.into();
    }
    made.tags = tags::given(params)?;
    set(params, &mut made)?;
    if cx.account.nlb.groups.len() >= cx.account.limits.server_groups {
        return Err(over_quota("nlb_quota_servergroups_num"));
    }
    let id = cx.account.fresh("sgp-", 18);
    let job = jobs::begin(cx);
    made.pending = job.pending("Creating");
    if !job.fails {
        cx.account.nlb.groups.insert(id.clone(), made.into());
    }
    Ok(json!({"ServerGroupId": id, "JobId": job.id}))
}

/// Sets the attributes that a call gives, and checks what comes of it.
fn set(params: &Params, it: &mut ServerGroup) -> Result<(), ApiError> {
    if let Some(name) = params.get("ServerGroupName") {
        check_name(name, "ServerGroupName")?;
        it.name = name.into();
    }
    if let Some(scheduler) = word(params, "Scheduler", SCHEDULERS)? {
        if scheduler == "qch" && it.protocol != "UDP" {
            return Err(illegal("Scheduler"));
        }
        it.scheduler = scheduler.into();
    }
    it.drain_enabled = flag(params, "ConnectionDrainEnabled")?.unwrap_or(it.drain_enabled);
    it.drain_timeout = number(params, "ConnectionDrainTimeout", 0, 900)?.unwrap_or(it.drain_timeout);
    if let Some(mode) = word(params, "IpVersionAffinityMode", &["Affinity", "NonAffinity"])? {
        it.affinity_mode = mode.into();
    }
    if let Some(on) = flag(params, "PreserveClientIpEnabled")? {
        if on && it.protocol == "TCPSSL" {
            return Err(illegal("PreserveClientIpSwitch"));
        }
        it.preserve_client_ip = on;
    }
    set_health(params, &it.protocol, &mut it.health)?;
    if it.any_port && it.health.enabled && it.health.connect_port == 0 {
        return Err(illegal("AnyPortServerGroupConflictWithHealthCheckConfig"));
    }
    Ok(())
}

fn set_health(params: &Params, protocol: &str, it: &mut HealthCheck) -> Result<(), ApiError> {
    let name = |field: &str| format!("HealthCheckConfig.{field}");
    let in_range = |field: &str, low, high| number(params, &name(field), low, high);
    let text = |field: &str, most: usize| match params.get(&name(field)) {
        Some(text) if text.chars().count() > most => Err(illegal(field)),
        other => Ok(other.map(str::to_owned)),
    };
    it.enabled = flag(params, &name("HealthCheckEnabled"))?.unwrap_or(it.enabled);
    if let Some(kind) = word(params, &name("HealthCheckType"), &["TCP", "HTTP", "UDP"])? {
        if kind == "UDP" && protocol != "UDP" {
            return Err(illegal("HealthCheckType"));
        }
        it.kind = kind.into();
    }
    it.connect_port = in_range("HealthCheckConnectPort", 0, 65535)?.unwrap_or(it.connect_port);
    it.healthy = in_range("HealthyThreshold", 2, 10)?.unwrap_or(it.healthy);
    it.unhealthy = in_range("UnhealthyThreshold", 2, 10)?.unwrap_or(it.unhealthy);
    it.timeout = in_range("HealthCheckConnectTimeout", 1, 300)?.unwrap_or(it.timeout);
    let longest = if it.kind == "UDP" { 300 } else { 50 };
    it.interval = in_range("HealthCheckInterval", 1, longest)?.unwrap_or(it.interval);
    it.domain = text("HealthCheckDomain", 80)?.unwrap_or_else(|| it.domain.clone());
    it.url = text("HealthCheckUrl", 80)?.unwrap_or_else(|| it.url.clone());
    if !it.url.is_empty() && !it.url.starts_with('/') {
        return Err(illegal("HealthCheckUrl"));
    }
    let codes = params.list(&name("HealthCheckHttpCode"));
    if codes.iter().any(|it| !["http_2xx", "http_3xx", "http_4xx", "http_5xx"].contains(it)) {
        return Err(illegal("HealthCheckHttpCode"));
    }
    if !codes.is_empty() {
        it.codes = codes.into_iter().map(str::to_owned).collect();
    }
    if let Some(method) = word(params, &name("HttpCheckMethod"), &["GET", "HEAD"])? {
        it.method = method.into();
    }
    if let Some(version) = word(params, &name("HealthCheckHttpVersion"), &["HTTP1.0", "HTTP1.1"])? {
        it.http_version = version.into();
    }
    it.request = text("HealthCheckReq", 512)?.unwrap_or_else(|| it.request.clone());
    it.expect = text("HealthCheckExp", 512)?.unwrap_or_else(|| it.expect.clone());
    Ok(())
}

fn update(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ServerGroupId")?;
    let mut changed = group_for_write(cx.account, id)?.clone();
    set(cx.params, &mut changed)?;
    let serves_tls = |it: &super::NetworkListener| it.protocol == "TCPSSL" && it.group == id;
    if changed.preserve_client_ip && users(cx.account, id).any(|(_, it)| it.listeners.values().any(serves_tls)) {
        return Err(illegal("PreserveClientIpSwitch"));
    }
    let job = jobs::begin(cx);
    let it = group_for_write(cx.account, id)?;
    if !job.fails {
        *it = changed;
    }
    it.pending = job.pending("Configuring");
    Ok(json!({"ServerGroupId": id, "JobId": job.id}))
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ServerGroupId")?;
    group_for_write(cx.account, id)?;
    if users(cx.account, id).next().is_some() {
        let message = "The specified resource of ServerGroup is in use.";
        return Err(ApiError::new(400, "ResourceInUse.ServerGroup", message));
    }
    let job = jobs::begin(cx);
    let pending = job.removal(cx, id, "Configuring");
    group_for_write(cx.account, id)?.pending = pending;
    super::settle(cx.account);
    Ok(job.answer())
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let (ids, names) = (some(params, "ServerGroupIds", 20)?, some(params, "ServerGroupNames", 20)?);
    let wanted = params.tags();
    let among = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
    let is_text = |name: &str, value: &str| params.get(name).is_none_or(|it| it == value);
    let matches = |(id, it): &(&String, &Shared<ServerGroup>)| {
        among(&ids, id)
            && among(&names, &it.name)
            && is_text("VpcId", &it.vpc)
            && is_text("ServerGroupType", &it.kind)
            && is_text("ResourceGroupId", &it.resource_group)
            && has_tags(&it.tags, &wanted)
    };
    let words = super::words(&names, &wanted);
    let from = |key: &str| cx.account.nlb.groups.candidates(&ids, words.clone(), key).filter(matches);
    let users = |id: &str| users(cx.account, id).map(|(id, _)| id).collect::<Vec<_>>();
    let key = |(id, _): &(&String, &Shared<ServerGroup>)| (*id).clone();
    listed_from(cx, "ServerGroups", from, key, |(id, it)| attributes(&cx.account.region, id, it, &users(id)))
}

/// The load balancers with a listener that uses a group.
fn users<'a>(account: &'a Account, id: &str) -> impl Iterator<Item = (&'a String, &'a Shared<NetworkLoadBalancer>)> {
    account.nlb.balancers.find([table::other(id)])
}

fn attributes(region: &str, id: &str, it: &ServerGroup, users: &[&String]) -> Value {
    let scheduler = match it.scheduler.as_str() {
        "wrr" => "Wrr",
        "wlc" => "Wlc",
        other => other,
    };
    json!({
        "ServerGroupId": id,
        "ServerGroupName": it.name,
        "ServerGroupType": it.kind,
        "ServerGroupStatus": it.shown_status(),
        "Protocol": it.protocol,
        "Scheduler": scheduler,
        "AddressIPVersion": it.ip_version,
        "IpVersionAffinityMode": it.affinity_mode,
        "VpcId": it.vpc,
        "RegionId": region,
        "ServerCount": it.servers.len(),
        "RelatedLoadBalancerIds": users,
        "ConnectionDrainEnabled": it.drain_enabled,
        "ConnectionDrainTimeout": it.drain_timeout,
        "PreserveClientIpEnabled": it.preserve_client_ip,
        "AnyPortEnabled": it.any_port,
        "ResourceGroupId": it.resource_group,
        "HealthCheck": health(&it.health),
        "Tags": tags::short(&it.tags.iter().take(10).map(|(k, v)| (k.clone(), v.clone())).collect()),
    })
}

fn health(it: &HealthCheck) -> Value {
    json!({
        "HealthCheckEnabled": it.enabled,
        "HealthCheckType": it.kind,
        "HealthCheckConnectPort": it.connect_port,
        "HealthyThreshold": it.healthy,
        "UnhealthyThreshold": it.unhealthy,
        "HealthCheckConnectTimeout": it.timeout,
        "HealthCheckInterval": it.interval,
        "HealthCheckDomain": it.domain,
        "HealthCheckUrl": it.url,
        "HealthCheckHttpCode": it.codes,
        "HttpCheckMethod": it.method,
        "HealthCheckHttpVersion": it.http_version,
        "HealthCheckReq": it.request,
        "HealthCheckExp": it.expect,
    })
}
