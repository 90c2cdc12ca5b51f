//! Classic load balancers (CLB) for Services: what is wanted, what is there, and the steps between.

pub mod model;
pub mod observed;
pub mod operation;

use serde::Serialize;

/// One thing that is wrong with a Service, or with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The annotation key or field path, such as `spec.ports[1].protocol`.
    pub field: String,
    /// What was given.
    pub given: String,
    /// What is allowed, or what to do.
    pub allowed: String,
}
