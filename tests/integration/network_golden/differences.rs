//! Intended differences from what the official controller did with network load balancers.

/// One field of one step of one case.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) case: &'static str,
    /// From 0.
    pub(super) step: usize,
    /// The path to the field.
    pub(super) field: &'static str,
    pub(super) theirs: &'static str,
    pub(super) ours: &'static str,
}

pub(super) const DIFFERENCES: &[Difference] = &[];
