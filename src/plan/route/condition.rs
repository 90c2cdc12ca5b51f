//! The condition `NetworkUnavailable`, which several programs write.

use crate::plan::inputs::{Condition, ConditionStatus};

const CREATED: &str = "RouteCreated";
const NOT_CREATED: &str = "NoRouteCreated";
/// Reasons that route controllers write, the official one's included.
const ROUTE_REASONS: [&str; 2] = [CREATED, NOT_CREATED];
const DISABLED: &str = "RoutesDisabled";

/// What the condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionContent {
    /// The status: true means that pods must not be put there.
    pub unavailable: bool,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The text for people.
    pub message: &'static str,
}

const AVAILABLE: ConditionContent =
    ConditionContent { unavailable: false, reason: CREATED, message: "RouteController created a route" };
const UNAVAILABLE: ConditionContent =
    ConditionContent { unavailable: true, reason: NOT_CREATED, message: "RouteController failed to create a route" };
/// Of a new node.
pub const AWAITED: ConditionContent =
    ConditionContent { unavailable: true, reason: NOT_CREATED, message: "Node created without a route" };
const CLEARED: ConditionContent = ConditionContent {
    unavailable: false,
    reason: DISABLED,
    message: "Routes are not managed by the cloud controller of this cluster",
};

/// What to write so that the condition says whether the node's routes exist; `None` if it may stay as it is.
///
/// A status that is right is not written again. What a network plug-in says of itself (`CalicoIsUp`, `FlannelIsDown`) is
/// left to the plug-in.
pub fn due(current: Option<&Condition>, routed: bool) -> Option<ConditionContent> {
    let wanted = if routed { AVAILABLE } else { UNAVAILABLE };
    let Some(current) = current else { return Some(wanted) };
    let status = if wanted.unavailable { ConditionStatus::True } else { ConditionStatus::False };
    let right = current.status == status && current.reason != DISABLED;
    (!right && !is_of_network_plugin(&current.reason)).then_some(wanted)
}

/// What to write to a node when routes are switched off: exactly the conditions that a route controller set to `True`
/// become `False`, as no other program would ever clear them.
pub fn clear(current: Option<&Condition>) -> Option<ConditionContent> {
    let stale = |condition: &Condition| {
        condition.status == ConditionStatus::True && ROUTE_REASONS.contains(&condition.reason.as_str())
    };
    current.is_some_and(stale).then_some(CLEARED)
}

fn is_of_network_plugin(reason: &str) -> bool {
    reason.ends_with("IsUp") || reason.ends_with("IsDown")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(status: ConditionStatus, reason: &str) -> Condition {
        Condition { status, reason: reason.into(), since: None }
    }

    #[test]
    fn written_only_when_it_is_wrong() {
        use ConditionStatus::{False, True, Unknown};
        let cases = [
            (None, true, Some(AVAILABLE)),
            (None, false, Some(UNAVAILABLE)),
            (Some(says(True, "NoRouteCreated")), true, Some(AVAILABLE)),
            (Some(says(True, "ByHand")), true, Some(AVAILABLE)),
            (Some(says(Unknown, "")), true, Some(AVAILABLE)),
            (Some(says(False, "RouteCreated")), true, None),
            (Some(says(False, "CalicoIsUp")), true, None),
            (Some(says(True, "CalicoIsDown")), true, None),
            (Some(says(False, "RouteCreated")), false, Some(UNAVAILABLE)),
            (Some(says(False, "FlannelIsUp")), false, None),
            (Some(says(True, "NoRouteCreated")), false, None),
            (Some(says(False, "RoutesDisabled")), true, Some(AVAILABLE)),
        ];
        for (current, routed, expected) in cases {
            assert_eq!(due(current.as_ref(), routed), expected, "{current:?} {routed}");
        }
    }

    #[test]
    fn switching_off_clears_what_route_controllers_wrote_and_nothing_else() {
        use ConditionStatus::{False, True, Unknown};
        assert_eq!(clear(Some(&says(True, "NoRouteCreated"))), Some(CLEARED));
        assert_eq!(clear(Some(&says(True, "RouteCreated"))), Some(CLEARED));
        for other in
            [says(True, "CalicoIsDown"), says(True, ""), says(False, "NoRouteCreated"), says(Unknown, "NoRouteCreated")]
        {
            assert_eq!(clear(Some(&other)), None, "{other:?}");
        }
        assert_eq!(clear(None), None);
    }
}
