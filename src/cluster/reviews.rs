//! Asks the API server who the owner of a token is and what they may read, and what this process may do.

use std::fmt;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::Cluster;
use super::requests::{Exchange, Requests};
use crate::config::secret::Secret;
use crate::telemetry::auth::{Access, Denial};

/// The reader of a page does not wait longer than this for each of the two answers.
const LONGEST: Duration = Duration::from_secs(5);

const TOKENS: (&str, &str, &str) = ("authentication.k8s.io", "tokenreviews", "TokenReview");
const OWN_ACCESS: (&str, &str, &str) = ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview");
const ACCESS: (&str, &str, &str) = ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview");

/// One verb on one kind of object, or on one of its subresources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Right {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `nodes` or `nodes/status`.
    pub resource: &'static str,
    /// As RBAC spells it.
    pub verb: &'static str,
    /// All namespaces if empty.
    pub namespace: String,
    /// All objects if empty.
    pub name: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb, namespace, name } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group}")?;
        match (namespace.as_str(), name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, "") => write!(f, " in {namespace}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

impl Cluster {
    /// Whether this process has a right, as the API server says.
    ///
    /// # Errors
    /// Why it does not say, for people.
    pub async fn may(&self, right: &Right) -> Result<bool, String> {
        let (resource, subresource) = right.resource.split_once('/').unwrap_or((right.resource, ""));
        let attributes = json!({
            "group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb,
            "namespace": right.namespace, "name": right.name,
        });
        let status = ask(&self.inner.requests, OWN_ACCESS, json!({ "resourceAttributes": attributes })).await?;
        Ok(status["allowed"] == true)
    }
}

/// Whose token it is, and whether its owner may get the path.
pub(super) async fn review(requests: &Requests, token: &Secret, path: &str) -> Result<Access, String> {
    let status = ask(requests, TOKENS, json!({ "token": token.expose() })).await?;
    let user = &status["user"];
    let Some(name) = user["username"].as_str().filter(|_| status["authenticated"] == true) else {
        return Ok(Err(Denial::Unauthorized));
    };
    let mut spec = json!({ "user": name, "nonResourceAttributes": { "path": path, "verb": "get" } });
    for field in ["groups", "uid", "extra"] {
        if !user[field].is_null() {
            spec[field] = user[field].clone();
        }
    }
    let status = ask(requests, ACCESS, spec).await?;
    Ok(if status["allowed"] == true { Ok(()) } else { Err(Denial::Forbidden(name.to_owned())) })
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
