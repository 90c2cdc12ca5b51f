//! The one place that reads the wall clock, so that everything else is given its time and stays testable.

use jiff::Timestamp;

/// The current time in UTC. Where the runtime's clock is paused and jumps, as in tests, this one jumps with it.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    let (real, runtime) = (std::time::Instant::now(), tokio::time::Instant::now().into_std());
    Timestamp::now() + runtime.saturating_duration_since(real) - real.saturating_duration_since(runtime)
}
