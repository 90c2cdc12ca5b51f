//! Single objects that are out of sync, or that a controller is not done with: what it came to last, since when, and when it is
//! looked at again.
//!
//! Objects in sync are not here, so that a large cluster costs no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::clock;
use crate::telemetry::metrics;

/// From so many objects on, a cause is shared by many.
pub(super) const MANY: usize = 5;
/// The metrics name so many objects of a controller: an outage of a large cluster must not flood Prometheus.
const NAMED_IN_METRICS: usize = 50;

/// What passes by itself within this time is nothing to tell users of.
pub const QUIET: Duration = Duration::from_secs(30);

/// How far an object is from being in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// Something failed, or the user has to change something.
    #[default]
    OutOfSync,
    /// Nothing failed, and the cloud still carries something out.
    InProgress,
    /// Something failed that passes by itself, such as a rate limit. What lasts longer than [`QUIET`] is out of sync.
    Retrying,
}

/// Why an object is not in sync, as its controller reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectTrouble {
    /// How far it is from that.
    pub state: SyncState,
    /// Reason of the event about it; empty if there is none.
    pub reason: &'static str,
    /// What the manual of events says about that reason.
    pub advice: Option<EventAdvice>,
    /// What is wrong, in the words of the event.
    pub message: String,
    /// What other objects can be out of sync for in the same way.
    pub cause: Option<String>,
    /// The call that failed, if one did.
    pub call: Option<FailedCall>,
    /// When the reconcile began that came to this, if it can take long. What is in progress was not before, if it says when.
    pub began: Option<Timestamp>,
}

impl ObjectTrouble {
    /// What failed, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        self.call.as_ref().map_or(self.reason, |call| call.kind)
    }
}

/// What the manual of events says about a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EventAdvice {
    /// Such as `ACCM0302`.
    #[serde(serialize_with = "as_code")]
    pub code: u16,
    /// What to do.
    pub remedy: &'static str,
}

fn as_code<S: Serializer>(code: &u16, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("ACCM{code:04}"))
}

/// A call of the cloud that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedCall {
    /// The vendor's name of the action, or what was tried where no call was sent.
    pub action: &'static str,
    /// How the program reacts, such as `denied`.
    pub kind: &'static str,
    /// The vendor's code; empty if there was no answer.
    pub code: String,
    /// The vendor's request id; empty if there was no answer.
    pub request_id: String,
}

/// One object, as people and programs are shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectReport {
    /// The controller.
    pub controller: &'static str,
    /// Its name, with its namespace if it has one.
    pub object: String,
    /// How far it is from being in sync.
    pub state: SyncState,
    /// Since when it has not been in sync.
    pub since: Timestamp,
    /// When it was reconciled last.
    pub last_attempt: Timestamp,
    /// When it is reconciled again; `None` if that follows from a change, or with the next look at all objects.
    pub next_attempt: Option<Timestamp>,
    /// Reason of the event about it; empty if there is none.
    pub reason: &'static str,
    /// What the manual of events says about that reason.
    #[serde(flatten)]
    pub advice: Option<EventAdvice>,
    /// What is wrong.
    pub message: String,
    /// The call that failed, if one did.
    pub failed_call: Option<FailedCall>,
    /// How long it has to last until an event reports it.
    #[serde(skip)]
    pub quiet_for: Duration,
}

/// What is kept of one object.
#[derive(Debug)]
struct KeptObject {
    trouble: ObjectTrouble,
    since: Timestamp,
    /// Since when what keeps it out of sync passes by itself, or is under way.
    passing_since: Option<Timestamp>,
    last: Timestamp,
    next: Option<Timestamp>,
    /// Its place in the order in which objects got out of sync; `None` while what failed passes by itself.
    place: Option<u64>,
}

/// A controller and the name of one of its objects.
type ObjectName = (&'static str, String);

/// All that are not in sync, and the objects of each cause that others may share.
#[derive(Debug, Default)]
pub(super) struct ObjectStates {
    kept: BTreeMap<ObjectName, KeptObject>,
    /// The objects of each controller that are out of sync, those first that have been for longest.
    order: BTreeMap<&'static str, BTreeMap<u64, String>>,
    last_place: u64,
    sharing: BTreeMap<(&'static str, String), BTreeSet<String>>,
}

impl ObjectStates {
    /// Notes why an object is not in sync; gives how many share its cause now, if that is news. What passes by itself does not
    /// make up for what failed before, unless it lasts.
    pub(super) fn note(&mut self, controller: &'static str, object: &str, mut trouble: ObjectTrouble) -> usize {
        let now = clock::now();
        let name = (controller, object.to_owned());
        let before = self.kept.get_mut(&name);
        let began = trouble.began.unwrap_or(now);
        let before_that = before.as_ref().and_then(|kept| kept.passing_since);
        let is_new = trouble.state == SyncState::InProgress && trouble.began.is_some();
        let passing_since = before_that.filter(|_| !is_new).unwrap_or(began);
        let passing_since = (trouble.state != SyncState::OutOfSync).then_some(passing_since);
        if trouble.state == SyncState::Retrying {
            if passing_since.is_some_and(|since| left(since, now).is_zero()) {
                trouble.state = SyncState::OutOfSync;
            } else if let Some(kept) = before.filter(|kept| kept.trouble.state != SyncState::Retrying) {
                (kept.last, kept.next, kept.passing_since) = (now, None, passing_since);
                return 0;
            }
        }
        let (state, cause) = (trouble.state, trouble.cause.clone());
        let before = self.kept.remove(&name);
        let since = before.as_ref().map_or(began, |kept| kept.since);
        let place = before.as_ref().and_then(|kept| kept.place);
        let place = place.or_else(|| (state != SyncState::Retrying).then(|| self.enter(controller, object)));
        self.kept.insert(name, KeptObject { trouble, since, passing_since, last: now, next: None, place });
        self.name_in_metrics(controller, object);
        let was = before.and_then(|kept| kept.trouble.cause);
        self.share(controller, object, (was.as_deref(), cause.as_deref()))
    }

    /// An object is in sync, or gone.
    pub(super) fn clear(&mut self, controller: &'static str, object: &str) {
        let Some(kept) = self.kept.remove(&(controller, object.to_owned())) else { return };
        if let Some(place) = kept.place {
            self.leave(controller, object, place);
        }
        self.share(controller, object, (kept.trouble.cause.as_deref(), None));
    }

    /// Notes when an object that is not in sync is reconciled again.
    pub(super) fn schedule(&mut self, controller: &'static str, object: &dyn Display, after: Option<Duration>) {
        if let Some(kept) = self.kept.get_mut(&(controller, object.to_string())) {
            kept.next = after.and_then(|after| clock::now().checked_add(after).ok());
        }
    }

    /// An object is out of sync from now on; gives its place.
    fn enter(&mut self, controller: &'static str, object: &str) -> u64 {
        self.last_place += 1;
        let order = self.order.entry(controller).or_default();
        order.insert(self.last_place, object.to_owned());
        metrics::out_of_sync(controller, order.len());
        self.last_place
    }

    /// It no longer is, so that the metrics can name another one.
    fn leave(&mut self, controller: &'static str, object: &str, place: u64) {
        let order = self.order.entry(controller).or_default();
        order.remove(&place);
        metrics::out_of_sync(controller, order.len());
        metrics::object_out_of_sync(controller, object, None);
        if let Some(next) = order.values().nth(NAMED_IN_METRICS - 1).cloned() {
            self.name_in_metrics(controller, &next);
        }
    }

    /// Names an object in the metrics if it is one of those that have been out of sync for longest.
    fn name_in_metrics(&self, controller: &'static str, object: &str) {
        let Some(kept) = self.kept.get(&(controller, object.to_owned())) else { return };
        let (Some(place), Some(order)) = (kept.place, self.order.get(controller)) else { return };
        if order.keys().nth(NAMED_IN_METRICS - 1).is_none_or(|last| place <= *last) {
            let failed = kept.trouble.advice.filter(|_| kept.trouble.state == SyncState::OutOfSync);
            metrics::object_out_of_sync(controller, object, Some(failed.map_or(0, |advice| advice.code)));
        }
    }

    /// Moves an object from its cause to another one, or to none; gives how many now share that, if it is news.
    fn share(&mut self, controller: &'static str, object: &str, (before, now): (Option<&str>, Option<&str>)) -> usize {
        if before == now {
            return 0;
        }
        if let Some(before) = before {
            let key = (controller, before.to_owned());
            let left = self.sharing.get_mut(&key).map_or(0, |objects| {
                objects.remove(object);
                objects.len()
            });
            metrics::shared_cause(controller, before, if left < MANY { 0 } else { left });
            if left == 0 {
                self.sharing.remove(&key);
            }
        }
        let Some(cause) = now else { return 0 };
        let objects = self.sharing.entry((controller, cause.to_owned())).or_default();
        objects.insert(object.to_owned());
        if objects.len() >= MANY {
            metrics::shared_cause(controller, cause, objects.len());
        }
        objects.len()
    }

    /// Causes that many objects share, and these objects.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&'static str, &str, &BTreeSet<String>)> {
        let all = self.sharing.iter().filter(|(_, objects)| objects.len() >= MANY);
        all.map(|((controller, cause), objects)| (*controller, cause.as_str(), objects))
    }

    /// Names of the objects of a controller that are not in sync.
    pub(super) fn of(&self, controller: &'static str) -> impl Iterator<Item = &String> {
        self.kept.keys().filter(move |(of, _)| *of == controller).map(|(_, object)| object)
    }

    /// What is known of one object, if it is not in sync.
    pub(super) fn report_of(&self, controller: &'static str, object: &str) -> Option<ObjectReport> {
        let name = (controller, object.to_owned());
        self.kept.get(&name).map(|kept| report(&name, kept))
    }

    /// What failed first, then what is under way, each in the order of names.
    pub(super) fn report(&self) -> Vec<ObjectReport> {
        let mut reports: Vec<ObjectReport> = self.kept.iter().map(|(name, kept)| report(name, kept)).collect();
        reports.sort_by_key(|report| report.state);
        reports
    }
}

/// How much of [`QUIET`] is left; no less than a second.
fn left(since: Timestamp, now: Timestamp) -> Duration {
    let left = QUIET.saturating_sub(now.duration_since(since).unsigned_abs());
    if left < Duration::from_secs(1) { Duration::ZERO } else { left }
}

fn report((controller, object): &ObjectName, kept: &KeptObject) -> ObjectReport {
    let KeptObject { trouble, since, passing_since, last, next, .. } = kept;
    let ObjectTrouble { state, reason, advice, message, call, .. } = trouble.clone();
    // What failed before was told.
    let passing_since = passing_since.filter(|_| state != SyncState::OutOfSync);
    ObjectReport {
        controller,
        object: object.clone(),
        state,
        since: *since,
        last_attempt: *last,
        next_attempt: *next,
        reason,
        advice,
        message,
        failed_call: call,
        quiet_for: passing_since.map_or(Duration::ZERO, |since| left(since, clock::now())),
    }
}
