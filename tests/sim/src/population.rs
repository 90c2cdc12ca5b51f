//! Many nodes and Services for a [`Testbed`], numbered from 0.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::json;

use crate::cloud::Account;
use crate::cluster::{Endpoint, NodeSpec};
use crate::testbed::{ACCESS_KEY, REGION, Testbed, VPC};

/// The pod network of all nodes.
pub const POD_NETWORK: &str = "10.64.0.0/10";
const VSWITCHES: [(&str, &str, &str); 2] =
    [("vsw-i", "cn-hangzhou-i", "172.16.0.0/16"), ("vsw-j", "cn-hangzhou-j", "172.17.0.0/16")];

/// A cloud with room for so many nodes and load balancers together.
#[must_use]
pub fn account(most: usize) -> Account {
    let mut account = Account::new(REGION).with_vpc(VPC, "172.16.0.0/12");
    for (id, zone, cidr) in VSWITCHES {
        account = account.with_vswitch(id, VPC, zone, cidr);
    }
    account = account.with_key(ACCESS_KEY.0, ACCESS_KEY.1);
    (account.limits.routes_per_table, account.limits.load_balancers, account.limits.backends) = (most, most, most);
    (account.limits.network_load_balancers, account.limits.server_groups) = (most, most);
    account.limits.servers_per_group = most;
    account.dials.forgetful = true;
    account
}

/// Lets the kubelet of this instance join, tainted.
///
/// # Errors
/// The API server refuses the node.
pub fn join(testbed: &Testbed, number: usize) -> Result<(), String> {
    testbed
        .cluster
        .join_node(&spec(number))
        .map(drop)
        .map_err(|failure| format!("node {number} cannot join: {failure:?}"))
}

/// The node of this instance is already initialised.
///
/// # Errors
/// The API server refuses the node.
pub fn stand(testbed: &Testbed, number: usize) -> Result<(), String> {
    testbed
        .cluster
        .add_node(&spec(number))
        .map(drop)
        .map_err(|failure| format!("node {number} cannot be added: {failure:?}"))
}

/// Rents the instance with this number.
pub fn rent(testbed: &Testbed, number: usize) {
    let (vswitch, zone) = if number.is_multiple_of(2) { ("vsw-i", 16) } else { ("vsw-j", 17) };
    let (high, low) = (number / 250, number % 250 + 1);
    testbed.cloud.add_instance(&instance(number), &node(number), vswitch, &format!("172.{zone}.{high}.{low}"));
}

fn spec(number: usize) -> NodeSpec {
    let cidr = format!("10.{}.{}.0/24", 64 + number / 256, number % 256);
    NodeSpec::new(&node(number)).provider_id(&format!("{REGION}.{}", instance(number))).pod_cidr(&cidr)
}

/// A kubelet says that it is alive.
///
/// # Errors
/// There is no such node.
pub fn heartbeat(testbed: &Testbed, number: usize, nth: usize) -> Result<(), String> {
    let time = format!("2040-01-01T{:02}:{:02}:{:02}Z", nth / 3600 % 24, nth / 60 % 60, nth % 60);
    let status = json!({"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]});
    let patched = testbed.cluster.patch_status("Node", "", &node(number), &status);
    patched.map(drop).map_err(|failure| format!("heartbeat of node {number}: {failure:?}"))
}

/// Makes a Service that no load balancer serves.
///
/// # Errors
/// The API server refuses it.
pub fn serve(testbed: &Testbed, name: &str) -> Result<(), String> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    });
    testbed.cluster.create(service).map(drop).map_err(|failure| format!("{name} cannot be made: {failure:?}"))
}

/// Makes a Service of type `LoadBalancer` with one port and one endpoint, on the first node. A local one has as many
/// backends as nodes with endpoints.
///
/// # Errors
/// The API server refuses it.
pub fn expose(testbed: &Testbed, name: &str, local: bool) -> Result<(), String> {
    expose_as(testbed, name, (local, None))
}

/// The same with a network load balancer.
///
/// # Errors
/// The API server refuses it.
pub fn expose_network(testbed: &Testbed, name: &str, local: bool) -> Result<(), String> {
    expose_as(testbed, name, (local, Some("alibabacloud.com/nlb")))
}

fn expose_as(testbed: &Testbed, name: &str, (local, class): (bool, Option<&str>)) -> Result<(), String> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": class,
            "externalTrafficPolicy": if local { "Local" } else { "Cluster" },
            "ports": [{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    });
    testbed.cluster.create(service).map_err(|failure| format!("{name} cannot be made: {failure:?}"))?;
    endpoints(testbed, name, &[0])
}

/// Puts the Service's endpoints onto these nodes.
///
/// # Errors
/// The API server refuses them.
pub fn endpoints(testbed: &Testbed, name: &str, nodes: &[usize]) -> Result<(), String> {
    let at = |number: &usize| {
        let number = *number;
        let (second, third) = (u8::try_from(64 + number / 256), u8::try_from(number % 256));
        let ip = Ipv4Addr::new(10, second.unwrap_or_default(), third.unwrap_or_default(), 10);
        Endpoint::ready(IpAddr::V4(ip), &node(number))
    };
    let all: Vec<Endpoint> = nodes.iter().map(at).collect();
    testbed.cluster.set_endpoints("default", name, &all).map_err(|failure| format!("endpoints of {name}: {failure:?}"))
}

/// Name of the node with this number.
#[must_use]
pub fn node(number: usize) -> String {
    format!("node-{number}")
}

/// Id of its instance.
#[must_use]
pub fn instance(number: usize) -> String {
    format!("i-crowd-{number}")
}
