//! The one place that reads the wall clock, so that everything else is given its time and stays testable.

use jiff::Timestamp;

/// The current time in UTC.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    Timestamp::now()
}
