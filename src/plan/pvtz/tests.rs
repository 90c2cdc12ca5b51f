use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::desire::{NamingRules, WantedRecords, desire};
use super::diff::{CONFIRM, RecordRules, RecordStep, Sightings, diff};
use super::*;
use crate::plan::inputs::{
    Endpoint, EndpointsView, NodeAddress, NodeView, ServicePort, ServiceType, ServiceView, TargetPort,
};

const ZONE: &str = "cluster.example";

fn naming() -> NamingRules {
    let types = RecordType::ALL.into();
    NamingRules { zone: ZONE.into(), types, namespaces: BTreeSet::new(), nodes: false }
}

fn rules() -> RecordRules {
    RecordRules { remark: mark::remark("c1", "u1"), ttl: 60, zone: ZONE.into() }
}

fn service(service_type: ServiceType, ips: &[&str]) -> ServiceView {
    let port = |name: &str, port| ServicePort {
        name: name.into(),
        protocol: "TCP".into(),
        port,
        target_port: TargetPort::Name("web".into()),
        node_port: 0,
    };
    ServiceView {
        key: ObjectKey::new("shop", "web"),
        service_type,
        cluster_ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
        ports: vec![port("http", 80), port("", 81)],
        ..ServiceView::default()
    }
}

fn endpoint(address: &str, ready: bool, port: u16) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        node: None,
        pod: None,
        pod_uid: 0,
        hostname: None,
        ready,
        serving: true,
        terminating: false,
        ports: [("http".to_owned(), port)].into(),
    }
}

fn wanted(service: &ServiceView, endpoints: Option<Vec<Endpoint>>, naming: &NamingRules) -> WantedRecords {
    let view = endpoints.map(|endpoints| Arc::new(EndpointsView { unknown: false, endpoints }));
    desire([service], |_| view.clone(), &[], naming)
}

fn lines(wanted: &WantedRecords) -> Vec<String> {
    wanted.records.iter().map(ToString::to_string).collect()
}

#[test]
fn a_cluster_ip_of_either_family_has_its_record_and_a_named_port_leads_to_where_it_listens() {
    let dual = service(ServiceType::NodePort, &["10.0.0.7", "fd00:0:0::7"]);
    let expected = [
        "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f PTR web.shop.svc",
        "7.0.0.10 PTR web.shop.svc",
        "_http._tcp.web.shop.svc SRV 0 100 80 web.shop.svc",
        "web.shop.svc A 10.0.0.7",
        "web.shop.svc AAAA fd00::7",
    ];
    assert_eq!(lines(&wanted(&dual, None, &naming())), expected);
    let only = NamingRules { types: [RecordType::Aaaa].into(), ..naming() };
    assert_eq!(lines(&wanted(&dual, None, &only)), expected[4..]);
    let elsewhere = NamingRules { namespaces: ["till".to_owned()].into(), ..naming() };
    assert!(lines(&wanted(&dual, None, &elsewhere)).is_empty());
    assert!(lines(&wanted(&ServiceView { deleting: true, ..dual }, None, &naming())).is_empty());
}

#[test]
fn a_headless_service_leads_to_its_ready_endpoints() {
    let headless = service(ServiceType::ClusterIp, &["None"]);
    let all =
        vec![endpoint("10.1.0.1", true, 8080), endpoint("10.1.0.2", true, 9090), endpoint("10.1.0.3", false, 8080)];
    let expected = [
        "_http._tcp.web.shop.svc SRV 0 100 8080 web.shop.svc",
        "_http._tcp.web.shop.svc SRV 0 100 9090 web.shop.svc",
        "web.shop.svc A 10.1.0.1",
        "web.shop.svc A 10.1.0.2",
    ];
    assert_eq!(lines(&wanted(&headless, Some(all.clone()), &naming())), expected);
    let published = ServiceView { publish_not_ready: true, ..headless.clone() };
    assert_eq!(wanted(&published, Some(all), &naming()).records.len(), 5);
    let unknown = wanted(&headless, None, &naming());
    assert!(unknown.records.is_empty() && unknown.unknown.contains(&headless.key));
}

#[test]
fn an_external_name_is_an_alias_or_an_address() {
    let external = |name: &str| ServiceView { external_name: name.into(), ..service(ServiceType::ExternalName, &[]) };
    let of = |name: &str| wanted(&external(name), None, &naming());
    assert_eq!(lines(&of("DB.example.com.")), ["web.shop.svc CNAME db.example.com"]);
    assert_eq!(lines(&of("192.168.1.1")), ["web.shop.svc A 192.168.1.1"]);
    for bad in ["", "a b", "a..b", &"x".repeat(64)] {
        let wanted = of(bad);
        assert!(wanted.records.is_empty() && wanted.problems.len() == 1, "{bad:?}: {wanted:?}");
    }
}

fn content(kind: RecordType, value: &str) -> RecordContent {
    RecordContent { name: "web.shop.svc".into(), kind, value: value.into() }
}

fn record(id: usize, content: &RecordContent, remark: &str) -> ZoneRecord {
    let (name, kind, value) = (content.name.clone(), content.kind.as_str().into(), content.value_in(ZONE));
    ZoneRecord { id: id.to_string(), name, kind, value, ttl: 60, remark: remark.into() }
}

fn of(records: &[RecordContent]) -> WantedRecords {
    WantedRecords { records: records.iter().cloned().collect(), ..WantedRecords::default() }
}

/// What is done at once, as people read it.
fn steps(wanted: &WantedRecords, observed: &[ZoneRecord]) -> Vec<String> {
    let plan = diff(wanted, observed, &rules(), &mut Sightings::new(), Duration::ZERO);
    plan.steps.iter().map(ToString::to_string).collect()
}

#[test]
fn a_value_that_moved_is_one_write() {
    let (old, new) = (content(RecordType::A, "10.0.0.1"), content(RecordType::A, "10.0.0.2"));
    let observed = [record(1, &old, &rules().remark)];
    assert_eq!(steps(&of(&[new]), &observed), ["update record web.shop.svc A 10.0.0.2, before: 10.0.0.1"]);
    let other = ZoneRecord { ttl: 5, ..observed[0].clone() };
    assert_eq!(steps(&of(&[old]), &[other]), ["update record web.shop.svc A 10.0.0.1, before: TTL 5"]);
}

#[test]
fn an_alias_makes_room_before_other_records_come() {
    let (alias, address) = (content(RecordType::Cname, "a.example"), content(RecordType::A, "10.0.0.1"));
    let delete_first = ["delete record web.shop.svc CNAME a.example", "add record web.shop.svc A 10.0.0.1"];
    assert_eq!(steps(&of(std::slice::from_ref(&address)), &[record(1, &alias, &rules().remark)]), delete_first);
    let delete_first = ["delete record web.shop.svc A 10.0.0.1", "add record web.shop.svc CNAME a.example"];
    assert_eq!(steps(&of(&[alias]), &[record(1, &address, &rules().remark)]), delete_first);
}

#[test]
fn what_others_say_is_left_and_nothing_is_mixed_with_it() {
    let (ours, theirs) = (content(RecordType::A, "10.0.0.1"), content(RecordType::A, "10.0.0.9"));
    let foreign = [record(1, &theirs, &mark::remark("c1", "u2"))];
    let plan = diff(&of(std::slice::from_ref(&ours)), &foreign, &rules(), &mut Sightings::new(), Duration::ZERO);
    assert!(plan.is_empty() && plan.conflicts[&ObjectKey::new("shop", "web")].contains("another cluster"), "{plan:?}");
    let equal = diff(&of(&[theirs]), &foreign, &rules(), &mut Sightings::new(), Duration::ZERO);
    assert!(equal.is_empty() && equal.conflicts.is_empty(), "{equal:?}");
    let text = ZoneRecord { kind: "TXT".into(), value: "v=1".into(), ..foreign[0].clone() };
    assert_eq!(steps(&of(&[ours]), &[text]), ["add record web.shop.svc A 10.0.0.1"]);
}

#[test]
fn pods_of_a_headless_service_that_have_a_host_name_have_their_own_names() {
    let headless = service(ServiceType::ClusterIp, &["None"]);
    let named = |host: &str, address: &str| Endpoint { hostname: Some(host.into()), ..endpoint(address, true, 8080) };
    let all = vec![named("db-0", "10.1.0.1"), named("db-1", "10.1.0.2"), endpoint("10.1.0.3", true, 8080)];
    let wanted = wanted(&headless, Some(all), &naming());
    let expected = [
        "1.0.1.10 PTR db-0.web.shop.svc",
        "2.0.1.10 PTR db-1.web.shop.svc",
        "_http._tcp.web.shop.svc SRV 0 100 8080 db-0.web.shop.svc",
        "_http._tcp.web.shop.svc SRV 0 100 8080 db-1.web.shop.svc",
        "_http._tcp.web.shop.svc SRV 0 100 8080 web.shop.svc",
        "db-0.web.shop.svc A 10.1.0.1",
        "db-1.web.shop.svc A 10.1.0.2",
        "web.shop.svc A 10.1.0.1",
        "web.shop.svc A 10.1.0.2",
        "web.shop.svc A 10.1.0.3",
    ];
    assert_eq!(lines(&wanted), expected);
    assert!(wanted.records.iter().all(|record| record.owner() == headless.key), "whatever its name is");
}

#[test]
fn nodes_have_names_if_they_are_asked_for_and_keep_them_while_none_is_shown() {
    let node = |name: &str| {
        let address = |kind: &str, address: &str| NodeAddress { kind: kind.into(), address: address.into() };
        let addresses = vec![address("InternalIP", "192.168.0.1"), address("ExternalIP", "47.1.1.1")];
        Arc::new(NodeView { name: name.into(), addresses, ..NodeView::default() })
    };
    let rules = NamingRules { nodes: true, ..naming() };
    let of_nodes = |nodes: &[Arc<NodeView>], naming: &NamingRules| desire([], |_| None, nodes, naming);
    let named = of_nodes(&[node("cn-hangzhou.i-1")], &rules);
    assert_eq!(lines(&named), ["cn-hangzhou.i-1.node A 192.168.0.1"]);
    assert_eq!(named.records.first().unwrap().owner(), ObjectKey::cluster("cn-hangzhou.i-1"));
    assert!(lines(&of_nodes(&[node("node-1")], &naming())).is_empty(), "nobody asked");
    let observed = [record(1, named.records.first().unwrap(), &super::tests::rules().remark)];
    assert!(steps(&of_nodes(&[], &rules), &observed).is_empty(), "no node at all cannot be right");
    assert_eq!(steps(&of_nodes(&[node("node-2")], &rules), &observed).len(), 2, "one goes, one comes");
    assert_eq!(steps(&of_nodes(&[], &naming()), &observed).len(), 1, "nobody asks any more");
}

#[test]
fn a_name_that_dns_cannot_hold_keeps_no_other_record_of_its_service_away() {
    let long = NamingRules { zone: "z".repeat(60), ..naming() };
    let service = ServiceView {
        key: ObjectKey::new("n".repeat(63), "s".repeat(63)),
        ..service(ServiceType::ClusterIp, &["10.0.0.7"])
    };
    let long = NamingRules { zone: format!("{}.{}", long.zone, "z".repeat(52)), ..long };
    let wanted = wanted(&service, None, &long);
    let kinds: Vec<_> = wanted.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [RecordType::Ptr, RecordType::A], "the name of the port is too long");
    assert!(wanted.problems[&service.key].contains("metadata.name: Invalid value") && wanted.unknown.is_empty());
}

#[test]
fn a_target_outside_of_the_zone_is_not_taken_for_one_in_it() {
    let relative = content(RecordType::Srv, "0 100 80 web.shop.svc");
    let theirs =
        ZoneRecord { value: "0 100 80 web.shop.svc".into(), ..record(1, &relative, "record.managed.by.ack.ccm") };
    assert_eq!(theirs.content(ZONE).unwrap().value, "0 100 80 web.shop.svc.");
    assert_eq!(record(1, &relative, "").content(ZONE), Some(relative));
}

#[test]
fn an_alias_that_waits_for_a_second_sighting_keeps_what_comes_in_its_place_waiting() {
    let name = |number: usize, kind, value: &str| RecordContent {
        name: format!("web-{number}.shop.svc"),
        kind,
        value: value.into(),
    };
    let aliases: Vec<_> =
        (0..4).map(|number| record(number, &name(number, RecordType::Cname, "a.example"), &rules().remark)).collect();
    let addresses = of(&(0..4).map(|number| name(number, RecordType::A, "10.0.0.1")).collect::<Vec<_>>());
    let mut sighted = Sightings::new();
    let plan = diff(&addresses, &aliases, &rules(), &mut sighted, Duration::ZERO);
    assert_eq!((plan.steps.len(), plan.withheld.len()), (0, 4), "{plan:?}");
    let plan = diff(&addresses, &aliases, &rules(), &mut sighted, CONFIRM);
    assert_eq!((plan.steps.len(), plan.withheld.len()), (8, 0), "{plan:?}");
}

#[test]
fn unknown_services_keep_their_records() {
    let observed = [record(1, &content(RecordType::A, "10.0.0.1"), &rules().remark)];
    let unknown = WantedRecords { unknown: [ObjectKey::new("shop", "web")].into(), ..WantedRecords::default() };
    assert!(steps(&unknown, &observed).is_empty());
}

#[test]
fn more_than_a_share_goes_only_when_it_was_seen_before() {
    let name = |number: usize| RecordContent {
        name: format!("web-{number}.shop.svc"),
        kind: RecordType::A,
        value: "10.0.0.1".into(),
    };
    let all: Vec<_> = (0..12).map(|number| record(number, &name(number), &rules().remark)).collect();
    let left = |from: usize| of(&(from..12).map(name).collect::<Vec<_>>());
    let mut sighted = Sightings::new();
    let at = |seconds| Duration::from_secs(seconds);
    assert_eq!(diff(&left(3), &all, &rules(), &mut Sightings::new(), at(0)).steps.len(), 3, "a quarter");
    let plan = diff(&left(4), &all, &rules(), &mut sighted, at(0));
    assert_eq!((plan.steps.len(), plan.withheld.len()), (0, 4));
    let plan = diff(&left(5), &all, &rules(), &mut sighted, CONFIRM);
    assert_eq!((plan.steps.len(), plan.withheld.len()), (4, 1), "the fifth is new");
    assert_eq!(diff(&left(0), &all, &rules(), &mut sighted, CONFIRM * 2).steps.len(), 0);
    assert!(sighted.is_empty(), "wanted again");
}

fn any_records() -> impl Strategy<Value = Vec<RecordContent>> {
    let one = ("[ab]", 0..5_usize, 0..3_usize).prop_map(|(name, kind, value)| {
        let kind = RecordType::ALL[kind];
        let value = match kind {
            RecordType::A => format!("10.0.0.{value}"),
            RecordType::Aaaa => format!("fd00::{}", value + 1),
            RecordType::Cname => format!("n{value}.example"),
            RecordType::Srv => format!("0 100 {value} a.shop.svc"),
            RecordType::Ptr => format!("n{value}.shop.svc"),
        };
        RecordContent { name: format!("{name}.shop.svc"), kind, value }
    });
    prop::collection::vec(one, 0..8)
}

proptest! {
    /// What is planned is done in order by a cloud that has one record of each content; then nothing is left to do.
    #[test]
    fn plans_converge_and_touch_nothing_of_others(
        wanted in any_records(), ours in any_records(), others in any_records()
    ) {
        let mut zone: Vec<ZoneRecord> = Vec::new();
        for (content, remark) in ours.iter().map(|it| (it, rules().remark)).chain(others.iter().map(|it| (it, String::new()))) {
            zone.push(record(zone.len(), content, &remark));
        }
        let theirs = |zone: &[ZoneRecord]| -> Vec<ZoneRecord> {
            zone.iter().filter(|record| record.remark.is_empty()).cloned().collect()
        };
        let (before, wanted, mut sighted) = (theirs(&zone), of(&wanted), Sightings::new());
        for round in 0..2 {
            let plan = diff(&wanted, &zone, &rules(), &mut sighted, CONFIRM * round);
            for step in plan.steps {
                match step {
                    RecordStep::Add(content) => {
                        let id = zone.len() + 1000;
                        zone.push(record(id, &content, &rules().remark));
                    }
                    RecordStep::Update { id, after, .. } => {
                        let known = zone.iter_mut().find(|record| record.id == id).unwrap();
                        (known.value, known.ttl) = (after.value_in(ZONE), 60);
                    }
                    RecordStep::Delete { id, .. } => zone.retain(|record| record.id != id),
                }
            }
        }
        prop_assert_eq!(theirs(&zone), before);
        let plan = diff(&wanted, &zone, &rules(), &mut sighted, CONFIRM * 2);
        prop_assert!(plan.is_empty(), "{:?}", plan);
        for content in &wanted.records {
            let there = zone.iter().any(|record| record.content(ZONE).as_ref() == Some(content));
            prop_assert!(there || !plan.conflicts.is_empty(), "{}", content);
        }
    }
}
