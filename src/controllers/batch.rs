//! The driver for controllers that compare a whole set with the cloud: nodes, routes, volumes, records of names.
//!
//! Changes are collected for a while and handed to one reconcile, so that calls to the cloud go in batches. One reconcile runs
//! at a time. All objects are reconciled when leadership begins, once per period, when the configuration changes, and as long
//! as something is out of sync; keys that failed are retried, each with its own backoff. Reconciles run only while this process
//! leads, and are cancelled when it stops or loses the lease: the next one finds what is left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::backoff::{Backoff, FailuresInARow};
use super::{Context, reconciling};
use crate::cluster::{DirtyKeys, Store, Watched};
use crate::fence::Fence;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::activity::ReconcileStart;
use crate::telemetry::alarms::{ObjectTrouble, named};
use crate::telemetry::metrics;

/// What is out of sync is reconciled again after this time or sooner, whatever the period.
pub const RESYNC_WHILE_OUT_OF_SYNC: Duration = Duration::from_secs(300);

/// What a reconcile covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchScope {
    /// All objects.
    All,
    /// These objects; some may not exist any more.
    Keys(BTreeSet<ObjectKey>),
}

/// No objects.
impl Default for BatchScope {
    fn default() -> Self {
        Self::Keys(BTreeSet::new())
    }
}

impl BatchScope {
    /// Whether a key is covered.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Keys(keys) => keys.contains(key),
        }
    }

    fn add(&mut self, more: impl IntoIterator<Item = ObjectKey>) {
        if let Self::Keys(keys) = self {
            keys.extend(more);
        }
    }
}

impl fmt::Display for BatchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all objects"),
            Self::Keys(keys) => f.write_str(&named(keys)),
        }
    }
}

/// What failed, in a word, and the least delay of the retry if the cloud named one. Each kind has a backoff of its own.
pub type BatchFailure = (&'static str, Option<Duration>);

/// The outcome of the reconcile of several objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchResult {
    /// Objects that are out of sync, and the failure to retry, if one is the reason.
    out_of_sync: BTreeMap<ObjectKey, (ObjectTrouble, Option<BatchFailure>)>,
    /// Objects that are reconciled again after this time or sooner, whether or not something failed.
    requeue: BTreeMap<ObjectKey, Duration>,
    /// Why nothing could be reconciled: the whole scope is retried.
    pub aborted: Option<BatchFailure>,
    /// All objects are reconciled again by then, however long the period: something is withheld or out of sync.
    pub resync_after: Option<Duration>,
}

impl BatchResult {
    /// Nothing could be reconciled, and the objects of these keys are out of sync. The driver retries the whole scope.
    pub fn aborted(why: BatchFailure, trouble: &ObjectTrouble, keys: impl Iterator<Item = ObjectKey>) -> Self {
        let out_of_sync = keys.map(|key| (key, (trouble.clone(), None))).collect();
        Self { aborted: Some(why), out_of_sync, ..Self::default() }
    }

    /// An object is out of sync, although nothing failed. The first trouble of an object counts.
    pub fn out_of_sync(&mut self, key: ObjectKey, trouble: ObjectTrouble) {
        self.out_of_sync.entry(key).or_insert((trouble, None));
    }

    /// An object is out of sync because something failed. The driver retries it with a backoff.
    pub fn failed(&mut self, key: ObjectKey, trouble: ObjectTrouble, failure: BatchFailure) {
        self.out_of_sync.insert(key, (trouble, Some(failure)));
    }

    /// Objects that are out of sync, and why.
    pub fn all_out_of_sync(&self) -> impl Iterator<Item = (&ObjectKey, &ObjectTrouble)> {
        self.out_of_sync.iter().map(|(key, (trouble, _))| (key, trouble))
    }

    /// Whether something failed for this object.
    pub fn has_failed(&self, key: &ObjectKey) -> bool {
        self.out_of_sync.get(key).is_some_and(|(_, failure)| failure.is_some())
    }

    /// Objects that are out of sync or requeued.
    pub fn unsettled(&self) -> impl Iterator<Item = &ObjectKey> {
        self.out_of_sync.keys().chain(self.requeue.keys())
    }

    /// Reconciles an object again after this time or sooner.
    pub fn requeue(&mut self, key: ObjectKey, after: Duration) {
        let later = self.requeue.entry(key).or_insert(after);
        *later = after.min(*later);
    }

    fn is_success(&self) -> bool {
        self.aborted.is_none() && self.out_of_sync.values().all(|(_, failure)| failure.is_none())
    }
}

/// When reconciles start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTiming {
    /// How long the first change waits for others.
    pub aggregation: Duration,
    /// Time between reconciles of all objects; `None` if nothing but changes and retries starts one.
    pub period: Option<Duration>,
}

/// A controller's work on sets of objects.
pub trait BatchReconciler: Send {
    /// The controller's name in logs and metrics.
    const NAME: &'static str;

    /// Current timing; read before every wait.
    fn timing(&self) -> BatchTiming;

    /// Whether a change of this object needs a reconcile. Called once per change.
    fn is_relevant(&mut self, key: &ObjectKey) -> bool;

    /// Objects that failed or wait are reconciled again then.
    fn scheduled(&mut self, _later: &BTreeMap<ObjectKey, Instant>) {}

    /// The controller stops, or this process has lost the lease: alarms are now the next leader's to raise.
    fn lease_lost(&mut self) {}

    /// Observes, plans, executes, reports. May be dropped at any await.
    fn reconcile(&mut self, scope: BatchScope) -> impl Future<Output = BatchResult> + Send;
}

/// Runs a controller of the objects that are `watched` until `context.stop` is cancelled.
pub async fn run<V, R: BatchReconciler>(
    context: Context,
    watched: Watched<V>,
    new: impl FnOnce(Context, Arc<Store<V>>) -> R,
) {
    if context.stop.run_until_cancelled(watched.store.synced()).await.is_none() {
        return;
    }
    let mut changes = watched.store.subscribe();
    let (config, fence, stop) = (context.config.clone(), context.fence.clone(), context.stop.clone());
    let mut reconciler = new(context, watched.store.clone());
    drive(&mut reconciler, &mut changes, config, fence, stop).await;
    reconciler.lease_lost();
}

/// Drives `reconciler` until `stop` is cancelled.
pub async fn drive<R: BatchReconciler, C: Send + Sync>(
    reconciler: &mut R,
    changes: &mut DirtyKeys,
    mut config: watch::Receiver<C>,
    fence: Fence,
    stop: CancellationToken,
) {
    // Two handles, as both are waited for while a reconcile runs.
    let (mut gaining, mut losing) = (fence.clone(), fence);
    loop {
        if stop.run_until_cancelled(gaining.gained()).await.is_none() {
            return;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = losing.lost() => debug!(controller = R::NAME, "the lease is lost; reconciles pause"),
            () = drive_as_leader(reconciler, changes, &mut config) => {}
        }
        metrics::queue_length(R::NAME, 0);
        reconciler.lease_lost();
    }
}

/// One reconcile after another. Never returns.
async fn drive_as_leader<R: BatchReconciler, C>(
    reconciler: &mut R,
    changes: &mut DirtyKeys,
    config: &mut watch::Receiver<C>,
) {
    let mut schedule = Schedule::default();
    schedule.add_all(Instant::now());
    loop {
        metrics::queue_length(R::NAME, schedule.waiting());
        let due: OptionFuture<_> = schedule.due(reconciler.timing()).map(tokio::time::sleep_until).into();
        tokio::select! {
            biased;
            Ok(()) = config.changed() => schedule.add_all(Instant::now()),
            keys = changes.next() => {
                let keys = keys.into_iter().filter(|key| reconciler.is_relevant(key)).collect();
                schedule.add(keys, Instant::now());
            }
            Some(()) = due => {
                let scope = schedule.take(Instant::now(), reconciler.timing());
                let objects = scope.to_string();
                let start = ReconcileStart::new(R::NAME, &objects);
                let result = reconciling(start, None, reconcile(reconciler, scope.clone())).await;
                schedule.end(&scope, result, Instant::now());
                reconciler.scheduled(&schedule.later);
            }
        }
    }
}

/// One reconcile; a panic is its failure, not the end of the controller.
async fn reconcile<R: BatchReconciler>(reconciler: &mut R, scope: BatchScope) -> BatchResult {
    let started = Instant::now();
    let (result, label) = match AssertUnwindSafe(reconciler.reconcile(scope)).catch_unwind().await {
        Ok(result) if result.is_success() => (result, "ok"),
        Ok(result) => (result, "failed"),
        Err(_) => {
            error!(code = "ACCM0704", "the reconcile panicked; the controller retries it");
            (BatchResult { aborted: Some(("panic", None)), ..BatchResult::default() }, "panicked")
        }
    };
    metrics::reconcile(R::NAME, label, started.elapsed());
    result
}

/// What is to be reconciled, and when.
#[derive(Debug, Default)]
struct Schedule {
    /// Starts at the end of the aggregation time after `since`.
    dirty: BatchScope,
    since: Option<Instant>,
    /// When a reconcile of all objects last started.
    resynced: Option<Instant>,
    /// Keys that are reconciled at a later time, none of which is dirty, and their failures in a row.
    later: BTreeMap<ObjectKey, Instant>,
    failures: BTreeMap<ObjectKey, FailuresInARow>,
    /// The same for all objects together.
    resync_later: Option<Instant>,
    resync_failures: FailuresInARow,
}

impl Schedule {
    fn add(&mut self, keys: BTreeSet<ObjectKey>, now: Instant) {
        if !keys.is_empty() {
            self.later.retain(|key, _| !keys.contains(key));
            self.dirty.add(keys);
            self.since.get_or_insert(now);
        }
    }

    fn add_all(&mut self, now: Instant) {
        self.dirty = BatchScope::All;
        self.since.get_or_insert(now);
    }

    fn waiting(&self) -> usize {
        match &self.dirty {
            BatchScope::All => 1,
            BatchScope::Keys(keys) => keys.len() + self.later.len(),
        }
    }

    /// When the next reconcile starts; `None` if nothing is due until something changes.
    fn due(&self, timing: BatchTiming) -> Option<Instant> {
        let aggregated = self.since.map(|since| since + self.resynced.map_or(Duration::ZERO, |_| timing.aggregation));
        self.resync_due(timing).into_iter().chain(aggregated).chain(self.later.values().copied()).min()
    }

    /// When all objects are due; the first time at once.
    fn resync_due(&self, timing: BatchTiming) -> Option<Instant> {
        let periodic = match self.resynced {
            Some(resynced) => timing.period.map(|period| resynced + period),
            None => self.since,
        };
        periodic.into_iter().chain(self.resync_later).min()
    }

    /// All that is due now, with all that changed: what is dirty does not wait once a reconcile starts.
    fn take(&mut self, now: Instant, timing: BatchTiming) -> BatchScope {
        let mut scope = std::mem::take(&mut self.dirty);
        self.since = None;
        if self.resync_due(timing).is_some_and(|due| due <= now) {
            scope = BatchScope::All;
        }
        scope.add(self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()));
        self.later.retain(|key, _| !scope.contains(key));
        if scope == BatchScope::All {
            self.resynced = Some(now);
            self.resync_later = None;
        }
        scope
    }

    fn end(&mut self, scope: &BatchScope, result: BatchResult, now: Instant) {
        let BatchResult { out_of_sync, requeue, aborted, resync_after } = result;
        let failure = |(key, (_, failure)): (ObjectKey, (_, Option<BatchFailure>))| Some((key, failure?));
        let mut failed: BTreeMap<ObjectKey, BatchFailure> = out_of_sync.into_iter().filter_map(failure).collect();
        match (scope, aborted) {
            (BatchScope::All, Some((kind, at_least))) => {
                let failures = self.resync_failures.entry(kind).or_default();
                *failures += 1;
                let delay = Backoff::SHORT.delay(*failures);
                self.resync_later = Some(now + delay.max(at_least.unwrap_or_default()));
            }
            (BatchScope::All, None) => self.resync_failures.clear(),
            (BatchScope::Keys(keys), Some(why)) => failed.extend(keys.iter().map(|key| (key.clone(), why))),
            (BatchScope::Keys(_), None) => {}
        }
        self.resync_later = self.resync_later.into_iter().chain(resync_after.map(|delay| now + delay)).min();
        self.failures.retain(|key, _| !scope.contains(key) || failed.contains_key(key));
        // What failed together is retried together, so that it shares calls again.
        let mut delays = BTreeMap::new();
        for (key, (kind, at_least)) in failed {
            let failures = self.failures.entry(key.clone()).or_default().entry(kind).or_default();
            *failures += 1;
            let delay = *delays.entry(*failures).or_insert_with(|| Backoff::SHORT.delay(*failures));
            self.later.insert(key, now + delay.max(at_least.unwrap_or_default()));
        }
        for (key, delay) in requeue {
            let at = now + delay;
            self.later.entry(key).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
    }
}

#[cfg(test)]
mod tests;
