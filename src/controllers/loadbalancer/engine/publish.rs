//! Writes the outcome back to the Service and its pods, and tells users.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::outcome::{Outcome, creation_token};
use crate::alibaba::{Fault, FaultKind};
use crate::controllers::loadbalancer::creations::LISTS_CATCH_UP;
use crate::controllers::loadbalancer::prepare::{Case, Prepared, Presence};
use crate::controllers::loadbalancer::product::Product;
use crate::controllers::loadbalancer::readiness;
use crate::controllers::loadbalancer::references::OUTSIDE_AGAIN;
use crate::controllers::loadbalancer::report::{Halt, Notes, unlisted};
use crate::controllers::loadbalancer::state::{BACKENDS_WITHHELD, GROUPS_WITHHELD, SECOND_SIGHTING};
use crate::controllers::loadbalancer::status::{FailedWrite, WriteBack};
use crate::controllers::workqueue::ReconcileResult;
use crate::plan::loadbalancer::cloud::CloudModel as _;
use crate::plan::loadbalancer::gates::Registration;

impl<P: Product> Engine<P> {
    /// Publishes the load balancer, and says when the Service is reconciled again.
    pub(super) async fn publish(
        &self,
        case: &mut Case<P::Model>,
        outcome: &Outcome<P>,
    ) -> Result<ReconcileResult, Halt> {
        self.suspect_what_was_made(case, outcome)?;
        self.tell(case, outcome);
        let gates = self.write_gates(case, outcome).await;
        if let Err(under_way) = outcome.wait(case) {
            // What could not be written is written after the next look, for which later jobs wait.
            let _ = self.publish_first(case, outcome).await;
            return Err(under_way);
        }
        let result = gates.and_then(|()| self.next_look(case, outcome));
        self.write_back(case, outcome, result.is_ok()).await?;
        result
    }

    /// The cloud can answer a creation with a load balancer that was deleted, see [`super::state::Replacement::suspect`]. It
    /// refuses a creation whose parameters differ from an earlier one with the same token; the load balancer of that one then
    /// appears in a list, or was deleted as well.
    fn suspect_what_was_made(&self, case: &mut Case<P::Model>, outcome: &Outcome<P>) -> Result<(), Halt> {
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
    fn tell(&self, case: &mut Case<P::Model>, outcome: &Outcome<P>) {
        let Outcome { prepared, execution, .. } = outcome;
        if let Some(id) = prepared.sighting.observed.id().filter(|_| prepared.is_drift)
            && !execution.done.is_empty()
        {
            self.reporter.repaired(&case.service, id, &execution.done);
        }
        let goal = &prepared.goal;
        let withheld = self.preparer.views.withheld_backends(&case.service, goal);
        let withheld = withheld.filter(|_| prepared.plan.withholds_backends);
        self.withhold(case, BACKENDS_WITHHELD, withheld);
        let unlisted = unlisted(&prepared.sighting.observed.unlisted);
        self.withhold(case, GROUPS_WITHHELD, unlisted.as_deref());
        let (nodes, settings): (Vec<_>, Vec<_>) =
            goal.warnings().iter().chain(&prepared.plan.warnings).partition(|warning| warning.is_about_nodes());
        let empty_ports = goal.desired().into_iter().flat_map(|desired| &desired.empty_ports);
        let empty_ports: Vec<String> = empty_ports.map(ToString::to_string).collect();
        let notes = Notes {
            remarks: &execution.remarks,
            lines: settings
                .iter()
                .map(ToString::to_string)
                .chain(prepared.plan.notes.iter().cloned())
                .chain(nodes.iter().map(ToString::to_string))
                .collect(),
            empty_ports: &empty_ports,
            outside: goal.outside(),
            withholds: withheld.is_some(),
        };
        self.reporter.notes(&case.service, &notes, &mut case.state.told.notes);
    }

    /// Sets the readiness gates of pods that the load balancer knows.
    pub(super) async fn write_gates(&self, case: &Case<P::Model>, outcome: &Outcome<P>) -> Result<(), Halt> {
        let Some(references) = &outcome.prepared.references else { return Ok(()) };
        // A pending job can fail.
        let Some(groups) = P::Model::settled_groups(&outcome.prepared.sighting.observed) else { return Ok(()) };
        let goal = &outcome.prepared.goal;
        let registration = Registration {
            owner: goal.owner(),
            desired: goal.groups(),
            observed: &groups,
            unresolved: goal.unresolved(),
            outside: goal.outside(),
            attached: &references.attached,
            complete: outcome.is_complete(),
        };
        let written = readiness::write(&self.writer, &case.service, references, registration).await;
        written.map_err(|fault| FailedWrite::gates(fault).into())
    }

    /// Publishes a load balancer that serves already, although backends keep changing: a Service may have no quiet moment.
    async fn publish_first(&self, case: &mut Case<P::Model>, outcome: &Outcome<P>) -> Result<(), Halt> {
        let (observed, owner) = (&*outcome.prepared.sighting.observed, outcome.prepared.goal.owner());
        let is_first = case.service.ingress.is_empty() && outcome.waits.is_none() && !P::KIND.takes_over(&case.service);
        let serves = P::Model::settled_groups(observed).is_some() && observed.has_running_listener(owner);
        match observed.id() {
            Some(id) if is_first && serves => self.publish_as(case, outcome, id, false).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Remembers only what is still applied.
    async fn forget_applied(&self, case: &mut Case<P::Model>, prepared: &Prepared<P>) -> Result<(), Halt> {
        let applied = prepared.goal.still_applied(&case.state.in_flight.applied, &*prepared.sighting.observed);
        self.writer.set_applied(&case.service, &case.state.in_flight.applied, &applied).await?;
        case.state.in_flight.applied = applied;
        Ok(())
    }

    /// Writes the outcome back to the Service, and reports it. `is_last` says that nothing which could fail comes after it.
    async fn write_back(&self, case: &mut Case<P::Model>, outcome: &Outcome<P>, is_last: bool) -> Result<(), Halt> {
        let Outcome { prepared, execution, waits, .. } = outcome;
        if let (true, Some(again)) = (execution.failures.is_empty(), waits) {
            return Err(Halt::unsettled(*again));
        }
        let (observed, service) = (&*prepared.sighting.observed, &Arc::clone(&case.service));
        let failure = outcome.failure();
        // The other load balancer serves until this one does.
        let takes_over = P::KIND.takes_over(service);
        if observed.id().is_none() && execution.failures.is_empty() {
            self.forget_applied(case, prepared).await?;
        }
        if !self.is_publishable(case, outcome, takes_over) {
            return failure.map_or(Ok(()), Err);
        }
        let Some(id) = observed.id() else { return Ok(()) };
        let is_ready = is_last && failure.is_none() && !takes_over;
        let changed = self.publish_as(case, outcome, id, is_ready).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.forget_applied(case, prepared).await?;
        let asked = std::mem::take(&mut case.state.told.unanswered);
        let is_whole = case.state.cached.refusals.is_empty() && !execution.put_off;
        if is_whole && (changed || asked || !execution.done.is_empty()) {
            self.reporter.ensured(service, id, &execution.done);
        }
        Ok(())
    }

    /// Writes the labels and the addresses of the load balancer with this id, and, if it `is_ready`, the condition. True if any of
    /// them were others.
    async fn publish_as(
        &self,
        case: &mut Case<P::Model>,
        outcome: &Outcome<P>,
        id: &str,
        is_ready: bool,
    ) -> Result<bool, Halt> {
        let service = &Arc::clone(&case.service);
        // The label does not depend on the elastic address. During a hand-over it comes last, because the other load balancer
        // is removed once it is set.
        let labels = P::KIND.labels(service, id);
        let takes_over = P::KIND.takes_over(service);
        let (first, last) = if takes_over { (&labels[..0], &labels[..]) } else { (&labels[..], &labels[..0]) };
        let further = P::Model::further_label(&outcome.prepared.sighting.observed);
        let mut changed = self.writer.set_labels(service, first.iter().copied()).await?;
        changed |= self.writer.set_labels(service, further).await?;
        changed |= self.publish_addresses(case, outcome, id, is_ready).await?;
        changed |= self.writer.set_labels(service, last.iter().copied()).await?;
        Ok(changed)
    }

    /// Whether the load balancer can be published, although perhaps not everything that the Service asks for was done.
    fn is_publishable(&self, case: &Case<P::Model>, outcome: &Outcome<P>, takes_over: bool) -> bool {
        if outcome.failure().is_none() {
            return true;
        }
        let Outcome { prepared, execution, .. } = outcome;
        let (service, observed, goal) = (&case.service, &*prepared.sighting.observed, &prepared.goal);
        // The status of a published address also says which ports are served; an elastic address can change.
        let published = WriteBack::of::<P>(&self.writer.cluster, service, (goal, observed), &[]);
        let is_current = service.ingress == published.ingress || goal.publishes_elastic();
        // What one port lacks keeps no other from its clients.
        let has_address = !service.ingress.is_empty();
        let serves_there = !prepared.plan.is_unusable && observed.has_running_listener(goal.owner());
        let is_due = (has_address && is_current) || serves_there;
        let other_serves = has_address && takes_over;
        execution.failures.stopped.is_none() && is_due && !other_serves
    }

    /// Writes the addresses of the load balancer with this id, and, if it `is_ready`, the condition. True if the addresses were
    /// others.
    async fn publish_addresses(
        &self,
        case: &mut Case<P::Model>,
        outcome: &Outcome<P>,
        id: &str,
        is_ready: bool,
    ) -> Result<bool, Halt> {
        let (goal, sighting) = (&outcome.prepared.goal, &outcome.prepared.sighting);
        let service = &Arc::clone(&case.service);
        let takes_over = P::KIND.takes_over(service);
        let told = &case.state.told;
        let is_as_published = !service.ingress.is_empty() && told.published(&service.ingress);
        let is_look_due = told.unanswered || sighting.is_thorough || !is_as_published || takes_over;
        let elastic = match goal.publishes_elastic() {
            true if !is_look_due => return Ok(false),
            true => self.preparer.product.elastic_addresses(id).await.map_err(Halt::elastic_unknown)?,
            false => Vec::new(),
        };
        if goal.publishes_elastic() && elastic.is_empty() {
            self.reporter.no_elastic_address(service, id);
        }
        let published = WriteBack::of::<P>(&self.writer.cluster, service, (goal, &*sighting.observed), &elastic);
        let is_overwritten = case.state.told.publishes(&published.ingress) && published.ingress != service.ingress;
        if let Some(writer) = service.status_writer.as_deref().filter(|_| is_overwritten && !takes_over) {
            self.reporter.overwritten(service, writer);
        }
        Ok(self.writer.publish(case, &published, is_ready).await?)
    }

    /// When the Service is reconciled again although nothing changes.
    pub(super) fn next_look(&self, case: &Case<P::Model>, outcome: &Outcome<P>) -> Result<ReconcileResult, Halt> {
        let goal = &outcome.prepared.goal;
        if !goal.unresolved().is_empty() {
            return Err(Halt::Unresolved(goal.unresolved().clone()));
        }
        let waiting_pods = outcome.prepared.references.as_ref().map_or(0, |references| references.waiting_pods);
        let drift = self.preparer.drift.until_next(&case.settings.service);
        let refused = case.state.cached.refusals.again_in(self.preparer.states.budget.pause(&case.service.uid));
        let again = if outcome.execution.put_off { Some(Duration::from_secs(1)) } else { refused };
        let outside = (!goal.outside().is_empty()).then_some(OUTSIDE_AGAIN);
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
}
