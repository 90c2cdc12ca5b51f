//! The product's controllers in this process, on a simulated clock that skips every wait: an hour takes as long as the work
//! in it.
//!
//! Everything from the Kubernetes client's requests and the signed cloud calls up to the election and the supervisor runs as
//! in the binary. Sockets, files and signals are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alicloud_ccm::alibaba::actions::Action;
use alicloud_ccm::alibaba::metadata::Metadata;
use alicloud_ccm::alibaba::transport::{Transport, TransportError};
use alicloud_ccm::alibaba::{CloudClient, location};
use alicloud_ccm::cluster::Cluster;
use alicloud_ccm::config::{Config, ConfigSource, checked, load};
use alicloud_ccm::controllers::registry::{self, CATALOG, CONTROLLERS};
use alicloud_ccm::controllers::{Clients, Context};
use alicloud_ccm::fence::fence;
use alicloud_ccm::jitter;
use alicloud_ccm::supervisor::{Supervisor, wanted};
use alicloud_ccm::telemetry::alarms::Alarms;
use alicloud_ccm::telemetry::tasks::Tasks;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::Value;
use sim::testbed::{ACCESS_KEY, Testbed};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

/// The only replica, without drift checks: nothing but a watch or a retry shows what changed.
pub(crate) const UNCHECKED: &str =
    "[leader_election]\nenabled = false\n[nlb]\ndrift_check = \"0s\"\n[service]\ndrift_check = \"0s\"\n";

/// Runs a future on a clock of its own that jumps to the next thing that happens, and gives with its result what was
/// logged meanwhile. What the product leaves to chance follows from `seed`.
pub(crate) fn on_a_clock_of_its_own<T>(seed: u64, future: impl Future<Output = T>) -> (T, String) {
    jitter::load(seed);
    let log = Log::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let result = runtime.block_on(async {
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_timer(Elapsed(Instant::now()))
            .with_writer(move || writer.clone())
            .finish()
            .with(Targets::new().with_default(tracing::Level::INFO).with_target("kube_client", LevelFilter::OFF));
        let _logged = tracing::subscriber::set_default(subscriber);
        future.await
    });
    // What is still under way in the background must not hold up the end.
    runtime.shutdown_background();
    let text = String::from_utf8_lossy(&log.0.lock()).into_owned();
    (result, text)
}

/// Does all of this on as many threads as there are processors; gives the results in order.
pub(crate) async fn in_parallel<T: Send + 'static>(
    count: usize,
    one: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let (one, next) = (Arc::new(one), Arc::new(AtomicUsize::new(0)));
    let mut threads = JoinSet::new();
    for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
        let (one, next) = (one.clone(), next.clone());
        threads.spawn_blocking(move || {
            let draw = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < count);
            std::iter::from_fn(draw).map(|index| (index, one(index))).collect::<Vec<_>>()
        });
    }
    let mut done: Vec<_> = threads.join_all().await.into_iter().flatten().collect();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// What is logged on one thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tells times as the jumping clock has them, in seconds since this one.
struct Elapsed(Instant);

impl tracing_subscriber::fmt::time::FormatTime for Elapsed {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{:9.3}", self.0.elapsed().as_secs_f64())
    }
}

/// The running product; dropping it is like killing it: nothing that it was about to do is done.
#[derive(Debug)]
#[must_use = "it dies when this is dropped"]
pub(crate) struct Product {
    running: JoinHandle<()>,
    cloud: sim::cloud::Cloud,
    stop: CancellationToken,
    /// What it shows as out of sync.
    pub(crate) alarms: Alarms,
    config: watch::Sender<Arc<Config>>,
}

impl Drop for Product {
    fn drop(&mut self) {
        self.running.abort();
        let unlisted = self.cloud.look(|account| account.unlisted.clone());
        if !std::thread::panicking() {
            assert_eq!(unlisted, BTreeSet::new(), "called, and not in what `ram-policy` prints");
        }
    }
}

impl Product {
    /// Starts it with the configuration that [`Testbed::config`] has for these controllers.
    pub(crate) fn start(testbed: &Testbed, controllers: &[&str], more: &str) -> Self {
        Self::start_with(testbed, controllers, more, &[])
    }

    /// The same with single keys set to other values.
    pub(crate) fn start_with(testbed: &Testbed, controllers: &[&str], more: &str, set: &[&str]) -> Self {
        let config = config(testbed, controllers, more, set);
        // Every test is one of the permissions as well.
        let listed = registry::cloud_actions(&config).map(Action::permission).collect();
        testbed.cloud.edit(|cloud| {
            if let Some(key) = cloud.keys.get_mut(ACCESS_KEY.0) {
                key.listed = Some(listed);
            }
        });
        let cluster = Cluster::with_client(client(&testbed.cluster), &config.kubernetes);
        let transport: Arc<dyn Transport> = Arc::new(InProcess(testbed.cloud.clone()));
        let alarms = Alarms::default();
        let shown = alarms.clone();
        let (sender, receiver) = watch::channel(Arc::new(config));
        let config = receiver.borrow().clone();
        let ended = CancellationToken::new();
        let end = ended.clone();
        let running = tokio::spawn(async move {
            cluster.wait_ready().await;
            let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
            let location = Arc::new(location::resolve(&config.cloud, &metadata).await.unwrap());
            let cloud = CloudClient::new(transport, &config.cloud, &location.region);
            let jobs = wanted(&config);
            let config = receiver;
            let (keeper, fence) = fence();
            let stop = CancellationToken::new();
            // Ends with this task.
            let mut election = JoinSet::new();
            election.spawn(cluster.clone().elect(config.clone(), keeper, stop.clone()));
            let mut supervisor =
                Supervisor::new(Context { alarms, cluster, cloud, config, fence, location, stop }, Tasks::default());
            supervisor.apply(&jobs).await;
            end.cancelled().await;
            supervisor.stop().await;
        });
        Self { running, cloud: testbed.cloud.clone(), stop: ended, alarms: shown, config: sender }
    }

    /// Goes on with another configuration for the same controllers.
    pub(crate) fn reconfigure(&self, testbed: &Testbed, controllers: &[&str], more: &str, set: &[&str]) {
        self.config.send_replace(Arc::new(config(testbed, controllers, more, set)));
    }

    /// Stops it in order; gives how long that takes.
    pub(crate) async fn stop(mut self) -> Duration {
        let began = Instant::now();
        self.stop.cancel();
        (&mut self.running).await.unwrap();
        began.elapsed()
    }
}

/// What `gc` lists, as objects.
pub(crate) async fn orphans(testbed: &Testbed, controllers: &[&str], more: &str) -> Vec<Value> {
    let (found, problems) = judged(testbed, controllers, more).await;
    assert_eq!(problems, [""; 0]);
    found
}

/// The same, and what `gc` cannot judge.
pub(crate) async fn judged(testbed: &Testbed, controllers: &[&str], more: &str) -> (Vec<Value>, Vec<String>) {
    // It looks for what any controller can make.
    let limit = |listed: Option<BTreeSet<String>>| {
        testbed.cloud.edit(|cloud| std::mem::replace(&mut cloud.keys.get_mut(ACCESS_KEY.0).unwrap().listed, listed))
    };
    let listed = limit(None);
    let config = config(testbed, controllers, more, &[]);
    let cluster = Cluster::with_client(client(&testbed.cluster), &config.kubernetes);
    cluster.wait_ready().await;
    let transport: Arc<dyn Transport> = Arc::new(InProcess(testbed.cloud.clone()));
    let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
    let location = location::resolve(&config.cloud, &metadata).await.unwrap();
    let cloud = CloudClient::new(transport, &config.cloud, &location.region);
    let clients = Clients { cluster, cloud, location };
    let _watch = clients.cluster.services();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for find in CONTROLLERS.iter().filter_map(|row| row.orphans) {
        let listed = find(&clients, &config).await;
        problems.extend(listed.problems);
        found.extend(listed.found.iter().map(|one| one.what.fields.clone()));
    }
    limit(listed);
    (found, problems.into_iter().map(|problem| problem.why).collect())
}

fn config(testbed: &Testbed, controllers: &[&str], more: &str, set: &[&str]) -> checked::Config {
    let folder = tempfile::tempdir().unwrap();
    let path = testbed.write_config(folder.path(), controllers, more).unwrap();
    let overrides = set.iter().map(|set| (*set).to_owned()).collect();
    load(&ConfigSource { path, environment: BTreeMap::new(), overrides, ..ConfigSource::default() }, &CATALOG)
        .unwrap()
        .config
}

/// The simulated cloud without a network in between.
#[derive(Debug)]
struct InProcess(sim::cloud::Cloud);

impl Transport for InProcess {
    fn send(&self, request: Request<Bytes>, _: Duration) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async { self.0.handle_whole(request).await.map_err(|lost| TransportError::Lost(lost.to_string())) })
    }
}

/// A client of the simulated API server without a network in between. As over a network, a write goes on when whoever
/// sent it goes away.
fn client(cluster: &sim::cluster::Cluster) -> kube::Client {
    let cluster = cluster.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let cluster = cluster.clone();
        async move {
            if request.method() == http::Method::GET {
                return cluster.handle(request).await;
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| sim::cluster::Lost)?.to_bytes();
            let request = Request::from_parts(parts, Full::new(body));
            tokio::spawn(async move { cluster.handle(request).await }).await.unwrap_or(Err(sim::cluster::Lost))
        }
    });
    kube::Client::new(service, "default")
}
