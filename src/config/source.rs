//! Everything that a configuration is made from, as values.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::secret::Secret;

/// Everything that a configuration is made from. Nothing else is read when it is checked; loading reads its files first.
#[derive(Clone, Default)]
pub struct ConfigSource {
    /// Path of the file: shown in reports, and the folder that other paths are relative to.
    pub path: PathBuf,
    /// Content of the file; without it, loading reads the file at `path`. May be empty.
    pub text: Option<String>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// `section.key=value`, later ones win.
    pub overrides: Vec<String>,
    /// Key files that the configuration names, by path, as [`referenced`](super::referenced) gives them.
    pub files: BTreeMap<PathBuf, KeyFile>,
    /// What it is for.
    pub purpose: ConfigPurpose,
}

/// What a configuration is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigPurpose {
    /// This machine.
    #[default]
    Here,
    /// Another machine: its keys need not be here, and those in the environment replace them.
    Elsewhere,
    /// No cluster: neither keys nor values of one's own are needed.
    Manifests,
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSource").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Starts the name of a credential that systemd keeps for the service (`LoadCredential=`).
const CREDENTIAL: &str = "credential:";

/// Whether a path stands for a credential that systemd keeps for the service.
pub(super) fn is_credential(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(CREDENTIAL))
}

impl ConfigSource {
    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The folder where systemd puts credentials, if it gave any.
    pub(super) fn credentials_folder(&self) -> Option<&Path> {
        self.environment.get("CREDENTIALS_DIRECTORY").map(Path::new)
    }

    /// Paths in the configuration are relative to the folder of its file, credentials to the folder that systemd names.
    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        let name = path.to_str().and_then(|path| path.strip_prefix(CREDENTIAL));
        match name.zip(self.credentials_folder()) {
            Some((name, folder)) => folder.join(name),
            None => self.path.parent().unwrap_or(Path::new("")).join(path),
        }
    }
}

/// A key file, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    /// It was read.
    Read {
        /// What it holds.
        text: Secret,
        /// Whether more than its owner may read it.
        readable_by_others: bool,
    },
    /// It could not be read.
    Failed(FileFault),
}

impl KeyFile {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Read { text, .. } => Some(text.expose().trim()),
            Self::Failed(_) => None,
        }
    }
}

/// Why a file could not be read; goes on after the file's name and "which".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// There is none.
    #[error("does not exist")]
    Missing,
    /// It is a folder, a device or the like.
    #[error("is not a regular file")]
    NotAFile,
    /// It has more than [`LARGEST_FILE`](super::LARGEST_FILE) bytes.
    #[error("is larger than 1 MiB")]
    TooLarge,
    /// It is not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// The system refuses.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

impl From<io::Error> for FileFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            kind => Self::Unreadable(kind.to_string()),
        }
    }
}
