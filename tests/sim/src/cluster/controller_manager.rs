//! The part of kube-controller-manager that a cloud controller depends on: conditions of Nodes become taints.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::clock::rfc3339;
use super::object::{self, items, text};
use super::storage::Key;
use super::version::Feature;
use super::writes;
use super::{Cluster, resource};

/// Condition, its status, the taint it means, and whether Pods that run are evicted as well.
const TAINTS: &[(&str, &str, &str, bool)] = &[
    ("Ready", "False", "node.kubernetes.io/not-ready", true),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", true),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable", false),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure", false),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure", false),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure", false),
];

/// A running controller manager; dropping it stops it.
#[derive(Debug)]
#[must_use = "the controller manager stops when this is dropped"]
pub struct ControllerManager {
    task: JoinHandle<()>,
}

impl Drop for ControllerManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cluster {
    /// Starts to mirror conditions of Nodes into taints, in the background. Versions before taints by condition do nothing.
    pub fn start_controller_manager(&self) -> ControllerManager {
        let cluster = self.clone();
        ControllerManager { task: tokio::spawn(async move { cluster.mirror_conditions().await }) }
    }

    async fn mirror_conditions(&self) {
        if !self.version().has(Feature::TaintByCondition) {
            return;
        }
        let mut changes = self.shared.store.lock().subscribe();
        let mut seen = None;
        loop {
            changes.latest();
            seen = Some(self.mirror_since(seen));
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Looks at the nodes that changed since a version, or at all; gives the version that it has looked at.
    fn mirror_since(&self, seen: Option<u64>) -> u64 {
        let nodes = resource("Node");
        let now = self.shared.clock.now();
        let mut store = self.shared.store.lock();
        let version = store.version();
        let changed = seen.and_then(|seen| store.after(seen).ok()).map(|changes| {
            let changed: BTreeSet<&Key> = changes.map(|change| &change.key).collect();
            changed.into_iter().filter_map(|key| store.get(key).map(|node| (key, node))).collect::<Vec<_>>()
        });
        let looked_at = changed.unwrap_or_else(|| store.list(nodes, "").collect());
        let stale: Vec<(String, Value)> = looked_at
            .into_iter()
            .filter(|(key, _)| key.plural == nodes.plural)
            .filter_map(|(key, node)| {
                let taints = wanted_taints(node, &rfc3339(now));
                let mut changed = Value::clone(node);
                object::map(&mut changed, "spec").insert("taints".to_owned(), taints?.into());
                Some((key.name.clone(), changed))
            })
            .collect();
        for (name, node) in stale {
            // The write is made under the same lock as the read, so nothing but deletion rules can refuse it.
            let _ = writes::replace(&mut store, self.target(nodes, "", &name), node);
        }
        version
    }
}

/// The taints a Node should have; nothing if it has them.
fn wanted_taints(node: &Value, now: &str) -> Option<Vec<Value>> {
    let present = items(node, "/spec/taints");
    let mut wanted: Vec<Value> =
        present.iter().filter(|taint| TAINTS.iter().all(|(.., key, _)| text(taint, "/key") != *key)).cloned().collect();
    for (condition, status, key, evicts) in TAINTS {
        let holds = items(node, "/status/conditions")
            .iter()
            .any(|one| text(one, "/type") == *condition && text(one, "/status") == *status);
        if !holds {
            continue;
        }
        for effect in ["NoSchedule", "NoExecute"].into_iter().take(if *evicts { 2 } else { 1 }) {
            let there = present.iter().find(|taint| taint["key"] == *key && taint["effect"] == effect);
            let made = || json!({ "key": key, "effect": effect, "timeAdded": now });
            wanted.push(there.cloned().unwrap_or_else(made));
        }
    }
    let same = wanted.len() == present.len() && wanted.iter().all(|taint| present.contains(taint));
    (!same).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::{NodeSpec, Version, View};

    fn keys(view: &View<'_>) -> Vec<String> {
        let node = view.get("Node", "", "a").unwrap();
        let mut keys: Vec<_> = items(node, "/spec/taints").iter().map(|taint| text(taint, "/key").to_owned()).collect();
        keys.dedup();
        keys
    }

    #[tokio::test]
    async fn conditions_become_taints_and_go_again() {
        let cluster = Cluster::new(Version::NEWEST);
        let _running = cluster.start_controller_manager();
        cluster.join_node(&NodeSpec::new("a")).unwrap();
        let own = "node.cloudprovider.kubernetes.io/uninitialized";
        let within = Duration::from_secs(10);

        let unavailable = json!({ "conditions": [{ "type": "NetworkUnavailable", "status": "True" }] });
        cluster.patch_status("Node", "", "a", &unavailable).unwrap();
        cluster.until(|view| keys(view) == [own, "node.kubernetes.io/network-unavailable"], within).await.unwrap();

        let available = json!({ "conditions": [{ "type": "NetworkUnavailable", "status": "False" }] });
        cluster.patch_status("Node", "", "a", &available).unwrap();
        cluster.set_ready("a", "Unknown").unwrap();
        cluster.until(|view| keys(view) == [own, "node.kubernetes.io/unreachable"], within).await.unwrap();

        cluster.set_ready("a", "True").unwrap();
        cluster.until(|view| keys(view) == [own], within).await.unwrap();
    }
}
