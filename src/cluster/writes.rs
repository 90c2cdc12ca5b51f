//! Writes to the API server, and how they fail.

use thiserror::Error;

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

/// Content type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/merge-patch+json`: lists are replaced.
    Merge,
    /// `application/strategic-merge-patch+json`: lists with a merge key are merged.
    Strategic,
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
