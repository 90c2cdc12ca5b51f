//! What this program must be allowed to do, in the cluster and in the cloud: one table each, for each part that a
//! configuration switches on. This is the cluster's; the cloud's is [`crate::alibaba::permissions`]. Manifests and policies are printed from them, so that nobody grants more out of doubt.

pub mod cluster;

use crate::catalog::{NODE, ROUTE, SERVICE};
use crate::config::Config;

/// Whether a configuration needs a line of a table.
pub(crate) type Needed = fn(&Config) -> bool;

fn always(_: &Config) -> bool {
    true
}

pub(crate) fn nodes(config: &Config) -> bool {
    config.controllers.contains(&NODE)
}

pub(crate) fn routes(config: &Config) -> bool {
    config.controllers.contains(&ROUTE)
}

pub(crate) fn services(config: &Config) -> bool {
    config.controllers.contains(&SERVICE)
}

#[cfg(test)]
mod tests;
