//! The HTTP server on other addresses than loopback: TLS, tokens, and hostile clients.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sim::cloud::Fault;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::deploy::variables_of_the_pods;
use crate::doctor::unpacked;
use crate::end_state::Row;
use crate::harness::{ALL, HASTE, World, address, free_port, is_ready};

const ALONE: &str = "[leader_election]\nenabled = false\n";
/// Whose owner may read the metrics, and nothing else.
const TOKEN: &str = "Canary7Tz4QxOfAScraper";
/// Whose owner may read why the process is not ready.
const DOCTOR: &str = "Canary7Tz4QxOfADoctor";
/// Whose owner may read the page for people, and nothing else.
const VIEWER: &str = "Canary7Tz4QxOfAViewer";
const STRANGER: &str = "token-of-nobody-in-particular";

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Puts a certificate for this machine, and its key, where the configuration looks for them.
fn certify(world: &World) -> RootCertStore {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(world.folder().join("tls.crt"), cert.pem()).unwrap();
    private(&world.folder().join("tls.key"), &signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    roots
}

fn connector(roots: RootCertStore) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// As the kubelet, and as Prometheus with `insecure_skip_verify`: takes any certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Over TLS with the certificate that the program makes itself, which nobody can verify.
pub(crate) async fn unverified(server: (&str, u16), path: &str, token: &str) -> Option<(u16, String)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let stream = TcpStream::connect(server).await.ok()?;
    ask(connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()?, path, token).await
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, token: &str) -> Option<(u16, String)> {
    let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    // Who is cut off in the middle has no answer; a missing farewell of TLS does not matter.
    let _ = stream.read_to_string(&mut text).await;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}

pub(crate) async fn plainly(port: u16, path: &str, token: &str) -> Option<(u16, String)> {
    ask(TcpStream::connect(("127.0.0.1", port)).await.ok()?, path, token).await
}

async fn over_tls(connector: &TlsConnector, port: u16, path: &str, token: &str) -> Option<(u16, String)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()?;
    ask(stream, path, token).await
}

#[tokio::test(flavor = "multi_thread")]
async fn opened_to_others_it_speaks_tls_and_asks_who_they_are() {
    let world = World::new(ALL, &format!("{HASTE}{ALONE}")).await;
    world.testbed.cluster.let_read(TOKEN, "scraper", &["/metrics"]);
    world.testbed.cluster.let_read(DOCTOR, "doctor", &["/readyz"]);
    world.testbed.cluster.let_read(VIEWER, "viewer", &["/"]);
    let connector_of = |roots| connector(roots);
    let first = connector_of(certify(&world));
    let port = free_port();
    world.edit(|text| {
        let server = format!(
            "address = \"0.0.0.0\"\nport = {port}\ntls_cert_file = \"tls.crt\"\ntls_key_file = \"tls.key\"\nauthorization = true"
        );
        text.replace("port = 0", &server).replace("[leader_election]", "[log]\nlevel = \"trace\"\n[leader_election]")
    });
    let ccm = world.start();
    let answers = async || over_tls(&first, port, "/readyz", "").await.is_some_and(|(status, _)| status == 200);
    world.until_so("it is ready, over TLS", answers).await;

    for path in ["/livez", "/healthz", "/readyz", "/readyz?verbose"] {
        assert_eq!(over_tls(&first, port, path, "").await.unwrap().0, 200, "{path} is for everybody");
    }
    let status = async |path: &str, token: &str| over_tls(&first, port, path, token).await.unwrap().0;
    assert_eq!((status("/metrics", "").await, status("/metrics", STRANGER).await), (401, 401));
    let (status_of_metrics, metrics) = over_tls(&first, port, "/metrics", TOKEN).await.unwrap();
    assert!(
        status_of_metrics == 200 && metrics.contains("expiry_timestamp_seconds{of=\"server certificate\"}"),
        "{metrics}"
    );
    for path in ["/configz", "/debug/objects"] {
        assert_eq!((status(path, TOKEN).await, status(path, "").await), (403, 401), "{path}");
    }
    assert_eq!([status("/", "").await, status("/", STRANGER).await, status("/", TOKEN).await], [401, 401, 403]);
    let (status_of_page, page) = over_tls(&first, port, "/", VIEWER).await.unwrap();
    assert!(status_of_page == 200 && page.contains("<h1>alicloud-ccm</h1>"), "{page}");
    let (_, refusal) = over_tls(&first, port, "/", "").await.unwrap();
    assert!(refusal.to_lowercase().contains("www-authenticate: basic"), "a browser asks its user: {refusal}");
    assert!(!matches!(plainly(port, "/livez", "").await, Some((200, _))), "plain HTTP is not spoken");
    assert!(over_tls(&connector_of(RootCertStore::empty()), port, "/livez", "").await.is_none(), "and is verifiable");
    for token in ["", STRANGER, TOKEN] {
        let (status, page) = over_tls(&first, port, "/readyz", token).await.unwrap();
        let (_, states) = page.split_once("\r\n\r\n").unwrap();
        let whole = |line: &str| line.starts_with("[+]") && line.ends_with(" ok") || line == "readyz check passed";
        assert!(status == 200 && states.lines().count() > 2 && states.lines().all(whole), "states alone: {states}");
    }
    let (status, page) = over_tls(&first, port, "/readyz", DOCTOR).await.unwrap();
    assert!(status == 200 && page.contains("[+]leader ok: this replica leads"), "and what they are about: {page}");
    let reviews = world.testbed.cluster.count("create", "tokenreviews");
    assert!((1..=11).contains(&reviews), "{reviews} questions");

    // The key of another certificate is refused, and the previous one stays in use; a new pair is served at once.
    let before = std::fs::read_to_string(world.folder().join("tls.crt")).unwrap();
    let second = connector_of(certify(&world));
    let renewed = async || over_tls(&second, port, "/livez", "").await.is_some();
    world.until_so("the new certificate is served", renewed).await;
    std::fs::write(world.folder().join("tls.crt"), before).unwrap();
    world.until_so("the mismatch is reported", async || ccm.log().contains("does not fit tls_key_file")).await;
    assert!(renewed().await, "{}", ccm.log());

    let log = ccm.log();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "everything is logged");
    assert!(
        ![TOKEN, DOCTOR, VIEWER].iter().any(|token| log.contains(token)) && !log.contains("PRIVATE KEY"),
        "a token or a key is in the log"
    );
    let configz = format!("{:?}", world.testbed.cluster.list("Event"));
    assert!(!configz.contains(TOKEN) && !configz.contains("PRIVATE KEY"));
    assert!(ccm.stop().await.success());
    Row {
        tried: "the HTTP server opened: pages with and without token, with and without TLS, another certificate",
        test: "http_server::opened_to_others_it_speaks_tls_and_asks_who_they_are",
        numbers: vec![("pages", 7), ("pages served to clients without the right to read them", 0)],
        lost: 0,
    }
    .write();
}

/// With the variables of the shipped pods, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn as_installed_it_encrypts_asks_for_tokens_and_answers_commands_beside_it() {
    let world = World::new(ALL, &format!("{HASTE}{ALONE}")).await;
    let cluster = &world.testbed.cluster;
    cluster.let_read(TOKEN, "scraper", &["/metrics"]);
    let denied = Fault::Refuse(403, "Forbidden.RAM".to_owned(), "User not authorized".to_owned());
    world.testbed.cloud.faults().always("CreateLoadBalancer", denied);
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let port = world.serve_health();
    let variables = variables_of_the_pods();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let ccm = world.start_with(&[], &variables);
    let ask = async |path: &str, token: &str| unverified(("127.0.0.1", port), path, token).await;
    world.until_so("it is ready", async || ask("/readyz", "").await.is_some_and(|(status, _)| status == 200)).await;
    let (status, metrics) = ask("/metrics", TOKEN).await.unwrap();
    assert!(status == 200 && metrics.contains("alicloud_ccm_"), "{metrics}");
    assert!(!metrics.contains("of=\"server certificate\""), "this one never ends: {metrics}");
    let status = async |path: &str, token: &str| ask(path, token).await.unwrap().0;
    assert_eq!([status("/metrics", "").await, status("/", "").await, status("/configz", TOKEN).await], [401, 401, 403]);
    assert!(!matches!(plainly(port, "/livez", "").await, Some((200, _))), "plain HTTP is not spoken");

    // As `kubectl exec` runs them, in the same container.
    let command = async |words: &[&str]| {
        let output = world.run_with(words, &variables).await;
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let told = async || command(&["explain", "default/web"]).await.contains("code Forbidden.RAM, request ");
    world.until_so("explain has what the process reports", told).await;
    let page = command(&["explain", "default/web"]).await;
    assert!(page.contains("Process on this machine\n  this replica leads\n  service: out_of_sync since 20"), "{page}");
    let bundle = world.folder().join("bundle.tar.gz");
    let judged = async || {
        let page = command(&["doctor", "--bundle", bundle.to_str().unwrap()]).await;
        page.contains("error    process: a check of the running process fails")
    };
    world.until_so("doctor judges /readyz", judged).await;
    let pages = unpacked(&bundle);
    let has = |name: &str, part: &str| pages.iter().any(|(page, text)| page == name && text.contains(part));
    assert!(has("metrics.txt", "alicloud_ccm_") && has("objects.txt", "default/web"), "{pages:?}");
    as_another_user(&world, port).await;

    // Without the right to ask for reviews, nobody gets a page; the log and `doctor` say which right it is.
    cluster.deny("kubernetes-admin", "create", "tokenreviews");
    let refused = async || ask("/metrics", "another-token").await.is_some_and(|(status, _)| status == 503);
    world.until_so("tokens cannot be reviewed", refused).await;
    assert!(refused().await);
    let log = ccm.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("ACCM0731")).collect();
    assert!(lines.len() == 1 && lines[0].contains("needs the verb create on tokenreviews"), "once: {lines:?}");
    let page = command(&["doctor"]).await;
    assert!(page.contains("rbac: ") && page.contains("create tokenreviews.authentication.k8s.io"), "{page}");
    assert!(ccm.stop().await.success());
}

/// The socket for commands on the machine answers root and the own user alone. Only root can be somebody else.
async fn as_another_user(world: &World, port: u16) {
    use std::os::unix::{fs::chown, process::CommandExt as _};
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    world.testbed.write_config(folder.path(), &["node"], "").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| chown(file.unwrap().path(), Some(NOBODY), None));
    if files.collect::<Result<Vec<_>, _>>().is_err() {
        return;
    }
    let ask = async |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
        command.env_clear().args(arguments).args(["--set", &format!("server.port={port}"), "--config"]);
        command.arg(folder.path().join("alicloud-ccm.toml")).uid(NOBODY).gid(NOBODY);
        let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        (String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap(), ended.status.code())
    };
    let (said, _) = ask(&["doctor"]).await;
    let refusal = "answers root and its own user alone";
    assert!(said.contains("process: no process answers") && said.contains(refusal), "{said}");
    let (said, code) = ask(&["explain", "node/node-1"]).await;
    assert!(said.contains(refusal) && code != Some(1), "what the process knows is beside the object: {code:?} {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_needs_its_key_and_keys_are_kept() {
    let world = World::new(&["node"], ALONE).await;
    certify(&world);
    let check = async |settings: &[&str]| {
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let output = world.run(&[&["check"], arguments.as_slice()].concat()).await;
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let tls = ["server.tls_cert_file=tls.crt", "server.tls_key_file=tls.key"];
    assert_eq!(check(&["server.authorization=true", "server.address=0.0.0.0", tls[0], tls[1]]).await.0, Some(0));
    let (code, text) = check(&tls[..1]).await;
    assert!(code == Some(1) && text.contains("server.tls_key_file"), "{text}");
    assert!(text.ends_with("1 problem in the configuration (ACCM0004)\n"), "with the code of the manual: {text}");
    let key = world.folder().join("tls.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = check(&tls).await;
    assert!(code == Some(1) && text.contains("others may read") && !text.contains("PRIVATE KEY"), "{text}");
    assert_eq!(check(&[tls[0], tls[1], "cloud.credentials.allow_readable_files=true"]).await.0, Some(0));
}

/// Hundreds of clients hang on without asking, ask for pages without end, send heads without end; meanwhile nodes join and a
/// Service gets its load balancer, and a probe is answered.
#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_and_floods_do_not_stop_the_work() {
    let world = World::new(ALL, &format!("{HASTE}{ALONE}")).await;
    let ccm = world.start_serving();
    ccm.until_page("/readyz", |status, _| status == 200).await;
    let port = ccm.port();
    let mut attack = JoinSet::new();
    for number in 0..300_u32 {
        attack.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let mut buffer = [0; 4096];
                match number % 3 {
                    // Says nothing.
                    0 => drop(stream.read(&mut buffer).await),
                    // Asks slowly, or for ever.
                    1 => {
                        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Long: ").await;
                        while stream.write_all(&[b'a'; 512]).await.is_ok() {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                    }
                    // Asks again and again.
                    _ => {
                        for _ in 0..20 {
                            let asked = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
                            if asked.is_err() || !matches!(stream.read(&mut buffer).await, Ok(1..)) {
                                break;
                            }
                        }
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
            }
        });
    }
    for number in 1..=3 {
        world.testbed.join(number);
    }
    world.testbed.expose("web", &[80, 443], &["node-1", "node-2"], &[]);
    world
        .until("the work is done", |_| {
            (1..=3).all(|number| is_ready(&world.node(&format!("node-{number}"))))
                && address(&world.service("web")).is_some()
        })
        .await;
    // On a busy machine, attackers and probes wait for the same processors.
    let (mut answered, mut probes) = (0, 0);
    while answered < 10 && probes < 200 {
        probes += 1;
        answered += usize::from(plainly(port, "/livez", "").await.is_some_and(|(status, _)| status == 200));
    }
    assert_eq!(answered, 10, "of {probes} probes\n{}", ccm.log());
    let memory = std::fs::read_to_string(format!("/proc/{}/status", ccm.id())).unwrap();
    let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 200_000, "{kilobytes} kB");
    attack.shutdown().await;
    ccm.until_page("/readyz", |status, _| status == 200).await;
    assert!(ccm.stop().await.success());
    Row {
        tried: "clients of the HTTP server that hold connections or send requests without end, while nodes join and a Service is exposed",
        test: "http_server::slow_clients_and_floods_do_not_stop_the_work",
        numbers: vec![("clients", 300)],
        lost: 0,
    }
    .write();
}
