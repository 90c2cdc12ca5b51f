//! The real binary between a simulated cluster and a simulated cloud, over loopback.
//!
//! [`kit`] starts the two worlds and the binary, [`proof`] says what must be true of them at the end; each of the other
//! modules is one family of promises.

#![allow(clippy::unwrap_used, reason = "everything here is a test")]

mod bad_days;
mod blast_radius;
mod commands;
mod counts;
mod crashes;
mod deploy;
mod elections;
mod invariants;
mod kit;
mod migration;
mod nodes;
mod proof;
mod rights;
mod routes;
mod scale;
mod story;
mod systemd;
