//! Brings one Service into agreement with its load balancer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::bulk::{Bulk, Look};
use super::creations::Before;
use super::execute::{Execution, Token, execute};
use super::memory::{BACKENDS, LOAD_BALANCER, Memory, Remembered, Topic};
use super::observe::{FindError, Found, complete, find, list_groups, refresh};
use super::readiness;
use super::references::{Leaving, Reader, settings_of};
use super::report::{self, Trouble};
use super::rounds::{Rounds, cycle};
use super::status::{self, label};
use super::{CONTROLLER, Context, Views};
use crate::alibaba::{Fault, FaultKind};
use crate::controllers::workqueue::{ObjectReconciler, ReconcileResult};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::diff::diff;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::{Plan, ResourceKind};
use crate::plan::clb::status::expected_ingress;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::service::handling::{Handling, handed_over, handling, is_inherited};
use crate::plan::service::ownership::{FINALIZER, LABEL_HASH};
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::settings::{ServiceOptions, ServiceSettings};

/// Time between the two sightings after which a load balancer that is gone is made again, and after which a Service whose
/// load balancer was perhaps just being made is let go.
const SECOND_SIGHTING: Duration = Duration::from_secs(10);

/// After this time, nodes that were there at the start are initialised, and the account can be recognised by them.
const NODES_COME_UP: Duration = Duration::from_secs(2);

/// What all reconciles of one term of leadership share.
#[derive(Debug)]
pub(super) struct Reconciler {
    context: Context,
    reader: Reader,
    bulk: Bulk,
    memory: Memory,
    rounds: Rounds,
}

/// What was seen of a load balancer, and when.
struct Sighting {
    /// Shared with the memory as long as it is as remembered.
    observed: Arc<Observed>,
    /// When it was compared with the cloud.
    read_at: Instant,
    /// When its server groups were read.
    groups_read_at: Instant,
}

impl Sighting {
    fn now(observed: Observed) -> Self {
        Self { observed: Arc::new(observed), read_at: Instant::now(), groups_read_at: Instant::now() }
    }
}

/// What planning needs to know, as of now.
pub(super) fn settings(context: &Context) -> ServiceSettings {
    settings_of(&context.config.borrow(), &context.place)
}

impl ObjectReconciler for Reconciler {
    const NAME: &'static str = CONTROLLER;

    fn concurrency(&self) -> usize {
        self.context.config.borrow().service.concurrency
    }

    /// A load balancer is known to serve the Service: a change of it is likely one of its backends.
    fn is_urgent(&self, key: &ObjectKey) -> bool {
        self.memory.knows(key)
    }

    async fn reconcile(&self, key: &ObjectKey) -> ReconcileResult {
        self.reconcile_one(key).await
    }
}

impl Reconciler {
    pub(super) fn new(context: Context, views: Views, memory: Memory) -> Self {
        let reader = Reader::new(context.cluster.clone(), context.cloud.clone(), context.place.clone(), views);
        let bulk = Bulk::new(context.cloud.slb.clone());
        Self { context, reader, bulk, memory, rounds: Rounds::new() }
    }

    /// Reads once what tells which Services have an access control list, and whose the account is, so that no Service has
    /// to wait for it.
    pub(super) async fn warm(&self) {
        // Whoever needs it tries again, and reports it.
        let _ = self.reader.may_have_list("").await;
        if !self.reader.knows_the_account().await.unwrap_or_default() {
            tokio::time::sleep(NODES_COME_UP).await;
            let _ = self.reader.knows_the_account().await;
        }
    }

    /// One look at one Service, with everything that follows from it.
    async fn reconcile_one(&self, key: &ObjectKey) -> ReconcileResult {
        let Some(service) = self.reader.views().services.get(key) else {
            self.memory.gone(key);
            return ReconcileResult::Done;
        };
        let settings = settings(&self.context);
        let handling = handling(&service, &settings);
        if let Some(reason) = self.memory.changed(&service, handling == Handling::Ensure) {
            report::changed(self.context.cluster.events(), &service, reason);
        }
        let result = match handling {
            Handling::Ignore => {
                self.memory.forget(key);
                self.memory.hold_back(key, BACKENDS, None);
                match handed_over(&service, &settings) {
                    Some(problem) => Err(Trouble::HandedOver(problem)),
                    None => Ok(ReconcileResult::Done),
                }
            }
            Handling::Ensure => self.ensure(&service, &settings).await,
            Handling::Delete => self.clean(&service, &settings).await,
        };
        let doubt = result.as_ref().err().filter(|trouble| trouble.is_doubt()).map(ToString::to_string);
        self.memory.hold_back(key, LOAD_BALANCER, doubt.as_deref());
        match result {
            Ok(verdict) => {
                self.memory.news(key, Topic::Trouble, "");
                verdict
            }
            Err(trouble) => {
                let events = self.context.cluster.events();
                let leaving = handling == Handling::Delete;
                report::trouble(events, &service, leaving, &trouble, |text| {
                    self.memory.news(key, Topic::Trouble, text)
                });
                trouble.verdict()
            }
        }
    }

    async fn ensure(&self, service: &ServiceView, settings: &ServiceSettings) -> Result<ReconcileResult, Trouble> {
        let Context { cluster, fence, cloud, .. } = &self.context;
        self.memory.adopt(&service.key);
        let restated;
        let service = if self.memory.is_restated(&service.key) && is_inherited(service) {
            status::disinherit(cluster, fence, service).await?;
            let mut own = service.clone();
            own.labels.remove(LABEL_HASH);
            restated = own;
            &restated
        } else {
            service
        };
        self.memory.acknowledge(&service.key);
        let drift_check = settings.service.drift_check;
        let mut remembered = self.memory.recall(&service.key, &service.uid);
        let outdated = |it: &Remembered| drift_check.is_some_and(|period| self.rounds.is_due(period, it.read_at));
        let mut believed = if remembered.as_ref().is_some_and(outdated) { remembered.take() } else { None };
        if self.memory.creations.look_again(&service.key).is_some_and(|left| left.is_zero()) {
            // What shows up now is our own.
            (believed, remembered) = (None, None);
        }
        let turn = believed.as_ref().is_some_and(|believed| self.was_turn(&settings.service, believed));
        let enis = remembered.as_ref().or(believed.as_ref().filter(|_| !turn)).map(|known| &known.enis);
        let mut wanted = self.reader.wanted(service, settings, enis).await?;
        // A Service that now names another load balancer needs to be read anew.
        let remembered = remembered.filter(|remembered| is_of(&remembered.observed, &wanted.desired));
        if !status::add_finalizer(cluster, fence, service).await? {
            return Ok(ReconcileResult::RequeueAfter(SECOND_SIGHTING));
        }

        let desired = &wanted.desired;
        let lock = self.memory.lock_of(desired.reuse.as_deref().unwrap_or(&desired.owner.default_name()));
        let _serialised = lock.lock().await;
        let confirmed = match &believed {
            Some(believed) => self.confirm(service, desired, believed, turn).await?,
            None => None,
        };
        let read_whole = remembered.is_none() && (turn || confirmed.is_none());
        let Sighting { mut observed, read_at, groups_read_at } = match (&remembered, confirmed) {
            (Some(Remembered { observed, read_at, groups_read_at, .. }), _) => {
                Sighting { observed: observed.clone(), read_at: *read_at, groups_read_at: *groups_read_at }
            }
            (None, Some(confirmed)) => confirmed,
            (None, None) => self.observe(service, desired).await?,
        };
        if observed.instance.is_none() {
            self.reader.place(service, settings, &mut wanted.desired).await;
        }
        let desired = &wanted.desired;
        let mut plan = diff(desired, &observed);
        // What differs now, and did not when we looked last, was changed by somebody else.
        let drift = believed.is_some_and(|believed| diff(desired, &believed.observed).steps.is_empty());
        if remembered.is_some() && !only_backends(&plan) {
            let made = self.memory.creations.made(&service.key);
            if let Err(fault) =
                refresh(&cloud.slb, &self.bulk, desired, &plan, Arc::make_mut(&mut observed), &made).await
            {
                // Perhaps because what was believed is not so; the next look reads everything.
                self.memory.forget(&service.key);
                return Err(fault.into());
            }
            self.memory.creations.listed(&service.key, &observed);
            plan = diff(desired, &observed);
        }
        let problems = std::mem::take(&mut plan.problems);
        let notes = std::mem::take(&mut plan.notes);
        let warnings: Vec<ServiceProblem> = desired.warnings.iter().chain(&plan.warnings).cloned().collect();
        // Until the outcome is known, nothing is.
        self.memory.forget(&service.key);
        let absent = observed.instance.is_none();
        let replaced = self.memory.replaced(&service.key);
        let incarnation = if absent { replaced.as_deref().unwrap_or(label(service)) } else { "" };
        let token = Token::new(&settings.cluster_id, &service.uid, incarnation);
        let waits = self.memory.creations.first_to_wait(&service.key, &plan.steps);
        if let Some((first, _)) = waits {
            plan.steps.truncate(first);
        }
        let before = Before::of(&observed);
        let execution = match plan.steps.as_slice() {
            [] => Execution::default(),
            _ => execute(&cloud.slb, fence, plan, Arc::make_mut(&mut observed), &token, number_of(service)).await,
        };
        let complete = execution.complete() && waits.is_none();
        self.memory.creations.note(&service.key, &before, &observed, execution.perhaps.as_ref(), complete);
        if let (true, Some(made), Some((_, Fault { kind: FaultKind::Gone, .. }))) =
            (absent, &observed.instance, &execution.stopped)
        {
            let again = self.memory.made_one_that_is_gone(&service.key, &made.id, SECOND_SIGHTING);
            return Err(Trouble::Missing { id: made.id.clone(), again });
        }
        if execution.is_certain() {
            let (uid, observed, enis) = (service.uid.clone(), observed.clone(), wanted.enis.clone());
            let remembered = Remembered { uid, observed, read_at, groups_read_at, enis };
            self.memory.remember(&service.key, remembered);
        }
        if let (true, false, Some(instance)) = (drift, execution.done.is_empty(), &observed.instance) {
            report::repaired(cluster.events(), service, &instance.id, &execution.done);
        }
        let held_back = self.backends_held_back(service, desired);
        self.memory.hold_back(&service.key, BACKENDS, held_back);
        let told = (warnings.as_slice(), notes.as_slice(), execution.remarks.as_slice());
        report::notes(cluster.events(), service, desired, told, held_back, |text| {
            self.memory.news(&service.key, Topic::Notes, text)
        });
        let done = (desired, &*observed, complete);
        let told = readiness::write(cluster, fence, service, &wanted.readiness, done).await;
        if let (true, Some((_, again))) = (execution.complete(), waits) {
            return Err(Trouble::Unsettled(again));
        }
        self.finish(service, desired, &observed, execution, problems, read_whole).await?;
        told.map_err(Trouble::Gates)?;
        if !desired.unresolved.is_empty() {
            return Err(Trouble::Unresolved(desired.unresolved.iter().copied().collect()));
        }
        let drift = drift_check.map(|period| self.rounds.until_next(period));
        let unsettled = self.memory.creations.look_again(&service.key);
        let soonest = drift.into_iter().chain(readiness::look_again(&wanted.readiness)).chain(unsettled).min();
        Ok(soonest.map_or(ReconcileResult::Done, ReconcileResult::RequeueAfter))
    }

    /// Why no backend is removed, whatever the Service says.
    fn backends_held_back(&self, service: &ServiceView, desired: &Desired) -> Option<&'static str> {
        let views = self.reader.views();
        let published = !service.ingress.is_empty();
        if published && views.nodes.is_empty() {
            Some(report::NO_NODES)
        } else if published && views.endpoints.is_empty() {
            Some(report::NO_ENDPOINTS)
        } else {
            desired.blackout.then_some(report::BLACKOUT)
        }
    }

    /// Writes the outcome back to the Service and tells its user.
    async fn finish(
        &self,
        service: &ServiceView,
        desired: &Desired,
        observed: &Observed,
        execution: Execution,
        problems: Vec<ServiceProblem>,
        read_whole: bool,
    ) -> Result<(), Trouble> {
        let Context { cluster, fence, cloud, .. } = &self.context;
        let trouble = !execution.complete() || !problems.is_empty();
        if trouble
            && execution.stopped.is_none()
            && let Some(instance) = &observed.instance
            && !service.ingress.is_empty()
            && !desired.eip
            && service.ingress == expected_ingress(desired, instance, &[])
        {
            // An address that is published already says which of its ports are served.
            let details = status::details(cluster, service, desired, observed, &service.ingress);
            status::set_ingress(cluster, fence, service, &service.ingress, &details).await?;
        }
        if !execution.complete() {
            return Err(Trouble::Execution(execution));
        }
        if !problems.is_empty() {
            return Err(Trouble::Problems(problems));
        }
        let Some(instance) = &observed.instance else { return Ok(()) };
        let asked = self.memory.is_asked(&service.key);
        let eips = if desired.eip && (asked || read_whole || service.ingress.is_empty()) {
            Some(cloud.vpc.describe_load_balancer_eips(&instance.id).await?)
        } else {
            None
        };
        if eips.as_ref().is_some_and(Vec::is_empty) {
            report::no_elastic_address(cluster.events(), service, &instance.id);
        }
        let mut changed = status::set_label(cluster, fence, service, &instance.id).await?;
        if !desired.eip || eips.is_some() {
            let ingress = expected_ingress(desired, instance, &eips.unwrap_or_default());
            let details = status::details(cluster, service, desired, observed, &ingress);
            changed |= status::set_ingress(cluster, fence, service, &ingress, &details).await?;
        }
        self.memory.answer(&service.key);
        if changed || asked || !execution.done.is_empty() {
            report::ensured(cluster.events(), service, &instance.id, &execution.done);
        }
        Ok(())
    }

    /// How often what no list shows is read again; `None` if never.
    fn cycle(&self, settings: &ServiceOptions) -> Option<Duration> {
        let reads = self.memory.unlisted_reads();
        settings.drift_check.map(|period| cycle(reads, settings.drift_reads, period))
    }

    /// Whether the server groups that are believed to be so are to be read again.
    fn was_turn(&self, settings: &ServiceOptions, believed: &Remembered) -> bool {
        let turn = |cycle| self.rounds.was_turn(cycle, &believed.uid, believed.groups_read_at);
        self.cycle(settings).is_some_and(turn)
    }

    /// Confirms what is believed of a load balancer by what lists show of it, and of its server groups by reading them if it is
    /// their turn. `None` if they do not: lists can be behind, so that it takes a closer look to say that anything differs.
    async fn confirm(
        &self,
        service: &ServiceView,
        desired: &Desired,
        believed: &Remembered,
        turn: bool,
    ) -> Result<Option<Sighting>, Trouble> {
        let (slb, bulk) = (&self.context.cloud.slb, &self.bulk);
        let Some(known) = believed.observed.instance.as_ref().filter(|_| is_of(&believed.observed, desired)) else {
            return Ok(None);
        };
        let read_at = Instant::now();
        let others = self.memory.count();
        let instance = match &desired.reuse {
            Some(id) => slb.describe_instance(id).await,
            None => bulk.instance(&desired.owner, &known.id, Look::Round(others)).await,
        };
        let instance = match instance {
            Err(fault) if fault.kind == FaultKind::Gone => return Ok(None),
            instance => Some(instance?),
        };
        let listeners = match &desired.reuse {
            Some(id) => bulk.listeners(id).await?,
            None => bulk.listeners_of_many(&known.id, others).await?,
        };
        let mut observed = Observed { instance, listeners: Some(listeners), ..Observed::default() };
        if !is_of(&observed, desired) {
            return Ok(None);
        }
        let listed = if turn {
            let made = self.memory.creations.made(&service.key);
            Some(list_groups(slb, &mut observed, &made).await?)
        } else {
            observed.groups.clone_from(&believed.observed.groups);
            None
        };
        complete(slb, bulk, &mut observed, |observed| desired.needs(observed)).await?;
        let confirmed = diff(desired, &observed).steps.is_empty();
        if let (true, Some(all)) = (confirmed, listed) {
            self.memory.creations.read(&service.key, &observed, all);
        }
        let groups_read_at = if turn { read_at } else { believed.groups_read_at };
        Ok(confirmed.then_some(Sighting { observed: Arc::new(observed), read_at, groups_read_at }))
    }

    /// Reads the Service's load balancer whole. One that should be there and is not counts as absent only after two sightings
    /// that prove it.
    async fn observe(&self, service: &ServiceView, desired: &Desired) -> Result<Sighting, Trouble> {
        let (slb, bulk) = (&self.context.cloud.slb, &self.bulk);
        let look = self.memory.look(&service.key, self.reader.views().services.len());
        if matches!(look, Look::First(_)) && is_ours(service) {
            self.memory.creations.inherit(&service.key);
        }
        let made = self.memory.creations.made(&service.key);
        match find(slb, bulk, service, &desired.owner, desired.reuse.as_deref(), look, &made).await? {
            Found::Instance(instance) => {
                self.memory.found(&service.key);
                let mut observed = Observed { instance: Some(*instance), ..Observed::default() };
                let all = list_groups(slb, &mut observed, &made).await?;
                complete(slb, bulk, &mut observed, |observed| desired.needs(observed)).await?;
                self.memory.creations.read(&service.key, &observed, all);
                Ok(Sighting::now(observed))
            }
            Found::Absent { .. } if label(service).is_empty() && service.ingress.is_empty() => {
                self.reader.may_make(service).await?;
                Ok(Sighting::now(self.absent(desired).await?))
            }
            Found::Unmarked(instance) => Err(Trouble::Detached(instance.id)),
            Found::Absent { proven: false } => Err(Trouble::Unfindable(label(service).to_owned())),
            Found::Absent { proven: true } => {
                let left = SECOND_SIGHTING.saturating_sub(self.memory.missing_since(&service.key).elapsed());
                if !left.is_zero() {
                    return Err(Trouble::Missing { id: label(service).to_owned(), again: left });
                }
                self.reader.may_make(service).await?;
                self.memory.found(&service.key);
                report::recreating(self.context.cluster.events(), service, label(service));
                Ok(Sighting::now(self.absent(desired).await?))
            }
        }
    }

    /// There is no load balancer; something that goes with one may be left.
    async fn absent(&self, desired: &Desired) -> Result<Observed, Trouble> {
        let mut observed = Observed::default();
        complete(&self.context.cloud.slb, &self.bulk, &mut observed, |observed| desired.needs(observed)).await?;
        Ok(observed)
    }

    /// Removes what was made for the Service, then lets the Service go.
    async fn clean(&self, service: &ServiceView, settings: &ServiceSettings) -> Result<ReconcileResult, Trouble> {
        if self.memory.was_released(&service.key, &service.uid) {
            return Ok(ReconcileResult::Done);
        }
        let Context { cluster, fence, cloud, .. } = &self.context;
        let mut leaving = Leaving::of(service, settings);
        let lock = self.memory.lock_of(leaving.reuse().unwrap_or(&leaving.owner.default_name()));
        let _serialised = lock.lock().await;
        // Where many leave, a list from a moment ago shows them all. What it is too old for, a second try reads by itself.
        let look = if self.memory.knows(&service.key) { Look::Round(0) } else { Look::Later };
        self.memory.forget(&service.key);
        let made = self.memory.creations.made(&service.key);
        let found = match find(&cloud.slb, &self.bulk, service, &leaving.owner, leaving.reuse(), look, &made).await {
            // A reused load balancer that no longer exists took everything of ours with it.
            Err(FindError::ReusedMissing(_)) => Found::Absent { proven: true },
            found => found?,
        };
        if matches!(found, Found::Absent { .. }) && leaving.reuse().is_none() {
            self.reader.may_release(service).await?;
        }
        if matches!(found, Found::Absent { proven: false }) {
            // It may have been made a moment ago by a call whose answer was lost, and not be listed yet; or the list may be
            // empty because a permission is missing.
            let left = SECOND_SIGHTING.saturating_sub(self.memory.missing_since(&service.key).elapsed());
            if !left.is_zero() {
                return Ok(ReconcileResult::RequeueAfter(left));
            }
            if !label(service).is_empty() {
                report::left_behind(cluster.events(), service, label(service));
            }
        }
        // Writes to a load balancer that others use, too, are made one after the other.
        let shared = match &found {
            Found::Unmarked(instance) => Some(self.memory.lock_of(&instance.id)),
            _ => None,
        };
        let _shared = match &shared {
            Some(lock) => Some(lock.lock().await),
            None => None,
        };
        if let Found::Unmarked(instance) = &found {
            report::left_behind(cluster.events(), service, &instance.id);
        }
        let mut observed = leaving.read(&cloud.slb, &self.bulk, &self.reader, found, &made).await?;
        let mut plan = leaving.plan(&observed);
        let problems = std::mem::take(&mut plan.problems);
        let token = Token::new(&settings.cluster_id, &service.uid, "");
        let execution = execute(&cloud.slb, fence, plan, &mut observed, &token, number_of(service)).await;
        if !execution.complete() {
            return Err(Trouble::Execution(execution));
        }
        if !problems.is_empty() {
            return Err(Trouble::Problems(problems));
        }
        if let (Some(_), Some(left)) = (leaving.reuse(), self.memory.creations.look_again(&service.key))
            && !left.is_zero()
        {
            // Something of ours may still show up on a load balancer that stays.
            return Ok(ReconcileResult::RequeueAfter(left));
        }
        let done = execution.done;
        let kept = leaving.keeps().then(|| observed.instance.map(|instance| instance.id)).flatten();
        status::release(cluster, fence, service).await?;
        self.memory.release(&service.key, &service.uid);
        if let Some(id) = kept {
            report::preserved(cluster.events(), service, &id);
        }
        report::cleaned(cluster.events(), service, &done);
        Ok(ReconcileResult::Done)
    }
}

/// Whether we began to look after the Service: this is written before anything is made.
fn is_ours(service: &ServiceView) -> bool {
    service.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}

/// Tells a Service from others where quotas are shared.
fn number_of(service: &ServiceView) -> u64 {
    let mut hasher = DefaultHasher::new();
    service.uid.hash(&mut hasher);
    hasher.finish().max(1)
}

/// Whether what was observed is the load balancer that the Service wants now.
fn is_of(observed: &Observed, desired: &Desired) -> bool {
    match (&observed.instance, &desired.reuse) {
        (None, _) => false,
        (Some(instance), Some(id)) => instance.id == *id,
        (Some(instance), None) => desired.owner.owns_load_balancer(&instance.name, &instance.tags),
    }
}

/// Whether a plan only moves backends within groups that are known: those can be written without reading again, because
/// each such write names exactly what it changes.
fn only_backends(plan: &Plan) -> bool {
    plan.steps.iter().all(|step| step.operation.part() == ResourceKind::Backends)
}
