//! What a reader of the documentation copies works: files are accepted, manifests are objects, command lines exist.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use alicloud_ccm::controllers::registry::CATALOG;
use clap::CommandFactory as _;
use expect_test::expect_file;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::deploy::schemas::Table;
use crate::permissions::documents;

/// The pages that version 0.1.0 named in its output, its manifests and its examples, as `docs/PAGE`.
const PRINTED: [&str; 9] = [
    "events.md",
    "kubeadm.md",
    "migration.md",
    "monitoring.md",
    "permissions.md",
    "routes.md",
    "running.md",
    "safety.md",
    "troubleshooting.md",
];

/// A fenced block: page, line, language, text.
pub(crate) struct Block {
    pub(crate) place: String,
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The pages that these are, and those in these folders and below, from the root of the package.
pub(crate) fn pages(from: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = from.iter().map(PathBuf::from).collect();
    while let Some(path) = left.pop() {
        if root.join(&path).is_dir() {
            left.extend(
                std::fs::read_dir(root.join(&path)).unwrap().map(|entry| path.join(entry.unwrap().file_name())),
            );
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(crate) fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for page in pages(&["README.md", "docs", "config"]) {
        let text = std::fs::read_to_string(root.join(&page)).unwrap();
        let mut open: Option<(Block, usize)> = None;
        for (number, line) in text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(language)) => {
                    let place = format!("{}:{}", page.display(), number + 1);
                    let indent = line.len() - line.trim_start().len();
                    open = Some((Block { place, language: language.to_owned(), text: String::new() }, indent));
                }
                (Some((block, indent)), None) => {
                    block.text.push_str(line.get(*indent..).unwrap_or_default());
                    block.text.push('\n');
                }
                (Some(_), Some(_)) => found.extend(open.take().map(|(block, _)| block)),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", page.display());
    }
    found
}

fn of_language(language: &str) -> Vec<Block> {
    let found: Vec<_> = blocks().into_iter().filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "no block of {language}");
    found
}

fn binary(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm")).env_clear().args(arguments).output().unwrap();
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// The folders that files name, with what is in them.
pub(crate) fn furnish(folder: &Path) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (name, text) in [
        ("tls.crt", cert.pem()),
        ("tls.key", signing_key.serialize_pem()),
        ("access-key-id", "LTAIkey".to_owned()),
        ("access-key-secret", "secret".to_owned()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn files_of_the_program_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    furnish(folder.path());
    let file = folder.path().join("alicloud-ccm.toml");
    for Block { place, text, .. } in of_language("toml") {
        let here = folder.path().to_str().unwrap();
        let text = ["/etc/alicloud-ccm-tls", "/etc/alicloud-ccm-keys", "/etc/alicloud-ccm"]
            .iter()
            .fold(text, |text, path| text.replace(path, here));
        std::fs::write(&file, &text).unwrap();
        // Readers are told to state their own id, and excerpts leave it out.
        let checked = binary(&["check", "--config", file.to_str().unwrap(), "--set", "cloud.cluster_id=one"]);
        checked.unwrap_or_else(|said| panic!("{place}: {said}"));
    }
}

/// The objects in the documentation and in its examples.
pub(crate) fn objects() -> Vec<serde_json::Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let files = files.map(|path| std::fs::read_to_string(path).unwrap());
    let texts = files.chain(of_language("yaml").into_iter().map(|block| block.text));
    texts.flat_map(|text| documents(&text)).collect()
}

#[test]
fn manifests_and_other_files_can_be_read() {
    for Block { place, text, .. } in of_language("yaml") {
        for object in documents(&text) {
            assert!(object.is_object(), "{place}: {object}");
            let (version, kind) = (object.get("apiVersion"), object.get("kind"));
            assert_eq!(version.is_some(), kind.is_some(), "{place}: {object}");
        }
    }
    for Block { place, text, .. } in of_language("json") {
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
}

/// Of <https://github.com/kubernetes/kubernetes/blob/1329935739c3aa007d23cb9a4dadfee9d59ff79b/cmd/kubeadm/app/apis/kubeadm/v1beta4/types.go>,
/// as far as the quick start uses it.
const KUBEADM: &str = "versions v1beta4
InitConfiguration apiVersion str! v1beta4-v1beta4
InitConfiguration kind str! v1beta4-v1beta4
InitConfiguration nodeRegistration NodeRegistration v1beta4-v1beta4
NodeRegistration kubeletExtraArgs list[Arg] v1beta4-v1beta4
NodeRegistration name str v1beta4-v1beta4
Arg name str! v1beta4-v1beta4
Arg value str! v1beta4-v1beta4
ClusterConfiguration apiVersion str! v1beta4-v1beta4
ClusterConfiguration kind str! v1beta4-v1beta4
ClusterConfiguration controlPlaneEndpoint str v1beta4-v1beta4
ClusterConfiguration controllerManager ControlPlaneComponent v1beta4-v1beta4
ClusterConfiguration kubernetesVersion str v1beta4-v1beta4
ClusterConfiguration networking Networking v1beta4-v1beta4
ControlPlaneComponent extraArgs list[Arg] v1beta4-v1beta4
Networking dnsDomain str v1beta4-v1beta4
Networking podSubnet str v1beta4-v1beta4
Networking serviceSubnet str v1beta4-v1beta4
JoinConfiguration apiVersion str! v1beta4-v1beta4
JoinConfiguration kind str! v1beta4-v1beta4
JoinConfiguration discovery Discovery! v1beta4-v1beta4
JoinConfiguration nodeRegistration NodeRegistration v1beta4-v1beta4
Discovery bootstrapToken BootstrapToken v1beta4-v1beta4
BootstrapToken apiServerEndpoint str! v1beta4-v1beta4
BootstrapToken caCertHashes list[str] v1beta4-v1beta4
BootstrapToken token str! v1beta4-v1beta4
";

/// Files of k3s and RKE2 by the comment above them, and the keys of the quick start that the program knows: every key is a flag,
/// and one that is none stops it (<https://github.com/rancher/rke2-docs/issues/142>).
const RANCHER: [(&str, &[&str]); 4] = [
    ("# /etc/rancher/k3s/config.yaml of servers", &["disable", "disable-cloud-controller", "kubelet-arg"]),
    ("# /etc/rancher/k3s/config.yaml of agents", &["server", "token", "kubelet-arg"]),
    ("# /etc/rancher/rke2/config.yaml of servers", &["cloud-provider-name", "disable-cloud-controller", "kubelet-arg"]),
    ("# /etc/rancher/rke2/config.yaml of agents", &["server", "token", "cloud-provider-name", "kubelet-arg"]),
];

#[test]
fn kubeadm_k3s_and_rke2_know_the_keys_of_the_quick_start() {
    let table = Table::read(KUBEADM);
    let (mut wrong, mut judged) = (BTreeSet::new(), 0);
    let blocks = of_language("yaml").into_iter().filter(|block| block.place.starts_with("docs/guides/"));
    let texts: Vec<_> = blocks.map(|block| block.text).collect();
    for object in texts.iter().flat_map(|text| documents(text)) {
        if object["apiVersion"].as_str().is_some_and(|version| version.starts_with("kubeadm.k8s.io/")) {
            table.judge(0, object["kind"].as_str().unwrap(), &object, &mut wrong);
            judged += 1;
        }
    }
    assert!(judged >= 3 && wrong.is_empty(), "{judged}: {wrong:?}");
    for (file, known) in RANCHER {
        let text = texts.iter().find(|text| text.starts_with(file)).unwrap_or_else(|| panic!("{file} is not there"));
        for key in documents(text)[0].as_object().unwrap().keys() {
            assert!(known.contains(&key.as_str()), "{file}: {key} is no flag of that program");
        }
    }
}

/// The file of the collector names what it has: each part of a pipeline is configured, and it takes what the program sends.
#[test]
fn the_collector_of_the_manual_takes_traces() {
    let blocks = of_language("yaml").into_iter().filter(|block| block.text.starts_with("# otel-collector.yaml"));
    let collectors: Vec<_> = blocks.flat_map(|block| documents(&block.text)).collect();
    assert!(!collectors.is_empty(), "the file is not there");
    for collector in collectors {
        let pipeline = &collector["service"]["pipelines"]["traces"];
        for part in ["receivers", "processors", "exporters"] {
            let used = pipeline[part].as_array().unwrap_or_else(|| panic!("{part}: {pipeline}"));
            let used: BTreeSet<_> = used.iter().filter_map(serde_json::Value::as_str).collect();
            let configured: BTreeSet<_> = collector[part].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(used, configured, "{part}");
        }
        let endpoint = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"].as_str().unwrap();
        assert!(endpoint.ends_with(":4318"), "{endpoint}");
    }
}

/// The arguments of the program in one line of a shell, up to what the shell does with its output.
pub(crate) fn command_line(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start_matches("$ ").split("  #").next().unwrap_or_default();
    let start = line.find("alicloud-ccm ").filter(|at| *at == 0 || line[..*at].ends_with("-- /"))?;
    let words = line[start..].split_whitespace().skip(1);
    let words: Vec<_> = words.take_while(|word| !matches!(*word, "|" | ">" | "&" | "&&" | ";")).collect();
    Some(words)
}

#[test]
fn command_lines_of_the_program_exist() {
    let mut tried = 0;
    for language in ["console", "sh"] {
        for Block { place, text, .. } in blocks().into_iter().filter(|block| block.language == language) {
            for words in text.lines().filter_map(command_line) {
                // What follows `--` is not for this program.
                let own = words.iter().copied().take_while(|word| *word != "--");
                let arguments: Vec<_> = own.chain(["--help"]).collect();
                binary(&arguments).unwrap_or_else(|said| panic!("{place}: {words:?}: {said}"));
                tried += 1;
            }
        }
    }
    assert!(tried > 12, "{tried}");
}

/// The commands of a block; where some lines have a prompt, the others are what is printed.
fn commands(block: &Block) -> String {
    let prompted: Vec<_> = block.text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    if prompted.is_empty() { block.text.clone() } else { prompted.join("\n") }
}

/// Each block goes through a shell in which every program does nothing, but kubectl, which judges its arguments.
#[test]
fn a_shell_and_kubectl_understand_every_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let kubectl = Command::new("sh").args(["-c", "command -v kubectl"]).output().unwrap();
    let kubectl = String::from_utf8(kubectl.stdout).unwrap();
    let judge =
        if kubectl.is_empty() { ":".to_owned() } else { format!("{} \"${{words[@]}}\" --help", kubectl.trim()) };
    let program = env!("CARGO_BIN_EXE_alicloud-ccm");
    // Its plugin is this program. Help is asked for before `--`, behind which the words are not kubectl's; oc has the same commands.
    let shell = format!(
        "set -eo pipefail; PATH=/nowhere EDITOR=editor\ncommand_not_found_handle() {{ :; }}\nkubectl() {{\n  \
         if [ \"$1\" = alicloud ]; then shift; {program} \"$@\" --help >/dev/null; return; fi\n  local word words=()\n  \
         for word; do [ \"$word\" = -- ] && break; words+=(\"$word\"); done\n  {judge} >/dev/null\n}}\noc() {{ kubectl \"$@\"; }}\n"
    );
    let mut tried = 0;
    for block in blocks().iter().filter(|block| ["console", "sh"].contains(&block.language.as_str())) {
        let commands = commands(block);
        assert!(!commands.contains("> /"), "{}: it would write there", block.place);
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-c", &format!("{shell}{commands}")]);
        let output = command.current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{}: {commands}\n{said}", block.place);
        tried += commands.matches("kubectl ").count();
    }
    assert!(tried > 20, "{tried}");
}

/// Every statement about another program has its source at a fixed commit, and this program has what is said of it.
#[test]
fn the_comparison_has_sources_and_is_true_of_this_program() {
    let page = include_str!("../../docs/explanation/comparison.md");
    let source = regex::Regex::new(r"\]\(https://github\.com/[\w-]+/[\w-]+/(blob|tree)/[0-9a-f]{40}").unwrap();
    let (mut statements, mut own) = (0, String::new());
    for table in page.split("\n\n").filter(|part| part.starts_with("| ")) {
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.trim_matches('|').split(" | ").collect()).collect();
        for (row, first) in rows[2..].iter().map(|row| (row, row[0])) {
            // The programs are in the first column of one table, and in the head of the other.
            for (cell, head) in row.iter().zip(&rows[0]).skip(1) {
                if first.contains("alicloud-ccm") || head.contains("alicloud-ccm") {
                    own.push_str(cell);
                    continue;
                }
                let is_sourced = source.is_match(cell) || first.contains("](https://") && source.is_match(first);
                assert!(is_sourced, "no source: {first}: {cell}");
                statements += 1;
            }
        }
    }
    assert!(statements >= 20, "{statements}");

    let schema = include_str!("../../config/schema.json");
    let keys = include_str!("../../docs/reference/configuration.md");
    let commands = alicloud_ccm::cli::Cli::command();
    let mut named = own.split('`').skip(1).step_by(2).peekable();
    assert!(named.peek().is_some(), "{own}");
    for name in named {
        let is_command = |word: &str| commands.get_subcommands().any(|command| command.get_name() == word);
        let is_known = name == "alibabacloud.com/nlb"
            || keys.contains(&format!("| `{name}` |"))
            || name.split(' ').next().is_some_and(is_command);
        assert!(is_known, "this program has no {name}");
    }
    // What the newest release gained is here, where the page says so.
    let (_, gained) = page.split_once("## The official controller, v2.15.0").unwrap();
    let annotations = include_str!("../../docs/reference/annotations.md");
    let named: Vec<_> = gained.split('`').skip(1).step_by(2).collect();
    assert!(named.len() >= 3, "{gained}");
    for name in named {
        let is_command = commands.get_subcommands().any(|command| command.get_name() == name);
        assert!(is_command || annotations.contains(&format!("| `{name}` |")), "this program has no {name}");
    }
    for (claim, controller) in [("Classic", "service"), ("Network", "nlb"), ("route tables", "route")] {
        assert!(own.contains(claim) && schema.contains(&format!("\"{controller}\"")), "{claim}");
    }
    assert!(!CATALOG.controllers.iter().any(|entry| ["alb", "ingress"].contains(&entry.name)), "and no ALB");
    assert!(
        own.contains("1.8 and newer")
            && include_str!("../../docs/reference/versions.md").contains("Kubernetes 1.8 and newer")
    );
}

/// What users of the official controller have asked again and again has a section of its own, in both languages.
#[test]
fn frequent_questions_have_sections() {
    for (page, heading, answer) in [
        ("troubleshooting.md", "`REGION.ID`", "--hostname-override"),
        ("troubleshooting.md", "`uninitialized`", "node.cloudprovider.kubernetes.io/uninitialized"),
        ("troubleshooting.md", "`NetworkUnavailable`", "NoRouteCreated"),
        ("openshift.md", "`--provider-id`", "openshift/origin/issues/22337"),
        ("troubleshooting.md", "CPU", "perf record"),
        ("troubleshooting.md", "zone|可用区", "volume-labels"),
        ("troubleshooting.md", "autoscaler", "ToBeDeletedByClusterAutoscaler"),
    ] {
        for folder in ["docs/guides", "docs/zh/guides"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(page);
            let text = std::fs::read_to_string(&path).unwrap();
            let named =
                |title: &str| heading.split('|').any(|word| title.to_lowercase().contains(&word.to_lowercase()));
            let mut sections = text.split("\n## ").skip(1).filter(|section| named(section.lines().next().unwrap()));
            assert!(sections.any(|section| section.contains(answer)), "{}: {heading}: {answer}", path.display());
        }
    }
}

/// The book shows what its summary lists, and the pages there in the order in which they are read.
#[test]
fn every_page_is_in_the_book_once() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<&str> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    listed.sort_unstable();
    let mut pages: Vec<String> =
        pages(&["docs"]).iter().map(|page| page.to_str().unwrap()["docs/".len()..].to_owned()).collect();
    pages.retain(|page| page != "SUMMARY.md" && !stubs().iter().any(|(stub, _)| stub == page));
    assert_eq!(listed, pages, "docs/SUMMARY.md lists each page of docs");
    for page in &pages {
        let (index, page) =
            page.strip_prefix("zh/").map_or(("README.md", page.as_str()), |page| ("zh/README.md", page));
        let text = std::fs::read_to_string(docs.join(index)).unwrap();
        assert!(page == "README.md" || text.contains(&format!("]({page})")), "docs/{index} does not lead to {page}");
    }
}

/// Pages whose text leads on to where they are now: page from `docs`, and the page that it leads to, from the same folder.
pub(crate) fn stubs() -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut stubs = Vec::new();
    for folder in ["", "zh/"] {
        for entry in std::fs::read_dir(docs.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "README.md" && name != "SUMMARY.md" {
                let text = std::fs::read_to_string(docs.join(folder).join(&name)).unwrap();
                let target = text.split("](").nth(1).and_then(|rest| rest.split(')').next());
                assert!(text.lines().count() == 1, "docs/{folder}{name} is a page, and stands on no shelf");
                stubs.push((format!("{folder}{name}"), target.unwrap_or_default().to_owned()));
            }
        }
    }
    stubs.sort();
    stubs
}

/// What a released program or manifest printed, and the addresses of the book, still lead to the page.
#[test]
fn old_links_lead_on() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let book: toml::Table = toml::from_str(&std::fs::read_to_string(docs.join("book.toml")).unwrap()).unwrap();
    let redirects = book["output"]["html"]["redirect"].as_table().unwrap();
    assert!(redirects.len() >= 30, "{redirects:?}");
    for (from, to) in redirects {
        let (from, _heading) = from.split_once('#').unwrap_or((from, ""));
        let old = docs.join(from.trim_start_matches('/')).with_extension("md");
        let page = old.with_file_name(to.as_str().unwrap().replace(".html", ".md"));
        assert!(page.exists(), "{from} leads to {to}, which is no page");
        // Whoever reads the repository gets no redirect.
        assert!(stubs().iter().any(|(stub, _)| old.ends_with(stub)), "{from}: {} does not lead on", old.display());
    }
    for (stub, page) in stubs() {
        let name = stub.trim_end_matches(".md");
        let to = redirects.get(&format!("/{name}.html")).and_then(toml::Value::as_str).unwrap_or_default();
        assert_eq!(to, page.replace(".md", ".html"), "docs/{stub} and the book lead to one page");
        assert!(docs.join(&stub).with_file_name(&page).exists(), "docs/{stub} leads to {page}, which is no page");
    }
    let stubs: BTreeSet<_> = stubs().into_iter().map(|(stub, _)| stub).collect();
    let missing: Vec<_> = PRINTED.iter().filter(|page| !stubs.contains(**page)).collect();
    assert!(missing.is_empty(), "version 0.1.0 printed docs/{missing:?}");
}

/// Whether a page has this text between the two marks with a name.
fn assert_part_is_current(page: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    expect_file![path].assert_eq(&format!("{before}{begin}{text}{end}{after}"));
}

/// What `--help` says of each command stands on the page of commands.
#[test]
fn the_page_of_commands_is_current() {
    let mut text = String::new();
    let mut cli = alicloud_ccm::cli::Cli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
        let _ = writeln!(text, "### `{}`\n\n{}.\n", command.get_name(), about.trim_end_matches('.'));
        let arguments: Vec<_> =
            command.get_arguments().filter(|it| !it.is_global_set() && it.get_id() != "help").collect();
        if !arguments.is_empty() {
            text.push_str("| Argument | What it does |\n|---|---|\n");
        }
        for argument in &arguments {
            let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
            let values = argument.get_possible_values();
            let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
            let shown = argument.to_string().replace('|', "\\|");
            let _ = writeln!(text, "| `{shown}` | {}{values} |", help.trim_end_matches('.'));
        }
        if !arguments.is_empty() {
            text.push('\n');
        }
    }
    assert_part_is_current("docs/reference/commands.md", "commands", &text);
}

#[test]
fn the_page_says_on_what_each_action_of_the_simulated_cloud_rests() {
    assert_part_is_current("docs/evidence/conformance.md", "basis", &format!("\n{}\n", sim::cloud::basis_table()));
}
