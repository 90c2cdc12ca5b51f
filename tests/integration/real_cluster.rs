//! The main story on an API server of which only a kubeconfig is known, so that it can be any:
//!
//! - `ALICLOUD_CCM_TEST_KUBECONFIG` names the kubeconfig of a cluster to try it on. It has to be one that nobody needs:
//!   without nodes of Alibaba Cloud, nodes without a provider id, or Services of type LoadBalancer.
//! - `KUBEBUILDER_ASSETS` names a folder with `etcd` and `kube-apiserver`, which are started on loopback. There the program
//!   has exactly the rights that `alicloud-ccm rbac` prints.
//! - Without either, the simulated API server runs in a process of its own.
//!
//! The cloud is simulated in any case.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::{Method, Request, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::{Value, json};
use sim::cluster::Version;
use sim::stage::{REGION, ROUTE_TABLE, Stage, instance};

use crate::kit::{ALL, HASTE, PATIENCE, World, address, free_port};
use crate::rights::documents;

/// Where the process that serves the simulated API server writes its kubeconfig.
const SERVE: &str = "ALICLOUD_CCM_TEST_SERVE";
/// Begins the name of everything that is made, so that what is left behind by a broken run is recognised.
const PREFIX: &str = "alicloud-ccm-test";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A process that ends with this value.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server, with all rights for the test, and a kubeconfig for the program.
struct ApiServer {
    client: Client,
    kubeconfig: PathBuf,
    _processes: Vec<Running>,
}

async fn client(kubeconfig: &Path) -> Option<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig).ok()?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.ok()?;
    Client::try_from(config).ok()
}

impl ApiServer {
    /// As the environment says; files go to `folder`.
    async fn of_environment(folder: &Path) -> Self {
        if let Some(path) = std::env::var_os("ALICLOUD_CCM_TEST_KUBECONFIG") {
            let kubeconfig = std::path::absolute(path).unwrap();
            let client = client(&kubeconfig).await.unwrap();
            let server = Self { client, kubeconfig, _processes: Vec::new() };
            server.refuse_one_that_is_needed().await;
            return server;
        }
        match std::env::var_os("KUBEBUILDER_ASSETS") {
            Some(assets) => Self::start(Path::new(&assets), folder).await,
            None => Self::simulate(folder).await,
        }
    }

    /// The program would act on these, and the cloud that it asks knows none of them.
    async fn refuse_one_that_is_needed(&self) {
        let others = |list: &Value| {
            let own = |object: &Value| object["metadata"]["name"].as_str().unwrap().starts_with(PREFIX);
            items(list).into_iter().filter(|object| !own(object)).collect::<Vec<_>>()
        };
        for node in others(&self.get("/api/v1/nodes").await) {
            let id = node["spec"]["providerID"].as_str().unwrap_or_default();
            let foreign = id.contains("://") && !id.starts_with("alicloud://");
            assert!(foreign, "this cluster has a node that could be of Alibaba Cloud: {}", node["metadata"]["name"]);
        }
        for service in others(&self.get("/api/v1/services").await) {
            let name = &service["metadata"]["name"];
            assert_ne!(service["spec"]["type"], "LoadBalancer", "this cluster has a Service that is in use: {name}");
        }
    }

    /// This test again, as the server.
    async fn simulate(folder: &Path) -> Self {
        let kubeconfig = folder.join("kubeconfig");
        std::fs::remove_file(&kubeconfig).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "real_cluster::the_main_story_on_any_api_server"]).env(SERVE, &kubeconfig);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self::once_ready(kubeconfig.clone(), kubeconfig, vec![Running(child)]).await
    }

    /// `etcd` and `kube-apiserver` out of this folder, with role based access control.
    async fn start(assets: &Path, folder: &Path) -> Self {
        let [clients, peers, port] = [(); 3].map(|()| free_port());
        let path = |name: &str| folder.join(name).display().to_string();
        let log = |name: &str| Stdio::from(std::fs::File::create(folder.join(name)).unwrap());
        let etcd = Command::new(assets.join("etcd"))
            .arg(format!("--data-dir={}", path("etcd")))
            .arg(format!("--listen-client-urls=http://127.0.0.1:{clients}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{clients}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peers}"))
            .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"))
            .arg(format!("--initial-cluster=default=http://127.0.0.1:{peers}"))
            .stdout(Stdio::null())
            .stderr(log("etcd.log"))
            .spawn()
            .unwrap();
        std::fs::write(folder.join("accounts.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let tokens = "admin-token,admin,1,\"system:masters\"\nccm-token,ccm,2\n";
        std::fs::write(folder.join("tokens.csv"), tokens).unwrap();
        let server = Command::new(assets.join("kube-apiserver"))
            .arg(format!("--etcd-servers=http://127.0.0.1:{clients}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", path("serving")))
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", path("accounts.key")))
            .arg(format!("--service-account-signing-key-file={}", path("accounts.key")))
            .arg(format!("--token-auth-file={}", path("tokens.csv")))
            .args(["--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"])
            .stdout(Stdio::null())
            .stderr(log("kube-apiserver.log"))
            .spawn()
            .unwrap();
        let processes = vec![Running(server), Running(etcd)];
        let kubeconfig = |name: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
                 clusters: [{{name: it, cluster: {{server: 'https://127.0.0.1:{port}', \
                 certificate-authority: '{}'}}}}]\n\
                 users: [{{name: it, user: {{token: {name}-token}}}}]\n\
                 contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n",
                path("serving/apiserver.crt")
            );
            let file = folder.join(format!("{name}.kubeconfig"));
            std::fs::write(&file, text).unwrap();
            file
        };
        let ready = Self::once_ready(kubeconfig("admin"), kubeconfig("ccm"), processes).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
        command.env_clear().args(["rbac", "--user", "ccm", "--set", &format!("leader_election.name={PREFIX}")]);
        let printed = command.arg("--config").arg(folder.join("alicloud-ccm.toml")).output().unwrap();
        for object in documents(&String::from_utf8(printed.stdout).unwrap()) {
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let within = object["metadata"]["namespace"].as_str();
            let within = within.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
            ready.post(&format!("/apis/rbac.authorization.k8s.io/v1/{within}{kind}s"), &object).await;
        }
        ready
    }

    /// Waits until the server answers to whom the first kubeconfig names.
    async fn once_ready(ours: PathBuf, kubeconfig: PathBuf, processes: Vec<Running>) -> Self {
        let began = Instant::now();
        loop {
            if let Some(client) = client(&ours).await {
                let server = Self { client, kubeconfig: kubeconfig.clone(), _processes: Vec::new() };
                let accounts = server.send(Method::GET, "/api/v1/namespaces/kube-system", "", None).await;
                if accounts.is_ok() {
                    return Self { _processes: processes, ..server };
                }
            }
            assert!(began.elapsed() < PATIENCE, "the API server does not start");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        let mut request = Request::builder().method(method).uri(path);
        if !kind.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        self.client.request(request.body(body).unwrap()).await
    }

    /// An object or a list; null if it is not there.
    async fn get(&self, path: &str) -> Value {
        match self.send(Method::GET, path, "", None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            answer => answer.unwrap_or_else(|error| panic!("GET {path}: {error}")),
        }
    }

    async fn post(&self, path: &str, object: &Value) -> Value {
        let made = self.send(Method::POST, path, "application/json", Some(object)).await;
        made.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    async fn patch(&self, path: &str, kind: &str, body: &Value) {
        let patched = self.send(Method::PATCH, path, kind, Some(body)).await;
        patched.unwrap_or_else(|error| panic!("PATCH {path}: {error}"));
    }

    /// It may be gone already.
    async fn delete(&self, path: &str) {
        match self.send(Method::DELETE, path, "", None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap_or_else(|error| panic!("DELETE {path}: {error}"))),
        }
    }

    /// What a broken run has left behind.
    async fn sweep(&self) {
        for list in ["/api/v1/nodes", SERVICES, SLICES, ENDPOINTS, LEASES] {
            for object in items(&self.get(list).await) {
                let name = object["metadata"]["name"].as_str().unwrap();
                if name.starts_with(PREFIX) {
                    let path = format!("{list}/{name}");
                    self.patch(&path, MERGE, &json!({ "metadata": { "finalizers": null } })).await;
                    self.delete(&path).await;
                }
            }
        }
    }

    /// What a kubelet does when its machine joins.
    async fn join(&self, number: u8) -> String {
        let name = format!("{PREFIX}-{number}");
        let cidr = format!("10.98.{number}.0/24");
        self.post(
            "/api/v1/nodes",
            &json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
                "spec": {
                    "podCIDR": cidr, "podCIDRs": [cidr], "providerID": format!("{REGION}.{}", instance(number)),
                    "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }],
                },
            }),
        )
        .await;
        self.say_ready(&name, "True").await;
        name
    }

    async fn say_ready(&self, name: &str, status: &str) {
        let now = alicloud_ccm::clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": "Ready", "status": status, "reason": "Test", "message": "said by a test",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let body = json!({ "status": { "conditions": [condition] } });
        self.patch(&format!("/api/v1/nodes/{name}/status"), STRATEGIC, &body).await;
    }

    /// A Service with an endpoint on each of these nodes, in whatever kind the server has.
    async fn expose(&self, name: &str, nodes: &[String]) {
        self.post(
            SERVICES,
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
                "spec": { "type": "LoadBalancer", "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] },
            }),
        )
        .await;
        let addresses = |number: usize| format!("10.98.{number}.10");
        if self.get("/apis/discovery.k8s.io/v1").await.is_null() {
            let addresses: Vec<_> =
                (1..).zip(nodes).map(|(number, node)| json!({ "ip": addresses(number), "nodeName": node })).collect();
            let subset = json!({ "addresses": addresses, "ports": [{ "name": "http", "port": 8080 }] });
            let object =
                json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": name }, "subsets": [subset] });
            self.post(ENDPOINTS, &object).await;
        } else {
            let endpoints: Vec<_> = (1..)
                .zip(nodes)
                .map(|(number, node)| {
                    json!({ "addresses": [addresses(number)], "nodeName": node, "conditions": { "ready": true } })
                })
                .collect();
            let service = json!({ "kubernetes.io/service-name": name });
            let object = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": { "name": name, "labels": service }, "addressType": "IPv4",
                "endpoints": endpoints, "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
            });
            self.post(SLICES, &object).await;
        }
    }

    /// Takes away what [`Self::expose`] has put beside the Service.
    async fn forget_endpoints(&self, name: &str) {
        self.delete(&format!("{SLICES}/{name}")).await;
        self.delete(&format!("{ENDPOINTS}/{name}")).await;
    }
}

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

fn routes(stage: &Stage) -> usize {
    let ours = |entry: &&sim::cloud::RouteEntry| entry.kind == "Custom";
    stage.cloud.look(|cloud| cloud.route_tables[ROUTE_TABLE].entries.values().filter(ours).count())
}

/// Serves until whoever started this process is gone.
async fn serve(kubeconfig: PathBuf) {
    let stage = Stage::open(Version::NEWEST).await.unwrap();
    let beside = kubeconfig.with_extension("new");
    std::fs::write(&beside, stage.cluster.kubeconfig()).unwrap();
    std::fs::rename(beside, kubeconfig).unwrap();
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_story_on_any_api_server() {
    if let Some(kubeconfig) = std::env::var_os(SERVE) {
        return serve(kubeconfig.into()).await;
    }
    let world = World::new(ALL, &format!("{HASTE}\n[leader_election]\nname = \"{PREFIX}\"\n")).await;
    let api = ApiServer::of_environment(world.folder()).await;
    let (stage, path) = (&world.stage, api.kubeconfig.display().to_string());
    world.edit(|text| text.replace("kubeconfig = \"kubeconfig\"", &format!("kubeconfig = {path:?}")));
    api.sweep().await;
    let node = async |name: &str| api.get(&format!("/api/v1/nodes/{name}")).await;
    let service = format!("{PREFIX}-web");
    let exposed = async || api.get(&format!("{SERVICES}/{service}")).await;

    let ccm = world.start();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        stage.rent(number);
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
    let first = node(&nodes[0]).await;
    assert!(first["status"]["addresses"].to_string().contains("192.168.0.1"), "{first}");
    assert_eq!(routes(stage), 3);

    api.expose(&service, &nodes[..2]).await;
    world.until_so("the Service has an address", || async { address(&exposed().await).is_some() }).await;
    let backends = || stage.cloud.snapshot()["load_balancers"].to_string();
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
    let (plan, code) = world.plan().await;
    assert_eq!((plan.as_str(), code), ("Nothing to do.\n", Some(0)));

    stage.cloud.release_instance(&instance(3));
    api.say_ready(&nodes[2], "Unknown").await;
    world
        .until_so("the released node is gone", || async { node(&nodes[2]).await.is_null() && routes(stage) == 2 })
        .await;

    api.delete(&format!("{SERVICES}/{service}")).await;
    world.until_so("the Service is gone", || async { exposed().await.is_null() }).await;
    assert!(stage.cloud.look(|cloud| cloud.load_balancers.is_empty()));
    api.forget_endpoints(&service).await;
    // The last node's route stays: that every node is gone is more likely a mistake than true.
    api.delete(&format!("/api/v1/nodes/{}", nodes[1])).await;
    world.until("its route is gone", |stage| routes(stage) == 1).await;
    assert!(ccm.stop().await.success());
    let lease = api.get(&format!("{LEASES}/{PREFIX}")).await;
    assert_eq!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), "", "given back: {lease}");
    api.sweep().await;
    assert_eq!(stage.cloud.complaints(), Vec::<String>::new());
}
