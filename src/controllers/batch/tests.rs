use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::fence::{Keeper, fence};

const SECOND: Duration = Duration::from_secs(1);
const PACE: Pace = Pace { aggregation: SECOND, period: Some(Duration::from_secs(300)) };

/// Every pass: its scope, and how long after the test began.
type Log = Arc<Mutex<Vec<(Scope, Duration)>>>;

impl Changes for mpsc::UnboundedReceiver<BTreeSet<ObjectKey>> {
    async fn next(&mut self) -> BTreeSet<ObjectKey> {
        match self.recv().await {
            Some(keys) => keys,
            None => std::future::pending().await,
        }
    }
}

struct Scripted<F> {
    pace: Pace,
    log: Log,
    began: Instant,
    script: F,
    takes: Duration,
}

impl<F: FnMut(usize, &Scope) -> Outcome + Send> Pass for Scripted<F> {
    const NAME: &'static str = "test";

    fn pace(&self) -> Pace {
        self.pace
    }

    fn concerns(&mut self, key: &ObjectKey) -> bool {
        key.name != "dull"
    }

    async fn run(&mut self, scope: Scope) -> Outcome {
        let number = {
            let mut log = self.log.lock();
            log.push((scope.clone(), self.began.elapsed()));
            log.len()
        };
        tokio::time::sleep(self.takes).await;
        (self.script)(number, &scope)
    }
}

struct Bench {
    log: Log,
    changes: mpsc::UnboundedSender<BTreeSet<ObjectKey>>,
    keeper: Keeper,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn start(takes: Duration, script: impl FnMut(usize, &Scope) -> Outcome + Send + 'static) -> Bench {
    start_with(PACE, takes, script)
}

fn start_with(pace: Pace, takes: Duration, script: impl FnMut(usize, &Scope) -> Outcome + Send + 'static) -> Bench {
    let (changes, mut receiver) = mpsc::unbounded_channel();
    let (keeper, fence) = fence();
    keeper.lead_unbounded();
    let (log, stop) = (Log::default(), CancellationToken::new());
    let mut pass = Scripted { pace, log: log.clone(), began: Instant::now(), script, takes };
    let token = stop.clone();
    let task = tokio::spawn(async move {
        // A configuration that never changes.
        let (_sender, config) = watch::channel(());
        drive(&mut pass, &mut receiver, config, fence, token).await;
    });
    Bench { log, changes, keeper, stop, task }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

fn keys(names: &[&str]) -> Scope {
    Scope::Keys(names.iter().map(|name| key(name)).collect())
}

impl Bench {
    fn change(&self, name: &str) {
        self.changes.send([key(name)].into()).unwrap();
    }

    fn passes(&self) -> Vec<(Scope, Duration)> {
        self.log.lock().clone()
    }
}

fn well(_: usize, _: &Scope) -> Outcome {
    Outcome::default()
}

#[tokio::test(start_paused = true)]
async fn everything_at_once_then_every_period() {
    let bench = start(Duration::ZERO, well);
    tokio::time::sleep(650 * SECOND).await;
    assert_eq!(bench.passes(), [0, 300, 600].map(|at| (Scope::All, at * SECOND)));
}

#[tokio::test(start_paused = true)]
async fn without_a_period_everything_is_looked_at_once_and_as_long_as_something_is_not_well() {
    let unwell_twice =
        |number: usize, _: &Scope| Outcome { sweep: (number < 3).then_some(20 * SECOND), ..Outcome::default() };
    let bench = start_with(Pace { period: None, ..PACE }, Duration::ZERO, unwell_twice);
    tokio::time::sleep(Duration::from_secs(7 * 24 * 3600)).await;
    assert_eq!(bench.passes(), [0, 20, 40].map(|at| (Scope::All, at * SECOND)));
    bench.change("a");
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(bench.passes().last().unwrap().0, keys(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn changes_wait_for_company_and_dull_ones_are_dropped() {
    let bench = start(Duration::ZERO, well);
    tokio::time::sleep(10 * SECOND).await;
    for name in ["a", "dull", "b", "a"] {
        bench.change(name);
        tokio::time::sleep(SECOND / 5).await;
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.passes()[1..], [(keys(&["a", "b"]), 11 * SECOND)]);
    bench.change("dull");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.passes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_pass_gets_its_own() {
    let bench = start(5 * SECOND, well);
    tokio::time::sleep(2 * SECOND).await;
    bench.change("a");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(bench.passes()[1].0, keys(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn failures_pause_longer_each_time_and_alone() {
    let bench = start(Duration::ZERO, |number, _| match number {
        1..4 => Outcome { failed: [(key("bad"), None)].into(), ..Outcome::default() },
        _ => Outcome::default(),
    });
    tokio::time::sleep(100 * SECOND).await;
    let passes = bench.passes();
    assert_eq!(passes.len(), 4, "three failures, then well: {passes:?}");
    for (pair, least) in passes.windows(2).zip([1, 2, 4]) {
        let pause = pair[1].1 - pair[0].1;
        assert!(pause >= least * SECOND && pause <= least * SECOND * 5 / 4 + SECOND / 10, "{passes:?}");
        assert_eq!(pair[1].0, keys(&["bad"]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_wait_is_kept() {
    let bench = start(Duration::ZERO, |number, _| match number {
        1 => Outcome {
            failed: [(key("a"), Some(30 * SECOND))].into(),
            again: [(key("b"), 2 * SECOND)].into(),
            ..Outcome::default()
        },
        _ => Outcome::default(),
    });
    tokio::time::sleep(100 * SECOND).await;
    let passes = bench.passes();
    assert_eq!(passes[1].0, keys(&["b"]));
    assert!(passes[1].1 < 3 * SECOND, "{passes:?}");
    assert_eq!(passes[2].0, keys(&["a"]));
    assert!(passes[2].1 >= 30 * SECOND && passes[2].1 < 31 * SECOND, "{passes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_aborted_pass_repeats_its_whole_scope() {
    let bench = start(Duration::ZERO, |number, _| Outcome { aborted: number % 2 == 1, ..Outcome::default() });
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.passes().iter().map(|(scope, _)| scope.clone()).collect::<Vec<_>>(), [Scope::All, Scope::All]);
    bench.change("a");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(
        bench.passes()[2..].iter().map(|(scope, _)| scope.clone()).collect::<Vec<_>>(),
        [keys(&["a"]), keys(&["a"])]
    );
}

#[tokio::test(start_paused = true)]
async fn an_aborted_pass_waits_as_long_as_it_was_told() {
    let wait = Some(20 * SECOND);
    let bench = start(Duration::ZERO, move |number, _| Outcome { aborted: number == 1, wait, ..Outcome::default() });
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(bench.passes(), [(Scope::All, Duration::ZERO), (Scope::All, 20 * SECOND)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_pass() {
    let bench = start(Duration::ZERO, |number, _| {
        assert!(number != 1, "on purpose");
        Outcome::default()
    });
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.passes().len(), 2);
    assert!(!bench.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn passes_need_the_lead_and_start_over_with_everything() {
    let bench = start(60 * SECOND, well);
    tokio::time::sleep(SECOND).await;
    bench.keeper.withdraw();
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(bench.passes().len(), 1, "cut off, and not repeated without the lead");
    bench.keeper.lead_unbounded();
    tokio::time::sleep(SECOND).await;
    assert_eq!(bench.passes()[1], (Scope::All, 201 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn stopping_does_not_wait_for_a_pass() {
    let bench = start(60 * SECOND, well);
    tokio::time::sleep(SECOND).await;
    bench.stop.cancel();
    let began = Instant::now();
    bench.task.await.unwrap();
    assert!(began.elapsed() < SECOND);
}
