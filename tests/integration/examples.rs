//! The Services in `docs/examples`: each is applied, gets its load balancer without a warning, and is in sync then.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sim::cluster::Endpoint;

use crate::documents::blocks;
use crate::golden::NAMESPACE;
use crate::harness::World;
use crate::network_golden;
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
    let (world, ccm) = network_golden::open_with(|config| config.replace(one, two)).await;
    let services = services();
    for service in &services {
        let name = service["metadata"]["name"].as_str().unwrap();
        world.testbed.cluster.create(service.clone()).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
        let pod = |ip: &str, node: &str| Endpoint::ready(ip.parse().unwrap(), node);
        let pods = [pod("192.168.64.11", "node-1"), pod("192.168.64.21", "node-2")];
        world.testbed.cluster.set_endpoints(NAMESPACE, name, &pods).unwrap();
    }
    for service in &services {
        let name = service["metadata"]["name"].as_str().unwrap();
        world.until(&format!("{name} is served"), |_| is_served(&world, name)).await;
        let events = world.events("Service", name);
        let warnings: Vec<_> = events.iter().filter(|(kind, ..)| kind == "Warning").collect();
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
    }
    world.until_quiet(Duration::from_secs(1)).await;
    assert_eq!(world.plan().await, ("Nothing to do.\n".to_owned(), Some(0)));
    the_cloud_has_what_the_page_of_gateways_says(&world);
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

/// Product, kind of backends, PROXY protocol and health check of a Service, as the rows of the page have them.
fn seen(world: &World, name: &str) -> Vec<String> {
    let service = world.testbed.cluster.get("Service", NAMESPACE, name).unwrap();
    let ingress = service["status"]["loadBalancer"]["ingress"][0].clone();
    let check = |kind: &str, port: i64| if kind == "HTTP" { format!("HTTP {port}") } else { kind.to_owned() };
    let backends = |kinds: Vec<String>| {
        let pods = kinds.iter().filter(|kind| kind.eq_ignore_ascii_case("eni")).count();
        let backends = match (pods, kinds.len()) {
            (2, 2) => "pods",
            (0, 2) => "nodes with a pod",
            (0, 4..) => "every node",
            _ => panic!("{name}: {kinds:?}"),
        };
        backends.to_owned()
    };
    let row = |product: &str, backends, proxy: bool, check| {
        vec![product.to_owned(), backends, if proxy { "PROXY protocol" } else { "" }.to_owned(), check]
    };
    world.testbed.cloud.look(|cloud| {
        if let Some(host) = ingress["hostname"].as_str() {
            let found = cloud.nlb.balancers.values().find(|it| it.dns == host).unwrap();
            let rows = found.listeners.values().map(|listener| {
                let group = &cloud.nlb.groups[&listener.group];
                let kinds = group.servers.iter().map(|server| server.kind.clone()).collect();
                row(
                    "NLB",
                    backends(kinds),
                    listener.proxy_protocol,
                    check(&group.health.kind, group.health.connect_port),
                )
            });
            return one(name, rows.collect());
        }
        let address = ingress["ip"].as_str().unwrap();
        let found = cloud.load_balancers.values().find(|it| it.address == address).unwrap();
        let rows = found.listeners.values().map(|listener| {
            let kinds = found.groups[&listener.group].backends.iter().map(|backend| backend.kind.clone()).collect();
            let text = |key: &str| {
                listener.config.get(key).map(|it| it.to_string().trim_matches('"').to_uppercase()).unwrap_or_default()
            };
            let proxy = ["ON", "TRUE"].contains(&text("ProxyProtocolV2Enabled").as_str());
            let port = text("HealthCheckConnectPort").parse().unwrap_or(0);
            row("CLB", backends(kinds), proxy, check(&text("HealthCheckType"), port))
        });
        one(name, rows.collect())
    })
}

/// What is the same of both listeners.
fn one(name: &str, mut rows: Vec<Vec<String>>) -> Vec<String> {
    assert_eq!(rows.len(), 2, "{name}");
    rows.dedup();
    assert_eq!(rows.len(), 1, "{name}: {rows:?}");
    rows.remove(0)
}

fn the_cloud_has_what_the_page_of_gateways_says(world: &World) {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/gateways.md")).unwrap();
    let rows: Vec<_> = page.lines().filter(|line| line.contains("](../examples/")).collect();
    assert!(rows.len() >= 8, "{rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let file = cells[0].split("](../").nth(1).unwrap().trim_end_matches(')');
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file)).unwrap();
        let name = documents(&text)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let mut said: Vec<String> = cells[1..].iter().map(|cell| (*cell).to_owned()).collect();
        if said[2] != "PROXY protocol" {
            said[2].clear();
        }
        assert_eq!(seen(world, &name), said, "{file}");
    }
}

fn is_served(world: &World, name: &str) -> bool {
    let service = world.testbed.cluster.get("Service", NAMESPACE, name).unwrap();
    let published = service["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty());
    let ensured = |(_, reason, _): &(String, String, String)| reason == "EnsuredLoadBalancer";
    published && world.events("Service", name).iter().any(ensured)
}
