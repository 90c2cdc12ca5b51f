//! Every annotation, set, changed and removed, and its effect in the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use alicloud_ccm::plan::clb::annotations::Name as ClbName;
use alicloud_ccm::plan::loadbalancer::annotations::{AnnotationKey, AnnotationName, PREFIX};
use alicloud_ccm::plan::nlb::annotations::Name as NlbName;
use expect_test::{Expect, expect};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use sim::cloud::{Eip, Fault};
use sim::cluster::Endpoint;
use sim::testbed::Testbed;

use crate::golden::{NAMESPACE, open};
use crate::harness::{PATIENCE, World};
use crate::in_process::{Product, UNCHECKED, in_parallel, on_a_clock_of_its_own};
use crate::kinds::Kind;
use crate::lasting_troubles::{Course, Named, REFUSALS};

/// One annotation of a Service and what can be seen of it, when it is set, changed and gone.
struct Row {
    key: String,
    /// Where to look; see [`Subject::look`].
    at: String,
    given: [Value; 3],
    seen: [String; 3],
}

impl Row {
    /// Annotation, place, value, another value, and what is seen once it is gone. A value that shows otherwise says
    /// `-> how`.
    fn of(line: &str) -> Self {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [key, at, set, changed, gone] = cells[..] else { panic!("no row: {line}") };
        let shown =
            |cell| str::split_once(cell, "->").map_or((cell, cell), |(given, seen)| (given.trim(), seen.trim()));
        let (set, changed) = (shown(set), shown(changed));
        let given = [json!(set.0), json!(changed.0), Value::Null];
        Self { key: key.to_owned(), at: at.to_owned(), given, seen: [set.1, changed.1, gone].map(str::to_owned) }
    }
}

/// A Service with annotations that stay, and those that are tried.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    #[serde(default = "tcp")]
    ports: Vec<String>,
    #[serde(default)]
    base: BTreeMap<String, String>,
    #[serde(deserialize_with = "rows")]
    rows: Vec<Row>,
}

fn tcp() -> Vec<String> {
    vec!["80/TCP".to_owned()]
}

fn rows<'de, D: Deserializer<'de>>(text: D) -> Result<Vec<Row>, D::Error> {
    Ok(String::deserialize(text)?.trim().lines().map(Row::of).collect())
}

/// The annotations of one product.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Those that cannot be tried side by side with others, and the tests that hold them to their meaning.
    elsewhere: BTreeMap<String, String>,
    #[serde(rename = "subject")]
    subjects: Vec<Subject>,
}

fn table(kind: Kind) -> &'static Table {
    static TABLES: LazyLock<[Table; 2]> = LazyLock::new(|| {
        let files = [include_str!("annotations/clb.toml"), include_str!("annotations/nlb.toml")];
        files.map(|text| toml::from_str(text).unwrap())
    });
    &TABLES[usize::from(kind == Kind::Nlb)]
}

fn whole(key: &str) -> String {
    if key.contains('/') { key.to_owned() } else { format!("{PREFIX}{key}") }
}

impl Subject {
    fn annotations(&self, step: usize) -> Map<String, Value> {
        let mut annotations: Map<_, _> = self.base.iter().map(|(key, value)| (whole(key), json!(value))).collect();
        annotations.extend(self.rows.iter().map(|row| (whole(&row.key), row.given[step].clone())));
        annotations
    }

    fn give(&self, kind: Kind, testbed: &Testbed, step: usize) {
        let cluster = &testbed.cluster;
        let annotations = self.annotations(step);
        if step > 0 {
            let changes = json!({"metadata": {"annotations": annotations}});
            cluster.patch("Service", NAMESPACE, &self.name, &changes).unwrap();
            return;
        }
        let port = |port: &String| {
            let (port, protocol) = port.split_once('/').unwrap();
            json!({"name": format!("p{port}"), "port": port.parse::<u16>().unwrap(), "protocol": protocol, "targetPort": 8080})
        };
        let ports: Vec<Value> = self.ports.iter().map(port).collect();
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": ports},
        });
        kind.classify(&mut service["spec"]);
        cluster.create(service).unwrap();
        let endpoint = |last: u8, node: &str| Endpoint::ready(IpAddr::V4(Ipv4Addr::new(192, 168, 64, last)), node);
        cluster.set_endpoints(NAMESPACE, &self.name, &[endpoint(11, "node-1"), endpoint(21, "node-2")]).unwrap();
    }

    /// What is seen at a place: of the load balancer (a JSON pointer), of a listener (its port and a pointer), of the server
    /// group (`group` and a pointer), or of all backends, domains, zones, tags, or the status.
    fn look(&self, kind: Kind, world: &World, at: &str) -> String {
        let service = world.testbed.cluster.get("Service", NAMESPACE, &self.name).unwrap();
        let id = service["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap_or_default();
        let snapshot = world.testbed.cloud.snapshot();
        let lb = match kind {
            Kind::Clb => world.testbed.cloud.load_balancer(id),
            Kind::Nlb => world.testbed.cloud.network_load_balancer(id),
        };
        let separator = if kind == Kind::Clb { "/" } else { "." };
        let mark = [separator, &self.name, separator, NAMESPACE, separator, "cexam"].concat();
        let is_own = |text: &Value| text.as_str().is_some_and(|text| text.ends_with(&mark));
        let groups = || snapshot["server_groups"].as_array().into_iter().flatten();
        let backends = || {
            let classic = lb["vgroups"].as_object().into_iter().flatten().map(|(_, backends)| backends);
            let all = classic.chain(groups().map(|group| &group["servers"]));
            all.flat_map(|all| all.as_array().into_iter().flatten()).filter(|it| is_own(&it["description"]))
        };
        let sorted = |words: &mut dyn Iterator<Item = String>| {
            let mut words: Vec<String> = words.collect();
            words.sort();
            words.join(" ")
        };
        let listeners = || lb["listeners"].as_object().into_iter().flatten();
        match at {
            "weights" => sorted(&mut backends().map(|it| it["weight"].to_string())),
            "servers" => sorted(&mut backends().map(|it| text(&it["server_id"]))),
            "http_version" => world.testbed.cloud.look(|account| {
                let group = account.nlb.groups.values().find(|group| group.name.ends_with(&mark));
                group.map(|group| group.health.http_version.clone()).unwrap_or_default()
            }),
            "hostname" => text(&service["status"]["loadBalancer"]["ingress"][0]["hostname"]),
            "listeners" => sorted(&mut listeners().map(|(key, _)| key.clone())),
            "zones" => sorted(&mut lb["zones"].as_array().into_iter().flatten().map(|it| text(&it["vswitch"]))),
            "domains" => {
                let domains = snapshot["domain_extensions"][format!("{id}/443")].as_object().into_iter().flatten();
                sorted(&mut domains.map(|(domain, certificate)| format!("{domain}:{}", text(certificate))))
            }
            "tags" => {
                let own = ["kubernetes.do.not.delete", "ack.aliyun.com", "alicloud-ccm.cluster-uid"];
                let tags = lb["tags"].as_object().into_iter().flatten();
                let users = tags.filter(|(key, _)| !own.contains(&key.as_str()));
                sorted(&mut users.map(|(key, value)| format!("{key}={}", text(value))))
            }
            pointer if pointer.starts_with('/') => lb.pointer(pointer).map(text).unwrap_or_default(),
            place => {
                let (of, rest) = place.split_once('/').unwrap();
                let seen = match of {
                    "group" => groups().find(|group| is_own(&group["name"])),
                    port => listeners().find(|(key, _)| key.split('/').next() == Some(port)).map(|(_, it)| it),
                };
                let seen = seen.and_then(|it| it.pointer(&format!("/{rest}"))).map(text).unwrap_or_default();
                if seen.starts_with("k8s") && seen.ends_with(&mark) { "own".to_owned() } else { seen }
            }
        }
    }

    /// What is out of sync after a step.
    fn wrong(&self, kind: Kind, world: &World, step: usize) -> Vec<String> {
        self.rows
            .iter()
            .map(|row| (row, self.look(kind, world, &row.at)))
            .filter(|(row, seen)| *seen != row.seen[step])
            .map(|(row, seen)| format!("{} step {step}: {}: {seen:?}, not {:?}", self.name, row.key, row.seen[step]))
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

/// Sets, changes and removes the annotations of a table. Gives how often each write was made in each of the steps.
async fn try_all(kind: Kind) -> String {
    let subjects = &table(kind).subjects;
    let ((world, ccm), quiet) = match kind {
        Kind::Clb => (open().await, Duration::from_millis(300)),
        // Longer than any job takes to come back to.
        Kind::Nlb => (crate::nlb_golden::open().await, Duration::from_secs(6)),
    };
    let mut writes = Vec::new();
    for step in 0..3 {
        drop(world.testbed.cloud.take_calls());
        for subject in subjects {
            subject.give(kind, &world.testbed, step);
        }
        let began = Instant::now();
        let wrong = || subjects.iter().flat_map(|subject| subject.wrong(kind, &world, step)).collect::<Vec<_>>();
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if wrong().is_empty() {
                // What must not happen would have happened by now.
                world.until_quiet(quiet).await;
                if wrong().is_empty() {
                    break;
                }
            }
            assert!(began.elapsed() < PATIENCE, "{}\n{}", wrong().join("\n"), world.logs());
        }
        // What cannot be changed is reported, by its key.
        for subject in subjects.iter().filter(|subject| step == 1 && subject.name.starts_with("fixed")) {
            for row in &subject.rows {
                // A vSwitch is looked at only when the load balancer is made, which is no failure.
                let how = if row.key == "vswitch-id" { "LoadBalancerSettings" } else { "SyncLoadBalancerFailed" };
                let tells = |(kind, reason, message): &(String, String, String)| {
                    kind == "Warning"
                        && reason == how
                        && message.contains(&row.key)
                        && message.contains(&text(&row.given[1]))
                };
                let reported = || world.events("Service", &subject.name).iter().any(tells);
                world.until(&format!("{} is reported", row.key), |_| reported()).await;
            }
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in world.testbed.cloud.writes() {
            *counts.entry(call.action).or_default() += 1;
        }
        writes.extend(counts.iter().map(|(action, count)| format!("{step}: {count} {action}\n")));
    }
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    writes.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_annotation_does_what_the_page_says() {
    let (_, writes) = tokio::join!(try_all(Kind::Clb), try_all(Kind::Nlb));
    let expected: Expect = expect![[r#"
        0: 21 AddServersToServerGroup
        0: 1 AssociateAdditionalCertificatesWithListener
        0: 20 CreateListener
        0: 19 CreateLoadBalancer
        0: 19 CreateServerGroup
        0: 1 EnableLoadBalancerIpv6Internet
        0: 1 LoadBalancerJoinSecurityGroup
        0: 1 UpdateLoadBalancerAttribute
        1: 7 AddServersToServerGroup
        1: 1 AssociateAdditionalCertificatesWithListener
        1: 1 AttachCommonBandwidthPackageToLoadBalancer
        1: 2 CreateListener
        1: 5 CreateServerGroup
        1: 2 DeleteListener
        1: 4 DeleteServerGroup
        1: 1 DetachCommonBandwidthPackageFromLoadBalancer
        1: 1 DisableLoadBalancerIpv6Internet
        1: 1 DisassociateAdditionalCertificatesWithListener
        1: 1 LoadBalancerJoinSecurityGroup
        1: 1 LoadBalancerLeaveSecurityGroup
        1: 2 RemoveServersFromServerGroup
        1: 1 TagResources
        1: 1 UntagResources
        1: 7 UpdateListenerAttribute
        1: 1 UpdateLoadBalancerAddressTypeConfig
        1: 1 UpdateLoadBalancerAttribute
        1: 1 UpdateLoadBalancerProtection
        1: 1 UpdateLoadBalancerZones
        1: 4 UpdateServerGroupAttribute
        1: 2 UpdateServerGroupServersAttribute
        2: 3 AddServersToServerGroup
        2: 2 CreateListener
        2: 2 CreateServerGroup
        2: 2 DeleteListener
        2: 2 DeleteServerGroup
        2: 2 UpdateServerGroupServersAttribute
    "#]];
    expected.assert_eq(&writes);
}

/// Annotations and where each shows, see [`Subject::look`].
pub(crate) fn places(kind: Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    table(kind).subjects.iter().flat_map(|subject| &subject.rows).map(|row| (row.key.as_str(), row.at.as_str()))
}

/// Whether each annotation of a table is tried, here or elsewhere.
fn none_is_left_out<N: AnnotationName>(kind: Kind) {
    let elsewhere = &table(kind).elsewhere;
    let tried: BTreeSet<&str> = places(kind).map(|(key, _)| key).chain(elsewhere.keys().map(String::as_str)).collect();
    let known: BTreeSet<&str> = N::TABLE
        .iter()
        .map(|entry| match entry.key {
            AnnotationKey::Suffix(key) | AnnotationKey::CurrentSuffix(key) | AnnotationKey::Whole(key) => key,
        })
        .collect();
    assert_eq!(tried, known);
    for (key, test) in elsewhere {
        assert!(crate::checklist::exists(test), "{key} is said to be tried in {test}, which does not exist");
    }
}

/// One step of a subject, in a world without drift checks.
struct Edit {
    kind: Kind,
    subject: &'static Subject,
    step: usize,
}

impl Edit {
    fn product(testbed: &Testbed) -> Product {
        let vswitches = "cloud.vswitches=[\"cn-hangzhou-i:vsw-exam-i\"]";
        let set = ["cloud.vpc_id=vpc-exam", vswitches, "service.type_annotation=true"];
        Product::start_with(testbed, &["service", "nlb"], UNCHECKED, &set)
    }

    /// The world before the step.
    async fn prepared(&self) -> Testbed {
        let testbed = match self.kind {
            Kind::Clb => crate::golden::testbed().await,
            Kind::Nlb => crate::nlb_golden::testbed().await,
        };
        let _product = Self::product(&testbed);
        for earlier in 0..self.step {
            self.subject.give(self.kind, &testbed, earlier);
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        testbed
    }

    /// Takes the step while an action fails for two minutes. Gives how that went, and the writes.
    async fn taken(&self, start: &Testbed, fault: Option<(&str, Fault)>) -> (Course, BTreeSet<String>) {
        let testbed = start.fork().await.unwrap();
        let product = Self::product(&testbed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(testbed.cloud.take_calls());
        if let Some((action, fault)) = fault {
            testbed.cloud.faults().always(action, fault);
        }
        self.subject.give(self.kind, &testbed, self.step);
        tokio::time::sleep(Duration::from_secs(120)).await;
        let writes = testbed.cloud.writes().into_iter().map(|call| call.action).collect();
        (Course::ends(&testbed, &product, ("Service", &self.subject.name)).await, writes)
    }

    /// What is wrong after each write of the step failed, each in one of the ways of [`REFUSALS`] by turns.
    fn wrong(&self) -> Vec<String> {
        let (start, _) = on_a_clock_of_its_own(0, self.prepared());
        let ((undisturbed, writes), _) = on_a_clock_of_its_own(0, self.taken(&start, None));
        let refused = |(action, (name, fault)): (&String, &Named<Fault>)| {
            let ((course, _), log) = on_a_clock_of_its_own(0, self.taken(&start, Some((action, fault()))));
            let (kind, subject, step) = (self.kind, &self.subject.name, self.step);
            let said = |text| format!("{kind:?} {subject}, step {step}, {action} {name}: {text}\n{log}");
            course.wrong(&undisturbed).into_iter().map(said).collect::<Vec<_>>()
        };
        writes.iter().zip(REFUSALS.iter().cycle()).flat_map(refused).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_the_cloud_refuses_is_told_on_its_service_and_in_sync_5_minutes_after_the_cloud_takes_it() {
    let subjects = Kind::BOTH.into_iter().flat_map(|kind| table(kind).subjects.iter().map(move |it| (kind, it)));
    let edits: Vec<Edit> =
        subjects.flat_map(|(kind, subject)| (0..3).map(move |step| Edit { kind, subject, step })).collect();
    let wrong = in_parallel(edits.len(), move |index| edits[index].wrong()).await.concat();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_annotation_is_left_out() {
    none_is_left_out::<ClbName>(Kind::Clb);
    none_is_left_out::<NlbName>(Kind::Nlb);
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_addresses_are_published() {
    let (world, _ccm) = open().await;
    let subject = Subject { name: "eip".to_owned(), ports: tcp(), base: BTreeMap::new(), rows: vec![] };
    subject.give(Kind::Clb, &world.testbed, 0);
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
