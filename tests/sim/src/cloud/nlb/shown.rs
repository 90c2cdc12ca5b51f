//! Network load balancers, their server groups, and security groups as JSON, for assertions.

use serde_json::{Map, Value, json};

use super::super::account::Account;
use super::objects::{NetworkListener, NetworkLoadBalancer, SecurityGroup, ServerGroup};

pub(crate) fn balancer(account: &Account, id: &str, it: &NetworkLoadBalancer) -> Value {
    let zones: Vec<Value> = it
        .zones
        .iter()
        .map(|zone| {
            json!({"zone": zone.zone, "vswitch": zone.vswitch, "private_ip": zone.private_ip, "ipv6": zone.ipv6,
                "allocation_id": zone.allocation_id, "public_ip": zone.public_ip})
        })
        .collect();
    let listeners: Map<String, Value> = it.listeners.values().map(|it| (it.key(), listener(account, it))).collect();
    json!({
        "id": id,
        "name": it.name,
        "address_type": it.address_type,
        "ipv6_address_type": it.ipv6_address_type,
        "ip_version": it.ip_version,
        "vpc": it.vpc,
        "dns": it.dns,
        "bandwidth_package": it.bandwidth_package,
        "cross_zone": it.cross_zone,
        "deletion_protection": it.deletion_protection,
        "deletion_reason": it.deletion_reason,
        "modification_protection": it.modification_protection,
        "modification_reason": it.modification_reason,
        "resource_group": it.resource_group,
        "security_groups": it.security_groups,
        "status": it.shown_status(),
        "zones": zones,
        "tags": it.tags,
        "listeners": listeners,
    })
}

fn listener(account: &Account, it: &NetworkListener) -> Value {
    let group = account.nlb.groups.get(&it.group).map_or(it.group.as_str(), |it| it.name.as_str());
    json!({
        "description": it.description,
        "status": it.shown_status(),
        "server_group": group,
        "idle_timeout": it.idle_timeout,
        "cps": it.cps,
        "mss": it.mss,
        "proxy_protocol": it.proxy_protocol,
        "ppv2": it.ppv2,
        "certificates": it.certificates,
        "additional_certificates": it.additional_certificates,
        "ca_enabled": it.ca_enabled,
        "ca_certificates": it.ca_certificates,
        "security_policy": it.security_policy,
        "alpn_enabled": it.alpn_enabled,
        "alpn_policy": it.alpn_policy,
        "sec_sensor": it.sec_sensor,
        "tags": it.tags,
    })
}

/// `used_by` lists `<load balancer> <listener>`.
pub(crate) fn group(account: &Account, id: &str, it: &ServerGroup) -> Value {
    let mut used_by = Vec::new();
    for (owner, lb) in account.nlb.balancers.iter() {
        let users = lb.listeners.values().filter(|it| it.group == id);
        used_by.extend(users.map(|it| json!([owner, it.key()])));
    }
    let mut servers: Vec<Value> = it
        .servers
        .iter()
        .map(|it| {
            json!({"server_id": it.id, "server_ip": it.ip, "type": it.kind, "port": it.port, "weight": it.weight,
                "description": it.description, "status": it.shown_status()})
        })
        .collect();
    servers.sort_by_key(Value::to_string);
    let health = &it.health;
    json!({
        "id": id,
        "name": it.name,
        "kind": it.kind,
        "protocol": it.protocol,
        "ip_version": it.ip_version,
        "affinity_mode": it.affinity_mode,
        "vpc": it.vpc,
        "scheduler": it.scheduler,
        "drain_enabled": it.drain_enabled,
        "drain_timeout": it.drain_timeout,
        "preserve_client_ip": it.preserve_client_ip,
        "any_port": it.any_port,
        "resource_group": it.resource_group,
        "health": {
            "enabled": health.enabled,
            "kind": health.kind,
            "connect_port": health.connect_port,
            "healthy": health.healthy,
            "unhealthy": health.unhealthy,
            "timeout": health.timeout,
            "interval": health.interval,
            "domain": health.domain,
            "url": health.url,
            "codes": health.codes,
            "method": health.method,
        },
        "servers": servers,
        "status": it.shown_status(),
        "tags": it.tags,
        "used_by": used_by,
    })
}

pub(crate) fn security_group(id: &str, it: &SecurityGroup) -> Value {
    let mut rules: Vec<Value> = it
        .rules
        .values()
        .map(|it| {
            json!({"direction": "ingress", "policy": it.policy, "priority": it.priority, "protocol": it.protocol,
                "port_range": it.port_range, "fields": it.fields, "description": it.description})
        })
        .collect();
    rules.sort_by_key(Value::to_string);
    json!({"id": id, "name": it.name, "kind": it.kind, "vpc": it.vpc, "description": it.description,
        "resource_group": it.resource_group, "tags": it.tags, "rules": rules})
}
