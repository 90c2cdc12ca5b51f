//! Watches that live as long as their handles.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::status::ConnectionHealth;
use super::store::Store;
use crate::telemetry::tasks::Tasks;

/// Longest time that a command waits for the first list of a kind.
const LONGEST_LIST: Duration = Duration::from_secs(30);

/// A store that is kept filled by a watch as long as any clone of this handle lives.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    /// The objects.
    pub store: Arc<Store<V>>,
    open: Arc<OpenWatch<V>>,
}

impl<V> Watched<V> {
    /// Completes when the first list has arrived whole, or after 30 s: the watch itself retries without end.
    ///
    /// # Errors
    /// There is no list in time, in words.
    pub async fn listed(&self) -> Result<(), String> {
        self.listed_within(LONGEST_LIST).await
    }

    /// The same within this time.
    ///
    /// # Errors
    /// There is no list in time, in words.
    pub async fn listed_within(&self, limit: Duration) -> Result<(), String> {
        if tokio::time::timeout(limit, self.store.synced()).await.is_ok() {
            return Ok(());
        }
        let OpenWatch { kind, health, .. } = &*self.open;
        let why = health.snapshot().watches.remove(kind).and_then(|watch| watch.interrupted);
        let why = why.map_or_else(String::new, |why| format!(": {}", why.reason));
        let seconds = limit.as_secs();
        Err(format!(
            "the API server gave no list of the kind {kind} within {seconds} s, as without the right to it{why}"
        ))
    }
}

/// Closes the watch when the last handle is dropped.
#[derive(Debug)]
struct OpenWatch<V> {
    kind: &'static str,
    store: Arc<Store<V>>,
    health: Arc<ConnectionHealth>,
    _task: AbortOnDropHandle<()>,
}

impl<V> Drop for OpenWatch<V> {
    fn drop(&mut self) {
        self.health.watch_closed(self.kind);
    }
}

/// At most one open watch of a kind.
#[derive(Debug)]
pub(super) struct SharedWatch<V> {
    kind: &'static str,
    open: Mutex<Weak<OpenWatch<V>>>,
}

impl<V> SharedWatch<V> {
    pub(super) fn new(kind: &'static str) -> Self {
        Self { kind, open: Mutex::new(Weak::new()) }
    }

    /// A handle of the open watch. If there is none, one is opened: `prepare` gives what starts a task that fills the store.
    pub(super) fn handle<S, F>(
        &self,
        health: &Arc<ConnectionHealth>,
        tasks: &Tasks,
        prepare: impl FnOnce(&'static str, &Arc<Store<V>>) -> S,
    ) -> Watched<V>
    where
        S: FnMut() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut slot = self.open.lock();
        let open = slot.upgrade().unwrap_or_else(|| {
            let store = Arc::new(Store::default());
            health.watch_opened(self.kind);
            let (name, start) = (format!("watch of {}", self.kind), prepare(self.kind, &store));
            let task = tasks.supervise(&name, &CancellationToken::new(), start);
            let open = Arc::new(OpenWatch { kind: self.kind, store, health: health.clone(), _task: task });
            *slot = Arc::downgrade(&open);
            open
        });
        Watched { store: open.store.clone(), open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_list_is_told_in_the_end_why_there_is_none() {
        let health = Arc::new(ConnectionHealth::default());
        let open = |kind| {
            SharedWatch::<()>::new(kind).handle(&health, &Tasks::default(), |_, _| || std::future::pending::<()>())
        };
        let (refused, silent) = (open("Service"), open("Node"));
        health.watch_interrupted("Service", "needs the verb list on services");
        let why = refused.listed().await.unwrap_err();
        assert!(why.contains("no list of the kind Service within 30 s"), "{why}");
        assert!(why.ends_with(": needs the verb list on services"), "{why}");
        let why = silent.listed_within(Duration::from_secs(1)).await.unwrap_err();
        assert!(why.ends_with("of the kind Node within 1 s, as without the right to it"), "{why}");
    }
}
