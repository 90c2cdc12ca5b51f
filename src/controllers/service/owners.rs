//! Load balancers of ours whose Service the API server does not show.
//!
//! A load balancer is only ever deleted because its Service asks for it: by a deletion that waits for our finalizer, or by
//! another type. So one whose Service vanished without that, as after a restore of the API server from an old backup,
//! stays. Here it is noticed and told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::warn;

use super::{COMPONENT, CONTROLLER, Context, Views};
use crate::cluster::Regarding;
use crate::plan::clb::orphans::{OrphanedInstance, orphaned_instances};
use crate::telemetry::alarms::named;

/// The first look leaves the first reconciles of a term alone.
const FIRST: Duration = Duration::from_secs(3);
/// What seems to have no owner is looked at again after this time before it is told.
const CONFIRM: Duration = Duration::from_secs(5);
/// Time between looks while something has no owner, for each [`FEW`] load balancers that are listed for it.
const AGAIN: Duration = Duration::from_secs(20);
const FEW: usize = 200;

const REASON: &str = "LoadBalancerOwnerMissing";

/// Looks when a term begins, and whenever `vanished` says that a Service is gone which had not been let go. Never returns.
pub(super) async fn watch(context: &Context, views: &Views, vanished: &Notify) {
    tokio::time::sleep(FIRST).await;
    let mut before = BTreeSet::new();
    loop {
        let pause = match look(context, views).await {
            // Only what two lists in a row show: a Service may have come or gone while the first was made.
            Some((found, _)) if found.is_empty() => {
                tell(context, &found);
                before = found;
                None
            }
            Some((found, listed)) => {
                let confirmed: BTreeSet<OrphanedInstance> = found.intersection(&before).cloned().collect();
                let settled = confirmed == found;
                tell(context, &confirmed);
                before = found;
                let again = AGAIN * u32::try_from(1 + listed / FEW).unwrap_or(u32::MAX);
                Some(if settled { again } else { CONFIRM })
            }
            None => Some(AGAIN),
        };
        match pause {
            Some(pause) => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = vanished.notified() => tokio::time::sleep(CONFIRM).await,
                }
            }
            None => vanished.notified().await,
        }
    }
}

/// Load balancers without a Service, and how many were listed; `None` if the cloud did not answer.
async fn look(context: &Context, views: &Views) -> Option<(BTreeSet<OrphanedInstance>, usize)> {
    let config = context.config.borrow().clone();
    let tag = (config.cloud.cluster_tag.as_str(), config.cloud.cluster_id.as_str());
    let instances = match context.cloud.slb.find_by_tag(tag.0, tag.1).await {
        Ok(instances) => instances,
        Err(fault) => {
            warn!(controller = CONTROLLER, %fault, "load balancers could not be listed to see whether all have a Service");
            return None;
        }
    };
    let orphans = orphaned_instances(&instances, &views.services.all(), tag);
    Some((orphans.into_iter().collect(), instances.len()))
}

fn tell(context: &Context, orphans: &BTreeSet<OrphanedInstance>) {
    let ids: Vec<&str> = orphans.iter().map(|orphan| orphan.id.as_str()).collect();
    let text = format!(
        "the API server shows no Service for {}, which bear the mark of this cluster; they are kept as they are. If the \
         Services are lost, restore them; to remove the load balancers on purpose, run alicloud-ccm gc --delete",
        named(ids.iter().copied())
    );
    if context.alarms.set(CONTROLLER, REASON, orphans.len(), &text) {
        warn!(controller = CONTROLLER, "{text}");
        context.cluster.events().warning(COMPONENT, &Regarding::component(COMPONENT), REASON, text);
    }
}

/// Told when a Service vanished.
pub(super) type Vanished = Arc<Notify>;
