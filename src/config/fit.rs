//! Compares what is stated with what the schema allows: keys, types, ranges, words and the rules of text.

use std::net::IpAddr;

use toml::Value;

use super::formats;
use super::layers::{Content, KeyPath, Stated};
use super::schema::{self, Shape, ShapeKind};
use super::values::{TimeSpan, shown};

/// A key or a value that the schema does not allow.
pub(super) struct Misfit {
    pub(super) path: KeyPath,
    /// What is wrong.
    pub(super) message: String,
    /// What to do about it.
    pub(super) help: Option<String>,
    /// Whether the key itself is wrong, rather than its value.
    pub(super) is_key: bool,
}

/// What is left of `stated` without everything that does not fit; that is added to `misfits`.
pub(super) fn fit(
    path: &mut KeyPath,
    shape: Option<Shape>,
    stated: &Stated,
    misfits: &mut Vec<Misfit>,
) -> Option<Value> {
    let Some(shape) = shape else {
        misfits.push(unknown_key(path));
        return None;
    };
    let mut child = |name: String, stated: &Stated| {
        let shape = shape.child(&name);
        path.push(name);
        let value = fit(path, shape, stated, misfits);
        path.pop();
        value
    };
    match (shape.kind(), &stated.content) {
        (ShapeKind::Section | ShapeKind::Map, Content::Table(entries)) => {
            let fitting = entries.iter().filter_map(|(name, entry)| Some((name.clone(), child(name.clone(), entry)?)));
            Some(Value::Table(fitting.collect()))
        }
        (ShapeKind::List, Content::List(items)) => {
            let fitting: Vec<_> =
                items.iter().enumerate().map(|(index, item)| child(index.to_string(), item)).collect();
            fitting.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
        }
        (_, content) => match scalar(shape, content) {
            Ok(value) => Some(value),
            Err(Refusal { message, help, kept }) => {
                misfits.push(Misfit { path: path.clone(), message: about(path, &message), help, is_key: false });
                kept
            }
        },
    }
}

/// Why a value is refused; the message goes on after the key.
struct Refusal {
    message: String,
    help: Option<String>,
    /// The value, if it is of the right type all the same.
    kept: Option<Value>,
}

impl Refusal {
    fn new(message: String) -> Self {
        Self { message, help: None, kept: None }
    }
}

fn scalar(shape: Shape, content: &Content) -> Result<Value, Refusal> {
    match (shape.kind(), content) {
        (_, Content::Unusable(why)) => Err(Refusal::new(format!(": {why}"))),
        (ShapeKind::Text, Content::Scalar(value @ Value::String(text))) => fit_text(shape, text)
            .map(|()| value.clone())
            .map_err(|refusal| Refusal { kept: formats::find(shape.format()).map(|_| value.clone()), ..refusal }),
        (ShapeKind::Bool, Content::Scalar(value @ Value::Boolean(_))) => Ok(value.clone()),
        (ShapeKind::Integer | ShapeKind::Number, Content::Scalar(value @ Value::Integer(number))) => {
            within(shape, &number.to_string()).map(|()| value.clone())
        }
        (ShapeKind::Number, Content::Scalar(value @ Value::Float(number))) => {
            within(shape, &number.to_string()).map(|()| value.clone())
        }
        (_, content) => Err(Refusal::new(format!(" must be {}, not {}", shape.allowed(), described(content)))),
    }
}

/// The limits are far below where the precision of `f64` is lost.
fn within(shape: Shape, number: &str) -> Result<(), Refusal> {
    if number.parse().is_ok_and(|number| shape.admits(number)) {
        return Ok(());
    }
    Err(Refusal::new(format!(" must be {}, not {number}", shape.allowed())))
}

fn fit_text(shape: Shape, text: &str) -> Result<(), Refusal> {
    if shape.is_timespan() {
        let given: TimeSpan = text.parse().map_err(|message| Refusal::new(format!(": {message}")))?;
        return match shape.time_limits() {
            Some((least, most)) if !shape.admits_time(given) => {
                Err(Refusal::new(format!(" must be from {least} to {most}, not {given}")))
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
    Err(Refusal { help, ..Refusal::new(format!(" must be {allowed}, not {}", shown(text))) })
}

fn described(content: &Content) -> &'static str {
    match content {
        Content::Table(_) => "a table",
        Content::List(_) => "a list",
        Content::Scalar(Value::String(_)) => "text",
        Content::Scalar(Value::Boolean(_)) => "true or false",
        Content::Scalar(Value::Integer(_)) => "a whole number",
        Content::Scalar(_) | Content::Unusable(_) => "a decimal number",
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
    Misfit { path: path.to_vec(), message, help: suggest_key(section, name), is_key: true }
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
    let bare =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let parts = path.iter().map(|name| if bare(name) { name.clone() } else { format!("{name:?}") });
    parts.collect::<Vec<_>>().join(".")
}

/// A suggestion, if a candidate is close enough to have been meant.
pub(super) fn did_you_mean<'c>(given: &str, candidates: impl Iterator<Item = &'c str>) -> Option<String> {
    let given: String = given.chars().take(60).flat_map(char::to_lowercase).collect();
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let distance = |candidate: &str| strsim::damerau_levenshtein(&plain(&given), &plain(candidate));
    let near = candidates.map(|candidate| (distance(candidate), candidate));
    let near = near.filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1));
    near.min().map(|(_, candidate)| format!("did you mean {candidate:?}?"))
}
