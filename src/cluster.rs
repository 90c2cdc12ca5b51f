//! Everything that talks to Kubernetes.
//!
//! Start with [`Cluster::connect`]. Reading goes through [`Watched`] stores, which never wait for the API server;
//! writing takes a [`Permit`] and is bounded by it; [`Events`] are written in the background; [`elect`] decides who leads.
//! Nothing here fails because no API server is there yet: requests report it, watches go on trying.

mod connect;
mod events;
#[cfg(test)]
mod fake;
mod lease;
mod limits;
mod reflector;
mod requests;
mod reviews;
mod status;
mod store;
mod views;
mod watch;
mod writes;

pub use connect::ConnectError;
pub use events::{Events, Regarding};
pub use lease::elect;
pub use status::{ClusterStatus, WatchStatus};
pub use store::{Dirty, Known, Store, View};
pub use writes::{Kind, PatchKind, WriteFault};

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::config::checked::Kubernetes;
use crate::fence::Permit;
use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, PodView, ServiceView};
use reflector::{ByService, Intake, SLICES, Single, WHOLE};
use requests::Requests;
use status::Health;
use watch::Resource;

/// A connection to the API server, with its watches. Cheap to clone; the last clone ends everything in the background.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: Requests,
    events: Events,
    nodes: Slot<NodeView>,
    services: Slot<ServiceView>,
    endpoints: Slot<EndpointsView>,
    /// The API server is of version 1.this, once it has said so.
    minor: OnceLock<u32>,
    /// Ends with this value.
    _background: Vec<Task>,
}

/// A store that is kept filled by a watch as long as any clone of this handle lives.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    /// The objects.
    pub store: Arc<Store<V>>,
    _watch: Arc<Watch<V>>,
}

/// Closes the watch when the last handle goes.
#[derive(Debug)]
struct Watch<V> {
    kind: &'static str,
    store: Arc<Store<V>>,
    health: Arc<Health>,
    _task: Task,
}

impl<V> Drop for Watch<V> {
    fn drop(&mut self) {
        self.health.watch_closed(self.kind);
    }
}

/// A task in the background that ends when this is dropped.
#[derive(Debug)]
struct Task(AbortHandle);

impl Task {
    fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// At most one open watch of a kind.
#[derive(Debug)]
struct Slot<V> {
    kind: &'static str,
    open: Mutex<Weak<Watch<V>>>,
}

impl<V: View> Slot<V> {
    fn new(kind: &'static str) -> Self {
        Self { kind, open: Mutex::new(Weak::new()) }
    }

    /// `scope` are the Services on which it depends what is kept.
    fn handle(
        &self,
        requests: &Requests,
        scope: Option<Watched<ServiceView>>,
        resources: impl FnOnce(&Arc<Store<V>>) -> Vec<Resource>,
    ) -> Watched<V> {
        let mut open = self.open.lock();
        let watch = open.upgrade().unwrap_or_else(|| {
            let store = Arc::new(Store::new());
            let health = requests.health().clone();
            health.watch_opened(self.kind);
            let resources = resources(&store);
            let task = Task::spawn(watch::keep_filled(self.kind, requests.clone(), resources, scope));
            let watch = Arc::new(Watch { kind: self.kind, store, health, _task: task });
            *open = Arc::downgrade(&watch);
            watch
        });
        Watched { store: watch.store.clone(), _watch: watch }
    }
}

impl Cluster {
    /// Prepares a connection as configured. Sends nothing: an API server that does not answer yet is no error.
    ///
    /// # Errors
    /// [`ConnectError`] if no or no usable configuration is found; its text says where it was looked for.
    pub async fn connect(config: &Kubernetes) -> Result<Self, ConnectError> {
        connect::connect(config).await
    }

    /// Over a client that exists already, such as one to a simulated API server; only pace and timeout of `config` count.
    #[must_use]
    pub fn with_client(client: kube::Client, config: &Kubernetes) -> Self {
        let requests = Requests::new(client, config.qps, config.burst, config.timeout, Arc::new(Health::default()));
        Self::assemble(requests, Vec::new())
    }

    fn assemble(requests: Requests, mut background: Vec<Task>) -> Self {
        let events = Events::new();
        background.push(Task::spawn(events::write_all(events.clone(), requests.clone())));
        let (nodes, services, endpoints) = (Slot::new("Node"), Slot::new("Service"), Slot::new("Endpoints"));
        Self {
            inner: Arc::new(Inner {
                requests,
                events,
                nodes,
                services,
                endpoints,
                minor: OnceLock::new(),
                _background: background,
            }),
        }
    }

    /// Waits until the API server answers, however long that takes; gives its version, such as `v1.34.1`.
    pub async fn wait_ready(&self) -> String {
        let version = connect::wait_ready(&self.inner.requests).await;
        if let Some(minor) = minor(&version) {
            self.inner.minor.get_or_init(|| minor);
        }
        version
    }

    /// Whether the API server was of version 1.`minor` or newer when it first answered; false while that is unknown.
    #[must_use]
    pub fn is_at_least(&self, minor: u32) -> bool {
        self.inner.minor.get().is_some_and(|is| *is >= minor)
    }

    /// Later requests go at this pace and within this time. Where the API server is stays as it is.
    pub fn reconfigure(&self, config: &Kubernetes) {
        self.inner.requests.reconfigure(config);
    }

    /// How the connection is doing.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        self.inner.requests.health().snapshot()
    }

    /// Nodes, watched from the first handle to the last.
    #[must_use]
    pub fn nodes(&self) -> Watched<NodeView> {
        self.inner.nodes.handle(&self.inner.requests, None, |store| {
            let intake = Single::new(store.clone(), |object| views::node(object).map(Some));
            vec![resource("/api/v1/nodes", "nodes", intake)]
        })
    }

    /// Services of type `LoadBalancer`, or that carry a finalizer or label of ours; watched from the first handle to the last.
    #[must_use]
    pub fn services(&self) -> Watched<ServiceView> {
        self.inner.services.handle(&self.inner.requests, None, |store| {
            let intake =
                Single::new(store.clone(), |object| Ok(Some(views::service(object)?).filter(views::concerns_us)));
            vec![resource("/api/v1/services", "services", intake)]
        })
    }

    /// Endpoints of the Services that [`services`](Self::services) gives, by Service, from whatever the server offers
    /// (EndpointSlice v1, v1beta1, Endpoints).
    #[must_use]
    pub fn endpoints(&self) -> Watched<EndpointsView> {
        let services = self.services();
        let scope = services.store.clone();
        self.inner.endpoints.handle(&self.inner.requests, Some(services), |store| {
            let intake = |shape| ByService::new(store.clone(), scope.clone(), shape);
            let plural = "endpointslices.discovery.k8s.io";
            vec![
                resource("/apis/discovery.k8s.io/v1/endpointslices", plural, intake(SLICES)),
                resource("/apis/discovery.k8s.io/v1beta1/endpointslices", plural, intake(SLICES)),
                resource("/api/v1/endpoints", "endpoints", intake(WHOLE)),
            ]
        })
    }

    /// Reads one Service from the API server itself, not from the watch; `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteFault`], also for a Service that cannot be understood.
    pub async fn read_service(&self, key: &ObjectKey) -> Result<Option<ServiceView>, WriteFault> {
        let object = writes::read(&self.inner.requests, Kind::Service, key).await?;
        object.map(views::service).transpose().map_err(|error| unreadable(&error))
    }

    /// Reads one node from the API server itself, not from the watch; `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteFault`], also for a node that cannot be understood.
    pub async fn read_node(&self, name: &str) -> Result<Option<NodeView>, WriteFault> {
        let object = writes::read(&self.inner.requests, Kind::Node, &ObjectKey::cluster(name)).await?;
        object.map(views::node).transpose().map_err(|error| unreadable(&error))
    }

    /// Reads one pod from the API server itself; pods are never watched. `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteFault`], also for a pod that cannot be understood.
    pub async fn read_pod(&self, key: &ObjectKey) -> Result<Option<PodView>, WriteFault> {
        let object = writes::read(&self.inner.requests, Kind::Pod, key).await?;
        object.map(views::pod).transpose().map_err(|error| unreadable(&error))
    }

    /// Reads the pods of a namespace that have all of these labels, page by page, keeping only what decides.
    ///
    /// # Errors
    /// [`WriteFault`], also for a pod that cannot be understood.
    pub async fn list_pods(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<PodView>, WriteFault> {
        let mut pods = Vec::new();
        writes::list_pods(&self.inner.requests, namespace, labels, |object| {
            pods.push(views::pod(object).map_err(|error| unreadable(&error))?);
            Ok(())
        })
        .await?;
        Ok(pods)
    }

    /// Patches an object or its `status`. Put `metadata.resourceVersion` into the body to fail on concurrent change.
    ///
    /// # Errors
    /// [`WriteFault`]; after [`WriteFault::Unavailable`] the patch may have taken effect.
    pub async fn patch(
        &self,
        permit: &Permit,
        kind: Kind,
        key: &ObjectKey,
        subresource: Option<&'static str>,
        patch: PatchKind,
        body: &serde_json::Value,
    ) -> Result<(), WriteFault> {
        writes::patch(&self.inner.requests, permit, kind, key, subresource, patch, body).await.map(drop)
    }

    /// Patches a node or its `status`, as [`Self::patch`] does; gives the node as it is then, `None` if the answer does
    /// not say.
    ///
    /// # Errors
    /// [`WriteFault`]; after [`WriteFault::Unavailable`] the patch may have taken effect.
    pub async fn patch_node(
        &self,
        permit: &Permit,
        name: &str,
        subresource: Option<&'static str>,
        patch: PatchKind,
        body: &serde_json::Value,
    ) -> Result<Option<NodeView>, WriteFault> {
        let key = ObjectKey::cluster(name);
        let node = writes::patch(&self.inner.requests, permit, Kind::Node, &key, subresource, patch, body).await?;
        Ok(views::node(node).ok().filter(|node| node.name == name))
    }

    /// Replaces the finalizers of a Service as it was at `resource_version`; a conflict if it has changed since.
    ///
    /// # Errors
    /// [`WriteFault`]; after [`WriteFault::Unavailable`] the patch may have taken effect.
    pub async fn set_finalizers(
        &self,
        permit: &Permit,
        key: &ObjectKey,
        resource_version: &str,
        finalizers: Vec<String>,
    ) -> Result<(), WriteFault> {
        let body = serde_json::json!({
            "metadata": { "resourceVersion": resource_version, "finalizers": finalizers }
        });
        self.patch(permit, Kind::Service, key, None, PatchKind::Merge, &body).await
    }

    /// Deletes a node, only if it still has this UID.
    ///
    /// # Errors
    /// [`WriteFault`]; [`WriteFault::Conflict`] if another node has taken the name.
    pub async fn delete_node(&self, permit: &Permit, name: &str, uid: &str) -> Result<(), WriteFault> {
        writes::delete(&self.inner.requests, permit, Kind::Node, &ObjectKey::cluster(name), uid).await
    }

    /// Where to report to users.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// Gives events that are still to be written this much time; for an orderly stop.
    pub async fn flush_events(&self, limit: Duration) {
        self.inner.events.flush(limit).await;
    }
}

fn resource(path: &'static str, plural: &'static str, intake: impl Intake + 'static) -> Resource {
    Resource { path, plural, intake: Box::new(intake) }
}

/// `34` of `v1.34.1-aliyun.1`.
fn minor(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("v1.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn unreadable(error: &serde_json::Error) -> WriteFault {
    WriteFault::Unavailable(format!("the object cannot be read: {error}"))
}

#[cfg(test)]
mod tests;
