//! What happened to an object, and who leads: what people ask, and no controller.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::Cluster;
use super::events::remedy;
use super::faults::WriteFault;
use super::lease::LockKind;
use super::objects::ObjectPath;
use crate::config::checked::LeaderElection;
use crate::plan::inputs::{ObjectKey, ObjectKind};

/// An event that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastEvent {
    /// When it happened last, as the API server has it.
    pub at: String,
    /// Whether it needs attention.
    pub is_warning: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// How often it happened.
    pub count: u64,
    /// What to do, for an event of ours that needs attention.
    pub remedy: Option<&'static str>,
}

/// The replica that leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leader {
    /// Its identity.
    pub holder: String,
    /// The lock: kind, namespace and name.
    pub lock: String,
    /// When it was renewed last, on the clock of the holder.
    pub renewed: String,
    /// Whether the time of the lock has passed on this machine's clock.
    pub is_expired: bool,
}

impl Cluster {
    /// Events about an object that the API server still has, the newest first.
    ///
    /// # Errors
    /// [`WriteFault`]; the controllers need no right to list events, so their service account may have none.
    pub async fn events_about(&self, kind: ObjectKind, key: &ObjectKey) -> Result<Vec<PastEvent>, WriteFault> {
        let namespace = if key.namespace.is_empty() { "default" } else { &key.namespace };
        let is_about = |event: &Value| {
            event["involvedObject"]["kind"] == kind.as_str() && event["involvedObject"]["name"] == *key.name
        };
        let events = self.look_through(ObjectPath { api: "/api/v1", namespace, plural: "events" }, is_about).await?;
        let mut events: Vec<PastEvent> = events.iter().map(past_event).collect();
        events.sort_by(|a, b| b.at.cmp(&a.at));
        Ok(events)
    }

    /// The replica that leads as the locks say; `None` if none does.
    ///
    /// # Errors
    /// [`WriteFault`]
    pub async fn leader(&self, election: &LeaderElection) -> Result<Option<Leader>, WriteFault> {
        let LeaderElection { namespace, name, .. } = election;
        // A ConfigMap counts where no replica holds a Lease.
        for kind in [LockKind::Lease, LockKind::ConfigMap] {
            let Some(object) = self.look_up(kind.collection(namespace), name).await? else { continue };
            let record = kind.read(&object);
            if record.holder.is_empty() {
                continue;
            }
            let ended =
                record.renewed.parse::<Timestamp>().ok().and_then(|renewed| renewed.checked_add(record.duration).ok());
            return Ok(Some(Leader {
                holder: record.holder,
                lock: format!("{} {namespace}/{name}", kind.kind()),
                is_expired: ended.is_some_and(|ended| ended < crate::clock::now()),
                renewed: record.renewed,
            }));
        }
        Ok(None)
    }
}

fn past_event(object: &Value) -> PastEvent {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let at = ["lastTimestamp", "eventTime", "firstTimestamp"].into_iter().map(text).find(|at| !at.is_empty());
    let (reason, is_warning) = (text("reason"), text("type") == "Warning");
    PastEvent {
        at: at.unwrap_or_default(),
        is_warning,
        remedy: remedy(&reason).filter(|_| is_warning),
        reason,
        message: text("message"),
        count: object["count"].as_u64().unwrap_or(1),
    }
}
