//! From what is written to what it means, finding everything that is wrong on the way. Pure: it sees its [`ConfigSource`] and
//! the [`Catalog`], and nothing else.
//!
//! Steps: the layers are merged; what is stated is compared with the schema; the values are checked together. A step that
//! depends on a value with a problem is skipped, so that one mistake gives one message.

use std::path::PathBuf;

use super::catalog::Catalog;
use super::checked::Config;
use super::checker::Checker;
use super::report::ConfigReport;
use super::source::ConfigSource;
use super::{credentials, rules, tls};

/// Checks a configuration; `catalog` says which controllers and actions of the cloud there are.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check(source: &ConfigSource, catalog: &Catalog) -> Result<Config, ConfigReport> {
    let mut checker = Checker::new(source, catalog);
    let config = checker.extract().map(|file| rules::config(&mut checker, file));
    checker.finish(config)
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
pub fn referenced(source: &ConfigSource, catalog: &Catalog) -> Referenced {
    let Some(file) = Checker::new(source, catalog).extract() else { return Referenced::default() };
    let credentials = file.cloud.credentials;
    let keys = credentials::key_files(&credentials).into_iter().chain(tls::key_files(&file.server));
    Referenced {
        keys: keys.filter_map(|path| path.as_ref()).map(|path| source.resolve(path)).collect(),
        others: credentials.oidc_token_file.iter().map(|path| source.resolve(path)).collect(),
    }
}
