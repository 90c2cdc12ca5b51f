//! Whether the backends of every Service are there, at every moment of a test on a simulated clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use sim::cloud::{Account, Cloud, GroupServer, Protocol};
use sim::cluster::Cluster;
use sim::testbed::Testbed;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time between two looks. Nothing that the product does to backends is shorter than a call.
const TICK: Duration = Duration::from_millis(100);

/// An instance that is missing from the server group of a listener although a ready endpoint of the Service runs on it.
type Missing = (String, u64, String);

/// Looks on until it is dropped.
#[derive(Debug)]
pub(crate) struct Availability {
    worst: Arc<Mutex<(Duration, String)>>,
    watching: JoinHandle<()>,
}

impl Drop for Availability {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Availability {
    /// Looks at the Services with local traffic: only instances with endpoints are their backends.
    pub(crate) fn watch(testbed: &Testbed) -> Self {
        let worst: Arc<Mutex<(Duration, String)>> = Arc::default();
        let (cloud, cluster, seen) = (testbed.cloud.clone(), testbed.cluster.clone(), worst.clone());
        let watching = tokio::spawn(async move {
            let mut since: BTreeMap<Missing, Instant> = BTreeMap::new();
            let mut looked_at = None;
            loop {
                let version = (*cloud.changes().borrow(), cluster.resource_version());
                if looked_at.as_ref() != Some(&version) {
                    looked_at = Some(version);
                    let missing = missing(&cloud, &cluster);
                    since.retain(|key, _| missing.contains(key));
                    for key in missing {
                        since.entry(key).or_insert_with(Instant::now);
                    }
                }
                for ((service, port, instance), at) in &since {
                    let mut worst = seen.lock();
                    if at.elapsed() > worst.0 {
                        let text = format!("{instance} was missing from port {port} of {service}");
                        *worst = (at.elapsed(), text);
                    }
                }
                tokio::time::sleep(TICK).await;
            }
        });
        Self { worst, watching }
    }

    /// The longest time for which a ready endpoint was not served, and which one.
    pub(crate) fn worst(&self) -> (Duration, String) {
        self.worst.lock().clone()
    }
}

fn missing(cloud: &Cloud, cluster: &Cluster) -> Vec<Missing> {
    let instances: BTreeMap<String, String> = cluster
        .list("Node")
        .iter()
        .filter_map(|node| {
            let (_, instance) = node["spec"]["providerID"].as_str()?.split_once('.')?;
            Some((node["metadata"]["name"].as_str()?.to_owned(), instance.to_owned()))
        })
        .collect();
    cluster.list("Service").iter().flat_map(|service| missing_of(service, &instances, (cloud, cluster))).collect()
}

fn missing_of(
    service: &Value,
    instances: &BTreeMap<String, String>,
    (cloud, cluster): (&Cloud, &Cluster),
) -> Vec<Missing> {
    let (metadata, spec) = (&service["metadata"], &service["spec"]);
    let is_local = spec["externalTrafficPolicy"] == "Local" && spec["type"] == "LoadBalancer";
    let name = metadata["name"].as_str().unwrap_or_default();
    let id = metadata["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str();
    let (Some(id), true, true) = (id, is_local, metadata["deletionTimestamp"].is_null()) else { return Vec::new() };
    let wanted: Vec<&String> = ready_nodes(cluster, name).iter().filter_map(|node| instances.get(node)).collect();
    let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["port"].as_u64());
    let lacks = |port: u64| {
        let port = u16::try_from(port).unwrap_or_default();
        // What is not exposed yet serves nobody.
        let served = cloud.look(|account| served(account, id, port))?;
        Some(wanted.iter().filter(|it| !served.contains(it)).map(|it| (*it).clone()).collect::<Vec<_>>())
    };
    let each = ports.flat_map(|port| lacks(port).unwrap_or_default().into_iter().map(move |it| (port, it)));
    each.map(|(port, instance)| (name.to_owned(), port, instance)).collect()
}

/// Instances that get the traffic of a port, on either kind of load balancer; `None` if it has no listener.
pub(crate) fn served(account: &Account, id: &str, port: u16) -> Option<Vec<String>> {
    if let Some(lb) = account.nlb.balancers.get(id) {
        let listener = lb.listeners.values().find(|it| it.port == port && it.protocol == "TCP")?;
        let servers = account.nlb.groups.get(&listener.group).map(|group| group.servers.clone()).unwrap_or_default();
        let gets_traffic = |it: &GroupServer| matches!(it.shown_status(), "Available" | "Configuring");
        return Some(servers.into_iter().filter(gets_traffic).map(|it| it.id).collect());
    }
    let lb = account.load_balancers.get(id)?;
    let group = lb.groups.get(&lb.listeners.get(&(port, Protocol::Tcp))?.group)?;
    Some(group.backends.iter().map(|it| it.server_id.clone()).collect())
}

/// Nodes with a ready endpoint of this Service.
fn ready_nodes(cluster: &Cluster, service: &str) -> Vec<String> {
    let endpoints = cluster.get("Endpoints", "default", service).unwrap_or_default();
    let subsets = endpoints["subsets"].as_array().cloned().unwrap_or_default();
    let addresses = subsets.iter().filter_map(|subset| subset["addresses"].as_array()).flatten();
    addresses.filter_map(|address| Some(address["nodeName"].as_str()?.to_owned())).collect()
}
