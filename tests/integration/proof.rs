//! What must be true of both worlds at the end, whatever happened in between; and the table of what was tried.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use sim::cloud::{RouteEntry, World as CloudWorld};
use sim::cluster::NodeSpec;
use sim::stage::{CLUSTER_ID, ROUTE_TABLE, Stage};

/// Tag with which the product marks load balancers.
const MARK: &str = "kubernetes.do.not.delete";
/// Tag that names the cluster.
const CLUSTER: &str = "ack.aliyun.com";

/// Both worlds without what differs from run to run: ids, addresses, versions and times.
pub(crate) fn state(stage: &Stage) -> Value {
    let mut cloud = stage.cloud.snapshot();
    let mut nodes = stage.cluster.list("Node");
    let mut services = stage.cluster.list("Service");
    let mut names = Vec::new();
    for lb in cloud["load_balancers"].as_array_mut().into_iter().flatten() {
        if lb["tags"].get(MARK).is_some() && lb["tags"][CLUSTER] == CLUSTER_ID {
            for service in &services {
                let (default, name) = (default_name(service), json!(format!("<{}>", service["metadata"]["name"])));
                for path in ["/name".to_owned(), format!("/tags/{MARK}")] {
                    if let Some(text) = lb.pointer_mut(&path).filter(|text| **text == default) {
                        *text = name.clone();
                    }
                }
            }
            for field in ["id", "address"] {
                names.push((lb[field].to_string(), json!(format!("<{field} of {}>", lb["name"])).to_string()));
            }
        }
    }
    for object in nodes.iter_mut().chain(&mut services) {
        timeless(object);
    }
    let mut text = json!({"cloud": cloud, "nodes": nodes, "services": services}).to_string();
    for (given, name) in names {
        text = text.replace(&given, &name);
    }
    let mut state: Value = serde_json::from_str(&text).unwrap();
    if let Some(all) = state["cloud"]["load_balancers"].as_array_mut() {
        all.sort_by_key(|lb| (lb["name"].to_string(), lb["id"].to_string()));
    }
    state
}

/// The name that the load balancer of a Service has, and by which it is marked, if nobody chose one.
fn default_name(service: &Value) -> String {
    let uid = service["metadata"]["uid"].as_str().unwrap_or_default();
    format!("a{uid}").replace('-', "").chars().take(32).collect()
}

/// Takes versions and times away, and the order of what has none.
fn timeless(value: &mut Value) {
    const VOLATILE: &[&str] = &[
        "resourceVersion",
        "managedFields",
        "lastTransitionTime",
        "lastHeartbeatTime",
        "timeAdded",
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "uid",
        "clusterIP",
        "clusterIPs",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            fields.values_mut().for_each(timeless);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(timeless);
            items.sort_by_key(ToString::to_string);
        }
        _ => {}
    }
}

/// Where two states differ, as people read it.
pub(crate) fn difference(expected: &Value, found: &Value) -> String {
    let mut lines = Vec::new();
    compare("", expected, found, &mut lines);
    lines.join("\n")
}

fn compare(path: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<_> = one.keys().chain(other.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let absent = Value::Null;
                let (one, other) = (one.get(key).unwrap_or(&absent), other.get(key).unwrap_or(&absent));
                compare(&format!("{path}/{key}"), one, other, lines);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}/{index}"), one, other, lines);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            let only = |here: &[Value], there: &[Value]| -> Vec<Value> {
                here.iter().filter(|item| !there.contains(item)).cloned().collect()
            };
            let (missing, surplus) = (json!(only(one, other)), json!(only(other, one)));
            lines.push(format!("{path}: missing {missing}, too many {surplus}"));
        }
        _ if expected == found => {}
        _ => lines.push(format!("{path}: expected {expected}, found {found}")),
    }
}

/// What belongs to somebody else, and how it looked when it was put there.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    load_balancers: BTreeMap<String, Value>,
    routes: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
}

/// The load balancer of a person, which Services may use by name.
pub(crate) const SHARED: &str = "lb-shared";

impl Foreign {
    /// Puts things of others into both worlds that look like ours at a glance: load balancers of other clusters with the
    /// same names and tags, routes of other systems inside the cluster's range, nodes of other providers, and a person's
    /// load balancer with a listener and a group of their own.
    pub(crate) fn settle(stage: &Stage, services: &[&str]) -> Self {
        let mut load_balancers = vec![json!({
            "id": SHARED, "name": "shared", "address": "47.1.1.1",
            "vgroups": [{"id": "rsp-people", "name": "people", "backends": [{"server_id": "i-people", "port": 9}]}],
            "listeners": [{"port": 9000, "protocol": "tcp", "vgroup": "rsp-people", "description": "by hand"}],
        })];
        for (number, service) in (1..).zip(services) {
            let name = match stage.cluster.get("Service", "default", service) {
                Some(service) => default_name(&service),
                None => format!("a{service}"),
            };
            let mark = format!("k8s/80/{service}/default/other");
            load_balancers.push(json!({
                "id": format!("lb-other-{number}"), "name": name, "address": format!("47.1.2.{number}"),
                "tags": {MARK: name, CLUSTER: "other"},
                "vgroups": [{"id": format!("rsp-other-{number}"), "name": mark,
                             "backends": [{"server_id": "i-others", "port": 80, "description": mark}]}],
                "listeners": [{"port": 80, "protocol": "tcp", "vgroup": format!("rsp-other-{number}"), "description": mark}],
            }));
            load_balancers.push(json!({
                "id": format!("lb-alike-{number}"), "name": format!("{service}-by-hand"),
                "address": format!("47.1.3.{number}"), "tags": {CLUSTER: CLUSTER_ID},
            }));
        }
        let world = json!({"region": "cn-hangzhou", "zones": ["cn-hangzhou-i", "cn-hangzhou-j"], "load_balancers": load_balancers});
        let others = CloudWorld::from_json(&world).unwrap();
        let ids: Vec<String> = others.load_balancers.keys().cloned().collect();
        let cidrs = ["10.98.200.0/24", "10.98.201.0/24", "172.30.0.0/16"];
        stage.cloud.edit(|world| {
            world.add_instance("i-others", "others", "vsw-i", "192.168.0.200");
            world.add_instance("i-people", "people", "vsw-j", "192.168.16.200");
            world.load_balancers.extend(others.load_balancers.iter().map(|(id, it)| (id.clone(), it.clone())));
            for (number, cidr) in cidrs.iter().enumerate() {
                let id = format!("rte-others-{number}");
                let mut entry = RouteEntry::to_instance(&id, "i-others");
                if number == 1 {
                    entry.description = "alicloud-ccm cluster=other node=node-1".into();
                }
                world.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.insert((*cidr).into(), entry);
            }
        });
        let nodes = ["aws:///eu-west-1a/i-0123", "ack-hybrid://box", "kubemark://hollow"];
        let mut names = Vec::new();
        for (number, provider) in nodes.iter().enumerate() {
            let name = format!("other-{number}");
            stage.cluster.add_node(&NodeSpec::new(&name).provider_id(provider)).unwrap();
            names.push(name);
        }
        let empty = BTreeMap::new();
        let mut foreign = Self { load_balancers: empty.clone(), routes: empty.clone(), nodes: empty };
        let own = |names: &[String]| names.iter().map(|name| (name.clone(), Value::Null)).collect();
        foreign.load_balancers = own(&ids);
        foreign.routes = cidrs.iter().map(|cidr| ((*cidr).to_owned(), Value::Null)).collect();
        foreign.nodes = own(&names);
        foreign.look_again(stage)
    }

    /// The same things, as they are now.
    pub(crate) fn look_again(&self, stage: &Stage) -> Self {
        let mut now = self.clone();
        let cloud = stage.cloud.snapshot();
        for (id, value) in &mut now.load_balancers {
            *value = peoples_part(stage.cloud.load_balancer(id));
        }
        for (cidr, value) in &mut now.routes {
            let all = cloud["routes"][ROUTE_TABLE].as_array().cloned().unwrap_or_default();
            *value = all.into_iter().find(|entry| entry["cidr"] == *cidr).unwrap_or_default();
        }
        for (name, value) in &mut now.nodes {
            *value = stage.cluster.get("Node", "", name).unwrap_or_default();
            timeless(value);
        }
        now
    }

    /// How many things there are.
    pub(crate) fn count(&self) -> usize {
        self.load_balancers.len() + self.routes.len() + self.nodes.len()
    }

    /// What became of them since, if anything.
    pub(crate) fn changes(&self, stage: &Stage) -> Vec<String> {
        let now = self.look_again(stage);
        let parts =
            [(&self.load_balancers, &now.load_balancers), (&self.routes, &now.routes), (&self.nodes, &now.nodes)];
        let pairs = parts.into_iter().flat_map(|(before, now)| before.iter().zip(now.values()));
        pairs
            .filter(|((_, before), now)| before != now)
            .map(|((name, before), now)| format!("{name}: {}", difference(before, now)))
            .collect()
    }
}

/// A load balancer without what bears a mark of this cluster.
fn peoples_part(mut lb: Value) -> Value {
    let ours = |text: &str| text.starts_with("k8s/") && text.ends_with(&format!("/{CLUSTER_ID}"));
    if let Some(groups) = lb["vgroups"].as_object_mut() {
        groups.retain(|name, _| !ours(name));
    }
    if let Some(listeners) = lb["listeners"].as_object_mut() {
        listeners.retain(|_, listener| !ours(listener["description"].as_str().unwrap_or_default()));
    }
    // A load balancer that is used by Services says so.
    if let Some(tags) = lb["tags"].as_object_mut() {
        tags.retain(|key, _| key != "kubernetes.reused.by.user");
    }
    lb
}

/// Load balancers that carry this cluster's mark.
pub(crate) fn marked(stage: &Stage) -> usize {
    stage.cloud.look(|cloud| {
        cloud
            .load_balancers
            .values()
            .filter(|lb| lb.tags.contains_key(MARK) && lb.tags.get(CLUSTER).is_some_and(|id| id == CLUSTER_ID))
            .count()
    })
}

/// One row of the table in docs/safety.md.
#[derive(Debug)]
pub(crate) struct Row {
    /// What was tried.
    pub(crate) tried: &'static str,
    /// The test that tries it.
    pub(crate) test: &'static str,
    /// Numbers, as (what, how many).
    pub(crate) numbers: Vec<(&'static str, usize)>,
    /// Things lost, doubled, left behind, or changed although they are somebody else's.
    pub(crate) lost: usize,
}

impl Row {
    /// Writes the row into the folder that `SAFETY_TABLE` names, if it names one.
    pub(crate) fn write(&self) {
        let Ok(folder) = std::env::var("SAFETY_TABLE") else { return };
        let numbers: Vec<String> = self.numbers.iter().map(|(what, many)| format!("{many} {what}")).collect();
        let line = format!(
            "| {} | {} | {} | `cargo test --test integration {}` |\n",
            self.tried,
            numbers.join(", "),
            self.lost,
            self.test
        );
        let name = self.test.replace("::", "-");
        std::fs::write(Path::new(&folder).join(name), line).unwrap();
    }
}
