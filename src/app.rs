//! Wires the parts, starts them in order, and ends them in order.
//!
//! From the first moment health is served; everything else waits for what it needs and says what that is. A changed
//! configuration reaches the parts that it concerns. Only what everything else hangs on (the connection to the API
//! server, the place in the cloud) makes the inner part start anew, in the same process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::alibaba::location;
use crate::alibaba::metadata::Metadata;
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::alibaba::{CloudClient, CredentialState};
use crate::cluster::{Cluster, Regarding};
use crate::config::tls::server_config;
use crate::config::watch::{Reload, Watch, WatchPace};
use crate::config::{Config, Loaded, Origin, checked};
use crate::controllers::Context;
use crate::controllers::registry::CATALOG;
use crate::fence::{Fence, fence};
use crate::plan::inputs::ObjectKey;
use crate::plan::location::CloudLocation;
use crate::reload::{ConfigChange, ReloadOutcome};
use crate::supervisor::{Supervisor, wanted};
use crate::telemetry::health::Health;
use crate::telemetry::http::{self, Manners, Pages};
use crate::telemetry::logs::Logs;
use crate::telemetry::metrics;
use crate::telemetry::notify::ServiceManager;

/// Time between looks at what readiness depends on.
const HEALTH_PERIOD: Duration = Duration::from_secs(1);
/// Time between tries of what the start needs; doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long the events that are still under way may take at the end.
const FLUSH: Duration = Duration::from_secs(2);
/// The same for what the end of the election is told with.
const LAST_FLUSH: Duration = Duration::from_secs(1);
/// Outcomes of reloads that wait for an API server to be told to.
const WAITING_REPORTS: usize = 16;
const COMPONENT: &str = "alicloud-ccm";

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
    let mut shown = Shown::new(&loaded);
    shown.show(&pages);
    let manager = ServiceManager::of_environment();
    manager.ready();
    let telling = tokio::spawn(manager.clone().keep_told(pages.health.clone()));

    let (outcomes, reports) = mpsc::channel(WAITING_REPORTS);
    let inner = tokio::spawn(inner(config, pages.clone(), reports, stop.clone()));
    let mut watch = Watch::start(origin, &CATALOG, loaded, WatchPace::default());
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        let reload = tokio::select! {
            () = stop.cancelled() => break,
            _ = hangup.recv() => {
                manager.reloading();
                watch.trigger().reload();
                continue;
            }
            () = tokio::time::sleep(FIRST_RETRY), if server.moves() => {
                // Said when it began.
                let _ = server.try_to_move(&pages).await;
                continue;
            }
            reload = watch.next() => match reload {
                Some(reload) => reload,
                // The watch never ends by itself; without it, the configuration stays as it is.
                None => std::future::pending().await,
            },
        };
        let outcome = match reload {
            Reload::Unchanged => {
                info!(hash = %shown.loaded.hash, "the configuration is unchanged");
                ReloadOutcome::Unchanged
            }
            Reload::Rejected { report, hash } => {
                error!("the changed configuration is not used, the one before goes on:\n{report}");
                shown.looked_at = hash;
                ReloadOutcome::Rejected(report)
            }
            Reload::Applied(loaded) => {
                let before = sender.borrow().clone();
                let change = ConfigChange::between(&before, &loaded.config);
                logs.change(&loaded.config.log);
                if before.server != loaded.config.server {
                    server.change(&loaded.config.server, &pages).await;
                }
                info!(hash = %loaded.hash, "the changed configuration is used from now on; {change}");
                sender.send_replace(Arc::new(loaded.config.clone()));
                shown.apply(*loaded);
                ReloadOutcome::Applied(change)
            }
        };
        metrics::config_reload(outcome.as_str());
        shown.outcome(&outcome);
        shown.show(&pages);
        // Full only while no API server has been there for long; the log has it all.
        if outcomes.try_send(outcome).is_err() {
            metrics::events_dropped("queue", 1);
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
async fn inner(
    mut config: watch::Receiver<Arc<Config>>,
    pages: Pages,
    mut reports: mpsc::Receiver<ReloadOutcome>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let term = stop.child_token();
        let first = config.borrow_and_update().clone();
        let mut changes = config.clone();
        tokio::join!(world(first.clone(), config.clone(), &pages, &mut reports, &term), async {
            loop {
                tokio::select! {
                    () = term.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
                if ConfigChange::between(&first, &changes.borrow()).reconnects() {
                    info!("the connection or the place in the cloud changed: starting anew");
                    term.cancel();
                }
            }
        });
    }
}

/// Connects, takes part in the election, and runs the controllers until `term` ends.
async fn world(
    first: Arc<Config>,
    mut config: watch::Receiver<Arc<Config>>,
    pages: &Pages,
    reports: &mut mpsc::Receiver<ReloadOutcome>,
    term: &CancellationToken,
) {
    let Pages { health, guard, .. } = pages;
    let connected = tokio::select! {
        () = term.cancelled() => None,
        connected = connect(&first, health) => Some(connected),
    };
    let Some((cluster, cloud, place)) = connected else { return };
    info!(region = place.region, vpc = place.vpc_id, cluster_id = first.cloud.cluster_id, "connected");

    guard.appoint(Some(Arc::new(cluster.clone())));
    let place = Arc::new(place);
    let (keeper, fence) = fence();
    // The election outlives the controllers: they may write until they have ended.
    let election_stop = CancellationToken::new();
    let election = tokio::spawn(cluster.clone().elect(config.clone(), keeper, election_stop.clone()));
    let context = Context {
        cluster: cluster.clone(),
        cloud: cloud.clone(),
        fence: fence.clone(),
        place: place.clone(),
        config: config.clone(),
        alarms: health.alarms().clone(),
        stop: term.clone(),
    };
    let mut supervisor = Supervisor::new(context);
    supervisor.apply(&wanted(&first)).await;
    loop {
        tokio::select! {
            () = term.cancelled() => break,
            () = supervisor.watch() => {}
            () = watch_health(health, &cluster, &cloud, &fence) => {}
            Some(outcome) = reports.recv() => {
                tokio::spawn(report(cluster.clone(), place.clone(), outcome));
            }
            changed = config.changed() => {
                if changed.is_err() {
                    break;
                }
                let now = config.borrow_and_update().clone();
                // What cannot be changed in place ends this term; the controllers end with it.
                if !ConfigChange::between(&first, &now).reconnects() {
                    cloud.reconfigure(&now.cloud);
                    cluster.reconfigure(&now.kubernetes);
                    supervisor.apply(&wanted(&now)).await;
                }
            }
        }
    }
    supervisor.stop().await;
    guard.appoint(None);
    cluster.flush_events(FLUSH).await;
    election_stop.cancel();
    if let Err(failure) = election.await {
        error!(%failure, "the election ended abnormally; the lease runs out by itself");
    }
    // That the lead was given back is an event too.
    cluster.flush_events(LAST_FLUSH).await;
}

/// Says on the Pod or Node that runs this process what came of a changed configuration.
async fn report(cluster: Cluster, place: Arc<CloudLocation>, outcome: ReloadOutcome) {
    let Some(host) = host(&cluster, &place).await else { return };
    let (attention, reason, message) = outcome.event();
    if attention {
        cluster.events().warning(COMPONENT, &host, reason, message);
    } else {
        cluster.events().normal(COMPONENT, &host, reason, message);
    }
}

/// The Pod that runs this process, as the environment says; otherwise the node of this name or instance, if there is one.
async fn host(cluster: &Cluster, place: &CloudLocation) -> Option<Regarding> {
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
        let instance = place.instance_id.as_deref();
        instance.is_some_and(|instance| provider_id.rsplit(['.', '/']).next() == Some(instance))
    };
    let named = nodes.iter().find(|node| node.name == name);
    let node = named.or_else(|| nodes.iter().find(|node| on_instance(&node.provider_id)))?;
    Some(Regarding { kind: "Node", key: ObjectKey::cluster(&node.name), uid: node.uid.clone() })
}

/// Waits for the API server and for what the metadata service must tell, side by side.
async fn connect(config: &Config, health: &Health) -> (Cluster, CloudClient, CloudLocation) {
    // Neither is fine merely because nothing was heard of it yet.
    health.not_ready("kubernetes", "waiting for the API server to answer");
    health.not_ready("cloud", "where this process runs is not known yet");
    let cluster = async {
        let cluster = patiently(health, "kubernetes", || async { Cluster::connect(&config.kubernetes).await }).await;
        // What stood in the way of getting this far is over.
        health.not_ready("kubernetes", "waiting for the API server to answer");
        // Whether what is watched has come is for the checks that follow.
        cluster.wait_ready().await;
        cluster
    };
    let cloud = async {
        let transport = patiently(health, "cloud", || async {
            HttpTransport::new().map(|transport| Arc::new(transport) as Arc<dyn Transport>)
        })
        .await;
        let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
        let place = patiently(health, "cloud", || location::resolve(&config.cloud, &metadata)).await;
        let cloud = CloudClient::new(transport, &config.cloud, &place.region);
        health.ready("cloud", "");
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
            Ok(value) => return value,
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
async fn watch_health(health: &Health, cluster: &Cluster, cloud: &CloudClient, fence: &Fence) {
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

/// What `/configz` says, without secrets.
struct Shown {
    loaded: Loaded,
    since: String,
    /// Hash of a file that was rejected.
    looked_at: Option<String>,
    last: Option<Value>,
}

impl Shown {
    fn new(loaded: &Loaded) -> Self {
        let mut shown = Self { loaded: loaded.clone(), since: String::new(), looked_at: None, last: None };
        shown.apply(loaded.clone());
        shown
    }

    fn apply(&mut self, loaded: Loaded) {
        let now = crate::clock::now();
        metrics::config_applied(now.as_second());
        self.since = now.to_string();
        self.loaded = loaded;
    }

    fn outcome(&mut self, outcome: &ReloadOutcome) {
        let mut page = outcome.to_json();
        page["at"] = json!(crate::clock::now().to_string());
        page["hash"] = match outcome {
            ReloadOutcome::Rejected(_) => json!(self.looked_at),
            ReloadOutcome::Unchanged | ReloadOutcome::Applied(_) => json!(self.loaded.hash),
        };
        self.last = Some(page);
    }

    fn show(&self, pages: &Pages) {
        let page = json!({
            "file": self.loaded.path,
            "hash": self.loaded.hash,
            "since": self.since,
            "last_reload": self.last,
            "config": self.loaded.config,
        });
        *pages.configz.write() = format!("{page:#}\n");
    }
}

/// What is served, as the configuration says.
fn manners(settings: &checked::Server) -> Result<Manners, String> {
    let tls = match (&settings.tls_cert_file, &settings.tls_key_file) {
        (Some(certificate), Some(key)) => Some(server_config(certificate, key)?),
        _ => None,
    };
    Ok(Manners { tls, authorization: settings.authorization })
}

/// Serves in a thread of its own: whatever clients do, the work goes on.
fn isolated(
    listener: std::net::TcpListener,
    pages: Pages,
    manners: Manners,
    stop: CancellationToken,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)?
    };
    Ok(tokio::task::spawn_blocking(move || runtime.block_on(http::serve(listener, pages, manners, stop))))
}

/// A listener that serves.
struct Running {
    settings: checked::Server,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The health server, which can move to another address.
struct Server {
    running: Option<Running>,
    /// Where it should be but could not listen yet.
    moving: Option<checked::Server>,
}

impl Server {
    /// Serves from now on, or as soon as the machine has the address.
    async fn start(settings: &checked::Server, pages: &Pages) -> std::io::Result<Self> {
        match Self::serve(settings, pages).await {
            Ok(running) => Ok(Self { running, moving: None }),
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                warn!("{error}; trying again until the machine has this address");
                Ok(Self { running: None, moving: Some(settings.clone()) })
            }
            Err(error) => Err(error),
        }
    }

    async fn serve(settings: &checked::Server, pages: &Pages) -> std::io::Result<Option<Running>> {
        if settings.port == 0 {
            return Ok(None);
        }
        let listener = TcpListener::bind((settings.address, settings.port)).await;
        let listener = listener.and_then(TcpListener::into_std).map_err(|error| {
            let text = format!(
                "cannot listen on server.address {} server.port {}: {error}; choose another port, or 0 for none",
                settings.address, settings.port
            );
            std::io::Error::new(error.kind(), text)
        })?;
        let manners = manners(settings).map_err(std::io::Error::other)?;
        let stop = CancellationToken::new();
        let task = isolated(listener, pages.clone(), manners, stop.clone())?;
        Ok(Some(Running { settings: settings.clone(), stop, task }))
    }

    /// Moves to another address; serves the old one until that can be had.
    async fn change(&mut self, settings: &checked::Server, pages: &Pages) {
        self.moving = Some(settings.clone());
        if let Err(error) = self.try_to_move(pages).await {
            error!("{error}; health stays where it was until this address can be had");
        }
    }

    fn moves(&self) -> bool {
        self.moving.is_some()
    }

    async fn try_to_move(&mut self, pages: &Pages) -> std::io::Result<()> {
        let Some(wanted) = self.moving.clone() else { return Ok(()) };
        // Two addresses of one port can exclude each other, as loopback and all addresses do.
        let in_the_way = self.running.take_if(|running| running.settings.port == wanted.port);
        if let Some(Running { settings, stop, task }) = in_the_way {
            stop.cancel();
            let _ = task.await;
            match Self::serve(&wanted, pages).await {
                Ok(new) => self.running = new,
                Err(error) => {
                    self.running = Self::serve(&settings, pages).await?;
                    return Err(error);
                }
            }
        } else {
            let new = Self::serve(&wanted, pages).await?;
            Self { running: std::mem::replace(&mut self.running, new), moving: None }.stop().await;
        }
        info!(address = %wanted.address, port = wanted.port, "health is served here from now on");
        self.moving = None;
        Ok(())
    }

    async fn stop(self) {
        if let Some(Running { stop, task, .. }) = self.running {
            stop.cancel();
            let _ = task.await;
        }
    }
}
