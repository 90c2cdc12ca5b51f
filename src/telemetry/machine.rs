//! The pages for commands on the same machine, whatever the server asks of others: over a Unix socket, without TLS and tokens.
//!
//! The kernel says who is at the other end, so only root and the user of the process are answered. The socket has no file: its
//! name is in the network namespace, which the host shares with the pod.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// How long the process may take to answer.
const LONGEST_PAGE: Duration = Duration::from_secs(5);
/// Largest page that is read, in bytes.
const LARGEST_PAGE: u64 = 64 * 1024 * 1024;

/// `@alicloud-ccm:10258` in the list of sockets.
fn name(port: u16) -> String {
    format!("alicloud-ccm:{port}")
}

/// The socket beside the server on this port, not blocking.
///
/// # Errors
/// If another process has the name.
pub fn listen(port: u16) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(port))?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether the peer is root or the user of this process.
pub(super) fn is_admitted(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

/// A page of the process on this machine whose server has this port.
///
/// # Errors
/// `ConnectionRefused` if no process has the port, `Unsupported` if it is 0; or why it does not answer.
pub async fn page(port: u16, path: &str) -> io::Result<String> {
    if port == 0 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "server.port is 0"));
    }
    tokio::time::timeout(LONGEST_PAGE, ask(port, path)).await?
}

async fn ask(port: u16, path: &str) -> io::Result<String> {
    // As Linux spells a name without a file.
    let mut stream = UnixStream::connect(format!("\0{}", name(port))).await?;
    // Another user may have taken the name. Root reads what any user says, as with a log.
    if !is_admitted(&stream) && !geteuid().is_root() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user: ask as that one, or as root",
        ));
    }
    // The server may have closed the connection of a peer that it refuses.
    let _ = stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await;
    let mut answer = Vec::new();
    let read = stream.take(LARGEST_PAGE).read_to_end(&mut answer).await;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it answers root and its own user alone"));
    }
    read?;
    let answer = String::from_utf8_lossy(&answer);
    let (_, page) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(page.to_owned())
}
