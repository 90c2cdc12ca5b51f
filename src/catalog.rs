//! The controllers and the actions of the cloud that a configuration may name.

use crate::alibaba::actions;
use crate::config::{Catalog, ControllerEntry, ControllerName};

/// Initialises nodes, keeps them true, removes those whose instance is released.
pub const NODE: ControllerName = ControllerName::new("node");
/// Keeps route entries for pod CIDRs.
pub const ROUTE: ControllerName = ControllerName::new("route");
/// Keeps classic load balancers for Services.
pub const SERVICE: ControllerName = ControllerName::new("service");

/// What a configuration may name.
pub static CATALOG: Catalog = Catalog {
    controllers: &[
        ControllerEntry {
            name: NODE,
            aliases: &["cloud-node", "cloud-node-controller"],
            parts: &["cloud-node-lifecycle", "cloud-node-lifecycle-controller"],
            instead_of_parts: "set node.remove_released and node.shutdown_taint to false",
        },
        ControllerEntry { name: ROUTE, aliases: &["node-route-controller"], parts: &[], instead_of_parts: "" },
        ControllerEntry { name: SERVICE, aliases: &["service-lb-controller"], parts: &[], instead_of_parts: "" },
    ],
    absent_controllers: &["nlb", "ingress", "pvtz"],
    actions: actions::NAMES,
    example_action: actions::CREATE_LOAD_BALANCER.0.name,
};
