//! Where in the cloud the cluster lives.

use thiserror::Error;

use super::metadata::{Metadata, MetadataError};
use crate::config::checked;

/// Resolved once at start: what the configuration says, and what the metadata service fills in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// `vpc-...`
    pub vpc_id: String,
    /// Zone of this instance, empty if unknown.
    pub zone_id: String,
    /// vSwitch of this instance, empty if unknown.
    pub vswitch_id: String,
    /// ECS instance that this process runs on, if it runs on one.
    pub instance_id: Option<String>,
}

/// Something that must be known is neither configured nor to be had from the metadata service.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} of the cluster is unknown: {cause}; set `{key}`, or run on an instance of the cluster's VPC")]
pub struct PlaceError {
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
pub async fn resolve(config: &checked::Cloud, metadata: &Metadata) -> Result<Place, PlaceError> {
    // Asked first and always: where nobody answers, the others are not worth the wait.
    let instance = metadata.get("instance-id").await;
    let unreachable = instance.as_ref().err().filter(|error| matches!(error, MetadataError::Unreachable { .. }));
    let region = value(config.region.as_ref(), unreachable, metadata, "region-id").await;
    let vpc = value(config.vpc_id.as_ref(), unreachable, metadata, "vpc-id").await;
    let zone = value(config.zone_id.as_ref(), unreachable, metadata, "zone-id").await;
    // Also where some are stated: they may be taken out while this runs.
    let vswitch = value(None, unreachable, metadata, "vswitch-id").await;
    let needed =
        |what, key, value: Result<String, MetadataError>| value.map_err(|cause| PlaceError { what, key, cause });
    Ok(Place {
        region: needed("the region", "cloud.region", region)?,
        vpc_id: needed("the VPC", "cloud.vpc_id", vpc)?,
        zone_id: zone.unwrap_or_default(),
        vswitch_id: vswitch.unwrap_or_default(),
        instance_id: instance.ok(),
    })
}

async fn value(
    configured: Option<&String>,
    unreachable: Option<&MetadataError>,
    metadata: &Metadata,
    key: &str,
) -> Result<String, MetadataError> {
    match (configured, unreachable) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(error)) => Err(error.clone()),
        (None, None) => metadata.get(key).await,
    }
}
