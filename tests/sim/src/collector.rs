//! A collector of traces: OTLP over HTTP in JSON, as the standard describes it.
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// What a collector does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Takes it.
    Takes,
    /// Answers with this status.
    Refuses(u16),
    /// Never answers.
    Hangs,
}

/// A span as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedSpan {
    /// Ids in hexadecimal.
    pub trace: String,
    /// Its own id.
    pub id: String,
    /// Empty for a root.
    pub parent: String,
    /// What was done.
    pub name: String,
    /// Nanoseconds since 1970.
    pub start: u128,
    /// Nanoseconds since 1970.
    pub end: u128,
    /// The text of an error status; empty if there is none.
    pub failure: String,
    /// Those of the span, and of its resource.
    pub attributes: BTreeMap<String, Value>,
}

impl TracedSpan {
    /// An attribute as text; empty if there is none.
    #[must_use]
    pub fn text(&self, attribute: &str) -> &str {
        self.attributes.get(attribute).and_then(Value::as_str).unwrap_or_default()
    }
}

#[derive(Debug)]
struct State {
    manner: Manner,
    spans: Vec<TracedSpan>,
    headers: Vec<HeaderMap>,
    bodies: String,
    complaints: Vec<String>,
}

/// A collector on loopback; it stops when this is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    /// Takes traces on a free port.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = State {
            manner: Manner::Takes,
            spans: Vec::new(),
            headers: Vec::new(),
            bodies: String::new(),
            complaints: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let state = shared.clone();
                let service = service_fn(move |request| answer(state.clone(), request));
                connections.spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // An error is a client that went away.
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Ok(Self { address, state, task })
    }

    /// The base URL, without the path of traces.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What becomes of requests from now on.
    pub fn set(&self, manner: Manner) {
        self.state.lock().manner = manner;
    }

    /// Every span that was taken.
    #[must_use]
    pub fn spans(&self) -> Vec<TracedSpan> {
        self.state.lock().spans.clone()
    }

    /// The headers of every request, those that were not taken included.
    #[must_use]
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.state.lock().headers.clone()
    }

    /// The bodies of all requests.
    #[must_use]
    pub fn bodies(&self) -> String {
        self.state.lock().bodies.clone()
    }

    /// What was not as the standard has it.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().complaints.clone()
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let (manner, read) = {
        let mut state = state.lock();
        let json = head.headers.get("content-type").is_some_and(|kind| kind == "application/json");
        if head.method != Method::POST || head.uri.path() != "/v1/traces" || !json {
            let complaint = format!("{} {} {:?}", head.method, head.uri, head.headers.get("content-type"));
            state.complaints.push(complaint);
        }
        state.headers.push(head.headers);
        state.bodies.push_str(&text);
        (state.manner, decode(&text))
    };
    let status = match (manner, read) {
        (Manner::Hangs, _) => std::future::pending().await,
        (Manner::Refuses(status), _) => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        (Manner::Takes, Some(spans)) => {
            state.lock().spans.extend(spans);
            StatusCode::OK
        }
        (Manner::Takes, None) => {
            state.lock().complaints.push(format!("cannot be read: {text}"));
            StatusCode::BAD_REQUEST
        }
    };
    let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
    *response.status_mut() = status;
    Ok(response)
}

/// `None` if something is not as the standard has it.
fn decode(text: &str) -> Option<Vec<TracedSpan>> {
    let body: Value = serde_json::from_str(text).ok()?;
    let mut spans = Vec::new();
    for resource in body["resourceSpans"].as_array()? {
        let common = attributes(&resource["resource"]["attributes"])?;
        for scope in resource["scopeSpans"].as_array()? {
            for span in scope["spans"].as_array()? {
                spans.push(span_of(span, &common)?);
            }
        }
    }
    Some(spans)
}

fn span_of(span: &Value, common: &BTreeMap<String, Value>) -> Option<TracedSpan> {
    let id = |name: &str, length: usize| {
        let id = span[name].as_str()?;
        let is_one = id.len() == length && id.chars().all(|digit| matches!(digit, '0'..='9' | 'a'..='f'));
        (is_one && id.chars().any(|digit| digit != '0')).then(|| id.to_owned())
    };
    let time = |name: &str| span[name].as_str()?.parse().ok();
    let parent = if span["parentSpanId"].is_null() { String::new() } else { id("parentSpanId", 16)? };
    let failed = span["status"]["code"] == 2;
    Some(TracedSpan {
        trace: id("traceId", 32)?,
        id: id("spanId", 16)?,
        parent,
        name: span["name"].as_str().filter(|name| !name.is_empty())?.to_owned(),
        start: time("startTimeUnixNano")?,
        end: time("endTimeUnixNano")?,
        failure: if failed { span["status"]["message"].as_str()?.to_owned() } else { String::new() },
        attributes: common.clone().into_iter().chain(attributes(&span["attributes"])?).collect(),
    })
}

fn attributes(list: &Value) -> Option<BTreeMap<String, Value>> {
    let one = |attribute: &Value| {
        let value = &attribute["value"];
        // A number of 64 bits is text.
        let number = || Some(value["intValue"].as_str()?.parse::<i64>().ok()?.into());
        let value = [&value["stringValue"], &value["boolValue"]].into_iter().find(|value| !value.is_null());
        Some((attribute["key"].as_str()?.to_owned(), value.cloned().or_else(number)?))
    };
    list.as_array()?.iter().map(one).collect()
}
