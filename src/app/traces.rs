//! Sends spans to the collector of `[traces]`, while there is one.
//!
//! The task that sends is apart from everything that records spans: a collector that hangs or refuses costs spans and nothing
//! else. Spans that cannot be sent wait in memory, up to the length of the queue; further ones are dropped and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::alibaba::transport::{HttpTransport, Transport};
use crate::clock;
use crate::cluster::host_name;
use crate::config::Config;
use crate::config::secret::Secret;
use crate::telemetry::metrics;
use crate::telemetry::tasks::Tasks;
use crate::telemetry::traces::{self, Attributes, EndedSpan, otlp};

/// How long the first span of a request waits for others, and the most spans of one.
const PERIOD: Duration = Duration::from_secs(2);
const LARGEST_BATCH: usize = 512;
/// Longest time that one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Backoff between tries to send the same spans: doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long the spans that are left may take at the end.
const FLUSH: Duration = Duration::from_secs(2);
/// The least time between two warnings about the collector.
const QUIET: Duration = Duration::from_secs(10 * 60);

/// The task that sends, while the configuration names a collector.
pub(super) struct TraceExport {
    tasks: Tasks,
    running: Option<RunningExport>,
}

struct RunningExport {
    settings: ExportSettings,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug, PartialEq)]
struct ExportSettings {
    url: String,
    headers: BTreeMap<String, Secret>,
    sample_ratio: f64,
    cluster_id: String,
}

impl ExportSettings {
    fn of(config: &Config) -> Option<Self> {
        let url = config.traces.endpoint.clone()?;
        let (headers, sample_ratio) = (config.traces.headers.clone(), config.traces.sample_ratio);
        Some(Self { url, headers, sample_ratio, cluster_id: config.cloud.cluster_id.clone() })
    }
}

impl TraceExport {
    /// Sends spans if the configuration says so.
    pub(super) fn start(tasks: &Tasks, config: &Config) -> Self {
        let mut export = Self { tasks: tasks.clone(), running: None };
        export.change(config);
        export
    }

    /// Starts, ends, or sends elsewhere. What was recorded before still goes where it was meant for.
    pub(super) fn change(&mut self, config: &Config) {
        let wanted = ExportSettings::of(config);
        if wanted.as_ref() == self.running.as_ref().map(|running| &running.settings) {
            return;
        }
        if let Some(RunningExport { settings, stop, task }) = self.running.take() {
            end(&stop);
            // It sends what is left, and ends by itself.
            drop(task.detach());
            info!("traces are no longer sent to {}", settings.url);
        }
        self.running = wanted.map(|settings| RunningExport::start(&self.tasks, settings));
    }

    /// Sends what is left, for a short time.
    pub(super) async fn stop(&mut self) {
        if let Some(RunningExport { stop, task, .. }) = self.running.take() {
            end(&stop);
            let _ = timeout(FLUSH * 2, task).await;
        }
    }
}

fn end(stop: &CancellationToken) {
    traces::stop();
    stop.cancel();
}

impl RunningExport {
    fn start(tasks: &Tasks, settings: ExportSettings) -> Self {
        info!("traces are sent to {}", settings.url);
        // Shared, so that no span is lost while the task starts again.
        let exporter = Arc::new(Mutex::new(Exporter::new(&settings, traces::record(settings.sample_ratio))));
        let stop = CancellationToken::new();
        let end = stop.clone();
        let task = tasks.supervise("traces", &stop, move || {
            let (exporter, end) = (exporter.clone(), end.clone());
            async move { exporter.lock().await.run(&end).await }
        });
        Self { settings, stop, task }
    }
}

/// What sends spans.
struct Exporter {
    spans: mpsc::Receiver<EndedSpan>,
    /// What is being sent.
    batch: Vec<EndedSpan>,
    url: String,
    headers: HeaderMap,
    resource: Attributes,
    /// Made when it is first used: connections of its own, with the proxies and root certificates of calls to the cloud.
    transport: Option<Box<dyn Transport>>,
    /// Whether the last request failed, and when that was last logged.
    fails: bool,
    warned: Option<Instant>,
}

/// The same spans are to be sent again, after the time that the collector asks for if it does.
struct SendAgain(Option<Duration>);

impl Exporter {
    fn new(settings: &ExportSettings, spans: mpsc::Receiver<EndedSpan>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("alicloud-ccm/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in &settings.headers {
            // Checked with the rest of the configuration.
            let parts = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value.expose()));
            if let (Ok(name), Ok(mut value)) = parts {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Self {
            spans,
            batch: Vec::new(),
            url: settings.url.clone(),
            headers,
            resource: resource(&settings.cluster_id, |name| std::env::var(name).ok()),
            transport: None,
            fails: false,
            warned: None,
        }
    }

    /// Sends spans until `stop`, and then those that are left.
    async fn run(&mut self, stop: &CancellationToken) {
        // Spans during whose sending this ended abnormally would end it again.
        self.batch.clear();
        stop.run_until_cancelled(self.send_all()).await;
        let _ = timeout(FLUSH, self.flush()).await;
        let left = self.batch.len() + self.spans.len();
        metrics::trace_spans("stop", left);
    }

    /// Until the queue ends.
    async fn send_all(&mut self) {
        while self.fill().await {
            let mut pause = FIRST_PAUSE;
            while let Err(SendAgain(asked)) = self.send().await {
                sleep(asked.unwrap_or(pause).clamp(FIRST_PAUSE, LONGEST_PAUSE)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// The spans of the next request; false if there are no more.
    async fn fill(&mut self) -> bool {
        if self.spans.recv_many(&mut self.batch, LARGEST_BATCH).await == 0 {
            return false;
        }
        let end = Instant::now() + PERIOD;
        while let Some(room) = LARGEST_BATCH.checked_sub(self.batch.len()).filter(|room| *room > 0) {
            match timeout_at(end, self.spans.recv_many(&mut self.batch, room)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        true
    }

    /// What is left, each once.
    async fn flush(&mut self) {
        loop {
            if self.batch.len() < LARGEST_BATCH {
                let room = LARGEST_BATCH - self.batch.len();
                self.spans.recv_many(&mut self.batch, room).await;
            }
            if self.batch.is_empty() || self.send().await.is_err() {
                return;
            }
        }
    }

    /// Sends the batch once; it is empty afterwards unless it is to be sent again.
    async fn send(&mut self) -> Result<(), SendAgain> {
        metrics::trace_spans("queue", usize::try_from(traces::take_dropped()).unwrap_or(usize::MAX));
        let answer = match self.exchange().await {
            Ok(answer) => answer,
            Err(why) => {
                self.failed(&why);
                return Err(SendAgain(None));
            }
        };
        let (status, count) = (answer.status(), self.batch.len());
        // The same request may be accepted later, as OTLP has it.
        if matches!(status.as_u16(), 429 | 502 | 503 | 504) {
            self.failed(&format!("HTTP status {}", status.as_u16()));
            let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(SendAgain(seconds.map(Duration::from_secs)));
        }
        self.batch.clear();
        let refused = if status.is_success() {
            usize::try_from(otlp::refused(answer.body())).unwrap_or(usize::MAX).min(count)
        } else {
            count
        };
        metrics::trace_spans("refused", refused);
        metrics::trace_spans("sent", count - refused);
        match refused {
            0 => self.works(),
            // The answer may repeat what was sent, headers included.
            _ => self.failed(&format!("HTTP status {}, {refused} of {count} spans refused", status.as_u16())),
        }
        Ok(())
    }

    async fn exchange(&mut self) -> Result<Response<Bytes>, String> {
        let transport = match &mut self.transport {
            Some(transport) => transport,
            none => none.insert(Box::new(HttpTransport::new().map_err(|error| error.to_string())?)),
        };
        let body = otlp::request(&self.resource, &self.batch, (Instant::now(), clock::now()));
        let mut request = Request::post(&self.url).body(Bytes::from(body)).map_err(|error| error.to_string())?;
        *request.headers_mut() = self.headers.clone();
        transport.send(request, TIMEOUT).await.map_err(|error| error.to_string())
    }

    /// Logs the first of many failures.
    fn failed(&mut self, why: &str) {
        let was = std::mem::replace(&mut self.fails, true);
        if !was && self.warned.is_none_or(|warned| warned.elapsed() >= QUIET) {
            self.warned = Some(Instant::now());
            warn!(code = "ACCM0709", "traces cannot be sent to {}: {why}; reconciles are not affected", self.url);
        }
    }

    fn works(&mut self) {
        if std::mem::take(&mut self.fails) {
            info!("traces arrive at {} again", self.url);
        }
    }
}

/// Who records the spans, in the names of the standard.
fn resource(cluster_id: &str, variable: impl Fn(&str) -> Option<String>) -> Attributes {
    let host = host_name();
    let instance = variable("POD_UID").unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    let stated = |name| variable(name).unwrap_or_default();
    let all = [
        ("service.name", otlp::SERVICE_NAME.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", instance),
        ("cloud.provider", "alibaba_cloud".to_owned()),
        ("k8s.cluster.name", cluster_id.to_owned()),
        ("host.name", host),
        ("k8s.namespace.name", stated("POD_NAMESPACE")),
        ("k8s.pod.name", stated("POD_NAME")),
        ("k8s.pod.uid", stated("POD_UID")),
        ("k8s.node.name", stated("NODE_NAME")),
    ];
    let known = all.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, text)| (name, text.into())).collect()
}

#[cfg(test)]
mod tests;
