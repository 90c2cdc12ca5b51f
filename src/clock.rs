//! The one place that reads clocks other than the monotonic one, so that everything else is given its time and stays
//! testable.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The current time in UTC. Where the runtime's clock is paused and jumps, as in tests, this one jumps with it. A clock that
/// is beyond the year 9999 counts as its end.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    let (real, runtime) = (std::time::Instant::now(), tokio::time::Instant::now().into_std());
    let now = Timestamp::try_from(SystemTime::now());
    now.and_then(|now| now.checked_add(runtime.saturating_duration_since(real)))
        .and_then(|now| now.checked_sub(real.saturating_duration_since(runtime)))
        .unwrap_or(Timestamp::MAX)
}

/// A time in whole seconds: old API servers parse no others.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// How long this machine has been suspended since it was started: time that passed for everything else, and that the
/// monotonic clock leaves out.
pub fn suspended() -> Duration {
    let read = |clock| {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
    };
    // In this order, what passes between the two reads counts as awake.
    let with_suspension = read(ClockId::Boottime);
    let suspended = with_suspension.saturating_sub(read(ClockId::Monotonic));
    #[cfg(test)]
    let suspended = suspended + UNSEEN.get();
    suspended
}

#[cfg(test)]
thread_local! {
    static UNSEEN: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// This thread's machine sleeps for so long.
#[cfg(test)]
pub fn sleep_unseen(time: Duration) {
    UNSEEN.set(UNSEEN.get() + time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_beyond_the_year_9999_is_no_panic() {
        tokio::time::advance(Duration::from_hours(24 * 366 * 9000)).await;
        assert_eq!(now(), Timestamp::MAX);
    }
}
