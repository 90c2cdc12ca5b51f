//! `plan`: what a reconcile would do now, without doing it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use super::connect::{connect_cloud, connect_cluster};
use super::explain::{unmanaged, without_cloud};
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::alibaba::actions::{self, Action, WriteAction};
use crate::alibaba::{planned, queue_end};
use crate::cli::{ObjectArg, OutputFormat};
use crate::config::Config;
use crate::controllers::registry::{self, Controller};
use crate::controllers::{Clients, Previewed};
use crate::plan::inputs::ServiceView;
use crate::plan::{LineKind, PlanLine, count_of};

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
    /// In the order in which each controller would do it; with what is in the way.
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

pub(super) fn run(config: &Config, only: Option<ObjectArg>, output: OutputFormat) -> CommandResult {
    let plan = runtime()?.block_on(plan(config, only))?;
    print_findings(output, &plan.to_text(), &plan)?;
    if plan.not_managed.is_some() {
        return Ok(Ended::NotManaged);
    }
    Ok(if plan.problems.is_empty() { Ended::planned(&plan.steps) } else { Ended::Incomplete })
}

async fn plan(config: &Config, only: Option<ObjectArg>) -> Result<WholePlan, CommandError> {
    let cluster = connect_cluster(config).await?;
    let only = only.map(|object| object.within(&cluster.default_namespace()));
    let (mut plan, mut calls) = (WholePlan::default(), BTreeMap::new());
    if let Some(object) = &only {
        plan.not_managed = unmanaged(&cluster, config, object).await?.map(|why| format!("{object} {why}"));
        if plan.not_managed.is_some() {
            return Ok(plan);
        }
    }
    let clients = match connect_cloud(config).await {
        Ok((cloud, location)) => Clients { cluster, cloud, location },
        Err(CommandError(error)) => {
            let services = cluster.services();
            services.listed().await.map_err(CommandError)?;
            let is_asked = |service: &&Arc<ServiceView>| only.as_ref().is_none_or(|only| only.key == service.key);
            let services = services.store.all();
            plan.steps = services.iter().filter(is_asked).flat_map(|it| without_cloud(it, config)).collect();
            plan.problems.push(format!("everything in the cloud: {error}"));
            return Ok(plan);
        }
    };
    for controller in
        registry::running(config).filter(|row| only.as_ref().is_none_or(|only| row.objects.contains(&only.kind)))
    {
        let key = only.as_ref().map(|only| &only.key);
        match (controller.preview)(&clients, config, key).await {
            Ok(Previewed { mut lines, .. }) => {
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
        for steps in self.steps.chunk_by(|a, b| (a.controller, &a.object) == (b.controller, &b.object)) {
            let _ = writeln!(text, "{} {}", steps[0].controller, steps[0].object);
            for step in steps {
                let _ = writeln!(text, "  {} {}", step.mark(), step.text);
            }
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        text += &self.sum();
        let _ = self.takes.iter().try_for_each(|takes| writeln!(text, "{takes}."));
        text
    }

    /// What is counted, in a line.
    fn sum(&self) -> String {
        let of = |kind| self.steps.iter().filter(|line| line.kind == kind).count();
        let destructive = self.steps.iter().filter(|line| line.mark() == "!").count();
        let steps = match (of(LineKind::Step), destructive) {
            (0, _) if !self.problems.is_empty() => "No step is known".to_owned(),
            (0, _) => "Nothing to do".to_owned(),
            (steps, 0) => count_of(steps, "step"),
            (steps, 1) => format!("{}, of which 1 destroys something", count_of(steps, "step")),
            (steps, more) => format!("{}, of which {more} destroy something", count_of(steps, "step")),
        };
        let others = [
            (of(LineKind::Problem) + self.problems.len(), "problem"),
            (of(LineKind::Withheld), "withheld step"),
            (of(LineKind::Note), "note"),
        ];
        let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| count_of(*count, what));
        let parts: Vec<String> = std::iter::once(steps).chain(others).collect();
        format!("{}.\n", parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_no_step() {
        let line = |kind, destroys, text: &str| {
            let (object, text) = ("n".to_owned(), text.to_owned());
            PlanLine { controller: "node", object, text, destroys, kind }
        };
        let (step, note) = (line(LineKind::Step, false, "add"), line(LineKind::Note, false, "it moves"));
        let withheld = line(LineKind::Withheld, false, "it waits");
        let problem = line(LineKind::Problem, false, "no instance");
        let steps = vec![step.clone(), line(LineKind::Step, true, "remove"), problem.clone(), withheld, note];
        let plan = WholePlan { steps, problems: vec!["route: denied".to_owned()], ..WholePlan::default() };
        expect_test::expect![[r#"
            node n
              + add
              ! remove
              problem: no instance
              withheld: it waits
              note: it moves
            problem: route: denied
            2 steps, of which 1 destroys something; 2 problems; 1 withheld step; 1 note.
        "#]]
        .assert_eq(&plan.to_text());
        let sum = |steps| WholePlan { steps, ..WholePlan::default() }.sum();
        assert_eq!(sum(Vec::new()), "Nothing to do.\n");
        assert_eq!(sum(vec![problem]), "Nothing to do; 1 problem.\n");
        assert_eq!(sum(vec![step]), "1 step.\n");
    }

    #[test]
    fn what_is_withheld_is_something_to_do_and_a_note_is_not() {
        let ended = |kinds: &[LineKind]| {
            let line = |kind: &LineKind| PlanLine::new("node", &"n", *kind, &"text");
            Ended::planned(&kinds.iter().map(line).collect::<Vec<_>>())
        };
        assert!(matches!(ended(&[]), Ended::Done));
        assert!(matches!(ended(&[LineKind::Note]), Ended::Done));
        for kind in [LineKind::Step, LineKind::Problem, LineKind::Withheld] {
            assert!(matches!(ended(&[LineKind::Note, kind]), Ended::SomethingToDo), "{kind:?}");
        }
    }
}
