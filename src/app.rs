//! Starts the parts of the process in order, and ends them in order.
//!
//! Start: log, signals, health server, service manager, then the session (`session`) and the watch of the configuration.
//! Health is served from the first moment; everything later waits for what it needs, and `/readyz` says for what.
//!
//! A changed configuration reaches the parts that it concerns. Only what a session is built on (the connection to the API
//! server, the location in the cloud) starts a new session, in the same process.
//!
//! End: the controllers, the events in flight, the lease, the health server.
//!
//! A part that ends by itself is a defect, and is noticed: the health server, the watch of the configuration and a session
//! start again. Without sessions or a main loop, the process ends in the same order, with exit code 1.

mod config_page;
mod faults;
mod health_server;
mod session;

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::config_page::ConfigPage;
use self::health_server::HealthServer;
use crate::config::watch::{Reload, Watch, WatchPace};
use crate::config::{Config, Loaded, Origin};
use crate::controllers::registry::CATALOG;
use crate::reload::{ConfigChange, ReloadOutcome};
use crate::telemetry::http::StatusPages;
use crate::telemetry::logs::Logs;
use crate::telemetry::metrics;
use crate::telemetry::notify::ServiceManager;

/// Time between tries to listen where the health server should be, and to watch the configuration again.
const RETRY: Duration = Duration::from_secs(1);
/// Results of reloads that wait for an API server to be written as events.
const QUEUED_EVENTS: usize = 16;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// If the signals or the listener cannot be set up, or if this loop itself fails; it retries everything later.
pub async fn run(origin: Origin, loaded: Loaded) -> io::Result<()> {
    let logs = Logs::start(&loaded.config.log);
    let stop = CancellationToken::new();
    on_signals(stop.clone())?;
    let hangup = signal(SignalKind::hangup())?;
    info!(version = env!("CARGO_PKG_VERSION"), file = %loaded.path.display(), "starting");

    let pages = StatusPages::default();
    let server = HealthServer::start(&loaded.config.server, &pages).await?;
    let manager = ServiceManager::of_environment();
    manager.ready();
    let beating = tokio::spawn(pages.heartbeat.clone().run());
    let reporting = tokio::spawn(manager.clone().report(pages.health.clone()));

    let (sender, config) = watch::channel(Arc::new(loaded.config.clone()));
    let (events, queued_events) = mpsc::channel(QUEUED_EVENTS);
    let mut sessions = tokio::spawn(session::run_sessions(config, pages.clone(), queued_events, stop.clone()));
    let page = ConfigPage::new(&loaded, &pages);
    let mut main = MainLoop { origin, logs, pages, server, manager: manager.clone(), config: sender, events, page };
    let lost = tokio::select! {
        ended = AssertUnwindSafe(main.run(hangup, loaded, &stop)).catch_unwind() => ended.err().map(|_| "the main loop"),
        _ = &mut sessions => (!stop.is_cancelled()).then_some("the controllers"),
    };

    info!("stopping");
    stop.cancel();
    reporting.abort();
    manager.stopping();
    if !sessions.is_finished() {
        let _ = sessions.await;
    }
    main.server.stop().await;
    beating.abort();
    info!("stopped");
    lost.map_or(Ok(()), |part| Err(io::Error::other(format!("{part} ended abnormally; the log says where"))))
}

/// SIGTERM and SIGINT stop in order; a second one does not wait.
fn on_signals(stop: CancellationToken) -> io::Result<()> {
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

/// Takes over changed configurations, and keeps the health server where it should be.
struct MainLoop {
    origin: Origin,
    logs: Logs,
    pages: StatusPages,
    server: HealthServer,
    manager: ServiceManager,
    config: watch::Sender<Arc<Config>>,
    events: mpsc::Sender<ReloadOutcome>,
    page: ConfigPage,
}

impl MainLoop {
    async fn run(&mut self, mut hangup: Signal, loaded: Loaded, stop: &CancellationToken) {
        let mut watch = Watch::start(self.origin.clone(), &CATALOG, loaded, WatchPace::default());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = faults::injected("main loop") => {}
                () = self.server.ended() => error!("the health server ended abnormally; it starts again"),
                _ = hangup.recv() => {
                    self.manager.reloading();
                    watch.trigger().reload();
                }
                () = tokio::time::sleep(RETRY), if self.server.is_moving() => self.server.retry(&self.pages).await,
                reload = watch.next() => match reload {
                    Some(reload) => self.take_over(reload).await,
                    None => {
                        error!("the watch of the configuration ended abnormally; it starts again");
                        tokio::time::sleep(RETRY).await;
                        watch = Watch::start(self.origin.clone(), &CATALOG, self.page.loaded().clone(), WatchPace::default());
                    }
                },
            }
        }
    }

    async fn take_over(&mut self, reload: Reload) {
        let outcome = match reload {
            Reload::Unchanged => {
                info!(hash = %self.page.loaded().hash, "the configuration is unchanged");
                ReloadOutcome::Unchanged
            }
            Reload::Rejected { report, hash } => {
                error!("the changed configuration has problems, so the previous one stays in use:\n{report}");
                self.page.reject(hash);
                ReloadOutcome::Rejected(report)
            }
            Reload::Applied(loaded) => ReloadOutcome::Applied(self.apply(*loaded).await),
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
        info!(hash = %loaded.hash, "the changed configuration is in use; {change}");
        self.config.send_replace(Arc::new(loaded.config.clone()));
        self.page.apply(loaded);
        change
    }
}
