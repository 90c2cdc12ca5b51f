//! The metadata service of an ECS instance.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::account::Account;
use super::log::Call;
use super::sts::{issue, seconds};
use super::{Cloud, ConnectionLost, ecs, spoil};

const TTL: &str = "x-aliyun-ecs-metadata-token-ttl-seconds";
const TOKEN: &str = "x-aliyun-ecs-metadata-token";
/// Keys of a role live this long unless set otherwise.
const KEY_LIFETIME: Duration = Duration::from_secs(6 * 3600);
/// A new key is given out when the last one has less than this share of its life left.
const RENEW_SHARE: f64 = 0.25;

type Answer = Result<String, StatusCode>;

pub(crate) async fn answer(cloud: &Cloud, request: &Request<Bytes>) -> Result<Response<Bytes>, ConnectionLost> {
    let path = request.uri().path().to_owned();
    let fault = cloud.faults().draw_path(&path);
    let now = cloud.now();
    let latency = cloud.look(|account| account.dials.latency);
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let answer = cloud.adjust(|account| {
        if account.metadata.disabled {
            return Err(StatusCode::FORBIDDEN);
        }
        match (request.method(), path.as_str()) {
            (&Method::PUT, "/latest/api/token") => new_token(account, request, now),
            (&Method::GET, path) => {
                check_token(account, request, now)?;
                let key = path.strip_prefix("/latest/meta-data/").ok_or(StatusCode::NOT_FOUND)?;
                read(account, key, now)
            }
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    });
    let (status, body) = match answer {
        Ok(text) => (StatusCode::OK, text),
        Err(status) => (status, format!("<html><body>{status}</body></html>")),
    };
    cloud.0.log.push(Call {
        time: now,
        ended: now,
        product: "metadata",
        caller: String::new(),
        action: path,
        parameters: std::collections::BTreeMap::new(),
        outcome: if status.is_success() { "OK".into() } else { status.as_u16().to_string() },
        write: false,
        effective: false,
        fault: fault.clone(),
        request_id: String::new(),
    });
    cloud.changed();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = match fault {
        Some(super::Fault::Unavailable | super::Fault::Throttle) => StatusCode::SERVICE_UNAVAILABLE,
        Some(super::Fault::Refuse(code, ..)) => StatusCode::from_u16(code).unwrap_or(StatusCode::FORBIDDEN),
        _ => status,
    };
    spoil(response, fault, "", "100.100.100.200").await
}

fn header<'r>(request: &'r Request<Bytes>, name: &str) -> Option<&'r str> {
    request.headers().get(name)?.to_str().ok()
}

fn new_token(account: &mut Account, request: &Request<Bytes>, now: Timestamp) -> Answer {
    let ttl: i64 = header(request, TTL).and_then(|it| it.parse().ok()).ok_or(StatusCode::BAD_REQUEST)?;
    if !(1..=21600).contains(&ttl) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let token = account.fresh("", 40);
    account.metadata.tokens.insert(token.clone(), now + SignedDuration::from_secs(ttl));
    Ok(token)
}

fn check_token(account: &Account, request: &Request<Bytes>, now: Timestamp) -> Result<(), StatusCode> {
    let is_valid = match header(request, TOKEN) {
        Some(token) => account.metadata.tokens.get(token).is_some_and(|until| *until > now),
        None => !account.metadata.token_required,
    };
    if is_valid { Ok(()) } else { Err(StatusCode::FORBIDDEN) }
}

fn read(account: &mut Account, key: &str, now: Timestamp) -> Answer {
    if let Some(role) = key.strip_prefix("ram/security-credentials/") {
        return role_keys(account, role.trim_end_matches('/'), now);
    }
    let id = account.metadata.instance.clone().ok_or(StatusCode::NOT_FOUND)?;
    let instance = account.instances.get(&id).ok_or(StatusCode::NOT_FOUND)?;
    let vpc = account.vpc_of(&instance.vswitch);
    let text = match key.trim_end_matches('/') {
        "" => ["instance-id", "region-id", "zone-id", "vpc-id", "vswitch-id", "private-ipv4", "ram/"].join("\n"),
        "region-id" => account.region.clone(),
        "zone-id" => instance.zone.clone(),
        "instance-id" => id,
        "vpc-id" => vpc.to_owned(),
        "vswitch-id" => instance.vswitch.clone(),
        "vpc-cidr-block" => account.vpcs.get(vpc).map(|it| it.cidr.clone()).unwrap_or_default(),
        "vswitch-cidr-block" => account.vswitches.get(&instance.vswitch).map(|it| it.cidr.clone()).unwrap_or_default(),
        "owner-account-id" => account.id.clone(),
        "private-ipv4" => instance.private_ips.first().cloned().unwrap_or_default(),
        "eipv4" if !instance.eip.is_empty() => instance.eip.clone(),
        "hostname" => instance.host_name.clone(),
        "mac" => ecs::mac(&instance.primary_eni),
        "network-type" => "vpc".to_owned(),
        "ram/security-credentials" => return role_keys(account, "", now),
        _ => return Err(StatusCode::NOT_FOUND),
    };
    Ok(text)
}

fn role_keys(account: &mut Account, asked: &str, now: Timestamp) -> Answer {
    let role = account.metadata.role.clone().ok_or(StatusCode::NOT_FOUND)?;
    if asked.is_empty() {
        return Ok(role);
    }
    if asked != role {
        return Err(StatusCode::NOT_FOUND);
    }
    let lifetime = account.metadata.key_lifetime.unwrap_or(KEY_LIFETIME);
    let is_fresh = |id: &String| {
        let expires = account.keys.get(id).and_then(|it| it.expires);
        expires.is_some_and(|it| it.duration_since(now).as_secs_f64() > lifetime.as_secs_f64() * RENEW_SHARE)
    };
    let id = match account.metadata.issued.clone().filter(is_fresh) {
        Some(id) => id,
        None => issue(account, &role, now, lifetime).id,
    };
    account.metadata.issued = Some(id.clone());
    let key = account.keys.get(&id).ok_or(StatusCode::NOT_FOUND)?;
    let answer = json!({
        "AccessKeyId": id,
        "AccessKeySecret": key.secret,
        "SecurityToken": key.token,
        "Expiration": key.expires.map(seconds),
        "LastUpdated": seconds(now),
        "Code": "Success",
    });
    Ok(answer.to_string())
}
