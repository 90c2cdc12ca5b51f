//! Decisions, pure: what is wanted and what is there in, steps out. No Kubernetes client, no HTTP, no clock, no log.

use std::fmt;

use serde::Serialize;

pub mod clb;
pub mod inputs;
pub mod location;
pub mod nlb;
pub mod node;
pub mod provenance;
pub mod provider_id;
pub mod pvtz;
pub mod route;
pub mod service;
pub mod volume;

/// One line of what a controller would do, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanLine {
    /// `node`, `route`, `service`, ...
    pub controller: &'static str,
    /// The object that it is about, such as a node's name.
    pub object: String,
    /// What would be done, or what is in the way. Stable, one line.
    pub text: String,
    /// Whether something is taken away that existed before.
    pub destroys: bool,
    /// What the line is about.
    pub kind: LineKind,
}

/// What a line of a plan is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// Something is done.
    Step,
    /// Something is in the way.
    Problem,
    /// Something waits, or is worth knowing.
    Note,
}

impl fmt::Display for PlanLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.destroys { "-" } else { " " };
        write!(f, "{mark} {} {}: {}", self.controller, self.object, self.text)
    }
}
