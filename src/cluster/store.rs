//! Objects as a watch last saw them, and the keys that changed since each reader last looked.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ServiceView, VolumeView};

/// Deletions that are remembered at most; a forgotten one only makes a reader ask the API server.
const MAX_DELETED: usize = 5000;

/// An object as a store keeps it.
pub trait StoredView: PartialEq + Send + Sync + 'static {
    /// `metadata.resourceVersion` of both, if it is kept. It changes with every write, also with those that change nothing
    /// that is decoded.
    fn versions<'a>(new: &'a mut Self, old: &'a Self) -> Option<(&'a mut String, &'a String)>;

    /// Takes over what this process found out about the object, which no version of it says.
    fn inherit(&mut self, _old: &Self) {}
}

impl StoredView for NodeView {
    fn inherit(&mut self, old: &Self) {
        self.is_replaced |= old.is_replaced && (&self.uid, &self.provider_id) == (&old.uid, &old.provider_id);
    }

    fn versions<'a>(new: &'a mut Self, old: &'a Self) -> Option<(&'a mut String, &'a String)> {
        Some((&mut new.resource_version, &old.resource_version))
    }
}

impl StoredView for ServiceView {
    fn versions<'a>(new: &'a mut Self, old: &'a Self) -> Option<(&'a mut String, &'a String)> {
        Some((&mut new.resource_version, &old.resource_version))
    }
}

impl StoredView for VolumeView {
    fn versions<'a>(new: &'a mut Self, old: &'a Self) -> Option<(&'a mut String, &'a String)> {
        Some((&mut new.resource_version, &old.resource_version))
    }
}

impl StoredView for EndpointsView {
    fn versions<'a>(_: &'a mut Self, _: &'a Self) -> Option<(&'a mut String, &'a String)> {
        None
    }
}

/// Whether something other than the resourceVersion differs.
fn differs<V: StoredView>(new: &mut Arc<V>, old: &V) -> bool {
    let versions = Arc::get_mut(new).and_then(|new| V::versions(new, old));
    // Made equal for the comparison: cheaper than a copy of all the rest.
    let own = versions.map(|(version, old)| std::mem::replace(version, old.clone()));
    let differs = **new != *old;
    if let Some(own) = own
        && let Some((version, _)) = Arc::get_mut(new).and_then(|new| V::versions(new, old))
    {
        *version = own;
    }
    differs
}

/// The objects of one kind. Reading never waits for the API server.
#[derive(Debug)]
pub struct Store<V> {
    objects: RwLock<Objects<V>>,
    readers: Mutex<Vec<Weak<ChangedKeys>>>,
    synced: watch::Sender<bool>,
}

#[derive(Debug)]
struct Objects<V> {
    views: BTreeMap<ObjectKey, Arc<V>>,
    /// Objects that exist, and of which no view is kept.
    skipped: HashSet<ObjectKey>,
    /// All views, once a reader wanted them all, until something changes.
    all: Option<Arc<[Arc<V>]>>,
    /// What the API server reported as deleted, and does not exist again. What a list lacked is not in it.
    deleted: BTreeSet<ObjectKey>,
}

/// What a store has of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEntry<V> {
    /// Its view.
    Kept(Arc<V>),
    /// It exists, and is still to be read.
    Skipped,
    /// It does not exist.
    Absent,
}

/// One reader's set of keys that changed since it last asked; deletions and what a new list lacked included.
#[derive(Debug)]
pub struct DirtyKeys {
    changed: Arc<ChangedKeys>,
}

#[derive(Debug, Default)]
struct ChangedKeys {
    keys: Mutex<BTreeSet<ObjectKey>>,
    arrived: Notify,
}

impl ChangedKeys {
    fn add<'a>(&self, keys: impl IntoIterator<Item = &'a ObjectKey>) {
        self.keys.lock().extend(keys.into_iter().cloned());
        self.arrived.notify_one();
    }
}

impl<V> Store<V> {
    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.objects.read().views.get(key).cloned()
    }

    /// What is known of an object, for a kind of which not all are kept.
    pub fn look_up(&self, key: &ObjectKey) -> StoreEntry<V> {
        let objects = self.objects.read();
        match objects.views.get(key) {
            Some(view) => StoreEntry::Kept(view.clone()),
            None if objects.skipped.contains(key) => StoreEntry::Skipped,
            None => StoreEntry::Absent,
        }
    }

    /// Whether an object exists, of which perhaps no view is kept.
    pub fn has(&self, key: &ObjectKey) -> bool {
        !matches!(self.look_up(key), StoreEntry::Absent)
    }

    /// All objects, in the order of their keys.
    pub fn all(&self) -> Arc<[Arc<V>]> {
        if let Some(all) = &self.objects.read().all {
            return all.clone();
        }
        let mut objects = self.objects.write();
        let Objects { views, all, .. } = &mut *objects;
        all.get_or_insert_with(|| views.values().cloned().collect()).clone()
    }

    /// How many objects are kept.
    pub fn len(&self) -> usize {
        self.objects.read().views.len()
    }

    /// Objects that exist, and of which no view is kept: of a kind of which all are wanted, those that cannot be decoded.
    pub fn skipped(&self) -> Vec<ObjectKey> {
        self.objects.read().skipped.iter().cloned().collect()
    }

    /// Whether no object exists, not even one that was skipped.
    pub fn is_empty(&self) -> bool {
        let objects = self.objects.read();
        objects.views.is_empty() && objects.skipped.is_empty()
    }

    /// Completes when the first list has arrived whole.
    pub async fn synced(&self) {
        // The sender lives in `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// From now on, keys that change; all present keys count as changed at first.
    pub fn subscribe(&self) -> DirtyKeys {
        let changed = Arc::new(ChangedKeys::default());
        // Registered before reading: a change in between is then reported twice rather than never.
        self.readers.lock().push(Arc::downgrade(&changed));
        changed.add(self.objects.read().views.keys());
        DirtyKeys { changed }
    }

    /// Adds keys that change from now on to those of a reader of another store, in which the same keys stand for the same
    /// objects.
    pub fn add_to(&self, keys: &DirtyKeys) {
        self.readers.lock().push(Arc::downgrade(&keys.changed));
    }

    /// Names of the objects whose deletion was watched, as far as they are remembered. An object that is merely absent may
    /// have been lost by the API server, such as one that was restored from a backup.
    pub fn deleted(&self) -> BTreeSet<Arc<str>> {
        self.objects.read().deleted.iter().map(|key| key.name.clone()).collect()
    }

    fn notify(&self, keys: &[ObjectKey]) {
        self.readers.lock().retain(|reader| reader.upgrade().inspect(|reader| reader.add(keys)).is_some());
    }
}

impl<V> Default for Store<V> {
    /// An empty store whose first list is still to come.
    fn default() -> Self {
        let objects = Objects { views: BTreeMap::new(), skipped: HashSet::new(), all: None, deleted: BTreeSet::new() };
        Self { objects: RwLock::new(objects), readers: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl Store<NodeView> {
    /// Notes whether a node's instance is gone for good; see [`NodeView::is_replaced`].
    pub fn set_replaced(&self, key: &ObjectKey, is_replaced: bool) {
        let mut objects = self.objects.write();
        let Some(view) = objects.views.get_mut(key).filter(|view| view.is_replaced != is_replaced) else { return };
        Arc::make_mut(view).is_replaced = is_replaced;
        objects.all = None;
        drop(objects);
        self.notify(std::slice::from_ref(key));
    }
}

impl<V: StoredView> Store<V> {
    /// An object was added or changed.
    pub fn apply(&self, key: ObjectKey, view: impl Into<Arc<V>>) {
        let changed = self.objects.write().put(&key, view.into());
        if changed {
            self.notify(&[key]);
        }
    }

    /// An object exists, and is not kept (any more).
    pub fn skip(&self, key: ObjectKey) {
        let mut objects = self.objects.write();
        let was_kept = objects.remove(&key);
        objects.deleted.remove(&key);
        objects.skipped.insert(key.clone());
        drop(objects);
        if was_kept {
            self.notify(&[key]);
        }
    }

    /// An object was deleted.
    pub fn delete(&self, key: &ObjectKey) {
        let mut objects = self.objects.write();
        if objects.remove(key) | objects.skipped.remove(key) {
            if objects.deleted.len() >= MAX_DELETED {
                objects.deleted.pop_first();
            }
            objects.deleted.insert(key.clone());
            drop(objects);
            self.notify(std::slice::from_ref(key));
        }
    }

    /// A whole list arrived: what is neither in `listed` nor in `skipped` does not exist. `skipped` names objects of which no
    /// view is kept.
    pub fn reset(&self, listed: Vec<(ObjectKey, Arc<V>)>, skipped: HashSet<ObjectKey>) {
        let mut objects = self.objects.write();
        objects.all = None;
        let present: HashSet<&ObjectKey> = listed.iter().map(|(key, _)| key).collect();
        let mut changed: Vec<ObjectKey> = objects.views.keys().filter(|key| !present.contains(key)).cloned().collect();
        changed.iter().for_each(|key| drop(objects.views.remove(key)));
        objects.deleted.retain(|key| !skipped.contains(key));
        let before = std::mem::replace(&mut objects.skipped, skipped);
        changed.extend(before.into_iter().filter(|key| !objects.skipped.contains(key) && !present.contains(key)));
        for (key, view) in listed {
            if objects.put(&key, view) {
                changed.push(key);
            }
        }
        drop(objects);
        self.notify(&changed);
        self.synced.send_replace(true);
    }
}

impl<V> Objects<V> {
    /// Returns whether it was kept.
    fn remove(&mut self, key: &ObjectKey) -> bool {
        self.all = None;
        self.views.remove(key).is_some()
    }
}

impl<V: StoredView> Objects<V> {
    /// Stores a view; returns whether readers must look again.
    fn put(&mut self, key: &ObjectKey, mut view: Arc<V>) -> bool {
        self.skipped.remove(key);
        self.deleted.remove(key);
        self.all = None;
        let old = self.views.get(key);
        if let Some((new, old)) = Arc::get_mut(&mut view).zip(old) {
            new.inherit(old);
        }
        let changed = old.is_none_or(|old| differs(&mut view, old));
        self.views.insert(key.clone(), view);
        changed
    }
}

impl DirtyKeys {
    /// The keys that changed; empty if none did.
    pub fn take(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut *self.changed.keys.lock())
    }

    /// Waits until some key changed, then gives all that did. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> BTreeSet<ObjectKey> {
        loop {
            let keys = self.take();
            if !keys.is_empty() {
                return keys;
            }
            self.changed.arrived.notified().await;
        }
    }
}

/// Whether one `resourceVersion` of an object is certainly newer than another one: versions that are no numbers have no order.
pub fn is_newer_version(version: &str, than: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    number(version).zip(number(than)).is_some_and(|(version, than)| version > than)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    fn node(name: &str, version: &str, provider_id: &str) -> (ObjectKey, Arc<NodeView>) {
        let view = NodeView {
            name: name.into(),
            resource_version: version.into(),
            provider_id: provider_id.into(),
            ..NodeView::default()
        };
        (ObjectKey::cluster(name), Arc::new(view))
    }

    fn keys(names: &[&str]) -> BTreeSet<ObjectKey> {
        names.iter().map(|name| ObjectKey::cluster(*name)).collect()
    }

    /// What the reader has to look at now; empty if nothing.
    async fn pending(dirty: &mut DirtyKeys) -> BTreeSet<ObjectKey> {
        tokio::time::timeout(Duration::from_millis(1), dirty.next()).await.unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_starts_with_all_keys_and_then_sees_changes_only() {
        let store = Store::<NodeView>::default();
        store.reset(vec![node("a", "1", ""), node("b", "1", "")], HashSet::new());
        let mut dirty = store.subscribe();
        assert_eq!(pending(&mut dirty).await, keys(&["a", "b"]));
        assert_eq!(pending(&mut dirty).await, keys(&[]));
        let (key, view) = node("b", "2", "x");
        store.apply(key, view);
        assert_eq!(pending(&mut dirty).await, keys(&["b"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_of_equal_content_is_stored_without_waking_anybody() {
        let store = Store::<NodeView>::default();
        store.reset(vec![node("a", "1", "x")], HashSet::new());
        let mut dirty = store.subscribe();
        pending(&mut dirty).await;
        let (key, view) = node("a", "2", "x");
        store.apply(key.clone(), view);
        assert_eq!(pending(&mut dirty).await, keys(&[]));
        assert_eq!(store.get(&key).unwrap().resource_version, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_relist_misses_does_not_exist_any_more() {
        let store = Store::<NodeView>::default();
        store.reset(vec![node("a", "1", ""), node("b", "1", ""), node("c", "1", "")], HashSet::new());
        let mut dirty = store.subscribe();
        pending(&mut dirty).await;
        store.reset(vec![node("a", "5", "")], HashSet::from([ObjectKey::cluster("c")]));
        assert_eq!(pending(&mut dirty).await, keys(&["b", "c"]));
        assert!(!store.has(&ObjectKey::cluster("b")));
        assert!(store.has(&ObjectKey::cluster("c")) && store.get(&ObjectKey::cluster("c")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_out_is_there_all_the_same() {
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        let store = Store::<NodeView>::default();
        assert!(store.is_empty());
        store.reset(vec![node("a", "1", "")], HashSet::from([b.clone()]));
        let mut dirty = store.subscribe();
        assert_eq!(pending(&mut dirty).await, keys(&["a"]), "b is still to be read");
        assert_eq!((store.look_up(&b), store.len()), (StoreEntry::Skipped, 1));
        store.skip(a.clone());
        assert_eq!((pending(&mut dirty).await, store.look_up(&a)), (keys(&["a"]), StoreEntry::Skipped));
        assert!(!store.is_empty());
        let (key, view) = node("b", "1", "");
        store.apply(key, view);
        assert_eq!(pending(&mut dirty).await, keys(&["b"]));
        assert!(matches!(store.look_up(&b), StoreEntry::Kept(_)));
        store.delete(&a);
        assert_eq!((pending(&mut dirty).await, store.look_up(&a)), (keys(&["a"]), StoreEntry::Absent));
        store.skip(b.clone());
        store.reset(Vec::new(), HashSet::new());
        assert_eq!((pending(&mut dirty).await, store.look_up(&b)), (keys(&["b"]), StoreEntry::Absent));
    }

    #[test]
    fn only_a_deletion_that_was_watched_counts_as_one() {
        let store = Store::<NodeView>::default();
        let deleted = |names: &[&str]| names.iter().copied().map(Arc::from).collect::<BTreeSet<_>>();
        store.reset(vec![node("a", "1", ""), node("b", "1", ""), node("c", "1", "")], HashSet::new());
        store.delete(&ObjectKey::cluster("a"));
        store.reset(vec![node("c", "2", "")], HashSet::new());
        assert_eq!(store.deleted(), deleted(&["a"]), "b is only missing");
        let (key, view) = node("a", "3", "");
        store.apply(key.clone(), view);
        assert_eq!(store.deleted(), deleted(&[]), "it is back");
        store.delete(&key);
        store.reset(vec![node("a", "4", "")], HashSet::new());
        assert_eq!(store.deleted(), deleted(&[]), "it is back");
    }

    #[tokio::test(start_paused = true)]
    async fn every_reader_has_its_own_set() {
        let store = Store::<NodeView>::default();
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
        let store = Arc::new(Store::<NodeView>::default());
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.synced().await }
        });
        let (key, view) = node("a", "1", "");
        store.apply(key, view);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!waiting.is_finished());
        store.reset(Vec::new(), HashSet::new());
        waiting.await.unwrap();
        assert!(store.synced().now_or_never().is_some());
    }
}
