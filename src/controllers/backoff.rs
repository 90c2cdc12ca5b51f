//! How long a controller waits before it retries what failed.
//!
//! The crate `backon` is not used here: its schedule belongs to one retry loop, while an object's failures are counted
//! between reconciles, each failure names its own [`Backoff`], and jitter comes from [`jitter`], so that tests repeat.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::jitter;

/// A delay that doubles with each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub longest: Duration,
}

impl Backoff {
    /// For failures that pass by themselves.
    pub const SHORT: Self = Self { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
    /// For failures that last until the user changes something.
    pub const LONG: Self = Self { first: Duration::from_secs(30), longest: Duration::from_secs(300) };

    /// The delay after `failures` failures in a row, 1 or more. Jitter shortens it by up to a quarter, so that objects that
    /// failed together are not retried together.
    #[must_use]
    pub fn delay(self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.longest).mul_f64(1.0 - jitter::share() / 4.0)
    }
}

/// How often each kind of failure has occurred since an object was last in sync: waits for one kind do not make those for
/// another longer.
pub(super) type FailuresInARow = BTreeMap<&'static str, u32>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_jitter_only_shortens_them() {
        for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (7, 60), (u32::MAX, 60)] {
            let (delay, nominal) = (Backoff::SHORT.delay(failures), Duration::from_secs(seconds));
            assert!(delay <= nominal && delay >= nominal * 3 / 4, "{failures}: {delay:?}");
        }
    }
}
