//! The release workflow, played on this machine: its scripts run as they are, between programs that do nothing but what the scripts
//! wait for. What a job hands over to another is what it has made.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect;
use regex::Regex;
use serde_json::{Value, json};

use crate::permissions::documents;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes the files that its arguments name as output, and prints a date where one is asked for.
const PROGRAM: &str = r#"#!/bin/bash
case "$(basename "$0") $1" in
  "git log") echo 2026-01-02T03:04:05+00:00 ;;
  "helm package") touch "alicloud-ccm-$PLAYED.tgz" ;;
  "mdbook build") mkdir -p "$4" && touch "$4/index.html" ;;
  "gh release") shift 2; printf '%s\n' "$@" >"$WORLD/released" ;;
  "cargo cyclonedx") touch "${@: -1}.json" ;;
  "cargo deb" | "cargo generate-rpm") touch "${@: -1}" ;;
esac
"#;

/// What the play replaces by that program.
const PROGRAMS: [&str; 11] =
    ["cargo", "cosign", "gh", "git", "helm", "mdbook", "qemu-aarch64", "rpm-config", "run", "rustup", "sudo"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shell(folder: &Path, script: &str, variables: &BTreeMap<String, String>) -> String {
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]).current_dir(folder).envs(variables);
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{script}\n{said}");
    said
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The play: artifacts, replaced programs, and a checkout for each job.
struct Play {
    world: tempfile::TempDir,
}

impl Play {
    fn new() -> Self {
        let world = tempfile::tempdir().unwrap();
        let programs = world.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        for name in PROGRAMS {
            let path = programs.join(name);
            std::fs::write(&path, PROGRAM).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { world }
    }

    /// What a checkout has, as far as the scripts look at it, and the programs that the compiler leaves there.
    fn checkout(&self, name: &str) -> PathBuf {
        let folder = self.world.path().join(name);
        std::fs::create_dir_all(folder.join(".ci")).unwrap();
        let copied = "cp -a LICENSE README.md CHANGELOG.md Cargo.toml config docs systemd deploy";
        shell(root(), &format!("{copied} {0} && cp .ci/packages .ci/book {0}/.ci", folder.display()), &[].into());
        for name in ["rpm-config", "run"] {
            symlink(self.world.path().join("bin").join(name), folder.join(".ci").join(name)).unwrap();
        }
        for target in ["x86_64", "aarch64"] {
            let built = folder.join(format!("target/{target}-unknown-linux-musl/dist"));
            std::fs::create_dir_all(&built).unwrap();
            std::fs::copy(self.world.path().join("bin/run"), built.join("alicloud-ccm")).unwrap();
        }
        let examples = folder.join("target/debug/examples");
        std::fs::create_dir_all(&examples).unwrap();
        symlink(self.world.path().join("bin/run"), examples.join("package")).unwrap();
        folder
    }

    /// Runs the steps of a job; `matrix` are the values of this run of it.
    fn job(&self, name: &str, job: &Value, matrix: &Value) {
        let folder = self.checkout(&format!("{name}-{}", text(&matrix["architecture"])));
        let outputs = folder.join("outputs");
        let world = self.world.path().display();
        let mut variables: BTreeMap<String, String> = [
            ("PATH", format!("{world}/bin:{}", std::env::var("PATH").unwrap())),
            ("WORLD", world.to_string()),
            ("PLAYED", VERSION.to_owned()),
            ("GITHUB_OUTPUT", outputs.display().to_string()),
            ("GITHUB_REF_NAME", format!("v{VERSION}")),
            ("GITHUB_REPOSITORY", "Owner/Name".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let expression = Regex::new(r"\$\{\{ ([\w.-]+) \}\}").unwrap();
        let filled = |text: &str| {
            let set = std::fs::read_to_string(&outputs).unwrap_or_default();
            let value = |found: &regex::Captures<'_>| match found[1].rsplit_once('.').unwrap() {
                ("matrix", key) => matrix[key].as_str().unwrap().to_owned(),
                ("steps.names.outputs", key) => {
                    set.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap().to_owned()
                }
                (_, key) => key.to_owned(),
            };
            expression.replace_all(text, value).into_owned()
        };
        for (key, value) in job["env"].as_object().into_iter().flatten() {
            variables.insert(key.clone(), filled(text(value)));
        }
        for step in job["steps"].as_array().unwrap() {
            let place = folder.join(text(&step["working-directory"]));
            let with = |key: &str| filled(text(&step["with"][key]));
            let artifacts = format!("{world}/artifacts");
            let script = match text(&step["uses"]).split('@').next().unwrap() {
                "" => filled(text(&step["run"])),
                "actions/upload-artifact" => {
                    let (path, to) = (with("path"), format!("{artifacts}/{}", with("name")));
                    let path = if place.join(&path).is_dir() { path + "/*" } else { path };
                    format!("mkdir -p {to} && cp -r {path} {to}")
                }
                "actions/download-artifact" => {
                    assert_eq!(step["with"]["merge-multiple"], true);
                    format!("mkdir -p {0} && cp -r {artifacts}/{1}/* {0}", with("path"), with("pattern"))
                }
                _ => continue,
            };
            shell(&place, &script, &variables);
        }
    }
}

/// Plays every job after those that it needs; gives the world.
fn played() -> Play {
    let workflow = std::fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let workflow = documents(&workflow).remove(0);
    let play = Play::new();
    let mut waiting: Vec<_> = workflow["jobs"].as_object().unwrap().iter().collect();
    let mut done: Vec<&str> = Vec::new();
    while !waiting.is_empty() {
        let needs = |job: &Value| match &job["needs"] {
            Value::Array(names) => names.iter().map(|name| text(name).to_owned()).collect(),
            Value::String(name) => vec![name.clone()],
            _ => Vec::new(),
        };
        let ready = waiting.iter().position(|(_, job)| needs(job).iter().all(|name| done.contains(&name.as_str())));
        let (name, job) = waiting.remove(ready.expect("a job can run"));
        let once = [json!({})];
        let runs = job["strategy"]["matrix"]["include"].as_array().map_or(&once[..], Vec::as_slice);
        runs.iter().for_each(|matrix| play.job(name, job, matrix));
        done.push(name);
    }
    play
}

#[test]
fn a_release_has_what_its_jobs_make_and_what_the_readme_installs() {
    let play = played();
    let released = std::fs::read_to_string(play.world.path().join("released")).unwrap();
    let files: Vec<_> = released.lines().filter_map(|line| line.strip_prefix("out/")).collect();
    let files: Vec<_> = files.iter().map(|name| name.replace(VERSION, "VERSION")).collect();
    expect![[r#"
        SHA256SUMS
        alicloud-ccm-VERSION-aarch64.cdx.json
        alicloud-ccm-VERSION-aarch64.tar.gz
        alicloud-ccm-VERSION-docs.tar.gz
        alicloud-ccm-VERSION-x86_64.cdx.json
        alicloud-ccm-VERSION-x86_64.tar.gz
        alicloud-ccm-VERSION.aarch64.rpm
        alicloud-ccm-VERSION.tgz
        alicloud-ccm-VERSION.x86_64.rpm
        alicloud-ccm_VERSION_amd64.deb
        alicloud-ccm_VERSION_arm64.deb
        alicloud.yaml"#]]
    .assert_eq(&files.join("\n"));
    let pages = ["README.md", "docs/guides/systemd.md"].map(|page| std::fs::read_to_string(root().join(page)).unwrap());
    let named = Regex::new(r"alicloud-ccm[-_]VERSION[\w.-]*\.(deb|rpm|tar\.gz)").unwrap();
    let named: Vec<_> = pages.iter().flat_map(|page| named.find_iter(page)).map(|found| found.as_str()).collect();
    assert!(named.len() >= 5 && named.iter().all(|name| files.iter().any(|file| file == name)), "{named:?}");

    let out = play.world.path().join("release-/out");
    let checked = shell(&out, "sha256sum --check SHA256SUMS", &[].into());
    assert_eq!(checked.lines().count(), files.len() - 1, "{checked}");
    let manifest = std::fs::read_to_string(out.join("alicloud.yaml")).unwrap();
    let plugin = documents(&manifest).remove(0);
    assert_eq!(krew_refuses(&plugin), None, "{manifest}");
    for platform in plugin["spec"]["platforms"].as_array().unwrap() {
        krew_installs(platform, &out);
    }
}

/// What krew has against a manifest: the rules of `internal/index/validation` of krew 0.4.4 and 0.5.0.
fn krew_refuses(plugin: &Value) -> Option<String> {
    let is = |pattern: &str, value: &Value| Regex::new(pattern).unwrap().is_match(text(value));
    let spec = &plugin["spec"];
    let platforms = spec["platforms"].as_array().map_or(&[][..], Vec::as_slice);
    let of_platform = |platform: &Value| {
        let files = platform["files"].as_array().map_or(&[][..], Vec::as_slice);
        let labels = platform["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
        let clean =
            |path: &str| path == "." || !path.is_empty() && !path.split('/').any(|it| ["", ".", ".."].contains(&it));
        let wrong = [
            ("uri", !is("^https://", &platform["uri"])),
            ("sha256", !is("^[a-f0-9]{64}$", &platform["sha256"])),
            ("bin", text(&platform["bin"]).is_empty()),
            (
                "files",
                files.is_empty() || files.iter().any(|it| text(&it["from"]).is_empty() || !clean(text(&it["to"]))),
            ),
            ("selector", labels.is_empty() || labels.keys().any(|key| key != "os" && key != "arch")),
        ];
        wrong.into_iter().find(|(_, is_wrong)| *is_wrong).map(|(field, _)| field)
    };
    let wrong = [
        ("apiVersion", plugin["apiVersion"] != "krew.googlecontainertools.github.com/v1alpha2"),
        ("kind", plugin["kind"] != "Plugin"),
        ("name", !is(r"^[\w-]+$", &plugin["metadata"]["name"])),
        ("shortDescription", !is(r"^[^\r\n]+$", &spec["shortDescription"])),
        ("version", !is(r"^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$", &spec["version"])),
        ("platforms", platforms.is_empty()),
    ];
    let wrong = wrong.into_iter().find(|(_, is_wrong)| *is_wrong).map(|(field, _)| field);
    wrong.or_else(|| platforms.iter().find_map(of_platform)).map(str::to_owned)
}

/// What krew does with the archive of a platform: it unpacks files and folders, moves those that the patterns name, and links the
/// program. It refuses links in an archive.
fn krew_installs(platform: &Value, out: &Path) {
    let archive = out.join(text(&platform["uri"]).rsplit('/').next().unwrap());
    let sum = shell(out, &format!("sha256sum {}", archive.display()), &[].into());
    assert!(sum.starts_with(text(&platform["sha256"])), "{sum}");
    let folder = tempfile::tempdir().unwrap();
    let listed = shell(folder.path(), &format!("tar -tvzf {}", archive.display()), &[].into());
    let others: Vec<_> = listed.lines().filter(|line| !line.starts_with(['-', 'd'])).collect();
    assert!(others.is_empty(), "krew unpacks neither: {others:?}");
    let mut script = format!("tar -xzf {}; mkdir installed", archive.display());
    for moved in platform["files"].as_array().unwrap() {
        script += &format!("; test -e {0}; mv {0} installed/{1}", text(&moved["from"]), text(&moved["to"]));
    }
    shell(folder.path(), &format!("{script}; test -x installed/{}", text(&platform["bin"])), &[].into());
}

#[test]
fn krew_would_refuse_a_manifest_that_lacks_something() {
    let manifest = std::fs::read_to_string(root().join("deploy/krew/alicloud.yaml")).unwrap();
    let filled = manifest.replace("VERSION", "1.2.3").replace("SHA256_X86_64", &"a".repeat(64));
    let plugin = |text: &str| krew_refuses(&documents(text)[0]);
    assert_eq!(plugin(&manifest), Some("version".to_owned()), "it is a template");
    assert_eq!(plugin(&filled), Some("sha256".to_owned()));
    let filled = filled.replace("SHA256_AARCH64", &"b".repeat(64));
    assert_eq!(plugin(&filled), None);
    for (from, to, field) in [
        ("v1alpha2", "v1", "apiVersion"),
        ("to: .", "to: ./", "files"),
        ("{os: linux, arch: amd64}", "{system: linux}", "selector"),
        ("name: alicloud\n", "name: ali.cloud\n", "name"),
    ] {
        assert!(filled.contains(from), "{from}");
        assert_eq!(plugin(&filled.replace(from, to)), Some(field.to_owned()));
    }
}
