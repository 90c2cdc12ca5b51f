//! Health, metrics and the running configuration over HTTP.
//!
//! Nothing that is served here is secret, but it tells about the cluster: it listens on loopback unless told otherwise.
//! Slow and many clients are kept from mattering by a bound on connections and on the time for a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::health::Health;
use super::metrics;

/// Connections at once; further ones wait.
const CONNECTIONS: usize = 32;
/// Longest time that a connection may take to send its request, or to be used at all.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// What the server shows.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// `/readyz`
    pub health: Health,
    /// `/configz`: JSON, free of secrets.
    pub configz: Arc<RwLock<String>>,
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, pages: Pages, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = async {
                let slot = slots.clone().acquire_owned().await;
                (slot, listener.accept().await)
            } => accepted,
        };
        let (slot, (stream, _)) = match accepted {
            (Ok(slot), Ok(accepted)) => (slot, accepted),
            (_, Err(error)) => {
                debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            (Err(_), _) => return,
        };
        let (pages, stop) = (pages.clone(), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = respond(&pages, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = stop.cancelled() => {}
                ended = tokio::time::timeout(CONNECTION_TIMEOUT, connection) => {
                    if let Ok(Err(error)) = ended {
                        debug!(%error, "a connection ended early");
                    }
                }
            }
            drop(slot);
        });
    }
}

fn respond<B>(pages: &Pages, request: &Request<B>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET is served here\n".to_owned());
    }
    match request.uri().path() {
        "/healthz" | "/livez" | "/healthz/default" => answer(StatusCode::OK, "text/plain", "ok".to_owned()),
        "/readyz" => {
            let (ready, text) = pages.health.report();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            answer(status, "text/plain; charset=utf-8", text)
        }
        "/metrics" => answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::render()),
        "/configz" => answer(StatusCode::OK, "application/json", pages.configz.read().clone()),
        _ => answer(
            StatusCode::NOT_FOUND,
            "text/plain",
            "served here: /healthz /livez /readyz /metrics /configz\n".to_owned(),
        ),
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(pages: &Pages, method: Method, path: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let response = respond(pages, &request);
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_is_not_ready() {
        let pages = Pages::default();
        pages.health.not_ready("kubernetes", "connection refused");
        assert_eq!(get(&pages, Method::GET, "/livez").await, (StatusCode::OK, "ok".to_owned()));
        let (status, text) = get(&pages, Method::GET, "/readyz?verbose").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("[-]kubernetes failed: connection refused"), "{text}");
        pages.health.ready("kubernetes", "");
        assert_eq!(get(&pages, Method::GET, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn nothing_can_be_changed_and_unknown_paths_say_what_there_is() {
        let pages = Pages::default();
        assert_eq!(get(&pages, Method::POST, "/configz").await.0, StatusCode::METHOD_NOT_ALLOWED);
        let (status, text) = get(&pages, Method::GET, "/debug/pprof").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(text.contains("/metrics"), "{text}");
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_keeps_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, Pages::default(), stop.clone()));
        let _idle = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        stop.cancel();
        server.await.unwrap();
    }
}
