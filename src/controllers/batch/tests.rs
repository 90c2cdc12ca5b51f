use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::*;
use crate::fence::{Keeper, fence};
use crate::plan::inputs::NodeView;

const SECOND: Duration = Duration::from_secs(1);
const TIMING: BatchTiming = BatchTiming { aggregation: SECOND, period: Some(Duration::from_secs(300)) };

/// Every reconcile: its scope, and how long after the test began.
type Log = Arc<Mutex<Vec<(BatchScope, Duration)>>>;

struct Scripted<F> {
    timing: BatchTiming,
    log: Log,
    began: Instant,
    script: F,
    takes: Duration,
}

impl<F: FnMut(usize, &BatchScope) -> BatchResult + Send> BatchReconciler for Scripted<F> {
    const NAME: &'static str = "test";

    fn timing(&self) -> BatchTiming {
        self.timing
    }

    fn is_relevant(&mut self, key: &ObjectKey) -> bool {
        *key.name != *"irrelevant"
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
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
    nodes: Arc<Store<NodeView>>,
    keeper: Keeper,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn start(takes: Duration, script: impl FnMut(usize, &BatchScope) -> BatchResult + Send + 'static) -> Bench {
    start_with(TIMING, takes, script)
}

fn start_with(
    timing: BatchTiming,
    takes: Duration,
    script: impl FnMut(usize, &BatchScope) -> BatchResult + Send + 'static,
) -> Bench {
    let nodes = Arc::new(Store::default());
    let mut changes = nodes.subscribe();
    let (keeper, fence) = fence();
    keeper.lead_unbounded();
    let (log, stop) = (Log::default(), CancellationToken::new());
    let mut reconciler = Scripted { timing, log: log.clone(), began: Instant::now(), script, takes };
    let token = stop.clone();
    let task = tokio::spawn(async move {
        // A configuration that never changes.
        let (_sender, config) = watch::channel(());
        drive(&mut reconciler, &mut changes, config, fence, token).await;
    });
    Bench { log, nodes, keeper, stop, task }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

fn keys(names: &[&str]) -> BatchScope {
    BatchScope::Keys(names.iter().map(|name| key(name)).collect())
}

impl Bench {
    fn change(&self, name: &str) {
        self.nodes.skip(key(name));
        self.nodes.delete(&key(name));
    }

    fn reconciles(&self) -> Vec<(BatchScope, Duration)> {
        self.log.lock().clone()
    }
}

fn failing<'a>(objects: impl IntoIterator<Item = (&'a str, BatchFailure)>) -> BatchResult {
    let mut result = BatchResult::default();
    for (name, failure) in objects {
        result.failed(key(name), ObjectTrouble::default(), failure);
    }
    result
}

fn succeeds(_: usize, _: &BatchScope) -> BatchResult {
    BatchResult::default()
}

#[tokio::test(start_paused = true)]
async fn all_objects_are_reconciled_at_once_then_every_period() {
    let bench = start(Duration::ZERO, succeeds);
    tokio::time::sleep(650 * SECOND).await;
    assert_eq!(bench.reconciles(), [0, 300, 600].map(|at| (BatchScope::All, at * SECOND)));
}

#[tokio::test(start_paused = true)]
async fn without_a_period_all_objects_are_reconciled_once_and_as_long_as_something_is_out_of_sync() {
    let out_of_sync_twice = |number: usize, _: &BatchScope| BatchResult {
        resync_after: (number < 3).then_some(20 * SECOND),
        ..BatchResult::default()
    };
    let bench = start_with(BatchTiming { period: None, ..TIMING }, Duration::ZERO, out_of_sync_twice);
    tokio::time::sleep(Duration::from_secs(7 * 24 * 3600)).await;
    assert_eq!(bench.reconciles(), [0, 20, 40].map(|at| (BatchScope::All, at * SECOND)));
    bench.change("a");
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(bench.reconciles().last().unwrap().0, keys(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn changes_are_aggregated_and_irrelevant_ones_are_dropped() {
    let bench = start(Duration::ZERO, succeeds);
    tokio::time::sleep(10 * SECOND).await;
    for name in ["a", "irrelevant", "b", "a"] {
        bench.change(name);
        tokio::time::sleep(SECOND / 5).await;
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.reconciles()[1..], [(keys(&["a", "b"]), 11 * SECOND)]);
    bench.change("irrelevant");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.reconciles().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_reconcile_gets_its_own() {
    let bench = start(5 * SECOND, succeeds);
    tokio::time::sleep(2 * SECOND).await;
    bench.change("a");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(bench.reconciles()[1].0, keys(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_each_by_itself() {
    let bench = start(Duration::ZERO, |number, _| match number {
        1..4 => failing([("bad", ("busy", None))]),
        _ => BatchResult::default(),
    });
    tokio::time::sleep(100 * SECOND).await;
    let reconciles = bench.reconciles();
    assert_eq!(reconciles.len(), 4, "three failures, then success: {reconciles:?}");
    for (pair, nominal) in reconciles.windows(2).zip([1, 2, 4]) {
        let delay = pair[1].1 - pair[0].1;
        assert!(delay >= nominal * SECOND * 3 / 4 && delay <= nominal * SECOND + SECOND / 10, "{reconciles:?}");
        assert_eq!(pair[1].0, keys(&["bad"]));
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_failure_begins_with_the_shortest_wait() {
    let kind = |number| if number < 6 { "denied" } else { "busy" };
    for whole in [true, false] {
        let bench = start(Duration::ZERO, move |number, _| match (number, whole) {
            (1..8, true) => BatchResult { aborted: Some((kind(number), None)), ..BatchResult::default() },
            (1..8, false) => failing([("bad", (kind(number), None))]),
            _ => BatchResult::default(),
        });
        tokio::time::sleep(100 * SECOND).await;
        let reconciles = bench.reconciles();
        for (pair, nominal) in reconciles.windows(2).zip([1, 2, 4, 8, 16, 1, 2]) {
            let delay = pair[1].1 - pair[0].1;
            assert!(delay <= nominal * SECOND + SECOND / 10, "{whole}, {nominal}: {reconciles:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_together_is_retried_together() {
    let names: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let bench = start(Duration::ZERO, move |number, _| match number {
        1..4 => failing(names.iter().map(|name| (&**name, ("busy", None)))),
        _ => BatchResult::default(),
    });
    tokio::time::sleep(100 * SECOND).await;
    let sizes: Vec<usize> = bench.reconciles()[1..]
        .iter()
        .map(|(scope, _)| match scope {
            BatchScope::All => 0,
            BatchScope::Keys(keys) => keys.len(),
        })
        .collect();
    assert_eq!(sizes, [50, 50, 50], "they share their calls");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_kept() {
    let bench = start(Duration::ZERO, |number, _| match number {
        1 => BatchResult { requeue: [(key("b"), 2 * SECOND)].into(), ..failing([("a", ("busy", Some(30 * SECOND)))]) },
        _ => BatchResult::default(),
    });
    tokio::time::sleep(100 * SECOND).await;
    let reconciles = bench.reconciles();
    assert_eq!(reconciles[1].0, keys(&["b"]));
    assert!(reconciles[1].1 < 3 * SECOND, "{reconciles:?}");
    assert_eq!(reconciles[2].0, keys(&["a"]));
    assert!(reconciles[2].1 >= 30 * SECOND && reconciles[2].1 < 31 * SECOND, "{reconciles:?}");
}

#[tokio::test(start_paused = true)]
async fn an_aborted_reconcile_retries_its_whole_scope() {
    let aborted = |number| (number % 2 == 1).then_some(("busy", None));
    let bench =
        start(Duration::ZERO, move |number, _| BatchResult { aborted: aborted(number), ..BatchResult::default() });
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(
        bench.reconciles().iter().map(|(scope, _)| scope.clone()).collect::<Vec<_>>(),
        [BatchScope::All, BatchScope::All]
    );
    bench.change("a");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(
        bench.reconciles()[2..].iter().map(|(scope, _)| scope.clone()).collect::<Vec<_>>(),
        [keys(&["a"]), keys(&["a"])]
    );
}

#[tokio::test(start_paused = true)]
async fn an_aborted_reconcile_waits_for_its_retry_after() {
    let bench = start(Duration::ZERO, move |number, _| BatchResult {
        aborted: (number == 1).then_some(("busy", Some(20 * SECOND))),
        ..BatchResult::default()
    });
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(bench.reconciles(), [(BatchScope::All, Duration::ZERO), (BatchScope::All, 20 * SECOND)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_reconcile() {
    let bench = start(Duration::ZERO, |number, _| {
        assert!(number != 1, "on purpose");
        BatchResult::default()
    });
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(bench.reconciles().len(), 2);
    assert!(!bench.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn reconciles_need_the_lease_and_start_over_with_all_objects() {
    let bench = start(60 * SECOND, succeeds);
    tokio::time::sleep(SECOND).await;
    bench.keeper.withdraw();
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(bench.reconciles().len(), 1, "cancelled, and not repeated without the lease");
    bench.keeper.lead_unbounded();
    tokio::time::sleep(SECOND).await;
    assert_eq!(bench.reconciles()[1], (BatchScope::All, 201 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn stopping_does_not_wait_for_a_reconcile() {
    let bench = start(60 * SECOND, succeeds);
    tokio::time::sleep(SECOND).await;
    bench.stop.cancel();
    let began = Instant::now();
    bench.task.await.unwrap();
    assert!(began.elapsed() < SECOND);
}
