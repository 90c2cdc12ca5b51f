//! Keeps calls below the published quotas, so that they wait here rather than be refused there.
//!
//! A quota counts calls of one action in any 60 seconds. Of the share that this process may use, a third can be spent
//! at once and the rest is spread evenly, which together stay within the share in every 60 seconds.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::actions::Action;

/// The time over which quotas count.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// A call that would have to wait longer comes back instead, so that its caller can look at the world again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Calls in hand, by action.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<&'static str, Bucket>>);

/// Tokens may be below zero: those calls are waiting their turn.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    counted_at: Instant,
    paused_until: Option<Instant>,
}

impl Budgets {
    /// Takes one call of the action and waits for its turn.
    ///
    /// # Errors
    /// How long it would have to wait, if that is longer than half a minute or than `limit`; nothing is taken then.
    pub(super) async fn wait(&self, action: &'static Action, share: f64, limit: Duration) -> Result<(), Duration> {
        let wait = self.take(action, share, limit.min(LONGEST_WAIT))?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn take(&self, action: &'static Action, share: f64, limit: Duration) -> Result<Duration, Duration> {
        let allowed = f64::from(action.per_minute) * share;
        let at_once = (allowed / 3.0).floor().max(1.0);
        let per_second = ((allowed - at_once) / WINDOW.as_secs_f64()).max(1.0 / WINDOW.as_secs_f64());
        let now = Instant::now();
        let mut buckets = self.0.lock();
        let bucket =
            buckets.entry(action.name).or_insert(Bucket { tokens: at_once, counted_at: now, paused_until: None });
        let elapsed = now.saturating_duration_since(bucket.counted_at).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * per_second).min(at_once);
        bucket.counted_at = now;
        let turn = Duration::from_secs_f64((1.0 - bucket.tokens).max(0.0) / per_second);
        let pause = bucket.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let wait = turn.max(pause);
        if wait > limit {
            return Err(wait);
        }
        bucket.tokens -= 1.0;
        Ok(wait)
    }

    /// The cloud refused a call: nobody calls the action before the quota's window has passed. Returns how long that is.
    ///
    /// `hint` is what the answer said, if it did.
    pub(super) fn pause(&self, action: &'static Action, hint: Option<Duration>) -> Duration {
        let pause = hint.unwrap_or_else(|| WINDOW.mul_f64(0.5 + random_share() / 2.0)).min(WINDOW);
        let now = Instant::now();
        let mut buckets = self.0.lock();
        let bucket = buckets.entry(action.name).or_insert(Bucket { tokens: 0.0, counted_at: now, paused_until: None });
        let until = bucket.paused_until.map_or(now + pause, |until| until.max(now + pause));
        bucket.paused_until = Some(until);
        // Somebody else spends the same quota; a burst right after the pause would be refused again.
        bucket.tokens = bucket.tokens.min(0.0);
        until - now
    }
}

/// From 0 to 1.
fn random_share() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::actions::{CREATE_GROUP, CREATE_LOAD_BALANCER};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_minute_has_more_calls_than_the_share_of_the_quota() {
        let budgets = Budgets::default();
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < Duration::from_secs(300) {
            budgets.wait(CREATE_LOAD_BALANCER.0, 0.5, LONGEST_WAIT).await.unwrap();
            times.push(Instant::now());
        }
        for first in &times {
            let within = times.iter().filter(|time| **time >= *first && **time < *first + WINDOW).count();
            assert!(within <= 31, "{within} calls in a minute");
        }
        assert!(times.len() > 100, "the share is used: {} calls in five minutes", times.len());
        assert!(times.iter().filter(|time| **time == start).count() > 5, "some go out at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_would_wait_too_long_comes_back_with_the_time() {
        let budgets = Budgets::default();
        let mut taken = 0;
        let wait = loop {
            match budgets.take(CREATE_GROUP.0, 0.5, Duration::from_secs(5)) {
                Ok(_) => taken += 1,
                Err(wait) => break wait,
            }
        };
        assert!(wait > Duration::from_secs(5) && wait < Duration::from_secs(8), "{wait:?}");
        assert!(taken < 25, "{taken}");
        tokio::time::advance(wait).await;
        assert!(budgets.take(CREATE_GROUP.0, 0.5, Duration::from_secs(5)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_only_that_action_pauses_for_the_window() {
        let budgets = Budgets::default();
        let pause = budgets.pause(CREATE_GROUP.0, None);
        assert!(pause >= WINDOW / 2 && pause <= WINDOW, "{pause:?}");
        assert_eq!(budgets.wait(CREATE_GROUP.0, 1.0, Duration::from_secs(1)).await, Err(pause));
        assert_eq!(budgets.wait(CREATE_LOAD_BALANCER.0, 1.0, Duration::ZERO).await, Ok(()));
        tokio::time::advance(pause).await;
        assert_eq!(budgets.wait(CREATE_GROUP.0, 1.0, Duration::from_secs(1)).await, Ok(()));
        assert_eq!(budgets.pause(CREATE_GROUP.0, Some(Duration::from_secs(3))), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tiny_share_still_moves() {
        let budgets = Budgets::default();
        for _ in 0..3 {
            while budgets.wait(CREATE_LOAD_BALANCER.0, 0.001, LONGEST_WAIT).await.is_err() {
                tokio::time::advance(LONGEST_WAIT).await;
            }
        }
    }
}
