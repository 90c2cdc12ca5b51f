//! What the cloud carries out after it has answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::NlbProduct;
use crate::alibaba::nlb::{CHUNK, JobState};
use crate::alibaba::{Fault, FaultKind, Priority, Purpose};
use crate::controllers::loadbalancer::product::Settled;
use crate::controllers::loadbalancer::refusals::RefusedCall;
use crate::controllers::loadbalancer::together::Together;
use crate::controllers::loadbalancer::tolerance::fails_alone;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::observed::{Job, Observed, ObservedInstance};

/// How many jobs [`Jobs`] remembers. The Service of a job that it forgot makes a call of its own.
const MOST_REMEMBERED: usize = 200;

/// What is known of jobs. A call for one job asks for others that run, so that their Services need no call of their own.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Jobs that writes started, by id; the latest is last.
    remembered: parking_lot::Mutex<VecDeque<(String, JobState)>>,
    calls: Together<JobState>,
}

impl Jobs {
    /// Remembers a job that a write started.
    pub(super) fn remember(&self, id: &str) {
        let mut remembered = self.remembered.lock();
        if remembered.len() == MOST_REMEMBERED {
            remembered.pop_front();
        }
        remembered.push_back((id.to_owned(), JobState::Running));
    }

    /// The states of these jobs. Those that the cloud does not know are absent.
    ///
    /// # Errors
    /// Those of the call.
    async fn ask<F>(
        &self,
        ids: &[String],
        call: impl FnOnce(Vec<String>) -> F,
    ) -> Result<BTreeMap<String, JobState>, Fault>
    where
        F: Future<Output = Result<BTreeMap<String, JobState>, Fault>>,
    {
        let ask = async |asked: Vec<String>| {
            let ended = self.ended(&asked);
            if ended.len() == asked.len() {
                return Ok(ended);
            }
            let found = call(self.with_others(asked)).await?;
            for (id, state) in self.remembered.lock().iter_mut() {
                *state = found.get(id).copied().unwrap_or(*state);
            }
            Ok(found)
        };
        let found = self.calls.ask(ids, ask).await?;
        self.remembered.lock().retain(|(id, _)| !ids.contains(id) || found.get(id) == Some(&JobState::Running));
        Ok(found)
    }

    fn ended(&self, ids: &[String]) -> BTreeMap<String, JobState> {
        let remembered = self.remembered.lock();
        let ended = remembered.iter().filter(|(id, state)| *state != JobState::Running && ids.contains(id));
        ended.cloned().collect()
    }

    fn with_others(&self, mut ids: Vec<String>) -> Vec<String> {
        let room = ids.len().next_multiple_of(CHUNK) - ids.len();
        let remembered = self.remembered.lock();
        let others = remembered.iter().filter(|(id, state)| *state == JobState::Running && !ids.contains(id));
        let others: Vec<String> = others.map(|(id, _)| id.clone()).take(room).collect();
        ids.extend(others);
        ids
    }
}

impl NlbProduct {
    /// Asks what became of all jobs, and how far the making of a load balancer is, which has no job.
    pub(super) async fn settle_jobs(&self, observed: &mut Observed, passed: Duration) -> Result<Settled, Fault> {
        observed.parts.jobs.iter_mut().for_each(|(_, job)| job.age += passed);
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
                Some(JobState::Running) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for these jobs of a cloud in which `a` runs, `b` is done and `c` has failed; gives the answer and the calls.
    async fn ask(jobs: &Jobs, ids: &[&str]) -> (BTreeMap<String, JobState>, Vec<Vec<String>>) {
        let calls = parking_lot::Mutex::new(Vec::new());
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let state = |id: String| match id.as_str() {
            "a" => Some((id, JobState::Running)),
            "b" => Some((id, JobState::Done)),
            "c" => Some((id, JobState::Failed)),
            _ => None,
        };
        let found = jobs.ask(&ids, async |asked: Vec<String>| {
            calls.lock().push(asked.clone());
            Ok(asked.into_iter().filter_map(state).collect())
        });
        (found.await.unwrap(), calls.into_inner())
    }

    fn remembering(ids: &[&str]) -> Jobs {
        let jobs = Jobs::default();
        ids.iter().for_each(|id| jobs.remember(id));
        jobs
    }

    #[tokio::test]
    async fn a_job_that_was_seen_to_have_ended_costs_no_call() {
        let jobs = remembering(&["a", "b", "c"]);
        let (found, calls) = ask(&jobs, &["b"]).await;
        assert_eq!((found["b"], calls), (JobState::Done, vec![vec!["b".to_owned(), "a".to_owned(), "c".to_owned()]]));
        let (found, calls) = ask(&jobs, &["c"]).await;
        assert_eq!((found["c"], calls.len()), (JobState::Failed, 0), "the failure is not lost");
    }

    #[tokio::test]
    async fn a_job_that_runs_and_one_that_is_not_remembered_are_asked_for() {
        let jobs = remembering(&["a", "b"]);
        for _ in 0..2 {
            let (found, calls) = ask(&jobs, &["a"]).await;
            assert_eq!((found["a"], calls.len()), (JobState::Running, 1));
        }
        let (found, calls) = ask(&jobs, &["c", "unknown"]).await;
        assert_eq!((found.get("c"), found.get("unknown")), (Some(&JobState::Failed), None));
        assert_eq!(calls, [["c", "unknown", "a"].map(str::to_owned)]);
    }

    #[tokio::test]
    async fn a_call_asks_for_no_more_jobs_than_the_cloud_takes_at_once() {
        let many: Vec<String> = (0..3 * MOST_REMEMBERED).map(|number| number.to_string()).collect();
        let jobs = remembering(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(jobs.remembered.lock().len(), MOST_REMEMBERED);
        let (_, calls) = ask(&jobs, &["a"]).await;
        assert_eq!(calls.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK]);
    }
}
