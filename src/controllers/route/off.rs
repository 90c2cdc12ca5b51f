//! While routes are not managed: what a route controller said of nodes must not keep them unusable.

use std::time::Duration;

use tracing::{info, warn};

use super::clear_conditions;
use crate::controllers::Context;

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Clears such conditions at the start of each term of leadership and whenever nodes change, until `context.stop`.
/// Removes no route.
pub async fn run_off(context: Context) {
    let mut fence = context.fence.clone();
    let nodes = context.cluster.nodes();
    let clear = async {
        loop {
            fence.gained().await;
            let mut changes = nodes.store.subscribe();
            while fence.leads() {
                changes.next().await;
                match clear_conditions(&context.cluster, &context.fence).await {
                    Ok(0) => {}
                    Ok(count) => info!(count, "routes are not managed: conditions NetworkUnavailable were cleared"),
                    Err(fault) => {
                        warn!(%fault, "conditions NetworkUnavailable could not all be cleared; tried again");
                        tokio::time::sleep(RETRY).await;
                        changes = nodes.store.subscribe();
                    }
                }
            }
        }
    };
    tokio::select! {
        () = context.stop.cancelled() => {}
        () = clear => {}
    }
}
