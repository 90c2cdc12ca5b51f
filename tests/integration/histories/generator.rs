//! Lives from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use alicloud_ccm::plan::clb::annotations::Name as ClbName;
use alicloud_ccm::plan::loadbalancer::annotations::values::ValueKind;
use alicloud_ccm::plan::loadbalancer::annotations::{self, AnnotationKey, AnnotationName, Removed};
use alicloud_ccm::plan::nlb::annotations::Name as NlbName;
use serde_json::{Value, json};

use super::life::{Deed, Life, Pause, Step, fields, index, merge};
use super::values::{GROUP, INVALID, valid};
use super::{NETWORK_CLASS, known};
use crate::random_faults::Dice;

/// One annotation of either product.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) removed: Removed,
    values: Vec<String>,
    has_invalid: bool,
}

/// The annotations of a product, without those that are not tried yet.
pub(crate) fn rows<N: AnnotationName>() -> Vec<Row> {
    let row = |entry: &alicloud_ccm::plan::loadbalancer::annotations::Entry<N>| Row {
        key: entry.key.full(),
        removed: entry.removed,
        values: valid(&entry.key.full(), entry.kind),
        has_invalid: !matches!(
            entry.kind,
            ValueKind::AnyValue | ValueKind::Presence | ValueKind::OneOfOrLast(_) | ValueKind::LooseSwitch(_)
        ),
    };
    N::TABLE.iter().map(row).filter(|row| !known::annotation(&row.key)).collect()
}

const KINDS: [&str; 6] = ["LoadBalancer", "LoadBalancer", "LoadBalancer", "LoadBalancer", "NodePort", "ClusterIP"];
const RANGES: [&[&str]; 3] = [&["10.0.0.0/8"], &["10.0.0.0/8", "192.168.0.0/16"], &["0.0.0.0/0"]];
/// So many Services can have a load balancer that a user made.
pub(crate) const USERS: u64 = 3;
/// Actions that the cloud refuses for a while. None adds backends: the controller leaves refused backends out for minutes.
const REFUSED: [&str; 18] = [
    "CreateLoadBalancer",
    "DeleteLoadBalancer",
    "CreateLoadBalancerTCPListener",
    "CreateLoadBalancerUDPListener",
    "CreateListener",
    "StartLoadBalancerListener",
    "SetLoadBalancerTCPListenerAttribute",
    "UpdateListenerAttribute",
    "DeleteLoadBalancerListener",
    "DeleteListener",
    "CreateVServerGroup",
    "CreateServerGroup",
    "RemoveVServerGroupBackendServers",
    "RemoveServersFromServerGroup",
    "DeleteVServerGroup",
    "DeleteServerGroup",
    "TagResources",
    "CreateSecurityGroup",
];
const PORTS: [u16; 5] = [80, 443, 8080, 53, 8443];
/// Slots of pods of a Service on one node.
const SLOTS: u64 = 12;
/// Nodes, in two zones.
pub(crate) const NODES: u64 = 4;

/// Names the load balancer of a user for a Service that was made with one.
fn at_home(service: &mut Value) {
    let Some(number) = service["home"]["at"].as_u64() else { return };
    let stated = service["home"]["stated"].clone();
    let kind = if service["class"] == NETWORK_CLASS { "nlb" } else { "lb" };
    merge(service, &json!({"annotations": stated}));
    service["annotations"][annotations::ID.full()] = format!("{kind}-user-u{number}").into();
}

/// The generator.
struct Generator {
    dice: Dice,
    rows: [Vec<Row>; 2],
    wanted: Value,
    services: u64,
    /// Services that were told to use another load balancer of a user since they were made.
    moved: BTreeSet<String>,
}

/// The life of a seed.
pub(crate) fn life(seed: u64) -> Life {
    let mut dice = Dice(seed);
    let services = match dice.below(12) {
        0 if dice.below(4) == 0 => 10 + dice.below(21),
        0 => 6 + dice.below(4),
        1..4 => 3,
        4..8 => 2,
        _ => 1,
    };
    let pace = dice.below(3);
    let rows = [rows::<ClbName>(), rows::<NlbName>()];
    let mut generator = Generator { dice, rows, wanted: json!({}), services, moved: BTreeSet::new() };
    let mut steps = vec![Step { pause: Pause::For(Duration::ZERO), deed: Deed::Change(generator.first()) }];
    let disturbed = generator.dice.below(3) == 0;
    for _ in 0..4 + generator.dice.below(10) {
        let pause = match pace {
            0 => Pause::Settle,
            1 => Pause::For(Duration::from_millis(generator.dice.below(2000))),
            _ if generator.dice.below(3) == 0 => Pause::Settle,
            _ => Pause::For(Duration::from_millis(generator.dice.below(9000))),
        };
        let deed = generator.deed(disturbed);
        steps.push(Step { pause, deed });
    }
    let last = generator.last();
    let soon = Pause::For(Duration::from_millis(500));
    steps.extend(disturbed.then_some(Step { pause: soon, deed: Deed::Calm }));
    for patch in last {
        let is_managed_again = patch.to_string().contains(&annotations::MANAGE.full());
        let pause = if is_managed_again { Pause::Settle } else { soon };
        steps.push(Step { pause, deed: Deed::Change(patch) });
    }
    Life { seed, steps }
}

impl Generator {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.dice.below(from.len() as u64)).unwrap()]
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.dice.below(bound) == 0
    }

    /// What is wanted from the start.
    fn first(&mut self) -> Value {
        let mut patch = json!({"nodes": {}, "services": {}});
        for node in 1..=NODES {
            if node < NODES || self.one_in(2) {
                patch["nodes"][node.to_string()] = "ready".into();
            }
        }
        for number in 0..self.services {
            patch["services"][format!("s{number}")] = self.service(number);
        }
        self.want(patch)
    }

    fn want(&mut self, patch: Value) -> Value {
        merge(&mut self.wanted, &patch);
        patch
    }

    fn service(&mut self, number: u64) -> Value {
        let mut it = json!({"type": "LoadBalancer", "ports": {"a": self.port(number, 0)}, "annotations": {}});
        if self.one_in(2) {
            it["class"] = NETWORK_CLASS.into();
        }
        if self.one_in(3) {
            it["policy"] = "Local".into();
        }
        if self.one_in(3) {
            it["ports"]["b"] = self.port(number, 1);
        }
        if number < USERS && self.one_in(4) {
            let at = if self.one_in(3) { self.dice.below(USERS) } else { number };
            let force = if self.one_in(4) { "false" } else { "true" };
            it["home"] = json!({"at": at, "stated": {annotations::FORCE_OVERRIDE_LISTENERS.full(): force}});
        }
        for _ in 0..self.dice.below(4) {
            let row = self.row(&it);
            it["annotations"][row.key.as_str()] = self.value(&row, &it).into();
        }
        at_home(&mut it);
        it["pods"] = self.pods(&json!({}));
        it
    }

    /// A row of the product that the Service asks for, rather one that counts on the load balancer of a user.
    fn row(&mut self, service: &Value) -> Row {
        let of_users = !service["home"].is_null() && self.one_in(3);
        let rows = &self.rows[usize::from(service["class"] == NETWORK_CLASS)];
        if of_users {
            let keys = [annotations::VGROUP_PORT, annotations::MANAGE].map(AnnotationKey::full);
            let rows: Vec<&Row> = rows.iter().filter(|row| keys.contains(&row.key)).collect();
            return rows[usize::try_from(self.dice.below(rows.len() as u64)).unwrap()].clone();
        }
        rows[usize::try_from(self.dice.below(rows.len() as u64)).unwrap()].clone()
    }

    fn value(&mut self, row: &Row, service: &Value) -> String {
        let value = self.dice.below(row.values.len() as u64);
        let prefix = if service["class"] == NETWORK_CLASS { "sgp" } else { "rsp" };
        row.values[usize::try_from(value).unwrap()].replace(GROUP, &format!("{prefix}-user-u{}", service["home"]["at"]))
    }

    fn port(&mut self, number: u64, slot: u64) -> Value {
        let protocol = self.pick(&["TCP", "TCP", "TCP", "UDP"]);
        let port = if slot == 0 { self.pick(&PORTS[..3]) } else { self.pick(&PORTS[3..]) };
        json!({"port": port, "protocol": protocol, "target": 8000 + self.dice.below(3), "node": 30_000 + 10 * number + slot})
    }

    /// New pods in place of these.
    fn pods(&mut self, old: &Value) -> Value {
        let mut pods = json!({});
        for (slot, _) in fields(old) {
            pods[slot] = Value::Null;
        }
        for _ in 0..1 + self.dice.below(3) {
            let slot = self.dice.below(SLOTS).to_string();
            pods[slot] = json!({"node": 1 + self.dice.below(NODES - 1), "state": "ready"});
        }
        pods
    }

    fn deed(&mut self, disturbed: bool) -> Deed {
        let disturbance = if disturbed { self.dice.below(8) } else { 8 };
        match disturbance {
            0 => Deed::Kill,
            1 => Deed::Faults(u8::try_from(5 + self.dice.below(20)).unwrap()),
            2 => Deed::Lies(u8::try_from(5 + self.dice.below(10)).unwrap()),
            3 => Deed::Calm,
            4 => Deed::Refuse(self.pick(&REFUSED)),
            _ => self.change(),
        }
    }

    fn change(&mut self) -> Deed {
        let number = self.dice.below(self.services);
        let name = format!("s{number}");
        let service = self.wanted["services"][&name].clone();
        if service.is_null() {
            let made = self.service(number);
            return Deed::Change(self.want(json!({"services": {name: made}})));
        }
        let change = match self.dice.below(25) {
            0..8 => self.annotation(&name, &service),
            8 | 9 => self.kind(&service),
            10 => json!({"policy": if service["policy"] == "Local" { Value::Null } else { "Local".into() }}),
            11 => {
                json!({"affinity": if service["affinity"].is_null() { json!(self.pick(&[60, 10_800])) } else { Value::Null }})
            }
            12 => json!({"ranges": if service["ranges"].is_null() { json!(self.pick(&RANGES)) } else { Value::Null }}),
            13 => {
                json!({"allocate": if service["allocate"].is_null() { json!(false) } else { Value::Null }})
            }
            14..17 => self.ports(number, &service),
            17 => self.release(&service),
            18 => json!({"pods": self.pods(&service["pods"])}),
            19 => self.readiness(&service),
            20 => {
                self.moved.remove(&name);
                Value::Null
            }
            21 => return Deed::Strip(name),
            22 => return Deed::PutBack(name),
            _ => return self.surroundings(),
        };
        Deed::Change(self.want(json!({"services": {name: change}})))
    }

    fn annotation(&mut self, name: &str, service: &Value) -> Value {
        let is_of_user = !service["home"].is_null();
        if u64::from(index(name)) < USERS && self.one_in(if is_of_user { 4 } else { 12 }) {
            return self.another_home(name, service);
        }
        let stated: Vec<String> = fields(&service["annotations"]).map(|(key, _)| key.clone()).collect();
        if !stated.is_empty() && self.one_in(2) {
            let key = &stated[usize::try_from(self.dice.below(stated.len() as u64)).unwrap()];
            // Without it, a Service that has no address yet would get a load balancer of its own.
            if *key != annotations::ID.full() || service["home"].is_null() {
                return json!({"annotations": {key: null}});
            }
        }
        let row = self.row(service);
        // Listeners stay as they are once they are not overridden any more.
        let is_force = row.key == annotations::FORCE_OVERRIDE_LISTENERS.full();
        if is_force && service["home"]["stated"][&row.key] == "false" {
            return json!({});
        }
        let value = self.value(&row, service);
        let value = if row.has_invalid && self.one_in(6) { INVALID } else { value.as_str() };
        json!({"annotations": {row.key.as_str(): value}})
    }

    /// The load balancer of another user, perhaps with the groups there, or one of its own after that.
    fn another_home(&mut self, name: &str, service: &Value) -> Value {
        self.moved.insert(name.to_owned());
        let Some(at) = service["home"]["at"].as_u64() else {
            let stated = json!({annotations::FORCE_OVERRIDE_LISTENERS.full(): "true"});
            let mut now = json!({"home": {"at": self.dice.below(USERS), "stated": stated}, "class": service["class"]});
            at_home(&mut now);
            return json!({"home": now["home"], "annotations": now["annotations"]});
        };
        let next = (at + 1 + self.dice.below(USERS - 1)) % USERS;
        let leaves_users = self.one_in(6);
        let (from, to) = (format!("-user-u{at}"), format!("-user-u{next}"));
        let mut change = json!({"home": {"at": next}, "annotations": {}});
        if leaves_users {
            change["home"] = Value::Null;
        }
        for (key, value) in fields(&service["annotations"]) {
            let value = value.as_str().unwrap();
            let is_led = *key == annotations::ID.full() || leaves_users || self.one_in(2);
            if is_led && value.contains(&from) {
                let led = if leaves_users { Value::Null } else { value.replace(&from, &to).into() };
                change["annotations"][key] = led;
            }
        }
        change
    }

    /// Another type; a class can be changed only together with it.
    fn kind(&mut self, service: &Value) -> Value {
        let kind = self.pick(&KINDS);
        // With the same uid, the load balancer that was kept is taken up again.
        if !service["annotations"][annotations::PRESERVE_ON_DELETE.full()].is_null() {
            return json!({});
        }
        let network = service["class"] == NETWORK_CLASS;
        if kind == "LoadBalancer" && service["type"] != kind && self.one_in(2) {
            let class = if network { Value::Null } else { NETWORK_CLASS.into() };
            let mut now = json!({"home": service["home"], "class": class});
            at_home(&mut now);
            return json!({"type": kind, "class": class, "annotations": now["annotations"]});
        }
        json!({"type": kind})
    }

    fn ports(&mut self, number: u64, service: &Value) -> Value {
        let ports = &service["ports"];
        let slots: Vec<String> = fields(ports).map(|(slot, _)| slot.clone()).collect();
        let slot = &slots[usize::try_from(self.dice.below(slots.len() as u64)).unwrap()];
        match self.dice.below(8) {
            0 if slots.len() > 1 => json!({"ports": {slot: null}}),
            1 if ports["b"].is_null() => json!({"ports": {"b": self.port(number, 1)}}),
            // The same port under another name.
            2 => {
                let other = if slot == "a" { "c" } else { "d" };
                if ports[other].is_null() {
                    json!({"ports": {slot: null, other: ports[slot]}})
                } else {
                    json!({"ports": {slot: {"target": 8000 + self.dice.below(3)}}})
                }
            }
            3 => json!({"ports": {slot: {"protocol": if ports[slot]["protocol"] == "TCP" { "UDP" } else { "TCP" }}}}),
            4 => json!({"ports": {slot: {"port": self.pick(&PORTS)}}}),
            5 => json!({"ports": {slot: {"target": 8000 + self.dice.below(3)}}}),
            // Perhaps one that another Service had.
            _ => json!({"ports": {slot: {"node": 30_000 + self.dice.below(10 * self.services)}}}),
        }
    }

    /// New pods that listen on another port.
    fn release(&mut self, service: &Value) -> Value {
        let mut change = json!({"pods": self.pods(&service["pods"]), "ports": {}});
        for (slot, _) in fields(&service["ports"]) {
            change["ports"][slot] = json!({"target": 8000 + self.dice.below(3)});
        }
        change
    }

    fn readiness(&mut self, service: &Value) -> Value {
        let mut pods = json!({});
        for (slot, _) in fields(&service["pods"]) {
            pods[slot] = json!({"state": self.pick(&["ready", "ready", "not ready", "terminating"])});
        }
        json!({"pods": pods})
    }

    /// Nodes come and go, or the configuration changes.
    fn surroundings(&mut self) -> Deed {
        let patch = match self.dice.below(3) {
            0 => {
                let key = self.pick(&["eni_backends", "local_health_check"]);
                let on = self.wanted["config"][key] == true;
                json!({"config": {key: !on}})
            }
            _ => {
                let state = self.pick(&["ready", "not ready", "cordoned", ""]);
                let state = if state.is_empty() { Value::Null } else { state.into() };
                json!({"nodes": {(1 + self.dice.below(NODES)).to_string(): state}})
            }
        };
        Deed::Change(self.want(patch))
    }

    /// In the end, invalid values are taken back and nodes are ready: where either lasts, what serves stays as it was. No two
    /// Services have the load balancer of the same user, and all of it is managed. A Service that has another load balancer
    /// than before is created again, as its events ask for.
    fn last(&mut self) -> Vec<Value> {
        let (mut gone, mut patch) = (json!({}), json!({}));
        for (node, _) in fields(&self.wanted["nodes"]).filter(|(_, state)| **state == "not ready") {
            patch["nodes"][node] = "ready".into();
        }
        let homes = self.homes();
        for (name, service) in fields(&self.wanted["services"]) {
            let mut last = service.clone();
            let reset =
                [annotations::ID, annotations::FORCE_OVERRIDE_LISTENERS, annotations::MANAGE].map(|it| it.full());
            merge(&mut last, &json!({"annotations": {}}));
            let stated = last["annotations"].as_object_mut().unwrap();
            stated.retain(|key, value| *value != INVALID && !reset.contains(key));
            if let Some(at) = homes.get(name) {
                for other in 0..USERS {
                    let (from, to) = (format!("-user-u{other}"), format!("-user-u{at}"));
                    stated.values_mut().for_each(|value| *value = value.as_str().unwrap().replace(&from, &to).into());
                }
                last["home"]["at"] = (*at).into();
                at_home(&mut last);
            }
            if self.moved.contains(name) || last["home"] != service["home"] {
                gone["services"][name] = Value::Null;
                patch["services"][name] = last;
                continue;
            }
            let both = fields(&service["annotations"]).chain(fields(&last["annotations"]));
            for (key, _) in both {
                let (before, now) = (&service["annotations"][key], &last["annotations"][key]);
                if before != now {
                    patch["services"][name]["annotations"][key] = now.clone();
                }
            }
        }
        // A new process doubts for minutes that a Service which was published has no listener, unless it sees why.
        let mut managed = json!({});
        for (name, service) in patch.get_mut("services").and_then(Value::as_object_mut).into_iter().flatten() {
            let stated = service["annotations"].as_object_mut().into_iter();
            for _ in stated.filter_map(|stated| stated.remove(&annotations::MANAGE.full())) {
                managed["services"][name]["annotations"][annotations::MANAGE.full()] = Value::Null;
            }
        }
        let patches = [gone, patch, managed].into_iter().filter(|patch| fields(patch).next().is_some());
        patches.map(|patch| self.want(patch)).collect()
    }

    /// A load balancer of a user for each Service that asks for one, rather that which it has.
    fn homes(&self) -> BTreeMap<String, u64> {
        let mut taken = BTreeSet::new();
        let asked: Vec<_> = fields(&self.wanted["services"])
            .filter_map(|(name, service)| Some((name.clone(), service["home"]["at"].as_u64()?)))
            .map(|(name, at)| (name, taken.insert(at).then_some(at)))
            .collect();
        let mut free = (0..USERS).filter(|at| !taken.contains(at));
        asked.into_iter().map(|(name, at)| (name, at.or_else(|| free.next()).unwrap())).collect()
    }
}
