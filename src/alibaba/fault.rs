//! Everything that can go wrong with a call, in one closed set: controllers never see vendor codes.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fence::NotLeading;

/// How to react; one table has the reactions.
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

    /// Only a caller with valid keys learns about objects, permissions and quotas.
    pub(super) const fn proves_valid_keys(self) -> bool {
        use FaultKind::{Busy, Capacity, Denied, Exists, Gone, InUse, Quota};
        matches!(self, Busy | Gone | Exists | InUse | Quota | Capacity | Denied)
    }

    /// The label of this kind in metrics; the last table of `docs/reference/events.md` says what each means to users.
    pub const fn as_str(self) -> &'static str {
        self.reaction().name
    }

    /// Whether the outcome of a write is unknown: the answer was lost, or cannot be understood.
    pub(crate) const fn has_unknown_outcome(self) -> bool {
        matches!(self, Self::Ambiguous | Self::Bug)
    }

    /// How the program reacts.
    pub(crate) const fn reaction(self) -> Reaction {
        const fn row(name: &'static str, passes: bool, blame: Blame, rest: Rest, retry: Retry) -> Reaction {
            Reaction { name, passes, blame, rest, retry }
        }
        match self {
            Self::Throttled => row("throttled", true, Blame::None, Rest::Dropped, Retry::InTurn),
            Self::Busy => row("busy", true, Blame::None, Rest::Dropped, Retry::Soon),
            Self::Transient => row("transient", false, Blame::None, Rest::DroppedUnlessAnswered, Retry::InSeconds),
            Self::Ambiguous => row("ambiguous", false, Blame::None, Rest::DroppedUnlessAnswered, Retry::Soon),
            Self::Gone => row("gone", false, Blame::One, Rest::Dropped, Retry::Soon),
            Self::Exists => row("exists", true, Blame::One, Rest::Dropped, Retry::Soon),
            Self::InUse => row("in_use", false, Blame::None, Rest::Done, Retry::InSeconds),
            Self::Quota => row("quota", false, Blame::One, Rest::Done, Retry::Late),
            Self::Capacity => row("capacity", false, Blame::All, Rest::Done, Retry::Late),
            Self::Credential => row("credential", false, Blame::All, Rest::Dropped, Retry::Late),
            Self::Denied => row("denied", false, Blame::All, Rest::Done, Retry::Late),
            Self::Rejected => row("rejected", false, Blame::One, Rest::Done, Retry::Late),
            Self::Bug => row("bug", false, Blame::One, Rest::DroppedUnlessAnswered, Retry::Late),
            Self::NotLeading => row("not_leading", true, Blame::None, Rest::Dropped, Retry::Soon),
        }
    }
}

/// How the program reacts to a kind of fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaction {
    name: &'static str,
    /// Whether it passes by itself, within seconds.
    passes: bool,
    pub(crate) blame: Blame,
    pub(crate) rest: Rest,
    pub(crate) retry: Retry,
}

/// What the fault of a call for several objects says about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nothing, or not yet.
    None,
    /// One of them may be the cause.
    One,
    /// All of them are refused.
    All,
}

/// What becomes of the other calls that were planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They would be based on a guess, or would meet the same fault. What is gone was believed to be there: everything else that
    /// is believed may be wrong as well.
    Dropped,
    /// An action that the cloud answers with a failure can be out of order by itself; without an answer, it is the whole API.
    DroppedUnlessAnswered,
    /// They are made.
    Done,
}

/// How soon the call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// When the rate limiter says so, which knows when the action can be called again.
    InTurn,
    Soon,
    InSeconds,
    /// A person must change something first.
    Late,
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
    pub const fn passes(&self) -> bool {
        self.kind.reaction().passes
    }

    /// What calls about other objects can fail for in the same way: the action, the kind and the code. `None` if it passes.
    pub fn cause(&self) -> Option<String> {
        let code = if self.code.is_empty() { String::new() } else { format!(" [{}]", self.code) };
        (!self.passes()).then(|| format!("{}: {}{code}", self.action, self.kind.as_str()))
    }

    /// Whether the cloud answered.
    pub(crate) const fn is_answered(&self) -> bool {
        !self.code.is_empty() || !self.request_id.is_empty()
    }

    /// Whether the call was not sent, to stay within a rate limit: nothing happened.
    pub fn held_back(&self) -> bool {
        self.kind == FaultKind::Throttled && !self.is_answered()
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
