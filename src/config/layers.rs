//! Merges what the file, the environment and the command line state into one tree. Each value knows who set it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use super::redact::HIDDEN;
use super::schema::{self, Shape, ShapeKind};
use super::source::ConfigSource;

/// Variables of this prefix name a key: `ALICLOUD_CCM__CLOUD__REGION` is `cloud.region`.
pub const VARIABLE_PREFIX: &str = "ALICLOUD_CCM__";

/// Variables that the official controller reads too, and the keys that they set.
pub const KNOWN_VARIABLES: [(&str, &str); 5] = [
    ("ECS_ENDPOINT", "cloud.endpoints.ecs"),
    ("VPC_ENDPOINT", "cloud.endpoints.vpc"),
    ("SLB_ENDPOINT", "cloud.endpoints.slb"),
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
const DECISIVE_CREDENTIALS: [&str; 9] = [
    "access_key_id",
    "access_key_secret",
    "access_key_id_file",
    "access_key_secret_file",
    "security_token",
    "security_token_file",
    "oidc_provider_arn",
    "oidc_token_file",
    "instance_role",
];

/// Segments of a key.
pub(super) type KeyPath = Vec<String>;

/// Who set a value.
#[derive(Clone, Debug)]
pub(super) enum Provenance {
    /// The file, at these spans.
    File { key: Range<usize>, value: Range<usize> },
    /// The environment variable of that name.
    Variable(String),
    /// The argument about that key.
    Argument(String),
}

/// A value that is stated somewhere.
#[derive(Debug)]
pub(super) struct Stated {
    pub(super) provenance: Provenance,
    pub(super) content: Content,
}

/// What a stated value is.
#[derive(Debug)]
pub(super) enum Content {
    Table(BTreeMap<String, Stated>),
    List(Vec<Stated>),
    /// Text, a number, or true or false.
    Scalar(Value),
    /// A value that no key takes, and why.
    Unusable(&'static str),
}

/// Everything that is stated.
#[derive(Debug)]
pub(super) struct Layers {
    /// All layers as one: a stronger one has replaced a weaker one.
    pub(super) root: Stated,
    /// Where the file is not TOML, and why. Nothing that was read from it can be relied on then.
    pub(super) syntax_errors: Vec<(String, Range<usize>)>,
    /// Numbers of the arguments that are not `key=value`.
    pub(super) unreadable_arguments: Vec<usize>,
    /// Texts that are secret wherever they appear, replaced ones included.
    pub(super) secrets: Vec<String>,
    /// Where secret values are written in the file.
    pub(super) secret_spans: Vec<Range<usize>>,
}

impl Layers {
    /// Reads all layers, the weakest first.
    pub(super) fn read(source: &ConfigSource) -> Self {
        let (table, errors) = DeTable::parse_recoverable(&source.text);
        let syntax_errors = errors.iter().map(|error| (error.message().to_owned(), error.span().unwrap_or_default()));
        let root = Stated {
            provenance: Provenance::File { key: 0..0, value: 0..0 },
            content: Content::Table(BTreeMap::new()),
        };
        let mut this = Self {
            root,
            syntax_errors: syntax_errors.collect(),
            unreadable_arguments: Vec::new(),
            secrets: Vec::new(),
            secret_spans: Vec::new(),
        };
        this.merge(read_table(table.get_ref(), None));
        this.read_environment(&source.environment);
        for (number, text) in source.overrides.iter().enumerate() {
            match text.split_once('=').and_then(|(key, value)| Some((key.trim(), split_key(key)?, value))) {
                Some((key, path, value)) => this.state(Provenance::Argument(key.to_owned()), &path, value),
                None => this.unreadable_arguments.push(number + 1),
            }
        }
        this.add_credentials(&source.environment);
        this
    }

    fn read_environment(&mut self, environment: &BTreeMap<String, String>) {
        for (name, key) in KNOWN_VARIABLES {
            if let Some(value) = environment.get(name).filter(|value| !value.is_empty()) {
                let path: KeyPath = key.split('.').map(str::to_owned).collect();
                let value = if name == "ALICLOUD_CLIENT_SCHEME" { value.to_lowercase() } else { value.clone() };
                self.state(Provenance::Variable(name.to_owned()), &path, &value);
            }
        }
        for (name, value) in environment {
            if let Some(key) = name.strip_prefix(VARIABLE_PREFIX) {
                self.state(Provenance::Variable(name.clone()), &variable_path(key), value);
            }
        }
    }

    /// Adds the environment's usual credentials where nothing else states credentials of another kind.
    fn add_credentials(&mut self, environment: &BTreeMap<String, String>) {
        let path = |key: &str| ["cloud", "credentials", key].map(str::to_owned);
        if DECISIVE_CREDENTIALS.iter().any(|key| self.root.find(&path(key)).is_some()) {
            return;
        }
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let complete = |way: &&&[(&str, &str)]| {
            way.iter().all(|(name, key)| OPTIONAL_CREDENTIALS.contains(key) || set(name).is_some())
        };
        for (name, key) in CREDENTIAL_VARIABLES.iter().find(complete).copied().unwrap_or_default() {
            if let Some(value) = set(name).filter(|_| self.root.find(&path(key)).is_none()) {
                self.state(Provenance::Variable((*name).to_owned()), &path(key), value);
            }
        }
    }

    /// Sets a key to what a text from outside of the file stands for.
    fn state(&mut self, provenance: Provenance, path: &[String], text: &str) {
        let content = read_text(schema::at(path), text, &provenance);
        let leaf = Stated { provenance: provenance.clone(), content };
        let nest = |inner: Stated, name: &String| Stated {
            provenance: provenance.clone(),
            content: Content::Table(BTreeMap::from([(name.clone(), inner)])),
        };
        self.merge(path.iter().rev().fold(leaf, nest).content);
    }

    fn merge(&mut self, content: Content) {
        self.note_secrets(&content);
        self.root.merge(Stated { provenance: self.root.provenance.clone(), content });
    }

    fn note_secrets(&mut self, content: &Content) {
        let Content::Table(entries) = content else { return };
        for (name, stated) in entries {
            if HIDDEN.contains(&name.as_str()) {
                if let Provenance::File { value, .. } = &stated.provenance {
                    self.secret_spans.push(value.clone());
                }
                if let Content::Scalar(Value::String(text)) = &stated.content {
                    self.secrets.push(text.clone());
                }
            }
            self.note_secrets(&stated.content);
        }
    }
}

impl Stated {
    /// The value at a path below this one.
    pub(super) fn find(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |stated, name| match &stated.content {
            Content::Table(entries) => entries.get(name),
            Content::List(items) => items.get(name.parse::<usize>().ok()?),
            Content::Scalar(_) | Content::Unusable(_) => None,
        })
    }

    /// Tables are merged; anything else is replaced.
    fn merge(&mut self, stronger: Self) {
        match (&mut self.content, stronger.content) {
            (Content::Table(own), Content::Table(entries)) => {
                for (name, stated) in entries {
                    match own.entry(name) {
                        Entry::Occupied(mut entry) => entry.get_mut().merge(stated),
                        Entry::Vacant(entry) => drop(entry.insert(stated)),
                    }
                }
            }
            (_, content) => *self = Self { provenance: stronger.provenance, content },
        }
    }
}

/// A table of the file, or of a text from `outside`.
fn read_table(table: &DeTable<'_>, outside: Option<&Provenance>) -> Content {
    let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), read_value(key.span(), value, outside)));
    Content::Table(entries.collect())
}

fn read_value(key: Range<usize>, value: &Spanned<DeValue<'_>>, outside: Option<&Provenance>) -> Stated {
    let content = match value.get_ref() {
        DeValue::Table(table) => read_table(table, outside),
        DeValue::Array(items) => {
            Content::List(items.iter().map(|item| read_value(item.span(), item, outside)).collect())
        }
        DeValue::String(text) => Content::Scalar(Value::String(text.to_string())),
        DeValue::Boolean(flag) => Content::Scalar(Value::Boolean(*flag)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Content::Unusable("the number is too large"), |number| Content::Scalar(Value::Integer(number))),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or(Content::Unusable("the number is too large"), |number| Content::Scalar(Value::Float(number))),
        DeValue::Datetime(_) => Content::Unusable("no key takes a date"),
    };
    let provenance = outside.cloned().unwrap_or_else(|| Provenance::File { key, value: value.span() });
    Stated { provenance, content }
}

/// What a text from the environment or the command line stands for. Text that does not fit stays text, and is found to be of
/// the wrong type later, like a wrong value in the file.
fn read_text(shape: Option<Shape>, text: &str, provenance: &Provenance) -> Content {
    let scalar = |value: Option<Value>| Content::Scalar(value.unwrap_or_else(|| Value::String(text.to_owned())));
    let trimmed = text.trim();
    match shape.map(Shape::kind) {
        None | Some(ShapeKind::Text) => scalar(None),
        Some(ShapeKind::Bool) => scalar(trimmed.parse().ok().map(Value::Boolean)),
        Some(ShapeKind::Integer) => scalar(trimmed.parse().ok().map(Value::Integer)),
        Some(ShapeKind::Number) => {
            scalar(trimmed.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float))
        }
        Some(ShapeKind::List) if !trimmed.starts_with('[') => {
            let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
            let stated = |item: &str| Stated {
                provenance: provenance.clone(),
                content: Content::Scalar(Value::String(item.to_owned())),
            };
            Content::List(items.map(stated).collect())
        }
        Some(ShapeKind::List | ShapeKind::Map | ShapeKind::Section) => match DeValue::parse(trimmed) {
            Ok(value) => read_value(0..0, &value, Some(provenance)).content,
            Err(_) => scalar(None),
        },
    }
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
