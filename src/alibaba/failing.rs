//! Which actions fail, and since when.
//!
//! An action fails as long as its last call did. What only says that an object is absent, taken or being changed is an answer
//! like any other: the action works.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::actions::Action;
use super::fault::{Fault, FaultKind};
use crate::clock;

/// An action that was not called for this long, twice the longest backoff, is not needed any more.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// So many failed calls in a row, of whichever actions, mean that the cloud does not serve this process at all. They do not
/// where other actions work and all answers prove that the keys are valid.
const NOTHING_WORKS: u32 = 3;
/// Actions in one text; further ones are only counted.
const NAMED: usize = 5;

/// Remembers the outcome of calls.
#[derive(Debug, Default)]
pub(super) struct FailingActions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failing: BTreeMap<&'static str, FailingAction>,
    /// Actions whose last call worked, and when that was.
    working: BTreeMap<&'static str, Instant>,
    /// Since the last call that worked.
    failed_calls: u32,
}

#[derive(Debug)]
struct FailingAction {
    kind: FaultKind,
    code: String,
    since: Timestamp,
    calls: u32,
    last: Instant,
}

impl fmt::Display for FailingAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, code, since, calls, .. } = self;
        let code = if code.is_empty() { String::new() } else { format!(" [{code}]") };
        let times = if *calls == 1 { "once".to_owned() } else { format!("{calls} times") };
        write!(f, "fails since {since:.0}, {times}: {}{code}", kind.as_str())
    }
}

/// What the last calls came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallState {
    /// Whether the cloud serves this process at all, as far as is known.
    pub works: bool,
    /// The actions that fail, with kind of fault, vendor's code and since when; empty if none does.
    pub failing: String,
}

impl FailingActions {
    pub(super) fn note<T>(&self, action: &Action, result: &Result<T, Fault>) {
        use FaultKind::{Busy, Exists, Gone, InUse, NotLeading};
        let mut state = self.state.lock();
        match result {
            Err(fault) if fault.held_back() || fault.kind == NotLeading => {}
            Ok(_) | Err(Fault { kind: Busy | Exists | Gone | InUse, .. }) => {
                state.failing.remove(action.name);
                state.working.insert(action.name, Instant::now());
                state.failed_calls = 0;
            }
            Err(fault) => {
                state.failed_calls = state.failed_calls.saturating_add(1);
                state.working.remove(action.name);
                let (since, last) = (clock::now(), Instant::now());
                let (kind, code) = (fault.kind, fault.code.clone());
                let new = FailingAction { kind, code: code.clone(), since, calls: 0, last };
                let failing = state.failing.entry(action.name).or_insert(new);
                (failing.kind, failing.code, failing.last) = (kind, code, last);
                failing.calls = failing.calls.saturating_add(1);
            }
        }
    }

    pub(super) fn state(&self) -> CallState {
        let mut state = self.state.lock();
        state.failing.retain(|_, failing| failing.last.elapsed() < FORGOTTEN);
        state.working.retain(|_, at| at.elapsed() < FORGOTTEN);
        // One action that is denied is called again for each object, perhaps many times in a row.
        let is_served = !state.working.is_empty() && state.failing.values().all(|it| it.kind.proves_valid_keys());
        let works = state.failing.is_empty() || state.failed_calls < NOTHING_WORKS || is_served;
        let mut texts: Vec<String> = state.failing.iter().map(|(action, it)| format!("{action} {it}")).collect();
        let more = texts.len().saturating_sub(NAMED);
        texts.truncate(NAMED);
        if more > 0 {
            texts.push(format!("{more} more"));
        }
        CallState { works, failing: texts.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::actions::{CREATE_LOAD_BALANCER, DESCRIBE_INSTANCES};
    use super::*;

    fn note(failing: &FailingActions, action: &Action, kind: Option<FaultKind>) {
        let fault = |kind| Fault { code: "Some.Code".to_owned(), ..Fault::new(action.name, kind, "why") };
        failing.note(action, &kind.map_or(Ok(()), |kind| Err(fault(kind))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_action_fails_until_a_call_of_it_works() {
        let (failing, instances, create) = (FailingActions::default(), DESCRIBE_INSTANCES.0, CREATE_LOAD_BALANCER.0);
        note(&failing, instances, None);
        assert_eq!(failing.state(), CallState { works: true, failing: String::new() });
        note(&failing, create, Some(FaultKind::Denied));
        note(&failing, create, Some(FaultKind::Denied));
        note(&failing, instances, None);
        let CallState { works, failing: text } = failing.state();
        assert!(works && text.starts_with("CreateLoadBalancer fails since 20"), "{text}");
        assert!(text.ends_with(", 2 times: denied [Some.Code]"), "{text}");
        note(&failing, create, Some(FaultKind::Exists));
        assert_eq!(failing.state().failing, "");
    }

    #[tokio::test(start_paused = true)]
    async fn where_every_call_fails_the_cloud_does_not_serve() {
        let failing = FailingActions::default();
        for _ in 0..3 {
            assert!(failing.state().works);
            note(&failing, DESCRIBE_INSTANCES.0, Some(FaultKind::Transient));
        }
        assert!(!failing.state().works);
        note(&failing, CREATE_LOAD_BALANCER.0, None);
        assert!(failing.state().works);
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(failing.state().failing, "", "actions that are no longer called are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn one_action_that_is_denied_for_many_objects_is_named_while_the_others_work() {
        let failing = FailingActions::default();
        let deny =
            |times: usize| (0..times).for_each(|_| note(&failing, CREATE_LOAD_BALANCER.0, Some(FaultKind::Denied)));
        deny(3);
        assert!(!failing.state().works, "nothing has worked yet");
        note(&failing, DESCRIBE_INSTANCES.0, None);
        deny(100);
        let CallState { works, failing: text } = failing.state();
        assert!(works && text.contains("103 times"), "{text}");
        tokio::time::advance(FORGOTTEN).await;
        deny(1);
        assert!(!failing.state().works, "nothing works any more");
    }
}
