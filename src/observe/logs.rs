//! Logs on standard error, with a level and a format that can change while running.

use std::fmt;
use std::io::IsTerminal;

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::checked::{Log, LogFormat};

/// The filter is a layer of its own: a reloaded layer cannot carry a filter of its own.
type Filter = reload::Layer<EnvFilter, Registry>;
type Filtered = Layered<Filter, Registry>;
type Output = Box<dyn Layer<Filtered> + Send + Sync>;

/// Changes how logs are written.
pub struct Logs {
    filter: Handle<EnvFilter, Registry>,
    output: Handle<Output, Filtered>,
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

impl Logs {
    /// Starts logging. Call once, before anything is worth telling.
    #[must_use]
    pub fn start(settings: &Log) -> Self {
        let (filter_layer, filter) = reload::Layer::new(filter(settings));
        let (output_layer, output) = reload::Layer::new(output(settings));
        // A second subscriber in one process only happens in tests; the first one stays.
        let _ = tracing_subscriber::registry().with(filter_layer).with(output_layer).try_init();
        Self { filter, output }
    }

    /// Applies changed settings to everything that is logged from now on.
    pub fn change(&self, settings: &Log) {
        // Fail only when the subscriber is gone, at exit.
        let _ = self.filter.reload(filter(settings));
        let _ = self.output.reload(output(settings));
    }
}

fn filter(settings: &Log) -> EnvFilter {
    EnvFilter::builder().parse_lossy(directives(&settings.level))
}

/// The Kubernetes client logs failures that are told here with more context. Who names it wants to see them.
fn directives(stated: &str) -> String {
    if stated.contains("kube") { stated.to_owned() } else { format!("{stated},kube_client=off") }
}

fn output(settings: &Log) -> Output {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match settings.format {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Text => {
            let layer = layer.with_ansi(std::io::stderr().is_terminal()).with_target(false);
            // The journal stamps lines itself.
            if std::env::var_os("JOURNAL_STREAM").is_some() { layer.without_time().boxed() } else { layer.boxed() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kubernetes_client_are_shown_to_those_who_name_it() {
        assert_eq!(directives("info"), "info,kube_client=off");
        assert_eq!(directives("info,kube_client=debug"), "info,kube_client=debug");
        assert_eq!(directives("warn,kube=info"), "warn,kube=info");
        assert!(EnvFilter::builder().parse(directives("info,alicloud_ccm::alibaba=debug")).is_ok());
    }
}
