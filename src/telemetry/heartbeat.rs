//! Whether the runtime makes progress, for `/livez`, which is served in another thread.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time between beats.
const PERIOD: Duration = Duration::from_secs(1);
/// Without a beat for this long, the runtime hangs.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// The last beat. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat {
    last: Arc<Mutex<Option<Instant>>>,
}

impl Heartbeat {
    /// Beats. Never returns.
    pub async fn run(self) {
        loop {
            *self.last.lock() = Some(Instant::now());
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// For how long the runtime hangs, if it does; it does not before the first beat.
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        let last = *self.last.lock();
        last.map(|last| last.elapsed()).filter(|silence| *silence > LONGEST_SILENCE)
    }
}
