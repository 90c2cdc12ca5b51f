//! What the load balancer products share: CLB and NLB.
//!
//! Reading order: [`handling`] (whose a Service is), [`ownership`] (what in the cloud is ours), [`annotations`] (what users
//! may say), [`desired`] and `desire` (what a Service asks for), [`backends`] (who receives traffic), [`steps`]
//! (what a plan is); `diff` (the steps), with `instance_diff`, `group_diff`, `listener_diff` and `listener_pass`.

pub mod annotations;
pub mod api_fields;
pub mod applied;
pub mod backends;
pub mod cloud;
pub(crate) mod desire;
pub mod desired;
pub(crate) mod diff;
pub(crate) mod features;
pub mod gates;
pub mod goal;
pub(crate) mod group_diff;
pub mod groups;
pub mod handling;
pub(crate) mod ineffective;
pub(crate) mod instance_diff;
pub(crate) mod listener_diff;
pub(crate) mod listener_pass;
pub mod management;
pub mod model;
pub mod operation;
pub mod origins;
pub mod orphans;
pub mod ownership;
pub mod problem;
pub mod settings;
pub mod spec_fields;
pub mod steps;
pub mod unready;
pub mod zones;

pub(in crate::plan) use api_fields::api_fields;
