//! Which route entries are made and removed, and what nodes are told about it.
//!
//! An entry is ours if it has exactly one next hop, an instance, and either carries this cluster's [mark] or was seen by
//! this process as the right entry of one of its nodes. Ours are removed when no node needs them any more; all others are
//! reported where they are in the way, and never touched. Nothing waits here: an entry that must be replaced is removed in
//! one pass and made in a later one, when the table no longer shows it. What may be done on tables that were not read just
//! now is said in [sight].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use thiserror::Error;

use super::PlanLine;
use super::inputs::{Condition, ConditionStatus, NodeView};
use super::node::{Class, classify};
use super::provider_id::ProviderId;
use entry::{RouteEntry, RouteItem};
use index::{Claims, Listed};
use owners::{Kept, Owners};

pub mod condition;
pub mod entry;
mod index;
pub mod mark;
pub mod orphans;
pub mod owners;
pub mod table_cache;

/// An entry that nobody needs is removed when it still is not needed after this time.
pub const CONFIRM: Duration = Duration::from_secs(10);
/// A table that was full is tried again after this time, even if it seems as full as before.
const FULL_FOR: Duration = Duration::from_secs(300);

/// A node as routes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteNode {
    /// `metadata.name`
    pub name: String,
    /// The instance, if the node says which.
    pub instance: Option<String>,
    /// Pod CIDRs, host bits cleared.
    pub cidrs: Vec<IpNet>,
    /// Pod CIDRs that cannot be parsed.
    pub malformed: Vec<String>,
    /// Whether entries may be made for it.
    pub wanted: bool,
    /// Whether the node is told about its routes.
    pub told: bool,
    /// What it was told.
    pub condition: Option<Condition>,
}

impl RouteNode {
    /// Reduces a node. Nodes that are excluded, deleted or silent keep their entries and get no new ones.
    #[must_use]
    pub fn of(view: &NodeView) -> Self {
        let ours = matches!(classify(view), Class::Ecs(_)) && !view.deleting;
        let silent = view.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::Unknown);
        let (mut cidrs, mut malformed) = (Vec::new(), Vec::new());
        for text in &view.pod_cidrs {
            match text.parse::<IpNet>() {
                Ok(cidr) if cidr.prefix_len() > 0 => cidrs.push(cidr.trunc()),
                _ => malformed.push(text.clone()),
            }
        }
        Self {
            name: view.name.clone(),
            instance: ProviderId::parse(&view.provider_id).ok().map(|id| id.instance),
            cidrs,
            malformed,
            wanted: ours && !silent,
            told: ours,
            condition: view.network_unavailable.clone(),
        }
    }

    fn has(&self, cidr: &IpNet, instance: &str) -> bool {
        self.cidrs.contains(cidr) && self.instance.as_deref() == Some(instance)
    }
}

/// A route table with its custom entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `vtb-...`
    pub id: String,
    /// As listed.
    pub entries: Vec<RouteEntry>,
}

/// What bounds a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Part of the mark.
    pub cluster_id: String,
    /// Nothing outside is made or removed; empty means no such bound. An address family without a bound of its own is
    /// not routed, so that dual-stack nodes can have routes for IPv4 only.
    pub cluster_cidrs: Vec<IpNet>,
    /// How many entries may be removed.
    pub removals: usize,
    /// Monotonic time since the controller started.
    pub now: Duration,
    /// What is known of owners that are not among the nodes.
    pub owners: Owners,
}

/// What this process remembers between passes. Losing it loses no entry, and removes none that it should not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Entries that were some node's own: which node's.
    owned: BTreeMap<(IpNet, String), String>,
    /// Entries that nobody needs, by table: since when.
    orphans: BTreeMap<(String, IpNet, String), Duration>,
    /// Tables that were full: with how many entries, and when.
    full: BTreeMap<String, (usize, Duration)>,
}

impl Memory {
    /// The cloud refused an entry because the table holds as many as it may.
    pub fn table_is_full(&mut self, table: &Table, now: Duration) {
        self.full.insert(table.id.clone(), (table.entries.len(), now));
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteStep {
    /// Removes an entry.
    Delete {
        /// The entry.
        item: RouteItem,
        /// The node that it was made for.
        node: String,
        /// Why.
        reason: DeleteReason,
    },
    /// Makes an entry.
    Create {
        /// The entry.
        item: RouteItem,
        /// The node that needs it.
        node: String,
    },
    /// Writes the condition `NetworkUnavailable`.
    Tell {
        /// The node.
        node: String,
        /// Whether all its routes exist.
        routed: bool,
    },
}

/// Why an entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// No node has this CIDR and this instance.
    Orphaned,
    /// The node has another instance now.
    Replaced,
}

impl fmt::Display for RouteStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |item: &RouteItem| format!("{} -> {} in {}", item.destination, item.instance_id, item.table_id);
        match self {
            Self::Delete { item, node, reason: DeleteReason::Orphaned } => {
                write!(f, "delete route {}: it was made for node {node}, and no node needs it", entry(item))
            }
            Self::Delete { item, reason: DeleteReason::Replaced, .. } => {
                write!(f, "delete route {}: the node has another instance now", entry(item))
            }
            Self::Create { item, .. } => write!(f, "create route {}", entry(item)),
            Self::Tell { routed: true, .. } => f.write_str("set condition NetworkUnavailable=False (RouteCreated)"),
            Self::Tell { routed: false, .. } => f.write_str("set condition NetworkUnavailable=True (NoRouteCreated)"),
        }
    }
}

impl RouteStep {
    /// The node that the step is about.
    #[must_use]
    pub fn node(&self) -> &str {
        match self {
            Self::Delete { node, .. } | Self::Create { node, .. } | Self::Tell { node, .. } => node,
        }
    }
}

/// What is in the way of a node's routes, for its event.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RouteProblem {
    /// The CIDR is no CIDR.
    #[error("pod CIDR {given:?} cannot be routed; an IPv4 or IPv6 network is needed")]
    Malformed {
        /// As in `spec.podCIDRs`.
        given: String,
    },
    /// Outside `route.cluster_cidrs`.
    #[error("pod CIDR {cidr} is outside route.cluster_cidrs ({allowed}); no route is created")]
    Outside {
        /// The pod CIDR.
        cidr: IpNet,
        /// The setting.
        allowed: String,
    },
    /// Two nodes, one CIDR.
    #[error("pod CIDR {cidr} is also that of node {other}; no route is created until one of them is removed")]
    Shared {
        /// The pod CIDR.
        cidr: IpNet,
        /// The other node.
        other: String,
    },
    /// Somebody else's entry has the CIDR.
    #[error(
        "route {cidr} in {table} leads to {next_hop} and is not known to be this cluster's; it is left alone, remove it to \
         get the node its route"
    )]
    Conflict {
        /// The pod CIDR.
        cidr: IpNet,
        /// The table.
        table: String,
        /// Where it leads.
        next_hop: String,
    },
    /// Somebody else's entry takes a part of the CIDR away.
    #[error("route {inside} -> {next_hop} in {table} takes a part of pod CIDR {cidr} away; it is left alone")]
    Overlap {
        /// The pod CIDR.
        cidr: IpNet,
        /// The narrower entry.
        inside: IpNet,
        /// The table.
        table: String,
        /// Where it leads.
        next_hop: String,
    },
    /// No room.
    #[error("{table} is full at {entries} entries; raise the quota or remove entries, then the route is created")]
    Full {
        /// The table.
        table: String,
        /// How many entries it had.
        entries: usize,
    },
}

impl RouteProblem {
    /// Whether the node has no route because of it.
    #[must_use]
    pub const fn blocks(&self) -> bool {
        !matches!(self, Self::Overlap { .. })
    }
}

/// What is to be done, in order: removals, creations, conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutePlan {
    /// The writes.
    pub steps: Vec<RouteStep>,
    /// What is wrong, by node.
    pub problems: Vec<(String, RouteProblem)>,
    /// Nodes whose entries are being changed by the cloud.
    pub pending: BTreeSet<String>,
    /// Nodes whose entries are removed if they are still not needed after some seconds.
    pub doomed: BTreeSet<String>,
    /// Removals that are held back because they are too many.
    pub held_back: Vec<RouteStep>,
    /// Entries that no node needs, and for which something else speaks.
    pub kept: Vec<Kept>,
}

impl RouteStep {
    /// Whether it makes or removes this entry, for whichever node.
    fn is_about(&self, entry: &RouteItem) -> bool {
        let (Self::Create { item, .. } | Self::Delete { item, .. }) = self else { return false };
        (&item.table_id, item.destination, &item.instance_id)
            == (&entry.table_id, entry.destination, &entry.instance_id)
    }
}

impl RoutePlan {
    /// The plan as people read it.
    #[must_use]
    pub fn lines(&self) -> Vec<PlanLine> {
        let line =
            |object: &str, text, destroys| PlanLine { controller: "route", object: object.to_owned(), text, destroys };
        let problems = self.problems.iter().map(|(node, problem)| line(node, problem.to_string(), false));
        let held = self.held_back.iter().map(|step| line(step.node(), format!("held back: {step}"), false));
        let steps =
            self.steps.iter().map(|step| line(step.node(), step.to_string(), matches!(step, RouteStep::Delete { .. })));
        let doomed = self
            .doomed
            .iter()
            .map(|node| line(node, "delete its routes, if still no node needs them at a second look".into(), true));
        let kept = self
            .kept
            .iter()
            .map(|kept| line(kept.step.node(), format!("held back: {}: {}", kept.step, kept.why), false));
        problems.chain(held).chain(kept).chain(steps).chain(doomed).collect()
    }
}

/// How one CIDR of one node stands in one table.
enum Standing {
    Present,
    Pending,
    Missing,
    /// Ours, but for another instance; settled entries can be removed.
    Stale(String),
    /// Nothing there, and nothing to be made.
    Absent,
    Refused(RouteProblem),
}

/// Plans all tables together.
#[must_use]
pub fn plan(nodes: &[RouteNode], tables: &[Table], memory: &mut Memory, rules: &Rules) -> RoutePlan {
    let mut plan = RoutePlan::default();
    let claims = Claims::of(nodes);
    remember(&claims, tables, memory);
    memory.full.retain(|id, (entries, at)| {
        let now = tables.iter().find(|table| table.id == *id).map_or(0, |table| table.entries.len());
        now >= *entries && rules.now.saturating_sub(*at) < FULL_FOR
    });
    let listed: Vec<Listed<'_>> = tables.iter().map(Listed::of).collect();
    let (mut removals, mut creations) = (Vec::new(), Vec::new());
    for node in nodes {
        let cidrs = routed_cidrs(node, rules);
        let mut routed = !tables.is_empty() && !cidrs.is_empty();
        let mut problems: Vec<RouteProblem> =
            node.malformed.iter().map(|given| RouteProblem::Malformed { given: given.clone() }).collect();
        let Some(instance) = &node.instance else { continue };
        for (table, cidr) in listed.iter().flat_map(|table| cidrs.iter().map(move |cidr| (table, *cidr))) {
            let item = |instance: &str| item(table.id, *cidr, instance, &node.name, rules);
            let standing = stand(node, instance, cidr, table, &claims, memory, rules);
            routed &= matches!(standing, Standing::Present);
            match standing {
                Standing::Present | Standing::Absent => {}
                Standing::Pending => {
                    plan.pending.insert(node.name.clone());
                }
                Standing::Missing => {
                    creations.push(RouteStep::Create { item: item(instance), node: node.name.clone() });
                }
                // Two nodes that claim the same are in the way of each other, but the entry goes only once.
                Standing::Stale(old) if removals.iter().any(|step: &RouteStep| step.is_about(&item(&old))) => {}
                Standing::Stale(old) => {
                    let (item, node) = (item(&old), node.name.clone());
                    removals.push(RouteStep::Delete { item, node, reason: DeleteReason::Replaced });
                }
                // The same for every table, it is said once.
                Standing::Refused(problem) if problems.contains(&problem) => {}
                Standing::Refused(problem) => problems.push(problem),
            }
            problems.extend(overlaps(cidr, table, memory, rules));
        }
        routed &= node.malformed.is_empty();
        let refused = node.wanted && problems.iter().any(RouteProblem::blocks);
        if node.told && (routed || refused) && condition::tell(node.condition.as_ref(), routed).is_some() {
            plan.steps.push(RouteStep::Tell { node: node.name.clone(), routed });
        }
        if node.wanted {
            plan.problems.extend(problems.into_iter().map(|problem| (node.name.clone(), problem)));
        }
    }
    removals.extend(orphans(&claims, tables, memory, rules, &mut plan));
    plan.held_back = removals.split_off(removals.len().min(rules.removals));
    removals.append(&mut creations);
    plan.steps.splice(0..0, removals);
    plan
}

/// An entry of a table, with its mark.
fn item(table: &str, destination: IpNet, instance: &str, node: &str, rules: &Rules) -> RouteItem {
    RouteItem {
        table_id: table.to_owned(),
        destination,
        instance_id: instance.to_owned(),
        name: mark::name(&rules.cluster_id, node),
        description: mark::description(&rules.cluster_id, node),
    }
}

/// Which instance an entry leads to, if to exactly one.
fn instance_of(entry: &RouteEntry) -> Option<&str> {
    match entry.next_hops.as_slice() {
        [(kind, id)] if kind.eq_ignore_ascii_case("instance") => Some(id),
        _ => None,
    }
}

fn settled(entry: &RouteEntry) -> bool {
    matches!(entry.status.as_str(), "Available" | "Created")
}

/// The node that an entry of ours was made for; `None` if it is not provably ours.
fn maker<'a>(entry: &'a RouteEntry, memory: &'a Memory, rules: &Rules) -> Option<&'a str> {
    let instance = instance_of(entry)?;
    let seen = memory.owned.get(&(entry.destination.trunc(), instance.to_owned())).map(String::as_str);
    mark::node(&rules.cluster_id, &entry.description).or(seen).filter(|_| inside(&entry.destination, rules))
}

/// The CIDRs of a node that need entries. A node with none in a bounded family is misconfigured, which must be seen.
fn routed_cidrs<'a>(node: &'a RouteNode, rules: &Rules) -> Vec<&'a IpNet> {
    let family = |cidr: &IpNet| cidr.addr().is_ipv4();
    let bounded = |cidr: &&IpNet| {
        rules.cluster_cidrs.is_empty() || rules.cluster_cidrs.iter().any(|bound| family(bound) == family(cidr))
    };
    let routed: Vec<&IpNet> = node.cidrs.iter().filter(bounded).collect();
    if routed.is_empty() { node.cidrs.iter().collect() } else { routed }
}

fn inside(cidr: &IpNet, rules: &Rules) -> bool {
    rules.cluster_cidrs.is_empty() || rules.cluster_cidrs.iter().any(|bound| bound.contains(cidr))
}

/// Entries that are right for a node now are known as ours for as long as they exist.
fn remember(claims: &Claims<'_>, tables: &[Table], memory: &mut Memory) {
    let mut listed = BTreeSet::new();
    for entry in tables.iter().flat_map(|table| &table.entries) {
        let Some(instance) = instance_of(entry) else { continue };
        let pair = (entry.destination.trunc(), instance.to_owned());
        if let Some(node) = claims.on(&pair.0).find(|node| node.told && node.has(&pair.0, instance)) {
            memory.owned.insert(pair.clone(), node.name.clone());
        }
        listed.insert(pair);
    }
    memory.owned.retain(|pair, _| listed.contains(pair));
}

fn stand(
    node: &RouteNode,
    instance: &str,
    cidr: &IpNet,
    table: &Listed<'_>,
    claims: &Claims<'_>,
    memory: &Memory,
    rules: &Rules,
) -> Standing {
    let Some(entry) = table.entry(cidr) else {
        return missing(node, cidr, table, claims, memory, rules);
    };
    if instance_of(entry) == Some(instance) {
        return if settled(entry) { Standing::Present } else { Standing::Pending };
    }
    if !node.wanted {
        return Standing::Absent;
    }
    let others =
        |other: &&RouteNode| other.name != node.name && instance_of(entry).is_some_and(|id| other.has(cidr, id));
    if let Some(other) = claims.on(cidr).find(others) {
        return Standing::Refused(RouteProblem::Shared { cidr: *cidr, other: other.name.clone() });
    }
    match (maker(entry, memory, rules), instance_of(entry)) {
        (Some(_), Some(old)) if settled(entry) => Standing::Stale(old.to_owned()),
        (Some(_), Some(_)) => Standing::Pending,
        _ => Standing::Refused(RouteProblem::Conflict {
            cidr: *cidr,
            table: table.id.to_owned(),
            next_hop: next_hops(entry),
        }),
    }
}

fn missing(
    node: &RouteNode,
    cidr: &IpNet,
    table: &Listed<'_>,
    claims: &Claims<'_>,
    memory: &Memory,
    rules: &Rules,
) -> Standing {
    if !node.wanted {
        return Standing::Absent;
    }
    if let Some(other) = claims.on(cidr).find(|other| other.name != node.name) {
        return Standing::Refused(RouteProblem::Shared { cidr: *cidr, other: other.name.clone() });
    }
    if !inside(cidr, rules) {
        let allowed: Vec<String> = rules.cluster_cidrs.iter().map(ToString::to_string).collect();
        return Standing::Refused(RouteProblem::Outside { cidr: *cidr, allowed: allowed.join(", ") });
    }
    match memory.full.get(table.id) {
        Some((entries, _)) => Standing::Refused(RouteProblem::Full { table: table.id.to_owned(), entries: *entries }),
        None => Standing::Missing,
    }
}

fn next_hops(entry: &RouteEntry) -> String {
    entry.next_hops.iter().map(|(kind, id)| format!("{kind} {id}")).collect::<Vec<_>>().join(", ")
}

fn overlaps<'a>(
    cidr: &'a IpNet,
    table: &'a Listed<'_>,
    memory: &'a Memory,
    rules: &'a Rules,
) -> impl Iterator<Item = RouteProblem> + 'a {
    let foreign = |entry: &&RouteEntry| maker(entry, memory, rules).is_none();
    table.inside(cidr).filter(foreign).map(|entry| RouteProblem::Overlap {
        cidr: *cidr,
        inside: entry.destination,
        table: table.id.to_owned(),
        next_hop: next_hops(entry),
    })
}

/// Entries of ours that no node needs, seen so twice.
fn orphans(
    claims: &Claims<'_>,
    tables: &[Table],
    memory: &mut Memory,
    rules: &Rules,
    plan: &mut RoutePlan,
) -> Vec<RouteStep> {
    let before = std::mem::take(&mut memory.orphans);
    let (mut steps, mut sighted) = (Vec::new(), BTreeMap::new());
    for (table, entry) in tables.iter().flat_map(|table| table.entries.iter().map(move |entry| (table, entry))) {
        let cidr = entry.destination.trunc();
        let (Some(maker), Some(instance)) = (maker(entry, memory, rules), instance_of(entry)) else { continue };
        if claims.need(&cidr, instance, maker) {
            continue;
        }
        if !settled(entry) {
            plan.pending.insert(maker.to_owned());
            continue;
        }
        let key = (table.id.clone(), cidr, instance.to_owned());
        let since = before.get(&key).copied().unwrap_or(rules.now);
        let item = item(&table.id, cidr, instance, maker, rules);
        let step = RouteStep::Delete { item, node: maker.to_owned(), reason: DeleteReason::Orphaned };
        if let Some(why) = rules.owners.speaks_for(claims.nodes, maker, instance) {
            plan.kept.push(Kept { step, why });
        } else if rules.now.saturating_sub(since) >= CONFIRM {
            steps.push(step);
        } else {
            plan.doomed.insert(maker.to_owned());
        }
        sighted.insert(key, since);
    }
    memory.orphans = sighted;
    steps
}

#[cfg(test)]
mod tests;
