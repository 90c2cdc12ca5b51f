//! Listeners of network load balancers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::account::Account;
use super::super::actions::{Action, Context};
use super::super::protocol::{ApiError, Params};
use super::super::table;
use super::objects::{NetworkListener, ServerGroup};
use super::{
    flag, illegal, jobs, listed_from, locked, missing, not_found, number, over_quota, read, some, tags, with_token,
    word, write, wrong_status,
};

const PROTOCOLS: &[&str] = &["TCP", "UDP", "TCPSSL"];
const ALPN_POLICIES: &[&str] = &["HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred"];
const TLS_POLICIES: &[&str] = &[
    "tls_cipher_policy_1_0",
    "tls_cipher_policy_1_1",
    "tls_cipher_policy_1_2",
    "tls_cipher_policy_1_2_strict",
    "tls_cipher_policy_1_2_strict_with_1_3",
];
const ATTRIBUTES: &str = "ServerGroupId ListenerDescription IdleTimeout Cps Mss ProxyProtocolEnabled \
                          ProxyProtocolV2Config SecSensorEnabled CertificateIds.N CaEnabled CaCertificateIds.N \
                          SecurityPolicyId AlpnEnabled AlpnPolicy";

pub(super) fn actions() -> Vec<Action> {
    let one = "ListenerId!";
    vec![
        write(
            "CreateListener",
            &format!(
                "LoadBalancerId! ListenerProtocol! ListenerPort! StartPort EndPort Tag.N.Key Tag.N.Value {ATTRIBUTES}"
            ),
            |cx| with_token(cx, create),
        )
        .documented("parameters, ranges, defaults, `Conflict.Port`, which server group fits, codes of TLS")
        .observed("`Conflict.Lock`", "official controller v2.14.0")
        .assumed("its job holds the load balancer or not, as a dial says; `MissingParam.certificate`"),
        write("UpdateListenerAttribute", &format!("ListenerId! {ATTRIBUTES}"), |cx| with_token(cx, update))
            .documented("parameters, ranges, codes of server groups and TLS")
            .observed("`Conflict.Lock`", "official controller v2.14.0")
            .assumed("parameters are checked before the state; what a call leaves out stays"),
        write("DeleteListener", one, |cx| with_token(cx, delete))
            .documented("parameters, answer, `ResourceNotFound.listener`")
            .observed("`Conflict.Lock`", "official controller v2.14.0")
            .assumed("shown as `Deleting`, and holds its group, until its job ends"),
        write("StartListener", one, |cx| with_token(cx, |cx| switch(cx, "Starting", "Running")))
            .documented("parameters, answer")
            .assumed("a running listener is no error"),
        write("StopListener", one, |cx| with_token(cx, |cx| switch(cx, "Stopping", "Stopped")))
            .documented("parameters, answer")
            .assumed("a stopped listener is no error"),
        read(
            "ListListeners",
            "LoadBalancerIds.N ListenerIds.N ListenerProtocol Tag.N.Key Tag.N.Value MaxResults NextToken",
            list,
        )
        .documented("parameters, answer, pages")
        .assumed("order by load balancer and id; tags do not filter")
        .listing("/Listeners"),
    ]
}

/// The load balancer that a listener is on.
pub(super) fn owner(account: &Account, id: &str) -> Result<String, ApiError> {
    // A word can also be the group of a listener.
    let mut owners = account.nlb.balancers.find([table::other(id)]).filter(|(_, it)| it.listeners.contains_key(id));
    owners.next().map(|(id, _)| id.clone()).ok_or_else(|| not_found("listener"))
}

/// The listener with this id.
pub(super) fn listener<'w>(account: &'w mut Account, id: &str) -> Result<&'w mut NetworkListener, ApiError> {
    let owner = owner(account, id)?;
    let lb = account.nlb.balancers.get_mut(&owner).ok_or_else(|| not_found("listener"))?;
    lb.listeners.get_mut(id).ok_or_else(|| not_found("listener"))
}

/// Whether a load balancer takes writes to its listeners.
fn check_balancer(account: &Account, id: &str) -> Result<(), ApiError> {
    let lb = account.nlb.balancers.get(id).ok_or_else(|| not_found("loadBalancer"))?;
    match lb.shown_status() {
        "Active" => Ok(()),
        "Configuring" => Err(locked()),
        _ => Err(wrong_status("loadbalancer")),
    }
}

/// Begins a job on a listener that takes writes. Where the cloud is so, the job also holds the load balancer.
pub(super) fn begin(cx: &mut Context<'_>, id: &str) -> Result<jobs::Begun, ApiError> {
    let owner = owner(cx.account, id)?;
    check_balancer(cx.account, &owner)?;
    if listener(cx.account, id)?.pending.is_some_and(|it| !it.is_over()) {
        return Err(wrong_status("listener"));
    }
    Ok(begin_on(cx, &owner))
}

fn begin_on(cx: &mut Context<'_>, owner: &str) -> jobs::Begun {
    let job = jobs::begin(cx);
    if cx.account.dials.nlb_listeners_lock
        && let Some(lb) = cx.account.nlb.balancers.get_mut(owner)
    {
        lb.pending = job.pending("Configuring");
    }
    job
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let owner = params.need("LoadBalancerId")?;
    let protocol = word(params, "ListenerProtocol", PROTOCOLS)?.unwrap_or_default();
    let port = number(params, "ListenerPort", 0, 65535)?.and_then(|it| u16::try_from(it).ok()).unwrap_or(0);
    let mut made = NetworkListener {
        protocol: protocol.into(),
        port,
        range: if port == 0 { Some(range(params)?) } else { None },
        status: "Running".into(),
        idle_timeout: if protocol == "UDP" { 20 } else { 900 },
        tags: tags::given(params)?,
        ..NetworkListener::default()
    };
    if protocol == "TCPSSL" {
        made.security_policy = TLS_POLICIES[0].into();
    }
    params.get("ServerGroupId").ok_or_else(|| missing("ServerGroupId"))?;
    set(cx.account, params, &mut made)?;
    check_balancer(cx.account, owner)?;
    let lb = cx.account.nlb.balancers.get(owner).ok_or_else(|| not_found("loadBalancer"))?;
    let group = cx.account.nlb.groups.get(&made.group).ok_or_else(|| not_found("serverGroup"))?;
    if group.vpc != lb.vpc {
        return Err(ApiError::new(400, "Mismatch.VpcId", "The VpcId is mismatched."));
    }
    let ((start, end), udp) = (made.ports(), protocol == "UDP");
    let collides = |it: &&NetworkListener| {
        let (first, last) = it.ports();
        (it.protocol == "UDP") == udp && first <= end && start <= last
    };
    if lb.listeners.values().find(collides).is_some() {
        return Err(ApiError::new(400, "Conflict.Port", "The Port is conflict."));
    }
    if lb.listeners.len() >= cx.account.limits.listeners {
        return Err(over_quota("nlb_quota_listeners_num"));
    }
    let id = format!("{}@{port}", cx.account.fresh("lsn-", 18));
    let job = begin_on(cx, owner);
    made.pending = job.pending("Provisioning");
    if !job.fails
        && let Some(lb) = cx.account.nlb.balancers.get_mut(owner)
    {
        lb.listeners.insert(id.clone(), made);
    }
    Ok(json!({"ListenerId": id, "JobId": job.id}))
}

fn range(params: &Params) -> Result<(u16, u16), ApiError> {
    let port = |name: &str| {
        let number = number(params, name, 0, 65535)?.ok_or_else(|| missing(name))?;
        u16::try_from(number).map_err(|_| illegal(name))
    };
    let (start, end) = (port("StartPort")?, port("EndPort")?);
    if start < end { Ok((start, end)) } else { Err(illegal("EndPort")) }
}

/// Sets the attributes that a call gives, and checks what comes of it.
fn set(account: &Account, params: &Params, it: &mut NetworkListener) -> Result<(), ApiError> {
    if let Some(text) = params.get("ListenerDescription") {
        if !(2..=256).contains(&text.chars().count()) {
            return Err(illegal("ListenerDescription"));
        }
        it.description = text.into();
    }
    let (least, most) = if it.protocol == "UDP" { (10, 20) } else { (10, 900) };
    it.idle_timeout = number(params, "IdleTimeout", least, most)?.unwrap_or(it.idle_timeout);
    it.cps = number(params, "Cps", 0, 1_000_000)?.or(it.cps);
    it.mss = number(params, "Mss", 0, 1500)?.unwrap_or(it.mss);
    it.proxy_protocol = flag(params, "ProxyProtocolEnabled")?.unwrap_or(it.proxy_protocol);
    it.sec_sensor = flag(params, "SecSensorEnabled")?.unwrap_or(it.sec_sensor);
    if let Some(text) = params.get("ProxyProtocolV2Config") {
        let given: BTreeMap<String, bool> = serde_json::from_str(text).map_err(|_| illegal("ProxyProtocolV2Config"))?;
        it.ppv2.extend(given);
    }
    if let Some(group) = params.get("ServerGroupId") {
        it.group = group.into();
    }
    let group = account.nlb.groups.get(&it.group).ok_or_else(|| not_found("serverGroup"))?;
    check_group(it, group)?;
    set_tls(account, params, it)
}

fn check_group(it: &NetworkListener, group: &ServerGroup) -> Result<(), ApiError> {
    if group.shown_status() == "Creating" {
        return Err(wrong_status("serverGroup"));
    }
    let fits = match it.protocol.as_str() {
        "TCPSSL" => matches!(group.protocol.as_str(), "TCP" | "TCPSSL"),
        protocol => group.protocol == protocol || group.protocol == "TCP_UDP",
    };
    if !fits {
        return Err(ApiError::new(400, "Mismatch.Protocol", "The Protocol is mismatched."));
    }
    if it.protocol == "TCPSSL" && group.preserve_client_ip {
        let message =
            "The server group associated with the tcpssl listener does not support enabling PreserveClientIp.";
        return Err(ApiError::new(400, "IllegalParam.PreserveClientIpSwitch", message));
    }
    match (it.range.is_some(), group.any_port) {
        (true, false) => Err(illegal("AnyPortListenerConflictWithNonAnyPortServerGroup")),
        (false, true) => Err(illegal("NonAnyPortListenerConflictWithAnyPortServerGroup")),
        _ => Ok(()),
    }
}

fn set_tls(account: &Account, params: &Params, it: &mut NetworkListener) -> Result<(), ApiError> {
    if it.protocol != "TCPSSL" {
        return Ok(());
    }
    let ids = |name: &str| -> Vec<String> { params.list(name).into_iter().map(str::to_owned).collect() };
    let (server, ca) = (ids("CertificateIds"), ids("CaCertificateIds"));
    if server.len() > 1 || ca.len() > 1 {
        return Err(illegal("CertificateIds"));
    }
    if let Some(unknown) = server.iter().find(|it| !account.certificates.contains_key(*it)) {
        return Err(super::certificates::no_certificate(unknown));
    }
    if ca.iter().any(|it| !account.nlb.ca_certificates.contains(it)) {
        return Err(not_found("CaCertificate"));
    }
    if !server.is_empty() {
        it.certificates = server;
    }
    if !ca.is_empty() {
        it.ca_certificates = ca;
    }
    it.ca_enabled = flag(params, "CaEnabled")?.unwrap_or(it.ca_enabled);
    it.alpn_enabled = flag(params, "AlpnEnabled")?.unwrap_or(it.alpn_enabled);
    if let Some(policy) = word(params, "AlpnPolicy", ALPN_POLICIES)? {
        it.alpn_policy = policy.into();
    }
    if let Some(policy) = params.get("SecurityPolicyId") {
        if !TLS_POLICIES.contains(&policy) && !account.nlb.security_policies.contains(policy) {
            return Err(not_found("securitypolicy"));
        }
        it.security_policy = policy.into();
    }
    if !it.ca_enabled {
        it.ca_certificates.clear();
    }
    if !it.alpn_enabled {
        it.alpn_policy.clear();
    }
    if it.certificates.is_empty() {
        return Err(missing("certificate"));
    }
    if it.ca_enabled && it.ca_certificates.is_empty() {
        return Err(missing("CaCertificate"));
    }
    if it.alpn_enabled && it.alpn_policy.is_empty() {
        return Err(missing("AlpnPolicy"));
    }
    Ok(())
}

fn update(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ListenerId")?;
    let mut changed = listener(cx.account, id)?.clone();
    set(cx.account, cx.params, &mut changed)?;
    let job = begin(cx, id)?;
    let it = listener(cx.account, id)?;
    if !job.fails {
        *it = changed;
    }
    it.pending = job.pending("Configuring");
    Ok(job.answer())
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ListenerId")?;
    let job = begin(cx, id)?;
    let owner = owner(cx.account, id)?;
    let pending = job.removal(cx, &owner, "Deleting");
    listener(cx.account, id)?.pending = pending;
    super::settle(cx.account);
    Ok(job.answer())
}

fn switch(cx: &mut Context<'_>, meanwhile: &'static str, status: &str) -> Result<Value, ApiError> {
    let id = cx.params.need("ListenerId")?;
    let job = begin(cx, id)?;
    let it = listener(cx.account, id)?;
    it.pending = job.pending(meanwhile);
    if !job.fails {
        it.status = status.into();
    }
    Ok(job.answer())
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (owners, ids) = (some(cx.params, "LoadBalancerIds", 20)?, some(cx.params, "ListenerIds", 20)?);
    let protocol = word(cx.params, "ListenerProtocol", PROTOCOLS)?;
    let words: Vec<String> = ids.iter().map(|id| table::other(id)).collect();
    let is_wanted = |id: &str, it: &NetworkListener| {
        (ids.is_empty() || ids.contains(&id)) && protocol.is_none_or(|wanted| it.protocol == wanted)
    };
    let from = |key: &str| {
        let owner = key.split('/').next().unwrap_or_default();
        let owners = cx.account.nlb.balancers.candidates(&owners, words.clone(), owner);
        let all = owners.flat_map(|(owner, lb)| lb.listeners.iter().map(move |(id, it)| (owner, id, it)));
        all.filter(|(_, id, it)| is_wanted(id, it))
    };
    let key = |(owner, id, _): &(&String, &String, &NetworkListener)| format!("{owner}/{id}");
    listed_from(cx, "Listeners", from, key, |(owner, id, it)| attributes(&cx.account.region, owner, id, it))
}

fn attributes(region: &str, owner: &str, id: &str, it: &NetworkListener) -> Value {
    let port = |port: Option<u16>| port.map(|it| it.to_string()).unwrap_or_default();
    let mut body = json!({
        "ListenerId": id,
        "LoadBalancerId": owner,
        "RegionId": region,
        "ListenerProtocol": it.protocol,
        "ListenerPort": it.port,
        "StartPort": port(it.range.map(|it| it.0)),
        "EndPort": port(it.range.map(|it| it.1)),
        "ListenerStatus": it.shown_status(),
        "ListenerDescription": it.description,
        "ServerGroupId": it.group,
        "IdleTimeout": it.idle_timeout,
        "Mss": it.mss,
        "CertificateIds": it.certificates,
        "CaCertificateIds": it.ca_certificates,
        "CaEnabled": it.ca_enabled,
        "SecurityPolicyId": it.security_policy,
        "ProxyProtocolEnabled": it.proxy_protocol,
        "ProxyProtocolV2Config": it.ppv2,
        "AlpnEnabled": it.alpn_enabled,
        "AlpnPolicy": it.alpn_policy,
        "SecSensorEnabled": it.sec_sensor,
        "Tags": tags::short(&it.tags),
    });
    if let Some(cps) = it.cps {
        body["Cps"] = cps.into();
    }
    body
}
