//! Asking the API server who somebody is, and what they may read.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};

use super::Cluster;
use super::requests::{Pacing, RequestFault, Requests};
use super::writes::denied;
use crate::config::secret::Secret;
use crate::telemetry::auth::{Judge, Verdict};

/// Whoever waits for a page does not wait longer than this for each of the two answers.
const LONGEST: Duration = Duration::from_secs(5);

const TOKENS: (&str, &str, &str) = ("authentication.k8s.io", "tokenreviews", "TokenReview");
const ACCESS: (&str, &str, &str) = ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview");

impl Judge for Cluster {
    fn judge(self: Arc<Self>, token: Secret, path: String) -> BoxFuture<'static, Result<Verdict, String>> {
        async move { review(&self.inner.requests, &token, &path).await }.boxed()
    }
}

async fn review(requests: &Requests, token: &Secret, path: &str) -> Result<Verdict, String> {
    let status = ask(requests, TOKENS, json!({ "token": token.expose() })).await?;
    let user = &status["user"];
    let Some(name) = user["username"].as_str().filter(|_| status["authenticated"] == true) else {
        return Ok(Verdict::Unknown);
    };
    let mut spec = json!({ "user": name, "nonResourceAttributes": { "path": path, "verb": "get" } });
    for field in ["groups", "uid", "extra"] {
        if !user[field].is_null() {
            spec[field] = user[field].clone();
        }
    }
    let status = ask(requests, ACCESS, spec).await?;
    Ok(if status["allowed"] == true { Verdict::Allowed } else { Verdict::Forbidden(name.to_owned()) })
}

/// The status of a review. Nothing is stored by it, so it needs no permit.
async fn ask(requests: &Requests, of: (&str, &str, &str), spec: Value) -> Result<Value, String> {
    let (group, plural, kind) = of;
    let body = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec });
    let path = format!("/apis/{group}/v1/{plural}");
    let sent = requests.send(Method::POST, &path, Some(("application/json", &body)), LONGEST, Pacing::Immediate).await;
    match sent {
        Ok(mut answer) => Ok(answer["status"].take()),
        Err(fault @ RequestFault::Answered { code: 401 | 403, .. }) => {
            Err(denied("create", plural, &fault.to_string()))
        }
        Err(fault) => Err(fault.to_string()),
    }
}
