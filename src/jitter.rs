//! The one place that leaves something to chance: pauses that differ, so that many do not come back together.
//!
//! Chance decides when something is tried, never what is done. [`load`] makes it repeatable for a test.

use std::cell::Cell;

thread_local! {
    /// The state of this thread's loaded dice, if they are loaded.
    static LOADED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// At least 0 and below 1.
#[must_use]
pub fn share() -> f64 {
    let dice = match LOADED.get() {
        None => uuid::Uuid::new_v4().as_fields().0,
        Some(state) => {
            let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            LOADED.set(Some(state));
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            u32::try_from(mixed >> 32).unwrap_or_default()
        }
    };
    f64::from(dice) / (f64::from(u32::MAX) + 1.0)
}

/// From now on, what chance decides on this thread follows from `seed`.
pub fn load(seed: u64) {
    LOADED.set(Some(seed));
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
    fn loaded_dice_fall_the_same_way_again() {
        let thrown = |seed| {
            load(seed);
            [share(), share(), share()].map(f64::to_bits)
        };
        assert_eq!(thrown(7), thrown(7));
        assert_ne!(thrown(7), thrown(8));
    }
}
