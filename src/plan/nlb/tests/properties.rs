//! Random Services and edits: plans converge in one application, and every prefix is safe.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{Cloud, ZONES, desired, remove};
use crate::plan::clb::tests::properties::some_ports;
use crate::plan::clb::tests::{World, node, pod};
use crate::plan::inputs::EndpointsView;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::listener_pass::ListenerModel;
use crate::plan::loadbalancer::model::{BackendKey, GroupRef};
use crate::plan::loadbalancer::ownership::Owner;
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::desired::{Desired, NlbModel};
use crate::plan::nlb::model::{ListenerKey, Protocol};
use crate::plan::nlb::observed::{Observed, ObservedListener};
use crate::plan::nlb::operation::{Operation, Own, Plan};

const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("address-type", &["internet", "intranet"]),
    ("protocol-port", &["tcpssl:443", "TCP:443", "udp:9000"]),
    ("listener-port-range", &["1000-2000:9000", "443-500:443"]),
    ("cert-id", &["cert-1", "cert-2"]),
    ("additional-cert-ids", &["", "cert-3", "cert-4,cert-3"]),
    ("cacert", &["on", "off"]),
    ("cacert-id", &["ca-1"]),
    ("alpn", &["on", "off"]),
    ("alpn-policy", &["HTTP1Only", "HTTP2Only"]),
    ("tls-cipher-policy", &["tls_cipher_policy_1_2"]),
    ("idle-timeout", &["10", "900"]),
    ("cps", &["0", "100"]),
    ("proxy-protocol", &["on", "off"]),
    ("ppv2-pvl-ep-id-enabled", &["on", "off"]),
    ("scheduler", &["wrr", "sch"]),
    ("connection-drain", &["on", "off"]),
    ("connection-drain-timeout", &["20"]),
    ("preserve-client-ip", &["on", "off"]),
    ("health-check-flag", &["on", "off"]),
    ("health-check-type", &["tcp", "http"]),
    ("health-check-uri", &["/a", "/b"]),
    ("health-check-httpcode", &["http_3xx,http_2xx"]),
    ("server-group-type", &["ip", "instance"]),
    ("name", &["one", "two"]),
    ("cross-zone-enabled", &["on", "off"]),
    ("security-group-ids", &["", "sg-a", "sg-b,sg-a"]),
    ("bandwidth-package-id", &["", "cbwp-1", "cbwp-2"]),
    ("delete-protection", &["on", "off"]),
    ("modification-protection", &["ConsoleProtection", "NonProtection"]),
    ("additional-resource-tags", &["a=1", "a=2,b=1"]),
    ("default-weight", &["0", "50"]),
    ("ignore-weight-update", &["on"]),
    ("service.beta.kubernetes.io/backend-type", &["eni", "ecs"]),
    ("vgroup-port", &["sgp-user:80"]),
    ("weight", &["0", "60"]),
];

const RANGES: &[&[&str]] = &[&[], &["10.0.0.0/8"], &["10.0.0.0/8", "192.168.1.7/16"], &["0.0.0.0/0"]];

fn some_annotations() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    subsequence(ANNOTATIONS.to_vec(), 0..14).prop_flat_map(|chosen| {
        chosen.into_iter().map(|(key, values)| select(values).prop_map(move |value| (key, value))).collect::<Vec<_>>()
    })
}

prop_compose! {
    /// A Service, perhaps on a user's load balancer.
    pub(super) fn some_world(reuse: bool)(
        annotations in some_annotations(),
        ports in some_ports(),
        override_listeners in any::<bool>(),
        two_zones in any::<bool>(),
        ranges in select(RANGES),
        nodes in subsequence((1..8).collect::<Vec<_>>(), 0..6),
        pods in subsequence((1..30).collect::<Vec<_>>(), 0..20),
        resolved in subsequence((1..30).collect::<Vec<_>>(), 20..29),
        local in any::<bool>(),
        batch in 1..5_usize,
    ) -> World {
        let mut annotations = annotations;
        annotations.push(if two_zones { ZONES } else { ("zone-maps", "z-i:vsw-i") });
        if reuse {
            annotations.push(("id", "nlb-user"));
            if override_listeners {
                annotations.push(("force-override-listeners", "true"));
            }
        }
        let mut world = World::new(&annotations).ports(&ports);
        let address = |n: u8| format!("192.168.64.{n}");
        world.nodes = nodes.iter().map(|n| node(&format!("n{n}"), &format!("i-{n}"))).collect();
        let pods = pods.iter().map(|n| pod(&address(*n), &format!("n{}", n % 8)));
        world.endpoints = EndpointsView { unknown: false, endpoints: pods.collect() };
        world.enis = resolved.iter().map(|n| (address(*n).parse().unwrap(), format!("eni-{n}"))).collect();
        world.service.local_traffic = local;
        world.service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        world.settings.service.backend_batch_size = batch;
        world
    }
}

fn some_story() -> impl Strategy<Value = (bool, Vec<World>)> {
    any::<bool>().prop_flat_map(|reuse| (Just(reuse), prop::collection::vec(some_world(reuse), 1..4)))
}

/// A listener of the user that may be overridden, on one of [`some_ports`].
const OVERRIDDEN: ListenerKey = ListenerKey::port(9000, Protocol::Tcp);

/// What belongs to somebody else.
#[derive(Debug, PartialEq)]
struct Foreign {
    listeners: BTreeMap<ListenerKey, String>,
    groups: BTreeMap<String, Vec<BackendKey>>,
}

fn foreign(owner: &Owner, observed: &Observed) -> Foreign {
    let listeners = observed.listeners.iter().flatten();
    let listeners =
        listeners.filter(|(key, listener)| **key != OVERRIDDEN && !owner.owns_listener(&listener.description));
    let groups = observed.groups.iter().filter(|(_, group)| !owner.owns_group(&group.name));
    Foreign {
        listeners: listeners.map(|(key, listener)| (*key, format!("{listener:?}"))).collect(),
        groups: groups
            .map(|(id, group)| {
                let backends = group.members().iter().filter(|it| !owner.owns_backend(&it.description));
                (id.clone(), backends.map(|backend| backend.key.clone()).collect())
            })
            .collect(),
    }
}

fn keys(observed: &Observed, id: &str) -> BTreeSet<BackendKey> {
    observed.groups.get(id).unwrap().members().iter().map(|backend| backend.key.clone()).collect()
}

/// After this step, traffic still goes where it should, and nobody is let in that the ranges keep out.
fn check_step(desired: &Desired, before: &Observed, operation: &Operation, after: &Observed) {
    for (key, listener) in after.listeners.iter().flatten() {
        assert!(after.groups.contains_key(&listener.group_id), "{key} points nowhere after {operation}");
        let was = before.listeners.as_ref().and_then(|all| all.get(key)).map(|listener| &listener.group_id);
        if was == Some(&listener.group_id) {
            continue;
        }
        let wanted = &desired.groups[&desired.listeners[key].group.to_string()];
        let there = keys(after, &listener.group_id);
        // A listener that is new takes traffic from no other backends.
        let is_served = was.is_none() && wanted.backends.keys().any(|key| there.contains(&key));
        let is_filled = wanted.backends.keys().all(|key| there.contains(&key));
        assert!(is_served || is_filled, "{key} got an unfilled group: {operation}");
    }
    if let Operation::CreateListener { .. } = operation
        && desired.access.is_some()
    {
        let joined = after.instance.as_ref().map(|instance| &instance.security_group_ids).unwrap();
        let ours =
            after.parts.security_groups.iter().flatten().find(|group| desired.owner.owns_tagged(&group.tags)).unwrap();
        assert!(joined.contains(&ours.id), "open to everybody: {operation}");
        assert!(ours.rules.iter().flatten().any(|(_, found)| found.rule.drops), "it drops nothing: {operation}");
    }
}

fn check_possible(observed: &Observed, operation: &Operation) {
    let there = |key: &ListenerKey| observed.listeners.as_ref().is_some_and(|all| all.contains_key(key));
    let members = |group: &GroupRef| keys(observed, observed.group_id(group).expect("the group is there"));
    match operation {
        Operation::AddBackends { group, backends } => {
            let there = members(group);
            assert!(!backends.is_empty() && backends.iter().all(|backend| !there.contains(&backend.key)));
        }
        Operation::RemoveBackends { group, backends } => {
            let there = members(group);
            assert!(!backends.is_empty() && backends.iter().all(|key| there.contains(key)));
        }
        Operation::DeleteGroup { id, .. } => {
            let used = observed.listeners.iter().flatten().any(|(_, listener)| listener.group_id == *id);
            assert!(observed.groups.contains_key(id) && !used, "{operation}");
        }
        Operation::CreateListener { listener, group, .. } => {
            let taken = observed.listeners.iter().flatten().any(|(other, _)| NlbModel::collide(*other, *listener));
            assert!(!taken && group.as_ref().is_some_and(|it| observed.group_id(it).is_some()), "{operation}");
        }
        Operation::SetListener { listener, .. } | Operation::DeleteListener { listener } => {
            assert!(there(listener), "{operation}");
        }
        Operation::Own(Own::DeleteSecurityGroup { id, .. }) => {
            let joined = observed.instance.iter().any(|instance| instance.security_group_ids.contains(id));
            assert!(!joined, "{operation}");
        }
        Operation::Own(Own::SetZones { zones }) => assert!(!zones.is_empty()),
        _ => {}
    }
}

/// Every step finds what it is about.
fn check_refers_back(plan: &Plan) {
    for (index, step) in plan.steps.iter().enumerate() {
        for need in &step.needs {
            // Backends of a server group that is there can follow.
            let makes = |it: &Operation| match need {
                Target::Group(_) => it.makes().is_some(),
                _ => !matches!(it, Operation::Delete { .. }),
            };
            let first = plan.steps.iter().position(|other| other.target == *need && makes(&other.operation));
            assert!(first.is_none_or(|first| first < index), "{step} needs {need:?}, which comes later\n{plan}");
        }
    }
}

/// What is desired, if nothing is wrong with it.
pub(super) fn sound(world: &World) -> Option<Desired> {
    Some(desired(world)).filter(|desired| desired.problems.iter().next().is_none())
}

/// A user's load balancer has a listener of another Service, and one of the user that may be overridden.
fn start(reuse: bool) -> Cloud {
    if !reuse {
        return Cloud::default();
    }
    let mut cloud = Cloud::of_user();
    let listeners = cloud.observed.listeners.as_mut().unwrap();
    let other = ObservedListener {
        description: "k8s.81.TCP.other.default.c1".to_owned(),
        ..ObservedListener::clone(listeners.get(&OVERRIDDEN).unwrap())
    };
    listeners.insert(ListenerKey::port(81, Protocol::Tcp), Box::new(other));
    cloud
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plans_converge_and_every_prefix_is_safe((reuse, story) in some_story()) {
        let mut cloud = start(reuse);
        for world in story {
            let Some(desired) = sound(&world) else { continue };
            let plan = diff(&desired, &cloud.observed);
            check_refers_back(&plan);
            for step in &plan.steps {
                let before = cloud.observed.clone();
                check_possible(&before, &step.operation);
                cloud.perform(&step.operation);
                check_step(&desired, &before, &step.operation, &cloud.observed);
                let owner = &desired.owner;
                prop_assert_eq!(foreign(owner, &before), foreign(owner, &cloud.observed), "{}", step);
            }
            let again = diff(&desired, &cloud.observed);
            prop_assert!(again.steps.is_empty(), "first:\n{}\nagain:\n{}", plan, again);
        }
    }

    #[test]
    fn a_plan_cut_off_anywhere_is_finished_by_the_next((reuse, story) in some_story(), cut in 0..12_usize) {
        let mut cloud = start(reuse);
        for world in story {
            let Some(desired) = sound(&world) else { continue };
            for step in diff(&desired, &cloud.observed).steps.into_iter().take(cut) {
                cloud.perform(&step.operation);
            }
            let rest = diff(&desired, &cloud.observed);
            for step in &rest.steps {
                check_possible(&cloud.observed, &step.operation);
                cloud.perform(&step.operation);
            }
            let again = diff(&desired, &cloud.observed);
            prop_assert!(again.steps.is_empty(), "rest:\n{}\nagain:\n{}", rest, again);
        }
    }

    #[test]
    fn teardown_leaves_exactly_what_is_not_ours((reuse, story) in some_story()) {
        let mut cloud = start(reuse);
        let mut last = None;
        for world in story {
            let Some(desired) = sound(&world) else { continue };
            super::bring(&world, &mut cloud);
            last = Some((world, desired));
        }
        let Some((world, desired)) = last else { return Ok(()) };
        let owner = &desired.owner;
        let before = foreign(owner, &cloud.observed);
        let departure = Departure { reuse: desired.reuse.clone(), preserve: false, override_listeners: true, ..Departure::default() };
        let plan = remove(&world, &departure, &mut cloud);
        check_refers_back(&plan);
        prop_assert_eq!(plan.problems, vec![]);
        prop_assert_eq!(cloud.observed.instance.is_some(), reuse);
        if reuse {
            prop_assert_eq!(foreign(owner, &cloud.observed), before);
        }
        for group in cloud.observed.groups.values() {
            prop_assert!(!owner.owns_group(&group.name));
            prop_assert!(group.members().iter().all(|it| !owner.owns_backend(&it.description)));
        }
        prop_assert_eq!(cloud.observed.parts.security_groups.iter().flatten().count(), 0);
    }
}
