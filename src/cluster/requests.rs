//! One way out to the API server: paced, bounded in time, with every failure sorted once.
//!
//! kube's client has no read timeout on plain requests (watches need none), so each request here carries its own.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use parking_lot::{Mutex, RwLock};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::status::Health;
use crate::config::checked::Kubernetes;
use crate::jitter;
use crate::telemetry::metrics;

/// Why a request did not do what it was sent for.
#[derive(Clone, Debug, Error)]
pub(super) enum RequestFault {
    /// The API server answered with an error.
    #[error("{message} [HTTP {code}]")]
    Answered { code: u16, message: String },
    /// Nothing readable came back; the request may have taken effect.
    #[error("{0}")]
    Unanswered(String),
}

impl RequestFault {
    /// The HTTP status, if there was an answer.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Answered { code, .. } => Some(*code),
            Self::Unanswered(_) => None,
        }
    }
}

impl From<kube::Error> for RequestFault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code != 0 => {
                Self::Answered { code: status.code, message: shortened(&status.message).to_owned() }
            }
            kube::Error::Api(status) => Self::Unanswered(shortened(&status.message).to_owned()),
            other => Self::Unanswered(with_causes(&other)),
        }
    }
}

/// Error pages of proxies can be long; the start says enough.
fn shortened(message: &str) -> &str {
    super::events::cut(message, 512)
}

/// An error with what caused it, since the outermost text is often only "client error".
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    shortened(&text).to_owned()
}

/// Requests under way at once, watches and the lease aside: each has a connection of its own, which stays open for a while.
const LINES: usize = 32;

/// Sends requests. Cheap to clone; all clones share the pace and the connection.
#[derive(Clone)]
pub(super) struct Requests {
    shared: Arc<Shared>,
}

struct Shared {
    client: RwLock<Client>,
    pace: RwLock<Arc<Pace>>,
    /// Held by what is under way.
    lines: Semaphore,
    timeout: RwLock<Duration>,
    health: Arc<Health>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("timeout", &self.timeout()).finish_non_exhaustive()
    }
}

/// How urgent a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pacing {
    /// Waits for its turn, and for a free line.
    Shared,
    /// Not held up by others: renewing the lease must not wait behind a burst of patches.
    Immediate,
}

impl Requests {
    pub(super) fn new(client: Client, qps: f64, burst: u32, timeout: Duration, health: Arc<Health>) -> Self {
        let (pace, timeout) = (RwLock::new(Arc::new(Pace::new(qps, burst))), RwLock::new(timeout));
        let (client, lines) = (RwLock::new(client), Semaphore::new(LINES));
        Self { shared: Arc::new(Shared { client, pace, lines, timeout, health }) }
    }

    /// Longest time that a request other than a watch may take.
    pub(super) fn timeout(&self) -> Duration {
        *self.shared.timeout.read()
    }

    /// Later requests go at this pace and within this time.
    pub(super) fn reconfigure(&self, config: &Kubernetes) {
        *self.shared.timeout.write() = config.timeout;
        let fresh = Pace::new(config.qps, config.burst);
        let mut pace = self.shared.pace.write();
        if (pace.interval, pace.burst) != (fresh.interval, fresh.burst) {
            *pace = Arc::new(fresh);
        }
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.shared.health
    }

    /// Later requests use this client; those under way keep theirs.
    pub(super) fn replace_client(&self, client: Client) {
        *self.shared.client.write() = client;
    }

    pub(super) fn client(&self) -> Client {
        self.shared.client.read().clone()
    }

    /// Reads JSON.
    pub(super) async fn get(&self, path: &str) -> Result<Value, RequestFault> {
        self.send(Method::GET, path, None, self.timeout(), Pacing::Shared).await
    }

    /// Sends one request; the wait for its turn counts against `limit` too.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
        limit: Duration,
        pacing: Pacing,
    ) -> Result<Value, RequestFault> {
        let reads = method == Method::GET;
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if let Some((content_type, _)) = body {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let bytes = body.map(|(_, content)| content.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(bytes).map_err(|error| RequestFault::Unanswered(error.to_string()))?;
        let exchange = async {
            let _line = match pacing {
                Pacing::Shared => {
                    let pace = self.shared.pace.read().clone();
                    pace.turn().await;
                    Some(self.shared.lines.acquire().await)
                }
                Pacing::Immediate => None,
            };
            let client = self.client();
            let text = client.request_text(request).await?;
            serde_json::from_str(&text)
                .map_err(|error| RequestFault::Unanswered(format!("the answer is not JSON: {error}")))
        };
        let outcome = match tokio::time::timeout(limit, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(RequestFault::Unanswered(format!("no answer within {limit:?}"))),
        };
        if reads {
            count_read("get", outcome.as_ref().err());
        }
        self.shared.health.request_ended(outcome.as_ref().err());
        outcome
    }
}

/// Counts a read, or the opening of a watch.
pub(super) fn count_read(verb: &str, fault: Option<&RequestFault>) {
    match fault.map(RequestFault::code) {
        None => metrics::kubernetes_read(verb, "ok"),
        Some(None) => metrics::kubernetes_read(verb, "unanswered"),
        Some(Some(code)) => metrics::kubernetes_read(verb, &code.to_string()),
    }
}

/// What may stand in a path segment as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// One segment of a path or one value of a query, escaped.
pub(super) fn segment(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, SEGMENT)
}

/// A token bucket: `burst` requests at once, `qps` on average.
struct Pace {
    interval: Duration,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Mutex<Instant>,
}

impl Pace {
    fn new(qps: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::ZERO);
        Self { interval, burst: burst.max(1), full_at: Mutex::new(Instant::now()) }
    }

    /// Completes when one more request may go. A turn that is not waited for stays spent, which only slows down.
    async fn turn(&self) {
        let start = {
            let now = Instant::now();
            let mut full_at = self.full_at.lock();
            let filled = (*full_at).max(now) + self.interval;
            *full_at = filled;
            filled.checked_sub(self.interval * self.burst).unwrap_or(now)
        };
        tokio::time::sleep_until(start).await;
    }
}

/// Growing pauses between tries, with jitter so that many clients do not come back at the same moment.
#[derive(Debug)]
pub(super) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The next pause: between half and the whole of a doubling duration.
    pub(super) fn next(&mut self) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(self.longest);
        base.mul_f64(0.5 + 0.5 * jitter::share())
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_stated_rate() {
        let pace = Pace::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            pace.turn().await;
        }
        assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
        for _ in 0..10 {
            pace.turn().await;
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(950) && took <= Duration::from_millis(1100), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_fills_the_bucket_no_further_than_the_burst() {
        let pace = Pace::new(10.0, 5);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..6 {
            pace.turn().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
    }

    #[test]
    fn pauses_grow_to_their_limit() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(4));
        let taken: Vec<_> = (0..5).map(|_| pauses.next()).collect();
        assert!(taken[0] <= Duration::from_secs(1));
        assert!(taken[4] >= Duration::from_secs(2) && taken[4] <= Duration::from_secs(4), "{taken:?}");
        pauses.reset();
        assert!(pauses.next() <= Duration::from_secs(1));
    }

    #[test]
    fn names_cannot_leave_their_path_segment() {
        assert_eq!(segment("node-1.example").to_string(), "node-1.example");
        assert_eq!(segment("../a?b").to_string(), "..%2Fa%3Fb");
    }
}
