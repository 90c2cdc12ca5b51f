//! What is known of the route tables between two looks at them, and what may be done on that alone.
//!
//! Entries may be made, as the cloud decides again: it refuses a second entry for a CIDR of a table, whoever made the
//! first. So the worst that an old picture brings about is a refusal, after which the tables are read. All else needs a
//! look: what is removed must be there and ours now, what a node is told must be true now, and what is reported, or waited
//! for, may have passed. A plan that holds any of that is made again from tables that are read. Nor is anything learned from
//! an old picture: what this process remembers of entries can prove that they are ours, and only follows looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::entry::{RouteEntry, RouteItem};
use super::{RoutePlan, RouteStep, Table};

/// The cloud changes entries after it has answered; they are looked at again after this time.
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// What was read longer ago is not relied on: nobody should have to wait for a refusal of what could be known.
const RELIED_ON_FOR: Duration = Duration::from_secs(300);

/// The last look, and what was made since. Losing it costs a look.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    read: Option<Read>,
    /// Entries that the cloud has accepted, and that no list has shown yet.
    made: Vec<Made>,
}

#[derive(Clone, Debug)]
struct Read {
    tables: Arc<[Table]>,
    at: Duration,
}

#[derive(Clone, Debug)]
struct Made {
    item: RouteItem,
    node: String,
    at: Duration,
}

impl Sight {
    /// The tables were read. Gives them with what was made so shortly before that the list may be late to show it.
    pub fn look(&mut self, mut tables: Vec<Table>, now: Duration) -> Arc<[Table]> {
        let listed: BTreeSet<(&str, IpNet)> = tables.iter().flat_map(shown).collect();
        self.made.retain(|made| made.wait(now).is_some() && !listed.contains(&made.key()));
        self.made.iter().for_each(|made| made.put_into(&mut tables));
        let tables: Arc<[Table]> = tables.into();
        self.read = Some(Read { tables: tables.clone(), at: now });
        tables
    }

    /// The tables as last read, with what was made since; `None` if they must be read, because that was too long ago, or
    /// because it is time to see what came of what was made.
    #[must_use]
    pub fn recall(&self, now: Duration) -> Option<Arc<[Table]>> {
        let read = self.read.as_ref().filter(|read| now.saturating_sub(read.at) < RELIED_ON_FOR)?;
        self.made.iter().all(|made| made.wait(now).is_some()).then(|| read.tables.clone())
    }

    /// Whether a plan that was made from [recalled](Self::recall) tables may be carried out: it makes entries, and nothing
    /// else. What is waited for is what was made, which is looked at soon.
    #[must_use]
    pub fn suffices(&self, plan: &RoutePlan) -> bool {
        let RoutePlan { steps, problems, pending, doomed, held_back, kept } = plan;
        let new: BTreeSet<&str> = self.made.iter().map(|made| made.node.as_str()).collect();
        steps.iter().all(|step| matches!(step, RouteStep::Create { .. }))
            && pending.iter().all(|node| new.contains(node.as_str()))
            && problems.is_empty()
            && doomed.is_empty()
            && held_back.is_empty()
            && kept.is_empty()
    }

    /// The cloud has accepted an entry.
    pub fn made(&mut self, item: &RouteItem, node: &str, now: Duration) {
        let made = Made { item: item.clone(), node: node.to_owned(), at: now };
        if let Some(read) = &mut self.read {
            made.put_into(Arc::make_mut(&mut read.tables));
        }
        self.made.push(made);
    }

    /// Nodes with new entries, and how long until these are looked at.
    #[must_use]
    pub fn waits(&self, now: Duration) -> BTreeMap<&str, Duration> {
        // What was made first is looked at first, and the rest with it.
        self.made.iter().rev().filter_map(|made| Some((made.node.as_str(), made.wait(now)?))).collect()
    }

    /// What is there is not known any more: something was refused, or removed, or it is not known whether it was made.
    pub fn forget(&mut self) {
        self.read = None;
    }
}

impl Made {
    /// How long until it is looked at; `None` if that is due.
    fn wait(&self, now: Duration) -> Option<Duration> {
        LOOK_AGAIN.checked_sub(now.saturating_sub(self.at)).filter(|wait| !wait.is_zero())
    }

    fn key(&self) -> (&str, IpNet) {
        (&self.item.table_id, self.item.destination)
    }

    /// Not usable yet, as long as no list has shown it.
    fn put_into(&self, tables: &mut [Table]) {
        let RouteItem { table_id, destination, instance_id, name, description } = self.item.clone();
        if let Some(table) = tables.iter_mut().find(|table| table.id == table_id) {
            table.entries.push(RouteEntry {
                id: String::new(),
                destination,
                next_hops: vec![("Instance".to_owned(), instance_id)],
                status: "Creating".to_owned(),
                name,
                description,
            });
        }
    }
}

/// For what a table has entries.
fn shown(table: &Table) -> impl Iterator<Item = (&str, IpNet)> {
    table.entries.iter().map(|entry| (table.id.as_str(), entry.destination.trunc()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn item(number: usize) -> RouteItem {
        RouteItem {
            table_id: "vtb-1".into(),
            destination: format!("10.1.{number}.0/24").parse().unwrap(),
            instance_id: format!("i-{number}"),
            name: String::new(),
            description: String::new(),
        }
    }

    fn tables(numbers: &[usize]) -> Vec<Table> {
        let entry = |number: &usize| RouteEntry {
            id: format!("rte-{number}"),
            destination: item(*number).destination,
            next_hops: vec![("Instance".into(), item(*number).instance_id)],
            status: "Available".into(),
            name: String::new(),
            description: String::new(),
        };
        vec![Table { id: "vtb-1".into(), entries: numbers.iter().map(entry).collect() }]
    }

    /// Status by instance.
    fn statuses(tables: &[Table]) -> Vec<(&str, &str)> {
        let entries = tables.iter().flat_map(|table| &table.entries);
        entries.map(|entry| (entry.next_hops[0].1.as_str(), entry.status.as_str())).collect()
    }

    #[test]
    fn what_was_read_is_relied_on_for_a_while_and_until_something_goes_wrong() {
        let mut sight = Sight::default();
        assert!(sight.recall(at(0)).is_none(), "nothing was read");
        sight.look(tables(&[1]), at(10));
        assert_eq!(sight.recall(at(309)).unwrap()[..], tables(&[1]));
        assert!(sight.recall(at(310)).is_none(), "too old");
        sight.look(tables(&[1]), at(310));
        sight.forget();
        assert!(sight.recall(at(310)).is_none());
    }

    #[test]
    fn what_was_made_is_known_at_once_and_looked_at_soon() {
        let mut sight = Sight::default();
        sight.look(tables(&[1]), at(0));
        sight.made(&item(2), "b", at(10));
        assert_eq!(statuses(&sight.recall(at(11)).unwrap()), [("i-1", "Available"), ("i-2", "Creating")]);
        assert_eq!(sight.waits(at(11)), [("b", at(1))].into());
        assert!(sight.recall(at(12)).is_none(), "it is time to see what came of it");
        assert_eq!(statuses(&sight.look(tables(&[1, 2]), at(12))), [("i-1", "Available"), ("i-2", "Available")]);
        assert!(sight.recall(at(60)).is_some());
    }

    #[test]
    fn a_list_that_is_late_does_not_hide_what_was_just_made() {
        let mut sight = Sight::default();
        sight.look(tables(&[1]), at(0));
        sight.made(&item(2), "b", at(10));
        assert_eq!(statuses(&sight.look(tables(&[1]), at(11))), [("i-1", "Available"), ("i-2", "Creating")]);
        assert!(sight.recall(at(12)).is_none(), "it is still to be looked at");
        assert_eq!(statuses(&sight.look(tables(&[1]), at(12))), [("i-1", "Available")], "it is not there");
        assert!(sight.recall(at(60)).is_some());
        sight.forget();
        sight.made(&item(3), "c", at(60));
        assert!(sight.recall(at(60)).is_none(), "one entry is no picture");
    }

    #[test]
    fn only_plans_that_make_entries_and_nothing_else_go_without_a_look() {
        let mut sight = Sight::default();
        sight.look(tables(&[]), at(0));
        sight.made(&item(2), "b", at(0));
        let create = RouteStep::Create { item: item(1), node: "a".into() };
        let plan = RoutePlan { steps: vec![create.clone()], pending: ["b".to_owned()].into(), ..RoutePlan::default() };
        assert!(sight.suffices(&plan) && sight.suffices(&RoutePlan::default()));
        let reason = super::super::DeleteReason::Orphaned;
        let delete = RouteStep::Delete { item: item(3), node: "c".into(), reason };
        let tell = RouteStep::Tell { node: "a".into(), routed: true };
        let problem = super::super::RouteProblem::Malformed { given: String::new() };
        let kept = super::super::Kept { step: delete.clone(), why: super::super::owners::Keep::Lives };
        for other in [
            RoutePlan { steps: vec![create.clone(), delete.clone()], ..plan.clone() },
            RoutePlan { steps: vec![create, tell], ..plan.clone() },
            RoutePlan { problems: vec![("a".into(), problem)], ..plan.clone() },
            RoutePlan { pending: ["c".to_owned()].into(), ..plan.clone() },
            RoutePlan { doomed: ["c".to_owned()].into(), ..plan.clone() },
            RoutePlan { held_back: vec![delete], ..plan.clone() },
            RoutePlan { kept: vec![kept], ..plan.clone() },
        ] {
            assert!(!sight.suffices(&other), "{other:?}");
        }
    }
}
