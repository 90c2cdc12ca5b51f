//! Classic load balancers (CLB) for Services: what is wanted, what is there, and the steps between.
//!
//! Reading order: [`annotations`] (what users may say), [`desire`] (what a Service asks for, a [`desired::Desired`]),
//! [`observed`] (what the cloud has), `apply` (what steps do to it) and [`needs`] (what of it must be read), [`diff`] and
//! [`teardown`] (the steps). What all load balancer products share is in [`loadbalancer`](super::loadbalancer).

pub mod annotations;
mod apply;
pub mod desire;
pub mod desired;
pub mod diff;
pub mod model;
pub mod needs;
pub mod observed;
pub mod operation;
pub mod teardown;
#[cfg(test)]
pub(crate) mod tests;
