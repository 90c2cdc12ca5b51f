//! `plan`: what a reconcile would do now, without doing it.

use std::fmt::Write;

use serde::Serialize;

use super::connect::connect;
use super::explain::unmanaged;
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::cli::{ObjectArg, OutputFormat};
use crate::config::Config;
use crate::controllers::registry;
use crate::plan::PlanLine;

/// What all controllers of a configuration would do.
#[derive(Default, Serialize)]
struct WholePlan {
    /// In the order in which each controller would do it.
    steps: Vec<PlanLine>,
    /// What could not be planned, and why.
    problems: Vec<String>,
    /// Why no controller is responsible for the object that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_managed: Option<String>,
}

pub(super) fn run(config: &Config, only: Option<&ObjectArg>, output: OutputFormat) -> CommandResult {
    let plan = runtime()?.block_on(plan(config, only))?;
    print_findings(output, &plan.to_text(), &plan)?;
    if plan.not_managed.is_some() {
        return Ok(Ended::NotManaged);
    }
    Ok(match (plan.problems.is_empty(), plan.steps.is_empty()) {
        (false, _) => Ended::Incomplete,
        (true, true) => Ended::Done,
        (true, false) => Ended::SomethingToDo,
    })
}

async fn plan(config: &Config, only: Option<&ObjectArg>) -> Result<WholePlan, CommandError> {
    let clients = connect(config).await?;
    let mut plan = WholePlan::default();
    if let Some(object) = only {
        plan.not_managed = unmanaged(&clients.cluster, config, object).await?.map(|why| format!("{object} {why}"));
        if plan.not_managed.is_some() {
            return Ok(plan);
        }
    }
    for controller in registry::running(config).filter(|row| only.is_none_or(|only| only.kind == row.object)) {
        let key = only.map(|only| &only.key);
        match (controller.preview)(&clients, config, key).await {
            Ok(lines) => {
                let name = key.map(ToString::to_string);
                plan.steps
                    .extend(lines.into_iter().filter(|line| name.as_ref().is_none_or(|name| line.object == *name)));
            }
            Err(error) => plan.problems.push(format!("{}: {error}", controller.name())),
        }
    }
    Ok(plan)
}

impl WholePlan {
    /// One line a step, below a heading for each object; destructive ones are marked.
    fn to_text(&self) -> String {
        if let Some(why) = &self.not_managed {
            return format!("{why}.\n");
        }
        let mut text = String::new();
        let mut heading = String::new();
        for step in &self.steps {
            let of = format!("{} {}", step.controller, step.object);
            if of != heading {
                let _ = writeln!(text, "{of}");
                heading = of;
            }
            let _ = writeln!(text, "  {} {}", if step.destroys { '!' } else { '+' }, step.text);
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        let destructive = self.steps.iter().filter(|step| step.destroys).count();
        let _ = match (self.steps.len(), self.problems.len()) {
            (0, 0) => writeln!(text, "Nothing to do."),
            (steps, 0) => writeln!(text, "{steps} steps, of which {destructive} destroy something."),
            (steps, problems) => writeln!(text, "{steps} steps, {problems} problems."),
        };
        text
    }
}
