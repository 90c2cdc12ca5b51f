//! The measured controller as a process of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sim::testbed::{ACCESS_KEY, REGION, VPC};

use super::{Options, anything};

/// In the environment: this process is the product.
pub(crate) const ROLE: &str = "SCALE_IS_THE_PRODUCT";

/// The environment in which `systemd/alicloud-ccm.service` starts it.
const ALLOCATOR: [(&str, &str); 4] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "16384"),
    ("MALLOC_TRIM_THRESHOLD_", "32768"),
    ("MALLOC_TOP_PAD_", "8192"),
];

/// Names under which programs look for the endpoint of a product of the cloud.
const ENDPOINTS: [&str; 6] =
    ["ECS_ENDPOINT", "VPC_ENDPOINT", "SLB_ENDPOINT", "NLB_ENDPOINT", "ALB_ENDPOINT", "STS_ENDPOINT"];

/// Kernel clock ticks in a second, in which `/proc` counts CPU time; the same on every Linux that matters.
const TICKS: f64 = 100.0;

/// The running controller; killed when dropped.
pub(crate) struct Controller {
    child: Child,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has used, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time so far.
    pub(crate) cpu: Duration,
    /// Memory in use now, in MiB.
    pub(crate) resident: f64,
    /// The most so far, in MiB.
    pub(crate) peak: f64,
}

impl Controller {
    /// Starts it with what is in `folder`; its log goes to `log` there.
    pub(crate) fn start(options: &Options, folder: &Path, cloud: &str, log: &str) -> Result<Self, String> {
        let config = folder.join("alicloud-ccm.toml");
        let mut command = match &options.controller {
            None => {
                let mut command = match &options.binary {
                    Some(binary) => Command::new(binary),
                    None => Command::new(std::env::current_exe().map_err(anything)?),
                };
                command.env_clear().envs(ALLOCATOR).env(ROLE, "1").arg("run").arg("--config").arg(config);
                command.args(options.set.iter().flat_map(|set| ["--set", set]));
                command
            }
            Some(program) => {
                let mut command = Command::new(program);
                command.env_clear().envs(ENDPOINTS.map(|name| (name, cloud)));
                command.env("ACCESS_KEY_ID", ACCESS_KEY.0).env("ACCESS_KEY_SECRET", ACCESS_KEY.1);
                command.env("ALIBABA_CLOUD_ACCESS_KEY_ID", ACCESS_KEY.0);
                command.env("ALIBABA_CLOUD_ACCESS_KEY_SECRET", ACCESS_KEY.1);
                command.env("ALICLOUD_CLIENT_SCHEME", "HTTP");
                command.env("REGION", REGION).env("VPC_ID", VPC);
                let (kubeconfig, folder) =
                    (folder.join("kubeconfig").display().to_string(), folder.display().to_string());
                command.args(options.argument.iter().map(|argument| {
                    argument.replace("{kubeconfig}", &kubeconfig).replace("{cloud}", cloud).replace("{folder}", &folder)
                }));
                command
            }
        };
        let output = std::fs::File::create(folder.join(log)).map_err(anything)?;
        let errors = output.try_clone().map_err(anything)?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().map_err(anything)?;
        Ok(Self { child })
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).ok();
        let status = read("status")?;
        let mebibytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kib| kib / 1024.0)
        };
        let stat = read("stat")?;
        // The name in brackets may contain anything; the fields after it are counted from the state on.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        Some(Usage {
            cpu: Duration::from_secs_f64(ticks / TICKS),
            resident: mebibytes("VmRSS:")?,
            peak: mebibytes("VmHWM:")?,
        })
    }

    /// Asks it to end, as systemd and kubelets do, and waits.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        Command::new("kill").arg(self.child.id().to_string()).status().map_err(anything)?;
        for _ in 0..600 {
            if self.child.try_wait().map_err(anything)?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("the controller did not end within thirty seconds of SIGTERM".to_owned())
    }
}
