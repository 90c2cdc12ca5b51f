//! The one seam to the network: an HTTP request in, an HTTP response out.
//!
//! Everything above it (signing, credentials, rate_limiter, paging, errors) runs unchanged in tests; below it is reqwest.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use thiserror::Error;

/// Larger answers are not read to the end.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// A connection that cannot be made in this time is given up, so that the failure is known to be harmless.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Shorter than the idle time after which gateways close connections, which would cost a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections that wait for the next request: each keeps its buffers.
const IDLE_CONNECTIONS: usize = 8;

/// Sends requests. Never follows redirects and never repeats a request that may have been sent.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends one request and reads the whole answer within `timeout`.
    fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>>;
}

/// Why there is no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransportError {
    /// The request did not leave this process: repeating it is safe.
    #[error("no connection: {0}")]
    NotSent(String),
    /// The request may have reached the server.
    #[error("no answer: {0}")]
    Lost(String),
}

/// Extension of a request that must not pass a proxy, such as one to the metadata service.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

/// The transport cannot be set up.
#[derive(Debug, Error)]
#[error("cannot set up HTTP: {}", innermost(.0))]
pub struct SetupError(#[from] reqwest::Error);

/// The real transport. Proxies come from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
#[derive(Debug)]
pub struct HttpTransport {
    proxied: reqwest::Client,
    /// Made when it is first used, which many never do.
    direct: OnceLock<reqwest::Client>,
}

impl HttpTransport {
    /// Sets up connections; makes none.
    ///
    /// # Errors
    /// If the proxy variables or the system's root certificates cannot be used.
    pub fn new() -> Result<Self, SetupError> {
        // An error only says that the process-wide provider is set already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { proxied: builder().build()?, direct: OnceLock::new() })
    }

    fn direct(&self) -> Result<&reqwest::Client, reqwest::Error> {
        match self.direct.get() {
            Some(client) => Ok(client),
            None => {
                let client = builder().no_proxy().build()?;
                Ok(self.direct.get_or_init(|| client))
            }
        }
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
}

impl Transport for HttpTransport {
    fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async move {
            let client = match request.extensions().get::<Direct>() {
                Some(Direct) => self.direct().map_err(|error| not_sent(&error))?,
                None => &self.proxied,
            };
            let mut request = reqwest::Request::try_from(request).map_err(|error| not_sent(&error))?;
            *request.timeout_mut() = Some(timeout);
            let answer = client.execute(request).await.map_err(|error| {
                if error.is_connect() || error.is_builder() || error.is_request() && never_sent(&error) {
                    not_sent(&error)
                } else {
                    lost(&error)
                }
            })?;
            read(answer).await
        })
    }
}

async fn read(answer: reqwest::Response) -> Result<Response<Bytes>, TransportError> {
    let (head, body) = Response::from(answer).into_parts();
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(TransportError::Lost(format!("the answer is larger than {BODY_LIMIT} bytes")))
        }
        Err(error) => Err(error.downcast_ref().map_or_else(|| TransportError::Lost(error.to_string()), lost)),
    }
}

/// Whether hyper says that it dropped the request unsent, as it does when a pooled connection turns out to be closed.
fn never_sent(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled))
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The innermost cause says what happened; the outer ones repeat the URL.
fn innermost(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn not_sent(error: &reqwest::Error) -> TransportError {
    TransportError::NotSent(innermost(error))
}

fn lost(error: &reqwest::Error) -> TransportError {
    TransportError::Lost(if error.is_timeout() { "the call timed out".into() } else { innermost(error) })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn post(port: u16) -> Request<Bytes> {
        let mut request = Request::post(format!("http://127.0.0.1:{port}/")).body(Bytes::from_static(b"a=1")).unwrap();
        request.extensions_mut().insert(Direct);
        request
    }

    #[tokio::test]
    async fn a_refused_connection_is_known_to_be_harmless() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let outcome = HttpTransport::new().unwrap().send(post(port), Duration::from_secs(5)).await;
        assert!(matches!(outcome, Err(TransportError::NotSent(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_connection_closed_without_an_answer_may_have_had_an_effect() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            while !buffer.windows(3).any(|window| window == b"a=1") {
                assert!(stream.read(&mut buffer).await.unwrap() > 0);
            }
        });
        let outcome = HttpTransport::new().unwrap().send(post(port), Duration::from_secs(5)).await;
        server.await.unwrap();
        assert!(matches!(outcome, Err(TransportError::Lost(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn an_endless_answer_is_cut_off_and_a_redirect_is_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let head = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
            stream.write_all(head.as_bytes()).await.unwrap();
            drop(stream);
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await.unwrap();
            while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
        });
        let transport = HttpTransport::new().unwrap();
        let moved = transport.send(post(port), Duration::from_secs(5)).await.unwrap();
        assert_eq!((moved.status().as_u16(), moved.body().as_ref()), (302, b"hi".as_slice()));
        let outcome = transport.send(post(port), Duration::from_secs(20)).await;
        assert!(matches!(&outcome, Err(TransportError::Lost(text)) if text.contains("larger")), "{outcome:?}");
    }
}
