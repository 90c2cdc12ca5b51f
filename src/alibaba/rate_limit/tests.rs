use std::collections::BTreeSet;

use super::super::actions::{ADD_BACKENDS, CREATE_GROUP, CREATE_LOAD_BALANCER, WriteAction};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const NOBODY: Priority = Priority { object: 0, serving: false };

fn share(share: f64) -> QuotaShare {
    QuotaShare { share, quotas: Arc::default() }
}

const fn making(object: u64) -> Priority {
    Priority { object, serving: false }
}

const fn serving(object: u64) -> Priority {
    Priority { object, serving: true }
}

/// Makes one call as a controller does: whoever is sent away comes back at the time that it was told. Returns when it went
/// out.
async fn call(rate_limiter: &RateLimiter, action: WriteAction, allowance: &QuotaShare, priority: Priority) -> Instant {
    while let Err(wait) = rate_limiter.wait(action.0, allowance, priority, 5 * SECOND).await {
        tokio::time::sleep(wait).await;
    }
    Instant::now()
}

/// What goes out at once, without waiting.
async fn at_once(rate_limiter: &RateLimiter, action: WriteAction, allowance: &QuotaShare) -> usize {
    let mut taken = 0;
    while rate_limiter.wait(action.0, allowance, NOBODY, Duration::ZERO).await.is_ok() {
        taken += 1;
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn no_minute_has_more_calls_than_the_share_of_the_quota_and_none_less() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < 300 * SECOND {
        times.push(call(&rate_limiter, CREATE_LOAD_BALANCER, &half, NOBODY).await);
    }
    for first in &times {
        let within = times.iter().filter(|time| **time >= *first && **time <= *first + WINDOW).count();
        assert!(within <= 30, "{within} calls in a minute");
    }
    assert!(times.len() >= 5 * 30 - 1, "the share is used: {} calls in five minutes", times.len());
}

#[tokio::test(start_paused = true)]
async fn many_objects_take_no_longer_than_the_quota_says_and_go_in_their_order() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let start = Instant::now();
    let calls = (1..=200).map(|object| {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move { call(&rate_limiter, CREATE_LOAD_BALANCER, &half, making(object)).await })
    });
    let times: Vec<Instant> =
        futures::future::join_all(calls.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
    // 30 in each window: the last 20 of 200 come in the seventh.
    assert_eq!(times.iter().max().unwrap().duration_since(start).as_secs(), 6 * 61);
    assert!(times.is_sorted(), "nobody overtakes");
}

#[tokio::test(start_paused = true)]
async fn what_serves_traffic_passes_before_what_is_made() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let start = Instant::now();
    let spawn = |priority| {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move { call(&rate_limiter, ADD_BACKENDS, &half, priority).await })
    };
    let makers: Vec<_> = (1..=135).map(|object| spawn(making(object))).collect();
    tokio::time::sleep(10 * SECOND).await;
    let servers: Vec<_> = (1001..=1045).map(|object| spawn(serving(object))).collect();
    for server in futures::future::join_all(servers).await {
        assert_eq!(server.unwrap().duration_since(start).as_secs(), 61, "the first calls that can be had");
    }
    let mut waits: Vec<u64> = Vec::new();
    for maker in futures::future::join_all(makers).await {
        waits.push(maker.unwrap().duration_since(start).as_secs());
    }
    assert_eq!(waits.iter().collect::<BTreeSet<_>>().len(), 3, "{waits:?}");
    assert_eq!(waits.iter().max(), Some(&(3 * 61)), "and nothing is lost for the others");
}

#[tokio::test(start_paused = true)]
async fn one_that_asks_all_the_time_does_not_keep_others_waiting() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let greedy = {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move {
            loop {
                let _ = rate_limiter.wait(ADD_BACKENDS.0, &half, serving(1), 5 * SECOND).await;
                tokio::time::sleep(SECOND / 10).await;
            }
        })
    };
    tokio::time::sleep(30 * SECOND).await;
    for object in 2..12 {
        let asked = Instant::now();
        call(&rate_limiter, ADD_BACKENDS, &half, serving(object)).await;
        // The greedy one spent all within its first seconds; what comes free then is for the others first.
        assert!(asked.elapsed() <= 32 * SECOND, "{object} waited {:?}", asked.elapsed());
    }
    greedy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_write_for_an_object_is_sent_away_with_the_time_of_its_turn_and_finds_its_place_again() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &half).await, 45);
    let turn = WINDOW + SPREAD;
    for object in 1..=46 {
        let wait = rate_limiter.wait(CREATE_GROUP.0, &half, making(object), 5 * SECOND).await;
        assert_eq!(wait, Err(if object <= 45 { turn } else { 2 * turn }));
    }
    tokio::time::sleep(turn).await;
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &half).await, 0, "all places are kept");
    for object in (1..=45).rev() {
        assert_eq!(rate_limiter.wait(CREATE_GROUP.0, &half, making(object), Duration::ZERO).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_not_kept_for_ever() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    at_once(&rate_limiter, CREATE_GROUP, &half).await;
    let wait = rate_limiter.wait(CREATE_GROUP.0, &half, making(1), 5 * SECOND).await.unwrap_err();
    tokio::time::sleep(wait).await;
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &half).await, 44);
    tokio::time::sleep(KEPT).await;
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &half).await, 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_stops_waiting_makes_room_at_once() {
    let (rate_limiter, all) = (Arc::new(RateLimiter::default()), share(1.0));
    assert_eq!(at_once(&rate_limiter, ADD_BACKENDS, &all).await, 90);
    tokio::time::sleep(30 * SECOND).await;
    let start = Instant::now();
    let wait_long = || {
        let (rate_limiter, all) = (rate_limiter.clone(), all.clone());
        tokio::spawn(
            async move { rate_limiter.wait(ADD_BACKENDS.0, &all, NOBODY, WINDOW).await.map(|()| Instant::now()) },
        )
    };
    let quitters: Vec<_> = (0..90).map(|_| wait_long()).collect();
    tokio::time::sleep(SECOND).await;
    // Behind them is the window after the next.
    assert_eq!(rate_limiter.wait(ADD_BACKENDS.0, &all, NOBODY, WINDOW).await, Err(91 * SECOND));
    quitters.iter().for_each(tokio::task::JoinHandle::abort);
    let went = wait_long().await.unwrap().unwrap();
    assert_eq!(went.duration_since(start).as_secs(), 31);
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_only_that_action_pauses_for_the_window() {
    let (rate_limiter, all) = (RateLimiter::default(), share(1.0));
    let pause = rate_limiter.pause(CREATE_GROUP.0, &all, None);
    assert!(pause >= WINDOW / 2 && pause <= WINDOW, "{pause:?}");
    assert_eq!(rate_limiter.wait(CREATE_GROUP.0, &all, NOBODY, SECOND).await, Err(pause));
    assert_eq!(rate_limiter.wait(CREATE_LOAD_BALANCER.0, &all, NOBODY, Duration::ZERO).await, Ok(()));
    tokio::time::sleep(pause).await;
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &all).await, 30, "a third of the share at once");
    assert_eq!(rate_limiter.pause(CREATE_GROUP.0, &all, Some(3 * SECOND)), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_tiny_share_still_moves() {
    let rate_limiter = RateLimiter::default();
    for _ in 0..3 {
        call(&rate_limiter, CREATE_LOAD_BALANCER, &share(0.001), NOBODY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_was_raised_counts() {
    let quotas = BTreeMap::from([("CreateVServerGroup".to_owned(), 300), ("*".to_owned(), 4)]);
    let allowance = QuotaShare { share: 0.5, quotas: Arc::new(quotas) };
    let rate_limiter = RateLimiter::default();
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &allowance).await, 150);
    assert_eq!(at_once(&rate_limiter, CREATE_LOAD_BALANCER, &allowance).await, 2);
}
