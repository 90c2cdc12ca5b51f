//! Classic load balancers (CLB) for Services: what is wanted, what is there, and the steps between.
//!
//! Reading order: [`annotations`] (what users may say), [`desired`] (what a Service asks for), [`observed`] (what the cloud
//! has), [`diff`] and [`teardown`] (the steps), [`apply`] (what the steps do). What all load balancer products share is in
//! [`service`](super::service).

pub mod annotations;
pub mod apply;
pub mod desired;
pub mod diff;
pub mod model;
pub mod observed;
pub mod operation;
pub mod orphans;
pub mod teardown;
#[cfg(test)]
pub(crate) mod tests;
