//! The real binary between a simulated cluster and a simulated cloud, over loopback.
//!
//! [`kit`] starts the two worlds and the binary, [`proof`] says what must be true of them at the end; each of the other modules is one family of promises.

#![allow(clippy::unwrap_used)]

mod blast_radius;
mod commands;
mod counts;
mod crashes;
mod deploy;
mod elections;
mod features;
mod invariants;
mod kit;
mod proof;
mod rights;
mod scale;
mod story;
mod systemd;
