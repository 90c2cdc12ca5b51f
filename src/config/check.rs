//! From what is written to what it means, finding everything that is wrong on the way. Pure: it sees its [`Source`] and
//! nothing else.
//!
//! Three steps: syntax; keys and types, by reading into [`FileConfig`] again and again, each time without what was found
//! wrong; meaning, in [`rules`](super::rules). A step that depends on a value with a problem is skipped, so that one mistake
//! gives one message.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use figment::error::Kind as Wrong;
use figment::value::Value;

use super::checked::Config;
use super::file::FileConfig;
use super::layers::{Early, KeyPath, Layers, Origin, Source, resolve};
use super::redact::{self, HIDDEN};
use super::report::{Place, Problem, Report};
use super::schema::{self, Kind};
use super::{credentials, rules};

/// Reports say no more than this at once.
const MOST_PROBLEMS: usize = 100;

/// Checks a configuration.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check(source: &Source) -> Result<Config, Report> {
    let mut checker = Checker::new(source);
    if checker.problems.is_empty() {
        let file = checker.extract();
        let config = rules::config(&mut checker, &file);
        if checker.problems.is_empty() {
            return Ok(config);
        }
    }
    Err(checker.report())
}

/// Files that a configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referenced {
    /// Key files, which must be read before the configuration can be checked.
    pub keys: Vec<PathBuf>,
    /// Files that are read while the program runs.
    pub others: Vec<PathBuf>,
}

/// The files that a configuration names, whatever else may be wrong with it.
#[must_use]
pub fn referenced(source: &Source) -> Referenced {
    let mut checker = Checker::new(source);
    if !checker.problems.is_empty() {
        return Referenced::default();
    }
    let credentials = checker.extract().cloud.credentials;
    let keys = credentials::key_files(&credentials);
    Referenced {
        keys: keys.iter().filter_map(|path| path.as_ref()).map(|path| resolve(source, path)).collect(),
        others: credentials.oidc_token_file.iter().map(|path| resolve(source, path)).collect(),
    }
}

/// Which part of a key's line is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Value,
}

/// The state of one check.
pub(super) struct Checker<'a> {
    pub(super) source: &'a Source,
    layers: Layers,
    stated: BTreeSet<String>,
    broken: BTreeSet<KeyPath>,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn new(source: &'a Source) -> Self {
        let (layers, early) = Layers::read(source);
        let stated = layers.stated();
        let mut this = Self { source, layers, stated, broken: BTreeSet::new(), problems: Vec::new() };
        for mistake in early.into_iter().take(MOST_PROBLEMS) {
            match mistake {
                Early::Syntax { message, span } => {
                    let place = this.in_file(&span);
                    this.push(None, format!("the file is not valid TOML: {message}"), None, place);
                }
                Early::Value { path, message, span } => {
                    let place = this.in_file(&span);
                    this.push(Some(join(&path)), format!("{}: {message}", join(&path)), None, place);
                }
                Early::Argument { number } => {
                    let place = (Place::Argument { argument: format!("--set number {number}") }, None);
                    let help = "write --set section.key=value".to_owned();
                    this.push(None, "the argument does not name a key and a value".to_owned(), Some(help), place);
                }
            }
        }
        this
    }

    fn report(self) -> Report {
        let files = self.source.files.values().filter_map(|file| file.text());
        let secrets: Vec<&str> = self.layers.secrets().into_iter().chain(files).collect();
        Report::new(&self.source.path, self.problems, &secrets)
    }

    /// Reads what is written. Whatever is wrong is noted and has its default.
    fn extract(&mut self) -> FileConfig {
        self.check_ranges();
        while self.problems.len() < MOST_PROBLEMS {
            let error = match self.layers.merged().extract::<FileConfig>() {
                Ok(file) => return file,
                Err(error) => error,
            };
            self.note(&error);
            if !self.forget(&error.path) {
                break;
            }
        }
        FileConfig::default()
    }

    fn note(&mut self, error: &figment::Error) {
        let path = &error.path;
        let key = join(path);
        let hidden = path.last().is_some_and(|name| HIDDEN.contains(&name.as_str()));
        match &error.kind {
            Wrong::UnknownField(..) => {
                let name = path.last().map(String::as_str).unwrap_or_default();
                let section = &path[..path.len().saturating_sub(1)];
                let place =
                    if section.is_empty() { "at the top".to_owned() } else { format!("in [{}]", join(section)) };
                self.add(path, Part::Key, format!("there is no key {name:?} {place}"), suggest_key(section, name));
            }
            Wrong::UnknownVariant(given, _) => {
                let shape = schema::at(path);
                let allowed = shape.map(schema::Shape::allowed).unwrap_or_default();
                let words: Vec<&str> = shape.iter().flat_map(|shape| shape.words()).map(|(word, _)| word).collect();
                let help = nearest(given, words.into_iter()).map(|word| format!("did you mean {word:?}?"));
                self.add(path, Part::Value, format!("{key} must be {allowed}, not {}", shown(given)), help);
            }
            Wrong::Message(message) if !hidden && schema::at(path).is_some_and(|shape| shape.is_timespan()) => {
                self.add(path, Part::Value, format!("{key}: {message}"), None);
            }
            _ => self.note_type(path),
        }
    }

    /// Notes a value of the wrong type, and in a list all of them.
    fn note_type(&mut self, path: &[String]) {
        let (list, in_list) = match path.split_last() {
            Some((index, list))
                if index.parse::<usize>().is_ok() && schema::at(list).is_some_and(|s| s.kind() == Kind::List) =>
            {
                (list, true)
            }
            _ => (path, false),
        };
        let Ok(value) = self.layers.merged().find_value(&list.join(".")) else {
            let place = (Place::Whole { file: self.source.path.clone() }, None);
            return self.push(Some(join(path)), format!("{} cannot be read", join(path)), None, place);
        };
        let allowed = schema::at(path).map_or_else(|| "something else".to_owned(), schema::Shape::allowed);
        if let (true, Value::Array(_, items)) = (in_list, &value) {
            for (index, item) in items.iter().enumerate().filter(|(_, item)| !matches!(item, Value::String(..))) {
                let path: KeyPath = list.iter().cloned().chain([index.to_string()]).collect();
                let message = format!("what is listed in {} must be {allowed}, not {}", join(list), given(item));
                self.add(&path, Part::Value, message, None);
            }
        } else {
            let text = match &value {
                Value::String(_, text) if schema::at(path).is_some_and(|shape| shape.is_address()) => shown(text),
                _ => given(&value).to_owned(),
            };
            self.add(path, Part::Value, format!("{} must be {allowed}, not {text}", join(path)), None);
        }
    }

    /// Compares every number with what the schema allows.
    fn check_ranges(&mut self) {
        for path in schema::leaves() {
            let Some(shape) = schema::at(path).filter(|shape| matches!(shape.kind(), Kind::Integer | Kind::Number))
            else {
                continue;
            };
            let Ok(Value::Num(_, number)) = self.layers.merged().find_value(&path.join(".")) else {
                continue;
            };
            let whole = number.to_i128().is_some() || number.to_u128().is_some();
            #[allow(clippy::cast_precision_loss, reason = "limits are far below where precision is lost")]
            let value = number.to_f64().or(number.to_i128().map(|n| n as f64)).or(number.to_u128().map(|n| n as f64));
            let fits = value.is_some_and(|value| shape.admits(value));
            if (shape.kind() == Kind::Integer && !whole) || fits {
                continue;
            }
            let given = value.map(|value| value.to_string()).unwrap_or_default();
            self.bad(&path.join("."), format!("must be {}, not {given}", shape.allowed()));
            self.forget(path);
        }
    }

    fn forget(&mut self, path: &[String]) -> bool {
        self.layers.forget(path)
    }

    /// Notes a problem with the value of a key; `message` goes on after the key.
    pub(super) fn bad(&mut self, key: &str, message: impl Into<String>) {
        self.bad_with(key, message, None);
    }

    /// The same, with something to do about it.
    pub(super) fn bad_with(&mut self, key: &str, message: impl Into<String>, help: Option<String>) {
        let path: KeyPath = key.split('.').map(str::to_owned).collect();
        let name = if path.last().is_some_and(|part| part.parse::<usize>().is_ok()) {
            join(&path[..path.len() - 1])
        } else {
            join(&path)
        };
        self.add(&path, Part::Value, format!("{name} {}", message.into()), help);
    }

    /// Notes a problem with an entry of a table whose keys the user chooses.
    pub(super) fn bad_entry(&mut self, section: &str, entry: &str, message: impl Into<String>) {
        let path: KeyPath = section.split('.').chain([entry]).map(str::to_owned).collect();
        self.add(&path, Part::Value, format!("{section}: {}", message.into()), None);
    }

    /// Whether none of these keys has a problem yet.
    pub(super) fn sound(&self, keys: &[&str]) -> bool {
        !self.broken.iter().any(|path| keys.contains(&join(path).as_str()))
    }

    /// Whether anybody speaks of the key.
    pub(super) fn states(&self, key: &str) -> bool {
        self.stated.contains(key)
    }

    fn add(&mut self, path: &[String], part: Part, message: String, help: Option<String>) {
        let place = self.place(path, part);
        self.broken.insert(path.to_vec());
        if path.last().is_some_and(|part| part.parse::<usize>().is_ok()) {
            self.broken.insert(path[..path.len() - 1].to_vec());
        }
        self.push(Some(join(path)), message, help, place);
    }

    fn push(&mut self, key: Option<String>, message: String, help: Option<String>, place: Located) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { message, help, key, place: place.0, excerpt: place.1 });
        }
    }

    /// Where the key is written; for what is not written, the section that it is missing from.
    fn place(&self, path: &[String], part: Part) -> Located {
        for length in (1..=path.len()).rev() {
            let path_here = &path[..length];
            match self.layers.origin(path_here) {
                Some(Origin::Variable(name)) => return (Place::Variable { variable: name.clone() }, None),
                Some(Origin::Argument(key)) => return (Place::Argument { argument: format!("--set {key}") }, None),
                Some(Origin::File) => {}
                None => continue,
            }
            if let Some(spans) = self.layers.spans(path_here) {
                let span = if part == Part::Key || length < path.len() { &spans.key } else { &spans.value };
                return self.in_file(span);
            }
        }
        (Place::Whole { file: self.source.path.clone() }, None)
    }

    fn in_file(&self, span: &Range<usize>) -> Located {
        let excerpt = redact::excerpt(&self.source.text, span, &self.layers.secret_spans());
        let place = Place::File { file: self.source.path.clone(), line: excerpt.line, column: excerpt.column };
        (place, Some(excerpt))
    }
}

type Located = (Place, Option<redact::Excerpt>);

/// A key as it would be written.
fn join(path: &[String]) -> String {
    let bare =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let parts = path.iter().map(|name| if bare(name) { name.clone() } else { format!("{name:?}") });
    parts.collect::<Vec<_>>().join(".")
}

/// A value as it is quoted in a message: escaped, and not endless.
pub(super) fn shown(value: &str) -> String {
    match value.char_indices().nth(60) {
        None => format!("{value:?}"),
        Some((at, _)) => format!("{:?}...", &value[..at]),
    }
}

fn given(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) => "text",
        Value::Bool(..) => "true or false",
        Value::Num(_, number) if number.to_i128().is_some() || number.to_u128().is_some() => "a whole number",
        Value::Num(..) => "a number with a fraction",
        Value::Array(..) => "a list",
        Value::Dict(..) => "a table",
        Value::Empty(..) => "nothing",
    }
}

fn suggest_key(section: &[String], name: &str) -> Option<String> {
    let here = schema::at(section)?.names();
    if let Some(near) = nearest(name, here.into_iter()) {
        return Some(format!("did you mean {near:?}?"));
    }
    let elsewhere = schema::leaves().iter().find(|path| path.last().is_some_and(|leaf| leaf == name))?;
    let (_, section) = elsewhere.split_last()?;
    Some(if section.is_empty() {
        format!("{name:?} belongs at the top of the file, before the first section")
    } else {
        format!("{name:?} belongs in [{}]", join(section))
    })
}

/// The candidate that is close enough to have been meant.
pub(super) fn nearest<'c>(given: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let given: String = given.chars().take(60).flat_map(char::to_lowercase).collect();
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let distance = |candidate: &str| strsim::damerau_levenshtein(&plain(&given), &plain(candidate));
    candidates
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}
