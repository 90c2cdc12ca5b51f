//! What depends on one API server and one location in the cloud: the connections, the election and the controllers.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::faults;
use crate::alibaba::metadata::Metadata;
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::alibaba::{CloudClient, CredentialState, location};
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

/// One session after another until `stop`: a new one begins when the configuration changes what a session is built on, and
/// when a session ends by itself.
pub(super) async fn run_sessions(
    mut config: watch::Receiver<Arc<Config>>,
    pages: StatusPages,
    mut reloads: mpsc::Receiver<ReloadOutcome>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let end = stop.child_token();
        let first = config.borrow_and_update().clone();
        let session = async {
            let connected = tokio::select! {
                () = end.cancelled() => return,
                connected = connect(&first, &pages.health) => connected,
            };
            info!(
                region = connected.location.region,
                vpc = connected.location.vpc_id,
                cluster_id = first.cloud.cluster_id,
                "connected"
            );
            run_session(connected, config.clone(), &pages, &mut reloads, &end).await;
        };
        let session = async {
            session.await;
            if !end.is_cancelled() {
                error!("the session ended abnormally; a new one starts");
                pages.health.not_ready("leader", "the session ended abnormally");
                tokio::time::sleep(FIRST_RETRY).await;
                end.cancel();
            }
        };
        tokio::join!(session, end_on_reconnect(config.clone(), &first, &end));
    }
}

/// Ends the session when a change cannot be applied to it.
async fn end_on_reconnect(mut config: watch::Receiver<Arc<Config>>, first: &Config, end: &CancellationToken) {
    let reconnects = config.wait_for(|now| ConfigChange::between(first, now).reconnects());
    tokio::select! {
        () = end.cancelled() => {}
        Ok(_) = reconnects => {
            info!("the connection or the location in the cloud changed: a new session starts");
            end.cancel();
        }
    }
}

/// Takes part in the election and runs the controllers until `end`, or until a part of the session ends by itself. Ends in
/// order in each case, so that no lease is renewed without controllers.
async fn run_session(
    clients: Clients,
    config: watch::Receiver<Arc<Config>>,
    pages: &StatusPages,
    reloads: &mut mpsc::Receiver<ReloadOutcome>,
    end: &CancellationToken,
) {
    let Clients { cluster, cloud, location } = clients;
    let health = &pages.health;
    pages.authorizer.connect(Some(Arc::new(cluster.clone())));
    let (keeper, fence) = fence();
    // The election outlives the controllers, which may write until they have ended.
    let election_end = CancellationToken::new();
    let elect = cluster.clone().elect(config.clone(), keeper, election_end.clone());
    let mut election = tokio::spawn(async {
        tokio::select! {
            () = elect => {}
            () = faults::injected("election") => {}
        }
    });
    let context = Context {
        cluster: cluster.clone(),
        cloud: cloud.clone(),
        fence: fence.clone(),
        place: Arc::new(location),
        config: config.clone(),
        alarms: health.alarms().clone(),
        stop: end.clone(),
    };
    let mut supervisor = Supervisor::new(context.clone());
    let serve = async {
        tokio::select! {
            () = end.cancelled() => {}
            _ = &mut election => error!("the election ended abnormally"),
            () = apply_changes(&mut supervisor, &context) => {}
            () = update_health(health, &cluster, &cloud, &fence) => {}
            () = write_events(&context, reloads) => {}
            () = faults::injected("session") => {}
        }
    };
    // The panic itself is in the log already.
    let _ = AssertUnwindSafe(serve).catch_unwind().await;
    supervisor.stop().await;
    pages.authorizer.connect(None);
    cluster.flush_events(FLUSH).await;
    election_end.cancel();
    if !election.is_finished() {
        let _ = election.await;
    }
    // The release of the lease is an event too.
    cluster.flush_events(LAST_FLUSH).await;
}

/// Keeps the jobs of the configuration running, and applies changes of it in place. Never returns.
async fn apply_changes(supervisor: &mut Supervisor, context: &Context) {
    let mut config = context.config.clone();
    let first = config.borrow_and_update().clone();
    supervisor.apply(&wanted(&first)).await;
    loop {
        tokio::select! {
            () = supervisor.watch() => {}
            Ok(()) = config.changed() => {
                let now = config.borrow_and_update().clone();
                // What cannot be applied in place ends the session, and the controllers with it.
                if !ConfigChange::between(&first, &now).reconnects() {
                    context.cloud.reconfigure(&now.cloud);
                    context.cluster.reconfigure(&now.kubernetes);
                    supervisor.apply(&wanted(&now)).await;
                }
            }
        }
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
        match cloud.credential_state() {
            CredentialState { usable: true, .. } => health.ready("cloud", ""),
            CredentialState { last_error, .. } => health.not_ready("cloud", last_error.unwrap_or_default()),
        }
        health.ready("leader", if fence.leads() { "this replica leads" } else { "standby" });
    }
}

/// Writes an event about each reload. Never returns.
async fn write_events(context: &Context, reloads: &mut mpsc::Receiver<ReloadOutcome>) {
    while let Some(outcome) = reloads.recv().await {
        let Some(host) = host(&context.cluster, &context.place).await else { continue };
        let events = context.cluster.events();
        match outcome.event() {
            (true, reason, message) => events.warning(COMPONENT, &host, reason, message),
            (false, reason, message) => events.normal(COMPONENT, &host, reason, message),
        }
    }
    std::future::pending().await
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
        let cluster = retry(health, "kubernetes", || async { Cluster::connect(&config.kubernetes).await }).await;
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
                warn!("{name}: {error}; retried in {} s", pause.as_secs());
                health.not_ready(name, error.to_string());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}
