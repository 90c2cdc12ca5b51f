//! Every key of the file changes while the process runs: it is used from then on, by whom it concerns, and no other job
//! notices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use alicloud_ccm::config::keys;
use alicloud_ccm::reload::{Takes, effect_of};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde::Deserialize;
use serde_json::{Value, json};
use sim::cluster::Version;
use sim::testbed::{Testbed, instance};

use crate::harness::{ALL, Ccm, Gate, HASTE, PATIENCE, World, address, free_port, get_from};
use crate::http_server::unverified;
use crate::kinds::Kind;

/// What is seen of a change from outside.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Seen {
    /// Something in the calls to the cloud, after this has happened: action, parameter or caller.
    Call(After, String),
    /// A call that comes by way of one of [`Live::gates`], after this has happened.
    Gate(After),
    /// Something in the log.
    Log(String),
    /// Something in the Lease of the election.
    Lease(String),
    /// Something in the Endpoints object that is locked as well.
    Endpoints(String),
    /// An event about a new Service says so.
    Event(String),
    /// A Node that looks so.
    Node(String),
    /// What this path of the health server answers to a plain request.
    Answers(String, u16),
    /// There is no answer to it.
    NoAnswer(String),
    /// What it answers over TLS.
    AnswersOverTls(String, u16),
    /// The file is rejected: two replicas would lead. What runs stays as it is.
    Refused,
    /// Every Service is looked at; what is remembered of the cloud may spare the calls.
    Look,
    /// It only bounds how fast or how long something goes, or decides about later changes of the file.
    Bound,
}

/// What lets the controllers act.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum After {
    Nothing,
    Node,
    Service,
    /// One that asks for an address in the VPC.
    IntranetService,
    /// One with a network load balancer.
    NetworkService,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The value that is tried; see [`Live::fill`].
    value: toml::Value,
    /// Other keys that have to be changed for it first. A name without a dot is of the same section.
    #[serde(default)]
    first: BTreeMap<String, toml::Value>,
    /// Other keys that have to go for it first.
    #[serde(default)]
    without: Vec<String>,
    seen: Seen,
    /// Whether the file goes back to what it was.
    #[serde(default)]
    back: bool,
}

/// A key that is newly in the schema stops here until the table knows it.
fn row_of(key: &str) -> Row {
    let rows = toml::Value::Table(include_str!("config_reload_keys.toml").parse().unwrap());
    let row = key.split('.').try_fold(&rows, |rows, part| rows.get(part));
    row.unwrap_or_else(|| panic!("no row about {key}")).clone().try_into().unwrap()
}

/// How long what happens may go unnoticed before it happens once more.
const AGAIN: Duration = Duration::from_secs(5);

/// Another access key of the account.
const SECOND: (&str, &str) = ("LTAIsecond", "second-secret");

/// The report of a changed file.
#[derive(Debug, Default)]
struct Told {
    changed: BTreeSet<String>,
    started: BTreeSet<String>,
    stopped: BTreeSet<String>,
    restarted: BTreeSet<String>,
}

impl Told {
    /// Out of the first whole line in the log about it.
    fn of(log: &str) -> Option<Self> {
        let (_, rest) = log.split_once("the changed configuration is in use; ")?;
        let line = rest.split_once('\n')?.0.split([' ', '"']).collect::<Vec<_>>().join(" ");
        let line = line.split(" hash").next()?;
        let mut reported = Self::default();
        for part in line.split("; ") {
            let (verb, names) = part.split_once(": ").unwrap_or((part, ""));
            let names = names.split(", ").map(|name| name.trim_matches([',', ' ']).to_owned()).collect();
            match verb {
                "changed" => reported.changed = names,
                "started" => reported.started = names,
                "stopped" => reported.stopped = names,
                "restarted" => reported.restarted = names,
                other => assert_eq!(other, "only the text of the file changed"),
            }
        }
        Some(reported)
    }
}

/// What there was before a change.
struct Before {
    /// Length of the log.
    logged: usize,
    /// Connections by way of one of [`Live::gates`].
    passed: usize,
    /// See [`Live::looks`].
    looks: u64,
}

/// A process whose file changes key by key.
struct Live {
    world: World,
    ccm: Ccm,
    /// The cloud, by other addresses: connections to one are used again.
    gates: [Gate; 4],
    /// A free port.
    port: u16,
    /// Where health is served at this moment.
    serving: (String, u16),
    server: String,
    account: String,
    settings: BTreeMap<String, String>,
    /// Jobs that have started and stopped so far.
    jobs: (usize, usize),
    nodes: AtomicU8,
}

impl Live {
    async fn start(controllers: &[&str]) -> Self {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.cloud.edit(|cloud| {
            let changed =
                std::mem::take(cloud).with_role("ccm").with_role("of-the-instance").with_key(SECOND.0, SECOND.1);
            *cloud = changed;
            cloud.oidc_token = Some("token".to_owned());
            cloud.metadata.role = Some("of-the-instance".to_owned());
        });
        let account = testbed.cloud.look(|cloud| cloud.id.clone());
        let more = format!("{HASTE}disable_source_dest_check = false\nshutdown_taint = false\n");
        let world = World::of(testbed, controllers, &more);
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
        for (name, text) in [
            ("second-id", SECOND.0),
            ("second-secret", SECOND.1),
            ("token", "token"),
            ("tls.crt", &certificate),
            ("tls.key", &key),
        ] {
            let path = world.folder().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
        let kubeconfig = std::fs::read_to_string(world.folder().join("kubeconfig")).unwrap();
        std::fs::write(world.folder().join("kubeconfig-2"), &kubeconfig).unwrap();
        let server = kubeconfig.split("server:").nth(1).unwrap().split_whitespace().next().unwrap();
        let server = server.trim_matches(['"', '\'', ',', '}']).to_owned();
        let other = with_another_context(&kubeconfig);
        std::fs::write(world.folder().join("kubeconfig"), other).unwrap();
        let mut gates = [(); 4].map(|()| Gate::closed(&world.testbed.cloud_address()));
        for gate in &mut gates {
            gate.open().await;
        }
        let port = world.serve_health();
        let settings = flat(&std::fs::read_to_string(world.config()).unwrap());
        let ccm = world.start();
        world.testbed.join(1);
        world.testbed.join(2);
        world.testbed.expose("first", &[80], &["node-1"], &[]);
        if controllers.contains(&"nlb") {
            Kind::Nlb.expose(&world.testbed, "first-network", &[80], &[1]);
        }
        world.until("it works", |_| address(&world.service("first")).is_some()).await;
        let jobs = (ccm.log().matches("started job=").count(), 0);
        let serving = ("127.0.0.1".to_owned(), port);
        let port = free_port();
        let nodes = AtomicU8::new(3);
        Self { world, ccm, gates, port, serving, server, account, settings, jobs, nodes }
    }

    /// Writes the file and waits until it is used; gives what is reported of it.
    async fn write(&mut self) -> Told {
        let text: String = self.settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let logged = self.ccm.log().len();
        self.world.edit(|_| text);
        let unquoted = |key: &str| self.settings.get(key).map(|value| value.trim_matches('"'));
        let port = unquoted("server.port").unwrap().parse().unwrap();
        self.serving = (unquoted("server.address").unwrap_or("127.0.0.1").to_owned(), port);
        let reported = || Told::of(&self.ccm.log()[logged..]);
        self.world.until(&format!("the file is used: {:?}", self.settings), |_| reported().is_some()).await;
        let reported = reported().unwrap();
        self.jobs.0 += reported.started.len() + reported.restarted.len();
        self.jobs.1 += reported.stopped.len() + reported.restarted.len();
        reported
    }

    /// A value as the file has it, with the addresses, files and the account of this world.
    fn fill(&self, value: &toml::Value) -> String {
        let folder = self.world.folder().to_str().unwrap();
        let text = value.to_string().replace("{folder}", folder).replace("{account}", &self.account);
        let text = text.replace("{role}", &format!("acs:ram::{}:role/ccm", self.account));
        let text = text.replace("{server}", &self.server).replace("\"{port}\"", &self.port.to_string());
        let gate = |text: String, (number, gate): (usize, &Gate)| {
            text.replace(&format!("{{gate{number}}}"), &format!("127.0.0.1:{}", gate.port))
        };
        self.gates.iter().enumerate().fold(text, gate)
    }

    fn set(&mut self, key: &str, value: Option<String>) {
        match value {
            Some(value) => self.settings.insert(key.to_owned(), value),
            None => self.settings.remove(key),
        };
    }

    async fn happen(&self, after: After) -> String {
        let number = self.nodes.fetch_add(1, Ordering::Relaxed);
        let name = format!("s{number}");
        match after {
            After::Nothing => {}
            After::Node => drop(self.world.testbed.join(number)),
            After::Service => self.world.testbed.expose(&name, &[80], &["node-1"], &[]),
            After::NetworkService => Kind::Nlb.expose(&self.world.testbed, &name, &[80], &[1]),
            After::IntranetService => {
                let intranet = ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type", "intranet");
                self.world.testbed.expose(&name, &[80], &["node-1"], &[intranet]);
            }
        }
        name
    }

    /// Changes one key and sees that it is refused, and that the former file is in use all the time.
    async fn is_refused(&mut self, key: &str, value: &str) {
        let lease = |testbed: &Testbed| testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default();
        let text = |settings: &BTreeMap<String, String>| -> String {
            settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
        };
        let (former, logged) = (text(&self.settings), self.ccm.log().len());
        self.world.edit(|_| format!("{former}{key} = {value}\n"));
        let refused = format!("{key} cannot change while the program runs");
        self.world.until(&refused, |_| self.ccm.log()[logged..].contains(&refused)).await;
        let renewed = |testbed: &Testbed| lease(testbed)["spec"]["renewTime"].clone();
        let before = renewed(&self.world.testbed);
        self.world.until("the lease is renewed", |testbed| renewed(testbed) != before).await;
        self.world.edit(|_| former);
        self.world.until("all is well", |_| self.ccm.log()[logged..].contains("the configuration is unchanged")).await;
        assert_eq!(effect_of(key).unwrap().takes, Takes::Refused);
    }

    /// Changes one key and sees that it counts, and for whom.
    async fn try_key(&mut self, key: &str) {
        let before = self.settings.clone();
        let Row { value, first, without, seen, back } = row_of(key);
        let value = self.fill(&value);
        if matches!(seen, Seen::Refused) {
            return self.is_refused(key, &value).await;
        }
        // All at once: only together may they be right, or make a difference.
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let first = first.iter().map(|(name, value)| (name, Some(self.fill(value))));
        let others: Vec<_> = first.chain(without.iter().map(|name| (name, None))).collect();
        let mut names = vec![key.to_owned()];
        for (name, value) in others {
            let name = if name.contains('.') { name.clone() } else { format!("{section}.{name}") };
            self.set(&name, value);
            names.push(name);
        }
        if matches!(seen, Seen::Node(_)) {
            self.world.testbed.cloud.stop_instance(&instance(2));
            self.world.testbed.cluster.set_ready("node-2", "Unknown").unwrap();
        }
        let _ = self.world.testbed.cloud.take_calls();
        let before_it = Before { logged: self.ccm.log().len(), passed: self.passed(), looks: self.looks(key).await };
        self.set(key, Some(value));
        let last = self.write().await;

        let row = effect_of(key).unwrap();
        let reported: BTreeSet<_> = names
            .iter()
            .map(String::as_str)
            // It says only what is acceptable.
            .filter(|name| *name != "cloud.credentials.allow_readable_files")
            .map(|name| if CREDENTIALS(name) { "cloud.credentials" } else { name })
            .collect();
        assert_eq!(last.changed.iter().map(String::as_str).collect::<BTreeSet<_>>(), reported, "{key}: {last:?}");
        assert_eq!(!last.restarted.is_empty(), row.takes == Takes::Reconnects, "{key}: {last:?}");
        let changes = !last.started.is_empty() || !last.stopped.is_empty();
        assert_eq!(changes, row.takes == Takes::StartsAndStops, "{key}: {last:?}");
        self.see(key, &seen, before_it).await;
        self.settle(key).await;
        if back {
            self.settings = before;
            self.write().await;
            self.settle(key).await;
        }
    }

    /// Waits until this is so of the names of what has happened. It happens again after a while: a reconcile that has begun when
    /// the file is taken over ends with the former settings.
    async fn until_after(&self, what: &str, after: After, is_so: impl Fn(&[String]) -> bool) {
        let began = Instant::now();
        let mut names = vec![];
        while (names.is_empty() || !is_so(&names)) && began.elapsed() < PATIENCE {
            names.push(self.happen(after).await);
            let happened = Instant::now();
            self.world.until(what, |_| is_so(&names) || happened.elapsed() > AGAIN).await;
        }
        self.world.until(what, |_| is_so(&names)).await;
    }

    async fn see(&self, key: &str, seen: &Seen, before: Before) {
        let Before { logged, passed, looks } = before;
        let (world, what) = (&self.world, format!("{key}: {seen:?}"));
        match seen {
            Seen::Call(after, text) => {
                let called = || world.testbed.cloud.calls().iter().any(|call| format!("{call:?}").contains(text));
                self.until_after(&what, *after, |_| called()).await;
            }
            Seen::Gate(after) => self.until_after(&what, *after, |_| self.passed() > passed).await,
            Seen::Log(text) => {
                // Whoever calls the cloud now finds out.
                let calls = CREDENTIALS(key) || key == "cloud.endpoints.scheme";
                let after = if calls { After::Node } else { After::Nothing };
                self.until_after(&what, after, |_| self.ccm.log()[logged..].contains(text)).await;
            }
            Seen::Lease(text) | Seen::Endpoints(text) => {
                let kind = if matches!(seen, Seen::Lease(..)) { "Lease" } else { "Endpoints" };
                let lock =
                    |testbed: &Testbed| testbed.cluster.get(kind, "kube-system", "ccm").unwrap_or_default().to_string();
                world.until(&what, |testbed| lock(testbed).contains(text)).await;
            }
            Seen::Event(text) => {
                let reported = |name: &String| world.events("Service", name).iter().any(|event| event.2.contains(text));
                self.until_after(&what, After::Service, |names| names.iter().any(reported)).await;
            }
            Seen::Node(text) => world.until(&what, |_| world.node("node-2").to_string().contains(text)).await,
            Seen::Answers(path, status) => {
                world.until_so(&what, || async { self.answer(path).await == Some(*status) }).await;
            }
            Seen::NoAnswer(path) => world.until_so(&what, || async { self.answer(path).await.is_none() }).await,
            Seen::AnswersOverTls(path, status) => {
                let server = (self.serving.0.as_str(), self.serving.1);
                let answer = async || unverified(server, path, "").await.is_some_and(|(answer, _)| answer == *status);
                world.until_so(&what, answer).await;
            }
            Seen::Look => world.until_so(&what, || async { self.looks(key).await > looks }).await,
            Seen::Bound | Seen::Refused => {}
        }
    }

    async fn answer(&self, path: &str) -> Option<u16> {
        get_from(&self.serving.0, self.serving.1, path).await.map(|(status, _)| status)
    }

    fn passed(&self) -> usize {
        self.gates.iter().map(Gate::count).sum()
    }

    /// How many reconciles of Services the controller has done whose section holds the key.
    async fn looks(&self, key: &str) -> u64 {
        let (_, text) = get_from(&self.serving.0, self.serving.1, "/metrics").await.unwrap_or_default();
        let controller = if NETWORK(key) { "nlb" } else { "service" };
        let start = format!("alicloud_ccm_reconciles_total{{controller=\"{controller}\"");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Waits until exactly the jobs that were named have started and stopped.
    async fn settle(&self, key: &str) {
        let log = || self.ccm.log();
        let jobs = || (log().matches("started job=").count(), log().matches("stopped job=").count());
        self.world.until(&format!("{key}: {:?} jobs started and stopped", self.jobs), |_| jobs() >= self.jobs).await;
        assert_eq!(jobs(), self.jobs, "{key}: no other job\n{}", log());
    }
}

/// The same cluster and user under another name.
fn with_another_context(kubeconfig: &str) -> String {
    let mut read: Value = crate::permissions::documents(kubeconfig).remove(0);
    let mut other = read["contexts"][0].clone();
    other["name"] = json!("other");
    read["contexts"].as_array_mut().unwrap().push(other);
    read.to_string()
}

/// The settings of a file, by key.
fn flat(text: &str) -> BTreeMap<String, String> {
    let file: toml::Table = text.parse().unwrap();
    let stated = |key: String| {
        let value =
            key.split('.').try_fold(toml::Value::Table(file.clone()), |value, part| value.get(part).cloned())?;
        Some((key, value.to_string()))
    };
    keys().into_iter().filter_map(stated).collect()
}

async fn try_all(controllers: &[&str], concerns: fn(&str) -> bool) {
    let mut live = Live::start(controllers).await;
    for key in keys().into_iter().filter(|key| concerns(key)) {
        live.try_key(&key).await;
    }
    assert!(!live.ccm.log().contains("ended abnormally"), "{}", live.ccm.log());
    assert!(live.ccm.stop().await.success());
}

const CREDENTIALS: fn(&str) -> bool = |key| key.starts_with("cloud.credentials.");
const CLOUD: fn(&str) -> bool = |key| key.starts_with("cloud.") && !CREDENTIALS(key);
const SERVICE: fn(&str) -> bool = |key| key.starts_with("service.");
const NETWORK: fn(&str) -> bool = |key| key.starts_with("nlb.");

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_the_credentials() {
    try_all(ALL, CREDENTIALS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_the_cloud() {
    try_all(ALL, CLOUD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_services() {
    try_all(ALL, SERVICE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_network_load_balancers() {
    try_all(&["node", "route", "service", "nlb"], NETWORK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_key() {
    try_all(ALL, |key| !CREDENTIALS(key) && !CLOUD(key) && !SERVICE(key) && !NETWORK(key)).await;
}
