//! Who calls an action next, and when. Nothing here waits or reads a clock: a decision follows from the state and the time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::estimate::turn;
use super::{LONGEST_OBJECT_TURN, LONGEST_PAUSE, Limited, Purpose, WINDOW};
use crate::jitter;

/// Of the calls that change backends, and of the rate of a throttled action, one in so many is kept for groups that serve.
/// So a pod which fails while many Services are made does not wait for the next window.
const KEPT_TO_SERVE: u32 = 10;

/// The backoff after the first throttled answer; it doubles with each further one.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(250);

/// The backoff of calls for groups that serve. Ten attempts fit into a second, so that a pod moves within it although half of
/// all calls are throttled.
const FIRST_SERVING_BACKOFF: Duration = Duration::from_millis(10);
/// By what that backoff is multiplied with each further throttled answer.
const SERVING_BACKOFF_GROWTH: f64 = 1.5;

/// Calls of an action in a second, at and above which they are not spaced.
pub(super) const FULL_RATE: f64 = 20.0;

/// What a success adds to the rate, calls in a second.
const RATE_STEP: f64 = 2.0;

/// The rate never falls below this, so that the end of a shortage is noticed: one call in a window.
const LOWEST_RATE: f64 = 1.0 / 60.0;

/// For so many calls, the queue remembers which namespace made them.
const REMEMBERED: u64 = 10_000;

/// The tickets for one action, and what was sent.
#[derive(Debug, Default)]
pub(super) struct TicketQueue {
    /// How many calls may be sent, and over which time they count.
    pub(super) limits: (usize, Duration),
    /// The calls within that time, in order.
    sent: VecDeque<Instant>,
    /// By their numbers, which grow.
    pub(super) tickets: BTreeMap<u64, QueuedTicket>,
    numbers: u64,
    /// The number of the last call of each namespace.
    served: HashMap<(Purpose, u64), u64>,
    /// How long the last owner that was woken took to prepare its call.
    needs: Duration,
    paused_until: Option<Instant>,
    /// Until when calls for groups that serve pause, and the whole length of that pause.
    serving_pause: Option<(Instant, Duration)>,
    /// Calls in a second; see [`FULL_RATE`].
    pub(super) rate: f64,
}

/// What a ticket is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedTicket {
    pub(super) purpose: Purpose,
    pub(super) namespace: u64,
    pub(super) owner: TicketOwner,
}

/// Where the owner of a ticket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketOwner {
    /// Its call waits here.
    Ready,
    /// Its call is sent, and may be throttled.
    Sent,
    /// It comes back when its turn is near.
    Away,
    /// It has to come back now.
    Due,
    /// It prepares its call since then.
    Busy(Instant),
}

impl TicketQueue {
    pub(super) fn new(limits: (usize, Duration)) -> Self {
        Self { limits, rate: FULL_RATE, ..Self::default() }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Gives the number of a new ticket.
    pub(super) fn issue(&mut self, purpose: Purpose, namespace: u64) -> u64 {
        let number = self.number();
        self.tickets.insert(number, QueuedTicket { purpose, namespace, owner: TicketOwner::Ready });
        number
    }

    pub(super) fn set_owner(&mut self, number: u64, owner: TicketOwner) {
        self.tickets.entry(number).and_modify(|entry| entry.owner = owner);
    }

    /// Sends the call with this ticket if its turn has come. The owner of the ticket is ready; owners that are not ready let the
    /// call pass.
    ///
    /// # Errors
    /// The earliest time at which the call can be sent, and how long it waits if every call before it is sent first.
    pub(super) fn decide(&mut self, number: u64, now: Instant) -> Result<(), (Instant, Limited)> {
        let (order, QueuedTicket { purpose, namespace, owner }) = (self.order(now), self.tickets[&number]);
        if let TicketOwner::Busy(since) = owner {
            self.needs = (now - since).min(LONGEST_PAUSE);
        }
        self.set_owner(number, TicketOwner::Ready);
        let ahead: Vec<_> = order.iter().take_while(|other| **other != number).collect();
        let ready = ahead.iter().filter(|other| self.tickets[*other].owner == TicketOwner::Ready).count();
        let soonest = self.turn(purpose, ready, now).wait;
        if !soonest.is_zero() {
            return Err((now + soonest, self.turn(purpose, ahead.len(), now)));
        }
        self.set_owner(number, TicketOwner::Sent);
        self.sent.push_back(now);
        let last = self.number();
        self.served.insert((purpose, namespace), last);
        self.served.retain(|_, served| *served + REMEMBERED > last);
        Ok(())
    }

    /// Makes those owners due that are away and have to prepare their calls now. Tells whether one is due.
    pub(super) fn wake(&mut self, now: Instant) -> bool {
        for (ahead, number) in self.order(now).into_iter().enumerate() {
            let QueuedTicket { purpose, owner, .. } = self.tickets[&number];
            let is_near = || self.turn(purpose, ahead, now).wait <= self.needs + LONGEST_OBJECT_TURN;
            if owner == TicketOwner::Away && is_near() {
                self.set_owner(number, TicketOwner::Due);
            }
        }
        self.tickets.values().any(|entry| entry.owner == TicketOwner::Due)
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.tickets.values().filter(|entry| entry.owner != TicketOwner::Sent).count()
    }

    /// The tickets in the order in which they are used: what serves traffic comes first; then one of each namespace in turn,
    /// beginning with the one whose last call was the longest ago; in each the oldest.
    pub(super) fn order(&mut self, now: Instant) -> Vec<u64> {
        while self.sent.front().is_some_and(|at| *at + self.limits.1 <= now) {
            self.sent.pop_front();
        }
        let mut lanes = HashMap::new();
        let place = |(number, entry): (&u64, &QueuedTicket)| {
            let lane = (entry.purpose, entry.namespace);
            let round: &mut usize = lanes.entry(lane).or_default();
            *round += 1;
            (entry.purpose, *round, self.served.get(&lane), *number)
        };
        let mut places: Vec<_> =
            self.tickets.iter().filter(|(_, it)| it.owner != TicketOwner::Sent).map(place).collect();
        places.sort_unstable();
        places.into_iter().map(|(.., number)| number).collect()
    }

    /// How long a call waits that has so many before it, if none of them gives back its ticket, and for what.
    fn turn(&self, purpose: Purpose, ahead: usize, now: Instant) -> Limited {
        let (mut calls, period) = self.limits;
        if purpose == Purpose::Fill {
            calls -= calls / KEPT_TO_SERVE as usize;
        }
        let own = turn(&self.sent, ahead, (calls, period), now) - now;
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let after = |gap: Duration| self.sent.back().map_or(Duration::ZERO, |last| (*last + gap) - now);
        let mut cloud = self.paused(now);
        if self.rate < FULL_RATE {
            let gap = Duration::from_secs_f64(1.0 / self.rate);
            // Each success raises the rate: a call behind the first may wait much shorter than the gap, and looks again then.
            let behind = gap.min(Duration::from_secs_f64(1.0 / RATE_STEP));
            cloud = cloud.max(after(gap)) + behind.saturating_mul(ahead);
        }
        if purpose == Purpose::Serve {
            let serving = self.serving_pause.map_or(Duration::ZERO, |(until, pause)| {
                until.saturating_duration_since(now) + pause.saturating_mul(ahead)
            });
            cloud = cloud.min(serving);
        }
        Limited { by_cloud: cloud > own, wait: cloud.max(own) }
    }

    /// The cloud throttled a call: the action pauses and its rate falls. Gives for how long it pauses. `hint` is what the
    /// answer said, if it did.
    pub(super) fn throttled(&mut self, hint: Option<Duration>, now: Instant) -> Duration {
        // Calls that were sent together and throttled together are one shortage.
        let paused = self.paused(now);
        if paused.is_zero() {
            self.rate = (self.rate / 2.0).max(LOWEST_RATE);
        }
        if self.serving_pause.is_none_or(|(until, _)| until <= now) {
            let longer =
                self.serving_pause.map_or(FIRST_SERVING_BACKOFF, |(_, pause)| pause.mul_f64(SERVING_BACKOFF_GROWTH));
            let pause = hint.unwrap_or(longer).min(self.longest_serving_pause());
            self.serving_pause = Some((now + jitter::shortened(pause), pause));
        }
        let pause = match hint {
            Some(hint) => hint.min(WINDOW).max(paused),
            None if !paused.is_zero() => paused,
            None => {
                let doubled = FIRST_BACKOFF.mul_f64(FULL_RATE / 2.0 / self.rate);
                jitter::shortened(doubled.min(WINDOW))
            }
        };
        self.paused_until = Some(now + pause);
        pause
    }

    /// The cloud did not throttle a call. Whether those that wait may go earlier than they were told.
    pub(super) fn passed(&mut self) -> bool {
        let is_limited = self.rate < FULL_RATE;
        self.rate = (self.rate + RATE_STEP).min(FULL_RATE);
        self.serving_pause = None;
        is_limited
    }

    /// Calls for groups that serve are never further apart: see [`KEPT_TO_SERVE`].
    fn longest_serving_pause(&self) -> Duration {
        let (calls, period) = self.limits;
        let fastest = Duration::from_secs_f64(f64::from(KEPT_TO_SERVE) / FULL_RATE);
        fastest.max(KEPT_TO_SERVE * period / u32::try_from(calls).unwrap_or(u32::MAX))
    }

    /// How long the action pauses.
    pub(super) fn paused(&self, now: Instant) -> Duration {
        self.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// How many calls were sent within the window before now.
    pub(super) fn sent(&self, window: Duration, now: Instant) -> usize {
        self.sent.iter().filter(|at| **at + window > now).count()
    }

    /// In what time the last of those that wait is sent, as far as the own share says.
    pub(super) fn last_in(&self, now: Instant) -> Duration {
        let last = self.waiting().checked_sub(1);
        last.map_or(Duration::ZERO, |last| turn(&self.sent, last, self.limits, now) - now)
    }
}

#[cfg(test)]
mod tests;
