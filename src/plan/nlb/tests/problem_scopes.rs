//! What a problem is about stays in the cloud as it is, and everything else goes on.

use std::collections::BTreeSet;

use super::{Cloud, bring, desired, lines, served, world};
use crate::plan::clb::tests::problem_scopes::{fields, released};
use crate::plan::clb::tests::{ENI, World, port};
use crate::plan::inputs::TargetPort;
use crate::plan::loadbalancer::annotations::{AnnotationName, parse};
use crate::plan::loadbalancer::diff::diff;
use crate::plan::nlb::annotations::Name;
use crate::plan::nlb::operation::{Operation, Own};

#[test]
fn the_server_group_of_a_listener_follows_a_release_whatever_annotation_is_wrong() {
    let mut tried = 0;
    let bases = [&[][..], &[ENI]];
    for (annotations, entry) in bases.iter().flat_map(|base| Name::TABLE.iter().map(move |entry| (*base, entry))) {
        let mut cloud = served(&world(annotations));
        let after = released(world(annotations));
        let mut broken = after.clone();
        broken.service.annotations.insert(entry.name.key(), "nonsense".to_owned());
        let is_read = !parse::<Name>(&broken.service).is_wrong(entry.name);
        // While it is not known what is managed, nothing changes.
        let is_open = matches!(entry.name, Name::Id | Name::Manage);
        if is_read || is_open || desired(&broken).problems.withhold_groups() {
            continue;
        }
        let mut sound = cloud.clone();
        bring(&after, &mut sound);
        bring(&broken, &mut cloud);
        let leads_to = |cloud: &Cloud| {
            let listener = cloud.observed.listeners.iter().flatten().find(|(key, _)| key.first == 80).unwrap().1;
            let members = cloud.observed.groups[&listener.group_id].members().iter();
            members.map(|backend| backend.key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(leads_to(&cloud), leads_to(&sound), "{annotations:?}, {}", entry.name.key());
        assert_eq!(diff(&desired(&broken), &cloud.observed).steps, [], "{annotations:?}, {}", entry.name.key());
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn everything_that_is_wrong_is_told_at_once_and_nothing_is_made_in_vain() {
    let plan = |annotations: &[(&str, &str)], ports: &[u16]| {
        let ports: Vec<_> = ports.iter().map(|it| port(*it, "TCP", 8000 + it, 30000 + it)).collect();
        diff(&desired(&world(annotations).ports(&ports)), &Cloud::default().observed)
    };
    let wrong =
        [("protocol-port", "tcpssl:80"), ("address-type", "somewhere"), ("idle-timeout", "long"), ("alpn", "on")];
    let all = plan(&wrong, &[80]);
    let told: BTreeSet<&str> = fields(&all.problems).into_iter().collect();
    let expected = ["address-type", "idle-timeout", "cert-id", "alpn-policy"];
    assert_eq!((told, all.steps.len()), (expected.into(), 0), "{all}");
    let in_vain = plan(&wrong[..1], &[80]);
    assert_eq!((fields(&in_vain.problems), in_vain.steps.len()), (vec!["cert-id"], 0), "{in_vain}");
    let of_use = plan(&wrong[..1], &[80, 81]);
    assert!(of_use.problems.len() == 1 && of_use.to_string().contains("create listener"), "{of_use}");
}

/// A Service that lets only these in.
fn only(ranges: &[&str], annotations: &[(&str, &str)]) -> World {
    let mut world = world(annotations);
    world.service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
    world
}

#[test]
fn a_mistake_in_the_source_ranges_lets_nobody_else_in() {
    let cloud = served(&only(&["10.0.0.0/8"], &[]));
    let many: Vec<String> = (0..191).map(|number| format!("10.0.{number}.0/24")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let wrong = [
        only(&many, &[]),
        only(&["10.0.0.0/33"], &[]),
        only(&["10.0.0.0/8", "somewhere"], &[]),
        only(&["10.0.0.0/8"], &[("security-group-ids", "sg-a,sg-b,sg-c,sg-d")]),
    ];
    for wrong in wrong {
        let wrong = wrong.ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
        let plan = diff(&desired(&wrong), &cloud.observed);
        let words = ["join", "leave", "rule", "listener", "security"];
        assert!(!lines(&plan).iter().any(|line| words.iter().any(|word| line.contains(word))), "{plan}");
        assert_eq!(plan.problems.len(), 1, "{plan}");
    }
}

#[test]
fn no_annotation_that_is_wrong_lets_somebody_else_in() {
    let stated = [("ip-version", "DualStack"), ("security-group-ids", "sg-a")];
    let cloud = served(&only(&["10.0.0.0/8", "fd00::/8"], &stated));
    for entry in Name::TABLE {
        let mut broken = only(&["10.0.0.0/8", "fd00::/8"], &stated);
        broken.service.annotations.insert(entry.name.key(), "nonsense".to_owned());
        let opens = |operation: &Operation| {
            matches!(operation, Operation::Own(own) if matches!(own,
                Own::LeaveSecurityGroups { .. } | Own::RemoveRules { .. } | Own::DeleteSecurityGroup { .. }))
        };
        let plan = diff(&desired(&broken), &cloud.observed);
        // A word is an id, too.
        let is_read = !parse::<Name>(&broken.service).is_wrong(entry.name);
        assert!(is_read || !plan.steps.iter().any(|step| opens(&step.operation)), "{}: {plan}", entry.name.key());
    }
}

#[test]
fn the_ipv6_side_of_a_load_balancer_stays_shut_whatever_the_annotation_says_later() {
    for ranges in [&["10.0.0.0/8"][..], &["10.0.0.0/8", "fd00::/8"], &["0.0.0.0/0"]] {
        let cloud = served(&only(ranges, &[("ip-version", "DualStack")]));
        for later in [&[][..], &[("ip-version", "dual")], &[("ip-version", "ipv4")]] {
            let plan = diff(&desired(&only(ranges, later)), &cloud.observed);
            assert_eq!((plan.steps.len(), plan.problems.len()), (0, later.len()), "{ranges:?}, {later:?}: {plan}");
            assert_eq!(plan.warnings, [], "its IPv6 address is there");
            let mut new = cloud.observed.clone();
            new.instance.as_mut().unwrap().security_group_ids.clear();
            new.parts.security_groups = None;
            assert!(desired(&only(ranges, later)).needs(&new).security_groups, "{ranges:?}, {later:?}");
        }
    }
}

/// Values that are right by themselves and do not fit the ports.
const UNFIT: [(&str, &str); 3] =
    [("health-check-interval", "60"), ("scheduler", "qch"), ("health-check-interval", "400")];

#[test]
fn a_setting_of_the_server_group_that_does_not_fit_keeps_no_other_change_of_the_listener_from_being_made() {
    for (key, value) in UNFIT {
        let tls = |certificate: &str, more: &[(&str, &str)]| {
            let tls = [("protocol-port", "tcpssl:80"), ("cert-id", certificate), ("health-check-flag", "on")];
            world(&[&tls, more].concat())
        };
        let mut cloud = served(&tls("cert-1", &[]));
        let plan = bring(&released(tls("cert-2", &[(key, value)])), &mut cloud);
        let told = plan.to_string();
        assert!(told.contains("cert-1 -> cert-2") && told.contains("create group"), "{key}: {plan}");
        let told: BTreeSet<&str> = fields(&plan.problems).into_iter().chain(fields(&plan.warnings)).collect();
        assert!(told.contains(key), "{key}: {told:?}");
    }
}

#[test]
fn a_port_that_cannot_be_served_stops_no_port_with_the_same_number_and_another_protocol() {
    let plan = |annotations: &[(&str, &str)], other: &str| {
        let ports = [port(80, "TCP", 8080, 30080), port(80, other, 8081, 30081)];
        diff(&desired(&world(annotations).ports(&ports)), &Cloud::default().observed)
    };
    let created = |plan: &super::Plan| {
        let lines = lines(plan);
        ["80/TCP", "80/UDP"].map(|it| lines.iter().any(|line| line.contains("create listener") && line.contains(it)))
    };
    for (annotations, other, expected, fields_told) in [
        (&[][..], "SCTP", [true, false], &["spec.ports[1].protocol"][..]),
        (&[("scheduler", "qch")], "UDP", [false, true], &["scheduler"]),
        (&[("protocol-port", "tcpssl:80")], "UDP", [false, true], &["cert-id"]),
    ] {
        let plan = plan(annotations, other);
        assert_eq!((created(&plan), &fields(&plan.problems)[..]), (expected, fields_told), "{annotations:?}: {plan}");
    }
}

/// A range of ports needs a target port with a number.
#[test]
fn a_listener_follows_and_goes_although_its_neighbour_of_another_protocol_has_a_mistake() {
    let both = [port(80, "TCP", 8080, 30080), port(80, "UDP", 8081, 30081)];
    let range = |more: &[(&str, &str)]| world(&[&[ENI, ("listener-port-range", "100-200:80")], more].concat());
    let cloud = served(&range(&[]).ports(&both));
    let steps = |mut after: World, what: &str| {
        after.service.ports[0].target_port = TargetPort::Name("web".to_owned());
        let plan = diff(&desired(&after), &cloud.observed);
        assert_eq!(plan.problems.len(), 1, "{plan}");
        let about = |it: &&str| lines(&plan).iter().any(|line| line.contains(what) && line.contains(it));
        ["/TCP", "/UDP"].into_iter().filter(about).collect::<Vec<_>>()
    };
    assert_eq!(steps(range(&[("idle-timeout", "15")]).ports(&both), "set listener"), ["/UDP"]);
    assert_eq!(steps(range(&[]).ports(&both[..1]), "delete listener"), ["/UDP"]);
}

#[test]
fn a_mistake_about_a_range_of_ports_keeps_its_listener_and_its_server_group() {
    let range = |range: &str| world(&[ENI, ("listener-port-range", range)]);
    for sound in ["1000-2000:80", "80-400:80"] {
        let cloud = served(&range(sound));
        let mut by_name = range(sound);
        by_name.service.ports[0].target_port = TargetPort::Name("web".to_owned());
        let by_node = world(&[("listener-port-range", sound)]);
        for wrong in [range("1000-2000:80,3000:90"), range("2000-1000:80"), by_name, by_node] {
            let plan = diff(&desired(&wrong), &cloud.observed);
            assert!(!plan.problems.is_empty(), "{sound}: {plan}");
            assert!(!lines(&plan).iter().any(|line| line.contains("delete")), "{sound}: {plan}");
        }
        let plan = diff(&desired(&world(&[ENI])), &cloud.observed);
        assert!(lines(&plan).iter().any(|line| line.contains("delete listener")), "no longer wanted: {plan}");
    }
}
