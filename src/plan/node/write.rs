//! Which steps go together, and what they make of a node that may have changed since it was planned.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use super::step::{NodePlan, NodeStep};
use super::view::{UNINITIALIZED, awaits_route};
use crate::plan::inputs::{NodeAddress, NodeView, Taint};
use crate::plan::provider_id::{NotEcs, ProviderId};

/// What a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    /// `status`
    Status,
    /// The network interface, in the cloud.
    Interface,
    /// `metadata` and `spec`
    Object,
}

/// Adjacent steps that go to the same target: they are written together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWrite<'a> {
    /// Where it goes.
    pub target: WriteTarget,
    /// What it does, in order; never empty.
    pub steps: &'a [NodeStep],
}

impl fmt::Display for NodeWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        f.write_str(&steps.join(", "))
    }
}

impl NodeStep {
    const fn target(&self) -> WriteTarget {
        match self {
            Self::SetAddresses(_) | Self::AwaitRoute => WriteTarget::Status,
            Self::DisableCheck { .. } => WriteTarget::Interface,
            Self::SetMetadata { .. } | Self::AddTaint(_) | Self::RemoveTaint(_) => WriteTarget::Object,
        }
    }
}

impl NodePlan {
    /// The steps as they are written, in order.
    pub fn writes(&self) -> impl Iterator<Item = NodeWrite<'_>> {
        let groups = self.steps.chunk_by(|before, after| before.target() == after.target());
        groups.filter_map(|steps| Some(NodeWrite { target: steps.first()?.target(), steps }))
    }
}

impl<'a> NodeWrite<'a> {
    /// Without the end of initialisation; `None` if that is all there is.
    #[must_use]
    pub fn without_the_end(self) -> Option<Self> {
        let steps = self.steps.strip_suffix(&[NodeStep::RemoveTaint(UNINITIALIZED)]).unwrap_or(self.steps);
        (!steps.is_empty()).then_some(Self { steps, ..self })
    }

    /// Whether it may only be made to the very node that it was decided on. Addresses and labels alone are right whatever
    /// else changed.
    pub const fn depends(&self) -> bool {
        !matches!(self.steps, [NodeStep::SetAddresses(_) | NodeStep::SetMetadata { provider_id: None, .. }])
    }

    /// What it changes in the node as it is now; nothing that is not due (any more).
    ///
    /// # Errors
    /// [`OtherInstance`] if the node names another instance than the one that it was planned for.
    pub fn change(&self, fresh: &NodeView) -> Result<NodeChange<'a>, OtherInstance> {
        let mut change = NodeChange { taints: taints_after(fresh, self.steps), ..NodeChange::default() };
        for step in self.steps {
            match step {
                NodeStep::SetAddresses(wanted) => {
                    change.addresses = Some(wanted.as_slice()).filter(|wanted| *wanted != fresh.addresses);
                }
                NodeStep::AwaitRoute => change.awaits_route = awaits_route(fresh),
                NodeStep::SetMetadata { labels, provider_id } => {
                    let there = |(key, value): (&String, &String)| fresh.label(key) == Some(value.as_str());
                    change.labels = Some(labels).filter(|labels| !labels.iter().all(there));
                    change.provider_id = match provider_id {
                        Some(id) => first_provider_id(fresh, id)?,
                        None => None,
                    };
                }
                NodeStep::DisableCheck { .. } | NodeStep::AddTaint(_) | NodeStep::RemoveTaint(_) => {}
            }
        }
        Ok(change)
    }
}

/// The taints that a node has after these steps, or `None` if they change nothing (any more).
pub fn taints_after(view: &NodeView, steps: &[NodeStep]) -> Option<Vec<Taint>> {
    let mut taints = view.taints.clone();
    for step in steps {
        match step {
            NodeStep::AddTaint(taint) if taints.iter().all(|known| known.key != taint.key) => {
                taints.push(taint.clone());
            }
            NodeStep::RemoveTaint(key) => taints.retain(|taint| taint.key != *key),
            _ => {}
        }
    }
    (taints != view.taints).then_some(taints)
}

/// It can never be taken back, so it is written where there is none, and nowhere else.
fn first_provider_id<'a>(fresh: &NodeView, id: &'a str) -> Result<Option<&'a str>, OtherInstance> {
    match ProviderId::parse(&fresh.provider_id) {
        Err(NotEcs::Empty) => Ok(Some(id)),
        Ok(same) if same.to_string() == id => Ok(None),
        _ => Err(OtherInstance { given: fresh.provider_id.clone() }),
    }
}

/// The providerID was set by another client in the meantime.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("spec.providerID is {given} by now")]
pub struct OtherInstance {
    /// What it says.
    pub given: String,
}

/// What a write changes; what is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChange<'a> {
    /// All of `status.addresses`.
    pub addresses: Option<&'a [NodeAddress]>,
    /// Whether the condition `NetworkUnavailable` becomes true.
    pub awaits_route: bool,
    /// Labels beside those that are there.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// `spec.providerID`
    pub provider_id: Option<&'a str>,
    /// All of `spec.taints`.
    pub taints: Option<Vec<Taint>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> NodeStep {
        NodeStep::SetAddresses(vec![NodeAddress { kind: "InternalIP".into(), address: "10.0.0.1".into() }])
    }

    fn metadata(provider_id: Option<&str>) -> NodeStep {
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        NodeStep::SetMetadata { labels, provider_id: provider_id.map(str::to_owned) }
    }

    fn check() -> NodeStep {
        NodeStep::DisableCheck { eni: "eni-1".into(), region: "cn-a".into() }
    }

    fn taint(key: &str) -> Taint {
        Taint { key: key.into(), ..Taint::default() }
    }

    const END: NodeStep = NodeStep::RemoveTaint(UNINITIALIZED);

    fn object(steps: &[NodeStep]) -> NodeWrite<'_> {
        NodeWrite { target: WriteTarget::Object, steps }
    }

    #[test]
    fn a_node_is_initialised_with_one_write_of_its_status_and_one_of_itself() {
        let steps =
            vec![addresses(), NodeStep::AwaitRoute, check(), metadata(None), NodeStep::AddTaint(taint("s")), END];
        let plan = NodePlan { steps, ..NodePlan::default() };
        let writes: Vec<_> = plan.writes().map(|write| (write.target, write.steps.len())).collect();
        assert_eq!(writes, [(WriteTarget::Status, 2), (WriteTarget::Interface, 1), (WriteTarget::Object, 3)]);
        assert_eq!(NodePlan::default().writes().count(), 0);
    }

    #[test]
    fn what_holds_initialisation_back_holds_back_nothing_else() {
        assert_eq!(object(&[metadata(None), END]).without_the_end().unwrap().steps, [metadata(None)]);
        assert_eq!(object(&[END]).without_the_end(), None);
        let kept = [NodeStep::AddTaint(taint("s"))];
        assert_eq!(object(&kept).without_the_end().unwrap().steps, kept);
    }

    #[test]
    fn only_addresses_alone_and_labels_alone_fit_any_version() {
        let free = [vec![addresses()], vec![metadata(None)]];
        assert!(free.iter().all(|steps| !object(steps).depends()));
        let bound = [
            vec![addresses(), NodeStep::AwaitRoute],
            vec![NodeStep::AwaitRoute],
            vec![metadata(Some("cn-a.i-1"))],
            vec![metadata(None), END],
            vec![END],
        ];
        assert!(bound.iter().all(|steps| object(steps).depends()));
    }

    #[test]
    fn a_provider_id_is_written_where_there_is_none_and_the_rest_never_to_another_instance() {
        let steps = [metadata(Some("cn-a.i-1")), END];
        let node =
            |id: &str| NodeView { provider_id: id.into(), taints: vec![taint(UNINITIALIZED)], ..NodeView::default() };
        let change = |id: &str| object(&steps).change(&node(id)).map(|change| (change.provider_id, change.taints));
        assert_eq!(change(""), Ok((Some("cn-a.i-1"), Some(vec![]))));
        assert_eq!(change("alicloud://cn-a.i-1"), Ok((None, Some(vec![]))));
        for other in ["cn-a.i-2", "aws:///i-1"] {
            assert_eq!(change(other), Err(OtherInstance { given: other.to_owned() }));
        }
    }

    #[test]
    fn what_others_have_done_meanwhile_is_not_done_again() {
        let routed = NodeView {
            pod_cidrs: vec!["10.1.0.0/24".into()],
            network_unavailable: Some(crate::plan::inputs::Condition {
                status: crate::plan::inputs::ConditionStatus::False,
                reason: String::new(),
                since: None,
            }),
            taints: vec![taint("theirs")],
            addresses: vec![NodeAddress { kind: "InternalIP".into(), address: "10.0.0.1".into() }],
            labels: [("zone".into(), "a".into()), ("theirs".into(), "x".into())].into_iter().collect(),
            ..NodeView::default()
        };
        let status = [addresses(), NodeStep::AwaitRoute];
        assert_eq!(
            NodeWrite { target: WriteTarget::Status, steps: &status }.change(&routed),
            Ok(NodeChange::default())
        );
        assert_eq!(object(&[metadata(None), END]).change(&routed), Ok(NodeChange::default()));
        let both = [NodeStep::AddTaint(taint("s")), END];
        assert_eq!(object(&both).change(&routed).unwrap().taints, Some(vec![taint("theirs"), taint("s")]));
    }
}
