//! What changes the records of a zone to those that are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::desire::WantedRecords;
use super::{RecordContent, RecordType, ZoneRecord, mark};
use crate::plan::inputs::ObjectKey;
use crate::plan::{LineKind, PlanLine};

/// Time between the two sightings that removals need when many are due at once.
pub const CONFIRM: Duration = Duration::from_secs(30);
/// One of so many own records may vanish at once, and this many in a small zone.
const SHARE: usize = 4;
const FEW: usize = 2;

/// What is written, and by which remark it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRules {
    /// That of this cluster, see [`mark::remark`].
    pub remark: String,
    /// Seconds.
    pub ttl: u32,
    /// Name of the zone.
    pub zone: String,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordStep {
    /// A new record.
    Add(RecordContent),
    /// A record of ours is to say something else, or live for another time.
    Update {
        /// The record.
        id: String,
        /// What it said.
        before: String,
        /// What it says then.
        after: RecordContent,
    },
    /// A record of ours is not wanted any more.
    Delete {
        /// The record.
        id: String,
        /// What it says.
        content: RecordContent,
    },
}

impl RecordStep {
    /// What the record says then, or said.
    pub const fn content(&self) -> &RecordContent {
        match self {
            Self::Add(content) | Self::Update { after: content, .. } | Self::Delete { content, .. } => content,
        }
    }

    /// The Service or node that it is for, which may not exist any more.
    pub fn owner(&self) -> ObjectKey {
        self.content().owner()
    }

    fn line(&self) -> PlanLine {
        let destroys = matches!(self, Self::Delete { .. });
        PlanLine { destroys, ..PlanLine::new("pvtz", &self.owner(), LineKind::Step, self) }
    }
}

impl fmt::Display for RecordStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(content) => write!(f, "add record {content}"),
            Self::Update { before, after, .. } => write!(f, "update record {after}, before: {before}"),
            Self::Delete { content, .. } => write!(f, "delete record {content}"),
        }
    }
}

/// When records of ours were first seen that are not wanted. Losing it delays removals.
pub type Sightings = BTreeMap<String, Duration>;

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPlan {
    /// In order.
    pub steps: Vec<RecordStep>,
    /// Removals that wait for a second sighting, because many are due.
    pub withheld: Vec<RecordStep>,
    /// Names that records of others take, by Service or node.
    pub conflicts: BTreeMap<ObjectKey, String>,
}

impl RecordPlan {
    /// Whether nothing is to be written, now or later.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.withheld.is_empty()
    }

    /// What people read of it.
    pub fn lines(&self) -> Vec<PlanLine> {
        let withheld = self.withheld.iter().map(|step| {
            let line = step.line();
            PlanLine { text: format!("{}, after a second sighting", line.text), kind: LineKind::Withheld, ..line }
        });
        let conflicts =
            self.conflicts.iter().map(|(owner, text)| PlanLine::new("pvtz", owner, LineKind::Problem, text));
        self.steps.iter().map(RecordStep::line).chain(withheld).chain(conflicts).collect()
    }
}

/// The records of a zone by name.
#[derive(Default)]
struct RecordsOfName<'a> {
    ours: BTreeMap<RecordContent, &'a ZoneRecord>,
    /// Ours that say what another one of ours says.
    doubled: Vec<(RecordContent, &'a ZoneRecord)>,
    others: Vec<&'a ZoneRecord>,
}

/// Compares. `sighted` is of earlier comparisons, and `now` the time since some moment before them.
pub fn diff(
    wanted: &WantedRecords,
    observed: &[ZoneRecord],
    rules: &RecordRules,
    sighted: &mut Sightings,
    now: Duration,
) -> RecordPlan {
    let names = by_name(observed, rules);
    let mut by_wanted: BTreeMap<&str, Vec<&RecordContent>> =
        names.keys().map(|name| (name.as_str(), Vec::new())).collect();
    for record in &wanted.records {
        by_wanted.entry(&record.name).or_default().push(record);
    }
    let (mut plan, mut phases) = (RecordPlan::default(), Phases::default());
    let none = RecordsOfName::default();
    for (name, records) in by_wanted {
        let found = names.get(name).unwrap_or(&none);
        plan.conflicts.extend(phases.plan_name(&records, found, rules, wanted));
    }
    let owned = observed.iter().filter(|record| record.remark == rules.remark).count();
    phases.into_plan(plan, owned, sighted, now)
}

fn by_name<'a>(observed: &'a [ZoneRecord], rules: &RecordRules) -> BTreeMap<String, RecordsOfName<'a>> {
    let mut names: BTreeMap<String, RecordsOfName<'a>> = BTreeMap::new();
    for record in observed {
        let of_name = names.entry(super::normal(&record.name)).or_default();
        match record.content(&rules.zone).filter(|_| record.remark == rules.remark) {
            None => of_name.others.push(record),
            Some(content) if of_name.ours.contains_key(&content) => of_name.doubled.push((content, record)),
            Some(content) => drop(of_name.ours.insert(content, record)),
        }
    }
    names
}

/// Steps in the order in which they are done: what an endpoint that moved needs comes first, and a name loses a record last.
/// Only a name that changes between a `CNAME` and others loses them first, as no other record may be beside one.
#[derive(Default)]
struct Phases {
    updates: Vec<RecordStep>,
    first_removals: Vec<RecordStep>,
    additions: Vec<RecordStep>,
    removals: Vec<RecordStep>,
}

impl Phases {
    /// Plans one name; gives whom it was for and the conflict if records of others take it.
    fn plan_name(
        &mut self,
        wanted: &[&RecordContent],
        found: &RecordsOfName<'_>,
        rules: &RecordRules,
        all: &WantedRecords,
    ) -> Option<(ObjectKey, String)> {
        let ttl = rules.ttl;
        let stays = |content: &RecordContent| wanted.contains(&content) || all.is_unknown(&content.owner());
        let said_by_others: Vec<RecordContent> =
            found.others.iter().filter_map(|record| record.content(&rules.zone)).collect();
        let mut missing: Vec<&RecordContent> = Vec::new();
        for content in wanted.iter().copied().filter(|content| !said_by_others.contains(content)) {
            match found.ours.get(content) {
                Some(record) if record.ttl != ttl => self.updates.push(RecordStep::Update {
                    id: record.id.clone(),
                    before: format!("TTL {}", record.ttl),
                    after: content.clone(),
                }),
                Some(_) => {}
                None => missing.push(content),
            }
        }
        let unwanted = found.ours.iter().filter(|(content, _)| !stays(content));
        let doubled = found.doubled.iter().map(|(content, record)| (content, record));
        let mut unwanted: Vec<(&RecordContent, &ZoneRecord)> =
            unwanted.chain(doubled).map(|(content, record)| (content, *record)).collect();
        let conflict = missing.iter().find_map(|content| Some((content.owner(), conflict(content, &found.others)?)));
        if conflict.is_some() {
            missing.clear();
        }
        for content in missing {
            // One write, and the name always leads somewhere.
            match unwanted.iter().position(|(stale, _)| stale.kind == content.kind) {
                Some(index) => {
                    let (stale, record) = unwanted.remove(index);
                    let (id, before) = (record.id.clone(), stale.value.clone());
                    self.updates.push(RecordStep::Update { id, before, after: content.clone() });
                }
                None => self.additions.push(RecordStep::Add(content.clone())),
            }
        }
        let makes_room = |kind: RecordType| {
            let is_alias = |kind: RecordType| kind == RecordType::Cname;
            wanted.iter().any(|content| is_alias(content.kind) != is_alias(kind))
        };
        for (content, record) in unwanted {
            let step = RecordStep::Delete { id: record.id.clone(), content: content.clone() };
            let phase = if makes_room(content.kind) { &mut self.first_removals } else { &mut self.removals };
            phase.push(step);
        }
        conflict
    }

    /// All that may be done now. More than a share of the own records goes only if it was seen before that it is not wanted:
    /// a list that lacks much may be a wrong one.
    fn into_plan(self, mut plan: RecordPlan, owned: usize, sighted: &mut Sightings, now: Duration) -> RecordPlan {
        let Self { updates, first_removals, additions, removals } = self;
        let id = |step: &RecordStep| match step {
            RecordStep::Delete { id, .. } => Some(id.clone()),
            RecordStep::Add(_) | RecordStep::Update { .. } => None,
        };
        let due: BTreeSet<String> = first_removals.iter().chain(&removals).filter_map(id).collect();
        sighted.retain(|id, _| due.contains(id));
        for id in &due {
            sighted.entry(id.clone()).or_insert(now);
        }
        let few = due.len() <= (owned / SHARE).max(FEW);
        let is_due = |step: &RecordStep| {
            let seen = id(step).and_then(|id| sighted.get(&id).copied());
            few || seen.is_none_or(|first| now.saturating_sub(first) >= CONFIRM)
        };
        let taken: BTreeSet<String> =
            first_removals.iter().filter(|step| !is_due(step)).map(|step| step.content().name.clone()).collect();
        let additions = additions.into_iter().filter(|step| !taken.contains(&step.content().name));
        let steps = updates.into_iter().chain(first_removals).chain(additions).chain(removals);
        (plan.steps, plan.withheld) = steps.partition(is_due);
        plan
    }
}

/// Why a record cannot be added beside those of others. Addresses of several writers under one name would be mixed.
fn conflict(content: &RecordContent, others: &[&ZoneRecord]) -> Option<String> {
    let is_alias = |kind: &str| kind.eq_ignore_ascii_case(RecordType::Cname.as_str());
    let alias = content.kind == RecordType::Cname;
    let in_the_way = |record: &&&ZoneRecord| {
        alias || is_alias(&record.kind) || RecordType::parse(&record.kind) == Some(content.kind)
    };
    let ZoneRecord { name, kind, value, remark, .. } = others.iter().find(in_the_way)?;
    let writer = mark::writer(remark);
    Some(format!(
        "the name {name} has the record {kind} {value} of {writer} (remark {remark:?}), so {} {} is not written; delete that \
         record if it is not needed, and this one is written",
        content.kind.as_str(),
        content.value
    ))
}
