//! Events on objects: what happened, why, and what to do.
//!
//! Written as core/v1 because every API server since 1.8 has those. Reporting never waits: events are queued, a task in
//! the background writes them, and where that is too slow the oldest are dropped.

mod catalog;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable as _;
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

pub(super) use catalog::remedy;
pub use catalog::{advice, event_code, events_page};

use super::faults::{RequestFault, truncate};
use super::requests::{Exchange, Requests, backoff, segment};
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// Events in the queue at most.
const QUEUE: usize = 1000;
/// An equal event within this time raises the count of the previous one.
const REPETITION_WINDOW: Duration = Duration::from_secs(600);
/// Events about one object: this many at once, then one per [`REFILL`].
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(60);
/// How many written events and objects are remembered.
const REMEMBERED: usize = 4096;
const WARNING: &str = "Warning";
/// The API server accepts no longer messages.
const MESSAGE_BYTES: usize = 1024;
const RETRIES: usize = 4;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(20);
/// How often a warning says that events cannot be written.
const REMINDER: Duration = Duration::from_secs(600);

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// `Node`, `Service`, `Pod`, `Lease`, `ConfigMap`
    pub kind: &'static str,
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`
    pub uid: String,
}

impl Regarding {
    /// A controller itself, for what is about no single object: written as if about a node of its name, as the official
    /// controller does it.
    #[must_use]
    pub fn component(name: &str) -> Self {
        Self { kind: "Node", key: ObjectKey::cluster(name), uid: name.to_owned() }
    }
}

/// Writes core/v1 Events in the background; repetitions raise a count instead of making new objects.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Arc<EventQueue>,
}

#[derive(Debug)]
struct EventQueue {
    waiting: Mutex<VecDeque<(EventIdentity, Timestamp)>>,
    /// How many wait or are being written.
    unfinished: watch::Sender<usize>,
}

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventIdentity {
    component: &'static str,
    regarding: Regarding,
    severity: &'static str,
    reason: &'static str,
    message: String,
}

impl Events {
    pub(super) fn new() -> Self {
        let queue = EventQueue { waiting: Mutex::default(), unfinished: watch::Sender::new(0) };
        Self { queue: Arc::new(queue) }
    }

    /// Reports a success. `component` is the controller, such as `node-controller`.
    pub fn normal(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        self.report(EventIdentity { component, regarding: regarding.clone(), severity: "Normal", reason, message });
    }

    /// Reports what needs attention.
    pub fn warning(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        self.report(EventIdentity { component, regarding: regarding.clone(), severity: WARNING, reason, message });
    }

    fn report(&self, mut subject: EventIdentity) {
        let entry = catalog::find(subject.reason);
        debug_assert!(entry.is_some(), "{} is not in the catalog", subject.reason);
        let code = entry.filter(|_| subject.severity == WARNING);
        let code = code.map(|entry| format!(" (ACCM{:04})", entry.code)).unwrap_or_default();
        subject.message = truncate(&subject.message, MESSAGE_BYTES - code.len()).to_owned() + &code;
        let mut waiting = self.queue.waiting.lock();
        if waiting.len() == QUEUE
            && let Some((oldest, _)) = waiting.pop_front()
        {
            metrics::events_dropped("queue", 1);
            let EventIdentity { regarding: Regarding { kind, key, .. }, reason, message, .. } = oldest;
            debug!(kind, object = %key, reason, message, "too many events; this one is dropped");
        }
        waiting.push_back((subject, crate::clock::now()));
        let length = waiting.len();
        // The one being written is not in the queue any more, but counts.
        self.queue.unfinished.send_modify(|unfinished| *unfinished = (*unfinished + 1).min(length + 1));
    }

    /// Waits until all events are written, but no longer than `limit`.
    pub(super) async fn flush(&self, limit: Duration) {
        let mut unfinished = self.queue.unfinished.subscribe();
        if timeout(limit, unfinished.wait_for(|unfinished| *unfinished == 0)).await.is_err() {
            let count = *unfinished.borrow();
            metrics::events_dropped("stop", count);
            warn!(code = "ACCM0728", events = count, "stopping; these events are dropped");
        }
    }

    async fn next(&self) -> (EventIdentity, Timestamp) {
        let mut unfinished = self.queue.unfinished.subscribe();
        loop {
            if let Some(event) = self.queue.waiting.lock().pop_front() {
                return event;
            }
            // The sender lives in `self`.
            let _ = unfinished.changed().await;
        }
    }

    fn finished_one(&self) {
        let waiting = self.queue.waiting.lock();
        self.queue.unfinished.send_replace(waiting.len());
    }
}

/// Writes what is reported, one after the other. Never ends by itself.
pub(super) async fn write_all(events: Events, requests: Requests) {
    let mut writer = EventWriter {
        requests,
        hasher: RandomState::new(),
        written: HashMap::new(),
        allowances: HashMap::new(),
        warned: None,
    };
    // A writer that ended has perhaps left one unfinished.
    events.finished_one();
    loop {
        let (subject, at) = events.next().await;
        writer.write(&subject, at).await;
        events.finished_one();
    }
}

struct EventWriter {
    requests: Requests,
    hasher: RandomState,
    /// By a hash of the subject: messages can be long.
    written: HashMap<u64, WrittenEvent>,
    allowances: HashMap<Regarding, Allowance>,
    warned: Option<Instant>,
}

/// An Event object that exists.
struct WrittenEvent {
    name: String,
    count: u32,
    last: Instant,
}

/// A token bucket for the events about one object.
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        while self.left < BURST && now.duration_since(self.since) >= REFILL {
            self.left += 1;
            self.since += REFILL;
        }
        if self.left == BURST {
            self.since = now;
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

impl EventWriter {
    async fn write(&mut self, subject: &EventIdentity, at: Timestamp) {
        let now = Instant::now();
        self.forget(now);
        let allowance = self.allowances.entry(subject.regarding.clone());
        let is_allowed = allowance.or_insert(Allowance { left: BURST, since: now }).take(now);
        let hash = self.hasher.hash_one(subject);
        let repeated =
            self.written.get_mut(&hash).filter(|written| now.duration_since(written.last) < REPETITION_WINDOW);
        let repeated = repeated.map(|written| {
            written.count += 1;
            written.last = now;
            (written.name.clone(), written.count)
        });
        let (kind, object, reason) = (subject.regarding.kind, &subject.regarding.key, subject.reason);
        if !is_allowed {
            metrics::events_dropped("object", 1);
            debug!(kind, %object, reason, "too many events about one object; this one is dropped");
            return;
        }
        let Err(fault) = self.create_or_raise(subject, repeated, at).await else { return };
        metrics::events_dropped("refused", 1);
        let error = fault.explain("create and patch", "events");
        if self.warned.is_none_or(|warned| warned.elapsed() >= REMINDER) {
            self.warned = Some(Instant::now());
            warn!(code = "ACCM0728", kind, %object, reason, error, "an event could not be written; the next failures are logged at debug level");
        } else {
            debug!(kind, %object, reason, error, "an event could not be written");
        }
    }

    /// Raises the count of an event that was written before; writes a new one where the API server has removed it.
    async fn create_or_raise(
        &mut self,
        subject: &EventIdentity,
        repeated: Option<(String, u32)>,
        at: Timestamp,
    ) -> Result<(), RequestFault> {
        let collection = format!("/api/v1/namespaces/{}/events", segment(namespace(subject)));
        if let Some((name, count)) = repeated {
            let path = format!("{collection}/{}", segment(&name));
            let change = json!({ "count": count, "lastTimestamp": seconds(at) });
            match self.send(Method::PATCH, &path, ("application/merge-patch+json", &change)).await {
                Err(fault) if fault.code() == Some(404) => {}
                outcome => return outcome,
            }
        }
        let (hash, name) = (self.hasher.hash_one(subject), event_name(&subject.regarding.key.name));
        let event = event_object(subject, &name, at);
        match self.send(Method::POST, &collection, ("application/json", &event)).await {
            // The name is random: this is our own, from a request whose answer was lost.
            Err(fault) if fault.code() != Some(409) => {
                self.written.remove(&hash);
                Err(fault)
            }
            _ => {
                self.written.insert(hash, WrittenEvent { name, count: 1, last: Instant::now() });
                Ok(())
            }
        }
    }

    async fn send(&self, method: Method, path: &str, body: (&'static str, &Value)) -> Result<(), RequestFault> {
        let send = async || {
            let (method, timeout) = (method.clone(), self.requests.timeout());
            let exchange = Exchange { method, path, body: Some(body), timeout, rate_limited: true };
            self.requests.send::<Value>(exchange).await.map(drop)
        };
        send.retry(backoff(FIRST_DELAY, LONGEST_DELAY).with_max_times(RETRIES))
            .when(|fault| fault.code().is_none_or(|code| code == 429 || code >= 500))
            .await
    }

    /// Keeps memory bounded.
    fn forget(&mut self, now: Instant) {
        bound(&mut self.written, |written| now.duration_since(written.last) < REPETITION_WINDOW);
        bound(&mut self.allowances, |allowance| now.duration_since(allowance.since) < REFILL * BURST);
    }
}

/// Drops what is of no use any more once the map is full, and everything if that is not enough.
fn bound<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>, is_useful: impl Fn(&V) -> bool) {
    if map.len() >= REMEMBERED {
        map.retain(|_, value| is_useful(value));
    }
    if map.len() >= REMEMBERED {
        map.clear();
    }
}

/// Events about cluster-scoped objects live in `default`; the API server refuses them elsewhere.
fn namespace(subject: &EventIdentity) -> &str {
    match subject.regarding.key.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

/// `<object>.<16 hexadecimal digits>`, at most 253 characters.
fn event_name(object: &str) -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    let start = truncate(object, 253 - 17).trim_end_matches(['.', '-']);
    format!("{start}.{}", &random[..16])
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn event_object(subject: &EventIdentity, name: &str, at: Timestamp) -> Value {
    let Regarding { kind, key, uid } = &subject.regarding;
    let mut involved = json!({
        "apiVersion": if *kind == "Lease" { "coordination.k8s.io/v1" } else { "v1" },
        "kind": kind,
        "name": key.name,
        "uid": uid,
    });
    if !key.namespace.is_empty() {
        involved["namespace"] = json!(key.namespace);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace(subject) },
        "involvedObject": involved,
        "type": subject.severity,
        "reason": subject.reason,
        "message": subject.message,
        "source": { "component": subject.component },
        "reportingComponent": subject.component,
        "reportingInstance": "",
        "count": 1,
        "firstTimestamp": seconds(at),
        "lastTimestamp": seconds(at),
    })
}

#[cfg(test)]
mod tests;
