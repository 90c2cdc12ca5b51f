//! The cached state of each Service between two reconciles: one value per Service, in one map.
//!
//! It only saves reads and repeated events. Dropping it at any moment costs calls, never correctness; every leadership term
//! starts without it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::creations::Creations;
use super::execute::{Belief, Failures, members};
use super::orphans::Vanished;
use super::refusals::{RefusalBudget, Refusals};
use crate::alibaba::Tickets;
use crate::plan::digest;
use crate::plan::inputs::{Ingress, ObjectKey, ServiceView, SyncCondition};
use crate::plan::loadbalancer::applied::Applied;
use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::model::Backend;
use crate::plan::loadbalancer::unready::UnreadyNodes;
use crate::telemetry::alarms::{Alarms, ObjectReport, ObjectTrouble, named};

/// Reason of the event and alarm about backends that are withheld from removal.
pub(super) const BACKENDS_WITHHELD: &str = "BackendsHeldBack";
/// Reason of the event and alarm about a load balancer that is neither created nor given up while the account may be the wrong
/// one.
pub(super) const LOAD_BALANCER_WITHHELD: &str = "LoadBalancerHeldBack";

/// Reason of the event and alarm about server groups that exist although a list lacks them, and are not created again.
pub(super) const GROUPS_WITHHELD: &str = "ServerGroupsHeldBack";
/// Reason of the event about a Service that asks for a load balancer and has no controller.
pub(super) const NOT_HANDLED: &str = "ServiceNotHandled";

/// In how many Services a server is looked for: with most policies any one of them has every node that can be a backend.
const SOME: usize = 100;

/// Time between the two reads after which a missing load balancer is created again, and after which the finalizer of a Service
/// without a load balancer is removed, since one may just have been created.
pub(super) const SECOND_SIGHTING: Duration = Duration::from_secs(10);

/// For so long the watch may show a Service with the finalizer that was removed. Later, another client has put it back.
const WATCH_LAG: Duration = Duration::from_secs(5);

/// Network interfaces of directly attached pods: by address, the uid of the pod that had it when it was looked up, as a
/// number, and the interface.
pub(super) type Interfaces = BTreeMap<IpAddr, (u64, String)>;

/// The cached state of one Service. `M` is the model of its product.
#[derive(Clone, Debug)]
pub(super) struct ServiceState<M: CloudModel> {
    /// An object of the same name with another uid is another Service.
    uid: String,
    /// The Service as it was at the last reconcile, and whether it asked for a load balancer.
    seen: Option<(Arc<ServiceView>, bool)>,
    /// The zero of [`ServiceState::now`].
    began: Instant,
    pub(super) cached: Cached<M>,
    pub(super) in_flight: InFlight,
    pub(super) told: Told,
}

/// What was read and learned. A run without it costs calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached<M: CloudModel> {
    /// The load balancer, as of the last reconcile whose outcome can be relied on.
    pub(super) known: Option<Known<M>>,
    /// Whether the user has changed the Service since the last comparison with the cloud.
    pub(super) edited: bool,
    /// Whether something in the cloud keeps the Service out of sync.
    pub(super) obstructed: bool,
    /// Backends that the cloud refused.
    pub(super) refusals: Refusals,
    /// Pods that are not ready and have no readiness gate: gates never change, so they are read once.
    pub(super) ungated: BTreeSet<String>,
    /// Nodes that may serve and were unready at the last reconcile, on the clock that began with this value.
    pub(super) unready: UnreadyNodes,
}

/// What this process has begun and not finished. A run without it relies on the marks in the cloud and on the Service, and waits
/// longer.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    /// Whether something may exist that was made for the Service in this term, whatever other clients make of the finalizer.
    pub(super) may_own: bool,
    /// Recent creations, some of them with an uncertain outcome.
    pub(super) creations: Creations,
    /// What was applied and must be remembered, whatever other clients make of the annotation.
    pub(super) applied: Applied,
    /// The load balancer that a label named last, whatever other clients make of the label.
    pub(super) labelled: Option<String>,
    /// When the load balancer was last written to, or the status of its jobs was last read: an older list is no proof.
    pub(super) changed_at: Option<Instant>,
    /// Since when the cloud carries something out of which no job is known.
    pub(super) busy_since: Option<Instant>,
    /// Whether the load balancer was searched for in this leadership term.
    pub(super) looked_for: bool,
    /// When a read first showed that the load balancer is missing.
    pub(super) missing_since: Option<Instant>,
    /// Since when a load balancer of the other kind serves the Service.
    pub(super) superseded_since: Option<Instant>,
    /// Which load balancer a new one replaces.
    pub(super) replacement: Replacement,
    /// When everything of the Service was removed; `None` once it asks for a load balancer again.
    pub(super) released: Option<Instant>,
    /// Whether the user edited a setting that the official controller ignored, and the label is still there.
    pub(super) restated: bool,
    /// The creation of the load balancer, if it waits for its turn: nothing is looked up before.
    pub(super) queued: Option<Box<Failures>>,
    /// Its places in the order of calls that a quota limits.
    pub(super) tickets: Tickets,
    /// Steps of reconciles that ended with a pending job; an event reports them after the job.
    pub(super) started: Vec<String>,
}

impl InFlight {
    /// How long the watch may still show the Service as it was before everything of it was removed.
    pub(super) fn watch_may_lag_for(&self) -> Option<Duration> {
        self.released.and_then(|at| WATCH_LAG.checked_sub(at.elapsed())).filter(|left| !left.is_zero())
    }
}

/// A load balancer as it was observed, moved forward by what was done since.
#[derive(Clone, Debug)]
pub(super) struct Known<M: CloudModel> {
    pub(super) observed: Arc<Observed<M>>,
    /// When it was compared with the cloud.
    pub(super) read_at: Instant,
    /// When its server groups were read.
    pub(super) groups_read_at: Instant,
    /// How many calls it takes to read what no list shows.
    pub(super) unlisted_reads: usize,
    pub(super) interfaces: Arc<Interfaces>,
    /// Whether it leaves, and nothing else carries the mark of the Service.
    pub(super) is_last: bool,
    /// Doubted only while jobs are pending.
    pub(super) belief: Belief,
}

/// How long a plan that waits for jobs is continued: after that, its state is read again.
const ONE_RUN: Duration = Duration::from_secs(180);

impl<M: CloudModel> Known<M> {
    /// Whether it was compared with the cloud so recently that a plan which waited since can continue from it.
    pub(super) fn is_recent(&self) -> bool {
        self.read_at.elapsed() < ONE_RUN
    }
}

/// What users know. A run without it repeats events.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Why something is withheld, by the reason of its event.
    pub(super) withheld: BTreeMap<&'static str, String>,
    /// Whether the user has changed the Service, and no event has reported yet that the load balancer is in sync.
    pub(super) unanswered: bool,
    /// The last event about what is worth knowing although nothing failed.
    pub(super) notes: String,
    /// The last event about a load balancer that one of the other kind replaces.
    pub(super) succession: String,
    /// The condition of the Service.
    pub(super) condition: WrittenCondition,
    /// A hash of the addresses that this process published; 0 for none.
    published: u64,
}

impl Told {
    /// Whether these are the addresses that this process published last.
    pub(super) fn published(&self, addresses: &[Ingress]) -> bool {
        self.published == digest::number(addresses)
    }

    /// Remembers the addresses that this process publishes now; whether it published the same before.
    pub(super) fn publishes(&mut self, wanted: &[Ingress]) -> bool {
        let was_published = self.published(wanted);
        self.published = digest::number(wanted);
        was_published
    }
}

/// What this process wrote to the condition of a Service. What the API server shows can be older, and an old one may not keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WrittenCondition {
    /// Nothing.
    #[default]
    Nothing,
    /// Perhaps something: no answer came.
    Unknown,
    /// This.
    Said(SyncCondition),
}

/// Stores `text` as the last one that was reported; true if it differs. An empty text clears it.
pub(super) fn is_news(before: &mut String, text: &str) -> bool {
    let news = !text.is_empty() && before != text;
    text.clone_into(before);
    news
}

/// Which of the load balancers that a Service has had is to be replaced.
#[derive(Clone, Debug, Default)]
pub(super) struct Replacement {
    /// Deleted for certain.
    pub(super) replaced: Option<String>,
    /// Perhaps deleted, since this time.
    suspect: Option<(String, Instant)>,
}

impl Replacement {
    /// The cloud answered a creation with a load balancer that was deleted: it still knows the client token of that one. If the
    /// answer is the same after `wait`, in which lists would have shown a new one, the next creation uses another token.
    /// Returns when to retry.
    pub(super) fn suspect(&mut self, id: &str, wait: Duration) -> Duration {
        match &self.suspect {
            Some((suspect, since)) if suspect == id => {
                let left = wait.saturating_sub(since.elapsed());
                if left.is_zero() {
                    *self = Self { replaced: Some(id.to_owned()), suspect: None };
                }
                left
            }
            _ => {
                self.suspect = Some((id.to_owned(), Instant::now()));
                wait
            }
        }
    }
}

impl<M: CloudModel> ServiceState<M> {
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            seen: None,
            began: Instant::now(),
            cached: Cached::default(),
            in_flight: InFlight::default(),
            told: Told::default(),
        }
    }

    /// Time on the clock of [`Cached::unready`].
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether clients can know an address of the Service.
    pub(super) fn is_published(&self) -> bool {
        self.told.published != 0 || self.seen.as_ref().is_some_and(|(service, _)| !service.ingress.is_empty())
    }

    /// After what time unready backends are checked for the second time, if there are any.
    pub(super) fn second_sighting(&self) -> Option<Duration> {
        let waits = self.told.withheld.contains_key(BACKENDS_WITHHELD);
        self.cached.unready.next_sighting(self.now()).filter(|_| waits)
    }

    /// Everything of the Service was removed, and so was its finalizer.
    pub(super) fn release(&mut self) {
        let in_flight =
            InFlight { released: Some(Instant::now()), changed_at: self.in_flight.changed_at, ..InFlight::default() };
        *self = Self { in_flight, ..Self::new(&self.uid) };
    }

    /// Whether a new state would say the same: the Service asks for no load balancer of this product, and had none.
    pub(super) fn is_blank(&self) -> bool {
        let Self { in_flight, told, .. } = self;
        !in_flight.may_own
            && in_flight.watch_may_lag_for().is_none()
            && told.withheld.is_empty()
            && told.succession.is_empty()
    }

    /// Stores the current Service. Returns the reason of the event about what its user changed, if anything.
    pub(super) fn see(&mut self, service: &Arc<ServiceView>, needed: bool) -> Option<&'static str> {
        self.in_flight.may_own |= needed;
        let (before, was_needed) = self.seen.replace((service.clone(), needed))?;
        self.in_flight.restated |=
            before.source_ranges != service.source_ranges || before.client_ip_affinity != service.client_ip_affinity;
        if was_needed != needed {
            self.in_flight.tickets.give_back();
        }
        let reason = if was_needed || needed { user_change(&before, service) } else { None };
        if reason.is_some() {
            (self.told.unanswered, self.cached.edited) = (true, true);
            // An edit asks for a retry.
            self.in_flight.queued = None;
            self.cached.refusals = Refusals::default();
        }
        reason
    }

    /// Withholds something for this `reason`, or ends that.
    pub(super) fn withhold(&mut self, reason: &'static str, why: Option<&str>) {
        match why {
            Some(why) => drop(self.told.withheld.insert(reason, why.to_owned())),
            None => drop(self.told.withheld.remove(reason)),
        }
    }
}

/// The reason of the event about a change by the user, in the order of the official controller; `None` if nothing relevant
/// changed.
fn user_change(before: &ServiceView, now: &ServiceView) -> Option<&'static str> {
    if before.service_type != now.service_type {
        Some("TypeChanged")
    } else if (&before.annotations, before.other_annotations) != (&now.annotations, now.other_annotations) {
        Some("AnnotationChanged")
    } else if !same_spec(before, now) {
        Some("ServiceSpecChanged")
    } else {
        (before.deleting != now.deleting).then_some("DeleteTimestampChanged")
    }
}

/// Compares everything except what is compared elsewhere, and what controllers write.
fn same_spec(before: &ServiceView, now: &ServiceView) -> bool {
    let spec = |service: &ServiceView| ServiceView {
        key: now.key.clone(),
        uid: String::new(),
        resource_version: String::new(),
        deleting: false,
        finalizers: Vec::new(),
        labels: LiteMap::new(),
        annotations: LiteMap::new(),
        other_annotations: 0,
        own_annotations: LiteMap::new(),
        ingress: Vec::new(),
        ingress_details: Vec::new(),
        ..service.clone()
    };
    spec(before) == spec(now)
}

/// The states of all Services of one product.
#[derive(Debug)]
pub(super) struct States<M: CloudModel> {
    controller: &'static str,
    kept: Mutex<KeptStates<M>>,
    alarms: Alarms,
    vanished: Vanished,
    pub(super) budget: RefusalBudget,
}

#[derive(Debug, Default)]
struct KeptStates<M: CloudModel> {
    by_service: HashMap<ObjectKey, Box<ServiceState<M>>>,
    /// Services that changed before their load balancer was known.
    ahead: BTreeSet<ObjectKey>,
    totals: StateTotals,
}

/// What the states of all Services amount to. It moves with each of them, so that no reconcile looks at all.
#[derive(Debug, Default)]
struct StateTotals {
    /// How many load balancers are known.
    known: usize,
    /// How many calls it takes to read what no list shows of them.
    unlisted_reads: usize,
    /// Servers that the cloud refused as backends, with the number of refusals.
    refused: BTreeMap<Arc<str>, usize>,
    /// Why something is withheld, by the reason of its event and by Service.
    withheld: BTreeMap<&'static str, BTreeMap<String, String>>,
}

impl StateTotals {
    fn add<M: CloudModel>(&mut self, state: &ServiceState<M>) {
        self.known += usize::from(state.cached.known.is_some());
        self.unlisted_reads += state.cached.known.as_ref().map_or(0, |known| known.unlisted_reads);
        for server in state.cached.refusals.servers() {
            *self.refused.entry(server.clone()).or_default() += 1;
        }
    }

    fn remove<M: CloudModel>(&mut self, state: &ServiceState<M>) {
        self.known -= usize::from(state.cached.known.is_some());
        self.unlisted_reads -= state.cached.known.as_ref().map_or(0, |known| known.unlisted_reads);
        for server in state.cached.refusals.servers() {
            if let Some(count) = self.refused.get_mut(server) {
                *count -= 1;
            }
        }
        self.refused.retain(|_, count| *count > 0);
    }

    /// Notes why something of a Service is withheld, if it is; whether that is a change.
    fn withhold(&mut self, reason: &'static str, key: &ObjectKey, why: Option<&String>) -> bool {
        let services = self.withheld.entry(reason).or_default();
        if services.is_empty() && why.is_none() {
            return false;
        }
        let before = match why {
            Some(why) => services.insert(key.to_string(), why.clone()),
            None => services.remove(&key.to_string()),
        };
        before.as_ref() != why
    }
}

impl<M: CloudModel> States<M> {
    /// Starts empty. Raises `alarms` for what is withheld, and notifies `vanished` when a Service disappears that still had a
    /// load balancer.
    pub(super) fn new(controller: &'static str, alarms: Alarms, vanished: Vanished) -> Self {
        Self { controller, kept: Mutex::default(), alarms, vanished, budget: RefusalBudget::default() }
    }

    /// The cached state of the Service with this UID.
    pub(super) fn read(&self, key: &ObjectKey, uid: &str) -> ServiceState<M> {
        let remembered = self.kept.lock().by_service.get(key).map(|state| (**state).clone());
        match remembered {
            Some(state) if state.uid == uid => state,
            other => {
                if other.is_some_and(|state| state.in_flight.may_own) {
                    self.vanished.notify_one();
                }
                ServiceState::new(uid)
            }
        }
    }

    /// Replaces the cached state of the Service.
    pub(super) fn replace(&self, key: &ObjectKey, state: ServiceState<M>) {
        self.change(key, Some(state));
    }

    /// The Service is gone. Returns its last version, and what was in flight.
    pub(super) fn drop(&self, key: &ObjectKey) -> Option<(Arc<ServiceView>, InFlight)> {
        self.out_of_sync(key, None);
        let state = self.change(key, None)?;
        if state.in_flight.may_own {
            self.vanished.notify_one();
        }
        state.seen.map(|(service, _)| (service, state.in_flight))
    }

    /// Notes why the Service is not in sync, or that it is; true if many Services share the cause now, and did not before.
    pub(super) fn out_of_sync(&self, key: &ObjectKey, trouble: Option<ObjectTrouble>) -> bool {
        self.alarms.out_of_sync(self.controller, &key.to_string(), trouble)
    }

    /// Why the Service is not in sync; `None` if it is.
    pub(super) fn report(&self, key: &ObjectKey) -> Option<ObjectReport> {
        self.alarms.object(self.controller, key)
    }

    /// Notes when a Service that is not in sync is reconciled again. Gives its uid, unless it is gone.
    pub(super) fn scheduled(&self, key: &ObjectKey, after: Option<Duration>) -> Option<String> {
        self.alarms.next_attempt(self.controller, key, after);
        self.kept.lock().by_service.get(key).map(|state| state.uid.clone())
    }

    fn change(&self, key: &ObjectKey, state: Option<ServiceState<M>>) -> Option<ServiceState<M>> {
        let mut kept = self.kept.lock();
        let KeptStates { by_service, ahead, totals } = &mut *kept;
        if state.as_ref().is_none_or(|state| state.cached.known.is_some()) {
            ahead.remove(key);
        }
        if let Some(state) = &state {
            totals.add(state);
        }
        for reason in [BACKENDS_WITHHELD, GROUPS_WITHHELD, LOAD_BALANCER_WITHHELD] {
            if totals.withhold(reason, key, state.as_ref().and_then(|state| state.told.withheld.get(reason))) {
                self.raise(reason, &totals.withheld[reason]);
            }
        }
        let before = match state {
            Some(state) => by_service.insert(key.clone(), Box::new(state)),
            None => by_service.remove(key),
        };
        before.map(|before| *before).inspect(|before| totals.remove(before))
    }

    fn raise(&self, reason: &'static str, withheld: &BTreeMap<String, String>) {
        let why = withheld.values().next().map(String::as_str).unwrap_or_default();
        let text = format!("{}: {why}", named(withheld.keys().map(String::as_str)));
        self.alarms.set(self.controller, reason, withheld.len(), text);
    }

    /// Whether the load balancer of the Service is known, and not one that waits for its creation.
    pub(super) fn knows(&self, key: &ObjectKey) -> bool {
        self.kept
            .lock()
            .by_service
            .get(key)
            .is_some_and(|state| state.cached.known.is_some() && state.in_flight.queued.is_none())
    }

    /// Whether the load balancer of the Service is known, and serves.
    pub(super) fn serves(&self, key: &ObjectKey) -> bool {
        self.kept.lock().by_service.get(key).is_some_and(|state| state.cached.known.is_some() && state.is_published())
    }

    /// Services that have to prepare the calls that they wait to make.
    pub(super) fn due(&self) -> Vec<ObjectKey> {
        let kept = self.kept.lock();
        kept.by_service
            .iter()
            .filter(|(_, state)| state.in_flight.tickets.are_due())
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Until their load balancers are known, these Services go ahead of the others.
    pub(super) fn put_ahead<'a>(&self, changed: impl Iterator<Item = &'a ObjectKey>) {
        self.kept.lock().ahead.extend(changed.cloned());
    }

    /// Whether the Service goes ahead of others.
    pub(super) fn is_ahead(&self, key: &ObjectKey) -> bool {
        self.kept.lock().ahead.contains(key)
    }

    /// Servers that the cloud refused as backends of any Service.
    pub(super) fn refused_servers(&self) -> BTreeSet<Arc<str>> {
        self.kept.lock().totals.refused.keys().cloned().collect()
    }

    /// Of the servers of these backends, those that are in a server group of any of a hundred Services.
    pub(super) fn members_among(&self, backends: &[Backend]) -> BTreeSet<Arc<str>> {
        let asked: HashSet<&Arc<str>> = backends.iter().map(|backend| &backend.key.server_id).collect();
        let kept = self.kept.lock();
        let known = kept.by_service.values().filter_map(|state| state.cached.known.as_ref()).take(SOME);
        known.flat_map(|known| members(&*known.observed)).filter(|server| asked.contains(server)).cloned().collect()
    }

    /// How many Services were reconciled in this term.
    pub(super) fn len(&self) -> usize {
        self.kept.lock().by_service.len()
    }

    /// How many load balancers are known, and how many calls it takes to read what no list shows of them.
    pub(super) fn known(&self) -> (usize, usize) {
        let StateTotals { known, unlisted_reads, .. } = self.kept.lock().totals;
        (known, unlisted_reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alibaba::{Fault, FaultKind};
    use crate::controllers::loadbalancer::refusals::RefusedCall;
    use crate::plan::clb::desired::ClbModel;
    use crate::plan::inputs::{Ingress, ServiceType};
    use crate::plan::loadbalancer::applied;
    use crate::plan::loadbalancer::model::{Backend, BackendKey};

    fn state_after(
        before: &ServiceView,
        now: &ServiceView,
        needed: bool,
    ) -> (ServiceState<ClbModel>, Option<&'static str>) {
        let mut state = ServiceState::new("uid");
        assert_eq!(state.see(&Arc::new(before.clone()), needed), None, "there was nothing before");
        let reason = state.see(&Arc::new(now.clone()), needed);
        (state, reason)
    }

    fn edited(before: &ServiceView, edit: fn(&mut ServiceView)) -> ServiceView {
        let mut now = before.clone();
        edit(&mut now);
        now
    }

    #[test]
    fn only_what_the_user_changed_counts() {
        let before = ServiceView { service_type: ServiceType::LoadBalancer, ..ServiceView::default() };
        let reason = |edit: fn(&mut ServiceView)| state_after(&before, &edited(&before, edit), true).1;
        assert_eq!(reason(|now| now.resource_version = "7".to_owned()), None);
        assert_eq!(reason(|now| now.ingress = vec![Ingress::default()]), None);
        assert_eq!(reason(|now| now.finalizers = vec!["x".to_owned()]), None);
        assert_eq!(reason(|now| drop(now.labels.insert("x".to_owned(), String::new()))), None);
        assert_eq!(reason(|now| now.local_traffic = true), Some("ServiceSpecChanged"));
        assert_eq!(reason(|now| now.deleting = true), Some("DeleteTimestampChanged"));
        assert_eq!(reason(|now| now.service_type = ServiceType::NodePort), Some("TypeChanged"));
        assert_eq!(reason(|now| now.other_annotations = 7), Some("AnnotationChanged"), "so people ask for a look");
        let own = |now: &mut ServiceView| drop(now.own_annotations.insert(applied::CLB.to_owned(), "x".to_owned()));
        assert_eq!(reason(own), None);
        let annotated = |now: &mut ServiceView| drop(now.annotations.insert("x".to_owned(), String::new()));
        assert_eq!(reason(annotated), Some("AnnotationChanged"));
        assert_eq!(state_after(&before, &edited(&before, annotated), false).1, None, "it is not ours");
    }

    #[test]
    fn only_ranges_and_affinity_are_restated() {
        let before = ServiceView::default();
        let restated =
            |edit: fn(&mut ServiceView)| state_after(&before, &edited(&before, edit), true).0.in_flight.restated;
        assert!(restated(|now| now.source_ranges = vec!["10.0.0.0/8".to_owned()]));
        assert!(restated(|now| now.client_ip_affinity = Some(60)));
        assert!(!restated(|now| now.local_traffic = true));
    }

    #[test]
    fn another_service_of_the_same_name_inherits_nothing() {
        let states: States<ClbModel> = States::new("service", Alarms::default(), Vanished::default());
        let key = ObjectKey::new("shop", "web");
        let mut state = states.read(&key, "one");
        state.told.unanswered = true;
        states.replace(&key, state);
        assert!(states.read(&key, "one").told.unanswered);
        assert!(!states.read(&key, "other").told.unanswered);
        states.drop(&key);
        assert!(!states.read(&key, "one").told.unanswered);
    }

    #[test]
    fn an_alarm_stands_while_any_service_withholds_something() {
        let alarms = Alarms::default();
        let states: States<ClbModel> = States::new("service", alarms.clone(), Vanished::default());
        let key = ObjectKey::new("shop", "web");
        let mut state = states.read(&key, "one");
        state.withhold(BACKENDS_WITHHELD, Some("no node is ready"));
        states.replace(&key, state.clone());
        assert!(alarms.report(true).contains("shop/web: no node is ready"), "{}", alarms.report(true));
        state.withhold(BACKENDS_WITHHELD, None);
        states.replace(&key, state);
        assert_eq!(alarms.report(true), "");
    }

    #[tokio::test(start_paused = true)]
    async fn totals_move_with_each_service() {
        let states: States<ClbModel> = States::new("service", Alarms::default(), Vanished::default());
        let (one, other) = (ObjectKey::new("shop", "web"), ObjectKey::new("shop", "api"));
        let (observed, now) = (Arc::default(), Instant::now());
        let known = Known {
            observed,
            read_at: now,
            groups_read_at: now,
            unlisted_reads: 3,
            interfaces: Arc::default(),
            is_last: false,
            belief: Belief::Certain,
        };
        let refused = |server: &str| {
            let backends = vec![Backend { key: BackendKey::ecs(server, 80), weight: 100, description: "mark".into() }];
            RefusedCall { backends, fault: Fault::new("AddBackends", FaultKind::Rejected, "no") }
        };
        let servers = || states.refused_servers().iter().map(ToString::to_string).collect::<Vec<_>>();
        for key in [&one, &other] {
            let mut state = states.read(key, "uid");
            state.cached.known = Some(known.clone());
            state.cached.refusals.note(vec![refused("i-1")]);
            states.replace(key, state);
        }
        assert_eq!((states.known(), servers()), ((2, 6), vec!["i-1".to_owned()]));
        let mut state = states.read(&one, "uid");
        state.cached.refusals.note(vec![refused("i-2")]);
        states.replace(&one, state.clone());
        assert_eq!((states.known(), servers().len()), ((2, 6), 2));
        (state.cached.known, state.cached.refusals) = (None, Refusals::default());
        states.replace(&one, state);
        assert_eq!((states.known(), servers()), ((1, 3), vec!["i-1".to_owned()]));
        states.drop(&other);
        assert_eq!((states.known(), states.len(), servers()), ((0, 0), 1, vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_balancer_that_is_gone_is_replaced_at_the_second_sighting() {
        let (mut replacement, wait) = (Replacement::default(), Duration::from_secs(10));
        assert_eq!(replacement.suspect("lb-1", wait), wait);
        tokio::time::advance(wait / 2).await;
        assert_eq!(replacement.suspect("lb-1", wait), wait / 2);
        assert_eq!(replacement.replaced, None, "it may only be slow to show itself");
        tokio::time::advance(wait).await;
        assert_eq!(replacement.suspect("lb-1", wait), Duration::ZERO);
        assert_eq!(replacement.replaced.as_deref(), Some("lb-1"));
        replacement.suspect("lb-2", wait);
        assert_eq!(replacement.replaced.as_deref(), Some("lb-1"), "the same creation until it is certain");
        tokio::time::advance(wait).await;
        replacement.suspect("lb-2", wait);
        assert_eq!(replacement.replaced.as_deref(), Some("lb-2"));
    }
}
