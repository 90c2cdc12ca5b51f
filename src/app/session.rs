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
use crate::alibaba::{CallState, CloudClient, CredentialState, RateLimiter, location, queue_end};
use crate::clock;
use crate::cluster::{Cluster, Regarding, host_name};
use crate::config::Config;
use crate::config::watch::Reload;
use crate::controllers::{Clients, Context};
use crate::fence::fence;
use crate::plan::inputs::ObjectKey;
use crate::plan::location::CloudLocation;
use crate::reload::ConfigChange;
use crate::supervisor::{Supervisor, wanted};
use crate::telemetry::health::Health;
use crate::telemetry::http::StatusPages;
use crate::telemetry::tasks;

/// Time between updates of the readiness checks.
const HEALTH_PERIOD: Duration = Duration::from_secs(1);
/// Backoff between tries to connect: doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long writing the queued events may take when the controllers and the election have ended.
const FLUSH: Duration = Duration::from_secs(3);
/// Time between looks at the calls that wait.
const QUEUE_PERIOD: Duration = Duration::from_secs(5);
/// Calls that wait for less are no event.
const LONG_QUEUE: Duration = Duration::from_secs(300);
/// The component that events about the process name.
const COMPONENT: &str = "alicloud-ccm";

/// Results of reloads, also for the task that starts again.
type Reloads = Arc<Mutex<mpsc::Receiver<Reload<ConfigChange>>>>;

/// One session after another until `stop`: a new one begins when the configuration changes what a session is built on.
#[derive(Clone)]
pub(super) struct Sessions {
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) pages: StatusPages,
    /// What the page at `/` shows.
    pub(super) shown: LiveSession,
    /// Results of reloads, each of which becomes an event.
    pub(super) reloads: Reloads,
    pub(super) stop: CancellationToken,
    /// Counts calls across sessions: the quotas are the account's.
    pub(super) rate_limiter: RateLimiter,
}

impl Sessions {
    /// Returns early if a session ends by itself, which is a defect.
    pub(super) async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let first = self.config.borrow_and_update().clone();
            let (clients, metadata) = tokio::select! {
                () = self.stop.cancelled() => return,
                () = reconnects(self.config.clone(), &first) => continue,
                connected = connect(&first, &self.pages.health, &self.rate_limiter) => connected,
            };
            info!(
                region = clients.location.region,
                vpc = clients.location.vpc_id,
                cluster_id = first.cloud.cluster_id,
                "connected"
            );
            if !self.session(clients, &metadata, first).await {
                error!(code = "ACCM0702", "the session ended abnormally; a new one starts");
                self.pages.health.not_ready("leader", "the session ended abnormally");
                return;
            }
        }
    }

    /// Takes part in the election and runs the controllers until `stop`, or until a change of the configuration needs another
    /// session; false if it ended by itself. Ends in order in each case, so that no lease is renewed without controllers.
    async fn session(&self, clients: Clients, metadata: &Metadata, first: Arc<Config>) -> bool {
        let Clients { cluster, cloud, location } = clients;
        let (health, tasks) = (&self.pages.health, self.pages.health.tasks());
        self.pages.authorizer.connect(Some(Arc::new(cluster.clone())));
        // A session shows its parts only what they can follow: they keep the values that they began with until they have ended.
        let (shown, config) = watch::channel(first.clone());
        let (keeper, fence) = fence();
        // The election outlives the controllers, which may write until they have ended.
        let election_end = CancellationToken::new();
        let (candidate, followed, released) = (cluster.clone(), config.clone(), election_end.clone());
        let election = tasks.supervise("election", &election_end, move || {
            candidate.clone().elect(followed.clone(), keeper.clone(), released.clone())
        });
        let end = self.stop.child_token();
        let context = Context {
            cluster: cluster.clone(),
            cloud,
            fence,
            location: Arc::new(location),
            config,
            alarms: health.alarms().clone(),
            stop: end.clone(),
        };
        *self.shown.write() = Some(context.clone());
        let (updated, checked) = (health.clone(), context.clone());
        let checks = tasks.supervise("readiness checks", &end, move || update_health(updated.clone(), checked.clone()));
        let (reported, reloads) = (context.clone(), self.reloads.clone());
        let reports =
            tasks.supervise("events about reloads", &end, move || write_events(reported.clone(), reloads.clone()));
        let mut supervisor = Supervisor::new(context.clone(), tasks.clone());
        let serve = async {
            tokio::select! {
                () = self.follow(&mut supervisor, &context, &shown) => {}
                () = location::more_is_known(&first.cloud, metadata, &context.location) => {
                    info!("the metadata service tells more of the location in the cloud now: a new session starts");
                }
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
        election_end.cancel();
        let _ = election.await;
        // The next leader does not wait for events, and the release of the lease is one too.
        cluster.flush_events(FLUSH).await;
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
async fn update_health(health: Health, Context { cluster, cloud, fence, .. }: Context) {
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
            // A standby calls nothing: what the last calls of its own term came to says nothing of the next ones.
            _ if !fence.leads() => health.ready("cloud", ""),
            (CredentialState { usable: false, last_error }, _) => {
                health.not_ready("cloud", last_error.unwrap_or_default());
            }
            (_, CallState { works: true, failing }) => health.ready("cloud", failing),
            (_, CallState { failing, .. }) => health.not_ready("cloud", failing),
        }
        health.ready("leader", if fence.leads() { "this replica leads" } else { "standby" });
    }
}

/// Writes an event about each reload, and about calls that wait for long. Never returns.
async fn write_events(context: Context, reloads: Reloads) {
    let mut reloads = reloads.lock().await;
    let (mut ticks, mut queue) = (tokio::time::interval(QUEUE_PERIOD), LongQueue::default());
    loop {
        let (is_warning, reason, message) = tokio::select! {
            Some(outcome) = reloads.recv() => outcome.event(),
            _ = ticks.tick() => match queue.news(queue_end(&context.cloud.rates_in_use())) {
                Some(message) => (true, "CallsWaitForQuota", message),
                None => continue,
            },
        };
        let Some(host) = host(&context.cluster, &context.location).await else { continue };
        let events = context.cluster.events();
        match is_warning {
            true => events.warning(COMPONENT, &host, reason, message),
            false => events.normal(COMPONENT, &host, reason, message),
        }
    }
}

/// The calls that wait for quotas, as the last look found them.
#[derive(Default)]
struct LongQueue {
    end: Duration,
    is_reported: bool,
}

impl LongQueue {
    /// What there is to report: once, when the queue is long and does not grow any more, until all that waits is done.
    fn news(&mut self, now: Option<(Duration, String)>) -> Option<String> {
        let (end, text) = now.unwrap_or_default();
        let grows = end > std::mem::replace(&mut self.end, end);
        self.is_reported &= !end.is_zero();
        if end < LONG_QUEUE || grows || std::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        let at = clock::now().checked_add(end).map(|at| at.strftime("%F %H:%M UTC").to_string()).unwrap_or_default();
        let message = format!("Calls to the cloud wait. {text}. They are done at about {at}");
        warn!(code = "ACCM0005", "{message}");
        Some(message)
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
    let name = variable("NODE_NAME").unwrap_or_else(|| host_name().to_lowercase());
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
async fn connect(config: &Config, health: &Health, rate_limiter: &RateLimiter) -> (Clients, Metadata) {
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
        let cloud = CloudClient::limited_by(rate_limiter.clone(), transport, &config.cloud, &location.region);
        health.ready("cloud", "");
        (cloud, location, metadata)
    };
    let (cluster, (cloud, location, metadata)) = tokio::join!(cluster, cloud);
    (Clients { cluster, cloud, location }, metadata)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_queue_is_reported_once_when_it_has_stopped_growing_and_again_after_its_end() {
        let mut queue = LongQueue::default();
        let mut news = |minutes: u64| {
            let found = (minutes > 0).then(|| (Duration::from_secs(60 * minutes), format!("{minutes} min")));
            queue.news(found)
        };
        assert_eq!((news(0), news(3), news(3)), (None, None, None), "that is soon");
        assert_eq!((news(10), news(20)), (None, None), "it grows");
        let text = news(20).unwrap();
        assert!(text.contains("20 min") && text.ends_with(" UTC"), "{text}");
        assert_eq!((news(19), news(4), news(9), news(8)), (None, None, None, None), "it is the same episode");
        assert_eq!((news(0), news(6)), (None, None));
        assert!(news(6).is_some(), "another one");
    }
}
