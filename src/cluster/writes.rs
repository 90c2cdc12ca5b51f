//! Writes to the API server, and how they fail.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use thiserror::Error;

use super::requests::{Pacing, RequestFault, Requests, segment};
use crate::fence::Permit;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// Kinds of objects that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// core/v1 Node
    Node,
    /// core/v1 Service
    Service,
    /// core/v1 Pod
    Pod,
}

impl Kind {
    /// The kind as in `kind:` of a manifest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::Pod => "Pod",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Service => "services",
            Self::Pod => "pods",
        }
    }

    pub(super) fn path(self, key: &ObjectKey) -> String {
        let (plural, name) = (self.plural(), segment(&key.name));
        match self {
            Self::Node => format!("/api/v1/{plural}/{name}"),
            Self::Service | Self::Pod => format!("/api/v1/namespaces/{}/{plural}/{name}", segment(&key.namespace)),
        }
    }
}

/// Content type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/merge-patch+json`: lists are replaced.
    Merge,
    /// `application/strategic-merge-patch+json`: lists with a merge key are merged.
    Strategic,
}

impl PatchKind {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// Why a request to the API server failed.
#[derive(Clone, Debug, Error)]
pub enum WriteFault {
    /// The object does not exist (any more).
    #[error("the object does not exist")]
    Gone,
    /// The object changed since it was read, or is another one of the same name.
    #[error("the object has changed since it was read: {0}")]
    Conflict(String),
    /// Missing RBAC permission.
    #[error("not permitted: {0}")]
    Denied(String),
    /// The API server refuses the content.
    #[error("refused by the API server: {0}")]
    Rejected(String),
    /// No answer, or a server error; the write may have taken effect.
    #[error("the API server did not answer: {0}")]
    Unavailable(String),
    /// This process may not write; nothing was sent.
    #[error("this process does not hold the lease")]
    NotLeading,
}

impl WriteFault {
    /// The kind in one word, for metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Conflict(_) => "conflict",
            Self::Denied(_) => "denied",
            Self::Rejected(_) => "rejected",
            Self::Unavailable(_) => "unavailable",
            Self::NotLeading => "not_leading",
        }
    }

    /// Sorts a failure of `verb` on `plural`, such as `patch` on `nodes/status`.
    pub(super) fn sort(fault: RequestFault, verb: &str, plural: &str) -> Self {
        match fault.code() {
            Some(404) => Self::Gone,
            Some(409) => Self::Conflict(fault.to_string()),
            Some(401 | 403) => Self::Denied(denied(verb, plural, &fault.to_string())),
            Some(400 | 413 | 415 | 422) => Self::Rejected(fault.to_string()),
            _ => Self::Unavailable(fault.to_string()),
        }
    }
}

/// What to change in the permissions, and what the API server said.
pub(super) fn denied(verb: &str, plural: &str, message: &str) -> String {
    format!("this program needs the verb {verb} on {plural}: {message}")
}

/// Patches an object or its subresource; gives the object as it is then.
pub(super) async fn patch(
    requests: &Requests,
    permit: &Permit,
    kind: Kind,
    key: &ObjectKey,
    subresource: Option<&'static str>,
    patch: PatchKind,
    body: &Value,
) -> Result<Value, WriteFault> {
    let (mut path, mut plural) = (kind.path(key), kind.plural().to_owned());
    if let Some(subresource) = subresource {
        path = format!("{path}/{subresource}");
        plural = format!("{plural}/{subresource}");
    }
    write(requests, permit, kind, Method::PATCH, &path, (patch.content_type(), body), ("patch", &plural)).await
}

/// Deletes an object, only if it still has this UID.
pub(super) async fn delete(
    requests: &Requests,
    permit: &Permit,
    kind: Kind,
    key: &ObjectKey,
    uid: &str,
) -> Result<(), WriteFault> {
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
    let (path, plural) = (kind.path(key), kind.plural());
    let body = ("application/json", &options);
    write(requests, permit, kind, Method::DELETE, &path, body, ("delete", plural)).await.map(drop)
}

/// One write: never without a permit, never longer than it lasts, always counted.
async fn write(
    requests: &Requests,
    permit: &Permit,
    kind: Kind,
    method: Method,
    path: &str,
    body: (&'static str, &Value),
    (verb, plural): (&str, &str),
) -> Result<Value, WriteFault> {
    let limit = requests.timeout().min(permit.remaining());
    let outcome = if limit.is_zero() {
        Err(WriteFault::NotLeading)
    } else {
        let sent = requests.send(method, path, Some(body), limit, Pacing::Shared).await;
        sent.map_err(|fault| WriteFault::sort(fault, verb, plural))
    };
    metrics::kubernetes_write(kind.as_str(), outcome.as_ref().map_or_else(WriteFault::as_str, |_| "ok"));
    outcome
}

/// Reads one object; `None` if it does not exist.
pub(super) async fn read(requests: &Requests, kind: Kind, key: &ObjectKey) -> Result<Option<Value>, WriteFault> {
    match requests.get(&kind.path(key)).await {
        Ok(object) => Ok(Some(object)),
        Err(fault) if fault.code() == Some(404) => Ok(None),
        Err(fault) => Err(WriteFault::sort(fault, "get", kind.plural())),
    }
}

/// Pods in one page of a list; they are large.
const PODS: u32 = 100;
/// More pages than any namespace has.
const MOST_PAGES: usize = 2000;

/// Lists the pods of a namespace that have all of these labels, and hands each to `take`.
pub(super) async fn list_pods(
    requests: &Requests,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    mut take: impl FnMut(Value) -> Result<(), WriteFault>,
) -> Result<(), WriteFault> {
    let selector = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let path = format!("/api/v1/namespaces/{}/pods", segment(namespace));
    let mut continuation = String::new();
    for _ in 0..MOST_PAGES {
        let mut query = format!("?limit={PODS}&labelSelector={}", segment(&selector));
        if !continuation.is_empty() {
            query = format!("{query}&continue={}", segment(&continuation));
        }
        let list = requests.get(&format!("{path}{query}")).await;
        let mut list = list.map_err(|fault| WriteFault::sort(fault, "list", Kind::Pod.plural()))?;
        if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
            items.into_iter().try_for_each(&mut take)?;
        }
        let next = list.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
        if next.is_empty() {
            return Ok(());
        }
        if next == continuation {
            break;
        }
        next.clone_into(&mut continuation);
    }
    let fault = RequestFault::Unanswered(format!("the list does not end, or has more than {MOST_PAGES} pages"));
    Err(WriteFault::sort(fault, "list", Kind::Pod.plural()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::cluster::Cluster;
    use crate::cluster::fake::{Answer, Asked, cluster};
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
        cluster.patch(&permit, Kind::Service, &key, Some("status"), PatchKind::Strategic, &body).await.unwrap();
        cluster.set_finalizers(&permit, &key, "7", vec!["a/b".into()]).await.unwrap();
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
    async fn failures_are_sorted_by_what_can_be_done_about_them() {
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
            let sent = cluster.patch(&permit, Kind::Node, &key, Some("status"), PatchKind::Merge, &json!({})).await;
            let fault = sent.unwrap_err();
            assert_eq!(fault.as_str(), expected, "{code}");
            assert_eq!(asked.lock().len(), 1, "whoever sent it decides whether to send it again");
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
