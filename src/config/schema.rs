//! The shape of the file as a JSON schema, and questions about it: what a key may hold, which keys there are.

use std::fmt::Write as _;
use std::sync::LazyLock;

use figment::value::{Dict, Empty, Value};
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::catalog::Catalog;
use super::file::FileConfig;
use crate::plan::clb::annotations::Name;
use crate::plan::service::annotations::values::MOST_USER_TAGS;
use crate::plan::service::annotations::{self, AnnotationName};

/// Keys of `[service.defaults]`, and the annotations that have the last word over them. What either may say is in the one
/// table of annotations.
pub(super) const DEFAULTS_OF: &[(&str, Name)] = &[
    ("address_type", Name::AddressType),
    ("instance_charge_type", Name::InstanceChargeType),
    ("spec", Name::Spec),
    ("internet_charge_type", Name::ChargeType),
    ("bandwidth", Name::Bandwidth),
    ("master_zone", Name::MasterZoneid),
    ("slave_zone", Name::SlaveZoneid),
    ("delete_protection", Name::DeleteProtection),
    ("modification_protection", Name::ModificationProtection),
    ("scheduler", Name::Scheduler),
    ("tags", Name::AdditionalResourceTags),
];

/// The JSON schema of the configuration file (draft 7, which editors know best).
#[must_use]
pub fn schema(catalog: &Catalog) -> String {
    let mut root = root().clone();
    if let Some(Json::String(text)) = root.pointer_mut("/properties/controllers/description") {
        *text = described(&["controllers"], text, catalog);
    }
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
        limit(&mut root);
        root
    });
    &ROOT
}

/// The limits of annotations hold for their defaults.
fn limit(root: &mut Json) {
    for (key, name) in DEFAULTS_OF {
        let node = root.pointer_mut(&format!("/properties/service/properties/defaults/properties/{key}"));
        let Some(Json::Object(node)) = node else { continue };
        match name.entry().kind {
            annotations::values::ValueKind::Integer { min, max, .. } => {
                node.insert("minimum".to_owned(), min.into());
                node.insert("maximum".to_owned(), max.into());
            }
            annotations::values::ValueKind::Tags => {
                drop(node.insert("maxProperties".to_owned(), MOST_USER_TAGS.into()))
            }
            _ => {}
        }
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
            if map.get("default").is_some_and(Json::is_null) {
                map.remove("default");
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

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
#[must_use]
pub fn keys() -> Vec<String> {
    leaves().iter().map(|path| path.join(".")).collect()
}

impl Shape {
    /// The whole file.
    pub(super) fn root() -> Self {
        Self(root())
    }

    /// What is inside: a key of a table, an item of a list.
    pub(super) fn child(self, name: &str) -> Option<Self> {
        let node = match self.kind() {
            Kind::Section => self.0["properties"].get(name),
            Kind::Map => self.0.get("additionalProperties"),
            Kind::List => self.0.get("items"),
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
    pub(super) fn kind(self) -> Kind {
        match self.0["type"].as_str() {
            Some("boolean") => Kind::Bool,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Number,
            Some("array") => Kind::List,
            Some("object") if self.0.get("properties").is_some() => Kind::Section,
            Some("object") => Kind::Map,
            _ => Kind::Text,
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

    /// Whether it is a number of any sort.
    pub(super) fn is_number(self) -> bool {
        matches!(self.kind(), Kind::Integer | Kind::Number)
    }

    /// Whether it is a length of time.
    pub(super) fn is_timespan(self) -> bool {
        self.0["format"] == "timespan"
    }

    /// Whether it is an IP address.
    pub(super) fn is_address(self) -> bool {
        self.0["format"] == "ip"
    }

    /// What is allowed, as the end of "must be ...".
    pub(super) fn allowed(self) -> String {
        let mut text = match self.kind() {
            Kind::Bool => "true or false".to_owned(),
            Kind::Integer => "a whole number".to_owned(),
            Kind::Number => "a number".to_owned(),
            Kind::List => "a list".to_owned(),
            Kind::Map | Kind::Section => "a table".to_owned(),
            Kind::Text => match (self.0["format"].as_str(), self.words().as_slice()) {
                (Some("timespan"), _) => "a length of time such as \"15s\" or \"1h30m\"".to_owned(),
                (Some("ip"), _) => "an IP address in quotes".to_owned(),
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

    /// The value that a text from the environment or the command line stands for. Text that does not fit stays text, and is
    /// found to be of the wrong type later, like a wrong value in the file.
    pub(super) fn read(self, text: &str) -> Value {
        let fallback = || Value::from(text);
        let trimmed = text.trim();
        match self.kind() {
            Kind::Text => fallback(),
            Kind::Bool => trimmed.parse::<bool>().map_or_else(|_| fallback(), Value::from),
            Kind::Integer => trimmed.parse::<i64>().map_or_else(|_| fallback(), Value::from),
            Kind::Number => match trimmed.parse::<f64>() {
                Ok(number) if number.is_finite() => Value::from(number),
                _ => fallback(),
            },
            Kind::List if !trimmed.starts_with('[') => {
                Value::from(trimmed.split(',').map(str::trim).filter(|item| !item.is_empty()).collect::<Vec<_>>())
            }
            Kind::List | Kind::Map | Kind::Section => {
                toml::de::DeValue::parse(trimmed).map_or_else(|_| fallback(), |value| plain(value.get_ref()))
            }
        }
    }
}

/// A TOML value without its places.
fn plain(value: &toml::de::DeValue<'_>) -> Value {
    use toml::de::DeValue;
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Array(items) => Value::from(items.iter().map(|item| plain(item.get_ref())).collect::<Vec<_>>()),
        DeValue::Table(table) => Value::from(
            table.iter().map(|(key, item)| (key.get_ref().to_string(), plain(item.get_ref()))).collect::<Dict>(),
        ),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => {
            scalar(value).unwrap_or_else(|| Value::from(Empty::Unit))
        }
    }
}

/// A TOML number; `None` if it does not fit 64 bits, and for dates, which no key takes.
pub(super) fn scalar(value: &toml::de::DeValue<'_>) -> Option<Value> {
    use toml::de::DeValue;
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::from),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok().map(Value::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use annotations::values::ValueKind as Values;

    fn defaults(key: &str) -> Shape {
        at(&["service", "defaults", key]).unwrap_or_else(|| panic!("the schema has no service.defaults.{key}"))
    }

    #[test]
    fn every_default_is_one_of_an_annotation() {
        let stated: BTreeSet<&str> = at(&["service", "defaults"]).unwrap().names().into_iter().collect();
        assert_eq!(DEFAULTS_OF.iter().map(|(key, _)| *key).collect::<BTreeSet<_>>(), stated);
    }

    #[test]
    fn defaults_have_the_ranges_and_choices_of_their_annotations() {
        for (key, name) in DEFAULTS_OF {
            let shape = defaults(key);
            match name.entry().kind {
                Values::Integer { min, max, .. } => {
                    assert_eq!(
                        (shape.0["minimum"].as_i64(), shape.0["maximum"].as_i64()),
                        (Some(min), Some(max)),
                        "{key}"
                    );
                }
                // A switch of two words.
                Values::OneOf(_) if shape.kind() == Kind::Bool => {}
                Values::OneOf(words) | Values::AnyCase(words) => {
                    let known: BTreeSet<&str> = shape.words().into_iter().map(|(word, _)| word).collect();
                    assert_eq!(known, words.iter().copied().collect(), "{key}");
                }
                Values::Tags => assert_eq!(shape.0["maxProperties"], MOST_USER_TAGS, "{key}"),
                Values::Text => assert_eq!(shape.kind(), Kind::Text, "{key}"),
                other => panic!("{key}: {other:?} cannot be a default"),
            }
        }
    }

    #[test]
    fn what_holds_without_a_word_is_what_the_page_of_annotations_says() {
        for (key, name) in DEFAULTS_OF {
            let entry = name.entry();
            let stated = match &defaults(key).0["default"] {
                Json::Bool(on) => match entry.kind {
                    Values::OneOf(["on", "off"]) => if *on { "on" } else { "off" }.to_owned(),
                    // The first is the one that protects.
                    Values::OneOf([yes, no]) => if *on { *yes } else { *no }.to_owned(),
                    other => panic!("{key}: {other:?} is no switch"),
                },
                Json::String(text) => text.clone(),
                _ => String::new(),
            };
            let documented = match entry.default {
                // The page names the key; what holds without it depends on the place.
                text if text.starts_with("`service.") => "",
                text => text.split(' ').next().unwrap_or_default().trim_matches('`'),
            };
            assert_eq!(documented, stated, "{key}");
        }
    }
}
