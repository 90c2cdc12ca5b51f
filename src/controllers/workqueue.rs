//! The driver for controllers that work on one object at a time.
//!
//! Keys that change are worked on once each, however often they changed; one run per key at a time, many keys at once.
//! The first change is worked on at once, those that follow within a second together.
//! A key that changes while it is worked on is worked on again afterwards. A failure is repeated with growing pauses,
//! per key. A run that panics counts as a failure of its key and of nothing else.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::time::{DelayQueue, delay_queue};
use tracing::{error, warn};

use crate::jitter;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// An object that keeps changing is worked on no more often than this, so that many changes ride on one run.
const INTERVAL: Duration = Duration::from_secs(1);

/// Urgent objects that go before others in a row.
const MOST_OVERTAKING: usize = 3;

/// How long runs under way may take to end after a stop.
const GRACE: Duration = Duration::from_secs(8);

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The object is as wanted.
    Done,
    /// All is well so far, and there is more to do at this time from now.
    Again(Duration),
    /// It failed; try again after a pause that grows with each failure, at least this long.
    Failed(Pause),
}

/// Bounds of the pause after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// After the first failure; doubles with each further one.
    pub first: Duration,
    /// Never longer than this.
    pub longest: Duration,
}

impl Pause {
    /// For trouble that passes by itself.
    pub const SHORT: Self = Self { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
    /// For what somebody has to change first.
    pub const LONG: Self = Self { first: Duration::from_secs(30), longest: Duration::from_secs(300) };

    /// The pause after `failures` failures in a row, 1 or more; `spread` from 0 to 1 moves it by up to a quarter.
    fn after(self, failures: u32, spread: f64) -> Duration {
        let doubled = self.first.saturating_mul(1 << (failures.saturating_sub(1)).min(16));
        doubled.min(self.longest).mul_f64(1.0 - 0.25 * spread)
    }
}

/// Runs `reconcile` for every key that arrives until `stop`, with at most `concurrency()` at once. Where more wait, those
/// that are `urgent` go before others, of which every fourth run is one nevertheless.
pub async fn drive<F, R>(
    controller: &'static str,
    mut keys: mpsc::UnboundedReceiver<Vec<ObjectKey>>,
    concurrency: impl Fn() -> usize,
    urgent: impl Fn(&ObjectKey) -> bool,
    stop: CancellationToken,
    reconcile: F,
) where
    F: Fn(ObjectKey) -> R,
    R: Future<Output = ReconcileResult> + Send + 'static,
{
    let mut queue = Queue::default();
    let mut runs = JoinSet::new();
    let mut running: HashMap<Id, (ObjectKey, Instant)> = HashMap::new();
    loop {
        while running.len() < concurrency().max(1) {
            let Some(key) = queue.start() else { break };
            let handle = runs.spawn(reconcile(key.clone()));
            running.insert(handle.id(), (key, Instant::now()));
        }
        metrics::queue_length(controller, queue.waiting());
        // In the order in which they are never starved: what ends is bounded by what runs, what is due by what ended.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = runs.join_next_with_id() => {
                let (id, verdict) = match ended {
                    Ok((id, verdict)) => (id, verdict),
                    Err(failure) => {
                        let object = running.get(&failure.id()).map(|(key, _)| key.to_string()).unwrap_or_default();
                        error!(controller, object, "a reconcile ended abnormally; its object is tried again");
                        (failure.id(), ReconcileResult::Failed(Pause::LONG))
                    }
                };
                if let Some((key, started)) = running.remove(&id) {
                    metrics::reconcile(controller, outcome(verdict), started.elapsed());
                    queue.end(key, verdict, &urgent);
                }
            }
            key = queue.due() => queue.enqueue(key, &urgent),
            batch = keys.recv() => match batch {
                Some(batch) => batch.into_iter().for_each(|key| queue.add(key, &urgent)),
                None => break,
            },
        }
    }
    metrics::queue_length(controller, 0);
    let ended = tokio::time::timeout(GRACE, async { while runs.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        warn!(
            controller,
            count = runs.len(),
            "reconciles did not end in time and are cut off; the next run repairs what they left"
        );
        runs.abort_all();
    }
}

const fn outcome(verdict: ReconcileResult) -> &'static str {
    match verdict {
        ReconcileResult::Done => "ok",
        ReconcileResult::Again(_) => "again",
        ReconcileResult::Failed(_) => "failed",
    }
}

/// Which keys wait, which are worked on, and which wait for their time.
#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<ObjectKey>,
    /// Those that go before others.
    urgent: VecDeque<ObjectKey>,
    /// How many urgent ones went before others since one of those went.
    overtaken: usize,
    waiting: HashSet<ObjectKey>,
    /// Worked on now; true if the key changed meanwhile.
    active: HashMap<ObjectKey, bool>,
    /// When runs for a key began, for as long as that matters. In order.
    begun: VecDeque<(Instant, ObjectKey)>,
    failures: BTreeMap<ObjectKey, u32>,
    timers: DelayQueue<ObjectKey>,
    timer_of: HashMap<ObjectKey, delay_queue::Key>,
}

impl Queue {
    fn add(&mut self, key: ObjectKey, urgent: &impl Fn(&ObjectKey) -> bool) {
        if let Some(changed) = self.active.get_mut(&key) {
            *changed = true;
        } else if !self.waiting.contains(&key) {
            self.cancel_timer(&key);
            self.forget_begun();
            match self.begun.iter().rev().find(|(_, begun)| *begun == key) {
                Some((begun, _)) => self.start_timer(key, *begun + INTERVAL),
                None => self.enqueue(key, urgent),
            }
        }
    }

    /// Its time has come.
    fn enqueue(&mut self, key: ObjectKey, urgent: &impl Fn(&ObjectKey) -> bool) {
        if let Some(changed) = self.active.get_mut(&key) {
            *changed = true;
        } else if self.waiting.insert(key.clone()) {
            let lane = if urgent(&key) { &mut self.urgent } else { &mut self.order };
            lane.push_back(key);
        }
    }

    fn start_timer(&mut self, key: ObjectKey, at: Instant) {
        let timer = self.timers.insert_at(key.clone(), at);
        self.timer_of.insert(key, timer);
    }

    fn forget_begun(&mut self) {
        let now = Instant::now();
        while self.begun.front().is_some_and(|(begun, _)| *begun + INTERVAL <= now) {
            self.begun.pop_front();
        }
    }

    fn start(&mut self) -> Option<ObjectKey> {
        let overtakes = !self.urgent.is_empty() && (self.order.is_empty() || self.overtaken < MOST_OVERTAKING);
        self.overtaken = if overtakes && !self.order.is_empty() { self.overtaken + 1 } else { 0 };
        let key = if overtakes { self.urgent.pop_front() } else { self.order.pop_front() }?;
        self.waiting.remove(&key);
        self.active.insert(key.clone(), false);
        self.forget_begun();
        self.begun.push_back((Instant::now(), key.clone()));
        Some(key)
    }

    fn end(&mut self, key: ObjectKey, verdict: ReconcileResult, urgent: &impl Fn(&ObjectKey) -> bool) {
        let changed = self.active.remove(&key).unwrap_or(false);
        let again = match verdict {
            ReconcileResult::Done => {
                self.failures.remove(&key);
                None
            }
            ReconcileResult::Again(pause) => {
                self.failures.remove(&key);
                Some(pause)
            }
            ReconcileResult::Failed(pause) => {
                let failures = self.failures.entry(key.clone()).or_insert(0);
                *failures += 1;
                Some(pause.after(*failures, jitter::share()))
            }
        };
        if changed {
            self.add(key, urgent);
        } else if let Some(pause) = again {
            self.start_timer(key, Instant::now() + pause);
        }
    }

    fn waiting(&self) -> usize {
        self.order.len() + self.urgent.len()
    }

    /// The next key whose pause is over; never ready if no key waits for its time.
    async fn due(&mut self) -> ObjectKey {
        match std::future::poll_fn(|context| self.timers.poll_expired(context)).await {
            Some(expired) => {
                let key = expired.into_inner();
                self.timer_of.remove(&key);
                key
            }
            None => std::future::pending().await,
        }
    }

    fn cancel_timer(&mut self, key: &ObjectKey) {
        if let Some(timer) = self.timer_of.remove(key) {
            self.timers.remove(&timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Every start of a run: which key, and how long after the test began.
    type Log = Arc<Mutex<Vec<(String, Duration)>>>;

    fn start(
        concurrency: usize,
        run: impl Fn(ObjectKey, usize) -> (Duration, ReconcileResult) + Send + Sync + 'static,
    ) -> (mpsc::UnboundedSender<Vec<ObjectKey>>, Log, CancellationToken, tokio::task::JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let log: Log = Log::default();
        let stop = CancellationToken::new();
        let began = Instant::now();
        let run = Arc::new(run);
        let (seen, token) = (log.clone(), stop.clone());
        let task = tokio::spawn(drive(
            "test",
            receiver,
            move || concurrency,
            |key| key.name.starts_with("urgent"),
            token,
            move |key| {
                let (seen, run) = (seen.clone(), run.clone());
                async move {
                    let nth = {
                        let mut seen = seen.lock();
                        seen.push((key.name.clone(), began.elapsed()));
                        seen.iter().filter(|(name, _)| *name == key.name).count()
                    };
                    let (takes, verdict) = run(key, nth);
                    tokio::time::sleep(takes).await;
                    verdict
                }
            },
        ));
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
    async fn a_key_that_changes_while_worked_on_runs_once_more() {
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
    async fn many_changes_in_a_short_time_ride_on_few_runs() {
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
    async fn failures_pause_longer_each_time_and_success_forgets_them() {
        let (sender, log, stop, task) = start(1, |_, nth| {
            (Duration::ZERO, if nth < 4 { ReconcileResult::Failed(Pause::SHORT) } else { ReconcileResult::Done })
        });
        sender.send(vec![key("a")]).unwrap();
        tokio::time::sleep(60 * SECOND).await;
        let times: Vec<_> = log.lock().iter().map(|(_, at)| *at).collect();
        assert_eq!(times.len(), 4, "three failures, then done: {times:?}");
        for (pause, most) in times.windows(2).map(|pair| pair[1] - pair[0]).zip([1, 2, 4]) {
            assert!(pause <= most * SECOND + SECOND / 10 && pause >= most * SECOND * 3 / 4, "{times:?}");
        }
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_does_not_wait_for_the_pause() {
        let (sender, log, stop, task) = start(1, |_, _| (Duration::ZERO, ReconcileResult::Failed(Pause::LONG)));
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
            assert!(!(key.name == "bad" && nth == 1), "on purpose");
            (Duration::ZERO, ReconcileResult::Done)
        });
        sender.send(vec![key("bad"), key("good")]).unwrap();
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(names(&log), ["bad", "good", "bad"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn concurrency_bounds_what_runs_at_once() {
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
    async fn what_is_urgent_goes_first_and_starves_nobody() {
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
}
