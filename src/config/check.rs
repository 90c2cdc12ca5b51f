//! From what is written to what it means, finding everything that is wrong on the way. Pure: it sees its [`Source`] and
//! nothing else.
//!
//! Steps: syntax; keys, types and ranges, by comparison with the schema; texts that stand for something else, by reading
//! into [`FileConfig`] again and again, each time without what was found wrong; meaning, in [`rules`](super::rules). A step that depends on a value with a problem is skipped, so that one mistake
//! gives one message.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use figment::error::Kind as Wrong;
use figment::value::{Dict, Num, Value};

use super::catalog::Catalog;
use super::checked::Config;
use super::file::FileConfig;
use super::layers::{Early, KeyPath, Layers, Provenance, Source, resolve};
use super::redact;
use super::report::{Place, Problem, Report};
use super::schema::{self, Kind, Shape};
use super::values::shown;
use super::{credentials, rules, tls};

/// Reports say no more than this at once.
pub(super) const MOST_PROBLEMS: usize = 100;

/// Checks a configuration; `catalog` says which controllers and actions of the cloud there are.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check(source: &Source, catalog: &Catalog) -> Result<Config, Report> {
    let mut checker = Checker::new(source);
    if !checker.is_garbled {
        let file = checker.extract();
        let config = rules::config(&mut checker, &file, catalog);
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
    if checker.is_garbled {
        return Referenced::default();
    }
    let file = checker.extract();
    let credentials = file.cloud.credentials;
    let keys = credentials::key_files(&credentials).into_iter().chain(tls::key_files(&file.server));
    Referenced {
        keys: keys.filter_map(|path| path.as_ref()).map(|path| resolve(source, path)).collect(),
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
    /// The file is not TOML, so nothing that was read from it can be relied on.
    is_garbled: bool,
}

impl<'a> Checker<'a> {
    fn new(source: &'a Source) -> Self {
        let (layers, early) = Layers::read(source);
        let stated = layers.stated();
        let mut this =
            Self { source, layers, stated, broken: BTreeSet::new(), problems: Vec::new(), is_garbled: false };
        for mistake in early.into_iter().take(MOST_PROBLEMS) {
            match mistake {
                Early::Syntax { message, span } => {
                    let place = this.in_file(&span);
                    this.is_garbled = true;
                    this.push(None, format!("the file is not valid TOML: {message}"), None, place);
                }
                Early::Value { path, message, span } => {
                    let place = this.in_file(&span);
                    this.broken.insert(path.clone());
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
        self.check_kinds();
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
        match &error.kind {
            Wrong::UnknownVariant(given, _) => {
                let shape = schema::at(path);
                let allowed = shape.map(Shape::allowed).unwrap_or_default();
                let words: Vec<&str> = shape.iter().flat_map(|shape| shape.words()).map(|(word, _)| word).collect();
                let help = nearest(given, words.into_iter()).map(|word| format!("did you mean {word:?}?"));
                self.add(path, Part::Value, format!("{key} must be {allowed}, not {}", shown(given)), help);
            }
            Wrong::Message(message) if schema::at(path).is_some_and(Shape::is_timespan) => {
                self.add(path, Part::Value, format!("{key}: {message}"), None);
            }
            _ => {
                let shape = schema::at(path);
                let allowed = shape.map_or_else(|| "something else".to_owned(), Shape::allowed);
                let given = match self.layers.merged().find_value(&path.join(".")) {
                    Ok(Value::String(_, text)) if shape.is_some_and(Shape::is_address) => {
                        format!(", not {}", shown(&text))
                    }
                    _ => String::new(),
                };
                self.add(path, Part::Value, format!("{key} must be {allowed}{given}"), None);
            }
        }
    }

    fn note_unknown(&mut self, path: &[String]) {
        let Some((name, section)) = path.split_last() else { return };
        let place = if section.is_empty() { "at the top".to_owned() } else { format!("in [{}]", join(section)) };
        self.add(path, Part::Key, format!("there is no key {} {place}", shown(name)), suggest_key(section, name));
    }

    fn note_type(&mut self, path: &[String], shape: Shape, value: &Value) {
        let in_list = path.last().is_some_and(|part| part.parse::<usize>().is_ok());
        let subject = if in_list { format!("what is listed in {}", join(&path[..path.len() - 1])) } else { join(path) };
        let given = match value {
            Value::Num(_, number) if shape.kind() == Kind::Number || (shape.is_number() && is_whole(*number)) => {
                number_text(*number)
            }
            Value::String(_, text) if shape.is_address() => shown(text),
            other => given(other).to_owned(),
        };
        self.add(path, Part::Value, format!("{subject} must be {}, not {given}", shape.allowed()), None);
    }

    /// Compares every key and value with what the schema allows.
    fn check_kinds(&mut self) {
        let Ok(dict) = self.layers.merged().extract::<Dict>() else { return };
        let mut unfit = Vec::new();
        check_kind(&mut KeyPath::new(), Some(Shape::root()), &Value::from(dict), &mut unfit);
        for (path, shape, value) in &unfit {
            match shape {
                Some(shape) => self.note_type(path, *shape, value),
                None => self.note_unknown(path),
            }
        }
        for (path, ..) in &unfit {
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
        self.broken.insert(path.to_vec());
        if path.last().is_some_and(|part| part.parse::<usize>().is_ok()) {
            self.broken.insert(path[..path.len() - 1].to_vec());
        }
        // Finding the place takes time, which a file full of mistakes would multiply.
        if self.problems.len() < MOST_PROBLEMS {
            let place = self.place(path, part);
            self.push(Some(join(path)), message, help, place);
        }
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
            match self.layers.provenance(path_here) {
                Some(Provenance::Variable(name)) => return (Place::Variable { variable: name.clone() }, None),
                Some(Provenance::Argument(key)) => return (Place::Argument { argument: format!("--set {key}") }, None),
                Some(Provenance::File) => {}
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

fn given(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) => "text",
        Value::Bool(..) => "true or false",
        Value::Num(_, number) if is_whole(*number) => "a whole number",
        Value::Num(..) => "a decimal number",
        Value::Array(..) => "a list",
        Value::Dict(..) => "a table",
        Value::Empty(..) => "nothing",
    }
}

/// A value that the schema does not allow there; without a shape the key itself is unknown.
type Unfit = (KeyPath, Option<Shape>, Value);

fn check_kind(path: &mut KeyPath, shape: Option<Shape>, value: &Value, unfit: &mut Vec<Unfit>) {
    let mut check_child = |name: &str, value: &Value| {
        path.push(name.to_owned());
        check_kind(path, shape.and_then(|shape| shape.child(name)), value, unfit);
        path.pop();
    };
    let fits = match (shape.map(Shape::kind), value) {
        (Some(Kind::Section | Kind::Map), Value::Dict(_, entries)) => {
            entries.iter().for_each(|(name, entry)| check_child(name, entry));
            true
        }
        (Some(Kind::List), Value::Array(_, items)) => {
            items.iter().enumerate().for_each(|(index, item)| check_child(&index.to_string(), item));
            true
        }
        (Some(Kind::Text), Value::String(..)) | (Some(Kind::Bool), Value::Bool(..)) => true,
        (Some(kind @ (Kind::Integer | Kind::Number)), Value::Num(_, number)) => {
            (kind == Kind::Number || is_whole(*number)) && shape.is_some_and(|shape| shape.admits(float(*number)))
        }
        _ => false,
    };
    if !fits {
        unfit.push((path.clone(), shape, value.clone()));
    }
}

fn is_whole(number: Num) -> bool {
    number.to_i128().is_some() || number.to_u128().is_some()
}

fn number_text(number: Num) -> String {
    let whole = number.to_i128().map(|whole| whole.to_string()).or(number.to_u128().map(|whole| whole.to_string()));
    whole.or(number.to_f64().map(|float| float.to_string())).unwrap_or_default()
}

/// For comparison with limits only, which are far below where precision is lost.
fn float(number: Num) -> f64 {
    number_text(number).parse().unwrap_or(f64::NAN)
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
