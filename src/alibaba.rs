//! Everything that knows the vendor's API.
//!
//! From the network upwards: [`transport`] sends an HTTP request; `rpc` makes one call of it, signed (`signing`), within
//! the quotas (`rate_limit`), and says what an error means (`errors`, [`Fault`]); `client` adds keys (`credentials`, `sts`,
//! [`metadata`]) and settings; `request` is one request of a product with its typed answer (`answer`); [`ecs`], [`vpc`],
//! [`clb`], [`nlb`] and [`pvtz`] speak in the program's own terms. [`actions`] lists all that can be called.
//!
//! A new product is a row in [`endpoints`], a row for each action in [`actions`], its error codes in `errors` and a module
//! whose functions are `request::Request`s.
//!
//! Nothing here waits until the cloud has finished an operation, and no call is repeated except as `rpc` and `client` say.

pub mod actions;
mod answer;
pub mod clb;
mod client;
mod credentials;
pub mod ecs;
pub mod endpoints;
mod errors;
mod failing;
mod fault;
pub mod location;
pub mod metadata;
pub mod nlb;
pub mod probe;
pub mod pvtz;
mod rate_limit;
mod request;
mod rpc;
mod signing;
mod sts;
pub mod transport;
pub mod vpc;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use client::SigningClient;
pub use credentials::CredentialState;
pub use failing::CallState;
pub(crate) use fault::{Blame, Rest, Retry};
pub use fault::{Fault, FaultKind};
pub use rate_limit::{Priority, Purpose, RateLimiter, RateUse, Tickets, planned, queue_end};

use crate::config::checked;

/// The cloud, product by product. Cheap to clone; clones share connections, credentials and rate limits.
#[derive(Clone, Debug)]
pub struct CloudClient {
    /// Instances and network interfaces.
    pub ecs: ecs::Ecs,
    /// Routes, vSwitches, EIPs.
    pub vpc: vpc::Vpc,
    /// Classic load balancers.
    pub clb: clb::Clb,
    /// Network load balancers.
    pub nlb: nlb::Nlb,
    /// Names inside of VPCs.
    pub pvtz: pvtz::Pvtz,
    signing: SigningClient,
}

impl CloudClient {
    /// The cloud as seen from `region`. Makes no call yet.
    pub fn new(transport: Arc<dyn transport::Transport>, config: &checked::Cloud, region: &str) -> Self {
        Self::limited_by(RateLimiter::default(), transport, config, region)
    }

    /// The same, within limits that others share or have shared.
    pub fn limited_by(
        rate_limiter: RateLimiter,
        transport: Arc<dyn transport::Transport>,
        config: &checked::Cloud,
        region: &str,
    ) -> Self {
        Self::with(SigningClient::new(transport, config, region, rate_limiter))
    }

    fn with(signing: SigningClient) -> Self {
        Self {
            ecs: ecs::Ecs(signing.clone()),
            vpc: vpc::Vpc(signing.clone()),
            clb: clb::Clb(signing.clone()),
            nlb: nlb::Nlb(signing.clone()),
            pvtz: pvtz::Pvtz(signing.clone()),
            signing,
        }
    }

    /// The region that calls go to unless they name another.
    pub fn region(&self) -> String {
        self.signing.region()
    }
}
