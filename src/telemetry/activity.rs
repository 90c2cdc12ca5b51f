//! What the process does now and did last: reconciles that run, the last steps, and counts by minute. The page at `/` shows it;
//! Prometheus has the metrics.
//!
//! A step is one write to the cloud or to the API server that was sent. Its size is fixed, whatever the cluster: there are as many
//! reconciles at once as the controllers allow, and texts are cut. Times are of the monotonic clock, which never fails: this is
//! called between the reconciles, where nothing may panic.
//!
//! Where traces are recorded, they get the same reconciles and calls from here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::traces;

/// The steps that are kept.
pub const STEPS: usize = 100;
/// The minutes that are counted.
pub const MINUTES: usize = 60;
/// Characters of one text; what is beyond is cut.
const LONGEST_TEXT: usize = 240;

/// A reconcile that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningReconcile {
    /// Whose it is.
    pub controller: &'static str,
    /// What it is about.
    pub objects: Arc<str>,
    /// When it started.
    pub since: Instant,
    /// The step that it does now, in the words of the plan.
    pub step: Option<Arc<str>>,
}

/// One write that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStep {
    /// When it ended.
    pub at: Instant,
    /// The controller; empty if none made it.
    pub controller: &'static str,
    /// What the reconcile was about.
    pub objects: Arc<str>,
    /// The step, in the words of the plan; empty if the call says all.
    pub what: Arc<str>,
    /// The action of the cloud, or the method and the path of the API server.
    pub call: String,
    /// `ok`, or the kind of fault with the code.
    pub outcome: String,
    /// The cloud's; empty for the API server, and where there was no answer.
    pub request_id: String,
    /// From sending it to its answer.
    pub took: Duration,
}

/// What ended within one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteCount {
    /// All.
    pub all: u32,
    /// Those that failed.
    pub failed: u32,
}

/// Counts of the last hour, by minute since the start. A minute in which nothing ended has none.
#[derive(Debug, Default)]
struct HourOfCounts(BTreeMap<usize, MinuteCount>);

impl HourOfCounts {
    fn add(&mut self, minute: usize, failed: bool) {
        let count = self.0.entry(minute).or_default();
        count.all = count.all.saturating_add(1);
        count.failed = count.failed.saturating_add(u32::from(failed));
        if self.0.len() > MINUTES {
            self.0.pop_first();
        }
    }

    /// The oldest first.
    fn until(&self, minute: usize) -> Vec<MinuteCount> {
        let count = |minute| self.0.get(&minute).copied().unwrap_or_default();
        (0..MINUTES).rev().map(|ago| minute.checked_sub(ago).map(count).unwrap_or_default()).collect()
    }
}

/// Everything that is kept.
#[derive(Debug, Default)]
struct ActivityLog {
    running: BTreeMap<u64, RunningReconcile>,
    /// The newest last.
    steps: VecDeque<PastStep>,
    reconciles: HourOfCounts,
    calls: HourOfCounts,
}

impl ActivityLog {
    fn keep(&mut self, step: PastStep) {
        if self.steps.len() >= STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
    }
}

static LOG: LazyLock<Mutex<ActivityLog>> = LazyLock::new(Mutex::default);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

tokio::task_local! {
    /// The reconcile that this task runs.
    static RECONCILE: u64;
    /// The step that it does.
    static STEP: Arc<str>;
}

/// What is kept, as it is now.
#[derive(Clone, Debug, Default)]
pub struct RecentActivity {
    /// Reconciles that run, the oldest first.
    pub running: Vec<RunningReconcile>,
    /// The newest first.
    pub steps: Vec<PastStep>,
    /// Reconciles by minute, the oldest first.
    pub reconciles: Vec<MinuteCount>,
    /// Calls to the cloud by minute, the oldest first.
    pub calls: Vec<MinuteCount>,
}

/// What is kept, as it is now.
pub fn recent() -> RecentActivity {
    let minute = minute();
    let log = LOG.lock();
    RecentActivity {
        running: log.running.values().cloned().collect(),
        steps: log.steps.iter().rev().cloned().collect(),
        reconciles: log.reconciles.until(minute),
        calls: log.calls.until(minute),
    }
}

/// A reconcile that is about to start.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileStart<'a> {
    /// Unique in this process.
    pub id: u64,
    /// Whose it is.
    pub controller: &'static str,
    /// What it is about.
    pub objects: &'a str,
    /// Whether it overtook others.
    pub is_urgent: bool,
}

impl<'a> ReconcileStart<'a> {
    /// A reconcile of these objects that did not overtake any.
    pub fn new(controller: &'static str, objects: &'a str) -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(1);
        Self { id: STARTED.fetch_add(1, Ordering::Relaxed), controller, objects, is_urgent: false }
    }

    fn attributes(&self) -> traces::Attributes {
        vec![
            ("alicloud_ccm.controller", self.controller.into()),
            ("alicloud_ccm.objects", cut(self.objects).into()),
            ("alicloud_ccm.urgent", self.is_urgent.into()),
            ("alicloud_ccm.reconcile_id", self.id.into()),
        ]
    }
}

/// Runs a reconcile; it is shown as running until it ends or is dropped.
pub async fn reconciling<F: Future>(start: ReconcileStart<'_>, reconcile: F) -> F::Output {
    let ReconcileStart { id, controller, objects, .. } = start;
    let (objects, since) = (cut(objects).into(), Instant::now());
    LOG.lock().running.insert(id, RunningReconcile { controller, objects, since, step: None });
    let _entry = RunningEntry(id);
    traces::reconciling(controller, || start.attributes(), RECONCILE.scope(id, reconcile)).await
}

/// Shown as running as long as this lives.
struct RunningEntry(u64);

impl Drop for RunningEntry {
    fn drop(&mut self) {
        LOG.lock().running.remove(&self.0);
    }
}

/// Does one step of the reconcile that runs; the writes within are kept under this text.
pub async fn step<F: Future>(what: &str, work: F) -> F::Output {
    let what: Arc<str> = cut(what).into();
    let _shown = RECONCILE.try_with(|id| ShownStep::new(*id, what.clone())).ok();
    STEP.scope(what, work).await
}

/// A step of a running reconcile that is shown as long as this lives.
struct ShownStep {
    id: u64,
    what: Arc<str>,
}

impl ShownStep {
    fn new(id: u64, what: Arc<str>) -> Self {
        if let Some(running) = LOG.lock().running.get_mut(&id) {
            running.step = Some(what.clone());
        }
        Self { id, what }
    }
}

impl Drop for ShownStep {
    fn drop(&mut self) {
        let mut log = LOG.lock();
        // Steps that run side by side are shown one at a time.
        if let Some(running) = log.running.get_mut(&self.id)
            && running.step.as_ref().is_some_and(|step| Arc::ptr_eq(step, &self.what))
        {
            running.step = None;
        }
    }
}

/// A call that was sent, and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct EndedCall<'a> {
    /// The action of the cloud, or the method and the path of the API server.
    pub call: &'a str,
    /// Whether it is a write.
    pub writes: bool,
    /// `ok`, or the kind of fault with the code.
    pub outcome: &'a str,
    /// The cloud's; empty for the API server, and where there was no answer.
    pub request_id: &'a str,
    /// From sending it to its answer.
    pub took: Duration,
}

/// Keeps a call if it is a write, and records its span where traces are recorded; `details` are made only for that.
pub fn ended(call: EndedCall<'_>, details: impl FnOnce() -> traces::Attributes) {
    if call.writes {
        keep(call);
    }
    // The path of a request names an object, and spans of a kind have one name.
    let name = call.call.split(' ').next().unwrap_or_default();
    let failure = Some(call.outcome).filter(|outcome| *outcome != "ok");
    traces::called(name, failure, call.took, || {
        let mut details = details();
        let step = STEP.try_with(Arc::clone).unwrap_or_default();
        let shown = [("alibaba_cloud.request_id", call.request_id), ("alicloud_ccm.step", &*step)];
        details.extend(shown.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.into())));
        details
    });
}

fn keep(EndedCall { call, outcome, request_id, took, .. }: EndedCall<'_>) {
    let reconcile = RECONCILE.try_with(|id| *id).ok();
    let what = STEP.try_with(Arc::clone).unwrap_or_default();
    let mut log = LOG.lock();
    let running = reconcile.and_then(|id| log.running.get(&id));
    let (controller, objects) = running.map(|it| (it.controller, it.objects.clone())).unwrap_or_default();
    let (call, outcome, request_id) = (cut(call), cut(outcome), cut(request_id));
    log.keep(PastStep { at: Instant::now(), controller, objects, what, call, outcome, request_id, took });
}

/// Counts a reconcile that ended, by the outcome that the metrics give it.
pub(super) fn count_reconcile(outcome: &str) {
    let minute = minute();
    LOG.lock().reconciles.add(minute, matches!(outcome, "failed" | "panicked"));
    traces::outcome(outcome);
}

/// Counts a call to the cloud that ended.
pub(super) fn count_call(failed: bool) {
    let minute = minute();
    LOG.lock().calls.add(minute, failed);
}

/// Full minutes since the start.
fn minute() -> usize {
    usize::try_from(START.elapsed().as_secs() / 60).unwrap_or(usize::MAX)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(call: &str, outcome: &str, request_id: &str) {
        ended(EndedCall { call, writes: true, outcome, request_id, took: Duration::ZERO }, Vec::new);
    }

    #[tokio::test]
    async fn a_write_is_kept_with_its_reconcile_and_step() {
        let running = || recent().running.into_iter().find(|it| it.controller == "test-act");
        reconciling(ReconcileStart::new("test-act", "shop/web"), async {
            let work = async {
                assert_eq!(running().unwrap().step.as_deref(), Some("create listener TCP 80"));
                wrote("CreateIt", "ok", "R-1");
            };
            step("create listener TCP 80", work).await;
            assert_eq!(running().unwrap().step, None, "it is done");
            wrote("PATCH /api/v1/services", "transient", "");
        })
        .await;
        assert_eq!(running(), None);
        let kept: Vec<_> = recent().steps.into_iter().filter(|step| step.controller == "test-act").collect();
        let texts = |step: &PastStep| [&*step.objects, &*step.what, &*step.call, &*step.request_id].join("|");
        let texts: Vec<_> = kept.iter().map(texts).collect();
        assert_eq!(texts, ["shop/web||PATCH /api/v1/services|", "shop/web|create listener TCP 80|CreateIt|R-1"]);
    }

    #[tokio::test]
    async fn a_reconcile_that_is_dropped_is_over() {
        let never = reconciling(ReconcileStart::new("test-dropped", "a"), std::future::pending::<()>());
        assert!(tokio::time::timeout(Duration::ZERO, never).await.is_err());
        assert!(recent().running.iter().all(|it| it.controller != "test-dropped"));
    }

    #[tokio::test]
    async fn side_by_side_each_write_has_its_own_step() {
        let write = |name: &'static str| {
            step(name, async move {
                tokio::task::yield_now().await;
                wrote(&format!("Call-{name}"), "ok", "");
            })
        };
        let start = ReconcileStart::new("test-beside", "");
        reconciling(start, async { tokio::join!(write("one"), write("two")) }).await;
        let steps: Vec<_> = recent().steps.into_iter().filter(|step| step.controller == "test-beside").collect();
        assert!(steps.len() == 2 && steps.iter().all(|step| step.call == format!("Call-{}", step.what)), "{steps:?}");
    }

    #[test]
    fn only_the_last_steps_are_kept_and_texts_are_cut() {
        let mut log = ActivityLog::default();
        for number in 0..STEPS + 7 {
            let text: Arc<str> = "".into();
            let (what, call, at) = (text.clone(), number.to_string(), Instant::now());
            let (outcome, request_id, took) = (String::new(), String::new(), Duration::ZERO);
            log.keep(PastStep { at, controller: "", objects: text, what, call, outcome, request_id, took });
        }
        assert_eq!((log.steps.len(), log.steps[0].call.as_str()), (STEPS, "7"));
        assert_eq!(cut(&"ä".repeat(1000)).chars().count(), LONGEST_TEXT + 1);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn minutes_pass_and_empty_ones_count_nothing() {
        let mut hour = HourOfCounts::default();
        let at = |hour: &mut HourOfCounts, minute: usize| {
            let counts = hour.until(minute);
            let filled = counts.iter().enumerate().filter(|(_, count)| count.all > 0);
            filled.map(|(index, count)| (MINUTES - 1 - index, count.all, count.failed)).collect::<Vec<_>>()
        };
        hour.add(0, false);
        hour.add(0, true);
        hour.add(3, false);
        assert_eq!(at(&mut hour, 3), [(3, 2, 1), (0, 1, 0)], "minutes ago, all, failed");
        assert_eq!(at(&mut hour, 62), [(59, 1, 0)]);
        assert_eq!(at(&mut hour, 63), []);
        hour.add(9_000, false);
        assert_eq!(at(&mut hour, 9_000), [(0, 1, 0)]);
    }
}
