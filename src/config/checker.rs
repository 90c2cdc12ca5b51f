//! Collects the problems of one configuration while it is checked.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::catalog::Catalog;
use super::checked::{Config, Credentials};
use super::file::FileConfig;
use super::fit::{fit, is_item, join};
use super::layers::{KeyPath, Layers, SetBy};
use super::redact::{Excerpt, excerpt};
use super::report::{ConfigProblem, ConfigReport, MOST_PROBLEMS, ProblemPlace};
use super::schema::Shape;
use super::secret::Secret;
use super::source::{ConfigPurpose, ConfigSource, KeyFile, is_credential};

/// The state of one check.
pub(super) struct Checker<'a> {
    pub(super) source: &'a ConfigSource,
    pub(super) catalog: &'a Catalog,
    layers: Layers<'a>,
    broken: BTreeSet<KeyPath>,
    problems: Vec<ConfigProblem>,
    /// What is wrong with key files that need not be here.
    missing: Vec<String>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(source: &'a ConfigSource, catalog: &'a Catalog) -> Self {
        let layers = Layers::read(source, catalog);
        Self { source, catalog, layers, broken: BTreeSet::new(), problems: Vec::new(), missing: Vec::new() }
    }

    /// What is written. Whatever is wrong is noted and has its default. `None` if the file is not TOML.
    pub(super) fn extract(&mut self) -> Option<FileConfig> {
        for (message, span) in std::mem::take(&mut self.layers.syntax_errors) {
            let message = format!("the file is not valid TOML: {message}");
            self.push(None, message, None, |this| this.in_file(&span));
        }
        let is_toml = self.problems.is_empty();
        for number in std::mem::take(&mut self.layers.unreadable_arguments) {
            let place = ProblemPlace::Argument { argument: format!("--set number {number}") };
            let help = Some("write --set section.key=value".to_owned());
            self.push(None, "the argument does not name a key and a value".to_owned(), help, |_| (place, None));
        }
        if !is_toml {
            return None;
        }
        let mut misfits = Vec::new();
        let value = fit(&mut KeyPath::new(), Some(Shape::root()), &self.layers.root, &mut misfits)?;
        for misfit in misfits {
            match misfit.is_placeholder && self.source.purpose == ConfigPurpose::Manifests {
                true => self.mark_broken(&misfit.path),
                false => self.add(&misfit.path, misfit.is_key, misfit.message, misfit.help),
            }
        }
        match value.deserialize() {
            Ok(file) => Some(file),
            Err(error) => {
                let place = ProblemPlace::Whole { file: self.source.path.clone() };
                self.push(None, format!("the file cannot be used: {}", error.kind), None, |_| (place, None));
                None
            }
        }
    }

    /// What was checked, or everything that is wrong with it. On another machine than its own, keys that cannot be used are
    /// wrong only once they are needed.
    pub(super) fn finish(self, checked: Option<Config>) -> Result<Config, ConfigReport> {
        if let Some(mut config) = checked.filter(|_| self.problems.is_empty()) {
            if !self.missing.is_empty() {
                config.cloud.credentials = Credentials::Unusable(self.missing.join("; "));
            }
            return Ok(config);
        }
        let files = self.source.files.values().filter_map(KeyFile::text);
        let secrets: Vec<&str> = self.layers.secrets.iter().map(String::as_str).chain(files).collect();
        Err(ConfigReport::new(self.problems, &secrets))
    }

    /// Notes a problem with the value of a key; `message` goes on after the key.
    pub(super) fn bad(&mut self, key: &str, message: impl Into<String>) {
        self.bad_with(key, message, None);
    }

    /// The same, with something to do about it.
    pub(super) fn bad_with(&mut self, key: &str, message: impl Into<String>, help: Option<&str>) {
        let path: KeyPath = key.split('.').map(str::to_owned).collect();
        let name = if is_item(&path) { join(&path[..path.len() - 1]) } else { join(&path) };
        self.add(&path, false, format!("{name} {}", message.into()), help.map(str::to_owned));
    }

    /// Notes a problem with an entry of a table whose keys the user chooses.
    pub(super) fn bad_entry(&mut self, section: &str, entry: &str, message: impl Into<String>) {
        let path: KeyPath = section.split('.').chain([entry]).map(str::to_owned).collect();
        self.add(&path, false, format!("{section}: {}", message.into()), None);
    }

    /// Whether none of these keys has a problem yet.
    pub(super) fn sound(&self, keys: &[&str]) -> bool {
        !self.broken.iter().any(|path| keys.contains(&join(path).as_str()))
    }

    /// Whether the key is stated anywhere.
    pub(super) fn states(&self, key: &str) -> bool {
        self.layers.set_by(&key.split('.').map(str::to_owned).collect::<KeyPath>()).is_some()
    }

    /// What a key file holds, if it can be used.
    pub(super) fn key_file(&mut self, key: &str, path: &Path, allow_readable: bool) -> Option<Secret> {
        // systemd shields the folder; with access lists, the files in it look as if their group could read them.
        let shielded = is_credential(path);
        let resolved = self.source.resolve(path);
        let shown = resolved.display();
        let (wrong, help) = match self.source.files.get(&resolved) {
            _ if shielded && self.source.credentials_folder().is_none() => {
                let help =
                    "credentials are there only in a systemd service with LoadCredential=; elsewhere, name a file";
                (format!("names {}, but systemd has given none", path.display()), Some(help))
            }
            None => (format!("names {shown}, which has not been read"), None),
            Some(KeyFile::Failed(fault)) => (format!("names {shown}, which {fault}"), None),
            Some(KeyFile::Read { readable_by_others: true, .. }) if !allow_readable && !shielded => {
                let help = "take the rights away with mode 0400 (in a Kubernetes volume: defaultMode), or set \
                            cloud.credentials.allow_readable_files to true";
                (format!("names {shown}, which group or others may read"), Some(help))
            }
            Some(KeyFile::Read { text, .. }) => return Some(text.clone()),
        };
        self.bad_file(key, wrong, help);
        None
    }

    /// Notes a problem with a key file.
    pub(super) fn bad_file(&mut self, key: &str, message: String, help: Option<&str>) {
        match self.source.purpose {
            ConfigPurpose::Here => self.bad_with(key, message, help),
            ConfigPurpose::Elsewhere | ConfigPurpose::Manifests => self.missing.push(format!("{key} {message}")),
        }
    }

    fn mark_broken(&mut self, path: &[String]) {
        self.broken.insert(path.to_vec());
        if is_item(path) {
            self.broken.insert(path[..path.len() - 1].to_vec());
        }
    }

    fn add(&mut self, path: &[String], is_key: bool, message: String, help: Option<String>) {
        self.mark_broken(path);
        self.push(Some(join(path)), message, help, |this| this.place(path, is_key));
    }

    /// Finding the place takes time, which a file full of mistakes would multiply, so it is found only if it is reported.
    fn push(
        &mut self,
        key: Option<String>,
        message: String,
        help: Option<String>,
        place: impl FnOnce(&Self) -> (ProblemPlace, Option<Excerpt>),
    ) {
        if self.problems.len() < MOST_PROBLEMS {
            let (place, excerpt) = place(self);
            self.problems.push(ConfigProblem { message, help, key, place, excerpt });
        }
    }

    /// Where a key is stated, for people; `None` where its default holds.
    pub(super) fn stated(&self, key: &str) -> Option<String> {
        let path: KeyPath = key.split('.').map(str::to_owned).collect();
        self.layers.set_by(&path)?;
        Some(match self.place(&path, false).0 {
            ProblemPlace::File { file, line, .. } => format!("{}:{line}", file.display()),
            ProblemPlace::Whole { file } => file.display().to_string(),
            ProblemPlace::Variable { variable } => format!("environment variable {variable}"),
            ProblemPlace::Argument { argument } => format!("argument {argument}"),
        })
    }

    /// Where the key is written; for what is not written, the section that it is missing from.
    fn place(&self, path: &[String], is_key: bool) -> (ProblemPlace, Option<Excerpt>) {
        let stated = (1..=path.len()).rev().find_map(|length| Some((length, self.layers.set_by(&path[..length])?)));
        match stated {
            None => (ProblemPlace::Whole { file: self.source.path.clone() }, None),
            Some((_, SetBy::Variable(name))) => (ProblemPlace::Variable { variable: name }, None),
            Some((_, SetBy::Argument(key))) => (ProblemPlace::Argument { argument: format!("--set {key}") }, None),
            Some((length, SetBy::File { key, value })) => {
                self.in_file(if is_key || length < path.len() { &key } else { &value })
            }
        }
    }

    fn in_file(&self, span: &Range<usize>) -> (ProblemPlace, Option<Excerpt>) {
        let excerpt = excerpt(self.source.text(), span, self.layers.secret_spans.as_deref());
        let place = ProblemPlace::File { file: self.source.path.clone(), line: excerpt.line, column: excerpt.column };
        (place, Some(excerpt))
    }
}
