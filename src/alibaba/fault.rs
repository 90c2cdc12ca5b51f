//! Everything that can go wrong with a call, in one closed set: controllers never see vendor codes.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fence::NotLeading;

/// How to react. See the variants; each has exactly one reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Flow control; nothing was done. Back off; the rate limit of the action follows.
    Throttled,
    /// The target, or a neighbour, is being changed. Look again in seconds.
    Busy,
    /// Server or network trouble before anything took effect, or on a read, whose answer may be unreadable. Repeat.
    Transient,
    /// A write whose fate is unknown: without an answer, or with one that cannot be read. Read back before anything else.
    Ambiguous,
    /// The object that the call addresses does not exist.
    Gone,
    /// The wanted object, or something in its place, is already there. Read it.
    Exists,
    /// Another object still refers to the target.
    InUse,
    /// A limit of the account or the object is reached.
    Quota,
    /// This zone or vSwitch has no room; another may have.
    Capacity,
    /// The credentials are unusable, or the clock is wrong.
    Credential,
    /// The identity is known but may not do this.
    Denied,
    /// The request cannot succeed until the user changes something.
    Rejected,
    /// The request was malformed, or a list does not end: a defect on one side.
    Bug,
    /// This process may not write (any more); nothing was sent.
    NotLeading,
}

impl FaultKind {
    /// Each of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 14] = {
        use FaultKind::*;
        [
            Throttled, Busy, Transient, Ambiguous, Gone, Exists, InUse, Quota, Capacity, Credential, Denied, Rejected,
            Bug, NotLeading,
        ]
    };

    /// The label of this kind in metrics; the last table of `docs/reference/events.md` says what each means to users.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::Transient => "transient",
            Self::Ambiguous => "ambiguous",
            Self::Gone => "gone",
            Self::Exists => "exists",
            Self::InUse => "in_use",
            Self::Quota => "quota",
            Self::Capacity => "capacity",
            Self::Credential => "credential",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Bug => "bug",
            Self::NotLeading => "not_leading",
        }
    }
}

/// A failed call.
#[derive(Clone, Debug)]
pub struct Fault {
    /// How to react.
    pub kind: FaultKind,
    /// The vendor's name of the action, such as `CreateLoadBalancer`.
    pub action: &'static str,
    /// The vendor's code, empty if there was no answer.
    pub code: String,
    /// The vendor's message, or what happened; free of secrets.
    pub message: String,
    /// The vendor's request id, for support tickets; empty if there was no answer.
    pub request_id: String,
    /// How long to wait before the next try, if the answer or the rate limit says so.
    pub retry_after: Option<Duration>,
}

impl From<NotLeading> for Fault {
    fn from(fault: NotLeading) -> Self {
        Self::new("write", FaultKind::NotLeading, fault.to_string())
    }
}

impl Fault {
    /// A fault that has no answer behind it.
    pub(crate) fn new(action: &'static str, kind: FaultKind, message: impl Into<String>) -> Self {
        let (message, code, request_id) = (message.into(), String::new(), String::new());
        Self { kind, action, code, message, request_id, retry_after: None }
    }

    /// Whether it passes by itself, within seconds.
    #[must_use]
    pub const fn passes(&self) -> bool {
        matches!(self.kind, FaultKind::Busy | FaultKind::Throttled | FaultKind::Exists | FaultKind::NotLeading)
    }

    /// What calls about other objects can fail for in the same way: the action, the kind and the code. `None` if it passes.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        let code = if self.code.is_empty() { String::new() } else { format!(" [{}]", self.code) };
        (!self.passes()).then(|| format!("{}: {}{code}", self.action, self.kind.as_str()))
    }

    /// Whether the call was not sent, to stay within a rate limit: nothing happened.
    #[must_use]
    pub fn held_back(&self) -> bool {
        self.kind == FaultKind::Throttled && self.code.is_empty() && self.request_id.is_empty()
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.message)?;
        match (self.code.as_str(), self.request_id.as_str()) {
            ("", "") => Ok(()),
            (code, "") => write!(f, " [{code}]"),
            ("", id) => write!(f, " [request {id}]"),
            (code, id) => write!(f, " [{code}, request {id}]"),
        }
    }
}
