//! Reads the file and the key files that it names. The only part of the configuration that touches the disk, apart from
//! the watch.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use super::catalog::Catalog;
use super::check::{Referenced, check, referenced};
use super::checked::Config;
use super::layers::Source;
use super::report::Report;
use super::secret::Secret;

/// Files larger than this are not read.
pub const LARGEST_FILE: u64 = 1 << 20;

/// How often a file is read again that changes while it is read.
const TRIES: usize = 3;

/// A key file, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFile {
    /// It was read.
    Read {
        /// What it holds.
        text: Secret,
        /// Whether more than its owner may read it.
        readable_by_others: bool,
    },
    /// It was not.
    Failed(FileFault),
}

impl SecretFile {
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
    /// It has more than [`LARGEST_FILE`] bytes.
    #[error("is larger than 1 MiB")]
    TooLarge,
    /// It is not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// The system says no.
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

/// Where a configuration is loaded from; loading twice reads everything again.
#[derive(Clone)]
pub struct Origin {
    /// The file.
    pub path: PathBuf,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Arguments of the form `section.key=value`.
    pub overrides: Vec<String>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A configuration that was read and is right.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What it means.
    pub config: Config,
    /// SHA-1 of the file, in hexadecimal: what `sha1sum` prints for it.
    pub hash: String,
    /// The file.
    pub path: PathBuf,
}

/// What came of loading, and the files that took part in it: a change of one is a reason to load again.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) outcome: Result<Loaded, Report>,
    /// Of the file, if it could be read.
    pub(super) hash: Option<String>,
    pub(super) referenced: Referenced,
}

/// Reads and checks the configuration.
///
/// # Errors
///
/// Everything that is wrong with it, also if the file cannot be read.
pub fn load(origin: &Origin, catalog: &Catalog) -> Result<Loaded, Report> {
    attempt(origin, catalog).outcome
}

pub(super) fn attempt(origin: &Origin, catalog: &Catalog) -> Attempt {
    let text = match read(&origin.path) {
        Ok((text, _)) => text,
        Err(fault) => {
            let message = format!("the configuration file {} {fault}", origin.path.display());
            let help = matches!(fault, FileFault::Missing).then(|| "name the file with --config".to_owned());
            let outcome = Err(Report::of_file(&origin.path, message, help));
            return Attempt { outcome, hash: None, referenced: Referenced::default() };
        }
    };
    let hash = hash(&text);
    let mut source = Source {
        path: origin.path.clone(),
        text,
        environment: origin.environment.clone(),
        overrides: origin.overrides.clone(),
        files: BTreeMap::new(),
    };
    let referenced = referenced(&source);
    source.files = referenced.keys.iter().map(|path| (path.clone(), read_secret(path))).collect();
    let outcome =
        check(&source, catalog).map(|config| Loaded { config, hash: hash.clone(), path: origin.path.clone() });
    Attempt { outcome, hash: Some(hash), referenced }
}

fn read_secret(path: &Path) -> SecretFile {
    match read(path) {
        Ok((text, meta)) => {
            SecretFile::Read { text: Secret::new(text), readable_by_others: meta.permissions().mode() & 0o044 != 0 }
        }
        Err(fault) => SecretFile::Failed(fault),
    }
}

/// Reads a whole file. Reads again if it was written meanwhile, so that half of a change is seldom seen.
fn read(path: &Path) -> Result<(String, Metadata), FileFault> {
    let mut tries = 0;
    loop {
        tries += 1;
        // Opening a pipe would wait for its writer, so the kind is asked first.
        if !std::fs::metadata(path)?.is_file() {
            return Err(FileFault::NotAFile);
        }
        let file = File::open(path)?;
        let before = file.metadata()?;
        let mut bytes = Vec::new();
        (&file).take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
        let after = file.metadata()?;
        if tries < TRIES && version(&before) != version(&after) {
            continue;
        }
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(FileFault::TooLarge);
        }
        return String::from_utf8(bytes).map(|text| (text, after)).map_err(|_| FileFault::NotText);
    }
}

fn version(meta: &Metadata) -> (u64, i64, i64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec())
}

fn hash(text: &str) -> String {
    Sha1::digest(text).iter().fold(String::new(), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}");
        hex
    })
}
