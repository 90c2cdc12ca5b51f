//! Every annotation, set, changed and removed, and its effect in the cloud.

mod clb;
mod nlb;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use alicloud_ccm::plan::clb::annotations::Name as ClbName;
use alicloud_ccm::plan::loadbalancer::annotations::{AnnotationKey, AnnotationName, PREFIX};
use alicloud_ccm::plan::nlb::annotations::Name as NlbName;
use expect_test::{Expect, expect};
use serde_json::{Map, Value, json};
use sim::cloud::Eip;
use sim::cluster::Endpoint;

use crate::golden::{NAMESPACE, open};
use crate::harness::{Ccm, PATIENCE, World};
use crate::kinds::Kind;

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

const TCP: &[(u16, &str)] = &[(80, "TCP")];
const ONE: &str = "service.beta.kubernetes.io/backend-type";
const ALL_NODES: &str = "i-d-1 i-d-2 i-d-3 i-d-6";

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

    fn give(&self, kind: Kind, world: &World, step: usize) {
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
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": ports},
        });
        kind.classify(&mut service["spec"]);
        cluster.create(service).unwrap();
        let endpoint = |last: u8, node: &str| Endpoint::ready(IpAddr::V4(Ipv4Addr::new(192, 168, 64, last)), node);
        cluster.set_endpoints(NAMESPACE, self.name, &[endpoint(11, "node-1"), endpoint(21, "node-2")]).unwrap();
    }

    /// What is seen at a place: of the load balancer (a JSON pointer), of a listener (its port and a pointer), of the server
    /// group (`group` and a pointer), or of all backends, domains, zones, tags, or the status.
    fn look(&self, kind: Kind, world: &World, at: &str) -> String {
        let service = world.testbed.cluster.get("Service", NAMESPACE, self.name).unwrap();
        let id = service["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap_or_default();
        let snapshot = world.testbed.cloud.snapshot();
        let lb = match kind {
            Kind::Clb => world.testbed.cloud.load_balancer(id),
            Kind::Nlb => world.testbed.cloud.network_load_balancer(id),
        };
        let separator = if kind == Kind::Clb { "/" } else { "." };
        let mark = [separator, self.name, separator, NAMESPACE, separator, "cexam"].concat();
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
        let expected = |row: &Row| [row.set.1, row.changed.1, row.gone][step];
        self.rows
            .iter()
            .map(|row| (row, self.look(kind, world, row.at)))
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

/// Sets, changes and removes the annotations of these Services. Gives how often each write was made in each of the steps.
async fn try_all(kind: Kind, (world, ccm): (World, Ccm), subjects: &[Subject], quiet: Duration) -> String {
    let mut writes = Vec::new();
    for step in 0..3 {
        drop(world.testbed.cloud.take_calls());
        for subject in subjects {
            subject.give(kind, &world, step);
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
    try_all(Kind::Clb, open().await, clb::SUBJECTS, Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_annotation_of_network_load_balancers_does_what_the_page_says() {
    // Longer than any job takes to come back to.
    let quiet = Duration::from_secs(6);
    let writes = try_all(Kind::Nlb, crate::nlb_golden::open().await, nlb::SUBJECTS, quiet).await;
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
    let subjects = if kind == Kind::Clb { clb::SUBJECTS } else { nlb::SUBJECTS };
    subjects.iter().flat_map(|subject| subject.rows).map(|row| (row.key, row.at))
}

/// Whether each annotation of a table is tried, here or elsewhere.
fn none_is_left_out<N: AnnotationName>(subjects: &[Subject], elsewhere: &[(&'static str, &str)]) {
    let tried = subjects.iter().flat_map(|subject| subject.rows).map(|row| row.key);
    let tried: BTreeSet<&str> = tried.chain(elsewhere.iter().map(|(key, _)| *key)).collect();
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

#[test]
fn no_annotation_is_left_out() {
    none_is_left_out::<ClbName>(clb::SUBJECTS, clb::ELSEWHERE);
    none_is_left_out::<NlbName>(nlb::SUBJECTS, nlb::ELSEWHERE);
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_addresses_are_published() {
    let (world, _ccm) = open().await;
    let subject = Subject { name: "eip", ports: TCP, base: &[], rows: &[] };
    subject.give(Kind::Clb, &world, 0);
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
