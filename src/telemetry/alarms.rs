//! Alarms: what a controller withholds or cannot do because the view of the cluster or of the cloud is not to be trusted, and
//! what keeps many objects out of sync.
//!
//! An alarm stands until its cause is gone. `/readyz` shows each with the way to release what is withheld, and the metric
//! `alicloud_ccm_held_back` counts them. The controller that raises an alarm also writes the event of the same reason.
//! Readiness does not suffer, because another replica would see the same.
//!
//! A cause that many objects share is one thing to repair, so it is shown once, by name, besides the event on each object.

mod objects;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde::Serialize;

pub use self::objects::{EventAdvice, FailedCall, ObjectReport, ObjectTrouble, QUIET, SyncState};
use self::objects::{MANY, ObjectStates};
use super::metrics;

/// Names of objects in one text; further ones are only counted.
const NAMED: usize = 5;

/// The alarms of this process. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Alarms {
    standing: Arc<RwLock<BTreeMap<(&'static str, &'static str), WithheldReport>>>,
    objects: Arc<RwLock<ObjectStates>>,
}

/// What a controller withholds, as people and programs are shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithheldReport {
    /// The controller.
    pub controller: &'static str,
    /// Reason of the event about it.
    pub reason: &'static str,
    /// How many steps.
    pub count: usize,
    /// Which, why, and the way to allow them.
    pub text: String,
}

impl Alarms {
    /// `controller` withholds `count` steps for this `reason`, which is also the reason of the event about it. A count of 0
    /// ends the alarm. True if it did not stand before.
    pub fn set(&self, controller: &'static str, reason: &'static str, count: usize, text: impl Into<String>) -> bool {
        let mut standing = self.standing.write();
        let key = (controller, reason);
        let stood = standing.remove(&key).is_some();
        if count > 0 {
            standing.insert(key, WithheldReport { controller, reason, count, text: text.into() });
        }
        publish(&standing, controller);
        count > 0 && !stood
    }

    /// Notes why `object` is not in sync, or that it is. True if many objects share the cause now, and did not before.
    pub fn out_of_sync(&self, controller: &'static str, object: &str, trouble: Option<ObjectTrouble>) -> bool {
        let mut objects = self.objects.write();
        match trouble {
            Some(trouble) => objects.note(controller, object, trouble) == MANY,
            None => {
                objects.clear(controller, object);
                false
            }
        }
    }

    /// Notes why all objects that are `failing` now are not in sync. Others that `is_covered` says are in sync, or gone. Gives
    /// the causes that many objects share now, and did not before.
    pub fn all_out_of_sync(
        &self,
        controller: &'static str,
        failing: BTreeMap<String, ObjectTrouble>,
        is_covered: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut objects = self.objects.write();
        let ended = |object: &&String| !failing.contains_key(*object) && is_covered(object);
        let ended: Vec<String> = objects.of(controller).filter(ended).cloned().collect();
        ended.iter().for_each(|object| objects.clear(controller, object));
        let mut news = Vec::new();
        for (object, trouble) in failing {
            let cause = trouble.cause.clone();
            if objects.note(controller, &object, trouble) == MANY {
                news.extend(cause);
            }
        }
        news
    }

    /// Notes when `object` is reconciled again, if it is not in sync.
    pub fn next_attempt(&self, controller: &'static str, object: &dyn Display, after: Option<Duration>) {
        self.objects.write().schedule(controller, object, after);
    }

    /// Why an object is not in sync; `None` if it is.
    pub fn object(&self, controller: &'static str, object: &dyn Display) -> Option<ObjectReport> {
        self.objects.read().report_of(controller, &object.to_string())
    }

    /// The objects that are not in sync; what failed first.
    pub fn objects(&self) -> Vec<ObjectReport> {
        self.objects.read().report()
    }

    /// What is withheld.
    pub fn withheld(&self) -> Vec<WithheldReport> {
        self.standing.read().values().cloned().collect()
    }

    /// The controller stopped, so it withholds nothing, and keeps nothing in sync.
    pub fn clear(&self, controller: &'static str) {
        self.all_out_of_sync(controller, BTreeMap::new(), |_| true);
        let mut standing = self.standing.write();
        standing.retain(|(of, _), _| *of != controller);
        publish(&standing, controller);
    }

    /// A line for each alarm that stands, on request with names of objects.
    pub fn report(&self, details: bool) -> String {
        let mut text = String::new();
        for WithheldReport { controller, reason, count, text: what } in self.standing.read().values() {
            let _ = match details {
                true => writeln!(text, "[!]{controller} withholds {count} ({reason}): {what}"),
                false => writeln!(text, "[!]{controller} withholds something ({reason})"),
            };
        }
        for (controller, cause, objects) in self.objects.read().shared() {
            let (count, why) = (objects.len(), format!("objects out of sync for one cause ({cause})"));
            let _ = match details {
                true => writeln!(text, "[!]{controller} has {count} {why}: {}", named(objects)),
                false => writeln!(text, "[!]{controller} has many {why}"),
            };
        }
        text
    }

    /// All in one line, for a status; `None` if there is none.
    pub fn summary(&self) -> Option<String> {
        let standing = self.standing.read();
        let mut parts: Vec<String> =
            standing.values().map(|it| format!("{} withholds {} ({})", it.controller, it.count, it.reason)).collect();
        let shared = self.objects.read();
        parts.extend(shared.shared().map(|(controller, cause, objects)| {
            format!("{controller} has {} objects out of sync ({cause})", objects.len())
        }));
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn publish(standing: &BTreeMap<(&'static str, &'static str), WithheldReport>, controller: &'static str) {
    let of = standing.values().filter(|it| it.controller == controller);
    metrics::withheld(controller, of.map(|it| it.count).sum());
}

/// What is said once when many objects are out of sync for the same cause. `what` are objects of this kind, such as `nodes`.
pub fn shared_cause(what: &str, cause: &str) -> String {
    format!(
        "Many {what} are out of sync for the same cause: {cause}. /readyz and the metric alicloud_ccm_shared_cause_objects count \
         them; the controller retries each"
    )
}

/// The first few names, and how many there are besides.
pub fn named(names: impl IntoIterator<Item: ToString>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
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
        assert!(alarms.report(true).contains("[!]test-a withholds 3 (RemovalHeldBack): a, b, c: raise the limit\n"));
        assert!(metrics::render().contains(r#"alicloud_ccm_held_back{controller="test-a"} 4"#), "the sum");
        alarms.set("test-a", "RemovalHeldBack", 0, "");
        assert_eq!(alarms.report(true), "[!]test-a withholds 1 (OwnerMissing): x: gc\n");
        alarms.clear("test-a");
        assert_eq!((alarms.report(true).as_str(), alarms.summary()), ("", None));
        assert!(metrics::render().contains(r#"alicloud_ccm_held_back{controller="test-a"} 0"#));
    }

    fn of(cause: &str) -> Option<ObjectTrouble> {
        Some(ObjectTrouble { cause: Some(cause.to_owned()), ..ObjectTrouble::default() })
    }

    #[test]
    fn a_cause_that_many_objects_share_is_shown_once() {
        let alarms = Alarms::default();
        let names = ["a/1", "a/2", "a/3", "a/4", "a/5", "a/6"];
        let news = names.map(|name| alarms.out_of_sync("test-b", name, of("CreateX: denied [No]")));
        assert_eq!(news, [false, false, false, false, true, false]);
        assert!(!alarms.out_of_sync("test-b", "a/6", of("CreateX: denied [No]")), "it fails again");
        assert!(!alarms.out_of_sync("test-b", "a/7", of("CreateY: transient")));
        assert!(!alarms.out_of_sync("test-b", "a/8", Some(ObjectTrouble::default())), "for a reason of its own");
        let out_of_sync = |count: usize| {
            let line = format!("alicloud_ccm_out_of_sync_objects{{controller=\"test-b\"}} {count}\n");
            assert!(metrics::render().contains(&line), "{line}{}", metrics::render());
        };
        out_of_sync(8);
        let line = "[!]test-b has 6 objects out of sync for one cause (CreateX: denied [No]): a/1, a/2, a/3, a/4, a/5 and 1 more\n";
        assert_eq!(alarms.report(true), line);
        let metric = r#"alicloud_ccm_shared_cause_objects{cause="CreateX: denied [No]",controller="test-b"} 6"#;
        assert!(metrics::render().contains(metric), "{}", metrics::render());
        for name in &names[..2] {
            alarms.out_of_sync("test-b", name, None);
        }
        assert_eq!((alarms.report(true).as_str(), alarms.summary()), ("", None));
        let series = metric.trim_end_matches(" 6");
        assert!(!metrics::render().contains(series), "{series}");
        out_of_sync(6);
        assert!(alarms.out_of_sync("test-b", "a/1", of("CreateX: denied [No]")), "it came back");
        alarms.clear("test-b");
        out_of_sync(0);
        assert_eq!(alarms.report(true), "");
    }

    #[test]
    fn objects_that_are_covered_and_do_not_fail_are_in_sync() {
        let alarms = Alarms::default();
        let failing = |names: &[&str], cause: Option<&str>| -> BTreeMap<String, ObjectTrouble> {
            let trouble = ObjectTrouble { cause: cause.map(str::to_owned), ..ObjectTrouble::default() };
            names.iter().map(|name| ((*name).to_owned(), trouble.clone())).collect()
        };
        let all = ["a", "b", "c", "d", "e", "f"];
        let cause = "CreateX: denied [No]";
        assert_eq!(alarms.all_out_of_sync("test-c", failing(&all, Some(cause)), |_| true), [cause]);
        assert_eq!(alarms.all_out_of_sync("test-c", failing(&all, Some(cause)), |_| true), Vec::<String>::new());
        assert!(alarms.report(true).contains("6 objects out of sync for one cause (CreateX: denied [No]): a, b"));
        let none = || failing(&[], None);
        assert_eq!(alarms.all_out_of_sync("test-c", none(), |name| name == "f"), Vec::<String>::new());
        assert!(alarms.report(true).contains("5 objects"), "others were not looked at: {}", alarms.report(true));
        assert_eq!(alarms.all_out_of_sync("test-c", failing(&["a"], None), |_| false), Vec::<String>::new());
        assert_eq!(alarms.report(true), "", "one has a trouble of its own now");
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-c\"} 5\n"));
        assert_eq!(alarms.all_out_of_sync("test-c", none(), |_| true), Vec::<String>::new());
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-c\"} 0\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_not_in_sync_says_since_when_why_and_what_is_next() {
        let alarms = Alarms::default();
        let trouble = |state, message: &str| {
            let call =
                FailedCall { action: "CreateX", kind: "denied", code: "No".to_owned(), request_id: "R-1".to_owned() };
            let advice = Some(EventAdvice { code: 302, remedy: "allow it" });
            let (message, call) = (message.to_owned(), Some(call));
            Some(ObjectTrouble { state, reason: "Failed", advice, message, call, ..ObjectTrouble::default() })
        };
        alarms.out_of_sync("test-d", "a/2", trouble(SyncState::Retrying, "limit"));
        alarms.out_of_sync("test-d", "a/1", trouble(SyncState::OutOfSync, "first"));
        let began = alarms.objects()[0].since;
        tokio::time::advance(Duration::from_secs(60)).await;
        alarms.out_of_sync("test-d", "a/1", trouble(SyncState::OutOfSync, "second"));
        alarms.next_attempt("test-d", &"a/1", Some(Duration::from_secs(30)));
        alarms.next_attempt("test-d", &"in sync", Some(Duration::from_secs(30)));
        let [failing, retrying] = <[ObjectReport; 2]>::try_from(alarms.objects()).unwrap();
        assert_eq!((failing.object.as_str(), retrying.object.as_str()), ("a/1", "a/2"), "what failed comes first");
        assert_eq!((failing.since, failing.message.as_str()), (began, "second"));
        let later = |from: jiff::Timestamp, to: jiff::Timestamp| to.duration_since(from).as_secs();
        assert!((59..=61).contains(&later(failing.since, failing.last_attempt)), "{failing:?}");
        assert!((29..=31).contains(&later(failing.last_attempt, failing.next_attempt.unwrap())), "{failing:?}");
        let json = serde_json::to_value(&failing).unwrap();
        assert_eq!((&json["code"], &json["remedy"]), (&"ACCM0302".into(), &"allow it".into()));
        assert_eq!((&json["state"], &json["failed_call"]["request_id"]), (&"out_of_sync".into(), &"R-1".into()));

        // A rate limit neither hides what failed nor counts as such.
        alarms.out_of_sync("test-d", "a/1", trouble(SyncState::Retrying, "limit"));
        assert_eq!((alarms.objects()[0].message.as_str(), alarms.objects()[0].next_attempt), ("second", None));
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-d\"} 1\n"));
        alarms.out_of_sync("test-d", "a/2", trouble(SyncState::InProgress, "carried out"));
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-d\"} 2\n"));
        alarms.out_of_sync("test-d", "a/1", None);
        alarms.clear("test-d");
        assert_eq!(alarms.objects(), []);
        assert!(metrics::render().contains("alicloud_ccm_out_of_sync_objects{controller=\"test-d\"} 0\n"));
    }

    /// The objects of a controller that the metrics name, and the codes.
    fn named_in_metrics(controller: &str) -> BTreeMap<String, u16> {
        let start = format!("alicloud_ccm_object_out_of_sync{{controller=\"{controller}\",object=\"");
        let series = metrics::render();
        let series = series.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("\"} "));
        series.map(|(object, code)| (object.to_owned(), code.parse().unwrap())).collect()
    }

    #[test]
    fn the_metrics_name_an_object_as_long_as_it_is_out_of_sync() {
        let alarms = Alarms::default();
        let trouble = |state, code| {
            let advice = Some(EventAdvice { code, remedy: "" });
            Some(ObjectTrouble { state, advice, ..ObjectTrouble::default() })
        };
        let expect = |expected: &[(&str, u16)]| {
            let expected = expected.iter().map(|(object, code)| ((*object).to_owned(), *code)).collect();
            assert_eq!(named_in_metrics("test-e"), expected);
        };
        alarms.out_of_sync("test-e", "a/1", trouble(SyncState::OutOfSync, 307));
        alarms.out_of_sync("test-e", "a/2", trouble(SyncState::InProgress, 307));
        alarms.out_of_sync("test-e", "a/3", trouble(SyncState::Retrying, 307));
        alarms.out_of_sync("test-f", "a/1", trouble(SyncState::OutOfSync, 102));
        expect(&[("a/1", 307), ("a/2", 0)]);
        alarms.out_of_sync("test-e", "a/1", trouble(SyncState::OutOfSync, 310));
        alarms.out_of_sync("test-e", "a/2", trouble(SyncState::Retrying, 307));
        alarms.out_of_sync("test-e", "a/3", trouble(SyncState::OutOfSync, 307));
        expect(&[("a/1", 310), ("a/2", 0), ("a/3", 307)]);
        alarms.out_of_sync("test-e", "a/1", None);
        let gone = alarms.all_out_of_sync("test-e", BTreeMap::new(), |object| object == "a/2");
        assert_eq!(gone, Vec::<String>::new());
        expect(&[("a/3", 307)]);
        alarms.clear("test-e");
        expect(&[]);
        assert_eq!(named_in_metrics("test-f").len(), 1, "it is another controller's");
        alarms.clear("test-f");
    }

    #[test]
    fn of_many_objects_the_metrics_name_those_that_have_been_out_of_sync_for_longest() {
        let alarms = Alarms::default();
        // Their names have another order than their times.
        let name = |number: usize| format!("a/{:03}", 999 - number);
        for number in 0..120 {
            alarms.out_of_sync("test-g", &name(number), of("CreateG: denied [No]"));
        }
        let expect = |numbers: &mut dyn Iterator<Item = usize>, count: usize| {
            let mut names: Vec<String> = numbers.map(name).collect();
            names.sort();
            assert_eq!(named_in_metrics("test-g").into_keys().collect::<Vec<_>>(), names);
            let all = format!("alicloud_ccm_out_of_sync_objects{{controller=\"test-g\"}} {count}\n");
            assert!(metrics::render().contains(&all), "the count is of all");
        };
        expect(&mut (0..50), 120);
        alarms.out_of_sync("test-g", &name(119), of("CreateH: denied [No]"));
        expect(&mut (0..50), 120);
        alarms.out_of_sync("test-g", &name(7), None);
        alarms.out_of_sync("test-g", &name(60), None);
        expect(&mut (0..7).chain(8..51), 118);
        alarms.out_of_sync("test-g", &name(7), of("CreateG: denied [No]"));
        expect(&mut (0..7).chain(8..51), 119);
        for number in 0..100 {
            alarms.out_of_sync("test-g", &name(number), None);
        }
        expect(&mut (100..120), 20);
        alarms.clear("test-g");
        expect(&mut std::iter::empty(), 0);
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(named(["a", "b"]), "a, b");
        assert_eq!(named(["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
