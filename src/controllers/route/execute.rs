//! Carries out removals and creations of route entries: one call at a time, as the VPC allows no two at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use crate::alibaba::vpc::{ItemFault, Vpc};
use crate::alibaba::{Fault, FaultKind};
use crate::fence::Fence;
use crate::plan::route::entry::RouteItem;

/// Longest time that one call is planned for; the client cuts it off when its permit ends.
const LONGEST: Duration = Duration::from_secs(5);
/// How often a batch that is refused as a whole may be split, to find the item that spoils it.
const SPLITS: usize = 12;

/// The fate of the items of one kind of write, by index.
#[derive(Debug, Default)]
pub(super) struct Fates {
    /// Accepted by the cloud.
    pub done: Vec<usize>,
    /// Refused, and why.
    pub failed: BTreeMap<usize, ItemTrouble>,
    /// Not tried, or their fate is unknown: look again. The wait is the cloud's wish.
    pub unknown: Vec<usize>,
    /// How long to wait before the next try, if the cloud said so.
    pub wait: Option<Duration>,
}

/// Why one item failed.
#[derive(Clone, Debug)]
pub(super) struct ItemTrouble {
    pub kind: FaultKind,
    pub message: String,
}

/// Makes entries.
pub(super) async fn create(vpc: &Vpc, fence: &Fence, items: &[RouteItem], batch_size: usize) -> Fates {
    batched(items, batch_size, |batch| async move {
        let permit = fence.permit(LONGEST).map_err(|_| not_leading())?;
        vpc.create_route_entries(&permit, &batch).await
    })
    .await
}

/// Removes entries.
pub(super) async fn delete(vpc: &Vpc, fence: &Fence, items: &[RouteItem], batch_size: usize) -> Fates {
    batched(items, batch_size, |batch| async move {
        let permit = fence.permit(LONGEST).map_err(|_| not_leading())?;
        vpc.delete_route_entries(&permit, &batch).await
    })
    .await
}

fn not_leading() -> Fault {
    Fault {
        kind: FaultKind::NotLeading,
        action: "write routes",
        code: String::new(),
        message: "this process does not hold the lease".to_owned(),
        request_id: String::new(),
        retry_after: None,
    }
}

/// What a fault of a whole call says about its items.
enum Reach {
    /// Nothing, or not yet: stop writing and look again.
    Undecided,
    /// One of them may be to blame.
    Some,
    /// All of them.
    All,
}

const fn reach(kind: FaultKind) -> Reach {
    match kind {
        FaultKind::Throttled
        | FaultKind::Busy
        | FaultKind::Transient
        | FaultKind::Ambiguous
        | FaultKind::NotLeading
        | FaultKind::InUse => Reach::Undecided,
        FaultKind::Rejected | FaultKind::Gone | FaultKind::Exists | FaultKind::Bug | FaultKind::Quota => Reach::Some,
        FaultKind::Denied | FaultKind::Credential | FaultKind::Capacity => Reach::All,
    }
}

async fn batched<F, R>(items: &[RouteItem], batch_size: usize, send: F) -> Fates
where
    F: Fn(Vec<RouteItem>) -> R,
    R: Future<Output = Result<Vec<ItemFault>, Fault>>,
{
    let size = batch_size.clamp(1, 50);
    let mut fates = Fates::default();
    let mut batches: Vec<std::ops::Range<usize>> =
        (0..items.len()).step_by(size).map(|start| start..items.len().min(start + size)).rev().collect();
    let mut splits = SPLITS;
    while let Some(batch) = batches.pop() {
        match send(items[batch.clone()].to_vec()).await {
            Ok(faults) => {
                let failed = faults.into_iter().map(|fault| {
                    let trouble =
                        ItemTrouble { kind: fault.kind, message: format!("{} [{}]", fault.message, fault.code) };
                    (batch.start + fault.index, trouble)
                });
                let failed: BTreeMap<usize, ItemTrouble> = failed.collect();
                fates.done.extend(batch.filter(|index| !failed.contains_key(index)));
                fates.failed.extend(failed);
            }
            Err(fault) => match reach(fault.kind) {
                Reach::Undecided => {
                    fates.unknown.extend(batch.chain(batches.drain(..).flatten()));
                    fates.wait = fault.retry_after;
                }
                Reach::Some if batch.len() > 1 && splits > 0 => {
                    splits -= 1;
                    let middle = batch.start + batch.len() / 2;
                    batches.extend([middle..batch.end, batch.start..middle]);
                }
                Reach::Some | Reach::All => {
                    let trouble = ItemTrouble { kind: fault.kind, message: fault.to_string() };
                    fates.failed.extend(batch.map(|index| (index, trouble.clone())));
                }
            },
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

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

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, retry_after: Some(Duration::from_secs(7)), ..not_leading() }
    }

    #[tokio::test]
    async fn batches_are_bounded_and_failures_are_per_item() {
        let sizes = Mutex::new(Vec::new());
        let fates = batched(&items(120), 200, |batch| {
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
        assert_eq!(fates.failed.keys().copied().collect::<Vec<_>>(), [70]);
        assert_eq!(fates.done.len(), 119);
    }

    #[tokio::test]
    async fn an_item_that_spoils_its_batch_is_isolated() {
        let fates = batched(&items(50), 50, |batch| async move {
            let spoilt = batch.iter().any(|item| item.instance_id == "i-13");
            if spoilt { Err(fault(FaultKind::Rejected)) } else { Ok(Vec::new()) }
        })
        .await;
        assert_eq!((fates.done.len(), fates.failed.keys().copied().collect::<Vec<_>>()), (49, vec![13]));
    }

    #[tokio::test]
    async fn after_trouble_nothing_more_is_sent() {
        for kind in [FaultKind::Busy, FaultKind::Throttled, FaultKind::Ambiguous, FaultKind::NotLeading] {
            let calls = Mutex::new(0);
            let fates = batched(&items(100), 50, |_| {
                *calls.lock() += 1;
                async move { Err(fault(kind)) }
            })
            .await;
            assert_eq!((*calls.lock(), fates.unknown.len(), fates.failed.len()), (1, 100, 0), "{kind:?}");
            assert_eq!(fates.wait, Some(Duration::from_secs(7)));
        }
    }
}
