//! What the vendor's error codes mean.
//!
//! Throttling and credentials come first, then the tables of `codes` about absent objects and about single actions, then the
//! rest of `codes.txt`. A code that no table knows is [`FaultKind::Rejected`], which callers retry slowly but for ever, so
//! that an unknown code stops nothing for good. The HTTP status alone never means [`FaultKind::Gone`]: a gateway's 404 proves
//! nothing about an object.

mod codes;
mod message;
#[cfg(test)]
mod tests;

pub(in crate::alibaba) use codes::cured_by_new_credentials;
pub(super) use message::without_secrets;

use self::codes::{BY_ACTION, MESSAGES, MISSING};
use super::FaultKind::{self, Ambiguous, Busy, Credential, Denied, Gone, Rejected, Throttled};
use super::actions::Action;

/// A call was a dry run, and would have succeeded.
pub(super) const DRY_RUN_PASSED: &str = "DryRunOperation";

/// How to react to an error answer. `code` may be empty if the answer was not the vendor's.
pub(super) fn classify(action: &Action, status: u16, code: &str, message: &str) -> FaultKind {
    let code = code.trim().to_ascii_lowercase();
    let known = codes::find(&code);
    if status == 429 || known == Some(Throttled) {
        return Throttled;
    }
    if known == Some(Credential) {
        return Credential;
    }
    if !code.is_empty() {
        if missing_by_message(action, &code, message) {
            return Gone;
        }
        if let Some((_, object)) = MISSING.iter().find(|(is, _)| *is == code) {
            return if action.addresses.contains(object) { Gone } else { Rejected };
        }
        if let Some(kind) = by_action(action, &code) {
            return kind;
        }
    }
    match (known, status) {
        (Some(Ambiguous), _) => action.unknown_fate(),
        (Some(kind), _) => kind,
        (None, 401) => Denied,
        (None, 408 | 500..) => action.unknown_fate(),
        (None, 409) => Busy,
        // A proxy may have answered, before or after the cloud got the call.
        _ if code.is_empty() => action.unknown_fate(),
        _ => Rejected,
    }
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
