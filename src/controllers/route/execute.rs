//! Executes removals and creations of route entries: one call at a time, as the VPC allows no two at the same time.

use std::future::Future;
use std::ops::Range;

use crate::alibaba::vpc::{ItemFault, Vpc};
use crate::alibaba::{Blame, Fault, FaultKind};
use crate::controllers::batch::BatchFailure;
use crate::controllers::reporter::{state, trouble, trouble_of};
use crate::fence::{Fence, WRITE_TIME};
use crate::plan::route::entry::RouteItem;
use crate::telemetry::activity;
use crate::telemetry::alarms::{ObjectTrouble, SyncState, named};

/// How often a batch that is refused as a whole may be split, to find the item that spoils it.
const SPLITS: usize = 12;

/// What became of one item.
#[derive(Clone, Debug)]
pub(super) enum ItemFate {
    /// Accepted by the cloud.
    Done,
    /// Refused, and why.
    Refused { kind: FaultKind, cause: Option<String>, message: String },
    /// Not tried, or its fate is unknown.
    Unknown,
}

/// What became of the items of one kind of write, in their order.
#[derive(Debug)]
pub(super) struct WriteResult {
    pub fates: Vec<ItemFate>,
    /// The last fault that blames no item, after which nothing more was sent.
    pub fault: Option<Fault>,
}

impl WriteResult {
    /// A batch was answered: what has no fault is done.
    fn add(&mut self, batch: Range<usize>, faults: Vec<ItemFault>) {
        self.fates[batch.clone()].fill(ItemFate::Done);
        for ItemFault { index, kind, code, message } in faults {
            let cause = Some(format!("route entries: {} [{code}]", kind.as_str()));
            let message = format!("{message} [{code}]");
            self.fates[batch.start + index] = ItemFate::Refused { kind, cause, message };
        }
    }

    /// How items that are [`ItemFate::Unknown`] failed.
    pub(super) fn failure(&self) -> BatchFailure {
        self.fault.as_ref().map_or(("untried", None), |fault| (fault.kind.as_str(), fault.retry_after))
    }

    /// What is wrong with the nodes of items that are [`ItemFate::Unknown`].
    pub(super) fn trouble(&self, reason: &'static str) -> ObjectTrouble {
        let untried = || ObjectTrouble { state: SyncState::Retrying, ..trouble(reason, "the write was not tried") };
        self.fault.as_ref().map_or_else(untried, |fault| ObjectTrouble {
            state: state(passes(fault.kind)),
            ..trouble_of(reason, fault)
        })
    }
}

/// Creates entries.
pub(super) async fn create(vpc: &Vpc, fence: &Fence, items: &[RouteItem], batch_size: usize) -> WriteResult {
    batched(items, batch_size, |batch| async move {
        let permit = fence.permit(WRITE_TIME)?;
        activity::step(&described("create", &batch), vpc.create_route_entries(&permit, &batch)).await
    })
    .await
}

/// Removes entries.
pub(super) async fn delete(vpc: &Vpc, fence: &Fence, items: &[RouteItem], batch_size: usize) -> WriteResult {
    batched(items, batch_size, |batch| async move {
        let permit = fence.permit(WRITE_TIME)?;
        activity::step(&described("delete", &batch), vpc.delete_route_entries(&permit, &batch)).await
    })
    .await
}

/// Such as `create route entry 10.0.1.0/24 -> i-1`.
fn described(verb: &str, items: &[RouteItem]) -> String {
    let entries = items.iter().map(|item| format!("{} -> {}", item.destination, item.instance_id));
    let noun = if items.len() == 1 { "entry" } else { "entries" };
    format!("{verb} route {noun} {}", named(entries))
}

/// Whether it passes by itself: the next reconcile reads what is there.
pub(super) const fn passes(kind: FaultKind) -> bool {
    matches!(kind.reaction().blame, Blame::None) && !matches!(kind, FaultKind::InUse)
}

async fn batched<F, R>(items: &[RouteItem], batch_size: usize, send: F) -> WriteResult
where
    F: Fn(Vec<RouteItem>) -> R,
    R: Future<Output = Result<Vec<ItemFault>, Fault>>,
{
    let size = batch_size.clamp(1, 50);
    let mut result = WriteResult { fates: vec![ItemFate::Unknown; items.len()], fault: None };
    let mut batches: Vec<Range<usize>> =
        (0..items.len()).step_by(size).map(|start| start..items.len().min(start + size)).rev().collect();
    let mut splits = SPLITS;
    while let Some(batch) = batches.pop() {
        let fault = match send(items[batch.clone()].to_vec()).await {
            Ok(faults) => {
                result.add(batch, faults);
                continue;
            }
            Err(fault) => fault,
        };
        match fault.kind.reaction().blame {
            Blame::None => {
                result.fault = Some(fault);
                break;
            }
            Blame::One if batch.len() > 1 && splits > 0 => {
                splits -= 1;
                let middle = batch.start + batch.len() / 2;
                batches.extend([middle..batch.end, batch.start..middle]);
            }
            Blame::One | Blame::All => {
                let (kind, cause, message) = (fault.kind, fault.cause(), fault.to_string());
                let refused = ItemFate::Refused { kind, cause, message };
                result.fates[batch].fill(refused);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::fence::NotLeading;

    fn items(count: usize) -> Vec<RouteItem> {
        (0..count)
            .map(|number| RouteItem {
                table_id: "vtb-1".into(),
                destination: format!("10.0.{number}.0/24").parse().unwrap(),
                instance_id: format!("i-{number}"),
                name: String::new(),
                description: String::new(),
            })
            .collect()
    }

    fn done(result: &WriteResult) -> usize {
        result.fates.iter().filter(|fate| matches!(fate, ItemFate::Done)).count()
    }

    /// Indexes.
    fn refused(result: &WriteResult) -> Vec<usize> {
        let refused = |(_, fate): &(usize, &ItemFate)| matches!(fate, ItemFate::Refused { .. });
        result.fates.iter().enumerate().filter(refused).map(|(index, _)| index).collect()
    }

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, retry_after: Some(Duration::from_secs(7)), ..Fault::from(NotLeading) }
    }

    #[tokio::test]
    async fn batches_are_bounded_and_failures_are_per_item() {
        let sizes = Mutex::new(Vec::new());
        let result = batched(&items(120), 200, |batch| {
            sizes.lock().push(batch.len());
            async move {
                let at = batch.iter().position(|item| item.instance_id == "i-70");
                let fault =
                    |index| ItemFault { index, kind: FaultKind::Gone, code: "X".into(), message: "gone".into() };
                Ok(at.map(fault).into_iter().collect())
            }
        })
        .await;
        assert_eq!(*sizes.lock(), [50, 50, 20]);
        assert_eq!(refused(&result), [70]);
        assert_eq!(done(&result), 119);
    }

    #[tokio::test]
    async fn an_item_that_spoils_its_batch_is_isolated() {
        let result = batched(&items(50), 50, |batch| async move {
            let spoilt = batch.iter().any(|item| item.instance_id == "i-13");
            if spoilt { Err(fault(FaultKind::Rejected)) } else { Ok(Vec::new()) }
        })
        .await;
        assert_eq!((done(&result), refused(&result)), (49, vec![13]));
    }

    #[tokio::test]
    async fn after_a_fault_that_blames_no_item_nothing_more_is_sent() {
        for kind in [FaultKind::Busy, FaultKind::Throttled, FaultKind::Ambiguous, FaultKind::NotLeading] {
            let calls = Mutex::new(0);
            let result = batched(&items(100), 50, |_| {
                *calls.lock() += 1;
                async move { Err(fault(kind)) }
            })
            .await;
            assert_eq!(*calls.lock(), 1, "{kind:?}");
            assert!(result.fates.iter().all(|fate| matches!(fate, ItemFate::Unknown)), "{kind:?}");
            assert_eq!(result.failure().1, Some(Duration::from_secs(7)));
        }
    }
}
