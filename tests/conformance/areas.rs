//! The steps as a table, and their walk. What is expected of a step is what the simulator answers to the same calls.

mod clb;
mod nlb;
mod place;
mod vpc;

use std::collections::BTreeSet;
use std::time::Instant;

use alicloud_ccm::alibaba::FaultKind;
use clap::ValueEnum;
use futures::future::BoxFuture;
use serde_json::Value;
use sim::cloud::trace::{Exchange, Place, Recording};

use super::recorder::Recorder;
use super::report::Report;
use super::run::{Ended, Outcome, Run, Stop};
use super::{Pace, tell};

/// An area, as an argument and as the name of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// What is there: VPC, vSwitches, instance, interface, disks, EIPs.
    Place,
    /// Classic load balancer.
    Clb,
    /// Network load balancer.
    Nlb,
    /// Route entry.
    Route,
    /// Record in a private zone.
    Pvtz,
}

impl Name {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Clb => "clb",
            Self::Nlb => "nlb",
            Self::Route => "route",
            Self::Pvtz => "pvtz",
        }
    }
}

/// Steps that build on each other and on the place alone.
pub(super) struct Area {
    name: Name,
    /// As it is printed.
    makes: &'static str,
    steps: &'static [Step],
}

/// One call of the library's clients, or one that is repeated until the cloud is ready.
struct Step {
    says: &'static str,
    /// The answer is about what was there before: only its form can be compared.
    form_only: bool,
    call: for<'a> fn(&'a Run) -> BoxFuture<'a, Ended>,
}

macro_rules! steps {
    ($($says:literal, $run:ident => $call:expr;)*) => {
        &[$(super::Step { says: $says, form_only: false, call: |$run| Box::pin(async move { $call }) }),*]
    };
    (form: $($says:literal, $run:ident => $call:expr;)*) => {
        &[$(super::Step { says: $says, form_only: true, call: |$run| Box::pin(async move { $call }) }),*]
    };
}
use steps;

pub(super) const ALL: &[Area] = &[
    Area { name: Name::Place, makes: "nothing (reads)", steps: place::STEPS },
    Area {
        name: Name::Clb,
        makes: "a classic load balancer (intranet, PayByCLCU) with a server group and a listener; an access control list",
        steps: clb::STEPS,
    },
    Area {
        name: Name::Nlb,
        makes: "a network load balancer (intranet) with a listener; a server group; a security group",
        steps: nlb::STEPS,
    },
    Area { name: Name::Route, makes: "a route entry for 198.18.254.0/24 to the instance", steps: vpc::ROUTES },
    Area { name: Name::Pvtz, makes: "a record in the private zone", steps: vpc::RECORDS },
];

impl Area {
    pub(super) fn is_chosen(&self, only: &[Name], place: &Place) -> bool {
        let is_possible = match self.name {
            Name::Pvtz => place.private_zone.is_some(),
            Name::Nlb => place.vswitches.len() > 1,
            Name::Place | Name::Clb | Name::Route => true,
        };
        is_possible && (only.is_empty() || only.contains(&self.name))
    }
}

/// What the check makes, as it is printed.
pub(super) fn plan(areas: &[&Area], place: &Place) -> String {
    let lines = areas.iter().map(|area| format!("  {:<6} {}", area.name.as_str(), area.makes));
    let skipped = ALL.iter().filter(|area| !areas.iter().any(|it| it.name == area.name));
    let skipped = skipped.map(|area| format!("  {:<6} is left out", area.name.as_str()));
    let lines: Vec<_> = lines.chain(skipped).collect();
    format!(
        "The check makes, changes and deletes in {} ({}), which takes some minutes and costs what load balancers cost for them:\n{}",
        place.vpc,
        place.region,
        lines.join("\n")
    )
}

/// Takes the steps of all areas, one after the other.
pub(super) async fn walk(areas: &[&Area], run: &Run, recorder: &Recorder, pace: Pace, report: &mut Report) {
    for area in areas {
        let mut recording = Recording::new(&run.place);
        for step in area.steps {
            match take(step, run, recorder, pace).await {
                Ok(exchanges) => exchanges.into_iter().for_each(|exchange| recording.add(exchange)),
                Err(what) => {
                    let problem = format!("{}: {}: {what}", area.name.as_str(), step.says);
                    tell(&problem);
                    report.skip(problem);
                }
            }
        }
        report.add(area.name.as_str(), recording.finish());
    }
}

/// Repeats a step until the cloud is ready, and gives the calls of the last time. A step that cannot be taken, or whose end never
/// comes, compares nothing.
async fn take(step: &Step, run: &Run, recorder: &Recorder, pace: Pace) -> Result<Vec<Exchange>, String> {
    let started = Instant::now();
    let mut meanwhile = BTreeSet::new();
    for looks in 1.. {
        recorder.take();
        let ended = (step.call)(run).await;
        let mut seen = recorder.take();
        let again = match &ended {
            Err(Stop::Lacks(what)) => return Err(format!("there is no {what}")),
            Err(Stop::Refused(fault)) => matches!(fault.kind, FaultKind::Busy | FaultKind::Transient),
            Ok(outcome) => *outcome == Outcome::NotYet,
        };
        if again && started.elapsed() < pace.patience {
            seen.iter().for_each(|exchange| states(exchange, &mut meanwhile));
            tokio::time::sleep(pace.pause).await;
            continue;
        }
        if let Ok(Outcome::NotYet) = ended {
            return Err(format!("not so after {} s and {looks} looks", started.elapsed().as_secs()));
        }
        let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        for exchange in &mut seen {
            exchange.step = step.says.into();
            exchange.looks = looks;
            exchange.waited_ms = waited_ms;
            exchange.meanwhile = meanwhile.clone();
            exchange.form_only = step.form_only;
        }
        return Ok(seen);
    }
    Ok(Vec::new())
}

/// What an answer says about how far the cloud is.
fn states(exchange: &Exchange, found: &mut BTreeSet<String>) {
    fn look(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| look(item, found)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::String(state) if name.ends_with("Status") => _ = found.insert(state.clone()),
                        other => look(other, found),
                    }
                }
            }
            _ => {}
        }
    }
    match exchange.code() {
        Some(code) => _ = found.insert(code.to_owned()),
        None => look(&exchange.answer, found),
    }
}
