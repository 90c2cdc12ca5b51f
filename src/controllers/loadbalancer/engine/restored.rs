//! Services that were restored from a backup: their load balancers carry the mark of another UID.

use super::{Case, Engine, Halt};
use crate::controllers::loadbalancer::find::Unfound;
use crate::controllers::loadbalancer::left_behind::read_marks;
use crate::controllers::loadbalancer::product::Product;
use crate::controllers::loadbalancer::state::SECOND_SIGHTING;
use crate::controllers::orphan::owners;
use crate::controllers::workqueue::ReconcileResult;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::ownership::{CLUSTER_UID_TAG, MARK_TAG, default_name, marked_uid};

impl<P: Product> Engine<P> {
    /// Takes the load balancer with this id back, which the label names, if it is proven to have been made for the Service.
    pub(super) async fn take_back(&self, case: &mut Case<P::Model>, id: String) -> Result<ReconcileResult, Halt> {
        // Its user may drop the label.
        case.state.in_flight.labelled = None;
        let Some(uid) = self.uid_before(case, &id).await? else { return Err(Unfound::OfOtherService(id).into()) };
        self.writer.set_restored(&case.service, &uid).await?;
        self.reporter.restored(&case.service, &id);
        Ok(ReconcileResult::RequeueAfter(SECOND_SIGHTING))
    }

    /// What the mark of the load balancer is made of: if it carries the UID of the cluster, no other Service claims it, and all
    /// marks of its listeners and server groups name this Service.
    async fn uid_before(&self, case: &Case<P::Model>, id: &str) -> Result<Option<String>, Halt> {
        let observed = read_marks(self.product(), id, &case.settings).await?;
        let goal = Goal::<P::Model>::removal(&case.service, &case.settings);
        let owner = goal.owner();
        let Some(mark) = observed.tagged().and_then(|instance| instance.tags.get(MARK_TAG)) else { return Ok(None) };
        let is_of_cluster = observed.tagged().is_some_and(|instance| {
            let uid = instance.tags.get(CLUSTER_UID_TAG);
            !owner.is_of_other_cluster(instance.tags) && uid.is_some_and(|uid| *uid == owner.cluster_uid)
        });
        let Ok(services) = owners(&self.preparer.views.services.store) else { return Ok(None) };
        let is_claimed = services.iter().any(|service| default_name(marked_uid(service)) == *mark);
        let is_named = !observed.groups_of_listeners(owner).is_empty() && observed.other_owners(owner).is_empty();
        let uid = mark.chars().skip(1).collect();
        Ok((is_of_cluster && !is_claimed && is_named).then_some(uid))
    }
}
