//! How objects that arrive from the API server get into a store: read, reduced, and dropped one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use tracing::warn;

use super::requests::segment;
use super::store::{Store, View};
use super::views;
use crate::plan::inputs::{EndpointsView, ObjectKey, ServiceView};

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
    /// These Services came or went, on which it depends what is kept; gives what has to be read, because it was left out so
    /// far.
    fn rescope(&mut self, _: &BTreeSet<ObjectKey>) -> Vec<Missing> {
        Vec::new()
    }
    /// What was missing has been read.
    fn found(&mut self, _: &Missing, _: Vec<Value>) {}
}

/// Objects that were left out, and are needed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    namespace: String,
    /// Parameter and value that select them.
    selector: (&'static str, String),
    services: Vec<ObjectKey>,
}

impl Missing {
    /// How to list them, out of the collection of all at `path`.
    pub(super) fn uri(&self, path: &str) -> String {
        let (folder, plural) = path.rsplit_once('/').unwrap_or_default();
        let (parameter, selector) = &self.selector;
        format!("{folder}/namespaces/{}/{plural}?{parameter}={}", segment(&self.namespace), segment(selector))
    }
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
}

impl<V> Single<V> {
    pub(super) fn new(store: Arc<Store<V>>, read: Read<V>) -> Self {
        Self { store, read, listed: Vec::new(), unreadable: HashSet::new() }
    }
}

impl<V: View> Intake for Single<V> {
    fn begin(&mut self) {
        self.listed.clear();
        self.unreadable.clear();
    }

    fn listed(&mut self, object: Value) {
        let Some(key) = identified(&object) else { return };
        match (self.read)(object) {
            Ok(Some(view)) => self.listed.push((key, view)),
            Ok(None) => {}
            Err(error) => {
                unreadable(&key, &error);
                self.unreadable.insert(key);
            }
        }
    }

    fn finish(&mut self) {
        let (listed, unreadable) = (std::mem::take(&mut self.listed), std::mem::take(&mut self.unreadable));
        self.store.reset(listed, &unreadable, HashSet::new());
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

/// How objects say what the endpoints of Services are.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The Service that an object belongs to, if any.
    pub(super) owner: fn(&Value) -> Option<ObjectKey>,
    /// Whether it has addresses that objects of the other generation have as well.
    pub(super) is_filled: fn(&Value) -> bool,
    pub(super) read: fn(Value) -> Result<EndpointsView, serde_json::Error>,
    /// Parameter and value that select the objects of Services of one namespace, out of all that are there.
    pub(super) select: fn(&[&str]) -> (&'static str, String),
    /// How many Services one such selection can have.
    pub(super) select_at_most: usize,
}

/// EndpointSlices: each has some of the endpoints of a Service.
pub(super) const SLICES: Shape = Shape {
    owner: views::slice_owner,
    is_filled: views::is_slice_filled,
    read: views::slice,
    select: |services| ("labelSelector", format!("{} in ({})", views::SERVICE_LABEL, services.join(","))),
    select_at_most: 50,
};

/// Endpoints: each has all of the Service that has its name.
pub(super) const WHOLE: Shape = Shape {
    owner: views::key,
    is_filled: views::become_slices,
    read: views::endpoints,
    select: |services| ("fieldSelector", format!("metadata.name={}", services.concat())),
    select_at_most: 1,
};

/// Endpoints of the Services that concern us, of each from one object or several.
///
/// Most endpoints of a cluster are of Services that are no load balancers. Of these only the names of the objects are kept,
/// so that it is known what has to be read when a Service becomes one.
pub(super) struct ByService {
    store: Arc<Store<EndpointsView>>,
    services: Arc<Store<ServiceView>>,
    shape: Shape,
    known: Objects,
    listed: Objects,
    /// Services with addresses in the list.
    addressed: BTreeSet<ObjectKey>,
}

/// Objects by Service: of each Service all are kept, or none.
#[derive(Default)]
struct Objects {
    /// What each object says, by its name. Shared with the store where a Service has only one.
    kept: HashMap<ObjectKey, BTreeMap<String, Arc<EndpointsView>>>,
    /// By name of an object that is kept, its Service.
    owners: HashMap<ObjectKey, ObjectKey>,
    /// Names of the objects that were left out.
    left_out: HashMap<ObjectKey, Vec<Box<str>>>,
}

/// What becomes of an object.
enum Fate {
    Keep(Arc<EndpointsView>),
    /// With all others of its Service.
    LeaveOut,
    /// Nothing is known of it.
    Ignore,
}

impl Objects {
    fn put(&mut self, service: &ObjectKey, name: ObjectKey, fate: Fate) {
        match fate {
            Fate::Keep(view) => {
                self.kept.entry(service.clone()).or_default().insert(name.name.clone(), view);
                self.owners.insert(name, service.clone());
            }
            Fate::LeaveOut => self.leave_out(service, &name.name),
            Fate::Ignore => {}
        }
    }

    /// Leaves out an object, and with it all of its Service.
    fn leave_out(&mut self, service: &ObjectKey, name: &str) {
        self.leave_out_all(service);
        let names = self.left_out.entry(service.clone()).or_default();
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }

    fn leave_out_all(&mut self, service: &ObjectKey) {
        let Some(parts) = self.kept.remove(service) else { return };
        let names = self.left_out.entry(service.clone()).or_default();
        for name in parts.into_keys() {
            names.push(name.as_str().into());
            self.owners.remove(&ObjectKey::new(&service.namespace, name));
        }
    }

    /// Takes away an object that was kept; gives its Service.
    fn take(&mut self, name: &ObjectKey) -> Option<ObjectKey> {
        let service = self.owners.remove(name)?;
        if let Some(parts) = self.kept.get_mut(&service) {
            parts.remove(&name.name);
            if parts.is_empty() {
                self.kept.remove(&service);
            }
        }
        Some(service)
    }

    fn united(&self, service: &ObjectKey) -> Option<Arc<EndpointsView>> {
        let mut parts = self.kept.get(service)?.values();
        match (parts.next(), parts.next()) {
            (Some(only), None) => Some(only.clone()),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(parts);
                Some(Arc::new(views::united(all.flat_map(|part| part.endpoints.iter().cloned()).collect())))
            }
        }
    }
}

impl ByService {
    pub(super) fn new(store: Arc<Store<EndpointsView>>, services: Arc<Store<ServiceView>>, shape: Shape) -> Self {
        let (known, listed) = (Objects::default(), Objects::default());
        Self { store, services, shape, known, listed, addressed: BTreeSet::new() }
    }

    fn concerns_us(&self, service: &ObjectKey) -> bool {
        self.services.get(service).is_some()
    }

    /// What becomes of an object whose Service has others that are `left_out` already or not. One that cannot be read says
    /// what it said before.
    fn fate(&self, left_out: bool, service: &ObjectKey, name: &ObjectKey, object: Value) -> Fate {
        if left_out || !self.concerns_us(service) {
            return Fate::LeaveOut;
        }
        match (self.shape.read)(object) {
            Ok(view) => Fate::Keep(Arc::new(view)),
            Err(error) => {
                unreadable(name, &error);
                let before = self.known.kept.get(service).and_then(|parts| parts.get(&name.name));
                before.map_or(Fate::Ignore, |view| Fate::Keep(view.clone()))
            }
        }
    }

    /// Shows readers what is known of a Service now.
    fn show(&self, service: ObjectKey) {
        match self.known.united(&service) {
            Some(view) => self.store.apply(service, view),
            None if self.known.left_out.contains_key(&service) => self.store.leave_out(service),
            None => self.store.delete(&service),
        }
    }
}

impl Intake for ByService {
    fn begin(&mut self) {
        self.listed = Objects::default();
        self.addressed.clear();
    }

    fn listed(&mut self, object: Value) {
        let (Some(name), Some(service)) = (identified(&object), (self.shape.owner)(&object)) else { return };
        if (self.shape.is_filled)(&object) {
            self.addressed.insert(service.clone());
        }
        let fate = self.fate(self.listed.left_out.contains_key(&service), &service, &name, object);
        self.listed.put(&service, name, fate);
    }

    fn with_addresses(&self) -> Option<BTreeSet<ObjectKey>> {
        Some(self.addressed.clone())
    }

    fn finish(&mut self) {
        self.known = std::mem::take(&mut self.listed);
        let views = self.known.kept.keys().filter_map(|service| Some((service.clone(), self.known.united(service)?)));
        let left_out = self.known.left_out.keys().cloned().collect();
        self.store.reset(views.collect(), &HashSet::new(), left_out);
    }

    fn apply(&mut self, object: Value) {
        let Some(name) = identified(&object) else { return };
        let service = (self.shape.owner)(&object);
        let moved = self.known.owners.get(&name).is_some_and(|before| service.as_ref() != Some(before));
        if moved && let Some(before) = self.known.take(&name) {
            self.show(before);
        }
        let Some(service) = service else { return };
        let left_out = self.known.left_out.contains_key(&service);
        let fate = self.fate(left_out, &service, &name, object);
        self.known.put(&service, name, fate);
        if !left_out {
            self.show(service);
        }
    }

    fn delete(&mut self, object: &Value) {
        let Some(name) = identified(object) else { return };
        if let Some(service) = self.known.take(&name) {
            return self.show(service);
        }
        let Some(service) = (self.shape.owner)(object) else { return };
        let Some(names) = self.known.left_out.get_mut(&service) else { return };
        names.retain(|known| **known != *name.name);
        if names.is_empty() {
            self.known.left_out.remove(&service);
            self.show(service);
        }
    }

    fn rescope(&mut self, services: &BTreeSet<ObjectKey>) -> Vec<Missing> {
        let mut missing: BTreeMap<&str, Vec<&ObjectKey>> = BTreeMap::new();
        for service in services {
            if self.concerns_us(service) {
                if self.known.left_out.contains_key(service) {
                    missing.entry(&service.namespace).or_default().push(service);
                }
            } else if self.known.kept.contains_key(service) {
                self.known.leave_out_all(service);
                self.show(service.clone());
            }
        }
        let select = |(namespace, services): (&str, &[&ObjectKey])| {
            let names: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
            Missing {
                namespace: namespace.to_owned(),
                selector: (self.shape.select)(&names),
                services: services.iter().copied().cloned().collect(),
            }
        };
        let chunks = missing.iter().flat_map(|(namespace, services)| {
            services.chunks(self.shape.select_at_most).map(move |chunk| (*namespace, chunk))
        });
        chunks.map(select).collect()
    }

    fn found(&mut self, missing: &Missing, objects: Vec<Value>) {
        for service in &missing.services {
            self.known.left_out.remove(service);
        }
        for object in objects {
            let (Some(name), Some(service)) = (identified(&object), (self.shape.owner)(&object)) else { continue };
            if !missing.services.contains(&service) {
                continue;
            }
            let fate = self.fate(self.known.left_out.contains_key(&service), &service, &name, object);
            self.known.put(&service, name, fate);
        }
        missing.services.iter().for_each(|service| self.show(service.clone()));
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
