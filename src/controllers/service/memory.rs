//! What is remembered between runs, only to save reads: losing it costs calls, never correctness.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::CONTROLLER;
use super::bulk::Look;
use super::change::{change, restates};
use super::creations::Creations;
use super::owners::Vanished;
use super::references::Enis;
use crate::plan::clb::observed::Observed;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::service::model::Backend;
use crate::telemetry::alarms::{Alarms, named};

/// Reason of what is told when backends are kept although they would have to go.
pub(super) const BACKENDS: &str = "BackendsHeldBack";
/// Reason of what is told when no load balancer is made, or none is given up, because the view is in doubt.
pub(super) const LOAD_BALANCER: &str = "LoadBalancerHeldBack";

/// Per Service, as of the last run that ended well.
#[derive(Debug, Default)]
pub(super) struct Memory {
    services: Mutex<HashMap<ObjectKey, Remembered>>,
    /// Services that were looked at in this term.
    seen: Mutex<HashSet<ObjectKey>>,
    /// First sightings of load balancers that are gone.
    missing: Mutex<HashMap<ObjectKey, Instant>>,
    /// Writes to one load balancer are made one after the other, also when several Services share it.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Services whose new load balancer turned out to be one that is gone, see [`Memory::made_one_that_is_gone`].
    incarnations: Mutex<HashMap<ObjectKey, Incarnation>>,
    /// Services that were let go, with their UID: the watch may still show them as they were.
    released: Mutex<HashMap<ObjectKey, String>>,
    /// Services as they were looked at last, and whether they needed a load balancer.
    looked_at: Mutex<HashMap<ObjectKey, (Arc<ServiceView>, bool)>>,
    /// Services that their user changed, and was not told yet that the load balancer follows.
    unanswered: Mutex<HashSet<ObjectKey>>,
    /// Services whose user restated what the official controller ignored, and whose label does not show it yet.
    restated: Mutex<HashSet<ObjectKey>>,
    /// What was told last of each Service and topic, so that each thing is told once.
    told: Mutex<HashMap<ObjectKey, HashMap<Topic, String>>>,
    /// Texts that the load balancers have in common.
    texts: Mutex<Texts>,
    /// What is held back, by the reason of its event: of which Services, and why.
    held_back: Mutex<BTreeMap<&'static str, BTreeMap<String, String>>>,
    /// What was made a short while ago.
    pub(super) creations: Creations,
    alarms: Alarms,
    vanished: Vanished,
}

/// Ids of servers and marks, each once: every load balancer can have every node.
#[derive(Debug, Default)]
struct Texts {
    known: HashSet<Arc<str>>,
    /// How many there may be before those that nobody uses any more are looked for.
    most: usize,
}

impl Texts {
    fn share(&mut self, observed: &mut Arc<Observed>) {
        let shared = |it: &Backend| self.has(&it.key.server_id) && self.has(&it.description);
        if observed.groups.values().all(|group| group.members().iter().all(shared)) {
            return;
        }
        for backends in Arc::make_mut(observed).groups.values_mut().filter_map(|group| group.backends.as_mut()) {
            for backend in Arc::make_mut(backends) {
                self.one(&mut backend.key.server_id);
                self.one(&mut backend.description);
            }
        }
        if self.known.len() > self.most {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.most = 2 * self.known.len() + 1000;
        }
    }

    /// Whether this is the one copy of the text.
    fn has(&self, text: &Arc<str>) -> bool {
        self.known.get(text).is_some_and(|known| Arc::ptr_eq(known, text))
    }

    fn one(&mut self, text: &mut Arc<str>) {
        match self.known.get(text) {
            Some(known) => *text = known.clone(),
            None => drop(self.known.insert(text.clone())),
        }
    }
}

/// Which of the load balancers that a Service has had is to be replaced.
#[derive(Clone, Debug, Default)]
struct Incarnation {
    /// Known to be gone.
    replaced: Option<String>,
    /// Seems to be gone, since this time.
    suspect: Option<(String, Instant)>,
}

/// What users are told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// Why the Service is not as it should be.
    Trouble,
    /// What is worth knowing although nothing failed.
    Notes,
}

/// What is remembered of one Service.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    /// The Service's UID: another object of the same name is another Service.
    pub(super) uid: String,
    /// The load balancer as it was read, moved forward by what was done since.
    pub(super) observed: Arc<Observed>,
    /// When it was compared with the cloud.
    pub(super) read_at: Instant,
    /// When its server groups were read.
    pub(super) groups_read_at: Instant,
    /// Interfaces of pods that were looked up: address to (pod, interface).
    pub(super) enis: Enis,
}

impl Memory {
    /// Knows nothing; raises `alarms` for what is held back, and tells `vanished` of Services that are gone without having
    /// been let go.
    pub(super) fn new(alarms: Alarms, vanished: Vanished) -> Self {
        Self { alarms, vanished, ..Self::default() }
    }

    pub(super) fn recall(&self, key: &ObjectKey, uid: &str) -> Option<Remembered> {
        self.services.lock().get(key).filter(|remembered| remembered.uid == uid).cloned()
    }

    /// How many load balancers are known.
    pub(super) fn count(&self) -> usize {
        self.services.lock().len()
    }

    /// How many calls it takes to read what no list shows of all that are known.
    pub(super) fn unlisted_reads(&self) -> usize {
        self.services.lock().values().map(|it| 1 + it.observed.groups.len()).sum()
    }

    pub(super) fn knows(&self, key: &ObjectKey) -> bool {
        self.services.lock().contains_key(key)
    }

    pub(super) fn remember(&self, key: &ObjectKey, mut remembered: Remembered) {
        self.texts.lock().share(&mut remembered.observed);
        self.services.lock().insert(key.clone(), remembered);
    }

    /// What was believed of the load balancer may be wrong.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.services.lock().remove(key);
    }

    /// Notes how the Service is now, and names the change since it was looked at before, if its user made one.
    pub(super) fn changed(&self, service: &Arc<ServiceView>, needed: bool) -> Option<&'static str> {
        let before = self.looked_at.lock().insert(service.key.clone(), (service.clone(), needed));
        if before.as_ref().is_some_and(|(before, _)| restates(before, service)) {
            self.restated.lock().insert(service.key.clone());
        }
        let reason = before.and_then(|(before, was)| change(&before, service, (was, needed)))?;
        self.unanswered.lock().insert(service.key.clone());
        Some(reason)
    }

    /// Whether the user still has to be told that the load balancer follows a change.
    pub(super) fn is_asked(&self, key: &ObjectKey) -> bool {
        self.unanswered.lock().contains(key)
    }

    /// Whether the Service was restated while we looked, and its label does not show it yet.
    pub(super) fn is_restated(&self, key: &ObjectKey) -> bool {
        self.restated.lock().contains(key)
    }

    /// The label shows it.
    pub(super) fn acknowledge(&self, key: &ObjectKey) {
        self.restated.lock().remove(key);
    }

    /// The user is told.
    pub(super) fn answer(&self, key: &ObjectKey) {
        self.unanswered.lock().remove(key);
    }

    /// The Service is gone. One that had a load balancer is let go first; that it was not is told.
    pub(super) fn gone(&self, key: &ObjectKey) {
        let needed = self.looked_at.lock().get(key).is_some_and(|(_, needed)| *needed);
        if needed {
            self.vanished.notify_one();
        }
        self.forget_all(key);
    }

    /// Nothing is known of the Service any more.
    pub(super) fn forget_all(&self, key: &ObjectKey) {
        self.forget(key);
        self.looked_at.lock().remove(key);
        self.unanswered.lock().remove(key);
        self.restated.lock().remove(key);
        self.found(key);
        self.told.lock().remove(key);
        self.seen.lock().remove(key);
        for reason in [BACKENDS, LOAD_BALANCER] {
            self.hold_back(key, reason, None);
        }
        self.released.lock().remove(key);
        self.incarnations.lock().remove(key);
        self.creations.forget(key);
    }

    /// Everything of this Service was removed, and so was its finalizer.
    pub(super) fn release(&self, key: &ObjectKey, uid: &str) {
        self.forget_all(key);
        self.released.lock().insert(key.clone(), uid.to_owned());
    }

    /// Whether this Service was let go, and has not been looked after since.
    pub(super) fn was_released(&self, key: &ObjectKey, uid: &str) -> bool {
        self.released.lock().get(key).is_some_and(|released| released == uid)
    }

    /// The load balancer that a new one replaces, if it is known by more than the Service's label.
    pub(super) fn replaced(&self, key: &ObjectKey) -> Option<String> {
        self.incarnations.lock().get(key)?.replaced.clone()
    }

    /// The cloud answered a creation with a load balancer that is gone: it remembers the client token of an earlier one,
    /// which was deleted when the Service gave it up. If it is so again after `wait`, in which a new one would have shown
    /// itself, the next creation replaces it and is not taken for the old one. Returns when to try again.
    pub(super) fn made_one_that_is_gone(&self, key: &ObjectKey, id: &str, wait: Duration) -> Duration {
        let mut incarnations = self.incarnations.lock();
        let incarnation = incarnations.entry(key.clone()).or_default();
        match &incarnation.suspect {
            Some((suspect, since)) if suspect == id => {
                let left = wait.saturating_sub(since.elapsed());
                if left.is_zero() {
                    *incarnation = Incarnation { replaced: Some(id.to_owned()), suspect: None };
                }
                left
            }
            _ => {
                incarnation.suspect = Some((id.to_owned(), Instant::now()));
                wait
            }
        }
    }

    /// The Service is looked after (again).
    pub(super) fn adopt(&self, key: &ObjectKey) {
        self.released.lock().remove(key);
    }

    /// What kind of look this one is, of `all` Services that there are.
    pub(super) fn look(&self, key: &ObjectKey, all: usize) -> Look {
        let mut seen = self.seen.lock();
        let left = all.saturating_sub(seen.len());
        if seen.insert(key.clone()) { Look::First(left) } else { Look::Later }
    }

    /// Notes whether something is held back of this Service, and why.
    pub(super) fn hold_back(&self, key: &ObjectKey, reason: &'static str, why: Option<&str>) {
        let mut all = self.held_back.lock();
        let services = all.entry(reason).or_default();
        let changed = match why {
            Some(why) => services.insert(key.to_string(), why.to_owned()).as_deref() != Some(why),
            None => services.remove(&key.to_string()).is_some(),
        };
        if changed {
            let first = services.values().next().cloned().unwrap_or_default();
            let text = format!("{}: {first}", named(services.keys().map(String::as_str)));
            self.alarms.set(CONTROLLER, reason, services.len(), text);
        }
    }

    /// Notes that the load balancer was not found, and says since when.
    pub(super) fn missing_since(&self, key: &ObjectKey) -> Instant {
        *self.missing.lock().entry(key.clone()).or_insert_with(Instant::now)
    }

    /// The load balancer was found (again), or need not be.
    pub(super) fn found(&self, key: &ObjectKey) {
        self.missing.lock().remove(key);
    }

    /// Whether `text` is news for this Service; an empty text clears what was told.
    pub(super) fn news(&self, key: &ObjectKey, topic: Topic, text: &str) -> bool {
        let mut told = self.told.lock();
        if text.is_empty() {
            if let Some(topics) = told.get_mut(key) {
                topics.remove(&topic);
            }
            return false;
        }
        let topics = told.entry(key.clone()).or_default();
        topics.insert(topic, text.to_owned()).is_none_or(|before| before != text)
    }

    /// The lock for writes to one load balancer, or to the one that a Service is going to have.
    pub(super) fn lock_of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        if locks.len() > 64 {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        locks.entry(name.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::service::model::{BackendKey, BackendKind, ObservedGroup};

    #[test]
    fn texts_are_kept_once_and_only_while_they_are_used() {
        let balancer = |server: String| {
            let key =
                BackendKey { kind: BackendKind::Ecs, server_id: server.into(), server_ip: Box::default(), port: 1 };
            let backends = Some(Arc::new(vec![Backend { key, weight: 100, description: "mark".into() }]));
            let group = ObservedGroup { name: String::new(), backends };
            Arc::new(Observed { groups: [("rsp".to_owned(), group)].into(), ..Observed::default() })
        };
        let mut texts = Texts::default();
        let (mut one, mut other) = (balancer("i-1".to_owned()), balancer("i-1".to_owned()));
        texts.share(&mut one);
        texts.share(&mut other);
        let id = |observed: &Observed| observed.groups["rsp"].backends.as_ref().unwrap()[0].key.server_id.clone();
        assert!(Arc::ptr_eq(&id(&one), &id(&other)));
        for number in 0..5000 {
            texts.share(&mut balancer(format!("i-gone-{number}")));
        }
        assert!(texts.known.len() <= 1100, "{}", texts.known.len());
        assert!(texts.known.contains("i-1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_balancer_that_is_gone_is_replaced_at_the_second_sighting() {
        let (memory, key, wait) = (Memory::default(), ObjectKey::new("ns", "web"), Duration::from_secs(10));
        assert_eq!(memory.made_one_that_is_gone(&key, "lb-1", wait), wait);
        tokio::time::advance(wait / 2).await;
        assert_eq!(memory.made_one_that_is_gone(&key, "lb-1", wait), wait / 2);
        assert_eq!(memory.replaced(&key), None, "it may only be slow to show itself");
        tokio::time::advance(wait).await;
        assert_eq!(memory.made_one_that_is_gone(&key, "lb-1", wait), Duration::ZERO);
        assert_eq!(memory.replaced(&key).as_deref(), Some("lb-1"));
        memory.made_one_that_is_gone(&key, "lb-2", wait);
        assert_eq!(memory.replaced(&key).as_deref(), Some("lb-1"), "the same creation until it is certain");
        tokio::time::advance(wait).await;
        memory.made_one_that_is_gone(&key, "lb-2", wait);
        assert_eq!(memory.replaced(&key).as_deref(), Some("lb-2"));
        memory.forget_all(&key);
        assert_eq!(memory.replaced(&key), None);
    }
}
