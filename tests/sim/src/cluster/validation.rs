//! What the server refuses with 422: the rules that a cloud controller or its user can run into.

use std::collections::BTreeSet;

use serde_json::Value;

use super::defaults::Rules;
use super::failure::Problem;
use super::object::{items, text};
use super::resources::Resource;
use super::version::Feature;

/// Checks an object; `old` is the stored one when it is changed.
pub(super) fn check(resource: &Resource, rules: Rules, new: &Value, old: Option<&Value>) -> Vec<Problem> {
    let mut problems = metadata(resource, new, old);
    match resource.kind {
        "Service" => service(rules, new, old, &mut problems),
        "Node" => node(new, old, &mut problems),
        "PersistentVolume" => volume(new, old, &mut problems),
        _ => {}
    }
    problems
}

fn metadata(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let name = text(new, "/metadata/name");
    if name.is_empty() {
        problems.push(Problem::required("metadata.name", "name or generateName is required"));
    } else if old.is_none() {
        if resource.kind == "Service" && !is_label(name) {
            let why = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                       alphabetic character, and end with an alphanumeric character";
            problems.push(Problem::invalid("metadata.name", name, why));
        } else if resource.group == "rbac.authorization.k8s.io" {
            // Any segment of a path, such as `system:node`.
            if name.contains(['/', '%']) || [".", ".."].contains(&name) {
                problems.push(Problem::invalid("metadata.name", name, "must be a segment of a path"));
            }
        } else if !is_subdomain(name) {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                       and must start and end with an alphanumeric character";
            problems.push(Problem::invalid("metadata.name", name, why));
        }
    }
    let labels = new.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    for (key, value) in labels {
        let value = value.as_str().unwrap_or_default();
        let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
        let fits = value.len() <= 63
            && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && edge(value.chars().next())
            && edge(value.chars().last());
        if !fits {
            let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                       and must start and end with an alphanumeric character";
            problems.push(Problem::invalid("metadata.labels", value, why));
        }
        if !is_qualified(key) {
            problems.push(Problem::invalid("metadata.labels", key, "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"));
        }
    }
    for finalizer in items(new, "/metadata/finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        if !is_qualified(name) {
            problems.push(Problem::invalid("metadata.finalizers", name, "name part must be non-empty and qualified"));
        }
    }
    if let Some(old) = old.filter(|old| !text(old, "/metadata/deletionTimestamp").is_empty()) {
        let had = items(old, "/metadata/finalizers");
        let added: Vec<_> = items(new, "/metadata/finalizers")
            .iter()
            .filter(|one| !had.contains(one))
            .map(ToString::to_string)
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            problems.push(Problem::forbidden("metadata.finalizers", &why));
        }
    }
    problems
}

fn is_label(name: &str) -> bool {
    name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_lowercase()) && is_subdomain(name) && !name.contains('.')
}

fn is_subdomain(name: &str) -> bool {
    let part = |part: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(part.chars().next())
            && edge(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

/// `name` or `prefix/name`, as keys of labels and finalizers are.
fn is_qualified(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    prefix.is_none_or(is_subdomain)
        && name.len() <= 63
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn service(rules: Rules, new: &Value, old: Option<&Value>, problems: &mut Vec<Problem>) {
    let kind = text(new, "/spec/type");
    const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !TYPES.contains(&kind) {
        problems.push(Problem::unsupported("spec.type", kind, TYPES));
    }
    service_ports(kind, new, problems);
    for (field, allowed) in [
        ("sessionAffinity", &["ClientIP", "None"][..]),
        ("externalTrafficPolicy", &["Cluster", "Local"][..]),
        ("internalTrafficPolicy", &["Cluster", "Local"][..]),
    ] {
        let value = text(new, &format!("/spec/{field}"));
        if !value.is_empty() && !allowed.contains(&value) {
            problems.push(Problem::unsupported(format!("spec.{field}"), value, allowed));
        }
    }
    if !text(new, "/spec/externalTrafficPolicy").is_empty() && !matches!(kind, "NodePort" | "LoadBalancer") {
        let given = text(new, "/spec/externalTrafficPolicy");
        problems.push(Problem::invalid(
            "spec.externalTrafficPolicy",
            given,
            "may only be set for externally-accessible services",
        ));
    }
    let class = text(new, "/spec/loadBalancerClass");
    if !class.is_empty() && kind != "LoadBalancer" {
        problems.push(Problem::forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"));
    }
    for (index, range) in items(new, "/spec/loadBalancerSourceRanges").iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if range.trim().parse::<ipnet::IpNet>().is_err() {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            problems.push(Problem::invalid(format!("spec.loadBalancerSourceRanges[{index}]"), range, why));
        }
    }
    let ingress = items(new, "/status/loadBalancer/ingress");
    if rules.version.has(Feature::StatusNeedsLoadBalancer) && kind != "LoadBalancer" && !ingress.is_empty() {
        let why = "may only be used when `spec.type` is \"LoadBalancer\"";
        problems.push(Problem::forbidden("status.loadBalancer.ingress", why));
    }
    for (index, address) in ingress.iter().enumerate() {
        let ip = text(address, "/ip");
        if !ip.is_empty() && ip.parse::<std::net::IpAddr>().is_err() {
            let field = format!("status.loadBalancer.ingress[{index}].ip");
            problems.push(Problem::invalid(field, ip, "must be a valid IP address"));
        }
        let mode = text(address, "/ipMode");
        if !["", "Proxy", "VIP"].contains(&mode) {
            let field = format!("status.loadBalancer.ingress[{index}].ipMode");
            problems.push(Problem::unsupported(field, mode, &["Proxy", "VIP"]));
        }
        let host = text(address, "/hostname");
        if !host.is_empty() && !is_subdomain(host) {
            let field = format!("status.loadBalancer.ingress[{index}].hostname");
            problems.push(Problem::invalid(field, host, "a lowercase RFC 1123 subdomain is needed"));
        }
    }
    if let Some(old) = old {
        service_change(new, old, problems);
    }
}

fn service_ports(kind: &str, new: &Value, problems: &mut Vec<Problem>) {
    let ports = items(new, "/spec/ports");
    if ports.is_empty() && kind != "ExternalName" && text(new, "/spec/clusterIP") != "None" {
        problems.push(Problem::required("spec.ports", ""));
    }
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{index}].{name}");
        let name = text(port, "/name");
        if name.is_empty() {
            if ports.len() > 1 {
                problems.push(Problem::required(field("name"), ""));
            }
        } else if !names.insert(name) {
            problems.push(Problem::duplicate(field("name"), format!("{name:?}")));
        }
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            problems.push(Problem::invalid(field("port"), number, "must be between 1 and 65535, inclusive"));
        }
        if port.get("targetPort").and_then(Value::as_i64).is_some_and(|target| !(1..=65535).contains(&target)) {
            problems.push(Problem::invalid(
                field("targetPort"),
                &port["targetPort"],
                "must be between 1 and 65535, inclusive",
            ));
        }
        let protocol = text(port, "/protocol");
        if !["TCP", "UDP", "SCTP"].contains(&protocol) {
            problems.push(Problem::unsupported(field("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
        if !numbers.insert((number, protocol)) {
            problems.push(Problem::duplicate(format!("spec.ports[{index}]"), port));
        }
        if kind == "ClusterIP" && port.get("nodePort").and_then(Value::as_i64).is_some_and(|p| p != 0) {
            problems.push(Problem::forbidden(field("nodePort"), "may not be used when `type` is 'ClusterIP'"));
        }
    }
}

fn service_change(new: &Value, old: &Value, problems: &mut Vec<Problem>) {
    let both_have_addresses = text(new, "/spec/type") != "ExternalName" && text(old, "/spec/type") != "ExternalName";
    let (ip, old_ip) = (text(new, "/spec/clusterIP"), text(old, "/spec/clusterIP"));
    if both_have_addresses && !old_ip.is_empty() && ip != old_ip {
        problems.push(Problem::invalid("spec.clusterIPs[0]", [ip], "may not change once set"));
    }
    let (class, old_class) = (text(new, "/spec/loadBalancerClass"), text(old, "/spec/loadBalancerClass"));
    let stays = text(new, "/spec/type") == "LoadBalancer" && text(old, "/spec/type") == "LoadBalancer";
    if stays && class != old_class {
        problems.push(Problem::invalid("spec.loadBalancerClass", class, "may not change once set"));
    }
}

fn node(new: &Value, old: Option<&Value>, problems: &mut Vec<Problem>) {
    let mut taints = BTreeSet::new();
    for (index, taint) in items(new, "/spec/taints").iter().enumerate() {
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if !is_qualified(key) {
            problems.push(Problem::invalid(
                format!("metadata.taints[{index}].key"),
                key,
                "name part must be non-empty",
            ));
        }
        const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !EFFECTS.contains(&effect) {
            problems.push(Problem::unsupported(format!("metadata.taints[{index}].effect"), effect, EFFECTS));
        }
        if !taints.insert((key, effect)) {
            let problem = Problem::duplicate(format!("metadata.taints[{index}]"), taint);
            problems.push(Problem {
                message: format!("{}: taints must be unique by key and effect pair", problem.message),
                ..problem
            });
        }
    }
    let mut addresses = BTreeSet::new();
    for (index, address) in items(new, "/status/addresses").iter().enumerate() {
        if !addresses.insert((text(address, "/type"), text(address, "/address"))) {
            problems.push(Problem::duplicate(format!("status.addresses[{index}]"), address));
        }
    }
    let cidrs = items(new, "/spec/podCIDRs");
    for (index, cidr) in cidrs.iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        if cidr.parse::<ipnet::IpNet>().is_err() {
            problems.push(Problem::invalid(format!("spec.podCIDRs[{index}]"), cidr, "must be a valid CIDR value"));
        }
    }
    let Some(old) = old else { return };
    let (id, old_id) = (text(new, "/spec/providerID"), text(old, "/spec/providerID"));
    if !old_id.is_empty() && id != old_id {
        let why = "node updates may not change providerID except from \"\" to valid";
        problems.push(Problem::forbidden("spec.providerID", why));
    }
    let old_cidrs = items(old, "/spec/podCIDRs");
    let (first, old_first) = (text(new, "/spec/podCIDR"), text(old, "/spec/podCIDR"));
    if (!old_cidrs.is_empty() && cidrs != old_cidrs) || (!old_first.is_empty() && first != old_first) {
        problems
            .push(Problem::forbidden("spec.podCIDRs", "node updates may not change podCIDR except from \"\" to valid"));
    }
}

/// Where its data is cannot change; a node affinity can come later, and never changes then.
fn volume(new: &Value, old: Option<&Value>, problems: &mut Vec<Problem>) {
    for (index, term) in items(new, "/spec/nodeAffinity/required/nodeSelectorTerms").iter().enumerate() {
        for requirement in items(term, "/matchExpressions") {
            if text(requirement, "/operator") == "In" && items(requirement, "/values").is_empty() {
                let field = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}].matchExpressions");
                problems.push(Problem::required(field, "must be specified when `operator` is 'In' or 'NotIn'"));
            }
        }
    }
    let Some(old) = old else { return };
    let affinity = old.pointer("/spec/nodeAffinity").filter(|affinity| !affinity.is_null());
    if affinity.is_some_and(|affinity| new.pointer("/spec/nodeAffinity") != Some(affinity)) {
        problems.push(Problem::invalid("nodeAffinity", &new["spec"]["nodeAffinity"], "field is immutable"));
    }
    if ["csi", "flexVolume"].iter().any(|source| new["spec"].get(source) != old["spec"].get(source)) {
        problems.push(Problem::forbidden("spec.persistentvolumesource", "is immutable after creation"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::resources::named;
    use crate::cluster::version::Version;

    fn fields(kind: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
        let rules = Rules::new(Version::NEWEST);
        check(named(kind).unwrap(), rules, new, old).into_iter().map(|problem| problem.field).collect()
    }

    fn service_with(ports: Value) -> Value {
        json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.11", "ports": ports } })
    }

    #[test]
    fn services() {
        let port = |name: &str, number: u32| json!({ "name": name, "port": number, "protocol": "TCP" });
        assert!(fields("Service", &service_with(json!([port("a", 80), port("b", 81)])), None).is_empty());
        assert_eq!(fields("Service", &service_with(json!([])), None), ["spec.ports"]);
        assert_eq!(
            fields("Service", &service_with(json!([port("a", 80), port("a", 0)])), None),
            ["spec.ports[1].name", "spec.ports[1].port"]
        );
        let mut moved = service_with(json!([port("a", 80)]));
        let old = moved.clone();
        moved["spec"]["clusterIP"] = "10.96.0.12".into();
        moved["spec"]["loadBalancerClass"] = "x/y".into();
        assert_eq!(fields("Service", &moved, Some(&old)), ["spec.clusterIPs[0]", "spec.loadBalancerClass"]);
        let mut name = old;
        name["metadata"]["name"] = "1web".into();
        assert_eq!(fields("Service", &name, None), ["metadata.name"]);
    }

    #[test]
    fn a_volume_gets_its_affinity_once() {
        let volume = |affinity: Value| json!({ "metadata": { "name": "a" }, "spec": { "nodeAffinity": affinity } });
        let zone = |zone: &str| {
            let requirement = json!({ "key": "zone", "operator": "In", "values": [zone] });
            json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] } })
        };
        let change = |new, old| fields("PersistentVolume", &volume(new), Some(&volume(old)));
        assert!(change(zone("i"), Value::Null).is_empty() && change(zone("i"), zone("i")).is_empty());
        assert_eq!(change(zone("j"), zone("i")), ["nodeAffinity"]);
    }

    #[test]
    fn a_provider_id_is_set_once() {
        let node = |id: &str| json!({ "metadata": { "name": "a" }, "spec": { "providerID": id } });
        assert!(fields("Node", &node("x.y"), Some(&node(""))).is_empty());
        let rules = Rules::new(Version::NEWEST);
        let problems = check(named("Node").unwrap(), rules, &node("x.z"), Some(&node("x.y")));
        assert_eq!(
            problems,
            [Problem {
                reason: "FieldValueForbidden",
                field: "spec.providerID".into(),
                message: "Forbidden: node updates may not change providerID except from \"\" to valid".into(),
            }]
        );
    }

    #[test]
    fn pod_networks_are_set_once() {
        let node = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
        let old = node(json!({ "podCIDR": "10.0.1.0/24" }));
        assert!(fields("Node", &old, Some(&node(json!({})))).is_empty());
        assert_eq!(fields("Node", &node(json!({ "podCIDR": "10.0.2.0/24" })), Some(&old)), ["spec.podCIDRs"]);
        assert_eq!(fields("Node", &node(json!({ "podCIDRs": ["10.0.2"] })), None), ["spec.podCIDRs[0]"]);
    }

    #[test]
    fn nodes_have_each_taint_and_address_once() {
        let taint = json!({ "key": "a", "effect": "NoSchedule" });
        let address = json!({ "type": "InternalIP", "address": "10.0.0.1" });
        let node = json!({
            "metadata": { "name": "a", "labels": { "ok": "yes", "bad": "a b" } },
            "spec": { "taints": [taint, taint, { "key": "b", "effect": "Never" }] },
            "status": { "addresses": [address, address] },
        });
        assert_eq!(
            fields("Node", &node, None),
            ["metadata.labels", "metadata.taints[1]", "metadata.taints[2].effect", "status.addresses[1]"]
        );
    }

    #[test]
    fn no_finalizer_joins_a_deletion() {
        let object = |finalizers: Value| json!({ "metadata": { "name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers } });
        assert!(fields("ConfigMap", &object(json!([])), Some(&object(json!(["x/y"])))).is_empty());
        assert_eq!(
            fields("ConfigMap", &object(json!(["x/y", "x/z"])), Some(&object(json!(["x/y"])))),
            ["metadata.finalizers"]
        );
    }
}
