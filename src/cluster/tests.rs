//! The whole of it against a simulated API server over loopback, old and new.

pub(crate) mod fake;

use serde_json::json;
use sim::cluster::{Cluster as Server, NodeSpec, Version};
use tokio::time::{Instant, timeout};

use super::*;
use crate::fence::fence;
use crate::plan::inputs::{ObjectKind, ServiceType};

const LONG: Duration = Duration::from_secs(20);

/// A client of the simulated API server, without a network in between.
pub(crate) fn simulated(server: &sim::cluster::Cluster, config: &crate::config::checked::Kubernetes) -> Cluster {
    let server = server.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let server = server.clone();
        async move { server.handle(request).await }
    });
    Cluster::with_client(kube::Client::new(service, "default"), config)
}

/// A server, and a connection to it by a kubeconfig.
async fn connected(version: Version) -> (Server, Cluster, tempfile::TempDir) {
    let server = Server::new(version);
    server.listen().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig()).unwrap();
    let cluster =
        Cluster::connect(&Kubernetes { kubeconfig: Some(file), ..fake::config() }, &Tasks::default()).await.unwrap();
    timeout(LONG, cluster.wait_ready()).await.unwrap();
    (server, cluster, folder)
}

/// Waits until the store holds what `holds` looks for.
async fn until<V: StoredView>(watched: &Watched<V>, mut holds: impl FnMut(&Store<V>) -> bool) {
    let mut dirty = watched.store.subscribe();
    timeout(LONG, async {
        while !holds(&watched.store) {
            dirty.next().await;
        }
    })
    .await
    .expect("the store gets there");
}

#[tokio::test]
async fn every_version_is_read_written_and_reported_to() {
    for version in Version::ALL {
        let (server, cluster, _folder) = connected(version).await;
        server.join_node(&NodeSpec::new("n1").provider_id("cn-hangzhou.i-1")).unwrap();
        server
            .create(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" },
                "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] }
            }))
            .unwrap();
        let (nodes, services, endpoints) = (cluster.nodes(), cluster.services(), cluster.endpoints());
        let (node, web) = (ObjectKey::cluster("n1"), ObjectKey::new("default", "web"));
        until(&nodes, |store| store.get(&node).is_some()).await;
        until(&services, |store| store.get(&web).is_some()).await;
        timeout(LONG, endpoints.store.synced()).await.unwrap();
        assert!(cluster.status().ready(), "{version:?} {}", cluster.status());

        let (keeper, fence) = fence();
        keeper.lead_unbounded();
        let permit = fence.permit(Duration::ZERO).unwrap();
        let service = cluster.read_service(&web).await.unwrap().unwrap();
        assert_eq!(service.service_type, ServiceType::LoadBalancer);
        let finalizers = vec!["service.k8s.alibaba/resources".to_owned()];
        let body = json!({ "metadata": { "resourceVersion": service.resource_version, "finalizers": finalizers } });
        let (kind, format) = (ObjectKind::Service, PatchFormat::Merge);
        let replace = Patch { kind, key: &web, subresource: None, format, body: &body };
        cluster.patch(&permit, replace).await.unwrap();
        until(&services, |store| store.get(&web).is_some_and(|web| web.finalizers == finalizers)).await;
        let stale = cluster.patch(&permit, replace).await;
        assert!(matches!(stale, Err(WriteFault::Conflict(_))), "{version:?} {stale:?}");

        let status = json!({ "status": { "conditions": [{ "type": "NetworkUnavailable", "status": "False" }] } });
        let change = Patch {
            kind: ObjectKind::Node,
            key: &node,
            subresource: Some("status"),
            format: PatchFormat::Strategic,
            body: &status,
        };
        cluster.patch(&permit, change).await.unwrap();
        until(&nodes, |store| store.get(&node).is_some_and(|node| node.network_unavailable.is_some())).await;

        let view = nodes.store.get(&node).unwrap();
        let regarding = Regarding { kind: "Node", key: node.clone(), uid: view.uid.clone() };
        for _ in 0..2 {
            cluster.events().normal("node-controller", &regarding, "InitializedNode", "done".into());
        }
        cluster.flush_events(LONG).await;
        let events = server.list("Event");
        assert_eq!((events.len(), &events[0]["count"]), (1, &json!(2)), "{version:?} {events:?}");

        let other = cluster.delete_node(&permit, "n1", "another-uid").await;
        assert!(matches!(other, Err(WriteFault::Conflict(_))), "{version:?} {other:?}");
        cluster.delete_node(&permit, "n1", &view.uid).await.unwrap();
        until(&nodes, |store| store.get(&node).is_none()).await;
        assert!(cluster.read_node("n1").await.unwrap().is_none());
        let gone = cluster.delete_node(&permit, "n1", &view.uid).await;
        assert!(matches!(gone, Err(WriteFault::Gone)), "{version:?} {gone:?}");
    }
}

#[tokio::test]
async fn what_happens_while_the_server_is_away_or_forgets_is_seen_afterwards() {
    let (server, cluster, _folder) = connected(Version::NEWEST).await;
    for name in ["n1", "n2"] {
        server.join_node(&NodeSpec::new(name)).unwrap();
    }
    let nodes = cluster.nodes();
    until(&nodes, |store| store.all().len() == 2).await;
    for refuse in [false, true] {
        server.refuse_gone_watches(refuse);
        server.go_away().await;
        server.delete("Node", "", if refuse { "n2" } else { "n1" }).unwrap();
        server.join_node(&NodeSpec::new(if refuse { "n4" } else { "n3" })).unwrap();
        server.compact();
        server.come_back().await.unwrap();
        let expected = if refuse { ["n3", "n4"] } else { ["n2", "n3"] };
        until(&nodes, |store| {
            let mut names: Vec<_> = store.all().iter().map(|node| node.name.clone()).collect();
            names.sort();
            names == expected
        })
        .await;
    }
    let start = Instant::now();
    while !cluster.status().ready() {
        assert!(start.elapsed() < LONG, "{}", cluster.status());
        tokio::task::yield_now().await;
    }
}
