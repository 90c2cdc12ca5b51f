//! Logs on standard error, with a level and a format that can change while running.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::linux::fs::MetadataExt;

use tracing::{Level, Metadata};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::checked::{Log, LogFormat};

/// The filter is a layer of its own: a reloaded layer cannot carry a filter of its own.
type Filter = reload::Layer<Targets, Registry>;
type Filtered = Layered<Filter, Registry>;
type Output = Box<dyn Layer<Filtered> + Send + Sync>;

/// Changes how logs are written.
pub struct Logs {
    filter: Handle<Targets, Registry>,
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

fn filter(settings: &Log) -> Targets {
    // Checked with the rest of the configuration.
    directives(&settings.level).parse().unwrap_or_else(|_| Targets::new().with_default(Level::INFO))
}

/// The Kubernetes client logs failures that are told here with more context. Who names it wants to see them.
fn directives(stated: &str) -> String {
    if stated.contains("kube") { stated.to_owned() } else { format!("{stated},kube_client=off") }
}

fn output(settings: &Log) -> Output {
    let journal = leads_to_the_journal();
    let layer = tracing_subscriber::fmt::layer().with_writer(StandardError { journal });
    match settings.format {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Text => {
            let layer = layer.with_ansi(io::stderr().is_terminal()).with_target(false);
            // The journal stamps lines and knows their level itself.
            if journal { layer.without_time().with_level(false).boxed() } else { layer.boxed() }
        }
    }
}

/// Whether standard error is the journal's: the variable alone is also seen by whatever a service starts.
fn leads_to_the_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.st_dev(), file.st_ino()))
}

/// Standard error; each line begins with its priority if that is understood there.
#[derive(Clone, Copy, Debug)]
struct StandardError {
    journal: bool,
}

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        Lines { priority: None }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Lines {
        Lines { priority: self.journal.then(|| priority(*metadata.level())) }
    }
}

/// As in `syslog(3)`.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Writes one event, which arrives whole.
#[derive(Debug)]
struct Lines {
    priority: Option<u8>,
}

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match self.priority {
            None => io::stderr().lock().write_all(event)?,
            Some(priority) => io::stderr().lock().write_all(&with_priority(event, priority))?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The journal takes each line for an entry of its own, so each needs the priority.
fn with_priority(event: &[u8], priority: u8) -> Vec<u8> {
    let prefix = format!("<{priority}>").into_bytes();
    event.split_inclusive(|byte| *byte == b'\n').flat_map(|line| [prefix.as_slice(), line].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kubernetes_client_are_shown_to_those_who_name_it() {
        assert_eq!(directives("info"), "info,kube_client=off");
        assert_eq!(directives("info,kube_client=debug"), "info,kube_client=debug");
        assert_eq!(directives("warn,kube=info"), "warn,kube=info");
        assert!(directives("info,alicloud_ccm::alibaba=debug").parse::<Targets>().is_ok());
    }

    #[test]
    fn every_line_of_an_event_has_its_priority() {
        assert_eq!(with_priority(b"two\n  problems\n", priority(Level::ERROR)), b"<3>two\n<3>  problems\n");
        assert_eq!(with_priority(b"fine\n", priority(Level::INFO)), b"<6>fine\n");
    }
}
