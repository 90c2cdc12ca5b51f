//! Events on objects: what happened, why, and what to do.
//!
//! Written as core/v1 because every API server since 1.8 has those. Reporting never waits: events queue up, a task in
//! the background writes them, and where that goes too slowly the oldest are given up.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::requests::{Pacing, Pauses, RequestFault, Requests, segment};
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// Events that wait to be written.
const QUEUE: usize = 1000;
/// An equal event within this time raises the count of the one before.
const SAME: Duration = Duration::from_secs(600);
/// Events about one object: so many at once, then one per [`REFILL`].
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(60);
/// How many written events and objects are remembered.
const REMEMBERED: usize = 4096;
/// The API server takes no longer messages.
const MESSAGE_BYTES: usize = 1024;
const TRIES: u32 = 5;
/// How often the log says that events are refused or given up.
const COMPLAINT: Duration = Duration::from_secs(600);

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
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<VecDeque<Happening>>,
    /// How many wait or are being written.
    unfinished: watch::Sender<usize>,
}

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    component: &'static str,
    regarding: Regarding,
    severity: &'static str,
    reason: &'static str,
    message: String,
}

#[derive(Clone, Debug)]
struct Happening {
    subject: Subject,
    at: Timestamp,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { queue: Arc::new(Queue { waiting: Mutex::default(), unfinished: watch::Sender::new(0) }) }
    }

    /// Something went as wanted. `component` is the controller, such as `node-controller`.
    pub fn normal(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        self.report(component, regarding, "Normal", reason, message);
    }

    /// Something needs attention.
    pub fn warning(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        self.report(component, regarding, "Warning", reason, message);
    }

    fn report(
        &self,
        component: &'static str,
        regarding: &Regarding,
        severity: &'static str,
        reason: &'static str,
        message: String,
    ) {
        let message = cut(&message, MESSAGE_BYTES).to_owned();
        let subject = Subject { component, regarding: regarding.clone(), severity, reason, message };
        let mut waiting = self.queue.waiting.lock();
        if waiting.len() == QUEUE
            && let Some(oldest) = waiting.pop_front()
        {
            metrics::events_dropped("queue", 1);
            let Subject { regarding, reason, message, .. } = oldest.subject;
            debug!(kind = regarding.kind, object = %regarding.key, reason, message, "too many events; not reported");
        }
        waiting.push_back(Happening { subject, at: crate::clock::now() });
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
            warn!(events = count, "stopping; these events are not reported");
        }
    }

    async fn next(&self) -> Happening {
        let mut unfinished = self.queue.unfinished.subscribe();
        loop {
            if let Some(happening) = self.queue.waiting.lock().pop_front() {
                return happening;
            }
            // The sender lives in `self`.
            let _ = unfinished.changed().await;
        }
    }

    fn done(&self) {
        let waiting = self.queue.waiting.lock();
        self.queue.unfinished.send_replace(waiting.len());
    }
}

/// Text of at most `bytes`, ended between two characters.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Writes what is reported, one after the other. Never ends by itself.
pub(super) async fn write_all(events: Events, requests: Requests) {
    let mut writer = Writer { requests, written: HashMap::new(), allowances: HashMap::new(), complained: None };
    loop {
        let happening = events.next().await;
        writer.write(happening).await;
        events.done();
    }
}

struct Writer {
    requests: Requests,
    /// By a digest of the subject: messages can be long.
    written: HashMap<u64, Written>,
    allowances: HashMap<Regarding, Allowance>,
    complained: Option<Instant>,
}

/// An Event object that exists.
struct Written {
    name: String,
    count: u32,
    last: Instant,
}

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

impl Writer {
    async fn write(&mut self, happening: Happening) {
        let now = Instant::now();
        let Happening { subject, at } = happening;
        self.forget(now);
        let allowance = self.allowances.entry(subject.regarding.clone());
        let allowed = allowance.or_insert(Allowance { left: BURST, since: now }).take(now);
        let repeated =
            self.written.get_mut(&digest(&subject)).filter(|written| now.duration_since(written.last) < SAME);
        let again = repeated.map(|written| {
            written.count += 1;
            written.last = now;
            (written.name.clone(), written.count)
        });
        if !allowed {
            metrics::events_dropped("object", 1);
            debug!(object = %subject.regarding.key, reason = subject.reason, "too many events about one object");
            return;
        }
        let outcome = match again {
            Some((name, count)) => self.raise(&subject, &name, count, at).await,
            None => self.create(&subject, at).await,
        };
        if let Err(fault) = outcome {
            self.complain(&subject, &fault);
        }
    }

    /// Raises the count of an event; writes a new one where the API server has forgotten it.
    async fn raise(&mut self, subject: &Subject, name: &str, count: u32, at: Timestamp) -> Result<(), RequestFault> {
        let path = format!("{}/{}", collection(subject), segment(name));
        let change = json!({ "count": count, "lastTimestamp": seconds(at) });
        match self.send(Method::PATCH, &path, "application/merge-patch+json", &change).await {
            Err(fault) if fault.code() == Some(404) => self.create(subject, at).await,
            outcome => outcome,
        }
    }

    async fn create(&mut self, subject: &Subject, at: Timestamp) -> Result<(), RequestFault> {
        let name = name(&subject.regarding.key.name);
        let event = object(subject, &name, at);
        match self.send(Method::POST, &collection(subject), "application/json", &event).await {
            // The name is random: this is our own, from a try whose answer was lost.
            Err(fault) if fault.code() != Some(409) => {
                self.written.remove(&digest(subject));
                Err(fault)
            }
            _ => {
                self.written.insert(digest(subject), Written { name, count: 1, last: Instant::now() });
                Ok(())
            }
        }
    }

    async fn send(&self, method: Method, path: &str, content: &'static str, body: &Value) -> Result<(), RequestFault> {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut tries = 1;
        loop {
            let limit = self.requests.timeout();
            let sent = self.requests.send(method.clone(), path, Some((content, body)), limit, Pacing::Shared).await;
            let fault = match sent {
                Ok(_) => return Ok(()),
                Err(fault) => fault,
            };
            let passing = fault.code().is_none_or(|code| code == 429 || code >= 500);
            if !passing || tries == TRIES {
                return Err(fault);
            }
            tries += 1;
            sleep(pauses.next()).await;
        }
    }

    fn complain(&mut self, subject: &Subject, fault: &RequestFault) {
        metrics::events_dropped("refused", 1);
        let (kind, object, reason) = (subject.regarding.kind, &subject.regarding.key, subject.reason);
        let error = match fault.code() {
            Some(401 | 403) => super::writes::denied("create and patch", "events", &fault.to_string()),
            _ => fault.to_string(),
        };
        if self.complained.is_none_or(|said| said.elapsed() >= COMPLAINT) {
            self.complained = Some(Instant::now());
            warn!(kind, %object, reason, error, "an event could not be written; the next failures are logged at debug level");
        } else {
            debug!(kind, %object, reason, error, "an event could not be written");
        }
    }

    /// Keeps memory bounded.
    fn forget(&mut self, now: Instant) {
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, written| now.duration_since(written.last) < SAME);
        }
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        if self.allowances.len() >= REMEMBERED {
            self.allowances.retain(|_, allowance| now.duration_since(allowance.since) < REFILL * BURST);
        }
        if self.allowances.len() >= REMEMBERED {
            self.allowances.clear();
        }
    }
}

/// Tells subjects apart; keys are of this process alone.
fn digest(subject: &Subject) -> u64 {
    let mut hasher = DefaultHasher::new();
    subject.hash(&mut hasher);
    hasher.finish()
}

/// Events about cluster-scoped objects live in `default`; the API server refuses them elsewhere.
fn namespace(subject: &Subject) -> &str {
    match subject.regarding.key.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

fn collection(subject: &Subject) -> String {
    format!("/api/v1/namespaces/{}/events", segment(namespace(subject)))
}

/// `<object>.<16 hexadecimal digits>`, at most 253 characters.
fn name(object: &str) -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    let start = cut(object, 253 - 17).trim_end_matches(['.', '-']);
    format!("{start}.{}", &random[..16])
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn object(subject: &Subject, name: &str, at: Timestamp) -> Value {
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
