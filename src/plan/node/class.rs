//! Which nodes this program may touch.

use std::fmt;

use crate::plan::inputs::NodeView;
use crate::plan::provider_id::{NotEcs, ProviderId};

/// Labels that put a node out of reach; their presence counts, not their value.
const EXCLUDE_LABELS: [&str; 2] = ["service.alibabacloud.com/exclude-node", "service.beta.kubernetes.io/exclude-node"];

/// What a node is to this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeClass {
    /// It says which ECS instance it is.
    Ecs(ProviderId),
    /// `spec.providerID` is empty: it can be looked for.
    Unidentified,
    /// It is unmanaged, on every path.
    Excluded(Exclusion),
}

/// Why a node is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It carries this label.
    Label(&'static str),
    /// A virtual node.
    VirtualKubelet,
    /// A Lingjun worker, which ECS does not know. Only its taint is removed, as with the official controller.
    LingjunWorker,
    /// Another Lingjun node.
    Lingjun,
    /// Its providerID names no ECS instance.
    ProviderId(NotEcs),
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => write!(f, "label {key} is set"),
            Self::VirtualKubelet => f.write_str("it is a virtual node"),
            Self::LingjunWorker => f.write_str(
                "it is a Lingjun node: the node controller removes its taint `uninitialized`, and neither describes the node nor \
                 deletes it",
            ),
            Self::Lingjun => f.write_str("it is a Lingjun node"),
            Self::ProviderId(not @ NotEcs::Foreign(id)) if id.starts_with("ack-hybrid://") => not.fmt(f),
            Self::ProviderId(not) => write!(f, "{not}; {}", NotEcs::REMEDY),
        }
    }
}

/// Tells what a node is. A node whose providerID parses is an ECS instance whatever product labels it carries, unless it
/// is excluded by name or virtual.
pub fn classify(view: &NodeView) -> NodeClass {
    if let Some(key) = EXCLUDE_LABELS.into_iter().find(|key| view.labels.contains_key(*key)) {
        return NodeClass::Excluded(Exclusion::Label(key));
    }
    if view.label("type") == Some("virtual-kubelet") {
        return NodeClass::Excluded(Exclusion::VirtualKubelet);
    }
    let worker = view.label("alibabacloud.com/lingjun-worker") == Some("true");
    let left_alone = view.labels.contains_key("alibabacloud.com/lingjun-tianwen-environment");
    let lingjun = worker || left_alone || view.labels.contains_key("alibabacloud.com/lingjun-nodegroup-id");
    match ProviderId::parse(&view.provider_id) {
        Ok(id) => NodeClass::Ecs(id),
        Err(not) if worker && !left_alone && not != NotEcs::Empty => NodeClass::Excluded(Exclusion::LingjunWorker),
        Err(_) if lingjun => NodeClass::Excluded(Exclusion::Lingjun),
        Err(NotEcs::Empty) => NodeClass::Unidentified,
        Err(not) => NodeClass::Excluded(Exclusion::ProviderId(not)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(provider_id: &str, labels: &[(&str, &str)]) -> NodeView {
        NodeView {
            provider_id: provider_id.to_owned(),
            labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            ..NodeView::default()
        }
    }

    #[test]
    fn instances_are_known_by_every_form_of_provider_id() {
        for id in ["cn-a.i-1", "alicloud://cn-a.i-1"] {
            assert!(matches!(classify(&node(id, &[])), NodeClass::Ecs(found) if found.instance == "i-1"), "{id}");
        }
        assert_eq!(classify(&node("", &[])), NodeClass::Unidentified);
        assert!(matches!(
            classify(&node("cn-a.i-1", &[("alibabacloud.com/lingjun-worker", "true")])),
            NodeClass::Ecs(_)
        ));
    }

    const TIANWEN: (&str, &str) = ("alibabacloud.com/lingjun-tianwen-environment", "x");

    #[test]
    fn lingjun_workers_lose_their_taint_alone() {
        let worker = node("e01-cn-xxxx", &[("alibabacloud.com/lingjun-worker", "true")]);
        assert_eq!(classify(&worker), NodeClass::Excluded(Exclusion::LingjunWorker));
        for others in [node("", &[("alibabacloud.com/lingjun-worker", "true")]), node("e01-cn-xxxx", &[TIANWEN])] {
            assert_eq!(classify(&others), NodeClass::Excluded(Exclusion::Lingjun));
        }
    }

    #[test]
    fn others_are_left_alone() {
        let cases: [(&str, &[(&str, &str)]); 8] = [
            ("cn-a.i-1", &[("service.alibabacloud.com/exclude-node", "")]),
            ("", &[("service.beta.kubernetes.io/exclude-node", "false")]),
            ("", &[("type", "virtual-kubelet")]),
            ("ack-hybrid://x.y", &[]),
            ("aws:///eu/i-1", &[]),
            ("e01-cn-xxxx", &[("alibabacloud.com/lingjun-worker", "true"), TIANWEN]),
            ("", &[TIANWEN]),
            ("i-bp1", &[]),
        ];
        for (id, labels) in cases {
            assert!(matches!(classify(&node(id, labels)), NodeClass::Excluded(_)), "{id} {labels:?}");
        }
    }
}
