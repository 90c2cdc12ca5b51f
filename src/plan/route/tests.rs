mod properties;

use std::sync::Arc;

use super::*;
use crate::plan::inputs::{Condition, ConditionStatus, NodeView};

const MINUTE: Duration = Duration::from_secs(60);

fn rules(now: Duration) -> RouteRules {
    // Whoever is not among the nodes has left for good, where a test says nothing else.
    let instances = ["old", "x", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let gone = |name: &&str| (format!("i-{name}"), InstancePresence::Gone);
    let evidence = OwnerEvidence { instances: instances.iter().map(gone).collect(), ..OwnerEvidence::default() };
    let cluster_cidrs = vec!["10.0.0.0/8".parse().unwrap()];
    RouteRules { cluster: cluster(), cluster_cidrs, removals: 100, now, evidence }
}

fn cluster() -> RouteCluster {
    RouteCluster { id: "c1".into(), uid: "u1".into() }
}

fn cidr(number: usize) -> IpNet {
    format!("10.1.{number}.0/24").parse().unwrap()
}

fn node(name: &str, instance: &str, number: usize) -> RouteNode {
    RouteNode {
        name: name.into(),
        instance: Some(instance.into()),
        cidrs: vec![cidr(number)],
        malformed: Vec::new(),
        gets_routes: true,
        is_replaced: false,
        gets_condition: true,
        condition: None,
    }
}

fn entry(destination: IpNet, instance: &str, maker: Option<&str>) -> RouteEntry {
    RouteEntry {
        id: "rte".into(),
        destination,
        next_hops: vec![("Instance".into(), instance.into())],
        status: "Available".into(),
        name: String::new(),
        description: maker.map(|node| mark::description(&cluster(), node)).unwrap_or_default(),
    }
}

fn table(entries: Vec<RouteEntry>) -> TableEntries {
    TableEntries { id: "vtb-1".into(), entries }
}

/// What the cloud and the API server hold after a step, by the meaning of the step.
fn apply(nodes: &mut [RouteNode], tables: &mut [TableEntries], step: &RouteStep) {
    match step {
        RouteStep::Create { item, .. } => {
            let table = tables.iter_mut().find(|table| table.id == item.table_id).unwrap();
            assert!(table.entries.iter().all(|entry| entry.destination != item.destination), "unique per table");
            let made = entry(item.destination, &item.instance_id, None);
            table.entries.push(RouteEntry { description: item.description.clone(), ..made });
        }
        RouteStep::Delete { item, .. } => {
            let table = tables.iter_mut().find(|table| table.id == item.table_id).unwrap();
            let before = table.entries.len();
            table
                .entries
                .retain(|entry| entry.destination != item.destination || entry.instance() != Some(&item.instance_id));
            assert_eq!(table.entries.len() + 1, before, "deletes what was listed");
        }
        RouteStep::SetCondition { node, routed } => {
            let node = nodes.iter_mut().find(|known| known.name == *node).unwrap();
            let content = condition::due(node.condition.as_ref(), *routed).unwrap();
            let status = if content.unavailable { ConditionStatus::True } else { ConditionStatus::False };
            node.condition = Some(Condition { status, reason: content.reason.into(), since: None });
        }
    }
}

fn once(nodes: &[RouteNode], entries: Vec<RouteEntry>) -> RoutePlan {
    plan(nodes, &[table(entries)], &mut RouteMemory::default(), &rules(Duration::ZERO))
}

/// The plan after an orphan has been seen for long enough.
fn later(nodes: &[RouteNode], entries: &[RouteEntry], rules_then: &RouteRules) -> RoutePlan {
    let (mut memory, tables) = (RouteMemory::default(), [table(entries.to_vec())]);
    let first = plan(nodes, &tables, &mut memory, &RouteRules { now: Duration::ZERO, ..rules_then.clone() });
    assert!(!first.steps.iter().any(|step| step.deletes()), "one sighting removes nothing");
    plan(nodes, &tables, &mut memory, rules_then)
}

#[test]
fn a_new_node_gets_a_marked_entry_in_every_table_and_has_its_condition_when_all_are_there() {
    let mut nodes = [node("a", "i-1", 1)];
    let mut tables = [table(Vec::new()), TableEntries { id: "vtb-2".into(), entries: Vec::new() }];
    let mut memory = RouteMemory::default();
    let first = plan(&nodes, &tables, &mut memory, &rules(Duration::ZERO));
    let text: Vec<String> = first.steps.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["create route 10.1.1.0/24 -> i-1 in vtb-1", "create route 10.1.1.0/24 -> i-1 in vtb-2"]);
    apply(&mut nodes, &mut tables, &first.steps[0]);
    let second = plan(&nodes, &tables, &mut memory, &rules(MINUTE));
    assert_eq!(second.steps, first.steps[1..], "one table is not enough");
    apply(&mut nodes, &mut tables, &second.steps[0]);
    tables[1].entries[0].status = "Pending".into();
    let third = plan(&nodes, &tables, &mut memory, &rules(MINUTE));
    assert!(third.steps.is_empty() && third.pending.contains("a"), "not usable yet: {third:?}");
    tables[1].entries[0].status = "Available".into();
    let told = plan(&nodes, &tables, &mut memory, &rules(MINUTE)).steps;
    assert_eq!(told, [RouteStep::SetCondition { node: "a".into(), routed: true }]);
}

#[test]
fn every_address_family_gets_its_entry() {
    let mut dual = node("a", "i-1", 1);
    dual.cidrs.push("fd00:1::/64".parse().unwrap());
    let open = RouteRules { cluster_cidrs: Vec::new(), ..rules(Duration::ZERO) };
    assert_eq!(plan(&[dual], &[table(Vec::new())], &mut RouteMemory::default(), &open).steps.len(), 2);
}

#[test]
fn a_family_without_bounds_is_not_routed_unless_nothing_else_is_left() {
    let six: IpNet = "fd00:1::/64".parse().unwrap();
    let mut dual = node("a", "i-1", 1);
    dual.cidrs.push(six);
    let steps = once(&[dual.clone()], vec![entry(cidr(1), "i-1", None)]).steps;
    assert_eq!(steps, [RouteStep::SetCondition { node: "a".into(), routed: true }], "IPv4 is all that was asked for");
    dual.cidrs = vec![six];
    assert!(matches!(&once(&[dual], Vec::new()).problems[..], [(_, RouteProblem::Outside { .. })]));
}

#[test]
fn node_views_are_compared_by_instance_whatever_the_form_of_their_provider_id() {
    for id in ["cn-a.i-1", "alicloud://cn-a.i-1"] {
        let view = NodeView {
            name: "a".into(),
            provider_id: id.into(),
            pod_cidrs: vec!["10.1.1.5/24".into()],
            ..NodeView::default()
        };
        let steps = once(&[RouteNode::of(&view)], vec![entry(cidr(1), "i-1", None)]).steps;
        assert_eq!(steps, [RouteStep::SetCondition { node: "a".into(), routed: true }], "{id}");
    }
}

#[test]
fn a_node_whose_place_another_instance_has_loses_its_route_and_gets_none() {
    let nodes = [RouteNode { is_replaced: true, ..node("a", "i-1", 1) }, node("b", "i-2", 2)];
    let other = entry(cidr(2), "i-2", Some("b"));
    let plan = once(&nodes, vec![entry(cidr(1), "i-1", Some("a")), other.clone()]);
    let deleted: Vec<_> = plan.steps.iter().filter(|step| step.deletes()).filter_map(RouteStep::item).collect();
    assert!(matches!(deleted[..], [item] if item.destination == cidr(1)), "{plan:?}");
    let plan = later(&nodes, std::slice::from_ref(&other), &rules(MINUTE));
    assert!(matches!(&plan.problems[..], [(node, RouteProblem::Replaced { .. })] if node == "a"), "{plan:?}");
    assert!(plan.steps.contains(&RouteStep::SetCondition { node: "a".into(), routed: false }), "{plan:?}");
    assert!(!plan.steps.iter().any(RouteStep::creates), "{plan:?}");
    let plan = later(&nodes, &[entry(cidr(1), "i-new", None), other], &rules(MINUTE));
    assert!(!plan.steps.iter().any(|step| step.deletes() || step.creates()), "what others made stays: {plan:?}");
}

#[test]
fn foreign_entries_are_reported_and_never_touched() {
    let nodes = [node("a", "i-1", 1)];
    let conflict = once(&nodes, vec![entry(cidr(1), "i-foreign", None)]);
    assert_eq!(conflict.steps, [RouteStep::SetCondition { node: "a".into(), routed: false }]);
    assert!(matches!(&conflict.problems[..], [(_, RouteProblem::Conflict { .. })]), "{conflict:?}");

    let inside = entry("10.1.1.128/25".parse().unwrap(), "i-foreign", None);
    let overlap = later(&nodes, &[entry(cidr(1), "i-1", None), inside], &rules(MINUTE));
    assert_eq!(overlap.steps, [RouteStep::SetCondition { node: "a".into(), routed: true }]);
    assert!(matches!(&overlap.problems[..], [(_, RouteProblem::Overlap { .. })]), "{overlap:?}");

    let supernet = entry("10.1.0.0/16".parse().unwrap(), "i-foreign", None);
    assert!(later(&nodes, &[supernet], &rules(MINUTE)).problems.is_empty());
}

#[test]
fn an_unmarked_entry_for_a_nodes_pod_cidr_is_replaced_if_it_leads_to_another_node_or_nowhere() {
    let nodes = [node("a", "i-1", 1), node("b", "i-7", 2)];
    let with = |unmarked: RouteEntry, presence: Option<InstancePresence>, cluster_cidrs: &[&str]| {
        let instances = presence.map(|presence| ("i-8".to_owned(), presence)).into_iter().collect();
        let evidence = OwnerEvidence { instances, ..OwnerEvidence::default() };
        let cluster_cidrs = cluster_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
        let plan = later(&nodes, &[unmarked], &RouteRules { evidence, cluster_cidrs, ..rules(MINUTE) });
        let deleted = plan.steps.iter().find_map(|step| match step {
            RouteStep::Delete { reason, .. } => Some(*reason),
            _ => None,
        });
        let conflict =
            plan.problems.iter().any(|(node, problem)| node == "a" && matches!(problem, RouteProblem::Conflict { .. }));
        assert_ne!(deleted.is_some(), conflict, "{plan:?}");
        (deleted, plan.unasked.len())
    };
    let (stated, elsewhere) = (["10.0.0.0/8"], entry(cidr(1), "i-8", None));
    assert_eq!(with(entry(cidr(1), "i-7", None), None, &stated), (Some(DeleteReason::LeadsToOtherNode), 0));
    let gone = || Some(InstancePresence::Gone);
    assert_eq!(with(elsewhere.clone(), gone(), &stated), (Some(DeleteReason::InstanceGone), 0));
    assert_eq!(with(elsewhere.clone(), Some(InstancePresence::Exists), &stated), (None, 0));
    assert_eq!(with(elsewhere.clone(), Some(InstancePresence::Unknown("denied".into())), &stated), (None, 0));
    assert_eq!(with(elsewhere.clone(), None, &stated), (None, 1), "the cloud is asked");
    assert_eq!(with(elsewhere.clone(), gone(), &[]), (None, 0), "no cluster CIDRs are stated");
    let description = mark::description(&RouteCluster { id: "c2".into(), ..cluster() }, "a");
    assert_eq!(with(RouteEntry { description, ..elsewhere }, gone(), &stated), (None, 0), "another cluster's");
}

#[test]
fn an_entry_that_the_cloud_removes_for_a_nodes_own_is_no_conflict() {
    let other_mark = mark::description(&RouteCluster { uid: String::new(), ..cluster() }, "x");
    for description in [String::new(), other_mark, mark::description(&cluster(), "x")] {
        let leaving = RouteEntry { status: "Deleting".into(), description, ..entry(cidr(1), "i-old", None) };
        let plan = once(&[node("a", "i-1", 1)], vec![leaving.clone()]);
        assert!(
            plan.pending.contains("a") && plan.problems.is_empty() && plan.steps.is_empty(),
            "{leaving:?}: {plan:?}"
        );
    }
}

#[test]
fn an_entry_of_ours_with_a_stale_instance_is_replaced() {
    let mut nodes = [node("a", "i-new", 1)];
    let mut tables = [table(vec![entry(cidr(1), "i-old", Some("a"))])];
    let mut memory = RouteMemory::default();
    let first = plan(&nodes, &tables, &mut memory, &rules(Duration::ZERO));
    assert!(matches!(&first.steps[..], [RouteStep::Delete { reason: DeleteReason::Replaced, .. }]), "{first:?}");
    apply(&mut nodes, &mut tables, &first.steps[0]);
    let second = plan(&nodes, &tables, &mut memory, &rules(MINUTE));
    assert!(matches!(&second.steps[..], [RouteStep::Create { item, .. }] if item.instance_id == "i-new"));
}

/// As after a restore from a backup in which another node has the CIDR.
#[test]
fn an_entry_of_a_forgotten_node_in_the_place_of_another_one_stays_as_long_as_nothing_proves_that_its_node_is_gone() {
    let (marked, unmarked) = (entry(cidr(1), "i-b", Some("b")), entry(cidr(1), "i-b", None));
    for (entry, seen_before) in [(marked, false), (unmarked, true)] {
        let with = |deleted: &[&str], presence: Option<InstancePresence>| {
            let deleted = deleted.iter().copied().map(Arc::from).collect();
            let instances = presence.map(|presence| ("i-b".to_owned(), presence)).into_iter().collect();
            let rules = RouteRules { evidence: OwnerEvidence { deleted, instances }, ..rules(MINUTE) };
            let (mut memory, tables) = (RouteMemory::default(), [table(vec![entry.clone()])]);
            if seen_before {
                plan(&[node("b", "i-b", 1)], &tables, &mut memory, &rules);
            }
            let mut look =
                |now| plan(&[node("a", "i-a", 1)], &tables, &mut memory, &RouteRules { now, ..rules.clone() });
            assert!(!look(MINUTE).steps.iter().any(RouteStep::deletes), "one sighting removes nothing");
            let plan = look(2 * MINUTE);
            let told = plan.problems.first().map(|(node, problem)| format!("{node}: {problem}")).unwrap_or_default();
            (plan.steps.iter().any(RouteStep::deletes), told, plan.unasked.len())
        };
        let (deleted, told, _) = with(&[], Some(InstancePresence::Exists));
        assert!(!deleted && told.contains("a: route 10.1.1.0/24") && told.contains("node b"), "{told}");
        let (deleted, told, _) = with(&[], Some(InstancePresence::Unknown("denied".into())));
        assert!(!deleted && told.contains("denied"), "{told}");
        let (deleted, _, asked) = with(&[], None);
        assert!(!deleted && asked == 1, "the cloud is asked");
        for (deleted, presence) in [(&[][..], InstancePresence::Gone), (&["b"], InstancePresence::Exists)] {
            assert_eq!(with(deleted, Some(presence)), (true, String::new(), 0));
        }
    }
}

#[test]
fn two_nodes_with_one_cidr_do_not_fight() {
    let nodes = [node("a", "i-1", 1), node("b", "i-2", 1)];
    let nothing = once(&nodes, Vec::new());
    assert!(
        nothing.steps.iter().all(|step| matches!(step, RouteStep::SetCondition { routed: false, .. })),
        "{nothing:?}"
    );
    let held = once(&nodes, vec![entry(cidr(1), "i-1", Some("a"))]);
    assert!(!held.steps.iter().any(|step| matches!(step, RouteStep::Delete { .. } | RouteStep::Create { .. })));
    assert!(matches!(&held.problems[..], [(node, RouteProblem::Shared { .. })] if node == "b"), "{held:?}");
}

#[test]
fn orphans_are_removed_only_with_a_proof_and_a_second_observation() {
    let nodes = [node("a", "i-1", 1)];
    let deleted = |entries: &[RouteEntry]| -> usize {
        let plan = later(&nodes, entries, &rules(MINUTE));
        plan.steps.iter().filter(|step| step.deletes()).count()
    };
    assert_eq!(deleted(&[entry(cidr(2), "i-2", Some("gone"))]), 1);
    assert_eq!(deleted(&[entry(cidr(2), "i-2", None)]), 0, "no mark");
    let mut other = entry(cidr(2), "i-2", None);
    other.description = mark::description(&RouteCluster { id: "c2".into(), ..cluster() }, "gone");
    assert_eq!(deleted(&[other]), 0, "another cluster's");
    assert_eq!(deleted(&[entry("172.16.0.0/24".parse().unwrap(), "i-2", Some("gone"))]), 0, "outside the cluster");
    let mut ecmp = entry(cidr(2), "i-2", Some("gone"));
    ecmp.next_hops.push(("Instance".into(), "i-3".into()));
    assert_eq!(deleted(&[ecmp]), 0, "more than one next hop");
    let mut changing = entry(cidr(2), "i-2", Some("gone"));
    changing.status = "Deleting".into();
    assert_eq!(deleted(&[changing]), 0, "the cloud is at it");
}

#[test]
fn what_was_seen_as_a_nodes_own_goes_with_the_node() {
    let (tables, mut memory) = ([table(vec![entry(cidr(1), "i-1", None)])], RouteMemory::default());
    let (with, without) = ([node("a", "i-1", 1), node("b", "i-2", 2)], [node("b", "i-2", 2)]);
    let mut at = |nodes: &[RouteNode], seconds| plan(nodes, &tables, &mut memory, &rules(Duration::from_secs(seconds)));
    assert!(at(&with, 0).unconfirmed.is_empty());
    assert!(at(&without, 10).unconfirmed[0].node() == "a");
    assert!(at(&without, 25).steps.iter().any(|step| step.deletes()));
}

#[test]
fn unknown_excluded_and_deleted_nodes_keep_their_entries_and_get_no_new_ones() {
    let quiet = RouteNode { gets_routes: false, ..node("a", "i-1", 1) };
    let kept = later(std::slice::from_ref(&quiet), &[entry(cidr(1), "i-1", Some("a"))], &rules(MINUTE));
    assert!(!kept.steps.iter().any(|step| step.deletes()));
    assert_eq!(once(&[quiet], Vec::new()).steps, []);
    let unidentified = RouteNode { instance: None, ..node("a", "i-1", 1) };
    let registering = later(&[unidentified, node("b", "i-2", 2)], &[entry(cidr(1), "i-1", Some("a"))], &rules(MINUTE));
    assert!(!registering.steps.iter().any(|step| step.deletes()), "{registering:?}");
}

#[test]
fn an_empty_node_list_removes_nothing() {
    let broken = later(&[], &[entry(cidr(1), "i-1", Some("a"))], &rules(MINUTE));
    assert_eq!((broken.steps, broken.withheld.len()), (Vec::new(), 1), "held back, not forgotten");
}

#[test]
fn a_node_that_vanished_without_being_deleted_keeps_its_entry_as_long_as_its_instance_lives() {
    let (others, entries) = ([node("b", "i-2", 2)], [entry(cidr(1), "i-1", Some("a"))]);
    let with = |deleted: &[&str], presence: Option<InstancePresence>| {
        let deleted = deleted.iter().copied().map(Arc::from).collect();
        let instances = presence.map(|presence| ("i-1".to_owned(), presence)).into_iter().collect();
        let rules = RouteRules { evidence: OwnerEvidence { deleted, instances }, ..rules(MINUTE) };
        let plan = later(&others, &entries, &rules);
        let removed = plan.steps.iter().any(|step| step.deletes());
        (removed, plan.withheld.first().map(|orphan| orphan.why.clone()), plan.unasked.len())
    };
    let unknown = || InstancePresence::Unknown("denied".into());
    assert_eq!(with(&[], Some(InstancePresence::Exists)), (false, Some(MissingProof::InstanceExists), 0));
    assert_eq!(with(&[], Some(unknown())), (false, Some(MissingProof::InstanceUnknown("denied".into())), 0));
    assert!(with(&[], None) == (false, Some(MissingProof::NotAsked), 1), "nothing goes unasked");
    assert_eq!(with(&[], Some(InstancePresence::Gone)), (true, None, 0));
    assert_eq!(with(&["a"], Some(InstancePresence::Exists)), (true, None, 0), "it was deleted before our eyes");

    let renamed = [node("a", "i-2", 2)];
    let plan = later(&renamed, &entries, &rules(MINUTE));
    assert!(plan.withheld.is_empty(), "a node of that name is there, on another instance: {plan:?}");
}

#[test]
fn a_node_whose_name_begins_with_anothers_proves_nothing_about_that_one() {
    let (others, entries) = ([node("worker-10", "i-2", 2)], [entry(cidr(1), "i-1", Some("worker-1"))]);
    let rules = |deleted: &[&str]| {
        let deleted = deleted.iter().copied().map(Arc::from).collect();
        let instances = [("i-1".to_owned(), InstancePresence::Exists)].into();
        RouteRules { evidence: OwnerEvidence { deleted, instances }, ..rules(MINUTE) }
    };
    let deletes = |plan: &RoutePlan| plan.steps.iter().any(RouteStep::deletes);
    let kept = later(&others, &entries, &rules(&["worker-11"]));
    assert!(!deletes(&kept) && kept.withheld[0].why == MissingProof::InstanceExists, "{kept:?}");
    assert!(deletes(&later(&others, &entries, &rules(&["worker-1"]))), "its own deletion was reported");
}

#[test]
fn entries_of_a_cluster_with_the_same_id_are_left_alone_and_told() {
    let uid = |uid: &str| RouteCluster { uid: uid.into(), ..cluster() };
    let of = |number, maker: RouteCluster, node: &str| RouteEntry {
        description: mark::description(&maker, node),
        ..entry(cidr(number), "i-9", None)
    };
    let with = |presence: InstancePresence, entry: RouteEntry| {
        let (deleted, instances) = (["gone".into()].into(), [("i-9".to_owned(), presence)].into());
        let evidence = OwnerEvidence { deleted, instances };
        later(&[node("a", "i-1", 1)], &[entry], &RouteRules { evidence, ..rules(MINUTE) })
    };
    let deletes = |plan: &RoutePlan| plan.steps.iter().any(RouteStep::deletes);
    let conflicts =
        |plan: &RoutePlan| plan.problems.iter().any(|(_, problem)| matches!(problem, RouteProblem::Conflict { .. }));

    for (number, name) in [(1, "a"), (2, "gone")] {
        let other = with(InstancePresence::Gone, of(number, uid("u2"), name));
        assert!(!deletes(&other) && other.withheld.is_empty() && other.other_clusters.len() == 1, "{other:?}");
        assert_eq!(conflicts(&other), number == 1, "{other:?}");
    }
    // The id alone is as good as no mark, as long as the instance lives.
    let in_the_way = |presence| with(presence, of(1, uid(""), "a"));
    let kept = in_the_way(InstancePresence::Exists);
    assert!(!deletes(&kept) && conflicts(&kept), "{kept:?}");
    assert!(deletes(&in_the_way(InstancePresence::Gone)));
    let orphan = |presence| with(presence, of(2, uid(""), "gone"));
    let kept = orphan(InstancePresence::Exists);
    assert!(!deletes(&kept) && kept.withheld[0].why == MissingProof::OfWhichCluster, "{kept:?}");
    assert!(deletes(&orphan(InstancePresence::Gone)));
}

#[test]
fn without_a_uid_the_id_counts() {
    let unknown = RouteCluster { uid: String::new(), ..cluster() };
    let (nodes, rules) = ([node("a", "i-1", 1)], RouteRules { cluster: unknown.clone(), ..rules(MINUTE) });
    let made = |maker: &RouteCluster| RouteEntry {
        description: mark::description(maker, "a"),
        ..entry(cidr(1), "i-live", None)
    };
    let is_replaced = |maker: &RouteCluster| {
        let plan = plan(&nodes, &[table(vec![made(maker)])], &mut RouteMemory::default(), &rules);
        plan.steps.iter().any(RouteStep::deletes)
    };
    assert!(is_replaced(&unknown));
    assert!(!is_replaced(&cluster()), "it may be another cluster's");
}

#[test]
fn mass_removal_is_withheld() {
    let entries: Vec<_> = (2..10).map(|number| entry(cidr(number), "i-x", Some("gone"))).collect();
    let plan = later(&[node("a", "i-1", 1)], &entries, &RouteRules { removals: 3, ..rules(MINUTE) });
    let removed = plan.steps.iter().filter(|step| step.deletes()).count();
    assert_eq!((removed, plan.over_limit.len()), (3, 5));
}

#[test]
fn a_full_table_is_left_alone_until_it_has_room() {
    let (nodes, mut memory) = ([node("a", "i-1", 1)], RouteMemory::default());
    let full = table(vec![entry("172.16.0.0/24".parse().unwrap(), "i-9", None)]);
    memory.table_is_full(&full, Duration::ZERO);
    let refused = plan(&nodes, std::slice::from_ref(&full), &mut memory, &rules(MINUTE / 2));
    assert!(matches!(&refused.problems[..], [(_, RouteProblem::Full { .. })]), "{refused:?}");
    let freed = plan(&nodes, &[table(Vec::new())], &mut memory, &rules(MINUTE / 2));
    assert!(matches!(&freed.steps[..], [RouteStep::Create { .. }]), "{freed:?}");
}

#[test]
fn a_table_that_a_part_of_a_batch_filled_has_room_once_one_entry_is_gone() {
    let (nodes, mut memory) = ([node("a", "i-1", 1)], RouteMemory::default());
    let others = |count: usize| {
        let destination = |number: usize| format!("172.16.{number}.0/24").parse().unwrap();
        table((0..count).map(|number| entry(destination(number), "i-9", None)).collect())
    };
    memory.table_is_full(&others(1), Duration::ZERO);
    let refused = plan(&nodes, &[others(3)], &mut memory, &rules(Duration::ZERO));
    assert!(matches!(&refused.problems[..], [(_, RouteProblem::Full { entries: 3, .. })]), "{refused:?}");
    let freed = plan(&nodes, &[others(2)], &mut memory, &rules(Duration::ZERO));
    assert!(matches!(&freed.steps[..], [RouteStep::Create { .. }]), "{freed:?}");
}

#[test]
fn outside_the_cluster_nothing_is_made() {
    let mut outside = node("a", "i-1", 1);
    outside.cidrs = vec!["192.168.0.0/24".parse().unwrap()];
    let plan = once(&[outside], Vec::new());
    assert_eq!(plan.steps, [RouteStep::SetCondition { node: "a".into(), routed: false }]);
    assert!(plan.problems[0].1.to_string().contains("10.0.0.0/8"));
}
