//! Retry jitter, the one source of randomness: pauses differ, so that many do not retry together.
//!
//! Randomness decides when something is tried, never what is done. [`load`] makes it repeatable for a test.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The state of this thread's seeded generator, if it has one.
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// At least 0 and below 1.
pub fn share() -> f64 {
    let random = match SEEDED.get() {
        None => uuid::Uuid::new_v4().as_fields().0,
        Some(state) => {
            let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            SEEDED.set(Some(state));
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            u32::try_from(mixed >> 32).unwrap_or_default()
        }
    };
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

/// At least half of the pause, and less than all of it.
pub fn shortened(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + share() / 2.0)
}

/// From now on, the jitter of this thread follows from `seed`.
pub fn load(seed: u64) {
    SEEDED.set(Some(seed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_differ_and_stay_within_bounds() {
        let shares: Vec<f64> = (0..1000).map(|_| share()).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        assert!(shares.iter().any(|share| *share < 0.1) && shares.iter().any(|share| *share > 0.9));
    }

    #[test]
    fn a_seed_repeats_its_shares() {
        let drawn = |seed| {
            load(seed);
            [share(), share(), share()].map(f64::to_bits)
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
