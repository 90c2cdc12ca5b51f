//! Which route entries are created and removed, and what the nodes' conditions say about it.
//!
//! An entry is ours if it has exactly one next hop, an instance, and either carries this cluster's [mark] or was seen by
//! this process as the right entry of one of its nodes. Ours are removed when no node needs them any more; what was created
//! for another node only with a [proof](orphan_proof) that this one is gone. Of all others,
//! only those are removed that have the pod CIDR of a node inside the stated cluster CIDRs, carry no mark, and lead to
//! another node of this cluster or to an instance that is gone; the rest is reported where it conflicts. An entry whose mark
//! has the cluster's id without its uid is treated like one without a mark: another cluster with the same id may need it.
//!
//! Nothing waits here: an entry that must be replaced is removed in one reconcile and created in a later one, when the table
//! no longer shows it. What may be done on tables that
//! were not read just now is said in [table_cache].

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;

use super::provenance::Provenance;

use entry::{RouteEntry, RouteItem};
use index::{PodCidrIndex, TableIndex};
use mark::{MarkedNode, RouteCluster};

pub mod condition;
pub mod entry;
mod index;
pub mod mark;
mod memory;
pub mod networks;
mod origins;
pub mod orphan_proof;
pub mod orphans;
mod route_node;
mod step;
pub mod table_cache;

pub use index::TableEntries;
pub use memory::RouteMemory;
pub use origins::origins;
pub use orphan_proof::{InstancePresence, MissingProof, OwnerEvidence};
pub use route_node::RouteNode;
pub use step::{DeleteReason, RoutePlan, RouteProblem, RouteStep, WithheldOrphan, full};

/// An orphan is removed if it still is one after this time.
pub const CONFIRM: Duration = Duration::from_secs(10);

/// What limits a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRules {
    /// Whose marks are ours.
    pub cluster: RouteCluster,
    /// Nothing outside is created or removed; empty means no such limit. An address family without a limit of its own is
    /// not routed, so that dual-stack nodes can have routes for IPv4 only.
    pub cluster_cidrs: Vec<IpNet>,
    /// How many entries may be removed.
    pub removals: usize,
    /// Monotonic time since the controller started.
    pub now: Duration,
    /// What is known of nodes that the API server does not show.
    pub evidence: OwnerEvidence,
}

impl RouteRules {
    /// The CIDRs of a node that need entries. A node with none in a limited family is misconfigured, which must be seen.
    fn routed_cidrs<'a>(&self, node: &'a RouteNode) -> Vec<&'a IpNet> {
        let same_family = |cidr: &IpNet, limit: &IpNet| cidr.addr().is_ipv4() == limit.addr().is_ipv4();
        let limited = |cidr: &&IpNet| self.cluster_cidrs.iter().any(|limit| same_family(cidr, limit));
        let routed: Vec<&IpNet> = node.cidrs.iter().filter(limited).collect();
        if routed.is_empty() { node.cidrs.iter().collect() } else { routed }
    }

    fn allow(&self, cidr: &IpNet) -> bool {
        self.cluster_cidrs.is_empty() || self.cluster_cidrs.iter().any(|limit| limit.contains(cidr))
    }

    fn item(&self, table: &str, destination: IpNet, instance: &str, node: &str) -> RouteItem {
        RouteItem {
            table_id: table.to_owned(),
            destination,
            instance_id: instance.to_owned(),
            name: mark::name(&self.cluster.id, node),
            description: mark::description(&self.cluster, node),
        }
    }
}

/// Which cluster an entry belongs to.
enum EntryOwner<'e> {
    /// Provably this one; it was created for this node.
    ThisCluster(MarkedNode<'e>),
    /// Its mark has the id of this cluster and no uid, which another cluster with that id may have written.
    SameId(MarkedNode<'e>),
    /// Its mark has the id of this cluster and the uid of another one, as this says.
    OtherCluster(String),
    /// It carries no mark of a cluster with this id.
    Unknown,
}

/// The entry of one CIDR of one node in one table.
enum EntryState {
    Ready,
    /// The cloud is changing it.
    Changing,
    Missing,
    /// Ours, but for this other instance.
    Stale(String),
    /// It leads to this other instance, and was not created for this node.
    OfAnother(AnothersEntry),
    /// Not there, and not to be created.
    NotWanted,
    Blocked(RouteProblem),
}

/// An entry in the place of a node's own: of another node, or perhaps not ours but handed over by the user.
struct AnothersEntry {
    instance: String,
    /// The node that it was created for, if it is ours.
    created_for: Option<String>,
    /// Why it may be removed, or what speaks against it.
    proof: Result<DeleteReason, MissingProof>,
}

/// Plans all tables together. Of `memory`, only what the tables show now is kept.
pub fn plan(nodes: &[RouteNode], tables: &[TableEntries], memory: &mut RouteMemory, rules: &RouteRules) -> RoutePlan {
    let cidrs = PodCidrIndex::of(nodes);
    memory.learn(&cidrs, tables, rules.now);
    let (plan, due_since) = (RoutePlan::default(), BTreeMap::new());
    let mut planner = Planner { nodes, cidrs, memory, rules, plan, due_since };
    let indexes: Vec<TableIndex<'_>> = tables.iter().map(TableIndex::of).collect();
    for node in nodes {
        planner.plan_node(node, &indexes);
    }
    for (table, entry) in tables.iter().flat_map(|table| table.entries.iter().map(move |entry| (table, entry))) {
        planner.plan_orphan(&table.id, entry);
    }
    let Planner { mut plan, due_since, .. } = planner;
    memory.due_since = due_since;
    plan.steps.sort_by_key(|step| (!step.deletes(), !step.creates()));
    let deletions = plan.steps.partition_point(RouteStep::deletes);
    plan.over_limit = plan.steps.splice(rules.removals.min(deletions)..deletions, []).collect();
    plan
}

struct Planner<'a> {
    nodes: &'a [RouteNode],
    cidrs: PodCidrIndex<'a>,
    memory: &'a RouteMemory,
    rules: &'a RouteRules,
    plan: RoutePlan,
    /// As [`RouteMemory`] keeps it for the next plan.
    due_since: BTreeMap<(String, IpNet, String), Duration>,
}

impl Planner<'_> {
    fn plan_node(&mut self, node: &RouteNode, tables: &[TableIndex<'_>]) {
        let Some(instance) = &node.instance else { return };
        let cidrs = self.rules.routed_cidrs(node);
        let mut routed = !tables.is_empty() && !cidrs.is_empty() && node.malformed.is_empty();
        let mut problems: Vec<RouteProblem> =
            node.malformed.iter().map(|given| RouteProblem::Malformed { given: given.clone() }).collect();
        for (table, cidr) in tables.iter().flat_map(|table| cidrs.iter().map(move |cidr| (table, *cidr))) {
            let item = |instance: &str| self.rules.item(table.id, *cidr, instance, &node.name);
            let state = self.state(node, instance, cidr, table);
            routed &= matches!(state, EntryState::Ready);
            match state {
                EntryState::Ready | EntryState::NotWanted => {}
                EntryState::Changing => {
                    self.plan.pending.insert(node.name.clone());
                }
                EntryState::Missing => {
                    self.plan.steps.push(RouteStep::Create { item: item(instance), node: node.name.clone() });
                }
                EntryState::Stale(old) => {
                    let (item, reason) = (item(&old), DeleteReason::Replaced);
                    self.delete(RouteStep::Delete { item, node: node.name.clone(), reason });
                }
                EntryState::OfAnother(other) => problems.extend(self.plan_takeover(node, item(&other.instance), other)),
                // The same for every table, it is said once.
                EntryState::Blocked(problem) if problems.contains(&problem) => {}
                EntryState::Blocked(problem) => problems.push(problem),
            }
            problems.extend(self.overlaps(cidr, table));
        }
        let blocked = node.gets_routes && problems.iter().any(RouteProblem::blocks);
        let due = (routed || blocked) && condition::due(node.condition.as_ref(), routed).is_some();
        if node.gets_condition && due {
            self.plan.steps.push(RouteStep::SetCondition { node: node.name.clone(), routed });
        }
        if node.gets_routes {
            self.plan.problems.extend(problems.into_iter().map(|problem| (node.name.clone(), problem)));
        }
    }

    /// Two nodes with the same CIDR may both want an entry removed, which goes only once.
    fn delete(&mut self, step: RouteStep) {
        let entry = |step: &RouteStep| {
            step.item().map(|item| (item.table_id.clone(), item.destination, item.instance_id.clone()))
        };
        if !self.plan.steps.iter().any(|known| known.deletes() && entry(known) == entry(&step)) {
            self.plan.steps.push(step);
        }
    }

    fn state(&self, node: &RouteNode, instance: &str, cidr: &IpNet, table: &TableIndex<'_>) -> EntryState {
        let Some(entry) = table.entry(cidr) else { return self.state_without_entry(node, cidr, table) };
        let next_hop = entry.instance();
        if next_hop == Some(instance) && !node.is_replaced {
            return if entry.is_settled() { EntryState::Ready } else { EntryState::Changing };
        }
        if !node.gets_routes || (node.is_replaced && next_hop != Some(instance)) {
            return EntryState::NotWanted;
        }
        let right_for =
            |other: &&RouteNode| other.name != node.name && next_hop.is_some_and(|instance| other.has(cidr, instance));
        if let Some(other) = self.cidrs.nodes_with(cidr).find(right_for) {
            return EntryState::Blocked(RouteProblem::Shared { cidr: *cidr, other: other.name.clone() });
        }
        match (self.owner(entry), next_hop) {
            (owner, Some(_)) if !entry.is_settled() && self.is_handed_over(entry, &owner) => EntryState::Changing,
            (EntryOwner::ThisCluster(marked), Some(old)) if marked.is(&node.name) => EntryState::Stale(old.to_owned()),
            (EntryOwner::ThisCluster(marked), Some(old)) => {
                let missing = self.rules.evidence.missing_proof(self.nodes, Some(&marked), old);
                let proof = missing.map_or(Ok(DeleteReason::OfAnotherNode), Err);
                let (instance, created_for) = (old.to_owned(), Some(marked.name().to_owned()));
                EntryState::OfAnother(AnothersEntry { instance, created_for, proof })
            }
            (owner, Some(old)) if self.is_handed_over(entry, &owner) => {
                let (instance, proof) = (old.to_owned(), self.takeover_proof(old));
                EntryState::OfAnother(AnothersEntry { instance, created_for: None, proof })
            }
            _ => EntryState::Blocked(RouteProblem::Conflict {
                cidr: *cidr,
                table: table.id.to_owned(),
                next_hop: entry.next_hops_text(),
                created_for: None,
                doubt: String::new(),
            }),
        }
    }

    /// Whether it is ours, or users hand it over: what is inside the cluster CIDRs that they state, as to the official controller,
    /// which marks nothing.
    fn is_handed_over(&self, entry: &RouteEntry, owner: &EntryOwner<'_>) -> bool {
        let stated = || self.rules.cluster_cidrs.iter().any(|limit| limit.contains(&entry.destination));
        match owner {
            EntryOwner::ThisCluster(_) | EntryOwner::SameId(_) => true,
            EntryOwner::Unknown => stated() && !mark::is_marked(&entry.description),
            EntryOwner::OtherCluster(_) => false,
        }
    }

    /// An entry that is not provably ours is removed if it leads to another node of this cluster or to an instance that is gone.
    fn takeover_proof(&self, instance: &str) -> Result<DeleteReason, MissingProof> {
        let is_its = |other: &RouteNode| other.instance.as_deref() == Some(instance) && !other.is_replaced;
        if self.nodes.iter().any(is_its) {
            return Ok(DeleteReason::LeadsToOtherNode);
        }
        match self.rules.evidence.instances.get(instance) {
            Some(InstancePresence::Gone) => Ok(DeleteReason::InstanceGone),
            Some(InstancePresence::Exists) => Err(MissingProof::InstanceExists),
            Some(InstancePresence::Unknown(why)) => Err(MissingProof::InstanceUnknown(why.clone())),
            None => Err(MissingProof::NotAsked),
        }
    }

    /// What is in the place of a node's own entry is removed with a proof, and if a second observation confirms it. Else it is a
    /// conflict.
    fn plan_takeover(&mut self, node: &RouteNode, item: RouteItem, other: AnothersEntry) -> Option<RouteProblem> {
        let entry = (item.table_id.clone(), item.destination, item.instance_id.clone());
        let reason = match other.proof {
            Ok(reason) => reason,
            Err(why) => {
                if why == MissingProof::NotAsked {
                    self.plan.unasked.insert(item.instance_id.clone());
                    // The plan with the answer follows at once, and counts from the first observation.
                    self.is_confirmed(entry);
                }
                let RouteItem { table_id: table, destination: cidr, instance_id, .. } = item;
                let next_hop = format!("Instance {instance_id}");
                let (created_for, doubt) = (other.created_for, why.doubt());
                return Some(RouteProblem::Conflict { cidr, table, next_hop, created_for, doubt });
            }
        };
        let confirmed = self.is_confirmed(entry);
        let step = RouteStep::Delete { item, node: node.name.clone(), reason };
        if confirmed {
            self.delete(step)
        } else {
            self.plan.unconfirmed.push(step)
        }
        None
    }

    fn state_without_entry(&self, node: &RouteNode, cidr: &IpNet, table: &TableIndex<'_>) -> EntryState {
        if !node.gets_routes {
            return EntryState::NotWanted;
        }
        if node.is_replaced {
            return EntryState::Blocked(RouteProblem::Replaced { cidr: *cidr });
        }
        if let Some(other) = self.cidrs.nodes_with(cidr).find(|other| other.name != node.name) {
            return EntryState::Blocked(RouteProblem::Shared { cidr: *cidr, other: other.name.clone() });
        }
        if !self.rules.allow(cidr) {
            let allowed: Vec<String> = self.rules.cluster_cidrs.iter().map(ToString::to_string).collect();
            return EntryState::Blocked(RouteProblem::Outside { cidr: *cidr, allowed: allowed.join(", ") });
        }
        match self.memory.full_at(table.id) {
            Some(entries) => EntryState::Blocked(RouteProblem::Full { table: table.id.to_owned(), entries }),
            None => EntryState::Missing,
        }
    }

    fn owner<'e>(&'e self, entry: &'e RouteEntry) -> EntryOwner<'e> {
        let RouteCluster { id, uid } = &self.rules.cluster;
        let marked = mark::parse(id, &entry.description).map(|mark| {
            // Where no uid is known, none is written, and the id counts.
            let by_id = uid.is_empty() && mark.uid.is_none();
            match Provenance::of_uid(uid, mark.uid) {
                Provenance::OtherCluster(why) => EntryOwner::OtherCluster(why),
                Provenance::Unproven(_) if !by_id => EntryOwner::SameId(mark.node),
                Provenance::ThisCluster | Provenance::Unproven(_) => EntryOwner::ThisCluster(mark.node),
            }
        });
        match (marked, self.memory.owner(entry)) {
            (Some(EntryOwner::OtherCluster(why)), _) => EntryOwner::OtherCluster(why),
            _ if entry.instance().is_none() || !self.rules.allow(&entry.destination) => EntryOwner::Unknown,
            (Some(EntryOwner::ThisCluster(node)), _) => EntryOwner::ThisCluster(node),
            (_, Some(node)) => EntryOwner::ThisCluster(MarkedNode::Whole(node)),
            (Some(owner), None) => owner,
            (None, None) => EntryOwner::Unknown,
        }
    }

    fn overlaps(&self, cidr: &IpNet, table: &TableIndex<'_>) -> impl Iterator<Item = RouteProblem> {
        let foreign = table
            .inside(cidr)
            .filter(|entry| matches!(self.owner(entry), EntryOwner::OtherCluster(_) | EntryOwner::Unknown));
        foreign.map(|entry| RouteProblem::Overlap {
            cidr: *cidr,
            inside: entry.destination,
            table: table.id.to_owned(),
            next_hop: entry.next_hops_text(),
        })
    }

    /// An entry of ours that no node needs is removed with a proof that its node is gone, and a second observation.
    fn plan_orphan(&mut self, table: &str, entry: &RouteEntry) {
        let cidr = entry.destination.trunc();
        let Some(instance) = entry.instance() else { return };
        let (marked, by_id) = match self.owner(entry) {
            EntryOwner::ThisCluster(marked) => (marked, false),
            EntryOwner::SameId(marked) => (marked, true),
            EntryOwner::OtherCluster(why) => {
                let what = format!("route {cidr} to {instance} in {table}");
                self.plan.other_clusters.push((what, why));
                return;
            }
            EntryOwner::Unknown => return,
        };
        if self.cidrs.is_needed(&cidr, instance, &marked) {
            return;
        }
        let created_for = (!by_id).then_some(&marked);
        let why = self.rules.evidence.missing_proof(self.nodes, created_for, instance);
        let node = marked.name().to_owned();
        if !entry.is_settled() {
            self.plan.pending.insert(node);
            return;
        }
        let item = self.rules.item(table, cidr, instance, &node);
        let step = RouteStep::Delete { item, node, reason: DeleteReason::Orphaned };
        let confirmed = self.is_confirmed((table.to_owned(), cidr, instance.to_owned()));
        match why {
            Some(why) => {
                if why == MissingProof::NotAsked {
                    self.plan.unasked.insert(instance.to_owned());
                }
                self.plan.withheld.push(WithheldOrphan { step, why });
            }
            None if confirmed => self.plan.steps.push(step),
            None => self.plan.unconfirmed.push(step),
        }
    }

    /// Whether a deletion was due already some seconds ago. Notes that it is due now.
    fn is_confirmed(&mut self, entry: (String, IpNet, String)) -> bool {
        let since = self.memory.due_since.get(&entry).copied().unwrap_or(self.rules.now);
        self.due_since.insert(entry, since);
        self.rules.now.saturating_sub(since) >= CONFIRM
    }
}

#[cfg(test)]
mod tests;
