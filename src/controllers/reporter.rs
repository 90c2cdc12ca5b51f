//! Reports of controllers that work on sets: events about nodes and about the controller itself, and alarms.

use tracing::warn;

use super::Context;
use crate::cluster::{Events, Regarding};
use crate::plan::inputs::{NodeView, ObjectKey};
use crate::telemetry::alarms::Alarms;

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

    /// This process does not lead any more, or the controller stops.
    pub(super) fn end_alarms(&self) {
        self.alarms.clear(self.controller);
    }
}

fn regarding(node: &NodeView) -> Regarding {
    Regarding { kind: "Node", key: ObjectKey::cluster(&node.name), uid: node.uid.clone() }
}
