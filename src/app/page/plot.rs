//! Counts by minute as bars.

use std::fmt::Write;

use maud::{Markup, html};

use crate::telemetry::activity::MinuteCount;

/// Of the drawing, in its own units.
const HEIGHT: u32 = 100;
/// Of one minute, with the gap to the next.
const STEP: usize = 10;
const BAR: u32 = 8;

/// A figure; its caption says in words what the bars show. `what` are the things that are counted, such as `Reconciles`.
pub(super) fn bars(what: &str, minutes: &[MinuteCount]) -> Markup {
    let most = minutes.iter().map(|minute| minute.all).max().unwrap_or_default();
    let sum = |of: fn(&MinuteCount) -> u32| minutes.iter().map(|minute| u64::from(of(minute))).sum::<u64>();
    let (all, failed) = (sum(|minute| minute.all), sum(|minute| minute.failed));
    let path = |of: fn(&MinuteCount) -> (u32, u32)| {
        let mut path = String::new();
        for (index, minute) in minutes.iter().enumerate() {
            let (from, to) = of(minute);
            let (bottom, top) = (HEIGHT - scaled(from, most), HEIGHT - scaled(to, most));
            if bottom > top {
                // Cannot fail: it is a String.
                let _ = write!(path, "M{} {bottom}V{top}h{BAR}V{bottom}z", index * STEP);
            }
        }
        path
    };
    let size = format!("0 0 {} {HEIGHT}", minutes.len() * STEP);
    html! {
        figure {
            figcaption {
                strong { (what) } " in the last hour: " (all) ", of which " (failed) " failed; at most " (most) " in a minute."
            }
            svg viewBox=(size) preserveAspectRatio="none" aria-hidden="true" {
                path.bar d=(path(|minute| (minute.failed, minute.all))) {}
                path.bar-failed d=(path(|minute| (0, minute.failed))) {}
            }
            p.axis aria-hidden="true" { span { "60 min ago" } span { "now" } }
        }
    }
}

/// The height of a count; what is not 0 is seen.
fn scaled(count: u32, most: u32) -> u32 {
    if count == 0 {
        0
    } else {
        (u64::from(count) * u64::from(HEIGHT) / u64::from(most.max(1))).max(3).try_into().unwrap_or(HEIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_scaled_and_the_caption_has_the_numbers() {
        let count = |all, failed| MinuteCount { all, failed };
        let minutes = [count(0, 0), count(10, 5), count(20, 0), count(1000, 1)];
        let drawn = bars("Calls", &minutes).into_string();
        assert!(
            drawn.contains("<strong>Calls</strong> in the last hour: 1030, of which 6 failed; at most 1000"),
            "{drawn}"
        );
        assert!(drawn.contains("M30 97V0h8V97z"), "the highest, above what failed: {drawn}");
        assert!(drawn.contains("M10 100V97h8V100z") && drawn.contains("M30 100V97h8V100z"), "what failed: {drawn}");
        assert!(!drawn.contains("M0 "), "nothing in the first minute: {drawn}");
        assert!(bars("Calls", &[MinuteCount::default(); 60]).into_string().contains(": 0, of which 0 failed"));
    }
}
