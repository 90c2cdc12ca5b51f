//! Certificates that are changed on disk while the process runs: it outlives all of them.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::kit::{HASTE, World, get, is_ready};

/// Signs certificates.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
struct Identity {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    fn sign(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        Identity { certificate: parameters.signed_by(&key, &self.issuer).unwrap(), key }
    }
}

/// TLS in front of a server that has none. Who is let in, and who it says that it is, can change.
struct Front {
    port: u16,
    config: Arc<RwLock<Arc<ServerConfig>>>,
    /// Counts how often all connections were cut.
    cut: watch::Sender<u32>,
}

impl Front {
    async fn before(target: &str, identity: &Identity, clients: &Authority) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
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
    fn change(&self, identity: &Identity, clients: &Authority) {
        *self.config.write() = tls(identity, clients);
        self.cut.send_modify(|count| *count += 1);
    }
}

fn tls(identity: &Identity, clients: &Authority) -> Arc<ServerConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    roots.add(clients.certificate.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let key = PrivateKeyDer::Pkcs8(identity.key.serialize_der().into());
    let chain = vec![identity.certificate.der().clone()];
    let mut config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
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

fn kubeconfig(port: u16, authority: &str, user: &str) -> String {
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
    let plain = std::fs::read_to_string(folder.join("kubeconfig")).unwrap();
    let target = plain.split("http://").nth(1).unwrap().split(['"', '\n', '\'']).next().unwrap().to_owned();
    let [servers, other_servers, clients, other_clients, last_clients] = [(); 5].map(|()| Authority::new());
    let (server, client) = (servers.sign(), clients.sign());
    let front = Front::before(&target, &server, &clients).await;
    let files = "client-certificate: client.crt, client-key: client.key";
    put(&folder, "kubeconfig", &kubeconfig(front.port, "certificate-authority: ca.crt", files));
    put(&folder, "ca.crt", &servers.certificate.pem());
    put(&folder, "client.crt", &client.certificate.pem());
    put(&folder, "client.key", &client.key.serialize_pem());
    let port = world.serve_health();
    let ccm = world.start();
    let ready = async |number: u8, when: &str| {
        let name = world.stage.join(number);
        world.until(&format!("{when}: the node is initialised"), |_| is_ready(&world.node(&name))).await;
    };
    let renewed = async |times: usize| {
        let seen = || ccm.log().matches("credentials were read anew").count();
        world.until(&format!("certificates were read anew {times} times"), |_| seen() >= times).await;
    };
    ready(1, "with the first certificates").await;

    // Renewed in two steps, as there are two files: between them certificate and key do not fit.
    let second = other_clients.sign();
    put(&folder, "client.crt", &second.certificate.pem());
    world.until("half of a change is not used", |_| ccm.log().contains("the old ones stay")).await;
    ready(2, "with half of a change").await;
    put(&folder, "client.key", &second.key.serialize_pem());
    renewed(1).await;
    front.change(&server, &other_clients);
    ready(3, "with the second client certificate").await;

    // A new authority of the server: trusted beside the old one first, then alone.
    let other_server = other_servers.sign();
    put(&folder, "ca.crt", &(servers.certificate.pem() + &other_servers.certificate.pem()));
    renewed(2).await;
    front.change(&other_server, &other_clients);
    ready(4, "with the second authority").await;

    // Too late: it is locked out, says so, and comes back by itself.
    front.change(&other_server, &last_clients);
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
