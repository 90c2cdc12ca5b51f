//! Keeps a store filled: list, then watch from there.
//!
//! ```text
//!            +-- list fails: backoff --+
//!            v                         |
//!  open --> list --> watch --+---------+
//!   ^                  ^     |
//!   |                  +-----+  ended, or connection lost: resume from the last resourceVersion
//!   +------------------------+  resourceVersion expired (410 Gone) or regressed, another API is to be read, event unreadable,
//!                               watch refused: list again
//! ```
//!
//! This is not `kube::runtime::watcher`, because that resumes a watch without checking the server (a resourceVersion that
//! regressed after a restore would stay unnoticed), resumes without a pause where a server ends every watch at once, and
//! does not end where the answer to a watch is 410 itself or a list names itself as its next page.
//!
//! Lists come in pages instead of as a stream, since streaming lists need a recent API server and fail without a fallback
//! on others. Objects become views one by one as they arrive, and are dropped.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff};
use futures::TryStreamExt as _;
use futures::future::OptionFuture;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, info, warn};

use super::faults::RequestFault;
use super::objects::{self, Listed};
use super::reflector::Reflector;
use super::requests::{Requests, backoff, segment};
use super::store::{DirtyKeys, is_newer_version};
use super::watched::Watched;
use crate::jitter;
use crate::plan::inputs::{ObjectKey, ServiceView};

/// The API server ends a watch after this time and up to half more. A connection whose server lost power dies silently, and is
/// noticed within a minute; continuing a watch costs one request.
const WATCH_SECONDS: f64 = 30.0;
/// How much later than that the end of a watch may be noticed.
const WATCH_GRACE: Duration = Duration::from_secs(10);
/// A watch that ends sooner was refused, in effect; reopening it at once would be a tight loop.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// A watch that lasted this long was a good one: its end has another cause than the one before, and backoff is reset.
const LASTING: Duration = Duration::from_secs(10);
const FIRST_DELAY: Duration = Duration::from_millis(300);
const LONGEST_DELAY: Duration = Duration::from_secs(15);
/// The longest pause while no API server answers, so that its restart delays no change by more. There is none to protect from
/// requests.
const UNREACHED: Duration = Duration::from_millis(500);

/// A collection of objects at the API server, and where they go.
pub(super) struct WatchedCollection {
    /// Such as `/api/v1/nodes`.
    pub(super) path: &'static str,
    /// Such as `nodes`, for messages about permissions.
    pub(super) plural: &'static str,
    pub(super) reflector: Box<dyn Reflector>,
}

/// Why a watch cannot just go on.
enum Interruption {
    /// It can be resumed, after a pause.
    Resume(String),
    /// The same, and the API server does not answer at all.
    Unreached(String),
    /// Only a new list helps.
    ListAgain(String),
}

impl Interruption {
    fn reason(&self) -> &str {
        let (Self::Resume(reason) | Self::Unreached(reason) | Self::ListAgain(reason)) = self;
        reason
    }
}

/// Pauses between requests that fail. An answer after an outage begins them anew: the failures before it say nothing about the
/// server that is there now.
struct Pauses(ExponentialBackoff);

impl Pauses {
    fn new() -> Self {
        Self(backoff(FIRST_DELAY, LONGEST_DELAY).build())
    }

    /// Replicas lose their watches together; the jitter keeps their requests apart.
    async fn after(&mut self, interruption: &Interruption) {
        let pause = match interruption {
            Interruption::Unreached(_) => {
                *self = Self::new();
                jitter::shortened(UNREACHED)
            }
            _ => self.0.next().unwrap_or(LONGEST_DELAY),
        };
        sleep(pause).await;
    }
}

/// Lists and watches the first of `candidates` that the server offers and permits.
pub(super) struct ListWatch {
    pub(super) kind: &'static str,
    pub(super) requests: Requests,
    pub(super) candidates: Vec<WatchedCollection>,
    /// Services on which it depends what is kept.
    pub(super) scope: Option<Watched<ServiceView>>,
}

/// The collection that is read, and the resourceVersion that is known of it.
struct Position {
    chosen: usize,
    version: String,
}

impl ListWatch {
    /// Never ends by itself. Where a scope decides what is kept, its list comes first.
    pub(super) async fn run(mut self) {
        let health = self.requests.health().clone();
        let mut changed_scope = None;
        if let Some(scope) = &self.scope {
            scope.store.synced().await;
            changed_scope = Some(scope.store.subscribe());
        }
        let (mut pauses, mut before) = (Pauses::new(), None);
        loop {
            let ended = match self.list_first(before).await {
                Ok(position) => {
                    before = Some(position.chosen);
                    debug!(kind = self.kind, path = self.candidates[position.chosen].path, "listed");
                    health.watch_synced(self.kind);
                    let started = Instant::now();
                    let reason = self.follow(position, &mut changed_scope).await;
                    info!(kind = self.kind, reason, "listing again");
                    if started.elapsed() >= LASTING {
                        pauses = Pauses::new();
                    }
                    Interruption::ListAgain(reason)
                }
                Err(ended) => {
                    let reason = ended.reason();
                    warn!(code = "ACCM0724", kind = self.kind, reason, "the list failed; retrying");
                    ended
                }
            };
            self.note(&ended);
            pauses.after(&ended).await;
        }
    }

    /// Lists the first candidate that can be listed. `before` is the one that was listed last.
    async fn list_first(&mut self, before: Option<usize>) -> Result<Position, Interruption> {
        let mut refusal = None;
        for index in 0..self.candidates.len() {
            let fault = match self.list(index).await {
                Ok(version) => {
                    let candidate = &self.candidates[index];
                    if let Some(reason) = refusal {
                        warn!(
                            code = "ACCM0725",
                            reason,
                            instead = candidate.path,
                            "reading an older kind of object instead"
                        );
                    }
                    let newer = Position { chosen: index, version };
                    let position = self.older_if_ahead(&newer, before).await?.unwrap_or(newer);
                    self.candidates[position.chosen].reflector.finish_list();
                    return Ok(position);
                }
                Err(fault) => fault,
            };
            let candidate = &self.candidates[index];
            match fault.code() {
                Some(404) => debug!(path = candidate.path, "not offered by this API server"),
                Some(401 | 403) => drop(refusal.get_or_insert_with(|| fault.explain("list", candidate.plural))),
                _ => return Err(interrupted(&fault, fault.to_string())),
            }
        }
        let reason = refusal.unwrap_or_else(|| "the API server does not offer this kind of object".into());
        Err(Interruption::Resume(reason))
    }

    /// After an upgrade the API server offers slices before its controllers have made them, and Services would seem to have
    /// no endpoints. So Endpoints are read until each that has addresses has a slice with some: whenever the kind changes,
    /// and at the start if no Service has a slice. Gives what to use instead of the newer collection.
    async fn older_if_ahead(
        &mut self,
        newer: &Position,
        before: Option<usize>,
    ) -> Result<Option<Position>, Interruption> {
        let candidates = &mut self.candidates;
        let Some(filled) = candidates[newer.chosen].reflector.take_services_with_addresses() else { return Ok(None) };
        // The API server itself makes this one, without any controller.
        let counts = |service: &&ObjectKey| (&*service.namespace, &*service.name) != ("default", "kubernetes");
        let plural = candidates[newer.chosen].plural;
        let changes = match before {
            None => newer.chosen > 0 && !filled.iter().any(|service| counts(&service)),
            Some(before) => candidates[before].plural != plural,
        };
        let older = candidates.iter().skip(newer.chosen).position(|candidate| changes && candidate.plural != plural);
        let Some(older) = older.map(|index| newer.chosen + index) else { return Ok(None) };
        let version = match self.list(older).await {
            Ok(version) => version,
            Err(fault) if matches!(fault.code(), Some(401 | 403 | 404)) => return Ok(None),
            Err(fault) => return Err(interrupted(&fault, fault.to_string())),
        };
        let needed = self.candidates[older].reflector.take_services_with_addresses().unwrap_or_default();
        let missing: Vec<_> = needed.difference(&filled).filter(counts).collect();
        let Some(first) = missing.first() else { return Ok(None) };
        let (kind, missing) = (self.kind, missing.len());
        info!(kind, missing, %first, "endpoint slices are offered but not made yet; reading Endpoints until they are");
        Ok(Some(Position { chosen: older, version }))
    }

    /// Lists one candidate; it takes effect with `finish_list`.
    async fn list(&mut self, index: usize) -> Result<String, RequestFault> {
        let WatchedCollection { path, reflector, .. } = &mut self.candidates[index];
        let take = |listed| match listed {
            Listed::Start => reflector.start_list(),
            Listed::Object(object) => reflector.listed(object),
        };
        objects::list(&self.requests, path, "", take).await
    }

    /// Watches from there on for as long as that is possible; tells why a new list is needed.
    async fn follow(&mut self, mut position: Position, changed_scope: &mut Option<DirtyKeys>) -> String {
        let (mut pauses, mut is_resumed) = (Pauses::new(), false);
        loop {
            let started = Instant::now();
            let mut ended = if is_resumed { self.check_resumable(&position).await } else { Ok(()) };
            if ended.is_ok() {
                ended = self.watch_once(&mut position, changed_scope).await;
            }
            is_resumed = true;
            if started.elapsed() >= LASTING {
                pauses = Pauses::new();
            }
            match ended {
                Ok(()) => {}
                Err(Interruption::ListAgain(reason)) => return reason,
                Err(ended) => {
                    debug!(kind = self.kind, reason = ended.reason(), "watch interrupted");
                    self.note(&ended);
                    pauses.after(&ended).await;
                }
            }
        }
    }

    /// Makes an interruption known, also in the log once it has lasted for long.
    fn note(&self, interruption: &Interruption) {
        let reason = interruption.reason();
        if let Some(since) = self.requests.health().watch_interrupted(self.kind, reason) {
            let since = crate::clock::seconds(since);
            warn!(code = "ACCM0732", kind = self.kind, since, reason, "changes are not watched; retrying");
        }
    }

    /// Whether a watch may go on after it has ended: there may be a newer server now that offers another API, or one with
    /// older objects. As long as that cannot be asked, the watch is not opened, since an open one would hide it for minutes.
    async fn check_resumable(&self, position: &Position) -> Result<(), Interruption> {
        for better in &self.candidates[..position.chosen] {
            match self.requests.get(&format!("{}?limit=1", better.path)).await {
                Ok(IgnoredAny) => return Err(Interruption::ListAgain(format!("{} can be read now", better.path))),
                Err(fault) if matches!(fault.code(), Some(401 | 403 | 404)) => {}
                Err(fault) => return Err(interrupted(&fault, fault.to_string())),
            }
        }
        let WatchedCollection { path, plural, .. } = &self.candidates[position.chosen];
        let newest = objects::newest_version(&self.requests, path).await;
        let newest = newest.map_err(|fault| match fault.code() {
            Some(401 | 403 | 404) => Interruption::ListAgain(fault.explain("list", plural)),
            _ => interrupted(&fault, fault.explain("list", plural)),
        })?;
        if !is_newer_version(&position.version, &newest) {
            return Ok(());
        }
        let reason = format!(
            "the API server's resourceVersion regressed from {} to {newest}, as after a restore from a backup",
            position.version
        );
        warn!(code = "ACCM0726", path, "{reason}");
        Err(Interruption::ListAgain(reason))
    }

    /// One watch until the API server ends it; moves the position forward with what arrives.
    async fn watch_once(
        &mut self,
        position: &mut Position,
        changed_scope: &mut Option<DirtyKeys>,
    ) -> Result<(), Interruption> {
        let collection = &mut self.candidates[position.chosen];
        let lasts = Duration::from_secs_f64(WATCH_SECONDS * (1.0 + 0.5 * jitter::share()));
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            collection.path,
            segment(&position.version),
            lasts.as_secs()
        );
        let started = Instant::now();
        let opened = self.requests.watch(&uri).await;
        let mut lines = pin!(opened.map_err(|fault| refused(&fault, collection.plural))?);
        self.requests.health().watch_resumed(self.kind);
        let deadline = started + lasts + WATCH_GRACE;
        loop {
            let line = tokio::select! {
                biased;
                Some(services) = OptionFuture::from(changed_scope.as_mut().map(DirtyKeys::next)) => {
                    read_skipped(&self.requests, collection, &services).await?;
                    continue;
                }
                line = timeout_at(deadline, lines.try_next()) => line,
            };
            match line {
                Err(_) => return Err(Interruption::Resume("the API server does not end the watch".into())),
                Ok(Err(error)) => return Err(Interruption::Resume(error)),
                Ok(Ok(Some(line))) => collection.take_event(&line, &mut position.version)?,
                Ok(Ok(None)) if started.elapsed() < SHORTEST_WATCH => {
                    return Err(Interruption::Resume("the API server ended the watch at once".into()));
                }
                Ok(Ok(None)) => return Ok(()),
            }
        }
    }
}

/// One line of a watch.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl WatchedCollection {
    /// Takes one event and moves `version` forward.
    fn take_event(&mut self, line: &str, version: &mut String) -> Result<(), Interruption> {
        let Event { kind, object } = serde_json::from_str(line).map_err(|error| {
            if error.is_eof() {
                return Interruption::Resume("the connection was lost".into());
            }
            // It is not known which object this was about.
            Interruption::ListAgain(format!("unreadable event: {error}"))
        })?;
        if kind != "ERROR"
            && let Some(newer) = object["metadata"]["resourceVersion"].as_str().filter(|newer| !newer.is_empty())
        {
            newer.clone_into(version);
        }
        match kind.as_str() {
            "ADDED" | "MODIFIED" => self.reflector.apply(object),
            "DELETED" => self.reflector.delete(&object),
            "BOOKMARK" => {}
            "ERROR" => {
                let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
                return Err(refused(&RequestFault::answered(code, object.to_string().as_bytes()), self.plural));
            }
            other => return Err(Interruption::ListAgain(format!("unknown kind of event: {other}"))),
        }
        Ok(())
    }
}

/// What follows from a watch that the API server refuses.
fn refused(fault: &RequestFault, plural: &str) -> Interruption {
    let reason = fault.explain("watch", plural);
    match fault.code() {
        // Gone or no longer offered; or the request itself makes no sense to the server, so that it is not repeated as it is. What
        // may not be watched may still be listed, again and again.
        Some(400 | 401 | 403 | 404 | 405 | 410 | 422) => Interruption::ListAgain(reason),
        _ => interrupted(fault, reason),
    }
}

fn interrupted(fault: &RequestFault, reason: String) -> Interruption {
    if fault.code().is_none() { Interruption::Unreached(reason) } else { Interruption::Resume(reason) }
}

/// Reads what was skipped so far and is needed now. Events wait meanwhile, so that none is older than what is read here.
async fn read_skipped(
    requests: &Requests,
    collection: &mut WatchedCollection,
    services: &BTreeSet<ObjectKey>,
) -> Result<(), Interruption> {
    for skipped in collection.reflector.rescope(services) {
        let (path, query) = skipped.list_at(collection.path);
        let found = objects::collect(requests, &path, &query, Some).await;
        let unread = |fault| Interruption::ListAgain(format!("skipped endpoints could not be read: {fault}"));
        collection.reflector.found(&skipped, found.map_err(unread)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
