//! The scenario: nodes join, a Service of each kind is exposed, a node leaves, the Services go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sim::cloud::Call;
use sim::cluster::Endpoint;
use sim::testbed::{ROUTE_TABLE, Testbed, instance};

use super::more;
use super::product::{self, Product};

/// The product's log, in the folder of the scenario.
pub(crate) const LOG: &str = "alicloud-ccm.log";
const PATIENCE: Duration = Duration::from_secs(60);
/// Shorter than the defaults, which are made for real clusters, so that the scenario is short.
const HASTE: &str = r#"period = "10s"
removal_grace = "10s"
removal_interval = "5s"
"#;

/// Controllers of the scenario, and those that take part in the whole one.
const CONTROLLERS: [&str; 4] = ["node", "route", "service", "nlb"];
const MORE_CONTROLLERS: [&str; 2] = ["volume-labels", "pvtz"];

/// How much is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// With every controller.
    pub(crate) all: bool,
    /// Keeps running until Ctrl-C before the end.
    pub(crate) serve: bool,
}

/// Prints one line, or several.
pub(crate) fn say(text: &str) {
    // The reader may be gone, as in `playground | head`.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn chapter(number: usize, title: &str) {
    say(&format!("\n{number}. {title}\n"));
}

fn indented(text: &str) {
    say(&text.trim_end().lines().map(|line| format!("   {line}")).collect::<Vec<_>>().join("\n"));
}

/// Runs the scenario on `testbed`.
pub(crate) async fn run(testbed: &Testbed, folder: &Path, Extent { all, serve }: Extent) -> Result<(), String> {
    let more_controllers = MORE_CONTROLLERS.iter().filter(|_| all);
    let controllers: Vec<&str> = CONTROLLERS.iter().chain(more_controllers).copied().collect();
    let config = testbed.write_config(folder, &controllers, HASTE).map_err(super::anything)?;
    // A real one takes minutes to be made.
    testbed.cloud.dials(|dials| {
        dials.nlb_creation_time = Duration::from_secs(2);
        dials.nlb_job_time = Duration::from_millis(300);
    });
    let log = folder.join(LOG);
    say("A simulated Kubernetes API server and a simulated Alibaba Cloud run on loopback.");
    say(&format!("Configuration, kubeconfig and the product's log are in {}", folder.display()));
    say(&format!(
        "For kubectl in another terminal, from now on: export KUBECONFIG={}",
        folder.join("kubeconfig").display()
    ));
    if serve {
        say("The scenario takes about a minute. After it, everything keeps running until Ctrl-C.");
    }

    chapter(1, "Three nodes join, uninitialised. What would alicloud-ccm do?");
    let nodes: Vec<String> = (1..=3).map(|number| testbed.join(number)).collect();
    nodes_table(testbed);
    say("");
    let (plan, code) = product::plan(&config).await?;
    indented(&format!("$ alicloud-ccm plan\n{plan}(exit code {code})"));
    forget(testbed);

    chapter(2, "It is started.");
    let began = Instant::now();
    let product = Product::start(&config, &log)?;
    let ready = nodes.clone();
    wait(testbed, "the nodes become ready", move |testbed| {
        ready.iter().all(|name| node_is_ready(testbed, name)) && event_count(testbed, "", "CreatedRoute") >= ready.len()
    })
    .await?;
    nodes_table(testbed);
    routes_table(testbed);
    events(testbed, "Node", "");
    say("");
    calls(testbed, began.elapsed());

    chapter(3, "A Service of type LoadBalancer is made.");
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    make(testbed, "web", || testbed.expose("web", &[80], &names[..2], &[])).await?;

    chapter(4, "A Service of class alibabacloud.com/nlb is made, for a network load balancer.");
    make(testbed, "api", || expose_network(testbed, "api", names[0])).await?;

    chapter(5, "The pods of default/api move to node-2 and node-3.");
    let began = Instant::now();
    point_at(testbed, "api", &names[1..])?;
    let moved = [instance(2), instance(3)];
    wait(testbed, "the backends follow", |testbed| behind(testbed, "api") == moved).await?;
    load_balancers(testbed);
    calls(testbed, began.elapsed());

    chapter(6, "node-3 is released in the cloud, and its kubelet falls silent.");
    let began = Instant::now();
    testbed.cloud.release_instance(&instance(3));
    testbed.cluster.set_ready("node-3", "Unknown").map_err(|failure| format!("{failure:?}"))?;
    wait(testbed, "node-3 is gone everywhere", |testbed| {
        testbed.cluster.get("Node", "", "node-3").is_none() && !mentions(&testbed.cloud.snapshot(), &instance(3))
    })
    .await?;
    nodes_table(testbed);
    routes_table(testbed);
    load_balancers(testbed);
    calls(testbed, began.elapsed());

    let (plan, code) = product::plan(&config).await?;
    indented(&format!("$ alicloud-ccm plan\n{plan}(exit code {code})"));
    if code != 0 {
        return Err("the plan should be empty now".to_owned());
    }
    forget(testbed);

    chapter(7, "Routes are switched off in the file, and on again, while everything runs.");
    toggle_routes(testbed, &config, &log).await?;

    if all {
        chapter(8, "A PersistentVolume is made by hand, without a zone.");
        more::volume(testbed).await?;
        chapter(9, "A headless Service is made, and one of its pods moves. Machines of the VPC resolve its name.");
        more::names(testbed).await?;
    }
    let last = if all { 10 } else { 8 };

    if serve {
        serve_until_interrupted(testbed, folder, product.port).await?;
        forget(testbed);
    }

    chapter(last, "The Services are deleted.");
    let began = Instant::now();
    for service in balanced(testbed) {
        let [namespace, name] = ["namespace", "name"].map(|key| service["metadata"][key].as_str().unwrap_or_default());
        testbed.cluster.delete("Service", namespace, name).map_err(|failure| format!("{failure:?}"))?;
    }
    wait(testbed, "the load balancers are gone", |testbed| balanced(testbed).is_empty()).await?;
    let left = testbed.cloud.snapshot();
    let kinds = ["load_balancers", "network_load_balancers", "server_groups", "security_groups"];
    if let Some(kind) = kinds.iter().find(|kind| left[**kind].as_array().is_none_or(|all| !all.is_empty())) {
        return Err(format!("{kind} are left in the cloud: {}", left[*kind]));
    }
    say("   No load balancer and no server group is left in the cloud.");
    calls(testbed, began.elapsed());

    let resident = product.resident_mib();
    let began = Instant::now();
    let status = product.stop().await?;
    chapter(last + 1, "SIGTERM.");
    say(&format!("   It ended after {:.1} s ({status}).", began.elapsed().as_secs_f64()));
    if let Some(mib) = resident {
        say(&format!("   Before, it used {mib:.1} MiB of memory."));
    }
    match testbed.cloud.complaints().as_slice() {
        [] => {
            say("   The cloud has nothing to complain about: every request was signed, and every parameter known.");
            Ok(())
        }
        complaints => Err(format!("the cloud complains: {}", complaints.join("; "))),
    }
}

/// The Services with a load balancer, those that a user has made among them.
fn balanced(testbed: &Testbed) -> Vec<Value> {
    let mut services = testbed.cluster.list("Service");
    services.retain(|service| service["spec"]["type"] == "LoadBalancer");
    services
}

/// Makes a Service and waits until it is served.
async fn make(testbed: &Testbed, service: &str, expose: impl FnOnce()) -> Result<(), String> {
    let began = Instant::now();
    expose();
    wait(testbed, "the Service gets its address", |testbed| {
        address(testbed, service).is_some() && event_count(testbed, service, "EnsuredLoadBalancer") > 0
    })
    .await?;
    load_balancers(testbed);
    say(&format!("   EXTERNAL-IP of default/{service}: {}\n", address(testbed, service).unwrap_or_default()));
    events(testbed, "Service", service);
    say("");
    calls(testbed, began.elapsed());
    Ok(())
}

/// Makes a Service with a network load balancer, of which only nodes with its pods are backends.
fn expose_network(testbed: &Testbed, service: &str, node: &str) {
    let made = testbed.cluster.create(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "alibabacloud.com/nlb",
            "externalTrafficPolicy": "Local",
            "ports": [{"name": "https", "port": 443, "targetPort": 8443, "protocol": "TCP"}],
        },
    }));
    if let Err(problem) =
        made.map_err(|failure| format!("{failure:?}")).and_then(|_| point_at(testbed, service, &[node]))
    {
        say(&format!("   default/{service} could not be made: {problem}"));
    }
}

/// The Service has one ready pod on each of these nodes.
fn point_at(testbed: &Testbed, service: &str, nodes: &[&str]) -> Result<(), String> {
    let endpoint = |(number, node): (u8, &&str)| Endpoint::ready([10, 98, number, 20].into(), node);
    let endpoints: Vec<_> = (1..).zip(nodes).map(endpoint).collect();
    testbed.cluster.set_endpoints("default", service, &endpoints).map(drop).map_err(|failure| format!("{failure:?}"))
}

/// Instances behind the network load balancer of a Service.
fn behind(testbed: &Testbed, service: &str) -> Vec<String> {
    testbed.cloud.look(|account| {
        let ours = |name: &str| name.contains(&format!(".{service}."));
        let groups = account.nlb.groups.values().filter(|group| ours(&group.name));
        let mut all: Vec<_> = groups.flat_map(|group| group.servers.iter().map(|server| server.id.clone())).collect();
        all.sort();
        all
    })
}

/// An edit of the file ends the route controller, and another one starts it; no other job notices.
async fn toggle_routes(testbed: &Testbed, config: &Path, log: &Path) -> Result<(), String> {
    let on = std::fs::read_to_string(config).map_err(super::anything)?;
    let off = on.replace("\"route\", ", "");
    let lost = serde_json::json!({ "conditions": [{
        "type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated",
        "message": "RouteController failed to create a route",
    }] });
    for (text, title) in [(off, "off"), (on, "on")] {
        let (began, before) = (Instant::now(), reports(log));
        replace(config, &text)?;
        wait(testbed, "the edit is seen", |_| reports(log) > before).await?;
        if title == "off" {
            // As if a route controller had said it last.
            testbed.cluster.patch_status("Node", "", "node-2", &lost).map_err(|failure| format!("{failure:?}"))?;
        }
        let reason = if title == "off" { "RoutesDisabled" } else { "RouteCreated" };
        wait(testbed, "the condition follows", |testbed| network_reason(testbed, "node-2") == reason).await?;
        say(&format!("   {title} after {:.1} s:\n", began.elapsed().as_secs_f64()));
        routes_table(testbed);
        say(&format!("   node-2 says of its network: {}, {reason}", node_condition(testbed, "node-2")));
        let lines = std::fs::read_to_string(log).map_err(super::anything)?;
        let line = lines.lines().rev().find(|line| line.contains("is in use"));
        say(&format!(
            "   log: {}\n",
            line.and_then(|line| line.split_once("is in use; ")).map_or("", |(_, what)| what)
        ));
    }
    forget(testbed);
    Ok(())
}

/// How many edits the log tells of.
fn reports(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().matches("is in use").count()
}

/// Replaces a file as editors do, and keeps it readable for its owner only.
fn replace(path: &Path, text: &str) -> Result<(), String> {
    let beside = path.with_extension("toml~");
    std::fs::copy(path, &beside).map_err(super::anything)?;
    std::fs::write(&beside, text).map_err(super::anything)?;
    std::fs::rename(&beside, path).map_err(super::anything)
}

fn node_condition(testbed: &Testbed, node: &str) -> String {
    condition(&testbed.cluster.get("Node", "", node).unwrap_or_default(), "NetworkUnavailable")
}

fn network_reason(testbed: &Testbed, node: &str) -> String {
    let node = testbed.cluster.get("Node", "", node).unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|it| it["type"] == "NetworkUnavailable"));
    found.and_then(|it| it["reason"].as_str()).unwrap_or_default().to_owned()
}

async fn serve_until_interrupted(testbed: &Testbed, folder: &Path, port: u16) -> Result<(), String> {
    let kubeconfig = folder.join("kubeconfig");
    say("\nIt keeps running. In another terminal:\n");
    indented(&format!(
        "export KUBECONFIG={}\nkubectl get nodes,svc -o wide\nkubectl describe svc web\nkubectl annotate svc web \
         service.beta.kubernetes.io/alibaba-cloud-loadbalancer-scheduler=wrr\nkubectl get events -w\ncargo run -- explain \
         default/web --config {config}\n$EDITOR {config}   # the product follows",
        kubeconfig.display(),
        config = folder.join("alicloud-ccm.toml").display()
    ));
    say(&format!("\nIts status page, for a browser: http://127.0.0.1:{port}/"));
    say("\nThe kubeconfig:\n");
    indented(&testbed.cluster.kubeconfig());
    say("\nCtrl-C runs the end of the scenario.");
    tokio::signal::ctrl_c().await.map_err(super::anything)
}

pub(crate) async fn wait(testbed: &Testbed, what: &str, is_so: impl Fn(&Testbed) -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(testbed) {
        if Instant::now() > deadline {
            return Err(format!("{what}: not within {} s", PATIENCE.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn node_is_ready(testbed: &Testbed, name: &str) -> bool {
    let Some(node) = testbed.cluster.get("Node", "", name) else { return false };
    let tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
    !tainted && condition(&node, "NetworkUnavailable") == "False"
}

fn condition(node: &Value, kind: &str) -> String {
    let conditions = node["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("-").to_owned()
}

fn nodes_table(testbed: &Testbed) {
    let rows = testbed.cluster.list("Node").into_iter().map(|node| {
        let labels = &node["metadata"]["labels"];
        let label = |key: &str| labels[key].as_str().unwrap_or("-").to_owned();
        let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let ip = addresses.iter().find(|address| address["type"] == "InternalIP");
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let short = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
        let taints: Vec<_> = taints.iter().filter_map(|taint| taint["key"].as_str()).map(short).collect();
        vec![
            node["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            ip.and_then(|ip| ip["address"].as_str()).unwrap_or("-").to_owned(),
            label("topology.kubernetes.io/zone"),
            label("node.kubernetes.io/instance-type"),
            condition(&node, "NetworkUnavailable"),
            if taints.is_empty() { "-".to_owned() } else { taints.join(",") },
        ]
    });
    table(&["NODE", "INTERNAL-IP", "ZONE", "TYPE", "NO NETWORK", "TAINTS"], rows.collect());
}

fn routes_table(testbed: &Testbed) {
    let rows = testbed.cloud.look(|world| {
        let entries = world.route_tables.get(ROUTE_TABLE).map(|table| table.entries.clone()).unwrap_or_default();
        let row = |(cidr, entry): (&String, &sim::cloud::RouteEntry)| {
            vec![ROUTE_TABLE.to_owned(), cidr.clone(), entry.next_hops.join(" ")]
        };
        entries.iter().filter(|(_, entry)| entry.kind == "Custom").map(row).collect()
    });
    table(&["ROUTE TABLE", "DESTINATION", "NEXT HOP"], rows);
}

fn load_balancers(testbed: &Testbed) {
    let snapshot = testbed.cloud.snapshot();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    let mut row = |address: String, (name, listener): (&String, &Value), group: String, backends: Vec<Value>| {
        let backend = |it: &Value| format!("{}:{}", text(&it["server_id"]), it["port"]);
        let backends = backends.iter().map(backend).collect::<Vec<_>>().join(" ");
        rows.push(vec![address, name.clone(), text(&listener["status"]), group, backends]);
    };
    for balancer in snapshot["load_balancers"].as_array().into_iter().flatten() {
        for (name, listener) in balancer["listeners"].as_object().into_iter().flatten() {
            let group = text(&listener["vgroup"]);
            let backends = balancer["vgroups"][&group].as_array().cloned().unwrap_or_default();
            row(text(&balancer["address"]), (name, listener), group, backends);
        }
    }
    let groups = snapshot["server_groups"].as_array().cloned().unwrap_or_default();
    for balancer in snapshot["network_load_balancers"].as_array().into_iter().flatten() {
        for (name, listener) in balancer["listeners"].as_object().into_iter().flatten() {
            let group = groups.iter().find(|group| group["name"] == listener["server_group"]);
            let backends = group.and_then(|group| group["servers"].as_array().cloned()).unwrap_or_default();
            row(text(&balancer["dns"]), (name, listener), text(&listener["server_group"]), backends);
        }
    }
    table(&["ADDRESS", "LISTENER", "STATUS", "SERVER GROUP", "BACKENDS"], rows);
}

/// The address or the DNS name in the status of a Service.
fn address(testbed: &Testbed, service: &str) -> Option<String> {
    let service = testbed.cluster.get("Service", "default", service)?;
    let ingress = &service["status"]["loadBalancer"]["ingress"][0];
    Some(ingress["ip"].as_str().or_else(|| ingress["hostname"].as_str())?.to_owned())
}

fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(it) => it == text,
        Value::Array(items) => items.iter().any(|item| mentions(item, text)),
        Value::Object(fields) => fields.values().any(|field| mentions(field, text)),
        _ => false,
    }
}

fn event_count(testbed: &Testbed, name: &str, reason: &str) -> usize {
    let is_meant = |event: &&Value| event["reason"] == reason && is_about(event, name);
    testbed.cluster.list("Event").iter().filter(is_meant).count()
}

/// Whether an event is about the object of this name; all are without one.
fn is_about(event: &Value, name: &str) -> bool {
    name.is_empty() || event["involvedObject"]["name"] == name
}

pub(crate) fn events(testbed: &Testbed, kind: &str, name: &str) {
    for event in testbed.cluster.list("Event") {
        let about = &event["involvedObject"];
        if about["kind"] == kind && is_about(&event, name) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let message = text(&event["message"]).replace("; ", ";\n     ");
            let (name, reason) = (text(&about["name"]), text(&event["reason"]));
            indented(&format!("event on {name}: {} {reason}: {message}", text(&event["type"])));
        }
    }
}

pub(crate) fn calls(testbed: &Testbed, took: Duration) {
    let mut counts: BTreeMap<(bool, String), usize> = BTreeMap::new();
    for Call { action, write, product, .. } in testbed.cloud.take_calls() {
        if product != "metadata" {
            *counts.entry((write, action)).or_default() += 1;
        }
    }
    let list = |writes: bool| {
        let mut text = String::new();
        for ((_, action), count) in counts.iter().filter(|((write, _), _)| *write == writes) {
            let times = if *count > 1 { format!(" x{count}") } else { String::new() };
            let _ = write!(text, "{}{action}{times}", if text.is_empty() { "" } else { ", " });
        }
        if text.is_empty() { "none".to_owned() } else { text }
    };
    say(&format!("   done after {:.1} s", took.as_secs_f64()));
    say(&format!("   cloud reads:  {}\n   cloud writes: {}\n", list(false), list(true)));
}

pub(crate) fn forget(testbed: &Testbed) {
    let _ = testbed.cloud.take_calls();
}

pub(crate) fn table(heads: &[&str], rows: Vec<Vec<String>>) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("   {}", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    say(&line(heads.to_vec()));
    for row in &rows {
        say(&line(row.iter().map(String::as_str).collect()));
    }
    say("");
}
