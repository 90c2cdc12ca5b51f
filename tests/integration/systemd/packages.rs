//! The packages of a host, as `.ci/packages` writes them: what they hold, and their life on a machine with systemd.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use sim::cluster::Version;
use sim::testbed::Testbed;

use super::{DROP_IN, Machine, Manager};
use crate::harness::{HASTE, World};

/// The lead of a process is free within the time of a test only if that process gives it back.
const ELECTION: &str =
    "\n[leader_election]\nlease_duration = \"10m\"\nrenew_deadline = \"5m\"\nretry_period = \"500ms\"\n";
/// The folder, and the file that the packages bring.
const FOLDER: &str = "/etc/alicloud-ccm";

/// How a kind of package is handled, as command lines that end in a file or a name.
struct Tool {
    install: &'static str,
    upgrade: &'static str,
    remove: &'static str,
    /// The name of the package of a version.
    file: fn(&str) -> String,
    /// The version that takes the place of 1.0.0.
    next: &'static str,
    /// Where a changed configuration is after the removal.
    kept: &'static str,
    /// Before the installation.
    prepare: &'static str,
}

const DEB: Tool = Tool {
    install: "dpkg --install",
    upgrade: "dpkg --install",
    remove: "dpkg --remove",
    file: |version| {
        format!("alicloud-ccm_{version}_{}.deb", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" })
    },
    // The same once more is an upgrade to dpkg.
    next: "1.0.0",
    kept: "alicloud-ccm.toml",
    prepare: "true",
};

/// As on RHEL 7, which has no systemd-sysusers.
const RPM: Tool = Tool {
    install: "rpm --install --nodeps",
    upgrade: "rpm --upgrade --nodeps --oldpackage",
    remove: "rpm --erase",
    file: |version| format!("alicloud-ccm-{version}.{}.rpm", std::env::consts::ARCH),
    next: "1.0.1",
    kept: "alicloud-ccm.toml.rpmsave",
    prepare: "rm /usr/bin/systemd-sysusers",
};

/// The folder in which the gate has built the packages, for the architecture of this machine and for another.
fn built() -> Option<PathBuf> {
    std::env::var_os("CCM_PACKAGES").map(PathBuf::from)
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn both_packages_bring_the_same_files() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap();
    let assets = |tool: &str| manifest["package"]["metadata"][tool]["assets"].as_array().unwrap().clone();
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let deb: BTreeSet<_> =
        assets("deb").iter().map(|row| (text(&row[0]), format!("/{}", text(&row[1])), text(&row[2]))).collect();
    let rpm = assets("generate-rpm");
    let rpm = rpm.iter().map(|row| (text(&row["source"]), text(&row["dest"]), text(&row["mode"])));
    // Where the two families look for completions of Zsh; and dpkg has a file of its own for licenses.
    let rpm = rpm.map(|(source, place, mode)| (source, place.replace("/site-functions", "/vendor-completions"), mode));
    let rpm: BTreeSet<_> = rpm.filter(|(source, ..)| source != "LICENSE").collect();
    assert_eq!(deb, rpm);
}

#[test]
fn packages_for_every_architecture_hold_what_a_host_needs() {
    let Some(folder) = built() else { return };
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        count += 1;
        let (path, root) = (file.to_str().unwrap(), tempfile::tempdir().unwrap());
        let to = root.path().to_str().unwrap();
        let configuration = if path.ends_with(".deb") {
            printed("dpkg-deb", &["--extract", path, to]);
            printed("dpkg-deb", &["--info", path, "conffiles"])
        } else {
            printed(
                "sh",
                &["-c", &format!("rpm2cpio {path} | (cd {to} && cpio --extract --make-directories --quiet)")],
            );
            rpm_of_rhel_7_can_read(path);
            printed("rpm", &["--query", "--configfiles", "--package", path])
        };
        assert_eq!(configuration.trim(), format!("{FOLDER}/alicloud-ccm.toml"), "{path}");
        for name in [
            "usr/bin/alicloud-ccm",
            "usr/lib/systemd/system/alicloud-ccm.service",
            "usr/lib/sysusers.d/alicloud-ccm.conf",
            "usr/share/bash-completion/completions/alicloud-ccm",
        ] {
            assert!(root.path().join(name).is_file(), "{path} has no {name}");
        }
        let pages = std::fs::read_dir(root.path().join("usr/share/man/man1")).unwrap();
        let pages: Vec<_> = pages.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        for command in ["", "-run", "-plan", "-explain", "-doctor"] {
            let page = format!("alicloud-ccm{command}.1");
            assert!(pages.iter().any(|name| name.trim_end_matches(".gz") == page), "{path} has no {page}: {pages:?}");
        }
        let is_arm = ["arm64", "aarch64"].iter().any(|name| path.contains(name));
        let program = std::fs::read(root.path().join("usr/bin/alicloud-ccm")).unwrap();
        let (machine, is_static) = elf(&program);
        assert_eq!(machine, if is_arm { 183 } else { 62 }, "{path} has the program of another machine");
        let is_foreign = is_arm != cfg!(target_arch = "aarch64");
        // For this machine, the gate packs the program of the tests.
        assert!(is_static || !is_foreign, "{path} needs a C library");
        if !is_foreign {
            let checked = ["check", "--set", "cloud.cluster_id=one", "--config"];
            let config = format!("{to}{FOLDER}/alicloud-ccm.toml");
            let program = root.path().join("usr/bin/alicloud-ccm");
            printed(program.to_str().unwrap(), &[&checked[..], &[config.as_str()]].concat());
        }
    }
    assert!(count >= 3, "the gate has built {count} packages");
}

/// The machine of an executable, and whether it starts without a loader.
fn elf(program: &[u8]) -> (u16, bool) {
    assert_eq!(
        (&program[..4], program[4], program[5]),
        (&b"\x7fELF"[..], 2, 1),
        "64 bits, the least significant first"
    );
    let short = |at: usize| u16::from_le_bytes(program[at..at + 2].try_into().unwrap());
    let headers = usize::try_from(u64::from_le_bytes(program[32..40].try_into().unwrap())).unwrap();
    let (size, count) = (usize::from(short(54)), usize::from(short(56)));
    let is_interpreter = |index: usize| program[headers + index * size..][..4] == [3, 0, 0, 0];
    (short(18), !(0..count).any(is_interpreter))
}

const NEWER: [u32; 8] = [270, 271, 5008, 5009, 5046, 5049, 5052, 5055];

/// The tags of the signature and of the header of an .rpm.
fn tags(package: &[u8]) -> Vec<u32> {
    let number = |at: usize| u32::from_be_bytes(package[at..at + 4].try_into().unwrap());
    let size = |at: usize| usize::try_from(number(at)).unwrap();
    let (mut start, mut found) = (96, Vec::new());
    for _ in 0..2 {
        assert_eq!(package[start..start + 3], [0x8e, 0xad, 0xe8]);
        let count = size(start + 8);
        found.extend((0..count).map(|row| number(start + 16 + 16 * row)));
        start = (start + 16 + 16 * count + size(start + 12)).next_multiple_of(8);
    }
    found
}

/// RHEL 7 has rpm 4.11: no zstd, no rich or weak dependencies, no files above 4 GiB, and SHA-256 at most.
fn rpm_of_rhel_7_can_read(path: &str) {
    const KNOWN: [&str; 6] = [
        "CompressedFileNames",
        "FileDigests",
        "PayloadFilesHavePrefix",
        "PayloadIsXz",
        "ScriptletInterpreterArgs",
        "TildeInVersions",
    ];
    let asked = |format: &str| printed("rpm", &["--query", "--package", "--queryformat", format, path]);
    let compressor = asked("%{PAYLOADFORMAT} %{PAYLOADCOMPRESSOR}");
    assert!(["cpio gzip", "cpio xz"].contains(&compressor.as_str()), "{path}: {compressor}");
    for requirement in asked("[%{REQUIRENAME}\n]").lines() {
        let feature = requirement.strip_prefix("rpmlib(").map(|rest| rest.trim_end_matches(')'));
        assert!(feature.is_none_or(|feature| KNOWN.contains(&feature)), "{path} needs {requirement}");
        assert!(!requirement.starts_with('('), "{path} has a rich dependency: {requirement}");
    }
    // The number of a tag that only newer versions know: sizes of 64 bits, and weak dependencies.
    let newer: Vec<u32> = tags(&std::fs::read(path).unwrap()).into_iter().filter(|tag| NEWER.contains(tag)).collect();
    assert!(newer.is_empty(), "{path}: {newer:?}");
    let payload = printed("sh", &["-c", &format!("rpm2cpio {path} | head -c 6")]);
    assert_eq!(payload, "070701", "{path}: the format of its files");
    assert!(["1", "2", "8"].contains(&asked("%{FILEDIGESTALGO}").as_str()), "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debian_package_installs_upgrades_and_goes() {
    live(&DEB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_rpm_package_installs_upgrades_and_goes() {
    live(&RPM).await;
}

/// From the first installation to the removal, with another replica beside it.
async fn live(tool: &Tool) {
    let (Some(packages), Some(machine)) = (built(), Machine::boot()) else { return };
    if !machine.run("touch /usr/bin/writable").status.success() {
        return;
    }
    let [first, next] = ["1.0.0", tool.next].map(tool.file);
    for name in [&first, &next] {
        std::fs::copy(packages.join(name), machine.path(&format!("/root/{name}"))).unwrap();
    }
    machine.must(tool.prepare);
    machine.must(&format!("{} /root/{first}", tool.install));
    assert_eq!(machine.run("systemctl is-enabled alicloud-ccm").stdout, b"disabled\n", "it has no configuration yet");
    assert_eq!(machine.property("ActiveState"), "inactive");
    let rights = machine.must(&format!("stat --format '%U %G %a' {FOLDER} {FOLDER}/alicloud-ccm.toml"));
    assert_eq!(rights, "root alicloud-ccm 750\nroot alicloud-ccm 640\n");
    let judged = machine.must("systemd-analyze verify --man=no /usr/lib/systemd/system/alicloud-ccm.service");
    // Versions before 253 do not know this type, and keep the one of the line before.
    let complaints: Vec<_> = judged.lines().filter(|line| line.contains("alicloud-ccm.service")).collect();
    assert!(complaints.iter().all(|line| line.contains("ignoring: notify-reload")), "{complaints:?}");
    for (typed, candidate) in [("expl", "explain"), ("plan --out", "--output"), ("rbac --kubec", "--kubeconfig")] {
        assert_eq!(machine.must(&format!("kubectl_complete-alicloud {typed}")), format!("{candidate}\n:4\n"));
    }
    let untouched = machine.run("kubectl-alicloud check");
    assert_eq!(untouched.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&untouched.stderr).contains("change-me"));

    let world = World::of(Testbed::open(Version::NEWEST).await.unwrap(), &["node"], &format!("{HASTE}{ELECTION}"));
    let config = std::fs::read_to_string(world.config()).unwrap();
    let config = config.replace("\"access-key-secret\"", "\"credential:access-key-secret\"");
    let user = |name: &str, text: &str| machine.install(&format!("{FOLDER}/{name}"), text, "alicloud-ccm", 0o400);
    user("alicloud-ccm.toml", &config);
    user("kubeconfig", &world.testbed.cluster.kubeconfig());
    machine.install("/root/access-key-secret", sim::testbed::ACCESS_KEY.1, "root", 0o400);
    machine.install("/etc/systemd/system/alicloud-ccm.service.d/test.conf", DROP_IN, "root", 0o644);
    machine.must("systemctl daemon-reload && systemctl enable --now alicloud-ccm");
    machine.until("StatusText", |text| text == "this replica leads").await;

    let path = world.folder().join("notify");
    let manager = Manager::listen(&path);
    let standby = world.start_with(&[], &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    world.until("another replica stands by", |_| manager.status() == "standby").await;
    let holder = || {
        let lease = world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let (former, leader) = (machine.property("MainPID"), holder());
    machine.must(&format!("{} /root/{next}", tool.upgrade));
    assert_ne!(machine.property("MainPID"), former);
    // The other one, or the new process where that asks first.
    world
        .until("one leads although the lease has minutes to run", |_| holder() != leader && !holder().is_empty())
        .await;
    machine.until("StatusText", |text| ["standby", "this replica leads"].contains(&text)).await;
    assert_eq!(machine.must(&format!("cat {FOLDER}/alicloud-ccm.toml")), config);

    user("alicloud-ccm.toml", "controllers = 1");
    let running = machine.property("MainPID");
    let said = machine.must(&format!("{} /root/{first}", tool.upgrade));
    assert!(said.contains("controllers") && said.contains("the former version keeps running"), "{said}");
    assert_eq!(machine.property("MainPID"), running);
    user("alicloud-ccm.toml", &config);

    machine.must(&format!("{} alicloud-ccm", tool.remove));
    assert_eq!(machine.property("ActiveState"), "inactive");
    machine.must("test -z \"$(ls /usr/bin | grep alicloud)\"");
    assert!(!machine.run("systemctl is-enabled alicloud-ccm").status.success());
    assert_eq!(machine.must(&format!("cat {FOLDER}/{}", tool.kept)), config);
    machine.must(&format!("test -e {FOLDER}/kubeconfig && id alicloud-ccm"));
    assert!(standby.stop().await.success());
}
