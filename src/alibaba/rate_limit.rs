//! Keeps calls below the published quotas, so that they wait here rather than be refused there.
//!
//! A quota counts calls of one action in any 60 seconds. The times of the last calls are kept, and a call goes out as
//! soon as fewer than the share lie within the window before it: nothing that may be spent stays unspent.
//!
//! Where more is asked for than there is, what serves traffic passes before everything else ([`Priority`]), then whoever
//! spent less of the window, then whoever asked first. An object that cannot have its call soon is sent away with the
//! time of its turn, and its place in the line is kept until then: when it comes back, it asks for all that has changed
//! meanwhile at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::actions::Action;
use crate::jitter;

/// The time over which quotas count.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// What a call may take longer on its way than another; the cloud counts when calls arrive.
const SPREAD: Duration = Duration::from_secs(1);

/// After a refusal a call that would have to wait longer comes back instead, so that its caller can look at the world
/// again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The same for the turn of a call: a long list is read to its end, but nobody waits behind two full windows.
const LONGEST_TURN: Duration = WINDOW.saturating_add(SPREAD);

/// A write for an object waits no longer than this: what changes while it is sent away rides on the same call.
const LONGEST_ERRAND: Duration = Duration::from_secs(1);

/// How long after its turn a place in the line is kept for one that has not come back.
const KEPT: Duration = Duration::from_secs(2);

/// On whose behalf a call is made, which decides its place where a quota is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// The object, by any number that tells it from others; 0 for the cluster as a whole.
    pub object: u64,
    /// Whether traffic that is served now depends on it.
    pub serving: bool,
}

/// How much may be called.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QuotaShare {
    /// Of each quota, above 0, at most 1.
    pub(super) share: f64,
    /// Quotas that are not the published ones, by the action's name or `*`.
    pub(super) quotas: Arc<BTreeMap<String, u32>>,
}

impl QuotaShare {
    /// Calls in one window.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn of(&self, action: &Action) -> usize {
        let own = self.quotas.get(action.name).or_else(|| self.quotas.get("*"));
        (f64::from(*own.unwrap_or(&action.per_minute)) * self.share).max(1.0) as usize
    }
}

/// Calls in hand, by action.
#[derive(Debug, Default)]
pub(super) struct RateLimiter(Mutex<HashMap<&'static str, Arc<ActionLimiter>>>);

/// One quota.
#[derive(Debug, Default)]
struct ActionLimiter {
    state: Mutex<State>,
    /// Told when somebody leaves the line, so that those behind look at their place again.
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The calls within the window, in order: when, and for which object.
    spent: VecDeque<(Instant, u64)>,
    line: BTreeMap<Place, Claim>,
    arrivals: u64,
    paused_until: Option<Instant>,
}

/// A place in the line: what serves traffic comes first, then who spent less, then who came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    waits_for_traffic_to_pass: bool,
    spent: usize,
    arrival: u64,
}

/// Who holds a place.
#[derive(Clone, Copy, Debug)]
struct Claim {
    object: u64,
    /// `None` while the call waits here; else until when the place of one that was sent away is kept.
    kept_until: Option<Instant>,
}

impl RateLimiter {
    /// Takes one call of the action and waits for its turn.
    ///
    /// # Errors
    /// How long it would have to wait, if that is longer than is good or than `limit`; nothing is taken then.
    pub(super) async fn wait(
        &self,
        action: &'static Action,
        quota: &QuotaShare,
        priority: Priority,
        limit: Duration,
    ) -> Result<(), Duration> {
        let budget = self.of(action);
        let allowed = quota.of(action);
        let comes_back = action.writes && priority.object != 0;
        let longest = if comes_back { LONGEST_ERRAND } else { LONGEST_TURN }.min(limit);
        let latest = Instant::now() + longest;
        let waiting = Waiting { place: budget.state.lock().arrive(priority), budget: &budget };
        loop {
            let moved = budget.moved.notified();
            let turn = {
                let mut state = budget.state.lock();
                let now = Instant::now();
                let turn = state.turn(waiting.place, allowed, now);
                if turn <= now {
                    state.spend(waiting.place, now);
                    return Ok(());
                }
                let paused = state.paused_until.is_some_and(|until| until - now > LONGEST_PAUSE);
                if turn > latest || paused {
                    state.send_away(waiting.place, turn + KEPT);
                    return Err(turn - now);
                }
                turn
            };
            tokio::select! {
                () = tokio::time::sleep_until(turn) => {}
                () = moved => {}
            }
        }
    }

    /// The cloud refused a call: nobody calls the action before the quota's window has passed. Returns how long that is.
    ///
    /// `hint` is what the answer said, if it did.
    pub(super) fn pause(&self, action: &'static Action, quota: &QuotaShare, hint: Option<Duration>) -> Duration {
        let pause = hint.unwrap_or_else(|| WINDOW.mul_f64(0.5 + jitter::share() / 2.0)).min(WINDOW);
        let now = Instant::now();
        let budget = self.of(action);
        let mut state = budget.state.lock();
        state.forget(now);
        let until = state.paused_until.map_or(now + pause, |until| until.max(now + pause));
        state.paused_until = Some(until);
        // Somebody else spends the same quota; the whole share right after the pause would be refused again.
        let allowed = quota.of(action);
        let last = state.spent.back().map_or(until, |(last, _)| until.max(*last));
        while state.spent.len() < allowed - allowed.div_ceil(3) {
            state.spent.push_back((last, 0));
        }
        until - now
    }

    fn of(&self, action: &'static Action) -> Arc<ActionLimiter> {
        self.0.lock().entry(action.name).or_default().clone()
    }
}

/// A call in the line; leaves it when it goes out, and when nobody waits for it any more.
struct Waiting<'a> {
    place: Place,
    budget: &'a ActionLimiter,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        if state.line.get(&self.place).is_some_and(|claim| claim.kept_until.is_none()) {
            state.line.remove(&self.place);
            self.budget.moved.notify_waiters();
        }
    }
}

impl State {
    /// Takes a place in the line: the one that is kept for the object, or one behind those that come before it.
    fn arrive(&mut self, priority: Priority) -> Place {
        let Priority { object, serving } = priority;
        self.forget(Instant::now());
        let kept = self.line.iter().find(|(place, claim)| {
            object != 0
                && claim.object == object
                && claim.kept_until.is_some()
                && place.waits_for_traffic_to_pass != serving
        });
        let place = kept.map(|(place, _)| *place).unwrap_or_else(|| {
            self.arrivals += 1;
            let spent = self.spent.iter().filter(|(_, who)| object != 0 && *who == object).count();
            Place { waits_for_traffic_to_pass: !serving, spent, arrival: self.arrivals }
        });
        self.line.insert(place, Claim { object, kept_until: None });
        place
    }

    /// When the call at this place can go out, if nobody leaves the line before.
    fn turn(&mut self, place: Place, allowed: usize, now: Instant) -> Instant {
        self.forget(now);
        let before = self.line.range(..place).count();
        // A call goes out when the one that is as many places ahead as are allowed has left the window: one that went
        // out already, or one that still waits itself.
        let mut turn = Duration::ZERO;
        let mut ahead = (self.spent.len() + before).checked_sub(allowed);
        let since = loop {
            match ahead.map(|number| (number, self.spent.get(number))) {
                None => break now,
                Some((_, Some((at, _)))) => break *at + WINDOW + SPREAD,
                Some((number, None)) => {
                    turn += WINDOW + SPREAD;
                    ahead = number.checked_sub(allowed);
                }
            }
        };
        (since + turn).max(self.paused_until.unwrap_or(now))
    }

    fn spend(&mut self, place: Place, now: Instant) {
        let object = self.line.remove(&place).map(|claim| claim.object).unwrap_or_default();
        self.spent.push_back((now, object));
    }

    /// The place stays for whoever comes back in time; calls for no object do not come back.
    fn send_away(&mut self, place: Place, until: Instant) {
        if let Some(claim) = self.line.get_mut(&place).filter(|claim| claim.object != 0) {
            claim.kept_until = Some(until);
        }
    }

    fn forget(&mut self, now: Instant) {
        while self.spent.front().is_some_and(|(at, _)| *at + WINDOW + SPREAD <= now) {
            self.spent.pop_front();
        }
        self.line.retain(|_, claim| claim.kept_until.is_none_or(|until| until > now));
    }
}

#[cfg(test)]
mod tests;
