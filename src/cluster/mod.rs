//! Everything that talks to Kubernetes.

mod events;
mod store;
mod writes;

pub use events::{Events, Regarding};
pub use store::{Dirty, Store};
pub use writes::{Kind, PatchKind, WriteFault};

use std::sync::Arc;

use crate::fence::Permit;
use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ServiceView};

/// A connection to the API server, with its watches. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cluster {}

/// A store that is kept filled by a watch as long as any clone of this handle lives.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    /// The objects.
    pub store: Arc<Store<V>>,
}

#[expect(clippy::unused_async, unused_variables, clippy::todo, clippy::missing_errors_doc, clippy::missing_panics_doc)]
impl Cluster {
    /// Nodes, watched from the first handle to the last.
    #[must_use]
    pub fn nodes(&self) -> Watched<NodeView> {
        todo!()
    }
    /// Services of type `LoadBalancer`, or that carry a finalizer or label of ours; watched from the first handle to the last.
    #[must_use]
    pub fn services(&self) -> Watched<ServiceView> {
        todo!()
    }
    /// Endpoints by Service, from whatever the server offers (EndpointSlice v1, v1beta1, Endpoints).
    #[must_use]
    pub fn endpoints(&self) -> Watched<EndpointsView> {
        todo!()
    }
    /// Reads one Service from the API server itself, not from the watch; `None` if it does not exist.
    pub async fn read_service(&self, key: &ObjectKey) -> Result<Option<ServiceView>, WriteFault> {
        todo!()
    }
    /// Reads one node from the API server itself, not from the watch; `None` if it does not exist.
    pub async fn read_node(&self, name: &str) -> Result<Option<NodeView>, WriteFault> {
        todo!()
    }
    /// Patches an object or its `status`. Put `metadata.resourceVersion` into the body to fail on concurrent change.
    pub async fn patch(
        &self,
        permit: &Permit,
        kind: Kind,
        key: &ObjectKey,
        subresource: Option<&'static str>,
        patch: PatchKind,
        body: &serde_json::Value,
    ) -> Result<(), WriteFault> {
        todo!()
    }
    /// Deletes a node, only if it still has this UID.
    pub async fn delete_node(&self, permit: &Permit, name: &str, uid: &str) -> Result<(), WriteFault> {
        todo!()
    }
    /// Where to report to users.
    #[must_use]
    pub fn events(&self) -> &Events {
        todo!()
    }
}
