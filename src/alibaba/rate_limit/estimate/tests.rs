use proptest::prelude::*;

use super::*;
use crate::alibaba::actions::{CREATE_GROUP, CREATE_LOAD_BALANCER, LIST_SERVER_GROUPS};
use crate::alibaba::tests::script::config;

const SECOND: Duration = Duration::from_secs(1);

fn limit(action: &'static str, waiting: usize, last_in: Duration) -> RateUse {
    RateUse { action, sent: 0, allowed: 30, window: 60 * SECOND, waiting, last_in, paused: None, slowed_to: None }
}

#[test]
fn the_action_that_takes_longest_says_when_all_calls_are_done() {
    let limits = [limit("CreateA", 970, 1920 * SECOND), limit("CreateB", 30, Duration::ZERO)];
    let sentence =
        "At this program's share of the quotas, 1000 calls take about 32 min: CreateA (30 in 60 s) is the narrowest";
    assert_eq!(queue_end(&limits), Some((1920 * SECOND, sentence.to_owned())));
    let (_, soon) = queue_end(&[limit("CreateA", 31, 60 * SECOND)]).unwrap();
    assert!(soon.contains("31 calls take about 60 s:"), "{soon}");
}

#[test]
fn what_is_done_within_seconds_is_not_worth_a_word() {
    assert_eq!(queue_end(&[]), None);
    assert_eq!(queue_end(&[limit("CreateA", 1, 5 * SECOND)]), None);
}

#[test]
fn a_plan_takes_a_window_for_each_full_share_of_the_quota() {
    let half = checked::Cloud { budget_share: 0.5, ..config() };
    let minutes = |action, calls| planned(action, calls, &half).last_in.as_secs() / 60;
    assert_eq!([1, 30, 31, 60, 61, 1000].map(|calls| minutes(CREATE_LOAD_BALANCER.0, calls)), [0, 0, 1, 1, 2, 33]);
    assert_eq!(minutes(CREATE_GROUP.0, 1000), 22);
    assert_eq!(planned(LIST_SERVER_GROUPS.0, 101, &half).last_in, 10 * SECOND);
}

proptest! {
    /// Calls that are sent at the times that the estimate says never exceed the quota, and leave nothing of it unused.
    #[test]
    fn calls_at_the_estimated_times_use_the_whole_quota_and_no_more(
        ages in prop::collection::vec(0u64..60, 0..40),
        waiting in 1usize..200,
        allowed in 1usize..50,
    ) {
        let (window, start) = (60 * SECOND, Instant::now());
        let now = start + window;
        let mut ages = ages;
        ages.sort_unstable();
        ages.truncate(allowed);
        let sent: VecDeque<Instant> = ages.iter().rev().map(|age| now - Duration::from_secs(*age)).collect();
        let mut times: Vec<Instant> = sent.iter().copied().collect();
        for ahead in 0..waiting {
            let at = turn(&sent, ahead, (allowed, window), now);
            // As if one call after the other were sent as soon as fewer than allowed are within the window.
            let soonest = times.len().checked_sub(allowed).map_or(now, |number| (times[number] + window).max(now));
            prop_assert_eq!(at, soonest);
            times.push(at);
        }
    }
}
