//! Whether an answer of the simulator is what the cloud answered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::scrub::is_kept;
use super::{Exchange, is_own};

/// States that pass by themselves.
const ON_THE_WAY: [&str; 8] =
    ["Adding", "Configuring", "Creating", "Deleting", "Pending", "Processing", "Provisioning", "Removing"];

/// What the placeholders of a trace stand for in the simulator.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    bound: BTreeMap<String, String>,
    /// What the client named or made, as the trace knows it.
    own: BTreeSet<String>,
    /// Where the cloud was not done yet in the last answer, and the simulator was.
    pub(super) on_the_way: Vec<String>,
}

impl Comparison {
    pub(super) fn new(own: BTreeSet<String>) -> Self {
        Self { bound: BTreeMap::new(), own, on_the_way: Vec::new() }
    }

    /// A text of the trace as the simulator knows it.
    pub(super) fn real(&self, text: &str) -> String {
        if !text.contains('#') {
            return text.to_owned();
        }
        self.bound.iter().fold(text.to_owned(), |text, (shown, real)| text.replace(shown, real))
    }

    /// Where the simulator's answer differs from the recorded one. What the simulator does not mention is not compared.
    pub(super) fn answers(&mut self, exchange: &Exchange, simulated: &Value) -> Vec<String> {
        let mut details = Vec::new();
        if exchange.form_only {
            form("", &exchange.answer, simulated, &mut details);
        } else {
            self.value("", &exchange.answer, simulated, &mut details);
        }
        details
    }

    fn value(&mut self, path: &str, cloud: &Value, simulated: &Value, details: &mut Vec<String>) {
        match (cloud, simulated) {
            (_, Value::Object(fields)) => {
                for (name, value) in fields.iter().filter(|(name, _)| is_kept(name)) {
                    self.value(&format!("{path}/{name}"), &cloud[name.as_str()], value, details);
                }
            }
            (Value::Array(items), Value::Array(others)) => self.items(path, items, others, details),
            _ => {
                let (real, said) = (text(cloud), text(simulated));
                if !self.same(&real, &said) {
                    let is_on_the_way = path.ends_with("Status") && ON_THE_WAY.contains(&real.as_str());
                    let found = if is_on_the_way { &mut self.on_the_way } else { details };
                    found.push(format!("{path}: the cloud {real:?}, the simulator {said:?}"));
                }
            }
        }
    }

    /// The order of lists says nothing. An item that fits none of the simulator's is compared with what is left of these.
    fn items(&mut self, path: &str, items: &[Value], others: &[Value], details: &mut Vec<String>) {
        let mut left: Vec<&Value> = others.iter().collect();
        let mut unlike = Vec::new();
        for item in items {
            let fits = |other: &&Value| {
                let mut differing = Vec::new();
                self.clone().value(path, item, other, &mut differing);
                differing.is_empty()
            };
            match left.iter().position(fits) {
                Some(position) => self.value(path, item, left.remove(position), details),
                None => unlike.push(item),
            }
        }
        // A trace has nothing of what was there before and not named.
        let own = self.own.iter().map(|it| self.real(it)).collect();
        let name = path.rsplit('/').next().unwrap_or(path);
        left.retain(|other| is_own(name, other, &own));
        if unlike.len() == left.len() {
            unlike.into_iter().zip(left).for_each(|(item, other)| self.value(path, item, other, details));
        } else {
            let simulated = items.len() - unlike.len() + left.len();
            details.push(format!("{path}: the cloud has {}, the simulator {simulated}", items.len()));
        }
    }

    /// Whether the texts are the same, or the first is a placeholder that can stand for the second.
    fn same(&mut self, cloud: &str, simulated: &str) -> bool {
        let expected = self.real(cloud);
        if !(expected.starts_with(|first: char| first.is_ascii_alphabetic()) && expected.ends_with('#')) {
            return expected == simulated;
        }
        // Two things of the cloud are not one of the simulator's.
        if simulated.is_empty() || self.bound.values().any(|known| known == simulated) {
            return false;
        }
        self.bound.insert(cloud.to_owned(), simulated.to_owned());
        true
    }
}

/// Whether the answers have the same fields of the same types.
fn form(path: &str, cloud: &Value, simulated: &Value, details: &mut Vec<String>) {
    match (cloud, simulated) {
        (_, Value::Object(fields)) => {
            for (name, value) in fields.iter().filter(|(name, _)| is_kept(name)) {
                form(&format!("{path}/{name}"), &cloud[name.as_str()], value, details);
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            if let (Some(item), Some(other)) = (items.first(), others.first()) {
                form(path, item, other, details);
            }
        }
        (Value::Array(_) | Value::Object(_), other) if !other.is_null() => {
            details.push(format!("{path}: the cloud has another form than the simulator's {other}"));
        }
        (Value::Null, other) if !text(other).is_empty() => {
            details.push(format!("{path}: the cloud does not have it, the simulator {other}"));
        }
        _ => {}
    }
}

/// The client reads numbers, truth values and texts alike, and what is absent as empty.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => String::new(),
        Value::Object(fields) if fields.is_empty() => String::new(),
        other => other.to_string(),
    }
}
