//! Network load balancers and their server groups from JSON.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::account::Account;
use super::objects::{GroupServer, NetworkListener, NetworkLoadBalancer, ServerGroup};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BalancerInput {
    id: String,
    name: String,
    address_type: String,
    vpc: String,
    /// vSwitches by zone.
    zones: BTreeMap<String, String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    listeners: Vec<ListenerInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenerInput {
    id: String,
    port: u16,
    protocol: String,
    description: String,
    server_group: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupInput {
    id: String,
    name: String,
    kind: String,
    protocol: String,
    vpc: String,
    #[serde(default)]
    servers: Vec<ServerInput>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerInput {
    server_id: String,
    server_ip: String,
    port: u16,
    description: String,
}

pub(crate) fn add_group(account: &mut Account, input: GroupInput) {
    let mut group = ServerGroup::new(&input.name, &input.vpc, &input.kind, &input.protocol);
    group.tags = input.tags;
    for it in input.servers {
        let kind = match it.server_id.split('-').next() {
            Some("i") => "Ecs",
            Some("eni") => "Eni",
            _ => "Ip",
        };
        group.servers.push(GroupServer {
            id: it.server_id,
            ip: it.server_ip,
            kind: kind.into(),
            port: it.port,
            weight: 100,
            description: it.description,
            pending: None,
        });
    }
    account.nlb.groups.insert(input.id, group.into());
}

pub(crate) fn add_balancer(account: &mut Account, input: BalancerInput) {
    let mut made = NetworkLoadBalancer::new(&input.name, &input.address_type, &input.vpc);
    made.tags = input.tags;
    for it in input.listeners {
        let listener = NetworkListener {
            protocol: it.protocol,
            port: it.port,
            description: it.description,
            status: "Running".into(),
            group: it.server_group,
            idle_timeout: 900,
            ..NetworkListener::default()
        };
        made.listeners.insert(it.id, listener);
    }
    let at: Vec<(String, String)> = input.zones.into_iter().collect();
    account.add_network_load_balancer(&input.id, made, &at);
}
