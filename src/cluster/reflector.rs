//! How objects that arrive from the API server get into a store: decoded, reduced, and dropped one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use litemap::LiteMap;
use serde_json::Value;
use tracing::warn;

use super::decode;
use super::requests::segment;
use super::store::{Store, StoredView};
use crate::plan::inputs::{EndpointsView, ObjectKey, ServiceView};

/// Takes what a list and its watch bring.
pub(super) trait Reflector: Send + Sync {
    /// A list starts; what an unfinished one brought does not count.
    fn start_list(&mut self);
    /// One object of the list.
    fn listed(&mut self, object: Value);
    /// Takes the Services with an address in the list that has arrived; `None` for a kind that only one API offers.
    fn take_services_with_addresses(&mut self) -> Option<BTreeSet<ObjectKey>> {
        None
    }
    /// The list is whole, and replaces what was known.
    fn finish_list(&mut self);
    /// An object was added or changed.
    fn apply(&mut self, object: Value);
    /// An object was deleted; this was its last state.
    fn delete(&mut self, object: &Value);
    /// These Services changed, on which it depends what is kept; gives what has to be read, because it was skipped so far.
    fn rescope(&mut self, _: &BTreeSet<ObjectKey>) -> Vec<SkippedEndpoints> {
        Vec::new()
    }
    /// What was skipped has been read.
    fn found(&mut self, _: &SkippedEndpoints, _: Vec<Value>) {}
}

/// Decodes an object; `None` if it is not to be kept.
pub(super) type Decode<V> = fn(Value) -> Result<Option<V>, serde_json::Error>;

/// Whether the endpoints of a Service are to be kept.
pub(super) type Concerns = fn(&ServiceView) -> bool;

/// Keeps one view of each object.
pub(super) struct ObjectReflector<V> {
    store: Arc<Store<V>>,
    decode: Decode<V>,
    listed: Vec<(ObjectKey, Arc<V>)>,
    /// Listed, and never decoded. Such an object exists, so it must not count as absent.
    undecoded: HashSet<ObjectKey>,
}

impl<V> ObjectReflector<V> {
    pub(super) fn new(store: Arc<Store<V>>, decode: Decode<V>) -> Self {
        Self { store, decode, listed: Vec::new(), undecoded: HashSet::new() }
    }
}

impl<V: StoredView> Reflector for ObjectReflector<V> {
    fn start_list(&mut self) {
        self.listed.clear();
        self.undecoded.clear();
    }

    fn listed(&mut self, object: Value) {
        let Some(key) = key_of(&object) else { return };
        match (self.decode)(object) {
            Ok(Some(view)) => self.listed.push((key, view.into())),
            Ok(None) => {}
            Err(error) => {
                warn_undecoded(&key, &error);
                match self.store.get(&key) {
                    Some(before) => self.listed.push((key, before)),
                    None => drop(self.undecoded.insert(key)),
                }
            }
        }
    }

    fn finish_list(&mut self) {
        self.store.reset(std::mem::take(&mut self.listed), std::mem::take(&mut self.undecoded));
    }

    fn apply(&mut self, object: Value) {
        let Some(key) = key_of(&object) else { return };
        match (self.decode)(object) {
            Ok(Some(view)) => self.store.apply(key, view),
            Ok(None) => self.store.delete(&key),
            Err(error) => {
                warn_undecoded(&key, &error);
                if self.store.get(&key).is_none() {
                    self.store.skip(key);
                }
            }
        }
    }

    fn delete(&mut self, object: &Value) {
        if let Some(key) = key_of(object) {
            self.store.delete(&key);
        }
    }
}

/// How objects of one API say what the endpoints of Services are.
#[derive(Clone, Copy)]
pub(super) struct EndpointsFormat {
    /// The Service that an object belongs to, if any.
    owner: fn(&Value) -> Option<ObjectKey>,
    /// Whether it has addresses that objects of the other format have as well.
    has_addresses: fn(&Value) -> bool,
    decode: fn(Value) -> Result<EndpointsView, serde_json::Error>,
    /// Query that selects the objects of Services of one namespace.
    select: fn(&[&str]) -> String,
    /// How many Services one such query can have.
    select_at_most: usize,
}

/// EndpointSlices: each has some of the endpoints of a Service.
pub(super) const SLICES: EndpointsFormat = EndpointsFormat {
    owner: decode::slice_owner,
    has_addresses: decode::slice_has_addresses,
    decode: decode::slice,
    select: |services| {
        format!("labelSelector={}", segment(&format!("{} in ({})", decode::SERVICE_LABEL, services.join(","))))
    },
    select_at_most: 50,
};

/// Endpoints: each has all endpoints of the Service that has its name.
pub(super) const ENDPOINTS: EndpointsFormat = EndpointsFormat {
    owner: decode::key,
    has_addresses: decode::endpoints_have_mirrored_addresses,
    decode: decode::endpoints,
    select: |services| format!("fieldSelector={}", segment(&format!("metadata.name={}", services.concat()))),
    select_at_most: 1,
};

/// Objects that were skipped, and are needed now.
pub(super) struct SkippedEndpoints {
    namespace: String,
    query: String,
    services: Vec<ObjectKey>,
}

impl SkippedEndpoints {
    /// Path and query that list them, out of the collection of all at `path`.
    pub(super) fn list_at(&self, path: &str) -> (String, String) {
        let (folder, plural) = path.rsplit_once('/').unwrap_or_default();
        (format!("{folder}/namespaces/{}/{plural}", segment(&self.namespace)), format!("{}&", self.query))
    }
}

/// Keeps the endpoints of the Services that concern us, of each Service from one object or several.
///
/// Most endpoints of a cluster are of Services that are no load balancers. Of these only the names of the objects are kept,
/// so that it is known what has to be read when a Service becomes one.
pub(super) struct EndpointsReflector {
    store: Arc<Store<EndpointsView>>,
    services: Arc<Store<ServiceView>>,
    /// Which of them have their endpoints kept.
    concerns: Concerns,
    format: EndpointsFormat,
    known: EndpointsByService,
    listed: EndpointsByService,
    /// Services with addresses in the list, until they are taken.
    addressed: BTreeSet<ObjectKey>,
}

/// Objects by Service: of each Service all are kept, or none.
#[derive(Default)]
struct EndpointsByService {
    /// What each object says, by its name. Shared with the store where a Service has only one.
    kept: HashMap<ObjectKey, LiteMap<Arc<str>, Arc<EndpointsView>>>,
    /// By name of an object that is kept, its Service.
    owners: HashMap<ObjectKey, ObjectKey>,
    /// Names of the objects that were skipped.
    skipped: HashMap<ObjectKey, Vec<Box<str>>>,
}

impl EndpointsByService {
    fn keep(&mut self, service: &ObjectKey, name: ObjectKey, view: Arc<EndpointsView>) {
        self.kept.entry(service.clone()).or_default().insert(name.name.clone(), view);
        self.owners.insert(name, service.clone());
    }

    /// Skips an object, and with it all of its Service.
    fn skip(&mut self, service: &ObjectKey, name: &str) {
        self.skip_all(service);
        // Most Services have one object, and most of them are skipped.
        let names = self.skipped.entry(service.clone()).or_insert_with(|| Vec::with_capacity(1));
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }

    fn skip_all(&mut self, service: &ObjectKey) {
        let Some(objects) = self.kept.remove(service) else { return };
        let names = self.skipped.entry(service.clone()).or_default();
        for (name, _) in objects {
            names.push((*name).into());
            self.owners.remove(&ObjectKey::new(&service.namespace, name));
        }
    }

    /// Takes away an object that was kept; gives its Service.
    fn remove(&mut self, name: &ObjectKey) -> Option<ObjectKey> {
        let service = self.owners.remove(name)?;
        if let Some(objects) = self.kept.get_mut(&service) {
            objects.remove(&name.name);
            if objects.is_empty() {
                self.kept.remove(&service);
            }
        }
        Some(service)
    }

    /// All endpoints of a Service.
    fn merged(&self, service: &ObjectKey) -> Option<Arc<EndpointsView>> {
        let objects = self.kept.get(service)?;
        match objects.values().next() {
            Some(only) if objects.len() == 1 => Some(only.clone()),
            _ => {
                let all = objects.values().flat_map(|object| object.endpoints.iter().cloned());
                let unknown = objects.values().any(|object| object.unknown);
                Some(Arc::new(EndpointsView { unknown, ..decode::merge(all.collect()) }))
            }
        }
    }
}

impl EndpointsReflector {
    pub(super) fn new(
        store: Arc<Store<EndpointsView>>,
        (services, concerns): (Arc<Store<ServiceView>>, Concerns),
        format: EndpointsFormat,
    ) -> Self {
        let (known, listed) = (EndpointsByService::default(), EndpointsByService::default());
        Self { store, services, concerns, format, known, listed, addressed: BTreeSet::new() }
    }

    fn concerns_us(&self, service: &ObjectKey) -> bool {
        self.services.get(service).is_some_and(|service| (self.concerns)(&service))
    }

    /// Keeps or skips an object, in the list that arrives or in what is known. One that cannot be decoded says what it said
    /// before, or that the endpoints are unknown.
    fn put(&mut self, is_listed: bool, service: &ObjectKey, name: ObjectKey, object: Value) {
        let decoded = self.concerns_us(service).then(|| (self.format.decode)(object));
        let before = self.known.kept.get(service).and_then(|objects| objects.get(&name.name)).cloned();
        let target = if is_listed { &mut self.listed } else { &mut self.known };
        match decoded {
            Some(decoded) if !target.skipped.contains_key(service) => {
                let view = decoded.map(Arc::new).unwrap_or_else(|error| {
                    warn_undecoded(&name, &error);
                    before.unwrap_or_else(|| Arc::new(EndpointsView { unknown: true, ..EndpointsView::default() }))
                });
                target.keep(service, name, view);
            }
            _ => target.skip(service, &name.name),
        }
    }

    /// Puts what is known of a Service into the store.
    fn show(&self, service: ObjectKey) {
        match self.known.merged(&service) {
            Some(view) => self.store.apply(service, view),
            None if self.known.skipped.contains_key(&service) => self.store.skip(service),
            None => self.store.delete(&service),
        }
    }
}

impl Reflector for EndpointsReflector {
    fn start_list(&mut self) {
        self.listed = EndpointsByService::default();
        self.addressed.clear();
    }

    fn listed(&mut self, object: Value) {
        let (Some(name), Some(service)) = (key_of(&object), (self.format.owner)(&object)) else { return };
        if (self.format.has_addresses)(&object) {
            self.addressed.insert(service.clone());
        }
        self.put(true, &service, name, object);
    }

    fn take_services_with_addresses(&mut self) -> Option<BTreeSet<ObjectKey>> {
        Some(std::mem::take(&mut self.addressed))
    }

    fn finish_list(&mut self) {
        self.known = std::mem::take(&mut self.listed);
        let views = self.known.kept.keys().filter_map(|service| Some((service.clone(), self.known.merged(service)?)));
        self.store.reset(views.collect(), self.known.skipped.keys().cloned().collect());
    }

    fn apply(&mut self, object: Value) {
        let Some(name) = key_of(&object) else { return };
        let service = (self.format.owner)(&object);
        let moved = self.known.owners.get(&name).is_some_and(|before| service.as_ref() != Some(before));
        if moved && let Some(before) = self.known.remove(&name) {
            self.show(before);
        }
        let Some(service) = service else { return };
        let was_skipped = self.known.skipped.contains_key(&service);
        self.put(false, &service, name, object);
        if !was_skipped {
            self.show(service);
        }
    }

    fn delete(&mut self, object: &Value) {
        let Some(name) = key_of(object) else { return };
        if let Some(service) = self.known.remove(&name) {
            return self.show(service);
        }
        let Some(service) = (self.format.owner)(object) else { return };
        let Some(names) = self.known.skipped.get_mut(&service) else { return };
        names.retain(|known| **known != *name.name);
        if names.is_empty() {
            self.known.skipped.remove(&service);
            self.show(service);
        }
    }

    fn rescope(&mut self, services: &BTreeSet<ObjectKey>) -> Vec<SkippedEndpoints> {
        let mut needed: BTreeMap<&str, Vec<&ObjectKey>> = BTreeMap::new();
        for service in services {
            if self.concerns_us(service) {
                if self.known.skipped.contains_key(service) {
                    needed.entry(&service.namespace).or_default().push(service);
                }
            } else if self.known.kept.contains_key(service) {
                self.known.skip_all(service);
                self.show(service.clone());
            }
        }
        let mut skipped = Vec::new();
        for (namespace, services) in needed {
            for services in services.chunks(self.format.select_at_most) {
                let names: Vec<&str> = services.iter().map(|service| &*service.name).collect();
                skipped.push(SkippedEndpoints {
                    namespace: namespace.to_owned(),
                    query: (self.format.select)(&names),
                    services: services.iter().copied().cloned().collect(),
                });
            }
        }
        skipped
    }

    fn found(&mut self, skipped: &SkippedEndpoints, objects: Vec<Value>) {
        for service in &skipped.services {
            self.known.skipped.remove(service);
        }
        for object in objects {
            let (Some(name), Some(service)) = (key_of(&object), (self.format.owner)(&object)) else { continue };
            if skipped.services.contains(&service) {
                self.put(false, &service, name, object);
            }
        }
        skipped.services.iter().for_each(|service| self.show(service.clone()));
    }
}

fn key_of(object: &Value) -> Option<ObjectKey> {
    let key = decode::key(object);
    if key.is_none() {
        warn!(code = "ACCM0727", "an object without a name arrived and is ignored");
    }
    key
}

fn warn_undecoded(key: &ObjectKey, error: &serde_json::Error) {
    warn!(code = "ACCM0727", %key, %error, "an object cannot be decoded; its previous state stays, and nothing is removed for it");
}
