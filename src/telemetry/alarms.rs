//! Alarms: what a controller withholds or cannot do because the view of the cluster or of the cloud is not to be trusted.
//!
//! An alarm stands until its cause is gone. `/readyz` shows each with the way to release what is withheld, and the metric
//! `alicloud_ccm_held_back` counts them. The controller that raises an alarm also writes the event of the same reason.
//! Readiness does not suffer, because another replica would see the same.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::RwLock;

use super::metrics;

/// Names of objects in one text; further ones are only counted.
const NAMED: usize = 5;

/// The alarms of this process. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Alarms {
    standing: Arc<RwLock<BTreeMap<(&'static str, &'static str), Alarm>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Alarm {
    count: usize,
    text: String,
}

impl Alarms {
    /// `controller` withholds `count` steps for this `reason`, which is also the reason of the event about it. A count of 0
    /// ends the alarm. True if it did not stand before.
    pub fn set(&self, controller: &'static str, reason: &'static str, count: usize, text: impl Into<String>) -> bool {
        let mut standing = self.standing.write();
        let key = (controller, reason);
        let new = match count {
            0 => {
                standing.remove(&key);
                false
            }
            _ => standing.insert(key, Alarm { count, text: text.into() }).is_none(),
        };
        publish(&standing, controller);
        new
    }

    /// Whether an alarm stands.
    #[must_use]
    pub fn stands(&self, controller: &'static str, reason: &'static str) -> bool {
        self.standing.read().contains_key(&(controller, reason))
    }

    /// The controller stopped, so it withholds nothing.
    pub fn clear(&self, controller: &'static str) {
        let mut standing = self.standing.write();
        standing.retain(|(of, _), _| *of != controller);
        publish(&standing, controller);
    }

    /// A line for each alarm that stands.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::new();
        for ((controller, reason), Alarm { count, text: what }) in self.standing.read().iter() {
            let _ = writeln!(text, "[!]{controller} withholds {count} ({reason}): {what}");
        }
        text
    }

    /// A line for each that stands, without names of objects.
    #[must_use]
    pub fn states(&self) -> String {
        let mut text = String::new();
        for (controller, reason) in self.standing.read().keys() {
            let _ = writeln!(text, "[!]{controller} withholds something ({reason})");
        }
        text
    }

    /// All in one line, for a status; `None` if there is none.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let standing = self.standing.read();
        let parts: Vec<String> = standing
            .iter()
            .map(|((controller, reason), alarm)| format!("{controller} withholds {} ({reason})", alarm.count))
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn publish(standing: &BTreeMap<(&'static str, &'static str), Alarm>, controller: &'static str) {
    let of = standing.iter().filter(|((name, _), _)| *name == controller);
    metrics::withheld(controller, of.map(|(_, alarm)| alarm.count).sum());
}

/// The first few names, and how many there are besides.
#[must_use]
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_stands_until_its_cause_is_gone() {
        let alarms = Alarms::default();
        assert!(alarms.set("test-a", "RemovalHeldBack", 2, "a, b: raise the limit"));
        assert!(!alarms.set("test-a", "RemovalHeldBack", 3, "a, b, c: raise the limit"), "it stood before");
        assert!(alarms.set("test-a", "OwnerMissing", 1, "x: gc"));
        assert!(alarms.report().contains("[!]test-a withholds 3 (RemovalHeldBack): a, b, c: raise the limit\n"));
        assert!(metrics::render().contains(r#"alicloud_ccm_held_back{controller="test-a"} 4"#), "the sum");
        alarms.set("test-a", "RemovalHeldBack", 0, "");
        assert!(!alarms.stands("test-a", "RemovalHeldBack") && alarms.stands("test-a", "OwnerMissing"));
        alarms.clear("test-a");
        assert_eq!((alarms.report().as_str(), alarms.summary()), ("", None));
        assert!(metrics::render().contains(r#"alicloud_ccm_held_back{controller="test-a"} 0"#));
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(named(["a", "b"]), "a, b");
        assert_eq!(named(["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
