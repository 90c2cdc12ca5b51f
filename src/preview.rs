//! The command `plan`: what a reconcile would do now, without doing it.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::alibaba::CloudClient;
use crate::alibaba::location;
use crate::alibaba::metadata::Metadata;
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::catalog::{NODE, ROUTE, SERVICE};
use crate::cli::Only;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::controllers::{node, route, service};
use crate::plan::PlanLine;
use crate::plan::location::CloudLocation;

/// How long the API server and the metadata service may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no plan.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PlanError(String);

/// What would be done, by all controllers that the configuration lists.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Preview {
    /// In the order in which each controller would do it.
    pub steps: Vec<PlanLine>,
    /// What could not be planned, and why.
    pub problems: Vec<String>,
}

impl Preview {
    /// Whether there is nothing to do and nothing wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a part of the plan is missing.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !self.problems.is_empty()
    }

    /// One line a step; destructive ones are marked.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut heading = String::new();
        for step in &self.steps {
            let of = format!("{} {}", step.controller, step.object);
            if of != heading {
                let _ = writeln!(text, "{of}");
                heading = of;
            }
            let _ = writeln!(text, "  {} {}", if step.destroys { '!' } else { '+' }, step.text);
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        let destructive = self.steps.iter().filter(|step| step.destroys).count();
        let _ = match (self.steps.len(), self.problems.len()) {
            (0, 0) => writeln!(text, "Nothing to do."),
            (steps, 0) => writeln!(text, "{steps} steps, of which {destructive} destroy something."),
            (steps, problems) => writeln!(text, "{steps} steps, {problems} problems."),
        };
        text
    }

    /// The same as one JSON document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// What commands look at.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) cloud: CloudClient,
    pub(crate) place: CloudLocation,
}

/// Reaches the cluster and the cloud, once.
pub(crate) async fn connect(config: &Config) -> Result<World, PlanError> {
    let failed = |error: &dyn std::fmt::Display| PlanError(error.to_string());
    let cluster = Cluster::connect(&config.kubernetes).await.map_err(|error| failed(&error))?;
    let ready = tokio::time::timeout(PATIENCE, cluster.wait_ready()).await;
    ready.map_err(|_| PlanError(format!("the API server did not answer within {} s", PATIENCE.as_secs())))?;
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().map_err(|error| failed(&error))?);
    let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
    let place = location::resolve(&config.cloud, &metadata).await.map_err(|error| failed(&error))?;
    let cloud = CloudClient::new(transport, &config.cloud, &place.region);
    Ok(World { cluster, cloud, place })
}

/// Reads the cluster and the cloud and plans; writes nothing.
///
/// # Errors
/// [`PlanError`] if the cluster or the cloud cannot be reached at all.
pub async fn plan(config: &Config, only: Option<&Only>) -> Result<Preview, PlanError> {
    let World { cluster, cloud, place } = connect(config).await?;
    let mut preview = Preview::default();
    let (only_node, only_service) = match only {
        None => (None, None),
        Some(Only::Node(name)) => (Some(name.as_str()), None),
        Some(Only::Service(key)) => (None, Some(key)),
    };
    for controller in &config.controllers {
        let lines = match *controller {
            NODE if only_service.is_none() => {
                node::plan(&cluster, &cloud, &place, config).await.map_err(|fault| fault.to_string())
            }
            ROUTE if only_service.is_none() => {
                route::plan(&cluster, &cloud, &place, config).await.map_err(|fault| fault.to_string())
            }
            SERVICE if only_node.is_none() => {
                let lines = service::plan(&cluster, &cloud, &place, config, only_service).await;
                lines.map_err(|fault| fault.to_string())
            }
            _ => continue,
        };
        match lines {
            Ok(lines) => {
                preview.steps.extend(lines.into_iter().filter(|line| only_node.is_none_or(|name| line.object == name)))
            }
            Err(error) => preview.problems.push(format!("{}: {error}", controller.as_str())),
        }
    }
    Ok(preview)
}
