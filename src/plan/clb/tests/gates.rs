//! Readiness gates: which pods are looked at, which count as ready, and what they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{ENI, World, pod};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::observed::Observed;
use crate::plan::inputs::{Condition, ConditionStatus, ObjectKey, PodView};
use crate::plan::loadbalancer::gates::{GateCondition, Registration, admitted, conditions, gate_of, pods_to_read};

fn registration<'a>(
    desired: &'a Desired,
    observed: &'a Observed,
    attached: &'a BTreeSet<IpAddr>,
    complete: bool,
) -> Registration<'a> {
    Registration {
        owner: &desired.owner,
        desired: &desired.groups,
        observed: &observed.groups,
        unresolved: &desired.unresolved,
        outside: &desired.outside,
        attached,
        complete,
    }
}

/// A world with one gated pod at 192.168.64.11 whose endpoint is not ready.
fn gated(containers_ready: bool) -> (World, BTreeMap<String, PodView>) {
    let mut world = World::new(&[ENI]);
    let endpoint = &mut world.endpoints.endpoints[0];
    (endpoint.ready, endpoint.pod) = (false, Some("web-0".into()));
    let pod = PodView {
        key: ObjectKey::new("default", "web-0"),
        uid: "u-0".to_owned(),
        gates: BTreeSet::from([gate_of(&world.service)]),
        containers_ready,
        conditions: BTreeMap::new(),
    };
    (world, BTreeMap::from([("web-0".to_owned(), pod)]))
}

#[test]
fn a_pod_that_waits_only_for_the_load_balancer_is_registered_and_then_told() {
    let (mut world, pods) = gated(true);
    let gate = gate_of(&world.service);
    assert_eq!(gate, "service.readiness.alibabacloud.com/web");
    assert_eq!(pods_to_read(&world.service, &world.endpoints), BTreeSet::from(["web-0".to_owned()]));
    let (endpoints, waiting) = admitted(&gate, &world.endpoints, &pods);
    assert_eq!(waiting, 0);
    world.endpoints = endpoints;
    let (desired, attached) = (world.desired(), world.enis.keys().copied().collect());
    let told = |observed: &Observed, pods: &BTreeMap<String, PodView>| {
        let registration = registration(&desired, observed, &attached, false);
        conditions(&gate, &world.endpoints, pods, registration)
    };
    assert_eq!(told(&Observed::default(), &pods), [], "not before it is a backend");
    let served = world.served().observed;
    let condition = told(&served, &pods).remove(0);
    assert_eq!((condition.uid.as_str(), condition.registered, condition.reason()), ("u-0", true, "ServerRegistered"));
    let mut again = pods.clone();
    let known = Condition { status: ConditionStatus::True, reason: "ServerRegistered".into(), since: None };
    again.get_mut("web-0").unwrap().conditions.insert(gate.clone(), known);
    assert_eq!(told(&served, &again), [], "once is enough");
}

#[test]
fn a_pod_whose_containers_are_not_ready_or_that_has_no_gate_is_no_backend() {
    let (world, mut pods) = gated(false);
    let gate = gate_of(&world.service);
    let (endpoints, waiting) = admitted(&gate, &world.endpoints, &pods);
    assert_eq!((endpoints, waiting), (world.endpoints.clone(), 1));
    let pod = pods.get_mut("web-0").unwrap();
    (pod.containers_ready, pod.gates) = (true, BTreeSet::from(["other".to_owned()]));
    assert_eq!(admitted(&gate, &world.endpoints, &pods), (world.endpoints.clone(), 0));
}

#[test]
fn a_pod_without_interface_is_told_so() {
    let (mut world, pods) = gated(true);
    let gate = gate_of(&world.service);
    world.endpoints = admitted(&gate, &world.endpoints, &pods).0;
    world.enis.remove(&"192.168.64.11".parse().unwrap());
    let (desired, attached) = (world.desired(), BTreeSet::new());
    let observed = Observed::default();
    let registration = registration(&desired, &observed, &attached, true);
    let condition = conditions(&gate, &world.endpoints, &pods, registration).remove(0);
    assert_eq!((condition.registered, condition.reason()), (false, "ServerInvalidServer"));
}

/// Conditions for the pods of a world, with these addresses attached.
fn written(
    world: &World,
    observed: &Observed,
    pods: &BTreeMap<String, PodView>,
    attached: &[&str],
    complete: bool,
) -> Vec<GateCondition> {
    let desired = world.desired();
    let attached: BTreeSet<IpAddr> = attached.iter().map(|ip| ip.parse().unwrap()).collect();
    let registration = registration(&desired, observed, &attached, complete);
    conditions(&gate_of(&world.service), &world.endpoints, pods, registration)
}

#[test]
fn pods_that_are_published_unready_are_looked_at_too() {
    let (mut world, _) = gated(true);
    assert_eq!(pods_to_read(&world.service, &world.endpoints).len(), 1);
    world.service.publish_not_ready = true;
    assert_eq!(pods_to_read(&world.service, &world.endpoints).len(), 3, "being ready tells nothing of them");
    world.endpoints.endpoints[1].terminating = true;
    assert_eq!(pods_to_read(&world.service, &world.endpoints).len(), 2);
}

#[test]
fn a_pod_behind_a_node_is_told_once_everything_is_done() {
    let (mut world, pods) = gated(true);
    world = world.with(&[]);
    world.endpoints = admitted(&gate_of(&world.service), &world.endpoints, &pods).0;
    let served = world.served().observed;
    assert_eq!(written(&world, &served, &pods, &[], false), []);
    assert!(written(&world, &served, &pods, &[], true)[0].registered);
}

#[test]
fn a_pod_outside_of_the_vpc_is_told_nothing() {
    let (mut world, pods) = gated(true);
    world.endpoints.endpoints[0].address = "10.9.9.9".parse().unwrap();
    world.endpoints = admitted(&gate_of(&world.service), &world.endpoints, &pods).0;
    let served = world.served().observed;
    assert_eq!(written(&world, &served, &pods, &["192.168.64.12"], true), []);
}

#[test]
fn a_pod_with_two_addresses_is_registered_with_both() {
    let (mut world, pods) = gated(true);
    let mut second = pod("192.168.64.99", "n1");
    (second.ready, second.pod) = (false, Some("web-0".into()));
    world.endpoints.endpoints.push(second);
    world.endpoints = admitted(&gate_of(&world.service), &world.endpoints, &pods).0;
    let served = world.served().observed;
    let told = |world: &World| written(world, &served, &pods, &["192.168.64.11"], true).remove(0).registered;
    assert!(!told(&world), "the other has no interface");
    world.endpoints.endpoints.pop();
    assert!(told(&world));
}

#[test]
fn a_reason_that_changes_keeps_the_time_of_the_status() {
    let (mut world, mut pods) = gated(true);
    let gate = gate_of(&world.service);
    world.endpoints = admitted(&gate, &world.endpoints, &pods).0;
    let served = world.served().observed;
    let since: Option<jiff::Timestamp> = Some("2026-01-02T03:04:05Z".parse().unwrap());
    let known = |status| Condition { status, reason: "another".into(), since };
    let attached = ["192.168.64.11"];
    pods.get_mut("web-0").unwrap().conditions.insert(gate.clone(), known(ConditionStatus::True));
    assert_eq!(written(&world, &served, &pods, &attached, true)[0].since, since);
    pods.get_mut("web-0").unwrap().conditions.insert(gate, known(ConditionStatus::False));
    assert_eq!(written(&world, &served, &pods, &attached, true)[0].since, None);
}
