//! Which controllers run: decided by a pure function, carried out here.
//!
//! What runs is a set of [`Job`]s. A changed list starts and stops exactly the difference; a job that ends by itself is
//! started again after a pause. Nothing is lost by a restart of a job: all that a controller knows, it can observe again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::catalog::{NODE, ROUTE};
use crate::config::{Config, ControllerName};
use crate::controllers::{Context, node, route, service};
use crate::telemetry::metrics;

/// Pause before a job that ended by itself is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// Something that runs for as long as the configuration asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// A controller from the list.
    Controller(ControllerName),
    /// While routes are not managed: conditions that a route controller left behind must not keep nodes unusable.
    RoutesOff,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller(name) => name.as_str(),
            Self::RoutesOff => "routes-off",
        })
    }
}

/// The jobs that a configuration asks for.
#[must_use]
pub fn wanted(config: &Config) -> BTreeSet<Job> {
    let mut jobs: BTreeSet<_> = config.controllers.iter().copied().map(Job::Controller).collect();
    if !config.controllers.contains(&ROUTE) {
        jobs.insert(Job::RoutesOff);
    }
    jobs
}

/// What has to change so that `wanted` runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transitions {
    /// Stopped first, so that a job and its opposite never run together.
    pub stop: BTreeSet<Job>,
    /// Started afterwards.
    pub start: BTreeSet<Job>,
}

impl Transitions {
    /// The difference between what runs and what should.
    #[must_use]
    pub fn between(running: &BTreeSet<Job>, wanted: &BTreeSet<Job>) -> Self {
        Self { stop: running - wanted, start: wanted - running }
    }
}

/// Runs jobs. Dropping it cuts them off; [`Supervisor::stop`] ends them in order.
#[derive(Debug)]
pub struct Supervisor {
    context: Context,
    running: BTreeMap<Job, CancellationToken>,
    tasks: JoinSet<()>,
    job_of: BTreeMap<Id, Job>,
}

impl Supervisor {
    /// Runs nothing yet. Jobs end when `context.stop` is cancelled.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context, running: BTreeMap::new(), tasks: JoinSet::new(), job_of: BTreeMap::new() }
    }

    /// Starts and stops jobs so that exactly `wanted` run; waits until the stopped ones have ended.
    pub async fn apply(&mut self, wanted: &BTreeSet<Job>) -> Transitions {
        let running = self.running.keys().copied().collect();
        let transitions = Transitions::between(&running, wanted);
        for job in &transitions.stop {
            if let Some(stop) = self.running.remove(job) {
                stop.cancel();
            }
        }
        while self.job_of.values().any(|job| transitions.stop.contains(job)) {
            if !self.join().await {
                break;
            }
        }
        for job in &transitions.start {
            self.start(*job, Duration::ZERO);
        }
        transitions
    }

    /// Keeps the jobs running: starts those again that end by themselves. Never returns.
    pub async fn watch(&mut self) {
        loop {
            if !self.join().await {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends all jobs and waits for them.
    pub async fn stop(mut self) {
        for (_, stop) in std::mem::take(&mut self.running) {
            stop.cancel();
        }
        while self.join().await {}
    }

    /// Waits for one task to end; false if there is none. A job that should still run is started again.
    async fn join(&mut self) -> bool {
        let Some(ended) = self.tasks.join_next_with_id().await else { return false };
        let (id, well) = match ended {
            Ok((id, ())) => (id, true),
            Err(failure) => (failure.id(), false),
        };
        let Some(job) = self.job_of.remove(&id) else { return true };
        report_running(job, false);
        if well {
            info!(%job, "stopped");
        } else {
            error!(%job, "the job ended abnormally");
        }
        let expected = self.running.get(&job).is_none_or(CancellationToken::is_cancelled);
        if !expected {
            self.start(job, RESTART_PAUSE);
        }
        true
    }

    fn start(&mut self, job: Job, pause: Duration) {
        let stop = self.context.stop.child_token();
        let context = Context { stop: stop.clone(), ..self.context.clone() };
        self.running.insert(job, stop.clone());
        let task = self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            info!(%job, "started");
            report_running(job, true);
            match job {
                Job::Controller(NODE) => node::run(context).await,
                Job::Controller(ROUTE) => route::run(context).await,
                Job::Controller(_) => service::run(context).await,
                Job::RoutesOff => route::run_off(context).await,
            }
            // A job that has nothing more to do is not restarted.
            stop.cancelled().await;
        });
        self.job_of.insert(task.id(), job);
    }
}

fn report_running(job: Job, running: bool) {
    if let Job::Controller(name) = job {
        metrics::controller_running(name.as_str(), running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SERVICE;

    fn controllers(names: &[ControllerName]) -> BTreeSet<Job> {
        names.iter().copied().map(Job::Controller).collect()
    }

    #[test]
    fn only_the_difference_changes() {
        let transitions = Transitions::between(&controllers(&[NODE, ROUTE]), &controllers(&[NODE, SERVICE]));
        assert_eq!(transitions.stop, controllers(&[ROUTE]));
        assert_eq!(transitions.start, controllers(&[SERVICE]));
        assert_eq!(Transitions::between(&controllers(&[NODE]), &controllers(&[NODE])), Transitions::default());
    }
}
