//! The patch formats: JSON merge patch, JSON patch and strategic merge patch.

use serde_json::{Map, Value};

use super::failure::Failure;
use super::resources::Resource;

/// A patch format, by its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Merge,
    Json,
    Strategic,
    /// Server-side apply. Fields are merged like a strategic patch; nobody's ownership of fields is tracked.
    Apply,
}

impl Format {
    pub(super) fn from_media_type(media_type: &str) -> Option<Format> {
        match media_type {
            "application/merge-patch+json" => Some(Format::Merge),
            "application/json-patch+json" => Some(Format::Json),
            "application/strategic-merge-patch+json" => Some(Format::Strategic),
            "application/apply-patch+yaml" => Some(Format::Apply),
            _ => None,
        }
    }

    /// The object after the patch.
    pub(super) fn apply(self, resource: &Resource, object: &Value, patch: &Value) -> Result<Value, Failure> {
        let mut patched = object.clone();
        match self {
            Format::Merge => json_patch::merge(&mut patched, patch),
            Format::Json => {
                let operations: json_patch::Patch = serde_json::from_value(patch.clone())
                    .map_err(|why| Failure::bad_request(format!("error decoding patch: {why}")))?;
                json_patch::patch(&mut patched, &operations).map_err(|why| {
                    let message = format!("the server rejected our request due to an error in our request: {why}");
                    Failure::new(422, "Invalid", message)
                })?;
            }
            Format::Strategic | Format::Apply => {
                let (Value::Object(fields), Value::Object(changes)) = (&mut patched, patch) else {
                    return Err(Failure::bad_request("error decoding patch: the patch must be an object"));
                };
                merge_fields(resource, &mut Vec::new(), fields, changes)?;
            }
        }
        Ok(patched)
    }
}

/// How a list is patched.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ListKind {
    Atomic,
    /// Elements are objects that this field tells apart.
    Keyed(&'static str),
    /// Elements are plain values, merged as a set.
    Set,
}

/// Lists that are merged, by kind and path; every other list is replaced as a whole.
///
/// `*` as the kind means every kind. Elements of lists do not show in the path.
const MERGED_LISTS: &[(&str, &str, ListKind)] = &[
    ("*", "metadata.ownerReferences", ListKind::Keyed("uid")),
    ("*", "metadata.finalizers", ListKind::Set),
    ("Namespace", "status.conditions", ListKind::Keyed("type")),
    ("Node", "spec.podCIDRs", ListKind::Set),
    ("Node", "status.addresses", ListKind::Keyed("type")),
    ("Node", "status.conditions", ListKind::Keyed("type")),
    ("Pod", "spec.containers", ListKind::Keyed("name")),
    ("Pod", "spec.containers.env", ListKind::Keyed("name")),
    ("Pod", "spec.containers.ports", ListKind::Keyed("containerPort")),
    ("Pod", "spec.containers.volumeMounts", ListKind::Keyed("mountPath")),
    ("Pod", "spec.hostAliases", ListKind::Keyed("ip")),
    ("Pod", "spec.imagePullSecrets", ListKind::Keyed("name")),
    ("Pod", "spec.initContainers", ListKind::Keyed("name")),
    ("Pod", "spec.topologySpreadConstraints", ListKind::Keyed("topologyKey")),
    ("Pod", "spec.volumes", ListKind::Keyed("name")),
    ("Pod", "status.conditions", ListKind::Keyed("type")),
    ("Pod", "status.podIPs", ListKind::Keyed("ip")),
    ("Service", "spec.ports", ListKind::Keyed("port")),
    ("Service", "status.conditions", ListKind::Keyed("type")),
    ("ServiceAccount", "imagePullSecrets", ListKind::Keyed("name")),
    ("ServiceAccount", "secrets", ListKind::Keyed("name")),
];

fn list_kind(resource: &Resource, path: &[String]) -> ListKind {
    let path = path.join(".");
    MERGED_LISTS
        .iter()
        .find(|(kind, at, _)| (*kind == "*" || *kind == resource.kind) && *at == path)
        .map_or(ListKind::Atomic, |(_, _, list)| *list)
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM_SET: &str = "$deleteFromPrimitiveList/";

fn unreadable(why: impl std::fmt::Display) -> Failure {
    Failure::bad_request(format!("error applying strategic merge patch: {why}"))
}

fn merge_fields(
    resource: &Resource,
    path: &mut Vec<String>,
    fields: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Failure> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            *fields = patch.iter().filter(|(key, _)| *key != DIRECTIVE).map(|(k, v)| (k.clone(), v.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            fields.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(unreadable(format!("unknown patch type: {other}"))),
    }
    if let Some(retained) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        fields.retain(|key, _| retained.iter().any(|one| one == key));
    }
    for (key, change) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM_SET) {
            if let (Some(Value::Array(list)), Value::Array(gone)) = (fields.get_mut(field), change) {
                list.retain(|element| !gone.contains(element));
            }
            continue;
        }
        if key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(ORDER) {
            continue;
        }
        path.push(key.clone());
        merge_field(resource, path, fields, key, change)?;
        path.pop();
    }
    for (key, order) in patch {
        let Some(field) = key.strip_prefix(ORDER) else { continue };
        path.push(field.to_owned());
        let kind = list_kind(resource, path);
        path.pop();
        if let (Some(Value::Array(list)), Value::Array(order)) = (fields.get_mut(field), order) {
            reorder(list, order, kind);
        }
    }
    Ok(())
}

fn merge_field(
    resource: &Resource,
    path: &mut Vec<String>,
    fields: &mut Map<String, Value>,
    key: &str,
    change: &Value,
) -> Result<(), Failure> {
    match (fields.get_mut(key), change) {
        (_, Value::Null) => {
            fields.remove(key);
        }
        (Some(Value::Object(old)), Value::Object(new)) => merge_fields(resource, path, old, new)?,
        (_, Value::Object(new)) => {
            let mut made = Map::new();
            merge_fields(resource, path, &mut made, new)?;
            if new.get(DIRECTIVE).and_then(Value::as_str) != Some("delete") {
                fields.insert(key.to_owned(), Value::Object(made));
            }
        }
        (old, Value::Array(new)) => {
            let list = match old {
                Some(Value::Array(list)) => {
                    let mut list = std::mem::take(list);
                    merge_list(resource, path, &mut list, new)?;
                    list
                }
                // Where there is nothing to merge with, elements are not compared with each other either.
                _ if matches!(list_kind(resource, path), ListKind::Atomic) => new.clone(),
                _ => new.iter().filter(|element| directive(element).is_none()).cloned().collect(),
            };
            fields.insert(key.to_owned(), Value::Array(list));
        }
        (_, plain) => {
            fields.insert(key.to_owned(), plain.clone());
        }
    }
    Ok(())
}

fn directive(element: &Value) -> Option<&str> {
    element.get(DIRECTIVE).and_then(Value::as_str)
}

fn merge_list(
    resource: &Resource,
    path: &mut Vec<String>,
    list: &mut Vec<Value>,
    patch: &[Value],
) -> Result<(), Failure> {
    let kind = list_kind(resource, path);
    // There is nothing to direct in a list that is never merged: such an element is an element.
    if matches!(kind, ListKind::Atomic) {
        *list = patch.to_vec();
        return Ok(());
    }
    if patch.iter().any(|element| directive(element) == Some("replace")) {
        *list = patch.iter().filter(|element| directive(element).is_none()).cloned().collect();
        return Ok(());
    }
    match kind {
        ListKind::Atomic => {}
        ListKind::Set => {
            for element in patch {
                if !list.contains(element) {
                    list.push(element.clone());
                }
            }
        }
        ListKind::Keyed(merge_key) => {
            for element in patch {
                let key = element.get(merge_key).ok_or_else(|| {
                    unreadable(format!("map: {element} does not contain declared merge key: {merge_key}"))
                })?;
                if directive(element) == Some("delete") {
                    list.retain(|old| old.get(merge_key) != Some(key));
                    continue;
                }
                // As in the real server the first element with the key takes the change, which is why
                // two addresses of one type cannot be distinguished.
                match list.iter_mut().find(|old| old.get(merge_key) == Some(key)) {
                    Some(Value::Object(old)) => {
                        if let Value::Object(new) = element {
                            merge_fields(resource, path, old, new)?;
                        }
                    }
                    Some(_) | None => {
                        let mut made = Value::Object(Map::new());
                        if let (Value::Object(made), Value::Object(new)) = (&mut made, element) {
                            merge_fields(resource, path, made, new)?;
                        }
                        list.push(made);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Puts the elements that the patch names into its order; the others keep their place before their successors.
fn reorder(list: &mut Vec<Value>, order: &[Value], kind: ListKind) {
    let place = |element: &Value| match kind {
        ListKind::Keyed(key) => order.iter().position(|one| one.get(key).is_some() && one.get(key) == element.get(key)),
        ListKind::Set | ListKind::Atomic => order.iter().position(|one| one == element),
    };
    let mut named: Vec<(usize, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for (index, element) in std::mem::take(list).into_iter().enumerate() {
        match place(&element) {
            Some(at) => named.push((at, element)),
            None => others.push((index, element)),
        }
    }
    named.sort_by_key(|(at, _)| *at);
    let mut merged: Vec<Value> = named.into_iter().map(|(_, element)| element).collect();
    for (index, element) in others {
        merged.insert(index.min(merged.len()), element);
    }
    *list = merged;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::resources::named;

    fn strategic(kind: &str, object: &Value, patch: &Value) -> Value {
        Format::Strategic.apply(named(kind).unwrap(), object, patch).unwrap()
    }

    #[test]
    fn conditions_merge_by_type_and_taints_are_replaced() {
        let node = json!({
            "spec": { "taints": [{ "key": "a" }, { "key": "b" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "x" }] },
        });
        let patched = strategic(
            "Node",
            &node,
            &json!({
                "spec": { "taints": [{ "key": "c" }] },
                "status": { "conditions": [{ "type": "NetworkUnavailable", "status": "False" },
                                           { "type": "Ready", "status": "False" }] },
            }),
        );
        assert_eq!(patched["spec"]["taints"], json!([{ "key": "c" }]));
        let directed =
            strategic("Node", &node, &json!({ "spec": { "taints": [{ "$patch": "replace" }, { "key": "c" }] } }));
        assert_eq!(directed["spec"]["taints"][0], json!({ "$patch": "replace" }), "not understood here");
        assert_eq!(
            patched["status"]["conditions"],
            json!([{ "type": "Ready", "status": "False", "reason": "x" },
                   { "type": "NetworkUnavailable", "status": "False" }])
        );
    }

    #[test]
    fn two_addresses_of_a_type_need_the_replace_directive() {
        let address = |ip: &str| json!({ "type": "InternalIP", "address": ip });
        let node = json!({ "status": { "addresses": [address("10.0.0.1"), address("10.0.0.2")] } });
        let merged =
            strategic("Node", &node, &json!({ "status": { "addresses": [address("10.0.0.3"), address("10.0.0.4")] } }));
        assert_eq!(merged["status"]["addresses"], json!([address("10.0.0.4"), address("10.0.0.2")]));
        let first = strategic(
            "Node",
            &json!({}),
            &json!({ "status": { "addresses": [address("10.0.0.3"), address("10.0.0.4")] } }),
        );
        assert_eq!(
            first["status"]["addresses"],
            json!([address("10.0.0.3"), address("10.0.0.4")]),
            "nothing to merge with"
        );
        let replaced = strategic(
            "Node",
            &node,
            &json!({ "status": { "addresses": [address("10.0.0.3"), address("10.0.0.4"), { "$patch": "replace" }] } }),
        );
        assert_eq!(replaced["status"]["addresses"], json!([address("10.0.0.3"), address("10.0.0.4")]));
    }

    #[test]
    fn nulls_and_directives_remove() {
        let service = json!({
            "metadata": { "annotations": { "a": "1", "b": "2" }, "finalizers": ["x", "y"] },
            "spec": { "ports": [{ "port": 80, "name": "http" }, { "port": 443 }], "selector": { "app": "a" } },
        });
        let patched = strategic(
            "Service",
            &service,
            &json!({
                "metadata": { "annotations": { "a": null }, "$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z"] },
                "spec": {
                    "ports": [{ "port": 443, "$patch": "delete" }, { "port": 80, "name": null }, { "port": 81 }],
                    "selector": { "$patch": "replace", "other": "b" },
                },
            }),
        );
        assert_eq!(
            patched,
            json!({
                "metadata": { "annotations": { "b": "2" }, "finalizers": ["y", "z"] },
                "spec": { "ports": [{ "port": 80 }, { "port": 81 }], "selector": { "other": "b" } },
            })
        );
    }

    #[test]
    fn element_order_is_followed() {
        let service = json!({ "spec": { "ports": [{ "port": 1 }, { "port": 2 }, { "port": 9 }] } });
        let patch = json!({ "spec": {
            "$setElementOrder/ports": [{ "port": 3 }, { "port": 2 }, { "port": 1 }],
            "ports": [{ "port": 3 }],
        } });
        let ports: Vec<_> = strategic("Service", &service, &patch)["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["port"].as_i64().unwrap())
            .collect();
        assert_eq!(ports, [3, 2, 9, 1]);
    }

    #[test]
    fn unusable_patches_are_refused() {
        let node = named("Node").unwrap();
        let missing_key = json!({ "status": { "conditions": [{ "status": "True" }] } });
        let conditions = json!({ "status": { "conditions": [{ "type": "Ready" }] } });
        assert_eq!(Format::Strategic.apply(node, &conditions, &missing_key).unwrap_err().code, 400);
        let failing_test = json!([{ "op": "test", "path": "/a", "value": 1 }]);
        assert_eq!(Format::Json.apply(node, &json!({}), &failing_test).unwrap_err().code, 422);
        assert_eq!(Format::Json.apply(node, &json!({}), &json!({})).unwrap_err().code, 400);
    }

    #[test]
    fn merge_patch_replaces_lists() {
        let patched = Format::Merge
            .apply(named("Node").unwrap(), &json!({ "a": [1], "b": 2 }), &json!({ "a": [2], "b": null }))
            .unwrap();
        assert_eq!(patched, json!({ "a": [2] }));
    }
}
