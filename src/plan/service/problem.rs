//! What is wrong with a Service.

use std::fmt;

/// One thing that is wrong with a Service, or with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceProblem {
    /// The annotation key or field path, such as `spec.ports[1].protocol`.
    pub field: String,
    /// What was given.
    pub given: String,
    /// What is allowed, or what to do.
    pub allowed: String,
}

impl fmt::Display for ServiceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} was given; {}", self.field, self.given, self.allowed)
    }
}
