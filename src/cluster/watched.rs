//! Watches that live as long as their handles.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::status::ConnectionHealth;
use super::store::Store;
use crate::telemetry::tasks::Tasks;

/// A store that is kept filled by a watch as long as any clone of this handle lives.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    /// The objects.
    pub store: Arc<Store<V>>,
    _open: Arc<OpenWatch<V>>,
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
            let store = Arc::new(Store::new());
            health.watch_opened(self.kind);
            let (name, start) = (format!("watch of {}", self.kind), prepare(self.kind, &store));
            let task = tasks.supervise(&name, &CancellationToken::new(), start);
            let open = Arc::new(OpenWatch { kind: self.kind, store, health: health.clone(), _task: task });
            *slot = Arc::downgrade(&open);
            open
        });
        Watched { store: open.store.clone(), _open: open }
    }
}
