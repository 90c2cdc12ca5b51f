//! The state that both worlds must have at the end of a test, and the table of test results in `docs/evidence/test-results.md`.

use std::collections::BTreeMap;
use std::path::Path;

use expect_test::expect_file;
use serde_json::{Value, json};
use sim::cloud::{
    Account, GroupServer, LoadBalancer, NetworkListener, NetworkLoadBalancer, PrivateZone, RouteEntry, SecurityGroup,
    ServerGroup,
};
use sim::cluster::NodeSpec;
use sim::testbed::{CLUSTER_ID, ROUTE_TABLE, Testbed};

/// Tag with which the product marks load balancers.
const MARK: &str = "kubernetes.do.not.delete";
/// Tag that names the cluster.
const CLUSTER: &str = "ack.aliyun.com";

/// Both worlds without what differs from run to run: ids, addresses, versions and times.
pub(crate) fn state(testbed: &Testbed) -> Value {
    let mut cloud = testbed.cloud.snapshot();
    let mut nodes = testbed.cluster.list("Node");
    let mut services = testbed.cluster.list("Service");
    let mut volumes = testbed.cluster.list("PersistentVolume");
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
                names.push((lb[field].to_string(), json!(format!("<{field} of {}>", lb["tags"][MARK])).to_string()));
            }
        }
    }
    network_without_chance(&mut cloud, &services, &mut names);
    names.extend(access_lists(testbed, &services));
    let records = records(testbed, &services);
    for object in nodes.iter_mut().chain(&mut services).chain(&mut volumes) {
        timeless(object);
    }
    let all = json!({
        "cloud": cloud, "nodes": nodes, "services": services, "volumes": volumes, "records": records,
    });
    let mut text = all.to_string();
    for (given, name) in names {
        text = text.replace(&given, &name);
    }
    let mut state: Value = serde_json::from_str(&text).unwrap();
    for kind in NETWORK.into_iter().chain(["load_balancers"]) {
        if let Some(all) = state["cloud"][kind].as_array_mut() {
            all.sort_by_key(|lb| (lb["name"].to_string(), lb["id"].to_string()));
        }
    }
    state
}

/// Ids of the lists that source ranges of Services became, and names instead.
fn access_lists(testbed: &Testbed, services: &[Value]) -> Vec<(String, String)> {
    let named = |name: &str| {
        services.iter().fold(name.to_owned(), |name, service| {
            let of = service["metadata"]["name"].as_str().unwrap_or_default();
            name.replace(&default_name(service), &format!("<default name of {of}>"))
        })
    };
    testbed
        .cloud
        .look(|cloud| cloud.acls.iter().map(|(id, acl)| (id.clone(), format!("<list {}>", named(&acl.name)))).collect())
}

/// The records of all private zones, without the addresses that the cluster or the cloud chose for a Service.
fn records(testbed: &Testbed, services: &[Value]) -> Vec<String> {
    let lines: Vec<String> =
        testbed.cloud.look(|account| account.private_zones.values().flat_map(PrivateZone::lines).collect());
    let mut chosen = BTreeMap::new();
    for service in services {
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let given = ingress.flat_map(|entry| [&entry["ip"], &entry["hostname"]]).chain([&service["spec"]["clusterIP"]]);
        for text in given.filter_map(Value::as_str) {
            let name = format!("<address of {}>", service["metadata"]["name"].as_str().unwrap_or_default());
            chosen.insert(text.rsplit('.').collect::<Vec<_>>().join("."), name.clone());
            chosen.insert(text.to_owned(), name);
        }
    }
    let known = |word: &str| chosen.get(word).cloned().unwrap_or_else(|| word.to_owned());
    let mut lines: Vec<String> =
        lines.iter().map(|line| line.split(' ').map(known).collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    lines
}

/// Takes away from network load balancers and what belongs to them what differs from run to run.
fn network_without_chance(cloud: &mut Value, services: &[Value], names: &mut Vec<(String, String)>) {
    let defaults: Vec<(String, String)> = services
        .iter()
        .map(|it| {
            (default_name(it), format!("<default name of {}>", it["metadata"]["name"].as_str().unwrap_or_default()))
        })
        .collect();
    for kind in NETWORK {
        for it in cloud[kind].as_array_mut().into_iter().flatten().filter(|it| it["tags"][CLUSTER] == CLUSTER_ID) {
            let text = it.to_string();
            let text = defaults.iter().fold(text, |text, (default, name)| text.replace(default, name));
            *it = serde_json::from_str(&text).unwrap();
            // A load balancer can have another name.
            let name = if kind == NETWORK[0] { &it["tags"][MARK] } else { &it["name"] };
            let name = name.as_str().unwrap_or_default();
            names.push((it["id"].as_str().unwrap_or_default().to_owned(), format!("<id of {kind} {name}>")));
            for zone in it["zones"].as_array_mut().into_iter().flatten() {
                for field in ["private_ip", "public_ip"] {
                    if zone[field] != "" {
                        zone[field] = json!("<address>");
                    }
                }
            }
        }
    }
}

/// What there is of network load balancers.
const NETWORK: [&str; 3] = ["network_load_balancers", "server_groups", "security_groups"];

/// The network load balancer of a person, which Services may use by name, see [`Foreign::settle_shared_network`].
pub(crate) const NETWORK_SHARED: &str = "nlb-shared";

/// Ids of what [`Foreign::settle`] puts beside the network load balancers of this cluster.
const NETWORK_OTHERS: [&str; 3] = ["nlb-other", "sgp-other", "sg-other"];

/// Puts a network load balancer of another cluster into the cloud that has the name and the mark of a Service here.
fn settle_network(testbed: &Testbed) {
    let service = testbed.cluster.get("Service", "default", "net");
    let name = service.map_or_else(|| "anet".to_owned(), |service| default_name(&service));
    let tags = BTreeMap::from([(MARK.to_owned(), name.clone()), (CLUSTER.to_owned(), "other".to_owned())]);
    testbed.cloud.edit(|cloud| {
        let mark = "k8s.80.TCP.net.default.other".to_owned();
        let mut group = ServerGroup::new(&mark, sim::testbed::VPC, "Instance", "TCP");
        group.tags = tags.clone();
        cloud.nlb.groups.insert(NETWORK_OTHERS[1].into(), group.into());
        let mut lb = NetworkLoadBalancer::new(&name, "Intranet", sim::testbed::VPC);
        lb.tags = tags.clone();
        let mut listener = NetworkListener::default();
        (listener.protocol, listener.port, listener.idle_timeout) = ("TCP".into(), 80, 900);
        (listener.description, listener.status) = (mark, "Running".into());
        listener.group = NETWORK_OTHERS[1].into();
        lb.listeners.insert("lsn-other".into(), listener);
        lb.security_groups.push(NETWORK_OTHERS[2].into());
        let at = [("cn-hangzhou-i", "vsw-i"), ("cn-hangzhou-j", "vsw-j")];
        cloud.add_network_load_balancer(
            NETWORK_OTHERS[0],
            lb,
            &at.map(|(zone, vswitch)| (zone.into(), vswitch.into())),
        );
        let mut group = SecurityGroup::default();
        (group.name, group.kind) = (format!("k8s-nlb-{name}"), "enterprise".into());
        (group.vpc, group.tags) = (sim::testbed::VPC.into(), tags);
        cloud.security_groups.insert(NETWORK_OTHERS[2].into(), group);
    });
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
        "healthCheckNodePort",
        "alicloud-ccm/clb-incarnation",
        "alicloud-ccm/nlb-incarnation",
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
    /// Network load balancers, their server groups and security groups.
    network: BTreeMap<String, Value>,
    routes: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
}

/// The load balancer of a person, which Services may use by name.
pub(crate) const SHARED: &str = "lb-shared";

impl Foreign {
    /// Puts things of others into both worlds that look like ours at a glance: load balancers of other clusters with the
    /// same names and tags, routes of other systems inside the cluster's range, nodes of other providers, and a person's
    /// load balancer with a listener and a group of their own.
    pub(crate) fn settle(testbed: &Testbed, services: &[&str]) -> Self {
        let mut load_balancers = vec![json!({
            "id": SHARED, "name": "shared", "address": "47.1.1.1",
            "vgroups": [{"id": "rsp-people", "name": "people", "backends": [{"server_id": "i-people", "port": 9}]}],
            "listeners": [{"port": 9000, "protocol": "tcp", "vgroup": "rsp-people", "description": "by hand"}],
        })];
        for (number, service) in (1..).zip(services) {
            let name = match testbed.cluster.get("Service", "default", service) {
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
        let others = Account::from_json(&world).unwrap();
        let ids: Vec<String> = others.load_balancers.keys().cloned().collect();
        let cidrs = ["10.98.200.0/24", "10.98.201.0/24", "172.30.0.0/16"];
        testbed.cloud.edit(|world| {
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
        settle_network(testbed);
        let nodes = ["aws:///eu-west-1a/i-0123", "ack-hybrid://box", "kubemark://hollow"];
        let mut names = Vec::new();
        for (number, provider) in nodes.iter().enumerate() {
            let name = format!("other-{number}");
            testbed.cluster.add_node(&NodeSpec::new(&name).provider_id(provider)).unwrap();
            names.push(name);
        }
        let own = |names: &[String]| names.iter().map(|name| (name.clone(), Value::Null)).collect();
        let foreign = Self {
            load_balancers: own(&ids),
            network: own(&NETWORK_OTHERS.map(str::to_owned)),
            routes: own(&cidrs.map(str::to_owned)),
            nodes: own(&names),
        };
        foreign.look_again(testbed)
    }

    /// Puts a network load balancer of a person beside them, with a listener and a group of their own.
    pub(crate) fn settle_shared_network(&mut self, testbed: &Testbed) {
        testbed.cloud.edit(|cloud| {
            let mut group = ServerGroup::new("people", sim::testbed::VPC, "Instance", "TCP");
            group.servers.push(GroupServer::instance("i-people", "192.168.16.200", 9));
            cloud.nlb.groups.insert("sgp-people".into(), group.into());
            let mut lb = NetworkLoadBalancer::new("shared", "Intranet", sim::testbed::VPC);
            let mut listener = NetworkListener::default();
            (listener.protocol, listener.port, listener.idle_timeout) = ("TCP".into(), 9000, 900);
            (listener.description, listener.status) = ("by hand".into(), "Running".into());
            listener.group = "sgp-people".into();
            lb.listeners.insert("lsn-people".into(), listener);
            let at = [("cn-hangzhou-i", "vsw-i"), ("cn-hangzhou-j", "vsw-j")];
            cloud.add_network_load_balancer(
                NETWORK_SHARED,
                lb,
                &at.map(|(zone, vswitch)| (zone.into(), vswitch.into())),
            );
        });
        self.network.extend([NETWORK_SHARED, "sgp-people"].map(|id| (id.to_owned(), Value::Null)));
        *self = self.look_again(testbed);
    }

    /// The same things, as they are now.
    pub(crate) fn look_again(&self, testbed: &Testbed) -> Self {
        let mut now = self.clone();
        let cloud = testbed.cloud.snapshot();
        for (id, value) in &mut now.load_balancers {
            *value = peoples_part(testbed.cloud.load_balancer(id));
        }
        let network: Vec<&Value> = NETWORK.iter().filter_map(|kind| cloud[*kind].as_array()).flatten().collect();
        for (id, value) in &mut now.network {
            *value =
                network.iter().find(|it| it["id"] == *id).map(|it| peoples_part((*it).clone())).unwrap_or_default();
        }
        for (cidr, value) in &mut now.routes {
            let all = cloud["routes"][ROUTE_TABLE].as_array().cloned().unwrap_or_default();
            *value = all.into_iter().find(|entry| entry["cidr"] == *cidr).unwrap_or_default();
        }
        for (name, value) in &mut now.nodes {
            *value = testbed.cluster.get("Node", "", name).unwrap_or_default();
            timeless(value);
        }
        now
    }

    /// Somebody made more: all but this cluster's load balancers, and all routes to instances that are not its nodes'.
    pub(crate) fn claim(&mut self, testbed: &Testbed) {
        testbed.cloud.look(|cloud| {
            let theirs = cloud.load_balancers.iter().filter(|(_, lb)| !is_marked(lb));
            self.load_balancers.extend(theirs.map(|(id, _)| (id.clone(), Value::Null)));
            let is_ours = |tags: &BTreeMap<String, String>| tags.get(CLUSTER).is_some_and(|id| id == CLUSTER_ID);
            let theirs = cloud.nlb.balancers.iter().filter(|(_, lb)| !is_ours(&lb.tags));
            self.network.extend(theirs.map(|(id, _)| (id.clone(), Value::Null)));
            let entries = cloud.route_tables[ROUTE_TABLE].entries.iter();
            let theirs = entries.filter(|(_, entry)| !format!("{:?}", entry.next_hops).contains("i-play-"));
            self.routes.extend(theirs.map(|(cidr, _)| (cidr.clone(), Value::Null)));
        });
    }

    /// How many load balancers, routes and nodes there are.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.load_balancers.len(), self.routes.len(), self.nodes.len()]
    }

    /// How many things there are.
    pub(crate) fn count(&self) -> usize {
        self.counts().iter().sum::<usize>() + self.network.len()
    }

    /// What became of them since, if anything.
    pub(crate) fn changes(&self, testbed: &Testbed) -> Vec<String> {
        let now = self.look_again(testbed);
        let parts = [
            (&self.load_balancers, &now.load_balancers),
            (&self.network, &now.network),
            (&self.routes, &now.routes),
            (&self.nodes, &now.nodes),
        ];
        let pairs = parts.into_iter().flat_map(|(before, now)| before.iter().zip(now.values()));
        pairs
            .filter(|((_, before), now)| before != now)
            .map(|((name, before), now)| format!("{name}: {}", difference(before, now)))
            .collect()
    }
}

/// A load balancer without what bears a mark of this cluster.
fn peoples_part(mut lb: Value) -> Value {
    let ours = |text: &str| {
        ["/", "."]
            .iter()
            .any(|it| text.starts_with(&format!("k8s{it}")) && text.ends_with(&format!("{it}{CLUSTER_ID}")))
    };
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

fn is_marked(lb: &LoadBalancer) -> bool {
    lb.tags.contains_key(MARK) && lb.tags.get(CLUSTER).is_some_and(|id| id == CLUSTER_ID)
}

/// Load balancers that carry this cluster's mark.
pub(crate) fn marked(testbed: &Testbed) -> usize {
    testbed.cloud.look(|cloud| cloud.load_balancers.values().filter(|lb| is_marked(lb)).count())
}

/// The page with the table of what was tried.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/test-results.md");
const HEAD: &str = "| Test | Volume | Lost | Command |\n|---|---|---|---|\n";
/// Numbers that are another one each time: the page has a lower bound of them.
const AT_LEAST: [&str; 2] = ["faulty cloud calls", "logs, pages, outputs and objects searched"];

/// One row of the table in docs/evidence/test-results.md.
#[derive(Debug)]
pub(crate) struct Row {
    /// What was tried.
    pub(crate) tried: &'static str,
    /// The test that tries it.
    pub(crate) test: &'static str,
    /// Numbers, as (what, how many).
    pub(crate) numbers: Vec<(&'static str, usize)>,
    /// Things lost, doubled, left behind, or changed although they are foreign.
    pub(crate) lost: usize,
}

impl Row {
    /// Compares the row of the page with what was done now.
    pub(crate) fn write(&self) {
        static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
        // Who asks for other seeds than the ordinary ones does other things than the page says.
        if ["SAFETY_SEED", "SAFETY_SEEDS"].iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        let _alone = TURN.lock();
        let page = std::fs::read_to_string(PAGE).unwrap();
        let committed = rows(&page).find(|row| row.ends_with(&self.end())).unwrap_or_default();
        if self.is_told_by(committed) {
            return;
        }
        let row = format!("| {} | {}{}", self.tried, self.numbers(), self.end());
        let mut all: Vec<&str> = rows(&page).filter(|row| *row != committed).chain([row.as_str()]).collect();
        all.sort_by_key(|row| row.rsplit('|').nth(1).map(str::to_owned));
        let (before, after) = page.split_once(HEAD).unwrap();
        let after = &after[after.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum()..];
        expect_file![PAGE].assert_eq(&format!("{before}{HEAD}{}\n{after}", all.join("\n")));
    }

    fn end(&self) -> String {
        format!(" | {} | `cargo test --test integration {}` |", self.lost, self.test)
    }

    fn numbers(&self) -> String {
        let number = |(what, many): &(&str, usize)| match AT_LEAST.contains(what) {
            true => format!("at least {} {what}", rounded(*many)),
            false => format!("{many} {what}"),
        };
        self.numbers.iter().map(number).collect::<Vec<_>>().join(", ")
    }

    /// Whether the row says this; of a lower bound, whether it holds.
    fn is_told_by(&self, row: &str) -> bool {
        let Some(rest) = row.strip_prefix(&format!("| {} | ", self.tried)) else { return false };
        let mut rest = rest;
        for (index, (what, many)) in self.numbers.iter().enumerate() {
            rest = rest.strip_prefix(if index == 0 { "" } else { ", " }).unwrap_or_default();
            let floor = AT_LEAST.contains(what);
            rest = rest.strip_prefix(if floor { "at least " } else { "" }).unwrap_or_default();
            let Some((reported, after)) = rest.split_once(' ') else { return false };
            let reported = reported.parse::<usize>().unwrap_or(usize::MAX);
            let Some(after) = after.strip_prefix(what) else { return false };
            if reported > *many || reported != *many && !floor {
                return false;
            }
            rest = after;
        }
        rest == self.end()
    }
}

/// The rows of the page's table.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let table = page.split_once(HEAD).map_or("", |(_, table)| table);
    table.lines().take_while(|line| line.starts_with('|'))
}

/// Half of it, in one digit and zeros.
fn rounded(many: usize) -> usize {
    let half = many / 2;
    let unit = 10_usize.pow(half.checked_ilog10().unwrap_or(0));
    half / unit * unit
}

#[test]
fn every_row_is_written_by_a_test_that_exists() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration");
    for row in rows(&page) {
        let (_, command) = row.split_once("`cargo test --test integration ").expect(row);
        let test = command.trim_end_matches("` |");
        let (module, name) = test.split_once("::").unwrap_or((test, ""));
        let source = std::fs::read_to_string(folder.join(format!("{module}.rs"))).expect(row);
        assert!(source.contains(&format!("fn {name}")) && source.contains(&format!("test: \"{test}\"")), "{row}");
        assert!(row.contains("| 0 | `"), "something was lost: {row}");
    }
    assert!(rows(&page).count() > 0);
}

#[test]
fn a_row_matches_its_own_text_and_no_other() {
    let row = Row { tried: "this", test: "a::b", numbers: vec![("seeds", 50), (AT_LEAST[0], 2893)], lost: 0 };
    let text = format!("| this | {}{}", row.numbers(), row.end());
    assert_eq!(
        text,
        "| this | 50 seeds, at least 1000 faulty cloud calls | 0 | `cargo test --test integration a::b` |"
    );
    assert!(row.is_told_by(&text));
    assert!(Row { numbers: vec![("seeds", 50), (AT_LEAST[0], 1000)], ..row }.is_told_by(&text));
    for (seeds, faults, lost) in [(51, 2893, 0), (49, 2893, 0), (50, 999, 0), (50, 2893, 1)] {
        let numbers = vec![("seeds", seeds), (AT_LEAST[0], faults)];
        assert!(!Row { tried: "this", test: "a::b", numbers, lost }.is_told_by(&text));
    }
    assert!(!Row { tried: "that", test: "a::b", numbers: Vec::new(), lost: 0 }.is_told_by(&text));
}
