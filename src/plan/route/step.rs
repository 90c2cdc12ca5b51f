//! What a plan of routes consists of, and how people read it.

use std::collections::BTreeSet;
use std::fmt;

use ipnet::IpNet;
use thiserror::Error;

use super::entry::RouteItem;
use super::orphan_proof::MissingProof;
use crate::plan::{LineKind, PlanLine};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteStep {
    /// Removes an entry.
    Delete {
        /// The entry.
        item: RouteItem,
        /// The node that it was created for.
        node: String,
        /// Why.
        reason: DeleteReason,
    },
    /// Creates an entry.
    Create {
        /// The entry.
        item: RouteItem,
        /// The node that needs it.
        node: String,
    },
    /// Writes the condition `NetworkUnavailable`.
    SetCondition {
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
    /// It was created for another node, which is gone, and a node has its pod CIDR.
    OfAnotherNode,
    /// It is not provably ours, has the pod CIDR of a node, and leads to another node of this cluster.
    LeadsToOtherNode,
    /// It is not provably ours, has the pod CIDR of a node, and leads to an instance that no longer exists.
    InstanceGone,
}

impl DeleteReason {
    /// Whether an entry is removed that is not provably ours.
    pub const fn is_takeover(self) -> bool {
        matches!(self, Self::LeadsToOtherNode | Self::InstanceGone)
    }
}

impl fmt::Display for RouteStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |item: &RouteItem| format!("{} -> {} in {}", item.destination, item.instance_id, item.table_id);
        match self {
            Self::Delete { item, node, reason } => write!(
                f,
                "delete route {}: {}",
                entry(item),
                match reason {
                    DeleteReason::Orphaned => format!("it was created for node {node}, and no node needs it"),
                    DeleteReason::Replaced => "the node has another instance now".to_owned(),
                    DeleteReason::OfAnotherNode => {
                        format!("it was created for another node, and node {node} has this pod CIDR")
                    }
                    DeleteReason::LeadsToOtherNode => {
                        format!("it leads to another node of this cluster, and node {node} has this pod CIDR")
                    }
                    DeleteReason::InstanceGone => {
                        format!("its instance no longer exists, and node {node} has this pod CIDR")
                    }
                }
            ),
            Self::Create { item, .. } => write!(f, "create route {}", entry(item)),
            Self::SetCondition { routed: true, .. } => {
                f.write_str("set condition NetworkUnavailable=False (RouteCreated)")
            }
            Self::SetCondition { .. } => f.write_str("set condition NetworkUnavailable=True (NoRouteCreated)"),
        }
    }
}

impl RouteStep {
    /// The node that the step is about.
    pub fn node(&self) -> &str {
        match self {
            Self::Delete { node, .. } | Self::Create { node, .. } | Self::SetCondition { node, .. } => node,
        }
    }

    /// Whether an entry is taken away.
    pub const fn deletes(&self) -> bool {
        matches!(self, Self::Delete { .. })
    }

    /// Whether an entry is created.
    pub const fn creates(&self) -> bool {
        matches!(self, Self::Create { .. })
    }

    /// The entry that is created or removed.
    pub const fn item(&self) -> Option<&RouteItem> {
        match self {
            Self::Delete { item, .. } | Self::Create { item, .. } => Some(item),
            Self::SetCondition { .. } => None,
        }
    }
}

/// Why a node has not all its routes, or not all its pod addresses, for its event.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RouteProblem {
    /// The CIDR cannot be parsed.
    #[error("spec.podCIDRs: Invalid value: {given:?}: must be an IPv4 or IPv6 network")]
    Malformed {
        /// As in `spec.podCIDRs`.
        given: String,
    },
    /// Outside `route.cluster_cidrs`.
    #[error(
        "spec.podCIDRs: Invalid value: \"{cidr}\": must be in route.cluster_cidrs ({allowed}); no route is created"
    )]
    Outside {
        /// The pod CIDR.
        cidr: IpNet,
        /// The setting.
        allowed: String,
    },
    /// Two nodes, one CIDR.
    #[error(
        "spec.podCIDRs: Duplicate value: \"{cidr}\": node {other} has it, too; no route is created until one of the nodes is \
         removed"
    )]
    Shared {
        /// The pod CIDR.
        cidr: IpNet,
        /// The other node.
        other: String,
    },
    /// An unmanaged entry has the CIDR.
    #[error(
        "route {cidr} in {table} leads to {next_hop} and {}; the controller leaves it alone, remove it to get the node its \
         route{doubt}",
        whose(.created_for.as_deref())
    )]
    Conflict {
        /// The pod CIDR.
        cidr: IpNet,
        /// The table.
        table: String,
        /// Where it leads.
        next_hop: String,
        /// The other node that it was created for, if it is ours.
        created_for: Option<String>,
        /// Why the instance that it leads to does not count as gone.
        doubt: String,
    },
    /// The instance of the node is gone.
    #[error("pod CIDR {cidr} gets no route: the instance of the node is gone; delete the Node")]
    Replaced {
        /// The pod CIDR.
        cidr: IpNet,
    },
    /// An unmanaged entry takes a part of the CIDR away.
    #[error(
        "route {inside} -> {next_hop} in {table} takes a part of pod CIDR {cidr} away; the controller leaves it alone"
    )]
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

fn whose(created_for: Option<&str>) -> String {
    created_for.map_or_else(
        || "is not known to be this cluster's".to_owned(),
        |node| format!("was created for node {node}, which the API server does not show"),
    )
}

impl RouteProblem {
    /// Whether the node has no route because of it.
    pub const fn blocks(&self) -> bool {
        !matches!(self, Self::Overlap { .. })
    }

    /// Whether an entry is in the way that the user can remove.
    pub const fn is_about_an_entry(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Overlap { .. })
    }

    /// What other nodes can lack a route for, too; `None` if it is about this one alone.
    pub fn cause(&self) -> Option<String> {
        match self {
            Self::Full { table, .. } => Some(full(table)),
            Self::Outside { allowed, .. } => Some(format!("pod CIDRs are outside route.cluster_cidrs ({allowed})")),
            _ => None,
        }
    }
}

/// What nodes share whose routes have no room in a table.
pub fn full(table: &str) -> String {
    format!("route table {table} is full")
}

/// An orphan that is not removed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{step}: {why}")]
pub struct WithheldOrphan {
    /// The deletion.
    pub step: RouteStep,
    /// Why it is withheld.
    pub why: MissingProof,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutePlan {
    /// The writes, in order: deletions, creations, conditions.
    pub steps: Vec<RouteStep>,
    /// What is wrong, by node.
    pub problems: Vec<(String, RouteProblem)>,
    /// Nodes whose entries the cloud is changing.
    pub pending: BTreeSet<String>,
    /// Deletions that follow if a second observation, some seconds later, still finds them due.
    pub unconfirmed: Vec<RouteStep>,
    /// Deletions that are more than allowed within the period.
    pub over_limit: Vec<RouteStep>,
    /// Deletions of orphans that lack a proof.
    pub withheld: Vec<WithheldOrphan>,
    /// Instances that the cloud must be asked about before those can be judged.
    pub unasked: BTreeSet<String>,
    /// Entries of another cluster with the same id, and what proves it.
    pub other_clusters: Vec<(String, String)>,
}

impl RoutePlan {
    /// The plan as people read it.
    pub fn lines(&self) -> Vec<PlanLine> {
        let line = |node: &str, kind, text: String| PlanLine::new("route", &node, kind, &text);
        let step = |it: &RouteStep, more: &str| {
            let line = line(it.node(), LineKind::Step, format!("{it}{more}"));
            PlanLine { destroys: it.deletes(), ..line }
        };
        let problems = self.problems.iter().map(|(node, it)| line(node, LineKind::Problem, it.to_string()));
        let over_limit = self.over_limit.iter().map(|it| line(it.node(), LineKind::Withheld, it.to_string()));
        let orphans = self.withheld.iter().map(|it| line(it.step.node(), LineKind::Withheld, it.to_string()));
        let steps = self.steps.iter().map(|it| step(it, ""));
        let unconfirmed = self.unconfirmed.iter().map(|it| step(it, "; done if a second look confirms it"));
        problems.chain(over_limit).chain(orphans).chain(steps).chain(unconfirmed).collect()
    }
}
