//! Refusals: `Status` objects as the real server writes them.

use serde_json::{Value, json};

use super::resources::Resource;

/// A request that the server refuses, with what its `Status` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `Conflict`.
    pub reason: &'static str,
    pub message: String,
    /// `details` of the Status; null if there are none.
    pub details: Value,
}

/// One invalid field of an object, for a Failure with code 422.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) field: String,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn invalid(field: impl Into<String>, value: impl std::fmt::Debug, why: impl std::fmt::Display) -> Self {
        Problem {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value:?}: {why}"),
        }
    }

    pub(super) fn required(field: impl Into<String>, why: &str) -> Self {
        let tail = if why.is_empty() { String::new() } else { format!(": {why}") };
        Problem { reason: "FieldValueRequired", field: field.into(), message: format!("Required value{tail}") }
    }

    pub(super) fn duplicate(field: impl Into<String>, value: impl std::fmt::Display) -> Self {
        Problem { reason: "FieldValueDuplicate", field: field.into(), message: format!("Duplicate value: {value}") }
    }

    pub(super) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Problem { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
    }

    pub(super) fn unsupported(field: impl Into<String>, value: &str, allowed: &[&str]) -> Self {
        let allowed: Vec<_> = allowed.iter().map(|one| format!("{one:?}")).collect();
        Problem {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {value:?}: supported values: {}", allowed.join(", ")),
        }
    }
}

fn of(resource: &Resource, name: &str) -> Value {
    let mut details = json!({ "kind": resource.plural });
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    details
}

impl Failure {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, reason, message: message.into(), details: Value::Null }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Failure {
        let message = format!("{} {name:?} not found", resource.qualified());
        Failure { details: of(resource, name), ..Failure::new(404, "NotFound", message) }
    }

    pub(super) fn no_such_path() -> Failure {
        Failure {
            details: json!({}),
            ..Failure::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    /// A group that nobody serves: refused before anything that writes a Status.
    pub(super) fn no_such_group() -> Failure {
        Failure::new(404, "", "404 page not found\n")
    }

    pub(super) fn already_exists(resource: &Resource, name: &str) -> Failure {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Failure { details: of(resource, name), ..Failure::new(409, "AlreadyExists", message) }
    }

    pub(super) fn conflict(resource: &Resource, name: &str, why: impl std::fmt::Display) -> Failure {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        Failure { details: of(resource, name), ..Failure::new(409, "Conflict", message) }
    }

    pub(super) fn modified(resource: &Resource, name: &str) -> Failure {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Failure::conflict(resource, name, why)
    }

    pub(super) fn invalid(resource: &Resource, name: &str, problems: &[Problem]) -> Failure {
        let listed: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.field, p.message)).collect();
        let listed = if listed.len() == 1 { listed.concat() } else { format!("[{}]", listed.join(", ")) };
        let kind = if resource.group.is_empty() {
            resource.kind.to_owned()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let mut details = json!({
            "name": name,
            "kind": resource.kind,
            "causes": problems
                .iter()
                .map(|p| json!({ "reason": p.reason, "message": p.message, "field": p.field }))
                .collect::<Vec<_>>(),
        });
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        Failure { details, ..Failure::new(422, "Invalid", format!("{kind} {name:?} is invalid: {listed}")) }
    }

    /// The version asked for was compacted away.
    pub(super) fn expired(asked: u64, oldest: u64) -> Failure {
        Failure::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// A continue token whose version was compacted away.
    pub(super) fn continue_expired() -> Failure {
        let message = "The provided continue parameter is too old to display a consistent list result. \
                       You must start a new list without the continue parameter.";
        Failure::new(410, "Expired", message)
    }

    /// The version asked for is in the future.
    pub(super) fn too_large_version(asked: u64, current: u64) -> Failure {
        Failure {
            details: json!({
                "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
                "retryAfterSeconds": 1,
            }),
            ..Failure::new(504, "Timeout", format!("Timeout: Too large resource version: {asked}, current: {current}"))
        }
    }

    pub(super) fn unauthorized() -> Failure {
        Failure::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn unsupported_media_type(given: &str, allowed: &[&str]) -> Failure {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            allowed.join(", ")
        );
        Failure { details: json!({ "given": given }), ..Failure::new(415, "UnsupportedMediaType", message) }
    }

    pub(super) fn method_not_allowed() -> Failure {
        Failure {
            details: json!({}),
            ..Failure::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        }
    }

    /// 429, with the seconds after which to try again.
    pub fn too_many_requests(retry_after_seconds: u32) -> Failure {
        Failure {
            details: json!({ "retryAfterSeconds": retry_after_seconds }),
            ..Failure::new(429, "TooManyRequests", "Too many requests, please try again later.")
        }
    }

    /// 500.
    pub fn internal_error() -> Failure {
        Failure::new(500, "InternalError", "Internal error occurred: etcdserver: leader changed")
    }

    /// 503.
    pub fn unavailable() -> Failure {
        Failure::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    }

    /// 504: the request may or may not have taken effect.
    pub fn timeout() -> Failure {
        Failure::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
    }

    /// 422, for this reason.
    pub fn refused(kind: &str, name: &str, why: &str) -> Failure {
        Failure::new(422, "Invalid", format!("{kind} {name:?} is invalid: {why}"))
    }

    /// 409 as after a concurrent write.
    pub fn stale(resource: &str, name: &str) -> Failure {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {name:?}: the object has been modified; please apply your \
             changes to the latest version and try again"
        );
        Failure { details: json!({ "name": name, "kind": resource }), ..Failure::new(409, "Conflict", message) }
    }

    /// The `Status` object that tells the client.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
