//! Services that leave: everything that was made for them goes, the finalizer last.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Engine;
use super::outcome::Outcome;
use crate::cluster::WriteFault;
use crate::controllers::loadbalancer::prepare::{Case, Prepared, Presence};
use crate::controllers::loadbalancer::product::Product;
use crate::controllers::loadbalancer::report::Halt;
use crate::controllers::loadbalancer::status::FailedWrite;
use crate::controllers::workqueue::ReconcileResult;

impl<P: Product> Engine<P> {
    /// Removes what was created for the Service, then the finalizer.
    pub(super) async fn remove(&self, case: &mut Case<P::Model>) -> Result<ReconcileResult, Halt> {
        if let Some(left) = case.state.in_flight.watch_may_lag_for() {
            return Ok(ReconcileResult::RequeueAfter(left));
        }
        self.restore_label(case).await?;
        let wanted = self.preparer.wanted(case).await?;
        let prepared = self.preparer.prepare(case, wanted).await?;
        if let Some(wait) = self.see_again_before_releasing(case, &prepared) {
            return Ok(ReconcileResult::RequeueAfter(wait));
        }
        let is_deleted = prepared.goal.named().is_none() && !prepared.goal.is_kept() && !case.service.deleting;
        if let Some(id) = prepared.sighting.observed.id().filter(|_| is_deleted) {
            // The Service can ask for a load balancer again before the finalizer is removed. A process that starts meanwhile does
            // not ask for this one again.
            self.name(case, id).await?;
        }
        let outcome = self.execute(case, prepared).await;
        outcome.wait(case)?;
        if let Some(halt) = outcome.failure() {
            return Err(halt);
        }
        let Outcome { prepared, execution, .. } = outcome;
        let goal = &prepared.goal;
        if let Some(wait) = case.state.in_flight.creations.settles_in().filter(|wait| !wait.is_zero()) {
            // A list may still show what a call with a lost answer made.
            return Err(Halt::unsettled(wait));
        }
        // Before the finalizer: a process that stops now must not leave the condition. One that is refused is retried afterwards.
        match self.writer.remove_condition(case).await {
            Err(FailedWrite { fault: WriteFault::Rejected(_), .. }) => {}
            removed => removed?,
        }
        self.writer.release(&case.service, case.handling).await?;
        case.state.release();
        self.product().forget(goal.owner()).await;
        if let Some(id) = prepared.sighting.observed.id().filter(|_| goal.is_kept()) {
            self.reporter.preserved(&case.service, id);
        }
        // Jobs that deleted things have ended.
        self.deleted.fetch_add(execution.done.len(), Ordering::Relaxed);
        self.reporter.cleaned(&case.service, &execution.done);
        Ok(ReconcileResult::Done)
    }

    /// How long to wait before the finalizer of a Service without a load balancer is removed: a call whose answer was lost may
    /// just have created it, or the list may be empty because a permission is missing.
    fn see_again_before_releasing(&self, case: &mut Case<P::Model>, prepared: &Prepared<P>) -> Option<Duration> {
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
}
