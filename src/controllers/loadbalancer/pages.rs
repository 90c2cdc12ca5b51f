//! One list instead of a read for each load balancer, where many must be read at about the same time: after a start, at a drift
//! check, and when a namespace is deleted.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::product::{Due, DueTogether};
use crate::alibaba::Fault;

/// How long a list answers, once it is complete. In a large account it takes a while, and so do the Services that wait for it.
const ANSWERS_FOR: Duration = Duration::from_secs(60);
/// How long nothing is listed after a list that failed, or was not worth its pages.
const NO_LIST_FOR: Duration = Duration::from_secs(10);
/// Entries in a page of every list.
const PAGE: usize = 100;
/// A list that also shows what belongs to others is worth one page for so many load balancers that are due.
const DUE_PER_PAGE: usize = 10;

/// The latest list of one kind of thing, by what it is asked for. It is never older than the last change of what it answers
/// for, as far as this process knows, and answers once: the next read follows writes of our own. What it does not show is read
/// by itself; if nothing can be listed, everything is, and the fault shows there.
#[derive(Debug)]
pub(super) struct Pages<T>(
    /// Locked while a list is made, so that all that need it wait for one.
    Mutex<Latest<T>>,
);

#[derive(Debug)]
struct Latest<T> {
    began: Option<Instant>,
    /// When there can be another one; `None` once the list is used up.
    until: Option<Instant>,
    /// How many calls it took.
    pages: usize,
    unused: HashMap<String, T>,
}

impl<T> Latest<T> {
    fn none(pages: usize) -> Self {
        Self { began: None, until: None, pages, unused: HashMap::new() }
    }

    /// What it shows for this key, unless that has changed since.
    fn take(&mut self, key: &str, changed_at: Option<Instant>) -> Option<T> {
        let (taken, began) = (self.unused.remove(key), self.began);
        if taken.is_some() && self.unused.is_empty() {
            *self = Self::none(self.pages);
        }
        taken.filter(|_| began > changed_at)
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self(Mutex::new(Latest::none(0)))
    }
}

impl<T> Pages<Vec<T>> {
    /// What a list of what is ours shows for this key, which is one of those that `key_of` gives.
    pub(super) async fn of_ours<F>(
        &self,
        key: &str,
        due: Due<'_>,
        list: impl FnOnce() -> F,
        key_of: impl Fn(&T) -> String,
    ) -> Option<Vec<T>>
    where
        F: Future<Output = Result<Vec<T>, Fault>>,
    {
        let DueTogether { count, changed_at } = due?;
        let mut latest = self.recent().await;
        if latest.until.is_none() {
            if count() <= latest.pages.max(1) {
                return None;
            }
            let began = Some(Instant::now());
            let found = list().await;
            let answers_for = if found.is_ok() { ANSWERS_FOR } else { NO_LIST_FOR };
            let pages = found.as_ref().map_or(latest.pages, |found| found.len().div_ceil(PAGE));
            *latest = Latest { began, until: Some(Instant::now() + answers_for), ..Latest::none(pages) };
            found.into_iter().flatten().for_each(|item| latest.unused.entry(key_of(&item)).or_default().push(item));
        }
        latest.take(key, changed_at)
    }
}

impl<T> Pages<T> {
    /// The latest list. One that can no longer answer is dropped: a new one would need the same memory again.
    async fn recent(&self) -> MutexGuard<'_, Latest<T>> {
        let mut latest = self.0.lock().await;
        if latest.until.is_some_and(|until| until <= Instant::now()) {
            *latest = Latest::none(latest.pages);
        }
        latest
    }

    /// What a list shows for this key that also shows what belongs to others. `list` gets the number of pages that it may take,
    /// and gives `None` if it takes more; then nothing is listed until it is worth another try.
    pub(super) async fn of_all<F>(&self, key: &str, due: Due<'_>, list: impl FnOnce(usize) -> F) -> Option<T>
    where
        F: Future<Output = Result<Option<HashMap<String, T>>, Fault>>,
    {
        let DueTogether { count, changed_at } = due?;
        let mut latest = self.recent().await;
        if latest.until.is_none() {
            let pages = count() / DUE_PER_PAGE;
            let began = Some(Instant::now());
            let found = if pages == 0 { None } else { list(pages).await.ok().flatten() };
            let until = Some(Instant::now() + if found.is_some() { ANSWERS_FOR } else { NO_LIST_FOR });
            *latest = Latest { began, until, pages, unused: found.unwrap_or_default() };
        }
        latest.take(key, changed_at)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::alibaba::FaultKind;

    #[tokio::test(start_paused = true)]
    async fn a_list_answers_for_a_minute_once_and_never_for_what_has_changed_since() {
        let pages: Pages<Vec<String>> = Pages::default();
        let list = || async { Ok(["a", "b", "c"].map(str::to_owned).to_vec()) };
        let shown = async |key: &str, due: usize, changed_at| {
            let due = Some(DueTogether { count: &move || due, changed_at });
            pages.of_ours(key, due, list, String::clone).await.is_some()
        };
        assert!(!shown("a", 1, None).await, "one is read by itself");
        assert!(shown("a", 3, None).await);
        assert!(!shown("a", 3, None).await, "it may have been written to");
        let changed_at = Some(Instant::now());
        assert!(!shown("b", 3, changed_at).await, "it changed after the list began");
        tokio::time::advance(ANSWERS_FOR).await;
        assert!(shown("b", 3, changed_at).await, "this list is newer");
        assert!(!shown("d", 3, None).await, "it is not in the list");
    }

    #[tokio::test(start_paused = true)]
    async fn two_lists_are_never_in_memory_at_once() {
        let (pages, shown) = (Pages::<Vec<Arc<()>>>::default(), Arc::new(()));
        for _ in 0..2 {
            let list = || async {
                assert_eq!(Arc::strong_count(&shown), 1, "an outdated list is kept");
                Ok(vec![shown.clone(), shown.clone()])
            };
            let due = Some(DueTogether { count: &|| 2, changed_at: None });
            assert!(pages.of_ours("another", due, list, |_| "one".to_owned()).await.is_none());
            tokio::time::advance(ANSWERS_FOR).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_takes_minutes_is_made_once_for_all_that_wait_for_it() {
        let (pages, lists) = (Pages::<Vec<String>>::default(), Cell::new(0));
        let list = || async {
            lists.set(lists.get() + 1);
            tokio::time::sleep(Duration::from_secs(300)).await;
            Ok((0..100).map(|number: usize| number.to_string()).collect())
        };
        for number in 0..100_usize {
            let due = Some(DueTogether { count: &|| 100, changed_at: None });
            assert!(pages.of_ours(&number.to_string(), due, list, String::clone).await.is_some());
        }
        assert_eq!(lists.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_is_not_made_again_for_each_that_waited_for_it() {
        let (pages, lists) = (Pages::<Vec<String>>::default(), Cell::new(0));
        let list = || async {
            lists.set(lists.get() + 1);
            tokio::time::sleep(Duration::from_secs(20)).await;
            Err(Fault::new("List", FaultKind::Transient, "no answer"))
        };
        for _ in 0..100 {
            let due = Some(DueTogether { count: &|| 100, changed_at: None });
            assert!(pages.of_ours("one", due, list, String::clone).await.is_none());
        }
        assert_eq!(lists.get(), 1);
    }
}
