//! Random Services and edits: plans converge in one application, and every prefix is safe.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{Cloud, World, edited, leaving, node, pod, port};
use crate::plan::clb::desired::{ClbModel, Desired};
use crate::plan::clb::model::{ListenerKey, Protocol};
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::{Operation, Plan, Step};
use crate::plan::clb::teardown::teardown;
use crate::plan::inputs::{EndpointsView, ServicePort};
use crate::plan::loadbalancer::cloud::ObservedInstanceModel as _;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::listener_pass::ListenerModel;
use crate::plan::loadbalancer::model::{BackendKey, GroupRef};
use crate::plan::loadbalancer::ownership::Owner;
use crate::plan::loadbalancer::steps::Target;

const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("scheduler", &["rr", "wrr", "wlc"]),
    ("protocol-port", &["http:80,https:443", "https:443", "http:80,http:443", "https:80"]),
    ("forward-port", &["80:443", "443:80"]),
    ("cert-id", &["cert-1", "cert-2"]),
    ("domain-extensions", &["", "a.example.com:cert-2", "a.example.com:cert-3,b.example.com:cert-2"]),
    ("persistence-timeout", &["0", "60"]),
    ("established-timeout", &["10", "900"]),
    ("idle-timeout", &["10"]),
    ("acl-status", &["on", "off"]),
    ("acl-id", &["acl-1", "acl-2,acl-1", "acl-1,acl-2"]),
    ("acl-type", &["white", "black"]),
    ("connection-drain", &["on", "off"]),
    ("connection-drain-timeout", &["10", "20"]),
    ("sticky-session", &["on", "off"]),
    ("sticky-session-type", &["insert", "server"]),
    ("cookie", &["c1", "c2"]),
    ("cookie-timeout", &["10", "20"]),
    ("proxy-protocol", &["on", "off"]),
    ("xforwardedfor-proto", &["on", "off"]),
    ("health-check-flag", &["on", "off"]),
    ("health-check-switch", &["on", "off"]),
    ("health-check-type", &["tcp", "http"]),
    ("health-check-uri", &["/a", "/b"]),
    ("health-check-connect-port", &["-520", "8081", "0"]),
    ("healthy-threshold", &["2", "4"]),
    ("health-check-domain", &["$_ip", "a.example.com"]),
    ("http2-enabled", &["on", "off"]),
    ("name", &["one", "two"]),
    ("delete-protection", &["on", "off"]),
    ("modification-protection", &["ConsoleProtection", "NonProtection"]),
    ("additional-resource-tags", &["a=1", "a=2,b=1", "c"]),
    ("charge-type", &["paybytraffic", "paybybandwidth"]),
    ("bandwidth", &["5", "50"]),
    ("instance-charge-type", &["PayBySpec", "paybyclcu"]),
    ("spec", &["slb.s1.small", "slb.s2.small"]),
    ("default-weight", &["0", "50"]),
    ("ignore-weight-update", &["on"]),
    ("graceful-shutdown", &["true"]),
    ("service.beta.kubernetes.io/backend-type", &["eni", "ecs"]),
    ("remove-unscheduled-backend", &["on"]),
    ("vgroup-port", &["rsp-user:80", "rsp-user:80,rsp-user:443", "rsp-user:443"]),
    ("weight", &["0", "60"]),
];

fn some_annotations() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    subsequence(ANNOTATIONS.to_vec(), 0..16).prop_flat_map(|chosen| {
        chosen.into_iter().map(|(key, values)| select(values).prop_map(move |value| (key, value))).collect::<Vec<_>>()
    })
}

/// Ports that share numbers, node ports and targets.
pub(crate) fn some_ports() -> impl Strategy<Value = Vec<ServicePort>> {
    let all = vec![
        port(80, "TCP", 8080, 30080),
        port(443, "TCP", 8443, 30443),
        port(53, "UDP", 5353, 30053),
        port(53, "TCP", 5353, 30053),
        port(9000, "TCP", 9000, 30900),
        port(81, "TCP", 8080, 30081),
    ];
    subsequence(all, 1..=4)
}

prop_compose! {
    /// A Service, perhaps on a user's load balancer.
    pub(crate) fn some_world(reuse: bool)(
        annotations in some_annotations(),
        ports in some_ports(),
        override_listeners in any::<bool>(),
        nodes in subsequence((1..8).collect::<Vec<_>>(), 0..6),
        pods in subsequence((1..30).collect::<Vec<_>>(), 0..20),
        resolved in subsequence((1..30).collect::<Vec<_>>(), 20..29),
        ending in 0..30_u8,
        cordoned in 0..8,
        virtual_node in 0..8,
        local in any::<bool>(),
        batch in 1..5_usize,
    ) -> World {
        let mut annotations = annotations;
        if reuse {
            annotations.push(("id", "lb-user"));
            if override_listeners {
                annotations.push(("force-override-listeners", "true"));
            }
        }
        let mut world = World::new(&annotations).ports(&ports);
        let address = |n: u8| format!("192.168.64.{n}");
        world.nodes = nodes
            .iter()
            .map(|n| {
                edited(&node(&format!("n{n}"), &format!("i-{n}")), |node| {
                    node.unschedulable = *n == cordoned;
                    if *n == virtual_node {
                        node.labels.insert("type".into(), "virtual-kubelet".into());
                    }
                })
            })
            .collect();
        world.endpoints = EndpointsView {
            unknown: false,
            endpoints: pods
                .iter()
                .map(|n| {
                    let mut pod = pod(&address(*n), &format!("n{}", n % 8));
                    pod.terminating = *n == ending;
                    pod
                })
                .collect(),
        };
        world.enis = resolved.iter().map(|n| (address(*n).parse().unwrap(), format!("eni-{n}"))).collect();
        world.service.local_traffic = local;
        world.settings.service.backend_batch_size = batch;
        world
    }
}

fn some_story() -> impl Strategy<Value = (bool, Vec<World>)> {
    any::<bool>().prop_flat_map(|reuse| (Just(reuse), prop::collection::vec(some_world(reuse), 1..4)))
}

/// On one of [`some_ports`].
const OVERRIDDEN: ListenerKey = ListenerKey { port: 81, protocol: Protocol::Tcp };

/// What belongs to somebody else.
#[derive(Debug, PartialEq)]
struct Foreign {
    listeners: BTreeMap<ListenerKey, String>,
    groups: BTreeMap<String, (String, Vec<BackendKey>)>,
    tags: BTreeMap<String, String>,
    address: String,
}

fn foreign(owner: &Owner, observed: &Observed, keep_tags: bool) -> Foreign {
    let vendor = |key: &String| !keep_tags || key.starts_with("acs:");
    let instance = observed.instance.clone().unwrap_or_default();
    let address = instance.tagged().address.to_owned();
    Foreign {
        listeners: observed
            .listeners
            .iter()
            .flatten()
            .filter(|(key, listener)| **key != OVERRIDDEN && !owner.owns_listener(&listener.description))
            .map(|(key, listener)| (*key, format!("{listener:?}")))
            .collect(),
        groups: observed
            .groups
            .iter()
            .filter(|(_, group)| !owner.owns_group(&group.name))
            .map(|(id, group)| {
                let backends = group.members().iter().filter(|b| !owner.owns_backend(&b.description));
                (id.clone(), (group.name.clone(), backends.map(|backend| backend.key.clone()).collect()))
            })
            .collect(),
        tags: instance.tags.into_iter().filter(|(key, _)| vendor(key) && !key.starts_with("kubernetes.")).collect(),
        address,
    }
}

fn keys(observed: &Observed, id: &str) -> BTreeSet<BackendKey> {
    observed.groups.get(id).unwrap().members().iter().map(|backend| backend.key.clone()).collect()
}

/// After this step, traffic still goes where it should. `first` is what there was before all steps.
fn check_step(desired: &Desired, first: &Observed, before: &Observed, operation: &Operation, after: &Observed) {
    for (key, listener) in after.listeners.iter().flatten() {
        if listener.group_id.is_empty() {
            continue;
        }
        assert!(after.groups.contains_key(&listener.group_id), "{key} points nowhere after {operation}");
        let before = before.listeners.as_ref().and_then(|all| all.get(key)).map(|listener| &listener.group_id);
        if before == Some(&listener.group_id) {
            continue;
        }
        let wanted = &desired.groups[&desired.listeners[key].group.to_string()];
        let there = keys(after, &listener.group_id);
        assert!(wanted.backends.keys().all(|key| there.contains(&key)), "{key} got an unfilled group: {operation}");
    }
    for id in after.groups.keys().filter(|id| before.groups.contains_key(*id)) {
        if let Operation::RemoveBackends { group, .. } = operation
            && let Some(wanted) = desired.groups.values().find(|wanted| wanted.group == *group)
            && before.group_id(group) == Some(id)
        {
            let there = keys(after, id);
            let is_filled = wanted.backends.keys().all(|key| there.contains(&key));
            let had = first.groups.get(id).map_or(0, |group| group.members().len());
            assert!(is_filled || there.len() >= had, "drained before it was filled: {operation}");
        }
    }
}

/// Every step finds what it is about.
fn check_refers_back(plan: &Plan) {
    for (index, step) in plan.steps.iter().enumerate() {
        for need in &step.needs {
            let makes = |other: &&Step| other.target == *need && !matches!(other.operation, Operation::Delete { .. });
            let first = plan.steps.iter().position(|other| makes(&other));
            assert!(first.is_none_or(|first| first < index), "{step} needs {need:?}, which comes later\n{plan}");
        }
    }
}

fn check_possible(observed: &Observed, operation: &Operation) {
    let group = |group: &GroupRef| assert!(observed.group_id(group).is_some(), "no group for {operation}");
    let there = |key: &ListenerKey| observed.listeners.as_ref().is_some_and(|all| all.contains_key(key));
    match operation {
        Operation::AddBackends { group: g, backends } => {
            group(g);
            let there = keys(observed, observed.group_id(g).unwrap());
            assert!(!backends.is_empty() && backends.iter().all(|backend| !there.contains(&backend.key)));
        }
        Operation::RemoveBackends { group: g, backends } => {
            group(g);
            let there = keys(observed, observed.group_id(g).unwrap());
            assert!(!backends.is_empty() && backends.iter().all(|key| there.contains(key)));
        }
        Operation::SetBackends { group: g, backends } => {
            group(g);
            assert!(!backends.is_empty());
        }
        Operation::CreateListener { listener, group: g, .. } => {
            assert!(!there(listener), "{operation}");
            g.iter().for_each(group);
            let taken = observed.listeners.iter().flatten().any(|(other, _)| {
                other.port == listener.port && (other.protocol == Protocol::Udp) == (listener.protocol == Protocol::Udp)
            });
            assert!(!taken, "port taken: {operation}");
        }
        Operation::SetListener { listener, group: g, .. } => {
            assert!(there(listener), "{operation}");
            g.iter().for_each(group);
        }
        Operation::StartListener { listener } => assert!(there(listener), "{operation}"),
        Operation::DeleteListener { listener } => {
            assert!(there(listener), "{operation}");
            let mut all = observed.listeners.iter().flatten();
            let forwarded = all.any(|(other, found)| ClbModel::redirects_to(*other, found) == Some(*listener));
            assert!(!forwarded, "still the target of a redirection: {operation}");
        }
        Operation::DeleteGroup { id, .. } => {
            let used = observed.listeners.iter().flatten().any(|(_, listener)| listener.group_id == *id);
            assert!(observed.groups.contains_key(id) && !used, "{operation}");
        }
        Operation::Untag { keys } => assert!(!keys.is_empty()),
        Operation::Tag { tags } => assert!(!tags.is_empty()),
        _ => {}
    }
}

/// A user's load balancer has a listener of another Service, and one of the user that may be overridden.
fn start(reuse: bool) -> Cloud {
    if !reuse {
        return Cloud::default();
    }
    let mut cloud = Cloud::of_user();
    let users = cloud.listener(9000, Protocol::Tcp).clone();
    cloud.listener(9000, Protocol::Tcp).description = "k8s/9000/other/default/c1".to_owned();
    cloud.observed.listeners.as_mut().unwrap().insert(OVERRIDDEN, Box::new(users));
    cloud
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plans_converge_and_every_prefix_is_safe((reuse, story) in some_story()) {
        let mut cloud = start(reuse);
        for world in story {
            let Ok(mut desired) = world.desire() else { continue };
            if !desired.manage_listeners {
                cloud.observed.listeners = None;
            } else if cloud.observed.listeners.is_none() && reuse {
                cloud.observed.listeners = start(true).observed.listeners;
            }
            if let Some(address) = cloud.observed.tagged().map(|it| it.address.to_owned()) {
                desired.ingress =
                    vec![crate::plan::inputs::Ingress { ip: address, hostname: String::new() }];
            }
            let keep_tags = !desired.instance.tags.is_empty();
            let plan = diff(&desired, &cloud.observed);
            check_refers_back(&plan);
            let first = cloud.observed.clone();
            for step in &plan.steps {
                let before = cloud.observed.clone();
                check_possible(&before, &step.operation);
                cloud.perform(&step.operation);
                check_step(&desired, &first, &before, &step.operation, &cloud.observed);
                if before.instance.is_some() {
                    let owner = &desired.owner;
                    let changed = foreign(owner, &cloud.observed, true);
                    prop_assert_eq!(foreign(owner, &before, true), changed, "{}", step);
                    if !keep_tags {
                        let tags = foreign(owner, &cloud.observed, false).tags;
                        let found = tags.into_iter().filter(|(key, _)| *key != owner.cluster_tag);
                        let old = foreign(owner, &before, false).tags;
                        let old = old.into_iter().filter(|(key, _)| *key != owner.cluster_tag);
                        prop_assert_eq!(found.collect::<Vec<_>>(), old.collect::<Vec<_>>());
                    }
                }
            }
            let again = diff(&desired, &cloud.observed);
            prop_assert!(again.steps.is_empty(), "first:\n{}\nagain:\n{}", plan, again);
        }
    }

    #[test]
    fn a_plan_cut_off_anywhere_is_finished_by_the_next((reuse, story) in some_story(), cut in 0..12_usize) {
        let mut cloud = start(reuse);
        for world in story {
            let Ok(desired) = world.desire() else { continue };
            if !desired.manage_listeners || cloud.observed.listeners.is_none() && reuse {
                continue;
            }
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
            let Ok(desired) = world.desire() else { continue };
            if !desired.manage_listeners {
                continue;
            }
            world.bring(&mut cloud);
            last = Some(desired);
        }
        let Some(desired) = last else { return Ok(()) };
        let before = foreign(&desired.owner, &cloud.observed, true);
        let plan = teardown(&desired.owner, &leaving(desired.reuse.as_deref(), false), &cloud.observed);
        check_refers_back(&plan);
        for step in &plan.steps {
            check_possible(&cloud.observed, &step.operation);
            cloud.perform(&step.operation);
        }
        prop_assert_eq!(plan.problems, vec![]);
        if reuse {
            let owner = &desired.owner;
            prop_assert_eq!(foreign(owner, &cloud.observed, true), before);
            let listeners = cloud.observed.listeners.iter().flatten();
            prop_assert!(listeners.clone().all(|(_, listener)| !owner.owns_listener(&listener.description)));
            for group in cloud.observed.groups.values() {
                prop_assert!(!owner.owns_group(&group.name));
                prop_assert!(group.members().iter().all(|b| !owner.owns_backend(&b.description)));
            }
            prop_assert!(cloud.observed.instance.is_some());
        } else {
            prop_assert_eq!(cloud.observed.instance, None);
        }
        prop_assert!(plan.steps.iter().all(|step| step.target != Target::LoadBalancer || !reuse));
    }
}
