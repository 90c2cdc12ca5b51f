use std::collections::BTreeSet;

use super::super::actions::{
    ADD_BACKENDS, CREATE_GROUP, CREATE_LOAD_BALANCER, CREATE_NETWORK_LOAD_BALANCER, LIST_NETWORK_LISTENERS, WriteAction,
};
use super::queue::FIRST_BACKOFF;
use super::*;
use crate::jitter;

const SECOND: Duration = Duration::from_secs(1);
const CLUSTER_WIDE: Priority = Priority { tickets: None, namespace: 0, purpose: Purpose::Other };

fn own(wait: Duration) -> Limited {
    Limited { by_cloud: false, wait }
}

fn by_cloud(wait: Duration) -> Limited {
    Limited { by_cloud: true, wait }
}

fn share(share: f64) -> QuotaShare {
    QuotaShare { share, quotas: Arc::default() }
}

/// For an object of its own.
fn making() -> Priority {
    Priority { tickets: Some(Tickets::default()), namespace: 1, purpose: Purpose::Other }
}

fn serving() -> Priority {
    Priority { purpose: Purpose::Serve, ..making() }
}

/// Makes one call as a controller does: one that returns is retried shortly before its turn. Gives when it was sent.
async fn call(rate_limiter: &RateLimiter, action: WriteAction, quota: &QuotaShare, priority: Priority) -> Instant {
    while let Err(limited) = rate_limiter.wait(action.0, quota, &priority, 5 * SECOND).await {
        tokio::time::sleep(limited.wait.saturating_sub(LONGEST_OBJECT_TURN)).await;
    }
    Instant::now()
}

/// The cloud throttles a call; gives for how long the action pauses.
fn throttle(rate_limiter: &RateLimiter, action: WriteAction, hint: Option<Duration>) -> Duration {
    rate_limiter.of(action.0, &share(1.0)).queue.lock().throttled(hint, Instant::now())
}

/// The cloud does not throttle a call.
fn let_pass(rate_limiter: &RateLimiter, action: WriteAction) {
    let limiter = rate_limiter.of(action.0, &share(1.0));
    if limiter.queue.lock().passed() {
        limiter.moved.notify_waiters();
    }
}

/// What goes out at once, without waiting.
async fn at_once(rate_limiter: &RateLimiter, action: WriteAction, quota: &QuotaShare) -> usize {
    let mut taken = 0;
    while rate_limiter.wait(action.0, quota, &CLUSTER_WIDE, Duration::ZERO).await.is_ok() {
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
        times.push(call(&rate_limiter, CREATE_LOAD_BALANCER, &half, CLUSTER_WIDE).await);
    }
    for first in &times {
        let within = times.iter().filter(|time| **time >= *first && **time < *first + WINDOW).count();
        assert!(within <= 30, "{within} calls in a minute");
    }
    assert_eq!(times.len(), 5 * 30 + 1, "the share is used without a pause, and a call ended the loop");
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_a_second_is_kept_in_every_second() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < 20 * SECOND {
        rate_limiter.wait(LIST_NETWORK_LISTENERS.0, &half, &CLUSTER_WIDE, WINDOW).await.unwrap();
        times.push(Instant::now());
    }
    for first in &times {
        let within = times.iter().filter(|time| **time >= *first && **time < *first + SECOND).count();
        assert!(within <= 10, "{within} calls in a second");
    }
    assert!(times.len() >= 200, "the share is used: {} calls in twenty seconds", times.len());
}

#[tokio::test(start_paused = true)]
async fn of_more_than_half_of_a_quota_no_two_windows_arrive_in_one() {
    let (rate_limiter, whole) = (RateLimiter::default(), share(1.0));
    assert_eq!(at_once(&rate_limiter, CREATE_LOAD_BALANCER, &whole).await, 60);
    let limited = rate_limiter.wait(CREATE_LOAD_BALANCER.0, &whole, &CLUSTER_WIDE, SECOND).await;
    assert_eq!(limited.err(), Some(own(WINDOW + SPREAD)));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_objects_does_not_keep_another_one_waiting() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let start = Instant::now();
    let spawn = |namespace| {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        let priority = Priority { namespace, ..making() };
        tokio::spawn(async move { call(&rate_limiter, CREATE_LOAD_BALANCER, &half, priority).await })
    };
    let many: Vec<_> = (1..=150).map(|_| spawn(1)).collect();
    tokio::time::sleep(70 * SECOND).await;
    let few: Vec<_> = (1001..=1014).map(|_| spawn(2)).collect();
    let late: Vec<_> = (1015..=1016).map(|_| spawn(3)).collect();
    for single in futures::future::join_all(few.into_iter().chain(late)).await {
        assert_eq!(
            single.unwrap().duration_since(start),
            2 * WINDOW,
            "in the next window, beside as many of the others"
        );
    }
    let mut last = Vec::new();
    for one in futures::future::join_all(many).await {
        last.push(one.unwrap());
    }
    assert!(last.is_sorted(), "in their order");
    assert_eq!(last[149].duration_since(start), 5 * WINDOW, "166 calls need six windows");
}

#[tokio::test(start_paused = true)]
async fn while_new_groups_are_filled_some_calls_are_left_for_groups_that_serve() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    let at_most = async |priority| {
        let mut taken = 0;
        while rate_limiter.wait(ADD_BACKENDS.0, &half, &priority, Duration::ZERO).await.is_ok() {
            taken += 1;
        }
        taken
    };
    let filling = Priority { purpose: Purpose::Fill, ..CLUSTER_WIDE };
    assert_eq!((at_most(filling).await, at_most(serving()).await), (41, 4));
}

#[tokio::test(start_paused = true)]
async fn actions_of_two_products_that_share_a_name_have_their_own_quotas() {
    let (rate_limiter, whole) = (RateLimiter::default(), share(1.0));
    assert_eq!(at_once(&rate_limiter, CREATE_LOAD_BALANCER, &whole).await, 60);
    assert_eq!(at_once(&rate_limiter, CREATE_NETWORK_LOAD_BALANCER, &whole).await, 200);
}

#[tokio::test(start_paused = true)]
async fn many_objects_take_no_longer_than_the_quota_says_and_go_in_their_order() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let start = Instant::now();
    let calls = (1..=200).map(|_| {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move { call(&rate_limiter, CREATE_LOAD_BALANCER, &half, making()).await })
    });
    let times: Vec<Instant> =
        futures::future::join_all(calls.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
    // 30 in each window: the last 20 of 200 come in the seventh.
    assert_eq!(times.iter().max().unwrap().duration_since(start), 6 * WINDOW);
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
    let makers: Vec<_> = (1..=135).map(|_| spawn(making())).collect();
    tokio::time::sleep(10 * SECOND).await;
    let servers: Vec<_> = (1001..=1045).map(|_| spawn(serving())).collect();
    for server in futures::future::join_all(servers).await {
        assert_eq!(server.unwrap().duration_since(start).as_secs(), 60, "the first calls that can be had");
    }
    let mut waits: Vec<u64> = Vec::new();
    for maker in futures::future::join_all(makers).await {
        waits.push(maker.unwrap().duration_since(start).as_secs());
    }
    assert_eq!(waits.iter().collect::<BTreeSet<_>>().len(), 3, "{waits:?}");
    assert_eq!(waits.iter().max(), Some(&(3 * 60)), "and nothing is lost for the others");
}

#[tokio::test(start_paused = true)]
async fn one_that_asks_all_the_time_does_not_keep_others_waiting() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let greedy = {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move {
            let greedy = serving();
            loop {
                let _ = rate_limiter.wait(ADD_BACKENDS.0, &half, &greedy, 5 * SECOND).await;
                tokio::time::sleep(SECOND / 10).await;
            }
        })
    };
    tokio::time::sleep(30 * SECOND).await;
    for object in 2..12 {
        let asked = Instant::now();
        call(&rate_limiter, ADD_BACKENDS, &half, serving()).await;
        // The greedy one spent all within its first seconds; what comes free then goes to the others as well.
        assert!(asked.elapsed() <= 32 * SECOND, "{object} waited {:?}", asked.elapsed());
    }
    greedy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_write_for_an_object_returns_with_the_time_of_its_turn_and_keeps_its_ticket() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &half).await, 45);
    let turn = WINDOW;
    let objects: Vec<Priority> = (1..=46).map(|_| making()).collect();
    for (index, object) in objects.iter().enumerate() {
        let wait = rate_limiter.wait(CREATE_GROUP.0, &half, object, 5 * SECOND).await.unwrap_err();
        assert_eq!(wait, own(if index < 45 { turn } else { 2 * turn }));
    }
    tokio::time::sleep(turn + 30 * SECOND).await;
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &half).await, 45, "none of the objects is ready");
    let late = rate_limiter.wait(CREATE_GROUP.0, &half, &making(), Duration::ZERO).await.unwrap_err();
    assert_eq!(late, own(2 * turn), "all are before it");
    let went = tokio::time::timeout(2 * turn, async {
        for object in &objects[..45] {
            call(&rate_limiter, CREATE_GROUP, &half, object.clone()).await;
        }
    });
    let began = Instant::now();
    went.await.unwrap();
    assert_eq!(began.elapsed(), turn, "they have kept their places");
    let last = rate_limiter.wait(CREATE_GROUP.0, &half, &objects[45], Duration::ZERO).await.unwrap_err();
    assert_eq!(last, own(turn));
}

#[tokio::test(start_paused = true)]
async fn objects_that_come_back_late_lose_nothing() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    let start = Instant::now();
    let calls = (0..1000).map(|_| {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move {
            let object = making();
            while let Err(limited) = rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &object, 5 * SECOND).await {
                tokio::time::sleep(limited.wait + 10 * SECOND).await;
            }
            Instant::now()
        })
    });
    let times = futures::future::join_all(calls.collect::<Vec<_>>()).await;
    let times: Vec<Instant> = times.into_iter().map(Result::unwrap).collect();
    assert!(times.is_sorted(), "in their order");
    assert!(times[999] - start <= 33 * (WINDOW + 10 * SECOND), "30 in a minute: {:?}", times[999] - start);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_gives_back_its_ticket_and_those_behind_it_move_up() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    assert_eq!(at_once(&rate_limiter, CREATE_LOAD_BALANCER, &half).await, 30);
    let wrong: Vec<Priority> = (0..900).map(|_| making()).collect();
    for object in &wrong {
        assert!(rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, object, SECOND).await.is_err());
    }
    let right = making();
    let limited = rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &right, SECOND).await.unwrap_err();
    assert_eq!(limited.wait, 31 * WINDOW);
    let tickets = right.tickets.clone().unwrap();
    drop(wrong);
    tokio::time::sleep(WINDOW - 2 * SECOND).await;
    assert!(!rate_limiter.wake(&half));
    assert!(tickets.are_away() && !tickets.are_due());
    tokio::time::sleep(SECOND).await;
    assert!(rate_limiter.wake(&half));
    assert!(tickets.are_due() && !tickets.are_due() && !tickets.are_away(), "the object is due once for each turn");
    assert!(rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &right, SECOND).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_object_comes_back_as_early_as_others_needed_to_prepare_such_a_call() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    assert_eq!(at_once(&rate_limiter, CREATE_LOAD_BALANCER, &half).await, 30);
    for early in [1, 8] {
        let object = making();
        let tickets = object.tickets.clone().unwrap();
        let limited = rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &object, SECOND).await.unwrap_err();
        tokio::time::sleep(limited.wait - (early + 1) * SECOND).await;
        assert!(!rate_limiter.wake(&half));
        assert!(!tickets.are_due());
        tokio::time::sleep(SECOND).await;
        assert!(rate_limiter.wake(&half));
        assert!(tickets.are_due(), "{early} s before its turn");
        tokio::time::sleep(7 * SECOND).await;
        call(&rate_limiter, CREATE_LOAD_BALANCER, &half, object).await;
        assert_eq!(at_once(&rate_limiter, CREATE_LOAD_BALANCER, &half).await, 29);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_call_was_throttled_keeps_its_ticket() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    let (first, second) = (making(), making());
    let turn = rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &first, SECOND).await.unwrap();
    turn.throttled(&first, Some(20 * SECOND));
    assert!(rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &second, SECOND).await.is_err());
    let limited = rate_limiter.wait(CREATE_LOAD_BALANCER.0, &half, &first, SECOND).await.unwrap_err();
    assert_eq!(limited.wait, 20 * SECOND, "no other call waits before it");
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_read_was_throttled_waits_for_no_turn_afterwards() {
    let (rate_limiter, half, object) = (RateLimiter::default(), share(0.5), making());
    let turn = rate_limiter.wait(LIST_NETWORK_LISTENERS.0, &half, &object, SECOND).await.unwrap();
    turn.throttled(&object, None);
    tokio::time::sleep(20 * SECOND).await;
    drop(rate_limiter.wait(LIST_NETWORK_LISTENERS.0, &half, &object, SECOND).await.unwrap());
    assert!(!object.tickets.unwrap().are_held());
}

#[tokio::test(start_paused = true)]
async fn whatever_is_throttled_a_tenth_of_the_rate_is_left_for_groups_that_serve() {
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    for _ in 0..12 {
        call(&rate_limiter, ADD_BACKENDS, &half, CLUSTER_WIDE).await;
        tokio::time::sleep(throttle(&rate_limiter, ADD_BACKENDS, None)).await;
    }
    call(&rate_limiter, ADD_BACKENDS, &half, CLUSTER_WIDE).await;
    throttle(&rate_limiter, ADD_BACKENDS, None);
    let limited = |wait: Result<Ticket, Limited>| wait.err().map(|limited| limited.wait);
    let other = limited(rate_limiter.wait(ADD_BACKENDS.0, &half, &making(), Duration::ZERO).await);
    assert!(other > Some(20 * SECOND), "{other:?}");
    let serves = limited(rate_limiter.wait(ADD_BACKENDS.0, &half, &serving(), Duration::ZERO).await);
    assert!(serves < Some(WINDOW * 10 / 45 + SECOND), "{serves:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_stops_waiting_makes_room_at_once() {
    let (rate_limiter, all) = (Arc::new(RateLimiter::default()), share(1.0));
    assert_eq!(at_once(&rate_limiter, ADD_BACKENDS, &all).await, 90);
    tokio::time::sleep(30 * SECOND).await;
    let start = Instant::now();
    let wait_long = || {
        let (rate_limiter, all) = (rate_limiter.clone(), all.clone());
        tokio::spawn(async move {
            rate_limiter.wait(ADD_BACKENDS.0, &all, &CLUSTER_WIDE, WINDOW).await.map(|_| Instant::now())
        })
    };
    let quitters: Vec<_> = (0..90).map(|_| wait_long()).collect();
    tokio::time::sleep(SECOND).await;
    // Behind them is the window after the next.
    assert_eq!(rate_limiter.wait(ADD_BACKENDS.0, &all, &CLUSTER_WIDE, WINDOW).await.err(), Some(own(91 * SECOND)));
    quitters.iter().for_each(tokio::task::JoinHandle::abort);
    let went = wait_long().await.unwrap().unwrap();
    assert_eq!(went.duration_since(start).as_secs(), 31);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_action_pauses_shortly_at_first_and_longer_while_it_is_throttled() {
    let (rate_limiter, all) = (RateLimiter::default(), share(1.0));
    let mut longest = FIRST_BACKOFF;
    for _ in 0..12 {
        let pause = throttle(&rate_limiter, CREATE_GROUP, None);
        assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
        let again = throttle(&rate_limiter, CREATE_GROUP, None);
        assert_eq!(again, pause, "calls that were throttled together are one shortage");
        let limited = rate_limiter.wait(CREATE_GROUP.0, &all, &CLUSTER_WIDE, Duration::ZERO).await;
        assert_eq!(limited.err(), Some(by_cloud(pause)));
        assert!(rate_limiter.wait(CREATE_LOAD_BALANCER.0, &all, &CLUSTER_WIDE, Duration::ZERO).await.is_ok());
        tokio::time::sleep(pause).await;
        longest = (2 * longest).min(WINDOW);
    }
    assert_eq!(longest, WINDOW);
    assert_eq!(throttle(&rate_limiter, CREATE_GROUP, Some(3 * SECOND)), 3 * SECOND, "the answer's own word counts");
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_throttled_action_is_halved_and_successes_raise_it() {
    let (rate_limiter, all) = (RateLimiter::default(), share(1.0));
    let half_a_second = Duration::from_millis(500);
    for _ in 0..2 {
        tokio::time::sleep(throttle(&rate_limiter, CREATE_GROUP, None)).await;
    }
    // A quarter of 20 in a second.
    let start = Instant::now();
    let sent = async || {
        call(&rate_limiter, CREATE_GROUP, &all, CLUSTER_WIDE).await;
        start.elapsed()
    };
    let times = [sent().await, sent().await, sent().await];
    assert_eq!(times, [0, 200, 400].map(Duration::from_millis));
    (0..15).for_each(|_| let_pass(&rate_limiter, CREATE_GROUP));
    tokio::time::sleep(half_a_second).await;
    assert_eq!(at_once(&rate_limiter, CREATE_GROUP, &all).await, 87, "not limited any more");
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_profit_from_a_rate_that_rises_meanwhile() {
    let (rate_limiter, all) = (Arc::new(RateLimiter::default()), share(1.0));
    // A rate of one call in 12.8 seconds.
    for _ in 0..8 {
        tokio::time::sleep(throttle(&rate_limiter, CREATE_GROUP, Some(SECOND))).await;
    }
    let start = Instant::now();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let (rate_limiter, all) = (rate_limiter.clone(), all.clone());
            tokio::spawn(async move {
                while let Err(limited) = rate_limiter.wait(CREATE_GROUP.0, &all, &CLUSTER_WIDE, 60 * SECOND).await {
                    tokio::time::sleep(limited.wait).await;
                }
                let_pass(&rate_limiter, CREATE_GROUP);
            })
        })
        .collect();
    futures::future::join_all(calls).await.into_iter().for_each(|it| it.unwrap());
    assert!(start.elapsed() < 2 * SECOND, "four calls took {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_serves_traffic_goes_first_after_a_pause_too() {
    let (rate_limiter, half) = (Arc::new(RateLimiter::default()), share(0.5));
    throttle(&rate_limiter, ADD_BACKENDS, None);
    let spawn = |priority| {
        let (rate_limiter, half) = (rate_limiter.clone(), half.clone());
        tokio::spawn(async move { call(&rate_limiter, ADD_BACKENDS, &half, priority).await })
    };
    let makers: Vec<_> = (1..=3).map(|_| spawn(making())).collect();
    tokio::task::yield_now().await;
    let server = spawn(serving()).await.unwrap();
    for maker in makers {
        assert!(server < maker.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_moves_is_served_within_a_second_although_half_of_all_calls_are_throttled() {
    const MOVES: usize = 1000;
    let (rate_limiter, all) = (RateLimiter::default(), share(1.0));
    let mut took = Vec::new();
    jitter::load(1);
    for _ in 0..MOVES {
        let asked = Instant::now();
        loop {
            let at = call(&rate_limiter, ADD_BACKENDS, &all, serving()).await;
            if jitter::share() < 0.5 {
                let_pass(&rate_limiter, ADD_BACKENDS);
                took.push(at - asked);
                break;
            }
            throttle(&rate_limiter, ADD_BACKENDS, None);
        }
        // No more calls than the quota allows.
        tokio::time::sleep(3 * SECOND).await;
    }
    took.sort_unstable();
    assert!(took[MOVES * 99 / 100] < SECOND / 2, "p99 {:?}", took[MOVES * 99 / 100]);
}

#[tokio::test(start_paused = true)]
async fn of_a_quota_that_others_exhaust_what_is_left_is_taken_with_few_throttled_calls() {
    const LEFT: usize = 5;
    const MINUTES: u32 = 10;
    let (rate_limiter, half) = (RateLimiter::default(), share(0.5));
    let start = Instant::now();
    let (mut passed, mut throttled, mut minute, mut left) = (0, 0, 0, LEFT);
    while start.elapsed() < MINUTES * WINDOW {
        call(&rate_limiter, CREATE_LOAD_BALANCER, &half, CLUSTER_WIDE).await;
        if start.elapsed().as_secs() / WINDOW.as_secs() != minute {
            (minute, left) = (start.elapsed().as_secs() / WINDOW.as_secs(), LEFT);
        }
        if left > 0 {
            left -= 1;
            passed += 1;
            let_pass(&rate_limiter, CREATE_LOAD_BALANCER);
        } else {
            throttled += 1;
            throttle(&rate_limiter, CREATE_LOAD_BALANCER, None);
        }
    }
    assert!(passed >= 8 * LEFT, "{passed} calls passed in {MINUTES} minutes");
    assert!(throttled <= 10 * MINUTES, "{throttled} calls were throttled in {MINUTES} minutes");
}

#[tokio::test(start_paused = true)]
async fn a_tiny_share_still_moves() {
    let rate_limiter = RateLimiter::default();
    for _ in 0..3 {
        call(&rate_limiter, CREATE_LOAD_BALANCER, &share(0.001), CLUSTER_WIDE).await;
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
