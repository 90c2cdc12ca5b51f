//! `gc`: what carries our proof of ownership in the cloud and has no owner any more.
//!
//! Marks are what only this program and the official controller write: on a load balancer the tag with the cluster's id
//! together with the mark tag, on an access control list the tag with that id together with its name, on a route entry the
//! description with the cluster's id and the node, on a record of a private zone the remark that is made of the cluster's id and
//! uid. A name alone proves nothing, and neither does the id alone, which another cluster can have: the uid of the cluster must be in the marks. What has
//! the id alone is deleted only if a person names it; what another cluster made is never deleted.
//!
//! One look deletes nothing: with `--delete`, what is still an orphan at a second look is deleted. Where deletions take long, another
//! look precedes the next one.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::connect::connect;
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::cli::OutputFormat;
use crate::config::Config;
use crate::controllers::Clients;
use crate::controllers::orphan::{Leftover, Orphans, Unjudged};
use crate::controllers::registry::CONTROLLERS;
use crate::fence::fence;
use crate::plan::provenance::{Provenance, Unclaimed};

/// How long a look proves that something has no owner.
const LOOK_LASTS: Duration = Duration::from_secs(10);

/// What is to be deleted.
#[derive(Debug)]
pub(super) struct Deletion {
    /// Only these; empty for every orphan that is proven to be this cluster's.
    pub(super) ids: BTreeSet<String>,
    /// Between the two looks.
    pub(super) pause: Duration,
}

/// Something that is not deleted, or only if a person names it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Doubtful {
    #[serde(flatten)]
    pub(super) what: Leftover,
    /// The evidence.
    pub(super) why: String,
}

/// What was found, and what was done about it.
#[derive(Default, Serialize)]
pub(super) struct Findings {
    /// What is proven to be this cluster's and has no owner; after `--delete`, what is left.
    pub(super) orphans: Vec<Leftover>,
    /// What has no owner in this cluster, and may have one in another.
    pub(super) unproven: Vec<Doubtful>,
    /// What another cluster with the same id made.
    pub(super) other_clusters: Vec<Doubtful>,
    /// What was deleted.
    deleted: Vec<Leftover>,
    /// What could not be read or deleted, and why.
    pub(super) problems: Vec<String>,
    /// What was not looked at, because a controller that does not run has no right to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

pub(super) fn run(config: &Config, deletion: Option<&Deletion>, output: OutputFormat) -> CommandResult {
    let found = runtime()?.block_on(collect(config, deletion))?;
    print_findings(output, &found.to_text(), &found)?;
    Ok(match (found.problems.is_empty(), found.orphans.is_empty() && found.unproven.is_empty()) {
        (false, _) => Ended::Incomplete,
        (true, true) => Ended::Done,
        (true, false) => Ended::SomethingToDo,
    })
}

/// Looks for orphans; with a `deletion`, looks again after its pause and deletes what both looks found.
async fn collect(config: &Config, deletion: Option<&Deletion>) -> Result<Findings, CommandError> {
    let mut first = look(&connect(config).await?, config).await;
    let Some(deletion) = deletion else { return Ok(first) };
    let chosen = first.choose(deletion);
    if chosen.is_empty() {
        return Ok(first);
    }
    tokio::time::sleep(deletion.pause).await;
    // A new connection, so that the second look does not reuse anything that the first one read.
    let clients = connect(config).await?;
    let mut found = look(&clients, config).await;
    let (keeper, fence) = fence();
    // No controller writes to an orphan, so the leader need not be asked.
    keeper.lead_unbounded();
    let (mut ownerless, mut looked_at) = (found.choose(deletion), Instant::now());
    for orphan in ownerless.clone().into_iter().filter(|orphan| chosen.contains(orphan)) {
        // A deletion can take minutes, in which a Service may claim one of those that follow.
        if looked_at.elapsed() >= LOOK_LASTS {
            (ownerless, looked_at) = (look(&clients, config).await.choose(deletion), Instant::now());
        }
        if !ownerless.contains(&orphan) {
            found.orphans.retain(|one| *one != orphan);
            found.unproven.retain(|doubtful| doubtful.what != orphan);
            found.problems.push(format!("{orphan}: another look did not show it without an owner; it is not deleted"));
            continue;
        }
        match orphan.delete(&clients.cloud, &fence).await {
            Ok(()) => {
                found.orphans.retain(|one| *one != orphan);
                found.unproven.retain(|doubtful| doubtful.what != orphan);
                found.deleted.push(orphan);
            }
            Err(why) => found.problems.push(format!("{orphan}: {why}")),
        }
    }
    Ok(found)
}

pub(super) async fn look(clients: &Clients, config: &Config) -> Findings {
    // Kept, so that the controllers' looks share one list.
    let _watches = (clients.cluster.services(), clients.cluster.nodes());
    let mut findings = Findings::default();
    for (row, find) in CONTROLLERS.iter().filter_map(|row| Some((row, row.orphans?))) {
        let Orphans { found, problems } = find(clients, config).await;
        let runs = config.controllers.contains(row.name());
        for Unjudged { why, is_denied } in problems {
            match runs || !is_denied {
                true => findings.problems.push(why),
                false => findings.notes.push(format!("{} does not run: {why}", row.name())),
            }
        }
        for Unclaimed { what, provenance } in found {
            match provenance {
                Provenance::ThisCluster => findings.orphans.push(what),
                Provenance::Unproven(why) => findings.unproven.push(Doubtful { what, why }),
                Provenance::OtherCluster(why) => findings.other_clusters.push(Doubtful { what, why }),
            }
        }
    }
    findings
}

impl Findings {
    /// What may be deleted. Each id that may not is a problem.
    fn choose(&mut self, deletion: &Deletion) -> Vec<Leftover> {
        if deletion.ids.is_empty() {
            return self.orphans.clone();
        }
        let by_id = |id: &String| {
            let is = |orphan: &&Leftover| orphan.id() == id;
            let unproven = self.unproven.iter().map(|doubtful| &doubtful.what);
            let chosen: Vec<Leftover> = self.orphans.iter().chain(unproven).filter(is).cloned().collect();
            match self.other_clusters.iter().find(|doubtful| is(&&doubtful.what)) {
                Some(Doubtful { why, .. }) => Err(format!("{id} is another cluster's and is not deleted: {why}")),
                None if chosen.is_empty() => Err(format!("{id} is not among what has no owner; it is not deleted")),
                None => Ok(chosen),
            }
        };
        let (chosen, refused): (Vec<_>, Vec<_>) = deletion.ids.iter().map(by_id).partition(Result::is_ok);
        self.problems.extend(refused.into_iter().filter_map(Result::err));
        chosen.into_iter().flatten().flatten().collect()
    }

    /// One line each.
    fn to_text(&self) -> String {
        let mut text = String::new();
        for (what, orphans) in [("without owner", &self.orphans), ("deleted", &self.deleted)] {
            for orphan in orphans {
                let _ = writeln!(text, "{what}: {orphan}");
            }
        }
        for Doubtful { what, why } in &self.unproven {
            let id = what.id();
            let _ = writeln!(
                text,
                "may be another cluster's: {what}; {why}. It is kept; if it is certain that no cluster needs it: \
                 alicloud-ccm gc --delete {id}"
            );
        }
        for Doubtful { what, why } in &self.other_clusters {
            let _ = writeln!(text, "another cluster's: {what}; {why}. It is kept");
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        if text.is_empty() {
            text.push_str("Nothing is without an owner.\n");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}
