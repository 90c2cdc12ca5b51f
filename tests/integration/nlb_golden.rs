//! Recordings of what the official controller did with network load balancers, compared with the real binary.
//!
//! Each file in `tests/golden/nlb` is one case, in the form of those of classic load balancers. A case names the defects that
//! its results contain, from which step on and where: there ours differ, and `better` says what is expected instead.
//! [`differences`] lists every other intended difference with its reason. Any difference that is neither fails.

mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sim::cloud::{Account, Fault};
use sim::cluster::Endpoint;
use sim::testbed::Testbed;

use self::differences::DIFFERENCES;
use crate::golden::{NAMESPACE, compare, expected_events, is_of_step, open_in, rename, spec_allocates, testbed_of};
use crate::harness::{Ccm, World};

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
const MARK: &str = "kubernetes.do.not.delete";
const CLUSTER_UID: &str = "alicloud-ccm.cluster-uid";
/// Where the parts of the cases begin, each of which has a world of its own.
const FIRSTS: [&str; 5] = ["", "nlb-d", "nlb-g", "nlb-pr", "nlb-re"];
/// A step has come to rest by then, or will not.
const PATIENCE: Duration = Duration::from_secs(180);

/// A path, what is there in the recording, and what is there here.
type Differing = BTreeMap<String, (String, String)>;

/// One case and where it stands.
struct Case {
    name: String,
    steps: Vec<Value>,
    defects: Vec<Value>,
    better: Vec<Value>,
    /// Of the Service, once it exists.
    uid: String,
    /// Load balancers that the Service has named.
    named: BTreeSet<String>,
    /// Node ports by what the files call them.
    node_ports: BTreeMap<u64, String>,
    /// Groups that the Service has named.
    named_groups: BTreeSet<String>,
    /// Load balancers that the Service has had.
    had: BTreeSet<String>,
    /// Addresses that users chose.
    chosen: BTreeSet<String>,
    /// The events before the step.
    seen: Vec<Value>,
    /// Whether the process was started anew in the step.
    restarted: bool,
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nlb")
}

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

fn cases() -> Vec<Case> {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "world.json").collect();
    names.sort();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let case = |file: String| {
        let case = read(&file);
        Case {
            name: case["name"].as_str().unwrap().to_owned(),
            steps: list(&case["steps"]),
            defects: list(&case["defects"]),
            better: list(&case["better"]),
            uid: String::new(),
            named: BTreeSet::new(),
            node_ports: BTreeMap::new(),
            named_groups: BTreeSet::new(),
            had: BTreeSet::new(),
            chosen: (1..=10).map(|number| format!("47.99.1.{number}")).collect(),
            seen: Vec::new(),
            restarted: false,
        }
    };
    names.into_iter().map(case).collect()
}

pub(crate) async fn open() -> (World, Ccm) {
    open_with(|config| config).await
}

/// The world of the cases.
pub(crate) async fn testbed() -> Testbed {
    let prepare = |account: &mut Account| {
        account.limits.network_load_balancers = 400;
        account.limits.load_balancers = 200;
    };
    testbed_of(&read("world.json"), prepare).await
}

/// The world of the cases and the binary in it, with an edited configuration.
pub(crate) async fn open_with(edit: impl FnOnce(String) -> String) -> (World, Ccm) {
    open_in(testbed().await, &["service", "nlb"], |config| {
        let config = config.replace("[service]\n", "[nlb]\nconcurrency = 32\n[service]\ntype_annotation = true\n");
        edit(config.replace("budget_share = 1.0", "budget_share = 1.0\nquotas = { \"*\" = 100000 }"))
    })
}

/// Both sides of a world at one moment: cases that are compared together look at the same.
struct Look {
    cloud: Value,
    services: Vec<Value>,
    events: Vec<Value>,
}

impl Look {
    fn at(world: &World) -> Self {
        let Testbed { cloud, cluster, .. } = &world.testbed;
        Self { cloud: cloud.snapshot(), services: cluster.list("Service"), events: cluster.list("Event") }
    }

    fn service(&self, name: &str) -> Option<&Value> {
        self.services.iter().find(|it| it["metadata"]["name"] == name)
    }
}

/// Node ports of a Service by what the files call them: `80/TCP`.
fn node_ports(service: &Value) -> BTreeMap<String, u64> {
    let named = |port: &Value| {
        let key = format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"));
        Some((key, port["nodePort"].as_u64()?))
    };
    service["spec"]["ports"].as_array().into_iter().flatten().filter_map(named).collect()
}

impl Case {
    fn service(&self, world: &World) -> Value {
        world.testbed.cluster.get("Service", NAMESPACE, &self.name).unwrap_or_default()
    }

    fn mark(&self) -> String {
        format!("a{}", self.uid.replace('-', "")).chars().take(32).collect()
    }

    fn events<'a>(&self, all: &'a [Value]) -> impl Iterator<Item = &'a Value> {
        let name = self.name.clone();
        all.iter().filter(move |event| {
            event["involvedObject"]["kind"] == "Service" && event["involvedObject"]["name"] == name
        })
    }

    /// What the names in a step's calls stand for.
    fn stand_ins(&self, world: &World) -> Vec<(String, String)> {
        let mark = self.mark();
        let mut all = vec![("<default-name>".to_owned(), mark.clone())];
        all.extend(
            node_ports(&self.service(world)).into_iter().map(|(key, port)| (format!("<np {key}>"), port.to_string())),
        );
        world.testbed.cloud.look(|account| {
            for (id, lb) in account.nlb.balancers.iter().filter(|(_, lb)| lb.tags.get(MARK) == Some(&mark)) {
                all.push(("<lb>".into(), id.clone()));
                for (id, listener) in &lb.listeners {
                    all.push((format!("<listener {}>", listener.key()), id.clone()));
                    all.push((format!("<group {}>", listener.key()), listener.group.clone()));
                }
            }
            let own = account.security_groups.iter().filter(|(_, it)| it.tags.get(MARK) == Some(&mark));
            all.extend(own.map(|(id, _)| ("<sg>".to_owned(), id.clone())));
        });
        all
    }

    /// Does in the cloud and to the cluster what a step says.
    fn give(&mut self, world: &World, step: usize) {
        let cluster = &world.testbed.cluster;
        let all = cluster.list("Event");
        self.seen = self.events(&all).cloned().collect();
        let given = self.steps[step]["given"].clone();
        for act in given["before"].as_array().into_iter().flatten() {
            self.act(world, act);
        }
        for fault in given["faults"].as_array().into_iter().flatten() {
            break_next(world, fault);
        }
        if given["delete"] == true {
            cluster.delete("Service", NAMESPACE, &self.name).unwrap();
            return;
        }
        let annotation = |key: &str| given["annotations"][format!("{PREFIX}{key}")].as_str().unwrap_or_default();
        if !annotation("id").is_empty() {
            self.named.insert(annotation("id").to_owned());
        }
        let groups = annotation("vgroup-port").split(',').filter_map(|item| item.split(':').next());
        self.named_groups.extend(groups.map(str::to_owned));
        self.chosen.extend(annotation("zone-maps").split([',', ':']).map(str::to_owned));
        self.apply(world, &given);
        let every = |list: &str| given[list].as_array().cloned().unwrap_or_default();
        let endpoints = every("endpoints").into_iter().chain(every("endpoints_ipv6"));
        let endpoints = endpoints
            .map(|it| Endpoint::ready(it["ip"].as_str().unwrap().parse().unwrap(), it["node"].as_str().unwrap()));
        cluster.set_endpoints(NAMESPACE, &self.name, &endpoints.collect::<Vec<_>>()).unwrap();
    }

    fn act(&self, world: &World, act: &Value) {
        let stand_ins = self.stand_ins(world);
        let real = |text: &str| stand_ins.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        let parameters = act["parameters"].as_object().unwrap();
        let parameters: Vec<(&str, String)> =
            parameters.iter().map(|(name, value)| (name.as_str(), real(value.as_str().unwrap()))).collect();
        let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (product, action) = (act["service"].as_str().unwrap(), act["action"].as_str().unwrap());
        let answer = world.testbed.cloud.act(product, action, &parameters);
        assert!(answer.is_ok(), "{}: {action} {parameters:?}: {answer:?}", self.name);
    }

    /// A user's edit replaces the annotations, and leaves the labels of controllers.
    fn apply(&mut self, world: &World, given: &Value) {
        let (cluster, before) = (&world.testbed.cluster, self.service(world));
        let mut spec = given["spec"].clone();
        let kept = before["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for port in spec["ports"].as_array_mut().into_iter().flatten().filter(|_| spec_allocates(&given["spec"])) {
            // As the API server does it for an update without node ports.
            let same = |other: &&Value| other["name"] == port["name"];
            if let Some(node_port) = kept.iter().find(same).map(|other| other["nodePort"].clone()) {
                port["nodePort"] = node_port;
            }
        }
        let metadata = json!({"name": self.name, "namespace": NAMESPACE, "annotations": given["annotations"],
            "labels": given["labels"]});
        if before.is_null() {
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
            let made = cluster.create(service).unwrap();
            self.uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
            return;
        }
        for field in ["loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy"] {
            if before["spec"].get(field).is_some() && spec.get(field).is_none() {
                spec[field] = Value::Null;
            }
        }
        let old = before["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        let mut annotations: serde_json::Map<_, _> = old.into_iter().map(|(key, _)| (key, Value::Null)).collect();
        annotations.extend(given["annotations"].as_object().cloned().unwrap_or_default());
        let changes = json!({"metadata": {"annotations": annotations, "labels": given["labels"]}, "spec": spec});
        cluster.patch("Service", NAMESPACE, &self.name, &changes).unwrap();
    }

    /// What came of a step, in the form of the files.
    fn outcome(&mut self, look: &Look, step: usize) -> Value {
        for (key, port) in look.service(&self.name).map(node_ports).unwrap_or_default() {
            self.node_ports.entry(port).or_insert(key);
        }
        let mark = self.mark();
        let all = |kind: &str| look.cloud[kind].as_array().into_iter().flatten();
        let is_own = |it: &Value| !self.uid.is_empty() && it["tags"][MARK] == mark.as_str();
        let own_part = format!(".{}.{NAMESPACE}.cexam", self.name);
        let is_former = |it: &Value| {
            let id = it["id"].as_str().unwrap();
            self.named.contains(id) || self.had.contains(id)
        };
        let own = all("network_load_balancers").filter(|it| is_own(it) || is_former(it));
        let mut balancers: Vec<Value> = own.cloned().collect();
        let shown: BTreeSet<String> = balancers.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect();
        let group = |it: &Value| {
            let users = it["used_by"].as_array().into_iter().flatten();
            let mut users: Vec<_> = users.filter(|user| shown.contains(user[0].as_str().unwrap())).collect();
            let is_named = self.named_groups.contains(it["id"].as_str().unwrap());
            let name = it["name"].as_str().unwrap();
            if !(is_own(it) || name.ends_with(&own_part) || !users.is_empty() || is_named) {
                return None;
            }
            users.sort_by_key(|user| user.to_string());
            let mut own = it.clone();
            own["used_by"] = users.iter().map(|user| user[1].clone()).collect();
            if name.starts_with("k8s.") {
                own.as_object_mut().unwrap().remove("id");
            }
            Some(own)
        };
        let mut groups: Vec<Value> = all("server_groups").filter_map(group).collect();
        groups.sort_by_key(|it| it["name"].as_str().unwrap().to_owned());
        let mut security_groups: Vec<Value> = all("security_groups").filter(|it| is_own(it)).cloned().collect();
        let is_made = |it: &Value| is_own(it) || self.had.contains(it["id"].as_str().unwrap());
        let own_ids = balancers.iter().filter(|it| is_made(it)).map(|it| it["id"].as_str().unwrap().to_owned());
        let own_ids: Vec<String> = own_ids.collect();
        let names = self.names(look, &own_ids, &mut security_groups);
        let ids: BTreeMap<&str, &str> =
            groups.iter().filter_map(|it| Some((it["name"].as_str()?, it["id"].as_str()?))).collect();
        for listener in balancers.iter_mut().flat_map(|it| it["listeners"].as_object_mut().unwrap().values_mut()) {
            if let Some(id) = listener["server_group"].as_str().and_then(|name| ids.get(name)) {
                listener["server_group"] = json!(id);
            }
        }
        for zone in balancers.iter_mut().flat_map(|it| it["zones"].as_array_mut().unwrap()) {
            for field in ["private_ip", "public_ip", "ipv6"] {
                let text = zone[field].as_str().unwrap();
                if !text.is_empty() && !self.chosen.contains(text) {
                    zone[field] = json!("<address>");
                }
            }
        }
        self.had.extend(own_ids);
        let (service, events) = self.cluster_side(look, step);
        let warned = events.iter().any(|(kind, _)| kind == "Warning");
        let mut outcome = json!({"load_balancers": balancers, "server_groups": groups, "security_groups": security_groups,
            "service": service, "events": events, "outcome": if warned { "warned" } else { "fine" }});
        for kind in ["load_balancers", "server_groups", "security_groups"] {
            for tags in outcome[kind].as_array_mut().unwrap().iter_mut().filter_map(|it| it["tags"].as_object_mut()) {
                // In addition to what the official controller writes, for all Services alike.
                tags.remove(CLUSTER_UID);
            }
        }
        let mut ports: BTreeMap<u64, String> = BTreeMap::new();
        for other in &look.services {
            let taken = other["spec"]["ports"].as_array().into_iter().flatten();
            ports.extend(taken.filter_map(|port| Some((port["nodePort"].as_u64()?, "<np>".to_owned()))));
        }
        ports.extend(self.node_ports.iter().map(|(port, key)| (*port, format!("<np {key}>"))));
        rename(&mut outcome, &names, &ports);
        without_details(&mut outcome);
        if self.steps[step]["then"].get("classic_load_balancers").is_some() {
            let classic = all("load_balancers").filter(|it| it["tags"][MARK] == mark.as_str()).cloned().collect();
            outcome["classic_load_balancers"] = self.classic(classic, &names);
        }
        outcome
    }

    /// What made-up names are called in the files.
    fn names(&self, look: &Look, own: &[String], security_groups: &mut [Value]) -> Vec<(String, String)> {
        let mut names = Vec::new();
        if !self.uid.is_empty() {
            names.push((self.mark(), "<default-name>".to_owned()));
        }
        names.extend(own.iter().map(|id| (id.clone(), "<lb>".to_owned())));
        let former = self.had.iter().filter(|id| !own.contains(id));
        names.extend(former.map(|id| (id.clone(), "<made>".to_owned())));
        for it in security_groups {
            let id = it.as_object_mut().unwrap().remove("id").unwrap();
            let is_managed = it["name"].as_str().unwrap().starts_with("k8s-nlb-");
            let name = if is_managed { "<sg>" } else { "<made>" };
            names.push((id.as_str().unwrap().to_owned(), name.to_owned()));
        }
        let ports = self.node_ports.iter();
        names.extend(ports.map(|(port, key)| (format!("k8s.{port}."), format!("k8s.<np {key}>."))));
        for other in look.services.iter().filter(|it| it["metadata"]["name"] != self.name) {
            let uid = other["metadata"]["uid"].as_str().unwrap().replace('-', "");
            names.push((format!("a{uid}").chars().take(32).collect(), "<default-name of another>".to_owned()));
            for port in other["spec"]["ports"].as_array().into_iter().flatten() {
                if let Some(number) = port["nodePort"].as_u64() {
                    names.push((format!("k8s.{number}."), "k8s.<np>.".to_owned()));
                }
            }
        }
        names
    }

    fn classic(&self, mut classic: Vec<Value>, names: &[(String, String)]) -> Value {
        let ports: BTreeMap<u64, String> = self.node_ports.keys().map(|port| (*port, "<np>".to_owned())).collect();
        let mut names = names.to_vec();
        names.extend(ports.keys().map(|port| (format!("k8s/{port}/"), "k8s/<np>/".to_owned())));
        for it in &classic {
            names.push((it["id"].as_str().unwrap().to_owned(), "<lb>".to_owned()));
            names.push((it["address"].as_str().unwrap().to_owned(), "<address>".to_owned()));
        }
        for tags in classic.iter_mut().filter_map(|it| it["tags"].as_object_mut()) {
            tags.remove(CLUSTER_UID);
        }
        let mut classic = Value::from(classic);
        rename(&mut classic, &names, &ports);
        classic
    }

    /// The Service, and the kinds and reasons of its new events.
    fn cluster_side(&self, look: &Look, step: usize) -> (Value, BTreeSet<(String, String)>) {
        let expected = expected_events(&self.steps[step]["then"], &self.meant(step));
        let fresh = self.events(&look.events).filter(|event| is_of_step(event, &self.seen, &expected));
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let events = fresh.map(|event| (text(event, "type"), text(event, "reason"))).collect();
        let Some(service) = look.service(&self.name) else {
            return (Value::Null, events);
        };
        let labels: Vec<&String> =
            service["metadata"]["labels"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
        let finalizers = service["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let mut status = service["status"]["loadBalancer"].clone();
        for ingress in status["ingress"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            // In addition to what the official controller writes, for all Services alike.
            ingress.remove("ports");
            ingress.remove("ipMode");
            if ingress.contains_key("ip") {
                ingress.insert("ip".into(), json!("<address>"));
            }
        }
        if status["ingress"].is_null() {
            status = json!({});
        }
        (json!({"finalizers": finalizers, "labels": labels, "status": status}), events)
    }

    /// Where the outcome of a step differs in a way that no defect explains, and where it is not what is better.
    fn differing(&mut self, look: &Look, step: usize) -> Differing {
        let mut theirs = self.steps[step]["then"].clone();
        // The texts are for orientation only.
        theirs.as_object_mut().unwrap().remove("warnings");
        without_details(&mut theirs);
        let mut ours = self.outcome(look, step);
        if self.restarted {
            // What a process that has just started says of a change is another thing than what it does.
            for outcome in [&mut theirs, &mut ours] {
                outcome["events"].as_array_mut().unwrap().retain(|event| event[0] == "Warning");
            }
        }
        let mut found = BTreeMap::new();
        compare("", &theirs, &ours, &mut found);
        found.retain(|path, _| !self.is_defect(step, path));
        for it in self.better.iter().filter(|it| it["step"] == step) {
            let path = it["path"].as_str().unwrap();
            let is = ours.pointer(path).unwrap_or(&Value::Null);
            let agrees = match (it["value"].as_u64(), is.as_array()) {
                (Some(length), Some(list)) => list.len() as u64 == length,
                _ => *is == it["value"],
            };
            if !agrees {
                found.insert(format!("better {path}"), (it["value"].to_string(), is.to_string()));
            }
        }
        found
    }

    /// Whether the recording holds a defect of the official controller there.
    fn is_defect(&self, step: usize, path: &str) -> bool {
        let is_number = |part: &&str| part.parse::<usize>().is_err() && *part != "*";
        let parts: Vec<&str> = path.split(' ').filter(is_number).collect();
        let begun = self.defects.iter().filter(|it| it["from_step"].as_u64().unwrap() <= step as u64);
        let mut patterns = begun.flat_map(|it| it["paths"].as_array().unwrap()).map(|it| it.as_str().unwrap());
        patterns.any(|pattern| {
            pattern == "*" || pattern.trim_start_matches('/').split('/').filter(is_number).eq(parts.iter().copied())
        })
    }

    /// The differences that are meant, in the same form.
    fn meant(&self, step: usize) -> Differing {
        let own = DIFFERENCES.iter().filter(|it| it.case == self.name && it.step == step);
        own.map(|it| (it.field.to_owned(), (it.theirs.to_owned(), it.ours.to_owned()))).collect()
    }
}

/// Takes away what says nothing: switches that were never on, and the order of what has none.
fn without_details(outcome: &mut Value) {
    for lb in outcome["load_balancers"].as_array_mut().into_iter().flatten() {
        if let Some(groups) = lb["security_groups"].as_array_mut() {
            groups.sort_by_key(Value::to_string);
        }
        for listener in lb["listeners"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
            if let Some(ppv2) = listener["ppv2"].as_object_mut() {
                ppv2.retain(|_, on| *on == true);
            }
        }
    }
    for lb in outcome["classic_load_balancers"].as_array_mut().into_iter().flatten() {
        lb.as_object_mut().unwrap().remove("default_backends");
    }
}

/// Replaces the cloud's next answers as a step says.
fn break_next(world: &World, fault: &Value) {
    let text = |name: &str| fault[name].as_str().unwrap_or_default();
    let how = match text("mode") {
        "job_fail" => Fault::JobFails,
        "throttle" => Fault::Throttle,
        _ => {
            let status = u16::try_from(fault["status"].as_u64().unwrap()).unwrap();
            Fault::Refuse(status, text("code").into(), text("message").into())
        }
    };
    let pattern = |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().to_owned());
    let parameters = fault["params"].as_object().into_iter().flatten().map(pattern).collect();
    let count = fault["count"].as_u64().map(|count| usize::try_from(count).unwrap());
    world.testbed.cloud.faults().matching(text("match"), parameters, how, count);
}

/// Plays the cases side by side, step by step, and returns what differed without being meant.
async fn play(mut cases: Vec<Case>) -> Vec<String> {
    let (world, mut ccm) = open().await;
    let mut wrong = Vec::new();
    for step in 0..cases.iter().map(|case| case.steps.len()).max().unwrap_or_default() {
        cases.retain(|case| case.steps.len() > step);
        let meddled = cases.iter().any(|case| !case.steps[step]["given"]["before"].is_null());
        let mut give = || {
            for case in &mut cases {
                case.give(&world, step);
                case.restarted = meddled;
            }
        };
        if meddled {
            // What somebody did in the cloud is found when everything is read again: here at a start.
            assert!(ccm.stop().await.success());
            give();
            ccm = world.start();
        } else {
            give();
        }
        // The events of a step that begins with a restart are not judged, and must not be taken for those of the next.
        let quiet = Duration::from_millis(if meddled { 1500 } else { 300 });
        let began = Instant::now();
        let (look, found) = loop {
            world.until_quiet(quiet).await;
            let look = Look::at(&world);
            let found: Vec<Differing> = cases.iter_mut().map(|case| case.differing(&look, step)).collect();
            let agree = cases.iter().zip(&found).all(|(case, found)| *found == case.meant(step));
            if agree || began.elapsed() > PATIENCE {
                break (look, found);
            }
        };
        for (case, found) in cases.iter().zip(found) {
            let meant = case.meant(step);
            let differ = found.iter().filter(|(path, values)| meant.get(*path) != Some(values));
            wrong.extend(differ.map(|(path, values)| format!("{} step {step}: {path}: {values:?}", case.name)));
            let same = meant.keys().filter(|path| !found.contains_key(*path));
            wrong.extend(same.map(|path| format!("{} step {step}: {path}: does not differ", case.name)));
            if found != meant {
                let warnings = case.events(&look.events).filter(|event| event["type"] == "Warning");
                let said = warnings.map(|event| event["message"].to_string());
                wrong.extend(said.map(|said| format!("{} step {step} said {said}", case.name)));
            }
        }
    }
    wrong.extend(world.testbed.cloud.complaints());
    assert!(ccm.stop().await.success());
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn services_get_what_the_official_controller_gave_them() {
    let mut cases = cases();
    if let Ok(only) = std::env::var("GOLDEN_CASE") {
        cases.retain(|case| case.name.contains(&only));
    }
    let mut played = Vec::new();
    // Cases that share a load balancer stay together.
    for first in FIRSTS.iter().rev() {
        let begin = cases.partition_point(|case| case.name.as_str() < *first);
        let part = cases.split_off(begin);
        if !part.is_empty() {
            played.push(tokio::spawn(play(part)));
        }
    }
    let mut wrong = Vec::new();
    for part in played {
        wrong.extend(part.await.unwrap());
    }
    assert!(wrong.is_empty(), "not as the official controller did, and not meant:\n{}", wrong.join("\n"));
}

#[test]
fn differences_are_of_cases_that_exist() {
    let cases = cases();
    for it in DIFFERENCES {
        let case = cases.iter().find(|case| case.name == it.case);
        assert!(case.is_some_and(|case| it.step < case.steps.len()), "{it:?}");
    }
}

/// The world of the recordings is what the simulated cloud can hold, and what is done in it before a step can be done.
#[test]
fn the_world_of_the_recordings_is_a_cloud() {
    let cloud = sim::cloud::Cloud::new(Account::from_json(&read("world.json")["cloud"]).unwrap());
    let shown = cloud.snapshot();
    let user = shown["network_load_balancers"].as_array().unwrap().iter().find(|it| it["id"] == "nlb-user-1").unwrap();
    assert_eq!(user["zones"].as_array().unwrap().len(), 2);
    assert_eq!(user["listeners"]["9000/TCP"]["server_group"], "users-sgp-own-1");
    assert_eq!(
        cloud.act("nlb", "DeleteServerGroup", &[("ServerGroupId", "sgp-own-1")]),
        Err("ResourceInUse.ServerGroup".into())
    );
}
