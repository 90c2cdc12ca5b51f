//! What is changed and what is left alone: behaviour that users of the official controller rely on, and its defects
//! that are not copied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use litemap::LiteMap;

use super::{Cloud, ENI, NAME, World, key, leaving, lines, node, pod, port};
use crate::plan::clb::model::{InstanceField, ListenerField, Protocol};
use crate::plan::clb::observed::CertificateState;
use crate::plan::clb::operation::{Operation, Own, Plan, Step};
use crate::plan::clb::teardown::{reversible, teardown};
use crate::plan::inputs::{EndpointsView, Ingress};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::loadbalancer::ownership::{
    CLUSTER_TAG, LABEL_LB_ID, LoadBalancerKind, MARK_TAG, Owner, REUSE_TAG, UNPROTECTED_TAG,
};

fn ingress(ip: &str) -> Ingress {
    Ingress { ip: ip.to_owned(), hostname: String::new() }
}

fn tags(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn pods_without_interface_hold_removals_back_while_no_other_is_wanted() {
    let mut world = World::new(&[ENI]);
    let cloud = world.served();
    world.endpoints.endpoints = vec![pod("192.168.64.31", "n1"), pod("10.0.0.1", "n1"), pod("192.168.64.11", "n1")];
    let desired = world.desired();
    assert_eq!(desired.unresolved, BTreeSet::from(["192.168.64.31".parse().unwrap()]));
    assert_eq!(desired.outside, BTreeSet::from(["10.0.0.1".parse().unwrap()]));
    let removes = |plan: &Plan| match &plan.steps[..] {
        [Step { operation: Operation::RemoveBackends { backends, .. }, .. }] => backends.len(),
        _ => 0,
    };
    let plan = diff(&desired, &cloud.observed);
    assert_eq!((removes(&plan), plan.notes.len()), (2, 0), "{plan}");
    for without in [1, 0] {
        let mut alone = world.clone();
        alone.endpoints.endpoints = vec![world.endpoints.endpoints[without].clone()];
        let plan = diff(&alone.desired(), &cloud.observed);
        assert!(plan.steps.is_empty() && plan.notes.len() == 1, "{plan}");
    }
    world.endpoints.endpoints.truncate(1);
    world.endpoints.endpoints.push(pod("192.168.64.11", "n1"));
    let mut dead = cloud.observed.clone();
    for (_, group) in &mut dead.groups {
        let backends = Arc::make_mut(group.backends.as_mut().unwrap());
        let other = backends.iter_mut().find(|backend| &*backend.key.server_ip != "192.168.64.11").unwrap();
        other.key.server_ip = "192.168.64.31".into();
    }
    let plan = diff(&world.desired(), &dead);
    assert_eq!((removes(&plan), plan.notes.len()), (1, 1), "one may be that of the pod: {plan}");
}

#[test]
fn a_listener_does_not_move_to_a_group_that_could_not_be_filled() {
    let mut world = World::new(&[]);
    let cloud = world.served();
    world = world.with(&[ENI]);
    world.enis.clear();
    let plan = diff(&world.desired(), &cloud.observed);
    let kinds: Vec<_> = plan.steps.iter().map(|step| step.operation.to_string()).collect();
    assert_eq!(kinds, ["create group k8s/8080/web/default/c1 with no backends"], "{plan}");
}

#[test]
fn what_the_cloud_chose_is_read_before_an_annotation_about_it_is_refused() {
    let mut cloud = World::new(&[]).served();
    for (annotation, value) in [("resource-group-id", "rg-default"), ("master-zoneid", "z-i"), ("slave-zoneid", "z-j")]
    {
        let desired = World::new(&[(annotation, value)]).desired();
        assert_eq!(diff(&desired, &cloud.observed).problems, [], "{annotation}");
        assert!(desired.needs(&cloud.observed).instance, "{annotation}");
    }
    cloud.edit(InstanceField::ResourceGroup, "rg-default");
    let problems = |group: &str| diff(&World::new(&[("resource-group-id", group)]).desired(), &cloud.observed).problems;
    assert_eq!(problems("rg-default"), []);
    assert!(problems("rg-other")[0].to_string().contains("rg-default"));
}

#[test]
fn nothing_is_said_to_be_withheld_where_there_is_nothing_to_remove() {
    let mut world = World::new(&[]);
    world.service.local_traffic = true;
    world.endpoints = EndpointsView { unknown: true, ..EndpointsView::default() };
    let mut cloud = Cloud::default();
    for _ in 0..2 {
        let plan = world.bring(&mut cloud);
        assert!(plan.notes.is_empty() && !plan.withholds_backends, "{plan}");
    }
    let mut served = World::new(&[]);
    served.service.local_traffic = true;
    let cloud = served.served();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.notes.len() == 1 && plan.withholds_backends, "{plan}");
}

#[test]
fn an_empty_list_of_nodes_empties_nothing() {
    let mut world = World::new(&[]);
    let cloud = world.served();
    world.nodes.clear();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty(), "{plan}");
}

#[test]
fn many_backends_come_in_batches_and_as_many_go_only_after_each() {
    let many = |range: std::ops::Range<u16>| {
        let mut world = World::new(&[ENI]);
        world.endpoints.endpoints = range.map(|n| pod(&format!("192.168.{}.{}", n / 250, n % 250 + 1), "n1")).collect();
        world.enis = world.endpoints.endpoints.iter().map(|e| (e.address, "eni-1".to_owned())).collect();
        world
    };
    let cloud = many(0..200).served();
    let plan = diff(&many(200..400).desired(), &cloud.observed);
    let kinds: Vec<_> = plan
        .steps
        .iter()
        .map(|step| match &step.operation {
            Operation::AddBackends { backends, .. } => ('+', backends.len()),
            Operation::RemoveBackends { backends, .. } => ('-', backends.len()),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(kinds, [[('+', 40), ('-', 40)]; 5].concat());
}

#[test]
fn two_ports_of_one_users_group_are_both_in_it() {
    let world = World::new(&[("id", "lb-user"), ("vgroup-port", "rsp-user:80,rsp-user:81")])
        .ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    assert_eq!(cloud.observed.groups.get("rsp-user").unwrap().backends.as_ref().unwrap().len(), 5);
    assert_eq!(world.plan(&cloud), "");
}

#[test]
fn a_users_group_that_is_no_longer_named_gets_our_backends_taken_out() {
    let with = |id: &'static str| World::new(&[("id", "lb-user"), ("vgroup-port", id)]);
    let mut cloud = Cloud::of_user();
    cloud
        .observed
        .groups
        .insert("rsp-y".to_owned(), ObservedGroup { name: "other".to_owned(), backends: Some(Arc::default()) });
    with("rsp-user:80").bring(&mut cloud);
    with("rsp-y:80").bring(&mut cloud);
    assert_eq!(cloud.backends("other").len(), 2);
    assert_eq!(cloud.backends("users-group"), BTreeSet::from([("i-user".to_owned(), 100)]));
}

#[test]
fn users_groups_must_be_there_and_not_be_a_controllers() {
    let mut cloud = Cloud::of_user();
    cloud.observed.groups.get_mut("rsp-user").unwrap().name = "k8s/80/other/ns/c2".to_owned();
    for id in ["rsp-user:80", "rsp-none:80"] {
        let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true"), ("vgroup-port", id)]);
        let plan = diff(&world.desired(), &cloud.observed);
        assert_eq!((plan.problems.len(), plan.steps.len()), (1, 1), "{plan}");
        assert!(matches!(plan.steps[0].operation, Operation::Tag { .. }));
    }
}

#[test]
fn backends_of_others_are_neither_changed_nor_removed() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let group =
        Arc::make_mut(cloud.observed.groups.iter_mut().map(|(_, it)| it).next().unwrap().backends.as_mut().unwrap());
    group[0].description = "mine now".into();
    group[0].weight = 7;
    assert_eq!(world.plan(&cloud), "");
    let mut world = world;
    world.nodes.remove(0);
    assert_eq!(world.plan(&cloud), "");
}

#[test]
fn weights_are_left_alone_on_request() {
    let cloud = World::new(&[]).served();
    let world = World::new(&[("default-weight", "50"), ("ignore-weight-update", "on")]);
    assert_eq!(world.plan(&cloud), "");
    assert!(World::new(&[("default-weight", "50")]).plan(&cloud).starts_with("set in k8s/30080"));
}

#[test]
fn two_groups_of_one_name_become_one() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let (id, group) = cloud.observed.groups.first().map(|(id, group)| (id.clone(), group.clone())).unwrap();
    cloud.observed.groups.insert("a-twin".to_owned(), group);
    let plan = world.bring(&mut cloud);
    assert_eq!(cloud.observed.groups.keys().collect::<Vec<_>>(), [&id], "{plan}");
    assert_eq!(cloud.listener(80, Protocol::Tcp).group_id, id);
}

#[test]
fn an_lb_of_another_owner_is_refused() {
    let world = World::new(&[("id", "lb-user")]);
    for tag in [MARK_TAG, CLUSTER_TAG] {
        let mut cloud = Cloud::of_user();
        cloud.instance().tags.insert(tag.to_owned(), "any".to_owned());
        let plan = diff(&world.desired(), &cloud.observed);
        assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
    }
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.instance().tags.insert(CLUSTER_TAG.to_owned(), "another".to_owned());
    let owner = Owner::of(&world.service, &world.settings);
    for plan in [diff(&world.desired(), &cloud.observed), teardown(&owner, &leaving(None, false), &cloud.observed)] {
        assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
    }
}

#[test]
fn a_service_with_an_address_does_not_move_to_another_load_balancer() {
    let reuse = |ingress: Vec<Ingress>, extra: &[(&str, &str)]| {
        let mut world = World::new(&[&[("id", "lb-user")], extra].concat());
        world.service.ingress = ingress;
        diff(&world.desired(), &Cloud::of_user().observed).problems.len()
    };
    let hostname = Ingress { ip: String::new(), hostname: "a.example.com".to_owned() };
    assert_eq!(reuse(vec![], &[]), 0);
    assert_eq!(reuse(vec![ingress("47.98.1.1")], &[]), 0);
    assert_eq!(reuse(vec![hostname], &[]), 0);
    assert_eq!(reuse(vec![ingress("1.2.3.4")], &[]), 1);
    assert_eq!(reuse(vec![ingress("1.2.3.4")], &[("external-ip-type", "eip")]), 0);
}

#[test]
fn a_service_stays_on_the_load_balancer_that_its_label_names_whatever_address_it_publishes() {
    for (label, problems) in [("lb-user", 0), ("lb-another", 1)] {
        let mut world = World::new(&[("id", "lb-user")]);
        // An elastic address, which the annotation no longer asks for.
        world.service.ingress = vec![ingress("1.2.3.4")];
        world.service.labels.insert(LABEL_LB_ID.to_owned(), label.to_owned());
        let plan = diff(&world.desired(), &Cloud::of_user().observed);
        assert_eq!((plan.problems.len(), plan.is_unusable), (problems, problems > 0), "{label}: {plan}");
    }
}

/// Whoever asks for a plan without an instance has proven that there is none.
#[test]
fn a_lost_load_balancer_is_made_again_unless_it_was_named() {
    let mut world = World::new(&[]);
    world.service.ingress = vec![ingress("47.98.0.1")];
    let plan = diff(&world.desired(), &Cloud::default().observed);
    assert!(plan.problems.is_empty() && matches!(plan.steps[0].operation, Operation::Create(_)), "{plan}");
    let plan = diff(&World::new(&[("id", "lb-none")]).desired(), &Cloud::default().observed);
    assert!(plan.steps.is_empty() && plan.problems[0].to_string().contains("lb-none"), "{plan}");
}

#[test]
fn lost_marks_are_restored() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.instance().tags.clear();
    assert_eq!(
        lines(&world.plan(&cloud)),
        [format!("tag ack.aliyun.com=c1, {MARK_TAG}={NAME}  # marks that are missing")]
    );
    cloud.instance().tags = (0..19).map(|n| (format!("t{n}"), String::new())).collect();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.notes.len() == 1, "{plan}");
}

#[test]
fn the_tag_list_is_authoritative_but_spares_the_vendors() {
    let world = World::new(&[("additional-resource-tags", "k=v")]);
    let mut cloud = World::new(&[]).served();
    cloud.instance().tags.extend(tags(&[("acs:x", "1"), ("user", "1")]));
    let found: Vec<_> = diff(&world.desired(), &cloud.observed).steps.iter().map(|s| s.operation.to_string()).collect();
    assert_eq!(found, ["tag k=v", "untag user"]);
    assert_eq!(World::new(&[]).plan(&cloud), "");
}

#[test]
fn what_is_fixed_at_creation_is_compared_and_the_rest_goes_on() {
    for (suffix, value) in [
        ("address-type", "intranet"),
        ("ip-version", "ipv6"),
        ("network-type", "vpc"),
        ("ip", "192.168.1.1"),
        ("master-zoneid", "z-k"),
        ("slave-zoneid", "z-k"),
        ("resource-group-id", "rg-2"),
    ] {
        let mut cloud = World::new(&[]).served();
        let instance = cloud.instance();
        for (field, value) in [
            (InstanceField::MasterZone, "z-i"),
            (InstanceField::SlaveZone, "z-j"),
            (InstanceField::ResourceGroup, "rg-1"),
        ] {
            instance.fields.insert(field, value.to_owned());
        }
        let world = World::new(&[(suffix, value), ("name", "other")]);
        let plan = diff(&world.desired(), &cloud.observed);
        assert_eq!(plan.problems.len(), 1, "{suffix}: {plan}");
        assert!(plan.problems[0].field.ends_with(suffix), "{plan}");
        assert_eq!(
            plan.steps[0].operation,
            Operation::Own(Own::SetInstance(LiteMap::from_iter([(InstanceField::Name, "other".to_owned())])))
        );
    }
}

#[test]
fn charging_follows_its_rules() {
    let plan = |now: &str, spec: &str, wanted: &[(&str, &str)]| {
        let mut cloud = World::new(&[]).served();
        cloud.edit(InstanceField::ChargeType, now);
        cloud.edit(InstanceField::Spec, spec);
        let plan = diff(&World::new(wanted).desired(), &cloud.observed);
        let steps: Vec<_> = plan.steps.iter().map(|step| step.operation.to_string()).collect();
        (steps.join("; "), plan.problems.len())
    };
    let nothing = (String::new(), 0);
    assert_eq!(plan("PayBySpec", "slb.s1.small", &[("spec", "slb.s2.small")]), ("set spec slb.s2.small".to_owned(), 0));
    assert_eq!(plan("PayByCLCU", "slb.lcu.elastic", &[("spec", "slb.s2.small")]), nothing);
    assert_eq!(plan("PayBySpec", "slb.s1.small", &[("instance-charge-type", "paybyspec")]), nothing);
    assert_eq!(
        plan("PayBySpec", "slb.s1.small", &[("instance-charge-type", "PayByCLCU")]),
        ("set instance charge type PayByCLCU".to_owned(), 0)
    );
    assert_eq!(plan("PayByCLCU", "", &[("instance-charge-type", "PayBySpec")]), (String::new(), 1));
    let by_bandwidth = [("charge-type", "paybybandwidth"), ("bandwidth", "50")];
    assert_eq!(plan("PayByCLCU", "", &by_bandwidth), (String::new(), 1));
    assert_eq!(
        plan("PayBySpec", "", &by_bandwidth),
        ("set internet charge type paybybandwidth (bandwidth 50)".to_owned(), 0)
    );
    assert_eq!(plan("PayBySpec", "", &[("charge-type", "paybytraffic"), ("bandwidth", "50")]), nothing);
    assert_eq!(plan("PayBySpec", "", &[("bandwidth", "50")]), nothing);
}

#[test]
fn a_missing_certificate_blocks_only_its_listener() {
    let world = World::new(&[("protocol-port", "https:443")])
        .ports(&[port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)]);
    let mut cloud = Cloud::default();
    let plan = world.bring(&mut cloud);
    assert_eq!(cloud.listeners(), ["80/tcp"]);
    assert_eq!(cloud.observed.groups.len(), 2);
    assert!(plan.problems[0].field.ends_with("cert-id"), "{plan}");
}

#[test]
fn a_listener_that_cannot_be_replaced_keeps_serving() {
    let cloud = World::new(&[]).served();
    let plan = diff(&World::new(&[("protocol-port", "https:80")]).desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
}

#[test]
fn a_new_certificate_must_be_valid_unless_the_old_one_is_gone() {
    let with = |certificate: &'static str| World::new(&[("protocol-port", "https:80"), ("cert-id", certificate)]);
    let cloud = with("cert-1").served();
    let desired = with("cert-2").desired();
    assert_eq!(desired.needs(&cloud.observed).certificates, ["cert-1", "cert-2"].map(str::to_owned).into());
    for (old, new, allowed) in [
        (CertificateState::Valid, CertificateState::Valid, true),
        (CertificateState::Valid, CertificateState::Expired, false),
        (CertificateState::Valid, CertificateState::Missing, false),
        (CertificateState::Missing, CertificateState::Valid, true),
    ] {
        let mut observed = cloud.observed.clone();
        observed.parts.certificates = BTreeMap::from([("cert-1".to_owned(), old), ("cert-2".to_owned(), new)]);
        assert!(desired.needs(&observed).is_empty());
        let plan = diff(&desired, &observed);
        assert_eq!((plan.steps.len(), plan.problems.len()), if allowed { (1, 0) } else { (0, 1) }, "{plan}");
    }
    let without = World::new(&[("protocol-port", "https:80")]);
    assert_eq!(without.plan(&cloud), "");
}

#[test]
fn domain_extensions_change_with_their_ids_and_can_be_cleared() {
    let with = |domains: &'static str| {
        World::new(&[("protocol-port", "https:80"), ("cert-id", "cert-1"), ("domain-extensions", domains)])
    };
    let mut cloud = with("a.example.com:cert-2").served();
    let domains = |cloud: &mut Cloud| {
        let found = cloud.listener(80, Protocol::Https).certificates.clone().unwrap();
        found.into_iter().map(|(domain, found)| format!("{domain}:{}", found.certificate_id)).collect::<Vec<_>>()
    };
    assert_eq!(domains(&mut cloud), ["a.example.com:cert-2"]);
    let id = cloud.listener(80, Protocol::Https).certificates.clone().unwrap()["a.example.com"].id.clone();
    let plan = diff(&with("a.example.com:cert-3").desired(), &cloud.observed);
    let expected = Operation::Own(Own::SetDomainExtension {
        listener: key(80, Protocol::Https),
        id,
        domain: "a.example.com".to_owned(),
        certificate_id: "cert-3".to_owned(),
    });
    assert_eq!(plan.steps.iter().map(|step| &step.operation).collect::<Vec<_>>(), [&expected]);
    cloud.listener(80, Protocol::Https).certificates = None;
    let needs = with("").desired().needs(&cloud.observed);
    assert_eq!(needs.domain_extensions, [key(80, Protocol::Https)]);
    let mut cloud = with("a.example.com:cert-2").served();
    with("").bring(&mut cloud);
    assert_eq!(domains(&mut cloud), Vec::<String>::new());
}

#[test]
fn hash_schedulers_need_a_new_listener_and_the_right_protocol() {
    let cloud = World::new(&[]).served();
    let steps = |scheduler: &'static str, cloud: &Cloud| -> Vec<String> {
        let plan = diff(&World::new(&[("scheduler", scheduler)]).desired(), &cloud.observed);
        plan.steps.iter().map(|step| step.operation.to_string().split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(steps("wlc", &cloud), ["set"]);
    assert_eq!(steps("sch", &cloud), ["delete", "create", "start"]);
    let hashed = World::new(&[("scheduler", "sch")]).served();
    assert_eq!(steps("tch", &hashed), ["delete", "create", "start"]);
    assert_eq!(steps("rr", &hashed), ["set"]);
    for list in [[("scheduler", "qch"), ("name", "x")], [("scheduler", "sch"), ("protocol-port", "http:80")]] {
        assert_eq!(World::new(&list).desire().unwrap_err().len(), 1);
    }
}

#[test]
fn removing_an_annotation_leaves_the_listener_as_it_is() {
    let cloud = World::new(&[("scheduler", "wlc"), ("established-timeout", "20")]).served();
    assert_eq!(World::new(&[]).plan(&cloud), "");
}

#[test]
fn an_edited_description_is_put_right_where_listeners_are_managed() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.listener(80, Protocol::Tcp).description = "tcp_80".to_owned();
    world.bring(&mut cloud);
    assert_eq!(cloud.listener(80, Protocol::Tcp).description, "k8s/80/web/default/c1");

    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    cloud.listener(80, Protocol::Tcp).description = "tcp_80".to_owned();
    world.bring(&mut cloud);
    assert_eq!(cloud.listener(80, Protocol::Tcp).description, "k8s/80/web/default/c1");
    cloud.listener(80, Protocol::Tcp).description = "k8s/80/other/default/c1".to_owned();
    let plan = diff(&world.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.len() == 1, "another Service has taken it: {plan}");
}

#[test]
fn a_users_load_balancer_can_always_be_left() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    cloud.edit(InstanceField::IpVersion, "ipv6");
    cloud.instance().tags.remove(REUSE_TAG);
    let owner = Owner::of(&world.service, &world.settings);
    let with_listeners = teardown(&owner, &leaving(Some("lb-user"), true), &cloud.observed);
    assert_eq!(with_listeners.problems, []);
    assert!(with_listeners.steps.iter().all(|step| step.destroys), "{with_listeners}");
    assert_eq!(with_listeners.steps.len(), 2, "{with_listeners}");
    let hands_off = Departure { override_listeners: false, ..leaving(Some("lb-user"), false) };
    let without = teardown(&owner, &hands_off, &cloud.observed);
    assert_eq!(without, with_listeners, "a group of ours cannot go without the listener that uses it");
    let mut of_user = cloud.clone();
    of_user.listener(80, Protocol::Tcp).description = "by hand".to_owned();
    let without = teardown(&owner, &hands_off, &of_user.observed);
    assert!(without.steps.is_empty() && without.problems[0].field == "listener 80/tcp", "{without}");
    cloud.observed.listeners.as_mut().unwrap().remove(&key(80, Protocol::Tcp));
    let without = teardown(&owner, &hands_off, &cloud.observed);
    assert!(matches!(without.steps[0].operation, Operation::DeleteGroup { .. }), "{without}");
    assert_eq!((without.steps.len(), without.problems.len()), (1, 0), "{without}");
}

#[test]
fn a_service_with_mistakes_can_be_deleted() {
    let service = World::new(&[("id", " lb-user"), ("healthy-threshold", "three"), ("preserve-lb-on-delete", "false")]);
    let departure = Departure::of(LoadBalancerKind::Clb, &service.service);
    assert_eq!((departure.reuse.as_deref(), departure.preserve), (Some("lb-user"), true));
    let world = World::new(&[]);
    let mut cloud = world.served();
    let owner = Owner::of(&world.service, &world.settings);
    let plan = teardown(&owner, &leaving(departure.reuse.as_deref(), false), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
    let id = cloud.instance().id.clone();
    let plan = teardown(&owner, &leaving(Some(&id), false), &cloud.observed);
    assert!(plan.steps.iter().all(|step| !matches!(step.operation, Operation::Delete { .. })), "{plan}");
}

#[test]
fn a_deletion_that_is_not_wanted_any_more_gives_the_protection_back() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let protected = LiteMap::from_iter([(InstanceField::DeleteProtection, "on".to_owned())]);
    cloud.perform(&Operation::Own(Own::SetInstance(protected)));
    let owner = Owner::of(&world.service, &world.settings);
    let plan = reversible(teardown(&owner, &Departure::default(), &cloud.observed));
    assert_eq!(plan.steps.len(), 3, "{plan}");
    for step in &plan.steps[..2] {
        cloud.perform(&step.operation);
    }
    assert!(cloud.instance().fields.is(InstanceField::DeleteProtection, "off"));
    let rest = reversible(teardown(&owner, &Departure::default(), &cloud.observed));
    assert_eq!(rest.steps.len(), 1, "{rest}");

    let unwanted = cloud.observed.clone();
    for (given, protected) in
        [(None, true), (Some(("delete-protection", "on")), true), (Some(("delete-protection", "off")), false)]
    {
        let world = World::new(given.as_slice());
        cloud.observed = unwanted.clone();
        for step in diff(&world.desired(), &cloud.observed).steps {
            cloud.perform(&step.operation);
        }
        assert_eq!(cloud.instance().fields.is(InstanceField::DeleteProtection, "on"), protected);
        assert!(!cloud.instance().tags.contains_key(UNPROTECTED_TAG));
    }
}

#[test]
fn a_load_balancer_without_protection_is_deleted_without_a_mark() {
    let world = World::new(&[("delete-protection", "off")]);
    let cloud = world.served();
    let plan = teardown(&Owner::of(&world.service, &world.settings), &Departure::default(), &cloud.observed);
    assert_eq!(reversible(plan.clone()), plan);
}

#[test]
fn a_preserved_load_balancer_keeps_serving() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let owner = Owner::of(&world.service, &world.settings);
    let before = cloud.observed.clone();
    for step in teardown(&owner, &leaving(None, true), &cloud.observed).steps {
        cloud.perform(&step.operation);
    }
    assert_eq!(cloud.observed.listeners, before.listeners);
    assert_eq!(cloud.observed.groups, before.groups);
    assert_eq!(cloud.instance().tags, LiteMap::new());
    let again = teardown(&owner, &leaving(None, true), &cloud.observed);
    assert!(again.steps.is_empty(), "{again}");
}

#[test]
fn a_group_that_a_users_listener_uses_is_kept_and_reported() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    let group = cloud.listener(80, Protocol::Tcp).group_id.clone();
    cloud.listener(9000, Protocol::Tcp).group_id = group;
    let owner = Owner::of(&world.service, &world.settings);
    let plan = teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed);
    assert_eq!((plan.steps.len(), plan.problems.len()), (1, 1), "{plan}");
}

#[test]
fn marks_that_are_too_long_still_lead_to_their_group() {
    let mut world = World::new(&[]);
    world.service.key.name = "s".repeat(63).into();
    world.service.key.namespace = "n".repeat(63).into();
    let mut cloud = world.served();
    assert_eq!(world.plan(&cloud), "");
    let long = format!("k8s/30080/{}/{}/c1", world.service.key.name, world.service.key.namespace);
    let group = cloud.observed.groups.iter_mut().map(|(_, it)| it).next().unwrap();
    assert!(group.name.len() <= 80, "{}", group.name);
    group.name.clone_from(&long);
    for backend in Arc::make_mut(group.backends.as_mut().unwrap()).iter_mut() {
        backend.description = long.as_str().into();
    }
    assert_eq!(world.plan(&cloud), "");
    world.nodes.push(node("n3", "i-3"));
    world.bring(&mut cloud);
    assert_eq!(cloud.backends(&long).len(), 3);
}

#[test]
fn sticky_sessions_are_checked_before_the_api_is_asked() {
    let plan = |list: &[(&str, &str)]| {
        diff(&World::new(&[&[("protocol-port", "http:80")], list].concat()).desired(), &Cloud::default().observed)
    };
    let sticky = ("sticky-session", "on");
    assert_eq!(plan(&[sticky]).problems.len(), 1);
    assert_eq!(plan(&[sticky, ("sticky-session-type", "insert")]).problems.len(), 1);
    let complete = plan(&[sticky, ("sticky-session-type", "insert"), ("cookie-timeout", "9"), ("cookie", "x")]);
    assert_eq!(complete.problems, []);
    let Operation::CreateListener { fields, .. } = &complete.steps[2].operation else { panic!("{complete}") };
    assert!(fields.contains_key(&ListenerField::CookieTimeout) && !fields.contains_key(&ListenerField::Cookie));
}
