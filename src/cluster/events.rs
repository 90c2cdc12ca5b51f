//! Events on objects: what happened, why, and what to do.
//!
//! Written as core/v1 because every API server since 1.8 has those. Reporting never waits: events are queued, a task in
//! the background writes them, and where that is too slow the oldest are dropped. Each namespace has its events written in
//! order. One where the API server refuses them, as a rate limit or a webhook can, does not delay the others.

mod catalog;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable as _;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

pub(super) use catalog::remedy;
pub use catalog::{EVENTS_PAGE, advice, event_code};

use super::faults::{RequestFault, truncate};
use super::requests::{Exchange, Requests, backoff, segment};
use crate::clock;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::telemetry::metrics;

/// Events in the queue at most.
const QUEUE: usize = 1000;
/// An equal event within this time raises the count of the previous one.
const REPETITION_WINDOW: Duration = Duration::from_secs(600);
/// An open finding is reported again after this time, so that its event is never older than ten minutes.
const RENEWAL: Duration = Duration::from_secs(240);
/// Requests about events at once. Those that hang must not take the connections of all others.
const IN_FLIGHT: usize = 4;
/// Events about one object: this many at once, then one per [`REFILL`].
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(60);
/// How many written events and objects are remembered.
const REMEMBERED: usize = 4096;
const WARNING: &str = "Warning";
const NORMAL: &str = "Normal";
/// Reason of the event that withdraws another one.
const RESOLVED: &str = "Resolved";
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
    /// A Service.
    pub fn service(service: &ServiceView) -> Self {
        Self { kind: "Service", key: service.key.clone(), uid: service.uid.clone() }
    }

    /// A controller itself, for what is about no single object: written as if about a node of its name, as the official
    /// controller does it.
    pub fn component(name: &str) -> Self {
        Self { kind: "Node", key: ObjectKey::cluster(name), uid: name.to_owned() }
    }
}

/// What is true of an object until it is closed, such as why it is out of sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastingEvent {
    /// Whether it needs attention.
    pub is_warning: bool,
    /// Reason of the event.
    pub reason: &'static str,
    /// Kind and code of what is behind it, without request id.
    pub cause: String,
    /// What is true. A change of this text is reported at once.
    pub message: String,
    /// Since when it is true; of an open event, what it began with counts.
    pub since: Timestamp,
    /// What is next. Users are shown the latest.
    pub next: String,
    /// What ends before this is not told.
    pub tell_at: Instant,
}

#[derive(Debug)]
struct OpenEvent {
    regarding: Regarding,
    finding: LastingEvent,
    /// Its message without request ids.
    text: String,
    since: Timestamp,
    told: Option<ToldEvent>,
}

/// When users were last told, and what.
#[derive(Debug)]
struct ToldEvent {
    at: Instant,
    reason: &'static str,
    text: String,
}

impl OpenEvent {
    /// When users are to be told, for the first time or again.
    fn due(&self) -> Instant {
        match &self.told {
            Some(told) if (told.reason, &told.text) == (self.finding.reason, &self.text) => told.at + RENEWAL,
            _ => self.finding.tell_at,
        }
    }

    /// Notes the time of this report, and returns its event.
    fn tell(&mut self, component: &'static str, now: Instant) -> ReportedEvent {
        let LastingEvent { is_warning, reason, cause, message, next, .. } = self.finding.clone();
        self.told = Some(ToldEvent { at: now, reason, text: self.text.clone() });
        let severity = if is_warning { WARNING } else { NORMAL };
        let identity = EventIdentity { component, regarding: self.regarding.clone(), severity, reason, cause };
        let status = format!("This has been so since {}; {next}", clock::seconds(self.since));
        ReportedEvent { identity, message, status, at: clock::now() }
    }
}

/// Writes core/v1 Events in the background; repetitions raise a count instead of making new objects.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Arc<EventQueue>,
}

#[derive(Debug)]
struct EventQueue {
    waiting: Mutex<VecDeque<ReportedEvent>>,
    /// What lasts, by component, object and what of it.
    open: Mutex<BTreeMap<(&'static str, ObjectKey, &'static str), OpenEvent>>,
    /// How many wait or are being written; also changes when what is open does.
    unfinished: watch::Sender<usize>,
}

/// What makes two events the same, whatever their messages are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventIdentity {
    component: &'static str,
    regarding: Regarding,
    severity: &'static str,
    reason: &'static str,
    cause: String,
}

#[derive(Debug)]
struct ReportedEvent {
    identity: EventIdentity,
    message: String,
    /// Of what lasts: since when, and what is next.
    status: String,
    at: Timestamp,
}

impl ReportedEvent {
    fn namespace(&self) -> &Arc<str> {
        &self.identity.regarding.key.namespace
    }
}

impl Events {
    pub(super) fn new() -> Self {
        let unfinished = watch::Sender::new(0);
        let queue = EventQueue { waiting: Mutex::default(), open: Mutex::default(), unfinished };
        Self { queue: Arc::new(queue) }
    }

    /// Reports a success. `component` is the controller, such as `node-controller`.
    pub fn normal(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        self.report_once((component, NORMAL), regarding, reason, message);
    }

    /// Reports what needs attention.
    pub fn warning(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        self.report_once((component, WARNING), regarding, reason, message);
    }

    /// Tells users what is now true of an object, and again whenever that changes and at least every `RENEWAL`, until it is
    /// closed. `what` of the object it is about tells findings apart; a later one about the same replaces it.
    pub fn open(&self, component: &'static str, regarding: &Regarding, what: &'static str, finding: LastingEvent) {
        let (now, place) = (Instant::now(), (component, regarding.key.clone(), what));
        let (regarding, text) = (regarding.clone(), without_request_ids(&finding.message));
        let mut open = self.queue.open.lock();
        let mut entry = match open.remove(&place).filter(|before| before.regarding == regarding) {
            Some(before) => OpenEvent { finding, text, ..before },
            None => OpenEvent { regarding, text, since: finding.since, finding, told: None },
        };
        if entry.due() <= now {
            self.report(entry.tell(component, now));
        }
        open.insert(place, entry);
        // The writer waits for the next one that is due.
        self.queue.unfinished.send_modify(|_| {});
    }

    /// What was open is no longer true: a further event says so if users were told.
    pub fn close(&self, component: &'static str, key: &ObjectKey, what: &'static str) {
        let closed = self.queue.open.lock().remove(&(component, key.clone(), what));
        if let Some(OpenEvent { regarding, told: Some(told), .. }) = closed {
            self.normal(component, &regarding, RESOLVED, format!("{} no longer applies", told.reason));
        }
    }

    /// The objects that the component has open findings of this kind about.
    pub fn objects(&self, component: &'static str, what: &'static str) -> Vec<ObjectKey> {
        let open = self.queue.open.lock();
        open.keys().filter(|(of, _, it)| (*of, *it) == (component, what)).map(|(_, key, _)| key.clone()).collect()
    }

    /// Says no more of these objects of a component, and does not withdraw what was said.
    pub fn forget(&self, component: &'static str, is_meant: impl Fn(&ObjectKey) -> bool) {
        self.queue.open.lock().retain(|(of, key, _), _| *of != component || !is_meant(key));
    }

    fn report_once(
        &self,
        (component, severity): (&'static str, &'static str),
        regarding: &Regarding,
        reason: &'static str,
        message: String,
    ) {
        let (regarding, cause) = (regarding.clone(), without_request_ids(&message));
        let identity = EventIdentity { component, regarding, severity, reason, cause };
        self.report(ReportedEvent { identity, message, status: String::new(), at: clock::now() });
    }

    /// Reports what lasts and is due, outside of the namespaces that are busy; gives when the next is.
    fn renew(&self, busy: &BTreeSet<Arc<str>>) -> Option<Instant> {
        let now = Instant::now();
        let mut open = self.queue.open.lock();
        let mut entries: Vec<_> = open.iter_mut().filter(|((_, key, _), _)| !busy.contains(&key.namespace)).collect();
        // The others follow once these are written.
        let due = entries.iter_mut().filter(|(_, entry)| entry.due() <= now).take(QUEUE / 2);
        due.for_each(|((component, ..), entry)| self.report(entry.tell(component, now)));
        entries.iter().map(|(_, entry)| entry.due()).min()
    }

    fn report(&self, mut event: ReportedEvent) {
        let reason = event.identity.reason;
        let entry = catalog::find(reason);
        assert!(entry.is_some() || !cfg!(feature = "under-test"), "{reason} is not in the catalog");
        let code = entry.filter(|_| event.identity.severity == WARNING);
        let code = code.map(|entry| format!(" (ACCM{:04})", entry.code)).unwrap_or_default();
        let end = if event.status.is_empty() { code } else { format!(". {}{code}", event.status) };
        event.message = truncate(&event.message, MESSAGE_BYTES.saturating_sub(end.len())).to_owned() + &end;
        let mut waiting = self.queue.waiting.lock();
        let oldest = if waiting.len() == QUEUE { waiting.pop_front() } else { None };
        let added = usize::from(oldest.is_none());
        if let Some(oldest) = oldest {
            metrics::events_dropped("queue", 1);
            let ReportedEvent { identity: EventIdentity { regarding, reason, .. }, message, .. } = oldest;
            let Regarding { kind, key, .. } = regarding;
            debug!(kind, object = %key, reason, message, "too many events; this one is dropped");
        }
        waiting.push_back(event);
        self.queue.unfinished.send_modify(|unfinished| *unfinished += added);
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

    /// The oldest event whose namespace is not busy.
    async fn next(&self, busy: &BTreeSet<Arc<str>>) -> ReportedEvent {
        let mut unfinished = self.queue.unfinished.subscribe();
        loop {
            let ready = {
                let mut waiting = self.queue.waiting.lock();
                let index = waiting.iter().position(|event| !busy.contains(event.namespace()));
                index.and_then(|index| waiting.remove(index))
            };
            if let Some(event) = ready {
                return event;
            }
            // The sender lives in `self`.
            let changed = unfinished.changed();
            let _ = match self.renew(busy) {
                Some(due) => timeout_at(due, changed).await.unwrap_or(Ok(())),
                None => changed.await,
            };
        }
    }

    fn count_unfinished(&self, writing: usize) {
        let waiting = self.queue.waiting.lock();
        self.queue.unfinished.send_replace(waiting.len() + writing);
    }
}

/// Writes what is reported, those of one namespace one after the other. Never ends by itself.
pub(super) async fn write_all(events: Events, requests: Requests) {
    let in_flight = Semaphore::new(IN_FLIGHT);
    let writer = EventWriter { requests, in_flight, hasher: RandomState::new(), memory: Mutex::default() };
    let (mut writes, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
    loop {
        // A writer that ended has perhaps left some unfinished.
        events.count_unfinished(busy.len());
        tokio::select! {
            biased;
            Some(namespace) = writes.next() => drop(busy.remove(&namespace)),
            event = events.next(&busy) => {
                let namespace = event.namespace().clone();
                busy.insert(namespace.clone());
                writes.push(writer.write(event).map(|()| namespace));
            }
        }
    }
}

struct EventWriter {
    requests: Requests,
    in_flight: Semaphore,
    hasher: RandomState,
    memory: Mutex<EventMemory>,
}

#[derive(Default)]
struct EventMemory {
    /// By a hash of the identity: causes can be long.
    written: HashMap<u64, WrittenEvent>,
    /// By object, when it may have [`BURST`] events at once again.
    allowances: HashMap<Regarding, Instant>,
    warned: Option<Instant>,
}

/// An Event object that exists.
struct WrittenEvent {
    name: String,
    count: u32,
    last: Instant,
}

/// Takes one event of those that an object may have; false if there is none left. `full_at` is when it has all again.
fn take_allowance(full_at: &mut Instant, now: Instant) -> bool {
    let next = (*full_at).max(now) + REFILL;
    let is_allowed = next <= now + REFILL * BURST;
    if is_allowed {
        *full_at = next;
    }
    is_allowed
}

impl EventMemory {
    /// Whether the event may be written, and the name and the new count of one that it repeats.
    fn admit(&mut self, event: &ReportedEvent, hash: u64) -> (bool, Option<(String, u32)>) {
        let (now, identity) = (Instant::now(), &event.identity);
        self.forget(now);
        let age = self.written.get(&hash).map_or(REPETITION_WINDOW, |written| now.duration_since(written.last));
        // A finding that lasts is renewed, and withdrawn, however many other events there are.
        let ignores_limit = identity.reason == RESOLVED || (!event.status.is_empty() && age >= REFILL);
        let full_at = self.allowances.entry(identity.regarding.clone()).or_insert(now);
        let is_allowed = ignores_limit || take_allowance(full_at, now);
        let repeated = self.written.get_mut(&hash).filter(|_| age < REPETITION_WINDOW);
        let repeated = repeated.map(|written| {
            written.count += 1;
            written.last = now;
            (written.name.clone(), written.count)
        });
        (is_allowed, repeated)
    }

    /// Whether a warning about failures is due; then the next is due later.
    fn take_reminder(&mut self) -> bool {
        let is_due = self.warned.is_none_or(|warned| warned.elapsed() >= REMINDER);
        if is_due {
            self.warned = Some(Instant::now());
        }
        is_due
    }

    /// Keeps memory bounded.
    fn forget(&mut self, now: Instant) {
        bound(&mut self.written, |written| now.duration_since(written.last) < REPETITION_WINDOW);
        bound(&mut self.allowances, |full_at| *full_at > now);
    }
}

impl EventWriter {
    async fn write(&self, event: ReportedEvent) {
        let identity = &event.identity;
        let (kind, object, reason) = (identity.regarding.kind, &identity.regarding.key, identity.reason);
        let (is_allowed, repeated) = self.memory.lock().admit(&event, self.hasher.hash_one(identity));
        if !is_allowed {
            metrics::events_dropped("object", 1);
            debug!(kind, %object, reason, "too many events about one object; this one is dropped");
            return;
        }
        let Err(fault) = self.create_or_raise(&event, repeated).await else { return };
        metrics::events_dropped("refused", 1);
        let error = fault.explain("create and patch", "events");
        if !fault.is_of_leaving_namespace() && self.memory.lock().take_reminder() {
            warn!(code = "ACCM0728", kind, %object, reason, error, "an event could not be written; the next failures are logged at debug level");
        } else {
            debug!(kind, %object, reason, error, "an event could not be written");
        }
    }

    /// Raises the count of an event that was written before; writes a new one where the API server has removed it.
    async fn create_or_raise(
        &self,
        event: &ReportedEvent,
        repeated: Option<(String, u32)>,
    ) -> Result<(), RequestFault> {
        let collection = format!("/api/v1/namespaces/{}/events", segment(namespace(&event.identity)));
        if let Some((name, count)) = repeated {
            let path = format!("{collection}/{}", segment(&name));
            let (last, message) = (clock::seconds(event.at), &event.message);
            let change = json!({ "count": count, "lastTimestamp": last, "message": message });
            match self.send(Method::PATCH, &path, ("application/merge-patch+json", &change)).await {
                Err(fault) if fault.code() == Some(404) => {}
                outcome => return outcome,
            }
        }
        let (hash, name) = (self.hasher.hash_one(&event.identity), event_name(&event.identity.regarding.key.name));
        let event = event_object(event, &name);
        match self.send(Method::POST, &collection, ("application/json", &event)).await {
            // The name is random: this is our own, from a request whose answer was lost.
            Err(fault) if fault.code() != Some(409) => {
                self.memory.lock().written.remove(&hash);
                Err(fault)
            }
            _ => {
                let written = WrittenEvent { name, count: 1, last: Instant::now() };
                self.memory.lock().written.insert(hash, written);
                Ok(())
            }
        }
    }

    async fn send(&self, method: Method, path: &str, body: (&'static str, &Value)) -> Result<(), RequestFault> {
        let send = async || {
            // The pauses between tries keep no place.
            let _in_flight = self.in_flight.acquire().await;
            let (method, timeout) = (method.clone(), self.requests.timeout());
            let exchange = Exchange { method, path, body: Some(body), timeout, rate_limited: true };
            self.requests.send::<Value>(exchange).await.map(drop)
        };
        send.retry(backoff(FIRST_DELAY, LONGEST_DELAY).with_max_times(RETRIES))
            .when(|fault| fault.code().is_none_or(|code| code == 429 || code >= 500))
            .await
    }
}

/// A text that stays the same when the same call fails again.
pub fn without_request_ids(text: &str) -> String {
    let mut parts = text.split("request ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match (kept.ends_with(", ") || kept.ends_with(" ["), part.split_once(']')) {
            (true, Some((_, rest))) => {
                let ends_list = kept.ends_with(", ");
                kept.truncate(kept.len() - 2);
                kept.extend(ends_list.then_some(']'));
                kept.push_str(rest);
            }
            _ => {
                kept.push_str("request ");
                kept.push_str(part);
            }
        }
    }
    kept
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
fn namespace(identity: &EventIdentity) -> &str {
    match &*identity.regarding.key.namespace {
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

fn event_object(event: &ReportedEvent, name: &str) -> Value {
    let ReportedEvent { identity, message, at, .. } = event;
    let Regarding { kind, key, uid } = &identity.regarding;
    let mut involved = json!({
        "apiVersion": if *kind == "Lease" { "coordination.k8s.io/v1" } else { "v1" },
        "kind": kind,
        "name": &*key.name,
        "uid": uid,
    });
    if !key.namespace.is_empty() {
        involved["namespace"] = json!(&*key.namespace);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace(identity) },
        "involvedObject": involved,
        "type": identity.severity,
        "reason": identity.reason,
        "message": message,
        "source": { "component": identity.component },
        "reportingComponent": identity.component,
        "reportingInstance": "",
        "count": 1,
        "firstTimestamp": clock::seconds(*at),
        "lastTimestamp": clock::seconds(*at),
    })
}

#[cfg(test)]
mod tests;
