//! Which nodes of released instances may be removed, and when.
//!
//! "The cloud does not show the instance" is weak evidence: a missing permission, the wrong account or a partial answer
//! look the same. So a node is removed only after two observations apart in time, each from an answer that proves the absence,
//! while its kubelet has been silent for long, and only few nodes are removed within a window. A node whose kubelet reports
//! stays: another account may have its instance. It serves no longer if a controller has described the instance in its labels,
//! or another instance has its address.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;

use super::labels::is_described;
use super::view::is_uninitialized;
use crate::plan::inputs::{ConditionStatus, NodeView};
use crate::plan::provider_id::ProviderId;

/// What the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalRules {
    /// Whether nodes are removed at all.
    pub enabled: bool,
    /// The cluster's region; nodes elsewhere are never removed.
    pub region: String,
    /// Least time between the two observations.
    pub interval: Duration,
    /// Least silence of the kubelet.
    pub grace: Duration,
    /// Most removals within `window`.
    pub limit: u32,
    /// See `limit`.
    pub window: Duration,
}

/// What an answer that lacks an instance is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The same answer showed another known instance, or the cloud confirmed the permission to list.
    Proven,
    /// It proves nothing, because of this.
    Unproven(String),
}

/// A node whose instance a successful answer lacked.
#[derive(Clone, Debug)]
pub struct MissingInstance {
    /// The node.
    pub node: Arc<NodeView>,
    /// Its instance.
    pub id: ProviderId,
    /// What the answer is worth.
    pub absence: Absence,
    /// The instance that has the address of the node now.
    pub successor: Option<String>,
    /// Whether the account has not shown the instance for long, see [`RemovalLedger::is_lost`].
    pub is_lost: bool,
    /// What its kubelet wrote last, as it was read; `None` where the cluster calls the kubelet silent, or the read failed.
    pub report: Option<String>,
}

impl MissingInstance {
    /// Whether the absence is proven, and the cluster does not call the kubelet silent.
    pub fn may_report(&self) -> bool {
        let ready = self.node.ready.as_ref();
        self.absence == Absence::Proven && ready.is_some_and(|ready| ready.status != ConditionStatus::Unknown)
    }

    /// Whether it is certain that nothing serves under the id of the instance any more.
    pub const fn serves_no_longer(&self) -> bool {
        self.successor.is_some() || self.is_lost
    }

    /// What is said of a node that stays, and why it does.
    pub fn told(&self, why: &str) -> String {
        let (Self { id, successor, .. }, name) = (self, &self.node.name);
        let now = successor.as_ref().map(|other| format!(", and instance {other} has the address of the node now"));
        match self.serves_no_longer() {
            true => format!(
                "Instance {id} is gone{}. Load balancers and routes leave the node out. The controller keeps the Node, as \
                 {why}; delete it (kubectl delete node {name}), then restart the kubelet",
                now.unwrap_or_default()
            ),
            false => format!(
                "The account does not show instance {id}, and no other instance has the address of the node. The \
                 controller keeps the Node, as {why}. If the instance is gone, delete the Node object: kubectl delete node \
                 {name}. If another account has the instance, there is nothing to do"
            ),
        }
    }
}

/// For how long the cluster has called a kubelet silent; `None` if it does not, or the kubelet never reported. The cluster writes
/// `Unknown` when neither a heartbeat nor a renewal of the lease has come for its own grace period; `True` and `False` are what a
/// kubelet said.
pub fn silent_for(view: &NodeView, now: Timestamp) -> Option<Duration> {
    let unknown = view.ready.as_ref().filter(|ready| ready.status == ConditionStatus::Unknown)?;
    Some(unknown.since.and_then(|since| Duration::try_from(now.duration_since(since)).ok()).unwrap_or_default())
}

/// A point in time, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// To compare with times that the API server wrote.
    pub wall: Timestamp,
    /// Monotonic, since the controller started.
    pub elapsed: Duration,
}

/// What to do with a node whose instance is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalDecision {
    /// Remove it now.
    Remove,
    /// Nothing speaks against it but time; decide again then.
    Wait(Duration),
    /// It is due, but withheld.
    Withheld {
        /// Why.
        reason: WithholdReason,
        /// When to decide again.
        again: Duration,
    },
    /// The instance is gone, and the node stays, because of this.
    Stay(&'static str),
    /// It stays, and nothing is to be said.
    Keep,
}

/// Why a removal is withheld.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WithholdReason {
    /// As many as allowed were removed within the window.
    #[error(
        "{limit} nodes were removed within {} s, which is what node.removal_limit allows; the controller removes the node \
         later, or at once if the limit is raised",
        .window.as_secs()
    )]
    Limit {
        /// `node.removal_limit`
        limit: u32,
        /// `node.removal_window`
        window: Duration,
    },
    /// The cloud's answer proves nothing.
    #[error("the cloud's answer does not prove that the instance is gone: {0}; the controller asks again")]
    Unproven(String),
}

/// What this process remembers about missing instances. Losing it only delays removals.
#[derive(Clone, Debug, Default)]
pub struct RemovalLedger {
    missing: BTreeMap<String, MissingSince>,
    /// Nodes whose instance was shown in another VPC.
    elsewhere: BTreeSet<String>,
    removed: VecDeque<Duration>,
}

/// A node whose instance is missing. Times are monotonic, since the controller started.
#[derive(Clone, Debug, Default)]
struct MissingSince {
    since: Duration,
    /// What the kubelet wrote last.
    report: Option<String>,
    /// When that was read first.
    reported: Duration,
}

/// An answer that proves nothing is asked for again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// A kubelet that runs writes its status within this time. The default of its `nodeStatusReportFrequency` is 5 minutes:
/// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
const LONGEST_PAUSE: Duration = Duration::from_secs(360);

impl RemovalLedger {
    /// The cloud shows the node's instance; `here` says whether in the cluster's VPC.
    pub fn present(&mut self, uid: &str, here: bool) {
        self.missing.remove(uid);
        match here {
            true => self.elsewhere.remove(uid),
            false => self.elsewhere.insert(uid.to_owned()),
        };
    }

    /// Whether a controller has described the node's instance, and no proof has shown it for as long as a kubelet must be silent
    /// for a removal: a list that lies for a while takes no node that serves out of load balancers.
    pub fn is_lost(&self, node: &NodeView, elapsed: Duration, rules: &RemovalRules) -> bool {
        let missing = self.missing.get(&node.uid).filter(|_| is_described(node));
        missing.is_some_and(|missing| elapsed.saturating_sub(missing.since) >= rules.grace)
    }

    /// Forgets nodes that are not in the cluster any more.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.missing.retain(|uid, _| exists(uid));
        self.elsewhere.retain(|uid| exists(uid));
    }

    /// Forgets which instances are missing: an observation of an earlier term proves nothing.
    pub fn forget_missing(&mut self) {
        self.missing.clear();
    }

    /// The node of the last [`RemovalDecision::Remove`] was certainly not removed: it counts no longer.
    pub fn not_removed(&mut self) {
        self.removed.pop_back();
    }

    /// Decides about a node whose instance is missing. [`RemovalDecision::Remove`] is counted as done
    /// until [`Self::not_removed`].
    pub fn decide(&mut self, missing: &MissingInstance, now: Moment, rules: &RemovalRules) -> RemovalDecision {
        let MissingInstance { node: view, id, absence, .. } = missing;
        let elsewhere = self.elsewhere.contains(&view.uid);
        let ours = id.region == rules.region && id.instance.starts_with("i-") && !elsewhere;
        let silent_for = silent_for(view, now.wall);
        // A kubelet that never reported is no proof of a release, and one that reports speaks against it.
        let is_weak = *absence != Absence::Proven && silent_for.is_none();
        if !ours || view.deleting || view.ready.is_none() || is_weak {
            self.missing.remove(&view.uid);
            return RemovalDecision::Keep;
        }
        if let Absence::Unproven(why) = absence {
            if !rules.enabled {
                return RemovalDecision::Keep;
            }
            return RemovalDecision::Withheld { reason: WithholdReason::Unproven(why.clone()), again: ASK_AGAIN };
        }
        let anew = MissingSince { since: now.elapsed, ..MissingSince::default() };
        let seen = self.missing.entry(view.uid.clone()).or_insert(anew);
        if seen.report != missing.report {
            (seen.report, seen.reported) = (missing.report.clone(), now.elapsed);
        }
        let unchanged_for = now.elapsed.saturating_sub(seen.reported);
        let is_mute = seen.report.is_some() && unchanged_for >= rules.grace.max(LONGEST_PAUSE);
        let silent_for = silent_for.or_else(|| is_mute.then_some(unchanged_for));
        let missing_for = now.elapsed.saturating_sub(seen.since);
        let grace =
            silent_for.filter(|_| rules.enabled).map_or(Duration::ZERO, |silent| rules.grace.saturating_sub(silent));
        let wait = rules.interval.saturating_sub(missing_for).max(grace);
        // The first observation never removes, even with an interval of zero.
        if wait > Duration::ZERO || missing_for.is_zero() {
            return RemovalDecision::Wait(wait.max(Duration::from_secs(1)));
        }
        let stays = match silent_for {
            None => Some("its kubelet reports"),
            Some(_) => (!rules.enabled).then_some("node.remove_released is off"),
        };
        if let Some(why) = stays {
            // That its instance is not known is said of a new node already.
            return if is_uninitialized(view) { RemovalDecision::Keep } else { RemovalDecision::Stay(why) };
        }
        while self.removed.front().is_some_and(|at| now.elapsed.saturating_sub(*at) >= rules.window) {
            self.removed.pop_front();
        }
        if self.removed.len() >= usize::try_from(rules.limit).unwrap_or(usize::MAX) {
            let free = self.removed.front().map_or(rules.window, |at| (*at + rules.window).saturating_sub(now.elapsed));
            let reason = WithholdReason::Limit { limit: rules.limit, window: rules.window };
            return RemovalDecision::Withheld { reason, again: free.max(Duration::from_secs(1)) };
        }
        self.removed.push_back(now.elapsed);
        RemovalDecision::Remove
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::inputs::Condition;

    const EPOCH: i64 = 1_700_000_000;

    fn at(seconds: u64) -> Moment {
        let wall = Timestamp::from_second(EPOCH + i64::try_from(seconds).unwrap()).unwrap();
        Moment { wall, elapsed: Duration::from_secs(seconds) }
    }

    fn rules(limit: u32) -> RemovalRules {
        RemovalRules {
            enabled: true,
            region: "cn-a".into(),
            interval: Duration::from_secs(30),
            grace: Duration::from_secs(60),
            limit,
            window: Duration::from_secs(600),
        }
    }

    fn node(name: &str, status: ConditionStatus) -> NodeView {
        let ready = Condition { status, reason: String::new(), since: Some(at(0).wall) };
        NodeView { name: name.into(), uid: name.into(), ready: Some(ready), ..NodeView::default() }
    }

    fn missing(node: &NodeView, region: &str, absence: Absence) -> MissingInstance {
        let id = ProviderId { region: region.into(), instance: "i-1".into() };
        MissingInstance { node: Arc::new(node.clone()), id, absence, successor: None, is_lost: false, report: None }
    }

    #[test]
    fn two_observations_and_silence() {
        let (mut ledger, view) = (RemovalLedger::default(), node("a", ConditionStatus::Unknown));
        let mut look = |seconds| ledger.decide(&missing(&view, "cn-a", Absence::Proven), at(seconds), &rules(1));
        assert_eq!(look(10), RemovalDecision::Wait(Duration::from_secs(50)));
        assert_eq!(
            look(45),
            RemovalDecision::Wait(Duration::from_secs(15)),
            "seen twice, but not silent for long enough"
        );
        assert_eq!(look(61), RemovalDecision::Remove);
    }

    #[test]
    fn one_observation_is_never_enough() {
        let (mut ledger, view) = (RemovalLedger::default(), node("a", ConditionStatus::Unknown));
        let hasty = RemovalRules { interval: Duration::ZERO, ..rules(1) };
        let first = ledger.decide(&missing(&view, "cn-a", Absence::Proven), at(1000), &hasty);
        assert!(matches!(first, RemovalDecision::Wait(_)), "{first:?}");
        ledger.present("a", true);
        let again = ledger.decide(&missing(&view, "cn-a", Absence::Proven), at(2000), &hasty);
        assert!(matches!(again, RemovalDecision::Wait(_)), "an observation in between starts over: {again:?}");
    }

    #[test]
    fn weak_evidence_keeps_the_node() {
        let mut ledger = RemovalLedger::default();
        let silent = node("a", ConditionStatus::Unknown);
        let unproven = Absence::Unproven("denied".into());
        for seconds in [100, 200, 300] {
            let decision = ledger.decide(&missing(&silent, "cn-a", unproven.clone()), at(seconds), &rules(9));
            assert!(matches!(decision, RemovalDecision::Withheld { reason: WithholdReason::Unproven(_), .. }));
            assert_eq!(
                ledger.decide(&missing(&silent, "cn-b", Absence::Proven), at(seconds), &rules(9)),
                RemovalDecision::Keep,
                "another region"
            );
            let ready = node("b", ConditionStatus::True);
            assert_eq!(
                ledger.decide(&missing(&ready, "cn-a", unproven.clone()), at(seconds), &rules(9)),
                RemovalDecision::Keep
            );
        }
        ledger.present("a", false);
        assert_eq!(
            ledger.decide(&missing(&silent, "cn-a", Absence::Proven), at(400), &rules(9)),
            RemovalDecision::Keep,
            "it lives in another VPC"
        );
    }

    /// What a row says holds in the decision, and just before the deletion.
    #[test]
    fn only_a_kubelet_that_the_cluster_calls_unknown_for_long_enough_is_silent() {
        use ConditionStatus::{False, True, Unknown};
        let status = |status| Some(node("a", status)).and_then(|node| node.ready);
        let untold = status(Unknown).map(|ready| Condition { since: None, ..ready });
        for (ready, silent) in [
            (None, None),
            (status(True), None),
            (status(False), None),
            (status(Unknown), Some(1000)),
            (untold, Some(0)),
        ] {
            let row = format!("{ready:?}");
            let view = NodeView { ready: ready.clone(), ..node("a", True) };
            assert_eq!(silent_for(&view, at(1000).wall), silent.map(Duration::from_secs), "{row}");
            let (gone, mut ledger) = (missing(&view, "cn-a", Absence::Proven), RemovalLedger::default());
            ledger.decide(&gone, at(900), &rules(1));
            let decided = ledger.decide(&gone, at(1000), &rules(1));
            assert_eq!(decided == RemovalDecision::Remove, silent == Some(1000), "{row}: {decided:?}");
            let stays = ready.is_some() && silent.is_none();
            assert_eq!(matches!(decided, RemovalDecision::Stay(_)), stays, "{row}: {decided:?}");
        }
    }

    #[test]
    fn only_an_instance_that_a_controller_described_and_that_stays_away_for_the_grace_is_lost() {
        let (mut ledger, rules) = (RemovalLedger::default(), rules(1));
        let plain = node("never", ConditionStatus::True);
        let mut described = node("seen", ConditionStatus::True);
        described.labels.insert("beta.kubernetes.io/instance-type".into(), "ecs.g7.large".into());
        let mut look = |view: &NodeView, seconds| {
            ledger.decide(&missing(view, "cn-a", Absence::Proven), at(seconds), &rules);
            ledger.is_lost(view, at(seconds).elapsed, &rules)
        };
        assert!(!look(&described, 100) && !look(&plain, 100));
        assert!(!look(&described, 159), "a list that lies for a while");
        assert!(look(&described, 160) && !look(&plain, 160));
        ledger.present("seen", true);
        assert!(!ledger.is_lost(&described, at(200).elapsed, &rules));
    }

    /// While the controller manager is down, the cluster calls no kubelet silent.
    #[test]
    fn a_kubelet_whose_reports_stay_the_same_for_longer_than_any_pause_is_silent() {
        let view = node("a", ConditionStatus::True);
        let gone = |report: &str| {
            let report = Some(report.to_owned()).filter(|report| !report.is_empty());
            MissingInstance { report, ..missing(&view, "cn-a", Absence::Proven) }
        };
        let reports = RemovalDecision::Stay("its kubelet reports");
        let (mut ledger, rules) = (RemovalLedger::default(), rules(1));
        let mut look = |report, seconds| ledger.decide(&gone(report), at(seconds), &rules);
        look("1", 100);
        assert_eq!(look("1", 459), reports);
        assert_eq!(look("2", 460), reports, "a new heartbeat");
        assert_eq!(look("", 700), reports, "a read that failed proves nothing");
        assert_eq!(look("2", 820), reports, "what was not read may have changed");
        assert_eq!(look("2", 1179), reports);
        assert_eq!(look("2", 1180), RemovalDecision::Remove);
    }

    #[test]
    fn a_removal_that_did_not_happen_keeps_no_other_from_its_turn() {
        let (mut ledger, rules) = (RemovalLedger::default(), rules(1));
        let gone = |name| missing(&node(name, ConditionStatus::Unknown), "cn-a", Absence::Proven);
        let look = |ledger: &mut RemovalLedger, name, seconds| ledger.decide(&gone(name), at(seconds), &rules);
        look(&mut ledger, "a", 100);
        look(&mut ledger, "b", 100);
        assert_eq!(look(&mut ledger, "a", 200), RemovalDecision::Remove);
        assert!(matches!(look(&mut ledger, "b", 200), RemovalDecision::Withheld { .. }));
        ledger.not_removed();
        assert_eq!(look(&mut ledger, "b", 201), RemovalDecision::Remove);
        assert!(matches!(look(&mut ledger, "a", 202), RemovalDecision::Withheld { .. }));
    }

    #[test]
    fn where_no_node_is_removed_one_whose_instance_is_gone_is_told() {
        let gone = missing(&node("a", ConditionStatus::Unknown), "cn-a", Absence::Proven);
        let (mut ledger, off) = (RemovalLedger::default(), RemovalRules { enabled: false, ..rules(1) });
        ledger.decide(&gone, at(100), &off);
        assert_eq!(ledger.decide(&gone, at(200), &off), RemovalDecision::Stay("node.remove_released is off"));
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_within_a_window(
            limit in 0_u32..5,
            looks in prop::collection::vec((0_u64..20, 1_u64..100), 1..200),
        ) {
            let (rules, mut ledger, mut now, mut removals) = (rules(limit), RemovalLedger::default(), 100, Vec::new());
            for (number, pause) in looks {
                now += pause;
                let view = node(&format!("n{number}"), ConditionStatus::Unknown);
                if ledger.decide(&missing(&view, "cn-a", Absence::Proven), at(now), &rules) == RemovalDecision::Remove {
                    removals.push(now);
                }
            }
            for start in &removals {
                let within = removals.iter().filter(|at| *at >= start && **at < start + 600).count();
                prop_assert!(within <= limit as usize, "{removals:?}");
            }
        }
    }
}
