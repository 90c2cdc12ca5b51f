//! Nodes that stop being ready many at once. That looks the same whether they failed or only the way between them and the API
//! server did, and in the second case they still serve. The health checks of the load balancer keep traffic off dead ones
//! meanwhile. So their backends are not removed at the first sighting:
//!
//! - While every node is unready, none is removed.
//! - If more than half of the backends of a port become unready within a minute, each waits for a second sighting.
//!
//! Only readiness is doubted. A node that is deleted, cordoned where that counts, excluded or stopped, and a pod that moves, leave
//! at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::plan::inputs::NodeView;
use crate::plan::node::{SHUTDOWN, has_taint};

/// Time between the two sightings of an unready node.
const SECOND_SIGHTING: Duration = Duration::from_secs(30);
/// Nodes that become unready within this time count together.
const WINDOW: Duration = Duration::from_secs(60);

/// Nodes that may serve and are not ready, as the controller has seen them for one Service. Losing it costs another second
/// sighting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadyNodes {
    /// Every node.
    All,
    /// These, by name, with the time of the first sighting.
    Since(BTreeMap<String, Duration>),
}

impl Default for UnreadyNodes {
    fn default() -> Self {
        Self::NONE.clone()
    }
}

impl UnreadyNodes {
    /// No node.
    pub(crate) const NONE: &'static Self = &Self::Since(BTreeMap::new());

    /// What is remembered, where these nodes are unready now. Once any node is ready again, the others are seen as if for the
    /// first time: while none was, nothing was about to be removed.
    pub(crate) fn updated<'a>(&self, unready: impl IntoIterator<Item = &'a str>, now: Duration) -> Self {
        Self::Since(unready.into_iter().map(|node| (node.to_owned(), self.first_seen(node, now))).collect())
    }

    /// When an unready node was first seen so.
    pub(crate) fn first_seen(&self, node: &str, now: Duration) -> Duration {
        match self {
            Self::All => now,
            Self::Since(since) => since.get(node).copied().unwrap_or(now),
        }
    }

    /// In what time the next node has its second sighting; `None` if all have had theirs.
    pub fn next_sighting(&self, now: Duration) -> Option<Duration> {
        let Self::Since(since) = self else { return None };
        since.values().map(|first| (*first + SECOND_SIGHTING).saturating_sub(now)).filter(|left| !left.is_zero()).min()
    }
}

/// Whether a node that is not ready may serve all the same: it was ready once, and its instance runs.
pub(crate) fn may_still_serve(node: &NodeView) -> bool {
    node.has_conditions && !has_taint(node, SHUTDOWN)
}

/// Backends of one port that wait for their second sighting. `unready` are those that lack nothing but the readiness of their
/// node, each with the time of its first sighting; `ready` is the number of the others.
pub(crate) fn withheld<K: Ord>(
    unready: impl IntoIterator<Item = (K, Duration)>,
    ready: usize,
    now: Duration,
) -> BTreeSet<K> {
    let mut lately: BTreeMap<K, Duration> = unready.into_iter().collect();
    lately.retain(|_, first| now.saturating_sub(*first) < WINDOW);
    if lately.len() <= ready {
        return BTreeSet::new();
    }
    lately.retain(|_, first| now.saturating_sub(*first) < SECOND_SIGHTING);
    lately.into_keys().collect()
}
