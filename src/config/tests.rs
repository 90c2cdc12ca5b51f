mod damage;
mod editors;
mod files;
mod meaning;
mod reports;

use std::path::PathBuf;

use super::checked::AccessKey;
use super::secret::Secret;
use super::*;
use crate::controllers::registry::CATALOG;

fn source(text: &str) -> ConfigSource {
    ConfigSource { path: PathBuf::from("/etc/ccm/ccm.toml"), text: Some(text.to_owned()), ..ConfigSource::default() }
}

fn with_environment(text: &str, environment: &[(&str, &str)]) -> ConfigSource {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ConfigSource { environment: environment.iter().map(owned).collect(), ..source(text) }
}

fn with_overrides(text: &str, overrides: &[&str]) -> ConfigSource {
    ConfigSource { overrides: overrides.iter().map(|text| (*text).to_owned()).collect(), ..source(text) }
}

/// A right configuration with more lines.
fn right(more: &str) -> String {
    format!("cloud.cluster_id = \"one\"\n{more}")
}

fn good(source: &ConfigSource) -> Config {
    check(source, &CATALOG).unwrap_or_else(|report| panic!("{report}"))
}

fn bad(source: &ConfigSource) -> ConfigReport {
    check(source, &CATALOG).expect_err("the configuration was accepted")
}

/// The messages and their help, without the excerpts.
fn messages(source: &ConfigSource) -> String {
    let line = |problem: &ConfigProblem| match &problem.help {
        Some(help) => format!("{} ({help})", problem.message),
        None => problem.message.clone(),
    };
    bad(source).problems().iter().map(line).collect::<Vec<_>>().join("\n")
}

fn key(id: &str, secret: &str, token: Option<&str>) -> AccessKey {
    AccessKey {
        id: id.to_owned(),
        secret: Secret::new(secret.to_owned()),
        token: token.map(|t| Secret::new(t.to_owned())),
    }
}
