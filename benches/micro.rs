//! The work that is done for every object and every call, without a network.
//!
//! ```console
//! cargo bench -p benches
//! ```

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use alicloud_ccm::alibaba::CloudClient;
use alicloud_ccm::alibaba::transport::{Transport, TransportError};
use alicloud_ccm::cluster::Cluster;
use alicloud_ccm::config::{self, Config, Origin};
use alicloud_ccm::controllers::registry::CATALOG;
use alicloud_ccm::plan::clb::apply::CreationAnswer;
use alicloud_ccm::plan::clb::desire::desire;
use alicloud_ccm::plan::clb::diff::diff;
use alicloud_ccm::plan::clb::observed::Observed;
use alicloud_ccm::plan::inputs::{
    EndpointsView, NodeAddress, NodeView, ObjectKey, ServicePort, ServiceType, ServiceView, TargetPort,
};
use alicloud_ccm::plan::service::model::Inputs;
use alicloud_ccm::plan::service::ownership::CLUSTER_TAG;
use alicloud_ccm::plan::service::settings::{NetworkLoadBalancerDefaults, ServiceSettings};
use alicloud_ccm::plan::service::unready::UnreadyNodes;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};

const NODES: usize = 200;

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
    let origin = Origin { path, environment: BTreeMap::new(), overrides: Vec::new() };
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
        nlb: NetworkLoadBalancerDefaults::default(),
    }
}

fn nodes(count: usize) -> Vec<Arc<NodeView>> {
    let node = |number: usize| NodeView {
        name: format!("node-{number}"),
        uid: format!("uid-{number}"),
        provider_id: format!("cn-hangzhou.i-{number}"),
        addresses: vec![NodeAddress {
            kind: "InternalIP".into(),
            address: format!("10.0.{}.{}", number / 250, number % 250),
        }],
        ..NodeView::default()
    };
    (0..count).map(|number| Arc::new(node(number))).collect()
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

/// What a Service wants on 200 nodes, and the comparison with what is there already.
fn planning(criterion: &mut Criterion) {
    let settings = settings(&config());
    let (service, nodes, endpoints, enis) = (service(), nodes(NODES), EndpointsView::default(), BTreeMap::new());
    let inputs = Inputs {
        service: &service,
        nodes: &nodes,
        endpoints: &endpoints,
        enis: &enis,
        vpc_cidrs: &[],
        settings: &settings,
        unready: &UnreadyNodes::default(),
        now: Duration::ZERO,
    };
    let desired = desire(&inputs);
    let mut observed = Observed::default();
    for step in diff(&desired, &observed).steps {
        let made = CreationAnswer { id: Some("id-1".into()), vpc_id: Some(String::new()), ..CreationAnswer::default() };
        observed.apply(&step.operation, &made);
    }
    criterion.bench_function("desire, 200 nodes", |bencher| bencher.iter(|| desire(black_box(&inputs))));
    criterion.bench_function("diff, all is well, 200 backends", |bencher| {
        bencher.iter(|| diff(black_box(&desired), black_box(&observed)));
    });
    let nothing = Observed::default();
    criterion.bench_function("diff, all is missing, 200 backends", |bencher| {
        bencher.iter(|| diff(black_box(&desired), black_box(&nothing)));
    });
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
fn calls(criterion: &mut Criterion) {
    // No budget between calls: every iteration would otherwise spend the quota of a minute.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut config = config();
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
    for count in [1, 100] {
        let list: Vec<Value> = (0..count).map(balancer).collect();
        let body = json!({"RequestId": "r", "TotalCount": count, "LoadBalancers": {"LoadBalancer": list}});
        let cloud = CloudClient::new(Arc::new(Prepared(body.to_string().into())), &config.cloud, "cn-hangzhou");
        criterion.bench_function(&format!("signed call, {count} load balancers in the answer"), |bencher| {
            bencher.iter(|| runtime.block_on(cloud.slb.find_by_tag("k", "v")).unwrap());
        });
    }
}

/// A list of nodes as kubelets write them, from the wire into the store.
fn lists(criterion: &mut Criterion) {
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
    criterion.bench_function("list of 200 nodes into the store", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let list = list.clone();
                let service = tower::service_fn(move |request: Request<kube::client::Body>| {
                    let (watch, list) =
                        (request.uri().query().is_some_and(|query| query.contains("watch=")), list.clone());
                    async move {
                        if watch {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, std::io::Error>(Response::new(Full::new(list)))
                    }
                });
                let cluster = Cluster::with_client(kube::Client::new(service, "default"), &kubernetes);
                let nodes = cluster.nodes();
                nodes.store.synced().await;
                nodes.store.len()
            })
        });
    });
}

criterion_group!(benches, planning, calls, lists);
criterion_main!(benches);
