//! The shape of the file as a JSON schema, and questions about it: what a key may hold, which keys there are.

use std::fmt::Write as _;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Value as Json, json};

use super::catalog::Catalog;
use super::file::FileConfig;
use super::formats;
use super::values::TimeSpan;
use crate::plan::loadbalancer::annotations::values::ValueKind;
use crate::plan::loadbalancer::annotations::{AnnotationName, Entry};
use crate::plan::{clb, nlb};

/// A key whose value is the default of an annotation, which has the last word.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationDefault {
    /// Such as `service.defaults.spec`.
    pub key: &'static str,
    /// What values the annotation takes.
    pub kind: ValueKind,
    /// What holds without the key, as the page of annotations says it.
    pub default: &'static str,
    /// Whether it also holds for what exists.
    pub holds_at_once: bool,
}

/// Every key of `[service.defaults]` and `[nlb.defaults]`.
pub fn defaults() -> impl Iterator<Item = AnnotationDefault> {
    fn of<N: AnnotationName>(entry: &Entry<N>) -> Option<AnnotationDefault> {
        let Entry { kind, default, holds_at_once, .. } = *entry;
        let key = entry.file.filter(|key| key.contains(".defaults."))?;
        Some(AnnotationDefault { key, kind, default, holds_at_once })
    }
    clb::annotations::Name::TABLE.iter().filter_map(of).chain(nlb::annotations::Name::TABLE.iter().filter_map(of))
}

/// Editors know a schema again by it, wherever the file is.
const SCHEMA_ID: &str = "urn:alicloud-ccm:configuration";

/// The JSON schema of the configuration file (draft 7, which editors know best).
pub fn schema(catalog: &Catalog) -> String {
    let mut root = root().clone();
    root["$id"] = SCHEMA_ID.into();
    if let Some(node) = root.pointer_mut("/properties/controllers") {
        let text = node["description"].as_str().unwrap_or_default();
        node["description"] = described(&["controllers"], text, catalog).into();
        node["default"] = catalog.default_controllers().into();
        node["items"]["enum"] = catalog.controller_items().into();
    }
    // An editor sees no other layer than the file.
    root["required"] = json!(["cloud"]);
    root["properties"]["cloud"]["required"] = json!(["cluster_id"]);
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

/// The manual's text about a key, with what the catalog adds to it.
pub(super) fn described<S: AsRef<str>>(path: &[S], text: &str, catalog: &Catalog) -> String {
    match path {
        [key] if key.as_ref() == "controllers" => format!("{text} {}", catalog.described_controllers()),
        _ => text.to_owned(),
    }
}

fn root() -> &'static Json {
    static ROOT: LazyLock<Json> = LazyLock::new(|| {
        let mut settings = SchemaSettings::draft07();
        settings.inline_subschemas = true;
        let mut root = Json::from(settings.into_generator().into_root_schema_for::<FileConfig>());
        tidy(&mut root);
        restrict(&mut root);
        root
    });
    &ROOT
}

/// Items of a list are compared with each other, so there are no more.
pub(super) const LONGEST_LIST: usize = 100;

/// A list is short and names nothing twice, and no text is empty.
fn restrict(node: &mut Json) {
    match node["type"].as_str() {
        Some("array") => {
            node["uniqueItems"] = true.into();
            node["maxItems"] = LONGEST_LIST.into();
        }
        Some("string") if node.get("pattern").is_none() && node.get("oneOf").is_none() => {
            node["minLength"] = 1.into();
        }
        _ => {}
    }
    if let Some(Json::Object(properties)) = node.get_mut("properties") {
        properties.values_mut().for_each(restrict);
    }
}

/// TOML has no null, so the schema has none either. Descriptions lose the line breaks of the source.
fn tidy(node: &mut Json) {
    match node {
        Json::Object(map) => {
            if let Some(Json::Array(types)) = map.get("type") {
                let stated = types.iter().find(|name| *name != "null").cloned();
                map.extend(stated.map(|name| ("type".to_owned(), name)));
            }
            if let Some(Json::Array(choices)) = map.get("anyOf") {
                let real = choices.iter().find(|choice| choice["type"] != "null").cloned();
                map.remove("anyOf");
                for (key, value) in real.as_ref().and_then(Json::as_object).into_iter().flatten() {
                    map.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            map.retain(|_, value| !value.is_null());
            if let Some(format) = map.get("format").and_then(Json::as_str).and_then(formats::find) {
                map.insert("pattern".to_owned(), format.pattern.into());
            }
            if let Some(Json::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            map.values_mut().for_each(tidy);
        }
        Json::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// What a key of the file may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape(&'static Json);

/// The format of a period, of which `0s` stands for never.
const ZERO_OR_TIMESPAN: &str = "timespan-or-zero";

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShapeKind {
    /// Text of any sort.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A list.
    List,
    /// A table whose keys the user chooses.
    Map,
    /// A table whose keys are fixed.
    Section,
}

/// The shape at a path; `None` if there is no such key.
pub(super) fn at<S: AsRef<str>>(path: &[S]) -> Option<Shape> {
    path.iter().try_fold(Shape::root(), |shape, segment| shape.child(segment.as_ref()))
}

/// Every key that is not a section, as path, in the order of the alphabet.
pub(super) fn leaves() -> &'static [Vec<String>] {
    static LEAVES: LazyLock<Vec<Vec<String>>> = LazyLock::new(|| {
        let mut found = Vec::new();
        Shape::root().collect_leaves(&mut Vec::new(), &mut found);
        found
    });
    &LEAVES
}

/// Every key that is not a section, such as `route.period`, in the order of the alphabet.
pub fn keys() -> Vec<String> {
    leaves().iter().map(|path| path.join(".")).collect()
}

fn of(key: &str) -> Option<Shape> {
    at(&key.split('.').collect::<Vec<_>>())
}

/// The number within the limits of a key that is nearest to this one.
pub fn nearest_number(key: &str, number: f64) -> f64 {
    let (least, most) = of(key).map(Shape::range).unwrap_or_default();
    number.max(least.unwrap_or(f64::MIN)).min(most.unwrap_or(f64::MAX))
}

/// The length of time within the limits of a key that is nearest to this one.
pub fn nearest_time(key: &str, given: TimeSpan) -> TimeSpan {
    match of(key).filter(|shape| !shape.admits_time(given)).and_then(Shape::time_limits) {
        Some((least, most)) => given.clamp(least, most),
        None => given,
    }
}

impl Shape {
    /// The whole file.
    pub(super) fn root() -> Self {
        Self(root())
    }

    /// What is inside: a key of a table, an item of a list.
    pub(super) fn child(self, name: &str) -> Option<Self> {
        let node = match self.kind() {
            ShapeKind::Section => self.0["properties"].get(name),
            ShapeKind::Map => self.0.get("additionalProperties"),
            ShapeKind::List => self.0.get("items"),
            _ => None,
        };
        node.map(Self)
    }

    fn collect_leaves(self, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        let Some(properties) = self.0["properties"].as_object() else {
            return found.push(path.clone());
        };
        for (name, node) in properties {
            path.push(name.clone());
            Self(node).collect_leaves(path, found);
            path.pop();
        }
    }

    /// The kind of value.
    pub(super) fn kind(self) -> ShapeKind {
        match self.0["type"].as_str() {
            Some("boolean") => ShapeKind::Bool,
            Some("integer") => ShapeKind::Integer,
            Some("number") => ShapeKind::Number,
            Some("array") => ShapeKind::List,
            Some("object") if self.0.get("properties").is_some() => ShapeKind::Section,
            Some("object") => ShapeKind::Map,
            _ => ShapeKind::Text,
        }
    }

    /// The manual's text about the key.
    pub(super) fn description(self) -> &'static str {
        self.0["description"].as_str().unwrap_or_default()
    }

    /// The names of the keys of a section.
    pub(super) fn names(self) -> Vec<&'static str> {
        self.0["properties"].as_object().into_iter().flat_map(serde_json::Map::keys).map(String::as_str).collect()
    }

    /// The words that are allowed, with what each means; empty if the text is free.
    pub(super) fn words(self) -> Vec<(&'static str, &'static str)> {
        let described = self.0["oneOf"].as_array().into_iter().flatten();
        described.filter_map(|one| Some((one["const"].as_str()?, one["description"].as_str()?))).collect()
    }

    /// The least and the greatest number, where they are limited.
    pub(super) fn range(self) -> (Option<f64>, Option<f64>) {
        (self.0["minimum"].as_f64(), self.0["maximum"].as_f64())
    }

    /// Whether the number is within the range.
    pub(super) fn admits(self, number: f64) -> bool {
        match self.range() {
            (None, Some(most)) => number > 0.0 && number <= most,
            (least, most) => {
                least.is_none_or(|least| number >= least)
                    && most.is_none_or(|most| number <= most)
                    && number.is_finite()
            }
        }
    }

    /// The rule that its text must keep; empty if there is none.
    pub(super) fn format(self) -> &'static str {
        self.0["format"].as_str().unwrap_or_default()
    }

    /// Whether it is a length of time.
    pub(super) fn is_timespan(self) -> bool {
        matches!(self.format(), "timespan" | ZERO_OR_TIMESPAN)
    }

    /// The shortest and the longest length of time, if they are limited.
    pub(super) fn time_limits(self) -> Option<(TimeSpan, TimeSpan)> {
        let limit = |name: &str| self.0[name].as_str()?.parse::<TimeSpan>().ok();
        limit("formatMinimum").zip(limit("formatMaximum"))
    }

    /// Whether a length of time is within its limits.
    pub(super) fn admits_time(self, given: TimeSpan) -> bool {
        let never = self.format() == ZERO_OR_TIMESPAN && given.0.is_zero();
        never || self.time_limits().is_none_or(|(least, most)| (least..=most).contains(&given))
    }

    /// The value of the reference file, where there is no default.
    pub(super) fn example(self) -> Option<&'static Json> {
        self.0["examples"].get(0)
    }

    /// The limits of a number or of a length of time, as a sentence for the manual.
    pub(super) fn limits(self) -> Option<String> {
        if let Some((least, most)) = self.time_limits() {
            let never = if self.format() == ZERO_OR_TIMESPAN { "0s, or from" } else { "From" };
            return Some(format!("{never} {least} to {most}."));
        }
        if matches!(self.range(), (None, None) | (Some(0.0), None)) {
            return None;
        }
        let allowed = self.allowed();
        let mut letters = allowed.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        Some(format!("{}.", first.chain(letters).collect::<String>()))
    }

    /// What is allowed, as the end of "must be ...".
    pub(super) fn allowed(self) -> String {
        let mut text = match self.kind() {
            ShapeKind::Bool => "true or false".to_owned(),
            ShapeKind::Integer => "a whole number".to_owned(),
            ShapeKind::Number => "a number".to_owned(),
            ShapeKind::List => "a list".to_owned(),
            ShapeKind::Map | ShapeKind::Section => "a table".to_owned(),
            ShapeKind::Text => match (self.format(), self.words().as_slice()) {
                ("timespan" | ZERO_OR_TIMESPAN, _) => "a length of time such as \"15s\" or \"1h30m\"".to_owned(),
                ("ip", _) => "an IP address in quotes".to_owned(),
                (_, []) => "text in quotes".to_owned(),
                (_, [most @ .., last]) => {
                    let most: Vec<String> = most.iter().map(|(word, _)| format!("{word:?}")).collect();
                    format!("{} or {:?}", most.join(", "), last.0)
                }
            },
        };
        match self.range() {
            (Some(least), Some(most)) => _ = write!(text, " from {least} to {most}"),
            (None, Some(most)) => _ = write!(text, " above 0, at most {most}"),
            _ => {}
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::loadbalancer::annotations::values::MOST_USER_TAGS;

    fn shape(key: &str) -> Shape {
        of(key).unwrap_or_else(|| panic!("the schema has no {key}"))
    }

    #[test]
    fn every_default_is_one_of_an_annotation() {
        let stated: BTreeSet<String> = keys().into_iter().filter(|key| key.contains(".defaults.")).collect();
        assert_eq!(defaults().map(|default| default.key.to_owned()).collect::<BTreeSet<_>>(), stated);
    }

    #[test]
    fn defaults_have_the_ranges_and_choices_of_their_annotations() {
        for AnnotationDefault { key, kind, .. } in defaults() {
            let shape = shape(key);
            match kind {
                ValueKind::Integer { min, max, .. } => {
                    assert_eq!(
                        (shape.0["minimum"].as_i64(), shape.0["maximum"].as_i64()),
                        (Some(min), Some(max)),
                        "{key}"
                    );
                }
                // A switch of two words.
                ValueKind::OneOf(_) | ValueKind::Switch(_) if shape.kind() == ShapeKind::Bool => {}
                ValueKind::OneOf(words) | ValueKind::AnyCase(words) => {
                    let known = shape.words().into_iter().map(|(word, _)| word.to_lowercase());
                    let allowed = words.iter().map(|word| word.to_lowercase());
                    assert_eq!(known.collect::<BTreeSet<_>>(), allowed.collect(), "{key}");
                }
                ValueKind::Tags => assert_eq!(shape.0["maxProperties"], MOST_USER_TAGS, "{key}"),
                ValueKind::Text => assert_eq!(shape.kind(), ShapeKind::Text, "{key}"),
                other => panic!("{key}: {other:?} cannot be a default"),
            }
        }
    }

    #[test]
    fn what_holds_without_a_word_is_what_the_page_of_annotations_says() {
        for AnnotationDefault { key, kind, default, .. } in defaults() {
            let stated = match &shape(key).0["default"] {
                Json::Bool(on) => match kind {
                    ValueKind::Switch(_) => if *on { "on" } else { "off" }.to_owned(),
                    // The first is the one that protects.
                    ValueKind::OneOf([yes, no]) => if *on { *yes } else { *no }.to_owned(),
                    other => panic!("{key}: {other:?} is no switch"),
                },
                Json::String(text) => text.clone(),
                _ => String::new(),
            };
            // Where no key states a zone, the place of the nodes decides.
            let documented = match default {
                place if place.starts_with("where ") => "",
                text => text.split(' ').next().unwrap_or_default().trim_matches('`'),
            };
            assert!(documented.eq_ignore_ascii_case(&stated), "{key}: {documented} {stated}");
        }
    }
}
