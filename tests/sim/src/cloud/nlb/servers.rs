//! Servers of the groups of network load balancers.

use std::convert::identity;

use serde_json::{Value, json};

use super::super::account::Account;
use super::super::actions::{Action, Context};
use super::super::protocol::{ApiError, Params};
use super::objects::{GroupServer, ServerGroup};
use super::{illegal, jobs, listed, missing, not_found, number, over_quota, read, some, with_token, word, write};

/// Servers in one call.
const MOST: usize = 200;

pub(super) fn actions() -> Vec<Action> {
    let key = "ServerGroupId! Servers.N.ServerId! Servers.N.ServerType! Servers.N.ServerIp Servers.N.Port";
    let whole = format!("{key} Servers.N.Weight Servers.N.Description");
    vec![
        write("AddServersToServerGroup", &whole, |cx| with_token(cx, add))
            .documented("parameters, 200 in a call, `DuplicatedParam.Server`, codes of servers")
            .observed("`Conflict.Lock`", "terraform-provider-alicloud#5980")
            .assumed(
                "`OperationFailed.ResourceIsConfiguring` during a job on the group; all servers or none; \
                 name of the quota",
            ),
        write("UpdateServerGroupServersAttribute", &whole, |cx| with_token(cx, update))
            .documented("parameters, ranges, `ResourceNotFound.BackendServer`")
            .assumed("an absent server refuses the call; port 0 is accepted"),
        write("RemoveServersFromServerGroup", key, |cx| with_token(cx, remove))
            .documented("parameters, answer")
            .observed("`IncorrectStatus.serverGroup`", "terraform-provider-alicloud#5996")
            .assumed(
                "`OperationFailed.ResourceIsConfiguring` during a job on the group; an absent server \
                 refuses the call",
            ),
        read("ListServerGroupServers", "ServerGroupId! ServerIds.N ServerIps.N MaxResults NextToken", list)
            .documented("parameters, answer, pages, statuses")
            .assumed("order in which they were added; the zone of ECS servers alone")
            .listing("/Servers"),
    ]
}

/// A server as a call gives it.
struct Given {
    server: GroupServer,
    weight: Option<u8>,
    description: Option<String>,
}

impl Given {
    /// Whether this is the same server.
    fn is(&self, other: &GroupServer) -> bool {
        let one = &self.server;
        let same_ip = one.ip.is_empty() || other.kind == "Ecs" || one.ip == other.ip;
        (&one.id, &one.kind, one.port) == (&other.id, &other.kind, other.port) && same_ip
    }
}

fn given(params: &Params) -> Result<Vec<Given>, ApiError> {
    let mut all: Vec<Given> = Vec::new();
    for index in params.indexes("Servers") {
        let name = |field: &str| format!("Servers.{index}.{field}");
        let kind = word(params, &name("ServerType"), &["Ecs", "Eni", "Eci", "Ip"])?.unwrap_or_default();
        let port = number(params, &name("Port"), 0, 65535)?.unwrap_or(0);
        let weight = number(params, &name("Weight"), 0, 100)?.and_then(|it| u8::try_from(it).ok());
        let description = params.get(&name("Description")).map(str::to_owned);
        if description.as_ref().is_some_and(|it| !(2..=256).contains(&it.chars().count())) {
            return Err(illegal("Description"));
        }
        let ip = params.get(&name("ServerIp")).unwrap_or_default().to_owned();
        if matches!(kind, "Eni" | "Ip") && ip.is_empty() {
            return Err(missing("ServerIp"));
        }
        let server = GroupServer {
            id: params.get(&name("ServerId")).unwrap_or_default().into(),
            ip,
            kind: kind.into(),
            port: u16::try_from(port).unwrap_or(0),
            weight: weight.unwrap_or(100),
            description: description.clone().unwrap_or_default(),
            pending: None,
        };
        if all.iter().any(|it| it.is(&server)) {
            return Err(duplicated());
        }
        all.push(Given { server, weight, description });
    }
    if all.len() > MOST {
        return Err(ApiError::new(400, "IllegalParamSize.Servers", "The size of Servers is illegal."));
    }
    if all.is_empty() { Err(missing("Servers")) } else { Ok(all) }
}

fn duplicated() -> ApiError {
    ApiError::new(400, "DuplicatedParam.Server", "The param of Server is duplicated.")
}

/// The group of a call, which takes changes of its servers.
fn group<'w>(account: &'w mut Account, id: &str) -> Result<&'w mut ServerGroup, ApiError> {
    let it: &mut ServerGroup = account.nlb.groups.get_mut(id).ok_or_else(|| not_found("serverGroup"))?;
    match it.shown_status() {
        "Available" => Ok(it),
        "Creating" => Err(super::wrong_status("serverGroup")),
        _ => {
            let message = "The operation failed because of ResourceIsConfiguring.";
            Err(ApiError::new(400, "OperationFailed.ResourceIsConfiguring", message))
        }
    }
}

/// The address of a server that exists where the group can reach it.
fn locate(account: &Account, group: &ServerGroup, it: &GroupServer) -> Result<String, ApiError> {
    let fits = (group.kind == "Ip") == (it.kind == "Ip");
    if !fits {
        let message = format!("The ServerType is mismatched for {} and {}.", it.kind, group.kind);
        return Err(ApiError::new(400, "Mismatch.ServerType", message));
    }
    let (vswitch, address) = match it.kind.as_str() {
        "Ecs" => {
            let found = account.instances.get(&it.id).ok_or_else(|| not_found("Ecs"))?;
            (&found.vswitch, found.private_ips.first().cloned().unwrap_or_default())
        }
        "Eni" => {
            let found = account.interfaces.get(&it.id).ok_or_else(|| not_found("Eni"))?;
            if !found.ipv4.contains(&it.ip) && !found.ipv6.contains(&it.ip) {
                return Err(not_found("Eni"));
            }
            (&found.vswitch, it.ip.clone())
        }
        "Ip" if it.id != it.ip || it.ip.parse::<std::net::IpAddr>().is_err() => return Err(illegal("ServerIp")),
        "Ip" => return Ok(it.ip.clone()),
        _ => return Err(not_found("Eci")),
    };
    if account.vpc_of(vswitch) != group.vpc {
        return Err(ApiError::new(400, "Mismatch.vpc", "The vpc is mismatched."));
    }
    if address.contains(':') && group.ip_version != "DualStack" {
        return Err(super::denied("ServerGroupNotSupportIpv6"));
    }
    Ok(address)
}

fn add(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ServerGroupId")?;
    let wanted = given(cx.params)?;
    let held = group(cx.account, id)?.clone();
    let mut new = Vec::new();
    for it in &wanted {
        if held.any_port != (it.server.port == 0) {
            return Err(illegal("RSPortConflictWithServerGroup"));
        }
        if held.servers.iter().any(|server| it.is(server)) {
            return Err(duplicated());
        }
        let ip = locate(cx.account, &held, &it.server)?;
        new.push(GroupServer { ip, ..it.server.clone() });
    }
    if held.servers.len() + new.len() > cx.account.limits.servers_per_group {
        return Err(over_quota("nlb_quota_servergroup_servers_num"));
    }
    let job = jobs::begin(cx);
    let pending = job.pending("Adding");
    let it = group(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.servers.extend(new.into_iter().map(|it| GroupServer { pending, ..it }));
    }
    Ok(json!({"ServerGroupId": id, "JobId": job.id}))
}

fn need_all(held: &ServerGroup, named: &[Given]) -> Result<(), ApiError> {
    let is_there = |it: &Given| held.servers.iter().any(|server| it.is(server));
    if named.iter().all(is_there) { Ok(()) } else { Err(not_found("BackendServer")) }
}

fn update(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ServerGroupId")?;
    let changes = given(cx.params)?;
    need_all(group(cx.account, id)?, &changes)?;
    let job = jobs::begin(cx);
    let pending = job.pending("Configuring");
    let it = group(cx.account, id)?;
    it.pending = pending;
    if !job.fails {
        for server in &mut it.servers {
            if let Some(change) = changes.iter().find(|it| it.is(server)) {
                server.weight = change.weight.unwrap_or(server.weight);
                server.description = change.description.clone().unwrap_or_else(|| server.description.clone());
                server.pending = pending;
            }
        }
    }
    Ok(json!({"ServerGroupId": id, "JobId": job.id}))
}

fn remove(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("ServerGroupId")?;
    let gone = given(cx.params)?;
    need_all(group(cx.account, id)?, &gone)?;
    let job = jobs::begin(cx);
    let removal = job.removal(cx, id, "Removing");
    let it = group(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        for server in &mut it.servers {
            if gone.iter().any(|it| it.is(server)) {
                server.pending = removal;
            }
        }
    }
    super::settle(cx.account);
    Ok(json!({"ServerGroupId": id, "JobId": job.id}))
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let id = params.need("ServerGroupId")?;
    let (ids, ips) = (some(params, "ServerIds", 40)?, some(params, "ServerIps", 40)?);
    let group = cx.account.nlb.groups.get(id).ok_or_else(|| not_found("serverGroup"))?;
    let among = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
    let zone = |it: &GroupServer| match it.kind.as_str() {
        "Ecs" => cx.account.instances.get(&it.id).map(|it| it.zone.clone()),
        _ => None,
    };
    let found = group.servers.iter().filter(|it| among(&ids, &it.id) && among(&ips, &it.ip)).map(|it| {
        json!({
            "ServerGroupId": id,
            "ServerId": it.id,
            "ServerIp": it.ip,
            "ServerType": it.kind,
            "Port": it.port,
            "Weight": it.weight,
            "Description": it.description,
            "Status": it.shown_status(),
            "ZoneId": zone(it),
        })
    });
    let found = found.collect();
    listed(cx, "Servers", found, (100, 20), identity)
}
