//! Reads that fail by themselves.

use crate::alibaba::{Fault, FaultKind, Rest};

/// Whether a read failed that says nothing about others: its action is out of order or forbidden.
pub(super) fn fails_alone(fault: &Fault) -> bool {
    match fault.kind.reaction().rest {
        // Without an answer, others would be waited for as well.
        Rest::DroppedUnlessAnswered => fault.is_answered(),
        _ => matches!(fault.kind, FaultKind::Denied | FaultKind::Rejected),
    }
}

/// A list lacks what is proven to exist: what it shows is not believed, and nothing is made.
pub(super) fn stale_list(what: &str) -> Fault {
    let message = format!("the cloud's list lacks {what}; nothing is made in its place until the list shows it");
    Fault { code: "ListIsStale".to_owned(), ..Fault::new("load balancer", FaultKind::Transient, message) }
}

/// What was read; `None` if the read failed alone, which is noted.
pub(super) fn tolerate<T>(unread: &mut Vec<Fault>, read: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Err(fault) if fails_alone(&fault) => {
            unread.push(fault);
            Ok(None)
        }
        read => read.map(Some),
    }
}
