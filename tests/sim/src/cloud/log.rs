//! What was called, for assertions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;

/// A call that reached the cloud, or tried to.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it arrived.
    pub time: Timestamp,
    /// When it had taken effect, or was refused.
    pub ended: Timestamp,
    /// `ecs`, `vpc`, `slb`, `nlb`, `sts`, `metadata`, or empty if unknown.
    pub product: &'static str,
    /// Id of the access key that signed it, empty if none did.
    pub caller: String,
    /// The action, or the path in the metadata service.
    pub action: String,
    /// Parameters without those of the protocol, and without secrets.
    pub parameters: BTreeMap<String, String>,
    /// `OK`, or the error code. For a call that took effect but whose answer was spoiled: what the cloud meant to answer.
    pub outcome: String,
    /// Whether it may change something.
    pub write: bool,
    /// Whether it did take effect.
    pub effective: bool,
    /// What went wrong on purpose.
    pub fault: Option<super::Fault>,
    /// Names the call in the answer; empty for the metadata service.
    pub request_id: String,
}

impl Call {
    /// One parameter, empty if it was not sent.
    #[must_use]
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }
}

/// Parameters whose value is a secret.
const SECRETS: &[&str] = &["OIDCToken", "Policy"];

pub(crate) fn without_secrets(mut parameters: BTreeMap<String, String>) -> BTreeMap<String, String> {
    for name in SECRETS {
        if let Some(value) = parameters.get_mut(*name) {
            *value = "***".into();
        }
    }
    parameters
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    calls: Mutex<Vec<Call>>,
    complaints: Mutex<Vec<String>>,
}

impl Log {
    pub(crate) fn push(&self, call: Call) {
        self.calls.lock().push(call);
    }

    pub(crate) fn complain(&self, complaint: String) {
        let mut complaints = self.complaints.lock();
        if !complaints.contains(&complaint) {
            complaints.push(complaint);
        }
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().clone()
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock())
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&[Call]) -> T) -> T {
        look(&self.calls.lock())
    }
}
