//! The loops that keep the cluster and the cloud in agreement.

mod backoff;
pub mod batch;
mod instances;
pub mod loadbalancer;
pub mod node;
mod node_patch;
pub mod orphan;
pub mod pvtz;
pub mod registry;
mod reporter;
pub mod route;
pub mod volume;
pub mod workqueue;

use std::sync::Arc;

use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, error_span, field};

pub use self::backoff::Backoff;
use crate::alibaba::CloudClient;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::fence::Fence;
use crate::plan::PlanLine;
use crate::plan::inputs::ObjectKey;
use crate::plan::location::CloudLocation;
use crate::plan::setting::SettingOrigin;
use crate::telemetry::activity::{self, ReconcileStart};
use crate::telemetry::alarms::Alarms;

/// What a controller would do now, and what `explain` says of one object beside it.
#[derive(Debug, Default)]
pub struct Previewed {
    /// The plan.
    pub lines: Vec<PlanLine>,
    /// The steps that would make the load balancer, if nothing were there. Empty where the Service names one of a user.
    pub wanted: Vec<String>,
    /// What there is of the load balancer.
    pub found: Vec<String>,
    /// Where each setting comes from.
    pub settings: Vec<SettingOrigin>,
}

/// What the plan of a controller reads.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The API server.
    pub cluster: Cluster,
    /// The cloud's products.
    pub cloud: CloudClient,
    /// Where the cluster lives.
    pub location: CloudLocation,
}

/// The input of a controller. Each runs as `async fn run(context: Context)` until `stop` is cancelled, and then ends within a
/// second. It needs no state of an earlier run: everything it knows can be observed again.
#[derive(Clone, Debug)]
pub struct Context {
    /// The API server: watches, patches, events.
    pub cluster: Cluster,
    /// The cloud's products.
    pub cloud: CloudClient,
    /// Asked for a permit before every write.
    pub fence: Fence,
    /// Where the cluster lives.
    pub location: Arc<CloudLocation>,
    /// The checked configuration; a change is seen without a restart.
    pub config: watch::Receiver<Arc<Config>>,
    /// Raised while something is withheld.
    pub alarms: Alarms,
    /// Cancelled when the controller has to end.
    pub stop: CancellationToken,
}

/// The span that every log line of a reconcile carries: the controller, the object if it is one, and an id of this
/// reconcile that is unique in this process. At level ERROR, as what is filtered by level must not lose it.
fn reconcile_span(start: ReconcileStart<'_>, object: Option<&ObjectKey>) -> Span {
    let ReconcileStart { controller, id, .. } = start;
    error_span!("reconcile", controller, object = object.map(field::display), reconcile_id = id)
}

/// Runs a reconcile, of one object if it is given: its log lines carry the span, and it is shown as running.
async fn reconciling<F: Future>(start: ReconcileStart<'_>, object: Option<&ObjectKey>, reconcile: F) -> F::Output {
    activity::reconciling(start, reconcile).instrument(reconcile_span(start, object)).await
}

/// Runs `run` for each item, at most `limit` at a time, and gives the results in the order in which they came.
///
/// One is made when another ends: futures of thousands of nodes take megabytes.
async fn for_each_limited<T, R: Future>(
    limit: usize,
    items: impl IntoIterator<Item = T>,
    run: impl FnMut(T) -> R,
) -> Vec<R::Output> {
    stream::iter(items).map(run).buffer_unordered(limit).collect().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use serde_json::json;
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_are_run_and_never_more_than_allowed_at_once() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let (running, most) = (&running, &most);
        let mut ended = for_each_limited(3, 0..10, |number| {
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

    /// What a line is written to.
    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_of_a_reconcile_carries_controller_object_and_id() {
        let lines = Lines::default();
        let (text, json) = (lines.clone(), lines.clone());
        let text = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || text.clone());
        let json = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(move || json.clone());
        let subscriber = tracing_subscriber::registry().with(LevelFilter::WARN).with(text).with(json);
        tracing::subscriber::with_default(subscriber, || {
            let one = reconcile_span(ReconcileStart::new("service", ""), Some(&ObjectKey::new("shop", "web")));
            one.in_scope(|| tracing::warn!("one"));
            reconcile_span(ReconcileStart::new("node", ""), None).in_scope(|| tracing::warn!("two"));
        });
        let written = String::from_utf8(lines.0.lock().clone()).unwrap();
        let written: Vec<&str> = written.lines().collect();
        assert!(
            written[0].contains("reconcile{controller=\"service\" object=shop/web reconcile_id="),
            "{}",
            written[0]
        );
        assert!(written[2].contains("reconcile{controller=\"node\" reconcile_id="), "{}", written[2]);
        let [one, two] = [written[1], written[3]].map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert_eq!((&one["span"]["controller"], &one["span"]["object"]), (&json!("service"), &json!("shop/web")));
        assert_ne!(one["span"]["reconcile_id"], two["span"]["reconcile_id"]);
    }
}
