//! What a reconcile costs, in allocations: the same however large the cluster is, where nothing that concerns the Service
//! changed. Counts do not depend on the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allocation_counter::AllocationInfo;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::{Value, json};
use sim::cluster::Version;
use sim::population;
use sim::testbed::{REGION, Testbed, VPC};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alibaba::CloudClient;
use crate::alibaba::transport::{Transport, TransportError};
use crate::cluster::tests::simulated;
use crate::config::{Config, ConfigSource, load};
use crate::controllers::loadbalancer::clb::ClbProduct;
use crate::controllers::loadbalancer::engine::Engine;
use crate::controllers::loadbalancer::orphans::Vanished;
use crate::controllers::loadbalancer::state::States;
use crate::controllers::loadbalancer::{Views, preparer};
use crate::controllers::workqueue::{ObjectReconciler, ReconcileResult};
use crate::controllers::{Context, registry};
use crate::fence::{Keeper, fence};
use crate::plan::inputs::ObjectKey;
use crate::plan::location::CloudLocation;
use crate::telemetry::alarms::Alarms;

/// A cloud whose own work can be left out of what is counted.
struct Cloud {
    simulated: sim::cloud::Cloud,
    /// Whether every call is answered with this, at once.
    is_prepared: AtomicBool,
    calls: std::sync::atomic::AtomicUsize,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cloud")
    }
}

impl Transport for Cloud {
    fn send(&self, request: Request<Bytes>, _: Duration) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        if self.is_prepared.load(Ordering::Relaxed) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let answer = Bytes::from_static(br#"{"RequestId": "r"}"#);
            return std::future::ready(Ok(Response::new(answer))).boxed();
        }
        let answer = self.simulated.handle_whole(request);
        answer.map(|answer| answer.map_err(|lost| TransportError::Lost(lost.to_string()))).boxed()
    }
}

/// How large a cluster is.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    services: usize,
    /// Of the first Service.
    endpoints: usize,
}

/// A cluster whose Services are in sync.
struct World {
    testbed: Testbed,
    cloud: Arc<Cloud>,
    views: Views,
    engine: Engine<ClbProduct>,
    _kept: (Keeper, watch::Sender<Arc<Config>>),
}

impl World {
    async fn new(size: Size, local: bool) -> Self {
        let testbed =
            Testbed::with(Version::NEWEST, population::account(size.nodes + size.services + 10)).await.unwrap();
        for number in 0..size.nodes {
            population::rent(&testbed, number);
            population::stand(&testbed, number).unwrap();
        }
        for number in 0..size.services {
            population::expose(&testbed, &key(number).name, local).unwrap();
        }
        let all: Vec<usize> = (0..size.endpoints).collect();
        population::endpoints(&testbed, &key(0).name, &all).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = testbed.write_config(folder.path(), &["service"], "").unwrap();
        let origin = ConfigSource { path, ..ConfigSource::default() };
        let mut config = load(&origin, &registry::CATALOG).unwrap().config;
        config.cloud.quotas.insert("*".to_owned(), u32::MAX);
        let cloud = Arc::new(Cloud {
            simulated: testbed.cloud.clone(),
            is_prepared: AtomicBool::new(false),
            calls: std::sync::atomic::AtomicUsize::new(0),
        });
        let (keeper, fence) = fence();
        keeper.lead_unbounded();
        let cluster = simulated(&testbed.cluster, &config.kubernetes);
        let client = CloudClient::new(cloud.clone(), &config.cloud, REGION);
        let location = CloudLocation { region: REGION.to_owned(), vpc_id: VPC.to_owned(), ..CloudLocation::default() };
        let (sender, config) = watch::channel(Arc::new(config));
        let context = Context {
            cluster: cluster.clone(),
            cloud: client.clone(),
            fence,
            location: Arc::new(location),
            config,
            alarms: Alarms::default(),
            stop: CancellationToken::new(),
        };
        cluster.wait_ready().await;
        let views = Views::of(&cluster);
        views.synced(&cluster).await;
        let states = States::new("service", Alarms::default(), Vanished::default());
        let product = ClbProduct::new(&client, context.location.clone());
        let connections = (cluster, client, context.location.clone());
        let preparer = preparer(product, connections, views.clone(), states);
        let engine = Engine::new(context, preparer);
        let world = Self { testbed, cloud, views, engine, _kept: (keeper, sender) };
        for number in 0..size.services {
            world.engine.reconcile(&key(number)).await;
        }
        let is_ready = |number: usize| {
            let service = world.views.services.store.get(&key(number)).unwrap();
            !service.ingress.is_empty() && service.ready.0.as_ref().is_some_and(|ready| ready.is_true)
        };
        until("all Services are in sync", || (0..size.services).all(is_ready)).await;
        for number in 0..size.services {
            world.engine.reconcile(&key(number)).await;
        }
        world.engine.concerned_by_nodes();
        world.cloud.is_prepared.store(true, Ordering::Relaxed);
        world
    }

    /// What the next reconcile of this Service costs, and how many calls it makes; nothing in it waits.
    async fn reconcile(&self, key: &ObjectKey) -> (AllocationInfo, usize) {
        // A task that has done much in one turn waits, even where there is nothing to wait for.
        tokio::task::yield_now().await;
        let before = self.cloud.calls.load(Ordering::Relaxed);
        let mut result = None;
        let cost = allocation_counter::measure(|| result = self.engine.reconcile(key).now_or_never());
        assert!(matches!(result, Some(ReconcileResult::Done | ReconcileResult::RequeueAfter(_))), "{result:?}");
        (cost, self.cloud.calls.load(Ordering::Relaxed) - before)
    }

    /// What it takes to know which Services a change of nodes concerns, and which.
    fn concerned(&self) -> (AllocationInfo, Vec<ObjectKey>) {
        let mut concerned = Vec::new();
        let cost = allocation_counter::measure(|| concerned = self.engine.concerned_by_nodes());
        (cost, concerned)
    }

    /// Changes a node, and waits until that is seen.
    async fn patch_node(&self, number: usize, patch: &Value) {
        let node = || self.views.nodes.store.get(&ObjectKey::cluster(population::node(number))).unwrap();
        let patched = self.testbed.cluster.patch("Node", "", &population::node(number), patch).unwrap();
        let version = patched["metadata"]["resourceVersion"].as_str().unwrap();
        until("the change is seen", || node().resource_version == version).await;
    }
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::new("default", format!("web-{number:04}"))
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "not in time: {what}");
}

const SMALL: Size = Size { nodes: 10, services: 1, endpoints: 1 };

/// The same allocations, but for 1 %: a table may need more room, and numbers in texts may be longer.
fn assert_same(large: &AllocationInfo, small: &AllocationInfo, size: &str) {
    let pairs = [(large.count_total, small.count_total), (large.bytes_total, small.bytes_total)];
    for (large, small) in pairs {
        assert!(large <= small + small / 100, "{large} allocations or bytes, not {small}: {size}");
    }
}

#[tokio::test]
async fn an_unchanged_service_costs_the_same_however_many_nodes_services_and_endpoints_there_are() {
    let unchanged = async |size: Size| {
        let world = World::new(size, false).await;
        // What is done only once in a while, such as to make room in a table, is not counted.
        let mut costs = Vec::new();
        for _ in 0..3 {
            let (cost, calls) = world.reconcile(&key(0)).await;
            assert_eq!(calls, 0);
            costs.push(cost);
        }
        costs.into_iter().min_by_key(|cost| cost.count_total).unwrap()
    };
    let small = unchanged(SMALL).await;
    for size in [Size { nodes: 1000, ..SMALL }, Size { services: 100, ..SMALL }, Size { endpoints: 1000, ..SMALL }] {
        let large = unchanged(size).await;
        let Size { nodes, services, endpoints } = size;
        assert_same(&large, &small, &format!("{nodes} nodes, {services} Services, {endpoints} endpoints"));
    }
}

#[tokio::test]
async fn an_endpoint_that_moves_costs_the_same_however_many_services_and_nodes_there_are() {
    let moved = async |size: Size, local: bool| {
        let world = World::new(size, local).await;
        let mut cost = None;
        // What is done only once in a process is not counted.
        for node in [1, 2] {
            population::endpoints(&world.testbed, &key(0).name, &[node]).unwrap();
            let is_seen = || {
                let endpoints = world.views.endpoints.store.get(&key(0)).unwrap();
                endpoints.endpoints[0].node.as_deref() == Some(&*population::node(node))
            };
            until("the endpoint is seen", is_seen).await;
            cost = Some(world.reconcile(&key(0)).await);
        }
        cost.unwrap()
    };
    for (local, calls) in [(true, 2), (false, 0)] {
        let small = moved(SMALL, local).await;
        for size in [Size { services: 100, ..SMALL }, Size { nodes: 1000, ..SMALL }] {
            let large = moved(size, local).await;
            let Size { nodes, services, .. } = size;
            assert_eq!((small.1, large.1), (calls, calls), "one to add it, one to remove the old one");
            assert_same(&large.0, &small.0, &format!("{nodes} nodes, {services} Services, local: {local}"));
        }
    }
}

#[tokio::test]
async fn a_node_more_costs_no_more_for_each_call_when_there_are_more_services() {
    let joined = async |services: usize| {
        let world = World::new(Size { services, ..SMALL }, false).await;
        population::rent(&world.testbed, SMALL.nodes);
        population::stand(&world.testbed, SMALL.nodes).unwrap();
        until("the node is seen", || world.views.nodes.store.len() == SMALL.nodes + 1).await;
        let (cost, concerned) = world.concerned();
        assert_eq!(concerned.len(), services);
        let mut bytes = cost.bytes_total;
        for key in &concerned {
            let (cost, calls) = world.reconcile(key).await;
            assert_eq!(calls, 1);
            bytes += cost.bytes_total;
        }
        bytes / services as u64
    };
    let (few, many) = (joined(50).await, joined(100).await);
    assert!(many <= few + few / 50, "{few} bytes for each call with 50 Services, {many} with 100");
}

#[tokio::test]
async fn what_decides_nothing_about_a_node_costs_the_same_however_many_nodes_and_services_there_are() {
    let seen = async |size: Size| {
        let world = World::new(size, false).await;
        let patches = [
            json!({"metadata": {"annotations": {"mood": "good"}}}),
            json!({"metadata": {"labels": {"mood": "good"}}}),
            json!({"spec": {"unschedulable": true}}),
        ];
        let mut costs = Vec::new();
        for patch in &patches {
            world.patch_node(3, patch).await;
            let (cost, concerned) = world.concerned();
            assert_eq!(concerned, [], "{patch}");
            costs.push((cost.count_total, cost.bytes_total));
        }
        costs
    };
    let small = seen(SMALL).await;
    assert_eq!(seen(Size { nodes: 1000, ..SMALL }).await, small);
    assert_eq!(seen(Size { services: 100, ..SMALL }).await, small);
}
