//! What was asked of the server, for tests that count calls.

use std::collections::BTreeMap;

use serde_json::Value;

use super::request::Request;

/// One request for objects; discovery is not logged.
#[derive(Clone, Debug)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Plural of the resource.
    pub resource: &'static str,
    /// `status`, or empty.
    pub subresource: &'static str,
    /// Empty for cluster scope and for all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    pub user_agent: String,
    pub user: String,
    /// Media type of the body.
    pub content_type: String,
    /// Body of a write, if it was JSON.
    pub body: Option<Value>,
    /// The answer's HTTP status; nothing while it is open, or when the answer never arrived.
    pub status: Option<u16>,
}

impl Call {
    /// Whether it asked for a change, successful or not.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }

    /// `nodes` or `nodes/status`.
    pub fn target(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    calls: Vec<Call>,
    /// How many calls were cleared away, so that the number of an open call stays valid.
    cleared: usize,
}

impl Log {
    pub(super) fn open(&mut self, request: &Request, user: &str, body: Option<Value>) -> usize {
        self.calls.push(Call {
            verb: request.verb,
            resource: request.resource.plural,
            subresource: request.subresource,
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            user_agent: request.user_agent.clone(),
            user: user.to_owned(),
            content_type: request.content_type.clone(),
            body,
            status: None,
        });
        self.cleared + self.calls.len() - 1
    }

    pub(super) fn close(&mut self, number: usize, status: u16) {
        if let Some(call) = number.checked_sub(self.cleared).and_then(|index| self.calls.get_mut(index)) {
            call.status = Some(status);
        }
    }

    pub(super) fn calls(&self) -> &[Call] {
        &self.calls
    }

    pub(super) fn clear(&mut self) {
        self.cleared += self.calls.len();
        self.calls.clear();
    }

    pub(super) fn counts(&self) -> BTreeMap<(&'static str, String), usize> {
        let mut counts = BTreeMap::new();
        for call in &self.calls {
            *counts.entry((call.verb, call.target())).or_default() += 1;
        }
        counts
    }
}
