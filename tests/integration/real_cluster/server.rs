//! An API server that somebody else made, or the simulated one, behind nothing but HTTP.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::{Method, Request, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::{Value, json};
use sim::testbed::{REGION, instance};

use super::{ENDPOINTS, LOCKS, MERGE, PREFIX, SERVE, SERVICES, SLICES, STRATEGIC, UNINITIALIZED, items};
use crate::harness::{PATIENCE, free_port};
use crate::permissions::documents;

/// A process that ends with this value.
#[derive(Debug)]
struct Running(Child);

impl Running {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server, with all rights for the test, and a kubeconfig for the program.
pub(super) struct ApiServer {
    client: Client,
    pub(super) kubeconfig: PathBuf,
    _beside: Option<Running>,
}

async fn client(kubeconfig: &Path) -> Option<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig).ok()?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.ok()?;
    Client::try_from(config).ok()
}

impl ApiServer {
    /// One that runs already, or the simulated one.
    pub(super) async fn found(folder: &Path) -> Self {
        let Some(path) = std::env::var_os("ALICLOUD_CCM_TEST_KUBECONFIG") else { return Self::simulate(folder).await };
        let kubeconfig = std::path::absolute(path).unwrap();
        let client = client(&kubeconfig).await.unwrap();
        let server = Self { client, kubeconfig, _beside: None };
        server.refuse_one_that_is_needed().await;
        server
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
        let client = once_ready(&kubeconfig, || None).await;
        Self { client, kubeconfig, _beside: Some(Running(child)) }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        send(&self.client, method, path, kind, body).await
    }

    /// An object or a list; null if it is not there.
    pub(super) async fn get(&self, path: &str) -> Value {
        match self.send(Method::GET, path, "", None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            answer => answer.unwrap_or_else(|error| panic!("GET {path}: {error}")),
        }
    }

    pub(super) async fn post(&self, path: &str, object: &Value) -> Value {
        let made = self.send(Method::POST, path, "application/json", Some(object)).await;
        made.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    pub(super) async fn patch(&self, path: &str, kind: &str, body: &Value) {
        let patched = self.send(Method::PATCH, path, kind, Some(body)).await;
        patched.unwrap_or_else(|error| panic!("PATCH {path}: {error}"));
    }

    /// It may be gone already.
    pub(super) async fn delete(&self, path: &str) {
        match self.send(Method::DELETE, path, "", None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap_or_else(|error| panic!("DELETE {path}: {error}"))),
        }
    }

    /// What a broken run has left behind.
    pub(super) async fn sweep(&self) {
        for list in ["/api/v1/nodes", SERVICES, SLICES, ENDPOINTS].into_iter().chain(LOCKS) {
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
    pub(super) async fn join(&self, number: u8) -> String {
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

    pub(super) async fn say_ready(&self, name: &str, status: &str) {
        let now = alicloud_ccm::clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": "Ready", "status": status, "reason": "Test", "message": "said by a test",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let body = json!({ "status": { "conditions": [condition] } });
        self.patch(&format!("/api/v1/nodes/{name}/status"), STRATEGIC, &body).await;
    }

    /// A Service with an endpoint on each of these nodes, in whatever kind the server has.
    pub(super) async fn expose(&self, name: &str, nodes: &[String]) {
        self.post(
            SERVICES,
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
                "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] },
            }),
        )
        .await;
        let (list, object) = self.endpoints_of(name, nodes).await;
        self.post(list, &object).await;
    }

    /// Moves the endpoints of a Service that was exposed.
    pub(super) async fn point(&self, name: &str, nodes: &[String]) {
        let (list, object) = self.endpoints_of(name, nodes).await;
        self.patch(&format!("{list}/{name}"), MERGE, &object).await;
    }

    /// One endpoint on each of these nodes, in whatever kind the server has, and where that goes.
    async fn endpoints_of(&self, name: &str, nodes: &[String]) -> (&'static str, Value) {
        // The last part of a node's name is its number.
        let address = |node: &String| format!("10.98.{}.10", node.rsplit('-').next().unwrap());
        if self.get("/apis/discovery.k8s.io/v1").await.is_null() {
            let addresses: Vec<_> = nodes.iter().map(|node| json!({ "ip": address(node), "nodeName": node })).collect();
            let subset = json!({ "addresses": addresses, "ports": [{ "name": "http", "port": 8080 }] });
            let object =
                json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": name }, "subsets": [subset] });
            return (ENDPOINTS, object);
        }
        let endpoint =
            |node: &String| json!({ "addresses": [address(node)], "nodeName": node, "conditions": { "ready": true } });
        let service = json!({ "kubernetes.io/service-name": name });
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": service }, "addressType": "IPv4",
            "endpoints": nodes.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        });
        (SLICES, object)
    }

    /// Takes away what [`Self::expose`] has put beside the Service.
    pub(super) async fn forget_endpoints(&self, name: &str) {
        self.delete(&format!("{SLICES}/{name}")).await;
        self.delete(&format!("{ENDPOINTS}/{name}")).await;
    }
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let mut request = Request::builder().method(method).uri(path);
    if !kind.is_empty() {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
    client.request(request.body(body).unwrap()).await
}

/// Waits until the server answers to whom the kubeconfig names; `died` says what it died of.
async fn once_ready(kubeconfig: &Path, mut died: impl FnMut() -> Option<String>) -> Client {
    let began = Instant::now();
    loop {
        if let Some(client) = client(kubeconfig).await {
            let request = Request::builder().uri("/readyz").body(Vec::new()).unwrap();
            if client.request_text(request).await.is_ok() {
                return client;
            }
        }
        let reason = died();
        assert!(reason.is_none() && began.elapsed() < PATIENCE, "the API server does not start: {reason:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// `etcd` and `kube-apiserver`, with role based access control.
pub(super) struct RealServer {
    pub(super) api: ApiServer,
    server: Running,
    command: Command,
    folder: PathBuf,
    admin: PathBuf,
    port: u16,
    _etcd: Running,
}

impl RealServer {
    /// Out of the folder that the environment names, if it names one; files go to `folder`. The program has the rights that
    /// it prints for the configuration in there, and the account that they are for.
    pub(super) async fn start(folder: &Path) -> Option<Self> {
        let assets = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS")?);
        let [clients, peers, port] = [(); 3].map(|()| free_port());
        let path = |name: &str| folder.join(name).display().to_string();
        let mut etcd = Command::new(assets.join("etcd"));
        etcd.arg(format!("--data-dir={}", path("etcd")))
            .arg(format!("--listen-client-urls=http://127.0.0.1:{clients}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{clients}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peers}"))
            .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"))
            .arg(format!("--initial-cluster=default=http://127.0.0.1:{peers}"));
        let etcd = Running::start(&mut etcd, &folder.join("etcd.err"));
        let accounts = KeyPair::generate().unwrap();
        std::fs::write(folder.join("accounts.key"), accounts.serialize_pem()).unwrap();
        std::fs::write(folder.join("accounts.pub"), accounts.public_key_pem()).unwrap();
        std::fs::write(folder.join("tokens.csv"), "admin-token,admin,1,\"system:masters\"\n").unwrap();
        let mut command = Command::new(assets.join("kube-apiserver"));
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{clients}"))
            .args(["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", path("serving")))
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", path("accounts.pub")))
            .arg(format!("--service-account-signing-key-file={}", path("accounts.key")))
            .arg(format!("--token-auth-file={}", path("tokens.csv")))
            .args(["--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"]);
        let mut server = Running::start(&mut command, &folder.join("kube-apiserver.err"));
        let admin = kubeconfig(folder, port, "admin", "admin-token");
        let client = once_ready(&admin, || died(&mut server, folder)).await;
        let api = ApiServer { client, kubeconfig: admin.clone(), _beside: None };
        let mut this = Self { api, server, command, folder: folder.to_owned(), admin, port, _etcd: etcd };
        let mut rbac = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
        let printed =
            rbac.env_clear().args(["rbac", "--config"]).arg(folder.join("alicloud-ccm.toml")).output().unwrap();
        for object in documents(&String::from_utf8(printed.stdout).unwrap()) {
            this.api.post(&collection(&object), &object).await;
        }
        let token = this.account("kube-system", "alicloud-ccm").await;
        this.api.kubeconfig = kubeconfig(folder, port, "ccm", &token);
        Some(this)
    }

    /// Makes a service account, and gives a token of it.
    pub(super) async fn account(&self, namespace: &str, name: &str) -> String {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        self.api.post(&accounts, &account).await;
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 3600 },
        });
        let made = self.api.post(&format!("{accounts}/{name}/token"), &request).await;
        made["status"]["token"].as_str().unwrap().to_owned()
    }

    /// What makes slices of pods, if it is there too.
    pub(super) fn controllers(&self) -> Option<impl Drop> {
        let binary = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS")?).join("kube-controller-manager");
        if !binary.exists() {
            return None;
        }
        let mut command = Command::new(binary);
        command
            .arg(format!("--kubeconfig={}", self.admin.display()))
            .args(["--controllers=endpointslice,endpointslicemirroring", "--leader-elect=false"])
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={}", free_port())])
            .arg(format!("--cert-dir={}", self.folder.join("controllers").display()));
        Some(Running::start(&mut command, &self.folder.join("kube-controller-manager.err")))
    }

    /// It dies, and with it every connection; what it knows is kept by `etcd`.
    pub(super) fn kill(&mut self) {
        self.server.0.kill().unwrap();
        self.server.0.wait().unwrap();
    }

    /// The same server again, at the same address.
    pub(super) async fn start_again(&mut self) {
        self.server = Running::start(&mut self.command, &self.folder.join("kube-apiserver.err"));
        let (server, folder) = (&mut self.server, &self.folder);
        self.api.client = once_ready(&self.admin, || died(server, folder)).await;
    }

    /// Requests that were forbidden, as the server counts them.
    pub(super) async fn forbidden(&self) -> Vec<String> {
        let request = Request::builder().uri("/metrics").body(Vec::new()).unwrap();
        let metrics = self.api.client.request_text(request).await.unwrap();
        assert!(metrics.contains("apiserver_request_total{code=\"201\""), "{}", self.port);
        let counted = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{code=\"403\""));
        counted.map(str::to_owned).collect()
    }
}

/// The end of its log, if it has died.
fn died(server: &mut Running, folder: &Path) -> Option<String> {
    server.0.try_wait().unwrap()?;
    let log = std::fs::read_to_string(folder.join("kube-apiserver.err")).unwrap();
    log.lines().last().map(str::to_owned)
}

/// A kubeconfig for whoever has this token.
fn kubeconfig(folder: &Path, port: u16, name: &str, token: &str) -> PathBuf {
    let authority = folder.join("serving/apiserver.crt");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
         clusters: [{{name: it, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: it, user: {{token: {token}}}}}]\n\
         contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n",
        authority.display()
    );
    let file = folder.join(format!("{name}.kubeconfig"));
    std::fs::write(&file, text).unwrap();
    file
}

/// Where objects like this one are posted to.
pub(super) fn collection(object: &Value) -> String {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap().to_lowercase());
    let group = if version.contains('/') { "apis" } else { "api" };
    let within = object["metadata"]["namespace"].as_str();
    let within = within.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    format!("/{group}/{version}/{within}{kind}s")
}
