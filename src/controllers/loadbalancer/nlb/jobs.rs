//! What the cloud carries out after it has answered.

use std::collections::BTreeMap;

use super::NlbProduct;
use crate::alibaba::nlb::JobState;
use crate::alibaba::{Fault, FaultKind, Priority, Purpose};
use crate::controllers::loadbalancer::product::Settled;
use crate::controllers::loadbalancer::refusals::RefusedCall;
use crate::controllers::loadbalancer::tolerance::fails_alone;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::observed::{Job, Observed, ObservedInstance};

impl NlbProduct {
    /// Asks what became of all jobs, and how far the making of a load balancer is, which has no job.
    pub(super) async fn settle_jobs(&self, observed: &mut Observed) -> Result<Settled, Fault> {
        let mut settled = Settled::default();
        let ids: Vec<String> =
            observed.parts.jobs.values().map(|job| job.id.clone()).filter(|id| !id.is_empty()).collect();
        // The next change of a group that serves waits for its job.
        let urgent = Priority { purpose: Purpose::Serve, ..Priority::default() };
        let states = match ids.is_empty() {
            true => Ok(BTreeMap::new()),
            false => self.jobs.ask(&ids, async |ids: Vec<String>| self.api.on(urgent).jobs(&ids).await).await,
        };
        let states = match states {
            // What there is tells whether something is still going on.
            Err(fault) if fails_alone(&fault) => return Ok(Settled { is_unknown: true, ..settled }),
            states => states?,
        };
        for (target, job) in observed.parts.jobs.clone() {
            match states.get(&job.id) {
                Some(JobState::Running) => drop(observed.parts.jobs.entry(target).and_modify(|job| job.looks += 1)),
                Some(JobState::Done) => observed.settle(&target),
                Some(JobState::Failed) => {
                    let backends = job.adds.clone();
                    let (line, fault) = failure(job);
                    if !backends.is_empty() {
                        settled.not_added.push(RefusedCall { backends, fault: fault.clone() });
                    }
                    settled.failed.push((line, fault));
                }
                None if job.id.is_empty() && target == Target::LoadBalancer && !job.deletes => {
                    self.see_instance(observed, &mut settled).await?;
                }
                None => settled.is_unknown = true,
            }
        }
        Ok(settled)
    }

    /// A load balancer that is being made is looked at itself. So is one that another program changes, which may have changed
    /// more.
    async fn see_instance(&self, observed: &mut Observed, settled: &mut Settled) -> Result<(), Fault> {
        let Some(id) = observed.id().map(str::to_owned) else {
            settled.is_unknown = true;
            return Ok(());
        };
        let is_new = observed.parts.jobs.get(&Target::LoadBalancer).is_some_and(|job| !job.request_id.is_empty());
        match self.look_at(&id).await {
            Ok(instance) if matches!(instance.status.as_str(), "Provisioning" | "Configuring") => {
                observed.instance = Some(instance);
                observed.parts.jobs.entry(Target::LoadBalancer).and_modify(|job| job.looks += 1);
            }
            Ok(instance) if is_new => {
                observed.instance = Some(instance);
                observed.parts.jobs.remove(&Target::LoadBalancer);
            }
            Ok(_) => settled.is_unknown = true,
            Err(fault) if fault.kind == FaultKind::Gone && is_new => settled.made_and_gone = Some(id),
            // A list can show it.
            Err(fault) if fault.kind == FaultKind::Gone || fails_alone(&fault) => settled.is_unknown = true,
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// The load balancer. One list answers for several; only its own read proves that there is none.
    async fn look_at(&self, id: &str) -> Result<ObservedInstance, Fault> {
        let look = async |ids: Vec<String>| {
            let found = match &ids[..] {
                [id] => vec![self.api.describe_instance(id).await?],
                ids => self.api.find_by_ids(ids).await?,
            };
            Ok(found.into_iter().map(|instance| (instance.id.clone(), instance)).collect())
        };
        match self.looked_at.ask(&[id.to_owned()], look).await?.remove(id) {
            Some(instance) => Ok(instance),
            None => self.api.describe_instance(id).await,
        }
    }
}

fn failure(job: Job) -> (String, Fault) {
    let message = "the cloud accepted this and then failed to carry it out, without saying why; it is tried again";
    let mut fault = Fault::new("job", FaultKind::Transient, message);
    "JobFailed".clone_into(&mut fault.code);
    fault.request_id = job.request_id;
    (job.line, fault)
}
