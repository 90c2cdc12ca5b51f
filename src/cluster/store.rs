//! Objects as a watch last saw them, and who must look again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ServiceView};

/// An object as a store keeps it.
pub trait View: PartialEq + Send + Sync + 'static {
    /// `metadata.resourceVersion`, if it is kept. It changes with every write, also with those that change nothing that we
    /// look at.
    fn version(&self) -> Option<&String>;
    /// The same, to be changed.
    fn version_mut(&mut self) -> Option<&mut String>;
}

impl View for NodeView {
    fn version(&self) -> Option<&String> {
        Some(&self.resource_version)
    }

    fn version_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.resource_version)
    }
}

impl View for ServiceView {
    fn version(&self) -> Option<&String> {
        Some(&self.resource_version)
    }

    fn version_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.resource_version)
    }
}

impl View for EndpointsView {
    fn version(&self) -> Option<&String> {
        None
    }

    fn version_mut(&mut self) -> Option<&mut String> {
        None
    }
}

/// Whether something other than the version differs.
fn differs<V: View>(new: &mut Arc<V>, old: &V) -> bool {
    let Some((version, old_version)) = Arc::get_mut(new).and_then(View::version_mut).zip(old.version()) else {
        return **new != *old;
    };
    // Made the same for the comparison: cheaper than a copy of all the rest.
    let own = std::mem::replace(version, old_version.clone());
    let differs = **new != *old;
    if let Some(version) = Arc::get_mut(new).and_then(View::version_mut) {
        *version = own;
    }
    differs
}

/// Deletions that are remembered at most; forgetting one only makes somebody ask again.
const REMEMBERED: usize = 5000;

/// The objects of one kind. Reading never waits for the API server.
#[derive(Debug)]
pub struct Store<V> {
    views: RwLock<BTreeMap<ObjectKey, Arc<V>>>,
    readers: Mutex<Vec<Weak<Reader>>>,
    synced: AtomicBool,
    first_list: Notify,
    /// What the API server said was deleted, and is not there again; what a list lacked is not in it.
    deleted: Mutex<BTreeSet<ObjectKey>>,
}

/// One reader's set of keys that changed since it last asked; deletions and what a relist found missing included.
#[derive(Debug)]
pub struct Dirty {
    reader: Arc<Reader>,
}

#[derive(Debug, Default)]
struct Reader {
    keys: Mutex<BTreeSet<ObjectKey>>,
    arrived: Notify,
}

impl Reader {
    fn add<'a>(&self, keys: impl IntoIterator<Item = &'a ObjectKey>) {
        self.keys.lock().extend(keys.into_iter().cloned());
        self.arrived.notify_one();
    }
}

impl<V> Store<V> {
    /// One object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.views.read().get(key).cloned()
    }

    /// All objects, in the order of their keys.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<V>> {
        self.views.read().values().cloned().collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.views.read().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes when the first list has arrived whole.
    pub async fn synced(&self) {
        let mut first_list = pin!(self.first_list.notified());
        // From here on it is not missed.
        first_list.as_mut().enable();
        if !self.is_synced() {
            first_list.await;
        }
    }

    /// Whether the first list has arrived whole.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// From now on, keys that change; all present keys count as changed at first.
    #[must_use]
    pub fn subscribe(&self) -> Dirty {
        let reader = Arc::new(Reader::default());
        // Registered before reading: a change in between is then reported twice rather than never.
        self.readers.lock().push(Arc::downgrade(&reader));
        let views = self.views.read();
        if !views.is_empty() {
            reader.add(views.keys());
        }
        drop(views);
        Dirty { reader }
    }

    /// An empty store whose first list is still to come.
    #[must_use]
    pub fn new() -> Self {
        Self {
            views: RwLock::default(),
            readers: Mutex::default(),
            synced: AtomicBool::new(false),
            first_list: Notify::new(),
            deleted: Mutex::default(),
        }
    }

    /// Names of the objects whose deletion was watched, as far as they are remembered. What merely is not there may
    /// have been lost by the API server, as by one that was restored from a backup.
    #[must_use]
    pub fn deleted(&self) -> BTreeSet<String> {
        self.deleted.lock().iter().map(|key| key.name.clone()).collect()
    }

    fn notify(&self, keys: &[ObjectKey]) {
        if keys.is_empty() {
            return;
        }
        self.readers.lock().retain(|reader| match reader.upgrade() {
            Some(reader) => {
                reader.add(keys);
                true
            }
            None => false,
        });
    }
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: View> Store<V> {
    /// An object was added or changed.
    pub fn apply(&self, key: ObjectKey, view: impl Into<Arc<V>>) {
        self.deleted.lock().remove(&key);
        let changed = put(&mut self.views.write(), &key, view.into());
        if changed {
            self.notify(&[key]);
        }
    }

    /// An object is gone.
    pub fn delete(&self, key: &ObjectKey) {
        let existed = self.views.write().remove(key).is_some();
        if existed {
            let mut deleted = self.deleted.lock();
            if deleted.len() >= REMEMBERED {
                deleted.pop_first();
            }
            deleted.insert(key.clone());
            drop(deleted);
            self.notify(std::slice::from_ref(key));
        }
    }

    /// A whole list arrived: what is neither in `listed` nor in `keep` is gone. `keep` names objects that were listed
    /// but could not be read.
    pub fn reset(&self, listed: Vec<(ObjectKey, impl Into<Arc<V>>)>, keep: &HashSet<ObjectKey>) {
        let mut changed = Vec::new();
        let mut views = self.views.write();
        let present: HashSet<&ObjectKey> = listed.iter().map(|(key, _)| key).chain(keep).collect();
        views.retain(|key, _| {
            let stays = present.contains(key);
            if !stays {
                changed.push(key.clone());
            }
            stays
        });
        drop(present);
        let mut deleted = self.deleted.lock();
        listed.iter().for_each(|(key, _)| drop(deleted.take(key)));
        drop(deleted);
        for (key, view) in listed {
            if put(&mut views, &key, view.into()) {
                changed.push(key);
            }
        }
        drop(views);
        self.notify(&changed);
        self.synced.store(true, Ordering::Release);
        self.first_list.notify_waiters();
    }
}

/// Stores a view; returns whether readers must look again.
fn put<V: View>(views: &mut BTreeMap<ObjectKey, Arc<V>>, key: &ObjectKey, mut view: Arc<V>) -> bool {
    match views.get_mut(key) {
        Some(old) => {
            let differs = differs(&mut view, old);
            *old = view;
            differs
        }
        None => {
            views.insert(key.clone(), view);
            true
        }
    }
}

impl Dirty {
    /// Waits until some key changed, then gives all that did. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> BTreeSet<ObjectKey> {
        loop {
            let keys = std::mem::take(&mut *self.reader.keys.lock());
            if !keys.is_empty() {
                return keys;
            }
            self.reader.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn node(name: &str, version: &str, provider_id: &str) -> (ObjectKey, NodeView) {
        let view = NodeView {
            name: name.into(),
            resource_version: version.into(),
            provider_id: provider_id.into(),
            ..NodeView::default()
        };
        (ObjectKey::cluster(name), view)
    }

    fn keys(names: &[&str]) -> BTreeSet<ObjectKey> {
        names.iter().map(|name| ObjectKey::cluster(*name)).collect()
    }

    /// What the reader has to look at now; empty if nothing.
    async fn pending(dirty: &mut Dirty) -> BTreeSet<ObjectKey> {
        tokio::time::timeout(Duration::from_millis(1), dirty.next()).await.unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_starts_with_all_keys_and_then_sees_changes_only() {
        let store = Store::new();
        store.reset(vec![node("a", "1", ""), node("b", "1", "")], &HashSet::new());
        let mut dirty = store.subscribe();
        assert_eq!(pending(&mut dirty).await, keys(&["a", "b"]));
        assert_eq!(pending(&mut dirty).await, keys(&[]));
        let (key, view) = node("b", "2", "x");
        store.apply(key, view);
        assert_eq!(pending(&mut dirty).await, keys(&["b"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_of_equal_content_is_stored_without_waking_anybody() {
        let store = Store::new();
        store.reset(vec![node("a", "1", "x")], &HashSet::new());
        let mut dirty = store.subscribe();
        pending(&mut dirty).await;
        let (key, view) = node("a", "2", "x");
        store.apply(key.clone(), view);
        assert_eq!(pending(&mut dirty).await, keys(&[]));
        assert_eq!(store.get(&key).unwrap().resource_version, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_relist_misses_counts_as_deleted_unless_it_was_listed_unreadably() {
        let store = Store::new();
        store.reset(vec![node("a", "1", ""), node("b", "1", ""), node("c", "1", "")], &HashSet::new());
        let mut dirty = store.subscribe();
        pending(&mut dirty).await;
        store.reset(vec![node("a", "5", "")], &HashSet::from([ObjectKey::cluster("c")]));
        assert_eq!(pending(&mut dirty).await, keys(&["b"]));
        assert!(store.get(&ObjectKey::cluster("b")).is_none());
        assert!(store.get(&ObjectKey::cluster("c")).is_some());
    }

    #[test]
    fn only_a_deletion_that_was_told_counts_as_one() {
        let store = Store::new();
        let deleted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        store.reset(vec![node("a", "1", ""), node("b", "1", ""), node("c", "1", "")], &HashSet::new());
        store.delete(&ObjectKey::cluster("a"));
        store.reset(vec![node("c", "2", "")], &HashSet::new());
        assert_eq!(store.deleted(), deleted(&["a"]), "b is only missing");
        let (key, view) = node("a", "3", "");
        store.apply(key.clone(), view);
        assert_eq!(store.deleted(), deleted(&[]), "it is back");
        store.delete(&key);
        store.reset(vec![node("a", "4", "")], &HashSet::new());
        assert_eq!(store.deleted(), deleted(&[]), "it is back");
    }

    #[tokio::test(start_paused = true)]
    async fn every_reader_has_its_own_set() {
        let store = Store::new();
        let (mut first, mut second) = (store.subscribe(), store.subscribe());
        let (key, view) = node("a", "1", "");
        store.apply(key.clone(), view);
        assert_eq!(pending(&mut first).await, keys(&["a"]));
        store.delete(&key);
        assert_eq!(pending(&mut first).await, keys(&["a"]));
        assert_eq!(pending(&mut second).await, keys(&["a"]), "both changes in one");
        store.delete(&key);
        assert_eq!(pending(&mut first).await, keys(&[]), "it was gone already");
    }

    #[tokio::test(start_paused = true)]
    async fn synced_waits_for_the_first_whole_list_even_if_it_is_empty() {
        let store = Arc::new(Store::<NodeView>::new());
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.synced().await }
        });
        let (key, view) = node("a", "1", "");
        store.apply(key, view);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!waiting.is_finished());
        store.reset(Vec::<(ObjectKey, NodeView)>::new(), &HashSet::new());
        waiting.await.unwrap();
        assert!(store.is_synced());
    }
}
