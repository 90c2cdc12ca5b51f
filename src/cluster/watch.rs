//! Keeps a store filled: list, then watch from there, for ever.
//!
//! ```text
//!            +-- list fails: pause --+
//!            v                       |
//!  open --> list --> watch --+-------+
//!   ^                  ^     |
//!   |                  +-----+  ended in time, or dropped fewer than RELIST_AFTER times in a row: watch on
//!   +------------------------+  version too old or ahead of the server's, stream unreadable, dropped again and again:
//!                               list anew
//! ```
//!
//! Lists come in pages instead of as a stream, since streaming lists need a recent API server and fail without a way
//! back on others. Objects become views one by one as they arrive, and are dropped.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::Watched;
use super::reflector::Intake;
use super::requests::{Pauses, RequestFault, Requests, count_read, segment};
use super::store::Dirty;
use super::writes::denied;
use crate::plan::inputs::{ObjectKey, ServiceView};

/// Objects in one page of a list: nodes are large, and a page is in memory as a whole.
const PAGE: u32 = 100;
/// More pages than any cluster has; a list that does not end is not a list.
const MOST_PAGES: usize = 2000;
/// The API server ends a watch after this time and up to half more. Short enough that a connection that died without
/// a sign is noticed soon; continuing a watch costs one request.
const WATCH_SECONDS: f64 = 120.0;
/// How much later than that the end of a watch may be noticed.
const WATCH_GRACE: Duration = Duration::from_secs(15);
/// So many watches in a row that could not be kept open lead to a new list: the server may be a different one.
const RELIST_AFTER: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A watch that lasted this long was a good one: what ended it is not the same as what ended the one before.
const LASTING: Duration = Duration::from_secs(10);

/// A collection of objects, and what to do with them.
pub(super) struct Resource {
    /// Such as `/api/v1/nodes`.
    pub(super) path: &'static str,
    /// Such as `nodes`, for messages about permissions.
    pub(super) plural: &'static str,
    pub(super) intake: Box<dyn Intake>,
}

/// Why a watch ended.
enum End {
    /// The server ended it in time.
    InTime,
    /// It cannot go on from where it was.
    ListAnew(String),
    /// It could not be opened, or broke.
    Dropped(String),
}

/// Lists and watches the first of `candidates` that the server offers and lets us read. Never ends by itself.
///
/// Where `scope` decides what is kept, its list comes first.
pub(super) async fn keep_filled(
    kind: &'static str,
    requests: Requests,
    mut candidates: Vec<Resource>,
    scope: Option<Watched<ServiceView>>,
) {
    let health = requests.health().clone();
    if let Some(scope) = &scope {
        scope.store.synced().await;
    }
    let mut rescoped = scope.as_ref().map(|scope| scope.store.subscribe());
    let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut before = None;
    loop {
        match list_first(kind, &requests, &mut candidates, before).await {
            Ok((chosen, version)) => {
                before = Some(chosen);
                debug!(kind, path = candidates[chosen].path, version, "listed");
                health.watch_synced(kind);
                let started = Instant::now();
                let reason = follow(kind, &requests, &mut candidates, chosen, version, &mut rescoped).await;
                info!(kind, reason, "listing anew");
                if started.elapsed() >= LASTING {
                    pauses.reset();
                }
            }
            Err(reason) => {
                warn!(kind, reason, "the list failed; trying again");
                health.watch_interrupted(kind, &reason);
            }
        }
        sleep(pauses.next()).await;
    }
}

/// Lists the first candidate that can be listed; gives its index and the version of the list. `before` is the one that
/// was listed last.
async fn list_first(
    kind: &'static str,
    requests: &Requests,
    candidates: &mut [Resource],
    before: Option<usize>,
) -> Result<(usize, String), String> {
    let mut refusal = None;
    for index in 0..candidates.len() {
        match list(requests, &mut candidates[index]).await {
            Ok(version) => {
                if let Some(reason) = refusal {
                    warn!(reason, instead = candidates[index].path, "reading an older kind of object instead");
                }
                let ahead = older_is_ahead(kind, requests, candidates, index, before).await?;
                let (chosen, version) = ahead.unwrap_or((index, version));
                candidates[chosen].intake.finish();
                return Ok((chosen, version));
            }
            Err(fault) => match fault.code() {
                Some(404) => debug!(path = candidates[index].path, "not offered by this API server"),
                Some(401 | 403) => {
                    let plural = candidates[index].plural;
                    refusal.get_or_insert_with(|| denied("list", plural, &fault.to_string()));
                }
                _ => return Err(fault.to_string()),
            },
        }
    }
    Err(refusal.unwrap_or_else(|| "the API server does not offer this kind of object".into()))
}

/// After an upgrade the API server offers slices before its controllers have made them. Whoever took them at their word
/// then would see Services without endpoints. So Endpoints are read until each that has addresses has a slice with some:
/// whenever the kind changes, and at the start if nobody has a slice. Gives what [`list_first`] should use instead.
async fn older_is_ahead(
    kind: &'static str,
    requests: &Requests,
    candidates: &mut [Resource],
    newer: usize,
    before: Option<usize>,
) -> Result<Option<(usize, String)>, String> {
    let Some(filled) = candidates[newer].intake.with_addresses() else { return Ok(None) };
    // The API server itself makes this one, without any controller.
    let counts =
        |service: &&ObjectKey| (service.namespace.as_str(), service.name.as_str()) != ("default", "kubernetes");
    let changes = match before {
        None => newer > 0 && !filled.iter().any(|service| counts(&service)),
        Some(before) => candidates[before].plural != candidates[newer].plural,
    };
    let plural = candidates[newer].plural;
    let Some(older) = (newer + 1..candidates.len()).find(|index| changes && candidates[*index].plural != plural) else {
        return Ok(None);
    };
    let version = match list(requests, &mut candidates[older]).await {
        Ok(version) => version,
        Err(fault) if matches!(fault.code(), Some(401 | 403 | 404)) => return Ok(None),
        Err(fault) => return Err(fault.to_string()),
    };
    let needed = candidates[older].intake.with_addresses().unwrap_or_default();
    let missing: Vec<_> = needed.difference(&filled).filter(counts).collect();
    let Some(first) = missing.first() else { return Ok(None) };
    info!(kind, missing = missing.len(), %first, "slices are offered but not made yet; reading Endpoints until they are");
    Ok(Some((older, version)))
}

/// Lists one resource, page by page; it is used once its intake is told to finish.
async fn list(requests: &Requests, resource: &mut Resource) -> Result<String, RequestFault> {
    let mut query = format!("?limit={PAGE}");
    let mut before = String::new();
    resource.intake.begin();
    for _ in 0..MOST_PAGES {
        let page = match requests.get(&format!("{}{query}", resource.path)).await {
            // The list took so long that its version is forgotten: once more, in one piece.
            Err(fault) if fault.code() == Some(410) && query.contains("&continue=") => {
                query.clear();
                resource.intake.begin();
                continue;
            }
            page => Page::read(page?)?,
        };
        for object in page.items {
            resource.intake.listed(object);
        }
        if page.continuation.is_empty() {
            return Ok(page.version);
        }
        // A page that names itself as the next one would be read for ever.
        if page.continuation == before {
            break;
        }
        query = format!("?limit={PAGE}&continue={}", segment(&page.continuation));
        before = page.continuation;
    }
    resource.intake.begin();
    Err(RequestFault::Unanswered(format!("the list does not end, or has more than {MOST_PAGES} pages")))
}

struct Page {
    version: String,
    continuation: String,
    items: Vec<Value>,
}

impl Page {
    /// Strict, because a thing that is no list must not look like an empty one.
    fn read(mut answer: Value) -> Result<Self, RequestFault> {
        let metadata = |field: &str| {
            let text = answer.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let (version, continuation) = (metadata("resourceVersion"), metadata("continue"));
        let items = match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            // How Go writes an empty list.
            Some(Value::Null) => Vec::new(),
            _ => return Err(RequestFault::Unanswered("the answer to a list has no items".into())),
        };
        if version.is_empty() {
            return Err(RequestFault::Unanswered("the answer to a list has no resourceVersion".into()));
        }
        Ok(Self { version, continuation, items })
    }
}

/// Watches from `version` on for as long as that is possible; tells why it no longer is.
async fn follow(
    kind: &'static str,
    requests: &Requests,
    candidates: &mut [Resource],
    chosen: usize,
    mut version: String,
    rescoped: &mut Option<Dirty>,
) -> String {
    let health = requests.health();
    let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut drops = 0;
    loop {
        let started = Instant::now();
        match watch_once(kind, requests, &mut candidates[chosen], &mut version, rescoped).await {
            End::InTime => {
                drops = 0;
                pauses.reset();
                if let Some(reason) = became_another(requests, candidates, chosen, &version).await {
                    return reason;
                }
            }
            End::ListAnew(reason) => return reason,
            End::Dropped(reason) => {
                if started.elapsed() >= LASTING {
                    drops = 0;
                    pauses.reset();
                }
                drops += 1;
                debug!(kind, reason, drops, "watch dropped");
                health.watch_interrupted(kind, &reason);
                if drops >= RELIST_AFTER {
                    return reason;
                }
                sleep(pauses.next()).await;
                if let Some(reason) = became_another(requests, candidates, chosen, &version).await {
                    return reason;
                }
            }
        }
    }
}

/// Why a watch cannot simply be opened again after it has ended: there may be a newer server now, or one with older objects.
/// As long as nobody says whether it is newer, it counts as such, since a watch that was opened would hide it for minutes.
async fn became_another(requests: &Requests, candidates: &[Resource], chosen: usize, version: &str) -> Option<String> {
    match readable(requests, &candidates[..chosen]).await {
        Ok(Some(better)) => Some(format!("{better} can be read now")),
        Ok(None) => went_back(requests, candidates[chosen].path, version).await,
        Err(fault) => Some(fault.to_string()),
    }
}

/// The first of `resources` that can be read; a fault if nobody says whether one can.
async fn readable(requests: &Requests, resources: &[Resource]) -> Result<Option<&'static str>, RequestFault> {
    for resource in resources {
        match requests.get(&format!("{}?limit=1", resource.path)).await {
            Ok(_) => return Ok(Some(resource.path)),
            Err(fault) if matches!(fault.code(), Some(401 | 403 | 404)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

/// One object of the newest list; only the version of the list matters.
const NEWEST: &str = "resourceVersion=&limit=1";

/// Whether the server is at an earlier version than the one that was watched from: its objects were restored from a
/// backup. A watch from there would stay silent until it has caught up, and miss all that happens until then.
async fn went_back(requests: &Requests, path: &'static str, watched: &str) -> Option<String> {
    // An empty version asks for the newest that there is.
    let answer = requests.get(&format!("{path}?{NEWEST}")).await.ok()?;
    let now = Page::read(answer).ok()?.version;
    // Versions are to be compared for equality only; where they are no numbers, nothing can be said.
    let (before, after) = (watched.parse::<u64>().ok()?, now.parse::<u64>().ok()?);
    if after >= before {
        return None;
    }
    let reason = format!("the API server went back from version {before} to {after}, as after a restore from a backup");
    warn!(path, "{reason}; everything is looked at anew");
    Some(reason)
}

/// One watch; moves `version` forward with what arrives.
async fn watch_once(
    kind: &'static str,
    requests: &Requests,
    resource: &mut Resource,
    version: &mut String,
    rescoped: &mut Option<Dirty>,
) -> End {
    let lasts = Duration::from_secs_f64(WATCH_SECONDS * (1.0 + 0.5 * crate::jitter::share()));
    let uri = format!(
        "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
        resource.path,
        segment(version),
        lasts.as_secs()
    );
    let request = match Request::get(uri).header(http::header::ACCEPT, "application/json").body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return End::Dropped(error.to_string()),
    };
    let started = Instant::now();
    let client = requests.client();
    let opened = match timeout(requests.timeout(), client.request_events::<Value>(request)).await {
        Ok(opened) => opened.map_err(RequestFault::from),
        Err(_) => Err(RequestFault::Unanswered(format!("no answer within {:?}", requests.timeout()))),
    };
    count_read("watch", opened.as_ref().err());
    requests.health().request_ended(opened.as_ref().err());
    let mut stream = match opened {
        Ok(stream) => pin!(stream),
        Err(fault) => {
            return match fault.code() {
                Some(410) => End::ListAnew("the version is too old".into()),
                Some(404) => End::ListAnew("no longer offered by the API server".into()),
                Some(401 | 403) => End::Dropped(denied("watch", resource.plural, &fault.to_string())),
                _ => End::Dropped(fault.to_string()),
            };
        }
    };
    requests.health().watch_resumed(kind);
    let deadline = started + lasts + WATCH_GRACE;
    loop {
        let next = tokio::select! {
            biased;
            changes = next_of(rescoped) => {
                if let Err(fault) = catch_up(requests, resource, &changes).await {
                    return End::ListAnew(format!("what was left out could not be read: {fault}"));
                }
                continue;
            }
            next = timeout_at(deadline, stream.try_next()) => next,
        };
        let event = match next {
            Err(_) => return End::Dropped("the API server fell silent".into()),
            Ok(Ok(Some(event))) => event,
            // Without this, a server that closes every watch at once would be asked in a tight loop.
            Ok(Ok(None)) if started.elapsed() < Duration::from_secs(1) => {
                return End::Dropped("the watch ended at once".into());
            }
            Ok(Ok(None)) => return End::InTime,
            Ok(Err(kube::Error::Api(status))) => return refused(&status),
            // It is not known which object this was about.
            Ok(Err(kube::Error::SerdeError(error))) => return End::ListAnew(format!("unreadable event: {error}")),
            Ok(Err(error)) => return End::Dropped(RequestFault::from(error).to_string()),
        };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                advance(version, &object);
                resource.intake.apply(object);
            }
            WatchEvent::Deleted(object) => {
                advance(version, &object);
                resource.intake.delete(&object);
            }
            WatchEvent::Bookmark(bookmark) => version.clone_from(&bookmark.metadata.resource_version),
            WatchEvent::Error(status) => return refused(&status),
        }
    }
}

async fn next_of(rescoped: &mut Option<Dirty>) -> BTreeSet<ObjectKey> {
    match rescoped {
        Some(rescoped) => rescoped.next().await,
        None => std::future::pending().await,
    }
}

/// Reads what was left out so far and is needed now. Events wait meanwhile, so that none is older than what is read here.
async fn catch_up(
    requests: &Requests,
    resource: &mut Resource,
    services: &BTreeSet<ObjectKey>,
) -> Result<(), RequestFault> {
    for missing in resource.intake.rescope(services) {
        let page = Page::read(requests.get(&missing.uri(resource.path)).await?)?;
        resource.intake.found(&missing, page.items);
    }
    Ok(())
}

fn refused(status: &kube::core::Status) -> End {
    let reason = format!("{} [HTTP {}]", status.message, status.code);
    if status.code == 410 || status.reason == "Expired" || status.reason == "Gone" {
        End::ListAnew(reason)
    } else {
        End::Dropped(reason)
    }
}

fn advance(version: &mut String, object: &Value) {
    if let Some(newer) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
        newer.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
