//! Notifications to the service manager: `sd_notify(3)`.
//!
//! Ready means that health is served and the configuration is valid. The process waits for everything else as long as it
//! takes, and the status line says for what: a start that fails because the API server is still away would help no operator.
//!
//! The crate `sd-notify` sends without a timeout, so that a manager that reads nothing would block a thread for ever.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::health::Health;

/// Time between looks at whether the status line is still true.
const STATUS_PERIOD: Duration = Duration::from_secs(1);
/// Longest time that sending may take.
const LONGEST_SEND: Duration = Duration::from_millis(500);
/// Longer lines are cut after this many characters, because a terminal shows no more.
const LONGEST_STATUS: usize = 512;

/// The way to the service manager, if there is one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment of this process says: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub fn of_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let variable = |name| std::env::var(name).ok();
        let watchdog = watchdog(variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref());
        match connect(&name) {
            Ok(socket) => Self { socket: Some(Arc::new(socket)), watchdog },
            Err(error) => {
                warn!(code = "ACCM0706", socket = ?name, %error, "NOTIFY_SOCKET cannot be used; the service manager is not notified");
                Self::default()
            }
        }
    }

    /// The start, or a reload, is over.
    pub fn ready(&self) {
        self.notify("READY=1");
    }

    /// A reload begins. The time says which of several requests is meant.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The end begins.
    pub fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping");
    }

    /// Keeps the status line current and the watchdog quiet. Never returns. The watchdog ends the process if this is not
    /// polled, or if another task hangs.
    pub async fn report(self, health: Health) {
        if self.socket.is_none() {
            return std::future::pending().await;
        }
        tokio::join!(self.status_line(&health), self.watchdog(&health));
    }

    async fn status_line(&self, health: &Health) {
        let mut ticks = interval(STATUS_PERIOD);
        let mut said = String::new();
        loop {
            ticks.tick().await;
            let line = one_line(&health.summary());
            if line != said {
                self.notify(&format!("STATUS={line}"));
                said = line;
            }
        }
    }

    async fn watchdog(&self, health: &Health) {
        let Some(limit) = self.watchdog else { return };
        let mut ticks = interval(limit / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if health.tasks().hang().is_none() {
                self.notify("WATCHDOG=1");
            }
        }
    }

    fn notify(&self, message: &str) {
        // A manager that reads nothing must not stop the work.
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(message.as_bytes())) {
            debug!(%error, "the service manager could not be notified");
        }
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(LONGEST_SEND))?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => socket.connect_addr(&SocketAddr::from_abstract_name(abstract_name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

/// Within which time the manager expects a sign of life of this process, if at all.
fn watchdog(micros: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    let meant = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let micros = micros?.parse().ok().filter(|micros| *micros > 1 && meant)?;
    Some(Duration::from_micros(micros))
}

fn one_line(text: &str) -> String {
    text.chars().take(LONGEST_STATUS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_ours_or_nobodys() {
        let own = std::process::id().to_string();
        assert_eq!(watchdog(Some("30000000"), Some(&own)), Some(Duration::from_secs(30)));
        assert_eq!(watchdog(Some("30000000"), None), Some(Duration::from_secs(30)));
        for (micros, pid) in [(None, None), (Some("x"), None), (Some("0"), None), (Some("30000000"), Some("0"))] {
            assert_eq!(watchdog(micros, pid), None, "{micros:?} {pid:?}");
        }
    }

    #[test]
    fn a_status_cannot_smuggle_in_another_message() {
        assert_eq!(one_line("cloud: no\nREADY=1"), "cloud: no READY=1");
        assert_eq!(one_line(&"ä".repeat(600)).chars().count(), 512);
    }

    #[test]
    fn a_manager_that_reads_nothing_blocks_only_shortly() {
        let (manager, socket) = UnixDatagram::pair().unwrap();
        socket.set_write_timeout(Some(LONGEST_SEND)).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.send(b"STATUS=full").is_ok() {}
        socket.set_nonblocking(false).unwrap();
        let started = std::time::Instant::now();
        ServiceManager { socket: Some(Arc::new(socket)), watchdog: None }.ready();
        assert!(started.elapsed() < 4 * LONGEST_SEND, "{:?}", started.elapsed());
        drop(manager);
    }

    #[test]
    fn abstract_sockets_are_reached() {
        let name = format!("alicloud-ccm-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = connect(OsStr::new(&format!("@{name}"))).unwrap();
        ServiceManager { socket: Some(Arc::new(socket)), watchdog: None }.ready();
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }
}
