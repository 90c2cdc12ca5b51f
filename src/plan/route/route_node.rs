//! What routes depend on of a node.

use ipnet::IpNet;

use crate::plan::inputs::{Condition, NodeView};
use crate::plan::node::{NodeClass, classify, is_silent};
use crate::plan::provider_id::ProviderId;

/// A node, reduced to what its routes depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteNode {
    /// `metadata.name`
    pub name: String,
    /// The instance, if the node says which.
    pub instance: Option<String>,
    /// Pod CIDRs, host bits cleared.
    pub cidrs: Vec<IpNet>,
    /// Pod CIDRs that cannot be parsed.
    pub malformed: Vec<String>,
    /// Whether entries may be created for it.
    pub gets_routes: bool,
    /// Whether its instance is gone for good; see [`NodeView::is_replaced`].
    pub is_replaced: bool,
    /// Whether its condition is written.
    pub gets_condition: bool,
    /// `NetworkUnavailable`
    pub condition: Option<Condition>,
}

impl RouteNode {
    /// Reduces a node. Nodes that are excluded, being deleted or of unknown readiness keep their entries and get no new ones.
    pub fn of(view: &NodeView) -> Self {
        let ours = matches!(classify(view), NodeClass::Ecs(_)) && !view.deleting;
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
            gets_routes: ours && !is_silent(view),
            is_replaced: view.is_replaced,
            gets_condition: ours,
            condition: view.network_unavailable.clone(),
        }
    }

    /// Whether this is the right entry for the node.
    pub(super) fn has(&self, cidr: &IpNet, instance: &str) -> bool {
        self.cidrs.contains(cidr) && self.instance.as_deref() == Some(instance)
    }

    /// Whether its instance or its pod CIDR is still to come.
    pub(super) const fn is_incomplete(&self) -> bool {
        self.instance.is_none() || self.cidrs.is_empty()
    }
}
