//! The product as a process of its own.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// In the environment: this process is the product.
pub(crate) const ROLE: &str = "PLAYGROUND_IS_THE_PRODUCT";

/// The running product; killed when dropped.
pub(crate) struct Product {
    child: Child,
    /// Where its HTTP server listens.
    pub(crate) port: u16,
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(config: &Path, arguments: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(super::anything)?);
    command.env_clear().env(ROLE, "1").args(arguments).arg("--config").arg(config);
    // Ctrl-C in the terminal is for the scenario, which then stops the product in order.
    command.process_group(0);
    Ok(command)
}

impl Product {
    /// Starts the controllers; their log goes to `log`.
    pub(crate) fn start(config: &Path, log: &Path) -> Result<Self, String> {
        let log = std::fs::File::create(log).map_err(super::anything)?;
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let port = free.map_err(super::anything)?.port();
        let mut command = command(config, &["run", "--set", &format!("server.port={port}")])?;
        let child = command.stdout(Stdio::null()).stderr(log).spawn().map_err(super::anything)?;
        Ok(Self { child, port })
    }

    /// Memory that is in use right now, in MiB, as the kernel counts it.
    pub(crate) fn resident_mib(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib / 1024.0)
    }

    /// Asks it to end, as systemd and kubelets do, and waits.
    pub(crate) async fn stop(mut self) -> Result<ExitStatus, String> {
        Command::new("kill").arg(self.child.id().to_string()).status().map_err(super::anything)?;
        for _ in 0..200 {
            if let Some(status) = self.child.try_wait().map_err(super::anything)? {
                return Ok(status);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Err("the product did not end within ten seconds of SIGTERM".to_owned())
    }
}

/// What `plan` prints, and its exit code.
pub(crate) async fn plan(config: &Path) -> Result<(String, i32), String> {
    let mut command = command(config, &["plan"])?;
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = output.await.map_err(super::anything)?.map_err(super::anything)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((text, output.status.code().unwrap_or(-1)))
}
