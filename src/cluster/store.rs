//! Objects as a watch last saw them, and who must look again.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::plan::inputs::ObjectKey;

/// The objects of one kind. Reading never waits for the API server.
#[derive(Debug)]
pub struct Store<V> {
    _views: PhantomData<V>,
}

/// One reader's set of keys that changed since it last asked; deletions and what a relist found missing included.
#[derive(Debug)]
pub struct Dirty {}

#[expect(clippy::unused_async, unused_variables, clippy::todo, clippy::missing_panics_doc)]
impl<V> Store<V> {
    /// One object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        todo!()
    }
    /// All objects, in no particular order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<V>> {
        todo!()
    }
    /// Completes when the first list has arrived whole.
    pub async fn synced(&self) {
        todo!()
    }
    /// From now on, keys that change; all present keys count as changed at first.
    #[must_use]
    pub fn subscribe(&self) -> Dirty {
        todo!()
    }
}

#[expect(clippy::unused_async, clippy::todo, clippy::missing_panics_doc)]
impl Dirty {
    /// Waits until some key changed, then gives all that did.
    pub async fn next(&mut self) -> BTreeSet<ObjectKey> {
        todo!()
    }
}
