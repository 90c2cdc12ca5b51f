//! Keeps calls below the published quotas, so that they wait here rather than be refused there.
//!
//! A quota counts calls of one action in any 60 seconds. The times of the last calls are kept, and a call goes out as
//! soon as fewer than the share lie within the window before it: nothing that may be spent stays unspent.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::actions::Action;
use crate::chance;

/// The time over which quotas count.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// What a call may take longer on its way than another; the cloud counts when calls arrive.
const SPREAD: Duration = Duration::from_secs(1);

/// After a refusal a call that would have to wait longer comes back instead, so that its caller can look at the world
/// again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The same for the turn of a call: a long list is read to its end, but nobody waits behind two full windows.
const LONGEST_TURN: Duration = WINDOW.saturating_add(SPREAD);

/// Calls in hand, by action.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<&'static str, Spent>>);

/// What was spent of one quota.
#[derive(Debug, Default)]
struct Spent {
    /// When the calls within the window went out, or will: those in the future are waiting their turn. In order.
    turns: VecDeque<Instant>,
    paused_until: Option<Instant>,
}

impl Budgets {
    /// Takes one call of the action and waits for its turn.
    ///
    /// # Errors
    /// How long it would have to wait, if that is longer than is good or than `limit`; nothing is taken then.
    pub(super) async fn wait(&self, action: &'static Action, share: f64, limit: Duration) -> Result<(), Duration> {
        let wait = self.take(action, share, limit)?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn take(&self, action: &'static Action, share: f64, limit: Duration) -> Result<Duration, Duration> {
        let now = Instant::now();
        let mut budgets = self.0.lock();
        let spent = budgets.entry(action.name).or_default();
        spent.forget(now);
        let allowed = allowed(action, share);
        let turn = match spent.turns.len().checked_sub(allowed) {
            None => now,
            Some(first) => spent.turns[first] + WINDOW + SPREAD,
        };
        let paused = spent.paused_until.unwrap_or(now).max(now);
        let turn = turn.max(paused);
        // Turns stay in order: nobody overtakes those who wait.
        let turn = spent.turns.back().map_or(turn, |last| turn.max(*last));
        let wait = turn - now;
        if wait > limit.min(LONGEST_TURN) || paused - now > LONGEST_PAUSE {
            return Err(wait);
        }
        spent.turns.push_back(turn);
        Ok(wait)
    }

    /// The cloud refused a call: nobody calls the action before the quota's window has passed. Returns how long that is.
    ///
    /// `hint` is what the answer said, if it did.
    pub(super) fn pause(&self, action: &'static Action, share: f64, hint: Option<Duration>) -> Duration {
        let pause = hint.unwrap_or_else(|| WINDOW.mul_f64(0.5 + chance::share() / 2.0)).min(WINDOW);
        let now = Instant::now();
        let mut budgets = self.0.lock();
        let spent = budgets.entry(action.name).or_default();
        spent.forget(now);
        let until = spent.paused_until.map_or(now + pause, |until| until.max(now + pause));
        spent.paused_until = Some(until);
        // Somebody else spends the same quota; the whole share right after the pause would be refused again.
        let allowed = allowed(action, share);
        let last = spent.turns.back().map_or(until, |last| until.max(*last));
        while spent.turns.len() < allowed - allowed.div_ceil(3) {
            spent.turns.push_back(last);
        }
        until - now
    }
}

impl Spent {
    fn forget(&mut self, now: Instant) {
        while self.turns.front().is_some_and(|turn| *turn + WINDOW + SPREAD <= now) {
            self.turns.pop_front();
        }
    }
}

/// Calls in one window.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn allowed(action: &Action, share: f64) -> usize {
    (f64::from(action.per_minute) * share).max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::super::actions::{CREATE_GROUP, CREATE_LOAD_BALANCER};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_minute_has_more_calls_than_the_share_of_the_quota_and_none_less() {
        let budgets = Budgets::default();
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < Duration::from_secs(300) {
            while let Err(wait) = budgets.wait(CREATE_LOAD_BALANCER.0, 0.5, Duration::from_secs(5)).await {
                tokio::time::sleep(wait).await;
            }
            times.push(Instant::now());
        }
        for first in &times {
            let within = times.iter().filter(|time| **time >= *first && **time <= *first + WINDOW).count();
            assert!(within <= 30, "{within} calls in a minute");
        }
        assert!(times.len() >= 5 * 30 - 1, "the share is used: {} calls in five minutes", times.len());
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
        assert_eq!((taken, wait), (45, WINDOW + SPREAD));
        tokio::time::advance(wait - Duration::from_secs(5)).await;
        assert_eq!(budgets.take(CREATE_GROUP.0, 0.5, Duration::from_secs(5)), Ok(Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_only_that_action_pauses_for_the_window() {
        let budgets = Budgets::default();
        let pause = budgets.pause(CREATE_GROUP.0, 1.0, None);
        assert!(pause >= WINDOW / 2 && pause <= WINDOW, "{pause:?}");
        assert_eq!(budgets.wait(CREATE_GROUP.0, 1.0, Duration::from_secs(1)).await, Err(pause));
        assert_eq!(budgets.wait(CREATE_LOAD_BALANCER.0, 1.0, Duration::ZERO).await, Ok(()));
        tokio::time::advance(pause).await;
        let mut taken = 0;
        while budgets.take(CREATE_GROUP.0, 1.0, Duration::from_secs(1)).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 30, "a third of the share at once");
        assert_eq!(budgets.pause(CREATE_GROUP.0, 1.0, Some(Duration::from_secs(3))), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tiny_share_still_moves() {
        let budgets = Budgets::default();
        for _ in 0..3 {
            while budgets.wait(CREATE_LOAD_BALANCER.0, 0.001, Duration::from_secs(5)).await.is_err() {
                tokio::time::advance(Duration::from_secs(5)).await;
            }
        }
    }
}
