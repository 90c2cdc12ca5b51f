//! What is ready and what is not, in words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::RwLock;

use super::alarms::Alarms;

/// One named thing that readiness depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Fine, with a remark for people.
    Ready(String),
    /// Not fine, and why.
    NotReady(String),
}

/// The checks of this process. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    checks: Arc<RwLock<BTreeMap<String, Check>>>,
    alarms: Alarms,
}

impl Health {
    /// Records that `name` is fine.
    pub fn ready(&self, name: &str, remark: impl Into<String>) {
        self.set(name, Check::Ready(remark.into()));
    }

    /// Records that `name` is not fine.
    pub fn not_ready(&self, name: &str, why: impl Into<String>) {
        self.set(name, Check::NotReady(why.into()));
    }

    /// What is held back; it is shown, and does not count against readiness.
    #[must_use]
    pub const fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// `name` no longer matters, because what it was about has ended.
    pub fn forget(&self, name: &str) {
        self.checks.write().remove(name);
    }

    fn set(&self, name: &str, check: Check) {
        self.checks.write().insert(name.to_owned(), check);
    }

    /// Whether all checks are fine, and a line for each in the style of the Kubernetes components, with remarks and reasons.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let lines = |text: &mut String, checks: &BTreeMap<String, Check>| {
            for (name, check) in checks {
                let _ = match check {
                    Check::Ready(remark) if remark.is_empty() => writeln!(text, "[+]{name} ok"),
                    Check::Ready(remark) => writeln!(text, "[+]{name} ok: {remark}"),
                    Check::NotReady(why) => writeln!(text, "[-]{name} failed: {why}"),
                };
            }
            text.push_str(&self.alarms.report());
        };
        self.told(lines)
    }

    /// As [`Self::report`], but without what names objects, hosts or users: for whoever asks.
    #[must_use]
    pub fn states(&self) -> (bool, String) {
        let lines = |text: &mut String, checks: &BTreeMap<String, Check>| {
            for (name, check) in checks {
                let _ = match check {
                    Check::Ready(_) => writeln!(text, "[+]{name} ok"),
                    Check::NotReady(_) => writeln!(text, "[-]{name} failed: reason withheld"),
                };
            }
            text.push_str(&self.alarms.states());
        };
        self.told(lines)
    }

    fn told(&self, lines: impl Fn(&mut String, &BTreeMap<String, Check>)) -> (bool, String) {
        let checks = self.checks.read();
        let ready = !checks.is_empty() && checks.values().all(|check| matches!(check, Check::Ready(_)));
        let mut text = String::new();
        lines(&mut text, &checks);
        text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
        (ready, text)
    }

    /// How this process is doing, in one line: what it waits for, or the remarks of what is fine.
    #[must_use]
    pub fn summary(&self) -> String {
        if let Some(obstacles) = self.waiting_for() {
            return format!("waiting for {obstacles}");
        }
        let checks = self.checks.read();
        let remarks: Vec<_> = checks
            .values()
            .filter_map(|check| match check {
                Check::Ready(remark) if !remark.is_empty() => Some(remark.as_str()),
                Check::Ready(_) | Check::NotReady(_) => None,
            })
            .collect();
        let line = if remarks.is_empty() { "starting".to_owned() } else { remarks.join("; ") };
        match self.alarms.summary() {
            Some(alarms) => format!("{line}; {alarms}"),
            None => line,
        }
    }

    /// What stands in the way, in one line; `None` if nothing does.
    #[must_use]
    pub fn waiting_for(&self) -> Option<String> {
        let checks = self.checks.read();
        let failed: Vec<_> = checks
            .iter()
            .filter_map(|(name, check)| match check {
                Check::NotReady(why) => Some(format!("{name}: {why}")),
                Check::Ready(_) => None,
            })
            .collect();
        (!failed.is_empty()).then(|| failed.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_check_makes_the_whole_not_ready_and_says_why() {
        let health = Health::default();
        assert!(!health.report().0, "nothing is known yet");
        assert_eq!(health.summary(), "starting");
        health.ready("leader", "standby");
        assert_eq!(health.summary(), "standby");
        assert_eq!(health.report(), (true, "[+]leader ok: standby\nreadyz check passed\n".to_owned()));
        health.not_ready("cloud", "InvalidAccessKeyId.NotFound");
        let (ready, text) = health.report();
        assert!(!ready);
        assert!(text.contains("[-]cloud failed: InvalidAccessKeyId.NotFound\n"), "{text}");
        assert_eq!(health.waiting_for().as_deref(), Some("cloud: InvalidAccessKeyId.NotFound"));
        assert_eq!(health.summary(), "waiting for cloud: InvalidAccessKeyId.NotFound");
        health.forget("cloud");
        assert!(health.report().0);
        health.alarms().set("test-health", "RouteRemovalHeldBack", 2, "10.0.1.0/24, 10.0.2.0/24: raise the limit");
        let (ready, text) = health.report();
        assert!(ready, "another copy would see the same");
        assert!(text.contains("[!]test-health holds back 2 (RouteRemovalHeldBack): 10.0.1.0/24"), "{text}");
        assert_eq!(health.summary(), "standby; test-health holds back 2 (RouteRemovalHeldBack)");
        health.not_ready("cloud", "i-1 is not there");
        let states = "[-]cloud failed: reason withheld\n[+]leader ok\n\
                      [!]test-health holds something back (RouteRemovalHeldBack)\nreadyz check failed\n";
        assert_eq!(health.states(), (false, states.to_owned()));
    }
}
