//! Both worlds, large enough, and what is looked at in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use alicloud_ccm::alibaba::actions::ALL;
use serde_json::Value;
use sim::cloud::Account;
use sim::population::{self, POD_NETWORK, account};
pub(crate) use sim::population::{endpoints, heartbeat, instance, join, node, rent, serve, stand};
use sim::testbed::{ACCESS_KEY, REGION, Testbed, VPC};

use super::{Options, anything};

/// How long a job of a network load balancer takes.
pub(crate) const JOB: Duration = Duration::from_millis(300);
/// The highest quota that the configuration can state.
const HIGHEST: u32 = 100_000;

/// Opens a testbed with room for everything, and writes the configuration into `folder`.
pub(crate) async fn open(options: &Options, folder: &Path) -> Result<Testbed, String> {
    let mut world = account(2 * options.nodes + 2 * options.services + options.network + 400);
    world.dials.latency = options.latency();
    world.dials.rate_quotas = options.quotas;
    (world.dials.nlb_creation_time, world.dials.nlb_job_time) = (Duration::from_secs(2), JOB);
    let stated = match options.account_quotas {
        2.. => quotas(options.account_quotas),
        _ if options.quotas || options.budget => BTreeMap::new(),
        _ => [("*".to_owned(), HIGHEST)].into(),
    };
    world.dials.rates.clone_from(&stated);
    let testbed = Testbed::with(options.kubernetes, world).await.map_err(anything)?;
    testbed.cluster.allow_node_ports(20000, 65535);
    let path = testbed.write_config(folder, &["node", "route", "service"], "").map_err(anything)?;
    let also = if options.network > 0 || options.day.is_some() || options.latencies { ", \"nlb\"" } else { "" };
    let mut text = config(&testbed, also);
    for (action, calls) in stated {
        writeln!(text, "{action:?} = {calls}").map_err(anything)?;
    }
    std::fs::write(path, text).map_err(anything)?;
    Ok(testbed)
}

/// Calls a minute of each action in an account with so many times the published quotas. The two products share names of
/// actions: the classic one, which comes first and has the lower quota, decides.
pub(crate) fn quotas(times: u32) -> BTreeMap<String, u32> {
    let raised = |calls: u32| calls.saturating_mul(times).min(HIGHEST);
    ALL.iter().rev().map(|action| (action.name.to_owned(), raised(action.calls * 60 / action.seconds))).collect()
}

/// Only what has to be said; everything else is the default.
fn config(testbed: &Testbed, also: &str) -> String {
    let address = testbed.cloud_address();
    let (id, _) = ACCESS_KEY;
    format!(
        r#"controllers = ["node", "route", "service"{also}]

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
nlb = "{address}"
sts = "{address}"
metadata = "http://{address}"

[kubernetes]
kubeconfig = "kubeconfig"

[route]
cluster_cidrs = ["{POD_NETWORK}"]

[server]
port = 0

[cloud.quotas]
"#
    )
}

/// Whether the Service of this name has a network load balancer.
pub(crate) fn is_network(service: &str) -> bool {
    service.contains("net-")
}

/// Makes a Service with the load balancer that belongs to its name.
pub(crate) fn expose(testbed: &Testbed, name: &str, is_local: bool) -> Result<(), String> {
    let expose = if is_network(name) { population::expose_network } else { population::expose };
    expose(testbed, name, is_local)
}

/// The Service in the name of a server group.
pub(crate) fn service_of(group: &str) -> &str {
    let part = if group.contains('/') { group.split('/').nth(2) } else { group.split('.').nth(3) };
    part.unwrap_or_default()
}

/// Instances in the server groups of each Service: the first of each group, no more than `most`.
pub(crate) fn backends(account: &Account, most: usize) -> HashMap<String, BTreeSet<String>> {
    let mut found: HashMap<String, BTreeSet<String>> = HashMap::new();
    for group in account.load_balancers.values().flat_map(|balancer| balancer.groups.values()) {
        let instances = group.backends.iter().take(most).map(|it| it.server_id.clone());
        found.entry(service_of(&group.name).to_owned()).or_default().extend(instances);
    }
    for group in account.nlb.groups.values() {
        let instances = group.servers.iter().take(most).map(|it| it.id.clone());
        found.entry(service_of(&group.name).to_owned()).or_default().extend(instances);
    }
    found
}

/// Names of the nodes that no longer wait for the cloud controller.
pub(crate) fn initialised(testbed: &Testbed) -> Vec<String> {
    let waits = |node: &Value| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|all| all.iter().any(|it| it["key"] == "node.cloudprovider.kubernetes.io/uninitialized"))
    };
    names(testbed, "Node", |node| !waits(node))
}

/// Names of the nodes whose pods can be reached.
pub(crate) fn routed(testbed: &Testbed) -> Vec<String> {
    let routed = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "NetworkUnavailable" && it["status"] == "False"))
    };
    names(testbed, "Node", routed)
}

/// Names of the Services with an address.
pub(crate) fn addressed(testbed: &Testbed) -> Vec<String> {
    let has = |service: &Value| service["status"]["loadBalancer"]["ingress"][0].is_object();
    names(testbed, "Service", has)
}

/// Server groups that hold this instance.
pub(crate) fn groups_with(testbed: &Testbed, instance: &str) -> usize {
    testbed.cloud.look(|world| {
        let groups = world.load_balancers.values().flat_map(|balancer| balancer.groups.values());
        groups.filter(|group| group.backends.iter().any(|backend| backend.server_id == instance)).count()
    })
}

/// Names of the objects of this kind that are so.
pub(crate) fn names(testbed: &Testbed, kind: &str, is_so: impl Fn(&Value) -> bool) -> Vec<String> {
    testbed.cluster.look(|view| {
        let found = view.list(kind).into_iter().filter(|object| is_so(object));
        found.filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect()
    })
}
