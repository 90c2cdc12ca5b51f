//! vServer groups and their members.

use serde_json::{Value, json};

use super::super::account::{Account, Backend, Group, LoadBalancer};
use super::super::actions::{Action, Context, Product};
use super::super::ecs::tag_list;
use super::super::protocol::ApiError;
use super::super::sts::seconds;
use super::{claim, for_write, instance};

pub(super) fn actions() -> Vec<Action> {
    vec![
        Action::write(
            Product::Slb,
            "CreateVServerGroup",
            "LoadBalancerId! VServerGroupName! BackendServers Tag.N.Key Tag.N.Value",
            create,
        )
        .documented("parameters, answer, `OperationForbidden.QuotaLimit`, codes of backends")
        .assumed("two groups may have one name; 50 groups; a refused backend refuses the group"),
        Action::read(
            Product::Slb,
            "DescribeVServerGroups",
            "LoadBalancerId! IncludeListener IncludeRule",
            describe_all,
        )
        .documented("parameters, answer, no pages")
        .assumed("time of creation is that of the load balancer; order by id; no rules")
        .listing("/VServerGroups/VServerGroup"),
        Action::read(Product::Slb, "DescribeVServerGroupAttribute", "VServerGroupId!", describe_one)
            .documented("parameters, answer, no pages")
            .assumed(
                "`ServerIp` of an ECS backend is shown or empty, as a dial says; which documented code \
                 an unknown group gets",
            )
            .listing("/BackendServers/BackendServer"),
        Action::write(Product::Slb, "DeleteVServerGroup", "VServerGroupId!", delete)
            .documented("parameters, refused while a listener uses it, `RspoolVipExist`")
            .assumed("which documented code an unknown group gets"),
        Action::write(Product::Slb, "AddVServerGroupBackendServers", "VServerGroupId! BackendServers!", add)
            .documented(
                "parameters, `BackendServer.InvalidType`, `NetworkConflict`, \
                 `InvalidServerId.NotExist`",
            )
            .observed(
                "`InstanceBackendServerNumberOverLimit`, keys in lower camel case, 40 in a call",
                "official controller v2.14.0",
            )
            .assumed("a known backend takes the new weight; all or none; `InvalidParameter.ServerIp`"),
        Action::write(Product::Slb, "RemoveVServerGroupBackendServers", "VServerGroupId! BackendServers!", remove)
            .documented("parameters, absent backends are no error")
            .observed("keys in lower camel case", "official controller v2.14.0")
            .assumed("without `ServerIp` all addresses of a server go"),
        Action::write(Product::Slb, "SetVServerGroupAttribute", "VServerGroupId! BackendServers VServerGroupName", set)
            .documented("parameters, changes weight and description, adds nothing")
            .observed("keys in lower camel case", "official controller v2.14.0")
            .assumed("`ResourceNotFound.vServers` if one of them is not in the group"),
        Action::write(
            Product::Slb,
            "ModifyVServerGroupBackendServers",
            "VServerGroupId! OldBackendServers NewBackendServers",
            modify,
        )
        .documented("parameters, answer")
        .assumed("old backends that are absent are no error; all or nothing"),
    ]
}

fn no_group() -> ApiError {
    ApiError::new(400, "InvalidParameter", "The specified VServerGroupId does not exist.")
}

/// The group that a call names and its load balancer, claimed for a write.
fn group_for_write(cx: &mut Context<'_>) -> Result<(String, String), ApiError> {
    let group = cx.params.need("VServerGroupId")?;
    let owner = cx.account.owner_of_group(group).cloned().ok_or_else(no_group)?;
    claim(cx.account, &owner, cx.action)?;
    Ok((owner, group.to_owned()))
}

fn group_mut<'w>(account: &'w mut Account, owner: &str, group: &str) -> Result<&'w mut Group, ApiError> {
    account.load_balancers.get_mut(owner).and_then(|it| it.groups.get_mut(group)).ok_or_else(no_group)
}

/// A backend as a call gives it; what is absent keeps its old value on changes.
struct Given {
    backend: Backend,
    weight: Option<u8>,
    description: Option<String>,
}

impl Given {
    fn is(&self, other: &Backend) -> bool {
        let it = &self.backend;
        let same_ip = it.server_ip.is_empty() || other.server_ip.is_empty() || it.server_ip == other.server_ip;
        it.server_id == other.server_id && it.port == other.port && same_ip
    }
}

/// Reads a list of backends. Keys may be `ServerId` or `serverId`, numbers may be texts.
fn read(cx: &Context<'_>, name: &str) -> Result<Vec<Given>, ApiError> {
    let malformed =
        || ApiError::new(400, "InvalidBackendServers.Malformed", format!("The specified {name} is malformed."));
    let Some(text) = cx.params.get(name) else { return Ok(Vec::new()) };
    let items: Vec<serde_json::Map<String, Value>> = serde_json::from_str(text).map_err(|_| malformed())?;
    let most = cx.account.limits.backends_per_call;
    if items.len() > most {
        let message = format!("At most {most} backend servers are allowed in one call.");
        return Err(ApiError::new(400, "SizeLimitExceeded.BackendServers", message));
    }
    if items.is_empty() {
        cx.log.complain(format!("{}: {name} is an empty array", cx.action.name));
    }
    items.iter().map(|item| read_one(cx, item).ok_or_else(malformed)?).collect()
}

fn read_one(cx: &Context<'_>, item: &serde_json::Map<String, Value>) -> Option<Result<Given, ApiError>> {
    const KNOWN: &[&str] = &["serverid", "serverip", "port", "weight", "type", "description"];
    for key in item.keys().filter(|key| !KNOWN.contains(&key.to_lowercase().as_str())) {
        cx.log.complain(format!("{}: a backend has no field {key}", cx.action.name));
    }
    let text = |name: &str| {
        let (_, value) = item.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (!value.is_null() && !text.is_empty()).then_some(text)
    };
    let server_id = text("ServerId")?;
    let port: u16 = text("Port")?.parse().ok().filter(|it| *it > 0)?;
    let weight: Option<u8> = match text("Weight") {
        None => None,
        Some(text) => match text.parse().ok().filter(|it| *it <= 100) {
            None => return Some(Err(ApiError::invalid("Weight", "0 to 100 is allowed"))),
            some => some,
        },
    };
    let description = text("Description");
    let is_allowed = |it: char| it.is_alphanumeric() || "-/._".contains(it);
    if description.as_ref().is_some_and(|it| it.chars().count() > 80 || !it.chars().all(is_allowed)) {
        return Some(Err(ApiError::invalid("Description", "1 to 80 letters, digits, - / . _ are allowed")));
    }
    let kind = text("Type").unwrap_or_else(|| "ecs".into());
    if !["ecs", "eni", "eci"].contains(&kind.as_str()) {
        return Some(Err(ApiError::new(400, "BackendServer.InvalidType", format!("The type {kind} is not valid."))));
    }
    let backend = Backend {
        server_id,
        server_ip: text("ServerIp").unwrap_or_default(),
        port,
        weight: weight.unwrap_or(100),
        kind,
        description: description.clone().unwrap_or_default(),
    };
    Some(Ok(Given { backend, weight, description }))
}

/// The VPC of a server, and the address that serves.
fn locate(account: &Account, it: &Backend) -> Result<(String, String), ApiError> {
    let unknown = || {
        let message = format!("The specified ServerId {} does not exist.", it.server_id);
        ApiError::new(400, "InvalidServerId.NotExist", message)
    };
    let (vswitch, addresses) = match it.kind.as_str() {
        "ecs" => account.instances.get(&it.server_id).map(|it| (&it.vswitch, &it.private_ips)),
        _ => account.interfaces.get(&it.server_id).map(|it| (&it.vswitch, &it.ipv4)),
    }
    .ok_or_else(unknown)?;
    if !it.server_ip.is_empty() && !addresses.contains(&it.server_ip) {
        let is_ipv6 = account.interfaces.get(&it.server_id).is_some_and(|eni| eni.ipv6.contains(&it.server_ip));
        if !is_ipv6 {
            let message = format!("The address {} does not belong to {}.", it.server_ip, it.server_id);
            return Err(ApiError::new(400, "InvalidParameter.ServerIp", message));
        }
    }
    let address =
        if it.server_ip.is_empty() { addresses.first().cloned().unwrap_or_default() } else { it.server_ip.clone() };
    Ok((account.vpc_of(vswitch).to_owned(), address))
}

/// Checks backends that are to come into a group: they exist, are in one VPC, and do not share an address and port.
fn check(account: &Account, lb: &LoadBalancer, group: Option<&Group>, new: &[Given]) -> Result<(), ApiError> {
    let mut vpc = (!lb.vpc.is_empty()).then(|| lb.vpc.clone());
    let mut held = Vec::new();
    for it in group.into_iter().flat_map(|it| &it.backends) {
        if let Ok((found, address)) = locate(account, it) {
            vpc = vpc.or(Some(found));
            held.push((it.server_id.clone(), address, it.port));
        }
    }
    for given in new {
        let it = &given.backend;
        let (found, address) = locate(account, it)?;
        if vpc.as_ref().is_some_and(|vpc| *vpc != found) {
            let message = "The specified backend servers and the load balancer are not in one network.";
            return Err(ApiError::new(400, "NetworkConflict", message));
        }
        vpc = Some(found);
        if it.kind == "eni" && lb.instance_charge_type == "PayBySpec" && lb.spec.is_empty() {
            let message = "The load balancer does not support backend servers of eni type.";
            return Err(ApiError::new(400, "BackendServer.InvalidType", message));
        }
        if held.iter().any(|(id, ip, port)| *ip == address && *port == it.port && *id != it.server_id) {
            let message = format!("The address {address} is already a backend under another id.");
            return Err(ApiError::new(400, "InvalidBackendServers.ServerIpConflict", message));
        }
        held.push((it.server_id.clone(), address, it.port));
    }
    Ok(())
}

/// Puts backends in; one that is there already takes the new weight and description.
fn put(group: &mut Group, new: Vec<Given>) {
    for given in new {
        match group.backends.iter_mut().find(|it| given.is(it)) {
            Some(held) => *held = given.backend,
            None => group.backends.push(given.backend),
        }
    }
}

/// Adds backends to a group within the quota of its load balancer.
fn admit(account: &mut Account, owner: &str, id: &str, new: Vec<Given>) -> Result<(), ApiError> {
    let lb = instance(account, owner)?;
    let group = lb.groups.get(id).ok_or_else(no_group)?;
    check(account, lb, Some(group), &new)?;
    let mut wanted = group.clone();
    put(&mut wanted, new);
    let others: usize = lb.groups.iter().filter(|(other, _)| *other != id).map(|(_, it)| it.backends.len()).sum();
    if others + wanted.backends.len() > account.limits.backends {
        let message = "The number of backend servers exceeds the limit of the load balancer.";
        return Err(ApiError::new(400, "InstanceBackendServerNumberOverLimit", message));
    }
    *group_mut(account, owner, id)? = wanted;
    Ok(())
}

fn check_name(name: &str) -> Result<(), ApiError> {
    if (1..=80).contains(&name.chars().count()) {
        return Ok(());
    }
    Err(ApiError::invalid("VServerGroupName", "1 to 80 characters are allowed"))
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let name = cx.params.need("VServerGroupName")?;
    check_name(name)?;
    let backends = read(cx, "BackendServers")?;
    let tags = super::tags::given(cx.params)?;
    let owner = cx.params.need("LoadBalancerId")?;
    let most = cx.account.limits.groups;
    let lb = instance(cx.account, owner)?;
    if lb.groups.len() >= most {
        let message = "The number of vServer groups exceeds the quota.";
        return Err(ApiError::new(400, "OperationForbidden.QuotaLimit", message));
    }
    check(cx.account, lb, None, &backends)?;
    let id = cx.account.fresh("rsp-bp1", 17);
    for_write(cx)?.groups.insert(id.clone(), Group { tags, ..Group::new(name) });
    if let Err(error) = admit(cx.account, owner, &id, backends) {
        cx.account.load_balancers.get_mut(owner).and_then(|it| it.groups.remove(&id));
        return Err(error);
    }
    answer(cx.account, owner, &id)
}

/// What all calls that change a group answer.
fn answer(account: &Account, owner: &str, id: &str) -> Result<Value, ApiError> {
    let group = instance(account, owner)?.groups.get(id).ok_or_else(no_group)?;
    let backends: Vec<Value> = group.backends.iter().map(|it| shown(account, it)).collect();
    Ok(json!({"VServerGroupId": id, "VServerGroupName": group.name, "BackendServers": {"BackendServer": backends}}))
}

fn shown(account: &Account, it: &Backend) -> Value {
    let address = account.dials.show_server_ips.then(|| locate(account, it).ok()).flatten().map(|(_, address)| address);
    let address = address.as_ref().unwrap_or(&it.server_ip);
    json!({"ServerId": it.server_id, "ServerIp": address, "Port": it.port, "Weight": it.weight, "Type": it.kind,
        "Description": it.description})
}

fn describe_all(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let lb = instance(cx.account, cx.params.need("LoadBalancerId")?)?;
    let groups: Vec<Value> = lb
        .groups
        .iter()
        .map(|(id, it)| {
            let users: Vec<Value> = lb
                .listeners
                .iter()
                .filter(|(_, listener)| listener.group == *id)
                .map(|((port, protocol), _)| json!({"Port": port, "Protocol": protocol.as_str()}))
                .collect();
            json!({
                "VServerGroupId": id,
                "VServerGroupName": it.name,
                "ServerCount": it.backends.len(),
                "CreateTime": seconds(lb.created),
                "ServiceManagedMode": "Unmanaged",
                "AssociatedObjects": {"Listeners": {"Listener": users}, "Rules": {"Rule": []}},
                "Tags": {"Tag": tag_list(&it.tags)},
            })
        })
        .collect();
    Ok(json!({"VServerGroups": {"VServerGroup": groups}}))
}

fn describe_one(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("VServerGroupId")?;
    let owner = cx.account.owner_of_group(id).ok_or_else(no_group)?;
    let mut body = answer(cx.account, owner, id)?;
    body["LoadBalancerId"] = json!(owner);
    Ok(body)
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (owner, id) = group_for_write(cx)?;
    if let Some(lb) = cx.account.load_balancers.get_mut(&owner) {
        if lb.listeners.values().any(|it| it.group == id) {
            let message = "The specified vServer group is in use by a listener.";
            return Err(ApiError::new(400, "RspoolVipExist", message));
        }
        lb.groups.remove(&id);
    }
    Ok(json!({}))
}

fn add(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let new = read(cx, "BackendServers")?;
    let (owner, id) = group_for_write(cx)?;
    admit(cx.account, &owner, &id, new)?;
    answer(cx.account, &owner, &id)
}

fn remove(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let gone = read(cx, "BackendServers")?;
    let (owner, id) = group_for_write(cx)?;
    group_mut(cx.account, &owner, &id)?.backends.retain(|it| !gone.iter().any(|gone| gone.is(it)));
    answer(cx.account, &owner, &id)
}

fn set(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let changes = read(cx, "BackendServers")?;
    let name = cx.params.get("VServerGroupName");
    name.map(check_name).transpose()?;
    let (owner, id) = group_for_write(cx)?;
    let group = group_mut(cx.account, &owner, &id)?;
    if let Some(missing) = changes.iter().find(|change| !group.backends.iter().any(|it| change.is(it))) {
        let message = format!("The backend server {} is not in the group.", missing.backend.server_id);
        return Err(ApiError::new(404, "ResourceNotFound.vServers", message));
    }
    for change in changes {
        for it in group.backends.iter_mut().filter(|it| change.is(it)) {
            it.weight = change.weight.unwrap_or(it.weight);
            if let Some(description) = &change.description {
                it.description.clone_from(description);
            }
        }
    }
    if let Some(name) = name {
        group.name = name.into();
    }
    answer(cx.account, &owner, &id)
}

fn modify(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (old, new) = (read(cx, "OldBackendServers")?, read(cx, "NewBackendServers")?);
    let (owner, id) = group_for_write(cx)?;
    let before = group_mut(cx.account, &owner, &id)?.clone();
    group_mut(cx.account, &owner, &id)?.backends.retain(|it| !old.iter().any(|old| old.is(it)));
    if let Err(error) = admit(cx.account, &owner, &id, new) {
        *group_mut(cx.account, &owner, &id)? = before;
        return Err(error);
    }
    answer(cx.account, &owner, &id)
}
