//! Load balancers that only serve on: their backends follow the endpoints, and nothing else changes.
//!
//! That is so while one of the other kind is about to replace it, and while the Service names another load balancer by its
//! annotation that it cannot have.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Case, Engine, ReconcileError, failure};
use crate::controllers::service::prepare::Presence;
use crate::controllers::service::product::Product;
use crate::controllers::service::state::is_news;
use crate::controllers::workqueue::ReconcileResult;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::ID;
use crate::plan::service::handling::Handling;
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::settings::ServiceSettings;

impl<P: Product> Engine<P> {
    /// Says what happens to a load balancer that one of the other kind replaces.
    pub(super) fn tell_of_succession(&self, service: &ServiceView, settings: &ServiceSettings, told: &mut String) {
        let text = P::KIND.succession(service, settings).unwrap_or_default();
        if is_news(told, &text) {
            self.reporter.succession(service, text);
        }
    }

    /// Lets the load balancer serve until one of the other kind does.
    pub(super) async fn serve_on(&self, case: &mut Case<P::Observed>) -> Result<ReconcileResult, ReconcileError> {
        case.service = Arc::new(P::KIND.superseded(&case.service));
        match self.follow(case).await {
            // Nothing says that it may be used any more.
            Err(ReconcileError::Detached(_) | ReconcileError::Unfindable(_)) => Ok(ReconcileResult::Done),
            followed => followed,
        }
    }

    /// Removes the load balancer that one of the other kind has replaced, once clients had the time to notice.
    pub(super) async fn retire(&self, case: &mut Case<P::Observed>) -> Result<ReconcileResult, ReconcileError> {
        let since = *case.state.superseded_since.get_or_insert_with(Instant::now);
        let left = case.settings.service.hand_over_grace.saturating_sub(since.elapsed());
        if left.is_zero() || case.state.released {
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
    pub(super) async fn follow_on_former(
        &self,
        case: &mut Case<P::Observed>,
        refusal: ReconcileError,
    ) -> ReconcileError {
        let id = match (&refusal, P::KIND.former(&case.service)) {
            (ReconcileError::UnderWay(_), _) => return refusal,
            (ReconcileError::Detached(id), _) => id.clone(),
            (_, Some(id)) => id.to_owned(),
            (_, None) => return refusal,
        };
        let mut service = ServiceView::clone(&case.service);
        service.annotations.insert(ID.full(), id);
        let (service, settings, state) = (Arc::new(service), case.settings.clone(), case.state.clone());
        let mut former = Case { service, settings, handling: Handling::ServeOn, state };
        former.state.known = None;
        let followed = self.follow(&mut former).await;
        // What else was learned is about another load balancer than the next run looks at.
        (case.state.unready, case.state.refusals) = (former.state.unready, former.state.refusals);
        case.state.changed_at = former.state.changed_at;
        match followed {
            Err(error @ (ReconcileError::Execution(_) | ReconcileError::UnderWay(_))) => error,
            _ => refusal,
        }
    }

    async fn follow(&self, case: &mut Case<P::Observed>) -> Result<ReconcileResult, ReconcileError> {
        let wanted = self.preparer.wanted(case).await?;
        let prepared = self.preparer.prepare(case, wanted).await?;
        let is_of_other = prepared.sighting.observed.tagged().is_some_and(|instance| {
            // The label can be a copy of another Service's.
            P::facts(&prepared.goal).owner.is_of_other_service(instance.tags)
        });
        if prepared.sighting.presence != Presence::Present || is_of_other {
            return Ok(ReconcileResult::Done);
        }
        let outcome = self.execute(case, prepared).await;
        outcome.wait(case)?;
        self.write_gates(case, &outcome).await?;
        if !outcome.execution.failures.is_empty() {
            return Err(failure(&outcome.execution, &[]));
        }
        self.next_look(case, &outcome)
    }
}
