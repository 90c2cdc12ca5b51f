//! What is known about the connection, for `/readyz` and for people.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::faults::RequestFault;

/// What is known of a kind whose watch has been interrupted for so long counts as outdated. A restart of an API server is over
/// by then.
const LONG_INTERRUPTION: SignedDuration = SignedDuration::from_secs(60);

/// How the connection to the API server is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Whether the last request was answered, with whatever status.
    pub reachable: bool,
    /// Open watches by kind, such as `Node`.
    pub watches: BTreeMap<&'static str, WatchStatus>,
    /// The last error of any request or watch, and when it was seen. Stays after recovery.
    pub last_error: Option<(Timestamp, String)>,
    /// The election that this replica takes part in.
    pub election: Option<ElectionStatus>,
}

/// An election, as this replica sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionStatus {
    /// Namespace and name of the lock.
    pub lock: String,
    /// Who this replica is.
    pub identity: String,
    /// The other replica that leads, as far as is known.
    pub holder: Option<String>,
}

impl ClusterStatus {
    /// Whether the API server answers, the first list of every open watch has arrived whole, and none is interrupted for long.
    pub fn ready(&self) -> bool {
        self.reachable && self.watches.values().all(|watch| watch.synced) && self.outdated().next().is_none()
    }

    /// Kinds whose watch has been interrupted for long.
    fn outdated(&self) -> impl Iterator<Item = (&'static str, &WatchInterruption)> {
        let watches = self.watches.iter().filter(|(_, watch)| watch.synced);
        let interrupted = watches.filter_map(|(kind, watch)| Some((*kind, watch.interrupted.as_ref()?)));
        interrupted.filter(|(_, interruption)| interruption.is_long())
    }
}

impl fmt::Display for ClusterStatus {
    /// What is missing for [`Self::ready`], in words; empty if nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ready() {
            return Ok(());
        }
        if self.reachable {
            let waiting = self.watches.iter().filter(|(_, watch)| !watch.synced).map(|(kind, _)| *kind);
            let waiting = Vec::from_iter(waiting).join(", ");
            let waiting = (!waiting.is_empty()).then(|| format!("waiting for the first list of {waiting}"));
            let outdated = self.outdated().map(|(kind, WatchInterruption { since, reason })| {
                format!("changes of {kind} have not been watched since {since:.0}: {reason}")
            });
            f.write_str(&waiting.into_iter().chain(outdated).collect::<Vec<_>>().join("; "))?;
        } else {
            f.write_str("the API server does not answer")?;
        }
        match &self.last_error {
            Some((at, error)) => write!(f, "; last error at {at}: {error}"),
            None => Ok(()),
        }
    }
}

/// One watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// Whether the first list has arrived whole.
    pub synced: bool,
    /// Why the watch is interrupted now, if it is.
    pub interrupted: Option<WatchInterruption>,
    /// Whether the log says so.
    is_told: bool,
    /// How many there are. For a moment there can be two: the old one closes while a new one is open already.
    open: u32,
}

/// A watch that does not run, although it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchInterruption {
    /// When it ended.
    pub since: Timestamp,
    /// Why it could not be opened again, the last time.
    pub reason: String,
}

impl WatchInterruption {
    fn is_long(&self) -> bool {
        crate::clock::now().duration_since(self.since) >= LONG_INTERRUPTION
    }
}

/// Collects the status.
#[derive(Debug, Default)]
pub(super) struct ConnectionHealth {
    status: Mutex<ClusterStatus>,
}

impl ConnectionHealth {
    pub(super) fn snapshot(&self) -> ClusterStatus {
        self.status.lock().clone()
    }

    /// A request ended. An answer with an error is still an answer.
    pub(super) fn request_ended(&self, fault: Option<&RequestFault>) {
        let mut status = self.status.lock();
        status.reachable = fault.is_none_or(|fault| fault.code().is_some());
        // Absence and conflicts are everyday answers, not errors of the connection.
        if let Some(fault) = fault
            && !matches!(fault.code(), Some(404 | 409))
        {
            status.last_error = Some((crate::clock::now(), fault.to_string()));
        }
    }

    /// This replica takes part in an election, or in none.
    pub(super) fn elects(&self, election: Option<ElectionStatus>) {
        self.status.lock().election = election;
    }

    /// Another replica leads, or none is known to.
    pub(super) fn led_by(&self, holder: Option<&str>) {
        if let Some(election) = &mut self.status.lock().election {
            election.holder = holder.map(str::to_owned);
        }
    }

    pub(super) fn watch_opened(&self, kind: &'static str) {
        let mut status = self.status.lock();
        let watch = status.watches.entry(kind).or_default();
        *watch = WatchStatus { open: watch.open + 1, ..WatchStatus::default() };
    }

    pub(super) fn watch_closed(&self, kind: &'static str) {
        let mut status = self.status.lock();
        if let Some(watch) = status.watches.get_mut(kind) {
            watch.open -= 1;
        }
        status.watches.retain(|_, watch| watch.open > 0);
    }

    pub(super) fn watch_synced(&self, kind: &'static str) {
        if let Some(watch) = self.status.lock().watches.get_mut(kind) {
            watch.synced = true;
        }
    }

    pub(super) fn watch_resumed(&self, kind: &'static str) {
        if let Some(watch) = self.status.lock().watches.get_mut(kind) {
            (watch.interrupted, watch.is_told) = (None, false);
        }
    }

    /// Since when what is known of the kind is outdated, if that is to be told now.
    pub(super) fn watch_interrupted(&self, kind: &'static str, reason: &str) -> Option<Timestamp> {
        let (mut status, now) = (self.status.lock(), crate::clock::now());
        status.last_error = Some((now, format!("watch of {kind}: {reason}")));
        let watch = status.watches.get_mut(kind)?;
        let since = watch.interrupted.as_ref().map_or(now, |before| before.since);
        let interruption = WatchInterruption { since, reason: reason.to_owned() };
        let is_news = watch.synced && interruption.is_long() && !std::mem::replace(&mut watch.is_told, true);
        watch.interrupted = Some(interruption);
        is_news.then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_stays_interrupted_is_told_once_until_it_runs_again() {
        let health = ConnectionHealth::default();
        health.watch_opened("Node");
        health.watch_synced("Node");
        let is_told = || health.watch_interrupted("Node", "needs the verb watch on nodes").is_some();
        for _ in 0..2 {
            assert!(!is_told(), "an interruption can be a short one");
            tokio::time::advance(Duration::from_secs(61)).await;
            assert_eq!([is_told(), is_told()], [true, false]);
            health.watch_resumed("Node");
        }
    }
}
