//! Answers of the API server have an end, however they are meant.
//!
//! The client reads bodies whole, and events of a watch line by line, without a limit of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use kube::client::Body as KubeBody;
use tower::{Layer, Service};

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// How large answers may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Any answer that is not a watch. A page holds 500 objects; a list in one piece can hold all.
    pub(super) whole: usize,
    /// One event of a watch. etcd stores no object that is larger than a tenth of it.
    pub(super) event: usize,
}

impl Bounds {
    pub(super) const USUAL: Self = Self { whole: 256 << 20, event: 16 << 20 };
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, bounds: *self }
    }
}

/// A service whose answers are bounded.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    bounds: Bounds,
}

impl<S, B> Service<Request<KubeBody>> for Bounded<S>
where
    S: Service<Request<KubeBody>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Fault>,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Fault>,
{
    type Response = Response<BoundedBody<B>>;
    type Error = Fault;
    type Future = BoxFuture<'static, Result<Self::Response, Fault>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<KubeBody>) -> Self::Future {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let limit = if is_watch { self.bounds.event } else { self.bounds.whole };
        let answered = self.inner.call(request);
        Box::pin(async move {
            let response = answered.await.map_err(Into::into)?;
            Ok(response.map(|body| BoundedBody { body, is_watch, limit, seen: 0 }))
        })
    }
}

/// A body that ends in an error when it, or one line of a watch, is too large.
#[derive(Debug)]
pub(super) struct BoundedBody<B> {
    body: B,
    is_watch: bool,
    limit: usize,
    /// Bytes so far; of a watch, since the last end of a line.
    seen: usize,
}

impl<B> BoundedBody<B> {
    fn count(&mut self, data: &[u8]) -> Result<(), Fault> {
        let last_line = |data: &[u8]| data.iter().rposition(|byte| *byte == b'\n').map(|at| data.len() - at - 1);
        self.seen = match last_line(data).filter(|_| self.is_watch) {
            Some(rest) => rest,
            None => self.seen.saturating_add(data.len()),
        };
        if self.seen <= self.limit {
            return Ok(());
        }
        let what = if self.is_watch { "an event of the watch" } else { "the answer" };
        Err(format!("{what} is larger than {} bytes and is not read to the end", self.limit).into())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for BoundedBody<B>
where
    B::Error: Into<Fault>,
{
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let frame = match std::task::ready!(Pin::new(&mut self.body.frame()).poll(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
        Poll::Ready(Some(counted.map(|()| frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use kube::Client;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    /// A client to a server that answers everything with the same.
    fn client(answer: &'static str) -> Client {
        let server = service_fn(move |_: Request<KubeBody>| async move {
            Ok::<_, Fault>(Response::new(Full::new(Bytes::from_static(answer.as_bytes()))))
        });
        Client::new(Bounds { whole: 40, event: 30 }.layer(server), "default")
    }

    async fn read(answer: &'static str) -> Result<String, String> {
        let request = Request::get("/api/v1/nodes").body(Vec::new()).unwrap();
        client(answer).request_text(request).await.map_err(|error| crate::cluster::requests::with_causes(&error))
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_an_error() {
        assert_eq!(read("{\"items\": []}").await, Ok("{\"items\": []}".to_owned()));
        let refused = read("{\"items\": [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}]}").await.unwrap_err();
        assert!(refused.contains("larger than 40 bytes"), "{refused}");
    }

    #[tokio::test]
    async fn a_watch_may_go_on_for_ever_but_not_one_of_its_events() {
        use futures::StreamExt as _;
        let watch = async |answer: &'static str| {
            let request = Request::get("/api/v1/nodes?watch=true").body(Vec::new()).unwrap();
            let events = client(answer).request_events::<Value>(request).await.unwrap();
            let events: Vec<Result<_, kube::Error>> = events.collect().await;
            events.into_iter().map(|event| event.is_ok()).collect::<Vec<bool>>()
        };
        let event = "{\"type\":\"ADDED\",\"object\":1}\n";
        let long = Box::leak(event.repeat(3).into_boxed_str());
        assert_eq!(watch(long).await, [true, true, true], "longer than any limit together");
        let long = "{\"type\":\"ADDED\",\"object\":\"a long story without an end of the line";
        assert_eq!(watch(long).await, [false]);
    }
}
