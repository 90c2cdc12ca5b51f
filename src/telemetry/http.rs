//! Health, metrics, the running configuration and the status page over HTTP.
//!
//! Nothing that is served here is secret, but it describes the cluster: the server listens on loopback by default, and can
//! require TLS and authorization. Commands on the same machine have a socket of their own ([`super::machine`]).
//!
//! No client can stop the work: the server has a thread of its own, a limit on connections and on the time for a request. A
//! new connection beyond the limit closes the oldest one, so that a probe is answered however many idle clients there are.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::auth::{Authorizer, Denial};
use super::health::Health;
use super::{machine, metrics};

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Longest time that a connection may take for TLS, and to send its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that it may be used at all.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest head of a request, in bytes.
const LARGEST_HEAD: usize = 32 * 1024;

/// What the server serves. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct StatusPages {
    /// `/readyz`, and `/livez` by its tasks.
    pub health: Health,
    /// `/configz`: JSON, free of secrets.
    pub configz: Arc<RwLock<String>>,
    /// Authorizes requests for more than the states of `/readyz`, where that is configured.
    pub authorizer: Authorizer,
    /// `/`, if there is one.
    pub home: Option<Arc<dyn HomePage>>,
}

/// Renders the page at `/`.
pub trait HomePage: fmt::Debug + Send + Sync {
    /// As it is now, from memory: no request is sent for it.
    fn render(&self) -> RenderedPage;
}

/// A page, and the policy to serve it with.
#[derive(Clone, Debug)]
pub struct RenderedPage {
    /// Its HTML.
    pub html: String,
    /// The value of `Content-Security-Policy`.
    pub policy: String,
}

/// How the server answers.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// With this, clients must use TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether everything but the states of `/readyz` needs a token.
    pub authorization: bool,
}

/// The end of a connection that is cut off, and what frees its place when it ends by itself.
type Place = (CancellationToken, DropGuard);

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, pages: StatusPages, settings: HttpSettings, stop: CancellationToken) {
    let HttpSettings { tls, authorization } = settings;
    let acceptor = tls.map(TlsAcceptor::from);
    each_connection(
        |context| listener.poll_accept(context),
        stop,
        |stream, place: Place| {
            let (pages, acceptor) = (pages.clone(), acceptor.clone());
            tokio::spawn(async move {
                let Some(acceptor) = acceptor else {
                    return answer_requests(stream, pages, authorization, place).await;
                };
                let handshake = tokio::time::timeout(HEADER_TIMEOUT, acceptor.accept(stream));
                match place.0.run_until_cancelled(handshake).await {
                    None => {}
                    Some(Ok(Ok(stream))) => answer_requests(stream, pages, authorization, place).await,
                    Some(Ok(Err(error))) => debug!(%error, "TLS handshake failed"),
                    Some(Err(_)) => debug!("TLS handshake timed out"),
                }
            });
        },
    )
    .await;
}

/// Serves commands on this machine until `stop`.
pub async fn serve_machine(listener: UnixListener, pages: StatusPages, stop: CancellationToken) {
    each_connection(
        |context| listener.poll_accept(context),
        stop,
        |stream, place| {
            if machine::is_admitted(&stream) {
                tokio::spawn(answer_requests(stream, pages.clone(), false, place));
            }
        },
    )
    .await;
}

/// Hands over each connection until `stop`, and ends the oldest where there are too many.
async fn each_connection<S, A>(
    accept: impl Fn(&mut Context<'_>) -> Poll<io::Result<(S, A)>>,
    stop: CancellationToken,
    answer: impl Fn(S, Place),
) {
    let mut open: VecDeque<CancellationToken> = VecDeque::new();
    loop {
        let stream = match stop.run_until_cancelled(poll_fn(&accept)).await {
            None => return,
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_cancelled());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.cancel();
        }
        let ending = stop.child_token();
        open.push_back(ending.clone());
        answer(stream, (ending.clone(), ending.drop_guard()));
    }
}

/// Answers requests on one connection until it ends or `ending` is cancelled. The guard is dropped at the end, which frees
/// the place of the connection.
fn answer_requests<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    pages: StatusPages,
    authorization: bool,
    (ending, end): Place,
) -> impl Future<Output = ()> + Send {
    let service = service_fn(move |request| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(respond(&pages, authorization, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    async move {
        let _end = end;
        let answered = tokio::time::timeout(CONNECTION_TIMEOUT, connection);
        if let Some(Ok(Err(error))) = ending.run_until_cancelled(answered).await {
            debug!(%error, "a connection ended early");
        }
    }
}

async fn respond<B: Body>(pages: &StatusPages, authorization: bool, request: &Request<B>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET is served here\n".to_owned());
    }
    let path = request.uri().path();
    match path {
        "/healthz" | "/livez" | "/healthz/default" => {
            return match pages.health.tasks().failure() {
                None => answer(StatusCode::OK, "text/plain", "ok".to_owned()),
                Some(failure) => answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain", failure + "\n"),
            };
        }
        "/readyz" => {
            let details = !authorization || admitted(pages, request).await.is_ok();
            let (ready, text) = pages.health.report(details);
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            return answer(status, "text/plain; charset=utf-8", text);
        }
        _ => {}
    }
    if authorization && let Err(refusal) = admitted(pages, request).await {
        return refused(&refusal, path);
    }
    if path == "/"
        && let Some(home) = &pages.home
    {
        return rendered(home.render());
    }
    match path {
        "/metrics" => answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::render()),
        "/configz" => answer(StatusCode::OK, "application/json", pages.configz.read().clone()),
        "/debug/objects" => answer(StatusCode::OK, "application/json", pages.health.objects()),
        _ => answer(
            StatusCode::NOT_FOUND,
            "text/plain",
            "served here: / /healthz /livez /readyz /metrics /configz /debug/objects\n".to_owned(),
        ),
    }
}

fn rendered(RenderedPage { html, policy }: RenderedPage) -> Response<Full<Bytes>> {
    let mut response = answer(StatusCode::OK, "text/html; charset=utf-8", html);
    if let Ok(policy) = header::HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Whether the request has a token whose owner may get the page.
async fn admitted<B>(pages: &StatusPages, request: &Request<B>) -> Result<(), Denial> {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    pages.authorizer.admit(header, request.uri().path()).await
}

fn refused(refusal: &Denial, path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match refusal {
        Denial::Unauthorized => (
            StatusCode::UNAUTHORIZED,
            "a bearer token is needed that the API server knows (server.authorization is on)".to_owned(),
        ),
        Denial::Forbidden(user) => (
            StatusCode::FORBIDDEN,
            format!(
                "{user} may not get {path}: a ClusterRole with nonResourceURLs [\"{path}\"] and verbs [get] grants it"
            ),
        ),
        Denial::Busy => (StatusCode::TOO_MANY_REQUESTS, "too many unknown tokens at once; try again".to_owned()),
        Denial::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("the token cannot be reviewed: {why}")),
    };
    let mut response = answer(status, "text/plain; charset=utf-8", text + "\n");
    if *refusal == Denial::Unauthorized {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        if path == "/" {
            // A browser asks its user then.
            let basic = header::HeaderValue::from_static("Basic realm=\"alicloud-ccm: the password is a token\"");
            response.headers_mut().append(header::WWW_AUTHENTICATE, basic);
        }
    }
    response
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

    async fn get(pages: &StatusPages, method: Method, path: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(String::new()).unwrap();
        let response = respond(pages, false, &request).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// `/livez` is answered although so many clients connected before and send nothing.
    async fn livez_beside_idle_clients(count: usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, StatusPages::default(), HttpSettings::default(), stop.clone()));
        let mut idle = Vec::new();
        for _ in 0..count {
            idle.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn alive_is_not_ready() {
        let pages = StatusPages::default();
        pages.health.not_ready("kubernetes", "connection refused");
        assert_eq!(get(&pages, Method::GET, "/livez").await, (StatusCode::OK, "ok".to_owned()));
        let (status, text) = get(&pages, Method::GET, "/readyz?verbose").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("[-]kubernetes failed: connection refused"), "{text}");
        pages.health.ready("kubernetes", "");
        assert_eq!(get(&pages, Method::GET, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_whose_task_ends_again_and_again_is_not_alive() {
        let pages = StatusPages::default();
        pages.health.ready("leader", "");
        let _task = pages.health.tasks().supervise("test-http", &CancellationToken::new(), || async {});
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(get(&pages, Method::GET, "/livez").await.0, StatusCode::OK);
        let (status, text) = get(&pages, Method::GET, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("[-]task test-http failed: ended abnormally once"), "{text}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (status, text) = get(&pages, Method::GET, "/livez").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.starts_with("the task test-http ended abnormally"), "{text}");
    }

    #[tokio::test]
    async fn nothing_can_be_changed_and_unknown_paths_say_what_there_is() {
        let pages = StatusPages::default();
        assert_eq!(get(&pages, Method::POST, "/configz").await.0, StatusCode::METHOD_NOT_ALLOWED);
        let (status, text) = get(&pages, Method::GET, "/debug/pprof").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(text.contains("/metrics"), "{text}");
    }

    #[tokio::test]
    async fn an_idle_client_blocks_no_other() {
        livez_beside_idle_clients(1).await;
    }

    #[tokio::test]
    async fn with_authorization_only_health_needs_no_token() {
        let pages = StatusPages::default();
        pages.health.ready("cloud", "i-1 is there");
        let ask = async |path: &str| {
            let request = Request::get(path).body(String::new()).unwrap();
            respond(&pages, true, &request).await
        };
        let get = async |path: &str| ask(path).await.status();
        for path in ["/livez", "/healthz", "/readyz", "/readyz?verbose"] {
            assert_eq!(get(path).await, StatusCode::OK, "{path}");
        }
        for path in ["/metrics", "/configz", "/debug/objects", "/debug/pprof", "/"] {
            assert_eq!(get(path).await, StatusCode::UNAUTHORIZED, "{path}");
        }
        let body = ask("/readyz").await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "[+]cloud ok\nreadyz check passed\n", "states, and nothing of what they are about");
    }

    #[tokio::test]
    async fn more_idle_clients_than_connections_block_no_other() {
        livez_beside_idle_clients(3 * CONNECTIONS).await;
    }
}
