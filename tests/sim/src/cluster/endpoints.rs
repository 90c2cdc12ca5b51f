//! Endpoints of Services, as the endpoint controllers of the played version write them.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::object::{items, text};
use super::resources::named;
use super::version::{Feature, Version};
use super::writes::name_suffix;
use super::{Cluster, Failure};

/// The endpoint slice controller puts so many endpoints into a slice.
const PER_SLICE: usize = 100;

/// One address behind a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub ip: IpAddr,
    /// The Node that the Pod runs on.
    pub node: Option<String>,
    pub zone: Option<String>,
    pub ready: bool,
    /// Whether it still answers, ready or not; differs from `ready` while it terminates.
    pub serving: bool,
    pub terminating: bool,
    /// Name of the Pod behind it.
    pub pod: Option<String>,
    /// Its uid, unless it follows from the name.
    pub uid: Option<String>,
    /// Its name below that of the Service.
    pub hostname: Option<String>,
}

impl Endpoint {
    /// A ready endpoint on a Node.
    pub fn ready(ip: IpAddr, node: &str) -> Endpoint {
        Endpoint {
            ip,
            node: Some(node.to_owned()),
            zone: None,
            ready: true,
            serving: true,
            terminating: false,
            pod: None,
            uid: None,
            hostname: None,
        }
    }

    /// The same, not ready.
    #[must_use]
    pub fn not_ready(self) -> Endpoint {
        Endpoint { ready: false, serving: false, ..self }
    }

    /// The same, of a Pod that is being deleted but still answers.
    #[must_use]
    pub fn terminating(self) -> Endpoint {
        Endpoint { ready: false, serving: true, terminating: true, ..self }
    }

    fn target(&self, namespace: &str) -> Option<Value> {
        let uid = |pod: &String| self.uid.clone().unwrap_or_else(|| format!("uid-of-{pod}"));
        self.pod.as_ref().map(|pod| json!({ "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid(pod) }))
    }

    fn address(&self, namespace: &str) -> Value {
        without_nulls(
            json!({ "ip": self.ip, "hostname": self.hostname, "nodeName": self.node, "targetRef": self.target(namespace) }),
        )
    }

    fn slice_entry(&self, namespace: &str, version: Version) -> Value {
        let conditions = if version.has(Feature::TerminatingEndpoints) {
            json!({ "ready": self.ready, "serving": self.serving, "terminating": self.terminating })
        } else {
            json!({ "ready": self.ready })
        };
        without_nulls(json!({
            "addresses": [self.ip],
            "conditions": conditions,
            "hostname": self.hostname,
            "nodeName": self.node,
            "zone": self.zone,
            "targetRef": self.target(namespace),
        }))
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// Ports of the Pods: numbers as they are, names as the Service's own port.
fn target_ports(service: &Value) -> Vec<Value> {
    items(service, "/spec/ports")
        .iter()
        .map(|port| {
            let number = port.get("targetPort").filter(|target| target.is_u64()).unwrap_or(&port["port"]);
            without_nulls(json!({ "name": text(port, "/name"), "port": number, "protocol": port["protocol"] }))
        })
        .collect()
}

impl Cluster {
    /// Makes these the endpoints of a Service: Endpoints always, EndpointSlices where the version has them.
    pub fn set_endpoints(&self, namespace: &str, service: &str, endpoints: &[Endpoint]) -> Result<(), Failure> {
        let owner = self
            .get("Service", namespace, service)
            .ok_or_else(|| Failure::not_found(super::resource("Service"), service))?;
        self.set_plain_endpoints(namespace, &owner, endpoints)?;
        let slices = named("EndpointSlice").filter(|slices| slices.versions(self.version()).next().is_some());
        if slices.is_some() {
            for (family, is_v6) in [("IPv4", false), ("IPv6", true)] {
                let of_family: Vec<_> = endpoints
                    .iter()
                    .filter(|endpoint| endpoint.ip.is_ipv6() == is_v6)
                    .filter(|endpoint| !endpoint.terminating || self.version().has(Feature::TerminatingEndpoints))
                    .collect();
                self.set_slices(namespace, &owner, family, &of_family)?;
            }
        }
        Ok(())
    }

    fn set_plain_endpoints(&self, namespace: &str, owner: &Value, endpoints: &[Endpoint]) -> Result<(), Failure> {
        let name = text(owner, "/metadata/name");
        let addresses = |ready: bool| {
            let chosen = endpoints.iter().filter(|endpoint| endpoint.ready == ready && !endpoint.terminating);
            chosen.map(|endpoint| endpoint.address(namespace)).collect::<Vec<_>>()
        };
        let mut subset = json!({ "ports": target_ports(owner) });
        for (field, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let addresses = addresses(ready);
            if !addresses.is_empty() {
                subset[field] = addresses.into();
            }
        }
        let empty = subset.get("addresses").is_none() && subset.get("notReadyAddresses").is_none();
        let subsets = if empty { json!([]) } else { json!([subset]) };
        self.apply(json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": { "name": name, "namespace": namespace },
            "subsets": subsets,
        }))?;
        Ok(())
    }

    fn set_slices(&self, namespace: &str, owner: &Value, family: &str, endpoints: &[&Endpoint]) -> Result<(), Failure> {
        let service = text(owner, "/metadata/name");
        let present: Vec<Value> = {
            let store = self.shared.store.lock();
            // Those made here begin with the name of the Service.
            let slices = store.list_from(super::resource("EndpointSlice"), namespace, service);
            let ours = slices.take_while(|(key, _)| key.name.starts_with(service)).filter(|(_, slice)| {
                text(slice, "/metadata/labels/kubernetes.io~1service-name") == service
                    && text(slice, "/addressType") == family
            });
            ours.map(|(_, slice)| Value::clone(slice)).collect()
        };
        let mut names = present.iter().map(|slice| text(slice, "/metadata/name"));
        let mut chunks: Vec<&[&Endpoint]> = endpoints.chunks(PER_SLICE).collect();
        if chunks.is_empty() && (family == "IPv4" || !present.is_empty()) {
            // A Service without endpoints keeps one empty slice.
            chunks.push(&[]);
        }
        for chunk in chunks {
            let name = names.next().map_or_else(|| format!("{service}-{}", name_suffix()), str::to_owned);
            self.apply(json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                        "kubernetes.io/service-name": service,
                    },
                    "ownerReferences": [{
                        "apiVersion": "v1",
                        "kind": "Service",
                        "name": service,
                        "uid": text(owner, "/metadata/uid"),
                        "controller": true,
                        "blockOwnerDeletion": true,
                    }],
                },
                "addressType": family,
                "endpoints": chunk.iter().map(|endpoint| endpoint.slice_entry(namespace, self.version())).collect::<Vec<_>>(),
                "ports": target_ports(owner),
            }))?;
        }
        for left_over in names {
            self.delete("EndpointSlice", namespace, left_over)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster_with_service(version: Version) -> Cluster {
        let cluster = Cluster::new(version);
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "web" },
            "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] },
        });
        cluster.create(service).unwrap();
        cluster
    }

    fn some(count: u8) -> Vec<Endpoint> {
        (0..count).map(|n| Endpoint::ready(IpAddr::from([10, 0, 0, n]), "a")).collect()
    }

    #[tokio::test]
    async fn slices_exist_where_the_version_has_them() {
        for (version, slices) in [(Version::V1_16, 0), (Version::V1_20, 1), (Version::NEWEST, 1)] {
            let cluster = cluster_with_service(version);
            cluster.set_endpoints("default", "web", &some(2)).unwrap();
            assert_eq!(cluster.list("EndpointSlice").len(), slices, "{version}");
            let endpoints = cluster.get("Endpoints", "default", "web").unwrap();
            assert_eq!(endpoints["subsets"][0]["addresses"][1]["ip"], "10.0.0.1");
            assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 8080);
        }
    }

    #[tokio::test]
    async fn terminating_endpoints_are_known_from_1_22() {
        let leaving = [Endpoint::ready(IpAddr::from([10, 0, 0, 1]), "a").terminating()];
        let old = cluster_with_service(Version::V1_20);
        old.set_endpoints("default", "web", &leaving).unwrap();
        assert_eq!(old.list("EndpointSlice")[0]["endpoints"], json!([]));
        let new = cluster_with_service(Version::NEWEST);
        new.set_endpoints("default", "web", &leaving).unwrap();
        assert_eq!(
            new.list("EndpointSlice")[0]["endpoints"][0]["conditions"],
            json!({ "ready": false, "serving": true, "terminating": true })
        );
    }

    #[tokio::test]
    async fn slices_grow_shrink_and_go_with_their_service() {
        let cluster = cluster_with_service(Version::NEWEST);
        cluster.set_endpoints("default", "web", &some(150)).unwrap();
        assert_eq!(cluster.list("EndpointSlice").len(), 2);
        cluster.set_endpoints("default", "web", &[]).unwrap();
        let slices = cluster.list("EndpointSlice");
        assert_eq!((slices.len(), &slices[0]["endpoints"]), (1, &json!([])));
        cluster.delete("Service", "default", "web").unwrap();
        assert_eq!(cluster.list("EndpointSlice"), Vec::<Value>::new());
    }
}
