//! Decisions, pure: what is wanted and what is there in, steps out. No Kubernetes client, no HTTP, no clock, no log.

pub mod inputs;
pub mod lb;
pub mod provider_id;
