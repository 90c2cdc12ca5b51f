//! What the load balancer products share: CLB today, NLB next.
//!
//! Reading order: [`handling`] (whose a Service is), [`ownership`] (what in the cloud is ours), [`annotations`] (what users
//! may say), [`backends`] (who receives traffic), [`steps`] (what a plan is).

pub mod annotations;
pub mod backends;
pub mod gates;
pub mod groups;
pub mod handling;
pub mod management;
pub mod model;
pub mod orphans;
pub mod ownership;
pub mod problem;
pub mod settings;
pub mod steps;
pub mod unready;
pub mod zones;
