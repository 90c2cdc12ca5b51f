//! Manifests with the place of each value, so that a problem can be shown where it is written.

use std::{fmt, iter};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use crate::plan::loadbalancer::annotations::{LEGACY_PREFIX, PREFIX};

/// A value of a manifest.
#[derive(Debug)]
pub(super) enum ManifestNode {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

/// The documents of a file, whether YAML or JSON.
pub(super) fn documents(text: &str) -> Result<Vec<Spanned<ManifestNode>>, serde_saphyr::Error> {
    serde_saphyr::from_multiple(text)
}

impl ManifestNode {
    /// The value of a field.
    pub(super) fn get(&self, key: &str) -> Option<&Spanned<Self>> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name.value == key).map(|(_, value)| value)
    }

    /// The text of a field; empty if there is none.
    pub(super) fn text(&self, key: &str) -> &str {
        match self.get(key).map(|node| &node.value) {
            Some(Self::Scalar(Value::String(text))) => text,
            _ => "",
        }
    }

    /// The same without places.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Map(entries) => entries.iter().map(|(key, node)| (key.value.clone(), node.value.to_json())).collect(),
        }
    }

    /// The objects in a document: itself, or the items of a list.
    pub(super) fn objects(document: &Spanned<Self>) -> Vec<&Spanned<Self>> {
        let is_list = document.value.text("kind").ends_with("List");
        match document.value.get("items").map(|items| &items.value) {
            Some(Self::List(items)) if is_list => items.iter().collect(),
            _ => vec![document],
        }
    }
}

/// Where a field stands: an annotation by its key, or a path such as `spec.ports[1].protocol`. What is not there leads to the
/// innermost value that should hold it.
pub(super) fn place(object: &Spanned<ManifestNode>, field: &str) -> Location {
    let annotations = object.value.get("metadata").and_then(|metadata| metadata.value.get("annotations"));
    // A message about several names them all; one about an old key can name the current one.
    let first = field.split(", ").next().unwrap_or(field);
    let old = first.replacen(PREFIX, LEGACY_PREFIX, 1);
    let find = |key: &str| annotations.and_then(|annotations| annotations.value.get(key));
    if let Some(node) = find(first).or_else(|| find(&old)) {
        return node.referenced;
    }
    let mut node = object;
    for segment in field.split(['.', '[']) {
        let inner = match (&node.value, segment.strip_suffix(']').map(str::parse::<usize>)) {
            (ManifestNode::List(items), Some(Ok(index))) => items.get(index),
            (value, _) => value.get(segment),
        };
        let Some(inner) = inner else { break };
        node = inner;
    }
    node.referenced
}

impl<'de> Deserialize<'de> for ManifestNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = ManifestNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a manifest")
    }

    fn visit_bool<E>(self, value: bool) -> Result<ManifestNode, E> {
        Ok(ManifestNode::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<ManifestNode, E> {
        Ok(ManifestNode::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<ManifestNode, E> {
        Ok(ManifestNode::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<ManifestNode, E> {
        Ok(ManifestNode::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<ManifestNode, E> {
        Ok(ManifestNode::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<ManifestNode, E> {
        Ok(ManifestNode::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ManifestNode, A::Error> {
        iter::from_fn(|| items.next_element().transpose()).collect::<Result<_, _>>().map(ManifestNode::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ManifestNode, A::Error> {
        iter::from_fn(|| entries.next_entry().transpose()).collect::<Result<_, _>>().map(ManifestNode::Map)
    }
}
