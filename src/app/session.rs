//! What depends on one API server and one location in the cloud: the connections, the election and the controllers.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::page::LiveSession;
use crate::alibaba::metadata::Metadata;
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::alibaba::{CallState, CloudClient, CredentialState, location};
use crate::cluster::{Cluster, Regarding};
use crate::config::Config;
use crate::controllers::{Clients, Context};
use crate::fence::{Fence, fence};
use crate::plan::inputs::ObjectKey;
use crate::plan::location::CloudLocation;
use crate::reload::{ConfigChange, ReloadOutcome};
use crate::supervisor::{Supervisor, wanted};
use crate::telemetry::health::Health;
use crate::telemetry::http::StatusPages;
use crate::telemetry::tasks;

/// Time between updates of the readiness checks.
const HEALTH_PERIOD: Duration = Duration::from_secs(1);
/// Backoff between tries to connect: doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long writing the queued events may take when the controllers have ended.
const FLUSH: Duration = Duration::from_secs(2);
/// The same for the events about the end of the election.
const LAST_FLUSH: Duration = Duration::from_secs(1);
/// The component that events about the configuration name.
const COMPONENT: &str = "alicloud-ccm";

/// One session after another until `stop`: a new one begins when the configuration changes what a session is built on.
#[derive(Clone)]
pub(super) struct Sessions {
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) pages: StatusPages,
    /// What the page at `/` shows.
    pub(super) shown: LiveSession,
    /// Results of reloads, each of which becomes an event.
    pub(super) reloads: Arc<Mutex<mpsc::Receiver<ReloadOutcome>>>,
    pub(super) stop: CancellationToken,
}

impl Sessions {
    /// Returns early if a session ends by itself, which is a defect.
    pub(super) async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let first = self.config.borrow_and_update().clone();
            let clients = tokio::select! {
                () = self.stop.cancelled() => return,
                () = reconnects(self.config.clone(), &first) => continue,
                clients = connect(&first, &self.pages.health) => clients,
            };
            info!(
                region = clients.location.region,
                vpc = clients.location.vpc_id,
                cluster_id = first.cloud.cluster_id,
                "connected"
            );
            if !self.session(clients, first).await {
                error!(code = "ACCM0702", "the session ended abnormally; a new one starts");
                self.pages.health.not_ready("leader", "the session ended abnormally");
                return;
            }
        }
    }

    /// Takes part in the election and runs the controllers until `stop`, or until a change of the configuration needs another
    /// session; false if it ended by itself. Ends in order in each case, so that no lease is renewed without controllers.
    async fn session(&self, clients: Clients, first: Arc<Config>) -> bool {
        let Clients { cluster, cloud, location } = clients;
        let (health, tasks) = (&self.pages.health, self.pages.health.tasks());
        self.pages.authorizer.connect(Some(Arc::new(cluster.clone())));
        // A session shows its parts only what they can follow: they keep the values that they began with until they have ended.
        let (shown, config) = watch::channel(first.clone());
        let (keeper, fence) = fence();
        // The election outlives the controllers, which may write until they have ended.
        let election_end = CancellationToken::new();
        let candidate = (cluster.clone(), config.clone(), keeper, election_end.clone());
        let election = tasks.supervise("election", &election_end, move || {
            let (cluster, config, keeper, end) = candidate.clone();
            cluster.elect(config, keeper, end)
        });
        let end = self.stop.child_token();
        let context = Context {
            cluster: cluster.clone(),
            cloud: cloud.clone(),
            fence: fence.clone(),
            location: Arc::new(location),
            config,
            alarms: health.alarms().clone(),
            stop: end.clone(),
        };
        *self.shown.write() = Some(context.clone());
        let checked = (health.clone(), cluster.clone(), cloud, fence);
        let checks = tasks.supervise("readiness checks", &end, move || {
            let (health, cluster, cloud, fence) = checked.clone();
            async move { update_health(&health, &cluster, &cloud, &fence).await }
        });
        let reported = (context.clone(), self.reloads.clone());
        let reports = tasks.supervise("events about reloads", &end, move || {
            let (context, reloads) = reported.clone();
            async move { write_events(&context, &mut *reloads.lock().await).await }
        });
        let mut supervisor = Supervisor::new(context.clone(), tasks.clone());
        let serve = async {
            tokio::select! {
                () = self.follow(&mut supervisor, &context, &shown) => {}
                () = tasks::injected("session") => {}
            }
        };
        // The panic itself is in the log already.
        let ended = AssertUnwindSafe(serve).catch_unwind().await;
        end.cancel();
        drop((checks, reports));
        supervisor.stop().await;
        self.pages.authorizer.connect(None);
        *self.shown.write() = None;
        cluster.flush_events(FLUSH).await;
        election_end.cancel();
        let _ = election.await;
        // The release of the lease is an event too.
        cluster.flush_events(LAST_FLUSH).await;
        ended.is_ok()
    }

    /// Keeps the jobs of the configuration running, and shows changes of it to them, until `stop` or a change that cannot be
    /// applied to this session.
    async fn follow(&self, supervisor: &mut Supervisor, context: &Context, shown: &watch::Sender<Arc<Config>>) {
        let (mut config, first) = (self.config.clone(), shown.borrow().clone());
        let mut now = first.clone();
        loop {
            supervisor.apply(&wanted(&now)).await;
            tokio::select! {
                () = self.stop.cancelled() => return,
                Ok(()) = config.changed() => {}
            }
            now = config.borrow_and_update().clone();
            if ConfigChange::between(&first, &now).reconnects() {
                info!("the connection or the location in the cloud changed: a new session starts");
                return;
            }
            context.cloud.reconfigure(&now.cloud);
            context.cluster.reconfigure(&now.kubernetes);
            shown.send_replace(now.clone());
        }
    }
}

/// Completes with a change for which a session has to start anew.
async fn reconnects(mut config: watch::Receiver<Arc<Config>>, first: &Config) {
    if config.wait_for(|now| ConfigChange::between(first, now).reconnects()).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Keeps the readiness checks current. Never returns.
async fn update_health(health: &Health, cluster: &Cluster, cloud: &CloudClient, fence: &Fence) {
    let mut ticks = tokio::time::interval(HEALTH_PERIOD);
    loop {
        ticks.tick().await;
        let status = cluster.status();
        if status.ready() {
            health.ready("kubernetes", "");
        } else {
            health.not_ready("kubernetes", status.to_string());
        }
        match (cloud.credential_state(), cloud.call_state()) {
            (CredentialState { usable: false, last_error }, _) => {
                health.not_ready("cloud", last_error.unwrap_or_default());
            }
            (_, CallState { works: true, failing }) => health.ready("cloud", failing),
            (_, CallState { failing, .. }) => health.not_ready("cloud", failing),
        }
        health.ready("leader", if fence.leads() { "this replica leads" } else { "standby" });
    }
}

/// Writes an event about each reload, as long as there can be one.
async fn write_events(context: &Context, reloads: &mut mpsc::Receiver<ReloadOutcome>) {
    while let Some(outcome) = reloads.recv().await {
        let Some(host) = host(&context.cluster, &context.location).await else { continue };
        let events = context.cluster.events();
        match outcome.event() {
            (true, reason, message) => events.warning(COMPONENT, &host, reason, message),
            (false, reason, message) => events.normal(COMPONENT, &host, reason, message),
        }
    }
}

/// The Pod that runs this process, as the environment says; otherwise the node of this name or instance, if there is one.
async fn host(cluster: &Cluster, location: &CloudLocation) -> Option<Regarding> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let (Some(name), Some(namespace)) = (variable("POD_NAME"), variable("POD_NAMESPACE")) {
        let uid = variable("POD_UID").unwrap_or_default();
        return Some(Regarding { kind: "Pod", key: ObjectKey::new(namespace, name), uid });
    }
    let nodes = cluster.nodes();
    tokio::time::timeout(LONGEST_RETRY, nodes.store.synced()).await.ok()?;
    let host_name = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
    let name = variable("NODE_NAME").unwrap_or_else(host_name);
    let nodes = nodes.store.all();
    let on_instance = |provider_id: &str| {
        let instance = location.instance_id.as_deref();
        instance.is_some_and(|instance| provider_id.rsplit(['.', '/']).next() == Some(instance))
    };
    let named = nodes.iter().find(|node| node.name == name);
    let node = named.or_else(|| nodes.iter().find(|node| on_instance(&node.provider_id)))?;
    Some(Regarding { kind: "Node", key: ObjectKey::cluster(&node.name), uid: node.uid.clone() })
}

/// Waits for the API server and for the metadata service, side by side.
async fn connect(config: &Config, health: &Health) -> Clients {
    const NO_ANSWER: &str = "waiting for the API server to answer";
    health.not_ready("kubernetes", NO_ANSWER);
    health.not_ready("cloud", "the location in the cloud is not known yet");
    let cluster = async {
        let cluster =
            retry(health, "kubernetes", || async { Cluster::connect(&config.kubernetes, health.tasks()).await }).await;
        // The reasons of earlier tries are over.
        health.not_ready("kubernetes", NO_ANSWER);
        cluster.wait_ready().await;
        cluster
    };
    let cloud = async {
        let transport: Arc<dyn Transport> = Arc::new(retry(health, "cloud", || async { HttpTransport::new() }).await);
        let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
        let location = retry(health, "cloud", || location::resolve(&config.cloud, &metadata)).await;
        let cloud = CloudClient::new(transport, &config.cloud, &location.region);
        health.ready("cloud", "");
        (cloud, location)
    };
    let (cluster, (cloud, location)) = tokio::join!(cluster, cloud);
    Clients { cluster, cloud, location }
}

/// Tries until it succeeds; the check `name` says why the last try failed.
async fn retry<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
    health: &Health,
    name: &str,
    attempt: impl Fn() -> F,
) -> T {
    let mut pause = FIRST_RETRY;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => {
                warn!(code = "ACCM0743", "{name}: {error}; retried in {} s", pause.as_secs());
                health.not_ready(name, error.to_string());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}
