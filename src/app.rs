//! Starts and stops the parts of the process in order.
//!
//! Start: log, signals, health server, service manager, then the session (`session`) and the watch of the configuration.
//! Health is served from the first moment; everything later waits for what it needs, and `/readyz` says for what.
//!
//! A changed configuration reaches the parts that it concerns. Only what a session is built on (the connection to the API
//! server, the location in the cloud) starts a new session, in the same process.
//!
//! End: the controllers, the events in flight, the lease, the health server.
//!
//! Every part is a long-lived task (`telemetry::tasks`): one that ends by itself starts again. Without its main loop, the process
//! ends in the same order, with exit code 1.

mod config_page;
mod health_server;
mod page;
mod session;
mod traces;

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use parking_lot::RwLock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use self::config_page::ConfigPage;
use self::health_server::HealthServer;
use self::page::StatusPage;
use self::session::Sessions;
use self::traces::TraceExport;
use crate::alibaba::RateLimiter;
use crate::cluster::check_kubeconfig;
use crate::config::watch::{ConnectionCheck, Reload, Watch, WatchPace};
use crate::config::{Config, ConfigSource, Loaded};
use crate::controllers::registry::CATALOG;
use crate::reload::ConfigChange;
use crate::telemetry::http::StatusPages;
use crate::telemetry::logs::Logs;
use crate::telemetry::metrics;
use crate::telemetry::notify::ServiceManager;
use crate::telemetry::tasks::{self, Tasks};

/// How long the health server may take to end.
const SERVER_END: Duration = Duration::from_secs(1);
/// Results of reloads that wait for an API server to be written as events.
const QUEUED_EVENTS: usize = 16;
/// How long the controllers and the election may take to end. What takes longer hangs, and the process ends without waiting for
/// it.
const LONGEST_END: Duration = Duration::from_secs(25);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// If the signals or the listener cannot be set up, or if this loop itself fails; it retries everything later.
pub async fn run(origin: ConfigSource, loaded: Loaded) -> io::Result<()> {
    let logs = Logs::start(&loaded.config.log);
    let stop = CancellationToken::new();
    let mut pages = StatusPages::default();
    let shown = StatusPage::serve(&mut pages);
    let tasks = pages.health.tasks().clone();
    let _signals = on_signals(&tasks, stop.clone())?;
    let hangup = signal(SignalKind::hangup())?;
    info!(version = env!("CARGO_PKG_VERSION"), file = %loaded.path.display(), "starting");

    let server = HealthServer::start(&loaded.config.server, &pages).await?;
    let manager = ServiceManager::of_environment();
    manager.ready();
    let (notified, health) = (manager.clone(), pages.health.clone());
    let reporting = tasks.supervise("service manager", &stop, move || notified.clone().report(health.clone()));

    let (sender, config) = watch::channel(Arc::new(loaded.config.clone()));
    let (events, reloads) = mpsc::channel(QUEUED_EVENTS);
    let reloads = Arc::new(Mutex::new(reloads));
    let all = Sessions {
        config,
        pages: pages.clone(),
        shown,
        reloads,
        stop: stop.clone(),
        rate_limiter: RateLimiter::default(),
    };
    let sessions = tasks.supervise("sessions", &stop, move || all.clone().run());
    let traces = TraceExport::start(&tasks, &loaded.config);
    let page = ConfigPage::new(loaded, &pages);
    let mut main = MainLoop { logs, pages, server, manager: manager.clone(), config: sender, events, page, traces };
    let ended = AssertUnwindSafe(main.run(origin, hangup, &stop)).catch_unwind().await;

    info!("stopping");
    stop.cancel();
    drop(reporting);
    manager.stopping();
    if tokio::time::timeout(LONGEST_END, sessions).await.is_err() {
        error!(code = "ACCM0703", "the controllers did not end in time");
    }
    main.traces.stop().await;
    // One that hangs holds up nothing.
    let _ = tokio::time::timeout(SERVER_END, main.server.stop()).await;
    info!("stopped");
    ended.map_err(|_| io::Error::other("the main loop ended abnormally; the log says where"))
}

/// SIGTERM and SIGINT stop in order; a second one does not wait.
fn on_signals(tasks: &Tasks, stop: CancellationToken) -> io::Result<AbortOnDropHandle<()>> {
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // Shared, so that no signal is lost while the task starts again.
    let signals = Arc::new(Mutex::new(signals));
    Ok(tasks.supervise("signals", &CancellationToken::new(), move || {
        let (signals, stop) = (signals.clone(), stop.clone());
        async move {
            let (terminate, interrupt) = &mut *signals.lock().await;
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if stop.is_cancelled() {
                    warn!(code = "ACCM0705", "a second signal: ending at once");
                    std::process::exit(1);
                }
                stop.cancel();
            }
        }
    }))
}

/// Watches the configuration, beginning with what is `running`.
fn watch_config(
    tasks: &Tasks,
    origin: ConfigSource,
    running: Arc<RwLock<Loaded>>,
) -> (Arc<Notify>, mpsc::Receiver<Reload>, AbortOnDropHandle<()>) {
    let trigger = Arc::<Notify>::default();
    let (sender, reloads) = mpsc::channel(1);
    let triggered = trigger.clone();
    let watching = tasks.supervise("config watch", &CancellationToken::new(), move || {
        let connects: ConnectionCheck = |kubernetes| async move { check_kubeconfig(&kubernetes).await }.boxed();
        let rules = (&CATALOG, connects);
        let watch = Watch::new(origin.clone(), rules, running.read().clone(), WatchPace::default());
        watch.run(triggered.clone(), sender.clone())
    });
    (trigger, reloads, watching)
}

/// Takes over changed configurations, and keeps the health server where it should be.
struct MainLoop {
    logs: Logs,
    pages: StatusPages,
    server: HealthServer,
    manager: ServiceManager,
    config: watch::Sender<Arc<Config>>,
    events: mpsc::Sender<Reload<ConfigChange>>,
    page: ConfigPage,
    traces: TraceExport,
}

impl MainLoop {
    async fn run(&mut self, origin: ConfigSource, mut hangup: Signal, stop: &CancellationToken) {
        let (trigger, mut reloads, _watching) =
            watch_config(self.pages.health.tasks(), origin, self.page.loaded.clone());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tasks::injected("main loop") => {}
                _ = hangup.recv() => {
                    self.manager.reloading();
                    trigger.notify_one();
                }
                Some(()) = OptionFuture::from(self.server.pause().map(tokio::time::sleep)) => self.server.retry(&self.pages).await,
                Some(reload) = reloads.recv() => self.take_over(reload).await,
            }
        }
    }

    async fn take_over(&mut self, reload: Reload) {
        let outcome = match reload {
            Reload::Unchanged => {
                info!(hash = %self.page.loaded.read().hash, "the configuration is unchanged");
                Reload::Unchanged
            }
            Reload::Rejected { report, hash } => {
                error!(
                    code = "ACCM0004",
                    "the changed configuration has problems, so the previous one stays in use:\n{report}"
                );
                Reload::Rejected { report, hash }
            }
            Reload::Applied(loaded) => Reload::Applied(self.apply(*loaded).await),
        };
        metrics::config_reload(outcome.as_str());
        self.page.record(&outcome, &self.pages);
        // Full only while no API server has answered for long; the log has every reload.
        if self.events.try_send(outcome).is_err() {
            metrics::events_dropped("queue", 1);
        }
        self.manager.ready();
    }

    async fn apply(&mut self, loaded: Loaded) -> ConfigChange {
        let before = self.config.borrow().clone();
        let change = ConfigChange::between(&before, &loaded.config);
        self.logs.change(&loaded.config.log);
        if before.server != loaded.config.server {
            self.server.change(&loaded.config.server, &self.pages).await;
        }
        self.traces.change(&loaded.config);
        self.config.send_replace(Arc::new(loaded.config.clone()));
        info!(hash = %loaded.hash, "the changed configuration is in use; {change}");
        self.page.apply(loaded);
        change
    }
}
