//! Merges the defaults, the file, the environment and the command line into one tree. Each value knows which layer set it.

use std::collections::BTreeMap;
use std::ops::Range;

use figment::providers::Serialized;
use figment::value::{Dict, Empty, Map, Num, Value};
use figment::{Error, Figment, Metadata, Profile, Provider, Source};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::catalog::Catalog;
use super::file::FileConfig;
use super::redact::{HIDDEN, is_open};
use super::schema::{self, Shape, ShapeKind};
use super::source::{ConfigPurpose, ConfigSource};

/// Variables of this prefix name a key: `ALICLOUD_CCM__CLOUD__REGION` is `cloud.region`.
pub const VARIABLE_PREFIX: &str = "ALICLOUD_CCM__";

/// Variables that the official controller reads too, and the keys that they set.
pub const KNOWN_VARIABLES: [(&str, &str); 6] = [
    ("ECS_ENDPOINT", "cloud.endpoints.ecs"),
    ("VPC_ENDPOINT", "cloud.endpoints.vpc"),
    ("SLB_ENDPOINT", "cloud.endpoints.slb"),
    ("NLB_ENDPOINT", "cloud.endpoints.nlb"),
    ("ALICLOUD_CLIENT_SCHEME", "cloud.endpoints.scheme"),
    ("METADATA_ENDPOINT", "cloud.endpoints.metadata"),
];

/// Ways to state credentials in the environment, best first. One is used if all its names are set except those of
/// optional keys, and only if nothing else states credentials of another kind.
pub const CREDENTIAL_VARIABLES: [&[(&str, &str)]; 3] = [
    &[
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "access_key_id"),
        ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "access_key_secret"),
        ("ALIBABA_CLOUD_SECURITY_TOKEN", "security_token"),
    ],
    &[("ACCESS_KEY_ID", "access_key_id"), ("ACCESS_KEY_SECRET", "access_key_secret")],
    &[
        ("ALIBABA_CLOUD_ROLE_ARN", "role_arn"),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "oidc_provider_arn"),
        ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "oidc_token_file"),
        ("ALIBABA_CLOUD_ROLE_SESSION_NAME", "role_session_name"),
    ],
];

const OPTIONAL_CREDENTIALS: [&str; 2] = ["security_token", "role_session_name"];

/// Keys that say which kind of credentials is meant; with one of them stated, those of the environment are ignored.
const DECISIVE_CREDENTIALS: &str = "access_key_id access_key_secret access_key_id_file access_key_secret_file security_token \
    security_token_file oidc_provider_arn oidc_token_file instance_role";

/// Segments of a key.
pub(super) type KeyPath = Vec<String>;

/// What set a value.
#[derive(Debug)]
pub(super) enum SetBy {
    /// The file, at these spans.
    File { key: Range<usize>, value: Range<usize> },
    /// The environment variable of that name.
    Variable(String),
    /// The argument about that key.
    Argument(String),
}

const FILE: &str = "file";
const VARIABLE: &str = "environment variable";
const ARGUMENT: &str = "argument";

/// What one layer states.
struct Layer {
    metadata: Metadata,
    dict: Dict,
}

impl Layer {
    /// Sets one key to what a text from outside of the file stands for. `name` is that of the variable or the argument.
    fn of_key(kind: &'static str, name: &str, path: &[String], text: &str) -> Self {
        let nest = |inner: Value, key: &String| Value::from(Dict::from([(key.clone(), inner)]));
        let nested = path.iter().rev().fold(read_text(schema::at(path), text), nest);
        Self { metadata: Metadata::from(kind, name), dict: nested.into_dict().unwrap_or_default() }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

/// All layers as one: a stronger one replaces a weaker one, except that tables are merged.
pub(super) struct Layers<'a> {
    merged: Figment,
    pub(super) root: Value,
    document: Spanned<DeTable<'a>>,
    /// Where the file is not TOML, and why. Nothing that was read from it can be relied on then.
    pub(super) syntax_errors: Vec<(String, Range<usize>)>,
    /// Numbers of the arguments that are not `key=value`.
    pub(super) unreadable_arguments: Vec<usize>,
    /// Texts that are secret wherever they appear, replaced ones included.
    pub(super) secrets: Vec<String>,
    /// Where values that may be secret are written in the file; `None` if it is not TOML.
    pub(super) secret_spans: Option<Vec<Range<usize>>>,
}

impl<'a> Layers<'a> {
    /// Reads all layers.
    pub(super) fn read(source: &'a ConfigSource, catalog: &Catalog) -> Self {
        let (document, errors) = DeTable::parse_recoverable(source.text());
        let mut file = Layer { metadata: Metadata::named(FILE), dict: read_table(document.get_ref()) };
        if source.purpose != ConfigPurpose::Here && !read_credentials(&source.environment, &Figment::new()).is_empty() {
            file.dict.entry("cloud".to_owned()).and_modify(|cloud| {
                if let Value::Dict(_, cloud) = cloud {
                    cloud.remove("credentials");
                }
            });
        }
        let environment = read_environment(&source.environment);
        let (arguments, unreadable_arguments) = read_arguments(&source.overrides);
        let (mut merged, mut secrets) = (Figment::new(), Vec::new());
        for layer in [file].into_iter().chain(environment).chain(arguments) {
            note_secrets(&layer.dict, &mut secrets);
            merged = merged.merge(layer);
        }
        for layer in read_credentials(&source.environment, &merged) {
            note_secrets(&layer.dict, &mut secrets);
            merged = merged.join(layer);
        }
        let defaults = FileConfig { controllers: catalog.default_controllers(), ..FileConfig::default() };
        let merged = merged.join(Serialized::defaults(defaults));
        Self {
            root: merged.find_value("").unwrap_or_else(|_| Dict::new().into()),
            merged,
            syntax_errors: errors.iter().map(|e| (e.message().to_owned(), e.span().unwrap_or_default())).collect(),
            unreadable_arguments,
            secrets,
            secret_spans: errors.is_empty().then(|| secret_spans(document.get_ref(), Some(Shape::root()), false)),
            document,
        }
    }

    fn find(&self, path: &[String]) -> Option<&Value> {
        path.iter().try_fold(&self.root, |value, name| match value {
            Value::Dict(_, entries) => entries.get(name),
            Value::Array(_, items) => items.get(name.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// What set the value at a path; `None` for a default. A table can be of several layers; the file is the first of them.
    pub(super) fn set_by(&self, path: &[String]) -> Option<SetBy> {
        let value = self.find(path)?;
        let metadata = self.merged.get_metadata(value.tag())?;
        let name = || metadata.source.as_ref().and_then(Source::custom).unwrap_or_default().to_owned();
        if (metadata.name == FILE || matches!(value, Value::Dict(..)))
            && let Some((key, value)) = locate(self.document.get_ref(), path)
        {
            return Some(SetBy::File { key, value });
        }
        match &*metadata.name {
            VARIABLE => Some(SetBy::Variable(name())),
            ARGUMENT => Some(SetBy::Argument(name())),
            _ => None,
        }
    }
}

/// Where a key and its value are written in the file; for an item of a list, twice the item.
fn locate(table: &DeTable<'_>, path: &[String]) -> Option<(Range<usize>, Range<usize>)> {
    let (name, rest) = path.split_first()?;
    let (key, mut value) = table.get_key_value(name.as_str())?;
    let mut key = key.span();
    for (depth, name) in rest.iter().enumerate() {
        match value.get_ref() {
            DeValue::Table(inner) => return locate(inner, &rest[depth..]),
            DeValue::Array(items) => value = items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        }
        key = value.span();
    }
    Some((key, value.span()))
}

/// Spans of the values that may be secret: those of secret keys, and those of unknown keys, which can be misspelled secret keys.
fn secret_spans(table: &DeTable<'_>, shape: Option<Shape>, is_secret: bool) -> Vec<Range<usize>> {
    let spans = table.iter().flat_map(|(key, value)| {
        let name = key.get_ref().as_ref();
        let (is_secret, inner) = (is_secret || HIDDEN.contains(&name), shape.and_then(|shape| shape.child(name)));
        let is_value = inner.is_some_and(|shape| !matches!(shape.kind(), ShapeKind::Section | ShapeKind::Map));
        match value.get_ref() {
            DeValue::Table(table) => secret_spans(table, inner, is_secret || inner.is_none()),
            _ if is_secret || !(is_value || is_open(name)) => vec![value.span()],
            _ => Vec::new(),
        }
    });
    spans.collect()
}

fn note_secrets(dict: &Dict, secrets: &mut Vec<String>) {
    for (name, value) in dict {
        match value {
            Value::String(_, text) if HIDDEN.contains(&name.as_str()) => secrets.push(text.clone()),
            Value::Dict(_, inner) if HIDDEN.contains(&name.as_str()) => {
                secrets.extend(inner.values().filter_map(Value::as_str).map(str::to_owned));
            }
            Value::Dict(_, inner) => note_secrets(inner, secrets),
            _ => {}
        }
    }
}

fn read_environment(environment: &BTreeMap<String, String>) -> Vec<Layer> {
    let known = KNOWN_VARIABLES.iter().filter_map(|(name, key)| {
        let value = environment.get(*name).filter(|value| !value.is_empty())?;
        let value = if *name == "ALICLOUD_CLIENT_SCHEME" { &value.to_lowercase() } else { value };
        let path: KeyPath = key.split('.').map(str::to_owned).collect();
        Some(Layer::of_key(VARIABLE, name, &path, value))
    });
    let prefixed = environment.iter().filter_map(|(name, value)| {
        let path = variable_path(name.strip_prefix(VARIABLE_PREFIX)?);
        Some(Layer::of_key(VARIABLE, name, &path, value))
    });
    known.chain(prefixed).collect()
}

/// The environment's usual credentials, if nothing else states credentials of another kind.
fn read_credentials(environment: &BTreeMap<String, String>, stronger: &Figment) -> Vec<Layer> {
    let stated = stronger.find_value("cloud.credentials").ok();
    if stated.is_some_and(|stated| DECISIVE_CREDENTIALS.split_whitespace().any(|key| stated.find_ref(key).is_some())) {
        return Vec::new();
    }
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let complete = |way: &&&[(&str, &str)]| {
        way.iter().all(|(name, key)| OPTIONAL_CREDENTIALS.contains(key) || set(name).is_some())
    };
    let used = CREDENTIAL_VARIABLES.iter().find(complete).copied().unwrap_or_default();
    let layer = |(name, key): &(&str, &str)| {
        let path = ["cloud", "credentials", *key].map(str::to_owned);
        Some(Layer::of_key(VARIABLE, name, &path, set(name)?))
    };
    used.iter().filter_map(layer).collect()
}

/// The arguments, and the numbers of those that are not `key=value`.
fn read_arguments(arguments: &[String]) -> (Vec<Layer>, Vec<usize>) {
    let (mut layers, mut unreadable) = (Vec::new(), Vec::new());
    for (number, text) in arguments.iter().enumerate() {
        match text.split_once('=').and_then(|(key, value)| Some((key.trim(), split_key(key)?, value))) {
            Some((key, path, value)) => layers.push(Layer::of_key(ARGUMENT, key, &path, value)),
            None => unreadable.push(number + 1),
        }
    }
    (layers, unreadable)
}

fn read_table(table: &DeTable<'_>) -> Dict {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), read_value(value.get_ref()))).collect()
}

/// Stands for a date, which no key takes.
pub(super) const DATE: Empty = Empty::Unit;

/// Stands for a number of more than 64 bits, which no key takes.
pub(super) const TOO_LARGE: Num = Num::I128(i128::MAX);

fn read_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Table(table) => read_table(table).into(),
        DeValue::Array(items) => items.iter().map(|item| read_value(item.get_ref())).collect::<Vec<_>>().into(),
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(TOO_LARGE.into(), Value::from)
        }
        DeValue::Float(number) => number.as_str().parse().unwrap_or(f64::NAN).into(),
        DeValue::Datetime(_) => DATE.into(),
    }
}

/// What a text from the environment or the command line stands for. Text that does not fit stays text, and is found to be of
/// the wrong type later, like a wrong value in the file.
fn read_text(shape: Option<Shape>, text: &str) -> Value {
    let trimmed = text.trim();
    let read = match shape.map(Shape::kind) {
        None | Some(ShapeKind::Text) => None,
        Some(ShapeKind::Bool) => trimmed.parse::<bool>().ok().map(Value::from),
        Some(ShapeKind::Integer) => trimmed.parse::<i64>().ok().map(Value::from),
        Some(ShapeKind::Number) => trimmed.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::from),
        Some(ShapeKind::List) if !trimmed.starts_with('[') => {
            let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(items.collect::<Vec<_>>().into())
        }
        Some(ShapeKind::List | ShapeKind::Map | ShapeKind::Section) => {
            DeValue::parse(trimmed).ok().map(|value| read_value(value.get_ref()))
        }
    };
    read.unwrap_or_else(|| text.into())
}

/// No key has as many; without a bound, a long name would be a deep table.
const MOST_SEGMENTS: usize = 8;

/// The key that a variable names. Names of keys are lower case; a key that the user chooses is taken as it is.
fn variable_path(name: &str) -> KeyPath {
    let mut path = KeyPath::new();
    for segment in name.splitn(MOST_SEGMENTS, "__") {
        let chosen = schema::at(&path).is_some_and(|shape| shape.kind() == ShapeKind::Map);
        path.push(if chosen { segment.to_owned() } else { segment.to_lowercase() });
    }
    path
}

/// Segments of a dotted key, which may have quoted parts as in TOML.
fn split_key(key: &str) -> Option<KeyPath> {
    let text = format!("{} = 0", key.trim());
    let parsed = DeTable::parse(&text).ok().filter(|_| !key.contains('\n'))?;
    let mut path = KeyPath::new();
    let mut table = parsed.get_ref();
    loop {
        let (name, value) = table.iter().next()?;
        path.push(name.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}
