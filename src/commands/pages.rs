//! The pages of the process on this machine, for commands that run beside it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;

use crate::alibaba::transport::{Direct, Transport};
use crate::config::checked::Server;

/// How long the running process may take to answer.
const LONGEST_PAGE: Duration = Duration::from_secs(5);

/// A page of the process that runs on this machine; `None` if it serves none that can be read from here.
pub(super) async fn page(server: &Server, transport: &dyn Transport, path: &str) -> Option<Result<String, String>> {
    if server.port == 0 || server.tls_cert_file.is_some() {
        return None;
    }
    let host = match server.address {
        address if !address.is_unspecified() => address,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
    };
    let address = SocketAddr::new(host, server.port);
    let request = Request::get(format!("http://{address}{path}")).extension(Direct).body(Bytes::new());
    Some(match request {
        Ok(request) => match transport.send(request, LONGEST_PAGE).await {
            Ok(answer) => Ok(String::from_utf8_lossy(answer.body()).into_owned()),
            Err(error) => Err(error.to_string()),
        },
        Err(error) => Err(error.to_string()),
    })
}
