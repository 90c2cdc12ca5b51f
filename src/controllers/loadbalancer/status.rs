//! What is written back to the Service: finalizer, labels, status.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use thiserror::Error;

use super::product::Product;
use crate::cluster::{Cluster, Patch, PatchFormat, WriteFault, is_newer_version};
use crate::fence::{Fence, WRITE_TIME};
use crate::plan::inputs::{Ingress, IngressDetails, ObjectKey, ObjectKind, ServiceView};
use crate::plan::loadbalancer::applied::{self, Applied};
use crate::plan::loadbalancer::cloud::Observed;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, RESTORED};

/// From 1.24 on, API servers keep the ports of an entry without being asked to.
const KNOWS_PORTS: u32 = 24;
/// From 1.30 on, they keep its `ipMode`.
const KNOWS_IP_MODE: u32 = 30;

/// What the status of a Service should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteBack {
    /// The addresses under which the Service is reached.
    pub(super) ingress: Vec<Ingress>,
    /// What the API server holds of each entry besides its address; empty for servers that would forget it.
    pub(super) details: Vec<IngressDetails>,
}

impl WriteBack {
    pub(super) fn of<P: Product>(
        cluster: &Cluster,
        service: &ServiceView,
        (goal, observed): (&Goal<P::Model>, &Observed<P::Model>),
        elastic: &[String],
    ) -> Self {
        let ingress = goal.ingress(observed, elastic);
        let details = if cluster.is_at_least(KNOWS_PORTS) {
            goal.ingress_details(service, observed, &ingress, cluster.is_at_least(KNOWS_IP_MODE))
        } else {
            Vec::new()
        };
        Self { ingress, details }
    }

    /// Whether the Service says this already.
    pub(super) fn is_published(&self, service: &ServiceView) -> bool {
        service.ingress == self.ingress && is_equivalent(&service.ingress_details, &self.details)
    }
}

/// Whether what is there says as much as `wanted`: without ports, all are served; without a mode, it is `VIP`. So a status
/// that another controller wrote is not written again for nothing.
fn is_equivalent(found: &[IngressDetails], wanted: &[IngressDetails]) -> bool {
    let mode = |details: &IngressDetails| if details.ip_mode == "Proxy" { "Proxy" } else { "VIP" };
    let served = |details: &IngressDetails| details.ports.iter().all(|port| port.error.is_empty());
    let same = |found: &IngressDetails, wanted: &IngressDetails| {
        let ports = found.ports == wanted.ports || (found.ports.is_empty() && served(wanted));
        ports && mode(found) == mode(wanted)
    };
    wanted.is_empty() || (found.len() == wanted.len() && found.iter().zip(wanted).all(|(f, w)| same(f, w)))
}

/// A write that failed.
#[derive(Debug, Error)]
#[error("{what} could not be written: {fault}")]
pub(super) struct FailedWrite {
    what: &'static str,
    /// The official controller's reason of the event about it, where it has one of its own.
    pub(super) reason: Option<&'static str>,
    pub(super) fault: WriteFault,
}

impl From<WriteFault> for FailedWrite {
    fn from(fault: WriteFault) -> Self {
        Self { what: "the Service", reason: None, fault }
    }
}

impl FailedWrite {
    pub(super) fn finalizer(fault: WriteFault) -> Self {
        Self { what: "the finalizer of the Service", reason: Some("FailedAddFinalizer"), fault }
    }

    pub(super) fn status(fault: WriteFault) -> Self {
        Self { what: "the status of the Service", reason: Some("FailedUpdateStatus"), fault }
    }

    pub(super) fn gates(fault: WriteFault) -> Self {
        Self { what: "the readiness of a pod", reason: Some("FailedUpdateReadinessGate"), fault }
    }
}

/// Writes to Services and their pods, each with a permit of its own.
#[derive(Debug)]
pub(super) struct ServiceWriter {
    pub(super) kind: LoadBalancerKind,
    pub(super) cluster: Cluster,
    pub(super) fence: Fence,
    /// Services as they are after the last write to them, until the next reconcile.
    written: Mutex<HashMap<ObjectKey, Arc<ServiceView>>>,
}

impl ServiceWriter {
    pub(super) fn new(kind: LoadBalancerKind, cluster: Cluster, fence: Fence) -> Self {
        Self { kind, cluster, fence, written: Mutex::default() }
    }

    /// The Service as the watch shows it, or as it is after the last write if the watch is behind that: else the same is written
    /// and reported twice. For this it counts once, as an API server that was restored from a backup shows older versions from
    /// then on.
    pub(super) fn newest(&self, watched: Arc<ServiceView>) -> Arc<ServiceView> {
        let written = self.forget(&watched.key).filter(|written| {
            let is_newer = is_newer_version(&written.resource_version, &watched.resource_version);
            written.uid == watched.uid && is_newer
        });
        written.unwrap_or(watched)
    }

    /// Drops what is kept of a Service.
    pub(super) fn forget(&self, key: &ObjectKey) -> Option<Arc<ServiceView>> {
        self.written.lock().remove(key)
    }

    /// Puts the finalizer on with the annotation of the incarnation, and remembers what is `applied`, before anything is made
    /// that would have to be cleaned up. False if the Service is gone: what would be made for it now would have no owner.
    pub(super) async fn add_finalizer(
        &self,
        service: &mut Arc<ServiceView>,
        applied: &Applied,
    ) -> Result<bool, FailedWrite> {
        let mut own = Vec::new();
        let mut metadata = json!({});
        if !self.kind.is_managed(service) {
            metadata["resourceVersion"] = json!(service.resource_version);
            let finalizers = service.finalizers.iter().map(String::as_str).chain([self.kind.finalizer()]);
            metadata["finalizers"] = finalizers.collect();
            let key = self.kind.incarnation_key();
            // Where another client dropped the finalizer alone, a creation with a lost answer is repeated, not made anew.
            if !service.own_annotations.contains_key(key) {
                // The patch succeeds for one object of this version at most, so no other incarnation has this text.
                own.push((key, Some(service.resource_version.clone())));
            }
        }
        if applied::applied(service, self.kind.applied_key()) != *applied {
            own.push((self.kind.applied_key(), applied::value(applied)));
        }
        for (key, value) in &own {
            metadata["annotations"][*key] = json!(value);
        }
        if metadata == json!({}) {
            return Ok(true);
        }
        match self.patch(service, &json!({"metadata": metadata})).await {
            Ok(()) => {
                let known = &mut Arc::make_mut(service).own_annotations;
                for (key, value) in own {
                    match value {
                        Some(value) => drop(known.insert(key.to_owned(), value)),
                        None => drop(known.remove(key)),
                    }
                }
                Ok(true)
            }
            Err(WriteFault::Gone) => Ok(false),
            Err(fault) => Err(FailedWrite::finalizer(fault)),
        }
    }

    /// Writes labels that other tools read, or takes them off. True if they were not so.
    pub(super) async fn set_labels(
        &self,
        service: &ServiceView,
        labels: impl IntoIterator<Item = (&'static str, Option<&str>)>,
    ) -> Result<bool, WriteFault> {
        let differs = |(label, value): &(&str, Option<&str>)| service.labels.get(*label).map(String::as_str) != *value;
        let labels: serde_json::Map<String, Value> =
            labels.into_iter().filter(differs).map(|(label, value)| (label.to_owned(), json!(value))).collect();
        if labels.is_empty() {
            return Ok(false);
        }
        unless_gone(self.patch(service, &json!({"metadata": {"labels": labels}})).await).map(|()| true)
    }

    /// Remembers only what is still `applied`. Sends nothing if that is what is `written`.
    pub(super) async fn set_applied(
        &self,
        service: &ServiceView,
        written: &Applied,
        applied: &Applied,
    ) -> Result<(), WriteFault> {
        if written == applied {
            return Ok(());
        }
        let body = json!({"metadata": {"annotations": {self.kind.applied_key(): applied::value(applied)}}});
        unless_gone(self.patch(service, &body).await)
    }

    /// Notes that the marks of the Service are made of another UID.
    pub(super) async fn set_restored(&self, service: &ServiceView, uid: &str) -> Result<(), WriteFault> {
        let body = json!({"metadata": {"annotations": {RESTORED: format!("{}/{uid}", service.key)}}});
        unless_gone(self.patch(service, &body).await)
    }

    /// Writes the addresses under which the Service is reached, and in the same write this condition. True if they were others.
    pub(super) async fn set_ingress(
        &self,
        service: &ServiceView,
        wanted: &WriteBack,
        condition: Option<Value>,
    ) -> Result<bool, FailedWrite> {
        if wanted.is_published(service) {
            return Ok(false);
        }
        let none = IngressDetails::default();
        let details = wanted.details.iter().chain(std::iter::repeat(&none));
        let entries: Vec<Value> =
            wanted.ingress.iter().zip(details).map(|(entry, details)| entry_json(entry, details)).collect();
        let ingress = if entries.is_empty() { Value::Null } else { entries.into() };
        let mut body = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        // Conditions of other programs stay only with this kind of patch; it, too, replaces the addresses as a whole.
        let format = if condition.is_some() { PatchFormat::Strategic } else { PatchFormat::Merge };
        if let Some(condition) = condition {
            body["metadata"]["uid"] = json!(service.uid);
            body["status"]["conditions"] = json!([condition]);
        }
        let kind = ObjectKind::Service;
        let patch = Patch { kind, key: &service.key, subresource: Some("status"), format, body: &body };
        unless_gone(self.send(patch).await).map(|()| true).map_err(FailedWrite::status)
    }

    /// Takes everything off again, the finalizer last: until then a crash is repaired by the next run. The status stays if a
    /// load balancer of the other kind serves the Service.
    pub(super) async fn release(&self, service: &ServiceView, handling: Handling) -> Result<(), WriteFault> {
        if !service.ingress.is_empty() && handling == Handling::Delete {
            self.set_ingress(service, &WriteBack::default(), None).await.map_err(|failed| failed.fault)?;
        }
        // The status write changed the object's version; the finalizers are replaced as a whole and need the current one.
        let Some(current) = self.cluster.read_service(&service.key).await? else { return Ok(()) };
        if current.uid != service.uid {
            return Ok(());
        }
        let finalizers: Vec<_> =
            current.finalizers.iter().filter(|finalizer| *finalizer != self.kind.finalizer()).collect();
        let mut metadata = json!({"resourceVersion": current.resource_version});
        if finalizers.len() != current.finalizers.len() {
            metadata["finalizers"] = json!(finalizers);
        }
        for label in self.kind.labels_to_remove(&current) {
            metadata["labels"][label] = Value::Null;
        }
        for key in self.kind.annotations_to_remove(&current) {
            metadata["annotations"][key] = Value::Null;
        }
        if metadata.as_object().is_some_and(|fields| fields.len() < 2) {
            return Ok(());
        }
        unless_gone(self.patch(service, &json!({"metadata": metadata})).await)
    }

    async fn patch(&self, service: &ServiceView, body: &Value) -> Result<(), WriteFault> {
        let (kind, format) = (ObjectKind::Service, PatchFormat::Merge);
        self.send(Patch { kind, key: &service.key, subresource: None, format, body }).await
    }

    pub(super) async fn send(&self, patch: Patch<'_>) -> Result<(), WriteFault> {
        let permit = self.fence.permit(WRITE_TIME)?;
        if let Some(written) = self.cluster.patch_service(&permit, patch).await? {
            self.written.lock().insert(patch.key.clone(), Arc::new(written));
        }
        Ok(())
    }
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

/// What is gone needs no more writes.
fn unless_gone(written: Result<(), WriteFault>) -> Result<(), WriteFault> {
    match written {
        Err(WriteFault::Gone) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::cluster::tests::fake::{Answer, cluster};
    use crate::fence::fence;

    #[tokio::test(start_paused = true)]
    async fn what_the_watch_does_not_show_yet_is_not_written_again() {
        let answer = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "11"},
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "47.1.2.3"}]}},
        });
        let (keeper, fence) = fence();
        keeper.lead_until(Instant::now() + Duration::from_secs(60));
        let kind = LoadBalancerKind::Clb;
        let writer = ServiceWriter::new(kind, cluster(move |_| Answer::Json(200, answer.clone())), fence);
        let watched = |uid: &str, version: &str| {
            let key = ObjectKey::new("shop", "web");
            let (uid, resource_version) = (uid.to_owned(), version.to_owned());
            Arc::new(ServiceView { key, uid, resource_version, ..ServiceView::default() })
        };
        let wanted =
            WriteBack { ingress: vec![Ingress { ip: "47.1.2.3".into(), ..Ingress::default() }], details: Vec::new() };
        let published_then = async |service: Arc<ServiceView>| {
            assert!(writer.set_ingress(&watched("u", "10"), &wanted, None).await.expect("it is written"));
            wanted.is_published(&writer.newest(service))
        };
        assert!(published_then(watched("u", "10")).await, "the watch is behind");
        assert!(!wanted.is_published(&writer.newest(watched("u", "10"))), "and may stay so after a restored backup");
        assert!(!published_then(watched("u", "12")).await, "another program changed it since");
        assert!(!published_then(watched("v", "10")).await, "another Service of the same name");
        assert!(!published_then(watched("u", "")).await, "versions that are no numbers have no order");
    }
}
