//! Prometheus metrics, all in one place.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

/// The process-wide metrics. Names start with `alicloud_ccm_`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    cloud_calls: IntCounterVec,
    cloud_seconds: HistogramVec,
    kubernetes_writes: IntCounterVec,
    reconciles: IntCounterVec,
    reconcile_seconds: HistogramVec,
    queue: IntGaugeVec,
    leader: IntGauge,
    controllers: IntGaugeVec,
    held_back: IntGaugeVec,
    config_reloads: IntCounterVec,
    config_success: IntGauge,
    config_since: IntGauge,
    kubernetes_reads: IntCounterVec,
    events_dropped: IntCounterVec,
}

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Seconds, from a fast read to a call that ran into its timeout.
const SECONDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 20.0];

#[expect(clippy::expect_used, reason = "names are constants and registered once; a clash shows in every test")]
impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels).expect("valid metric");
            registry.register(Box::new(metric.clone())).expect("unique metric");
            metric
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntGaugeVec::new(Opts::new(name, help), labels).expect("valid metric");
            registry.register(Box::new(metric.clone())).expect("unique metric");
            metric
        };
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
            let metric = HistogramVec::new(options, labels).expect("valid metric");
            registry.register(Box::new(metric.clone())).expect("unique metric");
            metric
        };
        let single = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help).expect("valid metric");
            registry.register(Box::new(metric.clone())).expect("unique metric");
            metric
        };
        let leader = single("alicloud_ccm_leader", "1 while this process leads.");
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process)).expect("unique metric");
        Self {
            cloud_calls: counter(
                "alicloud_ccm_cloud_calls_total",
                "Calls to the cloud by action and outcome.",
                &["action", "outcome"],
            ),
            cloud_seconds: histogram("alicloud_ccm_cloud_call_seconds", "Duration of calls to the cloud.", &["action"]),
            kubernetes_writes: counter(
                "alicloud_ccm_kubernetes_writes_total",
                "Writes to the API server by kind of object and outcome.",
                &["kind", "outcome"],
            ),
            reconciles: counter(
                "alicloud_ccm_reconciles_total",
                "Reconciles by controller and outcome.",
                &["controller", "outcome"],
            ),
            reconcile_seconds: histogram("alicloud_ccm_reconcile_seconds", "Duration of reconciles.", &["controller"]),
            queue: gauge("alicloud_ccm_queue_length", "Objects that wait for a reconcile.", &["controller"]),
            controllers: gauge("alicloud_ccm_controller_running", "1 for each controller that runs.", &["controller"]),
            held_back: gauge(
                "alicloud_ccm_held_back",
                "What is held back because the view of the cluster or the cloud is not to be trusted; /readyz says what.",
                &["controller"],
            ),
            config_reloads: counter("alicloud_ccm_config_reloads_total", "Reloads by outcome.", &["outcome"]),
            config_success: single(
                "alicloud_ccm_config_last_reload_successful",
                "0 while the file on disk has problems and an earlier configuration goes on.",
            ),
            config_since: single(
                "alicloud_ccm_config_last_applied_timestamp_seconds",
                "Since when the running configuration is used, in seconds since 1970.",
            ),
            kubernetes_reads: counter(
                "alicloud_ccm_kubernetes_reads_total",
                "Reads from the API server by verb (get also for lists, watch) and outcome.",
                &["verb", "outcome"],
            ),
            events_dropped: counter(
                "alicloud_ccm_events_dropped_total",
                "Events that were not written, by cause: queue (too many at once), object (too many about one object), \
                 refused (by the API server), stop (at the end of the process).",
                &["cause"],
            ),
            leader,
            registry,
        }
    }
}

/// A call to the cloud ended; `outcome` is `ok` or a fault kind.
pub fn cloud_call(action: &str, outcome: &str, took: Duration) {
    METRICS.cloud_calls.with_label_values(&[action, outcome]).inc();
    METRICS.cloud_seconds.with_label_values(&[action]).observe(took.as_secs_f64());
}

/// A write to the API server ended.
pub fn kubernetes_write(kind: &str, outcome: &str) {
    METRICS.kubernetes_writes.with_label_values(&[kind, outcome]).inc();
}

/// A reconcile ended.
pub fn reconcile(controller: &str, outcome: &str, took: Duration) {
    METRICS.reconciles.with_label_values(&[controller, outcome]).inc();
    METRICS.reconcile_seconds.with_label_values(&[controller]).observe(took.as_secs_f64());
}

/// This many objects wait.
pub fn queue_length(controller: &str, length: usize) {
    METRICS.queue.with_label_values(&[controller]).set(i64::try_from(length).unwrap_or(i64::MAX));
}

/// Whether this process leads.
pub fn leader(leads: bool) {
    METRICS.leader.set(i64::from(leads));
}

/// Whether a controller runs.
pub fn controller_running(controller: &str, running: bool) {
    METRICS.controllers.with_label_values(&[controller]).set(i64::from(running));
}

/// This many removals are held back.
pub fn held_back(controller: &str, count: usize) {
    METRICS.held_back.with_label_values(&[controller]).set(i64::try_from(count).unwrap_or(i64::MAX));
}

/// A reload ended as `unchanged`, `applied` or `rejected`.
pub fn config_reload(outcome: &str) {
    METRICS.config_reloads.with_label_values(&[outcome]).inc();
    METRICS.config_success.set(i64::from(outcome != "rejected"));
}

/// A configuration is used from this moment on, in seconds since 1970.
pub fn config_applied(at: i64) {
    METRICS.config_success.set(1);
    METRICS.config_since.set(at);
}

/// A read from the API server, or the opening of a watch, ended; `outcome` is `ok`, an HTTP status, or `unanswered`.
pub fn kubernetes_read(verb: &str, outcome: &str) {
    METRICS.kubernetes_reads.with_label_values(&[verb, outcome]).inc();
}

/// So many events were not written.
pub fn events_dropped(cause: &str, count: usize) {
    METRICS.events_dropped.with_label_values(&[cause]).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
}

/// All metrics in the text format of Prometheus.
#[must_use]
pub fn render() -> String {
    TextEncoder::new().encode_to_string(&METRICS.registry.gather()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_action_and_outcome() {
        cloud_call("TestAction", "ok", Duration::from_millis(20));
        cloud_call("TestAction", "throttled", Duration::from_millis(20));
        let text = render();
        assert!(text.contains(r#"alicloud_ccm_cloud_calls_total{action="TestAction",outcome="ok"} 1"#), "{text}");
        assert!(text.contains(r#"outcome="throttled"} 1"#), "{text}");
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
    }
}
