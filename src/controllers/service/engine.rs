//! Reconciles one Service of any load balancer product.
//!
//! [`Engine::reconcile`] reads as the table of contents: desired state (reads), plan (reads), execution (writes to the cloud),
//! write-back to the Service, events.

mod restored;
mod serve_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::creations::{Inventory, LISTS_CATCH_UP};
use super::execute::{Belief, Execution, Executor, Failures};
use super::find::Unfound;
use super::prepare::{Case, Prepared, Preparer, Presence};
use super::product::{CreationToken, Product};
use super::readiness;
use super::references::OUTSIDE_AGAIN;
use super::refusals::stocked;
use super::report::{Halt, ServiceReporter};
use super::state::{BACKENDS_WITHHELD, GROUPS_WITHHELD, Known, LOAD_BALANCER_WITHHELD, SECOND_SIGHTING};
use super::status::{FailedWrite, ServiceWriter, WriteBack};
use super::texts::BackendTexts;
use super::{Context, settings_of};
use crate::alibaba::{Fault, FaultKind, Priority};
use crate::cluster::event_code;
use crate::controllers::workqueue::{ObjectReconciler, ReconcileResult};
use crate::plan::digest;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::service::handling::{Handling, LoadBalancerKind, is_inherited, unhandled};
use crate::plan::service::model::ObservedGroup;
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::operation::OperationModel;
use crate::plan::service::ownership::{LABEL_HASH, Owner, marked_uid};
use crate::plan::service::settings::ServiceSettings;
use crate::telemetry::alarms::ObjectTrouble;

/// A network load balancer refuses other writes with `Conflict.Lock` while the cloud carries out one. The vendor does not document
/// for how long; 200 ms were observed.
const CHANGE_TIME: Duration = Duration::from_millis(250);

/// After this time, the nodes that existed at the start are initialised, and identify the account.
const NODES_COME_UP: Duration = Duration::from_secs(2);

/// How many additions may be refused in one run, so that the search for the backends to blame holds up nothing else for long.
const REFUSED_IN_A_RUN: usize = 30;
/// Within this time, a new Service of which the cloud refuses backends is published with the first backend that the cloud accepts.
const NEW_FOR: Duration = Duration::from_secs(30);

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

/// The outcome of a plan.
struct Outcome<P: Product> {
    prepared: Prepared<P>,
    execution: Execution<P::Model>,
    /// Steps that were left out wait this long, because a call whose answer was lost may have created their objects.
    waits: Option<Duration>,
}

impl<P: Product> Outcome<P> {
    /// Whether the desired state was reached.
    fn is_complete(&self) -> bool {
        let is_done = self.execution.failures.is_empty() && !self.execution.put_off;
        is_done && self.waits.is_none() && self.look_again().is_none()
    }

    /// The creation of the load balancer, if it waits for its turn.
    fn queued(&self) -> Option<Failures> {
        let failures = &self.execution.failures;
        let is_queued = failures.stopped.as_ref().is_some_and(|(_, fault)| fault.held_back());
        (is_queued && self.prepared.sighting.observed.id().is_none()).then(|| failures.clone())
    }

    /// When to read the status of pending jobs of the cloud.
    fn look_again(&self) -> Option<Duration> {
        P::look_again(&self.prepared.sighting.observed)
    }

    /// Ends a reconcile without failures while jobs of the cloud are pending.
    fn wait(&self, case: &mut Case<P::Observed>) -> Result<(), Halt> {
        match self.look_again() {
            Some(again) if self.execution.failures.is_empty() => {
                case.state.in_flight.started.clone_from(&self.execution.done);
                Err(Halt::under_way(again))
            }
            _ => Ok(()),
        }
    }
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
        let states = &self.preparer.states;
        let settings = Arc::new(settings_of::<P>(
            &self.context.config.borrow(),
            self.context.cluster.uid(),
            &self.context.location,
        ));
        let Some(service) = self.preparer.views.services.store.get(key) else {
            self.preparer.resolver.candidates.forget(key);
            self.writer.forget(key);
            if let Some((service, may_own)) = states.drop(key) {
                if may_own {
                    self.reporter.vanished(&service);
                }
                self.product().forget(&Owner::of(&service, &settings)).await;
            }
            return ReconcileResult::Done;
        };
        let service = self.writer.newest(service);
        let mut state = states.read(key, &service.uid);
        state.in_flight.may_own |= P::KIND.may_be_left(&service);
        let handling = match state.in_flight.may_own {
            true => P::KIND.handling_of_owner(&service, &settings),
            false => P::KIND.handling(&service, &settings),
        };
        if !handling.serves() {
            self.preparer.resolver.candidates.forget(key);
        }
        if let Some(reason) = state.see(&service, handling.serves()) {
            self.reporter.changed(&service, reason);
        }
        self.tell_of_succession(&service, &settings, &mut state.told.succession);
        self.tell_of_neglect(&service, &settings, handling);
        let mut case = Case { service, settings, handling, state, problems: Vec::new() };
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
        self.note(&mut case, result.as_ref().err(), handling);
        let report = states.report(key);
        let again = self.writer.write_condition(&mut case, report.as_ref()).await;
        if result.as_ref().err().is_none_or(Halt::lasts) {
            case.state.in_flight.tickets.give_back();
        }
        let result = result.unwrap_or_else(|error| error.result());
        // The event is due then, if the fault lasts.
        let quiet = report.map(|report| report.quiet_for).filter(|left| !left.is_zero());
        let result = quiet.map_or(result, |left| result.within(left));
        let result = match (again, result) {
            (None, _) | (_, ReconcileResult::Failed(_)) => result,
            (Some(wait), _) => result.within(wait),
        };
        let result = case.state.second_sighting().map_or(result, |wait| result.within(wait));
        states.replace(key, case.state);
        result
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
        self.context.cloud.wake();
        self.preparer.states.due()
    }

    /// Services that are to be reconciled because of what changed on nodes.
    pub(super) fn concerned_by_nodes(&self) -> Vec<ObjectKey> {
        self.preparer.resolver.candidates.concerned(|key| self.preparer.states.knows(key))
    }

    pub(super) fn product(&self) -> &P {
        &self.preparer.product
    }

    async fn leave_alone(&self, case: &mut Case<P::Observed>) -> Result<ReconcileResult, Halt> {
        case.state.cached.known = None;
        self.withhold(case, BACKENDS_WITHHELD, None);
        self.withhold(case, GROUPS_WITHHELD, None);
        self.writer.remove_condition(case).await?;
        match P::KIND.handed_over(&case.service, &case.settings) {
            Some(problem) => Err(Halt::Problems(vec![problem])),
            None => Ok(ReconcileResult::Done),
        }
    }

    async fn ensure(&self, case: &mut Case<P::Observed>) -> Result<ReconcileResult, Halt> {
        (case.state.in_flight.released, case.state.in_flight.superseded_since) = (false, None);
        if let Some(failures) = case.state.in_flight.queued.as_ref().filter(|_| case.state.in_flight.tickets.are_away())
        {
            return Err(Halt::Execution(Box::new(failures.clone())));
        }
        self.take_over_restated(case).await?;
        let wanted = self.preparer.wanted(case).await?;
        case.state.in_flight.applied.extend(wanted.goal.facts().applies.iter().cloned());
        if !self.writer.add_finalizer(&mut case.service, &case.state.in_flight.applied).await? {
            return Ok(ReconcileResult::RequeueAfter(SECOND_SIGHTING));
        }
        let prepared = self.preparer.prepare(case, wanted).await?;
        self.see_again_before_recreating(case, &prepared)?;
        let outcome = self.execute(case, prepared).await;
        case.state.in_flight.queued = outcome.queued();
        self.suspect_what_was_made(case, &outcome)?;
        self.tell(case, &outcome);
        outcome.wait(case)?;
        let gates = self.write_gates(case, &outcome).await;
        let result = gates.and_then(|()| self.next_look(case, &outcome));
        self.write_back(case, &outcome, result.is_ok()).await?;
        result
    }

    /// Reports why no controller handles a Service that asks for a load balancer of this program. One controller reports it:
    /// that of classic load balancers, where it runs.
    fn tell_of_neglect(&self, service: &ServiceView, settings: &ServiceSettings, handling: Handling) {
        let is_first = P::KIND == LoadBalancerKind::Classic || !settings.controllers.contains(&super::NAME);
        let is_left = handling == Handling::Ignore && P::KIND.handed_over(service, settings).is_none();
        let why = unhandled(service, settings).filter(|_| is_first && is_left);
        let text = why.map(|why| format!("No controller handles this Service: {why}"));
        self.reporter.withheld(service, "ServiceNotHandled", text.as_deref());
    }

    /// Removes the label that marks a Service as inherited, once its user has edited one of the settings that were ignored
    /// before.
    async fn take_over_restated(&self, case: &mut Case<P::Observed>) -> Result<(), Halt> {
        if case.state.in_flight.restated && is_inherited(&case.service) {
            self.writer.remove_label(&case.service, LABEL_HASH).await?;
            Arc::make_mut(&mut case.service).labels.remove(LABEL_HASH);
        }
        case.state.in_flight.restated = false;
        Ok(())
    }

    /// A missing load balancer counts as deleted only after two reads that prove it.
    fn see_again_before_recreating(&self, case: &mut Case<P::Observed>, prepared: &Prepared<P>) -> Result<(), Halt> {
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

    /// Executes the plan, and stores the outcome.
    async fn execute(&self, case: &mut Case<P::Observed>, mut prepared: Prepared<P>) -> Outcome<P> {
        let mut steps = std::mem::take(&mut prepared.plan.steps);
        let waits = case.state.in_flight.creations.first_to_wait(&steps).map(|(first, wait)| {
            steps.truncate(first);
            wait
        });
        let mut execution = Execution::default();
        let sighting = &mut prepared.sighting;
        let unread = std::mem::take(&mut sighting.unread);
        let before = case.state.cached.known.take();
        let doubted_before =
            !sighting.is_thorough && before.as_ref().is_some_and(|known| known.belief != Belief::Certain);
        let seen = (!steps.is_empty() || !unread.is_empty()).then(|| Inventory::of(&*sighting.observed));
        if !steps.is_empty() {
            let lock = match prepared.lock.take() {
                None => self.preparer.locks.lock(prepared.goal.facts().named).await,
                lock => lock,
            };
            // Until the outcome is certain, no observed state is stored: the reconcile can be cancelled.
            case.state.in_flight.changed_at = Some(Instant::now());
            self.preparer.states.replace(&case.service.key, case.state.clone());
            let is_new = case.service.ingress.is_empty() && case.state.now() < NEW_FOR;
            let executor = Executor {
                product: &self.preparer.product,
                fence: &self.context.fence,
                stop: &self.context.stop,
                token: creation_token(case, P::KIND, sighting.observed.id().is_none()),
                priority: Priority {
                    tickets: Some(case.state.in_flight.tickets.clone()),
                    namespace: digest::number(&case.service.key.namespace),
                    ..Priority::default()
                },
                stocked: stocked(prepared.goal.facts().groups, sighting.observed.groups()),
                most_refused: if is_new { 1 } else { REFUSED_IN_A_RUN },
                serve_others: &|backends| self.preparer.states.members_among(backends),
            };
            execution = executor.run(steps, Arc::make_mut(&mut sighting.observed)).await;
            if execution.changes_balancer && P::look_again(&sighting.observed).is_some() {
                tokio::spawn(async move {
                    tokio::time::sleep(CHANGE_TIME).await;
                    drop(lock);
                });
            }
            self.deleted.fetch_add(execution.deleted, Ordering::Relaxed);
            case.state.in_flight.changed_at = Some(Instant::now());
        }
        execution.done.splice(0..0, std::mem::take(&mut case.state.in_flight.started));
        // A failed job changes nothing here: the state was read after it.
        let is_doubted = !execution.refused_backends.is_empty() || doubted_before;
        let belief = match execution.failures.belief() {
            _ if !unread.is_empty() => Belief::Lost,
            belief if is_doubted => belief.max(Belief::Doubted),
            belief => belief,
        };
        let is_certain = belief == Belief::Certain;
        if let Some(seen) = seen {
            let after = Inventory::of(&*sighting.observed);
            case.state.in_flight.creations.note(&seen, &after, (&execution.uncertain, is_certain));
        }
        execution.failures.refused.append(&mut prepared.failed_jobs);
        let read = |fault| ("look at the load balancer".to_owned(), fault);
        execution.failures.refused.extend(unread.into_iter().map(read));
        let again = case.state.cached.refusals.note(std::mem::take(&mut execution.refused_backends));
        self.preparer.states.budget.spend(&case.service.uid, again);
        let (groups, observed) = (prepared.goal.facts().groups, &prepared.sighting.observed);
        // Backends of a pending job are not in the group yet.
        execution.failures.look_again = P::look_again(observed);
        let is_under_way = execution.failures.look_again.is_some();
        case.state.cached.refusals.retain(|key| {
            let is_there = |group: &ObservedGroup| group.members().iter().any(|backend| backend.key == *key);
            groups.values().any(|group| group.backends.contains(key))
                && (is_under_way || !observed.groups().values().any(is_there))
        });
        let outcome = Outcome { prepared, execution, waits };
        if is_certain || (belief == Belief::Doubted && is_under_way) {
            case.state.cached.known = Some(self.known(&outcome.prepared, before, belief));
        }
        outcome
    }

    fn known(&self, prepared: &Prepared<P>, before: Option<Known<P::Observed>>, belief: Belief) -> Known<P::Observed> {
        let sighting = &prepared.sighting;
        let mut observed = sighting.observed.clone();
        if !before.is_some_and(|before| Arc::ptr_eq(&before.observed, &observed)) {
            self.texts.share(&mut observed);
        }
        let interfaces = prepared.references.as_ref().map(|references| references.interfaces.clone());
        Known {
            unlisted_reads: 1 + observed.groups().len(),
            is_last: sighting.presence == Presence::Last,
            observed,
            read_at: sighting.read_at,
            groups_read_at: sighting.groups_read_at,
            interfaces: interfaces.unwrap_or_default(),
            belief,
        }
    }

    /// The cloud can answer a creation with a load balancer that was deleted, see [`super::state::Replacement::suspect`]. It
    /// refuses a creation whose parameters differ from an earlier one with the same token; the load balancer of that one then
    /// appears in a list, or was deleted as well.
    fn suspect_what_was_made(&self, case: &mut Case<P::Observed>, outcome: &Outcome<P>) -> Result<(), Halt> {
        let sighting = &outcome.prepared.sighting;
        match (&outcome.execution.failures.stopped, sighting.observed.id()) {
            (Some((_, Fault { kind: FaultKind::Gone, .. })), Some(id)) if sighting.presence != Presence::Present => {
                let again = case.state.in_flight.replacement.suspect(id, SECOND_SIGHTING);
                Err(Halt::missing(id, again))
            }
            (Some((_, Fault { kind: FaultKind::Exists, .. })), None) => {
                let earlier = creation_token(case, P::KIND, true).incarnation;
                case.state.in_flight.replacement.suspect(&format!("after {earlier}"), LISTS_CATCH_UP);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reports what users should know although nothing failed.
    fn tell(&self, case: &mut Case<P::Observed>, outcome: &Outcome<P>) {
        let Outcome { prepared, execution, .. } = outcome;
        if let Some(id) = prepared.sighting.observed.id().filter(|_| prepared.is_drift)
            && !execution.done.is_empty()
        {
            self.reporter.repaired(&case.service, id, &execution.done);
        }
        let facts = prepared.goal.facts();
        let withheld = self.preparer.views.withheld_backends(&case.service, &facts);
        let withheld = withheld.filter(|_| prepared.plan.withholds_backends);
        self.withhold(case, BACKENDS_WITHHELD, withheld);
        let unlisted = super::report::unlisted(prepared.sighting.observed.unlisted());
        self.withhold(case, GROUPS_WITHHELD, unlisted.as_deref());
        let (nodes, settings): (Vec<_>, Vec<_>) =
            facts.warnings.iter().chain(&prepared.plan.warnings).partition(|warning| warning.is_about_nodes());
        let notes = super::report::Notes {
            remarks: &execution.remarks,
            lines: settings
                .iter()
                .map(ToString::to_string)
                .chain(prepared.plan.notes.iter().cloned())
                .chain(nodes.iter().map(ToString::to_string))
                .collect(),
            empty_ports: &facts.empty_ports,
            outside: facts.outside,
            withholds: withheld.is_some(),
        };
        self.reporter.notes(&case.service, &notes, &mut case.state.told.notes);
    }

    /// Withholds something for this `reason` and tells users why, or ends that.
    fn withhold(&self, case: &mut Case<P::Observed>, reason: &'static str, why: Option<&str>) {
        case.state.withhold(reason, why);
        self.reporter.withheld(&case.service, reason, why);
    }

    /// Sets the readiness gates of pods that the load balancer knows.
    async fn write_gates(&self, case: &Case<P::Observed>, outcome: &Outcome<P>) -> Result<(), Halt> {
        let Some(references) = &outcome.prepared.references else { return Ok(()) };
        if outcome.look_again().is_some() {
            // A pending job can fail.
            return Ok(());
        }
        let facts = outcome.prepared.goal.facts();
        let groups = outcome.prepared.sighting.observed.groups();
        let registration = readiness::registration(&facts, groups, references, outcome.is_complete());
        let written = readiness::write(&self.writer, &case.service, references, registration).await;
        written.map_err(|fault| FailedWrite::gates(fault).into())
    }

    /// Remembers only what is still applied.
    async fn forget_applied(&self, case: &mut Case<P::Observed>, prepared: &Prepared<P>) -> Result<(), Halt> {
        let facts = prepared.goal.facts();
        let applied = facts.still_applied(&case.state.in_flight.applied, &*prepared.sighting.observed);
        self.writer.set_applied(&case.service, &case.state.in_flight.applied, &applied).await?;
        case.state.in_flight.applied = applied;
        Ok(())
    }

    /// Writes the outcome back to the Service, and reports it. `is_last` says that nothing which could fail comes after it.
    async fn write_back(&self, case: &mut Case<P::Observed>, outcome: &Outcome<P>, is_last: bool) -> Result<(), Halt> {
        let Outcome { prepared, execution, waits } = outcome;
        if let (true, Some(again)) = (execution.failures.is_empty(), waits) {
            return Err(Halt::unsettled(*again));
        }
        let (goal, observed, service) = (&prepared.goal, &*prepared.sighting.observed, &Arc::clone(&case.service));
        let facts = goal.facts();
        let is_incomplete = !execution.failures.is_empty() || !prepared.plan.problems.is_empty();
        // The other load balancer serves until this one does.
        let takes_over = P::KIND.takes_over(service);
        if observed.id().is_none() && execution.failures.is_empty() {
            self.forget_applied(case, prepared).await?;
        }
        if is_incomplete {
            // The status of a published address also says which ports are served; an elastic address can change.
            let published = WriteBack::of::<P>(&self.writer.cluster, service, (goal, observed), &[]);
            let is_current = service.ingress == published.ingress || facts.publishes_elastic;
            // What one port lacks keeps no other from its clients.
            let has_address = !service.ingress.is_empty();
            let is_due = (has_address && is_current) || observed.has_running_listener(facts.owner);
            let other_serves = has_address && takes_over;
            if execution.failures.stopped.is_some() || !is_due || other_serves {
                return Err(failure(execution, &prepared.plan.problems));
            }
        }
        let Some(id) = observed.id() else { return Ok(()) };
        let asked = case.state.told.unanswered;
        let is_look_due = asked || prepared.sighting.is_thorough || service.ingress.is_empty() || takes_over;
        // The label does not depend on the elastic address. During a hand-over it comes last, because the other load balancer
        // is removed once it is set.
        let mut changed = false;
        if !takes_over {
            changed |= self.writer.set_labels(service, P::KIND.labels(service, id)).await?;
        }
        if let Some(label) = P::further_label(observed) {
            changed |= self.writer.set_labels(service, [label]).await?;
        }
        let elastic = match facts.publishes_elastic && is_look_due {
            true => Some(self.preparer.product.elastic_addresses(id).await.map_err(Halt::elastic_unknown)?),
            false => None,
        };
        if elastic.as_ref().is_some_and(Vec::is_empty) {
            self.reporter.no_elastic_address(service, id);
        }
        if !facts.publishes_elastic || elastic.is_some() {
            let elastic = elastic.unwrap_or_default();
            let published = WriteBack::of::<P>(&self.writer.cluster, service, (goal, observed), &elastic);
            let is_ready = is_last && !is_incomplete && !takes_over;
            let is_overwritten = case.state.told.publishes(&published.ingress) && published.ingress != service.ingress;
            if let Some(writer) = service.status_writer.as_deref().filter(|_| is_overwritten && !takes_over) {
                self.reporter.overwritten(service, writer);
            }
            changed |= self.writer.publish(case, &published, is_ready).await?;
        }
        if takes_over {
            changed |= self.writer.set_labels(service, P::KIND.labels(service, id)).await?;
        }
        if is_incomplete {
            return Err(failure(execution, &prepared.plan.problems));
        }
        self.forget_applied(case, prepared).await?;
        case.state.told.unanswered = false;
        let is_whole = case.state.cached.refusals.is_empty() && !execution.put_off;
        if is_whole && (changed || asked || !execution.done.is_empty()) {
            self.reporter.ensured(service, id, &execution.done);
        }
        Ok(())
    }

    /// When the Service is reconciled again although nothing changes.
    fn next_look(&self, case: &Case<P::Observed>, outcome: &Outcome<P>) -> Result<ReconcileResult, Halt> {
        let facts = outcome.prepared.goal.facts();
        if !facts.unresolved.is_empty() {
            return Err(Halt::Unresolved(facts.unresolved.clone()));
        }
        let waiting_pods = outcome.prepared.references.as_ref().map_or(0, |references| references.waiting_pods);
        let drift = self.preparer.drift.until_next(&case.settings.service);
        let refused = case.state.cached.refusals.again_in(self.preparer.states.budget.pause(&case.service.uid));
        let again = if outcome.execution.put_off { Some(Duration::from_secs(1)) } else { refused };
        let outside = (!facts.outside.is_empty()).then_some(OUTSIDE_AGAIN);
        let soonest = [
            drift,
            outside,
            readiness::look_again(waiting_pods),
            case.state.in_flight.creations.read_again_in(),
            again,
        ]
        .into_iter()
        .flatten()
        .min();
        let refused = case.state.cached.refusals.report();
        if !refused.is_empty() {
            return Err(Halt::out_of_sync(refused, soonest.unwrap_or_default()));
        }
        Ok(soonest.map_or(ReconcileResult::Done, ReconcileResult::RequeueAfter))
    }

    /// Removes what was created for the Service, then the finalizer.
    async fn remove(&self, case: &mut Case<P::Observed>) -> Result<ReconcileResult, Halt> {
        if case.state.in_flight.released {
            return Ok(ReconcileResult::Done);
        }
        self.leave_former(case).await?;
        let wanted = self.preparer.wanted(case).await?;
        let prepared = self.preparer.prepare(case, wanted).await?;
        if let Some(wait) = self.see_again_before_releasing(case, &prepared) {
            return Ok(ReconcileResult::RequeueAfter(wait));
        }
        self.name_before_deleting(case, &prepared).await?;
        let outcome = self.execute(case, prepared).await;
        outcome.wait(case)?;
        let Outcome { prepared, execution, .. } = outcome;
        if !execution.failures.is_empty() || !prepared.plan.problems.is_empty() {
            return Err(failure(&execution, &prepared.plan.problems));
        }
        let facts = prepared.goal.facts();
        if let Some(wait) =
            case.state.in_flight.creations.settles_in().filter(|wait| facts.named.is_some() && !wait.is_zero())
        {
            // A recent creation may still appear on a load balancer that stays.
            return Err(Halt::unsettled(wait));
        }
        // Before the finalizer: no controller looks at the Service afterwards.
        self.writer.remove_condition(case).await?;
        self.writer.release(&case.service, case.handling).await?;
        case.state.release();
        self.product().forget(facts.owner).await;
        if let Some(id) = prepared.sighting.observed.id().filter(|_| facts.is_kept) {
            self.reporter.preserved(&case.service, id);
        }
        // Jobs that deleted things have ended.
        self.deleted.fetch_add(execution.done.len(), Ordering::Relaxed);
        self.reporter.cleaned(&case.service, &execution.done);
        Ok(ReconcileResult::Done)
    }

    /// A Service that stays can ask for a load balancer again before the finalizer is removed. So a label names the one that is
    /// deleted: a process that starts meanwhile does not ask for that one again.
    async fn name_before_deleting(&self, case: &Case<P::Observed>, prepared: &Prepared<P>) -> Result<(), Halt> {
        let facts = prepared.goal.facts();
        let is_deleted = facts.named.is_none() && !facts.is_kept && !case.service.deleting;
        let unnamed = |id: &&str| *id != P::KIND.label(&case.service);
        if let Some(id) = prepared.sighting.observed.id().filter(unnamed).filter(|_| is_deleted) {
            self.writer.set_labels(&case.service, [(P::KIND.naming_label(&case.service), Some(id))]).await?;
        }
        Ok(())
    }

    /// How long to wait before the finalizer of a Service without a load balancer is removed: a call whose answer was lost may
    /// just have created it, or the list may be empty because a permission is missing.
    fn see_again_before_releasing(&self, case: &mut Case<P::Observed>, prepared: &Prepared<P>) -> Option<Duration> {
        match &prepared.sighting.presence {
            Presence::Absent { proven: false } => {
                let wait = case.until_second_sighting();
                if !wait.is_zero() {
                    return Some(wait);
                }
                let id = P::KIND.label(&case.service);
                if !id.is_empty() {
                    self.reporter.left_behind(&case.service, id);
                }
            }
            Presence::Unmarked(id) => self.reporter.left_behind(&case.service, id),
            Presence::Present | Presence::Last | Presence::Absent { proven: true } => {}
        }
        None
    }

    /// Notes why the Service is not in sync, or that it is.
    fn note(&self, case: &mut Case<P::Observed>, error: Option<&Halt>, handling: Handling) {
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
}

impl<O> Case<O> {
    /// Notes that the load balancer was not found. Returns the time until that counts as deleted.
    fn until_second_sighting(&mut self) -> Duration {
        let since = self.state.in_flight.missing_since.get_or_insert_with(Instant::now);
        SECOND_SIGHTING.saturating_sub(since.elapsed())
    }
}

fn failure(
    execution: &Execution<impl OperationModel>,
    problems: &[crate::plan::service::problem::ServiceProblem],
) -> Halt {
    if execution.failures.is_empty() {
        Halt::Problems(problems.to_vec())
    } else {
        Halt::Execution(Box::new(execution.failures.clone()))
    }
}

fn creation_token<O>(case: &Case<O>, kind: LoadBalancerKind, is_absent: bool) -> CreationToken {
    let replaced = case.state.in_flight.replacement.replaced.as_deref();
    CreationToken {
        cluster_id: case.settings.cluster_id.clone(),
        service_uid: marked_uid(&case.service).to_owned(),
        incarnation: if is_absent { kind.incarnation(&case.service, replaced) } else { String::new() },
    }
}
