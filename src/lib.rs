//! A cloud controller manager for Kubernetes and OpenShift clusters on Alibaba Cloud.
//!
//! One process keeps two outside worlds in agreement: a Kubernetes API server and Alibaba Cloud. Every controller is the
//! same five words in this order:
//!
//! ```text
//! observe (reads) -> desire (pure) -> plan (pure) -> execute (writes, fenced) -> report (events, metrics, logs)
//! ```
//!
//! # Reading order
//!
//! 1. [`plan`]: the decisions. [`plan::inputs`] is what is seen of the cluster, [`plan::node`], [`plan::route`] and
//!    [`plan::clb`] turn it, and what the cloud has, into steps.
//! 2. [`controllers`]: the loops. [`controllers::batch`] drives sets (nodes, routes), [`controllers::workqueue`] drives single
//!    objects (Services).
//! 3. [`fence`]: who may write, and until when.
//! 4. [`alibaba`] and [`cluster`]: the two worlds, each behind a seam as low as possible.
//! 5. [`config`], [`reload`], [`supervisor`], [`app`], [`cli`]: what the user says, what a change of it means, which
//!    controllers run, how it starts and ends.
//!    [`preview`] is the same planning without the writing, [`gc`] finds what nobody owns any more. [`rights`] says what
//!    all that needs to be allowed,
//!    [`kubelet`] what a kubelet should know of its instance.
//!
//! # Rules
//!
//! These hold everywhere, and `tests/integration/invariants.rs` or the compiler says so:
//!
//! - [`plan`] does no I/O: no client, no runtime, no clock, no log.
//! - Only [`alibaba`] names the vendor's actions; only [`cluster`] uses the Kubernetes client.
//! - A write takes a [`fence::Permit`], and only the [`fence::Fence`] gives one out: there is no other way to write.
//! - The wall clock is read in [`clock`] and nowhere else; what is left to chance, which is only when something is tried,
//!   is in [`jitter`].
//! - There is no state of our own: whatever is remembered only saves reads, and can be lost at any moment.
//!
//! Absent on purpose: a hash of the last applied state (it hides drift), waiting inside a run (it makes stopping slow), a
//! dry-run twin of the executor (it would not be the same), finding things of ours by a remembered id alone (ids do not
//! prove ownership).

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
pub mod jitter;
pub mod plan;
pub mod reload;
pub mod supervisor;
pub mod telemetry;
