//! Tells pods that wait for it that the load balancer knows them.

use std::time::Duration;

use serde_json::json;
use tracing::{info, warn};

use super::CONTROLLER;
use super::execute::SHORTEST_WRITE;
use super::references::Readiness;
use crate::cluster::{Cluster, ObjectKind, Patch, PatchFormat, WriteFault};
use crate::fence::Fence;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::observed::Observed;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::service::gates;
use crate::plan::service::gates::GateCondition;

/// Shortest time between looks at pods whose containers are not ready yet: nothing else tells when they are.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// What each such pod adds to it.
const PER_POD: Duration = Duration::from_millis(200);

/// When pods that wait for their containers are looked at again, if there are any.
pub(super) fn look_again(readiness: &Readiness) -> Option<Duration> {
    let pods = u32::try_from(readiness.waiting).unwrap_or(u32::MAX);
    (pods > 0).then(|| LOOK_AGAIN.max(PER_POD.saturating_mul(pods)))
}

/// Writes the conditions that have changed. Pods that are gone, or are others by now, are nobody's loss.
pub(super) async fn write(
    cluster: &Cluster,
    fence: &Fence,
    service: &ServiceView,
    readiness: &Readiness,
    (desired, observed, complete): (&Desired, &Observed, bool),
) -> Result<(), WriteFault> {
    let gate = gates::gate_of(service);
    let registration = desired.registration(observed, &readiness.attached, complete);
    for condition in gates::conditions(&gate, &readiness.endpoints, &readiness.pods, registration) {
        let permit = fence.permit(SHORTEST_WRITE).map_err(|_| WriteFault::NotLeading)?;
        let key = ObjectKey::new(&service.key.namespace, &condition.pod);
        let body = body(&gate, &condition);
        let change = Patch {
            kind: ObjectKind::Pod,
            key: &key,
            subresource: Some("status"),
            format: PatchFormat::Strategic,
            body: &body,
        };
        match cluster.patch(&permit, change).await {
            Ok(()) => info!(
                controller = CONTROLLER,
                service = %service.key,
                pod = condition.pod,
                reason = condition.reason(),
                "readiness gate written"
            ),
            Err(fault @ (WriteFault::Gone | WriteFault::Conflict(_))) => {
                warn!(controller = CONTROLLER, service = %service.key, pod = condition.pod, %fault, "readiness gate skipped");
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
            "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }] },
    })
}
