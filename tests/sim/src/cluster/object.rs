//! Reading fields of objects kept as JSON.

use serde_json::{Map, Value};

/// The text at a JSON pointer; empty if it is missing or no text.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list at a JSON pointer; none if it is missing or no list.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// `metadata.resourceVersion` as the number it is in this server; 0 if missing.
pub(super) fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}

/// The map under a key, made if it is missing or something else.
pub(super) fn map<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { unreachable!("made an object just above") };
    let entry = fields.entry(key).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    let Value::Object(inner) = entry else { unreachable!("made an object just above") };
    inner
}

/// Lists and maps that the server's types leave out when they are empty.
const OMITTED_WHEN_EMPTY: &[&str] = &[
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "taints",
    "addresses",
    "conditions",
    "ingress",
    "selector",
    "data",
    "externalIPs",
    "loadBalancerSourceRanges",
];

/// Texts that the server's types leave out when they are empty.
const OMITTED_WHEN_BLANK: &[&str] = &["providerID", "podCIDR", "generateName", "externalTrafficPolicy"];

/// What decoding into the server's types and encoding again would drop: nulls and some empty fields.
pub(super) fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, field| {
                normalize(field);
                match field {
                    Value::Null => false,
                    Value::Array(list) => !(list.is_empty() && OMITTED_WHEN_EMPTY.contains(&key.as_str())),
                    Value::Object(map) => !(map.is_empty() && OMITTED_WHEN_EMPTY.contains(&key.as_str())),
                    Value::String(text) => !(text.is_empty() && OMITTED_WHEN_BLANK.contains(&key.as_str())),
                    Value::Bool(_) | Value::Number(_) => true,
                }
            });
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
