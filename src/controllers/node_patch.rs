//! Writes to nodes that must not overwrite what other programs wrote in the meantime.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::clock;
use crate::cluster::{Cluster, Patch, PatchFormat, Store, WriteFault, is_newer_version};
use crate::fence::{Fence, NotLeading, WRITE_TIME};
use crate::plan::inputs::{NodeView, ObjectKey, ObjectKind};
use crate::plan::route::condition::ConditionContent;

/// How often a write is tried against a fresh view before the next reconcile takes over.
const TRIES: usize = 4;

impl From<NotLeading> for WriteFault {
    fn from(_: NotLeading) -> Self {
        Self::NotLeading
    }
}

/// Where and how a patch is applied.
#[derive(Clone, Copy, Debug)]
pub(super) enum PatchTarget {
    /// The node itself, by merge patch.
    Node,
    /// `status`, lists replaced.
    Status,
    /// `status`, conditions merged by type.
    Conditions,
}

impl PatchTarget {
    const fn parts(self) -> (Option<&'static str>, PatchFormat) {
        match self {
            Self::Node => (None, PatchFormat::Merge),
            Self::Status => (Some("status"), PatchFormat::Merge),
            Self::Conditions => (Some("status"), PatchFormat::Strategic),
        }
    }
}

/// The node as the watch shows it, if that is newer than what is known: a write to a stale node is refused, and costs a read
/// and another write.
pub(super) fn watched_since(nodes: &Store<NodeView>, known: &NodeView) -> Option<Arc<NodeView>> {
    nodes.get(&ObjectKey::cluster(&known.name)).filter(|watched| is_newer(watched, known))
}

/// Whether a view is of the same node as another one, and certainly newer.
pub(super) fn is_newer(view: &NodeView, than: &NodeView) -> bool {
    view.uid == than.uid && is_newer_version(&view.resource_version, &than.resource_version)
}

/// Writes to nodes, each with a permit of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePatcher<'a> {
    pub cluster: &'a Cluster,
    pub fence: &'a Fence,
}

impl NodePatcher<'_> {
    /// Patches a node whatever changed since it was read; gives it as it is then, if the answer says so.
    pub(super) async fn patch(
        &self,
        node: &str,
        target: PatchTarget,
        body: &Value,
    ) -> Result<Option<NodeView>, WriteFault> {
        let (subresource, format) = target.parts();
        let key = ObjectKey::cluster(node);
        let permit = self.fence.permit(WRITE_TIME)?;
        self.cluster.patch_node(&permit, Patch { kind: ObjectKind::Node, key: &key, subresource, format, body }).await
    }

    /// Asks `change` for the patch that a node needs, and applies it only to what it was asked about: the node as it is
    /// known, and if that proves to be stale, the node read anew. Does nothing if `change` gives no patch for a node that
    /// was read. Gives the node as it is then, if the answer says so.
    ///
    /// # Errors
    /// [`WriteFault::Gone`] also if the node was replaced by another one of the same name.
    pub(super) async fn patch_fresh(
        &self,
        known: &NodeView,
        target: PatchTarget,
        change: impl Fn(&NodeView) -> Option<Value> + Send,
    ) -> Result<Option<NodeView>, WriteFault> {
        let mut conflict = WriteFault::Gone;
        if let Some(mut body) = change(known).filter(|_| !known.resource_version.is_empty()) {
            body["metadata"]["resourceVersion"] = json!(known.resource_version);
            match self.patch(&known.name, target, &body).await {
                Err(WriteFault::Conflict(_)) => {}
                ended => return ended,
            }
        }
        for _ in 0..TRIES {
            let fresh = self.read(known).await?;
            let Some(mut body) = change(&fresh) else { return Ok(Some(fresh)) };
            body["metadata"]["resourceVersion"] = json!(fresh.resource_version);
            match self.patch(&known.name, target, &body).await {
                Err(WriteFault::Conflict(why)) => conflict = WriteFault::Conflict(why),
                ended => return ended,
            }
        }
        Err(conflict)
    }

    /// Deletes a node, if it is still the one that was planned and `still` holds for it as it is now.
    pub(super) async fn delete(
        &self,
        known: &NodeView,
        still: impl Fn(&NodeView) -> bool + Send,
    ) -> Result<bool, WriteFault> {
        if !still(&self.read(known).await?) {
            return Ok(false);
        }
        let permit = self.fence.permit(WRITE_TIME)?;
        self.cluster.delete_node(&permit, &known.name, &known.uid).await.map(|()| true)
    }

    async fn read(&self, known: &NodeView) -> Result<NodeView, WriteFault> {
        let fresh = self.cluster.read_node(&known.name).await?;
        fresh.filter(|fresh| fresh.uid == known.uid).ok_or(WriteFault::Gone)
    }
}

/// A patch of the condition `NetworkUnavailable`.
pub(super) fn network_unavailable(content: ConditionContent) -> Value {
    let ConditionContent { unavailable, reason, message } = content;
    let now = clock::seconds(clock::now());
    json!({ "status": { "conditions": [{
        "type": "NetworkUnavailable",
        "status": if unavailable { "True" } else { "False" },
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
    fn whatever_is_newer_is_written_to() {
        let node = |uid: &str, version: &str| NodeView {
            name: "a".into(),
            uid: uid.into(),
            resource_version: version.into(),
            ..NodeView::default()
        };
        let store = Store::default();
        store.apply(ObjectKey::cluster("a"), node("u1", "10"));
        let since = |known: &NodeView| watched_since(&store, known).is_some();
        assert!(since(&node("u1", "9")));
        assert!(!since(&node("u1", "10")) && !since(&node("u1", "11")), "the watch is behind our own write");
        assert!(!since(&node("u2", "9")), "another node of the same name");
        assert!(!since(&node("u1", "")), "versions that are no numbers have no order");
    }
}
