//! Lists that come in pages: all of them, or a fault. Half a list would look like things that went away.

use std::collections::HashSet;

use super::actions::Action;
use super::rpc::fault;
use super::{Fault, FaultKind};

/// More pages than any account has; a list that does not end is not a list.
const MOST_PAGES: usize = 1000;
/// More entries than any account has.
const MOST_ENTRIES: usize = 200_000;

/// Why there is no complete list.
pub(super) enum PagingError {
    /// A page could not be read.
    Fault(Fault),
    /// Pages never end.
    Endless,
    /// The list got longer or shorter while it was read: entries may have moved to pages that were read before.
    Moved,
}

impl From<Fault> for PagingError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl PagingError {
    pub(super) fn into_fault(self, action: &Action) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Endless => fault(action, FaultKind::Bug, "the list does not end".to_owned()),
            Self::Moved => fault(action, FaultKind::Transient, "the list changed while it was read"),
        }
    }
}

/// Reads pages that name the next one. `page` is given the token, empty at first, and returns entries and the next token.
pub(super) async fn by_token<T, F>(page: impl Fn(String) -> F) -> Result<Vec<T>, PagingError>
where
    F: Future<Output = Result<(Vec<T>, String), Fault>>,
{
    let mut all = Vec::new();
    let mut token = String::new();
    for _ in 0..MOST_PAGES {
        let (entries, next) = page(token.clone()).await?;
        all.extend(entries);
        if next.is_empty() {
            return Ok(all);
        }
        // A page that names itself as the next one would be read for ever.
        if next == token || all.len() > MOST_ENTRIES {
            return Err(PagingError::Endless);
        }
        token = next;
    }
    Err(PagingError::Endless)
}

/// Reads numbered pages of `size` entries. `page` is given the number, 1 at first, and returns entries and the total.
pub(super) async fn by_number<T, F>(size: usize, page: impl Fn(usize) -> F) -> Result<Vec<T>, PagingError>
where
    F: Future<Output = Result<(Vec<T>, i64), Fault>>,
{
    let (entries, whole) = shown_by_number(size, page).await?;
    if whole { Ok(entries) } else { Err(PagingError::Moved) }
}

/// The same, but of a list that gets longer or shorter while it is read, what was read until then; and whether it is all.
pub(super) async fn shown_by_number<T, F>(size: usize, page: impl Fn(usize) -> F) -> Result<(Vec<T>, bool), PagingError>
where
    F: Future<Output = Result<(Vec<T>, i64), Fault>>,
{
    let mut all = Vec::new();
    let mut announced = None;
    for number in 1..=MOST_PAGES {
        let (entries, total) = page(number).await?;
        let (short, empty) = (entries.len() < size, entries.is_empty());
        all.extend(entries);
        if all.len() > MOST_ENTRIES {
            break;
        }
        let missing = usize::try_from(total).is_ok_and(|total| all.len() < total);
        if *announced.get_or_insert(total) != total || missing && empty {
            return Ok((all, false));
        }
        // A short page is the last one only if nothing is missing: a server may grant fewer entries than asked for.
        if !missing && (short || total > 0) {
            return Ok((all, true));
        }
    }
    Err(PagingError::Endless)
}

/// Each entry once: an entry that moves between pages while they are read comes twice. Entries without an id all stay.
pub(super) fn unique<T>(entries: Vec<T>, id: impl Fn(&T) -> &str) -> Vec<T> {
    let mut seen = HashSet::new();
    entries.into_iter().filter(|entry| id(entry).is_empty() || seen.insert(id(entry).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::actions::DESCRIBE_VSWITCHES;
    use super::*;

    /// Reads pages of two from prepared answers.
    async fn read(pages: &[(&[u32], i64)]) -> Result<Vec<u32>, FaultKind> {
        let left = RefCell::new(pages.iter());
        let page = async |_: usize| {
            let (entries, total) = left.borrow_mut().next().copied().unwrap_or_default();
            Ok((entries.to_vec(), total))
        };
        by_number(2, page).await.map_err(|error| error.into_fault(DESCRIBE_VSWITCHES.0).kind)
    }

    #[tokio::test]
    async fn numbered_pages_are_read_until_nothing_is_missing() {
        assert_eq!(read(&[(&[], 0)]).await, Ok(vec![]));
        assert_eq!(read(&[(&[1, 2], 3), (&[3], 3)]).await, Ok(vec![1, 2, 3]));
        assert_eq!(read(&[(&[1, 2], 2)]).await, Ok(vec![1, 2]), "no page beyond the announced end");
        assert_eq!(read(&[(&[1], 3), (&[2, 3], 3)]).await, Ok(vec![1, 2, 3]), "pages smaller than asked for");
        assert_eq!(read(&[(&[1, 2], 0), (&[3], 0)]).await, Ok(vec![1, 2, 3]), "a server that announces no total");
    }

    #[tokio::test]
    async fn a_list_that_does_not_end_is_no_list() {
        let asked = RefCell::new(0);
        let same = async |_: String| {
            *asked.borrow_mut() += 1;
            Ok((vec![1], "more".to_owned()))
        };
        let read = by_token(same).await.map_err(|error| error.into_fault(DESCRIBE_VSWITCHES.0).kind);
        assert_eq!((read, *asked.borrow()), (Err(FaultKind::Bug), 2));
        let next = async |token: String| Ok((vec![0; 1000], format!("{token}+")));
        let read = by_token(next).await.map_err(|error| error.into_fault(DESCRIBE_VSWITCHES.0).kind);
        assert_eq!(read, Err(FaultKind::Bug), "nor one that nothing could hold");
    }

    #[tokio::test]
    async fn a_list_that_changes_while_it_is_read_is_read_again() {
        assert_eq!(read(&[(&[1, 2], 4), (&[4], 3)]).await, Err(FaultKind::Transient), "3 moved to the page before");
        assert_eq!(read(&[(&[1, 2], 4), (&[], 4)]).await, Err(FaultKind::Transient));
        let pages = [(vec![1, 2], 4), (vec![4], 3)];
        let shown = shown_by_number(2, |number| std::future::ready(Ok(pages[number - 1].clone()))).await;
        assert_eq!(shown.ok(), Some((vec![1, 2, 4], false)), "what it showed was there");
    }
}
