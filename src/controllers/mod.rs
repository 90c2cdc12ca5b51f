//! The loops that keep the cluster and the cloud in agreement.

pub mod keyed;
pub mod level;
pub mod node;
pub mod route;
pub mod service;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alibaba::Cloud;
use crate::alibaba::place::Place;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::fence::Fence;
use crate::observe::alarms::Alarms;

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
    pub place: Arc<Place>,
    /// The checked configuration; a change is seen without a restart.
    pub config: watch::Receiver<Arc<Config>>,
    /// Raised while something is held back.
    pub alarms: Alarms,
    /// Cancelled when the controller must end.
    pub stop: CancellationToken,
}
