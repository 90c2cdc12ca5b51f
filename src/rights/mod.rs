//! What this program must be allowed to do, in the cluster and in the cloud: one table each, for each part that a
//! configuration switches on. Manifests and policies are printed from them, so that nobody grants more out of doubt.

pub mod cloud;
pub mod cluster;

use crate::config::{Config, ControllerName};

/// Whether a configuration needs a line of a table.
type Needed = fn(&Config) -> bool;

fn always(_: &Config) -> bool {
    true
}

fn nodes(config: &Config) -> bool {
    config.controllers.contains(&ControllerName::Node)
}

fn routes(config: &Config) -> bool {
    config.controllers.contains(&ControllerName::Route)
}

fn services(config: &Config) -> bool {
    config.controllers.contains(&ControllerName::Service)
}

#[cfg(test)]
mod tests;
