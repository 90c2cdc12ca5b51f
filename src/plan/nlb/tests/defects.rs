//! Defects of the official controller with network load balancers, as far as planning decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Cloud, bring, desired, lines, remove, served, world};
use crate::plan::clb::tests::{ENI, World, node, port};
use crate::plan::inputs::{Ingress, TargetPort};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::cloud::CloudModel as _;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::model::{Backend, BackendKey, GroupRef, ObservedGroup};
use crate::plan::loadbalancer::operation::{OwnOperation as _, RefusedBackends};
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, MARK_TAG};
use crate::plan::loadbalancer::settings::NlbDefaults;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::desired::NlbModel;
use crate::plan::nlb::model::{GroupField, InstanceField, ListenerField, ListenerKey, Protocol};
use crate::plan::nlb::observed::{Observed, ObservedInstance, ObservedListener};
use crate::plan::nlb::operation::{Operation, Own, Plan, Step};
use crate::plan::nlb::teardown::teardown_needs;

const GROUP: &str = "k8s.30080.TCP.web.default.c1";

fn foreign_listener(cloud: &mut Cloud, port: u16) {
    let listener = ObservedListener { description: "by hand".to_owned(), ..ObservedListener::default() };
    let key = ListenerKey::port(port, Protocol::Tcp);
    cloud.observed.listeners.as_mut().unwrap().insert(key, Box::new(listener));
}

fn protections(instance: &ObservedInstance) -> [&str; 2] {
    [InstanceField::DeleteProtection, InstanceField::ModificationProtection].map(|field| instance.fields.text(field))
}

fn set<const N: usize>(ids: [&str; N]) -> BTreeSet<String> {
    ids.map(str::to_owned).into()
}

#[test]
fn a_foreign_listener_on_a_load_balancer_of_ours_stays() {
    let world = world(&[]);
    let mut cloud = served(&world);
    foreign_listener(&mut cloud, 9000);
    assert_eq!(lines(&diff(&desired(&world), &cloud.observed)), [""; 0]);
    foreign_listener(&mut cloud, 443);
    let plan = bring(&world.ports(&[port(443, "TCP", 8443, 30443)]), &mut cloud);
    assert!(plan.problems.iter().any(|problem| problem.to_string().contains("which is not ours")), "{plan}");
    assert_eq!(cloud.listeners(), ["443/TCP", "9000/TCP"], "only ours, which the Service no longer has, went");
}

#[test]
fn a_users_listener_on_a_wanted_port_is_overridden_and_one_of_another_service_is_not() {
    let forced = [("id", "nlb-user"), ("force-override-listeners", "true")];
    let ports = [port(9000, "TCP", 8080, 30080)];
    for (protocol, taken_over) in
        [("tcp", "set listener 9000/TCP"), ("tcpssl", "delete listener 9000/TCP\ncreate listener 9000/TCPSSL")]
    {
        let protocol = format!("{protocol}:9000");
        let world = world(&[&forced[..], &[("protocol-port", &protocol), ("cert-id", "c")]].concat()).ports(&ports);
        let mut cloud = Cloud::of_user();
        let first = bring(&world, &mut cloud);
        assert_eq!(first.problems, [], "{first}");
        assert!(lines(&first).join("\n").contains(taken_over), "{first}");
        let named = |note: &&String| note.contains("users-listener") && note.contains("sgp-user");
        assert_eq!(first.notes.iter().filter(named).count(), 1, "{first}");
        assert!(cloud.observed.groups.contains_key("sgp-user"), "the user's group stays");
        let again = diff(&desired(&world), &cloud.observed);
        assert!(again.steps.is_empty() && again.notes.is_empty(), "once: {again}");
    }
    let world = world(&forced).ports(&ports);
    let refused = |edit: &dyn Fn(&mut Cloud)| {
        let mut cloud = Cloud::of_user();
        edit(&mut cloud);
        let plan = diff(&desired(&world), &cloud.observed);
        assert!(plan.problems.len() == 1 && !plan.to_string().contains("listener 9000/TCP ->"), "{plan}");
    };
    for mark in ["k8s.9000.TCP.other.default.c1", "k8s.9000.TCP.web.default.other-cluster"] {
        refused(&|cloud| {
            cloud.observed.listeners.as_mut().unwrap().iter_mut().for_each(|(_, it)| it.description = mark.to_owned());
        });
        refused(&|cloud| cloud.observed.groups.get_mut("sgp-user").unwrap().name = mark.to_owned());
    }
    refused(&|cloud| drop(cloud.observed.groups.remove("sgp-user")));
    let unread = Observed { groups: litemap::LiteMap::new(), ..Cloud::of_user().observed };
    assert_eq!(desired(&world).needs(&unread).named_groups, set(["sgp-user"]), "whose it is, decides");
}

#[test]
fn a_load_balancer_that_is_kept_keeps_listeners_and_groups_and_loses_protections_and_marks() {
    let world = world(&[]);
    let mut cloud = served(&world);
    foreign_listener(&mut cloud, 9000);
    let departure = Departure { preserve: true, ..Departure::default() };
    let plan = remove(&world, &departure, &mut cloud);
    assert_eq!(cloud.listeners(), ["80/TCP", "9000/TCP"], "{plan}");
    assert_eq!(cloud.group(GROUP).1.members().len(), 2);
    let instance = cloud.instance().clone();
    assert_eq!(protections(&instance), ["false", "NonProtection"]);
    assert!(!instance.tags.contains_key(MARK_TAG));
    assert!(cloud.observed.parts.group_details.values().all(|details| details.tags.is_empty()));
}

#[test]
fn a_load_balancer_that_is_kept_keeps_no_group_that_no_listener_uses_yet() {
    let world = world(&[]);
    let mut cloud = served(&world);
    cloud.observed.listeners.replace(Default::default());
    cloud.observed.parts.group_details.iter_mut().for_each(|(_, it)| it.load_balancers.clear());
    let plan = remove(&world, &Departure { preserve: true, ..Departure::default() }, &mut cloud);
    assert!(cloud.observed.groups.is_empty() && cloud.observed.instance.is_some(), "{plan}");
    assert!(plan.steps.last().unwrap().to_string().starts_with("! untag"), "the marks go last: {plan}");
}

#[test]
fn a_port_that_goes_from_a_live_service_that_is_preserved_takes_its_group_with_it() {
    let two = world(&[("preserve-lb-on-delete", "true")]);
    let two = two.ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = served(&two);
    bring(&two.ports(&[port(80, "TCP", 8080, 30080)]), &mut cloud);
    assert_eq!(cloud.observed.groups.len(), 1);
}

#[test]
fn a_listener_moves_to_another_group_only_once_that_is_filled() {
    let mut cloud = served(&world(&[]));
    let eni = world(&[("service.beta.kubernetes.io/backend-type", "eni")]);
    let plan = bring(&eni, &mut cloud);
    let steps = lines(&plan);
    let at = |start: &str| steps.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(at("create group") < at("add to") && at("add to") < at("set listener"), "{plan}");
    assert!(at("set listener") < at("delete group"), "{plan}");
}

#[test]
fn what_relies_on_a_job_waits_for_it() {
    let world = world(&[]);
    let mut cloud = Cloud::default();
    let plan = diff(&desired(&world), &cloud.observed);
    let job = |id: &str| Answer { id: Some(format!("{id}-1")), job: "job-1".to_owned(), ..Answer::default() };
    cloud.observed.apply(&plan.steps[0].operation, &Answer { id: Some("nlb-1".to_owned()), ..Answer::default() });
    let waits = |cloud: &Cloud, index: usize| NlbModel::must_wait(&cloud.observed, &plan.steps[index]);
    assert!(!waits(&cloud, 1), "groups exist beside load balancers");
    assert!(waits(&cloud, 3), "a listener needs a load balancer that is ready");
    cloud.observed.settle(&Target::LoadBalancer);
    cloud.observed.apply(&plan.steps[1].operation, &job("sgp"));
    assert!(waits(&cloud, 2) && waits(&cloud, 3));
    cloud.observed.settle(&Target::Group(GroupRef::Id("sgp-1".to_owned())));
    cloud.observed.apply(&plan.steps[2].operation, &job(""));
    assert!(waits(&cloud, 3), "the group is not filled yet");
    cloud.observed.settle(&Target::Group(GroupRef::Id("sgp-1".to_owned())));
    assert!(!waits(&cloud, 3));
}

#[test]
fn a_new_listener_does_not_wait_for_the_backends_that_join_while_it_is_made() {
    let one = world(&[]);
    let mut cloud = Cloud::default();
    for step in diff(&desired(&one), &cloud.observed).steps.into_iter().take(3) {
        cloud.perform(&step.operation);
    }
    let mut more = one.clone();
    more.nodes.push(node("n9", "i-9"));
    let plan = diff(&desired(&more), &cloud.observed);
    let at = |start: &str| lines(&plan).iter().position(|line| line.starts_with(start)).unwrap();
    assert!(at("create listener") < at("add to"), "{plan}");
    let mut other = one;
    other.nodes = vec![node("n9", "i-9")];
    let plan = diff(&desired(&other), &cloud.observed);
    let at = |start: &str| lines(&plan).iter().position(|line| line.starts_with(start)).unwrap();
    assert!(at("add to") < at("create listener"), "{plan}");
}

#[test]
fn while_only_backends_follow_new_pods_on_another_port_replace_those_that_are_gone() {
    let eni = ("service.beta.kubernetes.io/backend-type", "eni");
    let mut cloud = served(&world(&[eni]));
    let mut now = world(&[eni, ("id", "nlb-001")]);
    now.service.ports[0].target_port = TargetPort::Number(8001);
    now.endpoints.endpoints.retain(|endpoint| endpoint.address.to_string() == "192.168.64.21");
    let follow = |cloud: &Cloud| Goal::Ensure(Box::new(desired(&now))).follow(&cloud.observed);
    let plan = follow(&cloud);
    let lines = lines(&plan);
    assert!(lines.len() == 2 && lines[0].starts_with("add to") && lines[0].contains("192.168.64.21):8001"), "{plan}");
    assert!(lines[1].starts_with("remove from") && lines[1].contains("192.168.64.11):8080"), "{plan}");
    plan.steps.iter().for_each(|step| cloud.perform(&step.operation));
    assert!(follow(&cloud).steps.is_empty());
    cloud.observed.listeners = None;
    now.endpoints.endpoints.clear();
    assert!(Goal::Ensure(Box::new(desired(&now))).follow(&cloud.observed).steps.is_empty());
}

#[test]
fn a_listener_on_the_port_of_another_waits_until_that_is_deleted() {
    let mut cloud = served(&world(&[]));
    let plan = diff(&desired(&world(&[("protocol-port", "tcpssl:80"), ("cert-id", "cert-1")])), &cloud.observed);
    let at = |start: &str| plan.steps.iter().position(|step| step.operation.to_string().starts_with(start)).unwrap();
    let (delete, create) = (at("delete listener 80/TCP"), at("create listener 80/TCPSSL"));
    assert!(delete < create, "{plan}");
    for step in &plan.steps[..delete] {
        cloud.perform(&step.operation);
    }
    cloud.observed.apply(&plan.steps[delete].operation, &Answer { job: "job-1".to_owned(), ..Answer::default() });
    assert!(NlbModel::must_wait(&cloud.observed, &plan.steps[create]));
}

#[test]
fn zones_are_compared_both_ways() {
    let mut cloud = served(&world(&[]));
    let mut one = world(&[]);
    one.service.annotations.iter_mut().map(|(_, it)| it).for_each(|value| *value = "z-i:vsw-i".to_owned());
    let plan = diff(&desired(&one), &cloud.observed);
    assert_eq!(lines(&plan), ["set zones z-i:vsw-i"]);
    assert!(plan.warnings.iter().any(|warning| warning.to_string().contains("one zone")), "{:?}", plan.warnings);
    one.service.annotations.iter_mut().map(|(_, it)| it).for_each(|value| *value = "z-i:vsw-x,z-j:vsw-j".to_owned());
    let plan = bring(&one, &mut cloud);
    assert!(lines(&plan).is_empty() && plan.problems.len() == 1, "what a zone has is fixed: {plan}");
}

#[test]
fn a_load_balancer_that_becomes_public_takes_the_users_elastic_addresses() {
    let mut cloud = served(&world(&[("address-type", "intranet")]));
    let mut public = world(&[("address-type", "internet")]);
    let elastic = "z-i:vsw-i::eip-1,z-j:vsw-j::eip-2";
    public
        .service
        .annotations
        .iter_mut()
        .map(|(_, it)| it)
        .filter(|value| value.contains(':'))
        .for_each(|value| *value = elastic.to_owned());
    let plan = bring(&public, &mut cloud);
    assert_eq!(lines(&plan), ["set address type Internet (z-i:vsw-i:eip-1, z-j:vsw-j:eip-2)"]);
    assert_eq!(diff(&desired(&public), &cloud.observed).steps, []);
}

#[test]
fn a_group_of_another_kind_is_another_group() {
    let instance = world(&[]);
    let mut cloud = served(&instance);
    let mut by_address = world(&[("server-group-type", "ip")]);
    for (index, node) in by_address.nodes.iter_mut().enumerate() {
        *node = crate::plan::clb::tests::edited(node, |node| {
            let address = format!("10.0.0.{}", index + 1);
            node.addresses = vec![crate::plan::inputs::NodeAddress { kind: "InternalIP".to_owned(), address }];
        });
    }
    let old = cloud.group(GROUP).0.clone();
    let plan = bring(&by_address, &mut cloud);
    assert_eq!(cloud.observed.groups.len(), 1, "{plan}");
    let (id, group) = cloud.group(GROUP);
    assert!(*id != old && group.members().iter().any(|backend| backend.key == BackendKey::ip("10.0.0.1", 30080)));
    assert_eq!(cloud.observed.parts.group_details[id].fields[&GroupField::Type], "Ip");
    assert_eq!(diff(&desired(&by_address), &cloud.observed).steps, []);
    bring(&instance, &mut cloud);
    assert_eq!(cloud.observed.groups.len(), 1, "without the annotation, it is the default again");
}

#[test]
fn a_users_backend_on_the_same_node_neither_hides_ours_nor_is_taken() {
    let world = world(&[("id", "nlb-user"), ("vgroup-port", "sgp-user:80")]);
    let mut cloud = Cloud::of_user();
    let foreign = |port| Backend { key: BackendKey::ecs("i-1", port), weight: 7, description: "by hand".into() };
    let backends =
        Some(Arc::new(vec![foreign(9000), Backend { key: BackendKey::ecs("i-2", 30080), ..foreign(1) }].into()));
    cloud.observed.groups.insert("sgp-user".to_owned(), ObservedGroup { name: "users".to_owned(), backends });
    let plan = bring(&world, &mut cloud);
    assert_eq!(lines(&plan), ["add to sgp-user: i-1:30080*100"]);
    assert!(plan.notes.iter().any(|note| note.contains("i-2:30080")), "{plan}");
}

#[test]
fn nodes_attached_by_address_are_there_once_with_the_number_of_their_pods() {
    let mut world = world(&[("server-group-type", "ip")]);
    world.service.local_traffic = true;
    for (index, node) in world.nodes.iter_mut().enumerate() {
        *node = crate::plan::clb::tests::edited(node, |node| {
            let address = format!("10.0.0.{}", index + 1);
            node.addresses = vec![crate::plan::inputs::NodeAddress { kind: "InternalIP".to_owned(), address }];
        });
    }
    let desired = desired(&world);
    let weights: Vec<u8> = desired.groups[GROUP].backends.to_vec().iter().map(|backend| backend.weight).collect();
    assert_eq!(weights, [2, 1]);
}

#[test]
fn a_listener_follows_its_group_when_that_is_made_again() {
    let world = world(&[]);
    let mut cloud = served(&world);
    cloud.observed.groups.clear();
    cloud.observed.parts.group_details.clear();
    let steps = lines(&bring(&world, &mut cloud));
    assert!(steps.last().unwrap().starts_with("set listener 80/TCP"), "{steps:?}");
}

#[test]
fn delete_protection_is_restored_as_marks_are() {
    let mut cloud = served(&world(&[("delete-protection", "off"), ("modification-protection", "NonProtection")]));
    assert_eq!(protections(cloud.instance()), ["false", "NonProtection"]);
    let world = world(&[]);
    cloud.instance().tags.clear();
    let plan = bring(&world, &mut cloud);
    assert_eq!(plan.steps.len(), 2, "{plan}");
    assert_eq!(cloud.instance().fields.text(InstanceField::DeleteProtection), "true");
    assert!(cloud.instance().tags.contains_key(MARK_TAG));
}

#[test]
fn defaults_of_the_configuration_change_nothing_that_exists() {
    let edits: [fn(&mut NlbDefaults); 3] = [
        |it| it.address_type = "Intranet".to_owned(),
        |it| it.modification_protection = false,
        |it| drop(it.tags.insert("team".to_owned(), "one".to_owned())),
    ];
    for annotations in [&[][..], &[("additional-resource-tags", "k=v")]] {
        let before = world(annotations);
        let cloud = served(&before);
        for (number, edit) in edits.iter().enumerate() {
            let mut after = before.clone();
            edit(&mut after.settings.nlb);
            assert_ne!(
                desired(&after).instance.create,
                desired(&before).instance.create,
                "{number}: a new one gets it"
            );
            assert_eq!(lines(&diff(&desired(&after), &cloud.observed)), [""; 0], "{number}");
        }
    }
}

#[test]
fn each_protocol_gets_only_what_it_has() {
    let tls = world(&[("protocol-port", "tcpssl:443"), ("cert-id", "cert-1"), ("idle-timeout", "300")]);
    let ports = [port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443), port(53, "UDP", 53, 30053)];
    let desired = desired(&tls.ports(&ports));
    let fields = |port, protocol| &desired.listeners[&ListenerKey::port(port, protocol)].fields;
    assert!(!fields(80, Protocol::Tcp).contains_key(&ListenerField::Certificate));
    assert!(fields(443, Protocol::TcpSsl).contains_key(&ListenerField::Certificate));
    assert_eq!(fields(53, Protocol::Udp)[&ListenerField::IdleTimeout], "20");
    assert!(desired.warnings.iter().any(|warning| warning.to_string().contains("at most 20")));
    let spec = &desired.extra.group_specs["k8s.30443.TCPSSL.web.default.c1"].create.fields;
    assert_eq!((&*spec[&GroupField::Protocol], &*spec[&GroupField::PreserveClientIp]), ("TCP", "false"));
}

#[test]
fn a_group_behind_tls_that_was_made_with_the_listeners_protocol_stays() {
    let world = world(&[("protocol-port", "tcpssl:80"), ("cert-id", "cert-1")]);
    let mut cloud = served(&world);
    for details in cloud.observed.parts.group_details.iter_mut().map(|(_, it)| it) {
        details.fields.insert(GroupField::Protocol, "TCPSSL".to_owned());
    }
    assert_eq!(lines(&diff(&desired(&world), &cloud.observed)), [""; 0]);
}

#[test]
fn draining_has_a_timeout_and_a_range_of_ports_a_port_for_its_health_checks() {
    let drain = desired(&world(&[("connection-drain", "on")]));
    assert_eq!(drain.extra.group_specs[GROUP].create.fields[&GroupField::DrainTimeout], "10");
    let range = world(&[("listener-port-range", "100-200:80"), ENI]);
    let wanted = desired(&range);
    let fields = &wanted.extra.group_specs["k8s.100_200.TCP.web.default.c1"].create.fields;
    assert_eq!((&*fields[&GroupField::AnyPort], &*fields[&GroupField::HealthCheckPort]), ("true", "8080"));
    let any = [("health-check-flag", "on"), ("health-check-connect-port", "0"), ("connection-drain", "on")];
    let any = [&[("listener-port-range", "100-200:80"), ENI], &any[..]].concat();
    let checked = desired(&world(&any)).extra.group_specs["k8s.100_200.TCP.web.default.c1"].create.clone();
    assert_eq!(checked.fields[&GroupField::HealthCheckPort], "8080", "its backends have no port");
    let [(bare, _), _] = Own::CreateGroup(Box::new(checked)).halves().unwrap();
    let Own::CreateGroup(bare) = bare else { panic!("{bare}") };
    assert_eq!(bare.fields.get(&GroupField::HealthCheckPort).map(String::as_str), Some("8080"), "the cloud needs it");
    assert!(wanted.groups["k8s.100_200.TCP.web.default.c1"].backends.keys().all(|key| key.port == 0));
    let mut named = range;
    named.service.ports[0].target_port = crate::plan::inputs::TargetPort::Name("http".to_owned());
    assert_eq!(desired(&named).problems.iter().count(), 1);
}

#[test]
fn public_load_balancers_can_be_switched_off_and_still_be_deleted() {
    let mut world = world(&[]);
    let mut cloud = served(&world);
    world.settings.service.disable_public = true;
    assert_eq!(desired(&world).problems.iter().count(), 1);
    remove(&world, &Departure::default(), &mut cloud);
    assert_eq!(cloud.observed.instance, None);
}

#[test]
fn what_the_cloud_does_not_say_is_its_default() {
    let world = world(&[("connection-drain", "off"), ("health-check-flag", "on"), ("preserve-client-ip", "on")]);
    let mut cloud = served(&world);
    for details in cloud.observed.parts.group_details.iter_mut().map(|(_, it)| it) {
        details.fields.clear();
    }
    assert_eq!(lines(&diff(&desired(&world), &cloud.observed)), [""; 0]);
}

#[test]
fn a_certificate_that_becomes_the_default_one_is_not_added_beside_it() {
    let tls =
        |default, more| world(&[("protocol-port", "tcpssl:80"), ("cert-id", default), ("additional-cert-ids", more)]);
    let mut cloud = served(&tls("cert-1", "cert-2,cert-3"));
    let plan = bring(&tls("cert-2", "cert-3"), &mut cloud);
    assert!(lines(&plan).iter().all(|line| !line.starts_with("add certificates")), "{plan}");
    assert_eq!(diff(&desired(&tls("cert-2", "cert-3")), &cloud.observed).steps, []);
}

#[test]
fn the_former_default_certificate_is_added_once_another_one_is_the_default() {
    let tls =
        |default, more| world(&[("protocol-port", "tcpssl:80"), ("cert-id", default), ("additional-cert-ids", more)]);
    for before in ["", "cert-2", "cert-3"] {
        let (mut cloud, after) = (served(&tls("cert-1", before)), tls("cert-2", "cert-1"));
        let adds = |plan: &Plan| lines(plan).iter().filter(|line| line.contains("add certificates")).count();
        let first = bring(&after, &mut cloud);
        assert_eq!(adds(&first), 0, "the cloud refuses the default one: {first}");
        let second = bring(&after, &mut cloud);
        assert_eq!(adds(&second), 1, "{before}: {second}");
        assert_eq!(diff(&desired(&after), &cloud.observed).steps, [], "{before}");
    }
}

#[test]
fn the_default_certificate_of_a_new_listener_is_no_additional_one() {
    let tls = [("protocol-port", "tcpssl:80"), ("cert-id", "cert-1"), ("additional-cert-ids", "cert-1,cert-2")];
    let plan = bring(&world(&tls), &mut Cloud::default());
    let added = plan.steps.iter().filter_map(|step| match &step.operation {
        Operation::Own(Own::AddCertificates { ids, .. }) => Some(ids.iter().map(String::as_str).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(added.collect::<Vec<_>>(), [["cert-2"]]);
}

#[test]
fn a_service_whose_named_group_is_gone_can_be_deleted() {
    let world = world(&[("id", "nlb-user"), ("vgroup-port", "sgp-gone:80,broken")]);
    let mut cloud = Cloud::of_user();
    let departure = Departure { reuse: Some("nlb-user".to_owned()), ..Departure::default() };
    assert_eq!(remove(&world, &departure, &mut cloud).problems, []);
}

#[test]
fn a_named_group_is_looked_up_when_the_service_goes_since_backends_of_ours_can_be_in_it() {
    let world = world(&[("id", "nlb-user"), ("vgroup-port", "sgp-user:80, broken,:81")]);
    let departure = Departure::of(LoadBalancerKind::Nlb, &world.service);
    assert_eq!(departure.named_groups, set(["sgp-user", "broken"]));
    let needs = teardown_needs(&desired(&world).owner, &departure, &Observed::default());
    assert_eq!(needs.named_groups, departure.named_groups);
}

#[test]
fn groups_of_a_users_load_balancer_that_may_not_be_used_get_no_backends() {
    let mut world = world(&[("id", "nlb-user"), ("vgroup-port", "sgp-user:80")]);
    let mut cloud = Cloud::of_user();
    let steps = |world: &World, cloud: &Cloud| diff(&desired(world), &cloud.observed).steps.len();
    assert!(steps(&world, &cloud) > 0, "a new Service gets its backends");
    let ingress = |hostname: &str| Ingress { hostname: hostname.to_owned(), ..Ingress::default() };
    cloud.instance().dns_name = "nlb-user.example".to_owned();
    world.service.ingress = vec![ingress("nlb-other.example")];
    assert_eq!(steps(&world, &cloud), 0, "another load balancer serves it");
    world.service.ingress.clear();
    world.settings.service.disable_public = true;
    cloud.instance().fields.insert(InstanceField::AddressType, "Internet".to_owned());
    assert_eq!(steps(&world, &cloud), 0, "public ones are forbidden");
    world.service.ingress = vec![ingress("nlb-user.example")];
    assert!(steps(&world, &cloud) > 0, "it serves already");
}

#[test]
fn a_listener_of_ours_goes_with_its_group_even_if_listeners_are_no_longer_managed() {
    let world = world(&[("id", "nlb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    bring(&world, &mut cloud);
    let departure = Departure { reuse: Some("nlb-user".to_owned()), ..Departure::default() };
    let plan = remove(&world, &departure, &mut cloud);
    assert_eq!((cloud.listeners(), cloud.observed.groups.len()), (vec!["9000/TCP".to_owned()], 1), "{plan}");
}

#[test]
fn listeners_of_ours_on_a_load_balancer_that_the_service_no_longer_names_go_with_their_group() {
    let world = world(&[("id", "nlb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    bring(&world, &mut cloud);
    let group = cloud.group(GROUP).0.clone();
    let listeners = cloud.observed.listeners.replace(Default::default()).unwrap();
    cloud.instance().id = "nlb-new".to_owned();
    cloud.observed.parts.group_details.get_mut(&group).unwrap().load_balancers = vec!["nlb-user".to_owned()];
    let departure = Departure { reuse: Some("nlb-new".to_owned()), ..Departure::default() };
    let owner = desired(&world).owner;
    assert_eq!(teardown_needs(&owner, &departure, &cloud.observed).former, set(["nlb-user"]));
    cloud.observed.parts.former.insert("nlb-user".to_owned(), listeners);
    assert_eq!(teardown_needs(&owner, &departure, &cloud.observed).former, set([]));

    let mut shared = cloud.clone();
    let others = ListenerKey::port(443, Protocol::Tcp);
    let listener =
        ObservedListener { group_id: group, description: "by hand".to_owned(), ..ObservedListener::default() };
    shared.observed.parts.former.get_mut("nlb-user").unwrap().insert(others, Box::new(listener));
    let plan = remove(&world, &departure, &mut shared);
    assert!(plan.problems[0].field.contains("listener 443/TCP of load balancer nlb-user"), "{plan}");
    assert_eq!(shared.group(GROUP).1.members().len(), 2, "it serves the user's listener");

    let plan = remove(&world, &departure, &mut cloud);
    let left: Vec<_> = cloud.observed.parts.former["nlb-user"].keys().map(ToString::to_string).collect();
    assert_eq!((left, cloud.observed.groups.len()), (vec!["9000/TCP".to_owned()], 1), "{plan}");
    let first =
        plan.steps.iter().position(|step| matches!(step.operation, Operation::Own(Own::DeleteFormerListener { .. })));
    let target = &plan.steps[first.unwrap()].target;
    let deletes = |step: &&Step| matches!(step.operation, Operation::DeleteGroup { .. });
    assert!(plan.steps.iter().find(deletes).unwrap().needs.contains(target), "the cloud would refuse it: {plan}");
}

#[test]
fn nothing_is_taken_out_of_a_group_while_an_addition_to_it_is_refused() {
    let backend = Backend { key: BackendKey::ecs("i-1", 80), weight: 100, description: "".into() };
    let group = GroupRef::Named(GROUP.to_owned());
    let add = Operation::AddBackends { group, backends: vec![backend] };
    assert_eq!(add.refused_backends(), RefusedBackends::OneAddition);
}

#[test]
fn one_write_at_a_time_changes_a_load_balancer_or_a_group() {
    let mut cloud = served(&world(&[("address-type", "intranet")]));
    let mut edited = world(&[("name", "other"), ("cross-zone-enabled", "off"), ("scheduler", "wlc")]);
    edited
        .service
        .annotations
        .iter_mut()
        .map(|(_, it)| it)
        .filter(|it| it.contains(':'))
        .for_each(|it| *it = "z-i:vsw-i".to_owned());
    edited.nodes.pop();
    let plan = diff(&desired(&edited), &cloud.observed);
    let at = |start: &str| plan.steps.iter().find(|step| step.operation.to_string().starts_with(start)).unwrap();
    let start = |cloud: &mut Cloud, line: &str| {
        let answer = Answer { job: "job-1".to_owned(), ..Answer::default() };
        cloud.observed.apply(&at(line).operation, &answer);
    };
    start(&mut cloud, "set zones");
    assert!(NlbModel::must_wait(&cloud.observed, at("set name")), "{plan}");
    assert!(
        !NlbModel::must_wait(&cloud.observed, at("remove from")),
        "backends of a group do not wait for the load balancer"
    );
    start(&mut cloud, "remove from");
    assert!(NlbModel::must_wait(&cloud.observed, at("set group")), "{plan}");
}

#[test]
fn what_cannot_be_said_when_a_load_balancer_is_made_is_said_once() {
    let mut all = world(&[("security-group-ids", "sg-a"), ("cross-zone-enabled", "off"), ("ip-version", "dualstack")]);
    all.service.annotations.insert(
        "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-ipv6-address-type".to_owned(),
        "internet".to_owned(),
    );
    let plan = bring(&all, &mut Cloud::default());
    for line in ["join security groups sg-a", "set cross-zone off", "set IPv6 address type Internet"] {
        assert_eq!(lines(&plan).iter().filter(|found| *found == line).count(), 1, "{plan}");
    }
    served(&all);
}

#[test]
fn of_hundreds_of_backends_each_pod_is_told() {
    use crate::plan::loadbalancer::gates::{Registration, conditions, gate_of};
    let eni = ("service.beta.kubernetes.io/backend-type", "eni");
    let mut world = world(&[eni]);
    let gate = gate_of(&world.service);
    let mut pods = BTreeMap::new();
    let endpoint = world.endpoints.endpoints[0].clone();
    world.endpoints.endpoints.clear();
    for number in 0..130_u8 {
        let (name, address) = (format!("web-{number}"), std::net::IpAddr::from([192, 168, 99, number]));
        let endpoint = crate::plan::inputs::Endpoint { address, pod: Some(name.as_str().into()), ..endpoint.clone() };
        world.endpoints.endpoints.push(endpoint);
        world.enis.insert(address, format!("eni-{number}"));
        let pod = crate::plan::inputs::PodView {
            key: crate::plan::inputs::ObjectKey::new("default", &name),
            uid: format!("u-{number}"),
            gates: BTreeSet::from([gate.clone()]),
            containers_ready: true,
            conditions: BTreeMap::new(),
        };
        pods.insert(name, pod);
    }
    let (wanted, cloud) = (desired(&world), served(&world));
    let attached = world.enis.keys().copied().collect();
    let registration = Registration {
        owner: &wanted.owner,
        desired: &wanted.groups,
        observed: &cloud.observed.groups,
        unresolved: &wanted.unresolved,
        outside: &wanted.outside,
        attached: &attached,
        complete: true,
    };
    let told = conditions(&gate, &world.endpoints, &pods, registration);
    assert_eq!(told.iter().filter(|condition| condition.registered).count(), 130);
}

#[test]
fn backends_of_ours_leave_a_group_that_is_no_longer_named_and_two_ports_share_one() {
    let before = world(&[("id", "nlb-user"), ("vgroup-port", "sgp-user:80,sgp-user:443")]);
    let ports = [port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)];
    let before = before.ports(&ports);
    let mut cloud = Cloud::of_user();
    bring(&before, &mut cloud);
    let count = |cloud: &Cloud, id: &str| cloud.observed.groups.get(id).unwrap().members().len();
    assert_eq!(count(&cloud, "sgp-user"), 5, "both ports of two nodes, beside the user's own");
    let second = ObservedGroup { name: "second".to_owned(), backends: Some(Arc::default()) };
    cloud.observed.groups.insert("sgp-second".to_owned(), second);
    let after = world(&[("id", "nlb-user"), ("vgroup-port", "sgp-second:80,sgp-second:443")]).ports(&ports);
    let unread = Observed { listeners: None, ..cloud.observed.clone() };
    assert!(desired(&after).needs(&unread).listeners, "they lead to the groups that were named before");
    bring(&after, &mut cloud);
    assert_eq!((count(&cloud, "sgp-user"), count(&cloud, "sgp-second")), (1, 4));
}

#[test]
fn a_load_balancer_that_goes_or_could_not_be_made_is_not_worked_on() {
    let world = world(&[("name", "other")]);
    let mut cloud = served(&world);
    cloud.instance().fields.insert(InstanceField::Name, "edited".to_owned());
    cloud.instance().status = "Deleting".to_owned();
    cloud.observed.note_what_is_busy(Duration::ZERO);
    assert_eq!(lines(&diff(&desired(&world), &cloud.observed)), [""; 0]);
    cloud.observed.parts.jobs.clear();
    cloud.instance().status = "CreateFailed".to_owned();
    let plan = diff(&desired(&world), &cloud.observed);
    assert_eq!((lines(&plan).len(), plan.problems.len()), (0, 1), "{plan}");
    cloud.instance().status = "Active".to_owned();
    cloud.instance().tags.insert(MARK_TAG.to_owned(), "another".to_owned());
    let plan = diff(&desired(&world), &cloud.observed);
    assert_eq!(
        (lines(&plan).len(), plan.problems.len()),
        (0, 1),
        "whatever the filter of the list let through: {plan}"
    );
}

#[test]
fn an_ipv6_address_of_a_zone_is_chosen_when_the_load_balancer_is_made() {
    let zones = |text: &str, version| {
        let mut world = world(&[("ip-version", version)]);
        world
            .service
            .annotations
            .iter_mut()
            .map(|(_, it)| it)
            .filter(|it| it.contains(':'))
            .for_each(|it| *it = text.to_owned());
        world
    };
    let fixed = zones("z-i:vsw-i:::2001:DB8::1,z-j:vsw-j", "dualstack");
    let mut cloud = served(&fixed);
    let addresses: Vec<_> = cloud.instance().zones.iter().map(|zone| zone.ipv6_address.clone()).collect();
    assert_eq!(addresses, ["2001:db8::1", ""]);
    assert_eq!(desired(&zones("z-i:vsw-i:::2001:db8::1,z-j:vsw-j", "ipv4")).problems.iter().count(), 1);
    for later in ["z-i:vsw-i:::2001:db8::2,z-j:vsw-j", "z-i:vsw-i,z-j:vsw-j,z-k:vsw-k:::2001:db8::3"] {
        let plan = diff(&desired(&zones(later, "dualstack")), &cloud.observed);
        assert_eq!((lines(&plan).len(), plan.problems.len()), (0, 1), "{plan}");
    }
}
