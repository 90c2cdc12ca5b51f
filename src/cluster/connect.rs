//! How the API server is found, and by which credentials it is reached.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use backon::{BackoffBuilder as _, Retryable as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Uri, header};
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::faults::{RequestFault, with_causes};
use super::requests::{Requests, backoff};
use crate::config::checked::Kubernetes;
use crate::config::tls::ends_at;
use crate::telemetry::metrics;

/// How often files with credentials are checked.
const CREDENTIALS_PERIOD: Duration = Duration::from_secs(5);
/// Where the kubelet puts the certificate authority of the API server; the token beside it is read by kube itself.
const POD_AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// While waiting for the API server, how often that is logged.
const REMINDER: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_millis(300);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// How often the uid of the cluster is asked for again, until nothing waits for it any longer: about 15 s.
const UID_RETRIES: usize = 6;

/// Where it is configured how to reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ConnectionSource {
    /// Files, merged in this order, and what named them.
    Kubeconfig { files: Vec<PathBuf>, origin: &'static str },
    /// The service account of this pod.
    InCluster,
    /// Only the stated address, without credentials.
    ServerOnly,
}

/// The first that is there: stated file, `KUBECONFIG`, service account, file in the home directory, address alone.
fn source(
    config: &Kubernetes,
    variable: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&Path) -> bool,
) -> Result<ConnectionSource, String> {
    if let Some(file) = &config.kubeconfig {
        return Ok(ConnectionSource::Kubeconfig { files: vec![file.clone()], origin: "kubernetes.kubeconfig" });
    }
    let named = variable("KUBECONFIG").unwrap_or_default();
    let files: Vec<_> = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    if !files.is_empty() {
        return Ok(ConnectionSource::Kubeconfig { files, origin: "KUBECONFIG" });
    }
    if variable("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) {
        return Ok(ConnectionSource::InCluster);
    }
    let home = PathBuf::from(variable("HOME").unwrap_or_else(|| "/root".into())).join(".kube/config");
    if exists(&home) {
        return Ok(ConnectionSource::Kubeconfig { files: vec![home], origin: "home directory" });
    }
    if config.server.is_some() {
        return Ok(ConnectionSource::ServerOnly);
    }
    Err(format!(
        "no API server is configured: kubernetes.kubeconfig and kubernetes.server are not set, the environment has no KUBECONFIG, \
         this is not a pod (no KUBERNETES_SERVICE_HOST), and {} does not exist",
        home.display()
    ))
}

impl ConnectionSource {
    fn describe(&self) -> String {
        match self {
            Self::Kubeconfig { files, origin } => format!("kubeconfig {} ({origin})", list(files)),
            Self::InCluster => "service account".into(),
            Self::ServerOnly => "kubernetes.server".into(),
        }
    }

    /// Reads all files again.
    async fn load(&self, config: &Kubernetes) -> Result<Config, String> {
        let server = config.server.as_deref().map(parse_server).transpose()?;
        let mut loaded = match self {
            Self::Kubeconfig { files, origin } => {
                load_kubeconfig(files, config.context.clone()).await.map_err(|error| {
                    let (path, reason) = (list(files), without_content(&error));
                    format!("the kubeconfig {path} ({origin}) cannot be used: {reason}")
                })?
            }
            Self::InCluster => Config::incluster_env()
                .map_err(|error| format!("the service account of this pod cannot be used: {}", with_causes(&error)))?,
            Self::ServerOnly => Config::new(server.clone().unwrap_or_default()),
        };
        if let Some(server) = server {
            loaded.cluster_url = server;
        }
        loaded.connect_timeout = Some(config.timeout);
        // The sender of a request decides whether to retry; a silent retry would outlive a permit.
        loaded.default_retry = false;
        let agent = HeaderValue::from_static(concat!("alicloud-ccm/", env!("CARGO_PKG_VERSION")));
        loaded.headers.push((header::USER_AGENT, agent));
        Ok(loaded)
    }

    /// A number that changes when the contents of the kubeconfig, or of a file that it names, change.
    fn fingerprint(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        let files = match self {
            Self::Kubeconfig { files, .. } => files.as_slice(),
            Self::InCluster => {
                std::fs::read(POD_AUTHORITY).ok()?.hash(&mut hasher);
                &[]
            }
            Self::ServerOnly => return None,
        };
        for file in files {
            std::fs::read(file).ok()?.hash(&mut hasher);
            let kubeconfig = Kubeconfig::read_from(file).ok()?;
            let authorities = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
            let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
            let named = authorities
                .filter_map(|cluster| cluster.certificate_authority.as_ref())
                .chain(users.flat_map(|user| user.client_certificate.iter().chain(&user.client_key)));
            for path in named {
                std::fs::read(path).ok().hash(&mut hasher);
            }
        }
        Some(hasher.finish())
    }
}

fn list(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(":")
}

fn parse_server(given: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = given.parse().ok();
    uri.filter(|uri| uri.scheme().is_some() && uri.host().is_some())
        .ok_or_else(|| "kubernetes.server is not a URL with scheme and host, such as https://10.0.0.1:6443".to_owned())
}

async fn load_kubeconfig(files: &[PathBuf], context: Option<String>) -> Result<Config, KubeconfigError> {
    let mut merged = Kubeconfig::default();
    for file in files {
        merged = merged.merge(Kubeconfig::read_from(file)?)?;
    }
    let proxy = stated_proxy(&merged, context.as_deref());
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let mut loaded = Config::from_custom_kubeconfig(merged, &options).await?;
    // kube also takes HTTPS_PROXY, without heeding NO_PROXY for the API server. That variable is set for the way to the
    // cloud; the API server is next door.
    loaded.proxy_url = proxy.map(|url| url.parse()).transpose().map_err(KubeconfigError::ParseProxyUrl)?;
    Ok(loaded)
}

/// `proxy-url` of the cluster in use.
fn stated_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

/// What is wrong with a kubeconfig. Errors of the parser quote the lines around, which may hold tokens and keys.
fn without_content(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(place) => format!("it is not a kubeconfig from line {}, column {} on", place.line(), place.column()),
            None => "it is not a kubeconfig".into(),
        },
        other => with_causes(other),
    }
}

/// Host and port only: the rest of a URL may hold a password.
fn address(server: &Uri) -> String {
    let host = server.host().unwrap_or_default();
    server.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// When the client certificate of the kubeconfig ends; `None` without one, and for one from a credential plugin.
fn certificate_end(config: &Config) -> Option<i64> {
    let user = &config.auth_info;
    let pem = match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, path) => std::fs::read(path.as_ref()?).ok()?,
    };
    ends_at(&pem).map(|at| at.as_second())
}

fn client(config: Config) -> Result<Client, String> {
    let (server, end) = (address(&config.cluster_url), certificate_end(&config));
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| format!("a connection to {server} cannot be prepared: {}", with_causes(&error)))?;
    metrics::expiry("client certificate", end);
    Ok(builder.build())
}

/// Reads the kubeconfig that is stated, if one is, as a connection does. Runs no credential plugin.
///
/// # Errors
/// Why it cannot be used.
pub async fn check_kubeconfig(config: &Kubernetes) -> Result<(), String> {
    if config.kubeconfig.is_none() {
        return Ok(());
    }
    source(config, |_| None, |_| false)?.load(config).await.map(drop)
}

/// Prepares requests to the API server, and what starts a task that keeps the credentials fresh and never ends by itself.
pub(super) async fn connect(
    config: &Kubernetes,
) -> Result<(Requests, impl FnMut() -> BoxFuture<'static, ()> + Send + 'static), String> {
    // The first caller of the process installs it; all install the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let source = source(config, |name| std::env::var(name).ok(), Path::exists)?;
    let fingerprint = source.fingerprint();
    let loaded = source.load(config).await?;
    info!(server = address(&loaded.cluster_url), from = source.describe(), "using this API server");
    let requests = Requests::new(client(loaded)?, config);
    let (config, kept) = (config.clone(), requests.clone());
    let refresh = move || keep_fresh(source.clone(), fingerprint, config.clone(), kept.clone()).boxed();
    Ok((requests, refresh))
}

/// kube reads client certificates once, when a client is made. So a new client is made when files have changed, or when
/// a certificate from a credential plugin is about to end. kube itself refreshes tokens of service accounts.
async fn keep_fresh(source: ConnectionSource, mut fingerprint: Option<u64>, config: Kubernetes, requests: Requests) {
    loop {
        sleep(CREDENTIALS_PERIOD).await;
        let current = source.fingerprint();
        let ends_soon = requests
            .client()
            .valid_until()
            .is_some_and(|until| until.duration_since(crate::clock::now()).as_secs() < 120);
        // A file that cannot be read is probably just being replaced.
        if !ends_soon && (current.is_none() || current == fingerprint) {
            continue;
        }
        match source.load(&config).await.and_then(client) {
            Ok(client) => {
                info!(from = source.describe(), "credentials were read anew");
                requests.replace_client(client);
                fingerprint = current;
            }
            Err(error) => {
                warn!(code = "ACCM0722", %error, "credentials have changed but cannot be used; the old ones stay")
            }
        }
    }
}

/// The version of the API server; `unknown` where it may not be read, as what is needed may be permitted all the same.
pub(super) async fn version(requests: &Requests) -> Result<String, RequestFault> {
    match requests.get::<Value>("/version").await {
        Ok(version) => Ok(version["gitVersion"].as_str().unwrap_or("unknown").to_owned()),
        Err(fault) if fault.code() == Some(403) => Ok("unknown".to_owned()),
        Err(fault) => Err(fault),
    }
}

/// Asks for the version until there is an answer.
pub(super) async fn wait_ready(requests: &Requests) -> String {
    let mut delays = backoff(FIRST_DELAY, LONGEST_DELAY).build();
    let mut logged: Option<Instant> = None;
    loop {
        let fault = match version(requests).await {
            Ok(version) => {
                info!(version, "the API server answers");
                return version;
            }
            Err(fault) => fault,
        };
        if logged.is_none_or(|logged| logged.elapsed() >= REMINDER) {
            warn!(code = "ACCM0721", reason = %fault, "waiting for the API server");
            logged = Some(Instant::now());
        }
        sleep(delays.next().unwrap_or(LONGEST_DELAY)).await;
    }
}

/// Reads the uid of the namespace `kube-system`.
pub(super) async fn try_cluster_uid(requests: &Requests) -> Result<Option<String>, RequestFault> {
    let namespace = requests.get::<Value>("/api/v1/namespaces/kube-system").await?;
    Ok(namespace["metadata"]["uid"].as_str().map(str::to_owned))
}

/// The same with a few retries; `None` if it cannot be read now.
pub(super) async fn cluster_uid(requests: &Requests) -> Option<String> {
    let read = (|| try_cluster_uid(requests))
        .retry(backoff(FIRST_DELAY, LONGEST_DELAY).with_max_times(UID_RETRIES))
        // Without the permission, or the namespace, another try would meet the same.
        .when(|fault| !matches!(fault.code(), Some(403 | 404)));
    read.await.unwrap_or_else(|fault| {
        let why = fault.explain("get", "namespaces");
        warn!(
            code = "ACCM0723",
            reason = why,
            "the uid of the namespace kube-system is not known, so clusters with the same cloud.cluster_id \
             cannot be told apart; it is read again each minute"
        );
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Kubernetes {
        Kubernetes {
            kubeconfig: None,
            context: None,
            server: None,
            qps: 20.0,
            burst: 30,
            timeout: Duration::from_secs(10),
        }
    }

    fn chosen(config: &Kubernetes, variables: &[(&str, &str)], home_file: bool) -> Result<ConnectionSource, String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        source(config, variable, |_| home_file)
    }

    #[test]
    fn the_documented_order_decides() {
        let pod = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        let home = ("HOME", "/home/me");
        let named = ("KUBECONFIG", "/a:/b");
        let stated = Kubernetes { kubeconfig: Some("/stated".into()), ..config() };
        let describe = |config: &Kubernetes, variables: &[(&str, &str)], file| {
            chosen(config, variables, file).map(|source| source.describe()).unwrap_or_else(|error| error.to_string())
        };
        assert_eq!(describe(&stated, &[named, pod, home], true), "kubeconfig /stated (kubernetes.kubeconfig)");
        assert_eq!(describe(&config(), &[named, pod, home], true), "kubeconfig /a:/b (KUBECONFIG)");
        assert_eq!(describe(&config(), &[("KUBECONFIG", ""), pod, home], true), "service account");
        assert_eq!(describe(&config(), &[home], true), "kubeconfig /home/me/.kube/config (home directory)");
        let server = Kubernetes { server: Some("http://127.0.0.1:8001".into()), ..config() };
        assert_eq!(describe(&server, &[home], false), "kubernetes.server");
        let error = describe(&config(), &[home], false);
        for tried in ["kubernetes.kubeconfig", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "/home/me/.kube/config"] {
            assert!(error.contains(tried), "{error}");
        }
    }

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://one.example:6443'}}, {name: d, cluster: {server: 'https://two.example:6443'}}]
users: [{name: u, user: {client-certificate: cert.pem, client-key: key.pem}}]
contexts: [{name: first, context: {cluster: c, user: u}}, {name: second, context: {cluster: d, user: u}}]
current-context: first
";

    #[tokio::test]
    async fn context_and_server_override_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, KUBECONFIG).unwrap();
        let source = ConnectionSource::Kubeconfig { files: vec![file], origin: "test" };
        assert_eq!(source.load(&config()).await.unwrap().cluster_url, "https://one.example:6443");
        let second = Kubernetes { context: Some("second".into()), ..config() };
        assert_eq!(source.load(&second).await.unwrap().cluster_url, "https://two.example:6443");
        let server = Kubernetes { server: Some("https://lb.example".into()), ..config() };
        assert_eq!(source.load(&server).await.unwrap().cluster_url, "https://lb.example");
        let missing = Kubernetes { context: Some("third".into()), ..config() };
        let error = source.load(&missing).await.unwrap_err().to_string();
        assert!(error.contains("third"), "{error}");
        let nonsense = Kubernetes { server: Some("lb.example".into()), ..config() };
        let error = source.load(&nonsense).await.unwrap_err().to_string();
        assert!(error.contains("kubernetes.server"), "{error}");
    }

    #[test]
    fn a_renewed_client_certificate_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, KUBECONFIG).unwrap();
        std::fs::write(folder.path().join("cert.pem"), "one").unwrap();
        let source = ConnectionSource::Kubeconfig { files: vec![file], origin: "test" };
        let before = source.fingerprint();
        assert_eq!(source.fingerprint(), before);
        std::fs::write(folder.path().join("cert.pem"), "two").unwrap();
        assert_ne!(source.fingerprint(), before);
        assert!(before.is_some());
    }

    #[tokio::test]
    async fn a_proxy_is_used_only_where_the_kubeconfig_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        for (field, expected) in [("", None), (", proxy-url: 'http://proxy.example:3128'", Some("proxy.example"))] {
            let text = KUBECONFIG.replace("one.example:6443'", &format!("one.example:6443'{field}"));
            std::fs::write(&file, text).unwrap();
            let source = ConnectionSource::Kubeconfig { files: vec![file.clone()], origin: "test" };
            let loaded = source.load(&config()).await.unwrap();
            assert_eq!(loaded.proxy_url.as_ref().and_then(Uri::host), expected);
            let _ = rustls::crypto::ring::default_provider().install_default();
            let mut without_files = loaded;
            without_files.auth_info = kube::config::AuthInfo::default();
            without_files.root_cert = Some(Vec::new());
            assert!(client(without_files).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_not_there_yet_is_waited_for() {
        use crate::cluster::tests::fake::{Answer, cluster};
        let tries = std::sync::atomic::AtomicU32::new(0);
        let cluster = cluster(move |asked| {
            assert_eq!(asked.path, "/version");
            match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0..5 => Answer::Broken,
                5 => Answer::Silence,
                6 => Answer::error(401, "the token has expired"),
                7 => Answer::error(503, "starting"),
                _ => Answer::Json(200, serde_json::json!({ "gitVersion": "v1.34.1" })),
            }
        });
        assert!(!cluster.status().reachable);
        assert_eq!(cluster.wait_ready().await, "v1.34.1");
        assert!(cluster.status().reachable);
    }

    #[tokio::test]
    async fn errors_do_not_repeat_what_is_in_a_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        for text in [
            "users:\n- name: u\n  user: {token: [hunter2]}\n",
            "users:\n- name: u\n  user: {token: hunter2\n",
            "clusters: hunter2",
            "users: [{name: u, user: {client-certificate-data: aHVudGVyMg==hunter2, client-key-data: hunter2}}]\n\
             clusters: [{name: c, cluster: {server: 'https://user:hunter2@one.example', certificate-authority-data: hunter2}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x",
        ] {
            std::fs::write(&file, text).unwrap();
            let stated = Kubernetes { kubeconfig: Some(file.clone()), ..config() };
            let error = connect(&stated).await.map(drop).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_presents_its_authority_as_its_own_certificate_is_explained() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = rustls::ServerConfig::builder().with_no_client_auth();
        let private_key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let tls = tls.with_single_cert(vec![certificate.der().clone()], private_key).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls));
            while let Ok((stream, _)) = listener.accept().await {
                let _ = acceptor.accept(stream).await;
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        std::fs::write(
            &file,
            format!(
                "clusters: [{{name: c, cluster: {{server: 'https://localhost:{port}', certificate-authority: ca.pem}}}}]\n\
                 users: [{{name: u, user: {{token: t}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x"
            ),
        )
        .unwrap();
        let stated = Kubernetes { kubeconfig: Some(file), ..config() };
        let (requests, _) = connect(&stated).await.unwrap();
        let fault = requests.get::<Value>("/version").await.unwrap_err().to_string();
        assert!(fault.contains("issue a server certificate (CA:FALSE)"), "{fault}");
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let stated = Kubernetes { kubeconfig: Some("/does/not/exist".into()), ..config() };
        let error = connect(&stated).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("/does/not/exist") && error.contains("kubernetes.kubeconfig"), "{error}");
    }
}
