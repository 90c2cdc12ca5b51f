//! `doctor`: everything that has to be true for the program to work, in the order in which it has to be.
//!
//! Thin readers gather facts, each of which may fail by itself; pure functions say what the facts mean. Nothing is changed.

mod bundle;
mod cloud;
mod cluster;
mod finding;
mod objects;
mod quotas;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;

use self::finding::{CheckResult, Diagnosis, Requirement};
use super::{CommandError, CommandResult, print_findings, runtime};
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::cli::OutputFormat;
use crate::config::{Config, ConfigReport, Loaded};
use crate::controllers::Clients;
use crate::telemetry::machine::page;

/// The pages of a running process that a bug report has; the first one is judged.
const PAGES: [&str; 4] = ["/readyz", "/configz", "/metrics", "/debug/objects"];

pub(super) fn run(loaded: Result<Loaded, ConfigReport>, output: OutputFormat, bundle: Option<&Path>) -> CommandResult {
    let (diagnosis, pages) = match &loaded {
        Ok(loaded) => runtime()?.block_on(diagnose(loaded))?,
        Err(report) => (Diagnosis::of(vec![misconfigured(report)]), Vec::new()),
    };
    print_findings(output, &diagnosis.to_text(), &diagnosis)?;
    if let Some(path) = bundle {
        let config = loaded.as_ref().ok().map(|loaded| &loaded.config);
        bundle::write(path, &diagnosis, config, &pages)
            .map_err(|error| CommandError(format!("{} cannot be written: {error}", path.display())))?;
    }
    Ok(diagnosis.ended())
}

/// Nothing else can be looked at without a configuration.
fn misconfigured(report: &ConfigReport) -> CheckResult {
    Requirement::Configuration
        .error("the configuration cannot be used, and nothing else was checked")
        .seen(report.to_string().trim_end())
        .repair("alicloud-ccm check; alicloud-ccm reference prints every key")
}

/// The diagnosis, and the pages of the running process as far as they can be read.
async fn diagnose(loaded: &Loaded) -> Result<(Diagnosis, Vec<(&'static str, String)>), CommandError> {
    let config = &loaded.config;
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().map_err(CommandError::new)?);
    let pages = async {
        let mut pages = Vec::new();
        for path in PAGES {
            pages.push((path, page(config.server.port, path).await));
        }
        pages
    };
    let ((cloud, client), (cluster, connection), pages) =
        tokio::join!(cloud::gather(config, transport), cluster::gather(config), pages);
    let mut findings = vec![file(loaded)];
    let services = cluster.inside.as_ref().and_then(|inside| inside.services.as_deref().ok()).unwrap_or_default();
    findings.extend(cloud::findings(&cloud, services, config));
    let inside = cloud.account.as_ref().and_then(|account| account.inside.as_ref());
    let vpc = inside.and_then(|inside| inside.vpc.as_ref().ok()).and_then(Option::as_ref);
    findings.extend(cluster::findings(&cluster, config, vpc));
    let lists = cluster.inside.as_ref().filter(|inside| inside.services.is_ok());
    match (client, connection, lists.and_then(|inside| inside.nodes.as_ref().ok())) {
        (Some((client, location)), Some(connection), Some(nodes)) => {
            let vpc = location.vpc_id.clone();
            let clients = Clients { cluster: connection, cloud: client, location };
            let facts = objects::gather(&clients, config, nodes).await;
            findings.extend(objects::findings(&facts, nodes, &vpc, config));
        }
        (client, ..) => {
            let missing = if client.is_none() { "the cloud" } else { "the cluster" };
            let sections = [Requirement::Identity, Requirement::Orphans, Requirement::Plan];
            findings.extend(sections.map(|section| section.unknown(format!("{missing} cannot be used, see above"))));
        }
    }
    let port = config.server.port;
    let is_taken = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok();
    findings.extend(pages.iter().take(1).flat_map(|(_, readyz)| objects::process(readyz, port, is_taken)));
    let pages = pages.into_iter().filter_map(|(path, page)| Some((path, page.ok()?))).collect();
    Ok((Diagnosis::of(findings), pages))
}

fn file(loaded: &Loaded) -> CheckResult {
    let Config { controllers, .. } = &loaded.config;
    let names = controllers.iter().copied().collect::<Vec<_>>().join(", ");
    Requirement::Configuration.ok(format!("{} is right; controllers: {names}", loaded.path.display()))
}
