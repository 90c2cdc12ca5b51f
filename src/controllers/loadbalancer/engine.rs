//! Reconciles one Service of any load balancer product.
//!
//! The stages: [`view`] (memory), desired state, observed state and plan (reads; see [`super::prepare`]), [`outcome`] (writes to the
//! cloud), [`publish`] (writes to the Service). `Engine::conclude` reports how it ended. A stage that does not continue gives a
//! [`Halt`].

mod leave;
mod outcome;
mod publish;
mod restored;
mod serve_on;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::Context;
use super::find::Unfound;
use super::prepare::{Case, Prepared, Preparer, Presence};
use super::product::Product;
use super::report::{Halt, ServiceReporter};
use super::state::{BACKENDS_WITHHELD, GROUPS_WITHHELD, LOAD_BALANCER_WITHHELD, SECOND_SIGHTING};
use super::status::ServiceWriter;
use super::texts::BackendTexts;
use crate::cluster::event_code;
use crate::controllers::workqueue::{ObjectReconciler, ReconcileResult};
use crate::plan::inputs::ObjectKey;
use crate::plan::loadbalancer::annotations::ID;
use crate::plan::loadbalancer::cloud::CloudModel;
use crate::plan::loadbalancer::handling::{Handling, is_inherited};
use crate::plan::loadbalancer::ownership::{LABEL_HASH, Owner};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Plan;
use crate::telemetry::alarms::ObjectTrouble;

/// After this time, the nodes that existed at the start are initialised, and identify the account.
const NODES_COME_UP: Duration = Duration::from_secs(2);

/// What all reconciles of one leadership term share.
#[derive(Debug)]
pub(super) struct Engine<P: Product> {
    context: Context,
    preparer: Preparer<P>,
    writer: ServiceWriter,
    reporter: ServiceReporter,
    texts: BackendTexts,
    /// How many things were deleted of which there is a quota.
    deleted: AtomicUsize,
}

impl<P: Product> ObjectReconciler for Engine<P> {
    const NAME: &'static str = P::CONTROLLER;

    fn concurrency(&self) -> usize {
        P::options(&self.context.config.borrow()).concurrency
    }

    /// A change of a Service that is served is probably one of its backends. A Service whose load balancer is being made comes
    /// later.
    fn is_urgent(&self, key: &ObjectKey) -> bool {
        self.preparer.states.serves(key) || self.preparer.states.is_ahead(key)
    }

    fn scheduled(&self, key: &ObjectKey, after: Option<Duration>) {
        let states = &self.preparer.states;
        match states.scheduled(key, after) {
            Some(uid) => self.reporter.tell(key, &uid, states.report(key)),
            None => self.reporter.forget(key),
        }
    }

    fn take_deleted(&self) -> usize {
        self.deleted.swap(0, Ordering::Relaxed)
    }

    async fn reconcile(&self, key: &ObjectKey) -> ReconcileResult {
        let Some(mut case) = self.view(key).await else { return ReconcileResult::Done };
        let handling = case.handling;
        let result = match handling {
            Handling::Ignore => self.leave_alone(&mut case).await,
            Handling::Ensure => match self.ensure(&mut case).await {
                Err(Halt::Unfound(Unfound::OfOtherService(id))) => self.take_back(&mut case, id).await,
                Err(refusal) => Err(self.follow_on_former(&mut case, refusal).await),
                ensured => ensured,
            },
            Handling::ServeOn => self.serve_on(&mut case).await,
            Handling::Retire => self.retire(&mut case).await,
            Handling::Delete => self.remove(&mut case).await,
        };
        self.conclude(case, handling, result).await
    }
}

impl<P: Product> Engine<P> {
    pub(super) fn new(context: Context, preparer: Preparer<P>) -> Self {
        let writer = ServiceWriter::new(P::KIND, context.cluster.clone(), context.fence.clone());
        let reporter = ServiceReporter { events: context.cluster.events().clone(), component: P::COMPONENT };
        let (texts, deleted) = (BackendTexts::default(), AtomicUsize::new(0));
        Self { context, preparer, writer, reporter, texts, deleted }
    }

    /// Identifies the account, so that no Service has to wait for that.
    pub(super) async fn warm(&self) {
        let nodes = || self.preparer.views.nodes.store.all();
        // Each Service that needs it retries, and reports the fault.
        if !self.preparer.account.recognises(&nodes()).await {
            tokio::time::sleep(NODES_COME_UP).await;
            let _ = self.preparer.account.recognises(&nodes()).await;
        }
    }

    /// Notes that these Services changed. The engine reads the load balancers of such Services before those of others.
    pub(super) fn put_ahead<'a>(&self, changed: impl IntoIterator<Item = &'a ObjectKey>) {
        let store = &self.preparer.views.services.store;
        let has_one = |key: &&ObjectKey| store.get(key).is_some_and(|service| P::KIND.had_one(&service));
        self.preparer.states.put_ahead(changed.into_iter().filter(has_one));
    }

    /// Services that have to prepare the calls that they wait to make, as their turn comes soon.
    pub(super) fn due(&self) -> Vec<ObjectKey> {
        // This is asked every second: a large cluster has thousands of Services, and as a rule none is due.
        if self.context.cloud.wake() { self.preparer.states.due() } else { Vec::new() }
    }

    /// Services that are to be reconciled because of what changed on nodes.
    pub(super) fn concerned_by_nodes(&self) -> Vec<ObjectKey> {
        self.preparer.resolver.candidates.concerned(|key| self.preparer.states.knows(key))
    }

    pub(super) fn product(&self) -> &P {
        &self.preparer.product
    }

    async fn leave_alone(&self, case: &mut Case<P::Model>) -> Result<ReconcileResult, Halt> {
        case.state.cached.known = None;
        self.withhold(case, BACKENDS_WITHHELD, None);
        self.withhold(case, GROUPS_WITHHELD, None);
        self.writer.remove_condition(case).await?;
        match P::KIND.handed_over(&case.service, &case.settings) {
            Some(problem) => Err(Halt::Problems(vec![problem])),
            None => Ok(ReconcileResult::Done),
        }
    }

    async fn ensure(&self, case: &mut Case<P::Model>) -> Result<ReconcileResult, Halt> {
        case.state.in_flight.superseded_since = None;
        if let Some(failures) = case.state.in_flight.queued.as_ref().filter(|_| case.state.in_flight.tickets.are_away())
        {
            return Err(Halt::Execution(failures.clone()));
        }
        self.take_over_restated(case).await?;
        let was_managed = P::KIND.is_managed(&case.service);
        let wanted = self.preparer.wanted(case).await?;
        let applies = wanted.goal.desired().into_iter().flat_map(|desired| &desired.applies);
        case.state.in_flight.applied.extend(applies.cloned());
        if !self.writer.add_finalizer(&mut case.service, &case.state.in_flight.applied).await? {
            return Ok(ReconcileResult::RequeueAfter(SECOND_SIGHTING));
        }
        self.restore_label(case).await?;
        let prepared = self.preparer.prepare(case, wanted).await;
        if self.preparer.moves(case, prepared.as_ref(), was_managed).await? {
            // Its lock is that of the load balancer to which the Service moves: the removal waits for another one.
            drop(prepared);
            case.start_again();
            return self.remove(case).await;
        }
        let prepared = prepared?;
        case.state.in_flight.released = None;
        self.see_again_before_recreating(case, &prepared)?;
        let Plan { steps, problems, is_unusable, .. } = &prepared.plan;
        let is_used = !is_unusable && (!steps.is_empty() || problems.is_empty());
        if let Some(id) = prepared.goal.named().filter(|_| is_used) {
            self.use_named(case, prepared.goal.owner(), id).await?;
        }
        let outcome = self.execute(case, prepared).await;
        case.state.in_flight.queued = outcome.queued();
        self.publish(case, &outcome).await
    }

    /// Labels the Service with the load balancer of a user before anything is made there: no mark leads to it once the Service
    /// names another one. A Service that has a load balancer of its own keeps that: nothing would lead to it any more.
    async fn use_named(&self, case: &mut Case<P::Model>, owner: &Owner, id: &str) -> Result<(), Halt> {
        let former = P::KIND.label(&case.service).to_owned();
        let moves = !former.is_empty() && former != id;
        if moves && self.preparer.is_own(owner, &former).await? {
            let rule =
                format!("the Service has load balancer {former}, which was made for it; delete it and make it again");
            return Err(Halt::Problems(vec![ServiceProblem::invalid(ID.full(), id, rule)]));
        }
        self.name(case, id).await?;
        if moves {
            self.reporter.moved(&case.service, &former, id);
        }
        Ok(())
    }

    /// Labels the Service with this load balancer.
    pub(super) async fn name(&self, case: &mut Case<P::Model>, id: &str) -> Result<(), Halt> {
        if P::KIND.label(&case.service) != id {
            self.write_label(case, P::KIND.naming_label(&case.service), id).await?;
        }
        Ok(())
    }

    /// Puts the label back that another client dropped, while the Service is served: nothing else leads to the load balancer of
    /// a user that the annotation no longer names.
    pub(super) async fn restore_label(&self, case: &mut Case<P::Model>) -> Result<(), Halt> {
        match P::KIND.label(&case.service) {
            "" => {
                if let Some(id) = case.state.in_flight.labelled.clone().filter(|_| !case.service.ingress.is_empty()) {
                    self.write_label(case, P::KIND.naming_label(&case.service), &id).await?;
                }
            }
            id => case.state.in_flight.labelled = Some(id.to_owned()),
        }
        Ok(())
    }

    async fn write_label(&self, case: &mut Case<P::Model>, label: &'static str, id: &str) -> Result<(), Halt> {
        self.writer.set_labels(&case.service, [(label, Some(id))]).await?;
        Arc::make_mut(&mut case.service).labels.insert(label.to_owned(), id.to_owned());
        Ok(())
    }

    /// Removes the label that marks a Service as inherited, once its user has edited one of the settings that were ignored
    /// before.
    async fn take_over_restated(&self, case: &mut Case<P::Model>) -> Result<(), Halt> {
        if case.state.in_flight.restated && is_inherited(&case.service) {
            self.writer.set_labels(&case.service, [(LABEL_HASH, None)]).await?;
            Arc::make_mut(&mut case.service).labels.remove(LABEL_HASH);
        }
        case.state.in_flight.restated = false;
        Ok(())
    }

    /// A missing load balancer counts as deleted only after two reads that prove it.
    fn see_again_before_recreating(&self, case: &mut Case<P::Model>, prepared: &Prepared<P>) -> Result<(), Halt> {
        let id = P::KIND.label(&case.service).to_owned();
        let is_gone = prepared.sighting.presence == Presence::Absent { proven: true } && !id.is_empty();
        if is_gone {
            let again = case.until_second_sighting();
            if !again.is_zero() {
                // The second read must not use the cached state.
                case.state.cached.known = None;
                return Err(Halt::missing(&id, again));
            }
            self.reporter.recreating(&case.service, &id);
        }
        case.state.in_flight.missing_since = None;
        Ok(())
    }

    /// Stores and reports how the reconcile ended, and says when the next one is due. `handling` is what it began with.
    async fn conclude(
        &self,
        mut case: Case<P::Model>,
        handling: Handling,
        result: Result<ReconcileResult, Halt>,
    ) -> ReconcileResult {
        let states = &self.preparer.states;
        self.note(&mut case, result.as_ref().err(), handling);
        let report = states.report(&case.service.key);
        let again = self.writer.write_condition(&mut case, report.as_ref()).await;
        if result.as_ref().err().is_none_or(Halt::lasts) {
            case.state.in_flight.tickets.give_back();
        }
        let result = result.unwrap_or_else(|halt| halt.result());
        // The event is due then, if the fault lasts.
        let quiet = report.as_ref().map(|report| report.quiet_for).filter(|left| !left.is_zero());
        let again = again.filter(|_| !matches!(result, ReconcileResult::Failed(_)));
        let result =
            [quiet, again, case.state.second_sighting()].into_iter().flatten().fold(result, ReconcileResult::within);
        let key = case.service.key.clone();
        if case.state.is_blank() && report.is_none() {
            // A large cluster has thousands of Services of the other product.
            states.drop(&key);
        } else {
            states.replace(&key, case.state);
        }
        result
    }

    /// Notes why the Service is not in sync, or that it is.
    fn note(&self, case: &mut Case<P::Model>, error: Option<&Halt>, handling: Handling) {
        let doubt = error.filter(|error| error.is_doubt()).map(ToString::to_string);
        case.state.withhold(LOAD_BALANCER_WITHHELD, doubt.as_deref());
        let whole = error.map(|error| error.beside(&case.problems)).unwrap_or_default();
        let trouble = error.map(|error| error.trouble(handling, &whole));
        if let (true, Some(ObjectTrouble { reason, .. })) = (error.is_some_and(Halt::is_logged), &trouble) {
            warn!(code = event_code(reason), "{whole}");
        }
        let cause = trouble.as_ref().and_then(|trouble| trouble.cause.clone());
        if self.preparer.states.out_of_sync(&case.service.key, trouble) {
            self.reporter.shared(&cause.unwrap_or_default());
        }
    }

    /// Withholds something for this `reason` and tells users why, or ends that.
    fn withhold(&self, case: &mut Case<P::Model>, reason: &'static str, why: Option<&str>) {
        case.state.withhold(reason, why);
        self.reporter.withheld(&case.service, reason, why);
    }
}

impl<M: CloudModel> Case<M> {
    /// Notes that the load balancer was not found. Returns the time until that counts as deleted.
    fn until_second_sighting(&mut self) -> Duration {
        let since = self.state.in_flight.missing_since.get_or_insert_with(Instant::now);
        SECOND_SIGHTING.saturating_sub(since.elapsed())
    }
}
