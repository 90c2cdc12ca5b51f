//! What the check found: traces as files, and a table of agreements and differences.

use std::io::Write as _;
use std::path::Path;

use serde_json::json;
use sim::cloud::Cloud;
use sim::cloud::trace::{Finding, Trace, Verdict};

use super::{anything, tell};

#[derive(Default)]
pub(super) struct Report {
    traces: Vec<(&'static str, Trace)>,
    findings: Vec<Finding>,
    skipped: Vec<String>,
}

impl Report {
    /// Replays the trace of an area against the simulator.
    pub(super) fn add(&mut self, area: &'static str, trace: Trace) {
        self.findings.extend(trace.replay(&Cloud::new(trace.account())));
        self.traces.push((area, trace));
    }

    /// A step that could not be taken.
    pub(super) fn skip(&mut self, problem: String) {
        self.skipped.push(problem);
    }

    /// Whether every step was taken.
    pub(super) fn is_whole(&self) -> bool {
        self.skipped.is_empty()
    }

    pub(super) fn agrees(&self) -> bool {
        self.findings.iter().all(|it| it.verdict == Verdict::Agrees)
    }

    /// A file for each area.
    pub(super) fn write(&self, folder: &Path) -> Result<(), String> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for (area, trace) in &self.traces {
            let path = folder.join(format!("{area}.json"));
            let text = trace.text().map_err(anything)?;
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            tell(&format!("Trace: {}", path.display()));
        }
        Ok(())
    }

    pub(super) fn print(&self, as_json: bool) {
        let text = if as_json {
            format!("{:#}", json!({"findings": self.findings, "skipped": self.skipped}))
        } else {
            self.table()
        };
        // The reader may have gone, as in `conformance | head`.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    fn table(&self) -> String {
        let mut lines = Vec::new();
        for Finding { step, product, action, verdict, details } in &self.findings {
            let verdict = match verdict {
                Verdict::Agrees => "agrees",
                Verdict::Later => "later",
                Verdict::Differs => "DIFFERS",
            };
            lines.push(format!("{verdict:<8} {:<48} {step}", format!("{product}:{action}")));
            lines.extend(details.iter().map(|detail| format!("{:9}{detail}", "")));
        }
        lines.extend(self.skipped.iter().map(|problem| format!("skipped  {problem}")));
        let count = |verdict| self.findings.iter().filter(|it| it.verdict == verdict).count();
        let [agrees, later, differs] = [Verdict::Agrees, Verdict::Later, Verdict::Differs].map(count);
        let skipped = self.skipped.len();
        lines.push(format!(
            "{agrees} agree, {later} come later than in the simulator, {differs} differ, {skipped} steps skipped"
        ));
        lines.join("\n")
    }
}
