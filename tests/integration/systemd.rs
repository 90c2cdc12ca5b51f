//! The notifications to systemd, and the unit.

mod machine;
mod packages;
mod versions;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sim::cluster::Version;
use sim::testbed::Testbed;

use crate::harness::{HASTE, World, is_ready};
use machine::Machine;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/alicloud-ccm.service");

/// The side of the service manager.
pub(crate) struct Manager {
    heard: Arc<Mutex<Vec<String>>>,
}

impl Manager {
    pub(crate) fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let listener = heard.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = socket.recv(&mut buffer) {
                listener.lock().push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
        });
        Self { heard }
    }

    /// Every message so far, oldest first.
    fn heard(&self) -> Vec<String> {
        self.heard.lock().clone()
    }

    pub(crate) fn count(&self, message: &str) -> usize {
        self.heard().iter().filter(|heard| *heard == message).count()
    }

    /// The last status line.
    fn status(&self) -> String {
        let heard = self.heard();
        let lines = heard.iter().rev().flat_map(|message| message.lines());
        lines.filter_map(|line| line.strip_prefix("STATUS=")).map(str::to_owned).next().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_gets_every_notification() {
    played().await;
}

/// Where no systemd can be had: what it would hear.
async fn played() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let world = World::of(testbed, &["node"], HASTE);
    world.testbed.cluster.go_away().await;
    let path = world.folder().join("notify");
    let manager = Manager::listen(&path);
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let ccm = world.start_with(&[], &environment);

    world.until("the start is over although the API server is away", |_| manager.count("READY=1") == 1).await;
    world.until("it says what it waits for", |_| manager.status().starts_with("waiting for kubernetes: ")).await;
    world.testbed.cluster.come_back().await.unwrap();
    world.until("it leads", |_| manager.status() == "this replica leads").await;
    let standby = {
        let path = world.folder().join("notify-2");
        let manager = Manager::listen(&path);
        let ccm = world.start_with(&[], &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        world.until("the second replica stands by", |_| manager.status() == "standby").await;
        assert_eq!(manager.count("WATCHDOG=1"), 0, "nobody asked for it");
        ccm
    };
    assert!(standby.stop().await.success());

    ccm.signal("HUP");
    world.until("the reload is over", |_| manager.count("READY=1") == 2).await;
    let heard = manager.heard();
    let reload: Vec<_> = heard.iter().filter(|message| message.starts_with("RELOADING=1\nMONOTONIC_USEC=")).collect();
    assert_eq!(reload.len(), 1, "{heard:?}");
    let micros: u64 = reload[0].rsplit('=').next().unwrap().parse().unwrap();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    assert!(micros > 0 && (micros as f64) < (uptime + 60.0) * 1e6, "{micros} µs, {uptime} s");

    // A mistake is no reason to fail the reload: the configuration before goes on.
    let right = std::fs::read_to_string(world.config()).unwrap();
    std::fs::write(world.config(), "controllers = 1").unwrap();
    ccm.signal("HUP");
    world.until("the refused reload is over as well", |_| manager.count("READY=1") >= 3).await;
    std::fs::write(world.config(), right).unwrap();

    // While the process is stopped it shows no sign of life; afterwards it does.
    let alive = manager.count("WATCHDOG=1");
    world.until("signs of life go on", |_| manager.count("WATCHDOG=1") > alive + 1).await;
    ccm.signal("STOP");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stopped = manager.count("WATCHDOG=1");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(manager.count("WATCHDOG=1"), stopped);
    ccm.signal("CONT");
    world.until("signs of life are back", |_| manager.count("WATCHDOG=1") > stopped).await;

    assert!(ccm.stop().await.success());
    assert_eq!(manager.heard().iter().filter(|message| message.starts_with("STOPPING=1")).count(), 1);
}

/// Short times, and a key that only root can read.
const DROP_IN: &str = "[Service]
WatchdogSec=2
TimeoutAbortSec=500ms
RestartSec=500ms
LoadCredential=access-key-secret:/root/access-key-secret
";

/// The lead of a process that was killed is free soon.
const ELECTION: &str =
    "\n[leader_election]\nlease_duration = \"8s\"\nrenew_deadline = \"5s\"\nretry_period = \"500ms\"\n";

/// Installed as the documents say, driven by `systemctl`.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_systemd_starts_reloads_watches_and_stops_it() {
    let Some(machine) = Machine::boot() else {
        // Not as root, or not allowed to have namespaces.
        return played().await;
    };
    let world = World::of(Testbed::open(Version::NEWEST).await.unwrap(), &["node"], &format!("{HASTE}{ELECTION}"));
    world.testbed.cluster.go_away().await;
    let beside = |name: &str| std::fs::read_to_string(Path::new(UNIT).with_file_name(name)).unwrap();
    machine.install("/usr/local/lib/sysusers.d/alicloud-ccm.conf", &beside("alicloud-ccm.sysusers"), "root", 0o644);
    machine.must("systemd-sysusers /usr/local/lib/sysusers.d/alicloud-ccm.conf");
    machine.must("install -d -o alicloud-ccm -g alicloud-ccm -m 0700 /etc/alicloud-ccm");
    let user =
        |name: &str, text: &str| machine.install(&format!("/etc/alicloud-ccm/{name}"), text, "alicloud-ccm", 0o400);
    let config = std::fs::read_to_string(world.config())
        .unwrap()
        .replace("\"access-key-secret\"", "\"credential:access-key-secret\"");
    user("alicloud-ccm.toml", &config);
    user("kubeconfig", &world.testbed.cluster.kubeconfig());
    machine.install("/root/access-key-secret", sim::testbed::ACCESS_KEY.1, "root", 0o400);
    machine.install("/etc/systemd/system/alicloud-ccm.service", &beside("alicloud-ccm.service"), "root", 0o644);
    machine.install("/etc/systemd/system/alicloud-ccm.service.d/test.conf", DROP_IN, "root", 0o644);
    machine.must("systemctl daemon-reload");
    // Started although the API server is away, and what it waits for is in the status line.
    machine.must("systemctl start alicloud-ccm");
    machine.until("StatusText", |text| text.starts_with("waiting for kubernetes: ")).await;
    world.testbed.cluster.come_back().await.unwrap();
    machine.until("StatusText", |text| text == "this replica leads").await;
    let lease = world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap();
    let (holder, host) = (lease["spec"]["holderIdentity"].as_str().unwrap(), machine.must("uname -n"));
    assert!(holder.starts_with(&format!("{}_", host.trim())), "{holder} on {host}");
    assert_eq!((machine.property("User"), machine.property("ActiveState")), ("alicloud-ccm".into(), "active".into()));
    let confined = machine.must(&format!("cat /proc/{}/status", machine.property("MainPID")));
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(confined.contains(line), "{line} in {confined}");
    }
    let uid = machine.must("id -u alicloud-ccm");
    assert!(confined.contains(&format!("Uid:\t{}\t", uid.trim())), "{confined}");
    world.testbed.join(1);
    world.until("confined as it is, it works", |_| is_ready(&world.node("node-1"))).await;
    machine.must("systemd-analyze security --threshold=20 --no-pager alicloud-ccm");

    // A reload is over when the new configuration is used, and a refused one is no failure.
    user("alicloud-ccm.toml", &config.replace("[\"node\"]", "[\"node\", \"service\"]"));
    machine.must("systemctl reload alicloud-ccm");
    machine.until("ActiveState", |text| text == "active").await;
    world.until_so("it is used", || async { machine.journal("alicloud-ccm").contains("; started: service") }).await;
    user("alicloud-ccm.toml", "controllers = 1");
    machine.must("systemctl reload alicloud-ccm");
    let errors = "journalctl --no-pager --output cat --unit alicloud-ccm --priority err";
    world
        .until_so("the refusal is an error in the journal", || async {
            machine.must(errors).contains("the previous one stays in use")
        })
        .await;
    machine.until("ActiveState", |text| text == "active").await;

    // Whoever hangs is ended, and started again as soon as the file is right again.
    let hung = machine.property("MainPID");
    machine.must(&format!("kill -STOP {hung}"));
    world
        .until_so("the check before the start refuses the file", || async {
            machine.property("NRestarts").parse::<u32>().unwrap() > 0 && machine.property("MainPID") == "0"
        })
        .await;
    assert!(machine.must(errors).contains("controllers"), "{}", machine.journal("alicloud-ccm"));
    user("alicloud-ccm.toml", &config);
    machine.until("StatusText", |text| text == "this replica leads").await;
    assert_ne!(machine.property("MainPID"), hung);
    world.testbed.join(2);
    world.until("it works as before", |_| is_ready(&world.node("node-2"))).await;

    machine.must("systemctl stop alicloud-ccm");
    assert_eq!((machine.property("Result"), machine.property("ActiveState")), ("success".into(), "inactive".into()));
    let lease = world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap();
    assert!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty(), "given back: {lease}");
    let journal = machine.journal("alicloud-ccm");
    assert!(!journal.contains(sim::testbed::ACCESS_KEY.1));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_never_dumped_to_disk() {
    let world = World::new(&["node"], "").await;
    let ccm = world.start();
    world.until("it runs", |_| ccm.log().contains("starting")).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", ccm.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(line.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{line}");
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_in_the_journal_has_its_priority() {
    let world = World::new(&["node"], "").await;
    let path = world.folder().join("journal.log");
    let journal = File::create(&path).unwrap();
    let meta = journal.metadata().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"))
        .env_clear()
        .env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino()))
        .args(["run", "--config"])
        .arg(world.config())
        .stderr(journal)
        .spawn()
        .unwrap();
    let text = || std::fs::read_to_string(&path).unwrap();
    world.until("it works", |_| text().contains("leading")).await;
    std::fs::write(world.config(), "controllers = 1\nnonsense = 2\n").unwrap();
    world.until("the refusal is an error", |_| text().contains("<3>")).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let text = text();
    let wrong: Vec<_> =
        text.lines().filter(|line| !["<3>", "<4>", "<6>"].iter().any(|level| line.starts_with(level))).collect();
    assert_eq!(wrong, Vec::<&str>::new(), "{text}");
    assert!(text.lines().filter(|line| line.starts_with("<3>")).count() > 2, "the whole report:\n{text}");
}

/// The keys of the unit; the last value where there are several.
fn unit() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(UNIT).unwrap();
    versions::settings(&text).map(|(_, key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_unit_starts_what_the_program_offers() {
    let unit = unit();
    assert_eq!(unit["Type"], "notify-reload");
    assert!(unit.contains_key("WatchdogSec") && unit["LimitCORE"] == "0");
    assert!(!unit.contains_key("ProcSubset"), "process_start_time_seconds is made of what /proc/stat has");
    for key in ["ExecStartPre", "ExecStart"] {
        let arguments: Vec<_> = unit[key].split_whitespace().skip(1).collect();
        let help = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm")).args(&arguments).arg("--help").output().unwrap();
        assert!(help.status.success(), "{key}: {}", String::from_utf8_lossy(&help.stderr));
    }
    let users = std::fs::read_to_string(Path::new(UNIT).with_file_name("alicloud-ccm.sysusers")).unwrap();
    let made = users.lines().any(|line| line.starts_with(&format!("u {} ", unit["User"])));
    assert!(made, "{users}");
}

#[test]
fn the_unit_is_valid_and_confined() {
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output();
    if analyze(&["--version"]).is_err() {
        // The gate installs it; elsewhere the unit is checked by its keys alone.
        assert_eq!(unit()["ProtectSystem"], "strict");
        return;
    }
    // The program need not be installed for the unit to be judged.
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(UNIT).unwrap();
    let copy = folder.path().join("alicloud-ccm.service");
    std::fs::write(&copy, text.replace("/usr/local/bin/alicloud-ccm", env!("CARGO_BIN_EXE_alicloud-ccm"))).unwrap();
    let copy = copy.to_str().unwrap();
    let verified = analyze(&["verify", "--man=no", copy]).unwrap();
    let complaints = String::from_utf8(verified.stderr).unwrap();
    // Versions before 253 do not know this type, and keep the one of the line before.
    let complaints: Vec<_> = complaints
        .lines()
        .filter(|line| {
            line.contains("alicloud-ccm") && !line.contains("Failed to parse service type, ignoring: notify-reload")
        })
        .collect();
    assert_eq!(complaints, Vec::<&str>::new());
    let judged = analyze(&["security", "--offline=true", "--threshold=20", "--no-pager", copy]).unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}
