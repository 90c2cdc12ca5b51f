//! Every key of the file changes while the process runs: it is used from then on, by whom it concerns, and no other job
//! notices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use alicloud_ccm::config::keys;
use alicloud_ccm::reload::{Takes, effect_of};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use sim::cluster::Version;
use sim::testbed::{Testbed, instance};

use crate::harness::{ALL, Ccm, Gate, HASTE, PATIENCE, World, address, free_port, get_from};
use crate::http_server::unverified;
use crate::kinds::Kind;

/// What is seen of a change from outside.
#[derive(Clone, Debug)]
enum Seen {
    /// Something in the calls to the cloud, after this has happened: action, parameter or caller.
    Call(After, &'static str),
    /// A call that comes by way of one of [`Live::gates`], after this has happened.
    Gate(After),
    /// Something in the log.
    Log(&'static str),
    /// Something in the lock of the election, found under this namespace and name.
    Lease(&'static str, &'static str, &'static str),
    /// Something in the Endpoints object that is locked as well.
    Endpoints(&'static str, &'static str, &'static str),
    /// An event about a new Service says so.
    Event(&'static str),
    /// A Node that looks so.
    Node(&'static str),
    /// What this path of the health server answers to a plain request; `None` if that is no answer.
    Answers(&'static str, Option<u16>),
    /// What it answers over TLS.
    AnswersOverTls(&'static str, u16),
    /// The file is rejected: two replicas would lead. What runs stays as it is.
    Refused,
    /// Every Service is looked at; what is remembered of the cloud may spare the calls.
    Look,
    /// It only bounds how fast or how long something goes, or decides about later changes of the file.
    Bound,
}

/// What lets the controllers act.
#[derive(Clone, Copy, Debug)]
enum After {
    Nothing,
    Node,
    Service,
    /// One that asks for an address in the VPC.
    IntranetService,
    /// One with a network load balancer.
    NetworkService,
}

struct Row {
    /// The value that is tried, as TOML; `None` leaves the key out.
    value: Option<String>,
    /// Other keys that have to be changed for it first.
    first: Vec<(&'static str, Option<String>)>,
    seen: Seen,
    /// Whether the file goes back to what it was.
    back: bool,
}

fn row(value: &str, seen: Seen) -> Row {
    Row { value: Some(value.to_owned()), first: Vec::new(), seen, back: false }
}

impl Row {
    fn first(mut self, key: &'static str, value: &str) -> Self {
        self.first.push((key, Some(value.to_owned())));
        self
    }

    fn without(mut self, key: &'static str) -> Self {
        self.first.push((key, None));
        self
    }

    fn back(self) -> Self {
        Self { back: true, ..self }
    }
}

const SPEC: &str = "service.defaults.instance_charge_type";

/// A key that is newly in the schema stops here until the table knows it.
#[expect(clippy::too_many_lines, reason = "a table")]
fn row_of(key: &str, live: &Live) -> Row {
    use After::{IntranetService, NetworkService, Node, Nothing, Service};
    use Seen::{Answers, AnswersOverTls, Bound, Call, Endpoints, Event, Gate, Lease, Log, Look, Refused};
    let text = |value: &str| format!("{value:?}");
    let folder = |name: &str| text(live.world.folder().join(name).to_str().unwrap());
    let by_gate = |number: usize| text(&format!("127.0.0.1:{}", live.gates[number].port));
    let role = |name: &str| text(&format!("acs:ram::{}:role/{name}", live.account));
    let provider = |name: &str| text(&format!("acs:ram::{}:oidc-provider/{name}", live.account));
    let pass = || Call(Nothing, "DescribeInstances");
    match key {
        "controllers" => row(r#"["node", "service"]"#, Log("stopped job=\"route\"")).back(),
        "cloud.budget_share" => row("0.4", Bound),
        "cloud.quotas" => row("{ CreateLoadBalancer = 120 }", Bound),
        "cloud.cluster_id" => row(&text("other-cluster"), Call(Service, "other-cluster")).back(),
        "cloud.cluster_tag" => row(&text("other.tag/key"), Call(Service, "other.tag/key")).back(),
        "cloud.resource_group_id" => row(&text("rg-other"), Call(Service, "rg-other")),
        "cloud.region" => row(&text("cn-beijing"), Log("connected region=\"cn-beijing\"")).back(),
        "cloud.vpc_id" => row(&text("vpc-other"), Log("vpc=\"vpc-other\"")).back(),
        "cloud.zone_id" => row(&text("cn-hangzhou-j"), Log("connected region")).back(),
        "cloud.timeout" => row(&text("19s"), Bound),
        "cloud.vswitches" => row(r#"["cn-hangzhou-j:vsw-j"]"#, Call(IntranetService, "vsw-j")),
        "cloud.credentials.access_key_id" => row(&text(SECOND.0), Call(Node, SECOND.0))
            .without("cloud.credentials.access_key_secret_file")
            .first("cloud.credentials.access_key_secret", &text(SECOND.1))
            .back(),
        "cloud.credentials.access_key_secret" => row(&text(SECOND.1), Call(Node, SECOND.0))
            .without("cloud.credentials.access_key_secret_file")
            .first("cloud.credentials.access_key_id", &text(SECOND.0))
            .back(),
        "cloud.credentials.access_key_id_file" => row(&folder("second-id"), Call(Node, SECOND.0))
            .without("cloud.credentials.access_key_id")
            .first("cloud.credentials.access_key_secret_file", &folder("second-secret"))
            .back(),
        "cloud.credentials.access_key_secret_file" => row(&folder("second-secret"), Call(Node, SECOND.0))
            .first("cloud.credentials.access_key_id", &text(SECOND.0))
            .back(),
        "cloud.credentials.security_token" => row(&text("made-up"), Log("SecurityToken")).back(),
        "cloud.credentials.security_token_file" => row(&folder("second-id"), Log("SecurityToken")).back(),
        "cloud.credentials.allow_readable_files" => row("true", Bound),
        "cloud.credentials.role_arn" => row(&role("ccm"), Call(Node, "AssumeRole")).back(),
        "cloud.credentials.role_session_name" => {
            row(&text("other-name"), Call(Node, "other-name")).first("cloud.credentials.role_arn", &role("ccm")).back()
        }
        "cloud.credentials.duration" => {
            row(&text("30m"), Call(Node, "1800")).first("cloud.credentials.role_arn", &role("ccm")).back()
        }
        "cloud.credentials.external_id" => {
            row(&text("outside-1"), Call(Node, "outside-1")).first("cloud.credentials.role_arn", &role("ccm")).back()
        }
        "cloud.credentials.oidc_provider_arn" => row(&provider("one"), Call(Node, "oidc-provider/one"))
            .without("cloud.credentials.access_key_id")
            .without("cloud.credentials.access_key_secret_file")
            .first("cloud.credentials.role_arn", &role("ccm"))
            .first("cloud.credentials.oidc_token_file", &folder("second-id"))
            .back(),
        "cloud.credentials.oidc_token_file" => row(&folder("token"), Call(Node, "AssumeRoleWithOIDC"))
            .without("cloud.credentials.access_key_id")
            .without("cloud.credentials.access_key_secret_file")
            .first("cloud.credentials.role_arn", &role("ccm"))
            .first("cloud.credentials.oidc_provider_arn", &provider("two"))
            .back(),
        "cloud.credentials.instance_role" => {
            row(&text("of-the-instance"), Call(Node, "security-credentials/of-the-instance"))
                .without("cloud.credentials.access_key_id")
                .without("cloud.credentials.access_key_secret_file")
                .back()
        }
        "cloud.endpoints.ecs" => row(&by_gate(0), Gate(Node)).back(),
        "cloud.endpoints.vpc" => row(&by_gate(1), Gate(Node)).back(),
        "cloud.endpoints.slb" => row(&by_gate(2), Gate(Service)).back(),
        // No Service of the world is for it.
        "cloud.endpoints.nlb" => row(&by_gate(2), Bound),
        "cloud.endpoints.sts" => row(&by_gate(3), Gate(Node)).first("cloud.credentials.role_arn", &role("ccm")).back(),
        "cloud.endpoints.scheme" => row(&text("https"), Log("received corrupt message")).back(),
        // All hosts are stated.
        "cloud.endpoints.network" => row(&text("public"), Bound),
        "cloud.endpoints.metadata" => {
            row(&text(&format!("http://127.0.0.1:{}", live.gates[0].port)), Log("connected region"))
        }
        "cloud.endpoints.metadata_v1_fallback" => row("false", Bound),
        "kubernetes.burst" => row("900", Bound),
        "kubernetes.qps" => row("900.0", Bound),
        "kubernetes.timeout" => row(&text("29s"), Bound),
        "kubernetes.context" => row(&text("other"), Log("connected region")).back(),
        "kubernetes.kubeconfig" => row(&text("kubeconfig-2"), Log("kubeconfig-2 (kubernetes.kubeconfig)")).back(),
        "kubernetes.server" => row(&text(&live.server), Log("connected region")),
        "leader_election.enabled" => row("false", Refused),
        "leader_election.identity" => {
            row(&text("somebody"), Lease("kube-system", "ccm", "\"holderIdentity\":\"somebody_"))
        }
        "leader_election.lease_duration" => {
            row(&text("21s"), Lease("kube-system", "ccm", "\"leaseDurationSeconds\":21"))
        }
        "leader_election.name" => row(&text("other"), Refused),
        "leader_election.namespace" => row(&text("default"), Refused),
        "leader_election.renew_deadline" => row(&text("9s"), Log("leader election is configured anew")),
        "leader_election.resource_lock" => row(&text("endpointsleases"), Endpoints("kube-system", "ccm", "somebody")),
        "leader_election.retry_period" => row(&text("1s"), Log("leader election is configured anew")),
        "server.address" => row(&text("127.0.0.2"), Answers("/livez", Some(200))).back(),
        "server.port" => row(&live.port.to_string(), Answers("/livez", Some(200))),
        "server.authorization" => row("true", AnswersOverTls("/configz", 401)).back(),
        "server.tls_cert_file" => {
            row(&folder("tls.crt"), Answers("/livez", None)).first("server.tls_key_file", &folder("tls.key")).back()
        }
        "server.tls_key_file" => {
            row(&folder("tls.key"), Answers("/livez", None)).first("server.tls_cert_file", &folder("tls.crt")).back()
        }
        "traces.endpoint" => {
            row(&text("http://127.0.0.1:9"), Log("traces are sent to http://127.0.0.1:9/v1/traces")).back()
        }
        // Seen in `traces`.
        "traces.headers" => row("{ x-tenant = \"one\" }", Bound),
        "traces.sample_ratio" => row("0.5", Bound),
        "log.format" => row(&text("json"), Log("\"level\"")).back(),
        "log.level" => row(&text("debug"), Log("DEBUG")).back(),
        "node.batch_size" => row("1", Call(Nothing, "\"[\\\"i-play-1\\\"]\"")).back(),
        "node.disable_source_dest_check" => row("true", Call(Node, "SourceDestCheck")),
        "node.shutdown_taint" => row("true", Seen::Node("node.cloudprovider.kubernetes.io/shutdown")),
        "node.period" => row(&text("11s"), pass()),
        "node.aggregation" => row(&text("10ms"), pass()),
        "node.removal_grace" => row(&text("11s"), pass()),
        "node.removal_interval" => row(&text("6s"), pass()),
        "node.removal_window" => row(&text("9m"), pass()),
        "node.removal_limit" => row("9", pass()),
        "node.remove_released" => row("false", pass()),
        "node.ipv6" => row("true", pass()),
        "node.discover" => row("false", pass()),
        "route.aggregation" => row(&text("10ms"), Call(Nothing, "DescribeRouteEntryList")),
        "route.period" => row(&text("4m"), Call(Nothing, "DescribeRouteEntryList")),
        "route.cluster_cidrs" => row(r#"["10.96.0.0/12"]"#, Call(Nothing, "DescribeRouteEntryList")),
        "route.table_ids" => row(r#"["vtb-play"]"#, Call(Nothing, "DescribeRouteEntryList")),
        "route.batch_size" => row("40", Call(Nothing, "DescribeRouteEntryList")),
        "route.removal_limit" => row("40", Call(Nothing, "DescribeRouteEntryList")),
        "service.concurrency" => row("7", Look),
        "service.backend_batch_size" => row("7", Look),
        "service.drift_check" => row(&text("9m"), Look),
        "service.drift_reads" => row("59", Look),
        "service.eni_backends" => row("true", Look).back(),
        "service.exclude_masters" => row("false", Look),
        "service.ipv6" => row("true", Look),
        "service.local_health_check" => row("true", Look),
        "service.type_annotation" => row("true", Look),
        "service.hand_over_grace" => row(&text("9m"), Look),
        "service.disable_public" => row("true", Event("service.disable_public")).back(),
        "service.defaults.address_type" => row(&text("intranet"), Call(Service, "\"intranet\"")).back(),
        SPEC => row(&text("PayBySpec"), Call(Service, "\"PayBySpec\"")).back(),
        "service.defaults.spec" => {
            row(&text("slb.s2.small"), Call(Service, "slb.s2.small")).first(SPEC, &text("PayBySpec")).back()
        }
        "service.defaults.internet_charge_type" => row(&text("paybybandwidth"), Call(Service, "paybybandwidth"))
            .first(SPEC, &text("PayBySpec"))
            .first("service.defaults.bandwidth", "23")
            .back(),
        "service.defaults.bandwidth" => row("23", Call(Service, "\"Bandwidth\": \"23\""))
            .first(SPEC, &text("PayBySpec"))
            .first("service.defaults.internet_charge_type", &text("paybybandwidth"))
            .back(),
        "service.defaults.master_zone" => {
            row(&text("cn-hangzhou-j"), Call(Service, "\"MasterZoneId\": \"cn-hangzhou-j\""))
                .first("service.defaults.slave_zone", &text("cn-hangzhou-i"))
                .back()
        }
        "service.defaults.slave_zone" => {
            row(&text("cn-hangzhou-j"), Call(Service, "\"SlaveZoneId\": \"cn-hangzhou-j\""))
                .first("service.defaults.master_zone", &text("cn-hangzhou-i"))
                .back()
        }
        "service.defaults.delete_protection" => row("false", Call(Service, "\"DeleteProtection\": \"off\"")),
        "service.defaults.modification_protection" => row("false", Call(Service, "\"NonProtection\"")),
        "service.defaults.scheduler" => row(&text("wlc"), Call(Service, "\"Scheduler\": \"wlc\"")),
        "service.defaults.tags" => row("{team = \"blue\"}", Call(Service, "blue")),
        "nlb.concurrency" => row("7", Bound),
        "nlb.drift_check" => row(&text("9m"), Look),
        "nlb.defaults.address_type" => row(&text("intranet"), Call(NetworkService, "\"Intranet\"")),
        "nlb.defaults.delete_protection" => {
            row("false", Call(NetworkService, "\"DeletionProtectionConfig.Enabled\": \"false\""))
        }
        "nlb.defaults.modification_protection" => row("false", Call(NetworkService, "\"NonProtection\"")),
        "nlb.defaults.tags" => row("{team = \"blue\"}", Call(NetworkService, "blue")),
        "volume_labels.node_affinity" => row("false", Bound),
        // Seen in `private_zone`, where that controller runs.
        "cloud.endpoints.pvtz" => row(&by_gate(2), Bound),
        "pvtz.zone_id" => row(&text("zone-2"), Bound).without("pvtz.zone_name").back(),
        "pvtz.zone_name" => row(&text("other.play"), Bound),
        "pvtz.ttl" => row("30", Bound),
        "pvtz.record_types" => row(r#"["A"]"#, Bound),
        "pvtz.namespaces" => row(r#"["shop"]"#, Bound),
        "pvtz.nodes" => row("true", Bound),
        "pvtz.period" => row(&text("9m"), Bound),
        "pvtz.aggregation" => row(&text("2s"), Bound),
        other => panic!("no row about {other}"),
    }
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
    async fn is_refused(&mut self, key: &str, value: Option<String>) {
        let lease = |testbed: &Testbed| testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default();
        let text = |settings: &BTreeMap<String, String>| -> String {
            settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
        };
        let (former, logged) = (text(&self.settings), self.ccm.log().len());
        self.world.edit(|_| format!("{former}{key} = {}\n", value.unwrap()));
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
        let Row { value, first, seen, back } = row_of(key, self);
        if matches!(seen, Seen::Refused) {
            return self.is_refused(key, value).await;
        }
        // All at once: only together may they be right, or make a difference.
        let names: Vec<_> = first.iter().map(|(name, _)| *name).chain([key]).collect();
        for (name, value) in first {
            self.set(name, value);
        }
        if matches!(seen, Seen::Node(_)) {
            self.world.testbed.cloud.stop_instance(&instance(2));
            self.world.testbed.cluster.set_ready("node-2", "Unknown").unwrap();
        }
        let _ = self.world.testbed.cloud.take_calls();
        let before_it = Before { logged: self.ccm.log().len(), passed: self.passed(), looks: self.looks(key).await };
        self.set(key, value);
        let last = self.write().await;

        let row = effect_of(key).unwrap();
        let reported: BTreeSet<_> = names
            .into_iter()
            // It says only what is acceptable.
            .filter(|name| *name != "cloud.credentials.allow_readable_files")
            .map(|name| if CREDENTIALS(name) { "cloud.credentials" } else { name })
            .collect();
        assert_eq!(last.changed.iter().map(String::as_str).collect::<BTreeSet<_>>(), reported, "{key}: {last:?}");
        assert_eq!(!last.restarted.is_empty(), row.takes == Takes::Reconnects, "{key}: {last:?}");
        let changes = !last.started.is_empty() || !last.stopped.is_empty();
        assert_eq!(changes, row.takes == Takes::StartsAndStops, "{key}: {last:?}");
        self.see(key, seen, before_it).await;
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

    async fn see(&self, key: &str, seen: Seen, before: Before) {
        let Before { logged, passed, looks } = before;
        let (world, what) = (&self.world, format!("{key}: {seen:?}"));
        match seen {
            Seen::Call(after, text) => {
                let called = || world.testbed.cloud.calls().iter().any(|call| format!("{call:?}").contains(text));
                self.until_after(&what, after, |_| called()).await;
            }
            Seen::Gate(after) => self.until_after(&what, after, |_| self.passed() > passed).await,
            Seen::Log(text) => {
                // Whoever calls the cloud now finds out.
                let calls = CREDENTIALS(key) || key == "cloud.endpoints.scheme";
                let after = if calls { After::Node } else { After::Nothing };
                self.until_after(&what, after, |_| self.ccm.log()[logged..].contains(text)).await;
            }
            Seen::Lease(namespace, name, text) | Seen::Endpoints(namespace, name, text) => {
                let kind = if matches!(seen, Seen::Lease(..)) { "Lease" } else { "Endpoints" };
                let lock =
                    |testbed: &Testbed| testbed.cluster.get(kind, namespace, name).unwrap_or_default().to_string();
                world.until(&what, |testbed| lock(testbed).contains(text)).await;
            }
            Seen::Event(text) => {
                let reported = |name: &String| world.events("Service", name).iter().any(|event| event.2.contains(text));
                self.until_after(&what, After::Service, |names| names.iter().any(reported)).await;
            }
            Seen::Node(text) => world.until(&what, |_| world.node("node-2").to_string().contains(text)).await,
            Seen::Answers(path, status) => {
                let (address, port) = &self.serving;
                let answer = async || get_from(address, *port, path).await.map(|(status, _)| status);
                world.until_so(&what, || async { answer().await == status }).await;
            }
            Seen::AnswersOverTls(path, status) => {
                let server = (self.serving.0.as_str(), self.serving.1);
                let answer = async || unverified(server, path, "").await.is_some_and(|(answer, _)| answer == status);
                world.until_so(&what, answer).await;
            }
            Seen::Look => world.until_so(&what, || async { self.looks(key).await > looks }).await,
            Seen::Bound | Seen::Refused => {}
        }
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
