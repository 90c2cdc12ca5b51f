//! Logs on standard error, with a level and a format that can change while running.
//!
//! Each line carries the spans that it is in: those of a reconcile (controller, object, id) and of a cloud call (action,
//! request id). Text has their names before the message and their fields after its own; JSON has them in `spans`.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::os::linux::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layered, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::checked::{Log, LogFormat};

type Filter = reload::Layer<Targets, Registry>;
type Filtered = Layered<Filter, Registry>;
type OutputLayer = Box<dyn Layer<Filtered> + Send + Sync>;

/// Changes how logs are written.
#[derive(Debug)]
pub struct Logs {
    filter: Handle<Targets, Registry>,
    is_json: Arc<AtomicBool>,
}

impl Logs {
    /// Starts logging. Call once, before anything logs.
    pub fn start(settings: &Log) -> Self {
        let journal = leads_to_the_journal();
        let (logs, subscriber) = Self::new(settings, journal, StandardError { journal });
        // A second subscriber in one process only happens in tests; the first one stays.
        let _ = subscriber.try_init();
        logs
    }

    fn new<W>(settings: &Log, journal: bool, writer: W) -> (Self, impl Subscriber + Send + Sync + use<W>)
    where
        W: for<'a> MakeWriter<'a> + Clone + Send + Sync + 'static,
    {
        let (filter_layer, filter) = reload::Layer::new(filter(settings));
        let is_json = Arc::new(AtomicBool::new(settings.format == LogFormat::Json));
        let output = output(&is_json, journal, writer);
        (Self { filter, is_json }, tracing_subscriber::registry().with(filter_layer).with(output))
    }

    /// Applies changed settings to everything that is logged from now on.
    pub fn change(&self, settings: &Log) {
        // Fails only when the subscriber is gone, at exit.
        let _ = self.filter.reload(filter(settings));
        self.is_json.store(settings.format == LogFormat::Json, Ordering::Relaxed);
    }
}

thread_local! {
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread formats a line of the log now: what goes wrong then could not be logged either.
pub(super) fn is_writing() -> bool {
    WRITES.get()
}

/// One format. It formats the fields of every span, so that the spans that are open when the format changes have them in the
/// new one, too; and events while `is_json` says that the format is in use.
struct Output<L> {
    layer: L,
    json: bool,
    is_json: Arc<AtomicBool>,
}

impl<L> Output<L> {
    fn write(&self, write: impl FnOnce(&L)) {
        /// Takes back what this thread does, after a panic too.
        struct Before(bool);
        impl Drop for Before {
            fn drop(&mut self) {
                WRITES.set(self.0);
            }
        }
        let _before = Before(WRITES.replace(true));
        write(&self.layer);
    }
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Output<L> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.write(|layer| layer.on_new_span(attributes, id, context));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.write(|layer| layer.on_record(id, values, context));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if self.json == self.is_json.load(Ordering::Relaxed) {
            self.write(|layer| layer.on_event(event, context));
        }
    }
}

fn filter(settings: &Log) -> Targets {
    // Checked with the rest of the configuration.
    directives(&settings.level).parse().unwrap_or_else(|_| Targets::new().with_default(Level::INFO))
}

/// The Kubernetes client logs failures that this program logs with more context, so its lines appear only where the level
/// names it.
fn directives(stated: &str) -> String {
    if stated.contains("kube") { stated.to_owned() } else { format!("{stated},kube_client=off") }
}

fn output<W>(is_json: &Arc<AtomicBool>, journal: bool, writer: W) -> OutputLayer
where
    W: for<'a> MakeWriter<'a> + Clone + Send + Sync + 'static,
{
    // A failed write would be told on standard error, which is what failed.
    let layer = || tracing_subscriber::fmt::layer().with_writer(writer.clone()).log_internal_errors(false);
    let json = layer().json().flatten_event(true).with_current_span(false);
    let text = layer().with_ansi(is_in_colour()).with_target(false).compact();
    // The journal adds the time and the level itself.
    let text: OutputLayer = if journal { text.without_time().with_level(false).boxed() } else { text.boxed() };
    let text = Output { layer: text, json: false, is_json: is_json.clone() };
    text.and_then(Output { layer: json, json: true, is_json: is_json.clone() }).boxed()
}

/// Whether standard error is the journal's: children of a service inherit the variable, but not always the stream.
fn leads_to_the_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.st_dev(), file.st_ino()))
}

/// Whether people look at standard error; `NO_COLOR` is that of <https://no-color.org>.
fn is_in_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Standard error; each line begins with its priority if that is understood there.
#[derive(Clone, Copy, Debug)]
struct StandardError {
    journal: bool,
}

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = JournalLine;

    fn make_writer(&'a self) -> JournalLine {
        JournalLine { priority: None }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> JournalLine {
        JournalLine { priority: self.journal.then(|| priority(*metadata.level())) }
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
struct JournalLine {
    priority: Option<u8>,
}

impl Write for JournalLine {
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

    fn settings(format: LogFormat) -> Log {
        Log { level: "warn".to_owned(), format }
    }

    /// What is written meanwhile, from the first format on.
    fn written(format: LogFormat, logging: impl FnOnce(&Logs)) -> String {
        let (sender, written) = std::sync::mpsc::channel::<Vec<u8>>();
        let (logs, subscriber) = Logs::new(&settings(format), true, move || Channel(sender.clone()));
        tracing::subscriber::with_default(subscriber, || logging(&logs));
        String::from_utf8(written.try_iter().flatten().collect()).unwrap()
    }

    /// A line within a cloud call of a reconcile, after the format has changed meanwhile.
    fn line_in_spans(before: LogFormat, format: LogFormat) -> String {
        written(before, |logs| {
            let reconcile =
                tracing::error_span!("reconcile", controller = "service", object = "shop/web", reconcile_id = 7);
            let _in_reconcile = reconcile.enter();
            let call = tracing::error_span!("cloud_call", action = "SetSomething", request_id = tracing::field::Empty);
            let _in_call = call.enter();
            logs.change(&settings(format));
            call.record("request_id", "R-1");
            tracing::warn!(retry_after = 3, "throttled");
        })
    }

    struct Channel(std::sync::mpsc::Sender<Vec<u8>>);

    impl Write for Channel {
        fn write(&mut self, event: &[u8]) -> io::Result<usize> {
            self.0.send(event.to_vec()).unwrap();
            Ok(event.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_carry_the_spans_that_they_are_in_also_after_a_change_of_the_format() {
        for before in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(
                line_in_spans(before, LogFormat::Text),
                "reconcile:cloud_call: throttled retry_after=3 controller=\"service\" object=\"shop/web\" reconcile_id=7 \
                 action=\"SetSomething\" request_id=\"R-1\"\n"
            );
            let json: serde_json::Value = serde_json::from_str(&line_in_spans(before, LogFormat::Json)).unwrap();
            assert_eq!((&json["message"], &json["retry_after"]), (&"throttled".into(), &3.into()));
            assert_eq!(json["span"], serde_json::Value::Null, "each span once");
            assert_eq!(json["spans"][0]["object"], "shop/web");
            assert_eq!(
                (&json["spans"][1]["action"], &json["spans"][1]["request_id"]),
                (&"SetSomething".into(), &"R-1".into())
            );
        }
    }

    #[test]
    fn a_panic_inside_of_a_line_is_known_to_be_one() {
        struct Panics;
        impl std::fmt::Display for Panics {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::panic::panic_any(is_writing())
            }
        }
        let text = written(LogFormat::Text, |_| {
            let logged = std::panic::catch_unwind(|| tracing::error!("{Panics}"));
            assert_eq!(logged.unwrap_err().downcast_ref(), Some(&true));
            assert!(!is_writing());
            tracing::error!("lines after it are written");
        });
        assert_eq!(text, "lines after it are written\n");
    }

    #[test]
    fn every_line_of_an_event_has_its_priority() {
        assert_eq!(with_priority(b"two\n  problems\n", priority(Level::ERROR)), b"<3>two\n<3>  problems\n");
        assert_eq!(with_priority(b"fine\n", priority(Level::INFO)), b"<6>fine\n");
    }
}
