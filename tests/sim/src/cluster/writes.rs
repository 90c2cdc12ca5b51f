//! Create, replace, patch and delete, with the rules that the real server keeps.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clock::rfc3339;
use super::defaults::{self, Rules};
use super::failure::{Failure, Problem};
use super::object;
use super::patch::Format;
use super::resources::{self, Resource};
use super::services::{self, Taken};
use super::storage::{Key, Store};
use super::validation;

/// Where a write goes, and under which circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) rules: Rules,
    pub(super) now: Timestamp,
    pub(super) resource: &'static Resource,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Whether the write goes to `/status`.
    pub(super) status: bool,
    /// Decide and answer, but store nothing.
    pub(super) dry_run: bool,
}

/// What a deletion answers with.
#[derive(Debug)]
pub(super) struct Deleted {
    pub(super) object: Arc<Value>,
    /// Whether it is gone; otherwise finalizers keep it.
    pub(super) gone: bool,
}

impl Target<'_> {
    fn key(&self) -> Key {
        Key::new(self.resource, self.namespace, self.name)
    }

    fn invalid(&self, problems: &[Problem]) -> Failure {
        Failure::invalid(self.resource, self.name, problems)
    }

    fn store(&self, store: &mut Store, object: Value) -> Arc<Value> {
        if self.dry_run {
            Arc::new(object)
        } else {
            store.put(Key::new(self.resource, self.namespace, object::name(&object)), object)
        }
    }
}

const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters as the server appends to `generateName`.
pub(super) fn name_suffix() -> String {
    let random = uuid::Uuid::new_v4();
    random.as_bytes().iter().take(5).map(|b| char::from(NAME_ALPHABET[usize::from(*b) % NAME_ALPHABET.len()])).collect()
}

pub(super) fn create(store: &mut Store, target: Target<'_>, mut new: Value) -> Result<Arc<Value>, Failure> {
    let resource = target.resource;
    check_shape(resource, &new)?;
    object::normalize(&mut new);
    let meta = object::map(&mut new, "metadata");
    if meta.contains_key("resourceVersion") && meta.get("resourceVersion") != Some(&json!("")) {
        return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let own_namespace = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if resource.namespaced {
        if !own_namespace.is_empty() && own_namespace != target.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta.insert("namespace".to_owned(), target.namespace.into());
    } else {
        meta.remove("namespace");
    }
    let given = meta.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let prefix = meta.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    if given.is_empty() && !prefix.is_empty() {
        meta.insert("name".to_owned(), format!("{prefix}{}", name_suffix()).into());
    }
    for assigned in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        meta.remove(assigned);
    }
    meta.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    meta.insert("creationTimestamp".to_owned(), rfc3339(target.now).into());
    if resource.generation {
        meta.insert("generation".to_owned(), 1.into());
    }
    let name = object::name(&new).to_owned();
    let target = Target { name: &name, ..target };
    if resource.namespaced {
        let namespaces = resources::named("Namespace").ok_or_else(Failure::no_such_path)?;
        if store.get(&Key::new(namespaces, "", target.namespace)).is_none() {
            return Err(Failure::not_found(namespaces, target.namespace));
        }
    }
    if store.get(&target.key()).is_some() {
        return Err(Failure::already_exists(resource, &name));
    }
    if resource.status && !resource.status_on_create {
        object::map(&mut new, "status").clear();
    }
    let mut problems = fill(store, target, &mut new, None);
    problems.extend(validation::check(resource, target.rules, &new, None));
    if !problems.is_empty() {
        return Err(target.invalid(&problems));
    }
    Ok(target.store(store, new))
}

fn fill(store: &Store, target: Target<'_>, new: &mut Value, old: Option<&Value>) -> Vec<Problem> {
    if target.resource.kind != "Service" {
        defaults::fill(target.resource, target.rules.version, new);
        return Vec::new();
    }
    let mut taken = Taken::by_others(store.allocations(), old);
    let problems = services::fill_service(target.rules, new, old, &mut taken);
    services::fill_service_status(target.rules, new);
    problems
}

/// The object after a PUT, and whether the PUT created it.
pub(super) fn replace(store: &mut Store, target: Target<'_>, mut new: Value) -> Result<(Arc<Value>, bool), Failure> {
    let resource = target.resource;
    check_shape(resource, &new)?;
    let own_name = object::name(&new);
    if own_name != target.name {
        let message =
            format!("the name of the object ({own_name}) does not match the name on the URL ({})", target.name);
        return Err(Failure::bad_request(message));
    }
    let Some(old) = store.get(&target.key()).cloned() else {
        if !resource.create_on_update || target.status {
            return Err(Failure::not_found(resource, target.name));
        }
        // Who has read one that was deleted since names its uid. The version does not count.
        let uid = object::text(&new, "/metadata/uid");
        if !uid.is_empty() {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(Failure::conflict(resource, target.name, why));
        }
        object::map(&mut new, "metadata").remove("resourceVersion");
        return Ok((create(store, target, new)?, true));
    };
    if object::version(&new) == 0 && !resource.unconditional_update {
        let why = "must be specified for an update";
        return Err(target.invalid(&[Problem::invalid("metadata.resourceVersion", 0, why)]));
    }
    Ok((update(store, target, &old, new)?, false))
}

/// The object after a PATCH, and whether server-side apply created it.
pub(super) fn patch(
    store: &mut Store,
    target: Target<'_>,
    format: Format,
    changes: &Value,
) -> Result<(Arc<Value>, bool), Failure> {
    let Some(old) = store.get(&target.key()).cloned() else {
        if format == Format::Apply && !target.status {
            let mut new = changes.clone();
            object::map(&mut new, "metadata").insert("name".to_owned(), target.name.into());
            return Ok((create(store, target, new)?, true));
        }
        return Err(Failure::not_found(target.resource, target.name));
    };
    let patched = format.apply(target.resource, &old, changes)?;
    check_shape(target.resource, &patched)?;
    if object::name(&patched) != target.name {
        let why = format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object::name(&patched),
            target.name
        );
        return Err(Failure::bad_request(why));
    }
    Ok((update(store, target, &old, patched)?, false))
}

/// Fields of the metadata that only the server writes.
const ASSIGNED: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "generateName",
];

fn update(store: &mut Store, target: Target<'_>, old: &Arc<Value>, mut new: Value) -> Result<Arc<Value>, Failure> {
    let resource = target.resource;
    object::normalize(&mut new);
    let version = object::text(&new, "/metadata/resourceVersion");
    if !version.is_empty() && version.parse::<u64>().is_err() {
        let why = "strconv.ParseUint: invalid syntax";
        return Err(target.invalid(&[Problem::invalid("metadata.resourceVersion", version, why)]));
    }
    if !matches!(object::version(&new), 0) && object::version(&new) != object::version(old) {
        return Err(Failure::modified(resource, target.name));
    }
    let (uid, old_uid) = (object::text(&new, "/metadata/uid"), object::text(old, "/metadata/uid"));
    if !uid.is_empty() && uid != old_uid {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}");
        return Err(Failure::conflict(resource, target.name, why));
    }
    keep_assigned(&mut new, old);
    if resource.status {
        // `/status` keeps the specification and the main resource keeps the status. Labels and annotations
        // may change through both.
        let kept = if target.status { "spec" } else { "status" };
        if let Some(fields) = new.as_object_mut() {
            match old.get(kept) {
                Some(value) => fields.insert(kept.to_owned(), value.clone()),
                None => fields.remove(kept),
            };
        }
    }
    let mut problems = if target.status {
        if resource.kind == "Service" {
            services::fill_service_status(target.rules, &mut new);
        }
        Vec::new()
    } else {
        fill(store, target, &mut new, Some(old))
    };
    problems.extend(validation::check(resource, target.rules, &new, Some(old)));
    if !problems.is_empty() {
        return Err(target.invalid(&problems));
    }
    if resource.generation && without_metadata(&new) != without_metadata(old) {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0) + 1;
        object::map(&mut new, "metadata").insert("generation".to_owned(), generation.into());
    }
    if new == **old {
        return Ok(Arc::clone(old));
    }
    let deleting = !object::text(&new, "/metadata/deletionTimestamp").is_empty();
    if deleting && object::items(&new, "/metadata/finalizers").is_empty() && !target.dry_run {
        return Ok(store.remove(&target.key(), new));
    }
    Ok(target.store(store, new))
}

fn keep_assigned(new: &mut Value, old: &Value) {
    let old_meta = old.get("metadata").and_then(Value::as_object);
    let meta = object::map(new, "metadata");
    meta.remove("selfLink");
    for field in ASSIGNED.iter().chain(&["resourceVersion"]) {
        match old_meta.and_then(|old| old.get(*field)) {
            Some(value) => meta.insert((*field).to_owned(), value.clone()),
            None => meta.remove(*field),
        };
    }
}

fn without_metadata(object: &Value) -> Map<String, Value> {
    let mut fields = object.as_object().cloned().unwrap_or_default();
    fields.remove("metadata");
    fields
}

/// What decoding into the server's types would refuse.
fn check_shape(resource: &Resource, value: &Value) -> Result<(), Failure> {
    let wrong = |what: &str, field: &str, wanted: &str| {
        let message = format!(
            "{} in version \"v1\" cannot be handled as a {}: json: cannot unmarshal {what} into Go struct field {field} of type {wanted}",
            resource.kind, resource.kind
        );
        Err(Failure::bad_request(message))
    };
    if !value.is_object() {
        return wrong("value", resource.kind, "object");
    }
    if value.get("metadata").is_some_and(|meta| !meta.is_object() && !meta.is_null()) {
        return wrong("value", "ObjectMeta.metadata", "v1.ObjectMeta");
    }
    for map in ["labels", "annotations"] {
        let entries = value.pointer(&format!("/metadata/{map}"));
        if entries.is_some_and(|entries| !entries.is_object() && !entries.is_null()) {
            return wrong("value", &format!("ObjectMeta.metadata.{map}"), "map[string]string");
        }
        if entries.and_then(Value::as_object).is_some_and(|map| map.values().any(|v| !v.is_string() && !v.is_null())) {
            return wrong("number", &format!("ObjectMeta.metadata.{map}"), "string");
        }
    }
    for port in object::items(value, "/spec/ports").iter().filter(|_| resource.kind == "Service") {
        for field in ["port", "nodePort"] {
            if port.get(field).is_some_and(|number| !number.is_i64() && !number.is_null()) {
                return wrong("string", &format!("ServicePort.spec.ports.{field}"), "int32");
            }
        }
    }
    for list in ["/spec/taints", "/spec/ports", "/status/conditions", "/status/addresses", "/metadata/finalizers"] {
        if value.pointer(list).is_some_and(|list| !list.is_array() && !list.is_null()) {
            return wrong("object", &list.replace('/', "."), "slice");
        }
    }
    Ok(())
}

/// Deletes an object, or marks it while finalizers keep it. `options` is a `DeleteOptions`.
pub(super) fn delete(store: &mut Store, target: Target<'_>, options: &Value) -> Result<Deleted, Failure> {
    let resource = target.resource;
    let key = target.key();
    let old = store.get(&key).cloned().ok_or_else(|| Failure::not_found(resource, target.name))?;
    for (field, given, actual) in [
        ("UID", object::text(options, "/preconditions/uid"), object::text(&old, "/metadata/uid")),
        (
            "ResourceVersion",
            object::text(options, "/preconditions/resourceVersion"),
            object::text(&old, "/metadata/resourceVersion"),
        ),
    ] {
        if !given.is_empty() && given != actual {
            let why =
                format!("Precondition failed: {field} in precondition: {given}, {field} in object meta: {actual}");
            return Err(Failure::conflict(resource, target.name, why));
        }
    }
    if object::items(&old, "/metadata/finalizers").is_empty() {
        let object = if target.dry_run { old } else { remove(store, &key, &old, target.now) };
        return Ok(Deleted { object, gone: true });
    }
    if !object::text(&old, "/metadata/deletionTimestamp").is_empty() {
        return Ok(Deleted { object: old, gone: false });
    }
    let mut marked = Value::clone(&old);
    let meta = object::map(&mut marked, "metadata");
    meta.insert("deletionTimestamp".to_owned(), rfc3339(target.now).into());
    meta.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    if resource.generation {
        let generation = meta.get("generation").and_then(Value::as_u64).unwrap_or(0) + 1;
        meta.insert("generation".to_owned(), generation.into());
    }
    Ok(Deleted { object: target.store(store, marked), gone: false })
}

fn remove(store: &mut Store, key: &Key, old: &Arc<Value>, now: Timestamp) -> Arc<Value> {
    if key.plural == "namespaces" {
        let inside: Vec<(Key, Arc<Value>)> = resources::RESOURCES
            .iter()
            .filter(|resource| resource.namespaced)
            .flat_map(|resource| store.list(resource, &key.name).map(|(key, object)| (key.clone(), Arc::clone(object))))
            .collect();
        for (key, object) in inside {
            store.remove(&key, Value::clone(&object));
        }
    }
    let removed = store.remove(key, Value::clone(old));
    collect_garbage(store, object::text(old, "/metadata/uid"), now);
    removed
}

/// Deletes what the deleted object owned, as the garbage collector of kube-controller-manager does a little later.
fn collect_garbage(store: &mut Store, owner: &str, now: Timestamp) {
    for (key, object) in store.owned_by(owner) {
        let owners = object::items(&object, "/metadata/ownerReferences");
        let is_alone = owners.iter().all(|one| object::text(one, "/uid") == owner);
        if is_alone && object::items(&object, "/metadata/finalizers").is_empty() {
            remove(store, &key, &object, now);
        }
    }
}
