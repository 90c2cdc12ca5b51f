//! Label and field selectors.

use serde_json::Value;

use super::failure::Failure;
use super::resources::Resource;

/// What a list or watch wants to see.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

impl Selector {
    /// Reads the `labelSelector` and `fieldSelector` parameters for a resource.
    pub(super) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Selector, Failure> {
        let labels = split_outside_parentheses(labels)
            .into_iter()
            .filter(|term| !term.trim().is_empty())
            .map(|term| requirement(term.trim()))
            .collect::<Result<_, _>>()?;
        let fields = fields
            .split(',')
            .filter(|term| !term.trim().is_empty())
            .map(|term| field_term(resource, term.trim()))
            .collect::<Result<_, _>>()?;
        Ok(Selector { labels, fields })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(object))
            && self.fields.iter().all(|(field, equal, value)| (field_value(object, field) == *value) == *equal)
    }
}

impl Requirement {
    fn holds(&self, object: &Value) -> bool {
        let label =
            |key: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str);
        match self {
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
            Requirement::In(key, values) => label(key).is_some_and(|value| values.iter().any(|one| one == value)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|value| values.iter().all(|one| one != value)),
            Requirement::Greater(key, bound) => number(label(key)).is_some_and(|value| value > *bound),
            Requirement::Less(key, bound) => number(label(key)).is_some_and(|value| value < *bound),
        }
    }
}

fn number(label: Option<&str>) -> Option<i64> {
    label?.parse().ok()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(term: &str) -> Result<Requirement, Failure> {
    let unreadable =
        || Failure::bad_request(format!("unable to parse requirement: found {term:?}, expected: a label selector"));
    let key = |text: &str| {
        let text = text.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if text.is_empty() || !text.chars().all(plain) { Err(unreadable()) } else { Ok(text.to_owned()) }
    };
    if let Some(list) = term.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or_else(unreadable)?;
        let values = list.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let name = key(words.next().unwrap_or_default())?;
        return match words.next() {
            Some("in") => Ok(Requirement::In(name, values)),
            Some("notin") => Ok(Requirement::NotIn(name, values)),
            _ => Err(unreadable()),
        };
    }
    if let Some(rest) = term.strip_prefix('!') {
        return Ok(Requirement::Missing(key(rest)?));
    }
    if let Some((name, value)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, bound)) = term.split_once('>') {
        return Ok(Requirement::Greater(key(name)?, bound.trim().parse().map_err(|_| unreadable())?));
    }
    if let Some((name, bound)) = term.split_once('<') {
        return Ok(Requirement::Less(key(name)?, bound.trim().parse().map_err(|_| unreadable())?));
    }
    Ok(Requirement::Exists(key(term)?))
}

fn field_term(resource: &Resource, term: &str) -> Result<(String, bool, String), Failure> {
    let (field, equal, value) = if let Some((field, value)) = term.split_once("!=") {
        (field, false, value)
    } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (field, true, value)
    } else {
        return Err(Failure::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")));
    };
    let known = field == "metadata.name"
        || (resource.namespaced && field == "metadata.namespace")
        || resource.field_labels.contains(&field);
    if known {
        Ok((field.to_owned(), equal, value.replace("\\,", ",").replace("\\=", "=")))
    } else {
        Err(Failure::bad_request(format!("field label not supported: {field}")))
    }
}

fn field_value(object: &Value, field: &str) -> String {
    let pointer = match field {
        "source" => "/source/component".to_owned(),
        _ => format!("/{}", field.replace('.', "/")),
    };
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        None if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::resources::named;

    fn selects(labels: &str, fields: &str) -> bool {
        let node = json!({
            "metadata": { "name": "a", "labels": { "zone": "b", "size": "3", "example.com/x": "" } },
            "spec": {},
        });
        Selector::parse(named("node").unwrap(), labels, fields).unwrap().matches(&node)
    }

    #[test]
    fn labels() {
        for yes in ["", "zone", "zone=b", "zone==b", "zone in (a,b),size", "zone notin (a)", "!other", "other!=x"] {
            assert!(selects(yes, ""), "{yes}");
        }
        for yes in ["size>2", "size<4", "example.com/x", "example.com/x=", "other notin (x)"] {
            assert!(selects(yes, ""), "{yes}");
        }
        for no in ["!zone", "zone=a", "zone!=b", "zone in (a)", "zone,other", "size>3", "zone notin (a, b)"] {
            assert!(!selects(no, ""), "{no}");
        }
    }

    #[test]
    fn fields() {
        assert!(selects("", "metadata.name=a,spec.unschedulable=false"));
        assert!(!selects("", "metadata.name!=a"));
        let unknown = Selector::parse(named("node").unwrap(), "", "spec.podCIDR=x").unwrap_err();
        assert_eq!((unknown.code, unknown.message.as_str()), (400, "field label not supported: spec.podCIDR"));
        assert_eq!(Selector::parse(named("node").unwrap(), "a in b", "").unwrap_err().code, 400);
    }
}
