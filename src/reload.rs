//! The effect of a changed configuration: which keys differ, and how each takes effect.
//!
//! One table has it for every key of the file; the documentation and the decision both follow from it.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::watch::Reload;
use crate::config::{self, Config};
use crate::controllers::registry::CONTROLLERS;
use crate::supervisor::{JobName, Transitions, wanted};

/// How a changed key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// The running parts use the new value; nothing is restarted.
    InPlace,
    /// Controllers that were added to the list start, those that were removed from it end; others are not affected.
    StartsAndStops,
    /// The connections to the API server and to the cloud, and with them every controller, start again in the same process.
    Reconnects,
    /// A running process refuses it, see [`refused`](crate::config::watch::refused).
    Refused,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// A key, or a section with everything in it.
    pub key: &'static str,
    /// How.
    pub takes: Takes,
    /// From when on, as the documentation states it.
    pub when: &'static str,
}

const fn row(key: &'static str, takes: Takes, when: &'static str) -> Effect {
    Effect { key, takes, when }
}

const STOP_ALL: &str = "with the next start; stop all replicas before, or two lead";

const MADE_FROM_THEN_ON: &str = "at once, for load balancers and listeners that are made from then on";

/// Keys outside of the sections of controllers, and those of them with an effect of their own.
static EFFECTS: &[Effect] = &[
    row("controllers", Takes::StartsAndStops, "at once; without `route`, its conditions are cleared"),
    row("cloud.region", Takes::Reconnects, "at once"),
    row("cloud.vpc_id", Takes::Reconnects, "at once"),
    row("cloud.zone_id", Takes::Reconnects, "at once"),
    row("cloud.endpoints.metadata", Takes::Reconnects, "at once"),
    row("cloud.credentials", Takes::InPlace, "with the next call, also when only a file that is named here changed"),
    row("cloud.endpoints", Takes::InPlace, "with the next call"),
    row("cloud.budget_share", Takes::InPlace, "with the next call"),
    row("cloud.quotas", Takes::InPlace, "with the next call"),
    row("cloud.timeout", Takes::InPlace, "with the next call"),
    row("cloud", Takes::InPlace, "everything is compared with the cloud again at once"),
    row("kubernetes.kubeconfig", Takes::Reconnects, "at once; what the file holds is re-read in place"),
    row("kubernetes.context", Takes::Reconnects, "at once"),
    row("kubernetes.server", Takes::Reconnects, "at once"),
    row("kubernetes", Takes::InPlace, "with the next request"),
    row("leader_election.enabled", Takes::Refused, STOP_ALL),
    row("leader_election.name", Takes::Refused, STOP_ALL),
    row("leader_election.namespace", Takes::Refused, STOP_ALL),
    row("leader_election", Takes::InPlace, "at once; the election starts again, the controllers pause until it is won"),
    row("server", Takes::InPlace, "at once; the old address is served until the new one is"),
    row("log", Takes::InPlace, "with the next line"),
    row("traces", Takes::InPlace, "with the next reconcile"),
    row("node.disable_source_dest_check", Takes::InPlace, "for nodes that are initialised from then on"),
];

/// Every key of the file; the first row that fits counts. Controllers see a change of their section in place.
pub fn effects() -> impl Iterator<Item = Effect> {
    let later = config::defaults().filter(|default| !default.holds_at_once);
    let later = later.map(|default| row(default.key, Takes::InPlace, MADE_FROM_THEN_ON));
    let sections = CONTROLLERS.iter().map(|controller| row(controller.section, Takes::InPlace, controller.on_change));
    EFFECTS.iter().copied().chain(later).chain(sections)
}

/// The row about a key such as `route.period`.
pub fn effect_of(key: &str) -> Option<Effect> {
    effects().find(|row| key.strip_prefix(row.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// What a new configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConfigChange {
    /// Keys that differ, as they are called in the file.
    #[serde(rename = "changed")]
    pub keys: BTreeSet<String>,
    /// What starts.
    pub started: BTreeSet<JobName>,
    /// What ends.
    pub stopped: BTreeSet<JobName>,
    /// What ends and starts again.
    pub restarted: BTreeSet<JobName>,
}

impl ConfigChange {
    /// What differs between the running configuration and the one after it.
    pub fn between(before: &Config, after: &Config) -> Self {
        let keys = changed_keys(before, after);
        let Transitions { stop, start } = Transitions::between(&wanted(before), &wanted(after));
        let mut change = Self { keys, started: start, stopped: stop, restarted: BTreeSet::new() };
        if change.reconnects() {
            change.restarted = wanted(before).into_keys().filter(|job| !change.stopped.contains(job)).collect();
        }
        change
    }

    /// Whether everything behind the health server has to start anew.
    pub fn reconnects(&self) -> bool {
        self.keys.iter().any(|key| effect_of(key).is_some_and(|row| row.takes == Takes::Reconnects))
    }
}

/// Tables inside of sections whose keys are reported one by one.
const INNER: [&str; 3] = ["cloud.endpoints", "service.defaults", "nlb.defaults"];

fn changed_keys(before: &Config, after: &Config) -> BTreeSet<String> {
    let secrets = [
        ("cloud.credentials", before.cloud.credentials != after.cloud.credentials),
        ("server.tls_key_file", before.server.tls_key_file != after.server.tls_key_file),
        ("traces.headers", before.traces.headers != after.traces.headers),
    ];
    let changed = secrets.into_iter().filter(|(_, has_changed)| *has_changed);
    let mut keys = changed.map(|(key, _)| key.to_owned()).collect();
    // Secrets are all alike here; they were compared above.
    compare("", &json!(before), &json!(after), &mut keys);
    keys
}

fn compare(path: &str, before: &Value, after: &Value, keys: &mut BTreeSet<String>) {
    if before == after {
        return;
    }
    let descends = !path.contains('.') || INNER.contains(&path);
    match before.as_object() {
        Some(fields) if descends => {
            for name in fields.keys() {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(&below, &before[name], &after[name], keys);
            }
        }
        _ => drop(keys.insert(path.to_owned())),
    }
}

impl fmt::Display for ConfigChange {
    /// Such as `changed: controllers, route.period; started: route; stopped: routes-off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keys.is_empty() {
            f.write_str("only the text of the file changed")?;
        } else {
            write!(f, "changed: {}", Vec::from_iter(self.keys.clone()).join(", "))?;
        }
        for (verb, jobs) in [("started", &self.started), ("stopped", &self.stopped), ("restarted", &self.restarted)] {
            if !jobs.is_empty() {
                write!(f, "; {verb}: {}", Vec::from_iter(jobs.iter().copied()).join(", "))?;
            }
        }
        Ok(())
    }
}

impl Reload<ConfigChange> {
    /// `unchanged`, `applied` or `rejected`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Applied(_) => "applied",
            Self::Rejected { .. } => "rejected",
        }
    }

    /// Reason and text of an event; `true` if it needs attention.
    pub fn event(&self) -> (bool, &'static str, String) {
        match self {
            Self::Unchanged => (false, "ConfigUnchanged", "The configuration has not changed".to_owned()),
            Self::Applied(change) => (false, "ConfigApplied", format!("The changed configuration is in use; {change}")),
            Self::Rejected { report, .. } => {
                let mut text = "The changed configuration has problems, so the previous one stays in use".to_owned();
                for problem in report.problems() {
                    let key = problem.key.as_deref().map(|key| format!("{key}: ")).unwrap_or_default();
                    // Cannot fail: it is a String.
                    let _ = write!(text, "; {key}{}", problem.message);
                }
                (true, "ConfigRejected", text)
            }
        }
    }
}

#[cfg(test)]
mod tests;
