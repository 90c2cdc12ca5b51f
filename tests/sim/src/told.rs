//! A value that many can wait for to change, and who are told in the order in which they began to wait: with tokio's own
//! channel for this it is left to chance, and a play on a paused clock would not be the same every time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The side that changes the value.
#[derive(Debug)]
pub(crate) struct Teller<T>(Arc<Told<T>>);

/// The side that waits.
#[derive(Debug)]
pub(crate) struct Listener<T> {
    told: Arc<Told<T>>,
    seen: u64,
}

#[derive(Debug)]
struct Told<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State<T> {
    value: T,
    version: u64,
    ended: bool,
}

/// Nobody can change the value any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

impl<T: Copy> Teller<T> {
    pub(crate) fn new(value: T) -> Self {
        let state = Mutex::new(State { value, version: 0, ended: false });
        Self(Arc::new(Told { state, changed: Notify::new() }))
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

    /// A listener that has seen the present value.
    pub(crate) fn listen(&self) -> Listener<T> {
        Listener { told: Arc::clone(&self.0), seen: self.0.state.lock().version }
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.changed.notify_waiters();
    }
}

impl<T: Copy> Listener<T> {
    /// The present value, which is then seen.
    pub(crate) fn look(&mut self) -> T {
        let state = *self.told.state.lock();
        self.seen = state.version;
        state.value
    }

    /// Waits until there is a value that was not seen yet, which then is.
    pub(crate) async fn changed(&mut self) -> Result<(), Ended> {
        loop {
            let mut notified = std::pin::pin!(self.told.changed.notified());
            // From here on no change is missed.
            notified.as_mut().enable();
            let State { version, ended, .. } = *self.told.state.lock();
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if ended {
                return Err(Ended);
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
        let teller = Teller::new(1);
        let mut listener = teller.listen();
        teller.change(|value| *value += 1);
        assert_eq!(listener.changed().await, Ok(()));
        let waiting =
            tokio::spawn(async move { (listener.changed().await, listener.look(), listener.changed().await) });
        tokio::task::yield_now().await;
        teller.change(|value| *value += 1);
        tokio::task::yield_now().await;
        assert_eq!(teller.get(), 3);
        drop(teller);
        assert_eq!(waiting.await.unwrap(), (Ok(()), 3, Err(Ended)));
    }
}
