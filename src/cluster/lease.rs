//! Leader election: many replicas may run, one of them writes.
//!
//! The rules are client-go's, so that replicas of other programs and of other versions can take part. The winner gets
//! time, not a state: after a renewal that was sent at `t`, no other can hold the lock before `t + lease_duration`, and
//! the [`Keeper`] makes that known (a little less, since clocks of machines run at different speeds).
//!
//! There is one lock, or two where programs take part that know another kind only; then who leads holds both.

mod elector;
mod record;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use super::events::{Events, Regarding};
use super::requests::Requests;
use crate::config::Config;
use crate::config::checked::LeaderElection;
use crate::fence::Keeper;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;
use elector::{COMPONENT, Elector, Progress};
pub(super) use record::LockKind;

/// Without an election.
const ALONE: &str = "Leader election is off, so this must be the only replica. Two would undo what the other does (leader_election.enabled)";

/// Takes part in the election until `stop` is cancelled, see [`Cluster::elect`](super::Cluster::elect).
pub(super) async fn elect(
    (requests, events, replica): (&Requests, &Events, Uuid),
    mut config: watch::Receiver<Arc<Config>>,
    keeper: Keeper,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let section = config.borrow_and_update().leader_election.clone();
        let current = section.clone();
        let over = async {
            if stop.run_until_cancelled(changed(&mut config, &current)).await.is_some() {
                info!("leader election is configured anew");
            }
        };
        if section.enabled {
            // Whatever is configured, no two processes have the same identity: each would find the lease to be its own.
            let identity = format!("{}_{replica}", section.identity.clone().unwrap_or_else(host_name));
            let (requests, events, keeper) = (requests.clone(), events.clone(), &keeper);
            let mut elector = Elector { requests, events, section, keeper, identity, progress: Progress::default() };
            elector.run(over).await;
            if stop.is_cancelled() {
                elector.release().await;
            }
        } else {
            keeper.lead_unbounded();
            requests.health().elects(None);
            metrics::leader(true);
            let key = ObjectKey::new(section.namespace.clone(), section.name.clone());
            let lock = Regarding { kind: LockKind::Lease.kind(), key, uid: String::new() };
            warn!(code = "ACCM0006", "{ALONE}");
            events.warning(COMPONENT, &lock, "LeaderElectionOff", ALONE.to_owned());
            over.await;
        }
        keeper.withdraw();
        metrics::leader(false);
    }
}

/// Completes when the section differs from `current`.
async fn changed(config: &mut watch::Receiver<Arc<Config>>, current: &LeaderElection) {
    if config.wait_for(|config| config.leader_election != *current).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The name of this machine, from the kernel: a confined service may see no `/proc/sys`.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
