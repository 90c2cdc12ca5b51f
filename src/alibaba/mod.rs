//! Everything that knows the vendor.

pub mod ecs;
mod fault;
pub mod place;
pub mod slb;
pub mod vpc;

pub use fault::{Fault, FaultKind};

/// One product's way to the cloud; replaced by the real client.
#[derive(Clone, Debug)]
pub struct Call {}

/// The cloud, product by product. Cheap to clone; clones share connections, credentials and budgets.
#[derive(Clone, Debug)]
pub struct Cloud {
    /// Instances and network interfaces.
    pub ecs: ecs::Ecs,
    /// Routes, vSwitches, EIPs.
    pub vpc: vpc::Vpc,
    /// Classic load balancers.
    pub slb: slb::Slb,
}
