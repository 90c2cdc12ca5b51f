//! Both worlds, large enough, and what is looked at in them.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::{Value, json};
use sim::cloud::World;
use sim::cluster::{Endpoint, NodeSpec, Version};
use sim::stage::{ACCESS_KEY, REGION, Stage, VPC};

use super::{Options, anything};

const VSWITCHES: [(&str, &str, &str); 2] =
    [("vsw-i", "cn-hangzhou-i", "172.16.0.0/16"), ("vsw-j", "cn-hangzhou-j", "172.17.0.0/16")];

/// Opens a stage with room for everything, and writes the configuration into `folder`.
pub(crate) async fn open(options: &Options, folder: &Path) -> Result<Stage, String> {
    let mut world = World::new(REGION).with_vpc(VPC, "172.16.0.0/12");
    for (id, zone, cidr) in VSWITCHES {
        world = world.with_vswitch(id, VPC, zone, cidr);
    }
    world = world.with_key(ACCESS_KEY.0, ACCESS_KEY.1);
    let most = options.nodes + options.services + 100;
    (world.limits.routes_per_table, world.limits.load_balancers, world.limits.backends) = (most, most, most);
    world.dials.latency = options.latency();
    world.dials.rate_quotas = options.quotas;
    let stage = Stage::with(Version::NEWEST, world).await.map_err(anything)?;
    let path = stage.write_config(folder, &["node", "route", "service"], "").map_err(anything)?;
    let quotas = if options.quotas || options.budget { "" } else { "[cloud.quotas]\n\"*\" = 100000\n" };
    std::fs::write(path, format!("{}{quotas}", config(&stage))).map_err(anything)?;
    Ok(stage)
}

/// Only what has to be said; everything else is the default.
fn config(stage: &Stage) -> String {
    let address = stage.cloud_address();
    let (id, _) = ACCESS_KEY;
    format!(
        r#"controllers = ["node", "route", "service"]

[cloud]
region = "{REGION}"
vpc_id = "{VPC}"
vswitches = ["cn-hangzhou-i:vsw-i", "cn-hangzhou-j:vsw-j"]
cluster_id = "scale"

[cloud.credentials]
access_key_id = "{id}"
access_key_secret_file = "access-key-secret"

[cloud.endpoints]
scheme = "http"
ecs = "{address}"
vpc = "{address}"
slb = "{address}"
sts = "{address}"
metadata = "http://{address}"

[kubernetes]
kubeconfig = "kubeconfig"

[route]
cluster_cidrs = ["10.64.0.0/10"]

[server]
port = 0
"#
    )
}

/// Rents the instance with this number and lets its kubelet join, tainted.
pub(crate) fn join(stage: &Stage, number: usize) -> Result<(), String> {
    let spec = rent(stage, number);
    stage.cluster.join_node(&spec).map(drop).map_err(|failure| format!("node {number} cannot join: {failure:?}"))
}

/// Rents the instance with this number; its node was initialised by whoever ran before.
pub(crate) fn stand(stage: &Stage, number: usize) -> Result<(), String> {
    let spec = rent(stage, number);
    stage.cluster.add_node(&spec).map(drop).map_err(|failure| format!("node {number} cannot be added: {failure:?}"))
}

fn rent(stage: &Stage, number: usize) -> NodeSpec {
    let name = node(number);
    let (vswitch, zone) = if number.is_multiple_of(2) { ("vsw-i", 16) } else { ("vsw-j", 17) };
    let (high, low) = (number / 250, number % 250 + 1);
    stage.cloud.add_instance(&instance(number), &name, vswitch, &format!("172.{zone}.{high}.{low}"));
    let cidr = format!("10.{}.{}.0/24", 64 + number / 256, number % 256);
    NodeSpec::new(&name).provider_id(&format!("{REGION}.{}", instance(number))).pod_cidr(&cidr)
}

/// A kubelet says that it is alive.
pub(crate) fn heartbeat(stage: &Stage, number: usize, nth: usize) -> Result<(), String> {
    let time = format!("2040-01-01T{:02}:{:02}:{:02}Z", nth / 3600 % 24, nth / 60 % 60, nth % 60);
    let status = json!({"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]});
    let patched = stage.cluster.patch_status("Node", "", &node(number), &status);
    patched.map(drop).map_err(|failure| format!("heartbeat of node {number}: {failure:?}"))
}

/// Makes a Service that is none of the controller's business.
pub(crate) fn serve(stage: &Stage, name: &str) -> Result<(), String> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    });
    stage.cluster.create(service).map(drop).map_err(|failure| format!("{name} cannot be made: {failure:?}"))
}

/// Makes a Service with one port. A local one has as many backends as nodes with endpoints.
pub(crate) fn expose(stage: &Stage, name: &str, local: bool) -> Result<(), String> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "externalTrafficPolicy": if local { "Local" } else { "Cluster" },
            "ports": [{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    });
    stage.cluster.create(service).map_err(|failure| format!("{name} cannot be made: {failure:?}"))?;
    endpoints(stage, name, &[0])
}

/// Puts the Service's endpoints onto these nodes.
pub(crate) fn endpoints(stage: &Stage, name: &str, nodes: &[usize]) -> Result<(), String> {
    let at = |number: &usize| {
        let number = *number;
        let (second, third) = (u8::try_from(64 + number / 256), u8::try_from(number % 256));
        let ip = Ipv4Addr::new(10, second.unwrap_or_default(), third.unwrap_or_default(), 10);
        Endpoint::ready(IpAddr::V4(ip), &node(number))
    };
    let all: Vec<Endpoint> = nodes.iter().map(at).collect();
    stage.cluster.set_endpoints("default", name, &all).map_err(|failure| format!("endpoints of {name}: {failure:?}"))
}

/// Name of the node with this number.
pub(crate) fn node(number: usize) -> String {
    format!("node-{number}")
}

/// Id of its instance.
pub(crate) fn instance(number: usize) -> String {
    format!("i-scale-{number}")
}

/// Names of the nodes that no longer wait for the cloud controller.
pub(crate) fn initialised(stage: &Stage) -> Vec<String> {
    let waits = |node: &Value| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|all| all.iter().any(|it| it["key"] == "node.cloudprovider.kubernetes.io/uninitialized"))
    };
    names(stage.cluster.list("Node").iter().filter(|node| !waits(node)))
}

/// Names of the nodes whose pods can be reached.
pub(crate) fn routed(stage: &Stage) -> Vec<String> {
    let routed = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "NetworkUnavailable" && it["status"] == "False"))
    };
    names(stage.cluster.list("Node").iter().filter(|node| routed(node)))
}

/// Names of the Services with an address.
pub(crate) fn addressed(stage: &Stage) -> Vec<String> {
    let has = |service: &Value| service["status"]["loadBalancer"]["ingress"][0].is_object();
    names(stage.cluster.list("Service").iter().filter(|service| has(service)))
}

/// Server groups that hold this instance.
pub(crate) fn groups_with(stage: &Stage, instance: &str) -> usize {
    stage.cloud.look(|world| {
        let groups = world.load_balancers.values().flat_map(|balancer| balancer.groups.values());
        groups.filter(|group| group.backends.iter().any(|backend| backend.server_id == instance)).count()
    })
}

fn names<'a>(objects: impl Iterator<Item = &'a Value>) -> Vec<String> {
    objects.filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect()
}
