//! What holds for whatever nodes and entries there are, and whatever happens to them.

use proptest::prelude::*;

use super::*;

/// Nodes with few names, instances and CIDRs, so that they collide.
fn some_nodes() -> impl Strategy<Value = Vec<RouteNode>> {
    prop::collection::btree_map(0..6_usize, (0..6_usize, 0..6_usize, any::<bool>(), any::<bool>(), any::<bool>()), 0..6)
        .prop_map(|nodes| {
            type Seed = (usize, (usize, usize, bool, bool, bool));
            let make = |(name, (instance, number, known, silent, excluded)): Seed| {
                let made: RouteNode = node(&format!("n{name}"), &format!("i-{instance}"), number);
                let instance = made.instance.clone().filter(|_| known);
                RouteNode {
                    instance,
                    gets_routes: !silent && !excluded && known,
                    is_replaced: false,
                    gets_condition: !excluded && known,
                    ..made
                }
            };
            nodes.into_iter().map(make).collect()
        })
}

fn some_entries() -> impl Strategy<Value = Vec<RouteEntry>> {
    prop::collection::btree_map(0..8_usize, (0..6_usize, prop::option::of(0..6_usize)), 0..8).prop_map(|entries| {
        let make = |(number, (instance, maker)): (usize, (usize, Option<usize>))| {
            entry(cidr(number), &format!("i-{instance}"), maker.map(|maker| format!("n{maker}")).as_deref())
        };
        entries.into_iter().map(make).collect()
    })
}

proptest! {
    /// From any state, killed after any step with all memory lost: the rest follows, then there is nothing to do.
    #[test]
    fn plans_converge_and_touch_nothing_foreign(
        nodes in some_nodes(),
        entries in some_entries(),
        custom in some_entries(),
        killed_after in 0_usize..8,
    ) {
        let mut nodes = nodes;
        let mut tables = [table(entries.clone()), TableEntries { id: "vtb-2".into(), entries: custom.clone() }];
        let foreign = |table: &[RouteEntry], nodes: &[RouteNode]| -> Vec<RouteEntry> {
            let right = |entry: &RouteEntry| nodes.iter().any(|n| entry.instance().is_some_and(|id| n.has(&entry.destination, id)));
            let in_place = |entry: &RouteEntry| nodes.iter().any(|n| n.gets_routes && n.cidrs.contains(&entry.destination));
            let unmarked = |entry: &RouteEntry| entry.description.is_empty() && !in_place(entry);
            table.iter().filter(|entry| unmarked(entry) || right(entry)).cloned().collect()
        };
        let untouchable = [foreign(&entries, &nodes), foreign(&custom, &nodes)];

        let mut memory = RouteMemory::default();
        let first = plan(&nodes, &tables, &mut memory, &rules(Duration::ZERO));
        for step in first.steps.iter().take(killed_after) { apply(&mut nodes, &mut tables, step); }
        let mut memory = RouteMemory::default();
        for round in 1..8 {
            for step in plan(&nodes, &tables, &mut memory, &rules(MINUTE * round)).steps {
                apply(&mut nodes, &mut tables, &step);
            }
        }
        let last = plan(&nodes, &tables, &mut memory, &rules(MINUTE * 9));
        prop_assert_eq!(&last.steps, &vec![]);
        for (table, untouchable) in tables.iter().zip(&untouchable) {
            prop_assert!(untouchable.iter().all(|entry| table.entries.contains(entry)), "{table:?}");
            for node in nodes.iter().filter(|node| node.gets_routes) {
                let routed = table.entries.iter().any(|e| e.instance().is_some_and(|id| node.has(&e.destination, id)));
                prop_assert!(routed || last.problems.iter().any(|(name, _)| *name == node.name), "{node:?} {table:?}");
            }
        }
    }
}

/// What happens between passes and in them.
#[derive(Clone, Copy, Debug)]
enum Event {
    Seconds(u64),
    /// A pass over some nodes, or over everything.
    Pass,
    Sweep,
    Joins(usize, usize),
    Leaves(usize),
    /// Others make or remove the entry with this CIDR.
    TheyMake(usize, usize),
    TheyRemove(usize),
    /// The next list lacks entries that are younger than this.
    ListIsLate(u64),
}

fn some_event() -> impl Strategy<Value = Event> {
    let small = 0..5_usize;
    prop_oneof![
        4 => (0..3_u64).prop_map(Event::Seconds),
        1 => (100..400_u64).prop_map(Event::Seconds),
        6 => Just(Event::Pass),
        1 => Just(Event::Sweep),
        3 => (small.clone(), small.clone()).prop_map(|(node, instance)| Event::Joins(node, instance)),
        1 => small.clone().prop_map(Event::Leaves),
        1 => (small.clone(), small.clone()).prop_map(|(number, instance)| Event::TheyMake(number, instance)),
        1 => small.prop_map(Event::TheyRemove),
        1 => (0..3_u64).prop_map(Event::ListIsLate),
    ]
}

/// A route table as the cloud keeps it, and a controller that relies on what it knows where it may.
struct Driven {
    nodes: Vec<RouteNode>,
    /// Entries, and when they were made.
    entries: Vec<(RouteEntry, Duration)>,
    late: Duration,
    cache: table_cache::RouteTableCache,
    memory: RouteMemory,
    now: Duration,
    /// Entries that were made and that no list has shown since, and when.
    unseen: Vec<(IpNet, Duration)>,
    looks: usize,
}

impl Driven {
    fn new() -> Self {
        let (nodes, entries, unseen) = (Vec::new(), Vec::new(), Vec::new());
        let (cache, memory) = (table_cache::RouteTableCache::default(), RouteMemory::default());
        Self { nodes, entries, late: Duration::ZERO, cache, memory, now: Duration::ZERO, unseen, looks: 0 }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Seconds(seconds) => self.now += Duration::from_secs(seconds),
            Event::Pass => self.pass(false),
            Event::Sweep => self.pass(true),
            Event::Joins(number, instance) => {
                self.nodes.retain(|known| known.name != format!("n{number}"));
                self.nodes.push(node(&format!("n{number}"), &format!("i-{instance}"), number));
            }
            Event::Leaves(number) => self.nodes.retain(|known| known.name != format!("n{number}")),
            Event::TheyMake(number, instance) => {
                let made = entry(cidr(number), &format!("i-{instance}"), None);
                if !self.holds(&made.destination) {
                    self.entries.push((made, self.now));
                }
            }
            Event::TheyRemove(number) => self.entries.retain(|(entry, _)| entry.destination != cidr(number)),
            Event::ListIsLate(seconds) => self.late = Duration::from_secs(seconds),
        }
    }

    fn holds(&self, destination: &IpNet) -> bool {
        self.entries.iter().any(|(entry, _)| entry.destination == *destination)
    }

    fn list(&mut self) -> Vec<TableEntries> {
        let late = std::mem::take(&mut self.late);
        let shown = self.entries.iter().filter(|(_, made)| late.is_zero() || self.now.saturating_sub(*made) >= late);
        vec![table(shown.map(|(entry, _)| entry.clone()).collect())]
    }

    fn pass(&mut self, everything: bool) {
        let recalled = self.cache.get(self.now).filter(|_| !everything);
        let plan_of =
            |tables: &[TableEntries], memory: &mut RouteMemory| plan(&self.nodes, tables, memory, &rules(self.now));
        let known = recalled.map(|tables| plan_of(&tables, &mut self.memory.clone()));
        let known = known.filter(|plan| self.cache.suffices(plan));
        let due = self.unseen.iter().any(|(_, made)| self.now.saturating_sub(*made) >= table_cache::RECHECK_AFTER);
        assert!(known.is_none() || !due, "what was made is looked at");
        let (plan, looked) = match known {
            Some(plan) => (plan, None),
            None => {
                let (now, list) = (self.now, self.list());
                let shown = |cidr: &IpNet| list[0].entries.iter().any(|entry| entry.destination == *cidr);
                let late = |(cidr, made): &(IpNet, Duration)| {
                    !shown(cidr) && now.saturating_sub(*made) < table_cache::RECHECK_AFTER
                };
                self.unseen.retain(late);
                self.looks += 1;
                let tables = self.cache.store(list.clone(), now);
                (plan(&self.nodes, &tables, &mut self.memory, &rules(now)), Some(list))
            }
        };
        for step in plan.steps {
            match (step, &looked) {
                (RouteStep::Create { item, .. }, _) if self.holds(&item.destination) => self.cache.invalidate(),
                (RouteStep::Create { item, node }, _) => {
                    let made = entry(item.destination, &item.instance_id, None);
                    self.entries.push((RouteEntry { description: item.description.clone(), ..made }, self.now));
                    self.cache.add(&item, &node, self.now);
                    self.unseen.push((item.destination, self.now));
                }
                (RouteStep::Delete { item, .. }, Some(list)) => {
                    let is = |entry: &RouteEntry| {
                        entry.destination == item.destination && entry.instance() == Some(&item.instance_id)
                    };
                    assert!(list[0].entries.iter().any(is), "it was there a moment ago");
                    self.cache.invalidate();
                    self.entries.retain(|(entry, _)| !is(entry));
                }
                (RouteStep::SetCondition { node, routed }, Some(list)) => {
                    let node = self.nodes.iter_mut().find(|known| known.name == node).unwrap();
                    let has = |entry: &RouteEntry| entry.instance().is_some_and(|id| node.has(&entry.destination, id));
                    assert!(!routed || list[0].entries.iter().any(has), "it was there a moment ago");
                    let status = if routed { ConditionStatus::False } else { ConditionStatus::True };
                    node.condition = Some(Condition { status, reason: "RouteCreated".into(), since: None });
                }
                (step, None) => panic!("{step} without a look"),
            }
        }
    }
}

#[test]
fn one_look_follows_each_batch_of_new_nodes_and_none_precedes_it() {
    let mut driven = Driven::new();
    driven.happens(Event::Sweep);
    for (number, looks) in [(0, 2), (1, 3)] {
        driven.happens(Event::Joins(number, number));
        // The node itself changes meanwhile.
        for event in [Event::Pass, Event::Pass, Event::Seconds(1), Event::Pass, Event::Seconds(1), Event::Pass] {
            driven.happens(event);
        }
        assert_eq!(driven.looks, looks);
        assert!(driven.nodes.iter().all(|node| node.condition.is_some()), "every node has its condition");
    }
}

proptest! {
    /// Whatever others do while it relies on what it knows: nothing is removed or told without a look, and what comes of it
    /// is what a controller that always looks ends with.
    #[test]
    fn what_is_known_only_saves_looks(events in prop::collection::vec(some_event(), 1..60)) {
        let mut driven = Driven::new();
        let mut foreign: Vec<IpNet> = Vec::new();
        for event in events {
            // What leads to the right instance is taken for the node's own, so only the others' is followed.
            if let Event::TheyMake(number, _) = event && !driven.holds(&cidr(number)) {
                driven.happens(Event::TheyMake(number, 99));
                foreign.push(cidr(number));
                continue;
            }
            if let Event::TheyRemove(number) = event {
                foreign.retain(|theirs| *theirs != cidr(number));
            }
            driven.happens(event);
            for theirs in &foreign {
                let left = |(entry, _): &(RouteEntry, Duration)| {
                    entry.destination == *theirs && entry.instance() == Some("i-99")
                };
                prop_assert!(driven.entries.iter().any(left), "{theirs} is not ours");
            }
        }
        for _ in 0..8 {
            driven.happens(Event::Seconds(60));
            driven.happens(Event::Sweep);
        }
        let tables = [table(driven.entries.iter().map(|(entry, _)| entry.clone()).collect())];
        let last = plan(&driven.nodes, &tables, &mut driven.memory, &rules(driven.now));
        prop_assert_eq!(last.steps, vec![]);
        for node in &driven.nodes {
            let routed = tables[0].entries.iter().any(|e| e.instance().is_some_and(|id| node.has(&e.destination, id)));
            prop_assert!(routed || last.problems.iter().any(|(name, _)| *name == node.name), "{node:?} {tables:?}");
        }
    }
}
