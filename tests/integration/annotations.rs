//! Every annotation, set, changed and removed, and its effect in the cloud.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use alicloud_ccm::plan::clb::annotations::Name;
use alicloud_ccm::plan::service::annotations::{AnnotationKey, AnnotationName, PREFIX};
use serde_json::{Map, Value, json};
use sim::cloud::Eip;
use sim::cluster::Endpoint;

use crate::golden::{NAMESPACE, open};
use crate::harness::{PATIENCE, World};

/// One annotation of a Service and what can be seen of it.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: &'static str,
    /// Where to look; see [`Subject::look`].
    at: &'static str,
    /// Value, and what is seen with it.
    set: (&'static str, &'static str),
    /// Another value, and what is seen then.
    changed: (&'static str, &'static str),
    /// What is seen once the annotation is gone.
    gone: &'static str,
}

const fn row(
    key: &'static str,
    at: &'static str,
    set: (&'static str, &'static str),
    changed: (&'static str, &'static str),
    gone: &'static str,
) -> Row {
    Row { key, at, set, changed, gone }
}

/// A Service with annotations that stay, and those that are tried.
struct Subject {
    name: &'static str,
    ports: &'static [(u16, &'static str)],
    base: &'static [(&'static str, &'static str)],
    rows: &'static [Row],
}

/// Annotations that cannot be tried side by side with others, and where they are held to their meaning.
const ELSEWHERE: &[(&str, &str)] = &[
    ("service.beta.kubernetes.io/class", "golden case class-elsewhere"),
    ("type", "plan::clb::tests::desired_state::which_services_are_handled"),
    ("tunnel-type", "plan::clb::tests::desired_state::which_services_are_handled"),
    ("id", "golden case reuse-plain"),
    ("manage", "service_features::edits_of_others_are_repaired_where_managed_and_reported_by_name"),
    ("force-override-listeners", "golden case reuse-override"),
    ("preserve-lb-on-delete", "golden case preserve"),
    ("external-ip-type", "annotations::elastic_addresses_are_published"),
    ("ignore-weight-update", "golden case ignore-weight"),
    ("backend-ip-version", "plan::clb::tests::desired_state::ipv6_backends_need_everything_to_say_so"),
    ("graceful-shutdown", "plan::clb::tests::desired_state::terminating_pods_that_serve_can_stay_without_new_traffic"),
];

const TCP: &[(u16, &str)] = &[(80, "TCP")];
const ONE: &str = "service.beta.kubernetes.io/backend-type";
const ALL_NODES: &str = "i-d-1 i-d-2 i-d-3 i-d-6";

/// Addresses inside `/lb` are JSON pointers; `80` stands for `/lb/listeners/80~1<protocol>`.
const SUBJECTS: &[Subject] = &[
    Subject {
        name: "tcp",
        ports: TCP,
        base: &[("acl-status", "on"), ("connection-drain", "on")],
        rows: &[
            row("scheduler", "80/scheduler", ("wrr", "wrr"), ("wlc", "wlc"), "wlc"),
            row("persistence-timeout", "80/config/PersistenceTimeout", ("60", "60"), ("0", "0"), "0"),
            row("established-timeout", "80/config/EstablishedTimeout", ("10", "10"), ("20", "20"), "20"),
            row("proxy-protocol", "80/config/ProxyProtocolV2Enabled", ("on", "true"), ("off", "false"), "false"),
            row("acl-id", "80/acl_ids", ("acl-exam-1", "acl-exam-1"), ("acl-exam-2", "acl-exam-2"), "acl-exam-2"),
            row("acl-type", "80/acl_type", ("white", "white"), ("black", "black"), "black"),
            row("connection-drain-timeout", "80/config/ConnectionDrainTimeout", ("10", "10"), ("60", "60"), "60"),
            row("health-check-type", "80/config/HealthCheckType", ("http", "http"), ("tcp", "tcp"), "tcp"),
            row("health-check-connect-port", "80/config/HealthCheckConnectPort", ("81", "81"), ("82", "82"), "82"),
            row("healthy-threshold", "80/config/HealthyThreshold", ("4", "4"), ("5", "5"), "5"),
            row("unhealthy-threshold", "80/config/UnhealthyThreshold", ("6", "6"), ("7", "7"), "7"),
            row("health-check-interval", "80/config/HealthCheckInterval", ("3", "3"), ("4", "4"), "4"),
            row("health-check-connect-timeout", "80/config/HealthCheckConnectTimeout", ("8", "8"), ("9", "9"), "9"),
        ],
    },
    Subject {
        name: "tcp-by-http",
        ports: TCP,
        base: &[("health-check-type", "http")],
        rows: &[
            row("health-check-uri", "80/config/HealthCheckURI", ("/a", "/a"), ("/b", "/b"), "/b"),
            row(
                "health-check-domain",
                "80/config/HealthCheckDomain",
                ("a.example.com", "a.example.com"),
                ("$_ip", "$_ip"),
                "$_ip",
            ),
            row(
                "health-check-httpcode",
                "80/config/HealthCheckHttpCode",
                ("http_2xx", "http_2xx"),
                ("http_2xx,http_3xx", "http_2xx,http_3xx"),
                "http_2xx,http_3xx",
            ),
        ],
    },
    Subject {
        name: "udp",
        ports: &[(80, "UDP")],
        base: &[("acl-id", "acl-exam-1"), ("acl-type", "white"), ("connection-drain-timeout", "10")],
        rows: &[
            row("acl-status", "80/acl_status", ("on", "on"), ("off", "off"), "off"),
            row("connection-drain", "80/config/ConnectionDrain", ("on", "on"), ("off", "off"), "off"),
            row("health-check-switch", "80/config/HealthCheckSwitch", ("off", "off"), ("on", "on"), "on"),
        ],
    },
    Subject {
        name: "http",
        ports: TCP,
        base: &[
            ("protocol-port", "http:80"),
            ("health-check-flag", "on"),
            ("sticky-session", "on"),
            ("sticky-session-type", "insert"),
        ],
        rows: &[
            row("idle-timeout", "80/config/IdleTimeout", ("10", "10"), ("20", "20"), "20"),
            row("request-timeout", "80/config/RequestTimeout", ("30", "30"), ("40", "40"), "40"),
            row("cookie-timeout", "80/config/CookieTimeout", ("100", "100"), ("200", "200"), "200"),
            row("health-check-timeout", "80/config/HealthCheckTimeout", ("7", "7"), ("8", "8"), "8"),
            row("health-check-method", "80/config/HealthCheckMethod", ("head", "head"), ("get", "get"), "get"),
            row("xforwardedfor-proto", "80/config/XForwardedFor_proto", ("on", "on"), ("off", "off"), "off"),
            row("xforwardedfor-slbport", "80/config/XForwardedFor_SLBPORT", ("on", "on"), ("off", "off"), "off"),
            row(
                "xforwardedfor-clientsrcport",
                "80/config/XForwardedFor_ClientSrcPort",
                ("on", "on"),
                ("off", "off"),
                "off",
            ),
        ],
    },
    Subject {
        name: "http-server",
        ports: TCP,
        base: &[("protocol-port", "http:80"), ("sticky-session", "on"), ("sticky-session-type", "server")],
        rows: &[
            row("cookie", "80/config/Cookie", ("one", "one"), ("two", "two"), "two"),
            row("health-check-flag", "80/config/HealthCheck", ("on", "on"), ("off", "off"), "off"),
        ],
    },
    Subject {
        name: "sticky",
        ports: TCP,
        base: &[("protocol-port", "http:80"), ("sticky-session-type", "insert"), ("cookie-timeout", "60")],
        rows: &[row("sticky-session", "80/config/StickySession", ("on", "on"), ("off", "off"), "off")],
    },
    Subject {
        name: "sticky-type",
        ports: TCP,
        base: &[("protocol-port", "http:80"), ("sticky-session", "on"), ("cookie-timeout", "60"), ("cookie", "c")],
        rows: &[row(
            "sticky-session-type",
            "80/config/StickySessionType",
            ("insert", "insert"),
            ("server", "server"),
            "server",
        )],
    },
    Subject {
        name: "https",
        ports: &[(443, "TCP")],
        base: &[("protocol-port", "https:443")],
        rows: &[
            row(
                "cert-id",
                "443/config/ServerCertificateId",
                ("cert-exam-1", "cert-exam-1"),
                ("cert-exam-2", "cert-exam-2"),
                "cert-exam-2",
            ),
            row(
                "tls-cipher-policy",
                "443/config/TLSCipherPolicy",
                ("tls_cipher_policy_1_1", "tls_cipher_policy_1_1"),
                ("tls_cipher_policy_1_2", "tls_cipher_policy_1_2"),
                "tls_cipher_policy_1_2",
            ),
            row("http2-enabled", "443/config/EnableHttp2", ("off", "off"), ("on", "on"), "on"),
            row(
                "domain-extensions",
                "domains",
                ("a.example.com:cert-exam-2", "a.example.com:cert-exam-2"),
                ("b.example.com:cert-exam-3", "b.example.com:cert-exam-3"),
                "b.example.com:cert-exam-3",
            ),
        ],
    },
    Subject {
        name: "forward",
        ports: &[(80, "TCP"), (443, "TCP"), (444, "TCP")],
        base: &[("protocol-port", "http:80,https:443,https:444"), ("cert-id", "cert-exam-1")],
        rows: &[row("forward-port", "80/config/ForwardPort", ("80:443", "443"), ("80:444", "444"), "")],
    },
    Subject {
        name: "protocol",
        ports: TCP,
        base: &[("cert-id", "cert-exam-1")],
        rows: &[row("protocol-port", "listeners", ("https:80", "80/https"), ("http:80", "80/http"), "80/tcp")],
    },
    Subject {
        name: "instance",
        ports: TCP,
        base: &[],
        rows: &[
            row("name", "/name", ("one", "one"), ("two", "two"), "two"),
            row("additional-resource-tags", "tags", ("a=1,b=2", "a=1 b=2"), ("b=3", "b=3"), "b=3"),
            row("delete-protection", "/delete_protection", ("off", "false"), ("on", "true"), "true"),
            row(
                "modification-protection",
                "/modification_protection",
                ("NonProtection", "NonProtection"),
                ("ConsoleProtection", "ConsoleProtection"),
                "ConsoleProtection",
            ),
            row("hostname", "hostname", ("a.example.com", "a.example.com"), ("b.example.com", "b.example.com"), ""),
            row("default-weight", "weights", ("50", "50 50 50 50"), ("0", "0 0 0 0"), "100 100 100 100"),
        ],
    },
    Subject {
        name: "by-spec",
        ports: TCP,
        base: &[("instance-charge-type", "PayBySpec"), ("charge-type", "paybybandwidth")],
        rows: &[
            row("spec", "/spec", ("slb.s2.small", "slb.s2.small"), ("slb.s3.small", "slb.s3.small"), "slb.s3.small"),
            row("bandwidth", "/bandwidth", ("50", "50"), ("100", "100"), "100"),
        ],
    },
    Subject {
        name: "traffic",
        ports: TCP,
        base: &[("instance-charge-type", "PayBySpec"), ("bandwidth", "50")],
        rows: &[row(
            "charge-type",
            "/internet_charge_type",
            ("paybybandwidth", "paybybandwidth"),
            ("paybytraffic", "paybytraffic"),
            "paybytraffic",
        )],
    },
    Subject {
        name: "charged",
        ports: TCP,
        base: &[],
        rows: &[row(
            "instance-charge-type",
            "/instance_charge_type",
            ("PayBySpec", "PayBySpec"),
            ("PayByCLCU", "PayByCLCU"),
            "PayByCLCU",
        )],
    },
    // What is chosen at creation stays.
    Subject {
        name: "fixed",
        ports: TCP,
        base: &[],
        rows: &[
            row(
                "resource-group-id",
                "/resource_group",
                ("rg-exam-1", "rg-exam-1"),
                ("rg-exam-2", "rg-exam-1"),
                "rg-exam-1",
            ),
            row(
                "master-zoneid",
                "/master_zone",
                ("cn-hangzhou-j", "cn-hangzhou-j"),
                ("cn-hangzhou-i", "cn-hangzhou-j"),
                "cn-hangzhou-j",
            ),
            row(
                "slave-zoneid",
                "/slave_zone",
                ("cn-hangzhou-i", "cn-hangzhou-i"),
                ("cn-hangzhou-j", "cn-hangzhou-i"),
                "cn-hangzhou-i",
            ),
            row("network-type", "/network_type", ("classic", "classic"), ("vpc", "classic"), "classic"),
        ],
    },
    Subject {
        name: "fixed-intranet",
        ports: TCP,
        base: &[],
        rows: &[
            row("address-type", "/address_type", ("intranet", "intranet"), ("internet", "intranet"), "intranet"),
            row("vswitch-id", "/vswitch", ("vsw-exam-j", "vsw-exam-j"), ("vsw-exam-i", "vsw-exam-j"), "vsw-exam-j"),
            row("ip", "/address", ("192.168.16.9", "192.168.16.9"), ("192.168.16.8", "192.168.16.9"), "192.168.16.9"),
        ],
    },
    Subject {
        name: "fixed-six",
        ports: TCP,
        base: &[],
        rows: &[row("ip-version", "/ip_version", ("ipv6", "ipv6"), ("ipv4", "ipv6"), "ipv6")],
    },
    Subject {
        name: "nodes",
        ports: TCP,
        base: &[],
        rows: &[row(
            "backend-label",
            "servers",
            ("color=blue", "i-d-1 i-d-2"),
            ("color=green", "i-d-3 i-d-6"),
            ALL_NODES,
        )],
    },
    Subject {
        name: "cordoned",
        ports: TCP,
        base: &[],
        rows: &[row(
            "remove-unscheduled-backend",
            "servers",
            ("on", "i-d-1 i-d-2 i-d-3"),
            ("off", ALL_NODES),
            ALL_NODES,
        )],
    },
    Subject {
        name: "pods",
        ports: TCP,
        base: &[],
        rows: &[row(ONE, "servers", ("eni", "eni-d-1 eni-d-2"), ("ecs", ALL_NODES), ALL_NODES)],
    },
    Subject {
        name: "shared",
        ports: TCP,
        base: &[("id", "lb-user-3"), ("force-override-listeners", "true")],
        rows: &[row("vgroup-port", "80/vgroup", ("rsp-user-1:80", "users-group"), ("", "own"), "own")],
    },
    Subject {
        name: "shared-weight",
        ports: TCP,
        base: &[("id", "lb-user-1"), ("vgroup-port", "rsp-own-1:80")],
        rows: &[row("weight", "weights", ("60", "15 15 15 15"), ("0", "0 0 0 0"), "100 100 100 100")],
    },
];

fn whole(key: &str) -> String {
    if key.contains('/') { key.to_owned() } else { format!("{PREFIX}{key}") }
}

impl Subject {
    fn annotations(&self, step: usize) -> Map<String, Value> {
        let mut annotations: Map<_, _> = self.base.iter().map(|(key, value)| (whole(key), json!(value))).collect();
        for row in self.rows {
            let value = match step {
                0 => json!(row.set.0),
                1 => json!(row.changed.0),
                _ => Value::Null,
            };
            annotations.insert(whole(row.key), value);
        }
        annotations
    }

    fn give(&self, world: &World, step: usize) {
        let cluster = &world.testbed.cluster;
        let annotations = self.annotations(step);
        if step > 0 {
            let changes = json!({"metadata": {"annotations": annotations}});
            cluster.patch("Service", NAMESPACE, self.name, &changes).unwrap();
            return;
        }
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|(port, protocol)| json!({"name": format!("p{port}"), "port": port, "protocol": protocol, "targetPort": 8080}))
            .collect();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": ports},
        });
        cluster.create(service).unwrap();
        let endpoint = |last: u8, node: &str| Endpoint::ready(IpAddr::V4(Ipv4Addr::new(192, 168, 64, last)), node);
        cluster.set_endpoints(NAMESPACE, self.name, &[endpoint(11, "node-1"), endpoint(21, "node-2")]).unwrap();
    }

    /// What is seen at a place: of the load balancer (a JSON pointer), of a listener (its port and a pointer), or of
    /// all backends, domains, tags, or the status.
    fn look(&self, world: &World, at: &str) -> String {
        let service = world.testbed.cluster.get("Service", NAMESPACE, self.name).unwrap();
        let id = service["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap_or_default();
        let snapshot = world.testbed.cloud.snapshot();
        let lb = world.testbed.cloud.load_balancer(id);
        let mark = format!("/{}/{NAMESPACE}/cexam", self.name);
        let backends = || {
            let groups = lb["vgroups"].as_object().into_iter().flatten();
            let all = groups.flat_map(|(_, backends)| backends.as_array().into_iter().flatten());
            all.filter(|backend| backend["description"].as_str().unwrap().ends_with(&mark)).collect::<Vec<_>>()
        };
        let sorted = |mut words: Vec<String>| {
            words.sort();
            words.join(" ")
        };
        match at {
            "weights" => sorted(backends().iter().map(|it| it["weight"].to_string()).collect()),
            "servers" => sorted(backends().iter().map(|it| text(&it["server_id"])).collect()),
            "hostname" => text(&service["status"]["loadBalancer"]["ingress"][0]["hostname"]),
            "listeners" => {
                sorted(lb["listeners"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect())
            }
            "domains" => {
                let domains = snapshot["domain_extensions"][format!("{id}/443")].as_object().into_iter().flatten();
                sorted(domains.map(|(domain, certificate)| format!("{domain}:{}", text(certificate))).collect())
            }
            "tags" => {
                let own = ["kubernetes.do.not.delete", "ack.aliyun.com", "alicloud-ccm.cluster-uid"];
                let tags = lb["tags"].as_object().into_iter().flatten();
                let users = tags.filter(|(key, _)| !own.contains(&key.as_str()));
                sorted(users.map(|(key, value)| format!("{key}={}", text(value))).collect())
            }
            pointer if pointer.starts_with('/') => lb.pointer(pointer).map(text).unwrap_or_default(),
            place => {
                let (port, rest) = place.split_once('/').unwrap();
                let listeners = lb["listeners"].as_object().into_iter().flatten();
                let listener =
                    listeners.filter(|(key, _)| key.split('/').next() == Some(port)).map(|(_, it)| it).next();
                let seen = listener.and_then(|it| it.pointer(&format!("/{rest}"))).map(text).unwrap_or_default();
                if seen.starts_with("k8s/") && seen.ends_with(&mark) { "own".to_owned() } else { seen }
            }
        }
    }

    /// What is out of sync after a step.
    fn wrong(&self, world: &World, step: usize) -> Vec<String> {
        let expected = |row: &Row| [row.set.1, row.changed.1, row.gone][step];
        self.rows
            .iter()
            .map(|row| (row, self.look(world, row.at)))
            .filter(|(row, seen)| seen != expected(row))
            .map(|(row, seen)| format!("{} step {step}: {}: {seen:?}, not {:?}", self.name, row.key, expected(row)))
            .collect()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_annotation_does_what_the_page_says() {
    let (world, ccm) = open().await;
    for step in 0..3 {
        for subject in SUBJECTS {
            subject.give(&world, step);
        }
        let began = Instant::now();
        let wrong = || SUBJECTS.iter().flat_map(|subject| subject.wrong(&world, step)).collect::<Vec<_>>();
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if wrong().is_empty() {
                // What must not happen would have happened by now.
                world.until_quiet(Duration::from_millis(300)).await;
                if wrong().is_empty() {
                    break;
                }
            }
            assert!(began.elapsed() < PATIENCE, "{}\n{}", wrong().join("\n"), world.logs());
        }
        // What cannot be changed is reported, by its key.
        for subject in SUBJECTS.iter().filter(|subject| step == 1 && subject.name.starts_with("fixed")) {
            let reported = world.events("Service", subject.name);
            for row in subject.rows {
                // A vSwitch is looked at only when the load balancer is made, which is no failure.
                let how = if row.key == "vswitch-id" { "LoadBalancerSettings" } else { "SyncLoadBalancerFailed" };
                let tells = |(kind, reason, message): &(String, String, String)| {
                    kind == "Warning" && reason == how && message.contains(row.key) && message.contains(row.changed.0)
                };
                assert!(reported.iter().any(tells), "{}: {reported:?}", row.key);
            }
        }
    }
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[test]
fn no_annotation_is_left_out() {
    let tried = SUBJECTS.iter().flat_map(|subject| subject.rows).map(|row| row.key);
    let tried: BTreeSet<&str> = tried.chain(ELSEWHERE.iter().map(|(key, _)| *key)).collect();
    let known: BTreeSet<&str> = Name::TABLE
        .iter()
        .map(|entry| match entry.key {
            AnnotationKey::Suffix(key) | AnnotationKey::CurrentSuffix(key) | AnnotationKey::Whole(key) => key,
        })
        .collect();
    assert_eq!(tried, known);
    for (key, test) in ELSEWHERE {
        assert!(crate::checklist::exists(test), "{key} is said to be tried in {test}, which does not exist");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_addresses_are_published() {
    let (world, _ccm) = open().await;
    let subject = Subject { name: "eip", ports: TCP, base: &[], rows: &[] };
    subject.give(&world, 0);
    let service = || world.testbed.cluster.get("Service", NAMESPACE, "eip").unwrap();
    let address = || service()["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned);
    world.until("it has an address", |_| address().is_some()).await;
    let own = address();
    let id = text(&service()["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"]);
    world.testbed.cloud.edit(|cloud| {
        let bound = |address: &str, instance: &str| Eip {
            address: address.to_owned(),
            instance_type: "SlbInstance".to_owned(),
            instance: instance.to_owned(),
        };
        cloud.eips.insert("eip-1".to_owned(), bound("8.8.8.8", "lb-user-1"));
        cloud.eips.insert("eip-2".to_owned(), bound("8.8.4.4", &id));
    });
    let annotate = |value: Value| {
        let changes = json!({"metadata": {"annotations": {whole("external-ip-type"): value}}});
        world.testbed.cluster.patch("Service", NAMESPACE, "eip", &changes).unwrap();
    };
    annotate(json!("eip"));
    world.until("the elastic address is published", |_| address().as_deref() == Some("8.8.4.4")).await;
    world.testbed.cloud.edit(|cloud| cloud.eips.clear());
    annotate(Value::Null);
    world.until("its own address is published", |_| address() == own).await;
    annotate(json!("eip"));
    world
        .until("the lack of an elastic address is reported", |_| {
            world.events("Service", "eip").iter().any(|(_, reason, _)| reason == "FailedSetEIPAddress")
        })
        .await;
    assert_eq!(address(), own);
}
