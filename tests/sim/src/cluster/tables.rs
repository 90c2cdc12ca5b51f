//! Lists as tables: the columns that `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::{items, text};
use super::reads::metadata_only;
use super::resources::Resource;

/// A column: name, type, format, and priority (0 is always shown, 1 with `-o wide`).
type Column = (&'static str, &'static str, &'static str, u32);

const NAME: Column = ("Name", "string", "name", 0);
const AGE: Column = ("Age", "string", "", 0);

const fn column(name: &'static str) -> Column {
    (name, "string", "", 0)
}

const fn wide(name: &'static str) -> Column {
    (name, "string", "", 1)
}

fn columns(resource: &Resource) -> Vec<Column> {
    match resource.kind {
        "Node" => vec![
            NAME,
            column("Status"),
            column("Roles"),
            AGE,
            column("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        "Service" => vec![
            NAME,
            column("Type"),
            column("Cluster-IP"),
            column("External-IP"),
            column("Port(s)"),
            AGE,
            wide("Selector"),
        ],
        "Event" => vec![
            column("Last Seen"),
            column("Type"),
            column("Reason"),
            column("Object"),
            wide("Subobject"),
            wide("Source"),
            column("Message"),
            wide("First Seen"),
            wide("Count"),
            ("Name", "string", "name", 1),
        ],
        "Pod" => vec![
            NAME,
            column("Ready"),
            column("Status"),
            column("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        "Endpoints" => vec![NAME, column("Endpoints"), AGE],
        "EndpointSlice" => vec![NAME, column("AddressType"), column("Ports"), column("Endpoints"), AGE],
        "Lease" => vec![NAME, column("Holder"), AGE],
        "Namespace" => vec![NAME, column("Status"), AGE],
        "ConfigMap" => vec![NAME, ("Data", "string", "", 0), AGE],
        "Secret" => vec![NAME, column("Type"), ("Data", "integer", "", 0), AGE],
        "ServiceAccount" => vec![NAME, ("Secrets", "integer", "", 0), AGE],
        _ => vec![NAME, AGE],
    }
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = text(object, "/metadata/name");
    let age = age(text(object, "/metadata/creationTimestamp"), now);
    match resource.kind {
        "Node" => node(object, name, age),
        "Service" => service(object, name, age),
        "Event" => event(object, name, now),
        "Pod" => pod(object, name, age),
        "Endpoints" => vec![name.into(), endpoints(object).into(), age.into()],
        "EndpointSlice" => vec![
            name.into(),
            text(object, "/addressType").into(),
            or_unset(joined(items(object, "/ports").iter().map(|port| port["port"].to_string()), 3)).into(),
            or_unset(joined(items(object, "/endpoints").iter().flat_map(|e| items(e, "/addresses")).map(plain), 3))
                .into(),
            age.into(),
        ],
        "Lease" => vec![name.into(), text(object, "/spec/holderIdentity").into(), age.into()],
        "Namespace" => vec![name.into(), text(object, "/status/phase").into(), age.into()],
        "ConfigMap" => {
            vec![name.into(), (count(object, "/data") + count(object, "/binaryData")).to_string().into(), age.into()]
        }
        "Secret" => vec![name.into(), text(object, "/type").into(), count(object, "/data").into(), age.into()],
        "ServiceAccount" => vec![name.into(), items(object, "/secrets").len().into(), age.into()],
        _ => vec![name.into(), age.into()],
    }
}

fn count(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn or_unset(text: String) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text }
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

/// The first few, and how many more there are.
fn joined(all: impl Iterator<Item = String>, shown: usize) -> String {
    let all: Vec<_> = all.collect();
    let mut text = all.iter().take(shown).cloned().collect::<Vec<_>>().join(",");
    if all.len() > shown {
        text.push_str(&format!(" + {} more...", all.len() - shown));
    }
    text
}

fn node(object: &Value, name: &str, age: String) -> Vec<Value> {
    let ready = items(object, "/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => value.as_str(),
            _ => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = items(object, "/status/addresses").iter().find(|address| address["type"] == kind);
        or_none(found.map(|address| text(address, "/address")).unwrap_or_default())
    };
    let info = |field: &str| {
        let value = text(object, &format!("/status/nodeInfo/{field}"));
        if value.is_empty() { "<unknown>".to_owned() } else { value.to_owned() }
    };
    vec![
        name.into(),
        status.into(),
        or_none(&roles.join(",")).into(),
        age.into(),
        text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info("osImage").into(),
        info("kernelVersion").into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn service(object: &Value, name: &str, age: String) -> Vec<Value> {
    let kind = text(object, "/spec/type");
    let mut external: Vec<String> = Vec::new();
    if kind == "LoadBalancer" {
        let ingress = items(object, "/status/loadBalancer/ingress").iter();
        external.extend(ingress.map(|one| {
            let ip = text(one, "/ip");
            if ip.is_empty() { text(one, "/hostname").to_owned() } else { ip.to_owned() }
        }));
    }
    external.extend(items(object, "/spec/externalIPs").iter().map(plain));
    let external = match (external.is_empty(), kind) {
        (false, _) => external.join(","),
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, "ExternalName") => text(object, "/spec/externalName").to_owned(),
        (true, _) => "<none>".to_owned(),
    };
    let ports = items(object, "/spec/ports").iter().map(|port| {
        let node_port = port.get("nodePort").map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{node_port}/{}", port["port"], text(port, "/protocol"))
    });
    let selector = object.pointer("/spec/selector").and_then(Value::as_object).into_iter().flatten();
    let selector: Vec<_> = selector.map(|(key, value)| format!("{key}={}", plain(value))).collect();
    vec![
        name.into(),
        kind.into(),
        or_none(text(object, "/spec/clusterIP")).into(),
        external.into(),
        or_none(&ports.collect::<Vec<_>>().join(",")).into(),
        age.into(),
        or_none(&selector.join(",")).into(),
    ]
}

fn event(object: &Value, name: &str, now: Timestamp) -> Vec<Value> {
    let first = [text(object, "/firstTimestamp"), text(object, "/eventTime")].into_iter().find(|time| !time.is_empty());
    let last = [text(object, "/series/lastObservedTime"), text(object, "/lastTimestamp")]
        .into_iter()
        .find(|time| !time.is_empty())
        .or(first);
    let involved = format!(
        "{}/{}",
        text(object, "/involvedObject/kind").to_ascii_lowercase(),
        text(object, "/involvedObject/name")
    );
    let source = [text(object, "/source/component"), text(object, "/reportingComponent")]
        .into_iter()
        .find(|source| !source.is_empty())
        .unwrap_or_default();
    let host = text(object, "/source/host");
    let source = if host.is_empty() { source.to_owned() } else { format!("{source}, {host}") };
    let times = object.pointer("/series/count").or_else(|| object.get("count")).cloned().unwrap_or(json!(1));
    vec![
        age(last.unwrap_or_default(), now).into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        involved.into(),
        text(object, "/involvedObject/fieldPath").into(),
        source.into(),
        text(object, "/message").trim().into(),
        age(first.unwrap_or_default(), now).into(),
        times,
        name.into(),
    ]
}

fn pod(object: &Value, name: &str, age: String) -> Vec<Value> {
    let statuses = items(object, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let restarts: u64 = statuses.iter().filter_map(|status| status["restartCount"].as_u64()).sum();
    let terminating = object.pointer("/metadata/deletionTimestamp").is_some();
    let status = if terminating { "Terminating" } else { text(object, "/status/phase") };
    vec![
        name.into(),
        format!("{ready}/{}", items(object, "/spec/containers").len()).into(),
        status.into(),
        restarts.to_string().into(),
        age.into(),
        or_none(text(object, "/status/podIP")).into(),
        or_none(text(object, "/spec/nodeName")).into(),
        or_none(text(object, "/status/nominatedNodeName")).into(),
        "<none>".into(),
    ]
}

fn endpoints(object: &Value) -> String {
    let all = items(object, "/subsets").iter().flat_map(|subset| {
        let ports = items(subset, "/ports");
        items(subset, "/addresses").iter().flat_map(move |address| {
            let ip = text(address, "/ip").to_owned();
            let with_port = |port: &Value| format!("{ip}:{}", port["port"]);
            if ports.is_empty() { vec![ip.clone()] } else { ports.iter().map(with_port).collect() }
        })
    });
    or_none(&joined(all, 3))
}

/// The time since then, as kubectl writes it.
fn age(then: &str, now: Timestamp) -> String {
    let Ok(then) = then.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    human(now.as_second() - then.as_second())
}

/// Two units at most, fewer the longer it is.
fn human(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        i64::MIN..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

/// A table of objects in a version of `meta.k8s.io`.
pub(super) fn table<'a>(
    resource: &Resource,
    version: &str,
    now: Timestamp,
    objects: impl Iterator<Item = &'a Value>,
    metadata: &Value,
) -> Value {
    let columns: Vec<_> = columns(resource)
        .into_iter()
        .map(|(name, kind, format, priority)| {
            json!({ "name": name, "type": kind, "format": format, "description": name, "priority": priority })
        })
        .collect();
    let rows: Vec<_> = objects
        .map(|object| {
            let mut partial = metadata_only(object);
            partial["apiVersion"] = format!("meta.k8s.io/{version}").into();
            json!({ "cells": cells(resource, object, now), "object": partial })
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// A table that only says how far a watch is.
pub(super) fn empty(version: &str, metadata: &Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "columnDefinitions": [],
        "rows": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::resources::{RESOURCES, named};

    fn row(kind: &str, object: &Value) -> Vec<String> {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        cells(named(kind).unwrap(), object, now).iter().map(plain).collect()
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        for resource in RESOURCES {
            let cells = cells(resource, &json!({}), Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), columns(resource).len(), "{}", resource.kind);
        }
    }

    #[test]
    fn services() {
        let mut service = json!({
            "metadata": { "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.11", "selector": { "app": "web" },
                      "ports": [{ "port": 80, "nodePort": 30000, "protocol": "TCP" }] },
        });
        let pending = row("Service", &service);
        assert_eq!(pending, ["web", "LoadBalancer", "10.96.0.11", "<pending>", "80:30000/TCP", "60s", "app=web"]);
        service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } });
        assert_eq!(row("Service", &service)[3], "1.2.3.4");
    }

    #[test]
    fn nodes() {
        let node = json!({
            "metadata": { "name": "a", "labels": { "node-role.kubernetes.io/worker": "" } },
            "spec": { "unschedulable": true },
            "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }],
                        "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] },
        });
        assert_eq!(row("Node", &node)[1..4], ["NotReady,SchedulingDisabled", "worker", "<unknown>"]);
        assert_eq!(row("Node", &node)[5..7], ["10.0.0.1", "<none>"]);
    }

    #[test]
    fn ages() {
        let ages: Vec<_> =
            [0, 119, 120, 125, 600, 3 * 3600 + 120, 9 * 3600, 49 * 3600, 9 * 86400, 800 * 86400].map(human).into();
        assert_eq!(ages, ["0s", "119s", "2m", "2m5s", "10m", "3h2m", "9h", "2d1h", "9d", "2y70d"]);
    }
}
