//! What the vendor's error codes mean.
//!
//! The tables of `codes` are tried in the order in which that file has them. A code that no table knows is
//! [`FaultKind::Rejected`], which callers retry slowly but for ever, so that an unknown code stops nothing for good. The
//! HTTP status alone never means [`FaultKind::Gone`]: a gateway's 404 proves nothing about an object.

mod codes;
mod message;
#[cfg(test)]
mod tests;

pub(super) use message::without_secrets;

use self::codes::{
    BY_ACTION, CREDENTIALS, CURED_BY_NEW_CREDENTIALS, FAMILIES, KNOWN, MESSAGES, MISSING, THROTTLED, TRANSIENT,
};
use super::FaultKind::{self, Busy, Denied, Gone, Rejected, Throttled};
use super::actions::Action;

/// A call was a dry run, and would have succeeded.
pub(super) const DRY_RUN_PASSED: &str = "DryRunOperation";

/// How to react to an error answer. `code` may be empty if the answer was not the vendor's.
#[must_use]
pub(super) fn classify(action: &Action, status: u16, code: &str, message: &str) -> FaultKind {
    let code = code.trim().to_ascii_lowercase();
    if status == 429 || THROTTLED.iter().any(|pattern| pattern.matches(&code)) {
        return Throttled;
    }
    if !code.is_empty() {
        if let Some((_, kind)) = CREDENTIALS.iter().find(|(pattern, _)| pattern.matches(&code)) {
            return *kind;
        }
        if missing_by_message(action, &code, message) {
            return Gone;
        }
        if let Some((_, object)) = MISSING.iter().find(|(is, _)| code.eq_ignore_ascii_case(is)) {
            return if action.addresses.contains(object) { Gone } else { Rejected };
        }
        if let Some(kind) = by_action(action, &code) {
            return kind;
        }
        if TRANSIENT.iter().any(|pattern| pattern.matches(&code)) {
            return action.unknown_fate();
        }
        for table in [KNOWN, FAMILIES] {
            if let Some((kind, _)) = table.iter().find(|(_, codes)| codes.iter().any(|pattern| pattern.matches(&code)))
            {
                return *kind;
            }
        }
    }
    match status {
        401 => Denied,
        408 | 500.. => action.unknown_fate(),
        409 => Busy,
        // A proxy may have answered, before or after the cloud got the call.
        _ if code.is_empty() => action.unknown_fate(),
        _ => Rejected,
    }
}

/// Whether the call may succeed with new credentials.
#[must_use]
pub(super) fn cured_by_new_credentials(code: &str) -> bool {
    let code = code.trim().to_ascii_lowercase();
    CURED_BY_NEW_CREDENTIALS.iter().any(|pattern| pattern.matches(&code))
}

fn by_action(action: &Action, code: &str) -> Option<FaultKind> {
    let applies = |actions: &[&str]| actions.is_empty() || actions.contains(&action.name);
    BY_ACTION.iter().find(|(is, on, _)| code.eq_ignore_ascii_case(is) && applies(on)).map(|(_, _, kind)| *kind)
}

fn missing_by_message(action: &Action, code: &str, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    MESSAGES.iter().any(|(product, general, part, object)| {
        *product == action.product
            && general.is_none_or(|general| code.eq_ignore_ascii_case(general))
            && message.contains(part)
            && action.addresses.contains(object)
    })
}
