//! What is known of the route tables between two reads, and what may be done on that alone.
//!
//! Entries may be created, as the cloud decides again: it refuses a second entry for a CIDR of a table, whichever program created the
//! first. So the worst that a stale cache brings about is a refusal, after which the tables are read. All else needs a
//! read: what is removed must be there and ours now, what a condition says must be true now, and what is reported, or waited
//! for, may have passed. A plan that holds any of that is made again from tables that are read. Nor is anything learned from
//! the cache: what the controller remembers of entries can prove that they are ours, and only follows reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::entry::{RouteEntry, RouteItem};
use super::index::TableEntries;
use super::step::{RoutePlan, RouteStep};

/// The cloud changes entries after it has answered; they are read again after this time.
pub const RECHECK_AFTER: Duration = Duration::from_secs(2);
/// What was read longer ago is not used: a refusal costs more than a read.
const USED_FOR: Duration = Duration::from_secs(300);

/// What was last read, and what was created since. Losing it costs a read.
#[derive(Clone, Debug, Default)]
pub struct RouteTableCache {
    read: Option<(Arc<[TableEntries]>, Duration)>,
    /// Entries that the cloud has accepted, and that no list has shown yet.
    unlisted: Vec<UnlistedEntry>,
}

#[derive(Clone, Debug)]
struct UnlistedEntry {
    item: RouteItem,
    node: String,
    at: Duration,
}

impl RouteTableCache {
    /// The tables were read. Gives them with what was created so shortly before that the list may be late to show it.
    pub fn store(&mut self, mut tables: Vec<TableEntries>, now: Duration) -> Arc<[TableEntries]> {
        let listed = |table: &TableEntries, item: &RouteItem| {
            table.id == item.table_id && table.entries.iter().any(|entry| entry.destination.trunc() == item.destination)
        };
        self.unlisted.retain(|new| new.wait(now).is_some() && !tables.iter().any(|table| listed(table, &new.item)));
        self.unlisted.iter().for_each(|new| new.put_into(&mut tables));
        let tables: Arc<[TableEntries]> = tables.into();
        self.read = Some((tables.clone(), now));
        tables
    }

    /// The tables as last read, with what was created since; `None` if they must be read, because that was too long ago, or
    /// because it is time to see what came of what was created.
    pub fn get(&self, now: Duration) -> Option<Arc<[TableEntries]>> {
        let (tables, _) = self.read.as_ref().filter(|(_, at)| now.saturating_sub(*at) < USED_FOR)?;
        self.unlisted.iter().all(|new| new.wait(now).is_some()).then(|| tables.clone())
    }

    /// Whether a plan that was made from [cached](Self::get) tables may be executed: it creates entries, and nothing else.
    /// What is pending is what was just created, which is read soon.
    pub fn suffices(&self, plan: &RoutePlan) -> bool {
        let RoutePlan { steps, problems, pending, unconfirmed, over_limit, withheld, unasked, other_clusters: _ } =
            plan;
        let new: BTreeSet<&str> = self.unlisted.iter().map(|new| new.node.as_str()).collect();
        steps.iter().all(RouteStep::creates)
            && pending.iter().all(|node| new.contains(node.as_str()))
            && problems.is_empty()
            && (unconfirmed.is_empty() && over_limit.is_empty() && withheld.is_empty() && unasked.is_empty())
    }

    /// The cloud has accepted an entry.
    pub fn add(&mut self, item: &RouteItem, node: &str, now: Duration) {
        let new = UnlistedEntry { item: item.clone(), node: node.to_owned(), at: now };
        if let Some((tables, _)) = &mut self.read {
            new.put_into(Arc::make_mut(tables));
        }
        self.unlisted.push(new);
    }

    /// Nodes with new entries, and how long until these are read.
    pub fn waits(&self, now: Duration) -> BTreeMap<&str, Duration> {
        // What was created first is due first, and the rest is read with it.
        self.unlisted.iter().rev().filter_map(|new| Some((new.node.as_str(), new.wait(now)?))).collect()
    }

    /// What is there is not known any more: something was refused, or removed, or it is not known whether it was created.
    pub fn invalidate(&mut self) {
        self.read = None;
    }
}

impl UnlistedEntry {
    /// How long until it is read; `None` if that is due.
    fn wait(&self, now: Duration) -> Option<Duration> {
        RECHECK_AFTER.checked_sub(now.saturating_sub(self.at)).filter(|wait| !wait.is_zero())
    }

    /// Not usable yet, as long as no list has shown it.
    fn put_into(&self, tables: &mut [TableEntries]) {
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

    fn tables(numbers: &[usize]) -> Vec<TableEntries> {
        let entry = |number: &usize| RouteEntry {
            id: format!("rte-{number}"),
            destination: item(*number).destination,
            next_hops: vec![("Instance".into(), item(*number).instance_id)],
            status: "Available".into(),
            name: String::new(),
            description: String::new(),
        };
        vec![TableEntries { id: "vtb-1".into(), entries: numbers.iter().map(entry).collect() }]
    }

    /// Status by instance.
    fn statuses(tables: &[TableEntries]) -> Vec<(&str, &str)> {
        let entries = tables.iter().flat_map(|table| &table.entries);
        entries.map(|entry| (entry.next_hops[0].1.as_str(), entry.status.as_str())).collect()
    }

    #[test]
    fn tables_are_cached_for_a_while_and_until_something_goes_wrong() {
        let mut cache = RouteTableCache::default();
        assert!(cache.get(at(0)).is_none(), "nothing was read");
        cache.store(tables(&[1]), at(10));
        assert_eq!(cache.get(at(309)).unwrap()[..], tables(&[1]));
        assert!(cache.get(at(310)).is_none(), "too old");
        cache.store(tables(&[1]), at(310));
        cache.invalidate();
        assert!(cache.get(at(310)).is_none());
    }

    #[test]
    fn new_entries_are_cached_and_soon_read() {
        let mut cache = RouteTableCache::default();
        cache.store(tables(&[1]), at(0));
        cache.add(&item(2), "b", at(10));
        assert_eq!(statuses(&cache.get(at(11)).unwrap()), [("i-1", "Available"), ("i-2", "Creating")]);
        assert_eq!(cache.waits(at(11)), [("b", at(1))].into());
        assert!(cache.get(at(12)).is_none(), "it is time to read what came of it");
        assert_eq!(statuses(&cache.store(tables(&[1, 2]), at(12))), [("i-1", "Available"), ("i-2", "Available")]);
        assert!(cache.get(at(60)).is_some());
    }

    #[test]
    fn a_stale_list_does_not_hide_new_entries() {
        let mut cache = RouteTableCache::default();
        cache.store(tables(&[1]), at(0));
        cache.add(&item(2), "b", at(10));
        assert_eq!(statuses(&cache.store(tables(&[1]), at(11))), [("i-1", "Available"), ("i-2", "Creating")]);
        assert!(cache.get(at(12)).is_none(), "it is still to be read");
        assert_eq!(statuses(&cache.store(tables(&[1]), at(12))), [("i-1", "Available")], "it is not there");
        assert!(cache.get(at(60)).is_some());
        cache.invalidate();
        cache.add(&item(3), "c", at(60));
        assert!(cache.get(at(60)).is_none(), "one entry is no table");
    }

    #[test]
    fn only_plans_that_create_entries_and_nothing_else_need_no_read() {
        let mut cache = RouteTableCache::default();
        cache.store(tables(&[]), at(0));
        cache.add(&item(2), "b", at(0));
        let create = RouteStep::Create { item: item(1), node: "a".into() };
        let plan = RoutePlan { steps: vec![create.clone()], pending: ["b".to_owned()].into(), ..RoutePlan::default() };
        assert!(cache.suffices(&plan) && cache.suffices(&RoutePlan::default()));
        let reason = super::super::DeleteReason::Orphaned;
        let delete = RouteStep::Delete { item: item(3), node: "c".into(), reason };
        let tell = RouteStep::SetCondition { node: "a".into(), routed: true };
        let problem = super::super::RouteProblem::Malformed { given: String::new() };
        let orphan =
            super::super::WithheldOrphan { step: delete.clone(), why: super::super::MissingProof::InstanceExists };
        for other in [
            RoutePlan { steps: vec![create.clone(), delete.clone()], ..plan.clone() },
            RoutePlan { steps: vec![create, tell], ..plan.clone() },
            RoutePlan { problems: vec![("a".into(), problem)], ..plan.clone() },
            RoutePlan { pending: ["c".to_owned()].into(), ..plan.clone() },
            RoutePlan { unconfirmed: vec![delete.clone()], ..plan.clone() },
            RoutePlan { over_limit: vec![delete], ..plan.clone() },
            RoutePlan { withheld: vec![orphan], ..plan.clone() },
            RoutePlan { unasked: ["i-3".to_owned()].into(), ..plan.clone() },
        ] {
            assert!(!cache.suffices(&other), "{other:?}");
        }
    }
}
