//! Executes a plan, and remembers what came of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use crate::alibaba::Priority;
use crate::controllers::loadbalancer::creations::Inventory;
use crate::controllers::loadbalancer::execute::{Belief, Execution, Executor, Failures};
use crate::controllers::loadbalancer::prepare::{Case, Prepared, Presence};
use crate::controllers::loadbalancer::product::{CreationToken, Product};
use crate::controllers::loadbalancer::refusals::stocked;
use crate::controllers::loadbalancer::report::Halt;
use crate::controllers::loadbalancer::state::Known;
use crate::plan::digest;
use crate::plan::loadbalancer::cloud::CloudModel;
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, marked_uid};
use crate::plan::loadbalancer::steps::Step;

/// A network load balancer refuses other writes with `Conflict.Lock` while the cloud carries out one. The vendor does not document
/// for how long; 200 ms were observed.
const CHANGE_TIME: Duration = Duration::from_millis(250);

/// How many additions may be refused in one run, so that the search for the backends to blame holds up nothing else for long.
const REFUSED_IN_A_RUN: usize = 30;
/// Within this time, a new Service of which the cloud refuses backends is published with the first backend that the cloud accepts.
const NEW_FOR: Duration = Duration::from_secs(30);

/// The outcome of a plan.
pub(super) struct Outcome<P: Product> {
    pub(super) prepared: Prepared<P>,
    pub(super) execution: Execution<P::Model>,
    /// Steps that were left out wait this long, because a call whose answer was lost may have created their objects.
    pub(super) waits: Option<Duration>,
    /// Whether this reconcile did a step, so that the cloud carries out something that it did not before.
    pub(super) advances: bool,
}

impl<P: Product> Outcome<P> {
    /// Whether traffic reaches everything that is wanted, whatever the cloud refused besides.
    pub(super) fn is_complete(&self) -> bool {
        let Execution { failures, unserved, put_off, .. } = &self.execution;
        let is_done = failures.stopped.is_none() && !unserved && !put_off;
        is_done && self.waits.is_none() && self.look_again().is_none()
    }

    /// Why the Service is not served as it asks; `None` if it is.
    pub(super) fn failure(&self) -> Option<Halt> {
        let (failures, problems) = (&self.execution.failures, &self.prepared.plan.problems);
        if !failures.is_empty() {
            return Some(Halt::Execution(Box::new(failures.clone())));
        }
        (!problems.is_empty()).then(|| Halt::Problems(problems.clone()))
    }

    /// The creation of the load balancer, if it waits for its turn.
    pub(super) fn queued(&self) -> Option<Box<Failures>> {
        let failures = &self.execution.failures;
        let is_queued = failures.stopped.as_ref().is_some_and(|(_, fault)| fault.held_back());
        (is_queued && self.prepared.sighting.observed.id().is_none()).then(|| failures.clone().into())
    }

    /// When to read the status of pending jobs of the cloud.
    pub(super) fn look_again(&self) -> Option<Duration> {
        P::Model::look_again(&self.prepared.sighting.observed)
    }

    /// Ends a reconcile without failures while jobs of the cloud are pending.
    pub(super) fn wait(&self, case: &mut Case<P::Model>) -> Result<(), Halt> {
        match self.look_again() {
            Some(again) if self.execution.failures.is_empty() => {
                case.state.in_flight.started.clone_from(&self.execution.done);
                Err(Halt::under_way(again, self.advances))
            }
            _ => Ok(()),
        }
    }
}

impl<P: Product> Engine<P> {
    /// Executes the plan, and stores the outcome.
    pub(super) async fn execute(&self, case: &mut Case<P::Model>, mut prepared: Prepared<P>) -> Outcome<P> {
        let mut steps = std::mem::take(&mut prepared.plan.steps);
        let waits = case.state.in_flight.creations.first_to_wait(&steps).map(|(first, wait)| {
            steps.truncate(first);
            wait
        });
        let mut execution = Execution::default();
        let unread = std::mem::take(&mut prepared.sighting.unread);
        let sighting = &prepared.sighting;
        let before = case.state.cached.known.take();
        let doubted_before =
            !sighting.is_thorough && before.as_ref().is_some_and(|known| known.belief != Belief::Certain);
        let seen = (!steps.is_empty() || !unread.is_empty()).then(|| Inventory::of(&*sighting.observed));
        if !steps.is_empty() {
            execution = self.run(case, &mut prepared, steps).await;
        }
        let advances = !execution.done.is_empty();
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
            let after = Inventory::of(&*prepared.sighting.observed);
            case.state.in_flight.creations.note(&seen, &after, (&execution.uncertain, is_certain));
        }
        let observed = &prepared.sighting.observed;
        if observed.listeners.is_some() {
            case.state.in_flight.creations.note_bare(!observed.shows_parts(prepared.goal.owner()));
        }
        execution.unserved |= !prepared.failed_jobs.is_empty() || !unread.is_empty();
        execution.failures.refused.append(&mut prepared.failed_jobs);
        let read = |fault| ("look at the load balancer".to_owned(), fault);
        execution.failures.refused.extend(unread.into_iter().map(read));
        let again = case.state.cached.refusals.note(std::mem::take(&mut execution.refused_backends));
        self.preparer.states.budget.spend(&case.service.uid, again);
        let (groups, observed) = (prepared.goal.groups(), &prepared.sighting.observed);
        // Backends of a pending job are not in the group yet.
        execution.failures.look_again = P::Model::look_again(observed);
        let is_under_way = execution.failures.look_again.is_some();
        case.state.cached.refusals.retain(|key| {
            let is_there = |group: &ObservedGroup| group.members().iter().any(|backend| backend.key == *key);
            groups.values().any(|group| group.backends.contains(key))
                && (is_under_way || !observed.groups.values().any(is_there))
        });
        let outcome = Outcome { prepared, execution, waits, advances };
        if is_certain || (belief == Belief::Doubted && is_under_way) {
            case.state.cached.known = Some(self.known(&outcome.prepared, before, belief));
        }
        outcome
    }

    /// Executes the steps. Until their outcome is certain, no observed state is stored: the reconcile can be cancelled.
    async fn run(
        &self,
        case: &mut Case<P::Model>,
        prepared: &mut Prepared<P>,
        steps: Vec<Step<P::Model>>,
    ) -> Execution<P::Model> {
        let lock = match prepared.lock.take() {
            None => self.preparer.locks.lock(prepared.goal.named()).await,
            lock => lock,
        };
        case.state.in_flight.changed_at = Some(Instant::now());
        self.preparer.states.replace(&case.service.key, case.state.clone());
        let sighting = &mut prepared.sighting;
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
            stocked: stocked(prepared.goal.groups(), &sighting.observed.groups),
            most_refused: if is_new { 1 } else { REFUSED_IN_A_RUN },
            serve_others: &|backends| self.preparer.states.members_among(backends),
        };
        let execution = executor.run(steps, Arc::make_mut(&mut sighting.observed)).await;
        if execution.changes_balancer && P::Model::look_again(&sighting.observed).is_some() {
            tokio::spawn(async move {
                tokio::time::sleep(CHANGE_TIME).await;
                drop(lock);
            });
        }
        self.deleted.fetch_add(execution.deleted, Ordering::Relaxed);
        case.state.in_flight.changed_at = Some(Instant::now());
        execution
    }

    fn known(&self, prepared: &Prepared<P>, before: Option<Known<P::Model>>, belief: Belief) -> Known<P::Model> {
        let sighting = &prepared.sighting;
        let mut observed = sighting.observed.clone();
        match before {
            // An equal former value stays, so that a comparison of all load balancers does not fragment the memory.
            Some(before) if before.observed == observed => observed = before.observed,
            _ => self.texts.share(&mut observed),
        }
        let interfaces = prepared.references.as_ref().map(|references| references.interfaces.clone());
        Known {
            unlisted_reads: 1 + observed.groups.len(),
            is_last: sighting.presence == Presence::Last,
            observed,
            read_at: sighting.read_at,
            groups_read_at: sighting.groups_read_at,
            interfaces: interfaces.unwrap_or_default(),
            belief,
        }
    }
}

pub(super) fn creation_token<M: CloudModel>(case: &Case<M>, kind: LoadBalancerKind, is_absent: bool) -> CreationToken {
    let replaced = case.state.in_flight.replacement.replaced.as_deref();
    CreationToken {
        cluster_id: case.settings.cluster_id.clone(),
        service_uid: marked_uid(&case.service).to_owned(),
        incarnation: if is_absent { kind.incarnation(&case.service, replaced) } else { String::new() },
    }
}
