//! The main story on an API server of which only a kubeconfig is known, so that it can be any:
//!
//! - `ALICLOUD_CCM_TEST_KUBECONFIG` names the kubeconfig of a cluster to try it on. It has to be one that nobody needs:
//!   without nodes of Alibaba Cloud, nodes without a provider id, or Services of type LoadBalancer.
//! - `KUBEBUILDER_ASSETS` names a folder with `etcd` and `kube-apiserver`, which are started on loopback. There the program
//!   has exactly the rights that `alicloud-ccm rbac` prints.
//! - Without either, the simulated API server runs in a process of its own.
//!
//! What needs a server that can be killed, or has accounts and schemas, runs on those of `KUBEBUILDER_ASSETS` only. The
//! cloud is simulated in any case.

mod server;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sim::cluster::Version;
use sim::testbed::{REGION, ROUTE_TABLE, Testbed, instance};

use crate::deploy::everything;
use crate::harness::{ALL, Ccm, HASTE, World, address};
use crate::http_server::unverified;
use server::{ApiServer, RealServer, collection};

/// Where the process that serves the simulated API server writes its kubeconfig.
const SERVE: &str = "ALICLOUD_CCM_TEST_SERVE";
/// Begins the name of everything that is made, so that what is left behind by a broken run is recognised.
const PREFIX: &str = "alicloud-ccm-test";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Where the election has its locks.
const LOCKS: [&str; 2] = [LEASES, "/api/v1/namespaces/kube-system/endpoints"];
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Of the Service that this family of tests has.
const GATE: &str = "service.readiness.alibabacloud.com/alicloud-ccm-test-web";
const FINALIZER: &str = "service.k8s.alibaba/resources";
/// The record of the lock on Endpoints.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Both locks, and quick enough for a test.
const ELECTION: &str =
    "resource_lock = \"endpointsleases\"\nlease_duration = \"8s\"\nrenew_deadline = \"4s\"\nretry_period = \"300ms\"\n";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// Initialised and routed. Other taints may stay where nobody but us runs.
fn is_whole(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    !node.is_null()
        && !taints.iter().any(|taint| taint["key"] == UNINITIALIZED)
        && condition(node, "NetworkUnavailable")["status"] == "False"
}

fn routes(testbed: &Testbed) -> usize {
    let ours = |entry: &&sim::cloud::RouteEntry| entry.kind == "Custom";
    testbed.cloud.look(|cloud| cloud.route_tables[ROUTE_TABLE].entries.values().filter(ours).count())
}

/// Serves until whoever started this process is gone.
async fn serve(kubeconfig: PathBuf) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let beside = kubeconfig.with_extension("new");
    std::fs::write(&beside, testbed.cluster.kubeconfig()).unwrap();
    std::fs::rename(beside, kubeconfig).unwrap();
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_story_on_any_api_server() {
    if let Some(kubeconfig) = std::env::var_os(SERVE) {
        return serve(kubeconfig.into()).await;
    }
    let world = World::new(ALL, &format!("{HASTE}\n[leader_election]\nname = \"{PREFIX}\"\n{ELECTION}")).await;
    let real = RealServer::start(world.folder()).await;
    match &real {
        Some(real) => tell(&world, &real.api).await,
        None => tell(&world, &ApiServer::found(world.folder()).await).await,
    }
    if let Some(real) = real {
        assert_eq!(real.forbidden().await, Vec::<String>::new(), "what the program prints is all that it needs");
    }
}

/// Lets the program reach this server.
fn introduce(world: &World, api: &ApiServer) {
    let path = api.kubeconfig.display().to_string();
    world.edit(|text| text.replace("kubeconfig = \"kubeconfig\"", &format!("kubeconfig = {path:?}")));
}

async fn tell(world: &World, api: &ApiServer) {
    let testbed = &world.testbed;
    introduce(world, api);
    api.sweep().await;
    let node = async |name: &str| api.get(&format!("/api/v1/nodes/{name}")).await;
    let service = format!("{PREFIX}-web");
    let exposed = async || api.get(&format!("{SERVICES}/{service}")).await;

    let (mut first, mut second) = (world.start_serving(), world.start_serving());
    let mut nodes = Vec::new();
    for number in 1..=3 {
        testbed.rent(number);
        nodes.push(api.join(number).await);
    }
    for name in &nodes {
        world.until_so(&format!("{name} is initialised and routed"), || async { is_whole(&node(name).await) }).await;
        let labels = node(name).await["metadata"]["labels"].clone();
        assert!(
            labels["topology.kubernetes.io/zone"].as_str().is_some_and(|zone| zone.starts_with(REGION)),
            "{labels}"
        );
    }
    let whole = node(&nodes[0]).await;
    assert!(whole["status"]["addresses"].to_string().contains("192.168.0.1"), "{whole}");
    assert_eq!(routes(testbed), 3);

    api.expose(&service, &nodes[..2]).await;
    world.until_so("the Service has an address", || async { address(&exposed().await).is_some() }).await;
    assert!(exposed().await["metadata"]["finalizers"].to_string().contains(FINALIZER));
    let backends = || testbed.cloud.snapshot()["load_balancers"].to_string();
    world
        .until("its backends are there", |_| backends().contains(&instance(1)) && backends().contains(&instance(2)))
        .await;
    world
        .until_so("an event tells so", || async {
            let events = api.get("/api/v1/namespaces/default/events").await;
            items(&events).iter().any(|event| {
                event["involvedObject"]["name"] == service.as_str() && event["reason"] == "EnsuredLoadBalancer"
            })
        })
        .await;
    let nothing_to_do = async || world.plan().await == ("Nothing to do.\n".to_owned(), Some(0));
    world.until_so("the plan is empty", nothing_to_do).await;

    // Whoever leads dies, while both the Service and its endpoints change; the other replica takes over.
    if standby(&first).await {
        (first, second) = (second, first);
    }
    assert!(standby(&second).await, "one leads, the other does not: {}", second.log());
    let holder = held(api).await;
    assert!(!first.kill().await.success());
    let ports = json!([
        { "name": "http", "port": 80, "targetPort": 8080 }, { "name": "more", "port": 81, "targetPort": 8080 },
    ]);
    api.patch(&format!("{SERVICES}/{service}"), MERGE, &json!({ "spec": { "ports": ports } })).await;
    api.point(&service, &nodes[1..]).await;
    let listeners = || testbed.cloud.look(|cloud| cloud.load_balancers.values().next().map(|lb| lb.listeners.len()));
    world.until("the new port is there", |_| listeners() == Some(2)).await;
    world
        .until("the new backend is there", |_| backends().contains(&instance(3)) && !backends().contains(&instance(1)))
        .await;
    let next = held(api).await;
    assert!(!next.iter().any(|name| name.is_empty() || holder.contains(name)), "{next:?} after {holder:?}");
    world.until_so("the plan is empty again", nothing_to_do).await;

    testbed.cloud.release_instance(&instance(3));
    api.say_ready(&nodes[2], "Unknown").await;
    world
        .until_so("the released node is gone", || async { node(&nodes[2]).await.is_null() && routes(testbed) == 2 })
        .await;

    api.delete(&format!("{SERVICES}/{service}")).await;
    world.until_so("the Service is gone", || async { exposed().await.is_null() }).await;
    assert!(testbed.cloud.look(|cloud| cloud.load_balancers.is_empty()));
    api.forget_endpoints(&service).await;
    // The last node's route stays: that every node is gone is more likely a mistake than true.
    api.delete(&format!("/api/v1/nodes/{}", nodes[1])).await;
    world.until("its route is gone", |testbed| routes(testbed) == 1).await;
    assert!(second.stop().await.success());
    assert_eq!(held(api).await, ["", ""], "given back");
    api.sweep().await;
    assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
}

async fn standby(ccm: &Ccm) -> bool {
    ccm.until_page("/readyz", |status, _| status == 200).await.contains("standby")
}

/// Who holds the two locks.
async fn held(api: &ApiServer) -> [String; 2] {
    let [lease, endpoints] = LOCKS.map(|list| format!("{list}/{PREFIX}"));
    let lease = api.get(&lease).await["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let annotations = api.get(&endpoints).await["metadata"]["annotations"].clone();
    let record: Value = serde_json::from_str(annotations[LEADER].as_str().unwrap()).unwrap();
    [lease, record["holderIdentity"].as_str().unwrap().to_owned()]
}

fn skip(why: &str) {
    let mut error = std::io::stderr();
    writeln!(error, "skipped: {why}").unwrap();
}

/// A world beside a real API server, or nothing where there is none; `server` is more of that section of the configuration.
async fn beside_a_real_one(controllers: &[&str], server: &str) -> Option<(World, RealServer)> {
    let world = World::new(controllers, HASTE).await;
    world.edit(|text| text.replace("port = 0\n", &format!("port = 0\n{server}")));
    let Some(real) = RealServer::start(world.folder()).await else {
        skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver");
        return None;
    };
    introduce(&world, &real.api);
    Some((world, real))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_that_dies_is_waited_for() {
    let Some((world, mut real)) = beside_a_real_one(ALL, "").await else { return };
    let ccm = world.start_serving();
    world.testbed.rent(1);
    let name = real.api.join(1).await;
    let path = format!("/api/v1/nodes/{name}");
    world.until_so("the node is whole", || async { is_whole(&real.api.get(&path).await) }).await;
    let service = format!("{PREFIX}-web");
    real.api.expose(&service, &[name]).await;
    let exposed = format!("{SERVICES}/{service}");
    world.until_so("an address", || async { address(&real.api.get(&exposed).await).is_some() }).await;
    world
        .until("a backend", |testbed| testbed.cloud.snapshot()["load_balancers"].to_string().contains(&instance(1)))
        .await;

    real.kill();
    ccm.until_page("/readyz", |status, _| status == 503).await;
    let calls = world.testbed.cloud.writes().len();
    real.start_again().await;
    let began = Instant::now();
    // What happens from now on is seen without a restart, and nothing else is done.
    world.testbed.rent(2);
    let joined = format!("/api/v1/nodes/{}", real.api.join(2).await);
    world.until_so("a new node is whole", || async { is_whole(&real.api.get(&joined).await) }).await;
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    let done: Vec<_> = world.testbed.cloud.writes()[calls..].iter().map(|call| call.action.clone()).collect();
    assert!(
        done.iter().all(|action| ["CreateRouteEntries", "ModifyNetworkInterfaceAttribute"].contains(&&**action)),
        "{done:?}"
    );
    real.api.delete(&exposed).await;
    world.until_so("the Service is gone", || async { real.api.get(&exposed).await.is_null() }).await;
    ccm.until_page("/readyz", |status, _| status == 200).await;
    assert!(ccm.stop().await.success());
    assert_eq!(real.forbidden().await, Vec::<String>::new());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// Slices that Kubernetes makes, and a gate that its kubelets wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_of_a_pod_on_a_real_api_server_is_opened() {
    let Some((world, real)) = beside_a_real_one(ALL, "").await else { return };
    let Some(_controllers) = real.controllers() else {
        return skip("no kube-controller-manager in KUBEBUILDER_ASSETS");
    };
    world.testbed.rent(1);
    let api = &real.api;
    let node = api.join(1).await;
    world.testbed.cloud.edit(|cloud| {
        cloud.add_interface("eni-101", "i-play-1", "vsw-i", &["192.168.0.101"]);
    });
    let annotations = json!({ "service.beta.kubernetes.io/backend-type": "eni" });
    let selector = json!({ "app": "web" });
    let name = format!("{PREFIX}-web");
    let exposed = format!("{SERVICES}/{name}");
    api.post(
        SERVICES,
        &json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "annotations": annotations },
            "spec": { "type": "LoadBalancer", "selector": selector, "allocateLoadBalancerNodePorts": false,
                      "ports": [{ "port": 80, "targetPort": 8080 }] },
        }),
    )
    .await;
    let pod = format!("{PODS}/{name}");
    api.post(
        PODS,
        &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": selector },
            "spec": { "nodeName": node, "containers": [{ "name": "web", "image": "web" }],
                      "readinessGates": [{ "conditionType": GATE }] },
        }),
    )
    .await;
    let say = async |ready: &str| {
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let conditions = [condition("ContainersReady", "True"), condition("Ready", ready)];
        let ip = "192.168.0.101";
        let status = json!({ "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }], "conditions": conditions });
        api.patch(&format!("{pod}/status"), STRATEGIC, &json!({ "status": status })).await;
    };
    let ccm = world.start();
    world.until_so("an address", || async { address(&api.get(&exposed).await).is_some() }).await;
    say("False").await;
    world.until_so("the gate is open", || async { condition(&api.get(&pod).await, GATE)["status"] == "True" }).await;
    let backend = || world.testbed.cloud.snapshot()["load_balancers"].to_string().contains("eni-101");
    assert!(backend(), "only with the backend behind it");
    say("True").await;
    world.until_so("the plan is empty", || async { world.plan().await.1 == Some(0) }).await;
    assert!(backend());
    api.delete(&format!("{pod}?gracePeriodSeconds=0")).await;
    world.until("the backend is gone", |_| !backend()).await;
    api.delete(&exposed).await;
    world.until_so("the Service is gone", || async { api.get(&exposed).await.is_null() }).await;
    assert!(ccm.stop().await.success());
    assert_eq!(real.forbidden().await, Vec::<String>::new());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// Who may read the metrics is what the roles of a real server say.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_shown_to_a_real_api_server() {
    let Some((world, real)) = beside_a_real_one(&["node"], "authorization = true\n").await else { return };
    let scraper = real.account("default", "scraper").await;
    let stranger = real.account("default", "stranger").await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper" });
    let subject = json!({ "kind": "ServiceAccount", "name": "scraper", "namespace": "default" });
    for object in [
        json!({ "kind": "ClusterRole", "rules": [{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }] }),
        json!({ "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject] }),
    ] {
        let mut object = object;
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        object["metadata"] = json!({ "name": "scraper" });
        real.api.post(&collection(&object), &object).await;
    }
    let ccm = world.start_serving();
    let ask = async |path: &str, token: &str| unverified(("127.0.0.1", ccm.port()), path, token).await;
    world.until_so("it is ready", async || ask("/readyz", "").await.is_some_and(|(status, _)| status == 200)).await;
    let status = async |path: &str, token: &str| ask(path, token).await.unwrap().0;
    assert_eq!((status("/metrics", &scraper).await, status("/configz", &scraper).await), (200, 403));
    assert_eq!((status("/metrics", &stranger).await, status("/metrics", "nonsense").await), (403, 401));
    assert_eq!((status("/metrics", "").await, status("/livez", "").await), (401, 200));
    let log = ccm.log();
    assert!(!log.contains(&scraper) && !log.contains(&stranger), "a token is in the log");
    assert!(ccm.stop().await.success());
    assert_eq!(real.forbidden().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_takes_every_manifest() {
    let Some((_world, real)) = beside_a_real_one(&[], "").await else { return };
    let mut tried = Vec::new();
    for mut object in everything() {
        let kind = object["kind"].as_str().unwrap().to_owned();
        // OpenShift's own.
        if kind == "SecurityContextConstraints" {
            continue;
        }
        // Dry runs make no namespaces for the next object.
        if kind == "Namespace" {
            real.api.post(&collection(&object), &object).await;
            continue;
        }
        let name = object["metadata"]["name"].clone();
        object["metadata"]["name"] = json!(format!("{PREFIX}-{}", name.as_str().unwrap().replace(':', "-")));
        real.api.post(&format!("{}?dryRun=All&fieldValidation=Strict", collection(&object)), &object).await;
        tried.push(kind);
    }
    assert!(tried.len() > 20, "{tried:?}");
}
