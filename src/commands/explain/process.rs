//! What the process on this machine knows of an object: what failed last, since when, and when it is tried again.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use crate::config::checked::Server;
use crate::plan::inputs::ObjectKey;
use crate::telemetry::machine::page;

/// The page that the process serves.
const PAGE: &str = "/debug/objects";

/// What `/debug/objects` serves, as far as it is about one object.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ProcessReport {
    /// Whether it leads, in words.
    leader: String,
    objects: Vec<ReportedObject>,
}

/// One object that is not in sync for a controller. What the process adds later is left out.
#[derive(Debug, Deserialize, Serialize)]
struct ReportedObject {
    controller: String,
    object: String,
    state: String,
    since: String,
    next_attempt: Option<String>,
    message: String,
    remedy: Option<String>,
    failed_call: Option<ReportedCall>,
}

#[derive(Debug, Deserialize, Serialize)]
struct ReportedCall {
    action: String,
    code: String,
    request_id: String,
}

/// Asks the process; `None` if there is none here, an error in words if it does not answer.
pub(super) async fn ask(
    server: &Server,
    key: &ObjectKey,
    controllers: &[&'static str],
) -> Result<Option<ProcessReport>, String> {
    let text = match page(server.port, PAGE).await {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::Unsupported) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut report: ProcessReport = serde_json::from_str(&text).map_err(|error| format!("{PAGE}: {error}"))?;
    let name = key.to_string();
    report.objects.retain(|it| it.object == name && controllers.contains(&&*it.controller));
    Ok(Some(report))
}

impl ProcessReport {
    /// What it waits for, and until when; `None` if nothing failed.
    pub(super) fn trouble(&self) -> Option<String> {
        let it = self.objects.first()?;
        Some(format!("{}; {}", it.message, it.next()))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.leader.clone()];
        if self.objects.is_empty() {
            lines.push("does not report the object as out of sync".to_owned());
        }
        for it in &self.objects {
            lines.push(format!("{}: {} since {}: {}", it.controller, it.state, it.since, it.message));
            lines.extend(it.failed_call.as_ref().map(|ReportedCall { action, code, request_id }| {
                format!("  failed call: {action}, code {}, request {}", or_none(code), or_none(request_id))
            }));
            lines.push(format!("  {}", it.next()));
            lines.extend(it.remedy.as_ref().map(|remedy| format!("  to do: {remedy}")));
        }
        lines.retain(|line| !line.is_empty());
        lines
    }
}

impl ReportedObject {
    fn next(&self) -> String {
        match &self.next_attempt {
            Some(at) => format!("next attempt at {at}"),
            None => "next attempt after a change, or with the next look at all objects".to_owned(),
        }
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}
