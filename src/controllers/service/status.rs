//! What is written back to the Service: finalizer, labels, status.

use serde_json::{Value, json};

use crate::cluster::{Cluster, ObjectKind, Patch, PatchFormat, WriteFault};
use crate::fence::Fence;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::status::expected_details;
use crate::plan::inputs::{Ingress, IngressDetails, ServiceView};
use crate::plan::service::ownership::{FINALIZER, LABEL_HASH, LABEL_LB_ID};

use super::execute::SHORTEST_WRITE;

/// From 1.24 on, API servers keep the ports of an entry without being asked to.
const KNOWS_PORTS: u32 = 24;
/// From 1.30 on, they keep its `ipMode`.
const KNOWS_IP_MODE: u32 = 30;

/// The load balancer that the Service had when it was last as it should be; empty if it never was.
pub(super) fn label(service: &ServiceView) -> &str {
    service.labels.get(LABEL_LB_ID).map(String::as_str).unwrap_or_default()
}

/// Puts the finalizer on, before anything is made that would have to be cleaned up. False if the Service is gone: what
/// were made for it now, nobody would remove.
pub(super) async fn add_finalizer(cluster: &Cluster, fence: &Fence, service: &ServiceView) -> Result<bool, WriteFault> {
    if service.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(true);
    }
    let finalizers: Vec<_> = service.finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
    let body = json!({"metadata": {"resourceVersion": service.resource_version, "finalizers": finalizers}});
    match patch(cluster, fence, service, None, &body).await {
        Ok(()) => Ok(true),
        Err(WriteFault::Gone) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Writes the id of the load balancer into the label that other tools read.
pub(super) async fn set_label(
    cluster: &Cluster,
    fence: &Fence,
    service: &ServiceView,
    id: &str,
) -> Result<bool, WriteFault> {
    if service.labels.get(LABEL_LB_ID).is_some_and(|value| value == id) {
        return Ok(false);
    }
    let body = json!({"metadata": {"labels": {LABEL_LB_ID: id}}});
    unless_gone(patch(cluster, fence, service, None, &body).await).map(|()| true)
}

/// Takes off the label by which a Service counts as inherited: its user has restated what was ignored before.
pub(super) async fn disinherit(cluster: &Cluster, fence: &Fence, service: &ServiceView) -> Result<(), WriteFault> {
    let body = json!({"metadata": {"labels": {LABEL_HASH: null}}});
    unless_gone(patch(cluster, fence, service, None, &body).await)
}

/// Writes the addresses under which the Service is reached.
pub(super) async fn set_ingress(
    cluster: &Cluster,
    fence: &Fence,
    service: &ServiceView,
    ingress: &[Ingress],
    details: &[IngressDetails],
) -> Result<bool, WriteFault> {
    if service.ingress == ingress && tells(&service.ingress_details, details) {
        return Ok(false);
    }
    let none = IngressDetails::default();
    let entries: Vec<Value> =
        (0..).zip(ingress).map(|(index, entry)| entry_json(entry, details.get(index).unwrap_or(&none))).collect();
    let body =
        json!({"status": {"loadBalancer": {"ingress": if entries.is_empty() { Value::Null } else { entries.into() }}}});
    unless_gone(patch(cluster, fence, service, Some("status"), &body).await).map(|()| true)
}

/// Whether what is there says as much as `wanted`: without ports, all are served; without a mode, it is `VIP`. So a status
/// that another controller wrote is not written again for nothing.
pub(super) fn tells(found: &[IngressDetails], wanted: &[IngressDetails]) -> bool {
    let mode = |details: &IngressDetails| if details.ip_mode == "Proxy" { "Proxy" } else { "VIP" };
    let served = |details: &IngressDetails| details.ports.iter().all(|port| port.error.is_empty());
    let same = |found: &IngressDetails, wanted: &IngressDetails| {
        let ports = found.ports == wanted.ports || (found.ports.is_empty() && served(wanted));
        ports && mode(found) == mode(wanted)
    };
    wanted.is_empty() || (found.len() == wanted.len() && found.iter().zip(wanted).all(|(f, w)| same(f, w)))
}

fn entry_json(entry: &Ingress, details: &IngressDetails) -> Value {
    let mut body = json!({});
    for (field, text) in [("ip", &entry.ip), ("hostname", &entry.hostname), ("ipMode", &details.ip_mode)] {
        if !text.is_empty() {
            body[field] = json!(text);
        }
    }
    let ports: Vec<Value> = details
        .ports
        .iter()
        .map(|status| match status.error.as_str() {
            "" => json!({"port": status.port, "protocol": status.protocol}),
            error => json!({"port": status.port, "protocol": status.protocol, "error": error}),
        })
        .collect();
    if !ports.is_empty() {
        body["ports"] = ports.into();
    }
    body
}

/// What the API server holds of each entry besides its address; empty for servers that would forget it.
pub(super) fn details(
    cluster: &Cluster,
    service: &ServiceView,
    desired: &Desired,
    observed: &Observed,
    ingress: &[Ingress],
) -> Vec<IngressDetails> {
    if !cluster.is_at_least(KNOWS_PORTS) {
        return Vec::new();
    }
    expected_details(service, desired, observed, ingress, cluster.is_at_least(KNOWS_IP_MODE))
}

/// Takes everything off again, the finalizer last: until then a crash is repaired by the next run.
pub(super) async fn release(cluster: &Cluster, fence: &Fence, service: &ServiceView) -> Result<(), WriteFault> {
    if !service.ingress.is_empty() {
        set_ingress(cluster, fence, service, &[], &[]).await?;
    }
    // The status write changed the object's version; the finalizers are replaced as a whole and need the current one.
    let Some(current) = cluster.read_service(&service.key).await? else { return Ok(()) };
    if current.uid != service.uid {
        return Ok(());
    }
    let finalizers: Vec<_> = current.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let mut metadata = json!({"resourceVersion": current.resource_version});
    if finalizers.len() != current.finalizers.len() {
        metadata["finalizers"] = json!(finalizers);
    }
    for label in [LABEL_HASH, LABEL_LB_ID].into_iter().filter(|label| current.labels.contains_key(*label)) {
        metadata["labels"][label] = Value::Null;
    }
    if metadata.as_object().is_some_and(|fields| fields.len() < 2) {
        return Ok(());
    }
    unless_gone(patch(cluster, fence, service, None, &json!({"metadata": metadata})).await)
}

/// Whoever is gone needs to be told nothing.
fn unless_gone(written: Result<(), WriteFault>) -> Result<(), WriteFault> {
    match written {
        Err(WriteFault::Gone) => Ok(()),
        other => other,
    }
}

async fn patch(
    cluster: &Cluster,
    fence: &Fence,
    service: &ServiceView,
    subresource: Option<&'static str>,
    body: &Value,
) -> Result<(), WriteFault> {
    let permit = fence.permit(SHORTEST_WRITE).map_err(|_| WriteFault::NotLeading)?;
    let change = Patch { kind: ObjectKind::Service, key: &service.key, subresource, format: PatchFormat::Merge, body };
    cluster.patch(&permit, change).await
}
