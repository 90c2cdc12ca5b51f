//! The real binary between a simulated cluster and a simulated cloud, over loopback.
//!
//! [`kit`] starts the two worlds and the binary; each of the other modules is one family of promises.

mod kit;
mod live;
mod start_order;
mod story;
mod versions;
