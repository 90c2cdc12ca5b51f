//! Leader election: many copies may run, one of them writes.
//!
//! The rules are client-go's, so that copies of other programs and of other versions can take part. What is won is not a
//! state but time: after a renewal that was sent at `t`, nobody else can hold the lock before `t + lease_duration`, and
//! the [`Keeper`] is told so (a little less, since clocks of machines run at different speeds).

mod handover;
mod record;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::requests::{Pacing, RequestFault, Requests, segment};
use super::writes::denied;
use super::{Cluster, Events, Regarding};
use crate::config::Config;
use crate::config::checked::LeaderElection;
use crate::fence::Keeper;
use crate::observe::metrics;
use crate::plan::inputs::ObjectKey;
use record::{Action, Lock, Observation, Record, decide};

/// This part of the lease duration is never used: one second of the usual fifteen.
const UNUSED_PART: u32 = 15;
/// Longest time between looks of a standby, before random extra, as long as looks succeed: what is given back is taken within a
/// second, and what runs out not long after.
const STANDBY: Duration = Duration::from_millis(500);
/// Longest time that giving the lock back may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);
/// While nothing changes, how often a failure is logged.
const REMINDER: Duration = Duration::from_secs(30);
/// How often the API server is asked whether it has leases by now.
const ASK_AGAIN: Duration = Duration::from_secs(20);
const COMPONENT: &str = "alicloud-ccm";

/// Takes part in the election until `stop` is cancelled, then gives the lock back so that another copy need not wait.
/// Writes of this process must have ended by then. After a lost election it goes on as a standby.
///
/// A changed `leader_election` section takes effect at once, and the election starts anew. The lock is not given back then:
/// writes may be under way. If it is still the same lock, this process finds itself as its holder.
pub async fn elect(
    cluster: Cluster,
    mut config: watch::Receiver<Arc<Config>>,
    keeper: Keeper,
    stop: CancellationToken,
) {
    let own_identity = format!("{}_{}", host_name(), uuid::Uuid::new_v4());
    while !stop.is_cancelled() {
        let section = config.borrow_and_update().leader_election.clone();
        let over = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = changed(&mut config, &section) => info!("leader election is configured anew"),
            }
        };
        if section.enabled {
            let requests = cluster.inner.requests.clone();
            let identity = section.identity.clone().unwrap_or_else(|| own_identity.clone());
            let mut candidate = Candidate::new(requests, cluster.events().clone(), section.clone(), identity, &keeper);
            candidate.run(over).await;
            if stop.is_cancelled() {
                candidate.release().await;
            }
            keeper.withdraw();
            metrics::leader(false);
        } else {
            keeper.lead_unbounded();
            metrics::leader(true);
            info!("leader election is switched off; this must be the only copy");
            over.await;
            keeper.withdraw();
            metrics::leader(false);
        }
    }
}

/// Completes when the section differs from `current`.
async fn changed(config: &mut watch::Receiver<Arc<Config>>, current: &LeaderElection) {
    if config.wait_for(|config| config.leader_election != *current).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The older kind of lock, as it was last read.
#[derive(Default)]
struct Older {
    observation: Option<Observation>,
}

/// One process in one election.
struct Candidate<'a> {
    requests: Requests,
    events: Events,
    section: LeaderElection,
    keeper: &'a Keeper,
    identity: String,
    /// Known once the API server has said whether it has leases.
    lock: Option<Lock>,
    /// When the API server was last asked for that; `None` if it may be a different one by now.
    asked: Option<Instant>,
    /// What is known of the kind of lock that copies from before an upgrade of the API server may hold; `None` once that is
    /// known to be free.
    older: Option<Older>,
    /// The lock as it was last read or written; `None` if it must be read before the next write.
    object: Option<Value>,
    observation: Option<Observation>,
    /// When the last successful renewal was sent; `None` if this process does not lead.
    renewed: Option<Instant>,
    /// Whether a write was ever sent, so that the lock may be ours without our knowing.
    tried: bool,
    said: Option<(String, Instant)>,
}

impl<'a> Candidate<'a> {
    fn new(requests: Requests, events: Events, section: LeaderElection, identity: String, keeper: &'a Keeper) -> Self {
        Self {
            requests,
            events,
            section,
            keeper,
            identity,
            lock: None,
            asked: None,
            older: Some(Older::default()),
            object: None,
            observation: None,
            renewed: None,
            tried: false,
            said: None,
        }
    }

    /// Takes part until `over` completes.
    async fn run(&mut self, over: impl Future<Output = ()>) {
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
            None => standby.mul_f64(1.0 + crate::chance::share() / 2.0),
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
        let lock = self.lock().await?;
        if lock == Lock::Lease && self.renewed.is_none() && !self.older_is_free().await? {
            return Ok(());
        }
        // A leader writes at once; only if that fails it has to look, and then once more.
        if self.object.is_none() || self.renewed.is_none() {
            self.look(lock).await?;
        }
        if let Err(fault) = self.act(lock).await {
            if fault.code() != Some(409) || self.renewed.is_none() {
                return Err(explain(lock, &fault));
            }
            self.look(lock).await?;
            self.act(lock).await.map_err(|fault| explain(lock, &fault))?;
        }
        Ok(())
    }

    /// Reads the lock.
    async fn look(&mut self, lock: Lock) -> Result<(), String> {
        let path = format!("{}/{}", self.collection(lock), segment(&self.section.name));
        match self.send(Method::GET, &path, None).await {
            Ok(object) => self.observe(lock, object),
            Err(fault) if fault.code() == Some(404) => {
                self.object = None;
                self.observation = None;
            }
            Err(fault) => {
                let text = fault.to_string();
                let denied_text = || denied("get", lock.plural(), &text);
                return Err(if matches!(fault.code(), Some(401 | 403)) { denied_text() } else { text });
            }
        }
        Ok(())
    }

    fn observe(&mut self, lock: Lock, object: Value) {
        let record = lock.read(&object);
        self.observation = Some(Observation::update(self.observation.take(), record, Instant::now()));
        self.object = Some(object);
    }

    /// Does what the rules say about the lock as it was last seen.
    async fn act(&mut self, lock: Lock) -> Result<(), RequestFault> {
        let action = decide(self.observation.as_ref(), Instant::now(), &self.identity);
        if action == Action::Wait {
            if self.renewed.is_some() {
                let holder = self.observation.as_ref().map(|seen| seen.record.holder.clone()).unwrap_or_default();
                self.lose(&format!("{holder} holds it now"));
            }
            return Ok(());
        }
        let before = self.observation.as_ref().map(|seen| seen.record.clone()).unwrap_or_default();
        let duration = self.section.lease_duration;
        let record = Record::held(&before, action, &self.identity, duration, crate::clock::now());
        self.tried = true;
        let sent = Instant::now();
        // Forgotten until there is an answer: without one it is not known what is written.
        let mut object = self.object.take();
        // Taken out with the same write by which the lock is taken: nobody reads it twice.
        let note = object.as_mut().and_then(handover::take);
        let written = self.put(lock, object, &record).await?;
        self.observe(lock, written);
        if let Some(note) = note.and_then(|note| handover::text_for(&note, action, &before)) {
            self.keeper.inherit(note);
        }
        self.lead(lock, sent);
        Ok(())
    }

    /// Writes the record into the object as it was read; a conflict if it has changed since.
    async fn put(&self, lock: Lock, object: Option<Value>, record: &Record) -> Result<Value, RequestFault> {
        let (method, path, mut object) = match object {
            Some(object) => (Method::PUT, format!("{}/{}", self.collection(lock), segment(&self.section.name)), object),
            None => (Method::POST, self.collection(lock), lock.empty(&self.section.namespace, &self.section.name)),
        };
        lock.write(&mut object, record);
        self.send(method, &path, Some(("application/json", &object))).await
    }

    /// A renewal that was sent at `sent` succeeded.
    fn lead(&mut self, lock: Lock, sent: Instant) {
        let duration = self.section.lease_duration;
        self.keeper.lead_until(sent + duration - duration / UNUSED_PART);
        let news = self.renewed.is_none();
        self.renewed = Some(sent);
        if news {
            info!(identity = self.identity, "leading");
            metrics::leader(true);
            self.report(lock, format!("{} became leader", self.identity));
        }
    }

    fn lose(&mut self, reason: &str) {
        self.keeper.withdraw();
        self.renewed = None;
        metrics::leader(false);
        warn!(identity = self.identity, reason, "no longer leading; standing by");
        if let Some(lock) = self.lock {
            self.report(lock, format!("{} stopped leading: {reason}", self.identity));
        }
    }

    /// Gives the lock back, so that the next copy need not wait for it to run out.
    async fn release(&mut self) {
        let led = self.renewed.take().is_some();
        let note = self.keeper.take_left().filter(|_| led);
        self.keeper.withdraw();
        metrics::leader(false);
        let Some(lock) = self.lock.filter(|_| self.tried) else { return };
        let give_back = async {
            // Read first: the last write may have been cut off by the stop.
            self.look(lock).await?;
            let Some(observation) = self.observation.as_ref().filter(|seen| seen.record.holder == self.identity) else {
                return Ok(());
            };
            let record = Record::released(&observation.record, crate::clock::now());
            let mut object = self.object.take();
            if let (Some(object), Some(note)) = (&mut object, note) {
                handover::put(object, &record, &note);
            }
            self.put(lock, object, &record).await.map_err(|fault| explain(lock, &fault))?;
            info!(identity = self.identity, "gave the lead back");
            Ok::<_, String>(())
        };
        match tokio::time::timeout(RELEASE_LIMIT, give_back).await {
            Ok(Ok(())) => {
                if led {
                    self.report(lock, format!("{} stopped leading", self.identity));
                }
            }
            Ok(Err(reason)) => {
                warn!(reason, "the lead could not be given back; another copy has to wait until it runs out")
            }
            Err(_) => warn!("the lead could not be given back in time; another copy has to wait until it runs out"),
        }
    }

    /// Which kind of lock the API server offers; asked again after failures, and now and then while it was the older kind.
    async fn lock(&mut self) -> Result<Lock, String> {
        if let (Some(lock), Some(asked)) = (self.lock, self.asked)
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
        if let Some(before) = self.lock.replace(offered)
            && before != offered
        {
            if self.renewed.is_some() {
                self.lose(&format!("the API server offers another kind of lock now: {}", offered.kind()));
            }
            self.object = None;
            self.observation = None;
            self.older = Some(Older::default());
        }
        debug!(lock = offered.kind(), "kind of lock");
        Ok(offered)
    }

    /// Whether no copy leads by the older kind of lock any more. One that does lets go when it sees that the API server has
    /// leases, and until then nobody else may lead by a lease.
    async fn older_is_free(&mut self) -> Result<bool, String> {
        let Some(mut older) = self.older.take() else { return Ok(true) };
        let path = format!("{}/{}", self.collection(Lock::ConfigMap), segment(&self.section.name));
        let object = match self.send(Method::GET, &path, None).await {
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

    /// Half the renew deadline at most, so that there is time for another try; and never past the deadline.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<Value, RequestFault> {
        let limit = self.requests.timeout().min(self.section.renew_deadline / 2);
        let limit = self.time_left().map_or(limit, |left| limit.min(left));
        self.requests.send(method, path, body, limit, Pacing::Immediate).await
    }

    fn report(&self, lock: Lock, message: String) {
        let uid = self.object.as_ref().and_then(|object| object["metadata"]["uid"].as_str()).unwrap_or_default();
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

fn explain(lock: Lock, fault: &RequestFault) -> String {
    match fault.code() {
        Some(401 | 403) => denied("create and update", lock.plural(), &fault.to_string()),
        _ => fault.to_string(),
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".into(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
