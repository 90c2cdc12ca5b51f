//! Pure decisions: from desired and observed state to steps. No Kubernetes client, no HTTP, no clock, no log.

use std::fmt;

use serde::Serialize;

pub mod clb;
pub mod digest;
pub mod inputs;
pub mod loadbalancer;
pub mod location;
pub mod nlb;
pub mod node;
pub mod provenance;
pub mod provider_id;
pub mod pvtz;
pub mod route;
pub mod setting;
pub mod volume;

/// One line of a plan, as users read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanLine {
    /// `node`, `route`, `service`, ...
    pub controller: &'static str,
    /// The object that it is about, such as a node's name.
    pub object: String,
    /// What the controller would do, or what prevents it. A stable text of one line.
    pub text: String,
    /// Whether the step removes something that exists.
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
    /// The object is out of sync, and the controller withholds the step that mends it.
    Withheld,
    /// Something is worth knowing.
    Note,
}

impl PlanLine {
    /// A line about what removes nothing.
    pub fn new(controller: &'static str, object: &impl ToString, kind: LineKind, text: &impl ToString) -> Self {
        Self { controller, object: object.to_string(), text: text.to_string(), destroys: false, kind }
    }

    /// What stands before the line: `!` where the step removes something, `+` before other steps, a word before what is no step.
    pub const fn mark(&self) -> &'static str {
        match (self.kind, self.destroys) {
            (LineKind::Step, true) => "!",
            (LineKind::Step, false) => "+",
            (LineKind::Problem, _) => "problem:",
            (LineKind::Withheld, _) => "withheld:",
            (LineKind::Note, _) => "note:",
        }
    }
}

/// `1 step`, `2 steps`.
pub fn count_of(count: usize, thing: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{end}")
}

impl fmt::Display for PlanLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.destroys { "-" } else { " " };
        write!(f, "{mark} {} {}: {}", self.controller, self.object, self.text)
    }
}
