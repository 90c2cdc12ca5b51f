//! The driver for controllers that compare a whole set with the cloud: nodes, routes.
//!
//! Changes are collected for a while and handed to one pass, so that calls to the cloud go in batches. One pass runs at a
//! time. Everything is looked at when leadership begins, once per period, when the configuration changes, and as long as
//! something is not well; keys that failed are tried again with growing pauses, each on its own clock. Passes run only while
//! this process leads, and are cut off when it stops or loses the lead: what a pass leaves undone, the next one finds.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::cluster::Dirty;
use crate::fence::Fence;
use crate::jitter;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// Pause after the first failure; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time between passes over everything while something is not well, whatever the period.
pub const UNWELL: Duration = Duration::from_secs(300);

/// What a pass must look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// These objects; some may not exist any more.
    Keys(BTreeSet<ObjectKey>),
}

impl Scope {
    /// Whether a key is to be looked at.
    #[must_use]
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

    fn is_empty(&self) -> bool {
        matches!(self, Self::Keys(keys) if keys.is_empty())
    }

    fn nothing() -> Self {
        Self::Keys(BTreeSet::new())
    }
}

/// What a pass came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Objects that failed, and the least time to wait if the cloud named one.
    pub failed: BTreeMap<ObjectKey, Option<Duration>>,
    /// Objects that are well so far, and when there is more to do.
    pub again: BTreeMap<ObjectKey, Duration>,
    /// The pass could not do its work at all; all of its scope is tried again.
    pub aborted: bool,
    /// The least time before an aborted pass is tried again, if the cloud named one.
    pub wait: Option<Duration>,
    /// Everything is to be looked at again by then, however long the period: something is held back, or not well.
    pub sweep: Option<Duration>,
}

/// How passes are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long the first change waits for company.
    pub aggregation: Duration,
    /// Time between passes over everything; `None` if there are none but those that are asked for.
    pub period: Option<Duration>,
}

/// A controller's work.
pub trait Pass: Send {
    /// The controller's name in logs and metrics.
    const NAME: &'static str;

    /// Current timing; asked before every wait.
    fn pace(&self) -> Pace;

    /// Whether a change of this object is worth a pass. Asked once per change.
    fn concerns(&mut self, key: &ObjectKey) -> bool;

    /// This process does not lead any more: what the pass showed of the state of things is another one's to show.
    fn rest(&mut self) {}

    /// Observes, plans, executes, reports. May be dropped at any await.
    fn run(&mut self, scope: Scope) -> impl Future<Output = Outcome> + Send;
}

/// Where changed keys come from.
pub trait Changes: Send {
    /// Waits until some key changed, then gives all that did. Nothing is lost if the future is dropped.
    fn next(&mut self) -> impl Future<Output = BTreeSet<ObjectKey>> + Send;
}

impl Changes for Dirty {
    fn next(&mut self) -> impl Future<Output = BTreeSet<ObjectKey>> + Send {
        Dirty::next(self)
    }
}

/// Drives `pass` until `stop` is cancelled.
pub async fn drive<P: Pass, C: Send + Sync>(
    pass: &mut P,
    changes: &mut impl Changes,
    mut config: watch::Receiver<C>,
    fence: Fence,
    stop: CancellationToken,
) {
    // Two handles, as both are waited for while a pass runs.
    let (mut gaining, mut losing) = (fence.clone(), fence);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = gaining.gained() => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = losing.lost() => debug!(controller = P::NAME, "leadership is lost; passes pause"),
            () = lead(pass, changes, &mut config) => {}
        }
        metrics::queue_length(P::NAME, 0);
        pass.rest();
    }
}

/// Passes, one after another, as long as this process leads.
async fn lead<P: Pass, C>(pass: &mut P, changes: &mut impl Changes, config: &mut watch::Receiver<C>) {
    let mut agenda = Agenda::everything(Instant::now());
    let mut configured = true;
    loop {
        metrics::queue_length(P::NAME, agenda.waiting());
        let due = agenda.due(pass.pace());
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = config.changed(), if configured => match changed {
                Ok(()) => agenda.add_everything(Instant::now()),
                Err(_) => configured = false,
            },
            keys = changes.next() => {
                let keys: BTreeSet<_> = keys.into_iter().filter(|key| pass.concerns(key)).collect();
                agenda.add(keys, Instant::now());
            }
            () = due => {
                let scope = agenda.take(Instant::now(), pass.pace());
                let outcome = guarded(pass, scope.clone()).await;
                agenda.end(&scope, outcome, Instant::now());
            }
        }
    }
}

/// One pass; a panic is a failure of the pass, not the end of the controller.
async fn guarded<P: Pass>(pass: &mut P, scope: Scope) -> Outcome {
    let started = Instant::now();
    let (outcome, label) = match AssertUnwindSafe(pass.run(scope)).catch_unwind().await {
        Ok(outcome) if outcome.aborted || !outcome.failed.is_empty() => (outcome, "failed"),
        Ok(outcome) => (outcome, "ok"),
        Err(_) => {
            error!(controller = P::NAME, "a pass ended abnormally; it is tried again");
            (Outcome { aborted: true, ..Outcome::default() }, "panicked")
        }
    };
    metrics::reconcile(P::NAME, label, started.elapsed());
    outcome
}

/// What is to be looked at, and when.
#[derive(Debug)]
struct Agenda {
    /// Waits for company until the aggregation time after `since`.
    dirty: Scope,
    since: Option<Instant>,
    /// When everything was last looked at.
    swept: Option<Instant>,
    /// Keys that are to be looked at again, none of which is dirty, and the failures in a row behind that.
    later: BTreeMap<ObjectKey, Instant>,
    failures: BTreeMap<ObjectKey, u32>,
    /// The same for passes over everything.
    sweep_failures: u32,
    sweep_later: Option<Instant>,
}

impl Agenda {
    fn everything(now: Instant) -> Self {
        Self {
            dirty: Scope::All,
            since: Some(now),
            swept: None,
            later: BTreeMap::new(),
            failures: BTreeMap::new(),
            sweep_failures: 0,
            sweep_later: None,
        }
    }

    fn add(&mut self, keys: BTreeSet<ObjectKey>, now: Instant) {
        if !keys.is_empty() {
            for key in &keys {
                self.later.remove(key);
            }
            self.dirty.add(keys);
            self.since.get_or_insert(now);
        }
    }

    fn add_everything(&mut self, now: Instant) {
        self.dirty = Scope::All;
        self.since.get_or_insert(now);
    }

    fn waiting(&self) -> usize {
        match &self.dirty {
            Scope::All => 1,
            Scope::Keys(keys) => keys.len() + self.later.len(),
        }
    }

    /// When the next pass starts; `None` if nothing is due until something changes.
    fn due(&self, pace: Pace) -> Option<Instant> {
        let collected = self.since.map(|since| match self.swept {
            Some(_) => since + pace.aggregation,
            None => since,
        });
        self.sweep_due(pace).into_iter().chain(collected).chain(self.later.values().copied()).min()
    }

    /// When everything is due; the first time it is so from the beginning.
    fn sweep_due(&self, pace: Pace) -> Option<Instant> {
        let periodic = match self.swept {
            Some(swept) => pace.period.map(|period| swept + period),
            None => self.since,
        };
        periodic.into_iter().chain(self.sweep_later).min()
    }

    /// All that is due now, and what changed meanwhile: once a pass runs, nothing has to wait for company.
    fn take(&mut self, now: Instant, pace: Pace) -> Scope {
        let mut scope = std::mem::replace(&mut self.dirty, Scope::nothing());
        self.since = None;
        if self.sweep_due(pace).is_some_and(|due| due <= now) {
            scope = Scope::All;
        }
        scope.add(self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()));
        self.later.retain(|key, _| !scope.contains(key));
        if scope == Scope::All {
            self.swept = Some(now);
            self.sweep_later = None;
        }
        scope
    }

    fn end(&mut self, scope: &Scope, outcome: Outcome, now: Instant) {
        let Outcome { mut failed, again, aborted, wait, sweep } = outcome;
        match scope {
            Scope::All if aborted => {
                self.sweep_failures += 1;
                self.sweep_later = Some(now + pause(self.sweep_failures).max(wait.unwrap_or_default()));
            }
            Scope::All => self.sweep_failures = 0,
            Scope::Keys(keys) if aborted => failed.extend(keys.iter().map(|key| (key.clone(), wait))),
            Scope::Keys(_) => {}
        }
        if let Some(sweep) = sweep {
            let at = now + sweep;
            self.sweep_later = Some(self.sweep_later.map_or(at, |later| later.min(at)));
        }
        self.failures.retain(|key, _| !scope.contains(key) || failed.contains_key(key));
        for (key, at_least) in failed {
            let count = self.failures.entry(key.clone()).or_insert(0);
            *count += 1;
            let wait = pause(*count).max(at_least.unwrap_or_default());
            self.later.insert(key, now + wait);
        }
        for (key, wait) in again {
            let at = now + wait;
            self.later.entry(key).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
        debug_assert!(!scope.is_empty() || self.since.is_none());
    }
}

/// The pause after this many failures in a row, a little different each time so that many do not come back together.
fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.mul_f64(1.0 + jitter::share() / 4.0).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
