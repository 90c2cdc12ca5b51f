//! Decodes what an API server of any version sends into what planning sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use litemap::LiteMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::interner::Interner;
use crate::plan::digest;
use crate::plan::inputs::{
    Condition, ConditionStatus, DEFAULT_AFFINITY, DiskDriver, Endpoint, EndpointsView, Ingress, IngressDetails,
    LOAD_BALANCER_READY, NodeAddress, NodeView, ObjectKey, PodView, PortStatus, ReadyCondition, ServicePort,
    ServiceType, ServiceView, SyncCondition, Taint, TargetPort, VolumeView,
};
use crate::plan::loadbalancer::ownership::OWN_ANNOTATIONS;
use crate::plan::volume;

/// Keep a Service in sight until its cloud resources are gone.
const FINALIZERS: [&str; 2] = ["service.k8s.alibaba/resources", "service.k8s.alibaba/nlb"];
/// Labels that cloud controllers write; a Service that has one has, or had, a load balancer.
const MARKS: [&str; 4] = [
    "service.beta.kubernetes.io/hash",
    "service.k8s.alibaba/loadbalancer-id",
    "alicloud-ccm/former-loadbalancer-id",
    "service.k8s.alibaba/security-group-id",
];

/// Namespace and name of any object.
pub(super) fn key(object: &Value) -> Option<ObjectKey> {
    let metadata = object.get("metadata")?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let name = metadata.get("name").and_then(Value::as_str)?;
    Some(ObjectKey::new(namespace, name))
}

/// A Node without images, volumes and capacity: with them, and the whole of a Pod, the program would be half a megabyte larger.
#[derive(Deserialize)]
struct BriefNode {
    metadata: ObjectMeta,
    spec: Option<core::NodeSpec>,
    status: Option<BriefNodeStatus>,
}

#[derive(Default, Deserialize)]
struct BriefNodeStatus {
    addresses: Option<Vec<core::NodeAddress>>,
    conditions: Option<Vec<core::NodeCondition>>,
}

/// What readiness gates need of a Pod.
#[derive(Deserialize)]
struct BriefPod {
    metadata: ObjectMeta,
    spec: Option<BriefPodSpec>,
    status: Option<BriefPodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BriefPodSpec {
    readiness_gates: Option<Vec<core::PodReadinessGate>>,
}

#[derive(Deserialize)]
struct BriefPodStatus {
    conditions: Option<Vec<core::PodCondition>>,
}

/// A Node.
pub(super) fn node(object: Value) -> Result<NodeView, serde_json::Error> {
    let BriefNode { metadata, spec, status } = serde_json::from_value(object)?;
    let spec = spec.unwrap_or_default();
    let status = status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |kind: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == kind)?;
        Some(condition(&found.status, found.reason.clone(), found.last_transition_time.as_ref()))
    };
    let pod_cidrs = spec.pod_cidrs.filter(|cidrs| !cidrs.is_empty());
    let annotations = metadata.annotations.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default().into_iter();
    let addresses = status.addresses.unwrap_or_default().into_iter();
    Ok(NodeView {
        has_conditions: !conditions.is_empty(),
        ready: condition("Ready"),
        is_replaced: false,
        network_unavailable: condition("NetworkUnavailable"),
        provided_node_ip: annotations.get("alpha.kubernetes.io/provided-node-ip").cloned(),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: metadata.deletion_timestamp.is_some(),
        labels: shared(metadata.labels.unwrap_or_default()),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        provider_id: spec.provider_id.unwrap_or_default(),
        unschedulable: spec.unschedulable.unwrap_or_default(),
        taints: taints
            .map(|taint| Taint {
                key: taint.key,
                value: taint.value.unwrap_or_default(),
                effect: taint.effect,
                added: taint.time_added.map(|time| time.0),
            })
            .collect(),
        pod_cidrs: pod_cidrs.unwrap_or_else(|| spec.pod_cidr.into_iter().filter(|cidr| !cidr.is_empty()).collect()),
        addresses: addresses.map(|address| NodeAddress { kind: address.type_, address: address.address }).collect(),
    })
}

/// Labels of nodes: most have the same keys, and values that others have as well.
fn shared(labels: BTreeMap<String, String>) -> LiteMap<Arc<str>, Arc<str>> {
    static TEXTS: LazyLock<Mutex<Interner>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock();
    labels.into_iter().map(|(key, value)| (texts.one(key), texts.one(value))).collect()
}

fn condition(status: &str, reason: Option<String>, since: Option<&Time>) -> Condition {
    let status = match status {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Condition { status, reason: reason.unwrap_or_default(), since: since.map(|time| time.0) }
}

/// A Pod.
pub(super) fn pod(object: Value) -> Result<PodView, serde_json::Error> {
    let BriefPod { metadata, spec, status } = serde_json::from_value(object)?;
    let gates = spec.and_then(|spec| spec.readiness_gates).unwrap_or_default().into_iter();
    let gates: BTreeSet<String> = gates.map(|gate| gate.condition_type).collect();
    let all = status.and_then(|status| status.conditions).unwrap_or_default();
    let containers_ready = all.iter().any(|found| found.type_ == "ContainersReady" && found.status == "True");
    let conditions = all
        .into_iter()
        .filter(|found| gates.contains(&found.type_))
        .map(|found| (found.type_, condition(&found.status, found.reason, found.last_transition_time.as_ref())))
        .collect();
    Ok(PodView {
        key: ObjectKey::new(metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default()),
        uid: metadata.uid.unwrap_or_default(),
        gates,
        containers_ready,
        conditions,
    })
}

/// A Service, of whatever type, as the API server would give it.
///
/// # Errors
/// A field has a value of a kind that it cannot have.
pub fn service(mut object: Value) -> Result<ServiceView, serde_json::Error> {
    let ready = ready_condition(&mut object);
    let core::Service { metadata, spec, status } = serde_json::from_value(object)?;
    let spec = spec.unwrap_or_default();
    let ingress = status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
    let cluster_ips = spec.cluster_ips.filter(|ips| !ips.is_empty());
    let client_ip = spec.session_affinity.as_deref() == Some("ClientIP");
    let affinity_seconds = spec
        .session_affinity_config
        .and_then(|config| config.client_ip)
        .and_then(|client_ip| client_ip.timeout_seconds)
        .and_then(|seconds| u32::try_from(seconds).ok());
    let annotations = metadata.annotations;
    let foreign: Vec<_> = annotations.iter().flatten().filter(|(key, _)| !concerns_load_balancers(key)).collect();
    Ok(ServiceView {
        key: ObjectKey::new(metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default()),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        labels: kept(metadata.labels.as_ref(), |key| MARKS.contains(&key)),
        other_annotations: digest::number(&foreign),
        own_annotations: kept(annotations.as_ref(), |key| key.starts_with(OWN_ANNOTATIONS)),
        annotations: kept(annotations.as_ref(), |key| {
            concerns_load_balancers(key) && !key.starts_with(OWN_ANNOTATIONS)
        }),
        service_type: match spec.type_.as_deref() {
            Some("LoadBalancer") => ServiceType::LoadBalancer,
            Some("NodePort") => ServiceType::NodePort,
            Some("ExternalName") => ServiceType::ExternalName,
            _ => ServiceType::ClusterIp,
        },
        load_balancer_class: spec.load_balancer_class,
        cluster_ips: cluster_ips.unwrap_or_else(|| spec.cluster_ip.into_iter().filter(|ip| !ip.is_empty()).collect()),
        external_name: spec.external_name.unwrap_or_default(),
        ports: spec.ports.unwrap_or_default().into_iter().map(service_port).collect(),
        local_traffic: spec.external_traffic_policy.as_deref() == Some("Local"),
        health_check_node_port: spec.health_check_node_port.map_or(0, port),
        source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
        client_ip_affinity: client_ip.then(|| affinity_seconds.unwrap_or(DEFAULT_AFFINITY)),
        vain_fields: vain_fields(spec.external_ips.unwrap_or_default().join(","), spec.load_balancer_ip),
        allocate_node_ports: spec.allocate_load_balancer_node_ports.unwrap_or(true),
        publish_not_ready: spec.publish_not_ready_addresses.unwrap_or_default(),
        selector: spec.selector.into_iter().flatten().collect(),
        ingress_details: ingress.iter().flatten().map(ingress_details).collect(),
        ingress: ingress
            .unwrap_or_default()
            .into_iter()
            .map(|entry| Ingress { ip: entry.ip.unwrap_or_default(), hostname: entry.hostname.unwrap_or_default() })
            .collect(),
        ready,
        status_writer: metadata.managed_fields.and_then(status_writer),
    })
}

fn vain_fields(external_ips: String, load_balancer_ip: Option<String>) -> Vec<(&'static str, String)> {
    let fields = [("externalIPs", external_ips), ("loadBalancerIP", load_balancer_ip.unwrap_or_default())];
    fields.into_iter().filter(|(_, given)| !given.is_empty()).collect()
}

/// The latest writer of `status.loadBalancer`, unless it was this program.
fn status_writer(fields: Vec<ManagedFieldsEntry>) -> Option<Box<str>> {
    let owns = |entry: &ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|FieldsV1(fields)| fields.pointer("/f:status/f:loadBalancer").is_some())
    };
    let last = fields.into_iter().filter(owns).max_by(|one, other| one.time.cmp(&other.time))?;
    last.manager.filter(|manager| manager != env!("CARGO_PKG_NAME")).map(Into::into)
}

/// Takes the conditions out: those of other programs need not have every field, and nothing is decided by them.
fn ready_condition(service: &mut Value) -> ReadyCondition {
    let conditions = service.pointer_mut("/status/conditions").map(Value::take);
    let conditions = conditions.as_ref().and_then(Value::as_array).into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == LOAD_BALANCER_READY);
    ReadyCondition(found.map(|found| {
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        SyncCondition { is_true: found["status"] == "True", reason: text("reason"), message: text("message") }
    }))
}

fn concerns_load_balancers(annotation: &str) -> bool {
    annotation.contains("alibaba")
        || annotation.contains("alicloud")
        || annotation.starts_with("service.beta.kubernetes.io/")
}

fn ingress_details(entry: &core::LoadBalancerIngress) -> IngressDetails {
    let ports = entry.ports.iter().flatten().map(|status| PortStatus {
        port: port(status.port),
        protocol: status.protocol.clone(),
        error: status.error.clone().unwrap_or_default(),
    });
    IngressDetails { ip_mode: entry.ip_mode.clone().unwrap_or_default(), ports: ports.collect() }
}

/// Whether a Service concerns us: it wants a load balancer, or something of ours may still be left.
pub(super) fn concerns_us(service: &ServiceView) -> bool {
    service.is_load_balancer()
        || service.finalizers.iter().any(|finalizer| FINALIZERS.contains(&finalizer.as_str()))
        || !service.labels.is_empty()
        || !service.own_annotations.is_empty()
        || service.ready.0.is_some()
}

fn kept(all: Option<&BTreeMap<String, String>>, keep: impl Fn(&str) -> bool) -> LiteMap<String, String> {
    let kept = all.into_iter().flatten().filter(|(key, _)| keep(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn service_port(entry: core::ServicePort) -> ServicePort {
    let number = port(entry.port);
    ServicePort {
        name: entry.name.unwrap_or_default(),
        protocol: entry.protocol.filter(|protocol| !protocol.is_empty()).unwrap_or_else(|| "TCP".into()),
        port: number,
        target_port: match entry.target_port {
            None | Some(IntOrString::Int(0)) => TargetPort::Number(number),
            Some(IntOrString::Int(target)) => TargetPort::Number(port(target)),
            Some(IntOrString::String(name)) if name.is_empty() => TargetPort::Number(number),
            Some(IntOrString::String(name)) => TargetPort::Name(name),
        },
        node_port: entry.node_port.map_or(0, port),
    }
}

/// The API server lets no other numbers in than these.
fn port(number: i32) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

/// A PersistentVolume; `None` if it is not on a cloud disk. Only these fields are decoded: the type has every storage there is.
pub(super) fn volume(object: Value) -> Result<Option<VolumeView>, serde_json::Error> {
    let [metadata, spec] = ["metadata", "spec"].map(|field| object.get(field).unwrap_or(&Value::Null));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (csi, flex) = (&spec["csi"], &spec["flexVolume"]);
    let (driver, handle) = if csi["driver"] == volume::CSI_DRIVER {
        (DiskDriver::Csi, &csi["volumeHandle"])
    } else if flex["driver"] == volume::FLEX_DRIVER {
        (DiskDriver::FlexVolume, &flex["options"]["volumeId"])
    } else {
        return Ok(None);
    };
    let labels: Option<BTreeMap<String, String>> = Option::deserialize(&metadata["labels"])?;
    Ok(Some(VolumeView {
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        resource_version: text(&metadata["resourceVersion"]),
        deleting: !metadata["deletionTimestamp"].is_null(),
        topology: kept(labels.as_ref(), volume::is_topology),
        has_affinity: !spec["nodeAffinity"].is_null(),
        driver,
        handle: text(handle),
    }))
}

/// An Endpoints object (core/v1).
pub(super) fn endpoints(object: Value) -> Result<EndpointsView, serde_json::Error> {
    let endpoints: core::Endpoints = serde_json::from_value(object)?;
    let mut found = Vec::new();
    for subset in endpoints.subsets.unwrap_or_default() {
        let ports = subset.ports.unwrap_or_default().into_iter();
        let ports = in_order(ports.map(|entry| (entry.name.unwrap_or_default(), port(entry.port))));
        let ready = subset.addresses.unwrap_or_default().into_iter().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.unwrap_or_default().into_iter().map(|address| (address, false));
        found.extend(ready.chain(not_ready).filter_map(|(address, ready)| {
            let (pod, pod_uid) = pod_of(address.target_ref);
            Some(Endpoint {
                address: address.ip.parse().ok()?,
                node: address.node_name.map(Arc::from),
                pod,
                pod_uid,
                hostname: address.hostname.map(Arc::from),
                ready,
                serving: true,
                terminating: false,
                ports: ports.clone(),
            })
        }));
    }
    Ok(merge(found))
}

fn in_order(ports: impl Iterator<Item = (String, u16)>) -> Arc<[(String, u16)]> {
    let mut ports: Vec<_> = ports.collect();
    ports.sort_unstable();
    ports.into()
}

/// Whether an Endpoints object has addresses that the API server's own controllers put into slices as well.
pub(super) fn endpoints_have_mirrored_addresses(object: &Value) -> bool {
    let skipped = &object["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"] == "true";
    let filled = |list: &Value| list.as_array().is_some_and(|addresses| !addresses.is_empty());
    let mut subsets = object["subsets"].as_array().into_iter().flatten();
    !skipped && subsets.any(|subset| filled(&subset["addresses"]) || filled(&subset["notReadyAddresses"]))
}

/// The label by which an EndpointSlice says to which Service it belongs.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The Service of an EndpointSlice, if it belongs to one.
pub(super) fn slice_owner(object: &Value) -> Option<ObjectKey> {
    let metadata = &object["metadata"];
    let service = metadata["labels"][SERVICE_LABEL].as_str().filter(|name| !name.is_empty())?;
    Some(ObjectKey::new(metadata["namespace"].as_str().unwrap_or_default(), service))
}

/// Whether an EndpointSlice has any address.
pub(super) fn slice_has_addresses(object: &Value) -> bool {
    let mut addresses = object["endpoints"].as_array().into_iter().flatten().map(|endpoint| &endpoint["addresses"]);
    addresses.any(|addresses| addresses.as_array().is_some_and(|addresses| !addresses.is_empty()))
}

/// One EndpointSlice, of `discovery.k8s.io/v1` or `v1beta1`.
pub(super) fn slice(mut object: Value) -> Result<EndpointsView, serde_json::Error> {
    // The older version has the same fields but for one, which the newer keeps under another name.
    if let Some(object) = object.as_object_mut() {
        object.remove("apiVersion");
    }
    for endpoint in object["endpoints"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(topology) = endpoint.remove("topology") {
            endpoint.insert("deprecatedTopology".to_owned(), topology);
        }
    }
    let discovery::EndpointSlice { endpoints, ports, .. } = serde_json::from_value(object)?;
    let ports = ports.unwrap_or_default().into_iter();
    let ports = in_order(ports.filter_map(|entry| Some((entry.name.unwrap_or_default(), port(entry.port?)))));
    // Many pods of a Service are on few nodes.
    let mut nodes = Interner::default();
    let endpoints = endpoints.unwrap_or_default().into_iter().filter_map(|endpoint| {
        let conditions = endpoint.conditions.unwrap_or_default();
        let host = |mut topology: BTreeMap<String, String>| topology.remove("kubernetes.io/hostname");
        let (pod, pod_uid) = pod_of(endpoint.target_ref);
        Some(Endpoint {
            // Only the first address has a meaning; more than one was never written by Kubernetes itself.
            address: endpoint.addresses.first()?.parse().ok()?,
            node: endpoint
                .node_name
                .or_else(|| endpoint.deprecated_topology.and_then(host))
                .map(|name| nodes.one(name)),
            pod,
            pod_uid,
            hostname: endpoint.hostname.map(Arc::from),
            ready: conditions.ready.unwrap_or(true),
            serving: conditions.serving.unwrap_or(true),
            terminating: conditions.terminating.unwrap_or_default(),
            ports: ports.clone(),
        })
    });
    Ok(merge(endpoints.collect()))
}

/// Name of the pod behind an endpoint, and the number of its uid.
fn pod_of(target: Option<core::ObjectReference>) -> (Option<Arc<str>>, u64) {
    let pod = target.filter(|target| target.kind.as_deref() == Some("Pod")).unwrap_or_default();
    (pod.name.map(Arc::from), pod.uid.map_or(0, |uid| digest::number(&uid)))
}

/// All endpoints of a Service, ordered. While slices are rebalanced an endpoint can be in two of them; the better state
/// counts, because the worse one is the older.
pub(super) fn merge(mut endpoints: Vec<Endpoint>) -> EndpointsView {
    let better_first = |endpoint: &Endpoint| (endpoint.terminating, !endpoint.ready);
    endpoints.sort_by(|a, b| {
        (a.address, &a.ports, better_first(a), &a.pod).cmp(&(b.address, &b.ports, better_first(b), &b.pod))
    });
    endpoints.dedup_by(|later, first| later.address == first.address && later.ports == first.ports);
    endpoints.shrink_to_fit();
    EndpointsView { unknown: false, endpoints }
}

#[cfg(test)]
mod tests;
