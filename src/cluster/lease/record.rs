//! Who holds a lock, as it is written, and what follows from it. Pure: time comes in as arguments.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::objects::ObjectPath;

/// The kind of object that a record is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum LockKind {
    /// `coordination.k8s.io/v1` Lease
    Lease,
    /// An annotation on a ConfigMap, for API servers that have no leases (before 1.14).
    ConfigMap,
    /// The same annotation on an Endpoints object: what the official controller locked up to v1.9.3.
    Endpoints,
}

/// No lock is waited for longer, whatever is written in it: the longest `leader_election.lease_duration`.
const LONGEST: Duration = Duration::from_secs(3600);
/// The annotation of client-go's resource locks.
const ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// The holder of a deleted lock.
const UNKNOWN: &str = "an unknown replica";

/// What is written about the holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cluster) struct LeaderRecord {
    /// Empty if the lock is free.
    pub(in crate::cluster) holder: String,
    /// How long after the last observed change others must wait.
    pub(in crate::cluster) duration: Duration,
    /// Only for people, since clocks differ.
    pub(super) acquired: String,
    /// Only for people, and to see that the holder is alive.
    pub(in crate::cluster) renewed: String,
    /// How often the holder changed.
    pub(super) transitions: u64,
}

/// A record, and when this process first saw it like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedRecord {
    pub(super) record: LeaderRecord,
    pub(super) since: Instant,
}

impl ObservedRecord {
    /// After the record has been read again: one that did not change keeps its age.
    pub(super) fn update(before: Option<Self>, record: LeaderRecord, now: Instant) -> Self {
        match before {
            Some(before) if before.record == record => before,
            _ => Self { record, since: now },
        }
    }

    /// How long others must still wait.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.record.duration.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// The record after a process found the lock deleted. An unknown replica may lead for a full lease from now on, so that
    /// other processes wait. Only the current `leader` may create the lock at once: a holder of an earlier term proves nothing.
    pub(super) fn deleted(self, leader: Option<&str>, now: Instant) -> Self {
        let LeaderRecord { holder, duration, transitions, .. } = &self.record;
        if holder.is_empty() || leader == Some(holder.as_str()) {
            return self;
        }
        let record = LeaderRecord {
            holder: UNKNOWN.to_owned(),
            duration: *duration,
            transitions: *transitions,
            ..LeaderRecord::default()
        };
        Self::update(Some(self), record, now)
    }

    /// The record after a call failed. While this process saw nothing, another replica can have taken a deleted lock, which was
    /// deleted again: the wait begins anew.
    pub(super) fn unseen(self, now: Instant) -> Self {
        if self.record.holder == UNKNOWN { Self { since: now, ..self } } else { self }
    }
}

/// What a replica does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockAction {
    /// The lock does not exist yet.
    Create,
    /// This process holds it.
    Renew,
    /// It is free, or its holder has not renewed it for too long.
    TakeOver,
    /// Another holds it.
    Wait,
}

/// The rules of client-go: what counts is the time since this process saw the record change, never the times written
/// in it, because clocks of machines differ.
pub(super) fn decide(observation: Option<&ObservedRecord>, now: Instant, identity: &str) -> LockAction {
    let Some(observed) = observation else { return LockAction::Create };
    if observed.record.holder == identity {
        LockAction::Renew
    } else if observed.record.holder.is_empty() || observed.left(now).is_zero() {
        LockAction::TakeOver
    } else {
        LockAction::Wait
    }
}

impl LeaderRecord {
    /// The record after `action` by `identity`.
    pub(super) fn held(before: &Self, action: LockAction, identity: &str, duration: Duration, now: Timestamp) -> Self {
        let written_now = micros(now);
        Self {
            holder: identity.to_owned(),
            // Whole seconds are written; rounding up keeps others away long enough.
            duration: Duration::from_secs(duration.as_secs() + u64::from(duration.subsec_nanos() > 0)),
            acquired: if action == LockAction::Renew { before.acquired.clone() } else { written_now.clone() },
            renewed: written_now,
            transitions: before.transitions + u64::from(action == LockAction::TakeOver),
        }
    }

    /// The record after its holder has released the lock.
    pub(super) fn released(before: &Self, now: Timestamp) -> Self {
        Self {
            holder: String::new(),
            duration: Duration::from_secs(1),
            acquired: micros(now),
            renewed: micros(now),
            transitions: before.transitions,
        }
    }
}

fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

impl LockKind {
    pub(in crate::cluster) const fn kind(self) -> &'static str {
        match self {
            Self::Lease => "Lease",
            Self::ConfigMap => "ConfigMap",
            Self::Endpoints => "Endpoints",
        }
    }

    pub(in crate::cluster) const fn plural(self) -> &'static str {
        match self {
            Self::Lease => "leases.coordination.k8s.io",
            Self::ConfigMap => "configmaps",
            Self::Endpoints => "endpoints",
        }
    }

    /// The collection in a namespace.
    pub(in crate::cluster) const fn collection(self, namespace: &str) -> ObjectPath<'_> {
        match self {
            Self::Lease => ObjectPath { api: "/apis/coordination.k8s.io/v1", namespace, plural: "leases" },
            Self::ConfigMap | Self::Endpoints => ObjectPath { api: "/api/v1", namespace, plural: self.plural() },
        }
    }

    /// An object without a record.
    pub(super) fn empty(self, namespace: &str, name: &str) -> Value {
        let version = match self {
            Self::Lease => "coordination.k8s.io/v1",
            Self::ConfigMap | Self::Endpoints => "v1",
        };
        json!({ "apiVersion": version, "kind": self.kind(), "metadata": { "name": name, "namespace": namespace } })
    }

    /// The record in an object; an empty one, which is free, where there is none or it makes no sense.
    pub(in crate::cluster) fn read(self, object: &Value) -> LeaderRecord {
        let parsed;
        let (fields, transitions) = match self {
            Self::Lease => (&object["spec"], "leaseTransitions"),
            Self::ConfigMap | Self::Endpoints => {
                let text = object["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
                parsed = serde_json::from_str(text).unwrap_or(Value::Null);
                (&parsed, "leaderTransitions")
            }
        };
        let text = |field: &str| fields[field].as_str().unwrap_or_default().to_owned();
        LeaderRecord {
            holder: text("holderIdentity"),
            duration: Duration::from_secs(fields["leaseDurationSeconds"].as_u64().unwrap_or_default()).min(LONGEST),
            acquired: text("acquireTime"),
            renewed: text("renewTime"),
            transitions: fields[transitions].as_u64().unwrap_or_default(),
        }
    }

    /// Puts the record into an object, leaving all else as it is.
    pub(super) fn write(self, object: &mut Value, record: &LeaderRecord) {
        let mut fields = json!({
            "leaseDurationSeconds": record.duration.as_secs(),
            "acquireTime": record.acquired,
            "renewTime": record.renewed,
        });
        match self {
            Self::Lease => {
                // A present but empty holder does not pass validation.
                fields["holderIdentity"] = if record.holder.is_empty() { Value::Null } else { json!(record.holder) };
                fields["leaseTransitions"] = json!(record.transitions);
                if !object["spec"].is_object() {
                    object["spec"] = json!({});
                }
                for (field, value) in fields.as_object().into_iter().flatten() {
                    object["spec"][field] = value.clone();
                }
            }
            Self::ConfigMap | Self::Endpoints => {
                fields["holderIdentity"] = json!(record.holder);
                fields["leaderTransitions"] = json!(record.transitions);
                if !object["metadata"]["annotations"].is_object() {
                    object["metadata"]["annotations"] = json!({});
                }
                object["metadata"]["annotations"][ANNOTATION] = json!(fields.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str, renewed: &str) -> LeaderRecord {
        LeaderRecord {
            holder: holder.into(),
            duration: Duration::from_secs(15),
            renewed: renewed.into(),
            ..LeaderRecord::default()
        }
    }

    fn seen(holder: &str, since: Instant) -> ObservedRecord {
        ObservedRecord { record: record(holder, "t"), since }
    }

    #[test]
    fn a_lock_is_taken_only_when_it_is_free_or_silent_for_its_whole_duration() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let other = seen("other", start);
        for (observation, now, expected) in [
            (None, after(0), LockAction::Create),
            (Some(&other), after(0), LockAction::Wait),
            (Some(&other), after(14), LockAction::Wait),
            (Some(&other), after(15), LockAction::TakeOver),
            (Some(&seen("", start)), after(0), LockAction::TakeOver),
            (Some(&seen("me", start)), after(100), LockAction::Renew),
        ] {
            assert_eq!(decide(observation, now, "me"), expected, "{observation:?}");
        }
    }

    #[test]
    fn every_renewal_that_is_seen_restarts_the_wait_and_written_times_do_not_count() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let first = ObservedRecord::update(None, record("other", "1999"), after(0));
        let unchanged = ObservedRecord::update(Some(first.clone()), record("other", "1999"), after(14));
        assert_eq!(unchanged.since, after(0));
        let renewed = ObservedRecord::update(Some(first), record("other", "2000"), after(14));
        assert_eq!(decide(Some(&renewed), after(28), "me"), LockAction::Wait);
        assert_eq!(decide(Some(&renewed), after(29), "me"), LockAction::TakeOver);
    }

    #[test]
    fn both_kinds_of_lock_keep_what_else_is_in_the_object() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        for lock in [LockKind::Lease, LockKind::ConfigMap, LockKind::Endpoints] {
            let mut object = lock.empty("kube-system", "ccm");
            object["metadata"]["labels"] = json!({ "a": "b" });
            let held = LeaderRecord::held(
                &LeaderRecord::default(),
                LockAction::TakeOver,
                "me",
                Duration::from_millis(14_500),
                now,
            );
            lock.write(&mut object, &held);
            assert_eq!(lock.read(&object), held);
            assert_eq!(held.duration, Duration::from_secs(15));
            assert_eq!(held.transitions, 1);
            assert_eq!(held.renewed, "2026-01-02T03:04:05.678000Z");
            let renewed =
                LeaderRecord::held(&held, LockAction::Renew, "me", held.duration, now + Duration::from_secs(2));
            assert_eq!((renewed.acquired, renewed.transitions), (held.acquired.clone(), 1));
            let released = LeaderRecord::released(&held, now);
            lock.write(&mut object, &released);
            assert_eq!(lock.read(&object), released);
            assert_eq!(object["metadata"]["labels"]["a"], "b");
        }
    }

    #[test]
    fn a_released_lease_has_no_holder_rather_than_an_empty_one() {
        let mut object = LockKind::Lease.empty("kube-system", "ccm");
        LockKind::Lease.write(&mut object, &LeaderRecord::released(&LeaderRecord::default(), Timestamp::UNIX_EPOCH));
        assert!(object["spec"]["holderIdentity"].is_null());
        assert_eq!(object["spec"]["leaseDurationSeconds"], 1);
    }

    #[test]
    fn a_record_that_makes_no_sense_can_be_taken() {
        let mut object = LockKind::ConfigMap.empty("kube-system", "ccm");
        object["metadata"]["annotations"] = json!({ ANNOTATION: "nonsense" });
        let observation = ObservedRecord { record: LockKind::ConfigMap.read(&object), since: Instant::now() };
        assert_eq!(decide(Some(&observation), Instant::now(), "me"), LockAction::TakeOver);
    }
}
