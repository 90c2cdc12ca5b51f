//! Watches that live as long as their handles.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::status::ConnectionHealth;
use super::store::Store;

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

    /// A handle of the open watch. If there is none, it is `start`ed: a task that fills the store.
    pub(super) fn handle<F>(
        &self,
        health: &Arc<ConnectionHealth>,
        start: impl FnOnce(&'static str, &Arc<Store<V>>) -> F,
    ) -> Watched<V>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut slot = self.open.lock();
        let open = slot.upgrade().unwrap_or_else(|| {
            let store = Arc::new(Store::new());
            health.watch_opened(self.kind);
            let task = AbortOnDropHandle::new(tokio::spawn(start(self.kind, &store)));
            let open = Arc::new(OpenWatch { kind: self.kind, store, health: health.clone(), _task: task });
            *slot = Arc::downgrade(&open);
            open
        });
        Watched { store: open.store.clone(), _open: open }
    }
}
