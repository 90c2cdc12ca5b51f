//! A real systemd in namespaces of its own, where the machine allows that.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

/// What a machine needs and not every one allows, such as a container without rights.
const PROBE: &str = "mount --make-rprivate / && mount -t tmpfs probe /mnt && mkdir /mnt/proc /mnt/cgroup && \
                     mount -t proc proc /mnt/proc && mount -t cgroup2 cgroup2 /mnt/cgroup && \
                     mkdir /mnt/cgroup/probe-$$ && rmdir /mnt/cgroup/probe-$$ && command -v setpriv && \
                     test -x /lib/systemd/systemd && test -e /lib/systemd/system/systemd-journald.service && \
                     command -v nsenter systemctl journalctl systemd-sysusers systemd-analyze";

/// The machine; gone with everything in it when dropped.
#[derive(Debug)]
pub(super) struct Machine {
    /// Ends the machine when its input does, also if this process is killed.
    keeper: Child,
    /// The systemd, as seen from here.
    first: String,
    _root: tempfile::TempDir,
}

impl Machine {
    /// Boots it with the program installed and nothing else; `None` where that cannot be.
    pub(super) fn boot() -> Option<Self> {
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "/bin/sh", "-c", PROBE]);
        let Ok(probed) = probe.output() else { return None };
        if !probed.status.success() {
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/systemd");
        let mut keeper = Command::new("unshare");
        keeper.args(["--mount", "/bin/sh", &format!("{folder}/keeper.sh")]);
        keeper.arg(root.path()).args([&format!("{folder}/machine.sh"), env!("CARGO_BIN_EXE_alicloud-ccm")]);
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = keeper.spawn().unwrap();
        let mut outside = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut outside).unwrap();
        let outside = outside.trim().to_owned();
        let began = Instant::now();
        let first = loop {
            let children = std::fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"));
            let first = children.unwrap_or_default().trim().to_owned();
            let name = std::fs::read_to_string(format!("/proc/{first}/comm")).unwrap_or_default();
            if name.trim() == "systemd" {
                break first;
            }
            assert!(began.elapsed() < PATIENCE, "the machine does not boot");
            std::thread::sleep(Duration::from_millis(10));
        };
        let machine = Self { keeper, first, _root: root };
        while !machine.run("systemctl is-active machine.target").status.success() {
            assert!(began.elapsed() < PATIENCE, "systemd does not start");
        }
        Some(machine)
    }

    /// A path in the machine, as seen from here.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first))
    }

    /// Writes a file that belongs to `owner` (a user of the machine and its group), with this mode.
    pub(super) fn install(&self, path: &str, text: &str, owner: &str, mode: u32) {
        let beside = self.path(&format!("{path}~"));
        std::fs::create_dir_all(beside.parent().unwrap()).unwrap();
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)).unwrap();
        let users = std::fs::read_to_string(self.path("/etc/passwd")).unwrap();
        let line = users.lines().find(|line| line.starts_with(&format!("{owner}:"))).unwrap();
        let ids: Vec<u32> = line.split(':').skip(2).take(2).map(|id| id.parse().unwrap()).collect();
        chown(&beside, Some(ids[0]), Some(ids[1])).unwrap();
        std::fs::rename(beside, self.path(path)).unwrap();
    }

    /// Runs a command line in the machine, as root.
    pub(super) fn run(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first, "--mount", "--pid", "--ipc", "--uts", "--cgroup"]);
        command.args(["--", "/bin/sh", "-c", line]).stdin(Stdio::null()).output().unwrap()
    }

    /// The same for one that must succeed; gives what it printed.
    pub(super) fn must(&self, line: &str) -> String {
        let output = self.run(line);
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{line}: {printed}\n{}", self.journal("alicloud-ccm"));
        printed
    }

    /// A property of the service, as `systemctl show` knows it.
    pub(super) fn property(&self, name: &str) -> String {
        let shown = self.must(&format!("systemctl show alicloud-ccm --property {name} --value"));
        shown.trim().to_owned()
    }

    /// Waits until a property of the service is so.
    pub(super) async fn until(&self, property: &str, is_so: impl Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            let is = self.property(property);
            if is_so(&is) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{property} is {is}\n{}", self.journal("alicloud-ccm"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the journal has of a unit.
    pub(super) fn journal(&self, unit: &str) -> String {
        let output = self.run(&format!("journalctl --no-pager --output cat --unit {unit}"));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
