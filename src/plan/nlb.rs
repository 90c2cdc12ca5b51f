//! Network load balancers (NLB) for Services: what is wanted, what is there, and the steps between.
//!
//! The modules are those of [`clb`](super::clb), in the same order. Particular to this product: most writes are carried out
//! as jobs after the cloud has answered ([`observed::Job`]), so that `apply` also says what must wait; server groups exist
//! beside load balancers, and source ranges are kept by a security group.

pub mod annotations;
mod apply;
pub mod desire;
pub mod desired;
pub mod diff;
pub mod model;
pub mod needs;
pub mod observed;
pub mod operation;
mod restriction;
pub mod teardown;
#[cfg(test)]
pub(crate) mod tests;
