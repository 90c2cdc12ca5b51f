//! Single objects and whole lists: read, patched, deleted.

use http::Method;
use litemap::LiteMap;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::faults::{RequestFault, WriteFault};
use super::requests::{Exchange, Requests, segment};
use super::{Cluster, decode};
use crate::fence::Permit;
use crate::plan::inputs::{ObjectKey, ObjectKind, PodView};
use crate::telemetry::activity::{self, EndedCall};
use crate::telemetry::metrics;

/// Objects in one page of a list: nodes and pods are large, and a page is in memory as a whole.
const PAGE: u32 = 100;
/// More pages than any cluster has; a list that does not end is not a list.
const MAX_PAGES: usize = 2000;

impl ObjectKind {
    /// Where the object with this key is.
    fn collection(self, key: &ObjectKey) -> ObjectPath<'_> {
        ObjectPath { api: "/api/v1", namespace: &key.namespace, plural: self.plural() }
    }
}

/// Content type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFormat {
    /// `application/merge-patch+json`: lists are replaced.
    Merge,
    /// `application/strategic-merge-patch+json`: lists with a merge key are merged.
    Strategic,
}

/// A change of one object. With `metadata.resourceVersion` in its body, it fails on concurrent change.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    /// What the object is.
    pub kind: ObjectKind,
    /// Which one it is.
    pub key: &'a ObjectKey,
    /// Such as `status`.
    pub subresource: Option<&'static str>,
    /// How the body is meant.
    pub format: PatchFormat,
    /// What changes.
    pub body: &'a Value,
}

/// Patches an object or its subresource; gives the object as it is afterwards.
pub(super) async fn patch(requests: &Requests, permit: &Permit, patch: Patch<'_>) -> Result<Value, WriteFault> {
    let Patch { kind, key, subresource, format, body } = patch;
    let suffix = subresource.map(|subresource| format!("/{subresource}")).unwrap_or_default();
    let content_type = match format {
        PatchFormat::Merge => "application/merge-patch+json",
        PatchFormat::Strategic => "application/strategic-merge-patch+json",
    };
    write(requests, permit, Method::PATCH, (kind, key, &suffix), (content_type, body)).await
}

/// Deletes an object, only if it still has this UID.
pub(super) async fn delete(
    requests: &Requests,
    permit: &Permit,
    kind: ObjectKind,
    key: &ObjectKey,
    uid: &str,
) -> Result<(), WriteFault> {
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
    write(requests, permit, Method::DELETE, (kind, key, ""), ("application/json", &options)).await.map(drop)
}

/// One write to an object, or with a suffix to its subresource: never without a permit and never longer than it lasts.
async fn write(
    requests: &Requests,
    permit: &Permit,
    method: Method,
    (kind, key, suffix): (ObjectKind, &ObjectKey, &str),
    body: (&'static str, &Value),
) -> Result<Value, WriteFault> {
    let timeout = requests.timeout().min(permit.remaining());
    if timeout.is_zero() {
        metrics::kubernetes_write(kind.as_str(), WriteFault::NotLeading.as_str());
        return Err(WriteFault::NotLeading);
    }
    let path = kind.collection(key).to_object(&key.name) + suffix;
    let (call, started) = (format!("{method} {path}"), Instant::now());
    let exchange = Exchange { method: method.clone(), path: &path, body: Some(body), timeout, rate_limited: true };
    let sent = requests.send(exchange).await;
    let outcome = match sent.as_ref().map_err(RequestFault::code) {
        Ok(_) => "ok".to_owned(),
        Err(Some(code)) => format!("HTTP {code}"),
        Err(None) => "unanswered".to_owned(),
    };
    let ended = EndedCall { call: &call, writes: true, outcome: &outcome, request_id: "", took: started.elapsed() };
    activity::ended(ended, || {
        let status = sent.as_ref().err().and_then(RequestFault::code);
        let status = status.map(|status| ("http.response.status_code", status.into()));
        let request = [("http.request.method", method.as_str().into()), ("url.path", path.as_str().into())];
        request.into_iter().chain(status).collect()
    });
    let (verb, plural) = (method.as_str().to_lowercase(), kind.plural().to_owned() + suffix);
    let written = sent.map_err(|fault| WriteFault::classify(&fault, &verb, &plural));
    metrics::kubernetes_write(kind.as_str(), written.as_ref().map_or_else(WriteFault::as_str, |_| "ok"));
    written
}

/// Where objects are that are only looked up: neither watched nor written.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPath<'a> {
    /// `/api/v1`, or `/apis/GROUP/VERSION`.
    pub api: &'static str,
    /// Empty where objects have none.
    pub namespace: &'a str,
    /// Such as `configmaps`.
    pub plural: &'static str,
}

impl ObjectPath<'_> {
    pub(super) fn to_path(self) -> String {
        let Self { api, namespace, plural } = self;
        match namespace {
            "" => format!("{api}/{plural}"),
            namespace => format!("{api}/namespaces/{}/{plural}", segment(namespace)),
        }
    }

    pub(super) fn to_object(self, name: &str) -> String {
        format!("{}/{}", self.to_path(), segment(name))
    }
}

impl Cluster {
    /// Reads an object that is neither watched nor written, as it is; `None` if it does not exist, or its kind.
    ///
    /// # Errors
    /// [`WriteFault`]
    pub async fn look_up(&self, path: ObjectPath<'_>, name: &str) -> Result<Option<Value>, WriteFault> {
        match self.inner.requests.get(&path.to_object(name)).await {
            Ok(object) => Ok(Some(object)),
            Err(fault) if fault.code() == Some(404) => Ok(None),
            Err(fault) => Err(WriteFault::classify(&fault, "get", path.plural)),
        }
    }

    /// Reads one object by `decode`; `None` if it does not exist.
    pub(super) async fn read<T>(
        &self,
        kind: ObjectKind,
        key: &ObjectKey,
        decode: fn(Value) -> Result<T, serde_json::Error>,
    ) -> Result<Option<T>, WriteFault> {
        let found = self.look_up(kind.collection(key), &key.name).await?;
        found.map(decode).transpose().map_err(|error| WriteFault::unreadable(&error))
    }

    /// Lists such objects page by page, and gives those that `keep` wants; none if their kind does not exist.
    ///
    /// # Errors
    /// [`WriteFault`]
    pub async fn look_through(
        &self,
        path: ObjectPath<'_>,
        keep: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, WriteFault> {
        let keep = |object| keep(&object).then_some(object);
        match collect(&self.inner.requests, &path.to_path(), "", keep).await {
            Err(fault) if fault.code() == Some(404) => Ok(Vec::new()),
            kept => kept.map_err(|fault| WriteFault::classify(&fault, "list", path.plural)),
        }
    }

    /// Reads the pods of a namespace that have all of these labels, page by page, keeping only what decides.
    ///
    /// # Errors
    /// [`WriteFault`], also for a pod that cannot be decoded.
    pub async fn list_pods(
        &self,
        namespace: &str,
        labels: &LiteMap<String, String>,
    ) -> Result<Vec<PodView>, WriteFault> {
        let selector = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let path = format!("/api/v1/namespaces/{}/pods", segment(namespace));
        let query = format!("labelSelector={}&", segment(&selector));
        let pods = collect(&self.inner.requests, &path, &query, |object| Some(decode::pod(object))).await;
        let pods = pods.map_err(|fault| WriteFault::classify(&fault, "list", ObjectKind::Pod.plural()))?;
        pods.into_iter().collect::<Result<_, _>>().map_err(|error| WriteFault::unreadable(&error))
    }
}

/// One page of a list. Strict, because an answer that is no list must not look like an empty one.
#[derive(Deserialize)]
struct ListPage {
    metadata: PageMetadata,
    #[serde(deserialize_with = "null_is_empty")]
    items: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    continuation: String,
}

/// Go writes an empty list as null.
fn null_is_empty<'de, D: Deserializer<'de>>(items: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(items)?.unwrap_or_default())
}

/// What a list brings to its reader.
pub(super) enum Listed {
    /// The list starts, or starts again: what came before does not count.
    Start,
    /// One object.
    Object(Value),
}

/// Lists a collection page by page, each object to `take`; gives the resourceVersion of the list. `query` may select.
pub(super) async fn list(
    requests: &Requests,
    path: &str,
    query: &str,
    mut take: impl FnMut(Listed),
) -> Result<String, RequestFault> {
    let mut page_query = format!("limit={PAGE}");
    let mut previous = String::new();
    take(Listed::Start);
    for _ in 0..MAX_PAGES {
        let answer = requests.get::<ListPage>(&format!("{path}?{query}{page_query}")).await;
        let ListPage { metadata: PageMetadata { resource_version, continuation }, items } = match answer {
            // The list took so long that its resourceVersion is gone: once more, in one piece.
            Err(fault) if fault.code() == Some(410) && !previous.is_empty() => {
                page_query.clear();
                previous.clear();
                take(Listed::Start);
                continue;
            }
            page => page?,
        };
        if resource_version.is_empty() {
            return Err(RequestFault::Unanswered("the answer to a list has no resourceVersion".into()));
        }
        items.into_iter().for_each(|object| take(Listed::Object(object)));
        if continuation.is_empty() {
            return Ok(resource_version);
        }
        // A page that names itself as the next one would be read for ever.
        if continuation == previous {
            break;
        }
        page_query = format!("limit={PAGE}&continue={}", segment(&continuation));
        previous = continuation;
    }
    take(Listed::Start);
    Err(RequestFault::Unanswered(format!("the list does not end, or has more than {MAX_PAGES} pages")))
}

/// Lists a collection in the same way, and gives what `keep` makes of its objects.
pub(super) async fn collect<T>(
    requests: &Requests,
    path: &str,
    query: &str,
    keep: impl Fn(Value) -> Option<T>,
) -> Result<Vec<T>, RequestFault> {
    let mut kept = Vec::new();
    let take = |listed| match listed {
        Listed::Start => kept.clear(),
        Listed::Object(object) => kept.extend(keep(object)),
    };
    list(requests, path, query, take).await?;
    Ok(kept)
}

/// The resourceVersion of the newest list, of which one object at most is read.
pub(super) async fn newest_version(requests: &Requests, path: &str) -> Result<String, RequestFault> {
    let page: ListPage = requests.get(&format!("{path}?{NEWEST}")).await?;
    Ok(page.metadata.resource_version)
}

/// An empty version asks for the newest that there is.
pub(super) const NEWEST: &str = "resourceVersion=&limit=1";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::cluster::tests::fake::{Answer, Asked, cluster};
    use crate::fence::{Fence, Keeper, fence};

    fn recording(answer: impl Fn() -> Answer + Send + Sync + 'static) -> (Cluster, Arc<Mutex<Vec<Asked>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = asked.clone();
        let cluster = cluster(move |request| {
            recorded.lock().push(request);
            answer()
        });
        (cluster, asked)
    }

    fn leading(seconds: u64) -> (Keeper, Fence) {
        let (keeper, fence) = fence();
        keeper.lead_until(Instant::now() + Duration::from_secs(seconds));
        (keeper, fence)
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_goes_to_its_object_in_its_form() {
        let (cluster, asked) = recording(|| Answer::Json(200, json!({})));
        let (_keeper, fence) = leading(60);
        let permit = fence.permit(Duration::ZERO).unwrap();
        let key = ObjectKey::new("shop", "web");
        let body = json!({ "status": {} });
        let change = Patch {
            kind: ObjectKind::Service,
            key: &key,
            subresource: Some("status"),
            format: PatchFormat::Strategic,
            body: &body,
        };
        cluster.patch(&permit, change).await.unwrap();
        let body = json!({ "metadata": { "finalizers": ["a/b"], "resourceVersion": "7" } });
        let whole = Patch { subresource: None, format: PatchFormat::Merge, body: &body, ..change };
        cluster.patch(&permit, whole).await.unwrap();
        cluster.delete_node(&permit, "n1", "uid-1").await.unwrap();
        let asked = asked.lock();
        let summary: Vec<_> = asked
            .iter()
            .map(|asked| format!("{} {} {} {}", asked.method, asked.path, asked.content_type, asked.body))
            .collect();
        assert_eq!(
            summary,
            [
                r#"PATCH /api/v1/namespaces/shop/services/web/status application/strategic-merge-patch+json {"status":{}}"#,
                r#"PATCH /api/v1/namespaces/shop/services/web application/merge-patch+json {"metadata":{"finalizers":["a/b"],"resourceVersion":"7"}}"#,
                r#"DELETE /api/v1/nodes/n1 application/json {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"uid-1"}}"#,
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_once_the_permit_has_run_out() {
        let (cluster, asked) = recording(|| Answer::Json(200, json!({})));
        let (_keeper, fence) = leading(10);
        let permit = fence.permit(Duration::ZERO).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        let fault = cluster.delete_node(&permit, "n1", "uid").await.unwrap_err();
        assert!(matches!(fault, WriteFault::NotLeading), "{fault}");
        assert!(asked.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_ends_with_its_permit_and_a_read_with_the_timeout() {
        let (cluster, _) = recording(|| Answer::Silence);
        let (_keeper, fence) = leading(2);
        let permit = fence.permit(Duration::ZERO).unwrap();
        let start = Instant::now();
        let fault = cluster.delete_node(&permit, "n1", "uid").await.unwrap_err();
        assert!(matches!(fault, WriteFault::Unavailable(_)), "{fault}");
        assert_eq!(start.elapsed().as_secs(), 2);
        let start = Instant::now();
        let fault = cluster.read_node("n1").await.unwrap_err();
        assert!(fault.to_string().contains("no answer within 5s"), "{fault}");
        assert_eq!(start.elapsed().as_secs(), 5);
        assert!(!cluster.status().reachable);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_classified_by_what_can_be_done_about_them() {
        for (code, expected) in [
            (404, "gone"),
            (409, "conflict"),
            (401, "denied"),
            (403, "denied"),
            (400, "rejected"),
            (413, "rejected"),
            (415, "rejected"),
            (422, "rejected"),
            (429, "unavailable"),
            (500, "unavailable"),
            (503, "unavailable"),
        ] {
            let (cluster, asked) = recording(move || Answer::error(code, "said the server"));
            let (_keeper, fence) = leading(60);
            let permit = fence.permit(Duration::ZERO).unwrap();
            let key = ObjectKey::cluster("n1");
            let (kind, format, body) = (ObjectKind::Node, PatchFormat::Merge, &json!({}));
            let change = Patch { kind, key: &key, subresource: Some("status"), format, body };
            let sent = cluster.patch(&permit, change).await;
            let fault = sent.unwrap_err();
            assert_eq!(fault.as_str(), expected, "{code}");
            assert_eq!(asked.lock().len(), 1, "the sender decides whether to retry");
            if expected == "denied" {
                let text = fault.to_string();
                assert!(text.contains("verb patch on nodes/status") && text.contains("said the server"), "{text}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_object_reads_as_none() {
        let (absent, _) = recording(|| Answer::error(404, "not found"));
        assert!(absent.read_service(&ObjectKey::new("shop", "web")).await.unwrap().is_none());
        let (present, _) = recording(|| Answer::Json(200, json!({ "metadata": { "name": "n1", "uid": "u" } })));
        assert_eq!(present.read_node("n1").await.unwrap().unwrap().uid, "u");
    }
}
