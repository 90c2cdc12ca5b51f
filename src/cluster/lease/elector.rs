//! One process in one election.

use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::super::events::{Events, Regarding};
use super::super::faults::RequestFault;
use super::super::requests::{Exchange, Requests, segment};
use super::record::{Action, Lock, Observation, Record, decide};
use crate::config::checked::LeaderElection;
use crate::config::file::ResourceLock;
use crate::fence::Keeper;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::metrics;

/// This part of the lease duration is never used: one second of the usual fifteen.
const UNUSED_PART: u32 = 15;
/// Longest time between looks of a standby, before random extra, as long as looks succeed: what is given back is taken within a
/// second, and what runs out not long after.
const STANDBY: Duration = Duration::from_millis(500);
/// Longest time that giving the locks back may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);
/// While nothing changes, how often a failure is logged.
const REMINDER: Duration = Duration::from_secs(30);
/// How often the API server is asked whether it has leases by now.
const ASK_AGAIN: Duration = Duration::from_secs(20);
const COMPONENT: &str = "alicloud-ccm";

/// The older kind of lock, as it was last read.
#[derive(Default)]
struct Older {
    observation: Option<Observation>,
}

/// A lock that a leader holds, as it was last read or written.
struct Part {
    lock: Lock,
    /// `None` if it must be read before the next write.
    object: Option<Value>,
    observation: Option<Observation>,
}

impl Part {
    fn observe(&mut self, object: Value) {
        let record = self.lock.read(&object);
        self.observation = Some(Observation::update(self.observation.take(), record, Instant::now()));
        self.object = Some(object);
    }

    fn action(&self, identity: &str) -> Action {
        decide(self.observation.as_ref(), Instant::now(), identity)
    }

    fn record(&self) -> Record {
        self.observation.as_ref().map(|seen| seen.record.clone()).unwrap_or_default()
    }
}

/// One process in one election.
pub(super) struct Candidate<'a> {
    requests: Requests,
    events: Events,
    section: LeaderElection,
    keeper: &'a Keeper,
    identity: String,
    /// Known once the API server has said whether it has leases. In the order in which all candidates take them, so that no two
    /// hold one each and wait for the other; the last is the one that everybody has.
    parts: Vec<Part>,
    /// When the API server was last asked for that; `None` if it may be a different one by now.
    asked: Option<Instant>,
    /// What is known of the kind of lock that copies from before an upgrade of the API server may hold; `None` once that is
    /// known to be free.
    older: Option<Older>,
    /// When the last successful renewal was sent; `None` if this process does not lead.
    renewed: Option<Instant>,
    /// Whether a write was ever sent, so that a lock may be ours without our knowing.
    tried: bool,
    said: Option<(String, Instant)>,
}

impl<'a> Candidate<'a> {
    pub(super) fn new(
        requests: Requests,
        events: Events,
        section: LeaderElection,
        identity: String,
        keeper: &'a Keeper,
    ) -> Self {
        Self {
            requests,
            events,
            section,
            keeper,
            identity,
            parts: Vec::new(),
            asked: None,
            older: Some(Older::default()),
            renewed: None,
            tried: false,
            said: None,
        }
    }

    /// Takes part until `over` completes.
    pub(super) async fn run(&mut self, over: impl Future<Output = ()>) {
        metrics::leader(false);
        info!(
            identity = self.identity,
            lock = format!("{}/{}", self.section.namespace, self.section.name),
            "waiting to lead"
        );
        let mut over = std::pin::pin!(over);
        loop {
            let pause = tokio::select! {
                () = &mut over => break,
                pause = self.round() => pause,
            };
            tokio::select! {
                () = &mut over => break,
                () = sleep(pause) => {}
            }
        }
    }

    /// One try to get or keep the lead; gives the time until the next.
    async fn round(&mut self) -> Duration {
        let retry = self.section.retry_period;
        let mut standby = retry.min(STANDBY);
        match self.try_to_lead().await {
            Ok(()) => self.said = None,
            Err(reason) => {
                // Whoever answers next may be a newer server.
                self.asked = None;
                self.say(reason);
                standby = retry;
            }
        }
        match self.time_left() {
            // Standbys come at random times, so that they do not all come at once.
            None => standby.mul_f64(1.0 + crate::jitter::share() / 2.0),
            Some(Duration::ZERO) => {
                self.lose("it could not be renewed in time");
                retry
            }
            Some(left) => retry.min(left),
        }
    }

    /// How long this process still leads without another renewal; `None` if it does not lead.
    fn time_left(&self) -> Option<Duration> {
        let deadline = self.renewed? + self.section.renew_deadline;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    async fn try_to_lead(&mut self) -> Result<(), String> {
        let usual = self.offered().await?;
        if usual == Lock::Lease && self.renewed.is_none() && !self.older_is_free().await? {
            return Ok(());
        }
        // A leader writes at once; only if that fails it has to look, and then once more.
        for index in 0..self.parts.len() {
            if self.parts[index].object.is_none() || self.renewed.is_none() {
                self.look(index).await?;
            }
        }
        // Nothing is taken that would be of no use without the rest.
        if let Some(taken) = self.parts.iter().find(|part| part.action(&self.identity) == Action::Wait) {
            let holder = taken.record().holder;
            self.give_way(&holder);
            return Ok(());
        }
        let mut first = None;
        for index in 0..self.parts.len() {
            let Some(sent) = self.secure(index).await? else { return Ok(()) };
            first.get_or_insert(sent);
        }
        if let Some(sent) = first {
            self.lead(sent);
        }
        Ok(())
    }

    /// Makes a lock ours or keeps it; when that was sent, or `None` if somebody else holds it.
    async fn secure(&mut self, index: usize) -> Result<Option<Instant>, String> {
        let lock = self.parts[index].lock;
        match self.act(index).await {
            Err(fault) if fault.code() == Some(409) && self.renewed.is_some() => {
                self.look(index).await?;
                self.act(index).await.map_err(|fault| fault.explain("create and update", lock.plural()))
            }
            done => done.map_err(|fault| fault.explain("create and update", lock.plural())),
        }
    }

    /// Reads a lock.
    async fn look(&mut self, index: usize) -> Result<(), String> {
        let lock = self.parts[index].lock;
        match self.send(Method::GET, &self.path(lock), None).await {
            Ok(object) => self.parts[index].observe(object),
            Err(fault) if fault.code() == Some(404) => {
                self.parts[index].object = None;
                self.parts[index].observation = None;
            }
            Err(fault) => return Err(fault.explain("get", lock.plural())),
        }
        Ok(())
    }

    /// Does what the rules say about a lock as it was last seen.
    async fn act(&mut self, index: usize) -> Result<Option<Instant>, RequestFault> {
        let part = &mut self.parts[index];
        let (lock, action, before) = (part.lock, part.action(&self.identity), part.record());
        if action == Action::Wait {
            self.give_way(&before.holder);
            return Ok(None);
        }
        let duration = self.section.lease_duration;
        let record = Record::held(&before, action, &self.identity, duration, crate::clock::now());
        self.tried = true;
        let sent = Instant::now();
        // Forgotten until there is an answer: without one it is not known what is written.
        let object = part.object.take();
        let written = self.put(lock, object, &record).await?;
        self.parts[index].observe(written);
        Ok(Some(sent))
    }

    /// Writes the record into the object as it was read; a conflict if it has changed since.
    async fn put(&self, lock: Lock, object: Option<Value>, record: &Record) -> Result<Value, RequestFault> {
        let (method, path, mut object) = match object {
            Some(object) => (Method::PUT, self.path(lock), object),
            None => (Method::POST, self.collection(lock), lock.empty(&self.section.namespace, &self.section.name)),
        };
        lock.write(&mut object, record);
        self.send(method, &path, Some(("application/json", &object))).await
    }

    /// A renewal of which the first part was sent at `sent` succeeded.
    fn lead(&mut self, sent: Instant) {
        let duration = self.section.lease_duration;
        self.keeper.lead_until(sent + duration - duration / UNUSED_PART);
        let news = self.renewed.is_none();
        self.renewed = Some(sent);
        if news {
            info!(identity = self.identity, "leading");
            metrics::leader(true);
            self.report(format!("{} became leader", self.identity));
        }
    }

    fn give_way(&mut self, holder: &str) {
        if self.renewed.is_some() {
            self.lose(&format!("{holder} holds it now"));
        }
    }

    fn lose(&mut self, reason: &str) {
        self.keeper.withdraw();
        self.renewed = None;
        metrics::leader(false);
        warn!(identity = self.identity, reason, "no longer leading; standing by");
        self.report(format!("{} stopped leading: {reason}", self.identity));
    }

    /// Gives the locks back, so that the next copy need not wait for them to run out.
    pub(super) async fn release(&mut self) {
        let led = self.renewed.take().is_some();
        self.keeper.withdraw();
        metrics::leader(false);
        if !self.tried {
            return;
        }
        let give_back = async {
            // As they were taken, but backwards: whoever gets the first one has the best chance to get all.
            for index in (0..self.parts.len()).rev() {
                self.give_back(index).await?;
            }
            Ok::<_, String>(())
        };
        match tokio::time::timeout(RELEASE_LIMIT, give_back).await {
            Ok(Ok(())) => {
                if led {
                    info!(identity = self.identity, "gave the lead back");
                    self.report(format!("{} stopped leading", self.identity));
                }
            }
            Ok(Err(reason)) => {
                warn!(reason, "the lead could not be given back; another copy has to wait until it runs out")
            }
            Err(_) => warn!("the lead could not be given back in time; another copy has to wait until it runs out"),
        }
    }

    /// Empties a lock if it is ours.
    async fn give_back(&mut self, index: usize) -> Result<(), String> {
        // Read first: the last write may have been cut off by the stop.
        self.look(index).await?;
        let part = &mut self.parts[index];
        let (lock, held) = (part.lock, part.record());
        if held.holder != self.identity {
            return Ok(());
        }
        let record = Record::released(&held, crate::clock::now());
        let object = part.object.take();
        self.put(lock, object, &record)
            .await
            .map(drop)
            .map_err(|fault| fault.explain("create and update", lock.plural()))
    }

    /// Which kind of lock the API server offers to everybody; asked again after failures, and now and then while it was the
    /// older kind.
    async fn offered(&mut self) -> Result<Lock, String> {
        let known = self.parts.last().map(|part| part.lock);
        if let (Some(lock), Some(asked)) = (known, self.asked)
            && (lock == Lock::Lease || asked.elapsed() < ASK_AGAIN)
        {
            return Ok(lock);
        }
        let offered = match self.send(Method::GET, "/apis/coordination.k8s.io/v1", None).await {
            Err(fault) if fault.code() == Some(404) => Lock::ConfigMap,
            // Whether discovery is permitted says nothing about leases.
            Err(fault) if fault.code() != Some(403) => return Err(fault.to_string()),
            _ => Lock::Lease,
        };
        self.asked = Some(Instant::now());
        if known != Some(offered) {
            if self.renewed.is_some() {
                self.lose(&format!("the API server offers another kind of lock now: {}", offered.kind()));
            }
            let first = (self.section.resource_lock == ResourceLock::EndpointsLeases).then_some(Lock::Endpoints);
            let locks = first.into_iter().chain([offered]);
            self.parts = locks.map(|lock| Part { lock, object: None, observation: None }).collect();
            self.older = Some(Older::default());
        }
        debug!(lock = offered.kind(), "kind of lock");
        Ok(offered)
    }

    /// Whether no copy leads by the older kind of lock any more. One that does lets go when it sees that the API server has
    /// leases, and until then nobody else may lead by a lease.
    async fn older_is_free(&mut self) -> Result<bool, String> {
        let Some(mut older) = self.older.take() else { return Ok(true) };
        let object = match self.send(Method::GET, &self.path(Lock::ConfigMap), None).await {
            Ok(object) => object,
            // Without the permission to read it, nobody with the same permissions has held it.
            Err(fault) if matches!(fault.code(), Some(401 | 403 | 404)) => return Ok(true),
            Err(fault) => {
                self.older = Some(older);
                return Err(fault.to_string());
            }
        };
        let now = Instant::now();
        let record = Lock::ConfigMap.read(&object);
        let observation = Observation::update(older.observation.take(), record, now);
        let free = decide(Some(&observation), now, &self.identity) != Action::Wait;
        if !free {
            self.older = Some(Older { observation: Some(observation) });
        }
        Ok(free)
    }

    fn collection(&self, lock: Lock) -> String {
        lock.path(&segment(&self.section.namespace).to_string())
    }

    fn path(&self, lock: Lock) -> String {
        format!("{}/{}", self.collection(lock), segment(&self.section.name))
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
        let Some(Part { lock, object, .. }) = self.parts.last() else { return };
        let uid = object.as_ref().and_then(|object| object["metadata"]["uid"].as_str()).unwrap_or_default();
        let key = ObjectKey::new(self.section.namespace.clone(), self.section.name.clone());
        let regarding = Regarding { kind: lock.kind(), key, uid: uid.to_owned() };
        self.events.normal(COMPONENT, &regarding, "LeaderElection", message);
    }

    /// Logs a failure, but not the same one every two seconds.
    fn say(&mut self, reason: String) {
        let recently = |(text, at): &(String, Instant)| *text == reason && at.elapsed() < REMINDER;
        if self.said.as_ref().is_some_and(recently) {
            return;
        }
        warn!(reason, leading = self.renewed.is_some(), "the lock could not be read or renewed; trying again");
        self.said = Some((reason, Instant::now()));
    }
}
