//! The Services in `docs/examples`: each is applied, gets its load balancer without a warning, and is in sync then.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sim::cloud::Protocol;
use sim::cluster::Endpoint;

use crate::documents::blocks;
use crate::golden::NAMESPACE;
use crate::harness::World;
use crate::nlb_golden;
use crate::permissions::documents;

/// What the files name by example, and what it is called in the simulated cloud.
const NAMES: &[(&str, &str)] = &[
    ("lb-bp1example", "lb-user-1"),
    ("lb-bp2example", "lb-user-2"),
    ("lb-bp3example", "lb-user-3"),
    ("rsp-bp3example", "rsp-user-1"),
    ("vsw-bp1example", "vsw-exam-i"),
    ("vsw-bp2example", "vsw-exam-j"),
    ("eip-bp1example", "eip-exam-1"),
    ("eip-bp2example", "eip-exam-2"),
    ("acl-bp1example", "acl-exam-1"),
    ("1234567890_example_", "cert-exam-"),
    ("12345678-cn-hangzhou", "cert-exam-1"),
];

/// The one way for gateways of which no file is an example.
const PODS_BEHIND_CLB: &str = "traefik-clb-pods";

/// The pods of each Service: one on a node, two on another.
fn pods() -> [Endpoint; 3] {
    let pods = [("192.168.64.11", "node-1"), ("192.168.64.21", "node-2"), ("192.168.64.22", "node-2")];
    pods.map(|(ip, node)| Endpoint::ready(ip.parse().unwrap(), node))
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{files:?}");
    files
}

/// The Services of all files and pages, the quick start's among them, with the names of the simulated cloud.
fn services() -> Vec<Value> {
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let named = |text: String| NAMES.iter().fold(text, |text, (example, name)| text.replace(example, name));
    let pages = blocks().into_iter().filter(|block| block.language == "yaml").map(|block| block.text);
    let texts = files().iter().map(text).chain(pages).map(named).collect::<Vec<_>>();
    let objects = texts.iter().flat_map(|text| documents(text));
    let mut services: Vec<Value> = objects.filter(|object| object["spec"]["type"] == "LoadBalancer").collect();
    for service in &mut services {
        service["metadata"]["namespace"] = NAMESPACE.into();
    }
    // The pages in Chinese have the same ones.
    services.sort_by_key(|service| service["metadata"]["name"].as_str().map(str::to_owned));
    services.dedup();
    assert!(services.iter().any(|service| service["metadata"]["name"] == "hello"), "the quick start has none");
    let network = services.iter().find(|service| service["metadata"]["name"] == "traefik-nlb").unwrap();
    let mut classic = network.clone();
    classic["metadata"]["name"] = PODS_BEHIND_CLB.into();
    classic["spec"].as_object_mut().unwrap().remove("loadBalancerClass");
    services.push(classic);
    services
}

#[test]
fn the_linter_finds_nothing_in_the_examples() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_alicloud-ccm")).env_clear().arg("lint").args(files()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains(" 0 errors, 0 warnings."), "{text}");
}

#[test]
fn every_example_is_on_the_page_of_examples() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/examples.md")).unwrap();
    for file in files() {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            page.contains(&format!("](../examples/{name})")),
            "docs/guides/examples.md does not link ../examples/{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_gets_its_load_balancer_without_a_warning() {
    let one = "\"cn-hangzhou-i:vsw-exam-i\"";
    let two = "\"cn-hangzhou-i:vsw-exam-i\", \"cn-hangzhou-j:vsw-exam-j\"";
    let (world, ccm) = nlb_golden::open_with(|config| config.replace(one, two)).await;
    let services = services();
    for service in &services {
        let name = service["metadata"]["name"].as_str().unwrap();
        world.testbed.cluster.create(service.clone()).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
        world.testbed.cluster.set_endpoints(NAMESPACE, name, &pods()).unwrap();
    }
    for service in &services {
        let name = service["metadata"]["name"].as_str().unwrap();
        world.until(&format!("{name} is served"), |_| is_served(&world, name)).await;
        let events = world.events("Service", name);
        let warnings: Vec<_> = events.iter().filter(|(kind, ..)| kind == "Warning").collect();
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
    }
    world.until_in_sync().await;
    the_cloud_has_what_the_page_of_gateways_says(&world).await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// What the cloud has of a listener.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    product: &'static str,
    scheduler: String,
    /// Whether backends see the addresses from which connections come.
    keeps_addresses: bool,
    proxy_protocol: bool,
    check: String,
    /// Seconds.
    drain: Option<i64>,
    /// Instances, or addresses of pods, with their weights.
    backends: Vec<(String, u8)>,
}

/// What the cloud has of the listeners of a Service, which is the same of each.
fn seen(world: &World, name: &str) -> Seen {
    let service = world.testbed.cluster.get("Service", NAMESPACE, name).unwrap();
    let ingress = service["status"]["loadBalancer"]["ingress"][0].clone();
    let check = |kind: &str, port: i64| if kind == "HTTP" { format!("HTTP {port}") } else { kind.to_owned() };
    let backend = |kind: &str, id: &str, ip: &str, weight| {
        (if kind.eq_ignore_ascii_case("eni") { ip } else { id }.to_owned(), weight)
    };
    let mut all: Vec<(i64, Seen)> = world.testbed.cloud.look(|cloud| {
        if let Some(host) = ingress["hostname"].as_str() {
            let found = cloud.nlb.balancers.values().find(|it| it.dns == host).unwrap();
            let listeners = found.listeners.values().map(|listener| {
                let group = &cloud.nlb.groups[&listener.group];
                let servers = group.servers.iter().map(|it| backend(&it.kind, &it.id, &it.ip, it.weight));
                let seen = Seen {
                    product: "NLB",
                    scheduler: group.scheduler.clone(),
                    keeps_addresses: group.preserve_client_ip,
                    proxy_protocol: listener.proxy_protocol,
                    check: check(&group.health.kind, group.health.connect_port),
                    drain: group.drain_enabled.then_some(group.drain_timeout),
                    backends: servers.collect(),
                };
                (i64::from(listener.port), seen)
            });
            return listeners.collect();
        }
        let address = ingress["ip"].as_str().unwrap();
        let found = cloud.load_balancers.values().find(|it| it.address == address).unwrap();
        let listeners = found.listeners.iter().map(|((port, protocol), listener)| {
            let text = |key: &str| {
                listener.config.get(key).map(|it| it.to_string().trim_matches('"').to_uppercase()).unwrap_or_default()
            };
            let number = |key: &str| text(key).parse().ok();
            let is_on = |key: &str| ["ON", "TRUE"].contains(&text(key).as_str());
            let group = &found.groups[&listener.group];
            let backends = group.backends.iter().map(|it| backend(&it.kind, &it.server_id, &it.server_ip, it.weight));
            let seen = Seen {
                product: "CLB",
                scheduler: listener.scheduler.clone(),
                keeps_addresses: *protocol == Protocol::Tcp,
                proxy_protocol: is_on("ProxyProtocolV2Enabled"),
                check: check(&text("HealthCheckType"), number("HealthCheckConnectPort").unwrap_or(0)),
                drain: is_on("ConnectionDrain").then(|| number("ConnectionDrainTimeout").unwrap()),
                backends: backends.collect(),
            };
            (i64::from(*port), seen)
        });
        listeners.collect()
    });
    all.sort_by_key(|(port, _)| *port);
    let asked = service["spec"]["ports"].as_array().unwrap().iter().map(|port| port["port"].as_i64().unwrap());
    assert_eq!(all.iter().map(|(port, _)| *port).collect::<Vec<_>>(), asked.collect::<Vec<_>>(), "{name}");
    assert!(all.iter().all(|(_, seen)| *seen == all[0].1), "{name}: {all:?}");
    all[0].1.clone()
}

/// The cells of a row, by what the cloud has before and while the pod of a node terminates.
fn cells(name: &str, before: &Seen, after: &Seen) -> Vec<String> {
    let has = |seen: &Seen, backends: &[&str]| {
        let mut found: Vec<&str> = seen.backends.iter().map(|(id, _)| id.as_str()).collect();
        found.sort_unstable();
        found == backends
    };
    let weight = |seen: &Seen, of: &str| seen.backends.iter().find(|(id, _)| id == of).map(|(_, weight)| *weight);
    let (backends, kept) = if has(before, &["192.168.64.11", "192.168.64.21", "192.168.64.22"]) {
        ("pods", "no node in between")
    } else if has(before, &["i-d-1", "i-d-2"]) {
        let [one, two] = ["i-d-1", "i-d-2"].map(|node| weight(before, node).unwrap());
        assert!(before.scheduler == "wrr" && one.abs_diff(two / 2) <= 1, "{name}: by pods: {before:?}");
        assert!(has(after, &["i-d-2"]), "{name}: a node without a pod that is ready: {after:?}");
        ("nodes with a pod", "kept by `Local`")
    } else {
        assert!(before.backends.len() > 3 && before.backends == after.backends, "{name}: {before:?} {after:?}");
        ("every node", "")
    };
    let addresses = if before.proxy_protocol { "PROXY protocol" } else { kept };
    assert!(before.proxy_protocol || before.keeps_addresses, "{name}: the load balancer hides them: {before:?}");
    let end = match (before.drain, weight(after, "192.168.64.11")) {
        (Some(seconds), _) => format!("drained for {seconds} s"),
        (None, Some(0)) => "weight 0 while a pod ends".to_owned(),
        (None, _) => "not drained".to_owned(),
    };
    vec![before.product.to_owned(), backends.to_owned(), addresses.to_owned(), before.check.clone(), end]
}

async fn the_cloud_has_what_the_page_of_gateways_says(world: &World) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = std::fs::read_to_string(root.join("guides/gateways.md")).unwrap();
    let rows = page.lines().filter(|line| line.contains("](../examples/"));
    let mut rows: Vec<(String, Vec<&str>)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let file = cells[0].split("](../").nth(1).unwrap().trim_end_matches(')');
            let service = documents(&std::fs::read_to_string(root.join(file)).unwrap()).remove(0);
            let port = service["spec"]["healthCheckNodePort"].as_i64().map(|port| format!("HTTP {port}"));
            assert!(port.is_none_or(|port| cells[4] == port), "{row}");
            let is_local = service["spec"]["externalTrafficPolicy"] == "Local";
            assert_eq!(is_local, cells[3] == "kept by `Local`", "{row}");
            (service["metadata"]["name"].as_str().unwrap().to_owned(), cells[1..].to_vec())
        })
        .collect();
    assert!(rows.len() >= 8, "{rows:?}");
    let pods_behind_clb = ["CLB", "pods", "no node in between", "TCP", "weight 0 while a pod ends"];
    rows.push((PODS_BEHIND_CLB.to_owned(), pods_behind_clb.to_vec()));
    let ways: BTreeSet<_> = rows.iter().map(|(_, cells)| (cells[0], cells[2])).collect();
    assert_eq!(ways.len(), 6, "each way with each product: {ways:?}");

    let before: Vec<Seen> = rows.iter().map(|(name, _)| seen(world, name)).collect();
    let [first, others @ ..] = pods();
    let ending: Vec<Endpoint> = std::iter::once(first.terminating()).chain(others).collect();
    for (name, _) in &rows {
        world.testbed.cluster.set_endpoints(NAMESPACE, name, &ending).unwrap();
    }
    world.until_quiet(Duration::from_secs(1)).await;
    for ((name, said), before) in rows.iter().zip(&before) {
        assert_eq!(cells(name, before, &seen(world, name)), *said, "{name}");
    }
}

/// One cell of the page is one cell of the page in Chinese, wherever it stands.
#[test]
fn the_page_of_gateways_has_the_same_table_in_chinese() {
    let [english, chinese] = ["docs/guides/gateways.md", "docs/zh/guides/gateways.md"].map(|page| {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let cells = rows.flat_map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace("../", "")));
        cells.collect::<Vec<_>>()
    });
    assert_eq!(english.len(), chinese.len());
    let pairs: BTreeSet<_> = english.iter().zip(&chinese).collect();
    let (english, chinese): (BTreeSet<_>, BTreeSet<_>) = pairs.iter().copied().unzip();
    assert!(pairs.len() == english.len() && pairs.len() == chinese.len(), "{pairs:?}");
}

/// What the page says to set in the values of a gateway's chart is what the file of its Service has.
#[test]
fn the_settings_of_gateways_are_those_of_their_examples() {
    let mut compared = 0;
    for page in ["docs/guides/gateways.md", "docs/zh/guides/gateways.md"] {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        for section in text.split("\n## ").skip(1) {
            let gateway = section.lines().next().unwrap().to_lowercase().replace(' ', "-");
            let examples = files().into_iter().filter(|file| file.to_str().unwrap().contains(&format!("/{gateway}")));
            let examples: String = examples.map(|file| std::fs::read_to_string(file).unwrap()).collect();
            let asked = ["service.beta.kubernetes.io/", "externalTrafficPolicy:", "loadBalancerClass:"];
            let lines = section.lines().map(|line| line.trim_start_matches([' ', '#']));
            for line in lines.filter(|line| asked.iter().any(|key| line.starts_with(key))) {
                assert!(examples.lines().any(|it| it.trim() == line), "{page}: {gateway}: {line}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 12);
}

fn is_served(world: &World, name: &str) -> bool {
    let service = world.testbed.cluster.get("Service", NAMESPACE, name).unwrap();
    let published = service["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty());
    let ensured = |(_, reason, _): &(String, String, String)| reason == "EnsuredLoadBalancer";
    published && world.events("Service", name).iter().any(ensured)
}
