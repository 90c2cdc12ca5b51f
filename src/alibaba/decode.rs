//! Answers as the vendor really sends them: numbers as text, text as numbers, and `""` for an empty list or object.
//!
//! These types go into structs with `#[serde(default)]`, so that absent keys are empty too. Anything else that does not
//! fit is an error, and so a [`FaultKind::Bug`](super::FaultKind::Bug) of the call.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Text, number or truth value, as text; empty for null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        scalar(&value).map(Self).ok_or_else(|| unexpected("text", &value))
    }
}

/// A whole number; 0 for null and `""`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Int(pub(super) i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let number = match &value {
            Value::Null => Some(0),
            Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
            Value::String(text) if text.trim().is_empty() => Some(0),
            Value::String(text) => text.trim().parse().ok().or_else(|| whole(text.trim().parse().ok()?)),
            _ => None,
        };
        number.map(Self).ok_or_else(|| unexpected("a whole number", &value))
    }
}

/// A truth value; `None` if the answer says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flag(pub(super) Option<bool>);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::Null => Ok(Self(None)),
            Value::Bool(flag) => Ok(Self(Some(*flag))),
            Value::String(text) if text.is_empty() => Ok(Self(None)),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(Self(Some(true))),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(Self(Some(false))),
            _ => Err(unexpected("true or false", &value)),
        }
    }
}

/// A list, plain or wrapped in an object with one key, as in `"Tags": {"Tag": [...]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Value::Object(wrapper) = &mut value {
            let mut inner = std::mem::take(wrapper).into_iter();
            let first = inner.next().map_or(Value::Null, |(_, list)| list);
            if inner.next().is_some() {
                return Err(Error::custom("expected a list, found an object with several keys"));
            }
            value = first;
        }
        match value {
            Value::Array(items) => {
                let items: Result<Vec<_>, _> = items.into_iter().map(serde_json::from_value).collect();
                items.map(Self).map_err(Error::custom)
            }
            value if empty(&value) => Ok(Self::default()),
            value => Err(unexpected("a list", &value)),
        }
    }
}

/// An object; its default for null and `""`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nested<T>(pub(super) T);

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Nested<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if empty(&value) {
            return Ok(Self::default());
        }
        serde_json::from_value(value).map(Self).map_err(Error::custom)
    }
}

/// A tag; services differ in how they call its parts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tag {
    #[serde(rename = "TagKey", alias = "Key")]
    key: Text,
    #[serde(rename = "TagValue", alias = "Value")]
    value: Text,
}

/// Tags as a map.
#[must_use]
pub(super) fn tags(list: List<Tag>) -> BTreeMap<String, String> {
    list.0.into_iter().map(|tag| (tag.key.0, tag.value.0)).collect()
}

/// The texts of a list.
#[must_use]
pub(super) fn texts(list: List<Text>) -> Vec<String> {
    list.0.into_iter().map(|text| text.0).filter(|text| !text.is_empty()).collect()
}

/// A scalar as text; `None` for lists and objects.
#[must_use]
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(match number.as_f64().and_then(whole) {
            Some(whole) if !number.is_i64() && !number.is_u64() => whole.to_string(),
            _ => number.to_string(),
        }),
        Value::String(text) => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Whole numbers up to 2^53 are exact in a float.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

/// Names the kind of value that was found, not the value, which could be private.
fn unexpected<E: Error>(expected: &str, found: &Value) -> E {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    E::custom(format_args!("expected {expected}, found {found}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "PascalCase")]
    struct Sample {
        name: Text,
        count: Int,
        on: Flag,
        items: List<Text>,
        tags: List<Tag>,
        inner: Nested<Inner>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "PascalCase")]
    struct Inner {
        id: Text,
    }

    fn sample(value: Value) -> Sample {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn scalars_come_in_any_dress() {
        for (value, expected) in [
            (json!("80"), 80),
            (json!(80), 80),
            (json!(80.0), 80),
            (json!("80.0"), 80),
            (json!(""), 0),
            (json!(null), 0),
        ] {
            assert_eq!(sample(json!({"Count": value})).count, Int(expected));
        }
        for (value, expected) in
            [(json!("a"), "a"), (json!(5), "5"), (json!(5.0), "5"), (json!(true), "true"), (json!(null), "")]
        {
            assert_eq!(sample(json!({"Name": value})).name.0, expected);
        }
        for (value, expected) in
            [(json!("true"), Some(true)), (json!("False"), Some(false)), (json!(true), Some(true)), (json!(""), None)]
        {
            assert_eq!(sample(json!({"On": value})).on, Flag(expected));
        }
    }

    #[test]
    fn lists_and_objects_may_be_absent_null_empty_or_wrapped() {
        for value in [
            json!({}),
            json!({"Items": null, "Inner": null}),
            json!({"Items": "", "Inner": ""}),
            json!({"Items": {}, "Inner": {}}),
            json!({"Items": {"Item": ""}}),
        ] {
            let sample = sample(value);
            assert!(sample.items.0.is_empty() && sample.inner.0.id.0.is_empty());
        }
        assert_eq!(texts(sample(json!({"Items": {"Item": ["a", 1]}})).items), ["a", "1"]);
        assert_eq!(texts(sample(json!({"Items": ["a"]})).items), ["a"]);
        let both = sample(json!({"Tags": {"Tag": [{"TagKey": "a", "TagValue": "1"}, {"Key": "b", "Value": 2}]}}));
        assert_eq!(tags(both.tags), BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]));
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_does_not_quote_the_value() {
        for value in [
            json!({"Count": "eighty"}),
            json!({"Count": 1.5}),
            json!({"Name": ["private"]}),
            json!({"Items": "private"}),
            json!({"Items": {"A": [], "B": []}}),
            json!({"On": "private"}),
            json!({"Inner": "private"}),
        ] {
            let error = serde_json::from_value::<Sample>(value.clone()).unwrap_err().to_string();
            assert!(error.contains("expected") || error.contains("invalid"), "{value}: {error}");
        }
        let error = serde_json::from_value::<Sample>(json!({"On": "private"})).unwrap_err().to_string();
        assert!(!error.contains("private"), "{error}");
    }
}
