//! Prometheus metrics, all in one table.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

use super::activity;

/// What the manual says about a metric.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts or shows.
    pub help: &'static str,
}

macro_rules! type_of {
    (counter) => {
        IntCounterVec
    };
    (gauge) => {
        IntGaugeVec
    };
    (histogram) => {
        HistogramVec
    };
}

macro_rules! options_of {
    (histogram, $name:literal, $help:literal) => {
        HistogramOpts::new($name, $help).buckets(SECONDS.to_vec())
    };
    ($kind:ident, $name:literal, $help:literal) => {
        Opts::new($name, $help)
    };
}

/// The process-wide metrics, made of the rows `field: kind name [labels] help`.
macro_rules! metrics {
    ($($field:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        #[derive(Debug)]
        struct Metrics {
            registry: Registry,
            $($field: type_of!($kind),)*
        }

        /// Every metric of this program; those of the process (`process_*`) come with the library.
        pub const DESCRIPTIONS: &[Description] = &[
            $(Description { name: $name, kind: stringify!($kind), labels: &[$($label),*], help: $help },)*
        ];

        impl Metrics {
            /// Names are constants and registered once; a clash shows in every test.
            fn new() -> Self {
                let registry = Registry::new();
                registry.register(Box::new(ProcessCollector::for_self())).expect("registered once");
                $(
                    let $field = <type_of!($kind)>::new(options_of!($kind, $name, $help), &[$($label),*]).expect("a valid name");
                    registry.register(Box::new($field.clone())).expect("registered once");
                )*
                Self { registry, $($field,)* }
            }
        }
    };
}

metrics! {
    cloud_calls: counter "alicloud_ccm_cloud_calls_total" ["action", "outcome"]
        "Calls to the cloud by action and outcome: ok, throttled, busy, transient, ambiguous (a write whose fate is unknown), gone, \
         exists, in_use, quota, capacity, credential, denied, rejected, bug, not_leading.";
    cloud_seconds: histogram "alicloud_ccm_cloud_call_seconds" ["action"]
        "Duration of calls to the cloud.";
    waiting_calls: gauge "alicloud_ccm_waiting_calls" ["action"]
        "Calls to the cloud that wait for their share of the quota of their action, as of its last call. The page says when the last \
         of them is sent.";
    kubernetes_reads: counter "alicloud_ccm_kubernetes_reads_total" ["verb", "outcome"]
        "Reads from the API server by verb (get also for lists, watch) and outcome.";
    kubernetes_writes: counter "alicloud_ccm_kubernetes_writes_total" ["kind", "outcome"]
        "Writes to the API server by kind of object and outcome.";
    reconciles: counter "alicloud_ccm_reconciles_total" ["controller", "outcome"]
        "Reconciles by controller and outcome: ok, again (what the cloud still carries out), failed, panicked.";
    reconcile_seconds: histogram "alicloud_ccm_reconcile_seconds" ["controller"]
        "Duration of reconciles.";
    queue: gauge "alicloud_ccm_queue_length" ["controller"]
        "Objects that wait for a reconcile.";
    leader: gauge "alicloud_ccm_leader" []
        "1 while this process leads.";
    controllers: gauge "alicloud_ccm_controller_running" ["controller"]
        "1 for each controller that runs.";
    withheld: gauge "alicloud_ccm_held_back" ["controller"]
        "Steps that are withheld because the view of the cluster or the cloud is not to be trusted; /readyz names them.";
    config_reloads: counter "alicloud_ccm_config_reloads_total" ["outcome"]
        "Reloads by outcome: unchanged, applied, rejected.";
    config_success: gauge "alicloud_ccm_config_last_reload_successful" []
        "0 while the file on disk has problems and an earlier configuration stays in use.";
    config_since: gauge "alicloud_ccm_config_last_applied_timestamp_seconds" []
        "Since when the running configuration is used, in seconds since 1970.";
    events_dropped: counter "alicloud_ccm_events_dropped_total" ["cause"]
        "Events that were not written, by cause: queue (too many at once), object (too many about one object), \
         refused (by the API server), stop (at the end of the process).";
    out_of_sync: gauge "alicloud_ccm_out_of_sync_objects" ["controller"]
        "Objects that are out of sync: their last reconcile failed, and what it is about stays as it is.";
    object_out_of_sync: gauge "alicloud_ccm_object_out_of_sync" ["controller", "object"]
        "Each object that is out of sync, as long as it is; of each controller at most 50, those that have been for longest. The value \
         is the number of the code in events.md, such as 307 for ACCM0307, or 0 while the cloud still carries something out.";
    shared_causes: gauge "alicloud_ccm_shared_cause_objects" ["controller", "cause"]
        "Objects that are out of sync for one cause that many of them share; /readyz names the first of them.";
    expiry: gauge "alicloud_ccm_expiry_timestamp_seconds" ["of"]
        "When something ends that must be renewed before, in seconds since 1970: server certificate (server.tls_cert_file), client \
         certificate (of the kubeconfig), credentials (temporary ones of the cloud, which the leader renews).";
    task_ends: counter "alicloud_ccm_task_ends_total" ["task"]
        "Ends of long-lived tasks by themselves, by task. Each is a defect; the task starts again.";
    trace_spans: counter "alicloud_ccm_trace_spans_total" ["outcome"]
        "Spans of traces by outcome: sent, or lost: queue (too many waited), refused (by the collector), stop (at the end of the \
         process, or of traces).";
}

static METRICS: LazyLock<Metrics> = LazyLock::new(|| {
    let metrics = Metrics::new();
    // Without labels, so shown from the start.
    for gauge in [&metrics.leader, &metrics.config_success, &metrics.config_since] {
        gauge.with_label_values::<&str>(&[]);
    }
    metrics
});

/// Seconds, from a fast read to a call that ran into its timeout.
const SECONDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 20.0];

/// A call to the cloud ended; `outcome` is `ok` or a fault kind.
pub fn cloud_call(action: &str, outcome: &str, took: Duration) {
    METRICS.cloud_calls.with_label_values(&[action, outcome]).inc();
    METRICS.cloud_seconds.with_label_values(&[action]).observe(took.as_secs_f64());
    activity::count_call(outcome != "ok");
}

/// This many calls of an action wait for their turn.
pub fn waiting_calls(action: &str, count: usize) {
    METRICS.waiting_calls.with_label_values(&[action]).set(i64::try_from(count).unwrap_or(i64::MAX));
}

/// A write to the API server ended.
pub fn kubernetes_write(kind: &str, outcome: &str) {
    METRICS.kubernetes_writes.with_label_values(&[kind, outcome]).inc();
}

/// A reconcile ended.
pub fn reconcile(controller: &str, outcome: &str, took: Duration) {
    METRICS.reconciles.with_label_values(&[controller, outcome]).inc();
    METRICS.reconcile_seconds.with_label_values(&[controller]).observe(took.as_secs_f64());
    activity::count_reconcile(outcome);
}

/// This many objects wait for a reconcile.
pub fn queue_length(controller: &str, length: usize) {
    METRICS.queue.with_label_values(&[controller]).set(i64::try_from(length).unwrap_or(i64::MAX));
}

/// Whether this process leads.
pub fn leader(leads: bool) {
    METRICS.leader.with_label_values::<&str>(&[]).set(i64::from(leads));
}

/// Whether a controller runs.
pub fn controller_running(controller: &str, running: bool) {
    METRICS.controllers.with_label_values(&[controller]).set(i64::from(running));
}

/// This many steps are withheld.
pub fn withheld(controller: &str, count: usize) {
    METRICS.withheld.with_label_values(&[controller]).set(i64::try_from(count).unwrap_or(i64::MAX));
}

/// A reload ended as `unchanged`, `applied` or `rejected`.
pub fn config_reload(outcome: &str) {
    METRICS.config_reloads.with_label_values(&[outcome]).inc();
    METRICS.config_success.with_label_values::<&str>(&[]).set(i64::from(outcome != "rejected"));
}

/// A configuration is used since this time, in seconds since 1970.
pub fn config_applied(at: i64) {
    METRICS.config_success.with_label_values::<&str>(&[]).set(1);
    METRICS.config_since.with_label_values::<&str>(&[]).set(at);
}

/// A read from the API server, or the opening of a watch, ended; `outcome` is `ok`, an HTTP status, or `unanswered`.
pub fn kubernetes_read(verb: &str, outcome: &str) {
    METRICS.kubernetes_reads.with_label_values(&[verb, outcome]).inc();
}

/// This many events were not written.
pub fn events_dropped(cause: &str, count: usize) {
    METRICS.events_dropped.with_label_values(&[cause]).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
}

/// So many objects are out of sync.
pub fn out_of_sync(controller: &str, objects: usize) {
    METRICS.out_of_sync.with_label_values(&[controller]).set(i64::try_from(objects).unwrap_or(i64::MAX));
}

/// One of these objects, with the number of the code that says why; without one, it is no longer shown.
pub fn object_out_of_sync(controller: &str, object: &str, code: Option<u16>) {
    show(&METRICS.object_out_of_sync, &[controller, object], code.map(i64::from));
}

/// So many objects are out of sync for one cause; with none, it is no longer shown.
pub fn shared_cause(controller: &str, cause: &str, objects: usize) {
    let shown = (objects > 0).then(|| i64::try_from(objects).unwrap_or(i64::MAX));
    show(&METRICS.shared_causes, &[controller, cause], shown);
}

/// A long-lived task ended by itself so many times more. One that has not yet is shown too.
pub fn task_ends(task: &str, more: u64) {
    METRICS.task_ends.with_label_values(&[task]).inc_by(more);
}

/// This many spans of traces were sent or lost.
pub fn trace_spans(outcome: &str, count: usize) {
    METRICS.trace_spans.with_label_values(&[outcome]).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
}

/// When something ends, in seconds since 1970; without an end, it is not shown.
pub fn expiry(of: &str, at: Option<i64>) {
    show(&METRICS.expiry, &[of], at);
}

/// Sets a gauge; without a value, it is no longer shown.
fn show(gauge: &IntGaugeVec, labels: &[&str], value: Option<i64>) {
    match value {
        Some(value) => gauge.with_label_values(labels).set(value),
        // It is an error to remove what is not there.
        None => drop(gauge.remove_label_values(labels)),
    }
}

/// The gauges of one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerGauges {
    /// Whether it runs.
    pub is_running: bool,
    /// Objects that wait for a reconcile.
    pub queue: i64,
    /// Objects that are out of sync.
    pub out_of_sync: i64,
    /// Steps that are withheld.
    pub withheld: i64,
}

/// The gauges of every controller that ran, by its name.
pub fn controllers() -> BTreeMap<String, ControllerGauges> {
    let mut all: BTreeMap<String, ControllerGauges> = BTreeMap::new();
    let mut read = |gauge: &IntGaugeVec, set: fn(&mut ControllerGauges, i64)| {
        for (controller, value) in by_label(gauge) {
            set(all.entry(controller).or_default(), value);
        }
    };
    read(&METRICS.controllers, |gauges, value| gauges.is_running = value > 0);
    read(&METRICS.queue, |gauges, value| gauges.queue = value);
    read(&METRICS.out_of_sync, |gauges, value| gauges.out_of_sync = value);
    read(&METRICS.withheld, |gauges, value| gauges.withheld = value);
    all
}

/// The values of a gauge with one label.
#[allow(clippy::cast_possible_truncation)]
fn by_label(gauge: &IntGaugeVec) -> Vec<(String, i64)> {
    let families = gauge.collect();
    let metrics = families.iter().flat_map(|family| family.get_metric());
    let pairs = metrics.filter_map(|metric| {
        Some((metric.get_label().first()?.value().to_owned(), metric.get_gauge().get_value() as i64))
    });
    pairs.collect()
}

/// All metrics in the text format of Prometheus.
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
