//! Everything that talks to Kubernetes.
//!
//! Start with [`Cluster::connect`]. Reading goes through [`Watched`] stores, which never wait for the API server;
//! writing takes a [`Permit`] and is bounded by it; [`Events`] are written in the background; [`Cluster::elect`] takes part in
//! the leader election. An API server that does not answer yet is no error: requests report it, watches retry.

mod connect;
mod decode;
mod events;
mod faults;
mod history;
mod lease;
mod objects;
mod reflector;
mod requests;
mod reviews;
mod status;
mod store;
mod watch;
mod watched;

pub use connect::check_kubeconfig;
pub use decode::service as read_service;
pub use events::{EVENTS_PAGE, Events, LastingEvent, Regarding, advice, event_code, without_request_ids};
pub use faults::WriteFault;
pub(crate) use faults::truncate;
pub use history::{Leader, PastEvent};
pub use lease::host_name;
pub use objects::{ObjectPath, Patch, PatchFormat};
pub use reviews::Right;
pub use status::{ClusterStatus, ElectionStatus, WatchInterruption, WatchStatus};
pub use store::{DirtyKeys, Store, StoreEntry, StoredView, is_newer_version};
pub use watched::Watched;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::config::Config;
use crate::config::checked::Kubernetes;
use crate::config::secret::Secret;
use crate::fence::{Keeper, Permit};
use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ObjectKind, PodView, ServiceView, VolumeView};
use crate::telemetry::auth::{Access, AccessReviewer};
use crate::telemetry::tasks::Tasks;
use reflector::{ENDPOINTS, EndpointsReflector, ObjectReflector, Reflector, SLICES};
use requests::Requests;
use watch::{ListWatch, WatchedCollection};
use watched::SharedWatch;

/// A connection to the API server, with its watches. Cheap to clone; the last clone ends everything in the background.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<ClusterParts>,
}

/// Time between two attempts to learn the uid of the cluster.
const IDENTIFY_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct ClusterParts {
    requests: Requests,
    events: Events,
    nodes: SharedWatch<NodeView>,
    services: SharedWatch<ServiceView>,
    endpoints: SharedWatch<EndpointsView>,
    volumes: SharedWatch<VolumeView>,
    all_services: SharedWatch<ServiceView>,
    headless_endpoints: SharedWatch<EndpointsView>,
    /// The API server is of version 1.this, once it has answered.
    minor: OnceLock<u32>,
    /// Tells this replica from all others, also if its election starts again.
    replica: Uuid,
    tasks: Tasks,
    /// Uid of the namespace `kube-system`, once it is known.
    uid: Arc<OnceLock<String>>,
    /// Set after the first attempts to read it; the task goes on if they failed.
    identified: OnceCell<Option<AbortOnDropHandle<()>>>,
    /// Ends with this value.
    _background: Vec<AbortOnDropHandle<()>>,
}

impl Cluster {
    /// Prepares a connection as configured, what it does in the background among `tasks`. Sends nothing: an API server that
    /// does not answer yet is no error.
    ///
    /// # Errors
    /// If no or no usable configuration is found; the text says where it was looked for.
    pub async fn connect(config: &Kubernetes, tasks: &Tasks) -> Result<Self, String> {
        let (requests, refresh) = connect::connect(config).await?;
        let refresh = tasks.supervise("credentials of the API server", &CancellationToken::new(), refresh);
        Ok(Self::assemble(requests, tasks, vec![refresh]))
    }

    /// Over a client that exists already, such as one to a simulated API server; only rate limit and timeout of `config`
    /// count.
    pub fn with_client(client: kube::Client, config: &Kubernetes) -> Self {
        Self::assemble(Requests::new(client, config), &Tasks::default(), Vec::new())
    }

    fn assemble(requests: Requests, tasks: &Tasks, mut background: Vec<AbortOnDropHandle<()>>) -> Self {
        let events = Events::new();
        let (queue, sender) = (events.clone(), requests.clone());
        let start = move || events::write_all(queue.clone(), sender.clone());
        background.push(tasks.supervise("events", &CancellationToken::new(), start));
        let inner = ClusterParts {
            requests,
            events,
            nodes: SharedWatch::new("Node"),
            services: SharedWatch::new("Service"),
            endpoints: SharedWatch::new("Endpoints"),
            volumes: SharedWatch::new("PersistentVolume"),
            all_services: SharedWatch::new("Service (all)"),
            headless_endpoints: SharedWatch::new("Endpoints (headless)"),
            minor: OnceLock::new(),
            replica: Uuid::new_v4(),
            tasks: tasks.clone(),
            uid: Arc::default(),
            identified: OnceCell::new(),
            _background: background,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits until the API server answers, however long that takes; gives its version, such as `v1.34.1`.
    pub async fn wait_ready(&self) -> String {
        let version = connect::wait_ready(&self.inner.requests).await;
        self.note_version(&version);
        version
    }

    /// Asks once for the version of the API server, such as `v1.34.1`; `unknown` where that may not be read.
    ///
    /// # Errors
    /// Why there is no answer, for people.
    pub async fn version(&self) -> Result<String, String> {
        let version = connect::version(&self.inner.requests).await.map_err(|fault| fault.to_string())?;
        self.note_version(&version);
        Ok(version)
    }

    /// Keeps `34` of `v1.34.1-aliyun.1`.
    fn note_version(&self, version: &str) {
        let rest = version.strip_prefix("v1.").unwrap_or_default();
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|minor| minor.parse().ok());
        if let Some(minor) = minor {
            self.inner.minor.get_or_init(|| minor);
        }
    }

    /// Whether the API server was of version 1.`minor` or newer when it first answered; false while that is unknown.
    pub fn is_at_least(&self, minor: u32) -> bool {
        self.inner.minor.get().is_some_and(|is| *is >= minor)
    }

    /// Reads what [`uid`](Self::uid) gives. After a few retries it counts as not known, and is read each minute until it is.
    pub async fn identify(&self) {
        let first = || async {
            if let Some(uid) = connect::cluster_uid(&self.inner.requests).await {
                drop(self.inner.uid.set(uid));
                return None;
            }
            let (requests, uid) = (self.inner.requests.clone(), self.inner.uid.clone());
            let start = move || identify_later(requests.clone(), uid.clone());
            Some(self.inner.tasks.supervise("uid of the cluster", &CancellationToken::new(), start))
        };
        self.inner.identified.get_or_init(first).await;
    }

    /// The uid of the namespace `kube-system`, which no other cluster has; empty as long as it may not be read, or was not asked
    /// for by [`identify`](Self::identify).
    pub fn uid(&self) -> &str {
        self.inner.uid.get().map_or("", String::as_str)
    }

    /// Later requests use this rate limit and this timeout. The address of the API server stays.
    pub fn reconfigure(&self, config: &Kubernetes) {
        self.inner.requests.reconfigure(config);
    }

    /// How the connection is doing.
    pub fn status(&self) -> ClusterStatus {
        self.inner.requests.health().snapshot()
    }

    /// Nodes, watched from the first handle to the last.
    pub fn nodes(&self) -> Watched<NodeView> {
        self.watch_objects(&self.inner.nodes, "/api/v1/nodes", |object| decode::node(object).map(Some))
    }

    /// Services of type `LoadBalancer`, or that carry a finalizer or label of ours; watched from the first handle to the last.
    pub fn services(&self) -> Watched<ServiceView> {
        self.watch_objects(&self.inner.services, "/api/v1/services", |object| {
            Ok(Some(decode::service(object)?).filter(decode::concerns_us))
        })
    }

    /// Services of every type, watched from the first handle to the last.
    pub fn all_services(&self) -> Watched<ServiceView> {
        self.watch_objects(&self.inner.all_services, "/api/v1/services", |object| decode::service(object).map(Some))
    }

    /// PersistentVolumes on cloud disks, watched from the first handle to the last.
    pub fn volumes(&self) -> Watched<VolumeView> {
        self.watch_objects(&self.inner.volumes, "/api/v1/persistentvolumes", decode::volume)
    }

    /// Objects of the core group.
    fn watch_objects<V: StoredView>(
        &self,
        watch: &SharedWatch<V>,
        path: &'static str,
        decode: reflector::Decode<V>,
    ) -> Watched<V> {
        let ClusterParts { requests, tasks, .. } = &*self.inner;
        watch.handle(requests.health(), tasks, |kind, store| {
            let (requests, store) = (requests.clone(), store.clone());
            move || {
                let reflector = ObjectReflector::new(store.clone(), decode);
                let candidates = vec![collection(path, path.trim_start_matches("/api/v1/"), reflector)];
                ListWatch { kind, requests: requests.clone(), candidates, scope: None }.run()
            }
        })
    }

    /// Endpoints of the Services that [`services`](Self::services) gives, by Service, from the first of EndpointSlice v1,
    /// v1beta1 and Endpoints that the server offers.
    pub fn endpoints(&self) -> Watched<EndpointsView> {
        self.watch_endpoints(&self.inner.endpoints, self.services(), |_| true)
    }

    /// Endpoints of headless Services, in the same way.
    pub fn headless_endpoints(&self) -> Watched<EndpointsView> {
        self.watch_endpoints(&self.inner.headless_endpoints, self.all_services(), ServiceView::is_headless)
    }

    /// Endpoints of those of `services` that `concerns` chooses.
    fn watch_endpoints(
        &self,
        watch: &SharedWatch<EndpointsView>,
        services: Watched<ServiceView>,
        concerns: fn(&ServiceView) -> bool,
    ) -> Watched<EndpointsView> {
        let ClusterParts { requests, tasks, .. } = &*self.inner;
        watch.handle(requests.health(), tasks, |kind, store| {
            let (requests, store) = (requests.clone(), store.clone());
            move || {
                let scope = || (services.store.clone(), concerns);
                let reflector = |format| EndpointsReflector::new(store.clone(), scope(), format);
                let slices = "endpointslices.discovery.k8s.io";
                let candidates = vec![
                    collection("/apis/discovery.k8s.io/v1/endpointslices", slices, reflector(SLICES)),
                    collection("/apis/discovery.k8s.io/v1beta1/endpointslices", slices, reflector(SLICES)),
                    collection("/api/v1/endpoints", "endpoints", reflector(ENDPOINTS)),
                ];
                ListWatch { kind, requests: requests.clone(), candidates, scope: Some(services.clone()) }.run()
            }
        })
    }

    /// Reads one Service from the API server itself, not from the watch; `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteFault`], also for a Service that cannot be decoded.
    pub async fn read_service(&self, key: &ObjectKey) -> Result<Option<ServiceView>, WriteFault> {
        self.read(ObjectKind::Service, key, decode::service).await
    }

    /// Whether the API server lists any Service, of whatever type. Every cluster has that of the API server itself, so a list
    /// without one is a broken list.
    pub async fn lists_any_service(&self) -> bool {
        let mut any = false;
        let take = |listed| any = matches!(listed, objects::Listed::Object(_));
        let listed = objects::list(&self.inner.requests, "/api/v1/services", "", take).await;
        listed.is_ok() && any
    }

    /// Reads one node from the API server itself, not from the watch; `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteFault`], also for a node that cannot be decoded.
    pub async fn read_node(&self, name: &str) -> Result<Option<NodeView>, WriteFault> {
        self.read(ObjectKind::Node, &ObjectKey::cluster(name), decode::node).await
    }

    /// Finds one volume in a list, as controllers need no right to get one; `None` if it does not exist, `Some(None)` if it is on no cloud disk.
    ///
    /// # Errors
    /// [`WriteFault`], also for a volume that cannot be decoded.
    pub async fn read_volume(&self, name: &str) -> Result<Option<Option<VolumeView>>, WriteFault> {
        let path = ObjectPath { api: "/api/v1", namespace: "", plural: "persistentvolumes" };
        let found = self.look_through(path, |object| object["metadata"]["name"] == name).await?.pop();
        found.map(decode::volume).transpose().map_err(|error| WriteFault::unreadable(&error))
    }

    /// The namespace of the kubeconfig's context, or of this pod.
    pub fn default_namespace(&self) -> String {
        self.inner.requests.client().default_namespace().to_owned()
    }

    /// Reads one pod from the API server itself; pods are never watched. `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteFault`], also for a pod that cannot be decoded.
    pub async fn read_pod(&self, key: &ObjectKey) -> Result<Option<PodView>, WriteFault> {
        self.read(ObjectKind::Pod, key, decode::pod).await
    }

    /// Patches an object or its `status`.
    ///
    /// # Errors
    /// [`WriteFault`]; after [`WriteFault::Unavailable`] the patch may have taken effect.
    pub async fn patch(&self, permit: &Permit, patch: Patch<'_>) -> Result<(), WriteFault> {
        objects::patch(&self.inner.requests, permit, patch).await.map(drop)
    }

    /// Patches a node, as [`Self::patch`] does; gives the node as it is afterwards, `None` if the answer does not say.
    ///
    /// # Errors
    /// [`WriteFault`]; after [`WriteFault::Unavailable`] the patch may have taken effect.
    pub async fn patch_node(&self, permit: &Permit, patch: Patch<'_>) -> Result<Option<NodeView>, WriteFault> {
        let node = objects::patch(&self.inner.requests, permit, patch).await?;
        Ok(decode::node(node).ok().filter(|node| *node.name == *patch.key.name))
    }

    /// Patches a Service, as [`Self::patch`] does; gives the Service as it is afterwards, `None` if the answer does not say.
    ///
    /// # Errors
    /// [`WriteFault`]; after [`WriteFault::Unavailable`] the patch may have taken effect.
    pub async fn patch_service(&self, permit: &Permit, patch: Patch<'_>) -> Result<Option<ServiceView>, WriteFault> {
        let service = objects::patch(&self.inner.requests, permit, patch).await?;
        Ok(decode::service(service).ok().filter(|service| service.key == *patch.key))
    }

    /// Deletes a node, only if it still has this UID.
    ///
    /// # Errors
    /// [`WriteFault`]; [`WriteFault::Conflict`] if another node has taken the name.
    pub async fn delete_node(&self, permit: &Permit, name: &str, uid: &str) -> Result<(), WriteFault> {
        objects::delete(&self.inner.requests, permit, ObjectKind::Node, &ObjectKey::cluster(name), uid).await
    }

    /// Where to report to users.
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// Gives events that are still to be written this much time; for an orderly stop.
    pub async fn flush_events(&self, limit: Duration) {
        self.inner.events.flush(limit).await;
    }

    /// Takes part in the leader election until `stop` is cancelled, then releases the lease so that another replica need not
    /// wait for it. Writes of this process must have ended by then. After a lost election it goes on as a standby.
    ///
    /// A changed `leader_election` section takes effect at once, and the election restarts. The lease is not released
    /// then: writes may be in flight. If it is still the same lease, this process finds itself as its holder.
    pub async fn elect(self, config: Receiver<Arc<Config>>, keeper: Keeper, stop: CancellationToken) {
        let ClusterParts { requests, events, replica, .. } = &*self.inner;
        lease::elect((requests, events, *replica), config, keeper, stop).await;
    }
}

impl AccessReviewer for Cluster {
    fn review(self: Arc<Self>, token: Secret, path: String) -> BoxFuture<'static, Result<Access, String>> {
        async move { reviews::review(&self.inner.requests, &token, &path).await }.boxed()
    }
}

fn collection(path: &'static str, plural: &'static str, reflector: impl Reflector + 'static) -> WatchedCollection {
    WatchedCollection { path, plural, reflector: Box::new(reflector) }
}

/// Reads the uid each [`IDENTIFY_AGAIN`] until it is known. Never returns.
async fn identify_later(requests: Requests, uid: Arc<OnceLock<String>>) {
    while uid.get().is_none() {
        tokio::time::sleep(IDENTIFY_AGAIN).await;
        if let Ok(Some(found)) = connect::try_cluster_uid(&requests).await {
            drop(uid.set(found));
        }
    }
    std::future::pending().await
}

#[cfg(test)]
pub(crate) mod tests;
