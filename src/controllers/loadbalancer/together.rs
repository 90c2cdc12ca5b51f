//! One call for all that ask about the same kind of thing at the same time.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::alibaba::Fault;

/// The latest answer about things of one kind, by id. Callers that ask during a call share the next one, and its fault.
#[derive(Debug)]
pub(super) struct Together<T> {
    /// Ids that the next call asks for.
    wanted: parking_lot::Mutex<BTreeSet<String>>,
    /// Locked during a call.
    latest: Mutex<Option<SharedAnswer<T>>>,
}

#[derive(Debug)]
struct SharedAnswer<T> {
    began: Instant,
    asked: BTreeSet<String>,
    found: Result<BTreeMap<String, T>, Fault>,
}

impl<T> Default for Together<T> {
    fn default() -> Self {
        Self { wanted: parking_lot::Mutex::default(), latest: Mutex::default() }
    }
}

impl<T: Clone> Together<T> {
    /// Makes a call for these ids and those of other callers, or waits for one that began later than this function. Returns
    /// everything that the call found.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn ask<F>(
        &self,
        ids: &[String],
        call: impl FnOnce(Vec<String>) -> F,
    ) -> Result<BTreeMap<String, T>, Fault>
    where
        F: Future<Output = Result<BTreeMap<String, T>, Fault>>,
    {
        let since = Instant::now();
        self.wanted.lock().extend(ids.iter().cloned());
        let mut latest = self.latest.lock().await;
        let answers = |it: &&SharedAnswer<T>| it.began >= since && ids.iter().all(|id| it.asked.contains(id));
        if let Some(answer) = latest.as_ref().filter(answers) {
            return answer.found.clone();
        }
        let mut asked = std::mem::take(&mut *self.wanted.lock());
        // A caller that was cancelled may have taken these ids without an answer.
        asked.extend(ids.iter().cloned());
        let began = Instant::now();
        let found = call(asked.iter().cloned().collect()).await;
        *latest = Some(SharedAnswer { began, asked, found: found.clone() });
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::alibaba::FaultKind;

    const CALL: Duration = Duration::from_secs(1);

    /// Asks for one thing each after so many milliseconds; gives the calls, and who got what was asked for.
    async fn ask(after: &[u64], fails: bool) -> (Vec<Vec<String>>, Vec<Result<bool, FaultKind>>) {
        let (together, calls) = (Together::default(), parking_lot::Mutex::new(Vec::new()));
        let one = async |number: usize, after: u64| {
            tokio::time::sleep(Duration::from_millis(after)).await;
            let ids = [number.to_string()];
            let found = together.ask(&ids, async |asked: Vec<String>| {
                calls.lock().push(asked.clone());
                tokio::time::sleep(CALL).await;
                if fails {
                    return Err(Fault::new("jobs", FaultKind::Transient, "no"));
                }
                Ok(asked.into_iter().map(|id| (id, ())).collect::<BTreeMap<_, _>>())
            });
            found.await.map(|found| found.contains_key(&ids[0])).map_err(|fault| fault.kind)
        };
        let asks = after.iter().enumerate().map(|(number, after)| one(number, *after));
        let got = futures::future::join_all(asks).await;
        (calls.into_inner(), got)
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_during_a_call_share_the_next_one() {
        let (calls, got) = ask(&[0, 100, 200, 300, 2500], false).await;
        assert_eq!(calls, [vec!["0"], vec!["1", "2", "3"], vec!["4"]]);
        assert_eq!(got, [Ok(true); 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_shared_so_that_none_waits_for_the_calls_of_all_others() {
        let (calls, got) = ask(&[0, 100, 200, 300], true).await;
        assert_eq!(calls.len(), 2);
        assert_eq!(got, [Err(FaultKind::Transient); 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_asks_for_itself_if_the_call_is_cut_off() {
        let together = Together::default();
        let [first, second] = ["a", "b"].map(|id| vec![id.to_owned()]);
        let hangs = together.ask(&first, |_| std::future::pending());
        let answered = together.ask(&second, async |asked: Vec<String>| {
            Ok(asked.into_iter().map(|id| (id, ())).collect::<BTreeMap<_, _>>())
        });
        let hangs = tokio::time::timeout(CALL, hangs);
        let (cut, answered) = tokio::join!(hangs, answered);
        assert!(cut.is_err());
        assert!(answered.unwrap().contains_key("b"));
    }
}
