//! Spans of reconciles and of the calls within them, for a collector of traces. Only a build with the feature `traces` has this
//! module, and nothing is recorded until a collector is configured.
//!
//! A span that has ended waits in a bounded queue for the task that sends it. A full queue drops spans:
//! recording one never waits.

pub mod otlp;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

/// Spans that wait to be sent; further ones are dropped.
pub const LONGEST_QUEUE: usize = 2048;

/// What is said of a span, by names of attributes.
pub type Attributes = Vec<(&'static str, serde_json::Value)>;

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct EndedSpan {
    /// Of the trace, as the standard has it: 16 random bytes.
    pub trace: u128,
    /// Its own.
    pub id: u64,
    /// The reconcile that it is a part of.
    pub parent: Option<u64>,
    /// What was done; of few kinds.
    pub name: String,
    /// Whether it is a request to another system.
    pub is_call: bool,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// When it began and ended.
    pub lasted: (Instant, Instant),
    /// Everything else.
    pub attributes: Attributes,
}

/// Where spans go.
#[derive(Debug)]
struct Recorder {
    queue: mpsc::Sender<EndedSpan>,
    /// The part of all traces that is recorded.
    share: f64,
}

static RECORDER: RwLock<Option<Recorder>> = RwLock::new(None);
/// Spans that found the queue full.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Records this share of the traces that begin from now on, 1.0 for all; what recorded them before gets no more.
pub fn record(share: f64) -> mpsc::Receiver<EndedSpan> {
    let (queue, spans) = mpsc::channel(LONGEST_QUEUE);
    *RECORDER.write() = Some(Recorder { queue, share });
    spans
}

/// Records nothing any more. The queue ends once it is empty.
pub fn stop() {
    *RECORDER.write() = None;
}

/// How many spans found the queue full since this was last asked.
pub fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

tokio::task_local! {
    /// The reconcile that this task runs; `None` if its trace is not recorded.
    static RECONCILE: Option<OpenReconcile>;
}

/// A reconcile that runs. It ends when this is dropped, however it ends.
#[derive(Debug)]
struct OpenReconcile {
    span: EndedSpan,
    outcome: OnceLock<String>,
}

impl Drop for OpenReconcile {
    fn drop(&mut self) {
        // One that is dropped in the middle has no outcome.
        let outcome = self.outcome.take().unwrap_or_else(|| "cancelled".to_owned());
        let mut span = self.span.clone();
        span.lasted.1 = Instant::now();
        span.attributes.push(("alicloud_ccm.outcome", outcome.as_str().into()));
        span.failure = (!matches!(outcome.as_str(), "ok" | "again")).then_some(outcome);
        enqueue(span);
    }
}

/// Runs a reconcile as the root of a trace, if it is one of those that are recorded.
pub(super) async fn reconciling<F: Future>(
    controller: &'static str,
    attributes: impl FnOnce() -> Attributes,
    reconcile: F,
) -> F::Output {
    let now = Instant::now();
    let open = new_trace().map(|trace| EndedSpan {
        trace,
        id: new_id(),
        parent: None,
        name: format!("reconcile {controller}"),
        is_call: false,
        failure: None,
        lasted: (now, now),
        attributes: attributes(),
    });
    let open = open.map(|span| OpenReconcile { span, outcome: OnceLock::new() });
    let to_the_end = async {
        let output = reconcile.await;
        outcome("ok");
        output
    };
    RECONCILE.scope(open, to_the_end).await
}

/// The outcome of the reconcile that this task runs; the first one counts.
pub(super) fn outcome(outcome: &str) {
    let _ = RECONCILE.try_with(|open| open.as_ref().map(|open| open.outcome.set(outcome.to_owned())));
}

/// A call has ended: a part of the reconcile that this task runs, or a trace of its own.
pub(super) fn called(name: &str, failure: Option<&str>, took: Duration, attributes: impl FnOnce() -> Attributes) {
    let within = RECONCILE.try_with(|open| open.as_ref().map(|open| (open.span.trace, Some(open.span.id))));
    let Some((trace, parent)) = within.unwrap_or_else(|_| new_trace().map(|trace| (trace, None))) else { return };
    let now = Instant::now();
    enqueue(EndedSpan {
        trace,
        id: new_id(),
        parent,
        name: name.to_owned(),
        is_call: true,
        failure: failure.map(str::to_owned),
        lasted: (now.checked_sub(took).unwrap_or(now), now),
        attributes: attributes(),
    });
}

fn enqueue(span: EndedSpan) {
    if let Some(recorder) = &*RECORDER.read()
        && recorder.queue.try_send(span).is_err()
    {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The id of a new trace, if it is one of those that are recorded.
fn new_trace() -> Option<u128> {
    let share = RECORDER.read().as_ref()?.share;
    Some(Uuid::new_v4().as_u128()).filter(|trace| is_sampled(*trace, share))
}

/// The standard's rule: the last 56 bits are the random number that decides.
/// <https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/>
#[allow(clippy::cast_precision_loss, reason = "a share")]
fn is_sampled(trace: u128, share: f64) -> bool {
    const NUMBERS: u128 = 1 << 56;
    (trace % NUMBERS) as f64 >= (1.0 - share) * NUMBERS as f64
}

/// Never 0, which the standard forbids: the variant of a random UUID is in it.
fn new_id() -> u64 {
    Uuid::new_v4().as_u64_pair().1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_traces_is_recorded() {
        let share_of = |share: f64| {
            let sampled = (0..2000).filter(|_| is_sampled(Uuid::new_v4().as_u128(), share)).count();
            f64::from(u32::try_from(sampled).unwrap()) / 2000.0
        };
        assert!(share_of(1.0) >= 1.0 && share_of(0.0) <= 0.0);
        assert!((0.18..0.32).contains(&share_of(0.25)), "{}", share_of(0.25));
        assert!((0..1000).all(|_| new_id() != 0));
    }

    /// The recorder is one for the process, so this is one test.
    #[tokio::test]
    async fn calls_belong_to_their_reconcile_and_nothing_waits_for_the_queue() {
        let attributes = || vec![("a", "b".into())];
        let call = |name: &str| called(name, Some("throttled"), Duration::from_secs(1), attributes);
        call("before");
        reconciling("test-trace", || panic!("nothing is made while nothing is recorded"), async {
            call("before");
        })
        .await;
        let mut spans = record(1.0);
        reconciling("test-trace", attributes, async {
            call("Within");
        })
        .await;
        reconciling("test-trace", attributes, async { outcome("failed") }).await;
        let never = reconciling("test-trace", attributes, std::future::pending::<()>());
        assert!(tokio::time::timeout(Duration::ZERO, never).await.is_err());
        call("Alone");
        let mut next = async || loop {
            // Other tests of this process reconcile too.
            let span = spans.recv().await.unwrap();
            if ["Within", "Alone", "before", "reconcile test-trace"].contains(&span.name.as_str()) {
                break span;
            }
        };
        let [within, reconcile, failed] = [next().await, next().await, next().await];
        let [cut_off, alone] = [next().await, next().await];
        assert_eq!((within.name.as_str(), within.parent, within.is_call), ("Within", Some(reconcile.id), true));
        assert_eq!((within.trace, within.failure.as_deref()), (reconcile.trace, Some("throttled")));
        assert_eq!(within.lasted.1 - within.lasted.0, Duration::from_secs(1));
        assert_eq!((reconcile.parent, reconcile.failure.as_deref()), (None, None));
        assert_eq!(reconcile.attributes, [("a", "b".into()), ("alicloud_ccm.outcome", "ok".into())]);
        assert_eq!((failed.failure.as_deref(), cut_off.failure.as_deref()), (Some("failed"), Some("cancelled")));
        assert_eq!((alone.name.as_str(), alone.parent), ("Alone", None));
        assert!(alone.trace != reconcile.trace && cut_off.trace != reconcile.trace);
        let _ = take_dropped();
        for _ in 0..LONGEST_QUEUE + 7 {
            call("Alone");
        }
        assert!(take_dropped() >= 7);
        stop();
        reconciling("test-trace", || panic!("recording has stopped"), async {}).await;
    }
}
