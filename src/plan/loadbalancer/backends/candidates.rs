//! Nodes as load balancers see them: classified once for all Services with the same rules.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use super::nodes::{NodeRole, Unusable, is_excluded, is_healthy, permits, problems, role};
use super::{BackendRules, NodeRules, unready};
use crate::plan::inputs::{Endpoint, NodeView};
use crate::plan::loadbalancer::model::BackendKey;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::zones;

/// Where the nodes come from.
pub trait KnownNodes: Debug + Send + Sync {
    /// All nodes under these rules.
    fn candidates(&self, rules: &BackendRules) -> Arc<Candidates>;
}

impl<T: AsRef<[Arc<NodeView>]> + Debug + Send + Sync> KnownNodes for T {
    fn candidates(&self, rules: &BackendRules) -> Arc<Candidates> {
        Arc::new(Candidates::new(rules.nodes.clone(), self.as_ref()))
    }
}

/// A node that may receive traffic, or runs pods that may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) role: NodeRole,
    pub(super) is_ready: bool,
    /// Why it is no backend although it is ready.
    unusable: Option<Unusable>,
    /// Whether it takes part at all. Otherwise it only counts for a blackout.
    takes_part: bool,
    /// Whether it counts for a blackout.
    may_serve: bool,
    /// Load balancers that are still to be made may be placed by it.
    zone: Option<String>,
}

impl Candidate {
    fn of(node: &NodeView, rules: &NodeRules) -> Option<Self> {
        let (is_ready, is_permitted) = (is_healthy(node), permits(node, rules));
        // Pods that are attached directly do not depend on what may be a node's backend.
        let takes_part =
            (is_permitted || (rules.pods_only && !is_ready)) && (is_ready || unready::may_still_serve(node));
        // Without conditions a node was never ready.
        let may_serve = is_permitted && !is_excluded(node) && node.has_conditions;
        if !takes_part && !may_serve {
            return None;
        }
        let (role, unusable) = match role(node, rules) {
            Ok(role) => (role, None),
            Err(why) => (NodeRole::Excluded, Some(why).filter(|_| is_ready)),
        };
        let zone = zones::of(node).map(str::to_owned);
        Some(Self { role, is_ready, unusable, takes_part, may_serve, zone })
    }
}

/// All nodes under the same rules. Services that have these share it.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    rules: NodeRules,
    /// Shared with other versions: one is made with every change, and reconciles that run keep theirs.
    nodes: BTreeMap<Arc<str>, Arc<Candidate>>,
    /// Ready ones that are backends, in order and at no port; possibly the same twice. The same as before, if none changed.
    pub(super) servers: Arc<Vec<BackendKey>>,
    /// Unready ones, by name.
    pub(super) unready: Vec<Arc<str>>,
    /// What is said of those that are no backends.
    pub(super) warnings: Vec<ServiceProblem>,
    /// Whether it is not known which nodes there are: not one is shown, which no cluster with pods has, or one that may be a
    /// backend cannot be decoded.
    pub(super) lacks_nodes: bool,
    /// Whether there are nodes that may serve, but not one of them is ready.
    pub(super) blackout: bool,
}

/// What became of candidates.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangedCandidates {
    /// Names of the nodes.
    pub names: Vec<Arc<str>>,
    /// Whether the change concerns Services that have nothing to do with these nodes.
    pub concerns_all: bool,
}

impl Candidates {
    /// All nodes under these rules.
    pub fn new(rules: NodeRules, nodes: &[Arc<NodeView>]) -> Self {
        let known =
            nodes.iter().filter_map(|node| Some((node.name.as_str().into(), Candidate::of(node, &rules)?.into())));
        let mut candidates = Self { nodes: known.collect(), rules, ..Self::default() };
        candidates.sum_up(nodes.is_empty());
        candidates
    }

    /// Looks again at nodes that changed, by name; `None` if one is gone. `lacks_nodes` if it is not known which there are.
    pub fn update(
        self: &mut Arc<Self>,
        nodes: &[(&str, Option<Arc<NodeView>>)],
        lacks_nodes: bool,
    ) -> ChangedCandidates {
        let now = |node: &Option<Arc<NodeView>>| {
            node.as_ref().and_then(|node| Candidate::of(node, &self.rules).map(Arc::new))
        };
        let changed: Vec<(&str, Option<Arc<Candidate>>)> = nodes
            .iter()
            .map(|(name, node)| (*name, now(node)))
            .filter(|(name, now)| self.nodes.get(*name) != now.as_ref())
            .collect();
        if changed.is_empty() && lacks_nodes == self.lacks_nodes {
            return ChangedCandidates::default();
        }
        let before = (self.lacks_nodes, self.blackout);
        let this = Arc::make_mut(self);
        let mut names = Vec::new();
        for (name, now) in changed {
            let name: Arc<str> = name.into();
            names.push(name.clone());
            match now {
                Some(candidate) => drop(this.nodes.insert(name, candidate)),
                None => drop(this.nodes.remove(&name)),
            }
        }
        this.sum_up(lacks_nodes);
        ChangedCandidates { names, concerns_all: before != (this.lacks_nodes, this.blackout) }
    }

    fn sum_up(&mut self, lacks_nodes: bool) {
        self.lacks_nodes = lacks_nodes;
        let mut may_serve = self.nodes.values().filter(|it| it.may_serve).peekable();
        self.blackout = may_serve.peek().is_some() && !may_serve.any(|it| it.is_ready);
        let (ready, unready): (Vec<_>, Vec<_>) =
            self.nodes.iter().filter(|(_, it)| it.takes_part).partition(|(_, it)| it.is_ready);
        let mut servers: Vec<_> = ready.into_iter().filter_map(|(_, it)| it.role.server(0)).collect();
        servers.sort();
        if servers != *self.servers {
            self.servers = Arc::new(servers);
        }
        self.unready = unready.into_iter().map(|(name, _)| name.clone()).collect();
        self.warnings = self.warnings_of(self.nodes.keys().map(|name| &**name));
    }

    /// What is said of those of these nodes, in the order of their names, that are no backends.
    pub(super) fn warnings_of<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<ServiceProblem> {
        problems(names.filter_map(|name| Some((name, self.get(name)?.unusable.as_ref()?))), &self.rules.region)
    }

    /// Whether a pod runs outside of any instance.
    pub(super) fn is_virtual(&self, endpoint: &Endpoint) -> bool {
        let node = endpoint.node.as_deref().and_then(|node| self.get(node));
        node.is_some_and(|candidate| candidate.role == NodeRole::Virtual)
    }

    /// A node that takes part.
    pub(super) fn get(&self, node: &str) -> Option<&Candidate> {
        self.nodes.get(node).map(|it| &**it).filter(|it| it.takes_part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::tests::{edited, node};
    use crate::plan::inputs::{Condition, ConditionStatus, NodeAddress, Taint};
    use crate::plan::node::SHUTDOWN;

    type Edit = fn(&mut NodeView);

    /// What becomes of the candidates when the first of two nodes is edited.
    fn after(rules: &NodeRules, edit: Edit) -> ChangedCandidates {
        let nodes = [node("n1", "i-1"), node("n2", "i-2")];
        let mut candidates = Arc::new(Candidates::new(rules.clone(), &nodes));
        let changed = edited(&nodes[0], edit);
        let now = candidates.update(&[("n1", Some(changed.clone()))], false);
        let anew = Candidates::new(rules.clone(), &[changed, nodes[1].clone()]);
        assert_eq!(format!("{candidates:?}"), format!("{anew:?}"), "one by one or all together");
        now
    }

    fn unready(node: &mut NodeView) {
        node.ready = Some(Condition { status: ConditionStatus::False, reason: String::new(), since: None });
    }

    #[test]
    fn a_node_becomes_another_candidate_only_by_what_the_rules_look_at() {
        let any = NodeRules::default();
        let blue = NodeRules { labels: [("color".to_owned(), "blue".to_owned())].into(), ..NodeRules::default() };
        let cordoned = NodeRules { exclude_cordoned: true, ..NodeRules::default() };
        let pods = NodeRules { pods_only: true, ..NodeRules::default() };
        let by_address = NodeRules { by_address: true, ..NodeRules::default() };
        let color: Edit = |it| drop(it.labels.insert("color".into(), "blue".into()));
        let address: Edit = |it| {
            it.addresses = vec![NodeAddress { kind: "InternalIP".to_owned(), address: "10.9.9.9".to_owned() }];
        };
        let changes: [(&NodeRules, Edit, bool); 14] = [
            (&any, |it| "77".clone_into(&mut it.resource_version), false),
            (&any, |it| it.provided_node_ip = Some("10.0.0.1".to_owned()), false),
            (&any, |it| it.network_unavailable = it.ready.clone(), false),
            (&any, |it| it.taints.push(Taint { key: "any".to_owned(), ..Taint::default() }), false),
            (&any, color, false),
            (&blue, color, true),
            (&any, |it| it.unschedulable = true, false),
            (&cordoned, |it| it.unschedulable = true, true),
            (&any, address, false),
            (&by_address, address, true),
            (&any, unready, true),
            (&pods, unready, true),
            (&any, |it| it.provider_id = "cn-hangzhou.i-9".to_owned(), true),
            (&pods, |it| it.provider_id = "cn-hangzhou.i-9".to_owned(), false),
        ];
        for (index, (rules, edit, is_other)) in changes.into_iter().enumerate() {
            let now = after(rules, edit);
            let names: Vec<&str> = now.names.iter().map(|name| &**name).collect();
            assert_eq!(
                (names, now.concerns_all),
                (if is_other { vec!["n1"] } else { vec![] }, false),
                "change {index}"
            );
        }
    }

    #[test]
    fn the_first_node_and_the_last_ready_one_concern_all() {
        let (first, second) = (node("n1", "i-1"), node("n2", "i-2"));
        let mut candidates = Arc::new(Candidates::new(NodeRules::default(), &[]));
        assert!(candidates.lacks_nodes);
        let changes: [(&str, Option<Arc<NodeView>>, bool); 6] = [
            ("n1", Some(first.clone()), true),
            ("n2", Some(second.clone()), false),
            ("n1", Some(edited(&first, unready)), false),
            ("n2", Some(edited(&second, unready)), true),
            ("n2", None, false),
            ("n1", None, true),
        ];
        for (name, node, concerns_all) in changes {
            let is_last = name == "n1" && node.is_none();
            let now = candidates.update(&[(name, node)], is_last);
            assert_eq!((now.names.len(), now.concerns_all), (1, concerns_all), "{name}: {candidates:?}");
        }
        let stopped = |it: &mut NodeView| it.taints.push(Taint { key: SHUTDOWN.to_owned(), ..Taint::default() });
        let gone = edited(&edited(&first, unready), stopped);
        candidates.update(&[("n1", Some(gone)), ("n2", Some(second))], false);
        assert!(candidates.get("n1").is_none() && candidates.servers.len() == 1, "{candidates:?}");
    }

    #[test]
    fn a_change_leaves_what_others_still_use_as_it_is() {
        let nodes = [node("n1", "i-1")];
        let mut candidates = Arc::new(Candidates::new(NodeRules::default(), &nodes));
        let used = candidates.clone();
        candidates.update(&[("n1", Some(edited(&nodes[0], unready)))], false);
        assert_eq!((used.servers.len(), candidates.servers.len()), (1, 0));
    }
}
