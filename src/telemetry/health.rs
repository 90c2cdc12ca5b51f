//! Readiness, as `/readyz` and the service manager show it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::json;

use super::alarms::Alarms;
use super::tasks::Tasks;

/// The state of one named thing that readiness depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What readiness depends on.
    pub name: String,
    /// Whether it is ready.
    pub is_ready: bool,
    /// A remark, or why it is not ready.
    pub text: String,
}

/// The checks of this process. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    checks: Arc<RwLock<BTreeMap<String, HealthCheck>>>,
    alarms: Alarms,
    tasks: Tasks,
}

impl Health {
    /// Records that `name` is ready.
    pub fn ready(&self, name: &str, remark: impl Into<String>) {
        self.set(name, true, remark.into());
    }

    /// Records that `name` is not ready.
    pub fn not_ready(&self, name: &str, why: impl Into<String>) {
        self.set(name, false, why.into());
    }

    /// The alarms, which are shown and do not count against readiness.
    pub const fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// The long-lived tasks; one that does not run is a check that fails.
    pub const fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    fn set(&self, name: &str, is_ready: bool, text: String) {
        let check = HealthCheck { name: name.to_owned(), is_ready, text };
        self.checks.write().insert(check.name.clone(), check);
    }

    /// Every check, and the tasks with which something is wrong, in the order of their names.
    pub fn checks(&self) -> Vec<HealthCheck> {
        let mut checks = self.checks.read().clone();
        checks.extend(self.tasks.troubles().into_iter().map(|trouble| {
            let (name, is_ready) = (format!("task {}", trouble.name), trouble.is_running);
            let text = if is_ready { format!("{name} {}", trouble.text) } else { trouble.text };
            (name.clone(), HealthCheck { name, is_ready, text })
        }));
        checks.into_values().collect()
    }

    /// Whether all checks are ready, and a line for each in the style of the Kubernetes components. Only the details have remarks
    /// and reasons, which name objects, hosts or users: not for clients that are not authorized.
    pub fn report(&self, details: bool) -> (bool, String) {
        let checks = self.checks();
        let mut text = String::new();
        for HealthCheck { name, is_ready, text: why } in &checks {
            let _ = match is_ready {
                true if details && !why.is_empty() => writeln!(text, "[+]{name} ok: {why}"),
                true => writeln!(text, "[+]{name} ok"),
                false if details => writeln!(text, "[-]{name} failed: {why}"),
                false => writeln!(text, "[-]{name} failed: reason withheld"),
            };
        }
        text.push_str(&self.alarms.report(details));
        let ready = !checks.is_empty() && checks.iter().all(|check| check.is_ready);
        text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
        (ready, text)
    }

    /// What `/debug/objects` serves: whether this process leads, the objects that are not in sync, and what is withheld. JSON.
    pub fn objects(&self) -> String {
        let leader = self.checks.read().get("leader").filter(|check| check.is_ready).map(|check| check.text.clone());
        let page = json!({
            "leader": leader.unwrap_or_default(),
            "objects": self.alarms.objects(),
            "withheld": self.alarms.withheld(),
        });
        format!("{page:#}\n")
    }

    /// The state of this process in one line: what it waits for, or the remarks of the checks.
    pub fn summary(&self) -> String {
        if let Some(failed) = self.waiting_for() {
            return format!("waiting for {failed}");
        }
        let remarks = self.checks().into_iter().map(|check| check.text).filter(|remark| !remark.is_empty());
        let remarks: Vec<String> = remarks.collect();
        let line = if remarks.is_empty() { "starting".to_owned() } else { remarks.join("; ") };
        match self.alarms.summary() {
            Some(alarms) => format!("{line}; {alarms}"),
            None => line,
        }
    }

    /// The checks that are not ready, in one line; `None` if all are.
    pub fn waiting_for(&self) -> Option<String> {
        let failed = self.checks().into_iter().filter(|check| !check.is_ready);
        let failed: Vec<String> = failed.map(|check| format!("{}: {}", check.name, check.text)).collect();
        (!failed.is_empty()).then(|| failed.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_check_makes_the_whole_not_ready_and_says_why() {
        let health = Health::default();
        assert!(!health.report(true).0, "nothing is known yet");
        assert_eq!(health.summary(), "starting");
        health.ready("leader", "standby");
        assert_eq!(health.summary(), "standby");
        assert_eq!(health.report(true), (true, "[+]leader ok: standby\nreadyz check passed\n".to_owned()));
        health.not_ready("cloud", "InvalidAccessKeyId.NotFound");
        let (ready, text) = health.report(true);
        assert!(!ready);
        assert!(text.contains("[-]cloud failed: InvalidAccessKeyId.NotFound\n"), "{text}");
        assert_eq!(health.waiting_for().as_deref(), Some("cloud: InvalidAccessKeyId.NotFound"));
        assert_eq!(health.summary(), "waiting for cloud: InvalidAccessKeyId.NotFound");
        health.ready("cloud", "");
        assert!(health.report(true).0);
        health.alarms().set("test-health", "RouteRemovalHeldBack", 2, "10.0.1.0/24, 10.0.2.0/24: raise the limit");
        let (ready, text) = health.report(true);
        assert!(ready, "another replica would see the same");
        assert!(text.contains("[!]test-health withholds 2 (RouteRemovalHeldBack): 10.0.1.0/24"), "{text}");
        assert_eq!(health.summary(), "standby; test-health withholds 2 (RouteRemovalHeldBack)");
        health.not_ready("cloud", "i-1 is not there");
        let states = "[-]cloud failed: reason withheld\n[+]leader ok\n\
                      [!]test-health withholds something (RouteRemovalHeldBack)\nreadyz check failed\n";
        assert_eq!(health.report(false), (false, states.to_owned()));
    }
}
