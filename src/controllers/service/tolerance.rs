//! Reads that fail by themselves.

use crate::alibaba::{Fault, FaultKind};

/// Whether a read failed that says nothing about others: its action is out of order or forbidden.
pub(super) fn fails_alone(fault: &Fault) -> bool {
    match fault.kind {
        FaultKind::Denied | FaultKind::Rejected => true,
        // Without an answer, others would be waited for as well.
        FaultKind::Transient | FaultKind::Bug => !fault.code.is_empty() || !fault.request_id.is_empty(),
        _ => false,
    }
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
