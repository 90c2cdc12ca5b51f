//! One call of the vendor's RPC API: rate limit, permit, signature, answer, and what the answer means.
//!
//! A call is sent once. It is repeated only where it had no effect and the remedy is known: the clock is corrected by the
//! server's, a nonce is replaced, or a throttled call waits for a short backoff. Every other fault goes to the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{Instrument, Span, field};
use uuid::Uuid;

use super::actions::Action;
use super::answer::{Fields, Mismatch};
use super::errors::{self, DRY_RUN_PASSED};
use super::fault::{Fault, FaultKind};
use super::rate_limit::{Limited, Priority, QuotaShare, RateLimiter, RateUse};
use super::signing::{KeyPair, Params};
use super::transport::{Transport, TransportError};
use crate::fence::Permit;
use crate::telemetry::{activity, metrics};

const CLOCK_IS_WRONG: &str = "InvalidTimeStamp.Expired";
const NONCE_IS_TAKEN: &str = "SignatureNonceUsed";

/// Names the request where the body does not.
const REQUEST_ID: &str = "x-acs-request-id";

/// What all calls of a process share, whatever its configuration.
#[derive(Debug)]
pub(super) struct RpcClient {
    pub(super) transport: Arc<dyn Transport>,
    rate_limiter: RateLimiter,
    /// Seconds by which the server's clock is ahead of ours.
    clock_offset: AtomicI64,
}

/// How calls are made; changes with the configuration.
#[derive(Clone, Debug)]
pub(super) struct CallSettings {
    pub(super) user_agent: HeaderValue,
    pub(super) timeout: Duration,
    pub(super) quota: QuotaShare,
}

/// One call. Without a key it is not signed.
#[derive(Debug)]
pub(super) struct RpcCall<'a> {
    pub(super) action: &'static Action,
    pub(super) url: &'a str,
    pub(super) params: Params,
    pub(super) key: Option<&'a KeyPair>,
    pub(super) permit: Option<&'a Permit>,
    pub(super) priority: Priority,
    pub(super) settings: &'a CallSettings,
}

/// A success.
#[derive(Debug)]
pub(super) struct RpcAnswer {
    action: &'static Action,
    body: Map<String, Value>,
    request_id: String,
    /// The call was a dry run and would have succeeded.
    pub(super) dry_run_passed: bool,
}

impl RpcAnswer {
    /// The answer as the caller needs it.
    pub(super) fn decode<T>(&self, decode: impl FnOnce(Fields<'_>) -> Result<T, Mismatch>) -> Result<T, Fault> {
        let bug = |mismatch| self.bug(format!("the answer does not have the expected form: {mismatch}"));
        decode(Fields::from(&self.body)).map_err(bug)
    }

    /// The request's id, for support tickets.
    pub(super) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The answer is well-formed, but not an answer to what was asked.
    pub(super) fn bug(&self, message: impl Into<String>) -> Fault {
        Fault { request_id: self.request_id.clone(), ..Fault::new(self.action.name, FaultKind::Bug, message) }
    }
}

/// A failed attempt, with what the server says the time is.
struct Failure {
    fault: Box<Fault>,
    server_time: Option<Timestamp>,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), server_time: None }
    }
}

impl RpcClient {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, rate_limiter: RateLimiter::default(), clock_offset: AtomicI64::new(0) }
    }

    /// How much of the limits is used.
    pub(super) fn rates_in_use(&self, quota: &QuotaShare) -> Vec<RateUse> {
        self.rate_limiter.in_use(quota)
    }

    /// The time as the server sees it, as far as it is known.
    pub(super) fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_secs(self.clock_offset.load(Ordering::Relaxed));
        let now = crate::clock::now();
        now.checked_add(offset).unwrap_or(now)
    }

    /// Makes the call. Every log line of an attempt carries the action, and the request id once there is an answer.
    pub(super) async fn call(&self, call: &RpcCall<'_>) -> Result<RpcAnswer, Fault> {
        let (mut clock_corrected, mut nonce_replaced, mut throttled) = (false, false, None);
        loop {
            let span = tracing::error_span!("cloud_call", action = call.action.name, request_id = field::Empty);
            let Failure { fault, server_time } = match self.attempt(call).instrument(span.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if fault.kind == FaultKind::Throttled && !fault.held_back() {
                // The next attempt waits until the backoff is over, or returns where that takes too long.
                throttled = Some(fault);
                continue;
            }
            if let Some(throttled) = throttled.take()
                && fault.held_back()
            {
                return Err(Fault { retry_after: fault.retry_after, ..*throttled });
            }
            let code = fault.code.as_str();
            if code.eq_ignore_ascii_case(CLOCK_IS_WRONG) && !clock_corrected {
                let Some(server_time) = server_time else { return Err(*fault) };
                let offset = server_time.duration_since(crate::clock::now()).as_secs();
                span.in_scope(|| {
                    tracing::warn!(
                        code = "ACCM0742",
                        seconds = offset,
                        "the clock of this machine is wrong; calls use the cloud's time"
                    );
                });
                self.clock_offset.store(offset, Ordering::Relaxed);
                clock_corrected = true;
            } else if code.eq_ignore_ascii_case(NONCE_IS_TAKEN) && !nonce_replaced {
                nonce_replaced = true;
            } else {
                return Err(*fault);
            }
        }
    }

    async fn attempt(&self, call: &RpcCall<'_>) -> Result<RpcAnswer, Failure> {
        let action = call.action;
        let timeout = self.turn(call).await?;
        let request = self.request(call)?;
        let started = Instant::now();
        let sent = tokio::time::timeout(timeout, self.transport.send(request, timeout)).await;
        let result = match sent {
            Ok(Ok(response)) => interpret(action, &response),
            Ok(Err(error)) => Err(without_answer(action, &error).into()),
            Err(_) => {
                let text = format!("the call timed out after {:.1} s", timeout.as_secs_f64());
                Err(without_answer(action, &TransportError::Lost(text)).into())
            }
        };
        let took = started.elapsed();
        let (outcome, request_id) = match &result {
            Ok(answer) => ("ok", answer.request_id.as_str()),
            Err(failure) => (failure.fault.kind.as_str(), failure.fault.request_id.as_str()),
        };
        metrics::cloud_call(action.name, outcome, took);
        if action.writes {
            let code = result.as_ref().err().map(|failure| failure.fault.code.as_str()).filter(|code| !code.is_empty());
            let shown = code.map_or_else(|| outcome.to_owned(), |code| format!("{outcome} [{code}]"));
            activity::wrote(action.name, &shown, request_id, took);
        }
        Span::current().record("request_id", request_id);
        tracing::debug!(outcome, milliseconds = took.as_millis(), "cloud call");
        match &result {
            Err(Failure { fault, .. }) if fault.kind == FaultKind::Throttled => {
                let pause = self.rate_limiter.throttled(action, fault.retry_after);
                tracing::debug!(milliseconds = pause.as_millis(), "the cloud throttles the action; it pauses");
            }
            Err(Failure { fault, .. }) if fault.code.is_empty() => {}
            _ => self.rate_limiter.passed(action),
        }
        result
    }

    /// Waits until the call may go out, and gives the time that it may take.
    async fn turn(&self, call: &RpcCall<'_>) -> Result<Duration, Fault> {
        let RpcCall { action, settings, .. } = *call;
        let remaining = || match call.permit.map(Permit::remaining) {
            Some(Duration::ZERO) => {
                let message = "this process may not write any more; nothing was sent";
                Err(Fault::new(action.name, FaultKind::NotLeading, message))
            }
            remaining => Ok(remaining),
        };
        // The other half of the permit is for the call itself.
        let patience = remaining()?.map_or(Duration::MAX, |remaining| remaining / 2);
        self.rate_limiter.wait(action, &settings.quota, call.priority, patience).await.map_err(|limited| {
            let (message, wait) = match limited {
                Limited::OwnShare(wait) => ("the own share of the API quota is used up", wait),
                Limited::ByCloud(wait) => ("the cloud throttles this action", wait),
            };
            Fault { retry_after: Some(wait), ..Fault::new(action.name, FaultKind::Throttled, message) }
        })?;
        Ok(remaining()?.map_or(settings.timeout, |remaining| remaining.min(settings.timeout)))
    }

    fn request(&self, call: &RpcCall<'_>) -> Result<Request<Bytes>, Fault> {
        let RpcCall { action, key, .. } = *call;
        let params = call
            .params
            .clone()
            .with("Action", action.name)
            .with("Version", action.product.version())
            .with("Format", "JSON")
            .with("Timestamp", self.now().strftime("%Y-%m-%dT%H:%M:%SZ"));
        let body = match key {
            None => params.canonical(),
            Some(KeyPair { id, secret, token }) => params
                .with("AccessKeyId", id)
                .maybe("SecurityToken", token.as_ref().map(|token| token.expose().to_owned()))
                .with("SignatureMethod", "HMAC-SHA1")
                .with("SignatureVersion", "1.0")
                .with("SignatureNonce", Uuid::new_v4())
                .signed_body(secret),
        };
        Request::post(call.url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, call.settings.user_agent.clone())
            .body(Bytes::from(body))
            .map_err(|error| {
                let message = format!("{} is not a valid URL: {error}", call.url);
                Fault::new(action.name, FaultKind::Rejected, message)
            })
    }
}

fn without_answer(action: &Action, error: &TransportError) -> Fault {
    let kind = match error {
        TransportError::Lost(_) if action.writes => FaultKind::Ambiguous,
        TransportError::Lost(_) | TransportError::NotSent(_) => FaultKind::Transient,
    };
    Fault::new(action.name, kind, error.to_string())
}

fn interpret(action: &'static Action, response: &Response<Bytes>) -> Result<RpcAnswer, Failure> {
    let status = response.status();
    let body = serde_json::from_slice::<Map<String, Value>>(response.body()).ok();
    let fields = body.as_ref().map(Fields::from).unwrap_or_default();
    let text = |name: &str| fields.some_text(name);
    // The header is there even when the body cannot be read.
    let header = || Some(response.headers().get(REQUEST_ID)?.to_str().ok()?.to_owned());
    let request_id = text("RequestId").or_else(header).unwrap_or_default();
    let code = text("Code").unwrap_or_default().trim().to_owned();
    let dry_run_passed = !status.is_success() && code.eq_ignore_ascii_case(DRY_RUN_PASSED);
    if status.is_success() || dry_run_passed {
        let Some(body) = body else {
            // The server did get a write that is answered with something unreadable.
            let kind = if action.writes { FaultKind::Ambiguous } else { FaultKind::Bug };
            let message = foreign_answer(status, response.body());
            return Err(Fault { request_id, ..Fault::new(action.name, kind, message) }.into());
        };
        return Ok(RpcAnswer { action, body, request_id, dry_run_passed });
    }
    let message = text("Message").unwrap_or_default();
    let kind = errors::classify(action, status.as_u16(), &code, &message);
    let message = match (errors::without_secrets(&message), kind) {
        _ if code.is_empty() => foreign_answer(status, response.body()),
        (message, FaultKind::Denied) => {
            let detail = fields.object("AccessDeniedDetail").ok().and_then(|detail| detail.some_text("AuthAction"));
            format!("{message} (needs the permission {})", detail.unwrap_or_else(|| action.permission()))
        }
        (message, _) => message,
    };
    let retry_after = (kind == FaultKind::Throttled).then(|| quota_left(response.headers())).flatten();
    Err(Failure {
        fault: Box::new(Fault { kind, action: action.name, code, message, request_id, retry_after }),
        server_time: server_time(response.headers()),
    })
}

/// An answer that is not the vendor's, such as a proxy's page: its beginning helps to find out whose it is.
fn foreign_answer(status: StatusCode, body: &[u8]) -> String {
    const SHOWN: usize = 200;
    let start = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
    format!("HTTP status {}, answer without a code: {}", status.as_u16(), errors::without_secrets(&start))
}

pub(super) fn server_time(headers: &HeaderMap) -> Option<Timestamp> {
    let date = headers.get(DATE)?.to_str().ok()?;
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

/// How long the quota stays spent: headers such as `x-ratelimit-user: Limit:60,TimeLeft:23`.
fn quota_left(headers: &HeaderMap) -> Option<Duration> {
    ["x-ratelimit-user-api", "x-ratelimit-user"]
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|pair| pair.trim().strip_prefix("TimeLeft:")?.trim().parse().ok())
        .max()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
