//! Leadership as a value with a deadline.
//!
//! A write to the cloud or to Kubernetes takes a [`Permit`], which only a [`Fence`] issues. So no write is possible without
//! leadership, and a permit says how long a write may last before another replica can lead.

use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::suspended;

/// A write must be able to last this long before the lease could be lost, or it does not start.
pub const WRITE_TIME: Duration = Duration::from_secs(5);

/// Until when writes may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deadline {
    /// If the machine stays awake; `None` without an election.
    until: Option<Instant>,
    /// How long the machine had been suspended when the renewal was sent. A later suspension shortens the time that is left,
    /// since instants do not count it and other replicas are awake.
    suspended: Duration,
}

impl Deadline {
    /// What is left, on a machine that has been suspended for `suspended` by now.
    fn left(&self, suspended: Duration) -> Duration {
        let Some(until) = self.until else { return Duration::MAX };
        let asleep = suspended.saturating_sub(self.suspended);
        until.saturating_duration_since(Instant::now()).saturating_sub(asleep)
    }
}

/// Created once per process: the keeper extends and withdraws leadership, the fence issues permits.
pub fn fence() -> (Keeper, Fence) {
    let (sender, receiver) = watch::channel(None);
    (Keeper { sender }, Fence { receiver })
}

/// The side that knows whether this process leads. Dropping it, or a clone of it, withdraws leadership.
#[derive(Clone, Debug)]
pub struct Keeper {
    sender: watch::Sender<Option<Deadline>>,
}

impl Keeper {
    /// No other replica can lead before `until`.
    pub fn lead_until(&self, until: Instant) {
        self.lead_since(suspended(), until);
    }

    /// The same, on a machine that had been suspended for `suspended` when the renewal was sent: what it sleeps from then on is
    /// time for others.
    pub fn lead_since(&self, suspended: Duration, until: Instant) {
        self.sender.send_replace(Some(Deadline { until: Some(until), suspended }));
    }

    /// There is no election: writes are always allowed.
    pub fn lead_unbounded(&self) {
        self.sender.send_replace(Some(Deadline { until: None, suspended: Duration::ZERO }));
    }

    /// This process no longer leads; no new permit is issued from now on.
    pub fn withdraw(&self) {
        self.sender.send_replace(None);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Issues permits to write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    receiver: watch::Receiver<Option<Deadline>>,
}

impl Fence {
    /// A permit for a write that ends within `longest`.
    ///
    /// # Errors
    /// [`NotLeading`] if this process does not lead, or could lose the lead before `longest` has passed.
    pub fn permit(&self, longest: Duration) -> Result<Permit, NotLeading> {
        match *self.receiver.borrow() {
            Some(deadline) if longest <= deadline.left(suspended()) => Ok(Permit { deadline }),
            _ => Err(NotLeading),
        }
    }

    /// Whether this process leads now.
    pub fn leads(&self) -> bool {
        matches!(*self.receiver.borrow(), Some(deadline) if !deadline.left(suspended()).is_zero())
    }

    /// Completes when leadership is withdrawn or runs out.
    pub async fn lost(&mut self) {
        loop {
            let Some(deadline) = *self.receiver.borrow_and_update() else { return };
            let expired = async {
                match deadline.until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => if *self.receiver.borrow() == Some(deadline) { return },
                changed = self.receiver.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Completes when this process leads; never if the [`Keeper`] is gone.
    pub async fn gained(&mut self) {
        while !self.leads() {
            if self.receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Proof that a write was allowed to start, and until when it may last.
#[derive(Clone, Copy, Debug)]
pub struct Permit {
    deadline: Deadline,
}

impl Permit {
    /// How long the write may still last. Zero when it must not start any more.
    pub fn remaining(&self) -> Duration {
        self.deadline.left(suspended())
    }
}

/// This process may not write now.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("this process does not hold the lease")]
pub struct NotLeading;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn permits_end_before_the_lease_does() {
        let (keeper, fence) = fence();
        assert!(fence.permit(Duration::ZERO).is_err(), "no replica leads at first");
        keeper.lead_until(Instant::now() + Duration::from_secs(10));
        assert!(fence.permit(Duration::from_secs(10)).is_ok());
        assert!(fence.permit(Duration::from_secs(11)).is_err(), "could outlast the lease");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(fence.permit(Duration::from_secs(6)).is_err());
        keeper.withdraw();
        assert!(fence.permit(Duration::ZERO).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspension_shortens_what_is_left() {
        let ten = Duration::from_secs(10);
        let deadline = Deadline { until: Some(Instant::now() + ten), suspended: ten };
        assert_eq!(deadline.left(ten), ten, "a suspension before that does not matter");
        assert_eq!(deadline.left(ten * 2 - Duration::from_secs(3)), Duration::from_secs(3));
        assert_eq!(deadline.left(ten * 100), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_election_the_lead_has_no_end() {
        let (keeper, mut fence) = fence();
        keeper.lead_unbounded();
        tokio::time::advance(Duration::from_secs(400 * 24 * 3600)).await;
        assert!(fence.leads());
        let permit = fence.permit(Duration::from_secs(60)).unwrap();
        assert!(permit.remaining() >= Duration::from_secs(60));
        let year = Duration::from_secs(365 * 24 * 3600);
        assert!(tokio::time::timeout(year, fence.lost()).await.is_err(), "it never runs out");
        keeper.withdraw();
        fence.lost().await;
    }

    #[tokio::test(start_paused = true)]
    async fn lost_follows_renewals() {
        let (keeper, mut fence) = fence();
        keeper.lead_until(Instant::now() + Duration::from_secs(10));
        let lost = tokio::spawn(async move { fence.lost().await });
        tokio::time::sleep(Duration::from_secs(9)).await;
        keeper.lead_until(Instant::now() + Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(!lost.is_finished(), "renewed in time");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(lost.is_finished());
    }
}
