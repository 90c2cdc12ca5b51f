//! A life as data: what users want, step by step.
//!
//! What is wanted is one JSON value: Services by name, nodes by number, keys of the configuration. A step merges a patch
//! (RFC 7386) into it, so that the last state is known however the life went.

use std::fmt;
use std::time::Duration;

use alicloud_ccm::plan::loadbalancer::annotations::PREFIX;
use serde_json::{Map, Value, json};

/// A life, and what it takes to play it again.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) steps: Vec<Step>,
}

/// Something that is done after a pause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) pause: Pause,
    pub(crate) deed: Deed,
}

impl Step {
    /// Whether a Service that is there names another load balancer of a user, or none any more.
    pub(crate) fn moves(&self) -> bool {
        let Deed::Change(patch) = &self.deed else { return false };
        fields(&patch["services"]).any(|(_, it)| it.get("home").is_some() && it.get("ports").is_none())
    }
}

/// What comes before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Everything settles.
    Settle,
    /// This time.
    For(Duration),
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deed {
    /// Something else is wanted.
    Change(Value),
    /// Another client drops our finalizers and labels of this Service.
    Strip(String),
    /// Another client puts the finalizers of both products on this Service, as one does that writes an older version of it.
    PutBack(String),
    /// The process dies and a new one starts.
    Kill,
    /// From now on such a share of all requests fails, in percent.
    Faults(u8),
    /// Lists are stale or cut short, too.
    Lies(u8),
    /// From now on the cloud refuses every call of this action.
    Refuse(&'static str),
    /// Nothing fails any more.
    Calm,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Step { pause, deed }) in (1..).zip(&self.steps) {
            let pause = match pause {
                Pause::Settle => "when all is settled".to_owned(),
                Pause::For(time) => format!("{} ms later", time.as_millis()),
            };
            let deed = match deed {
                Deed::Change(patch) => patch.to_string().replace(PREFIX, "~"),
                other => format!("{other:?}"),
            };
            writeln!(f, "  {number}. {pause}: {deed}")?;
        }
        Ok(())
    }
}

/// Merges a patch as RFC 7386 says.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// The fields of an object; none of anything else.
pub(crate) fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The number in the name of a Service.
pub(crate) fn index(name: &str) -> u16 {
    name[1..].parse().unwrap()
}

/// The Service as users write it: no field that its type does not have.
pub(crate) fn service(name: &str, wanted: &Value) -> Value {
    let kind = wanted["type"].as_str().unwrap_or("LoadBalancer");
    let (balanced, external) = (kind == "LoadBalancer", kind != "ClusterIP");
    let has_node_ports = kind == "NodePort" || (balanced && wanted["allocate"] != false);
    let ports: Vec<Value> = fields(&wanted["ports"])
        .map(|(name, it)| {
            let mut port =
                json!({"name": name, "port": it["port"], "protocol": it["protocol"], "targetPort": it["target"]});
            if has_node_ports {
                port["nodePort"] = it["node"].clone();
            }
            port
        })
        .collect();
    let mut spec = json!({"type": kind, "ports": ports});
    if let Some(seconds) = wanted["affinity"].as_u64() {
        spec["sessionAffinity"] = "ClientIP".into();
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    if external && wanted["policy"] == "Local" {
        spec["externalTrafficPolicy"] = "Local".into();
        if balanced {
            spec["healthCheckNodePort"] = (32_000 + index(name)).into();
        }
    }
    if balanced {
        let given = [("class", "loadBalancerClass"), ("ranges", "loadBalancerSourceRanges")];
        for (from, to) in given.into_iter().chain([("allocate", "allocateLoadBalancerNodePorts")]) {
            if !wanted[from].is_null() {
                spec[to] = wanted[from].clone();
            }
        }
    }
    let annotations = wanted["annotations"].as_object().cloned().unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Service", "spec": spec,
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
    })
}

/// What changes a Service that is there into the one that is wanted.
pub(crate) fn patch(current: &Value, wanted: &Value, keeps_ours: bool) -> Value {
    const FIELDS: [&str; 9] = [
        "type",
        "ports",
        "sessionAffinity",
        "sessionAffinityConfig",
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "loadBalancerClass",
        "loadBalancerSourceRanges",
        "allocateLoadBalancerNodePorts",
    ];
    let is_dropped = |(key, _): &(&String, &Value)| !keeps_ours || !key.starts_with("alicloud-ccm/");
    let had = fields(&current["metadata"]["annotations"]).filter(is_dropped).map(|(key, _)| (key.clone(), Value::Null));
    let mut annotations: Map<String, Value> = had.collect();
    annotations.extend(fields(&wanted["metadata"]["annotations"]).map(|(key, value)| (key.clone(), value.clone())));
    let spec: Map<String, Value> =
        FIELDS.iter().map(|field| ((*field).to_owned(), wanted["spec"][*field].clone())).collect();
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

/// The node ports that Services are to have at the same time.
pub(crate) fn node_ports(wanted: &Value) -> Vec<u64> {
    let all = fields(&wanted["services"]).flat_map(|(_, it)| fields(&it["ports"]));
    all.filter_map(|(_, port)| port["node"].as_u64()).collect()
}

impl Life {
    /// Whether lists conceal what the process cannot know: they lie, or what they do not show yet was made before a kill.
    pub(crate) fn conceals(&self) -> bool {
        let mut is_faulty = false;
        self.steps.iter().any(|step| {
            match step.deed {
                Deed::Faults(_) => is_faulty = true,
                Deed::Calm => is_faulty = false,
                Deed::Lies(_) => return true,
                Deed::Kill | Deed::Change(_) | Deed::Strip(_) | Deed::PutBack(_) | Deed::Refuse(_) => {}
            }
            is_faulty && step.deed == Deed::Kill
        })
    }

    /// Lives that are a bit simpler, the simplest first.
    pub(crate) fn simpler(&self) -> Vec<Life> {
        let with = |steps: Vec<Step>| Life { steps, ..*self };
        let mut lives = Vec::new();
        for at in (0..self.steps.len()).rev() {
            let mut steps = self.steps.clone();
            steps.remove(at);
            lives.push(with(steps));
        }
        for (at, step) in self.steps.iter().enumerate() {
            let Deed::Change(patch) = &step.deed else { continue };
            for smaller in smaller(patch) {
                let mut steps = self.steps.clone();
                steps[at].deed = Deed::Change(smaller);
                lives.push(with(steps));
            }
        }
        lives
    }
}

/// Patches that lack a single Service, annotation, port, pod, or field.
fn smaller(patch: &Value) -> Vec<Value> {
    fn paths(value: &Value, at: &str, depth: usize, found: &mut Vec<String>) {
        for (key, inner) in fields(value) {
            let path = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            found.push(path.clone());
            if depth > 0 {
                paths(inner, &path, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    paths(patch, "", 3, &mut found);
    found.sort_by_key(|path| path.matches('/').count());
    let without = |path: &String| {
        let mut patch = patch.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = patch.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
        parent.remove(&key.replace("~1", "/").replace("~0", "~"));
        patch
    };
    found.iter().map(without).collect()
}
