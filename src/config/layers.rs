//! Where values come from: the file, the environment, the command line; merged, and for each value it is known who set it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::FileConfig;
use super::load::SecretFile;
use super::redact::HIDDEN;
use super::schema;

/// Everything that a configuration is made from. Nothing else is read when it is checked.
#[derive(Clone, Default)]
pub struct Source {
    /// Path of the file: shown in reports, and the folder that other paths are relative to.
    pub path: PathBuf,
    /// Content of the file; may be empty.
    pub text: String,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// `section.key=value`, later ones win.
    pub overrides: Vec<String>,
    /// Key files that the configuration names, by path, as [`referenced`](super::referenced) gives them.
    pub files: BTreeMap<PathBuf, SecretFile>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

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

/// Keys that say which kind of credentials is meant; with one of them stated, the environment's are not looked at.
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

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Provenance {
    /// From the file.
    File,
    /// From the variable of that name.
    Variable(String),
    /// From an argument; its key.
    Argument(String),
}

/// A mistake that is found before there are values.
#[derive(Debug)]
pub(super) enum Early {
    /// The file is not TOML there.
    Syntax { message: String, span: Range<usize> },
    /// A value that no key takes.
    Value { path: KeyPath, message: &'static str, span: Range<usize> },
    /// An argument that is not `key=value`.
    Argument { number: usize },
}

/// The spans of one key in the file.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

/// What one of them says.
struct Layer {
    provenance: Provenance,
    dict: Dict,
}

impl Provider for &Layer {
    fn metadata(&self) -> Metadata {
        match &self.provenance {
            Provenance::File => Metadata::named("file"),
            Provenance::Variable(name) => Metadata::named(format!("environment variable {name}")),
            Provenance::Argument(key) => Metadata::named(format!("argument --set {key}")),
        }
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

/// All origins, the weakest first.
pub(super) struct Layers {
    layers: Vec<Layer>,
    spans: BTreeMap<KeyPath, Spans>,
}

impl Layers {
    /// Reads all origins.
    pub(super) fn read(source: &Source) -> (Self, Vec<Early>) {
        let mut early = Vec::new();
        let mut spans = BTreeMap::new();
        let (table, errors) = DeTable::parse_recoverable(&source.text);
        let dict = read_table(table.get_ref(), &mut Vec::new(), &mut spans, &mut early);
        early.extend(errors.iter().map(|error| Early::Syntax {
            message: error.message().to_owned(),
            span: error.span().unwrap_or_default(),
        }));
        let mut this = Self { layers: vec![Layer { provenance: Provenance::File, dict }], spans };
        this.read_environment(&source.environment);
        for (number, text) in source.overrides.iter().enumerate() {
            match text.split_once('=').and_then(|(key, value)| Some((key.trim(), split_key(key)?, value))) {
                Some((key, path, value)) => this.push(Provenance::Argument(key.to_owned()), &path, value),
                None => early.push(Early::Argument { number: number + 1 }),
            }
        }
        this.insert_credentials(&source.environment);
        (this, early)
    }

    fn read_environment(&mut self, environment: &BTreeMap<String, String>) {
        for (name, key) in KNOWN_VARIABLES {
            if let Some(value) = environment.get(name).filter(|value| !value.is_empty()) {
                let path: KeyPath = key.split('.').map(str::to_owned).collect();
                let value = if name == "ALICLOUD_CLIENT_SCHEME" { value.to_lowercase() } else { value.clone() };
                self.push(Provenance::Variable(name.to_owned()), &path, &value);
            }
        }
        for (name, value) in environment {
            if let Some(key) = name.strip_prefix(VARIABLE_PREFIX) {
                self.push(Provenance::Variable(name.clone()), &variable_path(key), value);
            }
        }
    }

    /// Puts the environment's usual credentials below everything else, unless something else decides.
    fn insert_credentials(&mut self, environment: &BTreeMap<String, String>) {
        let path = |key: &str| ["cloud", "credentials", key].map(str::to_owned).to_vec();
        if DECISIVE_CREDENTIALS.iter().any(|key| self.provenance(&path(key)).is_some()) {
            return;
        }
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let complete = |way: &&&[(&str, &str)]| {
            way.iter().all(|(name, key)| OPTIONAL_CREDENTIALS.contains(key) || set(name).is_some())
        };
        for (name, key) in CREDENTIAL_VARIABLES.iter().find(complete).copied().unwrap_or_default() {
            if let Some(value) = set(name) {
                let dict = nested(&path(key), Value::from(value.as_str()));
                self.layers.insert(0, Layer { provenance: Provenance::Variable((*name).to_owned()), dict });
            }
        }
    }

    fn push(&mut self, provenance: Provenance, path: &[String], text: &str) {
        let value = schema::at(path).map_or_else(|| Value::from(text), |shape| shape.read(text));
        self.layers.push(Layer { provenance, dict: nested(path, value) });
    }

    /// The defaults and all origins as one.
    pub(super) fn merged(&self) -> Figment {
        let defaults = Figment::from(Serialized::defaults(FileConfig::default()));
        self.layers.iter().fold(defaults, |merged, layer| merged.merge(layer))
    }

    /// Who has the last word about a key; `None` if nobody speaks of it.
    pub(super) fn provenance(&self, path: &[String]) -> Option<&Provenance> {
        self.layers.iter().rev().find(|layer| find(&layer.dict, path).is_some()).map(|layer| &layer.provenance)
    }

    /// Where a key of the file is written.
    pub(super) fn spans(&self, path: &[String]) -> Option<&Spans> {
        self.spans.get(path)
    }

    /// Forgets what the last speaker said about a key. Says whether there was one.
    pub(super) fn forget(&mut self, path: &[String]) -> bool {
        self.layers.iter_mut().rev().any(|layer| remove(&mut layer.dict, path))
    }

    /// All texts that are secret wherever they appear, shadowed ones included.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for layer in &self.layers {
            collect_secrets(&layer.dict, &mut found);
        }
        found
    }

    /// Where secret values are written in the file.
    pub(super) fn secret_spans(&self) -> Vec<Range<usize>> {
        let hidden = |path: &KeyPath| path.last().is_some_and(|name| HIDDEN.contains(&name.as_str()));
        self.spans.iter().filter(|(path, _)| hidden(path)).map(|(_, spans)| spans.value.clone()).collect()
    }

    /// Keys that are stated anywhere.
    pub(super) fn stated(&self) -> BTreeSet<String> {
        let states = |path: &&KeyPath| self.provenance(path).is_some();
        schema::leaves().iter().filter(states).map(|path| path.join(".")).collect()
    }
}

fn read_table(
    table: &DeTable<'_>,
    path: &mut KeyPath,
    spans: &mut BTreeMap<KeyPath, Spans>,
    early: &mut Vec<Early>,
) -> Dict {
    let mut dict = Dict::new();
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        spans.insert(path.clone(), Spans { key: key.span(), value: value.span() });
        if let Some(read) = read_value(value, path, spans, early) {
            dict.insert(key.get_ref().to_string(), read);
        }
        path.pop();
    }
    dict
}

fn read_value(
    value: &Spanned<DeValue<'_>>,
    path: &mut KeyPath,
    spans: &mut BTreeMap<KeyPath, Spans>,
    early: &mut Vec<Early>,
) -> Option<Value> {
    let wrong = match value.get_ref() {
        DeValue::String(text) => return Some(Value::from(text.as_ref())),
        DeValue::Boolean(flag) => return Some(Value::from(*flag)),
        DeValue::Table(table) => return Some(Value::from(read_table(table, path, spans, early))),
        DeValue::Array(items) => {
            let mut read = Vec::new();
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                spans.insert(path.clone(), Spans { key: item.span(), value: item.span() });
                read.push(read_value(item, path, spans, early));
                path.pop();
            }
            // Without one of its items the others would not be where they are written.
            return read.into_iter().collect::<Option<Vec<_>>>().map(Value::from);
        }
        DeValue::Integer(_) | DeValue::Float(_) => "the number is too large",
        DeValue::Datetime(_) => "no key takes a date",
    };
    let read = schema::scalar(value.get_ref());
    if read.is_none() {
        early.push(Early::Value { path: path.clone(), message: wrong, span: value.span() });
    }
    read
}

/// No key has as many; without a bound, a long name would be a deep table.
const MOST_SEGMENTS: usize = 8;

/// The key that a variable names. Names of keys are lower case; a key that the user chooses is taken as it is.
fn variable_path(name: &str) -> KeyPath {
    let mut path = KeyPath::new();
    for segment in name.splitn(MOST_SEGMENTS, "__") {
        let chosen = schema::at(&path).is_some_and(|shape| shape.kind() == schema::Kind::Map);
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

fn nested(path: &[String], value: Value) -> Dict {
    let wrap = |inner: Value, name: &String| Value::from(Dict::from([(name.clone(), inner)]));
    match path.split_first() {
        None => Dict::new(),
        Some((first, rest)) => Dict::from([(first.clone(), rest.iter().rev().fold(value, wrap))]),
    }
}

fn find<'a>(dict: &'a Dict, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(dict.get(first)?, |value, name| match value {
        Value::Dict(_, inner) => inner.get(name),
        Value::Array(_, items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

fn remove(dict: &mut Dict, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    if rest.is_empty() {
        return dict.remove(first).is_some();
    }
    match dict.get_mut(first) {
        Some(Value::Dict(_, inner)) => remove(inner, rest),
        // Taking one item out would shift the others away from their places, so the whole list goes.
        Some(Value::Array(..)) => dict.remove(first).is_some(),
        _ => false,
    }
}

fn collect_secrets<'a>(dict: &'a Dict, found: &mut Vec<&'a str>) {
    for (name, value) in dict {
        match value {
            Value::String(_, text) if HIDDEN.contains(&name.as_str()) => found.push(text),
            Value::Dict(_, inner) => collect_secrets(inner, found),
            _ => {}
        }
    }
}

/// Starts the name of a credential that systemd keeps for the service (`LoadCredential=`).
const CREDENTIAL: &str = "credential:";

/// The name of the credential, if that is what a path stands for.
pub(super) fn credential(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(CREDENTIAL)
}

/// Paths in the configuration are relative to the folder of its file, credentials to the folder that systemd names.
pub(super) fn resolve(source: &Source, path: &Path) -> PathBuf {
    if let Some((name, folder)) = credential(path).zip(source.environment.get("CREDENTIALS_DIRECTORY")) {
        return Path::new(folder).join(name);
    }
    source.path.parent().unwrap_or(Path::new("")).join(path)
}
