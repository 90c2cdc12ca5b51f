//! What the server fills in by itself; Services have a file of their own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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
    /// First and last port that the server may give to Services.
    pub(super) node_ports: (u16, u16),
}

impl Rules {
    /// As servers have them if nothing is said.
    pub(super) const fn new(version: Version) -> Self {
        Self { version, dual_stack: false, node_ports: (30000, 32767) }
    }
}

/// Defaults of every other kind than Service.
pub(super) fn fill(resource: &Resource, version: Version, value: &mut Value) {
    match resource.kind {
        "Namespace" => {
            object::map(value, "status").entry("phase").or_insert("Active".into());
            object::map(value, "spec").entry("finalizers").or_insert(json!(["kubernetes"]));
        }
        "PersistentVolume" => {
            object::map(value, "status").entry("phase").or_insert("Available".into());
            let spec = object::map(value, "spec");
            spec.entry("persistentVolumeReclaimPolicy").or_insert("Retain".into());
            if !version.has(Feature::VolumeAffinity) {
                spec.remove("nodeAffinity");
            }
        }
        "Pod" => {
            object::map(value, "status").entry("phase").or_insert("Pending".into());
        }
        "Secret" => {
            let plain = value.as_object_mut().and_then(|secret| secret.remove("stringData"));
            for (key, text) in plain.as_ref().and_then(Value::as_object).into_iter().flatten() {
                let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
                object::map(value, "data").insert(key.clone(), encoded.into());
            }
            if let Some(secret) = value.as_object_mut() {
                secret.entry("type").or_insert("Opaque".into());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::resources::named;

    fn filled(kind: &str, version: Version, mut value: Value) -> Value {
        fill(named(kind).unwrap(), version, &mut value);
        value
    }

    #[test]
    fn plain_texts_of_secrets_are_encoded() {
        let secret = filled("Secret", Version::NEWEST, json!({ "stringData": { "k": "v" } }));
        assert_eq!(secret, json!({ "type": "Opaque", "data": { "k": "dg==" } }));
    }

    #[test]
    fn pod_networks_by_version() {
        let node = json!({ "spec": { "podCIDR": "10.0.1.0/24" } });
        assert_eq!(filled("Node", Version::V1_11, node.clone()), node);
        assert_eq!(filled("Node", Version::V1_16, node)["spec"]["podCIDRs"], json!(["10.0.1.0/24"]));
    }
}
