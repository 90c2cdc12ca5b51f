//! When load balancers are compared with the cloud although no change is known.
//!
//! All comparisons of one period fall on the same moment, since a list page shows many load balancers. What no list shows,
//! server groups and their members, is read in turn: those of each Service once in a cycle whose length follows from the
//! number of reads that it takes.

use std::time::Duration;

use tokio::time::Instant;

use crate::plan::digest;
use crate::plan::loadbalancer::settings::ServiceOptions;

/// Moments at equal distances since a term of leadership began.
#[derive(Debug)]
pub(super) struct DriftSchedule {
    began: Instant,
}

impl DriftSchedule {
    pub(super) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// Whether a comparison has become due since `read_at`.
    pub(super) fn is_due(&self, settings: &ServiceOptions, read_at: Instant) -> bool {
        let since = |period| since_last(self.began.elapsed(), period, Duration::ZERO);
        settings.drift_check.is_some_and(|period| read_at.elapsed() > since(period))
    }

    /// Time until the next comparison; `None` if there is none.
    pub(super) fn until_next(&self, settings: &ServiceOptions) -> Option<Duration> {
        settings.drift_check.map(|period| period - since_last(self.began.elapsed(), period, Duration::ZERO))
    }

    /// Whether the server groups of the Service with this UID have become due since `read_at`, if reading those of all
    /// Services takes so many calls.
    pub(super) fn are_groups_due(&self, settings: &ServiceOptions, reads: usize, uid: &str, read_at: Instant) -> bool {
        settings.drift_check.is_some_and(|period| {
            let cycle = cycle(reads, settings.drift_reads, period);
            read_at.elapsed() > since_last(self.began.elapsed(), cycle, cycle.mul_f64(phase(uid)))
        })
    }
}
/// How long a cycle is in which `reads` are made, so many in an hour; at least `period`.
pub(super) fn cycle(reads: usize, hourly: u32, period: Duration) -> Duration {
    let hours = u32::try_from(reads).map_or(f64::MAX, f64::from) / f64::from(hourly.max(1));
    Duration::try_from_secs_f64(3600.0 * hours).unwrap_or(Duration::MAX).max(period)
}

/// Time since the latest moment of those that come every `period`, the first of them at `phase`, at the time `now`. Before
/// that one, time is counted from the one that would have been before it.
fn since_last(now: Duration, period: Duration, phase: Duration) -> Duration {
    let period = period.as_nanos().max(1);
    let behind = (now.as_nanos() + period - phase.as_nanos() % period) % period;
    u64::try_from(behind).map_or(Duration::MAX, Duration::from_nanos)
}

/// The phase of a Service in a cycle, from 0 to less than 1; those of many are spread evenly.
fn phase(uid: &str) -> f64 {
    let high = u32::try_from(digest::number(uid) >> 32).unwrap_or_default();
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::clb::tests::settings;

    const MINUTE: Duration = Duration::from_secs(60);

    fn every(period: Duration) -> ServiceOptions {
        ServiceOptions { drift_check: Some(period), drift_reads: 60, ..settings().service }
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_due_at_the_same_moment_whenever_they_were_read() {
        let schedule = DriftSchedule::new();
        let options = every(10 * MINUTE);
        let first = Instant::now();
        tokio::time::advance(7 * MINUTE).await;
        let second = Instant::now();
        assert_eq!(schedule.until_next(&options), Some(3 * MINUTE));
        tokio::time::advance(2 * MINUTE).await;
        assert!(!schedule.is_due(&options, first) && !schedule.is_due(&options, second));
        tokio::time::advance(MINUTE).await;
        assert!(schedule.is_due(&options, first) && schedule.is_due(&options, second));
        assert!(!schedule.is_due(&options, Instant::now()), "it is read now");
    }

    #[test]
    fn many_reads_take_a_long_cycle_and_few_none_longer_than_the_period() {
        assert_eq!(cycle(1000, 60, 10 * MINUTE), 1000 * MINUTE);
        assert_eq!(cycle(4, 60, 10 * MINUTE), 10 * MINUTE);
    }

    proptest! {
        #[test]
        fn each_has_its_turn_once_in_a_cycle_and_all_are_spread(minutes in 30_u16..1000) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let schedule = DriftSchedule::new();
                // So many reads take so many minutes.
                let (options, reads) = (every(MINUTE), usize::from(minutes));
                let cycle = u32::from(minutes) * MINUTE;
                let mut read: Vec<(String, Instant, u32)> =
                    (0..100).map(|number| (format!("uid-{number}"), Instant::now(), 0)).collect();
                let mut most = 0;
                for _ in 0..10 {
                    tokio::time::advance(cycle / 10).await;
                    let mut now = 0;
                    for (uid, read_at, turns) in &mut read {
                        if schedule.are_groups_due(&options, reads, uid, *read_at) {
                            (*read_at, *turns, now) = (Instant::now(), *turns + 1, now + 1);
                        }
                    }
                    most = most.max(now);
                }
                assert!(read.iter().all(|(_, _, turns)| *turns == 1), "{read:?}");
                assert!(most < 25, "a tenth of the cycle took {most} of 100");
            });
        }
    }
}
