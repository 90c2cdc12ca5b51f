//! Every reason of an event, with its code and what to do: the first table of `docs/reference/events.md`, which is read as it is.
//!
//! The code of a reason never changes and is not used again. Warnings and the lines of the log beside them carry it, so that
//! users can look it up whatever language or tool shows them the event. The codes of all other lines are in the second table.

use std::sync::LazyLock;

/// The manual of events, of lines of the log, and of the outcomes of cloud calls.
pub const EVENTS_PAGE: &str = include_str!("../../../docs/reference/events.md");

/// What the program needs to know about the events of one reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventEntry {
    /// In the documentation, in messages and in the log as `ACCM0123`.
    pub(super) code: u16,
    /// The reason of the Event.
    pub(super) reason: &'static str,
    /// What to do.
    pub(super) remedy: &'static str,
}

const NOTHING: &str = "nothing to do";

static EVENTS: LazyLock<Vec<EventEntry>> = LazyLock::new(|| EVENTS_PAGE.lines().filter_map(entry).collect());

/// What a row of the table says; `None` for any other line of the page.
fn entry(line: &'static str) -> Option<EventEntry> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, code, reason, _cause, _effect, remedy, _] = cells[..] else { return None };
    Some(EventEntry { code: code.strip_prefix("ACCM")?.parse().ok()?, reason: reason.trim_matches('`'), remedy })
}

/// The entry of a reason.
pub(super) fn find(reason: &str) -> Option<&'static EventEntry> {
    EVENTS.iter().find(|entry| entry.reason == reason)
}

/// Code and remedy of the events with this reason; `None` if this program writes none.
pub fn advice(reason: &str) -> Option<(u16, &'static str)> {
    find(reason).map(|entry| (entry.code, entry.remedy))
}

/// The code of a reason, for the line of the log beside an event; empty for a reason of another program.
pub fn event_code(reason: &str) -> String {
    find(reason).map(|entry| format!("ACCM{:04}", entry.code)).unwrap_or_default()
}

/// What to do about an event with this reason; `None` for a reason of another program, or if there is nothing to do.
pub(in crate::cluster) fn remedy(reason: &str) -> Option<&'static str> {
    find(reason).map(|entry| entry.remedy).filter(|remedy| *remedy != NOTHING)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn codes_and_reasons_are_unique_and_in_order() {
        let (events, lines) = EVENTS_PAGE.split_once("\n## Lines of the log\n").unwrap();
        let rows = |part: &'static str| part.lines().filter(|line| line.starts_with("| ACCM")).collect::<Vec<_>>();
        assert_eq!(EVENTS.len(), rows(events).len(), "a row that cannot be read");
        assert!(EVENTS.is_sorted_by(|a, b| a.code < b.code));
        assert_eq!(EVENTS.iter().map(|entry| entry.reason).collect::<BTreeSet<_>>().len(), EVENTS.len());
        assert!(rows(lines).is_sorted_by(|a, b| a[..10] < b[..10]));
    }

    fn product_text(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                product_text(&path, text);
            } else {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn no_entry_outlives_its_reason() {
        let mut text = String::new();
        product_text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let unused: Vec<_> =
            EVENTS.iter().map(|entry| entry.reason).filter(|reason| !text.contains(&format!("\"{reason}\""))).collect();
        assert_eq!(unused, Vec::<&str>::new());
    }
}
