//! Rules of the source and of the documentation that the compiler cannot check; `src/lib.rs` lists those of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use alicloud_ccm::alibaba::actions;

use crate::documents;
use crate::module_graph::{self, Graph, Module};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every source file below a folder, with its path relative to the repository and its text without comments.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code =
                    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
                found.push((path.strip_prefix(root()).unwrap().to_owned(), code));
            }
        }
    }
    assert!(!found.is_empty(), "no source in {folder}");
    found
}

/// Whether the text has the phrase, not as a part of a longer name.
fn names(text: &str, phrase: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase).any(|(at, found)| {
        let after = &text[at + found.len()..];
        let goes_on = phrase.ends_with(part_of_name) && after.starts_with(part_of_name);
        !goes_on && !text[..at].ends_with(part_of_name)
    })
}

/// `file: phrase` for every phrase that a file names.
fn offences<'a>(files: impl IntoIterator<Item = &'a (PathBuf, String)>, phrases: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    for (path, text) in files {
        offences.extend(
            phrases.iter().filter(|phrase| names(text, phrase)).map(|phrase| format!("{}: {phrase}", path.display())),
        );
    }
    offences
}

fn outside<'a>(files: &'a [(PathBuf, String)], folder: &str) -> Vec<&'a (PathBuf, String)> {
    let root = Path::new(folder).with_extension("rs");
    let (inside, outside): (Vec<_>, Vec<_>) =
        files.iter().partition(|(path, _)| path.starts_with(folder) || *path == root);
    assert!(!inside.is_empty(), "{folder} is gone; this rule guards nothing");
    outside
}

const NONE: [&str; 0] = [];

/// Which modules a module may name, besides those below it: the first row that fits counts. A new module at the top needs a
/// row, and a row that fits nothing has to go.
///
/// `commands` and `app` wire everything; `controllers` stand on `alibaba` and `cluster`, these on `plan`. `config` is for all
/// but `plan`. The leaves, for all but `plan`, are `clock`, `jitter`, `interner`, `fence`, `telemetry::traces`, `telemetry::activity`,
/// `telemetry::metrics`, `telemetry::alarms` and `telemetry::tasks`.
const ARROWS: &[(&str, &[&str])] = &[
    ("plan", &[]),
    ("clock", &[]),
    ("jitter", &[]),
    ("interner", &[]),
    ("fence", &["clock"]),
    ("telemetry::traces", &[]),
    ("telemetry::activity", &["telemetry::traces"]),
    ("telemetry::metrics", &["telemetry::activity"]),
    ("telemetry::alarms", &["clock", "telemetry::metrics"]),
    ("telemetry::tasks", &["clock", "telemetry::metrics"]),
    ("config", &["plan"]),
    ("telemetry", &["config", "telemetry"]),
    ("alibaba", &["plan", "config", "clock", "jitter", "fence", "telemetry::activity", "telemetry::metrics"]),
    // The cluster decides who may read what telemetry serves.
    (
        "cluster",
        &[
            "plan",
            "config",
            "clock",
            "jitter",
            "interner",
            "fence",
            "telemetry::activity",
            "telemetry::metrics",
            "telemetry::tasks",
            "telemetry::auth",
        ],
    ),
    (
        "controllers",
        &[
            "alibaba",
            "cluster",
            "plan",
            "config",
            "clock",
            "jitter",
            "interner",
            "fence",
            "telemetry::activity",
            "telemetry::metrics",
            "telemetry::alarms",
        ],
    ),
    ("supervisor", &["controllers", "config", "telemetry::metrics", "telemetry::tasks"]),
    ("reload", &["supervisor", "controllers::registry", "config"]),
    ("cli", &["controllers::registry", "plan"]),
    (
        "app",
        &["reload", "supervisor", "controllers", "alibaba", "cluster", "plan", "config", "telemetry", "fence", "clock"],
    ),
    ("commands", &["app", "cli", "controllers", "alibaba", "cluster", "plan", "config", "telemetry", "fence"]),
];

/// Arrows that close a circle inside of a folder and still have to go, as `from -> to`. Nothing may be added here.
const CIRCLES_TO_OPEN: &[&str] = &[];

fn within(module: &str, prefix: &str) -> bool {
    module.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn arrows_point_one_way() {
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for (module, named) in module_graph::read(&root().join("src")) {
        let module = module.join("::");
        let Some(row) = ARROWS.iter().position(|(prefix, _)| within(&module, prefix)) else {
            wrong.push(format!("{module} has no row"));
            continue;
        };
        used.insert(row);
        let (own, allowed) = ARROWS[row];
        for named in named.iter().map(|named| named.join("::")) {
            if !within(&named, own) && !allowed.iter().any(|prefix| within(&named, prefix)) {
                wrong.push(format!("{module} -> {named}"));
            }
        }
    }
    assert_eq!(wrong, NONE);
    let idle: Vec<_> = (0..ARROWS.len()).filter(|row| !used.contains(row)).map(|row| ARROWS[row].0).collect();
    assert_eq!(idle, NONE, "rows about modules that are gone");
}

/// The circles at the top and inside of each folder, without the arrows `without`.
fn circles(graph: &Graph, without: &[&str]) -> Vec<String> {
    let parents = graph.keys().flat_map(|module| (0..module.len()).map(|length| module[..length].to_vec()));
    let folders: BTreeSet<Module> = parents.collect();
    let mut found = Vec::new();
    for folder in folders {
        let name = |child: &String| [folder.as_slice(), std::slice::from_ref(child)].concat().join("::");
        let mut edges = module_graph::children(graph, &folder);
        for (from, to) in &mut edges {
            to.retain(|to| !without.contains(&format!("{} -> {}", name(from), name(to)).as_str()));
        }
        found.extend(
            module_graph::circles(&edges).iter().map(|circle| circle.iter().map(&name).collect::<Vec<_>>().join(", ")),
        );
    }
    found
}

#[test]
fn no_circle_closes() {
    let graph = module_graph::read(&root().join("src"));
    assert_eq!(circles(&graph, CIRCLES_TO_OPEN), NONE);
    for arrow in CIRCLES_TO_OPEN {
        let others: Vec<_> = CIRCLES_TO_OPEN.iter().copied().filter(|other| other != arrow).collect();
        assert_ne!(circles(&graph, &others), NONE, "{arrow} closes no circle any more: take it off the list");
    }
}

#[test]
fn plans_do_no_io() {
    let io = [
        "tokio",
        "kube",
        "reqwest",
        "hyper",
        "hyper_util",
        "tracing",
        "std::fs",
        "std::net::TcpStream",
        "std::process",
    ];
    let source = sources("src/plan");
    let product =
        source.iter().filter(|(path, _)| !path.ends_with("tests.rs") && !path.iter().any(|part| part == "tests"));
    assert_eq!(offences(product, &io), NONE);
}

#[test]
fn only_one_place_knows_the_vendor_and_only_one_the_client() {
    let source = sources("src");
    let actions: Vec<String> = actions::ALL.iter().map(|action| format!("\"{}\"", action.name)).collect();
    assert!(actions.len() > 30, "{actions:?}");
    let actions: Vec<&str> = actions.iter().map(String::as_str).collect();
    let beyond = outside(&source, "src/alibaba");
    // Tests may spell out what users write into policies and into the configuration.
    let is_test = |path: &std::path::Path| path.ends_with("tests.rs") || path.iter().any(|part| part == "tests");
    let product = beyond.iter().copied().filter(|(path, _)| !is_test(path));
    assert_eq!(offences(product, &actions), NONE);
    assert_eq!(offences(beyond.iter().copied(), &["reqwest"]), NONE);
    assert_eq!(offences(outside(&source, "src/cluster"), &["kube::"]), NONE);
}

/// Where a controller is named besides its own modules, as `src/controllers/registry.rs` says: their declarations, its row, its
/// section.
const PLACES: [&str; 6] = [
    "src/controllers.rs",
    "src/plan.rs",
    "src/controllers/registry.rs",
    "src/config/file.rs",
    "src/config/rules.rs",
    "src/config/checked.rs",
];
/// Where a product of the cloud is named besides, with the actions of a controller.
const PRODUCT_PLACES: [&str; 4] =
    ["src/alibaba.rs", "src/alibaba/actions.rs", "src/alibaba/endpoints.rs", "src/alibaba/errors/codes.rs"];

#[test]
fn a_controller_takes_no_more_places_than_the_registry_says() {
    let volumes = (&["volume_labels", "VolumeLabels", "volume-labels"][..], "volume", Vec::new());
    let names = (&["pvtz", "Pvtz", "PrivateZone"][..], "pvtz", PRODUCT_PLACES.to_vec());
    let source = sources("src");
    for (words, own, beyond) in [volumes, names] {
        let is_own = |path: &Path| path.iter().any(|part| Path::new(part).file_stem().is_some_and(|stem| stem == own));
        let is_test = |path: &Path| path.ends_with("tests.rs") || path.iter().any(|part| part == "tests");
        let named = |text: &str| {
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            words.iter().any(|word| product.contains(word))
        };
        let others = source.iter().filter(|(path, text)| !is_own(path) && !is_test(path) && named(text));
        let places: BTreeSet<_> = others.map(|(path, _)| path.to_str().unwrap()).collect();
        let expected: BTreeSet<_> = PLACES.into_iter().chain(beyond).collect();
        assert_eq!(places.difference(&expected).collect::<Vec<_>>(), [&""; 0], "{own} is named in more places");
    }
    let guide = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    for place in PLACES.iter().chain(&PRODUCT_PLACES) {
        assert!(guide.contains(&format!("`{place}`")), "CONTRIBUTING.md does not name {place}");
    }
}

/// Names of the types that a text declares, at any depth; not those that a trait or its implementation fills in.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start_matches("    ");
        let line = match line.strip_prefix("pub") {
            Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
            None => line,
        };
        let rest = ["struct ", "enum ", "trait "].iter().find_map(|word| line.strip_prefix(word))?;
        rest.split(|c: char| !c.is_alphanumeric()).next().filter(|name| !name.is_empty())
    })
}

/// The load balancer products, and what they share, have the same words for the same parts.
const ROOMS: [&str; 3] = ["clb", "nlb", "loadbalancer"];

#[test]
fn a_type_name_stands_for_one_thing() {
    let mut places: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    let source = sources("src");
    let is_test = |path: &Path| path.ends_with("tests.rs") || path.iter().any(|part| part == "tests");
    for (path, text) in source.iter().filter(|(path, _)| !is_test(path)) {
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let parts = path.iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
        let room = ROOMS.into_iter().find(|room| parts.clone().any(|part| part == *room)).unwrap_or("");
        for name in declared(product) {
            let place = path.display().to_string();
            places.entry((name.to_owned(), room)).or_default().push(place);
        }
    }
    let mut doubled: Vec<_> = places.iter().filter(|(_, places)| places.len() > 1).collect();
    let names: Vec<_> = places.keys().collect();
    let also_elsewhere = |(name, room): &(String, &str)| {
        room.is_empty() && names.iter().any(|(other, room)| other == name && !room.is_empty())
    };
    doubled.extend(places.iter().filter(|(key, _)| also_elsewhere(key)));
    assert!(doubled.is_empty(), "{doubled:#?}");
    assert!(places.len() > 500, "{}", places.len());
}

/// A watch retries for ever, and a command has no log in which it says so.
#[test]
fn a_command_waits_for_no_list_without_a_limit() {
    let source = sources("src");
    let of_commands = |path: &PathBuf| path.starts_with("src/commands") || path.ends_with("orphans.rs");
    assert_eq!(offences(source.iter().filter(|(path, _)| of_commands(path)), &["synced"]), NONE);
    let previews = source.iter().filter(|(path, _)| path.starts_with("src/controllers"));
    let previews = previews.filter_map(|(path, text)| {
        let body = text.split("\npub async fn plan(").nth(1)?.split("\n}").next()?;
        Some((path.clone(), body.to_owned()))
    });
    let previews: Vec<_> = previews.collect();
    assert_eq!(previews.len(), 5, "one for each file with a preview");
    assert_eq!(offences(&previews, &["synced"]), NONE);
}

#[test]
fn the_wall_clock_is_read_in_one_place() {
    let source = sources("src");
    let clocks = ["Timestamp::now", "Zoned::now", "SystemTime::now", "Utc::now"];
    assert_eq!(offences(outside(&source, "src/clock.rs"), &clocks), NONE);
    assert_eq!(offences(source.iter().filter(|(path, _)| path.ends_with("clock.rs")), &clocks).len(), 1);
}

/// Users look a line up by its code: that of the event beside it, or one of its own.
#[test]
fn every_warning_and_error_in_the_log_has_a_code_that_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/reference/events.md")).unwrap();
    let (_, lines) = page.split_once("\n## Lines of the log\n").unwrap();
    let is_explained = |code: &str| page.contains(&format!("| {code} |"));
    let macros =
        regex::Regex::new(r#"\b(?:warn|error)!\(\s*(?:code = (?:"(ACCM\d{4})"|(event_code\(reason\))),)?"#).unwrap();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for (path, text) in sources("src").iter().filter(|(path, _)| !path.iter().any(|part| part == "tests")) {
        let product = text.split("#[cfg(test)]").next().unwrap();
        for found in macros.captures_iter(product) {
            match (found.get(1), found.get(2)) {
                (Some(code), _) if is_explained(code.as_str()) => drop(used.insert(code.as_str().to_owned())),
                (None, Some(_)) => {}
                _ => wrong.push(format!("{}: {}", path.display(), found[0].trim())),
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "without a code that docs/reference/events.md explains");
    let own = lines.lines().filter_map(|line| line.strip_prefix("| ACCM")).map(|row| format!("ACCM{}", &row[..4]));
    let unused: Vec<_> = own.filter(|code| !used.contains(code)).collect();
    assert_eq!(unused, Vec::<String>::new(), "no line of the log has these any more");
}

#[test]
fn the_entry_point_is_short_and_no_module_is_a_drawer() {
    let source = sources("src");
    let main = source.iter().find(|(path, _)| path.ends_with("main.rs")).unwrap();
    assert!(main.1.lines().count() < 100);
    for (path, _) in &source {
        for drawer in ["util", "utils", "common", "helper", "helpers", "manager"] {
            assert!(path.iter().all(|part| Path::new(part).file_stem().unwrap() != drawer), "{}", path.display());
        }
    }
}

#[test]
fn the_top_level_is_what_people_look_for() {
    let listed = Command::new("git").args(["ls-files"]).current_dir(root()).output();
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else {
        // Without git, as in an unpacked archive, the folder itself is what was handed out; builds add `target`.
        return assert_eq!(
            unexpected(std::fs::read_dir(root()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap())),
            NONE
        );
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(unexpected(listed.lines().map(|path| path.split('/').next().unwrap().to_owned())), NONE);
}

/// Names at the top that are neither hidden nor expected.
fn unexpected(names: impl Iterator<Item = String>) -> Vec<String> {
    const EXPECTED: [&str; 19] = [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Dockerfile",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "benches",
        "clippy.toml",
        "config",
        "deny.toml",
        "deploy",
        "docs",
        "fuzz",
        "rust-toolchain.toml",
        "rustfmt.toml",
        "src",
        "systemd",
        "tests",
    ];
    let mut names: Vec<_> =
        names.filter(|name| !name.starts_with('.') && name != "target" && !EXPECTED.contains(&name.as_str())).collect();
    names.sort();
    names.dedup();
    names
}

/// Packages of a release build, as `name version`.
fn packages() -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "alicloud-ccm", "--edges", "normal", "--prefix", "none", "--offline", "--locked"])
        .args(["--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let mut packages: Vec<_> = text.lines().filter(|line| !line.is_empty()).map(package).collect();
    packages.sort();
    packages.dedup();
    packages
}

#[test]
fn one_tls_stack_one_toml_parser_and_nothing_of_the_tests() {
    let packages = packages();
    let versions = |name: &str| packages.iter().filter(|package| package.split(' ').next() == Some(name)).count();
    for one in ["rustls", "ring", "toml", "hyper", "tokio", "kube-client"] {
        assert_eq!(versions(one), 1, "{one}: {packages:?}");
    }
    for none in [
        "openssl",
        "openssl-sys",
        "native-tls",
        "aws-lc-rs",
        "aws-lc-sys",
        "toml_edit",
        "boring",
        "sim",
        "expect-test",
        "proptest",
    ] {
        assert_eq!(versions(none), 0, "{none}");
    }
}

/// The anchor that a heading gets, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Targets of the links in a page, outside of code.
fn links(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split(')').next()).collect()
}

/// The pages of the documentation, from the root of the package.
fn pages() -> Vec<PathBuf> {
    documents::pages(&["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "config"])
}

#[test]
fn files_that_the_documentation_names_exist() {
    let folders = ["src/", "tests/", "docs/", "config/", "deploy/", "systemd/", "fuzz/"];
    let mut missing = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        let named =
            text.split('`').skip(1).step_by(2).filter(|name| folders.iter().any(|folder| name.starts_with(folder)));
        // Placeholders are in capitals.
        let named = named.filter(|name| !name.contains("NAME") && !name.contains(' '));
        missing
            .extend(named.filter(|name| !root().join(name).exists()).map(|name| format!("{}: {name}", page.display())));
    }
    assert_eq!(missing, NONE);
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let mut count = 0;
    let mut broken = Vec::new();
    for page in &pages() {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            count += 1;
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.with_file_name("").join(path) };
            let Ok(target) = root().join(target).canonicalize() else {
                broken.push(format!("{}: {link}", page.display()));
                continue;
            };
            let headings = || std::fs::read_to_string(&target).unwrap_or_default();
            let is_there = heading.is_empty()
                || headings()
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line.trim_start_matches(['#', ' '])) == heading);
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(broken, NONE);
    assert!(count > 30, "{count} links");
}
