//! Recordings of the official controller, compared with the real binary.
//!
//! Each file in `tests/golden` is one case: a Service and its endpoints, step by step, and the result. [`differences`] lists
//! the intended differences with their reasons, which is also the page `docs/explanation/differences.md`. Any other difference fails.

mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use expect_test::expect_file;
use serde_json::{Value, json};
use sim::cloud::Account;
use sim::cluster::{Endpoint, NodeSpec, Version};
use sim::testbed::{ACCESS_KEY, Testbed};

use self::differences::{DIFFERENCES, Difference};
use crate::harness::{Ccm, PATIENCE, World};

pub(crate) const NAMESPACE: &str = "exam";
const ID: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id";
const MARK: &str = "kubernetes.do.not.delete";
/// Parts of the cases, each in a world of its own: one world for all would wait for the published call quotas.
const PARTS: usize = 5;

/// One case and where it stands.
struct Case {
    name: String,
    steps: Vec<Value>,
    /// Of the Service, once it exists.
    uid: String,
    /// The load balancer that the Service names.
    named: String,
    /// The events before the step.
    seen: Vec<Value>,
}

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // Those of network load balancers have a folder of their own.
    names.retain(|name| name.ends_with(".json") && name != "world.json");
    names.sort();
    let case = |file: String| {
        let case = read(&file);
        Case {
            name: case["name"].as_str().unwrap().to_owned(),
            steps: case["steps"].as_array().unwrap().clone(),
            uid: String::new(),
            named: String::new(),
            seen: Vec::new(),
        }
    };
    names.into_iter().map(case).collect()
}

/// The world of the cases, and the binary in it.
pub(crate) async fn open() -> (World, Ccm) {
    open_with(|config| config).await
}

/// The same with an edited configuration.
pub(crate) async fn open_with(edit: impl FnOnce(String) -> String) -> (World, Ccm) {
    open_in(testbed().await, &["service"], edit)
}

/// The world of the cases.
pub(crate) async fn testbed() -> Testbed {
    testbed_of(&read("world.json"), |account| account.limits.load_balancers = 200).await
}

/// A world as described.
pub(crate) async fn testbed_of(description: &Value, prepare: impl FnOnce(&mut Account)) -> Testbed {
    let mut cloud = Account::from_json(&description["cloud"]).unwrap().with_key(ACCESS_KEY.0, ACCESS_KEY.1);
    prepare(&mut cloud);
    let testbed = Testbed::with(Version::NEWEST, cloud).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    testbed.cluster.create(namespace).unwrap();
    for node in description["nodes"].as_array().unwrap() {
        let name = node["metadata"]["name"].as_str().unwrap();
        let mut spec = NodeSpec::new(name)
            .provider_id(node["spec"]["providerID"].as_str().unwrap())
            .pod_cidr(node["spec"]["podCIDR"].as_str().unwrap());
        for address in node["status"]["addresses"].as_array().into_iter().flatten() {
            spec = spec.internal_ip(address["address"].as_str().unwrap());
        }
        for (key, value) in node["metadata"]["labels"].as_object().unwrap() {
            spec = spec.label(key, value.as_str().unwrap());
        }
        testbed.cluster.add_node(&spec).unwrap();
        if node["spec"]["unschedulable"] == true {
            testbed.cluster.patch("Node", "", name, &json!({"spec": {"unschedulable": true}})).unwrap();
        }
    }
    testbed
}

/// The binary with these controllers in a world.
pub(crate) fn open_in(testbed: Testbed, controllers: &[&str], edit: impl FnOnce(String) -> String) -> (World, Ccm) {
    // Events depend on what is remembered, which a lease that runs out on a busy machine would end.
    let more = "[leader_election]\nenabled = false\n[service]\nconcurrency = 16\n";
    let world = World::of(testbed, controllers, more);
    let config = std::fs::read_to_string(world.config()).unwrap();
    let config = config
        .replace("vpc-play", "vpc-exam")
        .replace("\"cn-hangzhou-i:vsw-i\", \"cn-hangzhou-j:vsw-j\"", "\"cn-hangzhou-i:vsw-exam-i\"")
        .replace("cluster_id = \"playground\"", "cluster_id = \"cexam\"\nbudget_share = 1.0");
    assert!(config.contains("vpc-exam") && config.contains("vsw-exam-i") && config.contains("cexam"), "{config}");
    std::fs::write(world.config(), edit(config)).unwrap();
    let ccm = world.start();
    (world, ccm)
}

impl Case {
    fn service(&self, world: &World) -> Value {
        world.testbed.cluster.get("Service", NAMESPACE, &self.name).unwrap_or_default()
    }

    fn events<'a>(&self, all: &'a [Value]) -> impl Iterator<Item = &'a Value> {
        let name = self.name.clone();
        all.iter().filter(move |event| {
            event["involvedObject"]["kind"] == "Service" && event["involvedObject"]["name"] == name
        })
    }

    /// Does to the cluster what a step says.
    fn give(&mut self, world: &World, step: usize) {
        let cluster = &world.testbed.cluster;
        let all = cluster.list("Event");
        self.seen = self.events(&all).cloned().collect();
        let given = self.steps[step]["given"].clone();
        if given["delete"] == true {
            cluster.delete("Service", NAMESPACE, &self.name).unwrap();
            return;
        }
        let before = self.service(world);
        let mut spec = given["spec"].clone();
        let kept = before["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
            let node_port = kept.iter().find(same).map(|other| other["nodePort"].clone());
            if spec_allocates(&given["spec"])
                && let Some(node_port) = node_port
            {
                port["nodePort"] = node_port;
            }
        }
        self.named = given["annotations"][ID].as_str().unwrap_or(&self.named).to_owned();
        if before.is_null() {
            let service = cluster.create(json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": given["annotations"], "labels": given["labels"]},
                "spec": spec,
            }));
            self.uid = service.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        } else {
            // A user's edit replaces the annotations, and leaves the labels of controllers.
            let old = before["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let mut annotations: serde_json::Map<_, _> = old.into_iter().map(|(key, _)| (key, Value::Null)).collect();
            annotations.extend(given["annotations"].as_object().cloned().unwrap_or_default());
            let changes = json!({"metadata": {"annotations": annotations, "labels": given["labels"]}, "spec": spec});
            cluster.patch("Service", NAMESPACE, &self.name, &changes).unwrap();
        }
        let endpoints: Vec<Endpoint> = given["endpoints"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| Endpoint::ready(it["ip"].as_str().unwrap().parse().unwrap(), it["node"].as_str().unwrap()))
            .collect();
        cluster.set_endpoints(NAMESPACE, &self.name, &endpoints).unwrap();
    }

    /// What came of a step, in the form of the files.
    fn outcome(&self, world: &World, step: usize) -> Value {
        let service = self.service(world);
        let mark = format!("a{}", self.uid.replace('-', ""));
        let mark = &mark[..32];
        let snapshot = world.testbed.cloud.snapshot();
        let mut balancers: Vec<Value> = snapshot["load_balancers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["tags"][MARK] == mark || it["id"] == *self.named)
            .cloned()
            .collect();
        for tags in balancers.iter_mut().filter_map(|it| it["tags"].as_object_mut()) {
            // In addition to what the official controller writes, on all load balancers alike.
            tags.remove("alicloud-ccm.cluster-uid");
        }
        let mut names = vec![(mark.to_owned(), "<default-name>".to_owned())];
        for it in balancers.iter().filter(|it| it["tags"][MARK] == mark) {
            names.push((it["id"].as_str().unwrap().to_owned(), "<lb>".to_owned()));
            names.push((it["address"].as_str().unwrap().to_owned(), "<address>".to_owned()));
        }
        let mut ports = BTreeMap::new();
        for (index, port) in service["spec"]["ports"].as_array().into_iter().flatten().enumerate() {
            if let Some(number) = port["nodePort"].as_u64() {
                ports.insert(number, format!("<np{index}>"));
                names.push((format!("k8s/{number}/"), format!("k8s/<np{index}>/")));
            }
        }
        let all = world.testbed.cluster.list("Event");
        let expected = expected_events(&self.steps[step]["then"], &self.meant(step));
        let fresh = self.events(&all).filter(|event| is_of_step(event, &self.seen, &expected));
        let events: BTreeSet<(String, String)> = fresh
            .map(|event| (event["type"].as_str().unwrap().to_owned(), event["reason"].as_str().unwrap().to_owned()))
            .collect();
        let warned = events.iter().any(|(kind, _)| kind == "Warning");
        let service = match service.is_null() {
            true => Value::Null,
            false => {
                let labels: Vec<&String> =
                    service["metadata"]["labels"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
                let finalizers = &service["metadata"]["finalizers"];
                let mut status = service["status"]["loadBalancer"].clone();
                for ingress in status
                    .get_mut("ingress")
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_object_mut)
                {
                    // In addition to what the official controller writes, for all Services alike.
                    ingress.remove("ports");
                }
                json!({
                    "finalizers": if finalizers.is_null() { json!([]) } else { finalizers.clone() },
                    "labels": labels,
                    "status": status,
                })
            }
        };
        let mut outcome = json!({
            "load_balancers": balancers,
            "service": service,
            "events": events,
            "outcome": if warned { "warned" } else { "fine" },
        });
        rename(&mut outcome, &names, &ports);
        outcome
    }

    /// Where the outcome of a step differs: field, theirs, ours.
    fn differences(&self, world: &World, step: usize) -> BTreeMap<String, (String, String)> {
        let mut theirs = self.steps[step]["then"].clone();
        // The texts are for orientation only.
        theirs.as_object_mut().unwrap().remove("warnings");
        let mut found = BTreeMap::new();
        compare("", &theirs, &self.outcome(world, step), &mut found);
        found
    }

    /// The differences that are meant, in the same form.
    fn meant(&self, step: usize) -> BTreeMap<String, (String, String)> {
        DIFFERENCES
            .iter()
            .filter(|it| it.case == self.name && it.step == step)
            .map(|it| (it.field.to_owned(), (it.theirs.to_owned(), it.ours.to_owned())))
            .collect()
    }
}

/// The events that a step may have: those of the official controller, and the differences that are meant.
pub(crate) fn expected_events(theirs: &Value, meant: &BTreeMap<String, (String, String)>) -> String {
    let ours = meant.get("events").map(|(_, ours)| ours.as_str()).unwrap_or_default();
    format!("{} {ours}", theirs["events"])
}

/// Whether an event is new or was repeated since the step came. A reconcile that was under way when it came can still report
/// the failure of the step before, so a warning with the reason of an earlier one counts only where it is `expected`.
pub(crate) fn is_of_step(event: &Value, seen: &[Value], expected: &str) -> bool {
    let reason = &event["reason"];
    let is_late = event["type"] == "Warning"
        && seen.iter().any(|earlier| earlier["reason"] == *reason)
        && !expected.contains(reason.as_str().unwrap());
    // In addition to what the official controller writes: the end of what a warning says, in whatever step that comes, and what
    // takes half a minute of the clock, which depends on the machine.
    let is_additional = *reason == "Resolved" || *reason == "LoadBalancerInProgress";
    !is_late && !is_additional && !seen.contains(event)
}

pub(crate) fn spec_allocates(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" || spec["type"] == "NodePort"
}

/// Replaces made-up ids, addresses and node ports by what the files call them.
pub(crate) fn rename(value: &mut Value, names: &[(String, String)], ports: &BTreeMap<u64, String>) {
    let renamed = |text: &str| names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    match value {
        Value::String(text) => *text = renamed(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names, ports)),
        Value::Object(fields) => {
            let is_backend = fields.contains_key("server_id");
            let old = std::mem::take(fields);
            for (key, mut field) in old {
                rename(&mut field, names, ports);
                if is_backend
                    && key == "port"
                    && let Some(name) = field.as_u64().and_then(|port| ports.get(&port))
                {
                    field = json!(name);
                }
                fields.insert(renamed(&key), field);
            }
        }
        _ => {}
    }
}

/// Everything that differs, each with its path.
pub(crate) fn compare(path: &str, theirs: &Value, ours: &Value, found: &mut BTreeMap<String, (String, String)>) {
    if theirs == ours {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path} {key}") };
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let get = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                match (get(a), get(b)) {
                    (Some(a), Some(b)) => compare(&below(key), &a, &b, found),
                    (a, b) => drop(found.insert(below(key), (brief(a.as_ref()), brief(b.as_ref())))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() && a.iter().chain(b).all(Value::is_object) => {
            // Backends have no order.
            let sorted = |items: &[Value]| {
                let mut items = items.to_vec();
                items.sort_by_key(Value::to_string);
                items
            };
            let (a, b) = (sorted(a), sorted(b));
            let alone = a.len() == 1;
            for (index, (a, b)) in a.iter().zip(&b).enumerate() {
                // The load balancer is one, so its number says nothing.
                let place = if alone { path.to_owned() } else { below(&index.to_string()) };
                compare(&place, a, b, found);
            }
        }
        _ => drop(found.insert(path.to_owned(), (brief(Some(theirs)), brief(Some(ours))))),
    }
}

/// A value in few words.
fn brief(value: Option<&Value>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(fields)) if !fields.is_empty() => "present".to_owned(),
        Some(Value::Array(items)) if items.iter().any(Value::is_object) => format!("{} of them", items.len()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_array().map_or_else(|| brief(Some(item)), |parts| brief(parts.last())))
            .collect::<Vec<_>>()
            .join(", "),
        Some(other) => other.to_string(),
    }
}

/// Plays the cases side by side, step by step, and returns what differed without being meant.
async fn play(mut cases: Vec<Case>) -> Vec<String> {
    let (world, ccm) = open().await;
    let mut wrong = Vec::new();
    for step in 0..cases.iter().map(|case| case.steps.len()).max().unwrap_or_default() {
        cases.retain(|case| case.steps.len() > step);
        for case in &mut cases {
            case.give(&world, step);
        }
        let began = Instant::now();
        let agree = |world: &World| cases.iter().all(|case| case.differences(world, step) == case.meant(step));
        loop {
            if agree(&world) {
                world.until_quiet(Duration::from_millis(300)).await;
                if agree(&world) {
                    break;
                }
            }
            if began.elapsed() > PATIENCE {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for case in &cases {
            let (found, meant) = (case.differences(&world, step), case.meant(step));
            for (field, (theirs, ours)) in found.iter().filter(|(field, values)| meant.get(*field) != Some(values)) {
                wrong.push(format!("{} step {step}: {field}: {theirs:?} -> {ours:?}", case.name));
            }
            for field in meant.keys().filter(|field| !found.contains_key(*field)) {
                wrong.push(format!("{} step {step}: {field}: does not differ", case.name));
            }
        }
        if !wrong.is_empty() {
            break;
        }
    }
    if !wrong.is_empty() {
        wrong.push(world.logs());
    }
    wrong.extend(world.testbed.cloud.complaints());
    assert!(ccm.stop().await.success());
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn services_get_what_the_official_controller_gave_them() {
    let mut parts: Vec<Vec<Case>> = (0..PARTS).map(|_| Vec::new()).collect();
    for (index, case) in cases().into_iter().enumerate() {
        parts[index % PARTS].push(case);
    }
    let played = parts.into_iter().map(|part| tokio::spawn(play(part))).collect::<Vec<_>>();
    let mut wrong = Vec::new();
    for part in played {
        wrong.extend(part.await.unwrap());
    }
    assert!(wrong.is_empty(), "not as the official controller did, and not meant:\n{}", wrong.join("\n"));
}

#[test]
fn differences_are_of_cases_that_exist_and_the_page_is_current() {
    let cases = cases();
    for it in DIFFERENCES {
        let case = cases.iter().find(|case| case.name == it.case);
        assert!(case.is_some_and(|case| it.step < case.steps.len()), "{it:?}");
    }
    expect_file!["../../docs/explanation/differences.md"].assert_eq(&page());
}

/// The table as a page for operators.
fn page() -> String {
    let mut page = differences::INTRODUCTION.to_owned();
    let reasons: Vec<&str> = DIFFERENCES.iter().fold(Vec::new(), |mut reasons, it| {
        if !reasons.contains(&it.why) {
            reasons.push(it.why);
        }
        reasons
    });
    for why in reasons {
        page += &format!("\n{why}\n\n| Case | Step | What | Official | Here |\n|---|---|---|---|---|\n");
        for Difference { case, step, field, theirs, ours, .. } in DIFFERENCES.iter().filter(|it| it.why == why) {
            let ours = if ours.is_empty() { "none" } else { ours };
            page += &format!("| {case} | {} | {field} | {theirs} | {ours} |\n", step + 1);
        }
    }
    page + "\nNext: [migration.md](../guides/migration.md), step by step from the official controller.\n"
}
