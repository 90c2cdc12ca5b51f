//! Between the stored form of an object and the version that a client speaks.

use serde_json::{Value, json};

use super::object;
use super::resources::Resource;
use super::version::Version;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// `apiVersion` of stored objects: the preferred version of the newest Kubernetes.
pub(super) fn stored_version(resource: &Resource) -> String {
    resource.api_version(resource.served.first().map_or("v1", |served| served.version))
}

/// Turns an object that a client sent into the stored form.
pub(super) fn to_stored(resource: &Resource, version: &str, value: &mut Value) {
    patch_to_stored(resource, version, value);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), stored_version(resource).into());
        fields.insert("kind".to_owned(), resource.kind.into());
    }
}

/// Turns a patch of an object into one of the stored form.
pub(super) fn patch_to_stored(resource: &Resource, version: &str, value: &mut Value) {
    if resource.kind == "EndpointSlice" && version == "v1beta1" {
        for endpoint in value.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(fields) = endpoint.as_object_mut() else { continue };
            let topology = fields.remove("topology").unwrap_or(Value::Null);
            for (label, field) in [(HOSTNAME, "nodeName"), (ZONE, "zone")] {
                if let Some(place) = topology.get(label) {
                    fields.entry(field).or_insert_with(|| place.clone());
                }
            }
        }
    }
    for fixed in ["apiVersion", "kind"] {
        if let Some(fields) = value.as_object_mut() {
            fields.remove(fixed);
        }
    }
}

/// Whether clients of this version get objects as they are stored, but for their kind and version.
pub(super) fn is_served_as_stored(resource: &Resource, version: &str) -> bool {
    resource.kind != "EndpointSlice" || version != "v1beta1"
}

/// Turns a stored object into the client's version.
pub(super) fn to_served(resource: &Resource, version: &str, played: Version, object: &Value) -> Value {
    let mut value = object.clone();
    value["apiVersion"] = resource.api_version(version).into();
    if !is_served_as_stored(resource, version) {
        for endpoint in value.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
            let (node, zone) =
                (object::text(endpoint, "/nodeName").to_owned(), object::text(endpoint, "/zone").to_owned());
            let Some(fields) = endpoint.as_object_mut() else { continue };
            fields.remove("zone");
            if played < Version::V1_20 {
                fields.remove("nodeName");
            }
            let mut topology = json!({});
            for (label, place) in [(HOSTNAME, node), (ZONE, zone)] {
                if !place.is_empty() {
                    topology[label] = place.into();
                }
            }
            if topology.as_object().is_some_and(|labels| !labels.is_empty()) {
                fields.insert("topology".to_owned(), topology);
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::resources::named;

    #[test]
    fn endpoint_slices_of_both_versions() {
        let slices = named("EndpointSlice").unwrap();
        let beta = json!({
            "apiVersion": "discovery.k8s.io/v1beta1",
            "kind": "EndpointSlice",
            "endpoints": [{ "addresses": ["10.0.0.1"], "topology": { HOSTNAME: "a", ZONE: "z" } }],
        });
        let mut stored = beta.clone();
        to_stored(slices, "v1beta1", &mut stored);
        assert_eq!(
            stored,
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "endpoints": [{ "addresses": ["10.0.0.1"], "nodeName": "a", "zone": "z" }],
            })
        );
        assert_eq!(to_served(slices, "v1beta1", Version::minor_release(18), &stored), beta);
        assert_eq!(to_served(slices, "v1beta1", Version::V1_20, &stored)["endpoints"][0]["nodeName"], "a");
        assert_eq!(to_served(slices, "v1", Version::NEWEST, &stored), stored);
    }
}
