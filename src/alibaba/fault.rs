//! Everything that can go wrong with a call, in one closed set: controllers never see vendor codes.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::fence::NotLeading;

/// How to react. See the variants; each has exactly one reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
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
    pub(crate) fn all() -> [Self; OUTCOMES.len()] {
        OUTCOMES.map(|(kind, _)| kind)
    }

    /// The label of this kind in metrics.
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

/// What each kind means, what the program does about it, and what its user can do.
const OUTCOMES: [(FaultKind, [&str; 3]); 14] = [
    (
        FaultKind::Throttled,
        [
            "too many calls; nothing was changed",
            "lowers its rate for this action, and retries",
            "[The cloud throttles](troubleshooting.md#the-cloud-throttles)",
        ],
    ),
    (
        FaultKind::Busy,
        ["the object, or one that belongs to it, is being changed", "retries within seconds", "nothing to do"],
    ),
    (
        FaultKind::Transient,
        [
            "an error of the network or the server, or an answer that cannot be read; nothing was changed",
            "retries",
            "if it lasts: [The cloud does not answer](troubleshooting.md#the-cloud-does-not-answer)",
        ],
    ),
    (
        FaultKind::Ambiguous,
        [
            "a write without an answer that can be read; it may have taken effect",
            "reads before it writes again",
            "if it lasts: [The cloud does not answer](troubleshooting.md#the-cloud-does-not-answer)",
        ],
    ),
    (FaultKind::Gone, ["the object does not exist", "reads again before it relies on that", "nothing to do"]),
    (
        FaultKind::Exists,
        [
            "the object, or another one in its place, exists already",
            "reads it",
            "if an event names a conflict: resolve it",
        ],
    ),
    (
        FaultKind::InUse,
        ["another object refers to the one that should be deleted", "keeps it, and retries", "remove the reference"],
    ),
    (
        FaultKind::Quota,
        [
            "a limit of the account or of the object is reached",
            "retries, with a longer backoff",
            "raise the quota, or delete what is not used",
        ],
    ),
    (
        FaultKind::Capacity,
        [
            "the zone or vSwitch has no room",
            "tries another one, unless the annotations state it",
            "choose another zone or vSwitch",
        ],
    ),
    (
        FaultKind::Credential,
        [
            "the credentials are not accepted, or the clock is wrong",
            "retries, with a longer backoff",
            "[Credentials fail](troubleshooting.md#credentials-fail)",
        ],
    ),
    (
        FaultKind::Denied,
        [
            "the identity is known and may not call this action",
            "retries, with a longer backoff; steps that do not need it continue",
            "[Credentials fail](troubleshooting.md#credentials-fail)",
        ],
    ),
    (
        FaultKind::Rejected,
        [
            "the call cannot succeed with these settings",
            "retries, with a longer backoff",
            "correct what the event names",
        ],
    ),
    (
        FaultKind::Bug,
        [
            "the request was malformed, or a list does not end",
            "retries, with a longer backoff",
            "please report it, with code and request id",
        ],
    ),
    (
        FaultKind::NotLeading,
        ["this replica no longer leads; nothing was sent", "the new leader continues", "nothing to do"],
    ),
];

/// The documentation of the outcomes of calls: the last table of `docs/events.md`.
#[must_use]
pub fn outcomes() -> String {
    let mut section = "\n## Outcomes of cloud calls\n\nLogs, `/readyz` and the label `outcome` of `alicloud_ccm_cloud_calls_total` name the outcome of a call. \
                       The vendor's code and request id are beside it in the log and in events.\n\n| Outcome | Meaning | What the program does | What \
                       to do |\n|---|---|---|---|\n| `ok` | the call succeeded | | |\n"
        .to_owned();
    for (kind, [meaning, reaction, remedy]) in OUTCOMES {
        let _ = writeln!(section, "| `{}` | {meaning} | {reaction} | {remedy} |", kind.as_str());
    }
    section
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
