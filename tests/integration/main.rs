//! The real binary between a simulated cluster and a simulated cloud, over loopback.
//!
//! [`kit`] starts the two worlds and the binary; each of the other modules is one family of promises.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should end")]

mod conformance;
mod defects;
mod golden;
mod kit;
mod story;
