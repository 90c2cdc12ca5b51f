//! Objects, their versions, and the history that watches and consistent lists are answered from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::object;
use super::resources::Resource;
use super::services::Allocations;
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
            changed: Sender::new(1),
        }
    }

    /// The same objects and history, without subscribers.
    pub(super) fn fork(&self) -> Store {
        Store {
            objects: self.objects.clone(),
            history: self.history.clone(),
            allocations: self.allocations.clone(),
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
    }

    /// The same as of an older version, rolled back from now.
    pub(super) fn list_at(
        &self,
        resource: &Resource,
        namespace: &str,
        version: u64,
    ) -> Result<Vec<(Key, Arc<Value>)>, Compacted> {
        let mut objects: BTreeMap<Key, Arc<Value>> =
            self.list(resource, namespace).map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        self.reaches(version)?;
        let newer: Vec<_> = self.after(version)?.collect();
        for change in newer.into_iter().rev() {
            if change.key.plural != resource.plural || !(namespace.is_empty() || change.key.namespace == namespace) {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects.into_iter().collect())
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
        Ok(self.history.range(start..))
    }

    /// Writes an object under the next version.
    pub(super) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object::map(&mut object, "metadata").insert("resourceVersion".to_owned(), self.version.to_string().into());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
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
        if key.plural == "services" {
            self.allocations.change(before.as_deref(), None);
        }
        let key = key.clone();
        self.record(Change { version: self.version, key, before, object: Arc::clone(&object), deleted: true });
        object
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

        let then = store.list_at(nodes, "", old).unwrap();
        assert_eq!(names(&then), ["a"]);
        assert_eq!(then[0].1["spec"], 1);
        assert_eq!(names(&store.list_at(nodes, "", store.version()).unwrap()), ["b"]);

        store.compact();
        assert!(store.list_at(nodes, "", old).is_err());
        assert!(store.after(store.version()).is_ok());
    }
}
