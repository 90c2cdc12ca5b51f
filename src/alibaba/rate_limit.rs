//! Keeps calls below the published quotas, so that they wait here rather than be throttled there, and adapts where the cloud
//! throttles all the same.
//!
//! A quota counts calls of one action in any 60 seconds, or in any second. The times of the last calls are kept, and a call is sent as soon
//! as fewer than the own share lie within the window before it: nothing that may be used stays unused.
//!
//! Where more is asked for than there is, what serves traffic goes before everything else ([`Priority`]), and some calls are
//! kept for it. Otherwise namespaces take turns, and in each who asked first. A write for an object that cannot be sent soon
//! returns, and the object keeps its ticket ([`Tickets`]): when it comes back, the call carries all that has changed meanwhile.
//! An object that is not back at its turn lets others pass, and keeps its position before them.
//!
//! A throttled answer is often a neighbour's doing, as the quota is the account's. The rate of the action is halved, so that it
//! pauses the longer the more often it is throttled, up to the window. Each success adds a step to the rate (additive
//! increase, multiplicative decrease), until it is not limited any more. Calls for groups that
//! serve have a shorter pause of their own, which the first success ends.
//!
//! The crate `backon` is not used here: it spaces the attempts of one caller, while this backoff and rate are shared by all
//! callers of an action, who wait in one queue.

mod estimate;
mod queue;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub use estimate::{planned, queue_end};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::queue::{FULL_RATE, TicketOwner, TicketQueue};
use super::actions::Action;
use super::endpoints::CloudProduct;
use crate::config::checked;
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

/// A write for an object waits no longer than this: what changes until its turn is part of the same call. An object that comes
/// back does so this much earlier.
const LONGEST_OBJECT_TURN: Duration = Duration::from_secs(1);

/// On whose behalf a call is made, which decides its place in the queue where a quota is short.
#[derive(Clone, Debug, Default)]
pub struct Priority {
    /// Those of the object, if its writes can come back later.
    pub tickets: Option<Tickets>,
    /// Its namespace, by any number that tells it from others; 0 for the cluster as a whole.
    pub namespace: u64,
    /// What the call is for.
    pub purpose: Purpose,
}

impl Priority {
    /// Where the object keeps its ticket for this action: only writes come back later.
    fn tickets_for(&self, action: &Action) -> Option<&Tickets> {
        self.tickets.as_ref().filter(|_| action.writes)
    }
}

/// What a call is for, in the order in which calls are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    fn limits(&self, action: &Action) -> (usize, Duration) {
        let (calls, window, pause) = self.of(action);
        (calls, window + pause)
    }
}

/// A call was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    /// Whether the cloud throttles the action; otherwise, the own share of the quota is used up.
    pub(super) by_cloud: bool,
    /// After which time the call can be retried.
    pub(super) wait: Duration,
}

/// How much of the limit of one action is used.
#[derive(Clone, Debug, Default, PartialEq)]
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

/// The limits of all actions. Clones share them: what was sent counts as well for those who connect anew.
#[derive(Clone, Debug, Default)]
pub struct RateLimiter(Arc<Mutex<ActionLimiters>>);

type ActionLimiters = HashMap<(CloudProduct, &'static str), Arc<ActionLimiter>>;

/// The limit of one action.
#[derive(Debug)]
struct ActionLimiter {
    action: &'static Action,
    queue: Mutex<TicketQueue>,
    /// Notified when those that wait may go earlier than they were told.
    moved: Notify,
}

impl ActionLimiter {
    fn change<T>(&self, change: impl FnOnce(&mut TicketQueue) -> T) -> T {
        let mut queue = self.queue.lock();
        let changed = change(&mut queue);
        metrics::waiting_calls(self.action.name, queue.waiting());
        changed
    }
}

/// A turn to call an action. Dropping it gives it back, so that all behind it move up.
#[derive(Debug)]
pub(super) struct Ticket {
    limiter: Arc<ActionLimiter>,
    number: u64,
    purpose: Purpose,
}

impl Ticket {
    /// The cloud throttled the call: the action pauses, its rate falls, and the object keeps the ticket of a write. Gives for how
    /// long it pauses. `hint` is what the answer said, if it did.
    pub(super) fn throttled(self, priority: &Priority, hint: Option<Duration>) -> Duration {
        let pause = self.limiter.change(|queue| queue.throttled(hint, Instant::now()));
        if let Some(tickets) = priority.tickets_for(self.limiter.action) {
            tickets.keep(self);
        }
        pause
    }

    /// The cloud did not throttle the call.
    pub(super) fn passed(&self) {
        if self.limiter.change(TicketQueue::passed) {
            self.limiter.moved.notify_waiters();
        }
    }

    /// Moves the owner from one place to another. Returns whether the owner was at the first.
    fn moves(&self, from: TicketOwner, to: TicketOwner) -> bool {
        let mut queue = self.limiter.queue.lock();
        let entry = queue.tickets.get_mut(&self.number).filter(|entry| entry.owner == from);
        entry.map(|entry| entry.owner = to).is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let removed = self.limiter.change(|queue| queue.tickets.remove(&self.number));
        if removed.is_some_and(|entry| entry.owner != TicketOwner::Sent) {
            self.limiter.moved.notify_waiters();
        }
    }
}

/// The tickets of one object, one for each scarce action. They are given back with the last clone.
#[derive(Clone, Debug, Default)]
pub struct Tickets(Arc<Mutex<Vec<Ticket>>>);

impl Tickets {
    /// Whether the object waits for a turn that is not near.
    pub fn are_away(&self) -> bool {
        self.0.lock().iter().any(|ticket| ticket.moves(TicketOwner::Away, TicketOwner::Away))
    }

    /// Whether a call of the object waits for its turn, or has it now.
    pub fn are_held(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Whether the object has to prepare its call now. Returns `true` once for each turn.
    pub fn are_due(&self) -> bool {
        self.0.lock().iter().any(|ticket| ticket.moves(TicketOwner::Due, TicketOwner::Busy(Instant::now())))
    }

    /// The object has nothing to call.
    pub fn give_back(&self) {
        self.0.lock().clear();
    }

    fn take(&self, limiter: &Arc<ActionLimiter>, purpose: Purpose) -> Option<Ticket> {
        let mut held = self.0.lock();
        let is_it = |ticket: &Ticket| Arc::ptr_eq(&ticket.limiter, limiter) && ticket.purpose == purpose;
        held.iter().position(is_it).map(|index| held.swap_remove(index))
    }

    /// The object keeps the ticket while it does something else.
    fn keep(&self, ticket: Ticket) {
        ticket.limiter.change(|queue| queue.set_owner(ticket.number, TicketOwner::Away));
        self.0.lock().push(ticket);
    }
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
        priority: &Priority,
        limit: Duration,
    ) -> Result<Ticket, Limited> {
        let limiter = self.of(action, quota);
        let Priority { namespace, purpose, .. } = *priority;
        let tickets = priority.tickets_for(action);
        let longest = if tickets.is_some() { LONGEST_OBJECT_TURN } else { LONGEST_TURN }.min(limit);
        let began = Instant::now();
        let ticket = tickets.and_then(|tickets| tickets.take(&limiter, purpose)).unwrap_or_else(|| {
            let number = limiter.change(|queue| queue.issue(purpose, namespace));
            Ticket { limiter: limiter.clone(), number, purpose }
        });
        loop {
            let moved = limiter.moved.notified();
            let (at, limited) = match limiter.change(|queue| queue.decide(ticket.number, Instant::now())) {
                Ok(()) => return Ok(ticket),
                Err(later) => later,
            };
            let longest = if limited.by_cloud { longest.min(LONGEST_PAUSE) } else { longest };
            if began.elapsed() + limited.wait > longest {
                tickets.inspect(|tickets| tickets.keep(ticket));
                return Err(limited);
            }
            tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = moved => {}
            }
        }
    }

    /// Makes those objects due whose turn is so near that they have to prepare their calls: see [`Tickets::are_due`]. Tells whether
    /// one is due.
    pub(super) fn wake(&self, quota: &QuotaShare) -> bool {
        let mut is_due = false;
        for limiter in self.all(quota) {
            is_due |= limiter.queue.lock().wake(Instant::now());
        }
        is_due
    }

    /// The limiters of all actions that were called, with these quotas.
    fn all(&self, quota: &QuotaShare) -> Vec<Arc<ActionLimiter>> {
        let limiters: Vec<_> = self.0.lock().values().cloned().collect();
        limiters.iter().for_each(|limiter| limiter.queue.lock().limits = quota.limits(limiter.action));
        limiters
    }

    /// Actions that were called within their window, wait, or are throttled, by name.
    pub(super) fn in_use(&self, quota: &QuotaShare) -> Vec<RateUse> {
        let now = Instant::now();
        let limiters = self.all(quota).into_iter().filter_map(|limiter| {
            let action = limiter.action;
            let (allowed, window, _) = quota.of(action);
            let queue = limiter.queue.lock();
            let idle = RateUse { action: action.name, allowed, window, ..RateUse::default() };
            let (sent, waiting, last_in) = (queue.sent(window, now), queue.waiting(), queue.last_in(now));
            let paused = Some(queue.paused(now)).filter(|left| !left.is_zero());
            let slowed_to = (queue.rate < FULL_RATE).then_some(queue.rate);
            let used = RateUse { sent, waiting, last_in, paused, slowed_to, ..idle.clone() };
            (used != idle).then_some(used)
        });
        let mut all: Vec<RateUse> = limiters.collect();
        all.sort_by_key(|used| used.action);
        all
    }

    fn of(&self, action: &'static Action, quota: &QuotaShare) -> Arc<ActionLimiter> {
        let limits = quota.limits(action);
        let new =
            || Arc::new(ActionLimiter { action, queue: Mutex::new(TicketQueue::new(limits)), moved: Notify::new() });
        let limiter = self.0.lock().entry((action.product, action.name)).or_insert_with(new).clone();
        limiter.queue.lock().limits = limits;
        limiter
    }
}

#[cfg(test)]
mod tests;
