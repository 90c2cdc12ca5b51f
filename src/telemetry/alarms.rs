//! Alarms: what a controller withholds or cannot do because the view of the cluster or of the cloud is not to be trusted, and
//! what keeps many objects out of sync.
//!
//! An alarm stands until its cause is gone. `/readyz` shows each with the way to release what is withheld, and the metric
//! `alicloud_ccm_held_back` counts them. The controller that raises an alarm also writes the event of the same reason.
//! Readiness does not suffer, because another replica would see the same.
//!
//! A cause that many objects share is one thing to repair, so it is shown once, by name, besides the event on each object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::RwLock;

use super::metrics;

/// Names of objects in one text; further ones are only counted.
const NAMED: usize = 5;
/// From so many objects on, a cause is shared by many.
const MANY: usize = 5;

/// The alarms of this process. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Alarms {
    standing: Arc<RwLock<BTreeMap<(&'static str, &'static str), Alarm>>>,
    failures: Arc<RwLock<SharedCauses>>,
}

/// By controller: the objects that are out of sync, the cause of each that others may share, and the objects of each cause.
#[derive(Debug, Default)]
struct SharedCauses {
    failing: BTreeSet<(&'static str, String)>,
    causes: BTreeMap<(&'static str, String), String>,
    objects: BTreeMap<(&'static str, String), BTreeSet<String>>,
}

impl SharedCauses {
    /// An object went out of sync, or is in sync again.
    fn mark(&mut self, controller: &'static str, object: &str, fails: bool) {
        let key = (controller, object.to_owned());
        let changed = if fails { self.failing.insert(key) } else { self.failing.remove(&key) };
        if changed {
            metrics::out_of_sync(controller, self.failing.iter().filter(|(of, _)| *of == controller).count());
        }
    }

    /// Moves an object from its cause to another one, or to none; gives how many now share that.
    fn put(&mut self, controller: &'static str, object: &str, cause: Option<&str>) -> usize {
        let key = (controller, object.to_owned());
        let before = match cause {
            Some(cause) => self.causes.insert(key, cause.to_owned()),
            None => self.causes.remove(&key),
        };
        if before.as_deref() == cause {
            return 0;
        }
        if let Some(before) = before {
            let key = (controller, before);
            let left = self.objects.get_mut(&key).map_or(0, |objects| {
                objects.remove(object);
                objects.len()
            });
            metrics::shared_cause(controller, &key.1, if left < MANY { 0 } else { left });
            if left == 0 {
                self.objects.remove(&key);
            }
        }
        let Some(cause) = cause else { return 0 };
        let objects = self.objects.entry((controller, cause.to_owned())).or_default();
        objects.insert(object.to_owned());
        if objects.len() >= MANY {
            metrics::shared_cause(controller, cause, objects.len());
        }
        objects.len()
    }

    fn shared(&self) -> impl Iterator<Item = (&'static str, &str, &BTreeSet<String>)> {
        let all = self.objects.iter().filter(|(_, objects)| objects.len() >= MANY);
        all.map(|((controller, cause), objects)| (*controller, cause.as_str(), objects))
    }
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

    /// Notes whether `object` is out of sync, and the cause if others may share it. True if many objects share it now, and did
    /// not before.
    pub fn out_of_sync(&self, controller: &'static str, object: &str, fails: bool, cause: Option<&str>) -> bool {
        let mut failures = self.failures.write();
        failures.mark(controller, object, fails);
        failures.put(controller, object, cause) == MANY
    }

    /// Notes all objects that are `failing` now, each with the cause that others may share. Others that `is_covered` says are in
    /// sync, or gone. Gives the causes that many objects share now, and did not before.
    pub fn all_out_of_sync(
        &self,
        controller: &'static str,
        failing: &BTreeMap<String, Option<String>>,
        is_covered: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut failures = self.failures.write();
        let known = failures.failing.iter().filter(|(of, _)| *of == controller).map(|(_, object)| object);
        let ended: Vec<String> = known.filter(|it| !failing.contains_key(*it) && is_covered(it)).cloned().collect();
        for object in ended {
            failures.mark(controller, &object, false);
            failures.put(controller, &object, None);
        }
        let mut news = Vec::new();
        for (object, cause) in failing {
            failures.mark(controller, object, true);
            if failures.put(controller, object, cause.as_deref()) == MANY {
                news.extend(cause.clone());
            }
        }
        news
    }

    /// The controller stopped, so it withholds nothing, and keeps nothing in sync.
    pub fn clear(&self, controller: &'static str) {
        let mut failures = self.failures.write();
        let of = failures.failing.iter().chain(failures.causes.keys()).filter(|(of, _)| *of == controller);
        let objects: BTreeSet<String> = of.map(|(_, object)| object.clone()).collect();
        for object in objects {
            failures.mark(controller, &object, false);
            failures.put(controller, &object, None);
        }
        drop(failures);
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
        for (controller, cause, objects) in self.failures.read().shared() {
            let (count, names) = (objects.len(), named(objects.iter().map(String::as_str)));
            let _ = writeln!(text, "[!]{controller} has {count} objects out of sync for one cause ({cause}): {names}");
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
        for (controller, cause, _) in self.failures.read().shared() {
            let _ = writeln!(text, "[!]{controller} has many objects out of sync for one cause ({cause})");
        }
        text
    }

    /// All in one line, for a status; `None` if there is none.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let standing = self.standing.read();
        let mut parts: Vec<String> = standing
            .iter()
            .map(|((controller, reason), alarm)| format!("{controller} withholds {} ({reason})", alarm.count))
            .collect();
        let failures = self.failures.read();
        parts.extend(failures.shared().map(|(controller, cause, objects)| {
            format!("{controller} has {} objects out of sync ({cause})", objects.len())
        }));
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn publish(standing: &BTreeMap<(&'static str, &'static str), Alarm>, controller: &'static str) {
    let of = standing.iter().filter(|((name, _), _)| *name == controller);
    metrics::withheld(controller, of.map(|(_, alarm)| alarm.count).sum());
}

/// What is said once when many objects are out of sync for the same cause. `what` are objects of this kind, such as `nodes`.
#[must_use]
pub fn shared_cause(what: &str, cause: &str) -> String {
    format!(
        "Many {what} are out of sync for the same cause: {cause}. /readyz and the metric alicloud_ccm_shared_cause_objects count \
         them; the controller retries each"
    )
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
    fn a_cause_that_many_objects_share_is_shown_once() {
        let alarms = Alarms::default();
        let names = ["a/1", "a/2", "a/3", "a/4", "a/5", "a/6"];
        let news = names.map(|name| alarms.out_of_sync("test-b", name, true, Some("CreateX: denied [No]")));
        assert_eq!(news, [false, false, false, false, true, false]);
        assert!(!alarms.out_of_sync("test-b", "a/6", true, Some("CreateX: denied [No]")), "it fails again");
        assert!(!alarms.out_of_sync("test-b", "a/7", true, Some("CreateY: transient")));
        assert!(!alarms.out_of_sync("test-b", "a/8", true, None), "for a reason of its own");
        let out_of_sync = |count: usize| {
            let line = format!("alicloud_ccm_out_of_sync_objects{{controller=\"test-b\"}} {count}\n");
            assert!(metrics::render().contains(&line), "{line}{}", metrics::render());
        };
        out_of_sync(8);
        let line = "[!]test-b has 6 objects out of sync for one cause (CreateX: denied [No]): a/1, a/2, a/3, a/4, a/5 and 1 more\n";
        assert_eq!(alarms.report(), line);
        let metric = r#"alicloud_ccm_shared_cause_objects{cause="CreateX: denied [No]",controller="test-b"} 6"#;
        assert!(metrics::render().contains(metric), "{}", metrics::render());
        for name in &names[..2] {
            alarms.out_of_sync("test-b", name, false, None);
        }
        assert_eq!((alarms.report().as_str(), alarms.summary()), ("", None));
        assert!(!metrics::render().contains("CreateX"));
        out_of_sync(6);
        assert!(alarms.out_of_sync("test-b", "a/1", true, Some("CreateX: denied [No]")), "it came back");
        alarms.clear("test-b");
        out_of_sync(0);
        assert_eq!(alarms.report(), "");
    }

    #[test]
    fn objects_that_are_covered_and_do_not_fail_are_in_sync() {
        let alarms = Alarms::default();
        let failing = |names: &[&str], cause: Option<&str>| -> BTreeMap<String, Option<String>> {
            names.iter().map(|name| ((*name).to_owned(), cause.map(str::to_owned))).collect()
        };
        let all = ["a", "b", "c", "d", "e", "f"];
        let cause = "CreateX: denied [No]";
        assert_eq!(alarms.all_out_of_sync("test-c", &failing(&all, Some(cause)), |_| true), [cause]);
        assert_eq!(alarms.all_out_of_sync("test-c", &failing(&all, Some(cause)), |_| true), Vec::<String>::new());
        assert!(alarms.report().contains("6 objects out of sync for one cause (CreateX: denied [No]): a, b"));
        let none = failing(&[], None);
        assert_eq!(alarms.all_out_of_sync("test-c", &none, |name| name == "f"), Vec::<String>::new());
        assert!(alarms.report().contains("5 objects"), "others were not looked at: {}", alarms.report());
        assert_eq!(alarms.all_out_of_sync("test-c", &failing(&["a"], None), |_| false), Vec::<String>::new());
        assert_eq!(alarms.report(), "", "one has a trouble of its own now");
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-c\"} 5\n"));
        assert_eq!(alarms.all_out_of_sync("test-c", &none, |_| true), Vec::<String>::new());
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-c\"} 0\n"));
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(named(["a", "b"]), "a, b");
        assert_eq!(named(["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
