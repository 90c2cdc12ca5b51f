//! Every request to the API server: rate limited, bounded in time and size.
//!
//! kube's client has no read timeout on plain requests (watches need none) and reads bodies and lines of any size, so each
//! request here carries its own limits.

use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use parking_lot::{Mutex, RwLock};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::faults::{RequestFault, with_causes};
use super::status::ConnectionHealth;
use crate::config::checked::Kubernetes;
use crate::jitter;
use crate::telemetry::metrics;

/// Requests in flight at once, watches and the lease aside: each has a connection of its own, which stays open for a while.
const IN_FLIGHT: usize = 32;
/// Largest answer, in bytes. A list in one piece can hold all objects of a kind.
const ANSWER_BYTES: usize = 256 << 20;
/// Largest event of a watch, in bytes. etcd stores no object that is larger than a tenth of it.
const EVENT_BYTES: usize = 16 << 20;

/// Sends requests. Cheap to clone; all clones share the rate limit and the client.
#[derive(Clone)]
pub(super) struct Requests {
    shared: Arc<RequestState>,
}

struct RequestState {
    client: RwLock<Client>,
    rate_limit: RwLock<Arc<RateLimit>>,
    in_flight: Semaphore,
    timeout: RwLock<Duration>,
    health: Arc<ConnectionHealth>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("timeout", &self.timeout()).finish_non_exhaustive()
    }
}

/// A request other than a watch.
pub(super) struct Exchange<'a> {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: &'a str,
    /// Content type and content.
    pub(super) body: Option<(&'static str, &'a Value)>,
    /// Longest time, the wait for the rate limit included.
    pub(super) timeout: Duration,
    /// Whether the rate limit applies: renewing the lease must not wait behind a burst of patches.
    pub(super) rate_limited: bool,
}

impl Requests {
    pub(super) fn new(client: Client, config: &Kubernetes) -> Self {
        let shared = RequestState {
            client: RwLock::new(client),
            rate_limit: RwLock::new(Arc::new(RateLimit::new(config.qps, config.burst))),
            in_flight: Semaphore::new(IN_FLIGHT),
            timeout: RwLock::new(config.timeout),
            health: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Longest time that a request other than a watch may take.
    pub(super) fn timeout(&self) -> Duration {
        *self.shared.timeout.read()
    }

    /// Later requests use this rate limit and this timeout.
    pub(super) fn reconfigure(&self, config: &Kubernetes) {
        *self.shared.timeout.write() = config.timeout;
        let new = RateLimit::new(config.qps, config.burst);
        let mut rate_limit = self.shared.rate_limit.write();
        if (rate_limit.interval, rate_limit.burst) != (new.interval, new.burst) {
            *rate_limit = Arc::new(new);
        }
    }

    pub(super) fn health(&self) -> &Arc<ConnectionHealth> {
        &self.shared.health
    }

    /// Later requests use this client; those in flight keep theirs.
    pub(super) fn replace_client(&self, client: Client) {
        *self.shared.client.write() = client;
    }

    pub(super) fn client(&self) -> Client {
        self.shared.client.read().clone()
    }

    /// Reads JSON at a path with a query.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestFault> {
        self.send(Exchange { method: Method::GET, path, body: None, timeout: self.timeout(), rate_limited: true }).await
    }

    /// Sends one request.
    pub(super) async fn send<T: DeserializeOwned>(&self, exchange: Exchange<'_>) -> Result<T, RequestFault> {
        let Exchange { method, path, body, timeout, rate_limited } = exchange;
        let reads = method == Method::GET;
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if let Some((content_type, _)) = body {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let content = body.map(|(_, content)| content.to_string().into_bytes()).unwrap_or_default();
        let answered = within(timeout, async {
            let _in_flight = if rate_limited {
                let rate_limit = self.shared.rate_limit.read().clone();
                rate_limit.wait().await;
                Some(self.shared.in_flight.acquire().await)
            } else {
                None
            };
            let body = self.answer(request.body(Body::from(content))).await?;
            let content = read_whole(body, ANSWER_BYTES).await?;
            serde_json::from_slice(&content)
                .map_err(|error| RequestFault::Unanswered(format!("the answer is not as expected: {error}")))
        });
        let answered = answered.await;
        self.record(reads.then_some("get"), answered.as_ref().err());
        answered
    }

    /// Opens a watch; gives its lines, each an event.
    pub(super) async fn watch(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<String, String>> + use<>, RequestFault> {
        let request = Request::get(path)
            .header(header::ACCEPT, "application/json")
            // API servers since 1.37 compress each event by itself, which decoders of whole bodies do not read to the end.
            .header(header::ACCEPT_ENCODING, "identity");
        let opened = within(self.timeout(), self.answer(request.body(Body::empty()))).await;
        self.record(Some("watch"), opened.as_ref().err());
        opened.map(|body| lines(body, EVENT_BYTES))
    }

    /// The body of a successful answer.
    async fn answer(&self, request: http::Result<Request<Body>>) -> Result<Body, RequestFault> {
        let request = request.map_err(|error| RequestFault::unanswered(&error))?;
        let response = self.client().send(request).await.map_err(|error| RequestFault::unanswered(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let content = read_whole(response.into_body(), ANSWER_BYTES).await?;
        Err(RequestFault::answered(status.as_u16(), &content))
    }

    /// Counts a read, or the opening of a watch, and notes how the connection is doing.
    fn record(&self, read: Option<&str>, fault: Option<&RequestFault>) {
        if let Some(verb) = read {
            let outcome = match fault {
                None => "ok".to_owned(),
                Some(fault) => fault.code().map_or_else(|| "unanswered".to_owned(), |code| code.to_string()),
            };
            metrics::kubernetes_read(verb, &outcome);
        }
        self.shared.health.request_ended(fault);
    }
}

async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, RequestFault>>) -> Result<T, RequestFault> {
    let late = |_| Err(RequestFault::Unanswered(format!("no answer within {limit:?}")));
    timeout(limit, answer).await.unwrap_or_else(late)
}

async fn read_whole(body: Body, limit: usize) -> Result<Bytes, RequestFault> {
    let read = Limited::new(body, limit).collect().await;
    let content = read.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => RequestFault::Unanswered(format!("the answer is larger than {limit} bytes")),
        None => RequestFault::unanswered(&*error),
    });
    Ok(content?.to_bytes())
}

fn lines(body: Body, limit: usize) -> impl Stream<Item = Result<String, String>> {
    let content = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    FramedRead::new(content, LinesCodec::new_with_max_length(limit)).map_err(|error| with_causes(&error))
}

/// What may stand in a path segment as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// One segment of a path or one value of a query, escaped.
pub(super) fn segment(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, SEGMENT)
}

/// A token bucket: `burst` requests at once, `qps` on average.
struct RateLimit {
    interval: Duration,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Mutex<Instant>,
}

impl RateLimit {
    fn new(qps: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::ZERO);
        Self { interval, burst: burst.max(1), full_at: Mutex::new(Instant::now()) }
    }

    /// Completes when one more request may go. A token stays spent if the caller stops waiting.
    async fn wait(&self) {
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

/// Retries after delays that double from `first` to `longest`, with up to as much jitter, without an end.
pub(super) fn backoff(first: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(first)
        .with_max_delay(longest)
        .without_max_times()
        .with_jitter()
        .with_jitter_seed(jitter::share().to_bits())
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder as _;
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_stated_rate() {
        let rate_limit = RateLimit::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            rate_limit.wait().await;
        }
        assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
        for _ in 0..10 {
            rate_limit.wait().await;
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(950) && took <= Duration::from_millis(1100), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_fills_the_bucket_no_further_than_the_burst() {
        let rate_limit = RateLimit::new(10.0, 5);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..6 {
            rate_limit.wait().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
    }

    #[test]
    fn delays_grow_to_their_limit_and_differ() {
        let delays: Vec<_> = backoff(Duration::from_secs(1), Duration::from_secs(4)).build().take(5).collect();
        assert!(delays[0] >= Duration::from_secs(1) && delays[0] < Duration::from_secs(2), "{delays:?}");
        assert!(delays[4] >= Duration::from_secs(4) && delays[4] < Duration::from_secs(8), "{delays:?}");
        let others: Vec<_> = backoff(Duration::from_secs(1), Duration::from_secs(4)).build().take(5).collect();
        assert_ne!(delays, others);
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_an_error() {
        let content = "{\"items\": []}";
        assert_eq!(read_whole(Body::from(content.as_bytes().to_vec()), 40).await.unwrap(), content);
        let refused = read_whole(Body::from(content.repeat(4).into_bytes()), 40).await.unwrap_err();
        assert!(refused.to_string().contains("larger than 40 bytes"), "{refused}");
    }

    #[tokio::test]
    async fn a_watch_may_go_on_for_ever_but_not_one_of_its_events() {
        let read = async |content: String| {
            let lines: Vec<_> = lines(Body::from(content.into_bytes()), 30).collect().await;
            lines.into_iter().map(|line| line.is_ok()).collect::<Vec<bool>>()
        };
        let event = "{\"type\":\"ADDED\",\"object\":1}\n";
        assert_eq!(read(event.repeat(3)).await, [true, true, true], "longer than any limit together");
        let long = "{\"type\":\"ADDED\",\"object\":\"a long story without an end of the line";
        assert_eq!(read(long.to_owned()).await, [false]);
    }

    #[test]
    fn names_cannot_leave_their_path_segment() {
        assert_eq!(segment("node-1.example").to_string(), "node-1.example");
        assert_eq!(segment("../a?b").to_string(), "..%2Fa%3Fb");
    }
}
