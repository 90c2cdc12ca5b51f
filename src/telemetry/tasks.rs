//! Long-lived tasks: one that ends by itself is a defect, is counted and shown, and starts again; and every one beats.
//!
//! A beat means that the task is scheduled: its timer is polled together with the task. So a task that blocks its thread (a
//! busy loop, a lock that is never released, a blocking call) falls silent, and all tasks do when the runtime stands still.
//! A task that waits beats, however long the wait is: a slow call to the cloud is no hang. For the same reason, beats do not show
//! a task that waits for something that never comes.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::metrics;
use crate::clock;

/// Time between beats.
const PERIOD: Duration = Duration::from_secs(5);
/// A task that did not beat for this long hangs.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// Pause before a task starts again: doubled with each end in a row, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this time without an end, earlier ones are forgotten.
const LASTING: Duration = Duration::from_secs(600);
/// With so many ends in a row, starting again does not help.
const TOO_MANY_ENDS: u32 = 5;

/// The long-lived tasks of this process. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    running: Arc<Mutex<BTreeMap<u64, Task>>>,
}

#[derive(Debug)]
struct Task {
    name: String,
    beat: Instant,
    /// Since when it runs, or is about to start again.
    since: Instant,
    /// Ends in a row, when the last one was, and whether it starts again only after a pause.
    ends: u32,
    last_end: Timestamp,
    is_paused: bool,
}

/// What is wrong with a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTrouble {
    /// The task.
    pub name: String,
    /// For people.
    pub text: String,
    /// Whether it does its work nevertheless.
    pub is_running: bool,
}

impl Tasks {
    /// Runs the futures that `start` gives, each after the one before has ended, until `stop` is cancelled and the last one has
    /// ended. Dropping the handle cuts it off.
    pub fn supervise<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        stop: &CancellationToken,
        start: impl FnMut() -> F + Send + 'static,
    ) -> AbortOnDropHandle<()> {
        let (entry, stop) = (self.enter(name), stop.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::select! {
                () = entry.run(start, &stop) => {}
                () = entry.beat() => {}
            }
        }))
    }

    fn enter(&self, name: &str) -> TaskEntry {
        metrics::task_ends(name, 0);
        let now = Instant::now();
        let task = Task {
            name: name.to_owned(),
            beat: now,
            since: now,
            ends: 0,
            last_end: Timestamp::UNIX_EPOCH,
            is_paused: false,
        };
        let mut running = self.running.lock();
        let id = running.last_key_value().map_or(0, |(last, _)| last + 1);
        running.insert(id, task);
        TaskEntry { tasks: self.clone(), id, name: name.to_owned() }
    }

    /// What is wrong with which tasks, in the order of their names.
    pub fn troubles(&self) -> Vec<TaskTrouble> {
        let mut troubles: Vec<_> = self.running.lock().values().filter_map(Task::trouble).collect();
        troubles.sort_by(|a, b| a.name.cmp(&b.name));
        troubles
    }

    /// Which task hangs, if one does.
    pub fn hang(&self) -> Option<String> {
        let silent = |task: &Task| Some(format!("the task {} {}", task.name, task.silence()?));
        self.running.lock().values().find_map(silent)
    }

    /// Why this process has to be started again, if it has to: a task hangs, or ended again and again.
    pub fn failure(&self) -> Option<String> {
        let ended =
            |task: &Task| (task.ends >= TOO_MANY_ENDS).then(|| format!("the task {} {}", task.name, task.history()));
        self.hang().or_else(|| self.running.lock().values().find_map(ended))
    }
}

impl Task {
    fn silence(&self) -> Option<String> {
        let silence = self.beat.elapsed();
        (silence > LONGEST_SILENCE).then(|| format!("has made no progress for {} s", silence.as_secs()))
    }

    fn history(&self) -> String {
        let times = if self.ends == 1 { "once".to_owned() } else { format!("{} times in a row", self.ends) };
        format!("ended abnormally {times}, last at {:.0}; the log says where", self.last_end)
    }

    fn trouble(&self) -> Option<TaskTrouble> {
        let silence = self.silence();
        let is_running = silence.is_none() && !self.is_paused;
        let text = silence.or_else(|| (self.ends > 0).then(|| self.history()))?;
        Some(TaskTrouble { name: self.name.clone(), text, is_running })
    }
}

/// A task that is known as long as this lives.
struct TaskEntry {
    tasks: Tasks,
    id: u64,
    name: String,
}

impl TaskEntry {
    async fn run<F: Future<Output = ()>>(&self, mut start: impl FnMut() -> F, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let run = async {
                tokio::select! {
                    () = start() => {}
                    () = injected(&self.name) => {}
                }
            };
            // The panic itself is in the log already.
            let _ = AssertUnwindSafe(run).catch_unwind().await;
            if stop.is_cancelled() {
                return;
            }
            let pause = self.ended();
            error!(
                code = "ACCM0702",
                task = self.name,
                seconds = pause.as_secs(),
                "the task ended abnormally; it starts again"
            );
            if stop.run_until_cancelled(sleep(pause)).await.is_some() {
                self.change(|task| task.is_paused = false);
            }
        }
    }

    /// Never returns.
    async fn beat(&self) {
        let mut ticks = interval(PERIOD);
        loop {
            ticks.tick().await;
            self.change(|task| {
                task.beat = Instant::now();
                if task.since.elapsed() >= LASTING {
                    task.ends = 0;
                }
            });
        }
    }

    /// Counts an end by itself; gives the pause before the task starts again.
    fn ended(&self) -> Duration {
        metrics::task_ends(&self.name, 1);
        let mut ends = 0;
        self.change(|task| {
            task.ends += 1;
            ends = task.ends;
            (task.since, task.last_end, task.is_paused) = (Instant::now(), clock::now(), true);
        });
        FIRST_PAUSE.saturating_mul(1 << ends.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
    }

    fn change(&self, change: impl FnOnce(&mut Task)) {
        if let Some(task) = self.tasks.running.lock().get_mut(&self.id) {
            change(task);
        }
    }
}

impl Drop for TaskEntry {
    fn drop(&mut self) {
        self.tasks.running.lock().remove(&self.id);
    }
}

/// Lets a test end a task, or block its thread: by a file, named by `ALICLOUD_CCM_TEST_TASK`, that holds `panic NAME` or `hang
/// NAME`. Never returns. Only the feature `under-test` reads the file.
pub async fn injected(name: &str) {
    #[cfg(feature = "under-test")]
    if let Some(path) = std::env::var_os("ALICLOUD_CCM_TEST_TASK") {
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if let Some((fault, _)) = text.split_once(' ').filter(|(_, of)| *of == name) {
                let _ = std::fs::remove_file(&path);
                match fault {
                    "hang" => std::thread::sleep(Duration::MAX),
                    _ => panic!("a test asked for it"),
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    let _ = name;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_starts_again_and_is_told() {
        let (tasks, stop, runs) = (Tasks::default(), CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        let counted = runs.clone();
        let _task = tasks.supervise("test-a", &stop, move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match run {
                    0 => panic!("on purpose"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            }
        });
        sleep(SECOND / 2).await;
        let trouble = tasks.troubles().remove(0);
        assert_eq!((trouble.name.as_str(), trouble.is_running), ("test-a", false), "{trouble:?}");
        assert!(trouble.text.contains("ended abnormally once"), "{trouble:?}");
        sleep(10 * SECOND).await;
        let trouble = tasks.troubles().remove(0);
        assert!(trouble.is_running && trouble.text.contains("2 times in a row"), "{trouble:?}");
        assert_eq!((runs.load(Ordering::SeqCst), tasks.failure()), (3, None));
        assert!(metrics::render().contains(r#"alicloud_ccm_task_ends_total{task="test-a"} 2"#));
        sleep(LASTING).await;
        assert_eq!(tasks.troubles(), [], "it lasts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_again_and_again_is_a_reason_to_start_the_process_again() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let task = tasks.supervise("test-b", &stop, || async {});
        sleep(10 * SECOND).await;
        assert_eq!(tasks.failure(), None, "after 0, 1, 3, 7 s");
        sleep(10 * SECOND).await;
        let failure = tasks.failure().unwrap();
        assert!(failure.starts_with("the task test-b ended abnormally 5 times in a row"), "{failure}");
        assert_eq!(tasks.hang(), None);
        drop(task);
        sleep(SECOND).await;
        assert_eq!(tasks.failure(), None, "nobody needs it any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_no_hang_and_silence_is_one() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let _task = tasks.supervise("test-c", &stop, std::future::pending);
        sleep(1000 * SECOND).await;
        assert_eq!(tasks.failure(), None);
        let _never_polled = tasks.enter("test-d");
        sleep(LONGEST_SILENCE + SECOND).await;
        assert_eq!(tasks.hang().as_deref(), Some("the task test-d has made no progress for 31 s"));
        assert_eq!(tasks.failure(), tasks.hang());
        assert!(!tasks.troubles()[0].is_running);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_asked_to_stop_ends_in_its_own_time() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let ending = stop.clone();
        let task = tasks.supervise("test-e", &stop, move || {
            let ending = ending.clone();
            async move {
                ending.cancelled().await;
                sleep(3 * SECOND).await;
            }
        });
        sleep(SECOND).await;
        let began = Instant::now();
        stop.cancel();
        task.await.unwrap();
        assert_eq!((began.elapsed(), tasks.troubles().len()), (3 * SECOND, 0));
    }
}
