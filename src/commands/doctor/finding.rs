//! What was found, and how bad it is.

use std::fmt::{self, Write};

use serde::Serialize;

use crate::commands::Ended;

/// What is looked at, in the order in which each needs those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Requirement {
    Configuration,
    Place,
    Endpoints,
    Clock,
    Credentials,
    Permissions,
    Kubernetes,
    Rbac,
    Leader,
    Official,
    Nodes,
    Network,
    Quotas,
    VSwitches,
    Identity,
    Orphans,
    Services,
    Plan,
    Process,
}

impl Requirement {
    pub(super) fn ok(self, what: impl Into<String>) -> CheckResult {
        CheckResult::new(self, Verdict::Ok, what.into())
    }

    pub(super) fn note(self, what: impl Into<String>) -> CheckResult {
        CheckResult::new(self, Verdict::Note, what.into())
    }

    pub(super) fn warning(self, what: impl Into<String>) -> CheckResult {
        CheckResult::new(self, Verdict::Warning, what.into())
    }

    pub(super) fn error(self, what: impl Into<String>) -> CheckResult {
        CheckResult::new(self, Verdict::Error, what.into())
    }

    /// It could not be looked at.
    pub(super) fn unknown(self, why: impl Into<String>) -> CheckResult {
        CheckResult::new(self, Verdict::Unknown, format!("not checked: {}", why.into()))
    }
}

/// How bad it is; the worst comes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it has to be.
    #[default]
    Ok,
    /// Worth knowing.
    Note,
    /// Something does not work, or will not.
    Warning,
    /// It could not be looked at.
    Unknown,
    /// What the configuration asks for cannot be done.
    Error,
}

/// As in JSON.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// As in JSON.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckResult {
    pub(super) section: Requirement,
    pub(super) severity: Verdict,
    /// One sentence.
    pub(super) what: String,
    /// What was seen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) evidence: String,
    /// The command or the edit that repairs it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

impl CheckResult {
    const fn new(section: Requirement, severity: Verdict, what: String) -> Self {
        Self { section, severity, what, evidence: String::new(), remedy: String::new() }
    }

    pub(super) fn seen(self, evidence: impl ToString) -> Self {
        Self { evidence: evidence.to_string(), ..self }
    }

    pub(super) fn repair(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Diagnosis {
    /// The first of the worst, in one sentence.
    pub(super) summary: String,
    /// How bad that is.
    pub(super) worst: Verdict,
    /// In the order in which they matter.
    pub(super) findings: Vec<CheckResult>,
}

impl Diagnosis {
    /// The true cause is the first of the worst: what comes later needs what comes before.
    pub(super) fn of(mut findings: Vec<CheckResult>) -> Self {
        findings.sort_by_key(|finding| finding.section);
        let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or_default();
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let first = findings.iter().find(|finding| finding.severity == worst);
        let summary = match first.filter(|_| worst >= Verdict::Warning) {
            Some(CheckResult { section, what, .. }) => {
                let others = findings.iter().filter(|finding| finding.severity >= Verdict::Warning).count() - 1;
                let others = if others == 0 { String::new() } else { format!(" (and {others} more)") };
                format!("{worst}: {section}: {what}{others}")
            }
            None => format!("nothing is wrong: {} checks, {} notes", findings.len(), count(Verdict::Note)),
        };
        Self { summary, worst, findings }
    }

    pub(super) const fn ended(&self) -> Ended {
        match self.worst {
            Verdict::Ok | Verdict::Note => Ended::Done,
            Verdict::Warning => Ended::SomethingToDo,
            Verdict::Unknown | Verdict::Error => Ended::Incomplete,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}\n\n", self.summary);
        for CheckResult { section, severity, what, evidence, remedy } in &self.findings {
            let _ = writeln!(text, "{severity:8} {section}: {what}");
            for (label, more) in [("seen", evidence), ("to do", remedy)] {
                if !more.is_empty() {
                    let _ = writeln!(text, "         {label}: {}", more.replace('\n', "\n         "));
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_worst_is_the_summary_and_the_exit_code() {
        let ok = || Requirement::Place.ok("here");
        let all_well = Diagnosis::of(vec![Requirement::Leader.note("no replica"), ok()]);
        assert_eq!(all_well.summary, "nothing is wrong: 2 checks, 1 notes");
        assert!(matches!(all_well.ended(), Ended::Done));
        let warned = Diagnosis::of(vec![Requirement::Nodes.warning("b"), Requirement::Clock.warning("a"), ok()]);
        assert_eq!(warned.summary, "warning: clock: a (and 1 more)");
        assert!(matches!(warned.ended(), Ended::SomethingToDo));
        let cause = Requirement::Credentials.error("the key").seen("code").repair("another key");
        let broken = Diagnosis::of(vec![Requirement::Nodes.unknown("no key"), Requirement::Clock.warning("a"), cause]);
        assert_eq!(broken.summary, "error: credentials: the key (and 2 more)");
        assert!(matches!(broken.ended(), Ended::Incomplete));
        let text = "error    credentials: the key\n         seen: code\n         to do: another key\n";
        assert!(broken.to_text().contains(text), "{}", broken.to_text());
    }
}
