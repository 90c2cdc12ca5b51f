//! Listens at the seam to the network: what is recorded is what the library's clients really send.

use std::time::Duration;

use alicloud_ccm::alibaba::transport::{HttpTransport, Transport, TransportError};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use sim::cloud::trace::Exchange;

#[derive(Debug)]
pub(super) struct Recorder {
    transport: HttpTransport,
    seen: Mutex<Vec<Exchange>>,
}

impl Recorder {
    pub(super) fn new(transport: HttpTransport) -> Self {
        Self { transport, seen: Mutex::default() }
    }

    /// The calls since the last time. Those that the client repeats by itself are left out.
    pub(super) fn take(&self) -> Vec<Exchange> {
        let mut seen = std::mem::take(&mut *self.seen.lock());
        let repeated = |code: &str| code.starts_with("Throttling") || code.starts_with("InvalidTimeStamp");
        seen.retain(|it| !it.code().is_some_and(repeated));
        seen
    }
}

impl Transport for Recorder {
    fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async move {
            // Without an answer, unless there is one.
            let mut exchange = Exchange::read(&request, 0, &[]);
            let result = self.transport.send(request, timeout).await;
            if let (Some(exchange), Ok(response)) = (&mut exchange, &result) {
                exchange.status = response.status().as_u16();
                exchange.answer = serde_json::from_slice(response.body()).unwrap_or_default();
            }
            self.seen.lock().extend(exchange);
            result
        })
    }
}
