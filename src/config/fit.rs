//! Compares what is stated with what the schema allows: keys, types, ranges, words and the rules of text.

use std::collections::BTreeSet;
use std::net::IpAddr;

use figment::value::{Empty, Num, Value};

use super::formats;
use super::layers::{DATE, KeyPath, TOO_LARGE};
use super::redact::is_name;
use super::schema::{self, LONGEST_LIST, Shape, ShapeKind};
use super::values::{TimeSpan, shown};
use crate::plan::loadbalancer::problem::did_you_mean;

/// A key or a value that the schema does not allow.
#[derive(Default)]
pub(super) struct Misfit {
    pub(super) path: KeyPath,
    /// What is wrong.
    pub(super) message: String,
    /// What to do about it.
    pub(super) help: Option<String>,
    /// Whether the key itself is wrong, rather than its value.
    pub(super) is_key: bool,
    /// Whether the value was copied from an example.
    pub(super) is_placeholder: bool,
}

impl Misfit {
    fn new(message: String) -> Self {
        Self { message, ..Self::default() }
    }
}

/// What is left of `value` without everything that does not fit; that is added to `misfits`.
pub(super) fn fit(path: &mut KeyPath, shape: Option<Shape>, value: &Value, misfits: &mut Vec<Misfit>) -> Option<Value> {
    let Some(shape) = shape else {
        misfits.push(unknown_key(path));
        return None;
    };
    let mut child = |name: String, value: &Value| {
        let shape = shape.child(&name);
        path.push(name);
        let value = fit(path, shape, value, misfits);
        path.pop();
        value
    };
    match (shape.kind(), value) {
        // The default of a key that may be absent.
        (_, Value::Empty(_, Empty::None)) => None,
        (ShapeKind::Section | ShapeKind::Map, Value::Dict(tag, entries)) => {
            let fitting = entries.iter().filter_map(|(name, entry)| Some((name.clone(), child(name.clone(), entry)?)));
            Some(Value::Dict(*tag, fitting.collect()))
        }
        (ShapeKind::List, Value::Array(tag, items)) => {
            let fitting: Vec<_> =
                items.iter().enumerate().map(|(index, item)| child(index.to_string(), item)).collect();
            if items.len() > LONGEST_LIST {
                let message = format!("{} may list {LONGEST_LIST} at most, not {}", join(path), items.len());
                misfits.push(Misfit { path: path.clone(), ..Misfit::new(message) });
                return None;
            }
            misfits.extend(repetitions(path, shape, items));
            fitting.into_iter().collect::<Option<Vec<_>>>().map(|items| Value::Array(*tag, items))
        }
        (_, value) => match scalar(shape, value) {
            Ok(()) => Some(value.clone()),
            Err(misfit) => {
                let message = about(path, &misfit.message);
                misfits.push(Misfit { path: path.clone(), message, ..misfit });
                // Of the right type all the same.
                let is_kept = matches!((shape.kind(), value), (ShapeKind::Text, Value::String(..)));
                formats::find(shape.format()).filter(|_| is_kept).map(|_| value.clone())
            }
        },
    }
}

/// Items that a list has already. Where items can mean the same without being the same, `rules` compares what they mean.
fn repetitions(path: &KeyPath, shape: Shape, items: &[Value]) -> Vec<Misfit> {
    let is_plain = shape.child("").is_some_and(|item| !item.format().is_empty() || !item.words().is_empty());
    let mut seen = BTreeSet::new();
    let texts = items.iter().enumerate().filter_map(|(index, item)| Some((index, item.as_str()?)));
    let again = texts.filter(|(_, text)| is_plain && !seen.insert(*text));
    let misfit = |(index, text): (usize, &str)| {
        let message = format!("{} lists {} twice", join(path), shown(text));
        Misfit { path: [path.as_slice(), &[index.to_string()]].concat(), ..Misfit::new(message) }
    };
    again.map(misfit).collect()
}

/// Why a value is refused; the message goes on after the key.
fn scalar(shape: Shape, value: &Value) -> Result<(), Misfit> {
    match (shape.kind(), value) {
        (_, Value::Empty(_, DATE)) => Err(Misfit::new(": no key takes a date".to_owned())),
        (_, Value::Num(_, number)) if *number == TOO_LARGE => Err(Misfit::new(": the number is too large".to_owned())),
        (ShapeKind::Text, Value::String(_, text)) => fit_text(shape, text),
        (ShapeKind::Bool, Value::Bool(..)) => Ok(()),
        (ShapeKind::Number, Value::Num(_, number)) => within(shape, *number),
        (ShapeKind::Integer, Value::Num(_, number)) if number.to_f64().is_none() => within(shape, *number),
        (_, value) => Err(Misfit::new(format!(" must be {}, not {}", shape.allowed(), described(value)))),
    }
}

/// The limits are far below where the precision of `f64` is lost.
fn within(shape: Shape, number: Num) -> Result<(), Misfit> {
    let text = match (number.to_f64(), number.to_i128(), number.to_u128()) {
        (Some(number), ..) => number.to_string(),
        (_, Some(number), _) => number.to_string(),
        (.., number) => number.unwrap_or_default().to_string(),
    };
    if text.parse().is_ok_and(|number| shape.admits(number)) {
        return Ok(());
    }
    Err(Misfit::new(format!(" must be {}, not {text}", shape.allowed())))
}

/// Whether a text was copied from an example: the word of the shipped files, an id of the manual, or the key's own example.
pub(super) fn is_placeholder(text: &str, own: Option<&str>) -> bool {
    text == "change-me" || text.ends_with("bp1example") || (text.contains("example") && own == Some(text))
}

fn fit_text(shape: Shape, text: &str) -> Result<(), Misfit> {
    if is_placeholder(text, shape.example().and_then(|example| example.as_str())) {
        let allowed = formats::find(shape.format()).map_or("a value of your own", |format| format.allowed);
        let help = Some(format!("state {allowed}"));
        let message = format!(" must not be the placeholder {}", shown(text));
        return Err(Misfit { help, is_placeholder: true, ..Misfit::new(message) });
    }
    if shape.is_timespan() {
        let given: TimeSpan = text.parse().map_err(|message| Misfit::new(format!(": {message}")))?;
        return match shape.time_limits() {
            Some((least, most)) if !shape.admits_time(given) => {
                Err(Misfit::new(format!(" must be from {least} to {most}, not {given}")))
            }
            _ => Ok(()),
        };
    }
    let words = shape.words();
    let mut help = None;
    let allowed = if !words.is_empty() && !words.iter().any(|(word, _)| *word == text) {
        help = did_you_mean(text, words.into_iter().map(|(word, _)| word));
        shape.allowed()
    } else if shape.format() == "ip" && text.parse::<IpAddr>().is_err() {
        shape.allowed()
    } else if let Some(format) = formats::find(shape.format()).filter(|format| !(format.fits)(text)) {
        format.allowed.to_owned()
    } else {
        return Ok(());
    };
    Err(Misfit { help, ..Misfit::new(format!(" must be {allowed}, not {}", shown(text))) })
}

fn described(value: &Value) -> &'static str {
    match value {
        Value::Dict(..) => "a table",
        Value::Array(..) => "a list",
        Value::Bool(..) => "true or false",
        Value::Num(_, number) if number.to_f64().is_none() => "a whole number",
        Value::Num(..) => "a decimal number",
        _ => "text",
    }
}

/// A message that begins with what it is about. An item of a list is called by the key of the list.
fn about(path: &[String], message: &str) -> String {
    match path.split_last() {
        Some((_, list)) if is_item(path) && message.starts_with(" must") => {
            format!("what is listed in {}{message}", join(list))
        }
        _ => format!("{}{message}", join(path)),
    }
}

/// Whether a path leads to an item of a list.
pub(super) fn is_item(path: &[String]) -> bool {
    path.last().is_some_and(|part| part.parse::<usize>().is_ok())
}

fn unknown_key(path: &[String]) -> Misfit {
    let (name, section) = path.split_last().map_or(("", path), |(name, section)| (name.as_str(), section));
    let place = if section.is_empty() { "at the top".to_owned() } else { format!("in [{}]", join(section)) };
    let message = format!("there is no key {} {place}", shown(name));
    Misfit { path: path.to_vec(), help: suggest_key(section, name), is_key: true, ..Misfit::new(message) }
}

fn suggest_key(section: &[String], name: &str) -> Option<String> {
    let here = schema::at(section)?.names();
    if let Some(near) = did_you_mean(name, here.into_iter()) {
        return Some(near);
    }
    let elsewhere = schema::leaves().iter().find(|path| path.last().is_some_and(|leaf| leaf == name))?;
    let (_, section) = elsewhere.split_last()?;
    Some(if section.is_empty() {
        format!("{name:?} belongs at the top of the file, before the first section")
    } else {
        format!("{name:?} belongs in [{}]", join(section))
    })
}

/// A key as it would be written.
pub(super) fn join(path: &[String]) -> String {
    let bare = |name: &str| !name.is_empty() && name.chars().all(is_name);
    let parts = path.iter().map(|name| if bare(name) { name.clone() } else { format!("{name:?}") });
    parts.collect::<Vec<_>>().join(".")
}
