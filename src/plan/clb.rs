//! Classic load balancers (CLB) for Services: what is wanted, what is there, and the steps between.
//!
//! Reading order: [`naming`] (what is ours), [`annotations`] (what users may say), [`desired`] (what a Service asks for),
//! [`observed`] (what the cloud has), [`diff()`] and [`teardown()`] (the steps), [`apply`] (what the steps do).

pub mod access;
pub mod annotations;
pub mod apply;
pub mod desired;
pub mod diff;
pub mod gates;
mod line;
pub mod manage;
pub mod model;
pub mod naming;
pub mod observed;
pub mod operation;
pub mod teardown;
#[cfg(test)]
pub(crate) mod tests;

use serde::Serialize;

pub use self::desired::{
    Desired, Handling, Inputs, Needs, Settings, desire, expected_ingress, handed_over, handling, is_inherited,
    wanted_enis,
};
pub use self::diff::diff;
pub use self::teardown::{Departure, teardown, teardown_needs};

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
