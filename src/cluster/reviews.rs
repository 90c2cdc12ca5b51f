//! Asks the API server who the owner of a token is, and what they may read.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::requests::{Exchange, Requests};
use crate::config::secret::Secret;
use crate::telemetry::auth::Access;

/// The reader of a page does not wait longer than this for each of the two answers.
const LONGEST: Duration = Duration::from_secs(5);

const TOKENS: (&str, &str, &str) = ("authentication.k8s.io", "tokenreviews", "TokenReview");
const ACCESS: (&str, &str, &str) = ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview");

/// Whose token it is, and whether its owner may get the path.
pub(super) async fn review(requests: &Requests, token: &Secret, path: &str) -> Result<Access, String> {
    let status = ask(requests, TOKENS, json!({ "token": token.expose() })).await?;
    let user = &status["user"];
    let Some(name) = user["username"].as_str().filter(|_| status["authenticated"] == true) else {
        return Ok(Access::UnknownToken);
    };
    let mut spec = json!({ "user": name, "nonResourceAttributes": { "path": path, "verb": "get" } });
    for field in ["groups", "uid", "extra"] {
        if !user[field].is_null() {
            spec[field] = user[field].clone();
        }
    }
    let status = ask(requests, ACCESS, spec).await?;
    Ok(if status["allowed"] == true { Access::Allowed } else { Access::Forbidden(name.to_owned()) })
}

/// The status of a review. Nothing is stored by it, so it needs no permit.
async fn ask(requests: &Requests, (group, plural, kind): (&str, &str, &str), spec: Value) -> Result<Value, String> {
    let body = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec });
    let path = format!("/apis/{group}/v1/{plural}");
    let body = Some(("application/json", &body));
    let exchange = Exchange { method: Method::POST, path: &path, body, timeout: LONGEST, rate_limited: false };
    let mut answer: Value = requests.send(exchange).await.map_err(|fault| fault.explain("create", plural))?;
    Ok(answer.get_mut("status").map(Value::take).unwrap_or_default())
}
