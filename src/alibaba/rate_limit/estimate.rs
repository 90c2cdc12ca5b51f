//! When calls that have to wait for a quota are done.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{QuotaShare, RateUse};
use crate::alibaba::actions::Action;
use crate::config::checked;
use crate::plan::count_of;

/// A wait up to this long is not worth a word.
const SHORT: Duration = Duration::from_secs(5);

/// When a call is sent that has `ahead` others before it, none of which leaves the queue, after those in `sent`, which are in
/// order: as soon as the one that is as many places ahead as are `allowed` in a window has left the window. That is one that
/// was sent already, or one that still waits itself.
pub(super) fn turn(
    sent: &VecDeque<Instant>,
    ahead: usize,
    (allowed, window): (usize, Duration),
    now: Instant,
) -> Instant {
    let Some(number) = (sent.len() + ahead).checked_sub(allowed) else { return now };
    let windows = (number + 1).saturating_sub(sent.len()).div_ceil(allowed);
    let since = number.checked_sub(windows * allowed).map_or(now, |number| sent[number] + window);
    since + window.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX))
}

/// What so many calls, of which there is at least one, would use of the limit if no others were sent.
pub fn planned(action: &'static Action, calls: usize, config: &checked::Cloud) -> RateUse {
    let (allowed, window, pause) = QuotaShare::from(config).of(action);
    let now = Instant::now();
    let last_in = turn(&VecDeque::new(), calls - 1, (allowed, window + pause), now) - now;
    RateUse { action: action.name, allowed, window, waiting: calls, last_in, ..RateUse::default() }
}

/// In what time all calls that wait are sent, and a sentence about it; `None` if that is soon.
pub fn queue_end(limits: &[RateUse]) -> Option<(Duration, String)> {
    let RateUse { action, allowed, window, last_in, .. } = limits.iter().max_by_key(|limit| limit.last_in)?;
    let calls: usize = limits.iter().map(|limit| limit.waiting).sum();
    let time = match last_in.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    };
    let take = if calls == 1 { "takes" } else { "take" };
    let calls = format!("{} {take}", count_of(calls, "call"));
    let text = format!(
        "At this program's share of the quotas, {calls} about {time}: {action} ({allowed} in {} s) is the narrowest",
        window.as_secs()
    );
    (*last_in > SHORT).then_some((*last_in, text))
}

#[cfg(test)]
mod tests;
