//! Reports of controllers that work on sets: events about nodes and about the controller itself, and alarms.

use std::collections::BTreeMap;

use tokio::time::Instant;
use tracing::warn;

use super::Context;
use super::batch::BatchScope;
use crate::alibaba::Fault;
use crate::cluster::{Events, Regarding, advice, event_code};
use crate::plan::inputs::{NodeView, ObjectKey, ServiceView};
use crate::telemetry::alarms::{Alarms, EventAdvice, FailedCall, ObjectTrouble, shared_cause};

/// Objects that are out of sync, by name, and why.
pub(super) type OutOfSync = BTreeMap<String, ObjectTrouble>;

/// What is wrong with an object, as the event of this `reason` says it.
pub(super) fn trouble(reason: &'static str, message: impl Into<String>) -> ObjectTrouble {
    let advice = advice(reason).map(|(code, remedy)| EventAdvice { code, remedy });
    ObjectTrouble { reason, advice, message: message.into(), ..ObjectTrouble::default() }
}

/// The same of an object for which a call failed.
pub(super) fn trouble_of(reason: &'static str, fault: &Fault) -> ObjectTrouble {
    ObjectTrouble { cause: fault.cause(), call: Some(failed_call(fault)), ..trouble(reason, fault.to_string()) }
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
}

impl Reporter {
    pub(super) fn new(context: &Context, controller: &'static str, component: &'static str) -> Self {
        Self { events: context.cluster.events().clone(), alarms: context.alarms.clone(), controller, component }
    }

    /// An event about a node, of something that went well.
    pub(super) fn normal(&self, node: &NodeView, reason: &'static str, message: String) {
        self.events.normal(self.component, &regarding(node), reason, message);
    }

    /// An event about a node, of something that needs attention.
    pub(super) fn warning(&self, node: &NodeView, reason: &'static str, message: String) {
        self.events.warning(self.component, &regarding(node), reason, message);
    }

    /// An event about a Service, of something that needs attention.
    pub(super) fn service_warning(&self, service: &ServiceView, reason: &'static str, message: String) {
        let regarding = Regarding { kind: "Service", key: service.key.clone(), uid: service.uid.clone() };
        self.events.warning(self.component, &regarding, reason, message);
    }

    /// An event about the controller itself, as the official one writes it.
    pub(super) fn controller_warning(&self, reason: &'static str, message: String) {
        self.events.warning(self.component, &Regarding::component(self.component), reason, message);
    }

    /// Sets the alarm for `count` things that are withheld; with none, it ends. The event is written when it is new.
    pub(super) fn alarm(&self, reason: &'static str, count: usize, text: String) {
        if self.alarms.set(self.controller, reason, count, &text) {
            warn!(code = event_code(reason), reason, "{text}");
            self.controller_warning(reason, text);
        }
    }

    /// Sets an alarm whose events are written elsewhere.
    pub(super) fn silent_alarm(&self, reason: &'static str, count: usize, text: &str) {
        self.alarms.set(self.controller, reason, count, text);
    }

    /// Notes which objects are out of sync after a reconcile of this scope. Those in it, and those that do not exist, are no
    /// longer, unless they are among them. A cause that many share is told once. `what` are the objects, such as `nodes`.
    pub(super) fn out_of_sync(&self, what: &str, scope: &BatchScope, now: OutOfSync, exists: impl Fn(&str) -> bool) {
        let is_covered = |name: &str| scope.contains(&ObjectKey::cluster(name)) || !exists(name);
        for cause in self.alarms.all_out_of_sync(self.controller, now, is_covered) {
            let message = shared_cause(what, &cause);
            warn!(code = "ACCM0402", "{message}");
            self.controller_warning("ManyObjectsOutOfSync", message);
        }
    }

    /// Notes when objects that failed are reconciled again.
    pub(super) fn scheduled(&self, later: &BTreeMap<ObjectKey, Instant>) {
        for (key, at) in later {
            self.alarms.next_attempt(self.controller, key, Some(at.saturating_duration_since(Instant::now())));
        }
    }

    /// This process does not lead any more, or the controller stops.
    pub(super) fn end_alarms(&self) {
        self.alarms.clear(self.controller);
    }
}

fn regarding(node: &NodeView) -> Regarding {
    Regarding { kind: "Node", key: ObjectKey::cluster(&node.name), uid: node.uid.clone() }
}
