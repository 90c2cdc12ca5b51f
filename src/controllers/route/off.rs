//! While routes are unmanaged: the conditions of a former route controller must not keep nodes unusable.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::{CONCURRENCY, NAME};
use crate::cluster::WriteFault;
use crate::controllers::node_patch::{NodePatcher, PatchTarget, network_unavailable};
use crate::controllers::{Context, for_each_limited};
use crate::plan::inputs::NodeView;
use crate::plan::route::condition;
use crate::telemetry::activity::{self, ReconcileStart};

/// Delay after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Clears such conditions at the start of each term of leadership and whenever nodes change, until `context.stop`.
/// Touches no other condition, and nothing in the cloud.
pub async fn run_off(context: Context) {
    let mut fence = context.fence.clone();
    let nodes = context.cluster.nodes();
    let clear = async {
        nodes.store.synced().await;
        loop {
            fence.gained().await;
            let mut changes = nodes.store.subscribe();
            while fence.leads() {
                changes.next().await;
                if !clear_conditions(&context, &nodes.store.all()).await {
                    tokio::time::sleep(RETRY).await;
                    changes = nodes.store.subscribe();
                }
            }
        }
    };
    context.stop.run_until_cancelled(clear).await;
}

/// True if none is left.
async fn clear_conditions(context: &Context, nodes: &[Arc<NodeView>]) -> bool {
    let patcher = NodePatcher { cluster: &context.cluster, fence: &context.fence };
    let is_due = |view: &&Arc<NodeView>| condition::clear(view.network_unavailable.as_ref()).is_some();
    let due: Vec<_> = nodes.iter().filter(is_due).cloned().collect();
    let clear = |view: Arc<NodeView>| async move {
        let change = |fresh: &NodeView| condition::clear(fresh.network_unavailable.as_ref()).map(network_unavailable);
        let patch = patcher.patch_fresh(&view, PatchTarget::Conditions, change);
        let step = activity::step("clear NetworkUnavailable: routes are unmanaged", patch);
        match activity::reconciling(ReconcileStart::new(NAME, &view.name), step).await {
            Ok(_) => info!(node = %view.name, "routes are unmanaged: the condition NetworkUnavailable was cleared"),
            Err(WriteFault::Gone) => {}
            Err(WriteFault::NotLeading) => return false,
            Err(fault) => {
                warn!(code = "ACCM0761", node = %view.name, %fault, "the condition NetworkUnavailable could not be cleared; it is retried");
                return false;
            }
        }
        true
    };
    for_each_limited(CONCURRENCY, due, clear).await.into_iter().all(|cleared| cleared)
}
