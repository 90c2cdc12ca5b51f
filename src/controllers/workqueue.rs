//! The driver for controllers that reconcile one object at a time.
//!
//! Keys that change are reconciled once each, however often they changed; one reconcile per key at a time, many keys in
//! parallel. The first change starts a reconcile at once, those that follow within a second share the next one. A key that
//! changes during its reconcile is reconciled again afterwards. A failure is retried with backoff, per key. A panic is a
//! failure of its key and of nothing else.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::time::{DelayQueue, delay_queue};
use tracing::{error, warn};

use super::backoff::{Backoff, FailuresInARow};
use super::reconciling;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::activity::ReconcileStart;
use crate::telemetry::metrics;

/// The least time between two starts that changes of one object cause, so that many changes share a reconcile.
const INTERVAL: Duration = Duration::from_secs(1);

/// Urgent objects that overtake others in a row.
const MOST_OVERTAKING: usize = 3;

/// How long reconciles that run may take to end after a stop.
const GRACE: Duration = Duration::from_secs(8);

/// The outcome of the reconcile of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The object is in sync.
    Done,
    /// Nothing failed, and the object is reconciled again after this time.
    RequeueAfter(Duration),
    /// It failed and is retried.
    Failed(RetriedFailure),
}

/// How a reconcile failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetriedFailure {
    /// What failed, in a word: each kind has a backoff of its own.
    pub kind: &'static str,
    /// The longer the more often this kind failed in a row.
    pub backoff: Backoff,
    /// It is retried after this time at the latest.
    pub latest: Duration,
    /// The call that a quota kept from succeeding, if one did: it is retried once something is deleted.
    pub lacks_quota_for: Option<&'static str>,
}

impl ReconcileResult {
    /// A failure of this kind.
    pub const fn failed(kind: &'static str, backoff: Backoff) -> Self {
        Self::Failed(RetriedFailure { kind, backoff, latest: Duration::MAX, lacks_quota_for: None })
    }

    /// The same, but the object is reconciled again after this time at the latest.
    #[must_use]
    pub fn within(self, latest: Duration) -> Self {
        match self {
            Self::Done => Self::RequeueAfter(latest),
            Self::RequeueAfter(after) => Self::RequeueAfter(after.min(latest)),
            Self::Failed(failure) => Self::Failed(RetriedFailure { latest: failure.latest.min(latest), ..failure }),
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::RequeueAfter(_) => "again",
            Self::Failed(_) => "failed",
        }
    }
}

/// A controller's work on single objects.
pub trait ObjectReconciler: Send + Sync + 'static {
    /// The controller's name in logs and metrics.
    const NAME: &'static str;

    /// The most reconciles at a time, and as many more of urgent objects; read before each start.
    fn concurrency(&self) -> usize;

    /// Whether an object that waits overtakes others. Every fourth start is not urgent nevertheless.
    fn is_urgent(&self, key: &ObjectKey) -> bool;

    /// An object that was reconciled is reconciled again after this time; `None` if nothing but a change makes it due.
    fn scheduled(&self, _key: &ObjectKey, _after: Option<Duration>) {}

    /// How many things reconciles have deleted since this was last asked: objects that a quota kept from being in sync are
    /// retried.
    fn take_deleted(&self) -> usize {
        0
    }

    /// Observes, plans, executes, reports.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = ReconcileResult> + Send;
}

/// Runs `reconciler` for every key that arrives, until `stop` is cancelled.
pub async fn drive<R: ObjectReconciler>(
    reconciler: Arc<R>,
    mut keys: mpsc::UnboundedReceiver<Vec<ObjectKey>>,
    stop: CancellationToken,
) {
    let mut queue = Queue::default();
    let (mut running, mut ordinary) = (JoinSet::new(), 0);
    let urgent = |key: &ObjectKey| reconciler.is_urgent(key);
    loop {
        let places = reconciler.concurrency().max(1);
        // Urgent objects have as many places of their own: those that wait in theirs do not delay them.
        while running.len() < 2 * places {
            let Some((key, is_urgent)) = queue.start(ordinary >= places) else { break };
            ordinary += usize::from(!is_urgent);
            let reconciler = reconciler.clone();
            running.spawn(async move {
                let name = key.to_string();
                let start = ReconcileStart { is_urgent, ..ReconcileStart::new(R::NAME, &name) };
                (is_urgent, reconciling(start, Some(&key), reconcile(reconciler, key.clone())).await)
            });
        }
        metrics::queue_length(R::NAME, queue.waiting());
        // The order starves none: what ends is bounded by what runs, what is due by what ended.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(Ok((is_urgent, (key, result)))) = running.join_next() => {
                ordinary -= usize::from(!is_urgent);
                let after = queue.end(key.clone(), result, &urgent);
                reconciler.scheduled(&key, after);
                queue.use_quota(reconciler.take_deleted(), &urgent);
            }
            due = queue.due() => queue.enqueue(due, &urgent),
            batch = keys.recv() => match batch {
                Some(batch) => batch.into_iter().for_each(|key| queue.add(key, &urgent)),
                None => break,
            },
        }
    }
    metrics::queue_length(R::NAME, 0);
    let ended = tokio::time::timeout(GRACE, async { while running.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        let count = running.len();
        warn!(
            code = "ACCM0703",
            controller = R::NAME,
            count,
            "reconciles that did not end in time are cancelled; the next run repairs them"
        );
        running.abort_all();
    }
}

/// One reconcile; a panic is a failure of its object, not the end of the controller.
async fn reconcile<R: ObjectReconciler>(reconciler: Arc<R>, key: ObjectKey) -> (ObjectKey, ReconcileResult) {
    let started = Instant::now();
    let result = AssertUnwindSafe(reconciler.reconcile(&key)).catch_unwind().await.unwrap_or_else(|_| {
        error!(code = "ACCM0704", "the reconcile panicked; the controller retries the object");
        ReconcileResult::failed("panic", Backoff::LONG)
    });
    metrics::reconcile(R::NAME, result.label(), started.elapsed());
    (key, result)
}

/// What is known of a key that is not in sync.
#[derive(Debug)]
struct FailedKey {
    in_a_row: FailuresInARow,
    lacks_quota_for: Option<&'static str>,
    /// Until when the last one waits, unless the object changes.
    until: Instant,
}

impl FailedKey {
    fn none(now: Instant) -> Self {
        Self { in_a_row: FailuresInARow::new(), lacks_quota_for: None, until: now }
    }

    /// One more; gives how long to wait.
    fn add(&mut self, failure: RetriedFailure, now: Instant) -> Duration {
        let count = self.in_a_row.entry(failure.kind).or_default();
        // A change began this reconcile: many changes during a short outage must not make the wait after it long.
        *count = if now < self.until { (*count).max(1) } else { *count + 1 };
        let delay = failure.backoff.delay(*count).min(failure.latest);
        (self.until, self.lacks_quota_for) = (now + delay, failure.lacks_quota_for);
        delay
    }
}

/// Why a reconcile starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// The object changed.
    Change,
    /// Its time has come: a retry, a comparison, or a look at what is under way.
    Timer,
}

/// Which keys wait, which are being reconciled, and which wait for their time.
#[derive(Debug, Default)]
struct Queue {
    normal: VecDeque<ObjectKey>,
    urgent: VecDeque<ObjectKey>,
    /// How many urgent keys overtook normal ones since one of those started.
    overtaken: usize,
    /// What is in one of the queues.
    waiting: HashMap<ObjectKey, Trigger>,
    /// Being reconciled; true if the key changed meanwhile.
    active: HashMap<ObjectKey, bool>,
    /// Starts that changes caused within the last [`INTERVAL`], in order.
    started: VecDeque<(Instant, ObjectKey)>,
    /// The last of these for each key.
    started_at: HashMap<ObjectKey, Instant>,
    failures: BTreeMap<ObjectKey, FailedKey>,
    timers: DelayQueue<(ObjectKey, Trigger)>,
    timer_of: HashMap<ObjectKey, delay_queue::Key>,
}

impl Queue {
    fn add(&mut self, key: ObjectKey, urgent: &impl Fn(&ObjectKey) -> bool) {
        if let Some(changed) = self.active.get_mut(&key) {
            *changed = true;
        } else if let Some(trigger) = self.waiting.get_mut(&key) {
            *trigger = Trigger::Change;
            // Its change can be urgent although what it waits for was not.
            if urgent(&key)
                && let Some(place) = self.normal.iter().position(|waiting| *waiting == key)
            {
                self.normal.remove(place);
                self.urgent.push_back(key);
            }
        } else {
            if let Some(timer) = self.timer_of.remove(&key) {
                self.timers.remove(&timer);
            }
            self.forget_starts();
            match self.started_at.get(&key).copied() {
                Some(started) => self.start_timer((key, Trigger::Change), started + INTERVAL),
                None => self.enqueue((key, Trigger::Change), urgent),
            }
        }
    }

    /// Its time has come; a key with a timer is neither waiting nor active.
    fn enqueue(&mut self, (key, trigger): (ObjectKey, Trigger), urgent: &impl Fn(&ObjectKey) -> bool) {
        self.waiting.insert(key.clone(), trigger);
        let lane = if urgent(&key) { &mut self.urgent } else { &mut self.normal };
        lane.push_back(key);
    }

    fn start_timer(&mut self, due: (ObjectKey, Trigger), at: Instant) {
        let key = due.0.clone();
        self.timer_of.insert(key, self.timers.insert_at(due, at));
    }

    fn forget_starts(&mut self) {
        let now = Instant::now();
        while let Some((started, key)) = self.started.front().filter(|(started, _)| *started + INTERVAL <= now) {
            if self.started_at.get(key) == Some(started) {
                self.started_at.remove(key);
            }
            self.started.pop_front();
        }
    }

    /// The next key, and whether it is urgent; only an urgent one `if_urgent`.
    fn start(&mut self, if_urgent: bool) -> Option<(ObjectKey, bool)> {
        let overtakes =
            !self.urgent.is_empty() && (if_urgent || self.normal.is_empty() || self.overtaken < MOST_OVERTAKING);
        if if_urgent && !overtakes {
            return None;
        }
        self.overtaken = if overtakes && !self.normal.is_empty() { self.overtaken + 1 } else { 0 };
        let key = if overtakes { self.urgent.pop_front() } else { self.normal.pop_front() }?;
        let trigger = self.waiting.remove(&key);
        self.active.insert(key.clone(), false);
        self.forget_starts();
        if trigger == Some(Trigger::Change) {
            let now = Instant::now();
            self.started.push_back((now, key.clone()));
            self.started_at.insert(key.clone(), now);
        }
        Some((key, overtakes))
    }

    /// Gives when the key is due again, if it is.
    fn end(
        &mut self,
        key: ObjectKey,
        result: ReconcileResult,
        urgent: &impl Fn(&ObjectKey) -> bool,
    ) -> Option<Duration> {
        let changed = self.active.remove(&key).unwrap_or(false);
        let delay = if let ReconcileResult::Failed(failure) = result {
            let now = Instant::now();
            Some(self.failures.entry(key.clone()).or_insert_with(|| FailedKey::none(now)).add(failure, now))
        } else {
            self.failures.remove(&key);
            if let ReconcileResult::RequeueAfter(delay) = result { Some(delay) } else { None }
        };
        if changed {
            self.add(key, urgent);
            return Some(Duration::ZERO);
        }
        if let Some(delay) = delay {
            self.start_timer((key, Trigger::Timer), Instant::now() + delay);
        }
        delay
    }

    /// So many things were deleted: as many objects that a quota kept from being in sync are due now, of those that lack the same
    /// one those first that are due first.
    fn use_quota(&mut self, deleted: usize, urgent: &impl Fn(&ObjectKey) -> bool) {
        if deleted == 0 {
            return;
        }
        let mut lacking: BTreeMap<&str, Vec<(Instant, ObjectKey)>> = BTreeMap::new();
        for (key, failures) in &self.failures {
            if let Some(action) = failures.lacks_quota_for.filter(|_| self.timer_of.contains_key(key)) {
                lacking.entry(action).or_default().push((failures.until, key.clone()));
            }
        }
        for mut keys in lacking.into_values() {
            keys.sort();
            keys.into_iter().take(deleted).for_each(|(_, key)| self.add(key, urgent));
        }
    }

    fn waiting(&self) -> usize {
        self.normal.len() + self.urgent.len()
    }

    /// The next key whose time has come; never ready if none waits for its time.
    async fn due(&mut self) -> (ObjectKey, Trigger) {
        match std::future::poll_fn(|context| self.timers.poll_expired(context)).await {
            Some(expired) => {
                let due = expired.into_inner();
                self.timer_of.remove(&due.0);
                due
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::alibaba::{Fault, FaultKind};
    use crate::controllers::loadbalancer::pause;

    /// Every start: which key, and how long after the test began.
    type Log = Arc<Mutex<Vec<(String, Duration)>>>;

    struct Scripted<F> {
        concurrency: usize,
        log: Log,
        began: Instant,
        script: F,
    }

    impl<F: Fn(&ObjectKey, usize) -> (Duration, ReconcileResult) + Send + Sync + 'static> ObjectReconciler for Scripted<F> {
        const NAME: &'static str = "test";

        fn concurrency(&self) -> usize {
            self.concurrency
        }

        fn is_urgent(&self, key: &ObjectKey) -> bool {
            key.name.starts_with("urgent")
        }

        async fn reconcile(&self, key: &ObjectKey) -> ReconcileResult {
            let nth = {
                let mut log = self.log.lock();
                log.push((key.name.to_string(), self.began.elapsed()));
                log.iter().filter(|(name, _)| **name == *key.name).count()
            };
            let (takes, result) = (self.script)(key, nth);
            tokio::time::sleep(takes).await;
            result
        }
    }

    fn start(
        concurrency: usize,
        script: impl Fn(&ObjectKey, usize) -> (Duration, ReconcileResult) + Send + Sync + 'static,
    ) -> (mpsc::UnboundedSender<Vec<ObjectKey>>, Log, CancellationToken, tokio::task::JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (log, stop) = (Log::default(), CancellationToken::new());
        let reconciler = Scripted { concurrency, log: log.clone(), began: Instant::now(), script };
        let task = tokio::spawn(drive(Arc::new(reconciler), receiver, stop.clone()));
        (sender, log, stop, task)
    }

    fn names(log: &Log) -> Vec<String> {
        log.lock().iter().map(|(name, _)| name.clone()).collect()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_key_that_changes_during_its_reconcile_is_reconciled_once_more() {
        let (sender, log, stop, task) = start(4, |_, _| (SECOND, ReconcileResult::Done));
        sender.send(vec![key("a")]).unwrap();
        tokio::time::sleep(SECOND / 2).await;
        for _ in 0..10 {
            sender.send(vec![key("a")]).unwrap();
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(names(&log), ["a", "a"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_in_a_short_time_share_few_reconciles() {
        let (sender, log, stop, task) = start(4, |_, _| (SECOND / 20, ReconcileResult::Done));
        for _ in 0..30 {
            sender.send(vec![key("a")]).unwrap();
            tokio::time::sleep(SECOND / 10).await;
        }
        tokio::time::sleep(10 * SECOND).await;
        let times: Vec<_> = log.lock().iter().map(|(_, at)| at.as_millis() / 100).collect();
        assert_eq!(times, [0, 10, 20, 30], "at once, then once a second, and the last change is not lost");
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_shortly_after_a_reconcile_that_no_change_caused_is_not_kept_waiting() {
        let retried = ReconcileResult::failed("busy", Backoff { first: 10 * SECOND, longest: 10 * SECOND });
        let again = |wait| (ReconcileResult::RequeueAfter(wait), wait);
        for (first, wait) in [again(2 * SECOND), again(20 * SECOND), again(60 * SECOND), (retried, 10 * SECOND)] {
            let (sender, log, stop, task) =
                start(4, move |_, nth| (SECOND / 20, if nth == 1 { first } else { ReconcileResult::Done }));
            sender.send(vec![key("a")]).unwrap();
            tokio::time::sleep(wait + SECOND / 5).await;
            assert_eq!(log.lock().len(), 2, "{first:?}: the timer began the second");
            for _ in 0..2 {
                sender.send(vec![key("a")]).unwrap();
                tokio::time::sleep(SECOND / 5).await;
            }
            tokio::time::sleep(10 * SECOND).await;
            let times: Vec<_> = log.lock().iter().map(|(_, at)| at.as_millis() / 100).collect();
            let changed = wait.as_millis() / 100 + 2;
            assert_eq!(times[2..], [changed, changed + 10], "{first:?}: the change at once, the next a second later");
            stop.cancel();
            task.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_success_forgets_them() {
        let (sender, log, stop, task) = start(1, |_, nth| {
            (
                Duration::ZERO,
                if nth < 4 { ReconcileResult::failed("busy", Backoff::SHORT) } else { ReconcileResult::Done },
            )
        });
        sender.send(vec![key("a")]).unwrap();
        tokio::time::sleep(60 * SECOND).await;
        let times: Vec<_> = log.lock().iter().map(|(_, at)| *at).collect();
        assert_eq!(times.len(), 4, "three failures, then done: {times:?}");
        for (delay, most) in times.windows(2).map(|pair| pair[1] - pair[0]).zip([1, 2, 4]) {
            assert!(delay <= most * SECOND + SECOND / 10 && delay >= most * SECOND * 3 / 4, "{times:?}");
        }
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_passes_is_not_slowed_down_by_one_that_lasts() {
        let (sender, log, stop, task) = start(1, |_, nth| {
            let result = match nth {
                1..=4 => ReconcileResult::failed("denied", Backoff::LONG),
                5 => ReconcileResult::failed("busy", Backoff::SHORT),
                _ => ReconcileResult::Done,
            };
            (Duration::ZERO, result)
        });
        sender.send(vec![key("a")]).unwrap();
        tokio::time::sleep(600 * SECOND).await;
        let times: Vec<_> = log.lock().iter().map(|(_, at)| *at).collect();
        assert_eq!(times.len(), 6);
        assert!(times[5] - times[4] < 2 * SECOND, "{times:?}");
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn changes_during_a_short_outage_do_not_lengthen_the_wait_after_it() {
        let began = Instant::now();
        let outage = 10 * SECOND;
        let (sender, log, stop, task) = start(1, move |_, _| {
            let is_over = began.elapsed() > outage;
            (
                Duration::ZERO,
                if is_over { ReconcileResult::Done } else { ReconcileResult::failed("busy", Backoff::SHORT) },
            )
        });
        for _ in 0..19 {
            sender.send(vec![key("a")]).unwrap();
            tokio::time::sleep(SECOND / 2).await;
        }
        tokio::time::sleep(60 * SECOND).await;
        let times: Vec<_> = log.lock().iter().map(|(_, at)| *at).collect();
        assert!(*times.last().unwrap() < outage + 3 * SECOND, "the next retry comes soon: {times:?}");
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_does_not_wait_for_the_backoff() {
        let (sender, log, stop, task) =
            start(1, |_, _| (Duration::ZERO, ReconcileResult::failed("denied", Backoff::LONG)));
        sender.send(vec![key("a")]).unwrap();
        tokio::time::sleep(SECOND).await;
        sender.send(vec![key("a")]).unwrap();
        tokio::time::sleep(SECOND).await;
        assert_eq!(names(&log), ["a", "a"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_of_its_key_only() {
        let (sender, log, stop, task) = start(2, |key, nth| {
            assert!(!(*key.name == *"bad" && nth == 1), "on purpose");
            (Duration::ZERO, ReconcileResult::Done)
        });
        sender.send(vec![key("bad"), key("good")]).unwrap();
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(names(&log), ["bad", "good", "bad"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn concurrency_limits_parallel_reconciles() {
        let (sender, log, stop, task) = start(2, |_, _| (10 * SECOND, ReconcileResult::Done));
        sender.send((0..6).map(|n| key(&n.to_string())).collect()).unwrap();
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(log.lock().len(), 2);
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(log.lock().len(), 6);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_keys_go_first_and_starve_no_other() {
        let (sender, log, stop, task) = start(1, |_, _| (SECOND, ReconcileResult::Done));
        sender.send((0..3).map(|n| key(&n.to_string())).collect()).unwrap();
        tokio::time::sleep(SECOND / 2).await;
        sender.send((0..5).map(|n| key(&format!("urgent-{n}"))).collect()).unwrap();
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(names(&log), ["0", "urgent-0", "urgent-1", "urgent-2", "1", "urgent-3", "urgent-4", "2"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_waits_overtakes_others_when_a_change_makes_it_urgent() {
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.add(key(name), &|_| false);
        }
        queue.add(key("c"), &|_| true);
        queue.add(key("c"), &|_| true);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.start(false)).map(|(key, urgent)| (key.name.to_string(), urgent)).collect();
        assert_eq!(order, [("c".to_owned(), true), ("a".to_owned(), false), ("b".to_owned(), false)]);
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_keys_do_not_wait_for_others_that_hang() {
        let (sender, log, stop, task) = start(2, |key, _| {
            (if key.name.starts_with("urgent") { SECOND } else { 100 * SECOND }, ReconcileResult::Done)
        });
        sender.send((0..6).map(|n| key(&n.to_string())).collect()).unwrap();
        tokio::time::sleep(SECOND).await;
        sender.send((0..4).map(|n| key(&format!("urgent-{n}"))).collect()).unwrap();
        tokio::time::sleep(3 * SECOND).await;
        assert_eq!(names(&log), ["0", "1", "urgent-0", "urgent-1", "urgent-2", "urgent-3"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_what_runs_and_starts_nothing() {
        let (sender, log, stop, task) = start(1, |_, _| (2 * SECOND, ReconcileResult::Done));
        sender.send(vec![key("a"), key("b")]).unwrap();
        tokio::time::sleep(SECOND).await;
        stop.cancel();
        let began = Instant::now();
        task.await.unwrap();
        assert!(began.elapsed() <= SECOND);
        assert_eq!(names(&log), ["a"]);
    }

    /// The longest that a key may wait after each kind failed in turn, four times one and then once the other.
    #[tokio::test(start_paused = true)]
    async fn waits_for_one_kind_of_failure_do_not_make_those_for_another_longer() {
        let failures = FaultKind::ALL.map(|kind| {
            match pause(&Fault { code: "No".to_owned(), ..Fault::new("CreateX", kind, "no") }) {
                ReconcileResult::Failed(failure) => failure,
                other => panic!("{other:?}"),
            }
        });
        for before in failures {
            for after in failures.iter().filter(|after| after.kind != before.kind) {
                let mut queue = Queue::default();
                let mut end = |failure| queue.end(key("a"), ReconcileResult::Failed(failure), &|_| false).unwrap();
                for _ in 0..4 {
                    let wait = end(before);
                    tokio::time::advance(wait).await;
                }
                let wait = end(*after);
                assert!(wait <= after.backoff.first, "{} after {}: {wait:?}", after.kind, before.kind);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_quota_kept_waiting_is_retried_when_something_is_deleted() {
        let mut queue = Queue::default();
        let lacks = |action| {
            let failure = RetriedFailure {
                kind: "quota",
                backoff: Backoff::LONG,
                latest: Duration::MAX,
                lacks_quota_for: Some(action),
            };
            ReconcileResult::Failed(failure)
        };
        queue.end(key("denied"), ReconcileResult::failed("denied", Backoff::LONG), &|_| false);
        for (name, action) in [("a", "CreateX"), ("b", "CreateX"), ("c", "CreateX"), ("d", "CreateY")] {
            queue.end(key(name), lacks(action), &|_| false);
            tokio::time::advance(10 * SECOND).await;
        }
        let mut due = |deleted| {
            queue.use_quota(deleted, &|_| false);
            let mut due: Vec<_> =
                std::iter::from_fn(|| queue.start(false)).map(|(key, _)| key.name.to_string()).collect();
            due.sort();
            due
        };
        assert_eq!(due(0), Vec::<String>::new());
        assert_eq!(due(2), ["a", "b", "d"], "as many as there is room for, of each quota");
        assert_eq!(due(9), ["c"]);
    }
}
