//! The health server, which can move to another address while the process runs.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::time::Duration;

use futures::future::OptionFuture;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use crate::config::checked;
use crate::config::tls::{ends_at, self_signed, server_config};
use crate::telemetry::http::{self, HttpSettings, StatusPages};
use crate::telemetry::{machine, metrics};

/// A listener that serves.
struct Listening {
    settings: checked::Server,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Listening {
    async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

pub(super) struct HealthServer {
    listening: Option<Listening>,
    /// Where it should listen but could not yet.
    moving: Option<checked::Server>,
    /// Time until the next try.
    pause: Duration,
}

/// After a try for which the previous address was given up, the pause doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl HealthServer {
    /// Serves from now on, or as soon as the machine has the address.
    pub(super) async fn start(settings: &checked::Server, pages: &StatusPages) -> io::Result<Self> {
        match listen(settings, pages).await {
            Ok(listening) => Ok(Self { listening, moving: None, pause: FIRST_PAUSE }),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                warn!(code = "ACCM0708", "{error}; retried until the machine has this address");
                Ok(Self { listening: None, moving: Some(settings.clone()), pause: FIRST_PAUSE })
            }
            Err(error) => Err(error),
        }
    }

    /// Moves to another address; serves the old one until the new one is free.
    pub(super) async fn change(&mut self, settings: &checked::Server, pages: &StatusPages) {
        (self.moving, self.pause) = (Some(settings.clone()), FIRST_PAUSE);
        if let Err(error) = self.try_to_move(pages).await {
            error!(code = "ACCM0708", "{error}; health stays at the previous address until this one is free");
        }
    }

    /// Time until [`HealthServer::retry`] is due; `None` if it is where it should be.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.moving.as_ref().map(|_| self.pause)
    }

    /// Tries again to move. The reason of a failure was logged by the first try.
    pub(super) async fn retry(&mut self, pages: &StatusPages) {
        let _ = self.try_to_move(pages).await;
    }

    async fn try_to_move(&mut self, pages: &StatusPages) -> io::Result<()> {
        let Some(wanted) = self.moving.clone() else { return Ok(()) };
        // Two addresses with the same port can exclude each other, as loopback and all addresses do.
        if let Some(conflicting) = self.listening.take_if(|listening| listening.settings.port == wanted.port) {
            let previous = conflicting.settings.clone();
            conflicting.stop().await;
            match listen(&wanted, pages).await {
                Ok(listening) => self.listening = listening,
                Err(error) => {
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    self.listening = listen(&previous, pages).await?;
                    return Err(error);
                }
            }
        } else {
            let listening = listen(&wanted, pages).await?;
            if let Some(previous) = std::mem::replace(&mut self.listening, listening) {
                previous.stop().await;
            }
        }
        info!(address = %wanted.address, port = wanted.port, "health is served at this address");
        self.moving = None;
        Ok(())
    }

    pub(super) async fn stop(self) {
        if let Some(listening) = self.listening {
            listening.stop().await;
        }
    }
}

/// Serves in a thread of its own, so that no client slows the controllers; nothing on port 0.
async fn listen(settings: &checked::Server, pages: &StatusPages) -> io::Result<Option<Listening>> {
    if settings.port == 0 {
        return Ok(None);
    }
    let listener = TcpListener::bind((settings.address, settings.port)).await;
    let listener = listener.and_then(TcpListener::into_std).map_err(|error| {
        let text = format!(
            "cannot listen on server.address {} server.port {}: {error}; choose another port, or 0 for none",
            settings.address, settings.port
        );
        io::Error::new(error.kind(), text)
    })?;
    let machine = machine::listen(settings.port).inspect_err(|error| {
        warn!(
            code = "ACCM0710",
            "commands on this machine cannot ask the process: @alicloud-ccm:{}: {error}", settings.port
        );
    });
    let machine = machine.ok();
    let tls = match (&settings.tls_cert_file, &settings.tls_key_file) {
        (Some(certificate), Some(key)) => Some(server_config(certificate, key)),
        _ => settings.authorization.then(self_signed),
    };
    let tls = tls.transpose().map_err(io::Error::other)?;
    let ends_at = settings.tls_cert_file.as_ref().and_then(|pem| ends_at(pem.as_bytes()));
    metrics::expiry("server certificate", ends_at.map(|at| at.as_second()));
    let http_settings = HttpSettings { tls, authorization: settings.authorization };
    let stop = CancellationToken::new();
    let (served, ending) = (pages.clone(), stop.clone());
    let task = pages.health.tasks().supervise("health server", &stop, move || {
        // The sockets stay open while the server starts again.
        let machine = machine.as_ref().and_then(|listener| listener.try_clone().ok());
        let (listener, pages, settings) = (listener.try_clone(), served.clone(), http_settings.clone());
        let end = ending.child_token();
        async move {
            let _end = end.clone().drop_guard();
            let served = spawn_blocking(move || serve((listener?, machine), pages, settings, end)).await;
            if let Ok(Err(error)) = served {
                error!(code = "ACCM0708", "health cannot be served: {error}");
            }
        }
    });
    Ok(Some(Listening { settings: settings.clone(), stop, task }))
}

fn serve(
    (listener, machine): (std::net::TcpListener, Option<StdUnixListener>),
    pages: StatusPages,
    settings: HttpSettings,
    stop: CancellationToken,
) -> io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let for_machine = machine.map(UnixListener::from_std).transpose()?;
        let for_machine = for_machine.map(|listener| http::serve_machine(listener, pages.clone(), stop.clone()));
        let for_all = http::serve(TcpListener::from_std(listener)?, pages, settings, stop);
        tokio::join!(for_all, OptionFuture::from(for_machine));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another program has the port on another address of the machine.
    #[tokio::test]
    async fn a_move_that_fails_for_long_stops_the_server_ever_more_rarely() {
        let taken = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let pages = StatusPages::default();
        let at = |address: &str| {
            let (tls_cert_file, tls_key_file) = (None, None);
            let address = address.parse().unwrap();
            checked::Server { address, port, tls_cert_file, tls_key_file, authorization: false }
        };
        let mut server = HealthServer::start(&at("127.0.0.1"), &pages).await.unwrap();
        assert_eq!(server.pause(), None);
        server.change(&at("0.0.0.0"), &pages).await;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.extend(server.pause().map(|pause| pause.as_secs()));
            server.retry(&pages).await;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("the previous address is served");
        drop(taken);
        server.retry(&pages).await;
        assert_eq!(server.pause(), None, "it has moved");
        server.stop().await;
    }
}
