//! The work that is done for every object and every call, without a network, as scenarios: `micro.rs` measures their time,
//! `instructions.rs` counts their instructions.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alicloud_ccm::alibaba::CloudClient;
use alicloud_ccm::alibaba::transport::{Transport, TransportError};
use alicloud_ccm::cluster;
use alicloud_ccm::config::{self, Config, ConfigSource};
use alicloud_ccm::controllers::registry::CATALOG;
use alicloud_ccm::controllers::workqueue::{self, ObjectReconciler, ReconcileResult};
use alicloud_ccm::plan::inputs::{
    Endpoint, EndpointsView, NodeAddress, NodeView, ObjectKey, ServicePort, ServiceType, ServiceView, TargetPort,
};
use alicloud_ccm::plan::loadbalancer::backends::{BackendRules, Candidates, Inputs, KnownNodes};
use alicloud_ccm::plan::loadbalancer::cloud::Answer;
use alicloud_ccm::plan::loadbalancer::desired::ProductModel as _;
use alicloud_ccm::plan::loadbalancer::ownership::CLUSTER_TAG;
use alicloud_ccm::plan::loadbalancer::settings::{NlbDefaults, ServiceSettings};
use alicloud_ccm::plan::loadbalancer::unready::UnreadyNodes;
use alicloud_ccm::plan::route::entry::RouteEntry;
use alicloud_ccm::plan::route::{RouteMemory, RouteNode, RouteRules, TableEntries};
use alicloud_ccm::plan::{clb, nlb, route};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Nodes, and keys, of a scenario.
const NODES: usize = 200;

/// Something to measure, over and over.
pub type Work = Box<dyn FnMut()>;

/// Something to measure, after it is prepared.
pub struct Scenario {
    /// What is done; names are unique.
    pub name: &'static str,
    /// Prepares it.
    pub prepare: fn() -> Work,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them.
pub const SCENARIOS: [Scenario; 16] = [
    Scenario { name: "CLB: desired state, 200 nodes", prepare: || classic(|planned| drop(planned.desire())) },
    Scenario { name: "CLB: diff in sync, 200 backends", prepare: || classic(|planned| drop(planned.diff())) },
    Scenario { name: "CLB: diff of a new one, 200 backends", prepare: || classic(|planned| drop(planned.create())) },
    Scenario {
        name: "NLB: desired state, 200 nodes",
        prepare: || network(|inputs| drop(nlb::desired::Desired::of(inputs))),
    },
    Scenario { name: "NLB: diff of a new one, 200 backends", prepare: || network(create_network) },
    Scenario { name: "Service unchanged, 100 nodes", prepare: || unchanged(100) },
    Scenario { name: "Service unchanged, 1000 nodes", prepare: || unchanged(1000) },
    Scenario { name: "one endpoint moved, 100 nodes", prepare: || endpoint_moved(100) },
    Scenario { name: "one endpoint moved, 1000 nodes", prepare: || endpoint_moved(1000) },
    Scenario { name: "one node more and gone again, 100 nodes", prepare: || node_more(100) },
    Scenario { name: "one node more and gone again, 1000 nodes", prepare: || node_more(1000) },
    Scenario { name: "routes: plan in sync, 200 nodes", prepare: routes },
    Scenario { name: "call: signed, 1 load balancer in the answer", prepare: || call(1) },
    Scenario { name: "call: signed, 100 load balancers in the answer", prepare: || call(100) },
    Scenario { name: "list: 200 nodes into the store", prepare: list },
    Scenario { name: "driver: 200 keys one at a time", prepare: one_at_a_time },
];

fn config() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    let text = r#"
controllers = ["service"]
[cloud]
region = "cn-hangzhou"
vpc_id = "vpc-1"
cluster_id = "bench"
# As fast as it goes.
budget_share = 1.0
[cloud.credentials]
access_key_id = "id"
access_key_secret_file = "secret"
"#;
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    std::fs::set_permissions(folder.path().join("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let origin = ConfigSource { path, ..ConfigSource::default() };
    config::load(&origin, &CATALOG).map(|loaded| loaded.config).map_err(|report| report.to_string()).unwrap()
}

fn settings(config: &Config) -> ServiceSettings {
    ServiceSettings {
        cluster_id: "bench".into(),
        cluster_tag: CLUSTER_TAG.into(),
        cluster_uid: String::new(),
        region: "cn-hangzhou".into(),
        vpc_id: "vpc-1".into(),
        vswitches: Vec::new(),
        place_near_nodes: false,
        resource_group_id: None,
        controllers: Vec::new(),
        service: config.service.clone(),
        nlb: NlbDefaults::default(),
    }
}

fn node(number: usize) -> Arc<NodeView> {
    Arc::new(NodeView {
        name: format!("node-{number}"),
        uid: format!("uid-{number}"),
        provider_id: format!("cn-hangzhou.i-{number}"),
        pod_cidrs: vec![format!("10.1.{number}.0/24")],
        addresses: vec![NodeAddress { kind: "InternalIP".into(), address: format!("10.0.0.{number}") }],
        has_conditions: true,
        ..NodeView::default()
    })
}

fn nodes(count: usize) -> Vec<Arc<NodeView>> {
    (0..count).map(node).collect()
}

fn service() -> ServiceView {
    ServiceView {
        key: ObjectKey::new("default", "web"),
        uid: "5e4dbfc9-c2ae-4642-b033-5607860aef6a".into(),
        service_type: ServiceType::LoadBalancer,
        ports: vec![ServicePort {
            name: "web".into(),
            protocol: "TCP".into(),
            port: 80,
            target_port: TargetPort::Number(8080),
            node_port: 30080,
        }],
        allocate_node_ports: true,
        ..ServiceView::default()
    }
}

/// Nodes that are classified once, as Services with the same rules share them.
#[derive(Debug)]
struct SharedNodes {
    nodes: Vec<Arc<NodeView>>,
    candidates: OnceLock<Arc<Candidates>>,
}

impl KnownNodes for SharedNodes {
    fn candidates(&self, rules: &BackendRules) -> Arc<Candidates> {
        self.candidates.get_or_init(|| Arc::new(Candidates::new(rules.nodes.clone(), &self.nodes))).clone()
    }
}

/// What planning reads of a Service with one port, all nodes behind it.
struct Cluster {
    settings: ServiceSettings,
    service: ServiceView,
    nodes: SharedNodes,
    endpoints: EndpointsView,
}

impl Cluster {
    fn new(count: usize) -> Self {
        let (settings, endpoints) = (settings(&config()), EndpointsView::default());
        let nodes = SharedNodes { nodes: nodes(count), candidates: OnceLock::new() };
        Self { settings, service: service(), nodes, endpoints }
    }

    fn with<R>(&self, run: impl FnOnce(&Inputs<'_>) -> R) -> R {
        run(&Inputs {
            service: &self.service,
            nodes: &self.nodes,
            endpoints: &self.endpoints,
            enis: &BTreeMap::new(),
            vpc_cidrs: &[],
            settings: &self.settings,
            unready: &UnreadyNodes::default(),
            now: Duration::ZERO,
        })
    }
}

/// A classic load balancer that is in sync.
struct Planned {
    cluster: Cluster,
    desired: clb::desired::Desired,
    observed: clb::observed::Observed,
}

type ClbPlan = alicloud_ccm::plan::loadbalancer::steps::Plan<clb::desired::ClbModel>;

impl Planned {
    fn new(cluster: Cluster) -> Self {
        let desired = cluster.with(clb::desired::Desired::of);
        let mut planned = Self { cluster, desired, observed: clb::observed::Observed::default() };
        let plan = planned.create();
        planned.carry_out(plan);
        planned
    }

    fn desire(&self) -> clb::desired::Desired {
        self.cluster.with(|inputs| clb::desired::Desired::of(black_box(inputs)))
    }

    fn diff(&self) -> ClbPlan {
        clb::desired::ClbModel::diff(black_box(&self.desired), black_box(&self.observed))
    }

    fn create(&self) -> ClbPlan {
        clb::desired::ClbModel::diff(black_box(&self.desired), black_box(&clb::observed::Observed::default()))
    }

    fn carry_out(&mut self, plan: ClbPlan) {
        for step in plan.steps {
            let made = Answer { id: Some("id-1".into()), vpc_id: Some(String::new()), ..Answer::default() };
            self.observed.apply(&step.operation, &made);
        }
    }

    /// Desired state, diff, and so many steps.
    fn reconcile(&mut self, steps: usize) {
        self.desired = self.desire();
        let plan = self.diff();
        assert_eq!(plan.steps.len(), steps, "{plan}");
        self.carry_out(plan);
    }
}

fn classic(work: fn(&Planned)) -> Work {
    let planned = Planned::new(Cluster::new(NODES));
    Box::new(move || work(&planned))
}

fn unchanged(nodes: usize) -> Work {
    let mut planned = Planned::new(Cluster::new(nodes));
    Box::new(move || planned.reconcile(0))
}

/// Ten endpoints, of which one is on another node each time; the Service uses only nodes with endpoints.
fn endpoint_moved(nodes: usize) -> Work {
    let endpoint = |number: u8, node: u8| Endpoint {
        address: IpAddr::V4(Ipv4Addr::new(10, 2, 0, number)),
        node: Some(format!("node-{node}").into()),
        pod: None,
        pod_uid: 0,
        hostname: None,
        ready: true,
        serving: true,
        terminating: false,
        ports: [("web".to_owned(), 8080)].into(),
    };
    let mut cluster = Cluster::new(nodes);
    cluster.service.local_traffic = true;
    cluster.endpoints.endpoints = (0..10).map(|number| endpoint(number, number)).collect();
    let mut planned = Planned::new(cluster);
    let mut node = 9;
    Box::new(move || {
        // From node 9 to node 10, and back.
        node = 19 - node;
        planned.cluster.endpoints.endpoints[9] = endpoint(9, node);
        planned.reconcile(2);
    })
}

/// The node is classified, and the load balancer follows; then the same again without the node.
fn node_more(nodes: usize) -> Work {
    let mut planned = Planned::new(Cluster::new(nodes));
    let more = node(nodes);
    Box::new(move || {
        for now in [Some(more.clone()), None] {
            let candidates = planned.cluster.nodes.candidates.get_mut().unwrap();
            candidates.update(&[(&more.name, now)], false);
            planned.reconcile(1);
        }
    })
}

fn network(work: fn(&Inputs<'_>)) -> Work {
    let mut cluster = Cluster::new(NODES);
    let zones = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-zone-maps";
    cluster.service.annotations.insert(zones.to_owned(), "cn-hangzhou-a:vsw-1,cn-hangzhou-b:vsw-2".to_owned());
    Box::new(move || cluster.with(|inputs| work(black_box(inputs))))
}

fn create_network(inputs: &Inputs<'_>) {
    drop(nlb::desired::NlbModel::diff(&nlb::desired::Desired::of(inputs), &nlb::observed::Observed::default()));
}

fn routes() -> Work {
    let nodes: Vec<RouteNode> = nodes(NODES).iter().map(|node| RouteNode::of(node)).collect();
    let rules = RouteRules {
        cluster: route::mark::RouteCluster { id: "bench".to_owned(), uid: String::new() },
        cluster_cidrs: Vec::new(),
        removals: 10,
        now: Duration::ZERO,
        evidence: route::OwnerEvidence::default(),
    };
    let entry = |node: &RouteNode| RouteEntry {
        id: format!("rte-{}", node.name),
        destination: node.cidrs[0],
        next_hops: vec![("Instance".to_owned(), node.instance.clone().unwrap())],
        status: "Available".to_owned(),
        name: route::mark::name("bench", &node.name),
        description: route::mark::description(&rules.cluster, &node.name),
    };
    let tables = vec![TableEntries { id: "vtb-1".to_owned(), entries: nodes.iter().map(entry).collect() }];
    let mut memory = RouteMemory::default();
    Box::new(move || drop(route::plan(black_box(&nodes), &tables, &mut memory, &rules)))
}

/// Time only moves where nothing else is left to do, so that no work waits.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A cloud that has the answer ready.
struct Prepared(Bytes);

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

impl Transport for Prepared {
    fn send(&self, _: Request<Bytes>, _: Duration) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        std::future::ready(Ok(Response::new(self.0.clone()))).boxed()
    }
}

/// One call: parameters, signature, and the answer made into what planning sees.
fn call(count: usize) -> Work {
    let runtime = runtime();
    let mut config = config();
    // Every iteration would otherwise spend the quota of a minute.
    config.cloud.quotas.insert("*".to_owned(), u32::MAX);
    let balancer = |number: usize| {
        json!({
            "LoadBalancerId": format!("lb-{number}"),
            "LoadBalancerName": format!("web-{number}"),
            "Address": "1.2.3.4",
            "AddressType": "internet",
            "AddressIPVersion": "ipv4",
            "LoadBalancerStatus": "active",
            "Tags": {"Tag": [{"TagKey": "k", "TagValue": "v"}]},
        })
    };
    let list: Vec<Value> = (0..count).map(balancer).collect();
    let body = json!({"RequestId": "r", "TotalCount": count, "LoadBalancers": {"LoadBalancer": list}});
    let cloud = CloudClient::new(Arc::new(Prepared(body.to_string().into())), &config.cloud, "cn-hangzhou");
    Box::new(move || drop(runtime.block_on(cloud.clb.find_by_tag("k", "v")).unwrap()))
}

/// A list of nodes as kubelets write them, from the wire into the store.
fn list() -> Work {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = |number: usize| {
        let image = |image: usize| json!({"names": [format!("registry/image-{image}@sha256:0"), format!("registry/image-{image}:v1")], "sizeBytes": 1});
        json!({
            "metadata": {
                "name": format!("node-{number}"), "uid": format!("uid-{number}"), "resourceVersion": "1",
                "labels": {"kubernetes.io/hostname": "a", "kubernetes.io/os": "linux"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:conditions": {"f:type": {}}}}}],
            },
            "spec": {"providerID": format!("cn-hangzhou.i-{number}"), "podCIDR": "10.1.0.0/24"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}],
                "images": (0..50).map(image).collect::<Vec<_>>(),
            },
        })
    };
    let items: Vec<Value> = (0..NODES).map(node).collect();
    let list =
        Bytes::from(json!({"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": items}).to_string());
    let kubernetes = config().kubernetes;
    Box::new(move || {
        runtime.block_on(async {
            let list = list.clone();
            let service = tower::service_fn(move |request: Request<kube::client::Body>| {
                let (watch, list) = (request.uri().query().is_some_and(|query| query.contains("watch=")), list.clone());
                async move {
                    if watch {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, std::io::Error>(Response::new(Full::new(list)))
                }
            });
            let cluster = cluster::Cluster::with_client(kube::Client::new(service, "default"), &kubernetes);
            let nodes = cluster.nodes();
            nodes.store.synced().await;
            black_box(nodes.store.len());
        });
    })
}

/// Reconciles nothing, and stops its driver after the last object.
#[derive(Debug)]
struct Idle {
    stop: CancellationToken,
    left: AtomicUsize,
}

impl Idle {
    fn new() -> Self {
        Self { stop: CancellationToken::new(), left: AtomicUsize::new(NODES) }
    }
}

impl ObjectReconciler for Idle {
    const NAME: &'static str = "service";

    fn concurrency(&self) -> usize {
        30
    }

    fn is_urgent(&self, _: &ObjectKey) -> bool {
        false
    }

    async fn reconcile(&self, _: &ObjectKey) -> ReconcileResult {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.cancel();
        }
        ReconcileResult::Done
    }
}

fn keys() -> impl Iterator<Item = ObjectKey> {
    (0..NODES).map(|number| ObjectKey::new("default", format!("object-{number}")))
}

/// The driver of single objects, with reconciles that do nothing.
fn one_at_a_time() -> Work {
    let runtime = runtime();
    Box::new(move || {
        runtime.block_on(async {
            let idle = Arc::new(Idle::new());
            let (sender, receiver) = mpsc::unbounded_channel();
            sender.send(keys().collect()).unwrap();
            workqueue::drive(idle.clone(), receiver, idle.stop.clone()).await;
        });
    })
}
