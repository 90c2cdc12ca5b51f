//! Writes to nodes that must not overwrite what somebody else wrote in the meantime.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock;
use crate::cluster::{Cluster, ObjectKind, Patch, PatchFormat, Regarding, Store, WriteFault};
use crate::fence::{Fence, NotLeading};
use crate::plan::inputs::{NodeView, ObjectKey};

/// Longest time that one write to a node is planned for; the client cuts it off when its permit ends.
const LONGEST: Duration = Duration::from_secs(5);

/// How often a write is tried against a fresh view before the next pass takes over.
const TRIES: usize = 4;

impl From<NotLeading> for WriteFault {
    fn from(_: NotLeading) -> Self {
        Self::NotLeading
    }
}

/// The object that events about a node refer to.
pub(in crate::controllers) fn regarding(view: &NodeView) -> Regarding {
    Regarding { kind: "Node", key: ObjectKey::cluster(&view.name), uid: view.uid.clone() }
}

/// Where and how a patch is applied.
#[derive(Clone, Copy, Debug)]
pub(in crate::controllers) enum Target {
    /// The node itself, by merge patch.
    Node,
    /// `status`, lists replaced.
    Status,
    /// `status`, conditions merged by type.
    Conditions,
}

impl Target {
    const fn parts(self) -> (Option<&'static str>, PatchFormat) {
        match self {
            Self::Node => (None, PatchFormat::Merge),
            Self::Status => (Some("status"), PatchFormat::Merge),
            Self::Conditions => (Some("status"), PatchFormat::Strategic),
        }
    }
}

/// The node as the watch shows it, if that is later than what is known: a write to what is not the latest is refused, and
/// costs a read and another write.
pub(in crate::controllers) fn watched_since(nodes: &Store<NodeView>, known: &NodeView) -> Option<Arc<NodeView>> {
    nodes.get(&ObjectKey::cluster(&known.name)).filter(|watched| is_later(watched, known))
}

/// Whether a view is of the same node as another one, and certainly later.
pub(super) fn is_later(view: &NodeView, than: &NodeView) -> bool {
    let version = |view: &NodeView| view.resource_version.parse::<u64>().ok();
    view.uid == than.uid && version(view).zip(version(than)).is_some_and(|(view, than)| view > than)
}

/// Patches a node as it is, whatever changed since it was read; gives it as it is then, if the answer says so.
pub(in crate::controllers) async fn patch(
    cluster: &Cluster,
    fence: &Fence,
    node: &str,
    target: Target,
    body: &Value,
) -> Result<Option<NodeView>, WriteFault> {
    let (subresource, format) = target.parts();
    let key = ObjectKey::cluster(node);
    let permit = fence.permit(LONGEST)?;
    cluster.patch_node(&permit, Patch { kind: ObjectKind::Node, key: &key, subresource, format, body }).await
}

/// Asks `change` for the patch that a node needs, and applies it only to what it was asked about: the node as it is
/// known, and if that proves to be old, the node read anew. Does nothing if `change` has nothing to say about a node that
/// was read. Gives the node as it is then, if the answer says so.
///
/// # Errors
/// [`WriteFault::Gone`] also if the node was replaced by another one of the same name.
pub(in crate::controllers) async fn patch_fresh(
    cluster: &Cluster,
    fence: &Fence,
    known: &NodeView,
    target: Target,
    change: impl Fn(&NodeView) -> Option<Value> + Send,
) -> Result<Option<NodeView>, WriteFault> {
    let mut conflict = WriteFault::Gone;
    if let Some(mut body) = change(known).filter(|_| !known.resource_version.is_empty()) {
        body["metadata"]["resourceVersion"] = json!(known.resource_version);
        match patch(cluster, fence, &known.name, target, &body).await {
            Err(WriteFault::Conflict(_)) => {}
            ended => return ended,
        }
    }
    for _ in 0..TRIES {
        let fresh = cluster.read_node(&known.name).await?.filter(|fresh| fresh.uid == known.uid);
        let fresh = fresh.ok_or(WriteFault::Gone)?;
        let Some(mut body) = change(&fresh) else { return Ok(Some(fresh)) };
        body["metadata"]["resourceVersion"] = json!(fresh.resource_version);
        match patch(cluster, fence, &known.name, target, &body).await {
            Err(WriteFault::Conflict(why)) => conflict = WriteFault::Conflict(why),
            ended => return ended,
        }
    }
    Err(conflict)
}

/// Deletes a node, if it is still the one that was judged and `still` holds for it as it is now.
pub(in crate::controllers) async fn delete(
    cluster: &Cluster,
    fence: &Fence,
    known: &NodeView,
    still: impl Fn(&NodeView) -> bool + Send,
) -> Result<bool, WriteFault> {
    let fresh = cluster.read_node(&known.name).await?.filter(|fresh| fresh.uid == known.uid);
    if !still(&fresh.ok_or(WriteFault::Gone)?) {
        return Ok(false);
    }
    let permit = fence.permit(LONGEST)?;
    cluster.delete_node(&permit, &known.name, &known.uid).await.map(|()| true)
}

/// A patch of the condition `NetworkUnavailable`.
pub(in crate::controllers) fn network_unavailable(status: bool, reason: &str, message: &str) -> Value {
    // Old API servers parse whole seconds only.
    let now = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({ "status": { "conditions": [{
        "type": "NetworkUnavailable",
        "status": if status { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }] } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_later_is_written_to() {
        let node = |uid: &str, version: &str| NodeView {
            name: "a".into(),
            uid: uid.into(),
            resource_version: version.into(),
            ..NodeView::default()
        };
        let store = Store::new();
        store.apply(ObjectKey::cluster("a"), node("u1", "10"));
        let since = |known: &NodeView| watched_since(&store, known).is_some();
        assert!(since(&node("u1", "9")));
        assert!(!since(&node("u1", "10")) && !since(&node("u1", "11")), "the watch is behind our own write");
        assert!(!since(&node("u2", "9")), "another node of the same name");
        assert!(!since(&node("u1", "")), "versions that are no numbers have no order");
    }
}
