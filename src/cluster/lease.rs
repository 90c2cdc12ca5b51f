//! Leader election: many copies may run, one of them writes.
//!
//! The rules are client-go's, so that copies of other programs and of other versions can take part. What is won is not a
//! state but time: after a renewal that was sent at `t`, nobody else can hold the lock before `t + lease_duration`, and
//! the [`Keeper`] is told so (a little less, since clocks of machines run at different speeds).
//!
//! There is one lock, or two where programs take part that know another kind only; then who leads holds both.

mod candidate;
mod record;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::Cluster;
use crate::config::Config;
use crate::config::checked::LeaderElection;
use crate::fence::Keeper;
use crate::telemetry::metrics;
use candidate::Candidate;

/// Takes part in the election until `stop` is cancelled, then gives the lock back so that another copy need not wait.
/// Writes of this process must have ended by then. After a lost election it goes on as a standby.
///
/// A changed `leader_election` section takes effect at once, and the election starts anew. The lock is not given back then:
/// writes may be under way. If it is still the same lock, this process finds itself as its holder.
pub async fn elect(
    cluster: Cluster,
    mut config: watch::Receiver<Arc<Config>>,
    keeper: Keeper,
    stop: CancellationToken,
) {
    let own_identity = format!("{}_{}", host_name(), uuid::Uuid::new_v4());
    while !stop.is_cancelled() {
        let section = config.borrow_and_update().leader_election.clone();
        let over = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = changed(&mut config, &section) => info!("leader election is configured anew"),
            }
        };
        if section.enabled {
            let requests = cluster.inner.requests.clone();
            let identity = section.identity.clone().unwrap_or_else(|| own_identity.clone());
            let mut candidate = Candidate::new(requests, cluster.events().clone(), section.clone(), identity, &keeper);
            candidate.run(over).await;
            if stop.is_cancelled() {
                candidate.release().await;
            }
            keeper.withdraw();
            metrics::leader(false);
        } else {
            keeper.lead_unbounded();
            metrics::leader(true);
            info!("leader election is switched off; this must be the only copy");
            over.await;
            keeper.withdraw();
            metrics::leader(false);
        }
    }
}

/// Completes when the section differs from `current`.
async fn changed(config: &mut watch::Receiver<Arc<Config>>, current: &LeaderElection) {
    if config.wait_for(|config| config.leader_election != *current).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".into(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
