//! One replica in one election.

use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::super::events::{Events, Regarding};
use super::super::faults::RequestFault;
use super::super::requests::{Exchange, Requests};
use super::super::status::ElectionStatus;
use super::record::{LeaderRecord, LockAction, LockKind, ObservedRecord, decide};
use crate::clock::suspended;
use crate::config::checked::LeaderElection;
use crate::config::file::ResourceLock;
use crate::fence::Keeper;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// This part of the lease duration is never used: one second of the usual fifteen.
const UNUSED_PART: u32 = 15;
/// Longest time between reads by a standby, before jitter, as long as reads succeed: a released lock is taken within a second,
/// an expired one not long after.
const STANDBY_PERIOD: Duration = Duration::from_millis(500);
/// Longest time that releasing the locks may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);
/// While nothing changes, how often a failure is logged.
const REMINDER: Duration = Duration::from_secs(30);
/// How often the API server is asked whether it offers leases by now.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(20);
/// Leases are never given up for an older lock while the process runs.
const NO_LEASES: &str = "the API server that answers offers no leases, as another one did before";
/// What events about the election name as their source.
pub(super) const COMPONENT: &str = "alicloud-ccm";

/// When a write was sent, and how long the machine had been suspended until then.
type Sent = (Instant, Duration);

/// A lock that a leader holds, as it was last read or written.
struct LockState {
    kind: LockKind,
    /// `None` if it must be read before the next write.
    object: Option<Value>,
    observed: Option<ObservedRecord>,
}

impl LockState {
    fn observe(&mut self, object: Value) {
        let record = self.kind.read(&object);
        self.observed = Some(ObservedRecord::update(self.observed.take(), record, Instant::now()));
        self.object = Some(object);
    }

    fn action(&self, identity: &str) -> LockAction {
        decide(self.observed.as_ref(), Instant::now(), identity)
    }

    fn record(&self) -> LeaderRecord {
        self.observed.as_ref().map(|seen| seen.record.clone()).unwrap_or_default()
    }
}

/// One replica in one election.
pub(super) struct Elector<'a> {
    pub(super) requests: Requests,
    pub(super) events: Events,
    pub(super) section: LeaderElection,
    pub(super) keeper: &'a Keeper,
    pub(super) identity: String,
    pub(super) progress: Progress,
}

/// How the election went so far.
#[derive(Default)]
pub(super) struct Progress {
    /// Known once the API server has answered whether it offers leases. In the order in which all replicas take them, so that
    /// no two hold one each and wait for the other; the last is the one that all have.
    locks: Vec<LockState>,
    /// When the API server was last asked for that; `None` if it may be a different one by now.
    discovered: Option<Instant>,
    /// Whether no replica from before an upgrade of the API server holds a ConfigMap any more.
    config_map_is_free: bool,
    /// Who held it when it was last read.
    config_map: Option<ObservedRecord>,
    /// When the last successful renewal was sent; `None` if this process does not lead.
    renewed: Option<Instant>,
    /// Whether a write was ever sent, so that this process may hold a lock without knowing.
    has_written: bool,
    /// The failure that was logged last.
    logged: Option<(String, Instant)>,
}

impl Elector<'_> {
    /// Takes part until `over` completes.
    pub(super) async fn run(&mut self, over: impl Future<Output = ()>) {
        metrics::leader(false);
        let lock = format!("{}/{}", self.section.namespace, self.section.name);
        info!(identity = self.identity, lock, "waiting to lead");
        let health = self.requests.health().clone();
        health.elects(Some(ElectionStatus { lock, identity: self.identity.clone(), holder: None }));
        let mut over = std::pin::pin!(over);
        loop {
            let pause = tokio::select! {
                () = &mut over => break,
                pause = self.try_once() => pause,
            };
            tokio::select! {
                () = &mut over => break,
                () = sleep(pause) => {}
            }
        }
    }

    /// Tries once to take or keep the lead; gives the time until the next try.
    async fn try_once(&mut self) -> Duration {
        let retry = self.section.retry_period;
        let mut standby = retry.min(STANDBY_PERIOD);
        // A process that was suspended must not ask for a renewal that comes too late.
        if self.time_left() == Some(Duration::ZERO) {
            self.lose("it could not be renewed in time");
        }
        match self.try_to_lead().await {
            Ok(()) => self.progress.logged = None,
            Err(reason) => {
                // The next answer may come from a newer server.
                self.progress.discovered = None;
                for lock in &mut self.progress.locks {
                    lock.observed = lock.observed.take().map(|seen| seen.unseen(Instant::now()));
                }
                self.log_failure(reason);
                standby = retry;
            }
        }
        match self.time_left() {
            // With jitter, so that standbys do not all come at once; but when the lock expires.
            None => standby.mul_f64(1.0 + crate::jitter::share() / 2.0).min(self.until_free()),
            Some(left) => retry.min(left),
        }
    }

    /// How long this process still leads without another renewal; `None` if it does not lead.
    fn time_left(&self) -> Option<Duration> {
        let deadline = self.progress.renewed? + self.section.renew_deadline;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// The time until the locks of other processes expire, if no process renews them. [`Duration::MAX`] if no other process
    /// holds one.
    fn until_free(&self) -> Duration {
        let held = self.progress.locks.iter().filter(|lock| lock.action(&self.identity) == LockAction::Wait);
        let left = held.filter_map(|lock| Some(lock.observed.as_ref()?.left(Instant::now())));
        left.max().unwrap_or(Duration::MAX)
    }

    async fn try_to_lead(&mut self) -> Result<(), String> {
        let leads = self.progress.renewed.is_some();
        let takes_lease = !leads && self.discover().await? == LockKind::Lease;
        let was_free = self.progress.config_map_is_free;
        if takes_lease && !self.config_map_is_free().await? {
            return Ok(());
        }
        // A leader writes at once, and reads only if that fails.
        for index in 0..self.progress.locks.len() {
            if self.progress.locks[index].object.is_none() || self.progress.renewed.is_none() {
                self.read(index).await?;
            }
        }
        // One lock is of no use without the others.
        if let Some(held) = self.progress.locks.iter().find(|lock| lock.action(&self.identity) == LockAction::Wait) {
            let holder = held.record().holder;
            self.give_way(&holder);
            return Ok(());
        }
        if takes_lease && was_free {
            // A replica that was started at an older API server may have taken it since.
            self.progress.config_map_is_free = false;
            if !self.config_map_is_free().await? {
                return Ok(());
            }
        }
        let mut first = None;
        for index in 0..self.progress.locks.len() {
            let Some(sent) = self.acquire(index).await? else { return Ok(()) };
            first.get_or_insert(sent);
        }
        if let Some(sent) = first {
            self.lead(sent);
        }
        if leads {
            // Only now: a slow answer must not cost the lead.
            drop(tokio::time::timeout(self.section.retry_period, self.discover()).await);
        }
        Ok(())
    }

    /// Takes a lock or keeps it; when that was sent, or `None` if another holds it.
    async fn acquire(&mut self, index: usize) -> Result<Option<Sent>, String> {
        let mut written = self.write(index).await;
        let has_changed = |fault: &RequestFault| matches!(fault.code(), Some(404 | 409));
        if self.progress.renewed.is_some() && written.as_ref().is_err_and(has_changed) {
            self.read(index).await?;
            written = self.write(index).await;
        }
        written.map_err(|fault| fault.explain("create and update", self.progress.locks[index].kind.plural()))
    }

    /// Reads a lock.
    async fn read(&mut self, index: usize) -> Result<(), String> {
        let kind = self.progress.locks[index].kind;
        match self.send(Method::GET, &self.path(kind), None).await {
            Ok(object) => self.progress.locks[index].observe(object),
            Err(fault) if fault.code() == Some(404) => {
                let leader = self.progress.renewed.map(|_| self.identity.as_str());
                let lock = &mut self.progress.locks[index];
                lock.object = None;
                lock.observed = lock.observed.take().map(|seen| seen.deleted(leader, Instant::now()));
            }
            Err(fault) => return Err(fault.explain("get", kind.plural())),
        }
        Ok(())
    }

    /// Does what the rules say about a lock as it was last seen.
    async fn write(&mut self, index: usize) -> Result<Option<Sent>, RequestFault> {
        let lock = &mut self.progress.locks[index];
        let (kind, action, before) = (lock.kind, lock.action(&self.identity), lock.record());
        if action == LockAction::Wait {
            self.give_way(&before.holder);
            return Ok(None);
        }
        let duration = self.section.lease_duration;
        let record = LeaderRecord::held(&before, action, &self.identity, duration, crate::clock::now());
        let sent = (Instant::now(), suspended());
        // Dropped until there is an answer: without one it is not known what is written.
        let object = lock.object.take();
        self.progress.has_written = true;
        let written = self.put(kind, object, &record).await?;
        self.progress.locks[index].observe(written);
        Ok(Some(sent))
    }

    /// Writes the record into the object as it was read; a conflict if it has changed since.
    async fn put(&self, kind: LockKind, object: Option<Value>, record: &LeaderRecord) -> Result<Value, RequestFault> {
        let LeaderElection { namespace, name, .. } = &self.section;
        let (method, path, mut object) = match object {
            Some(object) => (Method::PUT, self.path(kind), object),
            None => (Method::POST, kind.collection(namespace).to_path(), kind.empty(namespace, name)),
        };
        kind.write(&mut object, record);
        self.send(method, &path, Some(("application/json", &object))).await
    }

    /// A renewal succeeded, the first write of which was sent at `sent`.
    fn lead(&mut self, (sent, suspended): Sent) {
        let duration = self.section.lease_duration;
        self.keeper.lead_since(suspended, sent + duration - duration / UNUSED_PART);
        let is_new = self.progress.renewed.is_none();
        self.progress.renewed = Some(sent);
        if is_new {
            info!(identity = self.identity, "leading");
            metrics::leader(true);
            self.report(format!("{} became leader", self.identity));
        }
    }

    fn give_way(&mut self, holder: &str) {
        if self.progress.renewed.is_some() {
            self.lose(&format!("{holder} holds it now"));
        }
        self.requests.health().led_by(Some(holder));
    }

    fn lose(&mut self, reason: &str) {
        self.keeper.withdraw();
        self.progress.renewed = None;
        metrics::leader(false);
        self.requests.health().led_by(None);
        warn!(code = "ACCM0001", identity = self.identity, reason, "no longer leading; standing by");
        self.report(format!("{} stopped leading: {reason}", self.identity));
    }

    /// Releases the locks, so that the next replica need not wait until they expire.
    pub(super) async fn release(&mut self) {
        let led = self.progress.renewed.take().is_some();
        self.keeper.withdraw();
        metrics::leader(false);
        if !self.progress.has_written {
            return;
        }
        let release_all = async {
            // As they were taken, but backwards: the replica that gets the first one has the best chance to get all.
            for index in (0..self.progress.locks.len()).rev() {
                self.release_one(index).await?;
            }
            Ok::<_, String>(())
        };
        let released = tokio::time::timeout(RELEASE_LIMIT, release_all).await;
        match released.unwrap_or_else(|_| Err(format!("no answer within {RELEASE_LIMIT:?}"))) {
            Ok(()) if led => {
                info!(identity = self.identity, "released the lease");
                self.report(format!("{} stopped leading", self.identity));
            }
            Ok(()) => {}
            Err(reason) => {
                warn!(
                    code = "ACCM0730",
                    reason, "the lease could not be released; another replica has to wait until it expires"
                )
            }
        }
    }

    /// Empties a lock if this process holds it.
    async fn release_one(&mut self, index: usize) -> Result<(), String> {
        loop {
            // Read first: the last write may have been cut off by the stop.
            self.read(index).await?;
            let lock = &mut self.progress.locks[index];
            let (kind, held) = (lock.kind, lock.record());
            if held.holder != self.identity || lock.object.is_none() {
                return Ok(());
            }
            let (object, record) = (lock.object.take(), LeaderRecord::released(&held, crate::clock::now()));
            match self.put(kind, object, &record).await {
                // That write arrived in between.
                Err(fault) if fault.code() == Some(409) => {}
                written => return written.map(drop).map_err(|fault| fault.explain("create and update", kind.plural())),
            }
        }
    }

    /// Which kind of lock the API server offers to all replicas; asked again after failures, and from time to time while it
    /// was the older kind.
    async fn discover(&mut self) -> Result<LockKind, String> {
        let known = self.progress.locks.last().map(|lock| lock.kind);
        if let (Some(kind), Some(discovered)) = (known, self.progress.discovered)
            && (kind == LockKind::Lease || discovered.elapsed() < DISCOVERY_PERIOD)
        {
            return Ok(kind);
        }
        let offered = match self.send(Method::GET, "/apis/coordination.k8s.io/v1", None).await {
            // This answer is that of an older server beside newer ones, and another replica can lead by the lease.
            Err(fault) if fault.code() == Some(404) && known == Some(LockKind::Lease) => {
                return Err(NO_LEASES.to_owned());
            }
            Err(fault) if fault.code() == Some(404) => LockKind::ConfigMap,
            // Whether discovery is permitted says nothing about leases.
            Err(fault) if fault.code() != Some(403) => return Err(fault.to_string()),
            _ => LockKind::Lease,
        };
        self.progress.discovered = Some(Instant::now());
        if known != Some(offered) {
            if self.progress.renewed.is_some() {
                self.lose(&format!("the API server offers another kind of lock now: {}", offered.kind()));
            }
            let first = (self.section.resource_lock == ResourceLock::EndpointsLeases).then_some(LockKind::Endpoints);
            let kinds = first.into_iter().chain([offered]);
            self.progress.locks = kinds.map(|kind| LockState { kind, object: None, observed: None }).collect();
            self.progress.config_map_is_free = false;
            self.progress.config_map = None;
        }
        debug!(lock = offered.kind(), "kind of lock");
        Ok(offered)
    }

    /// Whether no replica leads by a ConfigMap any more. One that does releases it when it sees that the API server has
    /// leases, and until then no other may lead by a lease.
    async fn config_map_is_free(&mut self) -> Result<bool, String> {
        if !self.progress.config_map_is_free {
            let read = self.send(Method::GET, &self.path(LockKind::ConfigMap), None).await;
            let (now, before) = (Instant::now(), self.progress.config_map.take());
            self.progress.config_map = match read {
                Ok(object) => Some(ObservedRecord::update(before, LockKind::ConfigMap.read(&object), now)),
                // Without the permission to read it, no replica with the same permissions has held it.
                Err(fault) if matches!(fault.code(), Some(401 | 403 | 404)) => {
                    before.map(|seen| seen.deleted(None, now))
                }
                Err(fault) => return Err(fault.to_string()),
            };
            let action = decide(self.progress.config_map.as_ref(), now, &self.identity);
            self.progress.config_map_is_free = action != LockAction::Wait;
        }
        Ok(self.progress.config_map_is_free)
    }

    fn path(&self, kind: LockKind) -> String {
        kind.collection(&self.section.namespace).to_object(&self.section.name)
    }

    /// Half the renew deadline at most, so that there is time for another try; and never past the deadline.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<Value, RequestFault> {
        let limit = self.requests.timeout().min(self.section.renew_deadline / 2);
        let limit = self.time_left().map_or(limit, |left| limit.min(left));
        self.requests.send(Exchange { method, path, body, timeout: limit, rate_limited: false }).await
    }

    fn report(&self, message: String) {
        let Some(LockState { kind, object, .. }) = self.progress.locks.last() else { return };
        let uid = object.as_ref().and_then(|object| object["metadata"]["uid"].as_str()).unwrap_or_default();
        let key = ObjectKey::new(self.section.namespace.clone(), self.section.name.clone());
        let regarding = Regarding { kind: kind.kind(), key, uid: uid.to_owned() };
        self.events.normal(COMPONENT, &regarding, "LeaderElection", message);
    }

    /// Logs a failure, but not the same one every two seconds.
    fn log_failure(&mut self, reason: String) {
        let is_recent = |(text, at): &(String, Instant)| *text == reason && at.elapsed() < REMINDER;
        if !self.progress.logged.as_ref().is_some_and(is_recent) {
            warn!(
                code = "ACCM0729",
                reason,
                leading = self.progress.renewed.is_some(),
                "the lease could not be read or renewed; retrying"
            );
            self.progress.logged = Some((reason, Instant::now()));
        }
    }
}
