//! Which nodes of released instances may be removed, and when.
//!
//! "The cloud does not show the instance" is weak evidence: a missing permission, the wrong account or a partial answer
//! look the same. So a node goes only after two sightings apart in time, each from an answer that is known to be whole,
//! while its kubelet has been silent for long, and only few nodes go within a window.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::plan::inputs::{ConditionStatus, NodeView};
use crate::plan::provider_id::ProviderId;

/// What the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether nodes are removed at all.
    pub enabled: bool,
    /// The cluster's region; nodes elsewhere are never removed.
    pub region: String,
    /// Least time between the two sightings.
    pub interval: Duration,
    /// Least time of not being ready.
    pub grace: Duration,
    /// Most removals within `window`.
    pub limit: u32,
    /// See `limit`.
    pub window: Duration,
}

/// What an answer that lacks an instance is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The same answer showed another known instance, or the cloud confirmed the permission to list.
    Whole,
    /// It proves nothing, because of this.
    Unproven(String),
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
pub enum Decision {
    /// Remove it now.
    Remove,
    /// Nothing speaks against it but time; look again then.
    Wait(Duration),
    /// It is due, but held back.
    HeldBack {
        /// Why.
        reason: HeldBack,
        /// When to look again.
        again: Duration,
    },
    /// It stays.
    Keep,
}

/// Why a removal is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// As many as allowed were removed within the window.
    Limit {
        /// `node.removal_limit`
        limit: u32,
        /// `node.removal_window`
        window: Duration,
    },
    /// The cloud's answer proves nothing.
    Unproven(String),
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { limit, window } => write!(
                f,
                "{limit} nodes were removed within {} s, which is what node.removal_limit allows; it is removed later, or \
                 at once if the limit is raised",
                window.as_secs()
            ),
            Self::Unproven(why) => {
                write!(f, "the cloud's answer does not prove that the instance is gone: {why}; it is asked again")
            }
        }
    }
}

/// What this process remembers about missing instances. Losing it only delays removals.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    first_missing: BTreeMap<String, Duration>,
    elsewhere: BTreeSet<String>,
    removed: VecDeque<Duration>,
}

/// An answer that proves nothing is asked for again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(60);

impl Ledger {
    /// The cloud shows the node's instance; `here` says whether in the cluster's VPC.
    pub fn present(&mut self, uid: &str, here: bool) {
        self.first_missing.remove(uid);
        if here {
            self.elsewhere.remove(uid);
        } else {
            self.elsewhere.insert(uid.to_owned());
        }
    }

    /// Forgets nodes that are not in the cluster any more.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.first_missing.retain(|uid, _| exists(uid));
        self.elsewhere.retain(|uid| exists(uid));
    }

    /// A successful answer about this node's instance lacked it. [`Decision::Remove`] is counted as done.
    pub fn missing(
        &mut self,
        view: &NodeView,
        id: &ProviderId,
        listing: &Listing,
        now: Moment,
        rules: &Rules,
    ) -> Decision {
        let silent = match &view.ready {
            Some(ready) if ready.status != ConditionStatus::True => ready,
            // A kubelet that reports, or never did, is no proof of a release.
            _ => {
                self.first_missing.remove(&view.uid);
                return Decision::Keep;
            }
        };
        let ours = id.region == rules.region && id.instance.starts_with("i-") && !self.elsewhere.contains(&view.uid);
        if !rules.enabled || !ours || view.deleting {
            return Decision::Keep;
        }
        if let Listing::Unproven(why) = listing {
            return Decision::HeldBack { reason: HeldBack::Unproven(why.clone()), again: ASK_AGAIN };
        }
        let first = *self.first_missing.entry(view.uid.clone()).or_insert(now.elapsed);
        let missing_for = now.elapsed.saturating_sub(first);
        let silent_for = match silent.since {
            Some(since) => Duration::try_from(now.wall.duration_since(since)).unwrap_or_default(),
            None => missing_for,
        };
        let wait = rules.interval.saturating_sub(missing_for).max(rules.grace.saturating_sub(silent_for));
        // The first sighting never removes, even with an interval of zero.
        if wait > Duration::ZERO || missing_for.is_zero() {
            return Decision::Wait(wait.max(Duration::from_secs(1)));
        }
        while self.removed.front().is_some_and(|at| now.elapsed.saturating_sub(*at) >= rules.window) {
            self.removed.pop_front();
        }
        if self.removed.len() >= usize::try_from(rules.limit).unwrap_or(usize::MAX) {
            let free = self.removed.front().map_or(rules.window, |at| (*at + rules.window).saturating_sub(now.elapsed));
            let reason = HeldBack::Limit { limit: rules.limit, window: rules.window };
            return Decision::HeldBack { reason, again: free.max(Duration::from_secs(1)) };
        }
        self.removed.push_back(now.elapsed);
        Decision::Remove
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

    fn rules(limit: u32) -> Rules {
        Rules {
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

    fn id(region: &str) -> ProviderId {
        ProviderId { region: region.into(), instance: "i-1".into() }
    }

    #[test]
    fn two_sightings_and_silence() {
        let (mut ledger, view) = (Ledger::default(), node("a", ConditionStatus::Unknown));
        let mut look = |seconds| ledger.missing(&view, &id("cn-a"), &Listing::Whole, at(seconds), &rules(1));
        assert_eq!(look(10), Decision::Wait(Duration::from_secs(50)));
        assert_eq!(look(45), Decision::Wait(Duration::from_secs(15)), "seen twice, but not silent for long enough");
        assert_eq!(look(61), Decision::Remove);
    }

    #[test]
    fn one_sighting_is_never_enough() {
        let (mut ledger, view) = (Ledger::default(), node("a", ConditionStatus::False));
        let hasty = Rules { interval: Duration::ZERO, ..rules(1) };
        let first = ledger.missing(&view, &id("cn-a"), &Listing::Whole, at(1000), &hasty);
        assert!(matches!(first, Decision::Wait(_)), "{first:?}");
        ledger.present("a", true);
        let again = ledger.missing(&view, &id("cn-a"), &Listing::Whole, at(2000), &hasty);
        assert!(matches!(again, Decision::Wait(_)), "a sighting in between starts over: {again:?}");
    }

    #[test]
    fn weak_evidence_keeps_the_node() {
        let mut ledger = Ledger::default();
        let silent = node("a", ConditionStatus::Unknown);
        let unproven = Listing::Unproven("denied".into());
        for seconds in [100, 200, 300] {
            let decision = ledger.missing(&silent, &id("cn-a"), &unproven, at(seconds), &rules(9));
            assert!(matches!(decision, Decision::HeldBack { reason: HeldBack::Unproven(_), .. }));
            assert_eq!(
                ledger.missing(&silent, &id("cn-b"), &Listing::Whole, at(seconds), &rules(9)),
                Decision::Keep,
                "another region"
            );
            let ready = node("b", ConditionStatus::True);
            assert_eq!(ledger.missing(&ready, &id("cn-a"), &Listing::Whole, at(seconds), &rules(9)), Decision::Keep);
        }
        ledger.present("a", false);
        assert_eq!(
            ledger.missing(&silent, &id("cn-a"), &Listing::Whole, at(400), &rules(9)),
            Decision::Keep,
            "it lives in another VPC"
        );
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_within_a_window(
            limit in 0_u32..5,
            looks in prop::collection::vec((0_u64..20, 1_u64..100), 1..200),
        ) {
            let (rules, mut ledger, mut now, mut removals) = (rules(limit), Ledger::default(), 100, Vec::new());
            for (number, pause) in looks {
                now += pause;
                let view = node(&format!("n{number}"), ConditionStatus::Unknown);
                if ledger.missing(&view, &id("cn-a"), &Listing::Whole, at(now), &rules) == Decision::Remove {
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
