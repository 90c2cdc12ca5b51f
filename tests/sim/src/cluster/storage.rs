//! Objects, their versions, and the history that watches and consistent lists are answered from.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Bound, RangeBounds as _};
use std::sync::Arc;

use serde_json::Value;

use super::object;
use super::resources::Resource;
use super::services::Allocations;
use crate::effort;
use crate::ordered_watch::{Receiver, Sender};

/// How many changes are kept before the oldest are compacted away.
const HISTORY: usize = 50_000;

/// Where an object is: plural of its resource, namespace (empty for cluster scope), name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) plural: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(resource: &Resource, namespace: &str, name: &str) -> Key {
        let namespace = if resource.namespaced { namespace } else { "" };
        Key { plural: resource.plural, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One write, with the object before and after it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) before: Option<Arc<Value>>,
    /// The object as it is now, or as it was last, with the version of its deletion.
    pub(super) object: Arc<Value>,
    pub(super) deleted: bool,
}

/// A version that the history no longer reaches; holds the oldest that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compacted(pub(super) u64);

#[derive(Debug)]
pub(super) struct Store {
    version: u64,
    /// Changes up to and including this version are no longer in the history.
    forgotten: u64,
    /// Requests that name a version older than this are refused.
    compacted: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    /// Of the Services among the objects.
    allocations: Allocations,
    /// What each uid owns.
    owned: HashMap<String, BTreeSet<Key>>,
    changed: Sender<u64>,
}

impl Store {
    pub(super) fn new() -> Store {
        Store {
            version: 1,
            forgotten: 0,
            compacted: 0,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            allocations: Allocations::default(),
            owned: HashMap::new(),
            changed: Sender::new(1),
        }
    }

    /// The same objects and history, without subscribers.
    pub(super) fn fork(&self) -> Store {
        Store {
            objects: self.objects.clone(),
            history: self.history.clone(),
            allocations: self.allocations.clone(),
            owned: self.owned.clone(),
            changed: Sender::new(self.version),
            ..*self
        }
    }

    /// Goes back to the content of another store. Subscribers stay, and see a resourceVersion that regressed.
    pub(super) fn restore(&mut self, backup: &Store) {
        let changed = std::mem::replace(&mut self.changed, Sender::new(0));
        *self = Store { changed, ..backup.fork() };
        self.changed.change(|version| *version = self.version);
    }

    /// Addresses and ports that Services hold.
    pub(super) fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// The version of the last write.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Tells the version of each write.
    pub(super) fn subscribe(&self) -> Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Objects of a resource in order of namespace and name; an empty namespace means all.
    pub(super) fn list<'a>(
        &'a self,
        resource: &Resource,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.list_from(resource, namespace, "")
    }

    /// The same, without those whose names come before this one in an only namespace.
    pub(super) fn list_from<'a>(
        &'a self,
        resource: &Resource,
        namespace: &'a str,
        name: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + use<'a> {
        let plural = resource.plural;
        let start = Key { plural, namespace: namespace.to_owned(), name: name.to_owned() };
        self.objects
            .range(start..)
            .take_while(move |(key, _)| key.plural == plural && (namespace.is_empty() || key.namespace == namespace))
            .inspect(|_| effort::look())
    }

    /// The same as of an older version, rolled back from now: those after this namespace and name.
    pub(super) fn list_at<'a>(
        &'a self,
        resource: &Resource,
        namespace: &'a str,
        version: u64,
        after: Option<(&str, &str)>,
    ) -> Result<impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + use<'a>, Compacted> {
        self.reaches(version)?;
        let plural = resource.plural;
        let ours = move |key: &Key| key.plural == plural && (namespace.is_empty() || key.namespace == namespace);
        let start = match after {
            None => Bound::Included(Key { plural, namespace: namespace.to_owned(), name: String::new() }),
            Some((namespace, name)) => {
                Bound::Excluded(Key { plural, namespace: namespace.to_owned(), name: name.to_owned() })
            }
        };
        let mut then = BTreeMap::new();
        for change in self.after(version)?.filter(|change| ours(&change.key)) {
            then.entry(&change.key).or_insert(change.before.as_ref());
        }
        let changed: BTreeSet<&Key> = then.keys().copied().collect();
        let (from, until) = (start.clone(), Bound::Unbounded);
        let then = then.into_iter().filter(move |(key, _)| (from.as_ref(), until).contains(*key));
        let mut then = then.filter_map(|(key, before)| Some((key, before?))).peekable();
        let same = self.objects.range((start, Bound::Unbounded)).take_while(move |(key, _)| ours(key));
        let mut same = same.inspect(|_| effort::look()).filter(move |(key, _)| !changed.contains(key)).peekable();
        Ok(std::iter::from_fn(move || match (same.peek(), then.peek()) {
            (Some((one, _)), Some((other, _))) if other < one => then.next(),
            (None, _) => then.next(),
            _ => same.next(),
        }))
    }

    /// Whether a new request may still start from a version.
    pub(super) fn reaches(&self, version: u64) -> Result<(), Compacted> {
        if version < self.compacted { Err(Compacted(self.compacted)) } else { Ok(()) }
    }

    /// Changes later than a version, oldest first.
    pub(super) fn after(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Compacted> {
        if version < self.forgotten {
            return Err(Compacted(self.compacted));
        }
        let start = self.history.partition_point(|change| change.version <= version);
        Ok(self.history.range(start..).inspect(|_| effort::look()))
    }

    /// Writes an object under the next version.
    pub(super) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object::map(&mut object, "metadata").insert("resourceVersion".to_owned(), self.version.to_string().into());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.own(&key, before.as_deref(), Some(&object));
        if key.plural == "services" {
            self.allocations.change(before.as_deref(), Some(&object));
        }
        self.record(Change { version: self.version, key, before, object: Arc::clone(&object), deleted: false });
        object
    }

    /// Removes an object; `last` is its final state, which watches see.
    pub(super) fn remove(&mut self, key: &Key, mut last: Value) -> Arc<Value> {
        self.version += 1;
        object::map(&mut last, "metadata").insert("resourceVersion".to_owned(), self.version.to_string().into());
        let object = Arc::new(last);
        let before = self.objects.remove(key);
        self.own(key, before.as_deref(), None);
        if key.plural == "services" {
            self.allocations.change(before.as_deref(), None);
        }
        let key = key.clone();
        self.record(Change { version: self.version, key, before, object: Arc::clone(&object), deleted: true });
        object
    }

    /// Notes who owns an object now, and who did.
    fn own(&mut self, key: &Key, before: Option<&Value>, now: Option<&Value>) {
        let owners = |object: Option<&Value>| -> BTreeSet<String> {
            let owners = object.map_or(&[][..], |object| object::items(object, "/metadata/ownerReferences"));
            owners.iter().map(|owner| object::text(owner, "/uid").to_owned()).collect()
        };
        let (before, now) = (owners(before), owners(now));
        for owner in before.difference(&now) {
            if let Some(keys) = self.owned.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(owner);
                }
            }
        }
        for owner in now.difference(&before) {
            self.owned.entry(owner.clone()).or_default().insert(key.clone());
        }
    }

    /// What this uid owns, alone or with others.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<(Key, Arc<Value>)> {
        let keys = self.owned.get(uid).into_iter().flatten().inspect(|_| effort::look());
        keys.filter_map(|key| Some((key.clone(), Arc::clone(self.get(key)?)))).collect()
    }

    /// Forgets the history. Running watches that missed nothing go on; a new one from an older version is refused.
    pub(super) fn compact(&mut self) {
        self.forgotten = self.version;
        // What was current until now is too old as well, as if more had been written elsewhere.
        self.version += 1;
        self.compacted = self.version;
        self.history.clear();
        self.changed.change(|version| *version = self.version);
    }

    fn record(&mut self, change: Change) {
        self.history.push_back(change);
        while self.history.len() > HISTORY {
            if let Some(forgotten) = self.history.pop_front() {
                self.forgotten = forgotten.version;
                self.compacted = self.compacted.max(forgotten.version);
            }
        }
        self.changed.change(|version| *version = self.version);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::resources::named;

    fn names(list: &[(Key, Arc<Value>)]) -> Vec<&str> {
        list.iter().map(|(key, _)| key.name.as_str()).collect()
    }

    #[test]
    fn an_old_version_can_be_listed_until_it_is_compacted() {
        let nodes = named("nodes").unwrap();
        let mut store = Store::new();
        store.put(Key::new(nodes, "", "a"), json!({ "spec": 1 }));
        let old = store.version();
        store.put(Key::new(nodes, "", "b"), json!({}));
        store.put(Key::new(nodes, "", "a"), json!({ "spec": 2 }));
        store.remove(&Key::new(nodes, "", "a"), json!({ "spec": 2 }));

        let list = |store: &Store, version, after| {
            let listed = store.list_at(nodes, "", version, after).map_err(|_| ())?;
            Ok::<_, ()>(listed.map(|(key, object)| (key.clone(), Arc::clone(object))).collect::<Vec<_>>())
        };
        let then = list(&store, old, None).unwrap();
        assert_eq!(names(&then), ["a"]);
        assert_eq!(then[0].1["spec"], 1);
        assert_eq!(names(&list(&store, old, Some(("", "a"))).unwrap()), Vec::<&str>::new());
        assert_eq!(names(&list(&store, store.version(), None).unwrap()), ["b"]);

        store.compact();
        assert!(list(&store, old, None).is_err());
        assert!(store.after(store.version()).is_ok());
    }
}
