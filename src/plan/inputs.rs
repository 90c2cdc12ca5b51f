//! What planning sees of the cluster: Kubernetes objects, reduced to the fields that decide something.
//!
//! Views are made once, when an object arrives ([`crate::cluster`]), and shared from then on. They hold the same for old
//! and new API servers: Endpoints and EndpointSlices of any version become [`EndpointsView`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use litemap::LiteMap;
use serde::Serialize;

/// Kinds of objects that are read and written one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// core/v1 Node
    Node,
    /// core/v1 Service
    Service,
    /// core/v1 Pod
    Pod,
    /// core/v1 PersistentVolume
    PersistentVolume,
}

impl ObjectKind {
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Node => ["Node", "nodes", "node"],
            Self::Service => ["Service", "services", "svc"],
            Self::Pod => ["Pod", "pods", "pod"],
            Self::PersistentVolume => ["PersistentVolume", "persistentvolumes", "pv"],
        }
    }

    /// The kind as in `kind:` of a manifest.
    pub const fn as_str(self) -> &'static str {
        self.names()[0]
    }

    /// As in the paths of the API.
    pub const fn plural(self) -> &'static str {
        self.names()[1]
    }

    /// As people write it in arguments.
    pub const fn short(self) -> &'static str {
        self.names()[2]
    }
}

/// Namespace and name; the namespace is empty for cluster-scoped objects. A large cluster has very many: copies share the texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key of a namespaced object.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: namespace.as_ref().into(), name: name.as_ref().into() }
    }

    /// A key of a cluster-scoped object, such as a node.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self { name: name.as_ref().into(), ..Self::default() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The API server's default for `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
pub const DEFAULT_AFFINITY: u32 = 10_800;

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`, or anything else that is written there.
    Unknown,
}

/// One condition of a node or a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// The machine-readable reason; empty if none was given.
    pub reason: String,
    /// When the status last changed, if it was said.
    pub since: Option<Timestamp>,
}

/// Type of the condition of a Service that says whether its load balancer is in sync.
pub const LOAD_BALANCER_READY: &str = "LoadBalancerReady";

/// The condition [`LOAD_BALANCER_READY`] as the API server has it; `None` if it has none. Only this program writes it, and nothing
/// is decided by it: all are equal, so that writing it makes no Service due, and no retry comes before its time.
#[derive(Clone, Debug, Default)]
pub struct ReadyCondition(pub Option<SyncCondition>);

impl PartialEq for ReadyCondition {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadyCondition {}

/// What a condition says of an object that this program keeps in sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncCondition {
    /// `True`, or anything else.
    pub is_true: bool,
    /// The machine-readable reason.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

/// A taint of a node; as the API has it in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Taint {
    /// Such as `node.cloudprovider.kubernetes.io/uninitialized`.
    pub key: String,
    /// Empty if the taint has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, if that was said; evictions by `NoExecute` count from then.
    #[serde(rename = "timeAdded", skip_serializing_if = "Option::is_none")]
    pub added: Option<Timestamp>,
}

/// An address in `status.addresses` of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, ...
    pub kind: String,
    /// The address itself.
    pub address: String,
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.creationTimestamp`
    pub created: Option<Timestamp>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// All labels. There can be very many nodes: equal texts are shared.
    pub labels: LiteMap<Arc<str>, Arc<str>>,
    /// Annotation `alpha.kubernetes.io/provided-node-ip`, verbatim.
    pub provided_node_ip: Option<String>,
    /// `spec.providerID`, empty if unset.
    pub provider_id: String,
    /// `spec.unschedulable`
    pub unschedulable: bool,
    /// `spec.taints`
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`, or `spec.podCIDR` where the server knows only that; verbatim.
    pub pod_cidrs: Vec<String>,
    /// `status.addresses`, in order.
    pub addresses: Vec<NodeAddress>,
    /// Whether the node has any condition at all.
    pub has_conditions: bool,
    /// The condition `Ready`.
    pub ready: Option<Condition>,
    /// Whether its instance is proven to be gone for good, so that it serves no longer. Only this process says so.
    pub is_replaced: bool,
    /// The condition `NetworkUnavailable`.
    pub network_unavailable: Option<Condition>,
}

impl NodeView {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }
}

/// `spec.type` of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// `ClusterIP`, and anything unknown.
    #[default]
    ClusterIp,
    /// `NodePort`
    NodePort,
    /// `LoadBalancer`
    LoadBalancer,
    /// `ExternalName`
    ExternalName,
}

/// A target port, as a number or as the name of a container port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetPort {
    /// 1 to 65535
    Number(u16),
    /// Name of a container port.
    Name(String),
}

impl fmt::Display for TargetPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty if unnamed.
    pub name: String,
    /// `TCP`, `UDP`, `SCTP`, verbatim.
    pub protocol: String,
    /// The port of the load balancer.
    pub port: u16,
    /// The port of the pods.
    pub target_port: TargetPort,
    /// 0 if none is allocated.
    pub node_port: u16,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ingress {
    /// Empty if unset.
    pub ip: String,
    /// Empty if unset.
    pub hostname: String,
}

/// What newer API servers hold of one entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressDetails {
    /// `VIP` or `Proxy`; empty if unset.
    pub ip_mode: String,
    /// Ports in the order of `spec.ports`.
    pub ports: Vec<PortStatus>,
}

/// How one port of a load balancer is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStatus {
    /// The port of the load balancer.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`
    pub protocol: String,
    /// Why the port is not served, in the form of a condition reason; empty if it is.
    pub error: String,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`
    pub finalizers: Vec<String>,
    /// Only the labels that cloud controllers write, such as `service.k8s.alibaba/loadbalancer-id`.
    pub labels: LiteMap<String, String>,
    /// Only annotations whose key contains `alibaba`, `alicloud` or starts with `service.beta.kubernetes.io/`.
    pub annotations: LiteMap<String, String>,
    /// A hash of all others: that they change is how people ask for another look.
    pub other_annotations: u64,
    /// The annotations that this program writes, which are in neither of the above: `alicloud-ccm/...`.
    pub own_annotations: LiteMap<String, String>,
    /// `spec.type`
    pub service_type: ServiceType,
    /// `spec.loadBalancerClass`; `Some("")` is kept apart from `None`.
    pub load_balancer_class: Option<String>,
    /// `spec.clusterIPs`, or `spec.clusterIP` where the server knows only that; verbatim, with `None` for a headless Service.
    pub cluster_ips: Vec<String>,
    /// `spec.externalName`, empty if unset.
    pub external_name: String,
    /// `spec.ports`
    pub ports: Vec<ServicePort>,
    /// Whether `spec.externalTrafficPolicy` is `Local`.
    pub local_traffic: bool,
    /// `spec.healthCheckNodePort`, 0 if none.
    pub health_check_node_port: u16,
    /// `spec.loadBalancerSourceRanges`
    pub source_ranges: Vec<String>,
    /// Whether `spec.sessionAffinity` is `ClientIP`, and its timeout in seconds.
    pub client_ip_affinity: Option<u32>,
    /// Fields of `spec` that are set and that no load balancer has a use for: name and value.
    pub vain_fields: Vec<(&'static str, String)>,
    /// `spec.allocateLoadBalancerNodePorts`, true if unset.
    pub allocate_node_ports: bool,
    /// `spec.publishNotReadyAddresses`
    pub publish_not_ready: bool,
    /// `spec.selector`
    pub selector: LiteMap<String, String>,
    /// `status.loadBalancer.ingress`
    pub ingress: Vec<Ingress>,
    /// What newer API servers hold of the same entries besides, in the same order.
    pub ingress_details: Vec<IngressDetails>,
    /// The condition `LoadBalancerReady` of `status.conditions`.
    pub ready: ReadyCondition,
    /// Who wrote `status.loadBalancer` last, as `metadata.managedFields` says, unless it was this program.
    pub status_writer: Option<Box<str>>,
}

impl ServiceView {
    /// Whether it is of type `LoadBalancer`.
    pub fn is_load_balancer(&self) -> bool {
        self.service_type == ServiceType::LoadBalancer
    }

    /// Whether it has no address of its own, so that its name leads to its endpoints.
    pub fn is_headless(&self) -> bool {
        matches!(self.service_type, ServiceType::ClusterIp | ServiceType::NodePort)
            && self.cluster_ips.iter().any(|ip| ip == "None")
    }
}

/// One endpoint address. There can be very many: texts are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IPv4 or IPv6.
    pub address: IpAddr,
    /// Name of the node that runs it.
    pub node: Option<Arc<str>>,
    /// Name of the pod behind it, if a pod is.
    pub pod: Option<Arc<str>>,
    /// The [number](super::digest::number) of its uid, since a pod can come back with its name and address; 0 without one.
    pub pod_uid: u64,
    /// `hostname`: its name below that of the Service, if it has one.
    pub hostname: Option<Arc<str>>,
    /// `conditions.ready`; as the API has it, an endpoint that does not say so is ready.
    pub ready: bool,
    /// `conditions.serving`: can take traffic, even if it terminates. An endpoint that does not say so can.
    pub serving: bool,
    /// `conditions.terminating`
    pub terminating: bool,
    /// Ports by name of the Service port, in order: (name, number).
    pub ports: Arc<[(String, u16)]>,
}

/// All endpoints of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointsView {
    /// Whether the API server shows no endpoints of any Service, not even of its own: then nothing is known of them.
    pub unknown: bool,
    /// Ordered by address, then port; the same address once per set of ports.
    pub endpoints: Vec<Endpoint>,
}

/// A Pod, as far as load balancers are among what its readiness waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`
    pub uid: String,
    /// `spec.readinessGates`, all of them.
    pub gates: BTreeSet<String>,
    /// Whether the condition `ContainersReady` is `True`.
    pub containers_ready: bool,
    /// Conditions of the types that [`PodView::gates`] names.
    pub conditions: BTreeMap<String, Condition>,
}

/// A PersistentVolume on a cloud disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeView {
    /// The object's name.
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// The labels that state a zone or a region.
    pub topology: LiteMap<String, String>,
    /// Whether there is a `spec.nodeAffinity`; then nobody can change it.
    pub has_affinity: bool,
    /// Who attaches the disk.
    pub driver: DiskDriver,
    /// What the driver calls the disk, as somebody wrote it.
    pub handle: String,
}

/// Who attaches the disk of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskDriver {
    /// `spec.csi`, by the driver `diskplugin.csi.alibabacloud.com`.
    #[default]
    Csi,
    /// `spec.flexVolume`, by the driver `alicloud/disk`.
    FlexVolume,
}
