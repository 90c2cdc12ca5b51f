//! Reads the file and the key files that it names. The only part of the configuration that touches the disk, apart from
//! the watch.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::catalog::Catalog;
use super::check::{Referenced, check, referenced};
use super::checked::Config;
use super::checker::Checker;
use super::report::{ConfigProblem, ConfigReport, ProblemPlace};
use super::secret::Secret;
use super::source::{ConfigSource, FileFault, KeyFile};
use crate::plan::digest;

/// Files larger than this are not read.
pub const LARGEST_FILE: u64 = 1 << 20;

/// How often a file is read again that changes while it is read.
const TRIES: usize = 3;

impl ConfigSource {
    /// The same with the content of its file.
    fn read(&self) -> Result<Self, FileFault> {
        let text = self.text.clone().map_or_else(|| read(&self.path).map(|(text, _)| text), Ok)?;
        Ok(Self { text: Some(text), ..self.clone() })
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
    pub(super) outcome: Result<Loaded, ConfigReport>,
    /// Of the file, if it could be read.
    pub(super) hash: Option<String>,
    pub(super) referenced: Referenced,
}

/// Reads and checks the configuration.
///
/// # Errors
///
/// Everything that is wrong with it, also if the file cannot be read.
pub fn load(source: &ConfigSource, catalog: &Catalog) -> Result<Loaded, ConfigReport> {
    attempt(source, catalog).outcome
}

/// Where a key of the configuration is stated, for people: a line of the file, a variable, an argument. `None` where its default
/// holds, and if the file cannot be read.
pub fn stated(source: &ConfigSource, catalog: &Catalog, key: &str) -> Option<String> {
    Checker::new(&source.read().ok()?, catalog).stated(key)
}

pub(super) fn attempt(origin: &ConfigSource, catalog: &Catalog) -> Attempt {
    let mut source = match origin.read() {
        Ok(source) => source,
        Err(fault) => {
            let message = format!("the configuration file {} {fault}", origin.path.display());
            let help = matches!(fault, FileFault::Missing).then(|| "name the file with --config".to_owned());
            let problem = ConfigProblem::at(ProblemPlace::Whole { file: origin.path.clone() }, message, help);
            let outcome = Err(ConfigReport::new(vec![problem], &[]));
            return Attempt { outcome, hash: None, referenced: Referenced::default() };
        }
    };
    let hash = digest::hex(source.text().as_bytes());
    let referenced = referenced(&source, catalog);
    source.files = referenced.keys.iter().map(|path| (path.clone(), read_key_file(path))).collect();
    let outcome =
        check(&source, catalog).map(|config| Loaded { config, hash: hash.clone(), path: origin.path.clone() });
    Attempt { outcome, hash: Some(hash), referenced }
}

fn read_key_file(path: &Path) -> KeyFile {
    match read(path) {
        Ok((text, meta)) => {
            KeyFile::Read { text: Secret::new(text), readable_by_others: meta.permissions().mode() & 0o044 != 0 }
        }
        Err(fault) => KeyFile::Failed(fault),
    }
}

/// Reads a whole file. Reads it again if it was written meanwhile, so that a half-written file is seldom seen.
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
