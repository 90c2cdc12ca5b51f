//! One call over the wire: budget, permit, signature, answer, and what the answer means.
//!
//! A call goes out once. It is repeated only where nothing can have happened and the cure is at hand: the clock is
//! corrected by the server's, or a nonce was taken already. Everything else goes back to the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::actions::Action;
use super::errors::{self, DRY_RUN_PASSED};
use super::rate_limit::{Priority, QuotaShare, RateLimiter};
use super::signing::{KeyPair, Params};
use super::transport::{Transport, TransportError};
use super::{Fault, FaultKind};
use crate::fence::Permit;
use crate::telemetry::metrics;

const CLOCK_IS_WRONG: &str = "InvalidTimeStamp.Expired";
const NONCE_IS_TAKEN: &str = "SignatureNonceUsed";

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
    pub(super) allowance: QuotaShare,
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
    pub(super) call_settings: &'a CallSettings,
}

/// Names the request where the body does not.
const REQUEST_ID: &str = "x-acs-request-id";

/// A success.
#[derive(Debug)]
pub(super) struct Answer {
    action: &'static Action,
    body: Value,
    request_id: String,
    /// The call was a dry run and would have succeeded.
    pub(super) dry_run_passed: bool,
}

impl Answer {
    /// The answer as the caller needs it.
    pub(super) fn decode<T: DeserializeOwned>(self) -> Result<T, Fault> {
        let Self { action, body, request_id, .. } = self;
        serde_json::from_value(body).map_err(|error| Fault {
            kind: FaultKind::Bug,
            action: action.name,
            code: String::new(),
            message: errors::without_secrets(&format!("the answer does not have the expected form: {error}")),
            request_id,
            retry_after: None,
        })
    }

    /// The answer is well-formed, but not an answer to what was asked.
    pub(super) fn bug(&self, message: impl Into<String>) -> Fault {
        Fault { request_id: self.request_id.clone(), ..fault(self.action, FaultKind::Bug, message) }
    }
}

/// A fault that has no answer behind it.
pub(super) fn fault(action: &Action, kind: FaultKind, message: impl Into<String>) -> Fault {
    Fault {
        kind,
        action: action.name,
        code: String::new(),
        message: message.into(),
        request_id: String::new(),
        retry_after: None,
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

    /// The time as the server sees it, as far as it is known.
    pub(super) fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_secs(self.clock_offset.load(Ordering::Relaxed));
        let now = crate::clock::now();
        now.checked_add(offset).unwrap_or(now)
    }

    /// Makes the call.
    pub(super) async fn exchange(&self, exchange: &RpcCall<'_>) -> Result<Answer, Fault> {
        let (mut clock_corrected, mut nonce_replaced) = (false, false);
        loop {
            let Failure { fault, server_time } = match self.attempt(exchange).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let code = fault.code.as_str();
            if code.eq_ignore_ascii_case(CLOCK_IS_WRONG) && !clock_corrected {
                let Some(server_time) = server_time else { return Err(*fault) };
                let offset = server_time.duration_since(crate::clock::now()).as_secs();
                tracing::warn!(seconds = offset, "the clock of this machine is wrong; calls use the cloud's time");
                self.clock_offset.store(offset, Ordering::Relaxed);
                clock_corrected = true;
            } else if code.eq_ignore_ascii_case(NONCE_IS_TAKEN) && !nonce_replaced {
                nonce_replaced = true;
            } else {
                return Err(*fault);
            }
        }
    }

    async fn attempt(&self, exchange: &RpcCall<'_>) -> Result<Answer, Failure> {
        let RpcCall { action, call_settings, priority, .. } = *exchange;
        if exchange.permit.is_some_and(|permit| permit.remaining().is_zero()) {
            return Err(not_leading(action).into());
        }
        // The other half of the permit is for the call itself.
        let patience = exchange.permit.map_or(Duration::MAX, |permit| permit.remaining() / 2);
        self.rate_limiter.wait(action, &call_settings.allowance, priority, patience).await.map_err(|wait| Fault {
            retry_after: Some(wait),
            ..fault(action, FaultKind::Throttled, "the share of the API quota that this process may use is spent")
        })?;
        let timeout = match exchange.permit {
            Some(permit) if permit.remaining().is_zero() => return Err(not_leading(action).into()),
            Some(permit) => permit.remaining().min(call_settings.timeout),
            None => call_settings.timeout,
        };
        let request = self.request(exchange)?;
        let started = Instant::now();
        let sent = tokio::time::timeout(timeout, self.transport.send(request, timeout)).await;
        let result = match sent {
            Ok(Ok(response)) => interpret(action, &response),
            Ok(Err(error)) => Err(without_answer(action, &error).into()),
            Err(_) => {
                let text = format!("the time for an answer ran out after {:.1} s", timeout.as_secs_f64());
                Err(without_answer(action, &TransportError::Lost(text)).into())
            }
        };
        let took = started.elapsed();
        let (outcome, request_id) = match &result {
            Ok(answer) => ("ok", answer.request_id.as_str()),
            Err(failure) => (failure.fault.kind.as_str(), failure.fault.request_id.as_str()),
        };
        metrics::cloud_call(action.name, outcome, took);
        tracing::debug!(action = action.name, outcome, request_id, milliseconds = took.as_millis(), "cloud call");
        result.map_err(|mut failure| {
            if failure.fault.kind == FaultKind::Throttled {
                failure.fault.retry_after =
                    Some(self.rate_limiter.pause(action, &call_settings.allowance, failure.fault.retry_after));
            }
            failure
        })
    }

    fn request(&self, exchange: &RpcCall<'_>) -> Result<Request<Bytes>, Fault> {
        let RpcCall { action, key, .. } = *exchange;
        let params = exchange
            .params
            .clone()
            .with("Action", action.name)
            .with("Version", action.product.version())
            .with("Format", "JSON")
            .with("Timestamp", self.now().strftime("%Y-%m-%dT%H:%M:%SZ"));
        let body = match key {
            None => params.unsigned_body(),
            Some(KeyPair { id, secret, token }) => params
                .with("AccessKeyId", id)
                .maybe("SecurityToken", token.as_ref().map(|token| token.expose().to_owned()))
                .with("SignatureMethod", "HMAC-SHA1")
                .with("SignatureVersion", "1.0")
                .with("SignatureNonce", Uuid::new_v4())
                .signed_body(secret),
        };
        Request::post(exchange.url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, exchange.call_settings.user_agent.clone())
            .body(Bytes::from(body))
            .map_err(|error| {
                fault(action, FaultKind::Rejected, format!("{} is not a usable address: {error}", exchange.url))
            })
    }
}

fn not_leading(action: &Action) -> Fault {
    fault(action, FaultKind::NotLeading, "this process may not write any more; nothing was sent")
}

fn without_answer(action: &Action, error: &TransportError) -> Fault {
    let kind = match error {
        TransportError::Lost(_) if action.writes => FaultKind::Ambiguous,
        TransportError::Lost(_) | TransportError::NotSent(_) => FaultKind::Transient,
    };
    fault(action, kind, error.to_string())
}

fn interpret(action: &'static Action, response: &Response<Bytes>) -> Result<Answer, Failure> {
    let status = response.status();
    let body = serde_json::from_slice::<Value>(response.body()).ok().filter(Value::is_object);
    let text = |name: &str| {
        let body = body.as_ref()?;
        let (_, value) = body.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        value.as_str().map(str::to_owned)
    };
    // The header is there even when the body cannot be read.
    let header = || Some(response.headers().get(REQUEST_ID)?.to_str().ok()?.to_owned());
    let request_id = text("RequestId").or_else(header).unwrap_or_default();
    if status.is_success() {
        let Some(body) = body else {
            // A write that is answered with something unreadable did reach somebody.
            let kind = if action.writes { FaultKind::Ambiguous } else { FaultKind::Bug };
            return Err(Fault { request_id, ..fault(action, kind, foreign_answer(status, response.body())) }.into());
        };
        return Ok(Answer { action, body, request_id, dry_run_passed: false });
    }
    let code = text("Code").unwrap_or_default().trim().to_owned();
    if let Some(body) = &body
        && code.eq_ignore_ascii_case(DRY_RUN_PASSED)
    {
        return Ok(Answer { action, body: body.clone(), request_id, dry_run_passed: true });
    }
    let message = text("Message").unwrap_or_default();
    let kind = errors::classify(action, status.as_u16(), &code, &message);
    let message = match (errors::without_secrets(&message), kind) {
        _ if code.is_empty() => foreign_answer(status, response.body()),
        (message, FaultKind::Denied) => {
            let detail = body.as_ref().and_then(|body| body.pointer("/AccessDeniedDetail/AuthAction")?.as_str());
            let permission = detail.filter(|text| !text.is_empty()).map_or_else(|| action.permission(), str::to_owned);
            format!("{message} (needs the permission {permission})")
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

fn server_time(headers: &HeaderMap) -> Option<Timestamp> {
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
