//! The end of a life beside the end of a fresh world: what may differ, and what does.

use std::collections::{BTreeMap, BTreeSet};

use alicloud_ccm::plan::loadbalancer::annotations::{FORCE_OVERRIDE_LISTENERS, PREFIX, PRESERVE_ON_DELETE, Removed};
use alicloud_ccm::plan::loadbalancer::ownership::default_name;
use serde_json::Value;
use sim::testbed::Testbed;

use super::generator::{Row, USERS};
use super::life::fields;
use super::{NETWORK_CLASS, known};
use crate::annotations::places;
use crate::end_state::state;
use crate::kinds::Kind;

/// Annotations of one feature: what stays of one shows in what the cloud says of the others.
const FAMILIES: &[&[&str]] = &[
    &["health", "healthy", "unhealthy"],
    &["sticky-session", "cookie"],
    &["acl-"],
    &["connection-drain"],
    &["cacert"],
    &["alpn"],
    &["proxy-protocol", "ppv2"],
    &["charge-type", "bandwidth", "instance-charge-type", "spec"],
];
/// Stands for the annotation that leaves weights as they are.
const KEPT_WEIGHTS: &str = "weights";
/// Stands for listeners that a Service made on the load balancer of a user, and then was not to manage any more.
const LEFT: &str = "listeners";
/// Stands for a load balancer that is kept when its Service goes.
const KEPT: &str = "kept";
/// What a load balancer is besides its attributes.
const PARTS: [&str; 2] = ["listeners", "vgroups"];

/// What may differ in the end, for each Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceptions(BTreeMap<String, BTreeSet<String>>);

/// A word of the names of the load balancer of a user that a Service asks for, and of the groups there.
fn home(service: &Value) -> Option<String> {
    Some(format!("u{}", service["home"]["at"].as_u64()?))
}

fn is_home(key: &str) -> bool {
    (0..USERS).any(|number| key == format!("u{number}"))
}

impl Exceptions {
    /// Something else is wanted of a Service: what was taken away may stay, as the table of annotations says.
    pub(crate) fn note(&mut self, name: &str, before: &Value, now: &Value, rows: &[Vec<Row>; 2]) {
        let excused = self.0.entry(name.to_owned()).or_default();
        if now.is_null() {
            excused.retain(|key| key == LEFT || key == KEPT || is_home(key));
        }
        if !before["annotations"][PRESERVE_ON_DELETE.full()].is_null() {
            excused.insert(KEPT.to_owned());
        }
        excused.extend(home(now));
        for (key, value) in fields(&before["annotations"]) {
            let removed = rows.iter().flatten().filter(|row| row.key == *key).map(|row| row.removed);
            let now = &now["annotations"][key];
            for removed in removed {
                match removed {
                    Removed::Stays if now.is_null() => drop(excused.insert(key.clone())),
                    Removed::FixedAtCreation if now != value => drop(excused.insert(key.clone())),
                    _ => {}
                }
            }
        }
        let mut stated = fields(&before["annotations"]).chain(fields(&now["annotations"]));
        if !before.is_null() && stated.any(|(key, _)| key.ends_with("-ignore-weight-update")) {
            excused.insert(KEPT_WEIGHTS.to_owned());
        }
        let overrides = |it: &Value| it["annotations"][FORCE_OVERRIDE_LISTENERS.full()] == "true";
        if overrides(before) && !overrides(now) && !now.is_null() {
            excused.insert(LEFT.to_owned());
        }
        for (key, _) in fields(&now["annotations"]).filter(|(key, _)| before["annotations"][key.as_str()].is_null()) {
            let row = rows.iter().flatten().find(|row| row.key == *key);
            match row.map(|row| row.removed) {
                // The first value comes too late, too.
                Some(Removed::FixedAtCreation) if !before.is_null() => drop(excused.insert(key.clone())),
                _ => {}
            }
        }
    }

    /// Whether a load balancer can have been kept when its Service went.
    fn keeps_some(&self) -> bool {
        self.0.values().any(|keys| keys.contains(KEPT))
    }

    /// Whether what is there differs by weights alone, which a Service left as they were while that was asked for.
    fn excuse_weights(&self, path: &str, [lived, fresh]: [Option<&Value>; 2]) -> bool {
        let are_left =
            |(name, keys): (&String, &BTreeSet<String>)| is_about(path, name, keys) && keys.contains(KEPT_WEIGHTS);
        let unweighted = |value: Option<&Value>| {
            let mut backends = value.and_then(Value::as_array).cloned().unwrap_or_default();
            backends.iter_mut().filter_map(Value::as_object_mut).for_each(|backend| drop(backend.remove("weight")));
            backends
        };
        self.0.iter().any(are_left) && unweighted(lived) == unweighted(fresh)
    }

    /// Whether it is about a listener on the load balancer of a user that stays there as no Service manages it.
    fn excuse_left(&self, path: &str, wanted: &Value) -> bool {
        let is_left = |(name, keys): (&String, &BTreeSet<String>)| {
            let is_of_user = is_about(path, name, keys) && path.contains("-user-");
            let is_listener = path.contains("\u{1f}listeners") || path.ends_with("\u{1f}used_by");
            let service = &wanted["services"][name];
            let is_gone = service["type"] != "LoadBalancer" || home(service).is_none_or(|home| !mentions(path, &home));
            keys.contains(LEFT) && is_gone && is_of_user && is_listener
        };
        self.0.iter().any(is_left)
    }

    /// Whether a place of the state may differ. What a Service sets on the load balancer of a user stays.
    fn excuse(&self, path: &str, wanted: &Value) -> bool {
        let mut parts = path.split('\u{1f}').skip(1);
        let is_of_user = parts.next().is_some_and(|name| name.contains("lb-user-"));
        let is_setting = is_of_user && parts.next().is_some_and(|part| !PARTS.contains(&part));
        is_setting
            || self.0.iter().any(|(name, keys)| {
                let service = &wanted["services"][name];
                let kind = if service["class"] == NETWORK_CLASS { Kind::Nlb } else { Kind::Clb };
                // What is applied of a load balancer of which nothing is changed is not taken back either, and is remembered.
                let is_withheld = |(key, _): (&String, &Value)| known::fixed(key.strip_prefix(PREFIX).unwrap_or(key));
                let remembers =
                    path.contains("\u{1f}alicloud-ccm/applied-") && fields(&service["annotations"]).any(is_withheld);
                // Beside the access control list of a load balancer that was kept, there is another one with another name.
                let is_beside_kept = keys.contains(KEPT) && path.ends_with("\u{1f}acl_ids");
                let is_excused = remembers || is_beside_kept || keys.iter().any(|key| is_place(path, key, kind));
                is_about(path, name, keys) && is_excused
            })
    }
}

/// Whether a path names a Service, or the load balancer of a user that the Service asked for.
fn is_about(path: &str, service: &str, keys: &BTreeSet<String>) -> bool {
    mentions(path, service) || keys.iter().any(|key| is_home(key) && mentions(path, key))
}

/// Whether a path has this word.
fn mentions(path: &str, name: &str) -> bool {
    path.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| word == name)
}

/// Whether an annotation, or one of the same feature, shows there.
fn is_place(path: &str, key: &str, kind: Kind) -> bool {
    let suffix = key.strip_prefix(PREFIX).unwrap_or(key);
    let family = FAMILIES.iter().find(|family| family.iter().any(|start| suffix.starts_with(start)));
    let is_one = |other: &str| other == suffix || family.is_some_and(|it| it.iter().any(|it| other.starts_with(it)));
    let parts: Vec<&str> = path.split('\u{1f}').collect();
    let [collection, _, rest @ ..] = parts.as_slice() else { return false };
    let (balancers, groups) = match kind {
        Kind::Clb => ("load_balancers", "vgroups"),
        Kind::Nlb => ("network_load_balancers", "server_groups"),
    };
    let own = |rest: &[&str], at: &str| {
        let rest = rest.join("/").replace("_reason", "_protection");
        rest == at || rest.starts_with(&format!("{at}/"))
    };
    let is_fixed = known::fixed(suffix);
    places(kind).filter(|(other, _)| is_one(other)).any(|(_, at)| match at.split_once('/') {
        Some(("", pointer)) => *collection == balancers && own(rest, pointer),
        Some(("group", pointer)) => *collection == groups && own(rest, pointer),
        Some((_, pointer)) => {
            *collection == balancers && rest.first() == Some(&"listeners") && own(rest.get(2..).unwrap_or(&[]), pointer)
        }
        None if at == "domains" => *collection == "domain_extensions",
        None => *collection == balancers && own(rest, at),
    }) || (is_fixed && *collection == balancers && rest.first().is_some_and(|part| !PARTS.contains(part)))
        || (suffix == "resource-group-id"
            && [groups, "security_groups"].contains(collection)
            && rest == ["resource_group"])
        || (is_fixed && *collection == "services" && rest.starts_with(&["status"]))
}

/// Whether it is a setting of the health checks of a listener that does not check: it is sent with a new listener, and not later.
fn is_unchecked(path: &str, lived: &BTreeMap<String, Value>) -> bool {
    let Some((listener, setting)) = path.rsplit_once('\u{1f}') else { return false };
    let is_about_checks =
        ["HealthCheck", "HealthyThreshold", "UnhealthyThreshold"].iter().any(|it| setting.starts_with(it));
    is_about_checks
        && lived.get(&format!("{listener}\u{1f}HealthCheck")).is_some_and(|it| it == "off")
        && setting != "HealthCheck"
}

/// The key of the tag by which we know what is ours.
const MARK: &str = "kubernetes.do.not.delete";

/// Load balancers without the mark of a Service.
fn unmarked(testbed: &Testbed) -> BTreeSet<String> {
    let account = testbed.cloud.snapshot();
    let all = ["load_balancers", "network_load_balancers"].map(|kind| account[kind].as_array().cloned());
    let unmarked = all.into_iter().flatten().flatten().filter(|it| it["tags"][MARK].is_null());
    unmarked.filter_map(|it| it["id"].as_str().map(str::to_owned)).collect()
}

/// Whether it is one of these load balancers, or something that only these use.
fn is_of(balancers: &BTreeSet<String>, one: &Value) -> bool {
    let is_one = |id: &Value| id.as_str().is_some_and(|id| balancers.contains(id));
    let used_by: Vec<&Value> = one["used_by"].as_array().into_iter().flatten().collect();
    is_one(&one["id"]) || (!used_by.is_empty() && used_by.iter().all(|it| is_one(it) || is_one(&it[0])))
}

/// What a world holds, place by place, without what belongs to the `kept` load balancers.
fn leaves(testbed: &Testbed, kept: &BTreeSet<String>) -> BTreeMap<String, Value> {
    let state = state(testbed);
    let mut found = BTreeMap::new();
    for (kind, all) in fields(&state["cloud"]) {
        let there = all.as_array().into_iter().flatten().filter(|one| !is_of(kept, one));
        for (index, one) in there.enumerate() {
            let mark = one["tags"][MARK].as_str();
            let name = if kind.ends_with("groups") { one["name"].as_str() } else { mark.or(one["id"].as_str()) };
            let mut at = format!("{kind}\u{1f}{}", name.unwrap_or_default());
            while found.keys().any(|path: &String| path.starts_with(&format!("{at}\u{1f}"))) {
                at = format!("{at} again {index}");
            }
            flatten(&at, one, &mut found);
        }
        if all.is_object() {
            flatten(kind, all, &mut found);
        }
    }
    for service in state["services"].as_array().into_iter().flatten() {
        flatten(
            &format!("services\u{1f}{}", service["metadata"]["name"].as_str().unwrap_or_default()),
            service,
            &mut found,
        );
    }
    found
}

fn flatten(at: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(inner) => {
            inner.iter().for_each(|(key, value)| flatten(&format!("{at}\u{1f}{key}"), value, found));
        }
        // What has no order comes in the order of ids.
        Value::Array(items) => {
            let mut items = items.clone();
            items.sort_by_key(Value::to_string);
            found.insert(at.to_owned(), items.into());
        }
        Value::Null => {}
        _ => drop(found.insert(at.to_owned(), value.clone())),
    }
}

/// Marks and names of what `gc` lists, as the state shows them: it is without owner since its Service vanished, or changed its
/// type, without our finalizer.
fn named_by_gc(testbed: &Testbed, orphans: &[Value]) -> Vec<String> {
    let services = testbed.cluster.list("Service");
    let shown = |text: &str| {
        services.iter().fold(text.to_owned(), |text, service| {
            let (uid, name) = (service["metadata"]["uid"].as_str().unwrap(), &service["metadata"]["name"]);
            text.replace(&default_name(uid), &format!("<default name of {}>", name.as_str().unwrap()))
        })
    };
    let parts = orphans.iter().flat_map(|one| one["groups"].as_array().into_iter().flatten().chain([one]));
    let texts = parts.flat_map(|one| [one["mark"].as_str(), one["name"].as_str().filter(|it| it.starts_with("k8s"))]);
    texts.flatten().map(shown).chain(orphans.iter().flat_map(named_by_steps)).collect()
}

/// What a Service that vanished left on the load balancer of a user: the listeners and server groups that the steps of `gc` name.
fn named_by_steps(orphan: &Value) -> Vec<String> {
    let (balancer, _) = orphan["id"].as_str().and_then(|id| id.split_once('/')).unwrap_or_default();
    let steps = orphan["steps"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let named = |step: &str| match (step.strip_prefix("delete listener "), step.strip_prefix("remove from ")) {
        (Some(listener), _) => Some(format!("{balancer}\u{1f}listeners\u{1f}{listener}\u{1f}")),
        // The group of a user has its id in its name.
        (_, Some(rest)) => Some(format!("group-{}", rest.split_once(':')?.0.split_once('-')?.1)),
        _ => step.split(' ').find(|word| word.starts_with("k8s")).map(str::to_owned),
    };
    steps.filter_map(named).collect()
}

/// Where a life ended otherwise than a fresh world in its last state, as people read it.
pub(crate) fn differences(
    [lived, fresh]: [&Testbed; 2],
    orphans: &[Value],
    wanted: &Value,
    exceptions: &Exceptions,
) -> Vec<String> {
    let told = named_by_gc(lived, orphans);
    // What `preserve-lb-on-delete` kept belongs to nobody.
    let kept = match exceptions.keeps_some() {
        true => &unmarked(lived) - &unmarked(fresh),
        false => BTreeSet::new(),
    };
    let (lived, fresh) = (leaves(lived, &kept), leaves(fresh, &BTreeSet::new()));
    let is_published = |name: &str| {
        fresh.keys().any(|path| path.starts_with(&format!("services\u{1f}{name}\u{1f}status\u{1f}loadBalancer\u{1f}")))
    };
    // A setting that the cloud refuses keeps a new listener from being made, and an older one serves on.
    let unmade = |name: &str| {
        let ingress = fresh.get(&format!("services\u{1f}{name}\u{1f}status\u{1f}loadBalancer\u{1f}ingress"));
        let ports = ingress.and_then(|it| it[0]["ports"].as_array()).into_iter().flatten();
        ports.filter(|port| !port["error"].is_null()).filter_map(|port| port["port"].as_u64()).collect::<Vec<_>>()
    };
    let is_of_port = |path: &str, port: u64| {
        let mut parts = path.split('\u{1f}');
        path.ends_with("\u{1f}used_by")
            || path.contains("\u{1f}loadBalancer\u{1f}")
            || parts.any(|part| part.split('/').next() == Some(&port.to_string()))
    };
    // So does its server group, which a fresh world never made.
    let is_kept_group = |path: &str, port: u64| {
        let of_listener = |(path, _): &(&String, &Value)| {
            let mut parts = path.split('\u{1f}').skip_while(|part| *part != "listeners").skip(1);
            parts.next().is_some_and(|part| part.split('/').next() == Some(&port.to_string()))
        };
        let mut names = lived.iter().filter(of_listener).filter_map(|(_, value)| value.as_str());
        names.any(|name| path.split('\u{1f}').any(|part| part == name && part.starts_with("k8s")))
            && !fresh.contains_key(path)
    };
    // What was applied is forgotten once the Service is in sync.
    let is_remembered = |path: &str| path.contains("\u{1f}alicloud-ccm/applied-");
    // How far it came is part of the message.
    let is_message = |path: &str| path.ends_with("\u{1f}status\u{1f}conditions");
    let is_excused = |path: &str, port| {
        is_of_port(path, port) || is_kept_group(path, port) || is_remembered(path) || is_message(path)
    };
    let judged = |path: &str| {
        fields(&wanted["services"])
            .filter(|(name, service)| {
                let is_at_home = home(service).is_some_and(|home| mentions(path, &home));
                service["type"] == "LoadBalancer" && (is_at_home || mentions(path, name))
            })
            .all(|(name, _)| is_published(name) && !unmade(name).into_iter().any(|port| is_excused(path, port)))
    };
    let is_told = |path: &str| told.iter().any(|name| path.contains(name.as_str()));
    let paths: BTreeSet<&String> = lived.keys().chain(fresh.keys()).collect();
    let differs = |path: &&&String| {
        lived.get(**path) != fresh.get(**path)
            && !exceptions.excuse(path, wanted)
            && !exceptions.excuse_left(path, wanted)
            && !exceptions.excuse_weights(path, [lived.get(**path), fresh.get(**path)])
            && !known::place(path)
            && !is_unchecked(path, &lived)
            && judged(path)
            && !is_told(path)
    };
    let line = |path: &String| {
        let (path, lived) = shown(path, &lived, &fresh);
        let (_, fresh) = shown(path, &fresh, &fresh);
        format!("{}: {lived}, in a fresh world {fresh}", path.replace('\u{1f}', " / "))
    };
    paths.iter().filter(differs).map(|path| line(path)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The whole of what one world alone has, else a single place, and what is there.
fn shown<'a>(path: &'a str, of: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>) -> (&'a str, String) {
    let has = |world: &BTreeMap<String, Value>, at: &str| {
        world.keys().any(|path| path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('\u{1f}')))
    };
    let ends = path.match_indices('\u{1f}').map(|(at, _)| &path[..at]).chain([path]);
    let whole = ends.into_iter().find(|at| has(of, at) != has(other, at));
    let at = whole.unwrap_or(path);
    match of.get(at) {
        Some(value) => (at, value.to_string()),
        None => {
            let inner =
                of.iter().filter_map(|(path, value)| Some((path.strip_prefix(at)?.strip_prefix('\u{1f}')?, value)));
            let inner: Vec<String> = inner.map(|(path, value)| format!("{path} {value}")).collect();
            (at, if inner.is_empty() { "nothing".to_owned() } else { inner.join(", ") })
        }
    }
}
