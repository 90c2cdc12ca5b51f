//! What a node is to load balancers, by what it says of itself.

use std::net::IpAddr;
use std::sync::Arc;

use super::NodeRules;
use crate::plan::inputs::{Condition, ConditionStatus, NodeView};
use crate::plan::provider_id::{NotEcs, ProviderId};
use crate::plan::service::model::{BackendKey, BackendKind};
use crate::plan::service::problem::ServiceProblem;

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
            Self::Ecs(instance) => {
                let (kind, server_id, server_ip) = (BackendKind::Ecs, instance.clone(), Box::default());
                Some(BackendKey { kind, server_id, server_ip, port })
            }
            Self::Address(address) => {
                let (kind, server_id, server_ip) = (BackendKind::Ip, address.clone(), (&**address).into());
                Some(BackendKey { kind, server_id, server_ip, port })
            }
            Self::Virtual | Self::Excluded => None,
        }
    }
}

/// Why a node cannot be a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Its instance is in another region.
    Elsewhere,
    /// It says too little of itself.
    Problem(ServiceProblem),
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
        let address = internal_address(node).ok_or_else(|| Unusable::Problem(no_address(node)))?;
        return Ok(NodeRole::Address(address.into()));
    }
    let id = ProviderId::parse(&node.provider_id).map_err(|why| Unusable::Problem(bad_provider_id(node, &why)))?;
    if rules.region.is_empty() || id.region == rules.region {
        Ok(NodeRole::Ecs(id.instance.into()))
    } else {
        Err(Unusable::Elsewhere)
    }
}

pub(super) fn is_healthy(node: &NodeView) -> bool {
    is_virtual(node) || (node.has_conditions && node.ready.as_ref().is_none_or(is_true))
}

/// Whether people and annotations let a node serve.
pub(super) fn permits(node: &NodeView, rules: &NodeRules) -> bool {
    let labelled = rules.labels.iter().all(|(key, value)| node.label(key) == Some(value.as_str()));
    let master = rules.exclude_masters && node.labels.contains_key("node-role.kubernetes.io/master");
    let going = node.taints.iter().any(|taint| taint.key == "ToBeDeletedByClusterAutoscaler");
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
    LABELS.iter().any(|label| node.labels.contains_key(*label)) || node.provider_id.starts_with("ack-hybrid://")
}

/// The first address by which other nodes reach it.
fn internal_address(node: &NodeView) -> Option<&str> {
    let is_ipv4 = |address: &str| address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4());
    let mut addresses = node.addresses.iter().filter(|address| address.kind == "InternalIP");
    addresses.find(|address| is_ipv4(&address.address)).map(|address| address.address.as_str())
}

fn no_address(node: &NodeView) -> ServiceProblem {
    ServiceProblem::required(
        format!("node {} status.addresses", node.name),
        "server-group-type: ip needs an IPv4 address of type InternalIP; the node is left out of the load balancer",
    )
}

/// What is said of nodes whose instances are in other regions.
pub(super) fn in_other_regions(nodes: &[&str], region: &str) -> Option<ServiceProblem> {
    let (first, more) = (nodes.iter().take(5).copied().collect::<Vec<_>>().join(", "), nodes.len().saturating_sub(5));
    (!nodes.is_empty()).then(|| {
        let given = if more > 0 { format!("{first} and {more} more") } else { first };
        let rule = format!("must be in region {region}, where the load balancer is; the others are left out of it");
        ServiceProblem::invalid("spec.providerID of nodes", given, rule)
    })
}

fn bad_provider_id(node: &NodeView, why: &NotEcs) -> ServiceProblem {
    let rule = format!("{why}; the node is left out of the load balancer");
    ServiceProblem::invalid(format!("node {} spec.providerID", node.name), &node.provider_id, rule)
}
