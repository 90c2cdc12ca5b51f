//! The cloud on a TCP socket.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::{Cloud, CutShort};

/// A running server; it stops, closing every connection, when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cloud {
    /// Serves all products and the metadata service on a socket: `Version` and `Action` tell the product.
    ///
    /// # Errors
    /// The socket has no local address.
    pub fn serve(&self, listener: TcpListener) -> std::io::Result<Server> {
        let address = listener.local_addr()?;
        let cloud = self.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                        let cloud = cloud.clone();
                        connections.spawn(async move {
                            let service = service_fn(move |request| answer(cloud.clone(), request));
                            // An error here is a client that went away or a connection closed on purpose.
                            let _ = hyper::server::conn::http1::Builder::new()
                                .serve_connection(TokioIo::new(socket), service)
                                .await;
                        });
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Server { address, task })
    }

    /// As [`Self::serve`], on a free port of the loopback interface.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn serve_on_loopback(&self) -> std::io::Result<Server> {
        self.serve(TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?)
    }
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

async fn answer(cloud: Cloud, request: Request<Incoming>) -> std::io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    // The error makes hyper close the connection without an answer.
    let response = cloud.handle(Request::from_parts(head, body)).await.map_err(std::io::Error::other)?;
    let is_cut_short = response.extensions().get::<CutShort>().is_some();
    let (mut head, bytes) = response.into_parts();
    if !is_cut_short {
        return Ok(Response::from_parts(
            head,
            Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync(),
        ));
    }
    head.headers.insert(http::header::CONTENT_LENGTH, (bytes.len() * 2).into());
    let half = stream::once(async move { Ok(Frame::data(bytes)) });
    let end = stream::once(async {
        // Lets the half that is there out before the connection closes.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut short on purpose"))
    });
    Ok(Response::from_parts(head, StreamBody::new(half.chain(end)).boxed_unsync()))
}
