//! The loops that keep the cluster and the cloud in agreement.

pub mod batch;
pub mod node;
pub mod route;
pub mod service;
pub mod workqueue;

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alibaba::Cloud;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::fence::Fence;
use crate::plan::location::CloudLocation;
use crate::telemetry::alarms::Alarms;

/// What a controller is given. Each runs as `async fn run(context: Context)` until `stop` is cancelled, and then ends
/// within a second, leaving nothing half-remembered: all it knows can be observed again.
#[derive(Clone, Debug)]
pub struct Context {
    /// The API server: watches, patches, events.
    pub cluster: Cluster,
    /// The cloud's products.
    pub cloud: Cloud,
    /// Asked for a permit before every write.
    pub fence: Fence,
    /// Where the cluster lives.
    pub place: Arc<CloudLocation>,
    /// The checked configuration; a change is seen without a restart.
    pub config: watch::Receiver<Arc<Config>>,
    /// Raised while something is held back.
    pub alarms: Alarms,
    /// Cancelled when the controller must end.
    pub stop: CancellationToken,
}

/// Runs `run` for each item, at most `limit` at once, and gives what came of each, in the order in which they ended.
///
/// One begins when another ends: futures of thousands of nodes would take megabytes if they were all made first.
async fn at_once<T, R: Future>(
    limit: usize,
    items: impl IntoIterator<Item = T>,
    run: impl Fn(T) -> R,
) -> Vec<R::Output> {
    let mut items = items.into_iter();
    let mut running: FuturesUnordered<R> = items.by_ref().take(limit).map(&run).collect();
    let mut ended = Vec::new();
    while let Some(output) = running.next().await {
        ended.push(output);
        running.extend(items.next().map(&run));
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_are_run_and_never_more_than_allowed_at_once() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let (running, most) = (&running, &most);
        let mut ended = at_once(3, 0..10, |number| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            async move {
                tokio::time::sleep(Duration::from_secs(10 - number)).await;
                running.set(running.get() - 1);
                number
            }
        })
        .await;
        assert_eq!(ended[0], 2, "the shortest of the first three");
        ended.sort_unstable();
        assert_eq!((ended, most.get()), ((0..10).collect(), 3));
    }
}
