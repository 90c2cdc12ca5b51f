//! Test doubles of the cloud, and every action against the simulated one.

pub(super) mod script;
pub(crate) mod simulated;
