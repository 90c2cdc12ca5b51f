//! What the cloud carries out after it has answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::NetworkProduct;
use crate::alibaba::nlb::JobState;
use crate::alibaba::{Fault, FaultKind};
use crate::controllers::service::product::Settled;
use crate::controllers::service::refusals::RefusedCall;
use crate::controllers::service::tolerance::fails_alone;
use crate::plan::nlb::observed::{Job, Observed, ObservedInstance};
use crate::plan::service::observed::ObservedModel as _;
use crate::plan::service::steps::Target;

/// How long making a load balancer takes at least, and whatever another program does.
const LONG: Duration = Duration::from_secs(5);
/// How long changes of a load balancer take.
const INSTANCE: Duration = Duration::from_secs(3);
/// How long changes of a listener take.
const LISTENER: Duration = Duration::from_secs(2);
/// How long changes of a server group and its backends take at most, as a rule.
const GROUP: Duration = Duration::from_millis(1200);
/// How long the quickest additions take: a pod that moves leaves its group when the job that added its successor has ended.
const QUICKEST: Duration = Duration::from_millis(500);
/// Looks after which a job takes longer than usual, so that each further look waits a step longer.
const USUAL_LOOKS: u32 = 4;
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(60);

/// In what time the first of the jobs is likely done. Of a job that lasts, looks become less frequent.
pub(super) fn look_again(observed: &Observed) -> Option<Duration> {
    let time = |(target, job): (&Target, &Job)| {
        let first = match target {
            _ if job.id.is_empty() => LONG,
            // How long it takes varies, and label and finalizer of its Service wait for it.
            Target::LoadBalancer if job.deletes => LONG.min(GROUP * (1 << job.looks.min(2))),
            Target::Group(_) if job.looks < 2 && !job.adds.is_empty() => QUICKEST,
            Target::Group(_) => GROUP,
            Target::Listener(_) | Target::FormerListener(_) => LISTENER,
            Target::LoadBalancer | Target::Attribute(_) | Target::AccessList => INSTANCE,
        };
        LONGEST.min(first * (1 + job.looks / USUAL_LOOKS))
    };
    observed.jobs.iter().map(time).min()
}

impl NetworkProduct {
    /// Asks what became of all jobs, and how far the making of a load balancer is, which has no job.
    pub(super) async fn settle_jobs(&self, observed: &mut Observed) -> Result<Settled, Fault> {
        let mut settled = Settled::default();
        let ids: Vec<String> = observed.jobs.values().map(|job| job.id.clone()).filter(|id| !id.is_empty()).collect();
        let states = match ids.is_empty() {
            true => Ok(BTreeMap::new()),
            false => self.jobs.ask(&ids, async |ids: Vec<String>| self.api.jobs(&ids).await).await,
        };
        let states = match states {
            // What there is tells whether something is still going on.
            Err(fault) if fails_alone(&fault) => return Ok(Settled { is_unknown: true, ..settled }),
            states => states?,
        };
        for (target, job) in observed.jobs.clone() {
            match states.get(&job.id) {
                Some(JobState::Running) => drop(observed.jobs.entry(target).and_modify(|job| job.looks += 1)),
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
        let is_new = observed.jobs.get(&Target::LoadBalancer).is_some_and(|job| !job.request_id.is_empty());
        match self.look_at(&id).await {
            Ok(instance) if matches!(instance.status.as_str(), "Provisioning" | "Configuring") => {
                observed.instance = Some(instance);
                observed.jobs.entry(Target::LoadBalancer).and_modify(|job| job.looks += 1);
            }
            Ok(instance) if is_new => {
                observed.instance = Some(instance);
                observed.jobs.remove(&Target::LoadBalancer);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_lasts_is_looked_at_less_and_less_often_and_at_least_every_minute() {
        for (target, id) in [(Target::LoadBalancer, ""), (Target::LoadBalancer, "job-1"), (Target::AccessList, "job-2")]
        {
            let after = |looks| {
                let job = Job { id: id.to_owned(), looks, ..Job::default() };
                let mut observed = Observed::default();
                observed.jobs.insert(target.clone(), job);
                look_again(&observed).unwrap()
            };
            assert_eq!(after(0), after(USUAL_LOOKS - 1), "a usual job ends in this time");
            assert!(after(USUAL_LOOKS) > after(0) && after(40) > after(20), "{target:?}");
            assert_eq!(after(10_000), LONGEST);
        }
    }
}
