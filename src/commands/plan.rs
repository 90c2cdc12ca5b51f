//! `plan`: what a reconcile would do now, without doing it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::connect::connect;
use super::explain::unmanaged;
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::alibaba::actions::{self, Action, WriteAction};
use crate::alibaba::{planned, queue_end};
use crate::cli::{ObjectArg, OutputFormat};
use crate::config::Config;
use crate::controllers::registry::{self, Controller};
use crate::plan::{LineKind, PlanLine};

/// The calls of those steps that large plans have many of: how the line begins, and the action, which also says whose line it
/// is. Listeners of all protocols count as one kind: each is also started, within the same quota.
const CALLS: &[(&str, WriteAction)] = &[
    ("switch off the source/destination check", actions::MODIFY_NETWORK_INTERFACE),
    ("create load balancer", actions::CREATE_LOAD_BALANCER),
    ("set delete protection", actions::SET_DELETE_PROTECTION),
    ("delete load balancer", actions::DELETE_LOAD_BALANCER),
    ("create group", actions::CREATE_GROUP),
    ("delete group", actions::DELETE_GROUP),
    ("add to k8s/acl/", actions::ADD_ACCESS_ENTRIES),
    ("add to ", actions::ADD_BACKENDS),
    ("remove from k8s/acl/", actions::REMOVE_ACCESS_ENTRIES),
    ("remove from ", actions::REMOVE_BACKENDS),
    ("set in ", actions::SET_BACKENDS),
    ("create listener", actions::CREATE_TCP_LISTENER),
    ("start listener", actions::START_LISTENER),
    ("create network load balancer", actions::CREATE_NETWORK_LOAD_BALANCER),
    ("delete network load balancer", actions::DELETE_NETWORK_LOAD_BALANCER),
    ("create group", actions::CREATE_SERVER_GROUP),
    ("add to ", actions::ADD_SERVERS),
    ("remove from ", actions::REMOVE_SERVERS),
    ("create listener", actions::CREATE_NETWORK_LISTENER),
    ("add record", actions::ADD_ZONE_RECORD),
];

/// What all controllers of a configuration would do.
#[derive(Default, Serialize)]
struct WholePlan {
    /// In the order in which each controller would do it.
    steps: Vec<PlanLine>,
    /// What could not be planned, and why.
    problems: Vec<String>,
    /// How long the quotas make it last, if that is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    takes: Option<String>,
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
    let (mut plan, mut calls) = (WholePlan::default(), BTreeMap::new());
    if let Some(object) = only {
        plan.not_managed = unmanaged(&clients.cluster, config, object).await?.map(|why| format!("{object} {why}"));
        if plan.not_managed.is_some() {
            return Ok(plan);
        }
    }
    for controller in registry::running(config).filter(|row| only.is_none_or(|only| only.kind == row.object)) {
        let key = only.map(|only| &only.key);
        match (controller.preview)(&clients, config, key).await {
            Ok(mut lines) => {
                let name = key.map(ToString::to_string);
                lines.retain(|line| name.as_ref().is_none_or(|name| line.object == *name));
                for action in lines.iter().filter_map(|line| call(controller, config, line)) {
                    calls.entry(action.permission()).or_insert((action, 0)).1 += 1;
                }
                plan.steps.extend(lines);
            }
            Err(error) => plan.problems.push(format!("{}: {error}", controller.name())),
        }
    }
    let limits: Vec<_> = calls.into_values().map(|(action, count)| planned(action, count, &config.cloud)).collect();
    plan.takes = queue_end(&limits).map(|(_, text)| text);
    Ok(plan)
}

/// The call that a step of this controller makes, if it is one of [`CALLS`].
fn call(controller: &Controller, config: &Config, line: &PlanLine) -> Option<&'static Action> {
    let may_call = |action| controller.cloud.iter().any(|access| access.actions(config).contains(&action));
    let is_it = |(begin, action): &&(&str, WriteAction)| line.text.starts_with(begin) && may_call(action.0);
    CALLS.iter().filter(|_| line.kind == LineKind::Step).find(is_it).map(|(_, action)| action.0)
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
        let _ = self.takes.iter().try_for_each(|takes| writeln!(text, "{takes}."));
        text
    }
}
