//! Source ranges, affinity, partial management, placement, and what the status tells.

use std::collections::BTreeMap;

use super::*;
use crate::plan::clb::desired::ClbModel;
use crate::plan::clb::model::InstanceField;
use crate::plan::clb::observed::AccessList;
use crate::plan::clb::teardown::teardown;
use crate::plan::inputs::{Ingress, IngressDetails, Taint};
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::ownership::{LABEL_HASH, Owner};

const TCP: ListenerKey = ListenerKey { port: 80, protocol: Protocol::Tcp };

fn ranges(annotations: &[(&str, &str)], ranges: &[&str]) -> World {
    let mut world = World::new(annotations);
    world.service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
    world
}

fn field(cloud: &mut Cloud, field: ListenerField) -> String {
    cloud.listener(80, Protocol::Tcp).fields.get(&field).cloned().unwrap_or_default()
}

fn entries(cloud: &Cloud) -> Vec<String> {
    match &cloud.observed.parts.access_list {
        AccessList::Found(list) => list.entries.iter().map(ToString::to_string).collect(),
        other => vec![format!("{other:?}")],
    }
}

#[test]
fn source_ranges_become_a_white_list_of_ours() {
    let world = ranges(&[], &["10.0.0.0/8", " 192.168.1.1/24", "10.0.0.0/8"]);
    let mut cloud = Cloud::default();
    let plan = world.bring(&mut cloud).to_string();
    let at = |text: &str| plan.find(text).unwrap_or_else(|| panic!("{text} is not in\n{plan}"));
    assert!(at("create access control list k8s/acl/web/default/c1") < at("add to k8s/acl/web/default/c1: 10.0.0.0/8"));
    assert!(at("add to k8s/acl/web/default/c1") < at("create listener 80/tcp"), "an empty white list lets nobody in");
    assert_eq!(entries(&cloud), ["10.0.0.0/8", "192.168.1.0/24"]);
    let AccessList::Found(list) = &cloud.observed.parts.access_list else { panic!("no list") };
    let id = list.id.clone();
    assert_eq!(
        (field(&mut cloud, ListenerField::AclId), field(&mut cloud, ListenerField::AclType)),
        (id, "white".into())
    );
    assert_eq!(world.plan(&cloud), "");

    let plan = ranges(&[], &["172.16.0.0/12"]).bring(&mut cloud).to_string();
    assert!(plan.find("add to").unwrap() < plan.find("! remove from").unwrap(), "{plan}");
    assert_eq!(entries(&cloud), ["172.16.0.0/12"]);

    let plan = World::new(&[]).bring(&mut cloud).to_string();
    assert!(plan.find("AclStatus on -> off").unwrap() < plan.find("! delete access control list").unwrap(), "{plan}");
    assert_eq!(
        (entries(&cloud), field(&mut cloud, ListenerField::AclStatus)),
        (vec!["Absent".to_owned()], "off".into())
    );
    assert_eq!(World::new(&[]).plan(&cloud), "");
}

#[test]
fn source_ranges_are_replaced_where_the_old_and_the_new_are_more_than_a_list_holds() {
    for count in [150, 200, 300] {
        let of = |second: u8| {
            let all: Vec<String> =
                (0..count).map(|number| format!("10.{second}.{}.{}/32", number / 100, number % 100)).collect();
            ranges(&[], &all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut cloud = of(1).served();
        let plan = diff(&of(2).desired(), &cloud.observed);
        for step in &plan.steps {
            cloud.perform(&step.operation);
            let held = entries(&cloud).len();
            assert!((1..=300).contains(&held), "{count}: {held} entries after {step}");
        }
        let first_goes = matches!(plan.steps[0].operation, Operation::Own(Own::RemoveAccessEntries { .. }));
        assert_eq!((first_goes, of(2).plan(&cloud)), (count == 300, String::new()), "{count}");
    }
}

#[test]
fn a_list_that_a_crash_left_is_taken_up_again() {
    let world = ranges(&[], &["10.0.0.0/8"]);
    let whole = diff(&world.desired(), &Observed::default());
    for cut in 0..whole.steps.len() {
        let mut cloud = Cloud::default();
        whole.steps[..cut].iter().for_each(|step| cloud.perform(&step.operation));
        let rest = world.bring(&mut cloud);
        let made =
            rest.steps.iter().filter(|step| matches!(step.operation, Operation::Own(Own::CreateAccessList(_)))).count();
        let before =
            whole.steps[..cut].iter().any(|step| matches!(step.operation, Operation::Own(Own::CreateAccessList(_))));
        assert_eq!(made == 0, before, "one list, wherever it was cut:\n{rest}");
        assert_eq!(world.plan(&cloud), "");
    }
}

#[test]
fn lists_of_others_are_left_alone() {
    let world = ranges(&[], &["10.0.0.0/8"]);
    let mut cloud = world.served();
    if let AccessList::Found(list) = &mut cloud.observed.parts.access_list {
        list.tags.clear();
    }
    let plan = ranges(&[], &["10.9.0.0/16"]).bring(&mut cloud);
    assert_eq!(plan.steps, [], "{plan}");
    assert!(plan.problems[0].to_string().contains("is foreign"), "{plan}");
    let plan = World::new(&[]).bring(&mut cloud);
    assert!(plan.steps.is_empty() && plan.problems.is_empty(), "what is not ours stays attached: {plan}");

    let by_hand = World::new(&[]).served();
    let mut edited = by_hand.clone();
    for (name, value) in
        [(ListenerField::AclStatus, "on"), (ListenerField::AclType, "black"), (ListenerField::AclId, "acl-x")]
    {
        edited.listener(80, Protocol::Tcp).fields.insert(name, value.to_owned());
    }
    assert!(World::new(&[]).desired().needs(&edited.observed).access_list.is_some());
    edited.observed.parts.access_list = AccessList::Absent;
    assert_eq!(World::new(&[]).plan(&edited), "");
}

#[test]
fn the_list_goes_with_the_service_unless_a_listener_stays_that_uses_it() {
    let world = ranges(&[], &["10.0.0.0/8"]);
    let cloud = world.served();
    let owner = Owner::of(&world.service, &world.settings);
    let plan = teardown(&owner, &leaving(None, false), &cloud.observed).to_string();
    assert!(plan.find("delete load balancer").unwrap() < plan.find("delete access control list").unwrap(), "{plan}");
    let kept = teardown(&owner, &leaving(None, true), &cloud.observed).to_string();
    assert!(!kept.contains("delete access control list") && kept.contains("is kept with the load balancer"), "{kept}");
    let gone = Observed { instance: None, ..cloud.observed };
    assert!(teardown(&owner, &leaving(None, false), &gone).to_string().contains("delete access control list"));
}

#[test]
fn a_list_beside_a_preserved_one_is_made_filled_and_deleted_under_a_name_of_its_own() {
    let world = ranges(&[], &["10.0.0.0/8"]);
    let owner = Owner::of(&world.service, &world.settings);
    let mut cloud = Cloud::default();
    (cloud.observed.parts.access_list, cloud.observed.parts.list_is_kept) = (AccessList::Absent, true);
    world.bring(&mut cloud);
    let AccessList::Found(list) = cloud.observed.parts.access_list.clone() else { panic!("no list") };
    assert_eq!((list.name, field(&mut cloud, ListenerField::AclId)), (owner.own_access_list_name(), list.id));
    assert_eq!(world.plan(&cloud), "");
    let next = edited_service(&world, |it| it.uid = "another".to_owned());
    let own = [owner, Owner::of(&next.service, &next.settings)].map(|owner| owner.own_access_list_name());
    assert!(own[0] != own[1] && own.iter().all(|name| Owner::is_access_list_name(name)), "{own:?}");
    assert_eq!(ranges(&[], &["10.9.0.0/16"]).bring(&mut cloud).problems, []);
    assert_eq!(entries(&cloud), ["10.9.0.0/16"]);
    World::new(&[]).bring(&mut cloud);
    assert_eq!(entries(&cloud), ["Absent"]);
    world.bring(&mut cloud);
    assert_eq!((entries(&cloud).as_slice(), world.plan(&cloud).as_str()), (&["10.0.0.0/8".to_owned()][..], ""));
}

#[test]
fn ranges_that_cannot_be_kept_are_problems_and_those_that_mean_everybody_are_none() {
    let problem = |world: World| world.desire().unwrap_err().remove(0).to_string();
    assert!(problem(ranges(&[], &["10.0.0.0"])).contains("must be a block such as"));
    assert!(problem(ranges(&[], &["fd00::/8"])).contains("at least one block of ipv4"));
    let many: Vec<String> = (0..301).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    assert!(problem(ranges(&[], &many.iter().map(String::as_str).collect::<Vec<_>>())).contains("at most 300"));
    assert_eq!(ranges(&[], &["10.0.0.0/8", "0.0.0.0/0"]).desired().access, None);
    let mixed = ranges(&[], &["10.0.0.0/8", "fd00::/8"]).desired();
    assert!(mixed.access.is_some() && mixed.warnings[0].to_string().contains("fd00::/8"), "{:?}", mixed.warnings);
    let shared = ranges(&[("id", "lb-user")], &["10.0.0.0/8"]).desired();
    assert!(
        shared.access.is_none() && shared.warnings[0].to_string().contains("Ignored value"),
        "{:?}",
        shared.warnings
    );
}

#[test]
fn client_ip_affinity_is_the_default_of_persistence_on_tcp() {
    let affinity = |seconds, annotations: &[(&str, &str)]| {
        let mut world = World::new(annotations).ports(&[port(80, "TCP", 8080, 30080), port(53, "UDP", 5353, 30053)]);
        world.service.client_ip_affinity = Some(seconds);
        world.desired()
    };
    let of = |desired: &Desired| desired.listeners[&TCP].fields.get(&ListenerField::PersistenceTimeout).cloned();
    let wanted = affinity(600, &[]);
    assert_eq!(of(&wanted).as_deref(), Some("600"));
    let udp = &wanted.listeners[&key(53, Protocol::Udp)].fields;
    assert!(!udp.contains_key(&ListenerField::PersistenceTimeout));
    assert!(wanted.warnings[0].to_string().contains("other than TCP"), "{:?}", wanted.warnings);
    let says_seconds =
        |desired: &Desired| desired.warnings.iter().any(|warning| warning.to_string().contains(" s\": "));
    for (seconds, is_told) in [(14_400, true), (10_800, false)] {
        let long = affinity(seconds, &[]);
        assert_eq!(of(&long).as_deref(), Some("3600"));
        assert_eq!(says_seconds(&long), is_told, "the API server sets 10800 s by itself: {:?}", long.warnings);
    }
    let stated = affinity(10_800, &[("persistence-timeout", "0")]);
    assert_eq!((of(&stated).as_deref(), stated.warnings.as_slice()), (Some("0"), &[][..]));
}

#[test]
fn what_the_official_controller_ignored_comes_into_force_only_when_it_is_restated() {
    let mut cloud = World::new(&[]).served();
    let mut world = ranges(&[], &["10.0.0.0/8"]);
    world.service.client_ip_affinity = Some(600);
    let mut inherited = world.clone();
    inherited.service.labels.insert(LABEL_HASH.into(), "x".into());
    assert!(inherited.desired().needs(&cloud.observed).access_list.is_some());
    cloud.observed.parts.access_list = AccessList::Absent;
    let plan = diff(&inherited.desired(), &cloud.observed);
    assert!(plan.steps.is_empty() && plan.problems.is_empty() && plan.notes.is_empty(), "{plan}");
    let told: Vec<_> = plan.warnings.iter().map(|warning| warning.field.as_str()).collect();
    assert_eq!(told, ["spec.loadBalancerSourceRanges", "spec.sessionAffinity"]);
    // What is made from now on is made as it should be.
    let persistence = |cloud: &mut Cloud| field(cloud, ListenerField::PersistenceTimeout);
    let mut new = inherited.served();
    assert_eq!((persistence(&mut new).as_str(), entries(&new).len()), ("600", 1));
    // Once a list of ours keeps them, it goes on: also if the label comes back with the official controller.
    world.bring(&mut cloud);
    assert_eq!((persistence(&mut cloud).as_str(), entries(&cloud)), ("600", vec!["10.0.0.0/8".to_owned()]));
    inherited.service.source_ranges = vec!["10.9.0.0/16".to_owned()];
    let plan = inherited.bring(&mut cloud);
    assert_eq!((plan.warnings.as_slice(), entries(&cloud)), (&[][..], vec!["10.9.0.0/16".to_owned()]));
}

#[test]
fn an_inherited_listener_is_opened_although_the_service_states_ranges_that_do_not_count() {
    let inherited = |status: &str| {
        let mut world =
            ranges(&[("acl-status", status), ("acl-type", "white"), ("acl-id", "acl-user")], &["10.0.0.0/8"]);
        world.service.labels.insert(LABEL_HASH.into(), "x".into());
        world
    };
    let mut cloud = inherited("on").served();
    assert_eq!(field(&mut cloud, ListenerField::AclId), "acl-user");
    cloud.observed.parts.access_list = AccessList::Absent;
    let plan = inherited("off").bring(&mut cloud).to_string();
    assert!(plan.contains("AclStatus on -> off"), "{plan}");
    assert_eq!(
        (field(&mut cloud, ListenerField::AclStatus).as_str(), inherited("off").plan(&cloud)),
        ("off", String::new())
    );
}

#[test]
fn nodes_can_be_checked_at_their_health_check_port() {
    let local = |annotations: &[(&str, &str)], on: bool| {
        let mut world = World::new(annotations);
        world.settings.service.local_health_check = on;
        world.service.local_traffic = true;
        world.service.health_check_node_port = 31000;
        world.desired().listeners.into_values().next().unwrap().fields
    };
    let checked = [
        (ListenerField::HealthCheckType, "http"),
        (ListenerField::HealthCheckUri, "/healthz"),
        (ListenerField::HealthCheckConnectPort, "31000"),
        (ListenerField::HealthCheckHttpCode, "http_2xx"),
    ];
    let checked: BTreeMap<_, _> = checked.into_iter().map(|(field, value)| (field, value.to_owned())).collect();
    assert_eq!(local(&[], true), checked);
    assert_eq!(local(&[], false), BTreeMap::new());
    assert_eq!(local(&[("health-check-connect-port", "8081")], true).len(), 1, "annotations have the last word");
    assert_eq!(local(&[("health-check-type", "tcp")], true).len(), 1);
    let http = local(&[("protocol-port", "http:80"), ("health-check-flag", "on")], true);
    assert_eq!(http[&ListenerField::HealthCheckUri], "/healthz");
    assert_eq!(local(&[("protocol-port", "http:80")], true), BTreeMap::new());
}

/// The Service with an annotation that remembers these.
fn remembering(mut world: World, applied: &str) -> World {
    world.service.own_annotations.insert(applied::CLB.to_owned(), applied.to_owned());
    world
}

#[test]
fn what_the_spec_set_is_taken_back_and_nothing_else() {
    let checking = |annotations: &[(&str, &str)]| {
        let mut world = World::new(annotations);
        world.settings.service.local_health_check = true;
        (world.service.local_traffic, world.service.health_check_node_port) = (true, 31000);
        world.service.client_ip_affinity = Some(60);
        world
    };
    let both = "node-health-check,session-affinity";
    let http = [("protocol-port", "http:80"), ("health-check-flag", "on")];
    for (annotations, taken_back) in [
        (&[][..], "HealthCheckType http -> tcp, HealthCheckConnectPort 31000 -> -520, PersistenceTimeout 60 -> 0"),
        (&http, "HealthCheckURI /healthz -> /?, HealthCheckConnectPort 31000 -> -520"),
    ] {
        let before = checking(annotations);
        let mut after = before.clone();
        (after.service.client_ip_affinity, after.settings.service.local_health_check) = (None, false);
        let served = before.served();
        assert_eq!(before.desired().applies.into_iter().collect::<Vec<_>>().join(","), both);
        assert_eq!(after.plan(&served), "", "a person may have set it");
        let eni = remembering(edited_service(&before, |it| it.annotations.insert(ENI.0.into(), ENI.1.into())), both);
        let eni = eni.plan(&served);
        assert!(
            eni.contains("HealthCheckConnectPort 31000 -> -520") && !eni.contains("PersistenceTimeout 60"),
            "{eni}"
        );
        let after = remembering(after, both);
        let mut cloud = served.clone();
        let plan = after.bring(&mut cloud).to_string();
        let mut expected: Vec<&str> = taken_back.split(", ").collect();
        expected.retain(|change| !plan.contains(change));
        assert_eq!(expected, [""; 0], "{plan}");
        assert_eq!((after.plan(&cloud).as_str(), after.desired().applies.len()), ("", 0));
        let unmanaged = remembering(after.with(&[annotations, &[("manage", "backends")]].concat()), both);
        assert_eq!((unmanaged.plan(&served).as_str(), unmanaged.desired().applies.len()), ("", 2), "later, perhaps");
    }
}

fn edited_service<T>(world: &World, edit: impl FnOnce(&mut ServiceView) -> T) -> World {
    let mut world = world.clone();
    edit(&mut world.service);
    world
}

fn managed(manage: &str) -> World {
    World::new(&[("manage", manage), ("delete-protection", "on"), ("scheduler", "wlc")])
}

#[test]
fn only_what_is_managed_is_repaired_and_the_rest_is_noted() {
    let served = managed("all").served();
    let mut edited = served.clone();
    edited.edit(InstanceField::DeleteProtection, "off");
    edited.listener(80, Protocol::Tcp).fields.insert(ListenerField::Scheduler, "rr".to_owned());
    let id = edited.observed.groups.keys().next().unwrap().clone();
    Arc::make_mut(edited.observed.groups.get_mut(&id).unwrap().backends.as_mut().unwrap())[0].weight = 1;
    for (manage, steps) in [("all", 3), ("listeners", 2), ("backends", 1), ("none", 0)] {
        let plan = managed(manage).bring(&mut edited.clone());
        assert_eq!(plan.steps.len(), steps, "{manage}:\n{plan}");
        let noted = plan.notes.iter().filter(|note| note.starts_with("not managed: ")).count();
        assert_eq!((noted, plan.problems.len()), (3 - steps, 0), "{manage}:\n{plan}");
        if steps > 1 {
            let text = plan.to_string();
            assert!(text.contains("Scheduler rr -> wlc"), "{text}");
        }
    }
}

#[test]
fn what_stands_in_the_way_of_the_unmanaged_is_no_problem() {
    let mut cloud = managed("all").served();
    cloud.edit(InstanceField::AddressType, "intranet");
    let wanted = |manage| World::new(&[("manage", manage), ("address-type", "internet")]);
    assert_eq!(wanted("all").bring(&mut cloud.clone()).problems.len(), 1);
    let plan = wanted("listeners").bring(&mut cloud);
    assert!(plan.problems.is_empty() && plan.notes[0].starts_with("not managed: "), "{plan}");
}

#[test]
fn a_load_balancer_is_made_in_every_mode_with_what_is_managed() {
    for (manage, groups, listeners) in [("listeners", 1, 1), ("backends", 1, 0), ("none", 0, 0)] {
        let mut cloud = Cloud::default();
        managed(manage).bring(&mut cloud);
        assert!(cloud.observed.instance.is_some());
        assert_eq!((cloud.observed.groups.len(), cloud.listeners().len()), (groups, listeners), "{manage}");
    }
}

fn expected_details(world: &World, observed: &Observed, ingress: &[Ingress], ip_mode: bool) -> Vec<IngressDetails> {
    let goal: Goal<ClbModel> = Goal::Ensure(Box::new(world.desired()));
    goal.ingress_details(&world.service, observed, ingress, ip_mode)
}

#[test]
fn the_status_says_how_it_is_reached_and_which_ports_are_not_served() {
    let mut world = World::new(&[("proxy-protocol", "on")]);
    let mut served = world.served();
    let ingress = [Ingress { ip: "47.98.0.1".into(), hostname: String::new() }];
    let details =
        |world: &World, cloud: &Cloud, ip_mode| expected_details(world, &cloud.observed, &ingress, ip_mode).remove(0);
    let found = details(&world, &served, true);
    assert_eq!((found.ip_mode.as_str(), found.ports[0].error.as_str()), ("Proxy", ""));
    assert_eq!(details(&world, &served, false).ip_mode, "");
    world = world.with(&[]).ports(&[port(80, "TCP", 8080, 30080), port(9000, "TCP", 9000, 30900)]);
    served.observed.listeners.as_mut().unwrap().insert(key(9000, Protocol::Tcp), Box::default());
    let found = details(&world, &served, true);
    assert_eq!((found.ip_mode.as_str(), found.ports[0].error.as_str()), ("VIP", ""));
    assert_eq!((found.ports[1].port, found.ports[1].error.as_str()), (9000, "alibabacloud.com/ListenerMissing"));
    let name = [Ingress { ip: String::new(), hostname: "a.example.com".into() }];
    let named = expected_details(&world, &served.observed, &name, true);
    assert_eq!(named[0].ip_mode, "", "the API server takes a mode with an address only");
}

#[test]
fn only_zones_of_the_configuration_can_be_given_up() {
    let mut world = World::new(&[]);
    assert!(!world.desired().instance.create.zones_can_change);
    world.settings.service.defaults.master_zone = Some("z-i".to_owned());
    assert!(world.desired().instance.create.zones_can_change);
    assert!(!world.with(&[("master-zoneid", "z-j")]).desired().instance.create.zones_can_change);
}

#[test]
fn public_load_balancers_are_near_the_nodes_where_nobody_says_otherwise() {
    let zone = |node: &Arc<NodeView>, zone: &str| {
        edited(node, |node| drop(node.labels.insert("topology.kubernetes.io/zone".into(), zone.into())))
    };
    let mut world = World::new(&[]);
    let of = |world: &World| {
        let mut desired = world.desired();
        desired.choose_zones(&world.nodes);
        let create = desired.instance.create;
        (create.master_zone.unwrap_or_default(), create.slave_zone.unwrap_or_default(), create.zones_can_change)
    };
    assert_eq!(of(&world), (String::new(), String::new(), false), "nobody knows where they are");
    world.nodes = vec![zone(&world.nodes[0], "z-j"), zone(&world.nodes[1], "z-i"), zone(&node("n3", "i-3"), "z-j")];
    assert_eq!(of(&world), ("z-j".to_owned(), "z-i".to_owned(), true));
    let stated = world.clone().with(&[("master-zoneid", "z-x")]);
    assert_eq!(of(&stated), ("z-x".to_owned(), String::new(), false));
    assert_eq!(of(&world.clone().with(&[("address-type", "intranet")])).0, "", "it is where its vSwitch is");
    let mut configured = world.clone();
    configured.settings.service.defaults.master_zone = Some("z-c".to_owned());
    assert_eq!(of(&configured), ("z-c".to_owned(), String::new(), true));
    let taint = Taint {
        key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
        added: None,
    };
    world.nodes[1] = edited(&world.nodes[1], |node| node.taints.push(taint));
    assert_eq!(of(&world).0, "", "most may come to be elsewhere");
}
