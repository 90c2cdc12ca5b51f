//! How commands reach the cluster and the cloud.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::CommandError;
use crate::alibaba::CloudClient;
use crate::alibaba::location;
use crate::alibaba::metadata::Metadata;
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::controllers::Clients;
use crate::plan::location::CloudLocation;
use crate::telemetry::tasks::Tasks;

/// How long the API server may take to answer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How to give a plugin of kubectl what only the pods have.
const OWN_KEYS: &str =
    "give this machine's own with the variables ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET";

/// Whether kubectl started this process.
pub(super) fn is_for_kubectl() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name().is_some_and(|name| name == "kubectl-alicloud")
}

/// Connects once; unlike the running program, a command does not retry.
pub(super) async fn connect(config: &Config) -> Result<Clients, CommandError> {
    let cluster = connect_cluster(config).await?;
    let (cloud, location) = connect_cloud(config).await?;
    Ok(Clients { cluster, cloud, location })
}

/// To the API server alone.
pub(super) async fn connect_cluster(config: &Config) -> Result<Cluster, CommandError> {
    let cluster = Cluster::connect(&config.kubernetes, &Tasks::default()).await.map_err(CommandError::new)?;
    ready(&cluster).await?;
    Ok(cluster)
}

/// To the cloud alone.
pub(super) async fn connect_cloud(config: &Config) -> Result<(CloudClient, CloudLocation), CommandError> {
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().map_err(CommandError::new)?);
    let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
    let location = location::resolve(&config.cloud, &metadata).await;
    let region = location.as_ref().map_or("", |location| &location.region);
    let cloud = CloudClient::new(transport, &config.cloud, region);
    match (location, cloud.has_keys().await) {
        (Ok(location), Ok(())) => Ok((cloud, location)),
        (location, keys) => {
            let keys = keys.err().map(|error| match is_for_kubectl() {
                true => format!("no credentials: {error}; {OWN_KEYS}"),
                false => format!("no credentials: {error}"),
            });
            let reasons: Vec<String> = location.err().map(|error| error.to_string()).into_iter().chain(keys).collect();
            Err(CommandError(reasons.join("; ")))
        }
    }
}

/// Waits for the API server, and gives its version.
pub(super) async fn ready(cluster: &Cluster) -> Result<String, CommandError> {
    let late = |_| CommandError(format!("the API server did not answer within {} s", LONGEST_WAIT.as_secs()));
    tokio::time::timeout(LONGEST_WAIT, cluster.wait_ready()).await.map_err(late)
}
