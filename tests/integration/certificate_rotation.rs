//! Certificates, authorities and tokens that are replaced on disk while the process runs.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parking_lot::RwLock;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::harness::{HASTE, World, address, get, is_ready};

/// Signs certificates.
pub(crate) struct Authority {
    pub(crate) certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Identity {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    fn sign(&self) -> Identity {
        self.sign_for("127.0.0.1")
    }

    /// A certificate for this address or name.
    pub(crate) fn sign_for(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        Identity { certificate: parameters.signed_by(&key, &self.issuer).unwrap(), key }
    }
}

/// TLS in front of a server that has none. Who is let in, and who it says that it is, can change.
pub(crate) struct Front {
    pub(crate) port: u16,
    config: Arc<RwLock<Arc<ServerConfig>>>,
    /// Counts how often all connections were cut.
    cut: watch::Sender<u32>,
}

impl Front {
    pub(crate) fn before(target: &str, identity: &Identity, clients: Option<&Authority>) -> Self {
        let listener = listener();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(RwLock::new(tls(identity, clients)));
        let (cut, cuts) = watch::channel(0);
        let (current, target) = (config.clone(), target.to_owned());
        // Ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(current.read().clone());
                let (target, mut cuts) = (target.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let through = async {
                        let mut here = acceptor.accept(here).await.ok()?;
                        let mut there = tokio::net::TcpStream::connect(target).await.ok()?;
                        tokio::io::copy_bidirectional(&mut here, &mut there).await.ok()
                    };
                    tokio::select! {
                        _ = through => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { port, config, cut }
    }

    /// From now on; connections that are open end.
    fn change(&self, identity: &Identity, clients: Option<&Authority>) {
        *self.config.write() = tls(identity, clients);
        self.cut.send_modify(|count| *count += 1);
    }
}

/// A socket on a free port. Must be called in a runtime.
pub(crate) fn listener() -> tokio::net::TcpListener {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    tokio::net::TcpListener::from_std(listener).unwrap()
}

/// Without `clients` nobody is asked for a certificate.
fn tls(identity: &Identity, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = match clients {
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.certificate.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
            ServerConfig::builder().with_client_cert_verifier(verifier)
        }
        None => ServerConfig::builder().with_no_client_auth(),
    };
    let key = PrivateKeyDer::Pkcs8(identity.key.serialize_der().into());
    let mut config = builder.with_single_cert(vec![identity.certificate.der().clone()], key).unwrap();
    // A resumed session would not show its certificate again.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Replaces a file as whoever renews certificates does.
fn put(folder: &Path, name: &str, text: &str) {
    let beside = folder.join(format!("{name}~"));
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, folder.join(name)).unwrap();
}

/// Where the API server listens without TLS.
pub(crate) fn address_of(world: &World) -> String {
    let plain = std::fs::read_to_string(world.folder().join("kubeconfig")).unwrap();
    plain.split("http://").nth(1).unwrap().split(['"', '\n', '\'']).next().unwrap().to_owned()
}

/// Puts files into a folder as a kubelet puts a ConfigMap, a Secret or a token there: all of them change in one moment.
fn project(folder: &Path, files: &[(&str, &str)]) {
    let generation = format!("..{}", std::fs::read_dir(folder).map_or(0, Iterator::count));
    std::fs::create_dir_all(folder.join(&generation)).unwrap();
    for (name, text) in files {
        let file = folder.join(&generation).join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        if !folder.join(name).is_symlink() {
            symlink(format!("..data/{name}"), folder.join(name)).unwrap();
        }
    }
    symlink(generation, folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

pub(crate) fn kubeconfig(port: u16, authority: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
         clusters: [{{name: it, cluster: {{server: 'https://127.0.0.1:{port}', {authority}}}}}]\n\
         users: [{{name: it, user: {{{user}}}}}]\n\
         contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_with_new_certificates_when_the_old_ones_are_refused() {
    let world = World::new(&["node"], HASTE).await;
    let folder = world.folder().to_owned();
    let target = address_of(&world);
    let [servers, other_servers, clients, other_clients, last_clients] = [(); 5].map(|()| Authority::new());
    let (server, client) = (servers.sign(), clients.sign());
    let front = Front::before(&target, &server, Some(&clients));
    let files = "client-certificate: client.crt, client-key: client.key";
    put(&folder, "kubeconfig", &kubeconfig(front.port, "certificate-authority: ca.crt", files));
    put(&folder, "ca.crt", &servers.certificate.pem());
    put(&folder, "client.crt", &client.certificate.pem());
    put(&folder, "client.key", &client.key.serialize_pem());
    let port = world.serve_health();
    let ccm = world.start();
    let ready = async |number: u8, when: &str| {
        let name = world.testbed.join(number);
        world.until(&format!("{when}: the node is initialised"), |_| is_ready(&world.node(&name))).await;
    };
    let renewed = async |times: usize| {
        let seen = || ccm.log().matches("credentials were read anew").count();
        world.until(&format!("certificates were read anew {times} times"), |_| seen() >= times).await;
    };
    ready(1, "with the first certificates").await;
    let (_, metrics) = get(port, "/metrics").await.unwrap();
    // As rcgen issues them, to the year 4096.
    let end = "alicloud_ccm_expiry_timestamp_seconds{of=\"client certificate\"} 67090";
    assert!(metrics.contains(end), "{metrics}");

    // Renewed in two steps, as there are two files: between them certificate and key do not fit.
    let second = other_clients.sign();
    put(&folder, "client.crt", &second.certificate.pem());
    world.until("half of a change is not used", |_| ccm.log().contains("the old ones stay")).await;
    ready(2, "with half of a change").await;
    put(&folder, "client.key", &second.key.serialize_pem());
    renewed(1).await;
    front.change(&server, Some(&other_clients));
    ready(3, "with the second client certificate").await;

    // A new authority of the server: trusted beside the old one first, then alone.
    let other_server = other_servers.sign();
    put(&folder, "ca.crt", &(servers.certificate.pem() + &other_servers.certificate.pem()));
    renewed(2).await;
    front.change(&other_server, Some(&other_clients));
    ready(4, "with the second authority").await;

    // Too late: it is locked out, says so, and comes back by itself.
    front.change(&other_server, Some(&last_clients));
    world
        .until_so("it says that it is locked out", || async {
            get(port, "/readyz").await.is_some_and(|(status, text)| status == 503 && text.contains("[-]kubernetes"))
        })
        .await;
    let last = last_clients.sign();
    let inside = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    put(
        &folder,
        "kubeconfig",
        &kubeconfig(
            front.port,
            &format!("certificate-authority-data: {}", inside(other_servers.certificate.pem())),
            &format!(
                "client-certificate-data: {}, client-key-data: {}",
                inside(last.certificate.pem()),
                inside(last.key.serialize_pem())
            ),
        ),
    );
    renewed(3).await;
    ready(5, "with certificates inside of the kubeconfig").await;
    let log = ccm.log();
    assert_eq!((log.matches("starting anew").count(), log.matches("started job=").count()), (0, 2), "{log}");
    assert!(!log.contains("PRIVATE KEY"));
    assert!(ccm.stop().await.success());
}

/// What a pod finds: its service account, the address of the API server, and the volume of a ConfigMap.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_on_with_its_new_token_authority_and_configuration() {
    let world = World::new(&["node"], HASTE).await;
    let (servers, other_servers) = (Authority::new(), Authority::new());
    let server = servers.sign();
    world.testbed.cluster.admit("first-token", "ccm");
    let front = Front::before(&address_of(&world), &server, None);
    let port = front.port.to_string();
    let variables = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", port.as_str())];
    let secret = world.folder().join("access-key-secret").display().to_string();
    let config = std::fs::read_to_string(world.config())
        .unwrap()
        .replace("kubeconfig = \"kubeconfig\"\n", "")
        .replace("\"access-key-secret\"", &format!("{secret:?}"));
    let (account, mounted) = (world.folder().join("serviceaccount"), world.folder().join("config"));
    project(&mounted, &[("alicloud-ccm.toml", &config)]);
    let authority = servers.certificate.pem();
    project(&account, &[("token", "first-token"), ("ca.crt", &authority), ("namespace", "kube-system")]);

    let own_mounts = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "probe", "/mnt"]).output();
    if !own_mounts.is_ok_and(|probed| probed.status.success()) {
        // Nobody but root can say where a service account is.
        std::fs::write(world.config(), config).unwrap();
        let ccm = world.start_with(&[], &variables);
        world.until("it looks there", |_| ccm.log().contains("the service account of this pod cannot be used")).await;
        return;
    }
    let script = format!(
        "run=$(readlink -f /var/run) && mount -t tmpfs run \"$run\" && mkdir -p \"$run/secrets/kubernetes.io\" && \
         ln -s {} \"$run/secrets/kubernetes.io/serviceaccount\"",
        account.display()
    );
    let ccm = world.start_after(&script, &mounted.join("alicloud-ccm.toml"), &variables);
    let ready = async |number: u8, when: &str| {
        let name = world.testbed.join(number);
        world.until(&format!("{when}: the node is initialised"), |_| is_ready(&world.node(&name))).await;
    };
    ready(1, "with the first token").await;

    world.testbed.cluster.admit("second-token", "ccm");
    let authority = other_servers.certificate.pem();
    project(&account, &[("token", "second-token"), ("ca.crt", &authority), ("namespace", "kube-system")]);
    world.until("it is read anew", |_| ccm.log().contains("credentials were read anew")).await;
    world.testbed.cluster.revoke("first-token");
    front.change(&other_servers.sign(), None);
    ready(2, "with the second token and authority").await;

    project(&mounted, &[("alicloud-ccm.toml", &config.replace("[\"node\"]", "[\"node\", \"service\"]"))]);
    world.until("the new configuration is used", |_| ccm.log().contains("started: service")).await;
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!(ccm.log().matches("starting anew").count(), 0);
    assert!(ccm.stop().await.success());
}
