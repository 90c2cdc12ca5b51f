//! Load balancers of ours whose Service the API server does not show.
//!
//! A load balancer is only ever deleted because its Service asks for it: by a deletion that waits for our finalizer, or by
//! another type. So one whose Service vanished without that, as after a restore of the API server from an old backup,
//! stays. Here it is noticed and reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::warn;

use super::product::{Owned, Product};
use super::{Context, Views, settings_of};
use crate::cluster::Regarding;
use crate::telemetry::alarms::named;

/// The first look leaves the first reconciles of a term alone.
const FIRST: Duration = Duration::from_secs(3);
/// What seems to have no owner is looked at again after this time before it is reported.
const CONFIRM: Duration = Duration::from_secs(5);
/// Time between looks while something has no owner, for each [`FEW`] load balancers that are listed for it.
const AGAIN: Duration = Duration::from_secs(20);
const FEW: usize = 200;

const REASON: &str = "LoadBalancerOwnerMissing";

/// Woken when a Service is gone that still had a load balancer.
pub(super) type Vanished = Arc<Notify>;

/// Looks when a term begins, and whenever `vanished` is woken. Never returns.
pub(super) async fn watch<P: Product>(context: &Context, product: &P, views: &Views, vanished: &Notify) {
    tokio::time::sleep(FIRST).await;
    let mut before = BTreeSet::new();
    loop {
        let settings = settings_of::<P>(&context.config.borrow(), &context.place);
        let pause = match product.owned(&views.services.store.all(), &settings).await {
            // Only what two lists in a row show: a Service may have come or gone while the first was made.
            Ok(Owned { orphans, .. }) if orphans.is_empty() => {
                report::<P>(context, &orphans);
                before = orphans;
                None
            }
            Ok(Owned { orphans, listed }) => {
                let confirmed: BTreeSet<String> = orphans.intersection(&before).cloned().collect();
                let settled = confirmed == orphans;
                report::<P>(context, &confirmed);
                before = orphans;
                let again = AGAIN * u32::try_from(1 + listed / FEW).unwrap_or(u32::MAX);
                Some(if settled { again } else { CONFIRM })
            }
            Err(fault) => {
                warn!(controller = P::CONTROLLER, %fault, "load balancers could not be listed to see whether all have a Service");
                Some(AGAIN)
            }
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

fn report<P: Product>(context: &Context, orphans: &BTreeSet<String>) {
    let text = format!(
        "the API server shows no Service for {}, which bear the mark of this cluster; they are kept as they are. If the \
         Services are lost, restore them; to remove the load balancers on purpose, run alicloud-ccm gc --delete",
        named(orphans.iter().map(String::as_str))
    );
    if context.alarms.set(P::CONTROLLER, REASON, orphans.len(), &text) {
        warn!(controller = P::CONTROLLER, "{text}");
        context.cluster.events().warning(P::COMPONENT, &Regarding::component(P::COMPONENT), REASON, text);
    }
}
