//! Tells pods that wait for it that the load balancer knows them.

use std::time::Duration;

use serde_json::json;
use tracing::{info, warn};

use super::references::References;
use super::status::ServiceWriter;
use crate::cluster::{Patch, PatchFormat, WriteFault};
use crate::fence::WRITE_TIME;
use crate::plan::inputs::{ObjectKey, ObjectKind, ServiceView};
use crate::plan::loadbalancer::gates::{self, GateCondition, Registration};

/// Shortest time between looks at pods whose containers are not ready yet: nothing else tells when they are.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// What each such pod adds to it.
const PER_POD: Duration = Duration::from_millis(200);

/// When pods that wait for their containers are looked at again, if there are any.
pub(super) fn look_again(waiting_pods: usize) -> Option<Duration> {
    let pods = u32::try_from(waiting_pods).unwrap_or(u32::MAX);
    (pods > 0).then(|| LOOK_AGAIN.max(PER_POD.saturating_mul(pods)))
}

/// Writes the conditions that have changed. Pods that are gone, or are others by now, are left out.
pub(super) async fn write(
    writer: &ServiceWriter,
    service: &ServiceView,
    references: &References,
    registration: Registration<'_>,
) -> Result<(), WriteFault> {
    let gate = gates::gate_of(service);
    for condition in gates::conditions(&gate, &references.endpoints, &references.gated_pods, registration) {
        let permit = writer.fence.permit(WRITE_TIME)?;
        let key = ObjectKey::new(&service.key.namespace, &condition.pod);
        let body = body(&gate, &condition);
        let change = Patch {
            kind: ObjectKind::Pod,
            key: &key,
            subresource: Some("status"),
            format: PatchFormat::Strategic,
            body: &body,
        };
        match writer.cluster.patch(&permit, change).await {
            Ok(()) => info!(pod = condition.pod, reason = condition.reason(), "readiness gate written"),
            Err(fault @ (WriteFault::Gone | WriteFault::Conflict(_))) => {
                warn!(code = "ACCM0321", pod = condition.pod, %fault, "readiness gate skipped");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// A patch that only the pod with the UID accepts.
fn body(gate: &str, condition: &GateCondition) -> serde_json::Value {
    let since = condition.since.unwrap_or_else(crate::clock::now);
    json!({
        "metadata": { "uid": condition.uid },
        "status": { "conditions": [{
            "type": gate,
            "status": if condition.registered { "True" } else { "False" },
            "reason": condition.reason(),
            "message": condition.message(),
            "lastTransitionTime": crate::clock::seconds(since),
        }] },
    })
}
