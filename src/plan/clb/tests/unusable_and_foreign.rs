//! What is refused, told or left alone, and what goes on nevertheless.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Cloud, ENI, World, key, leaving, lines, port};
use crate::plan::clb::model::{InstanceField, ListenerField, Protocol};
use crate::plan::clb::observed::{AccessList, CertificateState};
use crate::plan::clb::operation::{Operation, Plan};
use crate::plan::clb::teardown::teardown;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::model::{GroupRef, ObservedGroup};
use crate::plan::loadbalancer::ownership::{CLUSTER_TAG, MARK_TAG, Owner};
use crate::plan::loadbalancer::steps::Target;

const OVERRIDE: [(&str, &str); 2] = [("id", "lb-user"), ("force-override-listeners", "true")];

fn plan(world: &World, cloud: &Cloud) -> Plan {
    diff(&world.desired(), &cloud.observed)
}

/// What the only problem is about, if nothing is done.
fn refused(world: &World, cloud: &Cloud) -> String {
    let plan = plan(world, cloud);
    assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan}");
    plan.problems[0].to_string()
}

#[test]
fn what_no_load_balancer_can_be_made_with_is_refused() {
    let none = Cloud::default();
    assert!(refused(&World::new(&[("ip", "192.168.0.9")]), &none).contains("needs"));
    let bought = ("charge-type", "paybybandwidth");
    assert!(refused(&World::new(&[bought]), &none).contains("charged by bandwidth needs one"));
    // Traffic inside is not charged.
    assert_eq!(plan(&World::new(&[bought, ("address-type", "intranet")]), &none).problems, []);
    let mut classic = World::new(&[("address-type", "intranet"), ("network-type", "classic")]);
    classic.settings.vswitches.clear();
    assert_eq!(plan(&classic, &none).problems, [], "a classic one needs no vSwitch");
}

#[test]
fn a_users_load_balancer_is_the_one_that_is_named_and_nobodys_else() {
    let world = World::new(&[("id", "lb-user")]);
    let mut other = Cloud::of_user();
    other.instance().id = "lb-other".to_owned();
    assert!(refused(&world, &other).contains("lb-other"));
    assert!(refused(&world, &Cloud::default()).contains("that exists"));
    let mut of_cluster = World::new(&[("id", "lb-user")]);
    of_cluster.settings.cluster_tag = "mine".to_owned();
    for tag in [MARK_TAG, CLUSTER_TAG, "mine"] {
        let mut cloud = Cloud::of_user();
        cloud.instance().tags.insert(tag.to_owned(), "any".to_owned());
        assert!(refused(&of_cluster, &cloud).contains(tag), "{tag}");
    }
}

#[test]
fn a_users_listener_on_a_wanted_port_is_overridden_and_one_of_another_service_is_not() {
    for (protocol, taken_over) in [("", "set listener 9000/tcp"), ("http:9000", "create listener 9000/http")] {
        let mut annotations = OVERRIDE.to_vec();
        annotations.extend((!protocol.is_empty()).then_some(("protocol-port", protocol)));
        let world = World::new(&annotations).ports(&[port(9000, "TCP", 8080, 30080)]);
        let mut cloud = Cloud::of_user();
        let first = world.bring(&mut cloud);
        assert_eq!(first.problems, [], "{first}");
        let named = |note: &String| note.contains("users-listener") && note.contains("rsp-user");
        assert_eq!(first.notes.iter().filter(|note| named(note)).count(), 1, "{first}");
        assert!(first.to_string().contains(taken_over), "{first}");
        assert!(cloud.observed.groups.contains_key("rsp-user"), "the user's group stays");
        let again = plan(&world, &cloud);
        assert!(again.steps.is_empty() && again.notes.is_empty(), "once: {again}");
    }
    let world = World::new(&OVERRIDE).ports(&[port(9000, "TCP", 8080, 30080)]);
    let refused = |cloud: &Cloud| {
        let plan = plan(&world, cloud);
        plan.problems.len() == 1 && !plan.steps.iter().any(|step| matches!(step.target, Target::Listener(_)))
    };
    for mark in ["k8s/9000/other/default/c1", "k8s/9000/web/default/other-cluster"] {
        let mut cloud = Cloud::of_user();
        cloud.listener(9000, Protocol::Tcp).description = mark.to_owned();
        assert!(refused(&cloud), "{mark}");
        let mut cloud = Cloud::of_user();
        cloud.observed.groups.get_mut("rsp-user").unwrap().name = mark.to_owned();
        assert!(refused(&cloud), "its group is {mark}");
    }
}

#[test]
fn charges_change_only_in_ways_that_are_open() {
    let by_spec = |list: &[(&str, &str)]| World::new(&[&[("instance-charge-type", "PayBySpec")], list].concat());
    let mut cloud = by_spec(&[]).served();
    let bandwidth = |bandwidth: &'static str| by_spec(&[("charge-type", "paybybandwidth"), ("bandwidth", bandwidth)]);
    assert!(refused(&bandwidth("5001"), &cloud).contains("at most 5000"));
    assert_eq!(lines(&bandwidth("5000").plan(&cloud)).len(), 1);
    // The bandwidth of a load balancer that is charged by traffic is no wish of anybody.
    let silent = by_spec(&[("charge-type", "paybybandwidth")]);
    assert!(refused(&silent, &cloud).contains("charged by bandwidth needs one"));
    cloud.edit(InstanceField::Bandwidth, "50");
    assert!(silent.plan(&cloud).starts_with("set internet charge type paybybandwidth (bandwidth 50)"));
    // The API spells them so, whoever wrote them.
    cloud.edit(InstanceField::ChargeType, "paybyspec");
    assert_eq!(by_spec(&[]).plan(&cloud), "");
    cloud.edit(InstanceField::AddressType, "intranet");
    assert_eq!(bandwidth("60").plan(&cloud), "", "traffic inside is not charged");
}

#[test]
fn an_address_of_version_6_is_not_taken_for_none() {
    let mut cloud = World::new(&[]).served();
    cloud.edit(InstanceField::IpVersion, "ipv6");
    assert!(refused(&World::new(&[]), &cloud).contains("Invalid value: \"ipv4\""));
}

#[test]
fn tags_make_room_before_others_come() {
    let mut cloud = World::new(&[]).served();
    cloud.instance().tags.extend((0..17).map(|n| (format!("old{n}"), String::new())));
    let steps = |tags: &'static str| {
        let plan = plan(&World::new(&[("additional-resource-tags", tags)]), &cloud);
        plan.steps.iter().map(|it| it.operation.to_string().split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(steps("new=1"), ["untag", "tag"]);
    cloud.instance().tags.retain(|tag, _| tag != "old0" && tag != "old1");
    let plan = plan(&World::new(&[("additional-resource-tags", "new=1")]), &cloud);
    assert!(matches!(plan.steps[0].operation, Operation::Tag { .. }), "there is room for both: {plan}");
}

#[test]
fn redirecting_listeners_go_first_whatever_their_numbers() {
    let forwarding: &[(&str, &str)] =
        &[("protocol-port", "http:8080,https:443"), ("forward-port", "8080:443"), ("cert-id", "cert-1")];
    let ports = [port(443, "TCP", 8443, 30443), port(8080, "TCP", 8080, 30080)];
    let deletions = |plan: &Plan| {
        let found = plan.steps.iter().filter_map(|step| match &step.operation {
            Operation::DeleteListener { listener } => Some(listener.to_string()),
            _ => None,
        });
        found.collect::<Vec<_>>()
    };
    let cloud = World::new(forwarding).ports(&ports).served();
    let stale = plan(&World::new(&[]).ports(&[port(81, "TCP", 8081, 30081)]), &cloud);
    assert_eq!(deletions(&stale), ["8080/http", "443/https"], "{stale}");

    let world = World::new(&[&OVERRIDE, forwarding].concat()).ports(&ports);
    let mut shared = Cloud::of_user();
    world.bring(&mut shared);
    let owner = Owner::of(&world.service, &world.settings);
    let left = teardown(&owner, &leaving(Some("lb-user"), false), &shared.observed);
    assert_eq!(deletions(&left), ["8080/http", "443/https"], "{left}");

    // One of the user that redirects to ours keeps it, and that is told.
    shared.listener(8080, Protocol::Http).description = "by hand".to_owned();
    let kept = teardown(&owner, &leaving(Some("lb-user"), false), &shared.observed);
    assert_eq!(deletions(&kept), Vec::<String>::new(), "{kept}");
    assert!(
        kept.problems.iter().any(|it| it.to_string().contains("8080/http, which is not ours, redirects to it")),
        "{kept}"
    );
    let other = plan(&World::new(&OVERRIDE).ports(&[port(81, "TCP", 8081, 30081)]), &shared);
    assert_eq!(deletions(&other), Vec::<String>::new(), "{other}");
    assert!(other.problems.iter().any(|it| it.to_string().contains("8080/http redirects to it and stays")), "{other}");
}

#[test]
fn a_redirection_needs_a_listener_to_lead_to() {
    let redirecting = [("protocol-port", "http:80"), ("forward-port", "80:443")];
    let cloud = World::new(&[("protocol-port", "http:80")]).served();
    assert!(
        refused(&World::new(&redirecting), &cloud)
            .contains("must lead to a port with an HTTPS listener; listener 80/http stays as it is")
    );
}

#[test]
fn a_redirecting_listener_is_set_to_nothing_else() {
    let forwarding: &[(&str, &str)] =
        &[("protocol-port", "http:80,https:443"), ("forward-port", "80:443"), ("cert-id", "cert-1")];
    let ports = [port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)];
    let mut ranges = World::new(forwarding).ports(&ports);
    let cloud = ranges.served();
    let changed = World::new(&[forwarding, &[("idle-timeout", "20")]].concat()).ports(&ports).plan(&cloud);
    assert!(changed.starts_with("set listener 443/https") && lines(&changed).len() == 1, "{changed}");
    ranges.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let protected =
        |port, protocol| ranges.desired().listeners[&key(port, protocol)].fields.contains_key(&ListenerField::AclId);
    assert!(protected(443, Protocol::Https) && !protected(80, Protocol::Http), "it passes nobody on");
}

#[test]
fn a_listener_follows_its_backends_to_another_group() {
    let mut cloud = World::new(&[]).served();
    let plan = World::new(&[ENI]).bring(&mut cloud);
    let moved = "set listener 80/tcp -> k8s/8080/web/default/c1";
    assert!(lines(&plan.to_string())[1].starts_with(moved), "{plan}");
    assert_eq!(cloud.observed.group_id(&GroupRef::Named("k8s/30080/web/default/c1".to_owned())), None, "{plan}");
    assert_eq!(World::new(&[ENI]).plan(&cloud), "");
}

#[test]
fn listeners_of_a_users_load_balancer_are_left_alone_unless_asked_for() {
    let mut cloud = Cloud::of_user();
    World::new(&OVERRIDE).bring(&mut cloud);
    let before = cloud.observed.listeners.clone();
    let plan =
        World::new(&[OVERRIDE[0], ("scheduler", "wlc")]).ports(&[port(81, "TCP", 8081, 30081)]).bring(&mut cloud);
    assert_eq!(cloud.observed.listeners, before, "{plan}");
}

#[test]
fn a_certificate_whose_predecessor_is_gone_is_not_judged() {
    let with = |certificate: &'static str| World::new(&[("protocol-port", "https:80"), ("cert-id", certificate)]);
    let mut cloud = with("cert-1").served();
    let known = |old, new| BTreeMap::from([("cert-1".to_owned(), old), ("cert-2".to_owned(), new)]);
    cloud.observed.parts.certificates = known(CertificateState::Missing, CertificateState::Expired);
    assert_eq!(plan(&with("cert-2"), &cloud).steps.len(), 1, "there is nothing to lose");
    cloud.observed.parts.certificates = known(CertificateState::Valid, CertificateState::Expired);
    assert!(refused(&with("cert-2"), &cloud).contains("has expired"));
}

#[test]
fn a_listener_serves_on_if_the_certificate_of_its_replacement_cannot_be_used() {
    let https = [("protocol-port", "https:80"), ("cert-id", "cert-2")];
    let domains = ("domain-extensions", "a.example.com:cert-3");
    let world = World::new(&https);
    let mut cloud = World::new(&[]).served();
    assert_eq!(
        world.desired().needs(&cloud.observed).certificates,
        ["cert-2".to_owned()].into(),
        "it is judged before anything goes"
    );
    for state in [CertificateState::Missing, CertificateState::Expired, CertificateState::Unknown] {
        cloud.observed.parts.certificates = BTreeMap::from([("cert-2".to_owned(), state)]);
        for more in [&[][..], &[domains]] {
            let told = refused(&World::new(&[&https, more].concat()), &cloud);
            assert!(told.contains("cert-2") && told.contains("listener 80/tcp keeps serving"), "{state:?}: {told}");
        }
    }
    cloud.observed.parts.certificates = BTreeMap::from([("cert-2".to_owned(), CertificateState::Valid)]);
    assert!(world.desired().needs(&cloud.observed).is_empty());
    world.bring(&mut cloud);
    assert_eq!((cloud.listeners(), world.plan(&cloud).as_str()), (vec!["80/https".to_owned()], ""));
    // Where nothing serves, the cloud itself may judge.
    let beside = World::new(&[("protocol-port", "https:81"), https[1]]).ports(&[port(81, "TCP", 8081, 30081)]);
    assert_eq!(beside.desired().needs(&cloud.observed).certificates, BTreeSet::new());
}

#[test]
fn a_redirecting_listener_of_the_user_that_is_taken_over_becomes_ours() {
    let forwarding: &[(&str, &str)] =
        &[("protocol-port", "http:80,https:443"), ("forward-port", "80:443"), ("cert-id", "cert-1")];
    let world = World::new(&[&OVERRIDE, forwarding].concat())
        .ports(&[port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    cloud.listener(80, Protocol::Http).description.clear();
    let first = world.bring(&mut cloud);
    assert!(first.problems.is_empty() && first.overrides, "{first}");
    let owner = Owner::of(&world.service, &world.settings);
    assert!(owner.owns_listener(&cloud.listener(80, Protocol::Http).description), "{first}");
    let again = plan(&world, &cloud);
    assert!(again.steps.is_empty() && !again.overrides, "{again}");
    let left = teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed);
    left.steps.iter().for_each(|step| cloud.perform(&step.operation));
    assert_eq!((left.problems.len(), cloud.listeners()), (0, vec!["9000/tcp".to_owned()]), "{left}");
}

#[test]
fn groups_that_hold_anything_of_others_stay() {
    let world = World::new(&OVERRIDE);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    let users = cloud.observed.groups.get("rsp-user").unwrap().backends.as_ref().unwrap()[0].clone();
    let ours = cloud.observed.group_id(&GroupRef::Named("k8s/30080/web/default/c1".to_owned())).unwrap().to_owned();
    let group = cloud.observed.groups.get_mut(&ours).unwrap();
    Arc::make_mut(group.backends.as_mut().unwrap()).push(users.clone());
    let owner = Owner::of(&world.service, &world.settings);
    for step in teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed).steps {
        cloud.perform(&step.operation);
    }
    assert_eq!(cloud.observed.groups[&ours].backends, Some(Arc::new(vec![users].into())), "only ours left");
}

#[test]
fn a_group_that_cannot_be_read_is_neither_changed_nor_removed_nor_are_others() {
    let world = World::new(&[]).ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = world.served();
    let id = cloud.observed.group_id(&GroupRef::Named("k8s/30080/web/default/c1".to_owned())).unwrap().to_owned();
    cloud.observed.groups.get_mut(&id).unwrap().backends = None;
    assert!(refused(&world, &cloud).contains("could not be read"));
    // The port of the other group is gone; its group stays until everything is known.
    let fewer = world.ports(&[port(80, "TCP", 8080, 30080)]);
    let found = plan(&fewer, &cloud);
    assert!(found.steps.iter().all(|it| !matches!(it.operation, Operation::DeleteGroup { .. })), "{found}");
}

#[test]
fn no_group_is_removed_while_it_is_unknown_where_its_backends_are_to_be() {
    let mut world = World::new(&[ENI]).ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = world.served();
    world = world.ports(&[port(80, "TCP", 8080, 30080)]);
    world.enis.remove(&"192.168.64.21".parse().unwrap());
    let plan = world.bring(&mut cloud);
    assert!(cloud.observed.groups.values().any(|it| it.name == "k8s/8081/web/default/c1"), "{plan}");
}

#[test]
fn backends_without_their_mark_get_it_back() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    let members =
        cloud.observed.groups.iter_mut().map(|(_, it)| it).map(|it| Arc::make_mut(it.backends.as_mut().unwrap()));
    for backend in members.flat_map(|it| it.iter_mut()) {
        backend.description = "k8s/1/web/default/c1".into();
    }
    assert!(world.plan(&cloud).contains("the mark differs"));
    world.bring(&mut cloud);
    assert_eq!(world.plan(&cloud), "");
}

#[test]
fn nothing_goes_from_a_load_balancer_that_is_not_the_one() {
    let world = World::new(&[]);
    let owner = Owner::of(&world.service, &world.settings);
    let plan = teardown(&owner, &leaving(Some("lb-other"), false), &Cloud::of_user().observed);
    assert!(plan.steps.is_empty() && plan.problems[0].to_string().contains("another one"), "{plan}");
    // One of ours that the Service names as a user's: nobody knows what is meant.
    let served = world.served();
    let id = served.observed.instance.as_ref().unwrap().id.clone();
    let plan = teardown(&owner, &leaving(Some(&id), false), &served.observed);
    assert!(plan.steps.is_empty() && plan.problems[0].to_string().contains("was made for this Service"), "{plan}");
}

#[test]
fn our_backends_leave_a_users_group_unless_a_listener_of_ours_has_to_stay() {
    let forwarding: &[(&str, &str)] = &[
        ("protocol-port", "http:80,https:443"),
        ("forward-port", "80:443"),
        ("cert-id", "cert-1"),
        ("vgroup-port", "rsp-user:443"),
    ];
    let world = World::new(&[&OVERRIDE, forwarding].concat())
        .ports(&[port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)]);
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    let owner = Owner::of(&world.service, &world.settings);
    let emptied = |cloud: &Cloud| {
        let plan = teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed);
        plan.steps.iter().any(|step| matches!(step.operation, Operation::RemoveBackends { .. }))
    };
    assert!(emptied(&cloud));
    // A listener of the user redirects to ours: as long as it does, ours serves.
    cloud.listener(80, Protocol::Http).description = "by hand".to_owned();
    assert!(!emptied(&cloud));
}

#[test]
fn a_port_does_not_move_to_a_group_that_does_not_exist() {
    let world = |group: &'static str| World::new(&[OVERRIDE[0], OVERRIDE[1], ("vgroup-port", group)]);
    let mut cloud = Cloud::of_user();
    world("rsp-user:80").bring(&mut cloud);
    let before = cloud.backends("users-group");
    let plan = world("rsp-none:80").bring(&mut cloud);
    assert_eq!((cloud.backends("users-group"), plan.problems.len()), (before, 1), "{plan}");
}

#[test]
fn a_list_that_is_used_elsewhere_is_neither_changed_nor_deleted() {
    let mut world = World::new(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let mut cloud = world.served();
    let AccessList::Found(list) = &mut cloud.observed.parts.access_list else { panic!("no list") };
    list.listeners = BTreeSet::from([("lb-other".to_owned(), key(80, Protocol::Tcp))]);
    let mut other = world.clone();
    other.service.source_ranges = vec!["10.9.0.0/16".to_owned()];
    assert!(refused(&other, &cloud).contains("used by listeners of another load balancer"));
    let plan = World::new(&[]).bring(&mut cloud);
    assert!(plan.notes.iter().any(|it| it.contains("another load balancer uses it")), "{plan}");
    assert!(matches!(cloud.observed.parts.access_list, AccessList::Found(_)), "{plan}");
}

#[test]
fn a_list_stays_as_long_as_a_listener_of_the_user_has_it() {
    let mut world = World::new(&OVERRIDE);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let mut cloud = Cloud::of_user();
    world.bring(&mut cloud);
    let id = cloud.listener(80, Protocol::Tcp).fields[&ListenerField::AclId].clone();
    cloud.listener(9000, Protocol::Tcp).fields.insert(ListenerField::AclId, id);
    let plan = World::new(&OVERRIDE).bring(&mut cloud);
    assert!(plan.notes.iter().any(|it| it.contains("listener 9000/tcp") && it.contains("is kept")), "{plan}");
    assert!(matches!(cloud.observed.parts.access_list, AccessList::Found(_)), "{plan}");
}

#[test]
fn listeners_wait_for_their_list() {
    let mut world = World::new(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let plan = plan(&world, &Cloud::default());
    let list = crate::plan::loadbalancer::steps::Target::AccessList;
    let protected = |it: &Operation| matches!(it, Operation::CreateListener { .. });
    assert!(plan.steps.iter().filter(|it| protected(&it.operation)).all(|it| it.needs.contains(&list)), "{plan}");
    let mut known = World::new(&[]).desired();
    let served = World::new(&[]).served();
    assert_eq!(known.needs(&served.observed).access_list, None, "nothing tells of one");
    known.applied.insert(applied::SOURCE_RANGES.to_owned());
    assert_eq!(known.needs(&served.observed).access_list.as_deref(), Some("k8s/acl/web/default/c1"));
}

#[test]
fn a_user_group_of_a_wrong_name_is_told_and_the_others_are_served() {
    let world = World::new(&[OVERRIDE[0], OVERRIDE[1], ("vgroup-port", "rsp-none:80")])
        .ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = Cloud::of_user();
    // A group of ours from before: while anything is unclear, it stays.
    let old = ObservedGroup { name: "k8s/1/web/default/c1".to_owned(), backends: Some(Arc::default()) };
    cloud.observed.groups.insert("rsp-old".to_owned(), old);
    let plan = world.bring(&mut cloud);
    assert_eq!(
        (plan.problems.len(), cloud.listeners()),
        (1, vec!["81/tcp".to_owned(), "9000/tcp".to_owned()]),
        "{plan}"
    );
    assert!(cloud.observed.groups.contains_key("rsp-old"), "{plan}");
}

#[test]
fn many_endpoints_that_say_too_little_are_not_all_named() {
    let mut world = World::new(&[]);
    world.service.local_traffic = true;
    world.endpoints.endpoints = (1..=6).map(|n| super::pod(&format!("192.168.64.{n}"), "n1")).collect();
    for endpoint in &mut world.endpoints.endpoints {
        endpoint.node = None;
    }
    let told = world.desired().warnings.remove(0).to_string();
    assert!(told.ends_with("192.168.64.5 and others)"), "{told}");
    world.endpoints.endpoints.pop();
    assert!(world.desired().warnings.remove(0).to_string().ends_with("192.168.64.5)"));
}

#[test]
fn what_the_cloud_forgets_with_a_feature_is_not_believed_to_be_there() {
    let http = ("protocol-port", "http:80");
    let acl = [http, ("acl-id", "acl-a"), ("acl-type", "white")];
    let sticky = [http, ("sticky-session-type", "server"), ("cookie", "c")];
    for (switch, rest, lacking) in [("acl-status", acl, "acl-id"), ("sticky-session", sticky, "sticky-session-type")] {
        let with = |value, rest: &[(&str, &str)]| World::new(&[&[(switch, value)], rest].concat());
        let mut cloud = with("on", &rest).served();
        with("off", &rest).bring(&mut cloud);
        assert!(refused(&with("on", &[http, rest[2]]), &cloud).contains(lacking), "{switch}");
    }
}
