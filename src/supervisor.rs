//! Which controllers run: a pure function decides, this module executes.
//!
//! A changed configuration starts and stops exactly the difference; a job that ends by itself starts again, as every long-lived
//! task does. That loses nothing: a controller can observe everything that it knows again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info};

use crate::config::Config;
use crate::controllers::Context;
use crate::controllers::registry::{self, Run};
use crate::telemetry::metrics;
use crate::telemetry::tasks::Tasks;

/// How long a job may take to end; one that takes longer hangs, and is cancelled.
const LONGEST_END: Duration = Duration::from_secs(12);

/// The name of a loop that runs for as long as the configuration asks for it: a controller, or the fallback of one that is
/// switched off.
pub type JobName = &'static str;

/// The jobs that a configuration asks for.
pub fn wanted(config: &Config) -> BTreeMap<JobName, Run> {
    let controllers = registry::running(config).map(|row| (row.name(), row.run));
    controllers.chain(registry::fallbacks(config).map(|fallback| (fallback.name, fallback.run))).collect()
}

/// The changes after which the desired jobs run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transitions {
    /// Stopped first, so that a controller and its fallback never run together.
    pub stop: BTreeSet<JobName>,
    /// Started afterwards.
    pub start: BTreeSet<JobName>,
}

impl Transitions {
    /// The difference between what runs and what should run.
    pub fn between<A, B>(running: &BTreeMap<JobName, A>, wanted: &BTreeMap<JobName, B>) -> Self {
        let running: BTreeSet<_> = running.keys().copied().collect();
        let wanted: BTreeSet<_> = wanted.keys().copied().collect();
        Self { stop: &running - &wanted, start: &wanted - &running }
    }
}

/// Runs jobs. Dropping it cancels them; [`Supervisor::stop`] ends them in order.
#[derive(Debug)]
pub struct Supervisor {
    context: Context,
    tasks: Tasks,
    running: BTreeMap<JobName, RunningJob>,
}

#[derive(Debug)]
struct RunningJob {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Supervisor {
    /// Runs nothing yet. Jobs are among `tasks`, and end when `context.stop` is cancelled.
    pub fn new(context: Context, tasks: Tasks) -> Self {
        Self { context, tasks, running: BTreeMap::new() }
    }

    /// Starts and stops jobs so that exactly `wanted` run; waits until the stopped ones have ended.
    pub async fn apply(&mut self, wanted: &BTreeMap<JobName, Run>) -> Transitions {
        let transitions = Transitions::between(&self.running, wanted);
        self.end(&transitions.stop).await;
        for (name, run) in wanted.iter().filter(|(name, _)| transitions.start.contains(*name)) {
            self.start(name, *run);
        }
        transitions
    }

    /// Ends all jobs and waits for them.
    pub async fn stop(mut self) {
        self.end(&self.running.keys().copied().collect()).await;
    }

    async fn end(&mut self, names: &BTreeSet<JobName>) {
        let ending: Vec<RunningJob> = names.iter().filter_map(|name| self.running.remove(name)).collect();
        for job in &ending {
            job.stop.cancel();
        }
        let all = join_all(ending.into_iter().map(|job| job.task));
        if tokio::time::timeout(LONGEST_END, all).await.is_err() {
            error!(code = "ACCM0703", jobs = ?names, "not all jobs ended in time; they are cut off");
        }
    }

    fn start(&mut self, name: JobName, run: Run) {
        let stop = self.context.stop.child_token();
        let cloud = self.context.cloud.until(stop.clone());
        let context = Context { stop: stop.clone(), cloud, ..self.context.clone() };
        let task = self.tasks.supervise(name, &stop, move || run_job(name, run, context.clone()));
        self.running.insert(name, RunningJob { stop, task });
    }
}

async fn run_job(name: JobName, run: Run, context: Context) {
    show(name, true);
    let _running = ShownAsRunning(name);
    info!(job = name, "started");
    run(context).await;
    info!(job = name, "stopped");
}

/// A controller is shown as running as long as this lives. Fallbacks are no controllers, and no metric counts them.
struct ShownAsRunning(JobName);

impl Drop for ShownAsRunning {
    fn drop(&mut self) {
        show(self.0, false);
    }
}

fn show(name: JobName, running: bool) {
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
