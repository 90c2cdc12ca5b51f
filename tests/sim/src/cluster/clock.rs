//! The cluster's time: the wall clock at its start, moved on by the runtime's clock, so that paused tests stay in step.

use jiff::Timestamp;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Clock {
    started: Timestamp,
    since: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the one place of the simulated cluster that reads the wall clock")]
    pub(super) fn start() -> Clock {
        Clock { started: Timestamp::now(), since: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.started + self.since.elapsed()
    }
}

/// A time as in `metadata.creationTimestamp`: UTC, whole seconds.
pub(super) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
