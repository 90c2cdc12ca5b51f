//! An API server for tests, below kube's client: it gets each request and says what the answer is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::cluster::Cluster;
use crate::config::checked::Kubernetes;

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

/// What is answered.
pub(crate) enum Answer {
    Json(u16, Value),
    /// One line each, until the sender is gone.
    Lines(UnboundedReceiver<String>),
    /// The connection breaks.
    Broken,
    /// Nothing, for ever.
    Silence,
}

impl Answer {
    /// As the API server writes errors.
    pub(crate) fn error(code: u16, message: &str) -> Self {
        let status =
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code });
        Self::Json(code, status)
    }
}

pub(crate) fn config() -> Kubernetes {
    Kubernetes {
        kubeconfig: None,
        context: None,
        server: None,
        qps: 1000.0,
        burst: 1000,
        timeout: Duration::from_secs(5),
    }
}

/// A cluster whose every request is answered by `answer`.
pub(crate) fn cluster(answer: impl Fn(Asked) -> Answer + Send + Sync + 'static) -> Cluster {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let asked = Asked {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                content_type: parts
                    .headers
                    .get(http::header::CONTENT_TYPE)
                    .map(|value| value.to_str().unwrap().to_owned())
                    .unwrap_or_default(),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            };
            match answer(asked) {
                Answer::Json(code, body) => Ok(response(code, Full::new(Bytes::from(body.to_string())).boxed())),
                Answer::Lines(receiver) => Ok(response(200, lines(receiver))),
                Answer::Broken => Err("connection reset".to_owned()),
                Answer::Silence => std::future::pending().await,
            }
        }
    });
    Cluster::with_client(kube::Client::new(service, "default"), &config())
}

fn response(code: u16, body: BoxBody<Bytes, Infallible>) -> Response<BoxBody<Bytes, Infallible>> {
    Response::builder().status(code).body(body).unwrap()
}

fn lines(receiver: UnboundedReceiver<String>) -> BoxBody<Bytes, Infallible> {
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        let line = receiver.recv().await?;
        Some((Ok(Frame::data(Bytes::from(line + "\n"))), receiver))
    });
    BodyExt::boxed(StreamBody::new(frames))
}
