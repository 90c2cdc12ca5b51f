//! Finds out where in the cloud this process runs.

use std::time::Duration;

use thiserror::Error;

use super::metadata::{Metadata, MetadataError};
use crate::config::checked;
use crate::plan::location::CloudLocation;

/// Something that must be known is neither configured nor to be had from the metadata service.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} of the cluster is unknown: {cause}; set `{key}`, or run on an instance of the cluster's VPC")]
pub struct LocationError {
    /// What is missing, in words.
    pub what: &'static str,
    /// The configuration key that states it.
    pub key: &'static str,
    /// Why the metadata service did not help.
    pub cause: MetadataError,
}

/// Finds out where the cluster lives. The configuration wins; each value that it leaves out is asked for by itself.
///
/// # Errors
/// If the region or the VPC stays unknown.
pub async fn resolve(config: &checked::Cloud, metadata: &Metadata) -> Result<CloudLocation, LocationError> {
    // Asked first and always: without an answer, the others are not worth the wait.
    let instance = metadata.get("instance-id").await;
    let unreachable = instance.as_ref().err().filter(|error| matches!(error, MetadataError::Unreachable { .. }));
    let value = async |stated: Option<&String>, key: &str| match (stated, unreachable) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(error)) => Err(error.clone()),
        (None, None) => metadata.get(key).await,
    };
    let region = value(config.region.as_ref(), "region-id").await;
    let vpc = value(config.vpc_id.as_ref(), "vpc-id").await;
    let zone = value(config.zone_id.as_ref(), "zone-id").await;
    // Also where some are stated: they may be taken out while this runs.
    let vswitch = value(None, "vswitch-id").await;
    let needed =
        |what, key, value: Result<String, MetadataError>| value.map_err(|cause| LocationError { what, key, cause });
    Ok(CloudLocation {
        region: needed("the region", "cloud.region", region)?,
        vpc_id: needed("the VPC", "cloud.vpc_id", vpc)?,
        zone_id: zone.unwrap_or_default(),
        vswitch_id: vswitch.unwrap_or_default(),
        instance_id: instance.ok(),
    })
}

/// Time between questions to a metadata service that did not say everything.
const PERIOD: Duration = Duration::from_secs(60);

/// Completes when more is known than at the start, where a service that was not ready left something out.
pub async fn more_is_known(config: &checked::Cloud, metadata: &Metadata, known: &CloudLocation) {
    while known.lacks_something() {
        tokio::time::sleep(PERIOD).await;
        if resolve(config, metadata).await.is_ok_and(|now| now.adds_to(known)) {
            return;
        }
    }
    std::future::pending().await
}
