//! Reports of controllers that work on sets: events about nodes and about the controller itself, and alarms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use super::Context;
use super::batch::{BatchResult, BatchScope, RESYNC_WHILE_OUT_OF_SYNC};
use crate::alibaba::{Fault, FaultKind};
use crate::clock;
use crate::cluster::{Events, LastingEvent, Regarding, WriteFault, advice, event_code};
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::telemetry::alarms::{Alarms, EventAdvice, FailedCall, ObjectReport, ObjectTrouble, SyncState, shared_cause};

/// What is wrong with an object, as the event of this `reason` says it.
pub(super) fn trouble(reason: &'static str, message: impl Into<String>) -> ObjectTrouble {
    let advice = advice(reason).map(|(code, remedy)| EventAdvice { code, remedy });
    ObjectTrouble { reason, advice, message: message.into(), ..ObjectTrouble::default() }
}

/// The same of an object for which a call failed.
pub(super) fn trouble_of(reason: &'static str, fault: &Fault) -> ObjectTrouble {
    let (cause, call, state) = (fault.cause(), Some(failed_call(fault)), state(fault.passes()));
    ObjectTrouble { cause, call, state, ..trouble(reason, fault.to_string()) }
}

/// The same of an object that the API server did not take. `what` are objects of this kind, such as `nodes`.
pub(super) fn trouble_of_write(reason: &'static str, fault: &WriteFault, what: &str) -> ObjectTrouble {
    ObjectTrouble { cause: fault.cause(what), state: state(fault.passes()), ..trouble(reason, fault.to_string()) }
}

/// How far an object is from being in sync after a failure that `passes` by itself, or does not.
pub(super) const fn state(passes: bool) -> SyncState {
    if passes { SyncState::Retrying } else { SyncState::OutOfSync }
}

/// An object that is out of sync is looked at again after this time or later.
const SOONEST_LOOK: Duration = Duration::from_secs(1);

/// What of an object is out of sync.
const SYNC: &str = "sync";

/// Tells users what keeps an object out of sync, or that nothing does any more.
pub(super) fn tell(events: &Events, component: &'static str, regarding: &Regarding, report: Option<ObjectReport>) {
    let Some(report) = report else { return events.close(component, &regarding.key, SYNC) };
    let next = match report.next_attempt {
        Some(at) => format!("the controller retries at {}", clock::seconds(at)),
        None => "the controller retries with its next look at all objects".to_owned(),
    };
    let cause = report.failed_call.map_or_else(String::new, |call| match call.kind {
        // Whether the cloud refused the call, or the rate limit that followed kept it back.
        kind if kind == FaultKind::Throttled.as_str() => kind.to_owned(),
        kind => format!("{kind} {}", call.code),
    });
    let finding = LastingEvent {
        is_warning: report.state != SyncState::InProgress,
        reason: report.reason,
        cause,
        message: report.message,
        since: report.since,
        next,
        tell_at: Instant::now() + report.quiet_for,
    };
    events.open(component, regarding, SYNC, finding);
}

/// Tells users why something of an object is withheld as long as it is. `reason` is that of the event.
pub(super) fn tell_withheld(
    events: &Events,
    component: &'static str,
    regarding: &Regarding,
    (reason, why): (&'static str, Option<&str>),
) {
    let Some(why) = why else { return events.close(component, &regarding.key, reason) };
    let (cause, next) = (String::new(), "the controller checks that again by itself".to_owned());
    let (message, since, tell_at) = (why.to_owned(), clock::now(), Instant::now());
    events.open(
        component,
        regarding,
        reason,
        LastingEvent { is_warning: true, reason, cause, message, since, next, tell_at },
    );
}

/// A call that failed, as it is shown.
pub(super) fn failed_call(fault: &Fault) -> FailedCall {
    let Fault { kind, action, code, request_id, .. } = fault;
    FailedCall { action, kind: kind.as_str(), code: code.clone(), request_id: request_id.clone() }
}

/// Where one controller reports.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    events: Events,
    alarms: Alarms,
    controller: &'static str,
    /// Its name in events.
    component: &'static str,
    /// Its objects in texts, such as `nodes`.
    objects: &'static str,
}

impl Reporter {
    pub(super) fn new(
        context: &Context,
        controller: &'static str,
        component: &'static str,
        objects: &'static str,
    ) -> Self {
        Self {
            events: context.cluster.events().clone(),
            alarms: context.alarms.clone(),
            controller,
            component,
            objects,
        }
    }

    /// An event about a node, of something that went well.
    pub(super) fn normal(&self, node: &NodeView, reason: &'static str, message: String) {
        self.events.normal(self.component, &regarding(node), reason, message);
    }

    /// An event about a node, of something that needs attention.
    pub(super) fn warning(&self, node: &NodeView, reason: &'static str, message: String) {
        self.events.warning(self.component, &regarding(node), reason, message);
    }

    /// An event about the controller itself, as the official one writes it.
    pub(super) fn controller_warning(&self, reason: &'static str, message: String) {
        self.events.warning(self.component, &Regarding::component(self.component), reason, message);
    }

    /// Sets the alarm for `count` things that are withheld; with none, it ends. An event reports it as long as it stands.
    pub(super) fn alarm(&self, reason: &'static str, count: usize, text: &str) {
        let why = (count > 0).then_some(text);
        if self.alarms.set(self.controller, reason, count, text) {
            warn!(code = event_code(reason), reason, "{text}");
        }
        tell_withheld(&self.events, self.component, &Regarding::component(self.component), (reason, why));
    }

    /// Sets an alarm whose events are written elsewhere.
    pub(super) fn silent_alarm(&self, reason: &'static str, count: usize, text: &str) {
        self.alarms.set(self.controller, reason, count, text);
    }

    /// Whether a text says something else than what is known of an object.
    pub(super) fn is_news(&self, object: &str, text: &str) -> bool {
        self.alarms.object(self.controller, &object).is_none_or(|report| report.message != text)
    }

    /// Notes which objects are out of sync after a reconcile of this scope, and schedules the next look at each. Every other
    /// object of the scope is in sync then, and so is one that does not exist. A reconcile that aborted proves no object in sync.
    /// One event tells of a cause that many objects share.
    pub(super) fn report(
        &self,
        (scope, began): (&BatchScope, Timestamp),
        result: &mut BatchResult,
        exists: impl Fn(&str) -> bool,
    ) {
        let is_whole = result.aborted.is_none();
        let is_covered = |name: &str| is_whole && scope.contains(&ObjectKey::cluster(name)) || !exists(name);
        let dated = |trouble: &ObjectTrouble| ObjectTrouble { began: Some(began), ..trouble.clone() };
        let now = result.all_out_of_sync().map(|(key, trouble)| (key.to_string(), dated(trouble))).collect();
        for cause in self.alarms.all_out_of_sync(self.controller, now, is_covered) {
            let message = shared_cause(self.objects, &cause);
            warn!(code = "ACCM0402", "{message}");
            self.controller_warning("ManyObjectsOutOfSync", message);
        }
        if is_whole {
            self.look_again(result);
        }
    }

    /// The controller reconciles an object that is out of sync again after as long as it has been so, as no watch shows everything
    /// that can end it: after a second at first, later every 5 minutes. It does so as well when the event is due, to write it only
    /// if it is still true. What failed has a backoff of its own.
    fn look_again(&self, result: &mut BatchResult) {
        for (key, report) in self.reports() {
            let lasted = clock::now().duration_since(report.since).unsigned_abs();
            let again = lasted.clamp(SOONEST_LOOK, RESYNC_WHILE_OUT_OF_SYNC);
            let again = Some(again).filter(|_| !result.has_failed(&key));
            let before_event = Some(report.quiet_for).filter(|quiet| !quiet.is_zero());
            for after in again.into_iter().chain(before_event) {
                result.requeue(key.clone(), after);
            }
        }
    }

    fn reports(&self) -> impl Iterator<Item = (ObjectKey, ObjectReport)> {
        let reports = self.alarms.objects().into_iter().filter(|report| report.controller == self.controller);
        reports.map(|report| {
            let key = match report.object.split_once('/') {
                Some((namespace, name)) => ObjectKey::new(namespace, name),
                None => ObjectKey::cluster(&*report.object),
            };
            (key, report)
        })
    }

    /// Notes when objects that failed are reconciled again, and tells users of them. `find` gives an object that exists.
    pub(super) fn scheduled(
        &self,
        later: &BTreeMap<ObjectKey, Instant>,
        find: impl Fn(&ObjectKey) -> Option<Regarding>,
    ) {
        for (key, at) in later {
            self.alarms.next_attempt(self.controller, key, Some(at.saturating_duration_since(Instant::now())));
        }
        let mut reports: BTreeMap<ObjectKey, ObjectReport> = self.reports().collect();
        let own = Regarding::component(self.component);
        let told = self.events.objects(self.component, SYNC);
        let all: BTreeSet<ObjectKey> = told.into_iter().chain(reports.keys().cloned()).collect();
        let mut left_behind: Option<ObjectReport> = None;
        for key in all.iter().filter(|key| **key != own.key) {
            let report = reports.remove(key);
            match find(key) {
                Some(regarding) => tell(&self.events, self.component, &regarding, report),
                None => {
                    self.events.forget(self.component, |of| of == key);
                    left_behind = [left_behind, report].into_iter().flatten().min_by_key(|report| report.since);
                }
            }
        }
        // What an object left behind that does not exist any more can only be told of the controller.
        let left_behind = left_behind.map(|report| {
            let message = format!("{} does not exist any more, and: {}", report.object, report.message);
            ObjectReport { message, ..report }
        });
        tell(&self.events, self.component, &own, left_behind);
    }

    /// This process does not lead any more, or the controller stops.
    pub(super) fn end_alarms(&self) {
        self.alarms.clear(self.controller);
        self.events.forget(self.component, |_| true);
    }
}

/// A node, for an event about it.
pub(super) fn regarding(node: &NodeView) -> Regarding {
    Regarding { kind: "Node", key: ObjectKey::cluster(&node.name), uid: node.uid.clone() }
}
