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
    content: RwLock<Content<V>>,
    readers: Mutex<Vec<Weak<Reader>>>,
    synced: AtomicBool,
    first_list: Notify,
    /// What the API server said was deleted, and is not there again; what a list lacked is not in it.
    deleted: Mutex<BTreeSet<ObjectKey>>,
}

#[derive(Debug)]
struct Content<V> {
    views: BTreeMap<ObjectKey, Arc<V>>,
    /// Objects that are there, and of which nothing is kept. None of them is among the views.
    left_out: HashSet<ObjectKey>,
    /// All views, once somebody wanted them all, until something changes.
    all: Option<Arc<[Arc<V>]>>,
}

impl<V> Default for Content<V> {
    fn default() -> Self {
        Self { views: BTreeMap::new(), left_out: HashSet::new(), all: None }
    }
}

/// What a store knows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<V> {
    /// This.
    Kept(Arc<V>),
    /// That it is there; what it holds is still to be read.
    LeftOut,
    /// That it is not there.
    Absent,
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
        self.content.read().views.get(key).cloned()
    }

    /// What is known of an object, for a kind of which not all are kept.
    #[must_use]
    pub fn look_up(&self, key: &ObjectKey) -> Known<V> {
        let content = self.content.read();
        match content.views.get(key) {
            Some(view) => Known::Kept(view.clone()),
            None if content.left_out.contains(key) => Known::LeftOut,
            None => Known::Absent,
        }
    }

    /// All objects, in the order of their keys.
    #[must_use]
    pub fn all(&self) -> Arc<[Arc<V>]> {
        if let Some(all) = &self.content.read().all {
            return all.clone();
        }
        let mut content = self.content.write();
        let Content { views, all, .. } = &mut *content;
        all.get_or_insert_with(|| views.values().cloned().collect()).clone()
    }

    /// How many objects are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.content.read().views.len()
    }

    /// Whether there are none, not even some that are left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let content = self.content.read();
        content.views.is_empty() && content.left_out.is_empty()
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
        let content = self.content.read();
        if !content.views.is_empty() {
            reader.add(content.views.keys());
        }
        drop(content);
        Dirty { reader }
    }

    /// An empty store whose first list is still to come.
    #[must_use]
    pub fn new() -> Self {
        Self {
            content: RwLock::default(),
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
        let changed = self.content.write().put(&key, view.into());
        if changed {
            self.notify(&[key]);
        }
    }

    /// An object is there, and is not kept (any more).
    pub fn leave_out(&self, key: ObjectKey) {
        let mut content = self.content.write();
        let was_kept = content.remove(&key);
        content.left_out.insert(key.clone());
        drop(content);
        if was_kept {
            self.notify(&[key]);
        }
    }

    /// An object is gone.
    pub fn delete(&self, key: &ObjectKey) {
        let mut content = self.content.write();
        let existed = content.remove(key) | content.left_out.remove(key);
        drop(content);
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
    /// but could not be read, `left_out` those of which nothing is kept.
    pub fn reset(
        &self,
        listed: Vec<(ObjectKey, impl Into<Arc<V>>)>,
        keep: &HashSet<ObjectKey>,
        left_out: HashSet<ObjectKey>,
    ) {
        let mut changed = Vec::new();
        let mut content = self.content.write();
        content.all = None;
        let present: HashSet<&ObjectKey> = listed.iter().map(|(key, _)| key).chain(keep).collect();
        content.views.retain(|key, _| {
            let stays = present.contains(key);
            if !stays {
                changed.push(key.clone());
            }
            stays
        });
        let before = std::mem::replace(&mut content.left_out, left_out);
        changed.extend(before.into_iter().filter(|key| !content.left_out.contains(key) && !present.contains(key)));
        drop(present);
        let mut deleted = self.deleted.lock();
        listed.iter().for_each(|(key, _)| drop(deleted.take(key)));
        drop(deleted);
        for (key, view) in listed {
            if content.put(&key, view.into()) {
                changed.push(key);
            }
        }
        drop(content);
        self.notify(&changed);
        self.synced.store(true, Ordering::Release);
        self.first_list.notify_waiters();
    }
}

impl<V> Content<V> {
    /// Returns whether it was kept.
    fn remove(&mut self, key: &ObjectKey) -> bool {
        self.all = None;
        self.views.remove(key).is_some()
    }
}

impl<V: View> Content<V> {
    /// Stores a view; returns whether readers must look again.
    fn put(&mut self, key: &ObjectKey, mut view: Arc<V>) -> bool {
        self.left_out.remove(key);
        self.all = None;
        match self.views.get_mut(key) {
            Some(old) => {
                let differs = differs(&mut view, old);
                *old = view;
                differs
            }
            None => {
                self.views.insert(key.clone(), view);
                true
            }
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
        store.reset(vec![node("a", "1", ""), node("b", "1", "")], &HashSet::new(), HashSet::new());
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
        store.reset(vec![node("a", "1", "x")], &HashSet::new(), HashSet::new());
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
        store.reset(vec![node("a", "1", ""), node("b", "1", ""), node("c", "1", "")], &HashSet::new(), HashSet::new());
        let mut dirty = store.subscribe();
        pending(&mut dirty).await;
        store.reset(vec![node("a", "5", "")], &HashSet::from([ObjectKey::cluster("c")]), HashSet::new());
        assert_eq!(pending(&mut dirty).await, keys(&["b"]));
        assert!(store.get(&ObjectKey::cluster("b")).is_none());
        assert!(store.get(&ObjectKey::cluster("c")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_out_is_there_all_the_same() {
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        let store = Store::<NodeView>::new();
        assert!(store.is_empty());
        store.reset(vec![node("a", "1", "")], &HashSet::new(), HashSet::from([b.clone()]));
        let mut dirty = store.subscribe();
        assert_eq!(pending(&mut dirty).await, keys(&["a"]), "nobody can use b yet");
        assert_eq!((store.look_up(&b), store.len()), (Known::LeftOut, 1));
        store.leave_out(a.clone());
        assert_eq!((pending(&mut dirty).await, store.look_up(&a)), (keys(&["a"]), Known::LeftOut));
        assert!(!store.is_empty());
        let (key, view) = node("b", "1", "");
        store.apply(key, view);
        assert_eq!(pending(&mut dirty).await, keys(&["b"]));
        assert!(matches!(store.look_up(&b), Known::Kept(_)));
        store.delete(&a);
        assert_eq!((pending(&mut dirty).await, store.look_up(&a)), (keys(&["a"]), Known::Absent));
        store.leave_out(b.clone());
        store.reset(Vec::<(ObjectKey, NodeView)>::new(), &HashSet::new(), HashSet::new());
        assert_eq!((pending(&mut dirty).await, store.look_up(&b)), (keys(&["b"]), Known::Absent));
    }

    #[test]
    fn only_a_deletion_that_was_told_counts_as_one() {
        let store = Store::new();
        let deleted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        store.reset(vec![node("a", "1", ""), node("b", "1", ""), node("c", "1", "")], &HashSet::new(), HashSet::new());
        store.delete(&ObjectKey::cluster("a"));
        store.reset(vec![node("c", "2", "")], &HashSet::new(), HashSet::new());
        assert_eq!(store.deleted(), deleted(&["a"]), "b is only missing");
        let (key, view) = node("a", "3", "");
        store.apply(key.clone(), view);
        assert_eq!(store.deleted(), deleted(&[]), "it is back");
        store.delete(&key);
        store.reset(vec![node("a", "4", "")], &HashSet::new(), HashSet::new());
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
        store.reset(Vec::<(ObjectKey, NodeView)>::new(), &HashSet::new(), HashSet::new());
        waiting.await.unwrap();
        assert!(store.is_synced());
    }
}
