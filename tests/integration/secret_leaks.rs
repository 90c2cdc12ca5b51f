//! A secret is in memory and in the signatures made with it, and nowhere else.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use sim::cluster::Version;
use sim::collector::Collector;
use sim::testbed::{ACCESS_KEY, Testbed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::doctor::unpacked;
use crate::end_state::Row;
use crate::harness::{ALL, HASTE, World, address, free_port, is_ready};

/// Occurs in every secret, and nowhere else.
const CANARY: &str = "Canary7Tz4Qx";
const KEY: &str = "LTAIcanary";
const ALONE: &str = "[leader_election]\nenabled = false\n[log]\nlevel = \"trace\"\n";

/// A way to give credentials: how the configuration's section becomes another, the files, and the environment.
struct Kind {
    name: &'static str,
    section: &'static str,
    files: &'static [(&'static str, &'static str)],
    environment: &'static [(&'static str, &'static str)],
    session: bool,
}

const SECRET: &str = "Canary7Tz4QxSecret";
const TOKEN: &str = "Canary7Tz4QxToken";

const KINDS: [Kind; 8] = [
    Kind {
        name: "a secret in the configuration",
        section: "access_key_id = \"LTAIcanary\"\naccess_key_secret = \"Canary7Tz4QxSecret\"",
        files: &[],
        environment: &[],
        session: false,
    },
    Kind {
        name: "a secret in a file",
        section: "access_key_id = \"LTAIcanary\"\naccess_key_secret_file = \"secret\"",
        files: &[("secret", SECRET)],
        environment: &[],
        session: false,
    },
    Kind {
        name: "a temporary key in files",
        section: "access_key_id = \"LTAIcanary\"\naccess_key_secret_file = \"secret\"\nsecurity_token_file = \"token\"",
        files: &[("secret", SECRET), ("token", TOKEN)],
        environment: &[],
        session: true,
    },
    Kind {
        name: "a secret in the environment",
        section: "",
        files: &[],
        environment: &[("ALIBABA_CLOUD_ACCESS_KEY_ID", KEY), ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", SECRET)],
        session: false,
    },
    Kind {
        name: "a temporary key in the environment",
        section: "",
        files: &[],
        environment: &[
            ("ALIBABA_CLOUD_ACCESS_KEY_ID", KEY),
            ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", SECRET),
            ("ALIBABA_CLOUD_SECURITY_TOKEN", TOKEN),
        ],
        session: true,
    },
    Kind {
        name: "a role assumed with a key",
        section: "access_key_id = \"LTAIcanary\"\naccess_key_secret_file = \"secret\"\nrole_arn = \"acs:ram::1234567890123456:role/ccm\"",
        files: &[("secret", SECRET)],
        environment: &[],
        session: false,
    },
    Kind {
        name: "a role assumed with the token of a service account",
        section: "role_arn = \"acs:ram::1234567890123456:role/ccm\"\noidc_provider_arn = \"acs:ram::1234567890123456:oidc-provider/ack\"\noidc_token_file = \"token\"",
        files: &[("token", TOKEN)],
        environment: &[],
        session: false,
    },
    Kind {
        name: "the role of the instance",
        section: "instance_role = \"ccm\"",
        files: &[],
        environment: &[],
        session: false,
    },
];

fn private(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A testbed that knows the canary key and asks for a canary token, and the configuration for it.
async fn world(kind: &Kind) -> World {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.cloud.edit(|cloud| {
        *cloud = cloud.clone().with_key(KEY, SECRET).with_role("ccm");
        cloud.oidc_token = Some(TOKEN.to_owned());
        cloud.add_instance("i-self", "self", "vsw-i", "192.168.0.250");
        cloud.metadata.instance = Some("i-self".to_owned());
        cloud.metadata.role = Some("ccm".to_owned());
        cloud.metadata.token_required = true;
        if kind.session {
            let key = cloud.keys.get_mut(KEY).unwrap();
            key.token = Some(TOKEN.to_owned());
        }
    });
    testbed.cluster.admit("Canary7Tz4QxBearer", "system:serviceaccount:kube-system:ccm");
    let world = World::of(testbed, ALL, &format!("{HASTE}{ALONE}"));
    let text = std::fs::read_to_string(world.config()).unwrap();
    let given = "access_key_id = \"LTAIplayground\"\naccess_key_secret_file = \"access-key-secret\"";
    assert!(text.contains(given), "{text}");
    let port = free_port();
    let text = text.replace(given, kind.section).replace("port = 0", &format!("port = {port}"));
    private(&world.config(), &text, 0o600);
    for (name, secret) in kind.files {
        private(&world.folder().join(name), secret, 0o600);
    }
    world
}

async fn page(port: u16, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

async fn leaks(kind: &Kind) -> (usize, Vec<String>) {
    let world = world(kind).await;
    let collector = Collector::open().await.unwrap();
    let headers = format!("headers = {{ authorization = \"Bearer {CANARY}\" }}");
    world.rewrite(|text| format!("{text}[traces]\nendpoint = {:?}\n{headers}\n", collector.url()));
    let text = std::fs::read_to_string(world.config()).unwrap();
    let port = text.lines().find_map(|line| line.strip_prefix("port = ")).unwrap().parse().unwrap();
    let ccm = world.start_with(&[], kind.environment);
    for number in 1..=2 {
        world.testbed.join(number);
    }
    world.testbed.cloud.faults().random(7, 0.2);
    world.testbed.expose("web", &[80], &["node-1", "node-2"], &[]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.testbed.cloud.faults().clear();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", ccm.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "core dumps are off: {core}");

    let mut secrets = secrets_of(&world);

    // A refused key, and a file that cannot be read, are logged as well.
    world.testbed.cloud.edit(|cloud| cloud.keys.clear());
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut seen = vec![("log".to_owned(), String::new())];
    for path in ["/", "/metrics", "/configz", "/readyz", "/readyz?verbose", "/livez", "/debug/objects"] {
        seen.push((path.to_owned(), page(port, path).await));
    }
    let bundle = world.folder().join("bundle.tar.gz");
    let commands: [&[&str]; 7] = [
        &["plan"],
        &["check"],
        &["gc"],
        &["explain", "default/web"],
        &["doctor"],
        &["doctor", "--output", "json"],
        &["doctor", "--bundle", bundle.to_str().unwrap()],
    ];
    for command in commands {
        let output = world.run_with(command, kind.environment).await;
        let text = [output.stdout, output.stderr].concat();
        seen.push((command.join(" "), String::from_utf8_lossy(&text).into_owned()));
    }
    seen.push(("traces".to_owned(), collector.bodies()));
    assert!(collector.headers().iter().any(|headers| headers.contains_key("authorization")), "the header is sent");
    seen.extend(unpacked(&bundle).into_iter().map(|(name, text)| (format!("doctor --bundle, {name}"), text)));
    for kind in ["Event", "Node", "Service", "Lease"] {
        for object in world.testbed.cluster.list(kind) {
            seen.push((kind.to_owned(), object.to_string()));
        }
    }
    assert!(ccm.stop().await.success());
    secrets.extend(secrets_of(&world));
    seen[0].1 = world.logs();
    assert!(seen[0].1.contains("TRACE") || seen[0].1.contains("DEBUG"), "the log tells everything");
    let leaks = seen.iter().flat_map(|(place, text)| {
        let found = secrets.iter().find_map(|secret| text.find(secret.as_str()));
        found.map(|at| {
            let from = &text.as_bytes()[at.saturating_sub(80)..];
            let around: String = String::from_utf8_lossy(from).chars().take(160).collect();
            format!("{}, {place}: {around}", kind.name)
        })
    });
    (seen.len(), leaks.collect())
}

/// Every secret that the cloud knows by now, those of sessions included.
fn secrets_of(world: &World) -> BTreeSet<String> {
    world.testbed.cloud.look(|cloud| {
        let keys = cloud.keys.values().flat_map(|key| [Some(key.secret.clone()), key.token.clone()]);
        let metadata = cloud.metadata.tokens.keys().cloned();
        let all = keys.flatten().chain(metadata).chain([CANARY.to_owned()]);
        all.filter(|secret| secret != ACCESS_KEY.1).collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_leaves_the_memory() {
    let all = futures::future::join_all(KINDS.iter().map(leaks)).await;
    let looked_at: usize = all.iter().map(|(count, _)| count).sum();
    let leaks: Vec<String> = all.into_iter().flat_map(|(_, leaks)| leaks).collect();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    Row {
        tried: "a secret in every kind of credentials, with every log line and with faults",
        test: "secret_leaks::no_secret_leaves_the_memory",
        numbers: vec![("kinds", KINDS.len()), ("logs, pages, outputs and objects searched", looked_at)],
        lost: 0,
    }
    .write();
}

/// A system without random numbers makes the process panic while it signs, with the secret in its hands.
#[tokio::test(flavor = "multi_thread")]
async fn no_panic_message_contains_a_secret() {
    let world = world(&KINDS[2]).await;
    let (library, file) = (world.clock_library(), world.folder().join("no-random-numbers"));
    let (library, file_name) = (library.display().to_string(), file.display().to_string());
    let environment =
        [("LD_PRELOAD", library.as_str()), ("RANDOM_FAILS_FILE", file_name.as_str()), ("RUST_BACKTRACE", "full")];
    let ccm = world.start_with(&[], &environment);
    world.testbed.join(1);
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    std::fs::write(&file, "").unwrap();
    world.testbed.join(2);
    world.until_so("it panics", async || ccm.log().contains("a defect of this program")).await;
    std::fs::remove_file(&file).unwrap();
    world.until("it goes on", |_| is_ready(&world.node("node-2"))).await;
    drop(ccm);
    let (log, secrets) = (world.logs(), secrets_of(&world));
    assert!(log.contains("panic at ") && log.contains("alibaba::rpc"), "where it was is reported: {log}");
    assert!(!secrets.iter().any(|secret| log.contains(secret.as_str())), "{log}");
    assert!(secrets.contains(SECRET) && secrets.contains(TOKEN), "they were in use");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_files_that_others_can_read_are_refused() {
    let world = world(&KINDS[1]).await;
    assert!(world.run(&["check"]).await.status.success());
    private(&world.folder().join("secret"), SECRET, 0o644);
    let output = world.run(&["check"]).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("secret") && text.contains("allow_readable_files"), "{text}");
    assert!(!text.contains(CANARY), "{text}");
    let output = world.run(&["check", "--set", "cloud.credentials.allow_readable_files=true"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
