//! What is known about the connection, for `/readyz` and for people.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use super::requests::RequestFault;

/// How the connection to the API server is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// Whether the last request was answered, with whatever status.
    pub reachable: bool,
    /// Open watches by kind, such as `Node`.
    pub watches: BTreeMap<&'static str, WatchStatus>,
    /// The last error of any request or watch, and when it was seen. Stays after recovery.
    pub last_error: Option<(Timestamp, String)>,
}

impl ClusterStatus {
    /// Whether the API server answers and every open watch has seen its first list whole.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.reachable && self.watches.values().all(|watch| watch.synced)
    }
}

impl fmt::Display for ClusterStatus {
    /// What is missing for [`Self::ready`], in words; empty if nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ready() {
            return Ok(());
        }
        let waiting = self.watches.iter().filter(|(_, watch)| !watch.synced).map(|(kind, _)| *kind);
        let waiting = waiting.collect::<Vec<_>>().join(", ");
        match (self.reachable, waiting.as_str()) {
            (false, _) => f.write_str("the API server does not answer")?,
            (true, kinds) => write!(f, "waiting for the first list of {kinds}")?,
        }
        match &self.last_error {
            Some((at, error)) => write!(f, "; last error at {at}: {error}"),
            None => Ok(()),
        }
    }
}

/// One watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchStatus {
    /// Whether the first list has arrived whole.
    pub synced: bool,
    /// Why the watch is interrupted at this moment, if it is.
    pub interrupted: Option<String>,
}

/// Collects the status.
#[derive(Debug, Default)]
pub(super) struct Health {
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    status: ClusterStatus,
    /// Open watches by kind. For a moment there can be two: the old one closes while a new one is opened already.
    open: BTreeMap<&'static str, u32>,
}

impl Health {
    pub(super) fn snapshot(&self) -> ClusterStatus {
        self.facts.lock().status.clone()
    }

    /// A request ended. An answer with an error is still an answer.
    pub(super) fn request_ended(&self, fault: Option<&RequestFault>) {
        let status = &mut self.facts.lock().status;
        status.reachable = fault.is_none_or(|fault| fault.code().is_some());
        // Absence and conflicts are everyday answers, not errors of the connection.
        if let Some(fault) = fault
            && !matches!(fault.code(), Some(404 | 409))
        {
            status.last_error = Some((crate::clock::now(), fault.to_string()));
        }
    }

    pub(super) fn watch_opened(&self, kind: &'static str) {
        let mut facts = self.facts.lock();
        *facts.open.entry(kind).or_default() += 1;
        facts.status.watches.insert(kind, WatchStatus::default());
    }

    pub(super) fn watch_closed(&self, kind: &'static str) {
        let mut facts = self.facts.lock();
        let open = facts.open.get(kind).copied().unwrap_or_default();
        if open > 1 {
            facts.open.insert(kind, open - 1);
        } else {
            facts.open.remove(kind);
            facts.status.watches.remove(kind);
        }
    }

    pub(super) fn watch_synced(&self, kind: &'static str) {
        if let Some(watch) = self.facts.lock().status.watches.get_mut(kind) {
            *watch = WatchStatus { synced: true, interrupted: None };
        }
    }

    pub(super) fn watch_resumed(&self, kind: &'static str) {
        if let Some(watch) = self.facts.lock().status.watches.get_mut(kind) {
            watch.interrupted = None;
        }
    }

    pub(super) fn watch_interrupted(&self, kind: &'static str, reason: &str) {
        let status = &mut self.facts.lock().status;
        status.last_error = Some((crate::clock::now(), format!("watch of {kind}: {reason}")));
        if let Some(watch) = status.watches.get_mut(kind) {
            watch.interrupted = Some(reason.to_owned());
        }
    }
}
