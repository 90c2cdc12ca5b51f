//! Listeners of the four protocols. What each of them takes, and what the cloud fills in, is the table [`ATTRIBUTES`].

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::account::{Account, Listener, LoadBalancer, Protocol};
use super::super::actions::{Action, Context, Product, page_by_token};
use super::super::ecs::{has_tags, tag_list};
use super::super::protocol::{ApiError, Params};
use super::{certificates, for_write, instance, tags};

use Protocol::{Http, Https, Tcp, Udp};

/// What values an attribute takes.
enum Kind {
    Number(i64, i64),
    /// A port, or -520 for that of the backend.
    CheckedPort,
    Word(&'static [&'static str]),
    Uri,
    HttpCodes,
    Domain,
    /// ASCII letters, digits, `-` and `_`, at most so many.
    Name(usize),
    /// An id that is checked elsewhere.
    Id,
}

/// What the cloud fills in.
enum Fill {
    Nothing,
    Number(i64),
    Word(&'static str),
}

struct Attribute {
    name: &'static str,
    protocols: &'static [Protocol],
    /// Whether a change takes it, too.
    set: bool,
    kind: Kind,
    fill: Fill,
}

const fn attribute(name: &'static str, protocols: &'static [Protocol], kind: Kind, fill: Fill) -> Attribute {
    Attribute { name, protocols, set: true, kind, fill }
}

const ALL: &[Protocol] = &[Tcp, Udp, Http, Https];
const L4: &[Protocol] = &[Tcp, Udp];
const L7: &[Protocol] = &[Http, Https];
const NOT_UDP: &[Protocol] = &[Tcp, Http, Https];
const ON_OFF: Kind = Kind::Word(&["on", "off"]);
const TRUE_FALSE: Kind = Kind::Word(&["true", "false"]);
const TLS_POLICIES: &[&str] = &[
    "tls_cipher_policy_1_0",
    "tls_cipher_policy_1_1",
    "tls_cipher_policy_1_2",
    "tls_cipher_policy_1_2_strict",
    "tls_cipher_policy_1_2_strict_with_1_3",
];

static ATTRIBUTES: &[Attribute] = &[
    attribute("PersistenceTimeout", &[Tcp], Kind::Number(0, 3600), Fill::Number(0)),
    attribute("EstablishedTimeout", &[Tcp], Kind::Number(10, 900), Fill::Number(900)),
    attribute("ConnectionDrain", L4, ON_OFF, Fill::Word("off")),
    attribute("ConnectionDrainTimeout", L4, Kind::Number(10, 900), Fill::Nothing),
    attribute("ProxyProtocolV2Enabled", L4, TRUE_FALSE, Fill::Word("false")),
    attribute("HealthCheckSwitch", L4, ON_OFF, Fill::Word("on")),
    attribute("HealthCheckType", &[Tcp], Kind::Word(&["tcp", "http"]), Fill::Word("tcp")),
    attribute("HealthCheckConnectPort", ALL, Kind::CheckedPort, Fill::Nothing),
    attribute("HealthCheckConnectTimeout", &[Tcp], Kind::Number(1, 300), Fill::Number(5)),
    attribute("HealthCheckConnectTimeout", &[Udp], Kind::Number(1, 300), Fill::Number(10)),
    attribute("HealthCheckInterval", NOT_UDP, Kind::Number(1, 50), Fill::Number(2)),
    attribute("HealthCheckInterval", &[Udp], Kind::Number(1, 50), Fill::Number(5)),
    attribute("HealthyThreshold", ALL, Kind::Number(2, 10), Fill::Number(3)),
    attribute("UnhealthyThreshold", ALL, Kind::Number(2, 10), Fill::Number(3)),
    attribute("HealthCheckDomain", NOT_UDP, Kind::Domain, Fill::Nothing),
    attribute("HealthCheckURI", NOT_UDP, Kind::Uri, Fill::Nothing),
    attribute("HealthCheckHttpCode", NOT_UDP, Kind::HttpCodes, Fill::Nothing),
    attribute("HealthCheckMethod", NOT_UDP, Kind::Word(&["head", "get"]), Fill::Nothing),
    attribute("HealthCheckReq", &[Udp], Kind::Name(64), Fill::Nothing),
    attribute("HealthCheckExp", &[Udp], Kind::Name(64), Fill::Nothing),
    attribute("HealthCheck", L7, ON_OFF, Fill::Nothing),
    attribute("HealthCheckTimeout", L7, Kind::Number(1, 300), Fill::Number(5)),
    attribute("StickySession", L7, ON_OFF, Fill::Word("off")),
    attribute("StickySessionType", L7, Kind::Word(&["insert", "server"]), Fill::Nothing),
    attribute("CookieTimeout", L7, Kind::Number(1, 86400), Fill::Nothing),
    attribute("Cookie", L7, Kind::Name(200), Fill::Nothing),
    attribute("IdleTimeout", L7, Kind::Number(1, 60), Fill::Number(15)),
    attribute("RequestTimeout", L7, Kind::Number(1, 180), Fill::Number(60)),
    attribute("Gzip", L7, ON_OFF, Fill::Word("on")),
    attribute("XForwardedFor", L7, ON_OFF, Fill::Word("on")),
    attribute("XForwardedFor_proto", L7, ON_OFF, Fill::Word("off")),
    attribute("XForwardedFor_SLBIP", L7, ON_OFF, Fill::Word("off")),
    attribute("XForwardedFor_SLBID", L7, ON_OFF, Fill::Word("off")),
    attribute("XForwardedFor_SLBPORT", L7, ON_OFF, Fill::Word("off")),
    attribute("XForwardedFor_ClientSrcPort", L7, ON_OFF, Fill::Word("off")),
    Attribute { set: false, ..attribute("ListenerForward", &[Http], ON_OFF, Fill::Word("off")) },
    Attribute { set: false, ..attribute("ForwardPort", &[Http], Kind::Number(1, 65535), Fill::Nothing) },
    attribute("ForwardCode", &[Http], Kind::Number(301, 302), Fill::Nothing),
    attribute("ServerCertificateId", &[Https], Kind::Id, Fill::Nothing),
    attribute("CACertificateId", &[Https], Kind::Id, Fill::Nothing),
    attribute("EnableHttp2", &[Https], ON_OFF, Fill::Word("on")),
    attribute("TLSCipherPolicy", &[Https], Kind::Word(TLS_POLICIES), Fill::Word("tls_cipher_policy_1_0")),
];

/// How a request spells an attribute: a few begin with a small letter, some of them on creation only.
fn spelling(name: &'static str, protocol: Protocol, create: bool) -> &'static str {
    match (name, protocol) {
        ("HealthCheckInterval", Tcp | Udp) if create => "healthCheckInterval",
        ("HealthCheckReq", _) => "healthCheckReq",
        ("HealthCheckExp", _) => "healthCheckExp",
        _ => name,
    }
}

fn attributes(protocol: Protocol) -> impl Iterator<Item = &'static Attribute> {
    ATTRIBUTES.iter().filter(move |it| it.protocols.contains(&protocol))
}

fn parameters(protocol: Protocol, create: bool) -> String {
    let mut text = String::from(
        "LoadBalancerId! ListenerPort! Bandwidth Description VServerGroupId Scheduler AclStatus AclType AclId",
    );
    text += if create { " BackendServerPort Tag.N.Key Tag.N.Value" } else { " VServerGroup" };
    if create && protocol == Https {
        text += " ServerCertificateId!";
    }
    for it in attributes(protocol).filter(|it| create || it.set) {
        text.push(' ');
        text += spelling(it.name, protocol, create);
    }
    text
}

pub(super) fn actions() -> Vec<Action> {
    let port = "LoadBalancerId! ListenerPort! ListenerProtocol";
    let make = |name, protocol, run| Action::write(Product::Slb, name, &parameters(protocol, true), run);
    let change = |name, protocol, run| Action::write(Product::Slb, name, &parameters(protocol, false), run);
    vec![
        make("CreateLoadBalancerTCPListener", Tcp, |cx| create(cx, Tcp))
            .documented(
                "parameters, ranges, defaults, `ListenerAlreadyExists`, \
                 `InvalidParameter.ListenerPortConflict`, `AclNotExist`",
            )
            .assumed("which of the two codes a used port gets; health check every 2 s; `wlc`"),
        make("CreateLoadBalancerUDPListener", Udp, |cx| create(cx, Udp))
            .documented(
                "parameters, ranges, defaults, `ListenerAlreadyExists`, \
                 `InvalidParameter.ListenerPortConflict`, `AclNotExist`",
            )
            .assumed("which of the two codes a used port gets; health check of 10 s, not of 5 s; `wlc`"),
        make("CreateLoadBalancerHTTPListener", Http, |cx| create(cx, Http))
            .documented(
                "parameters, ranges, `ListenerAlreadyExists`, `InvalidParameter.ListenerPortConflict`, \
                 `AclNotExist`",
            )
            .assumed(
                "defaults of the health check; the target of a redirection must exist; redirection by \
                 302",
            ),
        make("CreateLoadBalancerHTTPSListener", Https, |cx| create(cx, Https))
            .documented(
                "parameters, ranges, `CertificateNotExist`, `ListenerAlreadyExists`, \
                 `InvalidParameter.ListenerPortConflict`",
            )
            .assumed("defaults of health check, HTTP/2 and TLS policy"),
        change("SetLoadBalancerTCPListenerAttribute", Tcp, |cx| set(cx, Tcp))
            .documented(
                "parameters, ranges, what is left out stays, no change to a hash scheduler, \
                 `VServerGroup` must be `on`",
            )
            .observed("`The specified VServerGroupId does not exist`", "terraform-provider-alicloud#6511")
            .assumed("`InvalidParameter.Scheduler`; a hash scheduler can become `wrr`"),
        change("SetLoadBalancerUDPListenerAttribute", Udp, |cx| set(cx, Udp))
            .documented(
                "parameters, ranges, what is left out stays, no change to a hash scheduler, \
                 `VServerGroup` must be `on`",
            )
            .observed("`The specified VServerGroupId does not exist`", "terraform-provider-alicloud#6511")
            .assumed("`InvalidParameter.Scheduler`; a hash scheduler can become `wrr`"),
        change("SetLoadBalancerHTTPListenerAttribute", Http, |cx| set(cx, Http))
            .documented("parameters, ranges, what is left out stays, no change of a listener that redirects")
            .observed("`The specified VServerGroupId does not exist`", "terraform-provider-alicloud#6511")
            .assumed("`OperationUnsupported.ListenerForward`"),
        change("SetLoadBalancerHTTPSListenerAttribute", Https, |cx| set(cx, Https))
            .documented("parameters, ranges, what is left out stays, `CertificateNotExist`")
            .observed("`The specified VServerGroupId does not exist`", "terraform-provider-alicloud#6511")
            .assumed("parameters are checked before the state"),
        Action::write(Product::Slb, "StartLoadBalancerListener", port, start)
            .documented("parameters, `stopped` alone, `Operation.NotAllowed`, `TooManyListeners`")
            .observed("a call may have to be repeated", "terraform-provider-alicloud#1794")
            .assumed("how long it is `starting`; never `Operation.Deny`"),
        Action::write(Product::Slb, "StopLoadBalancerListener", port, stop)
            .documented("parameters, `Operation.NotAllowed`, `TooManyListeners`")
            .assumed("only from `running`; stopped at once"),
        Action::write(Product::Slb, "DeleteLoadBalancerListener", port, delete)
            .documented(
                "parameters, from `stopped` or `running`, `ListenerForwardExist`, \
                 `ResourceNotFound.Listener`",
            )
            .assumed("gone at once; refused while it is `starting`"),
        Action::read(
            Product::Slb,
            "DescribeLoadBalancerListeners",
            "LoadBalancerId.N ListenerProtocol ListenerPort Description Tag.N.Key Tag.N.Value MaxResults NextToken",
            describe,
        )
        .documented("parameters, answer, pages")
        .assumed(
            "0 or -520 for the port of the backend by layer; never busy, though older calls are \
             (alibaba/terraform-provider#451)",
        )
        .listing("/Listeners"),
        Action::read(Product::Slb, "DescribeHealthStatus", port, health)
            .documented("parameters, answer")
            .assumed("a backend is healthy if its instance runs; `ListenerProtocol` does not filter"),
    ]
}

/// A stopped listener with the cloud's defaults.
pub(crate) fn plain_listener(protocol: Protocol) -> Listener {
    let mut config = BTreeMap::new();
    for it in attributes(protocol) {
        match it.fill {
            Fill::Nothing => continue,
            Fill::Number(number) => config.insert(it.name.to_owned(), json!(number)),
            Fill::Word(word) => config.insert(it.name.to_owned(), json!(word)),
        };
    }
    let mut listener = Listener {
        description: String::new(),
        status: "stopped".into(),
        group: String::new(),
        backend_port: None,
        bandwidth: -1,
        scheduler: "wrr".into(),
        acl_status: "off".into(),
        acl_type: String::new(),
        acl_ids: Vec::new(),
        config,
        tags: BTreeMap::new(),
        domain_extensions: BTreeMap::new(),
        starting_until: None,
    };
    derive(&mut listener, protocol);
    listener
}

/// Fills in what follows from other attributes.
fn derive(listener: &mut Listener, protocol: Protocol) {
    let config = &mut listener.config;
    let text =
        |config: &BTreeMap<String, Value>, name: &str| config.get(name).and_then(Value::as_str).map(str::to_owned);
    match protocol {
        Tcp | Udp => {
            config.insert("HealthCheck".into(), json!(text(config, "HealthCheckSwitch")));
            if protocol == Udp {
                config.insert("HealthCheckType".into(), json!("udp"));
            } else if text(config, "HealthCheckType").as_deref() == Some("http") {
                config.entry("HealthCheckMethod".into()).or_insert_with(|| json!("head"));
                config.entry("HealthCheckHttpCode".into()).or_insert_with(|| json!("http_2xx"));
            }
        }
        Http | Https => {
            config.insert("HealthCheckType".into(), json!("http"));
            config.entry("HealthCheck".into()).or_insert_with(|| json!("off"));
            if text(config, "HealthCheck").as_deref() == Some("on") {
                config.entry("HealthCheckHttpCode".into()).or_insert_with(|| json!("http_2xx"));
            }
            if text(config, "ListenerForward").as_deref() == Some("on") {
                config.entry("ForwardCode".into()).or_insert_with(|| json!(302));
            }
        }
    }
}

impl Kind {
    fn read(&self, params: &Params, name: &str) -> Result<Option<Value>, ApiError> {
        let Some(text) = params.get(name) else { return Ok(None) };
        let check = |is_so: bool, why: &str| if is_so { Ok(()) } else { Err(ApiError::invalid(name, why)) };
        match self {
            Self::Number(low, high) => return Ok(params.number_in(name, *low, *high)?.map(Value::from)),
            Self::CheckedPort if text == "-520" => return Ok(Some(Value::Null)),
            Self::CheckedPort => return Ok(params.number_in(name, 1, 65535)?.map(Value::from)),
            Self::Word(words) => {
                params.one_of(name, words)?;
            }
            Self::Uri => {
                let is_path = text.len() <= 80 && text.starts_with('/') && text != "/";
                check(is_path, "1 to 80 characters beginning with /, but not / alone, are allowed")?;
            }
            Self::HttpCodes => {
                const CODES: &[&str] = &["http_2xx", "http_3xx", "http_4xx", "http_5xx"];
                check(text.split(',').all(|it| CODES.contains(&it)), "a list of http_2xx to http_5xx is expected")?;
            }
            Self::Domain => {
                let is_allowed = |it: char| it.is_ascii_alphanumeric() || ".-".contains(it);
                check(text == "$_ip" || (text.len() <= 80 && text.chars().all(is_allowed)), "a domain is expected")?;
            }
            Self::Name(longest) => {
                let is_allowed = |it: char| it.is_ascii_alphanumeric() || "-_".contains(it);
                check(text.len() <= *longest && text.chars().all(is_allowed), "letters and digits are expected")?;
            }
            Self::Id => {}
        }
        Ok(Some(text.into()))
    }
}

fn port_of(params: &Params) -> Result<u16, ApiError> {
    let port = params.number_in("ListenerPort", 1, 65535)?.ok_or_else(|| ApiError::missing("ListenerPort"))?;
    Ok(u16::try_from(port).unwrap_or_default())
}

fn create(cx: &mut Context<'_>, protocol: Protocol) -> Result<Value, ApiError> {
    let port = port_of(cx.params)?;
    let id = cx.params.need("LoadBalancerId")?;
    let lb = instance(cx.account, id)?;
    if lb.listeners.contains_key(&(port, protocol)) {
        return Err(ApiError::new(400, "ListenerAlreadyExists", "The specified listener already exists."));
    }
    if lb.listeners.keys().any(|(taken, other)| *taken == port && other.collides_with(protocol)) {
        let message = "The specified listener port conflicts with another listener.";
        return Err(ApiError::new(400, "InvalidParameter.ListenerPortConflict", message));
    }
    if lb.listeners.len() >= cx.account.limits.listeners {
        let message = "The number of listeners exceeds the quota.";
        return Err(ApiError::new(400, "OperationForbidden.QuotaLimit", message));
    }
    if protocol != Http {
        cx.params.need("Bandwidth")?;
    }
    let mut listener = plain_listener(protocol);
    listener.tags = tags::given(cx.params)?;
    listener.backend_port = cx.params.number_in("BackendServerPort", 1, 65535)?.and_then(|it| u16::try_from(it).ok());
    take(cx, protocol, &mut listener, true)?;
    let forwards = is(&listener, "ListenerForward", "on");
    if forwards {
        check_forward(lb, &listener)?;
    } else {
        if listener.group.is_empty() && listener.backend_port.is_none() {
            return Err(ApiError::missing("BackendServerPort"));
        }
        if matches!(protocol, Http | Https) {
            cx.params.need("HealthCheck")?;
        }
    }
    check(cx.account, protocol, lb, &listener)?;
    derive(&mut listener, protocol);
    for_write(cx)?.listeners.insert((port, protocol), listener);
    Ok(json!({}))
}

fn is(listener: &Listener, name: &str, value: &str) -> bool {
    listener.config.get(name).and_then(Value::as_str) == Some(value)
}

fn check_forward(lb: &LoadBalancer, listener: &Listener) -> Result<(), ApiError> {
    let port =
        listener.config.get("ForwardPort").and_then(Value::as_u64).ok_or_else(|| ApiError::missing("ForwardPort"))?;
    let port = u16::try_from(port).unwrap_or_default();
    if lb.listeners.contains_key(&(port, Https)) {
        return Ok(());
    }
    Err(ApiError::invalid("ForwardPort", &format!("there is no HTTPS listener on port {port}")))
}

/// Puts what a call brings into a listener.
fn take(cx: &Context<'_>, protocol: Protocol, listener: &mut Listener, create: bool) -> Result<(), ApiError> {
    let params = cx.params;
    match params.number("Bandwidth")? {
        None => {}
        Some(bandwidth) if bandwidth == -1 || (1..=5120).contains(&bandwidth) => listener.bandwidth = bandwidth,
        Some(_) => return Err(ApiError::invalid("Bandwidth", "-1 or 1 to 5120 is allowed")),
    }
    if let Some(description) = params.get("Description") {
        let is_allowed = |it: char| it.is_alphanumeric() || "-/._".contains(it);
        if description.chars().count() > 256 || !description.chars().all(is_allowed) {
            return Err(ApiError::invalid("Description", "1 to 256 letters, digits, - / . _ are allowed"));
        }
        listener.description = description.into();
    }
    match (params.get("VServerGroupId"), params.one_of("VServerGroup", &["on", "off"])?) {
        (Some(_), None) if !create => {
            cx.log.complain(format!("{}: VServerGroupId has no effect without VServerGroup=on", cx.action.name));
        }
        (_, Some("off")) => {
            let message = "The vServer group is in use by the listener.";
            return Err(ApiError::new(400, "OperationFailed.ServerGroupInUse", message));
        }
        (Some(group), _) => listener.group = group.into(),
        (None, Some(_)) => return Err(ApiError::missing("VServerGroupId")),
        (None, None) => {}
    }
    let schedulers: &[&str] = match protocol {
        Tcp => &["wrr", "rr", "wlc", "sch", "tch"],
        Udp => &["wrr", "rr", "wlc", "sch", "tch", "qch"],
        Http | Https => &["wrr", "rr", "wlc"],
    };
    if let Some(scheduler) = params.one_of("Scheduler", schedulers)? {
        let hashes = |it: &str| it.ends_with("ch");
        if !create && scheduler != listener.scheduler && hashes(scheduler) {
            let why = format!("{} cannot be changed to {scheduler} on an existing listener", listener.scheduler);
            return Err(ApiError::invalid("Scheduler", &why));
        }
        listener.scheduler = scheduler.into();
    }
    take_acl(cx, listener)?;
    for it in attributes(protocol).filter(|it| create || it.set) {
        if let Some(value) = it.kind.read(params, spelling(it.name, protocol, create))? {
            listener.config.insert(it.name.into(), value);
        }
    }
    Ok(())
}

fn take_acl(cx: &Context<'_>, listener: &mut Listener) -> Result<(), ApiError> {
    let params = cx.params;
    if let Some(status) = params.one_of("AclStatus", &["on", "off"])? {
        listener.acl_status = status.into();
    }
    if let Some(kind) = params.one_of("AclType", &["white", "black"])? {
        listener.acl_type = kind.into();
    }
    if let Some(ids) = params.get("AclId") {
        listener.acl_ids = ids.split(',').map(str::to_owned).collect();
        if let Some(unknown) = listener.acl_ids.iter().find(|it| !cx.account.acls.contains_key(*it)) {
            let message = format!("The specified AclId {unknown} does not exist.");
            return Err(ApiError::new(400, "AclNotExist", message));
        }
    }
    if listener.acl_status == "off" {
        listener.acl_type.clear();
        listener.acl_ids.clear();
        return Ok(());
    }
    if listener.acl_type.is_empty() {
        return Err(ApiError::missing("AclType"));
    }
    if listener.acl_ids.is_empty() {
        return Err(ApiError::missing("AclId"));
    }
    Ok(())
}

/// What must hold between the attributes of a listener, and between it and the rest of the world.
fn check(account: &Account, protocol: Protocol, lb: &LoadBalancer, listener: &Listener) -> Result<(), ApiError> {
    let needs = |on: bool, name: &str| {
        if on && !listener.config.contains_key(name) { Err(ApiError::missing(name)) } else { Ok(()) }
    };
    if !listener.group.is_empty() && !lb.groups.contains_key(&listener.group) {
        return Err(ApiError::new(400, "InvalidParameter", "The specified VServerGroupId does not exist."));
    }
    needs(is(listener, "ConnectionDrain", "on"), "ConnectionDrainTimeout")?;
    let sticky = is(listener, "StickySession", "on");
    needs(sticky, "StickySessionType")?;
    needs(sticky && is(listener, "StickySessionType", "insert"), "CookieTimeout")?;
    needs(sticky && is(listener, "StickySessionType", "server"), "Cookie")?;
    needs(protocol == Https, "ServerCertificateId")?;
    match listener.config.get("ServerCertificateId").and_then(Value::as_str) {
        Some(certificate) => certificates::check(account, certificate),
        None => Ok(()),
    }
}

fn no_listener() -> ApiError {
    ApiError::new(404, "ResourceNotFound.Listener", "The specified resource does not exist.")
}

fn set(cx: &mut Context<'_>, protocol: Protocol) -> Result<Value, ApiError> {
    let key = (port_of(cx.params)?, protocol);
    let lb = instance(cx.account, cx.params.need("LoadBalancerId")?)?;
    let mut listener = lb.listeners.get(&key).cloned().ok_or_else(no_listener)?;
    if is(&listener, "ListenerForward", "on") {
        let message = "The operation is not supported by a listener that forwards.";
        return Err(ApiError::new(400, "OperationUnsupported.ListenerForward", message));
    }
    take(cx, protocol, &mut listener, false)?;
    check(cx.account, protocol, lb, &listener)?;
    derive(&mut listener, protocol);
    for_write(cx)?.listeners.insert(key, listener);
    Ok(json!({}))
}

/// The listener that a call names; the protocol may be left out where only one is on the port.
fn named(cx: &Context<'_>) -> Result<(u16, Protocol), ApiError> {
    let port = port_of(cx.params)?;
    let protocol = cx.params.one_of("ListenerProtocol", &["tcp", "udp", "http", "https"])?.and_then(Protocol::parse);
    let lb = instance(cx.account, cx.params.need("LoadBalancerId")?)?;
    let mut on_port = lb.listeners.keys().filter(|(it, other)| *it == port && protocol.is_none_or(|it| it == *other));
    match (on_port.next(), on_port.next()) {
        (Some(key), None) => Ok(*key),
        (None, _) => Err(no_listener()),
        (Some(_), Some(_)) => {
            let message = "More than one listener is on the port, please specify ListenerProtocol.";
            Err(ApiError::new(400, "TooManyListeners", message))
        }
    }
}

fn start(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let key = named(cx)?;
    let starting = cx.account.dials.listener_start;
    let listener = for_write(cx)?.listeners.get_mut(&key).ok_or_else(no_listener)?;
    if listener.shown_status() != "stopped" {
        return Err(not_allowed(listener));
    }
    listener.status = "running".into();
    listener.starting_until = (!starting.is_zero()).then(|| Instant::now() + starting);
    Ok(json!({}))
}

fn not_allowed(listener: &Listener) -> ApiError {
    let message = format!("The listener is {}, which does not allow this operation.", listener.shown_status());
    ApiError::new(400, "Operation.NotAllowed", message)
}

fn stop(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let key = named(cx)?;
    let listener = for_write(cx)?.listeners.get_mut(&key).ok_or_else(no_listener)?;
    if listener.shown_status() != "running" {
        return Err(not_allowed(listener));
    }
    listener.status = "stopped".into();
    Ok(json!({}))
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let key = named(cx)?;
    let lb = for_write(cx)?;
    let forwards_here = |it: &Listener| {
        is(it, "ListenerForward", "on")
            && it.config.get("ForwardPort").and_then(Value::as_u64) == Some(u64::from(key.0))
    };
    if key.1 == Https && lb.listeners.values().any(forwards_here) {
        let message = "An HTTP listener forwards to the specified listener.";
        return Err(ApiError::new(400, "ListenerForwardExist", message));
    }
    if let Some(listener) = lb.listeners.get(&key).filter(|it| it.shown_status() == "starting") {
        return Err(not_allowed(listener));
    }
    lb.listeners.remove(&key);
    Ok(json!({}))
}

fn describe(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let ids = params.list("LoadBalancerId");
    if ids.len() > 10 {
        return Err(ApiError::invalid("LoadBalancerId", "at most 10 items are allowed"));
    }
    let size = params.number_in("MaxResults", 1, 100)?.unwrap_or(20);
    let port = params.number_in("ListenerPort", 1, 65535)?;
    let wanted_tags = params.tags();
    let mut found = Vec::new();
    for (id, lb) in cx.account.load_balancers.candidates(&ids, Vec::new(), "") {
        for ((number, protocol), it) in &lb.listeners {
            let is_wanted = port.is_none_or(|port| port == i64::from(*number))
                && params.get("ListenerProtocol").is_none_or(|wanted| wanted == protocol.as_str())
                && params.get("Description").is_none_or(|wanted| wanted == it.description)
                && has_tags(&it.tags, &wanted_tags);
            if is_wanted {
                found.push((id, *number, *protocol, it));
            }
        }
    }
    let total = found.len();
    let (items, next) = page_by_token(params, found, usize::try_from(size).unwrap_or(20))?;
    let items = items.into_iter().map(|(id, number, protocol, it)| shown(id, number, protocol, it));
    let mut body = json!({"Listeners": items.collect::<Vec<Value>>(), "MaxResults": size, "TotalCount": total});
    if let Some(next) = next {
        body["NextToken"] = next.into();
    }
    Ok(body)
}

fn shown(id: &str, port: u16, protocol: Protocol, it: &Listener) -> Value {
    let mut config = json!(it.config);
    if it.config.get("HealthCheckConnectPort").is_none_or(Value::is_null) {
        // The port of the backend: each layer has its own way to say so.
        config["HealthCheckConnectPort"] = if matches!(protocol, Tcp | Udp) { json!(0) } else { json!(-520) };
    }
    let mut body = json!({
        "LoadBalancerId": id,
        "ListenerPort": port,
        "ListenerProtocol": protocol.as_str(),
        "Status": it.shown_status(),
        "Description": it.description,
        "Bandwidth": it.bandwidth,
        "Scheduler": it.scheduler,
        "VServerGroupId": it.group,
        "AclStatus": it.acl_status,
        "AclType": it.acl_type,
        "AclId": it.acl_ids.join(","),
        "AclIds": it.acl_ids,
        "Tags": tag_list(&it.tags),
    });
    if let Some(port) = it.backend_port {
        body["BackendServerPort"] = port.into();
    }
    body[format!("{}ListenerConfig", protocol.as_str().to_uppercase())] = config;
    body
}

fn health(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let lb = instance(cx.account, cx.params.need("LoadBalancerId")?)?;
    let wanted = cx.params.number("ListenerPort")?;
    let mut servers = Vec::new();
    for ((port, protocol), listener) in
        lb.listeners.iter().filter(|((it, _), _)| wanted.is_none_or(|port| port == i64::from(*it)))
    {
        for it in lb.groups.get(&listener.group).into_iter().flat_map(|it| &it.backends) {
            let is_up = cx.account.instances.get(&it.server_id).is_none_or(|it| it.status == "Running");
            servers.push(
                json!({"ServerId": it.server_id, "ServerIp": it.server_ip, "Port": it.port, "ListenerPort": port,
                "Protocol": protocol.as_str(), "ServerHealthStatus": if is_up { "normal" } else { "abnormal" }}),
            );
        }
    }
    Ok(json!({"BackendServers": {"BackendServer": servers}}))
}
