//! The real binary between a simulated cluster and a simulated cloud, over loopback.
//!
//! [`kit`] starts the two worlds and the binary, [`proof`] says what must be true of them at the end; each of the other
//! modules is one family of promises.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should end")]

mod bad_days;
mod blast_radius;
mod certificates;
mod checklist;
mod commands;
mod conformance;
mod counts;
mod crashes;
mod defects;
mod deploy;
mod elections;
mod exposure;
mod faults;
mod features;
mod golden;
mod hostile;
mod in_process;
mod invariants;
mod kit;
mod late_lists;
mod leaders;
mod live;
mod live_keys;
mod migration;
mod nodes;
mod ownership;
mod placement;
mod proof;
mod real_cluster;
mod rights;
mod routes;
mod scale;
mod secrets;
mod start_order;
mod story;
mod systemd;
mod traps;
mod versions;
