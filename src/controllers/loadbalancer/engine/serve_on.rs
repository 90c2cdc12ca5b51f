//! Load balancers that only serve on: their backends follow the endpoints, and nothing else changes.
//!
//! That is so while one of the other kind is about to replace it, and while the Service names another load balancer by its
//! annotation that it cannot have.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Case, Engine, Halt};
use crate::controllers::loadbalancer::find::Unfound;
use crate::controllers::loadbalancer::prepare::Presence;
use crate::controllers::loadbalancer::product::Product;
use crate::controllers::workqueue::ReconcileResult;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::annotations::ID;
use crate::plan::loadbalancer::cloud::CloudModel;
use crate::plan::loadbalancer::handling::Handling;

impl<P: Product> Engine<P> {
    /// Lets the load balancer serve until one of the other kind does.
    pub(super) async fn serve_on(&self, case: &mut Case<P::Model>) -> Result<ReconcileResult, Halt> {
        self.restore_label(case).await?;
        case.service = Arc::new(P::KIND.superseded(&case.service));
        match self.follow(case).await {
            // Nothing says that it may be used any more.
            Err(Halt::Unfound(Unfound::Detached(_) | Unfound::Unfindable(_))) => Ok(ReconcileResult::Done),
            followed => followed,
        }
    }

    /// Removes the load balancer that one of the other kind has replaced, once clients had the time to notice.
    pub(super) async fn retire(&self, case: &mut Case<P::Model>) -> Result<ReconcileResult, Halt> {
        let since = *case.state.in_flight.superseded_since.get_or_insert_with(Instant::now);
        let left = case.settings.service.hand_over_grace.saturating_sub(since.elapsed());
        if left.is_zero() || case.state.in_flight.watch_may_lag_for().is_some() {
            case.service = Arc::new(P::KIND.superseded(&case.service));
            return self.remove(case).await;
        }
        case.handling = Handling::ServeOn;
        Ok(match self.serve_on(case).await? {
            ReconcileResult::RequeueAfter(sooner) => ReconcileResult::RequeueAfter(sooner.min(left)),
            _ => ReconcileResult::RequeueAfter(left),
        })
    }

    /// After a Service was refused the load balancer that it names now: backends follow on the one that serves it. Gives what
    /// is to be reported.
    pub(super) async fn follow_on_former(&self, case: &mut Case<P::Model>, refusal: Halt) -> Halt {
        let id = match (&refusal, P::KIND.former(&case.service)) {
            (Halt::Later(_), _) if refusal.is_under_way() => return refusal,
            (Halt::Unfound(Unfound::Detached(id)), _) => id.clone(),
            (_, Some(id)) => id.to_owned(),
            (_, None) => return refusal,
        };
        let mut former = case.naming(id);
        let followed = self.follow(&mut former).await;
        // What else was learned is about another load balancer than the next run looks at.
        (case.state.cached.unready, case.state.cached.refusals) =
            (former.state.cached.unready, former.state.cached.refusals);
        case.state.in_flight.changed_at = former.state.in_flight.changed_at;
        match followed {
            Err(halt) if halt.is_under_way() || matches!(halt, Halt::Execution(_)) => halt,
            _ => refusal,
        }
    }

    async fn follow(&self, case: &mut Case<P::Model>) -> Result<ReconcileResult, Halt> {
        let wanted = self.preparer.wanted(case).await?;
        let prepared = self.preparer.prepare(case, wanted).await?;
        let is_of_other = prepared.sighting.observed.tagged().is_some_and(|instance| {
            // The label can be a copy of another Service's.
            prepared.goal.owner().is_of_other_service(instance.tags)
        });
        if prepared.sighting.presence != Presence::Present || is_of_other {
            return Ok(ReconcileResult::Done);
        }
        let outcome = self.execute(case, prepared).await;
        let gates = self.write_gates(case, &outcome).await;
        outcome.wait(case)?;
        gates?;
        match &outcome.execution.failures {
            failures if failures.is_empty() => self.next_look(case, &outcome),
            failures => Err(Halt::Execution(Box::new(failures.clone()))),
        }
    }
}

impl<M: CloudModel> Case<M> {
    /// The same Service as it is to the load balancer with this id, which serves on, and of which nothing is remembered.
    fn naming(&self, id: String) -> Self {
        let mut service = ServiceView::clone(&self.service);
        service.annotations.insert(ID.full(), id);
        let mut state = self.state.clone();
        state.cached.known = None;
        let (settings, problems) = (self.settings.clone(), Vec::new());
        Self { service: Arc::new(service), settings, handling: Handling::ServeOn, state, problems }
    }
}
