//! What a node is to load balancers, by what it says of itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::NodeRules;
use crate::plan::inputs::{Condition, ConditionStatus, NodeView};
use crate::plan::loadbalancer::model::BackendKey;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::provider_id::{NotEcs, ProviderId};

/// A node that may receive traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeRole {
    /// Runs pods outside of any ECS instance; its pods are attached by their network interfaces.
    Virtual,
    /// An ECS instance.
    Ecs(Arc<str>),
    /// A node that is attached by its address.
    Address(Arc<str>),
    /// Runs pods, but is no backend itself.
    Excluded,
}

impl NodeRole {
    /// The node as a backend.
    pub(super) fn server(&self, port: u16) -> Option<BackendKey> {
        match self {
            Self::Ecs(instance) => Some(BackendKey::ecs(instance.clone(), port)),
            Self::Address(address) => Some(BackendKey::ip(address.clone(), port)),
            Self::Virtual | Self::Excluded => None,
        }
    }
}

/// Why a node cannot be a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Its instance is in another region.
    Elsewhere,
    /// It has no internal IPv4 address.
    NoAddress,
    /// Its providerID names no instance.
    Id(NotEcs),
}

/// What a node is to the load balancer, if it is ready.
pub(super) fn role(node: &NodeView, rules: &NodeRules) -> Result<NodeRole, Unusable> {
    if is_virtual(node) {
        return Ok(NodeRole::Virtual);
    }
    if rules.pods_only || is_excluded(node) {
        return Ok(NodeRole::Excluded);
    }
    if rules.by_address {
        let address = internal_address(node).ok_or(Unusable::NoAddress)?;
        return Ok(NodeRole::Address(address.into()));
    }
    let id = ProviderId::parse(&node.provider_id).map_err(Unusable::Id)?;
    if rules.region.is_empty() || id.region == rules.region {
        Ok(NodeRole::Ecs(id.instance.into()))
    } else {
        Err(Unusable::Elsewhere)
    }
}

pub(super) fn is_healthy(node: &NodeView) -> bool {
    is_virtual(node) || (node.has_conditions && node.ready.as_ref().is_none_or(is_true))
}

/// Taints by which programs announce that they are about to delete a node: the cluster autoscaler and Karpenter.
const LEAVING: [&str; 2] = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];

/// Whether people and annotations let a node serve.
pub(super) fn permits(node: &NodeView, rules: &NodeRules) -> bool {
    let labelled = rules.labels.iter().all(|(key, value)| node.label(key) == Some(value.as_str()));
    let master = rules.exclude_masters && node.labels.contains_key("node-role.kubernetes.io/master");
    let going = node.taints.iter().any(|taint| LEAVING.contains(&taint.key.as_str()));
    let cordoned = node.unschedulable && rules.exclude_cordoned;
    labelled && !master && !going && !cordoned
}

fn is_true(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True
}

fn is_virtual(node: &NodeView) -> bool {
    node.label("type") == Some("virtual-kubelet")
}

/// Nodes that are kept out of load balancers, though pods on them may still be attached by themselves.
pub(super) fn is_excluded(node: &NodeView) -> bool {
    const LABELS: [&str; 4] = [
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "alpha.service-controller.kubernetes.io/exclude-balancer",
        "service.beta.kubernetes.io/exclude-node",
        "service.alibabacloud.com/exclude-node",
    ];
    let labelled = LABELS.iter().any(|label| node.labels.contains_key(*label));
    labelled || node.is_replaced || node.provider_id.starts_with("ack-hybrid://")
}

/// The first address by which other nodes reach it.
fn internal_address(node: &NodeView) -> Option<&str> {
    let is_ipv4 = |address: &str| address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4());
    let mut addresses = node.addresses.iter().filter(|address| address.kind == "InternalIP");
    addresses.find(|address| is_ipv4(&address.address)).map(|address| address.address.as_str())
}

/// What is said of nodes that cannot be backends: one problem for each cause.
pub(super) fn problems<'a>(
    unusable: impl Iterator<Item = (&'a str, &'a Unusable)>,
    region: &str,
) -> Vec<ServiceProblem> {
    let mut causes: BTreeMap<u8, (Vec<&str>, &Unusable)> = BTreeMap::new();
    for (name, why) in unusable {
        let cause = match why {
            Unusable::NoAddress => 0,
            Unusable::Id(NotEcs::Empty) => 1,
            Unusable::Id(NotEcs::Malformed(_)) => 2,
            Unusable::Id(NotEcs::Foreign(_)) => 3,
            Unusable::Elsewhere => 4,
        };
        causes.entry(cause).or_insert_with(|| (Vec::new(), why)).0.push(name);
    }
    causes.into_values().map(|(nodes, why)| problem(&nodes, why, region)).collect()
}

fn problem(nodes: &[&str], why: &Unusable, region: &str) -> ServiceProblem {
    const LEFT_OUT: &str = "the load balancer leaves out";
    let (first, more) = (nodes.iter().take(5).copied().collect::<Vec<_>>().join(", "), nodes.len().saturating_sub(5));
    let list = if more > 0 { format!("{first} and {more} more") } else { first };
    let (word, them) = if nodes.len() > 1 { ("nodes", "them") } else { ("node", "it") };
    let id = format!("{word} {list} spec.providerID");
    match why {
        Unusable::NoAddress => ServiceProblem::required(
            format!("{word} {list} status.addresses"),
            format!("server-group-type: ip needs an IPv4 address of type InternalIP; {LEFT_OUT} {them}"),
        ),
        Unusable::Id(NotEcs::Empty) => ServiceProblem::invalid(id, "", format!("{}; {LEFT_OUT} {them}", NotEcs::Empty)),
        Unusable::Id(why @ (NotEcs::Malformed(given) | NotEcs::Foreign(given))) => {
            ServiceProblem::invalid(id, given, format!("{why}; {LEFT_OUT} {them}; {}", NotEcs::REMEDY))
        }
        Unusable::Elsewhere => {
            let rule = format!("must be in region {region}, where the load balancer is; {LEFT_OUT} {them}");
            ServiceProblem::invalid(ServiceProblem::ABOUT_NODES, list, rule)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_left_out_for_one_cause_are_told_in_one_line() {
        let names: Vec<String> = (1..=30).map(|number| format!("k{number:02}")).collect();
        let why: Vec<Unusable> =
            names.iter().map(|name| Unusable::Id(NotEcs::Foreign(format!("k3s://{name}")))).collect();
        let others = [("t1", &Unusable::NoAddress), ("t2", &Unusable::Elsewhere), ("t3", &Unusable::NoAddress)];
        let told = problems(names.iter().map(String::as_str).zip(&why).chain(others), "cn-a");
        let texts: Vec<String> = told.iter().map(ToString::to_string).collect();
        assert!(told.len() == 3 && told.iter().all(ServiceProblem::is_about_nodes), "{texts:#?}");
        assert!(texts[0].starts_with("nodes t1, t3 status.addresses"), "{texts:#?}");
        let foreign = "nodes k01, k02, k03, k04, k05 and 25 more spec.providerID: Invalid value: \"k3s://k01\": ";
        assert!(texts[1].starts_with(foreign) && texts[1].contains("restart the kubelet"), "{texts:#?}");
    }
}
