//! Holds a request at a chosen point, so that a test can see what the others do meanwhile.

use std::time::Duration;

use tokio::sync::watch;

/// So long a test waits for the request, on the clock of its runtime.
const PATIENCE: Duration = Duration::from_secs(120);

/// When a held request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before it takes effect.
    Before,
    /// After it took effect, before the answer.
    After,
}

/// What becomes of a held request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    GoesOn,
    IsLost,
}

/// A hold on one request; dropping it lets the request go on.
#[derive(Debug)]
pub struct Held {
    arrived: watch::Receiver<bool>,
    fate: watch::Sender<Fate>,
}

impl Held {
    /// Waits until a request is being held.
    ///
    /// # Panics
    /// None comes within two minutes.
    pub async fn arrived(&mut self) {
        // The sender lives in the fault until a request took it; a cleared fault ends the wait too.
        let arrived = tokio::time::timeout(PATIENCE, self.arrived.wait_for(|arrived| *arrived)).await;
        assert!(arrived.is_ok(), "no request came that was to be held");
    }

    /// Whether a request is being held.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        *self.arrived.borrow()
    }

    /// Lets the request go on.
    pub fn release(self) {
        self.fate.send_replace(Fate::GoesOn);
    }

    /// Breaks the connection: a request that is held before its effect never has one.
    pub fn lose(self) {
        self.fate.send_replace(Fate::IsLost);
    }
}

/// The request's side of a hold.
#[derive(Debug)]
pub(crate) struct HoldPoint {
    arrived: watch::Sender<bool>,
    fate: watch::Receiver<Fate>,
}

impl HoldPoint {
    /// Waits; false if the request is lost.
    pub(crate) async fn pass(mut self) -> bool {
        self.arrived.send_replace(true);
        match self.fate.wait_for(|fate| *fate != Fate::Waits).await {
            Ok(fate) => *fate == Fate::GoesOn,
            Err(_) => true,
        }
    }
}

pub(crate) fn hold_point() -> (HoldPoint, Held) {
    let (arrived, saw) = watch::channel(false);
    let (fate, wait) = watch::channel(Fate::Waits);
    (HoldPoint { arrived, fate: wait }, Held { arrived: saw, fate })
}
