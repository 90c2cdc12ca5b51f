//! Asynchronous work.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::actions::{Action, Context};
use super::super::objects::Pending;
use super::super::protocol::ApiError;
use super::objects::Job;
use super::{not_found, read, some};

pub(super) fn actions() -> Vec<Action> {
    vec![
        read("GetJobStatus", "JobId!", get_job_status)
            .documented("parameters, answer, `Succeeded` and `Processing`, `ResourceNotFound.JobId`")
            .assumed("`Failed`, which this call does not document; a job is known for ever"),
        read("ListAsynJobs", "JobIds.N!", list_jobs)
            .documented("parameters, answer, all three statuses, a text as `TotalCount`")
            .observed("20 ids in a call", "official controller v2.14.0")
            .assumed("an unknown job is left out; a job is known for ever")
            .listing("/Jobs"),
    ]
}

/// A job that a call has begun.
pub(super) struct Begun {
    pub(super) id: String,
    /// Whether it changes nothing.
    pub(super) fails: bool,
    until: Instant,
}

/// Begins the job of a call.
pub(super) fn begin(cx: &mut Context<'_>) -> Begun {
    let dials = &cx.account.dials;
    let time = dials.nlb_job_times.get(cx.action.name).copied().unwrap_or(dials.nlb_job_time);
    let until = Instant::now() + time;
    let id = cx.account.fresh("job-", 32);
    cx.account.nlb.jobs.insert(id.clone(), Job { until, fails: cx.job_fails });
    Begun { id, fails: cx.job_fails, until }
}

impl Begun {
    /// Its target is being worked on.
    pub(super) fn pending(&self, status: &'static str) -> Option<Pending> {
        Some(Pending { until: self.until, status, removes: false }).filter(|it| !it.is_over())
    }

    /// Its target, which is this object or a part of it, is being removed, unless it fails.
    pub(super) fn removal(&self, cx: &mut Context<'_>, of: &str, status: &'static str) -> Option<Pending> {
        if !self.fails {
            cx.account.nlb.leaving.insert((self.until, of.to_owned()));
        }
        Some(Pending { until: self.until, status, removes: !self.fails })
    }

    /// The answer of a call that says nothing else.
    pub(super) fn answer(self) -> Value {
        json!({"JobId": self.id})
    }
}

fn get_job_status(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let job = cx.account.nlb.jobs.get(cx.params.need("JobId")?).ok_or_else(|| not_found("JobId"))?;
    // There is no word for a failed job in the documentation of this call.
    Ok(json!({"Status": job.status()}))
}

fn list_jobs(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let mut found = Vec::new();
    for id in some(cx.params, "JobIds", 20)? {
        if let Some(job) = cx.account.nlb.jobs.get(id) {
            found.push(json!({"Id": id, "Status": job.status()}));
        }
    }
    Ok(json!({"TotalCount": found.len().to_string(), "Jobs": found}))
}
