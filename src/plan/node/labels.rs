//! Labels that describe the instance behind a node.

use std::collections::BTreeMap;

use super::class::classify;
use super::instance::Instance;
use super::problem::NodeProblem;
use crate::plan::inputs::NodeView;

/// ECS tag that names the node pool.
const NODEPOOL_TAG: &str = "ack.alibabacloud.com/nodepool-id";

/// The label that names it.
const NODEPOOL: &str = "node.alibabacloud.com/nodepool-id";

/// Labels, and what of an instance goes into them.
type Source = (&'static [&'static str], fn(&Instance) -> &str);

const LABELS: [Source; 5] = [
    (&["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"], |i| &i.instance_type),
    (&["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"], |i| &i.zone),
    (&["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"], |i| &i.region),
    (&["node.alibabacloud.com/instance-charge-type"], |i| &i.charge_type),
    (&["node.alibabacloud.com/spot-strategy"], |i| &i.spot_strategy),
];

/// The labels that come from every instance.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    LABELS.iter().flat_map(|(keys, _)| keys.iter().copied())
}

/// Whether a controller has seen the instance of a node, and described it: a kubelet does not know the type of its instance.
pub(super) fn is_described(node: &NodeView) -> bool {
    LABELS[0].0.iter().any(|key| node.labels.contains_key(*key))
}

/// Whether the labels that decide something about a node are the same before and after a change.
pub fn has_same_labels(before: &NodeView, now: &NodeView) -> bool {
    let is_same = |key| before.labels.get(key) == now.labels.get(key);
    keys().chain([NODEPOOL]).all(is_same) && classify(before) == classify(now)
}

/// The labels that a node should have. What the cloud leaves empty is not written, and no label is ever removed; what
/// the API server would refuse is left out and said, so that it cannot hold the others back.
pub(super) fn wanted(instance: &Instance) -> (BTreeMap<String, String>, Vec<NodeProblem>) {
    let described = LABELS
        .iter()
        .flat_map(|(keys, value)| keys.iter().map(|key| (*key, value(instance))))
        .filter(|(_, value)| !value.is_empty());
    let pool = instance.tags.get(NODEPOOL_TAG).map(|value| (NODEPOOL, value.as_str()));
    let mut labels = BTreeMap::new();
    let mut problems = Vec::new();
    for (key, value) in described.chain(pool) {
        if is_label_value(value) {
            labels.insert(key.to_owned(), value.to_owned());
        } else {
            problems.push(NodeProblem::LabelValue { key, value: value.to_owned() });
        }
    }
    (labels, problems)
}

fn is_label_value(value: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    value.len() <= 63
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && edge(value.bytes().next())
        && edge(value.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_labels() {
        let instance = Instance {
            instance_type: "ecs.g7.large".into(),
            zone: "cn-a-i".into(),
            region: "cn-a".into(),
            charge_type: "PostPaid".into(),
            spot_strategy: "NoSpot".into(),
            tags: [(NODEPOOL_TAG.to_owned(), "np1".to_owned())].into_iter().collect(),
            ..Instance::default()
        };
        let (labels, problems) = wanted(&instance);
        assert!(problems.is_empty());
        assert_eq!(labels.len(), 9);
        assert_eq!(labels["topology.kubernetes.io/zone"], labels["failure-domain.beta.kubernetes.io/zone"]);
        assert_eq!(labels["node.alibabacloud.com/nodepool-id"], "np1");
    }

    #[test]
    fn a_tag_that_is_no_label_value_holds_nothing_back() {
        let instance = Instance {
            zone: "cn-a-i".into(),
            tags: [(NODEPOOL_TAG.to_owned(), "not a label".to_owned())].into_iter().collect(),
            ..Instance::default()
        };
        let (labels, problems) = wanted(&instance);
        assert_eq!(labels.len(), 2, "{labels:?}");
        assert!(problems[0].to_string().contains("not a label"));
        assert!(!problems[0].blocks());
    }
}
