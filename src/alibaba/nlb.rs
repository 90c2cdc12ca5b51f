//! Network load balancers, NLB (product Nlb, version 2022-04-30).
//!
//! [`Nlb`] is one type; its calls are in `instance`, `listener` and `group`. Most writes only begin a job, whose id their
//! [`Answer`] carries; [`Nlb::jobs`] tells what became of it. While a job runs, the cloud answers further writes to the
//! same resource as busy; callers keep the order.

mod group;
mod instance;
mod listener;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use group::{GroupFilter, ListedGroup, ListedServers};
pub use listener::{ListenerChange, NewListener};

use super::actions::LIST_ASYN_JOBS;
use super::answer::Fields;
use super::client::SigningClient;
use super::fault::Fault;
use super::rate_limit::Priority;
use super::request::Request;
use crate::plan::loadbalancer::cloud::Answer;

/// Entries in one page.
const PAGE: usize = 100;

/// Ids or names in one list call, and jobs in one call. Source: the documentation of `ListServerGroups` and `ListAsynJobs`.
pub(crate) const CHUNK: usize = 20;

/// Calls to NLB.
#[derive(Clone, Debug)]
pub struct Nlb(pub(super) SigningClient);

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It goes on.
    Running,
    /// It did what was asked.
    Done,
    /// It did not; the cloud does not say why.
    Failed,
}

impl Nlb {
    /// The same, for calls on behalf of one object.
    pub fn on(&self, priority: Priority) -> Self {
        Self(self.0.on(priority))
    }

    /// What became of jobs, by id. Jobs that the cloud does not know are absent, which says nothing about their outcome.
    ///
    /// # Errors
    /// As any call.
    pub async fn jobs(&self, ids: &[String]) -> Result<BTreeMap<String, JobState>, Fault> {
        let mut found = BTreeMap::new();
        for chunk in ids.chunks(CHUNK) {
            let job = |job: Fields<'_>| Ok((job.text("Id")?, state(&job.text("Status")?)));
            found.extend(self.0.read(LIST_ASYN_JOBS).list("JobIds", chunk).all("Jobs", job).await?);
        }
        Ok(found)
    }
}

/// A status that this program does not know is looked at again.
fn state(status: &str) -> JobState {
    match status {
        _ if status.eq_ignore_ascii_case("succeeded") => JobState::Done,
        _ if status.eq_ignore_ascii_case("failed") => JobState::Failed,
        _ => JobState::Running,
    }
}

/// Sends a write.
async fn started(request: Request<'_>) -> Result<Answer, Fault> {
    let answer = request.send().await?;
    let job = answer.decode(|body| body.text("JobId"))?;
    Ok(Answer { job, request_id: answer.request_id().to_owned(), ..Answer::default() })
}

/// Sends a write that makes something, whose id the answer has under this name.
async fn created(request: Request<'_>, name: &str) -> Result<Answer, Fault> {
    let answer = request.send().await?;
    let (id, job) = answer.decode(|body| Ok((body.text(name)?, body.text("JobId")?)))?;
    if id.is_empty() {
        return Err(answer.unusable(format!("the answer lacks the {name} of what was created")));
    }
    Ok(Answer { id: Some(id), job, request_id: answer.request_id().to_owned(), ..Answer::default() })
}
