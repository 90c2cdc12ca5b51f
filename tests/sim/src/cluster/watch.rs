//! Watches: changes since a version, as one client wants to see them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Shared;
use super::failure::Failure;
use super::object;
use super::reads::{self, View};
use super::request::{Form, Request};
use super::selectors::Selector;
use super::storage::{Change, Store};
use super::tables;
use super::version::Feature;
use crate::ordered_watch::Receiver;

/// How long a watch lasts that does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The interval of bookmarks.
const BOOKMARKS_EVERY: Duration = Duration::from_secs(60);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What is being done to all watches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dial {
    /// How often all running watches were ended.
    pub(super) cuts: u64,
    /// Whether the last time it was without a proper end.
    pub(super) abrupt: bool,
    /// Whether watches stay open but tell nothing.
    pub(super) stalled: bool,
}

/// One running watch.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arc<Shared>,
    view: View,
    namespace: String,
    selector: Selector,
    /// Version of the last change that was looked at.
    position: u64,
    pending: VecDeque<Value>,
    changes: Receiver<u64>,
    dial: Receiver<Dial>,
    /// How often watches had been cut when this one began.
    cuts: u64,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    ended: bool,
}

impl Watcher {
    pub(super) fn open(shared: &Arc<Shared>, request: &Request) -> Result<Watcher, Failure> {
        let selector =
            Selector::parse(request.resource, request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
        let version = reads::version_parameter(request)?;
        let initial_events = initial_events(shared, request)?;
        let now = Instant::now();
        let timeout = match request.parameter("timeoutSeconds") {
            "" | "0" => DEFAULT_TIMEOUT,
            seconds => Duration::from_secs(seconds.parse().map_err(|_| {
                Failure::bad_request(format!("unable to decode timeoutSeconds: {seconds:?} is not a number"))
            })?),
        };
        let bookmarks = request.flag("allowWatchBookmarks") && shared.rules().version.has(Feature::Bookmarks);
        let store = shared.store.lock();
        let mut watcher = Watcher {
            shared: Arc::clone(shared),
            view: View::of(request, shared),
            namespace: request.namespace.clone(),
            selector,
            position: store.version(),
            pending: VecDeque::new(),
            changes: store.subscribe(),
            cuts: shared.watches.get().cuts,
            dial: shared.watches.subscribe(),
            deadline: now + timeout,
            next_bookmark: bookmarks.then(|| now + BOOKMARKS_EVERY),
            ended: false,
        };
        if initial_events == Some(true) || (initial_events.is_none() && matches!(version, None | Some(0))) {
            watcher.send_existing(&store, request);
            if initial_events == Some(true) {
                watcher.pending.push_back(watcher.bookmark(true));
            }
        } else if initial_events.is_none() {
            watcher.start_from(&store, version.unwrap_or(0))?;
        }
        Ok(watcher)
    }

    fn send_existing(&mut self, store: &Store, request: &Request) {
        for (_, object) in store.list(request.resource, &request.namespace) {
            if self.selector.matches(object) {
                self.pending.push_back(self.view.event("ADDED", object));
            }
        }
    }

    fn start_from(&mut self, store: &Store, version: u64) -> Result<(), Failure> {
        if let Err(oldest) = store.reaches(version) {
            let failure = Failure::expired(version, oldest.0);
            if self.shared.gone_as_status.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(failure);
            }
            self.fail(&failure);
        }
        self.position = version;
        Ok(())
    }

    /// The next event as a line of JSON; nothing when the watch is over.
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if self.ended && self.pending.is_empty() {
                return None;
            }
            let dial = self.dial.latest();
            if dial.cuts != self.cuts {
                self.pending.clear();
                self.ended = true;
                return dial.abrupt.then(|| Err(io::ErrorKind::ConnectionReset.into()));
            }
            if dial.stalled {
                self.ended = self.dial.changed().await.is_err();
                continue;
            }
            if let Some(event) = self.pending.pop_front() {
                let mut line = event.to_string();
                line.push('\n');
                return Some(Ok(Bytes::from(line)));
            }
            self.changes.latest();
            self.catch_up();
            if self.pending.is_empty() {
                self.wait().await;
            }
        }
    }

    async fn wait(&mut self) {
        let alarm = self.next_bookmark.unwrap_or(self.deadline).min(self.deadline);
        tokio::select! {
            biased;
            changed = self.changes.changed() => self.ended = changed.is_err(),
            changed = self.dial.changed() => self.ended = changed.is_err(),
            () = tokio::time::sleep_until(alarm) => {
                if self.next_bookmark.is_some() {
                    let event = self.bookmark(false);
                    self.pending.push_back(event);
                    self.next_bookmark = Some(Instant::now() + BOOKMARKS_EVERY);
                }
                self.ended |= Instant::now() >= self.deadline;
            }
        }
    }

    fn catch_up(&mut self) {
        let shared = Arc::clone(&self.shared);
        let store = shared.store.lock();
        match store.after(self.position) {
            Ok(changes) => {
                let events: Vec<_> = changes.filter_map(|change| self.event(change)).collect();
                self.pending.extend(events);
                // A watch from the future waits until the present gets there.
                self.position = self.position.max(store.version());
            }
            Err(oldest) => self.fail(&Failure::expired(self.position, oldest.0)),
        }
    }

    fn event(&self, change: &Change) -> Option<Value> {
        let ours = change.key.plural == self.view.resource.plural
            && (self.namespace.is_empty() || change.key.namespace == self.namespace);
        if !ours {
            return None;
        }
        let before = change.before.as_deref().filter(|object| self.selector.matches(object));
        let now = (!change.deleted && self.selector.matches(&change.object)).then_some(&*change.object);
        match (before, now) {
            (None, Some(object)) => Some(self.view.event("ADDED", object)),
            (Some(_), Some(object)) => Some(self.view.event("MODIFIED", object)),
            (Some(_), None) if change.deleted => Some(self.view.event("DELETED", &change.object)),
            (Some(before), None) => {
                // It left the selection: the client sees what it knew, at the version of the change.
                let mut last = before.clone();
                object::map(&mut last, "metadata")
                    .insert("resourceVersion".to_owned(), change.version.to_string().into());
                Some(self.view.event("DELETED", &last))
            }
            (None, None) => None,
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.pending.push_back(json!({ "type": "ERROR", "object": failure.status() }));
        self.ended = true;
    }

    fn bookmark(&self, end_of_initial_events: bool) -> Value {
        let mut metadata = json!({ "resourceVersion": self.position.to_string(), "creationTimestamp": null });
        if end_of_initial_events {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let object = match self.view.form {
            Form::Table(version) => tables::empty(version, &metadata),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            Form::Whole => json!({
                "kind": self.view.resource.kind,
                "apiVersion": self.view.resource.api_version(&self.view.version),
                "metadata": metadata,
            }),
        };
        json!({ "type": "BOOKMARK", "object": object })
    }
}

/// The `sendInitialEvents` parameter, as far as the played version knows it.
fn initial_events(shared: &Shared, request: &Request) -> Result<Option<bool>, Failure> {
    let version = shared.rules().version;
    if request.parameter("sendInitialEvents").is_empty() || !version.has(Feature::InitialEventsKnown) {
        return Ok(None);
    }
    let refuse = |why: &str| {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {why}");
        Err(Failure::new(422, "Invalid", message))
    };
    if !version.has(Feature::InitialEvents) {
        return refuse(
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        );
    }
    if request.parameter("resourceVersionMatch") != "NotOlderThan" {
        return refuse(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    Ok(Some(request.flag("sendInitialEvents")))
}
