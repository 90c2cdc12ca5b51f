//! Backends whose nodes stop being ready many at once, on load balancers of either product.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use litemap::LiteMap;
use proptest::prelude::*;

use super::{Cloud, bring, desired, diff, world};
use crate::plan::clb::tests::{self as classic, ENI, World, edited, node, pod};
use crate::plan::inputs::{ConditionStatus, NodeView, Taint};
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::node::{SHUTDOWN, is_ready};

const SECOND_SIGHTING: u64 = 30;
const WINDOW: u64 = 60;

fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: "NoSchedule".to_owned(), added: None }
}

/// A Service on both kinds of load balancers, which follow it.
struct Both {
    world: World,
    network: Cloud,
    classic: classic::Cloud,
}

impl Both {
    /// With so many nodes.
    fn new(nodes: usize, mut world: World) -> Self {
        world.nodes = (1..=nodes).map(|n| node(&format!("n{n:02}"), &format!("i-{n:02}"))).collect();
        let mut both = Self { world, network: Cloud::default(), classic: classic::Cloud::default() };
        both.look();
        both
    }

    fn look_at(&mut self, seconds: u64) -> BTreeSet<String> {
        self.world.now = Duration::from_secs(seconds);
        self.look()
    }

    /// Reconciles both. Returns the backends that are then there, the same in both.
    fn look(&mut self) -> BTreeSet<String> {
        bring(&self.world, &mut self.network);
        self.world.bring(&mut self.classic);
        self.world.unready = desired(&self.world).unready;
        let members = |groups: &LiteMap<String, ObservedGroup>| -> BTreeSet<String> {
            let all = groups.values().flat_map(ObservedGroup::members);
            all.map(|backend| backend.key.server_id.to_string()).collect()
        };
        let there = members(&self.network.observed.groups);
        assert_eq!(there, members(&self.classic.observed.groups));
        there
    }

    fn set(&mut self, index: usize, status: ConditionStatus) {
        let node = &mut self.world.nodes[index];
        *node = edited(node, |it| it.ready.as_mut().unwrap().status = status);
    }

    fn lose(&mut self, indexes: impl IntoIterator<Item = usize>) {
        indexes.into_iter().for_each(|index| self.set(index, ConditionStatus::Unknown));
    }
}

#[test]
fn most_nodes_that_become_unready_at_once_are_removed_at_a_second_sighting() {
    let mut both = Both::new(10, world(&[]));
    both.lose(0..6);
    assert_eq!(both.look_at(100).len(), 10);
    let plan = diff(&desired(&both.world), &both.network.observed);
    assert!(plan.withholds_backends && plan.notes[0].contains("seen unready only once"), "{plan}");
    assert_eq!(both.look_at(100 + SECOND_SIGHTING - 1).len(), 10);
    assert_eq!(both.world.unready.next_sighting(both.world.now), Some(Duration::from_secs(1)));
    assert_eq!(both.look_at(100 + SECOND_SIGHTING).len(), 4);
    assert_eq!(both.world.unready.next_sighting(both.world.now), None);
}

#[test]
fn half_of_the_nodes_leave_at_once_and_so_do_more_over_time() {
    let mut both = Both::new(10, world(&[]));
    both.lose(0..5);
    assert_eq!(both.look_at(100).len(), 5);
    both.lose(5..6);
    assert_eq!(both.look_at(101).len(), 5, "the sixth of ten within a minute");
    assert_eq!(both.look_at(101 + SECOND_SIGHTING).len(), 4);
    both.lose(6..8);
    assert_eq!(both.look_at(101 + WINDOW).len(), 2, "two of four, and the others went long ago");
}

#[test]
fn after_a_blackout_all_that_is_not_ready_yet_is_seen_for_the_first_time() {
    let mut both = Both::new(4, world(&[]));
    both.lose(0..4);
    assert_eq!(both.look_at(100).len(), 4);
    both.set(0, ConditionStatus::True);
    assert_eq!(both.look_at(1000).len(), 4);
    both.set(1, ConditionStatus::True);
    assert_eq!(both.look_at(1000 + SECOND_SIGHTING).len(), 2);
}

#[test]
fn what_leaves_on_purpose_is_not_waited_for() {
    let mut both = Both::new(10, world(&[]));
    both.lose(0..10);
    both.set(9, ConditionStatus::True);
    let change = |both: &mut Both, index: usize, edit: fn(&mut NodeView)| {
        both.world.nodes[index] = edited(&both.world.nodes[index], edit);
    };
    change(&mut both, 1, |it| {
        it.labels.insert("node.kubernetes.io/exclude-from-external-load-balancers".into(), "".into());
    });
    change(&mut both, 2, |it| it.taints.push(taint("ToBeDeletedByClusterAutoscaler")));
    change(&mut both, 3, |it| it.taints.push(taint(SHUTDOWN)));
    change(&mut both, 4, |it| it.unschedulable = true);
    both.world.nodes.remove(0);
    let stay = |from: usize| (from..=10).map(|n| format!("i-{n:02}")).collect::<BTreeSet<_>>();
    assert_eq!(both.look_at(100), stay(5), "a cordon does not count here");
    both.world = both.world.clone().with(&[super::ZONES, ("remove-unscheduled-backend", "on")]);
    assert_eq!(both.look_at(101), stay(6));
}

#[test]
fn nothing_unready_is_added() {
    let mut both = Both::new(3, world(&[]));
    both.lose(0..2);
    (both.network, both.classic) = (Cloud::default(), classic::Cloud::default());
    assert_eq!(both.look_at(100).len(), 1);
    let plan = diff(&desired(&both.world), &both.network.observed);
    assert!(
        !plan.withholds_backends && plan.notes.is_empty(),
        "nothing is withheld where nothing is to remove: {plan}"
    );
}

#[test]
fn pods_that_become_unready_with_their_nodes_stay_as_long_as_these() {
    for annotations in [vec![], vec![ENI]] {
        let mut before = world(&annotations);
        before.service.local_traffic = true;
        before.endpoints.endpoints = (1..=7).map(|n| pod(&format!("192.168.64.{n}"), &format!("n{n:02}"))).collect();
        before.enis = (1..=7).map(|n| (format!("192.168.64.{n}").parse().unwrap(), format!("eni-{n}"))).collect();
        let mut both = Both::new(8, before);
        both.lose(0..6);
        for endpoint in &mut both.world.endpoints.endpoints[0..6] {
            (endpoint.ready, endpoint.serving) = (false, false);
        }
        assert_eq!(both.look_at(100).len(), 7, "{annotations:?}");
        both.world.endpoints.endpoints[0].terminating = true;
        both.world.endpoints.endpoints.remove(1);
        assert_eq!(both.look_at(101).len(), 5, "{annotations:?}: what moves leaves at once");
        assert_eq!(both.look_at(100 + SECOND_SIGHTING).len(), 1, "{annotations:?}");
        both.world.endpoints.endpoints[5].ready = false;
        assert_eq!(both.look_at(200).len(), 0, "{annotations:?}: its node is ready");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Ready(usize),
    Unready(usize),
    Gone(usize),
    Seconds(u64),
}

fn some_event() -> impl Strategy<Value = Event> {
    let index = || 0..9_usize;
    prop_oneof![
        2 => index().prop_map(Event::Ready),
        4 => index().prop_map(Event::Unready),
        1 => index().prop_map(Event::Gone),
        2 => (0..40_u64).prop_map(Event::Seconds),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_unready_backend_goes_at_its_second_sighting_or_among_a_minority(
        events in prop::collection::vec(some_event(), 1..40)
    ) {
        let mut both = Both::new(8, world(&[]));
        let mut now = 0;
        let mut first_seen: BTreeMap<String, u64> = BTreeMap::new();
        for event in events {
            let before = both.look();
            match event {
                Event::Seconds(seconds) => now += seconds,
                Event::Ready(index) | Event::Unready(index) | Event::Gone(index) if index >= both.world.nodes.len() => {}
                Event::Ready(index) => both.set(index, ConditionStatus::True),
                Event::Unready(index) => both.lose([index]),
                Event::Gone(index) => drop(both.world.nodes.remove(index)),
            }
            let there = both.look_at(now);
            let instance = |name: &str| name.replace('n', "i-");
            let of_ready: BTreeSet<bool> = both.world.nodes.iter().map(|it| is_ready(it)).collect();
            if !of_ready.contains(&true) {
                prop_assert!(there.is_superset(&before), "nothing is removed in a blackout");
                first_seen.clear();
                continue;
            }
            let (mut ready, mut lately) = (0, 0);
            first_seen.retain(|name, _| both.world.nodes.iter().any(|it| it.name == *name && !is_ready(it)));
            for node in &both.world.nodes {
                if is_ready(node) {
                    ready += 1;
                    prop_assert!(there.contains(&instance(&node.name)), "{} is ready", node.name);
                } else if now - *first_seen.entry(node.name.clone()).or_insert(now) < WINDOW {
                    lately += 1;
                }
            }
            for node in both.world.nodes.iter().filter(|it| !is_ready(it)) {
                let is_first = now - first_seen[&node.name] < SECOND_SIGHTING;
                let stays = before.contains(&instance(&node.name)) && is_first && lately > ready;
                prop_assert_eq!(there.contains(&instance(&node.name)), stays, "{} at {}", &node.name, now);
            }
            let known: BTreeSet<String> = both.world.nodes.iter().map(|it| instance(&it.name)).collect();
            prop_assert!(there.is_subset(&known), "nodes that are gone are no backends");
        }
    }
}
