//! What must not happen on the way, looked at each simulated second.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use alicloud_ccm::plan::loadbalancer::annotations::{MANAGE, PREFIX};
use alicloud_ccm::plan::loadbalancer::ownership::default_name;
use serde_json::Value;
use sim::cloud::Account;
use tokio::time::Instant;

use super::life::fields;
use super::{Place, SOON, address};

/// A pod that is gone, or a node port that was freed, gets no traffic after this time.
const GONE: Duration = Duration::from_secs(10);
/// A load balancer is announced, or an event says why not, within this time.
const SILENCE: Duration = Duration::from_secs(60);

/// What was begun before a pod became ready ends within this time.
const JOB: Duration = Duration::from_secs(3);

/// What is seen in one life.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    seen: Option<(usize, u64)>,
    now: BTreeMap<String, Duration>,
    since: BTreeMap<String, Instant>,
    /// Ports of the last backends of server groups.
    filled: BTreeMap<String, BTreeSet<u64>>,
    /// Since when Services have a ready pod.
    ready: BTreeMap<String, Instant>,
    /// Services that had an address, by their uids.
    published: BTreeSet<String>,
    /// When the last fault was possible.
    disturbed: Option<Instant>,
    pub(crate) found: BTreeSet<String>,
}

/// A backend as both products have it.
struct Backend {
    server: String,
    ip: String,
    port: u16,
}

/// A listener that serves, with its server group.
struct Listener {
    mark: String,
    /// The name of the load balancer, by which its Service is known.
    owner: Option<String>,
    port: u16,
    group: String,
    backends: Vec<Backend>,
}

fn listeners(account: &Account) -> Vec<Listener> {
    let mut all = Vec::new();
    for balancer in account.load_balancers.values() {
        for ((port, _), listener) in balancer.listeners.iter().filter(|(_, it)| it.status == "running") {
            let Some(group) = balancer.groups.get(&listener.group) else { continue };
            let backend = |it: &sim::cloud::Backend| Backend {
                server: it.server_id.clone(),
                ip: it.server_ip.clone(),
                port: it.port,
            };
            let backends = group.backends.iter().map(backend).collect();
            let (mark, group) = (listener.description.clone(), listener.group.clone());
            let owner = balancer.tags.get("kubernetes.do.not.delete").cloned();
            all.push(Listener { mark, owner, port: *port, group, backends });
        }
    }
    for balancer in account.nlb.balancers.values() {
        for listener in balancer.listeners.values().filter(|it| it.status == "Running") {
            let Some(group) = account.nlb.groups.get(&listener.group) else { continue };
            let backend =
                |it: &sim::cloud::GroupServer| Backend { server: it.id.clone(), ip: it.ip.clone(), port: it.port };
            let backends = group.servers.iter().map(backend).collect();
            let (mark, group) = (listener.description.clone(), listener.group.clone());
            let owner = balancer.tags.get("kubernetes.do.not.delete").cloned();
            all.push(Listener { mark, owner, port: listener.port, group, backends });
        }
    }
    all
}

/// The Service that a mark names, if this cluster wrote it.
fn service_of(mark: &str) -> Option<&str> {
    let parts: Vec<&str> = mark.split(['/', '.']).collect();
    let is_ours = parts.first() == Some(&"k8s") && parts.last() == Some(&sim::testbed::CLUSTER_ID);
    is_ours.then(|| parts[parts.len() - 3])
}

impl Watcher {
    /// Until then things fail, or have failed without a trace.
    pub(crate) fn disturb_until(&mut self, end: Instant) {
        self.disturbed = self.disturbed.max(Some(end));
    }

    pub(crate) fn look(&mut self, place: &Place, is_disturbed: bool) {
        if is_disturbed {
            self.disturb_until(Instant::now());
        }
        let versions = place.versions();
        if self.seen != Some(versions) {
            self.seen = Some(versions);
            self.now = self.wrong(place);
            self.since.retain(|what, _| self.now.contains_key(what));
        }
        if self.lasting().is_empty() {
            return;
        }
        // Jobs of the cloud end without a call.
        self.now = self.wrong(place);
        self.since.retain(|what, _| self.now.contains_key(what));
        let lasting = self.lasting();
        self.found.extend(lasting);
    }

    /// What has been wrong for longer than it may be.
    fn lasting(&mut self) -> Vec<String> {
        let calm = self.disturbed.map(|since| since.elapsed());
        let mut lasting = Vec::new();
        for (what, limit) in &self.now {
            let since = *self.since.entry(what.clone()).or_insert_with(Instant::now);
            // The next attempt after faults comes with the end at the latest.
            let waits = *limit >= GONE && calm.is_some_and(|calm| calm < SOON);
            if since.elapsed() > *limit && !waits {
                lasting.push(format!("{what} for more than {} s", limit.as_secs()));
            }
        }
        lasting
    }

    /// What is wrong now, and how long it may last.
    fn wrong(&mut self, place: &Place) -> BTreeMap<String, Duration> {
        let (cloud, cluster) = (&place.testbed.cloud, &place.testbed.cluster);
        let services = cluster.list("Service");
        let by_name = |name: &str| services.iter().find(|it| it["metadata"]["name"] == name);
        let listeners = cloud.look(listeners);
        let mut wrong = BTreeMap::new();
        for (name, wanted) in fields(&place.wanted["services"]) {
            if has_ready_pod(place, wanted) {
                self.ready.entry(name.clone()).or_insert_with(Instant::now);
            } else {
                self.ready.remove(name);
            }
        }
        for it in &listeners {
            // One of a Service that vanished can have the same name.
            let is_of = |service: &Value| it.owner == service["metadata"]["uid"].as_str().map(default_name);
            let Some(name) = service_of(&it.mark).filter(|name| by_name(name).is_some_and(is_of)) else { continue };
            let wanted = &place.wanted["services"][name];
            if wanted["annotations"][MANAGE.full()] == "none" {
                continue;
            }
            let pods: BTreeSet<String> = fields(&wanted["pods"])
                .map(|(slot, pod)| address(name, pod["node"].as_u64().unwrap_or(1), slot.parse().unwrap()).to_string())
                .collect();
            let numbers = |field: &str| -> BTreeSet<u64> {
                let ports = by_name(name).and_then(|it| it["spec"]["ports"].as_array());
                ports.into_iter().flatten().filter_map(|port| port[field].as_u64()).collect()
            };
            let (targets, nodes) = (numbers("targetPort"), numbers("nodePort"));
            for backend in &it.backends {
                let is_node = backend.ip.parse::<Ipv4Addr>().is_ok_and(|ip| matches!(ip.octets()[2], 0 | 16));
                let leads = if !is_node && (backend.server.starts_with("eni-") || backend.server == backend.ip) {
                    pods.contains(&backend.ip) && targets.contains(&u64::from(backend.port))
                } else {
                    nodes.contains(&u64::from(backend.port))
                };
                if !leads {
                    let (port, Backend { server, ip, port: to }) = (it.port, backend);
                    wrong.insert(
                        format!("{name}: port {port} leads to {server} {ip} port {to}, where it has no pod"),
                        GONE,
                    );
                }
            }
            // Backends at a port that the Service has no longer served nothing.
            let served =
                |ports: &BTreeSet<u64>| ports.iter().any(|port| nodes.contains(port) || targets.contains(port));
            if !it.backends.is_empty() {
                let ports = it.backends.iter().map(|backend| u64::from(backend.port)).collect();
                self.filled.insert(it.group.clone(), ports);
            } else if self.ready.get(name).is_none_or(|since| since.elapsed() < JOB) {
                self.filled.remove(&it.group);
            } else if self.filled.get(&it.group).is_some_and(served) && by_name(name).is_some_and(is_balanced) {
                wrong.insert(format!("{name}: the server group of port {} is empty", it.port), Duration::ZERO);
            }
        }
        let events = cluster.list("Event");
        for service in &services {
            let [name, uid] = ["name", "uid"].map(|field| service["metadata"][field].as_str().unwrap());
            if !is_balanced(service) {
                self.published.remove(uid);
                continue;
            }
            let is_published = service["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|it| !it.is_empty());
            let serves = listeners.iter().any(|it| service_of(&it.mark) == Some(name) && !it.backends.is_empty());
            if is_published {
                self.published.insert(uid.to_owned());
            } else if self.published.contains(uid) && serves {
                wrong.insert(format!("{name}: the address is withdrawn"), Duration::from_secs(1));
            }
            let is_told = || events.iter().any(|it| it["involvedObject"]["name"] == name && it["type"] == "Warning");
            if !is_published && !is_told() {
                wrong.insert(format!("{name}: there is no address, and no event"), SILENCE);
            }
        }
        let mut marks: BTreeMap<String, usize> = BTreeMap::new();
        cloud.look(|account| {
            let classic = account.load_balancers.values().map(|it| ("classic", &it.tags));
            let network = account.nlb.balancers.values().map(|it| ("network", &it.tags));
            for (kind, tags) in classic.chain(network) {
                if let (Some(mark), Some(sim::testbed::CLUSTER_ID)) =
                    (tags.get("kubernetes.do.not.delete"), tags.get("ack.aliyun.com").map(String::as_str))
                {
                    *marks.entry(format!("{kind} {mark}")).or_default() += 1;
                }
            }
        });
        wrong.extend(
            marks
                .iter()
                .filter(|(_, count)| **count > 1)
                .map(|(mark, _)| (format!("{mark}: made twice"), Duration::ZERO)),
        );
        wrong
    }
}

fn is_balanced(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a pod is ready on a node that takes traffic, whatever the annotations say.
fn has_ready_pod(place: &Place, wanted: &Value) -> bool {
    let limited = fields(&wanted["annotations"]).any(|(key, _)| key.strip_prefix(PREFIX) == Some("backend-label"))
        || wanted["allocate"] == false;
    let is_ready = |pod: &Value| pod["state"] == "ready" && place.wanted["nodes"][pod["node"].to_string()] == "ready";
    !limited && fields(&wanted["pods"]).any(|(_, pod)| is_ready(pod))
}
