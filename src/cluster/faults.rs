//! How requests to the API server fail.

use serde_json::Value;
use thiserror::Error;

/// Longest message of a failure, in bytes. Error pages of proxies can be long; the start says enough.
const MESSAGE_BYTES: usize = 512;

/// Other clients accept such a certificate, so that the reason would not be looked for there.
const CA_AS_SERVER_CERTIFICATE: &str = "; the API server presents the certificate of an authority (basicConstraints CA:TRUE) as \
    its own, which is not accepted: issue a server certificate (CA:FALSE) for it, signed by that authority";

/// Why a request has no result.
#[derive(Clone, Debug, Error)]
pub(super) enum RequestFault {
    /// The API server answered with an error.
    #[error("{message} [HTTP {code}]")]
    Answered { code: u16, message: String },
    /// No readable answer arrived; the request may have taken effect.
    #[error("{0}")]
    Unanswered(String),
}

impl RequestFault {
    /// The fault behind an answer with an error status: a `Status` object, or any text.
    pub(super) fn answered(code: u16, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = String::from_utf8_lossy(body);
        let message = truncate(status["message"].as_str().unwrap_or(&text), MESSAGE_BYTES).to_owned();
        Self::Answered { code, message }
    }

    pub(super) fn unanswered(error: &(dyn std::error::Error + 'static)) -> Self {
        let text = with_causes(error);
        // The name that webpki gives it; no type of it can be named here.
        let hint = if text.contains("CaUsedAsEndEntity") { CA_AS_SERVER_CERTIFICATE } else { "" };
        Self::Unanswered(text + hint)
    }

    /// The HTTP status, if there was an answer.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Answered { code, .. } => Some(*code),
            Self::Unanswered(_) => None,
        }
    }

    /// Whether the API server refused the request for a missing permission or unknown credentials.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// Whether nothing is made in the namespace any more because it is being deleted, which comes with the code of a missing
    /// permission.
    pub(super) fn is_of_leaving_namespace(&self) -> bool {
        matches!(self, Self::Answered { code: 403, message } if message.contains("because it is being terminated"))
    }

    /// The text for a failed `verb` on `plural`; of a refusal it names the missing permission.
    pub(super) fn explain(&self, verb: &str, plural: &str) -> String {
        if self.is_denied() && !self.is_of_leaving_namespace() {
            format!("this program needs the verb {verb} on {plural}: {self}")
        } else {
            self.to_string()
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
    /// This process may not write; the request was not sent.
    #[error("this process does not hold the lease")]
    NotLeading,
}

impl WriteFault {
    /// The kind in one word, for metrics and logs.
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

    /// Whether it passes by itself, within seconds.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::NotLeading)
    }

    /// What writes to other objects can fail for in the same way; `None` if it is about this one alone. `what` are objects of
    /// this kind, such as `nodes`.
    pub fn cause(&self, what: &str) -> Option<String> {
        let is_shared = matches!(self, Self::Denied(_) | Self::Unavailable(_));
        is_shared.then(|| format!("writes to {what}: {}", self.as_str()))
    }

    /// Classifies a failure of `verb` on `plural`, such as `patch` on `nodes/status`.
    pub(super) fn classify(fault: &RequestFault, verb: &str, plural: &str) -> Self {
        let text = fault.explain(verb, plural);
        match fault.code() {
            Some(404) => Self::Gone,
            Some(409) => Self::Conflict(text),
            Some(401 | 403) => Self::Denied(text),
            Some(400 | 413 | 415 | 422) => Self::Rejected(text),
            _ => Self::Unavailable(text),
        }
    }

    pub(super) fn unreadable(error: &serde_json::Error) -> Self {
        Self::Unavailable(format!("the object cannot be read: {error}"))
    }
}

/// An error with its causes, since the outermost text is often only "client error".
pub(super) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    truncate(&text, MESSAGE_BYTES).to_owned()
}

/// At most `bytes` of the text, ended between two characters.
pub(crate) fn truncate(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
