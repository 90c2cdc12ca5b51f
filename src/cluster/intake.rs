//! How objects that arrive from the API server get into a store: read, reduced, and dropped one by one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use tracing::warn;

use super::store::{Store, View};
use super::views::{self, Slice};
use crate::plan::inputs::{EndpointsView, ObjectKey};

/// Takes what a watch brings.
pub(super) trait Intake: Send + Sync {
    /// A list begins; what an unfinished one brought is forgotten.
    fn begin(&mut self);
    /// One object of the list.
    fn listed(&mut self, object: Value);
    /// Services with an address in the list that has arrived; `None` for a kind of which there is only one generation.
    fn with_addresses(&self) -> Option<BTreeSet<ObjectKey>> {
        None
    }
    /// The list is whole, and is used from now on.
    fn finish(&mut self);
    /// An object was added or changed.
    fn apply(&mut self, object: Value);
    /// An object is gone; this was its last state.
    fn delete(&mut self, object: &Value);
}

/// Reads an object; `None` if it does not concern us.
pub(super) type Read<V> = fn(Value) -> Result<Option<V>, serde_json::Error>;

/// One object makes one view.
pub(super) struct Single<V> {
    store: Arc<Store<V>>,
    read: Read<V>,
    listed: Vec<(ObjectKey, V)>,
    /// Listed but not readable. Such an object exists, so it must not count as deleted.
    unreadable: HashSet<ObjectKey>,
    /// Tells objects that have addresses, for a kind that has a successor.
    has_addresses: Option<fn(&Value) -> bool>,
    /// Those of the list.
    addressed: BTreeSet<ObjectKey>,
}

impl<V> Single<V> {
    pub(super) fn new(store: Arc<Store<V>>, read: Read<V>) -> Self {
        Self {
            store,
            read,
            listed: Vec::new(),
            unreadable: HashSet::new(),
            has_addresses: None,
            addressed: BTreeSet::new(),
        }
    }

    /// Also tells which objects have addresses that the successor of their kind must have as well.
    pub(super) fn telling(self, has_addresses: fn(&Value) -> bool) -> Self {
        Self { has_addresses: Some(has_addresses), ..self }
    }
}

impl<V: View> Intake for Single<V> {
    fn begin(&mut self) {
        self.listed.clear();
        self.unreadable.clear();
        self.addressed.clear();
    }

    fn listed(&mut self, object: Value) {
        let Some(key) = identified(&object) else { return };
        if self.has_addresses.is_some_and(|has_addresses| has_addresses(&object)) {
            self.addressed.insert(key.clone());
        }
        match (self.read)(object) {
            Ok(Some(view)) => self.listed.push((key, view)),
            Ok(None) => {}
            Err(error) => {
                unreadable(&key, &error);
                self.unreadable.insert(key);
            }
        }
    }

    fn with_addresses(&self) -> Option<BTreeSet<ObjectKey>> {
        self.has_addresses.map(|_| self.addressed.clone())
    }

    fn finish(&mut self) {
        self.store.reset(std::mem::take(&mut self.listed), &std::mem::take(&mut self.unreadable));
    }

    fn apply(&mut self, object: Value) {
        let Some(key) = identified(&object) else { return };
        match (self.read)(object) {
            Ok(Some(view)) => self.store.apply(key, view),
            Ok(None) => self.store.delete(&key),
            Err(error) => unreadable(&key, &error),
        }
    }

    fn delete(&mut self, object: &Value) {
        if let Some(key) = identified(object) {
            self.store.delete(&key);
        }
    }
}

/// Many slices make the endpoints of one Service.
pub(super) struct Slices {
    store: Arc<Store<EndpointsView>>,
    /// By name of the slice.
    slices: HashMap<ObjectKey, Slice>,
    /// By name of the Service, the names of its slices.
    by_service: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    listed: HashMap<ObjectKey, Option<Slice>>,
}

impl Slices {
    pub(super) fn new(store: Arc<Store<EndpointsView>>) -> Self {
        Self { store, slices: HashMap::new(), by_service: HashMap::new(), listed: HashMap::new() }
    }

    /// Takes a slice in or out, and updates the Services that it belongs or belonged to.
    fn replace(&mut self, name: &ObjectKey, slice: Option<Slice>) {
        let mut touched = BTreeSet::new();
        if let Some(old) = self.slices.remove(name) {
            if let Some(names) = self.by_service.get_mut(&old.service) {
                names.remove(name);
            }
            touched.insert(old.service);
        }
        if let Some(slice) = slice {
            touched.insert(slice.service.clone());
            self.by_service.entry(slice.service.clone()).or_default().insert(name.clone());
            self.slices.insert(name.clone(), slice);
        }
        for service in touched {
            if self.by_service.get(&service).is_some_and(|names| !names.is_empty()) {
                let view = self.united(&service);
                self.store.apply(service, view);
            } else {
                self.by_service.remove(&service);
                self.store.delete(&service);
            }
        }
    }

    fn united(&self, service: &ObjectKey) -> Arc<EndpointsView> {
        let names = self.by_service.get(service).into_iter().flatten();
        let mut slices = names.filter_map(|name| self.slices.get(name));
        match (slices.next(), slices.next()) {
            (Some(only), None) => only.view.clone(),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(slices);
                Arc::new(views::united(all.flat_map(|slice| slice.view.endpoints.iter().cloned()).collect()))
            }
        }
    }
}

impl Intake for Slices {
    fn begin(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: Value) {
        let Some(name) = identified(&object) else { return };
        let slice = views::slice(object).unwrap_or_else(|error| {
            unreadable(&name, &error);
            self.slices.get(&name).cloned()
        });
        self.listed.insert(name, slice);
    }

    fn with_addresses(&self) -> Option<BTreeSet<ObjectKey>> {
        let filled = self.listed.values().flatten().filter(|slice| !slice.view.endpoints.is_empty());
        Some(filled.map(|slice| slice.service.clone()).collect())
    }

    fn finish(&mut self) {
        self.slices.clear();
        self.by_service.clear();
        for (name, slice) in std::mem::take(&mut self.listed) {
            let Some(slice) = slice else { continue };
            self.by_service.entry(slice.service.clone()).or_default().insert(name.clone());
            self.slices.insert(name, slice);
        }
        let views = self.by_service.keys().map(|service| (service.clone(), self.united(service))).collect();
        self.store.reset(views, &HashSet::new());
    }

    fn apply(&mut self, object: Value) {
        let Some(name) = identified(&object) else { return };
        match views::slice(object) {
            Ok(slice) => self.replace(&name, slice),
            Err(error) => unreadable(&name, &error),
        }
    }

    fn delete(&mut self, object: &Value) {
        if let Some(name) = identified(object) {
            self.replace(&name, None);
        }
    }
}

fn identified(object: &Value) -> Option<ObjectKey> {
    let key = views::key(object);
    if key.is_none() {
        warn!("an object without a name arrived and is left out");
    }
    key
}

fn unreadable(key: &ObjectKey, error: &serde_json::Error) {
    warn!(%key, %error, "an object cannot be read; what was known of it before stays");
}
