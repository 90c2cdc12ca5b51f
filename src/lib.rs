//! A cloud controller manager for Kubernetes and OpenShift clusters on Alibaba Cloud.
//!
//! One process keeps two systems in agreement: a Kubernetes API server and Alibaba Cloud. Every controller takes the same five
//! steps in this order. For Services, desire comes before observe, since the desired state decides what must be read:
//!
//! ```text
//! observe (reads) -> desire (pure) -> plan (pure) -> execute (writes, fenced) -> report (events, metrics, logs)
//! ```
//!
//! # Reading order
//!
//! 1. [`plan`]: the decisions. [`plan::inputs`] is what the cluster shows; [`plan::node`], [`plan::route`], [`plan::volume`] and
//!    [`plan::pvtz`] turn it, and what the cloud shows, into operations. So does [`plan::loadbalancer`] for load balancers, with
//!    [`plan::clb`] and [`plan::nlb`] for what differs between the products.
//! 2. [`controllers`]: the loops. [`controllers::registry`] has one row per controller: start there to add one.
//!    [`controllers::batch`] reconciles sets (nodes, routes, volumes, records), [`controllers::workqueue`] single objects
//!    (Services).
//!    [`controllers::loadbalancer`] is the engine that all load balancer products share.
//! 3. [`fence`]: which process may write, and until when.
//! 4. [`alibaba`] and [`cluster`]: the clients of the two systems.
//! 5. [`config`] and [`reload`]: what users can configure, and what a change of it causes.
//! 6. [`app`] and [`supervisor`]: how the process starts and ends, and which controllers run.
//! 7. [`cli`] and [`commands`]: the arguments, and one file for each subcommand.
//! 8. [`telemetry`]: logs, metrics, health, notifications to the service manager. [`telemetry::tasks`] runs every long-lived
//!    task, and starts it again when it ends.
//!
//! # Invariants
//!
//! The compiler or `tests/integration/invariants.rs` checks these:
//!
//! - [`plan`] does no I/O: no client, no runtime, no clock, no log.
//! - Imports point one way: [`commands`] and [`app`], then [`controllers`], then [`alibaba`] and [`cluster`], then [`plan`].
//!   All but [`plan`] may read [`config`], which reads only [`plan`], and the leaves: [`clock`], [`jitter`], [`fence`],
//!   `telemetry::traces`, [`telemetry::activity`], [`telemetry::metrics`], [`telemetry::alarms`] and [`telemetry::tasks`]. There
//!   is no cycle, within folders either.
//! - Only [`alibaba`] names the actions of the vendor's API; only [`cluster`] uses the Kubernetes client.
//! - Every write takes a [`fence::Permit`], which only [`fence::Fence`] issues.
//! - Only [`clock`] reads the wall clock, and only [`jitter`] is random: it varies when something is retried, never what is
//!   done.
//! - State in memory only saves reads: it can be lost at any time.
//!
//! Absent on purpose: a hash of the last applied state (it hides drift), waiting inside a reconcile (it would delay the
//! shutdown), a second executor for dry runs (it would behave differently), finding our own objects by a remembered id alone
//! (an id does not prove ownership).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod alibaba;
pub mod app;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod controllers;
pub mod fence;
pub mod interner;
pub mod jitter;
pub mod plan;
pub mod reload;
pub mod supervisor;
pub mod telemetry;
