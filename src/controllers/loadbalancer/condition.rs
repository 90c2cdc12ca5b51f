//! The condition `LoadBalancerReady` of a Service, for `kubectl wait` and for scripts.

use std::time::Duration;

use serde_json::{Value, json};
use tracing::warn;

use super::prepare::Case;
use super::state::WrittenCondition;
use super::status::{FailedWrite, ServiceWriter, WriteBack};
use crate::clock;
use crate::cluster::{Patch, PatchFormat, WriteFault, without_request_ids};
use crate::plan::inputs::{LOAD_BALANCER_READY, ObjectKind, ServiceView, SyncCondition};
use crate::plan::loadbalancer::cloud::CloudModel;
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::telemetry::alarms::{ObjectReport, SyncState};

/// From 1.24 on, API servers keep conditions of Services: before, the field is unknown, or its feature gate
/// (`MixedProtocolLBService`) is off.
const KNOWS_CONDITIONS: u32 = 24;
/// After this time, a condition that could not be written is written again.
pub(super) const WRITE_AGAIN: Duration = Duration::from_secs(30);
/// The same of one that the API server refused.
const REFUSED_FOR: Duration = Duration::from_secs(300);

/// What the condition says after a reconcile that ended with this, or in sync; `None` if it stays as it is. What passes by itself
/// changes nothing, and what the cloud still carries out nothing once the Service was ready, unless it lasts.
fn said_after(handling: Handling, report: Option<&ObjectReport>, was_ready: bool) -> Option<SyncCondition> {
    let say = |is_true, reason: &str, message| Some(SyncCondition { is_true, reason: reason.to_owned(), message });
    match (handling, report) {
        (Handling::Ensure, None) => say(true, "InSync", "The load balancer is in sync".to_owned()),
        (Handling::Ensure | Handling::Delete, Some(report)) => match report.state {
            SyncState::OutOfSync => say(false, report.reason, without_request_ids(&report.message)),
            SyncState::InProgress if !was_ready || report.quiet_for.is_zero() => {
                say(false, "InProgress", "The cloud still carries out what was asked of it".to_owned())
            }
            SyncState::InProgress | SyncState::Retrying => None,
        },
        _ => None,
    }
}

impl<M: CloudModel> Case<M> {
    /// What the condition says, as far as that is known.
    fn condition(&self) -> Option<&SyncCondition> {
        match &self.state.told.condition {
            WrittenCondition::Nothing => self.service.ready.0.as_ref(),
            WrittenCondition::Unknown => None,
            WrittenCondition::Said(condition) => Some(condition),
        }
    }
}

impl ServiceWriter {
    /// Says what became of the reconcile; gives when to write it again if it could not be written.
    pub(super) async fn write_condition<M: CloudModel>(
        &self,
        case: &mut Case<M>,
        report: Option<&ObjectReport>,
    ) -> Option<Duration> {
        let before = case.condition();
        let was_ready = before.or(case.service.ready.0.as_ref()).is_some_and(|condition| condition.is_true);
        let Some(wanted) = said_after(case.handling, report, was_ready) else {
            // What another controller of this program keeps meanwhile is not known here.
            if !matches!(case.handling, Handling::Ensure | Handling::Delete) {
                case.state.told.condition = WrittenCondition::Nothing;
            }
            return None;
        };
        if before == Some(&wanted) {
            return None;
        }
        let written = self.set_condition(&case.service, before, Some(&wanted)).await;
        case.state.told.condition =
            if written.is_ok() { WrittenCondition::Said(wanted) } else { WrittenCondition::Unknown };
        written.err().map(|fault| if matches!(fault, WriteFault::Rejected(_)) { REFUSED_FOR } else { WRITE_AGAIN })
    }

    /// Takes the condition off a Service that stays and is no longer managed: also one that was written after the finalizer was
    /// removed, because the answer to that write was lost.
    ///
    /// # Errors
    /// That is to be tried again.
    pub(super) async fn remove_condition<M: CloudModel>(&self, case: &Case<M>) -> Result<(), FailedWrite> {
        let service = &case.service;
        let is_left = match case.handling {
            Handling::Delete => !service.deleting,
            Handling::Ignore => {
                !service.is_load_balancer() && !LoadBalancerKind::ALL.iter().any(|it| it.is_managed(service))
            }
            _ => false,
        };
        let has_none = case.state.told.condition == WrittenCondition::Nothing && case.service.ready.0.is_none();
        if !is_left || has_none {
            return Ok(());
        }
        self.set_condition(&case.service, None, None).await.map_err(FailedWrite::status)
    }

    /// Writes the addresses under which the Service is reached, and, if it `is_ready`, the condition in the same write. True if the
    /// addresses were others.
    pub(super) async fn publish<M: CloudModel>(
        &self,
        case: &mut Case<M>,
        published: &WriteBack,
        is_ready: bool,
    ) -> Result<bool, FailedWrite> {
        let ready =
            said_after(case.handling, None, true).filter(|_| is_ready && self.cluster.is_at_least(KNOWS_CONDITIONS));
        let Some(ready) =
            ready.filter(|ready| case.condition() != Some(ready) && !published.is_published(&case.service))
        else {
            return self.set_ingress(&case.service, published, None).await;
        };
        let condition = entry(case.condition(), Some(&ready));
        case.state.told.condition = WrittenCondition::Unknown;
        match self.set_ingress(&case.service, published, Some(condition)).await {
            // The addresses do not wait for a condition that the API server does not take.
            Err(FailedWrite { fault: WriteFault::Rejected(_), .. }) => {
                self.set_ingress(&case.service, published, None).await
            }
            written => {
                if written.is_ok() {
                    case.state.told.condition = WrittenCondition::Said(ready);
                }
                written
            }
        }
    }

    /// Writes the condition, or takes it off; `before` is what it says, if that is known.
    ///
    /// # Errors
    /// That is to be tried again later.
    async fn set_condition(
        &self,
        service: &ServiceView,
        before: Option<&SyncCondition>,
        wanted: Option<&SyncCondition>,
    ) -> Result<(), WriteFault> {
        if !self.cluster.is_at_least(KNOWS_CONDITIONS) {
            return Ok(());
        }
        let body = json!({
            "metadata": { "uid": service.uid },
            "status": { "conditions": [entry(before, wanted)] },
        });
        let (kind, format) = (ObjectKind::Service, PatchFormat::Strategic);
        let patch = Patch { kind, key: &service.key, subresource: Some("status"), format, body: &body };
        match self.send(patch).await {
            Ok(()) | Err(WriteFault::Gone | WriteFault::NotLeading) => Ok(()),
            Err(fault) => {
                warn!(code = "ACCM0320", %fault, "the condition {LOAD_BALANCER_READY} could not be written");
                Err(fault)
            }
        }
    }
}

/// The element of a strategic merge patch.
fn entry(before: Option<&SyncCondition>, wanted: Option<&SyncCondition>) -> Value {
    let Some(SyncCondition { is_true, reason, message }) = wanted else {
        return json!({ "type": LOAD_BALANCER_READY, "$patch": "delete" });
    };
    let status = if *is_true { "True" } else { "False" };
    let mut entry = json!({ "type": LOAD_BALANCER_READY, "status": status, "reason": reason, "message": message });
    if before.is_none_or(|before| before.is_true != *is_true) {
        entry["lastTransitionTime"] = json!(clock::seconds(clock::now()));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::alarms::{Alarms, ObjectTrouble};

    #[test]
    fn what_passes_by_itself_does_not_change_the_condition() {
        let after = |handling, state, was_ready| {
            let alarms = Alarms::default();
            alarms.out_of_sync("test", "a", Some(ObjectTrouble { state, reason: "Why", ..ObjectTrouble::default() }));
            said_after(handling, alarms.object("test", &"a").as_ref(), was_ready)
        };
        let (ensure, remove) = (Handling::Ensure, Handling::Delete);
        for handling in [ensure, remove] {
            assert_eq!(after(handling, SyncState::Retrying, false), None);
            assert_eq!(after(handling, SyncState::InProgress, true), None);
            let said = after(handling, SyncState::OutOfSync, true).expect("it failed");
            assert_eq!((said.is_true, &*said.reason), (false, "Why"));
        }
        assert!(after(ensure, SyncState::InProgress, false).is_some());
        assert_eq!(after(Handling::Ignore, SyncState::OutOfSync, true), None, "it is another's");
        assert_eq!(said_after(Handling::Ignore, None, true), None);
    }
}
