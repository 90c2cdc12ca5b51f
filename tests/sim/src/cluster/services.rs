//! Services as the server keeps them: default policies, and addresses and ports given, kept and released.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::defaults::Rules;
use super::failure::Problem;
use super::object;
use super::version::Feature;
use crate::effort;

/// Network part of the addresses of Services: `10.96.0.0/16`.
const SERVICE_NETWORK: u32 = 0x0a60_0000;

/// Addresses and ports that Services hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Allocations {
    addresses: HashMap<String, usize>,
    ports: HashMap<u16, usize>,
    /// Below these numbers every one is held, so that a search need not begin anew.
    lowest_address: Lowest,
    lowest_port: Lowest,
}

/// Where a range begins, and a number in it below which every one is held.
#[derive(Clone, Debug, Default)]
struct Lowest(Cell<(u32, u32)>);

impl Lowest {
    /// The numbers of a range that may be free.
    fn search(&self, first: u32, last: u32, is_held: impl Fn(u32) -> bool) -> RangeInclusive<u32> {
        let (begin, known) = self.0.get();
        let start = if begin == first { known } else { first };
        let mut numbers = (start..=last).inspect(|_| effort::look());
        let lowest = numbers.find(|number| !is_held(*number)).unwrap_or(last);
        self.0.set((first, lowest));
        lowest..=last
    }

    fn release(&self, number: u32) {
        let (begin, known) = self.0.get();
        self.0.set((begin, known.min(number).max(begin)));
    }
}

fn address(number: u32) -> String {
    Ipv4Addr::from(SERVICE_NETWORK + number).to_string()
}

impl Allocations {
    /// Notes what a Service holds now that `before` it did not, and the other way round.
    pub(super) fn change(&mut self, before: Option<&Value>, now: Option<&Value>) {
        let (before, now) = (Held::by(before), Held::by(now));
        for ip in before.addresses.difference(&now.addresses) {
            release(&mut self.addresses, ip);
            let number = ip.parse().ok().and_then(|ip: Ipv4Addr| u32::from(ip).checked_sub(SERVICE_NETWORK));
            self.lowest_address.release(number.unwrap_or(u32::MAX));
        }
        for port in before.ports.difference(&now.ports) {
            release(&mut self.ports, port);
            self.lowest_port.release(u32::from(*port));
        }
        for ip in now.addresses.difference(&before.addresses) {
            *self.addresses.entry(ip.clone()).or_default() += 1;
        }
        for port in now.ports.difference(&before.ports) {
            *self.ports.entry(*port).or_default() += 1;
        }
    }
}

fn release<T: Hash + Eq>(held: &mut HashMap<T, usize>, one: &T) {
    if let Some(count) = held.get_mut(one) {
        *count -= 1;
        if *count == 0 {
            held.remove(one);
        }
    }
}

#[derive(Debug, Default)]
struct Held {
    addresses: BTreeSet<String>,
    ports: BTreeSet<u16>,
}

impl Held {
    fn by(service: Option<&Value>) -> Held {
        let Some(service) = service else { return Held::default() };
        let mut addresses = BTreeSet::from([object::text(service, "/spec/clusterIP").to_owned()]);
        addresses
            .extend(object::items(service, "/spec/clusterIPs").iter().filter_map(Value::as_str).map(str::to_owned));
        let mut ports: BTreeSet<u16> =
            object::items(service, "/spec/ports").iter().filter_map(|port| number(port, "nodePort")).collect();
        ports.extend(service.get("spec").and_then(|spec| number(spec, "healthCheckNodePort")));
        Held { addresses, ports }
    }
}

/// What other Services hold, and what the one in question is given.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    all: &'a Allocations,
    own: Held,
    given: BTreeSet<u16>,
}

impl<'a> Taken<'a> {
    /// Everything but what the Service holds as it is.
    pub(super) fn by_others(all: &'a Allocations, service: Option<&Value>) -> Self {
        Taken { all, own: Held::by(service), given: BTreeSet::new() }
    }

    fn has_address(&self, ip: &str) -> bool {
        effort::look();
        let own = usize::from(self.own.addresses.contains(ip));
        self.all.addresses.get(ip).copied().unwrap_or_default() > own
    }

    fn has_port(&self, port: u16) -> bool {
        effort::look();
        let own = usize::from(self.own.ports.contains(&port));
        self.given.contains(&port) || self.all.ports.get(&port).copied().unwrap_or_default() > own
    }

    fn free_address(&self) -> Option<String> {
        // The first ten are left for Services that want a fixed address, such as DNS.
        let is_held = |n| self.all.addresses.contains_key(&address(n));
        let mut free = self.all.lowest_address.search(11, u32::from(u16::MAX) - 1, is_held).map(address);
        free.find(|ip| !self.has_address(ip))
    }

    fn free_address_v6(&self) -> Option<String> {
        (11..u32::from(u16::MAX)).map(|n| format!("fd00:10:96::{n:x}")).find(|ip| !self.has_address(ip))
    }

    fn take_port(&mut self, (first, last): (u16, u16)) -> Option<u16> {
        let is_held = |port: u32| self.all.ports.contains_key(&(port as u16));
        let mut free = self.all.lowest_port.search(u32::from(first), u32::from(last), is_held).map(|port| port as u16);
        let free = free.find(|port| !self.has_port(*port));
        let own = self.own.ports.range(first..=last).copied().find(|port| !self.has_port(*port));
        let free = free.into_iter().chain(own).min()?;
        self.given.insert(free);
        Some(free)
    }
}

fn number(object: &Value, field: &str) -> Option<u16> {
    object.get(field).and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok()).filter(|n| *n != 0)
}

fn kind_of(spec: &Map<String, Value>) -> &str {
    spec.get("type").and_then(Value::as_str).unwrap_or("ClusterIP")
}

fn text<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn wants_node_ports(spec: &Map<String, Value>) -> bool {
    match kind_of(spec) {
        "NodePort" => true,
        "LoadBalancer" => spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

fn wants_address(spec: &Map<String, Value>) -> bool {
    kind_of(spec) != "ExternalName" && text(spec, "clusterIP") != "None"
}

fn wants_health_port(spec: &Map<String, Value>) -> bool {
    kind_of(spec) == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Fills in a Service that is created (`old` missing) or changed.
pub(super) fn fill_service(
    rules: Rules,
    service: &mut Value,
    old: Option<&Value>,
    taken: &mut Taken<'_>,
) -> Vec<Problem> {
    let old_spec = old.and_then(|old| old.get("spec")).and_then(Value::as_object);
    let spec = object::map(service, "spec");
    static_defaults(rules, spec);
    if let Some(old) = old_spec {
        drop_what_the_type_lost(spec, old);
        keep_allocations(spec, old);
    }
    let mut problems = Vec::new();
    addresses(rules, spec, taken, &mut problems);
    node_ports(rules, spec, old_spec, taken, &mut problems);
    if old.is_none() {
        service["status"] = json!({ "loadBalancer": {} });
    } else if kind_of(spec) != "LoadBalancer" {
        object::map(service, "status").insert("loadBalancer".to_owned(), json!({}));
    }
    problems
}

/// Defaults that depend on the object alone.
fn static_defaults(rules: Rules, spec: &mut Map<String, Value>) {
    let mut default = |field: &str, value: &str| {
        if text(spec, field).is_empty() {
            spec.insert(field.to_owned(), value.into());
        }
    };
    default("type", "ClusterIP");
    default("sessionAffinity", "None");
    let external = matches!(kind_of(spec), "NodePort" | "LoadBalancer");
    if external && text(spec, "externalTrafficPolicy").is_empty() {
        spec.insert("externalTrafficPolicy".to_owned(), "Cluster".into());
    }
    if rules.version.has(Feature::InternalTrafficPolicy)
        && kind_of(spec) != "ExternalName"
        && text(spec, "internalTrafficPolicy").is_empty()
    {
        spec.insert("internalTrafficPolicy".to_owned(), "Cluster".into());
    }
    if rules.version.has(Feature::AllocateNodePorts) {
        if kind_of(spec) == "LoadBalancer" {
            spec.entry("allocateLoadBalancerNodePorts").or_insert(true.into());
        }
    } else {
        spec.remove("allocateLoadBalancerNodePorts");
        spec.remove("loadBalancerClass");
    }
    if text(spec, "sessionAffinity") == "ClientIP" {
        spec.entry("sessionAffinityConfig").or_insert(json!({ "clientIP": { "timeoutSeconds": 10800 } }));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let target = port.get("port").cloned().unwrap_or(Value::Null);
        let Some(port) = port.as_object_mut() else { continue };
        if text(port, "protocol").is_empty() {
            port.insert("protocol".to_owned(), "TCP".into());
        }
        let unset = matches!(port.get("targetPort"), None | Some(Value::Null))
            || port.get("targetPort").is_some_and(|target| *target == json!(0) || *target == json!(""));
        if unset {
            port.insert("targetPort".to_owned(), target);
        }
    }
}

/// Fields that the user left as they were but that mean nothing for the new type.
fn drop_what_the_type_lost(spec: &mut Map<String, Value>, old: &Map<String, Value>) {
    let unchanged = |spec: &Map<String, Value>, field: &str| spec.get(field) == old.get(field);
    if kind_of(spec) == "ExternalName" && kind_of(old) != "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if unchanged(spec, field) {
                spec.remove(field);
            }
        }
    }
    let same_ports = node_ports_of(spec) == node_ports_of(old);
    if wants_node_ports(old) && !matches!(kind_of(spec), "NodePort" | "LoadBalancer") && same_ports {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
    if wants_health_port(old) && !wants_health_port(spec) && unchanged(spec, "healthCheckNodePort") {
        spec.remove("healthCheckNodePort");
    }
    if !matches!(kind_of(spec), "NodePort" | "LoadBalancer") && unchanged(spec, "externalTrafficPolicy") {
        spec.remove("externalTrafficPolicy");
    }
    if kind_of(old) == "LoadBalancer" && kind_of(spec) != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(spec, field) {
                spec.remove(field);
            }
        }
    }
}

fn node_ports_of(spec: &Map<String, Value>) -> BTreeSet<u16> {
    spec.get("ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|port| number(port, "nodePort"))
        .collect()
}

/// Carries over what the old Service was given and the new one does not mention.
fn keep_allocations(spec: &mut Map<String, Value>, old: &Map<String, Value>) {
    if wants_address(old) && wants_address(spec) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            let missing =
                spec.get(field).is_none_or(|value| value.is_null() || *value == json!("") || *value == json!([]));
            if let (true, Some(value)) = (missing, old.get(field)) {
                spec.insert(field.to_owned(), value.clone());
            }
        }
    }
    if wants_node_ports(old) && wants_node_ports(spec) {
        let used: BTreeSet<u16> = node_ports_of(old).intersection(&node_ports_of(spec)).copied().collect();
        let old_ports: Vec<(&str, u16)> = old
            .get("ports")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|port| Some((object::text(port, "/name"), number(port, "nodePort")?)))
            .collect();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if number(port, "nodePort").is_some() {
                continue;
            }
            let name = object::text(port, "/name").to_owned();
            let kept = old_ports.iter().find(|(old_name, node_port)| *old_name == name && !used.contains(node_port));
            if let (Some((_, node_port)), Some(port)) = (kept, port.as_object_mut()) {
                port.insert("nodePort".to_owned(), (*node_port).into());
            }
        }
    }
    if wants_health_port(old)
        && wants_health_port(spec)
        && spec.get("healthCheckNodePort").is_none_or(|port| *port == json!(0))
        && let Some(port) = old.get("healthCheckNodePort")
    {
        spec.insert("healthCheckNodePort".to_owned(), port.clone());
    }
}

fn addresses(rules: Rules, spec: &mut Map<String, Value>, taken: &Taken<'_>, problems: &mut Vec<Problem>) {
    if kind_of(spec) == "ExternalName" {
        return;
    }
    let policy = text(spec, "ipFamilyPolicy").to_owned();
    if policy == "RequireDualStack" && !rules.dual_stack {
        let why = "this cluster is not configured for dual-stack services";
        problems.push(Problem::invalid("spec.ipFamilyPolicy", &policy, why));
    }
    let dual = rules.dual_stack && matches!(policy.as_str(), "PreferDualStack" | "RequireDualStack");
    let mut asked: Vec<String> = spec
        .get("clusterIPs")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|ip| ip.as_str().map(str::to_owned))
        .collect();
    let first = text(spec, "clusterIP").to_owned();
    if asked.is_empty() && !first.is_empty() {
        asked.push(first.clone());
    }
    let families: Vec<&str> = if dual { vec!["IPv4", "IPv6"] } else { vec!["IPv4"] };
    if first != "None" {
        for ip in &asked {
            if ip.parse::<std::net::IpAddr>().is_err() {
                problems.push(Problem::invalid("spec.clusterIPs[0]", ip, "must be a valid IP address"));
            } else if taken.has_address(ip) {
                let why = "failed to allocate IP: provided IP is already allocated";
                problems.push(Problem::invalid("spec.clusterIPs", &asked, why));
            }
        }
        for family in families.iter().skip(asked.len()) {
            let free = if *family == "IPv6" { taken.free_address_v6() } else { taken.free_address() };
            asked.extend(free);
        }
        asked.truncate(families.len());
    }
    let Some(first) = asked.first() else { return };
    spec.insert("clusterIP".to_owned(), first.clone().into());
    if rules.version.has(Feature::ClusterIps) {
        spec.insert("clusterIPs".to_owned(), asked.into());
    } else {
        spec.remove("clusterIPs");
    }
    if rules.version.has(Feature::IpFamilies) {
        spec.insert("ipFamilies".to_owned(), families.into());
        spec.entry("ipFamilyPolicy").or_insert("SingleStack".into());
    } else {
        spec.remove("ipFamilies");
        spec.remove("ipFamilyPolicy");
    }
}

fn node_ports(
    rules: Rules,
    spec: &mut Map<String, Value>,
    old: Option<&Map<String, Value>>,
    taken: &mut Taken<'_>,
    problems: &mut Vec<Problem>,
) {
    let had = old.map(node_ports_of).unwrap_or_default();
    let asked = node_ports_of(spec);
    let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
    for (index, port) in ports.enumerate().filter_map(|(index, port)| Some((index, number(port, "nodePort")?))) {
        let field = format!("spec.ports[{index}].nodePort");
        let (first, last) = rules.node_ports;
        if !had.contains(&port) && !(first..=last).contains(&port) {
            let why = format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
            problems.push(Problem::invalid(field, port, why));
        } else if taken.has_port(port) {
            problems.push(Problem::invalid(field, port, "provided port is already allocated"));
        }
    }
    taken.given.extend(asked);
    if wants_node_ports(spec) {
        // One node port serves the same port number under two protocols.
        let mut shared: Vec<(u64, String, u16)> = Vec::new();
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
        for (index, port) in ports.enumerate() {
            let number_of = port.get("port").and_then(Value::as_u64).unwrap_or(0);
            let protocol = object::text(port, "/protocol").to_owned();
            if let Some(given) = number(port, "nodePort") {
                shared.push((number_of, protocol, given));
                continue;
            }
            let other =
                shared.iter().find(|(port, proto, _)| *port == number_of && *proto != protocol).map(|(.., p)| *p);
            let (Some(free), Some(port)) = (other.or_else(|| taken.take_port(rules.node_ports)), port.as_object_mut())
            else {
                problems.push(Problem::invalid(format!("spec.ports[{index}].nodePort"), 0, "range is full"));
                return;
            };
            shared.push((number_of, protocol, free));
            port.insert("nodePort".to_owned(), free.into());
        }
    }
    if wants_health_port(spec)
        && spec.get("healthCheckNodePort").is_none_or(|port| *port == json!(0))
        && let Some(free) = taken.take_port(rules.node_ports)
    {
        spec.insert("healthCheckNodePort".to_owned(), free.into());
    }
}

/// `ipMode` of a load balancer's addresses, which newer servers default.
pub(super) fn fill_service_status(rules: Rules, service: &mut Value) {
    let balancer = object::text(service, "/spec/type") == "LoadBalancer";
    if !rules.version.has(Feature::ServiceConditions)
        && let Some(status) = service.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("conditions");
    }
    let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for address in ingress.into_iter().flatten() {
        let has_ip = !object::text(address, "/ip").is_empty();
        let Some(address) = address.as_object_mut() else { continue };
        if !rules.version.has(Feature::IpMode) {
            address.remove("ipMode");
        } else if balancer && has_ip {
            address.entry("ipMode").or_insert("VIP".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::version::Version;

    const NEWEST: Rules = Rules::new(Version::NEWEST);

    fn filled(mut service: Value, old: Option<&Value>) -> Value {
        let problems = fill_service(NEWEST, &mut service, old, &mut Taken::by_others(&Allocations::default(), None));
        assert_eq!(problems, []);
        service
    }

    fn balancer() -> Value {
        filled(json!({ "spec": { "type": "LoadBalancer", "ports": [{ "name": "http", "port": 80 }] } }), None)
    }

    #[test]
    fn a_load_balancer_gets_everything_it_did_not_mention() {
        assert_eq!(
            balancer()["spec"],
            json!({
                "type": "LoadBalancer",
                "sessionAffinity": "None",
                "externalTrafficPolicy": "Cluster",
                "internalTrafficPolicy": "Cluster",
                "allocateLoadBalancerNodePorts": true,
                "clusterIP": "10.96.0.11",
                "clusterIPs": ["10.96.0.11"],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{ "name": "http", "port": 80, "targetPort": 80, "protocol": "TCP", "nodePort": 30000 }],
            })
        );
    }

    #[test]
    fn old_versions_know_fewer_fields() {
        let mut service = json!({ "spec": { "ports": [{ "port": 80 }], "allocateLoadBalancerNodePorts": false } });
        let rules = Rules::new(Version::V1_16);
        fill_service(rules, &mut service, None, &mut Taken::by_others(&Allocations::default(), None));
        let fields: Vec<_> = service["spec"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["clusterIP", "ports", "sessionAffinity", "type"]);
    }

    #[test]
    fn allocations_survive_an_update_that_omits_them() {
        let old = balancer();
        let new = json!({ "spec": { "type": "LoadBalancer", "ports": [{ "name": "http", "port": 8080 },
                                                                      { "name": "new", "port": 81 }] } });
        let new = filled(new, Some(&old));
        assert_eq!(new["spec"]["clusterIP"], "10.96.0.11");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30000);
        assert_eq!(new["spec"]["ports"][1]["nodePort"], 30001);
    }

    #[test]
    fn a_type_change_releases_what_the_type_had() {
        let mut old = balancer();
        old["spec"]["externalTrafficPolicy"] = "Local".into();
        old = filled(old.clone(), Some(&old));
        assert!(old["spec"]["healthCheckNodePort"].is_number());
        let conditions = json!([{ "type": "a/b", "status": "True" }]);
        old["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] }, "conditions": conditions });
        let mut new = old.clone();
        new["spec"]["type"] = "ClusterIP".into();
        let new = filled(new, Some(&old));
        for gone in ["healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
            assert!(new["spec"].get(gone).is_none(), "{gone}");
        }
        assert!(new["spec"]["ports"][0].get("nodePort").is_none());
        assert_eq!(new["spec"]["clusterIP"], "10.96.0.11");
        assert_eq!(
            new["status"],
            json!({ "loadBalancer": {}, "conditions": conditions }),
            "who made them takes them away"
        );
    }

    #[test]
    fn no_node_ports_when_they_are_declined() {
        let service = filled(
            json!({ "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }] } }),
            None,
        );
        assert!(service["spec"]["ports"][0].get("nodePort").is_none());
    }

    #[test]
    fn one_node_port_for_two_protocols_of_a_port() {
        let service = filled(
            json!({ "spec": { "type": "NodePort", "ports": [{ "name": "t", "port": 53 },
                                                            { "name": "u", "port": 53, "protocol": "UDP" }] } }),
            None,
        );
        assert_eq!(service["spec"]["ports"][0]["nodePort"], service["spec"]["ports"][1]["nodePort"]);
    }

    #[test]
    fn ports_and_addresses_are_given_once() {
        let mut all = Allocations::default();
        all.change(None, Some(&balancer()));
        let taken = || Taken::by_others(&all, None);
        let mut service = json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
        assert_eq!(fill_service(NEWEST, &mut service, None, &mut taken()), []);
        assert_eq!(service["spec"]["ports"][0]["nodePort"], 30001);
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.12");

        let mut greedy = json!({ "spec": { "type": "NodePort", "clusterIP": "10.96.0.11", "ports": [{ "port": 80, "nodePort": 30000 }] } });
        let problems = fill_service(NEWEST, &mut greedy, None, &mut taken());
        let fields: Vec<_> = problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["spec.clusterIPs", "spec.ports[0].nodePort"]);
    }

    #[test]
    fn a_second_family_where_the_cluster_has_one() {
        let asking = json!({ "spec": { "ipFamilyPolicy": "RequireDualStack", "ports": [{ "port": 80 }] } });
        let both = Rules { dual_stack: true, ..NEWEST };
        let mut service = asking.clone();
        assert_eq!(fill_service(both, &mut service, None, &mut Taken::by_others(&Allocations::default(), None)), []);
        assert_eq!(service["spec"]["clusterIPs"], json!(["10.96.0.11", "fd00:10:96::b"]));
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));

        let problems =
            fill_service(NEWEST, &mut asking.clone(), None, &mut Taken::by_others(&Allocations::default(), None));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "spec.ipFamilyPolicy");
    }

    #[test]
    fn node_ports_out_of_range_are_refused_where_they_are() {
        let mut service = json!({ "spec": { "type": "NodePort", "ports": [{ "name": "a", "port": 80 },
                                                                          { "name": "b", "port": 81, "nodePort": 80 }] } });
        let problems = fill_service(NEWEST, &mut service, None, &mut Taken::by_others(&Allocations::default(), None));
        assert_eq!(problems.iter().map(|p| p.field.as_str()).collect::<Vec<_>>(), ["spec.ports[1].nodePort"]);
    }

    #[test]
    fn ip_mode_is_defaulted_for_addresses_only() {
        let mut service = json!({
            "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }, { "hostname": "a.example" },
                                                      { "ip": "1.2.3.5", "ipMode": "Proxy" }] } },
        });
        fill_service_status(NEWEST, &mut service);
        assert_eq!(
            service["status"]["loadBalancer"]["ingress"],
            json!([{ "ip": "1.2.3.4", "ipMode": "VIP" }, { "hostname": "a.example" },
                   { "ip": "1.2.3.5", "ipMode": "Proxy" }])
        );
    }
}
