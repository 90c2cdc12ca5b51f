//! Nodes as a kubelet with `--cloud-provider=external` makes them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::clock::rfc3339;
use super::{Cluster, Failure};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A machine that joins the cluster.
#[derive(Clone, Debug, Default)]
pub struct NodeSpec {
    pub name: String,
    /// `--provider-id`.
    pub provider_id: Option<String>,
    /// What kube-controller-manager allocates to it.
    pub pod_cidrs: Vec<String>,
    pub labels: Vec<(String, String)>,
    pub annotations: Vec<(String, String)>,
    /// `--node-ip`: kubelet writes it into an annotation for the cloud controller to confirm.
    pub node_ip: Option<String>,
    /// An address that is there from the start, as without a cloud provider.
    pub internal_ip: Option<String>,
}

impl NodeSpec {
    /// A machine of this name.
    pub fn new(name: &str) -> NodeSpec {
        NodeSpec { name: name.to_owned(), ..NodeSpec::default() }
    }

    #[must_use]
    pub fn provider_id(self, id: &str) -> NodeSpec {
        NodeSpec { provider_id: Some(id.to_owned()), ..self }
    }

    #[must_use]
    pub fn pod_cidr(mut self, cidr: &str) -> NodeSpec {
        self.pod_cidrs.push(cidr.to_owned());
        self
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> NodeSpec {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> NodeSpec {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn node_ip(self, ip: &str) -> NodeSpec {
        NodeSpec { node_ip: Some(ip.to_owned()), ..self }
    }

    #[must_use]
    pub fn internal_ip(self, ip: &str) -> NodeSpec {
        NodeSpec { internal_ip: Some(ip.to_owned()), ..self }
    }

    fn object(&self, cluster: &Cluster, now: Timestamp, tainted: bool) -> Value {
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {
                    "beta.kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/os": "linux",
                },
                "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
            },
            "spec": {},
            "status": {
                "addresses": [{ "type": "Hostname", "address": self.name }],
                "allocatable": { "cpu": "4", "memory": "16Gi", "pods": "110" },
                "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
                "conditions": [
                    condition("MemoryPressure", "False", now),
                    condition("DiskPressure", "False", now),
                    condition("PIDPressure", "False", now),
                    condition("Ready", "True", now),
                ],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
                "nodeInfo": {
                    "architecture": "amd64",
                    "bootID": "",
                    "containerRuntimeVersion": "containerd://2.0.0",
                    "kernelVersion": "6.1.0",
                    "kubeProxyVersion": cluster.version().to_string(),
                    "kubeletVersion": cluster.version().to_string(),
                    "machineID": "",
                    "operatingSystem": "linux",
                    "osImage": "Linux",
                    "systemUUID": "",
                },
            },
        });
        for (key, value) in &self.labels {
            node["metadata"]["labels"][key] = value.clone().into();
        }
        for (key, value) in &self.annotations {
            node["metadata"]["annotations"][key] = value.clone().into();
        }
        if let Some(ip) = &self.node_ip {
            node["metadata"]["annotations"][PROVIDED_IP] = ip.clone().into();
        }
        if let Some(ip) = &self.internal_ip {
            let address = json!({ "type": "InternalIP", "address": ip });
            node["status"]["addresses"] = json!([address, { "type": "Hostname", "address": self.name }]);
        }
        if let Some(id) = &self.provider_id {
            node["spec"]["providerID"] = id.clone().into();
        }
        if let Some(first) = self.pod_cidrs.first() {
            node["spec"]["podCIDR"] = first.clone().into();
            node["spec"]["podCIDRs"] = self.pod_cidrs.clone().into();
        }
        if tainted {
            node["spec"]["taints"] = json!([{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }]);
        }
        node
    }
}

fn condition(kind: &str, status: &str, now: Timestamp) -> Value {
    let (reason, message) = match (kind, status) {
        (_, "Unknown") => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
        ("Ready", "True") => ("KubeletReady", "kubelet is posting ready status"),
        ("Ready", _) => ("KubeletNotReady", "container runtime is down"),
        ("MemoryPressure", _) => ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", _) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        _ => ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    };
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    })
}

impl Cluster {
    /// A machine joins: its Node is Ready and waits, tainted, for a cloud controller.
    pub fn join_node(&self, spec: &NodeSpec) -> Result<Value, Failure> {
        self.create(spec.object(self, self.shared.clock.now(), true))
    }

    /// A Node that is already initialised: Ready and without the taint.
    pub fn add_node(&self, spec: &NodeSpec) -> Result<Value, Failure> {
        self.create(spec.object(self, self.shared.clock.now(), false))
    }

    /// Removes a Node.
    pub fn delete_node(&self, name: &str) -> Result<(), Failure> {
        self.delete("Node", "", name)
    }

    /// Sets a Node's Ready condition to `True`, `False` or `Unknown`, with the reasons that kubelet or, for
    /// `Unknown`, kube-controller-manager give.
    pub fn set_ready(&self, name: &str, status: &str) -> Result<Value, Failure> {
        let now = self.shared.clock.now();
        self.patch_status("Node", "", name, &json!({ "conditions": [condition("Ready", status, now)] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Version;

    #[tokio::test]
    async fn a_joining_node_waits_for_the_cloud() {
        let cluster = Cluster::new(Version::NEWEST);
        let spec = NodeSpec::new("a").provider_id("cn-hangzhou.i-1").pod_cidr("10.0.1.0/24").node_ip("192.168.0.1");
        let node = cluster.join_node(&spec).unwrap();
        assert_eq!(
            node["spec"],
            json!({
                "providerID": "cn-hangzhou.i-1",
                "podCIDR": "10.0.1.0/24",
                "podCIDRs": ["10.0.1.0/24"],
                "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }],
            })
        );
        assert_eq!(node["metadata"]["annotations"][PROVIDED_IP], "192.168.0.1");
        assert_eq!(node["status"]["addresses"], json!([{ "type": "Hostname", "address": "a" }]));

        let node = cluster.set_ready("a", "Unknown").unwrap();
        let ready = node["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
    }
}
