//! Keeps calls below the published quotas, so that they wait here rather than be throttled there, and adapts where the cloud
//! throttles all the same.
//!
//! A quota counts calls of one action in any 60 seconds, or in any second. The times of the last calls are kept, and a call is sent as soon
//! as fewer than the own share lie within the window before it: nothing that may be used stays unused.
//!
//! Where more is asked for than there is, what serves traffic goes before everything else ([`Priority`]), and some calls are
//! kept for it. Otherwise namespaces take turns, and in each who asked first. A write for an object that cannot be sent soon
//! returns when its turn comes and keeps its place in the queue until then: when it is retried, it carries all that has
//! changed meanwhile.
//!
//! A throttled answer is often a neighbour's doing, as the quota is the account's. The action then pauses for a short
//! backoff with jitter, which doubles while answers are throttled, up to the window. Its rate is halved, and each success
//! adds a step to it (additive increase, multiplicative decrease), until it is not limited any more.
//!
//! The crate `backon` is not used here: it spaces the attempts of one caller, while this backoff and rate are shared by all
//! callers of an action, who wait in one queue.

mod estimate;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use estimate::{planned, queue_end};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::estimate::turn;
use super::actions::{ALL, Action};
use super::endpoints::CloudProduct;
use crate::config::checked;
use crate::jitter;
use crate::telemetry::metrics;

/// The longest time over which quotas count.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// What a call may take longer on its way than another; the cloud counts when calls arrive. Where at most half of a quota is
/// used, calls of two windows may arrive in one, and the share is used without this pause.
const SPREAD: Duration = Duration::from_secs(1);

/// While an action is throttled, a call that would have to wait longer returns instead, so that its caller can observe
/// again and tell users.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The same for the turn of a call: a long list is read to its end, but no call waits behind two full windows.
const LONGEST_TURN: Duration = WINDOW.saturating_add(SPREAD);

/// A write for an object waits no longer than this: what changes until its turn is part of the same call.
const LONGEST_OBJECT_TURN: Duration = Duration::from_secs(1);

/// How long after its turn a place in the queue is kept for a call that has not been retried.
const KEPT: Duration = Duration::from_secs(2);

/// The backoff after the first throttled answer; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);

/// Of the calls that change backends, one in so many is kept for groups that serve, so that a pod which fails while many
/// Services are made does not wait for the next window.
const KEPT_TO_SERVE: usize = 10;

/// Calls of an action in a second, at and above which they are not spaced.
const FULL_RATE: f64 = 20.0;

/// What a success adds to the rate, calls in a second.
const RATE_STEP: f64 = 2.0;

/// The rate never falls below this, so that the end of a shortage is noticed: one call in a window.
const LOWEST_RATE: f64 = 1.0 / 60.0;

/// On whose behalf a call is made, which decides its place in the queue where a quota is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// The object, by any number that tells it from others; 0 for the cluster as a whole.
    pub object: u64,
    /// Its namespace, in the same way.
    pub namespace: u64,
    /// What the call is for.
    pub purpose: Purpose,
}

/// What a call is for, in the order in which calls are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Backends of a server group that serves traffic now.
    Serve,
    /// Backends of one that does not serve yet.
    Fill,
    /// Anything else.
    #[default]
    Other,
}

/// How much of the quotas may be used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QuotaShare {
    /// Of each quota, above 0, at most 1.
    pub(super) share: f64,
    /// Quotas that are not the published ones, by the action's name or `*`.
    pub(super) quotas: Arc<BTreeMap<String, u32>>,
}

impl From<&checked::Cloud> for QuotaShare {
    fn from(config: &checked::Cloud) -> Self {
        Self { share: config.budget_share, quotas: Arc::new(config.quotas.clone()) }
    }
}

impl QuotaShare {
    /// Calls in one window, how long that is, and the pause after it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn of(&self, action: &Action) -> (usize, Duration, Duration) {
        let own = self.quotas.get(action.name).or_else(|| self.quotas.get("*"));
        let published = (action.calls, Duration::from_secs(action.seconds.into()));
        let (calls, window) = own.map_or(published, |own| (*own, WINDOW));
        let allowed = (f64::from(calls) * self.share).max(1.0) as usize;
        (allowed, window, if 2 * allowed > calls as usize { SPREAD } else { Duration::ZERO })
    }
}

/// Why a call was not sent, and after which time it can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    /// The own share of the quota is used up.
    OwnShare(Duration),
    /// The cloud throttles the action.
    ByCloud(Duration),
}

/// How much of the limit of one action is used.
#[derive(Clone, Debug, PartialEq)]
pub struct RateUse {
    /// The action.
    pub action: &'static str,
    /// Calls within the window before now.
    pub sent: usize,
    /// Calls that the own share allows within the window.
    pub allowed: usize,
    /// Over which calls count.
    pub window: Duration,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// After which time the last of them is sent.
    pub last_in: Duration,
    /// How long no call is sent, after the cloud throttled the action.
    pub paused: Option<Duration>,
    /// The lowered rate in calls a second, after the cloud throttled the action.
    pub slowed_to: Option<f64>,
}

/// The limits of all actions.
#[derive(Debug, Default)]
pub(super) struct RateLimiter(Mutex<HashMap<(CloudProduct, &'static str), Arc<ActionLimiter>>>);

/// The limit of one action.
#[derive(Debug, Default)]
struct ActionLimiter {
    state: Mutex<LimiterState>,
    /// Notified when a call leaves the queue, so that those behind it look at their place again.
    moved: Notify,
}

#[derive(Debug)]
struct LimiterState {
    /// After which time a call does not count any more.
    window: Duration,
    /// The calls within the window, in order.
    sent: VecDeque<Instant>,
    queue: BTreeMap<QueuePosition, QueueEntry>,
    arrivals: u64,
    /// The round of the last call that was sent, for each [`Purpose`].
    rounds: [u64; 3],
    /// How often the cloud throttled, less what successes took back.
    throttled: u32,
    paused_until: Option<Instant>,
    /// Calls in a second; see [`FULL_RATE`].
    rate: f64,
}

impl Default for LimiterState {
    fn default() -> Self {
        Self {
            window: WINDOW,
            sent: VecDeque::new(),
            queue: BTreeMap::new(),
            arrivals: 0,
            rounds: [0; 3],
            throttled: 0,
            paused_until: None,
            rate: FULL_RATE,
        }
    }
}

/// A place in the queue: what serves traffic comes first; in each round one call of each namespace, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    purpose: Purpose,
    round: u64,
    arrival: u64,
}

/// Who holds a place in the queue.
#[derive(Clone, Copy, Debug)]
struct QueueEntry {
    object: u64,
    namespace: u64,
    /// `None` while the call waits here; else until when the place of one that returned is kept.
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
    ) -> Result<(), Limited> {
        let limiter = self.of(action);
        let (mut allowed, window, pause) = quota.of(action);
        if priority.purpose == Purpose::Fill {
            allowed -= allowed / KEPT_TO_SERVE;
        }
        let can_return = action.writes && priority.object != 0;
        let longest = if can_return { LONGEST_OBJECT_TURN } else { LONGEST_TURN }.min(limit);
        let latest = Instant::now() + longest;
        let position = {
            let mut state = limiter.state.lock();
            state.window = window + pause;
            state.arrive(priority)
        };
        let waiting = Waiting { position, limiter: &limiter };
        loop {
            let moved = limiter.moved.notified();
            let turn = {
                let mut state = limiter.state.lock();
                let now = Instant::now();
                let own = state.own_turn(waiting.position, allowed, now);
                let turn = own.max(state.throttled_turn(waiting.position, now));
                if turn <= now {
                    state.take(waiting.position, now);
                    metrics::waiting_calls(action.name, state.queue.len());
                    return Ok(());
                }
                let paused = state.paused_until.is_some_and(|until| until - now > LONGEST_PAUSE);
                if turn > latest || paused {
                    state.keep(waiting.position, turn + KEPT);
                    metrics::waiting_calls(action.name, state.queue.len());
                    let wait = turn - now;
                    return Err(if turn > own { Limited::ByCloud(wait) } else { Limited::OwnShare(wait) });
                }
                turn
            };
            tokio::select! {
                () = tokio::time::sleep_until(turn) => {}
                () = moved => {}
            }
        }
    }

    /// The cloud throttled a call: the action pauses and its rate falls. Returns for how long it pauses. `hint` is what
    /// the answer said, if it did.
    pub(super) fn throttled(&self, action: &'static Action, hint: Option<Duration>) -> Duration {
        let now = Instant::now();
        let limiter = self.of(action);
        let mut state = limiter.state.lock();
        // Calls that were sent together and throttled together are one shortage.
        let paused = state.paused_until.filter(|until| *until > now);
        let backoff = match (hint, paused) {
            (Some(hint), _) => hint,
            (None, Some(until)) => until - now,
            (None, None) => {
                let doubled = FIRST_BACKOFF.saturating_mul(1 << state.throttled.min(16));
                doubled.min(WINDOW).mul_f64(0.5 + jitter::share() / 2.0)
            }
        };
        if paused.is_none() {
            state.throttled = state.throttled.saturating_add(1);
            state.rate = (state.rate / 2.0).max(LOWEST_RATE);
        }
        let until = (now + backoff.min(WINDOW)).max(paused.unwrap_or(now));
        state.paused_until = Some(until);
        until - now
    }

    /// The cloud did not throttle a call.
    pub(super) fn passed(&self, action: &'static Action) {
        let limiter = self.of(action);
        let mut state = limiter.state.lock();
        state.throttled /= 2;
        if state.rate < FULL_RATE {
            state.rate = (state.rate + RATE_STEP).min(FULL_RATE);
            // Those that wait have planned with the lower rate.
            limiter.moved.notify_waiters();
        }
    }

    /// Actions that were called within their window, wait, or are throttled, by name.
    pub(super) fn in_use(&self, quota: &QuotaShare) -> Vec<RateUse> {
        let limiters = self.0.lock().clone();
        let now = Instant::now();
        let limiters = limiters.into_iter().filter_map(|((product, name), limiter)| {
            let action = ALL.iter().copied().find(|action| action.product == product && action.name == name)?;
            let (allowed, window, _) = quota.of(action);
            let mut state = limiter.state.lock();
            let last = state.queue.last_key_value().map(|(position, _)| *position);
            let last_in = last.map_or(Duration::ZERO, |last| state.own_turn(last, allowed, now) - now);
            let sent = state.sent.iter().filter(|at| **at + window > now).count();
            let paused =
                state.paused_until.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero());
            let slowed_to = (state.rate < FULL_RATE).then_some(state.rate);
            let is_used = sent > 0 || !state.queue.is_empty() || paused.is_some() || slowed_to.is_some();
            is_used.then(|| RateUse {
                action: name,
                sent,
                allowed,
                window,
                waiting: state.queue.len(),
                last_in,
                paused,
                slowed_to,
            })
        });
        let mut all: Vec<RateUse> = limiters.collect();
        all.sort_by_key(|used| used.action);
        all
    }

    fn of(&self, action: &'static Action) -> Arc<ActionLimiter> {
        self.0.lock().entry((action.product, action.name)).or_default().clone()
    }
}

/// A call in the queue; leaves it when it is sent, and when its caller stops waiting.
struct Waiting<'a> {
    position: QueuePosition,
    limiter: &'a ActionLimiter,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        if state.queue.get(&self.position).is_some_and(|entry| entry.kept_until.is_none()) {
            state.queue.remove(&self.position);
            self.limiter.moved.notify_waiters();
        }
    }
}

impl LimiterState {
    /// Takes a place in the queue: the one that is kept for the object, or one behind those that come before it.
    fn arrive(&mut self, priority: Priority) -> QueuePosition {
        let Priority { object, namespace, purpose } = priority;
        self.forget(Instant::now());
        let kept = self.queue.iter().find(|(position, entry)| {
            object != 0 && entry.object == object && entry.kept_until.is_some() && position.purpose == purpose
        });
        let position = kept.map(|(position, _)| *position).unwrap_or_else(|| {
            self.arrivals += 1;
            let is_ours = |(position, entry): &(&QueuePosition, &QueueEntry)| {
                entry.namespace == namespace && position.purpose == purpose
            };
            let last = self.queue.iter().rev().find(is_ours).map_or(0, |(position, _)| position.round + 1);
            let round = last.max(self.rounds[purpose as usize]);
            QueuePosition { purpose, round, arrival: self.arrivals }
        });
        self.queue.insert(position, QueueEntry { object, namespace, kept_until: None });
        position
    }

    /// When the own share lets the call at this position out, if no other leaves the queue before.
    fn own_turn(&mut self, position: QueuePosition, allowed: usize, now: Instant) -> Instant {
        self.forget(now);
        turn(&self.sent, self.ahead(position), (allowed, self.window), now)
    }

    /// When the pause and the rate of a throttled action let the call at this position out.
    fn throttled_turn(&self, position: QueuePosition, now: Instant) -> Instant {
        let resumed = self.paused_until.unwrap_or(now);
        if self.rate >= FULL_RATE {
            return resumed;
        }
        let gap = Duration::from_secs_f64(1.0 / self.rate);
        let ahead = u32::try_from(self.ahead(position)).unwrap_or(u32::MAX);
        let last = self.sent.back().map_or(now, |last| *last + gap);
        // Each success raises the rate: a call behind the first may wait much shorter than the gap, and looks again then.
        let behind = gap.min(Duration::from_secs_f64(1.0 / RATE_STEP));
        resumed.max(last) + behind.saturating_mul(ahead)
    }

    fn ahead(&self, position: QueuePosition) -> usize {
        self.queue.range(..position).count()
    }

    fn take(&mut self, position: QueuePosition, now: Instant) {
        self.queue.remove(&position);
        let round = &mut self.rounds[position.purpose as usize];
        *round = position.round.max(*round);
        self.sent.push_back(now);
    }

    /// The place is kept for a retry in time; calls for no object are not retried with the same place.
    fn keep(&mut self, position: QueuePosition, until: Instant) {
        if let Some(entry) = self.queue.get_mut(&position).filter(|entry| entry.object != 0) {
            entry.kept_until = Some(until);
        }
    }

    fn forget(&mut self, now: Instant) {
        while self.sent.front().is_some_and(|at| *at + self.window <= now) {
            self.sent.pop_front();
        }
        self.queue.retain(|_, entry| entry.kept_until.is_none_or(|until| until > now));
    }
}

#[cfg(test)]
mod tests;
