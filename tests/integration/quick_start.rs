//! The quick start, followed step by step: its files as they are, and the output that it promises.

use std::process::Command;

use serde_json::Value;
use sim::cluster::{Endpoint, NodeSpec};
use sim::testbed::instance;

use crate::documents::{Block, blocks, command_line};
use crate::harness::{World, address, is_ready};
use crate::permissions::documents;

/// What the page calls its machines, and what the testbed calls them.
const NAMES: [(&str, &str); 5] = [
    ("i-bp1example", "i-play-1"),
    ("i-bp2example", "i-play-2"),
    ("master-1", "node-1"),
    ("worker-1", "node-2"),
    ("192.168.0.2", "192.168.16.2"),
];
/// What others than the program set on a control plane node, and take away.
const TAINTS_OF_OTHERS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node.kubernetes.io/not-ready"];

/// The blocks of the page in this language, in the names of the testbed.
fn page(language: &str) -> Vec<Block> {
    let named = |text: &str| NAMES.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    let blocks = blocks().into_iter().filter(|block| block.place.starts_with("docs/guides/kubeadm.md"));
    let blocks = blocks.filter(|block| block.language == language);
    blocks.map(|block| Block { text: named(&block.text), ..block }).collect()
}

/// Each command that begins like this, with the lines that the page shows as its output.
fn printed(beginning: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for block in page("console") {
        let mut is_sought = false;
        for line in block.text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                is_sought = command.starts_with(beginning);
                if is_sought {
                    found.push((command.to_owned(), String::new()));
                }
            } else if let Some((_, output)) = found.last_mut().filter(|_| is_sought) {
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    assert!(!found.is_empty(), "the page has no {beginning}");
    found
}

/// The output of the only command that begins like this.
fn output(beginning: &str) -> String {
    let mut found = printed(beginning);
    assert_eq!(found.len(), 1, "{beginning}: {found:?}");
    found.remove(0).1
}

/// A column as `kubectl get -o custom-columns` prints it.
fn column(object: &Value, path: &str) -> String {
    let mut found = vec![object];
    for part in path.trim_start_matches('.').split('.') {
        let (name, index) = part.split_once('[').unwrap_or((part, ""));
        let one = |value: &Value| value.get(index.trim_end_matches(']').parse::<usize>().unwrap()).is_some();
        found = found.into_iter().filter_map(|value| value.get(name)).collect();
        found = match index {
            "" => found,
            "*]" => found.into_iter().flat_map(|value| value.as_array().into_iter().flatten()).collect(),
            _ => found.into_iter().filter(|value| one(value)).map(|value| &value[0]).collect(),
        };
    }
    let words = found.into_iter().filter_map(Value::as_str).filter(|word| !TAINTS_OF_OTHERS.contains(word));
    let words: Vec<_> = words.collect();
    if words.is_empty() { "<none>".to_owned() } else { words.join(",") }
}

/// What `kubectl get nodes` prints by the columns of this command, as words.
fn nodes(world: &World, command: &str) -> Vec<Vec<String>> {
    let (_, columns) = command.split_once("custom-columns=").unwrap();
    let columns: Vec<_> = columns.split(',').map(|column| column.split_once(':').unwrap()).collect();
    let mut nodes = world.testbed.cluster.list("Node");
    nodes.sort_by_key(|node| node["metadata"]["name"].to_string());
    let rows = nodes.iter().map(|node| columns.iter().map(|(_, path)| column(node, path)).collect());
    [columns.iter().map(|(name, _)| (*name).to_owned()).collect()].into_iter().chain(rows).collect()
}

/// The table of the page without the taints of others, as words.
fn words(output: &str) -> Vec<Vec<String>> {
    let word = |word: &str| {
        let ours: Vec<_> = word.split(',').filter(|taint| !TAINTS_OF_OTHERS.contains(taint)).collect();
        if ours.is_empty() { "<none>".to_owned() } else { ours.join(",") }
    };
    output.lines().map(|line| line.split_whitespace().map(word).collect()).collect()
}

/// The file of the page, as a reader completes it, with the addresses of the testbed.
fn file(world: &World) -> String {
    let cloud = world.testbed.cloud_address();
    let products: String =
        ["ecs", "vpc", "slb", "nlb", "sts"].iter().map(|product| format!("{product} = \"{cloud}\"\n")).collect();
    let text = page("toml").remove(0).text.replace("change-me", "quick-start");
    format!(
        "{text}\n[cloud.endpoints]\nscheme = \"http\"\n{products}metadata = \"http://{cloud}\"\n\n[kubernetes]\nkubeconfig = \
         \"kubeconfig\"\n\n[server]\nport = 0\n"
    )
}

/// Region, VPC, vSwitch and credentials are those of the instance on which the program runs.
async fn rights(world: &World) {
    let role = output("curl -s http://100.100.100.200/latest/meta-data/ram").trim_end().to_owned();
    world.testbed.rent(1);
    world.testbed.cloud.edit(|cloud| {
        cloud.metadata.instance = Some(instance(1));
        cloud.metadata.role = Some(role);
    });
    let file = file(world);
    world.rewrite(|_| file);
    let checked = world.run(&["check"]).await;
    assert!(String::from_utf8(checked.stdout).unwrap().ends_with(&output("alicloud-ccm check")));
}

/// The node of the control plane joins as kubeadm makes it, and has to wait.
async fn control_plane(world: &World, table: &(String, String)) {
    let metadata = format!("http://{}", world.testbed.cloud_address());
    let id = world.run(&["kubelet-args", "--metadata", &metadata, "--host-name", "none"]).await;
    let id = String::from_utf8(id.stdout).unwrap();
    assert_eq!(id, output("alicloud-ccm kubelet-args --host-name none"));
    let master = NodeSpec::new("node-1")
        .provider_id(id.trim_end().strip_prefix("--provider-id=").unwrap())
        .label("node-role.kubernetes.io/control-plane", "")
        .label("node.kubernetes.io/exclude-from-external-load-balancers", "");
    world.testbed.cluster.join_node(&master).unwrap();
    assert_eq!(nodes(world, &table.0), words(&table.1));
}

/// The Service gets a private address, and the worker as its only backend.
async fn service(world: &World) {
    let objects: Vec<_> = page("yaml").iter().flat_map(|block| documents(&block.text)).collect();
    let service = objects.into_iter().find(|object| object["kind"] == "Service").unwrap();
    world.testbed.cluster.create(service).unwrap();
    let pod = Endpoint::ready("10.244.1.2".parse().unwrap(), "node-2");
    world.testbed.cluster.set_endpoints("default", "hello", &[pod]).unwrap();
    world.until("the Service has an address", |_| address(&world.service("hello")).is_some()).await;
    assert!(address(&world.service("hello")).unwrap().starts_with("192.168."), "{}", world.service("hello"));
    let message = world.until_event("Service", "hello", "EnsuredLoadBalancer").await;
    let event = output("kubectl describe service hello");
    let promised = event.trim_end().trim_end_matches("...");
    assert!(format!("Normal  EnsuredLoadBalancer  {message}").starts_with(promised), "{promised}: {message}");
    let made = world.testbed.cloud.look(|cloud| format!("{:?}", cloud.load_balancers));
    assert!(made.contains(&instance(2)) && !made.contains(&instance(1)), "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_leads_to_a_service_with_an_address_and_back() {
    let world = World::new(&["node", "service"], "").await;
    let tables = printed("kubectl get nodes");
    let [tainted, initialised, joined, ..] = tables.as_slice() else { panic!("{tables:?}") };
    rights(&world).await;
    control_plane(&world, tainted).await;

    let ccm = world.start();
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    let line = output("kubectl -n kube-system logs");
    assert!(ccm.log().contains(line.trim_start_matches("INFO ").split('"').next().unwrap()), "{line}: {}", ccm.log());
    let plan = output("kubectl -n kube-system exec ds/alicloud-ccm -- /alicloud-ccm plan");
    assert_eq!(world.plan().await, (plan, Some(0)));
    assert_eq!(nodes(&world, &initialised.0), words(&initialised.1));

    // The worker has no provider id, and its kubelet reports no address.
    world.testbed.rent(2);
    world.testbed.cluster.join_node(&NodeSpec::new("node-2")).unwrap();
    world.until("the worker is initialised", |_| is_ready(&world.node("node-2"))).await;
    assert_eq!(nodes(&world, &joined.0), words(&joined.1));

    service(&world).await;
    world.testbed.cluster.delete("Service", "default", "hello").unwrap();
    world.until("the Service is gone", |_| world.service("hello").is_null()).await;
    let gc = world.run(&["gc"]).await;
    assert_eq!(String::from_utf8(gc.stdout).unwrap(), output("alicloud-ccm gc"));
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// The playground has Services of its own: README's would change one of the same name instead of making one.
#[test]
fn the_first_service_of_readme_is_new_in_the_playground() {
    let playground = include_str!("../playground/scenario.rs");
    for readme in ["README.md", "docs/zh/README.md"] {
        let manifest = blocks().into_iter().find(|it| it.place.starts_with(readme) && it.language == "yaml").unwrap();
        let service = documents(&manifest.text).remove(0);
        let name = service["metadata"]["name"].as_str().unwrap();
        assert!(!playground.contains(&format!("\"{name}\"")), "{readme}: {name}");
    }
}

/// Who follows a page of the installation from top to bottom has each file before it is asked for, and no command refuses it.
#[test]
fn every_file_of_an_installation_is_there_when_it_is_asked_for() {
    for page in ["README.md", "docs/zh/README.md", "docs/guides/systemd.md", "docs/zh/guides/systemd.md"] {
        let folder = tempfile::tempdir().unwrap();
        let blocks = || blocks().into_iter().filter(|block| block.place.split(':').next() == Some(page));
        let file =
            blocks().find(|block| block.language == "toml").unwrap_or_else(|| panic!("{page}: no configuration"));
        let text = file.text.replace("change-me", "one").replace("\n# kubernetes.", "\nkubernetes.");
        assert!(
            text.contains("\nkubernetes.kubeconfig = \"kubeconfig\"\n"),
            "{page}: a host needs a kubeconfig: {text}"
        );
        // The cluster's own, which the kubeconfig of the guide names.
        let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(folder.path().join("ca.crt"), authority.cert.pem()).unwrap();
        let path = folder.path().join("alicloud-ccm.toml");
        std::fs::write(&path, text).unwrap();
        let (mut is_installed, mut tried) = (false, 0);
        let blocks: Vec<_> = blocks().filter(|block| block.language == "console").collect();
        for line in blocks.iter().flat_map(|block| block.text.lines()) {
            if line.starts_with("install ") && line.contains(" /etc/alicloud-ccm/") {
                // Of README, the guide makes it.
                let is_made = folder.path().join("kubeconfig").exists() || page.ends_with("README.md");
                assert!(is_made || !line.contains(" kubeconfig "), "{page}: {line}");
                is_installed = true;
            }
            let Some(words) = command_line(line).filter(|words| ["check", "ram-policy", "rbac"].contains(&words[0]))
            else {
                continue;
            };
            let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
            command.env_clear().args(&words).current_dir(folder.path());
            let default = is_installed.then_some(&path);
            let output = command.envs(default.map(|path| ("ALICLOUD_CCM_CONFIG", path))).output().unwrap();
            assert!(output.status.success(), "{page}: {line}: {}", String::from_utf8_lossy(&output.stderr));
            if let Some((_, name)) = line.split_once(" > ") {
                std::fs::write(folder.path().join(name.trim()), output.stdout).unwrap();
            }
            tried += 1;
        }
        assert!(tried >= 2, "{page}: {tried}");
    }
}
