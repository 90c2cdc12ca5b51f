//! A watched value whose waiters wake in the order in which they began to wait. The order in which tokio's `watch` channel
//! wakes its receivers is unspecified, so that a test on a paused clock would not be repeatable.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The side that changes the value.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// The side that waits.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<Versioned<T>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Versioned<T> {
    value: T,
    version: u64,
    closed: bool,
}

/// Nobody can change the value any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl<T: Copy> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        let state = Mutex::new(Versioned { value, version: 0, closed: false });
        Self(Arc::new(Shared { state, changed: Notify::new() }))
    }

    pub(crate) fn get(&self) -> T {
        self.0.state.lock().value
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        {
            let mut state = self.0.state.lock();
            change(&mut state.value);
            state.version += 1;
        }
        self.0.changed.notify_waiters();
    }

    /// A receiver that has seen the present value.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver { shared: Arc::clone(&self.0), seen: self.0.state.lock().version }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_waiters();
    }
}

impl<T: Copy> Receiver<T> {
    /// The present value, which is then seen.
    pub(crate) fn latest(&mut self) -> T {
        let state = *self.shared.state.lock();
        self.seen = state.version;
        state.value
    }

    /// Waits until there is a value that was not seen yet, which then is.
    pub(crate) async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let mut notified = std::pin::pin!(self.shared.changed.notified());
            // From here on no change is missed.
            notified.as_mut().enable();
            let Versioned { version, closed, .. } = *self.shared.state.lock();
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if closed {
                return Err(Closed);
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listeners_hear_of_changes_once_and_of_the_end() {
        let sender = Sender::new(1);
        let mut receiver = sender.subscribe();
        sender.change(|value| *value += 1);
        assert_eq!(receiver.changed().await, Ok(()));
        let waiting =
            tokio::spawn(async move { (receiver.changed().await, receiver.latest(), receiver.changed().await) });
        tokio::task::yield_now().await;
        sender.change(|value| *value += 1);
        tokio::task::yield_now().await;
        assert_eq!(sender.get(), 3);
        drop(sender);
        assert_eq!(waiting.await.unwrap(), (Ok(()), 3, Err(Closed)));
    }
}
