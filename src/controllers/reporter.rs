//! Reports of controllers that work on sets: events about nodes and about the controller itself, and alarms.

use std::collections::BTreeMap;

use tracing::warn;

use super::Context;
use super::batch::BatchScope;
use crate::cluster::{Events, Regarding};
use crate::plan::inputs::{NodeView, ObjectKey, ServiceView};
use crate::telemetry::alarms::{Alarms, shared_cause};

/// Objects that are out of sync, by name, and the cause of each that others may share.
pub(super) type OutOfSync = BTreeMap<String, Option<String>>;

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
            warn!(reason, "{text}");
            self.controller_warning(reason, text);
        }
    }

    /// Sets an alarm whose events are written elsewhere.
    pub(super) fn silent_alarm(&self, reason: &'static str, count: usize, text: &str) {
        self.alarms.set(self.controller, reason, count, text);
    }

    /// Notes which objects are out of sync after a reconcile of this scope. Those in it, and those that do not exist, are no
    /// longer, unless they are among them. A cause that many share is told once. `what` are the objects, such as `nodes`.
    pub(super) fn out_of_sync(&self, what: &str, scope: &BatchScope, now: &OutOfSync, exists: impl Fn(&str) -> bool) {
        let is_covered = |name: &str| scope.contains(&ObjectKey::cluster(name)) || !exists(name);
        for cause in self.alarms.all_out_of_sync(self.controller, now, is_covered) {
            let message = shared_cause(what, &cause);
            warn!("{message}");
            self.controller_warning("ManyObjectsOutOfSync", message);
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
