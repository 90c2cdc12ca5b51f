//! The real binary between a simulated cluster and a simulated cloud, over loopback.
//!
//! [`kit`] starts the two worlds and the binary; each of the other modules is one family of promises.

mod bad_days;
mod commands;
mod counts;
mod elections;
mod invariants;
mod kit;
mod migration;
mod nodes;
mod routes;
mod story;
