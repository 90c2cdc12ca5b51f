//! What the server fills in by itself; Services have a file of their own.

use serde_json::{Value, json};

use super::object;
use super::resources::Resource;
use super::version::{Feature, Version};

/// What the defaults of a cluster depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) version: Version,
    /// Whether Services can have IPv6 addresses besides IPv4.
    pub(super) dual_stack: bool,
}

/// Defaults of every other kind than Service.
pub(super) fn fill(resource: &Resource, version: Version, value: &mut Value) {
    match resource.kind {
        "Namespace" => {
            object::map(value, "status").entry("phase").or_insert("Active".into());
            object::map(value, "spec").entry("finalizers").or_insert(json!(["kubernetes"]));
        }
        "Pod" => {
            object::map(value, "status").entry("phase").or_insert("Pending".into());
        }
        "Secret" => {
            if let Some(fields) = value.as_object_mut() {
                fields.entry("type").or_insert("Opaque".into());
            }
        }
        "Node" => {
            let spec = object::map(value, "spec");
            if !version.has(Feature::PodCidrs) {
                spec.remove("podCIDRs");
            } else if let Some(cidr) = spec.get("podCIDR").cloned() {
                spec.entry("podCIDRs").or_insert(json!([cidr]));
            }
        }
        _ => {}
    }
}
