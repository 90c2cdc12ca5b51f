//! The metadata service: what an instance can learn about itself, over a link-local address and never through a proxy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::transport::{Direct, Transport};
use crate::config::checked::Endpoints;
use crate::config::secret::Secret;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest that the service grants.
const TOKEN_LIFETIME: Duration = Duration::from_secs(21600);

/// A session token is renewed this long before it ends.
const TOKEN_MARGIN: Duration = Duration::from_secs(300);

const TOKEN_PATH: &str = "/latest/api/token";
const LIFETIME_HEADER: &str = "x-aliyun-ecs-metadata-token-ttl-seconds";
const TOKEN_HEADER: &str = "x-aliyun-ecs-metadata-token";

/// The metadata service. Cheap to clone; clones share the session token.
#[derive(Clone, Debug)]
pub struct Metadata {
    transport: Arc<dyn Transport>,
    base: String,
    without_token_allowed: bool,
    session: Arc<Mutex<Option<Session>>>,
}

#[derive(Debug)]
struct Session {
    /// `None` if the service gives no tokens but answers without one.
    token: Option<Secret>,
    until: Instant,
}

/// Why the metadata service did not say what was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MetadataError {
    /// There is no answer, as on machines outside of the cloud.
    #[error("the metadata service at {base} does not answer: {reason}")]
    Unreachable {
        /// Its address.
        base: String,
        /// What happened.
        reason: String,
    },
    /// It answers, but has no such value.
    #[error("the metadata service has no {key}")]
    Absent {
        /// Such as `region-id`.
        key: String,
    },
    /// It answers with something else.
    #[error("the metadata service answered {path} with HTTP status {status}")]
    Refused {
        /// Path of the request.
        path: String,
        /// HTTP status.
        status: u16,
    },
}

impl Metadata {
    /// Asks nothing yet.
    pub fn new(transport: Arc<dyn Transport>, endpoints: &Endpoints) -> Self {
        Self {
            transport,
            base: endpoints.metadata.clone(),
            without_token_allowed: endpoints.metadata_v1_fallback,
            session: Arc::default(),
        }
    }

    /// Whether these settings lead to the same service in the same way.
    pub(super) fn serves(&self, endpoints: &Endpoints) -> bool {
        self.base == endpoints.metadata && self.without_token_allowed == endpoints.metadata_v1_fallback
    }

    /// The value of a key below `/latest/meta-data/`, without white space around it.
    ///
    /// # Errors
    /// See [`MetadataError`].
    pub async fn get(&self, key: &str) -> Result<String, MetadataError> {
        let path = format!("/latest/meta-data/{key}");
        let mut response = self.read(&path).await?;
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            // The token was withdrawn before its time, or is needed by now.
            *self.session.lock().await = None;
            response = self.read(&path).await?;
        }
        match response.status() {
            StatusCode::OK => {
                let text = String::from_utf8_lossy(response.body()).trim().to_owned();
                if text.is_empty() { Err(MetadataError::Absent { key: key.into() }) } else { Ok(text) }
            }
            StatusCode::NOT_FOUND => Err(MetadataError::Absent { key: key.into() }),
            status => Err(MetadataError::Refused { path, status: status.as_u16() }),
        }
    }

    async fn read(&self, path: &str) -> Result<Response<Bytes>, MetadataError> {
        let token = self.token().await?;
        let headers = token.as_ref().map(|token| (TOKEN_HEADER, token.expose()));
        self.send(Method::GET, path, headers).await
    }

    /// Holding the lock while asking keeps several readers from asking for a token each.
    async fn token(&self) -> Result<Option<Secret>, MetadataError> {
        let mut session = self.session.lock().await;
        if let Some(Session { token, until }) = &*session
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let seconds = TOKEN_LIFETIME.as_secs().to_string();
        let response = self.send(Method::PUT, TOKEN_PATH, Some((LIFETIME_HEADER, &seconds))).await?;
        let text = String::from_utf8_lossy(response.body()).trim().to_owned();
        let token = match response.status() {
            StatusCode::OK if !text.is_empty() => Some(Secret::new(text)),
            _ if self.without_token_allowed => None,
            status => return Err(MetadataError::Refused { path: TOKEN_PATH.into(), status: status.as_u16() }),
        };
        *session = Some(Session { token: token.clone(), until: Instant::now() + TOKEN_LIFETIME - TOKEN_MARGIN });
        Ok(token)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        header: Option<(&str, &str)>,
    ) -> Result<Response<Bytes>, MetadataError> {
        let unreachable = |reason: String| MetadataError::Unreachable { base: self.base.clone(), reason };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base)).extension(Direct);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Bytes::new()).map_err(|error| unreachable(error.to_string()))?;
        match tokio::time::timeout(TIMEOUT, self.transport.send(request, TIMEOUT)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable(format!("no answer within {} s", TIMEOUT.as_secs()))),
        }
    }
}

#[cfg(test)]
mod tests;
