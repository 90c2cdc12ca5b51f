//! Lists that come in pages: all of them, or a fault. Half a list would look like things that went away.

use std::collections::HashSet;

use super::actions::Action;
use super::wire::fault;
use super::{Fault, FaultKind};

/// More pages than any account has; a list that does not end is not a list.
const MOST_PAGES: usize = 1000;

/// Why there is no complete list.
pub(super) enum Incomplete {
    /// A page could not be read.
    Fault(Fault),
    /// Pages never end.
    Endless,
    /// The list got shorter while it was read: entries may have moved to pages that were read before.
    Moved,
}

impl From<Fault> for Incomplete {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Incomplete {
    pub(super) fn into_fault(self, action: &Action) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Endless => fault(action, FaultKind::Bug, format!("the list did not end after {MOST_PAGES} pages")),
            Self::Moved => fault(action, FaultKind::Transient, "the list changed while it was read"),
        }
    }
}

/// Reads pages that name the next one. `page` is given the token, empty at first, and returns entries and the next token.
pub(super) async fn by_token<T, F>(page: impl Fn(String) -> F) -> Result<Vec<T>, Incomplete>
where
    F: Future<Output = Result<(Vec<T>, String), Fault>>,
{
    let mut all = Vec::new();
    let mut token = String::new();
    for _ in 0..MOST_PAGES {
        let (entries, next) = page(token).await?;
        all.extend(entries);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
    Err(Incomplete::Endless)
}

/// Reads numbered pages of `size` entries. `page` is given the number, 1 at first, and returns entries and the total.
pub(super) async fn by_number<T, F>(size: usize, page: impl Fn(usize) -> F) -> Result<Vec<T>, Incomplete>
where
    F: Future<Output = Result<(Vec<T>, i64), Fault>>,
{
    let mut all = Vec::new();
    for number in 1..=MOST_PAGES {
        let (entries, total) = page(number).await?;
        let short = entries.len() < size;
        let empty = entries.is_empty();
        all.extend(entries);
        let missing = usize::try_from(total).is_ok_and(|total| all.len() < total);
        match (short, missing) {
            // A short page may be followed by more where a server grants fewer entries than asked for.
            (_, true) if !empty => {}
            (_, true) => return Err(Incomplete::Moved),
            (true, false) => return Ok(all),
            (false, false) if total > 0 => return Ok(all),
            (false, false) => {}
        }
    }
    Err(Incomplete::Endless)
}

/// Each entry once: an entry that moves between pages while they are read comes twice. Entries without an id all stay.
pub(super) fn unique<T>(entries: Vec<T>, id: impl Fn(&T) -> &str) -> Vec<T> {
    let mut seen = HashSet::new();
    entries.into_iter().filter(|entry| id(entry).is_empty() || seen.insert(id(entry).to_owned())).collect()
}
