//! Source ranges, and the security group that keeps them.

use std::collections::BTreeSet;

use super::{Cloud, bring, desired, lines, served, world};
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::observed::SECURITY_GROUPS;
use crate::plan::nlb::operation::{Operation, Own};

#[test]
fn source_ranges_are_in_force_before_anybody_can_connect() {
    let mut world = world(&[]);
    world.service.source_ranges = vec!["10.1.2.3/8".to_owned(), "192.168.0.0/16".to_owned()];
    let plan = bring(&world, &mut Cloud::default());
    let steps = lines(&plan);
    let at = |start: &str| steps.iter().position(|line| line.starts_with(start)).unwrap();
    assert_eq!(steps[at("add rules")], "add rules: accept 10.0.0.0/8, accept 192.168.0.0/16, drop 0.0.0.0/0");
    assert!(at("create security group") < at("add rules") && at("add rules") < at("join"), "{plan}");
    assert!(at("join") < at("create listener"), "{plan}");
    let listener = &plan.steps[at("create listener")];
    assert!(listener.needs.contains(&Target::Attribute(SECURITY_GROUPS)), "a join that fails keeps the port shut");
    assert!(steps.len() <= 7, "{plan}");
}

#[test]
fn ranges_of_both_families_drop_both_and_those_of_ipv6_need_an_address() {
    let mut dual = world(&[("ip-version", "DualStack")]);
    dual.service.source_ranges = vec!["fd00::/8".to_owned(), "10.0.0.0/8".to_owned()];
    let access = desired(&dual).access.unwrap();
    let drops: Vec<_> = access.rules.iter().filter(|rule| rule.drops).map(|rule| rule.source.to_string()).collect();
    assert_eq!(drops, ["0.0.0.0/0", "::/0"]);
    let mut v4 = world(&[]);
    v4.service.source_ranges.clone_from(&dual.service.source_ranges);
    let wanted = desired(&v4);
    let warnings = diff(&wanted, &Cloud::default().observed).warnings;
    assert!(warnings.iter().any(|warning| warning.to_string().contains("fd00::/8")), "{warnings:?}");
    assert_eq!(wanted.access.unwrap().rules.len(), 2);
}

#[test]
fn security_groups_of_users_are_never_left_without_an_annotation() {
    let mut world = world(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let mut cloud = served(&world);
    cloud.instance().security_group_ids.insert("sg-user".to_owned());
    assert_eq!(lines(&diff(&desired(&world), &cloud.observed)), [""; 0]);
    world.service.source_ranges.clear();
    bring(&world, &mut cloud);
    assert_eq!(cloud.instance().security_group_ids, BTreeSet::from(["sg-user".to_owned()]));
    assert_eq!(cloud.observed.parts.security_groups, Some(Vec::new()), "ours is deleted after it was left");
}

#[test]
fn source_ranges_that_are_no_longer_managed_stay_as_they_are() {
    let mut whole = world(&[]);
    whole.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let cloud = served(&whole);
    for level in ["listeners", "backends", "none"] {
        let mut part = world(&[("manage", level)]);
        part.service.source_ranges.clone_from(&whole.service.source_ranges);
        let plan = diff(&desired(&part), &cloud.observed);
        assert!(plan.steps.is_empty() && plan.problems.is_empty(), "{level}: {plan}");
    }
}

#[test]
fn source_ranges_are_replaced_where_the_old_and_the_new_are_more_than_a_security_group_holds() {
    /// Most rules of a security group.
    const MOST: usize = 200;
    for count in [99, 110, 190] {
        let of = |second: u8| {
            let mut world = world(&[]);
            world.service.source_ranges = (0..count).map(|third| format!("10.{second}.{third}.0/24")).collect();
            world
        };
        let mut cloud = served(&of(0));
        let plan = diff(&desired(&of(1)), &cloud.observed);
        let ours = |cloud: &Cloud| cloud.observed.parts.security_groups.as_ref().unwrap()[0].rules.clone().unwrap();
        for step in &plan.steps {
            cloud.perform(&step.operation);
            let rules = ours(&cloud);
            assert!(rules.len() <= MOST, "{count}: {} rules after {step}", rules.len());
            assert!(rules.values().any(|found| found.rule.drops), "{count}: open after {step}");
        }
        let first_goes = matches!(plan.steps[0].operation, Operation::Own(Own::RemoveRules { .. }));
        assert_eq!(first_goes, 2 * count + 1 > MOST, "{count}: {plan}");
        assert_eq!(lines(&diff(&desired(&of(1)), &cloud.observed)), [""; 0], "{count}");
    }
}

#[test]
fn ranges_that_cannot_be_kept_are_a_problem_and_no_listener_is_made() {
    let mut world = world(&[]);
    let mut cloud = served(&world);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    bring(&world, &mut cloud);
    cloud.observed.parts.security_groups.as_mut().unwrap()[0].vpc_id = "vpc-other".to_owned();
    cloud.observed.listeners.as_mut().unwrap().clear();
    let plan = diff(&desired(&world), &cloud.observed);
    assert!(plan.problems.iter().any(|problem| problem.field == "spec.loadBalancerSourceRanges"), "{plan}");
    assert_eq!(lines(&plan), [""; 0]);
}

#[test]
fn a_second_security_group_of_a_creation_whose_answer_was_lost_goes() {
    let mut world = world(&[]);
    world.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let mut cloud = served(&world);
    let groups = cloud.observed.parts.security_groups.as_mut().unwrap();
    let twin = crate::plan::nlb::observed::ObservedSecurityGroup { id: "sg-twin".to_owned(), ..groups[0].clone() };
    groups.push(twin);
    let plan = bring(&world, &mut cloud);
    assert!(plan.problems.is_empty() && plan.steps.len() == 1, "{plan}");
    let in_use = |cloud: &Cloud| {
        let left = cloud.observed.parts.security_groups.clone().unwrap();
        let joined = &cloud.observed.instance.as_ref().unwrap().security_group_ids;
        assert!(left.len() == 1 && joined.iter().eq([&left[0].id]), "{joined:?}");
        left[0].clone()
    };
    // Where a stale list hid the first one for a while, the load balancer has joined both.
    let twin = crate::plan::nlb::observed::ObservedSecurityGroup { id: "sg-twin".to_owned(), ..in_use(&cloud) };
    cloud.observed.instance.as_mut().unwrap().security_group_ids.insert(twin.id.clone());
    cloud.observed.parts.security_groups.as_mut().unwrap().push(twin);
    let plan = bring(&world, &mut cloud);
    assert_eq!(lines(&plan).len(), 2, "it is left, then deleted: {plan}");
    in_use(&cloud);
}
