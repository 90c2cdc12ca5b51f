//! Defects of the official controller, one test each.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use alicloud_ccm::plan::loadbalancer::annotations::PREFIX;
use serde_json::{Value, json};
use sim::cloud::{Backend, Group};
use sim::cluster::{Effect, Endpoint, Failure, Match, NodeSpec};

use crate::golden::{NAMESPACE, open, open_with};
use crate::harness::{Ccm, World, address, free_port};

const FINALIZER: &str = "service.k8s.alibaba/resources";
const CLASS: &str = "service.beta.kubernetes.io/class";

/// A world with the binary in it, seen from one user's side.
pub(crate) struct Fixture {
    pub(crate) world: World,
    pub(crate) ccm: Ccm,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let (world, ccm) = open().await;
        Self { world, ccm }
    }

    pub(crate) fn annotations(list: &[(&str, &str)]) -> Value {
        list.iter()
            .map(|(key, value)| {
                let key = if key.contains('/') { (*key).to_owned() } else { format!("{PREFIX}{key}") };
                (key, json!(value))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// Makes a Service with TCP ports; those of the first have node ports that are 31000 more.
    pub(crate) fn make(&self, name: &str, ports: &[u16], annotations: &[(&str, &str)]) {
        let cluster = &self.world.testbed.cluster;
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"name": format!("p{port}"), "port": port, "targetPort": 8080}))
            .map(|mut port| {
                if !cluster.list("Service").iter().any(|service| service["metadata"]["namespace"] == NAMESPACE) {
                    port["nodePort"] = json!(31000 + port["port"].as_u64().unwrap());
                }
                port
            })
            .collect();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": Self::annotations(annotations)},
            "spec": {"type": "LoadBalancer", "ports": ports},
        });
        cluster.create(service).unwrap();
        let endpoint = Endpoint::ready(IpAddr::V4(Ipv4Addr::new(192, 168, 64, 11)), "node-1");
        cluster.set_endpoints(NAMESPACE, name, &[endpoint]).unwrap();
    }

    /// Sets annotations, or takes them away.
    pub(crate) fn annotate(&self, name: &str, annotations: &[(&str, Option<&str>)]) {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(key, value)| {
                let key = if key.contains('/') { (*key).to_owned() } else { format!("{PREFIX}{key}") };
                (key, json!(value))
            })
            .collect();
        let changes = json!({"metadata": {"annotations": annotations}});
        self.world.testbed.cluster.patch("Service", NAMESPACE, name, &changes).unwrap();
    }

    pub(crate) fn service(&self, name: &str) -> Value {
        self.world.testbed.cluster.get("Service", NAMESPACE, name).unwrap_or_default()
    }

    pub(crate) fn delete(&self, name: &str) {
        self.world.testbed.cluster.delete("Service", NAMESPACE, name).unwrap();
    }

    /// Makes a Service, waits until it is served, and returns the id of its load balancer.
    pub(crate) async fn served(&self, name: &str, ports: &[u16], annotations: &[(&str, &str)]) -> String {
        self.make(name, ports, annotations);
        self.world.until("it is served", |_| address(&self.service(name)).is_some()).await;
        self.quiet().await;
        self.service(name)["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn gone(&self, name: &str) {
        self.world.until("it is gone", |_| self.service(name).is_null()).await;
    }

    pub(crate) async fn quiet(&self) {
        self.world.until_quiet(Duration::from_millis(500)).await;
    }

    pub(crate) fn lb(&self, id: &str) -> Value {
        self.world.testbed.cloud.load_balancer(id)
    }

    /// Backends of a group, as `server:port=weight`.
    pub(crate) fn backends(&self, id: &str, group: &str) -> BTreeSet<String> {
        let lb = self.lb(id);
        let backends = lb["vgroups"][group].as_array().cloned().unwrap_or_default();
        backends
            .iter()
            .map(|it| format!("{}:{}={}", it["server_id"].as_str().unwrap(), it["port"], it["weight"]))
            .collect()
    }

    pub(crate) fn count(&self, action: &str) -> usize {
        self.world.testbed.cloud.count(action)
    }

    pub(crate) async fn reported(&self, name: &str, reason: &str, part: &str) {
        let has = || {
            let events = self.world.events("Service", name);
            events.iter().any(|(_, found, message)| found == reason && message.contains(part))
        };
        self.world.until(&format!("{reason} with {part:?} is reported"), |_| has()).await;
    }
}

pub(crate) fn nodes(port: u16) -> BTreeSet<String> {
    ["i-d-1", "i-d-2", "i-d-3", "i-d-6"].iter().map(|id| format!("{id}:{port}=100")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_ipv6_load_balancer_can_be_left() {
    let stand = Fixture::new().await;
    stand.world.testbed.cloud.edit(|cloud| {
        cloud.load_balancers.get_mut("lb-user-6").unwrap().ip_version = "ipv6".to_owned();
    });
    stand.served("six", &[80], &[("id", "lb-user-6"), ("ip-version", "ipv6"), ("name", "mine")]).await;
    let tagged = stand.count("TagResources");
    stand.delete("six");
    stand.gone("six").await;
    let lb = stand.lb("lb-user-6");
    assert_eq!((&lb["name"], &lb["vgroups"]), (&json!("mine"), &json!({})));
    assert_eq!(stand.count("TagResources"), tagged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preserved_ipv6_load_balancer_can_be_left() {
    let stand = Fixture::new().await;
    let id = stand.served("six", &[80], &[("ip-version", "ipv6"), ("preserve-lb-on-delete", "true")]).await;
    stand.delete("six");
    stand.gone("six").await;
    assert_eq!(stand.lb(&id)["ip_version"], "ipv6");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preserved_load_balancer_keeps_serving() {
    let stand = Fixture::new().await;
    let id = stand.served("kept", &[80], &[("preserve-lb-on-delete", "true")]).await;
    let before = stand.lb(&id);
    stand.delete("kept");
    stand.gone("kept").await;
    let after = stand.lb(&id);
    assert_eq!((&after["listeners"], &after["vgroups"]), (&before["listeners"], &before["vgroups"]));
    assert_eq!(after["listeners"]["80/tcp"]["status"], "running");
    assert_eq!((&after["delete_protection"], &after["tags"]), (&json!(false), &json!({})));
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_certificates_are_changed_and_cleared() {
    let stand = Fixture::new().await;
    let https = [("protocol-port", "https:443"), ("cert-id", "cert-exam-1")];
    let annotations = [https[0], https[1], ("domain-extensions", "a.example.com:cert-exam-2")];
    let id = stand.served("tls", &[443], &annotations).await;
    let domains = || stand.world.testbed.cloud.snapshot()["domain_extensions"][format!("{id}/443")].clone();
    stand.annotate("tls", &[("domain-extensions", Some("a.example.com:cert-exam-3"))]);
    stand.world.until("the certificate is changed", |_| domains() == json!({"a.example.com": "cert-exam-3"})).await;
    // Without a moment in which the domain has no certificate.
    assert_eq!((stand.count("SetDomainExtensionAttribute"), stand.count("DeleteDomainExtension")), (1, 0));
    stand.annotate("tls", &[("domain-extensions", Some(""))]);
    stand.world.until("they are cleared", |_| domains().is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_reported_and_removes_no_group() {
    let stand = Fixture::new().await;
    stand.served("web", &[80], &[("id", "lb-user-1")]).await;
    let group = format!("k8s/31080/web/{NAMESPACE}/cexam");
    assert_eq!(stand.backends("lb-user-1", &group), nodes(31080));
    let mistakes: [(&str, &str); 3] =
        [("vgroup-port", "rsp-not-there:80"), ("backend-label", "color"), ("default-weight", "heavy")];
    for (key, value) in mistakes {
        stand.annotate("web", &[(key, Some(value))]);
        stand.reported("web", "SyncLoadBalancerFailed", value.split(':').next().unwrap()).await;
        stand.quiet().await;
        assert_eq!(stand.backends("lb-user-1", &group), nodes(31080), "{key}");
        stand.annotate("web", &[(key, None)]);
    }
    // A node that is none of the cloud is left out, and the others stay.
    stand.world.testbed.cluster.add_node(&NodeSpec::new("lost").provider_id("cn-hangzhou")).unwrap();
    stand.reported("web", "LoadBalancerSettings", "node lost").await;
    stand.quiet().await;
    assert_eq!(stand.backends("lb-user-1", &group), nodes(31080));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_service_can_be_deleted_after_public_ones_are_switched_off() {
    let stand = Fixture::new().await;
    let id = stand.served("before", &[80], &[]).await;
    let config = std::fs::read_to_string(stand.world.config()).unwrap();
    std::fs::write(stand.world.config(), config.replace("[service]\n", "[service]\ndisable_public = true\n")).unwrap();
    stand.reported("before", "SyncLoadBalancerFailed", "disable_public").await;
    stand.make("after", &[80], &[]);
    stand.reported("after", "SyncLoadBalancerFailed", "disable_public").await;
    assert_eq!(stand.count("CreateLoadBalancer"), 1);
    stand.delete("before");
    stand.gone("before").await;
    assert!(stand.lb(&id).is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_of_a_user_stays_the_users() {
    let stand = Fixture::new().await;
    let by_hand = Backend {
        server_id: "i-d-1".to_owned(),
        server_ip: String::new(),
        port: 31080,
        weight: 7,
        kind: "ecs".to_owned(),
        description: "by hand".to_owned(),
    };
    stand.world.testbed.cloud.edit(|cloud| {
        let lb = cloud.load_balancers.get_mut("lb-user-3").unwrap();
        lb.groups.get_mut("rsp-user-1").unwrap().backends.push(by_hand.clone());
    });
    let find = || {
        stand.world.testbed.cloud.look(|cloud| {
            let backends = &cloud.load_balancers["lb-user-3"].groups["rsp-user-1"].backends;
            backends.iter().filter(|it| it.server_id == "i-d-1").cloned().collect::<Vec<_>>()
        })
    };
    stand.served("web", &[80], &[("id", "lb-user-3"), ("vgroup-port", "rsp-user-1:80")]).await;
    assert_eq!(stand.backends("lb-user-3", "users-group").len(), 5);
    assert_eq!((find(), stand.count("SetVServerGroupAttribute")), (vec![by_hand.clone()], 0));
    stand.delete("web");
    stand.gone("web").await;
    assert_eq!(find(), vec![by_hand]);
    assert_eq!(stand.backends("lb-user-3", "users-group").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_to_another_group_and_two_ports_share_one() {
    let stand = Fixture::new().await;
    stand.world.testbed.cloud.edit(|cloud| {
        let lb = cloud.load_balancers.get_mut("lb-user-3").unwrap();
        lb.groups.insert("rsp-second".to_owned(), Group::new("second"));
    });
    let both = [("id", "lb-user-3"), ("vgroup-port", "rsp-user-1:80,rsp-user-1:81")];
    stand.served("web", &[80, 81], &both).await;
    let own: BTreeSet<_> = nodes(31080).union(&nodes(31081)).cloned().collect();
    let user = BTreeSet::from(["i-user:8080=100".to_owned()]);
    assert_eq!(stand.backends("lb-user-3", "users-group"), own.union(&user).cloned().collect());
    stand.annotate("web", &[("vgroup-port", Some("rsp-second:80,rsp-second:81"))]);
    stand
        .world
        .until("they moved", |_| {
            stand.backends("lb-user-3", "second") == own && stand.backends("lb-user-3", "users-group") == user
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vswitch_needs_no_zone() {
    let (world, ccm) = open_with(|config| config.replace("cn-hangzhou-i:vsw-exam-i", "vsw-exam-i")).await;
    let stand = Fixture { world, ccm };
    let id = stand.served("inside", &[80], &[("address-type", "intranet")]).await;
    assert_eq!(stand.lb(&id)["vswitch"], "vsw-exam-i");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_counted() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let port = free_port();
    let (world, ccm) = open_with(|config| config.replace("port = 0", &format!("port = {port}"))).await;
    let stand = Fixture { world, ccm };
    stand.make("bad", &[80], &[("healthy-threshold", "three")]);
    stand.reported("bad", "SyncLoadBalancerFailed", "three").await;
    stand.served("good", &[80], &[]).await;
    let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut metrics = String::new();
    connection.read_to_string(&mut metrics).await.unwrap();
    let count = |outcome: &str| {
        let start = format!("alicloud_ccm_reconciles_total{{controller=\"service\",outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).unwrap_or_default()
    };
    assert!(count("failed") >= 1 && count("ok") + count("again") >= 1, "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_given_to_another_controller_keeps_its_load_balancer_until_it_is_deleted() {
    let mut stand = Fixture::new().await;
    let id = stand.served("web", &[80], &[]).await;
    let (before, ingress) = (stand.lb(&id), stand.service("web")["status"].clone());
    stand.annotate("web", &[(CLASS, Some("other")), ("scheduler", Some("wrr"))]);
    stand.reported("web", "SyncLoadBalancerFailed", "other").await;
    // Also by a process that has never seen it otherwise.
    stand.ccm.kill().await;
    stand.ccm = stand.world.start();
    let log = &stand.ccm;
    stand.world.until("it is reported again", |_| log.log().contains("belongs to another controller")).await;
    stand.quiet().await;
    let service = stand.service("web");
    assert_eq!((stand.lb(&id), &service["status"]), (before, &ingress));
    assert_eq!(service["metadata"]["finalizers"], json!([FINALIZER]));
    stand.annotate("web", &[(CLASS, None)]);
    stand.world.until("it is managed again", |_| stand.lb(&id)["listeners"]["80/tcp"]["scheduler"] == "wrr").await;
    stand.annotate("web", &[(CLASS, Some("other"))]);
    stand.delete("web");
    stand.gone("web").await;
    assert!(stand.lb(&id).is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_not_let_go_before_its_status_is_cleared() {
    let stand = Fixture::new().await;
    stand.served("web", &[80], &[]).await;
    let refusal = Failure::internal_error();
    let status = Match::new("patch", "services/status");
    stand.world.testbed.cluster.trouble_times(status, Effect::Refuse(refusal), usize::MAX);
    stand.delete("web");
    stand.reported("web", "CleanLoadBalancerFailed", "the Service could not be written").await;
    assert_eq!(stand.service("web")["metadata"]["finalizers"], json!([FINALIZER]));
    stand.world.testbed.cluster.calm();
    stand.gone("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_untagged_where_no_tag_is_ours() {
    let stand = Fixture::new().await;
    let id = stand.served("kept", &[80], &[("preserve-lb-on-delete", "true")]).await;
    stand.world.testbed.cloud.edit(|cloud| cloud.load_balancers.get_mut(&id).unwrap().tags.clear());
    stand.delete("kept");
    stand.gone("kept").await;
    assert_eq!(stand.count("UntagResources"), 0);
    assert!(!stand.lb(&id).is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn taking_the_certificate_annotation_away_keeps_the_certificate() {
    let stand = Fixture::new().await;
    let id = stand.served("tls", &[443], &[("protocol-port", "https:443"), ("cert-id", "cert-exam-1")]).await;
    stand.annotate("tls", &[("cert-id", None), ("scheduler", Some("wrr"))]);
    let listener = || stand.lb(&id)["listeners"]["443/https"].clone();
    stand.world.until("the rest is done", |_| listener()["scheduler"] == "wrr").await;
    assert_eq!(listener()["config"]["ServerCertificateId"], "cert-exam-1");
    stand.quiet().await;
    let asked = (stand.count("SetLoadBalancerHTTPSListenerAttribute"), stand.count("DescribeServerCertificates"));
    assert_eq!(asked, (1, 0), "nothing is asked of a certificate that nobody names");
    let warnings: Vec<_> = stand.world.events("Service", "tls").into_iter().filter(|it| it.0 == "Warning").collect();
    assert_eq!(warnings, []);
}
