//! Wires the parts, starts them in order, and ends them in order.
//!
//! From the first moment health is served; everything else waits for what it needs and says what that is. A changed
//! configuration reaches the parts that it concerns. Only what everything else hangs on (the connection to the API
//! server, the place in the cloud) makes the inner part start anew, in the same process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::alibaba::metadata::Metadata;
use crate::alibaba::place::{self, Place};
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::alibaba::{Cloud, CredentialState};
use crate::cluster::{Cluster, elect};
use crate::config::watch::{Pace, Reload, Watch};
use crate::config::{Config, Loaded, Origin, checked};
use crate::controllers::Context;
use crate::fence::{Fence, fence};
use crate::observe::health::Health;
use crate::observe::http::{self, Pages};
use crate::observe::logs::Logs;
use crate::observe::metrics;
use crate::observe::notify::ServiceManager;
use crate::supervisor::{Supervisor, wanted};

/// Time between looks at what readiness depends on.
const HEALTH_PERIOD: Duration = Duration::from_secs(1);
/// Time between tries of what the start needs; doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long the events that are still under way may take at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// If the signals or the listener cannot be set up; everything later is waited for.
pub async fn run(origin: Origin, loaded: Loaded) -> std::io::Result<()> {
    let logs = Logs::start(&loaded.config.log);
    let stop = CancellationToken::new();
    on_signals(stop.clone())?;
    info!(version = env!("CARGO_PKG_VERSION"), file = %loaded.path.display(), "starting");

    let pages = Pages::default();
    let mut server = Server::start(&loaded.config.server, &pages).await?;
    let (sender, config) = watch::channel(Arc::new(loaded.config.clone()));
    show(&pages, &loaded);
    let manager = ServiceManager::of_environment();
    manager.ready();
    let telling = tokio::spawn(manager.clone().keep_told(pages.health.clone()));

    let inner = tokio::spawn(inner(config, pages.clone(), stop.clone()));
    let mut watch = Watch::start(origin, loaded, Pace::default());
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        let outcome = tokio::select! {
            () = stop.cancelled() => break,
            _ = hangup.recv() => {
                manager.reloading();
                watch.trigger().reload();
                continue;
            }
            outcome = watch.next() => match outcome {
                Some(outcome) => outcome,
                // The watch never ends by itself; without it, the configuration stays as it is.
                None => std::future::pending().await,
            },
        };
        match outcome {
            Reload::Unchanged => {
                metrics::config_reload("unchanged");
                info!("the configuration is unchanged");
            }
            Reload::Rejected(report) => {
                metrics::config_reload("rejected");
                error!("the changed configuration is not used, the one before goes on:\n{report}");
            }
            Reload::Applied(loaded) => {
                metrics::config_reload("applied");
                let before = sender.borrow().clone();
                logs.change(&loaded.config.log);
                if before.server != loaded.config.server {
                    server.change(&loaded.config.server, &pages).await;
                }
                show(&pages, &loaded);
                info!(hash = %loaded.hash, "the changed configuration is used from now on");
                sender.send_replace(Arc::new(loaded.config));
            }
        }
        manager.ready();
    }
    info!("stopping");
    telling.abort();
    manager.stopping();
    if let Err(failure) = inner.await {
        error!(%failure, "the controllers ended abnormally");
    }
    server.stop().await;
    info!("stopped");
    Ok(())
}

/// SIGTERM and SIGINT stop in order; a second one does not wait.
fn on_signals(stop: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                warn!("a second signal: ending at once");
                std::process::exit(1);
            }
            stop.cancel();
        }
    });
    Ok(())
}

/// Starts everything behind the health server, and starts it anew when what it hangs on changes.
async fn inner(config: watch::Receiver<Arc<Config>>, pages: Pages, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let term = stop.child_token();
        let basis = Basis::of(&config.borrow());
        tokio::join!(world(config.clone(), &pages.health, &term), async {
            let mut config = config.clone();
            loop {
                tokio::select! {
                    () = term.cancelled() => return,
                    changed = config.changed() => if changed.is_err() { return },
                }
                if Basis::of(&config.borrow()) != basis {
                    info!("the connection or the place in the cloud changed: starting anew");
                    term.cancel();
                }
            }
        });
    }
}

/// What everything else hangs on.
#[derive(Debug, PartialEq)]
struct Basis {
    kubernetes: checked::Kubernetes,
    place: [Option<String>; 3],
    metadata: String,
}

impl Basis {
    fn of(config: &Config) -> Self {
        let cloud = &config.cloud;
        Self {
            kubernetes: config.kubernetes.clone(),
            place: [cloud.region.clone(), cloud.vpc_id.clone(), cloud.zone_id.clone()],
            metadata: cloud.endpoints.metadata.clone(),
        }
    }
}

/// Connects, takes part in the election, and runs the controllers until `term` ends.
async fn world(mut config: watch::Receiver<Arc<Config>>, health: &Health, term: &CancellationToken) {
    let first = config.borrow_and_update().clone();
    let connected = tokio::select! {
        () = term.cancelled() => None,
        connected = connect(&first, health) => Some(connected),
    };
    let Some((cluster, cloud, place)) = connected else { return };
    info!(region = place.region, vpc = place.vpc_id, cluster_id = first.cloud.cluster_id, "connected");

    let (keeper, fence) = fence();
    // The election outlives the controllers: they may write until they have ended.
    let election_stop = CancellationToken::new();
    let election = tokio::spawn(elect(cluster.clone(), config.clone(), keeper, election_stop.clone()));
    let context = Context {
        cluster: cluster.clone(),
        cloud: cloud.clone(),
        fence: fence.clone(),
        place: Arc::new(place),
        config: config.clone(),
        stop: term.clone(),
    };
    let mut supervisor = Supervisor::new(context);
    supervisor.apply(&wanted(&first)).await;
    loop {
        tokio::select! {
            () = term.cancelled() => break,
            () = supervisor.watch() => {}
            () = watch_health(health, &cluster, &cloud, &fence) => {}
            changed = config.changed() => {
                if changed.is_err() {
                    break;
                }
                let now = config.borrow_and_update().clone();
                cloud.reconfigure(&now.cloud);
                let transitions = supervisor.apply(&wanted(&now)).await;
                for job in &transitions.stop {
                    info!(%job, "switched off by the configuration");
                }
            }
        }
    }
    supervisor.stop().await;
    cluster.flush_events(FLUSH).await;
    election_stop.cancel();
    if let Err(failure) = election.await {
        error!(%failure, "the election ended abnormally; the lease runs out by itself");
    }
}

/// Waits for the API server and for what the metadata service must tell, side by side.
async fn connect(config: &Config, health: &Health) -> (Cluster, Cloud, Place) {
    let cluster = async {
        let cluster = patiently(health, "kubernetes", || async { Cluster::connect(&config.kubernetes).await }).await;
        health.not_ready("kubernetes", "waiting for the API server to answer");
        cluster.wait_ready().await;
        health.ready("kubernetes", "");
        cluster
    };
    let cloud = async {
        let transport = patiently(health, "cloud", || async {
            HttpTransport::new().map(|transport| Arc::new(transport) as Arc<dyn Transport>)
        })
        .await;
        let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
        let place = patiently(health, "cloud", || place::resolve(&config.cloud, &metadata)).await;
        let cloud = Cloud::new(transport, &config.cloud, &place.region);
        (cloud, place)
    };
    let (cluster, (cloud, place)) = tokio::join!(cluster, cloud);
    (cluster, cloud, place)
}

/// Tries until it succeeds, telling each time what stands in the way.
async fn patiently<T, E: std::fmt::Display, F: Future<Output = Result<T, E>>>(
    health: &Health,
    name: &str,
    attempt: impl Fn() -> F,
) -> T {
    let mut pause = FIRST_RETRY;
    loop {
        match attempt().await {
            Ok(value) => {
                health.ready(name, "");
                return value;
            }
            Err(error) => {
                warn!("{name}: {error}; trying again in {} s", pause.as_secs());
                health.not_ready(name, error.to_string());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

/// Keeps the readiness checks true. Never returns.
async fn watch_health(health: &Health, cluster: &Cluster, cloud: &Cloud, fence: &Fence) {
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
        health.ready("leader", if fence.leads() { "this copy leads" } else { "standby" });
    }
}

/// Shows the running configuration, without secrets.
fn show(pages: &Pages, loaded: &Loaded) {
    let page = json!({
        "file": loaded.path,
        "hash": loaded.hash,
        "since": crate::clock::now().to_string(),
        "config": loaded.config,
    });
    *pages.configz.write() = format!("{page:#}\n");
}

/// The health server, which can move to another address.
struct Server {
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Server {
    async fn start(settings: &checked::Server, pages: &Pages) -> std::io::Result<Self> {
        let mut server = Self { running: None };
        if settings.port != 0 {
            let listener = TcpListener::bind((settings.address, settings.port)).await.map_err(|error| {
                let text = format!(
                    "cannot listen on server.address {} server.port {}: {error}; choose another port, or 0 for none",
                    settings.address, settings.port
                );
                std::io::Error::new(error.kind(), text)
            })?;
            let stop = CancellationToken::new();
            let task = tokio::spawn(http::serve(listener, pages.clone(), stop.clone()));
            server.running = Some((stop, task));
        }
        Ok(server)
    }

    /// Moves to another address; stays where it is if that cannot be had.
    async fn change(&mut self, settings: &checked::Server, pages: &Pages) {
        match Self::start(settings, pages).await {
            Ok(new) => std::mem::replace(self, new).stop().await,
            Err(error) => error!("{error}; health stays where it was"),
        }
    }

    async fn stop(self) {
        if let Some((stop, task)) = self.running {
            stop.cancel();
            let _ = task.await;
        }
    }
}
