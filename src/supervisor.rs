//! Which controllers run: decided by a pure function, carried out here.
//!
//! A changed configuration starts and stops exactly the difference; a job that ends by itself is started again after a
//! pause. A restart loses nothing: a controller can observe all that it knows once more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::config::Config;
use crate::controllers::Context;
use crate::controllers::registry::{self, Run};
use crate::telemetry::metrics;

/// Pause before a job that ended by itself is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// The name of a loop that runs for as long as the configuration asks for it: a controller, or the fallback of one that is
/// switched off.
pub type JobName = &'static str;

/// The jobs that a configuration asks for.
#[must_use]
pub fn wanted(config: &Config) -> BTreeMap<JobName, Run> {
    let controllers = registry::running(config).map(|row| (row.name(), row.run));
    controllers.chain(registry::fallbacks(config).map(|fallback| (fallback.name, fallback.run))).collect()
}

/// What has to change so that the wanted jobs run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transitions {
    /// Stopped first, so that a controller and its fallback never run together.
    pub stop: BTreeSet<JobName>,
    /// Started afterwards.
    pub start: BTreeSet<JobName>,
}

impl Transitions {
    /// The difference between what runs and what should run.
    #[must_use]
    pub fn between<A, B>(running: &BTreeMap<JobName, A>, wanted: &BTreeMap<JobName, B>) -> Self {
        let running: BTreeSet<_> = running.keys().copied().collect();
        let wanted: BTreeSet<_> = wanted.keys().copied().collect();
        Self { stop: &running - &wanted, start: &wanted - &running }
    }
}

/// Runs jobs. Dropping it cuts them off; [`Supervisor::stop`] ends them in order.
#[derive(Debug)]
pub struct Supervisor {
    context: Context,
    running: BTreeMap<JobName, Job>,
    tasks: JoinSet<()>,
    job_of: BTreeMap<Id, JobName>,
}

#[derive(Clone, Debug)]
struct Job {
    run: Run,
    stop: CancellationToken,
}

impl Supervisor {
    /// Runs nothing yet. Jobs end when `context.stop` is cancelled.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context, running: BTreeMap::new(), tasks: JoinSet::new(), job_of: BTreeMap::new() }
    }

    /// Starts and stops jobs so that exactly `wanted` run; waits until the stopped ones have ended.
    pub async fn apply(&mut self, wanted: &BTreeMap<JobName, Run>) -> Transitions {
        let transitions = Transitions::between(&self.running, wanted);
        for name in &transitions.stop {
            if let Some(job) = self.running.remove(name) {
                job.stop.cancel();
            }
        }
        while self.job_of.values().any(|name| transitions.stop.contains(name)) {
            if !self.join().await {
                break;
            }
        }
        for (name, run) in wanted.iter().filter(|(name, _)| transitions.start.contains(*name)) {
            self.start(name, *run, Duration::ZERO);
        }
        transitions
    }

    /// Keeps the jobs running: restarts those that end by themselves. Never returns.
    pub async fn watch(&mut self) {
        loop {
            if !self.join().await {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends all jobs and waits for them.
    pub async fn stop(mut self) {
        for (_, job) in std::mem::take(&mut self.running) {
            job.stop.cancel();
        }
        while self.join().await {}
    }

    /// Waits for one task to end; false if there is none. A job that should still run is restarted.
    async fn join(&mut self) -> bool {
        let Some(ended) = self.tasks.join_next_with_id().await else { return false };
        let (id, well) = match ended {
            Ok((id, ())) => (id, true),
            Err(failure) => (failure.id(), false),
        };
        let Some(name) = self.job_of.remove(&id) else { return true };
        report_running(name, false);
        if well {
            info!(job = name, "stopped");
        } else {
            error!(job = name, "the job ended abnormally");
        }
        if let Some(Job { run, stop }) = self.running.get(name).cloned()
            && !stop.is_cancelled()
        {
            self.start(name, run, RESTART_PAUSE);
        }
        true
    }

    fn start(&mut self, name: JobName, run: Run, pause: Duration) {
        let stop = self.context.stop.child_token();
        let context = Context { stop: stop.clone(), ..self.context.clone() };
        self.running.insert(name, Job { run, stop: stop.clone() });
        let task = self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            info!(job = name, "started");
            report_running(name, true);
            run(context).await;
            // A job that has nothing more to do is not restarted.
            stop.cancelled().await;
        });
        self.job_of.insert(task.id(), name);
    }
}

/// Fallbacks are no controllers, and no metric counts them.
fn report_running(name: JobName, running: bool) {
    if registry::CONTROLLERS.iter().any(|row| row.name() == name) {
        metrics::controller_running(name, running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(names: &[JobName]) -> BTreeMap<JobName, ()> {
        names.iter().map(|name| (*name, ())).collect()
    }

    #[test]
    fn only_the_difference_changes() {
        let transitions = Transitions::between(&jobs(&["node", "route"]), &jobs(&["node", "service"]));
        assert_eq!(transitions.stop, ["route"].into());
        assert_eq!(transitions.start, ["service"].into());
        assert_eq!(Transitions::between(&jobs(&["node"]), &jobs(&["node"])), Transitions::default());
    }
}
