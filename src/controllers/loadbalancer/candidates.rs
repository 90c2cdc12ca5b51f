//! The candidates that Services with the same rules share, and which Services a change of nodes concerns.
//!
//! A node is classified once for each set of rules when it changes, not once for each Service. A change after which it is the same
//! candidate, such as another label, concerns no Service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::Views;
use crate::cluster::{DirtyKeys, Store};
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::plan::loadbalancer::backends::{BackendMode, BackendRules, Candidates, KnownNodes, NodeRules};

/// The candidates under all rules that Services of one product have.
#[derive(Debug)]
pub(super) struct CandidatePool {
    views: Views,
    kept: Mutex<KeptCandidates>,
}

#[derive(Debug)]
struct KeptCandidates {
    dirty: DirtyKeys,
    by_rules: BTreeMap<NodeRules, SharedCandidates>,
}

/// The candidates under the same rules.
#[derive(Debug)]
struct SharedCandidates {
    candidates: Arc<Candidates>,
    /// The Services that were planned with them, and how they find their backends.
    services: BTreeMap<ObjectKey, BackendMode>,
    /// Nodes that became other candidates and whose Services were not asked for since.
    changed: BTreeSet<Arc<str>>,
    /// Whether all Services are concerned.
    concerns_all: bool,
}

impl CandidatePool {
    pub(super) fn new(views: Views) -> Self {
        let kept = KeptCandidates { dirty: views.nodes.store.subscribe(), by_rules: BTreeMap::new() };
        Self { views, kept: Mutex::new(kept) }
    }

    /// The nodes for one reconcile of a Service.
    pub(super) fn for_service(self: &Arc<Self>, key: &ObjectKey) -> ServiceNodes {
        ServiceNodes { pool: self.clone(), key: key.clone(), candidates: OnceLock::new() }
    }

    /// The Service has no backends any more.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.kept.lock().forget(key);
    }

    /// The Services whose candidates a node has changed since the last call. A Service is among them if it uses every node, has
    /// a pod on that node, or has no load balancer yet, as `is_made` says.
    pub(super) fn concerned(&self, is_made: impl Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let mut kept = self.kept.lock();
        kept.update(&self.views.nodes.store);
        let mut concerned = Vec::new();
        for shared in kept.by_rules.values_mut() {
            let (changed, all) = (std::mem::take(&mut shared.changed), std::mem::take(&mut shared.concerns_all));
            if !changed.is_empty() || all {
                let is_concerned = |(key, mode): &(&ObjectKey, &BackendMode)| {
                    all || **mode == BackendMode::Cluster || !is_made(key) || self.has_pod_on(key, &changed)
                };
                concerned.extend(shared.services.iter().filter(is_concerned).map(|(key, _)| key.clone()));
            }
        }
        concerned
    }

    fn has_pod_on(&self, key: &ObjectKey, nodes: &BTreeSet<Arc<str>>) -> bool {
        let endpoints = self.views.endpoints.store.get(key);
        let mut all = endpoints.iter().flat_map(|it| &it.endpoints);
        all.any(|endpoint| endpoint.node.as_ref().is_some_and(|node| nodes.contains(node)))
    }

    fn candidates(&self, key: &ObjectKey, rules: &BackendRules) -> Arc<Candidates> {
        let mut kept = self.kept.lock();
        let store = &self.views.nodes.store;
        kept.update(store);
        if let Some(shared) = kept.by_rules.get(&rules.nodes)
            && shared.services.get(key) == Some(&rules.mode)
        {
            return shared.candidates.clone();
        }
        kept.forget(key);
        let shared = kept.by_rules.entry(rules.nodes.clone()).or_insert_with(|| {
            let mut candidates = Arc::new(Candidates::new(rules.nodes.clone(), &store.all()));
            candidates.update(&[], lacks_nodes(store, &rules.nodes));
            let (services, changed) = (BTreeMap::new(), BTreeSet::new());
            SharedCandidates { candidates, services, changed, concerns_all: false }
        });
        shared.services.insert(key.clone(), rules.mode);
        shared.candidates.clone()
    }
}

/// Pods that are backends themselves do not depend on a node that cannot be decoded.
fn lacks_nodes(store: &Store<NodeView>, rules: &NodeRules) -> bool {
    store.is_empty() || !rules.pods_only && !store.skipped().is_empty()
}

impl KeptCandidates {
    /// Classifies the nodes that changed.
    fn update(&mut self, store: &Store<NodeView>) {
        let dirty = self.dirty.take();
        if dirty.is_empty() {
            return;
        }
        let nodes: Vec<_> = dirty.iter().map(|key| (&*key.name, store.get(key))).collect();
        for (rules, shared) in &mut self.by_rules {
            let now = shared.candidates.update(&nodes, lacks_nodes(store, rules));
            shared.changed.extend(now.names);
            shared.concerns_all |= now.concerns_all;
        }
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.by_rules.retain(|_, shared| shared.services.remove(key).is_none() || !shared.services.is_empty());
    }
}

/// The nodes as one reconcile of a Service sees them: from the first look to its end the same.
#[derive(Debug)]
pub(super) struct ServiceNodes {
    pool: Arc<CandidatePool>,
    key: ObjectKey,
    candidates: OnceLock<Arc<Candidates>>,
}

impl KnownNodes for ServiceNodes {
    fn candidates(&self, rules: &BackendRules) -> Arc<Candidates> {
        self.candidates.get_or_init(|| self.pool.candidates(&self.key, rules)).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use serde_json::json;
    use sim::cluster::{Endpoint, NodeSpec, Version};

    use super::*;
    use crate::cluster::tests::simulated;
    use crate::plan::loadbalancer::backends::AddressFamily;

    fn rules(mode: BackendMode, labels: &[(&str, &str)]) -> BackendRules {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let nodes = NodeRules { labels, pods_only: mode == BackendMode::Eni, ..NodeRules::default() };
        let (family, default_weight) = (AddressFamily::V4, 100);
        BackendRules { mode, family, graceful: false, handmade: false, total_weight: None, default_weight, nodes }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    /// A cluster with so many nodes, and the stores that are filled from it.
    async fn cluster(nodes: usize) -> (sim::cluster::Cluster, crate::cluster::Cluster, Views) {
        let server = sim::cluster::Cluster::new(Version::NEWEST);
        for number in 1..=nodes {
            let node = NodeSpec::new(&format!("n{number}")).provider_id(&format!("cn-hangzhou.i-{number}"));
            server.join_node(&node).unwrap();
        }
        let cluster = simulated(&server, &crate::cluster::tests::fake::config());
        cluster.wait_ready().await;
        let views = Views::of(&cluster);
        views.synced(&cluster).await;
        (server, cluster, views)
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(60), async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "not in time: {what}");
    }

    #[tokio::test]
    async fn services_with_the_same_rules_share_candidates_however_many_they_are() {
        let (server, _cluster, views) = cluster(3).await;
        let pool = CandidatePool::new(views.clone());
        let any = rules(BackendMode::Cluster, &[]);
        let look = |services: usize| -> Vec<Arc<Candidates>> {
            (0..services).map(|number| pool.candidates(&key(&number.to_string()), &any)).collect()
        };
        let seen = look(1000);
        assert!(seen.iter().all(|it| Arc::ptr_eq(it, &seen[0])), "three nodes were classified, not 3000");
        server.join_node(&NodeSpec::new("n4").provider_id("cn-hangzhou.i-4")).unwrap();
        until("the node is seen", || views.nodes.store.len() == 4).await;
        let now = look(2000);
        assert!(now.iter().all(|it| Arc::ptr_eq(it, &now[0])) && !Arc::ptr_eq(&now[0], &seen[0]));
        assert_eq!(pool.concerned(|_| true).len(), 2000, "each once");
        assert_eq!(pool.concerned(|_| true), []);
    }

    #[tokio::test]
    async fn a_change_of_a_node_concerns_the_services_that_use_it() {
        let (server, _cluster, views) = cluster(2).await;
        for (name, node) in [("local", "n1"), ("elsewhere", "n2"), ("pods", "n1")] {
            let metadata = json!({"name": name, "namespace": "default"});
            let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": name}});
            server.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).unwrap();
            let endpoint = Endpoint::ready(Ipv4Addr::new(10, 0, 0, 1).into(), node);
            server.set_endpoints("default", name, &[endpoint]).unwrap();
        }
        let has_endpoints = |name: &str| views.endpoints.store.get(&key(name)).is_some();
        until("endpoints are seen", || ["local", "elsewhere", "pods"].into_iter().all(has_endpoints)).await;
        let pool = CandidatePool::new(views.clone());
        pool.candidates(&key("all"), &rules(BackendMode::Cluster, &[]));
        pool.candidates(&key("blue"), &rules(BackendMode::Cluster, &[("color", "blue")]));
        pool.candidates(&key("local"), &rules(BackendMode::Local, &[]));
        pool.candidates(&key("elsewhere"), &rules(BackendMode::Local, &[]));
        pool.candidates(&key("pods"), &rules(BackendMode::Eni, &[]));
        pool.candidates(&key("gone"), &rules(BackendMode::Cluster, &[]));
        pool.forget(&key("gone"));
        let label = async |label: &str| {
            server.patch("Node", "", "n1", &json!({"metadata": {"labels": {label: "blue"}}})).unwrap();
            let node = || views.nodes.store.get(&ObjectKey::cluster("n1"));
            until("the label is seen", || node().is_some_and(|it| it.labels.contains_key(label))).await;
        };
        label("mood").await;
        assert_eq!(pool.concerned(|_| true), [], "no rule looks at it");
        label("color").await;
        assert_eq!(pool.concerned(|_| true), [key("blue")]);
        let status = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        server.patch_status("Node", "", "n1", &status).unwrap();
        let is_unready = || {
            views.nodes.store.get(&ObjectKey::cluster("n1")).is_some_and(|it| {
                it.ready.as_ref().is_some_and(|ready| ready.status == crate::plan::inputs::ConditionStatus::False)
            })
        };
        until("it is unready", is_unready).await;
        let mut concerned = pool.concerned(|key| *key.name != *"elsewhere");
        concerned.sort();
        let expected = ["all", "blue", "elsewhere", "local", "pods"].map(key);
        assert_eq!(concerned, expected, "elsewhere has no load balancer yet, which may be placed by it");
        // The rules of a Service changed.
        pool.candidates(&key("blue"), &rules(BackendMode::Local, &[]));
        assert_eq!(pool.kept.lock().by_rules.len(), 2);
    }
}
