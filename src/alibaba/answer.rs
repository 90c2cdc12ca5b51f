//! Answers as the vendor really sends them: numbers as text, text as numbers, and `""` for an empty list or object.
//!
//! What is absent, null or `""` is empty. Anything else that does not fit is a [`Mismatch`]: a read is repeated, and the fate of
//! a write is unknown.

use std::net::IpAddr;

use ipnet::IpNet;
use litemap::LiteMap;
use serde_json::{Map, Value};
use thiserror::Error;

/// A field is not of the form that the API documents. Names the field and the form that was found, not the value, which
/// could be private.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct Mismatch(pub(super) String);

/// Makes a value of an object of an answer.
pub(super) type Decoder<T> = fn(Fields<'_>) -> Result<T, Mismatch>;

/// The fields of an object. Services differ in the capitals of the same field.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields<'a>(Option<&'a Map<String, Value>>);

impl<'a> From<&'a Map<String, Value>> for Fields<'a> {
    fn from(object: &'a Map<String, Value>) -> Self {
        Self(Some(object))
    }
}

impl<'a> Fields<'a> {
    /// Text, number or truth value, as text.
    pub(super) fn text(self, name: &str) -> Result<String, Mismatch> {
        scalar(self.value(name)).ok_or_else(|| self.mismatch(name, "text"))
    }

    /// The id of an object, which every answer about the object has.
    pub(super) fn id(self, name: &str) -> Result<String, Mismatch> {
        let id = Some(self.text(name)?).filter(|id| !id.is_empty());
        id.ok_or_else(|| Mismatch(format!("{name}: expected an id, found nothing")))
    }

    /// Text, number or truth value, as text; `None` for what is empty, and for what is no text.
    pub(super) fn some_text(self, name: &str) -> Option<String> {
        scalar(self.value(name)).filter(|text| !text.is_empty())
    }

    /// A whole number; 0 if it is empty.
    pub(super) fn number(self, name: &str) -> Result<i64, Mismatch> {
        let number = match self.value(name) {
            Value::Null => Some(0),
            Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
            Value::String(text) if text.trim().is_empty() => Some(0),
            Value::String(text) => text.trim().parse().ok().or_else(|| whole(text.trim().parse().ok()?)),
            _ => None,
        };
        number.ok_or_else(|| self.mismatch(name, "a whole number"))
    }

    /// A truth value; `None` if it is empty.
    pub(super) fn flag(self, name: &str) -> Result<Option<bool>, Mismatch> {
        match self.value(name) {
            Value::Bool(flag) => Ok(Some(*flag)),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            value if is_empty(value) => Ok(None),
            _ => Err(self.mismatch(name, "true or false")),
        }
    }

    /// An object; without fields if it is empty.
    pub(super) fn object(self, name: &str) -> Result<Self, Mismatch> {
        match self.value(name) {
            Value::Object(object) => Ok(Self(Some(object))),
            value if is_empty(value) => Ok(Self(None)),
            _ => Err(self.mismatch(name, "an object")),
        }
    }

    /// A list of objects.
    pub(super) fn list<T>(self, name: &str, item: Decoder<T>) -> Result<Vec<T>, Mismatch> {
        let decode = |value: &Value| match value {
            Value::Object(object) => item(object.into()),
            _ => Err(self.mismatch(name, "a list of objects")),
        };
        self.items(name)?.iter().map(decode).collect()
    }

    /// A list of texts, without empty ones.
    pub(super) fn texts(self, name: &str) -> Result<Vec<String>, Mismatch> {
        let texts = self.items(name)?.iter().map(|value| scalar(value).ok_or_else(|| self.mismatch(name, "texts")));
        texts.filter(|text| !text.as_ref().is_ok_and(String::is_empty)).collect()
    }

    /// The tags of an object; services differ in how they call key and value.
    pub(super) fn tags(self) -> Result<LiteMap<String, String>, Mismatch> {
        let tag = |tag: Fields<'_>| {
            let part =
                |long, short| tag.text(long).and_then(|text| if text.is_empty() { tag.text(short) } else { Ok(text) });
            Ok((part("TagKey", "Key")?, part("TagValue", "Value")?))
        };
        self.list("Tags", tag).map(LiteMap::from_iter)
    }

    /// A list is plain or wrapped in an object with one field, as in `"Tags": {"Tag": [...]}`.
    fn items(self, name: &str) -> Result<&'a [Value], Mismatch> {
        let value = match self.value(name) {
            Value::Object(wrapper) if wrapper.len() <= 1 => wrapper.values().next().unwrap_or(&Value::Null),
            value => value,
        };
        match value {
            Value::Array(items) => Ok(items),
            value if is_empty(value) => Ok(&[]),
            _ => Err(self.mismatch(name, "a list")),
        }
    }

    fn value(self, name: &str) -> &'a Value {
        let object = self.0;
        let exact = object.and_then(|object| object.get(name));
        let similar = || object?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        exact.or_else(similar).unwrap_or(&Value::Null)
    }

    fn mismatch(self, name: &str, expected: &str) -> Mismatch {
        let found = match self.value(name) {
            Value::Null => "null",
            Value::Bool(_) => "a truth value",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        Mismatch(format!("{name}: expected {expected}, found {found}"))
    }
}

/// A block of addresses, or a single address.
pub(super) fn block(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| address.into()))
}

/// A scalar as text; `None` for lists and objects.
fn scalar(value: &Value) -> Option<String> {
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

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// Whole numbers up to 2^53 are exact in a float.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Reads the one field of an answer.
    fn read<T>(value: &Value, read: impl Fn(Fields<'_>) -> Result<T, Mismatch>) -> T {
        read(value.as_object().unwrap().into()).unwrap()
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
            assert_eq!(read(&json!({"Count": value}), |it| it.number("Count")), expected);
        }
        for (value, expected) in
            [(json!("a"), "a"), (json!(5), "5"), (json!(5.0), "5"), (json!(true), "true"), (json!(null), "")]
        {
            assert_eq!(read(&json!({"Name": value}), |it| it.text("Name")), expected);
        }
        for (value, expected) in
            [(json!("true"), Some(true)), (json!("False"), Some(false)), (json!(true), Some(true)), (json!(""), None)]
        {
            assert_eq!(read(&json!({"On": value}), |it| it.flag("On")), expected);
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
            assert!(read(&value, |it| it.texts("Items")).is_empty());
            assert!(read(&value, |it| it.list("Items", |_| Ok(()))).is_empty());
            assert!(read(&value, |it| it.object("Inner")?.text("Id")).is_empty());
        }
        assert_eq!(read(&json!({"Items": {"Item": ["a", 1]}}), |it| it.texts("Items")), ["a", "1"]);
        assert_eq!(read(&json!({"Items": ["a"]}), |it| it.texts("Items")), ["a"]);
        let both = json!({"Tags": {"Tag": [{"TagKey": "a", "TagValue": "1"}, {"Key": "b", "Value": 2}]}});
        assert_eq!(
            read(&both, |it| it.tags()),
            LiteMap::from_iter([("a".into(), "1".into()), ("b".into(), "2".into())])
        );
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_does_not_quote_the_value() {
        let decode = |it: Fields<'_>| -> Result<(), Mismatch> {
            it.number("Count")?;
            it.text("Name")?;
            it.texts("Items")?;
            it.list("Objects", |_| Ok(()))?;
            it.flag("On")?;
            it.object("Inner").map(drop)
        };
        for value in [
            json!({"Count": "eighty private"}),
            json!({"Count": 1.5}),
            json!({"Name": ["private"]}),
            json!({"Items": "private"}),
            json!({"Items": {"A": [], "B": []}}),
            json!({"Objects": ["private"]}),
            json!({"On": "private"}),
            json!({"Inner": "private"}),
        ] {
            let error = decode(value.as_object().unwrap().into()).unwrap_err().to_string();
            assert!(error.contains("expected") && !error.contains("private"), "{value}: {error}");
        }
    }
}
