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
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};
use uuid::Uuid;

use super::actions::Action;
use super::answer::{Fields, Mismatch};
use super::errors::{self, DRY_RUN_PASSED};
use super::fault::{Fault, FaultKind};
use super::rate_limit::{Limited, Priority, QuotaShare, RateLimiter, Ticket};
use super::signing::Params;
use super::transport::{Transport, TransportError};
use crate::clock;
use crate::config::checked::AccessKey;
use crate::fence::Permit;
use crate::telemetry::activity::{self, EndedCall};
use crate::telemetry::metrics;

const CLOCK_IS_WRONG: &str = "InvalidTimeStamp.Expired";
const NONCE_IS_TAKEN: &str = "SignatureNonceUsed";
/// With the same value of this parameter, a write is carried out once.
const CLIENT_TOKEN: &str = "ClientToken";

/// Names the request, in the body of an answer.
const BODY_REQUEST_ID: &str = "RequestId";
/// Names the request where the body does not.
const REQUEST_ID: &str = "x-acs-request-id";

/// What all calls of a process share, whatever its configuration.
#[derive(Debug)]
pub(super) struct RpcClient {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) rate_limiter: RateLimiter,
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
    pub(super) key: Option<&'a AccessKey>,
    pub(super) permit: Option<&'a Permit>,
    pub(super) priority: &'a Priority,
    /// When it is cancelled, no call waits any longer.
    pub(super) stop: &'a CancellationToken,
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
        let mismatch = |why| self.unusable(format!("the answer does not have the expected form: {why}"));
        decode(Fields::from(&self.body)).map_err(mismatch)
    }

    /// The request's id, for support tickets.
    pub(super) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The answer is well-formed, but not an answer to what was asked. The next one may be.
    pub(super) fn unusable(&self, message: impl Into<String>) -> Fault {
        let fault = Fault::new(self.action.name, self.action.unknown_fate(), message);
        Fault { request_id: self.request_id.clone(), ..fault }
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
    pub(super) fn new(transport: Arc<dyn Transport>, rate_limiter: RateLimiter) -> Self {
        Self { transport, rate_limiter, clock_offset: AtomicI64::new(0) }
    }

    /// The time as the server sees it, as far as it is known.
    pub(super) fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_secs(self.clock_offset.load(Ordering::Relaxed));
        let now = clock::now();
        now.checked_add(offset).unwrap_or(now)
    }

    /// Makes the call. Every log line of an attempt carries the action, and the request id once there is an answer.
    pub(super) async fn call(&self, call: &RpcCall<'_>) -> Result<RpcAnswer, Fault> {
        let (mut clock_corrected, mut nonce_replaced, mut throttled) = (false, false, None);
        // The nonce is new in each attempt, so the request of a taken one has arrived before, and may have been carried out.
        let may_be_repeated = !call.action.writes || call.params.get(CLIENT_TOKEN).is_some();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let span = tracing::error_span!("cloud_call", action = call.action.name, request_id = field::Empty);
            let Failure { fault, server_time } = match self.attempt(call, attempt).instrument(span.clone()).await {
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
                let offset = server_time.duration_since(clock::now()).as_secs();
                span.in_scope(|| {
                    tracing::warn!(
                        code = "ACCM0742",
                        seconds = offset,
                        "the clock of this machine is wrong; calls use the cloud's time"
                    );
                });
                self.clock_offset.store(offset, Ordering::Relaxed);
                clock_corrected = true;
            } else if code.eq_ignore_ascii_case(NONCE_IS_TAKEN) && may_be_repeated && !nonce_replaced {
                nonce_replaced = true;
            } else {
                return Err(*fault);
            }
        }
    }

    async fn attempt(&self, call: &RpcCall<'_>, number: u32) -> Result<RpcAnswer, Failure> {
        let (action, called) = (call.action, Instant::now());
        let (timeout, turn) = self.turn(call).await?;
        let request = self.request(call)?;
        let (started, waited) = (Instant::now(), called.elapsed());
        let sent = tokio::time::timeout(timeout, self.transport.send(request, timeout)).await;
        let (result, status) = match sent {
            Ok(Ok(response)) => (interpret(action, &response), Some(response.status())),
            Ok(Err(error)) => (Err(without_answer(action, &error).into()), None),
            Err(_) => {
                let text = format!("the call timed out after {:.1} s", timeout.as_secs_f64());
                (Err(without_answer(action, &TransportError::Lost(text)).into()), None)
            }
        };
        note(call, &result, &EndedAttempt { number, waited, took: started.elapsed(), status });
        match &result {
            Err(Failure { fault, .. }) if fault.kind == FaultKind::Throttled => {
                let pause = turn.throttled(call.priority, fault.retry_after);
                tracing::debug!(milliseconds = pause.as_millis(), "the cloud throttles the action; it pauses");
            }
            Err(Failure { fault, .. }) if fault.code.is_empty() => {}
            _ => turn.passed(),
        }
        result
    }

    /// Waits until the call may go out, and gives the time that it may take.
    async fn turn(&self, call: &RpcCall<'_>) -> Result<(Duration, Ticket), Fault> {
        let RpcCall { action, settings, .. } = *call;
        let ended = |message: &str| Fault::new(action.name, FaultKind::NotLeading, message);
        let remaining = || match call.permit.map(Permit::remaining) {
            Some(Duration::ZERO) => Err(ended("this process may not write any more; nothing was sent")),
            remaining => Ok(remaining),
        };
        // The other half of the permit is for the call itself.
        let patience = remaining()?.map_or(Duration::MAX, |remaining| remaining / 2);
        let turn = self.rate_limiter.wait(action, &settings.quota, call.priority, patience);
        let turn =
            call.stop.run_until_cancelled(turn).await.ok_or_else(|| ended("this process stops; nothing was sent"))?;
        let turn = turn.map_err(|Limited { by_cloud, wait }| {
            let own = "the own share of the API quota is used up";
            let message = if by_cloud { "the cloud throttles this action" } else { own };
            Fault { retry_after: Some(wait), ..Fault::new(action.name, FaultKind::Throttled, message) }
        })?;
        Ok((remaining()?.map_or(settings.timeout, |remaining| remaining.min(settings.timeout)), turn))
    }

    fn request(&self, call: &RpcCall<'_>) -> Result<Request<Bytes>, Fault> {
        let RpcCall { action, key, .. } = *call;
        let params = call
            .params
            .clone()
            .with("Action", action.name)
            .with("Version", action.product.version())
            .with("Format", "JSON")
            .with("Timestamp", clock::seconds(self.now()));
        let body = match key {
            None => params.canonical(),
            Some(AccessKey { id, secret, token }) => params
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

/// An attempt that was sent.
struct EndedAttempt {
    /// From 1.
    number: u32,
    /// For the rate limit.
    waited: Duration,
    took: Duration,
    status: Option<StatusCode>,
}

/// Counts an attempt, logs it, and keeps it among what was done last.
fn note(call: &RpcCall<'_>, result: &Result<RpcAnswer, Failure>, attempt: &EndedAttempt) {
    let (action, took) = (call.action, attempt.took);
    let (outcome, code, request_id) = match result {
        Ok(answer) => ("ok", "", answer.request_id.as_str()),
        Err(Failure { fault, .. }) => (fault.kind.as_str(), fault.code.as_str(), fault.request_id.as_str()),
    };
    metrics::cloud_call(action.name, outcome, took);
    let coded = (!code.is_empty()).then(|| format!("{outcome} [{code}]"));
    let shown = coded.as_deref().unwrap_or(outcome);
    let ended = EndedCall { call: action.name, writes: action.writes, outcome: shown, request_id, took };
    activity::ended(ended, || {
        let waited = u64::try_from(attempt.waited.as_millis()).unwrap_or(u64::MAX);
        let known = [
            ("cloud.region", call.params.get("RegionId").unwrap_or_default().into()),
            ("url.full", call.url.into()),
            ("alibaba_cloud.attempt", attempt.number.into()),
            ("alibaba_cloud.outcome", outcome.into()),
            ("alicloud_ccm.waited_ms", waited.into()),
        ];
        let status = attempt.status.map(|status| ("http.response.status_code", status.as_u16().into()));
        let code = (!code.is_empty()).then(|| ("alibaba_cloud.error_code", code.into()));
        known.into_iter().chain(status).chain(code).collect()
    });
    Span::current().record("request_id", request_id);
    tracing::debug!(outcome, milliseconds = took.as_millis(), "cloud call");
}

fn without_answer(action: &Action, error: &TransportError) -> Fault {
    let kind = match error {
        TransportError::Lost(_) => action.unknown_fate(),
        TransportError::NotSent(_) => FaultKind::Transient,
    };
    Fault::new(action.name, kind, error.to_string())
}

fn interpret(action: &'static Action, response: &Response<Bytes>) -> Result<RpcAnswer, Failure> {
    let status = response.status();
    let body: Option<Map<String, Value>> = serde_json::from_slice(response.body()).ok();
    let fields = body.as_ref().map(Fields::from).unwrap_or_default();
    let text = |name: &str| fields.some_text(name);
    // The header is there even when the body cannot be read.
    let header = || Some(response.headers().get(REQUEST_ID)?.to_str().ok()?.to_owned());
    let request_id = text(BODY_REQUEST_ID).or_else(header).unwrap_or_default();
    let code = text("Code").unwrap_or_default().trim().to_owned();
    let dry_run_passed = !status.is_success() && code.eq_ignore_ascii_case(DRY_RUN_PASSED);
    if status.is_success() || dry_run_passed {
        let Some(body) = body else {
            let message = foreign_answer(status, response.body());
            return Err(Fault { request_id, ..Fault::new(action.name, action.unknown_fate(), message) }.into());
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
